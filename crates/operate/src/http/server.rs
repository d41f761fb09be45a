//! The server: listens, checks, has a site answer, and bounds what peers can cost.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use wattle_control::{Code, Problem};
use wattle_server::exports::is_loopback;
use wattle_server::ids::host_name;

use super::address::HttpAddress;
use super::connections::{Connection, Connections, Counted, CountedStream, Observed, Transport};
use super::feed::Feed;
use super::guard::{Guard, normal_path, query};
use super::message::{HttpPeer, HttpReply, HttpRequest, ReplyContent};
use super::tls::{TlsFiles, server_config};
use super::token::Token;

/// What a site's answer comes from.
pub type HttpFuture = Pin<Box<dyn Future<Output = HttpReply> + Send>>;

/// What answers requests. It runs on the server's thread and must not block it: what waits for
/// other processes does so in [`tokio::task::spawn_blocking`].
pub trait HttpSite: Send + Sync + 'static {
    /// The reply to a request.
    fn answer(&self, request: HttpRequest) -> HttpFuture;
}

impl<F: Fn(HttpRequest) -> HttpFuture + Send + Sync + 'static> HttpSite for F {
    fn answer(&self, request: HttpRequest) -> HttpFuture {
        self(request)
    }
}

/// What peers can make a server hold, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections at a time; further ones wait in the system's queue.
    pub connections: usize,
    /// Replies that go on, at a time.
    pub streams: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// From the first byte of a request's head to its last; also for TLS to begin.
    pub head_time: Duration,
    /// For a body to come.
    pub body_time: Duration,
    /// For the site to answer.
    pub answer_time: Duration,
    /// Without any byte of a reply being taken.
    pub stall_time: Duration,
    /// Between requests, and for a whole reply to be taken.
    pub idle_time: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            streams: 64,
            head_bytes: 16 << 10,
            headers: 64,
            body_bytes: 64 << 10,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(15),
            idle_time: Duration::from_secs(90),
        }
    }
}

/// Where and how a server listens.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Where.
    pub address: HttpAddress,
    /// Speak TLS, with these.
    pub tls: Option<TlsFiles>,
    /// What changes anything carries it; beyond this machine, what only reads too.
    pub token: Option<Token>,
    /// What only reads carries the token on this machine too.
    pub token_on_reads: bool,
    /// Listen beyond this machine also without TLS or without a secret.
    pub insecure: bool,
    /// Names of this machine that requests may be for, beside its host name and its addresses.
    pub names: Vec<String>,
    /// What peers can make it hold.
    pub limits: HttpLimits,
}

impl HttpSettings {
    /// A server at this address with neither TLS nor a token.
    #[must_use]
    pub fn at(address: HttpAddress) -> Self {
        let (tls, token, names, limits) = (None, None, Vec::new(), HttpLimits::default());
        Self { address, tls, token, token_on_reads: false, insecure: false, names, limits }
    }

    fn is_protected(&self) -> bool {
        let has_client_certs = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        self.tls.is_some() && (self.token.is_some() || has_client_certs)
    }
}

/// A server that listens and does not answer yet.
pub struct HttpServer {
    listener: Sockets,
    address: HttpAddress,
    settings: HttpSettings,
    tls: Option<Arc<ServerConfig>>,
    site: Arc<dyn HttpSite>,
}

impl std::fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Not of the runtime yet, which is made on the server's thread.
enum Sockets {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener),
}

impl HttpServer {
    /// Listens, with what the files of the settings hold.
    ///
    /// # Errors
    /// It would be open to the network unprotected, a certificate or key cannot be used, or the
    /// system refuses.
    pub fn listen(settings: HttpSettings, site: impl HttpSite) -> Result<Self, Problem> {
        if !settings.address.is_local() && !settings.is_protected() && !settings.insecure {
            return Err(Problem::new(
                Code::ListenUnprotected,
                format!("{} can be reached from other machines", settings.address),
                "without TLS and a token (or certificates of clients) every machine could read what is there",
                "give --tls-cert, --tls-key and --token-file, listen at 127.0.0.1 or unix:PATH, or take the risk: --insecure",
            ));
        }
        let tls = settings.tls.as_ref().map(server_config).transpose()?;
        let (listener, address) = match &settings.address {
            HttpAddress::Unix(path) => (Sockets::Unix(unix(path)?), settings.address.clone()),
            HttpAddress::Tcp(address) => tcp(*address)?,
        };
        Ok(Self { listener, address, settings, tls, site: Arc::new(site) })
    }

