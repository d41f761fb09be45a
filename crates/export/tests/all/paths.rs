//! Drives across a network that are given up, and drives by several paths: what a server may still
//! carry out of an old connection is never written over.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use wattle_export::NbdAddress;
use wattle_export::nbd::Uri;
use wattle_export::nbd::handshake::{ExportFacts, Handshake, HandshakeStep};
use wattle_export::nbd::protocol::{self as proto, NbdRequest};
use wattle_export::nbd::remote::{Patience, RemoteError, connect};
use wattle_rt::sync::Notify;
use wattle_rt::{
    Buf, BufMut, Core, Device, Durability, Either, IoError, IoErrorKind, Listener, PathState, ReopenError,
    RuntimeConfig, Stream, race,
};

const MIB: u64 = 1 << 20;

/// Long enough for a busy machine.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(20),
    reconnect: Duration::from_secs(20),
    path: Duration::from_secs(5),
    back: Duration::from_secs(5),
};

fn uri(socket: &Path) -> Uri {
    Uri { address: NbdAddress::Unix(socket.to_owned()), export: String::new(), tls: None }
}

async fn write(core: &Core, drive: &Device, offset: u64, data: &[u8]) -> Result<(), IoError> {
    core.write(drive, offset, Buf::copy_of(data), Durability::Cached).await
}

async fn read(core: &Core, drive: &Device) -> Result<(), IoError> {
    core.read(drive, 0, BufMut::alloc(512)).await.0
}

fn run(test: impl AsyncFnOnce(Core)) {
    wattle_rt::run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, test).unwrap();
}

/// A server of 8 MiB that shows one byte everywhere. It notes the writes that come, and answers
/// them when it is told to, over whichever connection they came.
struct Scripted {
    core: Core,
    shows: Cell<u8>,
    answers: Cell<bool>,
    reads: Cell<u64>,
    writes: RefCell<Vec<(Stream, NbdRequest, Vec<u8>)>>,
    /// Takes a connection only once the one before is over.
    one_at_a_time: Cell<bool>,
    connections: RefCell<Vec<Stream>>,
    closing: Notify,
}

impl Scripted {
    fn start(core: &Core, listener: Listener, shows: u8) -> Rc<Self> {
        let (core, answers, reads) = (core.clone(), Cell::new(false), Cell::new(0));
        let server = Rc::new(Self {
            core,
            shows: Cell::new(shows),
            answers,
            reads,
            writes: RefCell::default(),
            one_at_a_time: Cell::new(false),
            connections: RefCell::default(),
            closing: Notify::new(),
        });
        let accepting = server.clone();
        server.core.spawn(async move {
            loop {
                let accepted = accepting.core.accept(&listener);
                let Either::First(Ok(stream)) = race(accepted, accepting.closing.wait()).await else {
                    return;
                };
                accepting.connections.borrow_mut().push(stream.clone());
                let served = accepting.clone();
                let served = accepting.core.spawn(async move { served.connection(stream).await });
                if accepting.one_at_a_time.get() {
                    served.await;
                }
            }
        });
        server
    }

    /// Ends the connections that it has.
    fn hang_up(&self) {
        self.connections.take().iter().for_each(Stream::shutdown);
    }

