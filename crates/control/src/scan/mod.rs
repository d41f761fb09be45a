//! Looks at members: every superblock, the metadata areas it names, other signatures, partitions;
//! groups members to arrays.
//!
//! Invariant: only reads, a few dozen kilobytes of each member; where a journal's log is not empty,
//! also the log and what it is about ([`journal`]). A member that cannot be made sense of never
//! stops the scan of the others: what is wrong with it is a [`Problem`] of that member.

mod apart;
mod below;
mod claim;
mod containers;
mod left;
mod partitions;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use crate::signature::{FoundSignature, readable_signatures};
use wattle_format::luks::SECOND_AT;
use wattle_format::lvm::Id;
use wattle_format::md::backup::{self, ReshapeBackup, ReshapeBackupError};
use wattle_format::md::{RawSuperblock, Superblock, SuperblockError};
use wattle_format::partition::PartitionTable;

use crate::bcache::BcacheDevice;
use crate::crypt::Encryption;
use crate::integrity::IntegrityDevice;
use crate::lvm::damaged_label;
use crate::lvm::physical::{self, Members, PhysicalVolume};
use crate::md::areas;
use crate::md::assemble::{Assembly, Policy, Slot, Verdict, assemble};
use crate::md::container::ContainerMetadata;
use crate::md::facts::{JournalFacts, MemberFacts, Uuid};
use crate::md::journal::{self, DataArea};
use crate::md::superblocks::{Superblocks, superblocks_of};
use crate::members::{Claim, Member, MemberError, partitions_of};
use crate::nodes::{ArrayId, GroupId, MemberId, Nodes};
use crate::problem::{Check, Code, Forced, Problem};

pub use claim::claim;
pub(crate) use left::left_on;

/// Labels of physical volumes and the starts of partition tables, with blocks of up to 4 KiB, are
/// before this byte.
const LABELS_BYTES: u64 = 8192;

/// Everything known of the members given, and of their partitions.
#[derive(Debug, Default)]
pub struct Scan {
    /// In the order given, the partitions of each behind it.
    pub members: Nodes<MemberId, MemberScan>,
    /// In the order of their first member.
    pub arrays: Nodes<ArrayId, ArrayScan>,
}

/// Where a member comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberOrigin {
    /// It was given.
    Given,
    /// It is a partition of another.
    Partition {
        /// Which of [`Scan::members`].
        of: MemberId,
        /// Its number.
        number: u32,
    },
    /// It is what a drive of firmware RAID has of a volume.
    Container {
        /// The drive: which of [`Scan::members`].
        of: MemberId,
        /// Where the volume begins on it, sectors.
        start_sector: u64,
    },
    /// It is the volume of an array of [`Scan::arrays`].
    Array(ArrayId),
    /// It is a logical volume.
    Logical {
        /// Its group, of [`crate::Stack::groups`].
        group: GroupId,
        /// Its id there.
        volume: Id,
    },
    /// It is what is encrypted on another.
    Decrypted {
        /// Which of [`Scan::members`].
        of: MemberId,
    },
    /// It is what is on another beside what that one keeps about it: checksums, the place of a
    /// cache.
    Layered {
        /// Which of [`Scan::members`].
        of: MemberId,
    },
}

impl MemberOrigin {
    /// The one member that it is a part of, or what is on it; `None` of what was given, and of
    /// volumes, which run.
    fn of(self) -> Option<MemberId> {
        match self {
            Self::Partition { of, .. }
            | Self::Container { of, .. }
            | Self::Decrypted { of }
            | Self::Layered { of } => Some(of),
            Self::Given | Self::Array(_) | Self::Logical { .. } => None,
        }
    }
}

