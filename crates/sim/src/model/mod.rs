//! What a volume may show: for each sector the versions that a read may return, and those that a
//! power cut may leave.
//!
//! Every write gives its sectors contents that say which sector and which version they are, so a
//! sector that appears where it does not belong, or when it does not belong, is recognised. A
//! sector's history is the list of versions that may still be seen:
//!
//! - A read may return what was current when it began and everything issued since.
//! - A power cut may leave the last version that was known to be durable (acknowledged, and covered
//!   by a flush that was asked for afterwards, or forced) and everything issued after it.
//! - A failed flush empties its drive's cache, so an array that it broke may leave the same,
//!   without a power cut.
//! - What is seen after a power cut is all that may be seen from then on. Sectors without a
//!   write never change.
//!
//! Mirrors that were not stopped cleanly and were never resynchronised are the one exception: the
//! copies may hold different versions, each of them allowed. Reads show the first copy, always the
//! same; once a member is lost they may show another. Such versions are *weak*: permitted only
//! after a loss.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in a sector.
pub const SECTOR: usize = 512;

/// The contents of a sector.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// Zeros: never written, or zeroed.
    Zeros,
    /// Self-describing: the version of a write.
    Version(u32),
    /// Part of one version over another, from a write that did not end on a sector boundary.
    Spliced(Arc<[u8; SECTOR]>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Zeros => f.write_str("zeros"),
            Content::Version(version) => write!(f, "v{version}"),
            Content::Spliced(_) => f.write_str("spliced"),
        }
    }
}

const MAGIC: u64 = 0x7761_7474_6c65_7369;

impl Content {
    /// Writes the contents of `sector` into `bytes`.
    pub fn fill(&self, sector: u64, bytes: &mut [u8]) {
        match self {
            Content::Zeros => bytes.fill(0),
            Content::Version(version) => {
                let mut word = (sector << 32 | u64::from(*version)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for (index, bytes) in bytes.chunks_exact_mut(8).enumerate() {
                    let value = match index {
                        0 => MAGIC ^ sector,
                        1 => u64::from(*version),
                        _ => {
                            word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1) ^ word >> 29;
                            word
                        }
                    };
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
            }
            Content::Spliced(spliced) => bytes.copy_from_slice(&spliced[..]),
        }
    }

    fn matches(&self, sector: u64, bytes: &[u8]) -> bool {
        match self {
            Content::Zeros => bytes.iter().all(|&byte| byte == 0),
            Content::Version(version) => {
                bytes[8..16] == u64::from(*version).to_le_bytes() && {
                    let mut expected = [0; SECTOR];
                    self.fill(sector, &mut expected);
                    expected == bytes
                }
            }
            Content::Spliced(spliced) => spliced[..] == *bytes,
        }
    }
}

/// What a sector's bytes say they are.
fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (sector, version) = (word(0) ^ MAGIC, word(8));
    match u32::try_from(version) {
        Ok(version) if Content::Version(version).matches(sector, bytes) => {
            format!("sector {sector} v{version}")
        }
        _ => format!("bytes of no version ({:02x?}..)", &bytes[..16]),
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Not yet.
    InFlight,
    /// Acknowledged, or what was there when everything began.
    Good,
    /// Not acknowledged: each of its sectors is there or not.
    Maybe,
}

/// How a program ended that did not stop its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Broke,
    PowerCut,
}

const NEVER: u32 = u32::MAX;

/// One version of a sector.
#[derive(Clone, Debug)]
struct Entry {
    content: Content,
    issued: u32,
    completed: u32,
    /// Reads that begin after this do not return it.
    superseded: u32,
    ended: Ended,
    durable: bool,
    /// A power cut cannot bring it back; kept for reads that are under way.
    obsolete: bool,
    /// It may be what a power cut left; gone for good once another one was seen.
    landed: bool,
    /// Everything that was done about it was done before the last restart, so whether it is there
    /// no longer changes.
    settled: bool,
    weak: bool,
    /// Only other copies than the first have it, and no power cut changes that.
    elsewhere: bool,
}

impl Entry {
    fn base(content: Content) -> Entry {
        Entry {
            content,
            issued: 0,
            completed: 0,
            superseded: NEVER,
            ended: Ended::Good,
            durable: true,
            obsolete: false,
            landed: false,
            settled: false,
            weak: false,
            elsewhere: false,
        }
    }
}

