//! Disks: a head that seeks, a platter that turns, zones whose tracks hold less and less towards
//! the end, and a cache.
//!
//! One thing happens on the medium at a time. Whenever the head is free it takes the request it can
//! begin with first, and now and then one that others were preferred to for too long.

use crate::base::rng::Rng;
use crate::base::time::nanos;
use crate::model::{Cache, Due, Kind, Request, Ticket, share};
use std::collections::VecDeque;
use std::time::Duration;
use wattle_drives::{Disk, SeekCurve};

/// Zones of equal size; within one all tracks are alike.
const ZONES: u64 = 16;
/// A request to which so many others were preferred is next.
const PREFERRED_MAX: u64 = 128;
/// Writes the cache holds at most, whatever their size.
const CACHED_WRITES_MAX: usize = 128;

/// A run of reads that the head follows: at `from_at` it was at `from`, and since then it has been
/// reading on.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The first byte that is in the buffer.
    first: u64,
    from: u64,
    from_at: u64,
    /// The end of what was asked for.
    asked: u64,
}

/// A request that waits for the head.
#[derive(Debug)]
struct Waiting<T> {
    ticket: Ticket<T>,
    /// When the command has arrived.
    ready: u64,
    /// How many turns the head had taken then.
    turns: u64,
}

/// A write that has completed and is not on the medium yet.
#[derive(Clone, Copy, Debug)]
struct Cached {
    request: Request,
    /// When all of it is in the cache.
    ready: u64,
    number: u64,
}

#[derive(Debug)]
pub(super) struct DiskServer<T> {
    figures: Disk,
    cache: Cache,
    size: u64,
    revolution: u64,
    seek: SeekCurve,
    /// Bytes per track by zone.
    track_bytes: Vec<u64>,
    /// Where on its turn the platter was when time began.
    phase: u64,
    /// Where the head is, or will be when it is free.
    head: u64,
    free_at: u64,
    busy: u64,
    turns: u64,
    stream: Option<Stream>,
    link_free_at: u64,
    queue: Vec<Waiting<T>>,
    /// Writes that wait for room in the cache, oldest first.
    blocked: VecDeque<Ticket<T>>,
    cached: Vec<Cached>,
    cached_bytes: u64,
    /// Cached bytes that are being written right now.
    landing: Option<u64>,
    flushes: Vec<Ticket<T>>,
}

/// How long until the head begins with a request, and until it is through with it.
#[derive(Clone, Copy, Debug)]
struct Reach {
    begin: u64,
    end: u64,
    /// It only has to read on for that.
    reads_on: bool,
}

/// What the head can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Queued(usize),
    Cached(usize),
}

impl<T> DiskServer<T> {
    pub(super) fn new(figures: &Disk, cache: Cache, size_bytes: u64, rng: &mut Rng) -> DiskServer<T> {
        let revolution = nanos(Duration::from_secs(60) / figures.turns_per_minute.max(1)).max(1);
        let mut disk = DiskServer {
            figures: figures.clone(),
            cache,
            size: size_bytes.max(ZONES),
            revolution,
            seek: SeekCurve::new(figures),
            track_bytes: Vec::new(),
            phase: rng.below(revolution),
            head: 0,
            free_at: 0,
            busy: 0,
            turns: 0,
            stream: None,
            link_free_at: 0,
            queue: Vec::new(),
            blocked: VecDeque::new(),
            cached: Vec::new(),
            cached_bytes: 0,
            landing: None,
            flushes: Vec::new(),
        };
        let bytes = |zone| u128::from(disk.bandwidth(zone)) * u128::from(revolution) / 1_000_000_000;
        disk.track_bytes = (0..ZONES).map(|zone| (bytes(zone) as u64).max(1)).collect();
        disk
    }

    // The medium.

    fn zone(&self, offset: u64) -> u64 {
        (offset / (self.size / ZONES)).min(ZONES - 1)
    }

