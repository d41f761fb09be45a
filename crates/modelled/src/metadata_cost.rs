//! Metadata as md's costs it: for a record a superblock, for regions the pages of the bitmap that
//! hold their bits, on every member.
//!
//! What is written is zeros: it is never read, only its time counts.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata};
use wattle_engine::state::ppl::{LogEntry, LogFormat};
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_format::md::{Uuid, ppl};
use wattle_rt::{Buf, Core, Device, Durability};

/// Where a member's superblock is, in bytes.
const SUPERBLOCK_AT: u64 = 4096;
/// Where its bitmap is; behind it is room for a log.
const BITMAP_AT: u64 = 8192;
/// Where its log is.
pub const LOG_AT: u64 = 512 << 10;
/// How long its log is: md's default.
pub const LOG_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// How often metadata was written.
#[derive(Clone, Debug, Default)]
pub struct MetadataWrites {
    /// Records.
    pub commits: Cell<u64>,
    /// Group commits of bits that were set.
    pub marks: Cell<u64>,
    /// Bits that were set.
    pub marked: Cell<u64>,
    /// Bits that were cleared.
    pub unmarked: Cell<u64>,
}

/// Writes what md's metadata would need, on every member.
pub struct MetadataCost {
    core: Core,
    members: Vec<Device>,
    counts: Rc<MetadataWrites>,
}

impl MetadataCost {
    /// Metadata for an array on `members`; the key of each is its index.
    #[must_use]
    pub fn new(core: &Core, members: &[Device], counts: Rc<MetadataWrites>) -> MetadataCost {
        MetadataCost { core: core.clone(), members: members.to_vec(), counts }
    }

    /// Writes pages of every member at once.
    async fn write(&self, pages: &[u64], durability: Durability) -> Result<(), MemberSet> {
        let mut writes = Vec::new();
        for (member, device) in (0..).map(MemberIx).zip(&self.members) {
            for at in pages {
                let page = Buf::zeros(PAGE_BYTES as usize);
                writes.push((member, self.core.write(device, *at, page, durability)));
            }
        }
        let mut failed = MemberSet::EMPTY;
        for (member, write) in writes {
            if write.await.is_err() {
                failed.insert(member);
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

fn pages(regions: &[u64]) -> Vec<u64> {
    let pages: BTreeSet<u64> = regions.iter().map(|region| region / 8 / PAGE_BYTES).collect();
    pages.into_iter().map(|page| BITMAP_AT + page * PAGE_BYTES).collect()
}

impl Metadata for MetadataCost {
    fn commit<'a>(&'a self, _record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.counts.commits.update(|count| count + 1);
        Box::pin(self.write(&[SUPERBLOCK_AT], Durability::Fua))
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.counts.marks.update(|count| count + 1);
        self.counts.marked.update(|count| count + regions.len() as u64);
        Box::pin(async move { self.write(&pages(regions), Durability::Fua).await })
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.counts.unmarked.update(|count| count + regions.len() as u64);
        Box::pin(async move { self.write(&pages(regions), Durability::Cached).await })
    }
}

/// md's format of logs, several of which follow one another in an area.
pub struct Ppl;

impl fmt::Debug for Ppl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ppl")
    }
}

impl LogFormat for Ppl {
    fn header(&self, generation: u64, entries: &[LogEntry]) -> Buf {
        let entries = entries.iter().map(|entry| ppl::PplEntry {
            data_sector: entry.first.0,
            pp_bytes: entry.partial.iter().map(|part| part.len() as u32).sum(),
            data_bytes: entry.data_bytes,
            parity_disk: u32::from(entry.parity_slot.0),
            checksum: 0,
        });
        let header = ppl::Header { generation, entries: entries.collect() };
        Buf::copy_of(&header.encode(&Uuid(*b"wattle simulator").0)[..])
    }

    fn entries_max(&self) -> usize {
        ppl::MAX_ENTRIES
    }

    fn payload_max_bytes(&self) -> usize {
        ppl::MAX_LOG_BYTES as usize
    }
}
