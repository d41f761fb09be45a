//! Certificates and keys of HTTP, with what is wrong with them as problems.

use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};
use wattle_control::Problem;
use wattle_server::tls_problem;
pub use wattle_tls::{TlsFiles, TlsRoots};

/// What a server shows to clients.
///
/// # Errors
/// A file cannot be read, is not what it is to be, is not valid today, or does not fit the others.
pub fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, Problem> {
    wattle_tls::server_config(files).map_err(|error| tls_problem(&error))
}

/// What a client trusts.
///
/// # Errors
/// The authorities cannot be read.
pub fn client_config(roots: &TlsRoots) -> Result<Arc<ClientConfig>, Problem> {
    wattle_tls::client_config(roots).map_err(|error| tls_problem(&error))
}
