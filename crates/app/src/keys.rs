//! From what the command line says of keys to a keyring; and the question for a passphrase.
//!
//! Invariant: no secret is ever in an argument, a message or a core dump.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use wattle_control::members::{AskPassphrase, GivenKey, KeyKind, Keyring, MemberAccess};
use wattle_control::{Code, Problem};
use wattle_crypt::SecretBytes;
use wattle_format::luks::LuksHeader;
use wattle_rt::{HeldSignals, text_of_path};

use crate::cli::KeyArgs;
use crate::output::{self, text::printable};

/// The largest file that is taken for a key, bytes: cryptsetup's own limit.
const KEY_BYTES_MAX: u64 = 8 << 20;
/// What Synology's volume keys are called.
const SYNOLOGY: &str = "rkey";
const TERMINAL: &str = "/dev/tty";

/// The keyring of a command. `asks` is whether it asks without being told to, where it can.
///
/// # Errors
/// A file cannot be read, or there is no terminal to ask on.
pub fn keyring(args: &KeyArgs, asks: bool, access: &MemberAccess) -> Result<Keyring, Problem> {
    let can_ask = std::io::stdin().is_terminal() && File::open(TERMINAL).is_ok();
    if args.unlock && !can_ask {
        return Err(Problem::new(
            Code::KeyUnusable,
            "--unlock: there is no terminal to ask on",
            "a passphrase is asked for on the terminal that the command runs in",
            "give it as a file or descriptor: --passphrase-file FILE",
        ));
    }
    let is_used = args.is_given() || !args.headers.is_empty() || (asks && can_ask);
    if !is_used {
        return Ok(Keyring::default());
    }
    keep_out_of_dumps();
    let mut given = Vec::new();
    for path in &args.volume_keys {
        given.push(GivenKey { secret: read(path)?, kind: KeyKind::Volume });
    }
    for path in &args.key_files {
        given.extend(key_file(path, args)?.into_iter().map(passphrase));
    }
    for path in &args.passphrases {
        given.push(passphrase(first_line(&read(path)?)));
    }
    let headers = args.headers.iter().map(|header| named_header(header, access));
    let headers = headers.collect::<Result<_, _>>()?;
    let ask = (args.unlock || (asks && can_ask && !args.is_given()))
        .then(|| Arc::new(Terminal) as Arc<dyn AskPassphrase>);
    Ok(Keyring::new(given, headers, ask, args.unlock_memory))
}

fn passphrase(secret: SecretBytes) -> GivenKey {
    GivenKey { secret, kind: KeyKind::Passphrase }
}

/// No core dump of this process is written, and no other process of this user looks into it.
fn keep_out_of_dumps() {
    // Where either is not allowed the command goes on: keys are used all the same.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
}

fn unusable(path: &Path, what: impl std::fmt::Display, next: &str) -> Problem {
    Problem::new(
        Code::KeyUnusable,
        printable(&format!("{}: {what}", path.display())),
        "a key or passphrase was to be read from it; nothing was tried",
        next,
    )
}

/// A whole file, or what a descriptor gives.
fn read(path: &Path) -> Result<SecretBytes, Problem> {
    read_part(path, 0, None)
}

/// What a file, a device or a descriptor has from byte `skip` on, at most `len` bytes.
fn read_part(path: &Path, skip: u64, len: Option<u64>) -> Result<SecretBytes, Problem> {
    let named = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    let failed = |error: std::io::Error| unusable(path, error, "name a file that this user can read");
    let file = File::open(named).map_err(failed)?;
    if file.metadata().is_ok_and(|facts| facts.is_file() && facts.mode() & 0o077 != 0) {
        output::note(&printable(&format!("{}: other users may read it (chmod 600)", path.display())));
    }
    std::io::copy(&mut (&file).take(skip), &mut std::io::sink()).map_err(failed)?;
    // It does not grow: no copy of the secret stays behind.
    let most = len.unwrap_or(u64::MAX).min(KEY_BYTES_MAX + 1);
    let mut bytes = Vec::with_capacity(most as usize + 64);
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    let secret = SecretBytes::take(bytes);
    match secret.as_ref().len() as u64 {
        0 if skip > 0 => {
            let what = format!("it has no bytes from byte {skip} on");
            Err(unusable(path, what, "mind --key-file-offset and --key-file-size"))
        }
        0 => Err(unusable(path, "it is empty", "name the file with the key")),
        len if len > KEY_BYTES_MAX => {
            Err(unusable(path, "it is larger than any key", "name the part that is the key: --key-file-size"))
        }
        _ => Ok(secret),
    }
}

/// The first line, without its end.
fn first_line(secret: &SecretBytes) -> SecretBytes {
    let bytes = secret.as_ref();
    let len = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    SecretBytes::take(bytes[..len].to_vec())
}

