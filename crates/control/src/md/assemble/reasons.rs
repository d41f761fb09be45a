//! What keeps an array from being used, collected while it is decided.

use super::{Access, Policy};
use crate::md::reason::Reason;

/// What was found to be wrong, and what the operator says about it.
#[derive(Default)]
pub(super) struct Reasons {
    pub policy: Policy,
    pub refused: Vec<Reason>,
    pub read_only: Vec<Reason>,
    pub overridden: Vec<Reason>,
}

impl Reasons {
    /// Refuses the array; returns whether the operator overrides that.
    pub fn refuse(&mut self, reason: Reason) -> bool {
        let overridden = reason.check().is_some_and(|check| self.policy.forced.has(check));
        if overridden {
            self.overridden.push(reason);
        } else {
            self.refused.push(reason);
        }
        overridden
    }

    pub fn read_only(&mut self, reason: Reason) {
        self.read_only.push(reason);
    }

    pub fn access(self) -> Access {
        match (self.refused, self.read_only) {
            (refused, read_only) if !refused.is_empty() => {
                Access::Refused(refused.into_iter().chain(read_only).collect())
            }
            (_, read_only) if !read_only.is_empty() => Access::ReadOnly(read_only),
            _ => Access::ReadWrite,
        }
    }
}
