//! What the processor itself does at this moment: the yardstick that figures of a noisy machine are held against.

use std::time::Duration;

use wattle_parity::Kernels;
use wattle_rt::{Core, CoreIx};

/// Blocks of 4 KiB that fit the first-level cache of any processor with room to spare.
const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 4;
/// Updates between two looks at the clock.
const ROUND: u64 = 256;

/// Updates of parity per second, all cores together, each by itself and with everything in its cache: old data, new data and parity
/// of 4 KiB become new parity. No I/O, nothing shared. A write of 4 KiB to RAID 5 cannot cost less.
pub async fn updates_per_second(core: &Core, time: Duration) -> f64 {
    let others: Vec<_> = (0..core.cores())
        .map(CoreIx)
        .filter(|ix| *ix != core.index())
        .map(|ix| core.call(ix, move |core| async move { updates(&core, time) }))
        .collect();
    // The others were told, so all work at the same time.
    let mut sum = updates(core, time);
    for other in others {
        sum += other.await;
    }
    sum
}

/// On one core, which does nothing else meanwhile.
fn updates(core: &Core, time: Duration) -> f64 {
    let kernels = Kernels::best();
    let mut blocks = vec![[0x5a_u8; BLOCK_BYTES]; 3 * BLOCKS];
    let began = core.now();
    let mut count = 0;
    loop {
        for round in 0..ROUND as usize {
            let [old, new, parity] = &mut blocks[round % BLOCKS * 3..][..3] else {
                unreachable!("three blocks")
            };
            kernels.delta_p(parity, old, new);
            new[round % BLOCK_BYTES] = round as u8;
        }
        count += ROUND;
        let took = core.now() - began;
        if took >= time {
            // What was computed is used, so that it has to be.
            return std::hint::black_box(&blocks).len().min(1) as f64 * count as f64 / took.as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_makes_some_updates() {
        let rate =
            wattle_rt::run(wattle_rt::RuntimeConfig { cores: 2, ..Default::default() }, async |core| {
                updates_per_second(&core, Duration::from_millis(5)).await
            });
        assert!(rate.is_ok_and(|rate| rate > 1000.0));
    }
}
