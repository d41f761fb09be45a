//! The write-intent bitmap of a running array: one image in memory, a copy on every member.
//!
//! What the copies mean is in docs/formats.md §2; when bits are set and cleared is the engine's
//! decision ([`wattle_engine::intent`]). Here is how they get to the members:
//!
//! - **The header's event count goes out before the superblocks'** ([`BitmapCopies::commit`]). A
//!   bitmap
//!   whose count is below its array's is stale, and all of it would be resynced; so at no moment
//!   may a member's superblock be ahead of its bitmap. The other way round nothing is lost: each
//!   copy is true at all times, whatever count it carries, because a bit is durable before what it
//!   stands for is written.
//! - **Setting bits is forced to every member in use at once** ([`BitmapCopies::mark`]), in blocks
//!   of the
//!   member's logical block: a block is written whole or not at all, and the first also holds the
//!   header.
//! - **Clearing bits is lazy, but first `events_cleared` says so** ([`BitmapCopies::unmark`]): a
//!   member
//!   that is away and older than that may lack what the cleared bits stood for. The engine clears
//!   nothing while a member is missing, so the count stays what it was when the array was last
//!   whole.
//! - **A copy that may differ is written whole** before anything relies on it: that of a member
//!   that was not in use, of one that a crash left behind, all of them after the bitmap was found
//!   stale. Its first block goes last, on its own: what it says of the others holds once they are
//!   there.
//!
//! What the copies say together when an array starts is decided by assembly: bits are cleared
//! lazily, so copies may differ, and the union counts; a bit too many costs a little resync.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use wattle_engine::intent::IntentSpec;
use wattle_engine::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use wattle_engine::{MemberKey, Regions};
use wattle_format::md::bitmap::{self, HEADER_BYTES, Header};
use wattle_format::md::{DeviceRole, Features, Superblock, Version, defaults};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, Instant, IoError};

use crate::md::assemble;
use crate::md::facts::BitmapContent;
use crate::md::waits::Waits;

/// Where a member's copy is.
#[derive(Debug, Clone)]
pub struct BitmapPlace {
    /// The member, open for writing and ours alone.
    pub device: Device,
    /// Where the header starts.
    pub offset_bytes: u64,
    /// Bytes up to whatever follows.
    pub room_bytes: u64,
}

impl BitmapPlace {
    /// The place that a member's superblock names; `None` if it names none, or one that is no place
    /// for a bitmap: in the data, beyond the end, not at the start of a block.
    #[must_use]
    pub fn of(device: &Device, superblock: &Superblock) -> Option<Self> {
        let start = superblock.sector_from_superblock(superblock.bitmap_offset_sectors()?)?;
        let data = superblock.data_offset_sectors();
        let data = data..data.saturating_add(superblock.data_size_sectors());
        let after = |offset: i32| superblock.sector_from_superblock(offset);
        // Whatever begins behind it ends its room.
        let others = [
            Some(superblock.found_at_sectors()),
            superblock.bad_block_log().and_then(|area| after(area.offset_sectors)),
            superblock.ppl().and_then(|area| after(i32::from(area.offset_sectors))),
            (!data.is_empty()).then_some(data.start),
            Some(device.size_bytes() / SECTOR_BYTES),
        ];
        let end = others.into_iter().flatten().filter(|&other| other > start).min()?;
        let place = Self {
            device: device.clone(),
            offset_bytes: start.checked_mul(SECTOR_BYTES)?,
            room_bytes: (end - start) * SECTOR_BYTES,
        };
        let place_of_superblock = superblock.found_at_sectors()..superblock.found_at_sectors() + 8;
        let log = bad_block_log(superblock);
        let ppl = superblock.ppl().and_then(|area| {
            let at = after(i32::from(area.offset_sectors))?;
            Some(at..at + u64::from(area.size_sectors))
        });
        let taken = [Some(data), Some(place_of_superblock), log, ppl];
        let misplaced = taken.into_iter().flatten().any(|area| area.contains(&start));
        let block = place.block_bytes() as u64;
        (!misplaced && place.offset_bytes.is_multiple_of(block) && place.room_bytes >= block).then_some(place)
    }

