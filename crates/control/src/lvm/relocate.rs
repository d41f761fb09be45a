//! Extents that move from one physical volume to others, a step at a time. Each step is a change of
//! the group like any other, and leaves ordinary volumes: copied first, durably, while nothing
//! changes them, and then the text that says where they are.
//!
//! So a crash leaves the old place or the new one, with the same bytes in both, and going on only
//! takes asking for the next step.

use std::ops::Range;

use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Lv, LvSegment, SegmentKind, Vg};
use wattle_rt::{BufMut, Core, Device, Durability, IoError};

use super::allocate::{AllocationPolicy, NoRoom, Want, allocate, free_extents};
use super::edit::{end_of, next, no_room, plain_volume};
use crate::problem::{Code, Problem};

/// How much is copied by one request.
const REQUEST_BYTES: u64 = 1 << 20;
/// Requests at a time.
const REQUESTS: u64 = 8;

/// What is to move.
#[derive(Debug, Clone, Copy)]
pub struct WantedMove<'a> {
    /// Off this physical volume, by its name in the text.
    pub from: &'a str,
    /// Only what belongs to this volume.
    pub volume: Option<&'a str>,
    /// Only to these physical volumes; empty for all others.
    pub on: &'a [String],
    /// Extents that a step moves at most.
    pub extents_max: u64,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelocateStep {
    /// The group after it.
    pub after: Vg,
    /// The volume, by its name.
    pub volume: String,
    /// Its extents that must not change meanwhile: those of the whole row of stripes.
    pub held: Range<u64>,
    /// Where the extents are.
    pub from: Stripe,
    /// Where they go.
    pub to: Stripe,
    /// How many.
    pub extents: u64,
    /// How many are left to move after it.
    pub left: u64,
}

/// The next step; `None` if there is nothing to move.
///
/// # Errors
/// A [`Problem`]: a volume is of a type that is not moved, or there is no room.
pub fn next_step(vg: &Vg, wanted: WantedMove<'_>) -> Result<Option<RelocateStep>, Problem> {
    let meant = |lv: &&Lv| wanted.volume.is_none_or(|name| lv.name == name);
    let uses = |segment: &LvSegment| segment.kind.references().contains(&wanted.from);
    if let Some(name) = wanted.volume {
        plain_volume(vg, name)?;
    }
    let mut places = Vec::new();
    for lv in vg.lvs.iter().filter(meant).filter(|lv| lv.segments.iter().any(uses)) {
        if !vg.is_visible(lv) {
            return Err(Problem::new(
                Code::NotSupportedYet,
                format!("{}/{} is on it, a part of another volume", vg.name, lv.name),
                "only linear and striped volumes on physical volumes are moved; nothing was",
                "move it with LVM2 (`pvmove`), or name a volume that is moved alone",
            ));
        }
        plain_volume(vg, &lv.name)?;
        for (at, segment) in lv.segments.iter().enumerate() {
            let SegmentKind::Striped { stripes, .. } = &segment.kind else { continue };
            let each = segment.extents / stripes.len().max(1) as u64;
            let here = stripes.iter().enumerate().filter(|(_, stripe)| stripe.name == wanted.from);
            places.extend(here.map(|(stripe, _)| (lv, at, stripe, each)));
        }
    }
    let needed = places.iter().map(|(.., each)| each).sum::<u64>();
    let Some(&(lv, at, stripe, each)) = places.first() else { return Ok(None) };
    let targets = targets(vg, &wanted, &[]);
    let free = if targets.is_empty() { 0 } else { free_extents(vg, &targets) };
    if free < needed {
        let physical = targets.len();
        let error = NoRoom { wanted: needed, free, physical, stripes: 1, largest: free, policy: None };
        return Err(no_room(vg, &lv.name, &error));
    }
    let segment = &lv.segments[at];
    let SegmentKind::Striped { stripes, .. } = &segment.kind else { return Ok(None) };
    // Stripes stay on physical volumes of their own.
    let others: Vec<_> = stripes.iter().map(|stripe| stripe.name.as_str()).collect();
    let targets = self::targets(vg, &wanted, &others);
    let before = at.checked_sub(1).and_then(|before| end_of(&lv.segments[before]));
    let follow = before.filter(|ends| ends.len() == stripes.len()).map(|ends| ends[stripe].clone());
    let follow: Vec<_> = follow.into_iter().collect();
    let policy = AllocationPolicy::of(vg, Some(lv));
    let want = Want {
        stripes: 1,
        extents_each: each,
        at_most: false,
        policy,
        on: &targets,
        follow: &follow,
        near: &[],
    };
    let pieces = if targets.is_empty() {
        Err(NoRoom { wanted: each, free: 0, physical: 0, stripes: 1, largest: 0, policy: None })
    } else {
        allocate(vg, want)
    };
    let piece = pieces.map_err(|error| no_room(vg, &lv.name, &error))?.swap_remove(0);
    let extents = piece.extents_each.min(wanted.extents_max.max(1));
    let (from, to) = (stripes[stripe].clone(), piece.stripes[0].clone());
    let width = stripes.len() as u64;
    let held = segment.start_extent..segment.start_extent + extents * width;
    let mut after = next(vg)?;
    for lv in after.lvs.iter_mut().filter(|other| other.name == lv.name) {
        split(lv, at, extents);
        if let SegmentKind::Striped { stripes, .. } = &mut lv.segments[at].kind {
            stripes[stripe] = to.clone();
        }
        join(lv, at);
    }
    let (volume, left) = (lv.name.clone(), needed - extents);
    Ok(Some(RelocateStep { after, volume, held, from, to, extents, left }))
}

