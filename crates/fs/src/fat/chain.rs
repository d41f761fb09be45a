//! Chains of clusters: the table says for each cluster which one follows.

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::source::{ByteSource, FileRun};

use super::boot::{FatBoot, FatKind};

/// What follows a cluster.
enum Next {
    Cluster(u32),
    End,
}

/// Clusters that lie side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClusterRun {
    pub offset: u64,
    pub len: u64,
}

/// The clusters of a file or directory, from the first one on.
pub(super) struct Chain<'a> {
    source: &'a ByteSource,
    boot: &'a FatBoot,
    next: Option<u32>,
    /// More than that are none: the chain is a circle, or longer than what it holds.
    left: u64,
    /// The table does not count: they lie side by side.
    in_one_piece: bool,
    has_ended: bool,
}

impl<'a> Chain<'a> {
    /// Of at most so many bytes. `in_one_piece` says that they lie side by side without the table.
    pub fn new(
        source: &'a ByteSource,
        boot: &'a FatBoot,
        first: u32,
        bytes: u64,
        in_one_piece: bool,
    ) -> Self {
        let left = bytes.div_ceil(boot.cluster_bytes).min(u64::from(boot.clusters));
        Self { source, boot, next: (left > 0).then_some(first), left, in_one_piece, has_ended: false }
    }

    /// The next clusters that lie side by side; `None` at the end of the chain, or once all bytes
    /// are covered.
    pub fn run(&mut self) -> Result<Option<ClusterRun>, Error> {
        let Some(first) = self.next.take().filter(|_| self.left > 0) else { return Ok(None) };
        let offset = self.offset(first)?;
        let mut count = 1;
        if self.in_one_piece {
            count = self.left;
            self.offset(first + (count - 1).min(u64::from(u32::MAX - first)) as u32)?;
            self.left = 0;
        } else {
            let mut last = first;
            self.left -= 1;
            while self.left > 0 {
                match self.follows(last)? {
                    Next::Cluster(next) if next == last + 1 => {
                        self.offset(next)?;
                        (last, count, self.left) = (next, count + 1, self.left - 1);
                    }
                    Next::Cluster(next) => {
                        self.next = Some(next);
                        break;
                    }
                    Next::End => {
                        self.has_ended = true;
                        break;
                    }
                }
            }
        }
        Ok(Some(ClusterRun { offset, len: count * self.boot.cluster_bytes }))
    }

    /// Whether the table says that it ends where the last run did.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Where a cluster is.
    fn offset(&self, cluster: u32) -> Result<u64, Error> {
        match cluster.checked_sub(2).filter(|ix| *ix < self.boot.clusters) {
            Some(ix) => Ok(self.boot.heap_offset + u64::from(ix) * self.boot.cluster_bytes),
            None => Err(damaged(cluster, "there is no cluster of that number")),
        }
    }

    fn follows(&self, cluster: u32) -> Result<Next, Error> {
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
            next if next > bad => Ok(Next::End),
            next => Ok(Next::Cluster(next)),
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
