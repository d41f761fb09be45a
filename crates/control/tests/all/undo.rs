//! A command is cut short at every operation, and some of what was not flushed survives: its log
//! brings back every byte. Bringing back is cut short too, and once more brings back every byte.
//! Nothing that a cut leaves counts as made by others since.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::support::real::request;
use wattle_control::MemberId;
use wattle_control::create::{Consistency, CreateRequest, inspect, plan};
use wattle_control::lvm::commit::CommitRole;
use wattle_control::lvm::lock::GroupLock;
use wattle_control::lvm::physical::{self, PhysicalVolume};
use wattle_control::lvm::plan::{ChangeTarget, From, GroupPlan, GroupWrite, say_in_a_group};
use wattle_control::members::Keyring;
use wattle_control::restore::{compare, find};
use wattle_control::scan::scan;
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions};
use wattle_control::undo::draft::{Pieces, draft, pieces};
use wattle_control::undo::{CoveredWrite, Recorder, UndoSite, absolute, carry_out, load};
use wattle_control::{Code, Forced, Member, Policy, Problem};
use wattle_engine::geometry::Level;
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{Id, Label, Pv, Stamp, Vg};
use wattle_format::md::Version;
use wattle_format::undo::{SECTOR_BYTES, UndoLog, UndoTarget, UndoTargetKind as Where};
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveConfig, Durability, IoError, Reply, RunOutcome, RuntimeConfig, Serve,
    SimWorld, Unmap, WorldConfig,
};

const SIZE_BYTES: u64 = 64 << 10;

/// A world of drives that hold something.
struct Rig {
    world: SimWorld,
    drives: Vec<Device>,
}

/// What a drive holds before: by sectors, with zeros in between.
fn content(drive: usize) -> Vec<u8> {
    let byte =
        |at: usize| if (at / 512).is_multiple_of(3) { 0 } else { (at / 512 + at % 7 + 1 + drive) as u8 };
    (0..SIZE_BYTES as usize).map(byte).collect()
}

impl Rig {
    fn new(drives: usize, sector_bytes: u32) -> Self {
        let mut world = SimWorld::new(WorldConfig::default());
        let config = DriveConfig { size_bytes: SIZE_BYTES, sector_bytes, ..DriveConfig::default() };
        let drives: Vec<_> = (0..drives).map(|_| world.add_drive(config.clone())).collect();
        let rig = Self { world, drives };
        rig.fill(&(0..rig.drives.len()).map(content).collect::<Vec<_>>());
        rig
    }

    fn fill(&self, contents: &[Vec<u8>]) {
        self.drives
            .iter()
            .zip(contents)
            .for_each(|(drive, content)| self.world.drive(drive).poke(0, content));
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        let peek = |drive| self.world.drive(drive).peek(0, SIZE_BYTES as usize);
        self.drives.iter().map(peek).collect()
    }

    fn sites(&self) -> Vec<UndoSite> {
        let site = |(ix, device): (usize, &Device)| UndoSite {
            name: format!("drive {ix}"),
            place: Where::Member,
            drive: String::new(),
            device: device.clone(),
        };
        self.drives.iter().enumerate().map(site).collect()
    }

    /// The log that a command saves before these writes, as it is read back.
    fn log(&self, writes: &[CoveredWrite]) -> UndoLog {
        let target = |ix: usize| UndoTarget {
            name: absolute(&format!("drive {ix}")),
            place: Where::Member,
            sectors: SIZE_BYTES / 512,
            drive: String::new(),
            samples: Default::default(),
        };
        let targets: Vec<_> = (0..self.drives.len()).map(target).collect();
        let contents = self.contents();
        let mut read = Pieces::default();
        for piece in pieces(&targets, writes, &[]) {
            read.add(
                piece,
                Ok(contents[piece.site][piece.offset_bytes as usize..][..piece.len_bytes].to_vec()),
            );
        }
        let (targets, ranges) = draft(targets, writes, &[], &read).unwrap();
        let log = UndoLog { targets, ranges, ..UndoLog::default() };
        assert_eq!(UndoLog::decode(&log.encode()), Ok(log.clone()));
        log
    }

