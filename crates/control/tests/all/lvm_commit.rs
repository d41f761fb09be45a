//! Every way in which a commit to physical volumes can be cut short: the power goes at every
//! operation, and every subset of what was not flushed survives. The group found is the old one or
//! the new one, never neither, and what is found can be changed again.

use std::cell::RefCell;
use std::rc::Rc;

use wattle_control::lvm::commit::{self, CommitError, CommitRole, CommitSite, CommitStep, commit};
use wattle_control::lvm::edit::{self, NewPv};
use wattle_control::lvm::flags::{VolumeFlagChanges, set_flags};
use wattle_control::lvm::group;
use wattle_control::lvm::physical::{self, PhysicalVolume};
use wattle_control::lvm::plan::say_in_a_group;
use wattle_control::lvm::relocate::{self, WantedMove, next_step};
use wattle_control::{Code, Member, MemberId, Problem};
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{AreaState, Id, Label, Lv, LvSegment, Pv, SegmentKind, Stamp, Vg, choose};
use wattle_rt::{Buf, Core, Device, DriveConfig, Durability, RunOutcome, SimWorld, WorldConfig};

const SIZE_BYTES: u64 = 64 << 10;
const AREA_BYTES: u64 = 8 << 10;
/// Behind the first area.
const DATA: Area = Area { offset_bytes: 4096 + AREA_BYTES, size_bytes: 0 };

fn id(seed: u8) -> Id {
    Id::from_random([seed; 32])
}

/// A physical volume with one area at its start, or a second one at its end.
fn label(pv: u8, areas: u64) -> Label {
    let place = |offset_bytes| Area { offset_bytes, size_bytes: AREA_BYTES };
    let areas = [place(4096), place(SIZE_BYTES - AREA_BYTES)].into_iter().take(areas as usize).collect();
    Label::new(id(pv + 1), SIZE_BYTES, DATA, areas)
}

fn text(pvs: u8, seqno: u64) -> Vec<u8> {
    let mut vg = Vg::new("vg", id(99), 8);
    vg.seqno = seqno;
    for pv in 0..pvs {
        vg.pvs.push(Pv::new(&format!("pv{pv}"), id(pv + 1), SIZE_BYTES / 512, DATA.offset_bytes / 512, 4));
    }
    assert_eq!(vg.problems(), []);
    vg.to_text(&Stamp { description: String::new(), host: "h".to_owned(), time: 1 })
}

/// A world of physical volumes, and how to look at what is on them.
struct Rig {
    world: SimWorld,
    drives: Vec<Device>,
    pvs: u8,
    areas: u64,
}

impl Rig {
    fn new(pvs: u8, areas: u64, sector_bytes: u32) -> Rig {
        let mut world = SimWorld::new(WorldConfig::default());
        let drive = |_| {
            world.add_drive(DriveConfig { size_bytes: SIZE_BYTES, sector_bytes, ..DriveConfig::default() })
        };
        let drives = (0..pvs).map(drive).collect();
        Rig { world, drives, pvs, areas }
    }

    /// With the group at sequence number 1 on them, durably.
    fn with_group(pvs: u8, areas: u64, sector_bytes: u32) -> Rig {
        let mut rig = Rig::new(pvs, areas, sector_bytes);
        let sites = rig.run(async |core, rig| {
            let mut sites = Vec::new();
            for (pv, drive) in (0..).zip(&rig.drives) {
                let label = label(pv, rig.areas);
                let before = commit::initialise(&core, "pv", drive, &label, &[]).await?;
                sites.push(rig.site(pv, before));
            }
            Ok::<_, Problem>(sites)
        });
        let text = text(pvs, 1);
        rig.run(async |core, _| Ok(commit(&core, &text, &sites.unwrap()).await?)).unwrap();
        rig
    }

    fn run<T>(&mut self, main: impl AsyncFnOnce(Core, &Rig) -> Result<T, Problem>) -> Result<T, Problem> {
        let looked =
            Rig { world: SimWorld::new(WorldConfig::default()), drives: self.drives.clone(), ..*self };
        self.world.run(async |core| main(core, &looked).await).expect_done()
    }

    fn site(&self, pv: u8, before: PhysicalVolume) -> CommitSite {
        let mut label = label(pv, self.areas);
        say_in_a_group(&mut label, true);
        let device = self.drives[usize::from(pv)].clone();
        CommitSite { name: format!("pv{pv}"), device, before, label, role: CommitRole::Belongs }
    }

