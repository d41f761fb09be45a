//! Makes the places where clients will find the volumes; no client is served yet.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wattle_control::{Code, Problem};
use wattle_export::nvme::NvmeSubsystem;
use wattle_export::ublk::{UblkError, UblkLinks};
use wattle_export::{Address, NbdAddress, NvmeAddress, UblkAddress};
use wattle_rt::fuse::{FuseMount, MountError};
use wattle_rt::ublk::UblkControl;
use wattle_rt::{ListenError, Listener};
use wattle_tls::{ServerTls, TlsClients};

use super::{Endpoint, NbdEndpoint, NvmeEndpoint, UblkEndpoint};
use crate::log::ServerLog;
use crate::socket::check_socket_path;

/// How clients over TCP are kept apart from every other machine.
#[derive(Debug, Clone, Default)]
pub struct NbdSecurity {
    /// They speak TLS, and are shown this. Unix sockets are guarded by their permissions.
    pub tls: Option<Arc<ServerTls>>,
    /// Listen beyond this machine also without TLS or without certificates of clients.
    pub insecure: bool,
}

impl NbdSecurity {
    /// Strangers neither read on the way nor become clients.
    fn is_protected(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.clients() == TlsClients::Certified)
    }
}

/// What the places where clients connect have in common.
pub struct ExportSettings<'a> {
    /// Nothing is changed by any client.
    pub read_only: bool,
    /// How clients over TCP are kept apart.
    pub security: &'a NbdSecurity,
    /// NVMe hosts find it, whatever number of paths lead there.
    pub subsystem: &'a Arc<NvmeSubsystem>,
    /// Where links to devices are made if not in `/dev`.
    pub runtime_dir: &'a Path,
    /// What was found on the way.
    pub log: &'a ServerLog,
}

/// Makes the place at an address.
///
/// # Errors
/// The socket is in use or cannot be made, it would be open to the network unprotected, nothing can
/// be mounted in the directory, the kernel has no ublk, or the kind of export is not offered.
pub fn prepare(address: &Address, settings: &ExportSettings<'_>) -> Result<Endpoint, Problem> {
    let ExportSettings { read_only, security, subsystem, runtime_dir, log } = settings;
    match address {
        Address::Nbd(nbd) => listen(nbd, security, log).map(Endpoint::Nbd),
        Address::Fuse(dir) => mount(dir, *read_only, log).map(Endpoint::Fuse),
        Address::VhostUser(dir) => socket_directory(dir).map(Endpoint::Vhost),
        Address::NvmeTcp(nvme) => listen_nvme(nvme, security.insecure, subsystem, log).map(Endpoint::Nvme),
        Address::Ublk(ublk) => devices(ublk, runtime_dir).map(Endpoint::Ublk),
        other => Err(Problem::new(
            Code::NotSupportedYet,
            format!("--export {other}"),
            "this version offers nbd, nvme-tcp, fuse, vhost-user and ublk only",
            "use nbd=unix:PATH, nbd=tcp:HOST:PORT, nvme-tcp=HOST:PORT, fuse=DIR, vhost-user=DIR or ublk",
        )),
    }
}

/// The way to the driver. Links to devices are in `/dev/disk/by-id` if this process may make them
/// there.
fn devices(ublk: &UblkAddress, runtime_dir: &Path) -> Result<UblkEndpoint, Problem> {
    const BY_ID: &str = "/dev/disk/by-id";
    let control = UblkControl::open().map_err(|error| ublk_problem(&UblkError::of_control(error)))?;
    let (dir, prefix) = match control.is_privileged() {
        true => (PathBuf::from(BY_ID), "wattle-"),
        false => (std::path::absolute(runtime_dir).unwrap_or_else(|_| runtime_dir.into()), "device-"),
    };
    let links = UblkLinks { dir, prefix, like_md: ublk.like_md };
    Ok(UblkEndpoint { control, first: ublk.first, links })
}

