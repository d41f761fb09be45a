//! What never changes while an array runs.

use std::time::Duration;

use wattle_rt::CoreIx;

use crate::model::geometry::Geometry;
use crate::model::intent::IntentSpec;
use crate::model::log::LogSpec;
use crate::model::sums::SumSpec;
use crate::model::units::SECTOR_BYTES;

/// What never changes while an array runs; one copy for all cores.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// Tells the arrays of a process apart; the keys of its parts in each core's registry come from
    /// it.
    pub key: u64,
    pub home: CoreIx,
    pub name: String,
    pub geometry: Geometry,
    pub unclean: bool,
    pub read_only: bool,
    pub intent: Option<IntentSpec>,
    pub log: Option<LogSpec>,
    /// The shape of the sums of recorded scrubs, if any are kept.
    pub sums: Option<SumSpec>,
    pub limits: Limits,
    /// Requests aligned to this cost no read of their edges. The largest logical block of the
    /// members; with a partial parity log at least its page.
    pub block_bytes: u32,
    /// The largest logical block of the members: what can be read by itself.
    pub member_block_bytes: u32,
}

/// Bounds and times of members and of the array's state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Most bytes of old blocks and new parity in memory, by core.
    pub stripe_buffer_bytes: usize,
    /// How long an array is idle before it is recorded clean.
    pub clean_delay: Duration,
    /// A member is failed after this many read errors.
    pub read_errors_max: u32,
    /// How long a read may take before redundancy answers it, as the array is started.
    pub read_deadline: Duration,
    /// Requests of clients that take longer are late, as the array is started.
    pub late_after: Duration,
}

impl Fixed {
    /// The array in whole blocks: a last one that is cut off, where members have blocks of 4 KiB,
    /// can neither be read nor written.
    pub fn volume_bytes(&self) -> u64 {
        let bytes = self.geometry.array_sectors().0 * SECTOR_BYTES;
        bytes - bytes % u64::from(self.block_bytes)
    }

    /// Registry key of the array's home, on its home core.
    pub const fn home_key(&self) -> u64 {
        self.key | 1 << 63
    }

    /// Registry key of the array's state, on every core.
    pub const fn state_key(&self) -> u64 {
        self.key | 0b11 << 62
    }

    /// Registry key of what is known of streams, on every core.
    pub const fn hints_key(&self) -> u64 {
        self.key | 0b101 << 61
    }

    /// Registry key of the jobs' part, on every core.
    pub const fn jobs_key(&self) -> u64 {
        self.key | 0b1001 << 60
    }
}
