//! Where an export is offered: the grammar of `--export TYPE=ADDRESS`.
//!
//! ```text
//! nbd=unix:PATH          a Unix socket
//! nbd=tcp:HOST:PORT      a TCP socket; an IPv6 HOST stands in brackets
//! nvme-tcp=HOST:PORT     a TCP socket, for NVMe hosts
//! fuse=DIR               a directory, in which each volume is a file
//! vhost-user=DIR         a directory, in which each volume is a socket for hypervisors
//! ublk[=N][,md]          block devices of this machine, from number N on; `md`: also in /dev/md
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Where an export is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// To NBD clients.
    Nbd(NbdAddress),
    /// As files in a directory.
    Fuse(PathBuf),
    /// As disks of virtual machines, by sockets in a directory.
    VhostUser(PathBuf),
    /// To NVMe hosts over TCP.
    NvmeTcp(NvmeAddress),
    /// As block devices of this machine.
    Ublk(UblkAddress),
}

/// Where the NBD server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket of this path.
    Unix(PathBuf),
    /// A TCP socket.
    Tcp {
        /// A host name or an address; IPv6 without its brackets.
        host: String,
        /// The port; 0 lets the system choose.
        port: u16,
    },
}

/// Where the NVMe/TCP target listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeAddress {
    /// A host name or an address; IPv6 without its brackets.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

/// How block devices are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UblkAddress {
    /// The number of the first device; without one the kernel chooses.
    pub first: Option<u32>,
    /// Each also has a name in `/dev/md`.
    pub like_md: bool,
}

/// Why a text is no [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The type is none of the known ones.
    #[error(
        "`{0}` is no kind of export: use nbd=unix:PATH, nbd=tcp:HOST:PORT, nvme-tcp=HOST:PORT, fuse=DIR, ublk or \
         vhost-user=DIR"
    )]
    UnknownKind(String),
    /// An NBD address starts with neither `unix:` nor `tcp:`.
    #[error("`{0}` is no NBD address: use unix:PATH or tcp:HOST:PORT")]
    UnknownTransport(String),
    /// `unix:` without a path.
    #[error("the path of the Unix socket is missing: use nbd=unix:PATH")]
    MissingPath,
    /// A kind of export that needs a directory without one.
    #[error("the directory is missing: use {0}=DIR")]
    MissingDirectory(&'static str),
    /// `tcp:` without a host or without a port.
    #[error("`{0}` is not HOST:PORT (an IPv6 address stands in brackets)")]
    NotHostPort(String),
    /// The port is no number from 0 to 65535.
    #[error("`{0}` is no port: use a number from 0 to 65535")]
    BadPort(String),
    /// What follows `ublk=` is neither a number of a device nor `md`.
    #[error(
        "`{0}` says nothing of block devices: use ublk, ublk=N with the number of the first one, or ublk=N,md"
    )]
    NotDevices(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (kind, rest) = text.split_once('=').unwrap_or((text, ""));
        match (kind, rest) {
            ("nbd", address) => address.parse().map(Self::Nbd),
            ("nvme-tcp", address) => address.parse().map(Self::NvmeTcp),
            ("fuse", "") => Err(AddressError::MissingDirectory("fuse")),
            ("fuse", directory) => Ok(Self::Fuse(PathBuf::from(directory))),
            ("vhost-user", "") => Err(AddressError::MissingDirectory("vhost-user")),
            ("vhost-user", directory) => Ok(Self::VhostUser(PathBuf::from(directory))),
            ("ublk", _) if !text.contains('=') => Ok(Self::Ublk(UblkAddress::default())),
            ("ublk", devices) => devices.parse().map(Self::Ublk),
            _ => Err(AddressError::UnknownKind(kind.to_owned())),
        }
    }
}

impl FromStr for NbdAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("unix", "")) => Err(AddressError::MissingPath),
            Some(("unix", path)) => Ok(Self::Unix(PathBuf::from(path))),
            Some(("tcp", host_port)) => parse_tcp(host_port).map(|(host, port)| Self::Tcp { host, port }),
            _ => Err(AddressError::UnknownTransport(text.to_owned())),
        }
    }
}

impl FromStr for NvmeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse_tcp(text).map(|(host, port)| Self { host, port })
    }
}

