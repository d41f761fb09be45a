//! The next state of a volume group, as a value: every change that can be made to one, and what
//! speaks against it. Pure.

use std::fmt::Display;

use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{
    Id, Lv, LvSegment, NameError, Pv, SegmentKind, Stamp, Vg, check_lv_name, check_names_together,
    check_vg_name,
};

use super::allocate::{AllocationPolicy, NoRoom, Want, allocate};
use super::group::GroupScan;
use super::{older, problems};
use crate::problem::{Check, Code, Problem};

/// A state in which a group may be found by what changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Here, in use.
    Here,
    /// Exported to another system.
    Exported,
    /// Either of these.
    HereOrExported,
}

/// Refuses a group that must not be changed.
///
/// # Errors
/// A [`Problem`]: it is damaged, not whole, not understood, or another host's.
pub fn check_changeable(group: &GroupScan, state: State) -> Result<(), Problem> {
    if let Some(problem) = &group.problem {
        return Err(problem.clone());
    }
    let (vg, name) = (&group.vg, &group.vg.name);
    if group.is_overtaken {
        return Err(problems::overtaken(name));
    }
    if group.is_in_doubt {
        return Err(problems::in_doubt(name));
    }
    let missing = group.missing();
    let recorded = vg.pvs.iter().filter(|pv| pv.is_missing()).map(|pv| pv.id.to_string());
    let missing: Vec<_> = missing.into_iter().chain(recorded).collect();
    if !missing.is_empty() {
        return Err(Problem::new(
            Code::MissingPhysical,
            format!("physical volumes of {name} are missing: {}", missing.join(", ")),
            "they would keep the old text, and the group would have two histories",
            "give all of its physical volumes; without them LVM2 decides (`vgreduce --removemissing`)",
        ));
    }
    let older = vg.pvs.iter().zip(&group.older).filter(|(pv, _)| is_used(vg, pv));
    if let Some(found) = older.filter_map(|(_, older)| older.as_ref()).find(|found| !found.is_forced) {
        // With the new text it would look as if it had never been away.
        return Err(older::problem(vg, found));
    }
    if let Some(place) = vg.unknown_segment() {
        return Err(Problem::new(
            Code::UnsupportedVolume,
            format!("{name}: the type of {place} is not known"),
            "which extents it has cannot be told, so nothing may be allocated or moved beside it",
            "change the group on the system that made it",
        ));
    }
    check_ours(vg)?;
    let has = |word: &str| vg.status.iter().any(|status| status == word);
    match (has("EXPORTED"), state) {
        (true, State::Here) => Err(Problem::new(
            Code::ForeignVolumeGroup,
            format!("{name} is exported"),
            "it is on its way to another system",
            format!("if this is that system: `wattle vg import {name} MEMBER...`"),
        )),
        (false, State::Exported) => Err(Problem::new(
            Code::BadVolume,
            format!("{name} is not exported"),
            "there is nothing to import",
            "use it as it is",
        )),
        _ if !has("WRITE") => Err(foreign(format!("{name} is read-only"))),
        _ => Ok(()),
    }
}

/// Whether something is on a physical volume of a group.
pub(super) fn is_used(vg: &Vg, pv: &Pv) -> bool {
    let free = vg.free_extents(&pv.name).into_iter();
    free.map(|run| run.end.saturating_sub(run.start)).sum::<u64>() < pv.pe_count
}

fn foreign(what: String) -> Problem {
    Problem::new(
        Code::ForeignVolumeGroup,
        what,
        "another process may be changing it",
        "change it on the system it belongs to, or release it there first",
    )
}