    fn bandwidth(&self, zone: u64) -> u64 {
        let (outer, inner) = (self.figures.outer_bytes_per_second, self.figures.inner_bytes_per_second);
        (outer * (ZONES - 1 - zone) + inner * zone) / (ZONES - 1)
    }

    /// How long `len` bytes from `offset` take to pass under the head.
    fn transfer(&self, offset: u64, len: u64) -> u64 {
        share(len, self.bandwidth(self.zone(offset)))
    }

    /// How long a head that is at `head` needs to where `offset` passes under it next.
    fn position(&self, head: u64, offset: u64, from: u64) -> u64 {
        let zone = self.zone(offset);
        let track_bytes = self.track_bytes[zone as usize];
        let distance = head.abs_diff(offset);
        let seek = if distance < track_bytes { 0 } else { self.seek.nanos(distance, self.size) };
        let within = (offset - zone * (self.size / ZONES)) % track_bytes;
        let angle = (u128::from(within) * u128::from(self.revolution) / u128::from(track_bytes)) as u64;
        let now = (from + seek + self.phase) % self.revolution;
        seek + (angle + self.revolution - now) % self.revolution
    }

    /// How far the head has been reading on, and when it got there if it waits there.
    fn read_until(&self, stream: Stream, now: u64) -> (u64, bool) {
        let bandwidth = u128::from(self.bandwidth(self.zone(stream.from)));
        let passed = u128::from(now.saturating_sub(stream.from_at)) * bandwidth / 1_000_000_000;
        let limit = (stream.asked + self.figures.read_ahead_bytes).min(self.size);
        let at = stream.from.saturating_add(passed as u64);
        (at.min(limit), at >= limit)
    }

    /// How the head comes to a request and through it.
    fn reach(&self, request: &Request, now: u64) -> Reach {
        let Some(stream) = self.stream else {
            // A request that follows the last one passes under the head right now.
            let follows = request.offset == self.head && now == self.free_at;
            let begin = if follows { 0 } else { self.position(self.head, request.offset, now) };
            return self.once_there(request, begin);
        };
        let (at, waits) = self.read_until(stream, now);
        let away = self.once_there(request, self.position(at, request.offset, now));
        let ahead = stream.first..=stream.asked + self.figures.read_ahead_bytes;
        if request.kind != Kind::Read || !ahead.contains(&request.offset) {
            return away;
        }
        let (from, from_at) = match waits {
            true => (at, now + self.position(at, at.min(self.size - 1), now)),
            false => (stream.from, stream.from_at),
        };
        let passes = |offset: u64| {
            let at = from_at + self.transfer(from, offset.saturating_sub(from));
            if offset <= from { 0 } else { at.saturating_sub(now) }
        };
        let on = Reach { begin: passes(request.offset), end: passes(request.end()), reads_on: true };
        if on.end <= away.end { on } else { away }
    }

    fn once_there(&self, request: &Request, begin: u64) -> Reach {
        Reach { begin, end: begin + self.transfer(request.offset, request.len), reads_on: false }
    }

    // The queue.

    pub(super) fn accept(&mut self, ticket: Ticket<T>, now: u64, due: &mut Due<T>) {
        let request = ticket.request;
        let ready = now + nanos(self.figures.command).saturating_mul(request.slow);
        let volatile = self.cache.bytes > 0;
        match request.kind {
            Kind::Flush if !volatile => {
                due.insert(
                    (ready + self.cache.flush.saturating_mul(request.slow), ticket.number),
                    ticket.owner,
                );
            }
            Kind::Flush if self.cached.is_empty() && self.landing.is_none() => {
                due.insert((ready, ticket.number), ticket.owner);
            }
            Kind::Flush => self.flushes.push(ticket),
            Kind::Write if volatile && self.blocked.is_empty() && self.has_room(request.len) => {
                self.take_into_cache(ticket, ready, due);
            }
            Kind::Write if volatile => self.blocked.push_back(ticket),
            Kind::Read if self.is_cached(&request) => {
                due.insert((self.link(request.len, ready), ticket.number), ticket.owner);
            }
            _ => self.queue.push(Waiting { ticket, ready, turns: self.turns }),
        }
    }