/// Where extents may go: never where they come from, nor to one of `others`.
fn targets(vg: &Vg, wanted: &WantedMove<'_>, others: &[&str]) -> Vec<String> {
    let all = vg.pvs.iter().map(|pv| &pv.name);
    let named = all.filter(|name| wanted.on.is_empty() || wanted.on.contains(name));
    named.filter(|name| *name != wanted.from && !others.contains(&name.as_str())).cloned().collect()
}

/// Makes two segments of one that is longer than `each` extents in every stripe.
fn split(lv: &mut Lv, at: usize, each: u64) {
    let segment = &mut lv.segments[at];
    let mut rest = segment.clone();
    let (SegmentKind::Striped { stripes: kept, .. }, SegmentKind::Striped { stripes, .. }) =
        (&segment.kind, &mut rest.kind)
    else {
        return;
    };
    let first = each * kept.len() as u64;
    if first >= segment.extents {
        return;
    }
    stripes.iter_mut().for_each(|stripe| stripe.extent += each);
    (rest.start_extent, rest.extents) = (segment.start_extent + first, segment.extents - first);
    segment.extents = first;
    lv.segments.insert(at + 1, rest);
}

/// Makes one segment of those beside a segment that go on where it ends, or end where it begins.
fn join(lv: &mut Lv, at: usize) {
    for second in [at + 1, at] {
        let (Some(one), Some(other)) =
            (second.checked_sub(1).map(|first| &lv.segments[first]), lv.segments.get(second))
        else {
            continue;
        };
        let (
            SegmentKind::Striped { stripe_sectors, .. },
            SegmentKind::Striped { stripe_sectors: same, stripes },
        ) = (&one.kind, &other.kind)
        else {
            continue;
        };
        if stripe_sectors == same && one.tags == other.tags && end_of(one).as_ref() == Some(stripes) {
            lv.segments[second - 1].extents += lv.segments.remove(second).extents;
        }
    }
}

