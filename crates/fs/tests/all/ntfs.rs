//! NTFS: what is damaged, or stands for what is elsewhere, is told.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{image, pattern, program, run, unmount};
use tempfile::TempDir;
use wattle_fs::{Error, FileSystem, resolve};

/// An image that ntfs-3g filled. `None`, said loudly, where that cannot be.
fn filled(dir: &TempDir, work: impl FnOnce(&Path)) -> Option<PathBuf> {
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    let path = image(dir, "ntfs", 40 << 20);
    run(program("mkntfs").args(["-q", "-F", "-Q"]).arg(&path))?;
    run(program("ntfs-3g").args(["-o", "compression,streams_interface=xattr"]).arg(&path).arg(&at))?;
    work(&at);
    assert!(unmount(&at));
    // The program ends on its own, once everything is written.
    let runs = || program("pgrep").arg("-f").arg(&at).output().unwrap().status.success();
    for _ in 0..1500 {
        if !runs() {
            return Some(path);
        }
        #[allow(clippy::disallowed_methods, reason = "what is waited for is another program")]
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it does not end");
}

fn opened(bytes: Vec<u8>) -> Box<dyn FileSystem> {
    wattle_fs::open(Box::new(bytes), None).unwrap()
}

/// What comes of reading all of a file.
fn read(fs: &dyn FileSystem, path: &str) -> Result<Vec<u8>, Error> {
    let node = resolve(fs, path.as_bytes())?;
    let mut bytes = vec![0; fs.metadata(node)?.size_bytes as usize];
    fs.read(node, 0..u64::MAX, &mut |at, part| {
        bytes[at as usize..at as usize + part.len()].copy_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

/// Gives a file a reparse point: that of Microsoft's tags has no GUID.
fn reparse(file: &Path, tag: u32) {
    let guid: &[u8] = if tag & 0x8000_0000 == 0 { &[7; 16] } else { &[] };
    let value = [&tag.to_le_bytes(), &[4, 0, 0, 0][..], guid, &[1, 0, 0, 0]].concat();
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let attribute = ["-h", "-n", "system.ntfs_reparse_data", "-v", &format!("0x{hex}")];
    run(program("setfattr").args(attribute).arg(file)).unwrap();
}

/// A file that stands for data elsewhere is an error, and never the zeros that are in its place.
#[test]
fn data_that_is_elsewhere_is_never_zeros() {
    const KNOWN: [u32; 11] = [
        0x8000_0006,
        0x8000_0007,
        0x8000_0013,
        0x8000_0017,
        0x8000_0018,
        0x8000_001e,
        0x8000_0021,
        0x9000_001c,
        0x9000_1018,
        0x9000_601a,
        0xc000_0004,
    ];
    const UNKNOWN: [u32; 3] = [0x12, 0x8000_0fff, 0x9000_0fff];
    let dir = tempfile::tempdir().unwrap();
    let whole = pattern(3, 100_000);
    let made = filled(&dir, |at| {
        for tag in KNOWN.into_iter().chain(UNKNOWN) {
            let file = at.join(format!("sparse {tag:08x}"));
            fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
            reparse(&file, tag);
        }
        for tag in UNKNOWN {
            let file = at.join(format!("whole {tag:08x}"));
            fs::write(&file, &whole).unwrap();
            reparse(&file, tag);
            let file = at.join(format!("offline {tag:08x}"));
            fs::write(&file, &whole).unwrap();
            reparse(&file, tag);
            let offline = ["-h", "-n", "system.ntfs_attrib_be", "-v", "0x00001020"];
            run(program("setfattr").args(offline).arg(&file)).unwrap();
        }
    });
    let Some(path) = made else { return };
    let fs = opened(fs::read(path).unwrap());
    for tag in KNOWN {
        let found = read(&*fs, &format!("/sparse {tag:08x}"));
        assert!(matches!(found, Err(Error::Unsupported { .. })), "{tag:08x}: {found:?}");
    }
    for tag in UNKNOWN {
        for kind in ["sparse", "offline"] {
            let found = read(&*fs, &format!("/{kind} {tag:08x}")).unwrap_err();
            assert!(found.to_string().contains(&format!("{tag:#010x}")), "{kind} {tag:08x}: {found}");
        }
        assert!(read(&*fs, &format!("/whole {tag:08x}")).unwrap() == whole, "{tag:08x}");
    }
}
