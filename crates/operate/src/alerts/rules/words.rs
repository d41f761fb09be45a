//! What alerts say: what happened, what it means and which redundancy is left, and what to do.

use wattle_control::shell_word;
use wattle_server::protocol::report::{ArrayReport, Health, JobStatus, MemberReport, ScrubReport, SeatState};
use wattle_server::time::duration;

use super::{DriveFault, Fullness, Gone};
use crate::alerts::state::{Alert, AlertArray, AlertText};
use crate::redundancy::left;
use crate::scrub_files::ScrubFiles;

/// Files that are named in the text; the others are in the list.
const FILES_NAMED: usize = 5;

fn text(what: String, why: String, next: String) -> AlertText {
    AlertText { what, why, next }
}

/// What is left of the redundancy, in words.
pub fn redundancy_left(array: &ArrayReport) -> String {
    if array.health == Health::Unusable {
        return "more members are missing than redundancy covers: nothing is written any more".to_owned();
    }
    if !array.is_redundant() {
        return "it has no redundancy by design: any failure loses data".to_owned();
    }
    match left(array) {
        0 if array.health == Health::Good && !array.synced => {
            "no redundancy until parity is known to agree: a failure can lose data".to_owned()
        }
        0 if array.level == "raid10" && array.degraded < array.members.len() / 2 => {
            "no redundancy is left for some of the data: a further failure can lose it".to_owned()
        }
        0 => "no redundancy is left: a further failure loses data".to_owned(),
        1 => "one further member may fail without a loss".to_owned(),
        more => format!("{more} further members may fail without a loss"),
    }
}

/// What is being done about it without an order, or the order that lets it be done.
fn under_way(array: &ArrayReport) -> Option<String> {
    if let Some(release) = array.release_order() {
        return Some(format!("{release}: a member waits to be filled, and background work is held"));
    }
    let sync = array.sync.as_ref().filter(|sync| sync.action == "recovery")?;
    let onto = match &sync.members[..] {
        [] => String::new(),
        members => format!(" onto {}", members.join(", ")),
    };
    Some(format!("nothing now: it is being rebuilt{onto}; `wattle status {}` shows how far", name(array)))
}

/// How it gets a member, or what else is to be done where it can get none.
fn add(array: &ArrayReport) -> String {
    array.add_order("DEVICE").unwrap_or_else(|| unchangeable(array))
}

/// How a member is replaced that still works, or what else is to be done where none can be.
fn replace(array: &ArrayReport, member: &str) -> String {
    array.replace_order(member, "--with DEVICE").unwrap_or_else(|| unchangeable(array))
}

/// What is to be done where no order changes the members.
fn unchangeable(array: &ArrayReport) -> String {
    let why = match array.health {
        // Nothing is removed from or added to what cannot be written.
        Health::Unusable => return format!("wattle why {}", name(array)),
        _ if array.is_redundant() => "nothing records them",
        _ => "it has no redundancy",
    };
    format!("copy what is on it now: its members cannot be changed, for {why}")
}

fn name(array: &ArrayReport) -> String {
    shell_word(&array.name)
}

/// A member failed.
pub fn failed(array: &ArrayReport, member: &str, seat: &MemberReport, cause: Option<&str>) -> AlertText {
    let slot = seat.slot;
    let what = match cause {
        Some(cause) => format!("{}: {cause}", array.name),
        None => format!("{}: {member} (slot {slot}) failed", array.name),
    };
    let next = under_way(array).unwrap_or_else(|| match seat.state {
        SeatState::Faulty => array.renew_order(member).unwrap_or_else(|| add(array)),
        _ => add(array),
    });
    text(what, redundancy_left(array), next)
}

/// A member failed, and its slot is in sync again.
pub fn failed_and_whole(array: &ArrayReport, member: &str, cause: &str) -> AlertText {
    let why = format!("its slot is in sync again; {}", redundancy_left(array));
    text(format!("{}: {cause}", array.name), why, format!("look at {member} before it is used again"))
}