    /// Bytes that are written at once: the member's logical block.
    fn block_bytes(&self) -> usize {
        self.device.logical_block_bytes().max(SECTOR_BYTES as u32) as usize
    }

    /// Where a superblock leaves room for a new bitmap, in sectors from the superblock: right
    /// behind it, in metadata 1.0 in front of it and behind the data. `None` if there is none.
    #[must_use]
    pub fn free(device: &Device, superblock: &Superblock) -> Option<Range<i32>> {
        let mut trial = superblock.clone();
        if superblock.version() != Version::V10 {
            // An array without redundancy, as this one may have been, has its log there.
            let behind_log = || {
                let end = bad_block_log(superblock)?.end.checked_sub(superblock.found_at_sectors())?;
                i32::try_from(end.next_multiple_of(PAGE_SECTORS as u64)).ok()
            };
            let candidates = [Some(BEHIND_SUPERBLOCK), behind_log()].into_iter().flatten();
            let room_at = |offset: i32| {
                trial.set_bitmap_offset(Some(offset)).ok()?;
                let room = Self::of(device, &trial)?.room_bytes / SECTOR_BYTES;
                Some(offset..i32::try_from(room).ok()?.checked_add(offset)?)
            };
            let mut free = candidates.filter(|offset| *offset >= BEHIND_SUPERBLOCK).filter_map(room_at);
            return free.find(|free| free.end - free.start >= PAGE_SECTORS);
        }
        let place = superblock.found_at_sectors();
        let log = superblock.bad_block_log().map(|area| area.offset_sectors).filter(|offset| *offset < 0);
        let data_end = superblock.data_offset_sectors().checked_add(superblock.data_size_sectors())?;
        let before = place.checked_sub(data_end.checked_next_multiple_of(PAGE_SECTORS as u64)?)?;
        let start = -i32::try_from(before).unwrap_or(i32::MAX - i32::MAX % PAGE_SECTORS);
        let end = log.unwrap_or(0);
        (start < end).then_some(start..end)
    }

    /// Whether `image_bytes` fit, in whole blocks.
    fn holds(&self, image_bytes: usize) -> bool {
        image_bytes.next_multiple_of(self.block_bytes()) as u64 <= self.room_bytes
    }
}

/// Where a member's bad-block log is.
fn bad_block_log(superblock: &Superblock) -> Option<Range<u64>> {
    let area = superblock.bad_block_log()?;
    let at = superblock.sector_from_superblock(area.offset_sectors)?;
    Some(at..at + u64::from(area.size_sectors))
}

/// Where metadata 0.90, 1.1 and 1.2 have a bitmap, in sectors from the superblock.
const BEHIND_SUPERBLOCK: i32 = 8;
/// A bitmap is whole pages, as mdadm makes it.
const PAGE_SECTORS: i32 = 8;

/// A new bitmap: where it is, from the superblock of each member, and its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapLayout {
    /// Sectors from the superblock.
    pub offset_sectors: i32,
    /// Bytes up to whatever follows, on every member.
    pub room_bytes: u64,
    /// What a bit stands for, in bytes.
    pub chunk_bytes: u32,
}

