//! The log of a journal, from its tail to its end.
//!
//! A page of data is *newer* until the parity of its row is logged; then the row is *settled*: a
//! writer puts all of it on the members as it is logged. Data that is logged for a settled row
//! begins anew, and a flush record says that a row is on the members.
//!
//! The log ends before the first block that does not continue it. A meta block whose pages are not
//! what was logged counts for nothing, and ends the log too: the power went while it was written,
//! and nothing of it, or behind it, was acknowledged. Where the log provably goes on behind that
//! block this is not the only explanation: a block that was acknowledged may be damaged.
//!
//! Bounds: a walk ends after one turn around the ring, and after [`PAGES_MAX`] pages.

use std::collections::BTreeMap;

use wattle_engine::geometry::{Geometry, LevelKind};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_format::md::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload};
use wattle_format::md::{JournalChecksum, Superblock};
use wattle_rt::Device;

use crate::md::facts::JournalEnd;

/// Pages of a log that are compared: 16 GiB, more than the kernel leaves behind a tail (10 GiB, or
/// a quarter of the ring). Each costs about 40 bytes of memory.
const PAGES_MAX: usize = 1 << 22;
/// Blocks behind the end of the log in which its continuation is looked for: more than a meta block
/// has pages.
const BLOCKS_BEHIND: u64 = 256;

/// Where a logged page belongs. Ordered by sector first: a row of the log is one page of every
/// member at one sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceOfPage {
    /// In the member's data.
    pub sector: u64,
    pub member: MemberIx,
}

/// By place: the position in the ring of the page that was logged last for it.
type Latest = BTreeMap<PlaceOfPage, u64>;

/// What a log says.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Pages of rows whose parity was logged after them.
    pub settled: Latest,
    /// Pages of data without.
    pub newer: Latest,
    pub end: JournalEnd,
}

impl Log {
    /// The page that counts for each place.
    pub fn newest(&self) -> impl Iterator<Item = (PlaceOfPage, u64)> {
        let settled = self.settled.iter().filter(|(place, _)| !self.newer.contains_key(place));
        settled.chain(&self.newer).map(|(&place, &position)| (place, position))
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Data(place, position) => {
                self.newer.insert(place, position);
            }
            Step::Parity(place, position) => {
                self.settled.insert(place, position);
                let data = drain_row(place.sector, &mut self.newer);
                self.settled.extend(data);
            }
            Step::Flushed(sector) => {
                drain_row(sector, &mut self.newer);
                drain_row(sector, &mut self.settled);
            }
        }
    }
}

/// Takes out what was logged for a row.
fn drain_row(sector: u64, latest: &mut Latest) -> Vec<(PlaceOfPage, u64)> {
    let member = |ix| PlaceOfPage { sector, member: MemberIx(ix) };
    let row: Vec<_> = latest.range(member(0)..=member(u16::MAX)).map(|(&place, &at)| (place, at)).collect();
    for (place, _) in &row {
        latest.remove(place);
    }
    row
}

/// What a payload says.
enum Step {
    Data(PlaceOfPage, u64),
    Parity(PlaceOfPage, u64),
    /// The row at this sector is on the members.
    Flushed(u64),
}

/// Why what a meta block logs is not taken.
enum Unsound {
    /// A page is not what was logged.
    Torn,
    /// A page or payload cannot be read, or is not understood.
    Unknown,
}

/// The journal's data area.
pub(super) struct Ring<'a> {
    pub journal: &'a Device,
    pub data_offset_sectors: u64,
    pub sectors: u64,
    pub tail: u64,
    pub checksum: JournalChecksum,
}

impl<'a> Ring<'a> {
    pub fn new(journal: &'a Device, superblock: &Superblock) -> Option<Self> {
        Some(Self {
            journal,
            data_offset_sectors: superblock.data_offset_sectors(),
            sectors: superblock.data_size_sectors() / BLOCK_SECTORS * BLOCK_SECTORS,
            tail: superblock.journal_tail()?,
            checksum: JournalChecksum::new(&superblock.stored_uuid()),
        })
    }

