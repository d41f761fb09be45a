//! The B-trees of thin and cache metadata: docs/formats.md §14.

use std::ops::RangeInclusive;

use super::{BLOCK_BYTES, MetadataError, check};
use crate::bytes::{array, le32, le64};

pub(crate) const SALT: u32 = 121_107;
const HEADER_BYTES: usize = 32;
const INTERNAL: u32 = 1;
const LEAF: u32 = 2;
/// A tree of the smallest fan-out that splitting leaves (a third of 126) over 2^64 keys is not as
/// deep.
const MAX_DEPTH: usize = 16;

/// A walk over the entries of a tree whose values have `V` bytes, by ascending key.
///
/// ```text
/// while let Some(block) = walk.wants() {
///     for (key, value) in walk.give(&read(block)?)? { ... }
/// }
/// ```
///
/// Keys must ascend, and a child's keys must lie in the range that its parent gives it, so each
/// entry comes once and blocks that point back to one another end the walk with an error.
#[derive(Clone, Debug)]
pub struct Walk<const V: usize> {
    keys: RangeInclusive<u64>,
    blocks: u64,
    /// The next one last.
    pending: Vec<Pending>,
}

#[derive(Clone, Debug)]
struct Pending {
    block: u64,
    keys: RangeInclusive<u64>,
    depth: usize,
}

impl<const V: usize> Walk<V> {
    /// The entries with these keys of the tree under `root`, in metadata of so many blocks.
    #[must_use]
    pub fn new(root: u64, keys: RangeInclusive<u64>, blocks: u64) -> Walk<V> {
        let root = Pending { block: root, keys: 0..=u64::MAX, depth: 0 };
        Walk { keys, blocks, pending: vec![root] }
    }

    /// The block to read next; `None` at the end.
    #[must_use]
    pub fn wants(&self) -> Option<u64> {
        self.pending.last().map(|pending| pending.block)
    }

    /// Takes the wanted block; the entries that were in it. After an error the walk goes on behind
    /// the block.
    pub fn give(&mut self, bytes: &[u8]) -> Result<Vec<(u64, [u8; V])>, MetadataError> {
        let Pending { block, keys: promised, depth } = self.pending.pop().ok_or(MetadataError::NotWanted)?;
        let bytes = check(bytes, block, 8, SALT)?;
        let node = Node::decode(bytes, block)?;
        let last = node.key(node.entries.saturating_sub(1));
        let inside = node.entries == 0 || promised.contains(&node.key(0)) && promised.contains(&last);
        if !inside || (1..node.entries).any(|i| node.key(i - 1) >= node.key(i)) {
            return Err(MetadataError::Keys { block });
        }
        if node.is_leaf {
            if node.value_bytes != V {
                return Err(MetadataError::Counts { block });
            }
            let wanted = (0..node.entries).filter(|&i| self.keys.contains(&node.key(i)));
            return Ok(wanted.map(|i| (node.key(i), array(bytes, node.value_at(i)))).collect());
        }
        if depth == MAX_DEPTH {
            return Err(MetadataError::Depth { block });
        }
        for i in (0..node.entries).rev() {
            let end = if i + 1 < node.entries { node.key(i + 1) - 1 } else { *promised.end() };
            let keys = node.key(i)..=end;
            if keys.start() > self.keys.end() || keys.end() < self.keys.start() {
                continue;
            }
            let child = le64(bytes, node.value_at(i));
            if child >= self.blocks {
                return Err(MetadataError::Pointer { block, child, blocks: self.blocks });
            }
            self.pending.push(Pending { block: child, keys, depth: depth + 1 });
        }
        Ok(Vec::new())
    }
}

/// A node whose counts fit into its block.
struct Node<'a> {
    bytes: &'a [u8; BLOCK_BYTES],
    is_leaf: bool,
    entries: usize,
    max_entries: usize,
    value_bytes: usize,
}