/// A member and what is on it.
#[derive(Debug)]
pub struct MemberScan {
    /// The member, open for reading.
    pub member: Member,
    /// Where it comes from.
    pub origin: MemberOrigin,
    /// What it is as a physical volume of LVM2, unless it belongs to an array.
    pub physical: Option<PhysicalVolume>,
    /// Its partition table, if its partitions are members: what an array covers as a whole has
    /// none.
    pub table: Option<PartitionTable>,
    /// Why partitions in its table are not used, or not known.
    pub unused_partitions: Vec<Problem>,
    /// What else its owner should know of its partition table. All of its partitions are known.
    pub table_notes: Vec<String>,
    /// What it says as a drive of firmware RAID, if it is one: its parts of volumes are members.
    pub container: Option<ContainerMetadata>,
    /// How it is encrypted; `None` for nearly all, and before it was looked at.
    pub encryption: Option<Encryption>,
    /// What it is as a device of dm-integrity, if it is one; `None` before it was looked at.
    pub integrity: Option<IntegrityDevice>,
    /// What it is as a device of bcache, if it is one; `None` before it was looked at.
    pub bcache: Option<BcacheDevice>,
    /// Something to know of it that is no problem.
    pub note: Option<String>,
    /// What it keeps of an array that is being reshaped, if it is a backup file.
    pub backup: Option<ReshapeBackup>,
    /// Valid superblocks, in order of preference.
    pub superblocks: Vec<Superblock>,
    /// Superblocks that are there and not valid, with every check they fail.
    pub damaged: Vec<RawSuperblock>,
    /// Everything else that is recognised: file systems, partition tables, volume groups, foreign
    /// RAID metadata.
    pub signatures: Vec<FoundSignature>,
    /// Places where metadata may be and the drive does not give it: those of superblocks first.
    pub unreadable: Vec<MemberError>,
    /// How many of `unreadable` are places of superblocks.
    unread_places: usize,
    /// What assembly knows of it; `None` for a stranger.
    pub facts: Option<MemberFacts>,
    /// Which of `superblocks` is the one that counts.
    pub chosen: Option<usize>,
    /// Why the member belongs to no array although it should; a stranger has none. What lies on it
    /// all the same is only read ([`Scan::check_below`]).
    pub problem: Option<Problem>,
}

