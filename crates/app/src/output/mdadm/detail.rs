//! `mdadm --detail` of an array that runs.

use super::size::in_other_words;
use super::{Surroundings, UNKNOWN, layout_name, name_here, raid10_copies, uuid_here};

/// Of an array without metadata.
const NO_UUID: &str = "00000000:00000000:00000000:00000000";

/// What a device is to the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// All of it is current.
    InSync,
    /// It is being filled, for its slot or to replace the member there.
    Rebuilding,
    /// It failed.
    Faulty,
    /// It waits for work.
    Spare,
}

/// A device of an array.
#[derive(Debug, Clone)]
pub struct DeviceView<'a> {
    /// The number that the superblocks give it.
    pub number: Option<u32>,
    /// Of its node; zeros for what has none.
    pub major: u32,
    /// Of its node.
    pub minor: u32,
    /// The slot it holds, or held before it failed.
    pub slot: Option<u16>,
    /// What it is.
    pub state: DeviceState,
    /// It is read only where no other one can be.
    pub write_mostly: bool,
    /// How it is called.
    pub name: &'a str,
}

/// Work in the background.
#[derive(Debug, Clone, Copy)]
pub struct WorkView<'a> {
    /// `resync`, `recovery`, `check` or `repair`.
    pub action: &'a str,
    /// How much of a hundred is done.
    pub percent: u64,
}

/// An array.
#[derive(Debug, Clone)]
pub struct DetailView<'a> {
    /// What a configuration calls it.
    pub path: &'a str,
    /// `1.2`; `None` without superblocks.
    pub metadata: Option<&'a str>,
    /// `raid5`.
    pub level: &'a str,
    /// md's number of the layout.
    pub layout_code: u32,
    /// The superblocks say which layout it is.
    pub has_layout: bool,
    /// Of a chunk, where the level has chunks.
    pub chunk_bytes: Option<u64>,
    /// What clients see.
    pub size_bytes: u64,
    /// What is used of each device.
    pub device_bytes: u64,
    /// How many slots it has.
    pub raid_disks: usize,
    /// Seconds since 1970, where superblocks tell.
    pub created: Option<u64>,
    /// The same of the last update.
    pub updated: Option<u64>,
    /// Its name with the host in front; empty where metadata has none.
    pub name: &'a str,
    /// As mdadm shows it.
    pub uuid: Option<&'a str>,
    /// The event count.
    pub events: u64,
    /// Of metadata 0.90: the number it would like.
    pub preferred_minor: Option<u32>,
    /// It has a bitmap.
    pub bitmap: bool,
    /// `bitmap`, `ppl`, `resync`, `none`.
    pub consistency: Option<&'a str>,
    /// Writes are in flight, or just ended.
    pub active: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// More failed than it can do without.
    pub broken: bool,
    /// It waits for a resync.
    pub unsynced: bool,
    /// What it does.
    pub work: Option<WorkView<'a>>,
    /// Its devices, in any order.
    pub devices: Vec<DeviceView<'a>>,
}

impl DetailView<'_> {
    fn count(&self, state: DeviceState) -> usize {
        self.devices.iter().filter(|device| device.state == state).count()
    }

    /// As mdadm counts them: what is being filled is one still.
    pub(super) fn spare_devices(&self) -> usize {
        self.count(DeviceState::Spare) + self.count(DeviceState::Rebuilding)
    }

    fn has_redundancy(&self) -> bool {
        !matches!(self.level, "linear" | "raid0")
    }

    /// The name, where there is one.
    pub(super) fn stored_name(&self) -> Option<&str> {
        Some(self.name).filter(|name| !name.is_empty())
    }

    fn is_old(&self) -> bool {
        self.metadata == Some("0.90")
    }
}

fn line(name: &str, value: &str) -> String {
    format!("{name:>18} : {value}\n")
}

fn kib_line(name: &str, bytes: u64) -> String {
    let kib = bytes / 1024;
    line(name, &format!("{kib}{}", in_other_words(kib * 1024)))
}

