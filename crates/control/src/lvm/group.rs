//! Volume groups: which physical volumes belong together, which of their texts counts, and what can
//! be done with the group.
//!
//! The rules: a text is whole or does not count; of a group's whole texts the one with the highest
//! sequence number counts, wherever it is; a physical volume belongs to the group whose text names
//! its id. Where the texts of several groups do, its own areas tell which group took it last.
//! Two members with one id are a copy and its original: which is which cannot be told, so neither
//! is used.

use std::collections::BTreeMap;

use wattle_format::lvm::{AreaState, Id, Lv, Pv, Standing, Vg, choose};

use super::older::{CurrentText, OlderPhysical, newest_older};
use super::physical::{Members, PhysicalVolume};
use super::problems;
use crate::nodes::MemberId;
use crate::problem::Problem;

/// A volume group.
#[derive(Debug, Clone)]
pub struct GroupScan {
    /// What the text that counts says.
    pub vg: Vg,
    /// That text.
    pub text: Vec<u8>,
    /// By [`Vg::pvs`]: which member it is on, if it is there.
    pub devices: Vec<Option<MemberId>>,
    /// Further members that are one of its physical volumes too: copies, or the originals.
    pub copies: Vec<MemberId>,
    /// By [`Vg::pvs`]: how large what it is on is, if it is there.
    pub sizes_bytes: Vec<Option<u64>>,
    /// Metadata areas that do not hold that text: member, area, and what they hold.
    pub behind: Vec<(MemberId, usize, Standing)>,
    /// By [`Vg::pvs`]: those that are here with an older text alone, and what they have.
    pub older: Vec<Option<OlderPhysical>>,
    /// What became of each volume, by its id.
    pub volumes: BTreeMap<Id, VolumeState>,
    /// Why nothing of it can be used.
    pub problem: Option<Problem>,
    /// Another process changed it while it was open: its volumes run as they did, and it is not
    /// changed any more.
    pub is_overtaken: bool,
    /// A text of it was written, and it is not known that it counts: after a power cut this one
    /// may, or another, so that nothing of either is free.
    pub is_in_doubt: bool,
    /// What its operator should know.
    pub notes: Vec<String>,
}

/// What became of a logical volume.
#[derive(Debug, Clone, Default)]
pub struct VolumeState {
    /// Why it cannot be used; `None` while it has not been tried, and if it runs.
    pub problem: Option<Problem>,
    /// Parts of it are on physical volumes that are missing, so that it is served without them,
    /// read-only.
    pub partial: bool,
    /// How much of it that is, in bytes; 0 where it is not known, as in a volume made of others.
    pub lost_bytes: u64,
    /// RAID images that are missing or out of use, of it and of what it is made of: what they hold
    /// is read through redundancy.
    pub images_out: usize,
    /// What its operator should know: images that are missing, a cache that was done without.
    pub notes: Vec<String>,
}

impl GroupScan {
    /// A volume of it.
    ///
    /// # Panics
    /// If there is none of this id.
    #[must_use]
    pub fn lv(&self, id: Id) -> &Lv {
        self.vg.lvs.iter().find(|lv| lv.id == id).expect("a volume that is known by its id is in the text")
    }

    /// Whether a physical volume is none of its own any more: the text that counts does not name
    /// it, and what it has of the group is older, with no volume on it. So a cut leaves it that
    /// comes between the commit and what follows it. One that holds volumes by its own text did not
    /// leave: the group went on without it.
    #[must_use]
    pub fn has_left(&self, physical: &PhysicalVolume) -> bool {
        let is_older = |vg: &Vg| vg.id == self.vg.id && vg.seqno < self.vg.seqno;
        self.problem.is_none()
            && self.vg.pv_of(physical.label.id).is_none()
            && physical.texts().all(is_older)
            && physical.own_group().is_some_and(|own| physical.volumes_of(own).is_empty())
    }

    /// The full name of a volume: `group/volume`.
    #[must_use]
    pub fn full_name(&self, lv: &Lv) -> String {
        format!("{}/{}", self.vg.name, lv.name)
    }

