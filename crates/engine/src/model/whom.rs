//! How an operator names a member.

use std::fmt;

use crate::model::health::MemberKey;
use crate::model::units::MemberIx;

/// The member that an operator means. A replacement that takes over changes seats with the member
/// it replaces, at any time: an order that names a device must not reach the one in its old seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// The member in this seat.
    Seat(MemberIx),
    /// This device, wherever it is by now.
    Device(MemberKey),
}

impl From<MemberIx> for Whom {
    fn from(seat: MemberIx) -> Self {
        Self::Seat(seat)
    }
}

impl From<MemberKey> for Whom {
    fn from(device: MemberKey) -> Self {
        Self::Device(device)
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seat(seat) => write!(f, "the device in seat {seat}"),
            Self::Device(_) => f.write_str("the device"),
        }
    }
}
