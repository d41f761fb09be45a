//! Arrays in memory, made by a slow and simple program, and what is found of them.

use std::path::Path;
use std::process::Command;

use wattle_control::Member;
use wattle_control::rescue::{Explanation, Findings};
use wattle_engine::geometry::{Geometry, Level, LevelKind, Params};
use wattle_engine::units::{Sector, StripeNo};
use wattle_rt::Device;

pub const MIB: usize = 1 << 20;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len / 8).flat_map(|_| self.next().to_le_bytes()).collect()
    }
}

/// What an array was.
#[derive(Clone, Copy)]
pub struct Was {
    pub level: Level,
    pub layout: u32,
    pub chunk: u64,
    pub offset: u64,
    pub slots: usize,
}

impl Was {
    pub const fn new(level: Level, layout: u32, chunk_kib: u64, offset: u64, slots: usize) -> Self {
        Self { level, layout, chunk: chunk_kib * 2, offset, slots }
    }

    fn geometry(&self, content: usize) -> Geometry {
        let parity = match self.level {
            Level::Raid6 => 2,
            Level::Raid4 | Level::Raid5 => 1,
            _ => 0,
        };
        let sectors = content as u64 / 512;
        let (near, far) = (u64::from(self.layout) & 0xFF, u64::from(self.layout) >> 8 & 0xFF);
        let component = match self.level {
            Level::Raid1 => sectors,
            // Whole chunks of every copy.
            Level::Raid10 => {
                sectors.div_ceil(self.slots as u64).next_multiple_of(self.chunk) * near * far
                    + self.chunk * near * far
            }
            _ => sectors / (self.slots - parity) as u64,
        };
        let component = component.next_multiple_of(self.chunk.max(8));
        let params = Params {
            level: self.level,
            layout: self.layout,
            chunk: Sector(self.chunk),
            raid_disks: self.slots as u32,
            component_size: Sector(component),
            member_sizes: vec![Sector(component); self.slots],
        };
        Geometry::new(&params).unwrap()
    }

    /// The members of an array that holds this, without superblocks, by slot.
    pub fn lay_out(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let geometry = self.geometry(content.len());
        let sectors = geometry.member_sectors(wattle_engine::units::MemberIx(0)).0 + self.offset;
        let mut members = vec![vec![0_u8; sectors as usize * 512]; self.slots];
        let at = |sector: Sector| (sector.0 + self.offset) as usize * 512;
        let mut lba = Sector(0);
        while lba < geometry.array_sectors() && (lba.0 as usize * 512) < content.len() {
            let from = lba.0 as usize * 512;
            let (places, run) = match geometry.kind() {
                LevelKind::Striped => {
                    let run = geometry.map(lba);
                    (vec![(run.member, run.sector)], run.len)
                }
                LevelKind::Parity => {
                    let run = geometry.data_place(lba);
                    (vec![(run.member, run.sector)], run.len)
                }
                LevelKind::Mirrored => {
                    let copies = geometry.copies(lba);
                    (copies.iter().map(|copy| (copy.member, copy.sector)).collect(), copies.run)
                }
            };
            let len = (run.0 as usize * 512).min(content.len() - from);
            for (member, sector) in places {
                members[member.index()][at(sector)..][..len].copy_from_slice(&content[from..][..len]);
            }
            lba += Sector(len.div_ceil(512) as u64);
        }
        if geometry.kind() == LevelKind::Parity {
            for stripe in 0..geometry.stripes() {
                let map = geometry.stripe(StripeNo(stripe));
                let range = at(Sector(stripe * self.chunk))..at(Sector((stripe + 1) * self.chunk));
                let (mut p, mut q) = (vec![0_u8; range.len()], vec![0_u8; range.len()]);
                for block in 0..map.data_blocks() {
                    let data = &members[map.data_member(block).index()][range.clone()];
                    p.iter_mut().zip(data).for_each(|(p, byte)| *p ^= byte);
                    if map.q().is_some() {
                        let by = (0..map.exponent(block)).fold(1, |by, _| product(by, 2));
                        q.iter_mut().zip(data).for_each(|(q, byte)| *q ^= product(*byte, by));
                    }
                }
                members[map.p().index()][range.clone()].copy_from_slice(&p);
                if let Some(holder) = map.q() {
                    members[holder.index()][range].copy_from_slice(&q);
                }
            }
        }
        members
    }
}

