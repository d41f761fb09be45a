//! Real clients, and clients of the tests' own, over sockets, mounts and rings.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod fuse;
mod handshakes;
mod left_behind;
mod nvme;
mod paths;
mod peers;
mod real_clients;
mod remote;
mod server;
mod smoke;
mod support;
mod tls;
mod vhost;
mod written_again;
