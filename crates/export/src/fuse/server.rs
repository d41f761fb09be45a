//! Makes the tree, agrees with the kernel, and gives every core its queue.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use wattle_engine::{VolumeError, VolumeRef};
use wattle_rt::fuse::{FuseMount, Ring, UnmountError, kernel_queues};
use wattle_rt::{Buf, BufMut, Core, CoreIx, IoError, JoinHandle, Latch, Stream};

use super::execute::Shard;
use super::limits::{BACKGROUND_MAX, REQUEST_BYTES_MAX, SLOT_BYTES, slots_per_queue};
use super::protocol::{
    FuseErrno, HEAD_BYTES, KernelOffer, MAJOR, MINOR_MIN, attributes_changed, features, opcodes, reply_header,
};
use super::request::parse;
use super::tree::{FileFacts, NameClash, NodeTree, Owner};
use super::{session, slots};

/// Why nothing is served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two volumes cannot both have their files.
    #[error(transparent)]
    Names(#[from] NameClash),
    /// A volume cannot be opened any more.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The kernel gives no queue, or took it away.
    #[error("the kernel's FUSE queue: {0}")]
    Queue(#[from] IoError),
    /// The kernel speaks a version that we do not.
    #[error("the kernel speaks version {0}.{1} of the FUSE protocol, and 7.23 or later is needed")]
    Version(u32, u32),
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Unmounted.
    Unmounted,
    /// Files are open, or a process works there: the directory is given back, and what is open
    /// answers errors once the process ends.
    InUse,
    /// The directory could not be given back: its next user has to unmount it.
    StillMounted(UnmountError),
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring where the kernel offers that, else over the device.
    Best,
    /// Over the device.
    Device,
}

/// The FUSE server.
#[derive(Debug)]
pub struct FuseServer;

impl FuseServer {
    /// Serves `volumes` in a mounted directory, on every core of the runtime, until
    /// [`FuseServerHandle::stop`].
    ///
    /// # Errors
    /// Nothing is served then, and the mount is removed.
    pub async fn start(
        core: &Core,
        mount: FuseMount,
        volumes: Vec<VolumeRef>,
        transport: Transport,
    ) -> Result<FuseServerHandle, StartError> {
        let mount = Rc::new(mount);
        match start(core, &mount, volumes, transport).await {
            Ok(handle) => Ok(handle),
            Err(error) => {
                // The first error is the one that matters.
                let _ = mount.unmount(true).await;
                Err(error)
            }
        }
    }
}

async fn start(
    core: &Core,
    mount: &Rc<FuseMount>,
    volumes: Vec<VolumeRef>,
    transport: Transport,
) -> Result<FuseServerHandle, StartError> {
    let (uid, gid) = mount.owner();
    let owner = Owner { uid, gid, since: core.wall_clock() };
    let facts = volumes.iter().map(|volume| facts(core, volume)).collect::<Result<Vec<_>, _>>()?;
    let tree = Arc::new(NodeTree::new(&facts, owner)?);
    let queues = (0..core.cores()).map(|_| mount.queue()).collect::<Result<Vec<_>, IoError>>()?;
    let (unique, kernel) = hear(core, &queues[0]).await?;
    let offer = Arc::new(Offered { tree, volumes });
    let files = Files(Rc::new(State {
        first: offer.clone(),
        now: RefCell::new(offer.clone()),
        kernel: queues[0].clone(),
        mount: MountState::default(),
    }));
    let mut handle =
        FuseServerHandle { mount: mount.clone(), files, sessions: Vec::new(), over_io_uring: false };
    let over_rings = transport == Transport::Best
        && kernel.features & features::OVER_IO_URING != 0
        && offer.make_rings(core, &queues).await;
    handle.over_io_uring = over_rings;
    accept(core, &queues[0], unique, &kernel, over_rings).await?;
    for (ix, queue) in queues.into_iter().enumerate() {
        if let Err(error) = handle.serve_on(core, CoreIx(ix), queue, over_rings).await {
            handle.end_sessions(core).await;
            return Err(error);
        }
    }
    Ok(handle)
}

fn facts(core: &Core, volume: &VolumeRef) -> Result<FileFacts, VolumeError> {
    const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 4096..=REQUEST_BYTES_MAX as u32;
    let opened = volume.open(core)?;
    Ok(FileFacts {
        name: volume.name().to_owned(),
        size_bytes: volume.size_bytes(),
        read_only: opened.read_only(),
        block_bytes: opened.io_min_bytes().clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end()),
    })
}

