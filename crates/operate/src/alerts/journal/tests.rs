//! What is kept where files are changed by others, damaged, or cannot be read or written.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;

/// What is known of the file counts only as long as it is that file.
#[test]
fn what_others_write_is_seen() {
    let temp = tempfile::tempdir().unwrap();
    let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
    for round in 1..20 {
        assert_eq!(one.update(AlertsState::number).unwrap().value, 2 * round - 1);
        assert_eq!(other.read().unwrap().next_id, 2 * round);
        assert_eq!(other.update(AlertsState::number).unwrap().value, 2 * round);
        assert_eq!(one.read().unwrap(), other.read().unwrap());
    }
    fs::write(one.path(), "{").unwrap();
    assert!(one.read().is_err() && other.read().is_err());
    fs::remove_file(one.path()).unwrap();
    assert_eq!(one.read().unwrap(), AlertsState::default());
}

#[test]
fn what_is_kept_survives_with_what_a_newer_version_added() {
    let temp = tempfile::tempdir().unwrap();
    let journal = Journal::open(&temp.path().join("not/there")).unwrap();
    assert!(journal.update(AlertsState::number).unwrap().unsaved.is_none());
    let mut text: Value = serde_json::from_slice(&fs::read(journal.path()).unwrap()).unwrap();
    text["later"] = Value::from(7);
    fs::write(journal.path(), text.to_string()).unwrap();
    let journal = Journal::open(journal.path().parent().unwrap()).unwrap();
    assert_eq!(journal.update(AlertsState::number).unwrap().value, 2);
    let kept = journal.read().unwrap();
    assert_eq!((kept.next_id, kept.extra["later"].clone()), (3, Value::from(7)));
    let mode = fs::metadata(journal.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn changes_of_two_do_not_undo_each_other() {
    let temp = tempfile::tempdir().unwrap();
    let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
    for _ in 0..5 {
        one.update(AlertsState::number).unwrap();
        other.update(AlertsState::number).unwrap();
    }
    assert_eq!(one.read().unwrap().next_id, 11);
}

#[test]
fn one_process_watches() {
    let temp = tempfile::tempdir().unwrap();
    let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
    assert!(!one.is_watched());
    let lock = one.lock_watch().unwrap();
    assert!(lock.is_some() && other.lock_watch().unwrap().is_none() && other.is_watched());
    drop(lock);
    assert!(other.lock_watch().unwrap().is_some());
}

/// On a file system that is read-only.
#[test]
fn one_process_watches_also_where_nothing_can_be_written() {
    let temp = tempfile::tempdir().unwrap();
    let (one, other) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
    // It can be opened for reading and not for writing.
    fs::create_dir(temp.path().join(WATCH_LOCK)).unwrap();
    let lock = one.lock_watch().unwrap();
    assert!(lock.is_some() && other.lock_watch().unwrap().is_none() && other.is_watched());
    drop(lock);
    fs::remove_dir(temp.path().join(WATCH_LOCK)).unwrap();
    std::os::unix::fs::symlink("not/there", temp.path().join(WATCH_LOCK)).unwrap();
    assert_eq!(one.lock_watch().unwrap_err().code, Code::AlertJournal);
}

#[test]
fn a_damaged_file_is_put_aside_by_the_next_change() {
    let temp = tempfile::tempdir().unwrap();
    let journal = Journal::open(temp.path()).unwrap();
    fs::write(journal.path(), "{\"schema").unwrap();
    assert!(journal.read().unwrap_err().what.contains("is damaged"));
    assert_eq!(fs::read_to_string(journal.path()).unwrap(), "{\"schema", "a look changes nothing");
    let updated = journal.update(AlertsState::number).unwrap();
    assert_eq!((updated.value, updated.unsaved.is_none()), (1, true));
    let damaged = updated.damaged.unwrap();
    assert!(damaged.why.contains("alerts.json.damaged now"), "{}", damaged.why);
    assert_eq!(fs::read_to_string(temp.path().join("alerts.json.damaged")).unwrap(), "{\"schema");
    assert!(journal.update(AlertsState::number).unwrap().damaged.is_none(), "it is said once");
}

/// Whatever form a later version gives it.
#[test]
fn a_file_of_a_later_version_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let journal = Journal::open(temp.path()).unwrap();
    for text in [r#"{"schema_version":99,"next_id":1}"#, r#"{"schema_version":2,"alerts":{"by":"array"}}"#] {
        fs::write(journal.path(), text).unwrap();
        let refused = journal.update(AlertsState::number).unwrap_err();
        assert!(refused.code == Code::AlertJournal && refused.why.contains("later version"), "{refused}");
        assert_eq!(journal.read().unwrap_err().code, Code::AlertJournal);
        assert_eq!(fs::read_to_string(journal.path()).unwrap(), text);
        assert!(!temp.path().join("alerts.json.damaged").exists());
    }
}

/// A full disk costs the durability, not the alert.
#[test]
fn what_cannot_be_written_is_kept_until_it_can() {
    let temp = tempfile::tempdir().unwrap();
    let journal = Journal::open(temp.path()).unwrap();
    journal.update(AlertsState::number).unwrap();
    // A directory in the way of the new file.
    let blocked = temp.path().join("alerts.json.new");
    fs::create_dir(&blocked).unwrap();
    assert_eq!(journal.update(AlertsState::number).unwrap().unsaved.unwrap().code, Code::AlertJournal);
    assert_eq!(journal.read().unwrap().next_id, 3);
    fs::remove_dir(&blocked).unwrap();
    assert!(journal.update(AlertsState::number).unwrap().unsaved.is_none());
    assert_eq!(Journal::open(temp.path()).unwrap().read().unwrap().next_id, 4);
}

/// `wattle alerts ack` that was stopped holds back no alert.
#[test]
fn a_lock_that_is_not_released_costs_the_durability_alone() {
    let temp = tempfile::tempdir().unwrap();
    let journal = Journal::open(temp.path()).unwrap();
    journal.update(AlertsState::number).unwrap();
    let held = journal.lock().unwrap();
    let updated = journal.update(AlertsState::number).unwrap();
    assert!(updated.value == 2 && updated.unsaved.unwrap().why.contains("does not release it"));
    assert_eq!(journal.read().unwrap().next_id, 3);
    drop(held);
    assert!(journal.update(AlertsState::number).unwrap().unsaved.is_none());
    assert_eq!(Journal::open(temp.path()).unwrap().read().unwrap().next_id, 4);
}

/// An operator acknowledges while what watches cannot write.
#[test]
fn what_others_wrote_meanwhile_is_not_undone() {
    let temp = tempfile::tempdir().unwrap();
    let (watch, operator) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
    let fail = |state: &mut AlertsState, member: &str| {
        let alert = crate::alerts::rules::tests::alert(state, member);
        state.add(alert);
    };
    watch.update(|state| fail(state, "a")).unwrap();
    // A directory in the way of the new file.
    let blocked = temp.path().join("alerts.json.new");
    fs::create_dir(&blocked).unwrap();
    assert!(watch.update(|state| fail(state, "b")).unwrap().unsaved.is_some());
    fs::remove_dir(&blocked).unwrap();
    assert_eq!(operator.update(|state| state.acknowledge(|_| true)).unwrap().value, 1);
    assert!(watch.update(AlertsState::number).unwrap().unsaved.is_none());
    let kept = operator.read().unwrap();
    let states: Vec<_> = kept.alerts.iter().map(|alert| alert.state.word()).collect();
    assert_eq!(states, ["acknowledged", "raised"], "one was acknowledged, and none is lost");
}

/// The file system that the state is on shut down: it gives an error for every file.
fn takes_away(journal: &Journal) -> impl FnOnce() + use<> {
    let (path, kept) = (journal.path(), journal.path().with_extension("kept"));
    fs::rename(&path, &kept).unwrap();
    std::os::unix::fs::symlink("alerts.json", &path).unwrap();
    move || fs::rename(kept, path).unwrap()
}

#[test]
fn what_cannot_be_read_any_more_goes_on_as_it_was_known() {
    let temp = tempfile::tempdir().unwrap();
    let (watch, operator) = (Journal::open(temp.path()).unwrap(), Journal::open(temp.path()).unwrap());
    let fail = |state: &mut AlertsState| {
        let alert = crate::alerts::rules::tests::alert(state, "a");
        state.add(alert);
    };
    watch.update(fail).unwrap();
    let known = watch.read().unwrap();
    let back = takes_away(&watch);
    assert_eq!(watch.read().unwrap(), known);
    assert!(watch.update(|_| ()).unwrap().unsaved.is_none(), "nothing was changed");
    assert_eq!(operator.read().unwrap_err().code, Code::AlertJournal, "it never read it");
    for round in 0..3 {
        let updated = watch.update(AlertsState::number).unwrap();
        assert_eq!(updated.value, known.next_id + round);
        assert!(updated.unsaved.unwrap().why.contains("symbolic links"));
    }
    assert_eq!(watch.read().unwrap().alerts, known.alerts);
    back();
    assert_eq!(operator.update(|state| state.acknowledge(|_| true)).unwrap().value, 1);
    assert!(watch.update(AlertsState::number).unwrap().unsaved.is_none());
    let kept = operator.read().unwrap();
    assert_eq!((kept.next_id, kept.alerts[0].state.word()), (known.next_id + 4, "acknowledged"));
}

#[test]
fn what_was_never_read_is_put_aside_when_it_can_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let before = Journal::open(temp.path()).unwrap();
    for _ in 0..7 {
        before.update(AlertsState::number).unwrap();
    }
    let text = fs::read_to_string(before.path()).unwrap();
    let back = takes_away(&before);
    let watch = Journal::open(temp.path()).unwrap();
    assert!(watch.update(AlertsState::number).unwrap().unsaved.is_some());
    assert!(watch.update(AlertsState::number).unwrap().unsaved.is_some());
    back();
    // Another process changes it now: it stays as it is.
    let held = watch.lock().unwrap();
    let updated = watch.update(AlertsState::number).unwrap();
    assert!(updated.damaged.is_none() && updated.unsaved.is_some());
    assert_eq!(fs::read_to_string(before.path()).unwrap(), text);
    drop(held);
    let updated = watch.update(AlertsState::number).unwrap();
    assert!(updated.unsaved.is_none() && updated.damaged.unwrap().why.contains("alerts.json.damaged now"));
    assert_eq!(fs::read_to_string(temp.path().join("alerts.json.damaged")).unwrap(), text);
    assert_eq!(before.read().unwrap().next_id, 9, "no number of before is given again");
    assert!(watch.update(AlertsState::number).unwrap().damaged.is_none(), "it is said once");
}

