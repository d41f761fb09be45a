//! Room for what a stripe's work has in memory beside the clients' own buffers: old blocks, and new
//! parity.

use wattle_rt::sync::Permit;

use super::Work;
use super::rows::Row;
use crate::model::plan::WritePlan;

/// Room that was taken; it is given back when this is dropped.
#[derive(Default)]
pub(super) struct Room<'a> {
    bytes: usize,
    _permit: Option<Permit<'a>>,
}

impl<'a> Work<'a> {
    /// Takes room for `bytes` in all, if `room` has less; says whether that took time, in which
    /// everything may have changed.
    ///
    /// No task waits here while another waits for it: what a stripe holds when it asks is given
    /// back first.
    pub(super) async fn take_room(&self, room: &mut Room<'a>, bytes: usize) -> bool {
        let bytes = bytes.min(self.shard.fixed.limits.stripe_buffer_bytes);
        if bytes <= room.bytes {
            return false;
        }
        *room = Room::default();
        let buffers = &self.shard.stripe_buffers;
        let (permit, waited) = match buffers.try_acquire(bytes) {
            Some(permit) => (permit, false),
            None => (buffers.acquire(bytes).await, true),
        };
        *room = Room { bytes, _permit: Some(permit) };
        waited
    }

    /// What carrying out `plans` takes.
    pub(super) fn write_bytes(&self, rows: &[Row], plans: &[WritePlan]) -> usize {
        let blocks = |plan: &WritePlan| plan.fetch.len().max(self.parities());
        rows.iter().zip(plans).map(|(row, plan)| row.len() * blocks(plan)).sum()
    }
}
