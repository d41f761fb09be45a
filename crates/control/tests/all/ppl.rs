//! The write hole is closed: RAID 5 with a partial parity log, written, cut off from power at any
//! point, with members missing before, during or after, and followed at assembly. Every sector that
//! was not being written has its content, however the members fall.
//!
//! The oracle is naive: what each sector may hold follows from what was acknowledged and flushed,
//! and what a reader would get is computed here from the drives' bytes. Virtual time, fixed seeds.
//! Two mutants show that the test can fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_control::ppl::{self, LogMember, ParityKnowledge as LogOutcome, Replay};
use wattle_engine::ArrayTuning;
use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata, NoMetadata};
use wattle_engine::state::ppl::{LogArea, LogEntry, LogFormat, LogSpec};
use wattle_engine::units::{MemberIx, MemberSet, Sector, StripeNo};
use wattle_engine::{ArrayHandle, ArraySpec, BadRanges, MemberSpec, Volume};
use wattle_format::md::Features;
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveConfig, DriveSnapshot, Durability, Rng, RunOutcome, SimWorld, Unmap,
    WorldConfig,
};

const UUID: [u8; 16] = [9; 16];
const MEMBER_SECTORS: u64 = 192;
const BLOCK_SECTORS: usize = 8;
const LOG: LogArea = LogArea { offset_bytes: 4096, size_bytes: 64 << 10 };
const DATA_OFFSET: Sector = Sector((4096 + (64 << 10)) / 512);

/// What is on disk of the array's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Clean,
    Dirty,
    /// Some superblocks say one thing, some the other.
    Turning,
}

/// Superblocks, as far as this test goes.
#[derive(Clone)]
struct Books {
    core: Core,
    drives: Vec<Device>,
    recorded: Rc<Cell<Recorded>>,
    failed: Rc<Cell<MemberSet>>,
    /// Some superblocks say that these failed.
    failing: Rc<Cell<MemberSet>>,
    /// The clean superblocks say that parity is right.
    synced: Rc<Cell<bool>>,
}

impl Metadata for Books {
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async {
            // As the real ones: what a record says is true of what was written before it.
            for drive in &self.drives {
                let _ = self.core.flush(drive).await;
            }
            if !record.dirty {
                self.synced.set(record.synced_below == Sector::MAX);
            }
            let turned = if record.dirty { Recorded::Dirty } else { Recorded::Clean };
            if self.recorded.get() != turned {
                self.recorded.set(Recorded::Turning);
            }
            // A member that failed in a run before does not belong to this one.
            self.failing.set(self.failed.get().union(&record.failed));
            self.core.sleep(Duration::from_micros(300)).await;
            self.recorded.set(turned);
            self.failed.set(self.failing.get());
            Ok(())
        })
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.mark(regions)
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.unmark(regions)
    }
}

/// What sectors may hold: the versions since the last one that is durable, oldest first.
#[derive(Default)]
struct Model {
    sectors: Vec<Vec<[u8; 512]>>,
}

impl Model {
    fn new(sectors: usize) -> Self {
        Self { sectors: vec![vec![[0; 512]]; sectors] }
    }

    fn begin(&mut self, start: u64, bytes: &[u8]) {
        for (sector, bytes) in (start / 512..).zip(bytes.chunks_exact(512)) {
            self.sectors[sector as usize].push(bytes.try_into().expect("a sector"));
        }
    }

    /// How many versions there are of each sector of a range: the last one is acknowledged.
    fn acknowledged(&self, start: u64, len: u64) -> Vec<(usize, usize)> {
        let range = (start / 512) as usize..((start + len) / 512) as usize;
        range.map(|sector| (sector, self.sectors[sector].len())).collect()
    }

    /// Those versions are durable: older ones are gone.
    fn durable(&mut self, versions: &[(usize, usize)]) {
        for &(sector, count) in versions {
            let gone = self.sectors[sector].len().min(count) - 1;
            self.sectors[sector].drain(..gone);
        }
    }

