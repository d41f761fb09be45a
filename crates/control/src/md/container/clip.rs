//! A volume that ends before its members do: firmware rounds sizes, and what lies at a volume's end
//! (a backup partition table) is looked for at the end that the container states.

use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_engine::volume::StartMappedError;
use wattle_engine::{
    ArrayHandle, ArraySpec, Leg, MapSegment, MapSpec, MappedHandle, MemberKey, MemberSpec, SegmentTarget,
    VolumeError, VolumeRef,
};
use wattle_rt::Core;

use crate::md::reshape;
use crate::problem::{Code, Problem};

/// The array of one member that is the first `sectors` of the array of `spec`, and what runs below
/// it, the upper layers first.
///
/// # Errors
/// A [`Problem`]: the numbers do not fit together.
pub(crate) async fn clip(
    core: &Core,
    spec: ArraySpec,
    sectors: u64,
) -> Result<(ArraySpec, Vec<VolumeRef>), Problem> {
    let name = spec.name.clone();
    let whole = ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume();
    match over(core, &name, &whole, sectors).await {
        Ok((spec, mapped)) => Ok((spec, vec![mapped, whole])),
        Err(error) => {
            // It is read-only: nothing is to be recorded.
            let _ = whole.stop(core).await;
            Err(Problem::new(
                Code::ContainerUnsupported,
                format!("{name}: it cannot be ended at sector {sectors}: {error}"),
                "the container says something that cannot be",
                "`wattle scan --json` shows the volume as its drives describe it; mdadm may assemble it",
            ))
        }
    }
}

async fn over(
    core: &Core,
    name: &str,
    whole: &VolumeRef,
    sectors: u64,
) -> Result<(ArraySpec, VolumeRef), StartMappedError> {
    let target = SegmentTarget::Linear(Leg { below: 0, offset_bytes: 0 });
    let segments = vec![MapSegment { len_bytes: sectors * SECTOR_BYTES, target }];
    let spec = MapSpec { below: vec![whole.clone()], segments, read_only: true };
    let mapped = MappedHandle::start(core, name, spec).await?.volume();
    let device = mapped.device(core, name)?;
    let geometry = reshape::whole(Sector(sectors)).ok_or(VolumeError::OutOfRange)?;
    let member = MemberSpec { key: Some(MemberKey(0)), ..MemberSpec::in_sync(device, Sector(0)) };
    Ok((ArraySpec { read_only: true, ..ArraySpec::new(name, geometry, vec![member]) }, mapped))
}
