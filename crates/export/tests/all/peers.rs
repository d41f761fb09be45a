//! Servers that are killed with a write in flight: when it is known that they do not carry it out
//! any more, and when not.
#![allow(clippy::disallowed_methods, reason = "real processes take real time")]

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use wattle_export::NbdAddress;
use wattle_export::nbd::Uri;
use wattle_export::nbd::handshake::{ExportFacts, Handshake, HandshakeStep};
use wattle_export::nbd::protocol::{self as proto, NbdRequest};
use wattle_export::nbd::remote::{Patience, connect};
use wattle_rt::{Buf, Core, Device, Durability, IoError, PeerRole, ReopenError, RuntimeConfig, Stream};

/// Long enough for a process to start on a busy machine; and how long a write waits for one that
/// nothing is known of.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(8),
    reconnect: Duration::from_secs(20),
    path: Duration::from_secs(5),
    back: Duration::from_secs(5),
};

fn has_nbdkit() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|directory| directory.join("nbdkit").is_file());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "nbdkit is not installed, and this is CI");
        eprintln!("SKIPPED: nbdkit is not installed");
    }
    there
}

/// nbdkit at a socket that is not its own and outlives it, so that something always listens there.
struct Activated {
    socket: PathBuf,
    listener: UnixListener,
    child: Option<Child>,
}

impl Activated {
    fn new(directory: &Path, name: &str) -> Self {
        let socket = directory.join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        Self { socket, listener, child: None }
    }

