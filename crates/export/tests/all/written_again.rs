//! Drives across a network whose server was lost with much that it had acknowledged and not made
//! durable: that is written again as fast as clients wrote it, and a server that goes on answering
//! is not given up.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use wattle_export::NbdAddress;
use wattle_export::nbd::Uri;
use wattle_export::nbd::handshake::{ExportFacts, Handshake, HandshakeStep};
use wattle_export::nbd::protocol::{self as proto, NbdRequest};
use wattle_export::nbd::remote::{Patience, connect};
use wattle_rt::sync::Notify;
use wattle_rt::{
    Buf, BufMut, Core, Device, Durability, Either, IoErrorKind, Listener, RuntimeConfig, Stream, race,
};

const MIB: u64 = 1 << 20;
/// So many are kept without a flush that no client asked for.
const WRITES: usize = 2000;
/// One after the other they would take minutes.
const SLOW: Duration = Duration::from_millis(150);

/// Less than all takes.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(20),
    reconnect: Duration::from_secs(3),
    path: Duration::from_millis(1500),
    back: Duration::from_secs(60),
};

fn uri(socket: &Path) -> Uri {
    Uri { address: NbdAddress::Unix(socket.to_owned()), export: String::new(), tls: None }
}

fn run(test: impl AsyncFnOnce(Core)) {
    wattle_rt::run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, test).unwrap();
}

/// A server of 64 MiB that shows one byte everywhere, and answers each write after some time, many
/// at once.
struct Slow {
    core: Core,
    delay: Cell<Duration>,
    /// Writes that came, and those of them that are answered at most.
    came: Cell<usize>,
    answers: Cell<usize>,
    connections: RefCell<Vec<Stream>>,
    closing: Notify,
}

impl Slow {
    fn start(core: &Core, listener: Listener) -> Rc<Self> {
        let server = Rc::new(Self {
            core: core.clone(),
            delay: Cell::new(Duration::ZERO),
            came: Cell::new(0),
            answers: Cell::new(usize::MAX),
            connections: RefCell::default(),
            closing: Notify::new(),
        });
        let accepting = server.clone();
        core.spawn(async move {
            loop {
                let accepted = accepting.core.accept(&listener);
                let Either::First(Ok(stream)) = race(accepted, accepting.closing.wait()).await else {
                    return;
                };
                accepting.connections.borrow_mut().push(stream.clone());
                let served = accepting.clone();
                accepting.core.spawn(async move { served.connection(stream).await });
            }
        });
        server
    }

    fn hang_up(&self) {
        self.connections.take().iter().for_each(Stream::shutdown);
    }

    async fn connection(self: Rc<Self>, stream: Stream) -> Option<()> {
        let facts = [ExportFacts {
            name: String::new(),
            description: String::new(),
            size_bytes: 64 * MIB,
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
        let answers = Rc::new(RefCell::new(Vec::new()));
        loop {
            while received.len() < proto::REQUEST_BYTES {
                self.receive(&stream, &mut received).await?;
            }
            let request = NbdRequest::decode(received.first_chunk().unwrap()).unwrap();
            received.drain(..proto::REQUEST_BYTES);
            let mut reply = proto::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
            reply.extend([0; 4]);
            reply.extend(request.cookie.to_be_bytes());
            if request.kind == proto::commands::READ {
                reply.extend(vec![7; request.length_bytes as usize]);
            } else if request.kind == proto::commands::WRITE {
                while received.len() < request.length_bytes as usize {
                    self.receive(&stream, &mut received).await?;
                }
                received.drain(..request.length_bytes as usize);
                self.came.update(|came| came + 1);
                if self.came.get() > self.answers.get() {
                    continue;
                }
            }
            let (server, stream, answers) = (self.clone(), stream.clone(), answers.clone());
            self.core.spawn(async move {
                server.core.sleep(server.delay.get()).await;
                // One send at a time, of all that is to be said.
                answers.borrow_mut().push(Buf::copy_of(&reply));
                if answers.borrow().len() == 1 {
                    server.core.yield_now().await;
                    let all = answers.take();
                    let _ = server.core.send(&stream, all).await;
                }
            });
        }
    }

    async fn receive(&self, stream: &Stream, received: &mut Vec<u8>) -> Option<()> {
        let (count, buf) = self.core.recv(stream, BufMut::alloc(256 << 10)).await;
        let count = count.ok().filter(|count| *count > 0)?;
        received.extend_from_slice(&buf[..count]);
        Some(())
    }
}

/// Writes much, which is acknowledged.
async fn fill(core: &Core, drive: &Device) {
    let write = |ix: usize| {
        let (task, drive) = (core.clone(), drive.clone());
        core.spawn(async move {
            let data = Buf::copy_of(&[ix as u8; 4096]);
            task.write(&drive, MIB + ix as u64 * 8192, data, Durability::Cached).await
        })
    };
    let writing: Vec<_> = (0..WRITES).map(write).collect();
    for written in writing {
        written.await.unwrap();
    }
}

#[test]
fn a_server_that_was_lost_for_a_moment_gets_all_of_it_though_it_is_slow() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Slow::start(&core, Listener::unix(&socket).unwrap());
        let drive = connect(&core, &[uri(&socket)], "nbd", PATIENCE).await.unwrap();
        fill(&core, &drive).await;
        server.delay.set(SLOW);
        server.hang_up();
        let since = core.now();
        core.read(&drive, 0, BufMut::alloc(512)).await.0.unwrap();
        assert_eq!(server.came.get(), 2 * WRITES);
        let took = core.now() - since;
        assert!(took > PATIENCE.reconnect && took < WRITES as u32 * SLOW / 4, "{took:?}");
    });
}

#[test]
fn a_path_that_answers_is_not_left_for_another_one() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let sockets = ["a", "b"].map(|name| directory.path().join(name));
        let [first, second] = [0, 1].map(|ix| Slow::start(&core, Listener::unix(&sockets[ix]).unwrap()));
        let uris = sockets.each_ref().map(|socket| uri(socket));
        let drive = connect(&core, &uris, "nbd", PATIENCE).await.unwrap();
        fill(&core, &drive).await;
        second.delay.set(SLOW);
        first.closing.notify_all();
        core.yield_now().await;
        first.hang_up();
        core.read(&drive, 0, BufMut::alloc(512)).await.0.unwrap();
        assert_eq!(second.came.get(), WRITES, "each once");
    });
}

#[test]
fn one_that_stops_answering_is_given_up() {
    run(async |core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let server = Slow::start(&core, Listener::unix(&socket).unwrap());
        let patience = Patience { reconnect: Duration::from_secs(1), ..PATIENCE };
        let drive = connect(&core, &[uri(&socket)], "nbd", patience).await.unwrap();
        fill(&core, &drive).await;
        server.answers.set(WRITES + 500);
        server.hang_up();
        let error = core.read(&drive, 0, BufMut::alloc(512)).await.0.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Gone);
        assert!(server.came.get() < 2 * WRITES);
    });
}
