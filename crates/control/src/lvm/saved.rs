//! What speaks against putting an earlier text of a group in force again.

use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Id, Lv, LvSegment, Pv, SegmentKind, Vg};

use super::edit::{check_ours, is_used};
use super::group::GroupScan;
use super::older;
use crate::problem::{Check, Code, Forced, Problem};

/// Refuses to replace the text that counts where that is not this host's to replace, or where what
/// is out of date would look current with the earlier one. `name` says what a physical volume is
/// called.
///
/// # Errors
/// A [`Problem`].
pub(super) fn check(
    now: &GroupScan,
    saved: &Vg,
    name: impl Fn(Id) -> String,
    forced: Forced,
) -> Result<(), Problem> {
    check_ours(&now.vg)?;
    let is_exported = |vg: &Vg| vg.status.iter().any(|word| word == "EXPORTED");
    if is_exported(&now.vg) && !is_exported(saved) {
        return Err(Problem::new(
            Code::ForeignVolumeGroup,
            format!("{} is exported", now.vg.name),
            "it is on its way to another system",
            format!("if this is that system: `wattle vg import {} MEMBER...` first", now.vg.name),
        ));
    }
    check_older(now, saved, &name, forced)?;
    check_moved(now, saved, &name, forced)
}

/// With the new text a physical volume that was away would look as if it had never been.
fn check_older(
    now: &GroupScan,
    saved: &Vg,
    name: &impl Fn(Id) -> String,
    forced: Forced,
) -> Result<(), Problem> {
    if forced.has(Check::OlderPhysical) {
        return Ok(());
    }
    for ((pv, device), older) in now.vg.pvs.iter().zip(&now.devices).zip(&now.older) {
        let then = saved.pvs.iter().find(|known| known.id == pv.id);
        if !is_used(&now.vg, pv) && !then.is_some_and(|then| is_used(saved, then)) {
            continue;
        }
        if let Some(older) = older {
            return Err(older::problem(&now.vg, older));
        }
        // The earlier text takes back what the group went on without.
        let taken_back = pv.is_missing() && !then.is_some_and(Pv::is_missing);
        if device.is_some() && taken_back {
            return Err(older::taken_back(&now.vg, &name(pv.id)));
        }
    }
    Ok(())
}

/// Where a volume was moved since, the earlier text leads to what it held then.
fn check_moved(
    now: &GroupScan,
    saved: &Vg,
    name: &impl Fn(Id) -> String,
    forced: Forced,
) -> Result<(), Problem> {
    if forced.has(Check::WrittenSince) {
        return Ok(());
    }
    let moved = saved.lvs.iter().filter_map(|then| {
        let lv = now.vg.lvs.iter().find(|lv| lv.id == then.id)?;
        let (from, to) = moved((saved, then), (&now.vg, lv))?;
        Some(format!("{}/{} lay on {} then, and lies on {} now", now.vg.name, lv.name, name(from), name(to)))
    });
    let moved: Vec<_> = moved.take(3).collect();
    if moved.is_empty() {
        return Ok(());
    }
    Err(Problem::new(
        Code::WrittenSince,
        moved.join("; "),
        "what was written to it since is where it lies now: by the earlier text it would be what it was when it was moved, or what others wrote \
         there; nothing was written",
        "choose a later backup, or copy what it holds first; --force=written-since restores the text all the same",
    )
    .forced_by(Check::WrittenSince))
}

/// On which physical volumes the first extents of a volume are by one text and by another, where
/// these are not the same extents; `None` if it has all it has in both in one place.
fn moved((vg, lv): (&Vg, &Lv), (other_vg, other): (&Vg, &Lv)) -> Option<(Id, Id)> {
    let end = lv.extents().min(other.extents());
    let mut at = 0;
    while at < end {
        let ((segment, here), (other_segment, there)) = (places(vg, lv, at)?, places(other_vg, other, at)?);
        let differ = here.iter().zip(&there).find(|(here, there)| here != there);
        if let Some(((from, _), (to, _))) = differ {
            return Some((*from, *to));
        }
        if here.len() != there.len() {
            return Some((here.first()?.0, there.first()?.0));
        }
        at = segment.end_extent().min(other_segment.end_extent()).max(at + 1);
    }
    None
}

/// The segment of a volume with this extent, and where each of its stripes would have it, counted
/// from the segment's start; `None` if it is on no physical volumes by itself.
fn places<'a>(vg: &Vg, lv: &'a Lv, at: u64) -> Option<(&'a LvSegment, Vec<(Id, u64)>)> {
    let covers = |segment: &&LvSegment| (segment.start_extent..segment.end_extent()).contains(&at);
    let segment = lv.segments.iter().find(covers)?;
    let SegmentKind::Striped { stripes, .. } = &segment.kind else { return None };
    let row = (at - segment.start_extent) / stripes.len().max(1) as u64;
    let place = |Stripe { name, extent }: &Stripe| Some((vg.pv(name)?.id, extent.saturating_add(row)));
    Some((segment, stripes.iter().map(place).collect::<Option<_>>()?))
}
