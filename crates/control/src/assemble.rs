//! What an array is made of: a pure decision over scanned facts, with a verdict and a reason for every member.
//!
//! The rules are those of docs/formats.md §1.5, in this order:
//! 1. The freshest member describes the array: of those in a slot or being the journal, the one with the most events.
//! 2. A member is current with at most one event less; being one behind, it is what the *freshest* superblock says it is,
//!    because that very update may have failed it.
//! 3. Members that describe another array, do not fit their device, or were run without the freshest one are not used.
//! 4. A slot has one member. Two equally fresh ones are refused.
//! 5. What is known to be wrong, or not known to be right, costs access: first writing, then reading. Never less.
//!
//! Invariant: nothing here opens, reads or writes anything, so every case is a test with made-up superblocks.

use wattle_engine::geometry::{Geometry, GeometryError, Kind, Level, Params};
use wattle_engine::units::{MemberIx, MemberSet, Sector};

use crate::facts::{
    BadRange, BitmapFacts, CLEAN, Features, JournalFacts, MemberFacts, Role, SuperblockFacts, Uuid, Version,
};
use crate::problem::{Forced, Problem};
use crate::reason::Reason;
pub use crate::verdict::Verdict;

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

/// A slot of the array and who is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Nobody that can be used.
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

/// An array, decided.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// The freshest superblock: it describes the array.
    pub array: SuperblockFacts,
    /// The index of the member it is from.
    pub freshest: usize,
    /// Its map; `None` if it has none, for a reason in `access`.
    pub geometry: Option<Geometry>,
    /// By slot.
    pub slots: Vec<Slot>,
    /// Indices of spares.
    pub spares: Vec<usize>,
    /// What the superblocks say of parity and copies.
    pub state: SyncState,
    /// What the engine may trust, in the unit of `resync_offset`: as `state`, and everything where the operator said so.
    pub synced_below_sectors: u64,
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

    /// The array's UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.array.set_uuid
    }

    /// Whether parity and copies are trusted everywhere: read from the superblocks, or vouched for by the operator.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.synced_below_sectors == CLEAN
    }

    /// What it means that parity or copies are not trusted everywhere; `None` if they are.
    #[must_use]
    pub fn unsynced_note(&self) -> Option<&'static str> {
        let mirrored = Level::from_md(self.array.level).is_some_and(|level| level.kind() == Kind::Mirrored);
        match (self.synced(), mirrored) {
            (true, _) => None,
            (false, false) => Some(
                "parity is not known to be right: a member lost now loses data; the kernel resyncs it when it assembles the array",
            ),
            (false, true) => Some(
                "copies are not known to agree: what was never written, or in flight at a crash, may change when a member is lost; the kernel resyncs them when it assembles the array",
            ),
        }
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

/// Decides what the array made of `members` is. They all have its UUID; strangers were sorted out before. `None` if there is
/// no member at all.
#[must_use]
pub fn assemble(members: &[MemberFacts], forced: Forced) -> Option<Assembly> {
    let freshest = freshest(members)?;
    let fresh = &members[freshest];
    let array = &fresh.superblock;
    let mut verdicts: Vec<_> = members.iter().map(|member| judge(member, fresh)).collect();
    let mut reasons = Reasons { forced, ..Reasons::default() };

    check_numbers(fresh, &mut reasons);
    check_agreement(members, &verdicts, fresh, &mut reasons);
    check_split_brain(members, &mut verdicts, fresh, &mut reasons);

    let slot_count = if reasons.refused.is_empty() { array.raid_disks as usize } else { 0 };
    let mut slots = fill_slots(members, &mut verdicts, slot_count, &mut reasons);
    let geometry = (slot_count > 0).then(|| build_geometry(members, &slots, fresh, &mut reasons)).flatten();
    if let Some(geometry) = &geometry {
        exclude_bad_blocks(members, &mut verdicts, &mut slots, geometry, &mut reasons);
    }
    let resync_offset = resync_offset(members, &verdicts, array);
    let state = SyncState::of(array.level, resync_offset);
    let enough = geometry.as_ref().is_none_or(|geometry| check_enough(&slots, geometry, array, &mut reasons));
    let forced_clean = enough && check_dirty_degraded(&slots, state, array, &mut reasons);
    check_features(members, &verdicts, fresh, &mut reasons);

    let synced_below_sectors = match state {
        SyncState::Clean => CLEAN,
        _ if forced_clean => CLEAN,
        SyncState::Dirty => 0,
        SyncState::Resyncing { below_sectors } => below_sectors,
    };
    let spares = (0..members.len()).filter(|&ix| verdicts[ix] == Verdict::Spare).collect();
    let overridden = std::mem::take(&mut reasons.overridden);
    Some(Assembly {
        array: array.clone(),
        freshest,
        geometry,
        slots,
        spares,
        state,
        synced_below_sectors,
        verdicts,
        access: reasons.access(),
        overridden,
    })
}

