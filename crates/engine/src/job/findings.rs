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
    /// What the sums of the last recorded scrub say. Where they name the culprit, `member` is its
    /// own place.
    pub sums: SumVerdict,
}

/// What the sums of the last recorded scrub say of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SumVerdict {
    /// Nothing: there are none, or they do not tell which member it is.
    #[default]
    Nothing,
    /// It was written since, or its neighbourhood was.
    Written,
    /// The culprit rotted silently: it is not what it was, and what the others give is what it was.
    Proven,
    /// The culprit rotted silently: it is not what it was and all others are; there is nothing to
    /// make it anew from.
    Rotted,
}

/// What a job found by the sums of the last recorded scrub, and made of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SumFindings {
    /// Sectors of members that rotted silently, and can be made anew or were.
    pub proven_sectors: u64,
    /// Sectors of members that rotted silently and that nothing can be made of.
    pub rotted_sectors: u64,
    /// Sectors of members that are not what they were though nothing was written and redundancy
    /// agrees.
    pub unexplained_sectors: u64,
    /// Sectors of members that were compared with sums that say something.
    pub compared_sectors: u64,
    /// Whether the sums of this job are those of the next.
    pub recorded: bool,
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
    pub agreed_sectors: u64,
    pub unreadable_sectors: u64,
    pub late_sectors: u64,
    pub alone_sectors: u64,
    pub passed_on_sectors: u64,
    pub repaired: u64,
    pub sums: SumFindings,
}

/// What a job found.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    pub listed: Vec<Mismatch>,
    pub not_listed: u64,
    pub mismatch_sectors: u64,
    pub agreed_sectors: u64,
    /// Anything was written, also by steps that are repeated.
    pub has_written: bool,
    pub unreadable_sectors: u64,
    pub late_sectors: u64,
    pub alone_sectors: u64,
    pub passed_on_sectors: u64,
    pub repaired: u64,
    pub sums: SumFindings,
}

impl Found {
    /// What counts of a step that is done again: what was made to agree is not found again.
    pub fn of_repeated(self) -> Self {
        Self { repaired: self.repaired, ..Self::default() }
    }

    /// Whether anything was written.
    pub fn has_written(&self) -> bool {
        self.repaired + self.agreed_sectors + self.sums.proven_sectors > 0
    }

    /// Adds a place behind those that were found before, joined with the last if it continues it.
    pub fn add(&mut self, next: Mismatch) {
        if !self.mismatches.last_mut().is_some_and(|last| last.join(&next)) {
            self.mismatches.push(next);
        }
    }
}

impl Mismatch {
    fn join(&mut self, next: &Self) -> bool {
        let alike = (self.kind, self.culprit, self.sums) == (next.kind, next.culprit, next.sums)
            && self.member.end == next.member.start;
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
        self.agreed_sectors += found.agreed_sectors;
        self.unreadable_sectors += found.unreadable_sectors;
        self.late_sectors += found.late_sectors;
        self.alone_sectors += found.alone_sectors;
        self.passed_on_sectors += found.passed_on_sectors;
        self.repaired += found.repaired;
        self.sums.proven_sectors += found.sums.proven_sectors;
        self.sums.rotted_sectors += found.sums.rotted_sectors;
        self.sums.unexplained_sectors += found.sums.unexplained_sectors;
        self.sums.compared_sectors += found.sums.compared_sectors;
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
