//! Whether a journal holds anything that the members do not.
//!
//! A journal that writes through puts a stripe into its log, writes it to the members, and moves
//! the tail later: after a clean stop the log is long and all of it is on the members. So the log
//! is walked from its tail (docs/formats.md §5) and every page is compared with the place it is
//! for, byte by byte; data of a member that is missing with what the others give for it, which is
//! what a reader would get. If all are there, replaying the log would change nothing, and the
//! members alone are right, parity included. Parity of a missing member holds nothing that could be
//! read.
//!
//! Invariants: this only reads. Whatever is not understood, not readable or not there never counts
//! as written.
//!
//! Bounds: a walk ends after one turn around the ring, and after [`PAGES_MAX`] pages.

use std::collections::BTreeMap;

use wattle_engine::geometry::{Geometry, LevelKind};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_format::md::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload};
use wattle_format::md::{JournalChecksum, Superblock};

use crate::md::facts::JournalFacts;
use crate::members::Member;

/// Pages of a log that are compared: 16 GiB, more than the kernel leaves behind a tail (10 GiB, or
/// a quarter of the ring). Each costs about 40 bytes of memory.
const PAGES_MAX: usize = 1 << 22;

/// A member and where its data starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataArea<'a> {
    pub member: &'a Member,
    pub data_offset_sectors: u64,
    /// What is not rebuilt yet counts as missing.
    pub valid_below_sectors: u64,
}

/// Walks the log of `superblock`'s journal, and compares it with the members by slot; those that
/// are missing are `None`.
pub(crate) fn compare(
    journal: &Member,
    superblock: &Superblock,
    geometry: &Geometry,
    slots: &[Option<DataArea<'_>>],
) -> JournalFacts {
    let Some(ring) = Ring::new(journal, superblock) else { return JournalFacts::NotEmpty };
    let Some(latest) = ring.walk(geometry) else { return JournalFacts::NotEmpty };
    let pages = latest.len() as u64;
    let mut ahead = 0;
    for (place, position) in latest {
        let Some(logged) = ring.block(position) else { return JournalFacts::NotEmpty };
        ahead += u64::from(!is_written(place, &logged, geometry, slots));
    }
    if ahead == 0 { JournalFacts::Written { pages } } else { JournalFacts::Ahead { pages: ahead } }
}

/// Whether a read of the members returns the logged page.
fn is_written(
    place: PlaceOfPage,
    logged: &[u8],
    geometry: &Geometry,
    slots: &[Option<DataArea<'_>>],
) -> bool {
    let PlaceOfPage { sector, member } = place;
    let area = |slot: MemberIx| {
        let area = slots.get(slot.index()).copied().flatten();
        area.filter(|area| sector.saturating_add(BLOCK_SECTORS) <= area.valid_below_sectors)
    };
    let read = |slot| area(slot).and_then(|area| read_block(area.member, area.data_offset_sectors, sector));
    if area(member).is_some() {
        return read(member).is_some_and(|page| page == logged);
    }
    let map = geometry.stripe(StripeNo(sector / geometry.chunk().0));
    let parity = [Some(map.p()), map.q()];
    if parity.contains(&Some(member)) {
        return true;
    }
    // P is the XOR of the data: so is each of them of the others and P. What would take Q is not
    // looked at.
    let others = (0..geometry.raid_disks() as u16).map(MemberIx);
    let mut others = others.filter(|&slot| slot != member && Some(slot) != map.q());
    let recovered = others.try_fold(vec![0; BLOCK_BYTES], |mut sum, slot| {
        sum.iter_mut().zip(read(slot)?).for_each(|(sum, byte)| *sum ^= byte);
        Some(sum)
    });
    recovered.is_some_and(|page| page == logged)
}

/// Where a logged page belongs. Ordered by sector first: a stripe of the log is one page of every
/// member at one sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PlaceOfPage {
    /// In the member's data.
    sector: u64,
    member: MemberIx,
}

/// By place: the position in the ring of the page that was logged last for it.
type Latest = BTreeMap<PlaceOfPage, u64>;

/// The journal's data area.
struct Ring<'a> {
    journal: &'a Member,
    data_offset_sectors: u64,
    sectors: u64,
    tail: u64,
    checksum: JournalChecksum,
}

impl<'a> Ring<'a> {
    fn new(journal: &'a Member, superblock: &Superblock) -> Option<Self> {
        Some(Self {
            journal,
            data_offset_sectors: superblock.data_offset_sectors(),
            sectors: superblock.data_size_sectors() / BLOCK_SECTORS * BLOCK_SECTORS,
            tail: superblock.journal_tail()?,
            checksum: JournalChecksum::new(&superblock.stored_uuid()),
        })
    }

