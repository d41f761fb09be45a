//! Names: entries of directories, and for each inode the directories and names that lead to it.
//! Both are kept in step: what removes an entry removes where its inode has the name from.

use std::collections::BTreeMap;

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

/// A name that leads to an inode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeName {
    pub directory: u64,
    pub index: u64,
    pub name: Vec<u8>,
}

/// A directory of which entries are changed, as it is by now.
#[derive(Debug, Default)]
pub struct LoggedDirectory {
    by_index: BTreeMap<u64, (Vec<u8>, ItemKey)>,
    by_name: BTreeMap<Vec<u8>, u64>,
}

/// Names in an item, which is for one directory.
pub fn refs(item: &[u8], directory: u64) -> Result<Vec<InodeName>, Error> {
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
pub fn extrefs(item: &[u8]) -> Result<Vec<InodeName>, Error> {
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

fn parsed(key: ItemKey, item: &[u8]) -> Result<Vec<InodeName>, Error> {
    if key.kind == INODE_REF { refs(item, key.offset) } else { extrefs(item) }
}

impl Replay<'_> {
    /// All names that lead to an inode.
    pub fn names_of(&self, number: u64) -> Result<Vec<InodeName>, Error> {
        let mut names = Vec::new();
        for (key, item) in self.collect(items_of(number))? {
            names.extend(parsed(key, &item)?);
        }
        Ok(names)
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
            let is_named = |name_of: &InodeName| name_of.directory == key.object && name_of.name == name;
            if !is_there || logged_names_of(log, location.object)?.iter().any(is_named) {
                continue;
            }
            if self.directory(key.object)?.by_name.contains_key(&name) {
                continue;
            }
            self.add_entry(key.object, key.offset, &name, location, item)?;
            if location.kind == INODE_ITEM {
                let new = InodeName { directory: key.object, index: key.offset, name };
                self.add_name(location.object, new)?;
                self.to_count.insert(location.object);
            }
        }
        Ok(())
    }

    /// Names of the log: the entries that they are become those, and no others of these
    /// directories.
    pub fn logged_names(
        &mut self,
        key: ItemKey,
        names: &[InodeName],
        log: &BTreeMap<ItemKey, Vec<u8>>,
        item: &[u8],
    ) -> Result<(), Error> {
        // The root has itself as its directory.
        if key.kind == INODE_REF && key.object == key.offset {
            return Ok(());
        }
        if self.item(inode_key(key.object))?.is_none() {
            return Err(damaged(key.object, "names of an inode that is not there"));
        }
        let mut known = Vec::new();
        for name in names {
            // Not all directories above need be there.
            if self.item(inode_key(name.directory))?.is_some() {
                known.push(name);
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let logged = logged_names_of(log, key.object)?;
        let keeps = |old: &InodeName| {
            logged.iter().any(|new| (new.directory, &new.name) == (old.directory, &old.name))
        };
        let there = self.names_of(key.object)?;
        let here = |old: &&InodeName| known.iter().any(|new| new.directory == old.directory);
        for old in there.iter().filter(here).filter(|old| !keeps(old)) {
            self.remove(old.directory, &old.name)?;
        }
        let location = inode_key(key.object);
        for name in known {
            let directory = self.directory(name.directory)?;
            let found = directory.by_name.get(&name.name).copied();
            let is_it = found == Some(name.index)
                && directory.by_index.get(&name.index).is_some_and(|(_, there)| *there == location);
            if is_it {
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
        let directory = self.directory(number)?;
        let Some(index) = directory.by_name.remove(name) else { return Ok(()) };
        let entry = directory.by_index.remove(&index);
        self.changes.set(ItemKey::new(number, DIR_INDEX, index), None)?;
        self.resize(number, name.len() as u64 * 2, false)?;
        let Some((_, location)) = entry.filter(|(_, location)| location.kind == INODE_ITEM) else {
            return Ok(());
        };
        for (key, item) in self.collect(items_of(location.object))? {
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

    /// Removes all entries of a directory that has no name any more.
    pub fn remove_all(&mut self, number: u64) -> Result<(), Error> {
        let names: Vec<_> = self.directory(number)?.by_name.keys().cloned().collect();
        names.iter().try_for_each(|name| self.remove(number, name))
    }

    fn add_name(&mut self, number: u64, name: InodeName) -> Result<(), Error> {
        let key = ItemKey::new(number, INODE_REF, name.directory);
        let mut names = match self.item(key)? {
            Some(item) => refs(&item, name.directory)?,
            None => Vec::new(),
        };
        names.push(name);
        self.changes.set(key, Some(joined(&names, false)))
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

/// All names of an inode that the log has.
fn logged_names_of(log: &BTreeMap<ItemKey, Vec<u8>>, number: u64) -> Result<Vec<InodeName>, Error> {
    let mut names = Vec::new();
    for (key, item) in log.range(items_of(number)) {
        names.extend(parsed(*key, item)?);
    }
    Ok(names)
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
