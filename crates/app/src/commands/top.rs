//! `wattle top`: what the arrays that are served do right now, and what holds each back.

use std::io::{IsTerminal, stdout};

use serde::Serialize;
use wattle_control::Problem;
use wattle_server::protocol::SCHEMA_VERSION;

use super::interval::{ArrayInterval, Rate, Snapshot, not_empty};
use crate::cli::TopArgs;
use crate::environment::runtime_dir;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    arrays: Vec<ArrayInterval>,
}

/// Back to the upper left corner, and everything gone.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// # Errors
/// Nothing, or not that array, is being served, or it ended meanwhile.
pub fn run(args: &TopArgs, screen: Screen) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let clear = !args.json.json && stdout().is_terminal();
    let mut before = Snapshot::now(&dir);
    // Says at once when there is nothing to look at.
    not_empty(before.since(&before, &dir, args.name.as_deref())?, &dir)?;
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let now = before.after(&dir, args.interval);
        let arrays = not_empty(now.since(&before, &dir, args.name.as_deref())?, &dir)?;
        if args.json.json {
            output::print_json(&Report { schema_version: SCHEMA_VERSION, arrays })?;
        } else {
            let parts: Vec<String> = arrays.iter().map(|array| render(array, screen)).collect();
            output::print(&format!("{}{}", if clear { CLEAR } else { "" }, parts.join("\n")))?;
        }
        before = now;
    }
    Ok(())
}

fn render(done: &ArrayInterval, screen: Screen) -> String {
    let style = screen.style;
    let mut text = format!("{}  {} {}\n", style.bold(&printable(&done.array)), done.level, done.slots);
    let mut rows = vec![
        ["", "reads/s", "", "latency", "queue", "writes/s", "", "latency", "queue"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.push(row("clients", &done.reads, &done.writes, screen));
    for member in &done.members {
        let name = printable(member.member.as_deref().unwrap_or("-"));
        let name = if member.slow { style.yellow(&format!("{name} (slow)")) } else { name };
        rows.push(row(&name, &member.reads, &member.writes, screen));
    }
    text.push_str(&table("  ", &rows));
    let plans = &done.plans;
    let counts = [
        ("full-stripe", plans.full),
        ("reconstruct", plans.reconstruct),
        ("read-modify", plans.read_modify),
        ("degraded", plans.degraded),
        ("blocks read first", plans.pre_reads),
        ("merged", plans.merged),
        ("answered by reading ahead", plans.ahead_reads),
        ("flushes", done.flushes.per_second),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count >= 0.5)
        .map(|(what, count)| format!("{count:.0} {what}"))
        .collect();
    if !counts.is_empty() {
        text.push_str(&format!("  each second: {}\n", counts.join(", ")));
    }
    let busy: Vec<String> = done
        .cores
        .iter()
        .filter(|part| **part >= 0.005)
        .map(|part| format!("{:.0} %", 100.0 * part))
        .collect();
    if !busy.is_empty() {
        text.push_str(&format!("  threads at work: {}\n", busy.join(", ")));
    }
    for limit in &done.limited_by {
        text.push_str(&format!(
            "  limited by {}: {}\n",
            limit.kind.replace('_', " "),
            printable(&limit.evidence)
        ));
    }
    text
}

fn row(name: &str, reads: &Rate, writes: &Rate, screen: Screen) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    for rate in [reads, writes] {
        let bytes = format!("{}/s", screen.units.show(rate.bytes_per_second as u64));
        let latency = if rate.per_second > 0.0 { format!("{:.0} us", rate.mean_us) } else { "-".to_owned() };
        row.extend([format!("{:.0}", rate.per_second), bytes, latency, format!("{:.1}", rate.under_way)]);
    }
    row
}
