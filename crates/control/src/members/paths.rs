//! One drive of this machine by several block devices (`/dev/sdb|/dev/sdc`), where the system's own
//! multipath does not make one device of them.
//!
//! Requests go by one path, the first to begin with. A path that answers with an error, or does not
//! answer within [`PATIENCE`], is passed over for the next one; it is tried again now and then, and
//! the first one that is there is gone back to. By choice reads take turns over all of them. The
//! last path that is there is waited for; paths that failed are asked after it, and where none can
//! do it, what was said by a path that is there counts, also if it comes late.
//!
//! - A write that a path has not answered may still be carried out. Invariant: no other write of
//!   any of the same bytes is sent by any path until the system has completed it, however long that
//!   takes. The system says so for certain, unlike a server across a network. A write that goes on
//!   to the next path looks again.
//! - A flush covers what was written by all paths: they are one drive, with one cache, and nothing
//!   lies between (only devices that bypass the page cache are taken). A drive tells of lost writes
//!   once. So a flush is waited for, however long it takes, and is asked for by another path only
//!   if the error says that it never reached the drive.
//! - A path that was not there before, or comes back, is used only if it shows the same as one that
//!   is there: enclosures of one kind often give all drives one number.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wattle_rt::{
    Buf, BufMut, Core, CoreHandle, Device, Durability, Either, Instant, IoError, Link, LinkPath, LinkState,
    PathState, ReopenError, Reply, Serve, Unmap, race,
};

use super::drive_id::{Comparison, compare};

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
    /// Writes that a path has not completed in time.
    late: Mutex<Vec<LateWrite>>,
    late_count: AtomicUsize,
    numbers: AtomicU64,
}