    /// Runs until it ends, or until the power goes after so many operations; whether it ended.
    fn run_until(
        &mut self,
        cut: u64,
        outcome: u64,
        main: impl AsyncFnOnce(Core) -> Result<(), Problem>,
    ) -> bool {
        self.world.choose_power_cuts(chooser(outcome));
        self.world.power_cut_after_ops(cut);
        let ended = match self.world.run(main) {
            RunOutcome::Done(result) => {
                result.unwrap();
                true
            }
            RunOutcome::PowerCut => false,
            other => panic!("{other:?}"),
        };
        self.world.cancel_power_cut();
        ended
    }
}

/// What brings back what a log has.
async fn restoring(core: &Core, sites: &[UndoSite], log: &UndoLog) -> Vec<CoveredWrite> {
    let mut writes = Vec::new();
    for (target, site) in sites.iter().enumerate() {
        let (fit, restoring) = compare(core, &site.device, log, target, false).await.unwrap();
        assert_eq!(fit.other, None, "a crash of the command is nobody else's writing");
        writes.extend(restoring);
    }
    writes
}

async fn undo(core: Core, sites: Vec<UndoSite>, log: UndoLog) -> Result<(), Problem> {
    let writes = restoring(&core, &sites, &log).await;
    carry_out(&core, &sites, &writes).await
}

/// Whether undo goes on where drives hold this: it tells which they are, and nothing on them counts
/// as made since.
fn check_found(states: BTreeSet<Vec<Vec<u8>>>, log: UndoLog) {
    on_a_core(async move |core| {
        for contents in states {
            let member = |(drive, content): (usize, &Vec<u8>)| {
                let device = Device::mem(SIZE_BYTES);
                device.write_blocking(0, content).unwrap();
                Member::made_up(&format!("drive {drive}"), device)
            };
            let members = contents.iter().enumerate().map(member).collect();
            let seen = core.offload(move || scan(members, Forced::default())).await.unwrap().unwrap();
            let (policy, keys) = (Policy::default(), Keyring::default());
            let options = StackOptions { policy, purpose: Purpose::Look, wanted: None, keys };
            let stack = Stack::open(&core, seen, options, &mut Plain).await.unwrap();
            let found = find(&core, &stack, &log, Forced::default()).await.unwrap();
            assert_eq!(found.len(), contents.len());
            stack.close(&core).await.unwrap();
        }
    });
}

/// How many outcomes of each power cut are looked at: nothing of what was not flushed survives, all
/// of it, or what chance says.
const OUTCOMES: u64 = 24;

/// What survives in one of the outcomes.
fn chooser(outcome: u64) -> impl FnMut(usize) -> usize {
    let mut state = outcome;
    move |among| match outcome {
        0 => 0,
        1 => among - 1,
        _ => {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % among
        }
    }
}

/// Power cuts at every operation of `command`, which begins on what `rig` makes; each outcome is
/// taken back. How many.
fn explore(
    rig: impl Fn() -> Rig,
    writes: impl Fn(&Rig) -> Vec<CoveredWrite>,
    command: impl AsyncFn(Core, Vec<Device>, Vec<UndoSite>, Vec<CoveredWrite>) -> Result<(), Problem>,
) -> u32 {
    let (mut outcomes, mut states) = (0, BTreeSet::new());
    for cut in 1.. {
        for outcome in 0..OUTCOMES {
            let mut rig = rig();
            let (before, writes) = (rig.contents(), writes(&rig));
            let (log, sites, drives) = (rig.log(&writes), rig.sites(), rig.drives.clone());
            let ended = rig.run_until(cut, outcome, async |core| command(core, drives, sites, writes).await);
            let left = rig.contents();
            assert!(!ended || left != before);
            states.insert(left.clone());
            let sites = rig.sites();
            rig.world.run(async |core| undo(core, sites, log.clone()).await).expect_done().unwrap();
            assert!(rig.contents() == before, "cut {cut}: every byte is what it was");
            outcomes += 1;
            if ended {
                check_found(states, log.clone());
                return outcomes + explore_undo(&mut rig, &before, &left, &log);
            }
        }
    }
    unreachable!("a command has an end")
}

