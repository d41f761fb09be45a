//! Certificates and keys from PEM files, as what rustls needs, or why not.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::certificate::validity;
use crate::error::{TlsFileError, Why};

/// Where systems keep the certificates of authorities that they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A longer file holds no certificates; all authorities of a system are 300 KiB.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The files of a server that speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, followed by those that lead to an authority.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// Authorities; only clients with a certificate of one of them are heard.
    pub client_ca: Option<PathBuf>,
    /// Certificates of clients that the authorities have revoked.
    pub client_crl: Option<PathBuf>,
}

/// The authorities that a client trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TlsRoots {
    /// Those of the system.
    #[default]
    System,
    /// Those of a file.
    File(PathBuf),
}

/// The cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a server shows to clients.
///
/// # Errors
/// A file cannot be read, is not what it is to be, is not valid today, or does not fit the others.
pub fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsFileError> {
    server_config_of(files, rustls::DEFAULT_VERSIONS).map(Arc::new)
}

/// As [`server_config`], to be changed before it is shared.
pub(crate) fn server_config_of(
    files: &TlsFiles,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ServerConfig, TlsFileError> {
    let certs = own_certificates(&files.cert)?;
    let key = private_key(&files.key)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(|error| Why::Library(error).of(&files.cert))?
        .with_client_cert_verifier(client_verifier(files)?);
    builder.with_single_cert(certs, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Why::OtherKey(files.cert.clone()).of(&files.key),
        error => Why::Library(error).of(&files.cert),
    })
}

fn client_verifier(files: &TlsFiles) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
    let Some(path) = &files.client_ca else { return Ok(Arc::new(NoClientAuth)) };
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots_of(path)?), provider());
    let (revoking, verifier) = match &files.client_crl {
        None => (path, verifier),
        Some(crl) => (crl, verifier.with_crls(revoked(crl)?).enforce_revocation_expiration()),
    };
    let verifier = verifier.build().map_err(|error| Why::Verifier(error).of(revoking))?;
    Ok(verifier)
}

/// What a client trusts.
///
/// # Errors
/// The authorities cannot be read.
pub fn client_config(roots: &TlsRoots) -> Result<Arc<ClientConfig>, TlsFileError> {
    let (path, roots) = trusted(roots)?;
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Why::Library(error).of(&path))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// The authorities, and the file that they are from.
pub(crate) fn trusted(roots: &TlsRoots) -> Result<(PathBuf, RootCertStore), TlsFileError> {
    let path = match roots {
        TlsRoots::File(path) => path.as_path(),
        TlsRoots::System => {
            let there = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.is_file());
            there.ok_or_else(|| Why::NoSystemRoots.of(Path::new(SYSTEM_ROOTS[0])))?
        }
    };
    Ok((path.to_owned(), roots_of(path)?))
}

pub(crate) fn roots_of(path: &Path) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(certificates(path)?);
    match taken {
        0 => Err(Why::NoAuthority.of(path)),
        _ => Ok(roots),
    }
}

/// A certificate that this side shows, followed by others. All of them are looked at, since peers
/// follow them.
pub(crate) fn own_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let certs = certificates(path)?;
    let now = now_secs();
    for cert in &certs {
        let validity = validity(cert).ok_or_else(|| Why::Damaged.of(path))?;
        if now > validity.until_secs {
            return Err(Why::Expired(validity.until_secs).of(path));
        }
        if now < validity.from_secs {
            return Err(Why::NotYet { from_secs: validity.from_secs, now_secs: now }.of(path));
        }
    }
    Ok(certs)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text = read(path, Secrecy::Public)?;
    let certs: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let certs = certs.map_err(|error| Why::NoPem(error).of(path))?;
    if certs.is_empty() { Err(Why::NoCertificate.of(path)) } else { Ok(certs) }
}

/// The lists of revoked certificates of a file.
pub(crate) fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
    let text = read(path, Secrecy::Public)?;
    let lists: Result<Vec<_>, pem::Error> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let lists = lists.map_err(|error| Why::NoPem(error).of(path))?;
    if lists.is_empty() { Err(Why::NoRevocationList.of(path)) } else { Ok(lists) }
}

pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let text = read(path, Secrecy::Secret)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => Why::NoKey.of(path),
        error => Why::NoPemKey(error).of(path),
    })
}

/// Today, for the validity of certificates.
#[allow(clippy::disallowed_methods, reason = "it runs on no core, and certificates are of real days")]
fn now_secs() -> i64 {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

#[derive(Clone, Copy)]
enum Secrecy {
    Public,
    Secret,
}

fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, TlsFileError> {
    let unreadable = |error: std::io::Error| Why::Unreadable(error).of(path);
    // A pipe would be waited for.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Why::NoRegularFile.of(path));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
    // A group may read it: that is how servers of several users share a key.
    if matches!(secrecy, Secrecy::Secret) && mode & 0o027 != 0 {
        return Err(Why::Exposed(mode).of(path));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unreadable)?;
    Ok(text)
}
