//! Peers: a volume that the NBD server serves to clients that behave, beside a crowd that does not.
//!
//! The crowd asks and never reads an answer, reads a few bytes at a time, says nothing, stops in
//! the middle of a request, or leaves with answers under way ([`crowd`]). All of it is on one
//! runtime, whose cores have as many operations on drives in flight as the seed says. What holds:
//!
//! - A client that behaves gets each answer within [`ANSWER_TIME_MAX`], and the bytes that it
//!   wrote.
//! - Buffers take no more memory than the server's limits say ([`PeersScenario::bytes_max`]).
//! - A client that says nothing is hung up on when its time is over.
//! - A stop takes no longer than what the limits leave to clients.

mod crowd;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec};
use wattle_export::nbd::limits::STREAM_BUFFER_BYTES;
use wattle_export::nbd::{Client, Export, Limits, NbdServer};
use wattle_rt::{
    Buf, Core, CoreIx, Device, DriveConfig, DriveControl, Either, Listener, Rng, RunOutcome, SimEndpoint,
    SimWorld, WorldConfig, buffer_bytes_live, race,
};

use crate::client::Stats;
use crate::lock::lock;
use crate::run::{RunOptions, ScenarioReport};
use crowd::Manner;

/// Sectors of each member.
const MEMBER_SECTORS: u64 = 8192;
/// What a client that behaves has to itself at the beginning of the volume, and uses.
const GUEST_BYTES: u64 = 64 << 10;
/// A client that behaves waits no longer for an answer. Drives take some milliseconds for all that
/// is ahead of it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// What buffers take besides what the limits are about: the engine's, and the crowd's own.
const OTHER_BYTES: u64 = 4 << 20;

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct PeersScenario {
    /// The seed.
    pub seed: u64,
    /// Cores.
    pub cores: usize,
    /// Operations on drives that each core has in flight.
    pub queue_depth: usize,
    /// The level of the array.
    pub level: Level,
    /// What a connection holds that was sent and not received, in each direction.
    pub buffer_bytes: usize,
    /// What the server grants.
    pub limits: Limits,
    /// The clients that do not behave.
    pub crowd: Vec<Manner>,
    /// How many clients behave.
    pub guests: u64,
    /// Requests of each of them.
    pub requests: u64,
    /// How long the crowd has the server to itself.
    pub head_start: Duration,
}

fn one_of<T: Copy>(rng: &mut Rng, options: &[T]) -> T {
    options[rng.below(options.len() as u64) as usize]
}

impl PeersScenario {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64) -> PeersScenario {
        let rng = &mut Rng::new(seed ^ 0x0bee_5000);
        let limits = Limits {
            handshake_time_max: Duration::from_millis(one_of(rng, &[20, 500, 10_000])),
            requests_max: one_of(rng, &[1, 4, 64, 1024]),
            reserve_bytes: one_of(rng, &[64 << 10, 256 << 10, 1 << 20]),
            shared_bytes_max: 0,
            stall_time_max: Duration::from_millis(one_of(rng, &[5, 100, 10_000])),
            drain_time_max: Duration::from_millis(one_of(rng, &[10, 300, 5_000])),
            ..Limits::default()
        };
        // Few worlds ask for more than there is: that much has to be moved.
        let request_max = if rng.below(8) == 0 { 2 << 20 } else { 64 << 10 };
        let crowd = (0..rng.below(33)).map(|_| Manner::draw(rng, request_max)).collect();
        PeersScenario {
            seed,
            cores: 1 + rng.below(3) as usize,
            queue_depth: one_of(rng, &[8, 8, 16, 64]),
            level: one_of(rng, &[Level::Raid1, Level::Raid5]),
            buffer_bytes: one_of(rng, &[4 << 10, 64 << 10, 208 << 10]),
            limits,
            crowd,
            guests: 1 + rng.below(3),
            requests: 4 + rng.below(24),
            head_start: Duration::from_micros(one_of(rng, &[0, 2_000, 50_000])),
        }
    }

    fn geometry(&self) -> Geometry {
        let raid5 = self.level == Level::Raid5;
        let params = Params {
            level: self.level,
            layout: if raid5 { 2 } else { 0 },
            chunk: Sector(if raid5 { 128 } else { 0 }),
            raid_disks: if raid5 { 3 } else { 2 },
            component_size: Sector(MEMBER_SECTORS),
            member_sizes: Vec::new(),
        };
        Geometry::new(&params).expect("these are arrays")
    }

    /// What buffers may take: each connection its stream buffer, its reserve and what a request of
    /// one byte more than that is rounded up to; each core the memory that its connections share;
    /// the clients that behave a stream buffer of their own.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        let connections = self.crowd.len() as u64 + self.guests;
        let stream = STREAM_BUFFER_BYTES as u64;
        connections * (stream + self.limits.reserve_bytes)
            + self.cores as u64 * self.limits.shared_bytes_per_core(self.cores)
            + self.guests * stream
            + OTHER_BYTES
    }
}

