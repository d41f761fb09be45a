//! A server with a site of a few paths, and peers that write what they like.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wattle_operate::http::tls::TlsFiles;
use wattle_operate::http::{
    Feed, HttpAddress, HttpFuture, HttpLimits, HttpReply, HttpRequest, HttpServer, HttpSettings, RunningHttp,
    Token, feed,
};

pub const TOKEN: &str = "0123456789abcdef0123";

/// `/` says hello, `/echo` what it was sent, `/large` a reply of 8 MiB, `/stream` goes on for ever,
/// `/never` does not answer.
pub fn site(request: HttpRequest) -> HttpFuture {
    Box::pin(async move {
        match request.path.as_str() {
            "/" => HttpReply::text(200, "hello"),
            "/echo" => HttpReply::new(200, "text/plain", request.body),
            "/asked" => HttpReply::text(
                200,
                format!("{} {:?} {}", request.method, request.query, request.is_authorized),
            ),
            "/large" => HttpReply::new(200, "text/plain", vec![b'x'; 8 << 20]),
            "/stream" => HttpReply::stream("text/event-stream", endless),
            "/never" => std::future::pending().await,
            _ => HttpReply::text(404, "nothing here"),
        }
    })
}

fn endless() -> Feed {
    let (sender, feed) = feed(64);
    tokio::spawn(async move {
        while sender.send(vec![b'.'; 32 << 10]) {
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    });
    feed
}

/// Times that a test can wait for.
pub fn limits() -> HttpLimits {
    HttpLimits {
        connections: 16,
        streams: 2,
        head_time: Duration::from_millis(400),
        body_time: Duration::from_millis(400),
        answer_time: Duration::from_millis(400),
        stall_time: Duration::from_millis(400),
        idle_time: Duration::from_secs(2),
        ..HttpLimits::default()
    }
}

pub fn settings() -> HttpSettings {
    HttpSettings { limits: limits(), ..HttpSettings::at("127.0.0.1:0".parse().unwrap()) }
}

pub fn start(settings: HttpSettings) -> RunningHttp {
    HttpServer::listen(settings, site).unwrap().start().unwrap()
}

pub fn port(server: &RunningHttp) -> SocketAddr {
    match server.address() {
        HttpAddress::Tcp(address) => *address,
        HttpAddress::Unix(_) => panic!("it listens at a socket"),
    }
}

pub fn connect(server: &RunningHttp) -> TcpStream {
    let stream = TcpStream::connect(port(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// What the server answers to these bytes until it closes the connection.
pub fn said(server: &RunningHttp, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    // It may close before it has taken all.
    let _ = stream.write_all(bytes);
    rest(&mut stream)
}

pub fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of an answer.
pub fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

pub fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n").into_bytes()
}

/// Whether the server still answers a well-behaved client, and soon.
#[track_caller]
pub fn assert_answers(server: &RunningHttp) {
    let answer = said(server, &get("/", ""));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello\n"), "{answer:?}");
}

pub fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates").join(name)
}

/// A copy of a key that only its owner can read, as servers want it.
pub fn files(dir: &Path, name: &str) -> TlsFiles {
    let key = dir.join(format!("{name}.key"));
    std::fs::copy(certificate(&format!("{name}.key")), &key).unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    TlsFiles { cert: certificate(&format!("{name}.pem")), key, client_ca: None, client_crl: None }
}

pub fn token(dir: &Path) -> Token {
    let path = dir.join("token");
    std::fs::write(&path, TOKEN).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    Token::read(&path).unwrap()
}
