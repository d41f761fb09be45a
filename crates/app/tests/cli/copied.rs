//! Members that are copies of drives, with maps of what was read: what was not is an unreadable
//! sector, and never data.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use crate::harness::{Room, Said, Serve, require, run, tool};
use crate::layers::unpack;

pub const PHOTOS: usize = 12;

/// Bytes that are not zeros, and different everywhere.
fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let byte = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8 | 1
    };
    (0..len).map(byte).collect()
}

pub fn photo(number: usize) -> Vec<u8> {
    noise(number as u64, number * 30_000)
}

fn photos(room: &Room) -> String {
    let tree = room.path("tree");
    fs::create_dir(&tree).unwrap();
    for number in 1..=PHOTOS {
        fs::write(tree.join(format!("photo{number}")), photo(number)).unwrap();
    }
    room.name("tree")
}

/// An image of a file system with the photos in it.
pub fn image(room: &Room, kind: &str) -> Option<String> {
    let (program, size_bytes) = match kind {
        "ext4" => ("mke2fs", 32 << 20),
        "xfs" => ("mkfs.xfs", 320 << 20),
        _ => ("mkfs.btrfs", 128 << 20),
    };
    let program = format!("/usr/sbin/{program}");
    if !Path::new(&program).exists() && !require(&program) {
        return None;
    }
    let (tree, image) = (photos(room), room.device("copy.img", size_bytes));
    let args: Vec<String> = match kind {
        "ext4" => ["-q", "-F", "-t", "ext4", "-d", &tree, &image].map(str::to_owned).to_vec(),
        "xfs" => {
            let files = (1..=PHOTOS).map(|number| format!("photo{number} ---644 0 0 {tree}/photo{number}\n"));
            let files: String = files.collect();
            fs::write(room.path("proto"), format!("/stand\n0 0\nd--755 0 0\n{files}$\n")).unwrap();
            ["-q", "-p", &room.name("proto"), &image].map(str::to_owned).to_vec()
        }
        _ => ["-q", "--rootdir", &tree, &image].map(str::to_owned).to_vec(),
    };
    tool(&program, args);
    Some(image)
}

/// A map of a file of this size that lacks these ranges, in order.
fn map_text(size_bytes: u64, unread: &[Range<u64>]) -> String {
    let mut text = "# Mapfile. Created by GNU ddrescue version 1.27\n0x0     +               1\n".to_owned();
    let mut at = 0;
    for range in unread.iter().map(|range| range.start.max(at)..range.end).collect::<Vec<_>>() {
        let start = range.start.max(at);
        if start >= range.end {
            continue;
        }
        if start > at {
            text += &format!("0x{at:08X}  0x{:08X}  +\n", start - at);
        }
        text += &format!("0x{start:08X}  0x{:08X}  -\n", range.end - start);
        at = range.end;
    }
    if at < size_bytes {
        text += &format!("0x{at:08X}  0x{:08X}  +\n", size_bytes - at);
    }
    text
}

/// Makes a member a copy in which these ranges, in order, are missing: zeros, and the map says so.
pub fn lose(member: &str, unread: &[Range<u64>]) {
    let file = fs::File::options().write(true).open(member).unwrap();
    for range in unread {
        file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start).unwrap();
    }
    let size_bytes = file.metadata().unwrap().len();
    fs::write(format!("{member}.map"), map_text(size_bytes, unread)).unwrap();
}

/// Where in an image this begins.
pub fn place(image: &[u8], part: &[u8]) -> u64 {
    image.windows(64).position(|bytes| bytes == &part[..64]).unwrap() as u64
}

pub fn lose_one(member: &str, unread: Range<u64>) {
    lose(member, std::slice::from_ref(&unread));
}

/// How many photos came out as they are not, and how many did not.
pub fn judge(to: &Path) -> (usize, usize) {
    let (mut wrong, mut missing) = (0, 0);
    for number in 1..=PHOTOS {
        match fs::read(to.join(format!("photo{number}"))) {
            Ok(bytes) => wrong += usize::from(bytes != photo(number)),
            Err(_) => missing += 1,
        }
    }
    (wrong, missing)
}

