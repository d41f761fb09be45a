//! What is understood, and what is said of what is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn parse(text: &str) -> Result<AlertSettings, Problem> {
    AlertSettings::parse(Path::new("/etc/wattle/alerts.toml"), &format!("mdadm_conf = \"none\"\n{text}"))
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let rows = [
        ("\n[[webhook]]\nurl = \"ntfy.sh/x\"", 4, "no URL"),
        ("[[webhook]]\nurl = \"https://\"", 3, "no URL"),
        ("[[webhook]]\nurl = \"https://a b/\"", 3, "no URL"),
        ("[[webhook]]\nurl = \"https://user:secret@host/\"", 3, "no URL"),
        ("[[webhook]]\nurl = \"https://host:99999/\"", 3, "no URL"),
        ("[[webhook]]\nurl = \"unix:run/x.sock:/path\"", 3, "no URL"),
        ("[[webhook]]\nurl = \"unix:/run/x.sock\"", 3, "no URL"),
        ("[[webhook]]\nurl = \"unix:/run/x.sock:/a b\"", 3, "no URL"),
        ("[[webhook]]\npreset = \"nfty\"\nurl = \"https://ntfy.sh/x\"", 3, "no preset"),
        ("[[webhook]]\npreset = \"ntfy\"", 2, "no url"),
        ("[[webhook]]\npreset = \"telegram\"\nchat = \"1\"", 2, "no token_file"),
        ("[[webhook]]\nurl = \"https://h/\"\nbody = \"${evnt}\"", 4, "stands for nothing"),
        ("[[webhook]]\nurl = \"https://h/\"\nurll = \"x\"", 4, "not understood"),
        ("repeat = \"daily\"", 2, "no time"),
        ("repeat = \"0s\"", 2, "no time"),
        ("volume_full = 101", 2, "no part of a hundred"),
        ("[[mail]]\nto = [\"a@b\", \"x\\nBcc: y\"]", 3, "no mail address"),
        ("[[mail]]\nto = []", 2, "no receiver"),
        ("[[mail]]\nto = [\"a@b\"]\nat_least = \"urgent\"", 4, "not known"),
        ("[[mail]]\nto = [\"a@b\"]\nonly = [\"Fail\", \"Failed\"]", 4, "no alert called"),
        ("[[program]]\npath = \"notify\"", 3, "not absolute"),
        ("[[mail]]\nname = \"a\"\nto = [\"a@b\"]\n[[mail]]\nname = \"a\"\nto = [\"a@b\"]", 5, "two channels"),
        ("[[mail]\n", 2, "not understood"),
    ];
    for (text, line, what) in rows {
        let problem = parse(text).unwrap_err();
        assert_eq!(problem.code, Code::AlertSettings, "{text}");
        assert!(
            problem.what.starts_with(&format!("/etc/wattle/alerts.toml, line {line}: ")),
            "{text}: {}",
            problem.what
        );
        assert!(problem.what.contains(what), "{text}: {}", problem.what);
    }
}

#[test]
fn channels_have_names_and_what_an_operator_wants_of_them() {
    let settings = parse(
        "repeat = \"never\"\nscrub_overdue = \"10d\"\n[[mail]]\nto = [\"a@b\"]\n[[mail]]\nto = [\"c@d\"]\nat_least = \"critical\"\n\
         [[program]]\npath = \"/x\"\n[[webhook]]\npreset = \"alertmanager\"\nurl = \"http://localhost:9093/\"\nonly = [\"Fail\"]\n",
    )
    .unwrap();
    let names: Vec<_> = settings.channels.iter().map(|channel| channel.name.as_str()).collect();
    assert_eq!(names, ["mail", "mail-2", "program", "alertmanager"]);
    assert_eq!((settings.rules.repeat_secs, settings.rules.scrub_overdue_secs), (None, Some(864_000)));
    let ChannelWay::Webhook(hook) = &settings.channels[3].way else { panic!("it is a webhook") };
    assert_eq!(hook.url.shown(), "http://localhost:9093/api/v2/alerts");
    let mut state = crate::alerts::state::AlertsState::default();
    let told = crate::alerts::rules::test_message(&mut state, "data", 0);
    let wants =
        |told: &Notification| -> Vec<bool> { settings.channels.iter().map(|c| c.wants(told)).collect() };
    assert_eq!(wants(&told), [true; 4], "a test goes everywhere");
    let fail = Notification { kind: AlertKind::Fail, severity: AlertSeverity::Critical, ..told.clone() };
    assert_eq!(wants(&fail), [true; 4]);
    let slow = Notification { kind: AlertKind::MemberSlow, severity: AlertSeverity::Warning, ..told };
    assert_eq!(wants(&slow), [true, false, true, false]);
}

