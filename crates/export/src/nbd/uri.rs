//! Where an export of another server is: NBD URIs, as nbdinfo and QEMU have them.
//!
//! ```text
//! nbd://HOST[:PORT][/EXPORT]
//! nbd+unix:///[EXPORT]?socket=PATH
//! nbds://…  nbds+unix://…           with TLS, and with these parameters, as libnbd has them:
//!     tls-certificates=DIR          ca-cert.pem, ca-crl.pem, client-cert.pem and client-key.pem
//!     tls-hostname=NAME             what the server's certificate is for, if not HOST
//!     tls-verify-peer=false         any server is taken for the right one
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use rustls::pki_types::ServerName;
use thiserror::Error;
use wattle_tls::{ClientTls, TlsFileError, directory};

use crate::NbdAddress;

/// The port of a URI that names none.
const PORT: u16 = 10809;

/// An export of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// The server.
    pub address: NbdAddress,
    /// The export; empty for the server's default.
    pub export: String,
    /// The connection is encrypted, and the server proves what it is.
    pub tls: Option<UriTls>,
}

/// How TLS is spoken with a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTls {
    /// The directory of this side's certificates, if one is named.
    pub certificates: Option<PathBuf>,
    /// Directories that are looked in if none is named: the first with an authority counts. If
    /// there is none, the system's authorities are trusted.
    pub usual: Vec<PathBuf>,
    /// What the server's certificate is for, where that is not the host.
    pub hostname: Option<String>,
    /// The server has to prove what it is.
    pub verify: bool,
    name: ServerName<'static>,
}

impl UriTls {
    /// What this side trusts and shows. Reads files.
    ///
    /// # Errors
    /// A file is missing, cannot be used, or does not fit the others.
    pub fn open(&self) -> Result<ClientTls, TlsFileError> {
        let dir = self.certificates.as_deref().or_else(|| directory::first_of(&self.usual));
        ClientTls::open(dir, self.verify)
    }

    /// What the server's certificate has to be for.
    pub(super) fn server_name(&self) -> ServerName<'static> {
        self.name.clone()
    }
}

/// What the certificate of a server behind a Unix socket is for, unless a name is given.
const LOCAL_NAME: &str = "localhost";

/// Why a text is no [`Uri`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UriError {
    /// Another scheme, or none.
    #[error(
        "it is no NBD URI: nbd://HOST[:PORT]/EXPORT, nbds:// with TLS, or nbd+unix:///EXPORT?socket=PATH"
    )]
    Scheme,
    /// A parameter of TLS in a URI without it.
    #[error("`{0}` is for TLS: write nbds:// or nbds+unix://")]
    NoTls(String),
    /// A certificate cannot be for this.
    #[error("`{0}` is no host name or address that a certificate can be for: give one, tls-hostname=NAME")]
    TlsName(String),
    /// Neither true nor false.
    #[error("`{0}` is neither true nor false")]
    NoTruth(String),
    /// A secret shared with the server instead of certificates.
    #[error("TLS with a pre-shared key is not supported: use certificates, tls-certificates=DIR")]
    SharedKey,
    /// `nbd://` without a host, or with a port that is none.
    #[error("`{0}` is no HOST or HOST:PORT (an IPv6 address stands in brackets)")]
    Host(String),
    /// `nbd+unix://` with a host.
    #[error("nbd+unix:// has no host: write nbd+unix:///EXPORT?socket=PATH")]
    HostOfUnix,
    /// `nbd+unix://` without its socket.
    #[error("the socket is missing: nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    /// A parameter that is not known. It may be one that must not be ignored.
    #[error("the parameter `{0}` is not known")]
    Parameter(String),
    /// `%` without two hexadecimal digits, or bytes that are no text.
    #[error("`{0}` is not percent-encoded text")]
    Escape(String),
}

impl Uri {
    /// Whether a text is meant to be one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme))
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        let (unix, secured) = match scheme {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = place.split_once('/').unwrap_or((place, ""));
        let export = decoded(export)?;
        let (mut socket, mut certificates, mut hostname, mut verify) = (None, None, None, true);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("socket", path)) if unix => socket = Some(decoded(path)?),
                Some(("tls-psk-file", _)) => return Err(UriError::SharedKey),
                Some((key, _)) if key.starts_with("tls-") && !secured => {
                    return Err(UriError::NoTls(key.to_owned()));
                }
                Some(("tls-certificates", dir)) if !dir.is_empty() => {
                    certificates = Some(PathBuf::from(decoded(dir)?));
                }
                Some(("tls-hostname", name)) => hostname = Some(decoded(name)?),
                Some(("tls-verify-peer", text)) => verify = truth(text)?,
                _ => return Err(UriError::Parameter(parameter.to_owned())),
            }
        }
        let address = match (unix, host) {
            (true, "") => {
                let socket = socket.filter(|path| !path.is_empty()).ok_or(UriError::NoSocket)?;
                NbdAddress::Unix(PathBuf::from(socket))
            }
            (true, _) => return Err(UriError::HostOfUnix),
            (false, host) => tcp(host).ok_or_else(|| UriError::Host(host.to_owned()))?,
        };
        let tls = if secured { Some(tls(&address, certificates, hostname, verify)?) } else { None };
        Ok(Self { address, export, tls })
    }
}

fn tls(
    address: &NbdAddress,
    certificates: Option<PathBuf>,
    hostname: Option<String>,
    verify: bool,
) -> Result<UriTls, UriError> {
    let name = match (&hostname, address) {
        (Some(name), _) => name,
        (None, NbdAddress::Tcp { host, .. }) => host,
        (None, NbdAddress::Unix(_)) => LOCAL_NAME,
    };
    let name = ServerName::try_from(name.to_owned()).map_err(|_| UriError::TlsName(name.to_owned()))?;
    Ok(UriTls { certificates, usual: Vec::new(), hostname, verify, name })
}