    /// Whether no write to the block of a sector was under way. A part of a block is written with
    /// the rest of it.
    fn settled(&self, sector: usize) -> bool {
        let start = sector / BLOCK_SECTORS * BLOCK_SECTORS;
        self.sectors[start..start + BLOCK_SECTORS].iter().all(|versions| versions.len() == 1)
    }

    fn allows(&self, sector: usize, bytes: &[u8]) -> bool {
        self.sectors[sector].iter().any(|version| version == bytes)
    }

    /// After a crash: what was found is what is.
    fn settle(&mut self, content: &[u8]) {
        for (versions, bytes) in self.sectors.iter_mut().zip(content.chunks_exact(512)) {
            *versions = vec![bytes.try_into().expect("a sector")];
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    members: usize,
    layout: u32,
    chunk: u64,
    ring: bool,
    cores: usize,
    missing: Option<usize>,
    /// A drive vanishes after so many of its operations.
    vanishes: Option<(usize, u64)>,
    /// Parity is anything at first; the array resyncs while it is written.
    unsynced: bool,
    mutant: Option<Mutant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// Logs are written without entries.
    NoEntries,
    /// Partial parity is logged as if every block changed.
    NoPartialParity,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x70_706c);
        let members = 3 + rng.below(3) as usize;
        Self {
            seed,
            members,
            layout: rng.below(6) as u32,
            chunk: [8, 16, 64][rng.below(3) as usize],
            ring: rng.coin(),
            cores: 1 + rng.below(3) as usize,
            missing: None,
            vanishes: None,
            unsynced: false,
            mutant: None,
        }
    }

    fn geometry(&self) -> Geometry {
        let params = Params {
            level: Level::Raid5,
            layout: self.layout,
            chunk: Sector(self.chunk),
            raid_disks: self.members as u32,
            component_size: Sector(MEMBER_SECTORS),
            member_sizes: Vec::new(),
        };
        Geometry::new(&params).expect("a plain geometry")
    }

    fn log(&self) -> LogSpec {
        let kind = if self.ring { Features::MULTIPLE_PPLS } else { Features::PPL };
        let spec =
            ppl::log_spec(kind, UUID, &self.geometry(), vec![LOG; self.members]).expect("it has a log");
        match self.mutant {
            None => spec,
            Some(mutant) => LogSpec { format: Arc::new(Mutated { format: spec.format, mutant }), ..spec },
        }
    }
}

#[derive(Debug)]
struct Mutated {
    format: Arc<dyn LogFormat>,
    mutant: Mutant,
}

impl LogFormat for Mutated {
    fn header(&self, generation: u64, entries: &[LogEntry]) -> Buf {
        match self.mutant {
            Mutant::NoEntries => self.format.header(generation, &[]),
            Mutant::NoPartialParity => {
                let zeroed = entries.iter().cloned().map(|mut entry| {
                    entry.partial.iter_mut().for_each(|part| *part = Buf::zeros(part.len()));
                    entry
                });
                self.format.header(generation, &zeroed.collect::<Vec<_>>())
            }
        }
    }

    fn entries_max(&self) -> usize {
        self.format.entries_max()
    }

    fn payload_max_bytes(&self) -> usize {
        self.format.payload_max_bytes()
    }
}

struct Run {
    case: Case,
    geometry: Geometry,
    world: SimWorld,
    drives: Vec<Device>,
    model: Rc<RefCell<Model>>,
    recorded: Rc<Cell<Recorded>>,
    failed: Rc<Cell<MemberSet>>,
    failing: Rc<Cell<MemberSet>>,
    /// Parity is known to be right.
    synced: Rc<Cell<bool>>,
    /// It was when the array was started.
    trusted: bool,
    /// A member was missing when the array was started.
    degraded: bool,
    rng: Rng,
    /// Why the case is wrong, if it is.
    violations: Vec<String>,
    /// How replays ended.
    clean: usize,
    cut_short: usize,
    untrusted: usize,
    patches: usize,
}

