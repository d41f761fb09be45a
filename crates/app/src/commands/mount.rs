//! `wattle mount` and `wattle umount`: a volume's file, a loop device on it, and the file system on
//! that.
//!
//! The server that `mount` starts in the background is `wattle serve` with one directory of files,
//! which ends when the file was opened and is closed again. So nothing has to be remembered:
//! whichever program unmounts it, the loop device goes, the file is closed, the array is recorded
//! and the members are free.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_crypt::SecretBytes;
use wattle_export::ublk::{UblkError, remove_left};
use wattle_format::probe::{self, SignatureKind};
use wattle_rt::fuse::mount_at;
use wattle_rt::path_of_text;
use wattle_rt::ublk::UblkControl;
use wattle_server::exports::ublk_problem_of;
use wattle_server::protocol::report::{ArrayReport, VolumeReport};
use wattle_server::socket::client::Servers;

use crate::cli::{DegradedArg, KeyArgs, MountArgs, UmountArgs, UmountForce};
use crate::environment::runtime_dir;
use crate::keys;
use crate::members;
use crate::output;
use crate::output::text::printable;
use crate::target::ServedTarget;

/// The directories of files of servers in the background, in the runtime directory.
const FILES: &str = "files-";

/// Between two looks whether a server has ended, and how many there are: a minute for what it has
/// to record.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3000;

/// # Errors
/// Not root, no such volume, or the file system does not mount. What the server in the background
/// could not do has its exit status.
pub fn mount(args: &MountArgs) -> Result<ExitCode, Problem> {
    let (dir, targets) =
        args.targets.split_last().filter(|(_, targets)| !targets.is_empty()).ok_or_else(|| {
            Problem::new(
                Code::Usage,
                "what is to be mounted, or the directory, is missing",
                "the last of the names is the directory",
                "write it like: wattle mount disk*.img /mnt",
            )
        })?;
    let dir = &*path_of_text(dir);
    must_be_root()?;
    if !dir.is_dir() {
        return Err(cannot_mount(dir, "there is no such directory", "make it: mkdir DIR".to_owned()));
    }
    if let Some(served) = Served::find(args, targets)? {
        if args.overlay.dir.is_some() {
            return Err(Problem::new(
                Code::MountFailed,
                format!("{} is served already", served.name),
                "where its writes go was decided when its server was started",
                "leave --overlay out; or stop the server and name the members",
            ));
        }
        // A file of another user's may be one that not even root can look at: `mount` says so.
        let is_mountable = |way: &&String| way.starts_with('/') && !is_socket(Path::new(way));
        let Some(file) = served.exports.iter().find(is_mountable) else {
            return Err(Problem::new(
                Code::MountFailed,
                format!("{} is served, and neither as a file nor as a block device", served.name),
                "a file system is mounted from one of these",
                "serve it with --export fuse=DIR or ublk as well, or connect an NBD client and mount its device",
            ));
        };
        if args.write && served.read_only {
            return Err(Problem::new(
                Code::MountFailed,
                format!("{} is served read-only", served.name),
                "--write asks for a file system that can be written",
                "leave --write out, or serve it without --read-only",
            ));
        }
        return mount_file(Path::new(file), dir, args).map(|()| ExitCode::SUCCESS);
    }
    let mut server = Background::start(args, targets)?;
    let file = match server.file()? {
        Ok(file) => file,
        Err(status) => return Ok(status),
    };
    // The server ends when the file is closed for the last time: it must not be closed between two
    // attempts to mount it.
    let held = fs::File::open(&file);
    let mounted = mount_file(&file, dir, args);
    drop(held);
    if mounted.is_err() {
        server.end();
    }
    mounted.map(|()| ExitCode::SUCCESS)
}

/// What is served already under the only name that was given.
struct Served {
    name: String,
    read_only: bool,
    exports: Vec<String>,
}

impl Served {
    /// `None` if what was given are members.
    fn find(args: &MountArgs, targets: &[String]) -> Result<Option<Self>, Problem> {
        let runtime = args.runtime.runtime_dir.as_deref();
        if let [name] = targets
            && let Some(volume) = Servers::ask(&runtime_dir(runtime)).volume(name)
        {
            let VolumeReport { name, read_only, exports, .. } = volume.clone();
            return Ok(Some(Self { name, read_only, exports }));
        }
        let array = ServedTarget::if_served(runtime, targets)?;
        Ok(array.map(|target| {
            let ArrayReport { name, read_only, exports, .. } = target.array().clone();
            Self { name, read_only, exports }
        }))
    }
}

