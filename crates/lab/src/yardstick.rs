//! What the processor itself does at this moment: the yardstick that figures of a noisy machine are held against.

use std::time::Duration;

use wattle_parity::Kernels;
use wattle_rt::{Core, CoreIx};

/// What is updated at a time, in bytes.
const BLOCK_BYTES: usize = 4096;
/// Pairs of data and parity that are updated: 1 MiB, which the second-level cache holds and the first does not.
const PAIRS: usize = 128;
/// New data that comes in turn: what several clients hold.
const NEW: usize = 8;
/// Updates between two looks at the clock.
const ROUND: u64 = 256;

/// Read-modify-writes per second, all cores together, each by itself and with everything in its second-level cache: a block of data
/// somewhere becomes what a client has, and its parity what follows from old data, new data and old parity, 4 KiB each. No I/O,
/// nothing shared. A small write to a RAID 5 whose members are memory cannot cost less.
pub async fn updates_per_second(core: &Core, time: Duration) -> f64 {
    let others: Vec<_> = (0..core.cores())
        .map(CoreIx)
        .filter(|ix| *ix != core.index())
        .map(|ix| core.call(ix, move |core| async move { updates(&core, time) }))
        .collect();
    // They are told when this turn ends; from then on all work at the same time.
    core.yield_now().await;
    let mut sum = updates(core, time);
    for other in others {
        sum += other.await;
    }
    sum
}

/// On one core, which does nothing else meanwhile.
fn updates(core: &Core, time: Duration) -> f64 {
    let kernels = Kernels::best();
    let mut members = vec![[0x5a_u8; BLOCK_BYTES]; 2 * PAIRS];
    let mut clients = vec![[0xa5_u8; BLOCK_BYTES]; NEW];
    let (began, mut count) = (core.now(), 0_usize);
    loop {
        for _ in 0..ROUND {
            // An odd step through a power of two comes by every pair, and by no neighbours.
            let at = count * 37 % PAIRS;
            let [data, parity] = &mut members[2 * at..][..2] else { unreachable!("a pair") };
            let new = &mut clients[count % NEW];
            kernels.delta_p(parity, data, new);
            data.copy_from_slice(new);
            new[count % BLOCK_BYTES] = count as u8;
            count += 1;
        }
        let took = core.now() - began;
        if took >= time {
            // What was computed is used, so that it has to be.
            return std::hint::black_box(&members).len().min(1) as f64 * count as f64 / took.as_secs_f64();
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
