//! What a cache device has of its backing devices.
//!
//! What both have is read from the cache too, as Linux does: Linux calls data written back once the
//! backing device has taken it, and a power cut may take it from that device's own cache again.

use std::collections::BTreeMap;
use std::sync::Arc;

use wattle_format::bcache::{
    AT_BYTES, BackingTable, BcacheJournalEntry, CacheDamage, CacheLayout, CachedRun, GenerationPage,
    Generations, SUPERBLOCK_BYTES,
};

use super::fault::{CacheFault, CachePart, TornEntry};
use super::journal::CacheJournal;
use super::tree::CacheTree;
use crate::members::MemberError;

/// Runs of sectors that are kept track of, of about 100 bytes while they are collected. If there
/// are more, only the dirty ones are.
pub(super) const RUNS_MAX: usize = 8 << 20;

/// What Linux fills of a bucket of generations, if that is larger: 4 MiB. With pages of 64 KiB it
/// fills all.
const GENERATION_BYTES: usize = 4 << 20;

/// Reads bytes of a cache device.
pub(super) type ReadCache<'a> = &'a dyn Fn(u64, usize) -> Result<Vec<u8>, MemberError>;

/// What a cache device has of its backing devices.
#[derive(Debug)]
pub(crate) struct CacheSet {
    /// The start of the id of the set.
    pub set_magic: u64,
    /// The entry of the journal that was passed over because the operator said so.
    pub passed_over: Option<TornEntry>,
    table: BackingTable,
    /// Runs by the numbers of backing devices, in order.
    runs: BTreeMap<u32, Arc<[CachedRun]>>,
}

impl CacheSet {
    /// Reads the metadata of a cache device of this size: the journal, the generations of buckets,
    /// the tree. Nothing of the data is read.
    ///
    /// Takes a byte of memory for each bucket, 16 MiB for the bucket that is read, and what
    /// [`RUNS_MAX`] says. Every node is read once.
    pub fn read(size_bytes: u64, passes_over_torn: bool, read: ReadCache<'_>) -> Result<Self, CacheFault> {
        let layout =
            CacheLayout::parse(&read(AT_BYTES, SUPERBLOCK_BYTES)?).map_err(CacheFault::Superblock)?;
        let needed_bytes = layout.sectors() * 512;
        if needed_bytes > size_bytes {
            return Err(CacheFault::TooSmall { needed_bytes });
        }
        if !layout.is_synced {
            return Err(CacheFault::Unused);
        }
        let journal = CacheJournal::read(&layout, read)?;
        let (newest, torn) = journal.newest()?;
        if let Some(entry) = torn.clone().filter(|_| !passes_over_torn) {
            return Err(CacheFault::Torn(entry));
        }
        let table = read_table(&layout, &newest, read)?;
        let mut tree = CacheTree::new(&layout, read, read_generations(&layout, &newest, read)?);
        tree.walk(&newest)?;
        journal.replay(&newest, |at_bytes, entry| {
            let part = CachePart::Entry(entry.seq);
            for key in entry.keys.iter().filter(|key| key.sectors > 0) {
                let impossible = |what| CacheFault::Impossible { part, at_bytes, what };
                key.range().ok_or_else(|| impossible("has a key that begins before its device"))?;
                tree.replay(key).map_err(impossible)?;
            }
            tree.limit()
        })?;
        // What was in a bucket that was used again had been written back before.
        let bucket = |run: &CachedRun| run.cache_sector / u64::from(layout.bucket_sectors);
        let counts = |run: &CachedRun| !tree.generations.is_stale(bucket(run), run.generation);
        let mut runs: BTreeMap<u32, Vec<CachedRun>> = BTreeMap::new();
        for run in tree.found.runs().filter(counts) {
            let of_device = runs.entry(run.inode).or_default();
            match of_device.last_mut() {
                Some(last) if goes_on(last, &run) => last.end_sector = run.end_sector,
                _ => of_device.push(run),
            }
        }
        let runs = runs.into_iter().map(|(inode, runs)| (inode, runs.into())).collect();
        Ok(Self { set_magic: layout.set_magic, passed_over: torn, table, runs })
    }

    /// What it has of the backing device with this id, in order; `None` if it does not know
    /// that device, or knows it twice.
    pub fn runs_of(&self, uuid: [u8; 16]) -> Option<Arc<[CachedRun]>> {
        let mut inodes = self.table.inodes(uuid);
        let (inode, another) = (inodes.next()?, inodes.next());
        another.is_none().then(|| self.runs.get(&inode).cloned().unwrap_or_default())
    }

    /// What backing devices lack of what it has, bytes.
    pub fn dirty_bytes(&self) -> u64 {
        let dirty = self.runs.values().flat_map(|runs| runs.iter()).filter(|run| run.is_dirty);
        dirty.map(|run| (run.end_sector - run.start_sector) * 512).sum()
    }
}

/// Whether a run goes on where another ends, on both devices.
fn goes_on(last: &CachedRun, run: &CachedRun) -> bool {
    last.end_sector == run.start_sector
        && last.is_dirty == run.is_dirty
        && last.cache_sector + (last.end_sector - last.start_sector) == run.cache_sector
}

/// Reads the table of backing devices. It has no checksum: an id that is damaged is one that is not
/// known.
fn read_table(
    layout: &CacheLayout,
    newest: &BcacheJournalEntry,
    read: ReadCache<'_>,
) -> Result<BackingTable, CacheFault> {
    let key = newest.backing_table;
    let at_bytes = key.pointer.map_or(0, |pointer| pointer.sector * 512);
    let impossible = |what| CacheFault::Impossible { part: CachePart::Table, at_bytes, what };
    layout.bucket_of(&key).map_err(impossible)?;
    Ok(BackingTable::parse(&read(at_bytes, usize::from(key.sectors) * 512)?))
}

/// Reads a bucket of generations. Of a large one Linux fills the start, with pages of 4 KiB as many
/// as it has in one piece.
pub(super) fn generation_page<'a>(
    layout: &CacheLayout,
    bytes: &'a [u8],
) -> Result<GenerationPage<'a>, CacheDamage> {
    let start = &bytes[..bytes.len().min(GENERATION_BYTES)];
    GenerationPage::parse(layout, start).or_else(|_| GenerationPage::parse(layout, bytes))
}

fn read_generations(
    layout: &CacheLayout,
    newest: &BcacheJournalEntry,
    read: ReadCache<'_>,
) -> Result<Generations, CacheFault> {
    let (mut generations, mut bucket) = (Generations::default(), newest.generations_bucket);
    let part = CachePart::Generations;
    loop {
        let nowhere = CacheFault::Impossible {
            part,
            at_bytes: 0,
            what: "is in a bucket that the device does not have",
        };
        let at_bytes = layout.bucket_at_bytes(bucket).ok_or(nowhere)?;
        let bytes = read(at_bytes, layout.bucket_bytes())?;
        let page = generation_page(layout, &bytes);
        let page = page.map_err(|damage| CacheFault::Damaged { part, at_bytes, damage })?;
        // Each page has some of what is lacking, so this ends.
        if generations.add(layout, &page) {
            return Ok(generations);
        }
        bucket = page.next_bucket;
    }
}
