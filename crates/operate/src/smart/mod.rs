//! What drives say of themselves, by way of smartctl.
//!
//! [`parse`] reads what `smartctl -j -a` wrote; [`ask`] runs it, for a bounded time. A
//! [`DriveWatch`] keeps what was said, asks again now and then on a thread of its own, and never
//! makes the reader wait. Sleeping drives are left asleep.

mod json;
mod query;
mod watch;

pub use json::parse;
pub use query::{SmartSettings, ask, ask_all};
pub use watch::{DriveWatch, drive_below};

use serde::Serialize;

/// What a drive said. What it does not know, or has no such thing, is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DriveHealth {
    /// The device that was asked.
    pub drive: String,
    /// `ATA`, `SCSI` or `NVMe`.
    pub protocol: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its World Wide Name, or the id of its logical unit.
    pub wwn: Option<String>,
    /// Its own verdict: `false` if it expects to fail.
    pub is_healthy: Option<bool>,
    /// How long it has run.
    pub power_on_hours: Option<u64>,
    /// Its temperature.
    pub temperature_celsius: Option<i64>,
    /// Sectors that it has replaced; for SCSI the grown defects.
    pub reallocated: Option<u64>,
    /// Sectors that it could not read and will replace once they are written.
    pub pending: Option<u64>,
    /// Sectors that its own scan could not read.
    pub offline_uncorrectable: Option<u64>,
    /// Transfers that arrived damaged.
    pub crc_errors: Option<u64>,
    /// Errors that it could not correct; for NVMe the media errors.
    pub uncorrected_errors: Option<u64>,
    /// What is left of the spare blocks, in percent.
    pub spare_percent: Option<u32>,
    /// What is used of its promised life, in percent; may be more than a hundred.
    pub used_percent: Option<u32>,
    /// How long it tries to read a sector, in tenths of a second; 0 if without end.
    pub erc_read_deciseconds: Option<u32>,
    /// When it said this, in seconds since 1970.
    pub asked_secs: Option<u64>,
}
