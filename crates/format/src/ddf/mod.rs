//! DDF: the Common RAID Disk Data Format, which Dell PERC, LSI MegaRAID and others keep on their
//! drives, and Linux too.
//!
//! The last sector of a drive is the anchor. It says where the primary and the secondary header
//! are, each followed by its sections: the controller, the drives of the container, its volumes,
//! how each volume lies on drives, and which of the drives this one is. All numbers are big-endian.
//!
//! Source: SNIA, Common RAID Disk Data Format Specification, revisions 1.2 and 2.0, and experiments
//! with mdadm 4.2; docs/formats.md §10.4 has what was verified.
//!
//! Invariant: what is returned is bounded by the bytes read; sections and records whose checksum
//! does not hold are not in it.

mod bad;
mod config;
#[cfg(test)]
mod tests;

use crate::bytes::{array, be32, be64};
use crate::crc32;
use crate::text::printable;
pub use bad::{DdfBadBlockLog, DdfBadBlocks};
pub use config::{DdfConfig, DdfMember, MEMBERS_MAX};

/// What anchor and headers begin with.
pub const MAGIC: u32 = 0xde11_de11;
const SECTOR_BYTES: u64 = 512;
/// The largest section that is read: a specification's maximum is a few megabytes.
const SECTION_BYTES_MAX: u64 = 8 << 20;

const PHYSICAL_MAGIC: u32 = 0x2222_2222;
const VIRTUAL_MAGIC: u32 = 0xdddd_dddd;
const OWN_MAGIC: u32 = 0x3333_3333;

/// Seconds from 1970 to 1980, from which DDF counts.
const EPOCH_SECS: u64 = 315_532_800;
const NOTHING: u32 = u32::MAX;

/// An id of 24 bytes: a vendor in text, then what the vendor likes.
pub type DdfGuid = [u8; 24];

/// Why an anchor is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DdfError {
    /// The anchor is damaged, or torn.
    #[error("checksum of the anchor is {stored:08x}, the bytes add up to {computed:08x}")]
    Anchor {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Neither the primary nor the secondary header is whole.
    #[error(
        "neither of its headers, in sectors {primary} and {secondary}, is whole: {section} cannot be used"
    )]
    Headers {
        /// Where the primary header should be.
        primary: u64,
        /// Where the secondary one should be.
        secondary: u64,
        /// What was wrong with the last one tried.
        section: &'static str,
    },
}

/// What the metadata of a drive says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ddf {
    /// The container.
    pub guid: DdfGuid,
    /// Version of the format: `01.02.00`.
    pub revision: String,
    /// Grows with each change of this drive's metadata.
    pub sequence: u32,
    /// When the header was last written, seconds since 1970; 0 if it does not say.
    pub written_secs: u64,
    /// A change of it was not finished.
    pub is_open: bool,
    /// The secondary header was read: the primary one is not whole.
    pub secondary: bool,
    /// What the drive is called in [`DdfConfig::members`].
    pub own: u32,
    /// The drives of the container.
    pub disks: Vec<DdfDisk>,
    /// Its volumes.
    pub volumes: Vec<DdfVolume>,
    /// How volumes lie on drives, as far as this drive takes part.
    pub configs: Vec<DdfConfig>,
    /// There is a record that makes this drive a spare.
    pub is_assigned_spare: bool,
    /// Records of the configuration that are there and whose checksum does not hold.
    pub damaged_configs: usize,
    /// Its defective blocks.
    pub bad_blocks: DdfBadBlockLog,
}

/// A drive of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdfDisk {
    /// Its id.
    pub guid: DdfGuid,
    /// What it is called elsewhere.
    pub reference: u32,
    /// Bits: 2 takes part in volumes, 4 a spare for all, 8 a spare.
    pub kind: u16,
    /// Bits: 1 online, 2 failed, 4 being rebuilt, 0x40 missing.
    pub state: u16,
    /// Sectors of it that volumes may use.
    pub usable_sectors: u64,
}

