//! The arrays of cache metadata: a tree from numbers to blocks, and these full of values.
//! docs/formats.md §15.

use std::collections::VecDeque;

use super::{BLOCK_BYTES, MetadataError, Walk, check};
use crate::bytes::{array, le32};

pub(crate) const SALT: u32 = 595_846_735;
const HEADER_BYTES: usize = 24;

/// A walk over the values of an array, which have `V` bytes each, with their indices; used like
/// [`Walk`].
#[derive(Clone, Debug)]
pub struct ArrayWalk<const V: usize> {
    tree: Walk<8>,
    blocks: u64,
    len: u64,
    /// Blocks of values that the tree has named, with the index of their first value.
    values: VecDeque<(u64, u64)>,
    /// How many values came without a gap.
    known: u64,
}

impl<const V: usize> ArrayWalk<V> {
    const PER_BLOCK: u64 = ((BLOCK_BYTES - HEADER_BYTES) / V) as u64;

    /// The first `len` values of the array under `root`, in metadata of so many blocks.
    #[must_use]
    pub fn new(root: u64, len: u64, blocks: u64) -> ArrayWalk<V> {
        let last = len.saturating_sub(1) / Self::PER_BLOCK;
        ArrayWalk { tree: Walk::new(root, 0..=last, blocks), blocks, len, values: VecDeque::new(), known: 0 }
    }

    /// The block to read next; `None` at the end.
    #[must_use]
    pub fn wants(&self) -> Option<u64> {
        self.values.front().map(|(_, block)| *block).or_else(|| self.tree.wants())
    }

    /// Takes the wanted block; the values that were in it. After an error the walk goes on behind
    /// the block.
    pub fn give(&mut self, bytes: &[u8]) -> Result<Vec<(u64, [u8; V])>, MetadataError> {
        let Some((first, block)) = self.values.pop_front() else { return self.give_node(bytes) };
        let bytes = check(bytes, block, 16, SALT)?;
        let (max, count, value_bytes) = (le32(bytes, 4), le32(bytes, 8), le32(bytes, 12));
        let fits = u64::from(count) <= Self::PER_BLOCK && u64::from(max) == Self::PER_BLOCK;
        if !fits || value_bytes as usize != V {
            return Err(MetadataError::Counts { block });
        }
        if first == self.known {
            self.known += u64::from(count);
        }
        let values = (0..count as usize).map(|i| (first + i as u64, array(bytes, HEADER_BYTES + V * i)));
        Ok(values.take_while(|(index, _)| *index < self.len).collect())
    }

    /// Whether every value came. One that did not may have been anything.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.known >= self.len
    }

    fn give_node(&mut self, bytes: &[u8]) -> Result<Vec<(u64, [u8; V])>, MetadataError> {
        let node = self.tree.wants().ok_or(MetadataError::NotWanted)?;
        for (index, block) in self.tree.give(bytes)? {
            let child = u64::from_le_bytes(block);
            if child >= self.blocks {
                return Err(MetadataError::Pointer { block: node, child, blocks: self.blocks });
            }
            self.values.push_back((index * Self::PER_BLOCK, child));
        }
        Ok(Vec::new())
    }
}
