//! Earlier texts of groups that are put in force again, or are not: what they would make look
//! current although it is out of date, and groups that are not this host's to change.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;
use wattle_control::lvm::plan::{GroupPlan, restore};
use wattle_control::members::{Keyring, MemberAccess};
use wattle_control::scan::scan;
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions};
use wattle_control::{Check, Code, Forced, Problem};
use wattle_format::lvm::area::Header;
use wattle_format::lvm::label::Extension;
use wattle_format::lvm::{Id, Label, Lv, LvSegment, Pv, Stamp, Vg};
use wattle_rt::RuntimeConfig;

const PV_BYTES: u64 = 32 << 20;
const EXTENT_SECTORS: u64 = 2048;
const PVS: u8 = 3;

fn id(seed: u8) -> Id {
    Id::from_random([seed; 32])
}

fn stamp() -> Stamp {
    Stamp { description: String::new(), host: "h".to_owned(), time: 1 }
}

fn label(pv: u8) -> Label {
    let mut label = Label::create(id(pv), PV_BYTES, 0).unwrap();
    label.extension = Some(Extension::new(true));
    label
}

/// A group whose one volume has its extents on the first physical volume; the others are free.
fn group(seqno: u64) -> Vg {
    let mut vg = Vg::new("data", id(99), EXTENT_SECTORS);
    vg.seqno = seqno;
    for pv in 0..PVS {
        let label = label(pv);
        let (start, count) = (label.data_areas[0].offset_bytes / 512, label.pe_count(EXTENT_SECTORS));
        vg.pvs.push(Pv::new(&format!("pv{pv}"), label.id, PV_BYTES / 512, start, count));
    }
    vg.lvs.push(Lv::new("home", id(50), &stamp(), vec![LvSegment::linear(0, 8, "pv0", 0)]));
    assert_eq!(vg.problems(), []);
    vg
}

/// Files, each with a text of its own.
struct Rig {
    dir: TempDir,
}

impl Rig {
    fn new(texts: [&Vg; PVS as usize]) -> Self {
        let rig = Self { dir: tempfile::tempdir().unwrap() };
        for (pv, vg) in (0..).zip(texts) {
            let (file, label) = (File::create(rig.path(pv)).unwrap(), label(pv));
            file.set_len(PV_BYTES).unwrap();
            file.write_all_at(&label.encode().unwrap(), 512).unwrap();
            let header = Header::new(label.metadata_areas[0]).unwrap();
            let commit = header.commit(&vg.to_text(&stamp())).unwrap();
            for (at, bytes) in &commit.texts {
                file.write_all_at(bytes, *at).unwrap();
            }
            file.write_all_at(commit.commit.bytes(), commit.commit.start()).unwrap();
        }
        rig
    }

    fn path(&self, pv: u8) -> PathBuf {
        self.dir.path().join(format!("pv{pv}.img"))
    }

    /// What comes of putting this text in force.
    fn restore(&self, saved: &Vg, forced: Forced) -> Result<GroupPlan, Problem> {
        let names: Vec<_> = (0..PVS).map(|pv| self.path(pv).to_str().unwrap().to_owned()).collect();
        let scan = scan(MemberAccess::local().look_all(&names).unwrap(), Forced::default()).unwrap();
        let text = saved.to_text(&stamp());
        let plan = wattle_rt::run(RuntimeConfig::default(), async |core| {
            let (policy, purpose) = (forced.into(), Purpose::Look);
            let options = StackOptions { policy, purpose, wanted: None, keys: Keyring::default() };
            let stack = Stack::open(&core, scan, options, &mut Plain).await.unwrap();
            let plan = restore(&stack.scan, &stack.groups, ("data", &text), forced);
            stack.close(&core).await.unwrap();
            plan
        });
        plan.unwrap()
    }
}

fn refused(done: Result<GroupPlan, Problem>, (code, force): (Code, Option<Check>), words: &[&str]) {
    let problem = done.unwrap_err();
    assert_eq!((problem.code, problem.force), (code, force), "{problem:?}");
    let text = format!("{problem:?}");
    assert!(words.iter().all(|word| text.contains(word)), "{problem:?}");
}

