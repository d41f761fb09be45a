//! What the bytes of a connection go through: nothing, or TLS.
//!
//! A plain channel is the stream itself. With TLS a session of rustls stands between the two, on
//! the connection's own core: what is sent is sealed from where it lies into a buffer that goes to
//! the stream, what is received is opened into the buffer that was to receive it.
//!
//! Invariants:
//! 1. One send at a time is under way on the stream, and sealed bytes leave in the order in which
//!    they were sealed.
//! 2. A receive never waits for a send: what TLS itself has to say is sent by a task of its own,
//!    of which there is one at most, or by the next send.
//! 3. A session holds one buffer of sealed bytes in each direction ([`TLS_RECEIVE_BYTES`],
//!    [`TLS_SEND_BYTES`]), and what rustls keeps of an unfinished record or handshake message,
//!    which it bounds by 64 KiB.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;

use rustls::Connection;
use wattle_rt::sync::Semaphore;
use wattle_rt::{Buf, BufMut, Core, IoError, Stream};
use wattle_tls::TlsFault;

use super::input::Ended;
use super::limits::{TLS_RECEIVE_BYTES, TLS_SEND_BYTES};

/// The bytes of one connection. Clones share it.
#[derive(Clone)]
pub(crate) enum Channel {
    /// As they are.
    Plain(Stream),
    /// Through TLS.
    Tls(Rc<TlsLine>),
}

impl Channel {
    /// Sends all bytes of `bufs`; one send at a time.
    ///
    /// # Cancellation
    /// As [`Core::send`]: the connection is then only good for closing.
    pub(crate) async fn send(&self, core: &Core, bufs: Vec<Buf>) -> Result<(), IoError> {
        match self {
            Self::Plain(stream) => core.send(stream, bufs).await,
            Self::Tls(line) => line.send(&bufs).await,
        }
    }

    /// Says that nothing more is sent, as far as the protocol below has a word for it.
    pub(crate) async fn say_end(&self) {
        if let Self::Tls(line) = self {
            line.session.borrow_mut().send_close_notify();
            // The peer may have gone.
            let _ = line.send(&[]).await;
        }
    }
}

/// A stream under TLS.
pub(crate) struct TlsLine {
    core: Core,
    stream: Stream,
    session: RefCell<Connection>,
    /// Held by the task that sends.
    sending: Semaphore,
    /// A task is about to send what TLS has to say.
    answering: Cell<bool>,
    /// Sealed bytes that came and were not opened. Empty while the system fills it.
    incoming: RefCell<Incoming>,
    fault: Cell<Option<TlsFault>>,
}

struct Incoming {
    buf: BufMut,
    start: usize,
    end: usize,
}

impl TlsLine {
    /// Shakes hands over a stream on which nothing but TLS is said from now on.
    ///
    /// # Errors
    /// The peer is not trusted, does not trust this side, speaks no TLS, or goes.
    pub(crate) async fn open(core: &Core, stream: Stream, session: Connection) -> Result<Rc<Self>, Ended> {
        let line = Rc::new(Self {
            core: core.clone(),
            stream,
            session: RefCell::new(session),
            sending: Semaphore::new(1),
            // The handshake sends what it has to say itself.
            answering: Cell::new(true),
            incoming: RefCell::new(Incoming { buf: BufMut::alloc(TLS_RECEIVE_BYTES), start: 0, end: 0 }),
            fault: Cell::new(None),
        });
        line.session.borrow_mut().set_buffer_limit(None);
        loop {
            line.send(&[]).await.map_err(Ended::Broken)?;
            if !line.session.borrow().is_handshaking() {
                line.answering.set(false);
                return Ok(line);
            }
            let fed = line.feed();
            if fed.is_err() {
                // The alert says why.
                let _ = line.send(&[]).await;
            }
            if !fed? && !line.session.borrow().wants_write() {
                line.receive_sealed().await?;
            }
        }
    }

    /// Sends bytes, and whatever TLS has to say before them.
    async fn send(&self, bufs: &[Buf]) -> Result<(), IoError> {
        let _turn = self.sending.acquire(1).await;
        let mut left = Left { bufs, at: 0 };
        loop {
            let sealed = self.seal(&mut left)?;
            if sealed.is_empty() {
                return Ok(());
            }
            self.core.send(&self.stream, sealed).await?;
            self.stream.note_sent_a_part(self.core.turn_time());
        }
    }

