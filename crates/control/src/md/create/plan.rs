//! The decision: what a new array is and what is written for it. Pure.

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_format::md::create::{self as new, NewArray};
use wattle_format::md::defaults::{self, Areas, WriteHoleRoom};
use wattle_format::md::{
    DeviceFields, DeviceFlags, DeviceRole, Features, SUPERBLOCK_BYTES, Superblock, Timestamp, Uuid, Version,
    badblocks, bitmap, ppl as log,
};

use super::check::{bad_request, check_empty, check_request, refuse_request};
use super::mdadm::mdadm_command;
use super::shape::{Shape, shape};
use super::{CreatePlan, CreateRequest, DevicePlan, PlannedWrite};
use crate::md::compat::compatibility;
use crate::md::facts::{BitmapFacts, CLEAN, SuperblockFacts};
use crate::md::superblocks::Superblocks;
use crate::members::Member;
use crate::problem::Problem;
use crate::signature::FoundSignature;

/// What is on a member before it becomes part of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberContents {
    /// Whole sectors.
    pub size_sectors: u64,
    /// md superblocks, valid or not, and where they are.
    pub superblocks: Vec<FoundSignature>,
    /// Everything else that is recognised.
    pub signatures: Vec<FoundSignature>,
    /// All of it is known to read as zeros.
    pub zeros: bool,
    /// All that `superblocks` say: in the same place there may be another array the next moment.
    pub(super) exact: Superblocks,
}

/// Plans the array. `states` says what is on each member: those of `request.members` that are not
/// missing, in slot order, then the spares.
///
/// # Errors
/// A [`Problem`]: the request makes no sense, a member is too small, or something is on it.
pub fn plan(request: &CreateRequest, states: &[MemberContents]) -> Result<CreatePlan, Problem> {
    check_request(request)?;
    let devices = devices(request);
    assert_eq!(devices.len(), states.len(), "one state for each member and spare");
    // A request that makes no sense is refused as that, whatever is on the members: no option
    // forces it past that.
    let shape = shape(request, &devices, states)?;
    let (clean, clean_reason) = starts_clean(request, &shape, states)?;
    let overridden = check_empty(request, &devices, states)?;
    let array = new_array(request, &shape, &devices, clean);

    let mut plans = Vec::with_capacity(devices.len());
    let mut superblocks = Vec::with_capacity(devices.len());
    for (device, state) in devices.iter().zip(states) {
        let superblock =
            superblock(&array, &shape, device, state).map_err(|error| bad_request(device.member, &error))?;
        plans.push(DevicePlan {
            member: device.member.clone(),
            slot: device.slot,
            writes: writes(request, &array, &shape, device, state, &superblock)?,
        });
        superblocks.push(superblock);
    }
    let first = superblocks.swap_remove(0);
    let bitmap =
        if array.bitmap_offset_sectors.is_some() { BitmapFacts::Version(4) } else { BitmapFacts::None };
    Ok(CreatePlan {
        compatibility: compatibility(&SuperblockFacts::of(&first), bitmap, 0),
        mdadm_command: mdadm_command(request, &shape, clean),
        geometry: shape.geometry,
        superblock: first,
        devices: plans,
        clean,
        clean_reason,
        overridden,
    })
}

/// A member with its number and slot.
pub(super) struct NewDevice<'a> {
    pub member: &'a Member,
    pub dev_number: u32,
    pub slot: Option<u16>,
    pub write_mostly: bool,
}

/// Members in slot order, then spares, numbered as mdadm does: a member by its slot, spares behind
/// the slots.
fn devices(request: &CreateRequest) -> Vec<NewDevice<'_>> {
    let write_mostly = |member: &Member| request.write_mostly.contains(&member.name);
    let members = (0u16..).zip(&request.members).filter_map(|(slot, member)| {
        let member = member.as_ref()?;
        let write_mostly = write_mostly(member);
        Some(NewDevice { member, dev_number: u32::from(slot), slot: Some(slot), write_mostly })
    });
    let first_spare = request.members.len() as u32;
    let spares = (first_spare..).zip(&request.spares).map(|(dev_number, member)| NewDevice {
        member,
        dev_number,
        slot: None,
        write_mostly: write_mostly(member),
    });
    members.chain(spares).collect()
}