/// What was found to be wrong, and what the operator says about it.
#[derive(Default)]
struct Reasons {
    forced: Forced,
    refused: Vec<Reason>,
    read_only: Vec<Reason>,
    overridden: Vec<Reason>,
}

impl Reasons {
    /// Refuses the array; returns whether the operator overrides that.
    fn refuse(&mut self, reason: Reason) -> bool {
        let overridden = reason.check().is_some_and(|check| self.forced.has(check));
        if overridden {
            self.overridden.push(reason);
        } else {
            self.refused.push(reason);
        }
        overridden
    }

    fn read_only(&mut self, reason: Reason) {
        self.read_only.push(reason);
    }

    fn access(self) -> Access {
        match (self.refused, self.read_only) {
            (refused, read_only) if !refused.is_empty() => {
                Access::Refused(refused.into_iter().chain(read_only).collect())
            }
            (_, read_only) if !read_only.is_empty() => Access::ReadOnly(read_only),
            _ => Access::ReadWrite,
        }
    }
}

/// The member whose superblock describes the array. Equal events are told apart by time, then by the order given; only
/// spares and failed members are left to describe an array that has nothing else.
fn freshest(members: &[MemberFacts]) -> Option<usize> {
    let rank = |ix: &usize| {
        let superblock = &members[*ix].superblock;
        let in_use = matches!(superblock.own_role(), Role::Active(_) | Role::Journal);
        (in_use, superblock.events, superblock.utime_secs, std::cmp::Reverse(*ix))
    };
    (0..members.len()).max_by_key(rank)
}

/// What a member is by itself and beside the freshest one. Slots with two claimants are settled later.
fn judge(member: &MemberFacts, fresh: &MemberFacts) -> Verdict {
    let (own, array) = (&member.superblock, &fresh.superblock);
    if let Some((field, expected, found)) = difference(own, array) {
        return Verdict::Foreign { field, expected, found };
    }
    let end = own.data_offset_sectors.saturating_add(own.data_size_sectors);
    if end > member.size_sectors {
        return Verdict::Truncated { expected_sectors: end, found_sectors: member.size_sectors };
    }
    if array.size_sectors > own.data_size_sectors && own.own_role().slot().is_some() {
        let (expected, found) = (array.size_sectors.cast_signed(), own.data_size_sectors.cast_signed());
        return Verdict::Foreign { field: "data_size", expected, found };
    }
    let behind = array.events.saturating_sub(own.events);
    let role = if behind == 1 { array.role_of(own.dev_number) } else { own.own_role() };
    let stale = |slot| Verdict::Stale { slot, events_behind: behind, utime_secs: own.utime_secs };
    match (own.own_role(), role) {
        (_, Role::Faulty | Role::Unknown(_)) => Verdict::Faulty { according_to: fresh.name.clone() },
        (_, Role::Spare) if behind <= 1 => Verdict::Spare,
        // Spares need not be written when nothing about them changes, so they may lag.
        (Role::Spare, _) if behind > 1 => match array.role_of(own.dev_number) {
            Role::Active(slot) => stale(Some(slot)),
            _ => Verdict::Spare,
        },
        (Role::Active(slot), _) if behind > 1 => stale(Some(slot)),
        (_, _) if behind > 1 => stale(None),
        (_, Role::Journal) => Verdict::Journal,
        (_, Role::Active(slot)) if u32::from(slot) >= array.raid_disks => Verdict::Spare,
        // Its slot was given to it by the very update it missed: nothing has been rebuilt on it yet.
        (Role::Spare, Role::Active(slot)) => Verdict::Rebuilding { slot, valid_below_sectors: 0 },
        (_, Role::Active(slot)) => match own.recovery_offset {
            Some(valid_below_sectors) => Verdict::Rebuilding { slot, valid_below_sectors },
            None => Verdict::Fresh { slot, one_behind: behind == 1 },
        },
        (_, Role::Spare) => Verdict::Spare,
    }
}

