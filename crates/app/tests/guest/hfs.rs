//! HFS+ and HFSX that Linux fills: what is listed and what comes out is what it shows.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wattle_fs::{FileKind, FileMetadata, FileSystem, FsNode};

use crate::cuts::taken_out;
use crate::judge::Guest;
use crate::wattle;

#[allow(dead_code, reason = "empty volumes are a part of it")]
#[path = "../../../fs/tests/all/common/hfs.rs"]
mod made;

/// Attributes that the guest sets; what is not of Linux is the user's when it comes out.
const ATTRIBUTES: [(&str, &str); 5] = [
    ("user.plain", "user.plain"),
    ("user.binary", "user.binary"),
    ("user.long", "user.long"),
    ("trusted.ours", "trusted.ours"),
    ("osx.com.apple.quarantine", "user.com.apple.quarantine"),
];

pub fn judge(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks: Vec<PathBuf> = (0..3).map(|disk| scratch.path().join(format!("disk{disk}"))).collect();
    // Blocks of 1 KiB come to lie in more pieces.
    let volumes = [
        made::Volume::new(12_000, 4096).build(),
        made::Volume::new(48_000, 1024).case_sensitive().build(),
        made::wrapped(&made::Volume::new(12_000, 4096).build()),
    ];
    for (disk, volume) in disks.iter().zip(volumes) {
        std::fs::write(disk, volume).expect("scratch space");
    }
    let shown = guest.run_with("hfs", &[], &disks, &[]);
    for (number, disk) in disks.iter().enumerate() {
        let there = lines_of(&shown[&format!("disk-{number}")]["manifest"]);
        let here = lines_here(disk);
        let differs: Vec<_> = here.symmetric_difference(&there).take(10).collect();
        assert!(differs.is_empty(), "disk {number}: {differs:#?}");
        assert!(there.len() > 1000, "{} lines", there.len());
        assert!(pieces(disk, b"pieces-c") > 8, "disk {number}: no extents beside those of the file");
        // The same files by the commands.
        let taken = taken_out(disk, scratch.path());
        assert_eq!(taken.report["exit"]["status"], 0, "{:#}", taken.report);
        let is_sum = |line: &&String| line.as_bytes().get(64..66) == Some(b"  ");
        let sums = |lines: &BTreeSet<String>| lines.iter().filter(is_sum).cloned().collect::<BTreeSet<_>>();
        assert!(sums(&taken.here) == sums(&there), "disk {number}: other files come out");
        let listed = wattle(&["ls", "-R", "--json"], std::slice::from_ref(disk));
        let listed: serde_json::Value = serde_json::from_slice(&listed).expect("JSON");
        assert_eq!(listed["file_system"]["kind"], "hfsplus");
    }
}

fn lines_of(hex: &str) -> BTreeSet<String> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    String::from_utf8_lossy(&bytes).lines().map(Into::into).collect()
}

/// In how many pieces a file lies.
fn pieces(disk: &Path, path: &[u8]) -> usize {
    let image = std::fs::read(disk).expect("the disk is there");
    let fs = wattle_fs::open(Box::new(image), None).expect("a file system");
    let mut count = 0;
    fs.runs(wattle_fs::resolve(&*fs, path).expect("a file"), &mut |_| {
        count += 1;
        Ok(())
    })
    .expect("its map");
    count
}

/// What is on a volume, in lines as the guest writes them.
fn lines_here(disk: &Path) -> BTreeSet<String> {
    let image = std::fs::read(disk).expect("the disk is there");
    let fs = wattle_fs::open(Box::new(image), None).expect("a file system");
    assert_eq!(fs.about().notes, [], "it was unmounted");
    let mut lines = BTreeSet::new();
    let mut left = vec![(String::from("."), fs.root())];
    while let Some((path, node)) = left.pop() {
        let metadata = fs.metadata(node).expect("metadata");
        if path != "." {
            lines.extend(lines_of_node(&*fs, &path, node, &metadata));
        }
        if metadata.kind == FileKind::Directory {
            fs.list(node, &mut |entry| {
                left.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.node));
                Ok(())
            })
            .expect("a list");
        }
    }
    lines
}

fn lines_of_node(fs: &dyn FileSystem, path: &str, node: FsNode, metadata: &FileMetadata) -> Vec<String> {
    let FileMetadata { mode, uid, gid, links, size_bytes, .. } = *metadata;
    let rights = format!("{path} {mode:o} {uid}:{gid}");
    let all = format!("{rights} {links} {size_bytes} {}", metadata.modified.seconds);
    let device = metadata.device.map_or("0:0".to_owned(), |at| format!("{:x}:{:x}", at.major, at.minor));
    let mut lines = match metadata.kind {
        FileKind::Directory => vec![format!("d {rights}")],
        FileKind::Symlink => {
            let target = fs.link(node).expect("a target");
            vec![format!("l {all}"), format!("to {}", String::from_utf8_lossy(&target))]
        }
        FileKind::File => {
            let mut digest = Sha256::new();
            fs.read(node, 0..u64::MAX, &mut |_, bytes| {
                digest.update(bytes);
                Ok(())
            })
            .expect("its data");
            vec![format!("f {all}"), format!("{}  {path}", hex(&digest.finalize()))]
        }
        FileKind::CharDevice => vec![format!("character special file {rights} {device}")],
        FileKind::BlockDevice => vec![format!("block special file {rights} {device}")],
        FileKind::Fifo => vec![format!("fifo {rights} {device}")],
        FileKind::Socket => vec![format!("socket {rights}")],
    };
    let names = fs.attributes(node).expect("attributes");
    for (there, here) in ATTRIBUTES {
        if names.iter().any(|name| name == here.as_bytes()) {
            let value = fs.attribute(node, here.as_bytes()).expect("a value");
            lines.push(format!("x {path} {there}=0x{}", hex(&value)));
        }
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
