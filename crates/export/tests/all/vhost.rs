//! Disks for virtual machines against a hypervisor that does exactly what a test says.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{MIB, volume, within};
use rustix::event::{EventfdFlags, eventfd};
use wattle_engine::volume::qos::{QosLimits, QosRate, QosRates, QosScope, QosSite, QosUnit};
use wattle_engine::{Volume, VolumeRef};
use wattle_export::vhost::{VhostServer, socket_of};
use wattle_rt::{BufMut, Core, RuntimeConfig, SharedMemory, Stream, run};

/// Requests of the protocol, by its own numbers.
mod front {
    pub const SET_FEATURES: u32 = 2;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const RESET_DEVICE: u32 = 34;
}

const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const MEMORY: usize = 1 << 20;
const SIZE: u16 = 64;
const SECTOR: u64 = 512;

struct Rig {
    core: Core,
    socket: PathBuf,
    volume: VolumeRef,
}

/// A server with one volume, which can be made to answer as slowly as a test likes.
fn with_disk(cores: usize, test: impl AsyncFnOnce(Rig)) {
    let config = RuntimeConfig { cores, ..RuntimeConfig::default() };
    let serve = async move |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let volume = QosSite::new(cores).govern(volume(&core, "disk", 16 * MIB, false).await);
        let dir = directory.path().to_owned();
        let server = VhostServer::start(&core, dir.clone(), vec![volume.clone()], |_, _| {}).await.unwrap();
        let rig = Rig { core: core.clone(), socket: socket_of(&dir, "disk"), volume };
        within(&core, Duration::from_secs(60), test(rig)).await.expect("the test hangs");
        server.stop().await;
    };
    run(config, serve).unwrap();
}

impl Rig {
    /// One request a second is answered from now on, or all are at once.
    async fn hold(&self, hold: bool) {
        let mut rates = QosRates::default();
        if hold {
            rates.0[QosRate { unit: QosUnit::Requests, scope: QosScope::All }.index()] = Some(1);
        }
        let limits = QosLimits { volume: rates, burst: Duration::from_millis(1), ..QosLimits::default() };
        self.volume.governed().unwrap().set(&self.core, limits).await;
    }

    async fn pause(&self) {
        self.core.sleep(Duration::from_millis(100)).await;
    }

    fn open(&self) -> Volume {
        self.volume.open(&self.core).unwrap()
    }

    async fn byte_at(&self, sector: u64) -> u8 {
        let (result, data) = self.open().read(sector * SECTOR, BufMut::alloc(SECTOR as usize)).await;
        result.unwrap();
        data[0]
    }
}

/// A guest's memory, which outlives the hypervisors that run it.
struct Memory {
    shared: SharedMemory,
    file: OwnedFd,
}

/// A hypervisor with its guest: split rings, one descriptor table for each queue.
struct Guest {
    core: Core,
    stream: Stream,
    memory: Rc<Memory>,
}