fn must_be_root() -> Result<(), Problem> {
    if fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0) {
        return Ok(());
    }
    Err(Problem::new(
        Code::PermissionDenied,
        "mounting a file system needs root",
        "the kernel reads the file system, and lets only root give it one; everything below it needs no root",
        "run it with sudo; without root, `wattle ls` and `wattle get` list and copy files out of it",
    ))
}

fn cannot_mount(dir: &Path, why: impl Into<String>, next: String) -> Problem {
    Problem::new(Code::MountFailed, format!("cannot mount at {}", dir.display()), why, next)
}

/// Whether there is a socket: hypervisors have one.
fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Whether there is a block device, or a link to one.
fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The number of a block device of ublk, or of the node by which its server took requests: without
/// a server that is all that there may be.
fn ublk_number(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let block = name.strip_prefix("ublkb").filter(|_| is_block_device(path));
    let node = name.strip_prefix("ublkc").filter(|_| path.starts_with("/dev"));
    block.or(node)?.parse().ok()
}

/// Mounts the file of a volume, through a loop device that goes with the mount, or its block
/// device.
fn mount_file(file: &Path, dir: &Path, args: &MountArgs) -> Result<(), Problem> {
    let access = if args.write { "rw" } else { "ro" };
    let more = args.options.iter().map(String::as_str);
    // What is on members from elsewhere may have been made to take this machine over.
    let rights: &[&str] = if args.suid_dev { &["suid", "dev"] } else { &["nosuid", "nodev"] };
    let through_loop = (!is_block_device(file)).then_some("loop");
    let rights = [access].into_iter().chain(rights.iter().copied());
    let options: Vec<&str> = through_loop.into_iter().chain(rights).chain(more).collect();
    let first = run_mount(file, dir, args.kind.as_deref(), &options)?;
    let Err(said) = first else { return Ok(()) };
    let found = file_system(file);
    // A log that was not replayed, which nothing may be written for, is what mostly keeps a file
    // system from being read.
    if let (false, Some((kind, without_log))) = (args.write, found.and_then(without_log)) {
        let options: Vec<&str> = options.iter().copied().chain([without_log]).collect();
        if run_mount(file, dir, args.kind.as_deref().or(Some(kind)), &options)?.is_ok() {
            output::note(&format!(
                "{}: NOT ALL THAT WAS WRITTEN IS SEEN: this {kind} was not unmounted, and its log cannot be replayed \
                 read-only; mounted with {without_log}. `wattle mount --write` replays it",
                printable(&dir.to_string_lossy())
            ));
            return Ok(());
        }
    }
    let next = match found {
        None => {
            "no file system is found: `wattle scan` shows what is there; LVM and partitions are volumes of their own (-V)"
        }
        Some(_) if args.write => "see the kernel's log (dmesg); a check of the file system may be needed",
        Some(_) => "see the kernel's log (dmesg); `wattle ls` and `wattle get` read files without the kernel",
    };
    Err(cannot_mount(dir, said, next.to_owned()))
}

/// What `mount` said if it failed.
fn run_mount(
    file: &Path,
    dir: &Path,
    kind: Option<&str>,
    options: &[&str],
) -> Result<Result<(), String>, Problem> {
    let mut command = Command::new("mount");
    command.args(kind.map(|kind| format!("--types={kind}"))).arg("-o").arg(options.join(","));
    command.arg("--").arg(file).arg(dir).stdin(Stdio::null());
    let output = command.output().map_err(|error| no_program("mount", &error))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Ok(if output.status.success() { Ok(()) } else { Err(printable(&said)) })
}

fn no_program(name: &str, error: &std::io::Error) -> Problem {
    Problem::new(
        Code::MountFailed,
        format!("{name}: {error}"),
        "loop devices and mounts are made by the system's own programs",
        "install the packages mount and util-linux",
    )
}

/// The file system in a file.
fn file_system(file: &Path) -> Option<SignatureKind> {
    use std::os::unix::fs::FileExt;
    let opened = fs::File::open(file).ok()?;
    let size_bytes = (&opened).seek(SeekFrom::End(0)).ok()?;
    let parts: Vec<(u64, Vec<u8>)> = probe::ranges(size_bytes)
        .into_iter()
        .filter_map(|range| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            opened.read_exact_at(&mut bytes, range.start).ok()?;
            Some((range.start, bytes))
        })
        .collect();
    let parts: Vec<(u64, &[u8])> = parts.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
    let signatures = probe::identify(size_bytes, &parts);
    signatures.into_iter().map(|signature| signature.kind).find(|kind| kind.is_file_system())
}

