//! `wattle bench`: loads in real time, and what it refuses to write over.

use crate::harness::{Room, run};

const SHORT: [&str; 6] = ["--ramp-time", "50ms", "--runtime", "200ms", "--rounds", "2"];

fn bench(members: &[String], args: &[&str]) -> crate::harness::Said {
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
}
