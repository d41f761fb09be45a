//! Encrypted devices, as a user has them: headers from cryptsetup, data from QEMU's own LUKS, above
//! and below arrays and volume groups, with every way to give a key.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::harness::{Room, Said, Serve, require, run, tool, wattle};

const PASSPHRASE: &str = "correct horse";
/// So that a test takes no second for each key slot.
const CHEAP: [&str; 4] = ["--pbkdf-memory", "4096", "--pbkdf-force-iterations", "4"];

fn cryptsetup(args: &[&str], image: &str) {
    let mut child = Command::new("cryptsetup").args(args).arg(image).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(PASSPHRASE.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "cryptsetup {args:?}");
}

/// Makes an encrypted device of LUKS2.
pub fn luks2(image: &str, more: &[&str]) {
    let format = ["luksFormat", "-q", "--type", "luks2", "--key-file", "-"];
    cryptsetup(&[&format[..], &CHEAP, more].concat(), image);
}

/// A file with the passphrase as people write it: with its line's end.
pub fn passphrase(room: &Room) -> String {
    let name = room.name("passphrase");
    fs::write(&name, format!("{PASSPHRASE}\n")).unwrap();
    name
}

/// An ext4 image with a few files in it.
fn files(room: &Room, size: &str) -> String {
    let (tree, image) = (room.path("tree"), room.name("plain"));
    fs::create_dir_all(tree.join("photos")).unwrap();
    for number in 0..40_u32 {
        let bytes: Vec<u8> =
            (0..50_000 + number).map(|at| (at.wrapping_mul(number + 7) >> 3) as u8).collect();
        fs::write(tree.join(format!("photos/{number}")), bytes).unwrap();
    }
    tool("mke2fs", ["-q", "-t", "ext4", "-d", tree.to_str().unwrap(), &image, size]);
    image
}

/// The files that come out are those that were put in.
#[track_caller]
fn check_files(room: &Room, args: &[&str]) {
    let out = room.name("out");
    let _ = fs::remove_dir_all(&out);
    run(["get", "--to", &out].iter().chain(args)).ok();
    tool("diff", ["-r", "--exclude=lost+found", room.path("tree").to_str().unwrap(), &out]);
}

/// Encrypts an image with QEMU's LUKS1, which shares no code with cryptsetup or this.
fn by_qemu(room: &Room, plain: &str, more: &str) -> String {
    let image = room.name("qemu.luks");
    let secret = format!("secret,id=key,data={PASSPHRASE}");
    let options = format!("key-secret=key,iter-time=100,hash-alg=sha512{more}");
    let convert = ["convert", "--object", &secret, "-O", "luks", "-o", &options, plain, &image];
    // QEMU measures the processor to choose its rounds, and gives up where that is too busy.
    for _ in 0..20 {
        if Command::new("qemu-img").args(convert).output().unwrap().status.success() {
            return image;
        }
    }
    tool("qemu-img", convert);
    image
}

fn served(room: &Room, args: &[&str], members: &[&str], write: impl FnOnce(&str)) {
    let server = Serve::start(room, args, members);
    write(&server.uri);
    server.stop();
}

#[test]
fn files_come_out_of_what_qemu_encrypted() {
    if !require("qemu-img") || !require("mke2fs") {
        return;
    }
    for more in [
        "",
        ",cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
        ",cipher-mode=xts,ivgen-alg=essiv,ivgen-hash-alg=sha256",
        ",cipher-alg=serpent-256",
        ",cipher-alg=twofish-256,cipher-mode=cbc,ivgen-alg=plain64",
    ] {
        let room = Room::new();
        let (key, plain) = (passphrase(&room), files(&room, "16M"));
        let image = by_qemu(&room, &plain, more);
        let before = fs::read(&image).unwrap();
        run(["ls", &image]).failed(1, "WTL-0300", &["--unlock", "--passphrase-file"]);
        check_files(&room, &["--passphrase-file", &key, &image]);
        let cat = run(["cat", "--passphrase-file", &key, &image]).ok();
        assert!(cat.stdout == fs::read(&plain).unwrap(), "{more}: the whole device");
        assert!(fs::read(&image).unwrap() == before, "{more}: reading changed it");
    }
}