/// A read returned what no order of events explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The sector of the volume.
    pub sector: u64,
    /// What it holds.
    pub found: String,
    /// What it may hold.
    pub permitted: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {} holds {}, permitted: {}", self.sector, self.found, self.permitted)
    }
}

/// A write, discard or zeroing under way.
#[derive(Debug)]
pub struct Writing {
    issued: u32,
    sectors: Range<u64>,
}

/// A read under way.
#[derive(Debug)]
pub struct Reading {
    began: u32,
    first: u64,
}

/// What is known besides a sector's own history.
#[derive(Clone, Copy, Debug, Default)]
pub struct SectorView {
    /// Copies may differ: what is not the first copy's stays possible.
    pub copies_may_differ: bool,
    /// A member (or sector) was lost since copies began to differ.
    pub copy_lost: bool,
}

/// The history of a volume.
pub struct VolumeHistory {
    /// By sector; empty is a sector of zeros that was never written.
    sectors: Vec<Vec<Entry>>,
    /// Sectors with more than one version.
    open: Vec<u64>,
    now: u32,
    versions: u32,
    reads: Vec<u32>,
    /// Sectors that hold anything, until they are written.
    garbage: BTreeSet<u64>,
    /// Ranges under an unaligned write, which nothing else may write.
    reserved: Vec<Range<u64>>,
}

impl VolumeHistory {
    /// A volume of zeros.
    #[must_use]
    pub fn new(sectors: u64) -> VolumeHistory {
        VolumeHistory {
            sectors: vec![Vec::new(); sectors as usize],
            open: Vec::new(),
            now: 1,
            versions: 0,
            reads: Vec::new(),
            garbage: BTreeSet::new(),
            reserved: Vec::new(),
        }
    }

    /// Size in sectors.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// Whether the volume has no sector.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// A version that no write had yet.
    pub fn next_version(&mut self) -> Content {
        self.versions += 1;
        Content::Version(self.versions)
    }

    fn tick(&mut self) -> u32 {
        self.now += 1;
        self.now
    }

    /// A write of one version to a range begins. `None` if part of it is reserved.
    pub fn begin_write(&mut self, sectors: Range<u64>, content: &Content) -> Option<Writing> {
        if self.reserved.iter().any(|range| range.start < sectors.end && sectors.start < range.end) {
            return None;
        }
        let issued = self.tick();
        for sector in sectors.clone() {
            self.push(sector, issued, content.clone());
        }
        Some(Writing { issued, sectors })
    }

    /// A write of single contents to a range begins; no other write may touch it until it ends.
    /// `None` if one does, or if what a sector holds is not certain.
    pub fn begin_splice(
        &mut self,
        start_byte: u64,
        version: &Content,
        len: u64,
    ) -> Option<(Writing, Vec<u8>)> {
        let sectors = start_byte / SECTOR as u64..(start_byte + len).div_ceil(SECTOR as u64);
        if self.reserved.iter().any(|range| range.start < sectors.end && sectors.start < range.end) {
            return None;
        }
        let certain = |sector: &u64| {
            let history = &self.sectors[*sector as usize];
            let mut readable = history.iter().filter(|entry| entry.superseded == NEVER && !entry.weak);
            history.iter().all(|entry| entry.ended != Ended::InFlight && !entry.weak)
                && match (readable.next(), readable.next()) {
                    (None, _) => true,
                    (Some(entry), None) => entry.ended == Ended::Good,
                    _ => false,
                }
        };
        if !sectors.clone().all(|sector| certain(&sector)) {
            return None;
        }
        let issued = self.tick();
        let mut written = vec![0; len as usize];
        for sector in sectors.clone() {
            let (mut old, mut new) = ([0; SECTOR], [0; SECTOR]);
            self.current(sector).fill(sector, &mut old);
            version.fill(sector, &mut new);
            let at = sector * SECTOR as u64;
            let from = start_byte.max(at);
            let to = (start_byte + len).min(at + SECTOR as u64);
            let within = (from - at) as usize..(to - at) as usize;
            old[within.clone()].copy_from_slice(&new[within.clone()]);
            written[(from - start_byte) as usize..(to - start_byte) as usize].copy_from_slice(&new[within]);
            self.push(sector, issued, Content::Spliced(Arc::new(old)));
        }
        self.reserved.push(sectors.clone());
        Some((Writing { issued, sectors }, written))
    }

    fn current(&self, sector: u64) -> Content {
        let entry =
            self.sectors[sector as usize].iter().find(|entry| entry.superseded == NEVER && !entry.weak);
        entry.map_or(Content::Zeros, |entry| entry.content.clone())
    }