    /// The size of a volume in bytes, as clients have it; saturates.
    #[must_use]
    pub fn size_bytes(&self, lv: &Lv) -> u64 {
        lv.usable_extents().saturating_mul(self.vg.extent_sectors).saturating_mul(512)
    }

    /// Whether it must not be written here: it says so, was exported, belongs to another host, or
    /// several share it by locks that we do not take.
    #[must_use]
    pub fn is_elsewheres(&self) -> bool {
        let has = |word: &str| self.vg.status.iter().any(|status| status == word);
        let names = |of: &Option<String>| of.as_deref().is_some_and(|of| !of.is_empty() && of != "none");
        !has("WRITE") || has("EXPORTED") || names(&self.vg.system_id) || names(&self.vg.lock_type)
    }

    /// Where the extents of a physical volume end by the text, in bytes.
    #[must_use]
    pub fn end_bytes(&self, pv: usize) -> u64 {
        let Pv { pe_start, pe_count, .. } = self.vg.pvs[pv];
        let sectors = pe_count.saturating_mul(self.vg.extent_sectors).saturating_add(pe_start);
        sectors.saturating_mul(512) / 512 * 512
    }

    /// How much of a physical volume is there, from its start on, in bytes: nothing of one that is
    /// missing, not its end if what it is on was made smaller or is a part of a copy.
    #[must_use]
    pub fn there_bytes(&self, pv: usize) -> u64 {
        let size_bytes = self.sizes_bytes[pv].filter(|_| self.devices[pv].is_some()).unwrap_or(0);
        (size_bytes / 512 * 512).min(self.end_bytes(pv))
    }

    /// Where the extents of a physical volume would end, in bytes, if that is past the end of what
    /// it is on.
    #[must_use]
    pub fn ends_past(&self, pv: usize) -> Option<u64> {
        let end_bytes = self.end_bytes(pv);
        self.sizes_bytes[pv].filter(|size_bytes| *size_bytes < end_bytes).map(|_| end_bytes)
    }

    /// Refuses a group where something of a physical volume is past the end of what it is on, for
    /// what needs room.
    ///
    /// # Errors
    /// A [`Problem`].
    pub fn check_room(&self) -> Result<(), Problem> {
        let short = (0..self.vg.pvs.len()).find_map(|pv| Some((pv, self.ends_past(pv)?)));
        short.map_or(Ok(()), |(pv, end_bytes)| Err(self.short(&self.vg.name, pv, end_bytes)))
    }

    pub(super) fn short(&self, what: &str, pv: usize, end_bytes: u64) -> Problem {
        let size_bytes = self.sizes_bytes[pv].unwrap_or_default();
        problems::short_physical(what, &self.vg.pvs[pv].id.to_string(), end_bytes, size_bytes)
    }

    /// The names of physical volumes that are missing, with where they were seen last.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let pvs = self.vg.pvs.iter().zip(&self.devices).filter(|(_, device)| device.is_none());
        pvs.map(|(pv, _)| match &pv.device {
            Some(device) => format!("{} (last seen as {device})", pv.id),
            None => pv.id.to_string(),
        })
        .collect()
    }

    /// What of the physical volumes is not there: those that are missing, and the ends of those
    /// that are shorter than their extents.
    #[must_use]
    pub fn lacking(&self) -> Vec<String> {
        let short = (0..self.vg.pvs.len()).filter(|pv| self.ends_past(*pv).is_some());
        let short = short.map(|pv| {
            format!("{} from byte {} on, where it was cut off", self.vg.pvs[pv].id, self.there_bytes(pv))
        });
        self.missing().into_iter().chain(short).collect()
    }
}

/// What physical volumes make. The groups, and what is wrong with single members, by member.
#[derive(Debug, Default)]
pub struct Groups {
    /// In the order of their first member.
    pub groups: Vec<GroupScan>,
    /// Members that cannot be used, and why.
    pub problems: Vec<(MemberId, Problem)>,
}

/// The groups whose physical volumes are among these members.
#[must_use]
pub fn on(members: &impl Members) -> Vec<GroupScan> {
    let physical = members.ids().filter_map(|ix| Some((ix, members.name(ix), members.physical(ix)?)));
    assemble(&physical.collect::<Vec<_>>()).groups
}

