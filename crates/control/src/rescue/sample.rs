//! What is looked at of the members before anything is supposed: pages at the same places of all of
//! them.

use std::collections::BTreeSet;

use wattle_format::md::Version;
use wattle_format::md::defaults::data_offset_sectors;
use wattle_format::probe;

use super::landmarks::checksum;
use crate::members::Member;

/// What is compared, and the smallest chunk.
pub(super) const PAGE_BYTES: usize = 4096;
/// What is read at once.
const WINDOW_BYTES: u64 = 256 << 10;
/// Here the members are read without gaps: where data starts, at the front and behind the room that
/// mdadm leaves on large drives, now and formerly.
const HEADS: [u64; 2] = [0, 128 << 20];
const HEAD_BYTES: u64 = 32 << 20;
/// So many windows of the rest, evenly.
const WINDOWS: u64 = 128;
/// Rows that are kept with their bytes.
const KEPT_MAX: usize = 48;

/// Copies of the far layouts lie behind so many parts of a member; what is looked at around the
/// start of each part.
const FAR: [u64; 2] = [2, 3];
const FAR_BEFORE_BYTES: u64 = 4 << 20;
const FAR_BYTES: u64 = 16 << 20;
/// Rows of which all sets of members are gone through, and in how many at least a set has to have a
/// sum.
const SET_ROWS: usize = 512;
const SET_ROWS_MIN: usize = 16;

/// The pages of all members at one place.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Where, from the start of the member.
    pub offset: u64,
    /// Bits per byte of each member's page, 0 to 8.
    pub entropy: Vec<f32>,
    /// What tells a member's page from others: CRC-32C without inversions. So that of a XOR of
    /// pages is the XOR of theirs, and 0 is a page of zeros.
    pub digest: Vec<u32>,
    pub sum: Sum,
}

/// What the XOR of the pages of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// Nothing is told: no page holds anything, or all hold the same.
    Silent,
    /// Zero: together they have a parity.
    Zero,
    /// The page of a member: the others have one without it. Which one, if it is only one's.
    One(Option<usize>),
    /// Anything.
    Other,
}

impl Row {
    fn new(offset: u64, entropy: Vec<f32>, digest: Vec<u32>) -> Self {
        let sum = sum(&digest);
        Self { offset, entropy, digest, sum }
    }

    fn is_filled(&self) -> bool {
        self.digest.iter().any(|&page| page != 0)
    }

    fn is_alike(&self) -> bool {
        self.digest.iter().all(|&page| page == self.digest[0])
    }
}

/// All that was looked at.
#[derive(Debug)]
pub(super) struct Sample {
    /// By place.
    pub rows: Vec<Row>,
    /// Some rows with content, with their pages.
    pub kept: Vec<(u64, Vec<Vec<u8>>)>,
    /// How far these are apart at least.
    kept_apart: u64,
    /// Where something on some member looks like the start of a volume.
    pub starts: BTreeSet<u64>,
}

impl Sample {
    pub fn read(members: &[Member]) -> Self {
        let size = smallest(members);
        let heads = heads(size)
            .into_iter()
            .flat_map(|start| (start..start + HEAD_BYTES).step_by(WINDOW_BYTES as usize));
        let step = (size / WINDOWS).next_multiple_of(WINDOW_BYTES).max(WINDOW_BYTES);
        let mut sample = Self {
            rows: Vec::new(),
            kept: Vec::new(),
            kept_apart: WINDOW_BYTES / 2,
            starts: BTreeSet::new(),
        };
        sample.add_windows(members, heads.chain((0..size).step_by(step as usize)).collect());
        sample
    }

    /// Reads too where a RAID 10 with far copies would have those of the first chunks.
    pub fn read_far(&mut self, members: &[Member]) {
        let size = smallest(members);
        let mut all = BTreeSet::new();
        for (parts, data) in FAR.into_iter().flat_map(|parts| heads(size).map(|data| (parts, data))) {
            for part in 1..parts {
                let copy = size / parts * part + data / parts * (parts - part);
                let start = copy.saturating_sub(FAR_BEFORE_BYTES) / WINDOW_BYTES * WINDOW_BYTES;
                all.extend((start..start + FAR_BYTES).step_by(WINDOW_BYTES as usize));
            }
        }
        self.add_windows(members, all);
    }

