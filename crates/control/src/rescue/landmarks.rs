//! Structures that say themselves where they are: copies of superblocks, headers of allocation
//! groups, partition tables and their second copy, labels and texts of volume groups. Wherever a
//! supposed array puts one, some member has it there or none has; which one is a vote for the
//! member in that slot.

use wattle_format::lvm::area::Header;
use wattle_format::lvm::{Label, SegmentKind, Vg};
use wattle_parity::{Block, Kernels};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::assign::Weights;
use super::shape::RescueShape;
use crate::members::Member;

/// Copies that are looked for of each kind of structure.
const COPIES_MAX: u64 = 48;
/// Volumes and partitions that are looked into.
const VOLUMES_MAX: usize = 16;

/// What was found under one supposition.
#[derive(Debug, Clone, Default)]
pub(super) struct Landmarks {
    /// Votes by slot and member; the last column for no member.
    pub votes: Weights,
    /// Structures that were where they had to be, and that were not.
    pub found: usize,
    pub missed: usize,
    /// What they are of.
    pub kinds: Vec<String>,
}

/// A part of the array that holds something: runs of its bytes, each with where it is in the array.
#[derive(Debug, Clone)]
struct View(Vec<(u64, u64, u64)>);

impl View {
    fn place(&self, at: u64, len: u64) -> Option<u64> {
        let end = at.checked_add(len)?;
        let run = self.0.iter().find(|(start, bytes, _)| at >= *start && end <= start + bytes)?;
        Some(run.2 + (at - run.0))
    }
}

/// A member, and bytes of it.
type Place = (usize, u64, usize);

/// Reads of members, each done once: many shapes look at the same places.
pub(super) struct Reader<'a> {
    members: &'a [Member],
    read: RefCell<BTreeMap<Place, Option<Rc<[u8]>>>>,
}

impl<'a> Reader<'a> {
    pub fn new(members: &'a [Member]) -> Self {
        Self { members, read: RefCell::default() }
    }

    fn read(&self, who: usize, byte: u64, len: usize) -> Option<Rc<[u8]>> {
        let mut read = self.read.borrow_mut();
        let get = || self.members[who].read(byte, len).ok().map(Rc::from);
        read.entry((who, byte, len)).or_insert_with(get).clone()
    }
}

/// Looks for everything that is known.
pub(super) fn find(reader: &Reader<'_>, shape: &RescueShape) -> Landmarks {
    look(reader, shape, None)
}

/// The same with the members in this order: then P and Q give the blocks of those that are missing.
pub(super) fn find_in_order(reader: &Reader<'_>, shape: &RescueShape, order: &[Option<usize>]) -> Landmarks {
    look(reader, shape, Some(order))
}

fn look(reader: &Reader<'_>, shape: &RescueShape, order: Option<&[Option<usize>]>) -> Landmarks {
    let votes = vec![vec![0.0; reader.members.len() + 1]; shape.slots];
    let mut search = Search { reader, shape, order, found: Landmarks { votes, ..Landmarks::default() } };
    let size = shape.geometry.array_sectors().0 * 512;
    search.volume(&View(vec![(0, size, 0)]), "", 0);
    search.found
}

struct Search<'a> {
    reader: &'a Reader<'a>,
    shape: &'a RescueShape,
    order: Option<&'a [Option<usize>]>,
    found: Landmarks,
}