    /// Where it listens: with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &HttpAddress {
        &self.address
    }

    /// What an operator should know of how it listens.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let open = !self.address.is_local() && !self.settings.is_protected();
        open.then(|| format!("{} is open to every machine that reaches it (--insecure)", self.address))
            .into_iter()
            .collect()
    }

    /// Answers on a thread of its own until it is stopped or dropped.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(self) -> Result<RunningHttp, Problem> {
        let address = self.address.clone();
        let (stop, stopped) = watch::channel(());
        let thread = wattle_rt::helper_thread("wattle-http", move || self.run(stopped));
        let thread = thread.map_err(|error| {
            Problem::new(
                Code::ListenFailed,
                format!("a thread to answer at {address} with: {error}"),
                "the system gives no more threads",
                "raise the limit of processes (`ulimit -u`)",
            )
        })?;
        Ok(RunningHttp { address, stop: Some(stop), thread: Some(thread) })
    }

    fn run(self, stopped: watch::Receiver<()>) {
        let Some(runtime) = runtime() else { return };
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, self.serve(stopped));
        drop(local);
        // A site may be waiting for another process: that is not waited for.
        runtime.shutdown_background();
    }

    async fn serve(self, mut stopped: watch::Receiver<()>) {
        let Self { listener, settings, tls, site, address } = self;
        let mut names: Vec<String> = settings.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        names.extend(Some(host_name().to_ascii_lowercase()).filter(|name| !name.is_empty()));
        let guard = Guard {
            token_on_reads: settings.token_on_reads || !address.is_local(),
            token: settings.token,
            names,
            is_tls: tls.is_some(),
        };
        let connections = Connections::new(settings.limits.clone());
        let server = Rc::new(Inner { guard, limits: settings.limits, connections, site, tls });
        let watch = tokio::task::spawn_local(server.connections.clone().watch());
        let Ok(listener) = Accepting::new(listener) else { return };
        let accepted = async {
            loop {
                let counted = server.connections.admit().await;
                let (transport, peer) = listener.accept().await;
                counted.connection.begins();
                tokio::task::spawn_local(converse(server.clone(), counted, transport, peer, stopped.clone()));
            }
        };
        let mut ended = stopped.clone();
        tokio::select! {
            _ = ended.changed() => {}
            () = accepted => {}
        }
        // What is being answered is answered, but not waited for without end.
        let drained = async {
            while server.connections.len() > 0 {
                server.connections.one_less.notified().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), drained).await;
        watch.abort();
        stopped.mark_unchanged();
        if let HttpAddress::Unix(path) = &address {
            // Best effort: the next server removes what is left.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The runtime of a thread beside the cores; `None` where the system gives no descriptors.
pub(crate) fn runtime() -> Option<tokio::runtime::Runtime> {
    /// Requests that wait for other processes at a time.
    const BLOCKING_MAX: usize = 16;
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_MAX).build().ok()
}

/// A server that answers; dropped, it stops.
#[derive(Debug)]
pub struct RunningHttp {
    address: HttpAddress,
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningHttp {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &HttpAddress {
        &self.address
    }

    /// Stops it: what is being answered has two seconds.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was said on standard error already.
            let _ = thread.join();
        }
    }
}

impl Drop for RunningHttp {
    fn drop(&mut self) {
        self.end();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "callers have made it for this call")]
fn listen_failed(address: &HttpAddress, why: impl ToString, next: &str) -> Problem {
    Problem::new(Code::ListenFailed, format!("cannot listen at {address}"), why.to_string(), next)
}

fn tcp(address: std::net::SocketAddr) -> Result<(Sockets, HttpAddress), Problem> {
    let shown = HttpAddress::Tcp(address);
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let own = listener.local_addr()?;
        Ok((listener, own))
    });
    let (listener, own) = bound.map_err(|error| {
        listen_failed(&shown, error, "choose another port, or stop what listens there (`ss -ltnp`)")
    })?;
    Ok((Sockets::Tcp(listener), HttpAddress::Tcp(own)))
}