/// The same of taking back what a command left.
fn explore_undo(rig: &mut Rig, before: &[Vec<u8>], left: &[Vec<u8>], log: &UndoLog) -> u32 {
    let (mut outcomes, mut states) = (0, BTreeSet::new());
    for cut in 1.. {
        for outcome in 0..OUTCOMES {
            rig.fill(left);
            let sites = rig.sites();
            let ended = rig.run_until(cut, outcome, async |core| undo(core, sites, log.clone()).await);
            states.insert(rig.contents());
            let sites = rig.sites();
            rig.world.run(async |core| undo(core, sites, log.clone()).await).expect_done().unwrap();
            assert!(rig.contents() == before, "cut {cut} of taking back");
            outcomes += 1;
            if ended {
                check_found(states, log.clone());
                return outcomes;
            }
        }
    }
    unreachable!("taking back has an end")
}

#[test]
fn writes_that_are_cut_short_are_taken_back() {
    let write = |site, offset_bytes, bytes: &[u8]| CoveredWrite {
        site,
        step: (site == 1).into(),
        offset_bytes,
        bytes: bytes.to_vec(),
    };
    let writes = vec![
        write(0, 4096, &[0; 1024]),
        // No whole sector, and twice over another one.
        write(0, 4096 + 100, b"here and there"),
        write(1, 8192, &[5; 512]),
        write(1, 8192, &[6; 512]),
        write(1, SIZE_BYTES - 512, &[0; 512]),
    ];
    for sector_bytes in [512, 4096] {
        let outcomes = explore(
            || Rig::new(2, sector_bytes),
            |_| writes.clone(),
            async |core, _, sites, writes| carry_out(&core, &sites, &writes).await,
        );
        assert!(outcomes > 30, "{outcomes}");
    }
}

#[test]
fn what_somebody_else_wrote_is_told_and_left_alone() {
    let mut rig = Rig::new(1, 512);
    let writes = vec![CoveredWrite { site: 0, step: 0, offset_bytes: 1024, bytes: vec![9; 2048] }];
    let log = rig.log(&writes);
    let before = rig.contents();
    let sites = rig.sites();
    let writing = writes.clone();
    rig.world.run(async |core| carry_out(&core, &sites, &writing).await).expect_done().unwrap();
    rig.world.drive(&rig.drives[0]).poke(1536, b"else");
    let device = rig.drives[0].clone();
    for all in [false, true] {
        let (fit, restoring) =
            rig.world.run(async |core| compare(&core, &device, &log, 0, all).await.unwrap()).expect_done();
        assert_eq!((fit.written, fit.other), (3, Some((3, 1))));
        let places: Vec<_> = restoring.iter().map(|write| (write.offset_bytes, write.bytes.len())).collect();
        let expected: &[_] =
            if all { &[(1024, 512), (1536, 512), (2048, 1024)] } else { &[(1024, 512), (2048, 1024)] };
        assert_eq!(places, expected);
        assert!(restoring.iter().all(|write| {
            before[0][write.offset_bytes as usize..][..write.bytes.len()] == write.bytes[..]
        }));
    }
}

fn id(seed: u8) -> Id {
    Id::from_random([seed; 32])
}

fn group(seqno: u64) -> Vg {
    let mut vg = Vg::new("vg", id(99), 8);
    vg.seqno = seqno;
    vg.pvs.extend((0..2).map(|pv| Pv::new(&format!("pv{pv}"), id(pv + 1), SIZE_BYTES / 512, 32, 4)));
    assert_eq!(vg.problems(), []);
    vg
}

fn place(pv: u8, from: From, role: CommitRole) -> ChangeTarget {
    let areas = vec![Area { offset_bytes: 4096, size_bytes: 8 << 10 }];
    let data = Area { offset_bytes: 16 << 10, size_bytes: 0 };
    let mut label = Label::new(id(pv + 1), SIZE_BYTES, data, areas);
    say_in_a_group(&mut label, role == CommitRole::Belongs);
    let zeros = vec![Area { offset_bytes: 20 << 10, size_bytes: 4096 }];
    ChangeTarget { member: MemberId::nth(pv.into()), name: format!("pv{pv}"), from, label, role, zeros }
}

/// What is on a drive now, as every command reads it.
fn look(rig: &Rig, pv: usize) -> PhysicalVolume {
    let copy = Device::mem(SIZE_BYTES);
    copy.write_blocking(0, &rig.contents()[pv]).unwrap();
    physical::read(&Member::made_up("copy", copy)).unwrap().unwrap()
}

