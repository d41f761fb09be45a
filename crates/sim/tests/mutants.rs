//! Planted bugs: each is caught soon, and the seed that catches it passes without it.

use wattle_sim::{Mutant, Options, Scenario, run};

/// Seeds within which every planted bug is caught by its consequences alone.
const SEEDS: u64 = 600;

/// The first seed that catches `mutant` with what it says.
fn caught(mutant: Mutant, watch: bool) -> Option<(u64, String)> {
    let options = Options { mutant: Some(mutant), watch, ..Options::default() };
    (0..SEEDS).find_map(|seed| Some((seed, run(&Scenario::new(seed), options).wrong?)))
}

#[test]
fn every_planted_bug_is_caught_and_only_the_bug_is() {
    for (name, mutant) in Mutant::ALL {
        for watch in [true, false] {
            let (seed, wrong) = caught(mutant, watch)
                .unwrap_or_else(|| panic!("{name} survives {SEEDS} seeds (watch: {watch})"));
            println!("{name}, watch {watch}: seed {seed}: {wrong}");
            assert_eq!(run(&Scenario::new(seed), Options::default()).wrong, None, "{name} at seed {seed}");
        }
    }
}
