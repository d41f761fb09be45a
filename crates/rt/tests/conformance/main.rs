//! One suite for every backend: what holds on io_uring holds on plain system calls and in virtual
//! time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "tests"
)]

mod files;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::vec::Drain;
use wattle_rt::model::{Flash, Media};
use wattle_rt::{
    BackendChoice, BackendError, Buf, BufMut, Core, CoreIx, Device, Direct, DriveConfig, DriveModel,
    Durability, IoError, IoErrorKind, Lock, Message, OpenError, OpenOptions, RingMode, Rng, RuntimeConfig,
    SimWorld, Traffic, Unmap, WorldConfig, mailbox, race, run, sync,
};

const SIZE: u64 = 8 << 20;

fn config(backend: BackendChoice, cores: usize) -> RuntimeConfig {
    // A shallow queue, so that large batches overflow it.
    RuntimeConfig { cores, backend, queue_depth: 64, ..RuntimeConfig::default() }
}

fn file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(SIZE).unwrap();
    file
}

fn open(file: &tempfile::NamedTempFile, direct: Direct) -> Device {
    Device::open(
        file.path(),
        OpenOptions { write: true, direct, lock: Lock::Exclusive, ..OpenOptions::default() },
    )
    .unwrap()
}

/// Every real backend: io_uring in each of its modes, and plain system calls.
const REAL: [(BackendChoice, RingMode); 4] = [
    (BackendChoice::Uring, RingMode::Deferred),
    (BackendChoice::Uring, RingMode::Cooperative),
    (BackendChoice::Uring, RingMode::Plain),
    (BackendChoice::Syscall, RingMode::Best),
];

/// Runs `test` with a fresh drive on every backend: all real ones, with and without the page cache,
/// drives in memory, and three seeds of the simulated one.
fn on_every_backend(cores: usize, test: impl AsyncFn(Core, Device)) {
    // Miri has neither io_uring nor files without the page cache, and is slow: one world is enough.
    let (real, seeds) = if cfg!(miri) { (&[][..], 0..1) } else { (&REAL[..], 0..3) };
    for &(backend, ring) in real {
        for direct in [Direct::Auto, Direct::Never] {
            let file = file();
            let drive = open(&file, direct);
            let config = RuntimeConfig { ring, ..config(backend, cores) };
            match run(config, async |core| test(core, drive).await) {
                Ok(()) => {}
                Err(BackendError::UringForbidden { errno }) => println!("no {ring:?} here: errno {errno}"),
                Err(error) => panic!("{backend:?} {ring:?}: {error}"),
            }
        }
    }
    run(config(BackendChoice::Auto, cores), async |core| test(core, Device::mem(SIZE)).await).unwrap();
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        let drive = Device::modelled("modelled", SIZE, 512, &fast());
        run(config(backend, cores), async |core| test(core, drive).await).unwrap();
    }
    for seed in seeds {
        let mut world = SimWorld::new(WorldConfig { seed, cores, ..WorldConfig::default() });
        let drive = world.add_drive(DriveConfig { size_bytes: SIZE, ..DriveConfig::default() });
        world.run(async |core| test(core, drive).await).expect_done();
    }
}

/// A drive of a million operations a second, 20 µs each.
fn fast() -> DriveModel {
    let latency = Duration::from_micros(20);
    let flash = Flash {
        reads_per_second: 1_000_000,
        writes_per_second: 1_000_000,
        read_bytes_per_second: 10_000_000_000,
        write_bytes_per_second: 10_000_000_000,
        read_latency: latency,
        write_latency: latency,
        channels: 0,
        turnaround: Duration::ZERO,
        burst_bytes: 0,
        burst_writes_per_second: 0,
        burst_bytes_per_second: 0,
        refill_bytes_per_second: 0,
        collection_pause: Duration::ZERO,
        collection_share_ppm: 0,
    };
    DriveModel { queue_depth: 32, group: 0, cache_bytes: 0, flush: latency, media: Media::Flash(flash) }
}

