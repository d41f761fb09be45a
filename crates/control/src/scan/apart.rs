//! Members that do not lie where those in use do: on a volume of an array or group, while these are
//! what was given or lie on it, or the other way around.
//!
//! Superblocks do not tell a member from its copy, and a volume is opened for whatever is on it: an
//! image of a drive that is kept there, the disk of a guest that can write any superblock into it.
//! What was given, the operator has named. Invariants:
//! 1. Where the members that were given make an array that can be used, no volume has a part in it:
//!    no superblock on a volume displaces a member that was given, or fills a slot. Volumes make an
//!    array where nothing of it was given, or where what was given is not enough.
//! 2. What an array has in use tells where its members lie. What lies elsewhere and is not in use
//!    is not written unless the operator names it.

use std::iter::successors;

use super::{ArrayScan, MemberOrigin, MemberScan, Scan};
use crate::md::assemble::{Access, Assembly, Degraded, Policy, Verdict};
use crate::nodes::{MemberId, Nodes};
use crate::problem::shell_word;

/// Decides what the array of these members is by `judge`, which takes some of them, and in which
/// order its verdicts are: those that were given first.
pub(super) fn decide(
    members: &Nodes<MemberId, MemberScan>,
    mut of: Vec<MemberId>,
    policy: Policy,
    judge: impl Fn(&[MemberId], Policy) -> Option<Assembly>,
) -> Option<(Vec<MemberId>, Assembly)> {
    of.sort_by_key(|&ix| is_on_volume(members, ix));
    let given = of.partition_point(|&ix| !is_on_volume(members, ix));
    let all = judge(&of, policy)?;
    if given == 0 || given == of.len() || all.refusal().is_some() || !uses_any(&all, given) {
        return Some((of, all));
    }
    // Whether redundancy may make up for what is missing is another question than which members
    // there are.
    let as_they_are = Policy { degraded: Degraded::Auto, ..policy };
    let can_be_used = |alone: &Assembly| alone.refusal().is_none();
    if !judge(&of[..given], as_they_are).as_ref().is_some_and(can_be_used) {
        return Some((of, all));
    }
    let mut alone = judge(&of[..given], policy)?;
    for (at, &ix) in of.iter().enumerate().skip(given) {
        let own = members[ix].facts.as_ref().map(|facts| &facts.superblock);
        alone.verdicts.push(Verdict::Apart {
            slot: own.and_then(|own| own.own_role().slot()),
            events_ahead: own.map_or(0, |own| own.events.saturating_sub(alone.array.events)),
        });
        alone.bad.push(all.bad[at].clone());
    }
    Some((of, alone))
}

/// Whether an array is described by one of its members from this one on, or has one in use.
fn uses_any(assembly: &Assembly, first: usize) -> bool {
    let is_journal = |at: usize| assembly.verdicts[at] == Verdict::Journal;
    let mut from_first = first..assembly.verdicts.len();
    assembly.freshest >= first || from_first.any(|at| is_in_use(assembly, at) || is_journal(at))
}

/// Finds out which members lie apart. They neither come back by themselves nor wait as spares.
pub(super) fn set_apart(members: &Nodes<MemberId, MemberScan>, array: &mut ArrayScan) {
    let on_volume: Vec<_> = array.members.iter().map(|&ix| is_on_volume(members, ix)).collect();
    let assembly = &mut array.assembly;
    let used = (0..on_volume.len()).filter(|&at| is_in_use(assembly, at)).map(|at| on_volume[at]);
    let used: Vec<_> = used.collect();
    if used.is_empty() {
        return;
    }
    array.apart = (0..on_volume.len()).filter(|&at| !used.contains(&on_volume[at])).collect();
    assembly.re_addable.iter_mut().for_each(|who| who.apart = array.apart.contains(&who.member));
    for at in assembly.spares.extract_if(.., |spare| array.apart.contains(spare)) {
        assembly.verdicts[at] = Verdict::Apart { slot: None, events_ahead: 0 };
    }
}

fn is_in_use(assembly: &Assembly, at: usize) -> bool {
    let in_slot = assembly.slots.iter().any(|slot| slot.member() == Some(at));
    in_slot || assembly.replacements.iter().flatten().any(|replacement| replacement.member == at)
}

/// Whether it is the volume of an array or a logical one, or lies on one.
fn is_on_volume(members: &Nodes<MemberId, MemberScan>, ix: MemberId) -> bool {
    let lowest = successors(Some(ix), |&ix| members[ix].origin.of()).last();
    lowest.is_some_and(|lowest| members[lowest].origin != MemberOrigin::Given)
}

impl Scan {
    /// What led to the verdict on a member of an array, given by its place among
    /// [`ArrayScan::members`], and what becomes of it then; `None` where the verdict's word says it
    /// all.
    #[must_use]
    pub fn explanation(&self, array: &ArrayScan, at: usize) -> Option<String> {
        let (assembly, verdict) = (&array.assembly, &array.assembly.verdicts[at]);
        let explanation = verdict.explanation()?;
        let ix = array.members[at];
        let member = &self.members[ix].member;
        let where_it_lies = || match is_on_volume(&self.members, ix) {
            true => "it lies on a volume, as a copy may, and no member in use does",
            false => "every member in use lies on a volume, and it does not",
        };
        let becomes = match (verdict, assembly.re_addable.iter().find(|who| who.member == at)) {
            (Verdict::Apart { slot: Some(_), .. }, _) => format!(
                "not used: it lies on a volume, as a copy may, and those that do not are enough; `wattle add {} {}`, once the array \
                 is served, takes it in",
                shell_word(assembly.name()),
                shell_word(&member.name)
            ),
            (Verdict::Apart { slot: None, .. }, _) => format!("not used: {}", where_it_lies()),
            (Verdict::Stale { .. } | Verdict::Faulty { .. }, Some(who)) if who.apart => format!(
                "not used: {}; `wattle add {} {}`, once the array is served, takes it back",
                where_it_lies(),
                shell_word(assembly.name()),
                shell_word(&member.name)
            ),
            (Verdict::Stale { .. } | Verdict::Faulty { .. }, Some(who))
                if assembly.access == Access::ReadWrite
                    && who.comes_by_itself(member.device.link().is_some()) =>
            {
                "it gets what it missed when the array is served read-write".to_owned()
            }
            (Verdict::Stale { .. } | Verdict::Faulty { .. }, _) => "not used".to_owned(),
            _ => return Some(explanation),
        };
        Some(format!("{explanation}; {becomes}"))
    }
}
