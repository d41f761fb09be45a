//! Scan, assemble, create and commit metadata: what an array is, and who may use it.
//!
//! A command reads from top to bottom: [`members`] opens what the operator named, [`scan`] reads every superblock and groups
//! members to arrays, [`assemble`] decides what each array is and what each member is to it, [`start`] claims the members and
//! starts the engine, [`commit`] keeps the superblocks true while it runs; [`stack`] goes on with what lies on arrays: partitions,
//! volume groups ([`lvm`]), arrays again. [`create`] makes new arrays, [`partition`] partition tables, [`erase`] takes away what tells of anything, [`undo`] brings back
//! what either overwrote. [`problem`] is how all of them say no.
//!
//! **Invariants.**
//! 1. Looking never writes: `scan` and `assemble` hold members that are open for reading only.
//! 2. A decision is a pure function of facts (`assemble`, `create::plan`, `commit::next`); what acts on it adds no decision.
//! 3. Nothing is written before everything was checked, and to nothing that was not claimed under an exclusive lock.
//! 4. What cannot be shown to be right is refused or served read-only, with a code, a reason and a way out.

pub mod admit;
mod areas;
pub mod assemble;
pub mod badblocks;
pub mod bitmap;
pub mod commit;
pub mod compat;
pub mod create;
pub mod erase;
mod events;
pub mod facts;
mod journal;
pub mod keeper;
pub mod lvm;
pub mod members;
pub mod overlay;
pub mod partition;
pub mod ppl;
pub mod problem;
pub mod reason;
pub mod rescue;
pub mod running;
pub mod scan;
pub mod signature;
pub mod size;
pub mod stack;
pub mod start;
pub mod undo;
pub mod verdict;
pub mod why;

pub use assemble::{Access, Assembly, Degraded, Needs, Policy, Slot, SyncState, Verdict, assemble};
pub use create::{CreatePlan, CreateRequest};
pub use members::{Claim, Member, MemberAddress, MemberError};
pub use problem::{Check, Code, Forced, Kind, Problem};
pub use scan::{ArrayScan, MemberScan, Scan};
pub use stack::Stack;
pub use start::Claimed;