fn pattern(seed: u64, len: usize) -> Buf {
    let mut buf = BufMut::alloc(len);
    Rng::new(seed).fill(&mut buf);
    buf.freeze()
}

#[test]
fn what_is_written_is_read_at_any_offset_and_size() {
    on_every_backend(1, async |core, drive| {
        let mut oracle = vec![0u8; SIZE as usize];
        let mut rng = Rng::new(1);
        let (rounds, sizes) = if cfg!(miri) { (8, 4) } else { (60, 10) };
        for round in 0..rounds {
            let len = (512 << rng.below(sizes)) as usize;
            let offset = rng.below((SIZE - len as u64) / 512) * 512;
            let durability = if rng.coin() { Durability::Fua } else { Durability::Cached };
            let data = pattern(round, len);
            oracle[offset as usize..offset as usize + len].copy_from_slice(&data);
            if round % 2 == 0 {
                core.write(&drive, offset, data, durability).await.unwrap();
            } else {
                let cut = rng.below(len as u64 / 512 + 1) as usize * 512;
                let parts = vec![data.slice(..cut), data.slice(cut..)];
                core.writev(&drive, offset, parts, durability).await.unwrap();
            }
        }
        core.flush(&drive).await.unwrap();
        let (result, seen) = core.read(&drive, 0, BufMut::alloc(SIZE as usize)).await;
        result.unwrap();
        assert!(seen[..] == oracle[..]);

        let segments = if cfg!(miri) { 4 } else { 20 };
        let bufs = (0..segments).map(|at| BufMut::alloc(512 * (at + 1))).collect();
        let (result, bufs) = core.readv(&drive, 4096, bufs).await;
        result.unwrap();
        let seen: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
        assert!(seen[..] == oracle[4096..4096 + seen.len()]);
    });
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, byte by byte")]
fn more_segments_than_one_call_takes() {
    // The kernel takes 1024 segments: a longer list must be continued, not cut or refused.
    on_every_backend(1, async |core, drive| {
        let parts: Vec<Buf> = (0..3000u64).map(|at| Buf::copy_of(&[at as u8; 512])).collect();
        core.writev(&drive, 512, parts, Durability::Cached).await.unwrap();
        let (result, bufs) = core.readv(&drive, 512, (0..3000).map(|_| BufMut::zeroed(512)).collect()).await;
        result.unwrap();
        assert!(bufs.iter().enumerate().all(|(at, buf)| buf.iter().all(|&byte| byte == at as u8)));
    });
}

#[test]
fn a_batch_far_beyond_the_ring_is_neither_lost_nor_stuck() {
    on_every_backend(1, async |core, drive| {
        // Still beyond the queue under Miri.
        let count = if cfg!(miri) { 100 } else { 10_000u64 };
        let blocks = count.min(SIZE / 512);
        let data: Vec<Buf> = (0..blocks).map(|at| Buf::copy_of(&[at as u8; 512])).collect();
        let writes: Vec<_> = (0..count)
            .map(|at| {
                core.write(
                    &drive,
                    at % blocks * 512,
                    data[(at % blocks) as usize].clone(),
                    Durability::Cached,
                )
            })
            .collect();
        assert_eq!(core.ops_in_flight(), count as usize);
        for write in writes {
            write.await.unwrap();
        }
        let reads: Vec<_> =
            (0..count).map(|at| core.read(&drive, at % blocks * 512, BufMut::alloc(512))).collect();
        for (at, read) in (0..count).zip(reads) {
            let (result, buf) = read.await;
            result.unwrap();
            assert!(buf.iter().all(|&byte| byte == (at % blocks) as u8));
        }
        assert_eq!(core.ops_in_flight(), 0);
    });
}

#[test]
fn operations_start_when_called_and_survive_their_futures() {
    // Dropping a future must neither stop a write nor free memory that the kernel holds.
    on_every_backend(1, async |core, drive| {
        let count = if cfg!(miri) { 2 } else { 200u64 };
        for at in 0..count {
            drop(core.write(&drive, at * 4096, Buf::copy_of(&[at as u8 + 1; 4096]), Durability::Cached));
            drop(core.read(&drive, at * 4096, BufMut::alloc(4096)));
            if at % 3 == 0 {
                core.yield_now().await;
            }
        }
        while core.ops_in_flight() > 0 {
            core.sleep(Duration::from_micros(100)).await;
        }
        let (result, buf) = core.read(&drive, 0, BufMut::alloc(count as usize * 4096)).await;
        result.unwrap();
        assert!(
            buf.chunks(4096).enumerate().all(|(at, block)| block.iter().all(|&byte| byte == at as u8 + 1))
        );
        // These are still in flight when the runtime ends.
        (0..100).for_each(|at| drop(core.read(&drive, at * 4096, BufMut::alloc(4096))));
    });
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, byte by byte")]
fn zeroing_zeroes_exactly_the_range() {
    on_every_backend(1, async |core, drive| {
        for unmap in [Unmap::Yes, Unmap::No] {
            core.write(&drive, 0, Buf::copy_of(&vec![7; 1 << 20]), Durability::Cached).await.unwrap();
            match core.write_zeroes(&drive, 4096, 300 << 10, unmap).await {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), IoErrorKind::Unsupported, "{error}");
                    continue;
                }
            }
            let (result, buf) = core.read(&drive, 0, BufMut::alloc(1 << 20)).await;
            result.unwrap();
            let zeroed = 4096..4096 + (300 << 10);
            assert!(
                buf.iter().enumerate().all(|(at, &byte)| byte == if zeroed.contains(&at) { 0 } else { 7 })
            );
        }
        assert_eq!(core.write_zeroes(&drive, SIZE - 512, 1024, Unmap::No).await, Err(IoError::NO_SPACE));
        assert_eq!(core.write_zeroes(&drive, SIZE, 0, Unmap::No).await, Ok(()));
    });
}

