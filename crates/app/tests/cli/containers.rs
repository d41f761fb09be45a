//! Containers of firmware RAID that mdadm and a real kernel wrote (fixtures/containers): every byte
//! of every volume reads back, whole and with every set of drives left out that its level can do
//! without, nothing is written, and what cannot be told is refused.

use std::fs;

use serde_json::Value;

use crate::harness::{Room, Said, Serve, fixtures, require, run, tool};

/// A case of fixtures/containers.
struct Container {
    id: String,
    facts: Value,
    room: Room,
    /// By number.
    drives: Vec<String>,
}

/// A volume of a case.
struct Volume {
    name: &'static str,
    level: String,
    layout: u64,
    /// By slot, the drive that is whole there.
    slots: Vec<Option<usize>>,
    expected: Vec<u8>,
}

impl Container {
    /// `None`, loudly, where they cannot be unpacked.
    fn unpack(id: &str) -> Option<Self> {
        if !require("zstd") {
            return None;
        }
        let folder = fixtures().join("containers").join(id);
        let facts: Value = serde_json::from_slice(&fs::read(folder.join("case.json")).unwrap()).unwrap();
        let room = Room::new();
        // mdadm took the names of devices for serial numbers.
        let device = if facts["case"].as_str().unwrap().contains("sector=") { "loop" } else { "dm-" };
        let unpack = |ix| {
            let image = room.name(&format!("{device}{ix}.img"));
            let packed = folder.join(format!("dm-{ix}.img.zst"));
            tool("zstd", ["-dq", "--sparse", packed.to_str().unwrap(), "-o", &image]);
            image
        };
        let drives = (0..facts["drives"].as_u64().unwrap()).map(unpack).collect();
        Some(Self { id: id.to_owned(), facts, room, drives })
    }

    fn volumes(&self) -> Vec<Volume> {
        let volume = |name, prefix: &str, pattern: &str| {
            let level = self.facts[format!("{prefix}level")].as_str()?.to_owned();
            let number = |field: &str| self.facts[format!("{prefix}{field}")].as_u64().unwrap();
            let slots = match &self.facts[format!("{prefix}slots")] {
                Value::String(slots) => slots.split(',').map(|slot| slot.parse().ok()).collect(),
                other => vec![other.as_u64().map(|slot| slot as usize)],
            };
            let pattern = match &self.facts[pattern] {
                Value::String(pattern) => pattern.clone(),
                seed => seed.to_string(),
            };
            let expected = expected(&pattern, number("array_sectors"));
            Some(Volume { name, level, layout: number("layout"), slots, expected })
        };
        [volume("first", "", "pattern"), volume("second", "second_", "second_pattern")]
            .into_iter()
            .flatten()
            .collect()
    }

    fn without(&self, left_out: &[usize]) -> Vec<String> {
        let drives = self.drives.iter().enumerate();
        drives.filter(|(ix, _)| !left_out.contains(ix)).map(|(_, name)| name.clone()).collect()
    }
}

impl Volume {
    /// Whether a drive of it is there. One that failed or is being filled does not know it when it
    /// is alone.
    fn is_left(&self, left_out: &[usize]) -> bool {
        self.slots.iter().flatten().any(|drive| !left_out.contains(drive))
    }

    /// Whether it can be read without these drives.
    fn survives(&self, left_out: &[usize]) -> bool {
        let lost = |slot: &Option<usize>| slot.is_none_or(|drive| left_out.contains(&drive));
        let gone = self.slots.iter().filter(|slot| lost(slot)).count();
        match self.level.as_str() {
            "raid0" => gone == 0,
            "raid1" => gone < self.slots.len(),
            "raid4" | "raid5" => gone <= 1,
            "raid6" => gone <= 2,
            // Near copies of two in an even number of slots are pairs; of others any one may go.
            "raid10" if self.layout == 0x102 && self.slots.len().is_multiple_of(2) => {
                self.slots.chunks(2).all(|pair| !pair.iter().all(&lost))
            }
            // Others have the copies of a slot in the next one.
            "raid10" => {
                let count = self.slots.len();
                !(0..count).any(|slot| lost(&self.slots[slot]) && lost(&self.slots[(slot + 1) % count]))
            }
            other => panic!("{other}"),
        }
    }
}

