//! What an array is started from, and its bounds and times.

use std::time::Duration;

use crate::hints::cache::CacheTuning;
use crate::hints::readahead::ReadaheadTuning;
use crate::job;
use crate::model::geometry::Geometry;
use crate::model::intent::IntentSpec;
use crate::model::log::LogSpec;
use crate::model::regions::Regions;
use crate::model::sums::SumSpec;
use crate::model::units::Sector;
use crate::state::MemberSpec;

/// What an array is started from.
#[derive(Debug, Clone)]
pub struct ArraySpec {
    /// The name its volume is found by.
    pub name: String,
    /// Level, layout, sizes.
    pub geometry: Geometry,
    /// By slot; as many as the geometry has members.
    pub members: Vec<MemberSpec>,
    /// By slot, the members that are being made to replace those in the slots; empty if there are
    /// none.
    pub replacements: Vec<MemberSpec>,
    /// Parity and copies agree below this position: [`Sector::MAX`] everywhere, 0 nowhere for
    /// certain. In the unit of md's `resync_offset`: member data sectors, for RAID 10 array
    /// sectors.
    pub synced_below: Sector,
    /// Above `synced_below`, they agree outside these regions; `None` if nothing is known there.
    pub needs: Option<Regions>,
    /// It was not stopped in good order, whatever is trusted: a member that is away may hold,
    /// unflushed, what was acknowledged.
    pub unclean: bool,
    /// Clients are told no smaller blocks, whatever the members have.
    pub block_bytes_min: u32,
    /// Nothing is ever written to a member, neither data nor metadata.
    pub read_only: bool,
    /// The write-intent bitmap to keep.
    pub intent: Option<IntentSpec>,
    /// The partial parity log to write (RAID 5).
    pub log: Option<LogSpec>,
    /// The shape of the sums of recorded scrubs, where the metadata has a store for them.
    pub sums: Option<SumSpec>,
    /// Bounds and times.
    pub tuning: ArrayTuning,
}

impl ArraySpec {
    /// An array in sync, to be written, without bitmap or log.
    #[must_use]
    pub fn new(name: impl Into<String>, geometry: Geometry, members: Vec<MemberSpec>) -> Self {
        Self {
            name: name.into(),
            geometry,
            members,
            replacements: Vec::new(),
            synced_below: Sector::MAX,
            needs: None,
            unclean: false,
            block_bytes_min: 512,
            read_only: false,
            intent: None,
            log: None,
            sums: None,
            tuning: ArrayTuning::default(),
        }
    }
}

/// Bounds and times of an array.
#[derive(Debug, Clone, Copy)]
pub struct ArrayTuning {
    /// Most bytes of old blocks and new parity that writes and reconstructions hold at once on a
    /// core; more wait their turn. An operation that needs more than this by itself has the core to
    /// itself.
    pub stripe_buffer_bytes: usize,
    /// The clean cache.
    pub cache: CacheTuning,
    /// Reading ahead of clients that read in sequence.
    pub ahead: ReadaheadTuning,
    /// How long an array is idle before it is recorded clean (md's `safe_mode_delay`).
    pub clean_delay: Duration,
    /// A member is failed after this many read errors, even if all were corrected (md's
    /// `max_read_errors`).
    pub read_errors_max: u32,
    /// A read that a member has not answered after this long is answered from redundancy instead,
    /// and the member counts as slow for a while: it is asked again now and then.
    pub read_deadline: Duration,
    /// Resync, recovery, check and repair.
    pub sync: job::JobTuning,
}

impl Default for ArrayTuning {
    fn default() -> Self {
        Self {
            stripe_buffer_bytes: 32 << 20,
            cache: CacheTuning::default(),
            ahead: ReadaheadTuning::default(),
            clean_delay: Duration::from_millis(200),
            read_errors_max: 20,
            read_deadline: Duration::from_secs(2),
            sync: job::JobTuning::default(),
        }
    }
}
