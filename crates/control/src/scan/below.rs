//! Members on which another device lies that ends where they end: dm-integrity, and bcache with
//! nothing else before its superblock. What is found at the end of one may be a part of what is on
//! it.

use wattle_format::bcache::{self, BcacheRole, BcacheSuperblock};
use wattle_format::integrity::{self, IntegrityLayout, IntegritySuperblock};
use wattle_format::md::{Version, super_offset_sectors};
use wattle_format::probe::SignatureKind;

use super::MemberScan;
use crate::members::Member;
use crate::signature::FoundSignature;

impl MemberScan {
    /// Whether it was recognised as such a device.
    pub(super) fn is_below_another(&self) -> bool {
        let is_bcache = |found: &FoundSignature| {
            found.kind == Some(SignatureKind::Bcache)
                && self.signatures.iter().all(|other| other.offset_bytes >= found.offset_bytes)
        };
        let is_integrity = |found: &FoundSignature| found.kind == Some(SignatureKind::Integrity);
        self.signatures.iter().any(|found| is_integrity(found) || is_bcache(found))
    }

    /// Takes out what is a part of what lies on it. A superblock that says where it lies is the
    /// device's own if that is where it was found: the device is a member, and what begins it is
    /// the content of an array. One of version 0.90 does not say it, and is a part of what is on
    /// the device if it lies where that has its own.
    pub(super) fn drop_content(&mut self) {
        let own = super_offset_sectors(Version::V090, self.member.size_sectors());
        if own.is_some() && own == content_090(&self.member) {
            self.superblocks.retain(|superblock| superblock.version() != Version::V090);
        }
        self.damaged.clear();
        if self.superblocks.is_empty() {
            let own = [Some(SignatureKind::Integrity), Some(SignatureKind::Bcache)];
            self.signatures.retain(|signature| own.contains(&signature.kind));
        }
    }
}

/// Where what lies on a device has its superblock of version 0.90, if it has one: a sector of the
/// device. `None` if it cannot have one, or where it lies is not known.
fn content_090(member: &Member) -> Option<u64> {
    let head = member.read(0, integrity::SUPERBLOCK_BYTES).ok()?;
    if let Ok(superblock) = IntegritySuperblock::parse(&head) {
        let layout = IntegrityLayout::of(&superblock).ok()?;
        let inside = super_offset_sectors(Version::V090, superblock.provided_sectors)?;
        return Some(layout.data_sector(inside));
    }
    let head = member.read(bcache::AT_BYTES, bcache::SUPERBLOCK_BYTES).ok()?;
    let BcacheRole::Backing { data_sector, .. } = BcacheSuperblock::parse(&head).ok()?.role else {
        return None;
    };
    let size = member.size_sectors().checked_sub(data_sector)?;
    Some(super_offset_sectors(Version::V090, size)? + data_sector)
}
