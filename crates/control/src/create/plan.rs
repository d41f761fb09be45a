//! The decision: what a new array is and what is written for it. Pure.

use wattle_engine::geometry::{
    Geometry, GeometryError, Kind, Level, Params, default_layout, layout_name, parse_layout,
};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_format::md::create::{self as new, NewArray};
use wattle_format::md::defaults::{self, Areas, Guard};
use wattle_format::md::{
    DeviceFields, DeviceFlags, Features, Role, SUPERBLOCK_BYTES, Superblock, Timestamp, Uuid, Version,
    badblocks, bitmap, ppl as log,
};

use super::{Consistency, CreatePlan, CreateRequest, DevicePlan, PlannedWrite};
use crate::compat::compatibility;
use crate::facts::{BitmapFacts, CLEAN, SuperblockFacts};
use crate::members::Member;
use crate::problem::{Check, Code, Problem};
use crate::signature::Signature;
use crate::size::Iec;

/// What is on a member before it becomes part of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberState {
    /// Whole sectors.
    pub size_sectors: u64,
    /// md superblocks, valid or not, and where they are.
    pub superblocks: Vec<Signature>,
    /// Everything else that is recognised.
    pub signatures: Vec<Signature>,
    /// All of it is known to read as zeros.
    pub zeros: bool,
}

/// Plans the array. `states` says what is on each member: those of `request.members` that are not missing, in slot order, then the
/// spares.
///
/// # Errors
/// A [`Problem`]: the request makes no sense, a member is too small, or something is on it.
pub fn plan(request: &CreateRequest, states: &[MemberState]) -> Result<CreatePlan, Problem> {
    check_request(request)?;
    let devices = devices(request);
    assert_eq!(devices.len(), states.len(), "one state for each member and spare");
    // A request that makes no sense is refused as that, whatever is on the members: nobody should force one past the other.
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
struct NewDevice<'a> {
    member: &'a Member,
    dev_number: u32,
    slot: Option<u16>,
}

/// Members in slot order, then spares, numbered as mdadm does: a member by its slot, spares behind the slots.
fn devices(request: &CreateRequest) -> Vec<NewDevice<'_>> {
    let members = (0u16..).zip(&request.members).filter_map(|(slot, member)| {
        Some(NewDevice { member: member.as_ref()?, dev_number: u32::from(slot), slot: Some(slot) })
    });
    let first_spare = request.members.len() as u32;
    let spares = (first_spare..).zip(&request.spares).map(|(dev_number, member)| NewDevice {
        member,
        dev_number,
        slot: None,
    });
    members.chain(spares).collect()
}

