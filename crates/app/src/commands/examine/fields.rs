//! The fields of a superblock, under the names of docs/formats.md §1.2.

use serde_json::{Value, json};
use wattle_engine::geometry::{Level, layout_name};
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::{DeviceFlags, DeviceRole, SuperblockFields, Timestamp};
use wattle_server::time::rfc3339;

/// A field for programs and for people.
pub struct Field {
    /// As in docs/formats.md.
    pub name: &'static str,
    /// In JSON.
    pub value: Value,
    /// In text.
    pub shown: String,
}

/// A field that is shown as it is.
pub fn plain(name: &'static str, value: impl Into<Value>) -> Field {
    let value = value.into();
    let shown = match &value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Field { name, value, shown }
}

/// A field whose text says more than its value.
pub fn shown(name: &'static str, value: impl Into<Value>, shown: String) -> Field {
    Field { name, value: value.into(), shown }
}

/// A place or length that is stored in sectors: bytes in JSON, both in text.
pub fn sectors(name: &'static str, sectors: u64) -> Field {
    shown(name, bytes(sectors), format!("{sectors} sectors"))
}

/// Saturates: a damaged superblock may say anything.
pub fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

fn time(name: &'static str, time: Timestamp) -> Field {
    let text = rfc3339(time.secs);
    let shown_text = text.clone().unwrap_or_else(|| format!("{} seconds after 1970", time.secs));
    shown(name, text, shown_text)
}

/// Every field, in the order of the 1.x superblock.
pub fn of_superblock(found: &SuperblockFields) -> Vec<Field> {
    let level = Level::from_md(found.level());
    let level_name = level.map_or("unknown".to_owned(), |level| level.to_string());
    let layout = level.and_then(|level| layout_name(level, found.layout()));
    let features = found.features();
    let stored_checksum = format!("{:08x}", found.checksum());
    let checksum_verdict = match found.computed_checksum() == found.checksum() {
        true => format!("{stored_checksum} (correct)"),
        false => format!("{stored_checksum} (expected {:08x})", found.computed_checksum()),
    };
    let mut fields = vec![
        plain("metadata", found.version().to_string()),
        shown("feature_map", json!({ "bits": features.0, "names": names(found) }), features.to_string()),
        plain("set_uuid", found.set_uuid().to_string()),
        plain("set_name", found.name()),
        time("ctime", found.ctime()),
        shown("level", found.level(), format!("{} ({level_name})", found.level())),
        shown(
            "layout",
            found.layout(),
            match layout {
                Some(name) => format!("{} ({name})", found.layout()),
                None => found.layout().to_string(),
            },
        ),
        sectors("size", found.size_sectors()),
        sectors("chunksize", u64::from(found.chunk_sectors())),
        plain("raid_disks", found.raid_disks()),
        sectors("data_offset", found.data_offset_sectors()),
        sectors("data_size", found.data_size_sectors()),
        sectors("super_offset", found.super_offset_sectors()),
        plain("dev_number", found.dev_number()),
        plain("role", role(found.role())),
        plain("device_uuid", found.device_uuid().map(|uuid| uuid.to_string())),
        plain("devflags", device_flags(found.device_flags())),
        plain("cnt_corrected_read", found.corrected_reads()),
        time("utime", found.utime()),
        plain("events", found.events()),
        resync_offset(found.resync_offset()),
        shown("sb_csum", stored_checksum, checksum_verdict),
        plain("max_dev", found.max_devices()),
        shown("dev_roles", dev_roles(found), in_runs(&dev_roles(found))),
    ];
    fields.extend(optional(found));
    fields
}

fn names(found: &SuperblockFields) -> Vec<&'static str> {
    found.features().names().collect()
}

