//! The random map of a job: every block once per pass, in an order that chance has chosen, without
//! a bit for each block.

use wattle_rt::Rng;

/// So many places are made at a time.
pub const AT_A_TIME: usize = 16;

/// Rounds of the network: four make it look random from outside.
const ROUNDS: u64 = 4;

/// A permutation of the numbers below `len`: a Feistel network over the smallest even number of
/// bits that holds them; what comes out beyond `len` goes through once more, until it is within.
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

    /// Fills `places` with where `first` (below `len`) and the numbers behind it go. A turn is a
    /// long chain of steps: of several numbers at a time the processor takes many side by side.
    pub fn places(&self, first: u64, places: &mut [u64; AT_A_TIME]) {
        let mut beyond: [usize; AT_A_TIME] = std::array::from_fn(|at| at);
        let mut count = AT_A_TIME;
        for (place, index) in places.iter_mut().zip(first..) {
            // What lies behind the last number is not asked for, but has to end.
            *place = index % self.len;
        }
        // At most four times as many numbers as wanted: after a few turns all are within.
        while count > 0 {
            let mut left = 0;
            for turned in 0..count {
                let at = beyond[turned];
                places[at] = self.turn(places[at]);
                beyond[left] = at;
                left += usize::from(places[at] >= self.len);
            }
            count = left;
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

    fn all(shuffle: &Shuffle, indexes: std::ops::Range<u64>) -> Vec<u64> {
        let mut places = Vec::new();
        for first in indexes.clone().step_by(AT_A_TIME) {
            let mut some = [0; AT_A_TIME];
            shuffle.places(first, &mut some);
            places.extend(some);
        }
        places.truncate((indexes.end - indexes.start) as usize);
        places
    }

    #[test]
    fn the_order_is_what_it_was() {
        // Figures of virtual time go with it.
        let shuffle = Shuffle::new(1000, &mut Rng::new(7));
        assert_eq!(all(&shuffle, 0..8), [112, 157, 658, 407, 680, 828, 746, 899]);
    }

    #[test]
    fn every_number_comes_exactly_once() {
        for len in [1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097] {
            let shuffle = Shuffle::new(len, &mut Rng::new(len));
            let mut places = all(&shuffle, 0..len);
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..len), "{len}");
        }
    }

    #[test]
    fn neighbours_do_not_stay_together() {
        let shuffle = Shuffle::new(10_000, &mut Rng::new(1));
        let places = all(&shuffle, 0..10_000);
        let near = places.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100);
        // By chance about one in fifty is as near.
        assert!((100..300).contains(&near.count()));
        let other = all(&Shuffle::new(10_000, &mut Rng::new(2)), 0..10_000);
        assert!(places.iter().zip(&other).filter(|(one, other)| one == other).count() < 20);
    }

    #[test]
    fn the_largest_space_has_places() {
        let shuffle = Shuffle::new(u64::MAX, &mut Rng::new(3));
        assert!(all(&shuffle, 0..100).iter().all(|&place| place < u64::MAX));
    }
}
