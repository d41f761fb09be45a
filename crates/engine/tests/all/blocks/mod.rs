//! Blocks that a member cannot deliver: what becomes of them, and that nothing becomes of their
//! neighbours.

mod fill;
mod large;
mod reads;
mod zeroes;

use std::cell::RefCell;
use std::rc::Rc;

use wattle_engine::geometry::Level;
use wattle_engine::metadata::{ArrayRecord, Metadata, NoMetadata};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_engine::{ArraySpec, MemberSpec, Volume, VolumeError};
use wattle_rt::{BufMut, Device, DriveConfig, DriveControl, SimWorld, WorldConfig};

use crate::support::commits::OnCommit;
use crate::support::drives::drives;
use crate::support::members::in_sync;
use crate::support::plain::plain;
use crate::support::run::run;

const MEMBER_SECTORS: u64 = 256;
const CHUNK: u64 = 32;
const SECTOR: usize = 512;

/// Remembers what was recorded.
#[derive(Clone, Default)]
struct Records(Rc<RefCell<Vec<ArrayRecord>>>);

impl Records {
    fn metadata(&self) -> Box<dyn Metadata> {
        let records = self.0.clone();
        Box::new(OnCommit(async move |record: &ArrayRecord| records.borrow_mut().push(record.clone())))
    }

    /// The bad sectors of a seat as they were recorded last.
    fn bad(&self, seat: usize) -> Vec<std::ops::Range<Sector>> {
        self.0.borrow().last().map(|record| record.seats[seat].bad.iter().collect()).unwrap_or_default()
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
        // One more than the array has slots, for a replacement.
        let drives = drives(&mut world, members + 1, config);
        Self { world, drives, level, member_sectors: config.size_bytes / 512 }
    }

    fn slots(&self) -> usize {
        self.drives.len() - 1
    }

    fn spare(&self) -> Device {
        self.drives[self.slots()].clone()
    }

    fn spec(&self) -> ArraySpec {
        let geometry = plain(self.level, self.slots(), CHUNK, self.member_sectors);
        let members = in_sync(&self.drives[..self.slots()], Sector(0), &[]);
        let mut spec = ArraySpec::new("a", geometry, members);
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