impl MemberScan {
    /// The superblock that counts.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.chosen.map(|ix| &self.superblocks[ix])
    }

    /// Claims a drive or partition that is used as it is. What is made of it, be it that it holds
    /// nothing, was decided before the lock: between the two another process may have changed it.
    pub(crate) fn claim_as_seen(&self, claim: Claim) -> Result<Member, Problem> {
        let claimed = self.member.claim(claim)?;
        let physical = physical::read(&claimed).and_then(Result::ok);
        let same_physical = self.physical.is_none() || self.physical == physical;
        let same_table = self.table.is_none() || self.table == partitions_of(&claimed);
        let now = look_at(claimed, self.origin, Forced::default());
        // Superblocks near the end of a drive may be those of its last partition, and are its then.
        let same_superblocks =
            self.table.is_some() || (&self.superblocks, &self.damaged) == (&now.superblocks, &now.damaged);
        if same_physical && same_table && same_superblocks && self.signatures == now.signatures {
            return Ok(now.member);
        }
        Err(MemberError::Changed { name: now.member.name }.into())
    }

    /// Why there is no way into it, if something lies on it that is not open.
    #[must_use]
    pub fn not_opened(&self) -> Option<Problem> {
        let encrypted = self.encryption.as_ref().and_then(|found| found.problem(&self.member.name));
        encrypted.or_else(|| self.layer_problem().cloned())
    }

    /// Why what lies on it as [`MemberOrigin::Layered`] cannot be read, if it cannot.
    #[must_use]
    pub fn layer_problem(&self) -> Option<&Problem> {
        let checked = self.integrity.as_ref().and_then(IntegrityDevice::problem);
        checked.or_else(|| self.bcache.as_ref()?.problem.as_ref())
    }

    /// What it is as a device of dm-integrity or bcache, in a few words.
    #[must_use]
    pub fn layer_summary(&self) -> Option<String> {
        let checked = self.integrity.as_ref().map(IntegrityDevice::summary);
        checked.or_else(|| Some(self.bcache.as_ref()?.summary()))
    }

    /// What is recognised on it: in which sector, and what.
    pub(crate) fn recognised(&self) -> impl Iterator<Item = (u64, String)> {
        let valid = self.superblocks.iter().map(|own| (own.found_at_sectors(), own.version()));
        let damaged =
            self.damaged.iter().map(|raw| (raw.fields().found_at_sectors(), raw.fields().version()));
        let superblocks = valid.chain(damaged);
        let superblocks = superblocks.map(|(at, version)| (at, format!("an md superblock {version}")));
        superblocks.chain(self.signatures.iter().map(|found| (found.offset_bytes / 512, found.to_string())))
    }

    /// Whether a file system was recognised on it.
    #[must_use]
    pub fn has_file_system(&self) -> bool {
        self.signatures.iter().any(FoundSignature::is_file_system)
    }

    /// Why some place of a superblock could not be read, if one could not.
    fn unread_superblock(&self) -> Option<&MemberError> {
        self.unreadable.first().filter(|_| self.unread_places > 0)
    }

    /// Why it is in no array, if superblocks are on it, or may be.
    fn unused_in_array(&self) -> Option<&Problem> {
        let may_be = !self.superblocks.is_empty() || !self.damaged.is_empty() || self.unread_places > 0;
        self.problem.as_ref().filter(|_| may_be)
    }

    /// Whether nothing can be told of it: no superblock was found, and some place could not be
    /// read.
    fn is_unread(&self) -> bool {
        self.superblocks.is_empty()
            && self.damaged.is_empty()
            && self.unread_that_counts().is_some()
            && !self.is_plain_file_system()
    }

    /// Why some place could not be read, but for those of a second header of LUKS2: that makes
    /// nothing else of what is recognised elsewhere.
    fn unread_that_counts(&self) -> Option<&MemberError> {
        let is_second = |error: &MemberError| match error {
            MemberError::NotCopied { offset_bytes, len_bytes: 512, .. }
            | MemberError::Read { offset_bytes, len_bytes: 512, .. } => SECOND_AT.contains(offset_bytes),
            _ => false,
        };
        self.unreadable.iter().find(|error| !is_second(error))
    }

    /// Whether a copy holds a file system and nothing else can be where it was not read: every
    /// place of a superblock was, and so was the start, where labels and partition tables are.
    fn is_plain_file_system(&self) -> bool {
        self.unread_places == 0
            && self.has_file_system()
            && self.member.copy_map().is_some()
            && self.member.unread().iter().all(|run| run.start >= LABELS_BYTES)
    }

    /// Whether it is a backup file of the array with this superblock.
    pub(crate) fn backs_up(&self, superblock: &Superblock) -> bool {
        self.backup.as_ref().is_some_and(|backup| backup.set_uuid == superblock.stored_uuid())
    }

    /// The arrays that superblocks on it, valid or not, name.
    fn named(&self) -> impl Iterator<Item = Uuid> {
        let valid = self.superblocks.iter().map(|superblock| superblock.set_uuid());
        valid.chain(self.damaged.iter().map(|raw| raw.fields().set_uuid()))
    }
}

/// An array and its members.
#[derive(Debug)]
pub struct ArrayScan {
    /// Which of [`Scan::members`], in the order of [`Assembly::verdicts`]: what lies on volumes
    /// comes last.
    pub members: Vec<MemberId>,
    /// Members that name this array and cannot be used, each with a
    /// [`MemberScan::problem`].
    pub unused: Vec<MemberId>,
    /// What it is.
    pub assembly: Assembly,
    /// Which of `members` lie on a volume, an array's or a logical one, while none in use does; or
    /// the other way around. They are not taken in unless the operator names them.
    pub apart: BTreeSet<usize>,
}

