//! The ring of sectors, and which records in it a mount replays.
//!
//! Each sector starts with the number of the cycle in which it was written, so the newest is where
//! that number falls. Up to eight records are under way at once, and a power cut leaves any part of
//! them: the head is the first sector of the older cycle in the part that they may have been
//! written to, and then the start of the first record behind whose checksum is wrong. The last
//! record that is whole says where the tail is.
//!
//! A mount that finds an end believes it, however far what is behind it goes on. Here more than can
//! have been under way behind the end says that the log was longer, and is damaged there.

use crate::bytes::be32;
use crate::source::ByteSource;
use crate::xfs::log::record::{LogRecord, MAGIC};
use crate::xfs::log::{LogDamage, Lsn};

pub const SECTOR_BYTES: u64 = 512;

/// Records that may be under way at once, and the sectors of the largest.
const UNDER_WAY: usize = 8;
const RECORD_SECTORS_MAX: u64 = 512;

/// Data of a record where nothing else is said, in sectors.
const RECORD_SECTORS: u64 = 64;

/// How far behind the end records are looked for: twice as far as any can have been under way.
const BEHIND_SECTORS: u64 = 2 * UNDER_WAY as u64 * RECORD_SECTORS_MAX;

/// The operation that says that the file system was unmounted.
const UNMOUNT: u8 = 0x20;
const FLAGS_AT: usize = 9;

/// The log as a ring.
pub struct LogRing<'a> {
    pub source: &'a ByteSource,
    /// Its first byte, and its sectors.
    pub start: u64,
    pub sectors: u64,
    pub uuid: [u8; 16],
    /// Every record must have a right checksum, as in version 5.
    pub strict: bool,
}

/// What a mount replays.
#[derive(Debug, PartialEq, Eq)]
pub struct Active {
    /// The records from one sector to another, round the ring; `None` if it was unmounted.
    pub records: Option<(u64, u64)>,
    /// Where it ends.
    pub end: Lsn,
    /// Why it must have ended behind that, if it must.
    pub early: Option<LogDamage>,
}

