//! btrfs on several devices: images made by mkfs.btrfs and written by the kernel, with devices
//! missing, damaged, left behind and copied.

use crate::common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::pool::{Pool, contents, files, sets};
use crate::common::{pattern, program, run};
use wattle_fs::{Error, FsDeviceState, Note, ReadAt};

/// A way to make a file system, the sizes of its devices in MiB, and how many may be missing.
type Made = (&'static [&'static str], &'static [u64], usize);

const KINDS: [Made; 14] = [
    (&["-d", "single", "-m", "raid1"], &[200, 200], 0),
    (&["-d", "raid0", "-m", "raid0"], &[200, 200, 200], 0),
    (&["-d", "raid1", "-m", "raid1", "--csum", "xxhash"], &[150, 300, 200], 1),
    (&["-d", "dup", "-m", "dup"], &[260, 260], 0),
    (&["-d", "raid1c3", "-m", "raid1c3", "--csum", "sha256"], &[200, 200, 200], 2),
    (&["-d", "raid1c4", "-m", "raid1c4"], &[200, 200, 200, 200], 3),
    (&["-d", "raid10", "-m", "raid10"], &[200, 200, 200, 200], 1),
    (&["-d", "raid5", "-m", "raid5"], &[200, 200], 1),
    (&["-d", "raid5", "-m", "raid1", "--nodesize", "65536"], &[200, 250, 200], 1),
    (&["-d", "raid5", "-m", "raid5", "--csum", "blake2"], &[200, 200, 200, 200], 1),
    (&["-d", "raid6", "-m", "raid6"], &[200, 200, 200], 2),
    (&["-d", "raid6", "-m", "raid1c3"], &[200, 200, 200, 200, 200], 2),
    (&["--mixed", "-d", "raid5", "-m", "raid5"], &[100, 100, 100], 1),
    (&["--mixed", "-d", "raid6", "-m", "raid6"], &[100, 100, 100, 100], 2),
];

/// Files that lie on every column and over the ends of stripes.
fn write_files(at: &Path) {
    for (seed, len) in [(1, 1), (2, 3000), (3, 4096), (4, 65_537), (5, 300_000), (6, 2_500_001)] {
        fs::write(at.join(format!("file-{len}")), pattern(seed, len)).unwrap();
    }
    fs::create_dir(at.join("many")).unwrap();
    for ix in 0..400 {
        fs::write(at.join(format!("many/{ix}-{}", "n".repeat(ix % 60))), pattern(ix as u64, 2100)).unwrap();
    }
    let text: Vec<u8> = (0..200_000_u32).flat_map(|ix| (ix / 7).to_string().into_bytes()).collect();
    fs::create_dir(at.join("packed")).unwrap();
    run(program("btrfs").args(["property", "set"]).arg(at.join("packed")).args(["compression", "zstd"]))
        .unwrap();
    fs::write(at.join("packed/text"), text).unwrap();
}

/// Files by their names, each with its content or why it cannot be read.
type Contents = Vec<(String, Result<Vec<u8>, String>)>;

/// A pool with these files, and what Linux shows of it.
fn pool(kind: Made) -> Option<(Pool, Contents)> {
    let pool = Pool::make(kind.0, kind.1)?;
    pool.filled("", write_files)?;
    let mut expected = Vec::new();
    pool.filled("ro", |at| expected = contents(at))?;
    assert!(expected.len() > 400);
    Some((pool, expected))
}

#[test]
fn every_profile_comes_out_whole_with_every_set_of_devices_missing_that_it_forgives() {
    for kind in KINDS {
        let Some((pool, expected)) = pool(kind) else { return };
        let count = kind.1.len();
        for missing in (0..=kind.2).flat_map(|missing| sets(count, missing)) {
            let here: Vec<usize> = (0..count).rev().filter(|ix| !missing.contains(ix)).collect();
            let fs = pool.open(&here).unwrap_or_else(|error| panic!("{kind:?} without {missing:?}: {error}"));
            assert!(files(&*fs) == expected, "{kind:?} without {missing:?}");
            let states = fs.devices().iter().map(|device| device.state == FsDeviceState::Missing);
            assert_eq!(
                states.collect::<Vec<_>>(),
                (0..count).map(|ix| missing.contains(&ix)).collect::<Vec<_>>(),
                "{kind:?}"
            );
            assert_eq!(fs.about().notes.len(), missing.len(), "{:?}", fs.about().notes);
            assert!(fs.not_as_mounted().is_empty() && fs.left_out().is_empty());
        }
    }
}

