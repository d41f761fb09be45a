//! What else is on a member: superblocks, file systems, partition tables, volume groups. Named with the place that proves it.

use std::fmt;

use crate::members::{Member, MemberError};

/// Something that is recognised by its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What it is: `ext4 file system`, `GPT partition table`, `md 1.2 superblock`.
    pub what: String,
    /// Where the bytes that prove it are.
    pub offset_bytes: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset_bytes)
    }
}

/// Everything but md superblocks that is recognised on a member.
pub(crate) fn signatures(_member: &Member) -> Result<Vec<Signature>, MemberError> {
    Ok(Vec::new())
}
