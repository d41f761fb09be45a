//! Units as types: sectors, bytes, stripes and members are never mixed up, and every conversion has
//! a name.
//!
//! `+` and `-` on [`Sector`] and [`Bytes`] panic on overflow in every build: an address that wraps
//! overwrites other data.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use super::bit_set::{BitIndex, BitSet};

/// Bytes in a sector. Always 512, also on drives whose blocks are larger (docs/formats.md,
/// Conventions).
pub const SECTOR_BYTES: u64 = 512;

/// Most slots of an array. md's superblock has room for more, but no array that was ever seen comes
/// near; the bound lets a set of members be twelve words that are copied freely.
pub const MEMBERS_MAX: usize = 384;

/// Most seats of an array: its slots, and a replacement for each.
pub const SEATS_MAX: usize = 2 * MEMBERS_MAX;

/// Most sectors of an array or of a member: byte addresses must fit a signed 64-bit file offset.
pub const SECTORS_MAX: Sector = Sector(i64::MAX as u64 / SECTOR_BYTES);

/// A place on an array or a member, or a length, in sectors of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(pub u64);

/// A place or a length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// The number of a stripe: its blocks are the chunks at this row of every member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StripeNo(pub u64);

/// The seat of a member in its array: its slot, from 0; behind the slots, in the same order, the
/// members that are about to replace those in the slots (hot-replace).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemberIx(pub u16);

impl Sector {
    /// The start of anything.
    pub const ZERO: Self = Self(0);
    /// Beyond everything: md writes it for "complete".
    pub const MAX: Self = Self(u64::MAX);

    /// The same in bytes; `None` if that is more than 64 bits hold.
    #[must_use]
    pub const fn to_bytes(self) -> Option<Bytes> {
        match self.0.checked_mul(SECTOR_BYTES) {
            Some(bytes) => Some(Bytes(bytes)),
            None => None,
        }
    }

    /// The sum, or `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The difference, or `None` if it is negative.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }
}

impl Bytes {
    /// The same in sectors; `None` if it is not a whole number of them.
    #[must_use]
    pub const fn to_sectors(self) -> Option<Sector> {
        if self.0.is_multiple_of(SECTOR_BYTES) { Some(Sector(self.0 / SECTOR_BYTES)) } else { None }
    }

    /// The whole sectors in it.
    #[must_use]
    pub const fn whole_sectors(self) -> Sector {
        Sector(self.0 / SECTOR_BYTES)
    }
}

impl MemberIx {
    /// The same as an index into a list by slot.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

macro_rules! arithmetic {
    ($unit:ident) => {
        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.checked_add(other.0).expect(concat!(stringify!($unit), " overflows")))
            }
        }
        impl Sub for $unit {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.checked_sub(other.0).expect(concat!(stringify!($unit), " is negative")))
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl SubAssign for $unit {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }
        impl Sum for $unit {
            fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
                parts.fold(Self(0), Add::add)
            }
        }
    };
}
arithmetic!(Sector);
arithmetic!(Bytes);

macro_rules! display {
    ($($unit:ident)*) => {$(
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display!(Sector Bytes StripeNo MemberIx);

impl BitIndex for MemberIx {
    fn to_bit(self) -> usize {
        self.index()
    }

    fn from_bit(bit: usize) -> Self {
        Self(bit as u16)
    }
}

/// A set of seats.
pub type MemberSet = BitSet<MemberIx, { SEATS_MAX / 64 }>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_lose_nothing_or_say_so() {
        assert_eq!(Sector(3).to_bytes(), Some(Bytes(1536)));
        assert_eq!(Sector::MAX.to_bytes(), None);
        assert_eq!(Bytes(1536).to_sectors(), Some(Sector(3)));
        assert_eq!(Bytes(1537).to_sectors(), None);
        assert_eq!(Bytes(1537).whole_sectors(), Sector(3));
        assert!(SECTORS_MAX.to_bytes().is_some_and(|bytes| bytes.0 <= i64::MAX as u64));
    }

    #[test]
    #[should_panic(expected = "Sector overflows")]
    fn an_address_never_wraps() {
        let _ = Sector::MAX + Sector(1);
    }

    #[test]
    fn sets_of_members_hold_every_slot() {
        let all: MemberSet = (0..SEATS_MAX as u16).map(MemberIx).collect();
        assert_eq!(all.len(), SEATS_MAX);
        assert!(all.iter().eq((0..SEATS_MAX as u16).map(MemberIx)));
        let mut some: MemberSet = [MemberIx(0), MemberIx(64), MemberIx(383)].into_iter().collect();
        assert_eq!(all.without(&some).union(&some), all);
        assert_eq!(all.intersection(&some), some);
        some.remove(MemberIx(64));
        assert!(
            some.contains(MemberIx(383)) && !some.contains(MemberIx(64)) && !some.contains(MemberIx(999))
        );
        assert_eq!(format!("{some:?}"), "{0, 383}");
    }
}
