//! From a list of writes to what a log says of them. Pure: what has to be read is named first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use wattle_format::overlay::{sample, sample_bytes, sample_places};
use wattle_format::undo::{RANGE_SECTORS_MAX, Range, SECTOR_BYTES, UndoTarget, VERSIONS_MAX};
use wattle_rt::IoError;

use super::{CoveredWrite, UndoDirectory};

/// What is read at a time and in one piece.
const PAGE_BYTES: u64 = 4096;
const SECTOR: u64 = SECTOR_BYTES as u64;

/// A part of a site, in whole pages but at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SitePiece {
    /// Which site.
    pub site: usize,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: usize,
}

/// What was read, by site and place.
#[derive(Debug, Default)]
pub struct Pieces(BTreeMap<(usize, u64), Result<Vec<u8>, IoError>>);

impl Pieces {
    /// Adds what was read.
    pub fn add(&mut self, piece: SitePiece, read: Result<Vec<u8>, IoError>) {
        self.0.insert((piece.site, piece.offset_bytes), read);
    }

    fn sector(&self, site: usize, sector: u64) -> Result<[u8; SECTOR_BYTES], IoError> {
        let at = sector * SECTOR;
        let page = at / PAGE_BYTES * PAGE_BYTES;
        let bytes = self.0.get(&(site, page)).ok_or(IoError::END_OF_DEVICE)?.as_ref().map_err(|e| *e)?;
        let skip = (at - page) as usize;
        let sector = bytes.get(skip..skip + SECTOR_BYTES).ok_or(IoError::END_OF_DEVICE)?;
        Ok(sector.try_into().expect("a sector has this many bytes"))
    }
}

/// What has to be read of the sites before they are written.
#[must_use]
pub fn pieces(targets: &[UndoTarget], writes: &[CoveredWrite], kept: &[UndoDirectory]) -> Vec<SitePiece> {
    let mut pieces = Vec::new();
    let end = |site: usize| targets[site].sectors * SECTOR;
    let mut add = |site: usize, page: u64| {
        let len_bytes = PAGE_BYTES.min(end(site).saturating_sub(page)) as usize;
        pieces.push(SitePiece { site, offset_bytes: page, len_bytes });
    };
    let written = writes.iter().map(|write| (write.site, write.offset_bytes, write.bytes.len() as u64));
    let kept = kept.iter().map(|kept| (kept.site, kept.offset_bytes, kept.len_bytes));
    for (site, offset_bytes, len_bytes) in written.chain(kept) {
        let last = (offset_bytes + len_bytes).min(end(site));
        (offset_bytes / PAGE_BYTES * PAGE_BYTES..last)
            .step_by(PAGE_BYTES as usize)
            .for_each(|at| add(site, at));
    }
    for (site, target) in targets.iter().enumerate() {
        sample_places(target.sectors).into_iter().for_each(|at| add(site, at));
    }
    pieces.sort_unstable();
    pieces.dedup();
    pieces.retain(|piece| piece.len_bytes > 0);
    pieces
}

/// A sector while the writes pass.
struct Sector {
    before: [u8; SECTOR_BYTES],
    now: [u8; SECTOR_BYTES],
    written: Vec<u32>,
    /// The last that wrote it.
    step: u16,
}

/// The sectors that a log is of, in the order in which they were come upon.
struct Sectors<'a> {
    pieces: &'a Pieces,
    all: BTreeMap<(usize, u64), Sector>,
    order: Vec<(usize, u64)>,
}

impl Sectors<'_> {
    fn at(&mut self, site: usize, sector: u64) -> Result<&mut Sector, (usize, IoError)> {
        match self.all.entry((site, sector)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let before = self.pieces.sector(site, sector).map_err(|error| (site, error))?;
                self.order.push((site, sector));
                Ok(vacant.insert(Sector { before, now: before, written: Vec::new(), step: 0 }))
            }
        }
    }
}

/// What a log says of these writes, and of what else is kept: the targets with what they are known
/// by, and the ranges.
///
/// # Errors
/// What a write goes over, or is to be kept, could not be read, on that site.
pub fn draft(
    targets: Vec<UndoTarget>,
    writes: &[CoveredWrite],
    kept: &[UndoDirectory],
    pieces: &Pieces,
) -> Result<(Vec<UndoTarget>, Vec<Range>), (usize, IoError)> {
    let mut sectors = Sectors { pieces, all: BTreeMap::new(), order: Vec::new() };
    for CoveredWrite { site, step, offset_bytes, bytes } in writes {
        let mut at = *offset_bytes;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (sector, skip) = (at / SECTOR, (at % SECTOR) as usize);
            let (part, behind) = rest.split_at(rest.len().min(SECTOR_BYTES - skip));
            let state = sectors.at(*site, sector)?;
            state.now[skip..skip + part.len()].copy_from_slice(part);
            state.step = state.step.max(*step);
            let sum = crc32c::crc32c(&state.now);
            // A write that changes nothing leaves no other version of a sector.
            if state.written.last() != Some(&sum) {
                state.written.push(sum);
            }
            assert!(state.written.len() <= VERSIONS_MAX, "no command writes a sector so often");
            (at, rest) = (at + part.len() as u64, behind);
        }
    }
    for UndoDirectory { site, offset_bytes, len_bytes } in kept {
        for sector in offset_bytes / SECTOR..(offset_bytes + len_bytes).div_ceil(SECTOR) {
            let state = sectors.at(*site, sector)?;
            // The command writes nothing here that could be told from what others do.
            if state.written.is_empty() {
                state.written.push(crc32c::crc32c(&state.before));
            }
        }
    }
    let Sectors { all: sectors, order, .. } = sectors;
    let mut ranges: Vec<Range> = Vec::new();
    for (site, sector) in order {
        let Sector { before, written, step, .. } = &sectors[&(site, sector)];
        let zeros = before.iter().all(|&byte| byte == 0);
        let goes_on = |range: &&mut Range| {
            range.target == site as u32
                && range.sector + u64::from(range.sectors) == sector
                && (range.sectors as usize) < RANGE_SECTORS_MAX
                && range.step == *step
                && range.before.is_none() == zeros
                && range.written.len() == written.len()
        };
        match ranges.last_mut().filter(goes_on) {
            Some(range) => {
                range.sectors += 1;
                range.before.iter_mut().for_each(|bytes| bytes.extend(before));
                range.written.iter_mut().zip(written).for_each(|(version, sum)| version.push(*sum));
            }
            None => ranges.push(Range {
                target: site as u32,
                sector,
                sectors: 1,
                step: *step,
                before: (!zeros).then(|| before.to_vec()),
                written: written.iter().map(|&sum| vec![sum]).collect(),
            }),
        }
    }
    let targets = targets.into_iter().enumerate().map(|(site, target)| {
        let places = sample_places(target.sectors);
        let len = sample_bytes(target.sectors) as u64;
        let samples = places.map(|at| {
            let mut written = sectors.range((site, at / SECTOR)..(site, (at + len).div_ceil(SECTOR)));
            let bytes = pieces.0.get(&(site, at))?.as_ref().ok()?;
            written.next().is_none().then(|| sample(bytes))
        });
        UndoTarget { samples, ..target }
    });
    Ok((targets.collect(), ranges))
}
