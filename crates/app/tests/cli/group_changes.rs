//! Volumes that come and go, shrink and are called otherwise while their group is served: what
//! clients find, and what is kept from them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use wattle_format::lvm::area::Header;
use wattle_format::lvm::{Id, Label, Stamp, Vg};

use crate::fuse::can_mount;
use crate::growing::{cat, content, group, kill, order};
use crate::harness::{Room, Serve, require, run, tool};
use crate::lvm::judge;

/// An NBD client that has an export, and does nothing with it.
pub struct Client(UnixStream);

impl Client {
    /// `None` if there is no such export.
    pub fn connect(socket: &Path, export: &str) -> Option<Self> {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut go = [0, 0, 0, 3].to_vec();
        go.extend(b"IHAVEOPT\0\0\0\x07");
        go.extend((export.len() as u32 + 6).to_be_bytes());
        go.extend((export.len() as u32).to_be_bytes());
        go.extend(export.as_bytes());
        go.extend([0, 0]);
        stream.write_all(&go).unwrap();
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head).unwrap();
            let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            stream.read_exact(&mut vec![0; number(16) as usize]).unwrap();
            match number(12) {
                1 => return Some(Self(stream)),
                kind if kind >> 31 == 1 => return None,
                _ => {}
            }
        }
    }

    /// Says goodbye, and waits until the server has heard it.
    pub fn leave(mut self) {
        let mut bye = 0x2560_9513_u32.to_be_bytes().to_vec();
        bye.extend([0, 0, 0, 2]);
        bye.extend([0; 20]);
        self.0.write_all(&bye).unwrap();
        assert_eq!(self.0.read(&mut [0; 1]).unwrap(), 0);
    }
}

/// Names and sizes of what a server says it offers.
fn offered(serve: &Serve) -> Vec<(String, u64)> {
    let status = serve.command(&["status", "--json"]).ok().json();
    let volume = |volume: &Value| {
        (volume["name"].as_str().unwrap().to_owned(), volume["size_bytes"].as_u64().unwrap() >> 20)
    };
    status["volumes"].as_array().unwrap().iter().map(volume).collect()
}

fn volumes(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|&(name, mib)| (name.to_owned(), mib)).collect()
}

