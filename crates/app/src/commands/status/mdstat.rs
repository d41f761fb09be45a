//! `wattle status --mdstat`: the arrays in the format of `/proc/mdstat`, for eyes and scripts that
//! know it.

use wattle_operate::metrics::md_device_name;
use wattle_server::protocol::report::{ArrayReport, MemberReport, SeatState, SpareState};

use crate::output::progress::mdstat_line;

/// The whole file.
pub fn render<'a>(arrays: impl Iterator<Item = &'a ArrayReport>) -> String {
    let mut text = "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4] \n".to_owned();
    for array in arrays {
        text.push_str(&array_lines(array));
        text.push_str("      \n");
    }
    text.push_str("unused devices: <none>\n");
    text
}

fn array_lines(array: &ArrayReport) -> String {
    let access = if array.read_only { " (read-only)" } else { "" };
    let mut text = format!("{} : active{access} {}", md_device_name(&array.name), array.level);
    // The last device first, as the kernel lists them.
    let listed = array.spares.iter().filter(|spare| spare.state != SpareState::Returning);
    for (ix, spare) in listed.enumerate().collect::<Vec<_>>().into_iter().rev() {
        let flag = if spare.state == SpareState::Faulty { "(F)" } else { "(S)" };
        let number = number(array, &spare.member, array.members.len() + ix);
        text.push_str(&format!(" {}[{number}]{flag}", base_name(&spare.member)));
    }
    for (member, replacement) in seats(array) {
        let Some(name) = &member.member else { continue };
        let flag = match (member.state, replacement) {
            (SeatState::Faulty, _) => "(F)",
            (_, true) => "(R)",
            _ => "",
        };
        let number = number(array, name, member.slot.into());
        text.push_str(&format!(" {}[{number}]{flag}", base_name(name)));
    }
    text.push_str(&format!(
        "\n      {} blocks{}{}\n",
        array.size_bytes / 1024,
        superblock(array),
        level(array)
    ));
    if let Some(sync) = &array.sync {
        // A repair is a resync to md.
        let action = if sync.action == "repair" { "resync" } else { &sync.action };
        text.push_str(&format!("      {}\n", mdstat_line(sync, action)));
    } else if !array.synced && has_redundancy(array) {
        text.push_str("      \tresync=PENDING\n");
    }
    if let Some(bitmap) = &array.bitmap {
        // Counters of 2 bytes each, in pages: those with a bit set are in memory.
        let per_page = 2048;
        let pages = bitmap.bits.div_ceil(per_page);
        let used = bitmap.bits_set.min(pages);
        let chunk = bitmap.chunk_bytes >> 10;
        text.push_str(&format!("      bitmap: {used}/{pages} pages [{}KB], {chunk}KB chunk\n", used * 4));
    }
    text
}

/// The number of a device as its superblock has it: a replacement has another than the member of
/// its slot. Without metadata it is that of its place.
fn number(array: &ArrayReport, member: &str, place: usize) -> usize {
    let recorded = array.recorded.as_ref().and_then(|recorded| recorded.numbers.get(member));
    recorded.map_or(place, |number| *number as usize)
}

fn seats(array: &ArrayReport) -> impl Iterator<Item = (&MemberReport, bool)> {
    let replacements = array.replacements.iter().rev().map(|member| (member, true));
    replacements.chain(array.members.iter().rev().map(|member| (member, false)))
}

/// mdstat has words between spaces: the last part of the path, without spaces.
fn base_name(member: &str) -> String {
    let name = member.rsplit('/').next().unwrap_or(member);
    name.chars().map(|c| if c.is_ascii_graphic() && !"[]()".contains(c) { c } else { '_' }).collect()
}

fn superblock(array: &ArrayReport) -> String {
    match array.metadata.as_deref() {
        None => " super non-persistent".to_owned(),
        Some("0.90") => String::new(),
        Some(version) => format!(" super {version}"),
    }
}

fn has_redundancy(array: &ArrayReport) -> bool {
    !matches!(array.level.as_str(), "linear" | "raid0")
}

