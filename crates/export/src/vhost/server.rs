//! A directory of sockets, one for each volume: hypervisors connect there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::VolumeRef;
use wattle_rt::sync::{Latch, Notify};
use wattle_rt::{Core, Either, IoError, JoinHandle, ListenError, Listener, Stream, race};

use super::disk::{Disk, FaultReport, Told};
use super::session::{SessionFault, converse, mapping_share};

/// Hypervisors that one volume has at a time.
const SESSIONS_MAX: usize = 64;

/// Why a volume cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot listen at {}: {error}", path.display())]
pub struct SocketError {
    /// The socket's path.
    pub path: PathBuf,
    /// What is in the way.
    pub error: ListenError,
    /// The volume of this server whose socket has that path already.
    pub taken_by: Option<String>,
}

/// What an operator should know of a connection: the socket, and which rule was broken.
type FaultListener = Rc<dyn Fn(&Path, &SessionFault)>;

/// Offers volumes to hypervisors as sockets in a directory. Clones are one server.
#[derive(Clone)]
pub struct VhostServer(Rc<Server>);

struct Server {
    core: Core,
    dir: PathBuf,
    disks: RefCell<BTreeMap<String, Offered>>,
    stopped: Cell<bool>,
    tell: FaultListener,
}

/// A volume that is offered.
struct Offered {
    disk: Rc<Disk>,
    hidden: Rc<Cell<bool>>,
    stopping: Rc<Latch>,
    accepting: JoinHandle<()>,
}

/// The path of a volume's socket.
#[must_use]
pub fn socket_of(dir: &Path, volume: &str) -> PathBuf {
    let safe = |c: char| if c == '/' || c.is_control() { '-' } else { c };
    dir.join(volume.chars().map(safe).collect::<String>() + ".sock")
}

impl VhostServer {
    /// Offers volumes in a directory; `tell` hears of connections that were ended, and of queues
    /// that were stopped, because the other side broke the rules.
    ///
    /// # Errors
    /// One of the sockets cannot be made. Nothing is offered then.
    pub async fn start(
        core: &Core,
        dir: PathBuf,
        volumes: Vec<VolumeRef>,
        tell: impl Fn(&Path, &SessionFault) + 'static,
    ) -> Result<Self, SocketError> {
        let (disks, stopped) = (RefCell::default(), Cell::new(false));
        let server = Self(Rc::new(Server { core: core.clone(), dir, disks, stopped, tell: Rc::new(tell) }));
        for volume in volumes {
            if let Err(error) = server.add(volume).await {
                server.stop().await;
                return Err(error);
            }
        }
        Ok(server)
    }

    /// Where the sockets are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Offers another volume. The core serves its clients meanwhile.
    ///
    /// # Errors
    /// Its socket cannot be made, or the server has been stopped.
    pub async fn add(&self, volume: VolumeRef) -> Result<PathBuf, SocketError> {
        let name = volume.name().to_owned();
        let path = socket_of(&self.0.dir, &name);
        let fault = |error| {
            let is_taken = |other: &&String| socket_of(&self.0.dir, other) == path;
            let taken_by = self.0.disks.borrow().keys().find(is_taken).cloned();
            SocketError { path: path.clone(), error, taken_by }
        };
        let ended = || fault(ListenError::Other(IoError::from_errno(libc::ESHUTDOWN)));
        if self.0.stopped.get() {
            return Err(ended());
        }
        // What is at the path is looked at under a lock, and its file system may hang.
        let at = path.clone();
        let listening = self.0.core.offload(move || Listener::unix_for_descriptors(&at)).await;
        let listener = listening.unwrap_or_else(|error| Err(error.into())).map_err(fault)?.reserved();
        if self.0.stopped.get() {
            return Err(ended());
        }
        let disk = Rc::new(Disk {
            remains: volume.remains(),
            volume,
            sessions: RefCell::default(),
            one_ended: Notify::new(),
            first_core: Cell::new(self.0.core.index().0),
            report: self.report(&path),
            mappings: mapping_share(),
        });
        let (hidden, stopping) = (Rc::new(Cell::new(false)), Rc::new(Latch::new()));
        let accept = Accepting {
            core: self.0.core.clone(),
            listener,
            disk: disk.clone(),
            hidden: hidden.clone(),
            stopping: stopping.clone(),
        };
        let accepting = self.0.core.spawn(accept.run());
        let offered = Offered { disk, hidden, stopping, accepting };
        self.0.disks.borrow_mut().insert(name, offered);
        Ok(path)
    }

