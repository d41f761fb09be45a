//! Arrays in virtual time, with what is right computed slowly from the geometry.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, LevelKind};
use wattle_engine::job::{self, Pace};
use wattle_engine::metadata::{ArrayRecord, Metadata};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_engine::{ArrayHandle, ArraySpec, BadRanges, MemberKey, MemberSpec, MemberState, Volume};
use wattle_engine::{ArrayStatus, ArrayTuning};
use wattle_parity::naive;
use wattle_rt::{BufMut, Core, Device, DriveConfig, DriveControl, Durability, Rng, SimWorld, WorldConfig};

use crate::support::case::{Case, case};
use crate::support::commits::OnCommit;
use crate::support::drives::drives;

/// Every level with redundancy; of RAID 10 near, far and offset, and words that leave places
/// without a copy.
pub const CASES: &[Case] = &[
    case(Level::Raid1, 0, 2, 0),
    case(Level::Raid1, 0, 3, 0),
    case(Level::Raid4, 0, 4, 16),
    case(Level::Raid5, 2, 3, 8),
    case(Level::Raid5, 0, 4, 32),
    case(Level::Raid5, 2, 2, 8),
    case(Level::Raid6, 2, 4, 8),
    case(Level::Raid6, 9, 5, 16),
    case(Level::Raid6, 18, 6, 8),
    case(Level::Raid10, 0x102, 4, 8),
    case(Level::Raid10, 0x102, 3, 8),
    case(Level::Raid10, 0x201, 4, 16),
    case(Level::Raid10, 0x301, 5, 8),
    case(Level::Raid10, 0x10201, 5, 8),
    case(Level::Raid10, 0x103, 4, 8),
    case(Level::Raid10, 0x202, 4, 8),
];

pub const MEMBER_SECTORS: u64 = 256;
pub const OFFSET: Sector = Sector(16);

/// Small steps and many checkpoints.
pub fn tuning() -> ArrayTuning {
    ArrayTuning {
        clean_delay: Duration::from_millis(2),
        sync: job::JobTuning {
            goal: job::Goal::default(),
            pace: Pace { min_bytes_per_second: 1 << 20, max_bytes_per_second: u64::MAX },
            checkpoint_every: Duration::from_millis(1),
            step_bytes: 8 << 10,
            step_beside_clients_bytes: 4 << 10,
            stripes_max: 128,
            window_bytes: 32 << 10,
            frozen: false,
        },
        ..ArrayTuning::default()
    }
}

/// Keeps the last record that became durable, as superblocks do: what was written before it is.
#[derive(Clone, Default)]
pub struct Records(pub Rc<RefCell<Vec<ArrayRecord>>>);

impl Records {
    pub fn metadata(&self, core: &Core, drives: &[Device]) -> Box<dyn Metadata> {
        let (core, drives, records) = (core.clone(), drives.to_vec(), self.0.clone());
        Box::new(OnCommit(async move |record: &ArrayRecord| {
            for flush in drives.iter().map(|drive| core.flush(drive)).collect::<Vec<_>>() {
                // A drive that is gone has failed already, or is about to.
                let _ = flush.await;
            }
            records.borrow_mut().push(record.clone());
        }))
    }

    pub fn last(&self) -> Option<ArrayRecord> {
        self.0.borrow().last().cloned()
    }
}

pub struct Fixture {
    pub world: SimWorld,
    /// The slots', then a spare one for each.
    pub drives: Vec<Device>,
    pub case: Case,
    pub geometry: Geometry,
    pub records: Records,
}

