//! The superblock, and where the groups' descriptors and the inodes are.

use crate::bytes::{label, le16, le32, u8_at, uuid_at};
use crate::error::{Error, Note};
use crate::ext::checksum::crc;
use crate::ext::descriptor::GroupDescriptor;
use crate::layout::FileSystemLayout;
use crate::source::{ByteSource, SIZE_MAX};
use crate::{About, ext::Ext};

pub const OFFSET: u64 = 1024;
pub const BYTES: usize = 1024;
const MAGIC: u16 = 0xef53;
const CHECKSUM_AT: usize = 0x3fc;

/// Feature words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtFeatures {
    pub compat: FeatureWord,
    pub incompat: FeatureWord,
    pub ro_compat: FeatureWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureWord(pub u32);

impl FeatureWord {
    pub fn contains(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

impl ExtFeatures {
    /// compat
    const HAS_JOURNAL: u32 = 0x4;
    const SPARSE_SUPER2: u32 = 0x200;
    /// incompat
    const COMPRESSION: u32 = 0x1;
    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    const META_BG: u32 = 0x10;
    const EXTENTS: u32 = 0x40;
    const BITS_64: u32 = 0x80;
    const FLEXIBLE_GROUPS: u32 = 0x200;
    const DIRDATA: u32 = 0x1000;
    const CHECKSUM_SEED: u32 = 0x2000;
    pub const LARGE_DIRECTORIES: u32 = 0x4000;
    /// All that there are: besides those above extents, mmp, flex_bg, ea_inode, inline_data,
    /// encrypt and casefold.
    const INCOMPAT_KNOWN: u32 = 0x3_f7df;
    /// ro_compat
    const SPARSE_SUPER: u32 = 0x1;
    pub const GROUP_CHECKSUMS: u32 = 0x10;
    pub const HUGE_FILES: u32 = 0x8;
    const CLUSTERS: u32 = 0x200;
    const EXTRA_ISIZE: u32 = 0x40;
    pub const METADATA_CHECKSUMS: u32 = 0x400;

    /// What reading needs. That `ro_compat` may hold anything is its meaning.
    fn check(self) -> Result<(), Error> {
        let unknown = self.incompat.0 & !Self::INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(Error::UnknownFeatures { file_system: "ext4", bits: u64::from(unknown) });
        }
        let refused = [
            (Self::COMPRESSION, "ext2 with compression (e2compr)"),
            (Self::JOURNAL_DEVICE, "a journal device of ext3 or ext4, which holds no files"),
            (Self::DIRDATA, "ext4 with data in directory entries (dirdata, of Lustre)"),
        ];
        match refused.into_iter().find(|(bit, _)| self.incompat.contains(*bit)) {
            Some((_, what)) => Err(Error::Unsupported { what }),
            None => Ok(()),
        }
    }

    /// The name people know such a file system by.
    pub fn kind(self) -> &'static str {
        const OF_EXT4: u32 = ExtFeatures::EXTENTS | ExtFeatures::BITS_64;
        const OF_EXT4_RO: u32 =
            ExtFeatures::GROUP_CHECKSUMS | ExtFeatures::EXTRA_ISIZE | ExtFeatures::METADATA_CHECKSUMS;
        match self {
            _ if self.incompat.0 & OF_EXT4 != 0 || self.ro_compat.0 & OF_EXT4_RO != 0 => "ext4",
            _ if self.compat.contains(Self::HAS_JOURNAL) => "ext3",
            _ => "ext2",
        }
    }
}

/// What is needed of the superblock, checked.
#[derive(Debug, Clone)]
pub struct Superblock {
    pub features: ExtFeatures,
    pub block_bytes: usize,
    pub blocks: u64,
    pub inode_bytes: usize,
    /// Seed of every checksum.
    pub seed: u32,
    pub journal_inode: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    inodes_per_group: u64,
    groups: u64,
    pub descriptor_bytes: usize,
    first_meta_bg: u64,
    /// The groups that have a copy of the superblock besides the first, with `sparse_super2`.
    backup_groups: [u64; 2],
    /// The first inode that is not for the file system itself.
    first_inode: u64,
    /// The file that lists inodes without a name.
    orphan_inode: u64,
    /// Blocks for descriptors of groups that may be added.
    reserved_descriptor_blocks: u64,
    flexible_groups_log: u32,
    cluster_log: u32,
    /// In blocks; 0 if it was told of none.
    stripe_unit: u64,
    stripe_width: u64,
    label: Vec<u8>,
    pub uuid: [u8; 16],
    /// Neither clean nor with a journal to replay, or with errors found.
    marked_damaged: bool,
    /// It is in use, or was when the machine stopped.
    in_use: bool,
}

