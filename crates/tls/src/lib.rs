//! Certificates and keys: what an operator's files hold, as what rustls needs, or why not; and why
//! a peer is not trusted.
//!
//! [`files`] makes configurations of single files, as HTTP names them. [`directory`] does the same
//! with the directory that NBD programs share. [`TlsFault`] says what is wrong with a peer.
//!
//! **Invariants.**
//! 1. What cannot be used is an error that names the file; nothing is left out silently.
//! 2. A key that others can read is not used.

mod certificate;
pub mod directory;
mod error;
mod fault;
mod files;

pub use directory::{ClientTls, ServerTls, TlsClients};
pub use error::TlsFileError;
pub use fault::TlsFault;
pub use files::{TlsFiles, TlsRoots, client_config, server_config};