/// What helps is a command that can be typed: what firmware keeps on a drive is found by the drive.
#[test]
fn why_names_the_drives() {
    let Some(case) = Container::unpack("ddf-r5-4d-ls") else { return };
    let why = run(["why".to_owned()].into_iter().chain(case.drives.clone())).ok();
    let next =
        why.text().lines().find_map(|line| line.trim().strip_prefix("next: wattle serve --read-only "));
    let mut named: Vec<_> = next.unwrap_or_default().split(' ').collect();
    named.sort_unstable();
    assert_eq!(named, case.drives, "{}", why.text());
}

/// What an array holds: fixtures/README.md. Layers are SEED or SEED:START:COUNT.
fn expected(pattern: &str, sectors: u64) -> Vec<u8> {
    let mut bytes = vec![0; sectors as usize * 512];
    for layer in pattern.split(',') {
        let numbers: Vec<u64> = layer.split(':').map(|number| number.parse().unwrap()).collect();
        let (start, count) = if numbers.len() == 1 { (0, sectors) } else { (numbers[1], numbers[2]) };
        for sector in start..start + count {
            let word = word(numbers[0], sector).to_le_bytes();
            bytes[sector as usize * 512..][..512].copy_from_slice(&[word; 64].concat());
        }
    }
    bytes
}

fn word(seed: u64, sector: u64) -> u64 {
    let mut z = (seed ^ sector).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn cat(volume: &str, args: &[&str], drives: &[String]) -> Said {
    let args = ["cat", "-V", volume].into_iter().chain(args.iter().copied()).map(str::to_owned);
    run(args.chain(drives.iter().cloned()))
}

/// Sets of at most two of so many drives.
fn sets(count: usize) -> Vec<Vec<usize>> {
    let one = (0..count).map(|one| vec![one]);
    let two = (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other]));
    [vec![]].into_iter().chain(one).chain(two).collect()
}

/// Reads every volume of a case with every set of at most two drives left out.
fn check(id: &str) {
    check_with(id, &[]);
}

/// The same, where these drives are not in a slot as Linux shows them: they are being filled.
fn check_with(id: &str, filled: &[usize]) {
    let Some(case) = Container::unpack(id) else { return };
    let volumes = case.volumes();
    assert!(!volumes.is_empty(), "{id}");
    case.room.untouched(|| {
        for mut volume in volumes {
            for slot in &mut volume.slots {
                *slot = slot.filter(|drive| !filled.contains(drive));
            }
            for left_out in sets(case.drives.len()) {
                let drives = case.without(&left_out);
                if drives.is_empty() {
                    continue;
                }
                let said = cat(volume.name, &[], &drives);
                if volume.survives(&left_out) {
                    let said = said.ok();
                    assert!(said.stdout == volume.expected, "{id} {} without {left_out:?}", volume.name);
                } else if volume.is_left(&left_out) {
                    assert_ne!(said.status, 0, "{id} {} without {left_out:?}", volume.name);
                    assert!(said.stdout.is_empty(), "{id} without {left_out:?}: no guess may be written");
                }
            }
        }
    });
}

#[test]
fn intel_volumes_read_back() {
    ["imsm-r0-2d", "imsm-r0-3d-128k", "imsm-r1-2d", "imsm-r5-4d-16k", "imsm-r10-4d"]
        .into_iter()
        .for_each(check);
}

/// Of drives with sectors of 4096 bytes, everything is counted in these.
#[test]
fn intel_volumes_on_drives_of_large_sectors_read_back() {
    ["imsm-r5-4k", "imsm-r10-r0-4k"].into_iter().for_each(check);
}