#[test]
fn what_is_written_is_what_qemu_reads() {
    if !require("qemu-img") || !require("qemu-io") {
        return;
    }
    for more in [
        "",
        ",cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
        ",cipher-mode=xts,ivgen-alg=essiv,ivgen-hash-alg=sha256",
    ] {
        let room = Room::new();
        let (key, plain) = (passphrase(&room), room.device("plain", 8 << 20));
        let image = by_qemu(&room, &plain, more);
        served(&room, &["--passphrase-file", &key], &[&image], |uri| {
            let write = [
                "write -P 0x11 0 512",
                "write -P 0x22 4608 70000",
                "write -z 1M 512k",
                "write -P 0x33 8387584 1024",
                "flush",
            ];
            tool("qemu-io", ["-f", "raw", uri].into_iter().chain(write.iter().flat_map(|line| ["-c", line])));
        });
        let mut expected = vec![0; 8 << 20];
        expected[..512].fill(0x11);
        expected[4608..4608 + 70000].fill(0x22);
        expected[8_387_584..8_387_584 + 1024].fill(0x33);
        let (back, secret) = (room.name("back"), format!("secret,id=key,data={PASSPHRASE}"));
        let from = format!("driver=luks,key-secret=key,file.filename={image}");
        tool("qemu-img", ["convert", "--object", &secret, "--image-opts", &from, "-O", "raw", &back]);
        assert!(fs::read(back).unwrap() == expected, "{more}");
    }
}

/// Every way to give a key opens; a wrong one says so, and how long it took.
#[test]
fn keys_are_given_in_every_way() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let image = room.device("disk", 32 << 20);
    luks2(&image, &["--label", "vault"]);
    let name = |file: &str, bytes: &[u8]| {
        fs::write(room.path(file), bytes).unwrap();
        room.name(file)
    };
    let opens = |args: &[&str]| {
        let said = run(["scan", "--json", &image].iter().chain(args)).ok().json();
        let volumes = said["volumes"].as_array().unwrap().clone();
        let found = volumes.iter().find(|volume| volume["name"] == image.as_str()).unwrap();
        assert_eq!(found["encryption"]["state"], "unlocked", "{args:?}");
        assert!(volumes.iter().any(|volume| volume["kind"] == "decrypted"), "{args:?}");
    };
    opens(&["--passphrase-file", &passphrase(&room)]);
    let wrong = name("wrong", b"battery staple\n");
    opens(&["--passphrase-file", &wrong, "--key-file", &name("exact", PASSPHRASE.as_bytes())]);
    let within = name("within", format!("..{PASSPHRASE}...").as_bytes());
    opens(&["--key-file", &within, "--key-file-offset", "2b", "--key-file-size", "13b"]);
    // As DSM saves the key of a volume.
    opens(&["--key-file", &name("NAS_volume1.rkey", b"Y29ycmVjdCBob3JzZQ==\n")]);
    let key = room.name("volume-key");
    cryptsetup(
        &["luksDump", "-q", "--dump-volume-key", "--volume-key-file", &key, "--key-file", "-"],
        &image,
    );
    opens(&["--volume-key-file", &key]);
    let mut child = wattle();
    child.args(["scan", "--passphrase-file", "-", &image]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"correct horse\n").unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(String::from_utf8(said.stdout).unwrap().contains("opened with key slot 0"));
    let refused = |args: &[&str]| run(["cat", &image].iter().chain(args));
    refused(&["--passphrase-file", &wrong]).failed(1, "WTL-0301", &["which took"]);
    refused(&["--key-file", &passphrase(&room)]).failed(1, "WTL-0301", &["as it is"]);
    refused(&["--key-file", &room.name("no-such-file")]).failed(1, "WTL-0304", &["no-such-file"]);
    refused(&["--key-file", &name("empty", b"")]).failed(1, "WTL-0304", &["empty"]);
    refused(&["--key-file", &within, "--key-file-offset", "60b"]).failed(1, "WTL-0304", &["bytes"]);
    refused(&["--volume-key-file", &within]).failed(1, "WTL-0301", &[]);
    refused(&["--unlock"]).failed(1, "WTL-0304", &["terminal"]);
    let memory = ["--passphrase-file", &passphrase(&room), "--unlock-memory", "1M"];
    refused(&memory).failed(3, "WTL-0303", &["--unlock-memory 4M"]);
}

