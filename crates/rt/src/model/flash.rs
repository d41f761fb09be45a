//! Solid-state drives.
//!
//! Everything passes one stage that all operations share, in the order in which the drive takes
//! them: it is what bounds the rates, so a drive that is asked for as many reads as writes does
//! 1/(1/R+1/W) of each. Then an operation occupies the channel its address leads to for the rest of
//! its latency; the stage serves others meanwhile.

use crate::base::rng::{Rng, mix};
use crate::base::time::nanos;
use crate::model::{Cache, Kind, Request, share};
use wattle_drives::Flash;

/// Up to this length what counts is operations per second, beyond it bandwidth too.
const SMALL_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct FlashServer {
    figures: Flash,
    cache: Cache,
    rng: Rng,
    /// When the stage that everything passes is free, and how long it has been or will be at work
    /// until then.
    free_at: u64,
    busy: u64,
    channels: Vec<u64>,
    wrote_last: bool,
    /// Writes have completed, or will, that no flush was charged for.
    dirty: bool,
    /// Bytes of fast space that are left.
    burst_left: u64,
    /// Time that collecting what was written will take, and how much of it makes a pause.
    owed: u64,
    pause_at: u64,
}

impl FlashServer {
    pub(super) fn new(figures: &Flash, cache: Cache, rng: Rng) -> FlashServer {
        let mut server = FlashServer {
            figures: figures.clone(),
            cache,
            rng,
            free_at: 0,
            busy: 0,
            channels: vec![0; figures.channels as usize],
            wrote_last: false,
            dirty: false,
            burst_left: figures.burst_bytes,
            owed: 0,
            pause_at: 0,
        };
        server.draw_pause();
        server
    }

    /// Serves a request that the drive takes now; answers when it completes.
    pub(super) fn serve(&mut self, request: &Request, now: u64) -> u64 {
        self.rest_until(now);
        let flush = self.cache.flush.saturating_mul(request.slow);
        let volatile = self.cache.bytes > 0;
        if request.kind == Kind::Flush {
            if !volatile {
                return now + flush;
            }
            if std::mem::take(&mut self.dirty) {
                self.occupy(flush);
            }
            return self.free_at;
        }
        let (stage, after) = if request.kind == Kind::Read {
            let small = share(1, self.figures.reads_per_second);
            let stage = small.max(large(request.len, self.figures.read_bytes_per_second));
            (stage, nanos(self.figures.read_latency).saturating_sub(small))
        } else {
            self.dirty = true;
            self.write(request)
        };
        let writes = request.kind != Kind::Read;
        let turned = std::mem::replace(&mut self.wrote_last, writes) != writes;
        let stage = stage + if turned { nanos(self.figures.turnaround) } else { 0 };
        self.occupy(stage.saturating_mul(request.slow));
        let mut at = self.free_at;
        let after = after.saturating_mul(request.slow);
        if let channels @ 1.. = self.channels.len() as u64 {
            let channel = &mut self.channels[(mix(request.offset / SMALL_BYTES) % channels) as usize];
            *channel = at.max(*channel) + after;
            at = *channel;
        } else {
            at += after;
        }
        self.pause();
        if request.kind == Kind::Force && volatile { at + flush } else { at }
    }

    /// How long a write occupies the stage, and its channel after that.
    fn write(&mut self, request: &Request) -> (u64, u64) {
        let len = if request.kind == Kind::Zero { 0 } else { request.len };
        let latency = nanos(self.figures.write_latency);
        if self.burst_left > 0 {
            self.burst_left = self.burst_left.saturating_sub(len);
            let small = share(1, self.figures.burst_writes_per_second);
            let stage = small.max(large(len, self.figures.burst_bytes_per_second));
            return (stage, latency.saturating_sub(small));
        }
        let small = share(1, self.figures.writes_per_second);
        let stage = small.max(large(len, self.figures.write_bytes_per_second));
        let part = u64::from(self.figures.collection_share_ppm.min(1_000_000));
        let later = (u128::from(stage) * u128::from(part) / 1_000_000) as u64;
        self.owed += later;
        (stage - later, latency.saturating_sub(small))
    }

    /// Lets time pass in which there was nothing to do.
    fn rest_until(&mut self, now: u64) {
        let idle = now.saturating_sub(self.free_at);
        self.free_at += idle;
        let refilled = u128::from(idle) * u128::from(self.figures.refill_bytes_per_second) / 1_000_000_000;
        let burst_bytes = u128::from(self.figures.burst_bytes);
        self.burst_left = (u128::from(self.burst_left) + refilled).min(burst_bytes) as u64;
    }

    fn occupy(&mut self, time: u64) {
        self.free_at += time;
        self.busy += time;
    }

    /// Collects, if enough has come together.
    fn pause(&mut self) {
        if self.owed > 0 && self.owed >= self.pause_at {
            let owed = std::mem::take(&mut self.owed);
            self.free_at += owed;
            self.busy += owed;
            self.draw_pause();
        }
    }

    fn draw_pause(&mut self) {
        if self.figures.collection_share_ppm > 0 {
            let pause = nanos(self.figures.collection_pause);
            self.pause_at = pause / 2 + self.rng.below(pause.max(1));
        }
    }

    pub(super) fn lose_cache(&mut self) {
        self.dirty = false;
    }

    pub(super) fn busy(&self) -> (u64, u64) {
        (self.busy, self.free_at)
    }
}

/// What bandwidth asks of a request.
fn large(len: u64, bytes_per_second: u64) -> u64 {
    if len > SMALL_BYTES { share(len, bytes_per_second) } else { 0 }
}
