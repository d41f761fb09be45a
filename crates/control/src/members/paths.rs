//! One drive of this machine by several block devices (`/dev/sdb|/dev/sdc`), where the system's own
//! multipath does not make one device of them.
//!
//! Requests go by one path, the first to begin with. A path that answers with an error, or does not
//! answer within [`PATIENCE`], is passed over for the next one; it is tried again now and then, and
//! the first one that is there is gone back to. By choice reads take turns over all of them. The
//! last path that is there is waited for, and what it says counts.
//!
//! - A write that a path has not answered may still be carried out. Invariant: no newer write of
//!   any of the same bytes is sent by any path until the system has completed it, however long that
//!   takes. The system says so for certain, unlike a server across a network.
//! - A flush covers what was written by all paths: they are one drive, with one cache, and nothing
//!   lies between (only devices that bypass the page cache are taken). A flush that fails is asked
//!   for again by another path only if the error says that it never reached the drive: a drive
//!   tells of lost writes once.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wattle_rt::{
    Buf, BufMut, Core, CoreHandle, Device, Durability, Either, Instant, IoError, Link, LinkPath, LinkState,
    PathState, ReopenError, Reply, Serve, Unmap, race,
};

/// How long a path may take for a request, as long as there is another one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two attempts with a path that failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Between two looks at a write that is not completed.
const LOOK: Duration = Duration::from_millis(5);

/// Opens a path anew, if it leads to the same drive.
pub(super) type OpenPath = dyn Fn() -> Option<Device> + Send + Sync;

/// A path: its name, its device if it is there, and how it is had again.
pub(super) struct FoundPath {
    pub(super) name: String,
    pub(super) device: Option<Device>,
    pub(super) open: Arc<OpenPath>,
}

/// The drive that these paths lead to, by this name. `first` is one of them.
pub(super) fn drive(
    core: &CoreHandle,
    name: &str,
    first: &Device,
    found: Vec<FoundPath>,
) -> Result<Device, IoError> {
    let (size_bytes, block_bytes) = (first.size_bytes(), first.logical_block_bytes());
    let writable = first.writable();
    let paths = found.into_iter().map(|found| Path {
        name: found.name,
        open: found.open,
        now: Mutex::new(PathNow {
            failed: found.device.is_none().then(Instant::default),
            failures: u64::from(found.device.is_none()),
            device: found.device,
            is_tried: false,
        }),
    });
    let paths = Arc::new(Paths {
        paths: paths.collect(),
        in_turn: AtomicBool::new(false),
        turn: AtomicUsize::new(0),
        late: Mutex::default(),
        late_count: AtomicUsize::new(0),
        numbers: AtomicU64::new(0),
    });
    let name = name.to_owned();
    core.call_blocking(async move |core: Core| {
        Device::served(name, size_bytes, block_bytes, writable, &core, Arc::new(Drive(paths)))
    })
}

struct Paths {
    paths: Vec<Path>,
    in_turn: AtomicBool,
    turn: AtomicUsize,
    /// Writes that a path has not completed, though another one has.
    late: Mutex<Vec<(u64, Range<u64>)>>,
    late_count: AtomicUsize,
    numbers: AtomicU64,
}

struct Path {
    name: String,
    open: Arc<OpenPath>,
    now: Mutex<PathNow>,
}

