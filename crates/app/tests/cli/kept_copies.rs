//! Copies of members that are kept in volumes, and members that lie in volumes because they are
//! meant to: an array of drives does not take the first back by itself, one of volumes the second.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::harness::{Room, Serve, run};
use crate::lvm::lvm;
use crate::nbd::Client;

const MIB: u64 = 1 << 20;
const SIZE: usize = 16 << 20;

/// A mirror `rot` with a bitmap, of two members; the second is as it was before the first went on
/// alone.
fn mirror(room: &Room) -> Vec<String> {
    let members = room.blank(2, SIZE as u64);
    let create = ["create", "rot", "--level", "1", "--consistency", "bitmap"].map(str::to_owned);
    run(create.into_iter().chain(members.clone())).ok();
    for (given, byte) in [(&members[..], 0x55), (&members[..1], 0x66)] {
        let serve = Serve::start(room, &["--force=missing-member"], given);
        let mut client = Client::connect(&serve.uri).unwrap();
        client.write(MIB, &[byte; MIB as usize]).unwrap();
        client.flush().unwrap();
        drop(client);
        serve.stop();
    }
    members
}

/// A group on one drive, with a volume for each content, one after the other.
fn group(room: &Room, name: &str, contents: &[&[u8]]) -> String {
    let drive = room.device(name, 64 * MIB);
    lvm(room, &format!("vg create {name}-vg -s 1M"), std::slice::from_ref(&drive)).ok();
    for (ix, content) in contents.iter().enumerate() {
        lvm(room, &format!("lv create {name}-vg/lv{ix} -l 16"), std::slice::from_ref(&drive)).ok();
        let file = File::options().write(true).open(&drive).unwrap();
        file.write_all_at(content, MIB + (ix * SIZE) as u64).unwrap();
    }
    drive
}

/// Hazard: the image of a dying drive, kept in a volume of a group that was given for something
/// else, is written over with what the array holds now.
#[test]
fn a_copy_in_a_volume_is_taken_back_by_order_only() {
    let room = Room::new();
    let members = mirror(&room);
    let copy = fs::read(&members[1]).unwrap();
    let pv = group(&room, "pv", &[&copy]);
    let given = [members[0].clone(), pv.clone()];
    let order = "`wattle add rot pv-vg/lv0`";

    let scan = run([&["scan".to_owned()][..], &given].concat()).ok();
    assert!(scan.text().contains(order), "{}", scan.text());
    let args = ["-V", "rot", "--force=missing-member"];
    let serve = Serve::start(&room, &args, &given);
    assert!(serve.said.contains(order) && serve.said.contains("not used"), "{}", serve.said);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(serve.array()["slots"], "[U_]");
    let why = serve.command(&["why", "rot"]).ok();
    assert!(why.text().contains("wattle add rot pv-vg/lv0"), "{}", why.text());
    serve.stop();
    assert!(fs::read(&pv).unwrap()[MIB as usize..][..SIZE] == copy, "the copy was written");

    let serve = Serve::start(&room, &args, &given);
    serve.command(&["add", "rot", "pv-vg/lv0"]).ok();
    serve.wait_until_good();
    serve.stop();
    let data = fs::read(&members[0]).unwrap();
    assert!(fs::read(&pv).unwrap()[MIB as usize..][2 * MIB as usize..SIZE] == data[2 * MIB as usize..]);
}

#[test]
fn a_member_of_an_array_of_volumes_comes_back_by_itself() {
    let room = Room::new();
    let members = mirror(&room);
    let contents = [0, 1].map(|ix: usize| fs::read(&members[ix]).unwrap());
    let pv = group(&room, "pv", &[&contents[0], &contents[1]]);
    let serve = Serve::start(&room, &["-V", "rot"], &[pv]);
    assert!(serve.said.contains("it gets what it missed"), "{}", serve.said);
    assert!(!serve.said.contains("not used"), "{}", serve.said);
    serve.wait_until_good();
    serve.stop();
}

/// Changes a superblock 1.2 in these bytes of a member, with its checksum.
fn change_superblock(member: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let superblock = &mut member[4096..][..4096];
    change(superblock);
    superblock[216..220].fill(0);
    let max_dev = u32::from_le_bytes(superblock[220..224].try_into().unwrap()) as usize;
    let words = superblock[..256 + 2 * max_dev].chunks(4);
    let sum: u64 = words.map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    superblock[216..220].copy_from_slice(&folded.to_le_bytes());
}

/// Hazard: the image of a drive, taken after the array was stopped, is as fresh as the array, and
/// fills the slot of the drive that is away; and a guest may write into its disk that it is fresher
/// than the drives that are there, and have the array show what the guest wrote.
#[test]
fn a_copy_that_is_as_fresh_as_the_array_or_fresher_has_no_part_in_it() {
    let room = Room::new();
    let members = room.blank(2, SIZE as u64);
    let create = ["create", "rot", "--level", "1", "--consistency", "bitmap"].map(str::to_owned);
    run(create.into_iter().chain(members.clone())).ok();
    let serve = Serve::start(&room, &[], &members);
    serve.wait_until_good();
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(MIB, &[0x55; MIB as usize]).unwrap();
    client.flush().unwrap();
    drop(client);
    serve.stop();
    let [first, image] = [0, 1].map(|ix: usize| fs::read(&members[ix]).unwrap());
    let mut of_guest = image.clone();
    let data_at = u64::from_le_bytes(image[4096 + 128..][..8].try_into().unwrap()) * 512 + MIB;
    of_guest[data_at as usize..][..MIB as usize].fill(0x99);
    change_superblock(&mut of_guest, |superblock| {
        let events = u64::from_le_bytes(superblock[200..208].try_into().unwrap()) + 40;
        superblock[200..208].copy_from_slice(&events.to_le_bytes());
        superblock[256..258].copy_from_slice(&[0xfe, 0xff]);
    });
    fs::remove_file(&members[1]).unwrap();
    let args = ["-V", "rot", "--force=missing-member"];
    for (name, content, told) in [
        ("guest", &of_guest, "40 events ahead of the members in use"),
        ("pv", &image, "a member in slot 1 by its superblock;"),
    ] {
        fs::write(&members[0], &first).unwrap();
        let given = [members[0].clone(), group(&room, name, &[content])];
        let order = format!("`wattle add rot {name}-vg/lv0`");
        let scan = run([&["scan".to_owned()][..], &given].concat()).ok();
        assert!(scan.text().contains(&order) && scan.text().contains(told), "{}", scan.text());
        let serve = Serve::start(&room, &args, &given);
        assert!(serve.said.contains(&order) && serve.said.contains("not used"), "{}", serve.said);
        assert_eq!(serve.array()["slots"], "[U_]");
        let mut client = Client::connect(&serve.uri).unwrap();
        assert!(client.read(MIB, MIB as usize).unwrap() == [0x55; MIB as usize], "{name}");
        client.write(2 * MIB, &[0x66; 4096]).unwrap();
        client.flush().unwrap();
        drop(client);
        serve.stop();
        let kept = fs::read(&given[1]).unwrap();
        assert!(kept[MIB as usize..][..SIZE] == content[..], "the copy was written");
    }
    // The operator may take it in.
    let serve = Serve::start(&room, &args, &[members[0].clone(), room.name("pv")]);
    serve.command(&["add", "rot", "pv-vg/lv0"]).ok();
    serve.wait_until_good();
    serve.stop();
}