impl ArrayScan {
    fn is_refused(&self) -> bool {
        self.assembly.refusal().is_some()
    }
}

impl Scan {
    /// The array called `name` (or `host:name`, or its UUID); without a name the only one.
    ///
    /// # Errors
    /// A [`Problem`]: there is none, none of that name, or several.
    pub fn find(&self, name: Option<&str>) -> Result<&ArrayScan, Problem> {
        let matches = |array: &&ArrayScan| {
            let facts = &array.assembly.array;
            name.is_none_or(|name| {
                facts.set_name == name || facts.short_name() == name || name.parse() == Ok(facts.set_uuid)
            })
        };
        let found: Vec<_> = self.arrays.iter().filter(matches).collect();
        let names: Vec<_> = self.arrays.iter().map(|array| describe(&array.assembly)).collect();
        match (found.as_slice(), name) {
            ([array], _) => Ok(array),
            ([], None) => Err(self.nothing_found()),
            ([], Some(name)) => Err(Problem::new(
                Code::NoSuchVolume,
                format!("no array is called {name}"),
                match names.as_slice() {
                    [] => "there is no array on these members".to_owned(),
                    names => format!("these members hold {}", names.join(", ")),
                },
                "name one of them, or give the members of the one you mean",
            )),
            (_, _) => Err(Problem::new(
                Code::SeveralVolumes,
                format!("{} arrays to choose from", found.len()),
                format!("these members hold {}", names.join(", ")),
                "name one with -V (a UUID tells arrays of one name apart), or give only its members",
            )),
        }
    }

    /// Refuses to write to what lies on a member that should be in an array and is not used: it is
    /// a part of what the array holds, and the other members would not have what is written.
    ///
    /// # Errors
    /// The member's problem.
    pub(crate) fn check_below(&self, member: MemberId) -> Result<(), Problem> {
        let below = successors(self.members[member].origin.of(), |of| self.members[*of].origin.of());
        // What is written goes elsewhere under an overlay.
        let seen = below.map(|of| &self.members[of]).filter(|seen| !seen.member.is_overlaid());
        let Some((below, problem)) = seen.filter_map(|seen| Some((seen, seen.unused_in_array()?))).next()
        else {
            return Ok(());
        };
        let (name, below) = (&self.members[member].member.name, &below.member.name);
        Err(Problem {
            what: format!("{name} is not written: {}", problem.what),
            why: format!(
                "{below} may be a member of an array, and {name} what that holds: the other members would lack what is written, and nothing \
                 would tell"
            ),
            next: format!("read it (--read-only), or write to an overlay (--overlay DIR); {}", problem.next),
            ..problem.clone()
        })
    }

    /// The array with this UUID. Where arrays lie on others, a copy may have it too: the lower one.
    #[must_use]
    pub fn array(&self, uuid: Uuid) -> Option<&ArrayScan> {
        self.arrays.iter().find(|array| array.assembly.array.set_uuid == uuid)
    }

    /// Why there is no volume: a member's own problem says it best.
    pub(crate) fn nothing_found(&self) -> Problem {
        let first = self.members.iter().find_map(|member| member.problem.clone());
        let unused = || self.members.iter().find_map(|member| member.unused_partitions.first().cloned());
        let first = first.or_else(unused);
        first.unwrap_or_else(|| {
            let names: Vec<_> = self.members.iter().map(|scan| scan.member.name.as_str()).collect();
            let seen: Vec<_> =
                self.members.iter().flat_map(|scan| &scan.signatures).map(ToString::to_string).collect();
            let seen = if seen.is_empty() { "nothing that is known".to_owned() } else { seen.join(", ") };
            Problem::new(
                Code::NoArray,
                format!("no array on {}", names.join(", ")),
                format!("no md superblock was found at any of its places; what is there: {seen}"),
                "check that these are the right files or devices (whole disks and partitions differ)",
            )
        })
    }
}

