//! Arrays on modelled drives, loads, and what they come to.
//!
//! A [`ModelledSetup`] is an array and the drives it is made of; a [`Load`] is what clients ask of
//! it, in fio's terms; [`ModelledSetup::measure`] runs the production engine on both in virtual
//! time. Nothing here depends on the machine it runs on: equal set-ups and equal loads give equal
//! figures, digit by digit.
//!
//! A [`Load`] itself knows a [`LoadTarget`] only, and runs in real time as well, also on what
//! another process serves.

mod board;
mod clients;
pub mod drive;
mod guard;
mod histogram;
mod job;
mod load;
mod measured;
mod metadata_cost;
pub mod plan;
mod ramp;
mod rebuild;
mod settle;
mod setup;
mod shuffle;
mod study;
mod target;
mod volume;
mod yardstick;

pub use board::Board;
pub use clients::start_jobs;
pub use guard::{REGION, SWEEP, with_intent, with_log, with_used_intent};
pub use histogram::Histogram;
pub use load::{Counted, Load, LoadError, ParseRwError, RequestCounts, Rw};
pub use measured::{Measured, MemberUse, Probe};
pub use metadata_cost::{MetadataCost, MetadataWrites};
pub use ramp::{Ramp, Steady};
pub use rebuild::{LoadBesideRebuild, Rebuilt, rebuild, rebuild_beside, rebuild_beside_tuned, rebuild_tuned};
pub use settle::{Ramped, Settled, Sight};
pub use setup::{DATA_OFFSET, MeasureError, ModelledSetup, ModelledSite, SetupError, WriteHoleGuard, look};
pub use study::{BesideRebuild, HeldBack, QueueUse, Study, StudyResult, member_bytes_max, used_up};
pub use target::{LoadTarget, Requests, RunningJob};
pub use yardstick::Yardstick;
