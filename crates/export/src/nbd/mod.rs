//! The NBD server: fixed newstyle handshake, simple and structured replies, any number of exports and connections.
//!
//! Reading order: `protocol` (bytes), `handshake` and `request` (decisions, pure), `connection` (one client), `server` (all of
//! them), `limits` and `memory` (what a client can cost), `client` (the other side).
//!
//! Not offered: TLS (use a Unix socket, or a tunnel), metadata contexts (the engine keeps no allocation map), and the
//! oldstyle handshake.

mod client;
mod connection;
pub mod handshake;
mod input;
pub mod limits;
mod memory;
pub mod protocol;
pub mod request;
mod server;

pub use client::{Client, ClientError};
pub use limits::Limits;
pub use server::{Export, Server, ServerHandle};
