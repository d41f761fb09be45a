//! Background work as `/proc/mdstat` shows it, character for character: operators and their scripts know that line.

use crate::control_socket::report::SyncReport;

/// Characters of the bar, without its head.
const BAR: u64 = 20;

/// `[==>..................]  recovery = 12.6% (133456/1046528) finish=0.5min speed=26691K/sec`; without the figures of what
/// moves while it is paused. Blocks are of 1024 bytes, as md's.
pub fn mdstat_line(sync: &SyncReport, action: &str) -> String {
    let (done, total) = (sync.done_bytes / 1024, (sync.total_bytes / 1024).max(1));
    let done = done.min(total);
    let per_mille = done.saturating_mul(1000) / total;
    let filled = per_mille / (1000 / BAR);
    let bar: String = (0..filled).map(|_| '=').chain(['>']).chain((filled..BAR).map(|_| '.')).collect();
    let mut line = format!("[{bar}]  {action} ={:3}.{}% ({done}/{total})", per_mille / 10, per_mille % 10);
    if sync.paused {
        return line;
    }
    let tenths_of_minutes = sync.remaining_secs.unwrap_or(0) / 6;
    line.push_str(&format!(
        " finish={}.{}min speed={}K/sec",
        tenths_of_minutes / 10,
        tenths_of_minutes % 10,
        sync.speed_bytes_per_sec / 1024
    ));
    line
}

/// A number of seconds for people: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
pub fn duration(secs: u64) -> String {
    let (min, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    match secs {
        0..=119 => format!("{secs} s"),
        120..=7_199 => format!("{min} min"),
        7_200..=172_799 => format!("{hours} h {} min", min % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sync(action: &str, done_bytes: u64, total_bytes: u64) -> SyncReport {
        SyncReport {
            action: action.to_owned(),
            members: Vec::new(),
            done_bytes,
            total_bytes,
            speed_bytes_per_sec: 26_691 << 10,
            remaining_secs: Some(34),
            paused: false,
            limited_by: None,
            mismatch_sectors: 0,
        }
    }

    #[test]
    fn the_line_is_that_of_mdstat() {
        let rows = [
            (
                sync("recovery", 0, 1000 << 10),
                "[>....................]  recovery =  0.0% (0/1000) finish=0.5min speed=26691K/sec",
            ),
            (
                sync("recovery", 126 << 10, 1000 << 10),
                "[==>..................]  recovery = 12.6% (126/1000) finish=0.5min speed=26691K/sec",
            ),
            (
                sync("check", 999 << 10, 1000 << 10),
                "[===================>.]  check = 99.9% (999/1000) finish=0.5min speed=26691K/sec",
            ),
            (
                sync("resync", 1000 << 10, 1000 << 10),
                "[====================>]  resync =100.0% (1000/1000) finish=0.5min speed=26691K/sec",
            ),
            (
                SyncReport { paused: true, ..sync("check", 500 << 10, 1000 << 10) },
                "[==========>..........]  check = 50.0% (500/1000)",
            ),
            (
                SyncReport { remaining_secs: Some(90_000), ..sync("resync", 0, u64::MAX) },
                "[>....................]  resync =  0.0% (0/18014398509481983) finish=1500.0min speed=26691K/sec",
            ),
        ];
        for (sync, line) in rows {
            assert_eq!(mdstat_line(&sync, &sync.action), line);
        }
        // Nothing to do, and more done than there is: no division by zero, no bar beyond its end.
        assert!(
            mdstat_line(&sync("check", 0, 0), "check")
                .starts_with("[>....................]  check =  0.0% (0/1)")
        );
        assert!(
            mdstat_line(&sync("check", 4096, 2048), "check")
                .starts_with("[====================>]  check =100.0% (2/2)")
        );
    }

    #[test]
    fn durations_have_two_figures_at_most() {
        let rows = [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (12_000, "3 h 20 min"),
            (187_200, "2 d 4 h"),
        ];
        for (secs, text) in rows {
            assert_eq!(duration(secs), text);
        }
    }
}