/// Refuses a group that other hosts may be changing, or LVM2 is in the middle of changing.
///
/// # Errors
/// A [`Problem`]: it is such a one.
pub(super) fn check_ours(vg: &Vg) -> Result<(), Problem> {
    let name = &vg.name;
    if let Some(id) = vg.system_id.as_deref().filter(|id| !id.is_empty()) {
        return Err(foreign(format!("{name} belongs to the system {id}")));
    }
    if let Some(lock) = vg.lock_type.as_deref().filter(|lock| !lock.is_empty() && *lock != "none") {
        return Err(foreign(format!("{name} is shared between hosts that lock it with {lock}")));
    }
    let has = |word: &str| vg.status.iter().any(|status| status == word);
    if let Some(word) = ["CLUSTERED", "SHARED", "PVMOVE"].into_iter().find(|word| has(word)) {
        return Err(foreign(format!("{name} has the status {word}")));
    }
    Ok(())
}

pub(super) fn next(vg: &Vg) -> Result<Vg, Problem> {
    vg.next().ok_or_else(|| {
        Problem::new(
            Code::DamagedVolumeGroup,
            format!("{}: its sequence number is {}", vg.name, vg.seqno),
            "there is none after it",
            "restore a backup (`wattle vg restore`) of an earlier text",
        )
    })
}

pub(super) fn bad(what: impl Into<String>, why: impl Into<String>, next: &str) -> Problem {
    Problem::new(Code::BadVolume, what, why, next)
}

fn check_name(name: &str, check: impl Fn(&str) -> Result<(), NameError>) -> Result<(), Problem> {
    check(name).map_err(|error| {
        bad(format!("the name `{}`", name.escape_default()), error.to_string(), "choose another")
    })
}

fn check_lv(vg: &Vg, name: &str) -> Result<(), Problem> {
    check_name(name, check_lv_name)?;
    check_name(name, |name| check_names_together(&vg.name, name))
}

/// LVM2 counts the extents of a group in 32 bits.
fn check_extents(vg: &Vg) -> Result<(), Problem> {
    let extents = vg.pvs.iter().map(|pv| pv.pe_count).fold(0, u64::saturating_add);
    if extents <= u64::from(u32::MAX) {
        return Ok(());
    }
    Err(bad(
        format!("{} with {extents} extents", vg.name),
        format!("a group has at most {} in all", u32::MAX),
        "make the group with larger extents (--extent-size), or several groups",
    ))
}

fn in_use(what: String, why: String, next: &str) -> Problem {
    Problem::new(Code::VolumeInUse, what, why, next)
}

fn name_in_use(what: String) -> Problem {
    Problem::new(
        Code::NameInUse,
        what,
        "volumes are found by their names",
        "choose another name, or rename the other first",
    )
}

fn must_be_resizeable(vg: &Vg) -> Result<(), Problem> {
    if vg.status.iter().any(|word| word == "RESIZEABLE") {
        return Ok(());
    }
    Err(Problem::new(
        Code::ForeignVolumeGroup,
        format!("{} is not resizeable", vg.name),
        "its operator set it so",
        "allow it first (`vgchange --resizeable y`)",
    ))
}

/// A physical volume to be added to a group.
#[derive(Debug, Clone)]
pub struct NewPv {
    /// Its label's id.
    pub id: Id,
    /// A hint where it is.
    pub device: String,
    /// Its size.
    pub dev_sectors: u64,
    /// Where its data starts.
    pub pe_start: u64,
    /// Its extents.
    pub pe_count: u64,
    /// What it is written by at least: its logical blocks.
    pub block_bytes: u64,
}

/// A new group.
///
/// # Errors
/// A [`Problem`]: its name, the size of its extents, or a physical volume does not do.
pub fn create_group(name: &str, id: Id, extent_sectors: u64, pvs: &[NewPv]) -> Result<Vg, Problem> {
    check_name(name, check_vg_name)?;
    let whole = extent_sectors.is_power_of_two() || extent_sectors.is_multiple_of(256);
    if !(2..=u64::from(u32::MAX)).contains(&extent_sectors) || !whole {
        return Err(bad(
            format!("extents of {} bytes", extent_sectors.saturating_mul(512)),
            "an extent is a power of two of at least 1 KiB, or a multiple of 128 KiB, below 2 TiB",
            "leave out --extent-size for 4 MiB",
        ));
    }
    add(Vg::new(name, id, extent_sectors), pvs)
}

