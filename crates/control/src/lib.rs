//! Scan, assemble, create and commit metadata: what an array is, and how it may be used.
//!
//! A command reads from top to bottom: [`members`] opens what the operator named, [`scan`] reads
//! every superblock and groups members to arrays, [`md`] decides what each array is, claims its
//! members, starts it and keeps its superblocks true while it runs; [`stack`] goes on with what
//! lies on arrays: partitions, volume groups ([`lvm`]), arrays again. [`create`] makes new arrays,
//! [`partition`] partition tables, [`erase`] removes what identifies the content, [`undo`] restores
//! what either overwrote. [`problem`] is the form of every refusal.
//!
//! **Invariants.**
//! 1. Looking never writes: `scan` and `assemble` hold members that are open for reading only.
//! 2. A decision is a pure function of facts (`assemble`, `create::plan`, `commit::next`); what
//!    acts on it adds no decision.
//! 3. Nothing is written before everything was checked, and to nothing that was not claimed under
//!    an exclusive lock.
//! 4. A state that cannot be shown to be right is refused or served read-only, with a code, a
//!    reason and a way out.

pub mod bcache;
mod byte_range;
mod claim;
pub mod crypt;
pub mod erase;
pub mod events;
pub mod integrity;
mod layer;
pub mod lvm;
pub mod md;
pub mod members;
mod nodes;
pub mod older_linux;
pub mod overlay;
pub mod partition;
pub mod problem;
pub mod rescue;
pub mod restore;
pub mod scan;
pub mod signature;
pub mod size;
pub mod stack;
pub mod undo;
pub mod units;
pub mod unread;
pub mod vendor;
pub mod why;

pub use md::assemble::{Access, Assembly, Degraded, Needs, Policy, Slot, SyncState, Verdict, assemble};
pub use md::create::{CreatePlan, CreateRequest};
pub use md::start::Claimed;
pub use md::{
    admit, assemble, badblocks, bitmap, commit, compat, container, create, facts, lineage, ppl, reason,
    running, spares, sums, verdict,
};
pub use members::{Claim, Member, MemberAddress, MemberError};
pub use nodes::{ArrayId, GroupId, MemberId, NodeId, Nodes};
pub use problem::{Check, Code, FailureKind, Forced, Problem, shell_word};
pub use scan::{ArrayScan, MemberScan, Scan};
pub use stack::Stack;

/// From a decision to a running array.
pub mod start {
    pub use crate::md::start::*;
    pub use crate::scan::claim;
}
