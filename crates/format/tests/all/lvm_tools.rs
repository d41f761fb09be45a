//! LVM2's own tools as judges: what is written here they accept, and what they make of it is read
//! back.
//!
//! `pvck` takes plain files. `vgs`, `lvs` and `lvcreate` want block devices, so they need root and
//! a loop device, and no device-mapper: nothing is activated. What cannot run here is skipped,
//! loudly.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wattle_format::lvm::area::Header;
use wattle_format::lvm::label::{Extension, SCAN_BYTES};
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Id, Image, Label, Lv, LvSegment, Pv, RAID_TYPES, Raid, SegmentKind, Stamp, Vg};

const DEVICE_BYTES: u64 = 64 << 20;
const EXTENT_SECTORS: u64 = 2048;

fn id(seed: u8) -> Id {
    Id::from_random(std::array::from_fn(|i| seed.wrapping_mul(37).wrapping_add(i as u8)))
}

fn stamp() -> Stamp {
    Stamp { description: "a \"test\" \\ of it".to_owned(), host: "here".to_owned(), time: 1_795_324_924 }
}

/// Whether to go on with a test that needs LVM2.
fn installed() -> bool {
    // A processor's emulator starts what is not there, too: only the exit status says so.
    let found = Command::new("lvm").arg("version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "lvm2 is not installed, and this is CI");
        eprintln!("SKIPPED: lvm2 is not installed; scripts/deps installs it");
    }
    found
}

/// A directory of this test's own with a PV in a file.
struct Rig {
    directory: TempDir,
    device: File,
}

impl Rig {
    fn new() -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let device = options.open(directory.path().join("pv")).unwrap();
        device.set_len(DEVICE_BYTES).unwrap();
        let mut label = Label::create(id(1), DEVICE_BYTES, 192 << 10).unwrap();
        label.extension = Some(Extension::new(true));
        device.write_all_at(&label.encode().unwrap(), 512).unwrap();
        let area = label.metadata_areas[0];
        device.write_all_at(Header::new(area).unwrap().bytes(), area.offset_bytes).unwrap();
        Rig { directory, device }
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.device.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn label(&self) -> Label {
        Label::find(&self.read(0, SCAN_BYTES)).unwrap().unwrap()
    }

    fn header(&self) -> Header {
        let area = self.label().metadata_areas[0];
        Header::decode(&self.read(area.offset_bytes, 512), area).unwrap()
    }

    fn vg(&self) -> Vg {
        let header = self.header();
        let location = header.committed().unwrap();
        let ranges = header.ranges(&location).unwrap();
        let pieces: Vec<_> =
            ranges.iter().map(|r| self.read(r.offset_bytes, r.size_bytes as usize)).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        Vg::parse(&header.text(&location, &pieces).unwrap()).unwrap()
    }

    fn commit(&self, vg: &Vg) {
        assert_eq!(vg.problems(), []);
        let header = self.header();
        let commit = header.commit(&vg.to_text(&stamp())).unwrap();
        commit.texts.iter().for_each(|(at, bytes)| self.device.write_all_at(bytes, *at).unwrap());
        for step in [commit.precommit, commit.commit] {
            self.device.write_all_at(step.bytes(), header.start()).unwrap();
        }
        self.device.sync_all().unwrap();
    }

    /// Runs an LVM2 command that sees only `device`; it must succeed.
    fn lvm(&self, device: &str, arguments: &[&str]) -> String {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let config = format!(
            "devices {{ filter=[\"a|^{device}$|\",\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 }}\n\
             global {{ locking_dir=\"{}\" use_lvmpolld=0 }}\nactivation {{ udev_sync=0 udev_rules=0 }}\n\
             backup {{ backup=0 archive=0 }}\n",
            text(self.directory.path().join("lock"))
        );
        fs::write(self.directory.path().join("lvm.conf"), config).unwrap();
        let mut command = Command::new("lvm");
        command
            .env("LVM_SYSTEM_DIR", text(self.directory.path().to_owned()))
            .env("LVM_SUPPRESS_FD_WARNINGS", "1");
        let output = command.args(arguments).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {}\n{stdout}{stderr}", output.status);
        assert!(!stderr.contains("WARNING: Inconsistent") && !stderr.contains("CHECK"), "{stderr}");
        stdout.into_owned()
    }
}

