//! Exports of other servers as drives: wattle's own, and nbdkit's, which are killed and come back
//! without what they had cached.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{MIB, Rig, pattern, with_server};
use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec};
use wattle_export::NbdAddress;
use wattle_export::nbd::handshake::{ExportFacts, Handshake, HandshakeStep};
use wattle_export::nbd::protocol::{self as proto, NbdRequest};
use wattle_export::nbd::remote::{self, Patience, RemoteError};
use wattle_export::nbd::{ClientError, Limits, Uri};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, Durability, IoError, IoErrorKind, Listener, RuntimeConfig, Stream,
    Unmap,
};

/// Long enough for a process to start on a busy machine, short enough to wait for.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(20),
    reconnect: Duration::from_secs(20),
    path: Duration::from_secs(5),
    back: Duration::from_secs(5),
};

/// For servers that do not come back.
const SHORT: Patience = Patience {
    answer: Duration::from_secs(1),
    reconnect: Duration::from_secs(1),
    path: Duration::from_secs(1),
    back: Duration::from_secs(5),
};

fn uri(socket: &Path, export: &str) -> Uri {
    Uri { address: NbdAddress::Unix(socket.to_owned()), export: export.to_owned(), tls: None }
}

async fn connect(core: &Core, uri: &Uri, name: &str, patience: Patience) -> Result<Device, RemoteError> {
    remote::connect(core, std::slice::from_ref(uri), name, patience).await
}

async fn read(core: &Core, drive: &Device, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let (result, buf) = core.read(drive, offset, BufMut::alloc(len)).await;
    result.map(|()| buf.to_vec())
}

async fn write(core: &Core, drive: &Device, offset: u64, data: &[u8]) -> Result<(), IoError> {
    core.write(drive, offset, Buf::copy_of(data), Durability::Cached).await
}

fn run(test: impl AsyncFnOnce(Core)) {
    wattle_rt::run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, test).unwrap();
}

#[test]
fn every_operation_from_every_core() {
    let volumes = &[("disk", 64 * MIB, false), ("fixed", MIB, true)];
    with_server(2, Limits::default(), volumes, async |Rig { core, socket, server, .. }| {
        let drive = connect(&core, &uri(&socket, "disk"), "nbd", PATIENCE).await.unwrap();
        assert_eq!((drive.size_bytes(), drive.writable(), drive.name()), (64 * MIB, true, "nbd"));
        // Longer than a request may be.
        let data = pattern(1, 40 * MIB as usize);
        write(&core, &drive, MIB, &data).await.unwrap();
        let there = drive.clone();
        let read_there = core.call(CoreIx(1), async move |core| {
            core.write(&there, 4096, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap();
            read(&core, &there, MIB, 40 * MIB as usize).await
        });
        assert!(read_there.await.unwrap() == data);
        assert_eq!(read(&core, &drive, 4096, 512).await, Ok(vec![7; 512]));
        core.write_zeroes(&drive, 2 * MIB, MIB, Unmap::Yes).await.unwrap();
        core.flush(&drive).await.unwrap();
        assert!(read(&core, &drive, 2 * MIB, MIB as usize).await.unwrap().iter().all(|&byte| byte == 0));
        let beside = drive.clone();
        let seen = core.offload(move || {
            let mut bytes = [0; 100];
            beside.read_blocking(4100, &mut bytes).map(|()| bytes)
        });
        assert_eq!(seen.await.unwrap(), Ok([7; 100]), "for scans, beside the executors");

        let fixed = connect(&core, &uri(&socket, "fixed"), "nbd", PATIENCE).await.unwrap();
        assert_eq!(write(&core, &fixed, 0, &[0; 512]).await, Err(IoError::READ_ONLY));
        let none = connect(&core, &uri(&socket, "none"), "nbd", PATIENCE).await.unwrap_err();
        assert_eq!(none, RemoteError::Client(ClientError::UnknownExport));
        drop((drive, fixed));
        server.stop(&core).await;
    });
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("silent");
        let listener = Listener::unix(&socket).unwrap();
        let error = connect(&core, &uri(&socket, ""), "nbd", SHORT).await.unwrap_err();
        assert_eq!(error, RemoteError::Silent);
        drop(listener);
        let error = connect(&core, &uri(&socket, ""), "nbd", SHORT).await.unwrap_err();
        assert!(matches!(error, RemoteError::Client(ClientError::Connection(_))), "{error}");
    });
}

