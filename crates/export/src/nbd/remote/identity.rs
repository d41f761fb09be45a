//! What tells a drive from others: the bytes at its beginning and its end, where superblocks,
//! labels and partition tables are.
//!
//! A connection leads to this drive if it shows these bytes. A byte tells nothing
//! - if it is zero: one blank drive is like another;
//! - if what was written there last was not flushed: the server may have lost it;
//! - if a write there is not answered, has failed, or overlapped another one in flight.
//!
//! A write that leaves a byte as it is takes nothing from what it tells: a superblock that is
//! updated keeps its UUIDs, and shows them whether or not the update arrived.
//!
//! Invariant: nothing is written over a connection that has not shown the drive's own bytes, by
//! whichever path, the only one included. A drive of one path that has only bytes to show which
//! tell nothing is the one exception: every other byte that is known must be as it was.

use std::ops::Range;

use super::log::Write;
use super::{Facts, pieces};
use crate::nbd::client::{Client, ClientError};

/// Bytes at the beginning: labels, and superblocks of md 1.1 and 1.2.
const HEAD_BYTES: u64 = 16 << 10;
/// Bytes at the end: superblocks of md 0.90 and 1.0.
const TAIL_BYTES: u64 = 128 << 10;

/// The content of both ends, by offset, as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends(Vec<(u64, Vec<Option<u8>>)>);

/// The drive's own, and what is uncertain of them.
#[derive(Debug, Default)]
pub(super) struct Identity {
    ends: Ends,
    in_flight: Vec<Change>,
    /// What writes changed that were acknowledged and not flushed, and their entries in the log.
    unflushed: Vec<(Range<u64>, u64)>,
    /// Writes to the ends that were acknowledged.
    changed: u64,
}

/// A write to the ends.
#[derive(Debug)]
struct Change {
    write: Write,
    /// From the first to the last byte that becomes another one.
    span: Range<u64>,
    /// Another write of some of the same bytes was in flight at the same time.
    raced: bool,
}

/// What ends that were read say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// They are this drive's.
    Own,
    /// They are another drive's.
    Another,
    /// They are as they should be, and nothing of the drive's own could tell.
    Blank,
    /// What could tell cannot be read.
    Nothing,
}

impl Ends {
    /// Reads them. Bytes that cannot be read are not there.
    pub(super) async fn read(client: &Client, facts: &Facts) -> Result<Self, ClientError> {
        let sector = u64::from(facts.sector_bytes);
        let head = 0..HEAD_BYTES.min(facts.size_bytes);
        let tail = facts.size_bytes.saturating_sub(TAIL_BYTES) / sector * sector..facts.size_bytes;
        let ranges = [head.clone(), tail.start.max(head.end)..tail.end];
        let mut parts = Vec::new();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(TAIL_BYTES);
                match pieces::read(client, at, len as u32).await {
                    Ok(bytes) => parts.push((at, bytes.iter().copied().map(Some).collect())),
                    Err(ClientError::Failed(_)) => {}
                    Err(error) => return Err(error),
                }
                at += len;
            }
        }
        Ok(Self(parts))
    }

    /// Those of a range.
    fn of(&mut self, range: &Range<u64>) -> impl Iterator<Item = (u64, &mut Option<u8>)> {
        self.0.iter_mut().flat_map(move |(start, bytes)| {
            let end = *start + bytes.len() as u64;
            let (from, to) = (range.start.clamp(*start, end), range.end.clamp(*start, end));
            (from..).zip(&mut bytes[(from - *start) as usize..(to - *start) as usize])
        })
    }

    fn forget(&mut self, range: &Range<u64>) {
        self.of(range).for_each(|(_, byte)| *byte = None);
    }

    /// Whether nothing in them tells the drive from a blank one.
    pub(super) fn is_blank(&self) -> bool {
        self.0.iter().all(|(_, bytes)| bytes.iter().all(|byte| byte.is_none_or(|byte| byte == 0)))
    }

    /// What others say of the drive with these.
    pub(super) fn shows(&self, seen: &Self) -> Shows {
        let mut told = false;
        for (start, bytes) in &self.0 {
            let same = |(at, other): &&(u64, Vec<_>)| at == start && other.len() == bytes.len();
            let Some((_, other)) = seen.0.iter().find(same) else { continue };
            for (own, other) in bytes.iter().zip(other).filter(|(own, _)| own.is_some()) {
                if own != other {
                    return Shows::Another;
                }
                told |= *own != Some(0);
            }
        }
        match told {
            true => Shows::Own,
            false if self.is_blank() => Shows::Blank,
            false => Shows::Nothing,
        }
    }
}

