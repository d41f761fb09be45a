//! Sockets, pipes and FUSE queues: what exports and the control socket talk over.

use crate::base::error::IoError;
use crate::base::time::Instant;
use crate::memory::buf::BufMut;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

mod along;
pub(crate) mod doorbell;
pub(crate) mod handed;
pub(crate) mod peer;
mod signals;
mod unix_path;
pub(crate) mod wire;

use unix_path::BoundPath;
use wire::{Door, WireEnd};

/// A connected socket, a pipe or a terminal. Clones share the connection; the last one closes it.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

struct StreamInner {
    link: Link,
    kind: Kind,
    /// The stream is that of a client that connected to this process.
    client: bool,
    /// When a send last moved a part of what it has, in nanoseconds.
    sent_a_part_at: AtomicU64,
}

/// What is behind a stream.
enum Link {
    Fd(OwnedFd),
    /// Another task of a simulated world.
    Wire(WireEnd),
}

/// What the kernel makes of a read or write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Socket,
    /// A pipe or a terminal: bytes, as many at a time as there are or fit.
    Bytes,
    /// A FUSE queue: one read is one message, one write is one message.
    Messages,
}

impl Stream {
    fn of_fd(fd: OwnedFd, kind: Kind, client: bool) -> Stream {
        Stream::of(Link::Fd(fd), kind, client)
    }

    fn of(link: Link, kind: Kind, client: bool) -> Stream {
        Stream(Arc::new(StreamInner { link, kind, client, sent_a_part_at: AtomicU64::new(0) }))
    }