/// nbdkit on a socket, to be killed and started again.
struct Nbdkit {
    socket: PathBuf,
    args: Vec<String>,
    child: Child,
    _directory: tempfile::TempDir,
}

impl Nbdkit {
    /// `None` if it is not installed.
    fn start(args: &[&str]) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|directory| directory.join("nbdkit").is_file()) {
            assert!(std::env::var_os("CI").is_none(), "nbdkit is not installed, and this is CI");
            eprintln!("SKIPPED: nbdkit is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        let child = spawn(&socket, &args);
        Some(Self { socket, args, child, _directory: directory })
    }

    /// As a power cut would.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_file(&self.socket).unwrap();
    }

    fn start_again(&mut self) {
        self.child = spawn(&self.socket, &self.args);
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a server listens there, and not only has the name: between the two a client is refused.
fn listens(socket: &Path) -> bool {
    const ACCEPTS: &str = "00010000";
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let name = socket.to_str().unwrap();
    sockets.lines().any(|line| line.ends_with(name) && line.split_whitespace().nth(3) == Some(ACCEPTS))
}

fn spawn(socket: &Path, args: &[String]) -> Child {
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket).args(args);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for _ in 0..2000 {
        if listens(socket) {
            return child;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("nbdkit does not start");
}

/// A server acknowledges writes, keeps them in its cache and is killed: what it lost was
/// acknowledged to a client, and a flush after it came back must not say that it is durable when it
/// is nowhere.
#[test]
fn what_a_server_lost_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(8 * MIB).unwrap();
    let on_disk = |range: std::ops::Range<usize>| std::fs::read(&disk).unwrap()[range].to_vec();
    let args = ["--filter=cache", "file", disk.to_str().unwrap(), "cache=writeback"];
    let Some(mut nbdkit) = Nbdkit::start(&args) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", PATIENCE).await.unwrap();
        let (first, second) = (pattern(1, 4096), pattern(2, 2 * MIB as usize));
        write(&core, &drive, 0, &first).await.unwrap();
        core.flush(&drive).await.unwrap();
        assert_eq!(on_disk(0..4096), first);
        write(&core, &drive, MIB, &[9; 4096]).await.unwrap();
        write(&core, &drive, MIB, &second).await.unwrap();
        core.write_zeroes(&drive, MIB + 4096, 4096, Unmap::No).await.unwrap();
        nbdkit.kill();
        assert_eq!(on_disk(MIB as usize..MIB as usize + 4096), [0; 4096], "it is lost");
        nbdkit.start_again();

        let mut expected = second.clone();
        expected[4096..8192].fill(0);
        assert!(
            read(&core, &drive, MIB, 2 * MIB as usize).await.unwrap() == expected,
            "in the order of the writes"
        );
        core.flush(&drive).await.unwrap();
        nbdkit.kill();
        assert!(on_disk(MIB as usize..3 * MIB as usize) == expected);
        // What was flushed is not written again: another writer may have.
        let mut other = std::fs::read(&disk).unwrap();
        other[MIB as usize..7 * MIB as usize].fill(5);
        std::fs::write(&disk, other).unwrap();
        nbdkit.start_again();
        assert_eq!(read(&core, &drive, MIB, 512).await, Ok(vec![5; 512]));
    });
}