    fn add_windows(&mut self, members: &[Member], windows: BTreeSet<u64>) {
        let size = smallest(members);
        let seen: BTreeSet<u64> = self.rows.iter().map(|row| row.offset).collect();
        for offset in windows.into_iter().filter(|at| at + WINDOW_BYTES <= size && !seen.contains(at)) {
            // What one member does not give tells nothing of the others.
            let read = members.iter().map(|member| member.read(offset, WINDOW_BYTES as usize));
            if let Ok(bytes) = read.collect::<Result<Vec<_>, _>>() {
                self.add(offset, &bytes);
            }
        }
        self.rows.sort_unstable_by_key(|row| row.offset);
    }

    fn add(&mut self, offset: u64, members: &[Vec<u8>]) {
        for from in (0..WINDOW_BYTES as usize).step_by(PAGE_BYTES) {
            let pages: Vec<&[u8]> = members.iter().map(|bytes| &bytes[from..from + PAGE_BYTES]).collect();
            let at = offset + from as u64;
            let digest: Vec<u32> = pages.iter().map(|page| checksum(0, page)).collect();
            // Most of a large drive is empty.
            let bits = |(page, &digest): (&&[u8], &u32)| if digest == 0 { 0.0 } else { entropy(page) };
            let entropy: Vec<f32> = pages.iter().zip(&digest).map(bits).collect();
            if pages.iter().zip(&digest).any(|(page, &digest)| digest != 0 && starts_volume(page)) {
                self.starts.insert(at);
            }
            let row = Row::new(at, entropy, digest);
            if row.sum != Sum::Silent && row.digest.iter().filter(|&&page| page != 0).count() > 1 {
                self.keep(at, &pages);
            }
            self.rows.push(row);
        }
    }

    /// Of what follows one another only some; of all of it evenly.
    fn keep(&mut self, at: u64, pages: &[&[u8]]) {
        if self.kept.last().is_some_and(|(last, _)| at.abs_diff(*last) < self.kept_apart) {
            return;
        }
        self.kept.push((at, pages.iter().map(|page| page.to_vec()).collect()));
        if self.kept.len() == 2 * KEPT_MAX {
            let all = std::mem::take(&mut self.kept);
            self.kept = all.into_iter().step_by(2).collect();
            self.kept_apart *= 2;
        }
    }

    /// The same of some of the members.
    pub fn only(&self, members: &[usize]) -> Self {
        let rows = self.rows.iter().map(|row| {
            let entropy = members.iter().map(|&who| row.entropy[who]).collect();
            Row::new(row.offset, entropy, members.iter().map(|&who| row.digest[who]).collect())
        });
        let kept = self.kept.iter().map(|(at, pages)| {
            let pages = members.iter().map(|&who| pages[who].clone()).collect();
            (*at, pages)
        });
        Self {
            rows: rows.collect(),
            kept: kept.collect(),
            kept_apart: self.kept_apart,
            starts: self.starts.clone(),
        }
    }

    pub fn members(&self) -> usize {
        self.rows.first().map_or(0, |row| row.digest.len())
    }

    pub fn row_at(&self, offset: u64) -> Option<&Row> {
        self.rows.binary_search_by_key(&offset, |row| row.offset).ok().map(|ix| &self.rows[ix])
    }

    /// About so many of the rows in which anything is, evenly.
    pub fn filled_rows(&self, max: usize) -> impl Iterator<Item = &Row> {
        let filled = self.rows.iter().filter(|row| row.is_filled());
        let step = filled.clone().count().div_ceil(max).max(1);
        filled.step_by(step)
    }

    /// In how many rows anything is, and in how many of them all pages are the same.
    pub fn alike(&self) -> (usize, usize) {
        let filled = self.rows.iter().filter(|row| row.is_filled());
        (filled.clone().count(), filled.filter(|row| row.is_alike()).count())
    }

    /// Of the rows in which either of two members has anything: how many there are, and in how many
    /// they have the same.
    pub fn same(&self, one: usize, other: usize) -> (usize, usize) {
        let either = self.rows.iter().filter(|row| row.digest[one] != 0 || row.digest[other] != 0);
        (either.clone().count(), either.filter(|row| row.digest[one] == row.digest[other]).count())
    }

