//! Keeps md superblocks true while an array runs: which superblocks, which event count, in which order.
//!
//! [`MdState::next`] is the decision, pure: the superblocks of the next generation. [`MdMetadata`] writes them: flush and
//! then write through, on all members at once. The rules (docs/formats.md §1.5, §1.7):
//!
//! - Every round has one event more than the last. A return to clean may take the event of the dirty round back, so that
//!   flipping does not burn numbers; but never while the array is degraded or has a bitmap, nor below 2, as md does it.
//!   A generation never means two things: N is clean and N+1 dirty, however often; a change of membership is always new.
//! - Members that are one event apart (after a crash, or when a return to clean did not reach all) are brought level before the
//!   next round, so that a crash in that leaves nobody two events behind, which would make a stale member of a whole one.
//! - Members that failed are counted out in the superblocks of the others and never written again. Slots that were empty
//!   when the array was started are counted out by the first round: a member that reappears one event behind must not be
//!   taken for a current one.
//! - Spares are only written when membership changes or the array is degraded; their event count does not matter.
//! - A superblock that does not fit one logical block (0.90; 1.x with very many roles) can be torn by a power cut, and then
//!   nobody knows what the member is. Turning clean or dirty only changes its first block; a round that changes more (membership)
//!   is written in waves, so that the members outside each wave are enough for the array, or one half at least is whole.
//! - A member that is being rebuilt keeps its recovery offset: what wattle writes below it and above it is written to it too.
//!
//! **Bitmap** (until wattle maintains it). The bitmap's superblock keeps its own event count (docs/formats.md §2.2). It is left
//! alone, and the array's count moves ahead of it for ever: whoever reads the bitmap next sees that it is stale and takes
//! every bit as set. That is why counts never go back with a bitmap: at N again, the bitmap of N would be believed, and
//! a resync would skip what was written meanwhile.
//!
//! **Partial parity log** (until wattle writes it). Logs from before describe writes that are long done; replayed after a crash of
//! ours they would "repair" parity to old data. So the first header of every member's log is zeroed, durably, before the
//! first dirty superblock. The scan of a log starts there and ends at the first header that is not valid, so one block
//! is enough for single logs and rings alike; whoever finds no log resyncs everything.

use std::cell::{Cell, RefCell};

use wattle_engine::geometry::Geometry;
use wattle_engine::metadata::{LocalBoxFuture, Metadata, Record};
use wattle_engine::units::{MemberIx, MemberSet, SECTOR_BYTES};
use wattle_format::md::{Features, Role, SUPERBLOCK_BYTES, Superblock, Timestamp, Version};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, WallTime};

use crate::assemble::{Assembly, Slot, SyncState};
use crate::facts::CLEAN;

/// What the superblocks on disk say, and what decides the next ones.
#[derive(Debug, Clone)]
pub struct MdState {
    /// Of every working member, by slot; `None` where nobody is, or failed.
    slots: Vec<Option<Superblock>>,
    spares: Vec<Superblock>,
    /// What each device number is, from the freshest superblock and kept up.
    roles: Vec<Role>,
    events: u64,
    /// What the superblocks of this generation say.
    resync_offset: u64,
    /// Members may be one event apart, after a crash or a return to clean that did not reach all of them.
    uneven: bool,
    /// `resync_offset` when nothing is in flight.
    idle_offset: u64,
    /// Some slot is empty or only partly rebuilt.
    degraded: bool,
    /// The last round only turned the array dirty.
    may_go_back: bool,
}

/// The superblocks to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Of members, by slot.
    pub slots: Vec<(MemberIx, Superblock)>,
    /// Of spares, by their index; all or none.
    pub spares: Vec<(usize, Superblock)>,
}

impl MdState {
    /// The state of an array as it was assembled: the superblocks of its members by slot, and of its spares.
    #[must_use]
    pub fn new(assembly: &Assembly, slots: Vec<Option<Superblock>>, spares: Vec<Superblock>) -> Self {
        let slots: Vec<_> = slots
            .into_iter()
            .zip(&assembly.slots)
            .map(|(superblock, slot)| as_far_as_rebuilt(superblock?, *slot))
            .collect();
        // Members of the freshest generation may disagree after a crash; assembly took the least that one of them says.
        let resync_offset = match assembly.state {
            SyncState::Clean => CLEAN,
            SyncState::Dirty => 0,
            SyncState::Resyncing { below_sectors } => below_sectors,
        };
        Self {
            spares,
            roles: assembly.array.roles.clone(),
            events: assembly.array.events,
            resync_offset,
            uneven: slots.iter().flatten().any(|superblock| superblock.events() != assembly.array.events),
            idle_offset: assembly.synced_below_sectors,
            degraded: assembly.degraded() > 0,
            may_go_back: false,
            slots,
        }
    }