/// What the tasks of a world tell.
#[derive(Default)]
struct Court {
    wrong: Option<String>,
    log: Option<Vec<String>>,
    requests: u64,
}

impl Court {
    fn accuse(&mut self, what: impl Into<String>) {
        self.wrong.get_or_insert_with(|| what.into());
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }
}

/// Shared between the tasks of a world.
type Shared = Arc<Mutex<Court>>;

/// Plays the world of a seed.
#[must_use]
pub fn run(peers: &PeersScenario, options: RunOptions) -> ScenarioReport {
    let _planted = options.plant();
    run_with(peers, peers.limits.clone(), options)
}

/// Plays it with a server that grants what `limits` say, whatever is asked of it.
fn run_with(peers: &PeersScenario, limits: Limits, options: RunOptions) -> ScenarioReport {
    let mut world = SimWorld::new(WorldConfig {
        seed: peers.seed,
        cores: peers.cores,
        time_limit: Duration::from_secs(600),
        poll_limit: 3_000_000,
        queue_depth: peers.queue_depth,
        ..WorldConfig::default()
    });
    let config = |slot| DriveConfig {
        size_bytes: MEMBER_SECTORS * 512,
        name: format!("drive{slot}"),
        ..DriveConfig::default()
    };
    let drives: Vec<_> =
        (0..peers.geometry().raid_disks()).map(|slot| world.add_drive(config(slot))).collect();
    let controls = drives.iter().map(|drive| world.drive(drive)).collect();
    let (endpoint, listener) = world.endpoint(peers.buffer_bytes);
    let court = Shared::default();
    lock(&court).log = options.verbose.then(Vec::new);
    let host = Host {
        peers: peers.clone(),
        limits,
        controls,
        endpoint,
        court: court.clone(),
        live_before: buffer_bytes_live(),
        rng: Rng::new(peers.seed ^ 0x0c20_3d00),
    };
    match world.run(async move |core: Core| host.live(&core, drives, listener).await) {
        RunOutcome::Done(()) => {}
        outcome => lock(&court).accuse(format!("it does not end: {outcome:?}")),
    }
    let court = &mut *lock(&court);
    let (operations, trace) = (world.ops_submitted(), world.trace_hash());
    let stats = Stats { requests: court.requests, operations, ..Stats::default() };
    ScenarioReport { wrong: court.wrong.take(), stats, trace, log: court.log.take().unwrap_or_default() }
}

/// What serves, and what looks on.
struct Host {
    peers: PeersScenario,
    limits: Limits,
    controls: Vec<DriveControl>,
    endpoint: SimEndpoint,
    court: Shared,
    live_before: isize,
    rng: Rng,
}

impl Host {
    async fn live(mut self, core: &Core, drives: Vec<Device>, listener: Listener) {
        let members = drives.into_iter().map(|drive| MemberSpec::in_sync(drive, Sector(0))).collect();
        let spec = ArraySpec::new("peers", self.peers.geometry(), members);
        let array = ArrayHandle::start(core, spec, Box::new(NoMetadata)).await;
        let export = Export { volume: array.volume(), description: String::new() };
        let Ok(server) = NbdServer::start(core, listener, vec![export], self.limits.clone()).await else {
            return lock(&self.court).accuse("the server does not start");
        };
        drop(core.spawn(self.watch(core)));
        for (number, manner) in self.peers.crowd.clone().into_iter().enumerate() {
            let (endpoint, court, rng) = (self.endpoint.clone(), self.court.clone(), self.rng.fork());
            let patience = self.limits.handshake_time_max + ANSWER_TIME_MAX;
            let lives = core.call(CoreIx(number % core.cores()), move |core| async move {
                if let Some(wrong) = manner.live(&core, &endpoint, rng, patience).await {
                    lock(&court).accuse(format!("client {number} of the crowd: {wrong}"));
                }
            });
            drop(core.spawn(lives));
        }
        core.sleep(self.peers.head_start).await;
        let mut guests = Vec::new();
        for number in 0..self.peers.guests {
            let guest = Guest {
                number,
                requests: self.peers.requests,
                court: self.court.clone(),
                rng: self.rng.fork(),
                version: 0,
            };
            let endpoint = self.endpoint.clone();
            let lives = core.call(CoreIx(number as usize % core.cores()), move |core| async move {
                guest.live(&core, &endpoint).await;
            });
            guests.push(core.spawn(lives));
        }
        for guest in guests {
            guest.await;
        }
        let time_max = self.limits.drain_time_max + ANSWER_TIME_MAX;
        let began = core.now();
        if let Either::Second(()) = race(server.stop(core), core.sleep(time_max)).await {
            return lock(&self.court).accuse(format!("the server has not stopped after {time_max:?}"));
        }
        lock(&self.court).tell(|| format!("the server stopped within {:?}", core.now() - began));
        if let Err(error) = array.stop(core).await {
            lock(&self.court).accuse(format!("the array does not stop: {error}"));
        }
        if self.controls.iter().any(|control| control.writes_in_flight() > 0) {
            lock(&self.court).accuse("writes are in flight after the stop");
        }
    }