/// The group with more physical volumes.
///
/// # Errors
/// A [`Problem`]: one does not do.
pub fn add_physical(vg: &Vg, pvs: &[NewPv]) -> Result<Vg, Problem> {
    must_be_resizeable(vg)?;
    add(next(vg)?, pvs)
}

fn add(mut vg: Vg, pvs: &[NewPv]) -> Result<Vg, Problem> {
    if vg.max_pv != 0 && (vg.pvs.len() + pvs.len()) as u64 > vg.max_pv {
        let what = format!("{} with {} physical volumes", vg.name, vg.pvs.len() + pvs.len());
        let why = format!("its operator allows {}", vg.max_pv);
        return Err(bad(what, why, "raise the limit first (`vgchange --maxphysicalvolumes`)"));
    }
    for new in pvs {
        if vg.pvs.iter().any(|pv| pv.id == new.id) {
            return Err(in_use(
                format!("{} is in {} already", new.device, vg.name),
                "a physical volume is in a group once".to_owned(),
                "leave it out",
            ));
        }
        let extent_bytes = vg.extent_sectors.saturating_mul(512);
        if !extent_bytes.is_multiple_of(new.block_bytes.max(1)) {
            return Err(bad(
                format!("extents of {extent_bytes} bytes on {}", new.device),
                format!("its blocks have {} bytes, and volumes would share some", new.block_bytes),
                "make the group with larger extents (--extent-size)",
            ));
        }
        if new.pe_count == 0 {
            return Err(Problem::new(
                Code::TooSmall,
                format!("{}: it holds no extent of {} sectors", new.device, vg.extent_sectors),
                format!("its data starts at sector {} of {}", new.pe_start, new.dev_sectors),
                "use a larger one, or smaller extents (--extent-size)",
            ));
        }
        let free =
            (0..).map(|n| format!("pv{n}")).find(|name| vg.pv(name).is_none() && vg.lv(name).is_none());
        let name = free.expect("some number is not in use");
        let mut pv = Pv::new(&name, new.id, new.dev_sectors, new.pe_start, new.pe_count);
        pv.device = Some(new.device.clone());
        vg.pvs.push(pv);
    }
    check_extents(&vg)?;
    Ok(vg)
}

/// The group without a physical volume, which problems call `shown`.
///
/// # Errors
/// A [`Problem`]: volumes are on it, or nothing else is left.
pub fn remove_physical(vg: &Vg, pv: &Id, shown: &dyn Display) -> Result<Vg, Problem> {
    must_be_resizeable(vg)?;
    let mut vg = next(vg)?;
    let at = vg.pvs.iter().position(|known| known.id == *pv);
    let Some(at) = at else {
        return Err(bad(
            format!("{shown} is not in {}", vg.name),
            "only its own physical volumes can be taken out",
            "see `wattle pv list`",
        ));
    };
    let removed = vg.pvs.remove(at);
    let users: Vec<_> = users(&vg, &removed.name).collect();
    if !users.is_empty() {
        return Err(in_use(
            format!("{shown} holds extents of {}", users.join(", ")),
            "what is there would be gone".to_owned(),
            "move the volumes away first (`wattle lv move`), or remove them",
        ));
    }
    if vg.pvs.is_empty() {
        return Err(in_use(
            format!("{shown} is the last physical volume of {}", vg.name),
            "a group is nowhere else".to_owned(),
            "to end the group, use `wattle vg remove`",
        ));
    }
    Ok(vg)
}

/// Names of the LVs that use a PV or an LV.
pub(super) fn users<'a>(vg: &'a Vg, name: &'a str) -> impl Iterator<Item = &'a str> {
    let uses = move |lv: &&Lv| lv.segments.iter().any(|segment| segment.kind.references().contains(&name));
    vg.lvs.iter().filter(uses).map(|lv| lv.name.as_str())
}

