//! Why an array is as it is, as `wattle why` shows it: of a running array, what it is now and what
//! follows; then, as of an array without a server, what was decided from its superblocks.

use wattle_control::lvm::{GroupScan, group, older};
use wattle_control::why::{Why, why};
use wattle_control::{ArrayScan, Code, Problem, Scan, Verdict, shell_word};

use crate::events::Events;
use crate::protocol::report::{
    ArrayReport, Health, MemberReport, RemoteState, SeatState, SpareState, VolumeQosReport,
};
use crate::protocol::why::{DecisionReport, WhyReport};

/// The reasons of every array on members that no server has, of volume groups there that are not
/// as they should be, and of partitions that are not used.
pub fn offline(scan: &Scan) -> Vec<WhyReport> {
    let arrays = scan.arrays.iter().map(|array| of_scan(scan, array));
    arrays.chain(groups(scan)).chain(unused_partitions(scan)).collect()
}

/// What there is to know of each volume group whose physical volumes are members as they are.
fn groups(scan: &Scan) -> Vec<WhyReport> {
    let about = |group: GroupScan| {
        let notes = group.notes.into_iter().map(|note| DecisionReport {
            member: None,
            what: note,
            why: String::new(),
            next: None,
        });
        let older = group.older.iter().flatten().map(|older| older::problem(&group.vg, older));
        let problems = group.problem.into_iter().chain(older).map(of_problem);
        let decisions: Vec<_> = problems.chain(notes).collect();
        let uuid = Some(group.vg.id.to_string());
        (!decisions.is_empty()).then_some(WhyReport { array: group.vg.name, uuid, decisions })
    };
    group::on(scan).into_iter().filter_map(about).collect()
}

fn unused_partitions(scan: &Scan) -> impl Iterator<Item = WhyReport> {
    let with = scan.members.iter().filter(|seen| !seen.unused_partitions.is_empty());
    with.map(|seen| WhyReport {
        array: seen.member.name.clone(),
        uuid: None,
        decisions: seen.unused_partitions.iter().cloned().map(of_problem).collect(),
    })
}

fn of_problem(problem: Problem) -> DecisionReport {
    let what = format!("{} ({})", problem.what, problem.code);
    DecisionReport { member: None, what, why: problem.why, next: Some(problem.next) }
}

/// The reasons of one of them.
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

/// Before an array is used without some of the members given: which and why.
pub fn unused(scan: &Scan, array: &ArrayScan) -> Vec<String> {
    let verdicts = array.assembly.verdicts.iter().enumerate().filter(|(_, verdict)| {
        !matches!(
            verdict,
            Verdict::Fresh { .. } | Verdict::Rebuilding { .. } | Verdict::Spare | Verdict::Journal
        )
    });
    let judged = verdicts.map(|(at, verdict)| {
        let explanation = scan.explanation(array, at).map_or_else(String::new, |text| format!(": {text}"));
        format!("{}: {}{explanation}", scan.members[array.members[at]].member.name, verdict.word())
    });
    let problems = array.unused.iter().filter_map(|&ix| scan.members[ix].problem.as_ref());
    judged.chain(problems.map(|problem| format!("{} ({}); not used", problem.what, problem.code))).collect()
}

/// The reasons of an array that runs. `at_start` are the decisions it was started from.
pub fn running(now: &ArrayReport, events: &Events, at_start: &[DecisionReport]) -> WhyReport {
    let array = shell_word(&now.name);
    let mut decisions = vec![of_array(now, events)];
    decisions.extend(of_sync(now));
    decisions.extend(now.members.iter().flat_map(|member| of_member(now, member, events)));
    decisions.extend(now.spares.iter().filter(|spare| spare.state == SpareState::Returning).map(|spare| {
        DecisionReport {
            member: Some(spare.member.clone()),
            what: "it is not in its slot and is not taken back by itself".to_owned(),
            why: spare.why.clone().unwrap_or_default(),
            next: Some(format!("wattle add {array} {}", shell_word(&spare.member))),
        }
    }));
    decisions.extend(now.spares.iter().filter(|spare| spare.state == SpareState::Refused).map(|spare| {
        DecisionReport {
            member: Some(spare.member.clone()),
            what: "it is a spare and did not take a slot".to_owned(),
            why: spare.why.clone().unwrap_or_default(),
            next: Some(format!(
                "wattle remove {array} {}, and give another: wattle add {array} DEVICE",
                shell_word(&spare.member)
            )),
        }
    }));
    decisions.extend(of_scrub(now));
    // What held when it was started may not hold any more.
    decisions.extend(at_start.iter().map(|decision| DecisionReport {
        what: format!("when it was started: {}", decision.what),
        next: None,
        ..decision.clone()
    }));
    WhyReport { array: now.name.clone(), uuid: now.uuid.clone(), decisions }
}