impl BitmapLayout {
    /// Lays a bitmap out that covers `covered_sectors`, in what is free on all members
    /// ([`BitmapPlace::free`]): with a chunk of this many bytes, or with mdadm's choice.
    ///
    /// # Errors
    /// The smallest chunk that has room, in bytes; `None` if there is no room at all.
    pub fn new(
        free: &[Range<i32>],
        covered_sectors: u64,
        chunk_bytes: Option<u64>,
    ) -> Result<Self, Option<u64>> {
        let start = free.iter().map(|free| free.start).max().ok_or(None)?;
        let end = free.iter().map(|free| free.end).min().ok_or(None)?;
        let room = u64::try_from(end - start).unwrap_or(0) / PAGE_SECTORS as u64 * PAGE_SECTORS as u64;
        let smallest = defaults::smallest_bitmap_chunk_bytes(covered_sectors, room);
        let chunk = match chunk_bytes {
            None => defaults::bitmap_chunk_bytes(covered_sectors, room),
            Some(asked) => smallest.and_then(|least| (asked >= least).then_some(asked)),
        };
        let chunk_bytes = chunk.filter(|chunk| chunk.is_power_of_two()).ok_or(smallest)?;
        let need = defaults::bitmap_bytes(covered_sectors, chunk_bytes).div_ceil(4096) * PAGE_SECTORS as u64;
        let chunk_bytes = u32::try_from(chunk_bytes).map_err(|_| smallest)?;
        // In front of the superblock it ends where the free area does.
        let offset_sectors = if start < 0 { end - i32::try_from(need).map_err(|_| smallest)? } else { start };
        Ok(Self {
            offset_sectors,
            room_bytes: u64::try_from(end - offset_sectors).unwrap_or(0) * 512,
            chunk_bytes,
        })
    }
}

/// Why an array's bitmap cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BitmapUnusable {
    /// No member in sync has a bitmap of this array where its superblock says.
    #[error("no member in sync has a bitmap of this array")]
    NoCopy,
    /// Its bits do not fit where a member has it.
    #[error("the bitmap needs {need_bytes} bytes and a member has room for {room_bytes}")]
    NoRoom {
        /// Header and bits.
        need_bytes: u64,
        /// The least that a member has.
        room_bytes: u64,
    },
}

/// What an array's bitmap says, as assembly has it from the members' copies, or as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapBits {
    /// The regions whose bit is set: in any current copy; all of them if the bitmap is stale.
    pub regions: Regions,
    /// The generation at which bits were last cleared.
    pub events_cleared: u64,
    /// The array was run without it.
    pub stale: bool,
}

impl From<&assemble::Bitmap> for BitmapBits {
    fn from(found: &assemble::Bitmap) -> Self {
        let (regions, events_cleared) = (found.set.clone(), found.events_cleared);
        Self { regions, events_cleared, stale: found.distrust.is_some() }
    }
}

/// What it takes to bring a member back that was away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReAddCost {
    /// It lacks what was written to these regions, and nothing else.
    Regions(Regions),
    /// All of it has to be rebuilt.
    Full(FullReason),
}

/// Why a member that was away has to be rebuilt as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FullReason {
    /// The array was run without the bitmap.
    #[error("the bitmap is stale: the array was run without it")]
    Stale,
    /// Bits were cleared since it left.
    #[error(
        "it left at event {events}, and the bitmap forgot what was written before event {events_cleared}"
    )]
    Forgotten {
        /// Of its superblock.
        events: u64,
        /// Of the bitmap.
        events_cleared: u64,
    },
    /// It is newer than the array.
    #[error("it is at event {events} and the array at {array_events}: it was run without the others")]
    Ahead {
        /// Of its superblock.
        events: u64,
        /// Of the array's.
        array_events: u64,
    },
    /// It was being rebuilt when it left, and not by a bitmap.
    #[error("it was not rebuilt when it left")]
    Partial,
    /// It was not in this slot.
    #[error("it did not hold this slot when it left")]
    OtherSlot,
}

/// Decides how a member that was away comes back to `slot` (docs/formats.md §2.5). It has the
/// array's UUID. `array_events` and `bitmap` are the running array's.
#[must_use]
pub fn re_add(member: &Superblock, slot: u16, array_events: u64, bitmap: &BitmapBits) -> ReAddCost {
    let (events, events_cleared) = (member.events(), bitmap.events_cleared);
    let by_bitmap = member.features().contains(Features::RECOVERY_BITMAP);
    if member.role() != DeviceRole::Active(slot) || member.features().contains(Features::REPLACEMENT) {
        ReAddCost::Full(FullReason::OtherSlot)
    } else if member.recovery_offset().is_some() && !by_bitmap {
        ReAddCost::Full(FullReason::Partial)
    } else if bitmap.stale {
        ReAddCost::Full(FullReason::Stale)
    } else if events > array_events {
        ReAddCost::Full(FullReason::Ahead { events, array_events })
    } else if events < events_cleared {
        ReAddCost::Full(FullReason::Forgotten { events, events_cleared })
    } else {
        ReAddCost::Regions(bitmap.regions.clone())
    }
}