/// The option that mounts a file system without its log.
fn without_log(kind: SignatureKind) -> Option<(&'static str, &'static str)> {
    match kind {
        SignatureKind::Ext3 | SignatureKind::Ext4 => Some(("ext4", "noload")),
        SignatureKind::Xfs => Some(("xfs", "norecovery")),
        SignatureKind::Btrfs => Some(("btrfs", "rescue=nologreplay")),
        _ => None,
    }
}

/// Gives the server the keys that were given here. It has no terminal, so a passphrase is asked for
/// here, and returned for its standard input.
fn hand_on_keys(command: &mut Command, keys: &KeyArgs) -> Result<Option<SecretBytes>, Problem> {
    let files = |command: &mut Command, option: &str, paths: &[PathBuf]| {
        for path in paths {
            command.arg(option).arg(path);
        }
    };
    files(command, "--passphrase-file", &keys.passphrases);
    files(command, "--key-file", &keys.key_files);
    files(command, "--volume-key-file", &keys.volume_keys);
    let mut size = |option: &str, bytes: Option<u64>| {
        command.args(bytes.into_iter().flat_map(|bytes| [option.to_owned(), format!("{bytes}b")]));
    };
    size("--key-file-offset", keys.key_file_offset);
    size("--key-file-size", keys.key_file_size);
    size("--unlock-memory", keys.unlock_memory);
    command.args(keys.headers.iter().flat_map(|header| [OsStr::new("--header"), header]));
    if !keys.unlock {
        return Ok(None);
    }
    command.arg("--passphrase-file").arg("-");
    let typed = keys::ask("Passphrase: ").map_err(|error| {
        Problem::new(
            Code::KeyUnusable,
            format!("--unlock: {error}"),
            "a passphrase is asked for on the terminal that the command runs in",
            "give it as a file or descriptor: --passphrase-file FILE",
        )
    })?;
    typed.map(Some).ok_or_else(|| {
        Problem::new(Code::EncryptionLocked, "no passphrase was typed", "the question was left", "try again")
    })
}

/// A server that lives as long as its file is open.
struct Background {
    child: Child,
    /// What it says up to here is passed on.
    said: BufReader<std::process::ChildStderr>,
    dir: PathBuf,
}

impl Background {
    fn start(args: &MountArgs, members: &[String]) -> Result<Self, Problem> {
        let runtime = runtime_dir(args.runtime.runtime_dir.as_deref());
        runtime.make()?;
        sweep(runtime.path());
        let dir = runtime.path().join(format!("{FILES}{}", std::process::id()));
        let failed = |error: &dyn std::fmt::Display| {
            Problem::new(
                Code::ServerFailed,
                format!("the server in the background: {error}"),
                "the system refused",
                "see its log",
            )
        };
        fs::create_dir(&dir).map_err(|error| failed(&error))?;
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--until-closed").arg("--export").arg(format!("fuse={}", dir.display()));
        command.arg("--runtime-dir").arg(runtime.path());
        command.args((!args.write).then_some("--read-only"));
        command.args((args.degraded == DegradedArg::Never).then_some("--degraded=never"));
        command.args(args.volume.iter().flat_map(|volume| ["--volume", volume]));
        for file in &args.overlay.backup_files {
            command.arg("--backup-file").arg(file);
        }
        if let Some(dir) = &args.overlay.dir {
            command.arg("--overlay").arg(dir);
        }
        command.args(args.maps.maps.iter().flat_map(|map| [OsStr::new("--map"), map]));
        let typed = hand_on_keys(&mut command, &args.maps.keys)?;
        if let Some(dir) = &args.saving.dir {
            command.arg("--undo").arg(dir);
        }
        command.args(args.saving.no_undo.then_some("--no-undo"));
        command.args(args.force.checks.iter().map(|check| format!("--force={check}")));
        command.arg("--").args(members.iter().map(|name| path_of_text(name).into_owned()));
        // Ctrl-C ends this command, not what it left running.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        command.stdin(if typed.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        if let (Some(mut input), Some(typed)) = (child.stdin.take(), typed) {
            // A server that has ended says why.
            let _ = input.write_all(typed.as_ref());
        }
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        Ok(Self { child, said, dir })
    }

    /// Waits until it is ready: the file it serves, or how it ended instead.
    fn file(&mut self) -> Result<Result<PathBuf, ExitCode>, Problem> {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap_or(0) > 0 {
            if output::is_ready(&line) {
                let mut files = Vec::new();
                list_files(&self.dir, &mut files);
                if let [file] = &files[..] {
                    return Ok(Ok(file.clone()));
                }
                self.end();
                let names = files.iter().filter_map(|file| file.strip_prefix(&self.dir).ok());
                let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
                return Err(Problem::new(
                    Code::SeveralVolumes,
                    format!("{} volumes to choose from", files.len()),
                    format!("they are {}", printable(&names.join(", "))),
                    "name one: -V VOLUME",
                ));
            }
            output::pass_on(&line);
            line.clear();
        }
        let status = self.child.wait().ok().and_then(|status| status.code());
        let _ = fs::remove_dir(&self.dir);
        Ok(Err(status.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)))
    }

    /// Ends it, and waits until it has given everything back.
    fn end(&mut self) {
        let kill = Command::new("/bin/sh").args(["-c", "kill \"$0\"", &self.child.id().to_string()]).status();
        if kill.is_ok_and(|status| status.success()) {
            let mut rest = String::new();
            // What it says while it ends is of no use.
            let _ = self.said.read_to_string(&mut rest);
            let _ = self.child.wait();
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

fn list_files(dir: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { list_files(&path, files) } else { files.push(path) }
    }
}

/// Removes the directories of servers that have ended. One that is mounted or of a server that
/// begins is in use, and stays.
fn sweep(runtime: &Path) {
    for entry in fs::read_dir(runtime).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FILES));
        if process.is_some_and(|id| !is_running(id)) && mount_at(&entry.path()).is_none() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Whether a process is there and has not ended: one that was not waited for has no program any
