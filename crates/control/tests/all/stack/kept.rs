//! Copies and images of members that lie on volumes and other arrays.

use super::*;

/// A copy of a member lies on another array. By its superblock it is the array that is there too:
/// it is never started with it, and never found in its place.
#[test]
fn a_copy_of_an_array_that_lies_on_another_is_not_used() {
    let (_original, names) = files(2, 16 << 20);
    create(&CreateRequest { assume_clean: true, ..request(Level::Raid1, looked(&names)) }).unwrap();
    let (_outer, outer) = files(2, 20 << 20);
    let below = CreateRequest {
        name: "host:outer".to_owned(),
        set_uuid: Uuid([7; 16]),
        data_offset_bytes: Some(1 << 20),
        assume_clean: true,
        ..request(Level::Raid1, looked(&outer))
    };
    create(&below).unwrap();
    let copy = std::fs::read(&names[0]).unwrap();
    for name in &outer {
        std::fs::File::options().write(true).open(name).unwrap().write_all_at(&copy, 1 << 20).unwrap();
    }
    let paths = |names: &[&[String]]| names.concat().iter().map(PathBuf::from).collect::<Vec<_>>();
    for purpose in [Purpose::Look, Purpose::Read, Purpose::Write] {
        for members in [paths(&[&names, &outer]), paths(&[&outer, &names])] {
            with_stack(&members, purpose, async |_, stack| {
                assert_eq!(stack.scan.arrays.len(), 3);
                let same: Vec<_> = stack.volumes().into_iter().filter(|volume| volume.name == "t").collect();
                let [original, copy] = &same[..] else { panic!("{same:?}") };
                let original = original.member.clone().unwrap();
                assert_eq!(stack.find_again(&key(stack, original)), Some(original));
                let refused = copy.member.clone().unwrap_err();
                assert_eq!(refused.code, Code::SeveralVolumes, "{refused}");
                assert!(refused.what.contains("t: what it lies on holds a copy"), "{refused}");
            });
        }
    }
    // By itself the copy is as good as the array.
    with_stack(&paths(&[&outer]), Purpose::Read, async |_, stack| {
        assert!(stack.find(Some("t")).unwrap().member.is_ok());
    });
}

/// One member of an array is a file, the other one a logical volume on an array that needs more
/// than was given to be found.
fn half_on_a_volume(lower: &[PathBuf], level: Level) -> (tempfile::TempDir, PathBuf) {
    let (dir, names) = files(2, 32 << 20);
    create(&CreateRequest { assume_clean: level == Level::Raid1, ..request(level, looked(&names)) }).unwrap();
    let half = std::fs::read(&names[1]).unwrap();
    with_stack(lower, Purpose::Write, async |core, stack| {
        let root = stack.find(Some("foxtrot/root")).unwrap().member.unwrap();
        let root = stack.volume(&core, root).await.unwrap().open(&core).unwrap();
        let mut buf = BufMut::alloc(half.len());
        buf.copy_from_slice(&half);
        let result = root.write(0, buf.freeze(), wattle_rt::Durability::Cached).await;
        assert_eq!(result, Ok(()));
    });
    (dir, PathBuf::from(&names[0]))
}

/// Half of a striped array is a file, the other half a logical volume on an array: it is started
/// with both, whatever comes first, also where the array below lacks a member itself.
#[test]
fn an_array_waits_for_members_that_lie_on_other_layers() {
    let dir = tempfile::tempdir().unwrap();
    let Some(lower) = unpack(dir.path()) else { return };
    let (_striped, half) = half_on_a_volume(&lower, Level::Raid0);
    let half = &[half][..];
    for below in [&lower[..], &lower[1..]] {
        for purpose in [Purpose::Look, Purpose::Read] {
            for members in [[half, below].concat(), [below, half].concat()] {
                with_stack(&members, purpose, async |_, stack| {
                    assert_eq!(stack.scan.arrays.len(), 2);
                    let striped = stack.find(Some("t")).unwrap();
                    let ix = stack.scan.arrays.find(|array| array.assembly.name() == "t").unwrap();
                    assert_eq!(stack.scan.arrays[ix].assembly.missing(), Vec::<u16>::new());
                    assert_eq!(stack.below(&[striped.member.unwrap()]).arrays.len(), 2, "{purpose:?}");
                });
            }
        }
    }
}

