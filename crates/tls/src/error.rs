//! Why a file cannot be used for TLS, and what to do about it.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;

/// A file that cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used for TLS: {why}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Why {
    #[error("{0}")]
    Unreadable(std::io::Error),
    #[error("it is no regular file")]
    NoRegularFile,
    #[error("others than its owner and group can use it (mode {0:04o})")]
    Exposed(u32),
    #[error("it is no PEM file: {0}")]
    NoPem(pem::Error),
    #[error("it is no PEM file: {0}")]
    NoPemKey(pem::Error),
    #[error("it holds no certificate")]
    NoCertificate,
    #[error("it holds no certificate of an authority")]
    NoAuthority,
    #[error("it holds no private key, or one under a passphrase")]
    NoKey,
    #[error("it holds no list of revoked certificates")]
    NoRevocationList,
    #[error("it is damaged")]
    Damaged,
    #[error("it expired at {}", time(*.0))]
    Expired(i64),
    #[error("it is valid from {} on, and the clock says {}", time(*.from_secs), time(*.now_secs))]
    NotYet { from_secs: i64, now_secs: i64 },
    #[error("it is not the key of {}", .0.display())]
    OtherKey(PathBuf),
    #[error("this system has no list of authorities to trust")]
    NoSystemRoots,
    #[error("{0}")]
    Verifier(VerifierBuilderError),
    #[error("{0}")]
    Library(rustls::Error),
    #[error("it is not there, and certificates of clients are checked with it")]
    NoAuthorityOfClients,
    #[error("it revokes certificates of clients, and clients need none here (--tls-any-client)")]
    NothingToRevoke,
    #[error("{} is there, and one is of no use without the other", .0.display())]
    HalfAPair(PathBuf),
}

impl Why {
    pub(crate) fn of(self, path: &Path) -> TlsFileError {
        TlsFileError { path: path.to_owned(), why: self }
    }
}

impl TlsFileError {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it.
    #[must_use]
    pub fn why(&self) -> String {
        self.why.to_string()
    }

    /// What an operator does about it.
    #[must_use]
    pub fn next(&self) -> String {
        let next = match &self.why {
            Why::Unreadable(_) => "name a file that this user can read",
            Why::NoRegularFile => "name a regular file",
            Why::Exposed(_) => return format!("chmod 600 {}", self.path.display()),
            Why::NoPem(_) | Why::NoCertificate | Why::Damaged => {
                "give a certificate as a PEM file (-----BEGIN CERTIFICATE-----)"
            }
            Why::NoAuthority => "give one as a PEM file",
            Why::NoKey | Why::NoPemKey(_) => {
                "give an unencrypted key as a PEM file (-----BEGIN PRIVATE KEY-----)"
            }
            Why::NoRevocationList => {
                "give one as a PEM file (-----BEGIN X509 CRL-----), or remove the file if none is revoked"
            }
            Why::Expired(_) => "renew it",
            Why::NotYet { .. } => "set the clock, or wait",
            Why::OtherKey(_) => "give the key that the certificate was made with",
            Why::NoSystemRoots => {
                "install them (package ca-certificates), or name a file with the authority's certificate"
            }
            Why::Verifier(VerifierBuilderError::InvalidCrl(_)) => {
                "give the list as the authority signed it (openssl ca -gencrl), with a number"
            }
            Why::Verifier(_) => "give the certificates of the authority that signs those of clients",
            Why::Library(_) => "give a certificate and its key as PEM files",
            Why::NoAuthorityOfClients => {
                "put the certificate of the authority there, or hear every client: --tls-any-client"
            }
            Why::NothingToRevoke => "remove it, or require certificates of clients",
            Why::HalfAPair(_) => "put the certificate and its key there, or neither",
        };
        next.to_owned()
    }
}

/// A time for people, `2026-11-21T07:40:01Z`.
fn time(secs: i64) -> String {
    /// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write.
    const LAST_SECS: u64 = 253_402_300_799;
    match u64::try_from(secs) {
        Ok(secs) if secs <= LAST_SECS => {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(secs)).to_string()
        }
        Ok(_) => "a time past 9999".to_owned(),
        Err(_) => "a time before 1970".to_owned(),
    }
}
