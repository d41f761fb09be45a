//! The volume header, its alternate at the end, and the HFS volume that may be wrapped around.
//!
//! TN1150, "Volume Header" and "HFS Wrapper".

use crate::bytes::{be16, be32};
use crate::error::Error;
use crate::hfs::fork::HfsFork;
use crate::source::ByteSource;

/// The header lies behind two sectors of boot blocks; the alternate as far before the end.
const HEADER_AT: u64 = 1024;
const HEADER_BYTES: usize = 512;

const SIGNATURE_PLUS: [u8; 2] = *b"H+";
const SIGNATURE_X: [u8; 2] = *b"HX";
const SIGNATURE_HFS: [u8; 2] = *b"BD";

/// Attributes of a volume.
mod attributes {
    pub const UNMOUNTED: u32 = 1 << 8;
    /// It is mounted for writing, or was when the machine died: the opposite of `UNMOUNTED`.
    pub const BOOT_INCONSISTENT: u32 = 1 << 11;
    pub const JOURNALED: u32 = 1 << 13;
    /// Something wrong was found while it was mounted.
    pub const INCONSISTENT: u32 = 1 << 14;
}

/// `lastMountedVersion` of what keeps the journal.
const MOUNTED_WITH_JOURNAL: [u8; 4] = *b"HFSJ";

/// What the volume header says, as far as it is of use here.
#[derive(Debug, Clone)]
pub struct HfsHeader {
    attributes: u32,
    last_mounted: [u8; 4],
    /// The allocation block that says where the journal is; 0 without one.
    pub journal_info_block: u32,
    pub block_bytes: u64,
    pub total_blocks: u32,
    pub free_blocks: u32,
    /// Of the last two words of what the Finder keeps: they identify the volume.
    pub id: [u8; 8],
    pub extents: HfsFork,
    pub catalog: HfsFork,
    pub attributes_file: HfsFork,
}

/// Where the volume is, and which of its headers is used.
#[derive(Debug)]
pub struct HfsPlace {
    /// Its first byte: 0 but for one in a wrapper.
    pub base: u64,
    pub header: HfsHeader,
    /// Why the first header is not used.
    pub alternate: Option<&'static str>,
}

impl HfsHeader {
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        match bytes.first_chunk() {
            Some(&SIGNATURE_PLUS | &SIGNATURE_X) => {}
            _ => return Err("it has no signature"),
        }
        Self::fields(bytes).ok_or("it is too short")?.checked()
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut id = [0; 8];
        id.copy_from_slice(bytes.get(104..112)?);
        Some(Self {
            attributes: be32(bytes, 4)?,
            last_mounted: be32(bytes, 8)?.to_be_bytes(),
            journal_info_block: be32(bytes, 12)?,
            block_bytes: be32(bytes, 40)?.into(),
            total_blocks: be32(bytes, 44)?,
            free_blocks: be32(bytes, 48)?,
            id,
            extents: HfsFork::decode(bytes, 192)?,
            catalog: HfsFork::decode(bytes, 272)?,
            attributes_file: HfsFork::decode(bytes, 352)?,
        })
    }

    fn checked(self) -> Result<Self, &'static str> {
        if !self.block_bytes.is_power_of_two() || self.block_bytes < 512 {
            return Err("an impossible size of blocks");
        }
        if self.total_blocks == 0 || self.free_blocks > self.total_blocks {
            return Err("an impossible number of blocks");
        }
        if self.catalog.logical_bytes == 0 {
            return Err("it has no catalog");
        }
        Ok(self)
    }

    pub fn size_bytes(&self) -> u64 {
        // A size of 32 bits, a number of 32 bits.
        self.block_bytes * u64::from(self.total_blocks)
    }

    /// It was unmounted, by its own account.
    pub fn was_unmounted(&self) -> bool {
        self.attributes & attributes::UNMOUNTED != 0 && self.attributes & attributes::BOOT_INCONSISTENT == 0
    }

    pub fn has_journal(&self) -> bool {
        self.attributes & attributes::JOURNALED != 0
    }

    /// What mounted it last kept its journal. Else the journal is older than the volume.
    pub fn journal_is_current(&self) -> bool {
        self.last_mounted == MOUNTED_WITH_JOURNAL
    }

    pub fn is_marked_damaged(&self) -> bool {
        self.attributes & attributes::INCONSISTENT != 0
    }
}