impl FromStr for UblkAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        /// The driver numbers devices by what fits into the minor numbers of block devices.
        const NUMBER_MAX: u32 = (1 << 20) - 1;
        let (first, like_md) = match text.strip_suffix(",md") {
            Some(first) => (first, true),
            None if text == "md" => return Ok(Self { first: None, like_md: true }),
            None => (text, false),
        };
        let number = first.parse().ok().filter(|number| *number <= NUMBER_MAX);
        let number = number.filter(|_| first.bytes().all(|byte| byte.is_ascii_digit()));
        let first = number.ok_or_else(|| AddressError::NotDevices(text.to_owned()))?;
        Ok(Self { first: Some(first), like_md })
    }
}

fn parse_tcp(text: &str) -> Result<(String, u16), AddressError> {
    let malformed = || AddressError::NotHostPort(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
    let bracketed =
        host.strip_prefix('[').map(|rest| rest.strip_suffix(']').ok_or_else(malformed)).transpose()?;
    // Without brackets the colons of an IPv6 address cannot be told from the one before the port.
    let host = match bracketed {
        Some(inside) => inside,
        None if host.contains(':') => return Err(malformed()),
        None => host,
    };
    if host.is_empty() {
        return Err(malformed());
    }
    let port = port.parse().map_err(|_| AddressError::BadPort(port.to_owned()))?;
    Ok((host.to_owned(), port))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nbd(address) => write!(f, "nbd={address}"),
            Self::NvmeTcp(address) => write!(f, "nvme-tcp={address}"),
            Self::Fuse(directory) => write!(f, "fuse={}", directory.display()),
            Self::VhostUser(directory) => write!(f, "vhost-user={}", directory.display()),
            Self::Ublk(UblkAddress { first: None, like_md: false }) => write!(f, "ublk"),
            Self::Ublk(UblkAddress { first: None, like_md: true }) => write!(f, "ublk=md"),
            Self::Ublk(UblkAddress { first: Some(first), like_md: false }) => write!(f, "ublk={first}"),
            Self::Ublk(UblkAddress { first: Some(first), like_md: true }) => write!(f, "ublk={first},md"),
        }
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl fmt::Display for NvmeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_shown_alike() {
        let nbd = ["nbd=unix:/run/w.sock", "nbd=unix:a:b=c", "nbd=tcp:localhost:10809", "nbd=tcp:[::1]:0"];
        let others = ["fuse=/mnt/wattle", "fuse=a=b", "vhost-user=/run/w", "nvme-tcp=[::1]:4420"];
        let devices = ["ublk", "ublk=0", "ublk=127,md", "ublk=md"];
        for text in nbd.into_iter().chain(others).chain(devices) {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let tcp = NbdAddress::Tcp { host: "::1".to_owned(), port: 0 };
        assert_eq!("nbd=tcp:[::1]:0".parse(), Ok(Address::Nbd(tcp)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let refused = [
            ("", AddressError::UnknownKind(String::new())),
            ("iscsi=x", AddressError::UnknownKind("iscsi".to_owned())),
            ("nbd", AddressError::UnknownTransport(String::new())),
            ("nbd=/run/w.sock", AddressError::UnknownTransport("/run/w.sock".to_owned())),
            ("nbd=unix:", AddressError::MissingPath),
            ("nbd=tcp:10809", AddressError::NotHostPort("10809".to_owned())),
            ("nbd=tcp::10809", AddressError::NotHostPort(":10809".to_owned())),
            ("nbd=tcp:::1:10809", AddressError::NotHostPort("::1:10809".to_owned())),
            ("nbd=tcp:[::1:10809", AddressError::NotHostPort("[::1:10809".to_owned())),
            ("nbd=tcp:h:65536", AddressError::BadPort("65536".to_owned())),
            ("nbd=tcp:h:", AddressError::BadPort(String::new())),
            ("nvme-tcp", AddressError::NotHostPort(String::new())),
            ("nvme-tcp=h:x", AddressError::BadPort("x".to_owned())),
            ("fuse", AddressError::MissingDirectory("fuse")),
            ("fuse=", AddressError::MissingDirectory("fuse")),
            ("vhost-user=", AddressError::MissingDirectory("vhost-user")),
            ("ublk=", AddressError::NotDevices(String::new())),
            ("ublk=-1", AddressError::NotDevices("-1".to_owned())),
            ("ublk=+1", AddressError::NotDevices("+1".to_owned())),
            ("ublk=,md", AddressError::NotDevices(",md".to_owned())),
            ("ublk=1048576", AddressError::NotDevices("1048576".to_owned())),
            ("ublkx", AddressError::UnknownKind("ublkx".to_owned())),
        ];
        for (text, error) in refused {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }
}
