//! What else is on a member: superblocks, file systems, partition tables, volume groups. Named with the place that proves it.

use std::fmt;

use wattle_format::probe;

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
///
/// # Errors
/// The first place that could not be read: something may be there.
pub(crate) fn signatures(member: &Member) -> Result<Vec<Signature>, MemberError> {
    let (found, unread) = readable_signatures(member);
    unread.into_iter().next().map_or(Ok(found), Err)
}

/// The same of what the drive gives, and why some places could not be read.
pub(crate) fn readable_signatures(member: &Member) -> (Vec<Signature>, Vec<MemberError>) {
    let size_bytes = member.device.size_bytes();
    let (mut parts, mut unread) = (Vec::new(), Vec::new());
    for range in probe::ranges(size_bytes) {
        match member.read(range.start, (range.end - range.start) as usize) {
            Ok(bytes) => parts.push((range.start, bytes)),
            Err(error) => unread.push(error),
        }
    }
    let parts: Vec<_> = parts.iter().map(|(offset_bytes, bytes)| (*offset_bytes, bytes.as_slice())).collect();
    let found = probe::identify(size_bytes, &parts).into_iter().map(Signature::from).collect();
    (found, unread)
}

impl From<probe::Signature> for Signature {
    fn from(found: probe::Signature) -> Self {
        let label = found
            .label
            .filter(|label| !label.is_empty())
            .map_or(String::new(), |label| format!(" `{label}`"));
        Self { what: format!("{}{label}", found.kind.name()), offset_bytes: found.offset_bytes }
    }
}