/// The group after a physical volume changed its size.
///
/// # Errors
/// A [`Problem`]: volumes are on what would go.
pub fn resize_physical(vg: &Vg, pv: &Id, dev_sectors: u64, pe_count: u64) -> Result<Vg, Problem> {
    let mut vg = next(vg)?;
    let known = vg.pvs.iter().find(|known| known.id == *pv).cloned();
    let Some(known) = known else { return Ok(vg) };
    // What is free at the end may go.
    if pe_count == 0 {
        return Err(Problem::new(
            Code::TooSmall,
            format!("{pv}: no extent would be left of it"),
            format!("its data starts at sector {}, and an extent has {}", known.pe_start, vg.extent_sectors),
            "leave room for one, or take it out of the group (`wattle vg reduce`)",
        ));
    }
    let free_from = match vg.free_extents(&known.name).last() {
        Some(run) if run.end == known.pe_count => run.start,
        _ => known.pe_count,
    };
    if pe_count < free_from {
        return Err(in_use(
            format!("{pv}: extents up to {free_from} are in use, {pe_count} would be left"),
            "what is there would be gone".to_owned(),
            "reduce or remove the volumes at its end first, or move them (`wattle lv move`)",
        ));
    }
    for pv in vg.pvs.iter_mut().filter(|known| known.id == *pv) {
        (pv.dev_sectors, pv.pe_count) = (Some(dev_sectors), pe_count);
    }
    check_extents(&vg)?;
    Ok(vg)
}

/// The group as it is, for what its physical volumes say of it to be written again.
///
/// # Errors
/// A [`Problem`]: it cannot be changed any more.
pub fn written_again(vg: &Vg) -> Result<Vg, Problem> {
    next(vg)
}

/// The group under another name.
///
/// # Errors
/// A [`Problem`]: the name does not do.
pub fn rename_group(vg: &Vg, name: &str) -> Result<Vg, Problem> {
    check_name(name, check_vg_name)?;
    for lv in &vg.lvs {
        check_name(name, |name| check_names_together(name, &lv.name))?;
    }
    let mut vg = next(vg)?;
    name.clone_into(&mut vg.name);
    Ok(vg)
}

/// The group, exported or imported.
///
/// # Errors
/// A [`Problem`]: it cannot be changed any more.
pub fn export_group(vg: &Vg, exported: bool) -> Result<Vg, Problem> {
    let mut vg = next(vg)?;
    let set = |status: &mut Vec<String>| {
        status.retain(|word| word != "EXPORTED");
        if exported {
            status.push("EXPORTED".to_owned());
        }
    };
    set(&mut vg.status);
    vg.pvs.iter_mut().for_each(|pv| set(&mut pv.status));
    Ok(vg)
}

/// A volume to be made.
#[derive(Debug, Clone)]
pub struct NewLv<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its id.
    pub id: Id,
    /// Its length, a multiple of the stripes.
    pub extents: u64,
    /// Less will do where there is not so much.
    pub at_most: bool,
    /// 1 for linear.
    pub stripes: usize,
    /// Bytes per stripe before the next one's turn, in sectors.
    pub stripe_sectors: u64,
    /// Only on these physical volumes, by their names in the text; empty for all.
    pub on: &'a [String],
}

