//! HTTP, over TLS where it leaves the machine: the server of pages and metrics, the client of
//! webhooks.
//!
//! [`HttpServer`] listens at one [`HttpAddress`] and gives every request to an [`HttpSite`]. It
//! runs on one thread beside the cores ([`HttpServer::start`]). [`call`] sends one request to
//! another server.
//!
//! **Invariants.**
//! 1. Whatever a peer does, what it makes the process hold is bounded by [`HttpLimits`]:
//!    connections, headers, bodies, streams, and the time of each step.
//! 2. Peers that send nothing, or take nothing, make way for others once all connections are in
//!    use.
//! 3. What listens beyond this machine without TLS and a secret was asked for by name.
//! 4. A site sees only requests whose path is normal, whose host is one of this machine's and
//!    whose origin, if they change anything, is the site itself.

mod address;
mod client;
mod connections;
mod feed;
mod guard;
mod message;
mod server;
pub mod tls;
mod token;

pub use address::HttpAddress;
pub use client::{HttpAnswer, HttpCall, HttpCallError, call, call_blocking, unix_parts};
pub use feed::{Feed, FeedSender, feed};
pub use hyper::Method;
pub use message::{HttpPeer, HttpReply, HttpRequest};
pub(crate) use server::runtime as blocking_runtime;
pub use server::{HttpFuture, HttpLimits, HttpServer, HttpSettings, HttpSite, RunningHttp};
pub use token::Token;
pub(crate) use token::read as read_token;