/// 40 kinds of damage: superblocks, labels, the end, everything, and wherever there is something.
fn damages(bytes: &[u8]) -> Vec<Vec<Range<u64>>> {
    let size = bytes.len() as u64;
    let block = |at: &u64| bytes[*at as usize..(*at + 4096) as usize].iter().any(|byte| *byte != 0);
    let used: Vec<u64> = (0..size).step_by(4096).filter(block).collect();
    let (half, end) = (size / 2..size, size - 65536..size);
    let mut cases =
        vec![vec![0..512], vec![512..1024], vec![1024..2048], vec![65536..69632], vec![end], vec![half]];
    cases.extend([size - 4096..size, 0..size].map(|range| [range].to_vec()));
    let mut draws = noise(7, 4096).into_iter().map(usize::from);
    let mut draw = |below: usize| (draws.next().unwrap() * 256 + draws.next().unwrap()) % below;
    while cases.len() < 40 {
        let mut case: Vec<Range<u64>> = Vec::new();
        for _ in 0..[1, 1, 2, 5][draw(4)] {
            let at = used[draw(used.len())];
            let start = at + [0, 512, 3584][draw(3)];
            case.push(start..(at + [4096, 8192, 65536][draw(3)]).min(size));
        }
        case.sort_by_key(|range| range.start);
        cases.push(case);
    }
    cases
}

/// Whatever is missing: no photo comes out wrong, and status 0 means that all are there. Without
/// the map some come out wrong with status 0, unless the file system has checksums of data.
fn sweep(kind: &str) {
    let room = Room::new();
    let Some(image) = image(&room, kind) else { return };
    let whole = fs::read(&image).unwrap();
    let (to, named) = (room.name("out"), format!("{image}=none"));
    let get = |more: &[&str]| {
        let _ = fs::remove_dir_all(&to);
        run(["get", &image, "--to", &to].iter().chain(more))
    };
    let (mut told, mut untold, mut forced) = (0, 0, 0);
    for case in damages(&whole) {
        lose(&image, &case);
        for more in [&[][..], &["--force", "newest-superblock"]] {
            let said = get(more);
            let (wrong, missing) = judge(Path::new(&to));
            assert_eq!(wrong, 0, "{case:?}: {}", said.stderr);
            assert!(said.stderr.contains("is a copy; by its map"), "{case:?}: {}", said.stderr);
            assert!((said.status == 0) == (missing == 0) || said.status == 1, "{case:?}: {}", said.stderr);
            assert!(said.status != 0 || missing == 0, "{case:?}: {}", said.stderr);
            told += usize::from(said.status == 1 && more.is_empty());
            forced += usize::from(missing == 0 && !more.is_empty());
        }
        let said = get(&["--map", &named]);
        let (wrong, missing) = judge(Path::new(&to));
        untold += usize::from(said.status == 0 && wrong + missing > 0);
        let file = fs::File::options().write(true).open(&image).unwrap();
        for range in &case {
            let (start, end) = (range.start as usize, range.end as usize);
            file.write_all_at(&whole[start..end], range.start).unwrap();
        }
    }
    eprintln!("{kind}: told {told}, without the map {untold} wrong with status 0, forced {forced} whole");
    assert!(told >= 20 && forced >= 3, "{kind}: told {told}, forced {forced}");
    assert!(untold >= 15 || kind == "btrfs", "{kind}: {untold}");
}

#[test]
fn no_file_of_an_ext4_comes_out_wrong_where_a_map_tells() {
    sweep("ext4");
}

#[test]
fn no_file_of_an_xfs_comes_out_wrong_where_a_map_tells() {
    sweep("xfs");
}

#[test]
fn no_file_of_a_btrfs_comes_out_wrong_where_a_map_tells() {
    sweep("btrfs");
}

