//! The sums of recorded scrubs, in a file of their own beside the array.
//!
//! The format is in `format/scrub_sums` and docs/formats.md §24; what the sums are for and why they
//! say something is in the engine's `state/sums`, and for an operator in docs/scrubs.md. The file
//! is a device like any other: so the simulator runs this code over drives that lose power.
//!
//! **Invariants.**
//! 1. A set of sums counts only while its signature is the array's: the event count and the time of
//!    the last update in the superblocks of every member in a seat. Whatever else runs the array
//!    (the kernel, another system, wattle without this file) changes one of the two. The header has
//!    the state that is on the members and the one that is about to be written, before that is
//!    written ([`ScrubSums::signs`]); a set whose signature is not the array's is wiped.
//! 2. A region is noted durably in the header's set before [`SumStore::note`] returns. The page of
//!    notes and the header's set have one generation: a page of another set, torn or damaged, says
//!    that everything was written.
//! 3. A new set becomes the one that counts by its header, written when all of it is durable. The
//!    old header is wiped before the next note: notes are kept in one set only from then on.
//! 4. What cannot be read or written costs sums, and never fails anything but a note.

mod file;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use wattle_engine::Regions;
use wattle_engine::metadata::LocalBoxFuture;
use wattle_engine::model::sums::SumSpec;
use wattle_engine::planted::{self, Bug};
use wattle_engine::state::sums::{BlockSums, KnownBlock, KnownSums, SumStore, SumsLost};
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_format::scrub_sums::{
    HEADER_BYTES, PAGE_BYTES, PAGE_REGIONS, SumsHeader, SumsShape, SumsSignature, decode_leaf, decode_notes,
    encode_leaf, encode_notes,
};
use wattle_rt::{BufMut, Core, Device, Durability, IoError, Semaphore, Unmap};

pub use file::{open_sums_file, sums_file};

/// The checksum of a block: XXH3 of 64 bits. 0 stands for none.
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes).max(1)
}

/// The shape of an array's file.
#[must_use]
pub fn shape(spec: &SumSpec) -> SumsShape {
    SumsShape {
        total_sectors: spec.regions.total().0,
        block_sectors: spec.block.0 as u32,
        lanes: spec.lanes as u32,
        region_sectors: spec.regions.size().0,
    }
}

/// A set of sums.
struct SumSet {
    half: u8,
    generation: u64,
    /// Regions that were written since.
    noted: Regions,
    void: MemberSet,
    taken_secs: u64,
}

/// A set that is being taken.
struct Taking {
    set: SumSet,
    /// Regions that have sums already, or are about to.
    opened: Regions,
    /// The next block.
    next: u64,
    /// The sums of the leaf that the next block is in.
    leaf: Vec<u64>,
}

/// A leaf that was read: its generation, its number, its sums.
type CachedLeaf = (u64, u64, Rc<Vec<u64>>);

/// The store of an array's sums.
pub struct ScrubSums {
    core: Core,
    device: Device,
    array: [u8; 16],
    spec: SumSpec,
    shape: SumsShape,
    current: RefCell<Option<SumSet>>,
    taking: RefCell<Option<Taking>>,
    signatures: RefCell<[SumsSignature; 2]>,
    /// Sums were given up, and the engine does not know yet.
    owed: Cell<bool>,
    /// The leaf that was read last, of which generation.
    cached: RefCell<Option<CachedLeaf>>,
    /// One change at a time.
    changing: Semaphore,
    /// One leaf is read at a time.
    reading: Semaphore,
}

impl ScrubSums {
    /// The sums on a device, of the array that is on disk as `found` says: a signature for each
    /// member in a seat. What is not that array's as it is now is wiped. `None` if the device
    /// cannot hold them.
    pub async fn open(
        core: &Core,
        device: Device,
        array: [u8; 16],
        spec: SumSpec,
        found: &[SumsSignature],
    ) -> Option<Rc<Self>> {
        let shape = shape(&spec);
        if device.size_bytes() < shape.file_bytes() {
            return None;
        }
        let newest = found.iter().copied().max_by_key(|signature| signature.events).unwrap_or_default();
        let store = Self {
            core: core.clone(),
            device,
            array,
            spec,
            shape,
            current: RefCell::default(),
            taking: RefCell::default(),
            signatures: RefCell::new([newest; 2]),
            owed: Cell::new(false),
            cached: RefCell::default(),
            changing: Semaphore::new(1),
            reading: Semaphore::new(1),
        };
        let [first, second] = [store.header(0).await, store.header(1).await];
        let best =
            [first.clone(), second.clone()].into_iter().flatten().max_by_key(|header| header.generation);
        let is_its = |header: &SumsHeader| {
            let is_known = |signature: &SumsSignature| {
                planted::is(Bug::SumsOfAnyState) || header.signatures.contains(signature)
            };
            header.array == store.array
                && header.shape == store.shape
                && !found.is_empty()
                && found.iter().all(is_known)
        };
        let counts = best.filter(is_its);
        for (half, header) in (0..).zip([first, second]) {
            let keep = counts.is_some() && header == counts;
            if !keep && store.wipe_header(half).await.is_err() {
                return None;
            }
            if let Some(header) = header.filter(|_| keep) {
                *store.current.borrow_mut() = Some(store.load(half, &header).await);
            }
        }
        Some(Rc::new(store))
    }

