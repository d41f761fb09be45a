//! Which superblocks are written next: the decision, without devices.

use std::sync::Arc;

use wattle_engine::metadata::{ArrayRecord, RecordCause, SeatRecord};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{BadRanges, MemberKey, MemberState};
use wattle_format::md::{DeviceFlags, DeviceRole, Features, SetError, Superblock, Timestamp};
use wattle_rt::WallTime;

use crate::md::assemble::{Assembly, Slot, SyncState};
use crate::md::facts::{CLEAN, SuperblockFacts};
use crate::md::lineage::SeatedMember;

/// Features that say how much of a device is current, and what it is for.
const RECOVERY: Features =
    Features(Features::RECOVERY_OFFSET.0 | Features::RECOVERY_BITMAP.0 | Features::REPLACEMENT.0);

/// What the superblocks on disk say, and what decides the next ones.
#[derive(Debug, Clone)]
pub struct MdState {
    /// Slots of the array; there are as many seats for replacements behind them.
    slots: usize,
    /// The members of slots that were in sync when the array was assembled.
    in_sync_at_start: Vec<SeatedMember>,
    /// The member in each seat, as of the last record.
    seats: Vec<SeatRecord>,
    /// By key.
    devices: Vec<Option<Known>>,
    /// What each device number is, from the freshest superblock and kept up.
    roles: Vec<DeviceRole>,
    events: u64,
    /// What the superblocks of this generation say.
    resync_offset: u64,
    /// Members may be one event apart, after a crash or a round that did not reach all of them.
    pub(super) uneven: bool,
    /// The last round only turned a clean array dirty.
    may_go_back: bool,
}

/// A device of the array.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// As of the last round that it was part of.
    pub superblock: Superblock,
    /// As of the round before that, if it was a working member then: it has this one where the last
    /// did not reach it.
    pub before: Option<Arc<Superblock>>,
    pub holds: Holds,
    /// Its bad-block log has entries outside of its data.
    pub bad_outside: bool,
    /// Where 0.90's table has it, if that is not where its own superblock says: a failed member is
    /// moved behind the slots, and its superblock is not written any more.
    pub number: Option<u32>,
}

/// What a device was in the last round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// A working member.
    Seat(MemberIx),
    Spare,
    /// Nothing that is written: not yet, or not any more.
    Nothing,
}

/// A superblock to write.
#[derive(Debug, Clone, PartialEq)]
pub struct SuperblockWrite {
    /// The seat that changes.
    pub seat: MemberIx,
    /// Which device.
    pub key: MemberKey,
    /// What.
    pub superblock: Superblock,
}

/// The superblocks to write, in the order of the fields; those of one field at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Round {
    /// Newcomers, as spares of the generation that is on disk, with nothing of them current:
    /// whatever comes of the round, their content is never taken for data.
    pub seeds: Vec<SuperblockWrite>,
    /// Replacements that take over a slot: before any superblock says that the member they replace
    /// has failed, they say that they are whole.
    pub promoted: Vec<SuperblockWrite>,
    /// Members.
    pub members: Vec<SuperblockWrite>,
    /// Newcomers once more, now in their seats. They are last: a superblock that is ahead of all
    /// others describes the array, and one in a slot that the others call empty looks like half of
    /// an array that was run in two halves.
    pub newcomers: Vec<SuperblockWrite>,
    /// Spares; all or none.
    pub spares: Vec<(MemberKey, Superblock)>,
}

impl Round {
    /// Every member in a seat.
    pub fn seated(&self) -> impl Iterator<Item = &SuperblockWrite> {
        self.promoted.iter().chain(&self.members).chain(&self.newcomers)
    }
}

