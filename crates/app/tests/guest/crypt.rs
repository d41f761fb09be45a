//! Encrypted devices before dm-crypt: what wattle encrypts Linux reads, and what Linux encrypts
//! wattle reads, in every cipher, mode and size of sector.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wattle_crypt::SectorCipher;

use crate::judge::Guest;
use crate::pattern::Pattern;
use crate::wattle;

const DISK_BYTES: u64 = 24 << 20;
const PASSPHRASE: &str = "correct horse";

/// Devices with a header: its options, the cipher and the size of a sector.
const LUKS: [(&str, &str, &str, u32); 4] = [
    ("luks1", "--type luks1 --pbkdf-force-iterations 1000", "aes-xts-plain64", 512),
    (
        "essiv",
        "--type luks1 --pbkdf-force-iterations 1000 --cipher aes-cbc-essiv:sha256 --key-size 256",
        "aes-cbc-essiv:sha256",
        512,
    ),
    (
        "luks2",
        "--type luks2 --pbkdf-memory 4096 --pbkdf-force-iterations 4 --sector-size 512",
        "aes-xts-plain64",
        512,
    ),
    (
        "large",
        "--type luks2 --pbkdf-memory 4096 --pbkdf-force-iterations 4 --sector-size 4096",
        "aes-xts-plain64",
        4096,
    ),
];

/// Ciphers that cryptsetup cannot make headers with everywhere: sectors alone. The key's bytes, and
/// the size of a sector.
const RAW: [(&str, &str, usize, u32); 9] = [
    ("aes128", "aes-xts-plain64", 32, 512),
    ("serpent", "serpent-xts-plain64", 64, 512),
    ("twofish", "twofish-xts-plain64", 64, 1024),
    ("twofish-cbc", "twofish-cbc-essiv:sha256", 32, 512),
    ("serpent-cbc", "serpent-cbc-plain64", 24, 2048),
    ("plain", "aes-cbc-plain", 24, 512),
    ("be", "aes-xts-plain64be", 64, 512),
    ("old", "aes-xts-plain", 64, 512),
    ("cbc4k", "aes-cbc-essiv:sha256", 16, 4096),
];

struct Encrypted {
    name: &'static str,
    disk: PathBuf,
    offset_sectors: u64,
    sectors: u64,
    cipher: &'static str,
    key: Vec<u8>,
    sector_bytes: u32,
}

impl Encrypted {
    fn line(&self, there: u64, next: u64) -> String {
        let key: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        let (name, offset, sectors, cipher) = (self.name, self.offset_sectors, self.sectors, self.cipher);
        format!("{name} {offset} {sectors} {cipher} {key} {} {there} {next}\n", self.sector_bytes)
    }

    fn expected(&self, seed: u64) -> Vec<u8> {
        Pattern::whole(seed).bytes(self.sectors)
    }
}

fn cryptsetup(args: &[&str], image: &Path) {
    let mut child = Command::new("cryptsetup")
        .args(args)
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("cryptsetup is installed (scripts/deps)");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), PASSPHRASE.as_bytes())
        .expect("a pipe");
    assert!(child.wait().expect("it ran").success(), "cryptsetup {args:?}");
}

fn disk(dir: &Path, name: &str) -> PathBuf {
    let disk = dir.join(name);
    File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).expect("scratch space");
    disk
}