impl Members for Scan {
    fn ids(&self) -> impl Iterator<Item = MemberId> {
        self.members.ids()
    }

    fn name(&self, member: MemberId) -> &str {
        &self.members[member].member.name
    }

    fn physical(&self, member: MemberId) -> Option<&PhysicalVolume> {
        self.members[member].physical.as_ref()
    }
}

fn describe(assembly: &Assembly) -> String {
    format!("{} ({})", assembly.name(), assembly.uuid())
}

/// Reads what is on `members` and decides what arrays they are.
///
/// # Errors
/// Only if nothing can be told of a member because it cannot be read where its metadata may be;
/// everything else is found in the result. [`Check::NewestSuperblock`] overrides it.
pub fn scan(members: Vec<Member>, policy: impl Into<Policy>) -> Result<Scan, MemberError> {
    let policy = policy.into();
    let found = scan_each(members, policy);
    match found.members.find(MemberScan::is_unread) {
        Some(member) if !policy.forced.has(Check::NewestSuperblock) => {
            Err(found.members[member].unread_that_counts().expect("it is unread").clone())
        }
        _ => Ok(found),
    }
}

/// As [`scan`], and a member of which nothing can be told is one with a [`MemberScan::problem`]:
/// for looking, where the others count.
#[must_use]
pub fn scan_each(members: Vec<Member>, policy: impl Into<Policy>) -> Scan {
    let mut scan = Scan::default();
    let given = members.into_iter().map(|member| (member, MemberOrigin::Given)).collect();
    scan.add(given, policy.into(), &BTreeSet::new());
    scan
}

impl Scan {
    /// Looks at further members and their partitions, and finds the arrays on these. An array that
    /// is not `settled` takes in what belongs to it, under the id that it has.
    pub(crate) fn add(
        &mut self,
        members: Vec<(Member, MemberOrigin)>,
        policy: Policy,
        settled: &BTreeSet<ArrayId>,
    ) {
        let first = self.members.next_id();
        for (member, origin) in members {
            let whole = look_at(member, origin, policy.forced);
            self.add_with_partitions(whole, policy.forced);
        }
        containers::expand(&mut self.members, first);
        drop_unconfirmed(&mut self.members, first, policy.forced);
        let open: Vec<_> = self.arrays.ids().filter(|id| !settled.contains(id)).collect();
        let waiting: BTreeMap<_, _> =
            open.into_iter().map(|id| (self.arrays[id].assembly.array.set_uuid, id)).collect();
        let new: BTreeSet<_> = self.members.ids().filter(|id| *id >= first).collect();
        // An array that none of the new members names stays what it is: where many wait for
        // members, each that is opened would have all of them decided again.
        let in_array =
            |id: &MemberId| self.members[*id].facts.as_ref().map(|facts| facts.superblock.set_uuid);
        let named: BTreeSet<_> =
            new.iter().flat_map(|id| self.members[*id].named().chain(in_array(id))).collect();
        let open = waiting.iter().filter(|(uuid, _)| named.contains(uuid)).map(|(_, id)| &self.arrays[*id]);
        let looked_at: BTreeSet<_> =
            open.flat_map(|array| array.members.iter().chain(&array.unused)).chain(&new).copied().collect();
        let mut apart = BTreeSet::new();
        for array in group(&self.members, &looked_at, policy) {
            let uuid = array.assembly.array.set_uuid;
            match waiting.get(&uuid) {
                None => _ = self.arrays.push(array),
                // A copy of a member that is there would make it unclear which one counts.
                Some(&id) if array.is_refused() && !self.arrays[id].is_refused() => {
                    apart.insert(uuid);
                }
                Some(&id) => self.arrays[id] = array,
            }
        }
        if !apart.is_empty() {
            let copies = group(&self.members, &new, policy);
            for copy in copies.into_iter().filter(|copy| apart.contains(&copy.assembly.array.set_uuid)) {
                self.arrays.push(copy);
            }
        }
    }

