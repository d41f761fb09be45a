//! Compares redundancy with data, straight from the drives: what a resync would find.

use wattle_engine::geometry::LevelKind;
use wattle_engine::units::{MemberIx, MemberSet, Sector, StripeNo};
use wattle_parity::naive;

use crate::site::SitePlan;

/// Checks that every stripe's parity is right and all copies agree, as far as the members `in_sync`
/// tell. With `durable`, as a power cut would leave them. Stripes with sectors that cannot be read
/// are left out.
///
/// # Errors
/// The first place where they do not.
pub fn check(plan: &SitePlan, in_sync: MemberSet, durable: bool) -> Result<(), String> {
    match plan.geometry.kind() {
        LevelKind::Striped => Ok(()),
        LevelKind::Mirrored => check_copies(plan, in_sync, durable),
        LevelKind::Parity if in_sync.len() < plan.geometry.raid_disks() => Ok(()),
        LevelKind::Parity => {
            (0..plan.geometry.stripes()).try_for_each(|stripe| check_stripe(plan, StripeNo(stripe), durable))
        }
    }
}

/// Makes parity and copies agree with the data, as a resync does: from the data blocks, or the
/// first copy.
pub fn resync(plan: &SitePlan) {
    match plan.geometry.kind() {
        LevelKind::Striped => {}
        LevelKind::Mirrored => each_run(plan, |copies, len| {
            let data = plan.data(copies[0].0, copies[0].1, len, false);
            for (member, sector) in &copies[1..] {
                plan.control_in(*member).poke((plan.data_offset + sector) * 512, &data);
            }
        }),
        LevelKind::Parity => {
            for stripe in (0..plan.geometry.stripes()).map(StripeNo) {
                let map = plan.geometry.stripe(stripe);
                let [p, q] = parity(plan, stripe, false);
                let at = (plan.data_offset + map.member_sector.0) * 512;
                plan.control_in(map.p()).poke(at, &p);
                if let Some(member) = map.q() {
                    plan.control_in(member).poke(at, &q);
                }
            }
        }
    }
}

fn check_stripe(plan: &SitePlan, stripe: StripeNo, durable: bool) -> Result<(), String> {
    let map = plan.geometry.stripe(stripe);
    let (at, len) = (map.member_sector.0, plan.geometry.chunk().0);
    if plan.slots().any(|slot| plan.unreadable(slot, at, len)) {
        return Ok(());
    }
    let [p, q] = parity(plan, stripe, durable);
    let holds = |member: MemberIx| plan.data(member, at, len, durable);
    if holds(map.p()) != p {
        return Err(format!("stripe {stripe}: P on member {} does not fit the data", map.p()));
    }
    match map.q() {
        Some(member) if holds(member) != q => {
            Err(format!("stripe {stripe}: Q on member {member} does not fit the data"))
        }
        _ => Ok(()),
    }
}

/// P and Q of a stripe's data.
fn parity(plan: &SitePlan, stripe: StripeNo, durable: bool) -> [Vec<u8>; 2] {
    let map = plan.geometry.stripe(stripe);
    let (at, len) = (map.member_sector.0, plan.geometry.chunk().0);
    let data: Vec<(u8, Vec<u8>)> = (0..map.data_blocks())
        .map(|block| {
            let exponent = if map.q().is_some() { map.exponent(block) } else { 0 };
            (exponent, plan.data(map.data_member(block), at, len, durable))
        })
        .filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0))
        .collect();
    let sources: Vec<(u8, &[u8])> = data.iter().map(|(exponent, bytes)| (*exponent, &bytes[..])).collect();
    let bytes = (len * 512) as usize;
    let (mut p, mut q) = (vec![0; bytes], vec![0; bytes]);
    naive::p(&mut p, &sources);
    if map.q().is_some() && !sources.is_empty() {
        naive::q(&mut q, &sources);
    }
    [p, q]
}

fn check_copies(plan: &SitePlan, in_sync: MemberSet, durable: bool) -> Result<(), String> {
    let mut wrong = Ok(());
    each_run(plan, |copies, len| {
        let usable = copies
            .iter()
            .filter(|(member, sector)| in_sync.contains(*member) && !plan.unreadable(*member, *sector, len));
        let mut usable =
            usable.map(|(member, sector)| (member, sector, plan.data(*member, *sector, len, durable)));
        let Some((first, _, data)) = usable.next() else { return };
        for (member, sector, other) in usable {
            if other != data && wrong.is_ok() {
                wrong = Err(format!(
                    "members {first} and {member} differ from data sector {sector} on, {len} sectors"
                ));
            }
        }
    });
    wrong
}

/// Calls `f` with the places of all copies of each run of sectors, and its length.
fn each_run(plan: &SitePlan, mut f: impl FnMut(&[(MemberIx, u64)], u64)) {
    let end = plan.geometry.array_sectors();
    let mut at = Sector(0);
    while at < end {
        let copies = plan.geometry.copies(at);
        let len = copies.run.min(end - at);
        let places: Vec<_> = copies.iter().map(|copy| (copy.member, copy.sector.0)).collect();
        f(&places, len.0);
        at += len;
    }
}
