//! Members across a network: exports of nbdkit and qemu-nbd, looked at, copied, served, and gone
//! for a while.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Room, Serve, require, run};
use crate::nbd::Client;

const MIB: usize = 1 << 20;

/// A server of another program, killed when the test is done with it.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    line: Vec<String>,
}

impl Server {
    /// `SOCKET` in the command line stands for the socket.
    pub(crate) fn start(room: &Room, name: &str, line: &[&str]) -> Self {
        let socket = room.path(name);
        let place = socket.to_str().unwrap();
        let line: Vec<_> =
            line.iter().map(|word| if *word == "SOCKET" { place } else { word }.to_owned()).collect();
        let child = spawn(&line, &socket);
        Self { child, socket, line }
    }

    fn of_file(room: &Room, name: &str, path: &str) -> Self {
        Self::start(room, name, &["nbdkit", "--foreground", "--unix", "SOCKET", "file", path])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::remove_file(&self.socket).unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.line, &self.socket);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(line: &[String], socket: &Path) -> Child {
    let mut command = Command::new(&line[0]);
    let child = command.args(&line[1..]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "{line:?} does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn pattern(len: usize) -> Vec<u8> {
    let word = |ix: u64| ix.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (1..=len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

#[test]
fn an_array_over_servers_of_which_one_is_away_for_a_while() {
    if !require("nbdkit") || !require("qemu-nbd") {
        return;
    }
    let room = Room::new();
    let files = room.array("5", 4);
    let mut servers: Vec<_> = files[..3]
        .iter()
        .enumerate()
        .map(|(ix, file)| Server::of_file(&room, &format!("nbd{ix}"), file))
        .collect();
    let line = ["qemu-nbd", "--persistent", "--shared=4", "--format=raw", "--socket", "SOCKET", &files[3]];
    servers.push(Server::start(&room, "nbd3", &line));
    let uris: Vec<_> = servers.iter().map(Server::uri).collect();

    let scan = run(["scan", "--json"].map(str::to_owned).into_iter().chain(uris.clone())).ok().json();
    assert_eq!((&scan["arrays"][0]["name"], &scan["arrays"][0]["health"]), (&"data".into(), &"good".into()));
    run(["scan".to_owned(), uris[0].clone(), uris[0].clone()]).failed(2, "WTL-0004", &[]);
    // Nor by another name, blank or not.
    std::os::unix::fs::symlink(room.path("nbd0"), room.path("other")).unwrap();
    let other = format!("nbd+unix:///?socket={}", room.name("other"));
    run(["scan".to_owned(), uris[0].clone(), other.clone()]).failed(2, "WTL-0004", &[&other]);

    let serve = Serve::start(&room, &[], &uris);
    let mut client = Client::connect(&serve.uri).unwrap();
    let data = pattern(8 * MIB);
    client.write(0, &data[..4 * MIB]).unwrap();
    servers[1].kill();
    // nbdkit ends with the thread that started it, so the other one writes.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write(4 * MIB as u64, &data[4 * MIB..]).unwrap();
            client.flush().unwrap();
        });
        std::thread::sleep(Duration::from_millis(500));
        servers[1].start_again();
    });
    assert_eq!(serve.array()["health"], "good");
    drop(client);
    serve.stop();
    let cat = |members: &[String]| run(["cat".to_owned()].into_iter().chain(members.to_vec())).ok().stdout;
    let far = cat(&uris);
    // qemu-nbd has its file locked.
    drop(servers);
    let near = cat(&files);
    assert!(near[..8 * MIB] == data && near == far);
    for without in 0..4 {
        let rest = files.iter().enumerate().filter(|(ix, _)| *ix != without).map(|(_, file)| file.clone());
        assert!(cat(&rest.collect::<Vec<_>>()) == near, "without {without}");
    }
}