    fn push(&mut self, sector: u64, issued: u32, content: Content) {
        let history = &mut self.sectors[sector as usize];
        if history.is_empty() {
            history.push(Entry::base(Content::Zeros));
        }
        if history.len() == 1 {
            self.open.push(sector);
        }
        history.push(Entry {
            content,
            issued,
            completed: NEVER,
            superseded: NEVER,
            ended: Ended::InFlight,
            durable: false,
            obsolete: false,
            landed: false,
            settled: false,
            weak: false,
            elsewhere: false,
        });
    }

    /// A write ended: acknowledged (and durable, if it was forced) or not.
    pub fn end_write(&mut self, writing: &Writing, acknowledged: bool, forced: bool) {
        let now = self.tick();
        self.reserved.retain(|range| *range != writing.sectors);
        let oldest = self.reads.iter().copied().min().unwrap_or(NEVER);
        for sector in writing.sectors.clone() {
            let history = &mut self.sectors[sector as usize];
            let entry = history.iter_mut().find(|entry| entry.issued == writing.issued);
            let entry = entry.expect("a version stays until its write has ended");
            entry.completed = now;
            if !acknowledged {
                entry.ended = Ended::Maybe;
                continue;
            }
            entry.ended = Ended::Good;
            entry.durable |= forced;
            for entry in history.iter_mut() {
                if entry.completed < writing.issued {
                    entry.superseded = entry.superseded.min(now);
                }
            }
            if forced {
                drop_obsolete(history, oldest);
            }
        }
    }

    /// A flush begins; pass the answer to [`VolumeHistory::end_flush`].
    pub fn begin_flush(&mut self) -> u32 {
        self.tick()
    }

    /// A flush that began at `began` was acknowledged. Without `everywhere` a member was away that
    /// no record counts out yet: what an earlier program wrote may still be volatile there.
    pub fn end_flush(&mut self, began: u32, everywhere: bool) {
        self.tick();
        let oldest = self.reads.iter().copied().min().unwrap_or(NEVER);
        let sectors = &mut self.sectors;
        self.open.retain(|&sector| {
            let history = &mut sectors[sector as usize];
            for entry in history.iter_mut() {
                entry.durable |=
                    entry.ended == Ended::Good && entry.completed < began && (everywhere || !entry.settled);
            }
            drop_obsolete(history, oldest);
            history.len() > 1
        });
    }

    /// A read of sectors from `first` on begins.
    pub fn begin_read(&mut self, first: u64) -> Reading {
        let began = self.tick();
        self.reads.push(began);
        Reading { began, first }
    }

    /// A read failed.
    pub fn cancel_read(&mut self, reading: &Reading) {
        let at = self.reads.iter().position(|began| *began == reading.began);
        self.reads.swap_remove(at.expect("a read ends once"));
    }

    /// A read returned `bytes`.
    ///
    /// # Errors
    /// The first sector that holds what it must not.
    pub fn end_read(&mut self, reading: &Reading, bytes: &[u8], view: SectorView) -> Result<(), Wrong> {
        self.cancel_read(reading);
        let now = self.tick();
        for (sector, bytes) in (reading.first..).zip(bytes.chunks_exact(SECTOR)) {
            let lost = self.garbage.contains(&sector);
            let history = &mut self.sectors[sector as usize];
            if history.is_empty() {
                if !lost && bytes.iter().any(|&byte| byte != 0) {
                    let (found, permitted) = (describe(bytes), "zeros, as it was not written".to_owned());
                    return Err(Wrong { sector, found, permitted });
                }
                continue;
            }
            let readable =
                |entry: &Entry| entry.superseded > reading.began && (view.copy_lost || !entry.weak);
            let seen: Vec<bool> =
                history.iter().map(|entry| readable(entry) && entry.content.matches(sector, bytes)).collect();
            if !seen.contains(&true) {
                if lost {
                    continue;
                }
                let permitted = history
                    .iter()
                    .map(|entry| {
                        let kind = match readable(entry) {
                            true => "",
                            false if entry.weak => " (weak)",
                            false => " (superseded)",
                        };
                        format!("{:?}{kind}{}", entry.content, if entry.durable { " durable" } else { "" })
                    })
                    .collect::<Vec<_>>();
                return Err(Wrong { sector, found: describe(bytes), permitted: permitted.join(", ") });
            }
            self.garbage.remove(&sector);
            narrow(history, &seen, reading.began, now, view);
        }
        Ok(())
    }