    /// Seals the next bytes, at most [`TLS_SEND_BYTES`] of them.
    fn seal(&self, left: &mut Left<'_>) -> Result<Vec<Buf>, IoError> {
        let mut session = self.session.borrow_mut();
        let slices = left.next(TLS_SEND_BYTES);
        let plain: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut done = 0;
        while done < plain {
            // Without a limit it takes all; several slices share its records.
            match session.writer().write_vectored(&slices) {
                Ok(count) if count == plain => done = count,
                _ => return Err(IoError::GONE),
            }
        }
        let mut sealed = Vec::new();
        while session.wants_write() {
            let mut out = Out { buf: BufMut::alloc(sealed_bytes(plain)), len: 0 };
            let room = out.buf.len();
            while session.wants_write() && out.len < room {
                session.write_tls(&mut out).map_err(|_| IoError::GONE)?;
            }
            out.buf.truncate(out.len);
            sealed.push(out.buf.freeze());
        }
        Ok(sealed)
    }

    /// Receives some bytes to the front of `buf`, as [`Core::recv`] does; none at the end.
    ///
    /// # Cancellation
    /// A dropped future loses bytes: the connection is then good for nothing but closing.
    pub(crate) async fn recv(self: &Rc<Self>, mut buf: BufMut) -> (Result<usize, Ended>, BufMut) {
        loop {
            match self.open_into(&mut buf) {
                Ok(0) => {}
                opened => return (opened, buf),
            }
            if let Err(ended) = self.receive_sealed().await {
                return (Err(ended), buf);
            }
        }
    }

    /// Opens what came, as much as there is room for. None: more has to come.
    fn open_into(self: &Rc<Self>, buf: &mut BufMut) -> Result<usize, Ended> {
        let mut done = 0;
        loop {
            let read = self.session.borrow_mut().reader().read(&mut buf[done..]);
            match read {
                // The peer said that nothing more comes.
                Ok(0) if done < buf.len() => return if done > 0 { Ok(done) } else { Err(Ended::Closed) },
                Ok(count) => {
                    done += count;
                    if done == buf.len() {
                        return Ok(done);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) if done == 0 => return Err(Ended::Closed),
                Err(_) => return Ok(done),
            }
            match self.feed() {
                Ok(true) => {}
                Ok(false) => return Ok(done),
                // What came whole before is given first; the fault stays.
                Err(ended) => {
                    done += self.session.borrow_mut().reader().read(&mut buf[done..]).unwrap_or(0);
                    return if done > 0 { Ok(done) } else { Err(ended) };
                }
            }
        }
    }

    /// Gives the session some of what came; whether there was any.
    fn feed(self: &Rc<Self>) -> Result<bool, Ended> {
        if let Some(fault) = self.fault.get() {
            return Err(Ended::Tls(fault));
        }
        let mut incoming = self.incoming.borrow_mut();
        let Incoming { buf, start, end } = &mut *incoming;
        if start == end {
            return Ok(false);
        }
        let mut session = self.session.borrow_mut();
        let mut came = &buf[*start..*end];
        let taken = session.read_tls(&mut came);
        let processed = match taken {
            // Nothing is taken any more after the peer's farewell.
            Ok(0) => {
                *start = *end;
                return Ok(true);
            }
            Ok(count) => {
                *start += count;
                session.process_new_packets().map_err(|error| TlsFault::of(&error))
            }
            Err(_) => Err(TlsFault::Broken),
        };
        let has_to_say = session.wants_write();
        drop(session);
        if has_to_say {
            self.answer();
        }
        processed.map(|_| true).map_err(|fault| {
            self.fault.set(Some(fault));
            Ended::Tls(fault)
        })
    }

    /// Waits for more of what the peer sends.
    async fn receive_sealed(&self) -> Result<(), Ended> {
        let buf = std::mem::replace(&mut self.incoming.borrow_mut().buf, BufMut::alloc(0));
        let (received, buf) = self.core.recv(&self.stream, buf).await;
        let end = match &received {
            Ok(count) => *count,
            Err(_) => 0,
        };
        *self.incoming.borrow_mut() = Incoming { buf, start: 0, end };
        match received {
            // An end without a farewell is an end all the same: the protocol above says its own.
            Ok(0) => Err(Ended::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(Ended::Broken(error)),
        }
    }

    /// Has what TLS has to say sent, soon.
    fn answer(self: &Rc<Self>) {
        if self.answering.replace(true) {
            return;
        }
        let line = self.clone();
        self.core.spawn(async move {
            // The next receive finds a connection that is broken.
            let _ = line.send(&[]).await;
            line.answering.set(false);
        });
    }
}

/// What so many bytes are at most when they are sealed: each record of 16 KiB has a header, a tag
/// and a type. With room for a message of TLS itself.
fn sealed_bytes(plain: usize) -> usize {
    const RECORD_BYTES: usize = 16 << 10;
    const OVERHEAD_BYTES: usize = 64;
    const OWN_BYTES: usize = 512;
    plain + (plain / RECORD_BYTES + 1) * OVERHEAD_BYTES + OWN_BYTES
}

/// Bytes that are to be sealed, from `at` on.
struct Left<'a> {
    bufs: &'a [Buf],
    /// In the first of them.
    at: usize,
}

impl<'a> Left<'a> {
    /// Takes the next `count` bytes, or those that are left.
    fn next(&mut self, mut count: usize) -> Vec<IoSlice<'a>> {
        let mut slices = Vec::new();
        while count > 0
            && let Some((first, rest)) = self.bufs.split_first()
        {
            let slice = &first[self.at..first.len().min(self.at + count)];
            count -= slice.len();
            self.at += slice.len();
            if !slice.is_empty() {
                slices.push(IoSlice::new(slice));
            }
            if self.at == first.len() {
                (self.bufs, self.at) = (rest, 0);
            }
        }
        slices
    }
}