    async fn header(&self, half: u8) -> Option<SumsHeader> {
        let (read, bytes) = self.read(u64::from(half) * PAGE_BYTES, PAGE_BYTES as usize).await;
        read.ok()?;
        SumsHeader::decode(&bytes)
    }

    /// A set whose header counts.
    async fn load(&self, half: u8, header: &SumsHeader) -> SumSet {
        let mut noted = self.spec.regions.clone();
        for page in 0..self.shape.note_pages() {
            let (read, bytes) = self.read(self.shape.note_page_at(half, page), PAGE_BYTES as usize).await;
            let first = page * PAGE_REGIONS;
            match read.ok().and_then(|()| decode_notes(&bytes, header.generation)) {
                Some(regions) => regions.into_iter().for_each(|region| noted.insert(first + region)),
                None => (first..first + PAGE_REGIONS).for_each(|region| noted.insert(region)),
            }
        }
        SumSet {
            half,
            generation: header.generation,
            noted,
            void: header.void.iter().map(|slot| MemberIx(*slot)).collect(),
            taken_secs: header.taken_secs,
        }
    }

    fn read(&self, at: u64, len: usize) -> impl Future<Output = (Result<(), IoError>, BufMut)> + use<> {
        self.core.read(&self.device, at, BufMut::zeroed(len))
    }

    async fn write(&self, at: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.core.write(&self.device, at, BufMut::copy_of(bytes).freeze(), Durability::Cached).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.core.flush(&self.device).await
    }

    async fn wipe_header(&self, half: u8) -> Result<(), IoError> {
        self.write(u64::from(half) * PAGE_BYTES, &vec![0; PAGE_BYTES as usize]).await?;
        self.flush().await
    }

    fn header_of(&self, set: &SumSet) -> Vec<u8> {
        let header = SumsHeader {
            array: self.array,
            generation: set.generation,
            shape: self.shape,
            taken_secs: set.taken_secs,
            signatures: *self.signatures.borrow(),
            void: set.void.iter().map(|slot| slot.0).collect(),
        };
        let mut bytes = header.encode().to_vec();
        debug_assert_eq!(bytes.len(), HEADER_BYTES);
        bytes.resize(PAGE_BYTES as usize, 0);
        bytes
    }

    /// The array's superblocks are going to say this. In the header before they do; with `rests`,
    /// as when the array is left, durably. Otherwise with the next note at the latest: a header
    /// that is older costs sums and no more, and a write waits for this.
    pub async fn signs(&self, next: SumsSignature, rests: bool) {
        let _turn = self.changing.acquire(1).await;
        self.signatures.borrow_mut().rotate_left(1);
        self.signatures.borrow_mut()[1] = next;
        let header = self.current.borrow().as_ref().map(|set| (set.half, self.header_of(set)));
        if let Some((half, header)) = header {
            let mut written = self.write(u64::from(half) * PAGE_BYTES, &header).await;
            if rests && written.is_ok() {
                written = self.flush().await;
            }
            if written.is_err() {
                // What of it is on disk may be the array's signature: the next note tells.
                self.give_up();
                self.owed.set(true);
            }
        }
    }

    /// When the sums that count were taken: seconds since 1970.
    #[must_use]
    pub fn taken_secs(&self) -> Option<u64> {
        self.current.borrow().as_ref().map(|set| set.taken_secs)
    }

    /// Regions that were written since the sums that count were taken, and all regions.
    #[must_use]
    pub fn written(&self) -> Option<(u64, u64)> {
        self.current.borrow().as_ref().map(|set| (set.noted.len(), set.noted.count()))
    }

