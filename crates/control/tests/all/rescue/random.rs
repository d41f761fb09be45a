//! Arrays drawn by chance: how often the right one comes first, and that a wrong one is never sure.

use wattle_control::rescue::{Explanation, Findings, search};
use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::units::Sector;

use super::arrays::{MIB, Random, Was, file_system, members, tell};

/// Places of the content that are looked up in what was found.
const PLACES: u64 = 4000;

/// Which of the members are given, in which order.
struct Given {
    was: Was,
    order: Vec<usize>,
}

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

/// An array as mdadm makes them or once did, with members that are missing in a third of those that
/// can do without.
fn draw(random: &mut Random, content: usize) -> Given {
    let level = random.one_of(&[
        Level::Raid0,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid5,
        Level::Raid6,
        Level::Raid6,
        Level::Raid10,
        Level::Raid10,
    ]);
    let (slots, layout, may_lack) = match level {
        Level::Raid1 => (2 + random.below(2), 0, 0),
        Level::Raid0 => (3 + random.below(4), 0, 0),
        Level::Raid4 => (3 + random.below(4), 0, 1),
        Level::Raid5 => (3 + random.below(6), random.one_of(&[2, 2, 0, 1, 3]), 1),
        Level::Raid6 => (4 + random.below(5), random.one_of(&[2, 2, 0, 1, 3]), 2),
        _ => (3 + random.below(4), random.one_of(&[0x102, 0x102, 0x201, 0x1_0201]), 1),
    };
    // What does not go round twice is not searched.
    let most = content / 1024 / (2 * slots * slots);
    let chunks: Vec<u64> =
        [16, 32, 64, 128, 256, 512].into_iter().filter(|kib| *kib <= most as u64).collect();
    let chunk_kib = if level == Level::Raid1 { 0 } else { random.one_of(&chunks) };
    let offset = random.one_of(&[2048, 2048, 2048, 8192, 0, 16]);
    // Where far copies are depends on the superblock behind them, which these have not.
    let offset = if layout == 0x201 { offset.max(2048) } else { offset };
    let was = Was::new(level, layout, chunk_kib, offset, slots);
    let mut order: Vec<usize> = (0..slots).collect();
    (1..slots).rev().for_each(|ix| order.swap(ix, random.below(ix + 1)));
    // Two members alone are less than an array.
    let may_lack = may_lack.min(slots.saturating_sub(3));
    let lacks = if random.below(3) == 0 { random.below(may_lack + 1) } else { 0 };
    order.truncate(slots - lacks);
    Given { was, order }
}

/// Whether every part of the content that is on the members that are given comes out of what was
/// found. What comes out whole is right: a RAID 4 without its parity is a RAID 0.
fn is_right(one: &Explanation, given: &Given, images: &[Vec<u8>], content: &[u8]) -> bool {
    let shape = &one.shape;
    let offset = shape.data_offset_sectors;
    let sectors = (content.len() / 512) as u64;
    // Members are cut to whole chunks, which what is at the very end does not tell.
    let told = sectors.min(shape.geometry.array_sectors().0);
    if told * 100 < sectors * 98 {
        return false;
    }
    let mut read = 0;
    for ix in 0..PLACES {
        let lba = Sector(told * ix / PLACES);
        let places = match shape.geometry.kind() {
            LevelKind::Striped => {
                let run = shape.geometry.map(lba);
                vec![(run.member.index(), run.sector)]
            }
            LevelKind::Parity => {
                let run = shape.geometry.data_place(lba);
                vec![(run.member.index(), run.sector)]
            }
            LevelKind::Mirrored => {
                let copies = shape.geometry.copies(lba);
                copies.iter().map(|copy| (copy.member.index(), copy.sector)).collect()
            }
        };
        for (slot, sector) in places {
            let Some(who) = one.order[slot] else { continue };
            let at = (sector.0 + offset) as usize * 512;
            let expected = &content[lba.0 as usize * 512..][..512];
            if images[given.order[who]].get(at..at + 512) != Some(expected) {
                return false;
            }
            read += 1;
        }
    }
    // Of a mirror all copies were read, so that there is at least one.
    let lacks = given.was.slots - given.order.len();
    let data = match given.was.level {
        Level::Raid6 => given.was.slots - 2,
        Level::Raid4 | Level::Raid5 => given.was.slots - 1,
        _ => return read >= PLACES,
    };
    // One with more missing members than there are reads less of it.
    let same = one.order.len() == given.was.slots && shape.level == given.was.level;
    read >= PLACES || same && read * data as u64 >= PLACES * (data - lacks.min(data)) as u64 * 95 / 100
}

/// How many came first as they are, how many were certain, and how many were that and wrong.
#[derive(Debug, Default)]
struct Tally {
    arrays: usize,
    first: usize,
    certain: usize,
    certain_and_wrong: usize,
}

fn weigh(seed: u64, count: usize) -> Option<Tally> {
    let contents = [(32, "1024"), (48, "4096"), (64, "1024"), (96, "4096")];
    let contents: Vec<Vec<u8>> =
        contents.into_iter().map(|(size, block)| file_system(size * MIB, block)).collect::<Option<_>>()?;
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for array in 0..count {
        let content = &contents[random.below(contents.len())];
        let given = draw(&mut random, content.len());
        let images = given.was.lay_out(content);
        let findings: Findings = search(&members(&images, &given.order)).unwrap();
        let first = findings.found.first().is_some_and(|one| is_right(one, &given, &images, content));
        tally.arrays += 1;
        tally.first += usize::from(first);
        tally.certain += usize::from(findings.certain);
        tally.certain_and_wrong += usize::from(findings.certain && !first);
        if !first || std::env::var_os("WATTLE_RESCUE_VERBOSE").is_some() {
            let Was { level, layout, chunk, offset, slots } = given.was;
            let place = findings.found.iter().position(|one| is_right(one, &given, &images, content));
            eprintln!(
                "seed {seed}, array {array}: {level} {layout:#x} chunk {chunk} offset {offset} of {slots}, given {:?}, {} MiB: \
                 right at {place:?}\n{}",
                given.order,
                content.len() / MIB,
                tell(&findings)
            );
        }
    }
    eprintln!("seed {seed}: {tally:?}");
    Some(tally)
}

#[test]
fn of_sixty_arrays_drawn_by_chance_the_right_one_comes_first_and_no_wrong_one_is_certain() {
    let Some(tally) = weigh(1, 60) else { return };
    assert!(tally.first >= 58 && tally.certain_and_wrong == 0, "{tally:?}");
}

/// More of them: `WATTLE_RESCUE_SEEDS=10` for so many times sixty.
#[test]
fn of_more_of_them_too() {
    let seeds = std::env::var("WATTLE_RESCUE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(0);
    for seed in 2..2 + seeds {
        let Some(tally) = weigh(seed, 60) else { return };
        assert!(tally.first >= 57 && tally.certain_and_wrong == 0, "{tally:?}");
    }
}
