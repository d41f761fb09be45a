//! Where the copies of a RAID 10 would be, and whether they are there: pages of two members that
//! have to be the same.

use wattle_engine::geometry::Level;
use wattle_engine::units::{MemberIx, Sector};

use super::sample::{Row, Sample};
use super::shape::RescueShape;

/// Rows that are looked at of every shape, and of the best ones.
const FIRST_ROWS: usize = 64;
const ROWS: usize = 1024;
/// Fewer of them tell nothing.
const COMPARED_MIN: usize = 8;

/// Calls `pair` with every two places of one chunk of which the pages are known: slot and pages of
/// the one and of the other.
fn each_pair(
    sample: &Sample,
    shape: &RescueShape,
    rows: usize,
    mut pair: impl FnMut(usize, &Row, usize, &Row),
) {
    for row in sample.filled_rows(rows) {
        let Some(sector) = (row.offset / 512).checked_sub(shape.data_offset_sectors) else { continue };
        for slot in 0..shape.slots {
            let Some(lba) = shape.geometry.array_sector_at(MemberIx(slot as u16), Sector(sector)) else {
                continue;
            };
            let copies = shape.geometry.copies(lba);
            for copy in copies.iter().filter(|copy| copy.member.index() != slot) {
                let offset = (copy.sector.0 + shape.data_offset_sectors) * 512;
                if let Some(other) = sample.row_at(offset) {
                    pair(slot, row, copy.member.index(), other);
                }
            }
        }
    }
}

/// Whether pages that a shape takes for copies are, on some two members, whichever these are: of
/// three slots with two members it is a third. `None` if none is known.
pub(super) fn are_there(sample: &Sample, shape: &RescueShape) -> Option<bool> {
    let (mut compared, mut there) = (0, 0);
    each_pair(sample, shape, FIRST_ROWS, |_, one, _, other| {
        let same = |(who, page): (usize, &u32)| {
            *page != 0 && other.digest.iter().enumerate().any(|(with, copy)| with != who && copy == page)
        };
        compared += 1;
        there += usize::from(one.digest.iter().enumerate().any(same));
    });
    (compared >= COMPARED_MIN).then_some(there * 4 > compared)
}

/// By two slots and two members: in how many places one has to hold what the other does, and in how
/// many it does.
pub(super) struct Copies {
    slots: usize,
    members: usize,
    compared: Vec<u32>,
    same: Vec<u32>,
}

impl Copies {
    /// `None` where there are none to look for.
    pub fn look(sample: &Sample, shape: &RescueShape) -> Option<Self> {
        if shape.level != Level::Raid10 {
            return None;
        }
        let (slots, members) = (shape.slots, sample.members());
        let cells = slots * slots * members * members;
        let mut copies = Self { slots, members, compared: vec![0; cells], same: vec![0; cells] };
        each_pair(sample, shape, ROWS, |slot, one, with, other| {
            for (who, page) in one.digest.iter().enumerate() {
                for (copier, copy) in other.digest.iter().enumerate().filter(|(copier, _)| *copier != who) {
                    let cell = copies.cell(slot, with, who, copier);
                    copies.compared[cell] += u32::from(*page != 0 || *copy != 0);
                    copies.same[cell] += u32::from(*page != 0 && page == copy);
                }
            }
        });
        Some(copies)
    }

    fn cell(&self, slot: usize, with: usize, who: usize, copier: usize) -> usize {
        ((slot * self.slots + with) * self.members + who) * self.members + copier
    }

    /// In how many places two members have to be the same in this order, and in how many they are.
    pub fn count(&self, order: &[Option<usize>]) -> (usize, usize) {
        let (mut compared, mut same) = (0, 0);
        for (slot, who) in order.iter().enumerate() {
            for (with, copier) in order.iter().enumerate() {
                if let (Some(who), Some(copier), true) = (*who, *copier, slot != with) {
                    let cell = self.cell(slot, with, who, copier);
                    compared += self.compared[cell] as usize;
                    same += self.same[cell] as usize;
                }
            }
        }
        (compared, same)
    }

    /// Orders to start from: with each member, or none, in the first slot, and from there always
    /// the one that agrees best.
    pub fn chains(&self) -> Vec<Vec<Option<usize>>> {
        let nobody = (self.slots > self.members).then_some(None);
        (0..self.members).map(Some).chain(nobody).map(|first| self.chain(first)).collect()
    }

    fn chain(&self, first: Option<usize>) -> Vec<Option<usize>> {
        let mut order = vec![first];
        while order.len() < self.slots {
            let free = (0..self.members).filter(|who| !order.contains(&Some(*who)));
            let empty = order.iter().filter(|who| who.is_none()).count();
            let nobody = (self.slots - self.members > empty).then_some(None);
            let agrees = |who: &Option<usize>| {
                let mut next = order.clone();
                next.push(*who);
                let (compared, same) = self.count(&next);
                2 * same as i64 - compared as i64
            };
            let best = free.map(Some).chain(nobody).max_by_key(agrees);
            order.push(best.flatten());
        }
        order
    }
}
