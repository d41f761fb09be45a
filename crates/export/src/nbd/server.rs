//! Accepts connections and spreads them over the cores.
//!
//! The core that started the server accepts; each connection then lives on the core with the fewest
//! of them, whole.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::volume::Remains;
use wattle_engine::{VolumeError, VolumeRef};
use wattle_rt::sync::{Latch, Semaphore};
use wattle_rt::{Core, CoreIx, Instant, JoinHandle, Listener, Stream};

use super::connection::{self, OpenExport, Shard, TlsFailure};
use super::limits::Limits;
use crate::OUT_OF_DESCRIPTORS_PAUSE;
use crate::clients::connections::{Begun, Connections};
use crate::clients::memory::{Idle, Memory};
use wattle_rt::{Either, race};
use wattle_tls::{ServerTls, TlsFault, TlsFileError};

/// Clients of a core that are told at a time what is allocated: each has a thread that looks.
const LOOKING_MAX: usize = 2;

/// A volume and what clients are told about it. Clients ask for it by the volume's name.
#[derive(Clone)]
pub struct Export {
    /// The volume.
    pub volume: VolumeRef,
    /// A sentence for people; empty for none.
    pub description: String,
}

/// The NBD server.
#[derive(Debug)]
pub struct NbdServer;

impl NbdServer {
    /// Serves `exports` to every client that connects to `listener`, on every core of the runtime,
    /// until [`NbdServerHandle::stop`].
    ///
    /// A single export also answers to the empty name, and keeps it when others come. Of several
    /// exports of one name the first is found.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] if one of the volumes cannot be opened any more. Nothing is served
    /// then.
    pub async fn start(
        core: &Core,
        listener: Listener,
        exports: Vec<Export>,
        limits: Limits,
    ) -> Result<NbdServerHandle, VolumeError> {
        Self::start_secured(core, listener, exports, limits, None).await
    }

    /// The same, to clients that begin TLS before anything else, if there is `tls`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_secured(
        core: &Core,
        listener: Listener,
        exports: Vec<Export>,
        limits: Limits,
        tls: Option<Arc<ServerTls>>,
    ) -> Result<NbdServerHandle, VolumeError> {
        let with_remains = |export: Export| {
            let remains = export.volume.remains();
            (export, remains)
        };
        let exports = exports.into_iter().map(with_remains).collect();
        let offer = Arc::new(Offer { exports, limits, tls });
        offer.open_everywhere(core).await?;
        let state = Rc::new(State {
            offer,
            stopping: Latch::new(),
            connections: Connections::new(core),
            crowd: RefCell::default(),
            crowd_told_at: Cell::new(None),
            tell_crowd: RefCell::new(None),
            untrusted: Cell::new(0),
            untrusted_told_at: Cell::new(None),
            tell_tls: RefCell::new(None),
        });
        let accepting = core.spawn(accept(core.clone(), listener, state.clone()));
        Ok(NbdServerHandle { state, accepting })
    }
}

/// What became of connections because there were too many, since that was last told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnedAway {
    /// Idle ones that made way for new ones.
    pub closed: u32,
    /// New ones that were closed at once, as none was idle.
    pub refused: u32,
}

/// Is called with what became of connections.
type CrowdListener = Box<dyn Fn(&TurnedAway)>;

/// What an operator should know of TLS.
#[derive(Debug)]
pub enum TlsNote {
    /// So many clients were refused since that was last told, the last one because of this.
    Refused(u32, TlsFault),
    /// Files were changed and cannot be used: what was there before is shown still.
    Files(TlsFileError),
}

/// Is called with what an operator should know of TLS.
type TlsListener = Box<dyn Fn(&TlsNote)>;

/// Two notes on connections are at least so far apart.
const TOLD_TIME_MIN: Duration = Duration::from_secs(10);

/// A running server. Dropping the handle leaves it running.
pub struct NbdServerHandle {
    state: Rc<State>,
    accepting: JoinHandle<()>,
}

impl NbdServerHandle {
    /// Clients connected now, those in their handshake included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.count()
    }

    /// Has `tell` called when connections were closed or refused because there were too many, and
    /// then no more often than every ten seconds.
    pub fn on_crowd(&self, tell: impl Fn(&TurnedAway) + 'static) {
        *self.state.tell_crowd.borrow_mut() = Some(Box::new(tell));
    }

    /// Has `tell` called when clients were refused in their TLS handshake, no more often than every
    /// ten seconds, and when files that were changed cannot be used.
    pub fn on_tls(&self, tell: impl Fn(&TlsNote) + 'static) {
        *self.state.tell_tls.borrow_mut() = Some(Box::new(tell));
    }

    /// What is offered, for changes of it.
    #[must_use]
    pub fn exports(&self) -> Exports {
        Exports(self.state.offer.clone())
    }

    /// Stops accepting, lets every request that was received in full finish and be answered, and
    /// closes the connections. Takes at most [`Limits::drain_time_max`]: requests that take longer
    /// are not answered, and go on in the volumes, which stay open.
    pub async fn stop(self, core: &Core) {
        self.state.stopping.set();
        self.accepting.await;
        self.state.connections.stop().await;
        self.state.offer.close_everywhere(core).await;
    }
}

