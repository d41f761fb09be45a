//! What NBD clients are told of allocation: nothing that reads as anything else is called zeros.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Room, Serve, require, tool};

const BLOCK: usize = 64 << 10;

/// Where there is data, in blocks of 64 KiB: alone, at the ends of chunks, and side by side.
const DATA: [usize; 7] = [0, 7, 8, 9, 40, 63, 101];

/// What the server tells of the whole export: first byte, length, and whether it is zeros.
fn map(uri: &str) -> Vec<(usize, usize, bool)> {
    let text = tool("nbdinfo", ["--map", "--json", uri]);
    let extents: serde_json::Value = serde_json::from_str(&text).expect("a map");
    let extent = |extent: &serde_json::Value| {
        let number = |key: &str| extent[key].as_u64().expect("a number") as usize;
        assert!(matches!(number("type"), 0 | 3), "{extent}");
        (number("offset"), number("length"), number("type") == 3)
    };
    extents.as_array().expect("extents").iter().map(extent).collect()
}

/// The content that clients read, which is compared with what they are told.
fn told_and_read(serve: &Serve, room: &Room, told: &[(usize, usize, bool)]) -> Vec<u8> {
    let copy = room.name("copy");
    let _ = std::fs::remove_file(&copy);
    // As a client that believes what it is told, and one that does not.
    tool("nbdcopy", [&serve.uri, &copy]);
    let believed = std::fs::read(&copy).unwrap();
    let read = Command::new("nbdcopy").args(["--allocated", &serve.uri, "-"]).output().unwrap();
    assert!(read.status.success() && believed == read.stdout);
    let mut end = 0;
    for (offset, len, is_zero) in told {
        assert_eq!(*offset, end, "extents follow each other");
        end += len;
        let zeros = believed[*offset..end].iter().all(|byte| *byte == 0);
        assert!(zeros || !is_zero, "{offset} to {end} is told to be zeros");
    }
    assert_eq!(end, believed.len());
    believed
}

#[test]
fn holes_of_members_are_told_and_nothing_else() {
    if !require("nbdinfo") || !require("nbdcopy") || !require("qemu-io") {
        return;
    }
    for (level, count) in [("0", 3), ("linear", 2), ("1", 2), ("10", 4), ("5", 3), ("6", 5)] {
        let room = Room::new();
        let members = room.blank(count, 16 << 20);
        let create = ["create", "data", "--level", level, "--assume-clean"].map(str::to_owned);
        crate::harness::run(create.into_iter().chain(members.clone())).ok();
        let serve = Serve::start(&room, &["--cores", "2"], &members);
        let before = map(&serve.uri);
        assert!(before.iter().all(|(_, _, is_zero)| *is_zero), "nothing was written: {before:?}");
        for block in DATA {
            let write = format!("write -P {} {} 64k", block + 1, block * BLOCK);
            tool("qemu-io", ["-f", "raw", "-c", &write, &serve.uri]);
        }
        let told = map(&serve.uri);
        let content = told_and_read(&serve, &room, &told);
        for block in DATA {
            assert!(content[block * BLOCK..][..BLOCK].iter().all(|byte| *byte == block as u8 + 1));
        }
        let known: usize = told.iter().filter(|(_, _, is_zero)| *is_zero).map(|(_, len, _)| len).sum();
        assert!(
            known > content.len() / 2,
            "RAID {level}: only {known} bytes are known to be zeros: {told:?}"
        );
        // What was trimmed is a hole again where members can; what is computed is told as data.
        tool("qemu-io", ["-f", "raw", "-c", "discard 0 1M", &serve.uri]);
        told_and_read(&serve, &room, &map(&serve.uri));
        if !matches!(level, "0" | "linear") {
            serve.command(&["fail", "data", &members[0]]).ok();
            let write = format!("write -P 77 {} 64k", 20 * BLOCK);
            tool("qemu-io", ["-f", "raw", "-c", &write, &serve.uri]);
            let content = told_and_read(&serve, &room, &map(&serve.uri));
            assert!(content[20 * BLOCK..][..BLOCK].iter().all(|byte| *byte == 77), "RAID {level}");
        }
        serve.stop();
    }
}

/// The parts that changed since a checkpoint, as an NBD client sees them: first byte and length.
fn changed(uri: &str, checkpoint: &str) -> Vec<(usize, usize)> {
    let text = tool("nbdinfo", [&format!("--map=qemu:dirty-bitmap:{checkpoint}"), "--json", uri]);
    let extents: serde_json::Value = serde_json::from_str(&text).expect("a map");
    let dirty = extents.as_array().expect("extents").iter().filter(|extent| extent["type"] == 1);
    let number = |extent: &serde_json::Value, key: &str| extent[key].as_u64().expect("a number") as usize;
    dirty.map(|extent| (number(extent, "offset"), number(extent, "length"))).collect()
}