impl DdfDisk {
    /// Bits of [`Self::state`].
    pub const ONLINE: u16 = 1;
    /// It failed.
    pub const FAILED: u16 = 2;
    /// It is being filled.
    pub const REBUILDING: u16 = 4;
    /// It is not there.
    pub const MISSING: u16 = 0x40;
    /// Bits of [`Self::kind`]: it waits for a failure.
    pub const SPARE: u16 = 4 | 8;

    /// Whether it cannot be relied on.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state & (Self::FAILED | Self::MISSING) != 0 || self.state & Self::ONLINE == 0
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdfVolume {
    /// Its id.
    pub guid: DdfGuid,
    /// Its name.
    pub name: String,
    /// The low three bits: 0 optimal, 1 degraded, 2 deleted, 3 missing, 4 failed, 5 partly optimal;
    /// 8 being changed, 0x10 not consistent.
    pub state: u8,
    /// The low two bits: 0 never initialized, 1 being so, 2 done.
    pub init_state: u8,
}

impl DdfVolume {
    /// Data is being moved into another layout.
    #[must_use]
    pub fn is_morphing(&self) -> bool {
        self.state & 8 != 0
    }

    /// Parity and copies agree.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.state & 0x10 == 0 && self.init_state & 3 == 2
    }
}

/// Reads so many bytes at an offset (bytes); `None` where that cannot be.
pub type DdfRead<'a> = dyn FnMut(u64, usize) -> Option<Vec<u8>> + 'a;

/// What a drive's metadata says; `None` if it has none.
#[must_use]
pub fn find(size_bytes: u64, read: &mut DdfRead<'_>) -> Option<Result<Ddf, DdfError>> {
    let at = size_bytes.checked_sub(SECTOR_BYTES)?;
    let anchor = read(at, 512).filter(|bytes| bytes.len() == 512 && be32(bytes, 0) == MAGIC)?;
    Some(follow(&anchor, size_bytes, read))
}

/// Follows an anchor to the header that counts.
fn follow(anchor: &[u8], size_bytes: u64, read: &mut DdfRead<'_>) -> Result<Ddf, DdfError> {
    if !is_whole(anchor) {
        return Err(DdfError::Anchor { stored: be32(anchor, 4), computed: checksum(anchor) });
    }
    let (primary, secondary) = (be64(anchor, 96), be64(anchor, 104));
    let mut from = |sector: u64, secondary: bool| {
        let at = sector.checked_mul(SECTOR_BYTES).filter(|at| *at < size_bytes).ok_or("the header")?;
        let header = read(at, 512).ok_or("the header")?;
        if !is_whole(&header) || be32(&header, 0) != MAGIC || header[8..32] != anchor[8..32] {
            return Err("the header");
        }
        sections(&header, sector, secondary, read)
    };
    let first = from(primary, false);
    // One that was left in the middle of a change counts only where the other one is worse.
    match first {
        Ok(found) if !found.is_open => Ok(found),
        first => match (from(secondary, true), first) {
            (Ok(second), Ok(first)) => Ok(if second.is_open { first } else { second }),
            (Ok(second), Err(_)) => Ok(second),
            (Err(_), Ok(first)) => Ok(first),
            (Err(section), Err(_)) => Err(DdfError::Headers { primary, secondary, section }),
        },
    }
}

