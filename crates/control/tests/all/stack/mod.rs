//! Layers on layers: what a real kernel and LVM2 wrote is found and read, whole and with members
//! missing, with several arrays and groups, in partitions, and with two members that are one.

mod kept;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::real::{create, files, looked, request};
use wattle_control::ArrayId;
use wattle_control::GroupId;
use wattle_control::create::{CreateRequest, inspect, plan};
use wattle_control::members::{Keyring, MemberAccess};
use wattle_control::scan::{MemberOrigin, scan};
use wattle_control::stack::{Plain, Purpose, Stack, StackOptions, key};
use wattle_control::{Code, Degraded, Forced, Policy, Verdict};
use wattle_engine::geometry::Level;
use wattle_format::md::Uuid;
use wattle_rt::{BufMut, Core, RuntimeConfig};

/// The members of the fixture with a volume group on a RAID 5; `None` (loudly, and never in CI) if
/// there is no `zstd`.
fn unpack(into: &Path) -> Option<Vec<PathBuf>> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lvm-linear-on-raid5");
    let unpack = |ix: usize| {
        let image = into.join(format!("m{ix}.img"));
        let packed = from.join(format!("member-{ix}.img.zst"));
        match Command::new("zstd").args(["-dqf", "-o"]).arg(&image).arg(packed).status() {
            Ok(status) => assert!(status.success()),
            Err(error) if std::env::var_os("CI").is_none() => {
                eprintln!("SKIPPED: the fixture needs zstd: {error}");
                return None;
            }
            Err(error) => panic!("the fixture needs zstd: {error}"),
        }
        Some(image)
    };
    (0..5).map(unpack).collect()
}

fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What the kernel wrote to the volume `root` (fixtures/README.md).
fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes / 512).flat_map(|sector| splitmix64(seed ^ sector).to_le_bytes().repeat(64)).collect()
}

fn with_stack<T>(members: &[PathBuf], purpose: Purpose, main: impl AsyncFnOnce(Core, &mut Stack) -> T) -> T {
    with_policy(members, purpose, Policy::default(), main)
}

fn with_policy<T>(
    members: &[PathBuf],
    purpose: Purpose,
    policy: Policy,
    main: impl AsyncFnOnce(Core, &mut Stack) -> T,
) -> T {
    let names: Vec<_> = members.iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    let scan = scan(MemberAccess::local().look_all(&names).unwrap(), policy).unwrap();
    let config = RuntimeConfig { cores: 2, ..RuntimeConfig::default() };
    wattle_rt::run(config, async |core| {
        let options = StackOptions { policy, purpose, wanted: None, keys: Keyring::default() };
        let mut stack = Stack::open(&core, scan, options, &mut Plain).await.unwrap();
        let value = main(core.clone(), &mut stack).await;
        stack.close(&core).await.unwrap();
        value
    })
    .unwrap()
}

async fn contents(core: &Core, stack: &mut Stack, name: &str) -> Vec<u8> {
    let member = stack.find(Some(name)).unwrap().member.unwrap();
    let volume = stack.volume(core, member).await.unwrap().open(core).unwrap();
    let (result, buf) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
    assert_eq!(result, Ok(()));
    buf.to_vec()
}

#[test]
fn volumes_on_an_array_are_read_with_any_member_missing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let before: Vec<_> = all.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for missing in [None, Some(0), Some(1), Some(2), Some(3), Some(4)] {
        let members: Vec<_> = (0..5).filter(|ix| Some(*ix) != missing).map(|ix| all[ix].clone()).collect();
        for purpose in [Purpose::Look, Purpose::Read] {
            with_stack(&members, purpose, async |core, stack| {
                assert!(
                    contents(&core, stack, "foxtrot/root").await == pattern(301, 32 << 20),
                    "{missing:?}"
                );
                let home = contents(&core, stack, "foxtrot/home").await;
                assert_eq!((home.len(), &home[1080..1082]), (28 << 20, &[0x53, 0xEF][..]), "ext4");
                let [group] = stack.groups.iter().collect::<Vec<_>>()[..] else {
                    panic!("{} groups", stack.groups.len())
                };
                assert!(group.problem.is_none() && group.notes.is_empty() && group.behind.is_empty());
            });
        }
    }
    assert!(before == all.iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>(), "written");
}

