//! What a running server is.
//!
//! [`serving`] holds everything that one process serves and answers requests. [`mod@array`] is one
//! array that runs: what it reports, and the operator's orders on it. [`groups`] decides and
//! carries out changes of volume groups. [`events`] is what happened, [`history`] what checks and
//! repairs found, [`why`] what explains an array's state. [`exports`] are the places where clients
//! find volumes, [`qos`] what holds their requests back, [`reservations`] what NVMe hosts reserved
//! for longer than a server runs. [`protocol`] is what servers and commands
//! say to each other, [`socket`] how it reaches the other side.
//!
//! **Invariants.**
//! 1. Nothing here reads arguments or the environment, prints, or knows of terminals: directories
//!    come in as values, and notes for people leave through a [`log::ServerLog`].
//! 2. JSON keys of [`protocol`] are never renamed and never removed.

pub mod array;
pub mod events;
pub mod exports;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod groups;
pub mod history;
pub mod ids;
pub mod log;
pub mod mkfs;
pub mod protocol;
pub mod qos;
pub mod remotes;
pub mod reservations;
pub mod saving;
pub mod serving;
pub mod settings;
pub mod socket;
pub mod time;
mod tls;
pub mod why;

pub use tls::tls_problem;
