//! NVMe/TCP as a host finds it: what is refused, what stays the same after a restart, and what a
//! host hears of a volume that grows. The protocol is tested in the export room, Linux's own host
//! in the guest.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::growing::{group, order};
use crate::harness::{Room, Serve, require, run, tool};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const LOCAL: [&str; 2] = ["--export", "nvme-tcp=127.0.0.1:0"];

/// The admin queue of a controller, or another one of it.
struct Admin(TcpStream);

impl Admin {
    /// Connects to the subsystem of a way such as `nvme+tcp://127.0.0.1:4420/NQN`.
    fn connect(way: &str) -> Self {
        Self::controller(way).0
    }

    /// A controller that is enabled, and its number.
    fn controller(way: &str) -> (Self, u16) {
        let (mut admin, number) = Self::queue(way, 0, u16::MAX);
        let mut enable = [0; 64];
        (enable[0], enable[44], enable[48], enable[50]) = (0x7f, 0x14, 1, 0x46);
        admin.ask(&enable, &[]);
        (admin, number)
    }

    /// A queue of a controller, which is a new one for its first; and its number.
    fn queue(way: &str, number: u8, controller: u16) -> (Self, u16) {
        let (address, nqn) = way.strip_prefix("nvme+tcp://").unwrap().split_once('/').unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut admin = Self(stream);
        let mut begin = [0; 128];
        (begin[2], begin[4]) = (128, 128);
        admin.0.write_all(&begin).unwrap();
        admin.0.read_exact(&mut begin).unwrap();
        assert_eq!(begin[0], 1);
        let mut connect = [0; 64];
        (connect[0], connect[4], connect[33], connect[39], connect[44]) = (0x7f, 1, 4, 1, 31);
        connect[42] = number;
        let mut data = [0; 1024];
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        let (_, result) = admin.ask(&connect, &data);
        (admin, result as u16)
    }

    /// An order about reservations, with its two keys.
    fn reserve(&mut self, opcode: u8, word: u32, nsid: u32, keys: [u64; 2]) {
        let mut entry = [0; 64];
        (entry[0], entry[32], entry[39]) = (opcode, 16, 1);
        entry[4..8].copy_from_slice(&nsid.to_le_bytes());
        entry[40..44].copy_from_slice(&word.to_le_bytes());
        self.ask(&entry, &keys.map(u64::to_le_bytes).concat());
    }

    fn submit(&mut self, entry: &[u8; 64], data: &[u8]) {
        let mut bytes = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
        bytes.extend((72 + data.len() as u32).to_le_bytes());
        bytes.extend(entry);
        bytes.extend(data);
        self.0.write_all(&bytes).unwrap();
    }

    /// The data and result of a command that is done.
    fn answer(&mut self) -> (Vec<u8>, u64) {
        let mut data = Vec::new();
        loop {
            let mut header = [0; 24];
            self.0.read_exact(&mut header).unwrap();
            let total = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
            if header[0] == 5 {
                assert_eq!(header[22..24], [0, 0], "status");
                return (data, u64::from_le_bytes(header[8..16].try_into().unwrap()));
            }
            data.resize(total - 24, 0);
            self.0.read_exact(&mut data).unwrap();
        }
    }

    fn ask(&mut self, entry: &[u8; 64], data: &[u8]) -> (Vec<u8>, u64) {
        self.submit(entry, data);
        self.answer()
    }

    /// Identify or a log page of 4096 bytes.
    fn page(&mut self, opcode: u8, number: u8, nsid: u32) -> Vec<u8> {
        let mut entry = [0; 64];
        (entry[0], entry[33], entry[39], entry[40]) = (opcode, 16, 0x5a, number);
        entry[4..8].copy_from_slice(&nsid.to_le_bytes());
        if opcode == 2 {
            entry[42..44].copy_from_slice(&1023_u16.to_le_bytes());
        }
        self.ask(&entry, &[]).0
    }

    fn words(page: &[u8]) -> Vec<u32> {
        let words = page.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        words.take_while(|word| *word > 0).collect()
    }

    /// NSIDs, and the MiB of each namespace.
    fn namespaces(&mut self) -> Vec<(u32, u64)> {
        let nsids = Self::words(&self.page(6, 2, 0));
        let mut mib = |nsid| {
            let blocks = u64::from_le_bytes(self.page(6, 0, nsid)[..8].try_into().unwrap());
            (nsid, blocks >> 11)
        };
        nsids.into_iter().map(&mut mib).collect()
    }
}