/// Writes in flight when a connection breaks are sent again, as long as it takes within the limit.
#[test]
fn requests_in_flight_outlive_a_connection() {
    let Some(mut nbdkit) = Nbdkit::start(&["--filter=delay", "memory", "64M", "delay-write=300ms"]) else {
        return;
    };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", PATIENCE).await.unwrap();
        let writes: Vec<_> = (0..8_u64)
            .map(|ix| {
                let (core, drive) = (core.clone(), drive.clone());
                core.clone().spawn(async move { write(&core, &drive, ix * MIB, &[ix as u8 + 1; 4096]).await })
            })
            .collect();
        core.sleep(Duration::from_millis(100)).await;
        nbdkit.kill();
        core.sleep(Duration::from_millis(300)).await;
        nbdkit.start_again();
        for write in writes {
            write.await.unwrap();
        }
        for ix in 0..8_u64 {
            assert_eq!(read(&core, &drive, ix * MIB, 4096).await, Ok(vec![ix as u8 + 1; 4096]));
        }
    });
}

#[test]
fn a_server_that_stays_away_is_a_drive_that_is_gone() {
    let Some(mut nbdkit) = Nbdkit::start(&["memory", "8M"]) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", SHORT).await.unwrap();
        write(&core, &drive, 0, &[1; 512]).await.unwrap();
        nbdkit.kill();
        assert_eq!(read(&core, &drive, 0, 512).await.unwrap_err().kind(), IoErrorKind::Gone);
        nbdkit.start_again();
        for result in [write(&core, &drive, 0, &[1; 512]).await, core.flush(&drive).await] {
            assert_eq!(result.unwrap_err().kind(), IoErrorKind::Gone, "it was given up, and stays so");
        }
    });
}

/// Members are looked at before a runtime starts and used within it: the connection is on a core
/// beside both.
#[test]
fn a_connection_beside_every_runtime() {
    let Some(nbdkit) = Nbdkit::start(&["memory", "8M"]) else { return };
    let home = wattle_rt::beside().unwrap();
    let there = uri(&nbdkit.socket, "");
    let drive = home.call_blocking(async move |core| connect(&core, &there, "nbd", PATIENCE).await);
    let drive = drive.unwrap().unwrap();
    drive.write_blocking(512, &[3; 512]).unwrap();
    for _ in 0..2 {
        run(async |core| {
            assert_eq!(read(&core, &drive, 512, 512).await, Ok(vec![3; 512]));
            write(&core, &drive, 1024, &[4; 512]).await.unwrap();
            core.flush(&drive).await.unwrap();
            let mut bytes = [0; 4];
            drive.read_blocking(1024, &mut bytes).unwrap();
            assert_eq!(bytes, [4; 4], "it is not this core that is waited for");
        });
    }
}

/// What it was sent may still be carried out at any time, over what is sent after a new connection.
#[test]
fn silence_ends_the_drive() {
    let Some(nbdkit) = Nbdkit::start(&["--filter=delay", "memory", "8M", "delay-write=3"]) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", SHORT).await.unwrap();
        assert!(read(&core, &drive, 0, 512).await.is_ok());
        assert_eq!(write(&core, &drive, 0, &[1; 512]).await.unwrap_err().kind(), IoErrorKind::Gone);
        assert_eq!(read(&core, &drive, 0, 512).await.unwrap_err().kind(), IoErrorKind::Gone);
    });
}

/// The server's side of a connection: tells what it is asked, and answers when it is told to.
struct Peer {
    core: Core,
    stream: Stream,
    received: Vec<u8>,
}

