//! `wattle simulate`: equal arguments give equal digits, what is told is what was measured, and
//! what cannot be is refused.

use std::fs;

use crate::harness::{Room, require, run, tool, wattle};

const SHORT: [&str; 4] = ["--ramp-time", "20ms", "--runtime", "30ms"];

#[track_caller]
fn json(args: &[&str]) -> serde_json::Value {
    run(["simulate", "--json"].iter().chain(args)).ok().json()
}

#[test]
fn random_writes_to_six_ssds_come_close_to_what_they_allow() {
    let report = json(&[
        "--level",
        "5",
        "--members",
        "6",
        "--drive",
        "x25m",
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--iodepth",
        "248",
    ]);
    assert_eq!(report["schema_version"], 1);
    let run = &report["runs"][0];
    assert_eq!(report["runs"].as_array().unwrap().len(), 1);
    assert_eq!(run["limit_iops"].as_f64().unwrap().round(), 40_000.0);
    assert!(run["limit_formula"].as_str().unwrap().contains("6/(2/40000 + 2/20000)"));
    let number = |key: &str| run[key].as_f64().unwrap();
    let (iops, efficiency) = (number("iops"), number("efficiency"));
    assert!((0.97..1.02).contains(&efficiency), "{efficiency}");
    assert!(
        (iops / 40_000.0 - efficiency).abs() < 1e-9 && (number("bandwidth") / iops - 4096.0).abs() < 1e-6
    );
    let latency = |key: &str| run["lat_us"][key].as_f64().unwrap();
    assert!(
        latency("p50") > 1000.0 && latency("p50") <= latency("p99") && latency("p99") <= latency("p99_9")
    );
    let members = run["members"].as_array().unwrap();
    assert_eq!(members.len(), 6);
    assert!(
        members.iter().all(|member| (0.9..=1.0).contains(&member["util"].as_f64().unwrap())),
        "{members:#?}"
    );
    assert_eq!((&run["steady"], &run["held_back_by"]), (&true.into(), &"drives".into()));
    assert_eq!((&run["workload"]["iodepth"], &run["array"]["consistency"]), (&248.into(), &"bitmap".into()));
}

#[test]
fn equal_arguments_give_equal_digits_on_any_machine() {
    let args = [
        "--level",
        "6",
        "--members",
        "5",
        "--drive",
        "nvme",
        "--iodepth",
        "16",
        "--numjobs",
        "3",
        "--cores",
        "3",
    ];
    let args: Vec<_> = ["simulate", "--json"].into_iter().chain(args).chain(SHORT).collect();
    let once = run(&args).ok().stdout;
    assert_eq!(once, run(&args).ok().stdout);
    let other: Vec<_> = args.iter().copied().chain(["--randseed", "2"]).collect();
    assert_ne!(once, run(&other).ok().stdout);
    if require("taskset") {
        // One processor only.
        let program = wattle().get_program().to_str().unwrap().to_owned();
        let on_one = ["-c", "0", &program].into_iter().chain(args);
        assert_eq!(tool("taskset", on_one).into_bytes(), once);
    }
}

