//! Planted bugs: each is caught soon, and the seed that catches it passes without it.

use wattle_engine::planted::Bug;
use wattle_sim::worlds::World;
use wattle_sim::{Mutant, RunOptions};

/// Seeds within which every planted bug is caught by its consequences alone.
const SEEDS: u64 = 600;

/// Mends that are taken out, with the world that shows it and the seeds within which it does.
const MENDS: [(Bug, World, u64); 15] = [
    (Bug::CacheKeepsOverChanges, World::Array, SEEDS),
    (Bug::CacheKeepsOverJobs, World::Array, SEEDS),
    (Bug::CacheLendsKept, World::Array, SEEDS),
    (Bug::LossReportedOnce, World::Losses, SEEDS),
    (Bug::ForcedLossUncounted, World::Losses, SEEDS),
    (Bug::RemapCoreByCore, World::Moves, SEEDS),
    (Bug::UncheckedPromotion, World::Orders, SEEDS),
    (Bug::SpreadRecovery, World::Media, SEEDS),
    (Bug::ZeroKeepsBadBlocks, World::Media, SEEDS),
    (Bug::PeersInDrivesRoom, World::Peers, SEEDS),
    (Bug::StrictWitnesses, World::Away, SEEDS),
    (Bug::SumsUnnoted, World::Rot, SEEDS),
    (Bug::SumsOpenUntold, World::Rot, SEEDS),
    (Bug::SumsOfAnyState, World::Rot, SEEDS),
    (Bug::SumsUnproven, World::Rot, SEEDS),
];

/// Those that only members across a network show.
const AWAY: [Mutant; 2] = [Mutant::HastyReopen, Mutant::ForgottenOrder];

/// The first seed that catches `mutant` in a world, with what it says.
fn caught(mutant: Mutant, world: World, seeds: u64, watch: bool) -> Option<(u64, String)> {
    let options = RunOptions { mutant: Some(mutant), watch, ..RunOptions::default() };
    (0..seeds).find_map(|seed| Some((seed, world.play(seed, options).wrong?)))
}

#[track_caller]
#[expect(clippy::print_stdout, reason = "the seeds that catch each bug, for a reader of the test")]
fn caught_and_only_the_bug(name: &str, mutant: Mutant, world: World, seeds: u64, watch: bool) {
    let (seed, wrong) = caught(mutant, world, seeds, watch)
        .unwrap_or_else(|| panic!("{name} survives {seeds} seeds (watch: {watch})"));
    println!("{name}, watch {watch}: seed {seed}: {wrong}");
    assert_eq!(world.play(seed, RunOptions::default()).wrong, None, "{name} at seed {seed}");
}

#[test]
fn every_planted_bug_is_caught_and_only_the_bug_is() {
    let outside = |mutant: &Mutant| mutant.bug().is_none();
    for (name, mutant) in Mutant::all().filter(|(_, mutant)| outside(mutant)) {
        let world = if AWAY.contains(&mutant) { World::Away } else { World::Array };
        for watch in [true, false] {
            caught_and_only_the_bug(name, mutant, world, SEEDS, watch);
        }
    }
}

#[test]
fn every_mend_that_is_taken_out_is_missed() {
    for (bug, world, seeds) in MENDS {
        caught_and_only_the_bug(&format!("{bug:?}"), Mutant::Planted(bug), world, seeds, true);
    }
}

/// Which seeds play what is no accident: a world that no seed draws shows nothing.
#[test]
fn every_mend_is_watched_over_by_a_world_that_seeds_draw() {
    for (bug, world, _) in MENDS {
        assert!(world == World::Array || World::DRAWN.contains(&world), "{bug:?}: no seed draws {world:?}");
    }
}