    /// Until the client closes it.
    async fn connection(&self, stream: Stream) -> Option<()> {
        let facts = [ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes: 8 * MIB,
            read_only: false,
            io_min_bytes: 512,
            checkpoints: Vec::new(),
        }];
        let (mut handshake, mut received) = (Handshake::new(&facts, Some(0)), Vec::new());
        let mut out = proto::greeting().to_vec();
        loop {
            let (used, step) = handshake.advance(&received, &mut out);
            received.drain(..used);
            self.core.send(&stream, vec![Buf::copy_of(&out)]).await.ok()?;
            out.clear();
            match step {
                HandshakeStep::More => self.receive(&stream, &mut received).await?,
                HandshakeStep::Reply => {}
                HandshakeStep::Transmit(_) => break,
                HandshakeStep::Close | HandshakeStep::StartTls => return None,
            }
        }
        loop {
            while received.len() < proto::REQUEST_BYTES {
                self.receive(&stream, &mut received).await?;
            }
            let request = NbdRequest::decode(received.first_chunk().unwrap()).unwrap();
            received.drain(..proto::REQUEST_BYTES);
            if request.kind == proto::commands::READ {
                self.reads.update(|reads| reads + u64::from(request.length_bytes == 512));
                self.answer(&stream, &request).await?;
                let data = vec![self.shows.get(); request.length_bytes as usize];
                self.core.send(&stream, vec![Buf::copy_of(&data)]).await.ok()?;
                continue;
            }
            while received.len() < request.length_bytes as usize {
                self.receive(&stream, &mut received).await?;
            }
            let data = received.drain(..request.length_bytes as usize).collect();
            self.writes.borrow_mut().push((stream.clone(), request, data));
            if self.answers.get() {
                self.answer(&stream, &request).await?;
            }
        }
    }

    async fn receive(&self, stream: &Stream, received: &mut Vec<u8>) -> Option<()> {
        let (count, buf) = self.core.recv(stream, BufMut::alloc(64 << 10)).await;
        let count = count.ok().filter(|count| *count > 0)?;
        received.extend_from_slice(&buf[..count]);
        Some(())
    }

    async fn answer(&self, stream: &Stream, request: &NbdRequest) -> Option<()> {
        self.answer_with(stream, request, 0).await
    }

    async fn answer_with(&self, stream: &Stream, request: &NbdRequest, errno: u32) -> Option<()> {
        let mut reply = proto::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(errno.to_be_bytes());
        reply.extend(request.cookie.to_be_bytes());
        self.core.send(stream, vec![Buf::copy_of(&reply)]).await.ok().map(drop)
    }

    /// The write that came as number `ix`, once it has come.
    async fn write(&self, ix: usize) -> (Stream, NbdRequest, Vec<u8>) {
        loop {
            if let Some((stream, request, data)) = self.writes.borrow().get(ix) {
                return (stream.clone(), *request, data.clone());
            }
            self.core.sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A drive that was given up is opened anew only once nothing that it was sent can be carried out
/// any more: the server has answered it, or has answered new connections for as long as a request
/// may take.
#[test]
fn a_drive_that_was_given_up_waits_for_what_it_was_sent() {
    const ANSWER: Duration = Duration::from_secs(2);
    for answers in [true, false] {
        run(async |core| {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("nbd");
            let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
            let patience = Patience { answer: ANSWER, ..PATIENCE };
            let drive = connect(&core, &[uri(&socket)], "nbd", patience).await.unwrap();
            let begin = |drive: &Device, byte: u8| {
                let (task, drive) = (core.clone(), drive.clone());
                core.spawn(async move { write(&task, &drive, 4096, &[byte; 512]).await })
            };
            let writing = begin(&drive, 1);
            let (old, sent, _) = server.write(0).await;
            let link = drive.link().unwrap();
            core.sleep(Duration::from_millis(100)).await;
            let state = link.look(&core).await.unwrap();
            assert!(state.overdue >= Duration::from_millis(90) && state.ended.is_none(), "{state:?}");
            link.give_up(&core).await;
            assert_eq!(writing.await.unwrap_err().kind(), IoErrorKind::Gone, "at once");
            assert_eq!(read(&core, &drive).await.unwrap_err().kind(), IoErrorKind::Gone);

            let since = core.now();
            assert_eq!(link.reopen(&core).await.map(drop), Err(ReopenError::Unsettled));
            match answers {
                true => server.answer(&old, &sent).await.unwrap(),
                false => old.shutdown(),
            }
            let mut count = 0;
            let again = loop {
                core.sleep(Duration::from_millis(50)).await;
                match link.reopen(&core).await {
                    Ok(again) => break again,
                    Err(error) => assert_eq!(error, ReopenError::Unsettled),
                }
                count += 1;
            };
            assert!(answers || core.now() - since >= ANSWER && count > 3, "it may still be carried out");
            let writing = begin(&again, 2);
            assert_eq!(server.write(1).await.2, [2; 512], "nothing of the old drive is sent again");
            let (stream, request, _) = server.write(1).await;
            server.answer(&stream, &request).await.unwrap();
            writing.await.unwrap();
            assert!(link.reopen(&core).await.unwrap().same(&again), "once");
        });
    }
}

/// A server comes back with another drive of the same size behind the same name: what was not
/// flushed is not written to that one, and neither is anything else.
#[test]
fn another_drive_behind_the_only_path_is_not_written_to() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
        server.answers.set(true);
        let drive = connect(&core, &[uri(&socket)], "nbd", PATIENCE).await.unwrap();
        write(&core, &drive, MIB, &[1; 512]).await.unwrap();
        server.shows.set(8);
        server.hang_up();
        assert_eq!(write(&core, &drive, 0, &[2; 512]).await.unwrap_err().kind(), IoErrorKind::Gone);
        assert_eq!(server.writes.borrow().len(), 1, "on the first drive");
    });
}

