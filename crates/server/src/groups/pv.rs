//! Physical volumes: what a member becomes as one, and what is on it before.

use wattle_control::MemberId;
use wattle_control::lvm::commit::CommitRole;
use wattle_control::lvm::edit::NewPv;
use wattle_control::lvm::physical::{AreaScan, PhysicalVolume};
use wattle_control::lvm::plan::{ChangeTarget, From};
use wattle_control::scan::MemberOrigin;
use wattle_control::{Check, Code, Forced, MemberScan, Problem, Stack};
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{AreaState, Label};
use wattle_rt::Core;

use super::look;
use crate::ids::random_id;

/// Where labels are looked for, and what else is at the start of a device.
const HEAD_BYTES: u64 = 4096;
/// A superblock's, of any version.
const SUPERBLOCK_BYTES: u64 = 4096;
/// Some drives and bridges claim odd transfer sizes; a stripe is whole pages, and not so large.
const STRIPE_BYTES_MAX: u64 = 64 << 20;

/// What a member is to be as a new physical volume, and what to know of it.
///
/// # Errors
/// Something is on it, it cannot be read, or it is too small.
pub async fn new_physical(
    core: &Core,
    stack: &mut Stack,
    member: MemberId,
    forced: Forced,
) -> Result<(ChangeTarget, Vec<String>), Problem> {
    if let MemberOrigin::Logical { .. } = stack.scan.members[member].origin {
        let name = &stack.scan.members[member].member.name;
        return Err(Problem::new(
            Code::NotSupportedYet,
            format!("{name} is a logical volume itself"),
            "LVM2 does not look for physical volumes there unless it is told to; nothing was changed",
            "use what the volume lies on",
        ));
    }
    let mut notes: Vec<_> = check_empty(&stack.scan.members[member], forced)?.into_iter().collect();
    let size_bytes = size_bytes(core, stack, member).await? / 512 * 512;
    let stripe_bytes = stripe_bytes(core, stack, member).await?;
    let seen = &stack.scan.members[member];
    let name = seen.member.name.clone();
    let label = Label::create(random_id()?, size_bytes, stripe_bytes).ok_or_else(|| {
        Problem::new(
            Code::TooSmall,
            format!("{name} has {size_bytes} bytes"),
            "behind the metadata nothing would be left",
            "use a larger one",
        )
        .of_member(&name)
    })?;
    let start_bytes = label.data_areas.first().map_or(0, |area| area.offset_bytes);
    notes.push(why_there(&name, start_bytes, stripe_bytes));
    let from = From::New(wiped(seen));
    Ok((ChangeTarget { member, name, from, label, role: CommitRole::Belongs, zeros: Vec::new() }, notes))
}

fn why_there(name: &str, start_bytes: u64, stripe_bytes: u64) -> String {
    let (start_kib, stripe_kib) = (start_bytes >> 10, stripe_bytes >> 10);
    match stripe_bytes {
        0 => format!("{name}: its data starts at {start_kib} KiB; what is below has no stripes"),
        _ => format!(
            "{name}: its data starts at {start_kib} KiB, which is {} stripes of {stripe_kib} KiB: writes of whole stripes stay so",
            start_bytes / stripe_bytes
        ),
    }
}

/// What a new physical volume is added to a group as.
pub fn member_of_group(stack: &Stack, place: &ChangeTarget, extent_sectors: u64) -> NewPv {
    NewPv {
        id: place.label.id,
        device: look::linux_name(stack, place.member),
        dev_sectors: place.label.device_bytes / 512,
        pe_start: place.label.data_areas.first().map_or(0, |area| area.offset_bytes / 512),
        pe_count: place.label.pe_count(extent_sectors),
        block_bytes: stack.scan.members[place.member].member.device.logical_block_bytes().into(),
    }
}

/// Whether a member is a physical volume that nothing was made of yet, and nothing else.
pub fn is_unused_physical(seen: &MemberScan) -> bool {
    let is_empty =
        |physical: &PhysicalVolume| physical.areas.iter().all(|area| area.state == AreaState::Empty);
    is_only_physical(seen) && seen.physical.as_ref().is_some_and(is_empty)
}

/// Whether a physical volume can join a group as it is: nothing else is on it, and its areas hold
/// nothing, or what it had of a group that it left.
pub fn can_join(stack: &Stack, seen: &MemberScan) -> bool {
    let is_empty = |area: &AreaScan| matches!(area.state, AreaState::Empty | AreaState::Ignored);
    let is_free =
        |physical: &PhysicalVolume| physical.areas.iter().all(is_empty) || look::has_left(stack, physical);
    is_only_physical(seen) && seen.physical.as_ref().is_some_and(is_free)
}