/// Puts groups together. `members`: which member, what to call it, what is on it.
pub(crate) fn assemble(members: &[(MemberId, &str, &PhysicalVolume)]) -> Groups {
    let mut groups = Groups::default();
    let mut by_id: BTreeMap<Id, Vec<usize>> = BTreeMap::new();
    for (at, (_, _, physical)) in members.iter().enumerate() {
        by_id.entry(physical.label.id).or_default().push(at);
    }
    let mut vgs: Vec<Id> = Vec::new();
    for (_, _, physical) in members {
        for (_, vg) in physical.areas.iter().filter_map(|area| area.text.as_ref()) {
            if !vgs.contains(&vg.id) {
                vgs.push(vg.id);
            }
        }
    }
    for vg in vgs {
        if let Some(group) = one_group(vg, members, &by_id) {
            groups.groups.push(group);
        }
    }
    let elsewhere = settle_claims(&mut groups.groups, members);
    for (at, group) in groups.groups.iter_mut().enumerate() {
        let of_group = elsewhere.iter().filter(|(group, _)| *group == at);
        group.notes = of_group.map(|(_, note)| note.clone()).chain(notes(group, members)).collect();
    }
    note_same_names(&mut groups.groups);
    for (ix, name, physical) in members {
        let known = |group: &GroupScan| group.vg.pvs.iter().any(|pv| pv.id == physical.label.id);
        let damaged = physical.areas.iter().find_map(|area| area.error.as_deref());
        if let (false, Some(damaged)) = (groups.groups.iter().any(known), damaged) {
            groups.problems.push((*ix, problems::damaged_metadata(name, damaged)));
        }
    }
    groups
}

/// Leaves a physical volume that several groups name to the one that its own areas name: a drive
/// of an earlier group of its that comes back does not bring it along. The notes of those that do
/// without it, by their place.
///
/// Invariant: no physical volume is used in two groups.
fn settle_claims(
    groups: &mut [GroupScan],
    members: &[(MemberId, &str, &PhysicalVolume)],
) -> Vec<(usize, String)> {
    let mut notes = Vec::new();
    for (member, name, physical) in members {
        let claim = |(at, group): (usize, &GroupScan)| {
            Some((at, group.devices.iter().position(|device| *device == Some(*member))?))
        };
        let claims: Vec<_> = groups.iter().enumerate().filter_map(claim).collect();
        if claims.len() < 2 {
            continue;
        }
        let says_so = |(at, _): &&(usize, usize)| {
            let id = groups[*at].vg.id;
            physical.texts().any(|vg| vg.id == id && vg.pv_of(physical.label.id).is_some())
        };
        let own: Vec<_> = claims.iter().filter(says_so).copied().collect();
        match own[..] {
            [(owner, _)] => {
                let of = groups[owner].vg.name.clone();
                for (at, pv) in claims.into_iter().filter(|(at, _)| *at != owner) {
                    let group = &mut groups[at];
                    (group.devices[pv], group.sizes_bytes[pv], group.older[pv]) = (None, None, None);
                    notes.push((at, belongs_to(name, &of)));
                }
            }
            _ => {
                let of: Vec<_> = claims.iter().map(|(at, _)| groups[*at].vg.name.clone()).collect();
                for (at, _) in claims {
                    let problem = || problems::claimed_twice(name, &of);
                    groups[at].problem.get_or_insert_with(problem);
                }
            }
        }
    }
    notes
}

/// What an earlier group of a physical volume is told.
fn belongs_to(member: &str, group: &str) -> String {
    format!(
        "{member} belongs to the group {group} now, by its own text, and is not used for this one, whose text is from before"
    )
}

/// The same of all that `group` names and lacks because they are in `other` by their own texts.
pub(crate) fn has_taken(other: &GroupScan, group: &GroupScan, members: &impl Members) -> Vec<String> {
    let lacks = |id: Id| group.vg.pvs.iter().zip(&group.devices).any(|(pv, at)| pv.id == id && at.is_none());
    let taken = other.devices.iter().flatten().filter(|&&member| {
        let physical = members.physical(member).filter(|physical| lacks(physical.label.id));
        physical.and_then(PhysicalVolume::own_group).is_some_and(|own| own.id == other.vg.id)
    });
    taken.map(|member| belongs_to(members.name(*member), &other.vg.name)).collect()
}

