//! Where clients connect: listening and mounting there, and the ways that lead there.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wattle_control::stack::LogicalId;
use wattle_control::{Code, Problem};
use wattle_engine::VolumeRef;
use wattle_export::fuse::{self, Files, StartError, Stopped, Transport};
use wattle_export::nbd::{self, Export, Limits, TlsNote, TurnedAway};
use wattle_export::nvme::{NvmeNamespaces, NvmeServer, NvmeServerHandle, NvmeSubsystem, NvmeVolume};
use wattle_export::vhost::{SessionFault, SocketError, VhostServer, socket_of};
pub use wattle_export::{Address, NbdAddress, NvmeAddress};
use wattle_rt::fuse::{FuseMount, MountError};
use wattle_rt::{Core, IoError, ListenError, Listener};
use wattle_tls::{ServerTls, TlsClients};

use crate::log::ServerLog;
use crate::socket::check_socket_path;

/// A volume that is being served.
#[derive(Clone)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// Itself.
    pub volume: VolumeRef,
    /// For clients that list what there is.
    pub description: String,
    /// The ways to it.
    pub exports: Vec<String>,
    /// What tells it from every other volume, whatever it is called: NVMe hosts know it by this.
    pub identity: String,
    /// Which logical volume it is, if it is one.
    pub lv: Option<LogicalId>,
    /// It is what an NBD client gets that names none: it was alone when the server started.
    pub is_default: bool,
    /// Nothing was recognised on it when the server started.
    pub is_blank: bool,
}

/// The identity of a logical volume, for [`Offered::identity`].
pub fn logical_identity(id: &LogicalId) -> String {
    format!("{}/{}", id.group, id.volume)
}

/// A place where clients will find the volumes; no client is served yet.
pub enum Endpoint {
    /// For NBD clients.
    Nbd(NbdEndpoint),
    /// For programs that open files.
    Fuse(FuseMount),
    /// For hypervisors: a directory of sockets.
    Vhost(PathBuf),
    /// For NVMe hosts.
    Nvme(NvmeEndpoint),
}

/// A listening socket and how to reach it.
pub struct NbdEndpoint {
    listener: Listener,
    address: NbdAddress,
    /// Clients have to speak TLS, and are shown this.
    tls: Option<Arc<ServerTls>>,
}

/// A listening socket, and whose namespaces hosts find there.
pub struct NvmeEndpoint {
    listener: Listener,
    address: NvmeAddress,
    subsystem: Arc<NvmeSubsystem>,
}

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

