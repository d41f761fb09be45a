//! The NBD server: fixed newstyle handshake, simple and structured replies, extended headers, any
//! number of exports and connections.
//!
//! Reading order: `protocol` (bytes), `handshake` and `request` (decisions, pure), `connection`
//! (one client), `server` (all of them), and in [`crate::clients`] what every such server has; the
//! other side: `client`, and `remote`, which makes a drive of it.
//!
//! With TLS a client begins it before anything else, and nothing goes on in clear.
//!
//! Not offered: metadata contexts (the engine keeps no allocation map), and the oldstyle handshake.

mod client;
mod connection;
pub mod handshake;
pub mod protocol;
pub mod remote;
pub mod request;
mod server;
mod uri;

pub use crate::clients::limits::{self, Limits};
pub use client::{Blocks, Client, ClientError};
pub use server::{Export, Exports, NbdServer, NbdServerHandle, TlsNote, TurnedAway};
pub use uri::{Uri, UriError, UriTls};