/// Where more is missing than a profile forgives, what is left comes out, and nothing else does
/// without an error that names the device.
#[test]
fn beyond_redundancy_what_is_left_comes_out_and_the_rest_is_an_error() {
    let kinds: [Made; 4] = [
        (&["-d", "raid0", "-m", "raid1"], &[200, 200], 1),
        (&["-d", "single", "-m", "raid1c3"], &[200, 200, 200], 2),
        (&["-d", "raid5", "-m", "raid1c3"], &[200, 200, 200], 2),
        (&["-d", "raid10", "-m", "raid1c4"], &[200, 200, 200, 200], 3),
    ];
    for kind in kinds {
        let Some((pool, expected)) = pool(kind) else { return };
        let (mut whole, mut failed) = (0, 0);
        for missing in sets(kind.1.len(), kind.2) {
            let here: Vec<usize> = (0..kind.1.len()).filter(|ix| !missing.contains(ix)).collect();
            let fs = pool.open(&here).unwrap();
            for ((path, found), (expected_path, content)) in files(&*fs).into_iter().zip(&expected) {
                assert_eq!(path, *expected_path);
                match found {
                    Ok(found) => {
                        assert!(Ok(&found) == content.as_ref(), "{path}");
                        whole += 1;
                    }
                    Err(error) => {
                        let named = missing.iter().any(|ix| {
                            error.ends_with(&format!(
                                "is on device {} of the file system, which is not here",
                                ix + 1
                            ))
                        });
                        assert!(named, "{path}: {error}");
                        failed += 1;
                    }
                }
            }
        }
        assert!(whole > 0 && failed > 0, "{kind:?}: {whole} whole, {failed} not");
    }
}

/// Where trees are lost too, it cannot be opened, and the error names the device.
#[test]
fn without_its_trees_it_is_an_error_that_names_a_device() {
    let Some(pool) = Pool::make(&["-d", "single", "-m", "single"], &[200, 200]) else { return };
    let mut failed = 0;
    for here in [0, 1] {
        let Err(error) = pool.open(&[here]) else { continue };
        assert!(matches!(error, Error::DeviceMissing { id, .. } if id == 2 - here as u64), "{error}");
        failed += 1;
    }
    assert!(failed > 0);
}

/// Every third block of a device is wrong: the checksums say which, and copies and parity give what
/// it was; of RAID 6 also with two such devices, or one and one missing.
#[test]
fn what_a_device_has_wrong_is_taken_from_the_others() {
    for kind in KINDS.into_iter().filter(|kind| kind.2 > 0) {
        let Some((pool, expected)) = pool(kind) else { return };
        for seed in 0..2 {
            for rotten in sets(kind.1.len(), 1) {
                let missing = (rotten[0] + 1) % kind.1.len();
                let missing = if kind.2 > 1 && seed == 1 { vec![missing] } else { Vec::new() };
                let fs = pool.open_rotten(&missing, &rotten, seed).unwrap();
                assert!(files(&*fs) == expected, "{kind:?}, {rotten:?} rotten, without {missing:?}");
            }
        }
    }
}

/// Where all copies are wrong, and where parity is wrong too, it is an error, and never a wrong
/// byte.
#[test]
fn what_is_wrong_everywhere_is_an_error() {
    for kind in [KINDS[2], KINDS[9], KINDS[10]] {
        let Some((pool, expected)) = pool(kind) else { return };
        let all: Vec<usize> = (0..kind.1.len()).collect();
        for seed in 0..6 {
            let Ok(fs) = pool.open_rotten(&[], &all, seed) else { continue };
            for (path, found) in files(&*fs) {
                let Ok(found) = found else { continue };
                let content = &expected.iter().find(|(expected, _)| *expected == path).unwrap().1;
                assert!(Ok(&found) == content.as_ref(), "{path}");
            }
        }
    }
}

