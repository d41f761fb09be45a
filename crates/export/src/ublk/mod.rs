//! Block devices of this machine's kernel: `/dev/ublkbN`, served through ublk.
//!
//! Reading order: `protocol` (bytes of commands, requests decided, pure), `driver` (what is asked
//! of it), `device` (one device: made, or taken over from a server that is gone), `queue` (one
//! core's requests), `claim` (whether a device is in use), `server` (all devices), `links` (names
//! that stay), `limits`.
//!
//! The kernel copies the data of a write out of its caller's memory before the request comes here,
//! and that of a read back after it is answered. So parity and copies are made of bytes that no
//! program can change meanwhile.

mod claim;
mod device;
mod driver;
mod limits;
mod links;
mod protocol;
mod queue;
mod server;

pub use driver::{UblkError, remove_left};
pub use links::UblkLinks;
pub use server::{UblkNote, UblkServer, UblkVolume};
