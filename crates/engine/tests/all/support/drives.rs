//! Drives to build arrays of.

use wattle_rt::{Device, DriveConfig, SimWorld};

/// Drives with the numbers from 0 on in their names.
pub fn drives(world: &mut SimWorld, count: usize, config: &DriveConfig) -> Vec<Device> {
    let drive = |slot| DriveConfig { name: format!("drive{slot}"), ..config.clone() };
    (0..count).map(|slot| world.add_drive(drive(slot))).collect()
}
