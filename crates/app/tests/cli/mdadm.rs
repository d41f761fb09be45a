//! `examine --format` against mdadm itself, byte by byte: of members that a real kernel wrote, of
//! what `create` makes, and of superblocks of which any fields were changed. (What the kernel makes
//! of every state, and arrays that run, are compared in the guest.)

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use wattle_format::md::{self, Version};
use wattle_rt::Rng;

use crate::harness::{Room, fixtures, require, run, said, tool, wattle};

/// Formats, and what mdadm is asked for the same.
const FORMATS: [(&str, &[&str]); 4] = [
    ("mdadm", &["--examine"]),
    ("export", &["--examine", "--export"]),
    ("scan", &["--examine", "--scan"]),
    ("scan-verbose", &["--examine", "--scan", "-v"]),
];

/// Compares all that is printed of `members`, in a zone that is not the machine's.
#[track_caller]
fn same(what: &str, members: &[String]) {
    same_as(what, members, &FORMATS);
}

#[track_caller]
fn same_as(what: &str, members: &[String], formats: &[(&str, &[&str])]) {
    for (format, asked) in formats {
        let theirs = Command::new("mdadm").args(*asked).args(members).env("TZ", ZONE).output().unwrap();
        let args = ["examine", "--format", *format];
        let ours = said(wattle().args(args).args(members).env("TZ", ZONE).output().unwrap());
        let theirs_text = String::from_utf8_lossy(&theirs.stdout);
        let differs = theirs_text.lines().zip(ours.text().lines()).position(|(theirs, ours)| theirs != ours);
        if let Some(at) = differs {
            let from = at.saturating_sub(30);
            let part = |text: &str| text.lines().skip(from).take(40).collect::<Vec<_>>().join("\n");
            panic!("{what}, {format}: mdadm:\n{}\nwattle:\n{}", part(&theirs_text), part(ours.text()));
        }
        assert_eq!(theirs_text, ours.text(), "{what}, {format}");
        assert_eq!(theirs.status.code(), Some(ours.status), "{what}, {format}: {}", ours.stderr);
    }
}

/// West of Greenwich, as C's library takes it without a file.
const ZONE: &str = "XST5:30";

#[test]
fn members_that_a_kernel_wrote_look_as_mdadm_shows_them() {
    if !require("mdadm") || !require("zstd") {
        return;
    }
    let mut compared = 0;
    for folder in fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()) {
        let room = Room::new();
        let mut members = Vec::new();
        for ix in 0..11 {
            let packed = folder.join(format!("member-{ix}.img.zst"));
            if packed.exists() {
                let image = room.name(&format!("member-{ix}.img"));
                tool("zstd", ["-dq", packed.to_str().unwrap(), "-o", &image]);
                members.push(image);
            }
        }
        if !members.is_empty() {
            same(&folder.display().to_string(), &members);
            // In another order, and one alone.
            members.reverse();
            same(&folder.display().to_string(), &members);
            same(&folder.display().to_string(), &members[..1]);
            compared += members.len();
        }
    }
    assert!(compared > 40, "{compared} members");
}

#[test]
fn what_create_makes_looks_as_mdadm_shows_it() {
    if !require("mdadm") {
        return;
    }
    let arrays: [(&str, &[&str], usize); 22] = [
        ("data", &["--level", "linear"], 2),
        ("data", &["--level", "0"], 3),
        ("data", &["--level", "0", "--chunk", "48K"], 3),
        ("data", &["--level", "1"], 2),
        ("data", &["--level", "1", "--bitmap", "none"], 3),
        ("0", &["--level", "1", "--metadata", "0.90"], 2),
        ("7", &["--level", "5", "--metadata", "0.90", "--spares", "1"], 4),
        ("3", &["--level", "0", "--metadata", "0.90"], 3),
        ("3", &["--level", "linear", "--metadata", "0.90"], 3),
        ("2", &["--level", "10", "--layout", "f2", "--metadata", "0.90"], 4),
        ("data", &["--level", "1", "--metadata", "1.0"], 2),
        ("data", &["--level", "1", "--metadata", "1.1", "--write-mostly", "member-1"], 2),
        ("data", &["--level", "4"], 3),
        ("data", &["--level", "5", "--layout", "ra", "--chunk", "4K"], 3),
        ("data", &["--level", "5", "--consistency", "ppl"], 3),
        ("data", &["--level", "5", "--consistency", "ppl", "--metadata", "1.0"], 3),
        ("other:x.y", &["--level", "6", "--bitmap-chunk", "4K"], 5),
        ("a b", &["--level", "6", "--layout", "ddf-N-restart", "--spares", "1"], 5),
        ("it's", &["--level", "10", "--layout", "n2"], 4),
        ("data", &["--level", "10", "--layout", "o2", "--spares", "2"], 5),
        ("data", &["--level", "5", "--data-offset", "3M", "--size", "5001K"], 3),
        ("data", &["--level", "5", "--metadata", "1.0", "--bitmap", "internal"], 3),
    ];
    let mut all = Vec::new();
    let rooms: Vec<_> = arrays.iter().map(|_| Room::new()).collect();
    for ((name, args, count), room) in arrays.into_iter().zip(&rooms) {
        // Not all of one size.
        let members = room.blank(count, 16 << 20);
        File::options().write(true).open(&members[0]).unwrap().set_len(17 << 20).unwrap();
        let own = |arg: &&str| if *arg == "member-1" { members[1].clone() } else { (*arg).to_owned() };
        let args = args.iter().map(own);
        let head = ["create".to_owned(), name.to_owned()];
        run(head.into_iter().chain(members.clone()).chain(args)).ok();
        same(&format!("{name}, {count} members"), &members);
        all.extend(members);
    }
    same("all together", &all);
}

