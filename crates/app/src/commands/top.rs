//! `wattle top`: what the arrays that are served do right now, and what holds each back.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use wattle_control::Problem;
use wattle_engine::volume::qos::QosLimits;
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION};
use wattle_server::qos;
use wattle_server::time::{duration, rfc3339};

use super::interval::{ArrayInterval, Rate, Snapshot, VolumeInterval};
use crate::cli::TopArgs;
use crate::environment::{now, runtime_dir};
use crate::output::text::{fit, printable, shortened, table};
use crate::output::{self, Screen};

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    time: String,
    /// Of all that are shown.
    totals: Totals,
    arrays: &'a [ArrayInterval],
    /// Those with limits, or that waited for others.
    volumes: Vec<VolumeInterval>,
    /// Servers that did not answer.
    errors: Vec<ErrorReport>,
}

/// What clients had of all arrays together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Totals {
    reads_per_second: f64,
    read_bytes_per_second: f64,
    writes_per_second: f64,
    write_bytes_per_second: f64,
    flushes_per_second: f64,
}

impl Totals {
    fn of(arrays: &[ArrayInterval]) -> Self {
        let sum = |of: fn(&ArrayInterval) -> f64| arrays.iter().map(of).sum();
        Self {
            reads_per_second: sum(|done| done.reads.per_second),
            read_bytes_per_second: sum(|done| done.reads.bytes_per_second),
            writes_per_second: sum(|done| done.writes.per_second),
            write_bytes_per_second: sum(|done| done.writes.bytes_per_second),
            flushes_per_second: sum(|done| done.flushes.per_second),
        }
    }

    fn bytes_per_second(&self) -> f64 {
        self.read_bytes_per_second + self.write_bytes_per_second
    }
}

/// Back to the upper left corner, and everything gone.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Looks that the history goes back.
const HISTORY: usize = 60;

/// Columns where stdout is no terminal: all of them, and names as they are.
const UNBOUNDED: usize = usize::MAX;

/// # Errors
/// Nothing, or not that array, is being served, or it ended meanwhile.
pub fn run(args: &TopArgs, screen: Screen) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let mut before = Snapshot::now(&dir);
    let name = args.name.as_deref();
    // Says at once when there is nothing to look at.
    if before.since(&before, &dir, name)?.is_empty() {
        before.volumes_alone(&dir, name)?;
    }
    let mut history = VecDeque::new();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let look = before.after(&dir, args.interval);
        let arrays = look.since(&before, &dir, name)?;
        let alone = if arrays.is_empty() { look.volumes_alone(&dir, name)? } else { Vec::new() };
        let volumes = look.volumes_since(&before, &dir, name);
        // With a name, what other servers do is of no concern.
        let silent = if name.is_none() { look.silent() } else { &[] };
        let (time, totals) = (rfc3339(now().secs).unwrap_or_default(), Totals::of(&arrays));
        history.push_back(totals.bytes_per_second());
        history.drain(..history.len().saturating_sub(HISTORY));
        if args.json.json {
            output::print_json(&Report {
                schema_version: SCHEMA_VERSION,
                time,
                totals,
                arrays: &arrays,
                volumes,
                errors: silent.iter().map(ErrorReport::from).collect(),
            })?;
        } else {
            let history = (history.make_contiguous() as &[f64], args.interval);
            let size = output::terminal_size();
            let columns = size.map_or(UNBOUNDED, |(columns, _)| columns);
            let head = head(&time, &totals, history, columns, screen);
            let parts = arrays.iter().map(|array| render(array, columns, screen));
            let is_counted = |name: &String| volumes.iter().any(|volume| volume.volume == *name);
            let alone = alone.iter().filter(|name| !is_counted(name)).map(|name| render_alone(name, screen));
            let held = volumes.iter().map(|volume| render_volume(volume, screen));
            let held = alone.chain(held).collect::<String>();
            let held = Some(held).filter(|held| !held.is_empty());
            let silent = silent.iter().map(|problem| format!("{}\n", printable(&problem.what)));
            let text: Vec<_> = [head].into_iter().chain(parts).chain(held).chain(silent).collect();
            match size {
                None => output::print(&text.join("\n"))?,
                Some((columns, rows)) => {
                    let text = fit(&text.join("\n"), columns);
                    output::print(&format!("{CLEAR}{}", first_lines(&text, rows)))?;
                }
            }
        }
        if output::reader_is_gone() {
            return Ok(());
        }
        before = look;
    }
    Ok(())
}

