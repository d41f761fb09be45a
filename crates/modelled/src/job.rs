//! What a job asks for next: fio's order of requests.

use std::ops::Range;

use wattle_rt::Rng;

use crate::load::{Load, Rw};
use crate::shuffle::{AT_A_TIME, Shuffle};

/// A request, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Read(u64),
    Write(u64),
    Flush,
}

/// The requests of one job, one after the other.
#[derive(Debug)]
pub(crate) struct Job {
    /// Which job, counted from 0.
    pub number: usize,
    pub bs_bytes: u64,
    pub iodepth: usize,
    rw: Rw,
    rwmixread: u64,
    fsync: u64,
    start: u64,
    /// Requests that fit side by side.
    places: u64,
    /// Where it goes without a random map.
    rng: Rng,
    /// The random map, and how far it was used.
    map: Option<MapWalk>,
    /// Reads and writes have a place in sequence each, as in fio.
    next_read: u64,
    next_write: u64,
    writes_since_flush: u64,
}

/// One time through a random map.
#[derive(Debug)]
struct MapWalk {
    map: Shuffle,
    /// How much of it was used.
    used: u64,
    /// The places around there.
    some: [u64; AT_A_TIME],
}

impl MapWalk {
    fn new(places: u64, rng: &mut Rng) -> MapWalk {
        MapWalk { map: Shuffle::new(places, rng), used: 0, some: [0; AT_A_TIME] }
    }

    fn next(&mut self) -> u64 {
        let at = self.used as usize % AT_A_TIME;
        if at == 0 {
            self.map.places(self.used, &mut self.some);
        }
        self.used += 1;
        self.some[at]
    }
}

impl Job {
    pub fn new(load: &Load, number: usize, reach: Range<u64>) -> Job {
        let mut rng = Rng::new(load.seed);
        // Every job has its own stream, whatever the seed.
        let mut rng = (0..=number).fold(rng.fork(), |_, _| rng.fork());
        let places = (reach.end - reach.start) / load.bs_bytes;
        let mapped = load.rw.random() && !load.norandommap;
        Job {
            number,
            bs_bytes: load.bs_bytes,
            iodepth: load.iodepth,
            rw: load.rw,
            rwmixread: u64::from(load.rwmixread),
            fsync: load.fsync,
            start: reach.start,
            places,
            map: mapped.then(|| MapWalk::new(places, &mut rng)),
            rng,
            next_read: 0,
            next_write: 0,
            writes_since_flush: 0,
        }
    }

    pub fn next(&mut self) -> Ask {
        if self.fsync > 0 && self.writes_since_flush >= self.fsync {
            self.writes_since_flush = 0;
            return Ask::Flush;
        }
        let read = match self.rw {
            Rw::Read | Rw::RandRead => true,
            Rw::Write | Rw::RandWrite => false,
            Rw::ReadWrite | Rw::RandRw => self.rng.below(100) < self.rwmixread,
        };
        let at = self.start + self.place(read) * self.bs_bytes;
        self.writes_since_flush += u64::from(!read);
        if read { Ask::Read(at) } else { Ask::Write(at) }
    }

    fn place(&mut self, read: bool) -> u64 {
        if !self.rw.random() {
            let next = if read { &mut self.next_read } else { &mut self.next_write };
            let place = *next;
            *next = (place + 1) % self.places;
            return place;
        }
        let Some(walk) = &mut self.map else { return self.rng.below(self.places) };
        if walk.used == self.places {
            *walk = MapWalk::new(self.places, &mut self.rng);
        }
        walk.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(load: &Load, number: usize) -> Job {
        Job::new(load, number, load.reach(number, 1 << 20).unwrap())
    }

    #[test]
    fn a_random_map_comes_to_each_block_once_in_a_pass() {
        let load = Load { size_bytes: Some(37 * 4096), offset_bytes: 8192, ..Load::new() };
        let mut job = job(&load, 0);
        for _ in 0..3 {
            let mut places: Vec<u64> = (0..37)
                .map(|_| match job.next() {
                    Ask::Write(at) => at,
                    other => panic!("{other:?}"),
                })
                .collect();
            places.sort_unstable();
            assert!(places.into_iter().eq((0..37).map(|place| 8192 + place * 4096)));
        }
    }

    #[test]
    fn without_a_map_blocks_come_as_chance_has_it() {
        let load = Load { size_bytes: Some(64 << 10), norandommap: true, ..Load::new() };
        let mut job = job(&load, 0);
        let mut places: Vec<_> = (0..16).map(|_| job.next()).collect();
        places.sort_unstable_by_key(|ask| if let Ask::Write(at) = ask { *at } else { 0 });
        places.dedup();
        assert!(places.len() < 16, "sixteen draws of sixteen hardly ever differ");
    }

    #[test]
    fn jobs_in_sequence_start_each_at_their_own_offset_and_wrap() {
        let load = Load {
            rw: Rw::Write,
            bs_bytes: 256 << 10,
            offset_increment_bytes: 512 << 10,
            numjobs: 2,
            ..Load::new()
        };
        let mut first = job(&load, 0);
        let mut second = job(&load, 1);
        let places = |job: &mut Job| (0..5).map(|_| job.next()).collect::<Vec<_>>();
        let writes = |at: &[u64]| at.iter().map(|at| Ask::Write(at << 10)).collect::<Vec<_>>();
        assert_eq!(places(&mut first), writes(&[0, 256, 512, 768, 0]));
        assert_eq!(places(&mut second), writes(&[512, 768, 512, 768, 512]));
    }

    #[test]
    fn reads_and_writes_in_sequence_have_a_place_each() {
        let load = Load { rw: Rw::ReadWrite, rwmixread: 70, ..Load::new() };
        let mut job = job(&load, 0);
        let asks: Vec<_> = (0..100).map(|_| job.next()).collect();
        let reads: Vec<_> = asks.iter().filter(|ask| matches!(ask, Ask::Read(_))).collect();
        assert!((50..90).contains(&reads.len()));
        assert!(reads.iter().zip(0..).all(|(ask, place)| **ask == Ask::Read(place * 4096)));
    }

    #[test]
    fn a_flush_comes_after_so_many_writes() {
        let load = Load { fsync: 2, ..Load::new() };
        let mut job = job(&load, 0);
        let flushes: Vec<_> = (0..9).map(|_| job.next() == Ask::Flush).collect();
        assert_eq!(flushes, [false, false, true, false, false, true, false, false, true]);
    }

    #[test]
    fn two_jobs_do_not_go_the_same_way() {
        let load = Load { numjobs: 2, ..Load::new() };
        let (mut one, mut other) = (job(&load, 0), job(&load, 1));
        assert!((0..100).filter(|_| one.next() == other.next()).count() < 20);
    }
}
