//! States that wattle leaves behind: killed in the middle of writes, in the middle of a rebuild or
//! a replacement, degraded, after members came back. md judges each, and says how much work was
//! left to do.

use crate::client::Range;
use crate::history::History;
use crate::judge::{Facts, SLICE_SECTORS, Slices};
use crate::pattern::Pattern;
use crate::server::Server;
use crate::wattle;

/// Sectors of a member that a bit of the bitmaps here stands for, or of the array on RAID 10.
const REGION_SECTORS: u64 = 128;
/// What superblocks and bitmaps add to what a resync moves.
const METADATA_SECTORS: u64 = 256;
/// Bytes that a rebuild has done when it is interrupted.
const REBUILT_BYTES: u64 = 2 << 20;

/// An array, and what happens to it.
#[derive(Debug)]
pub struct Left {
    pub id: String,
    level: &'static str,
    members: usize,
    args: Vec<&'static str>,
    event: Event,
}

/// What happens to it; numbers are members.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// `kill -9` in the middle of writes.
    Killed,
    /// ... and this member dies with it.
    KilledWithout(usize),
    /// This one had failed before.
    KilledDegraded(usize),
    /// A new member is filled in the place of this one; stopped on the way.
    Rebuilding(usize),
    /// ... killed on the way, in the middle of writes.
    RebuildingKilled(usize),
    /// The same with this one still there.
    Replacing(usize),
    Replaced(usize),
    /// This one fails; md takes it back.
    Away(usize),
    /// This one fails and comes back: when it is told to, or (RAID 10) at the next start.
    Returned(usize),
    /// ... and then the kill.
    ReturnedKilled(usize),
}

pub fn all() -> Vec<Left> {
    let mut all = Vec::new();
    let mut add = |id: &str, level, members, args: &str, event| {
        let args = args.to_owned().leak().split_whitespace().collect();
        all.push(Left { id: format!("left-{id}"), level, members, args, event });
    };
    let bitmap = "--chunk 64K --bitmap internal --bitmap-chunk 64K";
    let plain = "--chunk 64K --bitmap none";
    let mirror = "--bitmap internal --bitmap-chunk 64K";
    add("r1-killed", "1", 2, "--bitmap none", Event::Killed);
    add("r1-killed-bitmap", "1", 3, mirror, Event::Killed);
    add("r1-killed-degraded", "1", 3, mirror, Event::KilledDegraded(1));
    add("r5-killed", "5", 4, plain, Event::Killed);
    add("r5-killed-bitmap", "5", 4, bitmap, Event::Killed);
    add(
        "r5-killed-bitmap-v10",
        "5",
        3,
        "--metadata 1.0 --chunk 4K --bitmap internal --bitmap-chunk 64K",
        Event::Killed,
    );
    add("r4-killed-bitmap", "4", 4, bitmap, Event::Killed);
    add("r6-killed-bitmap", "6", 5, bitmap, Event::Killed);
    add("r10-killed-bitmap", "10", 4, bitmap, Event::Killed);
    add(
        "r10-f2-killed-bitmap",
        "10",
        3,
        "--layout f2 --chunk 64K --bitmap internal --bitmap-chunk 64K",
        Event::Killed,
    );
    let ppl = "--chunk 64K --consistency ppl";
    add("r5-killed-ppl", "5", 4, ppl, Event::Killed);
    add("r5-killed-ppl-4k", "5", 3, "--chunk 4K --consistency ppl", Event::Killed);
    add("r5-killed-ppl-v10", "5", 3, "--metadata 1.0 --chunk 16K --consistency ppl", Event::Killed);
    add("r5-killed-ppl-without", "5", 4, ppl, Event::KilledWithout(2));
    add("r5-killed-ppl-degraded", "5", 4, ppl, Event::KilledDegraded(1));
    add("r1-rebuilding", "1", 2, mirror, Event::Rebuilding(0));
    add("r5-rebuilding", "5", 4, plain, Event::Rebuilding(2));
    add("r6-rebuilding", "6", 5, bitmap, Event::Rebuilding(1));
    add("r10-rebuilding", "10", 4, plain, Event::Rebuilding(3));
    add("r10-f2-rebuilding", "10", 3, "--layout f2 --chunk 64K --bitmap none", Event::Rebuilding(1));
    add("r10-killed-rebuilding", "10", 4, bitmap, Event::RebuildingKilled(0));
    add("r1-killed-rebuilding", "1", 2, mirror, Event::RebuildingKilled(1));
    add("r1-replacing", "1", 2, mirror, Event::Replacing(1));
    add("r5-replacing", "5", 4, bitmap, Event::Replacing(0));
    add("r6-replacing", "6", 5, plain, Event::Replacing(4));
    add("r10-replacing", "10", 4, plain, Event::Replacing(2));
    add("r5-replaced", "5", 4, bitmap, Event::Replaced(1));
    add("r10-replaced", "10", 4, bitmap, Event::Replaced(0));
    add("r1-away", "1", 2, mirror, Event::Away(0));
    add("r5-away", "5", 4, bitmap, Event::Away(2));
    add("r6-away", "6", 5, bitmap, Event::Away(4));
    add("r10-away", "10", 4, bitmap, Event::Away(1));
    add("r1-returned", "1", 2, mirror, Event::Returned(1));
    add("r5-returned", "5", 4, bitmap, Event::Returned(0));
    add("r6-returned", "6", 5, bitmap, Event::Returned(2));
    add("r10-returned", "10", 4, bitmap, Event::Returned(3));
    add("r5-returned-killed", "5", 4, bitmap, Event::ReturnedKilled(3));
    add("r10-returned-killed", "10", 4, bitmap, Event::ReturnedKilled(0));
    all
}