/// As many lines as there is room for: more would push the first ones off the screen.
fn first_lines(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    match lines.len() < rows {
        true => text.to_owned(),
        false => {
            lines[..rows.saturating_sub(2).max(1)].iter().chain(&["…"]).map(|l| format!("{l}\n")).collect()
        }
    }
}

/// The clock, what all arrays did together, and how that went lately.
fn head(
    time: &str,
    totals: &Totals,
    (history, interval): (&[f64], Duration),
    columns: usize,
    screen: Screen,
) -> String {
    let show = |bytes: f64| format!("{}/s", screen.units.show(bytes as u64));
    let mut text = format!(
        "{time}  {:.0} reads/s, {}; {:.0} writes/s, {}; {:.0} flushes/s\n",
        totals.reads_per_second,
        show(totals.read_bytes_per_second),
        totals.writes_per_second,
        show(totals.write_bytes_per_second),
        totals.flushes_per_second
    );
    let peak = history.iter().copied().fold(0.0, f64::max);
    if history.len() > 1 && peak > 0.0 {
        let secs = interval.as_secs_f64() * history.len() as f64;
        let note = format!("  at most {} in {}", show(peak), duration(secs as u64));
        let room = columns.saturating_sub(note.chars().count()).max(8);
        let last = &history[history.len().saturating_sub(room)..];
        text.push_str(&format!("{}{note}\n", spark(last, peak)));
    }
    text
}

/// One character for each value, as high as its part of the peak.
fn spark(values: &[f64], peak: f64) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = |value: &f64| (value / peak * 7.0).round().clamp(0.0, 7.0) as usize;
    values.iter().map(|value| HEIGHTS[height(value)]).collect()
}

/// What is shown of each direction: the narrower the screen, the less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    Rate,
    Bytes,
    Latency,
    Queue,
}

impl Detail {
    /// All that leaves a name room.
    fn for_columns(columns: usize) -> Self {
        match columns {
            ..58 => Self::Rate,
            58..78 => Self::Bytes,
            78..96 => Self::Latency,
            _ => Self::Queue,
        }
    }
}