    /// What is on a physical volume now, as every command reads it.
    fn look(&self, pv: u8) -> Option<PhysicalVolume> {
        let bytes = self.world.drive(&self.drives[usize::from(pv)]).peek(0, SIZE_BYTES as usize);
        let copy = Device::mem(SIZE_BYTES);
        copy.write_blocking(0, &bytes).unwrap();
        physical::read(&Member::made_up("copy", copy)).transpose().unwrap()
    }

    fn sites(&self) -> Vec<CommitSite> {
        (0..self.pvs).map(|pv| self.site(pv, self.look(pv).unwrap())).collect()
    }

    /// The sequence number that counts; `None` for no group at all.
    fn seqno(&self) -> Option<u64> {
        let found: Vec<_> = (0..self.pvs).filter_map(|pv| self.look(pv)).collect();
        let states: Vec<_> =
            found.iter().flat_map(|physical| &physical.areas).map(|area| area.state).collect();
        assert!(
            states.iter().all(|state| !matches!(state, AreaState::Damaged(_) | AreaState::Unreadable)),
            "{states:?}"
        );
        if states.iter().all(|state| *state == AreaState::Empty) {
            return None;
        }
        let (chosen, _) = choose(&states).unwrap();
        let AreaState::Text { seqno, .. } = states[chosen] else { panic!("what was chosen is a text") };
        Some(seqno)
    }
}

/// Counts through all sequences of choices, however many there are of each.
#[derive(Default)]
struct Odometer {
    digits: Vec<(usize, usize)>,
    at: usize,
}

impl Odometer {
    fn choose(&mut self, among: usize) -> usize {
        if self.at == self.digits.len() {
            self.digits.push((0, among));
        }
        let (digit, radix) = self.digits[self.at];
        assert_eq!(radix, among, "equal choices lead to equal questions");
        self.at += 1;
        digit
    }

    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((digit, radix)) = self.digits.pop() {
            if digit + 1 < radix {
                self.digits.push((digit + 1, radix));
                return true;
            }
        }
        false
    }
}

/// Every outcome of a power cut at every operation of a commit from `old` (0: there is no group
/// yet) to the next text.
fn explore(pvs: u8, areas: u64, sector_bytes: u32, old: u64) -> (u32, u32) {
    let (mut found_old, mut found_new) = (0, 0);
    for cut in 1.. {
        let odometer = Rc::new(RefCell::new(Odometer::default()));
        let finished = loop {
            let mut rig = Rig::with_group(pvs, areas, sector_bytes);
            if old == 0 {
                rig = Rig::new(pvs, areas, sector_bytes);
                rig.run(async |core, rig| {
                    for (pv, drive) in (0..).zip(&rig.drives) {
                        commit::initialise(&core, "pv", drive, &label(pv, rig.areas), &[]).await?;
                    }
                    Ok(())
                })
                .unwrap();
            }
            let (sites, text) = (rig.sites(), text(pvs, old + 1));
            let chooser = odometer.clone();
            rig.world.choose_power_cuts(move |n| chooser.borrow_mut().choose(n));
            rig.world.power_cut_after_ops(cut);
            let outcome = rig.world.run(async |core| commit(&core, &text, &sites).await);
            let finished = match outcome {
                RunOutcome::Done(result) => {
                    assert_eq!(result, Ok(vec![]));
                    true
                }
                RunOutcome::PowerCut => false,
                other => panic!("{other:?}"),
            };
            rig.world.cancel_power_cut();
            let seqno = rig.seqno().unwrap_or(0);
            match seqno {
                seqno if seqno == old => found_old += 1,
                seqno if seqno == old + 1 => found_new += 1,
                seqno => panic!("{seqno} after {old}: {pvs} PVs, {areas} areas, cut {cut}"),
            }
            assert!(!finished || seqno == old + 1);
            // The next run finds it so and goes on from there.
            if odometer.borrow().digits.len() < 4 {
                let (sites, again) = (rig.sites(), self::text(pvs, seqno + 1));
                rig.run(async |core, _| Ok(commit(&core, &again, &sites).await?)).unwrap();
                assert_eq!(rig.seqno(), Some(seqno + 1));
                let in_vg = |pv| rig.look(pv).unwrap().label.extension.unwrap().in_vg();
                assert!((0..pvs).all(in_vg), "labels follow");
            }
            if !odometer.borrow_mut().advance() {
                break finished;
            }
        };
        if finished {
            return (found_old, found_new);
        }
    }
    unreachable!("a commit has an end")
}