/// What is recorded as lost is read from the other drive, and is an error without it.
#[test]
fn lost_blocks_of_intel_drives_are_honoured() {
    let Some(case) = Container::unpack("imsm-r1-bad") else { return };
    let expected = &case.volumes()[0].expected;
    for left_out in [&[][..], &[0]] {
        assert!(cat("first", &[], &case.without(left_out)).ok().stdout == *expected, "without {left_out:?}");
    }
    let said = cat("first", &["--length", "153600"], &case.without(&[1])).ok();
    assert!(said.stdout == expected[..153_600], "sectors 0 to 299 are there");
    let said = cat("first", &["--offset", "153600"], &case.without(&[1]));
    assert_ne!(said.status, 0, "sectors 300 to 304 are lost");
}

#[test]
fn two_intel_volumes_in_a_container_read_back() {
    ["imsm-r10-r5", "imsm-r1-r0"].into_iter().for_each(check);
}

#[test]
fn intel_volumes_with_a_failed_drive_read_back() {
    ["imsm-r1-failed", "imsm-r5-failed", "imsm-r10-failed", "imsm-r5-removed"].into_iter().for_each(check);
}

#[test]
fn an_intel_spare_does_no_harm_and_what_it_took_over_reads_back() {
    ["imsm-r5-spare", "imsm-r5-rebuilt"].into_iter().for_each(check);
}

/// The drive that is being filled counts for what it has, and no volume needs it.
#[test]
fn intel_volumes_in_the_middle_of_a_rebuild_read_back() {
    check_with("imsm-r1-rebuild", &[2]);
    check_with("imsm-r5-rebuild", &[3]);
    check_with("imsm-r10-rebuild", &[4]);
}

#[test]
fn ddf_volumes_read_back() {
    ["ddf-r0-3d-16k", "ddf-r1-3d", "ddf-r5-4d-ls", "ddf-r5-3d-la", "ddf-r5-3d-ra", "ddf-r4-3d"]
        .into_iter()
        .for_each(check);
}

#[test]
fn ddf_volumes_with_two_parities_read_back() {
    ["ddf-r6-4d-zr", "ddf-r6-4d-nr", "ddf-r6-5d-nc"].into_iter().for_each(check);
}

/// Of three drives, the container ends the volume before its drives do.
#[test]
fn ddf_volumes_striped_over_mirrors_read_back() {
    ["ddf-r10-4d", "ddf-r10-4d-f2", "ddf-r10-3d", "ddf-r10-r5"].into_iter().for_each(check);
}

#[test]
fn ddf_volumes_with_a_failed_drive_read_back() {
    ["ddf-r1-failed", "ddf-r5-failed", "ddf-r10-failed", "ddf-r5-removed"].into_iter().for_each(check);
}

#[test]
fn ddf_spares_and_what_they_took_over_read_back() {
    ["ddf-r5-spare", "ddf-r5-rebuilt"].into_iter().for_each(check);
}

/// DDF does not record how far a rebuild came: the drive counts for nothing.
#[test]
fn ddf_volumes_in_the_middle_of_a_rebuild_read_back() {
    check_with("ddf-r1-rebuild", &[1]);
    check_with("ddf-r5-rebuild", &[3]);
    // mdadm 4.2 recorded the spare in the other mirror than the one it fills, in the place of a
    // drive that is whole.
    check_with("ddf-r10-rebuild", &[3, 1]);
}

/// What was in flight may have parity that does not fit: with a drive missing that is refused.
#[test]
fn dirty_and_degraded_volumes_are_refused_unless_forced() {
    for id in ["imsm-r5-dirty", "imsm-r5-ppl-dirty", "imsm-r5-init", "ddf-r5-dirty", "ddf-r5-init"] {
        let Some(case) = Container::unpack(id) else { return };
        let volume = &case.volumes()[0];
        case.room.untouched(|| {
            assert!(cat("first", &[], &case.drives).ok().stdout == volume.expected, "{id}");
            let some = case.without(&[1]);
            let said = cat("first", &[], &some).failed(3, "WTL-0049", &["not stopped cleanly"]);
            assert!(said.stdout.is_empty(), "{id}");
            let forced = cat("first", &["--force=dirty-degraded"], &some).ok();
            assert_eq!(forced.stdout.len(), volume.expected.len(), "{id}");
        });
    }
    let Some(case) = Container::unpack("imsm-r1-dirty") else { return };
    let expected = &case.volumes()[0].expected;
    for left_out in sets(2).iter().take(3) {
        let said = cat("first", &[], &case.without(left_out)).ok();
        assert!(said.stdout == *expected, "a mirror without {left_out:?}");
    }
}

