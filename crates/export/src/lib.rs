//! Volumes offered to clients: the NBD server, the NVMe/TCP target, and files in a FUSE mount, over
//! the engine's block interface.
//!
//! An [`Address`] says where an export is offered; [`nbd::NbdServer`],
//! [`nvme::NvmeServer`] and [`fuse::FuseServer`] offer volumes there. Nothing here knows how an
//! array is put together or where its metadata lives: a volume is a name, a size and five requests.

mod address;
pub(crate) mod clients;
pub mod fuse;
pub mod fuzzing;
pub mod nbd;
pub mod nvme;
pub mod vhost;

pub use address::{Address, AddressError, NbdAddress, NvmeAddress};
