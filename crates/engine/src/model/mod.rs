//! Pure values: units, geometry, plans, regions, bad ranges, the members' health. No I/O, no state
//! that changes in place.

pub mod bad_ranges;
pub mod bit_set;
pub mod error;
pub(crate) mod fixed;
pub mod geometry;
pub mod health;
pub mod intent;
pub(crate) mod invariant;
pub mod log;
pub mod plan;
pub mod regions;
pub(crate) mod stripe_hash;
pub mod sums;
pub mod units;
pub mod whom;
