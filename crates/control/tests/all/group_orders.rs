//! Orders to a volume group that runs: what another program wrote meanwhile is never written over,
//! and what a drive refused is never taken for done.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use wattle_control::lvm::commit::{self, CommitRole, CommitSite};
use wattle_control::lvm::edit::{self, NewLv};
use wattle_control::lvm::physical::{self, PhysicalVolume};
use wattle_control::lvm::plan::{GroupPlan, say_in_a_group};
use wattle_control::lvm::relocate::{WantedMove, next_step};
use wattle_control::members::Keyring;
use wattle_control::scan::scan;
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions};
use wattle_control::{Code, Forced, GroupId, Member, Policy, Problem};
use wattle_engine::Volume;
use wattle_format::lvm::area::{Commit, Header, Location};
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{Id, Label, Lv, LvSegment, Pv, Stamp, Vg};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, RuntimeConfig, Serve, Unmap};

const SIZE_BYTES: u64 = 8 << 20;
const DATA_BYTES: u64 = 1 << 20;
const EXTENT_BYTES: u64 = 64 << 10;
const EXTENTS: u64 = 64;

fn id(seed: u8) -> Id {
    Id::from_random([seed; 32])
}

fn stamp() -> Stamp {
    Stamp { description: String::new(), host: "h".to_owned(), time: 1 }
}

/// A drive in memory that fails when it is told to.
struct Drive {
    bytes: Device,
    reads_fail: AtomicBool,
    /// The next header that names another text is written, and the drive answers that it is not.
    header_fails: AtomicBool,
    /// The next one that names another text alone is refused and not written.
    header_is_refused: AtomicBool,
    /// Writes are refused, and not done.
    writes_fail: AtomicBool,
    /// After so many more to the metadata area one write there is.
    area_write_fails_after: Mutex<Option<usize>>,
    /// Flushes fail once the metadata area's header names another text than this one.
    flushes_fail_after: Mutex<Option<Location>>,
    /// Reads do.
    reads_fail_after: Mutex<Option<Location>>,
    /// After the next write of a text, or else of a header that names one alone, another program
    /// commits this one.
    beside: Mutex<Option<(After, Vec<u8>)>>,
}

#[derive(Clone, Copy, PartialEq)]
enum After {
    Text,
    Header,
}

impl Drive {
    fn new() -> Arc<Self> {
        let (reads_fail, writes_fail, header_fails, header_is_refused) = Default::default();
        let (flushes_fail_after, reads_fail_after, bytes) =
            (Mutex::default(), Mutex::default(), Device::mem(SIZE_BYTES));
        Arc::new(Self {
            bytes,
            reads_fail,
            header_fails,
            header_is_refused,
            writes_fail,
            area_write_fails_after: Mutex::default(),
            flushes_fail_after,
            reads_fail_after,
            beside: Mutex::default(),
        })
    }

    fn peek(&self, offset_bytes: u64, len_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes as usize];
        self.bytes.read_blocking(offset_bytes, &mut bytes).unwrap();
        bytes
    }

    fn physical(&self) -> PhysicalVolume {
        physical::read(&Member::made_up("pv", self.bytes.clone())).unwrap().unwrap()
    }

    /// The text that the newest header names.
    fn location(&self) -> Option<Location> {
        let area = Area { offset_bytes: 4096, size_bytes: DATA_BYTES - 4096 };
        Header::decode(&self.peek(4096, 512), area).ok()?.committed()
    }

    /// What a program does that knows of no lock.
    fn commit(&self, text: &[u8]) {
        let header = self.physical().areas[0].header.clone().unwrap();
        let Commit { texts, commit, .. } = header.commit(text).unwrap();
        for (offset_bytes, bytes) in texts {
            self.bytes.write_blocking(offset_bytes, &bytes).unwrap();
        }
        self.bytes.write_blocking(commit.start(), commit.bytes()).unwrap();
    }

    fn is_after(&self, location: &Mutex<Option<Location>>) -> bool {
        location.lock().unwrap().is_some_and(|before| self.location() != Some(before))
    }
}

struct Served(Arc<Drive>);

impl Serve for Served {
    fn read(&self, _: &Core, offset: u64, mut buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let fails = self.0.is_after(&self.0.reads_fail_after) || self.0.reads_fail.load(SeqCst);
        let result = match fails {
            true => Err(IoError::MEDIUM),
            false => self.0.bytes.read_blocking(offset, &mut buf),
        };
        Box::pin(std::future::ready((result, buf)))
    }

