//! The guest, and the slices of disks by which many arrays go in and out of one boot.

#![allow(clippy::print_stderr, reason = "what is skipped is said loudly")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cases::Case;

/// Sectors of a slice: 8 MiB.
pub const SLICE_SECTORS: u64 = 16384;
/// The series of the kernel that judges.
const USUAL: &str = "6.12";
/// As many disks as the widest case has members.
const DISKS: usize = 11;

/// What `guest/run` ends with when the guest died, or took too long, in the middle of a job.
const GUEST_DIED: i32 = 99;

/// A guest that can be booted here.
pub struct Guest {
    kernel: String,
}

pub type Facts = BTreeMap<String, String>;

impl Guest {
    /// The guest, or nothing where it cannot be built, said loudly; in CI that is a failure.
    ///
    /// `WATTLE_GUEST_KERNEL` names another kernel to judge in place of the usual one.
    pub fn ready(kernel: &str) -> Option<Self> {
        let other = std::env::var("WATTLE_GUEST_KERNEL").ok().filter(|_| kernel == USUAL);
        Self::of(&other.unwrap_or_else(|| kernel.to_owned()))
    }

    /// The same where only this kernel can judge.
    pub fn of(kernel: &str) -> Option<Self> {
        let build = root().join("guest/build");
        let status = Command::new(&build)
            .env("WATTLE_GUEST_KERNEL", kernel)
            .stdout(std::process::Stdio::null())
            .status();
        if status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return Some(Self { kernel: kernel.to_owned() });
        }
        assert!(
            std::env::var_os("CI").is_none(),
            "guest/build failed ({status:?}), and in CI nothing is skipped"
        );
        eprintln!("SKIPPED, NOT TESTED: no Linux {kernel} guest here: guest/build failed ({status:?})");
        None
    }

    /// Runs one of the guest's jobs; every result line must say ok or skipped. Returns their facts
    /// by case.
    pub fn run(&self, job: &str, files: &[PathBuf], slices: &Slices) -> BTreeMap<String, Facts> {
        self.run_with(job, files, &slices.disks, &[])
    }

    /// Has the kernel make the arrays of a matrix on fresh disks; returns the facts of each case.
    ///
    /// An emulated kernel dies now and then. Nothing of wattle runs in this job, so that is no
    /// verdict: it is said loudly, and the arrays are made anew, once.
    pub fn make_arrays(&self, matrix: &Path, slices: &Slices) -> BTreeMap<String, Facts> {
        let files = [matrix.to_owned()];
        let mut output = self.output_of("make-arrays", &files, &slices.disks, &[]);
        if output.status.code() == Some(GUEST_DIED) {
            eprintln!("THE GUEST DIED while it made arrays; they are made anew on fresh disks:");
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            slices.empty();
            output = self.output_of("make-arrays", &files, &slices.disks, &[]);
        }
        results(&printed("make-arrays", &output))
    }

    pub fn run_with(
        &self,
        job: &str,
        files: &[PathBuf],
        disks: &[PathBuf],
        env: &[(&str, &str)],
    ) -> BTreeMap<String, Facts> {
        results(&self.text_with(job, files, disks, env))
    }

    /// Runs one of the guest's jobs; returns all that it printed.
    pub fn text_of(&self, job: &str, files: &[PathBuf], slices: &Slices) -> String {
        self.text_with(job, files, &slices.disks, &[])
    }

    /// `guest/run` of this guest.
    pub fn command(&self) -> Command {
        let mut command = Command::new(root().join("guest/run"));
        command.env("WATTLE_GUEST_KERNEL", &self.kernel);
        command
    }

    /// The same on these disks (see `guest/run`), with settings of guest/run.
    pub fn text_with(&self, job: &str, files: &[PathBuf], disks: &[PathBuf], env: &[(&str, &str)]) -> String {
        printed(job, &self.output_of(job, files, disks, env))
    }

    fn output_of(&self, job: &str, files: &[PathBuf], disks: &[PathBuf], env: &[(&str, &str)]) -> Output {
        let guest = root().join("guest");
        let mut command = self.command();
        command.current_dir(&guest).env("GUEST_TIMEOUT", "900");
        command.envs(env.iter().copied());
        for file in files {
            command.arg("-f").arg(file);
        }
        command.arg(guest.join("jobs").join(job)).args(disks).output().expect("guest/run runs")
    }
}

