//! Division by the chunk, which is what every mapping starts with.

use crate::model::units::Sector;

/// A chunk size. Powers of two, which is nearly every array, divide by shifting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    sectors: u64,
    /// log2 of `sectors` if it is a power of two.
    shift: Option<u32>,
}

impl Chunk {
    /// `sectors` is not 0.
    pub fn new(sectors: Sector) -> Self {
        assert!(sectors.0 > 0, "a chunk has a size");
        Self { sectors: sectors.0, shift: sectors.0.is_power_of_two().then(|| sectors.0.trailing_zeros()) }
    }

    pub fn sectors(self) -> u64 {
        self.sectors
    }

    /// The number of the chunk that holds `sector`, and the sector's offset in it.
    #[inline]
    pub fn split(self, sector: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (sector >> shift, sector & (self.sectors - 1)),
            None => (sector / self.sectors, sector % self.sectors),
        }
    }
}