struct LateWrite {
    /// Of this attempt.
    attempt: u64,
    /// Of this write, by whichever path.
    change: u64,
    range: Range<u64>,
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
        let (mut order, failed): (Vec<usize>, Vec<usize>) =
            (0..self.paths.len()).partition(|path| self.is_there(*path));
        let there = order.len();
        if is_read && self.in_turn.load(Ordering::Relaxed) && there > 1 {
            order.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % there);
        }
        failed.iter().for_each(|path| self.try_again(core, *path));
        order.extend(failed);
        order
    }

    fn is_there(&self, path: usize) -> bool {
        let now = locked(&self.paths[path].now);
        now.failed.is_none() && now.device.is_some()
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
        drop(now);
        let others = (0..self.paths.len()).filter(|other| *other != path && self.is_there(*other));
        let known = others.filter_map(|other| self.device(other)).next();
        drop(core.clone().spawn(async move {
            let was_there = device.is_some();
            let mut answers = answering(&core, device).await;
            if answers.is_none() {
                // A write between the two looks makes them differ: then it is had a second later.
                let is_same = move |new: &Device| match &known {
                    Some(known) => compare(known, new) == Comparison::Same,
                    None => was_there,
                };
                let again = core.offload(move || open().filter(is_same)).await;
                answers = answering(&core, again.ok().flatten()).await;
            }
            let mut now = locked(&paths.paths[path].now);
            now.is_tried = false;
            now.failed = answers.is_none().then(|| core.now());
            now.device = answers.or(now.device.take());
        }));
    }

    /// Asks one path after the other until one answers as it should. One that has not answered for
    /// as long as `patience` is passed over while another one is there; `ready` is waited for
    /// before each request, and `late` called for each that is passed over.
    async fn ask<T: 'static>(
        self: &Arc<Self>,
        core: &Core,
        (order, patience): (&[usize], Option<Duration>),
        goes_on: impl Fn(IoError) -> bool,
        ready: impl AsyncFn(),
        mut request: impl FnMut(Device) -> Reply<Result<T, IoError>>,
        mut late: impl FnMut(),
    ) -> Result<T, IoError> {
        let (mut failed, mut first, mut unanswered) = (Vec::new(), None, Vec::new());
        let is_any_there = order.iter().any(|path| self.is_there(*path));
        for (attempt, path) in order.iter().enumerate() {
            let Some(device) = self.device(*path) else { continue };
            ready().await;
            let later = &order[attempt + 1..];
            let has_other = match is_any_there {
                true => later.iter().any(|path| self.is_there(*path)),
                false => !later.is_empty(),
            };
            let mut answer = Box::pin(core.spawn(request(device)));
            let result = match patience.filter(|_| has_other) {
                None => Some((&mut answer).await),
                Some(patience) => match race(&mut answer, core.sleep(patience)).await {
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
                Some(Err(error)) if !goes_on(error) => return Err(error),
                Some(Err(error)) => {
                    failed.push(*path);
                    // Those that are there come first.
                    first.get_or_insert(error);
                }
                None => {
                    late();
                    self.fail(core, *path);
                    unanswered.push(answer);
                }
            }
        }
        // No other path could do it. What was passed over still answers.
        for answer in unanswered {
            match answer.await {
                Ok(value) => return Ok(value),
                Err(error) => first = Some(error),
            }
        }
        Err(first.unwrap_or(IoError::GONE))
    }

    /// Changes a range, by a path that answers.
    async fn change(
        self: Arc<Self>,
        core: Core,
        range: Range<u64>,
        write: impl Fn(Core, Device) -> Reply<Result<(), IoError>>,
    ) -> Result<(), IoError> {
        let change = self.numbers.fetch_add(1, Ordering::Relaxed);
        let order = self.order(&core, false);
        let number = std::cell::Cell::new(0);
        let ready = async || {
            while self.has_late(change, &range) {
                core.sleep(LOOK).await;
            }
        };
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
            let attempt = number.get();
            locked(&self.late).push(LateWrite { attempt, change, range: range.clone() });
            self.late_count.fetch_add(1, Ordering::Release);
        };
        self.ask(&core, (&order, Some(PATIENCE)), |_| true, ready, request, late).await
    }

    /// Whether another write of any of these bytes is late.
    fn has_late(&self, change: u64, range: &Range<u64>) -> bool {
        let is_other = |late: &LateWrite| {
            late.change != change && late.range.start < range.end && range.start < late.range.end
        };
        self.late_count.load(Ordering::Acquire) > 0 && locked(&self.late).iter().any(is_other)
    }

    /// A write is completed, late or not: it is late only from the moment at which its own core
    /// says so, and it completes there.
    fn completed(&self, number: u64) {
        if self.late_count.load(Ordering::Acquire) > 0 {
            let mut late = locked(&self.late);
            let before = late.len();
            late.retain(|late| late.attempt != number);
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
            let asked = (&order[..], Some(PATIENCE));
            let read = paths.ask(&core, asked, |_| true, async || {}, request, || {}).await;
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
            paths.ask(&core, (&order, None), is_of_the_way, async || {}, request, || {}).await
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
        let (overdue, ended, changed) = (Duration::ZERO, None, None);
        Box::pin(async move { Some(LinkState { overdue, ended, changed, settled: false, paths }) })
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
        with_some_paths([true, true], test);
    }

    /// Of the two paths those that are there from the start.
    fn with_some_paths(there: [bool; 2], test: impl AsyncFnOnce(Core, Device, [Arc<Way>; 2], Device)) {
        let home = beside().unwrap();
        let below = Device::mem(1 << 20);
        let ways = [Arc::<Way>::default(), Arc::default()];
        let found = ways.iter().zip(["a", "b"]).zip(there).map(|((way, name), is_there)| {
            let by = ByWay(below.clone(), way.clone());
            let device = home.call_blocking(async move |core: Core| {
                Device::served(name, 1 << 20, 512, true, &core, Arc::new(by))
            });
            let device = device.ok().filter(|_| is_there);
            FoundPath { name: name.to_owned(), device, open: Arc::new(|| None) }
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

    /// Has a path stall for longer than another one would be waited for.
    fn stall_for_a_while(core: &Core, way: &Arc<Way>) {
        way.stalls.store(true, Ordering::Relaxed);
        let (core, way) = (core.clone(), way.clone());
        drop(core.clone().spawn(async move {
            core.sleep(PATIENCE * 3 / 2).await;
            way.stalls.store(false, Ordering::Relaxed);
        }));
    }

    /// The only path that is there is waited for, whether the other one died or never was there.
    #[test]
    fn a_path_that_is_not_there_does_not_speak_for_the_drive() {
        let slow = async |core: Core, drive: Device, [a, b]: [Arc<Way>; 2], below: Device| {
            *locked(&b.error) = Some(IoError::GONE);
            while states(&core, &drive).await[1].0 != PathState::Failed {
                // By turns it is found out.
                drive.link().unwrap().take_turns(&core, true).await;
                byte(&core, &drive, 0).await.unwrap();
            }
            drive.link().unwrap().take_turns(&core, false).await;
            stall_for_a_while(&core, &a);
            write(&core, &drive, 0, 7).await.unwrap();
            assert_eq!(byte(&core, &below, 0).await, Ok(7));
            stall_for_a_while(&core, &a);
            core.flush(&drive).await.unwrap();
            *locked(&a.error) = Some(IoError::MEDIUM);
            assert_eq!(byte(&core, &drive, 0).await, Err(IoError::MEDIUM), "of one sector, not of the drive");
            *locked(&a.error) = None;
            let zeroes = core.write_zeroes(&drive, 0, 512, Unmap::Yes).await;
            assert_eq!(zeroes, Err(IoError::UNSUPPORTED));
        };
        with_paths(slow);
        with_some_paths([true, false], slow);
    }

    /// The other path would say that all is well.
    #[test]
    fn a_slow_flush_that_tells_of_lost_writes_is_heard() {
        with_paths(async |core, drive, [a, _], _| {
            *locked(&a.error) = Some(IoError::from_errno(5));
            stall_for_a_while(&core, &a);
            assert_eq!(core.flush(&drive).await, Err(IoError::from_errno(5)));
        });
    }

    /// Both were under way by the path that stalls when the older one was passed on.
    #[test]
    fn a_write_that_is_passed_on_waits_for_older_ones_of_its_bytes() {
        with_paths(async |core, drive, [a, b], below| {
            a.stalls.store(true, Ordering::Relaxed);
            let begun = |byte: u8| {
                let (core, drive) = (core.clone(), drive.clone());
                core.clone().spawn(async move { write(&core, &drive, 0, byte).await })
            };
            let older = begun(1);
            core.sleep(PATIENCE / 2).await;
            let newer = begun(2);
            older.await.unwrap();
            core.sleep(PATIENCE).await;
            assert_eq!(b.writes.load(Ordering::Relaxed), 1, "the newer one waits");
            a.stalls.store(false, Ordering::Relaxed);
            newer.await.unwrap();
            core.sleep(Duration::from_millis(50)).await;
            assert_eq!(byte(&core, &below, 0).await, Ok(2));
        });
    }
}
