//! The journal of a RAID 5 that Linux wrote, replayed in memory: what it holds and the members do
//! not is read, whole and with a member missing, and nothing is written.

use crate::support::real;
use std::path::Path;
use std::process::Command;

use wattle_control::members::MemberAccess;
use wattle_control::scan::scan;
use wattle_control::{Check, Code, Forced, Problem, start};
use wattle_format::md::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload};
use wattle_format::md::{JournalChecksum, Superblock, Version, identify};
use wattle_rt::BufMut;

const MEMBERS: usize = 3;
const SECTORS: u64 = 28672;
const DATA: u64 = 2048;

/// The members and the journal, unpacked; `None` (loudly, and never in CI) if there is no `zstd`.
struct Case {
    _dir: tempfile::TempDir,
    names: Vec<String>,
    images: Vec<Vec<u8>>,
}

impl Case {
    fn new() -> Option<Self> {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/raid5-3d-journal");
        let dir = tempfile::tempdir().unwrap();
        let (mut names, mut images) = (Vec::new(), Vec::new());
        for ix in 0..=MEMBERS {
            let packed = from.join(format!("member-{ix}.img.zst"));
            let output = match Command::new("zstd").arg("-dqc").arg(packed).output() {
                Ok(output) => output,
                Err(error) if std::env::var_os("CI").is_none() => {
                    eprintln!("SKIPPED: zstd: {error}");
                    return None;
                }
                Err(error) => panic!("zstd: {error}"),
            };
            assert!(output.status.success());
            names.push(dir.path().join(format!("d{ix}")).to_str().unwrap().to_owned());
            images.push(output.stdout);
        }
        Some(Self { _dir: dir, names, images })
    }

    fn superblock(&self) -> Superblock {
        let journal = &self.images[MEMBERS];
        identify(Version::V12, &journal[4096..8192], journal.len() as u64 / 512).unwrap().unwrap()
    }

    fn checksum(&self) -> JournalChecksum {
        JournalChecksum::new(&self.superblock().stored_uuid())
    }

    /// Every page of the log, by its payload, and where the log ends: position and sequence.
    fn log(&self) -> (Vec<(Payload, Vec<u8>)>, u64, u64) {
        let superblock = self.superblock();
        let ring = superblock.data_size_sectors() / BLOCK_SECTORS * BLOCK_SECTORS;
        let block = |position: u64| {
            let at = ((superblock.data_offset_sectors() + position) * 512) as usize;
            &self.images[MEMBERS][at..at + BLOCK_BYTES]
        };
        let (mut position, mut seq) = (superblock.journal_tail().unwrap(), None);
        let mut pages = Vec::new();
        while let Ok(found) = MetaBlock::decode(block(position), self.checksum(), position, seq) {
            let mut at = position;
            for payload in &found.payloads {
                for _ in payload.page_checksums() {
                    at = (at + BLOCK_SECTORS) % ring;
                    pages.push((payload.clone(), block(at).to_vec()));
                }
            }
            position = found.next_position_sectors(ring).unwrap();
            seq = Some(found.seq + 1);
        }
        (pages, position, seq.unwrap())
    }

    /// Appends a block of data to the log; a lie if `torn`.
    fn append(&mut self, data: &[(u64, u8)], torn: bool) {
        let (_, position, seq) = self.log();
        let sum = self.checksum();
        let payloads = data.iter().map(|&(sector, fill)| Payload::Data {
            flags: 0,
            sector,
            checksums: vec![sum.of(&[fill; BLOCK_BYTES])],
        });
        let block = MetaBlock { seq, position_sectors: position, payloads: payloads.collect() };
        let superblock = self.superblock();
        let ring = superblock.data_size_sectors() / BLOCK_SECTORS * BLOCK_SECTORS;
        let encoded = block.encode(sum).unwrap();
        let pages = data.iter().map(|&(_, fill)| vec![if torn { !fill } else { fill }; BLOCK_BYTES]);
        let mut at = position;
        for bytes in std::iter::once(encoded.to_vec()).chain(pages) {
            let start = ((superblock.data_offset_sectors() + at) * 512) as usize;
            self.images[MEMBERS][start..start + BLOCK_BYTES].copy_from_slice(&bytes);
            at = (at + BLOCK_SECTORS) % ring;
        }
    }