/// Copies that differ: which of them clients read before is not known.
#[test]
fn a_repair_of_what_disagreed_counts_as_a_change() {
    if !require("nbdinfo") || !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &[], &members);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 1 0 1M", &serve.uri]);
    serve.stop();
    let mut bytes = std::fs::read(&members[1]).unwrap();
    let at = bytes.windows(4096).position(|window| window == [1; 4096]).unwrap();
    bytes[at + (512 << 10)..][..4096].fill(2);
    std::fs::write(&members[1], bytes).unwrap();

    let serve = Serve::start(&room, &[], &members);
    serve.command(&["checkpoint", "data", "monday"]).ok();
    let said = serve.command(&["check", "data", "--wait"]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    assert!(said.stderr.contains("8 sectors do not agree"), "{}", said.stderr);
    assert_eq!(changed(&serve.uri, "monday"), [], "a check changes nothing");
    serve.command(&["repair", "data", "--wait", "--source", &members[0]]).ok();
    let size: usize = tool("nbdinfo", ["--size", &serve.uri]).trim().parse().unwrap();
    assert_eq!(changed(&serve.uri, "monday"), [(0, size)]);
    serve.command(&["checkpoint", "data", "tuesday"]).ok();
    serve.command(&["repair", "data", "--wait", "--source", &members[0]]).ok();
    assert_eq!(changed(&serve.uri, "tuesday"), [], "one that finds nothing changes nothing");
}

#[test]
fn what_changed_since_a_checkpoint_makes_a_backup_whole() {
    if !require("nbdinfo") || !require("nbdcopy") || !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &["--cores", "2"], &members);
    let write = |block: usize, byte: u8| {
        let write = format!("write -P {byte} {} 1000", block * BLOCK + 100);
        tool("qemu-io", ["-f", "raw", "-c", &write, &serve.uri]);
    };
    let content = || {
        let name = room.name("now");
        let _ = std::fs::remove_file(&name);
        tool("nbdcopy", [&serve.uri, &name]);
        std::fs::read(name).unwrap()
    };
    write(3, 1);
    let said = serve.command(&["checkpoint", "data", "monday"]).ok();
    assert!(said.stderr.contains("data: what changes from now on is noted, as monday"), "{}", said.stderr);
    let mut backup = content();
    assert_eq!(changed(&serve.uri, "monday"), []);
    write(5, 2);
    write(6, 3);
    tool("qemu-io", ["-f", "raw", "-c", "write -z 640k 64k", &serve.uri]);
    serve.command(&["checkpoint", "data", "tuesday"]).ok();
    write(40, 4);
    assert_eq!(changed(&serve.uri, "tuesday"), [(40 * BLOCK, BLOCK)]);
    let since_monday = [(5 * BLOCK, 2 * BLOCK), (10 * BLOCK, BLOCK), (40 * BLOCK, BLOCK)];
    assert_eq!(changed(&serve.uri, "monday"), since_monday);
    let now = content();
    assert!(now != backup);
    for (at, len) in since_monday {
        backup[at..at + len].copy_from_slice(&now[at..at + len]);
    }
    assert!(now == backup, "what is not told to have changed has not");
    // Both contexts at once, as QEMU asks.
    let contexts = tool("nbdinfo", [&serve.uri]);
    for context in ["base:allocation", "qemu:dirty-bitmap:monday", "qemu:dirty-bitmap:tuesday"] {
        assert!(contexts.contains(context), "{contexts}");
    }

    let listed = serve.command(&["checkpoint", "data"]).ok();
    let listed = listed.text().to_owned();
    assert!(
        listed.lines().count() == 2 && listed.contains("monday") && listed.contains("256 KiB"),
        "{listed}"
    );
    let json = serve.command(&["checkpoint", "data", "--json"]).ok().json();
    assert_eq!(json["checkpoints"][1]["changed_bytes"], 64 << 10);
    assert!(serve.command(&["status"]).ok().text().contains("checkpoint tuesday"));
    for (name, why) in [("monday", "there is a checkpoint of this name"), ("a b", "that is no name")] {
        serve.command(&["checkpoint", "data", name]).failed(2, "WTL-0001", &[why]);
    }
    serve.command(&["checkpoint", "data", "monday", "--remove"]).ok();
    serve.command(&["checkpoint", "data", "monday", "--remove"]).failed(2, "WTL-0001", &["there is none"]);
    serve.command(&["checkpoint", "nothing", "x"]).failed(1, "WTL-0100", &["nothing"]);
    let map = Command::new("nbdinfo").args(["--map=qemu:dirty-bitmap:monday", &serve.uri]).output().unwrap();
    assert!(!map.status.success(), "a checkpoint that was given up is no context");
    serve.stop();
}

/// Where newer clients of QEMU are; `None`, said loudly, where they cannot be had.
fn newer_qemu() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/newer-qemu");
    let output = Command::new(script).output().expect("scripts/newer-qemu runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    assert!(std::env::var_os("CI").is_none(), "in CI nothing is skipped: {errors}");
    eprintln!("SKIPPED, NOT TESTED: {errors}");
    None
}

