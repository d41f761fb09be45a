//! How much processor time this process's threads used.

use std::fs;

use crate::protocol::report::ThreadReport;

/// Every thread, as Linux tells (proc(5): `/proc/self/task/TID/stat`); none where it does not.
pub fn all() -> Vec<ThreadReport> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut threads: Vec<(String, ThreadReport)> = tasks
        .flatten()
        .filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            Some((task.file_name().to_string_lossy().into_owned(), parse(&stat)?))
        })
        .collect();
    threads.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    threads.into_iter().map(|(_, thread)| thread).collect()
}

/// Processor time of this process in milliseconds, also of threads that have ended, which therefore
/// never goes down (proc(5): `/proc/self/stat`); none where Linux does not tell.
pub fn process_cpu_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    parse(&stat).map(|process| process.cpu_ms)
}

/// Linux has this value on every architecture with user space counters: USER_HZ.
const TICKS_PER_SECOND: u64 = 100;

/// A thread by its line of `stat`. The name stands in parentheses and may hold anything,
/// parentheses too.
pub fn parse(stat: &str) -> Option<ThreadReport> {
    let (tid, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    // Fields 14 and 15 of the line, counted from 1; the name is field 2.
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let sum = ticks()?.saturating_add(ticks()?);
    let tid = tid.trim().parse().ok()?;
    Some(ThreadReport { name: name.to_owned(), tid, cpu_ms: sum.saturating_mul(1000 / TICKS_PER_SECOND) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = "77 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 5";
        assert_eq!(parse(line), Some(ThreadReport { name: "a) b (c)".to_owned(), tid: 77, cpu_ms: 3000 }));
        assert_eq!(parse("77 (a"), None);
    }

    #[test]
    fn this_thread_is_there() {
        assert!(!all().is_empty());
    }

    #[test]
    fn what_a_thread_used_that_has_ended_still_counts() {
        let before = process_cpu_ms().unwrap();
        let burns = || {
            let used = || all().into_iter().find(|thread| thread.name == "burner").unwrap().cpu_ms;
            while used() < 100 {}
            used()
        };
        let used = std::thread::Builder::new().name("burner".to_owned()).spawn(burns).unwrap();
        let used = used.join().unwrap();
        let after = process_cpu_ms().unwrap();
        // All are counted in ticks of 10 ms.
        assert!(after + 20 >= before + used, "{before} ms, {after} ms, and the thread used {used} ms");
    }
}