/// Whether a header at its first place proves that an HFS+ was formatted there.
///
/// # Errors
/// The place cannot be read.
pub fn is_formatted(source: &ByteSource) -> Result<bool, Error> {
    if source.size() < HEADER_AT + HEADER_BYTES as u64 {
        return Ok(false);
    }
    let bytes = source.bytes(HEADER_AT, HEADER_BYTES)?;
    let embedded = || {
        let base = Wrapper::decode(&bytes)?.embedded?.start;
        source.bytes(base.checked_add(HEADER_AT)?, HEADER_BYTES).ok()
    };
    Ok(HfsHeader::decode(&bytes).is_ok() || embedded().is_some_and(|bytes| HfsHeader::decode(&bytes).is_ok()))
}

/// Whether an HFS+ is there, or its alternate header, or the HFS before it.
///
/// # Errors
/// The first header cannot be read, and there is no alternate.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    if source.size() < HEADER_AT + HEADER_BYTES as u64 {
        return Ok(false);
    }
    if has_alternate(source) {
        return Ok(true);
    }
    let bytes = source.bytes(HEADER_AT, HEADER_BYTES)?;
    let is_signature = [SIGNATURE_PLUS, SIGNATURE_X].iter().any(|signature| bytes.starts_with(signature));
    Ok(is_signature || Wrapper::decode(&bytes).is_some())
}

/// Whether only the alternate header says that there is one. It has to be one whose volume ends
/// where the source does: the end of a disk may have one of a volume that was there before.
fn has_alternate(source: &ByteSource) -> bool {
    alternate(source, 0..source.size()).is_ok()
}

fn alternate(source: &ByteSource, volume: std::ops::Range<u64>) -> Result<HfsHeader, &'static str> {
    let at = volume.end.checked_sub(HEADER_AT).filter(|at| *at >= volume.start + HEADER_AT);
    let at = at.ok_or("there is no place for an alternate")?;
    let bytes = source.bytes(at, HEADER_BYTES).map_err(|_| "the alternate cannot be read")?;
    let header = HfsHeader::decode(&bytes)?;
    let beyond = (volume.end - volume.start).checked_sub(header.size_bytes());
    // Sectors that do not fill a block belong to no block.
    match beyond.is_some_and(|beyond| beyond < header.block_bytes.max(2 * HEADER_AT)) {
        true => Ok(header),
        false => Err("the alternate is of another volume"),
    }
}

/// Finds the volume.
///
/// # Errors
/// No header is in order, or it is an HFS without a volume in it.
pub fn locate(source: &ByteSource) -> Result<HfsPlace, Error> {
    let mut volume = 0..source.size();
    let first = source.bytes(HEADER_AT, HEADER_BYTES);
    if let Some(wrapper) = first.as_ref().ok().and_then(|bytes| Wrapper::decode(bytes)) {
        volume = wrapper.embedded.ok_or(Error::Unsupported { what: "HFS, which HFS+ followed" })?;
    }
    let base = volume.start;
    let bytes = if base == 0 { first } else { source.bytes(base + HEADER_AT, HEADER_BYTES) };
    let decoded = match &bytes {
        Ok(bytes) => HfsHeader::decode(bytes),
        Err(_) => Err("it cannot be read"),
    };
    let why = match &decoded {
        Ok(header) if header.size_bytes() <= volume.end - base => None,
        // Either it is damaged, or what is here is cut off, and then has no alternate.
        Ok(_) => Some("what it says of its size is more than there is"),
        Err(why) => Some(*why),
    };
    let header = match (decoded, why.map(|_| alternate(source, volume))) {
        (_, Some(Ok(header))) => return Ok(HfsPlace { base, header, alternate: why }),
        (decoded, _) => decoded,
    };
    if let Ok(header) = header {
        return Ok(HfsPlace { base, header, alternate: None });
    }
    bytes?;
    let why = why.unwrap_or_default();
    Err(Error::Damaged { structure: "the volume header of HFS+ at byte", at: base + HEADER_AT, what: why })
}

/// An HFS, which has an HFS+ in it, or has not.
struct Wrapper {
    embedded: Option<std::ops::Range<u64>>,
}

impl Wrapper {
    /// Of a master directory block.
    fn decode(bytes: &[u8]) -> Option<Self> {
        const SECTOR_BYTES: u64 = 512;
        if !bytes.starts_with(&SIGNATURE_HFS) {
            return None;
        }
        let (block_bytes, first_sector) = (u64::from(be32(bytes, 20)?), u64::from(be16(bytes, 28)?));
        if block_bytes == 0 || !block_bytes.is_multiple_of(SECTOR_BYTES) {
            return None;
        }
        let (signature, extent) = (bytes.get(124..126)?, be32(bytes, 126)?);
        let (start, count) = (u64::from(extent >> 16), u64::from(extent & 0xffff));
        let base = first_sector * SECTOR_BYTES + start * block_bytes;
        let embedded = (signature == SIGNATURE_PLUS).then_some(base..base + count * block_bytes);
        Some(Self { embedded })
    }
}
