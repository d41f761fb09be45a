//! A directory of certificates and keys, as NBD programs share it: nbdkit, QEMU and libnbd look for
//! the same names.
//!
//! ```text
//! ca-cert.pem                        the authorities that are trusted
//! ca-crl.pem                         what they have revoked, if it is there
//! server-cert.pem  server-key.pem    of a server
//! client-cert.pem  client-key.pem    of a client, if servers want one
//! ```
//!
//! Versions: TLS 1.3 alone. Version 1.2 cannot change its keys, so a connection would end after
//! some hundred GiB, and peers could ask to negotiate anew.
//!
//! Every session begins anew: none is resumed, so a certificate that has expired or was revoked
//! since ends with the connection at the latest.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme, SupportedProtocolVersion};

use crate::error::{TlsFileError, Why};
use crate::files::{
    TlsFiles, TlsRoots, own_certificates, private_key, provider, revoked, server_config_of, trusted,
};

/// Which clients a server hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsClients {
    /// Those with a certificate that `ca-cert.pem` vouches for.
    Certified,
    /// All: what they send is encrypted, and every machine can be one.
    Any,
}

const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13];
const CA_CERT: &str = "ca-cert.pem";
const CA_CRL: &str = "ca-crl.pem";
const SERVER: [&str; 2] = ["server-cert.pem", "server-key.pem"];
const CLIENT: [&str; 2] = ["client-cert.pem", "client-key.pem"];

/// The server's side of a directory. Files that change are read again, so that renewing a
/// certificate takes no restart.
pub struct ServerTls {
    dir: PathBuf,
    clients: TlsClients,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// What the files were when they were last looked at, and whether that was of use.
    stamps: Vec<Stamp>,
    failed: bool,
}

/// What tells a file from the one that replaced it, if it is there.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl ServerTls {
    /// Reads the directory.
    ///
    /// # Errors
    /// A file is missing, cannot be used, or does not fit the others.
    pub fn open(dir: &Path, clients: TlsClients) -> Result<Self, TlsFileError> {
        let stamps = stamps(dir);
        let config = server(dir, clients)?;
        let loaded = Mutex::new(Loaded { config, stamps, failed: false });
        Ok(Self { dir: dir.to_owned(), clients, loaded })
    }

    /// Which clients are heard.
    #[must_use]
    pub fn clients(&self) -> TlsClients {
        self.clients
    }

    /// What to show to the next client. New files that cannot be used leave what was shown before,
    /// and are an error once. Looks at the files, so it blocks.
    pub fn current(&self) -> (Arc<ServerConfig>, Option<TlsFileError>) {
        let stamps = stamps(&self.dir);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.stamps == stamps {
            return (loaded.config.clone(), None);
        }
        loaded.stamps = stamps;
        match server(&self.dir, self.clients) {
            Ok(config) => {
                (loaded.config, loaded.failed) = (config, false);
                (loaded.config.clone(), None)
            }
            // Of files that are replaced one by one only the first that does not fit is told.
            Err(error) => {
                let told = std::mem::replace(&mut loaded.failed, true);
                (loaded.config.clone(), Some(error).filter(|_| !told))
            }
        }
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dir, clients, .. } = self;
        f.debug_struct("ServerTls").field("dir", dir).field("clients", clients).finish_non_exhaustive()
    }
}

fn stamps(dir: &Path) -> Vec<Stamp> {
    let stamp = |name: &str| {
        let file = std::fs::metadata(dir.join(name)).ok()?;
        Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
    };
    [CA_CERT, CA_CRL, SERVER[0], SERVER[1]].into_iter().map(stamp).collect()
}

fn server(dir: &Path, clients: TlsClients) -> Result<Arc<ServerConfig>, TlsFileError> {
    let (ca, crl) = (dir.join(CA_CERT), present(dir, CA_CRL));
    let client_ca = match (clients, &crl) {
        (TlsClients::Certified, _) if !ca.exists() => return Err(Why::NoAuthorityOfClients.of(&ca)),
        (TlsClients::Certified, _) => Some(ca),
        (TlsClients::Any, Some(crl)) => return Err(Why::NothingToRevoke.of(crl)),
        (TlsClients::Any, None) => None,
    };
    let [cert, key] = SERVER.map(|name| dir.join(name));
    let mut config = server_config_of(&TlsFiles { cert, key, client_ca, client_crl: crl }, VERSIONS)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// What a client of a server trusts and shows.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// For rustls.
    pub config: Arc<ClientConfig>,
    /// It has a certificate to show.
    pub shows_certificate: bool,
}

impl ClientTls {
    /// Reads a directory; without one the authorities of the system are trusted, and no
    /// certificate is shown. `verify` off lets any server be one, as it is not known which answers.
    ///
    /// # Errors
    /// A file is missing, cannot be used, or does not fit the others.
    pub fn open(dir: Option<&Path>, verify: bool) -> Result<Self, TlsFileError> {
        let roots = dir.map_or(TlsRoots::System, |dir| TlsRoots::File(dir.join(CA_CERT)));
        let (place, roots) = match (verify, dir) {
            (false, None) => (PathBuf::from("/"), rustls::RootCertStore::empty()),
            _ => trusted(&roots)?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| Why::Library(error).of(&place))?;
        let builder = if verify {
            let mut verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
            let crl = dir.and_then(|dir| present(dir, CA_CRL));
            if let Some(crl) = &crl {
                verifier = verifier.with_crls(revoked(crl)?).enforce_revocation_expiration();
            }
            let place = crl.unwrap_or(place);
            let verifier = verifier.build().map_err(|error| Why::Verifier(error).of(&place))?;
            builder.with_webpki_verifier(verifier)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer))
        };
        let own = dir.map(own_pair).transpose()?.flatten();
        let shows_certificate = own.is_some();
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some([cert, key]) => {
                let (certs, secret) = (own_certificates(&cert)?, private_key(&key)?);
                builder.with_client_auth_cert(certs, secret).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => Why::OtherKey(cert).of(&key),
                    error => Why::Library(error).of(&cert),
                })?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), shows_certificate })
    }
}

/// The client's certificate and key, if both are there.
fn own_pair(dir: &Path) -> Result<Option<[PathBuf; 2]>, TlsFileError> {
    let [cert, key] = CLIENT.map(|name| dir.join(name));
    match (cert.exists(), key.exists()) {
        (true, true) => Ok(Some([cert, key])),
        (false, false) => Ok(None),
        (true, false) => Err(Why::HalfAPair(cert).of(&key)),
        (false, true) => Err(Why::HalfAPair(key).of(&cert)),
    }
}

/// A file that may be there. One that cannot be looked at is there: it must not be passed over.
fn present(dir: &Path, name: &str) -> Option<PathBuf> {
    let path = dir.join(name);
    let absent = path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    (!absent).then_some(path)
}

/// The first of some directories that has an authority to trust.
#[must_use]
pub fn first_of(dirs: &[PathBuf]) -> Option<&Path> {
    dirs.iter().map(PathBuf::as_path).find(|dir| present(dir, CA_CERT).is_some())
}

/// Takes any certificate, if only its key is there.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
