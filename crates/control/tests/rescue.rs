//! Arrays whose superblocks are gone or wrong, found again: by parity, by what file systems have where, by neighbours; and what is not
//! told apart, or nothing, is said to be so.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests are tests")]

use std::path::Path;
use std::process::Command;

use wattle_control::Member;
use wattle_control::rescue::{Findings, search};
use wattle_engine::geometry::{Geometry, Kind, Level, Params};
use wattle_engine::units::{Sector, StripeNo};
use wattle_rt::Device;

const MIB: usize = 1 << 20;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len / 8).flat_map(|_| self.next().to_le_bytes()).collect()
    }
}

/// What an array was.
#[derive(Clone, Copy)]
struct Was {
    level: Level,
    layout: u32,
    chunk: u64,
    offset: u64,
    slots: usize,
}

impl Was {
    const fn new(level: Level, layout: u32, chunk_kib: u64, offset: u64, slots: usize) -> Self {
        Self { level, layout, chunk: chunk_kib * 2, offset, slots }
    }

    fn geometry(&self, content: usize) -> Geometry {
        let parity = match self.level {
            Level::Raid6 => 2,
            Level::Raid4 | Level::Raid5 => 1,
            _ => 0,
        };
        let data = if self.level == Level::Raid1 { 1 } else { (self.slots - parity) as u64 };
        let component = (content as u64 / 512 / data).next_multiple_of(self.chunk.max(8));
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
    fn lay_out(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let geometry = self.geometry(content.len());
        let sectors = geometry.member_sectors(wattle_engine::units::MemberIx(0)).0 + self.offset;
        let mut members = vec![vec![0_u8; sectors as usize * 512]; self.slots];
        let at = |sector: Sector| (sector.0 + self.offset) as usize * 512;
        let mut lba = Sector(0);
        while lba < geometry.array_sectors() && (lba.0 as usize * 512) < content.len() {
            let from = lba.0 as usize * 512;
            let (places, run) = match geometry.kind() {
                Kind::Striped => {
                    let run = geometry.map(lba);
                    (vec![(run.member, run.sector)], run.len)
                }
                Kind::Parity => {
                    let run = geometry.data_place(lba);
                    (vec![(run.member, run.sector)], run.len)
                }
                Kind::Mirrored => {
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
        if geometry.kind() == Kind::Parity {
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
fn product(mut one: u8, mut other: u8) -> u8 {
    let mut sum = 0;
    while other > 0 {
        sum ^= if other & 1 == 1 { one } else { 0 };
        one = one << 1 ^ if one & 0x80 != 0 { 0x1D } else { 0 };
        other >>= 1;
    }
    sum
}

/// A file system with some files of every kind in it, as a real tool makes it; `None`, loudly, where there is no such tool.
fn file_system(size: usize, block: &str) -> Option<Vec<u8>> {
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

/// Members in this order, by number of their slot.
fn members(images: &[Vec<u8>], order: &[usize]) -> Vec<Member> {
    let made = |&slot: &usize| {
        let device = Device::mem(images[slot].len() as u64);
        device.write_blocking(0, &images[slot]).unwrap();
        Member::made_up(&format!("disk-{slot}"), device)
    };
    order.iter().map(made).collect()
}

/// The first finding is this array with these members in their slots.
#[track_caller]
fn is(findings: &Findings, was: Was, order: &[usize]) {
    let found = findings.found.first().unwrap_or_else(|| panic!("nothing: {:?}", findings.notes));
    let shape = &found.shape;
    let slots: Vec<_> = found.order.iter().map(|who| who.map(|who| order[who])).collect();
    let expected: Vec<_> = (0..was.slots).map(|slot| order.contains(&slot).then_some(slot)).collect();
    let told = (shape.level, shape.layout, shape.chunk_sectors, shape.data_offset_sectors);
    let all: Vec<_> = findings
        .found
        .iter()
        .map(|one| {
            format!(
                "{:.1} {} {} {} {} {:?} {:#?}",
                one.points,
                one.shape.level,
                one.shape.layout,
                one.shape.chunk_sectors,
                one.shape.data_offset_sectors,
                one.order,
                one.reasons
            )
        })
        .collect();
    assert_eq!(told, (was.level, was.layout, was.chunk, was.offset), "{}", all.join("\n"));
    if was.level != Level::Raid1 {
        assert_eq!(slots, expected, "{}", all.join("\n"));
    }
    assert!(findings.certain, "{}", all.join("\n"));
}

const CASES: [(Was, &[usize]); 7] = [
    (Was::new(Level::Raid5, 2, 64, 2048, 4), &[2, 0, 3, 1]),
    (Was::new(Level::Raid5, 0, 512, 262_144, 3), &[2, 1, 0]),
    (Was::new(Level::Raid5, 3, 16, 0, 5), &[4, 2, 0, 1, 3]),
    (Was::new(Level::Raid6, 2, 128, 8192, 6), &[5, 1, 3, 0, 4, 2]),
    (Was::new(Level::Raid4, 0, 64, 2048, 4), &[3, 1, 2, 0]),
    (Was::new(Level::Raid0, 0, 64, 2048, 3), &[1, 2, 0]),
    (Was::new(Level::Raid1, 0, 0, 2048, 2), &[1, 0]),
];

#[test]
fn an_array_with_a_file_system_is_found_in_any_order() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    let (parity, others) = CASES.split_at(5);
    for (was, order) in parity {
        is(&search(&members(&was.lay_out(&content), order)).unwrap(), *was, order);
    }
    // Without a parity there is less to be sure by; then it is not said to be.
    for (was, order) in others {
        let findings = search(&members(&was.lay_out(&content), order)).unwrap();
        if findings.certain {
            is(&findings, *was, order);
        }
    }
}

#[test]
fn with_a_member_missing_too() {
    let Some(content) = file_system(96 * MIB, "1024") else { return };
    for (was, order) in [
        (Was::new(Level::Raid5, 2, 64, 2048, 4), &[3, 0, 2][..]),
        (Was::new(Level::Raid5, 2, 64, 2048, 4), &[2, 1, 3]),
        (Was::new(Level::Raid6, 2, 64, 2048, 5), &[4, 0, 2, 1]),
    ] {
        let images = was.lay_out(&content);
        is(&search(&members(&images, order)).unwrap(), was, order);
    }
    // Both the start of the file system and its parity are gone: nothing tells where the data starts, and that is said.
    let was = Was::new(Level::Raid6, 2, 64, 2048, 5);
    assert!(!search(&members(&was.lay_out(&content), &[4, 2, 0])).unwrap().certain);
}

/// Random data has no neighbours and no structures, but two parities: they tell everything but where data blocks start in a stripe.
#[test]
fn a_raid_6_is_told_by_its_parities_alone() {
    let content = Random(3).bytes(24 * MIB);
    for layout in 0..4 {
        let was = Was::new(Level::Raid6, layout, 64, 2048, 6);
        let order = [3, 5, 0, 4, 1, 2];
        let findings = search(&members(&was.lay_out(&content), &order)).unwrap();
        let found: Vec<_> = findings.found[..2].iter().map(|one| one.shape.layout).collect();
        assert!(found.contains(&layout) && !findings.certain, "{findings:?}");
        for one in &findings.found[..2] {
            let slots: Vec<_> = one.order.iter().map(|who| order[who.unwrap()]).collect();
            assert_eq!(slots, [0, 1, 2, 3, 4, 5]);
            assert_eq!((one.shape.chunk_sectors, one.shape.data_offset_sectors), (was.chunk, was.offset));
        }
    }
}

#[test]
fn random_data_under_one_parity_is_not_told_apart_and_without_any_it_is_nothing() {
    let content = Random(3).bytes(24 * MIB);
    let was = Was::new(Level::Raid5, 2, 64, 2048, 4);
    let findings = search(&members(&was.lay_out(&content), &[1, 0, 3, 2])).unwrap();
    assert!(!findings.certain && findings.notes[0].contains("XOR"), "{findings:?}");
    let alone: Vec<_> = (10..14).map(|seed| Random(seed).bytes(8 * MIB)).collect();
    let findings = search(&members(&alone, &[0, 1, 2, 3])).unwrap();
    assert!(findings.found.is_empty() && !findings.certain, "{findings:?}");
    let empty = vec![vec![0; 8 * MIB]; 4];
    let findings = search(&members(&empty, &[0, 1, 2, 3])).unwrap();
    assert!(findings.found.is_empty() && !findings.certain, "{findings:?}");
    assert!(search(&members(&alone, &[0])).is_err());
}

/// What a kernel and LVM2 wrote.
#[test]
fn a_volume_group_of_a_real_kernel_comes_first_and_nothing_wrong_is_certain() {
    let was = Was::new(Level::Raid5, 2, 256, 2048, 5);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lvm-linear-on-raid5");
    let mut images = Vec::new();
    for slot in 0..5 {
        let unpacked =
            Command::new("zstd").args(["-dqc"]).arg(from.join(format!("member-{slot}.img.zst"))).output();
        let Ok(unpacked) = unpacked else {
            assert!(std::env::var_os("CI").is_none(), "this needs zstd");
            eprintln!("SKIPPED: this needs zstd");
            return;
        };
        let mut bytes = unpacked.stdout;
        bytes[4096..8192].fill(0);
        images.push(bytes);
    }
    let order = [3, 0, 4, 2, 1];
    // A file system with one file, and random data: enough for the right order to come first, if not for being sure.
    let findings = search(&members(&images, &order)).unwrap();
    let first = &findings.found[0];
    let slots: Vec<_> = first.order.iter().map(|who| order[who.unwrap()]).collect();
    assert_eq!(
        (slots, first.shape.layout, first.shape.chunk_sectors),
        (vec![0, 1, 2, 3, 4], was.layout, was.chunk)
    );
    for missing in 0..5 {
        let order: Vec<_> = order.into_iter().filter(|slot| *slot != missing).collect();
        let findings = search(&members(&images, &order)).unwrap();
        if findings.certain {
            is(&findings, was, &order);
        }
    }
}
