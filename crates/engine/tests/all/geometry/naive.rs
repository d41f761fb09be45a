//! The oracle: docs/formats.md §6 to §8 taken literally, one sector at a time, sharing nothing with
//! the code under test.

use wattle_engine::geometry::{Level, Params};

/// Slot and data sector.
pub type Place = (u64, u64);

/// The sector of the array at each index, with all its copies in md's order; parity is not in it.
pub fn places(params: &Params) -> Vec<Vec<Place>> {
    match params.level {
        Level::Linear => linear(params),
        Level::Raid0 => raid0(params),
        Level::Raid1 => (0..params.component_size.0)
            .map(|s| (0..u64::from(params.raid_disks)).map(|d| (d, s)).collect())
            .collect(),
        Level::Raid10 => (0..raid10_chunks(params) * params.chunk.0).map(|lba| raid10(params, lba)).collect(),
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            let rows = params.component_size.0 / params.chunk.0;
            (0..rows * parity_width(params) * params.chunk.0).map(|lba| vec![parity(params, lba)]).collect()
        }
    }
}

fn linear(params: &Params) -> Vec<Vec<Place>> {
    let chunk = params.chunk.0.max(1);
    let sizes = params.member_sizes.iter().map(|size| size.0 - size.0 % chunk);
    (0..).zip(sizes).flat_map(|(slot, size)| (0..size).map(move |sector| vec![(slot, sector)])).collect()
}

/// Lays chunk after chunk down, row by row over the members that are long enough; a zone ends where
/// their number changes.
fn raid0(params: &Params) -> Vec<Vec<Place>> {
    let chunk = params.chunk.0;
    let rows: Vec<u64> = params.member_sizes.iter().map(|size| size.0 / chunk).collect();
    let (mut chunks, mut zone_start, mut zone_width) = (Vec::new(), 0, 0);
    for row in 0..rows.iter().copied().max().unwrap_or(0) {
        let members: Vec<u64> =
            (0..).zip(&rows).filter(|&(_, &rows)| rows > row).map(|(slot, _)| slot).collect();
        if members.len() != zone_width {
            (zone_start, zone_width) = (chunks.len(), members.len());
        }
        for _ in 0..members.len() {
            let number = if params.layout == 1 { chunks.len() } else { chunks.len() - zone_start };
            chunks.push((members[number % members.len()], row * chunk));
        }
    }
    let mut sectors: Vec<_> = chunks
        .into_iter()
        .flat_map(|(slot, start)| (0..chunk).map(move |o| vec![(slot, start + o)]))
        .collect();
    let end: u64 = rows.iter().map(|rows| (rows * chunk) & !(chunk - 1)).sum();
    sectors.truncate(end as usize);
    sectors
}

fn raid10_copies(params: &Params) -> (u64, u64, bool, u32) {
    let word = params.layout;
    (u64::from(word & 0xff), u64::from(word >> 8 & 0xff), word >> 16 & 1 == 1, word >> 17)
}

fn raid10_chunks(params: &Params) -> u64 {
    let (nc, fc, ..) = raid10_copies(params);
    params.component_size.0 / params.chunk.0 / fc * u64::from(params.raid_disks) / nc
}

/// §7.2 and §7.3.
pub fn raid10(params: &Params, lba: u64) -> Vec<Place> {
    let (nc, fc, offset, mode) = raid10_copies(params);
    let (n, chunk) = (u64::from(params.raid_disks), params.chunk.0);
    let used = (raid10_chunks(params) * nc * fc).div_ceil(n);
    let stride = if offset { chunk } else { used / fc * chunk };
    let fss = [n, n / fc, nc * fc][mode as usize];
    let lfs = (n / fss - 1) * fss;
    let lfsz = fss + n % fss;
    let (c, o) = (lba / chunk * nc, lba % chunk);
    let (mut row, mut dev) = (c / n, c % n);
    if offset {
        row *= fc;
    }
    let mut sec = row * chunk + o;
    let mut places = Vec::new();
    for _ in 0..nc {
        places.push((dev, sec));
        let (mut d, mut a) = (dev, sec);
        for _ in 1..fc {
            let set = d / fss;
            d += nc;
            d = if n % fss != 0 && d > lfs { lfs + (d - lfs) % lfsz } else { d % fss + fss * set };
            a += stride;
            places.push((d, a));
        }
        dev += 1;
        if dev == n {
            dev = 0;
            sec += chunk;
        }
    }
    places
}

