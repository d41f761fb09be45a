//! What makes an array survive a power cut: a write-intent bitmap or a partial parity log, as md's
//! default has them.

use std::sync::Arc;
use std::time::Duration;

use wattle_engine::ArraySpec;
use wattle_engine::intent::IntentSpec;
use wattle_engine::regions::Regions;
use wattle_engine::state::ppl::{LogArea, LogSpec};
use wattle_engine::units::Sector;

use crate::metadata_cost::{LOG_AT, LOG_BYTES, Ppl};

/// Sectors that a bit stands for: mdadm's default of 64 MiB.
pub const REGION: Sector = Sector(64 << 11);
/// md's `daemon_sleep`.
pub const SWEEP: Duration = Duration::from_secs(5);

/// Longer than anything that is measured lasts.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Keeps a bitmap of which no bit is set, and looks for bits to clear every `sweep`.
#[must_use]
pub fn with_intent(spec: ArraySpec, sweep: Duration) -> ArraySpec {
    let marked = Regions::new(REGION, spec.geometry.sync_sectors());
    ArraySpec { intent: Some(IntentSpec { marked, sweep }), ..spec }
}

/// Keeps a bitmap as it is after a long time of writes everywhere: every bit is set, and stays so,
/// since each region is written to again before it would be cleared. (With bits that come and go a
/// measurement would have phases of its own.)
#[must_use]
pub fn with_used_intent(spec: ArraySpec) -> ArraySpec {
    let marked = Regions::full(REGION, spec.geometry.sync_sectors());
    ArraySpec { intent: Some(IntentSpec { marked, sweep: NEVER }), ..spec }
}

/// Writes a partial parity log.
#[must_use]
pub fn with_log(mut spec: ArraySpec) -> ArraySpec {
    for member in &mut spec.members {
        member.log = Some(LogArea { offset_bytes: LOG_AT, size_bytes: LOG_BYTES });
    }
    ArraySpec { log: Some(LogSpec { ring: true, format: Arc::new(Ppl) }), ..spec }
}