fn refuse_request(what: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Problem {
    Problem::new(Code::BadRequest, what, why, next)
}

fn bad_request(member: &Member, error: &impl ToString) -> Problem {
    refuse_request(
        format!("{}: {}", member.name, error.to_string()),
        "the metadata version cannot store it",
        "use --metadata 1.2, or ask for less",
    )
    .of_member(&member.name)
}

/// What can be said without looking at members.
fn check_request(request: &CreateRequest) -> Result<(), Problem> {
    let CreateRequest { level, members, .. } = request;
    let present = members.iter().flatten().count();
    let redundant = level.kind() != Kind::Striped;
    if present == 0 {
        return Err(refuse_request(
            "no member is given",
            "an array of missing members holds nothing",
            "name its members",
        ));
    }
    if request.name.is_empty() || request.name.len() > 32 {
        return Err(refuse_request(
            format!("the name `{}` is {} bytes long", request.name, request.name.len()),
            "a superblock stores 1 to 32 bytes, with `host:` if given",
            "choose a shorter name",
        ));
    }
    let short = request.name.rsplit(':').next().unwrap_or_default();
    if short.is_empty() || request.name.contains(|c: char| c == '/' || c.is_control()) {
        return Err(refuse_request(
            format!("the name `{}`", request.name.escape_default()),
            "it names a device node, /dev/md/NAME, and sockets",
            "use 1 to 32 bytes without `/` and control characters, optionally with `host:` in front",
        ));
    }
    if present < members.len() && !redundant {
        return Err(refuse_request(
            format!("{level} with a missing member"),
            "a level without redundancy needs all of its members",
            "give all members, or choose a level with redundancy",
        ));
    }
    if !request.spares.is_empty() && !redundant {
        return Err(refuse_request(
            format!("{level} with spares"),
            "a level without redundancy cannot rebuild onto a spare",
            "leave out the spares",
        ));
    }
    if *level == Level::Raid1 && request.chunk_bytes.is_some() {
        return Err(refuse_request("raid1 with a chunk", "mirrors have no chunks", "leave out --chunk"));
    }
    if request.size_bytes.is_some() && !redundant {
        return Err(refuse_request(
            format!("{level} with a size"),
            "each member of such an array is used as far as it goes",
            "leave out --size",
        ));
    }
    if request.data_offset_bytes.is_some() && matches!(request.version, Version::V090 | Version::V10) {
        return Err(refuse_request(
            format!("a data offset with metadata {}", request.version),
            "its superblock is at the end and the data starts at the start",
            "leave out --data-offset, or use --metadata 1.2",
        ));
    }
    let max = wattle_format::md::max_devices(request.version) as usize;
    if members.len() + request.spares.len() > max {
        return Err(refuse_request(
            format!("{} devices", members.len() + request.spares.len()),
            format!("metadata {} lists at most {max}", request.version),
            "use fewer, or --metadata 1.2",
        ));
    }
    match request.consistency {
        Consistency::Resync => Ok(()),
        Consistency::Bitmap { .. } if redundant => Ok(()),
        Consistency::Bitmap { .. } => Err(refuse_request(
            format!("{level} with a bitmap"),
            "without redundancy there is nothing to resynchronise",
            "leave out --bitmap",
        )),
        Consistency::Ppl => check_ppl(request),
        Consistency::Journal => Err(Problem::new(
            Code::NotSupportedYet,
            "creating an array with a journal",
            "this version does not write one",
            "use --consistency resync, bitmap or ppl, or create it with mdadm",
        )),
    }
}

/// What a partial parity log needs (docs/formats.md §4).
fn check_ppl(request: &CreateRequest) -> Result<(), Problem> {
    /// Most members whose logs the kernel keeps.
    const MEMBERS_MAX: usize = 64;
    let refuse = |what: String, why: &str, next: &str| Err(refuse_request(what, why, next));
    let members = request.members.len();
    if request.level != Level::Raid5 {
        return refuse(
            format!("{} with a partial parity log", request.level),
            "only RAID 5 has one",
            "leave out --consistency=ppl",
        );
    }
    if !request.version.is_1x() {
        return refuse(
            format!("a partial parity log with metadata {}", request.version),
            "its superblock has no room to say so",
            "use --metadata 1.2",
        );
    }
    if !(3..=MEMBERS_MAX).contains(&members) {
        return refuse(
            format!("a partial parity log over {members} members"),
            "it is kept for 3 to 64",
            "leave out --consistency=ppl, or use another number of members",
        );
    }
    if request.chunk_bytes.is_some_and(|bytes| !bytes.is_multiple_of(4096)) {
        return refuse(
            "a partial parity log with chunks that are no whole pages".to_owned(),
            "it is kept in pages of 4 KiB",
            "choose a --chunk that is a multiple of 4K",
        );
    }
    Ok(())
}

/// Refuses members that something is on, unless the operator insists. Returns what they insist on.
fn check_empty(
    request: &CreateRequest,
    devices: &[NewDevice<'_>],
    states: &[MemberState],
) -> Result<Vec<Problem>, Problem> {
    let mut overridden = Vec::new();
    for (device, state) in devices.iter().zip(states) {
        let found: Vec<_> =
            state.superblocks.iter().chain(&state.signatures).map(ToString::to_string).collect();
        if found.is_empty() {
            continue;
        }
        let problem = Problem::new(
            Code::SignatureFound,
            format!("{}: it holds data: {}", device.member.name, found.join(", ")),
            "creating an array here destroys it",
            "check that this is the right member; --force=signature creates the array all the same",
        )
        .of_member(&device.member.name)
        .forced_by(Check::Signature);
        if !request.forced.has(Check::Signature) {
            return Err(problem);
        }
        overridden.push(problem);
    }
    Ok(overridden)
}

/// The numbers of the array.
struct Shape {
    geometry: Geometry,
    layout: u32,
    chunk_sectors: u32,
    data_offset_sectors: u64,
    size_sectors: u64,
    guard: Guard,
    bitmap_chunk_bytes: u32,
    /// Covered by the bitmap.
    sync_size_sectors: u64,
}

fn shape(
    request: &CreateRequest,
    devices: &[NewDevice<'_>],
    states: &[MemberState],
) -> Result<Shape, Problem> {
    let (level, version) = (request.level, request.version);
    let raid_disks = request.members.len() as u32;
    let chunk_sectors = chunk_sectors(request)?;
    let layout = match &request.layout {
        None => default_layout(level),
        Some(name) => parse_layout(level, raid_disks, name).map_err(|error| {
            refuse_request(
                format!("layout `{name}`: {error}"),
                "every level has layouts of its own",
                "see `wattle create --help`",
            )
        })?,
    };
    let data_offset_sectors = match request.data_offset_bytes {
        None => defaults::data_offset_sectors(version, states[0].size_sectors, chunk_sectors, ppl(request)),
        Some(bytes) => data_offset(bytes, version)?,
    };
    let usable = |state: &MemberState| {
        defaults::usable_sectors(version, state.size_sectors, data_offset_sectors, ppl(request))
    };
    let smallest = (0..states.len()).min_by_key(|&ix| usable(&states[ix])).expect("there is a member");
    let too_small = |expected: u64| {
        let (member, state) = (devices[smallest].member, &states[smallest]);
        Problem::new(
            Code::TooSmall,
            format!(
                "{}: {} of data fit, and {} are needed",
                member.name,
                Iec(usable(state) * 512),
                Iec(expected * 512)
            ),
            format!(
                "it has {}, and the data starts at {}",
                Iec(state.size_sectors * 512),
                Iec(data_offset_sectors * 512)
            ),
            "use larger members, a smaller --chunk or a smaller --size",
        )
        .of_member(&member.name)
    };
    let fits = usable(&states[smallest]);
    let wanted = match request.size_bytes {
        Some(bytes) if bytes / 512 > fits => return Err(too_small(bytes / 512)),
        Some(bytes) => bytes / 512,
        None => fits,
    };
    let size_sectors = defaults::component_size_sectors(version, level.to_md(), wanted, chunk_sectors);
    let params = Params {
        level,
        layout,
        chunk: Sector(u64::from(chunk_sectors)),
        raid_disks,
        component_size: Sector(size_sectors),
        member_sizes: states.iter().take(request.members.len()).map(|state| Sector(usable(state))).collect(),
    };
    let geometry = Geometry::new(&params).map_err(|error| match error {
        GeometryError::ComponentTooSmall { min, .. } | GeometryError::MemberTooSmall { min, .. } => {
            too_small(min.0)
        }
        error => refuse_request(
            error.to_string(),
            "the level cannot be built like this",
            "change the number the message names",
        ),
    })?;
    if let Some(hazard) = geometry.hazard() {
        return Err(Problem::new(
            Code::CollidingLayout,
            format!("RAID 10 layout {layout:#x} over {raid_disks} members: {hazard}"),
            "such an array loses data by itself",
            "choose a layout of near or far copies only, or another number of members",
        ));
    }
    let sync_size_sectors = if level == Level::Raid10 { geometry.array_sectors().0 } else { size_sectors };
    let (guard, bitmap_chunk_bytes) = guard(request, size_sectors, sync_size_sectors)?;
    Ok(Shape {
        geometry,
        layout,
        chunk_sectors,
        data_offset_sectors,
        size_sectors,
        guard,
        bitmap_chunk_bytes,
        sync_size_sectors,
    })
}

/// Whether a partial parity log takes room beside the superblock.
fn ppl(request: &CreateRequest) -> bool {
    request.consistency == Consistency::Ppl
}

fn chunk_sectors(request: &CreateRequest) -> Result<u32, Problem> {
    let Some(bytes) = request.chunk_bytes else { return Ok(defaults::chunk_sectors(request.level.to_md())) };
    u32::try_from(bytes / 512).ok().filter(|_| bytes.is_multiple_of(512)).ok_or_else(|| {
        refuse_request(
            format!("a chunk of {bytes} bytes"),
            "a chunk is a whole number of sectors, at most 2 GiB",
            "write it like 64K or 512K",
        )
    })
}

fn data_offset(bytes: u64, version: Version) -> Result<u64, Problem> {
    // Superblock, bad-block log and the room of a bitmap come first.
    let areas = defaults::areas(version, 1 << 20, 1 << 20, Guard::None);
    let first_free = areas.and_then(|areas| {
        let log = areas.bad_block_log?;
        areas
            .super_offset_sectors
            .checked_add_signed(i64::from(log.offset_sectors))?
            .checked_add(u64::from(log.size_sectors))
    });
    let sectors = bytes / 512;
    if !bytes.is_multiple_of(4096) || sectors < first_free.unwrap_or(0) {
        return Err(refuse_request(
            format!("data offset of {bytes} bytes"),
            format!(
                "it must be a multiple of 4 KiB and leave {} for metadata",
                Iec(first_free.unwrap_or(0) * 512)
            ),
            "leave out --data-offset for mdadm's choice",
        ));
    }
    Ok(sectors)
}

/// The bitmap's size and chunk, if there is to be one.
fn guard(
    request: &CreateRequest,
    size_sectors: u64,
    sync_size_sectors: u64,
) -> Result<(Guard, u32), Problem> {
    let chunk_bytes = match request.consistency {
        Consistency::Bitmap { chunk_bytes } => chunk_bytes,
        Consistency::Ppl => return Ok((Guard::Ppl, 0)),
        Consistency::Resync | Consistency::Journal => return Ok((Guard::None, 0)),
    };
    let room_sectors = match request.version {
        // Between the superblock and the end, 60 KiB.
        Version::V090 => 120,
        _ => defaults::bitmap_space_sectors(size_sectors),
    };
    let smallest = defaults::smallest_bitmap_chunk_bytes(sync_size_sectors, room_sectors);
    let chunk = match chunk_bytes {
        None => defaults::bitmap_chunk_bytes(sync_size_sectors, room_sectors),
        Some(asked) => Some(asked)
            .filter(|asked| asked.is_power_of_two() && smallest.is_some_and(|least| *asked >= least)),
    };
    let chunk = chunk.and_then(|chunk| u32::try_from(chunk).ok()).ok_or_else(|| {
        refuse_request(
            "a bitmap with such chunks",
            format!("its chunk is a power of two of at least {}", Iec(smallest.unwrap_or(4096))),
            "leave out the bitmap's chunk for mdadm's choice",
        )
    })?;
    Ok((Guard::Bitmap { bytes: defaults::bitmap_bytes(sync_size_sectors, u64::from(chunk)) }, chunk))
}

/// Whether parity and copies agree from the start, and why.
fn starts_clean(
    request: &CreateRequest,
    shape: &Shape,
    states: &[MemberState],
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
    let parity = request.level.kind() == Kind::Parity;
    if request.level.kind() == Kind::Striped {
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
    let mut roles = vec![Role::Spare; count];
    for device in devices {
        roles[device.dev_number as usize] = device.slot.map_or(Role::Spare, Role::Active);
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
        md_minor: 0,
        nodes: Vec::new(),
    }
}

fn areas(version: Version, size_sectors: u64, shape: &Shape) -> Option<Areas> {
    defaults::areas(version, size_sectors, shape.size_sectors, shape.guard)
}

fn superblock(
    array: &NewArray,
    shape: &Shape,
    device: &NewDevice<'_>,
    state: &MemberState,
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
            shape.guard == Guard::Ppl,
        ),
        recovery_offset: None,
        replacement: false,
        bad_block_log: areas.and_then(|areas| areas.bad_block_log),
        flags: DeviceFlags::default(),
    };
    let mut superblock = new::superblock(array, &fields, state.size_sectors)?;
    if shape.guard == Guard::Ppl {
        // One log after another in the area, as the kernel keeps them once it has run the array: a single one would have to wait
        // for all that it describes to be flushed before the next could be written.
        superblock.clear_features(Features::PPL);
        superblock.add_features(Features::MULTIPLE_PPLS).map_err(new::CreateError::from)?;
    }
    Ok(superblock)
}

/// A UUID for each device: the array's, stirred with the device's number. Nothing depends on it but that it is unique.
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
    state: &MemberState,
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
            daemon_sleep_secs: defaults::DAEMON_SLEEP_SECS,
            write_behind: 0,
        };
        let room_bytes = match (request.version, shape.guard) {
            (Version::V090, _) => 60 << 10,
            (_, Guard::Bitmap { bytes }) => bytes.next_multiple_of(4096),
            _ => 0,
        };
        let bytes =
            bitmap::new_image(&new, room_bytes).map_err(|error| bad_request(device.member, &error))?;
        writes.push(PlannedWrite { what: "bitmap".to_owned(), offset_bytes, bytes });
    }
    let log = superblock.ppl().filter(|_| shape.guard == Guard::Ppl);
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