/// Each place that cannot be read is named: the file and the bytes of it.
#[test]
fn what_is_not_in_a_copy_is_named_by_file_and_place() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let whole = fs::read(&image).unwrap();
    let at = place(&whole, &photo(9)[8192..]);
    lose_one(&image, at..at + 512);
    let said = room.untouched(|| run(["get", "--path", "/photo9", "--to", "-", &image]));
    assert!(said.stdout.len() <= 8192 && photo(9).starts_with(&said.stdout), "{}", said.stdout.len());
    said.failed(1, "WTL-0142", &["/photo9: bytes 8192 to 12287 of it"]);
    let said = run(["get", "--to", &room.name("out"), &image]);
    said.failed(1, "WTL-0143", &["not extracted: photo9: bytes 8192 to 12287 of it"]);
    assert_eq!(judge(&room.path("out")), (0, 1));
    run(["ls", &image]).ok();
    let offset = (at / 4096 * 4096).to_string();
    let said = run(["cat", &image, "--offset", &offset, "--length", "8K"]);
    said.failed(1, "WTL-0104", &[&format!("reading bytes {offset} to ")]);
    // A map that is elsewhere; and none.
    fs::rename(format!("{image}.map"), room.path("elsewhere")).unwrap();
    run(["get", "--path", "/photo9", "--to", "-", &image]).ok();
    let named = format!("{image}={}", room.name("elsewhere"));
    run(["get", "--path", "/photo9", "--to", "-", &image, "--map", &named]).failed(
        1,
        "WTL-0142",
        &["photo9"],
    );
    symlink(room.path("elsewhere"), format!("{image}.map")).unwrap();
    run(["get", "--path", "/photo9", "--to", "-", &image]).failed(1, "WTL-0142", &["photo9"]);
    let none = format!("{image}=none");
    run(["get", "--path", "/photo9", "--to", "-", &image, "--map", &none]).ok();
    let other = format!("{image}x=none");
    run(["get", "--path", "/photo9", "--to", "-", &image, "--map", &other]).failed(2, "WTL-0001", &["--map"]);
}

/// Five members that each lack much, in more places than a drive is forgiven, but never two of them
/// the same stripe.
#[test]
fn redundancy_has_what_copies_lack() {
    const STEP: u64 = 64 << 10;
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let size_bytes = fs::metadata(&members[0]).unwrap().len();
    let cat = |names: &[String]| run(["cat"].into_iter().chain(names.iter().map(String::as_str)));
    let all = [&["-V".to_owned(), "foxtrot/home".to_owned()], &members[..]].concat();
    let expected = cat(&all).ok().stdout;
    for (ix, member) in members.iter().enumerate() {
        let places = (2 << 20..size_bytes - (1 << 20)).step_by((5 * STEP) as usize);
        let unread: Vec<_> = places.map(|at| at + ix as u64 * STEP).map(|at| at..at + STEP / 2).collect();
        assert!(unread.len() > 40);
        lose(member, &unread);
    }
    let said = room.untouched(|| cat(&all)).ok();
    assert!(said.stdout == expected, "data from redundancy");
    let json = run(["scan", "--json"].into_iter().chain(members.iter().map(String::as_str))).ok().json();
    let copy = &json["members"][0]["copy"];
    assert!(copy["unread_bytes"].as_u64().unwrap() > 1 << 20 && copy["finished"] == true, "{copy}");
    let none: Vec<_> = members.iter().flat_map(|name| ["--map".to_owned(), format!("{name}=none")]).collect();
    let said = cat(&[all.clone(), none].concat()).ok();
    assert!(said.stdout != expected, "without maps zeros are data");
    // Two members lack the same.
    let part = 4 << 20..size_bytes - (2 << 20);
    lose(&members[1], std::slice::from_ref(&part));
    lose(&members[3], &[part]);
    let said = cat(&all);
    assert!(expected.starts_with(&said.stdout) && said.stdout.len() < expected.len());
    said.failed(1, "WTL-0104", &["reading bytes"]);
}