/// What holds the clients of a volume back now; `goals` are the volumes with a goal of latency.
pub fn of_volume(now: &VolumeQosReport, goals: &[&str]) -> Vec<DecisionReport> {
    let about = |count: u64, what: String, why: String, next: Option<String>| {
        (count > 0).then_some(DecisionReport { member: None, what, why, next })
    };
    let (volume, word, rates) = (&now.volume, shell_word(&now.volume), rates(now));
    let limited = about(
        now.waiting_limited,
        format!("{volume} is held back by its own limit: {} wait", requests(now.waiting_limited)),
        format!("it is set to {rates}"),
        Some(format!("wattle set {word} KEY=none   (or a higher limit)")),
    );
    let (why, next) = match (now.depth_thousandths, goals) {
        // A weight deals out what is left to volumes without a goal: that stays what it is.
        (Some(depth), [goal, others @ ..]) => {
            let others = match others {
                [] => String::new(),
                _ => format!("; {} too", others.join(", ")),
            };
            (
                format!(
                    "a volume with a latency_goal is in use, so others have {:.1} requests under way on a core",
                    depth as f64 / 1e3
                ),
                format!("wattle set {} latency_goal=none   (or a longer one{others})", shell_word(goal)),
            )
        }
        _ => (
            "several volumes ask for more than there is, and share it by weight".to_owned(),
            format!("wattle set {word} weight=N   (a larger share)"),
        ),
    };
    let shared = about(
        now.waiting_shared,
        format!("{volume} waits for other volumes: {} of it wait", requests(now.waiting_shared)),
        why,
        Some(next),
    );
    limited.into_iter().chain(shared).collect()
}

fn requests(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}

/// The limits of a volume that are set, as they are typed.
fn rates(now: &VolumeQosReport) -> String {
    let set = now.settings.iter().filter(|(key, value)| {
        *value != "none" && !matches!(key.as_str(), "weight" | "latency_goal" | "burst")
    });
    set.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

fn of_array(now: &ArrayReport, events: &Events) -> DecisionReport {
    let (slots, array) = (now.members.len(), shell_word(&now.name));
    let lacking: Vec<_> = now
        .members
        .iter()
        .filter(|member| member.state != SeatState::InSync)
        .map(|member| member.slot.to_string())
        .collect();
    let why = match &lacking[..] {
        [] => format!("all {slots} slots have a member that is in sync"),
        _ => format!("slot {} of {slots} not in sync", lacking.join(", ")),
    };
    let what = format!("{} {}", now.slots, now.health.word(now.synced));
    if let Some(other) = events.overtaken().filter(|_| now.health == Health::Unusable) {
        let why = format!("{}: {}", other.what, other.why);
        return DecisionReport { member: None, what, why, next: Some(other.next) };
    }
    if now.health == Health::Unusable {
        let failed = "a write or a flush failed on more members than redundancy makes up for (a full disk or file system does that); \
                      since then nothing is written";
        let next = format!(
            "wattle stop {array}, mend what failed (`wattle status` and the system's log name it), `wattle scan` the members, then \
             serve it again"
        );
        return DecisionReport { member: None, what, why: format!("{failed}; {why}"), next: Some(next) };
    }
    let empty =
        now.members.iter().any(|member| matches!(member.state, SeatState::Missing | SeatState::Faulty));
    let next = if empty && now.sync.is_none() { now.add_order("DEVICE") } else { None };
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
                "check" => "it was asked for; it compares and writes nothing",
                _ => "it was asked for",
            };
            let limit = sync
                .limited_by
                .as_ref()
                .map(|limit| format!("; limited by {}", limit.text))
                .unwrap_or_default();
            let paused = sync.paused.then(|| now.resume_order());
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
            now.paused.then(|| now.resume_order()),
        ),
        None => None,
    }
}