/// Whether parity and copies agree from the start, and why.
fn starts_clean(
    request: &CreateRequest,
    shape: &Shape,
    states: &[MemberContents],
) -> Result<(bool, &'static str), Problem> {
    let missing: MemberSet = (0..)
        .zip(&request.members)
        .filter(|(_, member)| member.is_none())
        .map(|(slot, _)| MemberIx(slot))
        .collect();
    if !shape.geometry.survives(&missing) {
        return Err(refuse_request(
            format!("{} of {} members are missing", missing.len(), request.members.len()),
            format!("{} cannot do without so many", request.level),
            "give more members",
        ));
    }
    let parity = request.level.kind() == LevelKind::Parity;
    if request.level.kind() == LevelKind::Striped {
        return Ok((true, "the level has no redundancy that could differ"));
    }
    if request.assume_clean {
        return Ok((true, "--assume-clean vouches that parity and copies agree"));
    }
    if states.iter().take(request.members.iter().flatten().count()).all(|state| state.zeros) {
        return Ok((true, "every member reads as zeros, so that parity and copies agree already"));
    }
    if parity && missing.len() == shape.geometry.redundancy() {
        return Ok((true, "with these members missing no redundancy is left that could differ"));
    }
    if parity && !missing.is_empty() {
        return Err(refuse_request(
            "a RAID 6 with one missing member and unknown content",
            "it would be dirty and degraded from the start, and nothing would assemble it",
            "give all members, leave out two, or vouch for the content with --assume-clean",
        ));
    }
    Ok((
        false,
        "the members' content is unknown: the array has to be synchronised once, and until then parity is not trusted",
    ))
}

