//! How bytes are read: with a bound, an error that says where, and a small cache, since metadata
//! lies close together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use crate::error::Error;
use crate::{EachData, Note};

/// Anything that can be read at an offset.
pub trait ReadAt {
    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// It cannot be read, or not all of it.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Its size in bytes.
    fn size_bytes(&self) -> u64;

    /// Answers for data of a file that lies there, in one piece, without having it read: `None`, as
    /// usual, has it read. What asks where files lie needs no more.
    fn data_lies_at(&self, place: Range<u64>) -> Option<io::Result<()>> {
        let _ = place;
        None
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// Devices and files have sizes that fit into 63 bits, and so has what is computed from them.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// A line of the cache. Larger than a block of any of these file systems but ext4's largest, and
/// several inodes' worth.
const LINE_BYTES: u64 = 64 << 10;

/// Lines that are kept: 16 MiB, of all devices of a file system together; and of one of many at
/// least.
const LINES: usize = 256;
const LINES_MIN: usize = 16;

/// What is laid over the source, in units of that.
const SECTOR_BYTES: u64 = 512;

/// Sectors that are laid over the source at most: 1 GiB. A log of the largest size, 2 GiB, rarely
/// comes to that.
const NEWER_SECTORS_MAX: usize = 2 << 20;

/// Data is read and delivered in pieces of at most that, which keeps every member of a wide array
/// at work.
const PIECE_BYTES: u64 = 4 << 20;

/// What a file system is read from.
pub struct ByteSource {
    reader: Box<dyn ReadAt>,
    size: u64,
    /// By the number of the line, modulo their count.
    lines: RefCell<Vec<Option<Line>>>,
    /// What a log has newer, by the number of the sector.
    newer: BTreeMap<u64, [u8; SECTOR_BYTES as usize]>,
}

/// One of several that are read together, and which of those given it is.
pub type GivenSource = (usize, Rc<ByteSource>);

/// A piece of what is read that starts at a multiple of its size.
#[derive(Clone)]
struct Line {
    number: u64,
    bytes: Vec<u8>,
}

/// Data of a file that lies in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRun {
    /// Its offset in the file, in bytes.
    pub file_offset: u64,
    /// Where it is.
    pub disk_offset: u64,
    /// How much.
    pub len: u64,
    /// Of data that is compressed: how many bytes of the file are made of it, all of them of all
    /// that lies here. `None` if the data lies there as it is.
    pub unpacked_len: Option<u64>,
}

impl FileRun {
    /// Data that lies there as it is.
    pub fn plain(file_offset: u64, disk_offset: u64, len: u64) -> Self {
        Self { file_offset, disk_offset, len, unpacked_len: None }
    }

    /// Which bytes of the file depend on what lies in a range of the volume.
    pub fn made_of(&self, place: &Range<u64>) -> Option<Range<u64>> {
        let (from, to) =
            (place.start.max(self.disk_offset), place.end.min(self.disk_offset.saturating_add(self.len)));
        (from < to).then(|| match self.unpacked_len {
            Some(len) => self.file_offset..self.file_offset.saturating_add(len),
            None => {
                let at = |place: u64| self.file_offset.saturating_add(place - self.disk_offset);
                at(from)..at(to)
            }
        })
    }

    /// The part of it that lies in a range of the file; of plain data.
    pub fn within(self, range: &Range<u64>) -> Option<Self> {
        let start = self.file_offset.max(range.start);
        let end = self.file_offset.saturating_add(self.len).min(range.end);
        let disk_offset = self.disk_offset.saturating_add(start.saturating_sub(self.file_offset));
        (start < end).then(|| Self::plain(start, disk_offset, end - start))
    }
}

impl ByteSource {
    pub fn new(reader: Box<dyn ReadAt>) -> Self {
        Self::one_of(reader, 1)
    }

    /// One of so many that are read together.
    pub fn one_of(reader: Box<dyn ReadAt>, count: usize) -> Self {
        let size = reader.size_bytes();
        let lines = (LINES / count.max(1)).max(LINES_MIN);
        Self { reader, size, lines: RefCell::new(vec![None; lines]), newer: BTreeMap::new() }
    }

