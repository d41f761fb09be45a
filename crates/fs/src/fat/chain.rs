//! Chains of clusters: the table says for each cluster which one follows.

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::source::{ByteSource, FileRun};

use super::boot::{FatBoot, FatKind};

/// Where a chain goes on.
#[derive(Debug, Clone, Copy)]
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
    /// More than that are none: the chain is a circle, or longer than what it holds.
    left: u64,
    /// The table does not count: they lie side by side.
    in_one_piece: bool,
}

impl Chain {
    /// Of at most so many bytes. `in_one_piece` says that they lie side by side without the table.
    pub fn new(boot: &FatBoot, first: u32, bytes: u64, in_one_piece: bool) -> Self {
        let left = bytes.div_ceil(boot.cluster_bytes).min(u64::from(boot.clusters));
        Self { link: Link::To(first), left, in_one_piece }
    }

    /// The next clusters that lie side by side; `None` at the end of the chain, or once all bytes
    /// are covered. An error comes behind all that leads to it, and again when asked again.
    pub fn run(&mut self, source: &ByteSource, boot: &FatBoot) -> Result<Option<ClusterRun>, Error> {
        let table = Table { source, boot };
        if let Link::Behind(last) = self.link
            && self.left > 0
        {
            self.link = table.follows(last)?;
        }
        let Link::To(first) = self.link else { return Ok(None) };
        if self.left == 0 {
            return Ok(None);
        }
        let offset = table.offset(first)?;
        let mut count = 1;
        if self.in_one_piece {
            count = self.left;
            table.offset(first + (count - 1).min(u64::from(u32::MAX - first)) as u32)?;
        } else {
            self.link = Link::Behind(first);
            while let Link::Behind(last) = self.link
                && count < self.left
            {
                match table.follows(last) {
                    Ok(Link::To(next)) if next == last + 1 && table.offset(next).is_ok() => {
                        (self.link, count) = (Link::Behind(next), count + 1);
                    }
                    Ok(link) => self.link = link,
                    Err(_) => break,
                }
            }
        }
        self.left -= count;
        Ok(Some(ClusterRun { offset, len: count * boot.cluster_bytes }))
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

    fn follows(&self, cluster: u32) -> Result<Link, Error> {
        let number = u64::from(cluster);
        let (at, len) = match self.boot.kind {
            FatKind::Fat12 => (number + number / 2, 2),
            FatKind::Fat16 => (number * 2, 2),
            FatKind::Fat32 | FatKind::ExFat => (number * 4, 4),
        };
        let mut entry = [0; 4];
        let mut read = Ok(());
        // A copy of the table is as good.
        for table in &self.boot.tables {
            read = self.source.read(table + at, &mut entry[..len]);
            if read.is_ok() {
                break;
            }
        }
        read?;
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
            next => Ok(Link::To(next)),
        }
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
