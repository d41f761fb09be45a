//! Why an array is as it is, as `wattle why` shows it: of one that runs, what it is now and what follows; then, as of one that nobody
//! serves, what was decided from its superblocks.

use wattle_control::why::{Why, why};
use wattle_control::{ArrayScan, Scan};

use crate::control_socket::report::{ArrayReport, Health, MemberReport};
use crate::control_socket::why::{DecisionReport, WhyReport};

/// Of every array on members that nobody serves.
pub fn offline(scan: &Scan) -> Vec<WhyReport> {
    scan.arrays.iter().map(|array| of_scan(scan, array)).collect()
}

/// Of one of them.
pub fn of_scan(scan: &Scan, array: &ArrayScan) -> WhyReport {
    let Why { array, uuid, decisions } = why(scan, array);
    let decisions = decisions.into_iter().map(|decision| DecisionReport {
        member: decision.member,
        what: decision.what,
        why: decision.why,
        next: decision.next,
    });
    WhyReport { array, uuid: Some(uuid.to_string()), decisions: decisions.collect() }
}

/// Of one that runs. `at_start` are the decisions it was started from.
pub fn running(now: &ArrayReport, at_start: &[DecisionReport]) -> WhyReport {
    let mut decisions = vec![of_array(now)];
    decisions.extend(of_sync(now));
    decisions.extend(now.members.iter().flat_map(|member| of_member(now, member)));
    decisions.extend(now.spares.iter().filter(|spare| spare.state == "returning").map(|spare| {
        DecisionReport {
            member: Some(spare.member.clone()),
            what: "it was away and is not taken back by itself".to_owned(),
            why: "no bitmap says what it missed, so all of it would be written over".to_owned(),
            next: Some(format!("wattle add {} {}", now.name, spare.member)),
        }
    }));
    decisions.extend(of_scrub(now));
    // What was so when it was started may not be so any more.
    decisions.extend(at_start.iter().map(|decision| DecisionReport {
        what: format!("when it was started: {}", decision.what),
        next: None,
        ..decision.clone()
    }));
    WhyReport { array: now.name.clone(), uuid: now.uuid.clone(), decisions }
}

fn of_array(now: &ArrayReport) -> DecisionReport {
    let slots = now.members.len();
    let lacking: Vec<_> = now
        .members
        .iter()
        .filter(|member| member.state != "in_sync")
        .map(|member| member.slot.to_string())
        .collect();
    let why = match &lacking[..] {
        [] => format!("all {slots} slots have a member that is in sync"),
        _ => format!("slot {} of {slots} not in sync", lacking.join(", ")),
    };
    let what = format!("{} {}", now.slots, now.health.word(now.synced));
    if now.health == Health::Unusable {
        let failed = "a write or a flush failed on more members than redundancy makes up for (a full disk or file system does that); \
                      since then nothing is written";
        let next = format!(
            "wattle stop {}, mend what failed (`wattle status` and the system's log name it), `wattle scan` the members, then serve \
             it again",
            now.name
        );
        return DecisionReport { member: None, what, why: format!("{failed}; {why}"), next: Some(next) };
    }
    let nobody = now.members.iter().any(|member| matches!(member.state.as_str(), "missing" | "faulty"));
    let next = (nobody && now.sync.is_none()).then(|| format!("wattle add {} DEVICE", now.name));
    DecisionReport { member: None, what, why, next }
}

fn of_sync(now: &ArrayReport) -> Option<DecisionReport> {
    let about = |what: String, why: &str, next: Option<String>| {
        Some(DecisionReport { member: None, what, why: why.to_owned(), next })
    };
    match &now.sync {
        Some(sync) => {
            let why = match sync.action.as_str() {
                "resync" => "parity or copies may not agree after a crash, or were never made to",
                "recovery" => "a member is being filled from the others",
                "check" => "somebody asked for it; it compares and writes nothing",
                _ => "somebody asked for it",
            };
            let limit = sync
                .limited_by
                .as_ref()
                .map(|limit| format!("; limited by {}", limit.text))
                .unwrap_or_default();
            let paused = sync.paused.then(|| format!("wattle check {} --resume", now.name));
            about(
                format!("{} runs{}", sync.action, if sync.paused { ", paused" } else { "" }),
                &format!("{why}{limit}"),
                paused,
            )
        }
        None if !now.synced && now.read_only => about(
            "parity or copies are not known to agree, and nothing makes them".to_owned(),
            "it is served read-only",
            Some("wattle serve MEMBER...   (without --read-only)".to_owned()),
        ),
        None if !now.synced => about(
            "parity or copies are not known to agree everywhere".to_owned(),
            if now.paused {
                "background work is held"
            } else {
                "nothing can make them agree as the members are now"
            },
            now.paused.then(|| format!("wattle set {} sync_action=idle", now.name)),
        ),
        None => None,
    }
}