#[test]
fn a_sweep_is_a_table_and_a_plot() {
    let room = Room::new();
    let (svg, png) = (room.name("plot.svg"), room.name("plot.png"));
    let args = [
        "--level",
        "5",
        "--drive",
        "x25m",
        "--iodepth",
        "64",
        "--sweep",
        "members=3..5",
        "--sweep",
        "chunk=16k,64k",
    ];
    let args: Vec<_> = args.into_iter().chain(SHORT).collect();
    let said = run(["simulate", "--svg", &svg, "--png", &png].iter().chain(&args)).ok();
    let lines: Vec<_> = said.text().lines().collect();
    assert_eq!(lines.len(), 7, "{}", said.text());
    assert!(
        lines[0].starts_with("members  chunk  IOPS") && lines[1].starts_with("3        16k "),
        "{}",
        said.text()
    );
    let text = fs::read_to_string(&svg).unwrap();
    assert!(text.starts_with("<svg ") && text.contains("chunk 64k") && text.contains("of the limit"));
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    let report = json(&args);
    let members: Vec<_> = report["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["array"]["members"].as_u64().unwrap())
        .collect();
    assert_eq!(members, [3, 3, 4, 4, 5, 5]);
}

/// Rows that come again are found in a larger cache, and not read.
#[test]
fn the_cache_is_swept_by_its_ceiling() {
    let args = ["--level", "5", "--members", "6", "--drive", "x25m", "--iodepth", "8", "--size", "4M"];
    let ramp = ["--ramp-time", "2s", "--runtime", "200ms", "--norandommap", "--sweep", "cache=0,64M"];
    let report = json(&args.into_iter().chain(ramp).collect::<Vec<_>>());
    let run = |at: usize| &report["runs"][at];
    let reads = |at: usize| run(at)["plans"]["pre_reads"].as_u64().unwrap();
    assert_eq!(
        (&run(0)["array"]["cache_bytes"], &run(1)["array"]["cache_bytes"]),
        (&0.into(), &(64 << 20).into())
    );
    assert!(reads(1) * 2 < reads(0), "{report:#}");
}

/// A rebuild gets its share of the drive that is filled, and clients are told what it costs them.
#[test]
fn a_load_is_measured_beside_a_rebuild() {
    let args = ["--level", "6", "--members", "6", "--drive", "x25m", "--chunk", "64k", "--iodepth", "16"];
    let more =
        ["--rw", "randrw", "--rwmixread", "70", "--ramp-time", "200ms", "--runtime", "200ms", "--rebuild"];
    let args: Vec<_> = args.into_iter().chain(more).collect();
    let report = json(&args);
    let first = &report["runs"][0];
    assert_eq!(first["array"]["missing"], 1);
    let number = |key: &str| first["rebuild"][key].as_f64().unwrap();
    assert!((0.3..1.0).contains(&number("share")), "{first:#}");
    assert!((number("bandwidth") - number("share") * 70e6).abs() < 1.0, "{first:#}");
    assert!(number("p99_ratio") < 2.0 && (0.5..1.0).contains(&number("iops_ratio")), "{first:#}");
    let text = run_text(&args);
    assert!(text.contains("  rebuild  ") && text.contains("    beside it  "), "{text}");
    let swept = run_text(&[&args[..], &["--sweep", "level=5,6"]].concat());
    assert!(swept.lines().next().is_some_and(|heading| heading.ends_with("p99 us beside")), "{swept}");
    let small = ["--level", "5", "--members", "4", "--drive", "nvme", "--member-size", "8M", "--rebuild"];
    run(["simulate"].into_iter().chain(small)).failed(2, "WTL-0001", &["too little data"]);
}

fn run_text(args: &[&str]) -> String {
    run(["simulate"].iter().chain(args)).ok().text().to_owned()
}

/// What cannot exist among what is swept is left out and named; alone it is an error.
#[test]
fn impossible_arrays_of_a_sweep_are_left_out() {
    let args = ["--drive", "nvme", "--members", "3", "--sweep", "level=0,5,6"];
    let said = run(["simulate"].into_iter().chain(args).chain(SHORT)).ok();
    assert_eq!(said.text().lines().count(), 3);
    assert!(said.stderr.contains("left out") && said.stderr.contains("raid6"), "{}", said.stderr);
}

#[test]
fn one_slow_drive_is_named() {
    let drives = ["x25m", "x25m", "x25m,read_iops=8k,write_iops=4k", "x25m"];
    let args: Vec<_> = drives.into_iter().flat_map(|drive| ["--drive", drive]).collect();
    let said = run(["simulate", "--level", "5", "--iodepth", "64"].into_iter().chain(args).chain(SHORT)).ok();
    assert!(said.text().contains("the member in slot 2"), "{}", said.text());
}

#[test]
fn a_study_is_beside_its_published_figures() {
    let said = run(["simulate", "--preset", "field-notes-a"].into_iter().chain(SHORT)).ok();
    assert!(said.text().contains("RAID 5 over 6") && said.text().contains("19779 IOPS"), "{}", said.text());
    let report = json(&["--preset", "field-notes-a", "--ramp-time", "20ms", "--runtime", "30ms"]);
    assert_eq!(report["runs"][3]["published"], 19_779.0);
    assert!(report["runs"][3]["efficiency"].as_f64().unwrap() > 0.9);
}

#[test]
fn what_cannot_be_simulated_is_an_error_of_usage() {
    let raid5 = ["--level", "5", "--members", "4", "--drive", "x25m"];
    let with = |more: &[&'static str]| raid5.iter().chain(more).copied().collect::<Vec<_>>();
    for (args, code, words) in [
        (
            vec!["--level", "5", "--members", "4", "--drive", "ramdisk"],
            "WTL-0001",
            &["ramdisk", "x25m", "nvme"][..],
        ),
        (
            vec!["--level", "5", "--members", "4", "--drive", "x25m,colour=red"],
            "WTL-0001",
            &["colour", "read_iops"],
        ),
        (vec!["--level", "5", "--members", "0", "--drive", "x25m"], "WTL-0001", &["--members 0"]),
        (vec!["--level", "6", "--members", "3", "--drive", "x25m"], "WTL-0008", &["raid6", "found 3"]),
        (vec!["--level", "7", "--members", "3", "--drive", "x25m"], "WTL-0001", &["--level 7"]),
        (
            vec!["--level", "5", "--members", "3", "--drive", "x25m", "--drive", "nvme"],
            "WTL-0001",
            &["2 times"],
        ),
        (with(&["--iodepth", "0"]), "WTL-0001", &["--iodepth 0"]),
        (with(&["--iodepth", "4000000000"]), "WTL-0001", &["at most"]),
        (with(&["--bs", "1000"]), "WTL-0001", &["--bs 1000", "512"]),
        (with(&["--bs", "0"]), "WTL-0001", &["--bs 0"]),
        (with(&["--bs", "1T"]), "WTL-0001", &["at most"]),
        (with(&["--chunk", "24k"]), "WTL-0008", &["chunk", "power of two"]),
        (with(&["--layout", "f2"]), "WTL-0001", &["--layout f2"]),
        (with(&["--degraded", "2"]), "WTL-0008", &["2 missing"]),
        (vec!["--level", "0", "--members", "4", "--drive", "x25m", "--rebuild"], "WTL-0008", &["1 missing"]),
        (with(&["--cache", "17G"]), "WTL-0001", &["--cache", "at most"]),
        (with(&["--member-size", "1T"]), "WTL-0001", &["--member-size", "room"]),
        (with(&["--offset", "1P"]), "WTL-0001", &["no room"]),
        (with(&["--size", "1k"]), "WTL-0001", &["no room"]),
        (with(&["--rw", "trim"]), "", &["trim"]),
        (with(&["--rwmixread", "101"]), "", &["101"]),
        (with(&["--runtime", "9d"]), "", &["9d"]),
        (with(&["--sweep", "members=6..3"]), "WTL-0001", &["empty"]),
        (with(&["--sweep", "members="]), "WTL-0001", &["no value"]),
        (with(&["--sweep", "members"]), "WTL-0001", &["KEY=VALUES"]),
        (with(&["--sweep", "colour=red"]), "WTL-0001", &["colour", "iodepth"]),
        (with(&["--sweep", "iodepth=1..2000000"]), "WTL-0001", &["1000"]),
        (with(&["--sweep", "iodepth=1..100", "--sweep", "numjobs=1..100"]), "WTL-0001", &["1000"]),
        (with(&["--sweep", "iodepth=1", "--sweep", "iodepth=2"]), "WTL-0001", &["already"]),
        (
            with(&["--svg", "x.svg", "--ramp-time", "1ms", "--runtime", "1ms"]),
            "WTL-0001",
            &["nothing to draw"],
        ),
        (vec!["--preset", "field-notes-z"], "", &["field-notes-a"]),
        (vec!["--preset", "field-notes-a", "--level", "5"], "", &["--level"]),
        (vec!["--preset", "field-notes-a", "--rw", "read"], "", &["--rw"]),
        (vec!["--preset", "field-notes-a", "--iodepth", "1"], "", &["--iodepth"]),
        (vec!["--preset", "field-notes-a", "--consistency", "resync"], "", &["--consistency"]),
        (vec![], "", &["--level"]),
    ] {
        let said = run(["simulate"].into_iter().chain(args.iter().copied()));
        assert_eq!(said.status, 2, "{args:?}: {}", said.stderr);
        assert!(said.stdout.is_empty());
        if !code.is_empty() {
            said.failed(2, code, words);
        } else {
            assert!(words.iter().all(|word| said.stderr.contains(word)), "{args:?}: {}", said.stderr);
        }
    }
    let raid6 = ["simulate", "--level", "6", "--members", "5", "--drive", "x25m", "--consistency", "ppl"];
    run(raid6).failed(2, "WTL-0008", &["partial parity log"]);
    let nowhere = ["--sweep", "iodepth=1,2", "--svg", "/nonexistent/plot.svg"];
    run(["simulate"].into_iter().chain(raid5).chain(nowhere).chain(SHORT)).failed(
        1,
        "WTL-0105",
        &["/nonexistent/plot.svg"],
    );
}
