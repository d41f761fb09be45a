//! Extents for volumes: in one piece where there is one, stripes on physical volumes of their own,
//! never on what is in use.

use std::ops::Range;

use thiserror::Error;
use wattle_format::lvm::Vg;
use wattle_format::lvm::segment::Stripe;

/// Extents that lie one after the other on each stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentRun {
    /// How many each stripe has.
    pub extents_each: u64,
    /// Where they start.
    pub stripes: Vec<Stripe>,
}

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// How many stripes.
    pub stripes: usize,
    /// Extents of each.
    pub extents_each: u64,
    /// Only on these physical volumes, by their names in the text; empty for all.
    pub on: &'a [String],
    /// Best behind these: the first extents after the volume that grows.
    pub follow: &'a [Stripe],
}

/// There are not so many extents, or not on so many physical volumes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{wanted} extents are wanted, {free} are free on {physical} physical volumes, the largest run has {largest}"
)]
pub struct NoRoom {
    /// In all stripes.
    pub wanted: u64,
    /// Free ones that may be used.
    pub free: u64,
    /// How many physical volumes have any.
    pub physical: usize,
    /// The longest run of them.
    pub largest: u64,
}

/// Finds extents, the fewest pieces first.
///
/// # Errors
/// [`NoRoom`].
pub fn allocate(vg: &Vg, want: Want<'_>) -> Result<Vec<ExtentRun>, NoRoom> {
    let mut free = free(vg, want.on);
    let no_room = no_room(&free, want);
    let mut left = want.extents_each;
    let mut pieces = Vec::new();
    if let Some(piece) = following(&free, want) {
        take(&mut free, &piece);
        left -= piece.extents_each;
        pieces.push(piece);
    }
    while left > 0 {
        let piece = next_piece(&free, want.stripes, left).ok_or_else(|| no_room.clone())?;
        take(&mut free, &piece);
        left -= piece.extents_each;
        pieces.push(piece);
    }
    Ok(pieces)
}

/// How many extents may be used: the operator's `%FREE`.
#[must_use]
pub fn free_extents(vg: &Vg, on: &[String]) -> u64 {
    free(vg, on).iter().flat_map(|(_, runs)| runs).map(len).sum()
}

/// How many extents each of `stripes` stripes can have.
#[must_use]
pub fn free_extents_each(vg: &Vg, on: &[String], stripes: usize) -> u64 {
    let mut free = free(vg, on);
    let mut each = 0;
    while let Some(piece) = next_piece(&free, stripes, u64::MAX) {
        take(&mut free, &piece);
        each += piece.extents_each;
    }
    each
}

/// Runs of free extents of a physical volume.
type Free = (String, Vec<Range<u64>>);

fn len(run: &Range<u64>) -> u64 {
    run.end - run.start
}

fn free(vg: &Vg, on: &[String]) -> Vec<Free> {
    let allocatable = vg.pvs.iter().filter(|pv| pv.status.iter().any(|word| word == "ALLOCATABLE"));
    let meant = allocatable.filter(|pv| on.is_empty() || on.contains(&pv.name));
    meant.map(|pv| (pv.name.clone(), vg.free_extents(&pv.name))).collect()
}

fn no_room(free: &[Free], want: Want<'_>) -> NoRoom {
    let runs = || free.iter().flat_map(|(_, runs)| runs).map(len);
    NoRoom {
        wanted: want.extents_each.saturating_mul(want.stripes as u64),
        free: runs().sum(),
        physical: free.iter().filter(|(_, runs)| !runs.is_empty()).count(),
        largest: runs().max().unwrap_or(0),
    }
}

/// What is free right behind the volume.
fn following(free: &[Free], want: Want<'_>) -> Option<ExtentRun> {
    if want.follow.len() != want.stripes || want.stripes == 0 {
        return None;
    }
    let behind = |stripe: &Stripe| {
        let (_, runs) = free.iter().find(|(pv, _)| *pv == stripe.name)?;
        runs.iter().find(|run| run.start == stripe.extent).map(len)
    };
    let there = want.follow.iter().map(behind).collect::<Option<Vec<_>>>()?;
    let extents_each = there.into_iter().min()?.min(want.extents_each);
    Some(ExtentRun { extents_each, stripes: want.follow.to_vec() })
}

/// The first physical volumes with a run for all that is left, of each the smallest one that does;
/// or else those with the largest runs.
fn next_piece(free: &[Free], stripes: usize, left: u64) -> Option<ExtentRun> {
    let smallest = |(pv, runs): &Free| {
        let fitting = runs.iter().filter(|run| len(run) >= left);
        fitting.min_by_key(|run| (len(run), run.start)).map(|run| (pv.clone(), run.clone()))
    };
    let mut chosen: Vec<_> = free.iter().filter_map(smallest).take(stripes).collect();
    if chosen.len() < stripes {
        let largest = |(pv, runs): &Free| {
            // Of equal ones the first.
            let run = runs.iter().rev().max_by_key(|run| len(run))?;
            Some((pv.clone(), run.clone()))
        };
        chosen = free.iter().filter_map(largest).collect();
        chosen.sort_by_key(|(_, run)| std::cmp::Reverse(len(run)));
        chosen.truncate(stripes);
    }
    if chosen.len() < stripes {
        return None;
    }
    let extents_each = chosen.iter().map(|(_, run)| len(run)).min()?.min(left);
    let stripes = chosen.into_iter().map(|(name, run)| Stripe { name, extent: run.start }).collect();
    Some(ExtentRun { extents_each, stripes })
}

