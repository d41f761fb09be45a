//! What an array is made of: a pure decision over scanned facts, with a verdict and a reason for
//! every member.
//!
//! The rules are those of docs/formats.md §1.5, in this order:
//! 1. The freshest member describes the array: of those in a slot or being the journal, the one
//!    with the most events.
//! 2. A member is current with at most one event less; being one behind, it is what the *freshest*
//!    superblock says it is, because that very update may have failed it.
//! 3. Members that describe another array, do not fit their device, or were run without the
//!    freshest one are not used; nor is one whose list of bad blocks cannot be read, as long as the
//!    others are enough: every sector of it may be lost.
//! 4. A slot has one member, and one that is being made to replace it. Two equally fresh ones of
//!    either kind are refused.
//! 5. What is known to be wrong, or not known to be right, costs access: first writing, then
//!    reading. Never less.
//!
//! `judge` has the rules about members, `slots` which member is in which place, `sync` what is
//! known of parity and copies, and which members may come back, `reshape` the two geometries of an
//! array whose reshape is not finished.
//!
//! Invariant: nothing here opens, reads or writes anything, so every case is a test with made-up
//! superblocks.

mod judge;
mod reasons;
mod reshape;
mod slots;
mod sync;

use std::ops::Range;

use wattle_engine::geometry::{Geometry, Level, LevelKind};
use wattle_engine::units::Sector;
use wattle_engine::{BadRanges, Regions};

use crate::md::facts::{CLEAN, Features, JournalEnd, JournalFacts, MemberFacts, SuperblockFacts, Uuid};
use crate::md::reason::{Reason, ReshapeSummary, Slots};
pub use crate::md::verdict::Verdict;
use crate::problem::{Check, Code, Forced, Problem};
use reasons::Reasons;
pub use reshape::{ReshapeAssembly, ReshapeSide};

/// Whether an array is used while a slot is not in sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Degraded {
    /// As far as its redundancy goes.
    #[default]
    Auto,
    /// Never: it is refused.
    Never,
}

/// What the operator wants to be so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// Checks that are overridden.
    pub forced: Forced,
    /// What to do with an array that is not whole.
    pub degraded: Degraded,
}

impl From<Forced> for Policy {
    fn from(forced: Forced) -> Self {
        Self { forced, degraded: Degraded::Auto }
    }
}

/// What may be done with an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    ReadWrite,
    /// Reading only.
    ReadOnly(Vec<Reason>),
    /// Nothing.
    Refused(Vec<Reason>),
}

/// Whether parity and copies agree with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// Everywhere.
    Clean,
    /// Nowhere for certain.
    Dirty,
    /// Below this position, in the unit of md's `resync_offset`.
    Resyncing {
        /// Sectors of a member's data; of the array for RAID 10.
        below_sectors: u64,
    },
}

impl SyncState {
    fn of(level: i32, resync_offset: u64) -> Self {
        match resync_offset {
            // Without redundancy there is nothing to agree.
            _ if !has_redundancy(level) => Self::Clean,
            CLEAN => Self::Clean,
            0 => Self::Dirty,
            below_sectors => Self::Resyncing { below_sectors },
        }
    }
}

/// A slot of the array and the member in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// No member that can be used.
    Missing,
    /// A whole member.
    InSync {
        /// Its index among the members given.
        member: usize,
    },
    /// A partly rebuilt member.
    Rebuilding {
        /// Its index among the members given.
        member: usize,
        /// Valid below this sector of its data.
        valid_below_sectors: u64,
        /// It was away, and what is not set in the bitmap is valid too ([`Assembly::bitmap`]).
        by_bitmap: bool,
    },
}

impl Slot {
    /// The index of the member in it.
    #[must_use]
    pub fn member(self) -> Option<usize> {
        match self {
            Self::Missing => None,
            Self::InSync { member } | Self::Rebuilding { member, .. } => Some(member),
        }
    }
}

/// A member that is being made to replace the one in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement {
    /// Its index among the members given.
    pub member: usize,
    /// Valid below this sector of its data; the largest number if it is whole.
    pub valid_below_sectors: u64,
}

/// Where parity and copies have to be brought in line with the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// Nowhere.
    Nothing,
    /// Everywhere.
    Everything,
    /// From here on, in the unit of md's `resync_offset`.
    Above {
        /// Sectors of a member's data; of the array for RAID 10.
        below_sectors: u64,
    },
    /// In these regions.
    Regions(Regions),
}