/// A drive that shows nothing is gone on with as long as it shows nothing, but for what was written
/// to it and may or may not have arrived.
#[test]
fn a_blank_drive_is_gone_on_with_until_it_is_not_blank() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 0);
        server.answers.set(true);
        let drive = connect(&core, &[uri(&socket)], "nbd", PATIENCE).await.unwrap();
        write(&core, &drive, 4096, &[1; 512]).await.unwrap();
        server.hang_up();
        write(&core, &drive, MIB, &[2; 512]).await.unwrap();
        assert_eq!(server.writes.borrow().len(), 3, "the first one twice");
        server.shows.set(1);
        server.hang_up();
        assert_eq!(read(&core, &drive).await.unwrap_err().kind(), IoErrorKind::Gone);
    });
}

/// A write waits for the connection, and what comes into doubt meanwhile is older and has the same
/// bytes: the server may carry it out over the write.
#[test]
fn a_write_that_waited_for_the_connection_waits_for_what_came_into_doubt() {
    const ANSWER: Duration = Duration::from_secs(3);
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
        let patience = Patience { answer: ANSWER, ..PATIENCE };
        let drive = connect(&core, &[uri(&socket)], "nbd", patience).await.unwrap();
        server.answers.set(true);
        write(&core, &drive, MIB, &[1; 512]).await.unwrap();
        server.answers.set(false);
        let (task, there) = (core.clone(), drive.clone());
        let newer = core.spawn(async move { write(&task, &there, MIB, &[2; 512]).await });
        server.write(1).await.0.shutdown();
        // The first one was not flushed: it is written again, at first in vain.
        let (in_vain, _, data) = server.write(2).await;
        assert_eq!(data, [1; 512]);
        let since = core.now();
        in_vain.shutdown();
        let (stream, request, data) = server.write(3).await;
        assert_eq!(data, [1; 512]);
        server.answers.set(true);
        server.answer(&stream, &request).await.unwrap();
        assert_eq!(server.write(4).await.2, [2; 512]);
        assert!(core.now() - since >= ANSWER, "the attempt in vain may still be carried out");
        newer.await.unwrap();
    });
}

/// A forced write is durable. What is written again after a connection broke must not put older
/// content over it, not even until the next request: the machine may end there.
#[test]
fn what_is_written_again_undoes_no_forced_write() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
        server.answers.set(true);
        let drive = connect(&core, &[uri(&socket)], "nbd", PATIENCE).await.unwrap();
        write(&core, &drive, MIB, &[1; 2048]).await.unwrap();
        core.write(&drive, MIB + 512, Buf::copy_of(&[2; 512]), Durability::Fua).await.unwrap();
        assert_ne!(server.write(1).await.1.flags & proto::command_flags::FUA, 0);
        server.hang_up();
        write(&core, &drive, 0, &[3; 512]).await.unwrap();
        let sent = server.writes.borrow();
        let sent: Vec<_> =
            sent[2..].iter().map(|(_, request, data)| (request.offset_bytes, data[0], data.len())).collect();
        assert_eq!(sent, [(MIB, 1, 512), (MIB + 1024, 1, 1024), (0, 3, 512)]);
    });
}

