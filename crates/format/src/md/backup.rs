//! The backup file of a reshape that moves nothing (docs/formats.md §9.4): what the array held, in
//! the order of the old geometry, where the new one is being written over it.
//!
//! mdadm writes it, the kernel never reads it. Its checksums are constant by a mistake that became
//! the format, so they say that a header was written, not that its numbers are whole: every number
//! is checked here by what it may be.

use crate::bytes::{le32, le64};

/// Bytes of the header, at the file's start.
pub const HEADER_BYTES: usize = 512;
/// What every header has for a checksum: mdadm's sum takes in nothing but the first byte.
const CHECKSUM: u32 = 0x2492_4915;
const MAGIC: &[u8; 15] = b"md_backup_data-";

const SET_UUID: usize = 16;
const WRITTEN: usize = 32;
const AT: [usize; 2] = [40, 72];
const ARRAY_START: [usize; 2] = [48, 80];
const LENGTH: [usize; 2] = [56, 88];
const SUM: [usize; 2] = [64, 96];

/// Why a header of a backup file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReshapeBackupError {
    /// It does not begin as one.
    #[error("it does not begin as a backup file of a reshape")]
    Magic,
    /// It was not written to its end.
    #[error("the header's checksum is {found:08x}, that of all headers is {CHECKSUM:08x}")]
    Checksum {
        /// What it says.
        found: u32,
    },
    /// A part would lie beyond what can be counted, or within the header.
    #[error("{field} is {found}, which cannot be")]
    Number {
        /// The field.
        field: &'static str,
        /// What it says, in sectors.
        found: u64,
    },
}

/// The header of a backup file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeBackup {
    /// The array's UUID, as its superblocks store it.
    pub set_uuid: [u8; 16],
    /// When it was written, seconds since the epoch.
    pub written_secs: u64,
    /// What it holds: one part, or two that mdadm takes turns with.
    pub parts: Vec<ReshapeBackupPart>,
}

/// A run of the array in a backup file. All in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeBackupPart {
    /// Where it is in the file.
    pub at_sectors: u64,
    /// Where it is in the array.
    pub array_start_sectors: u64,
    /// How long it is.
    pub len_sectors: u64,
}

/// Whether a file begins as a backup file does.
#[must_use]
pub fn is_reshape_backup(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) && bytes.get(MAGIC.len()).is_some_and(|version| matches!(version, b'1' | b'2'))
}

impl ReshapeBackup {
    /// Reads a header: the first [`HEADER_BYTES`] of a file.
    ///
    /// # Errors
    /// It is none, or says what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReshapeBackupError> {
        let bytes = bytes.get(..HEADER_BYTES).filter(|bytes| is_reshape_backup(bytes));
        let bytes = bytes.ok_or(ReshapeBackupError::Magic)?;
        let (mut parts, mut first_at) = (Vec::new(), 0);
        let count = if bytes.get(MAGIC.len()) == Some(&b'2') { 2 } else { 1 };
        for part in 0..count {
            let found = le32(bytes, SUM[part]);
            if found != CHECKSUM {
                return Err(ReshapeBackupError::Checksum { found });
            }
            let (at, array_start, len) =
                (le64(bytes, AT[part]), le64(bytes, ARRAY_START[part]), le64(bytes, LENGTH[part]));
            // The second part's place counts from the first one's.
            let from_start = if part == 0 { Some(at) } else { at.checked_add(first_at) };
            first_at = at;
            if len == 0 {
                continue;
            }
            let bad = |field, found| ReshapeBackupError::Number { field, found };
            let fits = |start: u64| start.checked_add(len).is_some_and(|end| end < 1 << 54);
            let at_sectors =
                from_start.filter(|&at| at > 0 && fits(at)).ok_or_else(|| bad("devstart", at))?;
            if !fits(array_start) {
                return Err(bad("arraystart", array_start));
            }
            parts.push(ReshapeBackupPart { at_sectors, array_start_sectors: array_start, len_sectors: len });
        }
        let mut set_uuid = [0; 16];
        set_uuid.copy_from_slice(&bytes[SET_UUID..SET_UUID + 16]);
        Ok(Self { set_uuid, written_secs: le64(bytes, WRITTEN), parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u8) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..15].copy_from_slice(MAGIC);
        bytes[15] = version;
        bytes[SET_UUID..SET_UUID + 16].fill(7);
        for (at, value) in [(32, 1000), (40, 8), (48, 768), (56, 384), (72, 384), (80, 1152), (88, 384_u64)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&CHECKSUM.to_le_bytes());
        bytes[96..100].copy_from_slice(&CHECKSUM.to_le_bytes());
        bytes
    }

    #[test]
    fn both_parts_are_found_and_the_second_counts_from_the_first() {
        let parts = ReshapeBackup::decode(&header(b'2')).expect("a header").parts;
        let part = |at_sectors, array_start_sectors| ReshapeBackupPart {
            at_sectors,
            array_start_sectors,
            len_sectors: 384,
        };
        assert_eq!(parts, [part(8, 768), part(392, 1152)]);
        let first = ReshapeBackup::decode(&header(b'1')).expect("a header");
        assert_eq!((first.set_uuid, first.written_secs, first.parts.len()), ([7; 16], 1000, 1));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut torn = header(b'2');
        torn[96] ^= 1;
        assert!(matches!(ReshapeBackup::decode(&torn), Err(ReshapeBackupError::Checksum { .. })));
        let mut beyond = header(b'1');
        beyond[48..56].fill(0xff);
        assert!(matches!(ReshapeBackup::decode(&beyond), Err(ReshapeBackupError::Number { .. })));
        let mut within = header(b'1');
        within[40..48].fill(0);
        assert!(matches!(ReshapeBackup::decode(&within), Err(ReshapeBackupError::Number { .. })));
        for bytes in [&b"md_backup_data-3"[..], &header(b'1')[..100], b""] {
            assert_eq!(ReshapeBackup::decode(bytes), Err(ReshapeBackupError::Magic));
        }
    }
}
