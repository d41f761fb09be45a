//! LVM2: physical volumes among the members, the groups they make, and what each logical volume is mapped to.
//!
//! [`physical`] reads a member's label and metadata areas, [`group`] chooses among the copies and puts groups together, [`open`]
//! turns logical volumes into volumes that run. Changes are made as values first: [`edit`] makes the next group, [`allocate`] finds its
//! extents, [`plan`] says what is written where for it, and [`commit`] writes it.

pub mod allocate;
pub mod commit;
pub mod edit;
pub mod file_system;
pub mod group;
pub(crate) mod open;
pub mod physical;
pub mod plan;
mod problems;

pub use group::{GroupScan, VolumeState};
pub use physical::Physical;
pub(crate) use problems::damaged_label;