/// What `mdadm --detail` prints of it.
pub fn detail(array: &DetailView<'_>, here: Surroundings<'_>) -> String {
    let mut text = format!("{}:\n", array.path);
    text += &line("Version", array.metadata.unwrap_or_default());
    text.extend(array.created.map(|secs| line("Creation Time", &(here.time_of)(secs))));
    text += &line("Raid Level", array.level);
    text += &kib_line("Array Size", array.size_bytes);
    if array.has_redundancy() {
        text += &kib_line("Used Dev Size", array.device_bytes);
    }
    text += &line("Raid Devices", &array.raid_disks.to_string());
    text += &line("Total Devices", &array.devices.len().to_string());
    text.extend(array.preferred_minor.map(|minor| line("Preferred Minor", &minor.to_string())));
    if array.metadata.is_some() {
        text += &line("Persistence", "Superblock is persistent");
    }
    text.push('\n');
    if array.bitmap {
        text += &line("Intent Bitmap", "Internal");
        text.push('\n');
    }
    text.extend(array.updated.map(|secs| line("Update Time", &(here.time_of)(secs))));
    text += &line("State", &format!("{} ", state(array)));
    let failed = array.count(DeviceState::Faulty);
    text += &line("Active Devices", &array.count(DeviceState::InSync).to_string());
    text += &line("Working Devices", &(array.devices.len() - failed).to_string());
    text += &line("Failed Devices", &failed.to_string());
    text += &line("Spare Devices", &array.spare_devices().to_string());
    text.push('\n');
    text += &shape(array);
    if let Some(policy) = array.consistency {
        text += &line("Consistency Policy", policy);
        text.push('\n');
    }
    if let Some(work) = array.work {
        let name = match work.action {
            "check" => "Check Status",
            "recovery" => "Rebuild Status",
            // A repair is a resync to md.
            _ => "Resync Status",
        };
        text += &line(name, &format!("{}% complete", work.percent));
        text.push('\n');
    }
    text.extend(array.stored_name().map(|name| line("Name", &name_here(name, here.host))));
    if let Some(uuid) = array.uuid {
        let old = array.is_old();
        text += &line("UUID", &if old { uuid_here(uuid, here.host) } else { uuid.to_owned() });
        let (high, low) = (array.events >> 32, array.events & u64::from(u32::MAX));
        text += &line("Events", &if old { format!("{high}.{low}") } else { array.events.to_string() });
        text.push('\n');
    }
    text + &rows(array)
}

fn state(array: &DetailView<'_>) -> String {
    let mut words = match (array.has_redundancy(), array.broken, array.read_only) {
        // Without redundancy md has other words.
        (false, true, _) => return "broken".to_owned(),
        (false, false, true) => return "readonly".to_owned(),
        _ => if array.active { "active" } else { "clean" }.to_owned(),
    };
    let in_sync = array.count(DeviceState::InSync);
    if array.broken {
        words += ", FAILED";
    } else if in_sync < array.raid_disks {
        words += ", degraded";
    }
    match array.work.map(|work| work.action) {
        Some("check") => words += ", checking",
        Some("recovery") => words += ", recovering",
        Some(_) => words += ", resyncing",
        None if array.unsynced && array.has_redundancy() => words += ", resyncing (PENDING)",
        None => {}
    }
    words
}

fn shape(array: &DetailView<'_>) -> String {
    let chunk_kib = array.chunk_bytes.unwrap_or(0) / 1024;
    let mut text = String::new();
    // Of RAID 0 md tells a layout only where it matters, and mdadm finds no word for none.
    let layout = match array.level {
        "raid0" if !array.has_layout => Some(UNKNOWN.to_owned()),
        "raid0" => layout_name(0, array.layout_code),
        "raid5" => layout_name(5, array.layout_code),
        "raid6" => layout_name(6, array.layout_code),
        "raid10" => layout_name(10, array.layout_code),
        _ => None,
    };
    text.extend(layout.map(|layout| line("Layout", &layout)));
    match array.level {
        "linear" => text += &line("Rounding", &format!("{chunk_kib}K")),
        "raid1" => return text,
        _ => text += &line("Chunk Size", &format!("{chunk_kib}K")),
    }
    text + "\n"
}