impl Left {
    /// Members, and one more where something new joins.
    fn slices(&self) -> usize {
        use Event::{Rebuilding, RebuildingKilled, Replaced, Replacing};
        self.members
            + usize::from(matches!(
                self.event,
                Rebuilding(_) | RebuildingKilled(_) | Replacing(_) | Replaced(_)
            ))
    }

    fn has(&self, option: &str) -> bool {
        self.args.contains(&option)
    }

    /// Makes the array and lets it happen, puts it on the guest's disks, and returns the line by
    /// which the kernel judges it.
    pub fn make(&self, slices: &Slices, k: usize) -> String {
        let dir = slices.dir(k);
        let slots = slices.members(k, self.slices());
        for path in &slots {
            let file = std::fs::File::create(path).expect("scratch space");
            file.set_len(SLICE_SECTORS * 512).expect("scratch space");
        }
        let members = &slots[..self.members];
        let mut args = vec!["create", "--level", self.level];
        args.extend(&self.args);
        args.push("data");
        wattle(&args, members);

        let mut server = Server::start(members, &dir, &[]);
        let mut disk = server.connect();
        let sectors = disk.sectors();
        let mut history = History { k, sectors, pattern: Pattern::whole(4000 + k as u64) };
        let blocks = (0..sectors).step_by(2048);
        let fill =
            blocks.map(|start| Range { seed: 4000 + k as u64, start, count: 2048.min(sectors - start) });
        disk.write_all(&fill.collect::<Vec<_>>());
        server.settle(0);
        drop(disk);
        server.stop();

        // From here on only what happens makes the array dirty and sets bits.
        let mut server = Server::start(members, &dir, &[]);
        let path = |member: usize| slots[member].to_str().expect("utf-8");
        let new = slots.last().and_then(|path| path.to_str()).expect("utf-8");
        let extra = match self.event {
            Event::Killed => {
                history.write_and_kill(server);
                "dirty=yes".to_owned()
            }
            Event::KilledWithout(out) => {
                history.write_and_kill(server);
                history.pattern = history.pattern.without_blocks_in_flight(8, sectors);
                format!("dirty=yes missing={out} degraded=1")
            }
            Event::KilledDegraded(out) => {
                server.ask(&["fail", path(out)]);
                history.write_and_kill(server);
                if self.has("ppl") {
                    history.pattern = history.pattern.without_blocks_in_flight(8, sectors);
                }
                format!("dirty=yes stale={out} degraded=1")
            }
            Event::Rebuilding(out) => {
                server.ask(&["fail", path(out)]);
                server.ask(&["set", "sync_speed_max=1024"]);
                server.ask(&["add", new]);
                server.wait_for_sync("recovery", REBUILT_BYTES);
                history.write(&server);
                server.stop();
                format!("dirty=yes stale={out} degraded=0")
            }
            Event::RebuildingKilled(out) => {
                server.ask(&["fail", path(out)]);
                server.ask(&["set", "sync_speed_max=1024"]);
                server.ask(&["add", new]);
                server.wait_for_sync("recovery", REBUILT_BYTES);
                history.write_and_kill(server);
                format!("dirty=yes stale={out} degraded=0")
            }
            Event::Replacing(old) => {
                server.ask(&["set", "sync_speed_max=1024"]);
                server.ask(&["replace", path(old), "--with", new]);
                server.wait_for_sync("recovery", REBUILT_BYTES);
                history.write(&server);
                server.stop();
                "dirty=yes degraded=0".to_owned()
            }
            Event::Replaced(old) => {
                server.ask(&["replace", path(old), "--with", new, "--wait"]);
                history.write(&server);
                server.stop();
                format!("stale={old} degraded=0")
            }
            Event::Away(out) => {
                server.ask(&["fail", path(out)]);
                history.write(&server);
                server.stop();
                format!("stale={out} degraded=1 readd={out}")
            }
            Event::Returned(out) | Event::ReturnedKilled(out) => {
                server.ask(&["fail", path(out)]);
                history.write(&server);
                if self.level == "10" {
                    server.stop();
                    server = Server::start(members, &dir, &[]);
                } else {
                    server.ask(&["remove", path(out)]);
                }
                server.ask(&["add", path(out), "--wait"]);
                server.settle(0);
                if matches!(self.event, Event::ReturnedKilled(_)) {
                    history.write_and_kill(server);
                    "dirty=yes".to_owned()
                } else {
                    history.write(&server);
                    server.stop();
                    String::new()
                }
            }
        };
        slices.put(k, &slots);
        let Self { id, level, .. } = self;
        let (count, pattern) = (slots.len(), &history.pattern);
        format!("{id} level={level} members={count} {extra} pattern={pattern} array_sectors={sectors}")
    }