    /// A send under way has moved a part of what it has; for one that is several sends here.
    pub fn note_sent_a_part(&self, now: Instant) {
        self.0.sent_a_part_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When a send that took several rounds last moved something: so long ago its peer took what
    /// was sent before.
    pub fn sent_a_part_at(&self) -> Instant {
        Instant::from_nanos(self.0.sent_a_part_at.load(Ordering::Relaxed))
    }

    /// An end of a simulated connection.
    pub(crate) fn simulated(end: WireEnd, client: bool) -> Stream {
        Stream::of(Link::Wire(end), Kind::Socket, client)
    }

    /// Its descriptor; a simulated stream has none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.link {
            Link::Fd(fd) => Some(fd.as_fd()),
            Link::Wire(_) => None,
        }
    }

    /// The end of a simulated connection that it is, if it is one.
    pub(crate) fn wire(&self) -> Option<&WireEnd> {
        match &self.0.link {
            Link::Wire(end) => Some(end),
            Link::Fd(_) => None,
        }
    }

    /// Wraps any readable or writable descriptor; sockets are recognised.
    pub fn from_fd(fd: OwnedFd) -> Stream {
        let is_socket = socket_option(fd.as_fd(), libc::SO_TYPE).is_ok();
        let kind = if is_socket { Kind::Socket } else { Kind::Bytes };
        Stream::of_fd(fd, kind, false)
    }

    /// A queue of whole messages, in non-blocking mode.
    pub(crate) fn of_messages(fd: OwnedFd) -> Stream {
        Stream::of_fd(fd, Kind::Messages, false)
    }

    /// Connects to a Unix socket. Blocks only as long as the listener's queue is full.
    pub fn connect_unix(path: &Path) -> Result<Stream, IoError> {
        UnixStream::connect(path).map(Stream::from).map_err(|error| IoError::from_std(&error))
    }

    /// Connects over TCP, trying each address of the host in turn. Blocks, for two minutes or so
    /// where nothing answers.
    pub fn connect_tcp(host: &str, port: u16) -> Result<Stream, IoError> {
        let stream = TcpStream::connect((host, port)).map_err(|error| IoError::from_std(&error))?;
        Stream::of_tcp(stream)
    }

    /// The same; each of the addresses has an equal part of the time. To look the name up may take
    /// as long as the system lets it.
    pub fn connect_tcp_within(host: &str, port: u16, within: Duration) -> Result<Stream, IoError> {
        let addresses = (host, port).to_socket_addrs().map_err(|error| IoError::from_std(&error))?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let each = (within / addresses.len().max(1) as u32).max(Duration::from_millis(1));
        let mut failed = IoError::from_errno(libc::EADDRNOTAVAIL);
        for address in addresses {
            match TcpStream::connect_timeout(&address, each) {
                Ok(stream) => return Stream::of_tcp(stream),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    failed = IoError::from_errno(libc::ETIMEDOUT);
                }
                Err(error) => failed = IoError::from_std(&error),
            }
        }
        Err(failed)
    }

    fn of_tcp(stream: TcpStream) -> Result<Stream, IoError> {
        stream.set_nodelay(true).map_err(|error| IoError::from_std(&error))?;
        Ok(Stream::from(stream))
    }

    /// Where the other end of a TCP connection is.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        let socket = TcpStream::from(self.descriptor()?.try_clone_to_owned().ok()?);
        socket.peer_addr().ok()
    }

    /// Whether nothing listens at a TCP address, which the machine there says. Blocks, for as long
    /// as `within` where nothing answers.
    pub fn is_refused_at(address: SocketAddr, within: Duration) -> bool {
        let connected = TcpStream::connect_timeout(&address, within);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Two streams connected to each other.
    pub fn pair() -> Result<(Stream, Stream), IoError> {
        let (a, b) = UnixStream::pair().map_err(|error| IoError::from_std(&error))?;
        Ok((Stream::from(a), Stream::from(b)))
    }

    /// The standard output, as a duplicate of its own.
    pub fn stdout() -> Result<Stream, IoError> {
        let fd = io::stdout().as_fd().try_clone_to_owned().map_err(|error| IoError::from_std(&error))?;
        Ok(Stream::from_fd(fd))
    }

    /// The standard input, as a duplicate of its own.
    pub fn stdin() -> Result<Stream, IoError> {
        let fd = io::stdin().as_fd().try_clone_to_owned().map_err(|error| IoError::from_std(&error))?;
        Ok(Stream::from_fd(fd))
    }

    /// Takes the next message of a queue, if there is one: its first bytes fill `head`, the rest
    /// goes to the front of `body`, and its whole length comes back. `EAGAIN` says that there is
    /// none now: wait until the queue is readable.
    pub fn try_receive(&self, head: &mut BufMut, body: &mut BufMut) -> Result<usize, IoError> {
        let Some(fd) = self.descriptor() else { return Err(IoError::UNSUPPORTED) };
        let segment =
            |buf: &mut BufMut| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let segments = [segment(head), segment(body)];
        // SAFETY: the segments are live buffers that are ours alone; a queue is in non-blocking
        // mode.
        let count = unsafe { libc::readv(fd.as_raw_fd(), segments.as_ptr(), segments.len() as i32) };
        usize::try_from(count).map_err(|_| IoError::last_os())
    }

    /// The TCP address at which the peer reaches this end; `None` for anything else.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let fd = self.descriptor()?.try_clone_to_owned().ok()?;
        TcpStream::from(fd).local_addr().ok()
    }

    /// Ends both directions of a socket: the peer reads the end, and pending receives here complete
    /// with 0 bytes.
    pub fn shutdown(&self) {
        match &self.0.link {
            Link::Fd(fd) => {
                // SAFETY: shutdown only takes integers; an error (not connected any more) leaves
                // what we want.
                unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
            }
            Link::Wire(end) => end.end(),
        }
    }

    /// The user id of the peer of a Unix socket, `None` for anything else.
    pub fn peer_uid(&self) -> Option<u32> {
        peer_uid(&self.descriptor()?)
    }

    /// Whether socket calls work on it.
    pub(crate) fn is_socket(&self) -> bool {
        self.0.kind == Kind::Socket
    }

    /// Whether a message goes in one piece or not at all.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.0.kind == Kind::Messages
    }

    /// Whether a client is at the other end, which may let this process wait as long as it likes. A
    /// server that this process connected to is a drive; and see [`Listener::reserved`].
    pub(crate) fn is_of_client(&self) -> bool {
        self.0.client
    }

    /// A connection over which latency matters more than packets, and whose peer is not waited for
    /// once it has gone without a word: the system asks an idle peer, and gives up one that does
    /// not take what was sent.
    pub(crate) fn accepted(fd: OwnedFd, client: bool) -> Stream {
        /// A peer is asked when nothing has come from it for so long, in seconds,
        const IDLE_SECONDS: libc::c_int = 60;
        /// and again so many seconds later,
        const PROBE_SECONDS: libc::c_int = 15;
        /// so many times.
        const PROBES: libc::c_int = 4;
        /// Bytes that were sent may wait for the peer that long, in milliseconds.
        const UNTAKEN_MILLISECONDS: libc::c_int = 120_000;
        for (level, name, value) in [
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, IDLE_SECONDS),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, PROBE_SECONDS),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, UNTAKEN_MILLISECONDS),
        ] {
            let len = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the option value is a live int of the given size. Unix sockets refuse TCP's
            // options, which is fine: their peers cannot go without a word.
            unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
        }
        Stream::of_fd(fd, Kind::Socket, client)
    }
}

/// The user id of the peer of a connected Unix socket, as it was when that connected or began to
/// listen; `None` for anything else.
pub fn peer_uid(socket: &impl AsFd) -> Option<u32> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `cred` and `len` are live and `len` is the size of `cred`.
    let rc = unsafe {
        let cred = (&raw mut cred).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, cred, &raw mut len)
    };
    // TCP sockets answer with an id that no user has, and no process, instead of an error.
    (rc == 0 && cred.uid != u32::MAX).then_some(cred.uid)
}

/// Reads an integer socket option.
fn socket_option(fd: BorrowedFd<'_>, name: libc::c_int) -> Result<libc::c_int, IoError> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` and `len` are live and `len` is the size of `value`.
    let rc = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, value, &raw mut len)
    };
    if rc == 0 { Ok(value) } else { Err(IoError::last_os()) }
}

