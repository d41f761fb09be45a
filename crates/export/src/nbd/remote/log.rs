//! What is known of writes that a server may lose, or carry out once more: those that were
//! acknowledged and not flushed, and those whose answer never came.

use std::collections::BTreeMap;
use std::ops::Range;

use wattle_rt::{Buf, Instant, Unmap};

use super::pieces;
use crate::nbd::client::{Client, ClientError};
use crate::nbd::protocol::command_flags;

/// What is kept of unflushed writes at most. A server's own cache that is larger brings nothing to
/// a drive that is flushed.
pub(super) const LOG_BYTES_MAX: usize = 32 << 20;

/// What a range of the log costs beside its data.
pub(super) const LOG_RANGE_BYTES: usize = 256;

/// Which bytes are written, and which number the write has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) number: u64,
    pub(super) bytes: Range<u64>,
}

/// Over which connection something was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    /// Counted from the first one of the drive; attempts count, too.
    pub(super) number: u64,
    /// The path's place in the list.
    pub(super) path: usize,
}

/// Writes that a server may still carry out, though the connection over which they came is gone or
/// given up; until when that is assumed, and over which connection each was sent.
#[derive(Debug, Default)]
pub(super) struct Doubts(Vec<(Write, Instant, Connection)>);

impl Write {
    pub(super) fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

impl Doubts {
    pub(super) fn add(&mut self, write: &Write, until: Instant, connection: Connection) {
        self.0.push((write.clone(), until, connection));
    }

    /// The servers are done with what was sent over these connections.
    pub(super) fn settle(&mut self, done: impl Fn(Connection) -> bool) {
        self.0.retain(|(.., connection)| !done(*connection));
    }

    /// Whether anything that was sent over a connection is in doubt.
    pub(super) fn is_in_doubt(&mut self, connection: Connection, now: Instant) -> bool {
        self.0.retain(|(_, until, _)| now < *until);
        self.0.iter().any(|(.., of)| *of == connection)
    }

    /// Whether no write is in doubt.
    pub(super) fn is_settled(&mut self, now: Instant) -> bool {
        self.0.retain(|(_, until, _)| now < *until);
        self.0.is_empty()
    }

    /// Until when a write has to wait for older ones that overlap it.
    pub(super) fn until(&mut self, write: &Write, now: Instant) -> Option<Instant> {
        self.0.retain(|(_, until, _)| now < *until);
        let overlaps = |older: &Write| older.number < write.number && older.overlaps(&write.bytes);
        self.0.iter().filter(|(older, ..)| overlaps(older)).map(|(_, until, _)| *until).max()
    }
}

/// What was acknowledged and is not known to be durable.
///
/// Invariant: of every byte only the latest acknowledged content is kept, and none of a byte whose
/// latest write was forced. What is written again therefore never puts older content over content
/// that is durable, not even for a moment: a crash then would make that moment last.
#[derive(Default)]
pub(super) struct Log {
    /// By the number of the entry, counted from 1.
    entries: BTreeMap<u64, Entry>,
    /// Where each range of bytes ends that is kept, and in which entry, by where it begins.
    ranges: BTreeMap<u64, (u64, u64)>,
    /// Data of the entries.
    data_bytes: usize,
    /// Entries ever appended.
    pub(super) appended: u64,
}

/// An acknowledged request, whole, and how many ranges are left of it.
struct Entry {
    kept: Kept,
    ranges: usize,
}

/// An acknowledged request, or a part of one.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) write: Write,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    Data(Buf),
    Zeroes(Unmap),
}

impl Kept {
    /// `None` if it is zeros.
    pub(super) fn data(&self) -> Option<&[u8]> {
        match &self.what {
            What::Data(data) => Some(data),
            What::Zeroes(_) => None,
        }
    }

    fn part(&self, bytes: Range<u64>) -> Self {
        let of = self.write.bytes.start;
        let what = match &self.what {
            What::Data(data) => {
                What::Data(data.slice((bytes.start - of) as usize..(bytes.end - of) as usize))
            }
            What::Zeroes(unmap) => What::Zeroes(*unmap),
        };
        Self { write: Write { number: self.write.number, bytes }, what }
    }

    pub(super) async fn send(&self, client: &Client) -> Result<(), ClientError> {
        let Range { start, end } = self.write.bytes;
        match &self.what {
            What::Data(data) => pieces::write(client, start, data, 0).await,
            What::Zeroes(unmap) => {
                let flags = if *unmap == Unmap::Yes { 0 } else { command_flags::NO_HOLE };
                client.write_zeroes(start, (end - start) as u32, flags).await
            }
        }
    }
}

impl Log {
    pub(super) fn append(&mut self, kept: Kept) {
        let Range { start, end } = kept.write.bytes;
        self.forget(&(start..end));
        self.appended += 1;
        self.data_bytes += kept.data().map_or(0, <[u8]>::len);
        self.ranges.insert(start, (end, self.appended));
        self.entries.insert(self.appended, Entry { kept, ranges: 1 });
    }