impl MdState {
    /// The state of an array as it was assembled: the superblocks of its members by seat (the
    /// slots, then perhaps a replacement for each), and of its spares. Seat `i` has key `i`, spare
    /// `i` has key `2 x slots + i`.
    #[must_use]
    pub fn new(assembly: &Assembly, seats: Vec<Option<Superblock>>, spares: Vec<Superblock>) -> Self {
        let slots = assembly.slots.len();
        let known =
            |superblock, holds| Known { superblock, before: None, holds, bad_outside: false, number: None };
        let seated = |(seat, superblock): (u16, Option<Superblock>)| {
            let superblock = as_far_as_rebuilt(superblock?, assembly.slots.get(usize::from(seat)));
            Some(known(superblock, Holds::Seat(MemberIx(seat))))
        };
        let mut devices: Vec<_> = (0..).zip(seats).map(seated).collect();
        devices.resize_with(2 * slots, || None);
        let uneven = devices.iter().flatten().any(|known| known.superblock.events() != assembly.array.events);
        devices.extend(spares.into_iter().map(|superblock| Some(known(superblock, Holds::Spare))));
        // Members of the freshest generation may disagree after a crash; assembly took the least
        // that one of them says.
        let resync_offset = match assembly.state {
            SyncState::Clean => CLEAN,
            SyncState::Dirty => 0,
            SyncState::Resyncing { below_sectors } => below_sectors,
        };
        let seats: Vec<_> = (0..2 * slots).map(|seat| seat_as_found(assembly, seat, &devices)).collect();
        let in_sync = |slot: u16| {
            let in_seat = seats[usize::from(slot)].state == MemberState::InSync;
            let known = devices[usize::from(slot)].as_ref().filter(|_| in_seat)?;
            Some(SeatedMember::new(&SuperblockFacts::of(&known.superblock), slot))
        };
        Self {
            slots,
            in_sync_at_start: (0..slots as u16).filter_map(in_sync).collect(),
            seats,
            devices,
            roles: assembly.array.roles.clone(),
            events: assembly.array.events,
            resync_offset,
            uneven,
            may_go_back: false,
        }
    }

    /// The event count on disk.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What each device number is.
    #[must_use]
    pub fn roles(&self) -> &[DeviceRole] {
        &self.roles
    }

    /// The member in each seat, as of the last record: the slots, then a replacement for each.
    #[must_use]
    pub fn seats(&self) -> &[SeatRecord] {
        &self.seats
    }

    /// Takes note of the bad sectors that assembly found on a member.
    pub(super) fn set_bad(&mut self, seat: MemberIx, bad: BadRanges) {
        if let Some(who) = self.seats.get_mut(seat.index()) {
            who.bad = Arc::new(bad);
        }
    }

    /// Gives a device that is in no seat another superblock to have, and makes a spare of it or
    /// none.
    pub fn prepare(&mut self, key: MemberKey, superblock: Superblock, spare: bool) {
        if let Some(known) = self.known_mut(key) {
            known.superblock = superblock;
            known.holds = if spare { Holds::Spare } else { Holds::Nothing };
        }
    }

    /// Gives a device other flags.
    pub fn set_flags(&mut self, key: MemberKey, flags: DeviceFlags) {
        if let Some(known) = self.known_mut(key) {
            known.superblock.set_device_flags(flags);
        }
    }

    /// Where members and spares have their bitmap from the next round on, in sectors from the
    /// superblock; `None` for none.
    pub(super) fn set_bitmap(&mut self, offset_sectors: Option<i32>) {
        for known in self.devices.iter_mut().flatten().filter(|known| known.holds != Holds::Nothing) {
            // 0.90 knows one place, and a new bitmap of it is there.
            let _ = known.superblock.set_bitmap_offset(offset_sectors);
        }
    }

    /// Takes in a device with the superblock it is to have; it is written with the first round that
    /// has it in a seat, and as a spare with the next change of members otherwise.
    pub fn admit(&mut self, superblock: Superblock, spare: bool) -> MemberKey {
        let holds = if spare { Holds::Spare } else { Holds::Nothing };
        self.devices.push(Some(Known { superblock, before: None, holds, bad_outside: false, number: None }));
        MemberKey(self.devices.len() as u32 - 1)
    }

    /// Forgets a device that is in no seat; its number is free again, unless it has come back with
    /// it meanwhile. That it failed stays recorded: at the next start it would be one that was just
    /// not there, and come back as it is. Its number is given away once no other is free.
    pub fn forget(&mut self, key: MemberKey) {
        let Some(known) = self.devices.get_mut(key.0 as usize).and_then(Option::take) else { return };
        let number = known.superblock.dev_number();
        let taken = self.devices.iter().flatten().any(|other| other.superblock.dev_number() == number);
        let role = self.roles.get_mut(number as usize).filter(|role| **role != DeviceRole::Faulty);
        if !taken && let Some(role) = role {
            *role = DeviceRole::Spare;
        }
    }

    /// The superblock of a device, as of the last round.
    #[must_use]
    pub fn superblock(&self, key: MemberKey) -> Option<&Superblock> {
        self.known(key).map(|known| &known.superblock)
    }

    /// The members of slots that were in sync when the array was assembled.
    #[must_use]
    pub fn in_sync_at_start(&self) -> &[SeatedMember] {
        &self.in_sync_at_start
    }