#[test]
fn headers_are_found_where_they_are() {
    if !require("cryptsetup") || !require("mke2fs") {
        return;
    }
    let room = Room::new();
    let (key, plain) = (passphrase(&room), files(&room, "16M"));
    // Detached: the device itself shows nothing.
    let (data, header) = (room.device("data", 16 << 20), room.device("header", 16 << 20));
    let named = format!("{data}={header}");
    luks2(&data, &["--header", &header, "--sector-size", "4096"]);
    served(&room, &["--passphrase-file", &key, "--header", &named], &[&data], |uri| {
        tool("nbdcopy", [&plain, uri]);
    });
    assert!(run(["ls", &data, "--passphrase-file", &key]).status != 0, "without its header");
    let other = format!("{data}x={header}");
    let said = run(["ls", &data, "--passphrase-file", &key, "--header", &other]);
    assert!(said.status != 0 && said.stderr.contains("the header was not used"), "{said:?}");
    check_files(&room, &["--passphrase-file", &key, "--header", &named, &data]);
    // A copy of a drive whose start was overwritten: the second header opens it.
    let whole = room.device("whole", 34 << 20);
    luks2(&whole, &[]);
    served(&room, &["--passphrase-file", &key], &[&whole], |uri| {
        tool("nbdcopy", [&plain, uri]);
    });
    check_files(&room, &["--passphrase-file", &key, &whole]);
    let file = fs::File::options().write(true).open(&whole).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).unwrap();
    check_files(&room, &["--passphrase-file", &key, &whole]);
    let scanned = run(["scan", "--json", &whole, "--passphrase-file", &key]).ok().json();
    assert_eq!(scanned["volumes"][0]["encryption"]["second_header_at_bytes"], 0x4000);
    // Both overwritten, in an area that its checksum covers: nothing comes out.
    std::os::unix::fs::FileExt::write_all_at(&file, b"LUKS\xba\xbe\x00\x02", 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[9; 64], 0x4000 + 4200).unwrap();
    run(["ls", &whole, "--passphrase-file", &key]).failed(1, "WTL-0305", &["--header"]);
}

/// Either header of LUKS2 opens a device, so that either is something that is on it.
#[test]
fn a_second_header_is_not_overlooked() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let (key, image) = (passphrase(&room), room.device("disk", 32 << 20));
    let other = room.device("other", 32 << 20);
    luks2(&image, &[]);
    let signatures = || {
        let said = run(["scan", "--json", &image, "--passphrase-file", &key]).ok().json();
        assert!(said["volumes"][0]["encryption"].is_null(), "{said}");
        said["members"][0]["signatures"].as_array().unwrap().clone()
    };
    let whole = fs::read(&image).unwrap();
    run(["erase", &image, "--no-undo"]).ok();
    assert_eq!(signatures(), [] as [&str; 0]);

    fs::write(&image, &whole).unwrap();
    run(["pv", "create", &image, "--on", &image, "--force=signature", "--no-undo"]).ok();
    assert_eq!(signatures().len(), 1, "{:?}", signatures());

    // A drive whose start was wiped by mistake.
    fs::write(&image, [&[0; 4096], &whole[4096..]].concat()).unwrap();
    for args in [
        &["create", "new", &image, &other, "--level", "1"][..],
        &["partition", &image, "--part", "1:1M+10M"],
        &["pv", "create", &image, "--on", &image],
    ] {
        room.untouched(|| run(args)).failed(3, "WTL-0080", &["second LUKS2 header at byte 16384"]);
    }
    let said = run(["scan", "--json", &image, "--passphrase-file", &key]).ok().json();
    assert_eq!(said["volumes"][0]["encryption"]["second_header_at_bytes"], 0x4000);
    run(["erase", &image, "--no-undo"]).ok();
    assert_eq!(signatures(), [] as [&str; 0]);
}