fn write_later(at: &Path) {
    fs::write(at.join("file-300000"), pattern(50, 300_000)).unwrap();
    fs::write(at.join("later"), pattern(51, 700_000)).unwrap();
    fs::remove_file(at.join("file-65537")).unwrap();
    fs::rename(at.join("file-3000"), at.join("many/moved")).unwrap();
    let file = File::options().write(true).open(at.join("file-2500001")).unwrap();
    file.write_all_at(&pattern(52, 900_000), 1_000_000).unwrap();
    for ix in 0..100 {
        fs::write(at.join(format!("many/later-{ix}")), pattern(ix, 2300)).unwrap();
    }
}

/// A device that was away while the others were written: what it has is old, and is not taken,
/// whether it comes first or last, and whatever the others have wrong as long as that is right
/// elsewhere.
#[test]
fn a_device_that_was_away_gives_nothing_old() {
    for kind in [KINDS[2], KINDS[4], KINDS[6], KINDS[9], KINDS[10], KINDS[13]] {
        for away in 0..kind.1.len() {
            let Some((pool, _)) = pool(kind) else { return };
            let here: Vec<usize> = (0..kind.1.len()).filter(|ix| *ix != away).collect();
            let mut expected = Vec::new();
            pool.mounted(&here, "degraded", |at, _| write_later(at)).unwrap();
            pool.mounted(&here, "degraded,ro", |at, _| expected = contents(at)).unwrap();
            for order in [[vec![away], here.clone()].concat(), [here.clone(), vec![away]].concat()] {
                let fs = pool.open(&order).unwrap();
                assert!(files(&*fs) == expected, "{kind:?}, {away} away");
                let stale =
                    |note: &Note| matches!(note, Note::DeviceStale { id, .. } if *id == away as u64 + 1);
                assert!(fs.about().notes.iter().any(stale), "{:?}", fs.about().notes);
                assert!(fs.not_as_mounted().is_empty());
            }
            // Without one of the others the stale one has to help, if it can.
            for missing in &here {
                let order: Vec<usize> = (0..kind.1.len()).filter(|ix| ix != missing).collect();
                let Ok(fs) = pool.open(&order) else { continue };
                let stale =
                    fs.devices().iter().any(|device| matches!(device.state, FsDeviceState::Stale { .. }));
                // Where nothing that is newer is here, it is what it was.
                for (path, found) in files(&*fs).into_iter().filter(|_| stale) {
                    let Ok(found) = found else { continue };
                    let content = expected.iter().find(|(expected, _)| *expected == path);
                    assert!(content.is_some_and(|(_, content)| *content == Ok(found)), "{path}");
                }
            }
        }
    }
}

/// Data without checksums: a device that was away is read only where nothing else has it, and that
/// is told.
#[test]
fn data_without_checksums_comes_from_devices_that_were_not_away() {
    for (options, sizes) in [
        (&["-d", "raid1", "-m", "raid1"][..], &[200, 200][..]),
        (&["-d", "raid5", "-m", "raid1c3"], &[200, 200, 200]),
    ] {
        for away in 0..sizes.len() {
            let Some(pool) = Pool::make(options, sizes) else { return };
            let (before, after) = (pattern(1, 1_000_000), pattern(2, 1_000_000));
            if pool.filled("nodatacow", |at| fs::write(at.join("file"), &before).unwrap()).is_none() {
                return;
            }
            let here: Vec<usize> = (0..sizes.len()).filter(|ix| *ix != away).collect();
            pool.mounted(&here, "degraded,nodatacow", |at, _| {
                let file = File::options().write(true).open(at.join("file")).unwrap();
                file.write_all_at(&after, 0).unwrap();
            })
            .unwrap();
            let all: Vec<usize> = (0..sizes.len()).collect();
            let fs = pool.open(&all).unwrap();
            assert!(files(&*fs) == [("/file".to_owned(), Ok(after.clone()))], "{options:?}, {away} away");
            assert_eq!(fs.not_as_mounted(), []);
            if sizes.len() < 3 {
                continue;
            }
            // One that was written is missing: parity and the old data of the other do not fit.
            let fs = pool.open(&[away, here[0]]).unwrap();
            files(&*fs);
            let told = fs.not_as_mounted();
            assert!(matches!(told[..], [Note::StaleDataRead { id }] if id == away as u64 + 1), "{told:?}");
        }
    }
}

