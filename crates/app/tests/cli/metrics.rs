//! Metrics as Prometheus, its rules, and an SNMP agent meet them, each for real.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use wattle_operate::http::{HttpCall, Method, call_blocking};

use crate::harness::{Room, Serve, require, run, tool, wattle};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A program that is ended with the test.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn fetch(url: &str, accept: Option<&str>) -> String {
    let mut call = HttpCall::new(Method::GET, url);
    call.headers = accept.map(|accept| ("Accept".to_owned(), accept.to_owned())).into_iter().collect();
    call.reply_bytes_max = 8 << 20;
    let answer = call_blocking(call).unwrap();
    assert_eq!(answer.status, 200, "{url}");
    String::from_utf8(answer.body).unwrap()
}

/// `wattle exporter` of a room's servers, and where its metrics are.
fn exporter(room: &Room, args: &[&str]) -> (Beside, String) {
    let mut command = wattle();
    command.args(["exporter", "--listen", "127.0.0.1:0", "--smartctl", "none"]).args(args);
    command.arg("--runtime-dir").arg(room.path("run"));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("wattle: metrics at ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (Beside(child), url)
}

/// A degraded array that is served, and clients have used.
fn degraded(room: &Room, args: &[&str]) -> Serve {
    let members = room.array("5", 4);
    let serve = Serve::start(room, args, &members);
    let mut client = crate::nbd::Client::connect(&serve.uri).unwrap();
    client.write(0, &[7; 64 << 10]).unwrap();
    client.flush().unwrap();
    serve.command(&["fail", "data", "1"]).ok();
    serve
}

/// The samples of names that begin so, sorted.
fn samples<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut lines: Vec<_> = text.lines().filter(|line| line.starts_with(prefix)).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn promtool_finds_nothing_and_both_texts_are_told() {
    if !require("promtool") {
        return;
    }
    let room = Room::new();
    let address = format!("unix:{}", room.name("metrics/sock"));
    let serve = degraded(&room, &["--metrics", &address]);
    let own = fetch(&format!("{address}:/metrics"), None);
    let (_beside, url) = exporter(&room, &[]);
    let all = fetch(&url, None);
    for text in [&own, &all] {
        let mut lint = Command::new("promtool");
        lint.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut lint = lint.spawn().unwrap();
        lint.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let said = lint.wait_with_output().unwrap();
        let said =
            String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        // node_exporter's names are what they are.
        let findings: Vec<_> = said.lines().filter(|line| !line.starts_with("node_md_")).collect();
        assert!(findings.is_empty(), "{findings:?}");
    }
    for line in [
        r#"wattle_array_degraded{array="data"} 1"#,
        r#"wattle_array_redundancy_left{array="data"} 0"#,
        r#"wattle_array_state{array="data",state="degraded"} 1"#,
        r#"wattle_members{array="data",state="faulty"} 1"#,
        r#"wattle_server_up{server="data"} 1"#,
        r#"wattle_request_seconds_count{array="data",op="write"} 1"#,
        r#"wattle_request_seconds_bucket{array="data",op="write",le="+Inf"} 1"#,
    ] {
        assert!(all.lines().any(|found| found == line), "{line}: {all}");
    }
    let open = fetch(&url, Some("application/openmetrics-text; version=1.0.0"));
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE wattle_member_read_errors counter\n"));
    // A server that hangs is a metric.
    serve.signal("STOP");
    let began = Instant::now();
    let hung = fetch(&url, None);
    serve.signal("CONT");
    assert!(hung.contains("wattle_server_up{server=\"data\"} 0"), "{hung}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    serve.kill();
    assert!(fetch(&url, None).contains("wattle_server_up{server=\"data\"} 0"));
}

#[test]
fn node_exporter_says_the_same_of_our_mdstat() {
    if !require("prometheus-node-exporter") {
        return;
    }
    let room = Room::new();
    let serve = degraded(&room, &[]);
    let (_beside, url) = exporter(&room, &[]);
    let proc = room.path("proc");
    std::fs::create_dir(&proc).unwrap();
    let port = free_port();
    let mut node = Command::new("prometheus-node-exporter");
    node.arg(format!("--path.procfs={}", proc.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    node.args(["--collector.disable-defaults", "--collector.mdadm"]).stderr(Stdio::null());
    std::fs::write(proc.join("mdstat"), "").unwrap();
    let _node = Beside(node.spawn().unwrap());
    let compare = |what: &str| {
        let mdstat = serve.command(&["status", "--mdstat"]).ok();
        std::fs::write(proc.join("mdstat"), mdstat.text()).unwrap();
        let theirs = eventually(|| {
            let mut call = HttpCall::new(Method::GET, format!("http://127.0.0.1:{port}/metrics"));
            call.reply_bytes_max = 1 << 20;
            call_blocking(call).ok().map(|answer| String::from_utf8(answer.body).unwrap())
        });
        let ours = fetch(&url, None);
        let theirs = samples(&theirs, "node_md_");
        assert!(theirs.len() == 11, "{what}: {theirs:?}");
        let ours = samples(&ours, "node_md_");
        let newer =
            |line: &&str| !line.starts_with("node_md_raid_disks") && !line.starts_with("node_md_degraded");
        let ours: Vec<_> = ours.into_iter().filter(newer).collect();
        assert_eq!(ours.len(), 11, "{what}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let (name, value) = ours.rsplit_once(' ').unwrap();
            let (same, other) = theirs.rsplit_once(' ').unwrap();
            // Large numbers are written in another form.
            let number = |text: &str| text.parse::<f64>().unwrap();
            assert_eq!((name, number(value)), (same, number(other)), "{what}: {mdstat:?}");
        }
    };
    compare("degraded");
    serve.command(&["remove", "data", "1"]).ok();
    compare("removed");
    let new = room.device("new", 20 << 20);
    serve.command(&["add", "data", &new, "--wait"]).ok();
    serve.wait_until_good();
    compare("whole again");
    let spare = room.device("spare", 20 << 20);
    serve.command(&["add", "data", &spare]).ok();
    compare("with a spare");
}

fn eventually<T>(try_once: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = try_once() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The rules of node-mixin for md arrays, with the selectors that it is delivered with.
const NODE_MIXIN: &str = r#"
groups:
  - name: node-exporter
    rules:
      - alert: NodeRAIDDegraded
        expr: |
          node_md_disks_required{job="node",device=~"(/dev/)?(mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|md.+|dasd.+)"}
          - ignoring (state) (node_md_disks{state="active",job="node",device=~"(/dev/)?(mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|md.+|dasd.+)"}) > 0
        for: 15m
        labels: {severity: critical}
      - alert: NodeRAIDDiskFailure
        expr: |
          node_md_disks{state="failed",job="node",device=~"(/dev/)?(mmcblk.p.+|nvme.+|rbd.+|sd.+|vd.+|xvd.+|dm-.+|md.+|dasd.+)"} > 0
        labels: {severity: warning}
"#;

#[test]
fn prometheus_scrapes_rules_fire_and_the_dashboards_queries_are_answered() {
    if !require("prometheus") || !require("promtool") {
        return;
    }
    let room = Room::new();
    let _serve = degraded(&room, &[]);
    let (_beside, url) = exporter(&room, &[]);
    let target = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let rules = root("contrib/prometheus/wattle.rules.yml");
    let mixin = room.path("node-mixin.yml");
    std::fs::write(&mixin, NODE_MIXIN).unwrap();
    tool("promtool", ["check".as_ref(), "rules".as_ref(), rules.as_os_str(), mixin.as_os_str()]);
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}, {}]\nscrape_configs:\n\
         - job_name: node\n  static_configs: [{{targets: ['{target}']}}]\n",
        rules.display(),
        mixin.display()
    );
    std::fs::write(room.path("prometheus.yml"), config).unwrap();
    let port = free_port();
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", room.name("prometheus.yml")));
    prometheus.arg(format!("--storage.tsdb.path={}", room.name("tsdb")));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _prometheus = Beside(prometheus.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let api = |path: &str| -> Option<Value> {
        let mut call = HttpCall::new(Method::GET, format!("http://127.0.0.1:{port}/api/v1/{path}"));
        call.reply_bytes_max = 8 << 20;
        let answer = call_blocking(call).ok().filter(|answer| answer.status == 200)?;
        serde_json::from_slice(&answer.body).ok()
    };
    let query = |expr: &str| {
        let encoded: String = expr.bytes().map(|byte| format!("%{byte:02x}")).collect();
        api(&format!("query?query={encoded}"))
    };
    let result = |expr: &str| query(expr).and_then(|answer| answer["data"]["result"].as_array().cloned());
    eventually(|| result("up == 1").filter(|found| !found.is_empty()));
    // Rates need two scrapes.
    std::thread::sleep(Duration::from_secs(3));
    let state = |alert: &str| {
        let found = eventually(|| {
            let alerts = api("alerts")?["data"]["alerts"].as_array()?.clone();
            alerts.into_iter().find(|one| one["labels"]["alertname"] == alert)
        });
        found["state"].as_str().unwrap().to_owned()
    };
    // Those with a time to wait are on their way.
    assert_eq!(state("NodeRAIDDegraded"), "pending");
    assert_eq!(state("NodeRAIDDiskFailure"), "firing");
    assert_eq!(state("WattleMemberFaulty"), "firing");
    assert_eq!(state("WattleArrayWithoutRedundancy"), "pending");
    let dashboard: Value =
        serde_json::from_slice(&std::fs::read(root("contrib/grafana/wattle.json")).unwrap()).unwrap();
    let names = fetch(&url, None);
    let documented = std::fs::read_to_string(root("docs/metrics.md")).unwrap();
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expr = target["expr"].as_str().unwrap();
            let found = result(expr).unwrap_or_else(|| panic!("{expr}"));
            let name = expr
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .find(|word| word.starts_with("wattle_"));
            let name = name.unwrap_or_else(|| panic!("{expr} asks for nothing of ours"));
            let family =
                ["_total", "_bucket", "_count"].iter().fold(name, |name, end| name.trim_end_matches(end));
            assert!(documented.contains(&format!("`{family}")), "{expr}: {family} is not documented");
            // What there is nothing of here (drives, groups, work) has an empty answer.
            let is_there = !samples(&names, name).is_empty();
            assert!(!found.is_empty() || !is_there || expr.contains("rate("), "{expr}: no answer");
            queries += 1;
        }
    }
    assert!(queries > 15, "{queries}");
}

#[test]
fn an_snmp_agent_walks_the_tables() {
    if !require("snmpd") || !require("snmpwalk") {
        return;
    }
    let room = Room::new();
    let serve = degraded(&room, &[]);
    let base = ".1.3.6.1.4.1.8072.9999.9999.9330";
    let script = room.path("wattle-snmp");
    let words = format!(
        "#!/bin/sh\nexec {} snmp --runtime-dir {}\n",
        env!("CARGO_BIN_EXE_wattle"),
        room.path("run").display()
    );
    std::fs::write(&script, words).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let port = free_port();
    let config = format!(
        "agentaddress tcp:127.0.0.1:{port}\nrocommunity public\npass_persist {base} {}\n",
        script.display()
    );
    std::fs::write(room.path("snmpd.conf"), config).unwrap();
    let mut agent = Command::new("snmpd");
    agent.args(["-f", "-Lf"]).arg(room.path("log")).args(["-C", "-c"]).arg(room.path("snmpd.conf"));
    agent.env("SNMP_PERSISTENT_DIR", room.path("snmp")).stdin(Stdio::null());
    let _agent = Beside(agent.spawn().unwrap());
    let walk = || {
        // By numbers: the modules that every MIB imports are not in Debian.
        let mut walk = Command::new("snmpwalk");
        walk.args(["-v2c", "-c", "public", "-t", "10", "-m", "", "-OnQ"]);
        let said = walk.arg(format!("tcp:127.0.0.1:{port}")).arg(base).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).replace('"', "").replace(base, "");
        text.contains(".4.1.2.1 = ").then_some(text)
    };
    let text = eventually(walk);
    for line in [
        ".1.0 = 1",
        ".2.0 = 1",
        ".3.0 = 0",
        ".4.1.2.1 = data",
        ".4.1.3.1 = raid5",
        ".4.1.5.1 = 1",
        ".4.1.6.1 = 0",
        ".5.1.2.4 = data",
        ".5.1.4.4 = 3",
        ".5.1.5.2 = 4",
    ] {
        assert!(text.lines().any(|found| found.trim() == line), "{line}: {text}");
    }
    serve.stop();
    assert_eq!(text.lines().count(), 3 + 11 + 4 * 8, "{text}");
}

#[test]
fn what_would_be_open_to_the_network_is_refused() {
    let room = Room::new();
    let run_dir = room.name("run");
    let refused = run(["exporter", "--listen", "0.0.0.0:0", "--runtime-dir", &run_dir]);
    refused.failed(3, "WTL-0220", &["--insecure"]);
    let members = room.array("1", 2);
    let serve = |args: &[&str]| Serve::try_start(&room, args, &members).map(|_| ());
    serve(&["--metrics", "[::]:0"]).unwrap_err().failed(3, "WTL-0220", &["every machine"]);
    std::fs::write(room.path("token"), "0123456789abcdef").unwrap();
    let token = room.name("token");
    serve(&["--metrics", "127.0.0.1:0", "--token-file", &token]).unwrap_err().failed(
        3,
        "WTL-0223",
        &["chmod 600"],
    );
    let bad = run(["exporter", "--listen", "localhost:9934"]);
    assert_eq!(bad.status, 2, "{}", bad.stderr);
}