/// The group with another volume.
///
/// # Errors
/// A [`Problem`]: the name does not do or is in use, or there is no room.
pub fn create_volume(vg: &Vg, new: &NewLv<'_>, stamp: &Stamp) -> Result<Vg, Problem> {
    let mut vg = next(vg)?;
    check_lv(&vg, new.name)?;
    check_free(&vg, new.name)?;
    if vg.max_lv != 0 && vg.lvs.iter().filter(|lv| vg.is_visible(lv)).count() as u64 >= vg.max_lv {
        let why = format!("its operator allows {}", vg.max_lv);
        return Err(bad(
            format!("{} with another volume", vg.name),
            why,
            "raise the limit first (`vgchange --logicalvolume`)",
        ));
    }
    let extent_sectors = vg.extent_sectors;
    let shape = |why: &str| {
        Err(bad(
            format!("{} stripes of {} sectors", new.stripes, new.stripe_sectors),
            why,
            "see `wattle lv create --help`",
        ))
    };
    if new.stripes == 0 || new.stripes > 128 {
        return shape("a volume has 1 to 128 stripes");
    }
    let power = new.stripe_sectors.is_power_of_two() && new.stripe_sectors >= 8;
    if new.stripes > 1 && (!power || new.stripe_sectors > extent_sectors) {
        return shape("a stripe is a power of two of at least 4 KiB and at most an extent");
    }
    if new.extents == 0 {
        return Err(bad(
            format!("{} of no size", new.name),
            "a volume has at least one extent",
            "ask for more",
        ));
    }
    let stripes = new.stripes as u64;
    let want = Want {
        stripes: new.stripes,
        extents_each: new.extents / stripes,
        at_most: new.at_most,
        policy: AllocationPolicy::of(&vg, None),
        on: new.on,
        follow: &[],
        near: &[],
    };
    let pieces = allocate(&vg, want).map_err(|error| no_room(&vg, new.name, &error))?;
    let mut lv = Lv::new(new.name, new.id, stamp, Vec::new());
    for piece in pieces {
        append(&mut lv, piece.extents_each, piece.stripes, new.stripe_sectors);
    }
    vg.lvs.push(lv);
    Ok(vg)
}

fn check_free(vg: &Vg, name: &str) -> Result<(), Problem> {
    if vg.lv(name).is_some() || vg.pv(name).is_some() {
        return Err(name_in_use(format!("{}/{name} exists", vg.name)));
    }
    Ok(())
}

pub(super) fn no_room(vg: &Vg, name: &str, error: &NoRoom) -> Problem {
    let next = match error.stripes > 1 && error.physical < error.stripes {
        true => "ask for fewer stripes, or add physical volumes (`wattle vg extend`)",
        false => {
            "ask for less, or add a physical volume (`wattle vg extend`); `wattle pv list` shows what is free where"
        }
    };
    Problem::new(
        Code::NoExtents,
        format!("{}/{name}: {error}", vg.name),
        format!("an extent has {} sectors; stripes lie on physical volumes of their own", vg.extent_sectors),
        next,
    )
}

/// Extents at the end of a volume: of its last segment if they lie behind it.
fn append(lv: &mut Lv, extents_each: u64, stripes: Vec<Stripe>, stripe_sectors: u64) {
    let count = stripes.len() as u64;
    let start = lv.extents();
    if let Some(last) = lv.segments.last_mut()
        && let Some(end) = end_of(last)
        && end == stripes
        && matches!(last.kind, SegmentKind::Striped { stripe_sectors: known, .. } if count == 1 || known == stripe_sectors)
    {
        last.extents += extents_each * count;
        return;
    }
    let stripe_sectors = if count > 1 { stripe_sectors } else { 0 };
    lv.segments.push(LvSegment::new(
        start,
        extents_each * count,
        SegmentKind::Striped { stripe_sectors, stripes },
    ));
}

/// The first extents behind a segment.
pub(super) fn end_of(segment: &LvSegment) -> Option<Vec<Stripe>> {
    let SegmentKind::Striped { stripes, .. } = &segment.kind else { return None };
    let each = segment.extents / stripes.len().max(1) as u64;
    Some(
        stripes
            .iter()
            .map(|stripe| Stripe { name: stripe.name.clone(), extent: stripe.extent + each })
            .collect(),
    )
}

