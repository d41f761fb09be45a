//! Reads the superblocks of a member, wherever one may be.

use wattle_format::md::{self, RawSuperblock, Superblock};

use crate::members::{Member, MemberError};
use crate::signature::ReadAt;

/// The superblocks of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblocks {
    /// Those that passed every check.
    pub valid: Vec<Superblock>,
    /// Those that did not.
    pub damaged: Vec<RawSuperblock>,
    /// Why some places could not be read.
    pub unreadable: Vec<MemberError>,
}

/// Reads every place of a member where a superblock may be.
pub(crate) fn superblocks_of(member: &Member) -> Superblocks {
    read_superblocks(member.size_sectors(), &|offset_bytes, len_bytes| member.read(offset_bytes, len_bytes))
}

/// Reads every place where a superblock may be. A place that cannot be read does not hide the
/// others.
pub(crate) fn read_superblocks(size_sectors: u64, read: &ReadAt<'_>) -> Superblocks {
    let mut found = Superblocks { valid: Vec::new(), damaged: Vec::new(), unreadable: Vec::new() };
    for place in md::scan_component(size_sectors) {
        match read(place.offset_bytes, place.len_bytes) {
            Err(error) => found.unreadable.push(error),
            Ok(bytes) => match md::identify(place.version, &bytes, size_sectors) {
                Ok(None) => {}
                Ok(Some(superblock)) => found.valid.push(superblock),
                Err(raw) => found.damaged.push(raw),
            },
        }
    }
    found
}
