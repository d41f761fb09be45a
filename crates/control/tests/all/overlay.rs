//! What is written over a member: against a flat vector, over power cuts at every operation, and
//! when the file fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use wattle_control::overlay;
use wattle_format::overlay::OverlayLayout;
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveConfig, Durability, IoError, IoErrorKind, RuntimeConfig, SimWorld, Unmap,
    WorldConfig, run,
};

const SECTOR: usize = 512;
/// A little more than one page of the map stands for.
const SECTORS: u64 = 32768 + 64;

fn file_bytes() -> u64 {
    OverlayLayout { sectors: SECTORS }.file_bytes()
}

#[derive(Debug, Clone)]
enum Step {
    Write { sector: u64, sectors: u64, byte: u8, durability: Durability },
    Zeroes { sector: u64, sectors: u64 },
    Read { offset: u64, len: usize },
    Flush,
    OpenAgain,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Around the border of two pages of the map, and at both ends.
    let place = prop_oneof![Just(0), Just(32768 - 40), Just(SECTORS - 80)];
    let range = (place, 0..40_u64, 1..40_u64).prop_map(|(base, at, len)| (base + at, len));
    let durability = prop_oneof![Just(Durability::Cached), Just(Durability::Fua)];
    let step = prop_oneof![
        4 => (range.clone(), 1..=255_u8, durability).prop_map(|((sector, sectors), byte, durability)| {
            Step::Write { sector, sectors, byte, durability }
        }),
        1 => range.clone().prop_map(|(sector, sectors)| Step::Zeroes { sector, sectors }),
        4 => (range, 0..512_u64, 1..9000_usize).prop_map(|((sector, _), more, len)| {
            let offset = sector * 512 + more;
            Step::Read { offset, len: len.min((SECTORS * 512 - offset) as usize) }
        }),
        1 => Just(Step::Flush),
        1 => Just(Step::OpenAgain),
    ];
    prop::collection::vec(step, 1..40)
}

fn pattern(sector: u64) -> [u8; SECTOR] {
    std::array::from_fn(|at| (sector as usize * 7 + at / 64) as u8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_member_with_an_overlay_is_a_flat_vector_and_the_member_stays(steps in steps()) {
        let ended = run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, async |core| {
            let (below, file) = (Device::mem(SECTORS * 512), Device::mem(file_bytes()));
            let mut flat: Vec<u8> = (0..SECTORS).flat_map(pattern).collect();
            below.write_blocking(0, &flat).unwrap();
            let mut device = overlay::device(&core, "over", below.clone(), file.clone());
            for step in steps {
                match step {
                    Step::Write { sector, sectors, byte, durability } => {
                        let bytes = vec![byte; sectors as usize * SECTOR];
                        flat[sector as usize * SECTOR..][..bytes.len()].copy_from_slice(&bytes);
                        core.write(&device, sector * 512, Buf::copy_of(&bytes), durability).await.unwrap();
                    }
                    Step::Zeroes { sector, sectors } => {
                        flat[sector as usize * SECTOR..][..sectors as usize * SECTOR].fill(0);
                        core.write_zeroes(&device, sector * 512, sectors * 512, Unmap::Yes).await.unwrap();
                    }
                    Step::Read { offset, len } => {
                        let (result, buf) = core.read(&device, offset, BufMut::alloc(len)).await;
                        result.unwrap();
                        assert!(buf[..] == flat[offset as usize..][..len], "at {offset}");
                    }
                    Step::Flush => core.flush(&device).await.unwrap(),
                    Step::OpenAgain => {
                        core.flush(&device).await.unwrap();
                        device = overlay::device(&core, "over", below.clone(), file.clone());
                    }
                }
            }
            let (result, buf) = core.read(&device, 0, BufMut::alloc(flat.len())).await;
            result.unwrap();
            assert!(buf[..] == flat[..]);
            let mut member = vec![0; flat.len()];
            below.read_blocking(0, &mut member).unwrap();
            assert!(member.chunks(SECTOR).zip(0..).all(|(bytes, sector)| *bytes == pattern(sector)));
        });
        ended.unwrap();
    }
}

/// What a sector may hold after a power cut: the last version that a flush covered, or any later
/// one.
#[derive(Default)]
struct Versions {
    written: Vec<u8>,
    acknowledged: usize,
    durable: usize,
}

type Books = Rc<RefCell<BTreeMap<u64, Versions>>>;

/// Writes its own sectors, those of a border of two pages of the map among them, and flushes now
/// and then.
async fn client(core: Core, device: Device, books: Books, number: u64) {
    let sectors = [number, 4 + number, 32760 + number, 32768 + number];
    for round in 0..6_u8 {
        for sector in sectors {
            if (u64::from(round) + sector + number).is_multiple_of(3) {
                continue;
            }
            let byte = 1 + round;
            books.borrow_mut().entry(sector).or_default().written.push(byte);
            let durability =
                if (sector + u64::from(round)) % 5 == 0 { Durability::Fua } else { Durability::Cached };
            core.write(&device, sector * 512, Buf::copy_of(&[byte; SECTOR]), durability).await.unwrap();
            let mut books = books.borrow_mut();
            let versions = books.get_mut(&sector).unwrap();
            versions.acknowledged = versions.written.len();
            if durability == Durability::Fua {
                versions.durable = versions.acknowledged;
            }
        }
        if (u64::from(round) + number).is_multiple_of(2) {
            let covered: Vec<_> =
                books.borrow().iter().map(|(&sector, versions)| (sector, versions.acknowledged)).collect();
            core.flush(&device).await.unwrap();
            for (sector, durable) in covered {
                let mut books = books.borrow_mut();
                let versions = books.get_mut(&sector).unwrap();
                versions.durable = versions.durable.max(durable);
            }
        }
    }
}

