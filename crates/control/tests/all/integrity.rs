//! Writes to devices of dm-integrity and cuts of power at any moment: what was acknowledged is
//! there, every block is of one write, and none has a tag that is not its own.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use wattle_control::integrity::IntegrityState;
use wattle_control::members::{Keyring, MemberAccess};
use wattle_control::scan::scan;
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions};
use wattle_control::{Code, Forced, Policy, Problem};
use wattle_crypt::TagMaker;
use wattle_engine::{Volume, VolumeError};
use wattle_format::integrity::{
    DIRTY_BITMAP, FIXED_HMAC, FIXED_PADDING, IntegrityLayout, IntegritySuperblock, JOURNAL_MAC, MAGIC,
    SectionPlace,
};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, RuntimeConfig, Serve, Unmap};

const SECTOR: usize = 512;
const SALT: [u8; 16] = [9; 16];
/// Tasks that write at once.
const TASKS: u64 = 4;

/// Base-2 logarithm of the sectors of a block, bytes of a tag, sections, sectors provided, units
/// behind one another that one task writes.
type Format = (u8, u16, u32, u64, u64);

const FORMATS: [Format; 6] = [
    (0, 4, 5, 2048, 24),
    (3, 4, 3, 2048, 24),
    // Blocks are larger than what a request may be of.
    (1, 20, 4, 1028, 24),
    // Every batch takes the place of the one before it.
    (0, 32, 1, 1024, 24),
    // Two writes fill half of the ring.
    (3, 32, 2, 4096, 24),
    // A batch takes several sections, and so the end of one round and the start of the next.
    (0, 4, 5, 8192, 160),
];

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What reached a drive.
#[derive(Debug, Clone)]
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

#[derive(Debug, Default)]
struct DriveState {
    bytes: Vec<u8>,
    events: Vec<Event>,
    /// The write that fails, counted from the next one on.
    fails_in: Option<usize>,
}

/// A drive that keeps what it is sent in order.
#[derive(Debug, Default)]
struct Drive {
    base: Vec<u8>,
    state: Mutex<DriveState>,
}

impl Drive {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        let state = DriveState { bytes: bytes.clone(), ..DriveState::default() };
        Arc::new(Self { base: bytes, state: Mutex::new(state) })
    }

    /// Events so far.
    fn now(&self) -> usize {
        self.state.lock().unwrap().events.len()
    }

    /// What is on it after a cut of power behind so many events: of what was not flushed any
    /// sectors.
    fn cut(&self, events: usize, random: &mut u64) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        let kept = &state.events[..events];
        let flushed = kept.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
        let mut bytes = self.base.clone();
        for (nth, event) in kept.iter().enumerate() {
            let Event::Write(at, data) = event else { continue };
            for (sector, data) in data.chunks(SECTOR).enumerate() {
                if nth < flushed || splitmix64(random) & 1 == 0 {
                    let at = *at as usize + sector * SECTOR;
                    bytes[at..at + data.len()].copy_from_slice(data);
                }
            }
        }
        bytes
    }
}

/// The drive as others see it.
struct Served(Arc<Drive>);

impl Serve for Served {
    fn read(&self, core: &Core, offset: u64, mut buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let len = buf.len();
        buf.copy_from_slice(&self.0.state.lock().unwrap().bytes[offset as usize..][..len]);
        let turn = core.yield_now();
        Box::pin(async move {
            turn.await;
            (Ok(()), buf)
        })
    }

    fn write(&self, core: &Core, offset: u64, buf: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        let (this, turn) = (self.0.clone(), core.yield_now());
        Box::pin(async move {
            turn.await;
            let mut state = this.state.lock().unwrap();
            if let Some(left) = &mut state.fails_in {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    return Err(IoError::MEDIUM);
                }
            }
            state.bytes[offset as usize..][..buf.len()].copy_from_slice(&buf);
            state.events.push(Event::Write(offset, buf.to_vec()));
            Ok(())
        })
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        let (this, turn) = (self.0.clone(), core.yield_now());
        Box::pin(async move {
            turn.await;
            this.state.lock().unwrap().events.push(Event::Flush);
            Ok(())
        })
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Err(IoError::UNSUPPORTED)))
    }
}

