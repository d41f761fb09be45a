//! `wattle plan`: the stacks that operators arrived at by hand, commands that the tools accept, and
//! wishes that cannot be kept.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Room, require, run};
use crate::lvm::judge;

#[track_caller]
fn plan(args: &str) -> Value {
    run(["plan", "--json"].into_iter().chain(args.split_whitespace())).ok().json()
}

/// What is wrong with a plan's alignment, whatever was planned.
#[track_caller]
fn assert_aligned(report: &Value) {
    let plan = &report["plan"];
    let lvm = &plan["lvm"];
    let number = |value: &Value| value.as_u64().unwrap();
    let extent = number(&lvm["extent_bytes"]);
    for (array, pe_start) in
        plan["arrays"].as_array().unwrap().iter().zip(lvm["pe_start_bytes"].as_array().unwrap())
    {
        let stripe = array["stripe_bytes"].as_u64().unwrap_or(4096);
        assert_eq!(number(pe_start) % stripe, 0, "{array:#}");
        assert_eq!(extent % stripe, 0, "{array:#}");
        assert_eq!(number(&array["data_offset_bytes"]) % (1 << 20), 0);
    }
    let file_system = &plan["file_system"];
    if let Some(unit) = file_system["su_bytes"].as_u64() {
        assert_eq!(number(&file_system["agsize_bytes"]) % unit, 0, "{file_system:#}");
        let starts = file_system["ag_members"].as_array().unwrap();
        assert!(
            starts.iter().any(|member| *member != starts[0]),
            "all groups start on one member: {starts:?}"
        );
    }
    assert_eq!(number(&lvm["size_bytes"]), number(&lvm["extents"]) * extent);
}

#[test]
fn five_disks_with_lvm_and_xfs_become_what_was_aligned_by_hand() {
    let report = plan("--drives 5 --drive sata7200-small --survive 1 --capacity 900G --workload general");
    assert_aligned(&report);
    let (array, lvm, xfs) =
        (&report["plan"]["arrays"][0], &report["plan"]["lvm"], &report["plan"]["file_system"]);
    assert_eq!((&array["level"], &array["layout"]), (&"5".into(), &"left-symmetric".into()));
    assert_eq!((&array["chunk_bytes"], &array["stripe_bytes"]), (&(256 << 10).into(), &(1 << 20).into()));
    assert_eq!((&lvm["extent_bytes"], &lvm["pe_start_bytes"][0]), (&(32 << 20).into(), &(1 << 20).into()));
    assert_eq!((&xfs["su_bytes"], &xfs["sw"], &xfs["agcount"]), (&(256 << 10).into(), &4.into(), &4.into()));
    assert_eq!(report["plan"]["read_ahead_bytes"], 4096 * 512);
    assert_eq!(array["stripe_cache"]["entries"], 4096);
    let commands = report["plan"]["commands"]["linux"].to_string();
    for word in
        ["--level=5", "--chunk=256K", "--dataalignment 1m", "--physicalextentsize 32m", "su=256k,sw=4"]
    {
        assert!(commands.contains(word), "{word}: {commands}");
    }
}

#[test]
fn random_writes_to_six_ssds_keep_small_chunks_and_get_a_larger_cache() {
    let report = plan(
        "--drives 6 --drive x25m --survive 1 --capacity 300G --workload rw=randwrite,bs=4k,iodepth=248,norandommap",
    );
    assert_aligned(&report);
    let array = &report["plan"]["arrays"][0];
    assert_eq!((&array["level"], &array["chunk_bytes"]), (&"5".into(), &(64 << 10).into()));
    // 4096 entries of 4 KiB on each of six members.
    assert_eq!(array["stripe_cache"]["memory_bytes"], 96 << 20);
    let iops = report["candidates"][0]["measured"]["iops"].as_f64().unwrap();
    assert!((36_000.0..41_000.0).contains(&iops), "{iops}");
}

#[test]
fn seven_large_disks_get_the_cache_that_their_rebuild_needs() {
    let report = plan("--drives 7 --drive sata7200 --survive 1 --capacity 14T --workload backup");
    assert_aligned(&report);
    let array = &report["plan"]["arrays"][0];
    assert_eq!((&array["level"], &array["stripe_cache"]["entries"]), (&"5".into(), &16384.into()));
    let loss = &report["plan"]["loss"];
    assert!(loss["formula"].as_str().unwrap().contains("7 a x (6 a t + U)"), "{loss:#}");
    assert!(loss["unreadable_in_rebuild"].as_f64().unwrap() > 0.5, "{loss:#}");
}