/// The volume of a name that operators see.
///
/// # Errors
/// A [`Problem`]: there is none.
pub(super) fn visible_volume<'a>(vg: &'a Vg, name: &str) -> Result<&'a Lv, Problem> {
    vg.lv(name).filter(|lv| vg.is_visible(lv)).ok_or_else(|| {
        let names: Vec<_> = vg.lvs.iter().filter(|lv| vg.is_visible(lv)).map(|lv| lv.name.as_str()).collect();
        Problem::new(
            Code::NoSuchVolume,
            format!("no volume is called {}/{name}", vg.name),
            format!(
                "{} holds {}",
                vg.name,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ),
            "name one of them",
        )
    })
}

/// The volume of a name, if it is one that can be changed here: linear or striped on physical
/// volumes, and nothing is made of it.
///
/// # Errors
/// A [`Problem`]: there is none, or it is another kind of volume.
pub fn plain_volume<'a>(vg: &'a Vg, name: &str) -> Result<&'a Lv, Problem> {
    let full = format!("{}/{name}", vg.name);
    let lv = visible_volume(vg, name)?;
    let users: Vec<_> = users(vg, name).collect();
    if !users.is_empty() {
        return Err(in_use(
            format!("{full} is part of {}", users.join(", ")),
            "what is made of it would be gone, or wrong".to_owned(),
            "change what is made of it, with LVM2 where wattle cannot",
        ));
    }
    if let Some(word) = ["LOCKED", "PVMOVE"].into_iter().find(|word| lv.has_status(word)) {
        return Err(in_use(
            format!("{full} has the status {word}"),
            "LVM2 is in the middle of moving it".to_owned(),
            "let LVM2 finish (`pvmove`, or `pvmove --abort`)",
        ));
    }
    let on_physical = |segment: &LvSegment| match &segment.kind {
        SegmentKind::Striped { stripes, .. } => stripes.iter().all(|stripe| vg.pv(&stripe.name).is_some()),
        _ => false,
    };
    if let Some(segment) = lv.segments.iter().find(|segment| !on_physical(segment)) {
        return Err(Problem::new(
            Code::NotSupportedYet,
            format!("{full} is of the type {}", segment.type_name()),
            "only linear and striped volumes on physical volumes are changed; nothing was",
            "change it with LVM2",
        ));
    }
    Ok(lv)
}

/// How many stripes a volume grows and shrinks by: its last segment's.
#[must_use]
pub fn stripes_of(lv: &Lv) -> u64 {
    match lv.segments.last().map(|segment| &segment.kind) {
        Some(SegmentKind::Striped { stripes, .. }) => stripes.len().max(1) as u64,
        _ => 1,
    }
}

/// The group with a volume of `extents`, which are more than it has and whole stripes; or of fewer,
/// as many as there are, if these are `at_most` what is wanted.
///
/// # Errors
/// A [`Problem`]: it cannot be changed here, or there is no room.
pub fn extend_volume(
    vg: &Vg,
    name: &str,
    (extents, at_most): (u64, bool),
    on: &[String],
) -> Result<Vg, Problem> {
    let lv = plain_volume(vg, name)?;
    let stripes = stripes_of(lv);
    let Some(more) = extents.checked_sub(lv.extents()).filter(|more| *more > 0) else {
        return Err(bad(
            format!("{}/{name} has {} extents, {extents} would be no more", vg.name, lv.extents()),
            "this grows volumes",
            "ask for more; `wattle lv reduce` makes it smaller",
        ));
    };
    let last = lv.segments.last();
    let follow = last.and_then(end_of).unwrap_or_default();
    let stripe_sectors = last.map_or(0, |last| match last.kind {
        SegmentKind::Striped { stripe_sectors, .. } => stripe_sectors,
        _ => 0,
    });
    let near = match lv.segments.first().map(|first| &first.kind) {
        Some(SegmentKind::Striped { stripes, .. }) => &stripes[..],
        _ => &[],
    };
    let want = Want {
        stripes: stripes as usize,
        extents_each: more / stripes,
        at_most,
        policy: AllocationPolicy::of(vg, Some(lv)),
        on,
        follow: &follow,
        near,
    };
    let pieces = allocate(vg, want).map_err(|error| no_room(vg, name, &error))?;
    let mut vg = next(vg)?;
    for lv in vg.lvs.iter_mut().filter(|lv| lv.name == name) {
        for piece in &pieces {
            append(lv, piece.extents_each, piece.stripes.clone(), stripe_sectors);
        }
    }
    Ok(vg)
}