/// Why the bits of a bitmap are not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapDistrust {
    /// The array was run without keeping it.
    Behind {
        /// Its generation.
        events: u64,
        /// The array's.
        array_events: u64,
    },
    /// It is marked as stale.
    SaysSo,
    /// Equally fresh copies have regions of different sizes.
    Disagree,
}

/// The array's write-intent bitmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// Why its bits are not believed; `None` if they are.
    pub distrust: Option<BitmapDistrust>,
    /// The bits set on any member that is in sync; all of them if they are not believed.
    pub set: Regions,
    /// A member with at least as many events lacks only what is set.
    pub events_cleared: u64,
    /// Seconds between sweeps.
    pub sweep_secs: u32,
}

/// How much of a returning member has to be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberRecovery {
    /// All of it.
    Full,
    /// What the bitmap has bits for.
    Regions,
}

/// A member that the array went on without, and that may come back into its empty slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReAddCandidate {
    /// Its index among the members given.
    pub member: usize,
    /// Its slot.
    pub slot: u16,
    /// What has to be written.
    pub recovery: MemberRecovery,
    /// How many events it lacks.
    pub events_behind: u64,
    /// The array recorded that it failed; otherwise it was just not there. Metadata 0.90 records
    /// the same of a member that was not there.
    pub failed: bool,
    /// It lies on a volume and nothing that is in use does, or the other way around: it may be a
    /// copy that is kept there, and it waits for the operator ([`crate::ArrayScan::apart`]).
    pub apart: bool,
}

impl ReAddCandidate {
    /// Whether it comes back by itself. A member across a network is recorded as failed while it is
    /// away, which the superblocks do not tell from another failure.
    #[must_use]
    pub fn comes_by_itself(&self, is_remote: bool) -> bool {
        let has_failed = self.failed && !is_remote;
        !has_failed && !self.apart && self.recovery == MemberRecovery::Regions
    }
}

/// An array, decided.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// The freshest superblock: it describes the array.
    pub array: SuperblockFacts,
    /// The index of the member it is from.
    pub freshest: usize,
    /// Its map; `None` if it has none, for a reason in `access`. In a reshape the map of the side
    /// with more slots: what is read goes by `reshape`.
    pub geometry: Option<Geometry>,
    /// The two sides of a reshape that is not finished; such an array is only read.
    pub reshape: Option<ReshapeAssembly>,
    /// By slot.
    pub slots: Vec<Slot>,
    /// By slot, the device that is being made to replace its member.
    pub replacements: Vec<Option<Replacement>>,
    /// Indices of spares. Members that may come back into a slot of theirs are in `re_addable`
    /// instead.
    pub spares: Vec<usize>,
    /// Members that may come back, by slot, those with the most events first.
    pub re_addable: Vec<ReAddCandidate>,
    /// The bad ranges of each member given, in their order, in sectors of its data.
    pub bad: Vec<BadRanges>,
    /// What the superblocks say of parity and copies.
    pub state: SyncState,
    /// What has to be resynced; nothing where the operator vouches for it.
    pub needs: Needs,
    /// Parity and copies agree below this, in the unit of `resync_offset`; above it, outside of
    /// what `needs` names.
    pub synced_below_sectors: u64,
    /// Partial parity logs have to be replayed before anything is read or written. Only when all of
    /// that succeeded are parity and copies what `needs` says no more; an array that is degraded
    /// besides must not be used if it did not.
    pub replay_log: bool,
    /// The bitmap that has to be kept while the array is written; `None` if it has none.
    pub bitmap: Option<Bitmap>,
    /// The index of the journal, where what it holds has to be replayed before anything is read.
    pub replay_journal: Option<usize>,
    /// One for each member given, in their order.
    pub verdicts: Vec<Verdict>,
    /// What may be done, and why not more.
    pub access: Access,
    /// Refusals that the operator has overridden.
    pub overridden: Vec<Reason>,
}

impl Assembly {
    /// The name that volumes and commands use: the part behind the host.
    #[must_use]
    pub fn name(&self) -> &str {
        self.array.short_name()
    }

    /// What it holds, in sectors; `None` where that is not known.
    #[must_use]
    pub fn size_sectors(&self) -> Option<u64> {
        match &self.reshape {
            Some(reshape) => Some(reshape.size_sectors),
            None => {
                let whole = self.geometry.as_ref().map(|geometry| geometry.array_sectors().0)?;
                Some(self.ends_at_sectors().map_or(whole, |end| end.min(whole)))
            }
        }
    }