/// The first thing in which a member describes another array: members belong together when these agree.
fn difference(own: &SuperblockFacts, array: &SuperblockFacts) -> Option<(&'static str, i64, i64)> {
    let fields = [
        ("level", i64::from(array.level), i64::from(own.level)),
        ("layout", i64::from(array.layout), i64::from(own.layout)),
        ("chunksize", i64::from(array.chunk_sectors), i64::from(own.chunk_sectors)),
    ];
    fields.into_iter().find(|(_, expected, found)| expected != found)
}

/// Numbers that the geometry does not see.
fn check_numbers(fresh: &MemberFacts, reasons: &mut Reasons) {
    let array = &fresh.superblock;
    let slots_max = if array.version == Version::V090 { 27 } else { array.roles.len() as u64 };
    let mut bad = |field, found, expected| {
        reasons.refuse(Reason::BadNumber { member: fresh.name.clone(), field, found, expected });
    };
    if Level::from_md(array.level).is_none() {
        reasons.refuse(Reason::UnsupportedLevel { level: array.level });
    } else if u64::from(array.raid_disks) > slots_max {
        bad("raid_disks", u64::from(array.raid_disks), "at most one slot for each role in the superblock");
    } else if array.raid_disks == 0 {
        bad("raid_disks", 0, "at least 1");
    } else if array.events > u64::MAX / 2 {
        bad("events", array.events, "a count that was reached by counting, below 2^63");
    } else if array.own_role().slot().is_some() && array.size_sectors > array.data_size_sectors {
        bad("size", array.size_sectors, "at most data_size");
    }
}

/// Members of one generation say the same of the array; if they do not, somebody else wrote one of them.
fn check_agreement(
    members: &[MemberFacts],
    verdicts: &[Verdict],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) {
    let array = &fresh.superblock;
    for (member, verdict) in members.iter().zip(verdicts) {
        let own = &member.superblock;
        if verdict.slot().is_none() || own.events != array.events {
            continue;
        }
        let fields = [
            ("raid_disks", u64::from(array.raid_disks), u64::from(own.raid_disks)),
            ("size", array.size_sectors, own.size_sectors),
        ];
        if let Some((field, expected, found)) =
            fields.into_iter().find(|(_, expected, found)| expected != found)
        {
            reasons.refuse(Reason::Ambiguous { field, expected, member: member.name.clone(), found });
        }
    }
}

/// Finds members that went on without the freshest one, as in an array that was run in two halves.
///
/// A current member that counts the freshest one's slot out was not there when that one was last written, whatever its
/// events say. A stale member is evidence only if it counts out *every* current member: a member that merely left
/// earlier still knows those that stayed.
fn check_split_brain(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) {
    let Role::Active(fresh_slot) = fresh.superblock.own_role() else { return };
    let current: Vec<u16> = verdicts.iter().filter_map(Verdict::slot).collect();
    for (member, verdict) in members.iter().zip(verdicts) {
        let own = &member.superblock;
        let separate = match verdict {
            Verdict::Fresh { .. } | Verdict::Rebuilding { .. } => !own.fills(fresh_slot),
            // One event behind, the freshest table may have it as a spare: it was not there when that was written.
            Verdict::Faulty { .. } | Verdict::Stale { slot: Some(_), .. } | Verdict::Spare => {
                matches!(own.own_role(), Role::Active(_)) && current.iter().all(|&slot| !own.fills(slot))
            }
            _ => false,
        };
        if separate {
            *verdict = Verdict::SplitBrain { freshest: fresh.name.clone() };
            reasons.refuse(Reason::SplitBrain { member: member.name.clone(), freshest: fresh.name.clone() });
        }
    }
}