    /// Makes all pages of the members that the settled rows of the log have into something else.
    fn spoil(&mut self) -> usize {
        let pages: Vec<_> = self.log().0.into_iter().map(|(_, page)| page).collect();
        let mut spoilt = 0;
        for image in &mut self.images[..MEMBERS] {
            for page in image[(DATA * 512) as usize..].chunks_exact_mut(BLOCK_BYTES) {
                if pages.iter().any(|logged| logged == page) {
                    page[..300].fill(0xa5);
                    spoilt += 1;
                }
            }
        }
        spoilt
    }

    /// What is read without some members, with a check overridden.
    fn read(&self, without: &[usize], forced: Forced) -> Result<Vec<u8>, Problem> {
        self.names.iter().zip(&self.images).for_each(|(name, image)| std::fs::write(name, image).unwrap());
        let left = (0..=MEMBERS).filter(|ix| !without.contains(ix)).map(|ix| self.names[ix].clone());
        let left: Vec<_> = left.collect();
        let read = real::on_a_core(async move |core| {
            let found = scan(MemberAccess::local().look_all(&left).unwrap(), forced).unwrap();
            let claimed = start::claim(&found, found.find(None).unwrap(), true)?;
            let started = claimed.launch(&core).await?;
            let volume = started.handle.volume().open(&core).unwrap();
            let (result, bytes) = volume.read(0, BufMut::alloc((SECTORS * 512) as usize)).await;
            result.unwrap();
            started.handle.stop(&core).await.unwrap();
            Ok(bytes.to_vec())
        });
        for (name, image) in self.names.iter().zip(&self.images) {
            assert!(std::fs::read(name).unwrap() == *image, "{name} was written");
        }
        read
    }

    fn check(&self, expected: &[u8]) {
        for without in [&[][..], &[0], &[1], &[2]] {
            let found = self.read(without, Forced::default()).unwrap();
            let wrong: Vec<_> = (0..SECTORS as usize)
                .filter(|at| found[at * 512..][..512] != expected[at * 512..][..512])
                .collect();
            assert!(wrong.is_empty(), "without {without:?}: sectors {wrong:?}");
        }
    }
}