    fn write(&self, _: &Core, offset: u64, buf: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        let before = self.0.location();
        let was = self.0.peek(offset, buf.len() as u64);
        if self.0.writes_fail.load(SeqCst) {
            return Box::pin(std::future::ready(Err(IoError::MEDIUM)));
        }
        let mut left = self.0.area_write_fails_after.lock().unwrap();
        if (4096..DATA_BYTES).contains(&offset) {
            match *left {
                Some(0) => {
                    *left = None;
                    return Box::pin(std::future::ready(Err(IoError::MEDIUM)));
                }
                more => *left = more.map(|more| more - 1),
            }
        }
        let mut result = self.0.bytes.write_blocking(offset, &buf);
        if self.0.location() != before && self.0.header_is_refused.swap(false, SeqCst) {
            result = self.0.bytes.write_blocking(offset, &was).and(Err(IoError::MEDIUM));
        }
        if self.0.location() != before && self.0.header_fails.swap(false, SeqCst) {
            result = Err(IoError::MEDIUM);
        }
        let after = if self.0.location() == before { After::Text } else { After::Header };
        let is_metadata = (4096 + 512..DATA_BYTES).contains(&offset) || after == After::Header;
        let mut beside = self.0.beside.lock().unwrap();
        if let Some((_, text)) = beside.take_if(|(when, _)| is_metadata && *when == after) {
            self.0.commit(&text);
        }
        Box::pin(std::future::ready(result))
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        let fails = self.0.is_after(&self.0.flushes_fail_after);
        Box::pin(std::future::ready(if fails { Err(IoError::MEDIUM) } else { Ok(()) }))
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Err(IoError::UNSUPPORTED)))
    }
}

/// The group `vg` on two drives, of which the second may have no metadata area, with the volume
/// `lv` of two extents on the first.
struct Rig {
    drives: [Arc<Drive>; 2],
}

impl Rig {
    async fn new(core: &Core, areas: [bool; 2]) -> Self {
        let rig = Self { drives: [Drive::new(), Drive::new()] };
        for (pv, (drive, has_area)) in (0..).zip(rig.drives.iter().zip(areas)) {
            let area = Area { offset_bytes: 4096, size_bytes: DATA_BYTES - 4096 };
            let data = Area { offset_bytes: DATA_BYTES, size_bytes: 0 };
            let areas = if has_area { vec![area] } else { Vec::new() };
            let label = Label::new(id(pv + 1), SIZE_BYTES, data, areas);
            commit::initialise(core, "pv", &drive.bytes, &label, &[]).await.unwrap();
        }
        let mut vg = Vg::new("vg", id(99), EXTENT_BYTES / 512);
        for pv in 0..2 {
            let (name, id) = (format!("pv{pv}"), id(pv + 1));
            vg.pvs.push(Pv::new(&name, id, SIZE_BYTES / 512, DATA_BYTES / 512, EXTENTS));
        }
        vg.lvs.push(Lv::new("lv", id(50), &stamp(), vec![LvSegment::linear(0, 2, "pv0", 0)]));
        rig.commit_beside(core, vg).await;
        rig
    }

    /// What another program does that does not know of the server.
    async fn commit_beside(&self, core: &Core, vg: Vg) {
        let site = |drive: &Arc<Drive>| {
            let before = drive.physical();
            let mut label = before.label.clone();
            say_in_a_group(&mut label, true);
            let (name, device) = ("pv".to_owned(), drive.bytes.clone());
            CommitSite { name, device, before, label, role: CommitRole::Belongs }
        };
        let sites = self.drives.each_ref().map(site);
        assert_eq!(commit::commit(core, &vg.to_text(&stamp()), &sites).await, Ok(vec![]));
    }

    async fn open(&self, core: &Core) -> Stack {
        let member = |(pv, drive): (usize, &Arc<Drive>)| {
            let (name, server) = (format!("drive{pv}"), Arc::new(Served(drive.clone())));
            Member::made_up(&name, Device::served(&name, SIZE_BYTES, 512, true, core, server))
        };
        let members = self.drives.iter().enumerate().map(member).collect();
        let found = core.offload(move || scan(members, Forced::default())).await.unwrap().unwrap();
        let (policy, keys) = (Policy::default(), Keyring::default());
        let options = StackOptions { policy, purpose: Purpose::Write, wanted: None, keys };
        Stack::open(core, found, options, &mut Plain).await.unwrap()
    }