/// The layers of a NAS: LUKS on a logical volume on RAID; and of a laptop: LVM in LUKS.
#[test]
fn it_nests_with_arrays_and_volume_groups() {
    if !require("cryptsetup") || !require("mke2fs") {
        return;
    }
    let room = Room::new();
    let (key, plain) = (passphrase(&room), files(&room, "16M"));
    let open = ["--passphrase-file", &key];
    let members = room.array("5", 3);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    run(["pv", "create", "--no-undo"].into_iter().chain(names.iter().copied())).ok();
    run(["vg", "create", "--no-undo", "vg1"].into_iter().chain(names.iter().copied())).ok();
    run(["lv", "create", "--no-undo", "vg1/lv", "-l", "100%FREE"].into_iter().chain(names.iter().copied()))
        .ok();
    // The header is made on a file and put where it belongs.
    let header = room.device("header", 32 << 20);
    luks2(&header, &["--luks2-metadata-size", "16k", "--luks2-keyslots-size", "256k", "--offset", "2048"]);
    tool("truncate", ["-s", "1M", &header]);
    served(&room, &[], &names, |uri| _ = tool("nbdcopy", [&header, uri]));
    served(&room, &open, &names, |uri| _ = tool("nbdcopy", [&plain, uri]));
    for left_out in [None, Some(0), Some(1), Some(2)] {
        let left: Vec<&str> = (0..3).filter(|ix| Some(*ix) != left_out).map(|ix| names[ix]).collect();
        check_files(&room, &[&open[..], &left].concat());
        run(["ls"].iter().chain(&left)).failed(1, "WTL-0300", &["vg1/lv"]);
    }
    // A group in an encrypted drive, and changed there.
    let laptop = room.device("laptop", 64 << 20);
    luks2(&laptop, &["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"][..0]);
    let inside = format!("{laptop}:luks");
    let with = |args: &[&str]| -> Said { run(args.iter().chain(&open).chain(&[laptop.as_str()])) };
    with(&["pv", "create", "--no-undo", "--on", &inside][..3]).ok();
    with(&["vg", "create", "--no-undo", "home"]).ok();
    with(&["lv", "create", "--no-undo", "home/data", "-L", "20M"]).ok();
    served(&room, &open, &[&laptop], |uri| _ = tool("nbdcopy", [&plain, uri]));
    check_files(&room, &[&open[..], &[&laptop]].concat());
}

/// A mirror whose members are each encrypted: they are opened before the array is called degraded.
#[test]
fn encrypted_members_of_an_array_are_opened_first() {
    if !require("cryptsetup") || !require("mke2fs") {
        return;
    }
    let room = Room::new();
    let (key, plain) = (passphrase(&room), files(&room, "12M"));
    let open = ["--passphrase-file", &key];
    let inner = room.array("1", 2);
    let members = inner.iter().collect::<Vec<_>>();
    served(&room, &[], &[&inner[0], &inner[1]], |uri| _ = tool("nbdcopy", [&plain, uri]));
    let encrypted: Vec<String> = (0..2).map(|ix| room.device(&format!("luks{ix}"), 32 << 20)).collect();
    for (image, member) in encrypted.iter().zip(members) {
        luks2(image, &[]);
        served(&room, &open, &[image], |uri| _ = tool("nbdcopy", [member.as_str(), uri]));
    }
    let names: Vec<&str> = encrypted.iter().map(String::as_str).collect();
    check_files(&room, &[&open[..], &names].concat());
    let scanned = run(["scan", "--json"].iter().chain(&open).chain(&names)).ok().json();
    assert_eq!(scanned["arrays"][0]["health"], "good");
    served(&room, &open, &names, |uri| {
        tool("qemu-io", ["-f", "raw", uri, "-c", "write -P 0x77 11M 64k", "-c", "flush"]);
    });
    let both: Vec<_> = names.iter().map(|name| run(["cat", *name].iter().chain(&open)).ok().stdout).collect();
    assert!(both[0][11 << 20..12 << 20] == both[1][11 << 20..12 << 20], "both sides took the write");
}

