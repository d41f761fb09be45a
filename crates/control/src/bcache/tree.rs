//! The tree of a cache device: every key that counts, from the root to the leaves. Those of the
//! journal are laid over them.
//!
//! Invariant: the nodes of each level have all keys there are, none has what is another's, and no
//! bucket is a node twice. So a subtree that is missing is an error and never data that is old.

use wattle_format::bcache::{
    BcacheExtents, BcacheJournalEntry, BcacheKey, BcacheNode, BcachePointer, CacheLayout, Generations,
    NODE_KEY_END,
};

use super::fault::{CacheFault, CachePart};
use super::set::{RUNS_MAX, ReadCache};

/// A placeholder for data that a reader was about to bring into the cache points to this device.
const NO_DEVICE: u16 = 0xfff;
/// No device is larger, sectors: a byte of it has a number.
const SECTORS_MAX: u64 = 1 << 54;
/// More levels than buckets could fill.
const LEVELS_MAX: u16 = 32;

/// What is found on the way.
pub(super) struct CacheTree<'a> {
    layout: &'a CacheLayout,
    read: ReadCache<'a>,
    pub generations: Generations,
    /// What the cache has, by the leaves.
    pub found: BcacheExtents,
    /// Whether what the backing devices have too was more than is kept track of, and is left to
    /// them.
    is_dirty_only: bool,
    /// Buckets that were nodes, a bit each.
    seen: Vec<u64>,
}

/// A node that is due: where it is, and which keys it has: those behind `after` up to `end`.
struct DueNode {
    key: BcacheKey,
    level: u16,
    after: (u32, u64),
    end: (u32, u64),
}

impl<'a> CacheTree<'a> {
    pub fn new(layout: &'a CacheLayout, read: ReadCache<'a>, generations: Generations) -> Self {
        let seen = vec![0; layout.buckets.div_ceil(64) as usize];
        Self { layout, read, generations, found: BcacheExtents::default(), is_dirty_only: false, seen }
    }

    /// Notes that a bucket is a node; whether it was none before.
    fn is_new(&mut self, bucket: u64) -> bool {
        let (word, bit) = ((bucket / 64) as usize, 1 << (bucket % 64));
        let was = self.seen[word] & bit;
        self.seen[word] |= bit;
        was == 0
    }

    /// Reads all of it. What is due is at most the children of one node of each level.
    pub fn walk(&mut self, newest: &BcacheJournalEntry) -> Result<(), CacheFault> {
        if newest.root_level > LEVELS_MAX {
            let (part, what) = (CachePart::Entry(newest.seq), "tells of a tree that is too high");
            return Err(CacheFault::Impossible { part, at_bytes: 0, what });
        }
        self.raise(&newest.root);
        let root = DueNode { key: newest.root, level: newest.root_level, after: (0, 0), end: NODE_KEY_END };
        let mut due = vec![root];
        while let Some(node) = due.pop() {
            let part = CachePart::Node(node.level);
            let at_bytes = node.key.pointer.map_or(0, |pointer| pointer.sector * 512);
            let impossible = |what| CacheFault::Impossible { part, at_bytes, what };
            let bucket = self.layout.bucket_of(&node.key).map_err(impossible)?;
            let pointer = node.key.pointer.ok_or_else(|| impossible("has no pointer"))?;
            if self.generations.is_stale(bucket, pointer.generation) {
                return Err(impossible("is in a bucket that was used again"));
            }
            if node.key.sectors == 0 || !self.is_new(bucket) {
                return Err(impossible("is a node twice, or has no size"));
            }
            let bytes = (self.read)(at_bytes, usize::from(node.key.sectors) * 512)?;
            let damaged = |damage| CacheFault::Damaged { part, at_bytes, damage };
            let sets = BcacheNode::parse(self.layout, pointer, &bytes).map_err(damaged)?;
            let sets: Result<Vec<_>, _> = sets.sets().iter().map(BcacheNode::keys_of).collect();
            let sets = sets.map_err(damaged)?;
            match node.level {
                0 => self.leaf(&node, sets).map_err(impossible)?,
                _ => due.extend(self.children(&node, sets).map_err(impossible)?.into_iter().rev()),
            }
            self.limit()?;
        }
        Ok(())
    }