/// Exports that cannot be written are tried all the same: what is written stays here.
#[test]
fn an_overlay_over_servers_that_are_only_read() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("5", 3);
    let before = room.contents();
    let start = |(ix, file): (usize, &String)| {
        let line = ["nbdkit", "--foreground", "--readonly", "--unix", "SOCKET", "file", file];
        Server::start(&room, &format!("nbd{ix}"), &line)
    };
    let servers: Vec<_> = files.iter().enumerate().map(start).collect();
    let uris: Vec<_> = servers.iter().map(Server::uri).collect();
    let dir = room.name("try");
    let overlay = ["--overlay", dir.as_str()];

    Serve::try_start(&room, &[], &uris).map(|_| ()).unwrap_err().failed(1, "WTL-0025", &["read-only"]);
    let serve = Serve::start(&room, &overlay, &uris);
    let mut client = Client::connect(&serve.uri).unwrap();
    let data = pattern(4 * MIB);
    client.write(MIB as u64, &data).unwrap();
    client.flush().unwrap();
    drop(client);
    serve.kill();
    let cat = |more: &[&str]| {
        run(["cat"].into_iter().chain(uris.iter().map(String::as_str)).chain(more.iter().copied()))
            .ok()
            .stdout
    };
    assert!(cat(&overlay)[MIB..][..4 * MIB] == data);
    assert!(cat(&[]).iter().all(|&byte| byte == 0));
    let after = room.contents();
    assert!(files.iter().all(|file| before[Path::new(file)] == after[Path::new(file)]), "a member changed");
}

/// A drive with bad sectors: everything else comes out, and the map says which they are.
#[test]
fn a_copy_of_a_drive_with_bad_sectors() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let bytes = pattern(8 * MIB);
    let drive = room.name("drive");
    fs::write(&drive, &bytes).unwrap();
    let bad = [(MIB, 512), (3 * MIB + 4096, 1024), (3 * MIB + 65536, 512), (8 * MIB - 512, 512)];
    let mut map = "0x0 + 1\n".to_owned();
    let mut at = 0;
    for (start, len) in bad {
        map.push_str(&format!("{at:#x} {:#x} +\n{start:#x} {len:#x} -\n", start - at));
        at = start + len;
    }
    fs::write(room.path("bad"), map).unwrap();
    let mapfile = format!("ddrescue-mapfile={}", room.name("bad"));
    let line = ["nbdkit", "--foreground", "--unix", "SOCKET", "--filter=ddrescue", "file", &drive, &mapfile];
    let server = Server::start(&room, "nbd", &line);
    let to = room.name("copy");
    let said = run(["copy", "--raw", &server.uri(), "--to", &to, "--json"]);
    let report = said.json();
    said.failed(1, "WTL-0160", &["2.5 KiB", "512 B at byte 1048576"]);
    let missing = report["missing"].as_array().unwrap().iter().map(|area| {
        assert_eq!(area["status"], "-");
        (area["offset_bytes"].as_u64().unwrap() as usize, area["len_bytes"].as_u64().unwrap() as usize)
    });
    assert_eq!(missing.collect::<Vec<_>>(), bad);
    let mut expected = bytes.clone();
    bad.iter().for_each(|&(start, len)| expected[start..start + len].fill(0));
    assert!(fs::read(&to).unwrap() == expected);

    // The drive thinks better of it: what was bad is tried again, and nothing else.
    drop(server);
    fs::remove_file(room.path("nbd")).unwrap();
    let server = Server::of_file(&room, "nbd", &drive);
    run(["copy", "--raw", &server.uri(), "--to", &to]).failed(1, "WTL-0160", &[]);
    let file = fs::File::options().write(true).open(&to).unwrap();
    file.write_all_at(&[0; 8], 2 * MIB as u64 + 99).unwrap();
    run(["copy", "--raw", &server.uri(), "--to", &to, "--retries", "1"]).failed(3, "WTL-0162", &[]);
    file.write_all_at(&bytes[2 * MIB + 99..2 * MIB + 107], 2 * MIB as u64 + 99).unwrap();
    run(["copy", "--raw", &server.uri(), "--to", &to, "--retries", "1"]).ok();
    assert!(fs::read(&to).unwrap() == bytes);
}

#[test]
fn servers_that_cannot_be_had() {
    let room = Room::new();
    let nobody = format!("nbd+unix:///?socket={}", room.name("nobody"));
    for (uri, status, code) in [
        ("nbds://nas/x?tls-psk-file=x", 2, "WTL-0003"),
        ("nbds://127.0.0.1:1/x?tls-verify-peer=no", 1, "WTL-0027"),
        (&nobody, 1, "WTL-0027"),
        ("nbd+unix:///x", 2, "WTL-0003"),
        ("nbd://127.0.0.1:1/x", 1, "WTL-0027"),
    ] {
        run(["cat", uri]).failed(status, code, &[uri]);
    }
}