fn of_member(now: &ArrayReport, member: &MemberReport) -> Vec<DecisionReport> {
    let name = member.member.clone().unwrap_or_else(|| format!("slot {}", member.slot));
    let about = |what: String, why: String, next: Option<String>| DecisionReport {
        member: Some(name.clone()),
        what,
        why,
        next,
    };
    let mut decisions = Vec::new();
    let array = &now.name;
    match member.state.as_str() {
        "faulty" => {
            let failed = now
                .events
                .iter()
                .find(|event| event.what.starts_with(&name) && event.what.contains("failed"));
            let why = failed
                .map_or("it failed before the server looked, or as all broke".to_owned(), |event| {
                    format!("{} at {}, after {} read errors", event.what, event.time, member.read_errors)
                });
            decisions.push(about(
                format!("it failed and is not used (slot {})", member.slot),
                why,
                Some(format!("wattle remove {array} {name}, then wattle add {array} DEVICE")),
            ));
        }
        "missing" => decisions.push(about(
            "nobody is in the slot".to_owned(),
            "no member given belongs there, or it was removed".to_owned(),
            Some(format!("wattle add {array} DEVICE")),
        )),
        "rebuilding" => decisions.push(about(
            format!("it is being filled (slot {})", member.slot),
            format!("{} bytes of its data are current", member.valid_below_bytes.unwrap_or(0)),
            None,
        )),
        _ => {}
    }
    if member.slow {
        decisions.push(about(
            "it is slow, and reads go around it".to_owned(),
            format!("{} reads were not answered in time and came from redundancy", member.reads_overdue),
            Some(format!("wattle replace {array} {name} DEVICE")),
        ));
    }
    if member.bad_bytes > 0 {
        decisions.push(about(
            format!("{} bytes of it are bad blocks", member.bad_bytes),
            "they could not be read and did not take their content back".to_owned(),
            Some(format!("wattle check {array} --bad-blocks {name}")),
        ));
    }
    decisions
}

fn of_scrub(now: &ArrayReport) -> Option<DecisionReport> {
    let last = now.scrubs.first()?;
    let left = last.mismatch_sectors.saturating_sub(last.repaired_sectors);
    (left > 0).then(|| DecisionReport {
        member: None,
        what: format!("{left} sectors do not agree"),
        why: format!("the {} of {} found them", last.action, last.started),
        next: Some(format!("wattle status {}   (where, what it means, and how to repair it)", now.name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::tests::array;
    use crate::control_socket::report::{EventReport, SpareReport};
    use crate::output::progress::tests::sync;

    fn nexts(report: &WhyReport) -> Vec<&str> {
        report.decisions.iter().filter_map(|decision| decision.next.as_deref()).collect()
    }

    #[test]
    fn a_whole_array_needs_nothing() {
        let at_start = DecisionReport {
            member: None,
            what: "clean".to_owned(),
            why: "5 events".to_owned(),
            next: Some("x".to_owned()),
        };
        let report = running(&array("data", "raid5", &["a", "b", "c"]), &[at_start]);
        assert_eq!(nexts(&report), [""; 0]);
        assert_eq!(report.decisions[0].what, "[UUU] good");
        assert_eq!(report.decisions[1].what, "when it was started: clean");
    }

    #[test]
    fn an_array_that_takes_no_writes_any_more_says_why_and_what_now() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.health = Health::Unusable;
        let report = running(&data, &[]);
        let [decision] = &report.decisions[..] else { panic!("{:?}", report.decisions) };
        assert_eq!(decision.what, "[UUU] unusable");
        assert!(decision.why.starts_with("a write or a flush failed on more members"), "{}", decision.why);
        assert!(nexts(&report)[0].starts_with("wattle stop data, mend what failed"), "{:?}", nexts(&report));
    }

    #[test]
    fn each_trouble_has_the_one_command_that_helps() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.members[1].state = "faulty".to_owned();
        data.members[2].slow = true;
        data.members[0].bad_bytes = 512;
        data.spares = vec![SpareReport { member: "old".to_owned(), state: "returning".to_owned() }];
        data.events = vec![EventReport {
            time: "2026-11-21T12:00:00Z".to_owned(),
            what: "b (slot 1) failed".to_owned(),
        }];
        let report = running(&data, &[]);
        let expected = [
            "wattle add data DEVICE",
            "wattle check data --bad-blocks a",
            "wattle remove data b, then wattle add data DEVICE",
            "wattle replace data c DEVICE",
            "wattle add data old",
        ];
        assert_eq!(nexts(&report), expected);
        assert!(
            report.decisions.iter().any(|decision| decision.why.contains("failed at 2026-11-21T12:00:00Z"))
        );
    }

    #[test]
    fn background_work_says_why_it_runs() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.synced = false;
        data.sync = Some(sync("resync", 1, 2));
        assert!(running(&data, &[]).decisions[1].why.starts_with("parity or copies may not agree"));
        data.sync.as_mut().unwrap().paused = true;
        assert_eq!(nexts(&running(&data, &[])), ["wattle check data --resume"]);
        data.sync = None;
        data.paused = true;
        assert_eq!(nexts(&running(&data, &[])), ["wattle set data sync_action=idle"]);
    }
}
