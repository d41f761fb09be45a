//! NBD through TLS over TCP: real clients of a server, members behind TLS, and what listens beyond
//! this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Room, Said, Serve, require, run, tool};
use crate::nbd::Client;

const MIB: usize = 1 << 20;

/// A directory of the room with an authority, and certificates and keys of these names.
fn certificates(room: &Room, dir: &str, ca: &str, server: Option<&str>, client: Option<&str>) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates");
    let to = room.path(dir);
    fs::create_dir_all(&to).unwrap();
    let put = |name: &str, source: &str| {
        fs::copy(from.join(source), to.join(name)).unwrap();
        fs::set_permissions(to.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    put("ca-cert.pem", ca);
    for (side, name) in [("server", server), ("client", client)] {
        let Some(name) = name else { continue };
        put(&format!("{side}-cert.pem"), &format!("{name}.pem"));
        put(&format!("{side}-key.pem"), &format!("{name}.key"));
    }
    room.name(dir)
}

fn whole(room: &Room) -> String {
    certificates(room, "tls", "ca.pem", Some("server"), Some("client"))
}

fn port(uri: &str) -> &str {
    uri.rsplit_once(':').unwrap().1.split('/').next().unwrap()
}

fn noise(len: usize) -> Vec<u8> {
    let word = |ix: u64| ix.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).to_le_bytes();
    (1..=len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

/// How a tool ends, and what it says.
fn ends(name: &str, args: &[&str]) -> (bool, String) {
    let output = Command::new(name).args(args).stdin(Stdio::null()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_hundred_megabytes_there_and_back_with_libnbd_and_qemu() {
    if !require("nbdcopy") || !require("qemu-img") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let members = ["mem:40M", "mem:40M", "mem:40M", "mem:40M"];
    let args = ["--level", "5", "--export", "nbd=tcp:127.0.0.1:0", "--tls-certificates", &dir];
    let serve = Serve::start(&room, &args, &members);
    assert!(serve.uri.starts_with("nbds://127.0.0.1:"), "{}", serve.uri);
    let uri = format!("{}?tls-certificates={dir}", serve.uri);
    let size: usize = tool("nbdinfo", ["--size", &uri]).trim().parse().unwrap();
    assert!(size > 110 * MIB, "{size}");
    let (there, back) = (room.name("there"), room.name("back"));
    let data = noise(size);
    fs::write(&there, &data).unwrap();
    tool("nbdcopy", ["--flush", &there, &uri]);
    tool("nbdcopy", ["--connections=4", &uri, &back]);
    assert!(fs::read(&back).unwrap() == data);

    let credentials = |dir: &str| format!("tls-creds-x509,id=t,endpoint=client,dir={dir}");
    let place = format!("driver=nbd,server.type=inet,server.host=127.0.0.1,server.port={}", port(&serve.uri));
    let secured = format!("{place},tls-creds=t");
    let compared = ["compare", "--object", &credentials(&dir), "--image-opts", &secured];
    let raw = format!("driver=raw,file.driver=file,file.filename={there}");
    let (ok, said) = ends("qemu-img", &[&compared[..], &[&raw]].concat());
    assert!(ok, "{said}");
    // In clear; of a stranger; and to a server that another authority would have to vouch for.
    let (ok, said) = ends("qemu-img", &["info", "--image-opts", &place]);
    assert!(!ok && said.contains("TLS"), "{said}");
    let stranger = certificates(&room, "stranger", "ca.pem", None, Some("stranger"));
    assert!(!ends("nbdinfo", &[&format!("{}?tls-certificates={stranger}", serve.uri)]).0);
    let other = certificates(&room, "other", "other-ca.pem", None, Some("client"));
    assert!(!ends("nbdinfo", &[&format!("{}?tls-certificates={other}", serve.uri)]).0);
    let mut serve = serve;
    serve.signal("TERM");
    assert_eq!(serve.wait(), 0);
    let said = serve.rest();
    assert!(said.contains("a client was refused in its TLS handshake: "), "{said}");
}

/// A client whose certificate was good once: it is told apart from a stranger, and no other client
/// notices.
#[test]
fn a_client_whose_certificate_has_expired_is_refused_and_others_go_on() {
    if !require("nbdinfo") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let late = certificates(&room, "late", "ca.pem", None, Some("late-client"));
    // The server trusts both authorities.
    let authority = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/certificates/late-ca.pem");
    let both = [fs::read(room.path("tls/ca-cert.pem")).unwrap(), fs::read(authority).unwrap()].concat();
    fs::write(room.path("tls/ca-cert.pem"), both).unwrap();
    let args = ["--level", "linear", "--export", "nbd=tcp:127.0.0.1:0", "--tls-certificates", &dir];
    let mut serve = Serve::start(&room, &args, &["mem:20M"]);
    let uri = |dir: &str| format!("{}?tls-certificates={dir}", serve.uri);
    // One that was connected before.
    let (near, file) = (Room::new(), room.blank(1, 20 << 20).remove(0));
    let member = uri(&dir);
    run(["create", "data", "--level", "1", "--assume-clean", &file, &member]).ok();
    let mirror = Serve::start(&near, &[], &[file.as_str(), &member]);
    let mut client = Client::connect(&mirror.uri).unwrap();
    client.write(0, &noise(MIB)).unwrap();
    let (ok, said) = ends("nbdinfo", &[&uri(&late)]);
    assert!(!ok, "{said}");
    client.write(MIB as u64, &noise(MIB)).unwrap();
    client.flush().unwrap();
    assert_eq!(mirror.array()["health"], "good");
    tool("nbdinfo", [&uri(&dir)]);
    // This side looks at its own files first.
    run(["examine", &uri(&late)]).failed(1, "WTL-0222", &["client-cert.pem", "it expired at 2025-01-01"]);
    drop(client);
    mirror.stop();
    serve.signal("TERM");
    assert_eq!(serve.wait(), 0);
    let said = serve.rest();
    let why = "a client was refused in its TLS handshake: the peer's certificate has expired";
    assert!(said.contains(why), "{said}");
}

/// QEMU's own server, whose TLS is GnuTLS as nbdkit's, but not its protocol.
#[test]
fn a_member_of_qemus_server_is_behind_tls() {
    if !require("qemu-nbd") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let files = room.array("1", 2);
    let (args, port) = qemu(&dir, &files[1]);
    let mut server = Started::new("qemu-nbd", &args, port);
    let member = format!("nbds://127.0.0.1:{port}/?tls-certificates={dir}");
    let serve = Serve::start(&room, &[], &[files[0].as_str(), &member]);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=1s"]).ok();
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(0, &noise(3 * MIB)).unwrap();
    client.flush().unwrap();
    // Killed, it is away, and comes back by itself.
    server.kill();
    client.write(MIB as u64, &noise(3 * MIB)).unwrap();
    serve.wait_until("away", |array| array["members"][1]["remote"]["state"] == "away");
    server = Started::new("qemu-nbd", &args, port);
    serve.wait_until("good again", |array| array["health"] == "good" && array["sync"].is_null());
    drop(client);
    // Without a certificate, and in clear, it lets in no one.
    let bare = certificates(&room, "bare", "ca.pem", None, None);
    let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates={bare}");
    run(["examine", &uri]).failed(1, "WTL-0027", &["certificate"]);
    run(["examine", &format!("nbd://127.0.0.1:{port}/")]).failed(1, "WTL-0027", &["requires TLS"]);
    serve.stop();
    drop(server);
    let alone = |file: &str| run(["cat", file]).ok().stdout;
    assert!(alone(&files[0]) == alone(&files[1]), "the copies differ");
}

/// The arguments of a qemu-nbd that asks clients for certificates, and its port.
fn qemu(dir: &str, file: &str) -> (Vec<String>, u16) {
    let port = free_port();
    let credentials = format!("tls-creds-x509,id=t,endpoint=server,dir={dir},verify-peer=yes");
    let listens = ["--bind=127.0.0.1".to_owned(), format!("--port={port}")];
    let own = ["--persistent", "--shared=8", "--format=raw", "--tls-creds=t", "--object"].map(str::to_owned);
    let args = own.into_iter().chain([credentials]).chain(listens).chain([file.to_owned()]);
    (args.collect(), port)
}

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// A server that answers at a port, killed when the test is done with it.
struct Started(Child);

impl Started {
    fn new(program: &str, args: &[String], port: u16) -> Self {
        let child = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let started = Self(child.unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{program} does not start: {args:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nbdkit with TLS at a port of its own.
struct Kit {
    server: Started,
    port: u16,
    line: Vec<String>,
}

impl Kit {
    fn start(dir: &str, args: &[&str]) -> Self {
        let port = free_port();
        let own = ["--foreground", "--ipaddr=127.0.0.1", "--tls=require", "--tls-verify-peer"];
        let mut line: Vec<String> = own.map(str::to_owned).into();
        line.extend([format!("--port={port}"), format!("--tls-certificates={dir}")]);
        line.extend(args.iter().map(|arg| (*arg).to_owned()));
        Self { server: Started::new("nbdkit", &line, port), port, line }
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn start_again(&mut self) {
        self.server = Started::new("nbdkit", &self.line, self.port);
    }

    fn uri(&self, dir: &str) -> String {
        format!("nbds://127.0.0.1:{}/?tls-certificates={dir}", self.port)
    }
}

#[test]
fn a_member_behind_tls_is_killed_and_comes_back() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let files = room.array("1", 2);
    let mut kit = Kit::start(&dir, &["file", &files[1]]);
    let members = [files[0].clone(), kit.uri(&dir)];
    let serve = Serve::start(&room, &[], &members);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=1s"]).ok();
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(0, &noise(2 * MIB)).unwrap();
    client.flush().unwrap();
    kit.kill();
    client.write(MIB as u64, &noise(3 * MIB)).unwrap();
    serve.wait_until("away", |array| array["members"][1]["remote"]["state"] == "away");
    kit.start_again();
    serve.wait_until("good again", |array| array["health"] == "good" && array["sync"].is_null());
    client.write(6 * MIB as u64, &noise(MIB)).unwrap();
    client.flush().unwrap();
    drop(client);
    serve.stop();
    drop(kit);
    let alone = |file: &str| run(["cat", file]).ok().stdout;
    assert!(alone(&files[0]) == alone(&files[1]), "the copies differ");
}

#[test]
fn a_member_of_a_wattle_server_is_one_drive_however_it_is_written() {
    let (near, far) = (Room::new(), Room::new());
    let dir = whole(&far);
    let args = ["--level", "linear", "--export", "nbd=tcp:127.0.0.1:0", "--tls-certificates", &dir];
    let server = Serve::start(&far, &args, &["mem:20M"]);
    let member = format!("{}?tls-certificates={dir}", server.uri);
    let file = near.blank(1, 20 << 20).remove(0);
    run(["create", "data", "--level", "1", "--assume-clean", &file, &member]).ok();
    let serve = Serve::start(&near, &[], &[file.as_str(), &member]);
    let mut client = Client::connect(&serve.uri).unwrap();
    let data = noise(8 * MIB);
    client.write(0, &data).unwrap();
    client.flush().unwrap();
    assert!(client.read(0, data.len()).unwrap() == data);
    drop(client);
    serve.stop();
    run(["cat", &member]).ok();
    run(["scan", &member, &member.replacen("127.0.0.1", "localhost", 1)]).failed(2, "WTL-0003", &[]);
    // What was asked for without TLS is not given the connection with it, nor the other way round.
    let plain = server.uri.replacen("nbds:", "nbd:", 1);
    run(["scan", &member, &plain]).failed(2, "WTL-0003", &["other settings of TLS"]);
    server.stop();
}

#[test]
fn the_next_path_is_behind_tls_too() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let files = room.array("1", 2);
    let mut kits = [(); 2].map(|()| Kit::start(&dir, &["file", &files[1]]));
    let member = format!("{}|{}", kits[0].uri(&dir), kits[1].uri(&dir));
    let serve = Serve::start(&room, &[], &[files[0].as_str(), &member]);
    serve.wait_until_good();
    let path =
        |array: &serde_json::Value, ix: usize| array["members"][1]["remote"]["paths"][ix]["state"].clone();
    serve.wait_until("by the first", |array| path(array, 0) == "in_use");
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(0, &noise(2 * MIB)).unwrap();
    kits[0].kill();
    client.write(MIB as u64, &noise(2 * MIB)).unwrap();
    client.flush().unwrap();
    let array = serve.wait_until("by the second", |array| path(array, 1) == "in_use");
    assert_eq!(array["health"], "good", "{array:#}");
    drop(client);
    serve.stop();
    drop(kits);
    let alone = |file: &str| run(["cat", file]).ok().stdout;
    assert!(alone(&files[0]) == alone(&files[1]), "the copies differ");
}

#[test]
fn what_is_wrong_with_a_server_is_said_with_what_to_do() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let kit = Kit::start(&dir, &["memory", "1M"]);
    let with = |more: &str| run(["examine", &format!("{}{more}", kit.uri(&dir))]);
    // Nothing is on it; but it is reached.
    assert!(!with("").stderr.contains("TLS"));
    with("&tls-hostname=nas.example").failed(1, "WTL-0027", &["another host name", "tls-hostname=NAME"]);
    let at = |dir: &str| run(["examine", &kit.uri(dir)]);
    let other = certificates(&room, "other", "other-ca.pem", None, Some("client"));
    at(&other).failed(1, "WTL-0027", &["not signed by an authority", "ca-cert.pem"]);
    let bare = certificates(&room, "bare", "ca.pem", None, None);
    at(&bare).failed(1, "WTL-0027", &["client certificate", "client-cert.pem"]);
    at(&room.name("nowhere")).failed(1, "WTL-0222", &["ca-cert.pem"]);
    let plain = format!("nbd://127.0.0.1:{}/", kit.port);
    run(["examine", &plain]).failed(1, "WTL-0027", &["requires TLS", "nbds://"]);
    for (name, words) in [("expired", "has expired"), ("early", "not valid yet")] {
        let of = certificates(&room, name, "ca.pem", Some(name), None);
        let kit = Kit::start(&of, &["memory", "1M"]);
        run(["examine", &kit.uri(&dir)]).failed(1, "WTL-0027", &[words]);
    }
    let clear = ["nbdkit", "--foreground", "--unix", "SOCKET", "memory", "1M"];
    let clear = crate::remote::Server::start(&room, "clear", &clear);
    let asked = format!("{}&tls-certificates={dir}", clear.uri().replacen("nbd+", "nbds+", 1));
    run(["examine", &asked]).failed(1, "WTL-0027", &["speaks no TLS", "--tls-certificates"]);
}

#[test]
fn what_listens_beyond_this_machine_is_protected_or_asked_for() {
    let room = Room::new();
    let dir = whole(&room);
    let start = |args: &[&str]| -> Result<Serve, Said> {
        Serve::try_start(&room, &[&["--level", "linear"][..], args].concat(), &["mem:20M"])
    };
    let refused = |args: &[&str], code: &str, words: &[&str]| {
        let said = start(args).err().expect("it is refused");
        said.failed(if code == "WTL-0220" { 3 } else { said_status(code) }, code, words);
    };
    let open = ["--export", "nbd=tcp:0.0.0.0:0"];
    refused(&open, "WTL-0220", &["nbd=tcp:0.0.0.0:0", "--tls-certificates", "--insecure"]);
    refused(&["--export", "nbd=tcp:[::]:0"], "WTL-0220", &["--insecure"]);
    let any = ["--tls-certificates", &dir, "--tls-any-client"];
    refused(&[&open[..], &any].concat(), "WTL-0220", &["without certificates of clients"]);
    let serve = start(&[&open[..], &["--insecure"]].concat()).unwrap();
    assert!(serve.said.contains("open to every machine that reaches it (--insecure)"), "{}", serve.said);
    serve.stop();
    let serve = start(&[&open[..], &any[..2]].concat()).unwrap();
    assert!(!serve.said.contains("insecure"), "{}", serve.said);
    serve.stop();
    let serve = start(&[&["--export", "nbd=tcp:localhost:0"][..], &any].concat()).unwrap();
    assert!(serve.uri.starts_with("nbds://localhost:"), "{}", serve.uri);
    serve.stop();
    // Not left unused, and not used half.
    refused(&["--export", "nbd=unix:/x", any[0], any[1]], "WTL-0001", &["nothing that speaks TLS"]);
    let empty = room.name("empty");
    fs::create_dir(&empty).unwrap();
    let local = ["--export", "nbd=tcp:127.0.0.1:0", "--tls-certificates", &empty];
    refused(&local, "WTL-0222", &["ca-cert.pem", "--tls-any-client"]);
    fs::set_permissions(room.path("tls/server-key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(&[&local[..3], &[&dir]].concat(), "WTL-0222", &["server-key.pem", "chmod 600"]);
}

fn said_status(code: &str) -> i32 {
    if code == "WTL-0001" { 2 } else { 1 }
}

#[test]
fn a_stack_of_a_service_is_served_through_tls() {
    if !require("nbdinfo") {
        return;
    }
    let room = Room::new();
    let dir = whole(&room);
    let members = room.array("1", 2);
    let stack = |more: &str| {
        let text = format!(
            "members = ['{}', '{}']\nexports = ['nbd=tcp:0.0.0.0:0']\n{more}",
            members[0], members[1]
        );
        fs::create_dir_all(room.path("etc")).unwrap();
        fs::write(room.path("etc/data.toml"), text).unwrap();
    };
    let config = room.name("etc");
    let up = || {
        let mut up = crate::harness::wattle();
        up.args(["up", "data", "--config", &config, "--runtime-dir", &room.name("run")]);
        up.env("WATTLE_STATE_DIR", room.path("state"));
        up
    };
    stack("");
    crate::harness::said(up().output().unwrap()).failed(3, "WTL-0220", &["data.toml:2: ", "insecure = true"]);
    stack(&format!("tls-certificates = '{dir}'\n"));
    let mut child = up().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let way = loop {
        let status = run(["status", "--json", "--runtime-dir", &room.name("run")]);
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        if let Some(at) = text.find("nbds://0.0.0.0:") {
            break text[at..].split('"').next().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let size =
        tool("nbdinfo", ["--size", &format!("nbds://127.0.0.1:{}/?tls-certificates={dir}", port(&way))]);
    assert!(size.trim().parse::<u64>().unwrap() > 1 << 20);
    child.kill().unwrap();
    child.wait().unwrap();
}
