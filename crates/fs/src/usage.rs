//! How full a file system is, as its groups count, so that it can be told of one that is mounted
//! elsewhere.
//!
//! ext and XFS keep a count of free blocks in the superblock and one in each group. While it is
//! mounted Linux brings the superblock's up to date seldom or never: ext's now and then in newer
//! versions, XFS's (`lazy-count`) when the log is covered or it is unmounted. The groups' counts
//! are part of every transaction and are written back within a minute or so. Therefore groups are
//! read: one sector of each allocation group of XFS, 64 bytes of each block group of ext. btrfs
//! writes its superblock with every transaction, by default every 30 seconds. What a file system
//! holds back for structures of its own counts as free here, and not in df(1): of ext4 a fiftieth
//! part, but 4096 clusters at most, of XFS and btrfs some hundredth parts.

/// The most blocks of descriptors, or the most heads of groups, that are read. Beyond it the
/// superblock's own count is taken: ext has so many from 128 TiB on.
pub(crate) const READS_MAX: u64 = 1 << 14;

/// How full it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemUsage {
    /// `ext2`, `ext3`, `ext4`, `xfs`, `btrfs`.
    pub kind: &'static str,
    /// What is in use, without what the file system keeps for itself where it counts that.
    pub used_bytes: u64,
    /// What users other than root can still have.
    pub free_bytes: u64,
}

impl FileSystemUsage {
    /// Used, of a hundred, rounded up, as df(1) has it.
    #[must_use]
    pub fn percent(&self) -> u8 {
        let usable = u128::from(self.used_bytes) + u128::from(self.free_bytes);
        let percent = (u128::from(self.used_bytes) * 100).div_ceil(usable.max(1));
        u8::try_from(percent).unwrap_or(100).min(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_rounded_up_and_never_more_than_all() {
        let of = |used_bytes, free_bytes| FileSystemUsage { kind: "ext4", used_bytes, free_bytes }.percent();
        assert_eq!([of(0, 0), of(0, 5), of(1, 999), of(90, 10), of(5, 0)], [0, 0, 1, 90, 100]);
        assert_eq!(of(u64::MAX, u64::MAX), 50);
    }
}