    /// Takes in a volume that was just made: whatever is left on it does not count.
    pub(crate) fn add_made(&mut self, member: Member, origin: MemberOrigin) {
        self.members.push(bare(member, origin));
    }

    /// Looks again at what is on a member. What was made of it when it was looked at first stays.
    pub(crate) fn look_again(&mut self, ix: MemberId, forced: Forced) {
        let seen = &mut self.members[ix];
        let now = look_at(seen.member.clone(), seen.origin, forced);
        (seen.superblocks, seen.damaged, seen.signatures) = (now.superblocks, now.damaged, now.signatures);
        (seen.unreadable, seen.unread_places) = (now.unreadable, now.unread_places);
        seen.chosen = seen.chosen.filter(|&chosen| chosen < seen.superblocks.len());
    }
}

/// Takes away what was found on a member at one place, while another place could not be read,
/// unless a member that was read everywhere names the same array. The unread place may hold the
/// superblock that counts: the one that was found may be left over from an older array, which the
/// member would then become again, alone.
fn drop_unconfirmed(members: &mut Nodes<MemberId, MemberScan>, first: MemberId, forced: Forced) {
    if forced.has(Check::NewestSuperblock) {
        return;
    }
    let added: Vec<_> = members.ids().filter(|id| *id >= first).collect();
    let confirmed: Vec<Uuid> = added
        .iter()
        .map(|&id| &members[id])
        .filter(|member| member.unread_superblock().is_none())
        .filter_map(|member| Some(member.superblock()?.set_uuid()))
        .collect();
    for id in added {
        let member = &mut members[id];
        let Some(error) = member.unread_superblock() else { continue };
        if member.superblock().is_none_or(|superblock| confirmed.contains(&superblock.set_uuid())) {
            continue;
        }
        member.problem = Some(Problem::from(error.clone()).forced_by(Check::NewestSuperblock));
        member.facts = None;
        member.chosen = None;
    }
}

/// Groups the members that are looked at by array, in the order of first members.
fn group(
    members: &Nodes<MemberId, MemberScan>,
    looked_at: &BTreeSet<MemberId>,
    policy: Policy,
) -> Vec<ArrayScan> {
    let mut by_uuid: BTreeMap<Uuid, Vec<MemberId>> = BTreeMap::new();
    let mut unused: BTreeMap<Uuid, BTreeSet<MemberId>> = BTreeMap::new();
    for &ix in looked_at {
        match &members[ix].facts {
            Some(facts) => by_uuid.entry(facts.superblock.set_uuid).or_default().push(ix),
            None => members[ix].named().for_each(|uuid| _ = unused.entry(uuid).or_default().insert(ix)),
        }
    }
    let judge = |indices: &[MemberId], policy| {
        let mut facts: Vec<_> = indices.iter().filter_map(|&ix| members[ix].facts.clone()).collect();
        let mut assembly = assemble(&facts, policy)?;
        if compare_journal(members, indices, &mut facts, &assembly) {
            assembly = assemble(&facts, policy)?;
        }
        Some(assembly)
    };
    let array = |(uuid, indices): (Uuid, Vec<MemberId>)| {
        let (indices, assembly) = apart::decide(members, indices, policy, judge)?;
        let unused = unused.get(&uuid).into_iter().flatten().copied().collect();
        Some(ArrayScan { assembly, members: indices, unused, apart: BTreeSet::new() })
    };
    let mut arrays: Vec<_> = by_uuid.into_iter().filter_map(array).collect();
    arrays.iter_mut().for_each(|array| apart::set_apart(members, array));
    arrays.sort_by_key(|array| array.members[0]);
    arrays
}