/// Makes the place at an address; NVMe hosts find `subsystem` there.
///
/// # Errors
/// The socket is in use or cannot be made, it would be open to the network unprotected, nothing can
/// be mounted in the directory, or the kind of export is not offered.
pub fn prepare(
    address: &Address,
    read_only: bool,
    security: &NbdSecurity,
    subsystem: &Arc<NvmeSubsystem>,
    log: &ServerLog,
) -> Result<Endpoint, Problem> {
    match address {
        Address::Nbd(nbd) => listen(nbd, security, log).map(Endpoint::Nbd),
        Address::Fuse(dir) => mount(dir, read_only, log).map(Endpoint::Fuse),
        Address::VhostUser(dir) => socket_directory(dir).map(Endpoint::Vhost),
        Address::NvmeTcp(nvme) => listen_nvme(nvme, security.insecure, subsystem, log).map(Endpoint::Nvme),
        other => Err(Problem::new(
            Code::NotSupportedYet,
            format!("--export {other}"),
            "this version offers nbd, nvme-tcp, fuse and vhost-user only",
            "use nbd=unix:PATH, nbd=tcp:HOST:PORT, nvme-tcp=HOST:PORT, fuse=DIR or vhost-user=DIR",
        )),
    }
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
    /// The way to an array, of which there are so many: for NBD the URI of its export, a single one
    /// being the default export whose name is empty; for NVMe where the subsystem is, and its name;
    /// else the path of its file.
    pub fn way(&self, array: &str, arrays: usize) -> String {
        match self {
            Self::Nbd(nbd) => uri(&nbd.address, nbd.tls.is_some(), if arrays == 1 { "" } else { array }),
            Self::Fuse(mount) => file_of(mount.dir(), array),
            Self::Vhost(dir) => socket_of(dir, array).to_string_lossy().into_owned(),
            Self::Nvme(nvme) => nvme_uri(&nvme.address, &nvme.subsystem),
        }
    }

    /// The environment of the command of `--run`: the first array, under nbdkit's names; a file has
    /// its path as `file`, a hypervisor's socket as `unixsocket`.
    pub fn environment(&self, array: &str, arrays: usize) -> Vec<(&'static str, String)> {
        let way = self.way(array, arrays);
        let nbd = match self {
            Self::Nbd(nbd) => nbd,
            Self::Fuse(_) => return vec![("file", way)],
            Self::Vhost(_) => return vec![("unixsocket", way)],
            Self::Nvme(nvme) => {
                return vec![
                    ("nvme_host", nvme.address.host.clone()),
                    ("nvme_port", nvme.address.port.to_string()),
                    ("nvme_nqn", nvme.subsystem.nqn().to_owned()),
                ];
            }
        };
        let export = if arrays == 1 { "" } else { array };
        let mut env = vec![("nbd", way.clone()), ("uri", way), ("exportname", export.to_owned())];
        env.push(match &nbd.address {
            NbdAddress::Unix(path) => ("unixsocket", path.display().to_string()),
            NbdAddress::Tcp { port, .. } => ("port", port.to_string()),
        });
        env
    }

    /// Serves all volumes there.
    ///
    /// # Errors
    /// An array was stopped meanwhile, or the kernel does not do its part.
    pub async fn start(
        self,
        core: &Core,
        offered: &[Offered],
        log: &ServerLog,
    ) -> Result<(RunningExport, ExportPlace), Problem> {
        match self {
            Self::Nbd(nbd) => {
                let exports = offered.iter().map(|offered| Export {
                    volume: offered.volume.clone(),
                    description: offered.description.clone(),
                });
                let (secured, limits) = (nbd.tls.is_some(), Limits::default());
                let exports = exports.collect();
                let started = nbd::NbdServer::start_secured(core, nbd.listener, exports, limits, nbd.tls);
                let handle = started.await.map_err(|error| start_problem(&error.into()))?;
                let (address, log) = (nbd.address.clone(), log.clone());
                let (at, tls_log) = (nbd.address.clone(), log.clone());
                handle.on_crowd(move |crowd| tell_crowd(&log, &address, crowd));
                handle.on_tls(move |note| tell_tls(&tls_log, &at, note));
                let place = ExportPlace::Nbd(handle.exports(), nbd.address, secured);
                Ok((RunningExport::Nbd(handle), place))
            }
            Self::Fuse(mount) => {
                let volumes = offered.iter().map(|offered| offered.volume.clone()).collect();
                let handle = fuse::FuseServer::start(core, mount, volumes, Transport::Best)
                    .await
                    .map_err(|error| start_problem(&error))?;
                let place = ExportPlace::Fuse(handle.files(), handle.dir().to_owned());
                Ok((RunningExport::Fuse(handle), place))
            }
            Self::Vhost(dir) => {
                let volumes = offered.iter().map(|offered| offered.volume.clone()).collect();
                let log = log.clone();
                let tell = move |socket: &Path, fault: &SessionFault| {
                    let what = match fault {
                        SessionFault::Ring(..) => "a guest breaks the rules, and waits until it starts anew",
                        _ => "a hypervisor was cut off",
                    };
                    log.note(&format!("{}: {what}: {fault}", socket.display()));
                };
                let server = VhostServer::start(core, dir, volumes, tell).await;
                let server = server.map_err(|error| socket_problem(&error))?;
                Ok((RunningExport::Vhost(server.clone()), ExportPlace::Vhost(server)))
            }
            Self::Nvme(nvme) => {
                let volumes = offered.iter().map(nvme_volume).collect();
                let NvmeEndpoint { listener, address, subsystem } = nvme;
                let started =
                    NvmeServer::start(core, listener, subsystem.clone(), volumes, Limits::default());
                let handle = started.await.map_err(|error| start_problem(&error.into()))?;
                let place = ExportPlace::Nvme(handle.namespaces(), address, subsystem);
                Ok((RunningExport::Nvme(handle), place))
            }
        }
    }
}