/// The group with a volume of at most its first `extents`: rounded up to whole stripes where it
/// ends then.
///
/// # Errors
/// A [`Problem`]: it cannot be changed here, or would not be smaller.
pub fn reduce_volume(vg: &Vg, name: &str, extents: u64) -> Result<Vg, Problem> {
    let lv = plain_volume(vg, name)?;
    let kept = kept_extents(lv, extents);
    if kept == 0 || kept >= lv.extents() {
        return Err(bad(
            format!("{}/{name} has {} extents, {kept} would be left", vg.name, lv.extents()),
            "this makes volumes smaller, by whole extents of every stripe, and not to nothing",
            "ask for less; `wattle lv remove` ends a volume",
        ));
    }
    let mut vg = next(vg)?;
    for lv in vg.lvs.iter_mut().filter(|lv| lv.name == name) {
        lv.segments.retain(|segment| segment.start_extent < kept);
        if let Some(last) = lv.segments.last_mut() {
            last.extents = kept - last.start_extent;
        }
    }
    Ok(vg)
}

/// How many extents are left of a volume when `extents` are asked for: as many, up to a whole
/// number of stripes.
fn kept_extents(lv: &Lv, extents: u64) -> u64 {
    let ends_in =
        lv.segments.iter().find(|segment| (segment.start_extent..segment.end_extent()).contains(&extents));
    match ends_in.map(|segment| (segment.start_extent, &segment.kind)) {
        Some((start, SegmentKind::Striped { stripes, .. })) => {
            start + (extents - start).next_multiple_of(stripes.len().max(1) as u64)
        }
        _ => extents,
    }
}

/// The group without a volume.
///
/// # Errors
/// A [`Problem`]: it cannot be removed here.
pub fn remove_volume(vg: &Vg, name: &str) -> Result<Vg, Problem> {
    plain_volume(vg, name)?;
    let mut vg = next(vg)?;
    vg.lvs.retain(|lv| lv.name != name);
    Ok(vg)
}

/// The group with a volume under another name.
///
/// # Errors
/// A [`Problem`]: it cannot be renamed here, or the name does not do.
pub fn rename_volume(vg: &Vg, name: &str, to: &str) -> Result<Vg, Problem> {
    plain_volume(vg, name)?;
    check_lv(vg, to)?;
    check_free(vg, to)?;
    let mut vg = next(vg)?;
    vg.lvs.iter_mut().filter(|lv| lv.name == name).for_each(|lv| to.clone_into(&mut lv.name));
    Ok(vg)
}

/// Refuses to cut off what a volume holds, unless the operator insists: `needed_bytes` is what is
/// known to be needed.
///
/// # Errors
/// A [`Problem`].
pub fn check_below(
    name: &str,
    holds: &str,
    needed_bytes: Option<u64>,
    left_bytes: u64,
) -> Result<(), Problem> {
    if needed_bytes.is_some_and(|needed| needed <= left_bytes) {
        return Ok(());
    }
    let needs = needed_bytes
        .map_or("whose size cannot be told".to_owned(), |bytes| format!("which has {bytes} bytes"));
    Err(Problem::new(
        Code::BelowFileSystem,
        format!("{name} holds {holds}, {needs}; {left_bytes} bytes would be left"),
        "its end would be cut off, and with it its data",
        "make it smaller first, with its own tools, or use --force=file-system",
    )
    .forced_by(Check::FileSystem))
}
