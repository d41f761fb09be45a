//! The state of an array's members, and how events change it. Pure: the home core applies, every core keeps a copy.

use crate::geometry::Geometry;
use crate::units::{MemberIx, MemberSet, Sector};

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Current everywhere.
    InSync,
    /// Takes every write; its content is current below `valid_below` (member data sectors) only.
    Rebuilding {
        /// First data sector that is not rebuilt yet.
        valid_below: Sector,
    },
    /// Nothing is in the slot.
    Missing,
    /// Its member failed while the array was served, or was found failed. Never read, never written.
    Faulty,
}

impl MemberState {
    /// Whether the member takes writes.
    #[must_use]
    pub fn writable(self) -> bool {
        matches!(self, Self::InSync | Self::Rebuilding { .. })
    }

    /// Whether the member's data sectors below `end` are current.
    #[must_use]
    pub fn readable_to(self, end: Sector) -> bool {
        match self {
            Self::InSync => true,
            Self::Rebuilding { valid_below } => end <= valid_below,
            Self::Missing | Self::Faulty => false,
        }
    }
}

/// The members' states and what follows from them. Immutable; a change makes a new one with a higher epoch.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    /// Counts changes. An acknowledgement waits until the epoch its plan was made in is recorded on disk.
    pub epoch: u64,
    /// By slot.
    pub members: Vec<MemberState>,
    /// Slots that failed since the array was started.
    pub failed: MemberSet,
    /// More failed than redundancy covers. Members that failed last are not recorded as failed: what they hold may be all
    /// there is.
    pub broken: bool,
    /// Every member is [`MemberState::InSync`]: reads need not ask.
    pub optimal: bool,
}

/// What can happen to the members of a running array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Members failed a write, a flush or a superblock update, or are gone, or the operator said so.
    Failed(MemberSet),
    /// Something was lost that redundancy cannot make up for.
    Broke,
}

impl Health {
    pub fn new(members: Vec<MemberState>) -> Self {
        let optimal = members.iter().all(|&state| state == MemberState::InSync);
        Self { epoch: 0, members, failed: MemberSet::default(), broken: false, optimal }
    }

    /// Slots whose member is not in sync.
    pub fn lost(&self) -> MemberSet {
        self.slots(|state| state != MemberState::InSync)
    }

    /// Slots whose member takes writes.
    pub fn writable(&self) -> MemberSet {
        self.slots(MemberState::writable)
    }

    fn slots(&self, is: impl Fn(MemberState) -> bool) -> MemberSet {
        (0..).zip(&self.members).filter(|&(_, &state)| is(state)).map(|(slot, _)| MemberIx(slot)).collect()
    }

    /// The state after `event`. Parity that is not trusted makes up for no member: to record one as failed would give its
    /// data up for good, while a broken array keeps it for the next start.
    pub fn apply(&self, geometry: &Geometry, parity_trusted: bool, event: Event) -> Self {
        let mut next = Self { epoch: self.epoch + 1, ..self.clone() };
        match event {
            Event::Broke => next.broken = true,
            Event::Failed(slots) if !parity_trusted || !geometry.survives(&self.lost().union(&slots)) => {
                next.broken = true;
            }
            Event::Failed(slots) => {
                for slot in slots.iter() {
                    next.members[usize::from(slot.0)] = MemberState::Faulty;
                    next.failed.insert(slot);
                }
                next.optimal = false;
            }
        }
        next
    }
}