impl Run {
    fn new(case: Case) -> Self {
        let config = WorldConfig { seed: case.seed, cores: case.cores, ..WorldConfig::default() };
        let mut world = SimWorld::new(config);
        let mut rng = Rng::new(case.seed ^ 0x0072_756e);
        let sector_bytes = if rng.below(4) == 0 { 4096 } else { 512 };
        let drives: Vec<_> = (0..case.members)
            .map(|slot| {
                world.add_drive(DriveConfig {
                    size_bytes: (DATA_OFFSET.0 + MEMBER_SECTORS) * 512,
                    sector_bytes,
                    name: format!("drive{slot}"),
                    ..DriveConfig::default()
                })
            })
            .collect();
        // An old log from a life before must not be followed.
        let geometry = case.geometry();
        let old = LogEntry {
            first: Sector(0),
            data_bytes: 4096,
            parity_slot: geometry.stripe(StripeNo(0)).p(),
            partial: vec![Buf::copy_of(&[0xee; 4096])],
        };
        for (slot, drive) in drives.iter().enumerate() {
            let entries = if slot == old.parity_slot.index() { vec![old.clone()] } else { Vec::new() };
            let at = LOG.offset_bytes + if case.ring { 8192 } else { 0 };
            world.drive(drive).poke(at, &Case { mutant: None, ..case }.log().format.header(99, &entries));
            world.drive(drive).poke(at + 4096, &[0xee; 4096]);
        }
        if case.unsynced {
            for drive in &drives {
                let mut noise = vec![0; MEMBER_SECTORS as usize * 512];
                rng.fill(&mut noise);
                world.drive(drive).poke(DATA_OFFSET.0 * 512, &noise);
            }
        }
        let run = Self {
            model: Rc::new(RefCell::new(Model::new(geometry.array_sectors().0 as usize))),
            geometry,
            world,
            drives,
            recorded: Rc::new(Cell::new(Recorded::Clean)),
            failed: Rc::default(),
            failing: Rc::default(),
            synced: Rc::new(Cell::new(!case.unsynced)),
            trusted: true,
            degraded: false,
            rng,
            violations: Vec::new(),
            clean: 0,
            cut_short: 0,
            untrusted: 0,
            patches: 0,
            case,
        };
        let volume = run.read(&run.contents(None), None);
        run.model.borrow_mut().settle(&volume);
        run
    }

    /// Slots without a current member, for certain.
    fn missing(&self) -> Vec<usize> {
        let failed = self.failed.get();
        let slots = (0..self.case.members).filter(|&slot| failed.contains(MemberIx(slot as u16)));
        slots.chain(self.case.missing).collect()
    }

    fn spec(&self) -> ArraySpec {
        let missing = self.missing();
        let member = |slot: usize| match missing.contains(&slot) {
            true => MemberSpec::missing(),
            false => {
                MemberSpec { log: Some(LOG), ..MemberSpec::in_sync(self.drives[slot].clone(), DATA_OFFSET) }
            }
        };
        let spec = ArraySpec::new("a", self.geometry.clone(), (0..self.case.members).map(member).collect());
        let tuning = ArrayTuning { clean_delay: Duration::from_millis(1), ..ArrayTuning::default() };
        let synced_below = if self.synced.get() { Sector::MAX } else { Sector(0) };
        ArraySpec { log: Some(self.case.log()), tuning, synced_below, ..spec }
    }

    /// Works until the power goes.
    fn work(&mut self) {
        let spec = self.spec();
        let (model, recorded) = (self.model.clone(), self.recorded.clone());
        let (failed, failing, synced) = (self.failed.clone(), self.failing.clone(), self.synced.clone());
        self.trusted = self.synced.get();
        let drives = self.drives.clone();
        self.degraded = !self.missing().is_empty();
        if let Some((slot, ops)) = self.case.vanishes.filter(|_| !self.degraded) {
            self.world.drive(&self.drives[slot]).gone_after_ops(ops);
        }
        let (seed, idle) = (self.rng.next_u64(), self.rng.below(3) == 0);
        let most = if self.rng.coin() { 60 } else { 900 };
        self.world.power_cut_after_ops(1 + self.rng.below(most));
        let outcome = self.world.run(async move |core| {
            let books = Books { core: core.clone(), drives, recorded, failed, failing, synced };
            let array = ArrayHandle::start(&core, spec, Box::new(books)).await;
            let volume = array.volume().open(&core).expect("it runs");
            let workers: Vec<_> = (0..3)
                .map(|worker| {
                    let (core, volume, model) = (core.clone(), volume.clone(), model.clone());
                    core.clone().spawn(async move { work(&core, &volume, &model, worker, seed, idle).await })
                })
                .collect();
            for worker in workers {
                worker.await;
            }
        });
        assert_eq!(outcome, RunOutcome::PowerCut, "{:?}", self.case);
    }