/// What a write of zeros has no data for.
fn byte_at(write: &Write, data: Option<&[u8]>, at: u64) -> Option<u8> {
    Some(data.map_or(0, |data| data[(at - write.bytes.start) as usize]))
}

impl Identity {
    pub(super) fn new(ends: Ends) -> Self {
        Self { ends, ..Self::default() }
    }

    /// How often the ends were changed.
    pub(super) fn changed(&self) -> u64 {
        self.changed
    }

    /// A write is going to be sent, of these data or of zeros.
    pub(super) fn begin(&mut self, write: &Write, data: Option<&[u8]>) {
        let mut places = self.ends.of(&write.bytes).map(|(at, byte)| (at, *byte)).peekable();
        if places.peek().is_none() {
            return;
        }
        let mut changed = places.filter(|(at, byte)| *byte != byte_at(write, data, *at)).map(|(at, _)| at);
        let span = changed.next().map_or(0..0, |first| first..changed.last().unwrap_or(first) + 1);
        let mut raced = false;
        for other in self.in_flight.iter_mut().filter(|other| other.write.overlaps(&write.bytes)) {
            (other.raced, raced) = (true, true);
        }
        self.in_flight.push(Change { write: write.clone(), span, raced });
    }

    /// It was acknowledged, and has this number in the log unless it is durable. Of two that were
    /// in flight at the same time it is not known which one came last.
    pub(super) fn done(&mut self, write: &Write, data: Option<&[u8]>, entry: Option<u64>) {
        let Some(change) = self.take(write) else { return };
        match change.raced {
            true => self.ends.forget(&write.bytes),
            false => self.ends.of(&write.bytes).for_each(|(at, byte)| *byte = byte_at(write, data, at)),
        }
        if let Some(entry) = entry.filter(|_| !change.span.is_empty()) {
            // A flush that covers this one covers those before it.
            let is_within =
                |span: &Range<u64>| change.span.start <= span.start && span.end <= change.span.end;
            self.unflushed.retain(|(span, _)| !is_within(span));
            self.unflushed.push((change.span, entry));
        }
        self.changed += 1;
    }

    /// It was begun, and nothing is known of its end unless it was acknowledged.
    pub(super) fn failed(&mut self, write: &Write) {
        if let Some(change) = self.take(write) {
            self.ends.forget(&change.span);
        }
    }

    fn take(&mut self, write: &Write) -> Option<Change> {
        let ix = self.in_flight.iter().position(|change| change.write.number == write.number)?;
        Some(self.in_flight.swap_remove(ix))
    }

    /// So many entries of the log are durable.
    pub(super) fn flushed(&mut self, entries: u64) {
        self.unflushed.retain(|(_, entry)| *entry > entries);
    }

