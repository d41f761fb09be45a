//! `mdadm --examine`: superblocks 1.x, and what both versions have in common.

use wattle_format::md::{DeviceFlags, DeviceRole, Features, Reshape, SuperblockFields, Version};

use super::examine0::examine0;
use super::size::{brief, in_other_words};
use super::{Surroundings, UNKNOWN, array_size, layout_name, level_name, name_here};

const SECTOR_BYTES: u64 = 512;

/// Sectors behind the superblock that mdadm takes for spoken for, in front of the data.
const FRONT_SECTORS: u64 = 72;

/// Where a superblock 1.x has how far the data moves (docs/formats.md §1.2).
const NEW_OFFSET_AT: usize = 124;

/// Where a superblock 1.2 lies.
const V12_SECTOR: u64 = 8;

/// What is in a role table beyond the slots: from here on no entry is a slot.
const FIRST_NO_SLOT: u16 = 0xff01;
const FAULTY: u16 = 0xfffe;
const JOURNAL: u16 = 0xfffd;
const SPARE: u16 = 0xffff;

/// The bitmap that a superblock points to.
#[derive(Clone, Copy)]
pub struct FoundBitmap {
    /// Sectors that its bits stand for.
    pub covers_sectors: u64,
    /// Bytes that one bit stands for.
    pub chunk_bytes: u64,
}

impl FoundBitmap {
    /// How many sectors its bits take, as mdadm reckons it.
    fn sectors(self) -> u64 {
        let bits = self.covers_sectors.div_ceil((self.chunk_bytes / SECTOR_BYTES).max(1));
        // Whole pages only: the last part of one is not counted.
        bits.div_ceil(8) / 4096 * 8
    }
}

/// A member, and the superblock that mdadm would choose.
pub struct Examined<'a> {
    /// As it was named.
    pub name: &'a str,
    /// Without the bitmap's bit where there is no bitmap.
    pub fields: &'a SuperblockFields,
    /// Of the member.
    pub size_sectors: u64,
    /// What is at the place of the bitmap.
    pub bitmap: Option<FoundBitmap>,
}

/// What `mdadm --examine` prints of one member.
pub fn examine(found: &Examined<'_>, here: Surroundings<'_>) -> String {
    match found.fields.version() {
        Version::V090 => examine0(found, here),
        Version::V10 | Version::V11 | Version::V12 => examine1(found, here),
    }
}

/// What `mdadm --examine --export` prints of one member.
pub fn examine_export(found: &Examined<'_>) -> String {
    let fields = found.fields;
    let mut lines = vec![
        format!("MD_LEVEL={}", level_name(fields.level()).unwrap_or("(null)")),
        format!("MD_DEVICES={}", fields.raid_disks()),
    ];
    let one = fields.version() != Version::V090;
    if one {
        if !fields.name_bytes().is_empty() {
            lines.push(format!("MD_NAME={}", fields.name()));
        }
        let size = array_size(fields.level(), fields.layout(), fields.raid_disks(), fields.size_sectors());
        lines.extend(size.map(|sectors| format!("MD_ARRAY_SIZE={}", brief(bytes(sectors)))));
    }
    lines.push(format!("MD_UUID={}", fields.set_uuid()));
    // Of 0.90 it is the time when the array was made.
    let updated = if one { fields.utime() } else { fields.ctime() };
    lines.push(format!("MD_UPDATE_TIME={}", updated.secs));
    lines.extend(fields.device_uuid().map(|uuid| format!("MD_DEV_UUID={uuid}")));
    lines.push(format!("MD_EVENTS={}", fields.events()));
    lines.join("\n") + "\n"
}

/// Saturates: a damaged superblock may say anything.
pub(super) fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

/// A line of the list, its name in a column of its own.
pub(super) fn line(name: &str, value: &str) -> String {
    format!("{name:>15} : {value}\n")
}

fn sectors_line(name: &str, sectors: u64) -> String {
    line(name, &format!("{sectors} sectors{}", in_other_words(bytes(sectors))))
}

