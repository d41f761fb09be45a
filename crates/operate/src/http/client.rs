//! One request to another server, bounded in time and size: webhooks.
//!
//! No redirects are followed: what is posted holds what was to be told to one server, and secrets
//! for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use wattle_control::{Code, Problem};

use super::connections::Transport;
use super::server::runtime;
use super::tls::{TlsRoots, client_config};

/// Bytes of the head of a reply.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// A request.
#[derive(Debug, Clone)]
pub struct HttpCall {
    /// `GET` or `POST`.
    pub method: Method,
    /// `http://HOST[:PORT]/PATH`, `https://…`, or `unix:SOCKET:/PATH`.
    pub url: String,
    /// Besides those that are part of every request.
    pub headers: Vec<(String, String)>,
    /// What is posted.
    pub body: Vec<u8>,
    /// For all of it: the name, the connection, the request and the reply.
    pub time_max: Duration,
    /// Bytes of the reply's body that are read; what follows is left out.
    pub reply_bytes_max: usize,
    /// Which authorities are trusted.
    pub roots: TlsRoots,
}

impl HttpCall {
    /// A request that has ten seconds, of whose reply 64 KiB are read.
    #[must_use]
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        let (headers, body, roots) = (Vec::new(), Vec::new(), TlsRoots::System);
        let (time_max, reply_bytes_max) = (Duration::from_secs(10), 64 << 10);
        Self { method, url: url.into(), headers, body, time_max, reply_bytes_max, roots }
    }
}

/// What the other server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Its status, whatever it is.
    pub status: u16,
    /// Names in small letters; values that are no text are left out.
    pub headers: Vec<(String, String)>,
    /// What came of it in time, up to what was to be read.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// Whether it is a yes.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of a header; the name in small letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Why there was no answer. The text names the server, never the rest of the address: that may
/// hold secrets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HttpCallError {
    /// The address is none that can be called.
    #[error("the address is not http://HOST/PATH or https://HOST/PATH: {0}")]
    BadUrl(&'static str),
    /// A header is none that can be sent.
    #[error("the header {0} has a name or value that cannot be sent")]
    BadHeader(String),
    /// The authorities to trust cannot be read.
    #[error(transparent)]
    Roots(#[from] Problem),
    /// The server cannot be reached.
    #[error("{server} cannot be reached: {error}")]
    Unreachable {
        /// Its name.
        server: String,
        /// The system's.
        error: std::io::Error,
    },
    /// TLS did not begin: the certificate is not trusted, is another server's, or has expired.
    #[error("TLS with {server} failed: {error}")]
    Tls {
        /// Its name.
        server: String,
        /// What rustls found.
        error: std::io::Error,
    },
    /// What it answered is not HTTP, or it ended before a whole head.
    #[error("{server} did not answer in HTTP: {error}")]
    Protocol {
        /// Its name.
        server: String,
        /// What hyper found.
        error: hyper::Error,
    },
    /// It took too long.
    #[error("{server} did not answer within {} s", .time_max.as_secs_f32())]
    Late {
        /// Its name.
        server: String,
        /// What was allowed.
        time_max: Duration,
    },
    /// This process has no thread or descriptors for it.
    #[error("the system gives no descriptors for a request")]
    NoRuntime,
}

impl From<HttpCallError> for Problem {
    fn from(error: HttpCallError) -> Self {
        let why = match &error {
            HttpCallError::Roots(problem) => return problem.clone(),
            HttpCallError::BadUrl(_) | HttpCallError::BadHeader(_) => "nothing was sent",
            HttpCallError::Tls { .. } => "nothing is sent to a server that cannot prove who it is",
            _ => "what was to be sent may not have arrived",
        };
        let next = match &error {
            HttpCallError::BadUrl(_) | HttpCallError::BadHeader(_) => "correct it",
            HttpCallError::Tls { .. } => {
                "check the name and the clock, or name the file with the authority of its certificate"
            }
            _ => "check that the server runs and that this machine reaches it (`curl -v`)",
        };
        Problem::new(Code::WebRequestFailed, error.to_string(), why, next)
    }
}

/// The socket and the path of `unix:/SOCKET:/PATH`; a socket's name may have colons.
#[must_use]
pub fn unix_parts(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("unix:").filter(|rest| rest.starts_with('/'))?;
    let colon = rest.find(":/")?;
    Some((&rest[..colon], &rest[colon + 1..]))
}

/// Where a request goes.
struct Target {
    place: Place,
    /// What is asked for: the path and the query.
    path: String,
    /// For the header `Host`.
    host: String,
}

enum Place {
    Unix(String),
    Tcp { host: String, port: u16, is_tls: bool },
}

impl Target {
    fn parse(url: &str) -> Result<Self, HttpCallError> {
        if url.starts_with("unix:") {
            let (socket, path) =
                unix_parts(url).ok_or(HttpCallError::BadUrl("a socket is called as unix:/SOCKET:/PATH"))?;
            let place = Place::Unix(socket.to_owned());
            return Ok(Self { place, path: path.to_owned(), host: "localhost".to_owned() });
        }
        let uri: Uri =
            url.parse().map_err(|_| HttpCallError::BadUrl("it has characters that none can have"))?;
        let (is_tls, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(HttpCallError::BadUrl("it begins with something else")),
        };
        let authority = uri.authority().ok_or(HttpCallError::BadUrl("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(HttpCallError::BadUrl(
                "secrets stand in a header (Authorization), not in the address",
            ));
        }
        let host = authority.host();
        let port = match (authority.port_u16(), authority.as_str().len() == host.len()) {
            (Some(port), _) => port,
            (None, true) => default_port,
            (None, false) => return Err(HttpCallError::BadUrl("the port is no number from 0 to 65535")),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err(HttpCallError::BadUrl("the host is missing"));
        }
        let place = Place::Tcp { host: bare.to_owned(), port, is_tls };
        Ok(Self { place, path, host: authority.as_str().to_owned() })
    }

    /// As messages name it.
    fn server(&self) -> String {
        match &self.place {
            Place::Unix(socket) => socket.clone(),
            Place::Tcp { .. } => self.host.clone(),
        }
    }
}

