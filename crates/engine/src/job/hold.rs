//! Stripes and ranges of several cores, held for one step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wattle_rt::{Core, CoreIx};

use super::JobShard;
use crate::lease::queue::{self, ExclusiveStripe};
use crate::lease::ranges::RangeLock;
use crate::level::ArrayShard;
use crate::level::mirror;
use crate::model::fixed::Fixed;
use crate::model::units::{MemberIx, Sector, StripeNo};

/// What a step needs to itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Stripe(StripeNo),
    Range(Sector, Sector),
}

enum Held {
    Stripe { _stripe: ExclusiveStripe },
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

/// Takes all parts, one after the other in the one order that all steps keep, and says whether the
/// array still runs. The caller holds a background permit.
pub(super) async fn take(
    core: &Core,
    fixed: &Fixed,
    step: u64,
    parts: &BTreeMap<CoreIx, Vec<Part>>,
    fill: Option<Fill>,
) -> bool {
    let (key, jobs_key) = (fixed.key, fixed.jobs_key());
    for (&owner, parts) in parts {
        let (parts, fill) = (parts.clone(), fill.clone());
        let taken = core
            .call(owner, move |core| async move {
                let (Some(shard), Some(jobs)) =
                    (core.local::<ArrayShard>(key), core.local::<JobShard>(jobs_key))
                else {
                    return false;
                };
                // Before it waits for anything: a write that has a range after this step sends to
                // the members what it writes there.
                if let Some(Fill { seats, end }) = fill {
                    let reach =
                        |seat: MemberIx| shard.members.load(seat).fill_reached.update(|at| at.max(end));
                    seats.into_iter().for_each(reach);
                }
                for part in parts {
                    let held = match part {
                        Part::Stripe(stripe) => match queue::exclusively(&shard, stripe).await {
                            Some(stripe) => Held::Stripe { _stripe: stripe },
                            None => return false,
                        },
                        Part::Range(start, end) => {
                            Held::Range { _lock: shard.leases.ranges.lock(start, end).await }
                        }
                    };
                    jobs.holds.held.borrow_mut().entry(step).or_default().push(held);
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

/// Releases what was taken.
pub(super) async fn release(core: &Core, fixed: &Fixed, step: u64, parts: &BTreeMap<CoreIx, Vec<Part>>) {
    let jobs_key = fixed.jobs_key();
    for &owner in parts.keys() {
        core.call(owner, move |core| async move {
            if let Some(jobs) = core.local::<JobShard>(jobs_key) {
                let held = jobs.holds.held.borrow_mut().remove(&step);
                drop(held);
            }
        })
        .await;
    }
}

/// The stripes that a range of member sectors touches, by owner.
pub(super) fn stripes(shard: &Rc<ArrayShard>, start: Sector, end: Sector) -> BTreeMap<CoreIx, Vec<Part>> {
    let chunk = shard.fixed.geometry.chunk().0;
    let mut parts: BTreeMap<CoreIx, Vec<Part>> = BTreeMap::new();
    for stripe in start.0 / chunk..end.0.div_ceil(chunk) {
        let stripe = StripeNo(stripe);
        parts.entry(queue::owner(stripe, shard.core.cores())).or_default().push(Part::Stripe(stripe));
    }
    parts
}

/// Ranges of array sectors, by owner, in ascending order.
pub(super) fn ranges(
    shard: &Rc<ArrayShard>,
    wanted: impl Iterator<Item = (Sector, Sector)>,
) -> BTreeMap<CoreIx, Vec<Part>> {
    let mut wanted: Vec<(Sector, Sector)> = wanted.map(|(lba, len)| (lba, lba + len)).collect();
    wanted.sort_unstable();
    // No step waits for a range that it holds itself.
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