/// A client of its own: QEMU asks for no more than 2 GiB at once, but for a map.
struct Extended(UnixStream);

impl Extended {
    const TRIM: u16 = 4;
    const WRITE_ZEROES: u16 = 6;
    const PAYLOAD_LEN: u16 = 1 << 5;

    fn connect(uri: &str) -> Self {
        let socket = uri.split_once("socket=").expect("a Unix socket").1;
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        for (option, data) in [(11_u32, &[][..]), (7, &[0; 6])] {
            let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data];
            stream.write_all(&head.concat()).unwrap();
            loop {
                let mut reply = [0; 20];
                stream.read_exact(&mut reply).unwrap();
                let word = |at: usize| u32::from_be_bytes(*reply[at..].first_chunk().unwrap());
                stream.read_exact(&mut vec![0; word(16) as usize]).unwrap();
                assert_eq!(word(12) >> 31, 0, "option {option} is refused");
                if word(12) == 1 {
                    break;
                }
            }
        }
        Self(stream)
    }

    /// The error of the reply.
    fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u64, payload: &[u8]) -> u32 {
        let cookie = 0x1122_3344_5566_7788_u64;
        let head = [0x21e4_1c71_u32.to_be_bytes().to_vec(), flags.to_be_bytes().to_vec()];
        let head = [head.concat(), kind.to_be_bytes().to_vec(), cookie.to_be_bytes().to_vec()].concat();
        let range = [offset.to_be_bytes(), length.to_be_bytes()].concat();
        self.0.write_all(&[&head, &range, payload].concat()).unwrap();
        let mut reply = [0; 32];
        self.0.read_exact(&mut reply).unwrap();
        let expected = [0x6e8a_278c_u32.to_be_bytes(), 0x0001_0000_u32.to_be_bytes()].concat();
        assert_eq!(reply[..6], expected[..6], "the last chunk");
        assert_eq!(reply[8..24], [cookie.to_be_bytes(), offset.to_be_bytes()].concat());
        let length = u64::from_be_bytes(*reply[24..].first_chunk().unwrap());
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).unwrap();
        match u16::from_be_bytes([reply[6], reply[7]]) {
            0 => 0,
            0x8001 => u32::from_be_bytes(*body.first_chunk().unwrap()),
            kind => panic!("a chunk of type {kind}"),
        }
    }
}

/// Ranges of more than 32 bits in one request. QEMU has spoken so since 8.2, and checks every
/// reply.
#[test]
fn clients_with_extended_headers_change_and_map_terabytes_at_once() {
    let Some(bin) = newer_qemu() else { return };
    let room = Room::new();
    let members = room.blank(2, 3 << 40);
    let create = ["create", "data", "--level", "0"].map(str::to_owned);
    crate::harness::run(create.into_iter().chain(members.clone())).ok();
    let serve = Serve::start(&room, &["--cores", "2"], &members);
    let io = |commands: &[&str]| {
        let mut args = vec!["-f", "raw"];
        commands.iter().for_each(|command| args.extend(["-c", command]));
        tool(bin.join("qemu-io").to_str().unwrap(), args.into_iter().chain([&serve.uri[..]]))
    };
    io(&["write -P 7 2T 1M", "write -P 8 5T 64k"]);
    let mut client = Extended::connect(&serve.uri);
    assert_eq!(client.ask(Extended::TRIM, 0, 0, 3 << 40, &[]), 0);
    assert_eq!(client.ask(Extended::WRITE_ZEROES, 0, 3 << 40, 2 << 40, &[]), 0);
    // What is refused is skipped with its payload: the next request is understood.
    assert_eq!(client.ask(Extended::TRIM, Extended::PAYLOAD_LEN, 0, 8, &[0; 8]), 22);
    assert_eq!(client.ask(Extended::WRITE_ZEROES, 0, 5 << 40, 2 << 40, &[]), 28);
    assert_eq!(client.ask(Extended::TRIM, 0, u64::MAX, 2, &[]), 22);

    let map = Command::new(bin.join("qemu-img"))
        .args(["-T", "nbd_send_request", "map", "--output=json", "-f", "raw", &serve.uri])
        .output()
        .unwrap();
    let traces = String::from_utf8_lossy(&map.stderr);
    assert!(traces.contains(".len = 659"), "one request for all of it: {traces}");
    let map: serde_json::Value = serde_json::from_slice(&map.stdout).expect("a map");
    let extents = map.as_array().expect("extents").iter();
    let data: Vec<_> = extents.filter(|extent| extent["zero"] == false).collect();
    assert_eq!(data.len(), 1, "{map}");
    assert!(
        data[0]["start"].as_u64() <= Some(5 << 40) && data[0]["length"].as_u64() < Some(1 << 21),
        "{map}"
    );
    let said = io(&["read -P 0 2T 1M", "read -P 8 5T 64k"]);
    assert!(!said.contains("failed"), "{said}");
    serve.stop();
}