/// Where the array's journal has something in its log: finds out whether the members have it too,
/// which takes the array's map. True if the facts know more now.
fn compare_journal(
    members: &Nodes<MemberId, MemberScan>,
    indices: &[MemberId],
    facts: &mut [MemberFacts],
    assembly: &Assembly,
) -> bool {
    let Some(geometry) = &assembly.geometry else { return false };
    let in_use = |ix: &usize| {
        assembly.verdicts[*ix] == Verdict::Journal && facts[*ix].journal == Some(JournalFacts::NotEmpty)
    };
    let Some(ix) = (0..facts.len()).find(in_use) else { return false };
    let Some(superblock) = members[indices[ix]].superblock() else { return false };
    let area = |slot: &Slot| {
        let (member, valid_below_sectors) = match *slot {
            Slot::Missing => return None,
            Slot::InSync { member } => (member, u64::MAX),
            Slot::Rebuilding { member, valid_below_sectors, .. } => (member, valid_below_sectors),
        };
        Some(DataArea {
            device: members[indices[member]].member.device.clone(),
            data_offset_sectors: facts[member].superblock.data_offset_sectors,
            valid_below_sectors,
        })
    };
    let slots: Vec<_> = assembly.slots.iter().map(area).collect();
    let found = journal::compare(&members[indices[ix]].member.device, superblock, geometry, &slots);
    facts[ix].journal = Some(found);
    found != JournalFacts::NotEmpty
}

/// A member of which nothing is known, or looked for.
fn bare(member: Member, origin: MemberOrigin) -> MemberScan {
    let (superblocks, damaged, signatures, unreadable) = Default::default();
    MemberScan {
        member,
        origin,
        physical: None,
        table: None,
        unused_partitions: Vec::new(),
        table_notes: Vec::new(),
        container: None,
        encryption: None,
        integrity: None,
        bcache: None,
        note: None,
        backup: None,
        superblocks,
        damaged,
        signatures,
        unread_places: 0,
        unreadable,
        facts: None,
        chosen: None,
        problem: None,
    }
}

fn look_at(member: Member, origin: MemberOrigin, forced: Forced) -> MemberScan {
    let Superblocks { valid, damaged, unreadable } = superblocks_of(&member);
    let read = |offset_bytes, len_bytes| member.read(offset_bytes, len_bytes);
    let (signatures, unread_signatures) = readable_signatures(member.device.size_bytes(), &read);
    let places = unreadable.len();
    let mut found = MemberScan {
        superblocks: valid,
        damaged,
        signatures,
        unread_places: places,
        unreadable: unreadable.into_iter().chain(unread_signatures).collect(),
        ..bare(member, origin)
    };
    if found.is_below_another() {
        found.drop_content();
    }
    found.chosen = match found.superblocks.as_slice() {
        [] => None,
        [_] => Some(0),
        several if forced.has(Check::NewestSuperblock) => {
            (0..several.len()).max_by_key(|&ix| (several[ix].ctime(), Reverse(ix)))
        }
        several => {
            found.problem = Some(several_superblocks(&found.member, several));
            None
        }
    };
    found.facts = found.superblock().map(|superblock| areas::member_facts(&found.member, superblock));
    if matches!(found.origin, MemberOrigin::Given | MemberOrigin::Logical { .. }) {
        containers::look_at(&mut found);
    }
    if found.container.is_some() {
        return found;
    }
    if found.chosen.is_none() && found.problem.is_none() {
        judge_damaged(&mut found);
    }
    if found.facts.is_none() && found.problem.is_none() {
        match physical::read(&found.member) {
            None => {}
            Some(Ok(physical)) => found.physical = Some(physical),
            Some(Err(error)) => found.problem = Some(damaged_label(&found.member.name, &error.to_string())),
        }
    }
    if found.facts.is_none() && found.problem.is_none() {
        match backup_of(&found.member) {
            None => {}
            Some(Ok(backup)) => {
                found.note = Some("it is the backup file of a reshape".to_owned());
                found.backup = Some(backup);
            }
            Some(Err(error)) => found.problem = Some(damaged_backup(&found.member, &error)),
        }
    }
    if found.is_unread() && found.problem.is_none() {
        // A superblock may be where it cannot be read, and then what is recognised is the content
        // of an array.
        let recognised = found.physical.is_some() || !found.signatures.is_empty();
        let error = found.unread_that_counts().cloned().map(Problem::from);
        found.problem = match recognised {
            true if forced.has(Check::NewestSuperblock) => None,
            true => error.map(|error| error.forced_by(Check::NewestSuperblock)),
            false => error,
        };
    }
    found
}