    /// Where a volume of a container ends by what that says, sectors.
    #[must_use]
    pub fn ends_at_sectors(&self) -> Option<u64> {
        self.array.container.as_ref()?.size_sectors
    }

    /// The array's UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.array.set_uuid
    }

    /// Whether parity and copies are trusted everywhere: read from the superblocks, or vouched for
    /// by the operator.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced_below_sectors == CLEAN
    }

    /// What it means that parity or copies are not trusted everywhere; `None` if they are.
    #[must_use]
    pub fn unsynced_note(&self) -> Option<&'static str> {
        let mirrored =
            Level::from_md(self.array.level).is_some_and(|level| level.kind() == LevelKind::Mirrored);
        match (self.synced(), mirrored) {
            (true, _) => None,
            (false, true) if self.array.container.is_some() => Some(
                "copies are not known to agree everywhere: what was never written, or in flight at a crash, may change when a member is lost; mdadm or the firmware resyncs them",
            ),
            (false, false) if self.array.container.is_some() => Some(
                "parity is not known to be right everywhere: a member lost now loses data there; mdadm or the firmware makes it right",
            ),
            (false, mirrored) if matches!(self.access, Access::ReadOnly(_)) && !self.replay_log => {
                Some(match mirrored {
                    true => {
                        "copies are not known to agree everywhere: what was never written, or in flight at a crash, may change when a member is lost; Linux resyncs them"
                    }
                    false => {
                        "parity is not known to be right everywhere: a member lost now loses data there; Linux makes it right"
                    }
                })
            }
            (false, _) if self.replay_log => Some(
                "parity in flight at the crash is taken from the partial parity logs, in memory: serving the array read-write makes it right on the members",
            ),
            (false, false) => Some(
                "parity is not known to be right everywhere: a member lost now loses data there; serving the array read-write resyncs it",
            ),
            (false, true) => Some(
                "copies are not known to agree everywhere: what was never written, or in flight at a crash, may change when a member is lost; serving the array read-write resyncs them",
            ),
        }
    }

    /// The bad ranges of the member in a slot, in sectors of its data.
    #[must_use]
    pub fn bad_in_slot(&self, slot: u16) -> BadRanges {
        let member = self.slots.get(usize::from(slot)).and_then(|slot| slot.member());
        member.map_or(BadRanges::NONE, |member| self.bad[member].clone())
    }

    /// What a member that was away has to have written again before it is current; `None` if that
    /// is unknown.
    #[must_use]
    pub fn stale_regions(&self) -> Option<&Regions> {
        self.bitmap.as_ref().filter(|bitmap| bitmap.distrust.is_none()).map(|bitmap| &bitmap.set)
    }

    /// Slots that are not in sync.
    #[must_use]
    pub fn degraded(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot, Slot::InSync { .. })).count()
    }

    /// Slots without a member.
    #[must_use]
    pub fn missing(&self) -> Vec<u16> {
        (0..).zip(&self.slots).filter(|(_, slot)| **slot == Slot::Missing).map(|(ix, _)| ix).collect()
    }

    /// Slots without a member that the superblocks count on. One that was recorded as empty is no
    /// emptier than it was.
    #[must_use]
    pub fn counted_on(&self) -> Vec<u16> {
        self.missing().into_iter().filter(|slot| self.array.fills(*slot)).collect()
    }

    /// Refuses to write what lies on it where that leaves members behind that it counts on.
    ///
    /// # Errors
    /// They are missing. [`Check::MissingMember`] overrides it, and so does a force that is for
    /// degraded arrays.
    pub fn check_left_behind(&self, forced: Forced) -> Result<(), Problem> {
        let missing = self.counted_on();
        let insists = forced.has(Check::MissingMember) || forced.has(Check::DirtyDegraded);
        if missing.is_empty() || insists {
            return Ok(());
        }
        let name = self.name();
        let what = format!("array {name}: not all its members are given ({})", Slots(&missing));
        let why = "its superblocks count on them; at the first write it goes on without them, with less redundancy until they are filled again";
        let next = "give all its members; --force=missing-member writes without them; if a drive is meant that is to be no member any more, \
                    erase it first (`wattle erase`)";
        Err(Problem::new(Code::Degraded, what, why, next).forced_by(Check::MissingMember))
    }

    /// Why the array is not served; `None` if it can be read.
    #[must_use]
    pub fn refusal(&self) -> Option<Problem> {
        match &self.access {
            Access::Refused(reasons) => reasons.first().map(|reason| reason.problem(self.name())),
            _ => None,
        }
    }

    /// Everything that keeps it from being written, in an operator's words; empty if nothing does.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        match &self.access {
            Access::ReadWrite => Vec::new(),
            Access::ReadOnly(reasons) | Access::Refused(reasons) => {
                reasons.iter().map(|reason| reason.problem(self.name())).collect()
            }
        }
    }
}

