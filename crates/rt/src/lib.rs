//! The runtime: one executor per core, ops that own their buffers, and backends for io_uring, plain system calls and
//! simulated drives.
//!
//! Nothing above this crate reads a clock, starts a thread or touches a descriptor, so everything above it runs
//! unchanged on a machine ([`run`]) and in virtual time ([`World`]).
//!
//! Reading order: [`Core`] (what tasks see), `executor` (tasks, timers, operations), [`Backend`] (the seam), then the
//! three behind it: `uring`, `syscall`, `sim`.
//!
//! This crate and the parity kernels are the only ones with `unsafe` code; here it is system calls, the ring, and the
//! memory of buffers.
#![allow(unsafe_code)]

mod aim;
mod arena;
mod backend;
mod beside;
mod buf;
mod clock;
mod core;
mod device;
mod error;
mod executor;
pub mod fuse;
mod hint;
mod iov;
mod latency;
mod lock;
pub mod mailbox;
mod mem;
pub mod model;
mod modelled;
mod op;
mod pages;
mod process;
mod race;
mod rng;
mod runtime;
mod serve;
mod shared;
pub mod sim;
mod stream;
pub mod sync;
mod syscall;
mod time;
mod traffic;
mod uring;

pub use crate::core::{Core, CoreIx, JoinHandle, OpFuture, Sleep};
pub use backend::{Backend, BackendChoice, BackendError, Wait};
pub use beside::{CoreHandle, beside};
pub use buf::{BUF_ALIGN_BYTES, Buf, BufMut};
pub use device::{Device, Direct, OpenError, OpenOptions};
pub use error::{IoError, IoErrorKind};
pub use hint::about_to_change;
pub use latency::Latencies;
pub use lock::Lock;
pub use mailbox::{Receiver, Sender, mailbox};
pub use model::Model;
pub use op::{Bufs, Done, Durability, Key, Op, Transfer, Unmap};
pub use process::{Child, Signal, set_io_flusher};
pub use race::{Either, race};
pub use rng::Rng;
pub use runtime::{RuntimeConfig, run};
pub use serve::{Reply, Serve};
pub use shared::Message;
pub use sim::{DriveConfig, DriveControl, DriveSnapshot, Outcome, World, WorldConfig, WriteRecord};
pub use stream::{ListenError, Listener, Stream};
pub use sync::{Event, Notify, Permit, Semaphore, oneshot};
pub use time::{Instant, WallTime};
pub use traffic::{Traffic, TrafficTotals};