/// A mirror whose members hold the file system from their first byte on.
fn mirror(room: &Room) -> Option<Vec<String>> {
    let image = image(room, "ext4")?;
    let members = room.blank(2, 64 << 20);
    let args = ["create", "data", "--level", "1", "--metadata", "1.0", "--assume-clean"].map(str::to_owned);
    run(args.into_iter().chain(members.clone())).ok();
    let bytes = fs::read(image).unwrap();
    for member in &members {
        fs::File::options().write(true).open(member).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    Some(members)
}

/// What is read, and found by redundancy, is written: the maps say so once it is durable, and never
/// of what is not.
#[test]
fn what_is_written_over_unread_sectors_is_read_the_next_time() {
    let room = Room::new();
    let Some(members) = mirror(&room) else { return };
    let whole: Vec<_> = members.iter().map(|member| fs::read(member).unwrap()).collect();
    lose(&members[0], &[0..3 << 20, 20 << 20..24 << 20]);
    lose(&members[1], &[3 << 20..20 << 20, 25 << 20..25 << 20 | 512]);
    let unread = || {
        let json = run(["scan", "--json"].into_iter().chain(members.iter().map(String::as_str))).ok().json();
        [0, 1].map(|ix: usize| json["members"][ix]["copy"]["unread_bytes"].as_u64().unwrap())
    };
    assert_eq!(unread(), [7 << 20, 17 << 20 | 512]);
    let finished_is_true = || {
        for (member, whole) in members.iter().zip(&whole) {
            let (bytes, map) =
                (fs::read(member).unwrap(), fs::read_to_string(format!("{member}.map")).unwrap());
            for line in map.lines().filter(|line| line.ends_with(" +") && line.matches("0x").count() == 2) {
                let mut numbers = line
                    .split_whitespace()
                    .map(|word| usize::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or_default());
                let (start, len) = (numbers.next().unwrap(), numbers.next().unwrap());
                // What an array keeps about itself is behind the file system.
                let end = (start + len).min(32 << 20);
                assert!(start >= end || bytes[start..end] == whole[start..end], "{member}: {line}");
            }
        }
    };
    let serve = Serve::start(&room, &["--export", &format!("nbd=unix:{}", room.name("s"))], &members);
    serve.command(&["check", "data", "--wait"]).ok();
    // Killed at once: what the maps say is true, whatever they have.
    serve.kill();
    finished_is_true();
    let serve = Serve::start(&room, &["--export", &format!("nbd=unix:{}", room.name("t"))], &members);
    serve.command(&["check", "data", "--wait"]).ok();
    serve.stop();
    finished_is_true();
    assert_eq!(unread(), [0, 0]);
    let map = fs::read_to_string(format!("{}.map", members[0])).unwrap();
    assert!(map.starts_with("# Mapfile. Created by GNU ddrescue version 1.27\n"), "{map}");
    for member in &members {
        assert!(fs::read(member).unwrap()[..32 << 20] == whole[0][..32 << 20], "{member}");
        fs::remove_file(format!("{member}.map")).unwrap();
    }
    run(["get", "--to", &room.name("out")].into_iter().chain(members.iter().map(String::as_str))).ok();
    assert_eq!(judge(&room.path("out")), (0, 0));
}

/// What cannot be understood, or fits another file, is neither followed nor passed over.
#[test]
fn maps_that_do_not_fit_are_refused() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let size = 32 << 20;
    let beside = format!("{image}.map");
    let cases: [(&[u8], &str); 14] = [
        (b"", "there is nothing in it"),
        (b"# a comment\n", "there is nothing in it"),
        (b"hello\n", "line 1 is not one of a map"),
        (b"\xff\xfe\x00", "it is no text"),
        (b"0x0 + 1\n", "it has no areas"),
        (b"0x0 + 1\n0 33554432 +\nrest", "line 3 is not one of a map"),
        (b"0x0 + 1\n0 33554432", "line 2 is not one of a map"),
        (b"0x0 + 1\n0 4096 +\n8192 33546240 +\n", "line 3 does not go on where the line before ended"),
        (b"0x0 + 1\n0 8192 +\n4096 33550336 -\n", "line 3 does not go on where the line before ended"),
        (b"0x0 + 1\n4096 33550336 +\n", "it begins at byte 4096"),
        (b"0x0 + 1\n0 33550336 +\n", "is about 33550336 bytes, and the file has 33554432"),
        (b"0x0 + 1\n0 33554944 +\n", "copied to byte 33554944, and the file ends at byte 33554432"),
        (b"0x0 + 1\n0 4096 -\n4096 1073741824 +\n", "copied to byte 1073745920, and the file ends at"),
        (b"0x0 x 1\n0 33554432 +\n", "line 1 is not one of a map"),
    ];
    for (text, words) in cases {
        fs::write(&beside, text).unwrap();
        let named = format!("--map {image}=none");
        for command in [&["get", "--to", &room.name("out")][..], &["ls"], &["cat"], &["scan"]] {
            let said = run(command.iter().copied().chain([image.as_str()]));
            said.failed(3, "WTL-0167", &[words, &named]);
        }
        let said = run(["why", &image]);
        assert!(said.stderr.contains("error[WTL-0167]") && said.stderr.contains(words), "{}", said.stderr);
        let none = format!("{image}=none");
        run(["ls", &image, "--map", &none]).ok();
    }
    assert!(!room.path("out").exists());
    fs::remove_file(&beside).unwrap();
    fs::create_dir(&beside).unwrap();
    run(["ls", &image]).failed(3, "WTL-0167", &["it is no file"]);
    fs::remove_dir(&beside).unwrap();
    symlink("nowhere", &beside).unwrap();
    run(["ls", &image]).failed(3, "WTL-0167", &["No such file"]);
    fs::remove_file(&beside).unwrap();
    // A scan tells of the others.
    let other = room.device("other.img", 1 << 20);
    fs::write(format!("{other}.map"), "junk").unwrap();
    let said = run(["scan", "--json", &image, &other]);
    assert_eq!(said.json()["members"][0]["signatures"].as_array().unwrap().len(), 1);
    assert_eq!(said.json()["members"][1]["problem"]["code"], "WTL-0167");
    said.failed(3, "WTL-0167", &["other.img"]);
    // One that is all there is a file like any.
    fs::write(&beside, map_text(size, &[])).unwrap();
    let said = run(["get", "--to", &room.name("out"), &image]).ok();
    assert!(!said.stderr.contains("is a copy"), "{}", said.stderr);
}

