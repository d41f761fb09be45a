//! What the logs of a dirty array say: pure, from the bytes of their areas.

use std::ops::Range;

use thiserror::Error;
use wattle_engine::geometry::{Geometry, Level};
use wattle_engine::units::{MemberIx, Sector};
use wattle_format::md::ppl::{self, EntryError, HEADER_BYTES, PplEntry, PplShape};

/// What is known of parity once the logs are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParityKnowledge {
    /// It is right everywhere.
    Clean,
    /// It is right everywhere, if what looks like log writes that the power cut short is just that:
    /// what they announce had not been begun.
    CutShort,
    /// It is not known to be right; why.
    Untrusted(LogDistrust),
}

impl ParityKnowledge {
    /// Whether to take parity for right. In an array that is complete a resync costs nothing but
    /// time, so a cut-off log is not taken at its word there, as the kernel does not; with a member
    /// missing (`degraded`) it is what there is.
    #[must_use]
    pub fn trusts_parity(&self, degraded: bool) -> bool {
        match self {
            Self::Clean => true,
            Self::CutShort => degraded,
            Self::Untrusted(_) => false,
        }
    }
}

/// Why parity is not known to be right although there are logs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LogDistrust {
    /// Nothing was logged since the logs were emptied.
    #[error("the partial parity logs are empty: nothing says that parity was right before")]
    Empty,
    /// A member is in use and has no log.
    #[error("the member in slot {0} has no partial parity log")]
    NoLog(MemberIx),
    /// The log of a member cannot be read.
    #[error("the partial parity log of slot {0} cannot be read")]
    LogUnreadable(MemberIx),
    /// A member's log has no valid header.
    #[error("the partial parity log of slot {0} has no valid header")]
    NoHeader(MemberIx),
    /// The newest log of a member is not where the others lead: the power went while a ring started
    /// over. wattle does that in two steps, so that it never comes to this.
    #[error("the partial parity log of slot {0} starts over and was cut off")]
    CutOff(MemberIx),
    /// An entry has numbers that no writer produces.
    #[error("the partial parity log of slot {slot} is damaged: {error}")]
    Entry {
        /// The slot of the member with the log.
        slot: MemberIx,
        /// What is wrong.
        error: EntryError,
    },
    /// An entry does not belong to the member it is on, leaves its stripe, or overlaps another.
    #[error("the partial parity log of slot {slot} has an entry out of place, at array sector {data_sector}")]
    OutOfPlace {
        /// The slot of the member with the log.
        slot: MemberIx,
        /// Where the entry says it is.
        data_sector: u64,
    },
    /// Data that an entry names cannot be read.
    #[error("data that the partial parity log of slot {slot} needs cannot be read from slot {source_slot}")]
    DataUnreadable {
        /// The slot of the member with the log.
        slot: MemberIx,
        /// The slot of the member with the data.
        source_slot: MemberIx,
    },
    /// The entries ask for more parity than any writer has in flight.
    #[error("the partial parity logs ask for more than {} MiB of parity, which no writer has in flight", PARITY_BYTES_MAX >> 20)]
    TooMuch,
    /// The array is none that has such a log.
    #[error("the array is no RAID 5 with whole pages in its chunks")]
    Shape,
}

/// Parity that is made by following logs, in bytes: all of it is in memory at once.
pub(crate) const PARITY_BYTES_MAX: u64 = 512 << 20;

/// Parity to make: the XOR of the sources and the partial parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parity {
    pub slot: MemberIx,
    /// Data sector on every member.
    pub sector: Sector,
    pub len: Sector,
    pub sources: Vec<MemberIx>,
    /// Where in the slot's log area the partial parity is; empty for full stripes.
    pub partial: Range<usize>,
}

/// What the logs say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub parities: Vec<Parity>,
    /// Of the newest logs, followed or not.
    pub entries: usize,
    pub outcome: ParityKnowledge,
}

/// The log area of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Area<'a> {
    /// No member is in the slot.
    Absent,
    /// The member has none.
    None,
    /// The drive does not give it.
    Unreadable,
    /// As it is.
    Bytes(&'a [u8]),
}