impl Peer {
    /// Offers 8 MiB to the next client.
    async fn accept(core: &Core, listener: &Listener) -> Self {
        let stream = core.accept(listener).await.unwrap();
        // So late that it is not looked at which process answers: it is this one, which has
        // connections to others.
        core.sleep(Duration::from_millis(400)).await;
        let mut peer = Self { core: core.clone(), stream, received: Vec::new() };
        let facts = [ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes: 8 * MIB,
            read_only: false,
            io_min_bytes: 512,
            checkpoints: Vec::new(),
        }];
        let mut handshake = Handshake::new(&facts, Some(0));
        let mut out = proto::greeting().to_vec();
        loop {
            let (used, step) = handshake.advance(&peer.received, &mut out);
            peer.received.drain(..used);
            core.send(&peer.stream, vec![Buf::copy_of(&out)]).await.unwrap();
            out.clear();
            match step {
                HandshakeStep::More => peer.receive().await,
                HandshakeStep::Reply => {}
                HandshakeStep::Transmit(_) => break,
                HandshakeStep::Close | HandshakeStep::StartTls => panic!("the client gave up"),
            }
        }
        // Both ends of a blank drive.
        for _ in 0..2 {
            let (request, _) = peer.request(proto::commands::READ).await;
            peer.answer(&request).await;
            let zeros = BufMut::zeroed(request.length_bytes as usize).freeze();
            core.send(&peer.stream, vec![zeros]).await.unwrap();
        }
        peer
    }

    async fn receive(&mut self) {
        let (count, buf) = self.core.recv(&self.stream, BufMut::alloc(64 << 10)).await;
        self.received.extend_from_slice(&buf[..count.unwrap()]);
    }

    async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            self.receive().await;
        }
        self.received.drain(..count).collect()
    }

    /// The next request, and its data.
    async fn request(&mut self, kind: u16) -> (NbdRequest, Vec<u8>) {
        let head = self.exactly(proto::REQUEST_BYTES).await;
        let request = NbdRequest::decode(head.first_chunk().unwrap()).unwrap();
        assert_eq!(request.kind, kind);
        let length = if kind == proto::commands::WRITE { request.length_bytes as usize } else { 0 };
        (request, self.exactly(length).await)
    }

    async fn write(&mut self) -> (NbdRequest, Vec<u8>) {
        self.request(proto::commands::WRITE).await
    }

    async fn answer(&self, request: &NbdRequest) {
        let mut reply = proto::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend([0; 4]);
        reply.extend(request.cookie.to_be_bytes());
        self.core.send(&self.stream, vec![Buf::copy_of(&reply)]).await.unwrap();
    }
}

/// A connection is reset with a write in flight, and the server may carry that out at any time: it
/// is sent again, and no newer one of the same bytes until the server has to be done with it.
#[test]
fn what_an_old_connection_may_still_write_undoes_nothing_newer() {
    const ANSWER: Duration = Duration::from_secs(3);
    for listens_on in [true, false] {
        run(async |core| {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("nbd");
            let mut listener = Listener::unix(&socket).unwrap();
            let begin = |drive: &Device, offset: u64, byte: u8| {
                let (task, drive) = (core.clone(), drive.clone());
                core.spawn(async move { write(&task, &drive, offset, &[byte; 4096]).await })
            };
            let (task, there) = (core.clone(), uri(&socket, ""));
            let patience = Patience { answer: ANSWER, ..PATIENCE };
            let connecting = core.spawn(async move { connect(&task, &there, "nbd", patience).await });
            let mut old = Peer::accept(&core, &listener).await;
            let drive = connecting.await.unwrap();

            let first = begin(&drive, 0, 1);
            old.write().await;
            let lost = core.now();
            if !listens_on {
                drop(listener);
                old.stream.shutdown();
                core.sleep(Duration::from_millis(300)).await;
                listener = Listener::unix(&socket).unwrap();
            }
            old.stream.shutdown();
            let mut new = Peer::accept(&core, &listener).await;
            let (again, data) = new.write().await;
            assert_eq!((again.offset_bytes, data), (0, vec![1; 4096]));
            new.answer(&again).await;
            first.await.unwrap();

            let (newer, beside) = (begin(&drive, 0, 2), begin(&drive, 4096, 3));
            let mut came = Vec::new();
            for _ in 0..2 {
                let (request, data) = new.write().await;
                came.push((request.offset_bytes, data[0], core.now() >= lost + ANSWER));
                new.answer(&request).await;
            }
            newer.await.unwrap();
            beside.await.unwrap();
            match listens_on {
                true => assert_eq!(came, [(4096, 3, false), (0, 2, true)]),
                // That server is gone: nothing is waited for.
                false => assert_eq!(came, [(0, 2, false), (4096, 3, false)]),
            }
        });
    }
}

