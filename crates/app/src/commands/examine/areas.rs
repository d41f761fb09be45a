//! The structures a superblock points to: bitmap, bad-block log, partial parity log, journal.

use serde_json::json;
use wattle_control::{Member, Problem};
use wattle_format::md::{
    BadBlockArea, Features, JournalChecksum, PplArea, SuperblockFields, badblocks, bitmap, journal, ppl,
};

use super::fields::{Field, bytes, plain, sectors, shown};
use super::{AreaReport, Vec2Map};

/// A bitmap is read in pieces of this size to count its bits.
const PIECE_BYTES: u64 = 1 << 20;

/// Everything that `found` points to. An area that the drive does not give is reported as that,
/// beside the others.
pub fn of(member: &Member, found: &SuperblockFields) -> Vec<AreaReport> {
    let areas = [
        found.bitmap_offset_sectors().map(|offset| ("bitmap", of_bitmap(member, found, offset))),
        found.bad_block_log().map(|log| ("bad_block_log", of_bad_blocks(member, found, log))),
        found.ppl().map(|log| ("ppl", of_ppl(member, found, log))),
        found.journal_tail().map(|tail| ("journal", of_journal(member, found, tail))),
    ];
    let report = |(kind, read): (&'static str, Result<AreaReport, Problem>)| {
        read.unwrap_or_else(|problem| AreaReport { error: Some(problem.what), ..area(kind, None) })
    };
    areas.into_iter().flatten().map(report).collect()
}

/// Reads up to `len` bytes, less at the end of the member; `None` if nothing is there at all.
fn read(member: &Member, offset_bytes: u64, len: u64) -> Result<Option<Vec<u8>>, Problem> {
    let len = len.min(member.device.size_bytes().saturating_sub(offset_bytes));
    if len == 0 {
        return Ok(None);
    }
    Ok(Some(member.read(offset_bytes, len as usize)?))
}

fn area(kind: &'static str, offset_bytes: Option<u64>) -> AreaReport {
    AreaReport { kind, offset_bytes, error: None, fields: Vec2Map(Vec::new()) }
}

/// Where an area is, and its bytes or why there are none.
struct Start {
    at: Option<u64>,
    bytes: Result<Vec<u8>, String>,
}

/// The first `len` bytes of an area relative to the superblock.
fn start(member: &Member, found: &SuperblockFields, offset: i32, len: u64) -> Result<Start, Problem> {
    let Some(at) = found.sector_from_superblock(offset).map(bytes) else {
        return Ok(Start { at: None, bytes: Err("it would start before the member does".to_owned()) });
    };
    let read = read(member, at, len)?;
    Ok(Start { at: Some(at), bytes: read.ok_or_else(|| "it lies beyond the end of the member".to_owned()) })
}

fn of_bitmap(member: &Member, found: &SuperblockFields, offset: i32) -> Result<AreaReport, Problem> {
    let Start { at, bytes: header } = start(member, found, offset, bitmap::HEADER_BYTES as u64)?;
    let mut report = area("bitmap", at);
    let header = header.and_then(|bytes| bitmap::Header::decode(&bytes).map_err(|error| error.to_string()));
    match (header, at) {
        (Ok(header), Some(at)) => {
            let freshness = header.freshness(&found.stored_uuid(), found.events());
            report.error = freshness.err().map(|error| error.to_string());
            report.fields = Vec2Map(bitmap_fields(member, &header, at)?);
            if freshness == Ok(bitmap::Freshness::Stale) {
                report.fields.0.push(plain("freshness", "stale: every chunk counts as dirty"));
            }
        }
        (header, _) => report.error = header.err(),
    }
    Ok(report)
}