#[test]
fn what_cannot_be_opened_is_refused_by_name() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let key = passphrase(&room);
    // A device that was being encrypted anew when it stopped, by its requirement.
    let image = room.device("disk", 32 << 20);
    luks2(&image, &[]);
    change_json(
        &image,
        "\"config\":{",
        "\"config\":{\"requirements\":{\"mandatory\":[\"online-reencrypt-v2\"]},",
    );
    run(["cat", &image, "--passphrase-file", &key]).failed(3, "WTL-0302", &["re-encryption"]);
    luks2(&image, &[]);
    change_json(
        &image,
        "\"encryption\":\"aes-xts-plain64\",\"sector_size\"",
        "\"encryption\":\"foo-xts-plain64\",\"sector_size\"",
    );
    run(["cat", &image, "--passphrase-file", &key]).failed(3, "WTL-0302", &["foo-xts-plain64"]);
    // The slot alone: nothing is damaged, and no backup of the header is asked for.
    luks2(&image, &[]);
    change_json(
        &image,
        "\"encryption\":\"aes-xts-plain64\",\"key_size\"",
        "\"encryption\":\"foo-xts-plain64\",\"key_size\"",
    );
    let words = ["key slot 0", "foo-xts-plain64", "nothing is wrong with it"];
    run(["cat", &image, "--passphrase-file", &key]).failed(3, "WTL-0302", &words);
}

/// Sectors of 1024 and 2048 bytes: the last ones are read, though no block of 4096 bytes holds
/// them.
#[test]
fn a_device_ends_where_its_last_sector_does() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let key = passphrase(&room);
    for sector in [1024_u64, 2048] {
        let image = room.device(&format!("disk-{sector}"), (32 << 20) + sector);
        luks2(&image, &["--sector-size", &sector.to_string()]);
        let cat = run(["cat", &image, "--passphrase-file", &key]).ok();
        assert_eq!(cat.stdout.len() as u64, (16 << 20) + sector);
    }
}

/// Changes the JSON of both headers, with the right checksums.
fn change_json(image: &str, from: &str, to: &str) {
    use sha2::{Digest, Sha256};
    let mut bytes = fs::read(Path::new(image)).unwrap();
    for at in [0, 0x4000] {
        let area = at + 4096..at + 0x4000;
        let json = String::from_utf8(bytes[area.clone()].to_vec()).unwrap();
        assert!(json.contains(from), "{json}");
        let mut changed = json.trim_end_matches('\0').replacen(from, to, 1).into_bytes();
        changed.resize(area.len(), 0);
        bytes[area].copy_from_slice(&changed);
        bytes[at + 448..at + 512].fill(0);
        let sum = Sha256::digest(&bytes[at..at + 0x4000]);
        bytes[at + 448..at + 480].copy_from_slice(&sum);
    }
    fs::write(image, bytes).unwrap();
}

/// A header whose device is elsewhere is not served as its own data: a write would go over the
/// keys. Nor is the header of one device used for another.
#[test]
fn a_header_opens_its_own_device_only() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let key = passphrase(&room);
    let (data, header) = (room.device("data", 32 << 20), room.device("header", 16 << 20));
    luks2(&data, &["--header", &header]);
    let before = fs::read(&header).unwrap();
    let with_key = ["--passphrase-file", &key];
    run([&["cat"], &with_key[..], &[&header]].concat()).failed(3, "WTL-0302", &["detached", "--header"]);
    let served = Serve::try_start(&room, &with_key, &[&header]);
    assert_eq!(served.err().map(|said| said.status), Some(3), "served over itself");
    let itself = format!("{header}={header}");
    run([&["cat"], &with_key[..], &["--header", &itself, &header]].concat()).failed(3, "WTL-0302", &[]);
    // By another name, or as a copy, it is still a header.
    let linked = room.name("linked");
    fs::hard_link(&header, &linked).unwrap();
    let itself = format!("{header}={linked}");
    let served = Serve::try_start(&room, &[&with_key[..], &["--header", &itself]].concat(), &[&header]);
    served.err().expect("a write would go over the keys").failed(3, "WTL-0302", &["detached"]);
    let named = format!("{data}={header}");
    run([&["cat"], &with_key[..], &["--header", &named, &data]].concat()).ok();
    assert!(fs::read(&header).unwrap() == before);
    let (one, other) = (room.device("one", 32 << 20), room.device("other", 32 << 20));
    luks2(&one, &[]);
    luks2(&other, &[]);
    let named = format!("{one}={other}");
    run([&["cat"], &with_key[..], &["--header", &named, &one]].concat()).failed(3, "WTL-0302", &["own"]);
}