    /// Bytes that the file may take.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.shape.file_bytes()
    }

    fn give_up(&self) {
        *self.current.borrow_mut() = None;
        *self.taking.borrow_mut() = None;
    }

    async fn note_in_turn(&self, regions: &[u64]) -> Result<(), SumsLost> {
        if self.owed.take() {
            return Err(SumsLost);
        }
        let page_of = |region: &u64| region / PAGE_REGIONS;
        let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut add = |set: &mut SumSet, regions: &[u64]| {
            let mut pages: Vec<u64> = regions.iter().map(page_of).collect();
            pages.dedup();
            regions.iter().for_each(|region| set.noted.insert(*region));
            for page in pages {
                let is_noted = |region| set.noted.contains(page * PAGE_REGIONS + region);
                let bytes = encode_notes(set.generation, is_noted);
                writes.push((self.shape.note_page_at(set.half, page), bytes));
            }
        };
        if let Some(set) = &mut *self.current.borrow_mut() {
            let new: Vec<u64> = regions.iter().copied().filter(|at| !set.noted.contains(*at)).collect();
            add(set, &new);
        }
        if let Some(taking) = &mut *self.taking.borrow_mut() {
            let is_new = |at: &u64| taking.opened.contains(*at) && !taking.set.noted.contains(*at);
            let new: Vec<u64> = regions.iter().copied().filter(is_new).collect();
            add(&mut taking.set, &new);
        }
        if writes.is_empty() {
            return Ok(());
        }
        let mut written = Ok(());
        for (at, bytes) in writes {
            written = written.and(self.write(at, &bytes).await);
        }
        match written.and(self.flush().await) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.give_up();
                Err(SumsLost)
            }
        }
    }

    async fn void_in_turn(&self, slots: MemberSet) -> Result<(), SumsLost> {
        if let Some(taking) = &mut *self.taking.borrow_mut() {
            taking.set.void = taking.set.void.union(&slots);
        }
        let header = self.current.borrow_mut().as_mut().map(|set| {
            set.void = set.void.union(&slots);
            (set.half, self.header_of(set))
        });
        let Some((half, header)) = header else { return Ok(()) };
        let written = self.write(u64::from(half) * PAGE_BYTES, &header).await;
        match written.and(self.flush().await) {
            Ok(()) => Ok(()),
            Err(_) => {
                self.give_up();
                Err(SumsLost)
            }
        }
    }

    /// A leaf of the set that counts; `None` if it cannot be had.
    async fn leaf(&self, leaf: u64) -> Option<Rc<Vec<u64>>> {
        let _turn = self.reading.acquire(1).await;
        let (half, generation) = self.current.borrow().as_ref().map(|set| (set.half, set.generation))?;
        if let Some((of, number, sums)) = &*self.cached.borrow()
            && (*of, *number) == (generation, leaf)
        {
            return Some(sums.clone());
        }
        let (read, bytes) = self.read(self.shape.leaf_at(half, leaf), self.shape.leaf_bytes()).await;
        read.ok()?;
        let sums = Rc::new(decode_leaf(&self.shape, generation, leaf, &bytes)?);
        *self.cached.borrow_mut() = Some((generation, leaf, sums.clone()));
        Some(sums)
    }

    async fn known_sums(&self, blocks: Range<u64>) -> KnownSums {
        let (per, lanes) = (self.shape.leaf_blocks(), self.spec.lanes);
        let generation = self.current.borrow().as_ref().map(|set| set.generation);
        let mut sums: Vec<BlockSums> = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let (leaf, end) = (at / per, ((at / per + 1) * per).min(blocks.end));
            let found = self.leaf(leaf).await;
            sums.extend((at..end).map(|block| {
                let from = (block % per) as usize * lanes;
                let kept = found.as_ref().map(|sums| &sums[from..from + lanes]);
                let known = |lane: usize| kept.map(|kept| kept[lane]).filter(|sum| *sum != 0);
                (0..lanes).map(known).collect()
            }));
            at = end;
        }
        // Last: what was noted while the leaf was being read says nothing.
        let current = self.current.borrow();
        match current.as_ref().filter(|set| Some(set.generation) == generation) {
            None => KnownSums {
                blocks: blocks.map(|_| KnownBlock { written: false, sums: vec![None; lanes] }).collect(),
                void: MemberSet::EMPTY,
            },
            Some(set) => {
                let block = |(number, sums): (u64, BlockSums)| match set
                    .noted
                    .contains(self.spec.region_of(number))
                {
                    true => KnownBlock { written: true, sums: vec![None; lanes] },
                    false => KnownBlock { written: false, sums },
                };
                KnownSums { blocks: blocks.zip(sums).map(block).collect(), void: set.void }
            }
        }
    }

    async fn begin_in_turn(&self) -> Result<(), IoError> {
        *self.taking.borrow_mut() = None;
        let of_current = self.current.borrow().as_ref().map(|set| (set.half, set.generation));
        let (half, generation) = match of_current {
            Some((half, generation)) => (1 - half, generation + 1),
            // Not that of anything that lies about.
            None => (0, self.core.wall_clock().secs.max(1) << 20),
        };
        self.wipe_header(half).await?;
        for page in 0..self.shape.note_pages() {
            self.write(self.shape.note_page_at(half, page), &encode_notes(generation, |_| false)).await?;
        }
        let set = SumSet {
            half,
            generation,
            noted: self.spec.regions.clone(),
            void: MemberSet::EMPTY,
            taken_secs: 0,
        };
        let (opened, leaf) = (self.spec.regions.clone(), Vec::new());
        *self.taking.borrow_mut() = Some(Taking { set, opened, next: 0, leaf });
        Ok(())
    }

    async fn take_in_turn(&self, blocks: Range<u64>, sums: Vec<BlockSums>) -> Result<(), IoError> {
        let (per, lanes) = (self.shape.leaf_blocks(), self.spec.lanes);
        for (block, sums) in blocks.zip(sums) {
            let full = {
                let mut taking = self.taking.borrow_mut();
                let Some(taking) = taking.as_mut().filter(|taking| taking.next == block) else {
                    return Ok(());
                };
                taking.leaf.extend((0..lanes).map(|lane| sums.get(lane).copied().flatten().unwrap_or(0)));
                taking.next += 1;
                let full = taking.next % per == 0 || taking.next == self.shape.blocks();
                full.then(|| {
                    let leaf = block / per;
                    let bytes = encode_leaf(
                        &self.shape,
                        taking.set.generation,
                        leaf,
                        &std::mem::take(&mut taking.leaf),
                    );
                    (self.shape.leaf_at(taking.set.half, leaf), bytes)
                })
            };
            if let Some((at, bytes)) = full {
                self.write(at, &bytes).await?;
            }
        }
        Ok(())
    }

    async fn finish_in_turn(&self) -> Result<bool, SumsLost> {
        let whole = self.taking.borrow().as_ref().is_some_and(|taking| taking.next == self.shape.blocks());
        if !whole {
            *self.taking.borrow_mut() = None;
            return Ok(false);
        }
        if self.flush().await.is_err() {
            return Ok(false);
        }
        let Some(Taking { mut set, .. }) = self.taking.borrow_mut().take() else { return Ok(false) };
        set.taken_secs = self.core.wall_clock().secs;
        let written = self.write(u64::from(set.half) * PAGE_BYTES, &self.header_of(&set)).await;
        let old = 1 - set.half;
        if written.and(self.flush().await).is_err() || self.wipe_header(old).await.is_err() {
            // Which of the two counts is not known, so neither may: what is noted from now on would
            // be noted in one of them only.
            self.give_up();
            return Err(SumsLost);
        }
        *self.current.borrow_mut() = Some(set);
        let leaves = self.shape.leaves_range(old);
        // Where that cannot be done the file stays as large as it is.
        let _ =
            self.core.write_zeroes(&self.device, leaves.start, leaves.end - leaves.start, Unmap::Yes).await;
        Ok(true)
    }
}