#[test]
fn what_has_no_superblock_is_no_member() {
    if !require("mdadm") {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    let blank = room.device("blank", 1 << 20);
    let empty = room.device("empty", 0);
    // A drive that is partitioned in the old way.
    let mut sector = [0; 512];
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector[446..462].copy_from_slice(&[0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 8, 0, 0, 0, 0x28, 0, 0]);
    sector[494..510].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0xff]);
    let old = room.device("old", 8 << 20);
    File::options().write(true).open(&old).unwrap().write_all_at(&sector, 0).unwrap();
    same("partitioned", std::slice::from_ref(&old));
    let among = [members[0].clone(), blank.clone(), old, members[1].clone()];
    same("with strangers", &among);

    let all = [members[0].as_str(), &blank, &empty, "/nowhere"];
    let shown = run(["examine", "--format", "export"].into_iter().chain(all));
    assert_eq!(shown.text().matches("MD_LEVEL=raid1").count(), 1);
    let shown = shown.failed(1, "WTL-0265", &[&blank, &empty, "/nowhere"]);
    assert!(!shown.stderr.contains(&members[0]), "{}", shown.stderr);
    let shown = run(["examine", "--format", "scan"].into_iter().chain([blank.as_str()])).ok();
    assert_eq!(shown.text(), "");
    let both = run(["examine", "--format", "scan", "--json", blank.as_str()]);
    assert!(both.status == 2 && both.stderr.contains("--json"), "{}", both.stderr);
}

/// Any fields of a superblock, changed as one seed says.
struct Changed<'a> {
    rng: Rng,
    host: &'a str,
    bytes: Vec<u8>,
    /// Where it lies on a member of this size.
    version: Version,
    size_sectors: u64,
    bitmap_sectors: Option<i32>,
}

