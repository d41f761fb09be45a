//! Requests as a site sees them, and its replies.

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use wattle_control::{FailureKind, Problem};

use super::feed::Feed;

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpPeer {
    /// A process of this machine that may open the socket.
    Unix,
    /// A process of this machine.
    Loopback,
    /// Another machine.
    Remote,
}

/// A request that passed every check of the server.
#[derive(Debug)]
pub struct HttpRequest {
    /// `GET`, `HEAD`, `POST`, `PUT` or `DELETE`.
    pub method: Method,
    /// Decoded, absolute, without empty parts, `.` or `..`.
    pub path: String,
    /// Decoded, in their order.
    pub query: Vec<(String, String)>,
    /// As they came.
    pub headers: HeaderMap,
    /// All of it.
    pub body: Bytes,
    /// Where it comes from.
    pub peer: HttpPeer,
    /// It carries the token.
    pub is_authorized: bool,
}

impl HttpRequest {
    /// The value of a header, if it is there and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The value of a part of the query.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What a site answers.
#[derive(Debug)]
pub struct HttpReply {
    pub(super) status: u16,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: ReplyContent,
}

pub(super) enum ReplyContent {
    Full(Bytes),
    Stream(Box<dyn FnOnce() -> Feed + Send>),
}

impl std::fmt::Debug for ReplyContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(bytes) => f.debug_tuple("Full").field(bytes).finish(),
            Self::Stream(_) => f.write_str("Stream(…)"),
        }
    }
}

impl HttpReply {
    /// A whole reply of this type.
    #[must_use]
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let headers = vec![(hyper::header::CONTENT_TYPE, HeaderValue::from_static(content_type))];
        Self { status, headers, body: ReplyContent::Full(body.into()) }
    }

    /// A line of text.
    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.push('\n');
        Self::new(status, "text/plain; charset=utf-8", text)
    }

    /// A JSON document.
    #[must_use]
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(status, "application/json", body),
            Err(error) => Self::text(500, format!("the answer is no JSON: {error}")),
        }
    }

    /// A problem, as the command line shows it in JSON.
    #[must_use]
    pub fn problem(problem: &Problem) -> Self {
        let status = match problem.kind() {
            FailureKind::Failed => 502,
            FailureKind::Usage => 400,
            FailureKind::Refused => 409,
        };
        Self::json(status, &wattle_server::protocol::ErrorReport::from(problem))
    }

    /// A reply that goes on as long as its feed does. The feed begins only once there is room for
    /// another stream.
    #[must_use]
    pub fn stream(content_type: &'static str, begin: impl FnOnce() -> Feed + Send + 'static) -> Self {
        let headers = vec![(hyper::header::CONTENT_TYPE, HeaderValue::from_static(content_type))];
        Self { status: 200, headers, body: ReplyContent::Stream(Box::new(begin)) }
    }

    /// The same with a header. A value that is no header's is left out.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((HeaderName::from_static(name), value));
        }
        self
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }
}