/// What Linux wrote.
fn pattern() -> Vec<u8> {
    let word = |sector: u64| {
        let z = (1000 ^ sector).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    (0..SECTORS).flat_map(|sector| word(sector).to_le_bytes().repeat(64)).collect()
}

fn put(content: &mut [u8], data: &[(u64, u8)]) {
    for &(sector, fill) in data {
        content[(sector * 512) as usize..][..BLOCK_BYTES].fill(fill);
    }
}

#[test]
fn rows_that_are_logged_with_their_parity_are_read_as_they_were_logged() {
    let Some(mut case) = Case::new() else { return };
    assert_eq!(case.spoil(), 14, "seven pages of data and their parity");
    case.check(&pattern());
}

/// As the write-back mode leaves them: acknowledged, and on no member.
#[test]
fn data_without_parity_is_read_and_its_parity_is_made() {
    let Some(mut case) = Case::new() else { return };
    // Two of one row, one alone, and one that is logged twice.
    let data = [(0, 1), (128, 2), (5 * 256 + 8, 3), (20_000, 4), (20_000, 5)];
    case.append(&data, false);
    let mut expected = pattern();
    put(&mut expected, &data);
    case.check(&expected);
}

/// The parity in the log fits the row before; what was logged since changes it.
#[test]
fn data_that_is_logged_after_the_parity_of_its_row_comes_on_top() {
    let Some(mut case) = Case::new() else { return };
    let logged = case.log().0.into_iter().find_map(|(payload, _)| match payload {
        Payload::Data { sector, .. } => Some(sector),
        _ => None,
    });
    case.spoil();
    let data = [(logged.unwrap(), 7)];
    case.append(&data, false);
    case.append(&[(logged.unwrap() + 8, 8)], false);
    let mut expected = pattern();
    put(&mut expected, &[data[0], (logged.unwrap() + 8, 8)]);
    case.check(&expected);
}

#[test]
fn what_was_cut_short_counts_for_nothing_unless_the_log_goes_on() {
    let Some(mut case) = Case::new() else { return };
    let (_, position, seq) = case.log();
    case.append(&[(0, 1)], true);
    case.check(&pattern());
    // A block of data that follows it.
    let sum = case.checksum();
    let at = position + 2 * BLOCK_SECTORS;
    let payload = Payload::Data { flags: 0, sector: 8, checksums: vec![sum.of(&[9; BLOCK_BYTES])] };
    let block = MetaBlock { seq: seq + 1, position_sectors: at, payloads: vec![payload] };
    let start = ((case.superblock().data_offset_sectors() + at) * 512) as usize;
    case.images[MEMBERS][start..start + BLOCK_BYTES].copy_from_slice(&block.encode(sum).unwrap()[..]);
    let problem = case.read(&[], Forced::default()).unwrap_err();
    assert_eq!(
        (problem.code, problem.exit_code(), problem.force),
        (Code::JournalDamaged, 3, Some(Check::Journal))
    );
    assert!(case.read(&[], Forced::default().with(Check::Journal)).unwrap() == pattern());
}

/// As Linux writes one at each start: with nothing behind it the log is empty, and with damage
/// behind it and more behind that it is not.
#[test]
fn a_log_that_begins_with_an_empty_block_is_looked_at_behind_it() {
    let Some(mut case) = Case::new() else { return };
    let (superblock, sum) = (case.superblock(), case.checksum());
    let tail = superblock.journal_tail().unwrap();
    let put = |case: &mut Case, at: u64, bytes: &[u8]| {
        let start = ((superblock.data_offset_sectors() + at) * 512) as usize;
        case.images[MEMBERS][start..start + BLOCK_BYTES].copy_from_slice(bytes);
    };
    let block = |seq, position_sectors, data: &[(u64, u8)]| {
        let payloads = data.iter().map(|&(sector, fill)| Payload::Data {
            flags: 0,
            sector,
            checksums: vec![sum.of(&[fill; BLOCK_BYTES])],
        });
        MetaBlock { seq, position_sectors, payloads: payloads.collect() }.encode(sum).unwrap().to_vec()
    };
    let at = |blocks: u64| tail + blocks * BLOCK_SECTORS;
    put(&mut case, at(0), &block(500_000, at(0), &[]));
    put(&mut case, at(1), &[0; BLOCK_BYTES]);
    case.check(&pattern());
    // Two blocks more, each with a page.
    for (number, data) in [(1, (0, 1)), (2, (8, 2))] {
        let position = at(2 * number - 1);
        put(&mut case, position, &block(500_000 + number, position, &[data]));
        put(&mut case, at(2 * number), &[data.1; BLOCK_BYTES]);
    }
    put(&mut case, at(5), &[0; BLOCK_BYTES]);
    let mut expected = pattern();
    self::put(&mut expected, &[(0, 1), (8, 2)]);
    case.check(&expected);
    let damaged = ((superblock.data_offset_sectors() + at(1)) * 512) as usize + 100;
    case.images[MEMBERS][damaged] ^= 1;
    assert_eq!(case.read(&[], Forced::default()).unwrap_err().code, Code::JournalDamaged);
}

#[test]
fn without_its_journal_an_array_is_read_only_if_that_is_named() {
    let Some(mut case) = Case::new() else { return };
    case.append(&[(0, 1)], false);
    let problem = case.read(&[MEMBERS], Forced::default()).unwrap_err();
    assert_eq!(
        (problem.code, problem.exit_code(), problem.force),
        (Code::JournalMissing, 3, Some(Check::Journal))
    );
    assert!(case.read(&[MEMBERS], Forced::default().with(Check::Journal)).unwrap() == pattern(), "old data");
}
