//! Drives of appliances: whose they are is told, and the files come out in the two commands that
//! are named. A Synology with three bands of drive sizes (SHR), and with the flags in its btrfs
//! that Linux from 5.2 on refuses.

use std::fs;

use crate::harness::{Room, Serve, require, run, tool};

const MIB: u64 = 1 << 20;

/// CRC-32C, bit by bit: the checksum of btrfs, without the code under test.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

fn le32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Sets the flags that DSM's kernel has in root items (0x400000000) and inode items (0x40000000);
/// how many it set.
fn flag_as_dsm(image: &mut [u8]) -> [usize; 2] {
    let superblock = 65536;
    let id = image[superblock + 32..superblock + 48].to_vec();
    let node_bytes = le32(image, superblock + 148);
    let mut flagged = [0; 2];
    for node in image.chunks_exact_mut(node_bytes) {
        let (is_node, is_leaf) = (node[32..48] == id, node[100] == 0);
        if !is_node || !is_leaf || le32(node, 0) != crc32c(&node[32..]) as usize {
            continue;
        }
        for item in 0..le32(node, 96) {
            let at = 101 + 25 * item;
            let data = 101 + le32(node, at + 17);
            match node[at + 8] {
                132 => {
                    node[data + 208 + 4] |= 4;
                    flagged[0] += 1;
                }
                1 => {
                    node[data + 64 + 3] |= 0x40;
                    flagged[1] += 1;
                }
                _ => {}
            }
        }
        let sum = crc32c(&node[32..]);
        node[..4].copy_from_slice(&sum.to_le_bytes());
    }
    flagged
}

/// A tree of files and a btrfs with it, as DSM's kernel leaves it.
fn synology_btrfs(room: &Room, bytes: u64) -> String {
    let tree = room.path("tree");
    fs::create_dir_all(tree.join("photo/2024")).unwrap();
    for number in 0..60_u32 {
        let content: Vec<u8> = (0..40_000 + 977 * number).map(|at| (at ^ at >> 7 ^ number) as u8).collect();
        fs::write(tree.join(format!("photo/2024/{number}.jpg")), content).unwrap();
    }
    fs::write(tree.join("@eaDir"), b"small").unwrap();
    let image = room.device("btrfs", bytes);
    tool("mkfs.btrfs", ["-q", "--rootdir", tree.to_str().unwrap(), &image]);
    let mut content = fs::read(&image).unwrap();
    let [roots, inodes] = flag_as_dsm(&mut content);
    assert!(roots > 3 && inodes > 60, "{roots} roots and {inodes} inodes were flagged");
    fs::write(&image, content).unwrap();
    image
}

/// Puts a file into a drive at a sector.
fn put(drive: &str, sector: u64, file: &str) {
    let (seek, from, to) = (format!("seek={}", sector / 2048), format!("if={file}"), format!("of={drive}"));
    tool("dd", ["status=none", "bs=1M", "conv=notrunc,sparse", &seek, &from, &to]);
}

#[test]
fn the_drives_of_a_synology_give_their_files() {
    if !["mkfs.btrfs", "sfdisk", "nbdcopy", "dd"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    // Four drives of three sizes: all have the first band, three the second, two the third.
    let bands: [(&str, usize, u64, u32); 3] = [("5", 4, 64, 5), ("5", 3, 96, 6), ("1", 2, 48, 7)];
    let mut parts: Vec<Vec<String>> = Vec::new();
    for (level, count, mib, number) in bands {
        let names: Vec<_> =
            (0..count).map(|drive| room.device(&format!("p{number}-{drive}"), mib * MIB)).collect();
        let name = format!("DiskStation:{}", number - 3);
        let create = ["create", &name, "--level", level, "--assume-clean", "--no-undo"];
        run(create.iter().map(|word| (*word).to_owned()).chain(names.iter().cloned())).ok();
        parts.push(names);
    }
    let all: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    let on: Vec<String> = (2..5).map(|number| format!("DiskStation:{number}")).collect();
    let on: Vec<&str> = on.iter().flat_map(|array| ["--on", array]).collect();
    run([&["pv", "create", "--no-undo"], &on[..], &all].concat()).ok();
    run([&["vg", "create", "--no-undo", "vg1000"], &on[..], &all].concat()).ok();
    run([&["lv", "create", "--no-undo", "vg1000/lv", "-l", "100%FREE"], &all[..]].concat()).ok();
    let btrfs = synology_btrfs(&room, 256 * MIB);
    let server = Serve::start(&room, &[], &all);
    tool("nbdcopy", [&btrfs, &server.uri]);
    server.stop();
    let drives: Vec<String> = (0..4).map(|drive| drive_of(&room, drive, &parts)).collect();
    let given: Vec<&str> = drives.iter().map(String::as_str).collect();
    let scan = run([&["scan"], &given[..]].concat()).ok();
    let text = scan.text().split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["that of Synology (DSM) (volume vg1000/lv)", "Files are on vg1000/lv, btrfs: `wattle ls"] {
        assert!(text.contains(words), "{words}: {}", scan.text());
    }
    let json = run([&["scan", "--json"], &given[..]].concat()).ok().json();
    assert_eq!(json["vendor"]["name"], "Synology (DSM)");
    for left_out in [None, Some(1), Some(3)] {
        let left: Vec<&str> =
            (0..4).filter(|drive| Some(*drive) != left_out).map(|drive| given[drive]).collect();
        run([&["ls"], &left[..]].concat()).ok();
        let out = room.name(&format!("out-{left_out:?}"));
        run([&["get", "--to", &out], &left[..]].concat()).ok();
        tool("diff", ["-r", room.path("tree").to_str().unwrap(), &out]);
    }
}

/// A drive with its partitions as DSM makes them: the system, swap, and its bands.
fn drive_of(room: &Room, drive: usize, parts: &[Vec<String>]) -> String {
    let image = room.device(&format!("drive-{drive}"), 4800 * MIB);
    let mut table = "label: gpt\n".to_owned();
    table += &format!("{image}1 : start=2048, size=4980480\n{image}2 : start=4982784, size=4194304\n");
    let mut start = 9_179_136;
    let mut places = Vec::new();
    for (band, members) in parts.iter().enumerate() {
        let Some(member) = members.get(drive) else { continue };
        let sectors = fs::metadata(member).unwrap().len() / 512;
        table += &format!("{image}{} : start={start}, size={sectors}\n", 5 + band);
        places.push((start, member));
        start += sectors;
    }
    let script = room.name("table");
    fs::write(&script, table).unwrap();
    tool("sh", ["-c", &format!("sfdisk -q --no-reread --no-tell-kernel '{image}' < '{script}'")]);
    places.into_iter().for_each(|(start, member)| put(&image, start, member));
    image
}
