//! Limits against the figures that people reckon by hand.

use wattle_advise::limits::{self, By, Demand, DriveRates, Limit, Scheme, UniformArray};

/// An Intel X25-M G2.
const X25M: DriveRates = DriveRates {
    reads_per_second: 40_000.0,
    writes_per_second: 20_000.0,
    read_bytes_per_second: 250e6,
    write_bytes_per_second: 70e6,
    read_seconds: 65e-6,
    write_seconds: 85e-6,
    deferred_part: 0.0,
    rotational: false,
    turn: None,
};

/// A disk of 7200 turns a minute.
const DISK: DriveRates = DriveRates {
    reads_per_second: 150.0,
    writes_per_second: 150.0,
    read_bytes_per_second: 90e6,
    write_bytes_per_second: 90e6,
    read_seconds: 12e-3,
    write_seconds: 12e-3,
    deferred_part: 0.0,
    rotational: true,
    turn: None,
};

fn parity(members: u32, parities: u32) -> UniformArray {
    UniformArray { members, scheme: Scheme::Parity { parities }, chunk_bytes: 64 << 10, missing: 0 }
}

fn mirrored(members: u32, copies: u32, far: bool) -> UniformArray {
    UniformArray { scheme: Scheme::Mirrored { copies, far }, ..parity(members, 0) }
}

#[track_caller]
fn is(limit: &Limit, per_second: f64, formula: &str) {
    assert!((limit.per_second / per_second - 1.0).abs() < 1e-3, "{limit:?}, expected {per_second}");
    assert!(limit.formula.contains(formula), "{limit:?}, expected {formula}");
}

#[test]
fn random_writes_to_raid_5_are_as_operators_reckon_them() {
    for (members, per_second, formula) in [
        (3, 24_000.0, "N/((N-2)/R + 2/W) = 3/(1/40000 + 2/20000) = 24000"),
        (4, 26_666.7, "N/(2/R + 2/W) = 4/(2/40000 + 2/20000) = 26667"),
        (5, 33_333.3, "5/(2/40000 + 2/20000)"),
        (6, 40_000.0, "6/(2/40000 + 2/20000) = 40000"),
    ] {
        is(&limits::random_writes(&parity(members, 1), &X25M, 4096), per_second, formula);
    }
}

#[test]
fn random_writes_to_the_other_levels() {
    is(&limits::random_writes(&parity(8, 2), &X25M, 4096), 8.0 / (3.0 / 40e3 + 3.0 / 20e3), "N/(3/R + 3/W)");
    is(
        &limits::random_writes(&parity(4, 2), &X25M, 4096),
        4.0 / (1.0 / 40e3 + 3.0 / 20e3),
        "N/((N-3)/R + 3/W)",
    );
    is(&limits::random_writes(&mirrored(6, 2, false), &X25M, 4096), 60_000.0, "N x W / k = 6 x 20000 / 2");
    let striped = UniformArray { scheme: Scheme::Striped, ..parity(4, 0) };
    is(&limits::random_writes(&striped, &X25M, 4096), 80_000.0, "N x W = 4 x 20000");
}

#[test]
fn whole_stripes_need_no_reads() {
    let array = parity(5, 1);
    let limit = limits::random_writes(&array, &X25M, 256 << 10);
    // Four fifths of the drives' bandwidth.
    is(&limit, 4.0 * 70e6 / (256.0 * 1024.0), "0 reads");
    // Half a stripe is written twice over: as much again is read.
    let half = limits::random_writes(&array, &X25M, 128 << 10);
    assert!(half.per_second < 2.0 * limit.per_second && half.per_second > limit.per_second / 2.0, "{half:?}");
}

#[test]
fn reads_anywhere_use_every_drive() {
    is(&limits::random_reads(&parity(6, 1), &X25M, 4096), 240_000.0, "N x R = 6 x 40000");
    // What is missing is made of all others: half of what six could do.
    let degraded = UniformArray { missing: 1, ..parity(6, 1) };
    is(&limits::random_reads(&degraded, &X25M, 4096), 120_000.0, "5 x 40000 / 1.67");
    let degraded = UniformArray { missing: 1, ..parity(6, 2) };
    is(&limits::random_reads(&degraded, &X25M, 4096), 5.0 * 40e3 * 6.0 / 9.0, "(N-m) x R");
    // A mirror's half that is left has to do all of its reads.
    is(
        &limits::random_reads(&UniformArray { missing: 1, ..mirrored(6, 2, false) }, &X25M, 4096),
        120_000.0,
        "N/k x 1 x R",
    );
    is(
        &limits::random_reads(&UniformArray { missing: 1, ..mirrored(6, 2, true) }, &X25M, 4096),
        200_000.0,
        "(N-m) x R",
    );
}