/// The devices: those in slots, and an empty line for each slot without one; then the others, by
/// their number.
fn rows(array: &DetailView<'_>) -> String {
    let mut text = "    Number   Major   Minor   RaidDevice State\n".to_owned();
    let works = |device: &&DeviceView<'_>| {
        matches!(device.state, DeviceState::InSync | DeviceState::Rebuilding) && device.slot.is_some()
    };
    for slot in 0..array.raid_disks {
        let holds = |device: &&DeviceView<'_>| device.slot.map(usize::from) == Some(slot);
        let mut here: Vec<_> = array.devices.iter().filter(works).filter(holds).collect();
        // What replaces a member is behind it.
        here.sort_by_key(|device| device.state == DeviceState::Rebuilding);
        if here.is_empty() {
            text += &format!("{:>8}   {:5}    {:5}    {slot:>5}      removed\n", "-", 0, 0);
        }
        for device in here {
            text += &row(array, device, &slot.to_string());
        }
    }
    let mut others: Vec<_> = array.devices.iter().filter(|device| !works(device)).collect();
    others.sort_by_key(|device| device.number);
    if !others.is_empty() {
        text.push('\n');
    }
    for device in others {
        text += &row(array, device, "-");
    }
    text
}

fn row(array: &DetailView<'_>, device: &DeviceView<'_>, slot: &str) -> String {
    let number = device.number.map_or("-".to_owned(), |number| number.to_string());
    let state = match device.state {
        DeviceState::InSync => "active sync",
        DeviceState::Rebuilding => "spare rebuilding",
        DeviceState::Faulty => "faulty",
        DeviceState::Spare => "spare",
    };
    let set = set_of(array, device).map(|set| format!(" set-{set}")).unwrap_or_default();
    let mostly = if device.write_mostly { " writemostly" } else { "" };
    let DeviceView { major, minor, name, .. } = device;
    format!("{number:>8}   {major:5}    {minor:5}    {slot:>5}      {state}{set}{mostly}   {name}\n")
}

/// Near copies that divide the devices evenly make sets, which have letters.
fn set_of(array: &DetailView<'_>, device: &DeviceView<'_>) -> Option<char> {
    if array.level != "raid10" || device.state != DeviceState::InSync {
        return None;
    }
    let (near, far, _) = raid10_copies(array.layout_code);
    let even = far == 1 && near > 1 && array.raid_disks.is_multiple_of(near as usize);
    let copy = u32::from(device.slot?).checked_rem(near).filter(|_| even)?;
    char::from_u32(u32::from('A') + copy)
}