/// Decides what to do; `areas` by slot.
pub(super) fn plan(geometry: &Geometry, set_uuid: &[u8; 16], areas: &[Area<'_>]) -> Plan {
    let mut plan = Plan { parities: Vec::new(), entries: 0, outcome: ParityKnowledge::Clean };
    let whole_pages = geometry.chunk().0.is_multiple_of(HEADER_BYTES as u64 / 512);
    if geometry.level() != Level::Raid5 || geometry.raid_disks() < 3 || !whole_pages {
        return Plan { outcome: ParityKnowledge::Untrusted(LogDistrust::Shape), ..plan };
    }
    let mut logged = false;
    let mut room_bytes = PARITY_BYTES_MAX;
    for (slot, area) in (0..).map(MemberIx).zip(areas) {
        let area = match area {
            Area::Absent => continue,
            Area::None => {
                plan.outcome.distrust(LogDistrust::NoLog(slot));
                continue;
            }
            Area::Unreadable => {
                plan.outcome.distrust(LogDistrust::LogUnreadable(slot));
                continue;
            }
            Area::Bytes(bytes) => *bytes,
        };
        let Some(newest) = ppl::newest(area, set_uuid) else {
            match ppl::is_torn(area, set_uuid) {
                true => plan.outcome.cut_short(),
                false => plan.outcome.distrust(LogDistrust::NoHeader(slot)),
            }
            continue;
        };
        if ppl::has_newer(area, set_uuid, &newest) {
            plan.outcome.distrust(LogDistrust::CutOff(slot));
            continue;
        }
        logged |= newest.header.generation > 0;
        let mut at = newest.offset_bytes + HEADER_BYTES;
        for entry in &newest.header.entries {
            plan.entries += 1;
            let partial = at..at.saturating_add(entry.pp_bytes as usize);
            at = partial.end;
            match parities(geometry, slot, entry, partial.clone()) {
                // Checked before the checksum: what is impossible was never written, cut short or
                // not.
                Err(distrust) => plan.outcome.distrust(distrust),
                Ok(_) if area.get(partial.clone()).is_none() => {
                    plan.outcome.distrust(LogDistrust::OutOfPlace { slot, data_sector: entry.data_sector });
                }
                Ok(_) if ppl::partial_checksum([&area[partial]]) != entry.checksum => {
                    plan.outcome.cut_short();
                }
                Ok(parities) => {
                    for parity in parities {
                        let Some(left) = room_bytes.checked_sub(parity.len.0 * 512) else {
                            plan.outcome.distrust(LogDistrust::TooMuch);
                            continue;
                        };
                        room_bytes = left;
                        if plan.parities.iter().any(|other| other.overlaps(&parity)) {
                            plan.outcome
                                .distrust(LogDistrust::OutOfPlace { slot, data_sector: entry.data_sector });
                        } else {
                            plan.parities.push(parity);
                        }
                    }
                }
            }
        }
    }
    if !logged {
        plan.outcome.distrust(LogDistrust::Empty);
    }
    plan
}

impl ParityKnowledge {
    /// The first reason stays.
    pub(super) fn distrust(&mut self, reason: LogDistrust) {
        if !matches!(self, Self::Untrusted(_)) {
            *self = Self::Untrusted(reason);
        }
    }

    fn cut_short(&mut self) {
        if *self == Self::Clean {
            *self = Self::CutShort;
        }
    }
}

impl Parity {
    fn overlaps(&self, other: &Self) -> bool {
        self.slot == other.slot
            && self.sector < other.sector + other.len
            && other.sector < self.sector + self.len
    }
}

/// What an entry of the log of `slot` asks for: one range of parity, or two where its last block is
/// shorter than the others.
fn parities(
    geometry: &Geometry,
    slot: MemberIx,
    entry: &PplEntry,
    partial: Range<usize>,
) -> Result<Vec<Parity>, LogDistrust> {
    let shape = PplShape {
        raid_disks: geometry.raid_disks() as u32,
        chunk_sectors: geometry.chunk().0 as u32,
        array_sectors: geometry.array_sectors().0,
    };
    let work = entry.work(&shape).map_err(|error| LogDistrust::Entry { slot, error })?;
    let out_of_place = LogDistrust::OutOfPlace { slot, data_sector: entry.data_sector };
    let (stripe, first_block, offset) = geometry.locate(Sector(entry.data_sector));
    let map = geometry.stripe(stripe);
    let blocks = first_block..first_block + work.data_disks as usize;
    let full = !work.has_partial_parity;
    if map.p() != slot
        || entry.parity_disk != u32::from(slot.0)
        || blocks.end > map.data_blocks()
        || (full && first_block != 0)
    {
        return Err(out_of_place);
    }
    let sector = map.member_sector + offset;
    let len = Sector(work.rows * work.row_sectors);
    // Blocks follow one another by a chunk in the array; only the last one may end before its rows
    // do.
    let last_start = geometry.array_sector_of(stripe, blocks.end - 1, offset);
    let last_len = Sector(work.end_sector.saturating_sub(last_start.0)).min(len);
    let parity = |rows: Range<Sector>, blocks: Range<usize>| Parity {
        slot,
        sector: sector + rows.start,
        len: rows.end - rows.start,
        sources: blocks.map(|block| map.data_member(block)).collect(),
        partial: if full {
            0..0
        } else {
            let at = |sector: Sector| partial.start + sector.0 as usize * 512;
            at(rows.start)..at(rows.end)
        },
    };
    let all = parity(Sector(0)..last_len, blocks.clone());
    let rest = parity(last_len..len, blocks.start..blocks.end - 1);
    Ok([all, rest].into_iter().filter(|parity| parity.len > Sector(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_engine::geometry::Params;
    use wattle_format::md::ppl::Header;

    const UUID: [u8; 16] = [7; 16];
    const CHUNK: u64 = 32;

    /// Four members: three data blocks. Stripe 0 has its parity on slot 3, its data on 0, 1, 2.
    fn geometry() -> Geometry {
        let params = Params {
            level: Level::Raid5,
            layout: 2,
            chunk: Sector(CHUNK),
            raid_disks: 4,
            component_size: Sector(256),
            member_sizes: Vec::new(),
        };
        Geometry::new(&params).unwrap()
    }

    fn entry(data_sector: u64, data_pages: u32, pp_pages: u32) -> PplEntry {
        let partial = vec![0x5a; pp_pages as usize * 4096];
        PplEntry {
            data_sector,
            pp_bytes: pp_pages * 4096,
            data_bytes: data_pages * 4096,
            parity_disk: 3,
            checksum: ppl::partial_checksum([&partial[..]]),
        }
    }

    fn log(generation: u64, entries: &[PplEntry]) -> Vec<u8> {
        let mut area = Header { generation, entries: entries.to_vec() }.encode(&UUID).to_vec();
        let partial: u32 = entries.iter().map(|entry| entry.pp_bytes).sum();
        area.resize(HEADER_BYTES + partial as usize, 0x5a);
        area.resize(64 << 10, 0);
        area
    }

    fn planned(last: &[u8]) -> Plan {
        let empty = log(0, &[]);
        plan(
            &geometry(),
            &UUID,
            &[Area::Bytes(&empty), Area::Bytes(&empty), Area::Bytes(&empty), Area::Bytes(last)],
        )
    }

    fn parity(sector: u64, len: u64, sources: &[u16], partial: Range<usize>) -> Parity {
        let sources = sources.iter().map(|&slot| MemberIx(slot)).collect();
        Parity { slot: MemberIx(3), sector: Sector(sector), len: Sector(len), sources, partial }
    }

    #[test]
    fn entries_become_ranges_of_parity() {
        let entries = [entry(8, 1, 1), entry(48, 4, 2), entry(0, 3, 0)];
        let found = planned(&log(5, &entries));
        assert_eq!(found.outcome, ParityKnowledge::Clean);
        assert_eq!(found.entries, 3);
        let expected = [
            parity(8, 8, &[0], 4096..8192),
            parity(16, 16, &[1, 2], 8192..16384),
            parity(0, 8, &[0, 1, 2], 0..0),
        ];
        assert_eq!(found.parities, expected);
    }

    #[test]
    fn a_chunk_and_a_bit_is_two_ranges() {
        let found = planned(&log(1, &[entry(0, 5, 4)]));
        let expected = [parity(0, 8, &[0, 1], 4096..8192), parity(8, 24, &[0], 8192..20480)];
        assert_eq!((found.outcome, found.parities), (ParityKnowledge::Clean, expected.to_vec()));
    }

    #[test]
    fn only_the_newest_log_counts() {
        let mut ring = log(3, &[entry(0, 1, 1)]);
        let second = Header { generation: 4, entries: vec![entry(40, 1, 1)] }.encode(&UUID);
        ring[8192..8192 + 4096].copy_from_slice(&second[..]);
        ring[12288..16384].fill(0x5a);
        assert_eq!(planned(&ring).parities, [parity(8, 8, &[1], 12288..16384)]);
    }

    /// Half a lap is gone, and the first log of the last one is all that is left of it: its entry
    /// is long done.
    #[test]
    fn a_ring_that_was_cut_off_while_it_started_over_is_not_followed() {
        let mut ring = log(3, &[entry(0, 1, 1)]);
        let newer = Header { generation: 5, entries: vec![entry(40, 1, 1)] }.encode(&UUID);
        ring[16384..16384 + 4096].copy_from_slice(&newer[..]);
        let found = planned(&ring);
        assert_eq!(found.outcome, ParityKnowledge::Untrusted(LogDistrust::CutOff(MemberIx(3))));
        assert_eq!(found.parities, []);
    }

    #[test]
    fn what_proves_nothing_is_not_trusted() {
        let distrust = |area: &[u8]| match planned(area).outcome {
            ParityKnowledge::Untrusted(reason) => reason,
            other => panic!("{other:?}"),
        };
        let (slot, bad) = (MemberIx(3), |entry: PplEntry| log(2, &[entry]));
        assert_eq!(distrust(&log(0, &[])), LogDistrust::Empty);
        assert_eq!(distrust(&vec![0; 8192]), LogDistrust::NoHeader(slot));
        let impossible = PplEntry { data_bytes: 100, ..entry(0, 1, 1) };
        assert!(matches!(distrust(&bad(impossible)), LogDistrust::Entry { .. }));
        for (what, entry) in [
            ("the parity of stripe 1 is on slot 2", entry(3 * CHUNK, 1, 1)),
            ("says another slot", PplEntry { parity_disk: 2, ..entry(0, 1, 1) }),
            ("leaves the stripe", entry(2 * CHUNK, 2, 1)),
            ("a full stripe that does not start at one", entry(CHUNK, 3, 0)),
        ] {
            let expected = LogDistrust::OutOfPlace { slot, data_sector: entry.data_sector };
            assert_eq!(distrust(&bad(entry)), expected, "{what}");
        }
        let twice = log(2, &[entry(0, 2, 2), entry(8, 1, 1)]);
        assert_eq!(distrust(&twice), LogDistrust::OutOfPlace { slot, data_sector: 8 });
        let beyond = &log(2, &[entry(0, 1, 1)])[..6000];
        assert_eq!(distrust(beyond), LogDistrust::OutOfPlace { slot, data_sector: 0 });
        let (full, empty) = (log(2, &[entry(0, 1, 1)]), log(0, &[]));
        for (area, reason) in [
            (Area::None, LogDistrust::NoLog(MemberIx(1))),
            (Area::Unreadable, LogDistrust::LogUnreadable(MemberIx(1))),
        ] {
            let areas = [Area::Bytes(&empty), area, Area::Bytes(&empty), Area::Bytes(&full)];
            assert_eq!(plan(&geometry(), &UUID, &areas).outcome, ParityKnowledge::Untrusted(reason));
        }
        let areas = [Area::Bytes(&empty), Area::Absent, Area::Bytes(&empty), Area::Bytes(&full)];
        assert_eq!(
            plan(&geometry(), &UUID, &areas).outcome,
            ParityKnowledge::Clean,
            "a log that no member has is not missed"
        );
    }

    #[test]
    fn a_log_write_that_was_cut_short_is_told_from_damage() {
        let mut torn = log(2, &[entry(0, 1, 1), entry(8, 1, 1)]);
        torn[4096] ^= 1;
        let found = planned(&torn);
        assert_eq!(found.outcome, ParityKnowledge::CutShort);
        assert_eq!(found.parities, [parity(8, 8, &[0], 8192..12288)], "what is whole does no harm");
        let mut header = log(2, &[entry(0, 1, 1); 30]);
        header[1024..1536].fill(0);
        let empty = log(1, &[]);
        let areas = [Area::Bytes(&empty), Area::Bytes(&empty), Area::Bytes(&empty), Area::Bytes(&header)];
        assert_eq!(plan(&geometry(), &UUID, &areas).outcome, ParityKnowledge::CutShort);
        assert!(
            ParityKnowledge::CutShort.trusts_parity(true) && !ParityKnowledge::CutShort.trusts_parity(false)
        );
    }
}
