//! Bytes of the logical space, from the first way that gives what they must be.

use crate::btrfs::Btrfs;
use crate::btrfs::chunks::{Piece, Way};
use crate::error::Error;

/// What says whether bytes are what they must be.
pub type CheckBlock<'a> = dyn Fn(&[u8]) -> Result<(), Error> + 'a;

/// What says it of a sector of data, by its number: `None` if nothing does.
pub type CheckSector<'a> = dyn Fn(usize, &[u8]) -> Option<bool> + 'a;

/// Ways of two pieces that are tried together, at most.
const PAIRS_MAX: usize = 1024;

/// A block of a tree, which lies in one piece or crosses from one stripe into the next.
///
/// # Errors
/// No way gives bytes that pass the check: what was wrong with the first.
pub fn block(btrfs: &Btrfs, logical: u64, len: usize, check: &CheckBlock<'_>) -> Result<Vec<u8>, Error> {
    const STRUCTURE: &str = "btrfs tree block";
    let damaged = |what| Error::Damaged { structure: STRUCTURE, at: logical, what };
    let end = logical.checked_add(len as u64).ok_or_else(|| damaged("it lies beyond all addresses"))?;
    if btrfs.chunks.within(logical, len as u64)? < len as u64 {
        return Err(damaged("it crosses the end of a chunk"));
    }
    let first = btrfs.chunks.piece(logical, len as u64)?;
    let rest_at = logical + first.len;
    let rest = if rest_at < end { Some(btrfs.chunks.piece(rest_at, end - rest_at)?) } else { None };
    if rest.as_ref().is_some_and(|rest| rest.len < end - rest_at) {
        return Err(damaged("it is longer than a stripe"));
    }
    let first_ways = first.ways(&btrfs.devices);
    let rest_ways = match &rest {
        Some(rest) => rest.ways(&btrfs.devices),
        None => vec![Way::Direct(0)],
    };
    let pairs = first_ways.iter().flat_map(|way| rest_ways.iter().map(move |other| (*way, *other)));
    let (mut bytes, mut wrong) = (vec![0; len], None);
    for (way, other) in pairs.take(PAIRS_MAX) {
        let (start, end) = bytes.split_at_mut(first.len as usize);
        let read = first.read(way, &btrfs.devices, (STRUCTURE, logical), 0, start);
        let read = read.and_then(|()| match &rest {
            Some(rest) => rest.read(other, &btrfs.devices, (STRUCTURE, logical), 0, end),
            None => Ok(()),
        });
        match read.and_then(|()| check(&bytes)) {
            Ok(()) => return Ok(bytes),
            Err(error) => wrong = Some(telling(wrong, error)),
        }
    }
    Err(wrong.unwrap_or_else(|| damaged("it is nowhere")))
}

/// Two devices that are both up to date and have different copies of a block, each of which passes
/// the check: they were written apart from each other.
pub fn differing_copies(
    btrfs: &Btrfs,
    logical: u64,
    len: usize,
    check: &CheckBlock<'_>,
) -> Result<Option<(u64, u64)>, Error> {
    let piece = btrfs.chunks.piece(logical, len as u64)?;
    if piece.len < len as u64 {
        return Ok(None);
    }
    let mut first: Option<(u64, Vec<u8>)> = None;
    for way in piece.ways(&btrfs.devices) {
        let Some(device) = piece.direct_up_to_date(way, &btrfs.devices) else { continue };
        let mut bytes = vec![0; len];
        let read = piece.read(way, &btrfs.devices, ("btrfs tree block", logical), 0, &mut bytes);
        if read.and_then(|()| check(&bytes)).is_err() {
            continue;
        }
        let id = btrfs.devices.id(device);
        match &first {
            None => first = Some((id, bytes)),
            Some((other, copy)) if *copy != bytes && *other != id => return Ok(Some((*other, id))),
            Some(_) => {}
        }
    }
    Ok(None)
}

/// Of two errors the one that says more: what was read and is wrong says more than that a device is
/// missing. Else the first.
fn telling(first: Option<Error>, second: Error) -> Error {
    match first {
        Some(first) if !matches!(first, Error::DeviceMissing { .. }) => first,
        Some(first) if !matches!(second, Error::Damaged { .. }) => first,
        _ => second,
    }
}