    /// A member was lost in the crash, together with what was being written to it, and a partial
    /// parity log does not make up for that (docs/formats.md §4): sectors in flight then may hold
    /// anything, and the rest of their pages, in which the log is kept.
    pub fn lose_torn(&mut self) {
        let size = self.sectors.len() as u64;
        let in_flight = self.open.iter().filter(|sector| self.sectors[**sector as usize].len() > 1);
        let pages = in_flight.map(|sector| sector / 8 * 8).flat_map(|page| page..(page + 8).min(size));
        self.garbage.extend(pages);
    }

    /// A sector holds anything until it is written.
    pub fn lose(&mut self, sector: u64) {
        self.garbage.insert(sector);
    }

    /// The power was cut: everything that is not known to be gone may be there.
    pub fn power_cut(&mut self) {
        self.restarted(End::PowerCut);
    }

    /// The program ended without the machine: what was in flight may have landed, what was
    /// acknowledged is there but as volatile as before.
    pub fn killed(&mut self) {
        self.restarted(End::Killed);
    }

    /// The array broke and was let go of. Which drives still have what was not flushed is open, and
    /// a power cut may take that as well.
    pub fn broke(&mut self) {
        self.restarted(End::Broke);
    }

    /// The array was stopped in good order: everything acknowledged is durable.
    pub fn stopped(&mut self, everywhere: bool) {
        let began = self.begin_flush();
        self.end_flush(began, everywhere);
        self.restarted(End::Killed);
    }

    /// All copies were made like the first: the one that was read, unless a member was away
    /// meanwhile.
    pub fn resynced(&mut self, view: SectorView) {
        for &sector in &self.open {
            let history = &mut self.sectors[sector as usize];
            history.retain(|entry| view.copy_lost || !entry.weak);
            history.iter_mut().for_each(|entry| entry.weak = false);
        }
    }

    fn restarted(&mut self, end: End) {
        let now = self.tick();
        self.reads.clear();
        self.reserved.clear();
        for &sector in &self.open {
            let history = &mut self.sectors[sector as usize];
            history.retain(|entry| !entry.obsolete);
            for entry in history.iter_mut() {
                entry.settled = true;
                if entry.ended == Ended::InFlight {
                    (entry.ended, entry.completed) = (Ended::Maybe, now);
                }
                if end == End::Killed {
                    continue;
                }
                // What the first copy only had in its cache uncovers what it had before.
                entry.weak &= entry.elsewhere;
                // Which one is there is open again, and no flush will tell.
                entry.ended = Ended::Maybe;
                entry.completed = now;
                entry.superseded = NEVER;
                if end == End::PowerCut {
                    entry.landed = true;
                    entry.durable = false;
                }
            }
        }
    }
}

/// Drops what a power cut can no longer bring back, unless a read under way may still return it.
fn drop_obsolete(history: &mut Vec<Entry>, oldest_read: u32) {
    let last = history.iter().filter(|entry| entry.durable).map(|entry| entry.issued).max().unwrap_or(0);
    for entry in history.iter_mut() {
        entry.obsolete |= entry.completed < last;
    }
    history.retain(|entry| !entry.obsolete || entry.superseded > oldest_read);
}

/// What was seen while nothing was in flight is what is there, from now on.
fn narrow(history: &mut Vec<Entry>, seen: &[bool], began: u32, now: u32, view: SectorView) {
    if history.len() == 1 {
        return;
    }
    let settled = |entry: &Entry| (entry.ended == Ended::Good || entry.settled) && entry.completed < began;
    if !history.iter().all(settled) {
        return;
    }
    // What was written since the power cut may go with the next one; then what the first one left
    // is back.
    let landed = history.iter().zip(seen).any(|(entry, seen)| *seen && entry.landed);
    let mut index = 0;
    history.retain_mut(|entry| {
        let seen = seen[index];
        index += 1;
        if seen {
            // It is there, whatever became of its write; of two copies it is now the one that is
            // read.
            (entry.weak, entry.elsewhere) = (false, false);
            if !view.copies_may_differ {
                entry.ended = Ended::Good;
                entry.durable |= entry.landed;
            }
            return true;
        }
        if entry.superseded < NEVER {
            return true;
        }
        // What was written since the restart went to every copy.
        if view.copies_may_differ && entry.settled {
            entry.weak = true;
            entry.elsewhere |= entry.landed && landed;
            return true;
        }
        entry.superseded = now;
        !(entry.landed && landed)
    });
}

#[cfg(test)]
mod tests;