/// A copy that was interrupted: its file ends early, its map does not.
#[test]
fn an_unfinished_copy_is_used_as_far_as_it_goes() {
    let room = Room::new();
    let Some(members) = mirror(&room) else { return };
    let size = 64 << 20;
    let text = format!("0x0 ? 1\n0 {} +\n{} {} ?\n", 8 << 20, 8 << 20, size - (8 << 20));
    fs::write(format!("{}.map", members[0]), text).unwrap();
    let file = fs::File::options().write(true).open(&members[0]).unwrap();
    file.set_len(8 << 20).unwrap();
    // Its superblock is behind the end: it is told, and the other one is enough.
    let names = members.iter().map(String::as_str);
    let said = run(["get", "--to", &room.name("out")].into_iter().chain(names.clone()));
    said.failed(
        1,
        "WTL-0028",
        &["member-0.map", "the copy was not finished", "the file ends at byte 8388608"],
    );
    run(["get", "--to", &room.name("out"), &members[1]]).ok();
    assert_eq!(judge(&room.path("out")), (0, 0));
    let said = run(["scan", "--json"].into_iter().chain(names));
    let copy = &said.json()["members"][0]["copy"];
    assert_eq!((&copy["finished"], &copy["unread_bytes"]), (&false.into(), &(56u64 << 20).into()));
    let said = run(["scan", &members[0]]);
    assert!(said.text().contains("a copy: all but 56 MiB of 64 MiB"), "{}", said.text());

    // With its superblock it is a member, is read, and is not written before it has its size.
    let room = Room::new();
    let Some(members) = mirror(&room) else { return };
    let (args, image) =
        (["create", "other", "--level", "1", "--assume-clean"], fs::read(&members[0]).unwrap());
    let other: Vec<_> = (0..2).map(|ix| room.device(&format!("other-{ix}"), 64 << 20)).collect();
    run(args.into_iter().chain(other.iter().map(String::as_str))).ok();
    let scan = run(["examine", "--json", &other[0]]).ok().json();
    let data = scan["members"][0]["superblocks"][0]["fields"]["data_offset"].as_u64().unwrap();
    for name in &other {
        let file = fs::File::options().write(true).open(name).unwrap();
        file.write_all_at(&image[..32 << 20], data).unwrap();
    }
    let file = fs::File::options().write(true).open(&other[0]).unwrap();
    file.set_len(8 << 20).unwrap();
    let text = format!("0x0 ? 1\n0 {} +\n{} {} ?\n", 8 << 20, 8 << 20, 56 << 20);
    fs::write(format!("{}.map", other[0]), text).unwrap();
    let get = |to: &str, more: &[&str]| {
        let names = other.iter().map(String::as_str);
        run(["get", "--to", &room.name(to)].into_iter().chain(names).chain(more.iter().copied()))
    };
    let said = get("both", &[]).ok();
    assert!(said.stderr.contains("the copy was not finished"), "{}", said.stderr);
    assert_eq!(judge(&room.path("both")), (0, 0));
    let socket = format!("nbd=unix:{}", room.name("s"));
    let said = Serve::try_start(&room, &["--export", &socket], &other).err().unwrap();
    said.failed(3, "WTL-0167", &["it ends at byte 8388608", "truncate -s 67108864"]);
    Serve::start(&room, &["--export", &socket, "--read-only"], &other).stop();
    file.set_len(64 << 20).unwrap();
    Serve::start(&room, &["--export", &socket], &other).stop();
}