impl Changed<'_> {
    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.rng.below(values.len() as u64) as usize]
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&bytes);
    }

    fn features(&mut self, set: u32) {
        let now = u32::from_le_bytes(*self.bytes[8..].first_chunk().unwrap());
        self.put(8, (now | set).to_le_bytes());
    }

    fn sectors(&mut self) -> u64 {
        let most = self.one_of(&[1 << 15, 1 << 22, 1 << 33, 1 << 40]);
        let any = self.rng.below(most);
        self.one_of(&[0, 1, 100, 9_999, 10_000, 14_335, 14_336, any, any])
    }

    /// One field of a superblock 1.x (docs/formats.md §1.2).
    fn field_of_1(&mut self) {
        let level = i32::from_le_bytes(*self.bytes[72..].first_chunk().unwrap());
        match self.rng.below(22) {
            0 => {
                let bit = self.one_of(&[0x8, 0x10, 0x20, 0x80, 0x100, 0x200, 0x1000]);
                self.features(bit);
            }
            1 | 2 => {
                let level: i32 = self.one_of(&[-4, -1, 0, 1, 4, 5, 6, 7, 10]);
                self.put(72, level.to_le_bytes());
                let layout: u32 = self.one_of(&[0x101, 0x102, 0x103, 0x201, 0x1_0201, 0x202, 0x2_0301]);
                if level == 10 {
                    self.put(76, layout.to_le_bytes());
                }
            }
            3 if level != 10 => {
                let layout: u32 = self.one_of(&[0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 16, 18, 20, 21, 99]);
                self.put(76, layout.to_le_bytes());
            }
            4 => {
                let size = self.sectors();
                self.put(80, size.to_le_bytes());
            }
            5 => {
                let chunk: u32 = self.one_of(&[0, 8, 96, 97, 128, 1024, 2048]);
                self.put(88, chunk.to_le_bytes());
            }
            6 => {
                let disks = self.rng.below(8) as u32 + 2;
                self.put(92, disks.to_le_bytes());
            }
            // Never beside a partial parity log.
            7 if self.bytes[9] & 0x0c == 0 => {
                let behind = self.version != Version::V10;
                let offset = self.one_of(if behind { &[8_i32, 16, 100, 1000] } else { &[-16, -24, -100] });
                self.features(0x1);
                self.put(96, offset.to_le_bytes());
                self.bitmap_sectors = Some(offset).filter(|_| self.rng.below(4) > 0);
            }
            8 if self.bitmap_sectors.is_none() && self.bytes[8] & 1 == 0 => {
                let behind = self.version != Version::V10;
                let bit = self.one_of(&[0x400, 0x800]);
                self.features(bit);
                let offset = self.one_of(if behind { &[24_i16, 100] } else { &[-1032, -2056] });
                let size: u16 = self.one_of(&[8, 1024]);
                self.put(96, offset.to_le_bytes());
                self.put(98, size.to_le_bytes());
            }
            9 => {
                self.features(0x4);
                let new_level: i32 = self.one_of(&[0, 1, 4, 5, 6, 10]);
                let most = self.one_of(&[1 << 12, 1 << 20, 1 << 40]);
                let position = self.rng.below(most);
                let delta: i32 = self.one_of(&[0, 1, 2, -1, -2]);
                let layout: u32 = self.one_of(if level == 10 { &[0x102, 0x201] } else { &[0, 2, 3, 16] });
                let chunk: u32 = self.one_of(&[128, 256]);
                self.put(100, new_level.to_le_bytes());
                self.put(104, position.to_le_bytes());
                self.put(112, delta.to_le_bytes());
                self.put(116, layout.to_le_bytes());
                self.put(120, chunk.to_le_bytes());
            }
            10 => {
                self.features(0x40);
                let moved: i32 = self.one_of(&[0, 8, -8, 1000]);
                self.put(124, moved.to_le_bytes());
            }
            11 => {
                let offset: u64 = self.one_of(&[8, 16, 80, 81, 100, 1537, 2048, 2049]);
                self.put(128, offset.to_le_bytes());
            }
            12 => {
                let size = self.sectors();
                self.put(136, size.to_le_bytes());
            }
            13 => {
                self.features(0x2);
                let offset = self.sectors();
                self.put(152, offset.to_le_bytes());
            }
            14 => {
                let number: u32 = self.one_of(&[0, 1, 2, 3, 4, 5, 127, 128, 500]);
                self.put(160, number.to_le_bytes());
            }
            15 => {
                let flags = self.rng.below(4) as u8;
                self.put(184, [flags]);
            }
            16 => {
                let behind = self.version != Version::V10;
                let offset = self.one_of(if behind { &[0_i32, 16, 72, 100, 1500] } else { &[0, -8, -100] });
                let size: u16 = self.one_of(&[0, 1, 8, 16]);
                self.put(186, size.to_le_bytes());
                self.put(188, offset.to_le_bytes());
            }
            17 => {
                let at = self.one_of(&[64, 192]);
                let any = self.rng.below(1 << 40);
                let time = self.one_of(&[0, 1, 1 << 31, any, 5 << 40 | 1_000_000_000]);
                self.put(at, time.to_le_bytes());
            }
            18 => {
                let any = self.rng.below(1 << 40);
                let events = self.one_of(&[0, 1, any]);
                self.put(200, events.to_le_bytes());
            }
            19 => {
                let offset: u64 = self.one_of(&[0, 1, 5000, u64::MAX]);
                self.put(208, offset.to_le_bytes());
            }
            20 => {
                for number in 0..6 {
                    let role: u16 = self.one_of(&[0, 1, 2, 3, 4, 0xffff, 0xfffe, 0xfffd]);
                    self.put(256 + 2 * number, role.to_le_bytes());
                }
            }
            _ => {
                let here = format!("{}:data", self.host);
                let longest = "x".repeat(31);
                let name =
                    self.one_of(&["", "data", &here, "box:x/y", "a'b", "a\"b c", &longest, "(none):3"]);
                let mut bytes = [0; 32];
                bytes[..name.len().min(32)].copy_from_slice(&name.as_bytes()[..name.len().min(32)]);
                self.put(32, bytes);
            }
        }
    }

    /// One word of a superblock 0.90 (docs/formats.md §1.4).
    fn field_of_0(&mut self) {
        let any = self.rng.below(1 << 31) as u32;
        let (word, value) = match self.rng.below(14) {
            0 => (6, any),
            1 => (7, self.one_of(&[0_u32, 1, 4, 5, 6, 7, u32::MAX, 0_u32.wrapping_sub(4)])),
            2 => (8, self.one_of(&[3, 8129, 5000, 4999, any])),
            3 => (9, any),
            4 => (10, self.rng.below(19) as u32 + 1),
            5 => (11, self.one_of(&[0, 127, any])),
            6 => (32, any),
            7 => (33, self.one_of(&[0, 1, 2, 0x100, 0x101])),
            8 => (self.one_of(&[34, 35, 36]), any),
            9 => (37, self.rng.below(6) as u32),
            10 => (self.one_of(&[39, 40]), any),
            11 => {
                let words = [(2, 91), (44, any), (45, 0), (46, 6), (47, 1), (48, 3), (49, 131_072)];
                for (word, value) in words {
                    self.put(4 * word, value.to_le_bytes());
                }
                (47, self.one_of(&[0, 1, 2, u32::MAX]))
            }
            12 => {
                let state = self.one_of(&[0, 1, 2, 4, 6, 8, 9, 17, 0x200, 0x206, 0x606]);
                (128 + 32 * self.rng.below(6) as usize + 4, state)
            }
            _ => (64, self.one_of(&[0, 1, 2, 3, 5, 8])),
        };
        self.put(4 * word, value.to_le_bytes());
    }

    /// Writes it, with the right checksum mostly, and with what it points to.
    fn write(mut self, path: &str) {
        let at = md::super_offset_sectors(self.version, self.size_sectors).unwrap();
        let sum_at = if self.version == Version::V090 { 4 * 38 } else { 216 };
        if self.version != Version::V090 {
            self.put(144, at.to_le_bytes());
        }
        let read = md::read(self.version, &self.bytes, self.size_sectors).expect("a superblock still");
        if self.rng.below(8) > 0 {
            self.put(sum_at, read.fields().computed_checksum().to_le_bytes());
        }
        let file = File::create(path).unwrap();
        file.set_len(self.size_sectors * 512).unwrap();
        if let Some(offset) = self.bitmap_sectors {
            let mut header = [0; 256];
            header[..8].copy_from_slice(b"bitm\x04\0\0\0");
            header[8..24].copy_from_slice(&self.bytes[16..32]);
            let covered: u64 = self.one_of(&[14_336, 1 << 24, 1 << 30]);
            let chunk: u32 = self.one_of(&[512, 4096, 65_536]);
            header[40..48].copy_from_slice(&covered.to_le_bytes());
            header[52..56].copy_from_slice(&chunk.to_le_bytes());
            header[56] = 5;
            file.write_all_at(&header, at.wrapping_add_signed(offset.into()) * 512).unwrap();
        }
        file.write_all_at(&self.bytes, at * 512).unwrap();
    }
}