/// more.
fn is_running(id: &str) -> bool {
    fs::read_link(format!("/proc/{id}/exe")).is_ok()
}

/// # Errors
/// Nothing is mounted there, it is in use, or its server does not end.
pub fn umount(args: &UmountArgs) -> Result<(), Problem> {
    let shown = printable(&args.dir.to_string_lossy());
    let problem = |why: String, next: &str| {
        Problem::new(Code::MountFailed, format!("cannot unmount {shown}"), why, next)
    };
    let dir = fs::canonicalize(&args.dir).map_err(|error| {
        problem(error.to_string(), "name the directory that was mounted on, or the block device")
    })?;
    if let Some(number) = ublk_number(&dir) {
        let what = format!("{} stays", dir.display());
        let in_use = args.force == Some(UmountForce::InUse);
        return members::run(&args.engine, 1, async |core| {
            let control = UblkControl::open().map_err(UblkError::of_control);
            let removed = async { remove_left(&core, control?, number, in_use).await }.await;
            removed.map_err(|error| ublk_problem_of(what, &error))
        });
    }
    let Some(mount) = mount_at(&dir) else {
        return Err(problem("nothing is mounted there".to_owned(), "`findmnt` lists what is mounted"));
    };
    let server = backing_file(&mount.source).and_then(|file| server_of(&file));
    let output = Command::new("umount").arg("--").arg(&dir).stdin(Stdio::null()).output();
    let output = output.map_err(|error| no_program("umount", &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        return Err(problem(printable(&said), "`fuser -vm DIR` lists the processes that use it"));
    }
    let Some((process, files)) = server else { return Ok(()) };
    for _ in 0..LOOKS_MAX {
        if !is_running(&process) {
            let _ = fs::remove_dir(files);
            return Ok(());
        }
        pause(LOOK);
    }
    Err(problem(
        format!("it is unmounted, and the server in the background (process {process}) goes on"),
        "another program has the volume's file open; the server ends with it",
    ))
}

/// What a loop device is over.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?.to_str()?.to_owned();
    let path = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n')))
}

/// The process and directory of the server in the background that serves a file, if it is one.
fn server_of(file: &Path) -> Option<(String, PathBuf)> {
    let named = |dir: &&Path| {
        dir.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(FILES))
    };
    let files = file.ancestors().skip(1).find(named)?;
    let servers = Servers::ask(&runtime_dir(files.parent()));
    let leads_here = |ways: &[String]| ways.iter().any(|way| Path::new(way) == file);
    let server = servers.reports().find(|server| {
        server.arrays.iter().any(|array| leads_here(&array.exports))
            || server.volumes.iter().any(|volume| leads_here(&volume.exports))
    })?;
    Some((server.pid.to_string(), files.to_owned()))
}

#[allow(clippy::disallowed_methods, reason = "there is no core to await on")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