#[test]
fn a_migration_is_refused_by_name() {
    for id in ["imsm-r0-grow", "imsm-r5-chunk"] {
        let Some(case) = Container::unpack(id) else { return };
        case.room.untouched(|| {
            let said = cat("first", &[], &case.drives);
            let said = said.failed(3, "WTL-0323", &["a migration to another layout"]);
            assert!(said.stdout.is_empty(), "{id}");
        });
    }
}

/// All drives have the same metadata: which is which is known by serial numbers.
#[test]
fn drives_that_are_not_told_apart_are_named_with_what_tells_them_apart() {
    let Some(case) = Container::unpack("imsm-r5-4d-16k") else { return };
    let nameless: Vec<String> = (0..4).map(|ix| case.room.name(&format!("copy-{ix}"))).collect();
    for (from, to) in case.drives.iter().zip(&nameless) {
        fs::rename(from, to).unwrap();
    }
    let said = run(["scan"].map(str::to_owned).into_iter().chain(nameless.clone()));
    said.failed(3, "WTL-0322", &["which drive", "/dev/dm-2", "serial number"]);
    let said = cat("first", &[], &nameless);
    assert!(said.status != 0 && said.stdout.is_empty());
    // A link with the number in its name is enough.
    let linked: Vec<String> = (0..4).map(|ix| case.room.name(&format!("my dm-{ix}.dd"))).collect();
    for (from, to) in nameless.iter().zip(&linked) {
        std::os::unix::fs::symlink(from, to).unwrap();
    }
    assert!(cat("first", &[], &linked).ok().stdout == case.volumes()[0].expected);
}

/// Each drive of a mirror that is whole has all of it.
#[test]
fn a_mirror_needs_no_serial_numbers() {
    for id in ["imsm-r1-2d", "imsm-r1-failed"] {
        let Some(case) = Container::unpack(id) else { return };
        let copy = case.room.name("copy of the second");
        fs::rename(&case.drives[1], &copy).unwrap();
        assert!(cat("first", &[], &[copy]).ok().stdout == case.volumes()[0].expected, "{id}");
    }
}