#[test]
fn eight_luns_for_mail_are_striped_by_lvm_with_powers_of_two() {
    let report = plan("--drives 8 --drive sata7200 --survive 0 --workload mail --cores 8");
    assert_aligned(&report);
    let (lvm, xfs) = (&report["plan"]["lvm"], &report["plan"]["file_system"]);
    assert_eq!(report["plan"]["arrays"][0]["level"], "none");
    assert_eq!((&lvm["stripes"], &lvm["stripe_bytes"]), (&8.into(), &(4 << 20).into()));
    assert_eq!((&xfs["su_bytes"], &xfs["sw"]), (&(4 << 20).into(), &8.into()));
    assert!(xfs["agcount"].as_u64().unwrap() >= 16);
}

#[test]
fn small_arrays_of_mirrors_keep_the_layout_that_the_use_wants() {
    let best = |args: &str| {
        let report = plan(&format!("--drive sata7200-small --survive 1 --level 10 {args}"));
        assert_aligned(&report);
        report["candidates"][0]["layout"].as_str().unwrap().to_owned()
    };
    // Far copies are read like RAID 0, and written slower.
    assert_eq!(best("--drives 4 --workload media"), "f2");
    assert_ne!(best("--drives 4 --workload rw=write,bs=1m,iodepth=8"), "f2");
    assert_eq!(best("--drives 3 --workload media"), "f2");
}