impl LogRing<'_> {
    /// Sectors from one on, round the ring.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&self, at: u64, sectors: u64) -> Result<Vec<u8>, LogDamage> {
        let cannot = "a part of it cannot be read";
        let at = at.checked_rem(self.sectors).ok_or(cannot)?;
        let before_end = sectors.min(self.sectors - at);
        let part = |at: u64, sectors: u64| {
            let offset = at.checked_mul(SECTOR_BYTES).and_then(|at| at.checked_add(self.start));
            let bytes = offset.map(|offset| self.source.bytes(offset, (sectors * SECTOR_BYTES) as usize));
            bytes.and_then(Result::ok).ok_or(cannot)
        };
        let mut bytes = part(at, before_end)?;
        if before_end < sectors {
            bytes.extend(part(0, (sectors - before_end).min(self.sectors))?);
        }
        Ok(bytes)
    }

    /// How many sectors lie from one to another, round the ring.
    pub fn distance(&self, from: u64, to: u64) -> u64 {
        (to + self.sectors - from) % self.sectors
    }

    /// Finds what a mount replays.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged such that Linux would not mount it.
    pub fn active(&self) -> Result<Active, LogDamage> {
        if self.cycle(0)? == 0 {
            for at in 0..self.sectors {
                if self.is_header(at)? {
                    return Err("its first sector is zeros, and records lie behind it");
                }
            }
            return Ok(Active { records: None, end: Lsn(u64::MAX), early: None });
        }
        let head = self.whole_head(self.newest_end()?)?;
        let last = self.last_record(head)?;
        if self.is_unmounted(&last, head)? {
            return self.ending(None, head, &last);
        }
        let (head, last) = self.without_torn(head, last)?;
        let tail = last.tail;
        if tail == head || self.is_unmounted(&last, head)? {
            return self.ending(None, head, &last);
        }
        if tail >= self.sectors {
            return Err("its tail lies beyond its end");
        }
        self.ending(Some((self.whole_tail(tail, head, &last)?, head)), head, &last)
    }

    /// What a mount replays, with the last record before the end, and what is to be said of that.
    fn ending(&self, records: Option<(u64, u64)>, head: u64, last: &LogRecord) -> Result<Active, LogDamage> {
        let cycle = (last.lsn.0 >> 32) + u64::from(head <= last.at);
        let end = Lsn(cycle << 32 | head);
        let early = self.goes_on(head, last)?.then_some("it ends early: newer records lie behind its end");
        Ok(Active { records, end, early })
    }

    /// Whether more whole records lie behind the end than can have been under way when the power
    /// went, or one farther behind. Those of former cycles are older than the last one; and what a
    /// mount left behind an end, it makes older.
    fn goes_on(&self, head: u64, last: &LogRecord) -> Result<bool, LogDamage> {
        let sectors = |record: &LogRecord| {
            let data = u64::from(record.size_bytes).div_ceil(SECTOR_BYTES);
            data.clamp(RECORD_SECTORS, RECORD_SECTORS_MAX) + record.header_sectors
        };
        let mut whole = 0;
        for distance in 0..BEHIND_SECTORS.min(self.sectors) {
            let at = (head + distance) % self.sectors;
            if !self.is_header(at)? {
                continue;
            }
            let Ok(record) = LogRecord::read(self, at) else { continue };
            let is_newer = record.lsn > last.lsn && record.lsn.0 & u64::from(u32::MAX) == at;
            if !is_newer || record.is_unchecked() || !self.is_whole(&record) {
                continue;
            }
            whole += 1;
            // The first one that is not whole was under way, too.
            if whole >= UNDER_WAY || distance > UNDER_WAY as u64 * sectors(&record).max(sectors(last)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Behind the newest sector: where the older cycle starts in what may have been under way.
    fn newest_end(&self) -> Result<u64, LogDamage> {
        let (first, last) = (self.cycle(0)?, self.cycle(self.sectors - 1)?);
        let (mut head, mut older) = (self.sectors, last.wrapping_sub(1));
        if first != last {
            let (mut newer, mut end) = (0, self.sectors - 1);
            while newer + 1 < end {
                let middle = newer + (end - newer) / 2;
                match self.cycle(middle)? == last {
                    true => end = middle,
                    false => newer = middle,
                }
            }
            (head, older) = (end, last);
        }
        let under_way = (UNDER_WAY as u64 * RECORD_SECTORS_MAX).min(self.sectors);
        let found = match head.checked_sub(under_way) {
            Some(from) => self.first_of_cycle(from, head, older)?,
            None => {
                let from = self.sectors - (under_way - head);
                match self.first_of_cycle(from, self.sectors, older.wrapping_sub(1))? {
                    Some(found) => Some(found),
                    None => self.first_of_cycle(0, head, older)?,
                }
            }
        };
        Ok(found.unwrap_or(head) % self.sectors)
    }

    fn first_of_cycle(&self, from: u64, to: u64, cycle: u32) -> Result<Option<u64>, LogDamage> {
        for at in from..to {
            if self.cycle(at)? == cycle {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// The head, or the start of the record before it if that does not end there.
    fn whole_head(&self, head: u64) -> Result<u64, LogDamage> {
        let last = self.last_record(head)?;
        match last.sectors() == self.distance(last.at, head) || last.at == head {
            true => Ok(head),
            false => Ok(last.at),
        }
    }

    /// The last record that starts before a sector, round the ring.
    fn last_record(&self, before: u64) -> Result<LogRecord, LogDamage> {
        match self.record_before(before, self.sectors)? {
            Some(at) => LogRecord::read(self, at),
            None => Err("it has no record"),
        }
    }

    /// The sector of the last header within so many sectors before a sector.
    fn record_before(&self, before: u64, within: u64) -> Result<Option<u64>, LogDamage> {
        for back in 1..=within.min(self.sectors) {
            let at = (before + self.sectors - back) % self.sectors;
            if self.is_header(at)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether the last record says that the file system was unmounted.
    fn is_unmounted(&self, last: &LogRecord, head: u64) -> Result<bool, LogDamage> {
        if last.operations != 1 || (last.at + last.sectors()) % self.sectors != head {
            return Ok(false);
        }
        let operation = self.read(last.at + last.header_sectors, 1)?;
        Ok(operation.get(FLAGS_AT).is_some_and(|flags| flags & UNMOUNT != 0))
    }

    /// Takes back the head to the first record whose checksum is wrong, of those that may have been
    /// under way.
    fn without_torn(&self, head: u64, last: LogRecord) -> Result<(u64, LogRecord), LogDamage> {
        let active = self.distance(last.tail % self.sectors, head);
        let mut starts = Vec::new();
        let mut before = head;
        while starts.len() < UNDER_WAY {
            let left = active - self.distance(before, head);
            let Some(at) = self.record_before(before, left)? else { break };
            starts.push(at);
            before = at;
        }
        for (ix, at) in starts.iter().enumerate().rev() {
            if LogRecord::read(self, *at).is_ok_and(|record| self.is_whole(&record)) {
                continue;
            }
            let left = active.saturating_sub(self.distance(*at, head));
            let good = match starts.get(ix + 1) {
                Some(good) => Some(*good),
                None => self.record_before(*at, left)?,
            };
            let good = good.ok_or("none of its last records is whole")?;
            return Ok((*at, LogRecord::read(self, good)?));
        }
        Ok((head, last))
    }

    /// The tail, or the start of the first whole record behind those that are damaged: what was
    /// under way may have been written over records whose changes had reached their places. That is
    /// so only where the head was close to them.
    fn whole_tail(&self, tail: u64, head: u64, last: &LogRecord) -> Result<u64, LogDamage> {
        let record = u64::from(last.size_bytes).div_ceil(SECTOR_BYTES).clamp(1, RECORD_SECTORS_MAX);
        let reach = record * UNDER_WAY as u64;
        let (mut whole, mut at) = (tail, tail);
        while at != head && self.distance(head, at) <= reach {
            let record = LogRecord::read(self, at).ok().filter(|record| self.is_whole(record));
            let sectors = record.as_ref().map_or(1, LogRecord::sectors);
            if sectors > self.distance(at, head) {
                break;
            }
            at = (at + sectors) % self.sectors;
            if record.is_some() {
                continue;
            }
            while at != head && !self.is_header(at)? {
                at = (at + 1) % self.sectors;
            }
            whole = at;
        }
        match whole == head {
            true => Err("the records at its tail are damaged"),
            false => Ok(whole),
        }
    }

    /// Whether a record has a right checksum, or none.
    fn is_whole(&self, record: &LogRecord) -> bool {
        record.is_unchecked() || record.data(self).is_ok_and(|(_, is_right)| is_right)
    }

    fn is_header(&self, at: u64) -> Result<bool, LogDamage> {
        Ok(be32(&self.read(at, 1)?, 0) == Some(MAGIC))
    }

    /// The cycle in which a sector was written; a header has it behind its magic number.
    fn cycle(&self, at: u64) -> Result<u32, LogDamage> {
        let sector = self.read(at, 1)?;
        let cycle = match be32(&sector, 0) {
            Some(MAGIC) => be32(&sector, 4),
            cycle => cycle,
        };
        cycle.ok_or("a part of it cannot be read")
    }
}