/// A digest does not tell a key from the same with zeros behind it.
#[test]
fn a_volume_key_has_its_length() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let (image, key) = (room.device("disk", 32 << 20), room.name("volume-key"));
    luks2(&image, &["--key-size", "256"]);
    let dump = ["luksDump", "-q", "--dump-volume-key", "--volume-key-file", &key, "--key-file", "-"];
    cryptsetup(&dump, &image);
    run(["cat", "--volume-key-file", &key, &image]).ok();
    let longer = [fs::read(&key).unwrap(), vec![0; 32]].concat();
    fs::write(&key, longer).unwrap();
    run(["cat", "--volume-key-file", &key, &image]).failed(1, "WTL-0301", &[]);
}

/// A key on a stick: some bytes of a large device.
#[test]
fn a_key_may_be_a_part_of_something_large() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let (image, stick) = (room.device("disk", 32 << 20), room.device("stick", 20 << 20));
    luks2(&image, &[]);
    super::undo::put(&stick, 18 << 20, PASSPHRASE.as_bytes());
    let (offset, size) = ((18 << 20).to_string(), PASSPHRASE.len().to_string());
    let part = ["--key-file", &stick, "--key-file-offset", &offset, "--key-file-size", &size];
    run([&["cat"], &part[..], &[&image]].concat()).ok();
    let behind = ["--key-file", &stick, "--key-file-offset", "20M"];
    run([&["cat"], &behind[..], &[&image]].concat()).failed(1, "WTL-0304", &["no bytes"]);
}

/// A half that is encrypted is opened before the array is started, also where the array is named;
/// one whose key is wrong is not left behind without a word.
#[test]
fn an_array_is_not_started_without_its_encrypted_half() {
    if !require("cryptsetup") || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let key = passphrase(&room);
    let halves = room.array("1", 2);
    let image = room.device("disk", 48 << 20);
    luks2(&image, &[]);
    let with_key = ["--passphrase-file", &key];
    served(&room, &with_key, &[&image], |uri| _ = tool("nbdcopy", [&halves[1], uri]));
    let members = [halves[0].as_str(), &image];
    for args in [&["--volume", "data", "--passphrase-file", &key][..], &with_key] {
        let server = Serve::start(&room, args, &members);
        assert_eq!(server.array()["slots"], "[UU]", "{args:?}");
        server.stop();
    }
    let wrong = room.name("wrong");
    fs::write(&wrong, "battery staple").unwrap();
    for args in [&["--volume", "data", "--passphrase-file", &wrong][..], &["--passphrase-file", &wrong]] {
        let said = Serve::try_start(&room, args, &members).err().expect("it lacks a member");
        said.failed(1, "WTL-0301", &["leave", "--read-only"]);
    }
    for args in [&["--volume", "data"][..], &[]] {
        let said = Serve::try_start(&room, args, &members).err().expect("it lacks a member");
        said.failed(1, "WTL-0300", &["lacks a member", "leave", "--read-only"]);
    }
    let server = Serve::start(&room, &["--read-only", "--passphrase-file", &wrong], &members);
    server.stop();
}

/// What is encrypted on an array is no member that it lacks.
#[test]
fn what_lies_on_a_degraded_array_does_not_keep_it_from_being_served() {
    if !require("cryptsetup") || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let (halves, header) = (room.array("1", 2), room.device("header", 8 << 20));
    luks2(&header, &["--luks2-metadata-size", "16k", "--luks2-keyslots-size", "256k", "--offset", "2048"]);
    tool("truncate", ["-s", "1M", &header]);
    served(&room, &[], &[&halves[0], &halves[1]], |uri| _ = tool("nbdcopy", [&header, uri]));
    let server = Serve::start(&room, &[], &[&halves[0]]);
    assert_eq!(server.array()["slots"], "[U_]");
    server.stop();
}