    fn report(&self, path: &Path) -> FaultReport {
        let (tell, path) = (self.0.tell.clone(), path.to_owned());
        FaultReport { tell: Box::new(move |fault| tell(&path, fault)), told_at: Cell::new(None) }
    }

    /// Takes a volume out of view, or brings it back: no hypervisor can connect to it meanwhile.
    /// Returns how many have it.
    pub fn hide(&self, name: &str, hide: bool) -> usize {
        let disks = self.0.disks.borrow();
        disks.get(name).map_or(0, |offered| {
            offered.hidden.set(hide);
            offered.disk.sessions.borrow().len()
        })
    }

    /// Takes a volume away: its connections end once what was begun is done.
    pub async fn remove(&self, name: &str) {
        let offered = self.0.disks.borrow_mut().remove(name);
        if let Some(offered) = offered {
            offered.end().await;
        }
    }

    /// Tells every hypervisor to look at its volume's size.
    pub fn resized(&self) {
        for offered in self.0.disks.borrow().values() {
            offered.disk.sessions.borrow().iter().for_each(|told| told.resized.set());
        }
    }

    /// How many hypervisors are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        let disks = self.0.disks.borrow();
        disks.values().map(|offered| offered.disk.sessions.borrow().len()).sum()
    }

    /// Lets every request that was begun finish, and ends all connections. The volumes stay open.
    pub async fn stop(&self) {
        self.0.stopped.set(true);
        let disks = self.0.disks.take();
        for offered in disks.values() {
            offered.stopping.set();
            offered.disk.sessions.borrow().iter().for_each(|told| told.stop.set());
        }
        for offered in disks.into_values() {
            offered.end().await;
        }
    }
}

impl Offered {
    async fn end(self) {
        self.stopping.set();
        self.accepting.await;
        self.disk.sessions.borrow().iter().for_each(|told| told.stop.set());
        while !self.disk.sessions.borrow().is_empty() {
            self.disk.one_ended.wait().await;
        }
    }
}

/// What takes connections to one volume.
struct Accepting {
    core: Core,
    listener: Listener,
    disk: Rc<Disk>,
    hidden: Rc<Cell<bool>>,
    stopping: Rc<Latch>,
}

impl Accepting {
    async fn run(self) {
        /// A failing accept mostly means that descriptors are short: connections that end free
        /// some.
        const PAUSE: Duration = Duration::from_millis(100);
        loop {
            match race(self.core.accept(&self.listener), self.stopping.wait()).await {
                Either::First(Ok(stream)) => self.begin(stream),
                Either::First(Err(_)) => self.core.sleep(PAUSE).await,
                Either::Second(()) => return,
            }
        }
    }

    fn begin(&self, stream: Stream) {
        if self.hidden.get() || self.disk.sessions.borrow().len() >= SESSIONS_MAX {
            return stream.shutdown();
        }
        let (core, disk) = (self.core.clone(), self.disk.clone());
        // It counts from here on: a server that stops finds it even before its first turn.
        let told = Rc::new(Told::default());
        disk.sessions.borrow_mut().push(told.clone());
        self.core.spawn(async move {
            if let Err(fault) = converse(core.clone(), disk.clone(), stream, told).await {
                disk.report.tell(core.now(), &fault);
            }
        });
    }
}
