//! Where an export of another server is: NBD URIs, as nbdinfo and QEMU have them.
//!
//! ```text
//! nbd://HOST[:PORT][/EXPORT]
//! nbd+unix:///[EXPORT]?socket=PATH
//! nbds://…  nbds+unix://…           with TLS: known, refused
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

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
}

/// Why a text is no [`Uri`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UriError {
    /// Another scheme, or none.
    #[error("it is no NBD URI: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH")]
    Scheme,
    /// The connection would have to be encrypted.
    #[error("TLS is not supported: use nbd:// through a tunnel (`ssh -L`), or a Unix socket")]
    Tls,
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
        let unix = match scheme {
            "nbd" => false,
            "nbd+unix" => true,
            "nbds" | "nbds+unix" => return Err(UriError::Tls),
            _ => return Err(UriError::Scheme),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = place.split_once('/').unwrap_or((place, ""));
        let export = decoded(export)?;
        let mut socket = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("socket", path)) if unix => socket = Some(decoded(path)?),
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
        Ok(Self { address, export })
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
        match &self.address {
            NbdAddress::Unix(path) => {
                write!(f, "nbd+unix:///{}?socket=", Encoded(&self.export))?;
                write!(f, "{}", Encoded(&path.to_string_lossy()))
            }
            NbdAddress::Tcp { host, port } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd://{open}{host}{close}:{port}/{}", Encoded(&self.export))
            }
        }
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
        Ok(Uri { address, export: export.to_owned() })
    }

    fn unix(path: &str, export: &str) -> Result<Uri, UriError> {
        Ok(Uri { address: NbdAddress::Unix(PathBuf::from(path)), export: export.to_owned() })
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
    fn what_is_wrong_is_said() {
        let rows = [
            ("disk.img", UriError::Scheme),
            ("ftp://nas", UriError::Scheme),
            ("nbds://nas", UriError::Tls),
            ("nbds+unix:///?socket=a", UriError::Tls),
            ("nbd://", UriError::Host(String::new())),
            ("nbd://:10809", UriError::Host(":10809".to_owned())),
            ("nbd://nas:x", UriError::Host("nas:x".to_owned())),
            ("nbd://[::1", UriError::Host("[::1".to_owned())),
            ("nbd://[::1]10809", UriError::Host("[::1]10809".to_owned())),
            ("nbd+unix://nas/?socket=a", UriError::HostOfUnix),
            ("nbd+unix:///disk", UriError::NoSocket),
            ("nbd+unix:///disk?socket=", UriError::NoSocket),
            ("nbd://nas/?tls-hostname=x", UriError::Parameter("tls-hostname=x".to_owned())),
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
