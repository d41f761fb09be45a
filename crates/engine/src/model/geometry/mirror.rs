//! RAID 10 and RAID 1: where the copies of each chunk are (docs/formats.md §7, §8.3).
//!
//! Chunks are dealt out to the members row by row, each `near` times in a row. With `far` > 1 the
//! whole pattern is repeated `far` times, shifted to other members: each repetition in a section of
//! its own, or (*offset*) row by row. RAID 1 is the RAID 10 with as many near copies as members and
//! one chunk as large as a member.

use super::chunk::Chunk;
use super::{Copies, Copy, Hazard};
use crate::model::units::{MemberIx, MemberSet, Sector};

/// The fields of a RAID 10 layout word (docs/formats.md §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Raid10Layout {
    pub near: u16,
    pub far: u16,
    pub offset: bool,
    pub far_sets: FarSets,
}

/// Within which members far copies are shifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FarSets {
    /// All of them.
    One,
    /// Sets of members / far: md's first try, which can put copies of a chunk on one member.
    Old,
    /// Sets of near * far members.
    Improved,
}

impl Raid10Layout {
    /// `None` if a number of copies is 0 or a bit is set that has no meaning.
    pub fn from_word(word: u32) -> Option<Self> {
        let far_sets = match word >> 17 {
            0 => FarSets::One,
            1 => FarSets::Old,
            2 => FarSets::Improved,
            _ => return None,
        };
        let (near, far) = ((word & 0xff) as u16, (word >> 8 & 0xff) as u16);
        (near > 0 && far > 0).then_some(Self { near, far, offset: word >> 16 & 1 == 1, far_sets })
    }

    pub fn to_word(self) -> u32 {
        let far_sets = match self.far_sets {
            FarSets::One => 0,
            FarSets::Old => 1,
            FarSets::Improved => 2,
        };
        u32::from(self.near) | u32::from(self.far) << 8 | u32::from(self.offset) << 16 | far_sets << 17
    }

    pub fn copies(self) -> u32 {
        u32::from(self.near) * u32::from(self.far)
    }
}

/// The mapping of a mirrored array.
#[derive(Debug, Clone)]
pub(super) struct Mirror {
    chunk: Chunk,
    members: u16,
    near: u16,
    far: u16,
    offset: bool,
    /// Members in a far set; the last set also takes what is left over.
    set: u16,
    last_set: u16,
    last_set_len: u16,
    /// Rows of the pattern before it is repeated; with `offset` the rows of one repetition.
    rows: u64,
    /// Chunks of the array.
    chunks: u64,
}

impl Mirror {
    /// RAID 10 on `rows * far` chunks of each member. `layout` has at most `members` copies.
    pub fn raid10(chunk: Chunk, members: u16, layout: Raid10Layout, rows: u64) -> Self {
        let Raid10Layout { near, far, offset, far_sets } = layout;
        let set = match far_sets {
            FarSets::One => members,
            FarSets::Old => members / far,
            FarSets::Improved => near * far,
        };
        Self {
            chunk,
            members,
            near,
            far,
            offset,
            set,
            last_set: (members / set - 1) * set,
            last_set_len: set + members % set,
            rows,
            chunks: rows * u64::from(members) / u64::from(near),
        }
    }

    /// RAID 1: every sector at the same place on every member.
    pub fn raid1(size: Sector, members: u16) -> Self {
        let layout = Raid10Layout { near: members, far: 1, offset: false, far_sets: FarSets::One };
        Self::raid10(Chunk::new(size), members, layout, 1)
    }

    pub fn array_sectors(&self) -> Sector {
        Sector(self.chunks * self.chunk.sectors())
    }

    pub fn near(&self) -> usize {
        usize::from(self.near)
    }

    pub fn member_sectors(&self) -> Sector {
        Sector(self.rows * u64::from(self.far) * self.chunk.sectors())
    }

    /// All copies of an array sector, in md's order.
    pub fn copies(&self, lba: Sector) -> Copies {
        let (chunk, offset) = self.chunk.split(lba.0);
        let mut copies = Copies::new(Sector(self.chunk.sectors() - offset));
        self.each_copy(chunk, |member, row| {
            copies
                .push(Copy { member: MemberIx(member), sector: Sector(row * self.chunk.sectors() + offset) });
        });
        copies
    }

