//! Volume groups that wattle lays out, on an array and on bare disks: LVM2 and the kernel take them
//! as their own, find every byte where wattle wrote it, and change them; wattle reads that back and
//! goes on.

#![allow(clippy::print_stderr, reason = "what is skipped is said loudly")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judge::{Facts, Guest};
use crate::pattern::Pattern;
use crate::wattle;

const EXTENT_SECTORS: u64 = 2048;

/// The disks of the guest, by number: four with an array, three bare ones in a group, one that was.
struct Room {
    dir: tempfile::TempDir,
    disks: Vec<PathBuf>,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("scratch space");
        let sizes = [160, 160, 160, 160, 48, 48, 40, 48];
        let disks: Vec<_> =
            sizes.iter().enumerate().map(|(disk, _)| dir.path().join(format!("d{disk}"))).collect();
        for (disk, mib) in disks.iter().zip(sizes) {
            File::create(disk).and_then(|file| file.set_len(mib << 20)).expect("scratch space");
        }
        Self { dir, disks }
    }

    fn array(&self) -> &[PathBuf] {
        &self.disks[..4]
    }

    fn bare(&self) -> &[PathBuf] {
        &self.disks[4..7]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A change, with the backups of what it replaces in the scratch space.
    fn change(&self, words: &str, members: &[PathBuf]) {
        let backups = self.path("backups");
        let words = words.split(' ').chain(["--backup-dir", text(&backups)]);
        wattle(&words.collect::<Vec<_>>(), members);
    }

    /// Serves a volume, by NBD or as a file, while a script runs.
    fn serve(&self, volume: &str, export: &str, script: &str, members: &[PathBuf]) {
        let runtime = self.path("run");
        let script = format!("set -e; {script}");
        let args = ["serve", "-V", volume, "--export", export, "--runtime-dir", text(&runtime)];
        wattle(&[&args[..], &["--run", &script]].concat(), members);
    }

    fn fill(&self, volume: &str, extents: u64, seed: u64, members: &[PathBuf]) {
        let content = self.path("content");
        let bytes = Pattern::whole(seed).bytes(extents * EXTENT_SECTORS);
        fs::write(&content, bytes).expect("scratch space");
        let export = format!("nbd=unix:{}", self.path("nbd").display());
        self.serve(volume, &export, &format!("nbdcopy --flush {} \"$uri\"", content.display()), members);
    }

    fn check(&self, volume: &str, extents: u64, layers: &str, members: &[PathBuf]) {
        let bytes = wattle(&["cat", "-V", volume], members);
        let expected = Pattern::parse(layers).bytes(extents * EXTENT_SECTORS);
        assert_eq!(bytes.len(), expected.len(), "{volume}: size");
        let wrong = bytes.chunks(512).zip(expected.chunks(512)).position(|(found, wanted)| found != wanted);
        assert_eq!(wrong, None, "{volume}: a sector that differs");
    }

    /// An XFS with the file `/proof` on it, made on the volume as a file, with the geometry of the
    /// array; its checksum.
    fn make_file_system(&self) -> String {
        let (proof, prototype, mount) = (self.path("proof"), self.path("prototype"), self.path("mount"));
        fs::write(&proof, Pattern::whole(77).bytes(6001)).expect("scratch space");
        let description = format!("x\n0 0\nd--755 0 0\nproof ---644 0 0 {}\n$\n", proof.display());
        fs::write(&prototype, description).expect("scratch space");
        fs::create_dir(&mount).expect("scratch space");
        // (One of this size has allocation groups that are too small by default.)
        let make = format!("mkfs.xfs -q -f -d su=64k,sw=3,agcount=4 -p {} \"$file\"", prototype.display());
        self.serve("depot/fs", &format!("fuse={}", mount.display()), &make, self.array());
        sum(&proof)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

fn sum(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("sha256sum runs");
    String::from_utf8_lossy(&output.stdout).split(' ').next().expect("a sum").to_owned()
}

/// On RAID 5: two linear volumes, one of them in two pieces, after every change that there is.
fn lay_out_on_the_array(room: &Room) {
    let array = room.array();
    wattle(&["create", "nas", "--level", "5", "--chunk", "64K", "--assume-clean"], array);
    for words in [
        "vg create tank -s 1M",
        "lv create tank/fs -L 400M",
        "lv create tank/home -l 8",
        "lv create tank/gone -l 4",
        "lv extend tank/home -l +4",
        "lv remove tank/gone",
        "lv reduce tank/home -l -2",
        "lv rename tank/home house",
        "vg rename tank depot",
    ] {
        room.change(words, array);
    }
}

/// On bare disks: stripes in two pieces around a linear volume, which then moves; of the disks one
/// grew, and another one came, held a part of the stripes for a while, and went.
fn lay_out_on_disks(room: &Room) {
    let (bare, all) = (room.bare(), &room.disks[4..]);
    let second = format!("--on {}", text(&bare[1]));
    let (third, last) = (format!("--on {}", text(&bare[2])), format!("--on {}", text(&all[3])));
    room.change("pv create", &bare[..1]);
    room.change("vg create bare -s 1M", bare);
    room.change("lv create bare/striped -i 3 -I 64K -l 12", bare);
    room.change(&format!("lv create bare/line -l 10 {second}"), bare);
    room.change("lv extend bare/striped -l +6", bare);
    room.change("vg extend bare", all);
    room.change(&format!("lv move bare/line --from {} --on {}", text(&bare[1]), text(&bare[2])), all);
    room.change(&format!("lv move bare/striped --from {} {last}", text(&bare[0])), all);
    room.change(&format!("lv move bare --from {} --on {}", text(&all[3]), text(&bare[0])), all);
    room.change(&format!("lv create bare/last -l 100%FREE {last}"), all);
    room.change("lv remove bare/last", all);
    room.change(&format!("vg reduce bare {last}"), all);
    room.change("pv remove", &all[3..]);
    File::options().write(true).open(&bare[2]).and_then(|file| file.set_len(48 << 20)).expect("space");
    room.change(&format!("pv resize {third}"), bare);
}

pub fn judge(guest: &Guest) {
    if !Path::new("/dev/fuse").exists() {
        assert!(std::env::var_os("CI").is_none(), "no /dev/fuse, and in CI nothing is skipped");
        eprintln!("SKIPPED, NOT TESTED: no /dev/fuse");
        return;
    }
    let room = Room::new();
    lay_out_on_the_array(&room);
    lay_out_on_disks(&room);
    let proof = room.make_file_system();
    room.fill("depot/house", 10, 301, room.array());
    room.fill("bare/striped", 18, 302, room.bare());
    room.fill("bare/line", 10, 303, room.bare());

    let cases = room.path("groups.txt");
    let lines = [
        "array 0 1 2 3".to_owned(),
        "group depot".to_owned(),
        "group bare".to_owned(),
        format!("depot/fs xfs={proof}"),
        "depot/house pattern=301 extend=3 write=401:20000:4000".to_owned(),
        "bare/striped pattern=302 extend=3 write=402:30000:12000".to_owned(),
        "bare/line pattern=303 write=403:1:20479".to_owned(),
    ];
    fs::write(&cases, lines.join("\n") + "\n").expect("scratch space");
    let found = guest.run_with("check-groups", &[cases], &room.disks, &[]);
    assert_eq!(found.values().filter(|facts| facts["ok"] == "yes").count(), lines.len(), "{found:?}");
    let laid_out = |volume: &str, table: &str, segments: &str| {
        let facts: &Facts = &found[volume];
        assert_eq!((&*facts["table"], &*facts["segments"]), (table, segments), "{volume}");
    };
    // The array's data starts at 1152 KiB, behind six whole stripes.
    laid_out("depot/fs", "0_819200_linear_md0_2304", "linear_1_0_0_/dev/md0:0-399");
    laid_out(
        "depot/house",
        "0_16384_linear_md0_821504;16384_4096_linear_md0_846080",
        "linear_1_0_0_/dev/md0:400-407;linear_1_0_8_/dev/md0:412-413",
    );
    laid_out(
        "bare/striped",
        "0_24576_striped_3_128_vde_2048_vdf_2048_vdg_2048;24576_12288_striped_3_128_vde_10240_vdf_30720_vdg_10240",
        "striped_3_64.00k_0_/dev/vde:0-3_/dev/vdf:0-3_/dev/vdg:0-3;striped_3_64.00k_12_/dev/vde:4-5_/dev/vdf:14-15_/dev/vdg:4-5",
    );
    laid_out("bare/line", "0_20480_linear_vdg_14336", "linear_1_0_0_/dev/vdg:6-15");

    room.check("depot/house", 13, "301:0:20480,401:20000:4000", room.array());
    room.check("bare/striped", 21, "302:0:36864,402:30000:12000", room.bare());
    room.check("bare/line", 10, "303,403:1:20479", room.bare());
    for (file, sum) in [("proof", &proof), ("theirs", &found["depot/fs"]["theirs"])] {
        let copy = room.path("copy");
        let path = format!("/{file}");
        let bytes = wattle(&["get", "-V", "depot/fs", "--path", &path, "--to", "-"], room.array());
        fs::write(&copy, bytes).expect("scratch space");
        assert_eq!(&self::sum(&copy), sum, "{file}");
    }
    // And wattle goes on from there.
    room.change("lv extend depot/house -l +2", room.array());
    room.change("lv reduce bare/striped -l 18", room.bare());
    room.check("bare/striped", 18, "302:0:36864,402:30000:6864", room.bare());
    let bytes = wattle(&["cat", "-V", "depot/house"], &room.array()[1..]);
    assert_eq!(bytes.len() as u64, 15 * EXTENT_SECTORS * 512);
    let known = 20480 * 512;
    assert!(bytes[..known] == Pattern::parse("301,401:20000:480").bytes(20480)[..], "without a member");
}