struct PathNow {
    /// `None`: it was never there.
    device: Option<Device>,
    /// Since when it is passed over.
    failed: Option<Instant>,
    failures: u64,
    /// A task finds out whether it is there again.
    is_tried: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Paths {
    /// The paths in the order in which they are asked; and has those that failed tried again.
    fn order(self: &Arc<Self>, core: &Core, is_read: bool) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.paths.len()).collect();
        let is_there = |path: &usize| locked(&self.paths[*path].now).failed.is_none();
        let there = order.iter().filter(|path| is_there(path)).count();
        order.sort_by_key(|path| !is_there(path));
        if is_read && self.in_turn.load(Ordering::Relaxed) && there > 1 {
            order[..there].rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % there);
        }
        if there < order.len() {
            order.iter().filter(|path| !is_there(path)).for_each(|path| self.try_again(core, *path));
        }
        order
    }

    fn device(&self, path: usize) -> Option<Device> {
        locked(&self.paths[path].now).device.clone()
    }

    fn fail(&self, core: &Core, path: usize) {
        let mut now = locked(&self.paths[path].now);
        if now.failed.replace(core.now()).is_none() {
            now.failures += 1;
        }
    }

    /// Reads a block by a path that failed, after a while: one attempt at a time.
    fn try_again(self: &Arc<Self>, core: &Core, path: usize) {
        let mut now = locked(&self.paths[path].now);
        let is_due = now.failed.is_some_and(|failed| core.now() - failed >= TRY_AGAIN);
        if !is_due || std::mem::replace(&mut now.is_tried, true) {
            return;
        }
        let (paths, core) = (self.clone(), core.clone());
        let (device, open) = (now.device.clone(), self.paths[path].open.clone());
        drop(core.clone().spawn(async move {
            let mut answers = answering(&core, device).await;
            if answers.is_none() {
                let again = core.offload(move || open()).await;
                answers = answering(&core, again.ok().flatten()).await;
            }
            let mut now = locked(&paths.paths[path].now);
            now.is_tried = false;
            now.failed = answers.is_none().then(|| core.now());
            now.device = answers.or(now.device.take());
        }));
    }

    /// Asks one path after the other until one answers as it should.
    async fn ask<T: 'static>(
        self: &Arc<Self>,
        core: &Core,
        order: &[usize],
        goes_on: impl Fn(IoError) -> bool,
        mut request: impl FnMut(Device) -> Reply<Result<T, IoError>>,
        mut late: impl FnMut(),
    ) -> Result<T, IoError> {
        let (mut failed, mut last) = (Vec::new(), IoError::GONE);
        for (attempt, path) in order.iter().enumerate() {
            let is_last = attempt + 1 == order.len();
            let Some(device) = self.device(*path) else { continue };
            let mut answer = pin!(core.spawn(request(device)));
            let result = match is_last {
                true => Some(answer.await),
                false => match race(&mut answer, core.sleep(PATIENCE)).await {
                    Either::First(result) => Some(result),
                    Either::Second(()) => None,
                },
            };
            match result {
                Some(Ok(value)) => {
                    // What every path says is of the drive; what only some say is of the path.
                    failed.iter().for_each(|path| self.fail(core, *path));
                    return Ok(value);
                }
                Some(Err(error)) if is_last || !goes_on(error) => return Err(error),
                Some(Err(error)) => {
                    failed.push(*path);
                    last = error;
                }
                None => {
                    late();
                    self.fail(core, *path);
                }
            }
        }
        Err(last)
    }

    /// Changes a range, by a path that answers.
    async fn change(
        self: Arc<Self>,
        core: Core,
        range: Range<u64>,
        write: impl Fn(Core, Device) -> Reply<Result<(), IoError>>,
    ) -> Result<(), IoError> {
        while self.is_late(&range) {
            core.sleep(LOOK).await;
        }
        let order = self.order(&core, false);
        let number = std::cell::Cell::new(0);
        let request = |device: Device| -> Reply<Result<(), IoError>> {
            let own = self.numbers.fetch_add(1, Ordering::Relaxed);
            number.set(own);
            let (paths, written) = (self.clone(), write(core.clone(), device));
            Box::pin(async move {
                let written = written.await;
                paths.completed(own);
                written
            })
        };
        let late = || {
            locked(&self.late).push((number.get(), range.clone()));
            self.late_count.fetch_add(1, Ordering::Release);
        };
        self.ask(&core, &order, |_| true, request, late).await
    }

    fn is_late(&self, range: &Range<u64>) -> bool {
        self.late_count.load(Ordering::Acquire) > 0
            && locked(&self.late).iter().any(|(_, late)| late.start < range.end && range.start < late.end)
    }

    /// A write is completed, late or not: it is late only from the moment at which its own core
    /// says so, and it completes there.
    fn completed(&self, number: u64) {
        if self.late_count.load(Ordering::Acquire) > 0 {
            let mut late = locked(&self.late);
            let before = late.len();
            late.retain(|(own, _)| *own != number);
            self.late_count.fetch_sub(before - late.len(), Ordering::Release);
        }
    }
}

/// The device, if its first block can be read.
async fn answering(core: &Core, device: Option<Device>) -> Option<Device> {
    let device = device?;
    let block = BufMut::alloc(device.logical_block_bytes() as usize);
    core.read(&device, 0, block).await.0.ok().map(|()| device)
}

/// Whether an error says that a request never reached the drive.
fn is_of_the_way(error: IoError) -> bool {
    const ENXIO: i32 = 6;
    const ENODEV: i32 = 19;
    const ENOLINK: i32 = 67;
    [ENXIO, ENODEV, ENOLINK].contains(&error.errno())
}

struct Drive(Arc<Paths>);

