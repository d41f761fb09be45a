//! The world around wattle: crashes, faults, schedules, a model and its checkers.
//!
//! A seed is a [`Scenario`](scenario::Scenario): an array, drives with volatile caches, clients,
//! faults, and several lifetimes that end with a stop, a kill or a power cut. [`run`](run::run())
//! plays it in virtual time and says what went wrong, if anything did. Equal seeds give equal runs.
//!
//! Reading order: [`model`] (what may be read), [`scenario`], [`mod@run`] (the course of events and
//! the checks between lifetimes), [`client`], [`watch`] (the engine's promises), [`scrub`]
//! (redundancy), [`audit`] (checks and repairs), [`metadata`] (what a scenario records on members),
//! [`mutant`] (planted bugs).
//!
//! **What is checked.**
//! 1. Every sector that is read holds a permitted version; sectors without a write never change.
//! 2. What says that it is clean has right parity and equal copies.
//! 3. Within redundancy nothing fails; beyond it requests may fail, but never answer wrongly.
//! 4. A member that was recorded as failed is never assembled as current. Dirty and degraded parity
//!    is refused.
//! 5. Every request ends, nothing is left in flight.
//! 6. The engine's promises about metadata, as they are made.
//! 7. A check finds what does not fit, and nothing else; a repair makes it fit, and changes nothing
//!    that was right.
//! 8. A client that behaves is answered in time, whatever other clients do; memory is bounded, and
//!    so is the time that a stop takes.
//! 9. A recorded scrub accuses no member of silent rot that has none, finds what rotted where
//!    nothing was written, and a repair from its sums writes only what was there.

pub mod audit;
pub mod client;
pub mod desk;
pub mod figures;
pub mod lock;
pub mod media;
pub mod metadata;
pub mod model;
pub mod mutant;
pub mod operator;
pub mod peers;
pub mod rot;
pub mod run;
pub mod scenario;
pub mod scrub;
pub mod site;
pub mod stack;
pub mod watch;
pub mod wire;
pub mod worlds;

pub use mutant::Mutant;
pub use run::{RunOptions, ScenarioReport, run};
pub use scenario::Scenario;
