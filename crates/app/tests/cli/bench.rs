//! `wattle bench`: loads in real time, and what it refuses to write over.

use crate::harness::{Room, Said, Serve, require, run};
use crate::undo_orders::dirty_and_degraded;

const SHORT: [&str; 6] = ["--ramp-time", "50ms", "--runtime", "200ms", "--rounds", "2"];

fn bench(members: &[String], args: &[&str]) -> Said {
    let args = args.iter().chain(&SHORT).map(|arg| (*arg).to_owned());
    run(["bench".to_owned()].into_iter().chain(members.iter().cloned()).chain(args))
}

#[test]
fn figures_have_fios_names_and_a_yardstick() {
    let members = vec!["null:1G".to_owned(); 4];
    let args = ["--level", "5", "--rw", "randrw", "--iodepth", "8", "--cores", "1", "--json"];
    let report = bench(&members, &args).ok().json();
    let job = &report["jobs"][0];
    for way in ["read", "write"] {
        assert!(job[way]["iops"].as_f64() > Some(10.0), "{report}");
        let percentile = &job[way]["clat_ns"]["percentile"];
        assert!(percentile["50.000000"].as_u64() <= percentile["99.900000"].as_u64(), "{report}");
    }
    assert_eq!(job["job options"]["rw"], "randrw");
    assert_eq!(report["rounds"].as_array().map(Vec::len), Some(2));
    assert!(report["rounds"][1]["yardstick"].as_f64() > Some(1000.0), "{report}");
    assert!(report["yardstick_ratio"].as_f64() > Some(0.0), "{report}");
    // Of four members, the two other blocks of data are as few as old data and old parity.
    assert!(report["plans"]["reconstruct_write"].as_u64() > Some(0), "{report}");
    assert_eq!(
        (&report["steady"], &report["array"]["cores"]),
        (&serde_json::Value::Null, &serde_json::json!(1))
    );
    let text = bench(&members, &["--level", "5", "--rw", "write", "--bs", "768k"]).ok();
    bench(&members, &["--level", "5", "--rw", "write", "--bs", "1m", "--size", "4k"]).failed(
        2,
        "WTL-0001",
        &["no room for a request", "--size"],
    );
    for words in ["bandwidth", "rounds: ", "in its cache"] {
        assert!(text.text().contains(words), "{}", text.text());
    }
    // Whole stripes in sequence are held against parity that is made in memory, bytes against
    // bytes.
    let whole = bench(&members, &["--level", "5", "--rw", "write", "--bs", "1536k", "--json"]).ok().json();
    assert_eq!(whole["yardstick"], "parity");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let ratio = |round: usize| {
        let round = &whole["rounds"][round];
        number(&round["iops"]) * f64::from(1536 << 10) / number(&round["yardstick"])
    };
    assert!(
        (number(&whole["yardstick_ratio"]) / (ratio(0) / 2.0 + ratio(1) / 2.0) - 1.0).abs() < 1e-6,
        "{whole}"
    );
}

#[test]
fn reads_leave_an_array_as_it_is_and_writes_have_to_be_wanted() {
    let room = Room::new();
    let members = room.array("5", 3);
    room.untouched(|| {
        let read = bench(&members, &["--rw", "randread", "--json"]).ok().json();
        assert!(read["jobs"][0]["read"]["total_ios"].as_u64() > Some(0), "{read}");
        bench(&members, &["--rw", "randwrite"]).failed(3, "WTL-0084", &["--force=overwrite", "randread"]);
        bench(&members, &["--rw", "randread", "--bs", "1000"]).failed(2, "WTL-0001", &["512"]);
    });
    bench(&members, &["--rw", "randwrite", "--force", "overwrite"]).ok();
    let scan = run(["scan", "--json"].map(str::to_owned).into_iter().chain(members)).ok().json();
    assert_eq!(scan["arrays"][0]["health"], "good", "{scan}");
    if require("qemu-io") {
        let room = Room::new();
        let (members, _) = dirty_and_degraded(&room);
        let write = ["--rw", "randwrite", "--force", "overwrite", "--force", "dirty-degraded"];
        let forced = bench(&members, &write).ok();
        assert!(forced.stderr.contains("no undo log of the forced start"), "{}", forced.stderr);
    }
}

