//! Hashes of stripe numbers, for tables that every small write asks: as cheap as they come, and
//! equal in every run.

use std::hash::{BuildHasherDefault, Hasher};

use crate::model::units::StripeNo;

/// Numbers that follow one another, or lie equally far apart, are spread evenly over the upper bits
/// (Fibonacci hashing: Knuth, The Art of Computer Programming 3, section 6.4).
pub(crate) fn spread(stripe: StripeNo) -> u64 {
    stripe.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Classes of stripes that each core owns: so many that writes on a few hundred stripes hardly ever
/// meet in one. Models (`--cfg loom`) and Miri have few, each costs them time.
pub(crate) const CLASSES: usize = if cfg!(loom) {
    2
} else if cfg!(miri) {
    64
} else {
    32768
};

/// The class of a stripe among those of its owner.
pub(crate) fn class(stripe: StripeNo) -> usize {
    (spread(stripe) >> (64 - CLASSES.ilog2())) as usize
}

/// Something for each of a few stripes.
#[expect(clippy::disallowed_types, reason = "its hasher knows no chance")]
pub(crate) type ByStripe<T> = std::collections::HashMap<StripeNo, T, BuildHasherDefault<StripeHasher>>;

#[derive(Default)]
pub(crate) struct StripeHasher(u64);

impl Hasher for StripeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, stripe: u64) {
        // Maps look at the lower bits first.
        self.0 = spread(StripeNo(stripe)).rotate_left(20);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a stripe is a number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stripes that lie a power of two apart do not gather in a few places.
    #[test]
    fn strides_are_spread() {
        let lower = |stripe| {
            let mut hasher = StripeHasher::default();
            hasher.write_u64(stripe);
            hasher.finish().reverse_bits()
        };
        let upper = |stripe| spread(StripeNo(stripe));
        let most = |bits: u32, shift: u32, place: &dyn Fn(u64) -> u64| {
            let mut places = vec![0; 1 << bits];
            (0..1u64 << bits)
                .for_each(|number| places[(place(number << shift) >> (64 - bits)) as usize] += 1);
            places.into_iter().max().unwrap_or(0)
        };
        for (shift, bits) in (0..40).flat_map(|shift| [(shift, 6), (shift, 15)]) {
            let most = [most(bits, shift, &upper), most(bits, shift, &lower)];
            assert!(most.iter().all(|most| *most <= 6), "{shift} {bits}: {most:?}");
        }
    }
}
