//! How the state of an array is kept on its members, and read again after a restart.
//!
//! [`md`] is the real thing: md superblocks, `wattle_control`'s assembly and commits. [`tiny`] is the smallest metadata that
//! keeps the engine's promises, in one sector; it shows whose a bug is, and its few states can be enumerated.

pub mod md;
pub mod tiny;

use wattle_engine::metadata::Metadata;
use wattle_engine::units::Sector;
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_engine::{ArraySpec, MemberKey, MemberSpec, MemberState};
use wattle_rt::Core;

use crate::site::{Plan, Site};

/// Which metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Books {
    /// The engine alone, over a record of one sector.
    Tiny,
    /// md superblocks of this version.
    Md(wattle_format::md::Version),
}

/// Bugs that assembly can be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lenient {
    /// Takes members for current that missed events.
    pub stale: bool,
    /// Starts dirty and degraded arrays with parity trusted.
    pub dirty_degraded: bool,
}

/// What a member's metadata says, read from its drive by other code than wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its generation.
    pub events: u64,
    /// Parity and copies agree.
    pub clean: bool,
    /// Slots that it counts out.
    pub out: MemberSet,
}

/// What assembly finds.
pub enum Found {
    /// The array is not started.
    Refused(Refusal),
    /// The array can be started.
    Usable(Box<Start>),
}

/// Why an array is not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Parity cannot be trusted and is needed: the write hole.
    DirtyDegraded,
    /// Too few members.
    NotEnough,
    /// Anything else.
    Other(String),
}

/// An array as assembly hands it to the engine.
pub struct Start {
    /// By slot.
    pub states: Vec<MemberState>,
    /// Parity and copies agree below this.
    pub synced_below: u64,
    keep: Keep,
}

enum Keep {
    /// Levels without redundancy record nothing.
    Nothing,
    Tiny(tiny::Record),
    Md(Box<md::Kept>),
}

impl Start {
    /// Whether parity and copies agree.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced_below == u64::MAX
    }

    /// Slots whose member is in sync.
    #[must_use]
    pub fn in_sync(&self) -> MemberSet {
        (0..)
            .zip(&self.states)
            .filter(|(_, state)| **state == MemberState::InSync)
            .map(|(slot, _)| MemberIx(slot))
            .collect()
    }

    /// What the engine starts from.
    #[must_use]
    pub fn spec(&self, site: &Site) -> ArraySpec {
        let member = |(slot, &state): (usize, &MemberState)| MemberSpec {
            key: Some(MemberKey(slot as u32)),
            device: state.writable().then(|| site.drives[slot].clone()),
            data_offset: Sector(site.plan.data_offset),
            state,
            ..MemberSpec::missing()
        };
        let members = self.states.iter().enumerate().map(member).collect();
        let spec = ArraySpec::new("sim", site.plan.geometry.clone(), members);
        ArraySpec { synced_below: Sector(self.synced_below), ..spec }
    }

    /// What keeps the books while the array runs; `None` where there is nothing to record.
    #[must_use]
    pub fn metadata(self, core: &Core, devices: &[wattle_rt::Device]) -> Option<Box<dyn Metadata>> {
        match self.keep {
            Keep::Nothing => None,
            Keep::Tiny(record) => Some(Box::new(tiny::Keeper::new(core, devices, &self.states, record))),
            Keep::Md(kept) => Some(Box::new(kept.metadata(core, devices))),
        }
    }
}

impl Books {
    /// First data sector of each member.
    #[must_use]
    pub fn data_offset(self) -> u64 {
        match self {
            Books::Tiny => 8,
            Books::Md(version) => md::data_offset(version),
        }
    }

    /// Sectors that a drive needs for this much data.
    #[must_use]
    pub fn drive_sectors(self, data_sectors: u64) -> u64 {
        match self {
            Books::Tiny => 8 + data_sectors,
            Books::Md(version) => md::drive_sectors(version, data_sectors),
        }
    }

    /// Writes the metadata of a new, clean array.
    pub fn create(self, plan: &Plan, member_sectors: &[u64]) {
        match self {
            Books::Tiny => tiny::create(plan),
            Books::Md(version) => md::create(plan, version, member_sectors),
        }
    }

    /// What the array on the drives `present` (slots) is.
    #[must_use]
    pub fn assemble(self, plan: &Plan, present: MemberSet, lenient: Lenient) -> Found {
        match self {
            Books::Tiny => tiny::assemble(plan, present, lenient),
            Books::Md(version) => md::assemble(plan, version, present, lenient),
        }
    }

    /// Records on every drive that parity and copies agree.
    pub fn set_clean(self, plan: &Plan) {
        match self {
            Books::Tiny => tiny::set_clean(plan),
            Books::Md(version) => md::set_clean(plan, version),
        }
    }

    /// What a power cut would leave of a member's metadata; `None` if it is no metadata.
    #[must_use]
    pub fn entry(self, plan: &Plan, member: MemberIx) -> Option<Entry> {
        match self {
            Books::Tiny => tiny::entry(plan, member),
            Books::Md(version) => md::entry(plan, version, member),
        }
    }
}