fn parity_width(params: &Params) -> u64 {
    u64::from(params.raid_disks) - if params.level == Level::Raid6 { 2 } else { 1 }
}

fn parity(params: &Params, lba: u64) -> Place {
    let (c, o) = (lba / params.chunk.0, lba % params.chunk.0);
    let (s, k) = (c / parity_width(params), c % parity_width(params));
    (parity_place(params, s, k).0, s * params.chunk.0 + o)
}

/// The tables of §6: slot of data block `k` of stripe `s`, of P, and of Q.
pub fn parity_place(params: &Params, s: u64, k: u64) -> (u64, u64, Option<u64>) {
    let n = u64::from(params.raid_disks);
    match params.level {
        Level::Raid4 => (k, n - 1, None),
        Level::Raid5 => {
            let (disk, p) = raid5(params.layout, n, s, k);
            (disk, p, None)
        }
        _ => raid6(params.layout, n, s, k),
    }
}

fn raid5(layout: u32, n: u64, s: u64, k: u64) -> (u64, u64) {
    let r = s % n;
    let after = |p: u64| if k >= p { k + 1 } else { k };
    match layout {
        0 => (after(n - 1 - r), n - 1 - r),
        1 => (after(r), r),
        2 => ((n - 1 - r + 1 + k) % n, n - 1 - r),
        3 => ((r + 1 + k) % n, r),
        4 => (k + 1, 0),
        5 => (k, n - 1),
        _ => unreachable!("no RAID 5 layout"),
    }
}

fn raid6(layout: u32, n: u64, s: u64, k: u64) -> (u64, u64, Option<u64>) {
    let r = s % n;
    let asymmetric = |p: u64| {
        let disk = if p == n - 1 { k + 1 } else { k + if k >= p { 2 } else { 0 } };
        (disk, p, Some((p + 1) % n))
    };
    let symmetric = |p: u64| ((p + 2 + k) % n, p, Some((p + 1) % n));
    match layout {
        0 => asymmetric(n - 1 - r),
        1 | 8 => asymmetric(r),
        2 => symmetric(n - 1 - r),
        3 => symmetric(r),
        4 => (k + 2, 0, Some(1)),
        5 => (k, n - 2, Some(n - 1)),
        9 => asymmetric(n - 1 - (s + 1) % n),
        10 => ((n - 1 - r + 1 + k) % n, n - 1 - r, Some((n - 1 - r + n - 1) % n)),
        16..=19 => {
            let (disk, p) = raid5(layout - 16, n - 1, s, k);
            (disk, p, Some(n - 1))
        }
        20 => (k + 1, 0, Some(n - 1)),
        _ => unreachable!("no RAID 6 layout"),
    }
}

/// The exponent of the data block on each slot of a RAID 6 stripe; `None` for P and Q.
pub fn exponents(params: &Params, s: u64) -> Vec<Option<u64>> {
    let n = u64::from(params.raid_disks);
    let (_, p, q) = parity_place(params, s, 0);
    let q = q.expect("RAID 6");
    let mut exponents = vec![None; n as usize];
    if matches!(params.layout, 8..=10) {
        for slot in (0..n).filter(|&slot| slot != p && slot != q) {
            exponents[slot as usize] = Some(slot);
        }
        return exponents;
    }
    let (mut slot, mut exponent) = ((q + 1) % n, 0);
    for _ in 0..n {
        if slot != p && slot != q {
            exponents[slot as usize] = Some(exponent);
            exponent += 1;
        }
        slot = (slot + 1) % n;
    }
    exponents
}