impl Serve for Drive {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (paths, core) = (self.0.clone(), core.clone());
        Box::pin(async move {
            // The caller's buffer comes back whatever happens: a path that does not answer keeps
            // another one.
            let (len, order, mut buf) = (buf.len(), paths.order(&core, true), buf);
            let request = |device: Device| -> Reply<Result<BufMut, IoError>> {
                let core = core.clone();
                Box::pin(async move {
                    let (read, bytes) = core.read(&device, offset, BufMut::alloc(len)).await;
                    read.map(|()| bytes)
                })
            };
            let read = paths.ask(&core, &order, |_| true, request, || {}).await;
            (read.map(|bytes| buf.copy_from_slice(&bytes)), buf)
        })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        let range = offset..offset + buf.len() as u64;
        Box::pin(self.0.clone().change(core.clone(), range, move |core, device| {
            let buf = buf.clone();
            Box::pin(async move { core.write(&device, offset, buf, durability).await })
        }))
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        let (paths, core) = (self.0.clone(), core.clone());
        Box::pin(async move {
            let order = paths.order(&core, false);
            let request = |device: Device| -> Reply<Result<(), IoError>> {
                let core = core.clone();
                Box::pin(async move { core.flush(&device).await })
            };
            paths.ask(&core, &order, is_of_the_way, request, || {}).await
        })
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(self.0.clone().change(core.clone(), offset..offset + len, move |core, device| {
            Box::pin(async move { core.write_zeroes(&device, offset, len, unmap).await })
        }))
    }

    fn link(&self) -> Option<&dyn Link> {
        Some(self)
    }
}

/// A drive of this machine is never away: it answers, or fails for good.
impl Link for Drive {
    fn look(&self, core: &Core) -> Reply<Option<LinkState>> {
        let in_turn = self.0.in_turn.load(Ordering::Relaxed);
        // Those that failed are tried also while no request comes.
        let in_use = self.0.order(core, false)[0];
        let state = |(ix, path): (usize, &Path)| {
            let now = locked(&path.now);
            let state = match now.failed {
                Some(_) => PathState::Failed,
                None if in_turn || ix == in_use => PathState::InUse,
                None => PathState::Ready,
            };
            LinkPath { name: path.name.clone(), state, failures: now.failures }
        };
        let paths = self.0.paths.iter().enumerate().map(state).collect();
        Box::pin(async move { Some(LinkState { overdue: Duration::ZERO, ended: None, paths }) })
    }

    fn give_up(&self, _core: &Core) -> Reply<()> {
        Box::pin(async {})
    }

    fn take_turns(&self, _core: &Core, on: bool) -> Reply<()> {
        self.0.in_turn.store(on, Ordering::Relaxed);
        Box::pin(async {})
    }

    fn reopen(&self, _core: &Core) -> Reply<Result<Device, ReopenError>> {
        Box::pin(async { Err(ReopenError::Unsettled) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_rt::{RuntimeConfig, beside};

    /// A way to a drive in memory, as the test wants it.
    #[derive(Default)]
    struct Way {
        error: Mutex<Option<IoError>>,
        stalls: AtomicBool,
        reads: AtomicUsize,
        writes: AtomicUsize,
    }

    struct ByWay(Device, Arc<Way>);

    impl ByWay {
        fn pass<T: 'static>(
            &self,
            core: &Core,
            work: impl Future<Output = Result<T, IoError>> + 'static,
        ) -> Reply<Result<T, IoError>> {
            let (way, core) = (self.1.clone(), core.clone());
            Box::pin(async move {
                while way.stalls.load(Ordering::Relaxed) {
                    core.sleep(LOOK).await;
                }
                let error = *locked(&way.error);
                match error {
                    Some(error) => Err(error),
                    None => work.await,
                }
            })
        }
    }

    impl Serve for ByWay {
        fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
            self.1.reads.fetch_add(1, Ordering::Relaxed);
            let (device, on, len) = (self.0.clone(), core.clone(), buf.len());
            let passed = self.pass(core, async move {
                let (read, buf) = on.read(&device, offset, buf).await;
                read.map(|()| buf)
            });
            Box::pin(async move {
                match passed.await {
                    Ok(buf) => (Ok(()), buf),
                    Err(error) => (Err(error), BufMut::alloc(len)),
                }
            })
        }

        fn write(&self, core: &Core, offset: u64, buf: Buf, how: Durability) -> Reply<Result<(), IoError>> {
            self.1.writes.fetch_add(1, Ordering::Relaxed);
            let (device, on) = (self.0.clone(), core.clone());
            self.pass(core, async move { on.write(&device, offset, buf, how).await })
        }

        fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
            self.pass(core, async { Ok(()) })
        }

        fn write_zeroes(&self, core: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
            self.pass(core, async { Err(IoError::UNSUPPORTED) })
        }
    }

