//! Long ranges of zeroes, piece by piece, in virtual time.

use std::cell::RefCell;
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::volume::qos::{QosCost, QosLimits};
use wattle_engine::volume::{MapSegment, MapSpec};
use wattle_engine::{ArrayHandle, ArraySpec, MappedHandle, MemberSpec, Volume, VolumeError, VolumeTurn};
use wattle_rt::{Core, Device};

use crate::qos::{House, MS, SECOND, on_drives, reads};

const MIB: u64 = 1 << 20;

/// One piece: where it began, its bytes, and how long it took.
type Piece = (u64, u64, Duration);

/// Zeroes a range of a volume whose members need `per_mib` for a MiB from `slow_from` on, and
/// nothing before.
async fn zero(core: &Core, volume: &Volume, bytes: u64, slow_from: u64, per_mib: Duration) -> Vec<Piece> {
    let pieces = RefCell::new(Vec::new());
    let admit = async |cost| Ok::<_, VolumeError>((volume.turn(cost).await, ()));
    let work = async |_: &VolumeTurn<'_>, at: u64, len: u64| {
        let slow = (at + len).saturating_sub(at.max(slow_from));
        let began = core.now();
        core.sleep(per_mib.mul_f64(slow as f64 / MIB as f64)).await;
        pieces.borrow_mut().push((at, len, core.now() - began));
        Ok(())
    };
    volume.in_pieces(core, 0..bytes, QosCost::zeroes(bytes), admit, work).await.unwrap();
    let pieces = pieces.into_inner();
    let end = pieces.iter().fold(0, |end, (at, len, _)| {
        assert_eq!(*at, end, "pieces follow one another");
        at + len
    });
    assert_eq!(end, bytes);
    pieces
}

fn slowest(pieces: &[Piece]) -> Duration {
    pieces.iter().map(|(.., took)| *took).max().unwrap()
}

/// What was fast says nothing of what comes next.
#[test]
fn a_piece_that_reaches_what_is_slow_is_not_as_long_as_all_before_it() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        let volume = house.volumes[0].open(&core).unwrap();
        let pieces = zero(&core, &volume, 4096 * MIB, 3072 * MIB, 8 * MS).await;
        assert!(pieces.iter().all(|(_, len, _)| *len <= 256 * MIB), "{pieces:?}");
        assert!(slowest(&pieces) < 5 * SECOND / 2, "{pieces:?}");
        let slow = pieces.iter().position(|(at, ..)| *at > 3072 * MIB).unwrap();
        assert!(slowest(&pieces[slow..]) <= 400 * MS, "one is enough to know it: {pieces:?}");
        let fast = pieces.iter().filter(|(at, ..)| *at < 3072 * MIB).count();
        assert!(fast < 20, "{fast} pieces of what takes no time");
    });
}

/// A map of an array that is fast and of one that is slow.
#[test]
fn where_the_volume_below_is_another_pieces_are_short_at_first() {
    on_drives("nvme", 1, async |core, mut drives| {
        let slow = array(&core, drives.split_off(2)).await;
        let below = vec![array(&core, drives).await.volume(), slow.volume()];
        // Two segments on the fast one do not count as another.
        let lies = [(0, 1024 * MIB, 0), (0, 512 * MIB, 2048 * MIB), (1, 512 * MIB, 0)];
        let segments = lies.map(|(on, len, from)| MapSegment::linear(len, on, from)).to_vec();
        let spec = MapSpec { below, segments, read_only: false };
        let volume = MappedHandle::start(&core, "both".to_owned(), spec).await.unwrap().volume();
        let volume = volume.open(&core).unwrap();
        let pieces = zero(&core, &volume, 2048 * MIB, 1536 * MIB, 150 * MS).await;
        assert!(slowest(&pieces) <= SECOND, "{pieces:?}");
        let short = pieces.iter().filter(|(at, len, _)| *at < 1500 * MIB && *len < 64 * MIB).count();
        assert_eq!(short, 0, "{pieces:?}");
    });
}

async fn array(core: &Core, drives: Vec<Device>) -> ArrayHandle {
    let component_size = Sector(8 << 21);
    let geometry = Geometry::new(&Params {
        level: Level::Raid0,
        layout: 0,
        chunk: Sector(128),
        raid_disks: drives.len() as u32,
        component_size,
        member_sizes: vec![component_size; drives.len()],
    });
    let members = drives.into_iter().map(|drive| MemberSpec::in_sync(drive, Sector(0))).collect();
    ArrayHandle::start(core, ArraySpec::new("array", geometry.unwrap(), members), Box::new(NoMetadata)).await
}

/// Under a goal that leaves others next to nothing, one of them zeroes a long range.
#[test]
fn a_neighbour_that_zeroes_holds_reads_of_others_up_for_a_piece_and_not_for_the_range() {
    on_drives("sata7200", 1, async |core, drives| {
        let house = House::build(&core, drives, 3).await;
        let goal = Some(Duration::from_micros(50));
        house.set(&core, 0, QosLimits { goal, ..QosLimits::default() }).await;
        let quiet = house.load(&core, 0, 0, reads(1, 120 * SECOND));
        core.sleep(5 * SECOND).await;
        let depth = house.volumes[1].governed().unwrap().status(&core).await.depth_thousandths;
        assert!(depth.is_some_and(|depth| depth < 1000), "{depth:?}");
        let read = house.load(&core, 0, 2, reads(1, 30 * SECOND));
        let volume = house.volumes[1].open(&core).unwrap();
        let began = core.now();
        zero(&core, &volume, 30 * MIB, 0, 300 * MS).await;
        let took = core.now() - began;
        assert!(took >= 9 * SECOND, "it takes as long as it takes");
        let longest = read.await.each.iter().map(|(_, took)| *took).max().unwrap();
        eprintln!("the longest read took {longest:?}, the range {took:?}");
        assert!(longest <= 3 * SECOND, "{longest:?}");
        quiet.await;
    });
}

/// However many pieces it has, limits count it once.
#[test]
fn a_range_in_pieces_counts_as_one_request() {
    on_drives("nvme", 1, async |core, drives| {
        let house = House::build(&core, drives, 1).await;
        let mut limits = QosLimits::default();
        // One request in a second, 100 MiB in one.
        (limits.volume.0[0], limits.volume.0[3]) = (Some(1), Some(100 * MIB));
        house.set(&core, 0, limits).await;
        let volume = house.volumes[0].open(&core).unwrap();
        let began = core.now();
        let pieces = zero(&core, &volume, 4096 * MIB, 0, Duration::ZERO).await;
        assert!(pieces.len() > 10 && core.now() - began < SECOND / 10, "{pieces:?}");
        let totals = house.volumes[0].governed().unwrap().status(&core).await.totals;
        assert_eq!((totals.requests, totals.bytes), (1, 64 * MIB));
    });
}
