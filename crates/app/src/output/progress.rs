//! Background work as `/proc/mdstat` shows it, character for character: operators and their scripts
//! know that line.

use wattle_server::protocol::report::JobStatus;

/// Characters of the bar, without its head.
const BAR: u64 = 20;

/// `[==>..................]  recovery = 12.6% (133456/1046528) finish=0.5min speed=26691K/sec`;
/// without the figures of what moves while it is paused. Blocks are of 1024 bytes, as md's.
pub fn mdstat_line(sync: &JobStatus, action: &str) -> String {
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

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::sync;

    use super::*;

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
                JobStatus { paused: true, ..sync("check", 500 << 10, 1000 << 10) },
                "[==========>..........]  check = 50.0% (500/1000)",
            ),
            (
                JobStatus { remaining_secs: Some(90_000), ..sync("resync", 0, u64::MAX) },
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
}
