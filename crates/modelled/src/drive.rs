//! Drives made of facts.

use wattle_drives::Drive;
use wattle_rt::{Device, DriveConfig};

/// The drive in memory, in real time.
#[must_use]
pub fn device(drive: &Drive, name: impl Into<String>) -> Device {
    Device::modelled(name, drive.size_bytes, drive.sector_bytes, &drive.model)
}

/// The drive for a world in virtual time.
#[must_use]
pub fn config(drive: &Drive, name: impl Into<String>) -> DriveConfig {
    DriveConfig {
        size_bytes: drive.size_bytes,
        sector_bytes: drive.sector_bytes,
        volatile_cache: drive.model.cache_bytes > 0,
        model: Some(drive.model.clone()),
        name: name.into(),
        ..DriveConfig::default()
    }
}