    /// What devices that were working members and are not any more were left with: the superblock
    /// of the last round that each was part of, or of the one before if that did not reach it.
    pub fn left_with(&self) -> impl Iterator<Item = &Superblock> {
        let out = self.devices.iter().flatten().filter(|known| known.holds == Holds::Nothing);
        out.flat_map(|known| [Some(&known.superblock), known.before.as_deref()]).flatten()
    }

    /// Every device that is known, with its superblock.
    pub fn devices(&self) -> impl Iterator<Item = (MemberKey, &Superblock)> {
        (0..)
            .zip(&self.devices)
            .filter_map(|(key, known)| Some((MemberKey(key), &known.as_ref()?.superblock)))
    }

    pub(super) fn known(&self, key: MemberKey) -> Option<&Known> {
        self.devices.get(key.0 as usize)?.as_ref()
    }

    pub(super) fn known_mut(&mut self, key: MemberKey) -> Option<&mut Known> {
        self.devices.get_mut(key.0 as usize)?.as_mut()
    }

    /// Devices that were working members in the last round.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (MemberIx, MemberKey, &Known)> {
        (0..).zip(&self.devices).filter_map(|(key, known)| match known.as_ref()? {
            known @ Known { holds: Holds::Seat(seat), .. } => Some((*seat, MemberKey(key), known)),
            _ => None,
        })
    }

    /// The superblocks that record `record`, and the state when they are written. The state holds
    /// whether or not all of them arrive: what may be on disk counts.
    ///
    /// # Errors
    /// Seats whose member cannot be recorded in superblocks of this version.
    pub fn next(&self, record: &ArrayRecord, now: WallTime) -> Result<(Self, Round), MemberSet> {
        let mut next = self.clone();
        let mut newcomers = MemberSet::EMPTY;
        let mut promoted = MemberSet::EMPTY;
        for known in next.devices.iter_mut().flatten() {
            if matches!(known.holds, Holds::Seat(_)) {
                known.holds = Holds::Nothing;
            }
        }
        for (seat, who) in seats_of(record) {
            let Some(known) = who.key.and_then(|key| next.known_mut(key)) else { continue };
            if !who.state.writable() {
                known.holds = Holds::Nothing;
                continue;
            }
            known.holds = Holds::Seat(seat);
            let was = who.key.and_then(|key| self.known(key)).map(|known| known.holds);
            if !matches!(was, Some(Holds::Seat(_))) {
                newcomers.insert(seat);
            } else if was != Some(Holds::Seat(seat)) {
                promoted.insert(seat);
            }
        }

        let (roles, base) = self.wanted_roles(&next, record)?;
        next.roles = roles;
        let numbers = base.as_ref().map(|base| &base.numbers);
        let mut same_members = next.roles == self.roles && newcomers.is_empty() && promoted.is_empty();
        let mut refused = MemberSet::EMPTY;
        for (seat, who) in seats_of(record).filter(|(_, who)| who.state.writable()) {
            let replacement = seat.index() >= self.slots;
            let Some(known) = who.key.and_then(|key| next.known_mut(key)) else { continue };
            let bad = !who.bad.is_empty() || known.bad_outside;
            let before = (known.superblock.features(), known.superblock.recovery_offset());
            if set_recovery(&mut known.superblock, who, bad, replacement).is_err() {
                refused.insert(seat);
            }
            same_members &= before == (known.superblock.features(), known.superblock.recovery_offset());
        }
        if !refused.is_empty() {
            return Err(refused);
        }

        let degraded = seats_of(record).any(|(seat, who)| match who.state {
            MemberState::InSync => false,
            MemberState::Rebuilding { .. } => true,
            MemberState::Missing | MemberState::Faulty => seat.index() < self.slots,
        });
        let flip = matches!(record.change, RecordCause::Activate | RecordCause::Deactivate)
            && same_members
            && !degraded;
        let synced = record.synced_below == Sector::MAX;
        let goes_back =
            self.may_go_back && flip && !record.dirty && !self.has_bitmap() && synced && self.events > 1;
        next.events = if goes_back { self.events - 1 } else { self.events + 1 };
        // The generation that it may go back to must say what it said.
        next.may_go_back = flip && record.dirty && self.resync_offset == CLEAN;
        next.resync_offset = if record.dirty { 0 } else { record.synced_below.0 };

        next.seats.clone_from(&record.seats);
        let round = next.round(
            self,
            flip,
            &newcomers,
            &promoted,
            base.as_ref().map(|base| &base.table),
            numbers,
            now,
        );
        Ok((next, round))
    }

    /// Puts the state into the superblocks, and sorts them.
    #[expect(clippy::too_many_arguments, reason = "the parts of one decision")]
    fn round(
        &mut self,
        before: &Self,
        flip: bool,
        newcomers: &MemberSet,
        promoted: &MemberSet,
        table: Option<&Superblock>,
        numbers: Option<&Vec<u32>>,
        now: WallTime,
    ) -> Round {
        let (events, resync_offset, slots) = (self.events, self.resync_offset, self.slots);
        let utime = Timestamp { secs: now.secs, micros: now.micros };
        let roles = self.roles.clone();
        let mut round = Round::default();
        for (key, known) in self.devices.iter_mut().enumerate() {
            let Some(known) = known else { continue };
            let (key_of, number) = (MemberKey(key as u32), numbers.map(|numbers| numbers[key]));
            known.number = number.filter(|_| known.holds == Holds::Nothing);
            let renew = |superblock: &mut Superblock| {
                match (table, number) {
                    (Some(table), Some(number)) => follow(superblock, table, number),
                    _ => set_roles(superblock, &roles),
                }
                superblock.set_events(events);
                superblock.set_resync_offset(resync_offset);
                superblock.set_utime(utime);
            };
            match known.holds {
                Holds::Nothing => {}
                Holds::Spare if flip => {}
                Holds::Spare => {
                    whole(&mut known.superblock);
                    renew(&mut known.superblock);
                    round.spares.push((key_of, known.superblock.clone()));
                }
                Holds::Seat(seat) => {
                    if newcomers.contains(seat) {
                        let seed = before.seed(&known.superblock, seat.index() >= slots);
                        round.seeds.push(SuperblockWrite { seat, key: key_of, superblock: seed });
                    }
                    let had_slot = matches!(known.superblock.role(), DeviceRole::Active(_));
                    known.before = Some(Arc::new(known.superblock.clone()));
                    renew(&mut known.superblock);
                    let write = SuperblockWrite { seat, key: key_of, superblock: known.superblock.clone() };
                    match () {
                        // In 0.90 a member is new to its slot when it is whole.
                        () if newcomers.contains(seat) || !had_slot => round.newcomers.push(write),
                        () if promoted.contains(seat) => round.promoted.push(write),
                        () => round.members.push(write),
                    }
                }
            }
        }
        let by_seat = |write: &SuperblockWrite| write.seat;
        round.seeds.sort_by_key(by_seat);
        round.members.sort_by_key(by_seat);
        round.newcomers.sort_by_key(by_seat);
        round
    }

    /// What a newcomer says before the others know it: a spare of the generation that is on disk,
    /// rebuilt nowhere. One event behind those that already name it in its slot, it is what they
    /// say it is, from its start.
    fn seed(&self, superblock: &Superblock, replacement: bool) -> Superblock {
        let mut seed = superblock.clone();
        if seed.version().is_1x() {
            set_roles(&mut seed, &self.roles);
            let own = seed.dev_number();
            set_role(&mut seed, own, DeviceRole::Spare);
            let spare = SeatRecord {
                key: None,
                state: MemberState::Rebuilding { valid_below: Sector(0) },
                by_regions: false,
                bad: Arc::default(),
            };
            set_recovery(&mut seed, &spare, false, replacement).expect("version 1 has these fields");
        }
        seed.set_events(self.events);
        seed.set_resync_offset(self.resync_offset);
        seed
    }

    /// The present generation once more, for every member in use but those that `failed`: what
    /// comes next is at most one event ahead of all of them, so that a crash in it leaves no member
    /// stale.
    pub(super) fn level(&self, failed: &MemberSet) -> Round {
        // What has one count of events has one time.
        let utime = self.in_use().map(|(_, _, known)| known.superblock.utime());
        let utime = utime.max_by_key(|time| (time.secs, time.micros)).unwrap_or_default();
        let again = |(seat, key, known): (MemberIx, MemberKey, &Known)| {
            let mut superblock = known.superblock.clone();
            set_roles(&mut superblock, &self.roles);
            superblock.set_events(self.events);
            superblock.set_resync_offset(self.resync_offset);
            superblock.set_utime(utime);
            (!failed.contains(seat)).then_some(SuperblockWrite { seat, key, superblock })
        };
        let mut members: Vec<_> = self.in_use().filter_map(again).collect();
        members.sort_by_key(|write| write.seat);
        Round { members, ..Round::default() }
    }

    /// The same, and not all members have it.
    pub(super) fn made_uneven(self) -> Self {
        Self { uneven: true, may_go_back: false, ..self }
    }

    fn has_bitmap(&self) -> bool {
        self.in_use().any(|(_, _, known)| known.superblock.features().contains(Features::BITMAP))
    }

    /// The role table of the next round: as known, and none in a slot but the members that are
    /// there. For 0.90, where numbers follow roles, with a superblock that has the table and the
    /// number of each device in it.
    fn wanted_roles(
        &self,
        next: &Self,
        record: &ArrayRecord,
    ) -> Result<(Vec<DeviceRole>, Option<Base>), MemberSet> {
        let old = self.in_use().next().is_some_and(|(_, _, known)| !known.superblock.version().is_1x());
        let mut roles: Vec<DeviceRole> = self
            .roles
            .iter()
            .map(|role| if matches!(role, DeviceRole::Active(_)) { DeviceRole::Spare } else { *role })
            .collect();
        // What failed stays recorded as that when it has left its seat, until it is a spare again.
        for known in next.devices.iter().flatten().filter(|known| known.holds == Holds::Spare) {
            if let Some(role) = roles.get_mut(known.superblock.dev_number() as usize) {
                *role = DeviceRole::Spare;
            }
        }
        let mut wanted: Vec<Option<DeviceRole>> = vec![None; next.devices.len()];
        for (seat, who) in seats_of(record) {
            let Some(known) = who.key.and_then(|key| next.known(key)) else { continue };
            let slot = (seat.index() % self.slots) as u16;
            let role = match who.state {
                MemberState::Missing => continue,
                MemberState::Faulty => DeviceRole::Faulty,
                // 0.90 cannot say how far a member is rebuilt, nor that it replaces another.
                MemberState::Rebuilding { .. } if old => DeviceRole::Spare,
                MemberState::InSync if old && seat.index() >= self.slots => DeviceRole::Spare,
                MemberState::Rebuilding { .. } | MemberState::InSync => DeviceRole::Active(slot),
            };
            wanted[who.key.map_or(0, |key| key.0 as usize)] = Some(role);
            let number = known.superblock.dev_number() as usize;
            if roles.len() <= number && number < usize::from(u16::MAX) {
                roles.resize(number + 1, DeviceRole::Spare);
            }
            if let Some(entry) = roles.get_mut(number) {
                *entry = role;
            }
        }
        if !old {
            return Ok((roles, None));
        }
        let base = self.base_090(next, &wanted, record)?;
        Ok(((0..self.roles.len() as u32).map(|number| base.table.role_of(number)).collect(), Some(base)))
    }

    /// The table of a 0.90 array with every device in the place of its role.
    fn base_090(
        &self,
        next: &Self,
        wanted: &[Option<DeviceRole>],
        record: &ArrayRecord,
    ) -> Result<Base, MemberSet> {
        let freshest = self.in_use().max_by_key(|(_, _, known)| known.superblock.events());
        let mut table = freshest.map(|(_, _, known)| known.superblock.clone()).ok_or(MemberSet::EMPTY)?;
        let raid_disks = table.raid_disks();
        let mut numbers: Vec<u32> = next
            .devices
            .iter()
            .map(|known| known.as_ref().map_or(0, |k| k.number.unwrap_or(k.superblock.dev_number())))
            .collect();
        // Members that held a slot and have none any more.
        for number in 0..raid_disks {
            let held = matches!(table.role_of(number), DeviceRole::Active(_));
            let known = (0..numbers.len()).any(|key| numbers[key] == number && wanted[key].is_some());
            if held && !known {
                table.remove_device(number).expect("slots are in the table");
            }
        }
        let listed = |table: &Superblock, number| {
            table.descriptor(number).is_some_and(|descriptor| descriptor.is_present())
        };
        let mut failed = MemberSet::EMPTY;
        // Members that leave a slot first, then those that take one.
        for takes_slot in [false, true] {
            for (key, known) in next.devices.iter().enumerate() {
                let Some(known) = known else { continue };
                let number = numbers[key];
                let role = match (wanted[key], known.holds) {
                    (Some(role), _) => role,
                    (None, Holds::Spare) => DeviceRole::Spare,
                    (None, _) => {
                        if number >= raid_disks && listed(&table, number) {
                            table.remove_device(number).expect("it is in the table");
                        }
                        continue;
                    }
                };
                let right = table.role_of(number) == role && listed(&table, number);
                if right || matches!(role, DeviceRole::Active(_)) != takes_slot {
                    continue;
                }
                match table.set_role(number, role) {
                    Ok(number) => numbers[key] = number,
                    Err(_) => seats_of(record)
                        .filter(|(_, who)| who.key == Some(MemberKey(key as u32)))
                        .for_each(|(seat, _)| failed.insert(seat)),
                }
            }
        }
        if failed.is_empty() { Ok(Base { table, numbers }) } else { Err(failed) }
    }
}