fn le16(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn le32(bytes: &[u8], at: usize) -> u64 {
    le16(bytes, at) | le16(bytes, at + 2) << 16
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    le32(bytes, at) | le32(bytes, at + 4) << 32
}

fn be32(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    be32(bytes, at) << 32 | be32(bytes, at + 4)
}

impl Search<'_> {
    /// The bytes there of the member that is to have them in the order that is supposed; without
    /// one, of whichever member has something that `is` right. With a member missing, what the
    /// others make of its.
    fn at(&mut self, view: &View, at: u64, len: usize, is: &dyn Fn(&[u8]) -> bool) -> Option<Rc<[u8]>> {
        let byte = view.place(at, len as u64)?;
        let (places, run) = self.shape.places(byte)?;
        if run < len as u64 {
            return None;
        }
        let mut found = None;
        for &(slot, member_byte) in &places {
            let members = self.reader.members.len();
            let pages: Vec<_> = (0..members).map(|who| self.reader.read(who, member_byte, len)).collect();
            let mut right: Vec<usize> = Vec::new();
            for (who, bytes) in pages.iter().enumerate() {
                if bytes.as_deref().is_some_and(is) {
                    right.push(who);
                    found = bytes.clone();
                }
            }
            if let Some(order) = self.order {
                let (who, bytes) = match order[slot] {
                    Some(who) => (who, pages[who].clone()),
                    None => (members, self.made(order, slot, member_byte, len)),
                };
                found = bytes.filter(|bytes| is(bytes));
                if found.is_some() {
                    // What others have there too, where the rest of a stripe is empty, says as
                    // little of each.
                    let others = right.iter().filter(|&&other| other != who).count();
                    self.found.votes[slot][who] += 1.0 / (1 + others) as f64;
                }
                continue;
            }
            // What the others make of the missing one's. Where the rest of a stripe is empty,
            // parity is a copy of the data.
            let parity = self.shape.parity_slots(member_byte);
            let lost = self.shape.slots - members;
            // Where Q is lost too, P and the rest are what is there.
            let q = parity.and_then(|(_, q)| q).filter(|q| lost == 2 && *q != slot);
            if parity.is_some() && (lost == 1 || q.is_some()) {
                let sum = xor(&pages).filter(|sum| is(sum));
                if sum.is_some() {
                    right.push(members);
                    found = found.or(sum);
                }
            }
            if let (Some(q), true) = (q, right.contains(&members)) {
                self.found.votes[q][members] += 1.0 / right.len() as f64;
            }
            for &who in &right {
                self.found.votes[slot][who] += 1.0 / right.len() as f64;
            }
        }
        found
    }

    /// What P and Q make of the block of a missing member, with the others in this order.
    fn made(&self, order: &[Option<usize>], slot: usize, member_byte: u64, len: usize) -> Option<Rc<[u8]>> {
        let map = self.shape.stripe(member_byte)?;
        let page = |slot: usize| order[slot].and_then(|who| self.reader.read(who, member_byte, len));
        let (p, q) = (page(map.p().index()), page(map.q()?.index()));
        let mut blocks: Vec<_> = (0..map.data_blocks())
            .map(|block| {
                let of = map.data_member(block).index();
                (map.exponent(block), of, page(of), vec![0; len])
            })
            .collect();
        blocks.sort_unstable_by_key(|(exponent, ..)| *exponent);
        let mut row: Vec<_> = blocks
            .iter_mut()
            .map(|(exponent, _, known, lost)| match known.as_deref() {
                Some(known) => (*exponent, Block::Known(known)),
                None => (*exponent, Block::Lost(lost)),
            })
            .collect();
        let (p, q) = (p.as_deref().map(Block::Known), q.as_deref().map(Block::Known));
        Kernels::best().recover(&mut row, p, q).ok()?;
        drop(row);
        let made = blocks.into_iter().find(|(_, of, ..)| *of == slot)?;
        Some(made.3.into())
    }

    /// The same of something that has to be there.
    fn must(&mut self, view: &View, at: u64, len: usize, is: &dyn Fn(&[u8]) -> bool) -> Option<Rc<[u8]>> {
        let byte = view.place(at, len as u64)?;
        self.shape.places(byte).filter(|(_, run)| *run >= len as u64)?;
        let found = self.at(view, at, len, is);
        match found {
            Some(_) => self.found.found += 1,
            None => self.found.missed += 1,
        }
        found
    }

    fn note(&mut self, what: &str, name: &str) {
        self.found.found += 1;
        let name = if name.is_empty() { what.to_owned() } else { format!("{what} on {name}") };
        self.found.kinds.push(name);
    }

    fn volume(&mut self, view: &View, name: &str, depth: usize) {
        if depth > 2 || self.found.kinds.len() >= VOLUMES_MAX {
            return;
        }
        self.ext(view, name);
        self.xfs(view, name);
        self.btrfs(view, name);
        self.gpt(view, name, depth);
        self.lvm(view, name, depth);
        if self.at(view, 0, 512, &|bytes| bytes[..6] == *b"LUKS\xBA\xBE").is_some() {
            self.note("LUKS", name);
        }
    }

    fn ext(&mut self, view: &View, name: &str) {
        let is = |bytes: &[u8]| {
            bytes[56..58] == [0x53, 0xEF]
                && le32(bytes, 24) <= 6
                && le32(bytes, 32) > 0
                && le16(bytes, 90) == 0
                && le32(bytes, 40) > 0
        };
        let Some(first) = self.at(view, 1024, 1024, &is) else { return };
        self.note("ext2, ext3 or ext4", name);
        let block = 1024 << le32(&first, 24);
        let (blocks, first_block, in_group) = (le32(&first, 4), le32(&first, 20), le32(&first, 32));
        let sparse = le32(&first, 100) & 1 != 0;
        let two = le32(&first, 92) & 0x200 != 0;
        let groups = blocks.saturating_sub(first_block).div_ceil(in_group);
        // What a superblock says of their number is not to be believed: it may be no superblock.
        let copies: Vec<u64> = match (two, sparse) {
            (true, _) => {
                [588, 592].map(|at| le32(&first, at)).into_iter().filter(|&group| group > 0).collect()
            }
            (false, true) => powers_of_3_5_7().collect(),
            (false, false) => (1..COPIES_MAX).collect(),
        };
        for group in copies.into_iter().filter(|&group| group < groups) {
            let copy = |bytes: &[u8]| {
                bytes[56..58] == [0x53, 0xEF]
                    && bytes[104..120] == first[104..120]
                    && (le16(bytes, 90) == group & 0xFFFF)
            };
            self.must(view, (group * in_group + first_block) * block, 1024, &copy);
        }
        self.ext_groups(view, &first, groups);
    }

    /// Group descriptors and what they describe, where they have checksums; the root directory, and
    /// the journal. Of all groups evenly, so that a member that comes late in a linear array has
    /// some.
    fn ext_groups(&mut self, view: &View, first: &[u8], groups: u64) {
        const META_BG: u64 = 0x10;
        const WIDE: u64 = 0x80;
        const OWN_SEED: u64 = 0x2000;
        const CHECKSUMS: u64 = 0x400;
        let (block, incompatible) = (1024 << le32(first, 24), le32(first, 96));
        if le32(first, 100) & CHECKSUMS == 0 || incompatible & META_BG != 0 {
            return;
        }
        let seed = match incompatible & OWN_SEED {
            0 => checksum(u32::MAX, &first[104..120]),
            _ => le32(first, 624) as u32,
        };
        let len = if incompatible & WIDE == 0 { 32 } else { le16(first, 254).clamp(32, 1024) } as usize;
        let table = (le32(first, 20) + 1) * block;
        let step = groups.div_ceil(COPIES_MAX).max(1);
        for group in (0..groups).step_by(step as usize) {
            let whole = |bytes: &[u8]| {
                let sum = checksum(checksum(seed, &(group as u32).to_le_bytes()), &bytes[..30]);
                let sum = checksum(checksum(sum, &[0; 2]), &bytes[32..]);
                sum & 0xFFFF == le16(bytes, 30) as u32
            };
            let Some(about) = self.must(view, table + group * len as u64, len, &whole) else { continue };
            let number = |low: usize, high: usize| {
                le32(&about, low) | if len >= 64 { le32(&about, high) << 32 } else { 0 }
            };
            let flags = le16(&about, 18);
            // By its flag while it is not made, where its block is, its checksum, and how many bits
            // it has.
            let maps = [(2, number(0, 32), 24, le32(first, 36)), (1, number(4, 36), 26, le32(first, 40))];
            for (unmade, at, sum, bits) in maps {
                let bytes = (bits.div_ceil(8)).min(block) as usize;
                let is = |map: &[u8]| u64::from(checksum(seed, map) & 0xFFFF) == le16(&about, sum);
                if flags & unmade == 0 {
                    self.must(view, at.saturating_mul(block), bytes, &is);
                }
            }
            if group == 0 {
                self.ext_inodes(view, first, number(8, 40).saturating_mul(block), block);
            }
        }
    }

    fn ext_inodes(&mut self, view: &View, first: &[u8], table: u64, block: u64) {
        const ROOT: u64 = 2;
        const JOURNAL: u64 = 8;
        let size = le16(first, 88).clamp(128, 4096);
        // One run of blocks, right in the inode.
        let is_run = |bytes: &[u8]| le16(bytes, 40) == 0xF30A && le16(bytes, 42) > 0 && le16(bytes, 46) == 0;
        let start = |bytes: &[u8]| (le32(bytes, 60) | le16(bytes, 58) << 32).saturating_mul(block);
        let root = |bytes: &[u8]| le16(bytes, 0) & 0xF000 == 0x4000 && is_run(bytes);
        if let Some(inode) = self.must(view, table.saturating_add((ROOT - 1) * size), 128, &root) {
            let is =
                |bytes: &[u8]| le32(bytes, 0) == ROOT && bytes[8..10] == *b".\0" && le32(bytes, 12) == ROOT;
            self.must(view, start(&inode), 24, &is);
        }
        let journal = |bytes: &[u8]| le16(bytes, 0) & 0xF000 == 0x8000 && is_run(bytes);
        if let Some(inode) = self.at(view, table.saturating_add((JOURNAL - 1) * size), 128, &journal) {
            self.must(view, start(&inode), 12, &|bytes| be32(bytes, 0) == 0xC03B_3998);
        }
    }

    fn xfs(&mut self, view: &View, name: &str) {
        let is = |bytes: &[u8]| {
            bytes[..4] == *b"XFSB"
                && (9..=16).contains(&bytes[120])
                && be32(bytes, 4) == 1 << bytes[120]
                && be32(bytes, 84) > 0
        };
        let Some(first) = self.at(view, 0, 512, &is) else { return };
        self.note("xfs", name);
        let (block, in_group, groups) = (be32(&first, 4), be32(&first, 84), be32(&first, 88));
        let sector = u64::from(u16::from_be_bytes([first[102], first[103]]));
        let step = groups.div_ceil(COPIES_MAX).max(1);
        for group in (0..groups).step_by(step as usize) {
            let at = group.saturating_mul(in_group).saturating_mul(block).min(i64::MAX as u64);
            if group > 0 {
                self.must(view, at, 512, &|bytes| bytes[..4] == *b"XFSB" && bytes[32..48] == first[32..48]);
            }
            self.must(view, at + sector, 512, &|bytes| bytes[..4] == *b"XAGF" && be32(bytes, 8) == group);
            self.must(view, at + 2 * sector, 512, &|bytes| bytes[..4] == *b"XAGI" && be32(bytes, 8) == group);
        }
        // The root of the tree of inodes says where it is.
        let root = be64(&first, 56);
        let per_block = u64::from(first[123]);
        if per_block < 32 && root >> per_block < in_group {
            self.must(view, (root >> per_block) * block, 2, &|bytes| *bytes == *b"IN");
        }
    }

    fn btrfs(&mut self, view: &View, name: &str) {
        let is = |at: u64| move |bytes: &[u8]| bytes[64..72] == *b"_BHRfS_M" && le64(bytes, 48) == at;
        let Some(first) = self.at(view, 0x1_0000, 4096, &is(0x1_0000)) else { return };
        self.note("btrfs", name);
        let size = le64(&first, 0x70);
        for at in [64 << 20, 256 << 30].into_iter().filter(|at| at + 4096 <= size) {
            self.must(view, at, 4096, &|bytes| is(at)(bytes) && bytes[32..48] == first[32..48]);
        }
    }

    fn gpt(&mut self, view: &View, name: &str, depth: usize) {
        let is = |at: u64| move |bytes: &[u8]| bytes[..8] == *b"EFI PART" && le64(bytes, 24) == at;
        let Some(first) = self.at(view, 512, 512, &is(1)) else { return };
        self.note("a GPT", name);
        let second = le64(&first, 32);
        self.must(view, second.saturating_mul(512), 512, &|bytes| {
            is(second)(bytes) && bytes[56..72] == first[56..72]
        });
        // The first entries, by the member that has the first header: its chunk goes on.
        let Some(entries) = self.at(view, 512, 3584, &is(1)) else { return };
        for entry in entries[512..].chunks_exact(128) {
            let (from, to) = (le64(entry, 32), le64(entry, 40));
            if entry[..16].iter().all(|&byte| byte == 0) || from < 2 || to < from {
                continue;
            }
            if let Some(start) = view.place(from.saturating_mul(512), (to - from + 1).saturating_mul(512)) {
                let part = View(vec![(0, (to - from + 1) * 512, start)]);
                self.volume(&part, &format!("{name}a partition"), depth + 1);
            }
        }
    }

    fn lvm(&mut self, view: &View, name: &str, depth: usize) {
        let label = |bytes: &[u8]| Label::find(bytes).ok().flatten();
        let Some(head) = self.at(view, 0, 2048, &|bytes| label(bytes).is_some()) else { return };
        let Some(label) = label(&head) else { return };
        self.note("an LVM2 physical volume", name);
        for &area in &label.metadata_areas {
            let header = |bytes: &[u8]| Header::decode(bytes, area).ok();
            let bytes = self.must(view, area.offset_bytes, 512, &|bytes| header(bytes).is_some());
            let Some(header) = bytes.and_then(|bytes| header(&bytes)) else { continue };
            let Some(location) = header.committed() else { continue };
            let Ok(ranges) = header.ranges(&location) else { continue };
            // One that wraps around the end of its ring is left to others.
            let [range] = ranges[..] else { continue };
            let len = usize::try_from(range.size_bytes).unwrap_or(usize::MAX).min(1 << 20);
            let text =
                self.must(view, range.offset_bytes, len, &|bytes| header.text(&location, &[bytes]).is_ok());
            let vg = text.and_then(|bytes| header.text(&location, &[&bytes]).ok());
            if let Some(vg) = vg.and_then(|text| Vg::parse(&text).ok()) {
                return self.logical(view, &vg, &label, depth);
            }
        }
    }

    fn logical(&mut self, view: &View, vg: &Vg, label: &Label, depth: usize) {
        let Some(pv) = vg.pvs.iter().find(|pv| pv.id == label.id) else { return };
        let extent = vg.extent_sectors * 512;
        for lv in &vg.lvs {
            let runs = lv.segments.iter().filter_map(|segment| {
                let SegmentKind::Striped { stripes, .. } = &segment.kind else { return None };
                let [stripe] = &stripes[..] else { return None };
                let start = pv.pe_start.checked_mul(512)?.checked_add(stripe.extent.checked_mul(extent)?)?;
                let len = segment.extents.checked_mul(extent)?;
                let place = view.place(start, len)?;
                let start = segment.start_extent.checked_mul(extent)?;
                (stripe.name == pv.name && start.checked_add(len).is_some()).then_some((start, len, place))
            });
            let lv_view = View(runs.collect());
            self.volume(&lv_view, &format!("{}/{}", vg.name, lv.name), depth + 1);
        }
    }
}

/// CRC-32C as ext4 has it: without inversions, so that with a seed of 0 it is linear.
pub(super) fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// And 1: groups that have a copy of the superblock.
fn powers_of_3_5_7() -> impl Iterator<Item = u64> {
    let powers = |base: u64| (1..).map_while(move |exponent| base.checked_pow(exponent)).take(20);
    std::iter::once(1).chain([3, 5, 7].into_iter().flat_map(powers))
}

fn xor(pages: &[Option<Rc<[u8]>>]) -> Option<Rc<[u8]>> {
    let mut sum = pages[0].as_deref()?.to_vec();
    for page in &pages[1..] {
        sum.iter_mut().zip(page.as_deref()?).for_each(|(sum, byte)| *sum ^= byte);
    }
    Some(sum.into())
}
