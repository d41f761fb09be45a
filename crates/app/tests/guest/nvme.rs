//! The guest's own NVMe/TCP host on an array that wattle serves at two addresses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
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
    let way = server.lock().expect("no test panicked").way.clone();
    let nqn = way.rsplit_once('/').expect("a way names the subsystem").1.to_owned();

    let cable = Arc::new(Cable::default());
    let (second, control) = (listen(), listen());
    let cases = scratch.path().join("nvme.txt");
    let line = format!("{nqn} {} {} {}\n", ports[0], port(&second), port(&control));
    std::fs::write(&cases, line).expect("scratch space");
    let (far, plugged) = (ports[1], cable.clone());
    aside(move || plugged.carry(&second, far));
    let (dir, running) = (scratch.path().to_owned(), server.clone());
    let served = members.clone();
    aside(move || {
        for mut order in control.incoming().map_while(Result::ok) {
            let mut word = String::new();
            let read = BufReader::new(&order).read_line(&mut word);
            read.expect("the guest says what is to be done");
            match word.trim() {
                "cut" => cable.cut(),
                "restart" => {
                    let mut server = running.lock().expect("no test panicked");
                    server.kill();
                    *server = Served::start(&dir, &served, ports);
                }
                other => panic!("no order: {other}"),
            }
            order.write_all(b"done\n").expect("the guest waits");
        }
    });

    let results = guest.run_with("nvme-host", &[cases], &[], &[("GUEST_NET", "1")]);
    assert_eq!(results.values().filter(|facts| facts["ok"] == "yes").count(), 3, "{results:?}");
    server.lock().expect("no test panicked").stop();
    wattle(&["scan"], &members);
}

/// The server at two addresses.
struct Served {
    child: Child,
    way: String,
}

impl Served {
    fn start(dir: &Path, members: &[PathBuf], ports: [u16; 2]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
        command.args(["serve", "--runtime-dir"]).arg(dir.join("run")).args(members);
        for port in ports {
            command.args(["--export", &format!("nvme-tcp=127.0.0.1:{port}")]);
        }
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
