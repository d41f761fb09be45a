//! The log: what was flushed file by file since the last transaction. A mount replays it into the
//! subvolumes; here it becomes changes of their trees in memory.
//!
//! The superblock names a tree of log trees, one for each subvolume that has one. A log tree has
//! copies of items: inodes, names and where they are from, attributes, extents and their checksums;
//! and for each directory in it the ranges of indexes for which it has all entries.
//!
//! Replay goes over a log tree three times: inodes, with what is to be taken away from them;
//! entries of directories; everything else. Then the links of all inodes whose names changed are
//! counted.
//!
//! Invariants:
//!
//! 1. Nothing is written, and the trees stay as they are: [`TreeChanges`] are merged in when items
//!    are read.
//! 2. A log is applied whole or not at all.
//! 3. Memory is bounded: by what is held of the log, of directories and of changes.
//!
//! After the btrfs documentation of its on-disk format and experiments on what Linux makes of logs.

mod edit;
mod extents;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::btrfs::tree::{self, ItemKey, TreeRoot};
use crate::btrfs::{
    Btrfs, CSUM_OBJECT, DIR_INDEX, EXTENT_CSUM, EXTENT_DATA, INODE_ITEM, ROOT_ITEM, XATTR_ITEM,
};
use crate::bytes::{le32, le64};
use crate::error::Error;

pub use edit::TreeChanges;
use names::LoggedDirectory;

/// The number that log trees have in the tree of them.
const LOG_OBJECT: u64 = 6_u64.wrapping_neg();

/// Types of items: where a name is, and in the long form; ranges that are logged.
const INODE_REF: u8 = 12;
const INODE_EXTREF: u8 = 13;
const DIR_LOG_INDEX: u8 = 72;

/// Of a log, bytes that are held at most.
const LOG_BYTES_MAX: usize = 256 << 20;

/// Fields of an inode.
const SIZE_AT: usize = 16;
const STORED_AT: usize = 24;
const LINKS_AT: usize = 40;
const MODE_AT: usize = 52;
const INODE_BYTES: usize = 160;

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// What the log came to.
#[derive(Debug, Default)]
pub struct AppliedLog {
    /// By subvolume.
    pub trees: BTreeMap<u64, TreeChanges>,
    /// Checksums of sectors of data, by their address.
    pub sums: BTreeMap<u64, Vec<u8>>,
    /// Items of the log.
    pub items: u64,
}

/// Applies the log.
///
/// # Errors
/// It cannot be read, is damaged, or is larger than what is held.
pub fn apply(btrfs: &Btrfs, log: TreeRoot) -> Result<AppliedLog, Error> {
    let mut applied = AppliedLog::default();
    let mut logs = Vec::new();
    let range = ItemKey::new(LOG_OBJECT, ROOT_ITEM, 0)..=ItemKey::new(LOG_OBJECT, ROOT_ITEM, u64::MAX);
    tree::items(btrfs, log, range, &mut |key, item| {
        let root = TreeRoot::of_root_item(item);
        logs.push((key.offset, root.ok_or_else(|| damaged(key.offset, "the item of a log is none"))?));
        Ok(())
    })?;
    for (number, root) in logs {
        let base = match btrfs.tree(number) {
            // A log of a subvolume that was removed is left over.
            Err(Error::Damaged { structure: "btrfs subvolume", .. }) => continue,
            base => base?,
        };
        let mut replay = Replay::new(btrfs, base);
        replay.load(root)?;
        replay.run()?;
        applied.items += replay.log.len() as u64;
        replay.sums(&mut applied.sums)?;
        applied.trees.insert(number, replay.changes);
    }
    Ok(applied)
}

fn damaged(at: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "btrfs log", at, what }
}

/// The replay of the log of one subvolume.
struct Replay<'a> {
    btrfs: &'a Btrfs,
    base: TreeRoot,
    changes: TreeChanges,
    log: BTreeMap<ItemKey, Vec<u8>>,
    directories: BTreeMap<u64, LoggedDirectory>,
    /// Bytes of these that are held.
    held: usize,
    /// Inodes whose links are to be counted, and files whose extents changed.
    to_count: BTreeSet<u64>,
    changed_files: BTreeSet<u64>,
}

impl<'a> Replay<'a> {
    fn new(btrfs: &'a Btrfs, base: TreeRoot) -> Self {
        let (changes, log, directories) = Default::default();
        let (to_count, changed_files) = Default::default();
        Self { btrfs, base, changes, log, directories, held: 0, to_count, changed_files }
    }

    /// Reads all of the log.
    fn load(&mut self, root: TreeRoot) -> Result<(), Error> {
        let all = ItemKey::new(0, 0, 0)..=ItemKey::new(u64::MAX, u8::MAX, u64::MAX);
        tree::items(self.btrfs, root, all, &mut |key, item| {
            self.held += item.len() + size_of::<ItemKey>();
            self.log.insert(key, item.to_vec());
            match self.held <= LOG_BYTES_MAX {
                true => Ok(()),
                false => Err(Error::Unsupported { what: "a log of btrfs of more than 256 MiB" }),
            }
        })
    }

    fn run(&mut self) -> Result<(), Error> {
        let log = std::mem::take(&mut self.log);
        let result = self.replay(&log);
        self.log = log;
        result
    }