/// An older copy of a device is not used; one of the same moment neither; and two that were written
/// apart from each other are refused.
#[test]
fn copies_of_a_device_are_told() {
    let Some((pool, _)) = pool(KINDS[2]) else { return };
    let old = pool.keep(1, "old");
    let mut expected = Vec::new();
    pool.filled("", write_later).unwrap();
    pool.filled("ro", |at| expected = contents(at)).unwrap();
    let same = pool.keep(1, "same");
    let open = |paths: &[&Path]| {
        let readers = paths.iter().map(|path| Box::new(common::Image::open(path)) as Box<dyn ReadAt>);
        wattle_fs::open_devices(readers.collect(), None)
    };
    let [one, two, three] = [&*pool.devices[0], &pool.devices[1], &pool.devices[2]];
    for (given, used) in [
        ([&*old, one, two, three], 2),
        ([one, two, &old, three], 1),
        ([one, &same, two, three], 1),
        ([one, two, three, &same], 1),
    ] {
        let fs = open(&given).unwrap();
        assert!(files(&*fs) == expected);
        assert_eq!(fs.about().notes, [Note::DeviceTwice { id: 2 }]);
        let in_use: Vec<_> =
            fs.devices().iter().filter(|device| device.state == FsDeviceState::InUse).collect();
        assert_eq!(in_use[1].given, Some(used), "{:?}", fs.devices());
    }
    // Each half of a mirror was written without the other.
    let Some(pool) = Pool::make(&["-d", "raid1", "-m", "raid1"], &[200, 200]) else { return };
    pool.filled("", |at| fs::write(at.join("file"), "both").unwrap()).unwrap();
    let write = |half: usize| {
        pool.mounted(&[half], "degraded", |at, _| fs::write(at.join("file"), half.to_string()).unwrap())
            .unwrap();
        let fs = pool.open(&[half]).unwrap();
        fs.devices().iter().find(|device| device.given == Some(0)).unwrap().generation
    };
    // Until both have come as far as the other.
    let mut generations = [write(0), write(1)];
    for _ in 0..20 {
        match generations[0].cmp(&generations[1]) {
            std::cmp::Ordering::Less => generations[0] = write(0),
            std::cmp::Ordering::Greater => generations[1] = write(1),
            std::cmp::Ordering::Equal => break,
        }
        // The newer one counts.
        if let Ok(fs) = pool.open(&[0, 1]) {
            let newer = u8::from(generations[1] > generations[0]);
            assert_eq!(files(&*fs), [("/file".to_owned(), Ok(newer.to_string().into_bytes()))]);
        }
    }
    match pool.open(&[0, 1]) {
        Err(error) => assert!(matches!(error, Error::DevicesDisagree { .. }), "{error}"),
        Ok(_) => assert_ne!(generations[0], generations[1]),
    }
    for (half, content) in [(0, "0"), (1, "1")] {
        let fs = pool.open(&[half]).unwrap();
        assert_eq!(files(&*fs), [("/file".to_owned(), Ok(content.as_bytes().to_vec()))]);
    }
}

/// Chunks of two profiles at once, as a balance that was interrupted leaves them, and devices that
/// were added and removed.
#[test]
fn a_balance_in_the_middle_and_changed_devices() {
    let Some(mut pool) = Pool::make(&["-d", "single", "-m", "dup"], &[600]) else { return };
    for name in ["device-2", "device-3"] {
        pool.devices.push(common::image(&pool.dir, name, 600 << 20));
    }
    let run_btrfs = |args: &[&str], at: &Path| {
        run(program("btrfs").args(args).arg(at)).unwrap();
    };
    let mut expected = Vec::new();
    let changed = pool.mounted(&[0, 1, 2], "", |at, loops| {
        write_files(at);
        for name in &loops[1..] {
            run_btrfs(&["device", "add", "-f", name], at);
        }
        fs::write(at.join("large"), pattern(9, 150 << 20)).unwrap();
        run_btrfs(&["balance", "start", "-f", "-mconvert=raid1"], at);
        run_btrfs(&["balance", "start", "-f", "-dconvert=raid5,limit=1"], at);
        let df = program("btrfs").args(["filesystem", "df"]).arg(at).output().unwrap();
        let df = String::from_utf8(df.stdout).unwrap();
        assert!(df.contains("Data, single") && df.contains("Data, RAID5"), "{df}");
        expected = contents(at);
    });
    if changed.is_none() {
        return;
    }
    let fs = pool.open(&[2, 0, 1]).unwrap();
    assert!(files(&*fs) == expected);
    drop(fs);
    // Without the first, what is in RAID 5 comes out, and what is single does not.
    let fs = pool.open(&[1, 2]).unwrap();
    let found = files(&*fs);
    assert!(found.iter().zip(&expected).all(|(found, expected)| found.1.is_err() || found == expected));
    drop(fs);
    pool.mounted(&[0, 1, 2], "", |at, loops| {
        run_btrfs(&["balance", "start", "-f", "-dconvert=single"], at);
        run_btrfs(&["device", "remove", &loops[1]], at);
        expected = contents(at);
    })
    .unwrap();
    let fs = pool.open(&[0, 1, 2]).unwrap();
    assert!(files(&*fs) == expected);
    assert_eq!(fs.devices().iter().map(|device| device.id).collect::<Vec<_>>(), [1, 3]);
}