#[test]
fn large_requests_are_bounded_by_bandwidth() {
    is(&limits::random_reads(&parity(4, 1), &X25M, 64 << 10), 4.0 * 250e6 / 65_536.0, "N x R");
    is(&limits::reads_in_sequence(&parity(4, 1), &X25M, 1 << 20), 4.0 * 250e6 / 1_048_576.0, "N x r / bs");
    is(
        &limits::writes_in_sequence(&parity(6, 1), &X25M, 1 << 20, 8),
        5.0 * 70e6 / 1_048_576.0,
        "(N-p) x w / bs",
    );
    is(
        &limits::writes_in_sequence(&mirrored(6, 2, true), &X25M, 1 << 20, 8),
        3.0 * 70e6 / 1_048_576.0,
        "N/k x w",
    );
}

#[test]
fn a_head_has_to_pass_over_what_it_does_not_read() {
    is(&limits::reads_in_sequence(&parity(4, 1), &DISK, 1 << 20), 3.0 * 90e6 / 1_048_576.0, "(N-p) x r");
    is(&limits::reads_in_sequence(&mirrored(4, 2, true), &DISK, 1 << 20), 4.0 * 90e6 / 1_048_576.0, "N x r");
    // The way there, and then the data.
    assert!((1.0 / DISK.reads_of(90e6 + 4096.0) - (1.0 / 150.0 + 1.0)).abs() < 1e-9);
}

#[test]
fn less_than_a_stripe_in_flight_writes_parity_more_than_once() {
    let array = parity(5, 1);
    // One request of a quarter of a chunk at a time: its parity each time.
    is(&limits::writes_in_sequence(&array, &X25M, 16 << 10, 1), 2.5 * 70e6 / 16_384.0, "N/2 x w");
    is(&limits::writes_in_sequence(&array, &X25M, 64 << 10, 2), 5.0 / 1.5 * 70e6 / 65_536.0, "N/1.5 x w");
    is(&limits::writes_in_sequence(&array, &X25M, 64 << 10, 4), 4.0 * 70e6 / 65_536.0, "(N-p) x w");
}

#[test]
fn few_requests_in_flight_cannot_keep_drives_busy() {
    let asked = Demand { random: true, read_part: 0.0, bytes: 4096, depth: 1 };
    let alone = limits::of(&parity(6, 1), &X25M, &asked);
    is(&alone, 1.0 / 150e-6, "D / time of one = 1 / 150 us");
    assert_eq!(alone.by, By::Depth);
    let deep = limits::of(&parity(6, 1), &X25M, &Demand { depth: 248, ..asked });
    assert_eq!((deep.by, deep.per_second.round() as u64), (By::Drives, 40_000));
    let read = limits::of(&parity(6, 1), &X25M, &Demand { read_part: 1.0, depth: 2, ..asked });
    is(&read, 2.0 / 65e-6, "2 / 65 us");
}

/// With less than two stripes in flight one is written after the other, and between them drives
/// have nothing to do.
#[test]
fn small_writes_in_sequence_leave_as_whole_stripes() {
    let asked = Demand { random: false, read_part: 0.0, bytes: 64 << 10, depth: 32 };
    let chunk_seconds = 85e-6 + 65_536.0 / 70e6 - 1.0 / 20e3;
    let one = limits::of(&parity(24, 1), &X25M, &asked);
    is(&one, 23.0 / chunk_seconds, "requests of whole stripes / time of one = 23 / 971.2 us");
    assert_eq!(one.by, By::Depth);
    let two = limits::of(&parity(12, 1), &X25M, &asked);
    is(&two, 11.0 * 70e6 / 65_536.0, "(N-p) x w");
}

/// Large reads are faster than from one drive; heads are not sent after parts of them.
#[test]
fn copies_share_a_large_read() {
    let asked = Demand { random: true, read_part: 1.0, bytes: 512 << 10, depth: 1 };
    let one = UniformArray { chunk_bytes: 0, ..mirrored(2, 2, false) };
    let half = 65e-6 + 262_144.0 / 250e6 - 1.0 / 40e3;
    is(&limits::of(&one, &X25M, &asked), 1.0 / half, "1 / 1089 us");
    let small = Demand { bytes: 256 << 10, ..asked };
    is(&limits::of(&one, &X25M, &small), 1.0 / half, "1 / 1089 us");
    let disks = limits::alone(&one, &DISK, 512 << 10, true, true);
    assert!((disks - (DISK.read_seconds + (524_288.0 - 4096.0) / 90e6)).abs() < 1e-9);
}

