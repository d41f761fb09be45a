//! What a served array is, as far as it never changes while it runs.

use wattle_control::events::slots_view;
use wattle_control::facts::Features;
use wattle_control::start::Claimed;
use wattle_control::{Assembly, Slot, shell_word};
use wattle_engine::MemberState;
use wattle_engine::geometry::{Geometry, LevelKind, layout_name};
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};

use super::report;
use crate::protocol::report::RecordedReport;
use crate::protocol::why::DecisionReport;

/// An array.
#[derive(Debug, Clone)]
pub struct ServedFacts {
    /// Its name.
    pub name: String,
    /// Absent without metadata.
    pub uuid: Option<String>,
    /// Its map.
    pub geometry: Geometry,
    /// The version of the superblocks; absent without metadata.
    pub metadata: Option<String>,
    /// What makes parity and copies agree after a crash: `bitmap`, `ppl`, `resync`, or `none` where
    /// there is nothing to agree.
    pub consistency: &'static str,
    /// Why it is read-only or not redundant, which checks were overridden.
    pub notes: Vec<String>,
    /// What was decided about it and its members.
    pub decisions: Vec<DecisionReport>,
    /// Nothing is recognised on it at the start.
    pub is_blank: bool,
    /// What the superblocks said at the start; absent without metadata.
    pub recorded: Option<Box<RecordedReport>>,
    /// What is below the one member that an array in the middle of a reshape is served as.
    pub joined: Option<Box<JoinedFacts>>,
}

/// An array that is read by two geometries, as it was at the start.
#[derive(Debug, Clone)]
pub struct JoinedFacts {
    /// Its level, the same before and after.
    pub level: String,
    /// By slot, as arrays show them.
    pub slots: String,
    /// How many slots are not in sync.
    pub degraded: usize,
}

impl JoinedFacts {
    fn of(assembly: &Assembly) -> Option<Self> {
        assembly.reshape.as_ref()?;
        let states = assembly.slots.iter().map(|slot| match *slot {
            Slot::Missing => MemberState::Missing,
            Slot::InSync { .. } => MemberState::InSync,
            Slot::Rebuilding { valid_below_sectors, .. } => {
                MemberState::Rebuilding { valid_below: Sector(valid_below_sectors) }
            }
        });
        Some(Self {
            level: assembly.geometry.as_ref()?.level().to_string(),
            slots: slots_view(&states.collect::<Vec<_>>()),
            degraded: assembly.degraded(),
        })
    }
}

impl ServedFacts {
    /// Its name as a word of a command.
    pub fn word(&self) -> String {
        shell_word(&self.name)
    }

    /// The facts of an array with metadata.
    pub fn of_claimed(claimed: &Claimed) -> Self {
        let assembly = claimed.assembly();
        let geometry = claimed.served_geometry().expect("an array that is not refused has a geometry");
        let overridden = assembly.overridden.iter().map(|reason| format!("overridden: {reason}"));
        // An array that is served read-write is resynced, and then it is not unsynced any more.
        let unsynced = assembly.unsynced_note().filter(|_| claimed.read_only()).map(str::to_owned);
        let notes =
            assembly.problems().into_iter().map(|problem| format!("{} ({})", problem.what, problem.code));
        Self {
            uuid: Some(assembly.uuid().to_string()),
            metadata: Some(assembly.array.metadata_name()),
            consistency: match geometry.kind() {
                LevelKind::Striped => "none",
                _ if assembly.array.features.intersects(Features::PPL | Features::MULTIPLE_PPLS) => "ppl",
                _ if assembly.bitmap.is_some() => "bitmap",
                _ => "resync",
            },
            recorded: report::recorded(claimed.superblocks()).map(Box::new),
            joined: JoinedFacts::of(assembly).map(Box::new),
            notes: overridden.chain(unsynced).chain(notes).collect(),
            ..Self::without_metadata(assembly.name(), geometry)
        }
    }

    /// The facts of an array that ends with the process.
    pub fn without_metadata(name: &str, geometry: Geometry) -> Self {
        Self {
            name: name.to_owned(),
            uuid: None,
            geometry,
            metadata: None,
            consistency: "none",
            notes: Vec::new(),
            decisions: Vec::new(),
            is_blank: false,
            recorded: None,
            joined: None,
        }
    }

    /// How many slots it has.
    pub fn slots(&self) -> usize {
        self.geometry.raid_disks()
    }

    /// Absent where the level has none.
    pub fn chunk_bytes(&self) -> Option<u64> {
        let bytes = self.geometry.chunk().0 * SECTOR_BYTES;
        (bytes > 0).then_some(bytes)
    }

    /// Absent where the level has no choice.
    pub fn layout(&self) -> Option<String> {
        layout_name(self.geometry.level(), self.geometry.layout())
    }

    /// What it uses of each member; absent where they differ.
    pub fn member_bytes(&self) -> Option<u64> {
        let size = |slot: usize| self.geometry.member_sectors(MemberIx(slot as u16)).0 * SECTOR_BYTES;
        let first = size(0);
        (1..self.slots()).all(|slot| size(slot) == first).then_some(first)
    }
}