#[test]
fn what_is_meant_is_what_nothing_else_lies_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    with_stack(&all, Purpose::Look, async |_, stack| {
        let several = stack.find(None).unwrap_err();
        assert_eq!(several.code, Code::SeveralVolumes);
        assert!(several.why.contains("foxtrot/root, foxtrot/home"), "{}", several.why);
        let array = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        for name in ["foxtrot/home", &array] {
            assert!(stack.find(Some(name)).unwrap().member.is_ok(), "{name}");
        }
        let unknown = stack.find(Some("foxtrot/none")).unwrap_err();
        assert_eq!((unknown.code, unknown.exit_code()), (Code::NoSuchVolume, 2));
        assert!(unknown.why.contains("foxtrot/home"), "{}", unknown.why);
        let home = stack.find(Some("foxtrot/home")).unwrap().member.unwrap();
        let below = stack.below(&[home]);
        assert_eq!((below.arrays, below.wanted.groups.len()), (vec![ArrayId::nth(0)], 1));
    });
}

#[test]
fn without_enough_members_the_array_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    with_stack(&all[..3], Purpose::Look, async |_, stack| {
        assert_eq!(stack.find(None).unwrap_err().code, Code::NotEnoughMembers);
        assert!(stack.groups.is_empty());
    });
}

/// A physical volume and its copy, as images of their own: neither is used.
#[test]
fn two_members_that_are_one_physical_volume_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let array = with_stack(&all, Purpose::Look, async |core, stack| {
        let name = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        contents(&core, stack, &name).await
    });
    let copies = ["pv.img", "clone.img"].map(|name| dir.path().join(name));
    copies.iter().for_each(|path| std::fs::write(path, &array).unwrap());
    // One by itself is as good as the array it was in.
    with_stack(&copies[..1], Purpose::Read, async |core, stack| {
        assert!(contents(&core, stack, "foxtrot/root").await == pattern(301, 32 << 20));
    });
    with_stack(&copies, Purpose::Look, async |_, stack| {
        let refused = stack.find(Some("foxtrot/root")).unwrap_err();
        assert_eq!((refused.code, refused.exit_code()), (Code::DuplicatePhysical, 3));
        assert!(refused.what.contains("pv.img") && refused.what.contains("clone.img"), "{}", refused.what);
    });
}

#[test]
fn damaged_metadata_is_named_and_nothing_is_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let mut array = with_stack(&all, Purpose::Look, async |core, stack| {
        let name = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        contents(&core, stack, &name).await
    });
    let pv = dir.path().join("pv.img");
    let damage = |array: &[u8], what: &str| {
        std::fs::write(&pv, array).unwrap();
        with_stack(std::slice::from_ref(&pv), Purpose::Look, async |_, stack| {
            let problem = stack.find(None).unwrap_err();
            assert_eq!(problem.code, Code::DamagedVolumeGroup, "{problem:?}");
            assert!(problem.what.contains(what), "{}", problem.what);
        });
    };
    // The text that counts is the last one in the ring.
    let at = array[4096..1 << 20].windows(7).rposition(|bytes| bytes == b"foxtrot").unwrap() + 4096;
    array[at] ^= 1;
    damage(&array, "checksum");
    array[at] ^= 1;
    array[4096 + 4] ^= 1;
    damage(&array, "metadata area");
    array[4096 + 4] ^= 1;
    array[512 + 40] ^= 1;
    damage(&array, "label");
}

/// What lacks a member is started in rounds of its own. However many there are, all of them are.
#[test]
fn many_arrays_that_lack_a_member_are_all_opened() {
    const COUNT: u8 = 150;
    let (_dir, names) = files(2 * usize::from(COUNT), 2 << 20);
    for (ix, name) in (0..).zip(&names) {
        let member = looked(std::slice::from_ref(name)).remove(0);
        let mut uuid = [7; 16];
        uuid[..2].copy_from_slice(&u16::to_le_bytes(ix));
        let mirror = request(Level::Raid1, vec![member, None]);
        create(&CreateRequest { name: format!("a{ix}"), set_uuid: Uuid(uuid), ..mirror }).unwrap();
    }
    let members: Vec<_> = names.iter().map(PathBuf::from).collect();
    with_stack(&members, Purpose::Look, async |_, stack| {
        let open = stack.scan.arrays.ids().filter(|&array| {
            let origin = MemberOrigin::Array(array);
            stack.scan.members.iter().any(|seen| seen.origin == origin)
        });
        assert_eq!(open.count(), names.len());
        let last = stack.find(Some(&format!("a{}", names.len() - 1))).unwrap();
        assert!(last.member.is_ok());
    });
}