    fn log_members(&self, missing: &[usize]) -> Vec<Option<LogMember>> {
        let member = |slot: usize| LogMember {
            device: self.drives[slot].clone(),
            data_offset: DATA_OFFSET,
            valid_below: Sector::MAX,
            bad: BadRanges::NONE,
            log: Some(LOG),
        };
        (0..self.case.members).map(|slot| (!missing.contains(&slot)).then(|| member(slot))).collect()
    }

    fn replay(&mut self, missing: &[usize]) -> Replay {
        let (geometry, members) = (self.geometry.clone(), self.log_members(missing));
        self.world.run(async move |core| ppl::replay(&core, &geometry, &members, &UUID).await).expect_done()
    }

    /// The members' data, with the patches of a replay.
    fn contents(&self, replay: Option<&Replay>) -> Vec<Vec<u8>> {
        let peek = |drive| self.world.drive(drive).peek(DATA_OFFSET.0 * 512, MEMBER_SECTORS as usize * 512);
        let mut contents: Vec<Vec<u8>> = self.drives.iter().map(peek).collect();
        for patch in replay.iter().flat_map(|replay| &replay.patches) {
            let at = patch.sector.0 as usize * 512;
            contents[patch.slot.index()][at..at + patch.bytes.len()].copy_from_slice(&patch.bytes);
        }
        contents
    }

    /// What a reader gets, with `lost` computed from the others.
    fn read(&self, contents: &[Vec<u8>], lost: Option<usize>) -> Vec<u8> {
        let mut volume = Vec::new();
        for lba in 0..self.geometry.array_sectors().0 {
            let place = self.geometry.data_place(Sector(lba));
            let at = place.sector.0 as usize * 512;
            let of = |slot: usize| &contents[slot][at..at + 512];
            if Some(place.member.index()) != lost {
                volume.extend_from_slice(of(place.member.index()));
                continue;
            }
            let mut sum = [0; 512];
            for slot in (0..contents.len()).filter(|&slot| Some(slot) != lost) {
                sum.iter_mut().zip(of(slot)).for_each(|(sum, byte)| *sum ^= byte);
            }
            volume.extend_from_slice(&sum);
        }
        volume
    }

    /// Compares what a reader gets with the model. What was being written to a member that was
    /// `lost` in the crash is gone with it.
    fn check(&mut self, what: &str, contents: &[Vec<u8>], missing: Option<usize>, lost_in_crash: bool) {
        let volume = self.read(contents, missing);
        let model = self.model.borrow();
        for (lba, bytes) in volume.chunks_exact(512).enumerate() {
            let place = self.geometry.data_place(Sector(lba as u64));
            let exempt = lost_in_crash && Some(place.member.index()) == missing && !model.settled(lba);
            if !exempt && !model.allows(lba, bytes) {
                self.violations.push(format!("{what}: array sector {lba} of {:?}", self.case));
            }
        }
    }

    fn check_parity(&mut self, what: &str, contents: &[Vec<u8>]) {
        let sum = contents.iter().skip(1).fold(contents[0].clone(), |mut sum, block| {
            sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
            sum
        });
        let used = self.geometry.stripes() * self.case.chunk * 512;
        if let Some(byte) = sum[..used as usize].iter().position(|&byte| byte != 0) {
            self.violations.push(format!("{what}: parity of sector {} in {:?}", byte / 512, self.case));
        }
    }