/// What a backup file says of itself; `None` if it is none.
fn backup_of(member: &Member) -> Option<Result<ReshapeBackup, ReshapeBackupError>> {
    let bytes = member.read(0, backup::HEADER_BYTES).ok()?;
    backup::is_reshape_backup(&bytes).then(|| ReshapeBackup::decode(&bytes))
}

fn damaged_backup(member: &Member, error: &ReshapeBackupError) -> Problem {
    Problem::new(
        Code::DamagedSuperblock,
        format!("{}: a backup file of a reshape: {error}", member.name),
        "what it holds may be of another moment, or not all there",
        "leave it out: what lies beyond the reshape's position is then read only where it is certain",
    )
    .of_member(&member.name)
}

/// A member without a valid superblock. One that is only shorter than it should be still knows its
/// array.
fn judge_damaged(found: &mut MemberScan) {
    let Some(raw) = found.damaged.first() else { return };
    let shortened =
        raw.problems().iter().all(|error| matches!(error, SuperblockError::DeviceTooSmall { .. }));
    if shortened {
        found.facts = Some(areas::shortened_facts(&found.member, raw.fields()));
    }
    found.problem = Some(damaged_superblock(&found.member, raw));
}

fn several_superblocks(member: &Member, several: &[Superblock]) -> Problem {
    let list: Vec<_> = several
        .iter()
        .map(|superblock| {
            format!(
                "{} of array {} at sector {}",
                superblock.version(),
                superblock.set_uuid(),
                superblock.found_at_sectors()
            )
        })
        .collect();
    Problem::new(
        Code::SeveralSuperblocks,
        format!("{}: {} valid superblocks: {}", member.name, several.len(), list.join(", ")),
        "only one of them describes the data, and a wrong choice would mix up the array",
        "--force=newest-superblock takes the array that was created last; erasing the old one settles it for good",
    )
    .of_member(&member.name)
    .forced_by(Check::NewestSuperblock)
}

fn damaged_superblock(member: &Member, raw: &RawSuperblock) -> Problem {
    let errors: Vec<_> = raw.problems().iter().map(ToString::to_string).collect();
    let (code, why, next) = match raw.problems().first() {
        Some(SuperblockError::DeviceTooSmall { .. } | SuperblockError::WrongOffset { .. }) => (
            Code::Truncated,
            "the member has another size than when its superblock was written",
            "copy the member again, whole; or give the disk or partition that it is a part of",
        ),
        Some(
            SuperblockError::UnknownFeatures(_)
            | SuperblockError::ConflictingFeatures(_)
            | SuperblockError::ReservedNotZero { .. },
        ) => (
            Code::UnknownFeature,
            "data read by old rules may be wrong",
            "use a newer wattle, or the kernel that made the array",
        ),
        _ => (
            Code::DamagedSuperblock,
            "what such a superblock says cannot be relied on, so the member is not used",
            "leave the member out if the others are enough; `wattle examine` shows every field",
        ),
    };
    let place =
        format!("{} superblock at sector {}", raw.fields().version(), raw.fields().found_at_sectors());
    Problem::new(code, format!("{}: {place}: {}", member.name, errors.join("; ")), why, next)
        .of_member(&member.name)
}
