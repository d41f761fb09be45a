//! Carries a plan out: claims every member, makes sure that nothing changed, and writes.

use thiserror::Error;
use wattle_rt::{IoError, IoErrorKind};

use super::{CreatePlan, DevicePlan, MemberContents, PlannedWrite, inspect};
use crate::members::{Claim, Member, MemberError};
use crate::problem::{Code, Problem};
use crate::undo;

/// Why a plan was not carried out, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExecuteError {
    /// A member could not be claimed, or is not as it was planned with. Nothing was written.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// A write failed.
    #[error("{name}: writing the {what} at byte {offset_bytes}: {source}")]
    Write {
        /// The member.
        name: String,
        /// What was being written.
        what: String,
        /// Where.
        offset_bytes: u64,
        /// Why it failed.
        source: IoError,
        /// What had been written before, in order: `what on member`.
        written: Vec<String>,
    },
    /// A flush failed: what was written may not be durable.
    #[error("{name}: flushing: {source}")]
    Flush {
        /// The member.
        name: String,
        /// Why it failed.
        source: IoError,
        /// What had been written before.
        written: Vec<String>,
    },
}

impl From<ExecuteError> for Problem {
    fn from(error: ExecuteError) -> Self {
        let what = error.to_string();
        let (name, source, written) = match error {
            ExecuteError::Member(error) => return error.into(),
            ExecuteError::Write { name, source, written, .. }
            | ExecuteError::Flush { name, source, written } => (name, source, written),
        };
        let why = match written.as_slice() {
            [] => "nothing was written before it".to_owned(),
            written => format!("written before it: {}", written.join(", ")),
        };
        let (code, next) = match source.kind() {
            IoErrorKind::NoSpace => (
                Code::NoSpace,
                "make room on the file system (or thin pool) that holds the member, and create the array again",
            ),
            _ => (Code::WriteFailed, "replace the member, and create the array again"),
        };
        let next =
            if written.is_empty() { next.to_owned() } else { format!("{next} (with --force=signature)") };
        Self::new(code, what, why, next).of_member(name)
    }
}

fn before_superblock(device: &DevicePlan) -> &[PlannedWrite] {
    device.writes.split_last().map_or(&[], |(_, before)| before)
}

fn superblock(device: &DevicePlan) -> &[PlannedWrite] {
    device.writes.split_last().map_or(&[], |(last, _)| std::slice::from_ref(last))
}

impl CreatePlan {
    /// Claims the members, in the plan's order. `states` is what the plan was made with; members
    /// that are no longer so are refused.
    ///
    /// # Errors
    /// [`ExecuteError::Member`].
    pub fn claim(&self, states: &[MemberContents]) -> Result<Vec<Member>, ExecuteError> {
        let mut members = Vec::with_capacity(self.devices.len());
        for (device, state) in self.devices.iter().zip(states) {
            let member = device.member.claim(Claim::Write)?;
            if inspect(&member)? != *state {
                return Err(MemberError::Changed { name: member.name }.into());
            }
            members.push(member);
        }
        Ok(members)
    }

    /// Writes the array on members that were claimed for it.
    ///
    /// # Errors
    /// [`ExecuteError`], which says what was written.
    pub fn execute(&self, members: &[Member]) -> Result<(), ExecuteError> {
        let mut written = Vec::new();
        // Everything that a superblock names is durable before there is a superblock.
        self.each_write(members, &mut written, before_superblock)?;
        self.each_write(members, &mut written, superblock)
    }

    /// All that [`Self::execute`] writes, in its order, for an undo log.
    #[must_use]
    pub fn writes(&self) -> Vec<undo::CoveredWrite> {
        let phases: [fn(&DevicePlan) -> &[PlannedWrite]; 2] = [before_superblock, superblock];
        let of = |(step, which): (u16, fn(&DevicePlan) -> &[PlannedWrite])| {
            self.devices.iter().enumerate().flat_map(move |(site, device)| {
                which(device).iter().map(move |write| undo::CoveredWrite {
                    site,
                    step,
                    offset_bytes: write.offset_bytes,
                    bytes: write.bytes.clone(),
                })
            })
        };
        (0..).zip(phases).flat_map(of).collect()
    }

    fn each_write(
        &self,
        members: &[Member],
        written: &mut Vec<String>,
        which: impl Fn(&DevicePlan) -> &[PlannedWrite],
    ) -> Result<(), ExecuteError> {
        for (plan, member) in self.devices.iter().zip(members) {
            for write in which(plan) {
                member.device.write_blocking(write.offset_bytes, &write.bytes).map_err(|source| {
                    ExecuteError::Write {
                        name: member.name.clone(),
                        what: write.what.clone(),
                        offset_bytes: write.offset_bytes,
                        source,
                        written: written.clone(),
                    }
                })?;
                written.push(format!("{} on {}", write.what, member.name));
            }
        }
        for member in members {
            let flushed = member.device.sync_blocking();
            flushed.map_err(|source| ExecuteError::Flush {
                name: member.name.clone(),
                source,
                written: written.clone(),
            })?;
        }
        Ok(())
    }
}