/// The first message of a mount says what the kernel can do.
async fn hear(core: &Core, queue: &Stream) -> Result<(u64, KernelOffer), StartError> {
    let (mut head, mut body) = (BufMut::alloc(HEAD_BYTES), BufMut::alloc(REQUEST_BYTES_MAX));
    loop {
        let mut joined = Vec::new();
        let length = match queue.try_receive(&mut head, &mut body) {
            Ok(length) => length,
            Err(error) if error.errno() == libc::EAGAIN => {
                core.readable(queue).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Ok(request) = parse(&head, &body, length, &mut joined) else { continue };
        if request.header.opcode != opcodes::INIT {
            continue;
        }
        let (unique, offer) = (request.header.unique, KernelOffer::decode(request.args));
        if offer.major == MAJOR && offer.minor >= MINOR_MIN {
            return Ok((unique, offer));
        }
        let refusal = reply_header(unique, Err(FuseErrno(libc::EPROTO)));
        core.send(queue, vec![Buf::copy_of(&refusal)]).await?;
        return Err(StartError::Version(offer.major, offer.minor));
    }
}

/// Answers the first message. From here on the kernel sends requests.
async fn accept(
    core: &Core,
    queue: &Stream,
    unique: u64,
    kernel: &KernelOffer,
    over_rings: bool,
) -> Result<(), IoError> {
    let (wanted, request_bytes_max) = match over_rings {
        true => (features::WANTED | features::OVER_IO_URING, SLOT_BYTES),
        false => (features::WANTED, REQUEST_BYTES_MAX),
    };
    let answer = kernel.accept(wanted, request_bytes_max, BACKGROUND_MAX).0;
    let header = reply_header(unique, Ok(answer.len()));
    core.send(queue, vec![Buf::copy_of(&header), Buf::copy_of(&answer)]).await
}

/// What is offered; the same on every core.
struct Offered {
    tree: Arc<NodeTree>,
    /// By the numbers that the tree gives them.
    volumes: Vec<VolumeRef>,
}

impl Offered {
    /// The name of this server's shard on each core: the address of the offer, which outlives every
    /// shard.
    fn key(self: &Arc<Self>) -> u64 {
        Arc::as_ptr(self).addr() as u64
    }

    /// Makes a ring on every core that gets queues of the kernel's, before it is told that there
    /// will be any; false if they cannot be had.
    async fn make_rings(self: &Arc<Self>, core: &Core, queues: &[Stream]) -> bool {
        let Some(count) = kernel_queues() else { return false };
        for (ix, queue) in queues.iter().enumerate() {
            let (key, queue, cores) = (self.key(), queue.clone(), queues.len());
            let make = move |core: Core| async move {
                let share: Vec<u16> = (0..count).skip(ix).step_by(cores).collect();
                if share.is_empty() {
                    return true;
                }
                let ring = Ring::new(&queue, &share, slots_per_queue(count), SLOT_BYTES);
                ring.map(|ring| core.put_local(key + RINGS, Rc::new(Cell::new(Some(ring))))).is_ok()
            };
            if !core.call(CoreIx(ix), make).await {
                return false;
            }
        }
        true
    }

    fn open(&self, core: &Core) -> Result<Rc<Shard>, VolumeError> {
        let open = |volume: &VolumeRef| Ok((volume.open(core)?, volume.remains()));
        let volumes = self.volumes.iter().map(open).collect::<Result<_, VolumeError>>()?;
        let (tree, volumes) = (RefCell::new(self.tree.clone()), RefCell::new(volumes));
        Ok(Rc::new(Shard { tree, volumes, stopping: Latch::new() }))
    }
}

/// The files of a server, and changes of them. Names are those of the volumes.
#[derive(Clone)]
pub struct Files(Rc<State>);

struct State {
    /// What was offered when the server started: its shards are named after it.
    first: Arc<Offered>,
    now: RefCell<Arc<Offered>>,
    /// Where the kernel is told what it did not ask for.
    kernel: Stream,
    mount: MountState,
}

/// Whether the mount is there.
#[derive(Default)]
struct MountState {
    /// Queues that the kernel has not ended.
    queues: Cell<usize>,
    /// The server unmounts it.
    stopping: Cell<bool>,
    /// It was unmounted or aborted from outside: no request comes any more, not even that a file
    /// was closed.
    is_gone: Cell<bool>,
    tell: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl MountState {
    /// The kernel has ended a queue.
    fn one_ended(&self) {
        self.queues.set(self.queues.get() - 1);
        if self.queues.get() == 0 && !self.stopping.get() {
            self.is_gone.set(true);
            if let Some(tell) = self.tell.take() {
                tell();
            }
        }
    }
}

impl Files {
    fn now(&self) -> Arc<Offered> {
        self.0.now.borrow().clone()
    }

    /// Whether the mount was taken away: unmounted, or aborted, by another program. Nothing can be
    /// opened here any more, and nothing is open.
    #[must_use]
    pub fn are_gone(&self) -> bool {
        self.0.mount.is_gone.get()
    }

    /// How often the files of the volumes that `which` names are open now.
    fn opens_where(&self, which: impl Fn(usize, &VolumeRef) -> bool) -> u32 {
        if self.are_gone() {
            return 0;
        }
        let now = self.now();
        let found = now.tree.opens().filter(|(ix, _)| which(*ix, &now.volumes[*ix]));
        found.map(|(_, opens)| opens).sum()
    }

    /// How often the file of a volume is open now, 0 for a volume that is not served here.
    #[must_use]
    pub fn opens(&self, volume: &str) -> u32 {
        self.opens_where(|_, known| known.name() == volume)
    }

    /// Offers the file of another volume.
    ///
    /// # Errors
    /// It would be another one's file; it cannot be opened, the server has ended, or the mount is
    /// gone (`ENODEV`). It is not offered then.
    pub async fn add(&self, core: &Core, volume: VolumeRef) -> Result<(), StartError> {
        if self.are_gone() {
            return Err(IoError::from_errno(libc::ENODEV).into());
        }
        let now = self.now();
        let mut tree = NodeTree::clone(&now.tree);
        tree.add(now.volumes.len(), &facts(core, &volume)?)?;
        for ix in 0..core.cores() {
            let (key, number, volume) = (self.0.first.key(), now.volumes.len(), volume.clone());
            core.call(CoreIx(ix), move |core| async move {
                let shard = core.local::<Shard>(key).ok_or(VolumeError::Stopped)?;
                let opened = (volume.open(&core)?, volume.remains());
                let mut volumes = shard.volumes.borrow_mut();
                // One that could not be opened everywhere leaves its number to the next.
                volumes.truncate(number);
                volumes.push(opened);
                Ok::<(), VolumeError>(())
            })
            .await?;
        }
        let volumes = now.volumes.iter().cloned().chain([volume]).collect();
        self.show_everywhere(core, Offered { tree: Arc::new(tree), volumes }).await;
        Ok(())
    }

    /// Hides the file of a volume, or lets it be found again; how often it is open. Once this
    /// returns a hidden file cannot be opened any more; a process that has it open keeps it, for as
    /// long as its volume runs.
    pub async fn hide(&self, core: &Core, volume: &str, hidden: bool) -> u32 {
        let now = self.now();
        let mut tree = NodeTree::clone(&now.tree);
        // Of several that had the name the last one has it now.
        let Some(number) = now.volumes.iter().rposition(|known| known.name() == volume) else { return 0 };
        tree.hide(number, hidden);
        self.show_everywhere(core, Offered { tree: Arc::new(tree), volumes: now.volumes.clone() }).await;
        self.opens_where(|ix, _| ix == number)
    }

    async fn show_everywhere(&self, core: &Core, offer: Offered) {
        for ix in 0..core.cores() {
            let (key, tree) = (self.0.first.key(), offer.tree.clone());
            core.call(CoreIx(ix), move |core| async move {
                if let Some(shard) = core.local::<Shard>(key) {
                    shard.tree.replace(tree);
                }
            })
            .await;
        }
        self.0.now.replace(Arc::new(offer));
    }

    /// Lets files of volumes that grew grow. A look-up from now on sees its size; the
    /// kernel's own view of a file that is open follows with the next `stat`.
    ///
    /// # Errors
    /// The kernel was not told, and goes by the old size for a minute at most.
    pub async fn resize(&self, core: &Core) -> Result<(), IoError> {
        let mut told = Ok(());
        let now = self.now();
        let is_seen = !self.are_gone();
        for (ix, volume) in now.volumes.iter().enumerate() {
            let news = now.tree.resize(ix, volume.size_bytes());
            let Some(node) = news.filter(|_| is_seen) else { continue };
            let sent = core.send(&self.0.kernel, vec![Buf::copy_of(&attributes_changed(node))]).await;
            match sent {
                // It had not looked at the file yet.
                Err(error) if error.errno() == libc::ENOENT => {}
                sent => told = told.and(sent),
            }
        }
        told
    }

    /// Whether any of the files was ever open, or none can be any more.
    #[must_use]
    pub fn was_opened(&self) -> bool {
        self.are_gone() || self.now().tree.was_opened()
    }

    /// How often any of the files is open now.
    #[must_use]
    pub fn opens_of_all(&self) -> u32 {
        self.opens_where(|_, _| true)
    }
}

/// Added to a server's key: its ring on a core, until its session takes it.
const RINGS: u64 = 1;

/// A running server. Dropping the handle leaves it running.
pub struct FuseServerHandle {
    mount: Rc<FuseMount>,
    files: Files,
    sessions: Vec<JoinHandle<()>>,
    over_io_uring: bool,
}

impl FuseServerHandle {
    /// Where the files are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.mount.dir()
    }

    /// Whether requests come over io_uring.
    #[must_use]
    pub fn over_io_uring(&self) -> bool {
        self.over_io_uring
    }

    /// Tells when the mount is taken away by another program, once.
    pub fn on_gone(&self, tell: impl FnOnce() + 'static) {
        self.files.0.mount.tell.replace(Some(Box::new(tell)));
    }

    /// The files, for questions about them.
    #[must_use]
    pub fn files(&self) -> Files {
        self.files.clone()
    }

    /// Opens the volumes on a core and lets it serve a queue, and its share of the kernel's queues
    /// over io_uring.
    async fn serve_on(
        &mut self,
        core: &Core,
        ix: CoreIx,
        queue: Stream,
        over_rings: bool,
    ) -> Result<(), StartError> {
        let (offer, key) = (self.files.now(), self.files.0.first.key());
        core.call(ix, move |core| async move {
            core.put_local(key, offer.open(&core)?);
            Ok::<(), VolumeError>(())
        })
        .await?;
        // Over io_uring too, some messages come over the device.
        let session = core.call(ix, move |core| async move {
            let shard = core.local::<Shard>(key).expect("shards outlive the sessions");
            session::serve(core, shard, queue).await
        });
        let files = self.files.clone();
        let mount = &files.0.mount;
        mount.queues.set(mount.queues.get() + 1);
        self.sessions.push(core.spawn(async move {
            if session.await {
                files.0.mount.one_ended();
            }
        }));
        if !over_rings {
            return Ok(());
        }
        let register = move |core: Core| async move {
            let kept = core.take_local::<Cell<Option<Ring>>>(key + RINGS);
            let Some(mut ring) = kept.and_then(|kept| kept.take()) else { return Ok(()) };
            let mut came = Vec::new();
            ring.register(&mut came)?;
            core.put_local(key + RINGS, Rc::new(Cell::new(Some((ring, came)))));
            Ok::<(), IoError>(())
        };
        core.call(ix, register).await?;
        let session = core.call(ix, move |core| async move {
            let kept = core.take_local::<Cell<Option<(Ring, Vec<usize>)>>>(key + RINGS);
            if let Some((ring, came)) = kept.and_then(|kept| kept.take()) {
                let shard = core.local::<Shard>(key).expect("shards outlive the sessions");
                slots::serve(core, shard, ring, came).await;
            }
        });
        self.sessions.push(core.spawn(session));
        Ok(())
    }

    /// Gives the directory back, lets every request that was taken finish and be answered. The
    /// volumes stay open.
    pub async fn stop(self, core: &Core) -> Stopped {
        self.files.0.mount.stopping.set(true);
        let stopped = match self.unmount_unused(core).await {
            Ok(()) | Err(UnmountError::NotMounted) => Stopped::Unmounted,
            Err(UnmountError::Busy) => match self.mount.unmount(true).await {
                Ok(()) => Stopped::InUse,
                Err(error) => Stopped::StillMounted(error),
            },
            Err(error) => Stopped::StillMounted(error),
        };
        self.end_sessions(core).await;
        stopped
    }

    /// Waits a moment for programs that look in passing, and for programs that inherited a file
    /// until they are another.
    async fn unmount_unused(&self, core: &Core) -> Result<(), UnmountError> {
        const TRIES: u32 = 10;
        const PAUSE: Duration = Duration::from_millis(50);
        for _ in 1..TRIES {
            match self.mount.unmount(false).await {
                Err(UnmountError::Busy) => core.sleep(PAUSE).await,
                result => return result,
            }
        }
        self.mount.unmount(false).await
    }

    async fn end_sessions(self, core: &Core) {
        let key = self.files.0.first.key();
        for ix in 0..core.cores() {
            core.call(CoreIx(ix), move |core| async move {
                if let Some(shard) = core.take_local::<Shard>(key) {
                    shard.stopping.set();
                }
            })
            .await;
        }
        for session in self.sessions {
            session.await;
        }
    }
}