#[test]
fn a_crash_leaves_the_old_group_or_the_new_one() {
    let mut outcomes = 0;
    for (pvs, areas) in [(1, 1), (1, 2), (3, 1), (3, 2)] {
        for old in [0, 1] {
            let (found_old, found_new) = explore(pvs, areas, 512, old);
            assert!(
                found_old > 8 && found_new > 2,
                "{pvs} PVs, {areas} areas: {found_old} old, {found_new} new"
            );
            outcomes += found_old + found_new;
        }
    }
    assert!(outcomes > 500, "{outcomes}");
}

/// Where a header shares its block with the start of the ring.
#[test]
fn a_crash_on_drives_of_large_sectors_does_too() {
    for (pvs, areas) in [(1, 2), (3, 1)] {
        explore(pvs, areas, 4096, 1);
    }
}

/// The physical volumes of a world.
struct Seen(Vec<PhysicalVolume>);

impl physical::Members for Seen {
    fn ids(&self) -> impl Iterator<Item = MemberId> {
        (0..self.0.len()).map(MemberId::nth)
    }

    fn name(&self, _: MemberId) -> &str {
        "pv"
    }

    fn physical(&self, member: MemberId) -> Option<&PhysicalVolume> {
        (0..).map(MemberId::nth).zip(&self.0).find(|(id, _)| *id == member).map(|(_, seen)| seen)
    }
}

/// A physical volume that a commit was to reach last is known by the text that is about to count
/// on it. The next commit must not write over that one: cut short itself, it would leave a drive
/// that looks older than the group, and what lies on it would be refused.
#[test]
fn two_crashes_in_a_row_make_no_physical_volume_look_older() {
    let (mut between, mut crashes) = (0, 0);
    for keep in [[false; 2], [false, true], [true, false], [true; 2]] {
        for first in 1.. {
            let mut first_finished = false;
            for second in 1.. {
                let mut rig = Rig::with_group(2, 1, 512);
                let mut crash = |cut: u64, keep: bool| {
                    let seqno = rig.seqno().unwrap();
                    let (sites, text) = (rig.sites(), text(2, seqno + 1));
                    rig.world.choose_power_cuts(move |among| if keep { among - 1 } else { 0 });
                    rig.world.power_cut_after_ops(cut);
                    let outcome = rig.world.run(async |core| commit(&core, &text, &sites).await);
                    rig.world.cancel_power_cut();
                    matches!(outcome, RunOutcome::Done(_))
                };
                first_finished = crash(first, keep[0]);
                let second_finished = crash(second, keep[1]);
                crashes += 1;
                let seen = Seen((0..2).filter_map(|pv| rig.look(pv)).collect());
                let [group] = &group::on(&seen)[..] else { panic!("one group") };
                let seqnos: Vec<_> = seen.0.iter().filter_map(|of| Some(of.own_group()?.seqno)).collect();
                between += u32::from(seqnos[0] != seqnos[1]);
                assert!(group.problem.is_none() && !group.is_in_doubt, "{first}, {second}: {keep:?}");
                assert!(group.older.iter().all(Option::is_none), "{first}, {second}: {keep:?}: {seqnos:?}");
                let (sites, next) = (rig.sites(), text(2, group.vg.seqno + 1));
                rig.run(async |core, _| Ok(commit(&core, &next, &sites).await?)).unwrap();
                assert_eq!(rig.seqno(), Some(group.vg.seqno + 1));
                if second_finished {
                    break;
                }
            }
            if first_finished {
                break;
            }
        }
    }
    assert!(crashes > 400 && between > 20, "{crashes} crashes, {between} between two headers");
}

fn stamp() -> Stamp {
    Stamp { description: String::new(), host: "h".to_owned(), time: 1 }
}

