//! Reading an array in the middle of a reshape.
//!
//! Each side is an array of the engine's with the geometry and the data offsets of that side. A map
//! joins the two at the position, and what clients read is an array of one member on that map: what
//! looks after arrays finds one.
//!
//! Invariant: nothing is written. Both sides are read-only, and so is what lies on them.

use std::collections::BTreeMap;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{
    ArrayHandle, ArraySpec, Leg, MapSegment, MapSpec, MappedHandle, MemberKey, MemberSpec, SegmentTarget,
    VolumeError, VolumeRef,
};
use wattle_rt::{Core, Device};

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

/// Starts both sides and the map. `members` are those in slots, by their place among the members
/// given.
pub(super) async fn join(
    core: &Core,
    name: &str,
    reshape: &ReshapeAssembly,
    members: &BTreeMap<usize, &ClaimedMember>,
    trust: &SideTrust,
) -> Result<Joined, Problem> {
    let (mut sides, mut segments) = (Vec::new(), Vec::new());
    for side in reshape.sides() {
        let spec = side_spec(name, side, members, trust);
        let leg = Leg { below: sides.len(), offset_bytes: side.sectors.start * SECTOR_BYTES };
        let len_bytes = (side.sectors.end - side.sectors.start) * SECTOR_BYTES;
        segments.push(MapSegment { len_bytes, target: SegmentTarget::Linear(leg) });
        sides.push(ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume());
    }
    let spec = MapSpec { below: sides.clone(), segments, read_only: true };
    let mapped = match MappedHandle::start(core, name, spec).await {
        Ok(mapped) => mapped,
        Err(error) => {
            stop(core, &sides).await;
            return Err(not_joined(name, &error.to_string()));
        }
    };
    let below: Vec<_> = [mapped.volume()].into_iter().chain(sides).collect();
    match mapped.volume().device(core, name).and_then(|device| one_member(name, device)) {
        Ok(spec) => Ok(Joined { spec, below }),
        Err(error) => {
            stop(core, &below).await;
            Err(not_joined(name, &error.to_string()))
        }
    }
}

async fn stop(core: &Core, volumes: &[VolumeRef]) {
    for volume in volumes {
        // They are read-only: nothing is to be recorded.
        let _ = volume.stop(core).await;
    }
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