/// The half of a mirror that was given is enough. Nothing tells the half that lies on a volume from
/// an image of one, or from what a guest wrote into its disk.
#[test]
fn a_volume_fills_no_slot_of_an_array_that_can_be_used_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(lower) = unpack(dir.path()) else { return };
    let (_mirror, half) = half_on_a_volume(&lower, Level::Raid1);
    for degraded in [Degraded::Auto, Degraded::Never] {
        for members in
            [[&[half.clone()][..], &lower].concat(), [&lower[..], std::slice::from_ref(&half)].concat()]
        {
            let policy = Policy { degraded, ..Policy::default() };
            with_policy(&members, Purpose::Look, policy, async |_, stack| {
                let array = stack.scan.arrays.iter().find(|array| array.assembly.name() == "t").unwrap();
                assert_eq!(array.assembly.missing(), [1]);
                assert_eq!(array.assembly.refusal().is_none(), degraded == Degraded::Auto);
                let at =
                    array.assembly.verdicts.iter().position(|verdict| verdict.word() == "apart").unwrap();
                assert_eq!(array.assembly.verdicts[at], Verdict::Apart { slot: Some(1), events_ahead: 0 });
                let told = stack.scan.explanation(array, at).unwrap();
                assert!(
                    told.contains("not used: it lies on a volume") && told.contains("wattle add t"),
                    "{told}"
                );
                assert_eq!(
                    stack.find(Some("t")).and_then(|volume| volume.member).is_ok(),
                    degraded == Degraded::Auto
                );
            });
        }
    }
    // A half alone is what it is.
    with_stack(&[half], Purpose::Read, async |_, stack| {
        assert!(stack.find(Some("t")).unwrap().member.is_ok());
    });
}

/// The image of one half of a mirror, kept on another array, does not spoil the half that is there.
#[test]
fn a_copy_of_a_member_that_is_there_is_left_out() {
    let (_original, names) = files(2, 16 << 20);
    create(&CreateRequest { assume_clean: true, ..request(Level::Raid1, looked(&names)) }).unwrap();
    let (_outer, outer) = files(2, 20 << 20);
    let below = CreateRequest {
        name: "host:outer".to_owned(),
        set_uuid: Uuid([7; 16]),
        data_offset_bytes: Some(1 << 20),
        assume_clean: true,
        ..request(Level::Raid1, looked(&outer))
    };
    create(&below).unwrap();
    let copy = std::fs::read(&names[0]).unwrap();
    for name in &outer {
        std::fs::File::options().write(true).open(name).unwrap().write_all_at(&copy, 1 << 20).unwrap();
    }
    let members: Vec<_> = names[..1].iter().chain(&outer).map(PathBuf::from).collect();
    with_stack(&members, Purpose::Read, async |_, stack| {
        let same: Vec<_> = stack.volumes().into_iter().filter(|volume| volume.name == "t").collect();
        let [original, copy] = &same[..] else { panic!("{same:?}") };
        assert!(original.member.is_ok(), "{original:?}");
        assert_eq!(copy.member.clone().unwrap_err().code, Code::SeveralVolumes);
    });
}

/// A spare of a mirror, and its image on another array. Superblocks of spares are written while the
/// array runs, so that the image is none; of an array that lies on volumes altogether it is one.
#[test]
fn the_image_of_a_spare_on_a_volume_is_no_spare() {
    let (_original, names) = files(3, 16 << 20);
    let (halves, spare) = names.split_at(2);
    let mirror = CreateRequest {
        spares: looked(spare).into_iter().flatten().collect(),
        assume_clean: true,
        ..request(Level::Raid1, looked(halves))
    };
    create(&mirror).unwrap();
    let images: Vec<_> = names.iter().map(|name| std::fs::read(name).unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let outer: Vec<_> =
        (0..3_u8).map(|ix| kept_on_an_array(dir.path(), ix, &images[usize::from(ix)])).collect();
    let spares = |members: &[PathBuf]| {
        with_stack(members, Purpose::Look, async |_, stack| {
            let array = stack.scan.arrays.iter().find(|array| array.assembly.name() == "t").unwrap();
            let verdicts: Vec<_> = array.assembly.verdicts.iter().map(Verdict::word).collect();
            let told = (0..verdicts.len())
                .find_map(|at| stack.scan.explanation(array, at).filter(|_| verdicts[at] == "apart"));
            (array.assembly.spares.len(), verdicts.contains(&"apart"), told.unwrap_or_default())
        })
    };
    // The array lacks a half: it waits for what may lie elsewhere.
    let (count, is_apart, told) = spares(&[PathBuf::from(&names[0]), outer[2].clone()]);
    assert_eq!((count, is_apart), (0, true));
    assert!(told.contains("not used: it lies on a volume"), "{told}");
    assert_eq!(spares(&[PathBuf::from(&names[0]), PathBuf::from(&names[2])]).0, 1);
    assert_eq!(spares(&[outer[0].clone(), outer[2].clone()]).0, 1);
    // Nor is the other half's image a half, or a reason to take the spare's for one.
    let (count, is_apart, _) = spares(&[PathBuf::from(&names[0]), outer[1].clone(), outer[2].clone()]);
    assert_eq!((count, is_apart), (0, true));
}

/// A mirror of one half, with this on its volume.
fn kept_on_an_array(dir: &Path, ix: u8, content: &[u8]) -> PathBuf {
    let path = dir.join(format!("outer{ix}"));
    std::fs::File::create(&path).unwrap().set_len(20 << 20).unwrap();
    let name = path.to_str().unwrap().to_owned();
    let outer = CreateRequest {
        name: format!("host:outer{ix}"),
        set_uuid: Uuid([7 + ix; 16]),
        data_offset_bytes: Some(1 << 20),
        assume_clean: true,
        ..request(Level::Raid1, looked(&[name]))
    };
    create(&outer).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().write_all_at(content, 1 << 20).unwrap();
    path
}