/// Gives each slot its member: of several claimants the fresher one, the original before its replacement.
fn fill_slots(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    count: usize,
    reasons: &mut Reasons,
) -> Vec<Slot> {
    (0..count as u16)
        .map(|slot| {
            let rank = |ix: usize| {
                let own = &members[ix].superblock;
                (!own.has(Features::REPLACEMENT), own.events)
            };
            let mut claimants: Vec<_> =
                (0..members.len()).filter(|&ix| verdicts[ix].slot() == Some(slot)).collect();
            claimants.sort_by_key(|&ix| (std::cmp::Reverse(rank(ix)), ix));
            let [winner, losers @ ..] = claimants.as_slice() else { return Slot::Missing };
            for &loser in losers {
                let other = members[*winner].name.clone();
                if rank(loser) == rank(*winner) {
                    let second = members[loser].name.clone();
                    reasons.refuse(Reason::DuplicateRole { slot, first: other.clone(), second });
                }
                let replacement = members[loser].superblock.has(Features::REPLACEMENT) && rank(*winner).0;
                verdicts[loser] = if replacement {
                    Verdict::Replacement { slot }
                } else {
                    Verdict::Duplicate { slot, other }
                };
                if replacement {
                    reasons.read_only(Reason::Replacing { slot });
                }
            }
            match verdicts[*winner] {
                Verdict::Rebuilding { valid_below_sectors, .. } => {
                    Slot::Rebuilding { member: *winner, valid_below_sectors }
                }
                _ => Slot::InSync { member: *winner },
            }
        })
        .collect()
}

/// The map, or the reason why there is none.
fn build_geometry(
    members: &[MemberFacts],
    slots: &[Slot],
    fresh: &MemberFacts,
    reasons: &mut Reasons,
) -> Option<Geometry> {
    let array = &fresh.superblock;
    let level = Level::from_md(array.level)?;
    let sizes = slots.iter().map(|slot| Some(Sector(members[slot.member()?].superblock.data_size_sectors)));
    let sizes: Option<Vec<_>> = sizes.collect();
    let member_sizes = match (level.kind(), sizes) {
        (Kind::Striped, Some(sizes)) => sizes,
        (Kind::Striped, None) => {
            reasons.refuse(Reason::NotEnoughMembers {
                missing: not_in_sync(slots),
                raid_disks: array.raid_disks,
            });
            return None;
        }
        _ => Vec::new(),
    };
    let raid0_unstated = level == Level::Raid0 && !array.has(Features::RAID0_LAYOUT);
    let params = Params {
        level,
        layout: if raid0_unstated { 0 } else { array.layout },
        chunk: Sector(u64::from(array.chunk_sectors)),
        raid_disks: array.raid_disks,
        component_size: Sector(array.size_sectors),
        member_sizes,
    };
    match Geometry::new(&params) {
        Ok(geometry) => {
            if geometry.hazard().is_some() {
                reasons.read_only(Reason::CollidingLayout { layout: array.layout });
            }
            Some(geometry)
        }
        Err(GeometryError::Raid0LayoutUnknown { .. }) => {
            reasons.refuse(Reason::Raid0Layout);
            None
        }
        Err(source) => {
            reasons.refuse(Reason::Geometry { member: fresh.name.clone(), source });
            None
        }
    }
}

/// Takes members with bad blocks in their data out where the others are enough, and refuses the array where not.
fn exclude_bad_blocks(
    members: &[MemberFacts],
    verdicts: &mut [Verdict],
    slots: &mut [Slot],
    geometry: &Geometry,
    reasons: &mut Reasons,
) {
    for ix in 0..slots.len() {
        let Some(member) = slots[ix].member() else { continue };
        let Some(ranges) = bad_ranges_in_data(&members[member]) else { continue };
        let name = members[member].name.clone();
        if ranges == 0 {
            reasons.read_only(Reason::BadBlocks { member: name, ranges });
            continue;
        }
        let kept = std::mem::replace(&mut slots[ix], Slot::Missing);
        if geometry.survives(&lost(slots)) {
            verdicts[member] = Verdict::BadBlocks { slot: ix as u16, ranges };
            reasons.read_only(Reason::BadBlocks { member: name, ranges });
        } else {
            slots[ix] = kept;
            reasons.refuse(Reason::BadBlocks { member: name, ranges });
        }
    }
}

/// How many recorded bad ranges lie in a member's data; `None` if its log is empty. A log that cannot be read may say
/// anything.
fn bad_ranges_in_data(member: &MemberFacts) -> Option<usize> {
    let own = &member.superblock;
    if !own.has(Features::BAD_BLOCKS) {
        return None;
    }
    let Some(ranges) = &member.bad_blocks else { return Some(1) };
    let data = own.data_offset_sectors..own.data_offset_sectors.saturating_add(own.data_size_sectors);
    let touches = |range: &&BadRange| {
        range.start_sector < data.end && range.start_sector.saturating_add(range.len_sectors) > data.start
    };
    Some(ranges.iter().filter(touches).count())
}