/// The same array by mdadm.
fn mdadm_command(request: &CreateRequest, shape: &Shape, clean: bool) -> String {
    let name = request.name.rsplit_once(':').map_or(request.name.as_str(), |(_, name)| name);
    let mut words = vec![format!(
        "mdadm --create {} --metadata={}",
        shell_word(&format!("/dev/md/{name}")),
        request.version
    )];
    if let Some((host, _)) = request.name.rsplit_once(':') {
        words.push(shell_word(&format!("--homehost={host}")));
    }
    words.push(format!("--level={} --raid-devices={}", request.level, request.members.len()));
    if !request.spares.is_empty() {
        words.push(format!("--spare-devices={}", request.spares.len()));
    }
    if shape.chunk_sectors != 0 {
        words.push(format!("--chunk={}K", shape.chunk_sectors / 2));
    }
    if let Some(layout) = layout_name(request.level, shape.layout) {
        let short = match request.level {
            Level::Raid10 => format!(
                "{}{}",
                if shape.layout & 0x10000 != 0 {
                    "o"
                } else if shape.layout & 0xff > 1 {
                    "n"
                } else {
                    "f"
                },
                if shape.layout & 0xff > 1 { shape.layout & 0xff } else { shape.layout >> 8 & 0xff }
            ),
            _ => layout,
        };
        words.push(format!("--layout={short}"));
    }
    if request.data_offset_bytes.is_some() {
        words.push(format!("--data-offset={}K", shape.data_offset_sectors / 2));
    }
    if request.size_bytes.is_some() {
        words.push(format!("--size={}K", shape.size_sectors / 2));
    }
    words.push(match shape.guard {
        Guard::Bitmap { .. } => {
            format!("--bitmap=internal --bitmap-chunk={}K", shape.bitmap_chunk_bytes / 1024)
        }
        Guard::Ppl => "--consistency-policy=ppl".to_owned(),
        Guard::None => "--bitmap=none".to_owned(),
    });
    if clean && request.level.kind() != Kind::Striped {
        words.push("--assume-clean".to_owned());
    } else if matches!(request.level, Level::Raid4 | Level::Raid5) {
        words.push("--force".to_owned());
    }
    let members =
        request.members.iter().map(|member| member.as_ref().map_or("missing", |member| member.name.as_str()));
    words.extend(members.map(shell_word));
    words.extend(request.spares.iter().map(|spare| shell_word(&spare.name)));
    words.join(" ")
}

/// A word that a shell takes as it is: people paste the command, and run it as root.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