fn bitmap_fields(member: &Member, header: &bitmap::Header, at: u64) -> Result<Vec<Field>, Problem> {
    let mut fields = vec![
        plain("kind", format!("{:?}", header.kind()).to_lowercase()),
        plain("uuid", header.uuid().iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        plain("events", header.events()),
        plain("events_cleared", header.events_cleared()),
        sectors("sync_size", header.sync_size_sectors()),
        shown("state", header.state(), format!("{:#x}", header.state())),
        plain("chunksize", header.chunk_field()),
        plain("daemon_sleep_seconds", header.daemon_sleep_secs()),
        plain("write_behind", header.write_behind()),
        sectors("sectors_reserved", u64::from(header.sectors_reserved())),
        plain("nodes", header.nodes()),
    ];
    let counted = matches!(header.kind(), bitmap::BitmapKind::Normal | bitmap::BitmapKind::HostEndian);
    if let Some(bits) = header.bits().filter(|_| counted) {
        let dirty = count_dirty(member, at + bitmap::HEADER_BYTES as u64, bits)?;
        fields.push(plain("bits", bits));
        fields.push(plain("bits_set", dirty));
    }
    Ok(fields)
}

/// Bits set among the first `bits`; `None` if the member ends before.
fn count_dirty(member: &Member, mut at: u64, bits: u64) -> Result<Option<u64>, Problem> {
    let mut left = bits;
    let mut dirty = 0;
    while left > 0 {
        let piece_bits = left.min(PIECE_BYTES * 8);
        let len = piece_bits.div_ceil(8);
        let piece = read(member, at, len)?.filter(|piece| piece.len() as u64 == len);
        let Some(piece) = piece else { return Ok(None) };
        dirty += bitmap::count_ones(&piece, piece_bits);
        at += len;
        left -= piece_bits;
    }
    Ok(Some(dirty))
}

fn of_bad_blocks(
    member: &Member,
    found: &SuperblockFields,
    log: BadBlockArea,
) -> Result<AreaReport, Problem> {
    let Start { at, bytes: area_bytes } =
        start(member, found, log.offset_sectors, bytes(u64::from(log.size_sectors)))?;
    let mut report = area("bad_block_log", at);
    // Without the feature bit the space is only reserved and may hold anything.
    if !found.features().contains(Features::BAD_BLOCKS) {
        report.fields.0.push(shown("bad_ranges", json!([]), "none".to_owned()));
        return Ok(report);
    }
    match area_bytes
        .and_then(|area| badblocks::BadBlocks::decode(&area, log.shift).map_err(|error| error.to_string()))
    {
        Ok(blocks) => {
            let range = |range: &badblocks::BadRange| json!({ "offset_bytes": bytes(range.sector), "len_bytes": bytes(range.sectors) });
            let list: Vec<_> = blocks.ranges().iter().map(range).collect();
            let text: Vec<_> =
                blocks.ranges().iter().map(|r| format!("{}+{}", r.sector, r.sectors)).collect();
            let text =
                if text.is_empty() { "none".to_owned() } else { format!("sectors {}", text.join(", ")) };
            report.fields.0.push(shown("bad_ranges", list, text));
        }
        Err(error) => report.error = Some(error),
    }
    Ok(report)
}

fn of_ppl(member: &Member, found: &SuperblockFields, log: PplArea) -> Result<AreaReport, Problem> {
    let Start { at, bytes: area_bytes } =
        start(member, found, i32::from(log.offset_sectors), bytes(u64::from(log.size_sectors)))?;
    let mut report = area("ppl", at);
    let uuid = found.stored_uuid();
    let header = area_bytes.and_then(|area| match ppl::newest(&area, &uuid) {
        Some(newest) => Ok((newest.offset_bytes as u64, newest.header)),
        None => {
            ppl::Header::decode(&area, &uuid).map(|header| (0, header)).map_err(|error| error.to_string())
        }
    });
    match header {
        Ok((offset_bytes, header)) => report.fields.0.extend([
            plain("newest_header_offset", offset_bytes),
            plain("generation", header.generation),
            plain("entries_count", header.entries.len()),
            plain("entries", header.entries.iter().map(ppl_entry).collect::<Vec<_>>()),
        ]),
        Err(error) => report.error = Some(error),
    }
    Ok(report)
}

fn ppl_entry(entry: &ppl::PplEntry) -> serde_json::Value {
    json!({
        "data_offset_bytes": bytes(entry.data_sector),
        "pp_bytes": entry.pp_bytes,
        "data_bytes": entry.data_bytes,
        "parity_slot": entry.parity_disk,
        "checksum": format!("{:08x}", entry.checksum),
    })
}

fn of_journal(member: &Member, found: &SuperblockFields, tail: u64) -> Result<AreaReport, Problem> {
    let at = bytes(found.data_offset_sectors().saturating_add(tail));
    let mut report = area("journal", Some(at));
    let Some(block) = read(member, at, journal::BLOCK_BYTES as u64)? else {
        report.error = Some("its tail lies beyond the end of the member".to_owned());
        return Ok(report);
    };
    match journal::MetaBlock::decode(&block, JournalChecksum::new(&found.stored_uuid()), tail, None) {
        Ok(block) => report.fields.0.extend([
            plain("seq", block.seq),
            sectors("position", block.position_sectors),
            plain("payloads", block.payloads.len()),
            plain("pages", block.pages()),
        ]),
        Err(error) => report.error = Some(error.to_string()),
    }
    Ok(report)
}