#[test]
fn scan_says_what_every_drive_is() {
    let Some(case) = Container::unpack("imsm-r5-failed") else { return };
    let scan = |more: &[&str]| {
        let args = ["scan"].iter().chain(more).map(|arg| (*arg).to_owned());
        run(args.chain(case.drives.iter().cloned())).ok()
    };
    let report = scan(&["--json"]).json();
    let array = &report["arrays"][0];
    assert_eq!((array["name"].as_str(), array["metadata"].as_str()), (Some("first"), Some("imsm")));
    assert_eq!((array["level"].as_str(), array["layout"].as_str()), (Some("raid5"), Some("left-asymmetric")));
    assert_eq!((array["slots"].as_str(), array["access"].as_str()), (Some("[UU_]"), Some("read_only")));
    let verdicts: Vec<_> = array["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == "fresh").count(), 2, "{verdicts:?}");
    assert!(verdicts.contains(&"stale"), "{verdicts:?}");
    let text = scan(&[]);
    for words in ["a drive of Intel RAID container", "which says that this drive failed", "WTL-0321"] {
        assert!(text.text().contains(words), "expected `{words}`: {}", text.text());
    }

    let Some(spare) = Container::unpack("imsm-r5-spare") else { return };
    let said = run(["scan".to_owned()].into_iter().chain(spare.drives.iter().cloned())).ok();
    assert!(said.text().contains("a spare drive of Intel RAID"), "{}", said.text());
    let Some(spare) = Container::unpack("ddf-r5-spare") else { return };
    let said = run(["scan".to_owned()].into_iter().chain(spare.drives.iter().cloned())).ok();
    assert!(said.text().contains("it is a spare"), "{}", said.text());
}

#[test]
fn a_volume_is_served_for_reading_only() {
    let Some(case) = Container::unpack("ddf-r10-3d") else { return };
    let refused = Serve::try_start(&case.room, &[], &case.drives).err().unwrap();
    refused.failed(3, "WTL-0321", &["does not write", "--read-only", "mdadm"]);
    let serve = Serve::start(&case.room, &["--read-only"], &case.drives);
    let array = serve.array();
    assert_eq!(array["metadata"].as_str(), Some("ddf"), "{array}");
    assert_eq!(array["size_bytes"].as_u64(), Some(case.volumes()[0].expected.len() as u64), "{array}");
}

/// What makes it a drive of a container is at its end.
#[test]
fn a_drive_that_is_cut_short_is_told() {
    for id in ["imsm-r5-4d-16k", "ddf-r5-3d-la"] {
        let Some(case) = Container::unpack(id) else { return };
        let cut = fs::File::options().write(true).open(&case.drives[1]).unwrap();
        cut.set_len(8 << 20).unwrap();
        let said = run(["scan".to_owned()].into_iter().chain(case.drives.iter().cloned()));
        said.failed(1, "WTL-0325", &["shorter than a drive that is missing", "copy it again"]);
        let said = cat("first", &[], &case.drives).ok();
        assert!(said.stdout == case.volumes()[0].expected, "{id}");
    }
}

/// Damage anywhere in the metadata of a drive leaves a drive that is not used, or changes nothing:
/// every read gives the right bytes or none.
#[test]
fn damaged_metadata_is_never_read_as_something_else() {
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_add(1);
        (word(state, 0) % below as u64) as usize
    };
    for (id, tail) in [("imsm-r5-4d-16k", 2048), ("ddf-r5-3d-la", 512), ("imsm-r10-rebuild", 2048)] {
        let Some(case) = Container::unpack(id) else { return };
        let expected = &case.volumes()[0].expected;
        let whole: Vec<Vec<u8>> = case.drives.iter().map(|drive| fs::read(drive).unwrap()).collect();
        for round in 0..16 {
            for (drive, bytes) in case.drives.iter().zip(&whole) {
                let mut bytes = bytes.clone();
                let at = bytes.len() - 1 - random(tail);
                bytes[at] ^= 1 << random(8);
                fs::write(drive, &bytes).unwrap();
            }
            let said = cat("first", &[], &case.drives);
            let fits = said.stdout == *expected || (said.status != 0 && said.stdout.is_empty());
            assert!(fits, "{} round {round}: {}", case.id, said.stderr);
        }
    }
}

/// A drive that was partitioned after its container was given up is what its partitions are.
#[test]
fn metadata_that_was_left_on_a_drive_hides_nothing() {
    let Some(case) = Container::unpack("imsm-r5-4d-16k") else { return };
    let mut bytes = fs::read(&case.drives[1]).unwrap();
    bytes[446..510].fill(0);
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    // It ends where no volume of the container does.
    bytes[446 + 12..446 + 16].copy_from_slice(&8192_u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let partition = 2048 * 512;
    bytes[partition + 1080..partition + 1082].copy_from_slice(&[0x53, 0xef]);
    fs::write(&case.drives[1], &bytes).unwrap();
    let said = run(["scan", &case.drives[1]]);
    for words in ["left from before", "dm-1.img:p1", "ext"] {
        assert!(said.text().contains(words), "expected `{words}`: {}", said.text());
    }
}

#[test]
fn a_dynamic_disk_of_windows_is_told() {
    let room = Room::new();
    let disk = room.device("disk.img", 1 << 20);
    let mut table = vec![0; 512];
    table[446 + 4] = 0x42;
    table[446 + 8] = 64;
    table[446 + 12..446 + 14].copy_from_slice(&1000_u16.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table.resize(1 << 20, 0);
    fs::write(&disk, &table).unwrap();
    let said = run(["scan", &disk]).ok();
    assert!(said.text().contains("dynamic disk of Windows (LDM)"), "{}", said.text());
}
