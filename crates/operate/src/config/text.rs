//! A first file for an array that is there.

use std::fmt::Write;

/// An array that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundArray {
    /// Its name, for people.
    pub name: String,
    /// Its UUID, which it is found by.
    pub uuid: String,
    /// What it is, in a line.
    pub what: String,
    /// Where to look for its members; empty for all drives.
    pub members: Vec<String>,
}

impl FoundArray {
    /// What its file is called, without `.toml`.
    pub fn stack_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_+".contains(c) { c } else { '-' };
        let name: String = self.name.chars().map(plain).take(40).collect();
        match name.trim_matches('-') {
            "" => "array".to_owned(),
            "alerts" => "array-alerts".to_owned(),
            name => name.to_owned(),
        }
    }

    /// The text of its file.
    pub fn config(&self) -> String {
        let mut text = format!("# {}: {}\n", printable(&self.name), printable(&self.what));
        let _ = writeln!(text, "arrays = [{}]", quoted(&self.uuid));
        if !self.members.is_empty() {
            text.push_str(
                "# Where its members are looked for. Without this line: all drives.\nmembers = [\n",
            );
            for member in &self.members {
                let _ = writeln!(text, "  {},", quoted(member));
            }
            text.push_str("]\n");
        }
        text.push_str(REST);
        text
    }
}

/// What can be said besides.
const REST: &str = "\
# Where clients find it. Without this line: a socket in /run/wattle.
# exports = [\"nbd=tcp:127.0.0.1:10809\"]

[wait]
# How long drives that come late are waited for, and what then: degraded or refuse.
timeout = \"30s\"
missing = \"degraded\"

[scrub]
# A check is started when the last one is older, and overdue when it is older than that.
every = \"30d\"
overdue = \"45d\"
";

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::StackConfig;

    #[test]
    fn what_is_written_can_be_read() {
        let found = FoundArray {
            name: "da\"ta\nx".to_owned(),
            uuid: "27575850:4030dd0e:edaf450a:4d70704f".to_owned(),
            what: "raid5".to_owned(),
            members: vec!["/a \"b\"\\\n".to_owned(), "/dev/sd[b-d]".to_owned()],
        };
        let file = format!("{}.toml", found.stack_name());
        let config = StackConfig::parse(Path::new(&file), &found.config()).unwrap();
        assert_eq!(config.name, "da-ta-x");
        assert_eq!(config.arrays[0].value, found.uuid);
        let members: Vec<_> = config.members.iter().map(|member| member.value.clone()).collect();
        assert_eq!(members, found.members);
        let nameless = FoundArray { name: "..".to_owned(), members: Vec::new(), ..found };
        assert_eq!(nameless.stack_name(), "array");
        assert!(StackConfig::parse(Path::new("array.toml"), &nameless.config()).is_ok());
    }
}