#[test]
fn a_port_that_other_machines_reach_takes_the_risk_by_name() {
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = |more: &[&str]| {
        let mut words = vec!["serve".to_owned(), "--runtime-dir".to_owned(), room.name("run")];
        words.extend(members.iter().cloned());
        words.extend(more.iter().map(|word| (*word).to_owned()));
        run(words)
    };
    for address in ["nvme-tcp=0.0.0.0:0", "nvme-tcp=[::]:0"] {
        serve(&["--export", address]).failed(3, "WTL-0220", &[address, "--insecure"]);
    }
    serve(&["--export", "nvme-tcp=0.0.0.0:0", "--insecure", "--run", "test -n \"$nvme_nqn\""]).ok();
    let secrets = room.name("secrets");
    let open = ["--export", "nvme-tcp=0.0.0.0:0", "--nvme-secrets", &secrets];
    serve(&open).failed(2, "WTL-0001", &["--nvme-secrets", &secrets]);
    std::fs::write(&secrets, format!("{HOST} DHHC-1:00:BwcH:\n")).unwrap();
    std::fs::set_permissions(&secrets, PermissionsExt::from_mode(0o640)).unwrap();
    serve(&open).failed(2, "WTL-0001", &["others than its owner can use it (mode 0640)"]);
    std::fs::set_permissions(&secrets, PermissionsExt::from_mode(0o600)).unwrap();
    serve(&open).failed(2, "WTL-0001", &["line 1", "nvme gen-dhchap-key"]);
    let secret = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
    std::fs::write(&secrets, format!("{HOST} {secret}\n")).unwrap();
    serve(&[&open[..], &["--run", "true"]].concat()).ok();
    serve(&["--export", "nbd=tcp:127.0.0.1:0", "--nvme-secrets", &secrets]).failed(
        2,
        "WTL-0001",
        &["nvme-tcp"],
    );
    let both = [&LOCAL[..], &["--tls-certificates", "/etc"]].concat();
    let said = serve(&both);
    assert_eq!(said.status, 2, "NVMe has no TLS: {said:?}");
}

#[test]
fn a_host_finds_after_a_restart_what_it_had() {
    let room = Room::new();
    let members = group(&room);
    let serve = Serve::start(&room, &[&LOCAL[..], &LOCAL[..]].concat(), &members);
    let nqn = |way: &str| way.rsplit_once('/').unwrap().1.to_owned();
    let before = Admin::connect(&serve.uri).namespaces();
    let name = nqn(&serve.uri);
    assert_eq!(before.iter().map(|(_, mib)| mib).sum::<u64>(), 12);
    serve.stop();
    // Of one volume alone, and by another path.
    let serve = Serve::start(&room, &[&LOCAL[..], &["-V", "tank/rest"]].concat(), &members);
    let rest = Admin::connect(&serve.uri).namespaces();
    assert_eq!(rest.len(), 1);
    assert!(before.contains(&rest[0]), "{before:?} {rest:?}");
    serve.stop();
    let serve = Serve::start(&room, &LOCAL, &members);
    assert_eq!(nqn(&serve.uri), name);
    assert_eq!(Admin::connect(&serve.uri).namespaces(), before);
    serve.stop();
}

/// What has no id is known by the file that it is: a host does not go on with another one that has
/// its path.
#[test]
fn another_file_of_the_same_path_is_another_namespace() {
    if !require("mke2fs") {
        return;
    }
    let room = Room::new();
    let disk = room.device("disk.img", 8 << 20);
    let namespaces = || {
        tool("mke2fs", ["-Fq", &disk]);
        let serve = Serve::start(&room, &LOCAL, std::slice::from_ref(&disk));
        let found = Admin::connect(&serve.uri).namespaces();
        serve.stop();
        assert_eq!(found.len(), 1);
        found[0].0
    };
    let first = namespaces();
    assert_eq!(namespaces(), first, "the file has a new file system, and is the same");
    std::fs::rename(&disk, room.path("old.img")).unwrap();
    room.device("disk.img", 8 << 20);
    assert_ne!(namespaces(), first);
}