fn superblock((log2_sectors_per_block, tag_bytes, journal_sections, provided_sectors, _): Format) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR];
    bytes[..8].copy_from_slice(&MAGIC);
    (bytes[8], bytes[9]) = (5, 8);
    bytes[10..12].copy_from_slice(&tag_bytes.to_le_bytes());
    bytes[12..16].copy_from_slice(&journal_sections.to_le_bytes());
    bytes[16..24].copy_from_slice(&provided_sectors.to_le_bytes());
    bytes[24..28].copy_from_slice(&(FIXED_PADDING | FIXED_HMAC).to_le_bytes());
    bytes[28] = log2_sectors_per_block;
    bytes[48..64].copy_from_slice(&SALT);
    bytes
}

/// A device of zeros.
fn formatted(format: Format) -> Vec<u8> {
    let superblock = superblock(format);
    let layout = IntegrityLayout::of(&IntegritySuperblock::parse(&superblock).unwrap()).unwrap();
    let mut bytes = vec![0; layout.end_bytes().next_multiple_of(4096) as usize];
    bytes[..SECTOR].copy_from_slice(&superblock);
    for section in 0..layout.sections {
        let at = layout.section_at_bytes(section) as usize;
        let section = SectionPlace { section, round: 0 };
        section.fill(&layout, &[], &mut bytes[at..at + layout.section_bytes() as usize]);
    }
    let maker = &TagMaker::all(layout.tag_bytes as usize, Some(SALT), &[])[0];
    let block = vec![0; SECTOR << format.0];
    for sector in (0..format.3).step_by(1 << format.0) {
        let (tag, at) = (maker.tag_of(sector, &block), layout.tag_at_bytes(sector) as usize);
        bytes[at..at + tag.len()].copy_from_slice(&tag);
    }
    bytes
}

/// Opens what is on a drive.
async fn open(core: &Core, drive: &Arc<Drive>, purpose: Purpose) -> Result<(Stack, Volume), Problem> {
    let mut stack = open_stack(core, drive, purpose).await?;
    let member = stack.find(None)?.member?;
    let volume = stack.volume(core, member).await?.open(core).unwrap();
    Ok((stack, volume))
}

async fn open_stack(core: &Core, drive: &Arc<Drive>, purpose: Purpose) -> Result<Stack, Problem> {
    let len = drive.base.len() as u64;
    let device = Device::served("drive", len, 512, true, core, Arc::new(Served(drive.clone())));
    let access = MemberAccess::local().with_remotes(Arc::new(move |_: &[&str], _| vec![Ok(device.clone())]));
    let found =
        core.offload(move || scan(access.look_all(&["nbd://drive/0".to_owned()])?, Forced::default()));
    let options = StackOptions { policy: Policy::default(), purpose, wanted: None, keys: Keyring::default() };
    Stack::open(core, found.await.unwrap()?, options, &mut Plain).await
}

async fn contents(core: &Core, drive: &Arc<Drive>) -> Vec<u8> {
    let (stack, volume) = open(core, drive, Purpose::Read).await.unwrap();
    let (result, buf) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
    assert_eq!(result, Ok(()), "every block has its tag");
    drop(volume);
    stack.close(core).await.unwrap();
    assert_eq!(drive.now(), 0, "what is read is not written");
    buf.to_vec()
}

/// A write: which units, what they are filled with, and the events before it began and before it
/// was acknowledged.
#[derive(Debug, Clone)]
struct Write {
    units: Range<u64>,
    value: u64,
    began: usize,
    acknowledged: usize,
}

/// What is to be in a unit: the first sectors' number makes places differ too.
fn filled(unit: u64, unit_bytes: usize, value: u64) -> Vec<u8> {
    (value ^ unit << 40).to_le_bytes().repeat(unit_bytes / 8)
}

