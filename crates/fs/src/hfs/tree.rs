//! The trees of a volume: the catalog, the extents that files have no place for, and the extended
//! attributes.
//!
//! Whatever is looked for is all of one number: the entries of a directory, the extents of a file,
//! its attributes. Names are never compared in order, so that it does not matter by which rules a
//! tree is sorted; that the numbers are in order leads to the leaves, and what a leaf has is
//! compared with the number itself. Where an index cannot be read, all leaves are looked at that
//! the tree says are in use.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use crate::bytes::{be16, be32};
use crate::error::Error;
use crate::hfs::fork::HfsForkMap;
use crate::hfs::node::{HfsNode, HfsRecord, kinds};
use crate::hfs::volume::HfsVolume;

/// Nodes have 512 bytes to 32 KiB.
const NODE_BYTES_MIN: usize = 512;
const NODE_BYTES_MAX: usize = 32 << 10;
/// More levels than any tree of 32 bits has.
const DEPTH_MAX: u16 = 32;

/// Which of the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HfsTreeKind {
    Catalog,
    Extents,
    Attributes,
}

impl HfsTreeKind {
    fn node_name(self) -> &'static str {
        match self {
            Self::Catalog => "HFS+ catalog node",
            Self::Extents => "HFS+ extents node",
            Self::Attributes => "HFS+ attributes node",
        }
    }

    /// Where in a key the number is.
    fn number_at(self) -> usize {
        match self {
            Self::Catalog => 0,
            Self::Extents | Self::Attributes => 2,
        }
    }
}

/// Where a record is in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HfsRecordPlace {
    node: u32,
    number: u16,
}

/// The numbers that a leaf has.
#[derive(Debug, Clone, Copy)]
struct LeafSpan {
    node: u32,
    first: u32,
    last: u32,
}

/// A tree.
pub struct HfsTree {
    kind: HfsTreeKind,
    map: HfsForkMap,
    node_bytes: usize,
    nodes: u32,
    root: u32,
    depth: u16,
    /// What keys of an index take, if they all take the same.
    index_key_bytes: Option<usize>,
    /// The node that was read last.
    last: RefCell<Option<(u32, Rc<HfsNode>)>>,
    /// All leaves, once an index could not be read.
    scanned: OnceCell<Vec<LeafSpan>>,
}

/// Takes records, and says where they are.
pub type EachRecord<'a> = dyn FnMut(HfsRecordPlace, HfsRecord<'_>) -> Result<(), Error> + 'a;

