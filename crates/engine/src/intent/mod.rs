//! Write intent: which regions may have writes that are not on every member yet.

use std::time::Duration;

use crate::regions::Regions;

/// A write-intent bitmap to keep.
#[derive(Debug, Clone)]
pub struct IntentSpec {
    /// The regions, and those whose bit is set on the members.
    pub marked: Regions,
    /// How often regions that are not in use are looked for (md's `daemon_sleep`).
    pub sweep: Duration,
}