/// Arrays on arrays, each in what the one below it holds: a few kilobytes make a layer, and there
/// is an end to them, which is told.
#[test]
fn layers_have_an_end() {
    const LAYERS: u64 = 260;
    const STEP_BYTES: u64 = 16 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nested");
    let file = std::fs::File::create(&path).unwrap();
    let size_bytes = (LAYERS + 64) * STEP_BYTES;
    file.set_len(size_bytes).unwrap();
    for layer in 0..LAYERS {
        let place = layer * STEP_BYTES;
        let member = MemberAccess::local().look(&format!("null:{}", size_bytes - place)).unwrap();
        let state = inspect(&member).unwrap();
        let mut uuid = [3; 16];
        uuid[..2].copy_from_slice(&(layer as u16).to_le_bytes());
        let nested = CreateRequest {
            name: format!("l{layer}"),
            set_uuid: Uuid(uuid),
            data_offset_bytes: Some(STEP_BYTES),
            chunk_bytes: Some(4096),
            ..request(Level::Raid0, vec![Some(member)])
        };
        for write in &plan(&nested, &[state]).unwrap().devices[0].writes {
            file.write_all_at(&write.bytes, place + write.offset_bytes).unwrap();
        }
    }
    with_stack(&[path], Purpose::Look, async |_, stack| {
        assert_eq!(stack.scan.arrays.len(), 257);
        let told = stack.scan.members.iter().filter_map(|seen| seen.problem.as_ref());
        let told: Vec<_> = told.map(|problem| problem.code).collect();
        assert_eq!(told, [Code::NotSupportedYet]);
    });
}

/// Two groups of one name, from two machines: nothing is guessed, and each is found by its UUID.
#[test]
fn two_groups_of_one_name_are_told_apart_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let array = with_stack(&all, Purpose::Look, async |core, stack| {
        let name = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        contents(&core, stack, &name).await
    });
    let other = dir.path().join("other.img");
    std::fs::write(&other, with_other_ids(array)).unwrap();
    let mut members = all.clone();
    members.push(other);
    with_stack(&members, Purpose::Read, async |core, stack| {
        assert_eq!(stack.groups.len(), 2);
        assert!(stack.groups.iter().all(|group| group.notes.iter().any(|note| note.contains("by its UUID"))));
        let several = stack.find(Some("foxtrot/root")).unwrap_err();
        assert_eq!(several.code, Code::SeveralVolumes);
        for id in [0, 1].map(|group| stack.groups[GroupId::nth(group)].vg.id.to_string()) {
            let name = format!("{id}/root");
            assert!(several.why.contains(&name), "{}", several.why);
            assert!(contents(&core, stack, &name).await == pattern(301, 32 << 20));
        }
    });
}