/// Partitions of a copied disk lack what the map of the disk says, at their own places.
#[test]
fn the_map_of_a_disk_counts_in_its_partitions() {
    const START: u64 = 2 << 20;
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let content = fs::read(&image).unwrap();
    let disk = room.device("disk.img", START + (34 << 20));
    let file = fs::File::options().write(true).open(&disk).unwrap();
    let mut mbr = [0_u8; 512];
    mbr[450] = 0x83;
    mbr[454..458].copy_from_slice(&((START / 512) as u32).to_le_bytes());
    mbr[458..462].copy_from_slice(&(content.len() as u32 / 512).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    file.write_all_at(&mbr, 0).unwrap();
    file.write_all_at(&content, START).unwrap();
    let at = START + place(&content, &photo(5)[4096..]);
    // Half of what is missing lies before the partition.
    lose(&disk, &[1 << 20..(1 << 20) + 4096, at..at + 4096]);
    let said = run(["get", "--to", &room.name("out"), &disk]);
    said.failed(1, "WTL-0143", &["photo5: bytes 4096 to 8191 of it"]);
    assert_eq!(judge(&room.path("out")), (0, 1));
    let json = run(["scan", "--json", &disk]).ok().json();
    let copies: Vec<_> =
        (0..2).map(|ix: usize| json["members"][ix]["copy"]["unread_bytes"].as_u64().unwrap()).collect();
    assert_eq!(copies, [8192, 4096]);
    let (first, named) = (format!("{disk}:p1"), format!("{disk}={disk}.map"));
    run(["get", "--to", &room.name("again"), &first, "--map", &named]).failed(1, "WTL-0143", &["photo5"]);
    // The table itself.
    lose_one(&disk, 0..512);
    run(["get", "--to", &room.name("third"), &disk]).failed(1, "WTL-0028", &["disk.img.map"]);
    run(["scan", &disk]).failed(1, "WTL-0028", &["disk.img.map"]);
}

/// Metadata that is not in a copy: the member is one that could not be read, and that is said.
#[test]
fn metadata_that_is_not_in_a_copy_is_not_made_up() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let names = || members.iter().map(String::as_str);
    // The superblock at 4 KiB.
    lose_one(&members[2], 4096..8192);
    let said = run(["ls", "-V", "foxtrot/home"].into_iter().chain(names()));
    said.failed(1, "WTL-0028", &["member-2", "are not all in this copy of a drive", ".map"]);
    let others = names().filter(|name| *name != members[2]);
    run(["ls", "-V", "foxtrot/home"].into_iter().chain(others.clone())).ok();
    let said = run(["scan", "--json"].into_iter().chain(names()));
    assert_eq!(said.json()["arrays"][0]["slots"], "[UU_UU]");
    said.failed(1, "WTL-0028", &["member-2"]);

    // A physical volume: its label, and the text.
    let pv = room.device("pv.img", 32 << 20);
    run(["vg", "create", "group", &pv, "--no-undo"]).ok();
    run(["lv", "create", "group/one", "-L", "8M", &pv, "--no-undo"]).ok();
    run(["cat", "-V", "group/one", &pv]).ok();
    let whole = fs::read(&pv).unwrap();
    for unread in [512..1024, 4096..4608, 4096..1 << 20] {
        lose_one(&pv, unread);
        let said = run(["cat", "-V", "group/one", &pv]);
        assert!(said.status != 0 && said.stdout.is_empty(), "{}", said.stderr);
        assert!(said.stderr.contains("pv.img.map"), "{}", said.stderr);
        let said = run(["scan", &pv]);
        assert!(said.status != 0, "{}", said.stderr);
        fs::write(&pv, &whole).unwrap();
    }
}