/// Where the parts of a queue lie: descriptors, what the driver writes, what the device writes, and
/// 1 KiB for each request.
fn parts(queue: u32) -> [usize; 4] {
    [0, 0x1000, 0x2000, 0x4000].map(|at| queue as usize * 0x20000 + at)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

/// One region, all of a guest's memory.
fn memory_table() -> Vec<u8> {
    [words(&[1, 0]), longs(&[0, MEMORY as u64, 0, 0])].concat()
}

impl Guest {
    fn memory() -> Rc<Memory> {
        let (shared, file) = SharedMemory::create(MEMORY).unwrap();
        Rc::new(Memory { shared, file })
    }

    async fn connect(rig: &Rig, memory: &Rc<Memory>) -> Self {
        let stream = Stream::connect_unix(&rig.socket).unwrap();
        let guest = Self { core: rig.core.clone(), stream, memory: memory.clone() };
        const REPLY_ACK: u64 = 1 << 3;
        const RESET_DEVICE: u64 = 1 << 13;
        const FEATURES: u64 = 1 << 9 | 1 << 12 | 1 << 30 | 1 << 32;
        guest.say(front::SET_PROTOCOL_FEATURES, &longs(&[REPLY_ACK | RESET_DEVICE]), None);
        guest.ask(front::SET_FEATURES, &longs(&[FEATURES]), None).await;
        guest.ask(front::SET_MEM_TABLE, &memory_table(), Some(&memory.file)).await;
        guest
    }

    /// Sends a message that is not answered.
    fn say(&self, request: u32, payload: &[u8], file: Option<&OwnedFd>) {
        let message = [&words(&[request, 1, payload.len() as u32])[..], payload].concat();
        self.stream.try_send_along(&message, file.map(AsFd::as_fd)).unwrap();
    }

    /// Sends a message and waits until it is done.
    async fn ask(&self, request: u32, payload: &[u8], file: Option<&OwnedFd>) {
        const NEED_REPLY: u32 = 8;
        let message = [&words(&[request, 1 | NEED_REPLY, payload.len() as u32])[..], payload].concat();
        self.stream.try_send_along(&message, file.map(AsFd::as_fd)).unwrap();
        let mut reply: Vec<u8> = Vec::new();
        while reply.len() < 20 {
            let (count, part) = self.core.recv(&self.stream, BufMut::alloc(20 - reply.len())).await;
            let count = count.unwrap();
            assert_ne!(count, 0, "the server hung up after request {request}");
            reply.extend(&part[..count]);
        }
        assert_eq!(reply, [words(&[request, 5, 8]), longs(&[0])].concat());
    }

    /// Describes a queue.
    async fn describe(&self, queue: u32, base: u16) {
        let [descriptors, driver, device, _] = parts(queue).map(|at| at as u64);
        self.ask(front::SET_VRING_NUM, &words(&[queue, SIZE.into()]), None).await;
        let addresses = [words(&[queue, 0]), longs(&[descriptors, device, driver, 0])].concat();
        self.ask(front::SET_VRING_ADDR, &addresses, None).await;
        self.ask(front::SET_VRING_BASE, &words(&[queue, base.into()]), None).await;
    }

    /// Begins a queue that is looked at without a kick.
    async fn kick(&self, queue: u32) {
        const NO_FILE: u64 = 0x100;
        self.ask(front::SET_VRING_KICK, &longs(&[NO_FILE | u64::from(queue)]), None).await;
    }

    async fn start(&self, queue: u32, base: u16) {
        self.describe(queue, base).await;
        self.kick(queue).await;
        self.ask(front::SET_VRING_ENABLE, &words(&[queue, 1]), None).await;
    }

    /// Makes a request available: a sector of one byte over and over, where it is a write.
    fn put(&self, queue: u32, kind: u32, sector: u64, byte: u8) {
        const NEXT: u16 = 1;
        const DEVICE_WRITES: u16 = 2;
        let memory = &self.memory.shared;
        let [descriptors, driver, _, room] = parts(queue);
        let made = memory.u16_at(driver + 2).load(Ordering::Relaxed);
        let at = room + 1024 * usize::from(made);
        memory.write(at, &[words(&[kind, 0]), longs(&[sector])].concat());
        memory.write(at + 16, &[byte; SECTOR as usize]);
        memory.write(at + 1000, &[0xff]);
        let first = made * 3;
        let data = if kind == WRITE { SECTOR as u32 } else { 0 };
        for (ix, (place, len, flags)) in
            [(at, 16, NEXT), (at + 16, data, NEXT), (at + 1000, 1, DEVICE_WRITES)].into_iter().enumerate()
        {
            let ix = first + ix as u16;
            let descriptor = [
                &(place as u64).to_le_bytes()[..],
                &len.to_le_bytes(),
                &flags.to_le_bytes(),
                &(ix + 1).to_le_bytes(),
            ];
            memory.write(descriptors + 16 * usize::from(ix), &descriptor.concat());
        }
        memory.u16_at(driver + 4 + 2 * usize::from(made % SIZE)).store(first, Ordering::Relaxed);
        memory.u16_at(driver + 2).store(made + 1, Ordering::Release);
    }

    async fn wait_for_used(&self, queue: u32, count: u16) {
        while used(&self.memory, queue) < count {
            self.core.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// How many requests of a queue the device has completed.
fn used(memory: &Memory, queue: u32) -> u16 {
    memory.shared.u16_at(parts(queue)[2] + 2).load(Ordering::Acquire)
}

#[test]
fn a_connection_that_ends_stops_all_its_queues_at_once() {
    for cores in [1, 2] {
        with_disk(cores, async |rig| {
            let memory = Guest::memory();
            let guest = Guest::connect(&rig, &memory).await;
            for queue in 0..3 {
                guest.start(queue, 0).await;
                guest.put(queue, FLUSH, 0, 0);
                guest.wait_for_used(queue, 1).await;
            }
            rig.hold(true).await;
            (0..4).for_each(|sector| guest.put(0, WRITE, sector, 1));
            rig.pause().await;
            let before = used(&memory, 0);
            assert!(before < 5, "writes are held");
            let Guest { stream, .. } = guest;
            drop(stream);
            rig.pause().await;
            // The first queue still has writes under way. The others take nothing more either.
            let dead = Guest { core: rig.core.clone(), stream: Stream::pair().unwrap().0, memory };
            (1..3).for_each(|queue| dead.put(queue, FLUSH, 0, 0));
            rig.pause().await;
            rig.hold(false).await;
            let memory = Guest::memory();
            Guest::connect(&rig, &memory).await.start(0, 0).await;
            let done = [0, 1, 2].map(|queue| used(&dead.memory, queue));
            assert_eq!(done, [before, 1, 1], "nothing is touched after the end, {cores} cores");
        });
    }
}

/// A hypervisor that waits for a queue to end is killed, and the machine is started again.
#[test]
fn no_queue_begins_before_what_a_stopping_one_had_begun_is_done() {
    for request in [front::GET_VRING_BASE, front::SET_VRING_KICK, front::RESET_DEVICE] {
        for killed in [true, false] {
            with_disk(2, async |rig| {
                let memory = Guest::memory();
                let guest = Guest::connect(&rig, &memory).await;
                guest.start(0, 0).await;
                guest.start(1, 0).await;
                rig.hold(true).await;
                (0..4).for_each(|sector| guest.put(1, WRITE, sector, 1));
                rig.pause().await;
                let before = used(&memory, 1);
                let payload = match request {
                    front::GET_VRING_BASE => words(&[1, 0]),
                    front::SET_VRING_KICK => longs(&[0x101]),
                    _ => Vec::new(),
                };
                guest.say(request, &payload, None);
                rig.pause().await;
                let guest = (!killed).then_some(guest);
                let next = Guest::connect(&rig, &Guest::memory()).await;
                next.describe(0, 0).await;
                let early = within(&rig.core, Duration::from_millis(300), next.kick(0)).await;
                // What is held back of a guest that is gone is not begun any more.
                assert_eq!(early.is_some(), killed, "request {request}");
                rig.hold(false).await;
                if !killed {
                    // What was asked for above is answered once the old writes are done.
                    let (count, _) = rig.core.recv(&next.stream, BufMut::alloc(20)).await;
                    assert_eq!(count, Ok(20));
                }
                next.ask(front::SET_VRING_ENABLE, &words(&[0, 1]), None).await;
                next.put(0, WRITE, 3, 2);
                next.wait_for_used(0, 1).await;
                rig.pause().await;
                assert_eq!((rig.byte_at(2).await, rig.byte_at(3).await), (u8::from(!killed), 2));
                let done = if killed { before } else { 4 };
                assert_eq!(used(&memory, 1), done, "a guest that is gone is left alone");
                drop(guest);
            });
        }
    }
}

/// A path means one disk, today and tomorrow.
#[test]
fn two_volumes_whose_sockets_would_be_one_are_refused() {
    let serve = async move |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) =
            (volume(&core, "a/b-c", MIB, false).await, volume(&core, "a-b/c", MIB, false).await);
        let started = VhostServer::start(&core, directory.path().to_owned(), vec![one, other], |_, _| {});
        assert_eq!(started.await.err().unwrap().taken_by.as_deref(), Some("a/b-c"));
    };
    run(RuntimeConfig::default(), serve).unwrap();
}

#[test]
fn a_server_that_was_stopped_offers_nothing_more() {
    let serve = async move |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (volume(&core, "one", MIB, false).await, volume(&core, "other", MIB, false).await);
        let server = VhostServer::start(&core, directory.path().to_owned(), vec![one], |_, _| {});
        let server = server.await.unwrap();
        server.stop().await;
        assert!(server.add(other).await.is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    };
    run(RuntimeConfig::default(), serve).unwrap();
}

#[test]
fn a_descriptor_that_could_let_the_server_wait_ends_the_connection() {
    with_disk(1, async |rig| {
        let memory = Guest::memory();
        let pipe = OwnedFd::from(std::io::pipe().unwrap().0);
        let zero = OwnedFd::from(File::open("/dev/zero").unwrap());
        for (request, payload, file) in [
            (front::SET_MEM_TABLE, memory_table(), &pipe),
            (front::SET_MEM_TABLE, memory_table(), &zero),
            (front::SET_VRING_KICK, longs(&[0]), &zero),
            (front::SET_VRING_KICK, longs(&[0]), &memory.file),
            (front::SET_VRING_CALL, longs(&[0]), &memory.file),
        ] {
            let guest = Guest::connect(&rig, &memory).await;
            guest.describe(0, 0).await;
            guest.say(request, &payload, Some(file));
            let (count, _) = rig.core.recv(&guest.stream, BufMut::alloc(1)).await;
            // What was not read when it is closed makes it a reset.
            assert_eq!(count.unwrap_or(0), 0, "request {request}");
        }
    });
}

/// A sparse file costs a hypervisor nothing, and the server as much address space as it is long.
#[test]
fn guests_that_would_take_the_address_space_of_the_server_are_refused() {
    with_disk(1, async |rig| {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(1 << 47).unwrap();
        let sparse = OwnedFd::from(file);
        let table = |len: u64| [words(&[1, 0]), longs(&[0, len, 0, 0])].concat();
        // A volume may have an eighth of what there may be.
        let most = SharedMemory::bytes_max() as u64 / 8 / 4 * 3;
        let first = Guest::connect(&rig, &Guest::memory()).await;
        let large = Guest::connect(&rig, &Guest::memory()).await;
        large.ask(front::SET_MEM_TABLE, &table(most), Some(&sparse)).await;
        for len in [most, 1 << 46, 1 << 47] {
            let guest = Guest::connect(&rig, &Guest::memory()).await;
            guest.say(front::SET_MEM_TABLE, &table(len), Some(&sparse));
            let (count, _) = rig.core.recv(&guest.stream, BufMut::alloc(1)).await;
            assert_eq!(count.unwrap_or(0), 0, "{len} bytes");
        }
        first.start(0, 0).await;
        first.put(0, WRITE, 3, 7);
        first.wait_for_used(0, 1).await;
        assert_eq!(rig.byte_at(3).await, 7, "the others go on");
    });
}

/// A region begins anywhere in its file: nothing in front of it is needed, or mapped.
#[test]
fn a_region_at_the_end_of_a_huge_file_is_taken() {
    with_disk(1, async |rig| {
        const OFFSET: u64 = (1 << 47) + 512;
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(OFFSET + MEMORY as u64).unwrap();
        let guest = Guest::connect(&rig, &Guest::memory()).await;
        let table = [words(&[1, 0]), longs(&[0, MEMORY as u64, 0, OFFSET])].concat();
        guest.ask(front::SET_MEM_TABLE, &table, Some(&OwnedFd::from(file))).await;
        guest.start(0, 0).await;
    });
}

/// The server before was killed between a completion and its interrupt. rust-vmm's front ends name
/// the event before the queue begins.
#[test]
fn an_interrupt_that_may_have_been_lost_comes_when_a_queue_begins() {
    with_disk(1, async |rig| {
        let guest = Guest::connect(&rig, &Guest::memory()).await;
        let call = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        guest.describe(0, 0).await;
        guest.ask(front::SET_VRING_CALL, &longs(&[0]), Some(&call)).await;
        assert!(rustix::io::read(&call, &mut [0; 8]).is_err(), "no queue runs");
        guest.kick(0).await;
        guest.ask(front::SET_VRING_ENABLE, &words(&[0, 1]), None).await;
        rig.core.readable(&call).await.unwrap();
    });
}