impl SumStore for ScrubSums {
    fn has_sums(&self) -> bool {
        self.current.borrow().is_some()
    }

    fn note<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), SumsLost>> {
        Box::pin(async move {
            let _turn = self.changing.acquire(1).await;
            self.note_in_turn(regions).await
        })
    }

    fn void(&self, slots: MemberSet) -> LocalBoxFuture<'_, Result<(), SumsLost>> {
        Box::pin(async move {
            let _turn = self.changing.acquire(1).await;
            self.void_in_turn(slots).await
        })
    }

    fn known(&self, blocks: Range<u64>) -> LocalBoxFuture<'_, KnownSums> {
        Box::pin(self.known_sums(blocks))
    }

    fn begin(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            let _turn = self.changing.acquire(1).await;
            if self.begin_in_turn().await.is_err() {
                *self.taking.borrow_mut() = None;
            }
        })
    }

    fn is_next(&self, block: u64) -> bool {
        self.taking.borrow().as_ref().is_some_and(|taking| taking.next == block)
    }

    fn open(&self, regions: Range<u64>) {
        if let Some(taking) = &mut *self.taking.borrow_mut() {
            regions.for_each(|region| taking.opened.insert(region));
        }
    }

    fn take(&self, blocks: Range<u64>, sums: Vec<BlockSums>) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            if self.take_in_turn(blocks, sums).await.is_err() {
                *self.taking.borrow_mut() = None;
            }
        })
    }

    fn finish(&self) -> LocalBoxFuture<'_, Result<bool, SumsLost>> {
        Box::pin(async move {
            let _turn = self.changing.acquire(1).await;
            let finished = self.finish_in_turn().await;
            *self.taking.borrow_mut() = None;
            finished
        })
    }

    fn abandon(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            let _turn = self.changing.acquire(1).await;
            *self.taking.borrow_mut() = None;
        })
    }
}
