//! Where clients connect: listening and mounting there, and the ways that lead there.

mod prepare;
mod uri;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wattle_control::shell_word;
use wattle_control::stack::LogicalId;
use wattle_control::{Code, Problem};
use wattle_engine::VolumeRef;
use wattle_export::fuse::{self, Files, StartError, Stopped, Transport};
use wattle_export::nbd::{self, Export, Limits, TlsNote, TurnedAway};
use wattle_export::nvme::{NvmeNamespaces, NvmeServer, NvmeServerHandle, NvmeSubsystem, NvmeVolume};
use wattle_export::ublk::{UblkLinks, UblkNote, UblkServer, UblkVolume};
use wattle_export::vhost::{SessionFault, SocketError, VhostServer, socket_of};
pub use wattle_export::{Address, NbdAddress, NvmeAddress, UblkAddress};
use wattle_rt::fuse::FuseMount;
use wattle_rt::ublk::UblkControl;
use wattle_rt::{Core, ListenError, Listener};
use wattle_tls::ServerTls;

use crate::log::ServerLog;
use crate::socket::check_socket_path;
pub use prepare::{ExportSettings, NbdSecurity, is_loopback, prepare, ublk_problem_of};
use prepare::{listen_next, ublk_problem};
pub use uri::parse_uri;
use uri::{file_of, nvme_uri, uri};

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
    /// What tells it from every other volume, whatever it is called: NVMe hosts and block devices
    /// of this machine know it by this, also after a restart.
    pub identity: String,
    /// Which logical volume it is, if it is one.
    pub lv: Option<LogicalId>,
    /// It is what an NBD client gets that names none: it was alone when the server started.
    pub is_default: bool,
    /// Nothing was recognised on it when the server started.
    pub is_blank: bool,
}

/// The identity of a volume that is made up, for [`Offered::identity`]: it has no content that
/// another server could go on with.
#[must_use]
pub fn of_this_process(name: &str) -> String {
    format!("{name} of process {}", std::process::id())
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
    /// For this machine: block devices.
    Ublk(UblkEndpoint),
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

/// The way to the driver, and how devices are numbered and named.
pub struct UblkEndpoint {
    control: UblkControl,
    first: Option<u32>,
    links: UblkLinks,
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
            Self::Ublk(ublk) => ublk.links.of(array).to_string_lossy().into_owned(),
        }
    }

    /// The environment of the command of `--run`: the first array, under nbdkit's names; a file has
    /// its path as `file`, a block device as `device`, a hypervisor's socket as `unixsocket`.
    pub fn environment(&self, array: &str, arrays: usize) -> Vec<(&'static str, String)> {
        let way = self.way(array, arrays);
        let nbd = match self {
            Self::Nbd(nbd) => nbd,
            Self::Fuse(_) => return vec![("file", way)],
            Self::Vhost(_) => return vec![("unixsocket", way)],
            Self::Ublk(_) => return vec![("device", way)],
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
                let (dir, log) = (handle.dir().display().to_string(), log.clone());
                handle.on_gone(move || {
                    log.note(&format!(
                        "{dir}: another program has unmounted it: no volume is a file there any more; for files there again, stop this server and start it anew"
                    ));
                });
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
            Self::Ublk(UblkEndpoint { control, first, links }) => {
                let (volumes, log) = (offered.iter().map(ublk_volume).collect(), log.clone());
                let tell = move |volume: &str, note: &UblkNote| tell_ublk(&log, volume, note);
                let server = UblkServer::start(core, control, first, links, volumes, tell).await;
                let server = server.map_err(|error| ublk_problem(&error))?;
                Ok((RunningExport::Ublk(server.clone()), ExportPlace::Ublk(server)))
            }
        }
    }
}

fn nvme_volume(offered: &Offered) -> NvmeVolume {
    NvmeVolume { volume: offered.volume.clone(), identity: offered.identity.clone() }
}

fn ublk_volume(offered: &Offered) -> UblkVolume {
    UblkVolume { volume: offered.volume.clone(), identity: offered.identity.clone() }
}

fn tell_ublk(log: &ServerLog, volume: &str, note: &UblkNote) {
    log.note(&match note {
        UblkNote::Made(path) => format!("{volume} is {}", path.display()),
        UblkNote::MadeForServer(path) => format!(
            "{volume} is {}, as long as this server lives: it is not root, so no later server can go on with the device, and the kernel kills \
             it where a request takes 30 s",
            path.display()
        ),
        UblkNote::EndedInUse(path) => format!(
            "{}: it was in use, and has ended with this server, which is not root: its programs get errors from now on",
            path.display()
        ),
        UblkNote::TakenOver(path) => {
            format!("{volume} is {} again: what waited there since its last server ended goes on", path.display())
        }
        UblkNote::KeepsSize(path, error) => format!(
            "{}: {volume} has grown, and its block device keeps the size that it had ({error}): it is larger after the next start, if it is \
             unmounted before",
            path.display()
        ),
        UblkNote::Left(path) => format!(
            "{}: it is in use, or was left by another server, and stays; what is asked of it waits until {volume} is served again (`wattle umount {}` removes \
             it once it is unmounted)",
            path.display(),
            path.display()
        ),
        UblkNote::NotWritten(path, error) => {
            format!("{}: what programs wrote last may not have reached the volume ({error})", path.display())
        }
        UblkNote::Stays(path, error) => {
            format!("{}: it could not be removed ({error}); `wattle umount {}` tries again", path.display(), path.display())
        }
        UblkNote::Orphan(path) => format!(
            "{}: a server that is gone has left it, and it is none of these volumes; `wattle umount {}` removes it",
            path.display(),
            path.display()
        ),
    });
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
    if let Err(why) = check_socket_path(&error.path) {
        let next = "name a directory with a shorter path, or rename the volume";
        return Problem::new(Code::ListenFailed, what, why, next);
    }
    if let Some(other) = &error.taken_by {
        let why = format!("it is the socket of the volume {other} of this server");
        let next = "serve the two with two servers, in two directories: -V names volumes";
        return Problem::new(Code::ListenFailed, what, why, next);
    }
    Problem::new(Code::ListenFailed, what, error.error.to_string(), listen_next(error.error))
        .transient(error.error == ListenError::InUse)
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
    /// As block devices.
    Ublk(UblkServer),
}

