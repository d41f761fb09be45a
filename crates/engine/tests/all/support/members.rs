//! Members on drives.

use wattle_engine::MemberSpec;
use wattle_engine::units::Sector;
use wattle_rt::Device;

/// A member in sync on each drive, its data from sector `offset` on; none in the slots `missing`.
pub fn in_sync(drives: &[Device], offset: Sector, missing: &[usize]) -> Vec<MemberSpec> {
    let member = |(slot, drive): (usize, &Device)| match missing.contains(&slot) {
        true => MemberSpec::missing(),
        false => MemberSpec::in_sync(drive.clone(), offset),
    };
    drives.iter().enumerate().map(member).collect()
}