/// Requests go on by the next path when one is silent; what may still be carried out behind that
/// one is not written over until it is. A path that shows another drive is none.
#[test]
fn a_silent_path_is_passed_over() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let uris = ["a", "b", "c"].map(|name| uri(&directory.path().join(name)));
        let [a, b, c] = [("a", 7), ("b", 7), ("c", 8)].map(|(name, shows)| {
            Scripted::start(&core, Listener::unix(&directory.path().join(name)).unwrap(), shows)
        });
        let patience = Patience { path: Duration::from_millis(500), ..PATIENCE };
        let other = [uris[0].clone(), uris[2].clone()];
        let error = connect(&core, &other, "nbd", patience).await.unwrap_err();
        assert_eq!(error, RemoteError::OtherDrive { path: 1 });
        let drive = connect(&core, &uris[..2], "nbd", patience).await.unwrap();
        let begin = |byte: u8| {
            let (task, drive) = (core.clone(), drive.clone());
            core.spawn(async move { write(&task, &drive, MIB, &[byte; 512]).await })
        };
        b.answers.set(true);
        let first = begin(1);
        let (old, sent, _) = a.write(0).await;
        first.await.unwrap();
        assert_eq!(b.write(0).await.2, [1; 512], "sent again");
        let state = drive.link().unwrap().look(&core).await.unwrap();
        assert_eq!((state.paths[1].state, state.paths[0].failures), (PathState::InUse, 1));
        let newer = begin(2);
        let early = race(b.write(1), core.sleep(Duration::from_millis(300))).await;
        assert!(matches!(early, Either::Second(())), "the old one may still be carried out");
        a.answer(&old, &sent).await.unwrap();
        newer.await.unwrap();
        assert_eq!(b.write(1).await.2, [2; 512]);
        assert!(c.writes.borrow().is_empty() && a.writes.borrow().len() == 1);
    });
}

/// What an attempt to connect was sent that came to nothing is in doubt like everything else, also
/// when all of the next connection is answered.
#[test]
fn what_a_failed_attempt_was_sent_stays_in_doubt() {
    const ANSWER: Duration = Duration::from_secs(2);
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
        let patience = Patience { answer: ANSWER, ..PATIENCE };
        let drive = connect(&core, &[uri(&socket)], "nbd", patience).await.unwrap();
        let begin = |offset: u64| {
            let (task, drive) = (core.clone(), drive.clone());
            core.spawn(async move { write(&task, &drive, offset, &[1; 512]).await })
        };
        server.answers.set(true);
        begin(0).await.unwrap();
        server.answers.set(false);
        server.write(0).await.0.shutdown();
        core.sleep(Duration::from_millis(100)).await;
        let link = drive.link().unwrap();
        link.look(&core).await.unwrap();
        // It was not flushed, so it is written again; that attempt ends without an answer.
        server.write(1).await.0.shutdown();
        let since = core.now();
        let (stream, request, _) = server.write(2).await;
        server.answer(&stream, &request).await.unwrap();
        let last = begin(MIB);
        let (stream, request, _) = server.write(3).await;
        link.give_up(&core).await;
        server.answer(&stream, &request).await.unwrap();
        last.await.unwrap_err();
        loop {
            core.sleep(Duration::from_millis(50)).await;
            match link.reopen(&core).await {
                Ok(_) => break,
                Err(error) => assert_eq!(error, ReopenError::Unsettled),
            }
        }
        assert!(core.now() - since >= ANSWER, "the first attempt may still be carried out");
    });
}

