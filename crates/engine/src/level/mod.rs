//! How each level reads and writes: parity, copies, neither; and zeros over whole stripes of any.

pub(crate) mod mirror;
pub(crate) mod parity;
pub(crate) mod plain;
mod shard;
pub(crate) mod zero;

pub(crate) use shard::ArrayShard;
