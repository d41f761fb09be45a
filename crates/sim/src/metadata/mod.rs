//! How the state of an array is kept on its members, and read again after a restart.
//!
//! [`md`] is the real thing: md superblocks, `wattle_control`'s assembly and commits. [`tiny`] is
//! the smallest metadata that keeps the engine's promises, in one sector; it shows where a bug is,
//! and its few states can be enumerated.

pub mod md;
pub mod tiny;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_control::running::RunningArray;
use wattle_engine::intent::IntentSpec;
use wattle_engine::metadata::{Metadata, NoMetadata};
use wattle_engine::units::Sector;
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_engine::{ArrayHandle, ArraySpec, BadRanges, MemberKey, MemberSpec, MemberState, Regions};
use wattle_rt::{Buf, BufMut, Core, Device};

use crate::site::{self, Hardware, SitePlan};

/// Which metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataModel {
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

/// What a drive's metadata says, read from its drive by other code than wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRecord {
    /// Its generation.
    pub events: u64,
    /// Parity and copies agree.
    pub clean: bool,
    /// Slots that it counts out.
    pub out: MemberSet,
}

/// What assembly finds.
pub enum AssemblyFound {
    /// The array is not started.
    Refused(StartRefusal),
    /// The array can be started.
    Usable(Box<ArrayStart>),
}

/// Why an array is not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartRefusal {
    /// Parity cannot be trusted and is needed: the write hole.
    DirtyDegraded,
    /// Too few members.
    NotEnough,
    /// Anything else.
    Other(String),
}

/// The member in a seat at the start.
#[derive(Clone, Debug)]
pub struct Seating {
    /// The drive, by number.
    pub drive: Option<usize>,
    /// Its state.
    pub state: MemberState,
    /// The regions that it missed, if it is being rebuilt by them.
    pub stale: Option<Regions>,
    /// Its bad sectors.
    pub bad: BadRanges,
}

impl Seating {
    fn in_sync(drive: usize) -> Seating {
        Seating { drive: Some(drive), state: MemberState::InSync, ..Seating::empty() }
    }

    fn empty() -> Seating {
        Seating { drive: None, state: MemberState::Missing, stale: None, bad: BadRanges::NONE }
    }
}

/// An array as assembly hands it to the engine.
pub struct ArrayStart {
    /// By seat: the slots, and a replacement for each.
    pub seats: Vec<Seating>,
    /// Parity and copies agree below this.
    pub synced_below: u64,
    /// Above it, they agree outside these regions.
    pub needs: Option<Regions>,
    /// The bits of the write-intent bitmap, if the metadata does not start it itself.
    pub marked: Option<Regions>,
    /// Partial parity logs are followed first.
    pub replays: bool,
    /// Members come back, or spares are taken, without being asked for.
    pub refills: bool,
    /// It was not stopped in good order.
    pub unclean: bool,
    keep: Keep,
}

enum Keep {
    /// Levels without redundancy record nothing.
    Nothing,
    Tiny(tiny::TinyRecord, SharedBits),
    Md(Box<md::AssembledArray>),
}

/// The bits of a bitmap, shared between what keeps it and the operator that re-adds a member by
/// them.
#[derive(Clone, Debug, Default)]
pub struct SharedBits(Rc<RefCell<Option<Regions>>>);

impl SharedBits {
    fn of(regions: Option<&Regions>) -> SharedBits {
        SharedBits(Rc::new(RefCell::new(regions.cloned())))
    }

    /// As they are now.
    #[must_use]
    pub fn now(&self) -> Option<Regions> {
        self.0.borrow().clone()
    }

    fn set(&self, regions: &[u64], on: bool) {
        if let Some(bits) = self.0.borrow_mut().as_mut() {
            for &region in regions {
                if on { bits.insert(region) } else { bits.remove(region) }
            }
        }
    }

    fn bytes(&self, len: usize) -> Option<Buf> {
        let bits = self.0.borrow();
        let mut bytes = BufMut::zeroed(len);
        for bit in bits.as_ref()?.iter() {
            bytes[(bit / 8) as usize] |= 1 << (bit % 8);
        }
        Some(bytes.freeze())
    }
}

impl ArrayStart {
    fn synced_start(seats: Vec<Seating>, keep: Keep) -> ArrayStart {
        ArrayStart {
            seats,
            synced_below: u64::MAX,
            needs: None,
            marked: None,
            replays: false,
            refills: false,
            unclean: false,
            keep,
        }
    }