/// # Panics
/// A stream of a simulated world has no descriptor.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().expect("a stream of a machine")
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream::of_fd(stream.into(), Kind::Socket, false)
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::accepted(stream.into(), false)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.link {
            Link::Fd(fd) => write!(f, "Stream({})", fd.as_raw_fd()),
            Link::Wire(_) => f.write_str("Stream(simulated)"),
        }
    }
}

/// A listening socket. Clones share it; the last one closes it and removes a Unix socket's path,
/// unless that leads to another socket by now.
#[derive(Clone)]
pub struct Listener(Arc<ListenerInner>);

struct ListenerInner {
    port: Port,
    /// The path of a Unix socket.
    bound: Option<BoundPath>,
    reserved: AtomicBool,
}

/// What is behind a listener.
enum Port {
    Fd(OwnedFd),
    /// In a simulated world.
    Door(Arc<Door>),
}

/// Why a listener could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another process serves there.
    #[error("another process already listens there")]
    InUse,
    /// The path exists and is not a socket.
    #[error("the path exists and is not a socket")]
    NotASocket,
    /// The host name has no address.
    #[error("the host name has no address")]
    NoAddress,
    /// The path of the socket is locked, and stays so.
    #[error("another process of this user is about to listen there, and does not go on")]
    PathLocked,
    /// The operating system refused.
    #[error(transparent)]
    Other(#[from] IoError),
}

impl Listener {
    /// Listens on a Unix socket, whose clients cannot send descriptors along where the system can
    /// refuse them. A socket left by a dead process is replaced; a live one is not, nor any other
    /// file.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let listener = Listener::unix_for_descriptors(path)?;
        listener.descriptor().into_iter().for_each(handed::refuse);
        Ok(listener)
    }

    /// The same for clients that send descriptors along.
    pub fn unix_for_descriptors(path: &Path) -> Result<Listener, ListenError> {
        let (listener, bound) = unix_path::bind(path)?;
        Ok(Listener::of(Port::Fd(listener.into()), Some(bound)))
    }

    /// Removes the Unix socket at `path` if no process serves it, and nothing else; whether it is
    /// gone.
    pub fn remove_dead(path: &Path) -> bool {
        unix_path::remove_dead(path).is_ok()
    }

    /// Listens on a TCP port of a host name or address, IPv4 or IPv6; port 0 lets the kernel
    /// choose.
    pub fn tcp(host: &str, port: u16) -> Result<Listener, ListenError> {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let addresses: Vec<SocketAddr> =
            (host, port).to_socket_addrs().map_err(|_| ListenError::NoAddress)?.collect();
        let listener = TcpListener::bind(&addresses[..]).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse,
            _ => ListenError::Other(IoError::from_std(&error)),
        })?;
        Ok(Listener::of(Port::Fd(listener.into()), None))
    }

    /// Wraps a socket that listens already, for instance one passed by the service manager.
    pub fn from_fd(fd: OwnedFd) -> Listener {
        handed::refuse(fd.as_fd());
        Listener::of(Port::Fd(fd), None)
    }

    fn of(port: Port, bound: Option<BoundPath>) -> Listener {
        Listener(Arc::new(ListenerInner { port, bound, reserved: AtomicBool::new(false) }))
    }

    /// The listener behind a door of a simulated world; it closes the door when it goes.
    pub(crate) fn simulated(door: Arc<Door>) -> Listener {
        Listener::of(Port::Door(door), None)
    }

    /// Its descriptor; a simulated listener has none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0.port {
            Port::Fd(fd) => Some(fd.as_fd()),
            Port::Door(_) => None,
        }
    }

    /// The door of a simulated world that it listens at, if it does.
    pub(crate) fn door(&self) -> Option<&Door> {
        match &self.0.port {
            Port::Door(door) => Some(door),
            Port::Fd(_) => None,
        }
    }

    /// Gives the connections accepted from now on room of their own in every ring: they are served
    /// however many clients elsewhere send or read nothing. For an operator's socket, whose server
    /// bounds its connections.
    #[must_use]
    pub fn reserved(self) -> Listener {
        self.0.reserved.store(true, Ordering::Relaxed);
        self
    }

    /// Takes in a connection that the kernel accepted here.
    pub(crate) fn take_in(&self, fd: OwnedFd) -> Stream {
        Stream::accepted(fd, self.is_of_clients())
    }

    /// Whether clients connect to it: see [`Listener::reserved`].
    pub(crate) fn is_of_clients(&self) -> bool {
        !self.0.reserved.load(Ordering::Relaxed)
    }

    /// The TCP address it listens on, `None` for Unix sockets.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let fd = self.descriptor()?.try_clone_to_owned().ok()?;
        TcpListener::from(fd).local_addr().ok()
    }
}

impl Drop for ListenerInner {
    fn drop(&mut self) {
        // Before the socket is closed: until then a successor finds it alive.
        if let Some(bound) = &self.bound {
            bound.remove();
        }
        if let Port::Door(door) = &self.port {
            door.close();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.port {
            Port::Fd(fd) => write!(f, "Listener({})", fd.as_raw_fd()),
            Port::Door(_) => f.write_str("Listener(simulated)"),
        }
    }
}