/// Why volumes are no block devices.
pub(super) fn ublk_problem(error: &UblkError) -> Problem {
    ublk_problem_of("no block devices through ublk", error)
}

/// What keeps something from being done with block devices.
pub fn ublk_problem_of(what: impl Into<String>, error: &UblkError) -> Problem {
    let next = match error {
        UblkError::Missing => {
            "load it: modprobe ublk_drv (Linux 6.5 or later); or export fuse=DIR or nbd=unix:PATH, which need no module"
        }
        UblkError::TooOld => "export fuse=DIR or nbd=unix:PATH, which any kernel can use",
        UblkError::Denied => {
            "run as root, or let this user have /dev/ublk-control and /dev/ublk[bc]* by a rule of udev (docs/operations.md)"
        }
        UblkError::NumberInUse(_) => "name another number, or leave it out: --export ublk",
        UblkError::Served { .. } => "stop that server first; `wattle status` lists servers",
        UblkError::Smaller { .. } => {
            "grow the volume back, or give the device up: unmount what is on it, and `wattle umount DEVICE`"
        }
        UblkError::ReadOnly(_) => {
            "serve it without --read-only, so that what waits is written; or give the device up: unmount what is on it, and \
             `wattle umount DEVICE`"
        }
        UblkError::Node { .. } => {
            "udev has to give it to this user (docs/operations.md); in a container, the node has to be made there"
        }
        UblkError::NotOurs(_) => "`ls /dev/ublkb*` shows what there is; other programs have theirs",
        UblkError::Claimed(_) => {
            "unmount it first; where that hangs since its volume is gone for good: --force=in-use, and its programs get errors"
        }
        UblkError::Link { .. } => {
            "remove what is there, or serve the volumes with two servers: -V names volumes"
        }
        UblkError::Volume(_) => "try again",
        _ => "see the system's log; export fuse=DIR or nbd=unix:PATH, which do without",
    };
    Problem::new(Code::ListenFailed, what, error.to_string(), next)
}

fn listen(nbd: &NbdAddress, security: &NbdSecurity, log: &ServerLog) -> Result<NbdEndpoint, Problem> {
    let problem = |why: String, next| {
        Problem::new(Code::ListenFailed, format!("cannot listen at nbd={nbd}"), why, next)
    };
    let listener = match nbd {
        NbdAddress::Unix(path) => {
            check_socket_path(path)
                .map_err(|why| problem(why, "choose a shorter path, or go to its directory first"))?;
            Listener::unix(path)
        }
        NbdAddress::Tcp { host, port } => Listener::tcp(host, *port),
    };
    let listener = listener.map_err(|error| {
        problem(error.to_string(), listen_next(error)).transient(error == ListenError::InUse)
    })?;
    // Port 0 lets the system choose; clients need to know what it chose.
    let address = match (nbd, listener.local_addr()) {
        (NbdAddress::Tcp { host, .. }, Some(local)) => {
            NbdAddress::Tcp { host: host.clone(), port: local.port() }
        }
        (nbd, _) => nbd.clone(),
    };
    let Some(local) = listener.local_addr() else { return Ok(NbdEndpoint { listener, address, tls: None }) };
    // No connection is accepted yet, so what is refused here was open to none.
    if !is_loopback(local.ip()) && !security.is_protected() {
        if !security.insecure {
            return Err(Problem::new(
                Code::ListenUnprotected,
                format!("nbd={nbd} can be reached from other machines"),
                match security.tls {
                    None => {
                        "without TLS and certificates of clients every machine could read and write what is there"
                    }
                    Some(_) => {
                        "without certificates of clients every machine could read and write what is there"
                    }
                },
                "give --tls-certificates DIR with a ca-cert.pem (docs/service.md), listen at 127.0.0.1 or unix:PATH, or take \
                 the risk: --insecure",
            ));
        }
        log.note(&format!("nbd={address} is open to every machine that reaches it (--insecure)"));
    }
    Ok(NbdEndpoint { listener, address, tls: security.tls.clone() })
}