    /// The size of what is read, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What to say if a file system of that size is not all here.
    pub fn cut_off(&self, size_bytes: u64) -> Option<Note> {
        (size_bytes > self.size).then_some(Note::CutOff { size_bytes, there_bytes: self.size })
    }

    /// Lays bytes over what is there: from now on they are read in its place. What is of a sector
    /// that is changed in part is read now.
    ///
    /// # Errors
    /// They lie beyond the end, what is there cannot be read, or it is more than is held.
    pub fn overlay(&mut self, offset: u64, bytes: &[u8]) -> Result<(), &'static str> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or("a change in it lies beyond the end")?;
        let mut at = offset;
        while at < end {
            let sector = at / SECTOR_BYTES;
            let start = sector * SECTOR_BYTES;
            let stop = end.min(start + SECTOR_BYTES);
            let mut whole = [0; SECTOR_BYTES as usize];
            if stop - at < SECTOR_BYTES {
                let there = (self.size - start).min(SECTOR_BYTES) as usize;
                self.read(start, &mut whole[..there]).map_err(|_| "the place of a change cannot be read")?;
            }
            let new = &bytes[(at - offset) as usize..(stop - offset) as usize];
            whole[(at - start) as usize..(stop - start) as usize].copy_from_slice(new);
            self.newer.insert(sector, whole);
            at = stop;
        }
        match self.newer.len() <= NEWER_SECTORS_MAX {
            true => Ok(()),
            false => Err("it changes more than 1 GiB, which is not held in memory"),
        }
    }

    /// Puts what is newer into what was read.
    fn renew(&self, offset: u64, into: &mut [u8]) {
        let end = offset + into.len() as u64;
        for (sector, newer) in self.newer.range(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)) {
            let start = sector * SECTOR_BYTES;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES).min(end));
            into[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&newer[(from - start) as usize..(to - start) as usize]);
        }
    }

    /// Fills `into`. Small reads go through the cache.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.read_below(offset, into)?;
        self.renew(offset, into);
        Ok(())
    }

    fn read_below(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.size);
        let end = end.ok_or(Error::BeyondEnd { offset, size: self.size })?;
        let line = offset / LINE_BYTES;
        let within_line = !into.is_empty() && (end - 1) / LINE_BYTES == line;
        if within_line && (into.len() as u64) < LINE_BYTES && self.read_line(line, offset, into) {
            return Ok(());
        }
        self.reader.read_at(offset, into).map_err(|source| Error::Read { offset, source })
    }

    /// From the cache, filled first if need be. `false` if the line as a whole cannot be read: the
    /// part that is wanted perhaps can.
    fn read_line(&self, number: u64, offset: u64, into: &mut [u8]) -> bool {
        let mut lines = self.lines.borrow_mut();
        let count = lines.len() as u64;
        let place = &mut lines[(number % count) as usize];
        let start = number * LINE_BYTES;
        if place.as_ref().is_none_or(|line| line.number != number) {
            let mut bytes = vec![0; LINE_BYTES.min(self.size - start) as usize];
            if self.reader.read_at(start, &mut bytes).is_err() {
                return false;
            }
            *place = Some(Line { number, bytes });
        }
        let Some(Line { bytes, .. }) = place else { return false };
        let at = (offset - start) as usize;
        into.copy_from_slice(&bytes[at..at + into.len()]);
        true
    }

    /// Bytes of their own. `len` is never taken from the medium without a bound.
    pub fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Hands on the data of a run, in pieces.
    pub fn deliver(&self, run: FileRun, each: &mut EachData<'_>) -> Result<(), Error> {
        // What lies beyond the end is not allocated for before that is noticed.
        if run.disk_offset.checked_add(run.len).is_none_or(|end| end > self.size) {
            return Err(Error::BeyondEnd {
                offset: run.disk_offset.saturating_add(run.len),
                size: self.size,
            });
        }
        if let Some(answer) = self.reader.data_lies_at(run.disk_offset..run.disk_offset + run.len) {
            return answer.map_err(|source| Error::Read { offset: run.disk_offset, source });
        }
        let mut bytes = vec![0; run.len.min(PIECE_BYTES) as usize];
        let mut done = 0;
        while done < run.len {
            let piece = &mut bytes[..(run.len - done).min(PIECE_BYTES) as usize];
            self.read(run.disk_offset + done, piece)?;
            each(run.file_offset + done, piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }
}