#[test]
fn exports_come_and_go_with_their_volumes() {
    if !["nbdcopy", "nbdinfo"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let socket = room.path("nbd");
    let export = format!("nbd=unix:{}", socket.display());
    let serve = Serve::start(&room, &["--export", &export], &members);
    let uri =
        |volume: &str| format!("nbd+unix:///{}?socket={}", volume.replace('/', "%2F"), socket.display());
    let made = order(&room, &serve, "lv create tank/new -l 3").ok();
    assert!(made.text().contains(&format!("tank/new is offered at {}", uri("tank/new"))), "{}", made.text());
    let all = [("tank/home", 8), ("tank/rest", 4), ("tank/new", 3)];
    assert_eq!(offered(&serve), volumes(&all));
    let whole = content(3 << 20, 5);
    fs::write(room.path("whole"), &whole).unwrap();
    tool("nbdcopy", ["--flush", &room.name("whole"), &uri("tank/new")]);

    // What a client has is not taken from it, under whatever name.
    let client = Client::connect(&socket, "tank/new").unwrap();
    for words in [
        "lv remove tank/new",
        "lv reduce tank/new -l 2",
        "lv rename tank/new tank/other",
        "vg rename tank pool",
    ] {
        order(&room, &serve, words).failed(3, "WTL-0116", &["tank/new is in use: 1 NBD client"]);
        order(&room, &serve, &format!("{words} --dry-run")).ok();
        assert_eq!(offered(&serve), volumes(&all), "{words}");
    }
    order(&room, &serve, "lv extend tank/new -l +1").ok();
    Client::connect(&socket, "tank/new").unwrap().leave();
    order(&room, &serve, "lv remove tank/rest").ok();
    client.leave();

    assert!(Client::connect(&socket, "tank/rest").is_none());
    order(&room, &serve, "lv rename tank/new other").ok();
    assert!(Client::connect(&socket, "tank/new").is_none());
    assert_eq!(tool("nbdinfo", ["--size", &uri("tank/other")]).trim(), (4 << 20).to_string());
    tool("nbdcopy", [uri("tank/other"), room.name("back")]);
    assert!(fs::read(room.path("back")).unwrap()[..3 << 20] == whole);
    order(&room, &serve, "lv reduce tank/other -l 3").ok();
    assert_eq!(tool("nbdinfo", ["--size", &uri("tank/other")]).trim(), (3 << 20).to_string());
    // The extents of the one that is gone are there for others, which start with zeros.
    order(&room, &serve, "lv create tank/rest -l 4").ok();
    order(&room, &serve, "vg rename tank pool").ok();
    assert_eq!(offered(&serve), volumes(&[("pool/home", 8), ("pool/other", 3), ("pool/rest", 4)]));
    assert!(Client::connect(&socket, "tank/home").is_none());
    tool("nbdcopy", ["--flush", &room.name("whole"), &uri("pool/home")]);
    order(&room, &serve, "lv extend tank/home -l +1").failed(1, "WTL-0100", &["tank"]);
    kill(&room, serve, &members);
    assert!(cat("pool/other", &members) == whole && cat("pool/home", &members)[..3 << 20] == whole);
    assert_eq!(cat("pool/rest", &members).len(), 4 << 20);
}

#[test]
fn the_only_volume_keeps_the_empty_name_when_others_come() {
    if !require("nbdinfo") {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    run(["lv", "remove", "tank/rest", "--backup-dir", &room.name("backups")]
        .map(str::to_owned)
        .into_iter()
        .chain(members.clone()))
    .ok();
    let serve = Serve::start(&room, &[], &members);
    let size = || tool("nbdinfo", ["--size", &serve.uri]).trim().parse::<u64>().unwrap();
    order(&room, &serve, "lv create tank/new -l 3").ok();
    assert_eq!(size(), 8 << 20);
    order(&room, &serve, "lv rename tank/home house").ok();
    assert_eq!(size(), 8 << 20, "whoever comes back without a name finds it");
    serve.stop();

    // A server that was told what to serve serves that.
    let serve = Serve::start(&room, &["-V", "tank/house"], &members);
    let made = order(&room, &serve, "lv create tank/more -l 1").ok();
    assert!(made.text().contains("-V"), "{}", made.text());
    order(&room, &serve, "lv remove tank/more").ok();
    assert_eq!(offered(&serve), volumes(&[("tank/house", 8)]));
    order(&room, &serve, "lv remove tank/house").ok();
    assert_eq!(offered(&serve), volumes(&[]));
    serve.stop();
}

#[test]
fn files_come_and_go_with_their_volumes() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let dir = room.path("files");
    fs::create_dir(&dir).unwrap();
    let serve =
        Serve::start(&room, &["--export", &format!("fuse={}", dir.display()), "--cores", "2"], &members);
    let listed = |group: &str| {
        let names = fs::read_dir(dir.join(group)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let open = |name: &str| File::options().read(true).write(true).open(dir.join(name));
    let missing = |name: &str| open(name).unwrap_err().raw_os_error() == Some(libc::ENOENT);
    assert!(missing("tank/new"));
    order(&room, &serve, "lv create tank/new -l 3").ok();
    let (file, bytes) = (open("tank/new").unwrap(), content(1 << 20, 9));
    file.write_all_at(&bytes, 0).unwrap();
    for words in
        ["lv remove tank/new", "lv reduce tank/new -l 1", "lv rename tank/new old", "vg rename tank p"]
    {
        order(&room, &serve, words).failed(3, "WTL-0116", &["tank/new is in use: 1 open file"]);
    }
    // It was hidden for a moment, and is the same file.
    file.write_all_at(&bytes, 1 << 20).unwrap();
    assert_eq!(fs::metadata(dir.join("tank/new")).unwrap().len(), 3 << 20);
    drop(file);
    order(&room, &serve, "lv rename tank/new old").ok();
    assert!(missing("tank/new") && listed("tank") == ["home", "old", "rest"]);
    order(&room, &serve, "lv reduce tank/old -l 2").ok();
    let file = open("tank/old").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    let mut back = vec![0; 2 << 20];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == bytes.repeat(2));
    drop(file);
    order(&room, &serve, "lv remove tank/old").ok();
    assert!(missing("tank/old") && listed("tank") == ["home", "rest"]);
    order(&room, &serve, "lv create tank/old -l 1").ok();
    assert_eq!(fs::metadata(dir.join("tank/old")).unwrap().len(), 1 << 20);
    order(&room, &serve, "vg rename tank pool").ok();
    assert!(missing("tank/old") && listed("") == ["pool"] && listed("pool") == ["home", "old", "rest"]);
    open("pool/home").unwrap().write_all_at(&bytes, 5).unwrap();
    serve.stop();
    assert!(cat("pool/home", &members)[5..][..1 << 20] == bytes);
}

#[test]
fn a_volume_is_not_offered_where_exports_have_ended() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let [sockets, files] = ["sockets", "my files"].map(|name| room.path(name));
    let exports = [("vhost-user", &sockets), ("fuse", &files)].map(|(kind, dir)| {
        fs::create_dir(dir).unwrap();
        format!("{kind}={}", dir.display())
    });
    let mut serve =
        Serve::start(&room, &["--export", exports[0].as_str(), "--export", &exports[1]], &members);
    let file = File::open(files.join("tank/home")).unwrap();
    let used = format!("fuser '{}'", files.join("tank/home").display());
    serve.command(&["stop", "tank"]).failed(3, "WTL-0116", &["in use, once", &used]);
    serve.signal("TERM");
    // The sockets have ended, and the mount waits a while for a file that is open.
    std::thread::sleep(Duration::from_millis(250));
    let said = order(&room, &serve, "lv create tank/late -l 1");
    drop(file);
    let status = serve.wait();
    assert!(!format!("{said:?}").contains("is offered at"), "{said:?}");
    assert_eq!((status, fs::read_dir(&sockets).unwrap().count()), (0, 0), "{}", serve.rest());
}

#[test]
fn a_file_system_written_by_a_client_is_seen() {
    if !["mkfs.ext4", "nbdcopy"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let serve = Serve::start(&room, &["-V", "tank/home"], &members);
    let image = room.device("image", 6 << 20);
    tool("mkfs.ext4", ["-q", &image]);
    tool("nbdcopy", ["--flush", &image, &serve.uri]);
    order(&room, &serve, "lv reduce tank/home -l 5").failed(3, "WTL-0135", &["ext4", "6291456"]);
    order(&room, &serve, "lv remove tank/home").failed(3, "WTL-0080", &["ext4"]);
    order(&room, &serve, "lv reduce tank/home -l 6").ok();
    order(&room, &serve, "lv reduce tank/home -l 5 --force=file-system").ok();
    order(&room, &serve, "lv remove tank/home --force=signature").ok();
    serve.stop();
}

#[test]
fn drives_come_and_go_while_their_group_is_served() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let room = Room::new();
    let files = [room.device("a", 64 << 20), room.device("b", 64 << 20), room.device("c", 48 << 20)];
    let words = ["vg", "create", "vg", "-s", "1M", "--backup-dir", &room.name("backups")].map(str::to_owned);
    run(words.into_iter().chain(files[..1].to_vec())).ok();
    let create = ["lv", "create", "vg/home", "-l", "60", "--backup-dir", &room.name("backups")];
    run(create.map(str::to_owned).into_iter().chain(files[..1].to_vec())).ok();
    let serve = Serve::start(&room, &[], &files[..1]);
    let [a, b, c] = &files;
    order(&room, &serve, "lv extend vg/home -l +10").failed(1, "WTL-0131", &["3 are free"]);
    order(&room, &serve, "vg extend vg").failed(2, "WTL-0001", &["--on"]);
    File::options().write(true).open(b).unwrap().write_all_at(b"XFSB\0\0\x10\0", 0).unwrap();
    order(&room, &serve, &format!("vg extend vg --on {b}")).failed(3, "WTL-0080", &["xfs"]);
    order(&room, &serve, &format!("vg extend vg --on {b} --dry-run --force=signature")).ok();
    // It was released: another process can lock it.
    run(["pv".to_owned(), "create".to_owned(), c.clone()]).ok();
    order(&room, &serve, &format!("vg extend vg --on {b} --on {c} --force=signature")).ok();
    order(&room, &serve, "lv extend vg/home -l +10").ok();
    order(&room, &serve, &format!("lv create vg/new -l 30 --on {c}")).ok();
    run(["pv", "remove", b].map(str::to_owned)).failed(3, "WTL-0132", &["belongs to vg"]);
    order(&room, &serve, &format!("vg reduce vg --on {b}")).failed(3, "WTL-0132", &["holds extents"]);
    order(&room, &serve, &format!("lv move vg --from {c}")).ok();
    order(&room, &serve, &format!("vg reduce vg --on {c}")).ok();
    serve.command(&["set", "vg/new", "iops=5000"]).ok();
    order(&room, &serve, "lv rename vg/new other").ok();
    // It has another name, and the limits that it had.
    let status = serve.command(&["status", "--json"]).ok().json();
    let qos = status["qos"].as_array().unwrap().iter().find(|of| of["volume"] == "vg/other").cloned();
    assert_eq!(qos.unwrap()["settings"]["iops"], "5000");
    order(&room, &serve, "lv remove vg/home").ok();
    order(&room, &serve, &format!("vg reduce vg --on {a}")).ok();
    // Those that left are free for others while the server goes on, once what is under way on it
    // has ended.
    let given_back = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        run(["pv", "remove", a, c].map(str::to_owned)).status == 0
    });
    assert!(given_back);
    order(&room, &serve, "lv extend vg/other -l +1").ok();
    serve.stop();
    let conf = room.path("lvm");
    fs::create_dir(&conf).unwrap();
    let judged = |words: &str| judge(&conf, &files[1..2], words);
    let Some(lvs) = judged("lvs --noheadings -o lv_name,seg_pe_ranges") else { return };
    assert!(lvs.len() == 1 && lvs[0].starts_with("other b:"), "{lvs:?}");
    judged("vgck vg");
    assert_eq!(judged("vgs --noheadings -o pv_count,vg_missing_pv_count").unwrap(), ["1 0"]);
}

