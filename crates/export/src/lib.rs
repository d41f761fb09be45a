//! Volumes offered to clients: the NBD server, the NVMe/TCP target, files in a FUSE mount, disks of
//! virtual machines, and block devices of the kernel, over the engine's block interface.
//!
//! An [`Address`] says where an export is offered; [`nbd::NbdServer`], [`nvme::NvmeServer`],
//! [`fuse::FuseServer`], [`vhost::VhostServer`] and [`ublk::UblkServer`] offer volumes there.
//! Nothing here knows how an array is put together or where its metadata lives: a volume is a name,
//! a size and five requests.

mod address;
pub(crate) mod clients;
pub mod fuse;
pub mod fuzzing;
pub mod nbd;
pub mod nvme;
pub mod ublk;
pub mod vhost;

use std::time::Duration;

/// Until it is tried again to take a connection, or to wait for something: when that fails,
/// descriptors are short mostly, and connections that end free some.
const OUT_OF_DESCRIPTORS_PAUSE: Duration = Duration::from_millis(100);

pub use address::{Address, AddressError, NbdAddress, NvmeAddress, UblkAddress};