/// Every outcome of a power cut at every operation of a change to `new`, of physical volumes that
/// get these roles; those that `old` does not name are made while it runs. How often the old group
/// is found, and the new one.
fn explore_change(what: &str, old: &Vg, new: &Vg, roles: [CommitRole; 3]) -> (u32, u32) {
    let (mut found_old, mut found_new) = (0, 0);
    let in_old = old.pvs.len() as u8;
    let texts = [old, new].map(|vg| vg.to_text(&stamp()));
    for cut in 1.. {
        let odometer = Rc::new(RefCell::new(Odometer::default()));
        let finished = loop {
            let mut rig = Rig::new(3, 1, 512);
            let old_text = texts[0].clone();
            rig.run(async |core, rig| {
                let mut sites = Vec::new();
                for pv in 0..in_old {
                    let drive = &rig.drives[usize::from(pv)];
                    let before = commit::initialise(&core, "pv", drive, &label(pv, 1), &[]).await?;
                    sites.push(rig.site(pv, before));
                }
                Ok(commit(&core, &old_text, &sites).await?)
            })
            .unwrap();
            let sites: Vec<_> = (0..3).map(|pv| rig.look(pv).map(|before| rig.site(pv, before))).collect();
            let (drives, new_text) = (rig.drives.clone(), texts[1].clone());
            let blank = rig.site(0, rig.look(0).unwrap());
            let (chooser, sites) = (odometer.clone(), &sites);
            rig.world.choose_power_cuts(move |n| chooser.borrow_mut().choose(n));
            rig.world.power_cut_after_ops(cut);
            let outcome = rig.world.run(async |core| {
                let mut all = Vec::new();
                for (pv, site) in (0..).zip(sites) {
                    let mut site = match site {
                        Some(site) => site.clone(),
                        None => {
                            let (drive, label) = (drives[usize::from(pv)].clone(), label(pv, 1));
                            let before = commit::initialise(&core, "pv", &drive, &label, &[]).await.unwrap();
                            let mut label = label;
                            say_in_a_group(&mut label, true);
                            CommitSite { device: drive, before, label, ..blank.clone() }
                        }
                    };
                    site.role = roles[usize::from(pv)];
                    say_in_a_group(&mut site.label, site.role == CommitRole::Belongs);
                    all.push(site);
                }
                commit(&core, &new_text, &all).await
            });
            let finished = matches!(outcome, RunOutcome::Done(_));
            rig.world.cancel_power_cut();
            let group = found(&rig);
            let now = group.to_text(&stamp());
            let at = texts.iter().position(|text| *text == now);
            match at.unwrap_or_else(|| panic!("{what}: neither, after {cut}")) {
                0 => found_old += 1,
                _ => found_new += 1,
            }
            assert!(!finished || at == Some(1), "{what}");
            let there = |pv: &Pv| (0..3).any(|at| rig.look(at).is_some_and(|found| found.label.id == pv.id));
            assert!(
                group.pvs.iter().all(there),
                "{what}: a physical volume of it is none any more, after {cut}"
            );
            if !odometer.borrow_mut().advance() {
                break finished;
            }
        };
        if finished {
            return (found_old, found_new);
        }
    }
    unreachable!("a commit has an end")
}

#[test]
fn a_crash_in_any_change_leaves_the_group_before_it_or_the_one_after() {
    use CommitRole::{Belongs, Leaves};
    let mut two = Vg::parse(&text(2, 1)).unwrap();
    two.lvs.push(Lv::new("a", id(50), &stamp(), vec![LvSegment::linear(0, 2, "pv0", 1)]));
    two.lvs.push(Lv::new("b", id(51), &stamp(), vec![LvSegment::linear(0, 1, "pv1", 0)]));
    let mut three = two.clone();
    three.pvs = Vg::parse(&text(3, 1)).unwrap().pvs;
    let new_pv = |seed: u8| NewPv {
        id: id(seed),
        device: "d".to_owned(),
        dev_sectors: SIZE_BYTES / 512,
        pe_start: DATA.offset_bytes / 512,
        pe_count: 4,
        block_bytes: 512,
    };
    let read_only = VolumeFlagChanges { read_only: Some(true), ..VolumeFlagChanges::default() };
    let changes = [
        ("reduce", &three, edit::reduce_volume(&three, "a", 1), [Belongs; 3]),
        ("remove", &three, edit::remove_volume(&three, "a"), [Belongs; 3]),
        ("rename", &three, edit::rename_volume(&three, "a", "c"), [Belongs; 3]),
        ("flags", &three, set_flags(&three, "a", read_only), [Belongs; 3]),
        ("vg rename", &three, edit::rename_group(&three, "pool"), [Belongs; 3]),
        ("vg reduce", &three, edit::remove_physical(&three, &id(3), &"pv"), [Belongs, Belongs, Leaves]),
        ("vg extend", &two, edit::add_physical(&two, &[new_pv(3)]), [Belongs; 3]),
    ];
    for (what, old, new, roles) in changes {
        let (found_old, found_new) = explore_change(what, old, &new.unwrap(), roles);
        assert!(found_old > 8 && found_new > 2, "{what}: {found_old} old, {found_new} new");
    }
}