impl Node<'_> {
    fn decode(bytes: &[u8; BLOCK_BYTES], block: u64) -> Result<Node<'_>, MetadataError> {
        let count = |at| u64::from(le32(bytes, at));
        let (entries, max_entries, value_bytes) = (count(16), count(20), count(24));
        let kind = le32(bytes, 4);
        let fits = entries <= max_entries
            && max_entries.saturating_mul(8 + value_bytes) <= (BLOCK_BYTES - HEADER_BYTES) as u64
            && value_bytes <= BLOCK_BYTES as u64;
        // Only a tree of nothing has an empty node: an empty leaf.
        let internal = kind == INTERNAL && value_bytes == 8 && entries > 0;
        if !fits || !(internal || kind == LEAF) {
            return Err(MetadataError::Counts { block });
        }
        Ok(Node {
            bytes,
            is_leaf: kind == LEAF,
            entries: entries as usize,
            max_entries: max_entries as usize,
            value_bytes: value_bytes as usize,
        })
    }

    fn key(&self, index: usize) -> u64 {
        if self.entries == 0 { 0 } else { le64(self.bytes, HEADER_BYTES + 8 * index) }
    }

    fn value_at(&self, index: usize) -> usize {
        HEADER_BYTES + 8 * self.max_entries + self.value_bytes * index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{put_le32, put_le64};
    use crate::dm::reseal;

    /// A node of 8-byte values.
    fn node(number: u64, kind: u32, entries: &[(u64, u64)]) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        put_le32(&mut block, 4, kind);
        put_le64(&mut block, 8, number);
        put_le32(&mut block, 16, entries.len() as u32);
        put_le32(&mut block, 20, 252);
        put_le32(&mut block, 24, 8);
        for (i, (key, value)) in entries.iter().enumerate() {
            put_le64(&mut block, 32 + 8 * i, *key);
            put_le64(&mut block, 32 + 8 * (252 + i), *value);
        }
        reseal(&mut block, SALT);
        block
    }

    type Entries = Vec<(u64, u64)>;

    /// Walks from block 0; the blocks read, too.
    fn walk(
        blocks: &[[u8; BLOCK_BYTES]],
        keys: RangeInclusive<u64>,
    ) -> Result<(Entries, Vec<u64>), MetadataError> {
        let mut walk = Walk::<8>::new(0, keys, blocks.len() as u64);
        let (mut entries, mut read) = (Vec::new(), Vec::new());
        while let Some(block) = walk.wants() {
            read.push(block);
            let found = walk.give(&blocks[block as usize])?;
            entries.extend(found.into_iter().map(|(key, value)| (key, u64::from_le_bytes(value))));
        }
        Ok((entries, read))
    }

    fn tree() -> Vec<[u8; BLOCK_BYTES]> {
        vec![
            node(0, INTERNAL, &[(10, 1), (20, 2)]),
            node(1, LEAF, &[(10, 100), (15, 150)]),
            node(2, INTERNAL, &[(20, 3), (30, 4)]),
            node(3, LEAF, &[(21, 210)]),
            node(4, LEAF, &[(30, 300), (u64::MAX, 1)]),
        ]
    }

    #[test]
    fn in_order_and_no_more_than_asked_for() {
        let all = vec![(10, 100), (15, 150), (21, 210), (30, 300), (u64::MAX, 1)];
        assert_eq!(walk(&tree(), 0..=u64::MAX), Ok((all, vec![0, 1, 2, 3, 4])));
        assert_eq!(walk(&tree(), 15..=21), Ok((vec![(15, 150), (21, 210)], vec![0, 1, 2, 3])));
        assert_eq!(walk(&tree(), 30..=30), Ok((vec![(30, 300)], vec![0, 2, 4])));
        assert_eq!(walk(&tree(), 0..=9), Ok((vec![], vec![0])));
        assert_eq!(walk(&[node(0, LEAF, &[])], 0..=u64::MAX), Ok((vec![], vec![0])));
    }

    #[test]
    fn hostile_trees() {
        let with = |block: usize, bytes: [u8; BLOCK_BYTES]| {
            let mut tree = tree();
            tree[block] = bytes;
            walk(&tree, 0..=u64::MAX)
        };
        let keys = |block| Err(MetadataError::Keys { block });
        let counts = |block| Err(MetadataError::Counts { block });
        assert_eq!(with(0, node(0, INTERNAL, &[(10, 1), (10, 2)])), keys(0));
        assert_eq!(with(0, node(0, INTERNAL, &[(10, 1), (20, 1)])), keys(1), "one child twice");
        assert_eq!(with(3, node(3, LEAF, &[(30, 210)])), keys(3), "the next leaf's key");
        assert_eq!(with(3, node(3, INTERNAL, &[])), counts(3));
        assert_eq!(with(3, node(3, 3, &[(21, 1)])), counts(3));
        let pointer = MetadataError::Pointer { block: 2, child: 5, blocks: 5 };
        assert_eq!(with(2, node(2, INTERNAL, &[(20, 5)])), Err(pointer));
        assert_eq!(with(1, node(9, LEAF, &[])), Err(MetadataError::WrongBlock { block: 1, stored: 9 }));
        let mut torn = tree()[1];
        torn[4000] ^= 1;
        assert!(matches!(with(1, torn), Err(MetadataError::Checksum { block: 1, .. })));
        for (at, value) in [(16, 253), (20, 255), (20, u32::MAX), (24, 9), (24, u32::MAX)] {
            let mut bad = tree()[1];
            put_le32(&mut bad, at, value);
            reseal(&mut bad, SALT);
            assert_eq!(with(1, bad), counts(1), "{at} {value}");
        }
        // A node that is its own first child.
        assert_eq!(walk(&[node(0, INTERNAL, &[(0, 0)])], 0..=0), Err(MetadataError::Depth { block: 0 }));
        assert_eq!(
            Walk::<8>::new(0, 0..=0, 1).give(&[0; 10]),
            Err(MetadataError::Truncated { block: 0, got: 10 })
        );
    }
}
