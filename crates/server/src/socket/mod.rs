//! How commands talk to a running `wattle serve`: one Unix socket per server in the runtime
//! directory, one JSON object per line each way.
//!
//! There is no index that could go stale: a command asks every socket there. The directory belongs
//! to the user alone (0700) and so does each socket (0600). Both sides check that (`trust`): what a
//! command asks is this user's or root's, and so is what a server obeys.

pub mod client;
mod directory;
pub mod listen;
mod trust;

pub use directory::{RuntimeDir, check_socket_path};