    fn bytes(&self) -> [Vec<u8>; 2] {
        self.drives.each_ref().map(|drive| drive.peek(0, SIZE_BYTES))
    }
}

fn with_rig(areas: [bool; 2], test: impl AsyncFnOnce(&Core, &Rig, &mut Stack)) {
    wattle_rt::run(RuntimeConfig::default(), async |core| {
        let rig = Rig::new(&core, areas).await;
        let mut stack = rig.open(&core).await;
        test(&core, &rig, &mut stack).await;
        let _ = stack.close(&core).await;
    })
    .unwrap();
}

fn with_new(vg: &Vg, name: &str, seed: u8) -> Vg {
    let new = NewLv {
        name,
        id: id(seed),
        extents: 2,
        at_most: false,
        stripes: 1,
        stripe_sectors: 0,
        on: &["pv1".to_owned()],
    };
    edit::create_volume(vg, &new, &stamp()).unwrap()
}

/// An order, decided from what the stack knows.
async fn create(core: &Core, stack: &mut Stack, name: &str, seed: u8) -> Result<Vec<String>, Problem> {
    let group = &stack.groups[GroupId::nth(0)];
    let mut plan = GroupPlan::change(&stack.scan, group, with_new(&group.vg, name, seed))?;
    stack.zero_what_was_left(core, &mut plan, name, 0).await?;
    let text = plan.after.as_ref().unwrap().to_text(&stamp());
    stack.change_group(core, &plan, &text).await
}

async fn move_away(core: &Core, stack: &mut Stack) -> Result<Vec<String>, Problem> {
    let group = &stack.groups[GroupId::nth(0)];
    let wanted = WantedMove { from: "pv0", volume: None, on: &[], extents_max: 4 };
    let step = next_step(&group.vg, wanted).unwrap().unwrap();
    let plan = GroupPlan::change(&stack.scan, group, step.after.clone())?;
    stack.move_extents(core, &plan, &step.after.to_text(&stamp()), &step).await
}

async fn volume(core: &Core, stack: &mut Stack, name: &str) -> Volume {
    let member = stack.find(Some(name)).unwrap().member.unwrap();
    stack.volume(core, member).await.unwrap().open(core).unwrap()
}

/// The group as another program changed it, with a volume of its own where free extents were.
async fn changed_beside(core: &Core, rig: &Rig, stack: &Stack) -> [Vec<u8>; 2] {
    rig.commit_beside(core, with_new(&stack.groups[GroupId::nth(0)].vg, "theirs", 60)).await;
    let theirs = vec![0xAB; 2 * EXTENT_BYTES as usize];
    rig.drives[1].bytes.write_blocking(DATA_BYTES, &theirs).unwrap();
    rig.bytes()
}

#[test]
fn an_order_to_a_group_that_another_program_changed_writes_nothing_and_nor_does_the_next() {
    with_rig([true; 2], async |core, rig, stack| {
        let before = changed_beside(core, rig, stack).await;
        let refused = create(core, stack, "new", 61).await.unwrap_err();
        assert_eq!(refused.code, Code::Changed, "{refused:?}");
        assert!(before == rig.bytes(), "extents that are another's were zeroed");
        for again in [create(core, stack, "new", 61).await, move_away(core, stack).await] {
            let refused = again.unwrap_err();
            assert_eq!(refused.code, Code::Changed, "{refused:?}");
            assert!(refused.next.contains("start it again"), "{refused:?}");
        }
        assert!(before == rig.bytes(), "another's text was written over");
    });
}

#[test]
fn a_move_in_a_group_that_another_program_changed_copies_nothing() {
    with_rig([true; 2], async |core, rig, stack| {
        let before = changed_beside(core, rig, stack).await;
        let refused = move_away(core, stack).await.unwrap_err();
        assert_eq!(refused.code, Code::Changed, "{refused:?}");
        assert!(before == rig.bytes(), "extents were copied over another's");
        // Clients go on where the volume was.
        let lv = volume(core, stack, "vg/lv").await;
        lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap();
        assert_eq!(rig.drives[0].peek(DATA_BYTES, 1), [7]);
    });
}

