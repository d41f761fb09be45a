//! Trees: nodes of keys and pointers, leaves of keys and items.

use std::ops::RangeInclusive;

use crate::btrfs::checksum::BYTES_MAX;
use crate::btrfs::{Btrfs, logical};
use crate::bytes::{le32, le64, u8_at, uuid_at};
use crate::error::Error;

/// Of every block of a tree.
const HEADER_BYTES: usize = 101;
pub const KEY_BYTES: usize = 17;
const POINTER_BYTES: usize = KEY_BYTES + 16;
const ITEM_BYTES: usize = KEY_BYTES + 8;

/// Levels are 0 to 7.
const LEVELS: u8 = 8;

/// The key of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemKey {
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
}

impl ItemKey {
    pub const fn new(object: u64, kind: u8, offset: u64) -> Self {
        Self { object, kind, offset }
    }

    pub fn decode(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self::new(le64(bytes, at)?, u8_at(bytes, at + 8)?, le64(bytes, at + 9)?))
    }

    /// The last key before it; `None` for the first.
    pub fn before(self) -> Option<Self> {
        let Self { object, kind, offset } = self;
        let kind_before = || kind.checked_sub(1).map(|kind| Self::new(object, kind, u64::MAX));
        let object_before = || object.checked_sub(1).map(|object| Self::new(object, u8::MAX, u64::MAX));
        let here = offset.checked_sub(1).map(|offset| Self::new(object, kind, offset));
        here.or_else(kind_before).or_else(object_before)
    }
}

/// Where a tree starts, and what its root says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRoot {
    pub logical: u64,
    pub level: u8,
    pub generation: u64,
}

impl TreeRoot {
    /// As the item of a subvolume or another tree says.
    pub fn of_root_item(item: &[u8]) -> Option<Self> {
        Some(Self { generation: le64(item, 160)?, logical: le64(item, 176)?, level: u8_at(item, 238)? })
    }
}

/// Takes items in the order of their keys.
pub type EachItem<'a> = dyn FnMut(ItemKey, &[u8]) -> Result<(), Error> + 'a;

fn damaged(logical: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "btrfs tree block", at: logical, what }
}

/// Calls `each` for every item with a key in the range, in order.
pub fn items(
    btrfs: &Btrfs,
    tree: TreeRoot,
    range: RangeInclusive<ItemKey>,
    each: &mut EachItem<'_>,
) -> Result<(), Error> {
    if tree.level >= LEVELS {
        return Err(damaged(tree.logical, "an impossible level"));
    }
    walk(btrfs, tree, &range, None, each)
}

/// Keys only grow from one block to the next, and a block starts with the key that its parent has
/// for it: so no block is visited twice.
fn walk(
    btrfs: &Btrfs,
    block: TreeRoot,
    range: &RangeInclusive<ItemKey>,
    first: Option<ItemKey>,
    each: &mut EachItem<'_>,
) -> Result<(), Error> {
    let bytes = read(btrfs, block)?;
    let node = Node::check(&bytes, block, first)?;
    for ix in 0..node.count {
        let key = node.key(ix)?;
        if key > *range.end() {
            break;
        }
        if block.level == 0 {
            if key >= *range.start() {
                each(key, node.item(ix)?)?;
            }
            continue;
        }
        // All of the child lies before the range if the next one starts where the range does or
        // before.
        if ix + 1 < node.count && node.key(ix + 1)? <= *range.start() {
            continue;
        }
        walk(btrfs, node.child(ix)?, range, Some(key), each)?;
    }
    Ok(())
}

/// The last item with a key up to `key`.
pub fn floor(btrfs: &Btrfs, tree: TreeRoot, key: ItemKey) -> Result<Option<(ItemKey, Vec<u8>)>, Error> {
    let (mut block, mut first) = (tree, None);
    if tree.level >= LEVELS {
        return Err(damaged(tree.logical, "an impossible level"));
    }
    loop {
        let bytes = read(btrfs, block)?;
        let node = Node::check(&bytes, block, first)?;
        let mut last = None;
        for ix in 0..node.count {
            if node.key(ix)? > key {
                break;
            }
            last = Some(ix);
        }
        let Some(ix) = last else { return Ok(None) };
        if block.level == 0 {
            return Ok(Some((node.key(ix)?, node.item(ix)?.to_vec())));
        }
        first = Some(node.key(ix)?);
        block = node.child(ix)?;
    }
}

