//! The NVMe/TCP target: volumes as namespaces of one subsystem, for any number of hosts, each with
//! as many queues as it likes within bounds, each queue a connection.
//!
//! Reading order: `pdu` and `command` (bytes and decisions, pure), `connect`, `auth` and `identify`
//! (the same, of what comes once), `connection` (one queue), `transfer` (reads and writes), `admin`
//! (everything else), `subsystem` (what all share), `server` (all connections), `limits`; what
//! every server has for its clients is in [`crate::clients`]; `reservation`, and what an operator
//! sees of that (`standing`).
//!
//! Several addresses of one subsystem are paths to the same namespaces, each as good as the others:
//! Linux makes one device of them.
//!
//! Not offered: TLS, Compare, other command sets, and formats with metadata.

mod admin;
pub(crate) mod auth;
pub(crate) mod command;
pub(crate) mod connect;
mod connection;
mod identify;
mod limits;
pub(crate) mod pdu;
pub(crate) mod reservation;
mod server;
mod standing;
pub(crate) mod subsystem;
mod transfer;

pub use auth::{NvmeSecretError, NvmeSecrets};
pub use reservation::ReservationStore;
pub use server::{NvmeNamespaces, NvmeServer, NvmeServerHandle, NvmeVolume};
pub use standing::{NvmeRegistrant, ReservationStanding};
pub use subsystem::{DISCOVERY_NQN, NQN_BYTES_MAX, NvmeSubsystem};