fn of_member(now: &ArrayReport, member: &MemberReport, events: &Events) -> Vec<DecisionReport> {
    let name = member.member.clone().unwrap_or_else(|| format!("slot {}", member.slot));
    let about = |what: String, why: String, next: Option<String>| DecisionReport {
        member: Some(name.clone()),
        what,
        why,
        next,
    };
    let mut decisions = Vec::new();
    let (array, word) = (shell_word(&now.name), shell_word(&name));
    let away = member.remote.as_ref().filter(|remote| remote.state == RemoteState::Away);
    match (member.state, away) {
        (SeatState::Faulty, Some(remote)) => {
            let since = remote.away_since.as_deref().unwrap_or("some time");
            let tried = format!("it is away since {since}, and was tried {} times", remote.attempts);
            let refused = remote.reason_code.as_deref().is_some_and(|code| code != Code::RemoteAway.id());
            let comes_back = if refused { "it does not come" } else { "it comes" };
            decisions.push(about(
                format!(
                    "it did not answer and is not used (slot {}); {comes_back} back by itself",
                    member.slot
                ),
                remote.reason.iter().fold(tried, |tried, reason| format!("{tried}: {reason}")),
                refused.then(|| format!("wattle add {array} {word}")),
            ));
        }
        (SeatState::Faulty, None) => {
            let failed = events.last_failure(&name);
            let why =
                failed.map_or("it failed before the server looked, or as all broke".to_owned(), |failed| {
                    format!("{} at {}, after {} read errors", failed.event, failed.time, member.read_errors)
                });
            decisions.push(about(
                format!("it failed and is not used (slot {})", member.slot),
                why,
                now.renew_order(&name),
            ));
        }
        (SeatState::Missing, _) => decisions.push(about(
            "no member is in the slot".to_owned(),
            "no member given belongs there, or it was removed".to_owned(),
            now.add_order("DEVICE"),
        )),
        (SeatState::Rebuilding, _) => {
            let current = format!("{} bytes of its data are current", member.valid_below_bytes.unwrap_or(0));
            let slot = member.slot;
            decisions.push(match now.release_order() {
                Some(release) => about(
                    format!("it waits to be filled (slot {slot})"),
                    format!("background work is held; {current}"),
                    Some(release),
                ),
                None => about(format!("it is being filled (slot {slot})"), current, None),
            });
        }
        (SeatState::InSync, _) => {}
    }
    if member.slow && member.silent_seconds == 0 {
        decisions.push(about(
            "it is slow, and reads go around it".to_owned(),
            format!("{} reads were not answered in time and came from redundancy", member.reads_overdue),
            now.replace_order(&name, "DEVICE"),
        ));
    }
    if member.silent_seconds > 0 {
        let then = match member.awaited {
            true => "the array goes on without it when what is under way there has ended",
            false => "the array goes on without it",
        };
        decisions.push(about(
            "it answers nothing, and what needs it waits".to_owned(),
            format!("it has answered nothing for {} s", member.silent_seconds),
            (now.is_redundant() && now.degraded == 0)
                .then(|| format!("wattle fail {array} {word}   ({then})")),
        ));
    }
    if member.bad_bytes > 0 {
        decisions.push(about(
            format!("{} bytes of it are bad blocks", member.bad_bytes),
            "they could not be read and did not take their content back".to_owned(),
            Some(format!("wattle check {array} --bad-blocks {word}")),
        ));
    }
    decisions
}