/// The watch ends while it cannot write, and the next one begins from the file.
#[test]
fn no_message_has_the_number_of_another_one_that_was_not_kept() {
    let temp = tempfile::tempdir().unwrap();
    let sends = |journal: &Journal| {
        let send = |state: &mut AlertsState| {
            let message = crate::alerts::rules::test_message(state, "data", 0);
            state.owe(message, ["mail"].into_iter());
        };
        let origin = journal.update(send).unwrap().origin;
        let sent = journal.read().unwrap().notifications.last().unwrap().clone();
        assert_eq!(sent.origin, origin);
        (origin, sent.id)
    };
    let first = Journal::open(temp.path()).unwrap();
    let durable = sends(&first);
    let blocked = temp.path().join("alerts.json.new");
    fs::create_dir(&blocked).unwrap();
    let lost = [sends(&first), sends(&first)];
    let second = Journal::open(temp.path()).unwrap();
    let also = [sends(&second), sends(&second)];
    assert_eq!(lost.clone().map(|(_, id)| id), also.clone().map(|(_, id)| id), "the file has this number");
    fs::remove_dir(&blocked).unwrap();
    let kept = sends(&second);
    let ids: Vec<_> =
        [durable.clone()].into_iter().chain(lost).chain(also.clone()).chain([kept.clone()]).collect();
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len(), "{ids:?}");
    // After a restart a message that is owed still has the number that it had.
    let state = Journal::open(temp.path()).unwrap().read().unwrap();
    let owed: Vec<_> = state.notifications.into_iter().map(|sent| (sent.origin, sent.id)).collect();
    let [one, other] = also;
    assert_eq!(owed, [durable, one, other, kept]);
}

/// A file of before origins were kept with messages.
#[test]
fn messages_of_an_earlier_version_keep_their_numbers() {
    let temp = tempfile::tempdir().unwrap();
    let journal = Journal::open(temp.path()).unwrap();
    let mut state = AlertsState { origin: "old".to_owned(), ..AlertsState::default() };
    let message = crate::alerts::rules::test_message(&mut state, "data", 0);
    state.owe(message, ["mail"].into_iter());
    let text = serde_json::to_string(&state).unwrap();
    assert!(!text.contains("\"origin\":\"\""));
    fs::write(journal.path(), text).unwrap();
    fs::create_dir(temp.path().join("alerts.json.new")).unwrap();
    let updated = journal.update(AlertsState::number).unwrap();
    assert!(updated.unsaved.is_some() && updated.origin != "old");
    assert_eq!(journal.read().unwrap().notifications[0].origin, "old");
}
