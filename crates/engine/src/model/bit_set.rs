//! Sets of small numbers: seats of an array, blocks of a stripe.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

/// What a set holds: a number below the set's size.
pub trait BitIndex: Copy {
    /// Its bit.
    fn to_bit(self) -> usize;

    /// What has this bit.
    fn from_bit(bit: usize) -> Self;
}

impl BitIndex for usize {
    fn to_bit(self) -> usize {
        self
    }

    fn from_bit(bit: usize) -> Self {
        bit
    }
}

/// A set of numbers below `64 * WORDS` that is copied freely.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitSet<Index, const WORDS: usize>([u64; WORDS], PhantomData<Index>);

impl<Index, const WORDS: usize> Default for BitSet<Index, WORDS> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<Index, const WORDS: usize> BitSet<Index, WORDS> {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS], PhantomData);

    fn of(word: impl FnMut(usize) -> u64) -> Self {
        Self(std::array::from_fn(word), PhantomData)
    }

    /// How many are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        // Few arrays have more than the first word, and to count bits takes a while where there is
        // no instruction for it.
        self.0.iter().filter(|word| **word != 0).map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Whether all of this set is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// What is in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(|word| self.0[word] | other.0[word])
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::of(|word| self.0[word] & other.0[word])
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self::of(|word| self.0[word] & !other.0[word])
    }
}

impl<Index: BitIndex, const WORDS: usize> BitSet<Index, WORDS> {
    /// All from `start` to before `end`; of those beyond the set's size, none.
    #[must_use]
    pub fn range(start: Index, end: Index) -> Self {
        let below = |end: Index, word: usize| match end.to_bit().saturating_sub(64 * word) {
            bits @ 0..64 => (1u64 << bits) - 1,
            _ => u64::MAX,
        };
        Self::of(|word| below(end, word) & !below(start, word))
    }

    /// Adds one.
    ///
    /// # Panics
    /// If it is beyond the set's size: no array has such seats, and no stripe such blocks.
    pub fn insert(&mut self, index: Index) {
        let bit = index.to_bit();
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    /// Removes one, if it is there.
    pub fn remove(&mut self, index: Index) {
        let bit = index.to_bit();
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Whether one is in the set.
    #[must_use]
    pub fn contains(&self, index: Index) -> bool {
        let bit = index.to_bit();
        self.0.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Index> + use<Index, WORDS> {
        let (mut left, mut word) = (self.0, 0);
        std::iter::from_fn(move || {
            while left.get(word)? == &0 {
                word += 1;
            }
            let lowest = left[word].trailing_zeros();
            left[word] &= left[word] - 1;
            Some(Index::from_bit(word * 64 + lowest as usize))
        })
    }
}

impl<Index: BitIndex, const WORDS: usize> FromIterator<Index> for BitSet<Index, WORDS> {
    fn from_iter<I: IntoIterator<Item = Index>>(indices: I) -> Self {
        let mut set = Self::EMPTY;
        indices.into_iter().for_each(|index| set.insert(index));
        set
    }
}

impl<Index: BitIndex, const WORDS: usize> fmt::Debug for BitSet<Index, WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Index::to_bit)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    type Small = BitSet<usize, 3>;

    const SIZE: usize = 3 * 64;

    fn indices() -> impl Strategy<Value = BTreeSet<usize>> {
        proptest::collection::btree_set(0..SIZE, 0..40)
    }

    fn set(of: &BTreeSet<usize>) -> Small {
        of.iter().copied().collect()
    }

    proptest! {
        /// Every answer is that of a plain set.
        #[test]
        fn it_is_a_set(one in indices(), other in indices(), at in 0..SIZE + 100, end in 0..SIZE + 100) {
            let (mut a, b) = (set(&one), set(&other));
            prop_assert!(a.iter().eq(one.iter().copied()));
            prop_assert_eq!((a.len(), a.is_empty()), (one.len(), one.is_empty()));
            prop_assert_eq!(format!("{a:?}"), format!("{one:?}"));
            prop_assert_eq!(a.union(&b), set(&(&one | &other)));
            prop_assert_eq!(a.intersection(&b), set(&(&one & &other)));
            prop_assert_eq!(a.without(&b), set(&(&one - &other)));
            prop_assert_eq!(a.is_subset(&b), one.is_subset(&other));
            prop_assert_eq!(a.contains(at), one.contains(&at));
            prop_assert_eq!(Small::range(at, end), (at..end).filter(|&index| index < SIZE).collect());
            a.remove(at);
            prop_assert_eq!(a, set(&(&one - &BTreeSet::from([at]))));
        }
    }
}
