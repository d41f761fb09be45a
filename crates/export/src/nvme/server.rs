//! Accepts connections and spreads them over the cores: each lives, whole, on the core with the
//! fewest.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wattle_engine::{VolumeError, VolumeRef};
use wattle_rt::{Core, CoreIx, Either, JoinHandle, Latch, Listener, Stream, race};

use super::connection::{self, Admitted, Namespace, NvmeShard};
use super::limits::UNPROVED_MAX;
use super::subsystem::{NvmeSubsystem, guid};
use crate::OUT_OF_DESCRIPTORS_PAUSE;
use crate::clients::connections::{Begun, Connections};
use crate::clients::limits::Limits;
use crate::clients::memory::Memory;

/// A volume that hosts find as a namespace.
#[derive(Clone)]
pub struct NvmeVolume {
    /// The volume.
    pub volume: VolumeRef,
    /// What tells it from every other volume, whatever it is called: its NSID and its NGUID come
    /// from this.
    pub identity: String,
}

/// The NVMe/TCP target.
#[derive(Debug)]
pub struct NvmeServer;

impl NvmeServer {
    /// Serves `volumes` as namespaces of `subsystem` to every host that connects to `listener`, on
    /// every core of the runtime, until [`NvmeServerHandle::stop`]. Several servers of one
    /// subsystem are several paths to it.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] if one of the volumes cannot be opened any more. Nothing is served
    /// then.
    pub async fn start(
        core: &Core,
        listener: Listener,
        subsystem: Arc<NvmeSubsystem>,
        volumes: Vec<NvmeVolume>,
        limits: Limits,
    ) -> Result<NvmeServerHandle, VolumeError> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let address = listener.local_addr().unwrap_or(unknown);
        let port = subsystem.open_port(address);
        let offer = Arc::new(NvmeOffer { subsystem, address, port, limits });
        let exports = NvmeNamespaces { offer, sizes: Rc::default() };
        exports.open_everywhere(core).await;
        for volume in volumes {
            if let Err(error) = exports.add(core, volume).await {
                exports.close_everywhere(core).await;
                return Err(error);
            }
        }
        let state = Rc::new(NvmeState {
            exports,
            stopping: Latch::new(),
            connections: Connections::new(core),
            unproved: RefCell::default(),
        });
        let accepting = core.spawn(accept(core.clone(), listener, state.clone()));
        Ok(NvmeServerHandle { state, accepting })
    }
}

/// A running target. Dropping the handle leaves it running.
pub struct NvmeServerHandle {
    state: Rc<NvmeState>,
    accepting: JoinHandle<()>,
}

impl NvmeServerHandle {
    /// Connections now, of all queues of all hosts.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.count()
    }

    /// What is offered, for changes of it.
    #[must_use]
    pub fn namespaces(&self) -> NvmeNamespaces {
        self.state.exports.clone()
    }

    /// Stops accepting, lets every command that was received in full finish and be answered, and
    /// closes the connections. Takes at most [`Limits::drain_time_max`]: commands that take longer
    /// are not answered, and go on in the volumes, which stay open.
    pub async fn stop(self, core: &Core) {
        self.state.stopping.set();
        self.accepting.await;
        self.state.connections.stop().await;
        self.state.exports.close_everywhere(core).await;
    }
}

/// What a target offers, and changes of it. Names are those of the volumes.
#[derive(Clone)]
pub struct NvmeNamespaces {
    offer: Arc<NvmeOffer>,
    /// What hosts were told, by NSID.
    sizes: Rc<RefCell<BTreeMap<u32, (VolumeRef, u64)>>>,
}

/// What does not change while a target runs.
struct NvmeOffer {
    subsystem: Arc<NvmeSubsystem>,
    address: SocketAddr,
    port: u16,
    limits: Limits,
}

impl NvmeOffer {
    /// The name of this target's shard on each core: its address, which outlives every shard.
    fn key(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }
}

impl NvmeNamespaces {
    async fn open_everywhere(&self, core: &Core) {
        for ix in 0..core.cores() {
            let offer = self.offer.clone();
            core.call(CoreIx(ix), move |core| async move {
                let shard = NvmeShard {
                    namespaces: RefCell::default(),
                    subsystem: offer.subsystem.clone(),
                    address: offer.address,
                    limits: offer.limits.clone(),
                    memory: Rc::new(Memory::new(&offer.limits, core.cores())),
                };
                core.put_local(offer.key(), Rc::new(shard));
            })
            .await;
        }
    }

    async fn close_everywhere(&self, core: &Core) {
        self.offer.subsystem.close_port(self.offer.port);
        let key = self.offer.key();
        for ix in 0..core.cores() {
            core.call(CoreIx(ix), move |core| async move { drop(core.take_local::<NvmeShard>(key)) }).await;
        }
    }

    /// Offers another volume; hosts that are connected hear of it.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] if it cannot be opened, or the target has ended; it is not offered
    /// then.
    pub async fn add(&self, core: &Core, added: NvmeVolume) -> Result<(), VolumeError> {
        let NvmeVolume { volume, identity } = added;
        let subsystem = &self.offer.subsystem;
        let (nsid, guid) = (subsystem.nsid(&identity), guid(&identity));
        let gate = subsystem.gate(core, nsid, &identity).await;
        let remains = volume.remains();
        for ix in 0..core.cores() {
            let (key, volume, gate) = (self.offer.key(), volume.clone(), gate.clone());
            let remains = remains.clone();
            let open = move |core: Core| async move {
                let shard = core.local::<NvmeShard>(key).ok_or(VolumeError::Stopped)?;
                let (volume, lane) = (volume.open(&core)?, gate.lane());
                let hidden = Cell::new(false);
                let namespace = Namespace { nsid, guid, volume, gate, lane, remains, hidden };
                shard.namespaces.borrow_mut().insert(nsid, Rc::new(namespace));
                Ok(())
            };
            if let Err(error) = core.call(CoreIx(ix), open).await {
                self.forget(core, nsid).await;
                return Err(error);
            }
        }
        let size_bytes = volume.size_bytes();
        self.sizes.borrow_mut().insert(nsid, (volume, size_bytes));
        self.offer.subsystem.changed(&[nsid]);
        Ok(())
    }