    /// What ends that were read say of the drive.
    pub(super) fn shows(&self, seen: &Ends) -> Shows {
        let mut certain = self.ends.clone();
        let in_flight = self.in_flight.iter().map(|change| &change.span);
        let unflushed = self.unflushed.iter().map(|(span, _)| span);
        in_flight.chain(unflushed).for_each(|span| certain.forget(span));
        certain.shows(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(bytes: &[u8]) -> Ends {
        Ends(vec![(4096, bytes.iter().copied().map(Some).collect())])
    }

    fn write(number: u64, bytes: Range<u64>) -> Write {
        Write { number, bytes }
    }

    #[test]
    fn drives_are_told_apart_by_what_is_known_of_their_ends() {
        let own = ends(&[0, 1, 2, 3]);
        assert_eq!(own.shows(&ends(&[0, 1, 2, 3])), Shows::Own);
        assert_eq!(own.shows(&ends(&[0, 1, 2, 4])), Shows::Another);
        assert_eq!(own.shows(&ends(&[1, 1, 2, 3])), Shows::Another, "it has a zero there");
        assert_eq!(own.shows(&Ends::default()), Shows::Nothing);
        assert_eq!(ends(&[0; 4]).shows(&ends(&[0; 4])), Shows::Blank);
        assert_eq!(ends(&[0; 4]).shows(&ends(&[0, 0, 0, 1])), Shows::Another);
    }

    #[test]
    fn what_may_not_have_arrived_tells_nothing() {
        let mut own = Identity::new(ends(&[1, 2, 3, 4]));
        let first = write(1, 4094..4099);
        let data: Option<&[u8]> = Some(&[9, 9, 1, 7, 3]);
        own.begin(&first, data);
        for shown in [[1, 2, 3, 4], [1, 7, 3, 4]] {
            assert_eq!(own.shows(&ends(&shown)), Shows::Own, "{shown:?}");
        }
        assert_eq!(own.shows(&ends(&[9, 7, 3, 4])), Shows::Another, "either way that byte is the same");
        own.done(&first, data, Some(1));
        own.failed(&first);
        assert_eq!(own.shows(&ends(&[1, 2, 3, 4])), Shows::Own, "acknowledged, and lost");
        own.flushed(1);
        assert_eq!(own.shows(&ends(&[1, 2, 3, 4])), Shows::Another);
        assert_eq!(own.shows(&ends(&[1, 7, 3, 4])), Shows::Own);

        let second = write(2, 0..1 << 20);
        own.begin(&second, None);
        assert_eq!(own.shows(&ends(&[5, 6, 7, 8])), Shows::Blank, "there is nothing to show");
        own.done(&second, None, None);
        assert_eq!(own.shows(&ends(&[0, 7, 0, 0])), Shows::Another, "it was forced");
        assert_eq!(own.shows(&ends(&[0; 4])), Shows::Blank);
    }

    #[test]
    fn of_a_write_that_failed_nothing_is_known_until_the_next_one() {
        let mut own = Identity::new(ends(&[1, 2, 3, 4]));
        let (first, second) = (write(1, 4096..4098), write(2, 4096..4098));
        own.begin(&first, Some(&[8, 9]));
        own.failed(&first);
        assert_eq!(own.shows(&ends(&[8, 2, 3, 4])), Shows::Own);
        own.begin(&second, Some(&[8, 9]));
        own.done(&second, Some(&[8, 9]), Some(1));
        assert_eq!(own.shows(&ends(&[1, 9, 3, 4])), Shows::Own);
        own.flushed(1);
        assert_eq!(own.shows(&ends(&[1, 9, 3, 4])), Shows::Another);
    }

    #[test]
    fn of_writes_in_flight_at_once_either_may_be_the_last() {
        let mut own = Identity::new(ends(&[1, 2, 3, 4]));
        let (first, second) = (write(1, 4096..4098), write(2, 4097..4099));
        own.begin(&first, Some(&[1, 2]));
        own.begin(&second, Some(&[7, 7]));
        own.done(&second, Some(&[7, 7]), None);
        own.done(&first, Some(&[1, 2]), None);
        for shown in [[1, 2, 7, 4], [1, 7, 7, 4]] {
            assert_eq!(own.shows(&ends(&shown)), Shows::Own, "{shown:?}");
        }
    }
}