fn explore_plan(rig: impl Fn() -> Rig, plan: impl Fn(&Rig) -> GroupPlan) -> u32 {
    let stamp = Stamp { description: String::new(), host: "h".to_owned(), time: 1 };
    let text = |plan: &GroupPlan| plan.after.as_ref().map(|vg| vg.to_text(&stamp));
    let first = plan(&rig());
    explore(
        rig,
        |rig| {
            let plan = plan(rig);
            let writes = plan.writes(text(&plan).as_deref()).unwrap().into_iter();
            writes
                .map(|write| CoveredWrite {
                    site: write.place,
                    step: write.step,
                    offset_bytes: write.offset_bytes,
                    bytes: write.bytes,
                })
                .collect()
        },
        async |core, drives, _, _| {
            let failures =
                first.execute(&core, &GroupLock::not_needed(), &drives, text(&first).as_deref()).await?;
            assert!(failures.is_empty(), "{failures:?}");
            Ok(())
        },
    )
}

fn new(_: &Rig) -> GroupPlan {
    let wiped = || From::New(vec![Area { offset_bytes: 0, size_bytes: 4096 }]);
    let places = (0..2).map(|pv| place(pv, wiped(), CommitRole::Belongs)).collect();
    GroupPlan { before: None, after: Some(group(1)), places }
}

fn with_group() -> Rig {
    let mut rig = Rig::new(2, 512);
    let (plan, drives) = (new(&rig), rig.drives.clone());
    let text = group(1).to_text(&Stamp { description: String::new(), host: "h".to_owned(), time: 1 });
    let made =
        rig.world.run(async |core| plan.execute(&core, &GroupLock::not_needed(), &drives, Some(&text)).await);
    assert_eq!(made.expect_done().unwrap(), Vec::<String>::new());
    rig
}

/// Whatever a change of a group writes, its log has it.
#[test]
fn changes_of_groups_that_are_cut_short_are_taken_back() {
    let next = |rig: &Rig| {
        let stays = |pv: u8| place(pv, From::Physical(look(rig, pv.into())), CommitRole::Belongs);
        let leaves = ChangeTarget {
            role: CommitRole::Leaves,
            ..place(1, From::Physical(look(rig, 1)), CommitRole::Leaves)
        };
        let mut after = group(2);
        after.pvs.pop();
        GroupPlan { before: None, after: Some(after), places: vec![stays(0), leaves] }
    };
    // A new volume, in extents that held something.
    let more = |rig: &Rig| {
        let stays = |pv: u8| place(pv, From::Physical(look(rig, pv.into())), CommitRole::Belongs);
        GroupPlan { before: None, after: Some(group(2)), places: vec![stays(0), stays(1)] }
    };
    let used = || {
        let rig = with_group();
        rig.drives.iter().for_each(|drive| rig.world.drive(drive).poke(20 << 10, &[7; 4096]));
        rig
    };
    let gone = |rig: &Rig| {
        let goes = |pv: u8| place(pv, From::Physical(look(rig, pv.into())), CommitRole::Goes);
        GroupPlan { before: None, after: None, places: vec![goes(0), goes(1)] }
    };
    let outcomes = [
        explore_plan(|| Rig::new(2, 512), new),
        explore_plan(with_group, next),
        explore_plan(used, more),
        explore_plan(used, next),
        explore_plan(with_group, gone),
        explore_plan(|| Rig::new(2, 4096), new),
    ];
    assert!(outcomes.iter().all(|&outcomes| outcomes > 30), "{outcomes:?}");
}