    fn with_paths(test: impl AsyncFnOnce(Core, Device, [Arc<Way>; 2], Device)) {
        let home = beside().unwrap();
        let below = Device::mem(1 << 20);
        let ways = [Arc::<Way>::default(), Arc::default()];
        let found = ways.iter().zip(["a", "b"]).map(|(way, name)| {
            let by = ByWay(below.clone(), way.clone());
            let device = home.call_blocking(async move |core: Core| {
                Device::served(name, 1 << 20, 512, true, &core, Arc::new(by))
            });
            FoundPath { name: name.to_owned(), device: device.ok(), open: Arc::new(|| None) }
        });
        let drive = drive(&home, "a|b", &below, found.collect()).unwrap();
        let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
        wattle_rt::run(config, async |core: Core| test(core, drive, ways, below).await).unwrap();
    }

    async fn write(core: &Core, drive: &Device, offset: u64, byte: u8) -> Result<(), IoError> {
        core.write(drive, offset, Buf::copy_of(&[byte; 512]), Durability::Cached).await
    }

    async fn byte(core: &Core, drive: &Device, offset: u64) -> Result<u8, IoError> {
        let (read, buf) = core.read(drive, offset, BufMut::alloc(512)).await;
        read.map(|()| buf[0])
    }

    async fn states(core: &Core, drive: &Device) -> Vec<(PathState, u64)> {
        let state = drive.link().unwrap().look(core).await.unwrap();
        state.paths.iter().map(|path| (path.state, path.failures)).collect()
    }

    #[test]
    fn a_path_with_errors_is_passed_over_and_gone_back_to() {
        use PathState::{Failed, InUse, Ready};
        with_paths(async |core, drive, [a, b], _| {
            write(&core, &drive, 0, 1).await.unwrap();
            assert_eq!(states(&core, &drive).await, [(InUse, 0), (Ready, 0)]);
            *locked(&a.error) = Some(IoError::from_errno(5));
            write(&core, &drive, 0, 2).await.unwrap();
            assert_eq!(byte(&core, &drive, 0).await, Ok(2));
            assert_eq!(states(&core, &drive).await, [(Failed, 1), (InUse, 0)]);
            // Both say it, so it is the drive's: and no path has failed for it.
            *locked(&b.error) = Some(IoError::MEDIUM);
            assert_eq!(byte(&core, &drive, 0).await, Err(IoError::from_errno(5)));
            assert_eq!(states(&core, &drive).await[1], (InUse, 0));
            (*locked(&a.error), *locked(&b.error)) = (None, None);
            while states(&core, &drive).await != [(InUse, 1), (Ready, 0)] {
                core.sleep(LOOK).await;
            }
            let before = a.writes.load(Ordering::Relaxed);
            write(&core, &drive, 0, 3).await.unwrap();
            assert_eq!(a.writes.load(Ordering::Relaxed), before + 1);
        });
    }

    #[test]
    fn what_a_stalled_path_may_still_write_undoes_nothing_newer() {
        with_paths(async |core, drive, [a, b], below| {
            a.stalls.store(true, Ordering::Relaxed);
            let begun = core.now();
            write(&core, &drive, 0, 1).await.unwrap();
            assert!(core.now() - begun >= PATIENCE);
            assert_eq!(byte(&core, &below, 0).await, Ok(1), "by the other path");
            // Beside it nothing waits; over it does, until the system has completed the old one.
            write(&core, &drive, 512, 2).await.unwrap();
            let newer = core.spawn({
                let (core, drive) = (core.clone(), drive.clone());
                async move { write(&core, &drive, 0, 3).await }
            });
            core.sleep(Duration::from_millis(300)).await;
            assert_eq!(b.writes.load(Ordering::Relaxed), 2, "the newer one waits");
            a.stalls.store(false, Ordering::Relaxed);
            newer.await.unwrap();
            assert_eq!(byte(&core, &below, 0).await, Ok(3));
            assert_eq!(a.writes.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn reads_take_turns_by_choice() {
        with_paths(async |core, drive, [a, b], _| {
            let reads = || [&a, &b].map(|way| way.reads.swap(0, Ordering::Relaxed));
            for _ in 0..10 {
                byte(&core, &drive, 0).await.unwrap();
            }
            assert_eq!(reads(), [10, 0]);
            drive.link().unwrap().take_turns(&core, true).await;
            for _ in 0..10 {
                byte(&core, &drive, 0).await.unwrap();
            }
            assert_eq!(reads(), [5, 5]);
        });
    }

    /// A drive tells of lost writes once: a flush that says so is not asked for again.
    #[test]
    fn a_flush_that_reached_the_drive_counts() {
        with_paths(async |core, drive, [a, _], _| {
            *locked(&a.error) = Some(IoError::from_errno(5));
            assert_eq!(core.flush(&drive).await, Err(IoError::from_errno(5)));
            *locked(&a.error) = Some(IoError::GONE);
            core.flush(&drive).await.unwrap();
        });
    }
}
