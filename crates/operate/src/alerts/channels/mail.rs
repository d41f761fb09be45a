//! Mail, by way of `sendmail -t`: whatever provides it speaks SMTP, or keeps a queue.

use std::path::Path;
use std::time::Duration;

use wattle_server::time::rfc3339;

use super::message::{text, title};
use super::program::{Ended, RunningProgram};
use super::{Delivery, MessageSender};
use crate::alerts::settings::MailSettings;
use crate::alerts::state::Notification;

/// A line of base64, as MIME has it.
const LINE_CHARS: usize = 76;

/// Hands a mail over.
pub fn send(
    mail: &MailSettings,
    notification: &Notification,
    sender: &MessageSender,
    time_max: Duration,
) -> Delivery {
    let message = message(mail, notification, sender);
    let command = |path: &Path| {
        let mut command = std::process::Command::new(path);
        // A line with a dot is part of the mail.
        command.args(["-t", "-oi"]);
        command
    };
    let ended = RunningProgram::new(command(&mail.sendmail), message.as_bytes())
        .and_then(|started| started.wait(time_max));
    let program = mail.sendmail.display();
    match ended {
        Ok(Ended { code: Some(0), .. }) => Delivery::Arrived,
        Ok(Ended { code: Some(code), said }) => {
            Delivery::Down(format!("{program} ended with status {code}{said}"))
        }
        Ok(Ended { code: None, said }) => Delivery::Down(format!("{program} was killed{said}")),
        Err(error) => Delivery::Down(format!("{program}: {error}")),
    }
}

/// The mail: headers, an empty line, the text.
fn message(mail: &MailSettings, notification: &Notification, sender: &MessageSender) -> String {
    let host: String = sender
        .host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '-' })
        .collect();
    let from = mail.from.clone().unwrap_or_else(|| "wattle".to_owned());
    let mut lines = vec![
        format!("From: {}", header(&from)),
        format!("To: {}", mail.to.iter().map(|to| header(to)).collect::<Vec<_>>().join(", ")),
        format!("Subject: {}", words(&title(notification, sender))),
        format!("Message-ID: <{}@{host}>", sender.id_of(notification)),
        "Auto-Submitted: auto-generated".to_owned(),
        "MIME-Version: 1.0".to_owned(),
        "Content-Type: text/plain; charset=utf-8".to_owned(),
        format!("X-Wattle-Event: {}", header(&notification.event)),
        format!("X-Wattle-Alert: {}", sender.id_of(notification)),
    ];
    if let Some(date) = date(notification.secs) {
        lines.insert(2, format!("Date: {date}"));
    }
    let text = text(notification, sender).replace('\r', "");
    let plain =
        |line: &str| line.len() < 900 && line.bytes().all(|byte| byte == b'\t' || (32..127).contains(&byte));
    match text.lines().all(plain) {
        true => {
            lines.push("Content-Transfer-Encoding: 7bit".to_owned());
            lines.push(String::new());
            lines.extend(text.lines().map(str::to_owned));
        }
        false => {
            lines.push("Content-Transfer-Encoding: base64".to_owned());
            lines.push(String::new());
            let encoded = base64(text.as_bytes());
            lines.extend(
                encoded.as_bytes().chunks(LINE_CHARS).map(|line| String::from_utf8_lossy(line).into_owned()),
            );
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// One line, whatever the value holds.
fn header(value: &str) -> String {
    value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Text of a header: encoded, unless it is plain.
fn words(value: &str) -> String {
    /// An encoded word has at most 75 characters.
    const WORD_BYTES: usize = 42;
    let value = header(value);
    if value.is_ascii() && value.len() < 200 {
        return value;
    }
    let (mut words, mut word) = (Vec::new(), String::new());
    for c in value.chars().take(200) {
        if word.len() + c.len_utf8() > WORD_BYTES {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.push(word);
    let encoded: Vec<_> =
        words.iter().map(|word| format!("=?utf-8?B?{}?=", base64(word.as_bytes()))).collect();
    encoded.join("\n ")
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |ix: usize| u32::from(group.get(ix).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for ix in 0..4 {
            match ix <= group.len() {
                true => text.push(char::from(LETTERS[(bits >> (18 - 6 * ix) & 63) as usize])),
                false => text.push('='),
            }
        }
    }
    text
}

/// As mail has it: `Tue, 24 Nov 2026 12:00:00 +0000`.
fn date(secs: u64) -> Option<String> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let text = rfc3339(secs)?;
    let (year, month, day, time) = (text.get(..4)?, text.get(5..7)?, text.get(8..10)?, text.get(11..19)?);
    let month = MONTHS.get(month.parse::<usize>().ok()?.checked_sub(1)?)?;
    let weekday = DAYS[(secs / 86_400 % 7) as usize];
    Some(format!("{weekday}, {day} {month} {year} {time} +0000"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::alerts::rules::test_message;
    use crate::alerts::state::AlertsState;

    fn sender() -> MessageSender {
        MessageSender { host: "nas".to_owned(), origin: "a1".to_owned(), repeat_secs: Some(3600) }
    }

    fn mail() -> MailSettings {
        let from = Some("wattle@example.org".to_owned());
        MailSettings { to: vec!["a@example.org".to_owned()], from, sendmail: PathBuf::from("/x") }
    }

    #[test]
    fn a_mail_has_its_headers_and_no_others() {
        let mut told = test_message(&mut AlertsState::default(), "data", 1_795_521_600);
        told.event = "Fail\r\nBcc: evil@example.org".to_owned();
        told.text.what = "x\n.\nline".to_owned();
        let text = message(&mail(), &told, &sender());
        let head = text.split("\n\n").next().unwrap();
        assert!(head.contains("\nDate: Tue, 24 Nov 2026 12:00:00 +0000\n"), "{head}");
        assert!(head.contains("\nMessage-ID: <a1-1@nas>\n"), "{head}");
        assert!(head.lines().all(|line| !line.starts_with("Bcc")), "{head}");
        assert!(head.contains("Subject: Fail  Bcc: evil@example.org: data on nas"), "{head}");
    }

    #[test]
    fn names_that_are_not_ascii_are_encoded() {
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"abc\xff"), "YWJj/w==");
        assert_eq!(words("Fail: d\u{e4}ta"), "=?utf-8?B?RmFpbDogZMOkdGE=?=");
        let long = words(&"\u{e4}".repeat(60));
        assert!(long.lines().count() > 2 && long.lines().all(|line| line.len() <= 76), "{long}");
        let mut told = test_message(&mut AlertsState::default(), "d\u{e4}ta", 0);
        told.text.what = "\u{e4}".to_owned();
        let text = message(&mail(), &told, &sender());
        assert!(text.is_ascii() && text.contains("Content-Transfer-Encoding: base64"), "{text}");
    }
}
