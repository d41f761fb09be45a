//! Blocks that a member cannot deliver: what becomes of them, and that nothing becomes of their
//! neighbours.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod fill;
mod large;
mod reads;
mod zeroes;

use std::cell::RefCell;
use std::rc::Rc;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata, NoMetadata};
use wattle_engine::units::{MemberIx, MemberSet, Sector, StripeNo};
use wattle_engine::{ArraySpec, MemberSpec, Volume, VolumeError};
use wattle_rt::{BufMut, Device, DriveConfig, DriveControl, SimWorld, WorldConfig};

const MEMBER_SECTORS: u64 = 256;
const CHUNK: u64 = 32;
const SECTOR: usize = 512;

/// Remembers what was recorded.
#[derive(Clone, Default)]
struct Records(Rc<RefCell<Vec<ArrayRecord>>>);

impl Records {
    /// The bad sectors of a seat as they were recorded last.
    fn bad(&self, seat: usize) -> Vec<std::ops::Range<Sector>> {
        self.0.borrow().last().map(|record| record.seats[seat].bad.iter().collect()).unwrap_or_default()
    }
}

impl Metadata for Records {
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.0.borrow_mut().push(record.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.mark(regions)
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.unmark(regions)
    }
}

struct Fixture {
    world: SimWorld,
    drives: Vec<Device>,
    level: Level,
    member_sectors: u64,
}

impl Fixture {
    fn new(level: Level) -> Self {
        let config = DriveConfig { size_bytes: MEMBER_SECTORS * 512, ..DriveConfig::default() };
        Self::on(level, &config)
    }

    fn on(level: Level, config: &DriveConfig) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed: 7, cores: 2, ..WorldConfig::default() });
        let members = match level {
            Level::Raid1 => 2,
            Level::Raid6 => 5,
            _ => 4,
        };
        let drive = |slot| DriveConfig { name: format!("drive{slot}"), ..config.clone() };
        // One more than the array has slots, for a replacement.
        let drives = (0..=members).map(|slot| world.add_drive(drive(slot))).collect();
        Self { world, drives, level, member_sectors: config.size_bytes / 512 }
    }

    fn slots(&self) -> usize {
        self.drives.len() - 1
    }

    fn spare(&self) -> Device {
        self.drives[self.slots()].clone()
    }

    fn spec(&self) -> ArraySpec {
        let geometry = Geometry::new(&Params {
            level: self.level,
            layout: match self.level {
                Level::Raid1 | Level::Raid4 => 0,
                Level::Raid10 => 0x102,
                _ => 2,
            },
            chunk: Sector(if self.level == Level::Raid1 { 0 } else { CHUNK }),
            raid_disks: self.slots() as u32,
            component_size: Sector(self.member_sectors),
            member_sizes: Vec::new(),
        });
        let members = self.drives[..self.slots()].iter();
        let members = members.map(|drive| MemberSpec::in_sync(drive.clone(), Sector(0)));
        let mut spec = ArraySpec::new("a", geometry.unwrap(), members.collect());
        spec.tuning.sync.frozen = true;
        spec
    }

    fn drive(&self, slot: usize) -> DriveControl {
        self.world.drive(&self.drives[slot])
    }

    /// The members that hold the chunks of the first stripe, or the copies of the first chunk.
    fn first(&self) -> First {
        match self.level {
            Level::Raid1 | Level::Raid10 => First { data: vec![0], redundant: vec![1] },
            _ => {
                let map = self.spec().geometry.stripe(StripeNo(0));
                let data = (0..map.data_blocks()).map(|block| map.data_member(block).index());
                let redundant = std::iter::once(map.p()).chain(map.q()).map(MemberIx::index);
                First { data: data.collect(), redundant: redundant.collect() }
            }
        }
    }
}

/// Where the first stripe, or the first chunk's copies, lie: slots.
struct First {
    data: Vec<usize>,
    redundant: Vec<usize>,
}

/// Marks sectors of a member as known to be unreadable.
fn list(member: &mut MemberSpec, sectors: std::ops::Range<u64>) {
    member.bad = [Sector(sectors.start)..Sector(sectors.end)].into_iter().collect();
    member.bad_entries_max = 10;
}

async fn read(volume: &Volume, at: u64, sectors: usize) -> Result<Vec<u8>, VolumeError> {
    let (result, buf) = volume.read(at, BufMut::alloc(sectors * SECTOR)).await;
    result.map(|()| buf.to_vec())
}