/// Fields that are only there when a feature, or the version, says so.
fn optional(found: &SuperblockFields) -> Vec<Field> {
    let mut fields = Vec::new();
    if let Some(offset) = found.bitmap_offset_sectors() {
        fields.push(relative("bitmap_offset", i64::from(offset)));
    }
    if let Some(ppl) = found.ppl() {
        fields.push(relative("ppl_offset", i64::from(ppl.offset_sectors)));
        fields.push(sectors("ppl_size", u64::from(ppl.size_sectors)));
    }
    if let Some(log) = found.bad_block_log() {
        fields.push(relative("bblog_offset", i64::from(log.offset_sectors)));
        fields.push(sectors("bblog_size", u64::from(log.size_sectors)));
        fields.push(plain("bblog_shift", log.shift));
    }
    fields.extend(found.recovery_offset().map(|offset| sectors("recovery_offset", offset)));
    fields.extend(found.journal_tail().map(|tail| sectors("journal_tail", tail)));
    if let Some(reshape) = found.reshape() {
        fields.push(sectors("reshape_position", reshape.position));
        fields.push(plain("new_level", reshape.new_level));
        fields.push(plain("delta_disks", reshape.delta_disks));
        fields.push(plain("new_layout", reshape.new_layout));
        fields.push(sectors("new_chunk", u64::from(reshape.new_chunk_sectors)));
        fields.push(plain("reshape_backwards", reshape.backwards));
        fields.extend(reshape.new_offset_sectors.map(|offset| relative("new_offset", i64::from(offset))));
    }
    fields.extend(found.logical_block_size().map(|size| plain("logical_block_size", size)));
    if let Some(minor) = found.md_minor() {
        fields.push(plain("md_minor", minor));
        fields.push(plain("byte_order", format!("{:?}", found.byte_order()).to_lowercase()));
        // Descriptors end where the table does.
        let descriptors = (0..).map_while(|index| found.descriptor(index)).map(|d| format!("{d:?}"));
        fields.push(plain("disks", descriptors.collect::<Vec<_>>()));
    }
    fields
}

/// From the superblock, forwards or backwards.
fn relative(name: &'static str, sectors: i64) -> Field {
    let bytes = sectors.saturating_mul(SECTOR_BYTES.cast_signed());
    shown(name, bytes, format!("{sectors:+} sectors from the superblock"))
}

fn resync_offset(offset: u64) -> Field {
    match offset {
        // As md stores it; a script sees at once that this is no position.
        u64::MAX => shown("resync_offset", Value::Null, "clean".to_owned()),
        0 => shown("resync_offset", 0, "0 (dirty)".to_owned()),
        offset => sectors("resync_offset", offset),
    }
}

fn role(role: DeviceRole) -> String {
    match role {
        DeviceRole::Active(slot) => format!("active {slot}"),
        DeviceRole::Spare => "spare".to_owned(),
        DeviceRole::Faulty => "faulty".to_owned(),
        DeviceRole::Journal => "journal".to_owned(),
        DeviceRole::Unknown(raw) => format!("unknown {raw:#06x}"),
    }
}

/// The table up to the last entry that is in use: the rest is all spare.
fn dev_roles(found: &SuperblockFields) -> Vec<String> {
    let roles: Vec<_> = found.roles().collect();
    let used = roles.iter().rposition(|role| *role != DeviceRole::Spare).map_or(0, |last| last + 1);
    let used = used.max(found.dev_number().saturating_add(1) as usize).min(roles.len());
    roles[..used].iter().map(|entry| role(*entry)).collect()
}

/// Numbers are given anywhere in the table, and what lies between them is all spare.
fn in_runs(roles: &[String]) -> String {
    let runs = roles.chunk_by(|one, next| one == next).flat_map(|run| match run {
        [role, _, _, _, ..] => vec![format!("{} x {role:?}", run.len())],
        few => few.iter().map(|role| format!("{role:?}")).collect(),
    });
    format!("[{}]", runs.collect::<Vec<_>>().join(","))
}

fn device_flags(flags: DeviceFlags) -> Vec<&'static str> {
    let known = [(DeviceFlags::WRITE_MOSTLY, "write-mostly"), (DeviceFlags::FAIL_FAST, "fail-fast")];
    known.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name).collect()
}
