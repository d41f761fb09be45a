//! What is wrong with certificates and keys, as problems.

use wattle_control::{Code, Problem};
use wattle_tls::TlsFileError;

/// A file that cannot be used for TLS.
#[must_use]
pub fn tls_problem(error: &TlsFileError) -> Problem {
    let what = format!("{} cannot be used for TLS", error.path().display());
    Problem::new(Code::TlsUnusable, what, error.why(), error.next())
}