/// The image of the bitmap.
#[derive(Debug, Clone)]
struct Image {
    header: Header,
    /// The whole of it; the header's bytes are kept equal to `header`.
    bytes: Vec<u8>,
    /// Up to the last bit.
    len: usize,
}

/// Longest logical block there is; the image is whole blocks of any size.
const BLOCK_MAX_BYTES: usize = 4096;

impl Image {
    fn new(mut header: Header, bits: &BitmapBits) -> Self {
        let regions = &bits.regions;
        if bits.stale {
            header.set_state(header.state() & !(Header::STALE | Header::WRITE_ERROR));
        }
        header.set_events_cleared(bits.events_cleared);
        let covered = header.sync_size_sectors().max(regions.total().0);
        header.set_sync_size_sectors(covered);
        let count = covered.div_ceil(regions.size().0);
        let len = HEADER_BYTES + count.div_ceil(8) as usize;
        // Bits behind the last are ones, as mdadm leaves them.
        let mut bytes = vec![0xff; len.next_multiple_of(BLOCK_MAX_BYTES)];
        for region in 0..count {
            bitmap::set(&mut bytes[HEADER_BYTES..], region, regions.contains(region));
        }
        let mut image = Self { header, bytes, len };
        image.put_header(|_| ());
        image
    }

    fn put_header(&mut self, change: impl FnOnce(&mut Header)) {
        change(&mut self.header);
        self.bytes[..HEADER_BYTES].copy_from_slice(self.header.bytes());
    }

    fn set(&mut self, regions: &[u64], on: bool) {
        let bits = &mut self.bytes[HEADER_BYTES..self.len];
        regions.iter().for_each(|&region| bitmap::set(bits, region, on));
    }

    /// The blocks that hold the bits of `regions`.
    fn blocks_of(regions: &[u64], block_bytes: usize) -> BTreeSet<usize> {
        regions.iter().map(|region| (HEADER_BYTES + (region / 8) as usize) / block_bytes).collect()
    }

    /// All blocks but the first.
    fn rest(&self, block_bytes: usize) -> BTreeSet<usize> {
        (1..self.len.div_ceil(block_bytes)).collect()
    }
}

/// A member's copy.
#[derive(Debug)]
struct Copy {
    place: BitmapPlace,
    /// It is as the image, but for what is being written.
    level: bool,
}

/// Keeps the copies of a running array equal to one image. Used by one task at a time, on one core.
pub struct BitmapCopies {
    core: Core,
    image: RefCell<Image>,
    copies: RefCell<BTreeMap<MemberKey, Copy>>,
    waits: Waits,
}

/// Members in use: their seats and keys.
pub type InUse = [(MemberIx, MemberKey)];

