//! A `wattle serve` that a test starts, asks, and ends one way or the other.

#![allow(clippy::disallowed_methods, reason = "a test waits for a process in real time")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::Nbd;

const PATIENCE: Duration = Duration::from_secs(120);

pub struct Server {
    child: Child,
    runtime: PathBuf,
    name: String,
    export: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Serves `members`, and returns when clients can come.
    pub fn start(members: &[PathBuf], dir: &Path, args: &[&str]) -> Self {
        // Paths of sockets are short, those of scratch directories are not.
        let runtime = dir.join("run");
        let (ready, log) = (dir.join("ready"), dir.join("log"));
        let _ = std::fs::remove_file(&ready);
        let output = std::fs::File::options().create(true).append(true).open(&log).expect("scratch space");
        let child = command(&runtime)
            .arg("serve")
            .args(args)
            .arg("--state-dir")
            .arg(dir.join("state"))
            .arg("--pidfile")
            .arg(&ready)
            .args(members)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .expect("wattle runs");
        let mut server = Self { child, runtime, name: String::new(), export: PathBuf::new(), log };
        server.wait_for("a server that is ready", |_| ready.exists());
        let status = server.status();
        status["name"].as_str().expect("a name").clone_into(&mut server.name);
        let export = status["exports"][0].as_str().expect("an export");
        server.export = export.split_once("socket=").expect("a Unix socket").1.into();
        server
    }

    /// What `wattle status --json` says about the array.
    pub fn status(&self) -> Value {
        let output = command(&self.runtime).args(["status", "--json"]).output().expect("wattle runs");
        let status: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        status["arrays"][0].clone()
    }

    /// Runs a command on the array: `["add", NAME, "x.img"]` for `["add", "x.img"]`.
    pub fn tell(&self, words: &[&str]) -> Output {
        let (verb, rest) = words.split_first().expect("a command");
        command(&self.runtime).arg(verb).arg(&self.name).args(rest).output().expect("wattle runs")
    }

    /// The same, which must succeed.
    #[track_caller]
    pub fn ask(&self, words: &[&str]) -> Output {
        let output = self.tell(words);
        assert!(
            output.status.success(),
            "wattle {words:?}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
            self.said()
        );
        output
    }

    /// Where NBD clients find the volume.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.name, self.export.display())
    }

    pub fn connect(&self) -> Nbd {
        Nbd::connect(&self.export, &self.name)
    }

    /// Waits until nothing is left to be done in the background, and so many slots have no member
    /// that is in sync.
    pub fn settle(&mut self, degraded: usize) {
        self.wait_for(&format!("settled with {degraded} slots empty"), |server| {
            let status = server.status();
            let replacing = status["replacements"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["state"] == "rebuilding"));
            let idle = status["sync"].is_null() && status["synced"] == true && !replacing;
            idle && status["degraded"] == degraded
        });
    }

    /// Waits until the work in the background has done so many bytes and is still at it.
    pub fn wait_for_sync(&mut self, action: &str, bytes: u64) {
        self.wait_for(&format!("{action} up to {bytes}"), |server| {
            let sync = &server.status()["sync"];
            sync["action"] == action && sync["done_bytes"].as_u64().is_some_and(|done| done >= bytes)
        });
    }

    /// Waits until nothing was written for a while.
    pub fn wait_until_clean(&mut self) {
        let is_clean =
            |server: &Self| server.status()["state"].as_str().is_some_and(|state| state.starts_with("clean"));
        self.wait_for("an array that is clean", is_clean);
    }

    /// Ends as on Ctrl-C; that must succeed.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.said());
    }

    /// A function that ends it with no chance to do anything more.
    pub fn killer(&self) -> impl FnOnce() + use<> {
        let id = self.child.id();
        move || send("KILL", id)
    }

    /// Takes note of an end that came from outside.
    pub fn gone(mut self) {
        self.child.wait().expect("it ends");
    }

    fn signal(&self, signal: &str) {
        send(signal, self.child.id());
    }

    fn wait_for(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "{what}: it ended: {ended:?}\n{}", self.said());
            if done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "not in time: {what}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// What it printed.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(runtime: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.env("WATTLE_RUNTIME_DIR", runtime).env("NO_COLOR", "1").env("TZ", "UTC");
    command
}

fn send(signal: &str, id: u32) {
    let status =
        Command::new("kill").arg(format!("-{signal}")).arg(id.to_string()).status().expect("kill runs");
    assert!(status.success());
}