/// What follows a header. Names the section that cannot be used.
fn sections(
    header: &[u8],
    sector: u64,
    secondary: bool,
    read: &mut DdfRead<'_>,
) -> Result<Ddf, &'static str> {
    let mut section = |at: usize, what: &'static str| {
        let (start, len) = (u64::from(be32(header, at)), u64::from(be32(header, at + 4)) * SECTOR_BYTES);
        let start = sector.checked_add(start).and_then(|sector| sector.checked_mul(SECTOR_BYTES));
        let start = start.filter(|_| be32(header, at) != NOTHING && len > 0 && len <= SECTION_BYTES_MAX);
        start
            .and_then(|start| read(start, len as usize))
            .filter(|bytes| bytes.len() as u64 == len)
            .ok_or(what)
    };
    let whole = |bytes: Vec<u8>, magic: u32, what: &'static str| {
        if be32(&bytes, 0) == magic && is_whole(&bytes) { Ok(bytes) } else { Err(what) }
    };
    let physical = whole(section(200, "its list of drives")?, PHYSICAL_MAGIC, "its list of drives")?;
    let volumes = whole(section(208, "its list of volumes")?, VIRTUAL_MAGIC, "its list of volumes")?;
    let own = whole(section(224, "the drive's own record")?, OWN_MAGIC, "the drive's own record")?;
    let configs = section(216, "its configuration")?;
    let has_log = be32(header, 232) != NOTHING && !matches!(be32(header, 236), 0 | NOTHING);
    let bad_blocks = match has_log.then(|| section(232, "its bad-block log")) {
        None => DdfBadBlockLog::Absent,
        Some(Ok(log)) => bad::read(&log),
        Some(Err(_)) => DdfBadBlockLog::Damaged,
    };
    let record_bytes = usize::from(u16::from_be_bytes(array(header, 134))) * 512;
    let members_max = usize::from(u16::from_be_bytes(array(header, 136)));
    let mut ddf = Ddf {
        guid: array(header, 8),
        revision: text(&header[32..40]),
        sequence: be32(header, 40),
        written_secs: seconds(be32(header, 44)),
        is_open: matches!(header[48], 1..=0xfe),
        secondary,
        own: be32(&own, 32),
        disks: entries(&physical).map(disk).collect(),
        volumes: entries(&volumes).map(volume).collect(),
        configs: Vec::new(),
        is_assigned_spare: false,
        damaged_configs: 0,
        bad_blocks,
    };
    if record_bytes == 0 {
        return Err("its configuration");
    }
    for record in configs.chunks_exact(record_bytes) {
        config::read(record, members_max, &mut ddf);
    }
    Ok(ddf)
}

/// Entries of 64 bytes behind a head of 64, without those that are empty.
fn entries(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_used = |entry: &&[u8]| entry[..24].iter().any(|&byte| byte != 0xff);
    section.chunks_exact(64).skip(1).filter(is_used)
}

fn disk(entry: &[u8]) -> DdfDisk {
    DdfDisk {
        guid: array(entry, 0),
        reference: be32(entry, 24),
        kind: u16::from_be_bytes(array(entry, 28)),
        state: u16::from_be_bytes(array(entry, 30)),
        usable_sectors: be64(entry, 32),
    }
}

fn volume(entry: &[u8]) -> DdfVolume {
    DdfVolume { guid: array(entry, 0), name: text(&entry[48..64]), state: entry[32], init_state: entry[33] }
}

/// DDF counts from 1980; nothing and nonsense are 0.
fn seconds(stamp: u32) -> u64 {
    if stamp == 0 || stamp == NOTHING { 0 } else { u64::from(stamp) + EPOCH_SECS }
}

/// Whether a structure's checksum holds: the CRC-32 of all of it, with the checksum's own bytes as
/// ones. mdadm begins with a register of zeros; the usual way is taken as well.
fn is_whole(bytes: &[u8]) -> bool {
    let stored = be32(bytes, 4);
    stored == checksum(bytes) || stored == !checksum_from(u32::MAX, bytes)
}

/// A structure's checksum as mdadm makes it.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    checksum_from(0, bytes)
}

fn checksum_from(seed: u32, bytes: &[u8]) -> u32 {
    let register = crc32::register(crc32::register(seed, &bytes[..4]), &[0xff; 4]);
    crc32::register(register, &bytes[8..])
}

/// Text up to its padding, fit to be shown.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0 || byte == 0xff).unwrap_or(bytes.len());
    printable(&String::from_utf8_lossy(&bytes[..end])).unwrap_or_default()
}