fn is_only_physical(seen: &MemberScan) -> bool {
    let only_that = seen.superblocks.is_empty() && seen.damaged.is_empty() && seen.signatures.len() == 1;
    only_that && seen.unreadable.is_empty()
}

/// Refuses a member that something is on, unless the operator insists; then tells what.
///
/// # Errors
/// Something is on it, or it cannot be read.
pub fn check_empty(seen: &MemberScan, forced: Forced) -> Result<Option<String>, Problem> {
    let name = &seen.member.name;
    if let Some(error) = seen.unreadable.first() {
        return Err(error.clone().into());
    }
    let superblocks =
        seen.superblocks.iter().map(|superblock| format!("md {} superblock", superblock.version()));
    let damaged = seen.damaged.iter().map(|raw| format!("md {} superblock, damaged", raw.fields().version()));
    let found: Vec<_> =
        superblocks.chain(damaged).chain(seen.signatures.iter().map(ToString::to_string)).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let what = format!("{name}: it holds data: {}", found.join(", "));
    if forced.has(Check::Signature) {
        return Ok(Some(format!("{what}; overridden")));
    }
    Err(Problem::new(
        Code::SignatureFound,
        what,
        "making it a physical volume destroys it",
        "check that this is the right one; --force=signature goes on all the same",
    )
    .of_member(name)
    .forced_by(Check::Signature))
}

/// What is zeroed of a member that becomes a physical volume: its start, and every place where
/// something was recognised.
pub fn wiped(seen: &MemberScan) -> Vec<Area> {
    let size_bytes = seen.member.device.size_bytes() / 512 * 512;
    let mut ranges = vec![Area { offset_bytes: 0, size_bytes: HEAD_BYTES }];
    let superblocks = seen.superblocks.iter().map(|superblock| superblock.found_at_sectors());
    let damaged = seen.damaged.iter().map(|raw| raw.fields().found_at_sectors());
    let superblocks = superblocks.chain(damaged).map(|sector| (sector.saturating_mul(512), SUPERBLOCK_BYTES));
    let signatures = seen.signatures.iter().map(|signature| (signature.offset_bytes / 512 * 512, 512));
    let areas =
        seen.physical.iter().flat_map(|physical| &physical.areas).map(|area| (area.place.offset_bytes, 512));
    for (offset_bytes, len_bytes) in superblocks.chain(signatures).chain(areas) {
        let end = offset_bytes.saturating_add(len_bytes).min(size_bytes);
        // Ranges in the head too: they tell when something appears there in between.
        if offset_bytes < end {
            ranges.push(Area { offset_bytes, size_bytes: end - offset_bytes });
        }
    }
    ranges
}

/// The size of what a member is now.
///
/// # Errors
/// It cannot be used.
pub async fn size_bytes(core: &Core, stack: &mut Stack, member: MemberId) -> Result<u64, Problem> {
    match stack.scan.members[member].origin {
        MemberOrigin::Given | MemberOrigin::Partition { .. } | MemberOrigin::Container { .. } => {
            Ok(stack.scan.members[member].member.device.size_bytes())
        }
        MemberOrigin::Array(_)
        | MemberOrigin::Logical { .. }
        | MemberOrigin::Decrypted { .. }
        | MemberOrigin::Layered { .. } => Ok(stack.volume(core, member).await?.size_bytes()),
    }
}

/// What is best written at once; 0 if nothing is.
async fn stripe_bytes(core: &Core, stack: &mut Stack, member: MemberId) -> Result<u64, Problem> {
    let bytes = match stack.scan.members[member].origin {
        MemberOrigin::Given | MemberOrigin::Partition { .. } | MemberOrigin::Container { .. } => {
            stack.scan.members[member].member.device.io_opt_bytes()
        }
        MemberOrigin::Array(_)
        | MemberOrigin::Logical { .. }
        | MemberOrigin::Decrypted { .. }
        | MemberOrigin::Layered { .. } => {
            let opened = stack.volume(core, member).await?.open(core);
            opened.map_or(0, |volume| volume.io_opt_bytes())
        }
    };
    let bytes = u64::from(bytes);
    Ok(if bytes.is_multiple_of(4096) && bytes <= STRIPE_BYTES_MAX { bytes } else { 0 })
}