fn examine1(found: &Examined<'_>, here: Surroundings<'_>) -> String {
    let fields = found.fields;
    let features = fields.features();
    let level = fields.level();
    let mut text = format!("{}:\n", found.name);
    text += &line("Magic", "a92b4efc");
    text += &line("Version", &fields.version().to_string());
    text += &line("Feature Map", &format!("{:#x}", features.0));
    text += &line("Array UUID", &fields.set_uuid().to_string());
    text += &line("Name", &name_here(&fields.name(), here.host));
    text += &line("Creation Time", &(here.time_of)(fields.ctime().secs));
    text += &line("Raid Level", level_name(level).unwrap_or(UNKNOWN));
    text += &line("Raid Devices", &fields.raid_disks().to_string());
    text.push('\n');
    text += &sizes(found);
    text += &line("State", if fields.resync_offset() == u64::MAX { "clean" } else { "active" });
    text += &line("Device UUID", &fields.device_uuid().map(|uuid| uuid.to_string()).unwrap_or_default());
    text.push('\n');
    text += &areas(fields);
    if let Some(reshape) = fields.reshape() {
        text += &reshape_lines(fields, &reshape, &format!("{}K", reshape.new_chunk_sectors / 2));
        text.push('\n');
    }
    text += &flags(fields.device_flags());
    text += &line("Update Time", &(here.time_of)(fields.utime().secs));
    if let Some(log) = fields.bad_block_log()
        && log.size_sectors > 0
    {
        let entries = u32::from(log.size_sectors) * 64;
        let present = if features.contains(Features::BAD_BLOCKS) { " - bad blocks present." } else { "" };
        let at = format!("{entries} entries available at offset {} sectors{present}", log.offset_sectors);
        text += &line("Bad Block Log", &at);
    }
    text += &checksum(fields);
    text += &line("Events", &fields.events().to_string());
    text.push('\n');
    text += &shape(level, fields.layout(), features, fields.chunk_sectors() / 2);
    text.push('\n');
    text += &roles(fields);
    text
}

/// How large everything is, and where.
fn sizes(found: &Examined<'_>) -> String {
    let fields = found.fields;
    let (level, size) = (fields.level(), fields.size_sectors());
    let mut text = sectors_line("Avail Dev Size", fields.data_size_sectors());
    if let Some(sectors) = array_size(level, fields.layout(), fields.raid_disks(), size) {
        text += &line("Array Size", &format!("{} KiB{}", sectors / 2, in_other_words(bytes(sectors))));
    }
    if size != fields.data_size_sectors() && level != 0 {
        text += &sectors_line("Used Dev Size", size);
    }
    if fields.data_offset_sectors() > 0 {
        text += &line("Data Offset", &format!("{} sectors", fields.data_offset_sectors()));
    }
    let new_offset = new_offset(fields);
    if let Some(moved) = new_offset.filter(|moved| *moved != 0) {
        let offset = fields.data_offset_sectors().wrapping_add_signed(i64::from(moved));
        text += &line("New Offset", &format!("{offset} sectors"));
    }
    text += &line("Super Offset", &format!("{} sectors", fields.super_offset_sectors()));
    if fields.features().contains(Features::RECOVERY_OFFSET) {
        text +=
            &line("Recovery Offset", &format!("{} sectors", fields.recovery_offset().unwrap_or_default()));
    }
    if new_offset.is_none()
        && let Some((before, after)) = unused(found)
    {
        text += &line("Unused Space", &format!("before={before} sectors, after={after} sectors"));
    }
    text
}

/// How far the data moves, where a bit says that it does.
fn new_offset(fields: &SuperblockFields) -> Option<i32> {
    let stored = fields.bytes()[NEW_OFFSET_AT..].first_chunk().copied().map(i32::from_le_bytes);
    stored.filter(|_| fields.features().contains(Features::NEW_OFFSET))
}

/// The sectors in front of the data and behind it that nothing uses, if mdadm tells them.
fn unused(found: &Examined<'_>) -> Option<(u64, u64)> {
    let fields = found.fields;
    let (at, data) = (fields.super_offset_sectors(), fields.data_offset_sectors());
    let used = if fields.level() > 0 { fields.size_sectors() } else { fields.data_size_sectors() };
    let bitmap = found.bitmap.zip(fields.bitmap_offset_sectors());
    let bitmap = bitmap.map(|(bitmap, offset)| (i64::from(offset), bitmap.sectors()));
    let ppl = fields.ppl().map(|log| (i64::from(log.offset_sectors), u64::from(log.size_sectors)));
    let bad = fields.bad_block_log();
    let bad = bad
        .filter(|log| log.size_sectors > 0)
        .map(|log| (i64::from(log.offset_sectors), u64::from(log.size_sectors)));
    let areas = [bitmap, ppl, bad].into_iter().flatten();
    let (before, after) = if at <= data {
        // From where mdadm counts: a log of parity from the start of the device, a bitmap as if
        // the superblock were that of 1.2. Offsets to the front are passed over but for the last.
        let behind = |area: &(i64, u64)| area.0 > 0;
        let (ppl, bitmap) = (ppl.filter(behind), bitmap.filter(behind));
        let ends = [(V12_SECTOR, bitmap), (0, ppl), (at, bad)].into_iter();
        let ends = ends.filter_map(|(from, area)| area.map(|(offset, len)| (from, offset, len)));
        let ends = ends.map(|(from, offset, len)| from.wrapping_add_signed(offset).saturating_add(len));
        let front = ends.fold(at.saturating_add(FRONT_SECTORS), u64::max);
        (data.saturating_sub(front), found.size_sectors.wrapping_sub(used).wrapping_sub(data))
    } else {
        let taken = areas.filter(|area| area.0 < 0).map(|area| at.saturating_add_signed(area.0));
        let end = taken.fold(at, u64::min);
        (data, end.saturating_sub(data.saturating_add(used)))
    };
    // Of a journal all is used, and that is said in any case.
    if fields.role() == DeviceRole::Journal {
        return Some((before, found.size_sectors % 8));
    }
    (after != 1 && (before, after) != (0, 0)).then_some((before, after))
}