/// A socket that only this user can connect to, in a directory that only this user can change.
fn unix(path: &Path) -> Result<std::os::unix::net::UnixListener, Problem> {
    let address = HttpAddress::Unix(path.to_owned());
    let failed = |why: String, next: &str| listen_failed(&address, why, next);
    let elsewhere = "name a path in a directory of yours";
    wattle_server::socket::check_socket_path(path).map_err(|why| failed(why, "name a shorter path"))?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let make = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    make.map_err(|error| failed(format!("{}: {error}", dir.display()), elsewhere))?;
    let metadata = std::fs::metadata(dir).map_err(|error| failed(error.to_string(), elsewhere))?;
    let (mode, owner, us) = (metadata.mode(), metadata.uid(), wattle_rt::effective_user());
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        let why = format!(
            "others can write to {} (mode {:04o}) and replace the socket",
            dir.display(),
            mode & 0o7777
        );
        return Err(failed(why, elsewhere));
    }
    if owner != us && owner != 0 {
        return Err(failed(format!("{} belongs to user {owner}", dir.display()), elsewhere));
    }
    wattle_rt::Listener::remove_dead(path);
    let bound = std::os::unix::net::UnixListener::bind(path).and_then(|listener| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| failed(error.to_string(), "stop what listens there, or name another path"))
}

enum Accepting {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Accepted {
    Plain(Box<dyn Transport>),
    Tcp(TcpStream),
}

impl Accepting {
    fn new(sockets: Sockets) -> io::Result<Self> {
        match sockets {
            Sockets::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
            Sockets::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
        }
    }