/// Whole sectors of data within one chunk, each from the first way that gives what it must be.
///
/// # Errors
/// There is a sector that no way gives so: what is wrong with the first such.
pub fn sectors(btrfs: &Btrfs, logical: u64, into: &mut [u8], check: &CheckSector<'_>) -> Result<(), Error> {
    let sector = btrfs.superblock.sector_bytes;
    let mut at = 0;
    while at < into.len() {
        let here = logical.saturating_add(at as u64);
        let piece = btrfs.chunks.piece(here, (into.len() - at) as u64)?;
        let len = piece.len as usize;
        let first = at / sector;
        let check = |number: usize, bytes: &[u8]| check(first + number, bytes);
        SectorsOfPiece { btrfs, piece: &piece, logical: here, check: &check }
            .fill(&mut into[at..at + len])?;
        at += len;
    }
    Ok(())
}

struct SectorsOfPiece<'a> {
    btrfs: &'a Btrfs,
    piece: &'a Piece,
    logical: u64,
    check: &'a CheckSector<'a>,
}

impl SectorsOfPiece<'_> {
    fn fill(&self, into: &mut [u8]) -> Result<(), Error> {
        let sector = self.btrfs.superblock.sector_bytes;
        let mut open: Vec<usize> = (0..into.len().div_ceil(sector)).collect();
        let ways = self.piece.ways(&self.btrfs.devices);
        let mut failed = Vec::new();
        for &way in &ways {
            let mut left = Vec::new();
            for run in open.chunk_by(|one, next| one + 1 == *next) {
                match self.take(way, run, into) {
                    Ok(wrong) => left.extend(wrong),
                    Err(_) => {
                        failed.push(way);
                        left.extend(run);
                    }
                }
            }
            open = left;
            if open.is_empty() {
                return Ok(());
            }
        }
        // A drive that cannot read all of it can perhaps read most.
        failed.dedup();
        for way in failed {
            open.retain(|&number| !self.take(way, &[number], into).is_ok_and(|wrong| wrong.is_empty()));
        }
        match open.first() {
            None => Ok(()),
            Some(&number) => Err(self.why(&ways, number, sector)),
        }
    }

    /// Reads a run of sectors, keeps those that are right, and returns the others.
    fn take(&self, way: Way, run: &[usize], into: &mut [u8]) -> Result<Vec<usize>, Error> {
        let sector = self.btrfs.superblock.sector_bytes;
        let (start, end) = (run[0] * sector, ((run[run.len() - 1] + 1) * sector).min(into.len()));
        let bytes = &mut into[start..end];
        self.read(way, start as u64, bytes)?;
        let mut wrong = Vec::new();
        for (&number, bytes) in run.iter().zip(bytes.chunks(sector)) {
            match (self.check)(number, bytes) {
                Some(true) => {}
                Some(false) => wrong.push(number),
                // Nothing says that it is right: where it is from has to.
                None => {
                    if let Some(device) = self.piece.stale(way, &self.btrfs.devices) {
                        self.btrfs.note_stale(device);
                    }
                }
            }
        }
        Ok(wrong)
    }

    fn read(&self, way: Way, skip: u64, into: &mut [u8]) -> Result<(), Error> {
        let at = self.logical.saturating_add(skip);
        self.piece.read(way, &self.btrfs.devices, ("btrfs extent", at), skip, into)
    }

    /// Why no way gives a sector.
    fn why(&self, ways: &[Way], number: usize, sector: usize) -> Error {
        let (skip, mut bytes) = (number as u64 * sector as u64, vec![0; sector]);
        let what = "the checksum of the data there is wrong";
        let damaged =
            || Error::Damaged { structure: "btrfs extent", at: self.logical.saturating_add(skip), what };
        let mut wrong = None;
        for &way in ways {
            let error = self.read(way, skip, &mut bytes).err().unwrap_or_else(damaged);
            wrong = Some(telling(wrong, error));
        }
        wrong.unwrap_or_else(damaged)
    }
}
