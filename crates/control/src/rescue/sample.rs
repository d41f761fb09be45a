//! What is looked at of the members before anything is supposed: pages at the same places of all of them.

use std::collections::BTreeSet;

use wattle_format::probe;

use crate::members::Member;

/// What is compared, and the smallest chunk.
pub(super) const PAGE_BYTES: usize = 4096;
/// What is read at once.
const WINDOW_BYTES: u64 = 256 << 10;
/// Here the members are read without gaps: where data starts, at the front and behind the room that mdadm leaves on large drives.
const HEADS: [u64; 2] = [0, 128 << 20];
const HEAD_BYTES: u64 = 32 << 20;
/// So many windows of the rest, evenly.
const WINDOWS: u64 = 128;
/// Rows that are kept with their bytes.
const KEPT_MAX: usize = 48;

/// The pages of all members at one place.
#[derive(Debug)]
pub(super) struct Row {
    /// Where, from the start of the member.
    pub offset: u64,
    /// Bits per byte of each member's page, 0 to 8.
    pub entropy: Vec<f32>,
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

/// All that was looked at.
#[derive(Debug)]
pub(super) struct Sample {
    pub rows: Vec<Row>,
    /// Some rows with content, with their pages.
    pub kept: Vec<(u64, Vec<Vec<u8>>)>,
    /// Where something on some member looks like the start of a volume.
    pub starts: BTreeSet<u64>,
    /// Rows in which every page that holds anything holds the same, and several do.
    pub alike: usize,
    /// Rows in which anything is.
    pub filled: usize,
    /// By two members: rows in which both hold the same, and it is not nothing.
    same: Vec<Vec<usize>>,
    /// Rows in which a member has anything.
    filled_of: Vec<usize>,
}

impl Sample {
    pub fn read(members: &[Member]) -> Self {
        let size = members.iter().map(|member| member.device.size_bytes()).min().unwrap_or(0);
        let mut sample = Self {
            rows: Vec::new(),
            kept: Vec::new(),
            starts: BTreeSet::new(),
            alike: 0,
            filled: 0,
            same: vec![vec![0; members.len()]; members.len()],
            filled_of: vec![0; members.len()],
        };
        let heads =
            HEADS.into_iter().flat_map(|start| (start..start + HEAD_BYTES).step_by(WINDOW_BYTES as usize));
        let step = (size / WINDOWS).next_multiple_of(WINDOW_BYTES).max(WINDOW_BYTES);
        let all: BTreeSet<u64> = heads.chain((0..size).step_by(step as usize)).collect();
        for offset in all.into_iter().filter(|offset| offset + WINDOW_BYTES <= size) {
            // What one member does not give tells nothing of the others.
            let read = members.iter().map(|member| member.read(offset, WINDOW_BYTES as usize));
            if let Ok(bytes) = read.collect::<Result<Vec<_>, _>>() {
                sample.add(offset, &bytes);
            }
        }
        sample
    }

    fn add(&mut self, offset: u64, members: &[Vec<u8>]) {
        for from in (0..WINDOW_BYTES as usize).step_by(PAGE_BYTES) {
            let pages: Vec<&[u8]> = members.iter().map(|bytes| &bytes[from..from + PAGE_BYTES]).collect();
            let at = offset + from as u64;
            let entropy: Vec<f32> = pages.iter().map(|page| entropy(page)).collect();
            let filled: Vec<usize> =
                (0..pages.len()).filter(|&who| pages[who].iter().any(|&byte| byte != 0)).collect();
            for (ix, &one) in filled.iter().enumerate() {
                self.filled_of[one] += 1;
                for &other in &filled[ix + 1..] {
                    self.same[one][other] += usize::from(pages[one] == pages[other]);
                }
            }
            let alike = filled.len() > 1 && filled.windows(2).all(|pair| pages[pair[0]] == pages[pair[1]]);
            let all_alike = alike && filled.len() == pages.len();
            self.filled += usize::from(!filled.is_empty());
            self.alike += usize::from(all_alike);
            let sum = if filled.is_empty() || all_alike { Sum::Silent } else { sum(&pages) };
            if pages.iter().any(|page| starts_volume(page)) {
                self.starts.insert(at);
            }
            // Of what follows one another only some.
            let apart = self.kept.last().is_none_or(|(last, _)| at >= last + WINDOW_BYTES / 2);
            if filled.len() > 1 && !alike && apart && self.kept.len() < KEPT_MAX {
                self.kept.push((at, pages.iter().map(|page| page.to_vec()).collect()));
            }
            self.rows.push(Row { offset: at, entropy, sum });
        }
    }

    /// Whether every member holds what another one holds, always the same one.
    pub fn is_mirrored(&self) -> bool {
        (0..self.filled_of.len()).all(|who| {
            let filled = self.filled_of[who];
            let partner =
                (0..self.filled_of.len()).map(|other| self.same[who.min(other)][who.max(other)]).max();
            filled > 0 && partner.is_some_and(|rows| rows * 10 >= filled * 9)
        })
    }

    /// How many rows there are of which a sum can be told, and how many of them are like this.
    pub fn share(&self, like: impl Fn(Sum) -> bool) -> (usize, usize) {
        let told = self.rows.iter().filter(|row| row.sum != Sum::Silent);
        (told.clone().count(), told.filter(|row| like(row.sum)).count())
    }
}

fn sum(pages: &[&[u8]]) -> Sum {
    let mut sum = pages[0].to_vec();
    for page in &pages[1..] {
        sum.iter_mut().zip(*page).for_each(|(sum, byte)| *sum ^= byte);
    }
    if sum.iter().all(|&byte| byte == 0) {
        return Sum::Zero;
    }
    let mut of = (0..pages.len()).filter(|&who| *pages[who] == sum[..]);
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