/// What the level says of itself.
fn level(array: &ArrayReport) -> String {
    let chunk_kib = array.chunk_bytes.unwrap_or(0) / 1024;
    let code = array.layout_code.unwrap_or(0);
    let slots = array.members.len();
    let up = slots.saturating_sub(array.degraded);
    let health = format!("[{slots}/{up}] {}", array.slots);
    match array.level.as_str() {
        "linear" => format!(" {chunk_kib}k rounding"),
        "raid0" => format!(" {chunk_kib}k chunks"),
        "raid1" => format!(" {health}"),
        "raid10" => {
            let mut text = format!(" {chunk_kib}K chunks");
            let (near, far) = (code & 0xFF, code >> 8 & 0xFF);
            if near > 1 {
                text.push_str(&format!(" {near} near-copies"));
            }
            if far > 1 {
                let kind = if code >> 16 & 1 == 1 { "offset" } else { "far" };
                text.push_str(&format!(" {far} {kind}-copies"));
            }
            format!("{text} {health}")
        }
        other => {
            let number = other.trim_start_matches("raid");
            format!(" level {number}, {chunk_kib}k chunk, algorithm {code} {health}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_server::fixtures::array;
    use wattle_server::fixtures::sync;
    use wattle_server::protocol::report::{BitmapReport, RecordedReport, SpareReport};

    /// A whole array as the kernel showed the one in fixtures/raid5-4d-bitmap, with this project's
    /// device names.
    #[test]
    fn a_whole_array_looks_as_it_did_in_linux() {
        let mut data = array("0", "raid5", &["vda", "vdb", "vdc", "vdd"]);
        data.size_bytes = 21504 << 10;
        data.bitmap = Some(BitmapReport { chunk_bytes: 64 << 10, bits: 112, bits_set: 112 });
        let text = "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4] \n\
             md0 : active raid5 vdd[3] vdc[2] vdb[1] vda[0]\n\
             \x20     21504 blocks super 1.2 level 5, 64k chunk, algorithm 2 [4/4] [UUUU]\n\
             \x20     bitmap: 1/1 pages [4KB], 64KB chunk\n\
             \x20     \n\
             unused devices: <none>\n";
        assert_eq!(render([data].iter()), text);
    }

    #[test]
    fn a_failed_member_a_spare_and_a_recovery_are_marked() {
        let mut data = array("my data", "raid5", &["/dev/sda", "/dev/sdb", "/dev/sdc", "/dev/sdd"]);
        data.members[2].state = SeatState::Rebuilding;
        data.slots = "[UU_U]".to_owned();
        data.degraded = 1;
        data.spares =
            vec![SpareReport { member: "old disk".to_owned(), state: SpareState::Faulty, why: None }];
        data.sync = Some(sync("recovery", 126 << 10, 1000 << 10));
        let text = render([data].iter());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "md_my_data : active raid5 old_disk[4](F) sdd[3] sdc[2] sdb[1] sda[0]");
        assert!(lines[2].ends_with("algorithm 2 [4/3] [UU_U]"), "{text}");
        assert_eq!(
            lines[3],
            "      [==>..................]  recovery = 12.6% (126/1000) finish=0.5min speed=26691K/sec"
        );
    }

    /// In `/proc/mdstat` it is the device's number, which a replacement does not share.
    #[test]
    fn a_member_and_its_replacement_have_numbers_of_their_own() {
        let mut data = array("0", "raid5", &["a", "b", "c"]);
        let s = MemberReport { member: Some("s".to_owned()), ..data.members[0].clone() };
        data.members[0].state = SeatState::Faulty;
        data.replacements = vec![s];
        let numbers = [("a", 0), ("b", 1), ("c", 2), ("s", 3)];
        data.recorded = Some(RecordedReport {
            numbers: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
            ..RecordedReport::default()
        });
        let text = render([data].iter());
        assert!(text.contains("raid5 s[3](R) c[2] b[1] a[0](F)\n"), "{text}");
    }

    #[test]
    fn every_level_says_what_the_kernel_says_of_it() {
        let rows = [
            ("raid0", 0, " 64k chunks"),
            ("linear", 0, " 64k rounding"),
            ("raid1", 0, " [3/3] [UUU]"),
            ("raid4", 0, " level 4, 64k chunk, algorithm 0 [3/3] [UUU]"),
            ("raid6", 2, " level 6, 64k chunk, algorithm 2 [3/3] [UUU]"),
            ("raid10", 0x102, " 64K chunks 2 near-copies [3/3] [UUU]"),
            ("raid10", 0x201, " 64K chunks 2 far-copies [3/3] [UUU]"),
            ("raid10", 0x1_0201, " 64K chunks 2 offset-copies [3/3] [UUU]"),
        ];
        for (name, code, text) in rows {
            let mut data = array("a", name, &["a", "b", "c"]);
            data.layout_code = Some(code);
            assert_eq!(level(&data), text);
        }
    }

    #[test]
    fn what_waits_and_what_has_no_superblock_is_said() {
        let mut data = array("a", "raid1", &["a", "b"]);
        data.synced = false;
        data.metadata = None;
        data.read_only = true;
        let text = render([data].iter());
        assert!(text.contains("md_a : active (read-only) raid1 b[1] a[0]\n"), "{text}");
        assert!(text.contains(" blocks super non-persistent [2/2] [UU]\n      \tresync=PENDING\n"), "{text}");
    }
}