    /// Whether two members hold the same everywhere, and not just nothing.
    pub fn is_one(&self, one: usize, other: usize, min: usize) -> bool {
        let (either, same) = self.same(one, other);
        either >= min && same == either
    }

    /// Whether every member holds what another one holds, always the same one.
    pub fn is_mirrored(&self) -> bool {
        let members = 0..self.members();
        let is_twin = |one: usize, other: usize| {
            let (either, same) = self.same(one, other);
            either > 0 && same * 10 >= either * 9
        };
        members.clone().all(|one| members.clone().any(|other| one != other && is_twin(one, other)))
    }

    /// Members on which nothing is.
    pub fn blank(&self) -> Vec<usize> {
        (0..self.members()).filter(|&who| self.rows.iter().all(|row| row.digest[who] == 0)).collect()
    }

    /// Sets of three or more of the members, but not all of them, that have a common parity by
    /// themselves; the smallest of each.
    pub fn sets(&self) -> Vec<Vec<usize>> {
        let members = self.members();
        let rows: Vec<_> = self.filled_rows(SET_ROWS).map(|row| &row.digest).collect();
        let mut masks: Vec<usize> = (0..1 << members).filter(|mask: &usize| mask.count_ones() >= 3).collect();
        masks.sort_by_key(|mask| mask.count_ones());
        masks.pop();
        let mut found: Vec<usize> = Vec::new();
        for mask in masks {
            if found.iter().any(|smaller| mask & smaller == *smaller) {
                continue;
            }
            let those = || (0..members).filter(|who| mask & 1 << who != 0);
            let speaking = rows.iter().filter(|row| those().any(|who| row[who] != 0));
            let zero = |row: &&&Vec<u32>| those().fold(0, |sum, who| sum ^ row[who]) == 0;
            let (of, zero) = (speaking.clone().count(), speaking.filter(zero).count());
            // Each of them has to take part, or the set is a smaller one with a blank or a copy.
            let part = those().all(|who| rows.iter().filter(|row| row[who] != 0).count() >= SET_ROWS_MIN / 2);
            if part && zero >= SET_ROWS_MIN && zero * 10 >= of * 9 {
                found.push(mask);
            }
        }
        found.into_iter().map(|mask| (0..members).filter(|who| mask & 1 << who != 0).collect()).collect()
    }

    /// How many rows there are of which a sum can be told, and how many of them are like this.
    pub fn share(&self, like: impl Fn(Sum) -> bool) -> (usize, usize) {
        let speaking = self.rows.iter().filter(|row| row.sum != Sum::Silent);
        (speaking.clone().count(), speaking.filter(|row| like(row.sum)).count())
    }
}

fn heads(size: u64) -> [u64; 3] {
    let usual = data_offset_sectors(Version::V12, size / 512, 1024, false) * 512;
    [HEADS[0], HEADS[1], usual / WINDOW_BYTES * WINDOW_BYTES]
}

fn smallest(members: &[Member]) -> u64 {
    members.iter().map(|member| member.device.size_bytes()).min().unwrap_or(0)
}

fn sum(digest: &[u32]) -> Sum {
    if digest.iter().all(|&page| page == digest[0]) {
        return Sum::Silent;
    }
    let sum = digest.iter().fold(0, |sum, page| sum ^ page);
    if sum == 0 {
        return Sum::Zero;
    }
    let mut of = (0..digest.len()).filter(|&who| digest[who] == sum);
    match (of.next(), of.next()) {
        (None, _) => Sum::Other,
        (Some(who), None) => Sum::One(Some(who)),
        (Some(_), Some(_)) => Sum::One(None),
    }
}

/// Shannon's, in bits per byte.
fn entropy(page: &[u8]) -> f32 {
    let mut counts = [0_u16; 256];
    page.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let len = page.len() as f32;
    let bits = |&count: &u16| f32::from(count) * (len / f32::from(count)).log2();
    counts.iter().filter(|&&count| count > 0).map(bits).sum::<f32>() / len
}

/// Whether a page has what volumes start with.
fn starts_volume(page: &[u8]) -> bool {
    let parts = [(0, page)];
    page.iter().any(|&byte| byte != 0) && !probe::identify(page.len() as u64, &parts).is_empty()
        || page[512..520] == *b"LABELONE"
        || page[512..520] == *b"EFI PART"
        || page[..4] == *b"XFSB"
        || page[1080..1082] == [0x53, 0xEF]
}
