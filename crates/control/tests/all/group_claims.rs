//! Which group a physical volume is in, where the texts of several speak of it.

use std::collections::BTreeMap;

use wattle_control::lvm::GroupScan;
use wattle_control::lvm::commit::{self, CommitRole, CommitSite};
use wattle_control::lvm::edit::{self, NewLv};
use wattle_control::lvm::group;
use wattle_control::lvm::physical::{self, Members, PhysicalVolume};
use wattle_control::lvm::plan::{GroupPlan, say_in_a_group};
use wattle_control::{Code, Member, MemberId};
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{Id, Label, Lv, LvSegment, Pv, Stamp, Vg};
use wattle_rt::{Core, Device, RuntimeConfig};

const SIZE_BYTES: u64 = 8 << 20;
const DATA_BYTES: u64 = 1 << 20;
const EXTENT_BYTES: u64 = 64 << 10;
const FIRST: Area = Area { offset_bytes: 4096, size_bytes: DATA_BYTES - 4096 };
const SECOND: Area = Area { offset_bytes: 7 << 20, size_bytes: 1 << 20 };

fn id(seed: u8) -> Id {
    Id::from_random([seed; 32])
}

fn stamp() -> Stamp {
    Stamp { description: String::new(), host: "h".to_owned(), time: 1 }
}

/// A physical volume in memory.
struct Drive {
    name: &'static str,
    id: Id,
    bytes: Device,
}

impl Drive {
    async fn new(core: &Core, name: &'static str, seed: u8, areas: &[Area]) -> Self {
        let data = Area { offset_bytes: DATA_BYTES, size_bytes: 0 };
        let label = Label::new(id(seed), SIZE_BYTES, data, areas.to_vec());
        let bytes = Device::mem(SIZE_BYTES);
        commit::initialise(core, name, &bytes, &label, &[]).await.unwrap();
        Self { name, id: id(seed), bytes }
    }

    fn physical(&self) -> PhysicalVolume {
        physical::read(&Member::made_up(self.name, self.bytes.clone())).unwrap().unwrap()
    }
}

/// A group on these, with a volume on the first of them.
fn group_of(name: &str, seed: u8, drives: &[&Drive]) -> Vg {
    let mut vg = Vg::new(name, id(seed), EXTENT_BYTES / 512);
    for (at, drive) in drives.iter().enumerate() {
        vg.pvs.push(Pv::new(&format!("pv{at}"), drive.id, SIZE_BYTES / 512, DATA_BYTES / 512, 64));
    }
    vg.lvs.push(Lv::new("lv", id(seed + 1), &stamp(), vec![LvSegment::linear(0, 2, "pv0", 0)]));
    vg
}

/// Makes it the text of these drives alone, whichever the group has.
async fn put(core: &Core, vg: &Vg, drives: &[&Drive]) {
    let site = |drive: &&Drive| {
        let before = drive.physical();
        let mut label = before.label.clone();
        say_in_a_group(&mut label, true);
        let (name, device) = (drive.name.to_owned(), drive.bytes.clone());
        CommitSite { name, device, before, label, role: CommitRole::Belongs }
    };
    let sites: Vec<_> = drives.iter().map(site).collect();
    assert_eq!(commit::commit(core, &vg.to_text(&stamp()), &sites).await, Ok(vec![]));
}

