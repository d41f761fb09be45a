//! LVM2: physical volumes, volume groups, logical volumes. docs/formats.md §11.
//!
//! [`Label::find`] says whether a device is a PV and where its metadata areas are; [`area`] gets
//! the texts out of them and says how the next one is committed, [`mod@choose`] which text to
//! believe; [`text`] is the grammar, [`Vg`] what it says. Lengths are in bytes where LVM2's headers
//! count bytes, in sectors of 512 bytes or in extents where its texts do.

pub mod area;
mod check;
mod checksum;
mod choose;
mod error;
mod fields;
mod id;
pub mod label;
mod names;
mod raid;
pub mod segment;
pub mod text;
mod vg;

pub use checksum::crc;
pub use choose::{AreaState, ChooseError, Standing, choose};
pub use error::{GroupPart, GroupProblem, VgError};
pub use id::{Id, ParseIdError};
pub use label::Label;
pub use names::{NameError, check_lv_name, check_names_together, check_vg_name};
pub use raid::{Image, RAID_TYPES, Raid, RaidType};
pub use segment::{LvSegment, SegmentKind};
pub use vg::{Lv, Pv, Stamp, Vg};