#[test]
fn nothing_lies_beyond_the_end() {
    // A write past the end of a member file once would have grown it.
    on_every_backend(1, async |core, drive| {
        let (result, buf) = core.read(&drive, SIZE - 512, BufMut::alloc(1024)).await;
        assert_eq!((result, buf.len()), (Err(IoError::END_OF_DEVICE), 1024));
        assert_eq!(core.read(&drive, u64::MAX, BufMut::alloc(512)).await.0, Err(IoError::END_OF_DEVICE));
        let beyond = core.write(&drive, SIZE - 512, Buf::zeros(1024), Durability::Cached).await;
        assert_eq!(beyond.unwrap_err().kind(), IoErrorKind::NoSpace);
        assert_eq!(core.read(&drive, SIZE, BufMut::alloc(0)).await.0, Ok(()));
        assert_eq!(core.write(&drive, SIZE - 512, Buf::zeros(512), Durability::Fua).await, Ok(()));
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    on_every_backend(1, async |core, _drive| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = core.now();
        let sleepers: Vec<_> = [5u64, 1, 9, 3, 7]
            .into_iter()
            .map(|millis| {
                let (core2, order) = (core.clone(), order.clone());
                core.spawn(async move {
                    core2.sleep_until(start + Duration::from_millis(millis)).await;
                    assert!(core2.now() >= start + Duration::from_millis(millis));
                    order.borrow_mut().push(millis);
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.await;
        }
        assert_eq!(*order.borrow(), [1, 3, 5, 7, 9]);
        assert!(core.now() - start < Duration::from_secs(2), "sleeping blocks nobody else");
        drop(core.sleep(Duration::from_secs(3600)));
        core.sleep(Duration::ZERO).await;
    });
}

#[test]
fn tasks_join_and_detached_tasks_run_on() {
    on_every_backend(1, async |core, _drive| {
        let count = Rc::new(RefCell::new(0));
        for _ in 0..100 {
            let (core2, count) = (core.clone(), count.clone());
            drop(core.spawn(async move {
                core2.yield_now().await;
                *count.borrow_mut() += 1;
            }));
        }
        let nested = core.spawn({
            let core = core.clone();
            async move { core.spawn(async { 6 * 7 }).await }
        });
        assert_eq!(nested.await, 42);
        while *count.borrow() < 100 {
            core.yield_now().await;
        }
    });
}

#[test]
fn cores_call_each_other_and_keep_their_own_values() {
    on_every_backend(4, async |core, drive| {
        assert_eq!((core.cores(), core.index()), (4, CoreIx(0)));
        for ix in 0..4 {
            core.call(CoreIx(ix), move |core| async move { core.put_local(1, Rc::new(ix * 10)) }).await;
        }
        let count = if cfg!(miri) { 20 } else { 200usize };
        let calls: Vec<_> = (0..count)
            .map(|at| {
                let drive = drive.clone();
                core.call(CoreIx(at % 4), move |core| async move {
                    core.write(&drive, at as u64 * 512, Buf::copy_of(&[at as u8; 512]), Durability::Cached)
                        .await
                        .unwrap();
                    let next = CoreIx((core.index().0 + 1) % core.cores());
                    let back = core.call(next, |core| async move { core.index() }).await;
                    assert_eq!(back, next);
                    *core.local::<usize>(1).unwrap() + core.index().0
                })
            })
            .collect();
        for (at, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await, at % 4 * 11);
        }
        assert_eq!(core.local::<String>(1), None);
        assert_eq!(core.take_local::<usize>(1).as_deref(), Some(&0));
        assert_eq!(core.local::<usize>(1), None);
        let (result, buf) = core.read(&drive, 0, BufMut::alloc(count * 512)).await;
        result.unwrap();
        assert!(buf.chunks(512).enumerate().all(|(at, block)| block.iter().all(|&byte| byte == at as u8)));
    });
}

/// What has come to a core, in the order in which it came.
type Come = RefCell<Vec<usize>>;

fn note(core: &Core, number: usize) {
    core.local::<Come>(2).unwrap().borrow_mut().push(number);
}

/// Messages of two kinds.
struct Even(usize);
struct Odd(Box<usize>);

impl Message for Even {
    fn deliver(messages: Drain<'_, Even>, core: &Core) {
        messages.for_each(|message| note(core, message.0));
    }
}

impl Message for Odd {
    fn deliver(messages: Drain<'_, Odd>, core: &Core) {
        messages.for_each(|message| note(core, *message.0));
    }
}

#[test]
fn messages_come_to_every_core_in_the_order_in_which_they_were_sent() {
    const MESSAGES: usize = if cfg!(miri) { 50 } else { 500 };
    on_every_backend(3, async |core, _drive| {
        for ix in (0..3).map(CoreIx) {
            core.call(ix, async |core| core.put_local(2, Rc::new(Come::default()))).await;
        }
        for number in 0..MESSAGES {
            for ix in (0..3).map(CoreIx) {
                match number % 5 {
                    1 | 3 => core.post(ix, Odd(Box::new(number))),
                    _ => core.post(ix, Even(number)),
                }
            }
            if number % 100 == 99 {
                core.yield_now().await;
            }
        }
        for ix in (0..3).map(CoreIx) {
            let come = core.call(ix, async |core| {
                let come = core.local::<Come>(2).unwrap();
                while come.borrow().len() < MESSAGES {
                    core.yield_now().await;
                }
                come.take()
            });
            assert!(come.await.into_iter().eq(0..MESSAGES), "{ix:?}");
        }
    });
}

#[test]
fn much_work_for_another_core_leaves_before_the_turn_ends() {
    run(config(BackendChoice::Auto, 2), async |core| {
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..64 {
            let begun = begun.clone();
            drop(core.call(CoreIx(1), move |_core| async move { begun.fetch_add(1, Ordering::Relaxed) }));
        }
        // This turn does not end until the other core has begun.
        let deadline = core.now() + Duration::from_secs(20);
        while begun.load(Ordering::Relaxed) == 0 && core.now() < deadline {
            std::thread::yield_now();
        }
        assert_ne!(begun.load(Ordering::Relaxed), 0);
    })
    .unwrap();
}

#[test]
fn handles_for_cores_are_of_the_same_open() {
    let device = Device::null(SIZE);
    assert!(device.for_core().same(&device) && device.for_core().for_core().same(&device));
    assert!(!device.for_core().same(&Device::null(SIZE)));
}

#[test]
fn what_was_begun_on_a_drive_in_memory_is_done_when_the_runtime_has_ended() {
    let begin = |core: &Core, drive: &Device| {
        drop(core.write(drive, 512, Buf::copy_of(&[7; 512]), Durability::Cached));
    };
    let [real, simulated] = [Device::mem(SIZE), Device::mem(SIZE)];
    run(config(BackendChoice::Auto, 1), async |core| begin(&core, &real)).unwrap();
    SimWorld::new(WorldConfig::default()).run(async |core| begin(&core, &simulated)).expect_done();
    for drive in [real, simulated] {
        let mut seen = [0; 512];
        drive.read_blocking(512, &mut seen).unwrap();
        assert_eq!(seen, [7; 512]);
    }
}

#[test]
fn what_was_begun_goes_on_before_all_others_begin() {
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        run(config(backend, 1), async |core| {
            let (drive, polls) = (Device::mem(SIZE), Rc::new(Cell::new(0)));
            for _ in 0..if cfg!(miri) { 100 } else { 500 } {
                let (core2, polls) = (core.clone(), polls.clone());
                drop(core.spawn(async move {
                    loop {
                        polls.set(polls.get() + 1);
                        core2.yield_now().await;
                    }
                }));
            }
            core.yield_now().await;
            for _ in 0..10 {
                let before = polls.get();
                core.read(&drive, 0, BufMut::alloc(512)).await.0.unwrap();
                assert!(polls.get() - before < 64, "{} others went first", polls.get() - before);
            }
        })
        .unwrap();
    }
}

#[test]
fn who_begins_something_does_not_wait_for_those_who_are_always_at_it() {
    const READERS: u64 = if cfg!(miri) { 50 } else { 1000 };
    run(config(BackendChoice::Auto, 1), async |core| {
        let (drive, reads) = (Device::mem(SIZE), Rc::new(Cell::new(0)));
        for number in 0..2 * READERS {
            let (core2, drive, reads) = (core.clone(), drive.clone(), reads.clone());
            drop(core.spawn(async move {
                let mut buf = BufMut::alloc(512);
                loop {
                    if number % 2 == 0 {
                        core2.yield_now().await;
                        continue;
                    }
                    buf = core2.read(&drive, 0, buf).await.1;
                    reads.set(reads.get() + 1);
                }
            }));
        }
        core.yield_now().await;
        for _ in 0..30 {
            let before = reads.get();
            core.yield_now().await;
            assert!(reads.get() - before <= 4 * READERS, "{} reads went first", reads.get() - before);
        }
    })
    .unwrap();
}

#[test]
fn what_is_counted_ends_whoever_waits_for_it() {
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        run(config(backend, 1), async |core| {
            let (drive, traffic) = (Device::mem(SIZE), Rc::new(Traffic::default()));
            // Dropped before it ends, after that, and when it was asked for already.
            for way in 0..3 {
                let read = core.read(&drive, 0, BufMut::alloc(512));
                read.count_in(&traffic, 512);
                assert_eq!((traffic.bytes_in_flight(), core.ops_in_flight()), (512, 1));
                match way {
                    0 => drop(read),
                    1 => {
                        core.yield_now().await;
                        drop(read);
                    }
                    _ => drop(race(read, core.yield_now()).await),
                }
                core.yield_now().await;
                core.yield_now().await;
                assert_eq!(
                    (traffic.bytes_in_flight(), core.ops_in_flight(), traffic.totals().in_flight),
                    (0, 0, 0)
                );
            }
            assert_eq!(traffic.totals().read_bytes, 3 * 512);
        })
        .unwrap();
    }
}

#[test]
fn an_operation_may_be_dropped_after_its_runtime() {
    let drive = Device::mem(SIZE);
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        drop(run(config(backend, 1), async |core| core.read(&drive, 0, BufMut::alloc(512))).unwrap());
    }
}

