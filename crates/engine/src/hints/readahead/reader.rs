//! A stream of reads in sequence, and the parts that were read ahead of it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;
use wattle_rt::{BufMut, Instant, Notify};

use super::DOUBLINGS_MAX;
use super::ReadNow;
use super::changes::Changes;

/// Most reads lie in one part.
pub(crate) type Parts = SmallVec<[Rc<Part>; 1]>;

/// So far ahead is read first. Little, because what comes next waits for it.
const WINDOW_BYTES_MIN: u64 = 32 << 10;

/// A stream that is read ahead of.
pub(super) struct Reader {
    /// Where its next read begins.
    next: u64,
    /// All before has been asked for, by the stream or ahead of it.
    asked: u64,
    /// Bytes of its last read.
    len: u64,
    /// How far ahead of it is read, if it may have so much. Doubled with every part that it has
    /// read.
    window: u64,
    part_bytes: u64,
    /// Bytes that were read ahead of it, and how many of these it asked for.
    given: u64,
    taken: u64,
    /// How much more often what was read ahead had changed than a part of it was read to its end.
    disappointments: u32,
    /// Reads until the stream is read ahead of again.
    rests: u32,
    /// Where they begin ascends; there may be gaps.
    parts: VecDeque<Rc<Part>>,
    /// When it last read.
    pub last: Instant,
}

impl Reader {
    /// A stream with `range` as its last read.
    pub fn new(now: Instant, range: &Range<u64>, part_bytes: u64) -> Self {
        let len = range.end - range.start;
        Self {
            next: range.end,
            asked: range.end,
            len,
            window: (4 * len).max(WINDOW_BYTES_MIN),
            part_bytes,
            given: 0,
            taken: 0,
            disappointments: 0,
            rests: 0,
            parts: VecDeque::new(),
            last: now,
        }
    }

    /// Whether a read that begins there belongs to it: reads may overtake each other a little.
    pub fn expects(&self, start: u64) -> bool {
        let from = self.parts.front().map_or(self.next, |part| part.range.start.min(self.next));
        let to = self.asked.min(self.next + 4 * self.len).max(self.next);
        (from..=to).contains(&start)
    }

    /// The stream reads a range.
    pub fn goes_on(&mut self, now: Instant, range: &Range<u64>) {
        self.last = now;
        self.len = range.end - range.start;
        self.next = self.next.max(range.end);
        self.asked = self.asked.max(range.start);
        self.rests = self.rests.saturating_sub(1);
    }

    /// What is to be read next, if the stream is close to it: at most half of what is read ahead,
    /// in whole blocks of the array.
    pub fn wants(&self, most: u64, block: u64, size: u64) -> Option<Range<u64>> {
        let window = self.window.min(most);
        let start = self.asked / block * block;
        let part_end = (start / self.part_bytes + 1) * self.part_bytes;
        let end = part_end.min(start + (window / 2).next_multiple_of(block)).min(size);
        (self.rests == 0 && start < end && start < self.next + window).then_some(start..end)
    }

    pub fn add(&mut self, part: Rc<Part>) {
        self.asked = part.range.end;
        self.given += part.range.end - part.range.start;
        self.parts.push_back(part);
    }

    /// The parts that hold a range, if they hold all of it. Parts that lie before the next read are
    /// not kept.
    pub fn take(&mut self, range: &Range<u64>) -> Option<Parts> {
        let overlaps = |part: &&Rc<Part>| part.range.start < range.end && range.start < part.range.end;
        let parts: Parts = self.parts.iter().filter(overlaps).cloned().collect();
        while self.parts.pop_front_if(|part| part.range.end <= self.next).is_some() {
            self.window = self.window.saturating_mul(2);
        }
        // What the stream has to ask for itself is not read ahead of it as well.
        self.asked = self.asked.max(self.next);
        let end = parts
            .iter()
            .fold(range.start, |to, part| if part.range.start <= to { part.range.end } else { to });
        (end >= range.end).then(|| {
            self.taken += range.end - range.start;
            parts
        })
    }

    /// A part was read to its end.
    pub fn is_content(&mut self) {
        self.disappointments = self.disappointments.saturating_sub(1);
    }

    /// What was read ahead is not what is there. The next time is twice as far away, after
    /// so many reads the first time.
    pub fn is_disappointed(&mut self, after: u32) {
        // Many may have waited for the same part.
        if self.rests == 0 {
            self.disappointments = (self.disappointments + 1).min(DOUBLINGS_MAX);
            self.rests = after << self.disappointments;
            self.parts.clear();
            self.asked = self.next;
        }
    }

    /// Whether most of what was read ahead was asked for, if anything was read ahead.
    pub fn wanted_it(&self) -> Option<bool> {
        (self.given > 0).then_some(2 * self.taken >= self.given)
    }
}

/// What was read ahead, or is being read.
pub(crate) struct Part {
    range: Range<u64>,
    /// The state of its word before it was read.
    state: u64,
    era: u64,
    content: RefCell<Content>,
    arrived: Notify,
    /// What the core holds in all.
    held_bytes: Rc<Cell<u64>>,
}

enum Content {
    OnItsWay,
    Unreadable,
    Here(BufMut),
}

impl Part {
    /// Bytes that lie in one part of the array.
    pub fn new(range: Range<u64>, state: u64, era: u64, held_bytes: Rc<Cell<u64>>) -> Rc<Self> {
        held_bytes.update(|bytes| bytes + (range.end - range.start));
        let content = RefCell::new(Content::OnItsWay);
        Rc::new(Self { range, state, era, content, arrived: Notify::new(), held_bytes })
    }

    pub async fn read(&self, volume: &impl ReadNow) {
        let buf = BufMut::alloc((self.range.end - self.range.start) as usize);
        let content = match volume.read_now(self.range.start, buf).await {
            (Ok(()), buf) => Content::Here(buf),
            (Err(_), _) => Content::Unreadable,
        };
        *self.content.borrow_mut() = content;
        self.arrived.notify_all();
    }

    pub async fn arrived(&self) {
        while matches!(*self.content.borrow(), Content::OnItsWay) {
            self.arrived.wait().await;
        }
    }

    /// Whether it is here, and what is there now.
    pub fn is_current(&self, era: u64, changes: &Changes) -> bool {
        matches!(*self.content.borrow(), Content::Here(_))
            && self.era == era
            && changes.unchanged(self.range.start, self.state)
    }

    pub fn ends_by(&self, end: u64) -> bool {
        self.range.end <= end
    }

    /// Copies what lies in a range that starts at `offset`.
    pub fn copy_to(&self, offset: u64, buf: &mut [u8]) {
        let Content::Here(content) = &*self.content.borrow() else { unreachable!("it is current") };
        let from = self.range.start.max(offset);
        let to = self.range.end.min(offset + buf.len() as u64);
        let (here, there) = ((from - self.range.start) as usize, (from - offset) as usize);
        let len = (to - from) as usize;
        buf[there..there + len].copy_from_slice(&content[here..here + len]);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.held_bytes.update(|bytes| bytes - (self.range.end - self.range.start));
    }
}