    /// The event count on disk.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The superblocks that record `record`, and the state when they are written. The state holds whether or not all of
    /// them arrive: what may be on disk counts.
    #[must_use]
    pub fn next(&self, record: &Record, now: WallTime) -> (Self, Round) {
        let mut next = self.clone();
        let failed: Vec<_> = record.failed.iter().filter(|slot| self.member(*slot).is_some()).collect();
        for slot in &failed {
            let Some(lost) = next.slots[slot.index()].take() else { continue };
            next.count_out(lost.dev_number());
        }
        next.degraded |= !failed.is_empty();

        let only_a_flip = failed.is_empty() && !next.degraded;
        let goes_back = self.may_go_back
            && only_a_flip
            && !record.dirty
            && !self.has_bitmap()
            && self.idle_offset == CLEAN
            && self.events > 1;
        next.events = if goes_back { self.events - 1 } else { self.events + 1 };
        next.may_go_back = only_a_flip && record.dirty;

        let resync_offset = if record.dirty { 0 } else { next.idle_offset };
        next.resync_offset = resync_offset;
        let roles = next.wanted_roles();
        let (events, utime) = (next.events, Timestamp { secs: now.secs, micros: now.micros });
        let renew = |superblock: &mut Superblock| {
            for (dev_number, &role) in (0..).zip(&roles) {
                set_role(superblock, dev_number, role);
            }
            superblock.set_events(events);
            superblock.set_resync_offset(resync_offset);
            superblock.set_utime(utime);
        };
        next.slots.iter_mut().flatten().for_each(renew);
        if !only_a_flip {
            next.spares.iter_mut().for_each(renew);
        }
        let written =
            |(slot, superblock): (u16, &Option<Superblock>)| Some((MemberIx(slot), superblock.clone()?));
        let round = Round {
            slots: (0..).zip(&next.slots).filter_map(written).collect(),
            spares: if only_a_flip { Vec::new() } else { next.spares.iter().cloned().enumerate().collect() },
        };
        (next, round)
    }

    /// The present generation once more, for every member but those that `failed`: what comes next is at most one event ahead
    /// of all of them, so that a crash in it leaves nobody stale.
    fn level(&self, failed: &MemberSet) -> Round {
        let again = |(slot, superblock): (u16, &Option<Superblock>)| {
            let (slot, mut superblock) = (MemberIx(slot), superblock.clone()?);
            for (dev_number, &role) in (0..).zip(&self.roles) {
                set_role(&mut superblock, dev_number, role);
            }
            superblock.set_events(self.events);
            superblock.set_resync_offset(self.resync_offset);
            (!failed.contains(slot)).then_some((slot, superblock))
        };
        Round { slots: (0..).zip(&self.slots).filter_map(again).collect(), spares: Vec::new() }
    }

    fn member(&self, slot: MemberIx) -> Option<&Superblock> {
        self.slots.get(slot.index())?.as_ref()
    }

    fn has_bitmap(&self) -> bool {
        self.slots.iter().flatten().any(|superblock| superblock.features().contains(Features::BITMAP))
    }

    fn count_out(&mut self, dev_number: u32) {
        if let Some(role) = self.roles.get_mut(dev_number as usize) {
            *role = Role::Faulty;
        }
    }

    /// The role table of the next round: as known, and nobody in a slot but the member that is there.
    fn wanted_roles(&self) -> Vec<Role> {
        let holds = |slot: u16, dev_number: u32| {
            self.member(MemberIx(slot)).is_some_and(|superblock| superblock.dev_number() == dev_number)
        };
        (0..)
            .zip(&self.roles)
            .map(|(dev_number, &role)| match role {
                Role::Active(slot) if !holds(slot, dev_number) => Role::Spare,
                role => role,
            })
            .collect()
    }
}

