//! What write-intent bitmap an array keeps.

use std::time::Duration;

use crate::model::regions::Regions;

/// A write-intent bitmap to keep.
#[derive(Debug, Clone)]
pub struct IntentSpec {
    /// The regions, and the bits that are set on the members.
    pub marked: Regions,
    /// How often regions that are not in use are looked for (md's `daemon_sleep`).
    pub sweep: Duration,
}