#[test]
fn drives_of_different_sizes_become_bands_in_one_group() {
    let report = plan(
        "--drive 4xsata7200,size=4TB --drive 2xsata7200,size=8TB --survive 1 --capacity 20T --workload media",
    );
    assert_aligned(&report);
    let arrays = report["plan"]["arrays"].as_array().unwrap();
    let levels: Vec<_> = arrays.iter().map(|array| array["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["5", "1"]);
    assert_eq!(arrays[1]["drives"], serde_json::json!([4, 5]));
    assert_eq!(report["plan"]["unused_bytes"], 0);
    let commands = report["plan"]["commands"]["linux"].to_string();
    assert!(commands.contains("sgdisk --new=1:1M:+") && commands.contains("drive4p2 drive5p2"), "{commands}");
    assert_eq!(report["plan"]["uneven"], serde_json::json!([]), "copies have no stripes");
}

#[test]
fn a_band_that_the_file_systems_stripes_do_not_fit_is_named() {
    let args = "--drive 3xsata7200,size=4TB --drive 3xsata7200,size=8TB --survive 1 --level 5 --chunk 64K";
    let report = plan(args);
    assert_aligned(&report);
    assert_eq!(report["plan"]["uneven"], serde_json::json!(["data1"]));
    let room = Room::new();
    let file = room.name("stack.svg");
    let said = run(["plan", "--svg", &file].into_iter().chain(args.split_whitespace())).ok();
    let line = said.text().lines().find(|line| line.contains("not aligned on")).unwrap();
    assert!(line.contains("data1") && line.contains("raid5 over 3"), "{line}");
    assert!(fs::read_to_string(&file).unwrap().contains("not aligned on data1"));
}

#[test]
fn what_nobody_said_is_listed_and_what_was_said_is_not() {
    let report = plan("--drives 4 --drive nvme --level 10 --layout n2 --chunk 512K");
    let what = |report: &Value| {
        let all = report["assumed"].as_array().unwrap();
        all.iter().map(|assumed| assumed["option"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for option in
        ["--survive", "--spares", "--capacity", "--workload", "--fs", "--memory", "--ure", "--rebuild-share"]
    {
        assert!(what(&report).contains(&option.to_owned()), "{option}");
    }
    let said = "--drives 4 --drive nvme --level 10 --layout n2 --chunk 512K --survive 1 --spares 0 --capacity 1T --cores 8 \
                --workload rw=randrw,bs=8k,iodepth=32 --fs ext4 --memory 1G --afr 1 --ure 1e-16 --replace-hours 12 --rebuild-share 30";
    let report = plan(said);
    assert!(what(&report).is_empty(), "{report:#}");
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["plan"]["file_system"]["stride_blocks"], 128);
}

#[test]
fn wishes_that_cannot_be_kept_are_named_one_by_one() {
    for (args, code, word) in [
        ("--drives 5 --drive sata7200 --capacity 100T --survive 1", "WTL-0008", "100 TiB"),
        ("--drives 3 --drive sata7200 --survive 3", "WTL-0008", "3 failures"),
        ("--drives 5 --drive sata7200 --level 5 --survive 2", "WTL-0008", "raid5"),
        ("--drives 5 --drive sata7200 --level 5 --layout n2", "WTL-0008", "layout"),
        ("--drives 5 --drive sata7200 --level 6 --consistency ppl", "WTL-0008", "partial parity log"),
        ("--drives 5 --drive sata7200 --chunk 96K", "WTL-0008", "98304"),
        ("--drives 3 --drive sata7200 --level 6", "WTL-0008", "at least 4"),
        (
            "--drive 4xsata7200,size=4TB --drive sata7200,size=8TB --spares 1 --drive sata7200",
            "WTL-0008",
            "spare",
        ),
        ("--drives 5 --drive floppy", "WTL-0001", "floppy"),
        ("--drives 5", "WTL-0001", "--drive"),
        ("--drives 5 --drive 3xsata7200", "WTL-0001", "both"),
        ("--drives 5 --drive sata7200 --drive nvme", "WTL-0001", "several"),
        ("--drives 5 --drive sata7200,size=4T --drive-size 8T", "WTL-0001", "both"),
        ("--drives 5 --drive sata7200 --workload games", "WTL-0001", "games"),
        ("--drives 5 --drive sata7200 --workload rw=randrw,bs=5", "WTL-0001", "512"),
        ("--drives 5 --drive sata7200 --workload colour=red", "WTL-0001", "colour"),
        ("--drives 5 --drive sata7200 --level 7", "WTL-0001", "7"),
        ("--drives 5 --drive sata7200 --afr 200", "WTL-0001", "--afr"),
        ("--drives 5 --drive sata7200 --name ../x", "WTL-0001", "--name"),
    ] {
        let status = 2;
        run(["plan"].into_iter().chain(args.split_whitespace())).failed(status, code, &[word]);
    }
}

/// A drive of 20T is one of 20 TB, whichever way that is written, and the answer says both.
#[test]
fn drives_are_as_large_as_they_are_sold() {
    let plan = |size: &str| {
        let text = format!("plan --drives 4 --drive sata7200 --level 6 --drive-size {size}");
        run(text.split_whitespace()).ok().text().lines().next().unwrap().to_owned()
    };
    let sold = plan("20T");
    assert!(sold.ends_with("36.37 TiB, 39.99 TB"), "{sold}");
    assert_eq!((plan("20TB"), plan("20000000000000")), (sold.clone(), sold));
    assert!(plan("20TiB").ends_with("39.99 TiB, 43.98 TB"), "{}", plan("20TiB"));
    let odd = "plan --drives 4 --drive sata7200 --drive-size 20X";
    let refused = run(odd.split_whitespace());
    assert!(refused.status == 2 && refused.stderr.contains("20T, 3.84TB or 1TiB"), "{refused:?}");
}

#[test]
fn members_are_measured_and_not_written() {
    let room = Room::new();
    let members = room.blank(4, 64 << 20);
    let words =
        ["plan", "--drive", "sata7200", "--survive", "1", "--fs", "ext4", "--json"].map(str::to_owned);
    let report = room.untouched(|| run(words.into_iter().chain(members.clone()))).ok().json();
    assert_eq!(report["drives"][0]["size_bytes"], 64 << 20);
    assert!(report["plan"]["commands"]["wattle"][0].as_str().unwrap().contains(&members[0]));
    run([&["plan".to_owned()][..], &members].concat()).failed(2, "WTL-0001", &["--drive"]);
}

#[test]
fn twenty_four_drives_are_answered_in_virtual_time_with_equal_digits() {
    let args = "--drives 24 --drive sata7200 --survive 2 --workload vm";
    let once = plan(args);
    assert_aligned(&once);
    assert_eq!(once["candidates"], plan(args)["candidates"]);
}

/// Plans whose commands are tried, small enough for sparse files.
const TRIED: [&str; 6] = [
    "--drives 5 --drive sata7200-small --survive 1 --capacity 900G --chunk 256K",
    "--drives 6 --drive x25m --survive 1 --capacity 300G --workload rw=randwrite,bs=4k,iodepth=32",
    "--drives 4 --drive sata7200-small --level 10 --layout f2 --workload media",
    "--drives 8 --drive sata7200-small --survive 0 --workload mail",
    "--drives 2 --drive nvme --workload vm",
    "--drives 8 --drive sata7200-small --level 6 --survive 2 --workload backup",
];

#[test]
fn mkfs_accepts_what_is_planned_and_warns_of_nothing() {
    if !require("mkfs.xfs") || !require("mke2fs") {
        return;
    }
    let room = Room::new();
    let tried = [("xfs", "mkfs.xfs -N", &TRIED[..]), ("ext4", "mke2fs -n -t ext4", &TRIED[..2])];
    for (fs, dry, tried) in tried {
        for (ix, args) in tried.iter().enumerate() {
            let report = plan(&format!("{args} --fs {fs}"));
            let volume =
                room.device(&format!("{fs}{ix}"), report["plan"]["lvm"]["size_bytes"].as_u64().unwrap());
            let commands = report["plan"]["commands"]["linux"].as_array().unwrap();
            let mkfs = commands
                .iter()
                .find_map(|text| text.as_str().filter(|text| text.starts_with("mkfs.")))
                .unwrap();
            let (_, words) = mkfs.split_once(' ').unwrap();
            let words = words.replace("/dev/vg_data/data", &volume);
            let mut dry = dry.split_whitespace();
            let mut command = Command::new(dry.next().unwrap());
            let output = command.args(dry).args(words.split_whitespace()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{mkfs}: {said}");
            assert!(!said.to_lowercase().contains("warning"), "{mkfs}: {said}");
            if fs == "xfs" {
                let count = &report["plan"]["file_system"]["agcount"];
                assert!(said.contains(&format!("agcount={count},")), "{mkfs}: {said}");
            }
            fs::remove_file(&volume).unwrap();
        }
    }
}

#[test]
fn lvm_accepts_what_is_planned_and_puts_data_where_it_was_planned() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    for args in &TRIED[..3] {
        let room = Room::new();
        let report = plan(args);
        // What LVM2 leaves for its metadata in a whole extent is in no volume.
        let array = room.device("array", report["plan"]["arrays"][0]["size_bytes"].as_u64().unwrap());
        let conf = room.path("lvm");
        fs::create_dir(&conf).unwrap();
        for command in report["plan"]["commands"]["linux"].as_array().unwrap() {
            let command = command.as_str().unwrap().replace("/dev/md/data", &array);
            let words = match command.split_once(' ').unwrap() {
                ("pvcreate" | "vgcreate", _) => command,
                // Nothing is activated here.
                ("lvcreate", words) => format!("lvcreate --driverloaded n -an -Zn -Wn -y {words}"),
                _ => continue,
            };
            if judge(&conf, std::slice::from_ref(&array), &words).is_none() {
                return;
            }
        }
        let list = "lvs --noheadings --units b --nosuffix -o vg_extent_size,lv_size vg_data";
        let found = judge(&conf, std::slice::from_ref(&array), list).unwrap();
        let lvm = &report["plan"]["lvm"];
        assert_eq!(found, [format!("{} {}", lvm["extent_bytes"], lvm["size_bytes"])], "{args}");
        let list = "pvs --noheadings --units b --nosuffix -o pe_start";
        let found = judge(&conf, std::slice::from_ref(&array), list).unwrap();
        assert_eq!(found, [lvm["pe_start_bytes"][0].to_string()], "{args}");
    }
}

#[test]
fn the_commands_of_wattle_build_what_was_planned() {
    let room = Room::new();
    let program = crate::harness::wattle().get_program().to_owned();
    let path = format!(
        "{}:{}",
        std::path::Path::new(&program).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    for (name, args) in [
        ("five", "--survive 1 --level 5 --chunk 256K --workload media"),
        ("pairs", "--survive 1 --level 10 --workload mail --fs ext4"),
        ("plain", "--survive 0 --level none --workload mail"),
    ] {
        let members: Vec<_> = (0..4).map(|ix| room.device(&format!("{name}{ix}"), 1 << 30)).collect();
        let words = ["plan", "--json", "--drive", "sata7200", "--name", name].into_iter();
        let words = words.chain(args.split_whitespace()).map(str::to_owned).chain(members.clone());
        let report = run(words).ok().json();
        let commands = report["plan"]["commands"]["wattle"].as_array().unwrap();
        // The last two make the file system, on a server.
        for command in &commands[..commands.len() - 2] {
            let words = ["-c", command.as_str().unwrap()];
            let mut shell = Command::new("sh");
            shell.args(words).env("PATH", &path).env("WATTLE_STATE_DIR", room.path("state"));
            let output = shell.output().unwrap();
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let lvm = &report["plan"]["lvm"];
        let list = ["lv", "list", "--json"].map(str::to_owned);
        let found = run(list.into_iter().chain(members)).ok().json()["logical_volumes"][0].clone();
        assert_eq!((&found["lv_size"], &found["stripes"]), (&lvm["size_bytes"], &lvm["stripes"]));
    }
}

#[test]
fn a_picture_shows_every_layer() {
    let room = Room::new();
    let file = room.name("stack.svg");
    run([
        "plan",
        "--drives",
        "5",
        "--drive",
        "sata7200-small",
        "--chunk",
        "256K",
        "--level",
        "5",
        "--svg",
        &file,
    ])
    .ok();
    let svg = fs::read_to_string(&file).unwrap();
    for word in ["<svg ", "LVM2 metadata", "xfs, sw=4", "chunks, on member", ">m4<", "nothing is misaligned"]
    {
        assert!(svg.contains(word), "{word}");
    }
    let nowhere = room.name("no/where.svg");
    run(["plan", "--drives", "2", "--drive", "nvme", "--svg", &nowhere]).failed(1, "WTL-0105", &[&nowhere]);
}