fn render(done: &ArrayInterval, columns: usize, screen: Screen) -> String {
    let style = screen.style;
    let detail = Detail::for_columns(columns);
    let mut text = format!("{}  {} {}\n", style.bold(&printable(&done.array)), done.level, done.slots);
    let mut rows: Vec<_> = [row("clients", &done.reads, &done.writes, detail, screen)].into();
    for member in &done.members {
        let name = printable(member.member.as_deref().unwrap_or("-"));
        rows.push(row(&name, &member.reads, &member.writes, detail, screen));
    }
    let titles = |what: &str| [what, "", "latency", "queue"].map(str::to_owned)[..=detail as usize].to_vec();
    rows.insert(0, [vec![String::new()], titles("reads/s"), titles("writes/s")].concat());
    // The columns behind the names take what they need, the names what is left.
    let rest: usize = (1..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 2)
        .sum();
    let room = columns.saturating_sub(rest + 2).max(8);
    let slow = done.members.iter().map(|member| member.slow);
    for (row, slow) in rows.iter_mut().zip([false, false].into_iter().chain(slow)) {
        let mark = if slow { " (slow)" } else { "" };
        row[0] = shortened(&row[0], room.saturating_sub(mark.len()).max(1)) + mark;
        if slow {
            row[0] = style.yellow(&row[0]);
        }
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
        text.push_str(&format!("  cores at work: {}\n", busy.join(", ")));
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

/// A volume of which nothing is counted.
fn render_alone(name: &str, screen: Screen) -> String {
    let name = screen.style.bold(&printable(name));
    format!("{name}  on no array; requests are counted where a limit is set\n")
}

/// What limits and shares did to a volume.
fn render_volume(volume: &VolumeInterval, screen: Screen) -> String {
    let default = qos::shown(&QosLimits::default());
    let set = volume.settings.iter().filter(|(key, value)| default.get(*key) != Some(value));
    let set: Vec<_> = set.map(|(key, value)| format!("{key}={value}")).collect();
    let rate = format!(
        "{:.0} requests/s, {}/s",
        volume.per_second,
        screen.units.show(volume.bytes_per_second as u64)
    );
    let mut text = format!("{}  {rate}\n", screen.style.bold(&printable(&volume.volume)));
    if !set.is_empty() {
        text.push_str(&format!("  set: {}\n", set.join(" ")));
    }
    for (why, per_second, mean_us, waiting) in [
        ("its own limits", volume.limited_per_second, volume.limited_mean_us, volume.waiting_limited),
        ("other volumes", volume.shared_per_second, volume.shared_mean_us, volume.waiting_shared),
    ] {
        if per_second > 0.0 || waiting > 0 {
            text.push_str(&format!(
                "  waiting for {why}: {waiting} now; {per_second:.0} each second waited {:.1} ms\n",
                mean_us / 1e3
            ));
        }
    }
    text
}

fn row(name: &str, reads: &Rate, writes: &Rate, detail: Detail, screen: Screen) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    for rate in [reads, writes] {
        let bytes = format!("{}/s", screen.units.show(rate.bytes_per_second as u64));
        let latency = if rate.per_second > 0.0 { format!("{:.0} us", rate.mean_us) } else { "-".to_owned() };
        let all = [format!("{:.0}", rate.per_second), bytes, latency, format!("{:.1}", rate.under_way)];
        row.extend_from_slice(&all[..=detail as usize]);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::interval::{MemberDone, Plans};
    use crate::output::Style;
    use wattle_control::units::Units;

    const PLAIN: Screen = Screen { units: Units::Iec, style: Style::PLAIN, style_err: Style::PLAIN };

    fn busy() -> ArrayInterval {
        let rate = Rate { per_second: 123_456.0, bytes_per_second: 1e9, mean_us: 12_345.6, under_way: 123.4 };
        let member = |(slot, name): (u16, &str)| MemberDone {
            slot,
            member: Some(name.to_owned()),
            reads: rate,
            writes: rate,
            slow: slot == 1,
        };
        let names = ["/dev/disk/by-id/ata-WDC_WD40EFRX-68N32N0_WD-WCC7K0000001", "b.img"];
        ArrayInterval {
            array: "data".to_owned(),
            level: "raid5".to_owned(),
            slots: "[UU]".to_owned(),
            seconds: 1.0,
            reads: rate,
            writes: rate,
            flushes: rate,
            plans: Plans { full: 1234.0, ..Plans::default() },
            members: (0..).zip(names).map(member).collect(),
            cores: vec![0.5],
            limited_by: Vec::new(),
        }
    }

    #[test]
    fn a_screen_gets_as_much_as_fits() {
        for columns in [50, 60, 74, 80, 96, 100, 120] {
            let text = render(&busy(), columns, PLAIN);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns}: {widest:?}\n{text}");
            assert!(text.contains("(slow)"), "{text}");
        }
        let whole = render(&busy(), UNBOUNDED, PLAIN);
        assert!(
            whole.contains(busy().members[0].member.as_deref().unwrap()) && whole.contains("123.4"),
            "{whole}"
        );
        let at_80 = render(&busy(), 80, PLAIN);
        assert!(at_80.contains("latency") && !at_80.contains("queue"), "{at_80}");
        // The end of a name tells drives apart.
        assert!(at_80.contains("01  123456"), "{at_80}");
    }

    #[test]
    fn the_head_has_a_clock_totals_and_a_history() {
        let totals = Totals::of(&[busy(), busy()]);
        assert_eq!((totals.reads_per_second, totals.bytes_per_second()), (246_912.0, 4e9));
        let second = Duration::from_secs(1);
        let head = head("2026-11-24T09:00:00Z", &totals, (&[0.0, 2e9, 4e9], second), 80, PLAIN);
        assert!(head.starts_with("2026-11-24T09:00:00Z  246912 reads/s, 1.86 GiB/s; "), "{head}");
        assert!(head.ends_with("\n▁▅█  at most 3.72 GiB/s in 3 s\n"), "{head}");
    }

    #[test]
    fn no_more_lines_than_the_screen_has() {
        assert_eq!(first_lines("a\nb\n", 5), "a\nb\n");
        assert_eq!(first_lines("a\nb\nc\nd\n", 4), "a\nb\n…\n");
    }
}
