//! Thin volumes, and pools that cannot be relied on or are a transaction behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Rig, SIZE_BYTES, noise, reseal, restored, splitmix64, stamp};
use wattle_control::Code;
use wattle_format::lvm::{SegmentKind, Vg};

/// Blocks of 64 KiB: 100 of the volume, at random places of the pool.
fn pool(transaction: u64) -> Option<(Vec<u8>, BTreeMap<usize, usize>)> {
    let mut random = 5;
    let mut places: Vec<usize> = (0..128).collect();
    (1..places.len()).rev().for_each(|at| places.swap(at, splitmix64(&mut random) as usize % (at + 1)));
    let blocks: Vec<usize> = (0..64).filter(|_| !splitmix64(&mut random).is_multiple_of(3)).collect();
    let mut description = format!(
        "<superblock uuid=\"\" time=\"0\" transaction=\"{transaction}\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"128\">\n\
         <device dev_id=\"7\" mapped_blocks=\"{}\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">\n",
        blocks.len()
    );
    let map: BTreeMap<_, _> = blocks.into_iter().zip(places).collect();
    for (block, place) in &map {
        writeln!(description, "<single_mapping origin_block=\"{block}\" data_block=\"{place}\" time=\"0\"/>")
            .unwrap();
    }
    description.push_str("</device>\n</superblock>\n");
    Some((restored("thin_restore", &[], &description)?, map))
}

fn thin_rig(metadata: &[u8], data: &[u8], origin: Option<&[u8]>, device_id: u64) -> Rig {
    let mut rig = Rig::new();
    rig.linear("pool_tmeta", false, 0, metadata);
    rig.linear("pool_tdata", false, 1, data);
    let (data, metadata) = ("pool_tdata".to_owned(), "pool_tmeta".to_owned());
    let kind = SegmentKind::ThinPool {
        data,
        metadata,
        transaction_id: 9,
        chunk_sectors: 128,
        zero_new_blocks: None,
    };
    rig.add("pool", true, 8, kind);
    if let Some(origin) = origin {
        rig.linear("outside", true, 0, origin);
    }
    let kind = SegmentKind::Thin {
        pool: "pool".to_owned(),
        transaction_id: 0,
        device_id,
        origin: None,
        external_origin: origin.map(|_| "outside".to_owned()),
        merge: None,
    };
    rig.add("thin", true, 4, kind);
    rig
}

#[test]
fn thin_volumes() {
    let Some((metadata, map)) = pool(9) else { return };
    let data = noise(11, 8 << 20);
    let block = 64 << 10;
    // The origin is shorter than the volume.
    for origin in [None, Some(noise(12, 3 << 20))] {
        let mut expected = origin.clone().unwrap_or_default();
        expected.resize(SIZE_BYTES, 0);
        for (at, from) in &map {
            expected[at * block..][..block].copy_from_slice(&data[from * block..][..block]);
        }
        let rig = thin_rig(&metadata, &data, origin.as_deref(), 7);
        rig.expect(&[0, 1], "thin", &expected);
        rig.refused(&[0, 1], "pool", Code::UnsupportedVolume, "thin-pool");
        rig.refused(&[1], "thin", Code::MissingPhysical, "pool_tmeta");
    }
}

/// The kernel sets the flag where it could not change the metadata, as on a pool that ran full.
/// What is on disk is the last transaction that it wrote whole.
#[test]
fn a_thin_pool_that_has_to_be_checked_is_read() {
    let Some((mut metadata, _)) = pool(9) else { return };
    let data = noise(11, 8 << 20);
    let (expected, notes) = thin_rig(&metadata, &data, None, 7).contents(&[0, 1], "thin").unwrap();
    assert_eq!(notes, Vec::<String>::new());
    metadata[4] |= 1;
    reseal(&mut metadata, 160_774);
    let (found, notes) = thin_rig(&metadata, &data, None, 7).contents(&[0, 1], "thin").unwrap();
    assert!(found == expected);
    assert!(notes.iter().any(|note| note.contains("has to be checked")), "{notes:?}");
}

/// The power failed between the text that speaks of a new volume and the message to the pool.
#[test]
fn a_thin_pool_that_was_not_told_yet_is_a_transaction_behind() {
    let Some((metadata, _)) = pool(8) else { return };
    let data = noise(11, 8 << 20);
    let (expected, _) = thin_rig(&pool(9).unwrap().0, &data, None, 7).contents(&[0, 1], "thin").unwrap();
    let rig = |metadata: &[u8], device_id: u64| {
        let mut rig = thin_rig(metadata, &data, None, device_id);
        let text = String::from_utf8(rig.vg.to_text(&stamp())).unwrap();
        let message = "chunk_size = 128\nmessage1 {\ncreate = \"thin\"\n}\n";
        let with_message = text.replacen("chunk_size = 128\n", message, 1);
        assert_ne!(text, with_message);
        rig.vg = Vg::parse(with_message.as_bytes()).unwrap();
        rig
    };
    rig(&metadata, 7).expect(&[0, 1], "thin", &expected);
    rig(&metadata, 8).refused(&[0, 1], "thin", Code::UnsupportedVolume, "was not told yet");
    rig(&pool(7).unwrap().0, 7).refused(&[0, 1], "thin", Code::DamagedVolume, "transaction 7");
}

#[test]
fn thin_pools_that_cannot_be_relied_on() {
    let Some((metadata, _)) = pool(9) else { return };
    let data = noise(11, 8 << 20);
    let refused = |metadata: &[u8], device_id: u64, why: &str| {
        thin_rig(metadata, &data, None, device_id).refused(&[0, 1], "thin", Code::DamagedVolume, why);
    };
    refused(&metadata, 8, "no volume 8");
    refused(&pool(10).unwrap().0, 7, "transaction 10");
    refused(&pool(8).unwrap().0, 7, "transaction 8");
    let mut short = metadata.clone();
    short[64..72].copy_from_slice(&1_u64.to_le_bytes());
    reseal(&mut short, 160_774);
    refused(&short, 7, "beyond the pool's data");
    // Every block but the superblock, and none of them right.
    let mut torn = metadata;
    torn[4096..].chunks_mut(4096).for_each(|block| block[100] ^= 1);
    refused(&torn, 7, "checksum");
}