    /// Looks at the memory of buffers, again and again.
    fn watch(&self, core: &Core) -> impl Future<Output = ()> + 'static {
        const PAUSE: Duration = Duration::from_micros(500);
        let (core, court, before) = (core.clone(), self.court.clone(), self.live_before);
        let bytes_max = self.peers.bytes_max();
        async move {
            loop {
                let live = u64::try_from(buffer_bytes_live() - before).unwrap_or(0);
                if live > bytes_max {
                    lock(&court).accuse(format!("buffers take {live} bytes, and at most {bytes_max} may"));
                    return;
                }
                core.sleep(PAUSE).await;
            }
        }
    }
}

/// A client that behaves.
struct Guest {
    number: u64,
    requests: u64,
    court: Shared,
    rng: Rng,
    version: u8,
}

impl Guest {
    async fn live(mut self, core: &Core, endpoint: &SimEndpoint) {
        let Ok(stream) = endpoint.connect() else { return self.accuse("the listener is closed") };
        let Some(client) = self.within(core, "the handshake", Client::over(core, stream, "peers")).await
        else {
            return;
        };
        // What each block of this guest holds.
        let mut blocks = [0_u8; (GUEST_BYTES / 4096) as usize];
        let number = self.number;
        let at = |block: usize| number * GUEST_BYTES + block as u64 * 4096;
        for _ in 0..self.requests {
            let block = self.rng.below(blocks.len() as u64) as usize;
            let done = match self.rng.below(8) {
                0..=2 => {
                    self.version = self.version.wrapping_add(1);
                    blocks[block] = self.version;
                    let data = Buf::copy_of(&[self.version; 4096]);
                    self.within(core, "a write", client.write(at(block), data, 0)).await
                }
                3 => self.within(core, "a flush", client.flush()).await,
                _ => match self.within(core, "a read", client.read(at(block), 4096)).await {
                    Some(data) if data.iter().any(|byte| *byte != blocks[block]) => {
                        return self.accuse("a read brings something else than was written");
                    }
                    data => data.map(drop),
                },
            };
            if done.is_none() {
                return;
            }
            if self.rng.below(4) == 0 {
                core.sleep(Duration::from_micros(self.rng.below(5_000))).await;
            }
        }
    }

    /// What a request comes to, which has a bound.
    async fn within<T, E: std::fmt::Display>(
        &self,
        core: &Core,
        what: &str,
        request: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let began = core.now();
        let answer = race(request, core.sleep(ANSWER_TIME_MAX)).await;
        lock(&self.court).requests += 1;
        lock(&self.court).tell(|| format!("client {}: {what}, {:?}", self.number, core.now() - began));
        match answer {
            Either::First(Ok(value)) => Some(value),
            Either::First(Err(error)) => {
                self.accuse(&format!("{what}: {error}"));
                None
            }
            Either::Second(()) => {
                self.accuse(&format!("{what} has no answer after {ANSWER_TIME_MAX:?}"));
                None
            }
        }
    }

    fn accuse(&self, what: &str) {
        lock(&self.court).accuse(format!("client {}: {what}", self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_export::nbd::limits::REQUEST_BYTES_MAX;

    /// A server that grants each client more than its limits say.
    #[test]
    fn memory_beyond_the_limits_is_seen() {
        let deaf = Manner::Deaf { requests: 60, length: REQUEST_BYTES_MAX / 16 };
        let mut peers = PeersScenario { crowd: vec![deaf; 2], cores: 1, ..PeersScenario::new(3) };
        peers.limits = Limits { requests_max: 1024, connection_bytes_max: 1 << 30, ..peers.limits };
        let generous = Limits { shared_bytes_max: 1 << 30, ..peers.limits.clone() };
        assert_eq!(run_with(&peers, peers.limits.clone(), RunOptions::default()).wrong, None);
        let wrong = run_with(&peers, generous, RunOptions::default()).wrong;
        assert!(wrong.as_ref().is_some_and(|wrong| wrong.starts_with("buffers take")), "{wrong:?}");
    }
}
