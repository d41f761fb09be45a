//! The data plane: geometry, plans, stripes, mirrors and degraded I/O.
//!
//! An [`Array`](array::ArrayHandle) is started from an [`ArraySpec`](array::ArraySpec): a geometry, the members' devices and
//! their state, and a [`Metadata`](metadata::Metadata) that makes changes of state durable. It runs on every core of the
//! runtime: each core has a shard, each stripe has one owner core, which may lend it for a small write, and one *home* core
//! decides every change of state. Clients see [`Volume`](volume::Volume)s.
//!
//! Reading order: `plan` (what to do with a stripe, pure), `stripe` (doing it), `mirror` and `striped` (the levels without
//! parity), `volume` (where requests enter), `ahead` (what is read before it is asked for), `array` (shards, state, failures).
//!
//! **Invariants.** Each is asserted where it is kept and checked from outside by the simulator.
//! 1. No write is sent to a member before every member's superblock durably says that the array is dirty. (Giving a sector that
//!    could not be read the content that redundancy says it had is no such write: parity and copies agree before and after.)
//! 2. No write that skipped a member is acknowledged before the survivors' superblocks durably say that this member failed, or that it is
//!    being filled and has not got as far.
//! 3. The array is recorded clean only after everything acknowledged is durable and nothing is in flight.
//! 4. One stripe (or mirrored range) is changed by one task at a time; reads that reconstruct take part in that order.
//! 5. Past redundancy, or where parity cannot be trusted, the answer is an error, never a guess.
//! 6. A failed flush fails its member, before any later flush is acknowledged; where redundancy cannot absorb that, the array
//!    stays broken.

mod ahead;
pub mod array;
pub mod bad;
mod cache;
pub mod error;
pub mod geometry;
pub mod intent;
mod loan;
pub mod log;
pub mod metadata;
mod mirror;
pub mod plan;
mod range_lock;
pub mod regions;
mod spread;
mod streams;
mod stripe;
mod striped;
pub mod sync;
pub mod units;
pub mod volume;
mod zero;

pub use ahead::AheadTuning;
pub use array::{ArrayHandle, ArraySpec, MemberKey, MemberSpec, MemberState};
pub use bad::BadRanges;
pub use cache::{CacheFaults, CacheGrowth, CacheStatus, CacheTuning};
pub use error::{FailError, JoinError, LeaveError, VolumeError};
pub use metadata::{Change, Metadata, Record, SeatRecord};
pub use regions::Regions;
pub use sync::{Job, JobError, RepairSource, SyncReport, SyncStatus};
pub use volume::{MapSpec, MappedHandle, Volume, VolumeRef};