/// The superblock of a member that is rebuilt as far as `slot` says. One that was a spare when the others gave it its slot does
/// not say so itself, and would count as whole once it is in the slot. 0.90 cannot say so: such a member is not written,
/// and stays what it was.
fn as_far_as_rebuilt(mut superblock: Superblock, slot: Slot) -> Option<Superblock> {
    let Slot::Rebuilding { valid_below_sectors, .. } = slot else { return Some(superblock) };
    superblock.set_recovery_offset(Some(valid_below_sectors)).ok()?;
    Some(superblock)
}

/// Gives a device its role in one superblock. In 0.90 only slots are touched: entries behind them follow by themselves.
fn set_role(superblock: &mut Superblock, dev_number: u32, role: Role) {
    let follows = !superblock.version().is_1x() && dev_number >= superblock.raid_disks();
    if follows || superblock.role_of(dev_number) == role {
        return;
    }
    let set = match role {
        Role::Spare => superblock.remove_device(dev_number),
        role => superblock.set_role(dev_number, role).map(|_| ()),
    };
    set.expect("a role that one superblock of the array stores fits into the others");
}

/// Where a superblock is written.
#[derive(Debug, Clone)]
pub struct Place {
    /// The member, open for writing and ours alone.
    pub device: Device,
}

impl Place {
    /// Bytes to write at a time: the member's logical block.
    fn block_bytes(&self) -> usize {
        self.device.logical_block_bytes().max(SECTOR_BYTES as u32) as usize
    }

    /// Whether a power cut can leave a superblock that is neither of the two: they differ behind the first block.
    fn may_tear(&self, before: Option<&Superblock>, after: &Superblock) -> bool {
        let behind_first = |superblock: &Superblock| {
            self.encode(superblock).get(self.block_bytes()..).unwrap_or_default().to_vec()
        };
        before.map(behind_first).unwrap_or_default() != behind_first(after)
    }

    /// The superblock's blocks, whole: with logical blocks of 4 KiB what follows the superblock is written back as it was.
    fn encode(&self, superblock: &Superblock) -> Buf {
        let bytes = superblock.bytes();
        let own_bytes = match superblock.version() {
            Version::V090 => SUPERBLOCK_BYTES,
            _ => 256 + 2 * superblock.max_devices() as usize,
        };
        let len = own_bytes.next_multiple_of(self.block_bytes()).min(bytes.len());
        BufMut::copy_of(&bytes[..len]).freeze()
    }
}

/// The superblocks of a running md array.
pub struct MdMetadata {
    core: Core,
    geometry: Option<Geometry>,
    state: RefCell<MdState>,
    slots: Vec<Option<Place>>,
    spares: Vec<Place>,
    /// The partial parity logs of before are gone.
    logs_invalid: Cell<bool>,
}

impl MdMetadata {
    /// The superblocks of `assembly` as they are on disk, by slot, and of its spares; all are written on `core`.
    #[must_use]
    pub fn new(
        core: &Core,
        assembly: &Assembly,
        slots: Vec<Option<(Place, Superblock)>>,
        spares: Vec<(Place, Superblock)>,
    ) -> Self {
        let (slot_places, slot_superblocks) = slots.into_iter().map(Option::unzip).unzip();
        let (spare_places, spare_superblocks) = spares.into_iter().unzip();
        Self {
            core: core.clone(),
            geometry: assembly.geometry.clone(),
            state: RefCell::new(MdState::new(assembly, slot_superblocks, spare_superblocks)),
            slots: slot_places,
            spares: spare_places,
            logs_invalid: Cell::new(false),
        }
    }

    /// Writes a round.
    ///
    /// # Cancellation
    /// Not safe: some members may have the round and others not. The next round is a new generation and mends it.
    async fn write(&self, record: &Record) -> Result<(), MemberSet> {
        let before = self.state.borrow().clone();
        if before.uneven {
            self.write_round(&before.level(&record.failed), &before).await?;
            self.state.borrow_mut().uneven = false;
        }
        let before = MdState { uneven: false, ..before };
        let (next, round) = before.next(record, self.core.wall_clock());
        let went_back = next.events < before.events;
        *self.state.borrow_mut() = next;
        if record.dirty && !self.logs_invalid.get() {
            self.invalidate_logs(&round).await?;
            self.logs_invalid.set(true);
        }
        let written = self.write_round(&round, &before).await;
        if written.is_err() && went_back {
            // Who did not take it still has the dirty generation, and the number of that must not get a second meaning.
            *self.state.borrow_mut() = MdState { uneven: true, may_go_back: false, ..before };
        }
        written
    }