impl Fixture {
    pub fn new(case: Case, seed: u64, cores: usize) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed, cores, ..WorldConfig::default() });
        let size_bytes = (MEMBER_SECTORS + OFFSET.0) * 512;
        let config = DriveConfig { size_bytes, ..DriveConfig::default() };
        let drives = drives(&mut world, 2 * case.members, &config);
        let geometry = case.geometry(MEMBER_SECTORS);
        Self { world, drives, case, geometry, records: Records::default() }
    }

    pub fn drive(&self, index: usize) -> DriveControl {
        self.world.drive(&self.drives[index])
    }

    pub fn in_sync(&self, index: usize) -> MemberSpec {
        let key = Some(MemberKey(index as u32));
        MemberSpec { key, ..MemberSpec::in_sync(self.drives[index].clone(), OFFSET) }
    }

    pub fn blank(&self, index: usize) -> MemberSpec {
        let key = Some(MemberKey(index as u32));
        MemberSpec { key, ..MemberSpec::blank(self.drives[index].clone(), OFFSET) }
    }

    pub fn spec(&self) -> ArraySpec {
        let members = (0..self.case.members).map(|slot| self.in_sync(slot)).collect();
        ArraySpec { tuning: tuning(), ..ArraySpec::new("a", self.geometry.clone(), members) }
    }

    /// Random bytes all over a drive.
    pub fn scribble(&self, index: usize, seed: u64) {
        let mut bytes = vec![0; ((MEMBER_SECTORS + OFFSET.0) * 512) as usize];
        Rng::new(seed).fill(&mut bytes);
        self.drive(index).poke(0, &bytes);
    }

    /// Random contents of the array, with parity and copies right, as of an array that was synced
    /// long ago.
    pub fn populate(&self, seed: u64) -> Vec<u8> {
        let mut model = vec![0; (self.geometry.array_sectors().0 * 512) as usize];
        Rng::new(seed).fill(&mut model);
        (0..self.case.members).for_each(|slot| self.scribble(slot, seed ^ slot as u64));
        for slot in 0..self.case.members {
            for sector in 0..self.geometry.member_sectors(MemberIx(slot as u16)).0 {
                if let Some(bytes) = self.right(slot, sector, &model) {
                    self.drive(slot).poke((OFFSET.0 + sector) * 512, &bytes);
                }
            }
        }
        model
    }

    /// What a data sector of a member holds if everything is right; `None` where nothing is kept.
    pub fn right(&self, slot: usize, sector: u64, model: &[u8]) -> Option<Vec<u8>> {
        let (geometry, member) = (&self.geometry, MemberIx(slot as u16));
        let of = |lba: Sector| model[(lba.0 * 512) as usize..][..512].to_vec();
        if let Some(lba) = geometry.array_sector_at(member, Sector(sector)) {
            return Some(of(lba));
        }
        if geometry.kind() != LevelKind::Parity {
            return None;
        }
        let chunk = geometry.chunk().0;
        let map = geometry.stripe(StripeNo(sector / chunk));
        let offset = Sector(sector % chunk);
        let data: Vec<Vec<u8>> = (0..map.data_blocks())
            .map(|block| of(geometry.array_sector_of(map.stripe, block, offset)))
            .collect();
        let exponent = |block: usize| if map.q().is_some() { map.exponent(block) } else { block as u8 };
        let sources: Vec<(u8, &[u8])> =
            data.iter().enumerate().map(|(block, bytes)| (exponent(block), &bytes[..])).collect();
        let mut bytes = vec![0; 512];
        if member == map.p() {
            naive::p(&mut bytes, &sources);
        } else {
            naive::q(&mut bytes, &sources);
        }
        Some(bytes)
    }

    /// Every drive of `drives` (by slot) holds what it should.
    pub fn verify(&self, drives: &[usize], model: &[u8], what: &str) {
        for (slot, &drive) in drives.iter().enumerate() {
            let control = self.drive(drive);
            for sector in 0..self.geometry.member_sectors(MemberIx(slot as u16)).0 {
                let Some(right) = self.right(slot, sector, model) else { continue };
                let found = control.peek((OFFSET.0 + sector) * 512, 512);
                assert!(found == right, "{:?} {what}: slot {slot} sector {sector} is wrong", self.case);
            }
        }
    }

    /// Copies and parity agree, whatever the data is; returns the data.
    pub fn agrees(&self, what: &str) -> Vec<u8> {
        let mut model = vec![0; (self.geometry.array_sectors().0 * 512) as usize];
        for lba in 0..self.geometry.array_sectors().0 {
            let (member, sector) = match self.geometry.kind() {
                LevelKind::Parity => {
                    let place = self.geometry.data_place(Sector(lba));
                    (place.member, place.sector)
                }
                _ => {
                    let copies = self.geometry.copies(Sector(lba));
                    (copies.as_slice()[0].member, copies.as_slice()[0].sector)
                }
            };
            let bytes = self.drive(member.index()).peek((OFFSET + sector).0 * 512, 512);
            model[(lba * 512) as usize..][..512].copy_from_slice(&bytes);
        }
        self.verify(&self.slots(), &model, what);
        model
    }

    pub fn slots(&self) -> Vec<usize> {
        (0..self.case.members).collect()
    }
}

/// Runs until nothing is left to do.
pub async fn settled(core: &Core, array: &ArrayHandle) -> ArrayStatus {
    loop {
        let status = array.status(core).await;
        let all = status.members.iter().chain(&status.replacements);
        let filling = all.filter(|member| matches!(member.state, MemberState::Rebuilding { .. })).count();
        if status.sync.is_none() && filling == 0 && status.synced_below == Sector::MAX {
            return status;
        }
        core.sleep(Duration::from_millis(1)).await;
    }
}

/// Writes here and there until told to stop; the model follows.
pub async fn client(core: Core, volume: Volume, model: Rc<RefCell<Vec<u8>>>, seed: u64, writes: usize) {
    let mut rng = Rng::new(seed);
    let size = volume.size_bytes();
    for _ in 0..writes {
        let block = if rng.below(8) == 0 { 1 } else { 512 };
        let start = rng.below(size / block) * block;
        let len = ((1 + rng.below(40)) * block).min(size - start);
        if rng.below(4) == 0 {
            let (result, buf) = volume.read(start, BufMut::alloc(len as usize)).await;
            assert_eq!(result, Ok(()));
            assert!(buf[..] == model.borrow()[start as usize..(start + len) as usize], "a read is wrong");
            continue;
        }
        let mut buf = BufMut::alloc(len as usize);
        rng.fill(&mut buf);
        model.borrow_mut()[start as usize..(start + len) as usize].copy_from_slice(&buf);
        assert_eq!(volume.write(start, buf.freeze(), Durability::Cached).await, Ok(()));
        if rng.below(4) == 0 {
            core.sleep(Duration::from_micros(rng.below(3000))).await;
        }
    }
}

/// What an assembly makes of a record after a crash.
pub fn reassembled(fixture: &Fixture, spec: &ArraySpec, record: Option<&ArrayRecord>) -> ArraySpec {
    let mut spec = spec.clone();
    let Some(record) = record else { return spec };
    spec.synced_below = if record.dirty { Sector(0) } else { record.synced_below };
    let slots = fixture.case.members;
    for (seat, found) in record.seats.iter().enumerate() {
        let who = match seat.checked_sub(slots) {
            None => &mut spec.members[seat],
            Some(_) if spec.replacements.is_empty() => continue,
            Some(slot) => &mut spec.replacements[slot],
        };
        who.state = found.state;
        who.bad = BadRanges::clone(&found.bad);
    }
    spec
}