#[test]
fn a_power_cut_leaves_what_was_flushed_and_nothing_that_was_not_written() {
    let mut lost = 0;
    for seed in 0..600 {
        let mut world = SimWorld::new(WorldConfig { seed, ..WorldConfig::default() });
        let below = world.add_drive(DriveConfig { size_bytes: SECTORS * 512, ..DriveConfig::default() });
        let file = world.add_drive(DriveConfig { size_bytes: file_bytes(), ..DriveConfig::default() });
        world.drive(&below).poke(0, &[0xAA; 16 * SECTOR]);
        world.drive(&below).poke(32760 * 512, &[0xAA; 16 * SECTOR]);
        let books = Books::default();
        world.power_cut_after_ops(1 + seed % 150);
        let _ = world.run(async |core| {
            let device = overlay::device(&core, "over", below.clone(), file.clone());
            let clients =
                (0..3).map(|number| core.spawn(client(core.clone(), device.clone(), books.clone(), number)));
            for client in clients.collect::<Vec<_>>() {
                client.await;
            }
        });
        world.cancel_power_cut();
        world.power_cut_now();
        let check = async |core: Core| {
            let device = overlay::device(&core, "over", below.clone(), file.clone());
            let mut lost = 0;
            for sector in (0..16).chain(32760..32776) {
                let (result, buf) = core.read(&device, sector * 512, BufMut::alloc(SECTOR)).await;
                result.unwrap();
                let books = books.borrow();
                let (durable, written) = books
                    .get(&sector)
                    .map_or((0, &[][..]), |versions| (versions.durable, &versions.written[..]));
                let mut allowed = written[durable.saturating_sub(1)..].to_vec();
                if durable == 0 {
                    allowed.push(0xAA);
                }
                assert!(
                    buf.iter().all(|&byte| byte == buf[0]) && allowed.contains(&buf[0]),
                    "seed {seed}, sector {sector}: {} of {allowed:?}",
                    buf[0]
                );
                lost += usize::from(Some(&buf[0]) != written.last());
            }
            lost
        };
        lost += world.run(check).expect_done();
        assert_eq!(world.drive(&below).totals().writes, 0, "nothing is written to the member");
    }
    assert!(lost > 1000, "cuts do lose what was not flushed: {lost}");
}

#[test]
fn after_a_flush_that_failed_nothing_is_durable_any_more() {
    let mut world = SimWorld::new(WorldConfig::default());
    let below = world.add_drive(DriveConfig { size_bytes: SECTORS * 512, ..DriveConfig::default() });
    let file = world.add_drive(DriveConfig { size_bytes: file_bytes(), ..DriveConfig::default() });
    let control = world.drive(&file);
    let ended = world.run(async |core| {
        let device = overlay::device(&core, "over", below.clone(), file.clone());
        let write = async |sector: u64| {
            core.write(&device, sector * 512, Buf::copy_of(&[1; SECTOR]), Durability::Cached).await
        };
        write(0).await.unwrap();
        control.fail_next_flushes(1);
        assert_eq!(core.flush(&device).await.unwrap_err().kind(), IoErrorKind::Medium);
        // The drive would say yes now, and what it dropped is gone.
        assert_eq!(core.flush(&device).await.unwrap_err().kind(), IoErrorKind::Medium);
        assert_eq!(write(1).await.unwrap_err().kind(), IoErrorKind::Medium);
        let (result, buf) = core.read(&device, 0, BufMut::alloc(SECTOR)).await;
        assert!(result.is_ok() && buf[0] == 1);
    });
    ended.expect_done();
}

#[test]
fn a_sector_that_the_member_cannot_read_is_written_without_reading_it() {
    let mut world = SimWorld::new(WorldConfig::default());
    let below = world.add_drive(DriveConfig { size_bytes: SECTORS * 512, ..DriveConfig::default() });
    let file = world.add_drive(DriveConfig { size_bytes: file_bytes(), ..DriveConfig::default() });
    world.drive(&below).latent(5);
    let ended = world.run(async |core| {
        let device = overlay::device(&core, "over", below.clone(), file.clone());
        let read = async |sector: u64| {
            let (result, buf) = core.read(&device, sector * 512, BufMut::alloc(SECTOR)).await;
            result.map(|()| buf[0])
        };
        assert_eq!(read(5).await.map_err(IoError::kind), Err(IoErrorKind::Medium));
        core.write(&device, 5 * 512, Buf::copy_of(&[9; SECTOR]), Durability::Cached).await.unwrap();
        assert_eq!((read(5).await, read(4).await), (Ok(9), Ok(0)));
    });
    ended.expect_done();
}
