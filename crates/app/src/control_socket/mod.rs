//! How commands talk to a running `wattle serve`: one Unix socket per server in the runtime directory, one JSON object per line
//! each way.
//!
//! There is no index that could go stale: a command asks every socket there. The directory belongs to the user alone (0700) and
//! so does each socket (0600), so whoever can connect may also stop an array.

pub mod client;
mod directory;
pub mod protocol;
pub mod report;
pub mod server;
mod target;
pub mod why;

pub use directory::{RuntimeDir, check_socket_path};
pub use target::Target;
