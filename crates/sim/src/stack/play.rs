//! Runs a stack: starts it, lets clients use it while its habit has its way, and looks at all of
//! it in the end.

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata};
use wattle_engine::units::{MemberSet, Sector};
use wattle_engine::volume::{Leg, MapSegment, SegmentTarget};
use wattle_engine::{ArrayHandle, ArraySpec, MapSpec, MappedHandle, MemberSpec, Volume, VolumeError};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveControl, Durability, Rng, RunOutcome, SimWorld, Unmap,
    WorldConfig,
};

use super::ledger::{BLOCK, SharedLedger, contents, is_zeros};
use super::{EXTENT_BYTES, Extent, Habit, PART_SECTORS, Run, StackScenario, moves, orders};
use crate::lock::lock;

/// Records that take their time, and are kept nowhere: stacks that end by a power cut have lost no
/// member.
struct Slow {
    core: Core,
    takes: Duration,
}

impl Metadata for Slow {
    fn commit<'a>(&'a self, _: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            self.core.sleep(self.takes).await;
            Ok(())
        })
    }

    fn mark<'a>(&'a self, _: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unmark<'a>(&'a self, _: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A stack that runs.
#[derive(Clone)]
pub(super) struct Running {
    pub stack: Rc<StackScenario>,
    pub bases: Vec<ArrayHandle>,
    pub volumes: Vec<MappedHandle>,
    /// The maps as they are recorded: by these the volumes are found again after a power cut.
    pub maps: Arc<Mutex<Vec<Vec<Run>>>>,
    /// By number.
    pub drives: Vec<Device>,
    pub controls: Vec<DriveControl>,
    pub ledger: SharedLedger,
    /// Write-backs were lost: what has no redundancy may fail.
    pub lossy: Arc<Mutex<bool>>,
    /// What clients are to know of the habit.
    pub stage: Arc<Mutex<Stage>>,
}

/// What clients know of what happens.
#[derive(Default)]
pub(super) struct Stage {
    /// It is over: they may go.
    over: bool,
    /// A volume and blocks of it where something happens just now: clients crowd there.
    pub hot: Option<(usize, Range<u64>)>,
}

/// What volumes are mapped to: a map names what its runs lie on, and nothing else.
pub(super) fn map(bases: &[ArrayHandle], runs: &[Run]) -> MapSpec {
    let mut below: Vec<usize> = runs.iter().flatten().map(|extent| extent.base).collect();
    below.sort_unstable();
    below.dedup();
    let leg = |extent: &Extent| Leg {
        below: below.iter().position(|base| *base == extent.base).expect("it was collected"),
        offset_bytes: extent.number as u64 * EXTENT_BYTES,
    };
    let segment = |run: &Run| match run.as_slice() {
        [extent] => MapSegment { len_bytes: EXTENT_BYTES, target: SegmentTarget::Linear(leg(extent)) },
        run => MapSegment {
            len_bytes: run.len() as u64 * EXTENT_BYTES,
            target: SegmentTarget::Striped {
                stripe_bytes: BLOCK as u64,
                legs: run.iter().map(leg).collect(),
            },
        },
    };
    MapSpec {
        segments: runs.iter().map(segment).collect(),
        below: below.iter().map(|base| bases[*base].volume()).collect(),
        read_only: false,
    }
}