/// A copy of a copy lacks what that lacks; the map of either is named by `--map`.
#[test]
fn a_copy_of_a_copy_lacks_the_same() {
    let room = Room::new();
    let source = room.device("a.img", 1 << 20);
    fs::write(&source, noise(3, 1 << 20)).unwrap();
    lose_one(&source, 8192..12288);
    let to = room.name("b.img");
    let said = run(["copy", "--raw", &source, "--to", &to, "--json"]);
    let missing = said.json()["missing"].clone();
    said.failed(1, "WTL-0160", &["could not be read"]);
    assert_eq!(missing[0], serde_json::json!({"offset_bytes": 8192, "len_bytes": 4096, "status": "-"}));
    run(["cat", "-V", "b.img", &to]).failed(1, "WTL-0104", &["reading bytes"]);
    let (elsewhere, own) = (room.name("elsewhere"), room.name("c.map"));
    fs::rename(format!("{source}.map"), &elsewhere).unwrap();
    let (named, to) = (format!("{source}={elsewhere}"), room.name("c.img"));
    let said = run(["copy", "--raw", &source, "--to", &to, "--map", &named, "--map", &own]);
    said.failed(1, "WTL-0160", &["could not be read"]);
    assert!(Path::new(&own).exists() && !room.path("c.img.map").exists());
    for maps in [&["--map", "x.img=y"][..], &["--map", &own, "--map", "d.map"]] {
        let args = ["copy", "--raw", &source, "--to", &room.name("d.img")];
        run(args.iter().copied().chain(maps.iter().copied())).failed(2, "WTL-0001", &["--map"]);
    }
    assert!(!room.path("d.img").exists());
}

/// With an overlay neither the copy nor its map is written.
#[test]
fn an_overlay_keeps_what_is_written_over_unread_sectors() {
    let room = Room::new();
    let Some(members) = mirror(&room) else { return };
    lose_one(&members[0], 1 << 20..4 << 20);
    let bytes = |names: &[String]| -> Vec<_> { names.iter().map(|name| fs::read(name).unwrap()).collect() };
    let map = format!("{}.map", members[0]);
    let before = (bytes(&members), fs::read(&map).unwrap());
    let (dir, socket) = (room.name("try"), format!("nbd=unix:{}", room.name("s")));
    let serve = Serve::start(&room, &["--export", &socket, "--overlay", &dir], &members);
    serve.command(&["check", "data", "--wait"]).ok();
    serve.stop();
    assert!((bytes(&members), fs::read(&map).unwrap()) == before, "a copy or its map was written");
    // What the overlay has of the copy is enough.
    let said: Said = run(["cat", &members[0], "--overlay", &dir, "--length", "4M"]);
    assert!(said.ok().stdout == before.0[1][..4 << 20]);
    run(["cat", &members[0], "--length", "4M"]).failed(1, "WTL-0104", &["reading bytes"]);
}