    /// Calls `emit` with slot and chunk row of every copy of a chunk.
    #[inline]
    fn each_copy(&self, chunk: u64, mut emit: impl FnMut(u16, u64)) {
        let (near, members) = (u64::from(self.near), u64::from(self.members));
        let row = chunk * near / members;
        let (mut row, stride) = if self.offset { (row * u64::from(self.far), 1) } else { (row, self.rows) };
        let mut member = (chunk * near % members) as u16;
        for _ in 0..self.near {
            let (mut far_member, mut far_row) = (member, row);
            emit(far_member, far_row);
            for _ in 1..self.far {
                far_member = self.next_far(far_member);
                far_row += stride;
                emit(far_member, far_row);
            }
            member += 1;
            if member == self.members {
                member = 0;
                row += 1;
            }
        }
    }

    /// The member of the next far copy of a chunk that has one on `member`.
    #[inline]
    fn next_far(&self, member: u16) -> u16 {
        let shifted = member + self.near;
        // "Greater than", not "at least": so md does it, and arrays on disk depend on it.
        if !self.members.is_multiple_of(self.set) && shifted > self.last_set {
            self.last_set + (shifted - self.last_set) % self.last_set_len
        } else {
            shifted % self.set + member / self.set * self.set
        }
    }

    /// The slots that hold copies of the chunk, for every chunk that differs in this: they repeat.
    fn copy_sets(&self) -> impl Iterator<Item = MemberSet> + '_ {
        let period = self.members / greatest_common_divisor(self.members, self.near);
        (0..self.chunks.min(u64::from(period))).map(|chunk| {
            let mut set = MemberSet::EMPTY;
            self.each_copy(chunk, |member, _| set.insert(MemberIx(member)));
            set
        })
    }

    /// Losses that are survived whichever members they hit.
    pub fn redundancy(&self) -> usize {
        self.copy_sets().map(|set| set.len()).min().map_or(0, |least| least - 1)
    }

    /// Whether every chunk has a copy on a member that is not lost.
    pub fn survives(&self, lost: &MemberSet) -> bool {
        self.copy_sets().all(|set| !set.without(lost).is_empty())
    }

    /// Whether some chunk has two copies on members that are not lost.
    pub fn has_copies_twice(&self, lost: &MemberSet) -> bool {
        self.copy_sets().any(|set| set.without(lost).len() > 1)
    }

    /// What is wrong with the layout on this number of members, judged on the whole pattern: on a
    /// tiny array the chunks that are hit may not exist.
    pub fn hazard(&self) -> Option<Hazard> {
        if self.far == 1 {
            return None;
        }
        // Far copies of two chunks meet if two members shift to one. With `offset`, a near copy
        // that runs on to the next row finds the previous row's far copies there.
        let targets: MemberSet = (0..self.members).map(|member| MemberIx(self.next_far(member))).collect();
        let wraps = self.offset && !self.members.is_multiple_of(self.near);
        if targets.len() < usize::from(self.members) || wraps {
            return Some(Hazard::ChunksCollide);
        }
        let copies = usize::from(self.near) * usize::from(self.far);
        let whole = Self { chunks: u64::MAX, ..self.clone() };
        whole.copy_sets().any(|set| set.len() < copies).then_some(Hazard::CopiesShareMember)
    }

    /// The array sector a copy of which is at a data sector of a member, below `member_sectors`;
    /// `None` where none is. Has no meaning if chunks collide.
    pub fn array_sector_at(&self, member: MemberIx, sector: Sector) -> Option<Sector> {
        let (row, offset) = self.chunk.split(sector.0);
        let far = u64::from(self.far);
        let (repetition, row) =
            if self.offset { (row % far, row / far) } else { (row / self.rows, row % self.rows) };
        let shifted = |first: u16| (0..repetition).fold(first, |member, _| self.next_far(member));
        let first = (0..self.members).find(|&first| shifted(first) == member.0)?;
        let chunk = (row * u64::from(self.members) + u64::from(first)) / u64::from(self.near);
        (chunk < self.chunks).then(|| Sector(chunk * self.chunk.sectors() + offset))
    }
}

fn greatest_common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
