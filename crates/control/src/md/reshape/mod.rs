//! Reading an array in the middle of a reshape.
//!
//! Each side is an array of the engine's with the geometry and the data offsets of that side. A map
//! joins the two at the position, and what clients read is an array of one member on that map: what
//! looks after arrays finds one.
//!
//! Invariant: nothing is written. Both sides are read-only, and so is what lies on them.

mod past;
mod window;

use std::collections::BTreeMap;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::volume::StartMappedError;
use wattle_engine::{
    ArrayHandle, ArraySpec, Leg, MapSegment, MapSpec, MappedHandle, MemberKey, MemberSpec, SegmentTarget,
    VolumeError, VolumeRef,
};
use wattle_format::md::backup::ReshapeBackup;
use wattle_rt::{Core, Device};

use self::window::{Piece, Sides, Source};
use super::assemble::{ReshapeAssembly, ReshapeSide};
use super::start::{ClaimedMember, spec_of};
use crate::problem::{Code, Problem};

/// How far parity and copies of both sides are trusted.
pub(super) struct SideTrust {
    /// They agree below this: everywhere or nowhere.
    pub below: Sector,
    /// It was not stopped in good order.
    pub unclean: bool,
}

/// A joined array, about to be started.
pub(super) struct Joined {
    /// The array of one member that clients read.
    pub spec: ArraySpec,
    /// What runs below it, the upper layers first.
    pub below: Vec<VolumeRef>,
}

/// A backup file, and what its header says. It is only read.
#[derive(Debug, Clone)]
pub(crate) struct BackupFile {
    /// The file.
    pub device: Device,
    /// Its header.
    pub header: ReshapeBackup,
}

/// Starts both sides and the map. `members` are those in slots, by their place among the members
/// given.
///
/// # Errors
/// A [`Problem`]: the numbers do not fit together.
pub(super) async fn join(
    core: &Core,
    name: &str,
    reshape: &ReshapeAssembly,
    members: &BTreeMap<usize, &ClaimedMember>,
    trust: &SideTrust,
    backups: &[BackupFile],
) -> Result<Joined, Problem> {
    let mut below = Vec::new();
    let joined = join_over(core, name, reshape, &mut below, (members, trust, backups)).await;
    match joined {
        Ok(spec) => Ok(Joined { spec, below: below.into_iter().rev().collect() }),
        Err(error) => {
            for volume in below.iter().rev() {
                // They are read-only: nothing is to be recorded.
                let _ = volume.stop(core).await;
            }
            Err(not_joined(name, &error.to_string()))
        }
    }
}

/// Starts what clients do not see, the lower layers first, and leaves it in `below`, also where it
/// fails.
async fn join_over(
    core: &Core,
    name: &str,
    reshape: &ReshapeAssembly,
    below: &mut Vec<VolumeRef>,
    (members, trust, backups): (&BTreeMap<usize, &ClaimedMember>, &SideTrust, &[BackupFile]),
) -> Result<ArraySpec, StartMappedError> {
    let mut places = [None, None];
    for (place, side) in places.iter_mut().zip([&reshape.old, &reshape.new]) {
        // One that holds nothing may lack anything.
        if side.is_enough_alone() {
            *place = Some(below.len());
            let spec = side_spec(name, side, members, trust);
            below.push(ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume());
        }
    }
    let first_file = below.len();
    for backup in backups {
        let spec = ArraySpec { read_only: true, ..one_member(name, backup.device.clone())? };
        below.push(ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume());
    }
    let open = |place: usize| below.get(place).map(|volume| volume.open(core)).transpose();
    let opened = |place: Option<usize>| place.map_or(Ok(None), open);
    let files = (first_file..).zip(backups).map(|(place, backup)| {
        let volume = open(place)?.ok_or(VolumeError::Stopped)?;
        Ok((backup.header.clone(), volume))
    });
    let files = files.collect::<Result<Vec<_>, VolumeError>>()?;
    let sides = Sides { reshape, old: opened(places[0])?, new: opened(places[1])?, backups: &files };
    let segment = |piece: &Piece| {
        let at = |place: Option<usize>, sectors: u64| {
            let leg = place.map(|below| Leg { below, offset_bytes: sectors * SECTOR_BYTES });
            leg.map_or(SegmentTarget::Missing, SegmentTarget::Linear)
        };
        let start = piece.sectors.start;
        let target = match piece.source {
            Source::Old => at(places[0], start),
            Source::New => at(places[1], start),
            Source::Kept { file, at_sectors } => at(Some(first_file + file), at_sectors),
            Source::Unknown => SegmentTarget::Missing,
        };
        MapSegment { len_bytes: (piece.sectors.end - start) * SECTOR_BYTES, target }
    };
    let segments = sides.pieces().await.iter().map(segment).collect();
    let spec = MapSpec { below: below.clone(), segments, read_only: true };
    let mapped = MappedHandle::start(core, name, spec).await?.volume();
    below.push(mapped.clone());
    Ok(one_member(name, mapped.device(core, name)?)?)
}

/// One side as an array of its own.
fn side_spec(
    name: &str,
    side: &ReshapeSide,
    members: &BTreeMap<usize, &ClaimedMember>,
    trust: &SideTrust,
) -> ArraySpec {
    let slots = (0..side.geometry.raid_disks() as u16).map(|slot| {
        let (ix, data_offset) = side.member_in(MemberIx(slot))?;
        let member = members.get(&ix)?;
        let bad = side.bad.get(ix).cloned().unwrap_or_default();
        let key = MemberKey(u32::from(slot));
        Some(MemberSpec { data_offset, bad, log: None, ..spec_of(key, member) })
    });
    let slots = slots.map(|member| member.unwrap_or_else(MemberSpec::missing)).collect();
    ArraySpec {
        read_only: true,
        synced_below: trust.below,
        unclean: trust.unclean,
        ..ArraySpec::new(name, side.geometry.clone(), slots)
    }
}

fn one_member(name: &str, device: Device) -> Result<ArraySpec, VolumeError> {
    let geometry = whole(Sector(device.size_bytes() / SECTOR_BYTES)).ok_or(VolumeError::OutOfRange)?;
    let member = MemberSpec { key: Some(MemberKey(0)), ..MemberSpec::in_sync(device, Sector(0)) };
    Ok(ArraySpec::new(name, geometry, vec![member]))
}

/// One member as it is. `None` if it holds no sector.
#[must_use]
pub fn whole(sectors: Sector) -> Option<Geometry> {
    let params = Params {
        level: Level::Linear,
        layout: 0,
        chunk: Sector(0),
        raid_disks: 1,
        component_size: sectors,
        member_sizes: vec![sectors],
    };
    Geometry::new(&params).ok()
}

fn not_joined(name: &str, error: &str) -> Problem {
    Problem::new(
        Code::Reshaping,
        format!("{name}: its old and new geometry cannot be read as one: {error}"),
        "the superblocks of a reshape say something that cannot be",
        "`wattle examine` shows every field; assemble it with the kernel and let the reshape finish",
    )
}