/// A physical volume that its group went on without: read-only, and no leg of a mirror is believed
/// for it.
#[test]
fn what_the_group_went_on_without_is_not_believed() {
    use wattle_format::lvm::segment::{LvSegment, Stripe};
    use wattle_format::lvm::{Id, SegmentKind};
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let array = with_stack(&all, Purpose::Look, async |core, stack| {
        let name = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        contents(&core, stack, &name).await
    });
    let mut other = array.clone();
    other[2 << 20..].iter_mut().for_each(|byte| *byte = !*byte);
    let members = ["one.img", "other.img"].map(|name| dir.path().join(name));
    let open = |missing: bool, purpose: Purpose| {
        let text = |vg: &mut wattle_format::lvm::Vg| {
            let mut second = vg.pvs[0].clone();
            (second.name, second.id) = ("pv1".to_owned(), Id::from_random([9; 32]));
            vg.pvs.push(second);
            if missing {
                vg.pvs[0].flags.push("MISSING".to_owned());
            }
            let stripe = |name: &str| Stripe { name: name.to_owned(), extent: 0 };
            let legs = vec![stripe("pv0"), stripe("pv1")];
            let kind =
                SegmentKind::Mirror { legs, log: None, region_sectors: Some(1024), extents_moved: None };
            vg.lvs.retain(|lv| lv.name == "root");
            vg.lvs[0].segments.truncate(1);
            let extents = vg.lvs[0].segments[0].extents;
            let mut mirror = vg.lvs[0].clone();
            (mirror.name, mirror.id) = ("mirror".to_owned(), Id::from_random([8; 32]));
            mirror.segments = vec![LvSegment::new(0, extents, kind)];
            let SegmentKind::Striped { stripes, .. } = &mut vg.lvs[0].segments[0].kind else {
                panic!("linear")
            };
            stripes[0].extent = 12;
            vg.lvs[0].segments[0].extents = 3;
            vg.lvs.push(mirror);
        };
        std::fs::write(&members[0], changed(array.clone(), &text)).unwrap();
        let second = changed(other.clone(), &text);
        std::fs::write(&members[1], with_label(second, Id::from_random([9; 32]))).unwrap();
        with_stack(&members, purpose, async |core, stack| {
            let mirror = stack.find(Some("foxtrot/mirror")).and_then(|volume| volume.member);
            let mirror = match mirror {
                Ok(_) => Ok(contents(&core, stack, "foxtrot/mirror").await),
                Err(problem) => Err(problem.code),
            };
            let root = stack.find(Some("foxtrot/root")).unwrap().member.unwrap();
            let read_only = stack.volume(&core, root).await.unwrap().open(&core).unwrap().read_only();
            (mirror, read_only, stack.groups[GroupId::nth(0)].notes.join("; "))
        })
    };
    let (mirror, read_only, notes) = open(false, Purpose::Write);
    assert!(mirror.unwrap() == array[1 << 20..][..20 << 20] && !read_only, "{notes}");
    let (mirror, read_only, notes) = open(true, Purpose::Write);
    assert!(
        mirror.is_err() && read_only,
        "the first leg may be old, and nothing says that the second is not"
    );
    assert!(notes.contains("went on without"), "{notes}");
}

fn with_label(mut pv: Vec<u8>, id: wattle_format::lvm::Id) -> Vec<u8> {
    let mut label = wattle_format::lvm::Label::find(&pv[..2048]).unwrap().unwrap();
    label.id = id;
    pv[512..1024].copy_from_slice(&label.encode().unwrap());
    pv
}

/// The map was made before the lock: what was committed in between is not served by the old one.
#[test]
fn a_group_that_changed_before_it_was_claimed_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let array = with_stack(&all, Purpose::Look, async |core, stack| {
        let name = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        contents(&core, stack, &name).await
    });
    let pv = dir.path().join("pv.img");
    std::fs::write(&pv, &array).unwrap();
    let open = |meanwhile: &dyn Fn()| {
        let scan = scan(MemberAccess::local().look_all(&[pv.to_str().unwrap()]).unwrap(), Forced::default())
            .unwrap();
        meanwhile();
        let found = wattle_rt::run(RuntimeConfig::default(), async |core| {
            let options = StackOptions {
                policy: Policy::default(),
                purpose: Purpose::Write,
                wanted: None,
                keys: Keyring::default(),
            };
            let stack = Stack::open(&core, scan, options, &mut Plain).await.unwrap();
            let found = stack.find(Some("foxtrot/root")).and_then(|volume| volume.member);
            stack.close(&core).await.unwrap();
            found
        });
        found.unwrap()
    };
    assert!(open(&|| {}).is_ok());
    let changed = changed(array.clone(), &|vg| vg.seqno += 1);
    let refused = open(&|| std::fs::write(&pv, &changed).unwrap()).unwrap_err();
    assert_eq!((refused.code, refused.exit_code()), (Code::Changed, 3), "{refused:?}");
}

