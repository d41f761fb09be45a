//! The state of an array's members, and how events change it. Pure: the home core applies, every
//! core keeps a copy.

use std::ops::Range;
use std::sync::Arc;

use wattle_rt::Device;

use crate::model::bad_ranges::BadRanges;
use crate::model::geometry::{Geometry, LevelKind};
use crate::model::log::LogArea;
use crate::model::regions::Regions;
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};

/// What a seat holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Current everywhere.
    InSync,
    /// Takes writes; its content is current below `valid_below` (member data sectors), and outside
    /// the regions it is known to have missed, only. Of mirrors, writes above may leave it out
    /// until the recovery comes to them.
    Rebuilding {
        /// First data sector that is not rebuilt yet.
        valid_below: Sector,
    },
    /// Nothing is in the seat.
    Missing,
    /// Its member failed while the array was served, or was found failed. Never read, never
    /// written.
    Faulty,
}

impl MemberState {
    /// Whether the member takes writes.
    #[must_use]
    pub fn writable(self) -> bool {
        matches!(self, Self::InSync | Self::Rebuilding { .. })
    }
}

/// A device's identity between the engine and what writes its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberKey(pub u32);

/// The member in a seat, and what is known of its content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seat {
    pub key: Option<MemberKey>,
    pub device: Option<Device>,
    /// Where its data area starts on the device.
    pub data_offset: Sector,
    /// Where its partial parity log is.
    pub log: Option<LogArea>,
    /// While it is rebuilding: the regions that it missed; outside them it is current. `None`: all
    /// above `valid_below`.
    pub stale: Option<Arc<Regions>>,
    /// Data sectors that hold nothing that can be read.
    pub bad: Arc<BadRanges>,
    /// How many entries its bad-block log has room for.
    pub bad_entries_max: usize,
    /// Of copies: it is read only where no other one can be.
    pub write_mostly: bool,
    /// The version of the health in which it took the seat: tells it from the member that had the
    /// seat before, or itself at another time.
    pub since: u64,
}

/// Where parity and copies are known to agree. Positions are in the unit of md's `resync_offset`:
/// member data sectors, for RAID 10 array sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trust {
    /// They agree below.
    pub below: Sector,
    /// With a bitmap: they agree outside these regions.
    pub needs: Option<Arc<Regions>>,
}

impl Trust {
    /// Whether they agree in all of a range.
    pub fn covers(&self, range: Range<Sector>) -> bool {
        let start = range.start.max(self.below);
        start >= range.end || self.needs.as_ref().is_some_and(|needs| !needs.any_in(start..range.end))
    }

    /// Whether they agree everywhere below `end`.
    pub fn complete(&self, end: Sector) -> bool {
        self.covers(Sector(0)..end)
    }
}

/// The members' states and what follows from them. Immutable; a change makes a new one.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    /// Counts changes. An acknowledgement waits until the epoch its plan was made in is recorded on
    /// disk. Progress of a resync or a rebuild is no change in this sense.
    pub epoch: u64,
    /// Counts everything: what a core knows is never replaced by something older.
    pub version: u64,
    /// By seat.
    pub members: Vec<MemberState>,
    /// By seat.
    pub seats: Vec<Seat>,
    /// Seats with a failed member.
    pub failed: MemberSet,
    /// More failed than redundancy covers. Members that failed last are not recorded as failed:
    /// what they hold may be all there is.
    pub broken: bool,
    /// Every slot has a member in sync without a bad sector: reads need not ask.
    pub optimal: bool,
    pub trust: Trust,
}

/// What can happen to the members of a running array.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Members failed a write, a flush or a superblock update, or are gone, or the operator said
    /// so.
    Failed(MemberSet),
    /// Something was lost that redundancy cannot make up for.
    Broke,
    /// A member takes an empty seat.
    Joined { seat: MemberIx, who: Seat, state: MemberState },
    /// A seat is emptied; it has no working member.
    Left(MemberIx),
    /// A member is rebuilt, durably.
    Rebuilt(MemberIx),
    /// The replacement of a slot's member is a whole copy of it, durably, and takes the slot; the
    /// member it replaces counts as failed, in the replacement's seat.
    Replaced(MemberIx),
    /// Rebuilding and resync went on.
    Progress { valid_below: Vec<(MemberIx, Sector)>, trust: Option<Trust> },
    /// What is known of a member's bad sectors changed.
    BadSectors { seat: MemberIx, bad: Arc<BadRanges> },
    /// Copies on other members are to be read before those on this one, or not any more.
    WriteMostly { seat: MemberIx, on: bool },
}