#[test]
fn what_is_said_of_a_volume_holds_for_its_clients() {
    if !require("nbdinfo") {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let socket = room.path("nbd");
    let export = format!("nbd=unix:{}", socket.display());
    let uri = format!("nbd+unix:///tank%2Fhome?socket={}", socket.display());
    let is_read_only = || tool("nbdinfo", ["--json", &uri]).contains("\"is_read_only\": true");
    let serve = Serve::start(&room, &["--export", &export], &members);
    let client = Client::connect(&socket, "tank/home").unwrap();
    order(&room, &serve, "lv activate-flags tank/home -p r").failed(3, "WTL-0116", &["tank/home is in use"]);
    order(&room, &serve, "lv activate-flags tank/home --setautoactivation n").ok();
    client.leave();
    assert!(!is_read_only());
    order(&room, &serve, "lv activate-flags tank/home -p r").ok();
    assert!(is_read_only());
    order(&room, &serve, "lv activate-flags tank/rest -k y").ok();
    Client::connect(&socket, "tank/rest").unwrap().leave();
    serve.stop();

    let serve = Serve::start(&room, &["--export", &export], &members);
    assert_eq!(offered(&serve), volumes(&[("tank/home", 8)]));
    order(&room, &serve, "lv activate-flags tank/home -p rw").ok();
    order(&room, &serve, "lv activate-flags tank/rest -k n").ok();
    assert_eq!(offered(&serve), volumes(&[("tank/home", 8), ("tank/rest", 4)]));
    assert!(!is_read_only());
    order(&room, &serve, "lv activate-flags tank/rest -k y").ok();
    order(&room, &serve, "lv activate-flags tank/home -k y").ok();
    serve.stop();
    let refused = Serve::try_start(&room, &[], &members).err().unwrap();
    refused.failed(2, "WTL-0006", &["tank/home", "activation skip"]);
    let serve = Serve::start(&room, &["-V", "tank/rest"], &members);
    assert_eq!(offered(&serve), volumes(&[("tank/rest", 4)]));
    serve.stop();
}

/// The volumes of a copied group keep their ids: a change of the original's is none of the copy's.
#[test]
fn a_volume_of_a_copied_group_stays_when_the_original_goes() {
    if !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let [original, copy] = ["original", "copy"].map(|name| room.device(name, 16 << 20));
    let backups = room.name("backups");
    run(["vg", "create", "vg", "-s", "1M", "--backup-dir", &backups, &original]).ok();
    let made =
        run(["lv", "create", "vg/home", "-l", "4", "--json", "--backup-dir", &backups, &original]).ok();
    let mut vg = Vg::parse(made.json()["text"].as_str().unwrap().as_bytes()).unwrap();
    (vg.name, vg.id) = ("copy".to_owned(), Id::from_random([1; 32]));
    vg.pvs[0].id = Id::from_random([2; 32]);
    let label = Label::create(vg.pvs[0].id, 16 << 20, 0).unwrap();
    let area = label.metadata_areas[0];
    let stamp = Stamp { description: "copied".to_owned(), host: String::new(), time: 1 };
    let commit = Header::new(area).unwrap().commit(&vg.to_text(&stamp)).unwrap();
    let file = File::options().write(true).open(&copy).unwrap();
    file.write_all_at(&label.encode().unwrap(), 512).unwrap();
    commit.texts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
    file.write_all_at(commit.commit.bytes(), area.offset_bytes).unwrap();

    let serve = Serve::start(&room, &["-V", "vg/home", "-V", "copy/home"], &[original, copy]);
    order(&room, &serve, "lv remove vg/home").ok();
    let status = serve.command(&["status", "--json"]).ok().json();
    let volumes = status["volumes"].as_array().unwrap();
    assert_eq!(volumes.iter().map(|volume| &volume["name"]).collect::<Vec<_>>(), ["copy/home"]);
    let copied = room.name("copied");
    tool("nbdcopy", [volumes[0]["exports"][0].as_str().unwrap(), &copied]);
    assert_eq!(std::fs::metadata(copied).unwrap().len(), 4 << 20);
    serve.stop();
}
