//! Linux md arrays: what one is, how it is made, started and kept true while it runs.
//!
//! In the order in which an array passes them: [`facts`] takes from superblocks what decisions
//! need, [`assemble`] decides what the array is ([`verdict`], [`reason`] say it of each member,
//! [`lineage`] whether it was with the others),
//! [`start`] claims the members and starts the engine, [`commit`], [`bitmap`], [`badblocks`] and
//! [`ppl`] keep on the members what the engine must know after a crash, [`running`] is what an
//! operator does to it, [`admit`] decides on which terms a device comes in, [`spares`] puts spares
//! to use, [`sums`] keeps what recorded scrubs remember. [`create`] makes a new array, [`compat`]
//! says what else opens it. [`container`] takes from firmware's metadata what a superblock would
//! say.

pub mod admit;
pub(crate) mod areas;
pub mod assemble;
pub mod badblocks;
pub mod bitmap;
mod bookkeeping;
pub mod commit;
pub mod compat;
pub mod container;
pub mod create;
pub mod facts;
pub(crate) mod journal;
pub mod lineage;
pub mod ppl;
pub mod reason;
pub(crate) mod reshape;
pub mod running;
pub mod spares;
pub mod start;
pub mod sums;
pub(crate) mod superblocks;
pub mod verdict;
mod waits;
