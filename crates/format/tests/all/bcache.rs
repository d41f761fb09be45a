//! Parts of a cache's metadata that are made here: fields in their places, and damage that is told.

use wattle_format::bcache::{
    BcacheKey, BcacheNode, BcachePointer, CacheDamage, CacheLayout, GenerationPage, Generations,
    JournalPlace, is_newer, seal_entry, seal_generations, seal_set,
};

const LAYOUT: CacheLayout = CacheLayout {
    set_magic: 0x0123_4567_89ab_cdef,
    device: 0,
    bucket_sectors: 8,
    buckets: 3000,
    first_bucket: 2,
    journal_buckets: 4,
    block_bytes: 512,
    is_synced: true,
    discards: false,
};
const POINTER: BcachePointer = BcachePointer { device: 0, sector: 80, generation: 3, word: 80 << 8 | 3 };

/// The words of a key with a pointer.
fn key(inode: u64, start: u64, sectors: u64, at: u64, is_dirty: bool) -> Vec<u8> {
    let high = 1 << 63 | 1 << 60 | u64::from(is_dirty) << 36 | sectors << 20 | inode;
    [high, start + sectors, at << 8 | 9].iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
}

/// A head with these keys behind it, in whole blocks.
fn part(head_bytes: usize, seq: u64, keys: &[Vec<u8>]) -> Vec<u8> {
    let keys = keys.concat();
    let mut bytes = vec![0; head_bytes];
    bytes[16..24].copy_from_slice(&seq.to_le_bytes());
    bytes[24..28].copy_from_slice(&1_u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&(keys.len() as u32 / 8).to_le_bytes());
    bytes.extend(keys);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A node of 4 KiB with two sets.
fn node() -> Vec<u8> {
    let mut first = part(32, 77, &[key(1, 0, 8, 100, true), key(1, 8, 8, 200, false)]);
    let mut second = part(32, 77, &[key(1, 4, 8, 300, true)]);
    seal_set(&LAYOUT, POINTER, &mut first);
    seal_set(&LAYOUT, POINTER, &mut second);
    let mut bytes = [first, second].concat();
    bytes.resize(4096, 0);
    bytes
}

#[test]
fn fields_of_keys_are_where_they_belong() {
    let bytes = node();
    let node = BcacheNode::parse(&LAYOUT, POINTER, &bytes).unwrap();
    let sets: Vec<_> = node.sets().iter().map(|set| BcacheNode::keys_of(set).unwrap()).collect();
    assert_eq!(sets.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    let (at_bytes, found) = sets[1][0];
    assert_eq!(at_bytes, 512 + 32);
    assert_eq!(
        found,
        BcacheKey {
            inode: 1,
            end_sector: 12,
            sectors: 8,
            is_dirty: true,
            pointer: Some(BcachePointer { device: 0, sector: 300, generation: 9, word: 300 << 8 | 9 }),
        }
    );
    assert!(!sets[0][1].1.is_dirty);
    // Sectors 300 to 308 lie in two buckets, 200 to 208 in one.
    assert!(LAYOUT.bucket_of(&found).is_err());
    assert_eq!(LAYOUT.bucket_of(&sets[0][1].1), Ok(25));
}

#[test]
fn every_bit_of_a_node_that_counts_is_checked() {
    let whole = node();
    let used = 32 + 48..512;
    for at in (0..1024 - 512 + 32 + 24).filter(|at| !used.contains(at)) {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(BcacheNode::parse(&LAYOUT, POINTER, &bytes).is_err(), "bit {bit} of byte {at}");
        }
    }
    // Reached by a pointer of another generation, it is what was there before.
    let other = BcachePointer { word: POINTER.word + 1, ..POINTER };
    let found = BcacheNode::parse(&LAYOUT, other, &whole);
    assert!(matches!(found, Err(CacheDamage::Checksum { .. })));
}

#[test]
fn every_bit_of_an_entry_is_checked() {
    let mut whole = part(240, 5, &[key(1, 0, 8, 100, true)]);
    seal_entry(&LAYOUT, &mut whole);
    let JournalPlace::Whole(entry) = JournalPlace::look(&LAYOUT, &whole) else { panic!("it is whole") };
    assert_eq!((entry.seq, entry.keys.len(), entry.len_bytes), (5, 1, 264));
    for at in 0..264 {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let found = JournalPlace::look_closely(&LAYOUT, &bytes);
            assert!(matches!(found, JournalPlace::Damaged { .. }), "bit {bit} of byte {at}");
        }
    }
    assert_eq!(JournalPlace::look_closely(&LAYOUT, &[7; 4096]), JournalPlace::Nothing);
}

#[test]
fn generations_go_round() {
    assert!(is_newer(1, 0) && is_newer(0, 255) && is_newer(128, 0));
    assert!(!is_newer(0, 0) && !is_newer(0, 1) && !is_newer(129, 0));
    let mut bytes = vec![0; 4096];
    bytes[32..40].copy_from_slice(&55_u64.to_le_bytes());
    bytes[40 + 3 * 7 + 2] = 250;
    seal_generations(&LAYOUT, &mut bytes);
    let page = GenerationPage::parse(&LAYOUT, &bytes).unwrap();
    assert_eq!(page.next_bucket, 55);
    let mut generations = Generations::default();
    // A page has (4096 - 40) / 3 of 3000.
    let whole: Vec<_> = (0..3).map(|_| generations.add(&LAYOUT, &page)).collect();
    assert_eq!(whole, [false, false, true]);
    assert!(generations.is_stale(7, 249) && !generations.is_stale(7, 250) && generations.is_stale(3000, 0));
    generations.raise(7, 2);
    assert!(generations.is_stale(7, 250) && !generations.is_stale(7, 2));
    generations.raise(7, 1);
    assert!(!generations.is_stale(7, 2));
    bytes[100] ^= 1;
    assert!(matches!(GenerationPage::parse(&LAYOUT, &bytes), Err(CacheDamage::Checksum { .. })));
}