/// The member that took a seat in some version of the health. What is decided about a member and
/// applied later names it like this: by then the seat may have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub seat: MemberIx,
    /// [`Seat::since`].
    pub since: u64,
}

impl Health {
    pub fn new(members: Vec<MemberState>, seats: Vec<Seat>, trust: Trust) -> Self {
        let failed = (0..).zip(&members).filter(|(_, state)| **state == MemberState::Faulty);
        let failed = failed.map(|(seat, _)| MemberIx(seat)).collect();
        let health =
            Self { epoch: 0, version: 0, members, seats, failed, broken: false, optimal: false, trust };
        Self { optimal: health.is_optimal(), ..health }
    }

    /// Number of slots; there are as many seats for replacements behind them.
    pub fn slots(&self) -> usize {
        self.members.len() / 2
    }

    pub fn state(&self, seat: MemberIx) -> MemberState {
        self.members[seat.index()]
    }

    /// Whether a member is still in its seat.
    pub fn holds(&self, member: Occupant) -> bool {
        self.seats[member.seat.index()].since == member.since
    }

    /// Whether a member is still in its seat, being filled, and current below `end`.
    pub fn is_filled(&self, member: Occupant, end: Sector) -> bool {
        let filled =
            matches!(self.state(member.seat), MemberState::Rebuilding { valid_below } if valid_below >= end);
        filled && self.holds(member)
    }

    /// The seat of the replacement of a slot's member.
    pub fn replacement_of(&self, slot: MemberIx) -> MemberIx {
        MemberIx(slot.0 + self.slots() as u16)
    }

