//! Streams of requests, told from the rest by where they go on.

use std::cell::Cell;
use std::ops::Range;

/// So many are told from the rest.
const STREAMS: usize = 8;

/// The end of no stream.
const NONE: u64 = u64::MAX;

/// What the core that a write came in on knows of it, for the core that carries it out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamHint {
    /// How many writes were under way there, itself included; 0 if that core carries it out.
    pub under_way: usize,
    /// It goes on where another ended, or its row was seen there before: what it leaves on the
    /// members is worth keeping.
    pub recurs: bool,
}

/// Where the requests of one kind that came in on a core lately have ended, counted in bytes
/// through the data of the array: a stream goes on from stripe to stripe.
pub(crate) struct Streams {
    ends: [Cell<u64>; STREAMS],
    /// How many requests went on from one to the next.
    lengths: [Cell<u32>; STREAMS],
    /// The place that the next one takes: that of the oldest.
    next: Cell<usize>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            ends: [const { Cell::new(NONE) }; STREAMS],
            lengths: [const { Cell::new(0) }; STREAMS],
            next: Cell::new(0),
        }
    }
}

impl Streams {
    /// Whether a request goes on where one before it ended, with nothing known between.
    pub fn goes_on(&self, bytes: Range<u64>) -> bool {
        self.length_before(bytes) > 0
    }

    /// How many requests before it, each of which went on where the one before it ended, a request
    /// goes on from.
    pub fn length_before(&self, bytes: Range<u64>) -> u32 {
        let known = self.ends.iter().position(|end| end.get() == bytes.start);
        let place = known.unwrap_or_else(|| self.next.replace((self.next.get() + 1) % STREAMS));
        let before = known.map_or(0, |place| self.lengths[place].get());
        self.ends[place].set(bytes.end);
        self.lengths[place].set(before.saturating_add(1));
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_by_where_they_go_on() {
        let streams = Streams::default();
        let goes_on = |from, to| streams.goes_on(from..to);
        assert!(!goes_on(0, 4096) && goes_on(4096, 8192) && goes_on(8192, 65536));
        assert!(!goes_on(8192, 12288) && !goes_on(1 << 30, 2 << 30));
        assert!(goes_on(65536, 69632), "others between do not end it");
        (10..10 + STREAMS as u64).for_each(|other| assert!(!goes_on(other << 30, 1)));
        assert!(!goes_on(69632, 73728), "as many others do");
        let lengths = (0..4).map(|at| streams.length_before(at << 20..(at + 1) << 20));
        assert!(lengths.eq(0..4));
    }
}