    /// After a crash, with the members of `missing` gone: every way in which things can go on.
    fn judge(&mut self, dirty: bool, missing: &[usize]) {
        let replay = |run: &mut Self, missing: &[usize]| {
            if !dirty {
                return None;
            }
            let replay = run.replay(missing);
            match &replay.outcome {
                LogOutcome::Clean => run.clean += 1,
                LogOutcome::CutShort => run.cut_short += 1,
                LogOutcome::Untrusted(_) if !run.trusted => run.untrusted += 1,
                LogOutcome::Untrusted(reason) => run.violations.push(format!("{reason} in {:?}", run.case)),
            }
            run.patches += replay.patches.len();
            Some(replay)
        };
        let found = replay(self, missing);
        let contents = self.contents(found.as_ref());
        if let [only] = missing {
            self.check("with a member missing", &contents, Some(*only), !self.degraded);
            return;
        }
        self.check("complete", &contents, None, false);
        let right = found.as_ref().map_or(self.synced.get(), |replay| replay.outcome.trusts_parity(true));
        if !right {
            return;
        }
        self.check_parity("complete", &contents);
        for slot in 0..self.case.members {
            self.check("lost later", &contents, Some(slot), false);
            let found = replay(self, &[slot]);
            let contents = self.contents(found.as_ref());
            self.check("lost in the crash", &contents, Some(slot), true);
        }
    }

    /// Judges a crash, then goes on from it: the replay may be cut off and repeated.
    fn crash(&mut self) {
        self.drives.iter().for_each(|drive| self.world.drive(drive).come_back());
        let recorded = self.recorded.get();
        let missing = self.missing();
        if self.failing.get() != self.failed.get() {
            // Whose superblock counts is open: both have to be right.
            self.judge(true, &missing);
            self.failed.set(self.failing.get());
        }
        let missing = self.missing();
        if recorded != Recorded::Clean {
            self.judge(true, &missing);
        }
        if recorded != Recorded::Dirty {
            self.judge(false, &missing);
        }
        if recorded != Recorded::Clean {
            let before: Vec<DriveSnapshot> =
                self.drives.iter().map(|drive| self.world.drive(drive).snapshot()).collect();
            let first = self.replay(&missing);
            let expected = self.contents(Some(&first));
            let members = self.log_members(&missing);
            self.world.power_cut_after_ops(1 + self.rng.below(8));
            let (cut, replayed) = (members.clone(), first.clone());
            let _ = self.world.run(async move |core| ppl::apply(&core, &cut, &replayed).await);
            self.world.cancel_power_cut();
            if self.rng.below(4) == 0 {
                // Now and then not even that had begun.
                for (drive, snapshot) in self.drives.iter().zip(&before) {
                    self.world.drive(drive).restore(snapshot);
                }
            }
            let again = self.replay(&missing);
            self.synced.set(again.outcome.trusts_parity(true));
            let applied = again.clone();
            let applied = self.world.run(async move |core| ppl::apply(&core, &members, &applied).await);
            assert_eq!(applied.expect_done(), Ok(()));
            self.world.power_cut_now();
            if self.contents(None) != expected {
                self.violations.push(format!("a replay that was repeated differs in {:?}", self.case));
            }
        }
        self.recorded.set(Recorded::Clean);
        let lost = missing.first().copied();
        let volume = self.read(&self.contents(None), lost);
        self.model.borrow_mut().settle(&volume);
    }
}

async fn work(core: &Core, volume: &Volume, model: &RefCell<Model>, worker: u64, seed: u64, idle: bool) {
    let mut rng = Rng::new(seed ^ worker.wrapping_mul(0x9e37_79b9));
    let part = volume.size_bytes() / 3 / 4096 * 4096;
    let mut unflushed: Vec<(usize, usize)> = Vec::new();
    loop {
        let unit = if rng.below(12) == 0 { 512 } else { 4096 };
        let at = rng.below(part / unit) * unit;
        let most = if rng.coin() { 3 } else { 24 };
        let len = ((1 + rng.below(most)) * unit).min(part - at);
        let start = worker * part + at;
        match rng.below(20) {
            0..=15 => {
                let mut bytes = BufMut::alloc(len as usize);
                rng.fill(&mut bytes);
                model.borrow_mut().begin(start, &bytes);
                let durability = if rng.below(3) == 0 { Durability::Fua } else { Durability::Cached };
                if volume.write(start, bytes.freeze(), durability).await.is_err() {
                    return;
                }
                let versions = model.borrow().acknowledged(start, len);
                match durability {
                    Durability::Fua => model.borrow_mut().durable(&versions),
                    Durability::Cached => unflushed.extend(versions),
                }
            }
            16..=17 => {
                model.borrow_mut().begin(start, &vec![0; len as usize]);
                if volume.write_zeroes(start, len, Unmap::Yes, Durability::Cached).await.is_err() {
                    return;
                }
                unflushed.extend(model.borrow().acknowledged(start, len));
            }
            18 => {
                if volume.flush().await.is_err() {
                    return;
                }
                model.borrow_mut().durable(&std::mem::take(&mut unflushed));
            }
            _ if idle => core.sleep(Duration::from_millis(4)).await,
            _ => {}
        }
    }
}