/// A loop device, given back when the test ends.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Loop(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
            }
            _ => {
                eprintln!("SKIPPED: no loop device here (not root?)");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A linear LV in two pieces, and a raid1 with its parts.
fn vg(rig: &Rig) -> Vg {
    let mut vg = Vg::new("made", id(2), EXTENT_SECTORS);
    let label = rig.label();
    let pe_start = label.data_areas[0].offset_bytes / 512;
    vg.pvs.push(Pv::new("pv0", label.id, DEVICE_BYTES / 512, pe_start, label.pe_count(EXTENT_SECTORS)));
    vg.tags.push("a/tag".to_owned());
    let linear = vec![LvSegment::linear(0, 4, "pv0", 10), LvSegment::linear(4, 2, "pv0", 0)];
    vg.lvs.push(Lv::new("plain", id(3), &stamp(), linear));
    let stripes = [20, 30].map(|extent| Stripe { name: "pv0".to_owned(), extent }).to_vec();
    let striped = LvSegment::new(0, 4, SegmentKind::Striped { stripe_sectors: 128, stripes });
    vg.lvs.push(Lv::new("striped", id(4), &stamp(), vec![striped]));
    let images = [0, 1].map(|n| Image { meta: Some(format!("r_rmeta_{n}")), data: format!("r_rimage_{n}") });
    let raid = Raid {
        raid_type: RAID_TYPES[2],
        stripe_sectors: None,
        region_sectors: Some(4096),
        data_copies: None,
        data_offset_sectors: None,
        reserve_extents: None,
        images: images.to_vec(),
    };
    vg.lvs.push(Lv::new("r", id(5), &stamp(), vec![LvSegment::new(0, 3, SegmentKind::Raid(raid))]));
    for (n, image) in images.iter().enumerate() {
        let at = 40 + 5 * n as u64;
        let parts = [(image.meta.clone().unwrap(), 1, at), (image.data.clone(), 3, at + 1)];
        for (k, (name, extents, extent)) in parts.into_iter().enumerate() {
            let mut lv = Lv::new(&name, id(6 + 2 * n as u8 + k as u8), &stamp(), vec![]);
            lv.segments.push(LvSegment::linear(0, extents, "pv0", extent));
            lv.status.retain(|word| word != "VISIBLE");
            vg.lvs.push(lv);
        }
    }
    vg
}

#[test]
fn pvck_finds_nothing_wrong() {
    if !installed() {
        return;
    }
    let rig = Rig::new();
    let vg = vg(&rig);
    // Enough commits for the ring to go around.
    let (mut vg, text) = (vg.clone(), vg.to_text(&stamp()));
    for _ in 0..2 * rig.header().size() as usize / text.len() {
        vg = vg.next().unwrap();
        rig.commit(&vg);
    }
    let file = rig.directory.path().join("pv").to_str().unwrap().to_owned();
    let dumped = rig.lvm(&file, &["pvck", "--dump", "metadata", &file]);
    let dumped = dumped.split("  ---").nth(1).unwrap();
    assert_eq!(Vg::parse(dumped.as_bytes()).unwrap(), rig.vg());
    assert_eq!(rig.vg().seqno, vg.seqno);
    let headers = rig.lvm(&file, &["pvck", "--dump", "headers", &file]);
    assert!(headers.contains("pv_header.device_size 67108864"), "{headers}");
    assert!(!headers.contains("invalid") && !headers.contains("CHECK"), "{headers}");
}

/// LVM2 reads the VG made here, adds a volume; that is read back, changed once more, and LVM2 reads
/// it again.
#[test]
fn lvm_goes_on_with_it_and_we_with_theirs() {
    if !installed() {
        return;
    }
    let rig = Rig::new();
    rig.commit(&vg(&rig));
    let Some(device) = Loop::new(&rig.directory.path().join("pv")) else { return };
    let lines = |arguments: &[&str]| {
        let mut lines: Vec<String> = rig
            .lvm(&device.0, arguments)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort();
        lines
    };
    let vgs = [
        "vgs",
        "--noheadings",
        "--units",
        "s",
        "-o",
        "vg_name,vg_seqno,vg_extent_count,vg_free_count,vg_tags",
    ];
    assert_eq!(lines(&vgs), ["made 1 62 44 a/tag"]);
    let lvs = ["lvs", "-a", "--noheadings", "-o", "lv_name,segtype,seg_size_pe,seg_pe_ranges"];
    let expected = [
        "[r_rimage_0] linear 3 /LOOP:41-43",
        "[r_rimage_1] linear 3 /LOOP:46-48",
        "[r_rmeta_0] linear 1 /LOOP:40-40",
        "[r_rmeta_1] linear 1 /LOOP:45-45",
        "plain linear 2 /LOOP:0-1",
        "plain linear 4 /LOOP:10-13",
        "r raid1 3 r_rimage_0:0-2 r_rimage_1:0-2",
        "striped striped 4 /LOOP:20-21 /LOOP:30-31",
    ];
    assert_eq!(lines(&lvs), expected.map(|line| line.replace("/LOOP", &device.0)));

    let create =
        ["lvcreate", "--driverloaded", "n", "-an", "-Zn", "-Wn", "-y", "-l", "9", "-n", "theirs", "made"];
    rig.lvm(&device.0, &create);
    let theirs = rig.vg();
    assert_eq!((theirs.seqno, theirs.problems()), (2, vec![]));
    assert_eq!(theirs.lv("theirs").unwrap().extents(), 9);
    assert_eq!(theirs.lv("r").unwrap().segments[0].kind, vg(&rig).lv("r").unwrap().segments[0].kind);

    let mut ours = theirs.next().unwrap();
    let free = ours.free_extents("pv0").into_iter().next_back().unwrap();
    let segment = LvSegment::linear(9, 1, "pv0", free.start);
    ours.lvs.iter_mut().find(|lv| lv.name == "theirs").unwrap().segments.push(segment);
    rig.commit(&ours);
    assert_eq!(lines(&vgs), ["made 3 62 34 a/tag"]);
    rig.lvm(&device.0, &["vgck", "made"]);
}