/// What was not flushed is written again by a new connection. A drive that is given up meanwhile
/// leaves nothing of that for later: the drive that takes its place may have newer bytes there.
#[test]
fn what_is_written_again_ends_with_the_drive() {
    /// So many are under way at a time, and more are kept.
    const AT_ONCE: usize = 64;
    const KEPT: usize = AT_ONCE + 16;
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
        let drive = connect(&core, &[uri(&socket)], "nbd", PATIENCE).await.unwrap();
        let link = drive.link().unwrap();
        server.answers.set(true);
        for ix in 0..KEPT as u64 {
            write(&core, &drive, MIB + ix * 4096, &[1; 512]).await.unwrap();
        }
        server.answers.set(false);
        server.hang_up();
        core.sleep(Duration::from_millis(50)).await;
        link.look(&core).await.unwrap();
        assert_eq!(server.write(KEPT).await.1.offset_bytes, MIB, "the first one, again");
        server.write(KEPT + AT_ONCE - 1).await;
        link.give_up(&core).await;
        for _ in 0..10 {
            let early = link.reopen(&core).await.map(drop);
            assert_eq!(early, Err(ReopenError::Unsettled), "it may still be carried out");
            core.sleep(Duration::from_millis(20)).await;
        }
        for ix in KEPT..KEPT + AT_ONCE {
            let (stream, request, _) = server.write(ix).await;
            server.answer(&stream, &request).await.unwrap();
        }
        let since = core.now();
        while let Err(error) = link.reopen(&core).await {
            assert_eq!(error, ReopenError::Unsettled);
            assert!(core.now() - since < PATIENCE.answer / 2, "it was answered");
            core.sleep(Duration::from_millis(20)).await;
        }
        core.sleep(Duration::from_millis(200)).await;
        assert_eq!(server.writes.borrow().len(), KEPT + AT_ONCE, "the others are not sent any more");
    });
}

/// A server that ends says so of what is written again as of any other request: the next one there
/// takes it.
#[test]
fn a_server_that_ends_while_it_is_written_again_is_no_drive_that_fails() {
    const ESHUTDOWN: u32 = 108;
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Scripted::start(&core, Listener::unix(&socket).unwrap(), 7);
        let drive = connect(&core, &[uri(&socket)], "nbd", PATIENCE).await.unwrap();
        server.answers.set(true);
        write(&core, &drive, 0, &[1; 512]).await.unwrap();
        server.answers.set(false);
        server.hang_up();
        core.sleep(Duration::from_millis(50)).await;
        drive.link().unwrap().look(&core).await.unwrap();
        let (stream, request, _) = server.write(1).await;
        server.answer_with(&stream, &request, ESHUTDOWN).await.unwrap();
        let (stream, request, _) = server.write(2).await;
        server.answer(&stream, &request).await.unwrap();
        read(&core, &drive).await.unwrap();
    });
}

/// That nothing listens any more where a server is that still has a connection says nothing: it
/// may carry out what came over another one.
#[test]
fn a_server_that_does_not_listen_any_more_may_live() {
    run(async |core| {
        let tcp = || {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let address = NbdAddress::Tcp { host: "127.0.0.1".to_owned(), port };
            (Listener::tcp("127.0.0.1", port).unwrap(), Uri { address, export: String::new(), tls: None })
        };
        let ((first, a_uri), (second, b_uri)) = (tcp(), tcp());
        let [a, b] = [first, second].map(|listener| Scripted::start(&core, listener, 7));
        b.answers.set(true);
        let patience = Patience { path: Duration::from_millis(500), ..PATIENCE };
        let drive = connect(&core, &[a_uri, b_uri], "nbd", patience).await.unwrap();
        let begin = |byte: u8| {
            let (task, drive) = (core.clone(), drive.clone());
            core.spawn(async move { write(&task, &drive, MIB, &[byte; 512]).await })
        };
        let first = begin(1);
        a.write(0).await.0.shutdown();
        first.await.unwrap();
        assert_eq!(b.write(0).await.2, [1; 512], "by the other path");
        let link = drive.link().unwrap();
        link.take_turns(&core, true).await;
        while link.look(&core).await.unwrap().paths[0].state != PathState::InUse {
            core.sleep(Duration::from_millis(20)).await;
        }
        a.closing.notify_all();
        core.sleep(Duration::from_millis(20)).await;
        b.hang_up();
        link.look(&core).await.unwrap();
        // By the second path again, after an attempt by the first one.
        assert_eq!(b.write(1).await.2, [1; 512], "it was not flushed");
        let newer = begin(2);
        let early = race(b.write(2), core.sleep(Duration::from_secs(1))).await;
        assert!(matches!(early, Either::Second(())), "the first server may still write");
        drop(newer);
    });
}

