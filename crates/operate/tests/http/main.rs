//! The server and the client of HTTP against peers that mean harm.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "these are tests: they fail loudly and may wait"
)]

mod crowd;
mod harness;
mod requests;
mod tls;
