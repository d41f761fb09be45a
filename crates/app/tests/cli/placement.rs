//! Which processors the threads of a server run on.

use std::fs;

use crate::harness::{Room, Serve, run};

/// What the system says of a thread or process below `/proc`, of where it may run.
fn allowed(of: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{of}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("Linux says it").trim().to_owned()
}

/// The numbers in a list like `0-2,5`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

#[test]
fn each_core_has_a_processor_of_its_own_on_request_and_what_is_no_core_goes_anywhere() {
    let ours = allowed("self");
    let processors: Vec<_> = numbers(&ours).into_iter().rev().take(2).collect();
    let list = processors.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let room = Room::new();
    let export = format!("nbd=unix:{}", room.name("s"));
    let serve = Serve::start(
        &room,
        &["--processors", &list, "--export", &export, "--metrics", "127.0.0.1:0"],
        &room.array("5", 3),
    );
    let mut cores = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", serve.pid())).unwrap() {
        let of = format!("{}/task/{}", serve.pid(), task.unwrap().file_name().display());
        let name = fs::read_to_string(format!("/proc/{of}/comm")).unwrap();
        let is_core = name.starts_with("wattle-core") || of.ends_with(&format!("/{}", serve.pid()));
        // What the system runs for a ring is the system's.
        match (is_core, name.starts_with("iou-")) {
            (true, _) => cores.push(allowed(&of)),
            (false, false) => assert_eq!(allowed(&of), ours, "{name}"),
            (false, true) => {}
        }
    }
    cores.sort();
    let mut expected: Vec<_> = processors.iter().map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(cores, expected);
    serve.stop();

    let child = ["--processors", &list, "--run", "grep Cpus_allowed_list /proc/self/status"];
    let members = room.array("5", 3);
    let run_one = run(["serve"].into_iter().chain(child).chain(members.iter().map(String::as_str)));
    assert!(run_one.ok().text().contains(&format!("Cpus_allowed_list:\t{ours}")));
}

#[test]
fn processors_that_are_not_there_or_too_few_are_refused() {
    let room = Room::new();
    let members = room.array("1", 2);
    let cat = |more: &[&str]| run([&["cat"], more, &[members[0].as_str(), &members[1]]].concat());
    let last = *numbers(&allowed("self")).last().unwrap();
    cat(&["--processors", &last.to_string()]).ok();
    cat(&["--processors", "0-8191"]).failed(
        1,
        "WTL-0103",
        &["not all of them are there", "name some of these"],
    );
    let one = last.to_string();
    cat(&["--processors", &one, "--cores", "2"]).failed(1, "WTL-0103", &["1 for 2 threads"]);
    for list in ["", "2-", "x", "8192"] {
        let said = cat(&["--processors", list]);
        assert_eq!(said.status, 2, "{list}: {}", said.stderr);
        assert!(said.stderr.contains("no list of processors like 2-5,8"), "{}", said.stderr);
    }
}