fn nvme_volume(offered: &Offered) -> NvmeVolume {
    NvmeVolume { volume: offered.volume.clone(), identity: offered.identity.clone() }
}

fn tell_crowd(log: &ServerLog, address: &NbdAddress, crowd: &TurnedAway) {
    let limit = Limits::default().connections_max;
    let TurnedAway { closed, refused } = crowd;
    log.note(&format!(
        "nbd={address}: {limit} clients are connected, which is all there may be; idle ones closed for new ones: {closed}; \
         new ones refused as none was idle: {refused}"
    ));
}

fn tell_tls(log: &ServerLog, address: &NbdAddress, note: &TlsNote) {
    log.note(&match note {
        TlsNote::Refused(1, fault) => {
            format!("nbd={address}: a client was refused in its TLS handshake: {fault}")
        }
        TlsNote::Refused(count, fault) => {
            format!(
                "nbd={address}: {count} clients were refused in their TLS handshakes, the last one: {fault}"
            )
        }
        TlsNote::Files(error) => {
            let next = error.next();
            format!("nbd={address}: clients are shown the certificate from before: {error}; next: {next}")
        }
    });
}

fn start_problem(error: &StartError) -> Problem {
    let (why, next) = match error {
        StartError::Volume(_) => ("the array stopped while it was being started", "try again"),
        StartError::Names(_) => {
            ("files are named by volumes", "serve them with two servers: -V names volumes")
        }
        _ => ("the kernel's FUSE does not do its part", "export nbd=unix:PATH, which does without"),
    };
    Problem::new(Code::ServerFailed, error.to_string(), why, next)
}

fn socket_problem(error: &SocketError) -> Problem {
    let what = format!("cannot listen at {}", error.path.display());
    Problem::new(Code::ListenFailed, what, error.error.to_string(), listen_next(error.error))
        .transient(error.error == ListenError::InUse)
}

fn file_of(dir: &Path, array: &str) -> String {
    dir.join(fuse::tree::path_of(array)).to_string_lossy().into_owned()
}

/// An export whose clients are being served.
pub enum RunningExport {
    /// To NBD clients.
    Nbd(nbd::NbdServerHandle),
    /// As files.
    Fuse(fuse::FuseServerHandle),
    /// To hypervisors.
    Vhost(VhostServer),
    /// To NVMe hosts.
    Nvme(NvmeServerHandle),
}

impl RunningExport {
    /// Lets requests that were begun finish, and serves no client any more.
    pub async fn stop(self, core: &Core, log: &ServerLog) {
        let fuse = match self {
            Self::Nbd(nbd) => return nbd.stop(core).await,
            Self::Vhost(vhost) => return vhost.stop().await,
            Self::Nvme(nvme) => return nvme.stop(core).await,
            Self::Fuse(fuse) => fuse,
        };
        let dir = fuse.dir().to_string_lossy().into_owned();
        match fuse.stop(core).await {
            Stopped::Unmounted => {}
            Stopped::InUse => log.note(&format!(
                "{dir}: files there are in use; it is given back all the same, and their programs get errors from now on"
            )),
            Stopped::StillMounted(error) => log.note(&format!(
                "{dir}: stays mounted ({error}); the next server there removes it, or `umount -l`"
            )),
        }
    }
}

/// Where volumes are offered, to offer others there and take some away.
#[derive(Clone)]
pub enum ExportPlace {
    /// Exports of NBD, where clients connect, and whether they speak TLS there.
    Nbd(nbd::Exports, NbdAddress, bool),
    /// Files, and where they are.
    Fuse(Files, PathBuf),
    /// Sockets for hypervisors.
    Vhost(VhostServer),
    /// Namespaces, where hosts connect, and the subsystem that they are of.
    Nvme(NvmeNamespaces, NvmeAddress, Arc<NvmeSubsystem>),
}