/// What is seen of them.
struct Seen(BTreeMap<MemberId, (&'static str, PhysicalVolume)>);

impl Seen {
    fn of(drives: &[&Drive]) -> Self {
        let seen = |(at, drive): (usize, &&Drive)| (MemberId::nth(at), (drive.name, drive.physical()));
        Self(drives.iter().enumerate().map(seen).collect())
    }

    fn group(&self, name: &str) -> GroupScan {
        group::on(self).into_iter().find(|group| group.vg.name == name).unwrap()
    }

    fn names(&self, group: &GroupScan) -> Vec<Option<&str>> {
        group.devices.iter().map(|device| device.map(|member| self.name(member))).collect()
    }
}

impl Members for Seen {
    fn ids(&self) -> impl Iterator<Item = MemberId> {
        self.0.keys().copied()
    }

    fn name(&self, member: MemberId) -> &str {
        self.0[&member].0
    }

    fn physical(&self, member: MemberId) -> Option<&PhysicalVolume> {
        Some(&self.0[&member].1)
    }
}

fn with_core(test: impl AsyncFnOnce(&Core)) {
    wattle_rt::run(RuntimeConfig::default(), async |core| test(&core).await).unwrap();
}

/// As when a drive comes back that was away while its group was ended and the other one used again.
#[test]
fn a_physical_volume_is_not_in_an_earlier_group_of_which_another_drive_comes_back() {
    with_core(async |core| {
        let (a, b) = (Drive::new(core, "a", 1, &[FIRST]).await, Drive::new(core, "b", 2, &[FIRST]).await);
        put(core, &group_of("old", 10, &[&a, &b]), &[&a, &b]).await;
        put(core, &group_of("new", 20, &[&a]), &[&a]).await;
        for seen in [Seen::of(&[&a, &b]), Seen::of(&[&b, &a])] {
            let (old, new) = (seen.group("old"), seen.group("new"));
            assert_eq!(seen.names(&new), [Some("a")]);
            assert_eq!(seen.names(&old), [None, Some("b")]);
            assert!(old.problem.is_none() && new.problem.is_none() && new.notes.is_empty());
            assert!(
                old.notes.iter().any(|note| note.contains("a belongs to the group new")),
                "{:?}",
                old.notes
            );
            let refused = edit::check_changeable(&old, edit::State::Here).unwrap_err();
            assert_eq!(refused.code, Code::MissingPhysical, "{refused:?}");
            edit::check_changeable(&new, edit::State::Here).unwrap();
        }
    });
}

#[test]
fn a_physical_volume_that_does_not_say_in_which_of_two_groups_it_is_is_used_for_neither() {
    with_core(async |core| {
        let bare = Drive::new(core, "bare", 1, &[]).await;
        let (b, c) = (Drive::new(core, "b", 2, &[FIRST]).await, Drive::new(core, "c", 3, &[FIRST]).await);
        put(core, &group_of("old", 10, &[&bare, &b]), &[&b]).await;
        put(core, &group_of("new", 20, &[&bare, &c]), &[&c]).await;
        let seen = Seen::of(&[&bare, &b, &c]);
        for name in ["old", "new"] {
            let problem = seen.group(name).problem.unwrap();
            assert_eq!(problem.code, Code::SplitVolumeGroup, "{problem:?}");
            assert!(problem.what.contains("old and of new"), "{problem:?}");
        }
        assert_eq!(Seen::of(&[&bare, &c]).group("new").problem, None);
    });
}

/// Each half without the other one: what `vgreduce --removemissing --force` makes of both.
#[test]
fn a_half_that_a_group_went_on_without_has_not_left_it_while_volumes_are_on_it() {
    with_core(async |core| {
        let (a, b) = (Drive::new(core, "a", 1, &[FIRST]).await, Drive::new(core, "b", 2, &[FIRST]).await);
        let half = |drive: &Drive, seqno| {
            let mut vg = group_of("vg", 10, &[drive]);
            vg.seqno = seqno;
            vg
        };
        put(core, &half(&a, 5), &[&a]).await;
        put(core, &half(&b, 6), &[&b]).await;
        let seen = Seen::of(&[&a, &b]);
        let group = seen.group("vg");
        assert_eq!(seen.names(&group), [Some("b")]);
        assert!(!group.has_left(&a.physical()));
        assert!(group.notes.iter().any(|note| note.contains("by which lv lie on it")), "{:?}", group.notes);
        // As a cut leaves it between the commit of `vg reduce` and what follows.
        let mut empty = half(&a, 5);
        empty.lvs.clear();
        let c = Drive::new(core, "c", 1, &[FIRST]).await;
        put(core, &empty, &[&c]).await;
        assert!(Seen::of(&[&c, &b]).group("vg").has_left(&c.physical()));
    });
}

#[test]
fn no_extent_lies_on_a_metadata_area_behind_the_data() {
    with_core(async |core| {
        let a = Drive::new(core, "a", 1, &[FIRST, SECOND]).await;
        put(core, &group_of("vg", 10, &[&a]), &[&a]).await;
        let seen = Seen::of(&[&a]);
        let group = seen.group("vg");
        let resized = |extents| edit::resize_physical(&group.vg, &a.id, SIZE_BYTES / 512, extents).unwrap();
        assert!(GroupPlan::change(&seen, &group, resized(96)).is_ok());
        let refused = GroupPlan::change(&seen, &group, resized(97)).unwrap_err();
        assert_eq!(refused.code, Code::BadVolume, "{refused:?}");
        // What was made so before is not changed on top of it.
        put(core, &resized(97), &[&a]).await;
        let seen = Seen::of(&[&a]);
        let group = seen.group("vg");
        let new = NewLv {
            name: "new",
            id: id(30),
            extents: 1,
            at_most: false,
            stripes: 1,
            stripe_sectors: 0,
            on: &[],
        };
        let more = edit::create_volume(&group.vg, &new, &stamp()).unwrap();
        assert!(GroupPlan::change(&seen, &group, more).is_err());
    });
}