/// However the power goes while a change is taken back, every area has a whole text: the one of
/// before, or the one of after. So has every area while that is taken back in turn.
#[test]
fn a_group_can_be_read_wherever_taking_back_is_cut_short() {
    let stamp = || Stamp { description: String::new(), host: "h".to_owned(), time: 1 };
    let stays = |rig: &Rig| {
        let place = |pv: u8| place(pv, From::Physical(look(rig, pv.into())), CommitRole::Belongs);
        GroupPlan { before: None, after: Some(group(2)), places: vec![place(0), place(1)] }
    };
    let covered = |write: GroupWrite| CoveredWrite {
        site: write.place,
        step: write.step,
        offset_bytes: write.offset_bytes,
        bytes: write.bytes,
    };
    let seqnos = |rig: &Rig| {
        let areas = [0, 1].map(|pv| look(rig, pv).areas.swap_remove(0));
        areas.map(|area| area.text.map(|(_, vg)| vg.seqno).expect("its header names a whole text"))
    };
    let mut rig = with_group();
    let plan = stays(&rig);
    let text = group(2).to_text(&stamp());
    let writes: Vec<_> = plan.writes(Some(&text)).unwrap().into_iter().map(covered).collect();
    let (before, log, sites) = (rig.contents(), rig.log(&writes), rig.sites());
    rig.world.run(async |core| carry_out(&core, &sites, &writes).await).expect_done().unwrap();
    let after = rig.contents();
    let sites = rig.sites();
    let (core_sites, core_log) = (sites.clone(), log.clone());
    let back = rig.world.run(async |core| restoring(&core, &core_sites, &core_log).await).expect_done();
    let log_of_undo = rig.log(&back);
    let mut outcomes = 0;
    for (from, to, log) in [(&after, &before, &log), (&before, &after, &log_of_undo)] {
        for cut in 1.. {
            let mut ended = false;
            for outcome in 0..OUTCOMES {
                rig.fill(from);
                let sites = rig.sites();
                ended = rig.run_until(cut, outcome, async |core| undo(core, sites, log.clone()).await);
                let found = seqnos(&rig);
                assert!(found.iter().all(|seqno| [1, 2].contains(seqno)), "cut {cut}: {found:?}");
                let sites = rig.sites();
                rig.world.run(async |core| undo(core, sites, log.clone()).await).expect_done().unwrap();
                assert!(rig.contents() == *to, "cut {cut}");
                outcomes += 1;
            }
            if ended {
                break;
            }
        }
    }
    assert!(outcomes > 300, "{outcomes}");
}

/// What was done to drives, in order.
#[derive(Clone)]
enum Done {
    Write(usize, u64, Vec<u8>),
    Flush(usize),
}

/// A drive in memory that tells what is done to it.
struct Recorded {
    number: usize,
    below: Device,
    done: Arc<Mutex<Vec<Done>>>,
}

impl Serve for Recorded {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (core, below) = (core.clone(), self.below.clone());
        Box::pin(async move { core.read(&below, offset, buf).await })
    }

    fn write(&self, core: &Core, offset: u64, buf: Buf, how: Durability) -> Reply<Result<(), IoError>> {
        self.done.lock().unwrap().push(Done::Write(self.number, offset, buf.to_vec()));
        let (core, below) = (core.clone(), self.below.clone());
        Box::pin(async move { core.write(&below, offset, buf, how).await })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        self.done.lock().unwrap().push(Done::Flush(self.number));
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(async { Err(IoError::UNSUPPORTED) })
    }
}

const MEMBER_BYTES: u64 = 8 << 20;

fn on_a_core<T: Send + 'static>(job: impl AsyncFnOnce(Core) -> T + Send + 'static) -> T {
    wattle_rt::run(RuntimeConfig::default(), |core| async move { job(core).await }).unwrap()
}

/// What a member of a new array holds before.
fn old(number: usize) -> Vec<u8> {
    (0..MEMBER_BYTES as usize)
        .map(|at| if at / 4096 % 5 == 0 { 0 } else { (at / 509) as u8 ^ number as u8 })
        .collect()
}

/// Creates an array, as the command does it; its log, and what was done to the members.
fn create(level: Level, version: Version, consistency: Consistency) -> (UndoLog, Vec<Done>) {
    on_a_core(async move |core| {
        let done = Arc::new(Mutex::new(Vec::new()));
        let member = |number: usize| {
            let below = Device::mem(MEMBER_BYTES);
            below.write_blocking(0, &old(number)).unwrap();
            let server = Arc::new(Recorded { number, below, done: done.clone() });
            let name = format!("drive {number}");
            Member::made_up(&name, Device::served(&name, MEMBER_BYTES, 512, true, &core, server))
        };
        let members: Vec<_> = (0..4).map(member).collect();
        let log = core.offload(move || {
            let dir = tempfile::tempdir().unwrap();
            let request = request(level, members.iter().cloned().map(Some).collect());
            let request = CreateRequest { version, consistency, ..request };
            let states: Vec<_> = members.iter().map(|member| inspect(member).unwrap()).collect();
            let plan = plan(&request, &states).unwrap();
            let recorder = Recorder {
                dir: dir.path().to_owned(),
                command: "wattle create t".to_owned(),
                title: "create-t".to_owned(),
                now: request.now,
                given: Vec::new(),
                saved: RefCell::default(),
            };
            let sites: Vec<_> = members.iter().map(UndoSite::of_member).collect();
            let log = recorder.record_blocking(&sites, &plan.writes()).unwrap();
            plan.execute(&members).unwrap();
            load(&log).unwrap()
        });
        let log = log.await.unwrap();
        let done = done.lock().unwrap().clone();
        (log, done)
    })
}

