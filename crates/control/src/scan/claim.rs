//! From a decision to members that are ours: locks them, and makes sure that nothing changed.

use wattle_engine::BadRanges;

use super::{ArrayScan, MemberOrigin, MemberScan, Scan};
use crate::integrity::IntegrityState;
use crate::md::areas::member_facts;
use crate::md::assemble::{Access, Assembly};
use crate::md::container;
use crate::md::reason::Reason;
use crate::md::reshape::BackupFile;
use crate::md::start::{Claimed, ClaimedMember};
use crate::md::superblocks::superblocks_of;
use crate::members::{Claim, Member, MemberError};
use crate::nodes::MemberId;
use crate::problem::{Code, Problem};

/// Claims the members of an array that `scan` found: exclusively if it will be written, otherwise
/// against writers. Members that the array does not use are left alone, but for those that may come
/// back to it; it does without those and without spares that may only be read
/// ([`Claimed::left_out`]). An array that may only be read is claimed for reading, whatever was
/// asked for; [`Claimed::read_only`] and `Assembly::problems` say so.
///
/// # Errors
/// A [`Problem`]: the array is refused, a member is in use or cannot be written, lies on one whose
/// superblock is not used, or changed since the scan.
pub fn claim(scan: &Scan, array: &ArrayScan, read_only: bool) -> Result<Claimed, Problem> {
    let assembly = array.assembly.clone();
    if let Some(refusal) = assembly.refusal() {
        return Err(refusal);
    }
    if let Some(volume) = assembly.array.container.as_ref().filter(|_| !read_only) {
        return Err(Reason::Container { format: volume.format }.problem(assembly.name()));
    }
    if !read_only && assembly.reshape.is_some() {
        return Err(only_read(&assembly));
    }
    // A member that may or may not be part of the array makes the array uncertain, even if the
    // others were enough.
    let uncertain = |ix: &MemberId| {
        scan.members[*ix].problem.as_ref().filter(|problem| problem.code == Code::SeveralSuperblocks)
    };
    if let Some(problem) = array.unused.iter().find_map(uncertain) {
        return Err(problem.clone());
    }
    let claim_for = |read_only| if read_only { Claim::Read } else { Claim::Write };
    let whole = claim_for(read_only);
    let read_only = read_only || assembly.access != Access::ReadWrite;
    let claim = claim_for(read_only);
    if !read_only {
        array.members.iter().try_for_each(|&member| scan.check_below(member))?;
    }
    let claim_one = |ix: usize| {
        let claimed = claim_member(scan, array.members[ix], claim, whole);
        let claimed = claimed.map_err(|error| scan.not_claimed(array.members[ix], error))?;
        Ok::<_, Problem>(ClaimedMember { bad: assembly.bad[ix].clone(), ..claimed })
    };
    let slots = assembly.slots.iter().map(|slot| slot.member());
    let replacements = assembly.replacements.iter().map(|who| who.map(|who| who.member));
    let seats =
        slots.chain(replacements).map(|who| who.map(claim_one).transpose()).collect::<Result<_, _>>()?;
    // Reading needs no other members.
    let spares = if read_only { &[][..] } else { &assembly.spares };
    let mut left_out = Vec::new();
    let (mut spare_ixs, mut claimed_spares) = (Vec::new(), Vec::new());
    for &ix in spares {
        match claim_one(ix) {
            Ok(spare) => {
                spare_ixs.push(ix);
                claimed_spares.push(spare);
            }
            Err(problem) if problem.code == Code::ReadOnlyMember => left_out.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    let returning = if read_only { &[][..] } else { &assembly.re_addable };
    // The array can do without those that are not to be had.
    let mut claim_returning = |ix| match claim_one(ix) {
        Ok(claimed) => Some(claimed),
        Err(problem) => {
            left_out.extend((problem.code == Code::ReadOnlyMember).then_some(problem));
            None
        }
    };
    let returning = returning.iter().filter_map(|who| Some((*who, claim_returning(who.member)?))).collect();
    let journal = assembly.replay_journal.map(claim_one).transpose()?;
    let backups = backups(scan, array);
    let assembly = if read_only { assembly } else { Assembly { spares: spare_ixs, ..assembly } };
    let claimed = Claimed::of(assembly, seats, claimed_spares, returning, read_only);
    Ok(claimed.with_backups(backups).with_journal(journal).with_left_out(left_out))
}

/// An array in the middle of a reshape is not served as if it could be written: that it cannot has
/// to be what the operator meant.
fn only_read(assembly: &Assembly) -> Problem {
    let problem = assembly.problems().into_iter().find(|problem| problem.code == Code::Reshaping);
    let what = problem.map_or_else(|| "a reshape is in progress".to_owned(), |problem| problem.what);
    Problem::new(
        Code::Reshaping,
        what,
        "a write would have to go to both geometries, in step with what moves the data, and nothing does here",
        "serve it with --read-only, or copy what you need out of it; the kernel finishes the reshape",
    )
}

/// The backup files of an array that are among the members given. They are only read.
fn backups(scan: &Scan, array: &ArrayScan) -> Vec<BackupFile> {
    let of_array = array.members.iter().find_map(|&member| scan.members[member].superblock());
    let Some(superblock) = of_array.filter(|_| array.assembly.reshape.is_some()) else { return Vec::new() };
    let backups = scan.members.iter().filter(|member| member.backs_up(superblock));
    let file = |member: &MemberScan| {
        Some(BackupFile { device: member.member.device.clone(), header: member.backup.clone()? })
    };
    backups.filter_map(file).collect()
}

fn claim_member(
    scan: &Scan,
    member: MemberId,
    claim: Claim,
    whole: Claim,
) -> Result<ClaimedMember, MemberError> {
    let seen = &scan.members[member];
    let claimed: Member = seen.member.claim_within(claim, whole)?;
    if let MemberOrigin::Container { of, .. } = seen.origin {
        // What the drive says now, as the decision knows it.
        let before = scan.members[of].container.as_ref();
        let now = claimed.whole_of_part().and_then(|drive| container::read(&drive)).and_then(Result::ok);
        if before.is_none() || now.as_ref() != before {
            return Err(MemberError::Changed { name: claimed.name });
        }
        let (name, device) = (claimed.name, claimed.device);
        return Ok(ClaimedMember { name, device, superblock: None, bad: BadRanges::NONE });
    }
    // Between the look and the lock another process may have run the array.
    let now = superblocks_of(&claimed);
    let Some(superblock) = seen.superblock().filter(|known| now.valid.contains(known)) else {
        return Err(MemberError::Changed { name: claimed.name });
    };
    // It may have died since, with the superblock as it was and more bits in the bitmap than the
    // decision knows of.
    if seen.facts.as_ref() != Some(&member_facts(&claimed, superblock)) {
        return Err(MemberError::Changed { name: claimed.name });
    }
    let superblock = Some(superblock.clone());
    Ok(ClaimedMember { name: claimed.name, device: claimed.device, superblock, bad: BadRanges::NONE })
}

impl Scan {
    /// Why a member cannot be claimed; of what lies on another one and is only read, the reason
    /// that was found out when that one was opened.
    pub(crate) fn not_claimed(&self, member: MemberId, error: MemberError) -> Problem {
        let is_only_read = matches!(error, MemberError::LayerReadOnly { .. });
        let (problem, why) = (Problem::from(error), self.why_only_read(member));
        match why.filter(|_| is_only_read) {
            Some(why) => Problem { why, ..problem },
            None => problem,
        }
    }

    fn why_only_read(&self, member: MemberId) -> Option<String> {
        let seen = &self.members[member];
        let of = match seen.origin {
            MemberOrigin::Partition { of, .. }
            | MemberOrigin::Decrypted { of }
            | MemberOrigin::Layered { of } => of,
            _ => return None,
        };
        let (below, device) = (&self.members[of], &seen.member.device);
        let name = &below.member.name;
        if let Some(IntegrityState::Open(facts)) = below.integrity.as_ref().map(|device| &device.state)
            && let Some(why) = facts.only_read
        {
            return Some(format!("{name} is only read: {why}"));
        }
        let segment = below.encryption.as_ref().and_then(|found| found.header.segments.first());
        let sector_bytes = segment.map_or(512, |segment| segment.sector_bytes);
        let ends_within = sector_bytes > 512 && !device.size_bytes().is_multiple_of(4096);
        if !device.writable() && ends_within {
            return Some(format!(
                "{name} is encrypted in sectors of {sector_bytes} bytes and ends within a block of 4096, and such a device is only read here"
            ));
        }
        self.why_only_read(of)
    }
}

impl Claimed {
    /// An array that is only looked into: nothing is locked, and a process that runs it may go on.
    ///
    /// # Errors
    /// A [`Problem`]: the array is refused.
    pub fn look(scan: &Scan, array: &ArrayScan) -> Result<Self, Problem> {
        let assembly = array.assembly.clone();
        if let Some(refusal) = assembly.refusal() {
            return Err(refusal);
        }
        let look_at = |ix: usize| {
            let seen = &scan.members[array.members[ix]];
            let is_part = matches!(seen.origin, MemberOrigin::Container { .. });
            Some(ClaimedMember {
                name: seen.member.name.clone(),
                device: seen.member.device.clone(),
                superblock: if is_part { None } else { Some(seen.superblock()?.clone()) },
                bad: assembly.bad[ix].clone(),
            })
        };
        let slots = assembly.slots.iter().map(|slot| slot.member());
        let replacements = assembly.replacements.iter().map(|who| who.map(|who| who.member));
        let seats = slots.chain(replacements).map(|who| who.and_then(look_at)).collect();
        let journal = assembly.replay_journal.and_then(look_at);
        let backups = backups(scan, array);
        Ok(Self::of(assembly, seats, Vec::new(), Vec::new(), true)
            .with_backups(backups)
            .with_journal(journal))
    }
}
