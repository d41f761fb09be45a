//! `mdadm --examine` of metadata 0.90.

use wattle_format::md::{Descriptor, Features, SuperblockFields};

use super::examine::{Examined, checksum, line, reshape_lines, shape};
use super::size::in_other_words;
use super::{Surroundings, UNKNOWN, array_size, level_name, uuid_here};

/// Words of the superblock that only people read (docs/formats.md §1.4).
const NR_DISKS: usize = 9;
const ACTIVE_DISKS: usize = 34;
const WORKING_DISKS: usize = 35;
const FAILED_DISKS: usize = 36;
const SPARE_DISKS: usize = 37;
const THIS_DISK: usize = 992;

/// Bits of a descriptor's state, and what they are called, in this order.
const STATES: [(u32, &str); 6] =
    [(0, " faulty"), (1, " active"), (2, " sync"), (3, " removed"), (9, " write-mostly"), (10, " failfast")];

/// Active or in sync.
const IN_USE: u32 = 1 << 1 | 1 << 2;

/// Bits of a state that say nothing of what the device is.
const FLAGS: u32 = 1 << 9 | 1 << 10;

fn word(fields: &SuperblockFields, at: usize) -> u32 {
    let bytes = fields.bytes()[4 * at..].first_chunk().copied();
    u32::from_le_bytes(bytes.unwrap_or_default())
}

/// Whether this device has no part in the array, by its own descriptor.
pub(super) fn is_spare(fields: &SuperblockFields) -> bool {
    word(fields, THIS_DISK + 4) & IN_USE == 0
}

pub(super) fn examine0(found: &Examined<'_>, here: Surroundings<'_>) -> String {
    let fields = found.fields;
    let (level, features) = (fields.level(), fields.features());
    let kib = fields.size_sectors() / 2;
    let raid_disks = fields.raid_disks();
    let reshape = fields.reshape();
    let count = |at| word(fields, at).cast_signed().to_string();
    let minor_version = if reshape.is_some() { 91 } else { 90 };
    let patch = word(fields, 3);

    let mut text = format!("{}:\n", found.name);
    text += &line("Magic", "a92b4efc");
    text += &line("Version", &format!("0.{minor_version}.{patch:02}"));
    text += &line("UUID", &uuid_here(&fields.set_uuid().to_string(), here.host));
    text += &line("Creation Time", &(here.time_of)(fields.ctime().secs));
    text += &line("Raid Level", level_name(level).unwrap_or(UNKNOWN));
    if level > 0 {
        let shown = (kib as u32).cast_signed();
        text += &line("Used Dev Size", &format!("{shown}{}", in_other_words(kib.saturating_mul(1024))));
        if let Some(kib) = array_size(level, fields.layout(), raid_disks, kib) {
            text += &line("Array Size", &format!("{kib}{}", in_other_words(kib.saturating_mul(1024))));
        }
    }
    text += &line("Raid Devices", &raid_disks.cast_signed().to_string());
    text += &line("Total Devices", &count(NR_DISKS));
    text += &line("Preferred Minor", &fields.md_minor().unwrap_or_default().cast_signed().to_string());
    text.push('\n');
    if let Some(reshape) = &reshape {
        // Bytes, and nothing that says so.
        let chunk = u64::from(reshape.new_chunk_sectors) * 512;
        text += &reshape_lines(fields, reshape, &chunk.to_string());
        text.push('\n');
    }
    text += &line("Update Time", &(here.time_of)(fields.utime().secs));
    text += &line("State", if word(fields, 33) & 1 == 1 { "clean" } else { "active" });
    if features.contains(Features::BITMAP) {
        text += "Internal Bitmap : present\n";
    }
    text += &line("Active Devices", &count(ACTIVE_DISKS));
    text += &line("Working Devices", &count(WORKING_DISKS));
    text += &line("Failed Devices", &count(FAILED_DISKS));
    text += &line("Spare Devices", &count(SPARE_DISKS));
    text += &checksum(fields);
    text += &line("Events", &fields.events().to_string());
    text.push('\n');
    text += &shape(level, fields.layout(), features, fields.chunk_sectors() / 2);
    text.push('\n');

    text += "      Number   Major   Minor   RaidDevice State\n";
    let own = Descriptor {
        number: word(fields, THIS_DISK),
        major: word(fields, THIS_DISK + 1),
        minor: word(fields, THIS_DISK + 2),
        raid_disk: word(fields, THIS_DISK + 3),
        state: word(fields, THIS_DISK + 4),
    };
    text += &row("this", &own);
    text.push('\n');
    let gone = reshape.map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs());
    let rows = raid_disks.saturating_add(gone).saturating_add(word(fields, SPARE_DISKS));
    for index in 0..rows {
        let Some(descriptor) = fields.descriptor(index) else { break };
        text += &row(&format!("{index:4}"), &descriptor);
    }
    text
}

fn row(name: &str, device: &Descriptor) -> String {
    let Descriptor { number, major, minor, raid_disk, state } = *device;
    let mut text = format!(
        "{name} {:5}   {:5}    {:5}    {:5}     ",
        number.cast_signed(),
        major.cast_signed(),
        minor.cast_signed(),
        raid_disk.cast_signed()
    );
    let words = STATES.iter().filter(|(bit, _)| state >> bit & 1 == 1).map(|(_, word)| *word);
    text.extend(words);
    if state & !FLAGS == 0 {
        text += " spare";
    }
    text + "\n"
}