/// In the field of Q, as slowly as it is defined.
pub fn product(mut one: u8, mut other: u8) -> u8 {
    let mut sum = 0;
    while other > 0 {
        sum ^= if other & 1 == 1 { one } else { 0 };
        one = one << 1 ^ if one & 0x80 != 0 { 0x1D } else { 0 };
        other >>= 1;
    }
    sum
}

/// A file system with some files of every kind in it, as a real tool makes it; `None`, loudly,
/// where there is no such tool.
pub fn file_system(size: usize, block: &str) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    let mut random = Random(7);
    for ix in 0..60_usize {
        let sub = files.join(format!("directory-{}", ix % 9));
        std::fs::create_dir_all(&sub).unwrap();
        let len = 1000 + random.next() as usize % (size / 120);
        let bytes = match ix % 3 {
            0 => random.bytes(len),
            1 => (0..len / 40)
                .flat_map(|line| format!("{ix:8} line {line:10} of a text, which goes on\n").into_bytes())
                .collect(),
            _ => (0..len / 4).flat_map(|at| ((at * ix) as u32).to_be_bytes()).collect(),
        };
        std::fs::write(sub.join(format!("file-{ix}")), bytes).unwrap();
    }
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(size as u64).unwrap();
    let made =
        Command::new("mkfs.ext4").args(["-q", "-F", "-b", block, "-d"]).arg(&files).arg(&image).status();
    match made {
        Ok(status) => assert!(status.success()),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: this needs mkfs.ext4: {error}");
            return None;
        }
        Err(error) => panic!("this needs mkfs.ext4: {error}"),
    }
    Some(std::fs::read(image).unwrap())
}

/// The members that a real kernel wrote; `None`, loudly, where they cannot be unpacked.
pub fn fixture(name: &str, members: usize) -> Option<Vec<Vec<u8>>> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    let unpack = |slot| {
        let member = from.join(format!("member-{slot}.img.zst"));
        let unpacked = Command::new("zstd").arg("-dqc").arg(member).output();
        if unpacked.is_err() {
            assert!(std::env::var_os("CI").is_none(), "this needs zstd");
            eprintln!("SKIPPED: this needs zstd");
        }
        unpacked.ok().map(|unpacked| unpacked.stdout)
    };
    (0..members).map(unpack).collect()
}

/// Members in this order, by number of their slot.
pub fn members(images: &[Vec<u8>], order: &[usize]) -> Vec<Member> {
    let made = |&slot: &usize| {
        let device = Device::mem(images[slot].len() as u64);
        device.write_blocking(0, &images[slot]).unwrap();
        Member::made_up(&format!("disk-{slot}"), device)
    };
    order.iter().map(made).collect()
}

/// All that was found, for the reader of a failure.
pub fn tell(findings: &Findings) -> String {
    let one = |one: &Explanation| {
        let shape = &one.shape;
        format!(
            "{:.1} {} {:#x} {} {} {:?} {:#?}",
            one.points,
            shape.level,
            shape.layout,
            shape.chunk_sectors,
            shape.data_offset_sectors,
            one.order,
            one.reasons
        )
    };
    let found: Vec<_> = findings.found.iter().map(one).collect();
    format!("{:#?}\n{}\ncertain: {}", findings.notes, found.join("\n"), findings.certain)
}

/// The first finding is this array with these members in their slots.
#[track_caller]
pub fn is(findings: &Findings, was: Was, order: &[usize]) {
    let found = findings.found.first().unwrap_or_else(|| panic!("nothing: {:?}", findings.notes));
    let shape = &found.shape;
    let slots: Vec<_> = found.order.iter().map(|who| who.map(|who| order[who])).collect();
    let expected: Vec<_> = (0..was.slots).map(|slot| order.contains(&slot).then_some(slot)).collect();
    let told = (shape.level, shape.layout, shape.chunk_sectors, shape.data_offset_sectors);
    assert_eq!(told, (was.level, was.layout, was.chunk, was.offset), "{}", tell(findings));
    // Of a mirror any order is right.
    if was.level != Level::Raid1 {
        assert_eq!(slots, expected, "{}", tell(findings));
    }
    assert!(findings.certain, "{}", tell(findings));
}