pub(super) fn play(stack: &StackScenario, ledger: &SharedLedger) -> SimWorld {
    let mut world = SimWorld::new(WorldConfig {
        seed: stack.seed,
        cores: stack.cores,
        time_limit: Duration::from_secs(600),
        poll_limit: 3_000_000,
        ..WorldConfig::default()
    });
    let drives: Vec<_> = (0..stack.all_drives).map(|number| world.add_drive(stack.drive(number))).collect();
    let controls: Vec<_> = drives.iter().map(|drive| world.drive(drive)).collect();
    let maps = Arc::new(Mutex::new(stack.volumes.clone()));
    let lossy = Arc::default();
    let mut rng = Rng::new(stack.seed ^ 0x0091_a7e5);
    for life in 0..2 {
        let start = Start {
            stack: Rc::new(stack.clone()),
            drives: drives.clone(),
            controls: controls.clone(),
            ledger: ledger.clone(),
            maps: maps.clone(),
            lossy: Arc::clone(&lossy),
            again: life > 0,
        };
        if let (0, Some(after)) = (life, stack.cut) {
            world.power_cut_at(world.now() + after);
        }
        let rng = rng.fork();
        let outcome = world.run(async move |core: Core| match start.start(&core).await {
            Ok(running) => running.live(&core, rng, life > 0).await,
            Err(what) => lock(&start.ledger).accuse(what),
        });
        world.cancel_power_cut();
        match outcome {
            RunOutcome::Done(()) => return world,
            RunOutcome::PowerCut => lock(ledger).restart(),
            RunOutcome::Stuck(report) => {
                lock(ledger).accuse(format!("nothing moves any more:\n{}", report.join("\n")));
                return world;
            }
            RunOutcome::TimeLimit => {
                lock(ledger).accuse("requests do not complete within ten minutes");
                return world;
            }
        }
        lock(ledger).tell(|| "the power went".to_owned());
    }
    world
}

/// What it takes to start a stack.
struct Start {
    stack: Rc<StackScenario>,
    drives: Vec<Device>,
    controls: Vec<DriveControl>,
    ledger: SharedLedger,
    maps: Arc<Mutex<Vec<Vec<Run>>>>,
    lossy: Arc<Mutex<bool>>,
    /// After a power cut: copies and parity may differ.
    again: bool,
}

impl Start {
    async fn start(&self, core: &Core) -> Result<Running, String> {
        let mut bases = Vec::new();
        for (number, base) in self.stack.bases.iter().enumerate() {
            let bytes = PART_SECTORS * 512;
            let part = |drive: &usize| {
                let name = format!("drive{drive}p{}", base.part);
                let part = self.drives[*drive].part(name, base.part as u64 * bytes, bytes);
                part.map(|part| MemberSpec::in_sync(part, Sector(0))).map_err(|error| error.to_string())
            };
            let members = base.drives.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            let mut spec = ArraySpec::new(format!("base{number}"), base.geometry(), members);
            if self.again && base.redundant() {
                spec.synced_below = Sector(0);
            }
            spec.tuning.clean_delay = self.stack.clean_delay;
            // Requests are few, and what is kept of them is to be used.
            (spec.tuning.cache.page_bytes, spec.tuning.cache.at_once) = (512, true);
            let sync = &mut spec.tuning.sync;
            (sync.step_bytes, sync.step_beside_clients_bytes, sync.window_bytes) =
                (8 << 10, 4 << 10, 32 << 10);
            let metadata = Slow { core: core.clone(), takes: self.stack.record };
            bases.push(ArrayHandle::start(core, spec, Box::new(metadata)).await);
        }
        let maps = lock(&self.maps).clone();
        let mut volumes = Vec::new();
        for (number, runs) in maps.iter().enumerate() {
            let volume = MappedHandle::start(core, format!("lv{number}"), map(&bases, runs)).await;
            volumes.push(volume.map_err(|error| error.to_string())?);
        }
        Ok(Running {
            stack: self.stack.clone(),
            bases,
            volumes,
            maps: self.maps.clone(),
            drives: self.drives.clone(),
            controls: self.controls.clone(),
            ledger: self.ledger.clone(),
            lossy: self.lossy.clone(),
            stage: Arc::default(),
        })
    }
}