/// Decides what the array made of `members` is. They all have its UUID; strangers were sorted out
/// before. `None` if there is no member at all.
#[must_use]
pub fn assemble(members: &[MemberFacts], policy: impl Into<Policy>) -> Option<Assembly> {
    let freshest = judge::freshest(members)?;
    let fresh = &members[freshest];
    let array = &fresh.superblock;
    let mut verdicts: Vec<_> = members.iter().map(|member| judge::judge(member, fresh)).collect();
    let mut reasons = Reasons { policy: policy.into(), ..Reasons::default() };

    judge::check_numbers(fresh, &mut reasons);
    judge::check_agreement(members, &verdicts, fresh, &mut reasons);
    judge::check_split_brain(members, &mut verdicts, fresh, &mut reasons);

    let slot_count = if reasons.refused.is_empty() { array.slot_count() as usize } else { 0 };
    let mut filled = slots::fill_slots(members, &mut verdicts, slot_count, &mut reasons);
    let geometry = match array.reshape {
        _ if slot_count == 0 => None,
        // Members are left out by the side that needs most of them.
        Some(_) => {
            reshape::build(members, &filled.slots, fresh, &mut reasons).map(|reshape| reshape.wider().clone())
        }
        None => slots::build_geometry(members, &filled.slots, fresh, &mut reasons),
    };
    if let Some(geometry) = &geometry {
        slots::exclude_unknown_bad_blocks(members, &mut verdicts, &mut filled, geometry, &mut reasons);
    }
    let reshape = match (&geometry, array.reshape) {
        (Some(_), Some(_)) => {
            // What it says was said the first time.
            let mut again = Reasons { policy: reasons.policy, ..Reasons::default() };
            reshape::build(members, &filled.slots, fresh, &mut again)
        }
        _ => None,
    };
    // Nothing resyncs a half-done reshape, so that no bit of a bitmap is of use: an array with one
    // says itself that it is dirty.
    let bitmap = geometry
        .as_ref()
        .filter(|_| reshape.is_none())
        .and_then(|geometry| sync::bitmap(members, &verdicts, array, geometry, &mut reasons));
    if bitmap.as_ref().is_none_or(|bitmap| bitmap.distrust.is_some()) {
        filled.slots.iter_mut().for_each(forget_bitmap);
    }

    let state = SyncState::of(array.level, sync::resync_offset(members, &verdicts, array));
    let lockless = geometry.as_ref().filter(|_| reshape.is_none()).and_then(|geometry| {
        let regions = sync::lockless(members, &verdicts, geometry)?;
        Some(sync::lockless_needs(state, &filled, regions, geometry))
    });
    // Such a bitmap says where parity is not to be trusted, and reading it there is an error.
    let tells_where = lockless.is_some();
    // Which slots hold parity is another thing on each side of a reshape.
    let one_geometry = geometry.as_ref().filter(|_| reshape.is_none());
    let mut known = lockless.unwrap_or_else(|| sync::needs(state, &filled, bitmap.as_ref(), one_geometry));
    if reshape.is_some() && sync::has_lockless(members, &verdicts) {
        // Superblocks of such an array may say clean where parity was never made.
        known = sync::Sync { state, needs: Needs::Everything, synced_below_sectors: 0 };
    }
    let replay_log = sync::replays_log(state, array);
    let enough = match (&reshape, &geometry) {
        (Some(reshape), _) => reshape::check_enough(reshape, &filled.slots, array, &mut reasons),
        (None, Some(geometry)) => slots::check_enough(&filled.slots, geometry, array, &mut reasons),
        (None, None) => true,
    };
    if enough {
        slots::check_degraded(&filled.slots, &mut reasons);
        let vouched = match &reshape {
            Some(reshape) => reshape::check_dirty_degraded(members, reshape, &known, array, &mut reasons),
            None if tells_where => reasons.policy.forced.has(Check::DirtyDegraded),
            None => {
                let (slots, map) = (&filled.slots, geometry.as_ref());
                sync::check_dirty_degraded(members, slots, &known, array, map, &mut reasons)
            }
        };
        if vouched {
            known.needs = Needs::Nothing;
            known.synced_below_sectors = CLEAN;
        }
        if vouched || replay_log {
            filled.copy_replacements_anew(&mut verdicts);
        }
    }
    let replay_journal = check_features(members, &verdicts, fresh, reshape.as_ref(), &mut reasons);

    let re_addable = sync::re_addable(members, &verdicts, &filled.slots, bitmap.as_ref(), array);
    let returning = |ix: usize| re_addable.iter().any(|re_add| re_add.member == ix);
    let spares = (0..members.len()).filter(|&ix| verdicts[ix] == Verdict::Spare && !returning(ix)).collect();
    let sectors = |range: Range<u64>| Sector(range.start)..Sector(range.end);
    let bad = |member| slots::bad_in_data(member).into_iter().flatten().map(sectors).collect();
    let overridden = std::mem::take(&mut reasons.overridden);
    Some(Assembly {
        array: array.clone(),
        freshest,
        geometry,
        reshape,
        slots: filled.slots,
        replacements: filled.replacements,
        spares,
        re_addable,
        bad: members.iter().map(bad).collect(),
        state,
        needs: known.needs,
        synced_below_sectors: known.synced_below_sectors,
        replay_log,
        bitmap,
        replay_journal,
        verdicts,
        access: reasons.access(),
        overridden,
    })
}

