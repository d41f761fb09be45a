//! A RAID 5 with a partial parity log that died in the middle of a write, and lacks a member: it is
//! read as a start would have left it, and nothing is written.

use crate::support::real;
use wattle_control::create::Consistency;
use wattle_control::members::MemberAccess;
use wattle_control::scan::scan;
use wattle_control::{Check, Forced, start};
use wattle_engine::geometry::Level;
use wattle_format::md::ppl::{self, PplEntry};
use wattle_format::md::{Superblock, Version, identify};
use wattle_rt::{Buf, BufMut, Durability};

const MEMBERS: usize = 4;
const CHUNK: usize = 64 << 10;
const PAGE: usize = 4096;
/// Of the first stripe its parity is in the last slot, its data in the others.
const PARITY: usize = 3;

fn noise(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + (at >> 9) * 31 + (at >> 12) + seed * 89) as u8).collect()
}

fn superblock(image: &[u8]) -> Superblock {
    identify(Version::V12, &image[4096..8192], image.len() as u64 / 512).unwrap().unwrap()
}

/// The members of such an array after a write to the second block of its first stripe reached the
/// log and the block, and not the parity; and what the array holds.
fn crashed() -> (tempfile::TempDir, Vec<String>, Vec<Vec<u8>>, Vec<u8>) {
    let (dir, names) = real::files(MEMBERS, 4 << 20);
    let request = wattle_control::create::CreateRequest {
        consistency: Consistency::Ppl,
        ..real::request(Level::Raid5, real::looked(&names))
    };
    real::create(&request).unwrap();
    drop(request);
    let (given, len) = (names.clone(), 3 * CHUNK);
    real::on_a_core(async move |core| {
        let running = real::run(&core, &given).await;
        let volume = running.handle().volume().open(&core).unwrap();
        volume.write(0, Buf::copy_of(&noise(1, len)), Durability::Fua).await.unwrap();
        running.stop().await.unwrap();
    });
    let mut images: Vec<_> = names.iter().map(|name| std::fs::read(name).unwrap()).collect();
    let mut content = noise(1, len);
    let (start, new) = (CHUNK, noise(2, PAGE));
    content[start..start + PAGE].copy_from_slice(&new);
    let data = superblock(&images[0]).data_offset_sectors() as usize * 512;
    images[1][data..data + PAGE].copy_from_slice(&new);
    let partial: Vec<u8> =
        images[0][data..data + PAGE].iter().zip(&images[2][data..data + PAGE]).map(|(a, b)| a ^ b).collect();
    for (slot, image) in images.iter_mut().enumerate() {
        let mut found = superblock(image);
        let area = found.ppl().unwrap();
        let at = found.sector_from_superblock(i32::from(area.offset_sectors)).unwrap() as usize * 512;
        let entry = PplEntry {
            data_sector: (CHUNK / 512) as u64,
            pp_bytes: PAGE as u32,
            data_bytes: PAGE as u32,
            parity_disk: PARITY as u32,
            checksum: ppl::partial_checksum([&partial[..]]),
        };
        let entries = if slot == PARITY { vec![entry] } else { Vec::new() };
        let header = ppl::Header { generation: 5, entries };
        image[at..at + area.size_sectors as usize * 512].fill(0);
        image[at..at + PAGE].copy_from_slice(&header.encode(&found.stored_uuid())[..]);
        image[at + PAGE..at + 2 * PAGE].copy_from_slice(&partial);
        found.set_resync_offset(0);
        image[4096..4096 + found.bytes().len()].copy_from_slice(found.bytes());
    }
    for (name, image) in names.iter().zip(&images) {
        std::fs::write(name, image).unwrap();
    }
    (dir, names, images, content)
}

#[test]
fn parity_that_was_in_flight_is_made_in_memory() {
    let (_dir, names, images, content) = crashed();
    // Without the block that was being written nothing tells what it was to be.
    for missing in [None, Some(0), Some(2), Some(PARITY)] {
        for forced in [Forced::default(), Forced::default().with(Check::DirtyDegraded)] {
            let left = names.iter().enumerate().filter(|(slot, _)| Some(*slot) != missing);
            let left: Vec<_> = left.map(|(_, name)| name.clone()).collect();
            let len = content.len();
            let read = real::on_a_core(async move |core| {
                let found = scan(MemberAccess::local().look_all(&left).unwrap(), forced).unwrap();
                let claimed = start::claim(&found, found.find(None).unwrap(), true).unwrap();
                let started = claimed.launch(&core).await.unwrap();
                let volume = started.handle.volume().open(&core).unwrap();
                let (result, bytes) = volume.read(0, BufMut::alloc(len)).await;
                result.unwrap();
                started.handle.stop(&core).await.unwrap();
                bytes.to_vec()
            });
            assert!(read == content, "without {missing:?}, {forced:?}");
        }
    }
    for (name, image) in names.iter().zip(&images) {
        assert!(std::fs::read(name).unwrap() == *image, "{name} was written");
    }
}