fn take(free: &mut [Free], piece: &ExtentRun) {
    for stripe in &piece.stripes {
        let Some((_, runs)) = free.iter_mut().find(|(pv, _)| *pv == stripe.name) else { continue };
        if let Some(run) = runs.iter_mut().find(|run| run.start == stripe.extent) {
            run.start += piece.extents_each;
        }
        runs.retain(|run| !run.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_format::lvm::{Id, Lv, LvSegment, Pv, Stamp};

    /// Two physical volumes of 100 extents and one of 20; of the first 10..30 and 40..50 are in
    /// use.
    fn vg() -> Vg {
        let id = |n| Id::from_random([n; 32]);
        let mut vg = Vg::new("vg", id(0), 8192);
        for (n, extents) in [(0, 100), (1, 100), (2, 20)] {
            vg.pvs.push(Pv::new(&format!("pv{n}"), id(n), 1 << 30, 2048, extents));
        }
        let stamp = Stamp { description: String::new(), host: String::new(), time: 0 };
        let used = vec![LvSegment::linear(0, 20, "pv0", 10), LvSegment::linear(20, 10, "pv0", 40)];
        vg.lvs.push(Lv::new("used", id(9), &stamp, used));
        vg
    }

    fn find(
        stripes: usize,
        extents_each: u64,
        on: &[&str],
        follow: &[(&str, u64)],
    ) -> Result<Vec<String>, NoRoom> {
        let on: Vec<_> = on.iter().map(|&name| name.to_owned()).collect();
        let stripe = |&(name, extent): &(&str, u64)| Stripe { name: name.to_owned(), extent };
        let follow: Vec<_> = follow.iter().map(stripe).collect();
        let pieces = allocate(&vg(), Want { stripes, extents_each, on: &on, follow: &follow })?;
        let show = |piece: &ExtentRun| {
            let stripes = piece.stripes.iter().map(|stripe| format!("{}:{}", stripe.name, stripe.extent));
            format!("{} {}", piece.extents_each, stripes.collect::<Vec<_>>().join(" "))
        };
        Ok(pieces.iter().map(show).collect())
    }

    #[test]
    fn one_piece_where_there_is_one_the_smallest_that_does() {
        assert_eq!(find(1, 5, &[], &[]).unwrap(), ["5 pv0:0"]);
        assert_eq!(find(1, 10, &[], &[]).unwrap(), ["10 pv0:0"], "the first of equals");
        assert_eq!(find(1, 60, &[], &[]).unwrap(), ["60 pv1:0"]);
        assert_eq!(find(1, 55, &["pv0"], &[]).unwrap(), ["50 pv0:50", "5 pv0:0"]);
        assert_eq!(find(1, 130, &[], &[]).unwrap(), ["100 pv1:0", "30 pv0:50"]);
        assert_eq!(
            find(1, 190, &[], &[]).unwrap(),
            ["100 pv1:0", "50 pv0:50", "20 pv2:0", "10 pv0:0", "10 pv0:30"]
        );
    }

    #[test]
    fn stripes_are_on_physical_volumes_of_their_own() {
        assert_eq!(find(2, 50, &[], &[]).unwrap(), ["50 pv0:50 pv1:0"]);
        assert_eq!(find(3, 20, &[], &[]).unwrap(), ["20 pv0:50 pv1:0 pv2:0"]);
        assert_eq!(find(2, 70, &[], &[]).unwrap(), ["50 pv1:0 pv0:50", "20 pv1:50 pv2:0"]);
        assert_eq!(free_extents_each(&vg(), &[], 3), 20);
        assert_eq!(free_extents(&vg(), &[]), 190);
    }

    #[test]
    fn a_volume_grows_where_it_ends() {
        assert_eq!(find(1, 8, &[], &[("pv0", 30)]).unwrap(), ["8 pv0:30"]);
        assert_eq!(find(1, 15, &[], &[("pv0", 30)]).unwrap(), ["10 pv0:30", "5 pv0:0"]);
        assert_eq!(find(1, 15, &["pv1"], &[("pv0", 30)]).unwrap(), ["15 pv1:0"], "not where it may not");
        assert_eq!(find(1, 5, &[], &[("pv0", 20)]).unwrap(), ["5 pv0:0"], "that is in use");
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        let none = find(1, 191, &[], &[]).unwrap_err();
        assert_eq!(none, NoRoom { wanted: 191, free: 190, physical: 3, largest: 100 });
        assert_eq!(find(4, 1, &[], &[]).unwrap_err().physical, 3);
        assert_eq!(
            find(2, 1, &["pv1"], &[]).unwrap_err(),
            NoRoom { wanted: 2, free: 100, physical: 1, largest: 100 }
        );
        let mut set_aside = vg();
        set_aside.pvs[1].status.clear();
        assert_eq!(free_extents(&set_aside, &[]), 90, "not allocatable");
    }
}
