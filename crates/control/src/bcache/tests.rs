//! Devices that Linux left behind when it was stopped in the middle of a load (`fixtures/bcache`),
//! and what is made of their cache where its metadata is damaged. That the data is what Linux read
//! is tested in the application.

#![allow(clippy::print_stderr, reason = "what is skipped is said loudly")]

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use wattle_format::bcache::{BcacheRole, BcacheSuperblock, CacheLayout, CachedRun, seal, seal_generations};

use super::fault::{CacheFault, CachePart};
use super::set::{CacheSet, generation_page};
use super::{AT_BYTES, SUPERBLOCK_BYTES};

const BLOCK: usize = 512;

/// What a cache has of both backing devices; `None` of one that it does not know.
type BothRuns = [Option<Arc<[CachedRun]>>; 2];

struct Fixture {
    cache: Vec<u8>,
    backing: [[u8; 16]; 2],
}

/// Unpacks an image; `None` (loudly, and never in CI) if there is no `zstd`.
fn unpacked(name: &str) -> Option<Vec<u8>> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/bcache/{name}.img.zst"));
    match Command::new("zstd").arg("-dqc").arg(packed).output() {
        Ok(output) => Some(output.stdout),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "this needs zstd: {error}");
            eprintln!("SKIPPED: this needs zstd: {error}");
            None
        }
    }
}

fn superblock(device: &[u8]) -> BcacheSuperblock {
    BcacheSuperblock::parse(&device[AT_BYTES as usize..][..SUPERBLOCK_BYTES]).unwrap()
}

impl Fixture {
    fn new() -> Option<Self> {
        let uuid = |name| Some(superblock(&unpacked(name)?).uuid);
        Some(Self { cache: unpacked("cache")?, backing: [uuid("backing-0")?, uuid("backing-1")?] })
    }

    fn read(&self, passes_over_torn: bool) -> Result<BothRuns, CacheFault> {
        let read = |at: u64, len: usize| Ok(self.cache[at as usize..][..len].to_vec());
        let set = CacheSet::read(self.cache.len() as u64, passes_over_torn, &read)?;
        Ok(self.backing.map(|uuid| set.runs_of(uuid)))
    }

    /// The parts of the cache that are read, in blocks.
    fn metadata(&self) -> Vec<usize> {
        let parts = RefCell::new(Vec::new());
        let read = |at: u64, len: usize| {
            parts.borrow_mut().extend((at as usize / BLOCK)..(at as usize + len) / BLOCK);
            Ok(self.cache[at as usize..][..len].to_vec())
        };
        CacheSet::read(self.cache.len() as u64, false, &read).unwrap();
        let mut parts = parts.into_inner();
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// Changes the superblock of the cache, and makes its checksum right.
    fn change(&mut self, at: usize, bytes: &[u8]) {
        let superblock = &mut self.cache[AT_BYTES as usize..][..SUPERBLOCK_BYTES];
        superblock[at..at + bytes.len()].copy_from_slice(bytes);
        seal(superblock);
    }
}

#[test]
fn what_the_cache_has_of_both_backing_devices_is_found() {
    let Some(fixture) = Fixture::new() else { return };
    let both = fixture.read(false).unwrap().map(Option::unwrap);
    assert!(both[0].len() > 500 && both[1].len() > 10, "{} and {}", both[0].len(), both[1].len());
    for runs in both {
        assert!(runs.is_sorted_by(|one, next| one.end_sector <= next.start_sector));
        assert!(runs.iter().all(|run| run.start_sector < run.end_sector));
        assert!(runs.iter().any(|run| run.is_dirty));
    }
}

/// Every block of the metadata is damaged in turn, at every byte of where parts have their heads
/// and here and there behind that: either it is told, or it was nothing that counts.
#[test]
fn damaged_metadata_never_gives_other_data() {
    let Some(mut fixture) = Fixture::new() else { return };
    let whole = fixture.read(false).unwrap();
    let (mut told, mut nodes, mut entries, mut torn) = (0, 0, 0, 0);
    for block in fixture.metadata() {
        for within in (0..48).chain((48..BLOCK).step_by(61)) {
            let at = block * BLOCK + within;
            let mask = 1 << ((at / 5) % 8);
            fixture.cache[at] ^= mask;
            match fixture.read(false) {
                Ok(found) => {
                    for (found, whole) in found.iter().zip(&whole) {
                        assert!(found.is_none() || found == whole, "bit {mask:#x} of byte {at}");
                    }
                }
                Err(fault) => {
                    told += 1;
                    match fault {
                        CacheFault::Damaged { part: CachePart::Node(_), .. } => nodes += 1,
                        CacheFault::Damaged { part: CachePart::Entry(_), .. }
                        | CacheFault::MissingEntry { .. } => entries += 1,
                        CacheFault::Torn(_) => torn += 1,
                        _ => {}
                    }
                }
            }
            fixture.cache[at] ^= mask;
        }
    }
    assert!(told > 1000 && nodes > 500 && entries > 50 && torn > 10, "{told} {nodes} {entries} {torn}");
}

/// The newest entry of the journal, cut off: refused, and passed over where that is wanted.
#[test]
fn a_journal_that_ends_in_a_torn_entry_is_refused_by_name() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mut found = None;
    for block in fixture.metadata() {
        let at = block * BLOCK + 200;
        fixture.cache[at] ^= 1;
        if let Err(CacheFault::Torn(entry)) = fixture.read(false) {
            assert_eq!(entry.at_bytes as usize, block * BLOCK);
            assert!(fixture.read(true).is_ok());
            found = Some(block);
        }
        fixture.cache[at] ^= 1;
    }
    assert!(found.is_some());
}