fn one_group(
    vg: Id,
    members: &[(MemberId, &str, &PhysicalVolume)],
    by_id: &BTreeMap<Id, Vec<usize>>,
) -> Option<GroupScan> {
    // Every area of every member that has a text of this group.
    let of_group = |physical: &PhysicalVolume| {
        physical.areas.iter().any(|area| area.text.as_ref().is_some_and(|(_, found)| found.id == vg))
    };
    let areas: Vec<_> = members
        .iter()
        .filter(|(_, _, physical)| of_group(physical))
        .flat_map(|(ix, _, physical)| physical.areas.iter().enumerate().map(|(at, area)| (*ix, at, area)))
        .collect();
    // A member may hold texts of two groups: what was left of an earlier one does not count here.
    let states: Vec<_> = areas
        .iter()
        .map(|(_, _, area)| match area.state {
            AreaState::Text { vg: other, .. } if other != vg => AreaState::Empty,
            state => state,
        })
        .collect();
    let (chosen, standings, split) = match choose(&states) {
        Ok((chosen, standings)) => (chosen, standings, None),
        Err(error) => {
            let first = states.iter().position(|state| matches!(state, AreaState::Text { .. }))?;
            (first, Vec::new(), Some(error.to_string()))
        }
    };
    let (text, vg) = areas[chosen].2.text.clone()?;
    let device =
        |id: Id| by_id.get(&id).map(|found| found.iter().map(|&at| members[at].0).collect::<Vec<_>>());
    let found: Vec<_> = vg.pvs.iter().map(|pv| device(pv.id).unwrap_or_default()).collect();
    let duplicate = vg.pvs.iter().zip(&found).find(|(_, found)| found.len() > 1);
    let name_of = |ix: MemberId| members.iter().find(|(at, ..)| *at == ix).map_or("-", |(_, name, _)| *name);
    let problem = split
        .map(|why: String| problems::split_metadata(&vg.name, &why))
        .or_else(|| {
            let (pv, found) = duplicate?;
            let names: Vec<_> = found.iter().map(|&ix| name_of(ix)).collect();
            Some(problems::duplicate_physical(&vg.name, &pv.id.to_string(), &names))
        })
        .or_else(|| {
            let found = vg.problems();
            (!found.is_empty()).then(|| problems::impossible_group(&vg.name, &found))
        });
    let behind = areas.iter().zip(&standings).filter(|(_, standing)| **standing != Standing::Current);
    let behind: Vec<_> = behind
        .filter(|((_, _, area), _)| area.state != AreaState::Ignored)
        .map(|((ix, at, _), standing)| (*ix, *at, *standing))
        .collect();
    let current = match states[chosen] {
        AreaState::Text { vg, seqno, crc } if !standings.is_empty() => Some(CurrentText { vg, seqno, crc }),
        _ => None,
    };
    let older = |pv: &Pv, found: &[MemberId]| {
        // One that the text calls missing is not written.
        let (current, &ix) = (current.filter(|_| !pv.is_missing())?, found.first()?);
        let (_, name, physical) = members.iter().find(|(at, ..)| *at == ix)?;
        let seqno = newest_older(&physical.areas, current)?;
        Some(OlderPhysical { name: (*name).to_owned(), seqno, is_forced: false })
    };
    let older = vg.pvs.iter().zip(&found).map(|(pv, found)| older(pv, found)).collect();
    let size = |ix: MemberId| members.iter().find(|(at, ..)| *at == ix).map(|(.., found)| found.size_bytes);
    let sizes = found.iter().map(|found| found.first().and_then(|&ix| size(ix)));
    Some(GroupScan {
        sizes_bytes: sizes.collect(),
        older,
        volumes: vg.lvs.iter().map(|lv| (lv.id, VolumeState::default())).collect(),
        copies: found.iter().flat_map(|found| found.iter().skip(1)).copied().collect(),
        devices: found.into_iter().map(|found| found.first().copied()).collect(),
        notes: Vec::new(),
        vg,
        text,
        behind,
        problem,
        is_overtaken: false,
        is_in_doubt: false,
    })
}