/// Copies bytes of one device to another, durably.
///
/// # Errors
/// The device that failed (`true` for the one that is read) and its error.
pub async fn copy(
    core: &Core,
    (from, from_bytes): (&Device, u64),
    (to, to_bytes): (&Device, u64),
    len_bytes: u64,
) -> Result<(), (bool, IoError)> {
    // A page cache that lost a write-back reads as it did before the write, and says so only to a
    // flush: without this one the old content would be copied, and acknowledged as the new one.
    core.flush(from).await.map_err(|error| (true, error))?;
    let mut done = 0;
    while done < len_bytes {
        let end = len_bytes.min(done + REQUESTS * REQUEST_BYTES);
        let parts = (done..end).step_by(REQUEST_BYTES as usize).map(|at| {
            let (core, from, to) = (core.clone(), from.clone(), to.clone());
            let len = REQUEST_BYTES.min(end - at);
            core.clone().spawn(async move {
                let (read, bytes) = core.read(&from, from_bytes + at, BufMut::alloc(len as usize)).await;
                read.map_err(|error| (true, error))?;
                let written = core.write(&to, to_bytes + at, bytes.freeze(), Durability::Cached).await;
                written.map_err(|error| (false, error))
            })
        });
        let mut result = Ok(());
        for part in parts.collect::<Vec<_>>() {
            result = result.and(part.await);
        }
        result?;
        done = end;
    }
    core.flush(to).await.map_err(|error| (false, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_format::lvm::{Id, Pv, Stamp};
    use wattle_rt::{Buf, DriveConfig, RunOutcome, SimWorld, WorldConfig};

    /// What was acknowledged and lost is an error of the move, not content that moves.
    #[test]
    fn content_that_the_source_lost_is_not_copied() {
        let mut world = SimWorld::new(WorldConfig::default());
        let drive = |name: &str| DriveConfig { name: name.to_owned(), ..DriveConfig::default() };
        let (from, to) = (world.add_drive(drive("from")), world.add_drive(drive("to")));
        let cache = world.drive(&from);
        let outcome = world.run(async move |core: Core| {
            core.write(&from, 0, Buf::copy_of(&[7; 4096]), Durability::Cached).await.unwrap();
            cache.lose_write_back(0, 4096);
            copy(&core, (&from, 0), (&to, 0), 4096).await
        });
        assert!(matches!(outcome, RunOutcome::Done(Err((true, _)))), "{outcome:?}");
    }

    fn vg(segments: Vec<LvSegment>) -> Vg {
        let id = |n| Id::from_random([n; 32]);
        let mut vg = Vg::new("vg", id(0), 8192);
        for n in 0..3 {
            vg.pvs.push(Pv::new(&format!("pv{n}"), id(n + 1), 1 << 30, 2048, 100));
        }
        let stamp = Stamp { description: String::new(), host: String::new(), time: 0 };
        vg.lvs.push(Lv::new("lv", id(9), &stamp, segments));
        vg
    }

    fn striped(start: u64, extents: u64, stripes: &[(&str, u64)]) -> LvSegment {
        let stripe = |&(name, extent): &(&str, u64)| Stripe { name: name.to_owned(), extent };
        let stripes = stripes.iter().map(stripe).collect();
        LvSegment::new(start, extents, SegmentKind::Striped { stripe_sectors: 128, stripes })
    }

    fn show(vg: &Vg) -> Vec<String> {
        let segment = |segment: &LvSegment| {
            let SegmentKind::Striped { stripes, .. } = &segment.kind else { panic!("{segment:?}") };
            let stripes: Vec<_> = stripes.iter().map(|s| format!("{}:{}", s.name, s.extent)).collect();
            format!("{}+{} {}", segment.start_extent, segment.extents, stripes.join(" "))
        };
        vg.lvs[0].segments.iter().map(segment).collect()
    }

    /// Every state on the way, each of which has to be a group that can be.
    fn all(mut vg: Vg, wanted: WantedMove<'_>) -> Vec<Vec<String>> {
        let mut states = Vec::new();
        while let Some(step) = next_step(&vg, wanted).unwrap() {
            assert_eq!(step.after.problems(), []);
            assert_eq!(step.after.seqno, vg.seqno + 1);
            let row = step.after.lvs[0].extents();
            assert!(step.held.end <= row && step.extents <= wanted.extents_max);
            vg = step.after;
            states.push(show(&vg));
        }
        states
    }

    const ALL: WantedMove<'_> = WantedMove { from: "pv0", volume: None, on: &[], extents_max: 8 };

    #[test]
    fn a_linear_volume_moves_in_pieces_and_is_one_again() {
        let states = all(vg(vec![LvSegment::linear(0, 20, "pv0", 30)]), ALL);
        assert_eq!(
            states,
            [vec!["0+8 pv1:0", "8+12 pv0:38"], vec!["0+16 pv1:0", "16+4 pv0:46"], vec!["0+20 pv1:0"],]
        );
    }

    #[test]
    fn stripes_move_to_physical_volumes_of_their_own() {
        let states = all(vg(vec![striped(0, 20, &[("pv0", 5), ("pv1", 0)])]), ALL);
        assert_eq!(states, [vec!["0+16 pv2:0 pv1:0", "16+4 pv0:13 pv1:8"], vec!["0+20 pv2:0 pv1:0"]]);
        let full = vg(vec![striped(0, 20, &[("pv0", 5), ("pv1", 0)])]);
        let on = ["pv1".to_owned()];
        let refused = next_step(&full, WantedMove { on: &on, ..ALL }).unwrap_err();
        assert_eq!(refused.code, Code::NoExtents, "{refused:?}");
    }

    #[test]
    fn what_cannot_move_is_refused_before_anything_does() {
        let long = || vg(vec![LvSegment::linear(0, 60, "pv0", 0), LvSegment::linear(60, 90, "pv1", 0)]);
        let on = ["pv1".to_owned()];
        assert_eq!(next_step(&long(), WantedMove { on: &on, ..ALL }).unwrap_err().code, Code::NoExtents);
        assert_eq!(all(long(), ALL).last().unwrap(), &["0+60 pv2:0", "60+90 pv1:0"]);
        assert_eq!(next_step(&long(), WantedMove { from: "pv2", ..ALL }).unwrap(), None);
        let of = WantedMove { volume: Some("absent"), ..ALL };
        assert_eq!(next_step(&long(), of).unwrap_err().code, Code::NoSuchVolume);
        let mut locked = long();
        locked.lvs[0].status.push("LOCKED".to_owned());
        assert_eq!(next_step(&locked, ALL).unwrap_err().code, Code::VolumeInUse);
    }
}
