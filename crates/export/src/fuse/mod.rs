//! The FUSE export: a directory with one regular file per volume, which a loop device, QEMU or any
//! program opens.
//!
//! Reading order: `protocol` (bytes), `tree` (names and attributes), `request` (decisions, pure),
//! `execute` (the volume's part), `session` (one core's queue of the device), `slots` (the same
//! over io_uring), `server` (all of them), `limits`.
//!
//! Reads and writes go past the page cache (`FOPEN_DIRECT_IO`): what is written through another
//! export is read here at once, and what a program was told is written has reached the volume. So
//! the files cannot be mapped shared into memory, as block devices can. The kernel splices and maps
//! privately through the page cache all the same, and drops its pages when a file is opened or
//! mapped: in between, what another export writes is not seen there. To tell it of each such write
//! (`FUSE_NOTIFY_INVAL_INODE`) would have the write wait for pages that a read of this server
//! holds.

mod execute;
pub mod limits;
pub mod protocol;
pub mod request;
mod server;
mod session;
mod slots;
pub mod tree;

pub use server::{Files, FuseServer, FuseServerHandle, StartError, Stopped, Transport};
