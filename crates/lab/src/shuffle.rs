//! The random map of a job: every block once per pass, in an order that chance has chosen, without a bit for each block.

use wattle_rt::Rng;

/// Rounds of the network: four make it look random from outside.
const ROUNDS: u64 = 4;

/// A permutation of the numbers below `len`: a Feistel network over the smallest even number of bits that holds them; what comes
/// out beyond `len` goes through once more, until it is within.
#[derive(Clone, Debug)]
pub struct Shuffle {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS as usize],
}

impl Shuffle {
    /// One of the permutations of the numbers below `len`, as `rng` has it.
    #[must_use]
    pub fn new(len: u64, rng: &mut Rng) -> Shuffle {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Shuffle { len, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    /// Where `index` (below `len`) goes.
    #[must_use]
    pub fn place(&self, index: u64) -> u64 {
        let mut place = index;
        loop {
            place = self.turn(place);
            // At most four times as many numbers as wanted: after a few turns it is within.
            if place < self.len {
                return place;
            }
        }
    }

    fn turn(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            let mixed = Rng::new(right ^ key).next_u64();
            (left, right) = (right, left ^ (mixed & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_exactly_once() {
        for len in [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097] {
            let shuffle = Shuffle::new(len, &mut Rng::new(len));
            let mut places: Vec<u64> = (0..len).map(|index| shuffle.place(index)).collect();
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..len), "{len}");
        }
    }

    #[test]
    fn neighbours_do_not_stay_together() {
        let shuffle = Shuffle::new(10_000, &mut Rng::new(1));
        let near = (1..10_000).filter(|&index| shuffle.place(index).abs_diff(shuffle.place(index - 1)) < 100);
        // By chance about one in fifty is as near.
        assert!((100..300).contains(&near.count()));
        let other = Shuffle::new(10_000, &mut Rng::new(2));
        assert!((0..10_000).filter(|&index| shuffle.place(index) == other.place(index)).count() < 20);
    }

    #[test]
    fn the_largest_space_has_places() {
        let shuffle = Shuffle::new(u64::MAX, &mut Rng::new(3));
        assert!((0..100).all(|index| shuffle.place(index) < u64::MAX));
    }
}
