//! Extents of files: one of the log takes the place of what the file has there.

use crate::btrfs::EXTENT_DATA;
use crate::btrfs::log::{FILE, MODE_AT, Replay, STORED_AT, TYPE, damaged, inode_key};
use crate::btrfs::tree::ItemKey;
use crate::bytes::{le32, le64, u8_at};
use crate::error::Error;

const UNPACKED_AT: usize = 8;
const KIND_AT: usize = 20;
const INLINE: u8 = 0;
const ADDRESS_AT: usize = 21;
const OFFSET_AT: usize = 37;
const LEN_AT: usize = 45;

/// Extents of a file that are counted at most; of one with more, what is stored stays as it was.
const COUNTED_MAX: usize = 1 << 20;

impl Replay<'_> {
    /// An extent of the log.
    pub fn logged_extent(&mut self, key: ItemKey, item: &[u8]) -> Result<(), Error> {
        let end = self.end(key, item)?;
        if self.item(key)?.is_some_and(|there| there == item) {
            return Ok(());
        }
        self.drop_extents(key.object, key.offset, end)?;
        // A hole needs no item.
        let is_hole = u8_at(item, KIND_AT) != Some(INLINE) && le64(item, ADDRESS_AT) == Some(0);
        match is_hole {
            true => Ok(()),
            false => self.changes.set(key, Some(item.to_vec())),
        }
    }

    /// Where an extent ends in its file.
    fn end(&self, key: ItemKey, item: &[u8]) -> Result<u64, Error> {
        let none = || damaged(key.object, "an extent is none");
        let sector = self.btrfs.superblock.sector_bytes as u64;
        let end = match u8_at(item, KIND_AT).ok_or_else(none)? {
            INLINE => le64(item, UNPACKED_AT)
                .and_then(|len| key.offset.checked_add(len))
                .and_then(|end| end.checked_next_multiple_of(sector)),
            _ => le64(item, LEN_AT).and_then(|len| key.offset.checked_add(len)),
        };
        end.ok_or_else(none)
    }

    /// Takes a range from a file; what lies across its start or its end is cut.
    pub fn drop_extents(&mut self, number: u64, start: u64, end: u64) -> Result<(), Error> {
        if start >= end {
            return Ok(());
        }
        self.changed_files.insert(number);
        let at = |offset| ItemKey::new(number, EXTENT_DATA, offset);
        let before = self.changes.floor(self.btrfs, self.base, at(start))?.map(|(key, _)| key);
        let first = before.filter(|key| (key.object, key.kind) == (number, EXTENT_DATA));
        for (key, item) in self.collect(first.unwrap_or(at(start))..=at(end - 1))? {
            let its_end = self.end(key, &item)?;
            if its_end <= start {
                continue;
            }
            let is_inline = u8_at(&item, KIND_AT) == Some(INLINE);
            let none = || damaged(number, "an extent is none");
            let with = |field: usize, value: u64, mut item: Vec<u8>| {
                item.get_mut(field..field + 8)?.copy_from_slice(&value.to_le_bytes());
                Some(item)
            };
            let before = (key.offset < start && !is_inline)
                .then(|| with(LEN_AT, start - key.offset, item.clone()).ok_or_else(none));
            self.changes.set(key, before.transpose()?)?;
            if its_end > end && !is_inline {
                let offset = le64(&item, OFFSET_AT).and_then(|at| at.checked_add(end - key.offset));
                let offset = offset.ok_or_else(none)?;
                let rest = with(LEN_AT, its_end - end, item).and_then(|item| with(OFFSET_AT, offset, item));
                self.changes.set(at(end), Some(rest.ok_or_else(none)?))?;
            }
        }
        Ok(())
    }

    /// Counts anew what is stored of files whose extents changed.
    pub fn count_stored(&mut self) -> Result<(), Error> {
        for number in std::mem::take(&mut self.changed_files) {
            let Some(mut inode) = self.item(inode_key(number))? else { continue };
            if le32(&inode, MODE_AT).is_none_or(|mode| mode & TYPE != FILE) {
                continue;
            }
            let at = |offset| ItemKey::new(number, EXTENT_DATA, offset);
            let (mut stored, mut extents) = (0_u64, 0);
            let counted = self.changes.items(self.btrfs, self.base, at(0)..=at(u64::MAX), &mut |_, item| {
                let is_inline = u8_at(item, KIND_AT) == Some(INLINE);
                let is_there = is_inline || le64(item, ADDRESS_AT).is_some_and(|address| address != 0);
                let len = le64(item, if is_inline { UNPACKED_AT } else { LEN_AT }).unwrap_or(0);
                stored = stored.saturating_add(if is_there { len } else { 0 });
                extents += 1;
                if extents > COUNTED_MAX { Err(Error::Stopped) } else { Ok(()) }
            });
            match counted {
                Err(Error::Stopped) => continue,
                counted => counted?,
            }
            if let Some(field) = inode.get_mut(STORED_AT..STORED_AT + 8) {
                field.copy_from_slice(&stored.to_le_bytes());
                self.changes.set(inode_key(number), Some(inode))?;
            }
        }
        Ok(())
    }
}