    /// Keeps nothing of these bytes any more: they have newer content. The data of an entry stays,
    /// and counts, while any range of it is left.
    pub(super) fn forget(&mut self, bytes: &Range<u64>) {
        while let Some((&start, &(end, number))) = self.ranges.range(..bytes.end).next_back()
            && end > bytes.start
        {
            self.ranges.remove(&start);
            let entry = self.entries.get_mut(&number).expect("a range is of an entry");
            entry.ranges -= 1;
            for rest in [start..bytes.start, bytes.end..end].into_iter().filter(|rest| !rest.is_empty()) {
                self.ranges.insert(rest.start, (rest.end, number));
                entry.ranges += 1;
            }
            if entry.ranges == 0 {
                self.data_bytes -= entry.kept.data().map_or(0, <[u8]>::len);
                self.entries.remove(&number);
            }
        }
    }

    /// Forgets the first `appended` entries ever appended.
    pub(super) fn drop_up_to(&mut self, appended: u64) {
        let left = self.entries.split_off(&(appended + 1));
        for entry in std::mem::replace(&mut self.entries, left).into_values() {
            self.data_bytes -= entry.kept.data().map_or(0, <[u8]>::len);
        }
        self.ranges.retain(|_, (_, number)| *number > appended);
    }

    /// What is kept of every range.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let part =
            |(&start, &(end, number)): (&u64, &(u64, u64))| self.entries[&number].kept.part(start..end);
        self.ranges.iter().map(part).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.data_bytes + self.ranges.len() * LOG_RANGE_BYTES
    }

    /// One of any length fits into an empty log.
    pub(super) fn is_full_for(&self, len: usize) -> bool {
        !self.entries.is_empty() && self.bytes() + len + LOG_RANGE_BYTES > LOG_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_write_waits_for_older_ones_in_doubt_of_the_same_bytes() {
        let at = |seconds| Instant::default() + Duration::from_secs(seconds);
        let write = |number, bytes| Write { number, bytes };
        let mut doubts = Doubts::default();
        let connection = |number| Connection { number, path: 0 };
        doubts.add(&write(5, 4096..8192), at(10), connection(0));
        doubts.add(&write(6, 8192..8193), at(20), connection(1));
        let mut until = |number, bytes, now| doubts.until(&write(number, bytes), at(now));
        assert_eq!(until(7, 0..4096, 1), None, "beside it");
        assert_eq!(until(7, 4000..4097, 1), Some(at(10)));
        assert_eq!(until(7, 0..1 << 20, 1), Some(at(20)));
        assert_eq!(until(5, 4096..8192, 1), None, "itself, sent again");
        assert_eq!(until(4, 4096..8192, 1), None, "the newer one is sent again behind it");
        assert_eq!(until(7, 4000..4097, 10), None, "done by now");
        assert!(!doubts.is_settled(at(11)));
        doubts.settle(|of| of == connection(0));
        assert!(!doubts.is_settled(at(11)), "another connection's");
        doubts.settle(|of| of == connection(1));
        assert!(doubts.is_settled(at(11)));
        assert_eq!(doubts.until(&write(7, 0..1 << 20), at(1)), None);
    }

    #[test]
    fn the_latest_content_of_each_byte_is_kept_and_nothing_else() {
        let kept = |number, bytes: Range<u64>| {
            let what = match number % 3 {
                0 => What::Zeroes(Unmap::Yes),
                _ => What::Data(Buf::copy_of(&vec![number as u8; (bytes.end - bytes.start) as usize])),
            };
            Kept { write: Write { number, bytes }, what }
        };
        let shown = |log: &Log| {
            // By byte, 0 for none.
            let mut numbers = vec![0; 64];
            for Kept { write, what } in log.kept() {
                let place = write.bytes.start as usize..write.bytes.end as usize;
                assert!(numbers[place.clone()].iter().all(|&number| number == 0), "once");
                if let What::Data(data) = what {
                    assert_eq!(data[..], vec![write.number as u8; place.len()]);
                }
                numbers[place].fill(write.number);
            }
            numbers
        };
        let (mut log, mut model, mut forced) = (Log::default(), vec![0_u64; 64], 0);
        for number in 1..2000_u64 {
            let at = number * 7919 % 61;
            let bytes = at..(at + 1 + number * 104_729 % 23).min(64);
            let place = bytes.start as usize..bytes.end as usize;
            if number % 5 == 0 {
                log.forget(&bytes);
                model[place].fill(0);
                forced += 1;
            } else {
                log.append(kept(number, bytes));
                model[place].fill(number);
            }
            if number % 250 == 0 {
                model = vec![0; 64];
                log.drop_up_to(log.appended);
                assert_eq!((log.bytes(), log.entries.len()), (0, 0));
            }
            assert_eq!(shown(&log), model, "after {number}");
            let data: usize =
                log.entries.values().filter_map(|entry| entry.kept.data()).map(<[u8]>::len).sum();
            assert_eq!(log.bytes(), data + log.ranges.len() * LOG_RANGE_BYTES);
        }
        assert_eq!(log.appended + forced, 1999);
    }

    #[test]
    fn a_flush_covers_what_was_kept_before_it() {
        let zeroes = |number, bytes| Kept { write: Write { number, bytes }, what: What::Zeroes(Unmap::No) };
        let mut log = Log::default();
        log.append(zeroes(1, 0..100));
        log.append(zeroes(2, 100..200));
        log.append(zeroes(3, 10..20));
        let covered = log.appended;
        log.append(zeroes(4, 150..160));
        log.drop_up_to(covered);
        let left: Vec<_> = log.kept().into_iter().map(|kept| (kept.write.number, kept.write.bytes)).collect();
        assert_eq!(left, [(4, 150..160)]);
    }
}
