//! Why an array is what assembly made of it: every decision, with the event counts and times it
//! rests on, and the one command that helps. Pure: everything is in the facts and the decision.

use crate::md::assemble::{
    Access, Assembly, BitmapDistrust, MemberRecovery, Needs, ReAddCandidate, Slot, SyncState,
};
use crate::md::facts::{MemberFacts, PplNewest, Uuid};
use crate::md::reason::Reason;
use crate::md::verdict::{Utc, Verdict};
use crate::nodes::MemberId;
use crate::problem::{Problem, shell_word};
use crate::scan::{ArrayScan, MemberOrigin, Scan};
use crate::size::Iec;

/// Why an array is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Its name.
    pub array: String,
    /// Its UUID.
    pub uuid: Uuid,
    /// About the array first, then about its empty slots, then about each member given.
    pub decisions: Vec<Decision>,
}

/// A decision and what led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The member that it is about; `None` for the array.
    pub member: Option<String>,
    /// What was decided.
    pub what: String,
    /// What that rests on.
    pub why: String,
    /// The one command that helps; `None` where nothing has to be done.
    pub next: Option<String>,
}

/// Explains an array that was found.
#[must_use]
pub fn why(scan: &Scan, array: &ArrayScan) -> Why {
    let facts: Vec<_> = array.members.iter().filter_map(|&ix| scan.members[ix].facts.clone()).collect();
    let unused: Vec<_> = array.unused.iter().filter_map(|&ix| scan.members[ix].problem.clone()).collect();
    let with_facts = array.members.iter().filter(|&&ix| scan.members[ix].facts.is_some());
    let drives: Vec<_> = with_facts.map(|&ix| drives_below(scan, ix)).collect();
    let mut explained = explain_on(&facts, &drives, &array.assembly, &unused);
    for &ix in &array.members {
        for error in &scan.members[ix].unreadable {
            explained.decisions.push(Decision {
                member: Some(scan.members[ix].member.name.clone()),
                what: "used, although not all of it could be read".to_owned(),
                why: error.to_string(),
                next: Some(format!("wattle examine {}", shell_word(&scan.members[ix].member.name))),
            });
        }
    }
    explained
}

/// What a member lies on, by names that can be given to a command: what firmware RAID, encryption
/// and other layers keep on a drive has a name of its own, by which nothing is found.
fn drives_below(scan: &Scan, ix: MemberId) -> Vec<String> {
    match scan.members[ix].origin {
        MemberOrigin::Container { of, .. }
        | MemberOrigin::Decrypted { of }
        | MemberOrigin::Layered { of } => drives_below(scan, of),
        MemberOrigin::Partition { of, .. } if scan.members[of].origin != MemberOrigin::Given => {
            drives_below(scan, of)
        }
        MemberOrigin::Array(array) => {
            scan.arrays[array].members.iter().flat_map(|&below| drives_below(scan, below)).collect()
        }
        MemberOrigin::Given | MemberOrigin::Partition { .. } | MemberOrigin::Logical { .. } => {
            vec![scan.members[ix].member.name.clone()]
        }
    }
}

/// The same of facts: `members` as they were given to the decision, and why others that name the
/// array are not among them.
#[must_use]
pub fn explain(members: &[MemberFacts], assembly: &Assembly, unused: &[Problem]) -> Why {
    let names: Vec<_> = members.iter().map(|member| vec![member.name.clone()]).collect();
    explain_on(members, &names, assembly, unused)
}

/// The same of members that lie on drives by these names.
fn explain_on(
    members: &[MemberFacts],
    drives: &[Vec<String>],
    assembly: &Assembly,
    unused: &[Problem],
) -> Why {
    let explained = Explanation { members, drives, assembly };
    let mut decisions = vec![explained.access()];
    decisions.extend(explained.reasons());
    decisions.extend(explained.overridden());
    decisions.extend(explained.sync());
    decisions.extend(explained.empty_slots());
    decisions.extend((0..members.len()).map(|ix| explained.member(ix)));
    decisions.extend(unused.iter().map(|problem| Decision {
        member: problem.member.clone(),
        what: format!("not used: {}", problem.what),
        why: problem.why.clone(),
        next: problem.member.as_deref().map(|name| format!("wattle examine {}", shell_word(name))),
    }));
    Why { array: assembly.name().to_owned(), uuid: assembly.uuid(), decisions }
}

/// When metadata was written, behind these words; nothing of Intel's, which does not say it.
fn written(words: &str, utime_secs: u64) -> String {
    if utime_secs == 0 { String::new() } else { format!("{words} {}", Utc(utime_secs)) }
}

struct Explanation<'a> {
    members: &'a [MemberFacts],
    /// By member: what is given so that it is found.
    drives: &'a [Vec<String>],
    assembly: &'a Assembly,
}