    /// The seats that a write to `slot` goes to: the slot's, and its replacement's.
    pub fn writable_for(&self, slot: MemberIx) -> impl Iterator<Item = MemberIx> + '_ {
        [slot, self.replacement_of(slot)].into_iter().filter(|seat| self.state(*seat).writable())
    }

    /// The device in a seat, and where on it a data sector is, in bytes.
    ///
    /// # Panics
    /// If the seat is empty: states say which are.
    pub fn place(&self, seat: MemberIx, sector: Sector) -> (&Device, u64) {
        let seat = &self.seats[seat.index()];
        let device = seat.device.as_ref().expect("a member in use has a device");
        (device, (seat.data_offset + sector).0 * SECTOR_BYTES)
    }

    /// Whether data sectors of a member are current and can be read, as far as is known.
    pub fn readable(&self, seat: MemberIx, range: Range<Sector>) -> bool {
        self.readable_at(seat, range.clone(), range)
    }

    /// Like [`Self::readable`], where regions are counted in another space: `synced` is what
    /// `range` is there. So it is on RAID 10: its regions are of array sectors.
    pub fn readable_at(&self, seat: MemberIx, range: Range<Sector>, synced: Range<Sector>) -> bool {
        let who = &self.seats[seat.index()];
        let current = match self.state(seat) {
            MemberState::InSync => true,
            MemberState::Rebuilding { valid_below } => {
                range.end <= valid_below || who.stale.as_ref().is_some_and(|stale| !stale.any_in(synced))
            }
            MemberState::Missing | MemberState::Faulty => false,
        };
        current && (who.bad.is_empty() || !who.bad.overlaps(range))
    }

    /// Whether a member can be read in some blocks of a range and not in others. `synced` as for
    /// [`Self::readable_at`].
    pub fn partly_readable(
        &self,
        seat: MemberIx,
        range: &Range<Sector>,
        synced: &Range<Sector>,
        block: Sector,
    ) -> bool {
        if self.readable_at(seat, range.clone(), synced.clone()) {
            return false;
        }
        self.parts(seat, range.clone(), synced.start, block).any(|(readable, _)| readable)
    }

    /// Cuts a range of whole blocks where it begins or ceases to be current and readable on a
    /// member, as far as is known. `synced` is where the range starts in the space of regions. A
    /// block counts as readable if all of it is.
    pub fn parts(
        &self,
        seat: MemberIx,
        range: Range<Sector>,
        synced: Sector,
        block: Sector,
    ) -> impl Iterator<Item = (bool, Range<Sector>)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            (at < range.end).then(|| {
                let synced = synced + (at - range.start);
                let (readable, end) = self.first_part(seat, at..range.end, synced, block);
                debug_assert!(at < end && end <= range.end);
                let part = at..end;
                at = end;
                (readable, part)
            })
        })
    }

    /// Whether the first block of a range is current and can be read on a member, and up to where
    /// that is so of all blocks.
    pub fn first_part(
        &self,
        seat: MemberIx,
        range: Range<Sector>,
        synced: Sector,
        block: Sector,
    ) -> (bool, Sector) {
        if planted::is(Bug::SpreadRecovery) {
            let synced = synced..synced + (range.end - range.start);
            return (self.readable_at(seat, range.clone(), synced), range.end);
        }
        let floor = |sector: Sector| Sector(sector.0 / block.0 * block.0);
        let who = &self.seats[seat.index()];
        let end = match self.state(seat) {
            MemberState::Missing | MemberState::Faulty => return (false, range.end),
            MemberState::InSync => range.end,
            MemberState::Rebuilding { valid_below } if range.start < floor(valid_below) => {
                range.end.min(floor(valid_below))
            }
            MemberState::Rebuilding { .. } => {
                let Some(stale) = &who.stale else { return (false, range.end) };
                let (is_stale, len) = alike(stale, synced..synced + (range.end - range.start), block);
                if is_stale {
                    return (false, range.start + len);
                }
                range.start + len
            }
        };
        match who.bad.first_in(&(range.start..end)) {
            None => (true, end),
            Some(bad) if floor(bad.start) > range.start => (true, floor(bad.start)),
            Some(bad) => (false, floor(bad.end + block - Sector(1)).min(end)),
        }
    }

    /// Slots without a member in sync.
    pub fn lost(&self) -> MemberSet {
        (0..self.slots() as u16)
            .map(MemberIx)
            .filter(|slot| self.state(*slot) != MemberState::InSync)
            .collect()
    }

    /// Seats with a member that takes writes.
    pub fn writable(&self) -> MemberSet {
        (0..self.members.len() as u16).map(MemberIx).filter(|seat| self.state(*seat).writable()).collect()
    }

    /// Seats with a member that is being filled.
    pub fn rebuilding(&self) -> impl Iterator<Item = (MemberIx, Sector)> + '_ {
        (0..).zip(&self.members).filter_map(|(seat, state)| match state {
            MemberState::Rebuilding { valid_below } => Some((MemberIx(seat), *valid_below)),
            _ => None,
        })
    }

    fn is_optimal(&self) -> bool {
        self.lost().is_empty() && self.seats[..self.slots()].iter().all(|seat| seat.bad.is_empty())
    }

    /// Whether a slot has a member in sync that was not in sync in it before.
    pub fn more_whole_than(&self, before: &Self) -> bool {
        (0..self.slots()).any(|slot| {
            let in_sync = |health: &Self| {
                (health.members[slot] == MemberState::InSync).then_some(health.seats[slot].since)
            };
            in_sync(self).is_some() && in_sync(self) != in_sync(before)
        })
    }

    /// Whether all parity is known to be right; what is not known to be right replaces no member.
    /// Copies always do.
    pub fn parity_trusted(&self, geometry: &Geometry) -> bool {
        geometry.kind() != LevelKind::Parity || self.trust.complete(geometry.sync_sectors())
    }

    /// The state after `event`. Parity that is not trusted makes up for no member: to record one as
    /// failed would give its data up for good, while a broken array keeps it for the next start.
    pub fn apply(&self, geometry: &Geometry, event: Event) -> Self {
        let progress = matches!(event, Event::Progress { .. });
        let mut next =
            Self { epoch: self.epoch + u64::from(!progress), version: self.version + 1, ..self.clone() };
        match event {
            Event::Broke => next.broken = true,
            Event::Failed(seats) => {
                let lost = self.lost();
                let slots: MemberSet = seats.iter().filter(|seat| seat.index() < self.slots()).collect();
                let new = slots.without(&lost);
                if !new.is_empty()
                    && (!self.parity_trusted(geometry) || !geometry.survives(&lost.union(&slots)))
                {
                    next.broken = true;
                    return next;
                }
                for seat in seats.iter() {
                    next.members[seat.index()] = MemberState::Faulty;
                    next.failed.insert(seat);
                }
            }
            Event::Joined { seat, who, state } => {
                next.failed.remove(seat);
                next.members[seat.index()] = state;
                next.seats[seat.index()] = Seat { since: next.version, ..who };
            }
            Event::Left(seat) => next.empty(seat),
            Event::Rebuilt(seat) => {
                next.members[seat.index()] = MemberState::InSync;
                next.seats[seat.index()].stale = None;
            }
            Event::Replaced(slot) => {
                let replacement = self.replacement_of(slot);
                next.seats.swap(slot.index(), replacement.index());
                next.seats[slot.index()].stale = None;
                next.seats[slot.index()].since = next.version;
                next.seats[replacement.index()].since = next.version;
                next.members[slot.index()] = MemberState::InSync;
                next.failed.remove(slot);
                if next.seats[replacement.index()].device.is_some() {
                    next.members[replacement.index()] = MemberState::Faulty;
                    next.failed.insert(replacement);
                } else {
                    // The member it replaces was taken out meanwhile.
                    next.empty(replacement);
                }
            }
            Event::Progress { valid_below, trust } => {
                for (seat, to) in valid_below {
                    if let MemberState::Rebuilding { valid_below } = &mut next.members[seat.index()] {
                        *valid_below = to.max(*valid_below);
                    }
                }
                next.trust = trust.unwrap_or(next.trust);
            }
            Event::BadSectors { seat, bad } => next.seats[seat.index()].bad = bad,
            Event::WriteMostly { seat, on } => next.seats[seat.index()].write_mostly = on,
        }
        next.optimal = next.is_optimal();
        next
    }

    fn empty(&mut self, seat: MemberIx) {
        self.failed.remove(seat);
        self.members[seat.index()] = MemberState::Missing;
        self.seats[seat.index()] = Seat::default();
    }
}

