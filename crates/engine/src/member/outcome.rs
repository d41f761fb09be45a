//! What became of writes to members. What follows from it is decided in one place, too
//! (`state/settle.rs`).

use std::ops::Range;

use wattle_rt::{Durability, IoError, IoErrorKind};

use crate::model::error::VolumeError;
use crate::model::health::Health;
use crate::model::units::{MemberIx, MemberSet, Sector};

/// A write that failed.
#[derive(Debug)]
pub(crate) struct WriteLoss {
    pub seat: MemberIx,
    pub sectors: Range<Sector>,
    pub error: IoError,
}

/// What became of the writes of one change.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub losses: Vec<WriteLoss>,
    /// The writes were forced: where one fails, the drive's next flush does, too.
    pub forced: bool,
    /// Sectors that were listed as bad and took the write.
    pub mended: Vec<(MemberIx, Range<Sector>)>,
}

/// What a failed write costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteCost {
    /// The member: it holds old content that must not be read.
    Member,
    /// The sectors, where the medium failed: they are recorded as bad. Redundancy has their
    /// content.
    Sectors,
}

/// What becomes of sectors that are good again, where the member's list has no room to say so: what
/// is left of a range in whose middle they are takes an entry more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The member is failed if the array can do without it; otherwise it is an error.
    Fails,
    /// They stay bad, which costs nothing: as before, they are not read.
    KeepsBad,
}

impl Outcome {
    /// Of writes that are as durable as this.
    pub fn of(durability: Durability) -> Self {
        Self { forced: durability == Durability::Fua, ..Self::default() }
    }

    /// Takes note of what became of a write to a member, planned in `health`.
    pub fn note(
        &mut self,
        health: &Health,
        seat: MemberIx,
        sectors: Range<Sector>,
        result: Result<(), IoError>,
    ) {
        match result {
            Err(error) => self.losses.push(WriteLoss { seat, sectors, error }),
            Ok(()) if health.seats[seat.index()].bad.overlaps(sectors.clone()) => {
                self.mended.push((seat, sectors));
            }
            Ok(()) => {}
        }
    }

    /// What was listed as bad stays listed: a planted bug.
    pub fn forget_mended(&mut self) {
        self.mended.clear();
    }

    /// Seats on which a write failed.
    pub fn failed(&self) -> MemberSet {
        self.losses.iter().map(|loss| loss.seat).collect()
    }

    /// Whether no write failed.
    pub fn is_whole(&self) -> bool {
        self.losses.is_empty()
    }

    /// Whether nothing follows: no write failed, and none mended what was listed as bad.
    pub fn is_plain(&self) -> bool {
        self.losses.is_empty() && self.mended.is_empty()
    }

    /// The answer to a write that redundancy cannot make up for.
    pub fn error(&self) -> VolumeError {
        let no_space = self.losses.iter().any(|loss| loss.error.kind() == IoErrorKind::NoSpace);
        if no_space { VolumeError::NoSpace } else { VolumeError::WriteFailed }
    }
}
