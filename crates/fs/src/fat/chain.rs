//! Chains of clusters: the table says for each cluster which one follows.

use std::collections::BTreeMap;

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::source::{ByteSource, FileRun};

use super::FatEntry;
use super::boot::{FatBoot, FatKind};

/// Where a chain goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// With this cluster.
    To(u32),
    /// With what follows this one, which the table is still to be asked for.
    Behind(u32),
    End,
}

/// Clusters that lie side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterRun {
    pub offset: u64,
    pub len: u64,
}

/// The clusters of a file or directory, from the first one on: how far they were followed.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    link: Link,
    /// More than that are none: the chain is longer than what it holds.
    left: u64,
    /// The table does not count: they lie side by side.
    in_one_piece: bool,
    /// Only its end tells how long a directory of FAT is, so that a copy which has another one
    /// makes both doubtful.
    of_directory: bool,
    /// The cluster behind which copies of the table first differed, of a directory.
    doubtful: Option<u32>,
    /// It went on by another copy of the table than the first.
    is_copied: bool,
    passed: PassedClusters,
}

/// Clusters of a chain that were passed: none of them may come again.
#[derive(Debug, Clone, Default)]
struct PassedClusters {
    /// The first, and the one behind the last, of those side by side.
    ranges: BTreeMap<u32, u32>,
    /// Runs that came when there were ranges enough, and the first cluster of one of these: it
    /// changes ever more seldom, so that a circle comes back to it.
    further: u64,
    mark: Option<u32>,
}

impl PassedClusters {
    /// Ranges that are kept at most: some tens of MiB.
    const RANGES_MAX: usize = 1 << 20;

    fn has(&self, cluster: u32) -> bool {
        let range = self.ranges.range(..=cluster).next_back();
        range.is_some_and(|(_, &end)| cluster < end) || self.mark == Some(cluster)
    }

    fn add(&mut self, first: u32, count: u64) {
        let end = first.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let has_room = self.ranges.len() < Self::RANGES_MAX;
        match self.ranges.range_mut(..first).next_back() {
            Some((_, before)) if *before == first => *before = end,
            _ if has_room => _ = self.ranges.insert(first, end),
            _ => {
                self.further += 1;
                self.mark = if self.further.is_power_of_two() { Some(first) } else { self.mark };
            }
        }
    }
}

impl Chain {
    /// Of what an entry names, of at most so many bytes.
    pub fn new(boot: &FatBoot, entry: &FatEntry, bytes: u64) -> Self {
        let left = bytes.div_ceil(boot.cluster_bytes).min(u64::from(boot.clusters));
        Self {
            link: Link::To(entry.first),
            left,
            in_one_piece: entry.in_one_piece,
            of_directory: entry.is_directory,
            doubtful: None,
            is_copied: false,
            passed: PassedClusters::default(),
        }
    }

    /// The next clusters that lie side by side; `None` at the end of the chain, or once all bytes
    /// are covered. An error comes behind all that leads to it, and again when asked again.
    pub fn run(&mut self, source: &ByteSource, boot: &FatBoot) -> Result<Option<ClusterRun>, Error> {
        let table = Table { source, boot };
        if let Link::Behind(last) = self.link
            && self.left > 0
        {
            self.link = self.follows(&table, last)?;
        }
        let Link::To(first) = self.link else { return Ok(None) };
        if self.left == 0 {
            return Ok(None);
        }
        let offset = table.offset(first)?;
        if self.passed.has(first) {
            return Err(damaged(first, "its chain comes back to it, round in a circle"));
        }
        let mut count = 1;
        if self.in_one_piece {
            count = self.left;
            table.offset(first + (count - 1).min(u64::from(u32::MAX - first)) as u32)?;
        } else {
            self.link = Link::Behind(first);
            while let Link::Behind(last) = self.link
                && count < self.left
            {
                match self.follows(&table, last) {
                    Ok(Link::To(next)) if next == last + 1 && !self.passed.has(next) => {
                        (self.link, count) = (Link::Behind(next), count + 1);
                    }
                    Ok(link) => self.link = link,
                    Err(_) => break,
                }
            }
        }
        self.passed.add(first, count);
        self.left -= count;
        Ok(Some(ClusterRun { offset, len: count * boot.cluster_bytes }))
    }

    /// What follows a cluster, by all copies of the table. A file has a size: where one copy goes
    /// on before that is reached and another one does not, the first of them is right.
    fn follows(&mut self, table: &Table<'_>, cluster: u32) -> Result<Link, Error> {
        let (first, others) = table.boot.tables.split_first().ok_or(Error::Unrecognised)?;
        let mut chosen = table.follows(*first, cluster);
        for other in others {
            let other = table.follows(*other, cluster);
            let (is_other, is_doubtful) = match (&chosen, &other) {
                (Ok(chosen), Ok(other)) if chosen == other => (false, false),
                // What cannot be read is nowhere else.
                (Err(Error::Read { .. }), Ok(_)) => (true, false),
                (_, Err(Error::Read { .. })) => (false, false),
                (Ok(Link::To(_)), Ok(Link::To(_))) if !self.of_directory => {
                    return Err(damaged(cluster, "copies of the table have other clusters behind it"));
                }
                (Ok(Link::To(_)), _) => (false, true),
                (_, Ok(Link::To(_))) | (Err(_), Ok(_)) => (true, true),
                _ => (false, false),
            };
            self.is_copied |= is_other && is_doubtful;
            if is_doubtful && self.of_directory {
                self.doubtful.get_or_insert(cluster);
            }
            chosen = if is_other { other } else { chosen };
        }
        chosen
    }

