//! The numbers of a new array.

use wattle_engine::geometry::{Geometry, GeometryError, Level, Params, default_layout, parse_layout};
use wattle_engine::units::Sector;
use wattle_format::md::Version;
use wattle_format::md::defaults::{self, WriteHoleRoom};

use super::check::refuse_request;
use super::plan::{MemberContents, NewDevice};
use super::{Consistency, CreateRequest};
use crate::problem::{Code, Problem};
use crate::size::Iec;

/// A size of a member of which only the start matters.
const ANY_SIZE_SECTORS: u64 = 1 << 20;

/// The numbers of the array.
pub(super) struct Shape {
    pub geometry: Geometry,
    pub layout: u32,
    pub chunk_sectors: u32,
    pub data_offset_sectors: u64,
    pub size_sectors: u64,
    pub guard: WriteHoleRoom,
    pub bitmap_chunk_bytes: u32,
    /// Covered by the bitmap.
    pub sync_size_sectors: u64,
}

pub(super) fn shape(
    request: &CreateRequest,
    devices: &[NewDevice<'_>],
    states: &[MemberContents],
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
        Some(bytes) => data_offset(bytes)?,
    };
    let usable = |state: &MemberContents| {
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
    // Metadata 0.90 has no room to say which.
    let unstated = level == Level::Raid0 && !version.is_1x();
    let params = Params {
        level,
        layout: if unstated { 0 } else { layout },
        chunk: Sector(u64::from(chunk_sectors)),
        raid_disks,
        component_size: Sector(size_sectors),
        member_sizes: states.iter().take(request.members.len()).map(|state| Sector(usable(state))).collect(),
    };
    let geometry = Geometry::new(&params).map_err(|error| match error {
        GeometryError::ComponentTooSmall { min, .. } | GeometryError::MemberTooSmall { min, .. } => {
            too_small(min.0)
        }
        GeometryError::Raid0LayoutUnknown { .. } => refuse_request(
            format!("raid0 over members of such sizes with metadata {version}"),
            "its data could be placed in two ways, and this metadata cannot say in which: nothing would open it",
            "use --metadata 1.2, or members of one size",
        ),
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
    leaves_room(request, size_sectors, guard)?;
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

/// As it was asked for; whether it leaves room is known with the guard ([`leaves_room`]).
fn data_offset(bytes: u64) -> Result<u64, Problem> {
    if !bytes.is_multiple_of(4096) {
        return Err(refuse_data_offset(bytes, "it must be a multiple of 4 KiB".to_owned()));
    }
    Ok(bytes / 512)
}

/// Refuses a data offset that was asked for if superblock, bitmap, partial parity log and bad-block
/// log do not all end before it.
fn leaves_room(request: &CreateRequest, size_sectors: u64, guard: WriteHoleRoom) -> Result<(), Problem> {
    let Some(bytes) = request.data_offset_bytes else { return Ok(()) };
    // In these versions they lie at the same place on every member, whatever its size.
    let areas = defaults::areas(request.version, ANY_SIZE_SECTORS, size_sectors, guard);
    let taken = areas.map_or(0, |areas| areas.end_sectors(guard));
    if bytes / 512 < taken {
        let why = format!("it must leave {} for metadata", Iec(taken * 512));
        return Err(refuse_data_offset(bytes, why));
    }
    Ok(())
}

fn refuse_data_offset(bytes: u64, why: String) -> Problem {
    refuse_request(
        format!("data offset of {bytes} bytes"),
        why,
        "leave out --data-offset for mdadm's choice, or choose a larger one",
    )
}

/// The bitmap's size and chunk, if there is to be one.
fn guard(
    request: &CreateRequest,
    size_sectors: u64,
    sync_size_sectors: u64,
) -> Result<(WriteHoleRoom, u32), Problem> {
    let chunk_bytes = match request.consistency {
        Consistency::Bitmap { chunk_bytes } => chunk_bytes,
        Consistency::Ppl => return Ok((WriteHoleRoom::Ppl, 0)),
        Consistency::Resync | Consistency::Journal => return Ok((WriteHoleRoom::None, 0)),
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
    Ok((WriteHoleRoom::Bitmap { bytes: defaults::bitmap_bytes(sync_size_sectors, u64::from(chunk)) }, chunk))
}