    /// From now on hosts do not find a volume, if none is connected. Returns how many hosts are,
    /// each of which may use it: they go on using it. Those count too that have gone and left
    /// commands under way.
    pub async fn hide(&self, core: &Core, name: &str) -> usize {
        let subsystem = &self.offer.subsystem;
        if subsystem.hosts() == 0 {
            self.set_hidden(core, name, true).await;
            // One may have come meanwhile, and found it on a core where it was not hidden yet.
            if subsystem.hosts() > 0 {
                self.show(core, name).await;
            }
        }
        let sizes = self.sizes.borrow();
        let hidden = sizes.values().filter(|(volume, _)| volume.name() == name);
        subsystem.hosts() + hidden.map(|(volume, _)| volume.remains().count()).sum::<usize>()
    }

    /// A volume that was hidden is found again; hosts that came meanwhile hear of it.
    pub async fn show(&self, core: &Core, name: &str) {
        if self.set_hidden(core, name, false).await {
            self.offer.subsystem.changed(&self.nsids(name));
        }
    }

    /// Forgets a volume; hosts that are connected hear of it.
    pub async fn remove(&self, core: &Core, name: &str) {
        for nsid in self.nsids(name) {
            self.forget(core, nsid).await;
            self.sizes.borrow_mut().remove(&nsid);
            self.offer.subsystem.changed(&[nsid]);
        }
    }

    /// Tells hosts of volumes that have another size than they were told.
    pub fn resize(&self) {
        let mut changed = Vec::new();
        for (nsid, (volume, told)) in self.sizes.borrow_mut().iter_mut() {
            let now = volume.size_bytes();
            if std::mem::replace(told, now) != now {
                changed.push(*nsid);
            }
        }
        if !changed.is_empty() {
            self.offer.subsystem.changed(&changed);
        }
    }

    fn nsids(&self, name: &str) -> Vec<u32> {
        let sizes = self.sizes.borrow();
        sizes.iter().filter(|(_, (volume, _))| volume.name() == name).map(|(nsid, _)| *nsid).collect()
    }

    async fn forget(&self, core: &Core, nsid: u32) {
        let key = self.offer.key();
        for ix in 0..core.cores() {
            core.call(CoreIx(ix), move |core| async move {
                let Some(shard) = core.local::<NvmeShard>(key) else { return };
                shard.namespaces.borrow_mut().remove(&nsid);
            })
            .await;
        }
    }

    /// Whether that was a change.
    async fn set_hidden(&self, core: &Core, name: &str, hidden: bool) -> bool {
        let key = self.offer.key();
        let mut changed = false;
        for nsid in self.nsids(name) {
            for ix in 0..core.cores() {
                changed |= core
                    .call(CoreIx(ix), move |core| async move {
                        let Some(shard) = core.local::<NvmeShard>(key) else { return false };
                        let namespaces = shard.namespaces.borrow();
                        namespaces.get(&nsid).is_some_and(|found| found.hidden.replace(hidden) != hidden)
                    })
                    .await;
            }
        }
        changed
    }
}

/// The accepting core's view of the target.
struct NvmeState {
    exports: NvmeNamespaces,
    stopping: Latch,
    connections: Connections,
    /// Connections whose host has not proved its name yet, or only asks what there is.
    unproved: RefCell<BTreeMap<u64, Arc<AtomicBool>>>,
}

impl NvmeState {
    /// Of connections that any host can have, the oldest make way.
    fn make_way(&self) {
        let mut unproved = self.unproved.borrow_mut();
        unproved.retain(|_, proved| !proved.load(Ordering::Relaxed));
        while unproved.len() >= UNPROVED_MAX
            && let Some((id, _)) = unproved.pop_first()
        {
            self.connections.tell(id);
        }
    }
}

async fn accept(core: Core, listener: Listener, state: Rc<NvmeState>) {
    let connections_max = state.exports.offer.limits.connections_max as usize;
    loop {
        match race(core.accept(&listener), state.stopping.wait()).await {
            // An idle queue is in use all the same: none of a host that has proved its name makes
            // way for another one. A host that says nothing is given up by its first command's
            // deadline or its keep-alive time.
            Either::First(Ok(stream)) if state.connections.count() >= connections_max => {
                stream.shutdown();
            }
            Either::First(Ok(stream)) => admit(&core, &state, stream),
            Either::First(Err(_)) => core.sleep(OUT_OF_DESCRIPTORS_PAUSE).await,
            Either::Second(()) => return,
        }
    }
}

/// Starts a connection.
fn admit(core: &Core, state: &Rc<NvmeState>, stream: Stream) {
    state.make_way();
    let Begun { id, core: ix, stop } = state.connections.begin();
    let proved = Arc::new(AtomicBool::new(false));
    state.unproved.borrow_mut().insert(id, proved.clone());
    let key = state.exports.offer.key();
    let ended = core.call(ix, move |core| async move {
        let shard = core.local::<NvmeShard>(key).expect("shards outlive the connections");
        connection::serve(core, shard, stream, Admitted { id, stop, proved }).await;
    });
    let state = state.clone();
    core.spawn(async move {
        ended.await;
        state.unproved.borrow_mut().remove(&id);
        state.connections.end(id, ix);
    });
}
