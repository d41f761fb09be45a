//! Linux md metadata. A scanner asks [`scan_component`] what to read and [`identify`] what it read;
//! what passes the load checks is a [`Superblock`], one view over versions 0.90, 1.0, 1.1 and 1.2.
//! The areas a superblock points to have a module each: [`bitmap`], [`badblocks`], [`ppl`],
//! [`journal`]. [`backup`] is the file beside a reshape. [`create`] and [`defaults`] make new
//! arrays as mdadm does.

pub mod backup;
pub mod badblocks;
pub mod bitmap;
mod checksum;
pub mod create;
pub mod defaults;
mod error;
mod features;
mod fields;
pub mod journal;
mod location;
pub mod ppl;
mod superblock;
mod superblock0;
mod superblock1;
mod uuid;

pub use checksum::{JournalChecksum, crc, ppl_signature};
pub use error::{SetError, SuperblockError};
pub use features::{BadBlockArea, DeviceFlags, DeviceRole, Features, PplArea, Reshape, Timestamp};
pub use fields::SuperblockFields;
pub use location::{
    MIN_SECTORS_1X, MIN_SECTORS_090, ParseVersionError, SUPERBLOCK_BYTES, SuperblockRange, Version,
    scan_component, super_offset_sectors,
};
pub use superblock::{DeviceFields, RawSuperblock, Superblock, identify, read};
pub use superblock0::{ByteOrder, Descriptor};
pub use uuid::{ParseUuidError, Uuid};

/// Most devices a superblock of this version can list: 1920 or 27.
#[must_use]
pub fn max_devices(version: Version) -> u32 {
    if version.is_1x() { superblock1::MAX_DEVICES } else { superblock0::MAX_DEVICES }
}
