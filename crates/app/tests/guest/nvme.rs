//! The guest's own NVMe/TCP host on an array that wattle serves at two addresses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::judge::Guest;
use crate::wattle;

/// A RAID 5 is written over two paths, of which one is cut, and then the server is killed and
/// started again: the guest goes on, and reads what it wrote.
pub fn two_paths(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let members: Vec<_> = (0..3).map(|member| scratch.path().join(format!("{member}.img"))).collect();
    for member in &members {
        std::fs::File::create(member).and_then(|file| file.set_len(80 << 20)).expect("scratch space");
    }
    wattle(&["create", "--level", "5", "--chunk", "64K", "paths"], &members);
    let ports = [free_port(), free_port()];
    let server = Arc::new(Mutex::new(Served::start(scratch.path(), &members, ports)));
    let mut guarded = Served::guarded(scratch.path());
    let way = server.lock().expect("no test panicked").way.clone();
    let nqn = way.rsplit_once('/').expect("a way names the subsystem").1.to_owned();

    let cable = Arc::new(Cable::default());
    let (second, control) = (listen(), listen());
    let cases = scratch.path().join("nvme.txt");
    let (first, second_port) = (ports[0], port(&second));
    let open = format!("{nqn} {first} {second_port} {}\n", port(&control));
    let (address, guarded_nqn) = guarded.way.rsplit_once('/').expect("a way names the subsystem");
    let guarded_port = address.rsplit_once(':').expect("and its port").1;
    let secrets = format!("{SECRET} {WRONG} {OF_CONTROLLER}");
    let lines = format!("{open}{guarded_nqn} {guarded_port} {secrets} {OTHER_HOST_ID}\n");
    std::fs::write(&cases, lines).expect("scratch space");
    let (far, plugged) = (ports[1], cable.clone());
    aside(move || plugged.carry(&second, far));
    let (dir, running) = (scratch.path().to_owned(), server.clone());
    let served = members.clone();
    obey(control, move |word| match word {
        "cut" => cable.cut(),
        "restart" => {
            let mut server = running.lock().expect("no test panicked");
            server.kill();
            *server = Served::start(&dir, &served, ports);
        }
        other => panic!("no order: {other}"),
    });

    let results = guest.run_with("nvme-host", &[cases], &[], &[("GUEST_NET", "1")]);
    assert_eq!(results.values().filter(|facts| facts["ok"] == "yes").count(), 5, "{results:?}");
    guarded.stop();
    server.lock().expect("no test panicked").stop();
    wattle(&["scan"], &members);
}

/// Two hosts reserve a mirror, preempt each other, and find what is to outlast a killed server.
pub fn reservations(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let members: Vec<_> = (0..2).map(|member| scratch.path().join(format!("{member}.img"))).collect();
    for member in &members {
        std::fs::File::create(member).and_then(|file| file.set_len(64 << 20)).expect("scratch space");
    }
    wattle(&["create", "--level", "1", "shared"], &members);
    let ports = [free_port(), free_port()];
    let server = Arc::new(Mutex::new(Served::start(scratch.path(), &members, ports)));
    let way = server.lock().expect("no test panicked").way.clone();
    let nqn = way.rsplit_once('/').expect("a way names the subsystem").1.to_owned();
    let control = listen();
    let cases = scratch.path().join("reservations.txt");
    std::fs::write(&cases, format!("{nqn} {} {}\n", ports[0], port(&control))).expect("scratch space");
    let (dir, served, running) = (scratch.path().to_owned(), members.clone(), server.clone());
    obey(control, move |word| {
        assert_eq!(word, "restart");
        let mut server = running.lock().expect("no test panicked");
        server.kill();
        *server = Served::start(&dir, &served, ports);
    });
    let results = guest.run_with("nvme-reservations", &[cases], &[], &[("GUEST_NET", "1")]);
    assert_eq!(results.values().filter(|facts| facts["ok"] == "yes").count(), 5, "{results:?}");
    server.lock().expect("no test panicked").stop();
}