/// Extents of a volume on the first of two physical volumes, and what it holds.
const EXTENT_BYTES: u64 = 1024;
const MOVING: u64 = 2;

fn content(extent: u64) -> Vec<u8> {
    vec![0x40 + extent as u8; EXTENT_BYTES as usize]
}

fn extent_at(extent: u64) -> u64 {
    DATA.offset_bytes + extent * EXTENT_BYTES
}

/// The group with a volume that has not moved yet.
fn with_volume() -> Vg {
    let stamp = Stamp { description: String::new(), host: "h".to_owned(), time: 1 };
    let mut vg = Vg::parse(&text(2, 1)).unwrap();
    vg.extent_sectors = EXTENT_BYTES / 512;
    vg.lvs.push(Lv::new("lv", id(50), &stamp, vec![LvSegment::linear(0, MOVING, "pv0", 1)]));
    vg
}

/// Takes the next step off `pv0`, as a command does that was interrupted anywhere before: from what
/// is there.
async fn take_a_step(core: &Core, drives: &[Device], sites: &[CommitSite], vg: &Vg) -> Option<Vec<u8>> {
    let wanted = WantedMove { from: "pv0", volume: None, on: &[], extents_max: 1 };
    let step = next_step(vg, wanted).unwrap()?;
    let (from, to) = (extent_at(step.from.extent), extent_at(step.to.extent));
    let len = step.extents * EXTENT_BYTES;
    relocate::copy(core, (&drives[0], from), (&drives[1], to), len).await.unwrap();
    let text = step.after.to_text(&Stamp { description: String::new(), host: "h".to_owned(), time: 2 });
    assert_eq!(commit(core, &text, sites).await, Ok(vec![]));
    Some(text)
}

/// The text that counts.
fn found(rig: &Rig) -> Vg {
    let seqno = rig.seqno().unwrap();
    let physical: Vec<_> = (0..rig.pvs).filter_map(|pv| rig.look(pv)).collect();
    let texts = physical.iter().flat_map(|physical| &physical.areas).filter_map(|area| area.text.clone());
    texts.map(|(_, vg)| vg).find(|vg| vg.seqno == seqno).unwrap()
}

fn check_content(rig: &Rig, vg: &Vg) {
    for segment in &vg.lvs[0].segments {
        let SegmentKind::Striped { stripes, .. } = &segment.kind else { panic!("{segment:?}") };
        let drive = &rig.drives[usize::from(stripes[0].name == "pv1")];
        for extent in 0..segment.extents {
            let bytes =
                rig.world.drive(drive).peek(extent_at(stripes[0].extent + extent), EXTENT_BYTES as usize);
            assert!(bytes == content(segment.start_extent + extent), "{segment:?}");
        }
    }
    assert_eq!(vg.lvs[0].extents(), MOVING);
}

/// Whatever survives of a move in two steps that is cut short at any operation, the volume that is
/// found holds what it held, and the same command brings the move to its end.
#[test]
fn a_crash_while_extents_move_leaves_them_there_or_here() {
    let (mut at_home, mut half, mut moved) = (0, 0, 0);
    for cut in 1.. {
        let odometer = Rc::new(RefCell::new(Odometer::default()));
        let finished = loop {
            let mut rig = Rig::with_group(2, 1, 512);
            let sites = rig.sites();
            let mut vg = with_volume();
            vg.seqno = 2;
            let second = vg.to_text(&Stamp { description: String::new(), host: "h".to_owned(), time: 1 });
            rig.run(async |core, rig| {
                for extent in 0..MOVING {
                    let bytes = Buf::copy_of(&content(extent));
                    let written = core.write(&rig.drives[0], extent_at(1 + extent), bytes, Durability::Fua);
                    written.await.unwrap();
                }
                Ok(commit(&core, &second, &sites).await?)
            })
            .unwrap();
            let (chooser, drives) = (odometer.clone(), rig.drives.clone());
            rig.world.choose_power_cuts(move |n| chooser.borrow_mut().choose(n));
            rig.world.power_cut_after_ops(cut);
            let (sites, start) = (rig.sites(), found(&rig));
            let outcome = rig.world.run(async |core| take_a_step(&core, &drives, &sites, &start).await);
            let mut finished = matches!(outcome, RunOutcome::Done(_));
            if finished {
                let (sites, then) = (rig.sites(), found(&rig));
                let outcome = rig.world.run(async |core| take_a_step(&core, &drives, &sites, &then).await);
                finished = matches!(outcome, RunOutcome::Done(_));
            }
            rig.world.cancel_power_cut();
            let now = found(&rig);
            check_content(&rig, &now);
            match now.lvs[0]
                .segments
                .iter()
                .map(|segment| segment.kind.references()[0].to_owned())
                .collect::<Vec<_>>()
            {
                places if places == ["pv0"] => at_home += 1,
                places if places == ["pv1"] => moved += 1,
                places => {
                    assert_eq!(places, ["pv1", "pv0"]);
                    half += 1;
                }
            }
            // The next run finds it so and goes on.
            if odometer.borrow().digits.len() < 3 {
                let mut vg = now;
                for _ in 0..3 {
                    let sites = rig.sites();
                    let outcome = rig.world.run(async |core| take_a_step(&core, &drives, &sites, &vg).await);
                    if outcome.expect_done().is_none() {
                        break;
                    }
                    vg = found(&rig);
                    check_content(&rig, &vg);
                }
                let segments = &vg.lvs[0].segments;
                assert_eq!(
                    (segments.len(), &segments[0].kind),
                    (1, &LvSegment::linear(0, MOVING, "pv1", 0).kind)
                );
            }
            if !odometer.borrow_mut().advance() {
                break finished;
            }
        };
        if finished {
            break;
        }
    }
    assert!(at_home > 10 && half > 10 && moved > 2, "{at_home} {half} {moved}");
}