/// All that a job printed, which must have ended well.
fn printed(job: &str, output: &Output) -> String {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The end of the console comes first: a long text may be cut where it is shown.
    assert!(output.status.success(), "{job} in the guest: {}\n{errors}\n{text}", output.status);
    text.into_owned()
}

fn results(text: &str) -> BTreeMap<String, Facts> {
    text.lines().filter_map(|line| line.strip_prefix("RESULT ")).map(facts).collect()
}

fn facts(line: &str) -> (String, Facts) {
    let mut words = line.split_whitespace();
    let id = words.next().expect("a result names its case").to_owned();
    (
        id,
        words
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
    )
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The disks of a guest, sparse files, and a directory per case for its members.
pub struct Slices {
    scratch: PathBuf,
    disks: Vec<PathBuf>,
    /// Of each disk.
    bytes: u64,
}

impl Slices {
    pub fn new(scratch: &Path, cases: usize) -> Self {
        let disks: Vec<PathBuf> = (0..DISKS).map(|disk| scratch.join(format!("disk{disk:02}"))).collect();
        let slices = Self { scratch: scratch.to_owned(), disks, bytes: cases as u64 * SLICE_SECTORS * 512 };
        slices.empty();
        slices
    }

    /// Makes all disks empty.
    fn empty(&self) {
        for disk in &self.disks {
            File::create(disk).and_then(|file| file.set_len(self.bytes)).expect("scratch space");
        }
    }

    /// Where case `k` keeps its files.
    pub fn dir(&self, k: usize) -> PathBuf {
        let dir = self.scratch.join(format!("case{k}"));
        std::fs::create_dir_all(&dir).expect("scratch space");
        dir
    }

    /// Paths of the members of case `k`.
    pub fn members(&self, k: usize, count: usize) -> Vec<PathBuf> {
        (0..count).map(|member| self.dir(k).join(format!("member{member}.img"))).collect()
    }

    /// Copies the members of a case out of the disks, without those it says are missing.
    pub fn extract(&self, k: usize, case: &Case) -> Vec<PathBuf> {
        let paths = self.members(k, case.slices());
        for (member, path) in paths.iter().enumerate() {
            let len = case.slice_sectors(member) * 512;
            copy(&self.disks[member], k as u64 * SLICE_SECTORS * 512, path, 0, len);
        }
        paths
            .into_iter()
            .enumerate()
            .filter(|(member, _)| !case.missing().contains(member))
            .map(|(_, path)| path)
            .collect()
    }

    /// Copies members, all of them, to the disks.
    pub fn put(&self, k: usize, members: &[PathBuf]) {
        for (member, path) in members.iter().enumerate() {
            copy(path, 0, &self.disks[member], k as u64 * SLICE_SECTORS * 512, SLICE_SECTORS * 512);
        }
    }

    /// Copies members back into the disks.
    pub fn put_back(&self, k: usize, case: &Case, members: &[PathBuf]) {
        let slots = (0..case.slices()).filter(|member| !case.missing().contains(member));
        for (member, path) in slots.zip(members) {
            let len = case.slice_sectors(member) * 512;
            copy(path, 0, &self.disks[member], k as u64 * SLICE_SECTORS * 512, len);
        }
    }
}

/// Copies a range between files; the target is made if need be and gets at least that length. Zeros
/// are not written.
fn copy(from: &Path, from_offset: u64, to: &Path, to_offset: u64, len: u64) {
    let from = File::open(from).expect("the source is there");
    let to = File::options().write(true).create(true).truncate(false).open(to).expect("scratch space");
    let end = to_offset + len;
    if to.metadata().expect("metadata").len() < end {
        to.set_len(end).expect("scratch space");
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact_at(&mut bytes, from_offset).expect("the range is there");
    to.write_all_at(&bytes, to_offset).expect("scratch space");
}
