//! Runs a scenario: lifetime after lifetime, with everything checked in between.

mod session;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_control::running::remote::watch as watch_remotes;
use wattle_control::spares::keep;
use wattle_engine::geometry::LevelKind;
use wattle_engine::metadata::Metadata;
use wattle_engine::planted;
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArraySpec, BadRanges, MemberState, VolumeError};
use wattle_rt::{Core, DriveConfig, Rng, RunOutcome, SimWorld, WorldConfig};

use crate::client::{Habits, SharedHistory, Stats, Truth};
use crate::desk::Desk;
use crate::lock::lock;
use crate::metadata::{ArrayStart, AssemblyFound, Keys, Lenient, StartRefusal};
use crate::model::{SectorView, VolumeHistory};
use crate::mutant::{Mutant, Mutated};
use crate::scenario::{End, Lifetime, Scenario};
use crate::scrub;
use crate::site::{Hardware, SimSite, SitePlan};
use crate::watch::{self, Watch, Watched};
use crate::wire::Wire;
use session::Session;

/// After so long a member across a network is given up: shorter than what keeps some of them away.
const REMOTE_TIMEOUT: Duration = Duration::from_millis(40);

/// How a scenario is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// A planted bug.
    pub mutant: Option<Mutant>,
    /// Whether the engine's promises are watched as they are made; without it only their
    /// consequences are seen.
    pub watch: bool,
    /// Whether the report tells what happened.
    pub verbose: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { mutant: None, watch: true, verbose: false }
    }
}

impl RunOptions {
    /// Takes the mend out that these name, until the answer is dropped.
    pub(crate) fn plant(&self) -> planted::Planted {
        planted::plant(self.mutant.and_then(Mutant::bug).as_slice())
    }
}

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct ScenarioReport {
    /// What must not happen and did.
    pub wrong: Option<String>,
    /// Counts.
    pub stats: Stats,
    /// Equal scenarios have equal hashes.
    pub trace: u64,
    /// What happened, in order.
    pub log: Vec<String>,
}

/// How a lifetime ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Stopped, and recorded clean if parity and copies agree.
    Stopped,
    /// Killed, or stopped with an error that promises nothing less than a kill does.
    Dropped,
    /// Stopped as what it was: broken by a flush or a record that redundancy could not absorb.
    Broken,
    PowerCut,
}

/// Runs a scenario.
#[must_use]
pub fn run(scenario: &Scenario, options: RunOptions) -> ScenarioReport {
    play(scenario, Run::new(scenario, options))
}

/// Runs a scenario in which `choose` decides what each power cut leaves: it answers a number below
/// the one that it is given.
#[must_use]
pub fn run_choosing(
    scenario: &Scenario,
    options: RunOptions,
    choose: impl FnMut(usize) -> usize + 'static,
) -> ScenarioReport {
    let mut run = Run::new(scenario, options);
    run.site.world.choose_power_cuts(choose);
    play(scenario, run)
}

fn play(scenario: &Scenario, mut run: Run<'_>) -> ScenarioReport {
    let _planted = run.options.plant();
    for life in &scenario.lifetimes {
        if !run.live(life) {
            break;
        }
    }
    let world = &run.site.world;
    let (operations, trace) = (world.ops_submitted(), world.trace_hash());
    let truth = &mut *lock(&run.truth);
    truth.stats.operations = operations;
    ScenarioReport {
        wrong: truth.wrong.take(),
        stats: truth.stats,
        trace,
        log: truth.log.take().unwrap_or_default(),
    }
}

