//! What happened to an array and does not last, and what is remembered of it for the next look.

use wattle_server::protocol::events::{FeedEvent, FeedKind};
use wattle_server::protocol::report::{ArrayReport, JobStatus, SeatState};
use wattle_server::time::{parse_rfc3339, secs_since};

use super::conditions::{Seen, name_of};
use super::{merge::once, words};
use crate::alerts::kind::AlertKind;
use crate::alerts::state::{AlertText, AlertsState, ArrayMemory, Notification};

/// How far background work is told: in fifths, as mdadm does.
const PARTS: u64 = 5;

/// What happened since the last look. At the first look at a server nothing is news.
pub fn of_array(state: &mut AlertsState, seen: &Seen<'_>, secs: u64) -> Vec<Notification> {
    let mut told = Vec::new();
    let mut tell = |kind: AlertKind, event: Option<&FeedEvent>, text: AlertText| {
        let member = event.and_then(|event| event.member.as_deref());
        let told_of = once(state, kind, seen.server, Some(seen.id), member, text, secs);
        told.push(Notification { slot: event.and_then(|event| event.slot), ..told_of });
    };
    let news = seen.events.iter().filter(|_| !seen.look.is_first);
    for event in news {
        let action = event.action.as_deref().unwrap_or("background work");
        match event.kind {
            FeedKind::Failed if event.replacement => {
                let member = event.member.as_deref().unwrap_or_default();
                let text = words::failed_replacement(seen.array, member, event.slot, &event.text);
                tell(AlertKind::FailSpare, Some(event), text);
            }
            FeedKind::InSync => {
                tell(AlertKind::SpareActive, Some(event), words::active(seen.array, &event.text));
            }
            FeedKind::JobStarted => {
                tell(AlertKind::RebuildStarted, None, words::job_started(seen.array, action));
            }
            FeedKind::JobEnded => {
                tell(AlertKind::RebuildFinished, None, words::job_ended(seen.array, &event.text));
            }
            FeedKind::Scrubbed => {
                tell(AlertKind::RebuildFinished, None, words::job_ended(seen.array, &event.text));
                tell(AlertKind::ScrubFinished, None, words::job_ended(seen.array, &event.text));
            }
            _ => {}
        }
    }
    if seen.look.lost && !seen.look.is_first {
        missed(seen, &mut tell);
    }
    if let (Some(sync), Some((before, part))) = (&seen.array.sync, &seen.memory.job)
        && sync.action == *before
        && fifths(sync) > *part
    {
        let percent = fifths(sync) * 100 / PARTS;
        let text = words::job_at(seen.array, sync, percent);
        let event = format!("Rebuild{percent}");
        let kind = AlertKind::RebuildNN;
        told.push(Notification { event, ..once(state, kind, seen.server, Some(seen.id), None, text, secs) });
    }
    told
}

/// What the report shows to have happened, where the events are lost that said so.
fn missed(seen: &Seen<'_>, tell: &mut impl FnMut(AlertKind, Option<&FeedEvent>, AlertText)) {
    let has = |kinds: &[FeedKind], slot: Option<u16>| {
        seen.events.iter().any(|event| kinds.contains(&event.kind) && (slot.is_none() || event.slot == slot))
    };
    for slot in seen.memory.filling.iter().filter(|slot| seen.is_in_sync(**slot)) {
        if !has(&[FeedKind::InSync, FeedKind::Took], Some(*slot)) {
            tell(AlertKind::SpareActive, None, words::active(seen.array, &format!("slot {slot} is in sync")));
        }
    }
    let action = seen.array.sync.as_ref().map(|sync| sync.action.as_str());
    if let Some((before, _)) = &seen.memory.job
        && action != Some(before.as_str())
        && !has(&[FeedKind::JobEnded, FeedKind::Scrubbed], None)
    {
        tell(AlertKind::RebuildFinished, None, words::job_ended(seen.array, &format!("{before} ended")));
    }
}

/// How many fifths of it are done; the last one ends with it.
fn fifths(sync: &JobStatus) -> u64 {
    let done = u128::from(sync.done_bytes) * u128::from(PARTS);
    let fifths = done.checked_div(u128::from(sync.total_bytes)).unwrap_or(0);
    u64::try_from(fifths).unwrap_or(0).min(PARTS - 1)
}

/// When an array was seen first, by a clock that was right: one that was wrong by years then would
/// make a check overdue at once, or never. It counts as seen now where it was seen in the future,
/// or before it was made.
pub fn first_seen(first_secs: u64, array: &ArrayReport, now_secs: u64) -> u64 {
    /// The year 2020: no clock that is right says less.
    const PLAUSIBLE_SECS: u64 = 1_577_836_800;
    let created = array.recorded.as_ref().and_then(|recorded| parse_rfc3339(recorded.created.as_deref()?));
    let floor = created.filter(|created| *created <= now_secs).unwrap_or(0).max(PLAUSIBLE_SECS);
    let too_early = first_secs < floor && floor <= now_secs;
    if too_early || secs_since(Some(first_secs), now_secs).is_none() { now_secs } else { first_secs }
}

/// What is known of the array after this look.
pub fn remember(before: &ArrayMemory, seen: &Seen<'_>) -> ArrayMemory {
    let array = seen.array;
    let filling = array.members.iter().filter(|member| member.state == SeatState::Rebuilding);
    let bad = array.members.iter().filter(|member| member.bad_bytes > 0);
    ArrayMemory {
        filling: filling.map(|member| member.slot).collect(),
        spares: array.spares.iter().map(|spare| spare.member.clone()).collect(),
        job: array.sync.as_ref().map(|sync| (sync.action.clone(), fifths(sync))),
        bad_bytes: bad.map(|member| (name_of(member), member.bad_bytes)).collect(),
        epoch: seen.look.epoch.unwrap_or(&before.epoch).to_owned(),
        ..before.clone()
    }
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;
    use wattle_server::protocol::report::RecordedReport;

    use super::*;

    #[test]
    fn a_clock_that_was_wrong_by_years_does_not_tell_when_an_array_was_seen() {
        const DAY: u64 = 86_400;
        let now = 1_800_000_000;
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        let at = |data: &ArrayReport, first| first_seen(first, data, now);
        assert_eq!(at(&data, now - 40 * DAY), now - 40 * DAY);
        for wrong in [0, DAY, 4_102_444_800] {
            assert_eq!(at(&data, wrong), now, "{wrong}");
        }
        // A clock that was set back a little.
        assert_eq!(at(&data, now + 3600), now + 3600);
        let created = Some("2027-01-10T00:00:00Z".to_owned());
        data.recorded = Some(RecordedReport { created, ..RecordedReport::default() });
        assert_eq!(at(&data, now - 40 * DAY), now, "before it was made");
        // While the clock is wrong itself, nothing is known better.
        assert_eq!(first_seen(50, &data, 100), 50);
    }
}
