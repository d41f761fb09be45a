//! The server and the client of HTTP against peers that mean harm.

mod crowd;
mod harness;
mod requests;
mod tls;