#[test]
fn a_mix_takes_its_parts_of_the_time() {
    let asked = Demand { random: true, read_part: 0.7, bytes: 4096, depth: 256 };
    let mixed = limits::of(&parity(6, 1), &X25M, &asked);
    is(&mixed, 1.0 / (0.7 / 240e3 + 0.3 / 40e3), "1/(0.7/240000 + 0.3/40000)");
}

#[test]
fn writes_with_a_member_missing() {
    let degraded = UniformArray { missing: 1, ..parity(6, 1) };
    let limit = limits::random_writes(&degraded, &X25M, 4096);
    is(&limit, 5.0 / (2.0 / 40e3 + 10.0 / 6.0 / 20e3), "5/(2/40000 + 1.67/20000)");
}

#[test]
fn a_rebuild_is_as_fast_as_the_slower_side() {
    is(&limits::rebuild(&X25M), 70e6, "min(70, 250) MB/s");
}

/// Two chunks of parity of 1 MiB are 2.8 turns of a track of 750 KB: whole turns are left out on
/// the way to the next chunk.
#[test]
fn heads_skip_parity_that_is_more_than_a_track() {
    let turn = limits::PlatterTurn { seconds: 1.0 / 120.0, seek_seconds: 1e-3 };
    let disk = DriveRates { turn: Some(turn), ..DISK };
    let array = |chunk_bytes, missing| UniformArray { chunk_bytes, missing, ..parity(8, 2) };
    // Less than a track passes under the head.
    is(&limits::reads_in_sequence(&array(256 << 10, 0), &disk, 4096), 6.0 * 90e6 / 4096.0, "(N-p) x r");
    let pass = (1_u64 << 20) as f64 / 90e6;
    let skip = (2.0 * pass) % (1.0 / 120.0);
    assert!(skip > 1e-3);
    let expected = 8.0 * 6.0 / (6.0 + skip / pass) * 90e6 / 4096.0;
    is(&limits::reads_in_sequence(&array(1 << 20, 0), &disk, 4096), expected, "(N-m) x (N-p)/(N-p+0.5");
    // With one missing, all but one of the others' chunks are read.
    let skip = pass % (1.0 / 120.0);
    let expected = 7.0 * 6.0 / (6.0 + skip / pass) * 90e6 / 4096.0;
    is(&limits::reads_in_sequence(&array(1 << 20, 1), &disk, 4096), expected, "(N-p)");
    is(&limits::reads_in_sequence(&array(1 << 20, 2), &disk, 4096), 6.0 * 90e6 / 4096.0, "(N-p) x r");
}

/// A drive that collects later answers sooner than it is at work for a write.
#[test]
fn what_is_collected_later_is_not_waited_for() {
    let asked = Demand { random: false, read_part: 0.0, bytes: 4096, depth: 1 };
    let array = UniformArray { scheme: Scheme::Striped, ..parity(4, 0) };
    let at_once = limits::of(&array, &X25M, &asked);
    is(&at_once, 1.0 / 85e-6, "D / time of one");
    let later = DriveRates { deferred_part: 0.2, ..X25M };
    is(&limits::of(&array, &later, &asked), 1.0 / (85e-6 - 0.2 * 50e-6), "D / time of one");
    // Of a large one bandwidth is what counts.
    let large = Demand { bytes: 64 << 10, ..asked };
    let at_work = 65536.0 / 70e6;
    let expected = 1.0 / (85e-6 + at_work - 50e-6 - 0.2 * at_work);
    is(&limits::of(&array, &later, &large), expected, "D / time of one");
}

/// 20,000 writes of 4 KiB a second are 82 MB/s, of a drive whose large writes are 70 MB/s.
#[test]
fn small_writes_in_sequence_are_what_is_stated_for_small_ones() {
    let writes = |array: &UniformArray, bytes| limits::writes_in_sequence(array, &X25M, bytes, 128);
    is(&writes(&mirrored(3, 3, false), 4096), 20_000.0, "N/k x W x bs / bs = 1 x 81.9 MB/s");
    is(&writes(&mirrored(3, 3, false), 8192), 70e6 / 8192.0, "N/k x w / bs");
    // Whole stripes are large writes, whatever they were gathered from.
    is(&writes(&parity(3, 1), 4096), 2.0 * 70e6 / 4096.0, "(N-p) x w / bs");
}
