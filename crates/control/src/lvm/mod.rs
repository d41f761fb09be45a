//! LVM2: physical volumes among the members, the groups they make, and what each logical volume is
//! mapped to.
//!
//! [`physical`] reads a member's label and metadata areas, [`group`] chooses among the copies and
//! puts groups together, [`open`] turns logical volumes into volumes that run, with a file for each
//! type that keeps books of its own. Changes are made as values first: [`edit`] and [`flags`] make
//! the next group, [`allocate`] finds its extents, [`relocate`] moves them, [`plan`] says what is
//! written where for it, and [`commit`] writes it.

pub mod allocate;
mod cache;
pub mod commit;
pub mod edit;
pub mod file_system;
pub mod flags;
pub mod group;
mod integrity;
pub mod lock;
mod metadata;
mod mirror;
pub mod older;
pub(crate) mod open;
mod overlay;
pub mod physical;
pub mod plan;
pub(crate) mod problems;
mod raid;
pub mod relocate;
mod saved;
mod snapshot;
pub mod then;
mod thin;
mod writecache;

pub use group::{GroupScan, VolumeState};
pub use physical::PhysicalVolume;
pub(crate) use problems::damaged_label;
