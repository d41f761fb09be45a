//! Answers to an SNMP agent, in the protocol of net-snmp's `pass_persist`: lines in, lines out.
//!
//! Three tables below one object identifier (contrib/snmp/WATTLE-MIB.txt): arrays, their members,
//! and volumes. Rows are numbered in the order of the servers' reports; their names are columns.
//! What was asked of the servers is kept for [`REPORT_AGE_MAX`]: an agent walks a table with one
//! request for each value.

mod tree;

use std::fmt;
use std::io::{self, BufRead, Write};
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::ReportSource;
use tree::Tree;

/// How old a report may be.
const REPORT_AGE_MAX: Duration = Duration::from_secs(5);

/// A longer line is no request.
const LINE_BYTES_MAX: u64 = 4096;

/// Where the tables are unless something else is said: within what net-snmp leaves free for any use
/// (netSnmpPlaypen).
pub const DEFAULT_BASE: &str = ".1.3.6.1.4.1.8072.9999.9999.9330";

/// An object identifier; ordered as agents walk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId(Vec<u32>);

impl FromStr for ObjectId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix('.').unwrap_or(text).split('.').map(str::parse);
        let parts: Result<Vec<u32>, _> = parts.collect();
        parts.map(Self).map_err(|_| format!("`{text}` is not an object identifier such as .1.3.6.1.4.1.8072"))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| write!(f, ".{part}"))
    }
}

/// Answers requests until the agent closes its end.
///
/// # Errors
/// Reading or writing failed.
pub fn answer(
    source: &ReportSource,
    base: &ObjectId,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut known: Option<(Instant, Tree)> = None;
    loop {
        let Some(command) = line(input)? else { return Ok(()) };
        match command.as_str() {
            // An agent that has restarted, or shuts down, says nothing more.
            "" => return Ok(()),
            "PING" => writeln!(output, "PONG")?,
            "get" | "getnext" => {
                let Some(asked) = line(input)? else { return Ok(()) };
                let is_old = |(at, _): &(Instant, Tree)| at.elapsed() > REPORT_AGE_MAX;
                if known.as_ref().is_none_or(is_old) {
                    known = Some((Instant::now(), Tree::of(base, &source.look())));
                }
                let tree = known.as_ref().map(|(_, tree)| tree);
                let asked = asked.parse::<ObjectId>().ok();
                let found = tree.zip(asked).and_then(|(tree, asked)| match command.as_str() {
                    "get" => tree.get(&asked),
                    _ => tree.next(&asked),
                });
                match found {
                    Some((id, value)) => writeln!(output, "{id}\n{}\n{}", value.kind(), value.text())?,
                    None => writeln!(output, "NONE")?,
                }
            }
            "set" => {
                let _ = (line(input)?, line(input)?);
                writeln!(output, "not-writable")?;
            }
            _ => writeln!(output, "NONE")?,
        }
        output.flush()?;
    }
}

fn line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_lines() {
        let dir = tempfile::tempdir().unwrap();
        let source = ReportSource::one(dir.path().join("none.sock"));
        let base: ObjectId = DEFAULT_BASE.parse().unwrap();
        let input = format!(
            "PING\nget\n{base}.1.0\ngetnext\n{base}\nset\n{base}.1.0\ninteger 5\nwhat\nget\nx\n\nPING\n"
        );
        let mut output = Vec::new();
        answer(&source, &base, &mut input.as_bytes(), &mut output).unwrap();
        let expected =
            format!("PONG\n{base}.1.0\ninteger\n0\n{base}.1.0\ninteger\n0\nnot-writable\nNONE\nNONE\n");
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    #[test]
    fn identifiers_are_ordered_by_their_numbers() {
        let id = |text: &str| text.parse::<ObjectId>().unwrap();
        assert!(id(".1.2") < id(".1.10") && id(".1.2") < id(".1.2.0"));
        assert_eq!(id("1.3").to_string(), ".1.3");
        for bad in ["", ".", ".1..2", ".1.x", ".1.4294967296"] {
            assert!(bad.parse::<ObjectId>().is_err(), "{bad}");
        }
    }
}
