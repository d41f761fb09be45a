//! On-disk formats as values: md superblocks, bitmap, bad-block log, PPL, journal; LVM2 labels and
//! metadata; losslessly there and back. What device-mapper's targets keep under LVM2's volumes;
//! partition tables; maps of copies; headers of LUKS; devices of dm-integrity and bcache;
//! metadata of firmware RAID.
//!
//! Bytes come in as slices and go out as arrays or vectors; nothing here opens a file, reads a
//! clock or knows a path. The byte layouts are written down in docs/formats.md and cited by
//! section.
//!
//! Invariants:
//! - No input makes a decoder panic, loop for ever, or allocate more than a small multiple of the
//!   input's length.
//! - Every byte of a superblock or bitmap header that this crate does not understand survives a
//!   rewrite. So does every key of LVM2's metadata.
//! - What the bytes merely say ([`md::RawSuperblock`]) and what passed the load checks
//!   ([`md::Superblock`]) are two types.
//!
//! Reading order: [`md`] (start with `md/superblock.rs`), then [`lvm`], [`dm`], [`partition`] and
//! [`probe`].

pub mod bcache;
mod bytes;
pub mod crc32;
pub mod ddf;
pub mod dm;
#[doc(hidden)]
pub mod fuzzing;
pub mod imsm;
pub mod integrity;
pub mod luks;
pub mod lvm;
pub mod md;
pub mod overlay;
pub mod partition;
pub mod probe;
pub mod rescue_map;
pub mod scrub_sums;
mod text;
pub mod undo;