/// A device with a header, its key as cryptsetup says it, written to through wattle.
fn with_header(
    dir: &Path,
    passphrase: &Path,
    (name, options, cipher, sector_bytes): (&'static str, &str, &'static str, u32),
    seed: u64,
) -> Encrypted {
    let disk = disk(dir, name);
    let format: Vec<&str> =
        ["luksFormat", "-q", "--key-file", "-"].into_iter().chain(options.split(' ')).collect();
    cryptsetup(&format, &disk);
    let key = dir.join("key");
    let _ = fs::remove_file(&key);
    let key_name = key.to_str().expect("utf-8");
    cryptsetup(
        &["luksDump", "-q", "--dump-volume-key", "--volume-key-file", key_name, "--key-file", "-"],
        &disk,
    );
    let open = ["--passphrase-file", passphrase.to_str().expect("utf-8")];
    let size = wattle(&[&["cat"], &open[..]].concat(), std::slice::from_ref(&disk)).len() as u64;
    let device = Encrypted {
        name,
        disk,
        offset_sectors: (DISK_BYTES - size) / 512,
        sectors: size / 512,
        cipher,
        key: fs::read(key).expect("cryptsetup wrote it"),
        sector_bytes,
    };
    let plain = dir.join("plain");
    fs::write(&plain, device.expected(seed)).expect("scratch space");
    let runtime = dir.join("run");
    let copy = format!("nbdcopy '{}' \"$uri\"", plain.display());
    let serve = ["serve", "--runtime-dir", runtime.to_str().expect("utf-8"), "--run", &copy];
    wattle(&[&serve[..], &open].concat(), std::slice::from_ref(&device.disk));
    device
}

/// Sectors alone, encrypted here.
fn without_header(
    dir: &Path,
    (name, cipher, key_bytes, sector_bytes): (&'static str, &'static str, usize, u32),
    seed: u64,
) -> Encrypted {
    let key = (0..key_bytes).map(|at| (at as u8).wrapping_mul(41).wrapping_add(seed as u8)).collect();
    let sectors = 4 << 11;
    let device =
        Encrypted { name, disk: disk(dir, name), offset_sectors: 0, sectors, cipher, key, sector_bytes };
    let mut bytes = device.expected(seed);
    SectorCipher::new(cipher, &device.key, sector_bytes).expect("a cipher").encrypt(0, &mut bytes);
    let file = File::options().write(true).open(&device.disk).expect("it was made");
    file.write_all_at(&bytes, 0).expect("scratch space");
    device
}

pub fn judge(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let dir = scratch.path();
    let passphrase = dir.join("passphrase");
    fs::write(&passphrase, PASSPHRASE).expect("scratch space");
    let there = |ix: usize| 7000 + ix as u64;
    let next = |ix: usize| 8000 + ix as u64;
    let mut devices = Vec::new();
    for luks in LUKS {
        devices.push(with_header(dir, &passphrase, luks, there(devices.len())));
    }
    for raw in RAW {
        devices.push(without_header(dir, raw, there(devices.len())));
    }
    let lines = devices.iter().enumerate().map(|(ix, device)| device.line(there(ix), next(ix)));
    let asked = dir.join("crypt.txt");
    fs::write(&asked, lines.collect::<String>()).expect("scratch space");
    let disks: Vec<PathBuf> = devices.iter().map(|device| device.disk.clone()).collect();
    let judged = guest.run_with("crypt", &[asked], &disks, &[]);
    for (ix, device) in devices.iter().enumerate() {
        let name = device.name;
        assert_eq!(judged[name]["right"], "1", "{name}: Linux reads what was encrypted here");
        let expected = device.expected(next(ix));
        if ix < LUKS.len() {
            let members = std::slice::from_ref(&device.disk);
            let open = ["cat", "--passphrase-file", passphrase.to_str().expect("utf-8")];
            assert!(wattle(&open, members) == expected, "{name}: what Linux encrypted is read here");
            continue;
        }
        let mut bytes = vec![0; expected.len()];
        File::open(&device.disk).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("it is there");
        let cipher = SectorCipher::new(device.cipher, &device.key, device.sector_bytes).expect("a cipher");
        // In two parts: sectors are numbered from wherever a request begins.
        let (first, rest) = bytes.split_at_mut(3 << 12);
        cipher.decrypt(0, first);
        cipher.decrypt(3 << 3, rest);
        assert!(bytes == expected, "{name}: what Linux encrypted is decrypted here");
    }
}