    /// Everything logged behind the tail; `None` if not all of it can be understood.
    fn walk(&self, geometry: &Geometry) -> Option<Latest> {
        if geometry.kind() != LevelKind::Parity {
            return None;
        }
        let mut latest = Latest::new();
        // Without a block at the tail it is not known what was logged.
        let mut next = Some(self.meta_block(self.tail, None)?);
        let mut walked_sectors = 0;
        while let Some(block) = next {
            walked_sectors += (1 + block.pages()) * BLOCK_SECTORS;
            if walked_sectors > self.sectors || latest.len() > PAGES_MAX {
                return None;
            }
            self.take(&block, geometry, &mut latest)?;
            let position = block.next_position_sectors(self.sectors)?;
            next = self.meta_block(position, Some(block.seq.wrapping_add(1)));
        }
        Some(latest)
    }

    /// Adds what one meta block logs. `None` if a page is not what was logged (a write that the
    /// power cut short, or damage), or belongs nowhere.
    fn take(&self, block: &MetaBlock, geometry: &Geometry, latest: &mut Latest) -> Option<()> {
        let mut position = block.position_sectors;
        for payload in &block.payloads {
            if let Payload::Flush { stripes, .. } = payload {
                stripes.iter().for_each(|&sector| forget(sector, latest));
                continue;
            }
            for (place, &checksum) in places(payload, geometry)?.into_iter().zip(payload.page_checksums()) {
                position = (position + BLOCK_SECTORS) % self.sectors;
                let page = self.block(position)?;
                if self.checksum.of(&page) != checksum {
                    return None;
                }
                latest.insert(place, position);
            }
        }
        Some(())
    }

    fn meta_block(&self, position: u64, seq: Option<u64>) -> Option<MetaBlock> {
        MetaBlock::decode(&self.block(position)?, self.checksum, position, seq).ok()
    }

    fn block(&self, position: u64) -> Option<Vec<u8>> {
        if position >= self.sectors {
            return None;
        }
        read_block(self.journal, self.data_offset_sectors, position)
    }
}

/// Drops what was logged for a stripe that is on the members: a flush record says so.
fn forget(sector: u64, latest: &mut Latest) {
    let member = |ix| PlaceOfPage { sector, member: MemberIx(ix) };
    let flushed: Vec<_> = latest.range(member(0)..=member(u16::MAX)).map(|(&place, _)| place).collect();
    for place in flushed {
        latest.remove(&place);
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

/// A block of a member's data; `None` if it is not on the member or cannot be read.
fn read_block(member: &Member, data_offset_sectors: u64, sector: u64) -> Option<Vec<u8>> {
    let start_bytes = data_offset_sectors.checked_add(sector)?.checked_mul(512)?;
    let end_bytes = start_bytes.checked_add(BLOCK_BYTES as u64)?;
    if end_bytes > member.device.size_bytes() {
        return None;
    }
    member.read(start_bytes, BLOCK_BYTES).ok()
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

    fn drive(size_bytes: u64, blocks: &[(u64, Vec<u8>)]) -> Member {
        let member = MemberAccess::local().look(&format!("mem:{size_bytes}")).unwrap();
        for (sector, bytes) in blocks {
            member.device.write_blocking(sector * 512, bytes).unwrap();
        }
        member
    }

    /// A ring with these meta blocks from position `tail` on, and what its walk finds: (member,
    /// sector, first byte).
    fn walked(tail: u64, log: &[Vec<Logged>]) -> Option<Vec<(u16, u64, u8)>> {
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
        let latest = ring.walk(&geometry())?;
        let told =
            latest.iter().map(|(place, &at)| (place.member.0, place.sector, ring.block(at).unwrap()[0]));
        Some(told.collect())
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
        let lie = |(payload, _): (Payload, _)| (payload, vec![page(0xee)]);
        let discard = Payload::Data { flags: 1, sector: 0, checksums: vec![sum().of(&page(1))] };
        let two = Payload::Data { flags: 0, sector: 0, checksums: vec![sum().of(&page(1)); 2] };
        let with_q = Payload::Parity { flags: 0, sector: 0, checksums: vec![sum().of(&page(1)); 2] };
        let rows = [
            ("a torn page", vec![lie(data(0, 1))]),
            ("a torn parity", vec![data(0, 1), lie(parity(0, 2))]),
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
