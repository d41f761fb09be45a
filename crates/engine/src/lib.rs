//! The data plane: geometry, plans, stripes, mirrors and degraded I/O.
//!
//! An [array](ArrayHandle) is started from an [`ArraySpec`]: a geometry, the members' devices and
//! their state, and a [`Metadata`] that makes changes of state durable. It runs on every core of
//! the runtime: each core has a part of each layer, each stripe has one owner core, which may lease
//! it for a small write, and one *home* core decides every change of state. Clients see
//! [`Volume`]s.
//!
//! **Layers.** Imports run one way: `model` (pure values) ← `member` (one member's I/O on one core)
//! ← `state` (the array's durable state) ← `hints` (what a request is part of) ← `lease` (which
//! task may change what) ← `level` (how each level reads and writes) ← `job` (resync, rebuild,
//! check, repair) ← `volume` (where requests enter, and the handle of an array).
//!
//! Reading order: `model/plan` (what to do with a stripe, pure), `volume/array` (where requests
//! enter), `lease/queue` (what waits for a stripe), `level/parity` (doing it), `level/mirror` and
//! `level/plain` (the levels without parity), `state/home` (changes of state, failures),
//! `hints/readahead` (what is read before it is asked for), `job`.
//!
//! **Invariants.** Each is asserted where it is kept (`model/invariant`), in builds with debug
//! assertions and in the simulator, which also checks them from outside.
//! 1. No write is sent to a member before every member's superblock durably says that the array is
//!    dirty. (Giving a sector that could not be read the content that redundancy says it had is no
//!    such write: parity and copies agree before and after. Nor is a repair, see [`job`]: what it
//!    has not come to disagrees before and after, and members that are away are counted out.)
//! 2. No write that skipped a member is acknowledged before the survivors' superblocks durably say
//!    that this member failed, or that it is being filled and has not got as far.
//! 3. The array is recorded clean only after everything acknowledged is durable and nothing is in
//!    flight.
//! 4. One stripe (or mirrored range) is changed by one task at a time; reads that reconstruct take
//!    part in that order.
//! 5. Past redundancy, or where parity cannot be trusted, the answer is an error, never a guess.
//! 6. A failed flush fails its member, before any later flush is acknowledged; where redundancy
//!    cannot absorb that, the array stays broken.
//! 7. A bit is durable on every member in use before anything in its region differs, and goes only
//!    after everything in it was flushed.
//! 8. A row's log entry is durable before its data and parity, and is replaced only after these
//!    were flushed.
//! 9. A position of a resync or rebuild is recorded only after what lies below it is durable.
//! 10. Data that was read ahead of a client answers it only if nothing has begun to change it since
//!     before it was read.

mod cores;
mod hints;
pub mod job;
mod lease;
mod level;
mod member;
pub mod model;
pub mod state;
pub mod volume;

pub use hints::cache::{CacheGrowth, CachePause, CacheStatus, CacheTuning};
pub use hints::readahead::ReadaheadTuning;
pub use job::{FinishedJob, Job, JobError, RecordJob, RepairSource, SyncStatus};
pub use model::bad_ranges::BadRanges;
pub use model::error::{FailError, JoinError, LeaveError, VolumeError};
pub use model::health::{MemberKey, MemberState};
pub use model::regions::Regions;
pub use model::whom::Whom;
pub use model::{error, geometry, plan, regions, units};
pub use state::metadata::{ArrayRecord, FailCause, Metadata, RecordCause, SeatRecord};
pub use state::{BAD_ENTRY_SECTORS, CounterTotals, MemberSpec, RequestLatencies};
pub use state::{intent, metadata};
pub use volume::{ArrayHandle, ArraySpec, ArrayStatus, ArrayTuning, MemberStatus, VolumeExtent};
pub use volume::{Leg, MapSegment, MapSpec, MappedHandle, SegmentTarget, Volume, VolumeRef, VolumeTurn};
pub use wattle_rt::planted;