/// Refuses an array that is missing more than it can do without; whether it is not.
fn check_enough(slots: &[Slot], geometry: &Geometry, array: &SuperblockFacts, reasons: &mut Reasons) -> bool {
    let enough = geometry.survives(&lost(slots));
    if !enough {
        let missing = not_in_sync(slots);
        reasons.refuse(Reason::NotEnoughMembers { missing, raid_disks: array.raid_disks });
    }
    enough
}

/// Refuses parity that cannot be trusted where data would be computed from it. True if the operator trusts it all the same.
fn check_dirty_degraded(
    slots: &[Slot],
    state: SyncState,
    array: &SuperblockFacts,
    reasons: &mut Reasons,
) -> bool {
    let missing = not_in_sync(slots);
    if missing.is_empty() || state == SyncState::Clean || !matches!(array.level, 4..=6) {
        return false;
    }
    let ppl = array.features.intersects(Features::PPL | Features::MULTIPLE_PPLS);
    reasons.refuse(Reason::DirtyDegraded { missing, ppl })
}

/// What the superblocks' features cost.
fn check_features(members: &[MemberFacts], verdicts: &[Verdict], fresh: &MemberFacts, reasons: &mut Reasons) {
    let array = &fresh.superblock;
    let unknown = array.features.unknown();
    if unknown != 0 {
        reasons.refuse(Reason::UnknownFeatures { member: fresh.name.clone(), bits: unknown });
    }
    if array.has(Features::RESHAPE) {
        reasons.refuse(Reason::Reshaping);
    }
    if array.has(Features::CLUSTERED) {
        reasons.read_only(Reason::Clustered);
    }
    if array.has(Features::JOURNAL) {
        let journal = members.iter().zip(verdicts).find(|(_, verdict)| **verdict == Verdict::Journal);
        let mut not_empty = |member: &MemberFacts, pages| {
            reasons.refuse(Reason::JournalNotEmpty { member: member.name.clone(), pages });
        };
        match journal.map(|(member, _)| (member, member.journal)) {
            None => reasons.read_only(Reason::JournalMissing),
            Some((_, Some(JournalFacts::Empty | JournalFacts::Written { .. }))) => {
                reasons.read_only(Reason::JournalUnused);
            }
            Some((member, Some(JournalFacts::Ahead { pages }))) => not_empty(member, Some(pages)),
            Some((member, Some(JournalFacts::NotEmpty) | None)) => not_empty(member, None),
        }
    }
    if array.has(Features::BITMAP) {
        check_bitmaps(members, verdicts, reasons);
    }
}

/// Bitmaps that a writer could not keep true: the first one found speaks for all.
fn check_bitmaps(members: &[MemberFacts], verdicts: &[Verdict], reasons: &mut Reasons) {
    let used = members.iter().zip(verdicts).filter(|(_, verdict)| verdict.slot().is_some());
    for (member, _) in used {
        let reason = match member.bitmap {
            BitmapFacts::Version(3 | 4) => continue,
            BitmapFacts::Version(version) => Reason::BitmapVersion { member: member.name.clone(), version },
            BitmapFacts::None | BitmapFacts::Invalid => Reason::BitmapInvalid { member: member.name.clone() },
        };
        return reasons.read_only(reason);
    }
}

/// How far parity and copies agree: the least that a current member says. Those of one generation agree except when a
/// crash cut an update in two.
fn resync_offset(members: &[MemberFacts], verdicts: &[Verdict], array: &SuperblockFacts) -> u64 {
    let current = members
        .iter()
        .zip(verdicts)
        .filter(|(member, verdict)| verdict.slot().is_some() && member.superblock.events == array.events);
    current
        .map(|(member, _)| member.superblock.resync_offset)
        .min()
        .unwrap_or(array.resync_offset)
        .min(array.resync_offset)
}

fn not_in_sync(slots: &[Slot]) -> Vec<u16> {
    (0..).zip(slots).filter(|(_, slot)| !matches!(slot, Slot::InSync { .. })).map(|(ix, _)| ix).collect()
}

/// Slots that cannot be relied on for all of their data.
fn lost(slots: &[Slot]) -> MemberSet {
    not_in_sync(slots).into_iter().map(MemberIx).collect()
}

fn has_redundancy(level: i32) -> bool {
    matches!(level, 1 | 4 | 5 | 6 | 10)
}