#[test]
fn a_token_is_read_from_a_file_that_is_its_owners() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let text = format!(
        "[[webhook]]\npreset = \"gotify\"\nurl = \"https://g/\"\ntoken_file = {:?}",
        path.to_str().unwrap()
    );
    let settings = parse(&text).unwrap();
    let refused = |word: &str| {
        let problem = settings.faults().remove(0);
        assert_eq!(problem.code, Code::AlertToken);
        assert!(problem.what.starts_with("/etc/wattle/alerts.toml, line 5: "), "{}", problem.what);
        assert!(problem.why.contains(word), "{}", problem.why);
    };
    refused("No such file");
    fs::write(&path, "secret\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    refused("mode 0644");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(settings.faults(), []);
    fs::write(&path, "two\nlines\n").unwrap();
    refused("one line");
}

#[test]
fn what_mdadm_conf_says_counts() {
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("mdadm.conf");
    fs::write(&conf, "MAILADDR root\nPROGRAM /usr/sbin/x\nMONITORDELAY 7\n").unwrap();
    let text = format!("mdadm_conf = {:?}", conf.to_str().unwrap());
    let settings = AlertSettings::parse(Path::new("/x"), &text).unwrap();
    let shown: Vec<_> = settings.channels.iter().map(ChannelSettings::shown).collect();
    assert_eq!(shown, ["mail to root", "program /usr/sbin/x"]);
    assert_eq!(settings.look, Duration::from_secs(7));
    fs::write(&conf, "MAILADDR -oQ/tmp\n").unwrap();
    let settings = AlertSettings::parse(Path::new("/x"), &text).unwrap();
    assert!(settings.channels.is_empty() && settings.notes[0].contains("no address"), "{:?}", settings.notes);
}

/// Secrets may be part of an address.
#[test]
fn what_is_shown_of_a_webhook_has_no_secret() {
    let settings =
        parse("[[webhook]]\npreset = \"slack\"\nurl = \"https://hooks.slack.com/services/T0/B0/SECRET\"")
            .unwrap();
    assert_eq!(settings.channels[0].shown(), "webhook at hooks.slack.com");
    let settings = parse("[[webhook]]\nurl = \"unix:/run/a:b.sock:/SECRET\"").unwrap();
    assert_eq!(settings.channels[0].shown(), "webhook at /run/a:b.sock");
}

/// Whatever arrays and members are called, what is sent is JSON, and says what it is to say.
#[test]
fn presets_are_json_whatever_names_there_are() {
    use crate::alerts::channels::MessageSender;
    let mut state = crate::alerts::state::AlertsState::default();
    let mut told = crate::alerts::rules::test_message(&mut state, "da\"ta", 0);
    told.text.what = "\"},{\"x\": \u{1}\\ <&>".to_owned();
    let sender = MessageSender { host: "na\"s".to_owned(), origin: "o".to_owned(), repeat_secs: None };
    for preset in ["gotify", "slack", "discord", "telegram", "alertmanager", ""] {
        let preset_line = if preset.is_empty() { String::new() } else { format!("preset = {preset:?}\n") };
        let text = format!(
            "[[webhook]]\n{preset_line}url = \"https://h/\"\nchat = \"-100\\\"7\"\ntoken_file = \"/x\""
        );
        let settings = parse(&text).unwrap();
        let ChannelWay::Webhook(hook) = &settings.channels[0].way else { panic!("it is a webhook") };
        let body = hook.body.fill(|name| crate::alerts::channels::value(name, &told, &sender));
        let value: serde_json::Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{preset}: {error}: {body}"));
        assert!(value.to_string().contains("},{"), "{preset}: {value}");
    }
}
