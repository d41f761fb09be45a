//! Integers in the order of bytes of the machine that wrote the log: what the log says of items is
//! in that order; headers, and what items hold of the disk, are big-endian everywhere.

use crate::bytes::{be16, be32, be64, le16, le32, le64};

/// The order of bytes of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogWords {
    Little,
    Big,
}

impl LogWords {
    /// As a record's header names it; `None` for what was written by another system than Linux.
    pub fn of_format(format: u32) -> Option<Self> {
        match format {
            1 => Some(Self::Little),
            2 => Some(Self::Big),
            _ => None,
        }
    }

    pub fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        if self == Self::Little { le16(bytes, at) } else { be16(bytes, at) }
    }

    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        if self == Self::Little { le32(bytes, at) } else { be32(bytes, at) }
    }

    pub fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        if self == Self::Little { le64(bytes, at) } else { be64(bytes, at) }
    }
}