impl BitmapCopies {
    /// Reads the copies of an array's members, to see which have to be written again, and goes on
    /// with what `bits` says. `members` are those in seats, and whether they are in sync; others
    /// are [added](Self::add) when they are needed, or before. Writes nothing.
    ///
    /// # Errors
    /// [`BitmapUnusable`]: the array cannot be written with its bitmap.
    pub async fn open(
        core: &Core,
        members: Vec<(MemberKey, Option<BitmapPlace>, bool)>,
        stored_uuid: &[u8; 16],
        bits: &BitmapBits,
    ) -> Result<Self, BitmapUnusable> {
        let mut headers = Vec::new();
        let mut found = BTreeMap::new();
        for (key, place, in_sync) in &members {
            let Some(place) = place else { continue };
            let Some(bytes) = read_copy(core, place, bits.regions.count()).await else { continue };
            let header = Header::decode(&bytes).ok().filter(|header| {
                header.uuid() == *stored_uuid
                    && header.one_bit_per_chunk()
                    && u64::from(header.chunk_field()) == bits.regions.size().0 * SECTOR_BYTES
            });
            headers.extend(header.filter(|_| *in_sync));
            found.insert(*key, bytes);
        }
        let header = headers.into_iter().max_by_key(Header::events).ok_or(BitmapUnusable::NoCopy)?;
        let image = Image::new(header, bits);
        let mut copies = BTreeMap::new();
        for (key, place, _) in members {
            let place = place.ok_or(BitmapUnusable::NoCopy)?;
            check_room(&place, image.len)?;
            let level = found
                .get(&key)
                .is_some_and(|bytes| bytes.get(..image.len) == Some(&image.bytes[..image.len]));
            copies.insert(key, Copy { place, level });
        }
        Ok(Self {
            core: core.clone(),
            image: RefCell::new(image),
            copies: RefCell::new(copies),
            waits: Waits::default(),
        })
    }

    /// A new bitmap on these members, in which all bits are set: nothing that is in flight, or was
    /// written until now, has to be known. Writes nothing. No member that is away by generation
    /// `events` lacks only what it has bits for.
    ///
    /// # Errors
    /// [`BitmapUnusable::NoRoom`].
    pub fn begin(
        core: &Core,
        members: Vec<(MemberKey, BitmapPlace)>,
        header: Header,
        events: u64,
    ) -> Result<Self, BitmapUnusable> {
        let size = Sector(u64::from(header.chunk_field()) / SECTOR_BYTES);
        let regions = Regions::full(size, Sector(header.sync_size_sectors()));
        let image = Image::new(header, &BitmapBits { regions, events_cleared: events, stale: false });
        let mut copies = BTreeMap::new();
        for (key, place) in members {
            check_room(&place, image.len)?;
            copies.insert(key, Copy { place, level: false });
        }
        Ok(Self {
            core: core.clone(),
            image: RefCell::new(image),
            copies: RefCell::new(copies),
            waits: Waits::default(),
        })
    }

    /// What the engine has to know.
    #[must_use]
    pub fn spec(&self) -> IntentSpec {
        let sweep = Duration::from_secs(u64::from(self.image.borrow().header.daemon_sleep_secs()));
        IntentSpec { marked: self.bits().regions, sweep }
    }

    /// Lets go of a member that is gone.
    pub fn forget(&self, key: MemberKey) {
        self.copies.borrow_mut().remove(&key);
        self.waits.forget(key);
    }

    /// Since when the oldest write of it waits for a member.
    pub(super) fn waits_since(&self, key: MemberKey) -> Option<Instant> {
        self.waits.since(&self.core, key)
    }

    /// What waits for a write of it on a member is answered that it is gone.
    pub(super) fn give_up(&self, key: MemberKey) {
        self.waits.give_up(&self.core, key);
    }

    /// A member that may come to be in use. Its copy is written whole when it is.
    ///
    /// # Errors
    /// It has no room.
    pub fn add(&self, key: MemberKey, place: BitmapPlace) -> Result<(), BitmapUnusable> {
        check_room(&place, self.image.borrow().len)?;
        self.copies.borrow_mut().insert(key, Copy { place, level: false });
        Ok(())
    }

    /// What the bitmap says now: what it takes to bring back a member that is away ([`re_add`]).
    #[must_use]
    pub fn bits(&self) -> BitmapBits {
        let image = self.image.borrow();
        let size = Sector(u64::from(image.header.chunk_field()) / SECTOR_BYTES);
        let mut regions = Regions::new(size, Sector(image.header.sync_size_sectors()));
        let set = bitmap::ones(&image.bytes[HEADER_BYTES..], regions.count()).collect::<Vec<_>>();
        set.into_iter().for_each(|region| regions.insert(region));
        BitmapBits { regions, events_cleared: image.header.events_cleared(), stale: false }
    }