/// The key in a key file; of Synology's, what its text stands for, in both ways that shells hand it
/// on.
fn key_file(path: &Path, args: &KeyArgs) -> Result<Vec<SecretBytes>, Problem> {
    let (from, len) = (args.key_file_offset.unwrap_or(0), args.key_file_size);
    let part = read_part(path, from, len)?;
    let key = part.as_ref();
    if let Some(len) = len.filter(|&len| len != key.len() as u64) {
        let what =
            format!("it has {} bytes from byte {from} on, and the key is to be {len} bytes", key.len());
        return Err(unusable(path, what, "mind --key-file-offset and --key-file-size"));
    }
    let mut keys = vec![SecretBytes::take(key.to_vec())];
    if path.extension() == Some(OsStr::new(SYNOLOGY)) {
        let text: Vec<u8> = key.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let text = SecretBytes::take(text);
        if let Ok(decoded) = STANDARD.decode(text.as_ref()) {
            let decoded = SecretBytes::take(decoded);
            let end = decoded.as_ref().iter().rposition(|&byte| byte != b'\n').map_or(0, |last| last + 1);
            let without = SecretBytes::take(decoded.as_ref()[..end].to_vec());
            keys = [vec![decoded, without], keys].concat();
            keys.dedup();
        }
    }
    Ok(keys)
}

/// The member and what its header is on, in `MEMBER=FILE`. Either may have further `=` in it: the
/// file is one that is there.
fn named_header(
    text: &OsStr,
    access: &MemberAccess,
) -> Result<(String, Arc<wattle_control::Member>), Problem> {
    let bytes = text.as_bytes();
    let cuts = (0..bytes.len()).filter(|&at| bytes[at] == b'=');
    let parts: Vec<_> =
        cuts.map(|at| (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]))).collect();
    let there = parts.iter().find(|(_, file)| Path::new(file).exists());
    let Some((member, file)) = there.or(parts.first()) else {
        return Err(Problem::new(
            Code::Usage,
            printable(&format!("--header {}", text.to_string_lossy())),
            "it says which encrypted device has its header elsewhere, and where",
            "write MEMBER=FILE, with the device as `wattle scan` calls it",
        ));
    };
    let on = access.look(&text_of_path(file))?;
    Ok((text_of_path(member), Arc::new(on)))
}

/// The terminal that the command runs in.
struct Terminal;

impl AskPassphrase for Terminal {
    fn ask(&self, member: &str, header: &LuksHeader, attempt: u32) -> Option<SecretBytes> {
        let again = if attempt > 1 { "no key slot opens with it. " } else { "" };
        let prompt = printable(&format!("{again}Passphrase for {member} (LUKS{}): ", header.version));
        ask(&prompt).ok().flatten()
    }
}

/// Asks on the terminal, without showing what is typed; `None` if the operator breaks off, or a
/// signal is to end the process: then the terminal shows again what is typed before it does.
///
/// # Errors
/// The terminal cannot be read.
pub fn ask(prompt: &str) -> std::io::Result<Option<SecretBytes>> {
    let mut terminal = File::options().read(true).write(true).open(TERMINAL)?;
    terminal.write_all(prompt.as_bytes())?;
    let signals = HeldSignals::hold();
    let quiet = Quiet::new(&terminal)?;
    let mut typed = Typed { secret: SecretBytes::zeros(LINE_BYTES_MAX), len: 0 };
    let line = loop {
        let mut byte = [0];
        if !wait_for_key(&terminal, &signals)? || (&terminal).read(&mut byte)? == 0 {
            break None;
        }
        match typed.key(byte[0]) {
            Keystroke::More => {}
            Keystroke::Done => break Some(typed.taken()),
            Keystroke::Abort => break None,
        }
    };
    drop(quiet);
    drop(signals);
    terminal.write_all(b"\n")?;
    Ok(line)
}

/// Whether a key was pressed, and no signal came before.
fn wait_for_key(terminal: &File, signals: &HeldSignals) -> std::io::Result<bool> {
    const LOOK_AT_SIGNALS: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !signals.is_pending() {
        match poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&LOOK_AT_SIGNALS)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The longest passphrase that can be typed, bytes: cryptsetup's limit.
const LINE_BYTES_MAX: usize = 512;

/// A line that is being typed.
struct Typed {
    secret: SecretBytes,
    len: usize,
}

enum Keystroke {
    More,
    Done,
    Abort,
}

impl Typed {
    fn key(&mut self, byte: u8) -> Keystroke {
        match byte {
            b'\n' | b'\r' => return Keystroke::Done,
            // Ctrl-C, and Ctrl-D on an empty line.
            3 => return Keystroke::Abort,
            4 if self.len == 0 => return Keystroke::Abort,
            // Backspace and delete.
            8 | 127 => {
                // A letter of several bytes goes as a whole.
                while self.len > 0 {
                    self.len -= 1;
                    if self.secret.as_ref()[self.len] & 0xc0 != 0x80 {
                        break;
                    }
                }
            }
            // Ctrl-U.
            21 => self.len = 0,
            byte if self.len < LINE_BYTES_MAX => {
                self.secret.as_mut()[self.len] = byte;
                self.len += 1;
            }
            _ => {}
        }
        Keystroke::More
    }

    fn taken(&self) -> SecretBytes {
        SecretBytes::take(self.secret.as_ref()[..self.len].to_vec())
    }
}

/// A terminal that shows nothing and hands on every key, until this is dropped.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn new(terminal: &'a File) -> std::io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}
