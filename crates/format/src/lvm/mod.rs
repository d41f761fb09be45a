//! LVM2: physical volumes, volume groups, logical volumes. docs/formats.md §11.
//!
//! [`Label::find`] says whether a device is a PV and where its metadata areas are; [`area`] gets the newest text out of them
//! and says how the next one is committed; [`text`] is the grammar. Lengths are in bytes where
//! LVM2's headers count bytes, in sectors of 512 bytes or in extents where its texts do.

pub mod area;
mod checksum;
mod id;
pub mod label;
pub mod text;

pub use checksum::crc;
pub use id::{Id, ParseIdError};
pub use label::Label;