/// Writes from several tasks, each in places of its own, and reads of them in between.
async fn write_all(
    core: &Core,
    drive: &Arc<Drive>,
    volume: &Volume,
    before: &[u8],
    seed: u64,
    group_units: u64,
) -> Vec<Write> {
    let unit_bytes = volume.block_bytes() as usize;
    let groups = before.len() as u64 / unit_bytes as u64 / group_units;
    let tasks = (0..TASKS).map(|task| {
        let (drive, volume, mut expected) = (drive.clone(), volume.clone(), before.to_vec());
        core.spawn(async move {
            let (mut random, mut writes) = (seed << 8 | task, Vec::new());
            for nth in 0..12 {
                let group = splitmix64(&mut random) % groups / TASKS * TASKS + task;
                let first = group.min(groups - 1) / TASKS * TASKS + task;
                if first >= groups {
                    continue;
                }
                let start = first * group_units + splitmix64(&mut random) % group_units;
                let len = 1 + splitmix64(&mut random) % ((first + 1) * group_units - start);
                let (units, value) = (start..start + len, seed << 20 | task << 16 | nth << 8 | 1);
                let bytes: Vec<u8> = units.clone().flat_map(|unit| filled(unit, unit_bytes, value)).collect();
                let at = start as usize * unit_bytes;
                let began = drive.now();
                let answer = volume.write(at as u64, Buf::copy_of(&bytes), Durability::Cached).await;
                assert_eq!(answer, Ok(()));
                writes.push(Write { units, value, began, acknowledged: drive.now() });
                expected[at..at + bytes.len()].copy_from_slice(&bytes);
                let group = (first * group_units) as usize * unit_bytes..;
                let group = &expected[group][..group_units as usize * unit_bytes];
                let at = first * group_units * unit_bytes as u64;
                let (result, read) = volume.read(at, BufMut::alloc(group.len())).await;
                assert_eq!(result, Ok(()), "a read beside writes");
                assert!(read[..] == *group, "a task reads what it wrote");
            }
            writes
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        all.extend(task.await);
    }
    all
}

/// Whether what was found after a cut behind so many events is what may be there.
fn check(before: &[u8], found: &[u8], unit_bytes: usize, writes: &[Write], cut: usize) {
    for (unit, bytes) in found.chunks(unit_bytes).enumerate() {
        let here = |write: &&Write| write.units.contains(&(unit as u64)) && write.began < cut;
        let mut allowed = vec![before[unit * unit_bytes..][..bytes.len()].to_vec()];
        for write in writes.iter().filter(here) {
            if write.acknowledged <= cut {
                allowed.clear();
            }
            allowed.push(filled(unit as u64, bytes.len(), write.value));
        }
        assert!(
            allowed.iter().any(|allowed| allowed == bytes),
            "unit {unit} after a cut behind {cut} events"
        );
    }
}

fn run(main: impl AsyncFnOnce(Core)) {
    wattle_rt::run(RuntimeConfig { cores: 2, ..RuntimeConfig::default() }, main).unwrap();
}

#[test]
fn no_cut_of_power_loses_or_tears_what_was_written() {
    for seed in 0..30 {
        let format = FORMATS[seed as usize % FORMATS.len()];
        run(async move |core| {
            let mut random = seed;
            let mut image = formatted(format);
            let mut before = contents(&core, &Drive::new(image.clone())).await;
            for round in 0..3 {
                let drive = Drive::new(image.clone());
                let (stack, volume) = open(&core, &drive, Purpose::Write).await.unwrap();
                assert!(!volume.read_only());
                let unit_bytes = volume.block_bytes() as usize;
                let writes = write_all(&core, &drive, &volume, &before, seed * 3 + round + 1, format.4).await;
                drop(volume);
                stack.close(&core).await.unwrap();
                let (mut next, events) = (None, drive.now());
                for nth in 0..12 {
                    let cut = if nth == 0 { events } else { splitmix64(&mut random) as usize % (events + 1) };
                    let cut_off = drive.cut(cut, &mut random);
                    let found = contents(&core, &Drive::new(cut_off.clone())).await;
                    check(&before, &found, unit_bytes, &writes, cut);
                    next = Some((cut_off, found));
                }
                (image, before) = next.unwrap();
            }
        });
    }
}

/// Writers of two cores, larger than a batch, and zeros.
#[test]
fn requests_of_any_size_from_any_core_are_taken() {
    for format in FORMATS {
        run(async move |core| {
            let drive = Drive::new(formatted(format));
            let (stack, volume) = open(&core, &drive, Purpose::Write).await.unwrap();
            let len = volume.size_bytes() as usize;
            let bytes: Vec<u8> = (0..len as u64 / 8).flat_map(u64::to_le_bytes).collect();
            assert_eq!(volume.write(0, Buf::copy_of(&bytes), Durability::Fua).await, Ok(()));
            let hole = len / 3 / 4096 * 4096..len / 2 / 4096 * 4096;
            assert_eq!(
                volume.write_zeroes(hole.start as u64, hole.len() as u64, Unmap::No, Durability::Fua).await,
                Ok(())
            );
            let mut expected = bytes.clone();
            expected[hole].fill(0);
            let (result, found) = volume.read(0, BufMut::alloc(len)).await;
            assert_eq!(result, Ok(()));
            assert!(found[..] == expected[..]);
            // Bytes that are no whole blocks.
            assert_eq!(volume.write(4096 + 700, Buf::copy_of(&[7; 100]), Durability::Cached).await, Ok(()));
            expected[4796..4896].fill(7);
            drop(volume);
            stack.close(&core).await.unwrap();
            let mut random = 1;
            let after = Drive::new(drive.cut(drive.now(), &mut random));
            assert!(contents(&core, &after).await == expected);
        });
    }
}

/// After an error nothing more is written, and what was acknowledged stays.
#[test]
fn a_write_that_fails_ends_writing() {
    for fails_in in 1..12 {
        run(async move |core| {
            let drive = Drive::new(formatted(FORMATS[0]));
            let (stack, volume) = open(&core, &drive, Purpose::Write).await.unwrap();
            drive.state.lock().unwrap().fails_in = Some(fails_in);
            let mut acknowledged = 0;
            for nth in 0..8_u8 {
                let buf = Buf::copy_of(&[nth + 1; 512]);
                match volume.write(u64::from(nth) * 512, buf, Durability::Cached).await {
                    Ok(()) => acknowledged = nth + 1,
                    Err(error) => assert!(matches!(error, VolumeError::WriteFailed | VolumeError::Broken)),
                }
            }
            assert!(acknowledged < 8);
            drive.state.lock().unwrap().fails_in = None;
            let answer = volume.write(8192, Buf::copy_of(&[1; 512]), Durability::Cached).await;
            assert!(answer.is_err(), "it ended");
            drop(volume);
            _ = stack.close(&core).await;
            let mut random = 1;
            let after = contents(&core, &Drive::new(drive.cut(drive.now(), &mut random))).await;
            for nth in 0..acknowledged {
                assert_eq!(after[usize::from(nth) * 512..][..512], [nth + 1; 512]);
            }
        });
    }
}

/// A journal that finds no way to its places, as on a full disk, refuses to write and is still
/// there.
#[test]
fn a_journal_that_cannot_be_settled_is_kept() {
    let mut bytes = formatted(FORMATS[0]);
    let layout = IntegrityLayout::of(&IntegritySuperblock::parse(&bytes).unwrap()).unwrap();
    let tag = TagMaker::all(4, Some(SALT), &[])[0].tag_of(1001, &[5; 512]);
    let at = layout.section_at_bytes(0) as usize;
    let section = &mut bytes[at..at + layout.section_bytes() as usize];
    SectionPlace { section: 0, round: 1 }.fill(&layout, &[(1001, &tag, &[5; 512])], section);
    run(async move |core| {
        for fails_in in 1..3 {
            let drive = Drive::new(bytes.clone());
            drive.state.lock().unwrap().fails_in = Some(fails_in);
            let stack = open_stack(&core, &drive, Purpose::Write).await.unwrap();
            let seen = stack.scan.members.iter().find_map(|seen| seen.integrity.as_ref()).unwrap();
            let problem = seen.problem().unwrap();
            assert!(problem.what.contains("cannot be brought to its places"), "{}", problem.what);
            stack.close(&core).await.unwrap();
            let left = Drive::new(drive.state.lock().unwrap().bytes.clone());
            assert_eq!(contents(&core, &left).await[1001 * 512..][..512], [5; 512]);
        }
    });
}

/// What cannot be written is read, and a note says why.
#[test]
fn what_cannot_be_written_is_only_read() {
    let flagged = |flags: u32| {
        let mut bytes = formatted(FORMATS[0]);
        bytes[24..28].copy_from_slice(&(FIXED_PADDING | FIXED_HMAC | flags).to_le_bytes());
        bytes
    };
    // Where sections and areas begin depends on the flag.
    let with_codes = {
        let mut bytes = flagged(JOURNAL_MAC);
        let layout = IntegrityLayout::of(&IntegritySuperblock::parse(&bytes).unwrap()).unwrap();
        bytes.resize(bytes.len().max(layout.end_bytes() as usize), 0);
        let maker = &TagMaker::all(4, Some(SALT), &[])[0];
        for sector in 0..FORMATS[0].3 {
            let (tag, at) = (maker.tag_of(sector, &[0; 512]), layout.tag_at_bytes(sector) as usize);
            bytes[at..at + 4].copy_from_slice(&tag);
            let at = layout.data_sector(sector) as usize * 512;
            bytes[at..at + 512].fill(0);
        }
        for section in 0..layout.sections {
            let at = layout.section_at_bytes(section) as usize;
            let place = SectionPlace { section, round: 0 };
            place.fill(&layout, &[], &mut bytes[at..at + layout.section_bytes() as usize]);
        }
        bytes
    };
    let bitmap = {
        let mut bytes = flagged(DIRTY_BITMAP);
        bytes[4096..8192].fill(0);
        bytes
    };
    // A block in the journal that is not what its tag is of.
    let rotten = {
        let mut bytes = formatted(FORMATS[0]);
        let layout = IntegrityLayout::of(&IntegritySuperblock::parse(&bytes).unwrap()).unwrap();
        let at = layout.section_at_bytes(0) as usize;
        let place = SectionPlace { section: 0, round: 1 };
        let section = &mut bytes[at..at + layout.section_bytes() as usize];
        place.fill(&layout, &[(1001, &[1, 2, 3, 4], &[5; 512])], section);
        bytes
    };
    for (bytes, why) in [
        (with_codes, "codes with a key"),
        (bitmap, "the bitmap"),
        (rotten, "a block in its journal is not what was written"),
    ] {
        run(async move |core| {
            let drive = Drive::new(bytes);
            let mut stack = open_stack(&core, &drive, Purpose::Write).await.unwrap();
            let member = stack.find(None).unwrap().member.unwrap();
            let problem = stack.volume(&core, member).await.unwrap_err();
            assert_eq!(problem.code, Code::ReadOnlyMember, "{why}");
            let seen = stack.scan.members.iter().find_map(|seen| seen.integrity.as_ref()).unwrap();
            let IntegrityState::Open(facts) = &seen.state else { panic!("{why}: {:?}", seen.state) };
            assert!(facts.notes.iter().any(|note| note.contains(why)), "{why}: {:?}", facts.notes);
            stack.close(&core).await.unwrap();
            let events = drive.state.lock().unwrap().events.clone();
            assert!(events.iter().all(|event| matches!(event, Event::Flush)), "{why}: nothing was written");
        });
    }
}
