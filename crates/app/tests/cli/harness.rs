//! Running the command, making members, and telling whether a byte changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The command, without anything of the user's environment that changes what it does.
pub fn wattle() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.env_remove("WATTLE_RUNTIME_DIR").env_remove("XDG_STATE_HOME");
    command.env("WATTLE_STATE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// What a finished command said.
#[derive(Debug)]
pub struct Said {
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Said {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 0, "{}", self.stderr);
        self
    }

    /// It failed with this status and code, says why and what next, and names all of `words`.
    #[track_caller]
    pub fn failed(self, status: i32, code: &str, words: &[&str]) -> Self {
        assert_eq!(self.status, status, "{}", self.stderr);
        assert!(self.stderr.contains(&format!("error[{code}]: ")), "expected {code}: {}", self.stderr);
        for word in ["\n  why: ", "\n  next: "].iter().chain(words) {
            assert!(self.stderr.contains(word), "expected `{word}`: {}", self.stderr);
        }
        self
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap()
    }
}

/// Runs the command to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Said {
    said(wattle().args(args).output().unwrap())
}

pub fn said(output: Output) -> Said {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("panicked"), "{stderr}");
    Said { status: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
}

/// A directory with members, and what they held at the last look.
pub struct Room {
    pub dir: tempfile::TempDir,
}

impl Room {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Sparse files of zeros.
    pub fn blank(&self, count: usize, size_bytes: u64) -> Vec<String> {
        let make = |ix| {
            let name = self.name(&format!("member-{ix}"));
            fs::File::create(&name).unwrap().set_len(size_bytes).unwrap();
            name
        };
        (0..count).map(make).collect()
    }

    /// One more sparse file of zeros.
    pub fn device(&self, name: &str, size_bytes: u64) -> String {
        fs::File::create(self.path(name)).unwrap().set_len(size_bytes).unwrap();
        self.name(name)
    }

    /// An array called `data` on blank members.
    pub fn array(&self, level: &str, count: usize) -> Vec<String> {
        let members = self.blank(count, 16 << 20);
        let args = ["create", "data", "--level", level, "--chunk", "64K"].map(str::to_owned);
        let args = if level == "1" { args[..4].to_vec() } else { args.to_vec() };
        run(args.into_iter().chain(members.clone())).ok();
        members
    }

    /// Every file, with its content.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
    }

    /// Runs `action` and makes sure that no file changed, appeared or went.
    #[track_caller]
    pub fn untouched<T>(&self, action: impl FnOnce() -> T) -> T {
        let before = self.contents();
        let result = action();
        let after = self.contents();
        assert!(before.keys().eq(after.keys()), "files appeared or went");
        for (path, bytes) in &before {
            assert!(after[path] == *bytes, "{} changed", path.display());
        }
        result
    }
}

/// Whether a tool is there. In CI its absence is a failure: a test that did not run proves nothing.
pub fn require(tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()));
    if !found {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "{tool} is not installed: run scripts/deps"
        );
        eprintln!("SKIPPED: {tool} is not installed; scripts/deps installs it");
    }
    found
}

/// Runs another program and expects it to succeed.
#[track_caller]
pub fn tool<S: AsRef<std::ffi::OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> String {
    let output = Command::new(name).args(args).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A running `wattle serve`, killed when the test is done with it.
pub struct Serve {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    pub runtime_dir: PathBuf,
    pub uri: String,
    /// What it said before it was ready.
    pub said: String,
}

impl Serve {
    /// Starts it and waits until it is ready; what it said if it ended instead.
    pub fn try_start(room: &Room, args: &[&str], members: &[impl AsRef<OsStr>]) -> Result<Self, Said> {
        Self::try_start_in(Path::new("."), room, args, members)
    }

    /// The same in a directory, from which members are named.
    pub fn try_start_in(
        dir: &Path,
        room: &Room,
        args: &[&str],
        members: &[impl AsRef<OsStr>],
    ) -> Result<Self, Said> {
        let runtime_dir = room.path("run");
        let mut command = wattle();
        command.current_dir(dir);
        command.arg("serve").args(members).args(args).arg("--runtime-dir").arg(&runtime_dir);
        command.env("WATTLE_STATE_DIR", room.path("state"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let start = said.len();
            if stderr.read_line(&mut said).unwrap() == 0 {
                let status = child.wait().unwrap().code().unwrap_or(-1);
                return Err(Said { status, stdout: Vec::new(), stderr: said });
            }
            if let Some(uris) = said[start..].strip_prefix("wattle: ready: ") {
                let uri = uris.split_whitespace().next().unwrap().to_owned();
                return Ok(Self { child, stderr, runtime_dir, uri, said });
            }
        }
    }

    #[track_caller]
    pub fn start(room: &Room, args: &[&str], members: &[impl AsRef<OsStr>]) -> Self {
        Self::try_start(room, args, members).unwrap_or_else(|said| panic!("{said:?}"))
    }

    /// Another command about what this server serves.
    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Said {
        said(wattle().args(args).arg("--runtime-dir").arg(&self.runtime_dir).output().unwrap())
    }

    /// What it tells of the one array that it serves.
    #[track_caller]
    pub fn array(&self) -> Value {
        self.command(&["status", "--json"]).ok().json()["arrays"][0].clone()
    }

    /// Waits until the array is what `done` says.
    #[track_caller]
    pub fn wait_until(&self, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let array = self.array();
            if done(&array) {
                return array;
            }
            assert!(Instant::now() < deadline, "not {what}: {array:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until every slot is in sync and so are parity and copies.
    #[track_caller]
    pub fn wait_until_good(&self) -> Value {
        self.wait_until("good", |array| {
            array["health"] == "good" && array["synced"] == true && array["sync"].is_null()
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub fn kill(mut self) {
        self.signal("KILL");
        assert_eq!(self.wait(), -1);
    }

    pub fn signal(&self, name: &str) {
        tool("kill", [format!("-{name}"), self.child.id().to_string()]);
    }

    /// Waits for the end; the exit status, -1 for a signal.
    pub fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not end");
    }

    /// What it said after it was ready; waits for its end.
    pub fn rest(&mut self) -> String {
        let mut text = String::new();
        while self.stderr.read_line(&mut text).unwrap() > 0 {}
        text
    }

    /// Asks for the end and waits for it.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.wait(), 0, "{}", self.rest());
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Mostly it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the fixtures are.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}