fn run(case: Case) -> Run {
    let mut run = Run::new(case);
    for _ in 0..3 {
        run.work();
        run.crash();
        if !run.violations.is_empty() {
            break;
        }
    }
    run
}

/// Runs cases; says how many broke, and what came of the replays.
fn sweep(cases: impl Iterator<Item = Case>) -> (Vec<String>, [usize; 3]) {
    let (mut broken, mut totals) = (Vec::new(), [0; 3]);
    for case in cases {
        let run = run(case);
        broken.extend(run.violations.into_iter().next());
        for (total, n) in totals.iter_mut().zip([run.clean, run.cut_short, run.patches]) {
            *total += n;
        }
    }
    (broken, totals)
}

#[test]
fn no_crash_of_a_complete_array_costs_what_nobody_was_writing() {
    let (broken, [clean, cut_short, patches]) = sweep((0..120).map(Case::of));
    assert_eq!(broken, [""; 0]);
    assert!(
        clean > 100 && cut_short > 20 && patches > 100,
        "{clean} clean, {cut_short} cut short, {patches} ranges"
    );
}

#[test]
fn no_crash_of_a_degraded_array_costs_anything() {
    let degraded =
        (0..160).map(Case::of).map(|case| Case { missing: Some(case.seed as usize % case.members), ..case });
    let (broken, [clean, cut_short, patches]) = sweep(degraded);
    assert_eq!(broken, [""; 0]);
    assert!(
        clean > 100 && cut_short > 20 && patches > 50,
        "{clean} clean, {cut_short} cut short, {patches} ranges"
    );
}

/// The drive is lost before the power is, at any moment: as if it took the machine down with it.
#[test]
fn no_crash_after_a_drive_vanished_costs_what_nobody_was_writing() {
    let vanishing = (0..120).map(Case::of).map(|case| {
        let mut rng = Rng::new(case.seed ^ 0x676f_6e65);
        Case { vanishes: Some((case.seed as usize % case.members, 1 + rng.below(200))), ..case }
    });
    let (broken, [clean, cut_short, patches]) = sweep(vanishing);
    assert_eq!(broken, [""; 0]);
    assert!(
        clean > 100 && cut_short > 10 && patches > 50,
        "{clean} clean, {cut_short} cut short, {patches} ranges"
    );
}

/// Logs are for parity that was right. Where it was not, they say so until a resync has passed;
/// then they can be followed.
#[test]
fn no_log_makes_wrong_parity_right() {
    let unsynced = (0..120).map(Case::of).map(|case| Case { unsynced: true, ..case });
    let (mut broken, mut followed, mut untrusted) = (Vec::new(), 0, 0);
    for case in unsynced {
        let run = run(case);
        broken.extend(run.violations.into_iter().next());
        followed += run.clean + run.cut_short;
        untrusted += run.untrusted;
    }
    assert_eq!(broken, [""; 0]);
    assert!(followed > 50 && untrusted > 30, "{followed} followed, {untrusted} not trusted");
}

#[test]
fn mutants_are_caught() {
    for mutant in [Mutant::NoEntries, Mutant::NoPartialParity] {
        let cases = (0..12).map(Case::of).map(|case| Case { mutant: Some(mutant), ..case });
        let (broken, _) = sweep(cases);
        assert!(broken.len() > 3, "{mutant:?} broke {broken:?}");
    }
}