/// By choice reads take turns, writes do not; and a path that comes first is gone back to.
#[test]
fn reads_take_turns_and_the_first_path_is_gone_back_to() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let uris = ["a", "b"].map(|name| uri(&directory.path().join(name)));
        let [a, b] = ["a", "b"]
            .map(|name| Scripted::start(&core, Listener::unix(&directory.path().join(name)).unwrap(), 7));
        let (path, back) = (Duration::from_millis(500), Duration::from_millis(200));
        let patience = Patience { path, back, ..PATIENCE };
        let drive = connect(&core, &uris, "nbd", patience).await.unwrap();
        let link = drive.link().unwrap();
        let states = async || {
            let state = link.look(&core).await.unwrap();
            [state.paths[0].state, state.paths[1].state]
        };
        let count = async || {
            for _ in 0..20 {
                read(&core, &drive).await.unwrap();
            }
            [&a, &b].map(|server| server.reads.replace(0))
        };
        assert_eq!((states().await, count().await), ([PathState::InUse, PathState::Ready], [20, 0]));
        link.take_turns(&core, true).await;
        while states().await != [PathState::InUse; 2] {
            core.sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(count().await, [10, 10]);
        a.answers.set(true);
        write(&core, &drive, MIB, &[1; 512]).await.unwrap();
        assert!(b.writes.borrow().is_empty(), "writes stay on one path");
        link.take_turns(&core, false).await;
        assert_eq!(count().await, [20, 0]);

        // The first path does not take writes for a while: it is gone back to in vain then, which
        // holds a write up no longer than a path may.
        a.answers.set(false);
        b.answers.set(true);
        let (mut longest, mut at) = (Duration::ZERO, 0);
        let since = core.now();
        while core.now() - since < Duration::from_secs(4) {
            let begun = core.now();
            write(&core, &drive, 2 * MIB + at, &[1; 512]).await.unwrap();
            longest = longest.max(core.now() - begun);
            // What the first path was sent stays in doubt.
            at += 512;
            core.sleep(Duration::from_millis(20)).await;
        }
        assert!(longest < Duration::from_secs(3), "{longest:?}");
        assert!(link.look(&core).await.unwrap().paths[0].failures > 1, "it was tried");
        a.answers.set(true);
        while states().await != [PathState::InUse, PathState::Ready] {
            core.sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(count().await, [20, 0]);
    });
}

/// A server that takes one client at a time has its place free when it is needed: for the requests
/// of a path that was read by, and for the drive that takes the place of one that has ended.
#[test]
fn a_reader_keeps_nothing_else_from_its_server() {
    for ends in [false, true] {
        run(async |core| {
            let directory = tempfile::tempdir().unwrap();
            let uris = ["a", "b"].map(|name| uri(&directory.path().join(name)));
            let [a, b] = ["a", "b"]
                .map(|name| Scripted::start(&core, Listener::unix(&directory.path().join(name)).unwrap(), 7));
            b.one_at_a_time.set(true);
            b.answers.set(true);
            let (path, reconnect) = (Duration::from_millis(500), Duration::from_secs(4));
            let patience = Patience { path, reconnect, ..PATIENCE };
            let drive = connect(&core, &uris, "nbd", patience).await.unwrap();
            let link = drive.link().unwrap();
            link.take_turns(&core, true).await;
            while link.look(&core).await.unwrap().paths[1].state != PathState::InUse {
                core.sleep(Duration::from_millis(20)).await;
            }
            a.closing.notify_all();
            core.sleep(Duration::from_millis(20)).await;
            a.hang_up();
            let now = match ends {
                false => drive.clone(),
                true => {
                    link.give_up(&core).await;
                    // What it does about its paths may be under way.
                    core.sleep(Duration::from_secs(1)).await;
                    link.reopen(&core).await.unwrap()
                }
            };
            write(&core, &now, MIB, &[1; 512]).await.unwrap();
            assert_eq!(b.write(0).await.2, [1; 512]);
        });
    }
}
