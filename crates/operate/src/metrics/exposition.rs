//! The text that Prometheus reads: families of samples, each family in one piece.

use std::fmt::{self, Display, Write};

/// The two forms of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// What a scraper accepts; the newer one only where it is named.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(types) if types.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What a family counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Counter,
    Histogram,
}

/// A family: its name, without `_total`, what it is, and what it tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// Labels as they stand between braces, escaped.
#[derive(Debug, Clone, Default)]
pub(super) struct Labels(String);

impl Labels {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The same with one more.
    pub(super) fn with(&self, name: &str, value: impl Display) -> Self {
        let mut text = String::with_capacity(self.0.len() + name.len() + 32);
        text.push_str(&self.0);
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        // Writing to a string cannot fail.
        let _ = write!(Escaped(&mut text), "{value}");
        text.push('"');
        Self(text)
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !text.bytes().any(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
            self.0.push_str(text);
            return Ok(());
        }
        for c in text.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// The samples of every family, in the order of the table.
pub(super) struct Exposition {
    format: TextFormat,
    families: &'static [Family],
    samples: Vec<String>,
}

impl Exposition {
    pub(super) fn new(format: TextFormat, families: &'static [Family]) -> Self {
        Self { format, families, samples: vec![String::new(); families.len()] }
    }

    /// A sample of the family of this name. Whole numbers are written as such.
    pub(super) fn add(&mut self, name: &'static str, labels: &Labels, value: impl Display) {
        let Some(ix) = self.families.iter().position(|family| family.name == name) else {
            debug_assert!(false, "{name} is no family");
            return;
        };
        let total = if self.families[ix].kind == Kind::Counter { "_total" } else { "" };
        sample(&mut self.samples[ix], name, total, labels, value);
    }

    /// A histogram: how many were below each bound, all of them, and their sum in seconds. Bounds
    /// are given as they are written: a machine of a thousand arrays has some hundred thousand.
    pub(super) fn add_histogram<'a>(
        &mut self,
        name: &'static str,
        labels: &Labels,
        below: impl Iterator<Item = (&'a str, u64)>,
        count: u64,
        sum_secs: f64,
    ) {
        let Some(ix) = self.families.iter().position(|family| family.name == name) else {
            debug_assert!(false, "{name} is no family");
            return;
        };
        let samples = &mut self.samples[ix];
        let comma = if labels.0.is_empty() { "" } else { "," };
        let start = format!("{name}_bucket{{{}{comma}le=\"", labels.0);
        for (bound, below) in below {
            for piece in [&start, bound, "\"} "] {
                samples.push_str(piece);
            }
            push_number(samples, below);
            samples.push('\n');
        }
        let _ = writeln!(samples, "{start}+Inf\"}} {count}");
        sample(samples, name, "_count", labels, count);
        sample(samples, name, "_sum", labels, sum_secs);
    }

    /// The whole text. Families without samples are left out.
    pub(super) fn finish(self) -> String {
        let mut text =
            String::with_capacity(self.samples.iter().map(String::len).sum::<usize>() + (16 << 10));
        for (family, samples) in self.families.iter().zip(&self.samples) {
            if samples.is_empty() {
                continue;
            }
            let Family { name, kind, help } = family;
            let (kind, suffix) = match (kind, self.format) {
                (Kind::Gauge, _) => ("gauge", ""),
                (Kind::Histogram, _) => ("histogram", ""),
                (Kind::Counter, TextFormat::OpenMetrics) => ("counter", ""),
                (Kind::Counter, TextFormat::Prometheus) => ("counter", "_total"),
            };
            let _ = write!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
            text.push_str(samples);
        }
        if self.format == TextFormat::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

/// As `write!` does it, without what that does for a width, a fill and a sign.
fn push_number(text: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

fn sample(text: &mut String, name: &str, suffix: &str, labels: &Labels, value: impl Display) {
    text.push_str(name);
    text.push_str(suffix);
    if !labels.0.is_empty() {
        for piece in ["{", &labels.0, "}"] {
            text.push_str(piece);
        }
    }
    let _ = writeln!(text, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: &[Family] = &[
        Family { name: "a", kind: Kind::Gauge, help: "A." },
        Family { name: "b", kind: Kind::Counter, help: "B." },
        Family { name: "c_seconds", kind: Kind::Histogram, help: "C." },
        Family { name: "d", kind: Kind::Gauge, help: "D." },
    ];

    fn text(format: TextFormat) -> String {
        let mut all = Exposition::new(format, FAMILIES);
        let labels = Labels::new().with("x", "a\"b\\c\nd");
        all.add("b", &Labels::new(), 7);
        all.add("a", &labels, 0.5);
        all.add_histogram("c_seconds", &Labels::new(), [("0.001", 1), ("1", 2)].into_iter(), 3, 9.5);
        all.finish()
    }

    #[test]
    fn both_forms_are_as_they_are_to_be() {
        let prometheus = "# HELP a A.\n# TYPE a gauge\na{x=\"a\\\"b\\\\c\\nd\"} 0.5\n# HELP b_total B.\n# TYPE b_total counter\n\
            b_total 7\n# HELP c_seconds C.\n# TYPE c_seconds histogram\nc_seconds_bucket{le=\"0.001\"} 1\n\
            c_seconds_bucket{le=\"1\"} 2\nc_seconds_bucket{le=\"+Inf\"} 3\nc_seconds_count 3\nc_seconds_sum 9.5\n";
        assert_eq!(text(TextFormat::Prometheus), prometheus);
        let open = prometheus.replace("HELP b_total", "HELP b").replace("TYPE b_total", "TYPE b") + "# EOF\n";
        assert_eq!(text(TextFormat::OpenMetrics), open);
    }

    #[test]
    fn numbers_are_written_as_everywhere() {
        for number in [0, 1, 9, 10, 99, 100, 12_345_678_901, u64::MAX] {
            let mut text = "x".to_owned();
            push_number(&mut text, number);
            assert_eq!(text, format!("x{number}"));
        }
    }

    #[test]
    fn a_scraper_gets_what_it_accepts() {
        let accepted = TextFormat::accepted;
        assert_eq!(
            accepted(Some("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")),
            TextFormat::OpenMetrics
        );
        assert_eq!(accepted(Some("text/plain")), TextFormat::Prometheus);
        assert_eq!(accepted(None), TextFormat::Prometheus);
    }
}
