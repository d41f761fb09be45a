//! Where a server listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use wattle_control::{Code, Problem};
use wattle_server::exports::is_loopback;

/// Where a server listens: `IP:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAddress {
    /// A Unix socket, for this user.
    Unix(PathBuf),
    /// A TCP port; 0 lets the system choose.
    Tcp(SocketAddr),
}

impl HttpAddress {
    /// Whether only this machine reaches it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => is_loopback(address.ip()),
        }
    }
}

impl FromStr for HttpAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text.strip_prefix("unix:") {
            Some("") => Err(not_an_address(text, "the path is missing")),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text
                .parse()
                .map(Self::Tcp)
                .map_err(|_| not_an_address(text, "it is neither IP:PORT (IPv6 in brackets) nor unix:PATH")),
        }
    }
}

fn not_an_address(text: &str, why: &str) -> Problem {
    Problem::new(
        Code::BadListenAddress,
        format!("`{text}` is not an address to listen at"),
        why,
        "give 127.0.0.1:9110, or unix:PATH",
    )
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ip_and_port_or_a_socket() {
        for (text, local) in [
            ("127.0.0.1:9110", true),
            ("127.3.4.5:0", true),
            ("[::1]:9110", true),
            ("[::ffff:127.0.0.1]:9110", true),
            ("unix:/run/wattle/http", true),
            ("0.0.0.0:9110", false),
            ("[::]:9110", false),
            ("192.0.2.1:80", false),
        ] {
            let address: HttpAddress = text.parse().unwrap();
            assert_eq!(address.is_local(), local, "{text}");
            assert_eq!(address.to_string(), text);
        }
        for bad in ["", "9110", ":9110", "localhost:9110", "unix:", "::1:9110", "127.0.0.1", "1.2.3.4:70000"]
        {
            assert_eq!(bad.parse::<HttpAddress>().unwrap_err().code, Code::BadListenAddress, "{bad}");
        }
    }
}
