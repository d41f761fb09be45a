//! Reading ahead: a client that reads in sequence and waits for each answer before it asks again
//! gets the bandwidth of all members.
//!
//! Each core follows the reads that come in on it. One that goes on from others makes a *reader*,
//! and what it will ask for next is read in *parts* before it asks. Readers that keep the members
//! busy by themselves are left alone, and so are those that turn out to ask for something else.
//!
//! **Invariant.** What was read ahead answers a request only if the part holds the same now: since
//! before it was read, no change of it was under way ([`changes`]), no request had the array
//! to itself, no repair chose what it holds, and no member's state changed.
//!
//! Most arrays are not read in sequence most of the time, and noting changes costs every write. So
//! it begins when the first reader comes (the array's home tells all cores, and waits for the
//! writes that began before), and ends some time after the last one
//! ([`HintShard::note_changes`]).

mod changes;
mod home;
mod notes;
mod reader;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{BufMut, Core, Instant, Notify, race};

use crate::hints::{HintShard, Streams};
use crate::model::error::VolumeError;
use crate::model::geometry::Geometry;
use crate::model::invariant::invariant;
use crate::model::units::{SECTOR_BYTES, Sector};
pub(crate) use changes::{Change, Changes};
use notes::Notes;
use reader::{Part, Parts, Reader};

/// Most readers of a core.
const READERS_MAX: usize = 8;

/// A reader that has not read for so long has to make room for others.
const BRIEFLY: Duration = Duration::from_millis(50);

/// A stream that is not worth reading ahead of has to wait twice as long with each time, up to 1024
/// times as long.
const DOUBLINGS_MAX: u32 = 10;

/// Bounds and times of reading ahead.
#[derive(Debug, Clone, Copy)]
pub struct ReadaheadTuning {
    /// Most bytes that a core holds of what was read ahead; 0 for none.
    pub bytes_max: usize,
    /// What is read at once, at most: a power of two.
    pub part_bytes: u64,
    /// How many reads that go on from one another make a reader.
    pub after: u32,
    /// A stream that has not read for so long is no reader any more.
    pub idle: Duration,
}

impl Default for ReadaheadTuning {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, part_bytes: 256 << 10, after: 2, idle: Duration::from_secs(1) }
    }
}

impl ReadaheadTuning {
    /// What is read at once of an array: no more than a chunk, if that is not small, so that each
    /// member has its part.
    pub(crate) fn part_bytes_of(&self, geometry: &Geometry) -> u64 {
        const SMALL: u64 = 64 << 10;
        let chunk = geometry.chunk().0 * SECTOR_BYTES;
        let whole = if chunk == 0 { self.part_bytes } else { 1 << chunk.trailing_zeros() };
        whole.max(SMALL).min(self.part_bytes)
    }

    /// What keeps every member of an array busy and hardly makes a client wait: a stripe, or
    /// two where chunks are small.
    pub(crate) fn window_bytes_of(&self, geometry: &Geometry) -> u64 {
        let small = geometry.raid_disks() as u64 * (128 << 10);
        u64::from(geometry.io_opt_bytes()).max(small).max(1 << 20).min(self.bytes_max as u64)
    }
}

/// What is read ahead from: the volume on one core.
pub(crate) trait ReadNow: Clone + 'static {
    /// What this core knows of its streams.
    fn hints(&self) -> &Rc<HintShard>;

    /// Reads whole blocks from the members.
    async fn read_now(&self, offset_bytes: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut);
}

/// What a core reads ahead.
pub(crate) struct ReadAhead {
    tuning: ReadaheadTuning,
    /// So much may be on its way, clients' reads included, and so far ahead of one reader is read.
    window_bytes: Cell<u64>,
    /// Clients' reads that came in here and are under way, in bytes.
    under_way: Cell<u64>,
    /// Streams that are no readers yet.
    streams: Streams,
    state: Cell<State>,
    /// Requests that have the array to themselves, and jobs that choose what it holds.
    suspended: Cell<u32>,
    /// What was read ahead in another one is not what is there.
    era: Cell<u64>,
    readers: RefCell<Vec<Reader>>,
    /// How many more readers did not want what was read ahead of them than did; halved when time
    /// passes.
    unwanted: Cell<u32>,
    /// Bytes on their way, and the signal that the last ones are here.
    on_their_way: Cell<u64>,
    all_here: Notify,
    held_bytes: Rc<Cell<u64>>,
    /// Notes of what clients change.
    pub notes: Notes,
}