    /// Makes the bitmap say `events`, durably on every member in use. Before the superblocks do.
    ///
    /// # Errors
    /// The seats whose copy could not be written.
    pub async fn commit(&self, in_use: &InUse, events: u64) -> Result<(), MemberSet> {
        let same = self.image.borrow().header.events() == events;
        self.image.borrow_mut().put_header(|header| header.set_events(events));
        let failed = self.make_level(in_use, !same).await;
        self.left_behind(in_use, &failed);
        done(failed)
    }

    /// Writes all of it on members, not durably: whether they take it, before anything depends on
    /// that. A forced write that fails would count as one of a member's losses.
    ///
    /// # Errors
    /// The seats that do not take it.
    pub async fn reserve(&self, in_use: &InUse) -> Result<(), MemberSet> {
        let all = |place: &BitmapPlace| (0..self.image.borrow().len.div_ceil(place.block_bytes())).collect();
        done(self.write(in_use, all, Durability::Cached).await)
    }

    /// Sets the bits of `regions`, durably on every member in use.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub async fn mark(&self, in_use: &InUse, regions: &[u64]) -> Result<(), MemberSet> {
        self.image.borrow_mut().set(regions, true);
        let mut failed = self.make_level(in_use, false).await;
        let write = |place: &BitmapPlace| Image::blocks_of(regions, place.block_bytes());
        failed = failed.union(&self.write(in_use, write, Durability::Fua).await);
        self.left_behind(in_use, &failed);
        done(failed)
    }

    /// Clears the bits of `regions`. The array is whole, and what was written there is durable on
    /// every member.
    ///
    /// # Errors
    /// As [`Self::commit`]; some bits may be cleared on some members.
    pub async fn unmark(&self, in_use: &InUse, regions: &[u64]) -> Result<(), MemberSet> {
        let mut failed = self.make_level(in_use, false).await;
        let events = self.image.borrow().header.events();
        let mut durability = Durability::Cached;
        if self.image.borrow().header.events_cleared() < events {
            self.image.borrow_mut().put_header(|header| header.set_events_cleared(events));
            // Without this a member that left before would be taken for one that lacks nothing
            // here, and one that has it alone after a crash for one that went on by itself. A block
            // is written whole or not at all, so bits beside the header need not wait for it.
            let beside = |(_, key): &(MemberIx, MemberKey)| {
                let copies = self.copies.borrow();
                let blocks = copies.get(key).map(|copy| Image::blocks_of(regions, copy.place.block_bytes()));
                blocks.is_some_and(|blocks| blocks.into_iter().eq([0]))
            };
            if in_use.iter().all(beside) {
                durability = Durability::Fua;
            } else {
                failed = failed.union(&self.write(in_use, |_| BTreeSet::from([0]), Durability::Fua).await);
            }
        }
        if failed.is_empty() {
            self.image.borrow_mut().set(regions, false);
            let write = |place: &BitmapPlace| Image::blocks_of(regions, place.block_bytes());
            failed = self.write(in_use, write, durability).await;
        }
        self.left_behind(in_use, &failed);
        done(failed)
    }

    /// Brings copies that may differ level with the image, and writes the header to the others too
    /// if it is `new_header`.
    async fn make_level(&self, in_use: &InUse, new_header: bool) -> MemberSet {
        let behind = |key: &MemberKey| self.copies.borrow().get(key).is_none_or(|copy| !copy.level);
        let behind: Vec<_> = in_use.iter().filter(|(_, key)| behind(key)).copied().collect();
        let rest = |place: &BitmapPlace| self.image.borrow().rest(place.block_bytes());
        let mut failed = self.write(&behind, rest, Durability::Fua).await;
        let first: Vec<_> = if new_header { in_use } else { &behind }
            .iter()
            .filter(|(seat, _)| !failed.contains(*seat))
            .copied()
            .collect();
        failed = failed.union(&self.write(&first, |_| BTreeSet::from([0]), Durability::Fua).await);
        let mut copies = self.copies.borrow_mut();
        for (seat, key) in behind {
            if let Some(copy) = copies.get_mut(&key) {
                copy.level = !failed.contains(seat);
            }
        }
        failed
    }

    /// Writes blocks of the image to members, to all of them at once; returns the seats where that
    /// failed.
    async fn write(
        &self,
        members: &InUse,
        blocks: impl Fn(&BitmapPlace) -> BTreeSet<usize>,
        durability: Durability,
    ) -> MemberSet {
        let mut failed = MemberSet::EMPTY;
        let mut writes: Vec<(MemberIx, _)> = Vec::new();
        for (seat, key) in members {
            // A member without a place cannot be told, so it must not be in use.
            let copies = self.copies.borrow();
            let Some(copy) = copies.get(key) else {
                failed.insert(*seat);
                continue;
            };
            let image = self.image.borrow();
            for (offset, buf) in runs(&image.bytes, &blocks(&copy.place), copy.place.block_bytes()) {
                let at = copy.place.offset_bytes + offset as u64;
                let write = self.core.write(&copy.place.device, at, buf, durability);
                writes.push((*seat, self.waits.watch(*key, write)));
            }
        }
        for (seat, write) in writes {
            let written: Result<(), IoError> = write.await;
            if written.is_err() {
                failed.insert(seat);
            }
        }
        failed
    }

    /// Copies that were not written to, or in vain, are no longer level.
    fn left_behind(&self, in_use: &InUse, failed: &MemberSet) {
        let written =
            |key: &MemberKey| in_use.iter().any(|(seat, used)| used == key && !failed.contains(*seat));
        for (key, copy) in self.copies.borrow_mut().iter_mut() {
            copy.level &= written(key);
        }
    }
}