/// Builds the drives of a scenario, with the metadata of a new array on them.
#[must_use]
pub fn build(scenario: &Scenario) -> SimSite {
    let mut world = SimWorld::new(WorldConfig {
        seed: scenario.seed,
        cores: scenario.cores,
        time_limit: Duration::from_secs(600),
        poll_limit: 3_000_000,
        torn_unreadable_ppm: scenario.torn_unreadable_ppm,
        ..WorldConfig::default()
    });
    let member_sectors = scenario.member_sectors();
    let unit = u64::from(scenario.drive.sector_bytes) / 512;
    // Spares are as large as the members of arrays that can use them.
    let spares = std::iter::repeat_n(&member_sectors[0], scenario.spares);
    let drive_sectors: Vec<u64> = member_sectors
        .iter()
        .chain(spares)
        .map(|&sectors| scenario.metadata.drive_sectors(sectors).next_multiple_of(unit))
        .collect();
    let drives: Vec<_> = (0..)
        .zip(&drive_sectors)
        .map(|(slot, sectors)| {
            let (size_bytes, name) = (sectors * 512, format!("drive{slot}"));
            world.add_drive(DriveConfig { size_bytes, name, ..scenario.drive.clone() })
        })
        .collect();
    let controls: Vec<_> = drives.iter().map(|drive| world.drive(drive)).collect();
    controls.iter().for_each(|control| control.no_write_zeroes(scenario.no_write_zeroes));
    let plan = SitePlan {
        controls,
        drive_sectors,
        params: scenario.params.clone(),
        geometry: scenario.geometry(),
        data_offset: scenario.metadata.data_offset(),
        sector_bytes: scenario.drive.sector_bytes,
        regions: scenario.regions(),
        log: scenario.log,
        bad_entries_max: scenario.bad_entries_max,
        bad: Arc::new(Mutex::new(vec![BadRanges::NONE; member_sectors.len()])),
        seating: Arc::new(Mutex::new((0..member_sectors.len()).collect())),
    };
    scenario.metadata.create(&plan, &member_sectors);
    let hardware = Hardware { drives, sector_bytes: scenario.drive.sector_bytes };
    SimSite { world, hardware, plan }
}