impl RunningExport {
    /// Lets requests that were begun finish, and serves no client any more.
    pub async fn stop(self, core: &Core, log: &ServerLog) {
        let fuse = match self {
            Self::Nbd(nbd) => return nbd.stop(core).await,
            Self::Vhost(vhost) => return vhost.stop().await,
            Self::Nvme(nvme) => return nvme.stop(core).await,
            Self::Ublk(ublk) => return ublk.stop().await,
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

/// A volume's file or device is in use.
pub struct VolumeUse {
    /// How often.
    pub times: u32,
    /// The commands that tell by what.
    pub looks: String,
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
    /// Block devices.
    Ublk(UblkServer),
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
                let path = server.add(volume).await.map_err(|error| socket_problem(&error))?;
                return Ok(path.to_string_lossy().into_owned());
            }
            Self::Nvme(namespaces, ..) => {
                namespaces.add(core, nvme_volume(offered)).await.map_err(StartError::from)
            }
            Self::Ublk(server) => {
                let link = server.add(ublk_volume(offered)).await.map_err(|error| ublk_problem(&error))?;
                return Ok(link.to_string_lossy().into_owned());
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
            Self::Ublk(server) => server.link_of(name).to_string_lossy().into_owned(),
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
            Self::Ublk(server) => {
                times(usize::from(!server.hide(name).await), "mount or other use of its device")
            }
        }
    }

    /// Lets a volume be found again.
    pub async fn show(&self, core: &Core, name: &str) {
        match self {
            Self::Nbd(exports, ..) => exports.show(core, name).await,
            Self::Fuse(files, _) => drop(files.hide(core, name, false).await),
            Self::Vhost(server) => drop(server.hide(name, false)),
            Self::Nvme(namespaces, ..) => namespaces.show(core, name).await,
            Self::Ublk(server) => server.show(name).await,
        }
    }

    /// Takes a volume away.
    pub async fn remove(&self, core: &Core, name: &str) {
        match self {
            Self::Nbd(exports, ..) => exports.remove(core, name).await,
            Self::Fuse(files, _) => drop(files.hide(core, name, true).await),
            Self::Vhost(server) => server.remove(name).await,
            Self::Nvme(namespaces, ..) => namespaces.remove(core, name).await,
            Self::Ublk(server) => server.remove(name).await,
        }
    }

    /// Lets files, guests' disks, namespaces and devices be as large as their volumes; what is to
    /// be known of those that are not.
    pub async fn resize(&self, core: &Core, offered: &[Offered]) -> Vec<String> {
        let mut notes = Vec::new();
        match self {
            Self::Nbd(..) => {}
            Self::Fuse(files, _) => {
                if let Err(error) = files.resize(core).await {
                    notes.push(format!("the kernel sees the new size within a minute ({error})"));
                }
            }
            Self::Vhost(server) => server.resized(),
            Self::Nvme(namespaces, ..) => namespaces.resize(),
            Self::Ublk(server) => {
                for Offered { name, volume, .. } in offered {
                    if let Err(error) = server.resize(name, volume.size_bytes()).await {
                        notes.push(format!(
                            "{name}: its block device is larger only after the next start: unmount it before ({error})"
                        ));
                    }
                }
            }
        }
        notes
    }

    /// What uses the file or device of a volume, as far as the system says. Of a device that
    /// nothing uses nothing can begin to, until it is [given back](Self::give_back) or removed.
    pub async fn take(&self, volume: &str) -> Option<VolumeUse> {
        let (times, looks) = match self {
            Self::Nbd(..) | Self::Nvme(..) | Self::Vhost(_) => return None,
            Self::Fuse(files, dir) => {
                let file = shell_word(&file_of(dir, volume));
                (files.opens(volume), format!("`losetup -j {file}` and `fuser {file}`"))
            }
            Self::Ublk(server) => {
                let device = shell_word(&server.link_of(volume).to_string_lossy());
                (u32::from(!server.hide(volume).await), format!("`lsblk {device}` and `fuser {device}`"))
            }
        };
        (times > 0).then_some(VolumeUse { times, looks })
    }

    /// Lets a device that was taken be used again.
    pub async fn give_back(&self, volume: &str) {
        if let Self::Ublk(server) = self {
            server.show(volume).await;
        }
    }

    /// Whether a way that led to a volume leads there no more: another program took it away.
    pub fn has_lost(&self, volume: &str, way: &str) -> bool {
        match self {
            Self::Nbd(..) | Self::Nvme(..) | Self::Vhost(_) | Self::Ublk(_) => false,
            Self::Fuse(files, dir) => files.are_gone() && way == file_of(dir, volume),
        }
    }

    /// The files, if that is what volumes are here.
    pub fn files(&self) -> Option<&Files> {
        match self {
            Self::Nbd(..) | Self::Nvme(..) | Self::Vhost(_) | Self::Ublk(_) => None,
            Self::Fuse(files, _) => Some(files),
        }
    }
}
