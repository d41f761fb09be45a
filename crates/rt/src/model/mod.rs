//! Models of drives: how long they take over a request, in virtual and in real time alike.
//!
//! A [`DriveModel`] is figures, a `Server` one drive of that kind at work. It never reads a clock:
//! it is told the time and says when it next has news. Integers and square roots are all it
//! computes with, so it gives the same digits on every machine.

mod disk;
pub(crate) mod drive;
mod flash;
mod host;

use crate::base::rng::Rng;
use crate::base::time::{Instant, nanos};
use crate::model::disk::DiskServer;
use crate::model::flash::FlashServer;
use crate::model::host::Host;
use crate::op::{Durability, Op};
use std::collections::BTreeMap;
use std::time::Duration;

pub use wattle_drives::{Disk, DriveModel, Flash, Media};

/// What an operation is to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    /// A write that is durable at completion.
    Force,
    Zero,
    Flush,
}

/// An operation as its drive's time depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// It takes so many times as long as usual.
    pub(crate) slow: u64,
}

impl Request {
    pub(crate) fn of(op: &Op, slow: u32) -> Request {
        let kind = match op {
            Op::Read(_) => Kind::Read,
            Op::Write(_, Durability::Cached) => Kind::Write,
            Op::Write(_, Durability::Fua) => Kind::Force,
            Op::WriteZeroes { .. } => Kind::Zero,
            _ => Kind::Flush,
        };
        let (offset, len) = op.extent();
        Request { kind, offset, len, slow: u64::from(slow.max(1)) }
    }

    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The requests that the drive has decided about: by time of completion, then in the order of
/// arrival.
type Due<T> = BTreeMap<(u64, u64), T>;

/// A request with a number that tells its place in the order of arrival, and what its owner wants
/// to have back.
#[derive(Debug)]
struct Ticket<T> {
    number: u64,
    request: Request,
    owner: T,
}

/// One drive at work. `T` is what the owner of a request wants to have back when it is complete.
/// All times are nanoseconds.
#[derive(Debug)]
pub(crate) struct Server<T> {
    host: Host<T>,
    queue_depth: u32,
    /// How many requests the drive has.
    inside: u32,
    media: Serving<T>,
    due: Due<T>,
    arrivals: u64,
}

#[derive(Debug)]
enum Serving<T> {
    Flash(FlashServer),
    Disk(DiskServer<T>),
}

impl<T> Server<T> {
    /// A drive of `size_bytes` that has rested for ever. What is left to chance comes from `rng`.
    pub(crate) fn new(model: &DriveModel, size_bytes: u64, rng: &mut Rng) -> Server<T> {
        let cache = Cache { bytes: model.cache_bytes, flush: nanos(model.flush) };
        let media = match &model.media {
            Media::Flash(flash) => Serving::Flash(FlashServer::new(flash, cache, rng.fork())),
            Media::Disk(disk) => Serving::Disk(DiskServer::new(disk, cache, size_bytes, rng)),
        };
        Server {
            host: Host::new(model.group),
            queue_depth: model.queue_depth.max(1),
            inside: 0,
            media,
            due: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// Takes a request in.
    pub(crate) fn submit(&mut self, request: Request, owner: T, now: Instant) {
        self.host.push(Ticket { number: self.arrivals, request, owner });
        self.arrivals += 1;
        self.admit(now.as_nanos());
    }

    /// When there is news next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let due = self.due.first_key_value().map(|(&(at, _), _)| at);
        let turn = match &self.media {
            Serving::Flash(_) => None,
            Serving::Disk(disk) => disk.next(),
        };
        [due, turn].into_iter().flatten().min().map(Instant::from_nanos)
    }

    /// Lets time pass up to `now`; appends the owners of what completed by then to `done`, in
    /// order.
    pub(crate) fn advance(&mut self, now: Instant, done: &mut Vec<T>) {
        while let Some(next) = self.next().filter(|&next| next <= now) {
            let next = next.as_nanos();
            match self.due.first_entry() {
                Some(first) if first.key().0 <= next => {
                    done.push(first.remove());
                    self.inside -= 1;
                    self.admit(next);
                }
                _ => {
                    let Serving::Disk(disk) = &mut self.media else { return };
                    disk.turn(next, &mut self.due);
                }
            }
        }
    }

    /// Gives the drive what it has room for.
    fn admit(&mut self, now: u64) {
        while self.inside < self.queue_depth {
            let Some(ticket) = self.host.pop() else { return };
            self.inside += 1;
            match &mut self.media {
                Serving::Flash(flash) => {
                    let at = flash.serve(&ticket.request, now);
                    self.due.insert((at, ticket.number), ticket.owner);
                }
                Serving::Disk(disk) => disk.accept(ticket, now, &mut self.due),
            }
        }
    }

    /// How long it has been at work.
    pub(crate) fn busy(&self, now: Instant) -> Duration {
        let (busy, until) = match &self.media {
            Serving::Flash(flash) => flash.busy(),
            Serving::Disk(disk) => disk.busy(),
        };
        Duration::from_nanos(busy.saturating_sub(until.saturating_sub(now.as_nanos())))
    }

    /// Bytes that a disk's volatile cache holds.
    pub(crate) fn cached_bytes(&self) -> u64 {
        match &self.media {
            Serving::Flash(_) => 0,
            Serving::Disk(disk) => disk.cached_bytes(),
        }
    }

    /// The owners of everything that has not completed.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &T> {
        let inside = match &self.media {
            Serving::Flash(_) => None,
            Serving::Disk(disk) => Some(disk.owners()),
        };
        self.due.values().chain(inside.into_iter().flatten()).chain(self.host.owners())
    }

    /// Takes everything out that has not completed.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut tickets = self.host.drain();
        if let Serving::Disk(disk) = &mut self.media {
            tickets.extend(disk.drain());
        }
        self.inside = 0;
        let mut owners: Vec<(u64, T)> =
            std::mem::take(&mut self.due).into_iter().map(|((_, number), owner)| (number, owner)).collect();
        owners.extend(tickets.into_iter().map(|ticket| (ticket.number, ticket.owner)));
        owners.sort_by_key(|(number, _)| *number);
        owners.into_iter().map(|(_, owner)| owner).collect()
    }

    /// The volatile cache is empty.
    pub(crate) fn lose_cache(&mut self) {
        match &mut self.media {
            Serving::Flash(flash) => flash.lose_cache(),
            Serving::Disk(disk) => disk.lose_cache(),
        }
    }
}

/// A volatile cache, and what a flush costs in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cache {
    bytes: u64,
    flush: u64,
}

/// Nanoseconds that `amount` takes at `per_second`; 0 is no limit.
fn share(amount: u64, per_second: u64) -> u64 {
    match u128::from(per_second) {
        0 => 0,
        per_second => ((u128::from(amount) * 1_000_000_000 + per_second / 2) / per_second) as u64,
    }
}
