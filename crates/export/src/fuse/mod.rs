//! The FUSE export: a directory with one regular file per volume, which a loop device, QEMU or any
//! program opens.
//!
//! Reading order: `protocol` (bytes), `tree` (names and attributes), `request` (decisions, pure),
//! `execute` (the volume's part), `session` (one core's queue of the device), `slots` (the same
//! over io_uring), `server` (all of them), `limits`.
//!
//! The kernel keeps no pages of these files (`FOPEN_DIRECT_IO`): what is written through another
//! export is read here at once, and what a program was told is written has reached the volume. So
//! they cannot be mapped shared into memory, as block devices can.

mod execute;
pub mod limits;
pub mod protocol;
pub mod request;
mod server;
mod session;
mod slots;
pub mod tree;

pub use server::{Files, FuseServer, FuseServerHandle, StartError, Stopped, Transport};