/// A seed is part of what was made from it, and a file system of its own.
#[test]
fn a_seed_is_read_with_what_was_made_from_it() {
    let Some(mut pool) = Pool::make(&["-d", "single", "-m", "dup"], &[300]) else { return };
    if pool.filled("", write_files).is_none() {
        return;
    }
    run(program("btrfstune").args(["-f", "-S", "1"]).arg(&pool.devices[0])).unwrap();
    pool.devices.push(common::image(&pool.dir, "device-2", 300 << 20));
    let (mut seed, mut expected) = (Vec::new(), Vec::new());
    pool.mounted(&[0, 1], "", |at, loops| {
        seed = contents(at);
        run(program("btrfs").args(["device", "add", "-f", &loops[1]]).arg(at)).unwrap();
        run(program("mount").args(["-o", "remount,rw"]).arg(at)).unwrap();
        write_later(at);
        expected = contents(at);
    })
    .unwrap();
    assert!(seed != expected);
    let fs = pool.open(&[1, 0]).unwrap();
    assert!(files(&*fs) == expected);
    let states: Vec<_> = fs.devices().iter().map(|device| device.state).collect();
    assert_eq!(states, [FsDeviceState::Seed, FsDeviceState::InUse]);
    assert_eq!(fs.about().notes, []);
    let fs = pool.open(&[0, 1]).unwrap();
    assert!(files(&*fs) == seed);
    // Without the seed only what was written since is there.
    match pool.open(&[1]) {
        Ok(fs) => assert!(files(&*fs).iter().any(|(_, found)| found.is_err())),
        Err(error) => assert!(matches!(error, Error::DeviceMissing { id: 1, .. }), "{error}"),
    }
}

/// A device that was being filled to replace another one has the number 0 until it is done. (The
/// kernel here stops no replacement where a test could wait for it: the superblock is made of
/// another device's.)
#[test]
fn a_replacement_that_was_not_finished_is_passed_over() {
    const AT: u64 = 64 << 10;
    let Some((mut pool, expected)) = pool(KINDS[2]) else { return };
    let target = common::image(&pool.dir, "device-4", 300 << 20);
    let mut superblock = vec![0; 4096];
    common::Image::open(&pool.devices[0]).read_at(AT, &mut superblock).unwrap();
    superblock[201..209].fill(0);
    superblock[267..283].fill(7);
    // This one has checksums of the kind xxhash64.
    let sum = twox_hash::XxHash64::oneshot(0, &superblock[32..]);
    superblock[..8].copy_from_slice(&sum.to_le_bytes());
    common::pool::overwrite(&target, AT, &superblock);
    pool.devices.push(target);
    for order in [[3, 0, 1, 2], [0, 1, 2, 3]] {
        let fs = pool.open(&order).unwrap();
        assert!(files(&*fs) == expected);
        assert_eq!(fs.about().notes, [Note::DeviceReplacement]);
    }
    // While the one that it replaces is missing, the copies of others are enough.
    let fs = pool.open(&[0, 2, 3]).unwrap();
    assert!(files(&*fs) == expected);
}

