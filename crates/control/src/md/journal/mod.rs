//! The journal of RAID 4, 5 and 6 (docs/formats.md §5): whether it holds anything that the members
//! do not, and what the members come to with it.
//!
//! A journal that writes through puts a stripe into its log, writes it to the members, and moves
//! the tail later: after a clean stop the log is long and all of it is on the members. So the log
//! is walked from its tail ([`mod@log`]) and every page is compared with the place it is for, byte
//! by byte; data of a member that is missing with what the others give for it, which is what a
//! reader would get. If all are there, replaying the log would change nothing, and the members
//! alone are right, parity included. Parity of a missing member holds nothing that could be read.
//! If not, [`replay`] writes what is missing, to memory over the members.
//!
//! Invariants: this only reads. Whatever is not understood, not readable or not there never counts
//! as written.

mod log;
mod replay;

use wattle_engine::geometry::Geometry;
use wattle_engine::units::{MemberIx, StripeNo};
use wattle_format::md::Superblock;
use wattle_format::md::journal::{BLOCK_BYTES, BLOCK_SECTORS};
use wattle_rt::Device;

use crate::md::facts::{JournalEnd, JournalFacts};

use log::{PlaceOfPage, Ring, read_block};
pub(crate) use replay::{JournalReplayError, replay};

/// A member and where its data starts.
#[derive(Debug, Clone)]
pub(crate) struct DataArea {
    pub device: Device,
    pub data_offset_sectors: u64,
    /// What is not rebuilt yet counts as missing.
    pub valid_below_sectors: u64,
}

/// Walks the log of `superblock`'s journal, and compares it with the members by slot; those that
/// are missing are `None`.
pub(crate) fn compare(
    journal: &Device,
    superblock: &Superblock,
    geometry: &Geometry,
    slots: &[Option<DataArea>],
) -> JournalFacts {
    let Some(ring) = Ring::new(journal, superblock) else { return JournalFacts::NotEmpty };
    let Some(log) = ring.walk(geometry) else { return JournalFacts::NotEmpty };
    let (mut pages, mut ahead) = (0, 0);
    for (place, position) in log.newest() {
        let Some(logged) = ring.block(position) else { return JournalFacts::NotEmpty };
        pages += 1;
        ahead += u64::from(!is_written(place, &logged, geometry, slots));
    }
    match log.end {
        JournalEnd::Whole if pages == 0 => JournalFacts::Empty,
        JournalEnd::Whole if ahead == 0 => JournalFacts::Written { pages },
        end => JournalFacts::Ahead { pages: ahead, end },
    }
}

/// Whether a read of the members returns the logged page.
fn is_written(place: PlaceOfPage, logged: &[u8], geometry: &Geometry, slots: &[Option<DataArea>]) -> bool {
    let PlaceOfPage { sector, member } = place;
    let area = |slot: MemberIx| {
        let area = slots.get(slot.index())?.as_ref();
        area.filter(|area| sector.saturating_add(BLOCK_SECTORS) <= area.valid_below_sectors)
    };
    let read = |slot| area(slot).and_then(|area| read_block(&area.device, area.data_offset_sectors, sector));
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
