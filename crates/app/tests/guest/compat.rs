//! Linux 6.12 takes superblocks that state a logical block size for none, and takes them again once
//! `wattle compat` has been there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wattle_format::md::{SUPERBLOCK_BYTES, Version, identify, scan_component};

use crate::judge::Guest;
use crate::pattern::Pattern;
use crate::wattle;

/// Level, version of the metadata, members.
const ARRAYS: [(&str, &str, usize); 4] =
    [("1", "1.0", 2), ("5", "1.1", 3), ("6", "1.2", 4), ("10", "1.2", 4)];
const MEMBER_BYTES: u64 = 12 << 20;

/// States a block size where the member has its superblock, as Linux 6.19 does.
fn state(member: &Path) {
    let mut bytes = fs::read(member).expect("a member");
    let sectors = bytes.len() as u64 / 512;
    let place = scan_component(sectors).into_iter().find(|place| {
        place.version != Version::V090 && superblock_at(&bytes, place.offset_bytes, place.version)
    });
    let place = place.expect("a superblock");
    let at = place.offset_bytes as usize;
    let found = identify(place.version, &bytes[at..at + SUPERBLOCK_BYTES], sectors);
    let mut superblock = found.ok().flatten().expect("it is valid");
    superblock.set_logical_block_size(Some(512)).expect("metadata 1.x");
    bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(superblock.bytes());
    fs::write(member, bytes).expect("scratch space");
}

fn superblock_at(bytes: &[u8], at: u64, version: Version) -> bool {
    let at = at as usize;
    let sectors = bytes.len() as u64 / 512;
    bytes
        .get(at..at + SUPERBLOCK_BYTES)
        .is_some_and(|found| matches!(identify(version, found, sectors), Ok(Some(_))))
}

pub fn judge(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let dir = scratch.path();
    let (mut disks, mut lines): (Vec<PathBuf>, _) = (Vec::new(), String::new());
    for (level, metadata, count) in ARRAYS {
        let id = format!("raid{level}-{metadata}");
        let members: Vec<_> = (0..count).map(|member| dir.join(format!("{id}-{member}"))).collect();
        for member in &members {
            fs::File::create(member).and_then(|file| file.set_len(MEMBER_BYTES)).expect("scratch space");
        }
        let undo = dir.join("undo");
        let undo = undo.to_str().expect("utf-8");
        wattle(&["create", &id, "--level", level, "--metadata", metadata, "--undo", undo], &members);
        let sectors = wattle(&["cat"], &members).len() as u64 / 512;
        let content = Pattern::whole(disks.len() as u64).bytes(sectors);
        let plain = dir.join("plain");
        fs::write(&plain, &content).expect("scratch space");
        let runtime = dir.join("run");
        let copy = format!("nbdcopy '{}' \"$uri\"", plain.display());
        wattle(&["serve", "--runtime-dir", runtime.to_str().expect("utf-8"), "--run", &copy], &members);
        let sum = Command::new("sha256sum").arg(&plain).output().expect("sha256sum runs").stdout;
        let sum = String::from_utf8_lossy(&sum[..64]).into_owned();
        members.iter().for_each(|member| state(member));
        for (suffix, opens) in [("stated", "no"), ("taken-back", "yes")] {
            let first = disks.len();
            for member in &members {
                let copy = PathBuf::from(format!("{}.{suffix}", member.display()));
                fs::copy(member, &copy).expect("scratch space");
                disks.push(copy);
            }
            if opens == "yes" {
                wattle(&["compat", "--for", "6.12", "--undo", undo], &disks[first..]);
            }
            let numbers: Vec<_> = (first..disks.len()).map(|disk| disk.to_string()).collect();
            lines += &format!("{id}-{suffix} {opens} {sum} {}\n", numbers.join(" "));
        }
    }
    let asked = dir.join("compat.txt");
    fs::write(&asked, &lines).expect("scratch space");
    let judged = guest.run_with("compat", &[asked], &disks, &[]);
    assert_eq!(judged.len(), 2 * ARRAYS.len(), "{judged:?}");
    judged.iter().for_each(|(id, facts)| assert_eq!(facts["ok"], "1", "{id}: {facts:?}"));
}