#[test]
fn another_drive_in_its_place_is_not_taken_for_it() {
    let Some(mut nbdkit) = Nbdkit::start(&["memory", "8M"]) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", PATIENCE).await.unwrap();
        nbdkit.kill();
        nbdkit.args[1] = "7M".to_owned();
        nbdkit.start_again();
        assert_eq!(read(&core, &drive, 0, 512).await.unwrap_err().kind(), IoErrorKind::Gone);
        let state = drive.link().unwrap().look(&core).await.unwrap();
        assert_eq!(state.changed, Some("it is smaller than it was"));
    });
}

/// What of it is not used here may differ: what was not flushed is written again, in requests as
/// long as it takes them now.
#[test]
fn a_server_that_can_do_other_things_has_the_same_drive() {
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(8 * MIB).unwrap();
    let plain = ["--filter=cache", "file", disk.to_str().unwrap(), "cache=writeback"];
    let other = [
        "--filter=multi-conn",
        "--filter=blocksize-policy",
        "--filter=cache",
        "file",
        disk.to_str().unwrap(),
        "cache=writeback",
        "multi-conn-mode=disable",
        "blocksize-minimum=512",
        "blocksize-preferred=4096",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ];
    let Some(mut nbdkit) = Nbdkit::start(&plain) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", PATIENCE).await.unwrap();
        let data = pattern(1, 2 * MIB as usize);
        write(&core, &drive, MIB, &data).await.unwrap();
        nbdkit.kill();
        nbdkit.args = other.map(str::to_owned).to_vec();
        std::fs::File::options().write(true).open(&disk).unwrap().set_len(9 * MIB).unwrap();
        nbdkit.start_again();
        core.flush(&drive).await.unwrap();
        assert!(std::fs::read(&disk).unwrap()[MIB as usize..3 * MIB as usize] == data);
        assert!(read(&core, &drive, MIB, 2 * MIB as usize).await.unwrap() == data);
        assert_eq!(drive.size_bytes(), 8 * MIB);
        nbdkit.kill();
        nbdkit.args.push("--readonly".to_owned());
        nbdkit.start_again();
        assert_eq!(read(&core, &drive, 0, 512).await.unwrap_err().kind(), IoErrorKind::Gone);
        let link = drive.link().unwrap();
        assert_eq!(link.look(&core).await.unwrap().changed, Some("it can only be read now"));
        // What is there now is opened anew as what it is.
        let now = link.reopen(&core).await.unwrap();
        assert_eq!((now.size_bytes(), now.writable()), (9 * MIB, false));
    });
}

/// A server reports lost writes to one flush only; the next one would succeed.
#[test]
fn a_flush_that_failed_ends_the_drive() {
    let args = [
        "eval",
        "get_size=echo 1048576",
        "pread=dd if=/dev/zero count=$3 iflag=count_bytes",
        "pwrite=cat > /dev/null",
        "can_write=exit 0",
        "can_flush=exit 0",
        "flush=[ -e $tmpdir/once ] && exit 0; touch $tmpdir/once; echo EIO lost >&2; exit 1",
    ];
    let Some(nbdkit) = Nbdkit::start(&args) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", PATIENCE).await.unwrap();
        write(&core, &drive, 0, &[1; 512]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(core.flush(&drive).await, Err(IoError::MEDIUM));
        }
        assert_eq!(read(&core, &drive, 0, 512).await, Err(IoError::MEDIUM));
    });
}