/// Takes sealed bytes, as far as there is room.
struct Out {
    buf: BufMut,
    len: usize,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.buf.len() - self.len);
        self.buf[self.len..self.len + count].copy_from_slice(&bytes[..count]);
        self.len += count;
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for slice in slices {
            taken += self.write(slice)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};
    use wattle_rt::{SimWorld, WorldConfig};
    use wattle_tls::{ClientTls, ServerTls, TlsClients};

    use super::*;

    /// The two sides of a session that trust each other.
    fn sessions() -> [Connection; 2] {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates");
        for (name, from) in [
            ("ca-cert.pem", "ca.pem"),
            ("server-cert.pem", "server.pem"),
            ("server-key.pem", "server.key"),
            ("client-cert.pem", "client.pem"),
            ("client-key.pem", "client.key"),
        ] {
            std::fs::copy(certificates.join(from), dir.path().join(name)).unwrap();
            let owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(dir.path().join(name), owner).unwrap();
        }
        let server = ServerTls::open(dir.path(), TlsClients::Certified).unwrap().current().0;
        let client = ClientTls::open(Some(dir.path()), true).unwrap().config;
        let client = ClientConnection::new(client, ServerName::try_from("localhost").unwrap()).unwrap();
        [client.into(), ServerConnection::new(server).unwrap().into()]
    }

    /// Runs a test in a world with two ends of a stream of which little fits between.
    fn in_world(test: impl AsyncFnOnce(Core, Stream, Stream) + 'static) {
        let mut world = SimWorld::new(WorldConfig { seed: 7, cores: 1, ..WorldConfig::default() });
        let (endpoint, listener) = world.endpoint(4096);
        let run = async move |core: Core| {
            let client = endpoint.connect().unwrap();
            let server = core.accept(&listener).await.unwrap();
            test(core, client, server).await;
        };
        world.run(run).expect_done();
    }

    /// Both sides after their handshake.
    async fn lines(core: &Core, client: Stream, server: Stream) -> [Rc<TlsLine>; 2] {
        let [ours, theirs] = sessions();
        let task = core.clone();
        let other = core.spawn(async move { TlsLine::open(&task, server, theirs).await });
        let line = TlsLine::open(core, client, ours).await.unwrap();
        [line, other.await.unwrap()]
    }

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    async fn receive(line: Rc<TlsLine>, len: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < len {
            let room = 1 + (all.len() * 7) % 50_000;
            let (count, buf) = line.recv(BufMut::alloc(room)).await;
            all.extend_from_slice(&buf[..count.unwrap()]);
        }
        all
    }

    /// Sends it in pieces of all sizes, several in a send, and has the keys changed now and then.
    async fn send(line: Rc<TlsLine>, bytes: Vec<u8>) {
        let (mut rest, mut round) = (bytes.as_slice(), 0_usize);
        while !rest.is_empty() {
            let mut bufs = Vec::new();
            for part in 0..4 {
                let len = [16, 4096, 70_000, 300_000, 1][(round + part) % 5].min(rest.len());
                bufs.push(Buf::copy_of(&rest[..len]));
                rest = &rest[len..];
            }
            if round % 3 == 1 {
                // Asks the other side to change its own too.
                line.session.borrow_mut().refresh_traffic_keys().unwrap();
            }
            line.send(&bufs).await.unwrap();
            round += 1;
        }
    }

    /// Neither waits for the other to receive first, whatever TLS has to say meanwhile.
    #[test]
    fn both_sides_send_and_receive_at_once() {
        in_world(async |core, client, server| {
            let [client, server] = lines(&core, client, server).await;
            let (there, back) = (noise(1, 3 << 20), noise(2, 2 << 20));
            let sends = [(client.clone(), there.clone()), (server.clone(), back.clone())];
            let sending = sends.map(|(line, bytes)| core.spawn(send(line, bytes)));
            let receiving = core.spawn(receive(server, there.len()));
            assert!(receive(client, back.len()).await == back);
            assert!(receiving.await == there);
            for sent in sending {
                sent.await;
            }
        });
    }

    #[test]
    fn an_end_is_an_end_with_and_without_a_farewell() {
        for farewell in [true, false] {
            in_world(async move |core, client, server| {
                let [client, server] = lines(&core, client, server).await;
                let stream = client.stream.clone();
                let channel = Channel::Tls(client);
                channel.send(&core, vec![Buf::copy_of(b"the last words")]).await.unwrap();
                if farewell {
                    channel.say_end().await;
                } else {
                    stream.shutdown();
                }
                assert_eq!(receive(server.clone(), 14).await, b"the last words");
                for _ in 0..2 {
                    assert_eq!(server.recv(BufMut::alloc(10)).await.0, Err(Ended::Closed));
                }
            });
        }
    }

    /// What came whole before is good, and nothing behind it.
    #[test]
    fn what_was_changed_on_the_way_is_not_taken() {
        in_world(async |core, client, server| {
            let [client, server] = lines(&core, client, server).await;
            let sealed = |text: &[u8]| {
                let sealed = client.seal(&mut Left { bufs: &[Buf::copy_of(text)], at: 0 }).unwrap();
                sealed.iter().flat_map(|buf| buf.to_vec()).collect::<Vec<u8>>()
            };
            let mut bytes = [sealed(b"first"), sealed(b"second")].concat();
            *bytes.last_mut().unwrap() ^= 1;
            core.send(&client.stream, vec![Buf::copy_of(&bytes)]).await.unwrap();
            assert_eq!(receive(server.clone(), 5).await, b"first");
            for _ in 0..2 {
                let received = server.recv(BufMut::alloc(10)).await.0;
                assert_eq!(received, Err(Ended::Tls(TlsFault::Broken)));
            }
        });
    }

    #[test]
    fn what_is_no_tls_ends_the_handshake() {
        let hello = {
            let [mut client, _] = sessions();
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            bytes
        };
        let cut = hello[..hello.len() / 2].to_vec();
        let huge = [0x16, 3, 1, 0xff, 0xff].into_iter().chain([0; 70_000]).collect();
        let endless = [0x16, 3, 3, 0x40, 0, 1, 0xff, 0xff, 0xff].into_iter().chain([0; 100_000]).collect();
        for (ix, bytes) in [b"IHAVEOPT\0\0\0\x07".to_vec(), vec![0; 1 << 20], huge, endless, cut, Vec::new()]
            .into_iter()
            .enumerate()
        {
            in_world(async move |core, client, server| {
                let [_, session] = sessions();
                let (task, bytes) = (core.clone(), Buf::copy_of(&bytes));
                core.spawn(async move {
                    let _ = task.send(&client, vec![bytes]).await;
                    client.shutdown();
                });
                let opened = TlsLine::open(&core, server.clone(), session).await.map(drop);
                server.shutdown();
                let expected = if ix < 4 { Ended::Tls(TlsFault::Broken) } else { Ended::Closed };
                assert_eq!(opened, Err(expected), "case {ix}");
            });
        }
    }
}