impl Running {
    async fn live(self, core: &Core, mut rng: Rng, only_look: bool) {
        if only_look {
            return self.look_at_all(core).await;
        }
        self.populate(core).await;
        let mut tasks = Vec::new();
        for number in 0..self.stack.clients {
            let client = Client::new(&self, number, rng.fork());
            let on = CoreIx(number % core.cores());
            tasks.push(core.call(on, move |core| client.run(core)));
        }
        let habit = rng.fork();
        match self.stack.habit {
            Habit::Losses => self.lose(core, habit).await,
            Habit::Moves => moves::run(&self, core, habit).await,
            Habit::Orders => orders::run(&self, core, habit).await,
        }
        lock(&self.stage).over = true;
        for task in tasks {
            task.await;
        }
        self.look_at_all(core).await;
        if self.stack.habit == Habit::Orders {
            orders::wait_until_whole(&self, core).await;
            self.look_at_all(core).await;
            orders::check(&self, core).await;
        }
        for volume in &self.volumes {
            volume.stop(core).await;
        }
        for (number, base) in self.bases.iter().enumerate() {
            let stopped = base.stop(core).await;
            if stopped.is_err() && self.stack.bases[number].redundant() {
                lock(&self.ledger)
                    .accuse(format!("base{number} could not be stopped in good order: {stopped:?}"));
            }
        }
    }

    /// Gives every block a version, durably.
    async fn populate(&self, core: &Core) {
        for number in 0..self.volumes.len() {
            let mut client = Client::new(self, 0, Rng::new(0));
            let Some(volume) = client.open(core, number) else { return };
            for block in 0..self.stack.blocks(number) {
                client.write(&volume, number, block, false).await;
            }
            client.flush(&volume, number).await;
        }
    }

    async fn look_at_all(&self, core: &Core) {
        let client = Client::new(self, 0, Rng::new(0));
        for number in 0..self.volumes.len() {
            let Some(volume) = client.open(core, number) else { return };
            for block in 0..self.stack.blocks(number) {
                client.read(&volume, number, block).await;
            }
        }
    }

    /// One drive loses write-backs, in any of its parts.
    async fn lose(&self, core: &Core, mut rng: Rng) {
        for _ in 0..1 + rng.below(3) {
            core.sleep(Duration::from_micros(500 + rng.below(6_000))).await;
            let part = rng.below(self.stack.bases.len() as u64);
            let ledger = &mut *lock(&self.ledger);
            ledger.tell(|| format!("drive{} loses write-backs in part {part}", self.stack.victim));
            *lock(&self.lossy) = true;
            ledger.uncover();
            let bytes = PART_SECTORS * 512;
            self.controls[self.stack.victim].lose_write_back(part * bytes, bytes);
        }
    }

    /// Whether faults explain that a request of a volume fails.
    fn excused(&self, volume: usize) -> bool {
        let fragile = |extent: &Extent| !self.stack.bases[extent.base].redundant();
        *lock(&self.lossy) && lock(&self.maps)[volume].iter().flatten().any(fragile)
    }
}

/// A client: it writes blocks of its own, and reads all.
struct Client {
    volumes: Vec<MappedHandle>,
    blocks: Vec<u64>,
    excused: Vec<bool>,
    lossy: Arc<Mutex<bool>>,
    stage: Arc<Mutex<Stage>>,
    ledger: SharedLedger,
    number: u64,
    /// The first clients write, the others only read and flush.
    writers: u64,
    requests: usize,
    rng: Rng,
}

impl Client {
    fn new(running: &Running, number: usize, rng: Rng) -> Client {
        let volumes = running.volumes.len();
        let fragile = |volume: usize| {
            let before = std::mem::replace(&mut *lock(&running.lossy), true);
            let excused = running.excused(volume);
            *lock(&running.lossy) = before;
            excused
        };
        Client {
            volumes: running.volumes.clone(),
            blocks: (0..volumes).map(|volume| running.stack.blocks(volume)).collect(),
            excused: (0..volumes).map(fragile).collect(),
            lossy: running.lossy.clone(),
            stage: running.stage.clone(),
            ledger: running.ledger.clone(),
            number: number as u64,
            writers: running.stack.writers() as u64,
            requests: running.stack.requests,
            rng,
        }
    }

