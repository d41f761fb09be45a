//! The durable state of an array: one home decides every change, every core keeps a copy.
//!
//! `home` is where changes are decided and made durable, `members` how members join and leave,
//! `gate` is what changes wait at, `intent` the write-intent bitmap, `ppl` the partial parity log
//! and `sums` what recorded scrubs remember. `shard` is one core's part; `follow` is how the layers
//! above hear of changes.

mod counters;
mod follow;
mod gate;
mod home;
pub mod intent;
mod members;
pub mod metadata;
pub mod ppl;
mod settle;
mod shard;
mod spec;
pub mod sums;

pub use counters::{CounterTotals, RequestLatencies};
pub(crate) use follow::{Follow, JobSignals};
pub(crate) use gate::GatePermit;
pub(crate) use home::Home;
pub(crate) use shard::{StateShard, answer};
pub use spec::{BAD_ENTRY_SECTORS, MemberSpec};