    /// What the kernel must have found there.
    pub fn check(&self, verdict: &Facts) {
        let id = &self.id;
        assert_eq!(verdict["ok"], "yes", "{id}");
        let bits: Option<u64> = verdict["found_bits"].parse().ok();
        // Sectors read from and written to each slice by the kernel's resync or rebuild.
        let moved: Vec<(u64, u64)> = verdict.get("moved").map_or(vec![], |moved| {
            let pair = |pair: &str| {
                let (read, written) = pair.split_once('/').expect("read and written");
                (read.parse().expect("a number"), written.parse().expect("a number"))
            };
            moved.split(',').map(pair).collect()
        });
        let regions = bits.map(|bits| bits * REGION_SECTORS + METADATA_SECTORS);
        match self.event {
            Event::Killed | Event::ReturnedKilled(_) if self.has("internal") => {
                let regions = regions.expect("a bitmap");
                assert!(bits > Some(0), "{id}: no bit is set");
                assert!(
                    moved.iter().all(|moved| moved.0 <= regions),
                    "{id}: {bits:?} bits, but moved {moved:?}"
                );
            }
            Event::Killed | Event::KilledWithout(_) | Event::KilledDegraded(_) if self.has("ppl") => {
                assert!(moved.iter().all(|moved| moved.0 == 0), "{id}: a log was there, but moved {moved:?}");
            }
            Event::Rebuilding(_) | Event::Replacing(_) => {
                let start =
                    verdict["found_recovery_start"].split(',').next_back().expect("an item per slice");
                let start: u64 = start.parse().unwrap_or_else(|_| panic!("{id}: no checkpoint, but {start}"));
                assert!(start >= REBUILT_BYTES / 512 / 2, "{id}: the checkpoint is {start}");
                let written = moved.last().expect("a new member").1;
                assert!(written <= SLICE_SECTORS - start, "{id}: from {start} on, but wrote {written}");
            }
            Event::Away(out) => {
                let regions = regions.expect("a bitmap");
                assert!(moved[out].1 <= regions, "{id}: {bits:?} bits, but moved {moved:?}");
            }
            _ => {}
        }
    }
}
