//! One request at a time: what is answered, what is refused, how long it is waited for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wattle_control::Code;
use wattle_operate::http::{
    HttpCall, HttpFuture, HttpLimits, HttpReply, HttpRequest, HttpServer, HttpSettings, Method,
    call_blocking, feed,
};

use crate::harness::{
    TOKEN, assert_answers, connect, get, limits, port, rest, said, settings, site, start, status, token,
};

#[test]
fn requests_are_answered_with_headers_that_keep_pages_apart() {
    let server = start(settings());
    let answer = said(&server, &get("/", ""));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for header in ["x-content-type-options: nosniff", "cache-control: no-store", "default-src 'none'"] {
        assert!(answer.contains(header), "{answer}");
    }
    let head = said(&server, b"HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(head.contains("content-length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(said(&server, &get("/asked?a=1&b=%20", "")).contains(r#"GET [("a", "1"), ("b", " ")] false"#));
    assert_eq!(status(&said(&server, &get("/nowhere", ""))), 404);
}

#[test]
fn what_is_not_a_normal_request_is_refused() {
    let server = start(settings());
    for (bytes, expected) in [
        (get("/../etc/passwd", ""), 400),
        (get("/%2e%2e/etc/passwd", ""), 400),
        (get("//etc/passwd", ""), 400),
        (get("/a%00b", ""), 400),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n".to_vec(), 400),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_vec(), 421),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_vec(), 421),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(), 405),
        (b"CONNECT evil.example:25 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), 405),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n".to_vec(), 403),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n".to_vec(), 403),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".to_vec(), 413),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(), 0),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), 400),
        (b"garbage\r\n\r\n".to_vec(), 400),
    ] {
        let answer = said(&server, &bytes);
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        match expected {
            // Two lengths: whatever it makes of it, nothing is left that could be a second request.
            0 => assert!(answer.matches("HTTP/1.1").count() <= 1, "{shown}: {answer}"),
            _ => assert_eq!(status(&answer), expected, "{shown}: {answer}"),
        }
        assert!(!answer.contains("root:"), "{answer}");
        assert_answers(&server);
    }
}

#[test]
fn heads_and_bodies_have_an_end() {
    let server = start(settings());
    let many = "A: b\r\n".repeat(100);
    assert_eq!(status(&said(&server, &get("/", &many))), 431);
    let long = format!("A: {}\r\n", "x".repeat(64 << 10));
    assert_eq!(status(&said(&server, &get("/", &long))), 431);
    assert!(matches!(
        status(&said(&server, &get(&format!("/{}", "x".repeat(32 << 10)), ""))),
        400 | 414 | 431
    ));
    let mut chunked =
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..5 {
        chunked.extend_from_slice(format!("4000\r\n{}\r\n", "y".repeat(0x4000)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(status(&said(&server, &chunked)), 413);
    let whole =
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes";
    assert!(said(&server, whole).ends_with("yes"));
}

#[test]
fn every_step_has_its_time() {
    let server = start(settings());
    let soon = |what: &str, act: &dyn Fn() -> String, expected: u16| {
        let began = Instant::now();
        assert_eq!(status(&act()), expected, "{what}");
        let took = began.elapsed();
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(5), "{what}: {took:?}");
    };
    soon("no byte", &|| said(&server, b""), 0);
    soon("half a head", &|| said(&server, b"GET / HTTP/1.1\r\nHost: 127."), 0);
    let dripping = || {
        let mut stream = connect(&server);
        for byte in get("/", "").iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            if stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0; 64])).is_ok() {
                break;
            }
            stream.set_nonblocking(false).unwrap();
        }
        String::new()
    };
    soon("a head by drops", &dripping, 0);
    let half = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhi";
    soon("half a body", &|| said(&server, half), 408);
    let late = || {
        let mut stream = connect(&server);
        stream.write_all(&half[..half.len() - 2]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        stream.write_all(b"hi").unwrap();
        rest(&mut stream)
    };
    soon("a body that comes late", &late, 408);
    soon("no answer of the site", &|| said(&server, &get("/never", "")), 504);
}

#[test]
fn a_reply_that_is_not_taken_is_given_up() {
    let server = start(settings());
    let mut stream = connect(&server);
    stream.write_all(&get("/large", "")).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    // What the system had taken is all that comes.
    let taken = rest(&mut stream).len();
    assert!(taken > 0 && taken < 8 << 20, "{taken}");
    let mut stream = connect(&server);
    stream.write_all(&get("/large", "")).unwrap();
    assert!(rest(&mut stream).len() > 8 << 20);
}

#[test]
fn viewers_that_are_too_slow_or_too_many_are_dropped() {
    let server = start(settings());
    let view = || {
        let mut stream = connect(&server);
        stream.write_all(&get("/stream", "")).unwrap();
        stream
    };
    let (mut sees, slow) = (view(), view());
    let mut buf = vec![0; 1 << 20];
    let mut seen = 0;
    while seen < 1 << 20 {
        let len = sees.read(&mut buf).unwrap();
        assert!(len > 0, "a viewer that takes what comes is kept");
        seen += len;
    }
    let refused = said(&server, &get("/stream", ""));
    assert_eq!(status(&refused), 503, "{refused}");
    assert_answers(&server);
    // Neither takes anything now. What the system holds for them fills, then the feed.
    let began = Instant::now();
    loop {
        let mut next = view();
        let len = next.read(&mut buf).unwrap();
        if status(&String::from_utf8_lossy(&buf[..len])) == 200 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "they make room");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop((sees, slow));
}