impl HfsTree {
    /// Reads the header, which is the first node.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn open(volume: &HfsVolume, kind: HfsTreeKind, map: HfsForkMap) -> Result<Self, Error> {
        const VARIABLE_INDEX_KEYS: u32 = 4;
        const HEAD_BYTES: usize = 14 + 106;
        let damaged = |what| Error::Damaged { structure: kind.node_name(), at: 0, what };
        let mut head = [0; HEAD_BYTES];
        map.read(volume, 0, &mut head)?;
        if head[8] != kinds::HEADER {
            return Err(damaged("it is no header"));
        }
        let record = &head[14..];
        let cut = || damaged("it is too short");
        let node_bytes = usize::from(be16(record, 18).ok_or_else(cut)?);
        if !node_bytes.is_power_of_two() || !(NODE_BYTES_MIN..=NODE_BYTES_MAX).contains(&node_bytes) {
            return Err(damaged("an impossible size of nodes"));
        }
        let depth = be16(record, 0).ok_or_else(cut)?;
        if depth > DEPTH_MAX {
            return Err(damaged("an impossible depth"));
        }
        let key_bytes = usize::from(be16(record, 20).ok_or_else(cut)?);
        let is_variable = be32(record, 38).ok_or_else(cut)? & VARIABLE_INDEX_KEYS != 0;
        let fitting = map.logical_bytes / node_bytes as u64;
        Ok(Self {
            kind,
            node_bytes,
            nodes: u32::try_from(fitting).unwrap_or(u32::MAX).min(be32(record, 22).ok_or_else(cut)?),
            root: be32(record, 2).ok_or_else(cut)?,
            depth,
            index_key_bytes: (!is_variable).then_some(key_bytes),
            map,
            last: RefCell::default(),
            scanned: OnceCell::new(),
        })
    }

    /// What is wrong with a node.
    pub fn damaged(&self, node: u32, what: &'static str) -> Error {
        Error::Damaged { structure: self.kind.node_name(), at: node.into(), what }
    }

    fn node(&self, volume: &HfsVolume, number: u32) -> Result<Rc<HfsNode>, Error> {
        if let Some((last, node)) = &*self.last.borrow()
            && *last == number
        {
            return Ok(node.clone());
        }
        if number >= self.nodes {
            return Err(self.damaged(number, "the tree has no such node"));
        }
        let mut bytes = vec![0; self.node_bytes];
        self.map.read(volume, u64::from(number) * self.node_bytes as u64, &mut bytes)?;
        let node = HfsNode::new(bytes).map_err(|what| self.damaged(number, what))?;
        let node = Rc::new(node);
        *self.last.borrow_mut() = Some((number, node.clone()));
        Ok(node)
    }

    fn leaf(&self, volume: &HfsVolume, number: u32) -> Result<Rc<HfsNode>, Error> {
        let node = self.node(volume, number)?;
        match node.kind == kinds::LEAF && node.height == 1 {
            true => Ok(node),
            false => Err(self.damaged(number, "it is no leaf")),
        }
    }

    fn number_of(&self, record: HfsRecord<'_>) -> Option<u32> {
        be32(record.key, self.kind.number_at())
    }

    /// Hands on the record that is at a place, if there is one.
    pub fn at<T>(
        &self,
        volume: &HfsVolume,
        place: HfsRecordPlace,
        take: impl FnOnce(HfsRecord<'_>) -> Option<T>,
    ) -> Option<T> {
        let node = self.leaf(volume, place.node).ok()?;
        (usize::from(place.number) < node.records).then_some(())?;
        take(node.record(place.number.into(), None)?)
    }

    /// Calls `each` for all records of a number, in their order. What is damaged does not keep it
    /// from what follows, and is the error at the end.
    ///
    /// # Errors
    /// Records may be missing; or what `each` says, which ends it.
    pub fn visit(&self, volume: &HfsVolume, number: u32, each: &mut EachRecord<'_>) -> Result<(), Error> {
        let (leaves, mut damage) = self.leaves(volume, number);
        for at in leaves {
            let leaf = match self.leaf(volume, at) {
                Ok(leaf) => leaf,
                Err(error) => {
                    damage.get_or_insert(error);
                    continue;
                }
            };
            let mut last = 0;
            for ix in 0..leaf.records {
                let record = leaf.record(ix, None);
                match record.and_then(|record| Some((self.number_of(record)?, record))) {
                    Some((found, record)) => {
                        // A number that is wrong leads a record astray.
                        if found < last {
                            damage.get_or_insert_with(|| self.damaged(at, "its records are not in order"));
                        }
                        last = found;
                        if found == number {
                            each(HfsRecordPlace { node: at, number: ix as u16 }, record)?;
                        }
                    }
                    None => _ = damage.get_or_insert_with(|| self.damaged(at, "a record of it")),
                }
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// The leaves that may have records of a number, and why these may not be all.
    fn leaves(&self, volume: &HfsVolume, number: u32) -> (Vec<u32>, Option<Error>) {
        if self.depth == 0 {
            return (Vec::new(), None);
        }
        match self.by_index(volume, number) {
            Ok(leaves) => (leaves, None),
            Err(error) => {
                let scanned = self.scanned.get_or_init(|| self.scan(volume));
                let holds = |span: &&LeafSpan| span.first <= number && number <= span.last;
                (scanned.iter().filter(holds).map(|span| span.node).collect(), Some(error))
            }
        }
    }

    /// By the index, level by level.
    fn by_index(&self, volume: &HfsVolume, number: u32) -> Result<Vec<u32>, Error> {
        let mut nodes = vec![self.root];
        // No node is in a tree twice.
        let mut left = self.nodes;
        for height in (2..=self.depth).rev() {
            let mut below = Vec::new();
            for at in nodes {
                left = left.checked_sub(1).ok_or_else(|| self.damaged(at, "it leads round in a circle"))?;
                let node = self.node(volume, at)?;
                if node.kind != kinds::INDEX || u16::from(node.height) != height {
                    return Err(self.damaged(at, "it is no index of its level"));
                }
                self.children(at, &node, number, &mut below)?;
            }
            if below.len() as u64 > u64::from(left) {
                return Err(self.damaged(self.root, "its index leads to more nodes than there are"));
            }
            nodes = below;
        }
        Ok(nodes)
    }

    /// The children of an index that may have records of a number: the last that begins before it,
    /// and those that begin with it.
    fn children(&self, at: u32, node: &HfsNode, number: u32, below: &mut Vec<u32>) -> Result<(), Error> {
        let mut before = None;
        let mut last = 0;
        for ix in 0..node.records {
            let record = node.record(ix, self.index_key_bytes);
            let found = record.and_then(|record| Some((self.number_of(record)?, be32(record.data, 0)?)));
            let (first, child) = found.ok_or_else(|| self.damaged(at, "a record of it"))?;
            if first < last {
                return Err(self.damaged(at, "its records are not in order"));
            }
            last = first;
            match first.cmp(&number) {
                std::cmp::Ordering::Less => before = Some(child),
                std::cmp::Ordering::Equal => below.extend(before.take().into_iter().chain([child])),
                std::cmp::Ordering::Greater => break,
            }
        }
        below.extend(before);
        Ok(())
    }

    /// All leaves that the tree's bitmap says are in use: what is left in others is of files that
    /// are gone.
    fn scan(&self, volume: &HfsVolume) -> Vec<LeafSpan> {
        let mut spans = Vec::new();
        let mut at = 0;
        let mut map_node = 0;
        // The bitmap begins in the third record of the header, and goes on in nodes of its own.
        for _ in 0..self.nodes {
            let Ok(node) = self.node(volume, map_node) else { break };
            let record = match (map_node, node.kind) {
                (0, kinds::HEADER) => node.bytes_of(2),
                (1.., kinds::MAP) => node.bytes_of(0),
                _ => None,
            };
            for byte in record.unwrap_or_default() {
                for bit in (0..8).rev() {
                    if byte >> bit & 1 != 0 && at < self.nodes {
                        spans.extend(self.span(volume, at));
                    }
                    at = at.saturating_add(1);
                }
            }
            map_node = node.next;
            if map_node == 0 || record.is_none() || at >= self.nodes {
                break;
            }
        }
        spans.sort_by_key(|span: &LeafSpan| (span.first, span.last, span.node));
        spans
    }

    /// What numbers a leaf has.
    fn span(&self, volume: &HfsVolume, at: u32) -> Option<LeafSpan> {
        let node = self.leaf(volume, at).ok()?;
        let numbers = || (0..node.records).filter_map(|ix| self.number_of(node.record(ix, None)?));
        Some(LeafSpan { node: at, first: numbers().min()?, last: numbers().max()? })
    }
}