    fn has_room(&self, len: u64) -> bool {
        let fits = self.cached_bytes + len <= self.cache.bytes && self.cached.len() < CACHED_WRITES_MAX;
        fits || self.cached_bytes == 0
    }

    fn is_cached(&self, read: &Request) -> bool {
        let holds = |write: &Request| write.offset <= read.offset && read.end() <= write.end();
        self.cached.iter().any(|write| holds(&write.request))
    }

    /// When `len` bytes have passed between cache and host.
    fn link(&mut self, len: u64, from: u64) -> u64 {
        self.link_free_at = self.link_free_at.max(from) + share(len, self.figures.link_bytes_per_second);
        self.link_free_at
    }

    fn take_into_cache(&mut self, ticket: Ticket<T>, from: u64, due: &mut Due<T>) {
        let Ticket { number, request, owner } = ticket;
        let ready = self.link(request.len, from);
        self.cached.push(Cached { request, ready, number });
        self.cached_bytes += request.len;
        due.insert((ready, number), owner);
    }

    /// When the head can turn to something next.
    pub(super) fn next(&self) -> Option<u64> {
        let released = self.cached.is_empty() && !(self.flushes.is_empty() && self.blocked.is_empty());
        if self.landing.is_some() || released {
            return Some(self.free_at);
        }
        let cached = self.cached.iter().filter(|write| self.lands_now(write)).map(|write| write.ready);
        let queued = self.queue.iter().filter(|_| self.flushes.is_empty()).map(|waiting| waiting.ready);
        cached.chain(queued).min().map(|ready| ready.max(self.free_at))
    }

    /// A flush has the head for itself: only what it waits for may go.
    fn lands_now(&self, write: &Cached) -> bool {
        self.flushes.first().is_none_or(|flush| write.number < flush.number)
    }

    /// The head is free and something is ready for it.
    pub(super) fn turn(&mut self, now: u64, due: &mut Due<T>) {
        self.cached_bytes -= self.landing.take().unwrap_or(0);
        while self.blocked.front().is_some_and(|ticket| self.has_room(ticket.request.len)) {
            let Some(ticket) = self.blocked.pop_front() else { break };
            self.take_into_cache(ticket, now, due);
        }
        if let Some(flush) = self.flushes.first()
            && self.cached.iter().all(|write| write.number > flush.number)
        {
            let flush = self.flushes.remove(0);
            self.occupy(now, self.cache.flush.saturating_mul(flush.request.slow));
            due.insert((self.free_at, flush.number), flush.owner);
            return;
        }
        match self.choose(now) {
            None => {}
            Some(Choice::Queued(index)) => self.serve(index, now, due),
            Some(Choice::Cached(index)) => {
                let Cached { request, .. } = self.cached.swap_remove(index);
                self.land(&request, now);
                self.landing = Some(request.len);
            }
        }
    }

