//! A connection without a machine: two ends with a bounded buffer in each direction, and the door
//! where connections wait to be accepted. The simulated backend moves the bytes, in virtual time;
//! nothing here waits.

use crate::base::error::IoError;
use crate::memory::buf::Buf;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Set when anything changed on the wires of a world: operations that wait may go on.
pub(crate) type News = Arc<AtomicBool>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of a connection. Its drop is what closing a socket is.
pub(crate) struct WireEnd {
    wire: Arc<Wire>,
    /// Bytes in `wire.toward[side]` are for this end.
    side: usize,
}

struct Wire {
    toward: Mutex<[Direction; 2]>,
    /// Bytes that lie between the ends, in each direction.
    bytes_max: usize,
    news: News,
}

#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    /// Nothing more is sent this way.
    ended: bool,
}

impl WireEnd {
    /// Two ends of a connection that holds at most `bytes_max` bytes in each direction.
    pub fn pair(bytes_max: usize, news: &News) -> (WireEnd, WireEnd) {
        let wire = Wire { toward: Mutex::default(), bytes_max: bytes_max.max(1), news: news.clone() };
        let wire = Arc::new(wire);
        (WireEnd { wire: wire.clone(), side: 0 }, WireEnd { wire, side: 1 })
    }

    /// Whether a receive would end now: bytes have come, or none will.
    pub fn may_receive(&self) -> bool {
        let direction = &lock(&self.wire.toward)[self.side];
        direction.ended || !direction.bytes.is_empty()
    }

    /// Takes what has come, as far as `buf` has room; 0 at the end.
    pub fn receive(&self, buf: &mut [u8]) -> usize {
        let bytes = &mut lock(&self.wire.toward)[self.side].bytes;
        let count = bytes.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(bytes.drain(..count)) {
            *to = from;
        }
        self.wire.news.store(true, Ordering::Relaxed);
        count
    }

    /// Whether a send would move bytes or fail now.
    pub fn may_send(&self) -> bool {
        let direction = &lock(&self.wire.toward)[1 - self.side];
        direction.ended || direction.bytes.len() < self.wire.bytes_max
    }

    /// Sends as much of `bufs`, without the first `moved` bytes, as there is room for.
    pub fn send(&self, bufs: &[Buf], mut moved: usize) -> Result<usize, IoError> {
        let direction = &mut lock(&self.wire.toward)[1 - self.side];
        if direction.ended {
            return Err(IoError::from_errno(libc::EPIPE));
        }
        let room = self.wire.bytes_max - direction.bytes.len();
        let mut sent = 0;
        for buf in bufs {
            let skipped = moved.min(buf.len());
            moved -= skipped;
            let rest = &buf[skipped..];
            let count = rest.len().min(room - sent);
            direction.bytes.extend(&rest[..count]);
            sent += count;
        }
        self.wire.news.store(true, Ordering::Relaxed);
        Ok(sent)
    }

    /// Ends both directions: each end still reads what was sent to it, and then the end.
    pub fn end(&self) {
        lock(&self.wire.toward).iter_mut().for_each(|direction| direction.ended = true);
        self.wire.news.store(true, Ordering::Relaxed);
    }
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        self.end();
        lock(&self.wire.toward)[self.side].bytes = VecDeque::new();
    }
}

/// Where connections wait to be accepted.
pub(crate) struct Door {
    waiting: Mutex<Option<VecDeque<WireEnd>>>,
    news: News,
}

impl Door {
    pub fn new(news: &News) -> Door {
        Door { waiting: Mutex::new(Some(VecDeque::new())), news: news.clone() }
    }

    /// Connects; the other end waits to be accepted.
    ///
    /// # Errors
    /// The listener is closed.
    pub fn knock(&self, bytes_max: usize) -> Result<WireEnd, IoError> {
        let (ours, theirs) = WireEnd::pair(bytes_max, &self.news);
        match &mut *lock(&self.waiting) {
            Some(waiting) => waiting.push_back(theirs),
            None => return Err(IoError::from_errno(libc::ECONNREFUSED)),
        }
        self.news.store(true, Ordering::Relaxed);
        Ok(ours)
    }

    /// Whether a connection waits.
    pub fn may_accept(&self) -> bool {
        lock(&self.waiting).as_ref().is_none_or(|waiting| !waiting.is_empty())
    }

    /// The connection that has waited for longest.
    ///
    /// # Errors
    /// The listener is closed.
    pub fn accept(&self) -> Result<WireEnd, IoError> {
        let next = lock(&self.waiting).as_mut().and_then(VecDeque::pop_front);
        next.ok_or_else(|| IoError::from_errno(libc::EINVAL))
    }

    /// Closes it: connections that wait end, later ones are refused.
    pub fn close(&self) {
        let waiting = lock(&self.waiting).take();
        drop(waiting);
    }
}