/// Whether the signature is there.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    if source.size() < OFFSET + BYTES as u64 {
        return Ok(false);
    }
    Ok(le16(&source.bytes(OFFSET, BYTES)?, 0x38) == Some(MAGIC))
}

fn damaged(what: &'static str) -> Error {
    Error::Damaged { structure: "ext superblock", at: 0, what }
}

impl Superblock {
    /// Reads and checks it.
    pub fn read(source: &ByteSource) -> Result<Self, Error> {
        let bytes = source.bytes(OFFSET, BYTES)?;
        let superblock = Self::decode(&bytes).ok_or_else(|| damaged("it is too short"))??;
        Ok(superblock)
    }

    /// The one that the journal has newer, if it has one: a file system that grew while it was in
    /// use, and was cut off, is of its old size until then.
    ///
    /// # Errors
    /// It is damaged, or one of another file system.
    pub fn read_newer(ext: &Ext) -> Result<Option<Self>, Error> {
        let old = &ext.superblock;
        let block_bytes = old.block_bytes as u64;
        let block = OFFSET / block_bytes;
        if ext.overlay.get(block).is_none() {
            return Ok(None);
        }
        let bytes = ext.block(block)?;
        let bytes = bytes.get((OFFSET % block_bytes) as usize..).and_then(|bytes| bytes.get(..BYTES));
        let newer = bytes.and_then(Self::decode).ok_or_else(|| damaged("it is too short"))??;
        let sizes = |of: &Self| (of.block_bytes, of.inode_bytes, of.uuid);
        match sizes(&newer) == sizes(old) {
            true => Ok(Some(newer)),
            false => Err(damaged("the journal has that of another file system")),
        }
    }

