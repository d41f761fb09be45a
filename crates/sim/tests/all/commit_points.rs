//! Short histories, exhaustively: the power goes at every operation, and every subset of what is
//! not flushed survives.
//!
//! One write, an idle moment, and a member that the operator fails somewhere in between: dirty
//! mark, clean mark and the record of a failure, with everything that a run checks: the array found
//! is the one before or the one after, never neither, and what it says of itself is true.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::{Level, Params};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_format::md::Version;
use wattle_rt::DriveConfig;
use wattle_sim::metadata::MetadataModel;
use wattle_sim::run::run_choosing;
use wattle_sim::scenario::{End, InjectedFault, Lifetime, Mix};
use wattle_sim::{Mutant, RunOptions, Scenario};

/// Counts through all sequences of choices, however many there are of each.
#[derive(Default)]
struct Odometer {
    /// What was chosen, and among how many.
    digits: Vec<(usize, usize)>,
    at: usize,
}

impl Odometer {
    fn choose(&mut self, among: usize) -> usize {
        if self.at == self.digits.len() {
            self.digits.push((0, among));
        }
        let (digit, radix) = self.digits[self.at];
        assert_eq!(radix, among, "equal choices lead to equal questions");
        self.at += 1;
        digit
    }

    /// Moves to the next sequence; whether there is one.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((digit, radix)) = self.digits.pop() {
            if digit + 1 < radix {
                self.digits.push((digit + 1, radix));
                return true;
            }
        }
        false
    }
}

fn scenario(
    metadata: MetadataModel,
    level: Level,
    raid_disks: u32,
    fail_after: Option<u64>,
    cut: u64,
) -> Scenario {
    let faults =
        fail_after.map(|micros| (Duration::from_micros(micros), InjectedFault::Operator(MemberIx(1))));
    let life = |requests, end, faults| Lifetime {
        requests,
        end,
        faults,
        withheld: MemberSet::EMPTY,
        resynced: false,
    };
    let latency = Duration::from_micros(50)..Duration::from_micros(60);
    Scenario {
        seed: 1,
        metadata,
        params: Params {
            level,
            layout: if level == Level::Raid5 { 2 } else { 0 },
            chunk: Sector(if level == Level::Raid1 { 0 } else { 8 }),
            raid_disks,
            component_size: Sector(16),
            member_sizes: Vec::new(),
        },
        drive: DriveConfig {
            read_latency: latency.clone(),
            write_latency: latency.clone(),
            flush_latency: latency,
            ..DriveConfig::default()
        },
        cores: 1,
        read_deadline: Duration::from_secs(2),
        slow_jobs: false,
        region: None,
        log: false,
        bad_entries_max: 0,
        spares: 0,
        remote: MemberSet::EMPTY,
        stripes_active_max: 2,
        clean_delay: Duration::from_millis(1),
        read_errors_max: 20,
        clients: 1,
        readers: 0,
        part_bytes: 4096,
        request_max: 1,
        reach: 1,
        mix: Mix {
            read: 0,
            write: 1,
            unaligned: 0,
            flush: 0,
            discard: 0,
            zero: 0,
            pause: 0,
            forced_percent: 0,
        },
        torn_unreadable_ppm: 0,
        no_write_zeroes: false,
        victims: MemberSet::EMPTY,
        silent: 0,
        beyond: false,
        lifetimes: vec![
            life(2, End::CutAfterOps(cut), faults.into_iter().collect()),
            life(0, End::Stop, Vec::new()),
        ],
    }
}

/// Plays every outcome of every cut; returns how many there were, or what went wrong first.
fn explore(
    metadata: MetadataModel,
    level: Level,
    disks: u32,
    fail: Option<u64>,
    mutant: Option<Mutant>,
) -> Result<u32, String> {
    let mut outcomes = 0;
    for cut in 1..=80 {
        let odometer = Rc::new(RefCell::new(Odometer::default()));
        loop {
            let chooser = odometer.clone();
            let scenario = scenario(metadata, level, disks, fail, cut);
            let options = RunOptions { mutant, watch: false, ..RunOptions::default() };
            let report = run_choosing(&scenario, options, move |n| chooser.borrow_mut().choose(n));
            outcomes += 1;
            if let Some(wrong) = report.wrong {
                let choices = &odometer.borrow().digits;
                return Err(format!(
                    "{metadata:?} {level} failing {fail:?}, cut {cut}, {choices:?}: {wrong}"
                ));
            }
            if !odometer.borrow_mut().advance() {
                break;
            }
        }
    }
    Ok(outcomes)
}

const KINDS: [MetadataModel; 2] = [MetadataModel::Tiny, MetadataModel::Md(Version::V12)];
const ARRAYS: [(Level, u32); 2] = [(Level::Raid1, 2), (Level::Raid5, 3)];

#[test]
fn every_crash_point_of_every_change_of_state_leaves_a_true_state() {
    for metadata in KINDS {
        for (level, disks) in ARRAYS {
            // No failure; one while the dirty mark is written, while data is, and while the array
            // is idle.
            for fail in [None, Some(60), Some(170), Some(600)] {
                match explore(metadata, level, disks, fail, None) {
                    Ok(outcomes) => assert!(outcomes > 60, "{outcomes} outcomes are not many"),
                    Err(wrong) => panic!("{wrong}"),
                }
            }
        }
    }
}

#[test]
fn the_enumeration_finds_a_missing_dirty_mark() {
    for metadata in KINDS {
        for (level, disks) in ARRAYS {
            assert!(
                explore(metadata, level, disks, None, Some(Mutant::SkipDirty)).is_err(),
                "{metadata:?} {level}"
            );
        }
    }
}