/// A device that ends early, and one whose first superblock is gone.
#[test]
fn a_device_that_is_cut_off_or_lacks_its_first_superblock() {
    let Some((pool, expected)) = pool(KINDS[9]) else { return };
    common::pool::overwrite(&pool.devices[1], 64 << 10, &[0; 4096]);
    let fs = pool.open(&[1, 0, 2, 3]).unwrap();
    assert!(files(&*fs) == expected);
    assert_eq!(fs.about().notes, []);
    File::options().write(true).open(&pool.devices[2]).unwrap().set_len(70 << 20).unwrap();
    let fs = pool.open(&[0, 1, 2, 3]).unwrap();
    assert!(files(&*fs) == expected);
    assert!(matches!(fs.about().notes[..], [Note::DeviceCutOff { id: 3, .. }]), "{:?}", fs.about());
}

/// A flush that only one of two devices took: it is there whatever order they are given in, and
/// that they differ is told.
#[test]
fn a_log_that_one_device_has_is_applied_in_any_order() {
    const AT: u64 = 64 << 10;
    let Some(mut pool) = Pool::make(&["-d", "raid1", "-m", "raid1"], &[200, 200]) else { return };
    let mut crashed = Vec::new();
    let written = pool.filled("commit=300", |at| {
        fs::write(at.join("before"), "before").unwrap();
        run(program("sync").arg("-f").arg(at)).unwrap();
        let file = File::create(at.join("flushed")).unwrap();
        file.write_all_at(b"flushed", 0).unwrap();
        file.sync_all().unwrap();
        crashed = vec![pool.keep(0, "crashed-1"), pool.keep(1, "crashed-2")];
    });
    if written.is_none() {
        return;
    }
    pool.devices = crashed;
    let expected: Vec<_> =
        ["before", "flushed"].map(|name| (format!("/{name}"), Ok(name.as_bytes().to_vec()))).into();
    let assert_told = |notes: &[Note]| {
        for order in [[0, 1], [1, 0]] {
            let fs = pool.open(&order).unwrap();
            assert_eq!(files(&*fs), expected, "{order:?}");
            assert_eq!(fs.not_as_mounted(), notes, "{order:?}");
            assert!(matches!(fs.about().notes.last(), Some(Note::LogTreesApplied { items: 1.. })));
        }
    };
    assert_told(&[]);
    let forget = |ix: usize| {
        let mut superblock = vec![0; 4096];
        common::Image::open(&pool.devices[ix]).read_at(AT, &mut superblock).unwrap();
        let kept = superblock.clone();
        superblock[96..104].fill(0);
        let sum = crc32c::crc32c(&superblock[32..]);
        superblock[..4].copy_from_slice(&sum.to_le_bytes());
        common::pool::overwrite(&pool.devices[ix], AT, &superblock);
        kept
    };
    for (without, with) in [(1, 0), (0, 1)] {
        let kept = forget(without);
        assert_told(&[Note::DeviceLogsDiffer { id: with + 1 }]);
        common::pool::overwrite(&pool.devices[without], AT, &kept);
    }
}

/// The file systems that lie on several devices, among others.
#[test]
fn the_devices_of_several_file_systems_are_told() {
    let Some(one) = Pool::make(&["-d", "raid1", "-m", "raid1"], &[200, 200, 200]) else { return };
    let Some(other) = Pool::make(&["-d", "raid0", "-m", "raid0"], &[200, 200]) else { return };
    let Some(alone) = Pool::make(&[], &[200]) else { return };
    let given = [&one.devices[2], &other.devices[1], &alone.devices[0], &one.devices[0]];
    let readers = given.map(|path| Box::new(common::Image::open(path)) as Box<dyn ReadAt>);
    let found = wattle_fs::on_several_devices(readers.into());
    let [one, other] = &found[..] else { panic!("{found:?}") };
    assert_eq!((one.kind, &one.label[..]), ("btrfs", &b"pool"[..]));
    let given: Vec<_> = one.devices.iter().map(|device| (device.id, device.given)).collect();
    assert_eq!(given, [(1, Some(3)), (2, None), (3, Some(0))]);
    assert!(one.problem.is_none() && matches!(other.problem, Some(Error::DeviceMissing { id: 1, .. })));
    assert_eq!(other.devices.len(), 1);
}