#[test]
fn what_changed_meanwhile_is_not_written() {
    let mut rig = Rig::with_group(3, 1, 512);
    let (sites, second) = (rig.sites(), text(3, 2));
    let mut other = text(3, 2);
    other.extend(b"# by somebody else\n");
    let theirs = rig.sites();
    rig.run(async |core, _| Ok(commit(&core, &other, &theirs).await?)).unwrap();
    let before: Vec<_> =
        rig.drives.iter().map(|drive| rig.world.drive(drive).peek(0, SIZE_BYTES as usize)).collect();
    let refused = rig.world.run(async |core| commit(&core, &second, &sites).await).expect_done();
    assert_eq!(refused, Err(CommitError::Changed { name: "pv0".to_owned() }));
    assert_eq!(Problem::from(refused.unwrap_err()).exit_code(), 3);
    let after: Vec<_> =
        rig.drives.iter().map(|drive| rig.world.drive(drive).peek(0, SIZE_BYTES as usize)).collect();
    assert!(before == after);
}

/// Nothing counts yet that was written before.
#[test]
fn a_drive_that_does_not_take_the_text_ends_the_change() {
    let mut rig = Rig::with_group(3, 1, 512);
    let (sites, second) = (rig.sites(), text(3, 2));
    rig.world.drive(&rig.drives[1]).fail_next_flushes(1);
    let failed = rig.world.run(async |core| commit(&core, &second, &sites).await).expect_done().unwrap_err();
    assert!(
        matches!(&failed, CommitError::NotWritten { name, step: CommitStep::Text, .. } if name == "pv1"),
        "{failed:?}"
    );
    assert_eq!(Problem::from(failed).code, Code::GroupNotWritten);
    let held = |rig: &Rig, pv: u8| rig.look(pv).unwrap().areas[0].text.as_ref().unwrap().1.seqno;
    assert_eq!([0, 1, 2].map(|pv| held(&rig, pv)), [1; 3]);
    let sites = rig.sites();
    let told = rig.run(async |core, _| Ok(commit(&core, &second, &sites).await?)).unwrap();
    assert_eq!(told, Vec::<String>::new());
    assert_eq!([0, 1, 2].map(|pv| held(&rig, pv)), [2; 3]);
}

#[test]
fn who_leaves_is_emptied_and_who_goes_is_no_physical_volume() {
    let mut rig = Rig::with_group(3, 2, 512);
    let mut sites = rig.sites();
    for (site, role) in sites.iter_mut().skip(1).zip([CommitRole::Leaves, CommitRole::Goes]) {
        site.role = role;
        say_in_a_group(&mut site.label, false);
    }
    let alone = text(1, 2);
    assert_eq!(
        rig.run(async |core, _| Ok(commit(&core, &alone, &sites).await?)).unwrap(),
        Vec::<String>::new()
    );
    let left = rig.look(1).unwrap();
    assert!(!left.label.extension.unwrap().in_vg());
    assert!(left.areas.iter().all(|area| area.state == AreaState::Empty));
    assert!(rig.look(2).is_none());
    rig.pvs = 2;
    assert_eq!(rig.seqno(), Some(2));
}
