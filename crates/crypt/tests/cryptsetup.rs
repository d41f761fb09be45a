//! Headers that cryptsetup makes, on plain files: the key that comes out is the one that cryptsetup
//! says.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use wattle_crypt::{SecretBytes, UnlockError, UnlockLimits, UnlockedKey, check_key, unlock};
use wattle_format::luks::{self, HeaderSource, LuksError, LuksHeader};

const LIMITS: UnlockLimits = UnlockLimits { memory_bytes: 2 << 30 };
/// So that a test takes no second for each slot.
const CHEAP: &[&str] = &["--pbkdf-force-iterations", "1000"];
const CHEAP_ARGON: &[&str] =
    &["--pbkdf-force-iterations", "4", "--pbkdf-memory", "1024", "--pbkdf-parallel", "1"];

/// An image with the passphrase `correct horse` in its first slot.
struct Image {
    dir: TempDir,
    path: PathBuf,
}

fn cryptsetup(args: &[&str], image: &Path, input: &str) -> String {
    let mut child = Command::new("cryptsetup")
        .args(args)
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cryptsetup is installed (scripts/deps)");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "cryptsetup {args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn image(args: &[&str]) -> Image {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let format = ["luksFormat", "--batch-mode", "--key-file", "-"];
    cryptsetup(&[&format[..], args].concat(), &path, "correct horse");
    Image { dir, path }
}

impl Image {
    fn header(&self) -> Result<LuksHeader, LuksError> {
        let file = File::open(&self.path).unwrap();
        luks::read(&mut |at, len| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, at).ok()?;
            Some(bytes)
        })
    }

    fn unlock(&self, passphrase: &str) -> Result<UnlockedKey, UnlockError> {
        let file = File::open(&self.path).unwrap();
        unlock(&self.header().unwrap(), passphrase.as_bytes(), LIMITS, &mut |area| {
            let mut bytes = vec![0; (area.end - area.start) as usize];
            file.read_exact_at(&mut bytes, area.start).ok()?;
            Some(bytes)
        })
    }

    /// The key, as cryptsetup tells it.
    fn key(&self) -> Vec<u8> {
        let path = self.dir.path().join("key");
        let to = path.to_str().unwrap();
        let dump =
            ["luksDump", "--batch-mode", "--dump-volume-key", "--volume-key-file", to, "--key-file", "-"];
        cryptsetup(&dump, &self.path, "correct horse");
        std::fs::read(path).unwrap()
    }

    fn damage(&self, at: u64) {
        let mut file = File::options().write(true).open(&self.path).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[0x5a; 64]).unwrap();
    }
}

