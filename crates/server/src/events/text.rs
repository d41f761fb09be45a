//! Events in words.

use crate::protocol::report::ScrubReport;
use crate::time::duration;

/// How a check or repair ended and what it found.
pub fn scrub_end(scrub: &ScrubReport) -> String {
    let mut what = scrub.action.clone();
    if let Some(source) = &scrub.source {
        what.push_str(&format!(" from {source}"));
    }
    let found = match (scrub.mismatch_sectors, scrub.action.as_str()) {
        (0, _) => "no mismatch".to_owned(),
        (n, "repair") => format!("{}, {} repaired", sectors(n), scrub.repaired_sectors),
        (n, _) => sectors(n),
    };
    let mut unreadable = match scrub.unreadable_sectors {
        0 => String::new(),
        n => format!(", {n} sectors could not be compared"),
    };
    if scrub.late_sectors > 0 {
        unreadable.push_str(&format!(", {} sectors were not read in time", scrub.late_sectors));
    }
    if scrub.alone_sectors > 0 {
        let alone = counted(scrub.alone_sectors);
        unreadable.push_str(&format!(", {alone} with nothing left to compare"));
    }
    if let Some(record) = &scrub.record {
        if record.proven_sectors + record.rotted_sectors > 0 {
            let rotted = counted(record.proven_sectors + record.rotted_sectors);
            unreadable.push_str(&format!(", {rotted} rotted silently"));
        }
        if record.unexplained_sectors > 0 {
            let sectors = counted(record.unexplained_sectors);
            unreadable.push_str(&format!(", {sectors} not as recorded although redundancy agrees"));
        }
        if record.recorded {
            unreadable.push_str(", recorded");
        }
    }
    let after = scrub.duration_secs.map(|secs| format!(" after {}", duration(secs))).unwrap_or_default();
    let end = match (scrub.outcome.as_str(), &scrub.error) {
        ("running", _) => "running".to_owned(),
        ("done", _) => format!("done{after}: {found}{unreadable}"),
        ("interrupted", _) => "interrupted: the server ended first".to_owned(),
        ("failed", Some(error)) => format!("failed{after}: {error}"),
        (outcome, _) => format!("{outcome}{after}: {found}{unreadable} until then"),
    };
    format!("{what}: {end}")
}

fn counted(sectors: u64) -> String {
    if sectors == 1 { "1 sector".to_owned() } else { format!("{sectors} sectors") }
}

/// How much does not agree.
pub fn sectors(count: u64) -> String {
    match count {
        0 => "no mismatch".to_owned(),
        1 => "1 sector does not agree".to_owned(),
        n => format!("{n} sectors do not agree"),
    }
}