fn listen_nvme(
    nvme: &NvmeAddress,
    insecure: bool,
    subsystem: &Arc<NvmeSubsystem>,
    log: &ServerLog,
) -> Result<NvmeEndpoint, Problem> {
    let listener = Listener::tcp(&nvme.host, nvme.port).map_err(|error| {
        let what = format!("cannot listen at nvme-tcp={nvme}");
        Problem::new(Code::ListenFailed, what, error.to_string(), listen_next(error))
            .transient(error == ListenError::InUse)
    })?;
    let local = listener.local_addr();
    let port = local.map_or(nvme.port, |local| local.port());
    let address = NvmeAddress { host: nvme.host.clone(), port };
    // No connection is accepted yet, so what is refused here was open to none.
    if !local.is_some_and(|local| is_loopback(local.ip())) && subsystem.secrets().is_none() {
        if !insecure {
            return Err(Problem::new(
                Code::ListenUnprotected,
                format!("nvme-tcp={nvme} can be reached from other machines"),
                "without secrets of hosts every machine could read and write what is there",
                "give --nvme-secrets FILE (docs/operations.md), listen at 127.0.0.1, or take the risk: --insecure",
            ));
        }
        log.note(&format!("nvme-tcp={address} is open to every machine that reaches it (--insecure)"));
    }
    Ok(NvmeEndpoint { listener, address, subsystem: subsystem.clone() })
}

/// Whether an address is this machine's own, also as IPv6 writes those of IPv4.
#[must_use]
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn mount(dir: &Path, read_only: bool, log: &ServerLog) -> Result<FuseMount, Problem> {
    let mount = FuseMount::new(dir, read_only).map_err(|error| {
        let what = format!("cannot mount at {}", dir.display());
        Problem::new(Code::MountFailed, what, error.to_string(), mount_next(error))
    })?;
    if mount.was_stale() {
        let dir = mount.dir().display();
        log.note(&format!("{dir}: a server that was killed had left its mount there; it is removed"));
    }
    Ok(mount)
}

/// The absolute path of a directory in which sockets can be made.
fn socket_directory(dir: &Path) -> Result<PathBuf, Problem> {
    let problem = |why: String, next| {
        let what = format!("no sockets can be made in {}", dir.display());
        Problem::new(Code::ListenFailed, what, why, next)
    };
    match std::fs::canonicalize(dir) {
        Ok(dir) if dir.is_dir() => Ok(dir),
        Ok(_) => Err(problem("it is not a directory".to_owned(), "name a directory")),
        Err(error) => Err(problem(error.to_string(), "make it: mkdir DIR")),
    }
}

fn mount_next(error: MountError) -> &'static str {
    match error {
        MountError::Missing => "make it: mkdir DIR",
        MountError::NotADirectory => "name an empty directory",
        MountError::NotEmpty => "name an empty directory: what is in this one would be hidden",
        MountError::InUse => {
            "choose another directory, or stop the server that serves there (`wattle status` lists servers)"
        }
        MountError::NoFuse => {
            "load the module (modprobe fuse), give the container /dev/fuse, or export nbd=unix:PATH, which needs neither"
        }
        MountError::NoHelper => "install fuse3, run as root, or export nbd=unix:PATH, which needs neither",
        MountError::HelperRefused => "see what it said; the directory must belong to this user",
        _ => "see the system's log; export nbd=unix:PATH needs no mount",
    }
}

pub(super) fn listen_next(error: ListenError) -> &'static str {
    match error {
        ListenError::InUse => {
            "choose another address, or stop what listens there (`wattle status` lists servers)"
        }
        ListenError::NotASocket => "choose another path; files that are no sockets are never removed",
        ListenError::NoAddress => "check the host name, or use an address like 127.0.0.1",
        _ => "check that the directory exists and belongs to this user; ports below 1024 need privileges",
    }
}
