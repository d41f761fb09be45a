//! The logical block size that superblocks state.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::support::real::{create, files, looked, on_a_core, request, run};
use wattle_control::create::CreateRequest;
use wattle_engine::geometry::Level;
use wattle_format::md::{Version, identify};
use wattle_rt::{Buf, BufMut, Durability};

const SIZE: u64 = 8 << 20;
const AT: u64 = 4096;

fn state(name: &str, block_bytes: Option<u32>, shorter_by_sectors: u64) {
    let file = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, AT).unwrap();
    let mut superblock = identify(Version::V12, &bytes, SIZE / 512).unwrap().unwrap();
    superblock.set_logical_block_size(block_bytes).unwrap();
    superblock.set_size_sectors(superblock.size_sectors() - shorter_by_sectors).unwrap();
    file.write_all_at(superblock.bytes(), AT).unwrap();
}

/// Hazard: images of drives of 4096 bytes, whose array states that, are served in blocks of 512: a
/// guest finds no partitions on it.
#[test]
fn clients_are_told_no_smaller_blocks_than_the_superblocks_state() {
    use Level::{Raid1, Raid5};
    let rows = [
        (Raid1, 0, 512, 512),
        (Raid1, 0, 2048, 2048),
        (Raid1, 0, 1 << 20, 4096),
        (Raid1, 0, 4095, 512),
        (Raid5, 0, 4096, 4096),
        // No block reaches past the end.
        (Raid1, 1, 4096, 512),
        (Raid1, 2, 4096, 1024),
    ];
    for (level, shorter_by_sectors, stated, told) in rows {
        let (_dir, names) = files(3, SIZE);
        create(&CreateRequest { assume_clean: true, ..request(level, looked(&names)) }).unwrap();
        // What one says is enough: a member that was added later may say nothing.
        for (ix, name) in names.iter().enumerate() {
            state(name, (ix == 1).then_some(stated), shorter_by_sectors);
        }
        on_a_core(async move |core| {
            let array = run(&core, &names).await;
            let volume = array.handle().volume().open(&core).unwrap();
            assert_eq!(volume.block_bytes(), told, "{level} {shorter_by_sectors} {stated}");
            // What is smaller is served all the same.
            let end = volume.size_bytes() - 512;
            volume.write(end, Buf::copy_of(&[7; 512]), Durability::Fua).await.unwrap();
            let (result, buf) = volume.read(end, BufMut::alloc(512)).await;
            result.unwrap();
            assert_eq!(&buf[..], [7; 512]);
            array.handle().stop(&core).await.unwrap();
        });
    }
}
