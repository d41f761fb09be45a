//! What is to be done next: what redundancy needs comes before what was asked for.

use std::ops::Range;

use super::control::{Control, targets};
use super::report::JobKind;
use super::sums::Recording;
use super::unit::Task;
use crate::model::fixed::Fixed;
use crate::model::geometry::{Geometry, Level};
use crate::model::health::Health;
use crate::model::units::{MemberIx, Sector};

/// What is to be done, and where.
pub(super) fn next(
    control: &Control,
    health: &Health,
    fixed: &Fixed,
) -> Option<(Task, Range<Sector>, Recording)> {
    if health.broken || control.paused.get() || control.frozen.get() {
        return None;
    }
    let tried = |action| control.gave_up.borrow().contains(&(action, health.epoch));
    let geometry = &fixed.geometry;
    let synced = geometry.sync_sectors();
    if !health.trust.complete(synced) && !tried(JobKind::Resync) {
        let from = if is_last_copy(health, geometry) { synced } else { health.trust.below };
        return Some((Task::Resync, from..synced, Recording::Off));
    }
    let targets = targets(health);
    if !targets.is_empty() && !tried(JobKind::Recover) {
        let lowest = health.rebuilding().map(|(_, valid_below)| valid_below).min().unwrap_or_default();
        let end = geometry.member_sectors(MemberIx(0));
        return Some((Task::Recover(targets), lowest.min(end)..end, Recording::Off));
    }
    let request = control.request.borrow();
    request.as_ref().map(|asked| (asked.task.clone(), asked.range.clone(), asked.record))
}

/// Whether a mirror of whole copies has one left, which cannot disagree with another: nothing is
/// read for a resync.
fn is_last_copy(health: &Health, geometry: &Geometry) -> bool {
    geometry.level() == Level::Raid1 && health.writable().len() == 1
}