    /// Everything logged behind the tail; `None` if not all of it can be read and understood.
    pub fn walk(&self, geometry: &Geometry) -> Option<Log> {
        if geometry.kind() != LevelKind::Parity {
            return None;
        }
        let mut log = Log::default();
        // Without a block at the tail it is not known what was logged.
        let mut block = self.meta_block(self.tail, None)??;
        let mut walked_sectors = 0;
        loop {
            walked_sectors += (1 + block.pages()) * BLOCK_SECTORS;
            if walked_sectors > self.sectors || log.settled.len() + log.newer.len() > PAGES_MAX {
                return None;
            }
            match self.steps(&block, geometry) {
                Ok(steps) => steps.iter().for_each(|step| log.take(step)),
                Err(Unsound::Unknown) => return None,
                Err(Unsound::Torn) => {
                    let goes_on = self.goes_on(block.position_sectors, block.seq)?;
                    log.end = if goes_on { JournalEnd::Damaged } else { JournalEnd::CutShort };
                    return Some(log);
                }
            }
            let position = block.next_position_sectors(self.sectors)?;
            let seq = block.seq.wrapping_add(1);
            block = match self.meta_block(position, Some(seq))? {
                Some(next) => next,
                None => {
                    if self.goes_on(position, seq)? {
                        log.end = JournalEnd::Damaged;
                    }
                    return Some(log);
                }
            };
        }
    }