/// Sends a request and waits for the reply, within its time. The status is the answer: a body that
/// is long, late or cut off takes nothing of it back.
///
/// # Errors
/// No status came. An answer that says no is one.
pub async fn call(call: HttpCall) -> Result<HttpAnswer, HttpCallError> {
    let target = Target::parse(&call.url)?;
    let (server, time_max) = (target.server(), call.time_max);
    let mut answer = None;
    let ended = tokio::time::timeout(time_max, exchange(call, target, &mut answer)).await;
    match (answer, ended) {
        (Some(answer), _) => Ok(answer),
        (None, Ok(Err(error))) => Err(error),
        (None, _) => Err(HttpCallError::Late { server, time_max }),
    }
}

/// The same for a thread that may wait.
///
/// # Errors
/// As [`call`].
pub fn call_blocking(request: HttpCall) -> Result<HttpAnswer, HttpCallError> {
    let runtime = runtime().ok_or(HttpCallError::NoRuntime)?;
    let answered = runtime.block_on(call(request));
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
    answered
}

/// Fills in the answer as it comes.
async fn exchange(
    call: HttpCall,
    target: Target,
    answer: &mut Option<HttpAnswer>,
) -> Result<(), HttpCallError> {
    let server = target.server();
    let protocol = |error| HttpCallError::Protocol { server: server.clone(), error };
    let transport = connect(&call.roots, &target).await?;
    let request = request(&call.method, &target, &call.headers, call.body)?;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake::<_, Full<Bytes>>(TokioIo::new(transport))
        .await
        .map_err(protocol)?;
    let reply = async {
        let reply = sender.send_request(request).await.map_err(protocol)?;
        let (head, mut body) = reply.into_parts();
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let headers = head.headers.iter().filter_map(|(name, value)| Some((name.to_string(), text(value)?)));
        let (status, headers) = (head.status.as_u16(), headers.collect());
        let answer = answer.insert(HttpAnswer { status, headers, body: Vec::new() });
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(protocol)?;
            let bytes = frame.data_ref().map_or(&[][..], |bytes| &bytes[..]);
            let room = call.reply_bytes_max - answer.body.len();
            answer.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if bytes.len() >= room {
                break;
            }
        }
        Ok(())
    };
    // The connection moves the bytes; what ends it shows in the reply.
    tokio::pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        _ = connection => reply.await,
    }
}

async fn connect(roots: &TlsRoots, target: &Target) -> Result<Box<dyn Transport + Send>, HttpCallError> {
    let server = target.server();
    let unreachable = |error| HttpCallError::Unreachable { server: server.clone(), error };
    let (host, port, is_tls) = match &target.place {
        Place::Unix(socket) => {
            let stream = UnixStream::connect(Path::new(socket)).await.map_err(unreachable)?;
            return Ok(Box::new(stream));
        }
        Place::Tcp { host, port, is_tls } => (host, *port, *is_tls),
    };
    if !is_tls {
        return Ok(Box::new(TcpStream::connect((host.as_str(), port)).await.map_err(unreachable)?));
    }
    let config: Arc<rustls::ClientConfig> = client_config(roots)?;
    let name = ServerName::try_from(host.clone())
        .map_err(|_| HttpCallError::BadUrl("the host is neither a name nor an address"))?;
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(unreachable)?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| HttpCallError::Tls { server: server.clone(), error })?))
}

fn request(
    method: &Method,
    target: &Target,
    headers: &[(String, String)],
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, HttpCallError> {
    let len = body.len();
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method.clone();
    let not_a_path = |_| HttpCallError::BadUrl("the path has characters that none can have");
    *request.uri_mut() = target.path.parse().map_err(not_a_path)?;
    let all = request.headers_mut();
    let host = HeaderValue::from_str(&target.host);
    all.insert(HOST, host.map_err(|_| HttpCallError::BadUrl("the host has characters that none can have"))?);
    all.insert(USER_AGENT, HeaderValue::from_static(concat!("wattle/", env!("CARGO_PKG_VERSION"))));
    if len > 0 || *method == Method::POST {
        all.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    for (name, value) in headers {
        let bad = || HttpCallError::BadHeader(name.clone());
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        all.insert(known, HeaderValue::from_str(value).map_err(|_| bad())?);
    }
    Ok(request)
}
