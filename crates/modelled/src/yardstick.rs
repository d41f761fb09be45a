//! What the processor itself does at this moment: the yardsticks that figures of a noisy machine
//! are held against. All cores at the same time, each by itself, no I/O, nothing shared.

use std::time::Duration;

use wattle_parity::{DataBlock, Kernels};
use wattle_rt::{BufMut, Core, CoreIx, Instant};

/// What is updated at a time, in bytes.
const UPDATE_BYTES: usize = 4096;
/// Pairs of data and parity that are updated: 1 MiB, which the second-level cache holds and the
/// first does not.
const PAIRS: usize = 128;
/// New data that comes in turn: what several clients hold.
const NEW: usize = 8;
/// Updates between two looks at the clock.
const UPDATES: usize = 256;

/// A block that parity is made of, at most: so long that parity goes past the caches.
const BLOCK_BYTES: usize = 8 << 20;
/// Blocks that are walked through, all cores together: more than a cache holds.
const MEMORY_BYTES: usize = 512 << 20;

/// Something a processor does, in units per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yardstick {
    /// Read-modify-writes with everything in the second-level cache: a block of data somewhere
    /// becomes what a client has, and its parity what follows from old data, new data and old
    /// parity, 4 KiB each. A small write to a RAID 5 whose members are memory cannot cost less.
    Updates,
    /// Bytes of data of which parity is made, from memory to memory. Whole stripes of data that are
    /// in no cache cannot be written faster.
    Parity {
        /// Data blocks of a stripe.
        data: usize,
        /// P and Q, or P alone.
        parities: usize,
    },
}

impl Yardstick {
    /// How much all cores together do in a second, measured for so long.
    pub async fn per_second(self, core: &Core, time: Duration) -> f64 {
        let cores = core.cores();
        let others: Vec<_> = (0..cores)
            .map(CoreIx)
            .filter(|ix| *ix != core.index())
            .map(|ix| core.call(ix, move |core| async move { self.on(&core, cores, time) }))
            .collect();
        // They are told when this turn ends; from then on all work at the same time.
        core.yield_now().await;
        let mut sum = self.on(core, cores, time);
        for other in others {
            sum += other.await;
        }
        sum
    }

    /// On one core of several, which does nothing else meanwhile.
    fn on(self, core: &Core, cores: usize, time: Duration) -> f64 {
        match self {
            Yardstick::Updates => updates(core, time),
            Yardstick::Parity { data, parities } => parity(core, data, parities, MEMORY_BYTES / cores, time),
        }
    }
}

fn updates(core: &Core, time: Duration) -> f64 {
    let kernels = Kernels::best();
    let mut members = vec![[0x5a_u8; UPDATE_BYTES]; 2 * PAIRS];
    let mut clients = vec![[0xa5_u8; UPDATE_BYTES]; NEW];
    let (began, mut count) = (core.now(), 0);
    loop {
        for _ in 0..UPDATES {
            // An odd step through a power of two comes by every pair, and by no neighbours.
            let at = count * 37 % PAIRS;
            let [data, parity] = &mut members[2 * at..][..2] else { unreachable!("a pair") };
            let new = &mut clients[count % NEW];
            kernels.delta_p(parity, data, new);
            data.copy_from_slice(new);
            new[count % UPDATE_BYTES] = count as u8;
            count += 1;
        }
        if let Some(rate) = rate(core, began, time, count as f64) {
            // What was computed is used, so that it has to be.
            return std::hint::black_box(&members).len().min(1) as f64 * rate;
        }
    }
}

fn parity(core: &Core, data: usize, parities: usize, bytes: usize, time: Duration) -> f64 {
    let kernels = Kernels::best();
    // At least two stripes, however many members there are.
    let block_bytes = (bytes / (2 * (data + parities))).min(BLOCK_BYTES) / UPDATE_BYTES * UPDATE_BYTES;
    let stripe_bytes = (data + parities) * block_bytes;
    // Touched once, so that all of it is there before time counts.
    let stripe = || BufMut::copy_of(&vec![0x5a; stripe_bytes]);
    let mut stripes: Vec<_> = (0..bytes / stripe_bytes).map(|_| stripe()).collect();
    let (began, mut count) = (core.now(), 0_usize);
    loop {
        let at = count % stripes.len();
        let (blocks, parity) = stripes[at].split_at_mut(data * block_bytes);
        let (p, q) = parity.split_at_mut(block_bytes);
        let blocks = blocks.chunks_exact(block_bytes);
        if q.is_empty() {
            kernels.xor_gen(p, &blocks.collect::<Vec<_>>());
        } else {
            let sources = (0..).zip(blocks).map(|(exponent, block)| DataBlock::new(exponent, block));
            kernels.pq_gen(p, q, &sources.collect::<Vec<_>>());
        }
        count += 1;
        if let Some(rate) = rate(core, began, time, (count * data * block_bytes) as f64) {
            return std::hint::black_box(&stripes).len().min(1) as f64 * rate;
        }
    }
}

/// How much was done in a second, once the time is over.
fn rate(core: &Core, began: Instant, time: Duration, count: f64) -> Option<f64> {
    let took = core.now() - began;
    (took >= time).then(|| count / took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_does_something() {
        let config = wattle_rt::RuntimeConfig { cores: 2, ..Default::default() };
        let time = Duration::from_millis(5);
        let [updates, p, pq] = wattle_rt::run(config, async |core| {
            [
                Yardstick::Updates.per_second(&core, time).await,
                Yardstick::Parity { data: 3, parities: 1 }.per_second(&core, time).await,
                Yardstick::Parity { data: 4, parities: 2 }.per_second(&core, time).await,
            ]
        })
        .expect("there are cores");
        assert!(updates > 1000.0 && p > 1e6 && pq > 1e6, "{updates} {p} {pq}");
    }
}
