//! mdadm.conf: what it says of alerts, so that nothing has to be written twice.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What mdadm.conf says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MdadmConf {
    /// MAILADDR: the last one counts.
    pub mail_to: Option<String>,
    /// MAILFROM.
    pub mail_from: Option<String>,
    /// PROGRAM.
    pub program: Option<PathBuf>,
    /// MONITORDELAY, in seconds.
    pub monitor_delay_secs: Option<u64>,
    /// `spares=` of ARRAY lines, by UUID as mdadm shows it.
    pub spares: BTreeMap<String, u64>,
}

/// Reads it. Lines that are not understood are mdadm's business.
#[must_use]
pub fn parse(text: &str) -> MdadmConf {
    let mut conf = MdadmConf::default();
    for line in lines(text) {
        let Some((keyword, words)) = line.split_first() else { continue };
        if is(keyword, "mailaddr") {
            conf.mail_to = words.first().cloned();
        } else if is(keyword, "mailfrom") {
            conf.mail_from = Some(words.join(" ")).filter(|from| !from.is_empty());
        } else if is(keyword, "program") {
            conf.program = words.first().map(PathBuf::from);
        } else if is(keyword, "monitordelay") {
            conf.monitor_delay_secs = words.first().and_then(|word| word.parse().ok());
        } else if is(keyword, "array") {
            array(&mut conf, words);
        }
    }
    conf
}

fn array(conf: &mut MdadmConf, words: &[String]) {
    let value = |name: &str| {
        let pairs = words.iter().filter_map(|word| word.split_once('='));
        pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let spares = value("spares").and_then(|spares| spares.parse::<u64>().ok());
    if let (Some(uuid), Some(spares)) = (value("uuid").and_then(uuid), spares) {
        conf.spares.insert(uuid, spares);
    }
}

/// Keywords may be cut short to three letters, in large or small letters.
fn is(word: &str, keyword: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.len() >= 3 && keyword.starts_with(&word)
}

/// A UUID as mdadm shows it, however it is grouped.
fn uuid(text: &str) -> Option<String> {
    let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    let others = text.chars().all(|c| c.is_ascii_hexdigit() || ":-. ".contains(c));
    if digits.len() != 32 || !others {
        return None;
    }
    let groups: Vec<String> = digits.chunks(8).map(|group| group.iter().collect()).collect();
    Some(groups.join(":").to_ascii_lowercase())
}

/// The words of each line. A line that begins with a space goes on with the one before.
fn lines(text: &str) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        let goes_on = line.starts_with([' ', '\t']);
        let words = words(line);
        match lines.last_mut() {
            Some(last) if goes_on => last.extend(words),
            _ => lines.push(words),
        }
    }
    lines
}

/// Words are apart by spaces, except in quotes; `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut is_word = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '"' | '\'') => (quote, is_word) = (Some(c), true),
            (None, '#') if !is_word => break,
            (None, c) if c.is_whitespace() => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_monitors_need_is_read() {
        let text = "# a comment\nDEVICE partitions\nHOMEHOST <system>\n\
            MAILADDR root   # a word\nmailfrom \"The NAS\" <nas@example.org>\nPROGRAM /usr/sbin/handle-mdadm-events\n\
            MONITORDELAY 30\n\
            ARRAY /dev/md/data metadata=1.2 name=nas:data\n   UUID=d4456855:878c1153:a132709f:86ddf6a8 spares=2\n\
            ARRAY /dev/md1 UUID=D4456855878C1153A132709F86DDF6A9 spares=1\nARRAY /dev/md2 spares=1\n";
        let conf = parse(text);
        assert_eq!(conf.mail_to.as_deref(), Some("root"));
        assert_eq!(conf.mail_from.as_deref(), Some("The NAS <nas@example.org>"));
        assert_eq!(conf.program, Some(PathBuf::from("/usr/sbin/handle-mdadm-events")));
        assert_eq!(conf.monitor_delay_secs, Some(30));
        let spares: Vec<_> = conf.spares.iter().map(|(uuid, spares)| (uuid.as_str(), *spares)).collect();
        let uuids = ["d4456855:878c1153:a132709f:86ddf6a8", "d4456855:878c1153:a132709f:86ddf6a9"];
        assert_eq!(spares, [(uuids[0], 2), (uuids[1], 1)]);
    }

    #[test]
    fn anything_is_read_without_a_panic() {
        for text in [
            "",
            "MAIL",
            "MAILADDR",
            "MAILADDR \"",
            "PROGRAM #",
            " ",
            "ARRAY UUID== spares=x",
            "MONITORDELAY -1",
            "é",
        ] {
            let conf = parse(text);
            assert!(conf.program.is_none() && conf.spares.is_empty(), "{text}");
        }
    }
}
