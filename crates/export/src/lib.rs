//! Volumes offered to clients: today the NBD server, over the engine's block interface.
//!
//! An [`Address`] says where an export is offered; [`nbd::Server`] offers volumes there. Nothing here knows how an array is
//! put together or where its metadata lives: a volume is a name, a size and five requests.

mod address;
pub mod nbd;

pub use address::{Address, AddressError, NbdAddress};