/// Members like no kernel leaves them, and many that one does.
#[test]
fn superblocks_with_any_field_changed_look_as_mdadm_shows_them() {
    if !require("mdadm") {
        return;
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (room, old_room) = (Room::new(), Room::new());
    let made = room.blank(4, 8 << 20);
    let create = ["create", "data", "--level", "5", "--chunk", "64K", "--bitmap", "none"];
    run(create.into_iter().map(str::to_owned).chain(made.clone())).ok();
    let old = old_room.blank(4, 8 << 20);
    let create = ["create", "0", "--level", "5", "--chunk", "64K", "--metadata", "0.90", "--bitmap", "none"];
    run(create.into_iter().map(str::to_owned).chain(old.clone())).ok();
    let superblock = |path: &str, version| {
        let file = File::open(path).unwrap();
        let at = md::super_offset_sectors(version, file.metadata().unwrap().len() / 512).unwrap();
        let mut bytes = vec![0; md::SUPERBLOCK_BYTES];
        file.read_exact_at(&mut bytes, at * 512).unwrap();
        bytes
    };
    let (of_1, of_0) = (superblock(&made[0], Version::V12), superblock(&old[0], Version::V090));

    let scratch = Room::new();
    let mut members = Vec::new();
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let version = match rng.below(8) {
            0 | 1 => Version::V090,
            2 => Version::V10,
            3 => Version::V11,
            _ => Version::V12,
        };
        let bytes = if version == Version::V090 { of_0.clone() } else { of_1.clone() };
        let size_sectors = [16_384, 16_384, 16_390, 20_000][rng.below(4) as usize];
        let mut changed =
            Changed { rng, host: host.trim(), bytes, version, size_sectors, bitmap_sectors: None };
        if version == Version::V10 {
            changed.put(128, 0_u64.to_le_bytes());
            changed.put(188, (-8_i32).to_le_bytes());
        }
        for _ in 0..=changed.rng.below(6) {
            if version == Version::V090 { changed.field_of_0() } else { changed.field_of_1() }
        }
        let path = scratch.name(&format!("seed-{seed}"));
        changed.write(&path);
        members.push(path);
    }
    same_as("changed", &members, &FORMATS[..2]);
    // Which of them are one array is no question that has an answer.
    for member in members.iter().step_by(8) {
        same_as(member, std::slice::from_ref(member), &FORMATS[2..]);
    }
}