#[test]
fn mailboxes_deliver_everything_and_wake_a_sleeping_core() {
    const MESSAGES: u64 = if cfg!(miri) { 100 } else { 2000 };
    on_every_backend(3, async |core, _drive| {
        let (sender, mut receiver) = mailbox::<(usize, u64)>();
        for ix in 1..3 {
            let sender = sender.clone();
            // Not awaited: the senders run while this core receives.
            drop(core.call(CoreIx(ix), move |core| async move {
                for at in 0..MESSAGES {
                    sender.send((ix, at)).unwrap();
                    match at % (MESSAGES / 4) {
                        0 => core.sleep(Duration::from_millis(1)).await,
                        1 => core.yield_now().await,
                        _ => {}
                    }
                }
            }));
        }
        drop(sender);
        let mut next = [0, 0, 0];
        while let Some((ix, at)) = receiver.recv().await {
            assert_eq!(at, next[ix], "messages of one sender keep their order");
            next[ix] += 1;
        }
        assert_eq!(next, [0, MESSAGES, MESSAGES]);
    });
}

#[test]
fn everything_is_dropped_at_the_end() {
    // A task that still waits when the runtime ends must let go of what it holds: locks, exports,
    // drives.
    let held = Arc::new(AtomicUsize::new(0));
    struct Hold(Arc<AtomicUsize>);
    impl Drop for Hold {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let counted = held.clone();
    on_every_backend(2, async move |core, drive| {
        for ix in 0..2 {
            let (counted, drive) = (counted.clone(), drive.clone());
            core.call(CoreIx(ix), move |core| async move {
                let hold = || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    Hold(counted.clone())
                };
                core.put_local(9, Rc::new(hold()));
                let (task, core2) = (hold(), core.clone());
                drop(core.spawn(async move {
                    let _task = task;
                    let _ = core2.read(&drive, 0, BufMut::alloc(4096)).await;
                    core2.sleep(Duration::from_secs(3600)).await;
                }));
            })
            .await;
        }
    });
    assert_eq!(held.load(Ordering::Relaxed), 0);
}