    fn replay(&mut self, log: &BTreeMap<ItemKey, Vec<u8>>) -> Result<(), Error> {
        // A file that never had a name, or has none any more, is not replayed.
        let is_inode = |key: &ItemKey| key.kind == INODE_ITEM;
        let nameless: BTreeSet<u64> = log
            .iter()
            .filter(|(key, item)| is_inode(key) && le32(item, LINKS_AT) == Some(0))
            .map(|(key, _)| key.object)
            .collect();
        let items = || log.iter().filter(|(key, _)| !nameless.contains(&key.object));
        for (key, item) in items().filter(|(key, _)| is_inode(key)) {
            self.inode(log, key.object, item)?;
        }
        for (key, item) in items().filter(|(key, _)| key.kind == DIR_INDEX) {
            self.logged_entry(log, *key, item)?;
        }
        for (key, item) in items() {
            match key.kind {
                INODE_REF | INODE_EXTREF => self.logged_names(log, *key, item)?,
                XATTR_ITEM => self.changes.set(*key, Some(item.clone()))?,
                EXTENT_DATA => self.logged_extent(*key, item)?,
                _ => {}
            }
        }
        self.count_links()?;
        self.count_stored()
    }

    /// An inode of the log, and what it has no more.
    fn inode(&mut self, log: &BTreeMap<ItemKey, Vec<u8>>, number: u64, item: &[u8]) -> Result<(), Error> {
        let range = ItemKey::new(number, XATTR_ITEM, 0)..=ItemKey::new(number, XATTR_ITEM, u64::MAX);
        for (key, _) in self.collect(range)? {
            if !log.contains_key(&key) {
                self.changes.set(key, None)?;
            }
        }
        let none = || damaged(number, "an inode in it is none");
        let mode = le32(item, MODE_AT).filter(|_| item.len() >= INODE_BYTES).ok_or_else(none)? & TYPE;
        if mode == DIRECTORY {
            self.logged_removals(log, number)?;
        }
        let mut new = item.to_vec();
        let old = self.item(inode_key(number))?;
        let is_directory = mode == DIRECTORY;
        let mut keep = |field: usize, from: Option<&Vec<u8>>| {
            let old = from.and_then(|old| old.get(field..field + 8)).unwrap_or(&[0; 8]).to_vec();
            new[field..field + 8].copy_from_slice(&old);
        };
        // What is stored is counted anew, and so is the size of a directory.
        keep(STORED_AT, old.as_ref());
        if is_directory {
            keep(SIZE_AT, old.as_ref());
        }
        match old {
            // Only that it is there was logged; of a file that was logged before, its size too.
            Some(mut old) if le64(item, 0) == Some(0) => {
                let is_file = mode == FILE && le32(&old, MODE_AT).is_some_and(|mode| mode & TYPE == FILE);
                if is_file && le64(item, SIZE_AT) != Some(0) && old.len() >= INODE_BYTES {
                    old[SIZE_AT..SIZE_AT + 8].copy_from_slice(&item[SIZE_AT..SIZE_AT + 8]);
                    self.changes.set(inode_key(number), Some(old))?;
                }
            }
            _ => self.changes.set(inode_key(number), Some(new))?,
        }
        if mode == FILE {
            let size = self.item(inode_key(number))?.and_then(|item| le64(&item, SIZE_AT)).unwrap_or(0);
            let end = size.checked_next_multiple_of(self.btrfs.superblock.sector_bytes as u64);
            self.drop_extents(number, end.unwrap_or(u64::MAX), u64::MAX)?;
        }
        self.to_count.insert(number);
        Ok(())
    }

    /// The links of an inode are the names that lead to it. What has none is removed by a mount: a
    /// directory with all that it has.
    fn count_links(&mut self) -> Result<(), Error> {
        while let Some(number) = self.to_count.pop_first() {
            let Some(mut item) = self.item(inode_key(number))? else { continue };
            if item.len() < INODE_BYTES {
                return Err(damaged(number, "an inode is none"));
            }
            let links = self.count_names(number)?;
            if le32(&item, LINKS_AT) != Some(links) {
                item[LINKS_AT..LINKS_AT + 4].copy_from_slice(&links.to_le_bytes());
                let is_directory = le32(&item, MODE_AT).is_some_and(|mode| mode & TYPE == DIRECTORY);
                self.changes.set(inode_key(number), Some(item))?;
                if links == 0 && is_directory {
                    self.remove_all(number)?;
                }
            }
        }
        Ok(())
    }

    /// Checksums of data in the log, by sector.
    fn sums(&self, sums: &mut BTreeMap<u64, Vec<u8>>) -> Result<(), Error> {
        let (sector, len) = (self.btrfs.superblock.sector_bytes as u64, self.btrfs.superblock.checksum.len());
        let key = |offset| ItemKey::new(CSUM_OBJECT, EXTENT_CSUM, offset);
        for (key, item) in self.log.range(key(0)..=key(u64::MAX)) {
            for (ix, sum) in (0_u64..).zip(item.chunks_exact(len)) {
                let at = key.offset.checked_add(ix * sector);
                sums.insert(at.ok_or_else(|| damaged(key.offset, "checksums of nothing"))?, sum.to_vec());
            }
        }
        Ok(())
    }

    /// An item, as it is by now.
    fn item(&self, key: ItemKey) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.collect(key..=key)?.pop().map(|(_, item)| item))
    }

    /// Items as they are by now.
    fn collect(&self, range: RangeInclusive<ItemKey>) -> Result<Vec<(ItemKey, Vec<u8>)>, Error> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        self.changes.items(self.btrfs, self.base, range, &mut |key, item| {
            bytes += item.len() + size_of::<(ItemKey, Vec<u8>)>();
            found.push((key, item.to_vec()));
            match bytes <= LOG_BYTES_MAX {
                true => Ok(()),
                false => Err(Error::Unsupported { what: "a log of btrfs for more than 256 MiB of items" }),
            }
        })?;
        Ok(found)
    }
}

fn inode_key(number: u64) -> ItemKey {
    ItemKey::new(number, INODE_ITEM, 0)
}
