//! Values and small helpers that need nothing else of this crate: atomics, time, errors, chance,
//! latencies, paths as text.

pub mod atomics;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod latency;
pub(crate) mod local_time;
pub(crate) mod on_core;
pub(crate) mod path_text;
pub(crate) mod race;
pub(crate) mod rng;
pub(crate) mod system;
pub(crate) mod time;