/// What `mdadm --detail --export` prints of it.
pub fn detail_export(array: &DetailView<'_>) -> String {
    let mut text = format!("MD_LEVEL={}\nMD_DEVICES={}\n", array.level, array.raid_disks);
    text += &format!("MD_METADATA={}\n", array.metadata.unwrap_or_default());
    text += &format!("MD_UUID={}\n", array.uuid.unwrap_or(NO_UUID));
    text.extend(array.stored_name().map(|name| format!("MD_NAME={name}\n")));
    for device in &array.devices {
        let own = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let key: String = device.name.trim_start_matches('/').chars().map(own).collect();
        let slot = match (device.state, device.slot) {
            (DeviceState::InSync | DeviceState::Rebuilding, Some(slot)) => slot.to_string(),
            _ => "spare".to_owned(),
        };
        text += &format!("MD_DEVICE_{key}_ROLE={slot}\nMD_DEVICE_{key}_DEV={}\n", device.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Surroundings<'static> =
        Surroundings { host: "guest", time_of: |secs| format!("<{secs} s after 1970>") };

    fn in_sync<'a>(number: u32, slot: u16, name: &'a str) -> DeviceView<'a> {
        let (major, minor, state) = (252, number.min(3), DeviceState::InSync);
        DeviceView { number: Some(number), major, minor, slot: Some(slot), state, write_mostly: false, name }
    }

    fn array<'a>(level: &'a str, devices: Vec<DeviceView<'a>>) -> DetailView<'a> {
        DetailView {
            path: "/dev/md0",
            metadata: Some("1.2"),
            level,
            layout_code: 2,
            has_layout: true,
            chunk_bytes: Some(64 << 10),
            size_bytes: 21_504 << 10,
            device_bytes: 7168 << 10,
            raid_disks: devices.len(),
            created: Some(1),
            updated: Some(2),
            name: "guest:0",
            uuid: Some("28848425:9ca7f99a:9a3c496e:76b431ed"),
            events: 18,
            preferred_minor: None,
            bitmap: false,
            consistency: Some("resync"),
            active: false,
            read_only: false,
            broken: false,
            unsynced: false,
            work: None,
            devices,
        }
    }

    /// As Linux 6.1, the last before 6.14 with this level, and mdadm 4.2 showed it.
    #[test]
    fn a_linear_array_looks_as_it_did_in_linux() {
        let mut linear = array("linear", vec![in_sync(0, 0, "/dev/dm-0"), in_sync(1, 1, "/dev/dm-1")]);
        linear.chunk_bytes = None;
        linear.consistency = Some("none");
        linear.events = 0;
        let text = "\
/dev/md0:
           Version : 1.2
     Creation Time : <1 s after 1970>
        Raid Level : linear
        Array Size : 21504 (21.00 MiB 22.02 MB)
      Raid Devices : 2
     Total Devices : 2
       Persistence : Superblock is persistent

       Update Time : <2 s after 1970>
             State : clean\x20
    Active Devices : 2
   Working Devices : 2
    Failed Devices : 0
     Spare Devices : 0

          Rounding : 0K

Consistency Policy : none

              Name : guest:0  (local to host guest)
              UUID : 28848425:9ca7f99a:9a3c496e:76b431ed
            Events : 0

    Number   Major   Minor   RaidDevice State
       0     252        0        0      active sync   /dev/dm-0
       1     252        1        1      active sync   /dev/dm-1
";
        assert_eq!(detail(&linear, HERE), text);
    }

    /// Two failed of a RAID 5 in Linux; it keeps the second one in its slot, here both are behind.
    #[test]
    fn what_failed_is_behind_the_others() {
        let mut devices: Vec<_> = ["a", "b", "c", "d"].map(|name| in_sync(0, 0, name)).into();
        for (slot, device) in (0..).zip(&mut devices) {
            (device.number, device.slot, device.minor) = (Some(slot.into()), Some(slot), slot.into());
        }
        devices[1].state = DeviceState::Faulty;
        devices[2].state = DeviceState::Faulty;
        devices[2].write_mostly = true;
        let mut broken = array("raid5", devices);
        broken.broken = true;
        let text = detail(&broken, HERE);
        assert!(text.contains("             State : clean, FAILED \n"), "{text}");
        assert!(text.contains("    Active Devices : 2\n   Working Devices : 2\n    Failed Devices : 2\n"));
        let rows = "
       0     252        0        0      active sync   a
       -       0        0        1      removed
       -       0        0        2      removed
       3     252        3        3      active sync   d

       1     252        1        -      faulty   b
       2     252        2        -      faulty writemostly   c
";
        assert!(text.ends_with(rows), "{text}");
        assert!(detail_export(&broken).contains("MD_DEVICE_b_ROLE=spare\nMD_DEVICE_b_DEV=b\n"));
    }

    #[test]
    fn an_array_that_cannot_be_healed_has_other_states() {
        let state_of = |level, broken, read_only| {
            let mut array = array(level, vec![in_sync(0, 0, "a")]);
            (array.broken, array.read_only, array.unsynced) = (broken, read_only, true);
            state(&array)
        };
        assert_eq!(state_of("raid0", false, false), "clean");
        assert_eq!(state_of("raid0", false, true), "readonly");
        assert_eq!(state_of("linear", true, false), "broken");
        assert_eq!(state_of("raid1", false, false), "clean, resyncing (PENDING)");
    }

    /// As mdadm showed one of `--build`.
    #[test]
    fn without_metadata_there_is_little_to_tell() {
        let mut array = array("raid0", vec![in_sync(0, 0, "/dev/dm-0")]);
        (array.metadata, array.uuid, array.name) = (None, None, "");
        let text = detail(&array, HERE);
        assert!(text.contains("           Version : \n") && !text.contains("Persistence"), "{text}");
        assert!(!text.contains("UUID :") && !text.contains("Events"), "{text}");
        let uuid = "MD_METADATA=\nMD_UUID=00000000:00000000:00000000:00000000\n";
        assert!(detail_export(&array).contains(uuid));
        assert_eq!(super::super::detail_scan(&array, false), "ARRAY /dev/md0 metadata=\n");
    }
}
