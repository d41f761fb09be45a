use super::*;
use crate::lease::words::LeaseWords;

const MIB: usize = 1 << 20;

/// For stripes of five blocks of 64 KiB.
fn cache(ceiling_bytes: usize) -> CleanCache {
    let tuning = CacheTuning { bytes_max: ceiling_bytes, ..CacheTuning::default() };
    CleanCache::new(tuning, Arc::new(LeaseWords::new(1)), CoreIx(0), 5, 64 << 10)
}

/// A core that only sleeps.
fn asleep() -> Spent {
    Spent::default()
}

fn page(byte: u8) -> Buf {
    Buf::copy_of(&[byte; PAGE_BYTES])
}

fn held(cache: &CleanCache, stripe: u64, block: usize, page: u64) -> Option<u8> {
    cache.get(cache.key(StripeNo(stripe), block, page)).map(|page| page[0])
}

/// A write of a part of a row, of which one block is kept.
fn write(cache: &CleanCache, stripe: u64) -> bool {
    let key = cache.key(StripeNo(stripe), 0, 0);
    let hit = cache.get(key).is_some();
    cache.take_out(key);
    if cache.row_used(StripeNo(stripe), 0, hit, !hit, asleep) {
        cache.put(key, &page(1));
    }
    hit
}

#[test]
fn what_was_put_in_is_there_until_it_is_taken_out() {
    let cache = cache(MIB);
    assert!(!cache.row_used(StripeNo(7), 3, false, true, asleep), "the first time leaves a mark");
    assert!(cache.row_used(StripeNo(7), 3, false, true, asleep), "the second time is kept");
    assert!(cache.row_used(StripeNo(8), 3, true, true, asleep), "and so are streams");
    let key = |stripe, block, page| cache.key(StripeNo(stripe), block, page);
    for (block, byte) in [(0, 10), (4, 14)] {
        cache.put(key(7, block, 3), &page(byte));
    }
    cache.put(key(8, 0, 3), &page(20));
    assert!(cache.may_hold(StripeNo(7)) && cache.may_hold(StripeNo(8)));
    assert_eq!(
        [held(&cache, 7, 0, 3), held(&cache, 7, 4, 3), held(&cache, 7, 4, 2)],
        [Some(10), Some(14), None]
    );
    cache.put(key(7, 4, 3), &page(15));
    cache.take_out(key(7, 0, 3));
    assert_eq!(
        [held(&cache, 7, 0, 3), held(&cache, 7, 4, 3), held(&cache, 8, 0, 3)],
        [None, Some(15), Some(20)]
    );
    cache.take_out_stripe(StripeNo(7));
    assert!(!cache.may_hold(StripeNo(7)));
    assert_eq!([held(&cache, 7, 4, 3), held(&cache, 8, 0, 3)], [None, Some(20)]);
    cache.clear();
    assert_eq!((held(&cache, 8, 0, 3), cache.status().active_bytes), (None, 0));
    assert!(!cache.may_hold(StripeNo(8)));
}

/// No two pages of an array share a number.
#[test]
fn numbers_are_unique() {
    let cache = cache(MIB);
    let all = (0..4)
        .flat_map(|stripe| (0..5).flat_map(move |block| (0..16).map(move |page| (stripe, block, page))));
    let keys: std::collections::BTreeSet<u64> =
        all.map(|(stripe, block, page)| cache.key(StripeNo(stripe), block, page).0).collect();
    assert_eq!((keys.len(), keys.contains(&0)), (4 * 5 * 16, false));
}

/// What is cut from a large buffer would keep all of it.
#[test]
fn a_page_keeps_a_page_of_memory() {
    let cache = cache(MIB);
    cache.row_used(StripeNo(0), 0, true, true, asleep);
    let large = Buf::copy_of(&vec![5; MIB]);
    cache.put(cache.key(StripeNo(0), 0, 0), &large.slice(8192..8192 + PAGE_BYTES));
    let kept = cache.get(cache.key(StripeNo(0), 0, 0)).expect("it was put in");
    assert_eq!((kept.capacity_bytes(), kept[0]), (PAGE_BYTES, 5));
}

#[test]
fn it_grows_while_rows_come_again_and_never_beyond_its_ceiling() {
    let cache = cache(4 * MIB);
    let round = |stripes: u64| (0..stripes).filter(|&stripe| write(&cache, stripe)).count();
    let rounds = |rounds, stripes| (0..rounds).map(|_| round(stripes)).max();
    // More than fits into half of the ceiling.
    assert!(rounds(60, 600) > Some(450), "{:?}", cache.status());
    let status = cache.status();
    assert_eq!((status.size_bytes, status.ceiling_bytes), (4 << 20, 4 << 20));
    assert!(status.active_bytes > 3 << 19 && status.active_bytes <= 4 << 20, "{status:?}");
    let growth = status.growth.expect("it grew");
    assert!(growth.to_bytes == 2 * growth.from_bytes && growth.again * GROW_AT >= growth.rows, "{growth:?}");
    // Ten times as much.
    rounds(10, 9000);
    assert!(cache.status().size_bytes == 4 << 20 && cache.status().active_bytes <= 4 << 20);
}

#[test]
fn another_ceiling_holds_at_once() {
    let cache = cache(MIB);
    let round = |stripes: u64| (0..stripes).filter(|&stripe| write(&cache, stripe)).count();
    let rounds = |rounds, stripes| (0..rounds).map(|_| round(stripes)).max();
    assert!(rounds(4, 100) > Some(80) && cache.status().active_bytes > 0);
    // As much as its first size is no multiple of.
    cache.set_bytes_max(5 * MIB);
    assert_eq!((round(100), cache.status().growth), (0, None), "it begins anew");
    let most = rounds(60, 1000);
    let status = cache.status();
    assert!((status.size_bytes, status.ceiling_bytes) == (5 << 20, 5 << 20), "{status:?}");
    assert!(most > Some(600), "{status:?}");
    cache.set_bytes_max(MIB / 2);
    rounds(60, 1000);
    assert!(cache.status().size_bytes <= 1 << 19, "{:?}", cache.status());
    cache.set_bytes_max(0);
    assert_eq!((round(10), round(10), cache.status().size_bytes), (0, 0, 0));
}

/// Writes all over a large array neither make it larger nor push out what is used again and again.
#[test]
#[cfg_attr(miri, ignore = "50,000 writes")]
fn a_flood_leaves_it_as_it_was() {
    let cache = cache(64 * MIB);
    let hot = || (0..100).filter(|&stripe| write(&cache, stripe)).count();
    (0..20).map(|_| hot()).for_each(|hits| assert!(hits == 0 || hits == 100));
    for flood in 0..50_000u64 {
        write(&cache, 1000 + flood * 7);
        if flood % 50 == 0 {
            write(&cache, flood / 50 % 100);
        }
    }
    let hits = hot();
    let status = cache.status();
    assert!(hits == 100 && status.size_bytes == 1 << 20 && status.evictions == 0, "{hits} {status:?}");
}

#[test]
fn with_no_room_nothing_is_kept() {
    let cache = cache(PAGE_BYTES);
    assert!(!cache.row_used(StripeNo(0), 0, true, true, asleep));
    cache.put(cache.key(StripeNo(0), 0, 0), &page(1));
    assert!(!cache.may_hold(StripeNo(0)) && !cache.has(cache.key(StripeNo(0), 0, 0)));
    assert_eq!(cache.status(), CacheStatus::default());
}
