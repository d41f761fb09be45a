//! The log of an old mirror: in which regions its legs are known to be alike. docs/formats.md §15.

use crate::bytes::{le32, le64};

/// Bytes of the header, at the start of the log.
pub const HEADER_BYTES: usize = 16;
/// Where the bits are, one for each region.
pub const BITS_OFFSET_BYTES: u64 = 1024;

const MAGIC: u32 = 0x4d69_5272;
const VERSION: u32 = 2;

/// The header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorLog {
    /// How many regions it knows; of those behind them nothing is known.
    pub regions: u64,
}

/// Why there is no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorLogError {
    /// Less than a header.
    #[error("only {got} bytes of the mirror's log could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// Not a log.
    #[error("the mirror's log has the magic {found:08x}")]
    Magic {
        /// The stored value.
        found: u32,
    },
    /// A version to come.
    #[error("version {found} of mirror logs is not known")]
    Version {
        /// The stored value.
        found: u32,
    },
}

impl MirrorLog {
    /// Reads the start of a log.
    pub fn decode(bytes: &[u8]) -> Result<MirrorLog, MirrorLogError> {
        if bytes.len() < HEADER_BYTES {
            return Err(MirrorLogError::Truncated { got: bytes.len() });
        }
        let found = le32(bytes, 0);
        if found != MAGIC {
            return Err(MirrorLogError::Magic { found });
        }
        let found = le32(bytes, 4);
        if found != VERSION {
            return Err(MirrorLogError::Version { found });
        }
        Ok(MirrorLog { regions: le64(bytes, 8) })
    }

    /// Whether the legs are alike in a region, by the bits from [`BITS_OFFSET_BYTES`] on. A region
    /// that is being written is not known to be.
    #[must_use]
    pub fn is_clean(&self, bits: &[u8], region: u64) -> bool {
        let byte = usize::try_from(region / 8).ok().and_then(|at| bits.get(at));
        region < self.regions && byte.is_some_and(|byte| byte >> (region % 8) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs() {
        let mut bytes = [0; HEADER_BYTES];
        assert_eq!(MirrorLog::decode(&bytes), Err(MirrorLogError::Magic { found: 0 }));
        bytes[..4].copy_from_slice(b"rRiM");
        assert_eq!(MirrorLog::decode(&bytes), Err(MirrorLogError::Version { found: 0 }));
        (bytes[4], bytes[8]) = (2, 11);
        let log = MirrorLog { regions: 11 };
        assert_eq!(MirrorLog::decode(&bytes), Ok(log));
        assert_eq!(MirrorLog::decode(&bytes[..15]), Err(MirrorLogError::Truncated { got: 15 }));
        let clean: Vec<_> = (0..100).filter(|&region| log.is_clean(&[0b0000_0101, 0xff], region)).collect();
        assert_eq!(clean, [0, 2, 8, 9, 10], "nothing is known behind the last region");
    }
}
