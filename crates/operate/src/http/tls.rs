//! Certificates and keys: what the operator's files hold, as what rustls needs, or why not.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use wattle_control::{Code, Problem};
use wattle_server::time::rfc3339;

use super::certificate::validity;

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

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a server shows to clients.
///
/// # Errors
/// A file cannot be read, is not what it is to be, is not valid today, or does not fit the others.
pub fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, Problem> {
    let certs = certificates(&files.cert)?;
    check_validity(&files.cert, &certs)?;
    let key = private_key(&files.key)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.cert, error, "use the same version of wattle's TLS library"))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots_of(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            let next = "give the certificates of the authority that signs those of clients";
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, error, next))?)
        }
    };
    let config = builder.with_single_cert(certs, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => unusable(
            &files.key,
            format!("it is not the key of {}", files.cert.display()),
            "give the key that the certificate was made with",
        ),
        error => unusable(&files.cert, error, "give a certificate and its key as PEM files"),
    })?;
    Ok(Arc::new(config))
}

/// What a client trusts.
///
/// # Errors
/// The authorities cannot be read.
pub fn client_config(roots: &TlsRoots) -> Result<Arc<ClientConfig>, Problem> {
    let path = match roots {
        TlsRoots::File(path) => path.as_path(),
        TlsRoots::System => {
            let there = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.is_file());
            there.ok_or_else(|| {
                let next =
                    "install them (package ca-certificates), or name a file with the authority's certificate";
                unusable(Path::new(SYSTEM_ROOTS[0]), "this system has no list of authorities to trust", next)
            })?
        }
    };
    let roots = roots_of(path)?;
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder =
        builder.map_err(|error| unusable(path, error, "use the same version of wattle's TLS library"))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn roots_of(path: &Path) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(certificates(path)?);
    match taken {
        0 => Err(unusable(path, "it holds no certificate of an authority", "give one as a PEM file")),
        _ => Ok(roots),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let text = read(path, Secrecy::Public)?;
    let certs: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let certs = certs.map_err(|error| unusable(path, format!("it is no PEM file: {error}"), CERT_NEXT))?;
    match certs.is_empty() {
        true => Err(unusable(path, "it holds no certificate", CERT_NEXT)),
        false => Ok(certs),
    }
}

const CERT_NEXT: &str = "give a certificate as a PEM file (-----BEGIN CERTIFICATE-----)";

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let text = read(path, Secrecy::Secret)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let why = match error {
            pem::Error::NoItemsFound => "it holds no private key, or one under a passphrase".to_owned(),
            error => format!("it is no PEM file: {error}"),
        };
        unusable(path, why, "give an unencrypted key as a PEM file (-----BEGIN PRIVATE KEY-----)")
    })
}

/// The first certificate is the server's own; the others are looked at too, since clients follow
/// them.
fn check_validity(path: &Path, certs: &[CertificateDer<'_>]) -> Result<(), Problem> {
    let now = now_secs();
    let shown = |secs: i64| {
        u64::try_from(secs).ok().and_then(rfc3339).unwrap_or_else(|| "a time before 1970".to_owned())
    };
    for cert in certs {
        let validity = validity(cert).ok_or_else(|| unusable(path, "it is damaged", CERT_NEXT))?;
        if now > validity.until_secs {
            let why = format!("it expired at {}", shown(validity.until_secs));
            return Err(unusable(path, why, "renew it"));
        }
        if now < validity.from_secs {
            let why = format!(
                "it is valid from {} on, and the clock says {}",
                shown(validity.from_secs),
                shown(now)
            );
            return Err(unusable(path, why, "set the clock, or wait"));
        }
    }
    Ok(())
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

fn read(path: &Path, secrecy: Secrecy) -> Result<Vec<u8>, Problem> {
    let unreadable = |error: std::io::Error| unusable(path, error, "name a file that this user can read");
    // A pipe would be waited for.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unusable(path, "it is no regular file", "name a regular file"));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
    // A group may read it: that is how servers of several users share a key.
    if matches!(secrecy, Secrecy::Secret) && mode & 0o027 != 0 {
        let why = format!("others than its owner and group can use it (mode {mode:04o})");
        return Err(unusable(path, why, &format!("chmod 600 {}", path.display())));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[allow(clippy::needless_pass_by_value, reason = "callers have made it for this call")]
fn unusable(path: &Path, why: impl ToString, next: &str) -> Problem {
    Problem::new(
        Code::TlsUnusable,
        format!("{} cannot be used for TLS", path.display()),
        why.to_string(),
        next,
    )
}