/// What a feed costs begins with the viewer, not with the request.
#[test]
fn of_a_viewer_too_many_no_feed_begins() {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let site = move |_: HttpRequest| -> HttpFuture {
        let count = count.clone();
        Box::pin(async move {
            HttpReply::stream("text/event-stream", move || {
                count.fetch_add(1, Ordering::Relaxed);
                feed(1).1
            })
        })
    };
    let limits = HttpLimits { streams: 0, ..limits() };
    let server = HttpServer::listen(HttpSettings { limits, ..settings() }, site).unwrap().start().unwrap();
    assert_eq!(status(&said(&server, &get("/stream", ""))), 503);
    assert_eq!(begun.load(Ordering::Relaxed), 0);
}

#[test]
fn a_token_opens_and_nothing_near_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(HttpSettings { token: Some(token(dir.path())), token_on_reads: true, ..settings() });
    let with = |token: &str| said(&server, &get("/asked", &format!("Authorization: Bearer {token}\r\n")));
    assert!(with(TOKEN).contains("GET [] true"));
    let (shorter, longer) = (&TOKEN[1..], format!("{TOKEN}3"));
    let other = TOKEN.replace('f', "e");
    for wrong in [shorter, &longer, &other, "", " "] {
        let answer = with(wrong);
        assert_eq!(status(&answer), 401, "{wrong}");
        assert!(answer.to_ascii_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    assert_eq!(status(&said(&server, &get("/", ""))), 401);
}

#[test]
fn beyond_this_machine_nothing_listens_unprotected() {
    let listen = |insecure| {
        let address = "0.0.0.0:0".parse().unwrap();
        HttpServer::listen(HttpSettings { address, insecure, ..settings() }, site)
    };
    let refused = listen(false).unwrap_err();
    assert_eq!(refused.code, Code::ListenUnprotected);
    assert!(refused.next.contains("--insecure"));
    let open = listen(true).unwrap();
    assert!(open.notes()[0].contains("open to every machine"), "{:?}", open.notes());
    assert!(HttpServer::listen(settings(), site).unwrap().notes().is_empty());
}

#[test]
fn a_socket_is_its_users_alone_and_goes_with_its_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/http.sock");
    let at = || HttpSettings::at(format!("unix:{}", path.display()).parse().unwrap());
    let server = start(at());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let url = format!("unix:{}:/asked?x=y", path.display());
    let answer = call_blocking(HttpCall::new(Method::GET, url)).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"GET [(\"x\", \"y\")] false\n"[..]));
    assert_eq!(HttpServer::listen(at(), site).unwrap_err().code, Code::ListenFailed, "another one has it");
    server.stop();
    assert!(!path.exists());
    std::fs::set_permissions(path.parent().unwrap(), PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(
        HttpServer::listen(at(), site).unwrap_err().code,
        Code::ListenFailed,
        "others could replace it"
    );
}

#[test]
fn a_call_is_bounded_and_says_which_server_failed() {
    let server = start(settings());
    let base = format!("http://{}", port(&server));
    let call = |path: &str, change: &dyn Fn(&mut HttpCall)| {
        let mut call = HttpCall::new(Method::POST, format!("{base}{path}"));
        call.body = b"told".to_vec();
        change(&mut call);
        call_blocking(call)
    };
    let answer = call("/echo", &|_| {}).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"told"[..]));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(call("/nowhere", &|_| {}).unwrap().status, 404);
    let long = call("/large", &|_| {}).unwrap();
    assert_eq!((long.status, long.body.len()), (200, 64 << 10), "the status is known, the rest is left out");
    let late = call("/never", &|call| call.time_max = Duration::from_millis(100)).unwrap_err().to_string();
    assert!(late.contains("within 0.1 s"), "{late}");
    let bad = call("/echo", &|call| call.headers = vec![("A\r\nB".to_owned(), "c".to_owned())]);
    assert!(bad.is_err());
    for url in
        ["ftp://a/", "http://", "http://user:hunter2@127.0.0.1/", "a b", "http://127.0.0.1:99999/", "/x"]
    {
        let said = call_blocking(HttpCall::new(Method::GET, url)).unwrap_err().to_string();
        assert!(!said.contains("hunter2"), "{said}");
    }
    server.stop();
    let gone = call("/secret-path", &|_| {}).unwrap_err().to_string();
    assert!(gone.contains("cannot be reached") && !gone.contains("secret-path"), "{gone}");
}

/// What the receiver of a message took is not sent again because its page was long, late or cut.
#[test]
fn the_status_is_an_answer_whatever_becomes_of_the_body() {
    for (body, hangs) in [("", false), ("half", false), ("", true)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut peer = listener.accept().unwrap().0;
            assert!(peer.read(&mut [0; 4096]).unwrap() > 0);
            peer.write_all(format!("HTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n{body}").as_bytes())
                .unwrap();
            hangs.then_some(peer)
        });
        let mut call = HttpCall::new(Method::GET, url);
        call.time_max = Duration::from_secs(if hangs { 1 } else { 30 });
        let answer = call_blocking(call).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (202, body.as_bytes()));
        drop(server.join().unwrap());
    }
}

#[test]
fn a_server_that_is_stopped_ends_soon_whatever_its_peers_do() {
    let server = start(settings());
    let silent = connect(&server);
    let mut viewer = connect(&server);
    viewer.write_all(&get("/stream", "")).unwrap();
    viewer.read_exact(&mut [0; 64]).unwrap();
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop((silent, viewer));
}