/// The group's only text is on the drive that extents leave, and the flush of its last header
/// fails: the header may be gone after a power cut, and with it what is written in the new place.
#[test]
fn where_it_is_in_doubt_that_extents_moved_nothing_is_written_to_them() {
    with_rig([true, false], async |core, rig, stack| {
        *rig.drives[0].flushes_fail_after.lock().unwrap() = rig.drives[0].location();
        let lv = volume(core, stack, "vg/lv").await;
        let failed = move_away(core, stack).await.unwrap_err();
        assert_eq!(failed.code, Code::GroupInDoubt, "{failed:?}");
        lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap_err();
    });
}

#[test]
fn what_is_in_doubt_is_not_written_and_its_group_is_not_changed() {
    with_rig([true, false], async |core, rig, stack| {
        let offers = |stack: &Stack, name: &str| stack.logical_volumes().iter().any(|of| of.name == name);
        rig.drives[0].header_fails.store(true, SeqCst);
        assert_eq!(create(core, stack, "new", 61).await.unwrap_err().code, Code::GroupInDoubt);
        assert!(!offers(stack, "vg/new"));
        // What looks free may be the text's before: nothing is zeroed, or moved there.
        rig.drives[0].header_fails.store(false, SeqCst);
        let refused = create(core, stack, "more", 62).await.unwrap_err();
        assert_eq!(refused.code, Code::GroupInDoubt, "{refused:?}");
        assert!(offers(stack, "vg/lv") && !offers(stack, "vg/more"));
    });
    with_rig([true, false], async |core, rig, stack| {
        let lv = volume(core, stack, "vg/lv").await;
        rig.drives[0].header_fails.store(true, SeqCst);
        assert_eq!(move_away(core, stack).await.unwrap_err().code, Code::GroupInDoubt);
        let write = async || lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await;
        write().await.unwrap_err();
        rig.drives[0].header_fails.store(false, SeqCst);
        create(core, stack, "new", 61).await.unwrap_err();
        write().await.unwrap_err();
    });
}

/// A drive that refuses a header may have taken it all the same.
#[test]
fn a_group_whose_last_header_was_refused_is_in_doubt_although_the_old_text_is_read() {
    with_rig([true, false], async |core, rig, stack| {
        rig.drives[0].header_is_refused.store(true, SeqCst);
        assert_eq!(create(core, stack, "new", 61).await.unwrap_err().code, Code::GroupInDoubt);
        let before = rig.bytes();
        assert_eq!(create(core, stack, "more", 62).await.unwrap_err().code, Code::GroupInDoubt);
        assert_eq!(move_away(core, stack).await.unwrap_err().code, Code::GroupInDoubt);
        assert!(before == rig.bytes(), "what the text that was refused names was written");
        let lv = volume(core, stack, "vg/lv").await;
        lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap();
    });
    with_rig([true, false], async |core, rig, stack| {
        let lv = volume(core, stack, "vg/lv").await;
        rig.drives[0].header_is_refused.store(true, SeqCst);
        assert_eq!(move_away(core, stack).await.unwrap_err().code, Code::GroupInDoubt);
        lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap_err();
    });
}

#[test]
fn a_group_whose_text_was_refused_is_as_it_was() {
    with_rig([true, false], async |core, rig, stack| {
        let lv = volume(core, stack, "vg/lv").await;
        let write = async || lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await;
        rig.drives[0].writes_fail.store(true, SeqCst);
        assert_eq!(move_away(core, stack).await.unwrap_err().code, Code::GroupNotWritten);
        rig.drives[0].writes_fail.store(false, SeqCst);
        write().await.unwrap();
        create(core, stack, "new", 61).await.unwrap();
        move_away(core, stack).await.unwrap();
        write().await.unwrap();
    });
}