/// What was being made to replace the member of a slot failed.
pub fn failed_replacement(array: &ArrayReport, member: &str, slot: Option<u16>, cause: &str) -> AlertText {
    let of_slot = array.members.iter().find(|other| Some(other.slot) == slot);
    let old = of_slot.and_then(|other| other.member.as_deref()).map_or("MEMBER".to_owned(), shell_word);
    let why = format!("the member that it was to replace goes on; {}", redundancy_left(array));
    let next =
        format!("wattle remove {0} {1}, then wattle replace {0} {old} NEW", name(array), shell_word(member));
    text(format!("{}: {cause}", array.name), why, next)
}

/// A spare failed.
pub fn failed_spare(array: &ArrayReport, member: &str) -> AlertText {
    let next = format!("wattle remove {0} {1}, then wattle add {0} DEVICE", name(array), shell_word(member));
    let why = format!("it will not take the place of a member; {}", redundancy_left(array));
    text(format!("{}: the spare {member} failed", array.name), why, next)
}

/// A member across a network is away.
pub fn away(array: &ArrayReport, member: &str, cause: Option<&str>) -> AlertText {
    let what = match cause {
        Some(cause) => format!("{}: {cause}", array.name),
        None => format!("{}: {member} is away", array.name),
    };
    let why = format!("its server does not answer; it is tried again by itself; {}", redundancy_left(array));
    text(what, why, format!("look at the network and at the server of {member}"))
}

/// A member across a network is there again.
pub fn remote_back(alert: &Alert) -> AlertText {
    let (array, member) = (array_name(&alert.key.array), alert.key.member.as_deref().unwrap_or("a member"));
    let next = format!("wattle status {}", shell_word(&array));
    text(
        format!("{array}: {member} is not away any more"),
        "it gets what it missed, if it was taken back".to_owned(),
        next,
    )
}

/// An array lacks members.
pub fn degraded(array: &ArrayReport, has_started: bool) -> AlertText {
    let broken = array.health == Health::Unusable;
    let word = if broken { "unusable" } else { "degraded" };
    let started = if has_started { ", found when its server started" } else { "" };
    let what = format!("{} {} is {word}{started}", array.name, array.slots);
    let next = match (broken, under_way(array)) {
        (true, _) => format!("wattle why {}", name(array)),
        (false, Some(next)) => next,
        (false, None) => {
            format!("{}; `wattle why {}` says which members are missing", add(array), name(array))
        }
    };
    text(what, redundancy_left(array), next)
}

/// Fewer spares than wanted.
pub fn spares_missing(array: &ArrayReport, wanted: u64, there: u64) -> AlertText {
    let what = format!("{}: {there} spares, and mdadm.conf says {wanted}", array.name);
    let why = "a member that fails next may not be replaced without an order".to_owned();
    text(what, why, format!("wattle add {} DEVICE, or correct spares= in mdadm.conf", name(array)))
}

/// A member is slow.
pub fn slow(array: &ArrayReport, member: &str) -> AlertText {
    let meanwhile = match array.is_redundant() {
        true => "reads go around it where redundancy allows",
        false => "what needs it waits for it",
    };
    let why = format!("{meanwhile}; drives often become slow before they fail");
    text(format!("{}: {member} answers much later than the others", array.name), why, replace(array, member))
}

/// A member answers nothing.
pub fn silent(array: &ArrayReport, member: &str, seconds: u64) -> AlertText {
    let why = "what needs it waits; the system gives up on a drive after a minute or more, and a hung controller never does".to_owned();
    let next = match left(array) > 0 {
        true => {
            format!("wattle fail {} {}, and the array goes on without it", name(array), shell_word(member))
        }
        false => "see what is wrong with the drive and its cable".to_owned(),
    };
    text(format!("{}: {member} has answered nothing for {seconds} s", array.name), why, next)
}