    /// `None` cannot be: the buffer has its length.
    fn decode(bytes: &[u8]) -> Option<Result<Self, Error>> {
        let features = ExtFeatures {
            compat: FeatureWord(le32(bytes, 0x5c)?),
            incompat: FeatureWord(le32(bytes, 0x60)?),
            ro_compat: FeatureWord(le32(bytes, 0x64)?),
        };
        let wide = features.incompat.contains(ExtFeatures::BITS_64);
        let uuid = uuid_at(bytes, 0x68)?;
        let seed = match features.incompat.contains(ExtFeatures::CHECKSUM_SEED) {
            true => le32(bytes, 0x270)?,
            false => crc(!0, &uuid),
        };
        let dynamic = le32(bytes, 0x4c)? > 0;
        let high_blocks = if wide { u64::from(le32(bytes, 0x150)?) } else { 0 };
        let state = le16(bytes, 0x3a)?;
        let superblock = Self {
            features,
            block_bytes: 1024 << le32(bytes, 0x18)?.min(16),
            blocks: u64::from(le32(bytes, 0x4)?) | high_blocks << 32,
            inode_bytes: if dynamic { usize::from(le16(bytes, 0x58)?) } else { 128 },
            seed,
            journal_inode: u64::from(le32(bytes, 0xe0)?),
            first_data_block: u64::from(le32(bytes, 0x14)?),
            blocks_per_group: u64::from(le32(bytes, 0x20)?),
            inodes_per_group: u64::from(le32(bytes, 0x28)?),
            groups: 0,
            descriptor_bytes: if wide { usize::from(le16(bytes, 0xfe)?) } else { 32 },
            first_meta_bg: u64::from(le32(bytes, 0x104)?),
            backup_groups: [u64::from(le32(bytes, 0x24c)?), u64::from(le32(bytes, 0x250)?)],
            first_inode: if dynamic { u64::from(le32(bytes, 0x54)?) } else { 11 },
            orphan_inode: u64::from(le32(bytes, 0x280)?),
            reserved_descriptor_blocks: u64::from(le16(bytes, 0xce)?),
            flexible_groups_log: match features.incompat.contains(ExtFeatures::FLEXIBLE_GROUPS) {
                true => u32::from(u8_at(bytes, 0x174)?),
                false => 0,
            },
            cluster_log: match features.ro_compat.contains(ExtFeatures::CLUSTERS) {
                true => le32(bytes, 0x1c)?.saturating_sub(le32(bytes, 0x18)?),
                false => 0,
            },
            stripe_unit: le16(bytes, 0x164)?.into(),
            stripe_width: le32(bytes, 0x170)?.into(),
            label: label(bytes.get(0x78..0x88)?),
            uuid,
            marked_damaged: state & 2 != 0,
            in_use: state & 1 == 0,
        };
        let checksum = le32(bytes, CHECKSUM_AT)?;
        let right = u8_at(bytes, 0x175)? == 1 && crc(!0, bytes.get(..CHECKSUM_AT)?) == checksum;
        if features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS) && !right {
            return Some(Err(damaged("its checksum is wrong")));
        }
        Some(superblock.check())
    }

    fn check(mut self) -> Result<Self, Error> {
        self.features.check()?;
        if self.block_bytes > 64 << 10 {
            return Err(damaged("blocks of more than 64 KiB"));
        }
        if !self.inode_bytes.is_power_of_two() || !(128..=self.block_bytes).contains(&self.inode_bytes) {
            return Err(damaged("an impossible size of inodes"));
        }
        if !(32..=self.block_bytes.min(1024)).contains(&self.descriptor_bytes)
            || !self.descriptor_bytes.is_power_of_two()
        {
            return Err(damaged("an impossible size of group descriptors"));
        }
        if self.blocks > SIZE_MAX / self.block_bytes as u64 {
            return Err(damaged("more blocks than any device has"));
        }
        if self.cluster_log > 30 || self.flexible_groups_log > 31 {
            return Err(damaged("impossible sizes of clusters or flexible groups"));
        }
        if self.blocks_per_group == 0 || self.inodes_per_group == 0 {
            return Err(damaged("groups without blocks or inodes"));
        }
        let data_blocks = self.blocks.checked_sub(self.first_data_block).filter(|blocks| *blocks > 0);
        let data_blocks = data_blocks.ok_or_else(|| damaged("its first block is beyond its last"))?;
        self.groups = data_blocks.div_ceil(self.blocks_per_group);
        Ok(self)
    }

    /// What there is to say about the file system.
    pub fn about(&self, source: &ByteSource) -> About {
        let size_bytes = self.blocks.saturating_mul(self.block_bytes as u64);
        let marked = self.marked_damaged.then_some(Note::MarkedDamaged);
        let no_journal = !self.features.compat.contains(ExtFeatures::HAS_JOURNAL);
        let torn = (no_journal && self.in_use).then_some(Note::NoJournal);
        About {
            kind: self.features.kind(),
            label: self.label.clone(),
            uuid: self.uuid,
            size_bytes,
            notes: marked.into_iter().chain(torn).chain(source.cut_off(size_bytes)).collect(),
        }
    }

    /// How it is laid out.
    pub fn layout(&self) -> FileSystemLayout {
        let bytes = |blocks: u64| blocks.saturating_mul(self.block_bytes as u64);
        FileSystemLayout {
            kind: self.features.kind(),
            version: 0,
            size_bytes: bytes(self.blocks),
            block_bytes: self.block_bytes as u64,
            stripe_unit_bytes: Some(bytes(self.stripe_unit)).filter(|unit| *unit > 0),
            stripe_width_bytes: Some(bytes(self.stripe_width)).filter(|width| *width > 0),
            groups: self.groups,
            group_bytes: bytes(self.blocks_per_group),
            log_unit_bytes: None,
        }
    }

    /// Where a block is, in bytes.
    pub fn offset_of(&self, block: u64) -> Result<u64, Error> {
        if block >= self.blocks {
            let what = "it lies beyond the end of the file system";
            return Err(Error::Damaged { structure: "ext block", at: block, what });
        }
        Ok(block * self.block_bytes as u64)
    }

    /// Counts have a higher half.
    pub fn is_wide(&self) -> bool {
        self.features.incompat.contains(ExtFeatures::BITS_64)
    }

    /// Descriptors of groups have a higher half of each count.
    pub fn has_wide_descriptors(&self) -> bool {
        self.descriptor_bytes >= 64
    }

    /// Blocks that the descriptors of all groups take.
    pub fn descriptor_blocks(&self) -> u64 {
        self.groups.div_ceil((self.block_bytes / self.descriptor_bytes).max(1) as u64)
    }

    /// The block with the descriptor of a group, and where in it.
    pub fn descriptor_of(&self, group: u64) -> (u64, usize) {
        let per_block = (self.block_bytes / self.descriptor_bytes) as u64;
        let (table_block, at) = (group / per_block, (group % per_block) as usize * self.descriptor_bytes);
        // The first superblock starts 1024 bytes in, whatever the block size.
        let behind_superblock = OFFSET / self.block_bytes as u64 + 1;
        let meta = self.features.incompat.contains(ExtFeatures::META_BG) && table_block >= self.first_meta_bg;
        let block = match meta {
            false => behind_superblock + table_block,
            // Each block of descriptors lies at the start of the first of the groups that it
            // describes.
            true if table_block == 0 => behind_superblock,
            true => {
                let first = table_block * per_block;
                self.start_of(first).saturating_add(u64::from(self.has_superblock(first)))
            }
        };
        (block, at)
    }

    /// Whether a group starts with a copy of the superblock.
    fn has_superblock(&self, group: u64) -> bool {
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        match group {
            0 => true,
            _ if self.features.compat.contains(ExtFeatures::SPARSE_SUPER2) => {
                self.backup_groups.contains(&group)
            }
            1 => true,
            _ if !self.features.ro_compat.contains(ExtFeatures::SPARSE_SUPER) => true,
            _ => is_power_of(3) || is_power_of(5) || is_power_of(7),
        }
    }

    /// Groups that share the places of their metadata, as one large group.
    pub fn groups_together(&self) -> u64 {
        1 << self.flexible_groups_log
    }

    pub fn inodes_per_group(&self) -> u64 {
        self.inodes_per_group
    }

    /// What a bit of a block bitmap stands for: a block, or several.
    pub fn cluster_bytes(&self) -> u64 {
        (self.block_bytes as u64) << self.cluster_log
    }

    /// Clusters of a group; the last group has fewer.
    pub fn clusters_of(&self, group: u64) -> u64 {
        let before = group.saturating_mul(self.blocks_per_group).saturating_add(self.first_data_block);
        self.blocks.saturating_sub(before).min(self.blocks_per_group).div_ceil(1 << self.cluster_log)
    }

    /// Whether an inode is the file system's own: journal, quotas, orphans. The root is not.
    pub fn is_own_inode(&self, number: u64) -> bool {
        number != 2 && number < self.first_inode || number == self.orphan_inode
    }

    /// The bitmap of a group that has none yet: all is free but what it starts with, and its own
    /// metadata if that lies within.
    pub fn initial_bitmap(&self, group: u64, descriptor: &GroupDescriptor) -> Vec<u8> {
        let clusters = self.clusters_of(group).min(self.block_bytes as u64 * 8);
        let mut bitmap = vec![0_u8; clusters.div_ceil(8) as usize];
        let start = group.saturating_mul(self.blocks_per_group).saturating_add(self.first_data_block);
        let mut mark = |first: u64, blocks: u64| {
            let end = first.saturating_add(blocks).saturating_sub(start);
            let bits = first.saturating_sub(start) >> self.cluster_log..end.div_ceil(1 << self.cluster_log);
            for bit in bits.start..bits.end.min(clusters) {
                bitmap[(bit / 8) as usize] |= 1 << (bit % 8);
            }
        };
        let per_block = (self.block_bytes / self.descriptor_bytes) as u64;
        let table_block = group / per_block;
        let has_meta = self.features.incompat.contains(ExtFeatures::META_BG);
        let superblock = u64::from(self.has_superblock(group));
        let head = match has_meta && table_block >= self.first_meta_bg {
            // The first, second and last group of those that a block describes have a copy of it.
            true => superblock + u64::from([0, 1, per_block - 1].contains(&(group % per_block))),
            false if superblock == 0 => 0,
            false => {
                let all = self.groups.div_ceil(per_block);
                1 + if has_meta { self.first_meta_bg } else { all + self.reserved_descriptor_blocks }
            }
        };
        let of_inodes = self.inodes_per_group.saturating_mul(self.inode_bytes as u64);
        mark(start, head);
        mark(descriptor.inode_table, of_inodes.div_ceil(self.block_bytes as u64));
        mark(descriptor.block_bitmap, 1);
        mark(descriptor.inode_bitmap, 1);
        bitmap
    }

    /// Where copies of the descriptor of a group are: the block of each, and where in it.
    pub fn descriptor_copies_of(&self, group: u64) -> Vec<(u64, usize)> {
        /// More copies are not asked.
        const COPIES_MAX: usize = 32;
        let per_block = (self.block_bytes / self.descriptor_bytes) as u64;
        let (table_block, (_, at)) = (group / per_block, self.descriptor_of(group));
        if self.features.incompat.contains(ExtFeatures::META_BG) && table_block >= self.first_meta_bg {
            // In the second and the last of the groups that the block describes.
            let first = table_block * per_block;
            let groups = [first + 1, first + per_block - 1].into_iter();
            let copies = groups.filter(|of| *of > first && *of < self.groups);
            return copies
                .map(|of| (self.start_of(of).saturating_add(u64::from(self.has_superblock(of))), at))
                .collect();
        }
        // Behind each copy of the superblock.
        let powers = |base: u64| std::iter::successors(Some(base), move |power| power.checked_mul(base));
        let below = |of: &u64| *of > 0 && *of < self.groups;
        let groups: Vec<u64> = if self.features.compat.contains(ExtFeatures::SPARSE_SUPER2) {
            self.backup_groups.into_iter().filter(below).collect()
        } else if self.features.ro_compat.contains(ExtFeatures::SPARSE_SUPER) {
            let sparse = [3, 5, 7].into_iter().flat_map(|base| powers(base).take_while(below));
            Some(1).filter(below).into_iter().chain(sparse).take(COPIES_MAX).collect()
        } else {
            (1..self.groups).take(COPIES_MAX).collect()
        };
        groups.into_iter().map(|of| (self.start_of(of).saturating_add(1 + table_block), at)).collect()
    }

    /// The first block of a group.
    fn start_of(&self, group: u64) -> u64 {
        group.saturating_mul(self.blocks_per_group).saturating_add(self.first_data_block)
    }

    /// Whether the inodes of a group can be from this block on: in the group itself, unless groups
    /// are flexible.
    pub fn may_hold_inodes_of(&self, group: u64, table: u64) -> bool {
        let bytes = self.inodes_per_group.saturating_mul(self.inode_bytes as u64);
        let end = table.saturating_add(bytes.div_ceil(self.block_bytes as u64));
        let within = match self.features.incompat.contains(ExtFeatures::FLEXIBLE_GROUPS) {
            true => self.first_data_block + 1..self.blocks,
            false => self.start_of(group)..self.start_of(group + 1).min(self.blocks),
        };
        within.start <= table && end <= within.end
    }

    /// The block an inode is in, and where in it.
    pub fn inode_place(&self, ext: &Ext, inode: u64) -> Result<(u64, usize), Error> {
        let damaged = |what| Error::Damaged { structure: "ext inode", at: inode, what };
        let index = inode.checked_sub(1).filter(|index| *index < u64::from(u32::MAX));
        let index = index.ok_or_else(|| damaged("there is no inode of that number"))?;
        let group = index / self.inodes_per_group;
        if group >= self.groups {
            return Err(damaged("its number is beyond the last"));
        }
        let table = GroupDescriptor::of(ext, group)?.inode_table;
        let offset = (index % self.inodes_per_group) * self.inode_bytes as u64;
        let block_bytes = self.block_bytes as u64;
        let block = table.checked_add(offset / block_bytes);
        let block = block.ok_or_else(|| damaged("its group's table of inodes is nowhere"))?;
        Ok((block, (offset % block_bytes) as usize))
    }
}