/// A copy that a running array takes is read by the map that is named for it, and by no other.
#[test]
fn a_copy_is_added_by_the_map_that_is_named_for_it() {
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &["--export", &format!("nbd=unix:{}", room.name("s"))], &members);
    let copy = room.device("copy.img", 16 << 20);
    // One that is about another drive.
    fs::write(room.path("other"), "0x0 + 1\n0 4096 +\n").unwrap();
    let named = format!("{copy}={}", room.name("other"));
    serve.command(&["add", "data", &copy, "--map", &named]).failed(3, "WTL-0167", &["4096 bytes"]);
    let beside = format!("{copy}.map");
    fs::rename(room.path("other"), &beside).unwrap();
    serve.command(&["add", "data", &copy]).failed(3, "WTL-0167", &["4096 bytes"]);
    let elsewhere = format!("{}={beside}", room.name("x.img"));
    serve.command(&["add", "data", &copy, "--map", &elsewhere]).failed(
        2,
        "WTL-0001",
        &["none of the members"],
    );
    let replace = ["replace", "data", &members[0], &copy];
    serve.command(&replace).failed(3, "WTL-0167", &["4096 bytes"]);
    let none = format!("{copy}=none");
    serve.command(&[&replace[..], &["--map", &none, "--wait"]].concat()).ok();
    let array = serve.wait_until_good();
    assert!(array.to_string().contains("copy.img"), "{array}");
    serve.stop();
}

/// `cat` stops at what cannot be read: its report says where, how much was to follow, what the
/// members lack, and why the status is what it is.
#[test]
fn a_report_says_where_cat_ended() {
    let room = Room::new();
    let members = room.array("0", 2);
    let (text, json) = (room.name("report.txt"), room.name("report.json"));
    let cat = |more: &[&str]| run(["cat", &members[0], &members[1]].into_iter().chain(more.iter().copied()));
    let all = cat(&["--report", &text]).ok().stdout.len() as u64;
    let report = fs::read_to_string(&text).unwrap();
    assert!(
        report.starts_with("wattle cat: 1 whole, 0 in part, 0 missing\nexit status 0: everything"),
        "{report}"
    );
    assert!(report.contains("  whole    -\n"), "{report}");
    lose_one(&members[0], 12 << 20..(12 << 20) + 4096);
    let said = cat(&["--report", &json]);
    let written = said.stdout.len() as u64;
    assert!(written > 0 && written < all);
    said.failed(1, "WTL-0104", &["in all: 0 whole, 1 in part", "behind the end did not come out"]);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let file = &report["files"][0];
    assert_eq!((&file["path"], &file["state"]), (&"-".into(), &"partial".into()), "{report:#}");
    let cut_off = serde_json::json!({"offset_bytes": written, "len_bytes": all - written});
    assert_eq!((&file["cut_off"], &report["totals"]["cut_off_bytes"]), (&cut_off, &(all - written).into()));
    assert_eq!((&report["exit"]["status"], &report["exit"]["code"]), (&1.into(), &"WTL-0104".into()));
    assert_eq!(report["members"][0]["unread_bytes"], 4096);
    // A report that cannot be written, as on a full disk, hides nothing of that.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", script, "bash", env!("CARGO_BIN_EXE_wattle"), "cat", &members[0], &members[1]]);
    limited.args(["--report", &room.name("unwritten")]).env("NO_COLOR", "1");
    let words = ["reading bytes", "and the report: ", "unwritten: File too large"];
    let limited = crate::harness::said(limited.output().unwrap()).failed(1, "WTL-0104", &words);
    assert!(limited.stderr.contains("in all: 0 whole, 1 in part"), "{}", limited.stderr);
    // A part is counted from where it was asked for.
    fs::remove_file(&json).unwrap();
    let said = cat(&["--offset", &(all - 4096).to_string(), "--report", &json]).ok();
    assert_eq!(said.stdout.len(), 4096);
    // What reads the output has enough: not everything came out, and nothing failed.
    let closed = room.name("closed.json");
    let mut child = crate::harness::wattle();
    child.args(["cat", &members[1], &members[0], "--length", "8M", "--report", &closed]);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&closed).unwrap()).unwrap();
    assert_eq!(
        (&report["exit"]["status"], &report["totals"]["partial"]),
        (&0.into(), &1.into()),
        "{report:#}"
    );
    assert!(report["exit"]["why"].as_str().unwrap().contains("closed"), "{report:#}");
    run(["cat", &members[0], &members[1], "--report", &members[0]]).failed(3, "WTL-0161", &["member-0"]);
}