impl Explanation<'_> {
    fn freshest(&self) -> &MemberFacts {
        &self.members[self.assembly.freshest]
    }

    /// `wattle serve OPTIONS` with every drive given.
    fn serve(&self, options: &str) -> String {
        self.serve_without(options, None)
    }

    fn serve_without(&self, options: &str, left_out: Option<&str>) -> String {
        let members = self.members.iter().zip(self.drives);
        let wanted = members.filter(|(member, _)| Some(member.name.as_str()) != left_out);
        let mut names: Vec<String> = Vec::new();
        for word in wanted.flat_map(|(_, drives)| drives).map(|name| shell_word(name)) {
            if !names.contains(&word) {
                names.push(word);
            }
        }
        let options = if options.is_empty() { String::new() } else { format!(" {options}") };
        format!("wattle serve{options} {}", names.join(" "))
    }

    /// An order to the server of the array, which there is not yet.
    fn add(&self, member: &str) -> String {
        format!("serve it, then wattle add {} {}", shell_word(self.assembly.name()), shell_word(member))
    }

    fn mdadm(&self, options: &str) -> String {
        let names: Vec<_> = self.members.iter().map(|member| shell_word(&member.name)).collect();
        let device = shell_word(&format!("/dev/md/{}", self.assembly.name()));
        format!("mdadm --assemble{options} {device} {}", names.join(" "))
    }

    fn access(&self) -> Decision {
        let slots = &self.assembly.slots;
        let whole = slots.iter().filter(|slot| matches!(slot, Slot::InSync { .. })).count();
        let what = match &self.assembly.access {
            Access::ReadWrite => "may be read and written",
            Access::ReadOnly(_) => "may be read only",
            Access::Refused(_) => "is refused",
        };
        let in_sync = match slots.len() {
            0 => String::new(),
            count => format!("; {whole} of {count} slots are in sync"),
        };
        let fresh = self.freshest();
        Decision {
            member: None,
            what: what.to_owned(),
            why: format!(
                "described by {}, the freshest: {} events{}{in_sync}",
                fresh.name,
                fresh.superblock.events,
                written(", written", fresh.superblock.utime_secs)
            ),
            next: None,
        }
    }

    fn reasons(&self) -> Vec<Decision> {
        let decision = |reason: &Reason| {
            let problem = reason.problem(self.assembly.name());
            Decision {
                member: None,
                what: format!("{reason} ({})", problem.code),
                why: problem.why,
                next: Some(self.command(reason)),
            }
        };
        match &self.assembly.access {
            Access::ReadWrite => Vec::new(),
            Access::ReadOnly(reasons) | Access::Refused(reasons) => reasons.iter().map(decision).collect(),
        }
    }

    /// The command that helps against what keeps the array from being used.
    fn command(&self, reason: &Reason) -> String {
        match reason {
            Reason::NotEnoughMembers { .. } => "wattle scan DEVICE...".to_owned(),
            Reason::DirtyDegraded { .. } | Reason::SplitBrain { .. } => {
                let check = reason.check().map(|check| format!("--force={check}"));
                self.serve(check.as_deref().unwrap_or_default())
            }
            Reason::DegradedNotAllowed { .. } => self.serve("--degraded=auto"),
            Reason::DuplicateRole { second, .. } => self.serve_without("", Some(second)),
            Reason::UnknownFeatures { .. }
            | Reason::ReshapeUnknown
            | Reason::JournalNotEmpty { .. }
            | Reason::JournalDamaged { .. } => self.mdadm(""),
            Reason::JournalMissing => self.serve("--read-only --force=journal"),
            Reason::Container { .. } => self.serve("--read-only"),
            Reason::ContainerRefused { .. } => "mdadm --assemble --scan".to_owned(),
            Reason::Raid0Layout => self.serve("--read-only --force=raid0-original"),
            Reason::Reshaping(_)
            | Reason::JournalUnused
            | Reason::JournalReplayed { .. }
            | Reason::Clustered
            | Reason::CollidingLayout { .. }
            | Reason::BitmapVersion { .. }
            | Reason::BitmapInvalid { .. }
            | Reason::BitmapUnreadable { .. } => self.serve("--read-only"),
            Reason::BadBlocks { member } => format!("ddrescue {} COPY", shell_word(member)),
            Reason::UnsupportedLevel { .. } => {
                format!("wattle examine {}", shell_word(&self.freshest().name))
            }
            Reason::Ambiguous { member, .. }
            | Reason::BadNumber { member, .. }
            | Reason::Geometry { member, .. } => format!("wattle examine {}", shell_word(member)),
        }
    }

    fn overridden(&self) -> Vec<Decision> {
        let decision = |reason: &Reason| Decision {
            member: None,
            what: format!("goes on in spite of this: {reason}"),
            why: reason.check().map(|check| format!("--force={check} was given")).unwrap_or_default(),
            next: None,
        };
        self.assembly.overridden.iter().map(decision).collect()
    }

    /// What is known of parity and copies, and what is done about it.
    fn sync(&self) -> Option<Decision> {
        let assembly = self.assembly;
        let geometry = assembly.geometry.as_ref()?;
        if geometry.redundancy() == 0 {
            return None;
        }
        let events = assembly.array.events;
        let state = match assembly.state {
            SyncState::Clean => format!("the superblocks say clean at {events} events"),
            SyncState::Dirty => format!("the superblocks say dirty at {events} events"),
            SyncState::Resyncing { below_sectors } => {
                format!("the superblocks say in sync below sector {below_sectors} at {events} events")
            }
        };
        let what = match &assembly.needs {
            _ if assembly.replay_log => {
                "partial parity logs are replayed, and decide what is resynced".to_owned()
            }
            Needs::Nothing => "nothing is to be resynced".to_owned(),
            Needs::Everything => "all of it is to be resynced".to_owned(),
            Needs::Above { below_sectors } => format!("to be resynced from sector {below_sectors} on"),
            Needs::Regions(regions) => {
                format!("{} of {} regions are to be resynced", regions.len(), regions.count())
            }
        };
        let evidence: Vec<_> = [Some(state), self.bitmap(), self.logs()].into_iter().flatten().collect();
        let writable = assembly.access == Access::ReadWrite;
        let pending = assembly.replay_log || assembly.needs != Needs::Nothing;
        Some(Decision {
            member: None,
            what,
            why: evidence.join("; "),
            next: (pending && writable).then(|| self.serve("")),
        })
    }

    fn bitmap(&self) -> Option<String> {
        let bitmap = self.assembly.bitmap.as_ref()?;
        let (set, count) = (bitmap.set.len(), bitmap.set.count());
        Some(match bitmap.distrust {
            None => format!(
                "its bitmap is as new and has {set} of {count} bits set, last cleared at {} events",
                bitmap.events_cleared
            ),
            Some(BitmapDistrust::Behind { events, array_events }) => format!(
                "its bitmap has {events} events and the superblocks {array_events}: the array was written without keeping it, and its bits are not believed"
            ),
            Some(BitmapDistrust::SaysSo) => {
                "its bitmap is marked as stale, and its bits are not believed".to_owned()
            }
            Some(BitmapDistrust::Disagree) => {
                "copies of its bitmap have regions of different sizes, and their bits are not believed"
                    .to_owned()
            }
        })
    }

    fn logs(&self) -> Option<String> {
        if !self.assembly.replay_log {
            return None;
        }
        let logs: Vec<_> =
            self.members.iter().filter_map(|member| Some((member, member.ppl?.newest))).collect();
        let log = |(member, newest): &(&MemberFacts, PplNewest)| match newest {
            PplNewest::Missing => format!("{} has no valid log", member.name),
            PplNewest::Unreadable => format!("the log of {} cannot be read", member.name),
            PplNewest::Header { generation, entries } => {
                format!("the log of {} has {entries} entries at generation {generation}", member.name)
            }
        };
        (!logs.is_empty()).then(|| logs.iter().map(log).collect::<Vec<_>>().join(", "))
    }

    fn empty_slots(&self) -> Vec<Decision> {
        let decision = |slot: u16| {
            let cut_off = self.members.iter().zip(&self.assembly.verdicts).find(|(member, verdict)| {
                let is_its = member.superblock.own_role().slot() == Some(slot);
                is_its && matches!(verdict, Verdict::Truncated { .. })
            });
            if let Some((member, _)) = cut_off {
                return Decision {
                    member: None,
                    what: format!("slot {slot} is empty"),
                    why: format!("{} was in it, and was cut short: copy it again, whole", member.name),
                    next: None,
                };
            }
            let back = self.assembly.re_addable.iter().find(|re_add| re_add.slot == slot);
            let spare = self.assembly.spares.first();
            let (why, with) = match (back, spare) {
                (Some(re_add), _) => (
                    format!("{} was in it and is behind", self.members[re_add.member].name),
                    self.members[re_add.member].name.as_str(),
                ),
                (None, Some(&spare)) => (
                    format!("no member given is current in it; {} is a spare", self.members[spare].name),
                    self.members[spare].name.as_str(),
                ),
                (None, None) => ("no member given is current in it".to_owned(), "NEW"),
            };
            Decision { member: None, what: format!("slot {slot} is empty"), why, next: Some(self.add(with)) }
        };
        self.assembly.missing().into_iter().map(decision).collect()
    }

    fn member(&self, ix: usize) -> Decision {
        let member = &self.members[ix];
        let verdict = &self.assembly.verdicts[ix];
        let text = verdict.explanation().unwrap_or_else(|| verdict.word().to_owned());
        let mut why = vec![self.age(member)];
        why.extend(self.bad(ix));
        let mut next = None;
        let examine = || Some(format!("wattle examine {}", shell_word(&member.name)));
        match verdict {
            Verdict::Fresh { .. }
            | Verdict::Spare
            | Verdict::Apart { slot: None, .. }
            | Verdict::Journal
            | Verdict::Replacement { .. } => {}
            Verdict::Rebuilding { .. } => {
                let writable = self.assembly.access == Access::ReadWrite;
                next = writable.then(|| self.serve(""));
                why.extend(self.by_bitmap(ix));
            }
            Verdict::SplitBrain { .. } => next = Some(self.serve("--force=split-brain")),
            Verdict::Apart { slot: Some(_), .. } => {
                why.push(
                    "it lies on a volume, as a copy may, and the members that do not are enough".to_owned(),
                );
                next = Some(self.add(&member.name));
            }
            Verdict::Duplicate { .. } | Verdict::Foreign { .. } | Verdict::Truncated { .. } => {
                next = examine();
            }
            Verdict::BadBlocks { .. } => next = Some(format!("ddrescue {} COPY", shell_word(&member.name))),
            Verdict::Stale { .. } | Verdict::Faulty { .. } => {}
        }
        if let Some(re_add) = self.assembly.re_addable.iter().find(|re_add| re_add.member == ix) {
            why.push(self.coming_back(re_add));
            next = Some(self.add(&member.name));
        }
        Decision { member: Some(member.name.clone()), what: text, why: why.join("; "), next }
    }

    /// How a member compares with the freshest.
    fn age(&self, member: &MemberFacts) -> String {
        let (own, fresh) = (&member.superblock, &self.freshest().superblock);
        let events = match fresh.events.checked_sub(own.events) {
            None => format!("{} events, more than the freshest that is in use", own.events),
            Some(0) if own.utime_secs == fresh.utime_secs => {
                format!("{} events, as many as the freshest", own.events)
            }
            Some(0) => format!(
                "{} events, as many as {}, which was written {}",
                own.events,
                self.freshest().name,
                Utc(fresh.utime_secs)
            ),
            Some(behind) => format!("{} events, {behind} behind {}", own.events, self.freshest().name),
        };
        format!("{events}{}", written("; written", own.utime_secs))
    }

    fn bad(&self, ix: usize) -> Option<String> {
        let bad = &self.assembly.bad[ix];
        let sectors = bad.sectors();
        (sectors > 0).then(|| {
            let ranges = bad.iter().count();
            format!(
                "{} of its data in {ranges} ranges are recorded as bad, and read from the others",
                Iec(sectors.saturating_mul(512))
            )
        })
    }

    fn by_bitmap(&self, ix: usize) -> Option<String> {
        let by_bitmap =
            |slot: &Slot| matches!(slot, Slot::Rebuilding { member, by_bitmap: true, .. } if *member == ix);
        let set = self.assembly.stale_regions()?;
        self.assembly.slots.iter().any(by_bitmap).then(|| {
            format!("it was away, and only {} of {} regions are written again", set.len(), set.count())
        })
    }

    /// What has to be written again on a member that comes back, and why not less.
    fn coming_back(&self, re_add: &ReAddCandidate) -> String {
        let own = &self.members[re_add.member].superblock;
        let how = match (re_add.apart, re_add.failed) {
            (true, _) => "it does not lie where the members in use do, and waits for the order; ",
            (false, true) => "it was recorded as failed; ",
            (false, false) => "",
        };
        match (re_add.recovery, &self.assembly.bitmap) {
            (MemberRecovery::Regions, Some(bitmap)) => format!(
                "{how}bits were last cleared at {} events, so that it lacks only the {} of {} regions whose bits are set",
                bitmap.events_cleared,
                bitmap.set.len(),
                bitmap.set.count()
            ),
            (_, None) => {
                format!("{how}without a bitmap it is not known what it lacks: all of it is written again")
            }
            (_, Some(bitmap)) if bitmap.distrust.is_some() => {
                format!("{how}the bitmap is not believed: all of it is written again")
            }
            (_, Some(bitmap)) if own.events < bitmap.events_cleared => format!(
                "{how}bits were cleared at {} events, when it was gone: all of it is written again",
                bitmap.events_cleared
            ),
            (_, Some(_)) => format!(
                "{how}it was not whole when it left, or not known to be with the present members: all of it is written again"
            ),
        }
    }
}
