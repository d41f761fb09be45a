//! Entries of a directory: in its record, and in blocks of their own.

use std::collections::BTreeSet;

use crate::bytes::{le16, le32, le64, u8_at};
use crate::error::Error;
use crate::names::units;

use super::Ntfs;
use super::record::{AttributeBody, Outside, damaged, kinds, mend};
use super::volume::{BLOCK_BYTES_MAX, NtfsFile, TORN};

/// The name of the attributes that make a directory.
const INDEX: &str = "$I30";
const BLOCK: [u8; 4] = *b"INDX";
/// A bitmap of an index has a bit for each block: more than that are no directory.
const BITMAP_BYTES_MAX: u64 = 16 << 20;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// The record, and how often it was used.
    pub reference: u64,
    pub name: Vec<u16>,
    /// A short name for DOS of what has another name.
    pub is_dos: bool,
}

/// A node of a directory's index.
#[derive(Debug, Default)]
pub(super) struct IndexNode {
    pub entries: Vec<IndexEntry>,
    /// The numbers of the blocks that its entries lead to.
    pub below: Vec<u64>,
    /// What is wrong with it, behind these entries.
    pub damage: Option<&'static str>,
}

impl IndexNode {
    /// From its head on.
    pub(super) fn parse(node: &[u8]) -> Self {
        let mut found = Self::default();
        found.damage = found.fill(node).err();
        found
    }

    fn fill(&mut self, node: &[u8]) -> Result<(), &'static str> {
        const LEADS_BELOW: u16 = 1;
        const LAST: u16 = 2;
        let cut = "a node of its index is cut off";
        let (mut at, end) = (le32(node, 0).ok_or(cut)? as usize, le32(node, 4).ok_or(cut)? as usize);
        let node = &node[..end.min(node.len())];
        loop {
            let len = usize::from(le16(node, at.saturating_add(8)).ok_or(cut)?);
            let bits = le16(node, at + 12).ok_or(cut)?;
            let entry = node.get(at..at + len).filter(|entry| entry.len() >= 16);
            if bits & LEADS_BELOW != 0 {
                // Behind all else of an entry.
                let below = entry.and_then(|entry| le64(entry, entry.len().checked_sub(8)?));
                self.below.push(below.ok_or("an entry of its index")?);
            }
            if bits & LAST != 0 {
                return Ok(());
            }
            let entry = entry.and_then(entry_of).ok_or("an entry of its index")?;
            self.entries.push(entry);
            at += len;
        }
    }
}

fn entry_of(entry: &[u8]) -> Option<IndexEntry> {
    const DOS: u8 = 2;
    const KEY_AT: usize = 16;
    let key = entry.get(KEY_AT..KEY_AT + usize::from(le16(entry, 10)?))?;
    let len = usize::from(u8_at(key, 64)?) * 2;
    let name = units(key.get(66..66 + len)?).collect();
    Some(IndexEntry { reference: le64(entry, 0)?, name, is_dos: u8_at(key, 65)? == DOS })
}

impl Ntfs {
    /// Calls `each` with the entries of the nodes of a directory's index: that in its record, the
    /// blocks that its bitmap says are in use, and those that entries of others lead to. What is
    /// damaged does not keep it from what follows, and is the error at the end.
    pub(super) fn nodes(
        &self,
        file: &NtfsFile,
        each: &mut dyn FnMut(Vec<IndexEntry>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        const HEAD_IN_ROOT: usize = 16;
        let cut = || damaged(file.record, "its index is cut off");
        let root = file.find(kinds::INDEX_ROOT, INDEX).ok_or(Error::NotADirectory)?;
        let AttributeBody::Resident(root) = &root.body else { return Err(cut()) };
        let block_bytes = le32(root, 8).ok_or_else(cut)? as usize;
        let root = IndexNode::parse(root.get(HEAD_IN_ROOT..).ok_or_else(cut)?);
        let mut damage = root.damage.map(|what| damaged(file.record, what));
        let mut below = root.below;
        each(root.entries)?;
        let blocks = file.find(kinds::INDEX_ALLOCATION, INDEX).map(|found| &found.body);
        let Some(AttributeBody::Outside(blocks)) = blocks else {
            let gone = (!below.is_empty()).then(|| damaged(file.record, "the blocks of its index are gone"));
            return damage.or(gone).map_or(Ok(()), Err);
        };
        if !block_bytes.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(damaged(file.record, "the size of its index's blocks"));
        }
        if blocks.is_torn {
            damage.get_or_insert_with(|| damaged(file.record, TORN));
        }
        let bitmap = file.find(kinds::BITMAP, INDEX).ok_or_else(cut);
        let bitmap = bitmap.and_then(|bitmap| self.volume.whole(file.record, bitmap, BITMAP_BYTES_MAX));
        let bitmap = bitmap.unwrap_or_else(|error| {
            damage.get_or_insert(error);
            Vec::new()
        });
        let count = (blocks.size / block_bytes as u64).min(bitmap.len() as u64 * 8);
        let mut read = BTreeSet::new();
        for number in 0..count {
            let is_used = bitmap.get((number / 8) as usize).is_some_and(|bits| bits >> (number % 8) & 1 != 0);
            if !is_used {
                continue;
            }
            match self.index_block(file.record, blocks, number, block_bytes) {
                Ok((own, node)) => {
                    read.insert(own);
                    below.extend(node.below);
                    damage = damage.or(node.damage.map(|what| damaged(file.record, what)));
                    each(node.entries)?;
                }
                Err(error) => _ = damage.get_or_insert(error),
            }
        }
        // Blocks are numbered by clusters, or by sectors where they are smaller.
        let is_small = (block_bytes as u64) < self.volume.cluster_bytes;
        let unit_bytes = if is_small { 512 } else { self.volume.cluster_bytes };
        while let Some(wanted) = below.pop() {
            if !read.insert(wanted) {
                continue;
            }
            let what =
                "entries of its index lead to a block that is not there, or that its bitmap calls free";
            damage.get_or_insert_with(|| damaged(file.record, what));
            let number = wanted.saturating_mul(unit_bytes) / block_bytes as u64;
            if let Ok((own, node)) = self.index_block(file.record, blocks, number, block_bytes)
                && own == wanted
            {
                below.extend(node.below);
                each(node.entries)?;
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// A block of a directory's index, and the number that it says it has.
    fn index_block(
        &self,
        record: u64,
        blocks: &Outside,
        number: u64,
        block_bytes: usize,
    ) -> Result<(u64, IndexNode), Error> {
        const NUMBER_AT: usize = 16;
        const HEAD_IN_BLOCK: usize = 24;
        let at = number.saturating_mul(block_bytes as u64);
        if at.saturating_add(block_bytes as u64) > blocks.size {
            return Err(damaged(record, "its index ends before one of its blocks"));
        }
        let mut block = vec![0; block_bytes];
        self.volume.read_outside(record, blocks, at, &mut block)?;
        mend(&mut block, BLOCK).map_err(|what| damaged(record, what))?;
        let cut = || damaged(record, "its index is cut off");
        let own = le64(&block, NUMBER_AT).ok_or_else(cut)?;
        Ok((own, IndexNode::parse(block.get(HEAD_IN_BLOCK..).ok_or_else(cut)?)))
    }
}