/// A member has bad blocks.
pub fn bad_blocks(array: &ArrayReport, member: &str, bytes: u64, before: u64) -> AlertText {
    let (held, next) = match array.is_redundant() {
        true => (
            "comes from redundancy, as long as that is there",
            format!(
                "{}, or wattle check {} --bad-blocks {}",
                replace(array, member),
                name(array),
                shell_word(member)
            ),
        ),
        false => ("is nowhere else", replace(array, member)),
    };
    let why = format!("what they held {held}; drives that lose blocks often lose more");
    let what = format!("{}: {member} has {bytes} bytes of bad blocks, {before} before", array.name);
    text(what, why, next)
}

/// A degraded array is written without a log.
pub fn write_hole(array: &ArrayReport) -> AlertText {
    let what = format!("{} is degraded and is being written, without a log of parity", array.name);
    let why = "if this machine or the server crashes now, parity may not fit, and data of the missing member that no client \
               wrote can be lost"
        .to_owned();
    text(what, why, under_way(array).unwrap_or_else(|| add(array)))
}

/// A check left something.
pub fn mismatch(array: &ArrayReport, run: &ScrubReport, found: &ScrubFiles) -> AlertText {
    let (left, name) = (run.left(), name(array));
    let told = left.words().join(", and that ");
    let what = format!("{}: the last {} found that {told}", array.name, run.action);
    if left.unexplained == left.total() {
        return text(
            what,
            "all members of a block changed alike, and not through wattle: something else wrote to them"
                .to_owned(),
            format!("find what wrote; wattle check {name} --record takes what is there for right"),
        );
    }
    let files = found.names();
    let why = match &files[..] {
        [] => {
            let why = "what a member holds there is not what the others say; which is right only an operator can tell";
            found.notes.first().map_or(why.to_owned(), |note| format!("{why}; {note}"))
        }
        files => {
            let named = files[..files.len().min(FILES_NAMED)].join(", ");
            let more = match files.len().saturating_sub(FILES_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("these files lie there: {named}{more}")
        }
    };
    text(what, why, format!("wattle status {name} (the places), then wattle repair {name} --source SOURCE"))
}

/// No check for too long.
pub fn overdue(array: &ArrayReport, since_secs: u64, was_checked: bool) -> AlertText {
    let what = match was_checked {
        true => format!("{}: the last whole check ended {} ago", array.name, duration(since_secs)),
        false => format!("{}: no whole check is known, for {}", array.name, duration(since_secs)),
    };
    let why =
        "blocks that went bad unnoticed are found when another member fails, when they are lost".to_owned();
    // Without redundancy there is nothing to compare.
    let next = match array.degraded > 0 && left(array) == 0 {
        true => under_way(array).unwrap_or_else(|| add(array)),
        false => format!("wattle check {}", name(array)),
    };
    text(what, why, next)
}

/// A file system is nearly full.
pub fn full(full: &Fullness) -> AlertText {
    let what = format!("{}: the file system on it is {} % full", full.volume, full.percent);
    let why = format!("{} MiB are free", full.free_bytes >> 20);
    text(what, why, "free space, or make the volume larger: wattle lv extend".to_owned())
}

/// A drive says that it fails, which is a member of this array.
pub fn smart(drive: &DriveFault, array: Option<&ArrayReport>) -> AlertText {
    let next = match array {
        Some(array) => replace(array, &drive.member),
        None => format!("wattle replace ARRAY {} --with DEVICE", shell_word(&drive.member)),
    };
    let what = format!("{}: the drive says that it fails: {}", drive.member, drive.what);
    text(what, "such drives mostly fail within days".to_owned(), next)
}

/// A server is gone.
pub fn disappeared(server: &str, array: Option<&AlertArray>, how: Gone) -> AlertText {
    let of = array.map_or(server, |array| array.name.as_str());
    let (what, why) = match how {
        Gone::Silent => (
            format!("{of}: its server {server} does not answer any more"),
            "it hangs, or waits for a drive that hangs: clients may wait too",
        ),
        Gone::Stopping => (
            format!("{of}: its server {server} was told to stop, and does not end"),
            "it waits for a drive that hangs: what it has in flight is not recorded, and its members are not free",
        ),
        Gone::NotBack => (
            format!("{of}: {server} served it before this machine was started, and nothing does since"),
            "members are missing, or nothing starts it: clients have nothing",
        ),
        _ => (
            format!("{of}: its server {server} ended without being stopped"),
            "it was killed, or it crashed: clients have nothing, and what was in flight is not recorded",
        ),
    };
    let next = match how {
        Gone::Silent | Gone::Stopping => "look at the server's own messages and at `dmesg`".to_owned(),
        Gone::NotBack => {
            "serve it: `wattle up` says what it lacks; `wattle alerts ack` if it is not to come back"
                .to_owned()
        }
        _ => format!(
            "serve the same members again, which recovers; `wattle stop {}` forgets it",
            shell_word(server)
        ),
    };
    text(what, why.to_owned(), next)
}

fn array_name(array: &Option<AlertArray>) -> String {
    array.as_ref().map(|array| array.name.clone()).unwrap_or_default()
}

/// Alerts are over.
pub fn recovered(over: &[Alert]) -> AlertText {
    let place = match array_name(&over[0].key.array) {
        array if array.is_empty() => over[0].key.server.clone(),
        array => array,
    };
    let of = |alert: &Alert| match &alert.key.member {
        Some(member) => format!("{} ({member})", alert.key.kind),
        None => alert.key.kind.to_string(),
    };
    let which: Vec<_> = over.iter().map(of).collect();
    let is = if which.len() == 1 { "is" } else { "are" };
    let was: Vec<_> = over.iter().map(|alert| alert.text.what.as_str()).collect();
    text(
        format!("{place}: {} {is} over", which.join(", ")),
        format!("it was: {}", was.join("; ")),
        format!("nothing; wattle status {} shows how it is", shell_word(&place)),
    )
}

/// An array was not seen before.
pub fn new_array(array: &ArrayReport) -> AlertText {
    let what = format!("{} {}, {} is served, and was not seen before", array.name, array.slots, array.level);
    let next = format!("wattle status {}", name(array));
    text(what, redundancy_left(array), next)
}

/// A spare went from one array to another.
pub fn moved(from: &ArrayReport, to: &ArrayReport, spare: &str) -> AlertText {
    let what = format!("the spare {spare} went from {} to {}", from.name, to.name);
    text(what, format!("{} has one spare less", from.name), format!("wattle status {}", name(to)))
}

/// A member that was filled is in sync.
pub fn active(array: &ArrayReport, event: &str) -> AlertText {
    let next = format!("nothing; wattle status {} shows how it is", name(array));
    text(format!("{}: {event}", array.name), redundancy_left(array), next)
}

/// Background work started.
pub fn job_started(array: &ArrayReport, action: &str) -> AlertText {
    let why = match action {
        "recovery" => "what a member lacks is being written",
        "resync" => "parity and copies are made to agree",
        _ => "parity or copies are compared with the data everywhere",
    };
    let next = format!("nothing; wattle status {} shows how far it is", name(array));
    text(format!("{}: {action} started", array.name), why.to_owned(), next)
}

/// Background work is so far.
pub fn job_at(array: &ArrayReport, sync: &JobStatus, percent: u64) -> AlertText {
    let what = format!("{}: {} is at {percent} %", array.name, sync.action);
    let why = match sync.remaining_secs {
        Some(secs) => format!("about {} are left", duration(secs)),
        None => "it does not move now".to_owned(),
    };
    text(what, why, format!("nothing; wattle status {} shows how far it is", name(array)))
}

/// Background work ended.
pub fn job_ended(array: &ArrayReport, event: &str) -> AlertText {
    let next = format!("wattle status {}", name(array));
    text(format!("{}: {event}", array.name), redundancy_left(array), next)
}

/// A test.
pub fn test() -> AlertText {
    text(
        "this is a test of wattle's alerts".to_owned(),
        "nothing happened; alerts arrive here".to_owned(),
        "nothing".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;

    use super::*;

    /// What is advised is what the array can be given.
    #[test]
    fn no_member_is_to_be_added_where_none_can_be() {
        let mut data = array("my data", "raid5", &["a", "b", "c"]);
        (data.health, data.degraded) = (Health::Degraded, 1);
        data.members[1].state = SeatState::Faulty;
        let nexts = |data: &ArrayReport| {
            let failed = failed(data, "b", &data.members[1], None);
            [failed, degraded(data, false), write_hole(data), overdue(data, 86_400, true)]
                .map(|text| text.next)
        };
        let add = "wattle add 'my data' DEVICE";
        let [failed_now, degraded_now, hole, overdue_now] = nexts(&data);
        assert_eq!(failed_now, format!("wattle remove 'my data' b, then {add}"));
        assert!(degraded_now.starts_with(&format!("{add}; ")), "{degraded_now}");
        assert_eq!((hole.as_str(), overdue_now.as_str()), (add, add));
        data.read_only = true;
        assert!(nexts(&data).iter().all(|next| next.starts_with("serve it without --read-only, then")));
        (data.read_only, data.uuid) = (false, None);
        assert!(nexts(&data).iter().all(|next| !next.contains("wattle add")), "{:?}", nexts(&data));
    }

    /// What is lost when the drive fails has to be copied while it does not.
    #[test]
    fn no_member_is_to_be_replaced_where_none_can_be() {
        let mut data = array("my data", "raid0", &["a", "b b"]);
        let nexts = |data: &ArrayReport| {
            let fault = DriveFault { member: "b b".to_owned(), what: "it fails".to_owned() };
            [slow(data, "b b"), bad_blocks(data, "b b", 512, 0), smart(&fault, Some(data))]
                .map(|text| text.next)
        };
        let copy = "copy what is on it now: its members cannot be changed, for it has no redundancy";
        assert_eq!(nexts(&data), [copy; 3]);
        data.level = "raid5".to_owned();
        let order = "wattle replace 'my data' 'b b' --with DEVICE";
        let check = format!("{order}, or wattle check 'my data' --bad-blocks 'b b'");
        assert_eq!(nexts(&data), [order, check.as_str(), order]);
        data.read_only = true;
        assert!(nexts(&data).iter().all(|next| next.starts_with("serve it without --read-only, then")));
        (data.read_only, data.uuid) = (false, None);
        assert!(nexts(&data).iter().all(|next| next.starts_with("copy what is on it now")));
    }

    /// A spare took the slot, and what would fill it is held: another drive is not what is lacking.
    #[test]
    fn held_work_is_to_be_let_go_on() {
        let mut data = array("data", "raid5", &["a", "s", "c"]);
        (data.health, data.degraded, data.paused) = (Health::Degraded, 1, true);
        data.members[1].state = SeatState::Rebuilding;
        let told = [failed(&data, "b", &data.members[1], None), degraded(&data, false), write_hole(&data)];
        for text in told {
            assert!(text.next.starts_with("wattle check data --resume"), "{}", text.next);
        }
    }

    #[test]
    fn what_is_to_be_replaced_is_named() {
        let data = array("my data", "raid5", &["a", "b b", "c"]);
        let told = failed_replacement(&data, "s", Some(1), "s (beside slot 1) failed");
        assert_eq!(told.next, "wattle remove 'my data' s, then wattle replace 'my data' 'b b' NEW");
        let fault = DriveFault { member: "b b".to_owned(), what: "it fails".to_owned() };
        let told = smart(&fault, Some(&data));
        assert_eq!(told.next, "wattle replace 'my data' 'b b' --with DEVICE");
    }

    /// A dead server is forgotten by its own name, which may be another than its array's.
    #[test]
    fn a_server_that_died_is_forgotten_by_its_name() {
        let of = AlertArray { name: "rod".to_owned(), uuid: None };
        let told = disappeared("the server", Some(&of), Gone::Died);
        assert!(told.next.ends_with("`wattle stop 'the server'` forgets it"), "{}", told.next);
    }
}