/// Makes sure that the blocks from the root of a tree to its first leaf have the same copies on all
/// devices that are up to date. Where each half of a mirror was written without the other, both may
/// have come as far and have put different blocks to the same places. What cannot be read is left
/// to what needs it.
///
/// # Errors
/// [`Error::DevicesDisagree`].
pub fn check_copies(btrfs: &Btrfs, tree: TreeRoot) -> Result<(), Error> {
    let mut block = tree;
    loop {
        let check = |bytes: &[u8]| is_block(btrfs, block, bytes);
        let len = btrfs.superblock.node_bytes;
        if let Ok(Some((one, other))) = logical::differing_copies(btrfs, block.logical, len, &check) {
            return Err(Error::DevicesDisagree { one, other, generation: block.generation });
        }
        let Ok(bytes) = read(btrfs, block) else { return Ok(()) };
        match Node::check(&bytes, block, None).and_then(|node| node.child(0)) {
            Ok(child) if block.level > 0 => block = child,
            _ => return Ok(()),
        }
    }
}

/// The block, from the first place or parity that gives what it must be.
fn read(btrfs: &Btrfs, block: TreeRoot) -> Result<Vec<u8>, Error> {
    let check = |bytes: &[u8]| is_block(btrfs, block, bytes);
    logical::block(btrfs, block.logical, btrfs.superblock.node_bytes, &check)
}

/// Whether these are the bytes of that block.
fn is_block(btrfs: &Btrfs, block: TreeRoot, bytes: &[u8]) -> Result<(), Error> {
    let expected = (Some(block.logical), Some(block.generation), Some(block.level));
    if !btrfs.superblock.checksum.is_right(&bytes[BYTES_MAX..], bytes) {
        return Err(damaged(block.logical, "its checksum is wrong"));
    }
    if (le64(bytes, 48), le64(bytes, 80), u8_at(bytes, 100)) != expected {
        return Err(damaged(block.logical, "it is another block, or an older one"));
    }
    match uuid_at(bytes, BYTES_MAX).is_some_and(|uuid| btrfs.devices.is_block_uuid(uuid)) {
        true => Ok(()),
        false => Err(damaged(block.logical, "it is of another file system")),
    }
}

/// A block of a tree with its bytes checked as far as they are used.
struct Node<'a> {
    bytes: &'a [u8],
    block: TreeRoot,
    count: usize,
}

impl<'a> Node<'a> {
    fn check(bytes: &'a [u8], block: TreeRoot, first: Option<ItemKey>) -> Result<Self, Error> {
        let entry_bytes = if block.level == 0 { ITEM_BYTES } else { POINTER_BYTES };
        let count = le32(bytes, 96).unwrap_or(0) as usize;
        if count > (bytes.len() - HEADER_BYTES) / entry_bytes {
            return Err(damaged(block.logical, "more entries than it has space for"));
        }
        let node = Self { bytes, block, count };
        // Only the root of a tree may be empty.
        if first.is_some_and(|first| count == 0 || node.key(0).ok() != Some(first)) {
            return Err(damaged(block.logical, "it does not start with the key that leads to it"));
        }
        for ix in 1..count {
            if node.key(ix - 1)? >= node.key(ix)? {
                return Err(damaged(block.logical, "its keys are not in order"));
            }
        }
        Ok(node)
    }

    fn at(&self, ix: usize) -> usize {
        HEADER_BYTES + ix * if self.block.level == 0 { ITEM_BYTES } else { POINTER_BYTES }
    }

    fn key(&self, ix: usize) -> Result<ItemKey, Error> {
        ItemKey::decode(self.bytes, self.at(ix)).ok_or_else(|| damaged(self.block.logical, "it is too short"))
    }

    fn item(&self, ix: usize) -> Result<&'a [u8], Error> {
        let at = self.at(ix) + KEY_BYTES;
        let place = le32(self.bytes, at).zip(le32(self.bytes, at + 4));
        let item = place.and_then(|(offset, len)| {
            self.bytes.get(HEADER_BYTES.checked_add(offset as usize)?..)?.get(..len as usize)
        });
        item.ok_or_else(|| damaged(self.block.logical, "an item that ends beyond it"))
    }

    fn child(&self, ix: usize) -> Result<TreeRoot, Error> {
        let at = self.at(ix) + KEY_BYTES;
        let place = le64(self.bytes, at).zip(le64(self.bytes, at + 8));
        let (logical, generation) = place.ok_or_else(|| damaged(self.block.logical, "it is too short"))?;
        Ok(TreeRoot { logical, level: self.block.level.saturating_sub(1), generation })
    }
}