fn truth(text: &str) -> Result<bool, UriError> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
        "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
        _ => Err(UriError::NoTruth(text.to_owned())),
    }
}

fn tcp(text: &str) -> Option<NbdAddress> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| NbdAddress::Tcp { host: host.to_owned(), port })
}

fn decoded(text: &str) -> Result<String, UriError> {
    let malformed = || UriError::Escape(text.to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits =
                rest.get(..2).and_then(|digits| str::from_utf8(digits).ok()).ok_or_else(malformed)?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| malformed())?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.tls.is_some() { "s" } else { "" };
        let mut mark = '?';
        match &self.address {
            NbdAddress::Unix(path) => {
                write!(f, "nbd{s}+unix:///{}?socket=", Encoded(&self.export))?;
                write!(f, "{}", Encoded(&path.to_string_lossy()))?;
                mark = '&';
            }
            NbdAddress::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd{s}://{open}{host}{close}:{port}/{}", Encoded(&self.export))?;
            }
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        if let Some(dir) = &tls.certificates {
            write!(f, "{mark}tls-certificates={}", Encoded(&dir.to_string_lossy()))?;
            mark = '&';
        }
        if let Some(name) = &tls.hostname {
            write!(f, "{mark}tls-hostname={}", Encoded(name))?;
            mark = '&';
        }
        if tls.verify { Ok(()) } else { write!(f, "{mark}tls-verify-peer=false") }
    }
}

/// Percent-encoded, but for what needs no encoding in a path.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                    write!(f, "{}", char::from(byte))?;
                }
                byte => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Result<Uri, UriError> {
        let address = NbdAddress::Tcp { host: host.to_owned(), port };
        Ok(Uri { address, export: export.to_owned(), tls: None })
    }

    fn unix(path: &str, export: &str) -> Result<Uri, UriError> {
        Ok(Uri { address: NbdAddress::Unix(PathBuf::from(path)), export: export.to_owned(), tls: None })
    }

    #[test]
    fn what_is_meant() {
        let rows = [
            ("nbd://nas", tcp("nas", 10809, "")),
            ("nbd://nas/", tcp("nas", 10809, "")),
            ("nbd://nas:7/disk%201/b", tcp("nas", 7, "disk 1/b")),
            ("nbd://[::1]/x", tcp("::1", 10809, "x")),
            ("nbd://[::1]:10/x", tcp("::1", 10, "x")),
            ("nbd+unix:///?socket=/run/a.sock", unix("/run/a.sock", "")),
            ("nbd+unix:///disk?socket=a%2bb", unix("a+b", "disk")),
            ("nbd+unix://?socket=a", unix("a", "")),
        ];
        for (text, uri) in rows {
            assert_eq!(text.parse(), uri, "{text}");
            assert_eq!(uri.clone().unwrap().to_string().parse(), uri, "as it is shown");
            assert!(Uri::is_meant(text));
        }
    }

    #[test]
    fn what_is_said_of_tls_is_meant_and_shown() {
        let tls = |text: &str| {
            let uri: Uri = text.parse().unwrap();
            assert_eq!(uri.to_string().parse(), Ok(uri.clone()), "as it is shown");
            uri.tls.unwrap()
        };
        let usual = tls("nbds://nas:7/disk");
        assert_eq!((&usual.certificates, &usual.hostname, usual.verify), (&None, &None, true));
        assert_eq!(usual.server_name().to_str(), "nas");
        assert_eq!(tls("nbds://[::1]/").server_name().to_str(), "::1");
        assert_eq!(tls("nbds+unix:///?socket=a").server_name().to_str(), "localhost");
        let all = tls("nbds+unix:///?socket=a&tls-certificates=/a%20b&tls-hostname=nas&tls-verify-peer=No");
        assert_eq!(all.certificates.as_deref(), Some(std::path::Path::new("/a b")));
        assert_eq!((all.server_name().to_str().as_ref(), all.verify), ("nas", false));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let rows = [
            ("disk.img", UriError::Scheme),
            ("ftp://nas", UriError::Scheme),
            ("nbds://nas/?tls-psk-file=x", UriError::SharedKey),
            ("nbds://nas/?tls-certificates=", UriError::Parameter("tls-certificates=".to_owned())),
            ("nbds://nas/?tls-verify-peer=maybe", UriError::NoTruth("maybe".to_owned())),
            ("nbds://nas/?tls-hostname=a%20b", UriError::TlsName("a b".to_owned())),
            ("nbds://nas/?tls-version=1", UriError::Parameter("tls-version=1".to_owned())),
            ("nbd://", UriError::Host(String::new())),
            ("nbd://:10809", UriError::Host(":10809".to_owned())),
            ("nbd://nas:x", UriError::Host("nas:x".to_owned())),
            ("nbd://[::1", UriError::Host("[::1".to_owned())),
            ("nbd://[::1]10809", UriError::Host("[::1]10809".to_owned())),
            ("nbd+unix://nas/?socket=a", UriError::HostOfUnix),
            ("nbd+unix:///disk", UriError::NoSocket),
            ("nbd+unix:///disk?socket=", UriError::NoSocket),
            ("nbd://nas/?tls-hostname=x", UriError::NoTls("tls-hostname".to_owned())),
            ("nbd://nas/%4", UriError::Escape("%4".to_owned())),
            ("nbd://nas/%zz", UriError::Escape("%zz".to_owned())),
            ("nbd://nas/%ff", UriError::Escape("%ff".to_owned())),
        ];
        for (text, error) in rows {
            assert_eq!(text.parse::<Uri>(), Err(error), "{text}");
        }
        assert!(!Uri::is_meant("disk.img"));
    }
}