/// The text, the header that names it too, the header that names it alone: from the last one on the
/// group is changed, and what it is on is no older than the others.
#[test]
fn a_change_that_one_drive_does_not_take_is_none_until_a_header_counts() {
    let seqno = |drive: &Arc<Drive>| drive.physical().areas[0].text.as_ref().unwrap().1.seqno;
    for (drive, step) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)] {
        with_rig([true; 2], async |core, rig, stack| {
            *rig.drives[drive].area_write_fails_after.lock().unwrap() = Some(step);
            let made = create(core, stack, "new", 61).await;
            let seqnos = rig.drives.each_ref().map(seqno);
            if step < 2 {
                let refused = made.unwrap_err();
                assert_eq!(refused.code, Code::GroupNotWritten, "{refused:?}");
                assert_eq!(refused.member, Some(format!("drive{drive}")), "{refused:?}");
                assert_eq!(seqnos, [1; 2]);
            } else {
                let told = made.unwrap();
                assert!(
                    matches!(&told[..], [one] if one.starts_with(&format!("drive{drive}: "))),
                    "{told:?}"
                );
                assert_eq!((seqnos[drive], seqnos[1 - drive]), (1, 2));
            }
            assert!(rig.drives[drive].area_write_fails_after.lock().unwrap().is_none());
            let again = rig.open(core).await;
            assert_eq!(again.groups[GroupId::nth(0)].older, [None, None], "step {step}");
            again.close(core).await.unwrap();
            create(core, stack, "more", 62).await.unwrap();
            let seqnos = rig.drives.each_ref().map(seqno);
            assert_eq!(seqnos, if step < 2 { [2; 2] } else { [3; 2] });
        });
    }
}

#[test]
fn a_physical_volume_that_could_not_be_read_once_still_gets_the_next_text() {
    with_rig([true; 2], async |core, rig, stack| {
        rig.drives[1].reads_fail.store(true, SeqCst);
        let failed = create(core, stack, "new", 61).await.unwrap_err();
        assert_eq!(failed.code, Code::ReadFailed, "{failed:?}");
        rig.drives[1].reads_fail.store(false, SeqCst);
        assert_eq!(create(core, stack, "new", 61).await.unwrap(), Vec::<String>::new());
        let seqno = |drive: &Arc<Drive>| drive.physical().areas[0].text.as_ref().unwrap().1.seqno;
        assert_eq!(rig.drives.each_ref().map(seqno), [2, 2], "one was left behind, unsaid");

        // Nor does it matter that a text cannot be read back once.
        *rig.drives[1].reads_fail_after.lock().unwrap() = rig.drives[1].location();
        create(core, stack, "more", 62).await.unwrap();
        *rig.drives[1].reads_fail_after.lock().unwrap() = None;
        stack.look_at_group(core, "vg").await.unwrap();
        create(core, stack, "most", 63).await.unwrap();
        assert_eq!(rig.drives.each_ref().map(seqno), [4, 4]);
    });
}

/// Of the same age, so that it starts at the same byte of the metadata area.
#[test]
fn a_text_that_another_program_writes_over_ours_is_not_committed_with_the_checksum_of_ours() {
    with_rig([true, false], async |core, rig, stack| {
        let theirs = with_new(&stack.groups[GroupId::nth(0)].vg, "theirs", 60).to_text(&stamp());
        *rig.drives[0].beside.lock().unwrap() = Some((After::Text, theirs.clone()));
        let refused = create(core, stack, "new", 61).await.unwrap_err();
        assert_eq!(refused.code, Code::Changed, "{refused:?}");
        let found = rig.drives[0].physical().areas[0].text.clone();
        assert!(found.is_some_and(|(text, _)| text == theirs), "no text is whole");
    });
}

#[test]
fn a_change_that_was_overtaken_before_it_was_read_back_is_not_called_done() {
    with_rig([true, false], async |core, rig, stack| {
        let mut theirs = with_new(&stack.groups[GroupId::nth(0)].vg, "theirs", 60);
        theirs.seqno += 1;
        let theirs = theirs.to_text(&stamp());
        let lv = volume(core, stack, "vg/lv").await;
        *rig.drives[0].beside.lock().unwrap() = Some((After::Header, theirs.clone()));
        let overtaken = move_away(core, stack).await.unwrap_err();
        assert_eq!(overtaken.code, Code::GroupInDoubt, "{overtaken:?}");
        let found = rig.drives[0].physical().areas[0].text.clone();
        assert!(found.is_some_and(|(text, _)| text == theirs));
        // It is answered, and is not lost to a text that names the other place.
        lv.write(0, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap_err();
        let refused = create(core, stack, "new", 61).await.unwrap_err();
        assert_eq!(refused.code, Code::GroupInDoubt, "{refused:?}");
    });
}