fn done(failed: MemberSet) -> Result<(), MemberSet> {
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// Neighbouring blocks of an image as one buffer each, with their offsets.
fn runs(bytes: &[u8], blocks: &BTreeSet<usize>, block_bytes: usize) -> Vec<(usize, Buf)> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    let bytes = |run: std::ops::Range<usize>| {
        let range = run.start * block_bytes..run.end * block_bytes;
        (range.start, BufMut::copy_of(&bytes[range]).freeze())
    };
    runs.into_iter().map(bytes).collect()
}

fn check_room(place: &BitmapPlace, image_bytes: usize) -> Result<(), BitmapUnusable> {
    if place.holds(image_bytes) {
        return Ok(());
    }
    Err(BitmapUnusable::NoRoom { need_bytes: image_bytes as u64, room_bytes: place.room_bytes })
}

/// What the bitmap says that a device's superblock names, if it has no more bits than these; `None`
/// if it is none of this array, or cannot be read.
pub(crate) async fn content_on(
    core: &Core,
    device: &Device,
    superblock: &Superblock,
    bits: u64,
) -> Option<BitmapContent> {
    if !superblock.features().contains(Features::BITMAP) {
        return None;
    }
    let bytes = read_copy(core, &BitmapPlace::of(device, superblock)?, bits).await?;
    let header = Header::decode(&bytes).ok()?;
    let is_ours = header.uuid() == superblock.stored_uuid() && header.one_bit_per_chunk();
    if is_ours { BitmapContent::of(&header, &bytes) } else { None }
}

/// A copy as it is on a member, as far as there are bits; `None` if it cannot be read.
async fn read_copy(core: &Core, place: &BitmapPlace, bits: u64) -> Option<Vec<u8>> {
    let block = place.block_bytes() as u64;
    let len = (HEADER_BYTES as u64 + bits.div_ceil(8)).next_multiple_of(block);
    let len = len.min(place.room_bytes - place.room_bytes % block);
    let (result, image) = core.read(&place.device, place.offset_bytes, BufMut::alloc(len as usize)).await;
    result.ok()?;
    Some(image.to_vec())
}
