//! What is known of writes that a server may lose, or carry out once more: those that were
//! acknowledged and not flushed, and those whose answer never came.

use std::collections::VecDeque;
use std::ops::Range;

use wattle_rt::{Buf, Instant, Unmap};

use crate::nbd::client::{Client, ClientError};
use crate::nbd::protocol::command_flags;

/// What is kept of unflushed writes at most. A server's own cache that is larger brings nothing to
/// a drive that is flushed.
pub(super) const LOG_BYTES_MAX: usize = 32 << 20;

/// What an entry of the log costs beside its data.
pub(super) const LOG_ENTRY_BYTES: usize = 64;

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

    /// What is in doubt.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        self.0.iter().map(|(write, ..)| write.bytes.clone()).collect()
    }

    /// Whether no write is in doubt.
    pub(super) fn is_settled(&mut self, now: Instant) -> bool {
        self.0.retain(|(_, until, _)| now < *until);
        self.0.is_empty()
    }

    /// Until when a write has to wait for older ones that overlap it.
    pub(super) fn until(&mut self, write: &Write, now: Instant) -> Option<Instant> {
        self.0.retain(|(_, until, _)| now < *until);
        let overlaps = |older: &Write| {
            older.number < write.number
                && older.bytes.start < write.bytes.end
                && write.bytes.start < older.bytes.end
        };
        self.0.iter().filter(|(older, ..)| overlaps(older)).map(|(_, until, _)| *until).max()
    }
}

/// What was acknowledged and is not known to be durable, in the order of the acknowledgements.
#[derive(Default)]
pub(super) struct Log {
    pub(super) entries: VecDeque<Kept>,
    pub(super) bytes: usize,
    /// Entries ever appended.
    pub(super) appended: u64,
}

/// An acknowledged request.
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
    pub(super) fn bytes(&self) -> usize {
        match &self.what {
            What::Data(data) => LOG_ENTRY_BYTES + data.len(),
            What::Zeroes(_) => LOG_ENTRY_BYTES,
        }
    }

    pub(super) async fn send(&self, client: &Client) -> Result<(), ClientError> {
        let Range { start, end } = self.write.bytes;
        match &self.what {
            What::Data(data) => client.write(start, data.clone(), 0).await,
            What::Zeroes(unmap) => {
                let flags = if *unmap == Unmap::Yes { 0 } else { command_flags::NO_HOLE };
                client.write_zeroes(start, (end - start) as u32, flags).await
            }
        }
    }
}

impl Log {
    pub(super) fn append(&mut self, kept: Kept) {
        self.bytes += kept.bytes();
        self.appended += 1;
        self.entries.push_back(kept);
    }

    /// Forgets the first `appended` entries ever appended.
    pub(super) fn drop_up_to(&mut self, appended: u64) {
        let first = self.appended - self.entries.len() as u64;
        for _ in first..appended {
            let Some(kept) = self.entries.pop_front() else { return };
            self.bytes -= kept.bytes();
        }
    }

    /// One of any length fits into an empty log.
    pub(super) fn is_full_for(&self, len: usize) -> bool {
        !self.entries.is_empty() && self.bytes + len + LOG_ENTRY_BYTES > LOG_BYTES_MAX
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
}
