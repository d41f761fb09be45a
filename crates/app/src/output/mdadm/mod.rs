//! What mdadm 4.2 prints, of the same superblocks and of the same array: for scripts that parse it.
//! Values in, text out. Every rule here was found by experiment, by comparing with mdadm itself:
//! crates/app/tests/cli/mdadm.rs does that with every image that it can make, and the guest with
//! arrays that run. docs/scripts.md says what differs, and why.

mod detail;
mod examine;
mod examine0;
mod host;
mod partitions;
mod scan;
mod size;

pub use detail::{DetailView, DeviceState, DeviceView, WorkView, detail, detail_export};
pub use examine::{Examined, FoundBitmap, examine, examine_export};
pub use partitions::partitions;
pub use scan::{detail_scan, examine_scan};

use wattle_format::md::Version;

/// What mdadm takes from the machine that it runs on.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// Its name.
    pub host: &'a str,
    /// Seconds since 1970 in local time, as C's `ctime` has it, without the end of the line.
    pub time_of: fn(u64) -> String,
}

/// The name of a level; `None` if mdadm knows none.
fn level_name(level: i32) -> Option<&'static str> {
    Some(match level {
        -5 => "faulty",
        -4 => "multipath",
        -1 => "linear",
        0 => "raid0",
        1 => "raid1",
        4 => "raid4",
        5 => "raid5",
        6 => "raid6",
        10 => "raid10",
        _ => return None,
    })
}

const UNKNOWN: &str = "-unknown-";

/// Layouts of levels 5 and 6 that have the same names.
const PARITY: [&str; 6] = [
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
];

/// The name of a layout, of the levels that have one.
fn layout_name(level: i32, layout: u32) -> Option<String> {
    let named = |names: &[&str], first: u32| {
        let index = layout.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| names.get(index)).map(|name| (*name).to_owned())
    };
    let name = match level {
        0 => named(&["dangerous", "original", "alternate"], 0),
        5 => named(&PARITY, 0),
        6 => named(&PARITY, 0)
            .or_else(|| named(&["ddf-zero-restart", "ddf-N-restart", "ddf-N-continue"], 8))
            .or_else(|| {
                let names = ["left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric"];
                named(&names, 16).or_else(|| named(&["parity-first"], 20)).map(|name| name + "-6")
            }),
        10 => return Some(raid10_layout(layout)),
        _ => return None,
    };
    Some(name.unwrap_or_else(|| UNKNOWN.to_owned()))
}

/// Copies of a RAID 10: near, far, and whether these are in the next row.
fn raid10_copies(layout: u32) -> (u32, u32, bool) {
    (layout & 0xff, layout >> 8 & 0xff, layout >> 16 & 1 == 1)
}

fn raid10_layout(layout: u32) -> String {
    let (near, far, offset) = raid10_copies(layout);
    let far_name = if offset { "offset" } else { "far" };
    match (near, far) {
        (1, 1) => "NO REDUNDANCY".to_owned(),
        (_, 1) => format!("near={near}"),
        (1, _) => format!("{far_name}={far}"),
        _ => format!("near={near}, {far_name}={far}"),
    }
}

/// What the array holds, from what it uses of each device, in the same unit; `None` for the levels
/// of which mdadm does not tell, and for what cannot be.
fn array_size(level: i32, layout: u32, raid_disks: u32, size: u64) -> Option<u64> {
    let disks = u64::from(raid_disks);
    let data_disks = match level {
        1 => 1,
        4 | 5 => disks.checked_sub(1)?,
        6 => disks.checked_sub(2)?,
        10 => {
            let (near, far, _) = raid10_copies(layout);
            return size.wrapping_mul(disks).checked_div(u64::from(near) * u64::from(far));
        }
        _ => return None,
    };
    (data_disks > 0).then(|| size.wrapping_mul(data_disks))
}

/// What a configuration calls the array: `/dev/md/NAME` without the host in front, `/dev/mdN` where
/// there is only a number. `None` for an array without a name.
pub fn device_path(version: Option<Version>, name: &str, minor: u32) -> Option<String> {
    if version == Some(Version::V090) {
        return Some(format!("/dev/md{}", minor.cast_signed()));
    }
    let own = |c| match c {
        '/' => '-',
        ' ' | '\t' => '_',
        other => other,
    };
    let last = name.split_once(':').map_or(name, |(_, last)| last);
    (!name.is_empty()).then(|| format!("/dev/md/{}", last.chars().map(own).collect::<String>()))
}

/// A name with what mdadm puts behind it where the array belongs to this machine.
fn name_here(name: &str, host: &str) -> String {
    let here = !host.is_empty() && name.strip_prefix(host).is_some_and(|rest| rest.starts_with(':'));
    if here { format!("{name}  (local to host {host})") } else { name.to_owned() }
}

/// The same of a UUID of metadata 0.90, whose last words are made from the host's name.
fn uuid_here(uuid: &str, host: &str) -> String {
    let here = uuid.get(18..).is_some_and(|words| words == host::uuid_words(host));
    if here { format!("{uuid} (local to host {host})") } else { uuid.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_mdadms_names() {
        let rows = [
            (0, 2, "alternate"),
            (0, 9, "-unknown-"),
            (5, 2, "left-symmetric"),
            (5, 6, "-unknown-"),
            (6, 5, "parity-last"),
            (6, 10, "ddf-N-continue"),
            (6, 16, "left-asymmetric-6"),
            (6, 20, "parity-first-6"),
            (6, 21, "-unknown-"),
            (10, 0x101, "NO REDUNDANCY"),
            (10, 0x202, "near=2, far=2"),
            (10, 0x1_0301, "offset=3"),
        ];
        for (level, layout, name) in rows {
            assert_eq!(layout_name(level, layout).as_deref(), Some(name), "{level} {layout}");
        }
        assert_eq!(layout_name(4, 2), None);
    }

    #[test]
    fn a_name_gives_the_path_of_the_device() {
        let path = |name| device_path(Some(Version::V12), name, 0);
        assert_eq!(path("box:data").as_deref(), Some("/dev/md/data"));
        assert_eq!(path("a b:x/y z").as_deref(), Some("/dev/md/x-y_z"));
        assert_eq!(path("box:").as_deref(), Some("/dev/md/"));
        assert_eq!(path(""), None);
        assert_eq!(device_path(Some(Version::V090), "", 127).as_deref(), Some("/dev/md127"));
    }

    #[test]
    fn what_belongs_to_this_machine_is_said() {
        assert_eq!(name_here("vm:a", "vm"), "vm:a  (local to host vm)");
        assert_eq!(name_here("vmx:a", "vm"), "vmx:a");
        // As mdadm made it on a host of this name.
        let uuid = "f855ad1d:a0ea79d9:685e6735:7bafb5f4";
        assert_eq!(uuid_here(uuid, "guest"), format!("{uuid} (local to host guest)"));
        assert_eq!(uuid_here(uuid, "vm"), uuid);
    }
}
