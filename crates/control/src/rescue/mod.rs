//! What an array was whose superblocks are gone, or were replaced by those of a wrong
//! `mdadm --create`: level, layout, chunk, order, where the data starts; also with members missing.
//!
//! Nothing is tried by assembling it. A sample of all members ([`sample`]) tells whether they have
//! a common parity and which of their pages look like it, and with that which levels could be
//! ([`frames`]); a mirror's copies have to be where it puts them ([`copies`]); every
//! [`RescueShape`] that could be is asked where structures that say themselves where they are would
//! be ([`landmarks`]). Both speak for a member in a slot, so that the best order follows without
//! trying them all ([`assign`]); what speaks for neighbours is weighed for the best few. Of a RAID
//! 6 that lacks members P and Q make their blocks in an order that is supposed, and these are asked
//! too. Whatever is not told apart by any of this is said to be so, and nothing is certain of which
//! a part may be no member at all: a spare, a drive of another array or one that is older is
//! searched without, or makes it doubtful.
//!
//! Invariant: only reads.

mod assign;
mod candidate;
mod copies;
mod frames;
mod landmarks;
mod restore;
mod sample;
mod search;
mod shape;

pub use restore::{Restore, restore};
pub use search::{Explanation, Findings, search};
pub use shape::RescueShape;

use thiserror::Error;

use crate::problem::{Code, Problem};

/// Most members: all sets of them are gone through.
pub const MEMBERS_MAX: usize = 12;

/// Why there is nothing to search in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RescueError {
    /// Too few or too many members.
    #[error("{given} members are given, and 2 to {MEMBERS_MAX} can be searched")]
    Members {
        /// How many.
        given: usize,
    },
}

impl From<RescueError> for Problem {
    fn from(error: RescueError) -> Self {
        Self::new(
            Code::BadRequest,
            error.to_string(),
            "an order is searched among the members of one array",
            "give the members of one array, without spares",
        )
    }
}