/// What a server offers, and changes of it. Names are those of the volumes.
#[derive(Clone)]
pub struct Exports(Arc<Offer>);

impl Exports {
    /// Offers another volume to clients that come from now on; `is_default` lets it answer to the
    /// empty name too.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] if it cannot be opened, or the server has ended; it is not offered
    /// then.
    pub async fn add(&self, core: &Core, export: Export, is_default: bool) -> Result<(), VolumeError> {
        let (name, remains) = (export.volume.name().to_owned(), export.volume.remains());
        for ix in 0..core.cores() {
            let (key, export, remains) = (self.0.key(), export.clone(), Arc::clone(&remains));
            let open = move |core: Core| async move {
                let shard = core.local::<Shard>(key).ok_or(VolumeError::Stopped)?;
                shard.exports.borrow_mut().push(export.open(&core, is_default, &remains)?);
                Ok(())
            };
            if let Err(error) = core.call(CoreIx(ix), open).await {
                self.remove(core, &name).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// From now on no client finds an export. Returns how many clients have it; those count too
    /// that have gone and left requests under way.
    pub async fn hide(&self, core: &Core, name: &str) -> usize {
        self.on_each(core, name, |export| export.hidden.set(true)).await
    }

    /// An export that was hidden is found again.
    pub async fn show(&self, core: &Core, name: &str) {
        self.on_each(core, name, |export| export.hidden.set(false)).await;
    }

    /// Forgets an export. Clients that have it keep it, for as long as its volume runs.
    pub async fn remove(&self, core: &Core, name: &str) {
        for ix in 0..core.cores() {
            let (key, name) = (self.0.key(), name.to_owned());
            core.call(CoreIx(ix), move |core| async move {
                let Some(shard) = core.local::<Shard>(key) else { return };
                shard.exports.borrow_mut().retain(|export| export.volume.name() != name);
            })
            .await;
        }
    }

    /// Does something with the export of a name on every core; how many clients have it.
    async fn on_each(&self, core: &Core, name: &str, change: fn(&OpenExport)) -> usize {
        let (mut clients, mut remaining) = (0, 0);
        for ix in 0..core.cores() {
            let (key, name) = (self.0.key(), name.to_owned());
            let here = core.call(CoreIx(ix), move |core| async move {
                let Some(shard) = core.local::<Shard>(key) else { return (0, 0) };
                let exports = shard.exports.borrow();
                let export = exports.iter().find(|export| export.volume.name() == name);
                export.map_or((0, 0), |export| {
                    change(export);
                    (export.clients.get(), export.remains.count())
                })
            });
            let (here, everywhere) = here.await;
            (clients, remaining) = (clients + here, everywhere);
        }
        clients + remaining
    }
}

impl Export {
    fn open(
        &self,
        core: &Core,
        is_default: bool,
        remains: &Arc<Remains>,
    ) -> Result<Rc<OpenExport>, VolumeError> {
        Ok(Rc::new(OpenExport {
            volume: self.volume.open(core)?,
            description: self.description.clone(),
            is_default,
            hidden: Cell::new(false),
            clients: Cell::new(0),
            remains: remains.clone(),
        }))
    }
}

/// What was offered when the server started; the same on every core.
struct Offer {
    exports: Vec<(Export, Arc<Remains>)>,
    limits: Limits,
    tls: Option<Arc<ServerTls>>,
}

impl Offer {
    /// The name of this server's shard on each core: the address of the offer, which outlives every
    /// shard.
    fn key(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }

    async fn open_everywhere(self: &Arc<Self>, core: &Core) -> Result<(), VolumeError> {
        for ix in 0..core.cores() {
            let offer = self.clone();
            let open = move |core: Core| async move {
                let shard = offer.open(&core)?;
                core.put_local(offer.key(), shard);
                Ok(())
            };
            if let Err(error) = core.call(CoreIx(ix), open).await {
                self.close_everywhere(core).await;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn close_everywhere(self: &Arc<Self>, core: &Core) {
        let key = self.key();
        for ix in 0..core.cores() {
            core.call(CoreIx(ix), move |core| async move { drop(core.take_local::<Shard>(key)) }).await;
        }
    }

    /// Opens the volumes on a core.
    fn open(&self, core: &Core) -> Result<Rc<Shard>, VolumeError> {
        let is_default = self.exports.len() == 1;
        let open = |(export, remains): &(Export, Arc<Remains>)| export.open(core, is_default, remains);
        let exports = self.exports.iter().map(open);
        Ok(Rc::new(Shard {
            exports: RefCell::new(exports.collect::<Result<_, _>>()?),
            limits: self.limits.clone(),
            tls: self.tls.clone(),
            memory: Rc::new(Memory::new(&self.limits, core.cores())),
            looking: Rc::new(Semaphore::new(LOOKING_MAX)),
        }))
    }
}

/// The accepting core's view of the server.
struct State {
    offer: Arc<Offer>,
    stopping: Latch,
    connections: Connections,
    /// Not told yet.
    crowd: RefCell<TurnedAway>,
    crowd_told_at: Cell<Option<Instant>>,
    tell_crowd: RefCell<Option<CrowdListener>>,
    /// Clients that were refused in their TLS handshake, and are not told yet.
    untrusted: Cell<u32>,
    untrusted_told_at: Cell<Option<Instant>>,
    tell_tls: RefCell<Option<TlsListener>>,
}

impl State {
    fn is_full(&self) -> bool {
        self.connections.count() >= self.offer.limits.connections_max as usize
    }

    /// Counts what became of a connection because there were too many.
    fn crowded(&self, now: Instant, count: fn(&mut TurnedAway) -> &mut u32) {
        *count(&mut self.crowd.borrow_mut()) += 1;
        if self.crowd_told_at.get().is_none_or(|told| told + TOLD_TIME_MIN <= now) {
            self.crowd_told_at.set(Some(now));
            let crowd = self.crowd.take();
            if let Some(tell) = &*self.tell_crowd.borrow() {
                tell(&crowd);
            }
        }
    }

    fn note_tls(&self, now: Instant, failure: TlsFailure) {
        let listener = self.tell_tls.borrow();
        let tell = |note: &TlsNote| {
            if let Some(tell) = &*listener {
                tell(note);
            }
        };
        if let Some(error) = failure.files {
            tell(&TlsNote::Files(error));
        }
        let Some(fault) = failure.fault else { return };
        self.untrusted.update(|count| count + 1);
        if self.untrusted_told_at.get().is_none_or(|told| told + TOLD_TIME_MIN <= now) {
            self.untrusted_told_at.set(Some(now));
            tell(&TlsNote::Refused(self.untrusted.take(), fault));
        }
    }
}

async fn accept(core: Core, listener: Listener, state: Rc<State>) {
    loop {
        match race(core.accept(&listener), state.stopping.wait()).await {
            Either::First(Ok(stream)) => match make_room(&core, &state).await {
                true => admit(&core, &state, stream),
                false => {
                    state.crowded(core.now(), |crowd| &mut crowd.refused);
                    stream.shutdown();
                }
            },
            Either::First(Err(_)) => core.sleep(OUT_OF_DESCRIPTORS_PAUSE).await,
            Either::Second(()) => return,
        }
    }
}

/// Whether there is room for another connection, if need be in the place of an idle one.
async fn make_room(core: &Core, state: &State) -> bool {
    /// A new connection waits at most this long for one to be idle for long enough, and to end.
    const ROOM_TIME_MAX: Duration = Duration::from_secs(1);
    let deadline = core.now() + ROOM_TIME_MAX;
    while state.is_full() {
        let Some((ix, idle)) = idlest(core, state).await else { return false };
        let ripe = idle.since + state.offer.limits.idle_time_min;
        if ripe > deadline || core.now() >= deadline {
            return false;
        }
        if ripe > core.now() {
            core.sleep_until(ripe).await;
            continue;
        }
        let key = state.offer.key();
        let close = move |core: Core| async move {
            if let Some(shard) = core.local::<Shard>(key) {
                shard.memory.close(idle);
            }
        };
        core.call(ix, close).await;
        if state.is_full() {
            race(state.connections.one_ends(), core.sleep_until(deadline)).await;
        }
        if !state.is_full() {
            state.crowded(core.now(), |crowd| &mut crowd.closed);
        }
    }
    true
}

/// The connection that is lost with the least harm, and its core, if one has nothing under way.
async fn idlest(core: &Core, state: &State) -> Option<(CoreIx, Idle)> {
    let mut found: Option<(CoreIx, Idle)> = None;
    for ix in (0..core.cores()).map(CoreIx) {
        let key = state.offer.key();
        let ask = move |core: Core| async move { core.local::<Shard>(key)?.memory.idlest() };
        if let Some(idle) = core.call(ix, ask).await
            && found.is_none_or(|(_, other)| idle < other)
        {
            found = Some((ix, idle));
        }
    }
    found
}

/// Starts a connection.
fn admit(core: &Core, state: &Rc<State>, stream: Stream) {
    let Begun { id, core: ix, stop } = state.connections.begin();
    let key = state.offer.key();
    let ended = core.call(ix, move |core| async move {
        let shard = core.local::<Shard>(key).expect("shards outlive the connections");
        connection::serve(core, shard, stream, id, stop).await
    });
    let (home, state) = (core.clone(), state.clone());
    core.spawn(async move {
        state.note_tls(home.now(), ended.await);
        state.connections.end(id, ix);
    });
}