    /// Takes note of the generation that a pointer knows of its bucket.
    pub fn raise(&mut self, key: &BcacheKey) {
        if let (Ok(bucket), Some(pointer)) = (self.layout.bucket_of(key), key.pointer) {
            self.generations.raise(bucket, pointer.generation);
        }
    }

    /// The nodes below one. Keys of nodes that were freed are there until the node is written anew:
    /// the generation of their buckets has gone on, and a key at the very start says so.
    fn children(
        &mut self,
        node: &DueNode,
        sets: Vec<Vec<(usize, BcacheKey)>>,
    ) -> Result<Vec<DueNode>, &'static str> {
        let keys: Vec<_> = sets.into_iter().flatten().map(|(_, key)| key).collect();
        for key in keys.iter().filter(|key| key.pointer.is_some()) {
            self.layout.bucket_of(key).map_err(|_| "has a pointer that leads nowhere")?;
            self.raise(key);
        }
        let is_live = |key: &BcacheKey| match (self.layout.bucket_of(key), key.pointer) {
            (Ok(bucket), Some(pointer)) => {
                key.position() != (0, 0) && !self.generations.is_stale(bucket, pointer.generation)
            }
            _ => false,
        };
        let mut live: Vec<_> = keys.into_iter().filter(is_live).collect();
        live.sort_by_key(BcacheKey::position);
        let (mut children, mut after) = (Vec::new(), node.after);
        for key in live {
            let end = key.position();
            if end <= after || end > node.end {
                return Err("has two nodes in one place, or one that is not its own");
            }
            children.push(DueNode { key, level: node.level - 1, after, end });
            after = end;
        }
        if after == node.end { Ok(children) } else { Err("lacks its last nodes") }
    }

    /// The keys of a leaf: later sets lie over earlier ones.
    fn leaf(&mut self, node: &DueNode, sets: Vec<Vec<(usize, BcacheKey)>>) -> Result<(), &'static str> {
        let mut found = BcacheExtents::default();
        for set in sets {
            let mut before = (0, 0);
            for (_, key) in set {
                let (start, end) = key.range().ok_or("has a key that begins before its device")?;
                if (key.inode, start) < before {
                    return Err("has keys that overlap in one set");
                }
                before = key.position();
                let starts_within = key.inode > node.after.0 || start >= node.after.1;
                if (key.inode, end) <= node.after || !starts_within || key.position() > node.end {
                    return Err("has a key that is another's");
                }
                found.overwrite(&key, data_of(self.layout, &key)?);
            }
        }
        for run in found.runs() {
            let bucket = run.cache_sector / u64::from(self.layout.bucket_sectors);
            self.generations.raise(bucket, run.generation);
        }
        if self.is_dirty_only {
            found.keep_dirty();
        }
        self.found.extend(&found);
        Ok(())
    }

    /// Lays a key of the journal over what is there.
    pub fn replay(&mut self, key: &BcacheKey) -> Result<(), &'static str> {
        self.raise(key);
        match data_of(self.layout, key)? {
            Some(_) if self.is_dirty_only && !key.is_dirty => self.found.overwrite(key, None),
            data => self.found.overwrite(key, data),
        }
        Ok(())
    }

    /// Bounds what is kept track of.
    pub fn limit(&mut self) -> Result<(), CacheFault> {
        if self.found.len() > RUNS_MAX && !self.is_dirty_only {
            self.is_dirty_only = true;
            self.found.keep_dirty();
        }
        if self.found.len() > RUNS_MAX { Err(CacheFault::TooMany { runs_max: RUNS_MAX }) } else { Ok(()) }
    }
}

/// Where the data of a key is, if the cache has it.
fn data_of(layout: &CacheLayout, key: &BcacheKey) -> Result<Option<BcachePointer>, &'static str> {
    if key.end_sector > SECTORS_MAX {
        return Err("has a key that ends beyond any device");
    }
    let Some(pointer) = key.pointer else { return Ok(None) };
    if pointer.device == NO_DEVICE && !key.is_dirty {
        return Ok(None);
    }
    layout.bucket_of(key).map_err(|_| "has a key whose data is nowhere")?;
    Ok(Some(pointer))
}
