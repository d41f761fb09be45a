//! LVM2: physical volumes among the members, the groups they make, and what each logical volume is mapped to.
//!
//! [`physical`] reads a member's label and metadata areas, [`group`] chooses among the copies and puts groups together, [`open`]
//! turns logical volumes into volumes that run. Nothing here writes.

pub mod group;
pub(crate) mod open;
pub mod physical;
mod problems;

pub use group::{GroupScan, VolumeState};
pub use physical::Physical;
pub(crate) use problems::damaged_label;