#[test]
fn semaphores_are_fair_and_events_remembered() {
    on_every_backend(1, async |core, _drive| {
        let semaphore = Rc::new(sync::Semaphore::new(3));
        let order = Rc::new(RefCell::new(Vec::new()));
        let all = semaphore.acquire(3).await;
        let event = Rc::new(sync::Latch::new());
        let mut tasks = Vec::new();
        for (index, amount) in [(0, 2), (1, 3), (2, 1)] {
            let (core2, semaphore, order) = (core.clone(), semaphore.clone(), order.clone());
            tasks.push(core.spawn(async move {
                let _permit = semaphore.acquire(amount).await;
                order.borrow_mut().push(index);
                core2.sleep(Duration::from_millis(1)).await;
            }));
            core.sleep(Duration::from_millis(1)).await; // They queue in this order.
        }
        let waits = core.spawn({
            let event = event.clone();
            async move { event.wait().await }
        });
        {
            let mut given_up = std::pin::pin!(semaphore.acquire(1));
            assert!(futures_poll(given_up.as_mut()).await.is_none());
        }
        assert!(semaphore.try_acquire(1).is_none());
        drop(all);
        event.set();
        for task in tasks {
            task.await;
        }
        waits.await;
        event.wait().await;
        assert_eq!((&order.borrow()[..], semaphore.available()), (&[0, 1, 2][..], 3));
    });
}

/// Polls once.
async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn a_panic_on_any_core_ends_the_runtime() {
    // Core 0 waits for an answer that never comes: without the alarm this would hang for ever.
    let ran = std::panic::catch_unwind(|| {
        run(config(BackendChoice::Auto, 2), async |core| {
            core.call(CoreIx(1), |_core| async { panic!("on purpose") }).await
        })
    });
    let panic = ran.expect_err("the panic comes out");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}
