//! Names: entries of directories, and for each inode the directories and names that lead to it.
//! Both are kept in step: what removes an entry removes where its inode has the name from.

use std::collections::{BTreeMap, BTreeSet};

use crate::btrfs::log::{
    DIR_LOG_INDEX, INODE_BYTES, INODE_EXTREF, INODE_REF, Replay, SIZE_AT, damaged, inode_key,
};
use crate::btrfs::tree::ItemKey;
use crate::btrfs::{DIR_INDEX, INODE_ITEM, each_entry};
use crate::bytes::{le16, le64};
use crate::error::Error;

/// Entries of directories that are held at most.
const HELD_BYTES_MAX: usize = 512 << 20;

/// An entry: where it leads, a transaction, the lengths of a value and of the name, a type.
const LENS_AT: usize = 25;
const NAME_AT: usize = 30;

/// What a leaf with one item has beside it: its header, and the item's key and place.
const NODE_BYTES: usize = 101 + 25;

/// A name that leads to an inode.
#[derive(Debug)]
struct InodeName {
    directory: u64,
    index: u64,
    name: Vec<u8>,
}

/// A directory of which entries are changed, as it is by now.
#[derive(Debug, Default)]
pub struct LoggedDirectory {
    by_index: BTreeMap<u64, (Vec<u8>, ItemKey)>,
    by_name: BTreeMap<Vec<u8>, u64>,
}

/// Names in an item, which is for one directory.
fn refs(item: &[u8], directory: u64) -> Result<Vec<InodeName>, Error> {
    let mut names = Vec::new();
    let mut rest = item;
    while !rest.is_empty() {
        let (index, name, behind) = split(rest, 0).ok_or_else(|| damaged(directory, "a name is none"))?;
        names.push(InodeName { directory, index, name: name.to_vec() });
        rest = behind;
    }
    Ok(names)
}

/// The same of the long form, which names the directory of each.
fn extrefs(item: &[u8]) -> Result<Vec<InodeName>, Error> {
    let mut names = Vec::new();
    let mut rest = item;
    while !rest.is_empty() {
        let found = le64(rest, 0).zip(split(rest, 8));
        let (directory, (index, name, behind)) = found.ok_or_else(|| damaged(0, "a name is none"))?;
        names.push(InodeName { directory, index, name: name.to_vec() });
        rest = behind;
    }
    Ok(names)
}

/// An index, a name with its length before it, and what is behind.
fn split(bytes: &[u8], at: usize) -> Option<(u64, &[u8], &[u8])> {
    let (index, len) = (le64(bytes, at)?, usize::from(le16(bytes, at + 8)?));
    let (name, behind) = bytes.get(at + 10..)?.split_at_checked(len)?;
    Some((index, name, behind))
}

/// The bytes of names in an item of either form.
fn joined(names: &[InodeName], long: bool) -> Vec<u8> {
    let one = |name: &InodeName| {
        let directory = if long { name.directory.to_le_bytes().to_vec() } else { Vec::new() };
        let len = (name.name.len() as u16).to_le_bytes();
        [&directory[..], &name.index.to_le_bytes(), &len, &name.name].concat()
    };
    names.iter().flat_map(one).collect()
}

/// Items of names of an inode, of both forms.
fn items_of(number: u64) -> std::ops::RangeInclusive<ItemKey> {
    ItemKey::new(number, INODE_REF, 0)..=ItemKey::new(number, INODE_EXTREF, u64::MAX)
}

/// Where an inode may have a name: with others of the directory, or in the long form, by a hash of
/// it that starts with the directory's number.
fn keys_of_name(number: u64, directory: u64, name: &[u8]) -> [ItemKey; 2] {
    let hash = !crc32c::crc32c_append(!(directory as u32), name);
    [ItemKey::new(number, INODE_REF, directory), ItemKey::new(number, INODE_EXTREF, hash.into())]
}