    /// The request that can begin first; cached writes only if nothing else waits or the cache is
    /// half full. Of requests in a row it is the first, or the rest of the row would be left
    /// behind.
    fn choose(&self, now: u64) -> Option<Choice> {
        let waits = |waiting: &Waiting<T>| waiting.ready <= now && self.flushes.is_empty();
        let idle = !self.queue.iter().any(waits);
        let full = self.cached_bytes * 2 >= self.cache.bytes || self.cached.len() * 2 >= CACHED_WRITES_MAX;
        let lands = |write: &Cached| write.ready <= now && self.lands_now(write) && (idle || full);
        let begin = |request: &Request| self.reach(request, now).begin;
        let queued =
            self.queue.iter().enumerate().filter(|(_, waiting)| waits(waiting)).map(|(index, waiting)| {
                let overdue = self.turns - waiting.turns >= PREFERRED_MAX;
                let begin = if overdue { 0 } else { begin(&waiting.ticket.request) };
                (begin, waiting.ticket.number, Choice::Queued(index))
            });
        let cached = self.cached.iter().enumerate().filter(|(_, write)| lands(write));
        let cached =
            cached.map(|(index, write)| (begin(&write.request), write.number, Choice::Cached(index)));
        let (begin, _, mut choice) =
            queued.chain(cached).min_by_key(|(begin, number, _)| (*begin, *number))?;
        if begin == 0 {
            return Some(choice);
        }
        // At most as many steps as there are requests, should they follow one another in a circle.
        for _ in 0..self.queue.len() + self.cached.len() {
            let before = match choice {
                Choice::Queued(index) => {
                    let Request { kind, offset, .. } = self.queue[index].ticket.request;
                    let leads = |waiting: &Waiting<T>| {
                        let request = &waiting.ticket.request;
                        waits(waiting) && request.kind == kind && request.end() == offset && request.len > 0
                    };
                    self.queue.iter().position(leads).map(Choice::Queued)
                }
                Choice::Cached(index) => {
                    let Request { offset, .. } = self.cached[index].request;
                    let leads = |write: &Cached| {
                        lands(write) && write.request.end() == offset && write.request.len > 0
                    };
                    self.cached.iter().position(leads).map(Choice::Cached)
                }
            };
            match before {
                Some(before) => choice = before,
                None => break,
            }
        }
        Some(choice)
    }

    /// Serves a request of the queue.
    fn serve(&mut self, index: usize, now: u64, due: &mut Due<T>) {
        let Ticket { number, request, owner } = self.queue.swap_remove(index).ticket;
        let at = match request.kind {
            Kind::Read => self.read(&request, now),
            _ => {
                self.land(&request, now);
                self.free_at
            }
        };
        due.insert((at, number), owner);
    }

    /// Reads from the buffer, or from the medium; answers when the host has it.
    fn read(&mut self, request: &Request, now: u64) -> u64 {
        let end = request.end();
        let ahead = self.figures.read_ahead_bytes;
        if let Some(mut stream) = self.stream {
            let (at, waits) = self.read_until(stream, now);
            if request.offset >= stream.first && end <= at {
                if waits && end > stream.asked {
                    // There is room in the buffer again: the head reads on from where it stopped.
                    stream.from_at = now + self.position(at, at.min(self.size - 1), now);
                    stream.from = at;
                }
                stream.asked = stream.asked.max(end);
                stream.first = stream.first.max(stream.asked.saturating_sub(ahead));
                self.stream = Some(stream);
                return self.link(request.len, now);
            }
        }
        let reach = self.reach(request, now);
        self.occupy(now, reach.end.saturating_mul(request.slow));
        let first = self.stream.filter(|_| reach.reads_on).map_or(request.offset, |stream| stream.first);
        let first = first.max(end.saturating_sub(ahead));
        self.stream = (ahead > 0).then_some(Stream { first, from: end, from_at: self.free_at, asked: end });
        self.head = end;
        self.free_at.max(now + share(request.len, self.figures.link_bytes_per_second))
    }

    /// Writes to the medium.
    fn land(&mut self, request: &Request, now: u64) {
        self.occupy(now, self.reach(request, now).end.saturating_mul(request.slow));
        self.stream = None;
        self.head = request.end();
    }

    fn occupy(&mut self, now: u64, time: u64) {
        self.turns += 1;
        self.free_at = self.free_at.max(now) + time;
        self.busy += time;
    }

    // What the server asks.

    pub(super) fn busy(&self) -> (u64, u64) {
        (self.busy, self.free_at)
    }

    pub(super) fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = &T> {
        let tickets = self.queue.iter().map(|waiting| &waiting.ticket);
        tickets.chain(&self.blocked).chain(&self.flushes).map(|ticket| &ticket.owner)
    }

    pub(super) fn drain(&mut self) -> Vec<Ticket<T>> {
        let queued = self.queue.drain(..).map(|waiting| waiting.ticket);
        queued.chain(self.blocked.drain(..)).chain(self.flushes.drain(..)).collect()
    }

    pub(super) fn lose_cache(&mut self) {
        self.cached.clear();
        self.cached_bytes = self.landing.unwrap_or(0);
    }
}