/// Does what the guest orders at `control`, a line at a time, until the test ends.
fn obey(control: TcpListener, mut order: impl FnMut(&str) + Send + 'static) {
    aside(move || {
        for mut connection in control.incoming().map_while(Result::ok) {
            let mut word = String::new();
            let read = BufReader::new(&connection).read_line(&mut word);
            read.expect("the guest says what is to be done");
            order(word.trim());
            connection.write_all(b"done\n").expect("the guest waits");
        }
    });
}

/// The server at two addresses.
struct Served {
    child: Child,
    way: String,
}

/// How the guest calls itself.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
/// Another host, which has the same secret and none of the controller.
const OTHER_HOST_ID: &str = "11111111-2222-3333-4444-666666666666";
/// As `nvme gen-dhchap-key` makes them: of SHA-256, and of another 32 bytes.
const SECRET: &str = "DHHC-1:01:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
const WRONG: &str = "DHHC-1:01:CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgnCjZ2:";
const OF_CONTROLLER: &str = "DHHC-1:01:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:";

impl Served {
    /// An array in memory, for the hosts that have the secret.
    fn guarded(dir: &Path) -> Self {
        let secrets = dir.join("secrets");
        let other = format!("nqn.2014-08.org.nvmexpress:uuid:{OTHER_HOST_ID} {SECRET}");
        let lines = format!("{HOST} {SECRET} {OF_CONTROLLER}\n{other}\n");
        std::fs::write(&secrets, lines).expect("scratch space");
        std::fs::set_permissions(&secrets, PermissionsExt::from_mode(0o600)).expect("it is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
        command.args(["serve", "mem:8M", "mem:8M", "--level", "1", "--export", "nvme-tcp=127.0.0.1:0"]);
        command.arg("--nvme-secrets").arg(secrets).arg("--runtime-dir").arg(dir.join("guarded"));
        Self::ready(command)
    }

    fn start(dir: &Path, members: &[PathBuf], ports: [u16; 2]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
        command.args(["serve", "--runtime-dir"]).arg(dir.join("run")).args(members);
        command.arg("--state-dir").arg(dir.join("state"));
        for port in ports {
            command.args(["--export", &format!("nvme-tcp=127.0.0.1:{port}")]);
        }
        Self::ready(command)
    }

    fn ready(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("wattle runs");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let ready = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let ways = line.strip_prefix("wattle: ready: ")?;
            ways.split_whitespace().next().map(str::to_owned)
        });
        let way = ready.expect("the server is ready");
        aside(move || lines.for_each(drop));
        Self { child, way }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn stop(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
        assert!(self.child.wait().expect("it ends").success(), "a server that is asked to end ends well");
    }
}

/// What carries the second path, until it is cut.
#[derive(Default)]
struct Cable {
    ends: Mutex<Vec<TcpStream>>,
    is_cut: std::sync::atomic::AtomicBool,
}

impl Cable {
    fn carry(self: Arc<Self>, listener: &TcpListener, far: u16) {
        for near in listener.incoming().map_while(Result::ok) {
            if self.is_cut.load(std::sync::atomic::Ordering::SeqCst) {
                continue;
            }
            // A connection that comes while the server is away is one that it refuses.
            let Ok(far) = TcpStream::connect(("127.0.0.1", far)) else { continue };
            let clone = |stream: &TcpStream| stream.try_clone().expect("descriptors are left");
            let mut ends = self.ends.lock().expect("no test panicked");
            ends.extend([clone(&near), clone(&far)]);
            for (from, to) in [(clone(&near), clone(&far)), (far, near)] {
                aside(move || pump(from, to));
            }
        }
    }

    fn cut(&self) {
        self.is_cut.store(true, std::sync::atomic::Ordering::SeqCst);
        for end in self.ends.lock().expect("no test panicked").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Something that goes on until the test ends.
#[allow(clippy::disallowed_methods, reason = "a test has threads of its own")]
fn aside(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port is free")
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("bound").port()
}

fn free_port() -> u16 {
    port(&listen())
}
