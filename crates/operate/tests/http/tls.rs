//! Certificates that are not right, on either side, and peers that do not speak TLS.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use wattle_control::{Code, Problem};
use wattle_operate::http::tls::{TlsFiles, TlsRoots, client_config, server_config};
use wattle_operate::http::{HttpCall, HttpServer, HttpSettings, Method, RunningHttp, call_blocking};

use crate::harness::{certificate, connect, files, get, port, said, settings, site, start, status, token};

fn serve(dir: &Path, name: &str) -> RunningHttp {
    start(HttpSettings { tls: Some(files(dir, name)), ..settings() })
}

fn call(server: &RunningHttp, host: &str, ca: &str) -> Result<u16, Problem> {
    let mut call = HttpCall::new(Method::GET, format!("https://{host}:{}/", port(server).port()));
    call.roots = TlsRoots::File(certificate(ca));
    call_blocking(call).map(|answer| answer.status).map_err(Problem::from)
}

#[test]
fn a_server_proves_who_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "server");
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(call(&server, host, "ca.pem"), Ok(200), "{host}");
    }
    let stranger = call(&server, "127.0.0.1", "other-ca.pem").unwrap_err();
    assert_eq!(stranger.code, Code::WebRequestFailed);
    assert!(stranger.what.contains("TLS with 127.0.0.1"), "{}", stranger.what);
    let elsewhere = serve(dir.path(), "elsewhere");
    let wrong = call(&elsewhere, "localhost", "ca.pem").unwrap_err();
    assert!(wrong.what.contains("localhost"), "{}", wrong.what);
    assert_eq!(call(&server, "127.0.0.1", "ca.pem"), Ok(200), "others are not disturbed");
}

#[test]
fn files_that_cannot_be_used_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let good = files(dir.path(), "server");
    let other = files(dir.path(), "elsewhere");
    let whys = |files: &TlsFiles| {
        let problem = server_config(files).unwrap_err();
        assert_eq!(problem.code, Code::TlsUnusable);
        format!("{}: {}", problem.what, problem.why)
    };
    assert!(server_config(&good).is_ok());
    let expired = whys(&files(dir.path(), "expired"));
    assert!(expired.contains("it expired at 2025-01-01T00:00:00Z"), "{expired}");
    let early = whys(&files(dir.path(), "early"));
    assert!(early.contains("valid from 2120-01-01T00:00:00Z"), "{early}");
    let mismatched = whys(&TlsFiles { key: other.key, ..good.clone() });
    assert!(mismatched.contains("it is not the key of"), "{mismatched}");
    let swapped = whys(&TlsFiles { cert: good.key.clone(), ..good.clone() });
    assert!(swapped.contains("it holds no certificate"), "{swapped}");
    let no_key = dir.path().join("no.key");
    std::fs::copy(certificate("server.pem"), &no_key).unwrap();
    std::fs::set_permissions(&no_key, PermissionsExt::from_mode(0o600)).unwrap();
    let no_key = whys(&TlsFiles { key: no_key, ..good.clone() });
    assert!(no_key.contains("it holds no private key"), "{no_key}");
    let nowhere = whys(&TlsFiles { cert: "/nowhere".into(), ..good.clone() });
    assert!(nowhere.contains("No such file"), "{nowhere}");
    let device = whys(&TlsFiles { cert: "/dev/zero".into(), ..good.clone() });
    assert!(device.contains("no regular file"), "{device}");
    std::fs::set_permissions(&good.key, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(whys(&good).contains("mode 0644"));
    std::fs::set_permissions(&good.key, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(server_config(&good).is_ok(), "a group may share a key");
    let settings = HttpSettings { tls: Some(files(dir.path(), "expired")), ..settings() };
    assert_eq!(HttpServer::listen(settings, site).unwrap_err().code, Code::TlsUnusable);
    assert!(client_config(&TlsRoots::File(good.key)).is_err());
}

#[test]
fn clients_without_the_right_certificate_are_not_heard() {
    let dir = tempfile::tempdir().unwrap();
    let tls = TlsFiles { client_ca: Some(certificate("ca.pem")), ..files(dir.path(), "server") };
    let server = start(HttpSettings { tls: Some(tls), ..settings() });
    let curl = |client: Option<&str>| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "--cacert"])
            .arg(certificate("ca.pem"));
        if let Some(name) = client {
            curl.arg("--cert").arg(certificate(&format!("{name}.pem")));
            curl.arg("--key").arg(certificate(&format!("{name}.key")));
        }
        let out = curl.arg(format!("https://127.0.0.1:{}/", port(&server).port())).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert_eq!(curl(Some("client")), "200");
    assert_eq!(curl(None), "000");
    assert_eq!(curl(Some("stranger")), "000");
    assert_eq!(curl(Some("server")), "000", "a server's certificate is no client's");
    assert_eq!(curl(Some("client")), "200", "others are not disturbed");
}

#[test]
fn plain_text_to_a_port_with_tls_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), "server");
    let answer = said(&server, &get("/", ""));
    assert!(status(&answer) == 400 && answer.ends_with("this port speaks TLS: https://\n"), "{answer:?}");
    for garbage in [&b"\x00\x01\x02"[..], b"\x16\x03\x01\xff\xff", b"\x16", b""] {
        let answer = said(&server, garbage);
        assert_eq!(status(&answer), 0, "{answer:?}");
    }
    let silent = connect(&server);
    assert_eq!(call(&server, "127.0.0.1", "ca.pem"), Ok(200));
    drop(silent);
}

#[test]
fn tls_and_a_token_open_the_machine_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let address = "0.0.0.0:0".parse().unwrap();
    let half = HttpSettings { address, tls: Some(files(dir.path(), "server")), ..settings() };
    assert_eq!(HttpServer::listen(half.clone(), site).unwrap_err().code, Code::ListenUnprotected);
    let server = start(HttpSettings { token: Some(token(dir.path())), ..half });
    let url = format!("https://127.0.0.1:{}/", port(&server).port());
    let call = |token: &str| {
        let mut call = HttpCall::new(Method::GET, url.clone());
        call.roots = TlsRoots::File(certificate("ca.pem"));
        call.headers = vec![("Authorization".to_owned(), format!("Bearer {token}"))];
        call_blocking(call).unwrap().status
    };
    assert_eq!(call(crate::harness::TOKEN), 200);
    assert_eq!(call("0123456789abcdef0124"), 401);
}
