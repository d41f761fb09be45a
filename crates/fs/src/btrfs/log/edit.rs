//! A tree with changes that are in memory only.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::btrfs::Btrfs;
use crate::btrfs::tree::{self, EachItem, ItemKey, TreeRoot};
use crate::error::Error;

/// Bytes of changes at most.
const BYTES_MAX: usize = 256 << 20;

/// What each change costs beside its bytes.
const CHANGE_BYTES: usize = 64;

/// Items that are new or changed, and those that are not there any more.
#[derive(Debug, Default)]
pub struct TreeChanges {
    changes: BTreeMap<ItemKey, Option<Vec<u8>>>,
    bytes: usize,
}

impl TreeChanges {
    /// Puts an item in the place of what has its key, or takes that away.
    ///
    /// # Errors
    /// More is changed than is held.
    pub fn set(&mut self, key: ItemKey, item: Option<Vec<u8>>) -> Result<(), Error> {
        let held = |item: &Option<Vec<u8>>| CHANGE_BYTES + item.as_ref().map_or(0, Vec::len);
        self.bytes += held(&item);
        self.bytes -= self.changes.insert(key, item).as_ref().map_or(0, held);
        match self.bytes <= BYTES_MAX {
            true => Ok(()),
            false => Err(Error::Unsupported { what: "a log of btrfs that changes more than 256 MiB" }),
        }
    }

    /// As [`tree::items`], with the changes.
    pub fn items(
        &self,
        btrfs: &Btrfs,
        tree: TreeRoot,
        range: RangeInclusive<ItemKey>,
        each: &mut EachItem<'_>,
    ) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let mut changes = self.changes.range(range.clone()).peekable();
        tree::items(btrfs, tree, range, &mut |key, item| {
            while let Some((new, changed)) = changes.next_if(|(new, _)| **new < key) {
                changed.iter().try_for_each(|item| each(*new, item))?;
            }
            match changes.next_if(|(new, _)| **new == key) {
                Some((_, changed)) => changed.iter().try_for_each(|item| each(key, item)),
                None => each(key, item),
            }
        })?;
        changes.try_for_each(|(key, item)| item.iter().try_for_each(|item| each(*key, item)))
    }

    /// As [`tree::floor`], with the changes.
    pub fn floor(
        &self,
        btrfs: &Btrfs,
        tree: TreeRoot,
        key: ItemKey,
    ) -> Result<Option<(ItemKey, Vec<u8>)>, Error> {
        let changed = self.changes.range(..=key).rev().find_map(|(key, item)| Some((*key, item.clone()?)));
        let mut below = Some(key);
        while let Some(key) = below {
            let found = tree::floor(btrfs, tree, key)?;
            match found {
                Some((found, _)) if self.changes.contains_key(&found) => below = found.before(),
                found => return Ok(found.max(changed)),
            }
        }
        Ok(changed)
    }
}
