//! What a check finds.

use std::ops::Range;

use crate::model::units::{MemberIx, MemberSet, Sector};

/// How many places a report lists.
const LISTED_MAX: usize = 1000;

/// A place where parity or copies disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What disagrees.
    pub kind: MismatchKind,
    /// The array sectors that are affected. With parity: those of the culprit if that is a data
    /// block, else from the first to the last of the rows.
    pub array: Range<Sector>,
    /// The member's data sectors; of RAID 10 those of the first copy.
    pub member: Range<Sector>,
    /// The wrong member, where that can be told: the one member whose block explains both P and Q;
    /// the one copy that differs from the majority.
    pub culprit: Option<MemberIx>,
}

/// What disagrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MismatchKind {
    /// Parity is not that of the data.
    Parity,
    /// Copies differ.
    Copies {
        /// The seats whose copy is not what the majority says, or if there is none, what the first
        /// says.
        differ: MemberSet,
    },
}

/// What one step found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub mismatches: Vec<Mismatch>,
    pub unreadable_sectors: u64,
    pub late_sectors: u64,
    pub passed_on_sectors: u64,
    pub repaired: u64,
}

/// What a job found.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    pub listed: Vec<Mismatch>,
    pub not_listed: u64,
    pub mismatch_sectors: u64,
    pub unreadable_sectors: u64,
    pub late_sectors: u64,
    pub passed_on_sectors: u64,
    pub repaired: u64,
}

impl Found {
    /// Adds a place behind those that were found before, joined with the last if it continues it.
    pub fn add(&mut self, next: Mismatch) {
        if !self.mismatches.last_mut().is_some_and(|last| last.join(&next)) {
            self.mismatches.push(next);
        }
    }
}

impl Mismatch {
    fn join(&mut self, next: &Self) -> bool {
        let alike =
            self.kind == next.kind && self.culprit == next.culprit && self.member.end == next.member.start;
        // Rows of one stripe span its data blocks, so their array ranges overlap; those of copies
        // and culprits follow one another.
        let follows = next.array.start >= self.array.start && next.array.start <= self.array.end;
        if alike && follows {
            self.member.end = next.member.end;
            self.array.end = self.array.end.max(next.array.end);
        }
        alike && follows
    }
}

impl Findings {
    pub fn take(&mut self, found: Found) {
        self.unreadable_sectors += found.unreadable_sectors;
        self.late_sectors += found.late_sectors;
        self.passed_on_sectors += found.passed_on_sectors;
        self.repaired += found.repaired;
        for next in found.mismatches {
            self.mismatch_sectors += (next.member.end - next.member.start).0;
            if self.listed.last_mut().is_some_and(|last| last.join(&next)) {
                continue;
            }
            if self.listed.len() < LISTED_MAX {
                self.listed.push(next);
            } else {
                self.not_listed += 1;
            }
        }
    }
}
