//! Where clients connect: listening there, and the NBD URIs that lead there.

use std::fmt::Write;
use std::path::Path;

use wattle_control::{Code, Problem};
use wattle_export::{Address, NbdAddress};
use wattle_rt::{ListenError, Listener};

use crate::control_socket::check_socket_path;

/// A listening socket and how to reach it.
pub struct Endpoint {
    /// The socket.
    pub listener: Listener,
    /// Where it is.
    pub address: NbdAddress,
}

/// Listens at an address.
///
/// # Errors
/// The socket is in use, cannot be made, or the kind of export is not offered.
pub fn listen(address: &Address) -> Result<Endpoint, Problem> {
    let Address::Nbd(nbd) = address else {
        return Err(Problem::new(
            Code::NotSupportedYet,
            format!("--export {address}"),
            "this version offers nbd only",
            "use nbd=unix:PATH or nbd=tcp:HOST:PORT",
        ));
    };
    let problem = |why: String, next| {
        Problem::new(Code::ListenFailed, format!("cannot listen at {address}"), why, next)
    };
    let listener = match nbd {
        NbdAddress::Unix(path) => {
            check_socket_path(path)
                .map_err(|why| problem(why, "choose a shorter path, or go to its directory first"))?;
            Listener::unix(path)
        }
        NbdAddress::Tcp { host, port } => Listener::tcp(host, *port),
    };
    let listener = listener.map_err(|error| problem(error.to_string(), listen_next(error)))?;
    // Port 0 lets the system choose; clients need to know what it chose.
    let address = match (nbd, listener.local_addr()) {
        (NbdAddress::Tcp { host, .. }, Some(local)) => {
            NbdAddress::Tcp { host: host.clone(), port: local.port() }
        }
        (nbd, _) => nbd.clone(),
    };
    Ok(Endpoint { listener, address })
}

fn listen_next(error: ListenError) -> &'static str {
    match error {
        ListenError::InUse => {
            "choose another address, or stop what listens there (`wattle status` lists servers)"
        }
        ListenError::NotASocket => "choose another path; files that are no sockets are never removed",
        ListenError::NoAddress => "check the host name, or use an address like 127.0.0.1",
        _ => "check that the directory exists and belongs to this user; ports below 1024 need privileges",
    }
}

impl Endpoint {
    /// The URI of an export, by the NBD URI specification; the empty name is the default export.
    pub fn uri(&self, export: &str) -> String {
        match &self.address {
            NbdAddress::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!(
                    "nbd+unix:///{}?socket={}",
                    percent(export, ""),
                    percent(&path.to_string_lossy(), "/")
                )
            }
            NbdAddress::Tcp { host, port } if host.contains(':') => {
                format!("nbd://[{host}]:{port}/{}", percent(export, ""))
            }
            NbdAddress::Tcp { host, port } => format!("nbd://{host}:{port}/{}", percent(export, "")),
        }
    }

    /// The path of a Unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        match &self.address {
            NbdAddress::Unix(path) => Some(path),
            NbdAddress::Tcp { .. } => None,
        }
    }

    /// The port of a TCP socket.
    pub fn port(&self) -> Option<u16> {
        match self.address {
            NbdAddress::Unix(_) => None,
            NbdAddress::Tcp { port, .. } => Some(port),
        }
    }
}

/// Where a URI of [`Endpoint::uri`] leads: the address, and the name of the export; `None` of anything else.
pub fn parse_uri(uri: &str) -> Option<(NbdAddress, String)> {
    if let Some(rest) = uri.strip_prefix("nbd+unix:///") {
        let (export, path) = rest.split_once("?socket=")?;
        return Some((NbdAddress::Unix(unescape(path)?.into()), unescape(export)?));
    }
    let (host_port, export) = uri.strip_prefix("nbd://")?.split_once('/')?;
    Some((format!("tcp:{host_port}").parse().ok()?, unescape(export)?))
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Escapes what is not unreserved in a URI, nor in `also`.
fn percent(text: &str, also: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also.as_bytes().contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_survives_odd_names() {
        assert_eq!(percent("host:my data", ""), "host%3Amy%20data");
        assert_eq!(percent("/run/ü/a.sock", "/"), "/run/%C3%BC/a.sock");
        for name in ["", "host:my data", "100%/ü"] {
            assert_eq!(unescape(&percent(name, "")).as_deref(), Some(name));
        }
        let unix = parse_uri("nbd+unix:///my%20data?socket=/run/%C3%BC/a.sock");
        assert_eq!(unix, Some((NbdAddress::Unix("/run/ü/a.sock".into()), "my data".to_owned())));
        let tcp = NbdAddress::Tcp { host: "::1".to_owned(), port: 10809 };
        assert_eq!(parse_uri("nbd://[::1]:10809/a"), Some((tcp, "a".to_owned())));
        for wrong in ["", "nbd://host", "nbd+unix:///a", "nbd+unix:///a%4?socket=/x", "http://a/b"] {
            assert_eq!(parse_uri(wrong), None, "{wrong}");
        }
    }
}
