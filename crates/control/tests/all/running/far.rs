//! Members across a network, which cannot be locked and may not answer.

use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};

use wattle_control::events::ArrayEvent;
use wattle_control::start::Claimed;
use wattle_control::{Code, Problem};
use wattle_rt::{
    DriveControl, IoError, Link, LinkState, ReopenError, Reply, Serve, SimWorld, Unmap, WorldConfig,
};

use super::crashes::{drives, parts};
use super::*;

/// A drive as a server has it that several clients may use.
struct Far(Device);

impl Serve for Far {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        Box::pin(core.read(&self.0, offset, buf))
    }

    fn write(&self, core: &Core, offset: u64, buf: Buf, how: Durability) -> Reply<Result<(), IoError>> {
        Box::pin(core.write(&self.0, offset, buf, how))
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(core.flush(&self.0))
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(core.write_zeroes(&self.0, offset, len, unmap))
    }

    fn link(&self) -> Option<&dyn Link> {
        Some(self)
    }
}

impl Link for Far {
    fn look(&self, _: &Core) -> Reply<Option<LinkState>> {
        let (overdue, paths) = (Duration::ZERO, Vec::new());
        let state = LinkState { overdue, ended: None, changed: None, settled: false, paths };
        Box::pin(async move { Some(state) })
    }

    fn give_up(&self, _: &Core) -> Reply<()> {
        Box::pin(async {})
    }

    fn take_turns(&self, _: &Core, _: bool) -> Reply<()> {
        Box::pin(async {})
    }

    fn reopen(&self, _: &Core) -> Reply<Result<Device, ReopenError>> {
        Box::pin(async { Err(ReopenError::Unsettled) })
    }
}

/// Two servers that found the same array, on drives that both reach across a network.
fn with_two_servers(
    version: Version,
    test: impl AsyncFnOnce(&Core, [Rc<RunningArray>; 2], Vec<DriveControl>) + 'static,
) {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let devices = drives(&mut world, version);
    let found = [(); 2].map(|()| parts(&world, &devices[..4], version).unwrap());
    let controls = devices.iter().map(|device| world.drive(device)).collect();
    let outcome = world.run(async move |core: Core| {
        let mut arrays = Vec::new();
        for (assembly, mut seats, mut spares) in found {
            for member in seats.iter_mut().flatten().chain(&mut spares) {
                let (near, name) = (member.device.clone(), member.name.clone());
                let (size_bytes, block) = (near.size_bytes(), near.logical_block_bytes());
                member.device = Device::served(name, size_bytes, block, true, &core, Arc::new(Far(near)));
            }
            let claimed = Claimed::of(assembly, seats, spares, Vec::new(), false);
            let started = claimed.launch(&core).await.unwrap();
            arrays.push(RunningArray::new(&core, &MemberAccess::local(), "t", started));
        }
        test(&core, arrays.try_into().ok().unwrap(), controls).await;
    });
    outcome.expect_done();
}

async fn write_block(core: &Core, array: &RunningArray, byte: u8) -> bool {
    let volume = array.handle().volume().open(core).unwrap();
    volume.write(0, Buf::copy_of(&[byte; 4096]), Durability::Fua).await.is_ok()
}

fn overtaken(array: &RunningArray) -> usize {
    let events = array.events(0).into_iter();
    events.filter(|recorded| matches!(recorded.event, ArrayEvent::Overtaken { .. })).count()
}

/// Of the two, the one that writes second has no write acknowledged, and leaves the members alone.
#[test]
fn a_second_server_on_the_same_members_writes_nothing() {
    for (version, is_idle) in [(Version::V12, false), (Version::V12, true), (Version::V10, false)] {
        with_two_servers(version, async move |core, [one, two], _| {
            assert!(write_block(core, &one, 1).await);
            if is_idle {
                core.sleep(Duration::from_secs(60)).await;
            }
            assert!(!write_block(core, &two, 2).await, "{version}");
            assert!(two.handle().status(core).await.broken);
            assert_eq!((overtaken(&one), overtaken(&two)), (0, 1), "{version}");
            let _ = two.handle().stop(core).await;

            for byte in 3..8 {
                assert!(write_block(core, &one, byte).await);
                core.sleep(Duration::from_secs(60)).await;
            }
            let volume = one.handle().volume().open(core).unwrap();
            let (read, bytes) = volume.read(0, BufMut::alloc(4096)).await;
            assert!(read.is_ok() && bytes.iter().all(|byte| *byte == 7), "{version}");
            assert_eq!(overtaken(&one), 0, "{version}");
            one.handle().stop(core).await.unwrap();
        });
    }
}

/// What one server does to its members is not taken for another's: members that fail in the middle
/// of a round, spares that take slots, replacements, idleness.
#[test]
fn a_server_by_itself_is_not_overtaken() {
    for fails_at in 0..40 {
        with_two_servers(Version::V12, async move |core, [array, _], controls| {
            core.spawn(keep(array.clone()));
            assert!(write_block(core, &array, 1).await);
            controls[1].gone_after_ops(fails_at);
            for byte in 2..5 {
                assert!(write_block(core, &array, byte).await);
                core.sleep(Duration::from_secs(30)).await;
            }
            assert_eq!(array.handle().status(core).await.degraded, 0, "the spare took the slot");
            assert_eq!(overtaken(&array), 0, "{fails_at}");
            array.handle().stop(core).await.unwrap();
        });
    }
}

/// A device that hangs while it is opened and looked at holds up no order.
#[test]
fn orders_do_not_wait_for_a_device_that_is_opened() {
    let (_dir, names) = files(3, SIZE);
    create(Level::Raid5, Version::V12, Consistency::Resync, &names, &[]);
    on_a_core(async move |core| {
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = Mutex::new(hangs);
        let access = MemberAccess::local().with_remotes(Arc::new(move |_: &[&str], _| {
            let _ = hangs.lock().unwrap().recv();
            vec![Err(Problem::new(Code::OpenFailed, "it is away", "", ""))]
        }));
        let found = scan(access.look_all(&names).unwrap(), Forced::default()).unwrap();
        let claimed = start::claim(&found, found.find(None).unwrap(), false).unwrap();
        drop(found);
        let array = RunningArray::new(&core, &access, "t", claimed.launch(&core).await.unwrap());
        whole(&core, &array).await;
        let adding = core.spawn({
            let array = array.clone();
            async move { array.add("nbd://nas/disk", UUID, Forced::default()).await }
        });
        core.sleep(Duration::from_millis(200)).await;
        let failing = async {
            array.fail(&names[1]).await.unwrap();
            true
        };
        let late = async {
            core.sleep(Duration::from_secs(5)).await;
            false
        };
        let in_time = wattle_rt::race(failing, late).await;
        drop(release);
        assert!(matches!(in_time, wattle_rt::Either::First(true)), "it waited for the other device");
        assert_eq!(adding.await.unwrap_err().code, Code::OpenFailed);
        array.handle().stop(&core).await.unwrap();
    });
}