    async fn accept(&self) -> (Accepted, HttpPeer) {
        /// A failing accept mostly means that descriptors are short: connections that end free
        /// some.
        const PAUSE: Duration = Duration::from_millis(100);
        loop {
            let accepted = match self {
                Self::Unix(listener) => {
                    let accepted = listener.accept().await;
                    accepted.map(|(stream, _)| (Accepted::Plain(Box::new(stream)), HttpPeer::Unix))
                }
                Self::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                    let _ = stream.set_nodelay(true);
                    let is_own = is_loopback(from.ip());
                    (Accepted::Tcp(stream), if is_own { HttpPeer::Loopback } else { HttpPeer::Remote })
                }),
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

struct Inner {
    guard: Guard,
    limits: HttpLimits,
    connections: Rc<Connections>,
    site: Arc<dyn HttpSite>,
    tls: Option<Arc<ServerConfig>>,
}

/// One connection, until either side ends it.
async fn converse(
    server: Rc<Inner>,
    counted: Counted,
    accepted: Accepted,
    peer: HttpPeer,
    mut stopped: watch::Receiver<()>,
) {
    let connection = counted.connection.clone();
    let begun = tokio::select! {
        begun = begin(&server, accepted) => begun,
        () = connection.end.notified() => None,
        _ = stopped.changed() => None,
    };
    let Some(transport) = begun else { return };
    let observed = Observed { transport, connection: connection.clone() };
    let answering = (server.clone(), connection.clone());
    let service = hyper::service::service_fn(move |request| {
        let (server, connection) = answering.clone();
        async move { Ok::<_, Infallible>(answer(&server, &connection, request, peer).await) }
    });
    let limits = &server.limits;
    let conversation = hyper::server::conn::http1::Builder::new()
        // The table of connections keeps the times.
        .header_read_timeout(None)
        .max_headers(limits.headers)
        .max_buf_size(limits.head_bytes.max(8 << 10))
        .serve_connection(TokioIo::new(observed), service);
    tokio::pin!(conversation);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            // What a peer did wrong is its own concern.
            _ = conversation.as_mut() => return,
            () = connection.end.notified() => return,
            _ = stopped.changed(), if !is_stopping => {
                is_stopping = true;
                conversation.as_mut().graceful_shutdown();
            }
        }
    }
}

/// What requests come through: TLS where that is spoken.
async fn begin(server: &Inner, accepted: Accepted) -> Option<Box<dyn Transport>> {
    let (stream, tls) = match (accepted, &server.tls) {
        (Accepted::Plain(transport), _) => return Some(transport),
        (Accepted::Tcp(stream), None) => return Some(Box::new(stream)),
        (Accepted::Tcp(stream), Some(tls)) => (stream, tls.clone()),
    };
    let shaken = tokio::time::timeout(server.limits.head_time, shake_hands(stream, tls)).await;
    shaken.ok().flatten()
}

async fn shake_hands(mut stream: TcpStream, tls: Arc<ServerConfig>) -> Option<Box<dyn Transport>> {
    const HANDSHAKE: u8 = 0x16;
    const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 31\r\n\
        Connection: close\r\n\r\nthis port speaks TLS: https://\n";
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first[0] != HANDSHAKE {
        if first[0].is_ascii_alphabetic() {
            // What came has to be taken, or the system tells the peer of that instead of this.
            let mut rest = [0; 4096];
            let _ = stream.try_read(&mut rest);
            let _ = stream.write_all(PLAIN).await;
            let _ = stream.shutdown().await;
        }
        return None;
    }
    let accepted = TlsAcceptor::from(tls).accept(stream).await.ok()?;
    Some(Box::new(accepted))
}

async fn answer(
    server: &Inner,
    connection: &Rc<Connection>,
    request: Request<Incoming>,
    peer: HttpPeer,
) -> Response<ReplyBody> {
    connection.head_came();
    let reply = match receive(server, request, peer).await {
        Ok(request) => {
            connection.answers();
            let answered = tokio::time::timeout(server.limits.answer_time, server.site.answer(request)).await;
            answered.unwrap_or_else(|_| HttpReply::text(504, "no answer in time"))
        }
        Err(reply) => reply.with("connection", "close"),
    };
    let (reply, stream) = match reply.body {
        ReplyContent::Stream(_) => match server.connections.stream() {
            None => (HttpReply::text(503, "too many viewers; try again later"), None),
            counted => (reply, counted),
        },
        ReplyContent::Full(_) => (reply, None),
    };
    if stream.is_none() {
        connection.answered();
    }
    response(reply, stream, connection)
}

/// The request, once it is whole and checked, or why it is not answered.
async fn receive(
    server: &Inner,
    request: Request<Incoming>,
    peer: HttpPeer,
) -> Result<HttpRequest, HttpReply> {
    let (head, body) = request.into_parts();
    let path = normal_path(head.uri.path());
    let is_authorized = server.guard.check(&head.method, &head.uri, &head.headers, peer)?;
    let path = path.ok_or_else(|| HttpReply::text(400, "this path is not a normal one"))?;
    let too_large = || HttpReply::text(413, "the body is too large");
    let limit = server.limits.body_bytes;
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(server.limits.body_time, Limited::new(body, limit).collect()).await;
    let body = match collected {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(HttpReply::text(400, "the body did not come whole")),
        Err(_) => return Err(HttpReply::text(408, "the body did not come in time")),
    };
    let query = query(head.uri.query());
    Ok(HttpRequest { method: head.method, path, query, headers: head.headers, body, peer, is_authorized })
}

fn response(
    reply: HttpReply,
    stream: Option<CountedStream>,
    connection: &Rc<Connection>,
) -> Response<ReplyBody> {
    /// What a site may say otherwise.
    const DEFAULTS: [(&str, &str); 5] = [
        ("cache-control", "no-store"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ];
    let body = match reply.body {
        ReplyContent::Full(bytes) => ReplyBody::Full(Some(bytes)),
        ReplyContent::Stream(begin) => {
            ReplyBody::Stream { feed: begin(), _counted: stream, connection: connection.clone() }
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    for (name, value) in DEFAULTS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (name, value) in reply.headers {
        headers.insert(name, value);
    }
    response
}

enum ReplyBody {
    Full(Option<Bytes>),
    Stream { feed: Feed, _counted: Option<CountedStream>, connection: Rc<Connection> },
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Self::Stream { connection, .. } = self {
            connection.answered();
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream { feed, .. } => Pin::new(feed).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}