#[test]
fn a_physical_volume_with_an_older_text_is_not_taken_back_without_asking() {
    let (now, older) = (group(7), group(6));
    let rig = Rig::new([&older, &now, &now]);
    let asked = (Code::OlderPhysical, Some(Check::OlderPhysical));
    refused(rig.restore(&group(3), Forced::default()), asked, &["pv0.img", "6", "7"]);
    let plan = rig.restore(&group(3), Forced::default().with(Check::OlderPhysical)).unwrap();
    assert_eq!(plan.after.unwrap().seqno, 8);
    // Nothing lies on it, by either text.
    assert!(Rig::new([&now, &older, &now]).restore(&group(3), Forced::default()).is_ok());
    // By the earlier text something does.
    let mut saved = group(3);
    saved.lvs.push(Lv::new("old", id(51), &stamp(), vec![LvSegment::linear(0, 1, "pv1", 0)]));
    refused(Rig::new([&now, &older, &now]).restore(&saved, Forced::default()), asked, &["pv1.img"]);
    // The group went on without it.
    let mut without = group(7);
    without.pvs[0].flags.push("MISSING".to_owned());
    let rig = Rig::new([&older, &without, &without]);
    refused(rig.restore(&group(3), Forced::default()), asked, &["pv0.img", "went on without"]);
    assert!(rig.restore(&without, Forced::default()).is_ok(), "by that text it stays missing");
}

#[test]
fn a_group_that_is_not_here_to_change_gets_no_earlier_text() {
    let saved = group(3);
    let foreign = |change: &dyn Fn(&mut Vg), words: &str| {
        let mut now = group(7);
        change(&mut now);
        let rig = Rig::new([&now, &now, &now]);
        refused(rig.restore(&saved, Forced::default()), (Code::ForeignVolumeGroup, None), &[words]);
    };
    foreign(&|vg| vg.system_id = Some("hostB".to_owned()), "hostB");
    foreign(&|vg| vg.lock_type = Some("sanlock".to_owned()), "sanlock");
    for word in ["CLUSTERED", "SHARED", "PVMOVE"] {
        foreign(&|vg| vg.status.push(word.to_owned()), word);
    }
    foreign(&|vg| vg.status.push("EXPORTED".to_owned()), "exported");
}

#[test]
fn a_volume_that_was_moved_since_is_not_led_back_to_what_it_held() {
    let mut now = group(7);
    now.lvs[0].segments = vec![LvSegment::linear(0, 4, "pv0", 0), LvSegment::linear(4, 4, "pv1", 4)];
    assert_eq!(now.problems(), []);
    let rig = Rig::new([&now, &now, &now]);
    let asked = (Code::WrittenSince, Some(Check::WrittenSince));
    refused(rig.restore(&group(3), Forced::default()), asked, &["data/home", "pv0.img", "pv1.img"]);
    assert!(rig.restore(&group(3), Forced::default().with(Check::WrittenSince)).is_ok());
    // Cut differently, or of another length, it is in the same place.
    let mut saved = group(3);
    saved.lvs[0].segments = vec![
        LvSegment::linear(0, 1, "pv0", 0),
        LvSegment::linear(1, 3, "pv0", 1),
        LvSegment::linear(4, 4, "pv1", 4),
        LvSegment::linear(8, 1, "pv2", 0),
    ];
    assert!(rig.restore(&saved, Forced::default()).is_ok());
    saved.lvs[0].id = id(51);
    assert!(rig.restore(&saved, Forced::default()).is_ok(), "another volume of that name");
}

#[test]
fn a_text_that_needs_more_than_the_device_has_is_not_restored() {
    let now = group(7);
    let rig = Rig::new([&now, &now, &now]);
    File::options().write(true).open(rig.path(2)).unwrap().set_len(PV_BYTES / 2).unwrap();
    refused(rig.restore(&group(3), Forced::default()), (Code::BadVolume, None), &["pv2.img", "no room"]);
}