/// What drives hold if the power goes after so much was done: all that was flushed, and of the rest
/// what `choose` says, by sectors.
fn cut_short(done: &[Done], mut choose: impl FnMut(usize) -> usize) -> Vec<CoveredWrite> {
    let mut left = Vec::new();
    for (at, what) in done.iter().enumerate() {
        let Done::Write(site, offset_bytes, bytes) = what else { continue };
        let flushed = done[at..].iter().any(|later| matches!(later, Done::Flush(drive) if drive == site));
        for (sector, bytes) in (0..).zip(bytes.chunks(SECTOR_BYTES)) {
            if flushed || choose(2) == 1 {
                let offset_bytes = offset_bytes + sector * SECTOR_BYTES as u64;
                left.push(CoveredWrite { site: *site, step: 0, offset_bytes, bytes: bytes.to_vec() });
            }
        }
    }
    left
}

/// Wherever a new array is cut short, its members are what they were again.
#[test]
fn a_create_that_is_cut_short_is_taken_back() {
    for (level, version, consistency) in [
        (Level::Raid5, Version::V12, Consistency::Ppl),
        (Level::Raid1, Version::V10, Consistency::Bitmap { chunk_bytes: None }),
        (Level::Raid6, Version::V11, Consistency::Bitmap { chunk_bytes: None }),
        (Level::Raid5, Version::V090, Consistency::Resync),
    ] {
        let (log, done) = create(level, version, consistency);
        let writes = done.iter().filter(|what| matches!(what, Done::Write(..))).count();
        assert!(writes >= 4, "{level} {version}: {writes} writes");
        on_a_core(async move |core| {
            let before: Vec<_> = (0..4).map(old).collect();
            let drives: Vec<_> = (0..4).map(|_| Device::mem(MEMBER_BYTES)).collect();
            for (drive, before) in drives.iter().zip(&before) {
                drive.write_blocking(0, before).unwrap();
            }
            let sites: Vec<_> = drives.iter().map(|drive| UndoSite::named("drive", drive)).collect();
            for cut in 0..=done.len() {
                for outcome in 0..6 {
                    let left = cut_short(&done[..cut], chooser(outcome));
                    carry_out(&core, &sites, &left).await.unwrap();
                    undo(core.clone(), sites.clone(), log.clone()).await.unwrap();
                    for CoveredWrite { site, offset_bytes, bytes, .. } in left {
                        let mut now = vec![0; bytes.len()];
                        drives[site].read_blocking(offset_bytes, &mut now).unwrap();
                        let before = &before[site][offset_bytes as usize..][..bytes.len()];
                        assert!(now == before, "{level} {version}, cut {cut}: byte {offset_bytes}");
                    }
                }
            }
            for (number, drive) in drives.iter().enumerate() {
                let mut now = vec![0; MEMBER_BYTES as usize];
                drive.read_blocking(0, &mut now).unwrap();
                assert!(now == before[number], "{level} {version}: every byte is what it was");
            }
        });
    }
}

/// A drive that is named instead of a log has no end that memory could hold, and a pipe may never
/// say anything.
#[test]
fn what_is_no_file_is_no_log() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("drive.undo")).unwrap();
    let listed = wattle_control::undo::list(dir.path()).unwrap();
    assert_eq!(listed[0].log.as_ref().unwrap_err().code, Code::NotFound);
    let problem = load(&listed[0].path).unwrap_err();
    assert!(problem.what.contains("it is no file"), "{problem:?}");
}