    /// Whether it went on where the first table does not, as Linux would not.
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// Of a directory, that copies of the table differ about it.
    pub fn check(&self) -> Result<(), Error> {
        match self.doubtful {
            Some(cluster) => Err(damaged(cluster, "copies of the table differ about what follows it")),
            None => Ok(()),
        }
    }

    /// Whether the table says that it ends where the last run did.
    pub fn has_ended(&self) -> bool {
        matches!(self.link, Link::End)
    }
}

/// What says for each cluster which one follows.
struct Table<'a> {
    source: &'a ByteSource,
    boot: &'a FatBoot,
}

impl Table<'_> {
    /// Where a cluster is.
    fn offset(&self, cluster: u32) -> Result<u64, Error> {
        match cluster.checked_sub(2).filter(|ix| *ix < self.boot.clusters) {
            Some(ix) => Ok(self.boot.heap_offset + u64::from(ix) * self.boot.cluster_bytes),
            None => Err(damaged(cluster, "there is no cluster of that number")),
        }
    }

    /// What follows a cluster by the copy of the table that begins there.
    fn follows(&self, table: u64, cluster: u32) -> Result<Link, Error> {
        let number = u64::from(cluster);
        let (at, len) = match self.boot.kind {
            FatKind::Fat12 => (number + number / 2, 2),
            FatKind::Fat16 => (number * 2, 2),
            FatKind::Fat32 | FatKind::ExFat => (number * 4, 4),
        };
        let mut entry = [0; 4];
        self.source.read(table + at, &mut entry[..len])?;
        if entry == [0xff; 4] && self.is_erased(table + at)? {
            return Err(damaged(cluster, "it is in a part of the table that is erased: all of it is 0xff"));
        }
        let (short, long) = (le16(&entry, 0).unwrap_or(0), le32(&entry, 0).unwrap_or(0));
        let (next, bad) = match self.boot.kind {
            FatKind::Fat12 if number % 2 == 0 => (u32::from(short & 0xfff), 0xff7),
            FatKind::Fat12 => (u32::from(short >> 4), 0xff7),
            FatKind::Fat16 => (u32::from(short), 0xfff7),
            FatKind::Fat32 => (long & 0x0fff_ffff, 0x0fff_fff7),
            FatKind::ExFat => (long, 0xffff_fff7),
        };
        match next {
            0 | 1 => Err(damaged(cluster, "it is in a file and marked as free")),
            next if next == bad => Err(damaged(cluster, "it is in a file and marked as bad")),
            next if next > bad => Ok(Link::End),
            next => self.offset(next).map(|_| Link::To(next)),
        }
    }

    /// Whether all of a sector is ones, as flash memory returns what it lost. Entries of 32 bits
    /// that end chains, one behind the other, are none: of FAT32 they have four bits less, and
    /// exFAT has none for a file of one cluster.
    fn is_erased(&self, at: u64) -> Result<bool, Error> {
        const SECTOR_BYTES: u64 = 512;
        let sector = self.source.bytes(at / SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES as usize)?;
        Ok(sector.iter().all(|&byte| byte == 0xff))
    }
}

fn damaged(cluster: u32, what: &'static str) -> Error {
    Error::Damaged { structure: "cluster", at: cluster.into(), what }
}

impl ClusterRun {
    /// As a part of a file that begins at `at` and ends with the file.
    pub fn of_file(self, at: u64, end: u64) -> FileRun {
        FileRun::plain(at, self.offset, self.len.min(end - at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_is_known_and_a_circle_of_any_length_comes_back() {
        let mut passed = PassedClusters::default();
        passed.add(10, 3);
        passed.add(13, 2);
        passed.add(7, 1);
        let found: Vec<u32> = (5..18).filter(|&cluster| passed.has(cluster)).collect();
        assert_eq!((found, passed.ranges.len()), (vec![7, 10, 11, 12, 13, 14], 2));
        // Ranges enough: the circle is found by the mark.
        for range in 0..PassedClusters::RANGES_MAX as u32 {
            passed.add(100 + 2 * range, 1);
        }
        let circle: Vec<u32> = (0..777).map(|cluster| 0x0800_0000 + 2 * cluster).collect();
        let mut chain = circle.iter().cycle();
        let steps = (0..5000).take_while(|_| {
            let next = *chain.next().unwrap();
            let is_new = !passed.has(next);
            passed.add(next, 1);
            is_new
        });
        assert!((777..5000).contains(&steps.count()));
    }
}