    fn start(&mut self, args: &[&str]) {
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec nbdkit --foreground --exit-with-parent \"$@\"";
        let socket = OwnedFd::from(self.listener.try_clone().unwrap());
        let child = Command::new("sh")
            .args(["-c", &format!("{script} 3<&0 < /dev/null"), "sh"])
            .args(args)
            .stdin(socket)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
        // A process that is younger than a connection is not known by its id.
        std::thread::sleep(Duration::from_millis(50));
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn uri(&self) -> Uri {
        Uri { address: NbdAddress::Unix(self.socket.clone()), export: String::new(), tls: None }
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

async fn write(core: &Core, drive: &Device, byte: u8) -> Result<(), IoError> {
    core.write(drive, 0, Buf::copy_of(&[byte; 4096]), Durability::Cached).await
}

/// Kills a server with a write in flight, starts it anew at once, and writes over that. How long
/// that waits.
fn over_one_in_flight(server: &mut Activated, slow: &[&str], quick: &[&str]) -> Duration {
    let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
    let waited = wattle_rt::run(config, async |core: Core| {
        server.start(slow);
        let drive = connect(&core, &[server.uri()], "nbd", PATIENCE).await.unwrap();
        let (task, there) = (core.clone(), drive.clone());
        let first = core.spawn(async move { write(&task, &there, 1).await });
        core.sleep(Duration::from_millis(500)).await;
        server.kill();
        let killed = core.now();
        server.start(quick);
        first.await.unwrap();
        write(&core, &drive, 2).await.unwrap();
        core.now() - killed
    });
    waited.unwrap()
}

/// A process that carries out itself what it is sent is done with it when it is over.
#[test]
fn a_server_that_is_over_writes_nothing_late() {
    if !has_nbdkit() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    let mut server = Activated::new(directory.path(), "nbd");
    let file = ["--filter=delay", "file", disk.to_str().unwrap()];
    let slow = [&file[..], &["delay-write=5"]].concat();
    let waited = over_one_in_flight(&mut server, &slow, &file);
    assert!(waited < PATIENCE.answer / 2, "{waited:?}");
    assert_eq!(std::fs::read(&disk).unwrap()[..4096], [2; 4096]);
}

/// One that hands on what it is sent, or has others do it, says nothing by its end.
#[test]
fn a_server_that_others_work_for_may_write_late() {
    if !has_nbdkit() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk = directory.path().join("disk");
    std::fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    let mut behind = Activated::new(directory.path(), "behind");
    behind.start(&["file", disk.to_str().unwrap()]);
    let socket = format!("socket={}", behind.socket.display());
    let relay = ["--filter=delay", "nbd", &socket];
    let mut server = Activated::new(directory.path(), "relay");
    let waited = over_one_in_flight(&mut server, &[&relay[..], &["delay-write=5"]].concat(), &relay);
    assert!(waited >= PATIENCE.answer, "a relay: {waited:?}");

    let script = ["eval", "get_size=echo 8388608", "pread=head -c $3 /dev/zero", "can_write=exit 0"];
    let slow = [&script[..], &["pwrite=sleep 5; cat > /dev/null"]].concat();
    let quick = [&script[..], &["pwrite=cat > /dev/null"]].concat();
    let mut server = Activated::new(directory.path(), "children");
    let waited = over_one_in_flight(&mut server, &slow, &quick);
    assert!(waited >= PATIENCE.answer, "with processes of its own: {waited:?}");
}

/// That nothing listens where a relay was says nothing of what is behind it.
#[test]
fn a_relay_that_is_gone_says_nothing_of_the_server_behind_it() {
    if !has_nbdkit() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut behind = Activated::new(directory.path(), "behind");
    behind.start(&["memory", "8M"]);
    let mut relay = Activated::new(directory.path(), "relay");
    let socket = format!("socket={}", behind.socket.display());
    let args = ["--filter=delay", "nbd", socket.as_str(), "delay-write=5"];
    relay.start(&args);
    let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
    let waited = wattle_rt::run(config, async |core: Core| {
        let drive = connect(&core, &[relay.uri()], "nbd", PATIENCE).await.unwrap();
        let (task, there) = (core.clone(), drive.clone());
        let first = core.spawn(async move { write(&task, &there, 1).await });
        core.sleep(Duration::from_millis(500)).await;
        std::fs::remove_file(&relay.socket).unwrap();
        relay.kill();
        let killed = core.now();
        core.sleep(Duration::from_millis(500)).await;
        relay.listener = UnixListener::bind(&relay.socket).unwrap();
        relay.start(&args[..3]);
        first.await.unwrap();
        write(&core, &drive, 2).await.unwrap();
        core.now() - killed
    });
    assert!(waited.unwrap() >= PATIENCE.answer);
}

/// Where the process of [`a_server_process`] is reached, and what it connects to.
const SERVES: &str = "WATTLE_TEST_SERVES";
const BEHIND: &str = "WATTLE_TEST_BEHIND";

/// No test by itself: the server of the one below, which runs this file again. It keeps what it is
/// sent until the first write comes, connects to something else then, and never answers the write.
#[test]
fn a_server_process() {
    let (Some(socket), Some(behind)) = (std::env::var_os(SERVES), std::env::var_os(BEHIND)) else { return };
    let listener = UnixListener::bind(socket).unwrap();
    let (facts, mut connected) = (
        [ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes: 8 << 20,
            read_only: false,
            io_min_bytes: 512,
            checkpoints: Vec::new(),
        }],
        None,
    );
    for stream in listener.incoming() {
        // One after the other, as far as the tests need more than one.
        let mut stream = stream.unwrap();
        let (mut handshake, mut received) = (Handshake::new(&facts, Some(0)), Vec::new());
        let mut out = proto::greeting().to_vec();
        let receive = |stream: &mut UnixStream, received: &mut Vec<u8>| {
            let mut buf = [0; 4096];
            let count = stream.read(&mut buf).unwrap_or(0);
            received.extend_from_slice(&buf[..count]);
            count > 0
        };
        let served = loop {
            let (used, step) = handshake.advance(&received, &mut out);
            received.drain(..used);
            stream.write_all(&out).unwrap();
            out.clear();
            match step {
                HandshakeStep::More if receive(&mut stream, &mut received) => {}
                HandshakeStep::Reply => {}
                HandshakeStep::Transmit(_) => break true,
                HandshakeStep::More | HandshakeStep::Close | HandshakeStep::StartTls => break false,
            }
        };
        while served && (received.len() >= proto::REQUEST_BYTES || receive(&mut stream, &mut received)) {
            let Some(request) = received.first_chunk().and_then(NbdRequest::decode) else {
                continue;
            };
            received.drain(..proto::REQUEST_BYTES);
            if request.kind != proto::commands::READ {
                connected.get_or_insert_with(|| UnixStream::connect(&behind).unwrap());
                while receive(&mut stream, &mut received) {}
                break;
            }
            let mut reply = proto::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
            reply.extend([0; 4]);
            reply.extend(request.cookie.to_be_bytes());
            reply.resize(reply.len() + request.length_bytes as usize, 0);
            stream.write_all(&reply).unwrap();
        }
    }
}

/// What a server does shows only with time: one that kept what it was sent may hand it on later.
#[test]
fn a_server_that_hands_on_only_later_says_nothing_by_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, behind) = (directory.path().join("nbd"), directory.path().join("behind"));
    let _behind = UnixListener::bind(&behind).unwrap();
    let start = || {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "peers::a_server_process", "--nocapture", "--test-threads=1"])
            .envs([(SERVES, &socket), (BEHIND, &behind)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // A process that is younger than a connection is not known by its id.
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(50));
        child.unwrap()
    };
    let mut server = start();
    let (stream, peer) = Stream::connect_unix_to_peer(&socket, Duration::from_secs(20)).unwrap();
    assert_eq!(peer.expect("it was there first").role(), PeerRole::Keeps, "at first");
    drop(stream);
    let uri = Uri { address: NbdAddress::Unix(socket.clone()), export: String::new(), tls: None };
    let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
    let sent = wattle_rt::run(config, async |core: Core| {
        let drive = connect(&core, &[uri], "nbd", PATIENCE).await.unwrap();
        let link = drive.link().unwrap();
        let (task, there) = (core.clone(), drive.clone());
        drop(core.spawn(async move { write(&task, &there, 1).await }));
        // What it does is looked at every other second.
        core.sleep(Duration::from_secs(3)).await;
        server.kill().unwrap();
        server.wait().unwrap();
        let killed = core.now();
        std::fs::remove_file(&socket).unwrap();
        core.sleep(Duration::from_millis(300)).await;
        server = start();
        link.give_up(&core).await;
        loop {
            match link.reopen(&core).await {
                Ok(_) => return core.now() - killed,
                Err(error) => assert_eq!(error, ReopenError::Unsettled),
            }
            core.sleep(Duration::from_millis(50)).await;
        }
    });
    server.kill().unwrap();
    server.wait().unwrap();
    let sent = sent.unwrap();
    assert!(sent + Duration::from_secs(1) >= PATIENCE.answer, "after {sent:?}");
}

#[test]
fn what_the_roles_of_servers_are() {
    if !has_nbdkit() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let role = |name: &str, args: &[&str]| {
        let mut server = Activated::new(directory.path(), name);
        server.start(args);
        let (stream, peer) = Stream::connect_unix_to_peer(&server.socket, Duration::from_secs(20)).unwrap();
        let peer = peer.expect("nbdkit was there first");
        let role = peer.role();
        assert!(!peer.is_over());
        server.kill();
        assert!(peer.is_over());
        drop(stream);
        role
    };
    assert_eq!(role("memory", &["memory", "8M"]), PeerRole::Keeps);
    assert_eq!(role("script", &["eval", "get_size=echo 512"]), PeerRole::Unknown);
}
