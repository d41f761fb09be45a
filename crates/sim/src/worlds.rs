//! What a seed plays: an array with crashes ([`mod@crate::run`]), and beside it one of the smaller
//! worlds, which the seed draws.

use crate::client::Stats;
use crate::media::{self, MediaScenario};
use crate::peers::{self, PeersScenario};
use crate::rot::{self, RotScenario};
use crate::run::{RunOptions, ScenarioReport, run};
use crate::scenario::Scenario;
use crate::stack::{self, Habit, StackScenario};

/// A world that a seed can play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// An array with metadata, over lifetimes that end by a stop, a kill or a power cut.
    Array,
    /// Stacks on page caches that lose write-backs.
    Losses,
    /// Logical volumes whose extents move under load.
    Moves,
    /// Arrays whose members come and go by orders at any moment.
    Orders,
    /// Sectors that fail beside parity or copies that are silently wrong.
    Media,
    /// A volume that is served to clients that behave, beside clients that do not.
    Peers,
    /// An array of copies whose members lie across a network, go away and come back.
    Away,
    /// Members that rot silently between recorded scrubs.
    Rot,
}

impl World {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, World); 8] = [
        ("array", World::Array),
        ("losses", World::Losses),
        ("moves", World::Moves),
        ("orders", World::Orders),
        ("media", World::Media),
        ("peers", World::Peers),
        ("away", World::Away),
        ("rot", World::Rot),
    ];

    /// Those that seeds draw from. A world stays out as long as what it finds is not mended.
    pub const DRAWN: &'static [World] =
        &[World::Losses, World::Moves, World::Media, World::Orders, World::Peers, World::Rot, World::Away];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<World> {
        World::ALL.iter().find_map(|&(known, world)| (known == name).then_some(world))
    }

    /// What this world is with a seed, in full.
    #[must_use]
    pub fn describe(self, seed: u64) -> String {
        match self {
            World::Array => format!("{:#?}", Scenario::new(seed)),
            World::Losses => format!("{:#?}", StackScenario::with(seed, Habit::Losses)),
            World::Moves => format!("{:#?}", StackScenario::with(seed, Habit::Moves)),
            World::Orders => format!("{:#?}", StackScenario::with(seed, Habit::Orders)),
            World::Media => format!("{:#?}", MediaScenario::new(seed)),
            World::Peers => format!("{:#?}", PeersScenario::new(seed)),
            World::Away => format!("{:#?}", Scenario::away(seed)),
            World::Rot => format!("{:#?}", RotScenario::new(seed)),
        }
    }

    /// Plays this world with a seed.
    #[must_use]
    pub fn play(self, seed: u64, options: RunOptions) -> ScenarioReport {
        match self {
            World::Array => run(&Scenario::new(seed), options),
            World::Losses => stack::run(&StackScenario::with(seed, Habit::Losses), options),
            World::Moves => stack::run(&StackScenario::with(seed, Habit::Moves), options),
            World::Orders => stack::run(&StackScenario::with(seed, Habit::Orders), options),
            World::Media => media::run(&MediaScenario::new(seed), options),
            World::Peers => peers::run(&PeersScenario::new(seed), options),
            World::Away => run(&Scenario::away(seed), options),
            World::Rot => rot::run(&RotScenario::new(seed), options),
        }
    }
}

/// The worlds of a seed: the array, and beside every second one another.
#[must_use]
pub fn of(seed: u64) -> Vec<World> {
    let other = World::DRAWN.get((seed / 2) as usize % World::DRAWN.len().max(1));
    std::iter::once(World::Array).chain(other.copied().filter(|_| seed.is_multiple_of(2))).collect()
}

/// Plays all worlds of a seed; what is wrong first ends it.
#[must_use]
pub fn play(seed: u64, options: RunOptions) -> ScenarioReport {
    let mut all = ScenarioReport { wrong: None, stats: Stats::default(), trace: 0, log: Vec::new() };
    for world in of(seed) {
        let report = world.play(seed, options);
        all.stats += report.stats;
        all.trace = all.trace.rotate_left(1) ^ report.trace;
        all.log.extend(report.log);
        if let Some(wrong) = report.wrong {
            all.wrong = Some(if world == World::Array { wrong } else { format!("{world:?}: {wrong}") });
            break;
        }
    }
    all
}