impl ExportPlace {
    /// Offers a volume; the way to it.
    ///
    /// # Errors
    /// It cannot be offered here.
    pub async fn add(&self, core: &Core, offered: &Offered) -> Result<String, Problem> {
        let (name, volume) = (&offered.name, offered.volume.clone());
        let added = match self {
            Self::Nbd(exports, ..) => {
                let export = Export { volume, description: offered.description.clone() };
                exports.add(core, export, offered.is_default).await.map_err(StartError::from)
            }
            Self::Fuse(files, _) => files.add(core, volume).await,
            Self::Vhost(server) => {
                let path = server.add(volume).map_err(|error| socket_problem(&error))?;
                return Ok(path.to_string_lossy().into_owned());
            }
            Self::Nvme(namespaces, ..) => {
                namespaces.add(core, nvme_volume(offered)).await.map_err(StartError::from)
            }
        };
        added.map_err(|error| start_problem(&error))?;
        Ok(match self {
            Self::Nbd(_, address, secured) => {
                uri(address, *secured, if offered.is_default { "" } else { name })
            }
            Self::Fuse(_, dir) => file_of(dir, name),
            Self::Vhost(server) => socket_of(server.dir(), name).to_string_lossy().into_owned(),
            Self::Nvme(_, address, subsystem) => nvme_uri(address, subsystem),
        })
    }

    /// Takes a volume out of view: no client can open it any more. Returns what has it open, if
    /// anything.
    pub async fn hide(&self, core: &Core, name: &str) -> Option<String> {
        let times = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            _ => Some(format!("{count} {what}s")),
        };
        match self {
            Self::Nbd(exports, ..) => times(exports.hide(core, name).await, "NBD client"),
            Self::Fuse(files, _) => times(files.hide(core, name, true).await as usize, "open file"),
            Self::Vhost(server) => times(server.hide(name, true), "hypervisor"),
            Self::Nvme(namespaces, ..) => times(namespaces.hide(core, name).await, "NVMe host"),
        }
    }

    /// Lets a volume be found again.
    pub async fn show(&self, core: &Core, name: &str) {
        match self {
            Self::Nbd(exports, ..) => exports.show(core, name).await,
            Self::Fuse(files, _) => drop(files.hide(core, name, false).await),
            Self::Vhost(server) => drop(server.hide(name, false)),
            Self::Nvme(namespaces, ..) => namespaces.show(core, name).await,
        }
    }

    /// Takes a volume away.
    pub async fn remove(&self, core: &Core, name: &str) {
        match self {
            Self::Nbd(exports, ..) => exports.remove(core, name).await,
            Self::Fuse(files, _) => drop(files.hide(core, name, true).await),
            Self::Vhost(server) => server.remove(name).await,
            Self::Nvme(namespaces, ..) => namespaces.remove(core, name).await,
        }
    }

    /// Lets files, guests' disks and namespaces be as large as their volumes.
    ///
    /// # Errors
    /// The kernel was not told.
    pub async fn resize(&self, core: &Core) -> Result<(), IoError> {
        match self {
            Self::Nbd(..) => Ok(()),
            Self::Fuse(files, _) => files.resize(core).await,
            Self::Vhost(server) => {
                server.resized();
                Ok(())
            }
            Self::Nvme(namespaces, ..) => {
                namespaces.resize();
                Ok(())
            }
        }
    }

    /// The files, if that is what volumes are here.
    pub fn files(&self) -> Option<&Files> {
        match self {
            Self::Nbd(..) | Self::Nvme(..) | Self::Vhost(_) => None,
            Self::Fuse(files, _) => Some(files),
        }
    }
}

/// Where an NVMe subsystem is found, and its name: what `nvme connect` takes, in the form of a URI.
fn nvme_uri(address: &NvmeAddress, subsystem: &NvmeSubsystem) -> String {
    format!("nvme+tcp://{address}/{}", percent(subsystem.nqn(), ":"))
}

/// The URI of an export, by the NBD URI specification; the empty name is the default export.
fn uri(address: &NbdAddress, secured: bool, export: &str) -> String {
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