/// The table of a 0.90 array, and the number of each device in it by key.
struct Base {
    table: Superblock,
    numbers: Vec<u32>,
}

/// What assembly found in a seat.
fn seat_as_found(assembly: &Assembly, seat: usize, devices: &[Option<Known>]) -> SeatRecord {
    let there = devices[seat].is_some();
    let rebuilding = |sectors| MemberState::Rebuilding { valid_below: Sector(sectors) };
    let (state, by_regions) = match assembly.slots.get(seat) {
        _ if !there => (MemberState::Missing, false),
        Some(Slot::Rebuilding { valid_below_sectors, by_bitmap, .. }) => {
            (rebuilding(*valid_below_sectors), *by_bitmap)
        }
        Some(_) => (MemberState::InSync, false),
        None => {
            let who = assembly.replacements.get(seat - assembly.slots.len()).copied().flatten();
            (rebuilding(who.map_or(0, |who| who.valid_below_sectors)), false)
        }
    };
    let key = there.then_some(MemberKey(seat as u32));
    SeatRecord { key, state, by_regions, bad: Arc::default() }
}

fn seats_of(record: &ArrayRecord) -> impl Iterator<Item = (MemberIx, &SeatRecord)> {
    (0..).map(MemberIx).zip(&record.seats)
}

