//! The runtime: one executor per core, ops that own their buffers, and backends for io_uring, plain
//! system calls and simulated drives.
//!
//! Nothing above this crate reads a clock, starts a thread or touches a descriptor, so everything
//! above it runs unchanged on a machine ([`run`]) and in virtual time ([`SimWorld`]).
//!
//! Reading order: [`Core`] (what tasks see), `executor` (tasks, timers, operations), [`Backend`]
//! (the seam), then the three behind it: `backend::uring`, `backend::syscall`, `sim`.
//!
//! This crate and the parity kernels are the only ones with `unsafe` code; here it is system calls,
//! the ring, and the memory of buffers.
#![allow(unsafe_code)]

mod backend;
mod base;
mod commands;
mod device;
mod executor;
pub mod fuse;
mod helper;
pub mod mailbox;
mod memory;
pub mod model;
mod op;
mod placement;
pub mod planted;
mod runtime;
pub mod sim;
mod stream;
pub mod ublk;

pub use backend::{Backend, BackendChoice, BackendError, RingMode, Wait};
pub use base::atomics;
pub use base::error::{IoError, IoErrorKind};
pub use base::latency::Latencies;
pub use base::local_time::LocalTime;
pub use base::path_text::{escaped_byte, path_of_text, text_of_path};
pub use base::race::{Either, race};
pub use base::rng::Rng;
pub use base::system::HeldSignals;
pub use base::time::{Instant, WallTime};
pub use device::lock::Lock;
pub use device::{Device, Direct, LoopFile, OpenError, OpenOptions, OwnFile};
pub use executor::core::{Core, CoreIx, JoinHandle, OpFuture, Sleep};
pub use executor::handle::CoreHandle;
pub use executor::process::{Child, Signal, effective_user, set_io_flusher, stand_back};
pub use executor::serve::{Link, LinkPath, LinkState, PathState, ReopenError, Reply, Serve};
pub use executor::shared::Message;
pub use executor::sync::{self, Latch, Notify, Permit, Semaphore, oneshot};
pub use executor::until_given_up::UntilGivenUp;
pub use helper::helper_thread;
pub use mailbox::{Receiver, Sender, mailbox};
#[cfg(feature = "planted")]
pub use memory::buf::buffer_bytes_live;
pub use memory::buf::{BUF_ALIGN_BYTES, Buf, BufMut};
pub use memory::hint::about_to_change;
pub use memory::shared::{MappingRoom, MappingShare, SharedMemory};
pub use model::DriveModel;
pub use op::traffic::{Traffic, TrafficTotals, Unanswered};
pub use op::{Bufs, Completion, Durability, Op, OpKey, Transfer, Unmap};
pub use placement::{MemoryNodes, NoProcessors, Placement, Processors};
pub use runtime::beside::beside;
pub use runtime::{RuntimeConfig, run, run_at};
pub use sim::{
    DriveConfig, DriveControl, DriveSnapshot, RunOutcome, SimEndpoint, SimWorld, WorldConfig, WriteRecord,
};
pub use stream::doorbell::Doorbell;
pub use stream::handed::KeptOpen;
pub use stream::peer::{PeerProcess, PeerRole};
pub use stream::{ListenError, Listener, Stream, peer_uid};
