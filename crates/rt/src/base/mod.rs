//! Values and small helpers that need nothing else of this crate: time, errors, chance, latencies.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod latency;
pub(crate) mod race;
pub(crate) mod rng;
pub(crate) mod system;
pub(crate) mod time;