/// Nor is a drive that held nothing a moment ago: another program may have made something of it
/// meanwhile.
#[test]
fn a_drive_that_was_used_before_it_was_claimed_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let drive = dir.path().join("drive.img");
    let size = std::fs::metadata(&all[0]).unwrap().len();
    let mut label = vec![0; size as usize];
    label[512..520].copy_from_slice(b"LABELONE");
    label[536..544].copy_from_slice(b"LVM2 001");
    let mut boot = vec![0; size as usize];
    boot[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    for content in [std::fs::read(&all[0]).unwrap(), label, boot] {
        std::fs::write(&drive, vec![0; size as usize]).unwrap();
        let scan =
            scan(MemberAccess::local().look_all(&[drive.to_str().unwrap()]).unwrap(), Forced::default())
                .unwrap();
        let claim = wattle_rt::run(RuntimeConfig::default(), async |core| {
            let options = StackOptions {
                policy: Policy::default(),
                purpose: Purpose::Write,
                wanted: None,
                keys: Keyring::default(),
            };
            let mut stack = Stack::open(&core, scan, options, &mut Plain).await.unwrap();
            std::fs::write(&drive, &content).unwrap();
            let first = stack.scan.members.ids().next().unwrap();
            let claim = stack.volume(&core, first).await.map(drop);
            stack.close(&core).await.unwrap();
            claim
        });
        assert_eq!(claim.unwrap().unwrap_err().code, Code::Changed);
    }
}

/// What another host owns, or several share, is read here and never written.
#[test]
fn a_group_of_another_host_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let Some(all) = unpack(dir.path()) else { return };
    let array = with_stack(&all, Purpose::Look, async |core, stack| {
        let name = stack.scan.arrays[ArrayId::nth(0)].assembly.name().to_owned();
        contents(&core, stack, &name).await
    });
    let pv = dir.path().join("pv.img");
    let own = |change: &dyn Fn(&mut wattle_format::lvm::Vg)| {
        std::fs::write(&pv, changed(array.clone(), change)).unwrap();
        with_stack(std::slice::from_ref(&pv), Purpose::Write, async |core, stack| {
            let member = stack.find(Some("foxtrot/root")).unwrap().member.unwrap();
            stack.volume(&core, member).await.unwrap().open(&core).unwrap().read_only()
        })
    };
    assert!(!own(&|_| {}));
    assert!(own(&|vg| vg.system_id = Some("elsewhere".to_owned())));
    assert!(own(&|vg| vg.lock_type = Some("sanlock".to_owned())));
    assert!(own(&|vg| vg.status.push("EXPORTED".to_owned())));
    assert!(own(&|vg| vg.status.retain(|word| word != "WRITE")));
}

/// The same volume group with the ids of another.
fn with_other_ids(pv: Vec<u8>) -> Vec<u8> {
    use wattle_format::lvm::Id;
    changed(pv, &|vg| {
        vg.id = Id::from_random([1; 32]);
        vg.pvs[0].id = Id::from_random([2; 32]);
    })
}

/// A physical volume with another text, and the label for it.
fn changed(mut pv: Vec<u8>, change: &dyn Fn(&mut wattle_format::lvm::Vg)) -> Vec<u8> {
    use wattle_format::lvm::area::Header;
    use wattle_format::lvm::{Label, Stamp, Vg};
    let mut label = Label::find(&pv[..2048]).unwrap().unwrap();
    let area = label.metadata_areas[0];
    let start = area.offset_bytes as usize;
    let header = Header::decode(&pv[start..start + 512], area).unwrap();
    let location = header.committed().unwrap();
    let ranges = header.ranges(&location).unwrap();
    let pieces: Vec<_> =
        ranges.iter().map(|range| &pv[range.offset_bytes as usize..][..range.size_bytes as usize]).collect();
    let mut vg = Vg::parse(&header.text(&location, &pieces).unwrap()).unwrap();
    change(&mut vg);
    let stamp = Stamp { description: "another".to_owned(), host: "other".to_owned(), time: 1 };
    let commit = Header::new(area).unwrap().commit(&vg.to_text(&stamp)).unwrap();
    for (at, bytes) in &commit.texts {
        pv[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    pv[start..start + 512].copy_from_slice(commit.commit.bytes());
    label.id = vg.pvs[0].id;
    pv[512..1024].copy_from_slice(&label.encode().unwrap());
    pv
}