#[test]
fn keys_of_all_kinds_of_headers_come_out() {
    let luks1 = |more: &[&'static str]| [&["--type", "luks1"], CHEAP, more].concat();
    let luks2 = |more: &[&'static str]| [&["--type", "luks2"], more].concat();
    let cases = [
        luks1(&[]),
        luks1(&["--cipher", "aes-cbc-essiv:sha256", "--key-size", "256", "--hash", "sha1"]),
        luks1(&["--cipher", "aes-cbc-essiv:sha256", "--key-size", "128", "--hash", "sha512"]),
        luks1(&["--cipher", "aes-xts-plain", "--key-size", "256", "--hash", "ripemd160"]),
        luks1(&["--cipher", "aes-cbc-plain", "--key-size", "192", "--hash", "sha256"]),
        luks2(CHEAP_ARGON),
        luks2(&[CHEAP_ARGON, &["--pbkdf", "argon2i", "--sector-size", "4096"]].concat()),
        luks2(&[CHEAP, &["--pbkdf", "pbkdf2", "--hash", "sha384", "--key-size", "256"]].concat()),
        luks2(&[CHEAP_ARGON, &["--cipher", "aes-cbc-essiv:sha256", "--key-size", "192"]].concat()),
        luks2(&[CHEAP_ARGON, &["--cipher", "aes-cbc-plain64", "--key-size", "256"]].concat()),
        luks2(&[CHEAP_ARGON, &["--pbkdf-parallel", "4", "--label", "a label"]].concat()),
    ];
    for case in cases {
        let image = image(&case);
        let found = image.unlock("correct horse").unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(found.key.as_ref(), image.key(), "{case:?}");
        assert_eq!(found.slot, Some(0));
        assert_eq!(image.unlock("correct house").unwrap_err(), UnlockError::Wrong, "{case:?}");
        let header = image.header().unwrap();
        assert_eq!(check_key(&header, &found.key).unwrap().slot, None);
        let other = SecretBytes::zeros(found.key.as_ref().len());
        assert_eq!(check_key(&header, &other).unwrap_err(), UnlockError::Wrong);
    }
}

#[test]
fn every_slot_opens_with_its_own_passphrase() {
    for kind in [[&["--type", "luks1"], CHEAP].concat(), [&["--type", "luks2"], CHEAP_ARGON].concat()] {
        let image = image(&kind);
        let key = image.dir.path().join("first");
        std::fs::write(&key, "correct horse").unwrap();
        let last = if kind[1] == "luks1" { 7 } else { 31 };
        let slot = last.to_string();
        let add = ["luksAddKey", "--batch-mode", "--key-slot", &slot, "--key-file", key.to_str().unwrap()];
        let cheap = if last == 7 { CHEAP } else { CHEAP_ARGON };
        cryptsetup(&[&add[..], cheap].concat(), &image.path, "battery staple");
        assert_eq!(image.unlock("battery staple").unwrap().slot, Some(last));
        assert_eq!(image.unlock("correct horse").unwrap().slot, Some(0));
    }
}

#[test]
fn a_damaged_first_header_is_made_up_for_by_the_second() {
    let image = image(&[&["--type", "luks2"], CHEAP_ARGON].concat());
    let key = image.key();
    assert_eq!(image.header().unwrap().source, HeaderSource::First);
    for at in [5000, 500, 0] {
        image.damage(at);
        let header = image.header().unwrap();
        assert_eq!(header.source, HeaderSource::Second { at_bytes: 0x4000 }, "damaged at {at}");
        assert_eq!(image.unlock("correct horse").unwrap().key.as_ref(), key);
    }
    image.damage(0x4000 + 4096);
    assert!(image.header().is_err());
}

/// However a header is damaged, the key that comes out is right, or none does, and soon.
#[test]
fn damaged_headers_give_no_wrong_key() {
    for kind in [[&["--type", "luks1"], CHEAP].concat(), [&["--type", "luks2"], CHEAP_ARGON].concat()] {
        let image = image(&kind);
        let key = image.key();
        let whole = std::fs::read(&image.path).unwrap();
        let bytes = if kind[1] == "luks1" { 592 } else { 0x8000 };
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        let began = Instant::now();
        for _ in 0..500 {
            let mut damaged = whole[..4 << 20].to_vec();
            for _ in 0..1 + next() % 4 {
                let at = (next() % bytes) as usize;
                damaged[at] = next() as u8;
            }
            let read = |at: u64, len: usize| damaged.get(at as usize..at as usize + len).map(<[u8]>::to_vec);
            let Ok(header) = luks::read(&mut { read }) else { continue };
            let limits = UnlockLimits { memory_bytes: 64 << 20 };
            let is_cheap = header.slots.iter().all(|slot| match slot.kdf {
                luks::LuksKdf::Pbkdf2 { iterations, .. } => iterations < 1_000_000,
                luks::LuksKdf::Argon2 { time, .. } => time < 100,
                luks::LuksKdf::Unknown { .. } => true,
            }) && header.digests.iter().all(|digest| digest.iterations < 1_000_000);
            if !is_cheap {
                continue;
            }
            let mut area = |area: std::ops::Range<u64>| read(area.start, (area.end - area.start) as usize);
            if let Ok(found) = unlock(&header, b"correct horse", limits, &mut area) {
                assert_eq!(found.key.as_ref(), key);
            }
        }
        assert!(began.elapsed().as_secs() < 120, "{:?}", began.elapsed());
    }
}