    fn open(&self, core: &Core, volume: usize) -> Option<Volume> {
        let opened = self.volumes[volume].volume().open(core);
        if let Err(error) = &opened {
            lock(&self.ledger).accuse(format!("lv{volume} cannot be opened: {error}"));
        }
        opened.ok()
    }

    async fn run(mut self, core: Core) {
        for request in 0..16 * self.requests {
            let over = lock(&self.stage).over && request >= self.requests;
            if over || lock(&self.ledger).wrong.is_some() {
                return;
            }
            let (number, block) = self.somewhere();
            let Some(volume) = self.open(&core, number) else { return };
            let begun = lock(&self.ledger).begin_request();
            match self.rng.below(8) {
                0..=2 if self.number < self.writers => {
                    let own = block / self.writers * self.writers + self.number;
                    if own < self.blocks[number] {
                        let forced = self.rng.below(4) == 0;
                        self.write(&volume, number, own, forced).await;
                    }
                }
                0..=5 => self.read(&volume, number, block).await,
                6 => self.flush(&volume, number).await,
                _ => core.sleep(Duration::from_micros(self.rng.below(3_000))).await,
            }
            lock(&self.ledger).end_request(begun);
        }
    }

    /// A block of a volume, as often as not one where something happens.
    fn somewhere(&mut self) -> (usize, u64) {
        let hot = lock(&self.stage).hot.clone();
        if let Some((volume, blocks)) = hot
            && self.rng.coin()
        {
            return (volume, blocks.start + self.rng.below(blocks.end - blocks.start));
        }
        let volume = self.rng.below(self.volumes.len() as u64) as usize;
        (volume, self.rng.below(self.blocks[volume]))
    }

    fn judge(&self, volume: usize, what: &str, result: Result<(), VolumeError>) {
        let ledger = &mut *lock(&self.ledger);
        ledger.requests += 1;
        let Err(error) = result else { return };
        ledger.errors += 1;
        if !(self.excused[volume] && *lock(&self.lossy)) {
            ledger.accuse(format!(
                "{what} of lv{volume}: {error} ({error:?}), though faults do not explain it"
            ));
        }
    }

    async fn write(&mut self, volume: &Volume, number: usize, block: u64, forced: bool) {
        let version = lock(&self.ledger).begin_write(number, block);
        lock(&self.ledger)
            .tell(|| format!("lv{number}: write of block {block} v{version} begins, forced {forced}"));
        let durability = if forced { Durability::Fua } else { Durability::Cached };
        let at = block * BLOCK as u64;
        let result = if is_zeros(version) && self.rng.coin() {
            volume.write_zeroes(at, BLOCK as u64, Unmap::No, durability).await
        } else {
            volume.write(at, Buf::copy_of(&contents(number, block, version)), durability).await
        };
        lock(&self.ledger).tell(|| format!("lv{number}: write of block {block} v{version}: {result:?}"));
        if result.is_ok() {
            lock(&self.ledger).written(number, block, version, forced);
        }
        self.judge(number, "a write", result);
    }

    async fn read(&self, volume: &Volume, number: usize, block: u64) {
        let floor = lock(&self.ledger).begin_read(number, block);
        let (result, bytes) = volume.read(block * BLOCK as u64, BufMut::alloc(BLOCK)).await;
        lock(&self.ledger).tell(|| format!("lv{number}: read of block {block}: {result:?}"));
        if result.is_ok() {
            lock(&self.ledger).read(number, block, floor, &bytes);
        }
        self.judge(number, "a read", result);
    }

    async fn flush(&self, volume: &Volume, number: usize) {
        let covered = lock(&self.ledger).begin_flush(number);
        let result = volume.flush().await;
        lock(&self.ledger).tell(|| format!("lv{number}: flush: {result:?}"));
        if result.is_ok() {
            lock(&self.ledger).flushed(number, &covered);
        }
        self.judge(number, "a flush", result);
    }
}