/// Whether every change is noted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unnoted,
    /// The home is asked to have them noted.
    Asked,
    Noted,
}

/// A client's read under way.
pub(crate) struct UnderWay<'a> {
    ahead: &'a ReadAhead,
    bytes: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.ahead.under_way.update(|bytes| bytes - self.bytes);
    }
}

impl ReadAhead {
    pub fn new(tuning: ReadaheadTuning, geometry: &Geometry) -> Self {
        Self {
            tuning,
            window_bytes: Cell::new(tuning.window_bytes_of(geometry)),
            under_way: Cell::new(0),
            streams: Streams::default(),
            state: Cell::new(State::Unnoted),
            suspended: Cell::new(0),
            era: Cell::new(0),
            readers: RefCell::default(),
            unwanted: Cell::new(0),
            on_their_way: Cell::new(0),
            all_here: Notify::new(),
            held_bytes: Rc::default(),
            notes: Notes::default(),
        }
    }

    /// A client's read comes in.
    pub fn begin_read(&self, bytes: u64) -> UnderWay<'_> {
        self.under_way.update(|all| all + bytes);
        UnderWay { ahead: self, bytes }
    }

    /// Follows a client's read that has [begun](Self::begin_read), reads ahead of it if it goes on
    /// from others, and says what was read of it before, if that is all of it.
    pub fn follow(&self, volume: &impl ReadNow, range: Range<u64>) -> Option<Parts> {
        let len = range.end - range.start;
        // A client that asks for so much at once keeps the members busy.
        if self.suspended.get() > 0 || len > self.window_bytes.get() {
            return None;
        }
        let mut readers = self.readers.borrow_mut();
        let now = volume.hints().core.turn_time();
        if let Some(reader) = readers.iter_mut().find(|reader| reader.expects(range.start)) {
            reader.goes_on(now, &range);
            self.fill(volume, reader, len);
            return reader.take(&range);
        }
        let before = self.streams.length_before(range.clone());
        if before < self.tuning.after << self.unwanted.get() || !self.has_room(len) {
            return None;
        }
        match self.state.get() {
            State::Unnoted => self.ask(volume.hints()),
            State::Asked => {}
            State::Noted => {
                if readers.len() == READERS_MAX
                    || self.held_bytes.get() + self.window_bytes.get() > self.bytes_max()
                {
                    self.dismiss(&mut readers, now, BRIEFLY);
                }
                if readers.len() < READERS_MAX {
                    let mut reader = Reader::new(now, &range, volume.hints().changes.part_bytes());
                    self.fill(volume, &mut reader, len);
                    readers.push(reader);
                }
            }
        }
        None
    }

    /// Waits for what was read ahead and copies it, if it is what is there now.
    pub async fn copy(&self, hints: &HintShard, parts: Parts, offset: u64, buf: &mut [u8]) -> bool {
        for part in &parts {
            part.arrived().await;
        }
        let end = offset + buf.len() as u64;
        // From here on nothing can happen on this core; what begins on others has not been
        // acknowledged.
        let current = parts.iter().all(|part| part.is_current(self.era.get(), &hints.changes));
        if current {
            invariant!(10, self.state.get() == State::Noted && hints.ahead.notes.are_on());
            parts.iter().for_each(|part| part.copy_to(offset, buf));
            hints.state.counters.ahead_reads.add(1);
        }
        if !current || parts.iter().any(|part| part.ends_by(end)) {
            let mut readers = self.readers.borrow_mut();
            if let Some(reader) = readers.iter_mut().find(|reader| reader.expects(end)) {
                if current { reader.is_content() } else { reader.is_disappointed(self.tuning.after) }
            }
        }
        current
    }

    /// Reads on, as far ahead of a reader as allowed. The client asks for `len` bytes.
    fn fill(&self, volume: &impl ReadNow, reader: &mut Reader, len: u64) {
        let hints = volume.hints();
        let block = u64::from(hints.fixed.block_bytes);
        while self.has_room(len)
            && let Some(range) = reader.wants(self.window_bytes.get(), block, hints.fixed.volume_bytes())
        {
            let bytes = range.end - range.start;
            let sectors = Sector(range.start / SECTOR_BYTES)..Sector(range.end / SECTOR_BYTES);
            // A member that does not answer in time keeps what it is to fill.
            if self.held_bytes.get() + bytes > self.bytes_max()
                || !hints.members.reads_the_same(sectors)
                || !hints.members.slow().is_empty()
            {
                return;
            }
            let Some(state) = hints.changes.quiet(range.start) else { return };
            hints.state.counters.ahead_bytes.add(bytes);
            let part = Part::new(range, state, self.era.get(), self.held_bytes.clone());
            reader.add(part.clone());
            self.on_their_way.update(|all| all + bytes);
            let volume = volume.clone();
            hints.core.spawn(async move {
                part.read(&volume).await;
                volume.hints().ahead.are_here(bytes);
            });
        }
    }

    /// Whether more may be on its way, beside a request for `len` bytes and what other requests
    /// have under way.
    fn has_room(&self, len: u64) -> bool {
        self.on_their_way.get() + self.under_way.get() - len < self.window_bytes.get() + len
    }

    /// From now on so far ahead is read at most; 0 for nothing.
    pub fn set_window_bytes(&self, bytes: u64) {
        self.window_bytes.set(bytes.min(self.bytes_max()));
        self.forget();
    }

    /// After how long a stream that has not gone on is none any more.
    pub fn idle(&self) -> Duration {
        self.tuning.idle
    }

    fn bytes_max(&self) -> u64 {
        self.tuning.bytes_max as u64
    }

    fn are_here(&self, bytes: u64) {
        self.on_their_way.update(|all| all - bytes);
        if self.on_their_way.get() == 0 {
            self.all_here.notify_all();
        }
    }

    /// Reads ahead no more; returns when nothing is on its way, or what is has been given up.
    pub async fn end(&self, core: &Core, given_up: Duration) {
        self.suspend();
        let all_here = async {
            while self.on_their_way.get() > 0 {
                self.all_here.wait().await;
            }
        };
        race(all_here, core.sleep(given_up)).await;
    }

    /// Asks the home to have changes noted.
    fn ask(&self, hints: &Rc<HintShard>) {
        self.state.set(State::Asked);
        let (state, key) = (hints.state.clone(), hints.fixed.hints_key());
        hints.core.spawn(async move {
            // An array that is stopped is not read.
            let asked = state.home(move |home| async move {
                let hints = home.shard().core.local::<HintShard>(key).ok_or(VolumeError::Stopped)?;
                hints.note_changes(&home).await
            });
            let _ = asked.await;
        });
    }

    /// Every core notes changes.
    pub fn allow(&self) {
        self.state.set(State::Noted);
    }

    /// Cores will stop noting changes.
    pub fn forbid(&self) {
        self.state.set(State::Unnoted);
        self.unwanted.set(0);
        self.forget();
    }

    /// Lets go of readers that have not read for a while; says whether there are others.
    pub fn has_readers(&self, now: Instant) -> bool {
        let mut readers = self.readers.borrow_mut();
        self.unwanted.update(|times| times / 2);
        self.dismiss(&mut readers, now, self.tuning.idle);
        !readers.is_empty()
    }

    /// Lets go of readers that have not read for so long.
    fn dismiss(&self, readers: &mut Vec<Reader>, now: Instant, idle: Duration) {
        for reader in readers.extract_if(.., |reader| now - reader.last >= idle) {
            self.unwanted.update(|times| match reader.wanted_it() {
                Some(true) => times.saturating_sub(1),
                Some(false) => (times + 1).min(DOUBLINGS_MAX),
                None => times,
            });
        }
    }

    /// What was read ahead is not what is there.
    pub fn forget(&self) {
        self.era.update(|era| era + 1);
        self.readers.borrow_mut().clear();
    }

    /// A request has the array to itself, or a job chooses what it holds, until [`Self::resume`].
    pub fn suspend(&self) {
        self.suspended.update(|times| times + 1);
        self.forget();
    }

    pub fn resume(&self) {
        self.suspended.update(|times| times - 1);
    }
}