/// Whether the first block of a range touches one of these regions, and for how long that is so of
/// all blocks.
fn alike(regions: &Regions, range: Range<Sector>, block: Sector) -> (bool, Sector) {
    let touches = |at: Sector| regions.any_in(at..(at + block).min(range.end));
    let first = touches(range.start);
    // Whole regions at once, where these have whole blocks.
    let step = |at: Sector| match regions.size().0.is_multiple_of(block.0) {
        true => Sector((at.0 / regions.size().0 + 1) * regions.size().0),
        false => at + block,
    };
    let mut at = step(range.start);
    while at < range.end && touches(at) == first {
        at = step(at);
    }
    (first, at.min(range.end) - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(ranges: &[(u64, u64)]) -> BadRanges {
        ranges.iter().map(|&(start, len)| Sector(start)..Sector(start + len)).collect()
    }

    proptest! {
        /// The parts of a range follow one another, fill it, and say of every block what is so of
        /// this block alone.
        #[test]
        fn parts_say_of_every_block_what_is_so_of_it(
            bad in proptest::collection::vec((0u64..120, 1u64..9), 0..5),
            filling in any::<bool>(), valid_below in 0u64..140,
            stale in proptest::option::of((1u64..20, proptest::collection::vec(0u64..20, 0..6))),
            block in prop_oneof![Just(1u64), Just(8)], start in 0u64..5, blocks in 1u64..14, shift in 0u64..4,
        ) {
            let range = Sector(start * block)..Sector((start + blocks) * block);
            let synced = Sector((start + shift) * block);
            let stale = stale.map(|(size, members)| {
                let mut regions = Regions::new(Sector(size), Sector(400));
                members.into_iter().for_each(|region| regions.insert(region));
                Arc::new(regions)
            });
            let state = if filling {
                MemberState::Rebuilding { valid_below: Sector(valid_below) }
            } else {
                MemberState::InSync
            };
            let seat = Seat { bad: Arc::new(ranges(&bad)), stale, ..Seat::default() };
            let trust = Trust { below: Sector::MAX, needs: None };
            let health = Health::new(vec![state, MemberState::Missing], vec![seat, Seat::default()], trust);
            let mut end = range.start;
            for (readable, part) in health.parts(MemberIx(0), range.clone(), synced, Sector(block)) {
                prop_assert!(part.start == end && part.end > end);
                end = part.end;
                for at in (part.start.0..part.end.0).step_by(block as usize).map(Sector) {
                    let synced = synced + (at - range.start);
                    let alone = health.readable_at(MemberIx(0), at..at + Sector(block), synced..synced + Sector(block));
                    prop_assert_eq!(readable, alone, "at {}", at);
                }
            }
            prop_assert_eq!(end, range.end);
        }
    }
}