fn of_scrub(now: &ArrayReport) -> Option<DecisionReport> {
    let last = now.last_found()?;
    Some(DecisionReport {
        member: None,
        what: last.left().words().join(", "),
        why: format!("the {} of {} found them", last.action, last.started),
        next: Some(format!(
            "wattle status {}   (where, what it means, and how to repair it)",
            shell_word(&now.name)
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::array;
    use crate::fixtures::sync;
    use wattle_control::events::ArrayEvent::Failed;
    use wattle_control::events::{EventMember, EventPlace};
    use wattle_engine::FailCause;
    use wattle_engine::volume::qos::{QosStatus, QosTotals};

    use crate::events::ServerEvent;
    use crate::protocol::report::SpareReport;

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
        let report = running(&array("data", "raid5", &["a", "b", "c"]), &Events::default(), &[at_start]);
        assert_eq!(nexts(&report), [""; 0]);
        assert_eq!(report.decisions[0].what, "[UUU] good");
        assert_eq!(report.decisions[1].what, "when it was started: clean");
    }

    #[test]
    fn an_array_that_takes_no_writes_any_more_says_why_and_what_now() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.health = Health::Unusable;
        let report = running(&data, &Events::default(), &[]);
        let [decision] = &report.decisions[..] else { panic!("{:?}", report.decisions) };
        assert_eq!(decision.what, "[UUU] unusable");
        assert!(decision.why.starts_with("a write or a flush failed on more members"), "{}", decision.why);
        assert!(nexts(&report)[0].starts_with("wattle stop data, mend what failed"), "{:?}", nexts(&report));
    }

    #[test]
    fn each_trouble_has_the_one_command_that_helps() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.members[1].state = SeatState::Faulty;
        data.members[2].slow = true;
        data.members[0].bad_bytes = 512;
        let why = Some("the superblocks record that it failed".to_owned());
        data.spares = vec![SpareReport { member: "old".to_owned(), state: SpareState::Returning, why }];
        let events = Events::default();
        let member = EventMember { key: None, name: "b".to_owned() };
        let failed = Failed { member, place: EventPlace::Slot(1), cause: Some(FailCause::Write) };
        events.add("2026-11-21T12:00:00Z".to_owned(), ServerEvent::Array(failed));
        let report = running(&data, &events, &[]);
        let expected = [
            "wattle add data DEVICE",
            "wattle check data --bad-blocks a",
            "wattle remove data b, then wattle add data DEVICE",
            "wattle replace data c DEVICE",
            "wattle add data old",
        ];
        assert_eq!(nexts(&report), expected);
        assert!(report.decisions.iter().any(|decision| {
            decision.why.contains("b (slot 1) failed: a write to it failed at 2026-11-21T12:00:00Z")
        }));
        assert!(report.decisions.iter().any(|decision| decision.why.contains("record that it failed")));
    }

    #[test]
    fn a_member_that_cannot_come_back_has_its_own_reason() {
        let mut data = array("data", "raid1", &["a", "b"]);
        let why = Some("its logical blocks have 4096 bytes".to_owned());
        data.spares = vec![SpareReport { member: "old:luks".to_owned(), state: SpareState::Returning, why }];
        let report = running(&data, &Events::default(), &[]);
        let decision = report.decisions.last().unwrap();
        assert_eq!(decision.why, "its logical blocks have 4096 bytes");
        assert_eq!(nexts(&report), ["wattle add data old:luks"]);
    }

    /// A larger share of what a goal leaves changes nothing for the only volume without one.
    #[test]
    fn what_waits_for_a_goal_is_helped_by_another_goal() {
        let totals = QosTotals { waiting_shared: 3, ..QosTotals::default() };
        let mut now = crate::qos::report("slow", &QosStatus { totals, ..QosStatus::default() }).unwrap();
        let next = |now: &VolumeQosReport, goals: &[&str]| {
            let decisions = of_volume(now, goals);
            let [decision] = &decisions[..] else { panic!("{decisions:?}") };
            decision.next.clone().unwrap()
        };
        assert_eq!(next(&now, &["one"]), "wattle set slow weight=N   (a larger share)");
        now.depth_thousandths = Some(15);
        assert_eq!(next(&now, &["my one"]), "wattle set 'my one' latency_goal=none   (or a longer one)");
        assert_eq!(
            next(&now, &["one", "other"]),
            "wattle set one latency_goal=none   (or a longer one; other too)"
        );
        assert!(of_volume(&now, &["one"])[0].why.contains("0.0 requests under way"));
    }

    /// To replace a drive that answers nothing would wait for it.
    #[test]
    fn a_member_that_answers_nothing_is_to_be_failed() {
        let mut data = array("data", "raid5", &["a", "my disk", "c"]);
        (data.members[1].slow, data.members[1].silent_seconds) = (true, 20);
        let silent = |data: &ArrayReport| nexts(&running(data, &Events::default(), &[])).join(";");
        assert_eq!(silent(&data), "wattle fail data 'my disk'   (the array goes on without it)");
        data.members[1].awaited = true;
        assert_eq!(
            silent(&data),
            "wattle fail data 'my disk'   (the array goes on without it when what is under way there has ended)"
        );
    }

    /// The name may be that of a foreign drive, and what is shown is pasted.
    #[test]
    fn names_are_words_of_a_shell() {
        let evil = "x;id>pwned";
        let mut broken = array(evil, "raid5", &["a b", "a b", "a b"]);
        broken.health = Health::Unusable;
        let mut data = array(evil, "raid5", &["a b", "a b", "a b", "a b"]);
        let states = [SeatState::Faulty, SeatState::Missing, SeatState::Faulty];
        for (member, state) in data.members.iter_mut().zip(states) {
            member.state = state;
        }
        data.members[2].remote = Some(crate::protocol::report::RemoteReport {
            state: RemoteState::Away,
            away_since: None,
            attempts: 1,
            reason: None,
            reason_code: Some("WTL-0001".to_owned()),
            paths: Vec::new(),
        });
        (data.members[3].slow, data.members[3].bad_bytes) = (true, 512);
        let spare = |state| SpareReport { member: "a b".to_owned(), state, why: None };
        data.spares = vec![spare(SpareState::Returning), spare(SpareState::Refused)];
        let mut held = array(evil, "raid5", &["a b"]);
        (held.synced, held.paused) = (false, true);
        let mut paused = array(evil, "raid5", &["a b"]);
        paused.sync = Some(crate::protocol::report::JobStatus { paused: true, ..sync("check", 1, 2) });
        let mut count = 0;
        for now in [broken, data, held, paused] {
            for next in nexts(&running(&now, &Events::default(), &[])) {
                assert!(!next.replace("'x;id>pwned'", "").contains(evil), "{next}");
                assert!(!next.replace("'a b'", "").contains("a b"), "{next}");
                count += 1;
            }
        }
        assert_eq!(count, 11);
    }

    /// What is served read-only takes no orders about members; without metadata none ever does.
    #[test]
    fn no_member_is_to_be_added_where_none_can_be() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        (data.health, data.degraded) = (Health::Degraded, 2);
        (data.members[1].state, data.members[2].state) = (SeatState::Faulty, SeatState::Missing);
        data.read_only = true;
        let add = "serve it without --read-only, then wattle add data DEVICE";
        assert_eq!(nexts(&running(&data, &Events::default(), &[])), [add; 3]);
        data.read_only = false;
        data.uuid = None;
        assert_eq!(nexts(&running(&data, &Events::default(), &[])), [""; 0]);
    }

    /// While background work is held another drive would only be a second spare.
    #[test]
    fn a_member_that_waits_to_be_filled_waits_for_the_order_that_lets_it() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        (data.health, data.degraded, data.paused) = (Health::Degraded, 1, true);
        data.members[1].state = SeatState::Rebuilding;
        let held = running(&data, &Events::default(), &[]);
        assert_eq!(nexts(&held), ["wattle check data --resume"]);
        assert!(held.decisions.iter().any(|one| one.what == "it waits to be filled (slot 1)"), "{held:?}");
        data.paused = false;
        assert_eq!(nexts(&running(&data, &Events::default(), &[])), [""; 0]);
    }

    #[test]
    fn background_work_says_why_it_runs() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.synced = false;
        data.sync = Some(sync("resync", 1, 2));
        assert!(
            running(&data, &Events::default(), &[]).decisions[1]
                .why
                .starts_with("parity or copies may not agree")
        );
        data.sync.as_mut().unwrap().paused = true;
        assert_eq!(nexts(&running(&data, &Events::default(), &[])), ["wattle check data --resume"]);
        data.sync = None;
        data.paused = true;
        assert_eq!(nexts(&running(&data, &Events::default(), &[])), ["wattle check data --resume"]);
        data.settings.insert("sync_action".to_owned(), "frozen".to_owned());
        assert_eq!(nexts(&running(&data, &Events::default(), &[])), ["wattle set data sync_action=idle"]);
    }
}
