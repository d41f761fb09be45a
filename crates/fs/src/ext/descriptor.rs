//! Descriptors of groups: where the bitmaps and inodes of a group are.
//!
//! Where one is not right, a copy of it is used that is: without checksums of its own an inode that
//! a wrong descriptor leads to passes for another one. With `metadata_csum` each inode proves which
//! it is, so that a descriptor of which no copy is right is used all the same. What is not as a
//! mount would have it is kept, for a note.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::bytes::{le16, le32};
use crate::error::{Error, Note};
use crate::ext::Ext;
use crate::ext::checksum::{crc, crc_without, crc16};
use crate::ext::superblock::{ExtFeatures, Superblock};

const CHECKSUM_AT: usize = 0x1e;

/// Descriptors from copies that are kept.
const KEPT_MAX: usize = 1 << 16;

/// What a group's descriptor says.
#[derive(Debug, Clone, Copy)]
pub struct GroupDescriptor {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    free_inodes: u32,
    /// None count without checksums.
    flags: u16,
}

/// Descriptors that are not used as they are in their place.
#[derive(Debug, Default)]
pub struct DescriptorCopies {
    used: RefCell<BTreeMap<u64, GroupDescriptor>>,
    why: Cell<Option<&'static str>>,
}

impl DescriptorCopies {
    /// What to say, if one was used.
    pub fn note(&self) -> Option<Note> {
        self.why.get().map(|why| Note::DescriptorCopy { why })
    }

    fn keep(&self, group: u64, descriptor: GroupDescriptor, why: &'static str) {
        self.why.set(Some(why));
        let mut used = self.used.borrow_mut();
        if used.len() < KEPT_MAX {
            used.insert(group, descriptor);
        }
    }
}

impl GroupDescriptor {
    const INODES_UNINITIALISED: u16 = 0x1;
    const BLOCKS_UNINITIALISED: u16 = 0x2;

    /// The descriptor of a group, from its place or a copy.
    ///
    /// # Errors
    /// Neither is right.
    pub fn of(ext: &Ext, group: u64) -> Result<Self, Error> {
        if let Some(copy) = ext.descriptors.used.borrow().get(&group) {
            return Ok(*copy);
        }
        let superblock = &ext.superblock;
        let (block, at) = superblock.descriptor_of(group);
        let first = Self::read(ext, group, block, at);
        let why = match &first {
            Ok((descriptor, None)) => return Ok(*descriptor),
            Ok((_, Some(why))) => *why,
            Err(_) => "it cannot be read",
        };
        let right = |(block, at)| match Self::read(ext, group, block, at) {
            Ok((copy, None)) => Some(copy),
            _ => None,
        };
        let has_checksums = superblock.features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS);
        let copy = superblock.descriptor_copies_of(group).into_iter().find_map(right);
        let used = match (copy, first) {
            (Some(copy), _) => copy,
            (None, Ok((first, _))) if has_checksums => first,
            (None, Ok(_)) => {
                return Err(Error::Damaged { structure: "descriptor of ext group", at: group, what: why });
            }
            (None, Err(error)) => return Err(error),
        };
        ext.descriptors.keep(group, used, why);
        Ok(used)
    }

    /// That of a group at a place, and what is wrong with it.
    fn read(ext: &Ext, group: u64, block: u64, at: usize) -> Result<(Self, Option<&'static str>), Error> {
        let superblock = &ext.superblock;
        let block = ext.block(block)?;
        let bytes = block.get(at..at + superblock.descriptor_bytes).unwrap_or_default();
        let what = "its descriptor is too short";
        let descriptor = Self::decode(superblock, bytes).ok_or(Error::Damaged {
            structure: "ext group",
            at: group,
            what,
        })?;
        Ok((descriptor, descriptor.wrong(superblock, group, bytes)))
    }

    fn decode(superblock: &Superblock, bytes: &[u8]) -> Option<Self> {
        const CHECKED: u32 = ExtFeatures::GROUP_CHECKSUMS | ExtFeatures::METADATA_CHECKSUMS;
        let wide = superblock.has_wide_descriptors();
        let block = |low: usize, high: usize| {
            let high = if wide { u64::from(le32(bytes, high)?) } else { 0 };
            Some(u64::from(le32(bytes, low)?) | high << 32)
        };
        let free_high = if wide { u32::from(le16(bytes, 0x2e)?) } else { 0 };
        Some(Self {
            block_bitmap: block(0x0, 0x20)?,
            inode_bitmap: block(0x4, 0x24)?,
            inode_table: block(0x8, 0x28)?,
            free_inodes: u32::from(le16(bytes, 0xe)?) | free_high << 16,
            flags: if superblock.features.ro_compat.0 & CHECKED != 0 { le16(bytes, 0x12)? } else { 0 },
        })
    }

    /// Why it cannot be right: by its checksum; or, if there is none, by where its inodes are.
    fn wrong(&self, superblock: &Superblock, group: u64, bytes: &[u8]) -> Option<&'static str> {
        let features = &superblock.features;
        let number = (group as u32).to_le_bytes();
        let sum = if features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS) {
            Some(crc_without(crc(superblock.seed, &number), bytes, CHECKSUM_AT, 2) as u16)
        } else if features.ro_compat.contains(ExtFeatures::GROUP_CHECKSUMS) {
            let before = crc16(crc16(crc16(!0, &superblock.uuid), &number), bytes.get(..CHECKSUM_AT)?);
            Some(crc16(before, bytes.get(CHECKSUM_AT + 2..)?))
        } else {
            None
        };
        match sum {
            Some(sum) if le16(bytes, CHECKSUM_AT) != Some(sum) => Some("its checksum is wrong"),
            Some(_) => None,
            None if superblock.may_hold_inodes_of(group, self.inode_table) => None,
            None => Some("its inodes are where they cannot be"),
        }
    }

    /// No inode of the group was ever used, and the bitmap says nothing.
    pub fn inodes_uninitialised(&self) -> bool {
        self.flags & Self::INODES_UNINITIALISED != 0
    }

    /// The bitmap of its blocks says nothing.
    pub fn blocks_uninitialised(&self) -> bool {
        self.flags & Self::BLOCKS_UNINITIALISED != 0
    }

    /// Inodes in use, as it counts them.
    pub fn inodes_in_use(&self, superblock: &Superblock) -> u64 {
        superblock.inodes_per_group().saturating_sub(self.free_inodes.into())
    }
}