fn new_array(request: &CreateRequest, shape: &Shape, devices: &[NewDevice<'_>], clean: bool) -> NewArray {
    let count = request.members.len() + request.spares.len();
    let mut roles = vec![DeviceRole::Spare; count];
    for device in devices {
        roles[device.dev_number as usize] = device.slot.map_or(DeviceRole::Spare, DeviceRole::Active);
    }
    let stated_layout = request.level == Level::Raid0 && request.version.is_1x();
    NewArray {
        version: request.version,
        set_uuid: request.set_uuid,
        name: request.name.clone().into_bytes(),
        ctime: Timestamp { secs: request.now.secs, micros: 0 },
        level: request.level.to_md(),
        layout: shape.layout,
        chunk_sectors: shape.chunk_sectors,
        raid_disks: request.members.len() as u32,
        size_sectors: shape.size_sectors,
        resync_offset: if clean { CLEAN } else { 0 },
        roles,
        bitmap_offset_sectors: areas(request.version, 1 << 20, shape)
            .and_then(|areas| areas.bitmap_offset_sectors),
        ppl: areas(request.version, 1 << 20, shape).and_then(|areas| areas.ppl),
        features: if stated_layout { Features::RAID0_LAYOUT } else { Features::default() },
        md_minor: minor(&request.name).unwrap_or(0),
        nodes: Vec::new(),
    }
}

/// The number of the device that an array of this name is for, which is all that metadata 0.90
/// keeps of a name: that of `1` or `md1`, for whatever host.
#[must_use]
pub fn minor(name: &str) -> Option<u32> {
    let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
    let digits = name.strip_prefix("md").unwrap_or(name);
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn areas(version: Version, size_sectors: u64, shape: &Shape) -> Option<Areas> {
    defaults::areas(version, size_sectors, shape.size_sectors, shape.guard)
}

fn superblock(
    array: &NewArray,
    shape: &Shape,
    device: &NewDevice<'_>,
    state: &MemberContents,
) -> Result<Superblock, new::CreateError> {
    let areas = areas(array.version, state.size_sectors, shape);
    let fields = DeviceFields {
        dev_number: device.dev_number,
        device_uuid: device_uuid(array.set_uuid, device.dev_number),
        super_offset_sectors: areas.map_or(0, |areas| areas.super_offset_sectors),
        data_offset_sectors: shape.data_offset_sectors,
        data_size_sectors: defaults::usable_sectors(
            array.version,
            state.size_sectors,
            shape.data_offset_sectors,
            shape.guard == WriteHoleRoom::Ppl,
        ),
        recovery_offset: None,
        replacement: false,
        bad_block_log: areas.and_then(|areas| areas.bad_block_log),
        flags: if device.write_mostly { DeviceFlags::WRITE_MOSTLY } else { DeviceFlags::default() },
    };
    let mut superblock = new::superblock(array, &fields, state.size_sectors)?;
    if shape.guard == WriteHoleRoom::Ppl {
        // One log after another in the area, as the kernel keeps them once it has run the array: a
        // single one would have to wait for all that it describes to be flushed before the next
        // could be written.
        superblock.clear_features(Features::PPL);
        superblock.add_features(Features::MULTIPLE_PPLS).map_err(new::CreateError::from)?;
    }
    Ok(superblock)
}

/// A UUID for each device: the array's, stirred with the device's number. Nothing depends on it but
/// that it is unique.
fn device_uuid(set_uuid: Uuid, dev_number: u32) -> Uuid {
    let mut state = u64::from(dev_number) + 1;
    let mut bytes = set_uuid.0;
    for half in bytes.chunks_exact_mut(8) {
        let mut word = u64::from_le_bytes(half.try_into().expect("chunks of eight bytes"));
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word ^= state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        half.copy_from_slice(&(word ^ word >> 31).to_le_bytes());
    }
    Uuid(bytes)
}

/// What is written on one device, in order.
fn writes(
    request: &CreateRequest,
    array: &NewArray,
    shape: &Shape,
    device: &NewDevice<'_>,
    state: &MemberContents,
    superblock: &Superblock,
) -> Result<Vec<PlannedWrite>, Problem> {
    let place = superblock.found_at_sectors() * 512;
    let mut writes: Vec<_> = state
        .superblocks
        .iter()
        .filter(|old| old.offset_bytes != place)
        .map(|old| PlannedWrite {
            what: format!("zeros over the {}", old.what),
            offset_bytes: old.offset_bytes,
            bytes: vec![0; SUPERBLOCK_BYTES],
        })
        .collect();
    let at =
        |offset_sectors: i32| superblock.sector_from_superblock(offset_sectors).map(|sector| sector * 512);
    if let (Some(offset_bytes), true) = (array.bitmap_offset_sectors.and_then(at), device.slot.is_some()) {
        let new = bitmap::NewBitmap {
            uuid: superblock.stored_uuid(),
            sync_size_sectors: shape.sync_size_sectors,
            chunk_bytes: shape.bitmap_chunk_bytes,
            daemon_sleep_secs: request.bitmap_sweep_secs.unwrap_or(defaults::DAEMON_SLEEP_SECS),
            write_behind: 0,
        };
        let room_bytes = match (request.version, shape.guard) {
            (Version::V090, _) => 60 << 10,
            (_, WriteHoleRoom::Bitmap { bytes }) => bytes.next_multiple_of(4096),
            _ => 0,
        };
        let bytes =
            bitmap::new_image(&new, room_bytes).map_err(|error| bad_request(device.member, &error))?;
        writes.push(PlannedWrite { what: "bitmap".to_owned(), offset_bytes, bytes });
    }
    let log = superblock.ppl().filter(|_| shape.guard == WriteHoleRoom::Ppl);
    if let Some((offset_bytes, area)) = log.and_then(|area| Some((at(area.offset_sectors.into())?, area))) {
        let bytes = log::empty_area(&superblock.stored_uuid(), usize::from(area.size_sectors) * 512);
        writes.push(PlannedWrite { what: "partial parity log".to_owned(), offset_bytes, bytes });
    }
    if let Some((offset_bytes, area)) =
        superblock.bad_block_log().and_then(|area| Some((at(area.offset_sectors)?, area)))
    {
        let bytes = badblocks::empty_area(usize::from(area.size_sectors) * 512);
        writes.push(PlannedWrite { what: "bad-block log".to_owned(), offset_bytes, bytes });
    }
    let bytes = superblock.bytes().to_vec();
    writes.push(PlannedWrite {
        what: format!("md {} superblock", request.version),
        offset_bytes: place,
        bytes,
    });
    Ok(writes)
}