/// The superblock of a member that is rebuilt as far as `slot` says. One that was a spare when the
/// others gave it its slot does not say so itself, and would count as whole once it is in the slot.
/// 0.90 cannot say so: such a member stays a spare on disk.
fn as_far_as_rebuilt(mut superblock: Superblock, slot: Option<&Slot>) -> Superblock {
    if let Some(Slot::Rebuilding { valid_below_sectors, .. }) = slot
        && superblock.version().is_1x()
    {
        superblock.set_recovery_offset(Some(*valid_below_sectors)).expect("version 1 has the field");
    }
    superblock
}

/// How much of a device is current, what it is for, and whether its bad-block log has entries.
fn set_recovery(
    superblock: &mut Superblock,
    who: &SeatRecord,
    bad: bool,
    replacement: bool,
) -> Result<(), SetError> {
    if !superblock.version().is_1x() {
        return if bad { superblock.add_features(Features::BAD_BLOCKS) } else { Ok(()) };
    }
    whole(superblock);
    if let MemberState::Rebuilding { valid_below } = who.state {
        superblock.set_recovery_offset(Some(valid_below.0))?;
        if who.by_regions {
            superblock.add_features(Features::RECOVERY_BITMAP)?;
        }
    }
    if replacement {
        superblock.add_features(Features::REPLACEMENT)?;
    }
    superblock.clear_features(Features::BAD_BLOCKS);
    if bad { superblock.add_features(Features::BAD_BLOCKS) } else { Ok(()) }
}

/// Takes back what [`set_recovery`] says of content and purpose.
fn whole(superblock: &mut Superblock) {
    if superblock.version().is_1x() {
        superblock.set_recovery_offset(None).expect("version 1 has the field");
        superblock.clear_features(RECOVERY);
    }
}

fn follow(superblock: &mut Superblock, table: &Superblock, number: u32) {
    superblock.follow(table, number).expect("numbers come from the same table");
}

/// Gives every device its role in one superblock.
fn set_roles(superblock: &mut Superblock, roles: &[DeviceRole]) {
    for (dev_number, &role) in (0..).zip(roles) {
        set_role(superblock, dev_number, role);
    }
}

/// Gives a device its role in one superblock. In 0.90 only slots are touched: entries behind them
/// follow by themselves.
pub(super) fn set_role(superblock: &mut Superblock, dev_number: u32, role: DeviceRole) {
    let follows = !superblock.version().is_1x() && dev_number >= superblock.raid_disks();
    if follows || superblock.role_of(dev_number) == role {
        return;
    }
    let set = match role {
        DeviceRole::Spare => superblock.remove_device(dev_number),
        role => superblock.set_role(dev_number, role).map(|_| ()),
    };
    set.expect("a role that one superblock of the array stores fits into the others");
}