fn parsed(key: ItemKey, item: &[u8]) -> Result<Vec<InodeName>, Error> {
    if key.kind == INODE_REF { refs(item, key.offset) } else { extrefs(item) }
}

impl Replay<'_> {
    /// How many names lead to an inode.
    pub fn count_names(&self, number: u64) -> Result<u32, Error> {
        let mut count = 0_usize;
        self.changes.items(self.btrfs, self.base, items_of(number), &mut |key, item| {
            count += parsed(key, item)?.len();
            Ok(())
        })?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// A directory with its entries, as it is by now.
    fn directory(&mut self, number: u64) -> Result<&mut LoggedDirectory, Error> {
        if !self.directories.contains_key(&number) {
            let mut directory = LoggedDirectory::default();
            let range = ItemKey::new(number, DIR_INDEX, 0)..=ItemKey::new(number, DIR_INDEX, u64::MAX);
            let held = &mut self.held;
            self.changes.items(self.btrfs, self.base, range, &mut |key, item| {
                each_entry(item, &mut |location, name, _| {
                    *held += 3 * name.len() + 128;
                    directory.by_index.insert(key.offset, (name.to_vec(), location));
                    directory.by_name.insert(name.to_vec(), key.offset);
                    match *held <= HELD_BYTES_MAX {
                        true => Ok(()),
                        false => {
                            let what = "a log of btrfs that changes directories of more than 512 MiB";
                            Err(Error::Unsupported { what })
                        }
                    }
                })
            })?;
            self.directories.insert(number, directory);
        }
        let what = "a directory is none";
        self.directories.get_mut(&number).ok_or_else(|| damaged(number, what))
    }

    /// Takes away the entries that lie in a logged range and are not in the log.
    pub fn logged_removals(&mut self, log: &BTreeMap<ItemKey, Vec<u8>>, number: u64) -> Result<(), Error> {
        if self.item(inode_key(number))?.is_none() {
            return Ok(());
        }
        let range = ItemKey::new(number, DIR_LOG_INDEX, 0)..=ItemKey::new(number, DIR_LOG_INDEX, u64::MAX);
        for (key, item) in log.range(range) {
            let end = le64(item, 0).ok_or_else(|| damaged(number, "a range of entries is none"))?;
            if end < key.offset {
                continue;
            }
            let within = self.directory(number)?.by_index.range(key.offset..=end);
            let entries: Vec<_> = within.map(|(index, (name, _))| (*index, name.clone())).collect();
            for (index, name) in entries {
                let logged = log.get(&ItemKey::new(number, DIR_INDEX, index));
                if !logged.is_some_and(|item| has_name(item, &name)) {
                    self.remove(number, &name)?;
                }
            }
        }
        Ok(())
    }

    /// An entry of the log.
    pub fn logged_entry(
        &mut self,
        log: &BTreeMap<ItemKey, Vec<u8>>,
        key: ItemKey,
        item: &[u8],
    ) -> Result<(), Error> {
        let mut entries = Vec::new();
        each_entry(item, &mut |location, name, _| {
            entries.push((location, name.to_vec()));
            Ok(())
        })?;
        if self.item(inode_key(key.object))?.is_none() {
            return Err(damaged(key.object, "entries of a directory that is not there"));
        }
        for (location, name) in entries {
            let is_there = location.kind != INODE_ITEM || self.item(inode_key(location.object))?.is_some();
            let directory = self.directory(key.object)?;
            let by_name = directory.by_name.get(&name).copied();
            let leads = |index: u64| directory.by_index.get(&index).map(|(_, location)| *location);
            if by_name == Some(key.offset) && leads(key.offset) == Some(location) {
                continue;
            }
            // An entry of that name that leads elsewhere makes way, if this one leads somewhere.
            if let Some(index) = by_name.filter(|index| leads(*index) != Some(location)) {
                if !is_there {
                    continue;
                }
                let _ = index;
                self.remove(key.object, &name)?;
            }
            // Where the inode's name is in the log, the entry comes with it.
            if !is_there || is_logged_name(log, location.object, key.object, &name)? {
                continue;
            }
            if self.directory(key.object)?.by_name.contains_key(&name) {
                continue;
            }
            self.add_entry(key.object, key.offset, &name, location, item)?;
            if location.kind == INODE_ITEM {
                let new = InodeName { directory: key.object, index: key.offset, name };
                self.add_name(location.object, &new)?;
                self.to_count.insert(location.object);
            }
        }
        Ok(())
    }

    /// An item of names in the log takes the place of the item with its key: names that only that
    /// has are removed, and entries that are not there yet are added.
    ///
    /// Names in other items of the inode stay. A log has the items in leaves that changed since the
    /// last transaction, which of a file with many names are some.
    pub fn logged_names(
        &mut self,
        log: &BTreeMap<ItemKey, Vec<u8>>,
        key: ItemKey,
        item: &[u8],
    ) -> Result<(), Error> {
        // The root has itself as its directory.
        if key.kind == INODE_REF && key.object == key.offset {
            return Ok(());
        }
        if self.item(inode_key(key.object))?.is_none() {
            return Err(damaged(key.object, "names of an inode that is not there"));
        }
        let names = parsed(key, item)?;
        // Not all directories above need be there.
        let mut known = BTreeSet::new();
        for directory in names.iter().map(|name| name.directory).collect::<BTreeSet<_>>() {
            if self.item(inode_key(directory))?.is_some() {
                known.insert(directory);
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let location = inode_key(key.object);
        let old = self.item(key)?.map_or(Ok(Vec::new()), |old| parsed(key, &old))?;
        let kept: BTreeSet<_> = names.iter().map(|name| (name.directory, &name.name)).collect();
        for old in old.iter().filter(|old| !kept.contains(&(old.directory, &old.name))) {
            if self.entry(old)?.is_some_and(|(_, leads_to)| leads_to == location) {
                self.remove_entry(old.directory, &old.name)?;
            }
        }
        for name in names.iter().filter(|name| known.contains(&name.directory)) {
            let found = self.entry(name)?;
            if found == Some((name.index, location)) {
                continue;
            }
            if found.is_some() {
                self.remove(name.directory, &name.name)?;
            }
            let entry = self.entry_for(log, name, location)?;
            self.add_entry(name.directory, name.index, &name.name, location, &entry)?;
        }
        self.to_count.insert(key.object);
        self.changes.set(key, Some(item.to_vec()))
    }

    /// The entry of a name by now: its index, and where it leads.
    fn entry(&mut self, name: &InodeName) -> Result<Option<(u64, ItemKey)>, Error> {
        let directory = self.directory(name.directory)?;
        let index = directory.by_name.get(&name.name);
        Ok(index.and_then(|index| Some((*index, directory.by_index.get(index)?.1))))
    }

    /// The item of an entry: that of the log if it has one.
    fn entry_for(
        &self,
        log: &BTreeMap<ItemKey, Vec<u8>>,
        name: &InodeName,
        location: ItemKey,
    ) -> Result<Vec<u8>, Error> {
        let logged = log.get(&ItemKey::new(name.directory, DIR_INDEX, name.index));
        if let Some(item) = logged.filter(|item| has_name(item, &name.name)) {
            return Ok(item.clone());
        }
        let mut item = vec![0; NAME_AT];
        item[..8].copy_from_slice(&location.object.to_le_bytes());
        item[8] = location.kind;
        item[LENS_AT + 2..LENS_AT + 4].copy_from_slice(&(name.name.len() as u16).to_le_bytes());
        item.extend_from_slice(&name.name);
        Ok(item)
    }

    fn add_entry(
        &mut self,
        number: u64,
        index: u64,
        name: &[u8],
        location: ItemKey,
        item: &[u8],
    ) -> Result<(), Error> {
        let directory = self.directory(number)?;
        directory.by_index.insert(index, (name.to_vec(), location));
        directory.by_name.insert(name.to_vec(), index);
        self.changes.set(ItemKey::new(number, DIR_INDEX, index), Some(item.to_vec()))?;
        self.resize(number, name.len() as u64 * 2, true)
    }

    /// Removes an entry, and the name from what it leads to.
    fn remove(&mut self, number: u64, name: &[u8]) -> Result<(), Error> {
        let location = self.remove_entry(number, name)?;
        let Some(location) = location.filter(|location| location.kind == INODE_ITEM) else {
            return Ok(());
        };
        for key in keys_of_name(location.object, number, name) {
            let Some(item) = self.item(key)? else { continue };
            let mut names = parsed(key, &item)?;
            let before = names.len();
            names.retain(|old| (old.directory, &old.name[..]) != (number, name));
            if names.len() < before {
                let left = joined(&names, key.kind == INODE_EXTREF);
                self.changes.set(key, Some(left).filter(|left| !left.is_empty()))?;
            }
        }
        self.to_count.insert(location.object);
        Ok(())
    }

    /// Removes an entry alone; where it led.
    fn remove_entry(&mut self, number: u64, name: &[u8]) -> Result<Option<ItemKey>, Error> {
        let directory = self.directory(number)?;
        let Some(index) = directory.by_name.remove(name) else { return Ok(None) };
        let entry = directory.by_index.remove(&index);
        self.changes.set(ItemKey::new(number, DIR_INDEX, index), None)?;
        self.resize(number, name.len() as u64 * 2, false)?;
        Ok(entry.map(|(_, location)| location))
    }

    /// Removes all entries of a directory that has no name any more.
    pub fn remove_all(&mut self, number: u64) -> Result<(), Error> {
        let names: Vec<_> = self.directory(number)?.by_name.keys().cloned().collect();
        names.iter().try_for_each(|name| self.remove(number, name))
    }

    /// Adds a name to the item that is for its directory, or in the long form if that is full.
    fn add_name(&mut self, number: u64, name: &InodeName) -> Result<(), Error> {
        let item_max = self.btrfs.superblock.node_bytes.saturating_sub(NODE_BYTES);
        for key in keys_of_name(number, name.directory, &name.name) {
            let item = self.item(key)?.unwrap_or_default();
            let is_long = key.kind == INODE_EXTREF;
            let new = joined(std::slice::from_ref(name), is_long);
            if is_long || item.len() + new.len() <= item_max {
                return self.changes.set(key, Some([item, new].concat()));
            }
        }
        Ok(())
    }

    /// The size of a directory is twice that of all names in it.
    fn resize(&mut self, number: u64, by: u64, grows: bool) -> Result<(), Error> {
        let Some(mut item) = self.item(inode_key(number))?.filter(|item| item.len() >= INODE_BYTES) else {
            return Ok(());
        };
        let size = le64(&item, SIZE_AT).unwrap_or(0);
        let size = if grows { size.saturating_add(by) } else { size.saturating_sub(by) };
        item[SIZE_AT..SIZE_AT + 8].copy_from_slice(&size.to_le_bytes());
        self.changes.set(inode_key(number), Some(item))
    }
}

/// Whether the log has a name of an inode.
fn is_logged_name(
    log: &BTreeMap<ItemKey, Vec<u8>>,
    number: u64,
    directory: u64,
    name: &[u8],
) -> Result<bool, Error> {
    for key in keys_of_name(number, directory, name) {
        let names = log.get(&key).map_or(Ok(Vec::new()), |item| parsed(key, item))?;
        if names.iter().any(|there| (there.directory, &there.name[..]) == (directory, name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an entry's item has an entry of that name.
fn has_name(item: &[u8], name: &[u8]) -> bool {
    let mut found = false;
    let read = each_entry(item, &mut |_, there, _| {
        found |= there == name;
        Ok(())
    });
    read.is_ok() && found
}
