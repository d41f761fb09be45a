//! Tens of thousands of random and mutated inputs to every decoder, the same each run. A panic, a
//! failed assertion or an endless loop in `fuzzing` fails the test; `fuzz/` runs the same functions
//! under a coverage-guided fuzzer.

use crate::common;

use crate::common::{Random, seeds};
use wattle_format::fuzzing::ALL;

const ROUNDS: usize = 3000;

#[test]
fn random_bytes() {
    let mut random = Random(1);
    for _ in 0..ROUNDS {
        let len = random.below(9000);
        let bytes = random.bytes(len);
        ALL.iter().for_each(|(_, target)| target(&bytes));
    }
}

#[test]
fn mutated_structures() {
    let mut random = Random(2);
    for seed in seeds() {
        ALL.iter().for_each(|(_, target)| target(&seed));
        for _ in 0..ROUNDS / 2 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random.below(4) {
                mutate(&mut bytes, &mut random);
            }
            common::reseal(&mut bytes);
            ALL.iter().for_each(|(_, target)| target(&bytes));
        }
    }
}

/// Where the fuzzer's first inputs go, if that is what the tests run for.
#[test]
fn seeds_for_the_fuzzer() {
    let Some(corpus) = std::env::var_os("WATTLE_FUZZ_CORPUS") else { return };
    for (name, _) in ALL {
        let dir = std::path::Path::new(&corpus).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        for (ix, seed) in seeds().iter().enumerate() {
            std::fs::write(dir.join(format!("made-{ix}")), seed).unwrap();
        }
    }
}

/// Bit flips, boundary values at aligned places, and truncation.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const EDGES: [u64; 8] = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 31, 0xffff_ffff, 0xff00];
    if bytes.len() < 16 {
        return;
    }
    let at = random.below(bytes.len().min(600) - 8);
    match random.below(5) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.below(256) as u8,
        2 => bytes[at & !3..][..4].copy_from_slice(&EDGES[random.below(8)].to_le_bytes()[..4]),
        3 => bytes[at & !7..][..8].copy_from_slice(&EDGES[random.below(8)].to_le_bytes()),
        _ => bytes.truncate(bytes.len() - random.below(64)),
    }
}
