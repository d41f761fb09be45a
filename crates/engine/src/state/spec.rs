//! What a member is started from.

use std::sync::Arc;

use wattle_rt::Device;

use crate::model::bad_ranges::BadRanges;
use crate::model::health::{MemberKey, MemberState, Seat};
use crate::model::log::LogArea;
use crate::model::regions::Regions;
use crate::model::units::Sector;

/// The member in a seat of an array.
#[derive(Debug, Clone)]
pub struct MemberSpec {
    /// What the owner of the metadata knows it by; `None` if none is known.
    pub key: Option<MemberKey>,
    /// Where its data is; `None` for a seat that is missing or faulty.
    pub device: Option<Device>,
    /// Where its data area starts on the device.
    pub data_offset: Sector,
    /// Where its partial parity log is.
    pub log: Option<LogArea>,
    /// Its state at the start.
    pub state: MemberState,
    /// For a member that is being rebuilt and was away: the regions that it missed (the space of
    /// `Geometry::sync_sectors`).
    pub stale: Option<Regions>,
    /// Its sectors that cannot be read.
    pub bad: BadRanges,
    /// How many entries (of at most [`BAD_ENTRY_SECTORS`]) its bad-block log has room for; 0 if it
    /// has none.
    pub bad_entries_max: usize,
    /// Of copies: it is read only where no other one can be.
    pub write_mostly: bool,
}

/// Most sectors that one entry of a bad-block log covers (docs/formats.md §3).
pub const BAD_ENTRY_SECTORS: u64 = 512;

impl MemberSpec {
    /// A member that is current everywhere.
    #[must_use]
    pub fn in_sync(device: Device, data_offset: Sector) -> Self {
        Self { device: Some(device), data_offset, state: MemberState::InSync, ..Self::missing() }
    }

    /// A member to be filled from the start.
    #[must_use]
    pub fn blank(device: Device, data_offset: Sector) -> Self {
        let state = MemberState::Rebuilding { valid_below: Sector(0) };
        Self { device: Some(device), data_offset, state, ..Self::missing() }
    }

    /// An empty seat.
    #[must_use]
    pub fn missing() -> Self {
        Self {
            key: None,
            device: None,
            data_offset: Sector(0),
            log: None,
            state: MemberState::Missing,
            stale: None,
            bad: BadRanges::NONE,
            bad_entries_max: 512,
            write_mostly: false,
        }
    }

    pub(crate) fn seat(self) -> (MemberState, Seat) {
        assert!(self.device.is_some() || !self.state.writable(), "a working member has a device");
        let seat = Seat {
            key: self.key,
            // What the array lost its own flushes report, whatever else is on the drive.
            device: self.device.as_ref().map(Device::for_consumer),
            data_offset: self.data_offset,
            log: self.log,
            stale: self.stale.map(Arc::new),
            bad: Arc::new(self.bad),
            bad_entries_max: self.bad_entries_max,
            write_mostly: self.write_mostly,
            since: 0,
        };
        (self.state, seat)
    }
}