#[test]
fn an_array_that_is_served_is_measured_as_its_clients_have_it() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &["--cores", "2"], &members);
    let bench = |args: &[&str]| serve.command(&[&["bench", "data"], args, &SHORT].concat());
    let read = bench(&["--rw", "randread", "--iodepth", "8", "--numjobs", "3", "--json"]).ok().json();
    assert!(read["jobs"][0]["read"]["total_ios"].as_u64() > Some(0), "{read}");
    assert_eq!((&read["array"]["served"], &read["array"]["level"]), (&true.into(), &"raid5".into()));
    assert_eq!(
        read["condition"],
        serde_json::json!({"slots": 3, "degraded": 0, "synced": true, "background": null})
    );
    assert!(
        read["rounds"][0]["per_cpu_second"].is_null() && read["jobs"][0]["write"]["total_ios"] == 0,
        "{read}"
    );
    bench(&["--rw", "randwrite"]).failed(3, "WTL-0084", &["--force=overwrite"]);
    bench(&["--rw", "read", "--bs", "64M", "--size", "64M"]).failed(2, "WTL-0001", &["over NBD"]);
    bench(&["--rw", "read", "--bs", "1M", "--offset", "1T"]).failed(2, "WTL-0001", &["no room"]);
    assert_eq!(serve.array()["counters"]["writes"], 0);
    let write = bench(&["--rw", "randwrite", "--fsync", "64", "--force", "overwrite", "--json"]).ok().json();
    assert!(
        write["plans"]["read_modify_write"].as_u64().max(write["plans"]["reconstruct_write"].as_u64())
            > Some(0)
    );
    assert!(serve.array()["counters"]["writes"].as_u64() > Some(0));
    serve.command(&["set", "data", "sync_speed_min=0", "sync_speed_max=100"]).ok();
    serve.command(&["check", "data"]).ok();
    let checked = bench(&["--rw", "randread"]).ok();
    assert!(checked.text().contains("a check ran beside the load"), "{}", checked.text());
    serve.command(&["check", "data", "--abort"]).ok();
    serve.command(&["fail", "data", "1"]).ok();
    let text = bench(&["--rw", "randread"]).ok();
    assert!(text.text().contains("NOT as it should be: 1 of 3 members not in sync"), "{}", text.text());
    let nobody = serve.command(&["bench", "nobody"]);
    assert!(nobody.stderr.contains("nor is there a file or device"), "{}", nobody.stderr);
    serve.stop();
}

#[test]
fn what_is_served_over_tcp_for_reading_is_read_only() {
    let room = Room::new();
    let args = ["--read-only", "--export", "nbd=tcp:127.0.0.1:0"];
    let serve = Serve::start(&room, &args, &room.array("1", 2));
    room.untouched(|| {
        let bench = |args: &[&str]| serve.command(&[&["bench", "data"], args, &SHORT].concat());
        let read = bench(&["--rw", "read", "--bs", "256k", "--iodepth", "4", "--json"]).ok().json();
        assert!(read["jobs"][0]["read"]["total_ios"].as_u64() > Some(0) && read["plans"].is_null(), "{read}");
        bench(&["--rw", "write", "--force", "overwrite"]).failed(2, "WTL-0008", &["for reading"]);
    });
    serve.stop();
}

#[test]
fn arrays_that_are_not_whole_are_measured_and_it_is_said() {
    let room = Room::new();
    let members = room.array("5", 4);
    let read = bench(&members[1..], &["--rw", "randread", "--json"]).ok().json();
    assert_eq!(read["condition"]["degraded"], 1, "{read}");
    let text = bench(&members[1..], &["--rw", "randread"]).ok();
    assert!(text.text().contains("1 of 4 members not in sync"), "{}", text.text());
    // Parity that has to be made first is made beside the load.
    let members = room.blank(3, 32 << 20);
    members.iter().for_each(|member| std::fs::write(member, vec![0x5a; 32 << 20]).unwrap());
    let create = ["create", "new", "--level", "5"].map(str::to_owned);
    run(create.into_iter().chain(members.clone())).ok();
    let write = bench(&members, &["--rw", "randwrite", "--force", "overwrite", "--json"]).ok().json();
    assert_eq!(write["condition"]["synced"], false, "{write}");
}
