//! New partition tables: what is written on each drive, decided first and carried out in an order
//! that power cuts cannot spoil.
//!
//! **Invariant.** Whatever a power cut leaves of it, a drive has no table or all of the new one
//! ([`NewTable::steps`]); what was there before is in an undo log ([`crate::undo`]).

use std::ops::Range;

use wattle_format::partition::{Guid, NewPartition, NewTable};
use wattle_rt::Core;

use crate::members::Member;
use crate::problem::{Code, Problem};
use crate::undo::{CoveredWrite, UndoSite, carry_out};

/// A partition that each of the drives gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: u32,
    /// Where it lies, in bytes.
    pub range: Range<u64>,
}

/// What is written, by drive.
#[derive(Debug, Clone)]
pub struct PartitionPlan {
    /// The drives' tables, in the order the drives were given.
    pub tables: Vec<NewTable>,
    writes: Vec<CoveredWrite>,
}

/// Plans a table with these partitions, named after `name`, for each member. `random` gives ids.
///
/// # Errors
/// A partition does not fit, or `random` says why not.
pub fn plan(
    members: &[Member],
    parts: &[Part],
    name: &str,
    mut random: impl FnMut() -> Result<[u8; 16], Problem>,
) -> Result<PartitionPlan, Problem> {
    let mut plan = PartitionPlan { tables: Vec::new(), writes: Vec::new() };
    for (site, member) in members.iter().enumerate() {
        let mut table = NewTable {
            size_bytes: member.device.size_bytes(),
            sector_bytes: if member.device.logical_block_bytes() == 4096 { 4096 } else { 512 },
            id: Guid::from_random(random()?),
            partitions: Vec::new(),
        };
        for Part { number, range } in parts {
            table.partitions.push(NewPartition {
                number: *number,
                start_bytes: range.start,
                len_bytes: range.end.saturating_sub(range.start),
                id: Guid::from_random(random()?),
                name: name.to_owned(),
            });
        }
        let steps = table.steps().map_err(|error| {
            Problem::new(
                Code::BadRequest,
                format!("{}: {error}", member.name),
                "there is no such partition table",
                "give other partitions, or a larger drive",
            )
            .of_member(&member.name)
        })?;
        for (step, pieces) in (0..).zip(steps) {
            plan.writes.extend(pieces.into_iter().map(|piece| CoveredWrite {
                site,
                step,
                offset_bytes: piece.offset_bytes,
                bytes: piece.bytes,
            }));
        }
        plan.tables.push(table);
    }
    Ok(plan)
}

impl PartitionPlan {
    /// All that is written, in its steps; sites are members as they were given.
    #[must_use]
    pub fn writes(&self) -> &[CoveredWrite] {
        &self.writes
    }

    /// Writes it, each step durable before the next.
    ///
    /// # Errors
    /// The first write or flush that failed.
    pub async fn execute(&self, core: &Core, sites: &[UndoSite]) -> Result<(), Problem> {
        carry_out(core, sites, &self.writes).await
    }
}
