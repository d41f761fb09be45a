//! Looks at members: every superblock, the metadata areas it names, other signatures; groups members to arrays.
//!
//! Invariant: only reads, a few dozen kilobytes of each member. A member that cannot be made sense of never stops the scan
//! of the others: what is wrong with it is a [`Problem`] of that member.

use std::collections::BTreeMap;

use wattle_format::md::{self, RawSuperblock, Superblock, SuperblockError};
use wattle_format::probe::{self, Signature};
use wattle_rt::Device;

use crate::areas;
use crate::assemble::{Assembly, assemble};
use crate::facts::{MemberFacts, SuperblockFacts, Uuid, Version};
use crate::members::{Member, MemberError};
use crate::problem::{Check, Code, Forced, Problem};

/// Everything known of the members given.
#[derive(Debug)]
pub struct Scan {
    /// In the order given.
    pub members: Vec<MemberScan>,
    /// In the order of their first member.
    pub arrays: Vec<ArrayScan>,
}

/// A member and what is on it.
#[derive(Debug)]
pub struct MemberScan {
    /// The member, open for reading.
    pub member: Member,
    /// Valid superblocks, in order of preference.
    pub superblocks: Vec<Superblock>,
    /// Superblocks that are there and not valid, with every check they fail.
    pub damaged: Vec<Damaged>,
    /// Everything else that is recognised: file systems, partition tables, volume groups, foreign RAID metadata.
    pub signatures: Vec<Signature>,
    /// What assembly knows of it; `None` for a stranger.
    pub facts: Option<MemberFacts>,
    /// Which of `superblocks` is the one that counts.
    pub chosen: Option<usize>,
    /// Why the member belongs to no array although it should; a stranger has none.
    pub problem: Option<Problem>,
}

impl MemberScan {
    /// The superblock that counts.
    #[must_use]
    pub fn superblock(&self) -> Option<&Superblock> {
        self.chosen.map(|ix| &self.superblocks[ix])
    }
}

/// A superblock that failed its checks.
#[derive(Debug)]
pub struct Damaged {
    /// Where it was found.
    pub version: Version,
    /// As it was read, for `examine`.
    pub raw: RawSuperblock,
    /// What is wrong, at least one.
    pub errors: Vec<SuperblockError>,
}

/// An array and its members.
#[derive(Debug)]
pub struct ArrayScan {
    /// Indices into [`Scan::members`], in the order of [`Assembly::verdicts`].
    pub members: Vec<usize>,
    /// Indices of members whose damaged superblock names this array.
    pub damaged: Vec<usize>,
    /// What it is.
    pub assembly: Assembly,
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

    /// Why there is no array: a member's own problem says it best.
    fn nothing_found(&self) -> Problem {
        let first = self.members.iter().find_map(|member| member.problem.clone());
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

fn describe(assembly: &Assembly) -> String {
    format!("{} ({})", assembly.name(), assembly.uuid())
}

/// Reads what is on `members` and decides what arrays they are.
///
/// # Errors
/// Only if a member cannot be read where its metadata may be; everything else is found in the result.
pub fn scan(members: Vec<Member>, forced: Forced) -> Result<Scan, MemberError> {
    let members: Vec<_> =
        members.into_iter().map(|member| look_at(member, forced)).collect::<Result<_, _>>()?;
    let arrays = group(&members, forced);
    Ok(Scan { members, arrays })
}

/// Groups by array, in the order of first members.
fn group(members: &[MemberScan], forced: Forced) -> Vec<ArrayScan> {
    let mut by_uuid: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
    for (ix, member) in members.iter().enumerate() {
        if let Some(facts) = &member.facts {
            by_uuid.entry(facts.superblock.set_uuid).or_default().push(ix);
        }
    }
    let mut arrays: Vec<_> = by_uuid
        .into_iter()
        .filter_map(|(uuid, indices)| {
            let facts: Vec<_> = indices.iter().filter_map(|&ix| members[ix].facts.clone()).collect();
            let names_it = |ix: &usize| {
                members[*ix].facts.is_none()
                    && members[*ix].damaged.iter().any(|damaged| damaged.raw.set_uuid() == uuid)
            };
            let damaged = (0..members.len()).filter(names_it).collect();
            Some(ArrayScan { assembly: assemble(&facts, forced)?, members: indices, damaged })
        })
        .collect();
    arrays.sort_by_key(|array| array.members[0]);
    arrays
}

fn look_at(member: Member, forced: Forced) -> Result<MemberScan, MemberError> {
    let (superblocks, damaged) = read_superblocks(&member)?;
    let signatures = read_signatures(&member)?;
    let (chosen, problem) = choose(&member, &superblocks, &damaged, forced);
    let facts = match chosen {
        Some(ix) => Some(areas::member_facts(&member, &superblocks[ix])?),
        None => None,
    };
    Ok(MemberScan { member, superblocks, damaged, signatures, facts, chosen, problem })
}