struct Run<'a> {
    scenario: &'a Scenario,
    options: RunOptions,
    site: SimSite,
    truth: SharedHistory,
    rng: Rng,
    /// The last lifetime ended in good order, and parity and copies agreed before it.
    surely_clean: bool,
    /// What a power cut would leave is what a reader sees.
    settled: bool,
    /// Drives that the last record counts out, or does not know.
    out: MemberSet,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, options: RunOptions) -> Run<'a> {
        let site = build(scenario);
        let spares = site.plan.geometry.raid_disks()..site.plan.controls.len();
        let truth = Truth {
            model: VolumeHistory::new(site.plan.geometry.array_sectors().0),
            view: SectorView::default(),
            kind: site.plan.geometry.kind(),
            synced: true,
            ever_unsynced: false,
            degraded: false,
            faults: false,
            beyond: scenario.beyond,
            data_offset_units: site.plan.data_offset * 512 / u64::from(site.plan.sector_bytes),
            wrong: None,
            stats: Stats::default(),
            log: options.verbose.then(Vec::new),
        };
        if options.mutant == Some(Mutant::LyingFlush) {
            site.plan.controls.iter().for_each(|control| control.lying_flush(true));
        }
        Run {
            scenario,
            options,
            site,
            truth: Arc::new(Mutex::new(truth)),
            rng: Rng::new(scenario.seed ^ 0x0c1e_4757),
            surely_clean: true,
            settled: true,
            out: spares.map(|drive| MemberIx(drive as u16)).collect(),
        }
    }

    fn accuse(&self, what: impl Into<String>) {
        lock(&self.truth).accuse(what);
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        lock(&self.truth).tell(what);
    }

    /// One lifetime; whether there can be another.
    fn live(&mut self, life: &Lifetime) -> bool {
        let Some(present) = self.plug_in(life) else {
            let truth = &mut *lock(&self.truth);
            truth.stats.not_enough += 1;
            if !(self.scenario.beyond && truth.faults) {
                truth.accuse("no metadata is left on any member");
            }
            return false;
        };
        let Some(start) = self.assemble(life, present) else { return false };
        self.check_start(&start);
        if lock(&self.truth).wrong.is_some() {
            return false;
        }
        let (synced, unclean) = (start.synced(), start.unclean);
        let filling = start.seats.iter().any(|seat| matches!(seat.state, MemberState::Rebuilding { .. }));
        let filling = filling || !synced || self.scenario.rebuilds();
        let watch = Arc::new(Mutex::new(Watch::new(
            self.scenario.metadata,
            &self.site.plan,
            self.out,
            self.scenario.repairs()
                || filling
                || start.replays
                || start.refills
                || (life.requests == 0 && self.scenario.silent > 0),
            life.requests == 0,
            self.scenario.drive.write_latency.start,
        )));
        let ended = self.run_world(life, start, &watch);
        let watch = &mut *lock(&watch);
        watch.look_at_writes();
        self.out = watch.out;
        let synced = if watch.commits > 0 { watch.synced } else { synced && !unclean };
        let truth = &mut *lock(&self.truth);
        truth.stats.commits += watch.commits;
        if let Some(broken) = watch.broken.take().filter(|_| self.options.watch) {
            truth.accuse(broken);
        }
        truth.tell(|| format!("the lifetime ended: {ended:?}"));
        match ended {
            Some(Ended::Stopped) => {
                let everywhere = !truth.degraded;
                truth.model.stopped(everywhere);
            }
            Some(Ended::PowerCut) => truth.model.power_cut(),
            Some(Ended::Dropped) => truth.model.killed(),
            Some(Ended::Broken) => truth.model.broke(),
            None => {}
        }
        truth.stats.cuts += u64::from(ended == Some(Ended::PowerCut));
        truth.stats.kills += u64::from(matches!(ended, Some(Ended::Dropped | Ended::Broken)));
        if ended == Some(Ended::PowerCut) && self.scenario.torn_unreadable_ppm > 0 {
            truth.fault();
        }
        self.surely_clean = ended == Some(Ended::Stopped) && synced;
        self.settled = matches!(ended, Some(Ended::Stopped | Ended::PowerCut));
        truth.wrong.is_none() && ended.is_some()
    }

    /// Brings drives back, but for those that stay away. `None` if no metadata that counts is left:
    /// beyond redundancy.
    fn plug_in(&mut self, life: &Lifetime) -> Option<MemberSet> {
        let plan = &self.site.plan;
        for control in &plan.controls {
            control.come_back();
            control.fail_next_reads(0);
            control.fail_next_writes(0);
            control.fail_next_flushes(0);
            control.slow(1);
        }
        let all: MemberSet = (0..plan.controls.len() as u16).map(MemberIx).collect();
        let present = all.without(&life.withheld);
        // Where every member that knows how things stand is away, the rest cannot know that it is
        // out of date. That is beyond every promise of an array without a witness.
        let entries = all
            .without(&self.out)
            .iter()
            .filter_map(|drive| Some((drive, self.scenario.metadata.entry(plan, drive.index())?)));
        let entries: Vec<_> = entries.collect();
        let newest = entries.iter().map(|(_, entry)| entry.events).max()?;
        let known = entries.iter().any(|(slot, entry)| present.contains(*slot) && entry.events == newest);
        if !known || life.withheld.is_empty() {
            return Some(all);
        }
        life.withheld.iter().for_each(|slot| plan.controls[slot.index()].gone_now());
        lock(&self.truth).fault();
        Some(present)
    }

    fn assemble(&mut self, life: &Lifetime, present: MemberSet) -> Option<ArrayStart> {
        let lenient = self.options.mutant.map_or_else(Lenient::default, Mutant::lenient);
        let mut found = self.scenario.metadata.assemble(&self.site.plan, present, lenient);
        if let AssemblyFound::Usable(start) = &found
            && life.resynced
            && !self.scenario.has_bitmap()
            && !self.scenario.log
            && !start.synced()
            && self.resync(start, present)
        {
            found = self.scenario.metadata.assemble(&self.site.plan, present, lenient);
        }
        let refusal = match found {
            AssemblyFound::Usable(start) => return Some(*start),
            AssemblyFound::Refused(refusal) => refusal,
        };
        self.tell(|| format!("refused: {refusal:?}"));
        let truth = &mut *lock(&self.truth);
        let beyond = self.scenario.beyond && truth.faults;
        match refusal {
            StartRefusal::DirtyDegraded if !self.surely_clean => truth.stats.write_hole_refusals += 1,
            _ if beyond => truth.stats.not_enough += 1,
            refusal => truth
                .accuse(format!("the array is refused, and what happened does not explain it: {refusal:?}")),
        }
        None
    }

    /// Does what the kernel would do with an array that was not stopped cleanly; whether it could.
    fn resync(&self, start: &ArrayStart, present: MemberSet) -> bool {
        let plan = &self.site.plan;
        self.seat(start);
        let readable = |slot| !plan.unreadable(slot, 0, plan.geometry.member_sectors(slot).0);
        let whole = start.in_sync().len() == plan.geometry.raid_disks()
            && start.drives().without(&present).is_empty()
            && start.drives().len() == plan.geometry.raid_disks()
            && plan.slots().all(readable);
        // Members that a crash left a generation apart say different things.
        let entry = |drive: MemberIx| Some(self.scenario.metadata.entry(plan, drive.index())?.events);
        let mut generations = start.drives().iter().map(entry);
        let first = generations.next();
        let whole = whole && generations.all(|generation| Some(generation) == first);
        if !whole || plan.controls.iter().any(|control| control.unflushed_sectors() > 0) {
            return false;
        }
        scrub::resync(plan);
        self.scenario.metadata.set_clean(plan, start.drives());
        let truth = &mut *lock(&self.truth);
        truth.model.resynced(truth.view);
        true
    }

    /// From outside, the drives that are in the slots now are looked at.
    fn seat(&self, start: &ArrayStart) {
        let plan = &self.site.plan;
        *lock(&plan.bad) = start.seats[..start.seats.len() / 2].iter().map(|seat| seat.bad.clone()).collect();
        for slot in plan.slots() {
            if let Some(drive) = start.seats[slot.index()].drive {
                plan.seat(slot, drive);
            }
        }
    }

    fn check_start(&mut self, start: &ArrayStart) {
        let (plan, in_sync) = (&self.site.plan, start.in_sync());
        self.seat(start);
        let truth = &mut *lock(&self.truth);
        let synced = start.synced();
        let degraded = in_sync.len() < plan.geometry.raid_disks();
        truth.tell(|| format!("assembled: {:?}, synced {synced}, replays {}", start.seats, start.replays));
        truth.synced = synced;
        // A log says nothing of sectors that cannot be read any more.
        truth.ever_unsynced |= !synced || (start.replays && self.scenario.has_latent());
        truth.degraded = degraded;
        // What replaces a member is a copy of it, also where there is parity.
        let replaced = start.seats[start.seats.len() / 2..].iter().any(|seat| seat.drive.is_some());
        truth.view.copies_may_differ = (replaced && !synced)
            || (truth.kind == LevelKind::Mirrored && (!synced || degraded && !self.surely_clean));
        truth.view.copy_lost |= degraded;
        if start.replays && degraded {
            truth.model.lose_torn();
        }
        truth.stats.lifetimes += 1;
        truth.stats.degraded += u64::from(degraded);
        truth.stats.clean_degraded += u64::from(degraded && synced && !self.surely_clean);
        truth.stats.unsynced += u64::from(!synced);
        // A member that was to join when the power went may be found joining, with nothing of its
        // own to say.
        let current = start.seats.iter().filter(|seat| seat.state == MemberState::InSync);
        let current: MemberSet = current.filter_map(|seat| Some(MemberIx(seat.drive? as u16))).collect();
        let zombies = current.intersection(&self.out);
        // What is found joining was recorded so: that record ended after the program did. The next
        // one may be cut short once it says that it is whole.
        self.out = self.out.without(&start.drives());
        if !zombies.is_empty() {
            truth.accuse(format!("members {zombies:?} were recorded as failed and are assembled as current"));
        }
        if self.surely_clean && !synced {
            truth.accuse("the array was stopped cleanly and is found dirty");
        }
        let missing: MemberSet = plan.slots().filter(|slot| !in_sync.contains(*slot)).collect();
        let lacks_data = truth.kind == LevelKind::Parity && missing.iter().any(|slot| plan.holds_data(slot));
        if lacks_data && !synced && self.options.mutant.is_none() {
            truth.accuse("a dirty array that lacks data was started");
        }
        // What logs still have to say is said when the array is started.
        if synced && !start.replays {
            let mut views = vec![false];
            if self.settled {
                views.push(true);
            }
            for durable in views {
                if let Err(what) = scrub::check(plan, in_sync, durable) {
                    truth.accuse(format!("the array says that it is clean (durable: {durable}), but {what}"));
                }
            }
        }
    }

    /// Runs a lifetime in the world; `None` if it did not end as it has to.
    fn run_world(&mut self, life: &Lifetime, start: ArrayStart, watch: &watch::SharedWatch) -> Option<Ended> {
        let world = &mut self.site.world;
        match life.end {
            End::CutAfterOps(operations) => world.power_cut_after_ops(operations),
            End::CutAfter(after) => world.power_cut_at(world.now() + after),
            End::Stop | End::Kill(_) => {}
        }
        let hasty = self.options.mutant == Some(Mutant::HastyReopen);
        let remote = self.scenario.remote;
        let wires: BTreeMap<_, _> = remote
            .iter()
            .map(|slot| {
                let control = self.site.plan.controls[slot.index()].clone();
                (slot.0, Wire::new(slot, control, watch.clone(), hasty, self.rng.fork()))
            })
            .collect();
        let ways = wires.clone();
        let session = Session {
            life: life.clone(),
            habits: Habits {
                requests: life.requests,
                request_max: self.scenario.request_max,
                reach: self.scenario.reach,
                mix: self.scenario.mix,
                unit: u64::from(self.scenario.drive.sector_bytes) / 512 * 8,
                clean_delay: self.scenario.clean_delay,
                drops_forced: self.options.mutant == Some(Mutant::DropForced),
            },
            clients: self.scenario.clients,
            readers: self.scenario.readers,
            desk: Desk {
                plan: self.site.plan.clone(),
                drives: self.site.hardware.drives.clone(),
                metadata: self.scenario.metadata,
                truth: self.truth.clone(),
                watch: watch.clone(),
                wires,
                ordered: Arc::default(),
                unknown: Arc::default(),
                forgets_orders: self.options.mutant == Some(Mutant::ForgottenOrder),
            },
            finish: self.scenario.must_finish(),
            silent: self.scenario.silent,
            gives_up: self.scenario.read_deadline < Duration::from_secs(1),
            truth: self.truth.clone(),
            watch: watch.clone(),
            rng: self.rng.fork(),
        };
        let (mutant, hardware, truth) = (self.options.mutant, self.site.hardware.clone(), self.truth.clone());
        let (plan, tuning) = (self.site.plan.clone(), self.scenario.tuning());
        let watch = watch.clone();
        let replays = start.replays;
        let outcome = self.site.world.run(async move |core: Core| {
            let mut hardware = hardware;
            for (slot, wire) in &ways {
                let drive = &mut hardware.drives[usize::from(*slot)];
                *drive = wire.connect(&core, drive);
            }
            let adapt = |mut spec: ArraySpec, inner: Box<dyn Metadata>, keys: Keys| {
                tuning.apply(&mut spec);
                if replays && spec.synced_below < Sector::MAX {
                    // A log that looks cut short is not taken at its word where no member is
                    // missing: that array is resynced.
                    let mut truth = lock(&truth);
                    (truth.synced, truth.ever_unsynced) = (false, true);
                }
                let core = core.clone();
                if spec.geometry.redundancy() == 0 {
                    return (spec, inner);
                }
                let inner = Rc::new(Watched { inner, keys, watch, truth: truth.clone(), core: core.clone() });
                let mutated: Box<dyn Metadata> = Box::new(Mutated { inner, mutant, core });
                (spec, mutated)
            };
            let running = match start.launch(&core, &hardware, &plan, adapt).await {
                Ok(running) => running,
                Err(problem) => {
                    lock(&truth).not_started(&problem);
                    return Ended::Dropped;
                }
            };
            if let Some(md) = &running.md {
                core.spawn(keep(md.clone()));
                if !ways.is_empty() {
                    md.set_remote_timeout(REMOTE_TIMEOUT);
                    core.spawn(watch_remotes(md.clone()));
                }
            }
            session.run(core, running).await
        });
        self.site.world.cancel_power_cut();
        match outcome {
            RunOutcome::PowerCut => Some(Ended::PowerCut),
            RunOutcome::Done(Ended::PowerCut) => {
                self.site.world.power_cut_now();
                Some(Ended::PowerCut)
            }
            RunOutcome::Done(ended) => Some(ended),
            RunOutcome::Stuck(report) => {
                self.accuse(format!("nothing moves any more:\n{}", report.join("\n")));
                None
            }
            RunOutcome::TimeLimit => {
                self.accuse("requests do not complete within ten minutes");
                None
            }
        }
    }
}

impl Truth {
    /// A decision to start the array was not carried out.
    fn not_started(&mut self, problem: &str) {
        self.tell(|| format!("not started: {problem}"));
        if !self.faults {
            self.accuse(format!("the array is not started, though nothing failed: {problem}"));
        }
    }

    fn judge_stop(&mut self, error: VolumeError) {
        // Parity that is not trusted makes up for no member, so any failure is beyond redundancy
        // there.
        let excused = self.beyond
            || self.kind == LevelKind::Striped
            || (self.kind == LevelKind::Parity && self.faults && self.ever_unsynced);
        if !excused {
            self.accuse(format!("the array could not be stopped in good order: {error}"));
        }
    }
}