/// What the superblock points to.
fn areas(fields: &SuperblockFields) -> String {
    let mut text = String::new();
    if let Some(offset) = fields.bitmap_offset_sectors() {
        text += &format!("Internal Bitmap : {offset} sectors from superblock\n");
    }
    if let Some(log) = fields.ppl() {
        let (size, offset) = (log.size_sectors, log.offset_sectors);
        text += &line("PPL", &format!("{size} sectors at offset {offset} sectors from superblock"));
    }
    text
}

/// The reshape in progress: what changes. How the chunk is shown depends on the version.
pub(super) fn reshape_lines(fields: &SuperblockFields, reshape: &Reshape, new_chunk: &str) -> String {
    let kib = reshape.position / 2;
    let mut text = line(
        "Reshape pos'n",
        &format!("{kib}{}", in_other_words(reshape.position.saturating_mul(SECTOR_BYTES))),
    );
    let (now, then) = (fields.raid_disks(), reshape.delta_disks);
    if then != 0 {
        let before = now.cast_signed().wrapping_sub(then);
        text += &line("Delta Devices", &format!("{then} ({before}->{})", now.cast_signed()));
    }
    if reshape.new_level != fields.level() {
        text += &line("New Level", level_name(reshape.new_level).unwrap_or(UNKNOWN));
    }
    if reshape.new_layout != fields.layout()
        && let Some(name) = layout_name(fields.level(), reshape.new_layout).filter(|_| fields.level() > 0)
    {
        text += &line("New Layout", &name);
    }
    if reshape.new_chunk_sectors != fields.chunk_sectors() {
        text += &line("New Chunksize", new_chunk);
    }
    text
}

fn flags(flags: DeviceFlags) -> String {
    if flags.0 == 0 {
        return String::new();
    }
    let known = [(DeviceFlags::WRITE_MOSTLY, " write-mostly"), (DeviceFlags::FAIL_FAST, " failfast")];
    let words = known.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, word)| word);
    format!("{:>15} :{}\n", "Flags", words.collect::<String>())
}

pub(super) fn checksum(fields: &SuperblockFields) -> String {
    let (stored, computed) = (fields.checksum(), fields.computed_checksum());
    let verdict = if stored == computed { "correct".to_owned() } else { format!("expected {computed:x}") };
    line("Checksum", &format!("{stored:x} - {verdict}"))
}

/// Layout and chunk, where the level has them.
pub(super) fn shape(level: i32, layout: u32, features: Features, chunk_kib: u32) -> String {
    let mut text = String::new();
    // Of RAID 0 the layout counts only where a bit says so.
    let counts = level != 0 || features.contains(Features::RAID0_LAYOUT);
    text.extend(layout_name(level, layout).filter(|_| counts).map(|name| line("Layout", &name)));
    match level {
        -1 => text += &line("Rounding", &format!("{chunk_kib}K")),
        0 | 4 | 5 | 6 | 10 => text += &line("Chunk Size", &format!("{chunk_kib}K")),
        _ => {}
    }
    text
}

/// The role of this device, and which slots have one.
fn roles(fields: &SuperblockFields) -> String {
    let table: Vec<u16> = fields.roles().map(DeviceRole::to_raw).collect();
    let own = table.get(fields.dev_number() as usize).copied().unwrap_or(SPARE);
    let role = match own {
        JOURNAL => "Journal".to_owned(),
        FAULTY | SPARE => "spare".to_owned(),
        slot if fields.features().contains(Features::REPLACEMENT) => format!("Replacement device {slot}"),
        slot => format!("Active device {slot}"),
    };
    let gone = fields.reshape().map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs());
    let slots = fields.raid_disks().saturating_add(gone).min(u32::from(FIRST_NO_SLOT));
    let mut consistent = true;
    let mut state = String::new();
    for slot in 0..slots {
        state.push(match table.iter().filter(|role| u32::from(**role) == slot).count() {
            0 => '.',
            1 => 'A',
            // In RAID 0 nothing can be replaced.
            2 if fields.level() != 0 => 'R',
            _ => {
                consistent = false;
                '?'
            }
        });
    }
    consistent &= !table.iter().any(|role| *role < FIRST_NO_SLOT && u32::from(*role) > slots);
    let mut text = format!(
        "{:>14} : {role}\n{:>14} : {state} ('A' == active, '.' == missing, 'R' == replacing)\n",
        "Device Role", "Array State"
    );
    if !consistent {
        text += "WARNING Array state is inconsistent - each number should appear only once\n";
        for (number, role) in table.iter().enumerate() {
            let shown = if *role >= FAULTY { "-".to_owned() } else { role.to_string() };
            text += &format!(" {number}:{shown}");
        }
        text.push('\n');
    }
    text
}
