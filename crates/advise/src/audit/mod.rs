//! What is wrong with a stack: rules over facts, as a linter has them.
//!
//! [`AuditFacts`] are what was found, by the caller; a rule is a pure function from them to
//! [`Finding`]s, each with a [`FindingCode`] that never changes its meaning. What a rule would need
//! and could not be told is [`Unchecked`]: silence means that something was looked at and is as it
//! should be.
//!
//! Reading order: [`facts`], `codes` (every finding there is), then one file of rules per theme.

mod align;
mod codes;
mod drives;
pub mod facts;
mod files;
pub mod fragments;
mod mounts;
mod redundancy;
mod tuning;
mod watch;

use std::fmt;

pub use codes::{FindingCode, Severity};
pub use facts::AuditFacts;
pub use fragments::FileSystemFigures;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub code: FindingCode,
    /// What it is about: a device, an array, a volume, by its name.
    pub subject: String,
    /// What was found, with the numbers.
    pub evidence: String,
    /// What it costs.
    pub cost: String,
    /// What to do; a command wherever there is one.
    pub fix: String,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchecked {
    /// What is not known.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// What an audit comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unchecked: Vec<Unchecked>,
    /// File systems whose files were looked at, in figures.
    pub file_systems: Vec<FileSystemFigures>,
}

impl AuditReport {
    fn find(&mut self, code: FindingCode, subject: &str, [evidence, cost, fix]: [String; 3]) {
        self.findings.push(Finding { code, subject: subject.to_owned(), evidence, cost, fix });
    }

    fn unknown(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let unchecked = Unchecked { what: what.into(), why: why.into() };
        if !self.unchecked.contains(&unchecked) {
            self.unchecked.push(unchecked);
        }
    }
}

/// Everything that the rules find.
#[must_use]
pub fn audit(facts: &AuditFacts) -> AuditReport {
    let mut report = AuditReport { unchecked: facts.unread.clone(), ..AuditReport::default() };
    for rules in [
        redundancy::rules,
        align::rules,
        files::rules,
        fragments::rules,
        drives::rules,
        tuning::rules,
        mounts::rules,
        watch::rules,
    ] {
        rules(facts, &mut report);
    }
    report.findings.sort_by_key(|finding| (std::cmp::Reverse(finding.code.severity()), finding.code));
    report
}

/// A size as people read it: whole in the largest unit that keeps it whole, or with two digits.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let power = (self.0.checked_ilog2().unwrap_or(0) / 10) as usize;
        let whole = (0..=power).rev().find(|power| self.0.is_multiple_of(1 << (10 * power))).unwrap_or(0);
        // 1000 sectors of something are no round number of anything larger.
        if whole + 1 >= power {
            return write!(f, "{} {}", self.0 >> (10 * whole), UNITS[whole]);
        }
        write!(f, "{:.2} {}", self.0 as f64 / (1u64 << (10 * power)) as f64, UNITS[power])
    }
}

/// `name` as one word of a shell.
fn word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+=,@%".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_where_that_is_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (32_256, "32256 B"),
            (192 << 10, "192 KiB"),
            (1 << 20, "1 MiB"),
            (1152 << 10, "1152 KiB"),
            (3_000_000_000, "2.79 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn what_is_pasted_into_a_shell_is_one_word() {
        assert_eq!(word("vg/lv"), "vg/lv");
        assert_eq!(word("a b'; rm"), r"'a b'\''; rm'");
        assert_eq!(word(""), "''");
    }

    #[test]
    fn nothing_is_known_of_nothing() {
        assert_eq!(audit(&AuditFacts::default()).findings, []);
    }
}