    /// Flushes the members of a round, and writes it through on all of them: at once, or in waves if it could tear what
    /// `before` says.
    async fn write_round(&self, round: &Round, before: &MdState) -> Result<(), MemberSet> {
        let members = round
            .slots
            .iter()
            .filter_map(|(slot, superblock)| Some((*slot, self.slots[slot.index()].as_ref()?, superblock)));
        let members: Vec<_> = members.collect();
        // Operations start when they are called: all members flush at once, then all write at once.
        let flushes: Vec<_> =
            members.iter().map(|(slot, place, _)| (*slot, self.core.flush(&place.device))).collect();
        let mut failed = failures(flushes).await;
        let spares: Vec<_> =
            round.spares.iter().map(|(ix, sb)| self.write_superblock(&self.spares[*ix], sb)).collect();
        let written: MemberSet = members.iter().map(|(slot, _, _)| *slot).collect();
        let torn = members.iter().any(|(slot, place, sb)| place.may_tear(before.member(*slot), sb));
        let waves = if torn { waves(self.geometry.as_ref(), &written) } else { vec![written] };
        for wave in waves {
            let writes =
                members.iter().filter(|(slot, _, _)| wave.contains(*slot) && !failed.contains(*slot));
            let writes = writes.map(|(slot, place, sb)| (*slot, self.write_superblock(place, sb))).collect();
            failed = failed.union(&failures(writes).await);
        }
        for spare in spares {
            // A spare that cannot be written is found out when it is needed; its superblock counts for nothing until then.
            let _ = spare.await;
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    fn write_superblock(
        &self,
        place: &Place,
        superblock: &Superblock,
    ) -> impl Future<Output = Result<(), IoError>> + use<> {
        let at = superblock.found_at_sectors() * SECTOR_BYTES;
        self.core.write(&place.device, at, place.encode(superblock), Durability::Fua)
    }

    /// Zeroes the first header of every member's partial parity log, durably.
    async fn invalidate_logs(&self, round: &Round) -> Result<(), MemberSet> {
        /// The length of a log's header.
        const HEADER_BYTES: usize = 4096;
        let writes = round.slots.iter().filter_map(|(slot, superblock)| {
            let place = self.slots[slot.index()].as_ref()?;
            let start = superblock
                .found_at_sectors()
                .checked_add_signed(i64::from(superblock.ppl()?.offset_sectors))?;
            let zeros = Buf::zeros(HEADER_BYTES);
            Some((*slot, self.core.write(&place.device, start * SECTOR_BYTES, zeros, Durability::Fua)))
        });
        match failures(writes.collect()).await {
            failed if failed.is_empty() => Ok(()),
            failed => Err(failed),
        }
    }
}

impl Metadata for MdMetadata {
    fn commit<'a>(&'a self, record: &'a Record) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(self.write(record))
    }
}

/// Cuts `members`, all that is left of an array, into sets that the array can do without one at a time. If it can do without
/// nobody, two halves: then one tells at least what the array was.
fn waves(geometry: Option<&Geometry>, members: &MemberSet) -> Vec<MemberSet> {
    let spared = |wave: &MemberSet| {
        geometry.is_some_and(|geometry| {
            let slots = (0..geometry.raid_disks() as u16).map(MemberIx);
            geometry
                .survives(&slots.filter(|slot| !members.contains(*slot) || wave.contains(*slot)).collect())
        })
    };
    if !members.iter().all(|slot| spared(&std::iter::once(slot).collect())) {
        let half = |odd: usize| {
            let every_other = members.iter().enumerate().filter(|(ix, _)| ix % 2 == odd);
            every_other.map(|(_, slot)| slot).collect()
        };
        return [half(0), half(1)].into_iter().filter(|wave: &MemberSet| !wave.is_empty()).collect();
    }
    let mut waves: Vec<MemberSet> = Vec::new();
    for slot in members.iter() {
        let only: MemberSet = std::iter::once(slot).collect();
        match waves.iter_mut().find(|wave| spared(&wave.union(&only))) {
            Some(wave) => wave.insert(slot),
            None => waves.push(only),
        }
    }
    waves
}

/// Waits for operations that are under way and returns the slots of those that failed.
async fn failures(operations: Vec<(MemberIx, impl Future<Output = Result<(), IoError>>)>) -> MemberSet {
    let mut failed = MemberSet::EMPTY;
    for (slot, operation) in operations {
        if operation.await.is_err() {
            failed.insert(slot);
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_engine::geometry::{Level, Params};
    use wattle_engine::units::Sector;
    use wattle_format::md::create::{self, NewArray};
    use wattle_format::md::{DeviceFields, DeviceFlags, Uuid, super_offset_sectors};

    fn geometry(level: Level, layout: u32, raid_disks: u32) -> Geometry {
        let chunk = Sector(if level == Level::Raid1 { 0 } else { 8 });
        let component_size = Sector(64);
        Geometry::new(&Params { level, layout, chunk, raid_disks, component_size, member_sizes: Vec::new() })
            .unwrap()
    }

    fn set(slots: &[u16]) -> MemberSet {
        slots.iter().map(|&slot| MemberIx(slot)).collect()
    }

    /// A power cut tears every superblock that is being written, at worst. All at once, and the array is gone.
    #[test]
    fn no_wave_takes_what_the_array_needs() {
        let rows = [
            (geometry(Level::Raid1, 0, 3), set(&[0, 2]), vec![set(&[0]), set(&[2])]),
            (geometry(Level::Raid1, 0, 3), set(&[0, 1, 2]), vec![set(&[0, 1]), set(&[2])]),
            (
                geometry(Level::Raid6, 2, 5),
                set(&[0, 1, 2, 4]),
                vec![set(&[0]), set(&[1]), set(&[2]), set(&[4])],
            ),
            (geometry(Level::Raid6, 2, 4), set(&[0, 1, 2, 3]), vec![set(&[0, 1]), set(&[2, 3])]),
            (geometry(Level::Raid10, 0x102, 4), set(&[0, 1, 2, 3]), vec![set(&[0, 2]), set(&[1, 3])]),
            // Nobody can be spared: halves.
            (geometry(Level::Raid5, 2, 4), set(&[0, 1, 3]), vec![set(&[0, 3]), set(&[1])]),
            (geometry(Level::Raid1, 0, 2), set(&[1]), vec![set(&[1])]),
        ];
        for (geometry, members, expected) in rows {
            assert_eq!(waves(Some(&geometry), &members), expected, "{} of {members:?}", geometry.level());
        }
    }

    fn some_superblock(version: Version) -> Superblock {
        let sectors = 16384;
        let place = super_offset_sectors(version, sectors).unwrap();
        let array = NewArray {
            version,
            set_uuid: Uuid([5; 16]),
            name: b"host:t".to_vec(),
            ctime: Timestamp { secs: 1000, micros: 0 },
            level: 1,
            layout: 0,
            chunk_sectors: 0,
            raid_disks: 2,
            size_sectors: 8192,
            resync_offset: u64::MAX,
            roles: vec![Role::Active(0), Role::Active(1)],
            bitmap_offset_sectors: None,
            ppl: None,
            features: Features::default(),
            md_minor: 0,
            nodes: Vec::new(),
        };
        let (data_offset_sectors, data_size_sectors) =
            if version == Version::V090 { (0, place) } else { (2048, 8192) };
        let device = DeviceFields {
            dev_number: 0,
            device_uuid: Uuid([0; 16]),
            super_offset_sectors: place,
            data_offset_sectors,
            data_size_sectors,
            recovery_offset: None,
            replacement: false,
            bad_block_log: None,
            flags: DeviceFlags::default(),
        };
        create::superblock(&array, &device, sectors).unwrap()
    }

    /// Waves cost a round trip each: turning clean and dirty must not pay it. It need not, as it changes only the first sector.
    #[test]
    fn only_changes_of_membership_in_a_long_superblock_can_tear_it() {
        let place = Place { device: Device::mem(16384 * SECTOR_BYTES) };
        assert_eq!(place.block_bytes(), 512);
        for version in [Version::V090, Version::V12] {
            let before = some_superblock(version);
            let mut flipped = before.clone();
            flipped.set_events(before.events() + 1);
            flipped.set_resync_offset(0);
            flipped.set_utime(Timestamp { secs: 2000, micros: 7 });
            assert!(!place.may_tear(Some(&before), &flipped), "{version}");
            let mut alone = flipped.clone();
            set_role(&mut alone, 1, Role::Faulty);
            assert_eq!(place.may_tear(Some(&before), &alone), version == Version::V090, "{version}");
        }
    }
}