fn notes(group: &GroupScan, members: &[(MemberId, &str, &PhysicalVolume)]) -> Vec<String> {
    let found = |ix: MemberId| members.iter().find(|(at, ..)| *at == ix);
    let name_of = |ix: MemberId| found(ix).map_or("-", |(_, name, _)| *name);
    let mut notes = Vec::new();
    let missing = group.missing();
    if !missing.is_empty() {
        notes.push(format!("physical volumes are missing: {}", missing.join(", ")));
    }
    for (pv, device) in group.devices.iter().enumerate() {
        if let (Some(end_bytes), Some(device)) = (group.ends_past(pv), device) {
            let size_bytes = group.sizes_bytes[pv].unwrap_or_default();
            notes.push(format!(
                "{} has {size_bytes} bytes, and its extents would end at {end_bytes}: it was made smaller, or is a copy that was cut short \
                 (copy it again: made longer it would hold zeros)",
                name_of(*device)
            ));
        }
    }
    let outdated = group.vg.pvs.iter().zip(&group.devices).filter(|(pv, at)| pv.is_missing() && at.is_some());
    let outdated: Vec<_> = outdated.map(|(pv, _)| pv.id.to_string()).collect();
    if !outdated.is_empty() {
        notes.push(format!(
            "the group went on without physical volumes that are here: {}; what lies on them may be out of date, and is read-only \
             (`vgextend --restoremissing` takes them back)",
            outdated.join(", ")
        ));
    }
    if group.is_elsewheres() {
        notes.push(
            "read-only: exported, another host's, or shared by locks that are not taken here".to_owned(),
        );
    }
    for (ix, at, standing) in &group.behind {
        let is_older = |older: &OlderPhysical| older.name == name_of(*ix);
        let what = match standing {
            Standing::Older { seqno } if group.older.iter().flatten().any(is_older) => {
                notes.push(format!(
                    "metadata area {} of {} holds an older text ({seqno} of {}): it was away since then, or is an older copy, and what \
                     lies on it may be out of date",
                    at + 1,
                    name_of(*ix),
                    group.vg.seqno
                ));
                continue;
            }
            Standing::Older { seqno } if !left_with(group, found(*ix)).is_empty() => {
                notes.push(format!(
                    "metadata area {} of {} holds an older text ({seqno} of {}), by which {} lie on it, and the group's text does not \
                     name it: the group ran without it; given alone it shows what it holds",
                    at + 1,
                    name_of(*ix),
                    group.vg.seqno,
                    left_with(group, found(*ix)).join(", ")
                ));
                continue;
            }
            Standing::Older { seqno } => format!("holds an older text ({seqno} of {})", group.vg.seqno),
            _ => "holds no text that counts".to_owned(),
        };
        notes.push(format!("metadata area {} of {} {what}; the others are enough", at + 1, name_of(*ix)));
    }
    notes
}

/// The volumes that lie on a physical volume by its own text, of which the group's does not know.
fn left_with<'a>(
    group: &GroupScan,
    found: Option<&'a (MemberId, &'a str, &'a PhysicalVolume)>,
) -> Vec<&'a str> {
    let Some((_, _, physical)) = found else { return Vec::new() };
    let is_named = group.vg.pv_of(physical.label.id).is_some();
    let own = physical.own_group().filter(|own| !is_named && own.id == group.vg.id);
    own.map_or(Vec::new(), |own| physical.volumes_of(own))
}

/// Volumes are found by `group/volume`.
fn note_same_names(groups: &mut [GroupScan]) {
    for ix in 0..groups.len() {
        let same = |other: usize| other != ix && groups[other].vg.name == groups[ix].vg.name;
        if (0..groups.len()).any(same) && groups[ix].problem.is_none() {
            let note = problems::same_names(&groups[ix].vg.name, &groups[ix].vg.id.to_string());
            groups[ix].notes.push(note);
        }
    }
}