    /// Whether parity and copies agree.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced_below == u64::MAX || self.needs.as_ref().is_some_and(Regions::is_empty)
    }

    /// Slots whose member is in sync.
    #[must_use]
    pub fn in_sync(&self) -> MemberSet {
        let slots = self.seats.len() / 2;
        let whole = |(_, seat): &(u16, &Seating)| seat.state == MemberState::InSync;
        (0..).zip(&self.seats[..slots]).filter(whole).map(|(slot, _)| MemberIx(slot)).collect()
    }

    /// Drives that take part.
    #[must_use]
    pub fn drives(&self) -> MemberSet {
        self.seats.iter().filter_map(|seat| seat.drive).map(|drive| MemberIx(drive as u16)).collect()
    }

    /// Keeps the sums of recorded scrubs on this drive, where there is md's metadata.
    pub fn keep_sums(&mut self, drive: Device) {
        if let Keep::Md(kept) = &mut self.keep {
            kept.sums = Some(drive);
        }
    }

    /// Starts the array. `adapt` has the last word on what the engine is started from and what it
    /// records in, and is told how to find the number of the drive that a record means.
    ///
    /// # Errors
    /// What keeps the array from being started.
    pub async fn launch(
        self,
        core: &Core,
        site: &Hardware,
        plan: &SitePlan,
        adapt: impl FnOnce(ArraySpec, Box<dyn Metadata>, Keys) -> (ArraySpec, Box<dyn Metadata>),
    ) -> Result<RunningModel, String> {
        let (keep, spec) = match self.keep {
            Keep::Md(kept) => {
                let running = kept.launch(core, &site.drives, adapt).await?;
                return Ok(RunningModel {
                    array: running.handle().clone(),
                    bits: SharedBits::default(),
                    md: Some(running),
                });
            }
            keep => {
                let member = |seat: &Seating| MemberSpec {
                    state: seat.state,
                    stale: seat.stale.clone(),
                    bad: seat.bad.clone(),
                    ..seat
                        .drive
                        .map_or_else(MemberSpec::missing, |drive| site::member(&site.drives, plan, drive))
                };
                let mut members: Vec<_> = self.seats.iter().map(member).collect();
                let replacements = members.split_off(members.len() / 2);
                let spec = ArraySpec::new("sim", plan.geometry.clone(), members);
                let sweep = Duration::from_millis(20);
                let spec = ArraySpec {
                    replacements,
                    synced_below: Sector(self.synced_below),
                    needs: self.needs,
                    unclean: self.unclean,
                    intent: self.marked.map(|marked| IntentSpec { marked, sweep }),
                    ..spec
                };
                (keep, spec)
            }
        };
        let (metadata, bits): (Box<dyn Metadata>, SharedBits) = match keep {
            Keep::Tiny(record, bits) => {
                let model =
                    tiny::TinyBookkeeper::new(core, &site.drives, record, bits.clone(), site.sector_bytes);
                (Box::new(model), bits)
            }
            Keep::Nothing | Keep::Md(_) => (Box::new(NoMetadata), SharedBits::default()),
        };
        let (spec, metadata) = adapt(spec, metadata, Box::new(|key| Some(key.0 as usize)));
        Ok(RunningModel { array: ArrayHandle::start(core, spec, metadata).await, bits, md: None })
    }
}

/// Finds the number of the drive that a record means by a key.
pub type Keys = Box<dyn Fn(MemberKey) -> Option<usize>>;

/// An array that runs.
#[derive(Clone)]
pub struct RunningModel {
    /// The array.
    pub array: ArrayHandle,
    /// The bits of its bitmap, with the smallest metadata.
    pub bits: SharedBits,
    /// What control knows of it, with md's.
    pub md: Option<Rc<RunningArray>>,
}

impl MetadataModel {
    /// First data sector of each member.
    #[must_use]
    pub fn data_offset(self) -> u64 {
        match self {
            MetadataModel::Tiny => 16,
            MetadataModel::Md(version) => md::data_offset(version),
        }
    }

    /// Sectors that a drive needs for this much data.
    #[must_use]
    pub fn drive_sectors(self, data_sectors: u64) -> u64 {
        match self {
            MetadataModel::Tiny => 16 + data_sectors,
            MetadataModel::Md(version) => md::drive_sectors(version, data_sectors),
        }
    }

    /// Writes the metadata of a new, clean array.
    pub fn create(self, plan: &SitePlan, member_sectors: &[u64]) {
        match self {
            MetadataModel::Tiny => tiny::create(plan),
            MetadataModel::Md(version) => md::create(plan, version, member_sectors),
        }
    }

    /// What the array on the drives `present` (by number) is.
    #[must_use]
    pub fn assemble(self, plan: &SitePlan, present: MemberSet, lenient: Lenient) -> AssemblyFound {
        match self {
            MetadataModel::Tiny => tiny::assemble(plan, present, lenient),
            MetadataModel::Md(version) => md::assemble(plan, version, present, lenient),
        }
    }

    /// Records on `drives` that parity and copies agree.
    pub fn set_clean(self, plan: &SitePlan, drives: MemberSet) {
        match self {
            MetadataModel::Tiny => tiny::set_clean(plan, drives),
            MetadataModel::Md(version) => md::set_clean(plan, version, drives),
        }
    }

    /// What a power cut would leave of a drive's metadata; `None` if it is no metadata.
    #[must_use]
    pub fn entry(self, plan: &SitePlan, drive: usize) -> Option<DriveRecord> {
        match self {
            MetadataModel::Tiny => tiny::entry(plan, drive),
            MetadataModel::Md(version) => md::entry(plan, version, drive),
        }
    }
}
