//! The ways to volumes, as text: URIs and paths.

use std::fmt::Write;
use std::path::Path;

use wattle_export::fuse;
use wattle_export::nvme::NvmeSubsystem;
use wattle_export::{NbdAddress, NvmeAddress};

/// Where an NVMe subsystem is found, and its name: what `nvme connect` takes, in the form of a URI.
pub(super) fn nvme_uri(address: &NvmeAddress, subsystem: &NvmeSubsystem) -> String {
    format!("nvme+tcp://{address}/{}", percent(subsystem.nqn(), ":"))
}

/// The URI of an export, by the NBD URI specification; the empty name is the default export.
pub(super) fn uri(address: &NbdAddress, secured: bool, export: &str) -> String {
    let scheme = if secured { "nbds" } else { "nbd" };
    match address {
        NbdAddress::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!(
                "{scheme}+unix:///{}?socket={}",
                percent(export, ""),
                percent(&path.to_string_lossy(), "/")
            )
        }
        NbdAddress::Tcp { host, port } if host.contains(':') => {
            format!("{scheme}://[{host}]:{port}/{}", percent(export, ""))
        }
        NbdAddress::Tcp { host, port } => format!("{scheme}://{host}:{port}/{}", percent(export, "")),
    }
}

/// Where an NBD URI of [`Endpoint::way`] leads without TLS: the address, and the name of the
/// export; `None` of anything else.
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

/// The path of an array's file in a FUSE mount.
pub(super) fn file_of(dir: &Path, array: &str) -> String {
    dir.join(fuse::tree::path_of(array)).to_string_lossy().into_owned()
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