/// What is in an encrypted device has a name and no path: the name that `why` shows is enough,
/// wherever the command is typed.
#[test]
fn an_encrypted_half_that_was_left_behind_is_added_by_its_name() {
    if !["cryptsetup", "nbdcopy", "qemu-io"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let key = passphrase(&room);
    let halves = room.blank(2, 16 << 20);
    run(["create", "data", "--level", "1", "--bitmap", "none", &halves[0], &halves[1]]).ok();
    let image = room.device("disk", 48 << 20);
    // Blocks no larger than those of the other half.
    luks2(&image, &["--sector-size", "512"]);
    served(&room, &["--passphrase-file", &key], &[&image], |uri| _ = tool("nbdcopy", [&halves[1], uri]));
    served(&room, &[], &[&halves[0]], |uri| {
        _ = tool("qemu-io", ["-f", "raw", "-c", "write -q -P 0x33 64k 64k", uri]);
    });
    let bin = env!("CARGO_BIN_EXE_wattle");
    let script = format!(
        "set -e; {bin} why data > why; cd /; {bin} add data disk:luks --wait; {bin} status data > $OLDPWD/status"
    );
    let mut command = super::harness::wattle();
    command.args(["serve", "member-0", "disk", "--passphrase-file", &key, "--run", &script]);
    command.env("WATTLE_RUNTIME_DIR", room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
    let done = super::harness::said(command.current_dir(room.dir.path()).output().unwrap());
    assert_eq!(done.status, 0, "{}", done.stderr);
    let why = fs::read_to_string(room.path("why")).unwrap();
    assert!(why.contains("wattle add data disk:luks\n"), "{why}");
    let status = fs::read_to_string(room.path("status")).unwrap();
    assert!(status.contains("[UU]"), "{status}");
}

/// Undo of what was made in an encrypted device says that it wants the key.
#[test]
fn what_was_made_inside_is_taken_back_with_the_key() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let (key, image) = (passphrase(&room), room.device("disk", 48 << 20));
    luks2(&image, &[]);
    let before = fs::read(&image).unwrap();
    let words = format!("pv create --on {image}:luks --passphrase-file {key}");
    let made = super::undo::saving(&room, &words, std::slice::from_ref(&image)).ok();
    assert!(made.stderr.contains("with the same options that name keys"), "{}", made.stderr);
    assert!(fs::read(&image).unwrap() != before);
    let undo = format!("undo {}", super::undo::log_of(&made));
    let said = super::undo::saving(&room, &undo, &[]);
    said.failed(3, "WTL-0184", &["WTL-0300", "is encrypted", "--passphrase-file"]);
    super::undo::saving(&room, &format!("{undo} --passphrase-file {key}"), &[]).ok();
    assert!(fs::read(&image).unwrap() == before);
}

/// What lies on a volume does not grow with it while it is served.
#[test]
fn a_volume_that_grows_below_does_not_say_that_clients_see_it() {
    if !require("cryptsetup") || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let (key, header) = (passphrase(&room), room.device("header", 8 << 20));
    luks2(&header, &["--luks2-metadata-size", "16k", "--luks2-keyslots-size", "256k", "--offset", "2048"]);
    tool("truncate", ["-s", "1M", &header]);
    let members = super::growing::group(&room);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    served(&room, &["-V", "tank/home"], &names, |uri| _ = tool("nbdcopy", [&header, uri]));
    let args = ["-V", "tank/home:luks", "--passphrase-file", &key];
    let server = Serve::start(&room, &args, &members);
    let said = super::growing::order(&room, &server, "lv extend tank/home -l +1").ok();
    assert!(
        said.text().contains("tank/home:luks, which lies on it, is as long as before"),
        "{}",
        said.text()
    );
    server.stop();
}