#[test]
fn sizes_of_requests_are_the_servers() {
    let policy = |min: &str, max: &str| {
        let sizes = [("minimum", min), ("preferred", min), ("maximum", max)];
        let sizes = sizes.map(|(which, size)| format!("blocksize-{which}={size}"));
        let [min, preferred, max] = sizes.each_ref().map(String::as_str);
        let filter = ["--filter=blocksize-policy", "memory", "8M", "blocksize-error-policy=error"];
        Nbdkit::start(&[&filter[..], &[min, preferred, max]].concat())
    };
    let (Some(large), Some(huge)) = (policy("4096", "64K"), policy("64K", "32M")) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&large.socket, ""), "nbd", PATIENCE).await.unwrap();
        assert_eq!(drive.logical_block_bytes(), 4096);
        let data = pattern(3, MIB as usize);
        write(&core, &drive, 4096, &data).await.unwrap();
        assert!(read(&core, &drive, 4096, MIB as usize).await.unwrap() == data);
        let part = core.offload(move || {
            let mut bytes = [0; 5000];
            drive.read_blocking(4099, &mut bytes).map(|()| bytes)
        });
        assert!(part.await.unwrap().unwrap() == data[3..5003], "no whole sectors");
        let error = connect(&core, &uri(&huge.socket, ""), "nbd", PATIENCE).await.unwrap_err();
        assert_eq!(error, RemoteError::BlockSize { found: 64 << 10 });
    });
}

/// More is written than is kept: flushes are sent that no client asked for, and nothing waits for
/// ever.
#[test]
fn unflushed_writes_are_kept_within_bounds() {
    let Some(nbdkit) = Nbdkit::start(&["memory", "128M"]) else { return };
    run(async |core| {
        let drive = connect(&core, &uri(&nbdkit.socket, ""), "nbd", PATIENCE).await.unwrap();
        let data = pattern(4, MIB as usize);
        let writes: Vec<_> = (0..100_u64)
            .map(|ix| {
                let (core, drive, data) = (core.clone(), drive.clone(), Buf::copy_of(&data));
                core.clone()
                    .spawn(async move { core.write(&drive, ix * MIB, data, Durability::Cached).await })
            })
            .collect();
        for write in writes {
            write.await.unwrap();
        }
        assert!(read(&core, &drive, 99 * MIB, MIB as usize).await.unwrap() == data);
    });
}

/// The whole point: an array over four servers, one of which dies.
#[test]
fn an_array_survives_the_death_of_a_server() {
    let servers: Option<Vec<_>> = (0..4).map(|_| Nbdkit::start(&["memory", "16M"])).collect();
    let Some(mut servers) = servers else { return };
    run(async |core| {
        let mut members = Vec::new();
        for (ix, server) in servers.iter().enumerate() {
            let name = format!("nbd{ix}");
            let drive = connect(&core, &uri(&server.socket, ""), &name, SHORT).await.unwrap();
            members.push(MemberSpec::in_sync(drive, Sector(0)));
        }
        let geometry = Geometry::new(&Params {
            level: Level::Raid5,
            layout: 2,
            chunk: Sector(128),
            raid_disks: 4,
            component_size: Sector(16 * MIB / 512),
            member_sizes: vec![Sector(16 * MIB / 512); 4],
        });
        let spec = ArraySpec::new("data", geometry.unwrap(), members);
        let handle = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
        let volume = handle.volume().open(&core).unwrap();
        let data = pattern(5, 8 * MIB as usize);
        volume.write(0, Buf::copy_of(&data), Durability::Cached).await.unwrap();
        servers[1].kill();
        volume.write(8 * MIB, Buf::copy_of(&data), Durability::Cached).await.unwrap();
        volume.flush().await.unwrap();
        for half in 0..2 {
            let (result, buf) = volume.read(half * 8 * MIB, BufMut::alloc(8 * MIB as usize)).await;
            result.unwrap();
            assert!(buf[..] == data[..]);
        }
        let _ = handle.stop(&core).await;
    });
}
