//! Stripes and ranges of several cores, held for one step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wattle_rt::{Core, CoreIx};

use crate::array::Shard;
use crate::mirror;
use crate::range_lock::RangeLock;
use crate::stripe::{self, Turn};
use crate::units::{MemberIx, Sector, StripeNo};

/// What a step needs to itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Stripe(StripeNo),
    Range(Sector, Sector),
}

enum Held {
    Turn { _turn: Turn },
    Range { _lock: RangeLock },
}

/// What steps hold on one core, by step.
#[derive(Default)]
pub(crate) struct Holds {
    held: RefCell<BTreeMap<u64, Vec<Held>>>,
}

/// The members that a step fills, and where on them it ends.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    pub seats: Vec<MemberIx>,
    pub end: Sector,
}

/// Takes all parts, one after the other in one order for everybody, and says whether the array still runs. The caller holds a
/// background pass.
pub(super) async fn take(
    core: &Core,
    key: u64,
    step: u64,
    parts: &BTreeMap<CoreIx, Vec<Part>>,
    fill: Option<Fill>,
) -> bool {
    for (&owner, parts) in parts {
        let (parts, fill) = (parts.clone(), fill.clone());
        let taken = core
            .call(owner, move |core| async move {
                let Some(shard) = core.local::<Shard>(key) else { return false };
                // Before it waits for anything: whoever has a range after this step sends to the members what he writes there.
                if let Some(Fill { seats, end }) = fill {
                    let reach = |seat: MemberIx| shard.load(seat).fill_reached.update(|at| at.max(end));
                    seats.into_iter().for_each(reach);
                }
                for part in parts {
                    let held = match part {
                        Part::Stripe(stripe) => match stripe::turn(&shard, stripe).await {
                            Some(turn) => Held::Turn { _turn: turn },
                            None => return false,
                        },
                        Part::Range(start, end) => Held::Range { _lock: shard.ranges.lock(start, end).await },
                    };
                    shard.holds.held.borrow_mut().entry(step).or_default().push(held);
                }
                true
            })
            .await;
        if !taken {
            return false;
        }
    }
    true
}

/// Gives back what was taken.
pub(super) async fn give_back(core: &Core, key: u64, step: u64, parts: &BTreeMap<CoreIx, Vec<Part>>) {
    for &owner in parts.keys() {
        core.call(owner, move |core| async move {
            if let Some(shard) = core.local::<Shard>(key) {
                let held = shard.holds.held.borrow_mut().remove(&step);
                drop(held);
            }
        })
        .await;
    }
}

/// The stripes that a range of member sectors touches, by owner.
pub(super) fn stripes(shard: &Rc<Shard>, start: Sector, end: Sector) -> BTreeMap<CoreIx, Vec<Part>> {
    let chunk = shard.fixed.geometry.chunk().0;
    let mut parts: BTreeMap<CoreIx, Vec<Part>> = BTreeMap::new();
    for stripe in start.0 / chunk..end.0.div_ceil(chunk) {
        let stripe = StripeNo(stripe);
        parts.entry(stripe::owner(stripe, shard.core.cores())).or_default().push(Part::Stripe(stripe));
    }
    parts
}

/// Ranges of array sectors, by owner, in ascending order.
pub(super) fn ranges(
    shard: &Rc<Shard>,
    wanted: impl Iterator<Item = (Sector, Sector)>,
) -> BTreeMap<CoreIx, Vec<Part>> {
    let mut wanted: Vec<(Sector, Sector)> = wanted.map(|(lba, len)| (lba, lba + len)).collect();
    wanted.sort_unstable();
    // Nobody waits for a range that he holds himself.
    let mut joined: Vec<(Sector, Sector)> = Vec::new();
    for (start, end) in wanted {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    let cut = joined.into_iter().flat_map(|(start, end)| mirror::pieces(shard, start, end - start));
    let mut parts: BTreeMap<CoreIx, Vec<Part>> = BTreeMap::new();
    for (lba, len) in cut {
        parts.entry(mirror::owner(shard, lba)).or_default().push(Part::Range(lba, lba + len));
    }
    parts
}