/// A journal in which every block claims the rest of its bucket: hours of checksums.
#[test]
fn a_journal_that_says_it_holds_itself_many_times_is_refused_at_once() {
    let Some(mut fixture) = Fixture::new() else { return };
    let layout = CacheLayout::parse(&fixture.cache[AT_BYTES as usize..][..SUPERBLOCK_BYTES]).unwrap();
    let start = layout.first_bucket as usize * layout.bucket_bytes();
    let len = usize::from(layout.journal_buckets) * layout.bucket_bytes();
    let entry = fixture.cache[start..][..40].to_vec();
    for block in fixture.cache[start..start + len].chunks_mut(BLOCK) {
        block[..40].copy_from_slice(&entry);
        block[28..32].copy_from_slice(&(layout.bucket_bytes() as u32 / 8).to_le_bytes());
    }
    let fault = fixture.read(false).unwrap_err();
    assert!(matches!(fault, CacheFault::Impossible { part: CachePart::Journal, .. }), "{fault:?}");
}

#[test]
fn generations_of_large_buckets_are_read() {
    let Some(fixture) = Fixture::new() else { return };
    let layout = CacheLayout::parse(&fixture.cache[AT_BYTES as usize..][..SUPERBLOCK_BYTES]).unwrap();
    let mut bytes = vec![7; 8 << 20];
    for filled in [4 << 20, 8 << 20] {
        seal_generations(&layout, &mut bytes[..filled]);
        let page = generation_page(&layout, &bytes).unwrap();
        assert_eq!(page.generations().count(), (filled - 40) / 3);
    }
    bytes[5 << 20] = 8;
    assert!(generation_page(&layout, &bytes).is_err());
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut Fixture)| {
        let mut fixture = Fixture::new()?;
        change(&mut fixture);
        Some(fixture.read(false).unwrap_err())
    };
    let Some(fixture) = Fixture::new() else { return };
    assert_eq!(superblock(&fixture.cache).role, BcacheRole::Cache);
    // Never used; another device of several; smaller than it says; features of later versions.
    let fault = refused(&|fixture| fixture.change(104, &[0; 8])).unwrap();
    assert!(matches!(fault, CacheFault::Unused), "{fault:?}");
    for (at, bytes) in [(196, &[2_u8][..]), (198, &[1]), (204, &[0, 0]), (208, &[0; 8]), (194, &[7])] {
        let fault = refused(&|fixture| fixture.change(at, bytes)).unwrap();
        assert!(matches!(fault, CacheFault::Superblock(_)), "{at}: {fault:?}");
    }
    let fault = refused(&|fixture| fixture.cache.truncate(4 << 20)).unwrap();
    assert!(matches!(fault, CacheFault::TooSmall { .. }), "{fault:?}");
    let fault = refused(&|fixture| fixture.change(56, &[9])).unwrap();
    assert!(matches!(fault, CacheFault::NoJournal), "{fault:?}");
}
