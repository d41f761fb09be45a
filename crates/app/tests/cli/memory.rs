//! What a server needs of memory: the ceiling of the cache and what requests in flight take. Of the
//! array's size only the bitmap.

use crate::harness::{Room, Serve, run};

/// By so much two runs of the same differ: what the allocator keeps. A byte for each MiB of the
/// large array would be 36 MiB.
const SLACK_KIB: u64 = 8 << 10;

/// Most KiB that the server's memory ever was.
fn peak_kib(serve: &Serve) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serve.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Anywhere, many at once.
const RANDOM: &[&str] = &["--rw", "randrw", "--iodepth", "32", "--norandommap", "--force", "overwrite"];

/// Eight that read one thing after the other.
const SEQUENTIAL: &[&str] = &["--rw", "read", "--iodepth", "1", "--numjobs", "8"];

/// The peak of a server of four sparse files of this size under random reads and writes, and how
/// many bits its bitmap has.
fn peak_under_load(member_bytes: u64, bitmap: &str, set: &str) -> (u64, u64) {
    peak_under(RANDOM, member_bytes, bitmap, set)
}

fn peak_under(load: &[&str], member_bytes: u64, bitmap: &str, set: &str) -> (u64, u64) {
    // Blocks that are written all over a huge file are slow to reach a disk.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let room = Room { dir };
    let members = room.blank(4, member_bytes);
    let create = ["create", "data", "--level", "5", "--chunk", "64K", "--assume-clean", "--bitmap", bitmap];
    run(create.map(str::to_owned).into_iter().chain(members.clone())).ok();
    let serve = Serve::start(&room, &["--cores", "1", "--set", set], &members);
    let time = ["--cores", "1", "--ramp-time", "100ms", "--runtime", "400ms", "--rounds", "1"];
    serve.command(&[&["bench", "data"], load, &time].concat()).ok();
    let bits = serve.array()["bitmap"]["bits"].as_u64().unwrap_or(0);
    let peak = peak_kib(&serve);
    serve.stop();
    (peak, bits)
}

#[test]
fn memory_does_not_grow_with_the_array_but_for_its_bitmap() {
    const NO_CACHE: &str = "stripe_cache_size=0";
    let (small, _) = peak_under_load(64 << 20, "none", NO_CACHE);
    let (large, _) = peak_under_load(12 << 40, "none", NO_CACHE);
    assert!(large < small + SLACK_KIB, "{large} KiB of 36 TiB, {small} KiB of 192 MiB");
    let (mapped, bits) = peak_under_load(12 << 40, "internal", NO_CACHE);
    eprintln!("KiB: {small} of 192 MiB, {large} of 36 TiB, {mapped} with a bitmap of {bits} bits");
    assert!(bits > 100_000 && mapped < small + SLACK_KIB + bits * 100 / 1024, "{mapped} KiB, {bits} bits");
}

#[test]
fn memory_stays_below_the_ceiling_of_the_cache_and_a_constant() {
    let (none, _) = peak_under_load(16 << 20, "none", "stripe_cache_size=0");
    let (some, _) = peak_under_load(16 << 20, "none", "stripe_cache_size=16M");
    eprintln!("KiB: {none} without a cache, {some} with one of at most 16 MiB");
    // Marks of rows are four times four bytes for each page.
    assert!(
        some < none + (16 << 10) * 257 / 256 + SLACK_KIB,
        "{some} KiB with a cache of 16 MiB, {none} KiB without"
    );
    // Buffers of requests, the program itself, and what the allocator keeps.
    assert!(none < 64 << 10, "{none} KiB");
}

#[test]
fn what_is_read_ahead_is_bounded() {
    let (random, _) = peak_under_load(64 << 20, "none", "stripe_cache_size=0");
    let (ahead, _) = peak_under(SEQUENTIAL, 64 << 20, "none", "stripe_cache_size=0");
    eprintln!("KiB: {random} of random requests, {ahead} of eight clients that read in sequence");
    assert!(ahead < random + (16 << 10) + SLACK_KIB, "{ahead} KiB against {random} KiB");
}