    /// Whether a block that was logged after `seq` lies behind `position`, where that one is or
    /// should be; `None` if that cannot be read.
    fn goes_on(&self, position: u64, seq: u64) -> Option<bool> {
        let behind = BLOCKS_BEHIND.min((self.sectors / BLOCK_SECTORS).saturating_sub(1));
        for block in 1..=behind {
            let at = (position + block * BLOCK_SECTORS) % self.sectors;
            let later = self.meta_block(at, None)?.map(|found| found.seq.wrapping_sub(seq));
            if later.is_some_and(|later| (1..=BLOCKS_BEHIND).contains(&later)) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// What one meta block logs, if all of it is there. Places that are none, discards, and what
    /// reshapes log are not understood.
    fn steps(&self, block: &MetaBlock, geometry: &Geometry) -> Result<Vec<Step>, Unsound> {
        let mut position = block.position_sectors;
        let mut steps = Vec::new();
        for payload in &block.payloads {
            if let Payload::Flush { stripes, .. } = payload {
                steps.extend(stripes.iter().map(|&sector| Step::Flushed(sector)));
                continue;
            }
            let is_parity = matches!(payload, Payload::Parity { .. });
            let places = places(payload, geometry).ok_or(Unsound::Unknown)?;
            for (place, &checksum) in places.into_iter().zip(payload.page_checksums()) {
                position = (position + BLOCK_SECTORS) % self.sectors;
                let page = self.block(position).ok_or(Unsound::Unknown)?;
                if self.checksum.of(&page) != checksum {
                    return Err(Unsound::Torn);
                }
                let step = if is_parity { Step::Parity } else { Step::Data };
                steps.push(step(place, position));
            }
        }
        Ok(steps)
    }

    /// The meta block at a position; the outer `None` if that cannot be read, the inner one if
    /// there is none that continues the log.
    fn meta_block(&self, position: u64, seq: Option<u64>) -> Option<Option<MetaBlock>> {
        Some(MetaBlock::decode(&self.block(position)?, self.checksum, position, seq).ok())
    }

    pub fn block(&self, position: u64) -> Option<Vec<u8>> {
        if position >= self.sectors {
            return None;
        }
        read_block(self.journal, self.data_offset_sectors, position)
    }
}

/// Where the pages of a payload belong; `None` if it is not one that the kernel writes for this
/// array. Discards and what reshapes log are flags: they are not understood here.
fn places(payload: &Payload, geometry: &Geometry) -> Option<Vec<PlaceOfPage>> {
    match payload {
        Payload::Data { flags: 0, sector, checksums } if checksums.len() == 1 => {
            let inside = sector % BLOCK_SECTORS == 0 && *sector < geometry.array_sectors().0;
            let run = inside.then(|| geometry.data_place(Sector(*sector)))?;
            Some(vec![PlaceOfPage { sector: run.sector.0, member: run.member }])
        }
        Payload::Parity { flags: 0, sector, checksums } => {
            let stripe = StripeNo(sector / geometry.chunk().0);
            let inside = sector % BLOCK_SECTORS == 0 && stripe.0 < geometry.stripes();
            let map = inside.then(|| geometry.stripe(stripe))?;
            let place = |member| PlaceOfPage { sector: *sector, member };
            let places: Vec<_> = [Some(map.p()), map.q()].into_iter().flatten().map(place).collect();
            (places.len() == checksums.len()).then_some(places)
        }
        _ => None,
    }
}

/// Which sector of the array a page of data is.
pub(super) fn array_sector(place: PlaceOfPage, geometry: &Geometry) -> Option<Sector> {
    let stripe = StripeNo(place.sector / geometry.chunk().0);
    let map = geometry.stripe(stripe);
    let block = (0..map.data_blocks()).find(|&block| map.data_member(block) == place.member)?;
    Some(geometry.array_sector_of(stripe, block, Sector(place.sector) - map.member_sector))
}

/// A block of a member's data; `None` if it is not on the member or cannot be read.
pub(super) fn read_block(device: &Device, data_offset_sectors: u64, sector: u64) -> Option<Vec<u8>> {
    let start_bytes = data_offset_sectors.checked_add(sector)?.checked_mul(512)?;
    let end_bytes = start_bytes.checked_add(BLOCK_BYTES as u64)?;
    if end_bytes > device.size_bytes() {
        return None;
    }
    let mut bytes = vec![0; BLOCK_BYTES];
    device.read_blocking(start_bytes, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::MemberAccess;
    use wattle_engine::geometry::{Level, Params};

    const RING_SECTORS: u64 = 12 * BLOCK_SECTORS;
    const SEQ: u64 = 40;

    /// RAID 5 of three, chunks of two pages: pages of data 0, 8 and parity 0 are on members 0, 0
    /// and 2.
    fn geometry() -> Geometry {
        let params = Params {
            level: Level::Raid5,
            layout: 2,
            chunk: Sector(16),
            raid_disks: 3,
            component_size: Sector(64),
            member_sizes: Vec::new(),
        };
        Geometry::new(&params).unwrap()
    }

    /// A payload and its pages.
    type Logged = (Payload, Vec<Vec<u8>>);

    fn page(fill: u8) -> Vec<u8> {
        vec![fill; BLOCK_BYTES]
    }

    fn sum() -> JournalChecksum {
        JournalChecksum::new(&[7; 16])
    }

    fn data(sector: u64, fill: u8) -> Logged {
        (Payload::Data { flags: 0, sector, checksums: vec![sum().of(&page(fill))] }, vec![page(fill)])
    }

    fn parity(sector: u64, fill: u8) -> Logged {
        (Payload::Parity { flags: 0, sector, checksums: vec![sum().of(&page(fill))] }, vec![page(fill)])
    }

    fn flush(sector: u64) -> Logged {
        (Payload::Flush { flags: 1, stripes: vec![sector] }, Vec::new())
    }

    fn drive(size_bytes: u64, blocks: &[(u64, Vec<u8>)]) -> Device {
        let device = MemberAccess::local().look(&format!("mem:{size_bytes}")).unwrap().device;
        for (sector, bytes) in blocks {
            device.write_blocking(sector * 512, bytes).unwrap();
        }
        device
    }

    /// (member, sector, first byte).
    type Told = Vec<(u16, u64, u8)>;

    /// A ring with these meta blocks from position `tail` on, and what its walk finds in any case.
    fn walked(tail: u64, log: &[Vec<Logged>]) -> Option<Told> {
        let (settled, newer, end) = walk(tail, log)?;
        assert_eq!(end, JournalEnd::Whole);
        let places: Vec<_> = newer.iter().map(|&(member, sector, _)| (member, sector)).collect();
        let settled = settled.into_iter().filter(|&(member, sector, _)| !places.contains(&(member, sector)));
        let mut told: Vec<_> = settled.chain(newer).collect();
        told.sort_by_key(|&(member, sector, _)| (sector, member));
        Some(told)
    }

    /// What a walk finds: settled, newer, and how the log ends.
    fn walk(tail: u64, log: &[Vec<Logged>]) -> Option<(Told, Told, JournalEnd)> {
        let mut blocks = Vec::new();
        let mut position = tail;
        for (seq, entries) in (SEQ..).zip(log) {
            let payloads = entries.iter().map(|(payload, _)| payload.clone()).collect();
            let block = MetaBlock { seq, position_sectors: position, payloads };
            blocks.push((position, block.encode(sum()).unwrap().to_vec()));
            for page in entries.iter().flat_map(|(_, pages)| pages) {
                position = (position + BLOCK_SECTORS) % RING_SECTORS;
                blocks.push((position, page.clone()));
            }
            position = (position + BLOCK_SECTORS) % RING_SECTORS;
        }
        let journal = drive(RING_SECTORS * 512, &blocks);
        let ring =
            Ring { journal: &journal, data_offset_sectors: 0, sectors: RING_SECTORS, tail, checksum: sum() };
        let log = ring.walk(&geometry())?;
        let told = |latest: &Latest| {
            let told = latest.iter();
            told.map(|(place, &at)| (place.member.0, place.sector, ring.block(at).unwrap()[0])).collect()
        };
        Some((told(&log.settled), told(&log.newer), log.end))
    }

    /// The parity that makes a row settled fits what was logged before it, not after.
    #[test]
    fn data_is_newer_until_its_parity_is_logged() {
        let log = [vec![data(0, 1)], vec![data(8, 2), parity(0, 3)], vec![data(0, 4)]];
        let first = (vec![], vec![(0, 0, 1)], JournalEnd::Whole);
        assert_eq!(walk(0, &log[..1]), Some(first));
        let settled = vec![(0, 0, 1), (2, 0, 3)];
        assert_eq!(walk(0, &log[..2]), Some((settled.clone(), vec![(0, 8, 2)], JournalEnd::Whole)));
        assert_eq!(walk(0, &log), Some((settled, vec![(0, 0, 4), (0, 8, 2)], JournalEnd::Whole)));
    }

    /// Of a block that was cut short nothing was acknowledged; if the log goes on behind it, it may
    /// have been.
    #[test]
    fn the_log_ends_with_a_block_that_is_not_what_was_logged() {
        let lie = |(payload, _): Logged| (payload, vec![page(0xee)]);
        let torn = [vec![lie(data(0, 1))], vec![data(0, 9), lie(parity(0, 2))]];
        for torn in torn {
            let log = [vec![data(8, 5)], torn, vec![data(0, 7)]];
            assert_eq!(walk(0, &log[..2]), Some((vec![], vec![(0, 8, 5)], JournalEnd::CutShort)));
            assert_eq!(walk(0, &log), Some((vec![], vec![(0, 8, 5)], JournalEnd::Damaged)));
        }
    }

    /// Comparing an older entry would refuse a clean array, and forgetting a newer one would serve
    /// old data.
    #[test]
    fn the_last_entry_of_a_place_counts_and_flushed_ones_do_not() {
        let first = vec![data(0, 1), data(8, 2), parity(0, 3)];
        assert_eq!(walked(0, std::slice::from_ref(&first)), Some(vec![(0, 0, 1), (2, 0, 3), (0, 8, 2)]));
        let again = vec![data(0, 4)];
        assert_eq!(walked(0, &[first.clone(), again.clone()]), Some(vec![(0, 0, 4), (2, 0, 3), (0, 8, 2)]));
        assert_eq!(walked(0, &[first.clone(), vec![flush(0)]]), Some(vec![(0, 8, 2)]));
        assert_eq!(walked(0, &[first, vec![flush(0)], again]), Some(vec![(0, 0, 4), (0, 8, 2)]));
    }

    #[test]
    fn a_log_may_lie_around_the_end_of_the_ring() {
        let tail = RING_SECTORS - 2 * BLOCK_SECTORS;
        let log = [vec![data(0, 1), data(8, 2)], vec![parity(0, 3)]];
        assert_eq!(walked(tail, &log), Some(vec![(0, 0, 1), (2, 0, 3), (0, 8, 2)]));
    }

    /// What is skipped because it is not understood may be the only copy of a write.
    #[test]
    fn what_is_not_understood_is_not_skipped() {
        let discard = Payload::Data { flags: 1, sector: 0, checksums: vec![sum().of(&page(1))] };
        let two = Payload::Data { flags: 0, sector: 0, checksums: vec![sum().of(&page(1)); 2] };
        let with_q = Payload::Parity { flags: 0, sector: 0, checksums: vec![sum().of(&page(1)); 2] };
        let rows = [
            ("a discard", vec![(discard, vec![page(1)])]),
            ("two pages of data at once", vec![(two, vec![page(1); 2])]),
            ("a Q on RAID 5", vec![(with_q, vec![page(1); 2])]),
            ("data beyond the array", vec![data(128, 1)]),
            ("parity beyond the members", vec![parity(64, 1)]),
            ("no whole page", vec![data(4, 1)]),
            ("more than the ring holds", vec![data(0, 1); 12]),
        ];
        for (what, entries) in rows {
            assert_eq!(walked(0, &[vec![data(8, 5)], entries]), None, "{what}");
        }
        assert_eq!(walked(0, &[]), None, "nothing at the tail");
    }
}
