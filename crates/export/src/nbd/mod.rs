//! The NBD server: fixed newstyle handshake, simple and structured replies, any number of exports
//! and connections.
//!
//! Reading order: `protocol` (bytes), `handshake` and `request` (decisions, pure), `connection`
//! (one client), `server` (all of them), `limits` and `memory` (what a client can cost); the other
//! side: `client`, and `remote`, which makes a drive of it.
//!
//! With TLS (`channel`) a client begins it before anything else, and nothing goes on in clear.
//!
//! Not offered: metadata contexts (the engine keeps no allocation map), and the oldstyle handshake.

pub(crate) mod channel;
mod client;
mod connection;
pub mod handshake;
pub(crate) mod input;
pub mod limits;
pub(crate) mod memory;
pub mod protocol;
pub mod remote;
pub mod request;
mod server;
mod uri;

pub use client::{Blocks, Client, ClientError};
pub use limits::Limits;
pub use server::{Export, Exports, NbdServer, NbdServerHandle, TlsNote, TurnedAway};
pub use uri::{Uri, UriError, UriTls};
