//! Runs simulations: `sim SEED` replays one and tells what happens, `sim --seeds A..B` runs many.
#![allow(clippy::print_stdout, clippy::exit, reason = "a program that reports to its caller")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wattle_sim::client::Stats;
use wattle_sim::figures::tables::TABLES;
use wattle_sim::lock::lock;
use wattle_sim::worlds::{self, World};
use wattle_sim::{Mutant, RunOptions, ScenarioReport};

const USAGE: &str = "\
usage: sim SEED                      replay one seed and tell what happens
       sim --seeds A..B              run seeds A to B-1
       sim figures [TABLE]...        measure the engine on modelled drives in virtual time
  --seconds N    stop after N seconds
  --jobs N       threads (default 1)
  --failures N   stop after N failures (default 10)
  --mutant NAME  plant a bug
  --world NAME   play this world alone: array, losses, moves, orders, media, peers, away or rot
  --no-watch     see only the consequences of broken promises";

struct Arguments {
    seeds: std::ops::Range<u64>,
    one: bool,
    seconds: Option<u64>,
    jobs: usize,
    failures: u64,
    /// This world alone.
    world: Option<World>,
    options: RunOptions,
}

impl Arguments {
    fn play(&self, seed: u64, options: RunOptions) -> ScenarioReport {
        match self.world {
            Some(world) => world.play(seed, options),
            None => worlds::play(seed, options),
        }
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("figures") {
        figures(&std::env::args().skip(2).collect::<Vec<_>>());
        return;
    }
    let arguments = parse(std::env::args().skip(1)).unwrap_or_else(|| {
        println!("{USAGE}");
        exit(2);
    });
    let failures = if arguments.one { replay(&arguments) } else { run_many(&arguments) };
    exit(i32::from(failures > 0));
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        seeds: 0..0,
        one: false,
        seconds: None,
        jobs: 1,
        failures: 10,
        world: None,
        options: RunOptions::default(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => {
                let range = words.next()?;
                let (from, to) = range.split_once("..")?;
                arguments.seeds = from.parse().ok()?..to.parse().ok()?;
            }
            "--seconds" => arguments.seconds = Some(words.next()?.parse().ok()?),
            "--jobs" => arguments.jobs = words.next()?.parse().ok()?,
            "--failures" => arguments.failures = words.next()?.parse().ok()?,
            "--mutant" => {
                let name = words.next()?;
                let known = Mutant::named(&name);
                if known.is_none() {
                    let names: Vec<_> = Mutant::all().map(|(name, _)| name).collect();
                    println!("no mutant is called {name}; there are {}", names.join(", "));
                }
                arguments.options.mutant = Some(known?);
            }
            "--world" => arguments.world = Some(World::named(&words.next()?)?),
            "--no-watch" => arguments.options.watch = false,
            seed => {
                let seed = seed.parse().ok()?;
                (arguments.one, arguments.seeds) = (true, seed..seed + 1);
            }
        }
    }
    (!arguments.seeds.is_empty()).then_some(arguments)
}

/// Prints the tables of these names, or every table.
fn figures(names: &[String]) {
    let known: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        println!("no table is called {name}; there are {}", known.join(", "));
        exit(2);
    }
    for table in TABLES.iter().filter(|table| names.is_empty() || names.iter().any(|name| name == table.name))
    {
        println!("== {}\n{}", table.name, (table.make)());
    }
}

fn replay(arguments: &Arguments) -> u64 {
    let seed = arguments.seeds.start;
    let worlds = arguments.world.map_or_else(|| worlds::of(seed), |world| vec![world]);
    worlds.iter().for_each(|world| println!("{}", world.describe(seed)));
    let report = arguments.play(seed, RunOptions { verbose: true, ..arguments.options });
    report.log.iter().for_each(|line| println!("{line}"));
    println!("{:?}, trace {:016x}", report.stats, report.trace);
    match report.wrong {
        Some(wrong) => {
            println!("WRONG: {wrong}");
            1
        }
        None => {
            println!("nothing is wrong");
            0
        }
    }
}

/// Runs one seed; a panic is as wrong as a wrong answer.
fn attempt(seed: u64, arguments: &Arguments) -> Result<ScenarioReport, String> {
    catch_unwind(AssertUnwindSafe(|| arguments.play(seed, arguments.options))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

#[expect(clippy::disallowed_methods, reason = "how long it takes is not part of the simulation")]
fn run_many(arguments: &Arguments) -> u64 {
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let deadline = arguments.seconds.map(Duration::from_secs);
    let (next, failures) = (AtomicU64::new(arguments.seeds.start), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let total = Mutex::new((0u64, Stats::default()));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let late = deadline.is_some_and(|deadline| began.elapsed() >= deadline);
                    if late || seed >= arguments.seeds.end {
                        return;
                    }
                    let wrong = match attempt(seed, arguments) {
                        Ok(report) => {
                            let mut total = lock(&total);
                            total.0 += 1;
                            total.1 += report.stats;
                            report.wrong
                        }
                        Err(panic) => Some(format!("panic: {panic}")),
                    };
                    if let Some(wrong) = wrong {
                        println!(
                            "seed {seed}: {wrong}\n  replay: cargo run --release -p wattle-sim -- {seed}"
                        );
                        let so_far = failures.fetch_add(1, Ordering::Relaxed) + 1;
                        done.fetch_or(so_far >= arguments.failures, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (runs, stats) = *lock(&total);
    let seconds = began.elapsed().as_secs_f64();
    let failures = failures.load(Ordering::Relaxed);
    println!("{runs} runs in {seconds:.1} s, {:.0} a second; {failures} failures", runs as f64 / seconds);
    println!("{stats:#?}");
    failures
}