#[test]
fn a_host_hears_that_a_volume_grew_and_keeps_it_from_being_removed() {
    let room = Room::new();
    let members = group(&room);
    let serve = Serve::start(&room, &LOCAL, &members);
    let mut admin = Admin::connect(&serve.uri);
    let before = admin.namespaces();
    let mut wanted = [0; 64];
    (wanted[0], wanted[40], wanted[45]) = (9, 0x0b, 1);
    admin.ask(&wanted, &[]);
    let mut request = [0; 64];
    (request[0], request[2]) = (0x0c, 9);
    admin.submit(&request, &[]);
    order(&room, &serve, "lv extend tank/home -l +4").ok();
    assert_eq!(admin.answer().1, 0x04_0002, "namespaces changed");
    let changed = Admin::words(&admin.page(2, 4, u32::MAX));
    let home = before.iter().find(|(_, mib)| *mib == 8).unwrap().0;
    assert_eq!(changed, [home]);
    assert!(admin.namespaces().contains(&(home, 12)));
    // It may be mounted there.
    order(&room, &serve, "lv remove tank/rest").failed(3, "WTL-0116", &["1 NVMe host"]);
    drop(admin);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while order(&room, &serve, "lv remove tank/rest").status != 0 {
        assert!(std::time::Instant::now() < deadline, "the host has gone");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(Admin::connect(&serve.uri).namespaces(), [(home, 12)]);
    serve.stop();
}

#[test]
fn what_a_dead_host_has_reserved_is_seen_and_cleared() {
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &LOCAL, &members);
    serve.command(&["reservations", "data"]).ok();
    let (mut admin, controller) = Admin::controller(&serve.uri);
    let nsid = admin.namespaces()[0].0;
    let (mut host, _) = Admin::queue(&serve.uri, 1, controller);
    // Registered so that it outlasts the server, then reserved: its registrants alone write.
    host.reserve(0x0d, 3 << 30, nsid, [0, 0xabc]);
    host.reserve(0x11, 3 << 8, nsid, [0xabc, 0]);
    drop((host, admin));
    serve.kill();
    let kept: Vec<_> = std::fs::read_dir(room.path("state/reservations")).unwrap().flatten().collect();
    let serve = Serve::start(&room, &LOCAL, &members);
    let said = serve.command(&["reservations", "data"]).ok();
    for words in
        ["write-exclusive-registrants", "outlasts the server", HOST, "0xabc", "holds the reservation"]
    {
        assert!(said.text().contains(words), "{words}: {}", said.text());
    }
    let json = serve.command(&["reservations", "data", "--json"]).ok().json();
    let found = &json["reservations"][0];
    assert_eq!((&found["kind"], &found["readable"]), (&"write-exclusive-registrants".into(), &true.into()));
    assert_eq!(found["hosts"][0]["holds"], true);
    let status = serve.command(&["status"]).ok();
    assert!(status.text().contains("reserved (write-exclusive-registrants) by nqn."), "{}", status.text());

    let said = serve.command(&["reservations", "data", "--clear"]).ok();
    assert!(said.stderr.contains("1 host is registered no more"), "{}", said.stderr);
    let said = serve.command(&["reservations", "data"]).ok();
    assert!(said.text().contains("no host has registered"), "{}", said.text());
    assert_eq!(std::fs::read_dir(room.path("state/reservations")).unwrap().count(), 0);
    serve.stop();
    let serve = Serve::start(&room, &LOCAL, &members);
    let json = serve.command(&["reservations", "data", "--json"]).ok().json();
    assert_eq!(json["reservations"].as_array().unwrap().len(), 0);
    serve.stop();

    // What is not known is not cleared; what is no namespace has none.
    std::fs::write(kept[0].path(), "what is this").unwrap();
    let serve = Serve::start(&room, &LOCAL, &members);
    let said = serve.command(&["reservations", "data"]).ok();
    assert!(said.text().contains("cannot be read"), "{}", said.text());
    serve.command(&["reservations", "data", "--clear"]).failed(2, "WTL-0001", &["remove the file"]);
    serve.stop();
    let serve = Serve::start(&room, &["--export", "nbd=tcp:127.0.0.1:0"], &members);
    serve.command(&["reservations", "data", "--clear"]).failed(2, "WTL-0001", &["nvme-tcp"]);
    serve.command(&["reservations", "nothing"]).failed(1, "WTL-0100", &["nothing"]);
    serve.stop();
}

#[test]
fn what_is_reserved_of_a_volume_is_shown_for_its_group_too() {
    let room = Room::new();
    let serve = Serve::start(&room, &LOCAL, &group(&room));
    let (mut admin, controller) = Admin::controller(&serve.uri);
    let home = admin.namespaces().into_iter().find(|(_, mib)| *mib == 8).unwrap().0;
    let (mut host, _) = Admin::queue(&serve.uri, 1, controller);
    host.reserve(0x0d, 0, home, [0, 0xabc]);
    for named in ["tank", "tank/home"] {
        let said = serve.command(&["reservations", named]).ok();
        assert!(
            said.text().contains("tank/home: nothing is reserved; ends with the server"),
            "{}",
            said.text()
        );
        assert!(said.text().contains("0xabc"), "{}", said.text());
    }
    let said = serve.command(&["reservations", "tank/rest"]).ok();
    assert!(said.text().contains("no host has registered"), "{}", said.text());
    serve.command(&["reservations", "tank", "--clear"]).failed(
        1,
        "WTL-0100",
        &["tank/home", "name one of these"],
    );
    serve.command(&["reservations", "tank/home", "--clear"]).ok();
    let said = serve.command(&["reservations", "tank"]).ok();
    assert!(said.text().contains("no host has registered"), "{}", said.text());
    serve.stop();
}