/// A member that was being brought back by a bitmap that is not trusted any more is valid as far
/// as it was rebuilt, and no further.
fn forget_bitmap(slot: &mut Slot) {
    if let Slot::Rebuilding { by_bitmap, .. } = slot {
        *by_bitmap = false;
    }
}

/// What the superblocks' features cost. The index of a journal that has to be replayed.
fn check_features(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    fresh: &MemberFacts,
    reshape: Option<&ReshapeAssembly>,
    reasons: &mut Reasons,
) -> Option<usize> {
    let array = &fresh.superblock;
    let unknown = array.features.unknown();
    if unknown != 0 {
        reasons.refuse(Reason::UnknownFeatures { member: fresh.name.clone(), bits: unknown });
    }
    match reshape {
        Some(reshape) => reasons.read_only(Reason::Reshaping(ReshapeSummary::of(reshape))),
        None if array.has(Features::RESHAPE) && !reasons.refused.contains(&Reason::ReshapeUnknown) => {
            reasons.refuse(Reason::ReshapeUnknown);
        }
        None => {}
    }
    if let Some(volume) = &array.container {
        match &volume.refused {
            Some(refusal) => {
                let (format, refusal) = (volume.format, refusal.clone());
                reasons.refused.insert(0, Reason::ContainerRefused { format, refusal });
            }
            None => reasons.read_only(Reason::Container { format: volume.format }),
        }
    }
    if array.has(Features::CLUSTERED) {
        reasons.read_only(Reason::Clustered);
    }
    if array.has(Features::JOURNAL) { check_journal(members, verdicts, reasons) } else { None }
}

/// What the array's journal costs. The index of the journal if its log has to be replayed.
fn check_journal(members: &[MemberFacts], verdicts: &[Verdict], reasons: &mut Reasons) -> Option<usize> {
    let journal = verdicts.iter().position(|verdict| *verdict == Verdict::Journal);
    let Some((ix, member)) = journal.map(|ix| (ix, &members[ix])) else {
        if reasons.refuse(Reason::JournalMissing) {
            reasons.read_only(Reason::JournalUnused);
        }
        return None;
    };
    let name = || member.name.clone();
    match member.journal {
        Some(JournalFacts::Empty | JournalFacts::Written { .. }) => {
            reasons.read_only(Reason::JournalUnused);
            None
        }
        Some(JournalFacts::Ahead { pages, end }) => {
            if end == JournalEnd::Damaged {
                reasons.refuse(Reason::JournalDamaged { member: name(), pages });
            }
            let is_cut_short = end == JournalEnd::CutShort;
            reasons.read_only(Reason::JournalReplayed { pages, is_cut_short });
            Some(ix)
        }
        Some(JournalFacts::NotEmpty) | None => {
            if reasons.refuse(Reason::JournalNotEmpty { member: name() }) {
                reasons.read_only(Reason::JournalUnused);
            }
            None
        }
    }
}

fn has_redundancy(level: i32) -> bool {
    matches!(level, 1 | 4 | 5 | 6 | 10)
}
