//! Where each version's superblock sits on a component (docs/formats.md §1.1).

use std::fmt;
use std::str::FromStr;

/// Metadata versions. The minor number of 1.x is not stored: it is known from where the superblock
/// was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.90 (and 0.91 while reshaping): 64 to 128 KiB before the end.
    V090,
    /// 1.0: 8 to 12 KiB before the end.
    V10,
    /// 1.1: at the start.
    V11,
    /// 1.2: 4 KiB from the start. mdadm's default.
    V12,
}

impl Version {
    /// In the order a scanner should prefer: a superblock at the start is never another device's by
    /// accident, whereas 0.90 and 1.0 at the end of a disk may belong to its last partition.
    pub const ALL: [Version; 4] = [Version::V12, Version::V11, Version::V10, Version::V090];

    /// Whether this is a 1.x version.
    #[must_use]
    pub fn is_1x(self) -> bool {
        self != Version::V090
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V090 => "0.90",
            Version::V10 => "1.0",
            Version::V11 => "1.1",
            Version::V12 => "1.2",
        })
    }
}

/// The text names no metadata version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata versions are 0.90, 1.0, 1.1 and 1.2")]
pub struct ParseVersionError;

impl FromStr for Version {
    type Err = ParseVersionError;

    /// `1` and `default` mean 1.2, as in mdadm.
    fn from_str(text: &str) -> Result<Self, ParseVersionError> {
        match text {
            "0.90" | "0.9" | "0" => Ok(Version::V090),
            "1.0" => Ok(Version::V10),
            "1.1" => Ok(Version::V11),
            "1.2" | "1" | "default" => Ok(Version::V12),
            _ => Err(ParseVersionError),
        }
    }
}

/// Bytes a reader needs for any superblock: 0.90 is exactly this long, 1.x never longer (256 +
/// 2·1920).
pub const SUPERBLOCK_BYTES: usize = 4096;

/// Components below this many sectors hold no 1.x superblock (12 KiB: the smallest on which all
/// three places exist).
pub const MIN_SECTORS_1X: u64 = 24;
/// Components below this many sectors hold no 0.90 superblock (the 64 KiB it reserves).
pub const MIN_SECTORS_090: u64 = 128;

/// First sector of the superblock on a component of `size_sectors`, or `None` when the component is
/// too small for one.
#[must_use]
pub fn super_offset_sectors(version: Version, size_sectors: u64) -> Option<u64> {
    let minimum = if version.is_1x() { MIN_SECTORS_1X } else { MIN_SECTORS_090 };
    if size_sectors < minimum {
        return None;
    }
    Some(match version {
        Version::V090 => (size_sectors & !127) - 128,
        Version::V10 => (size_sectors - 16) & !7,
        Version::V11 => 0,
        Version::V12 => 8,
    })
}

/// One range a scanner must read to look for a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockRange {
    /// The version whose place this is.
    pub version: Version,
    /// Start of the range on the component.
    pub offset_bytes: u64,
    /// Length of the range, always [`SUPERBLOCK_BYTES`]; it lies inside the component.
    pub len_bytes: usize,
}

/// Every place where a component of `size_sectors` may hold an md superblock, in order of
/// preference.
#[must_use]
pub fn scan_component(size_sectors: u64) -> Vec<SuperblockRange> {
    Version::ALL
        .into_iter()
        .filter_map(|version| {
            let offset_bytes = super_offset_sectors(version, size_sectors)?.checked_mul(512)?;
            Some(SuperblockRange { version, offset_bytes, len_bytes: SUPERBLOCK_BYTES })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        assert_eq!(super_offset_sectors(Version::V10, 16384), Some(16368));
        assert_eq!(super_offset_sectors(Version::V10, 16391), Some(16368));
        assert_eq!(super_offset_sectors(Version::V090, 16384), Some(16384 - 128));
        assert_eq!(super_offset_sectors(Version::V090, 16383), Some(16384 - 256));
        assert_eq!(super_offset_sectors(Version::V11, 16384), Some(0));
        assert_eq!(super_offset_sectors(Version::V12, 16384), Some(8));
    }

    #[test]
    fn ranges_lie_inside_every_component() {
        for size_sectors in (0..2000).chain([u64::MAX / 512, u64::MAX]) {
            for candidate in scan_component(size_sectors) {
                let end = u128::from(candidate.offset_bytes) + candidate.len_bytes as u128;
                assert!(end <= u128::from(size_sectors) * 512, "{candidate:?} on {size_sectors} sectors");
            }
        }
        assert!(scan_component(23).is_empty());
        assert_eq!(scan_component(127).len(), 3, "too small for 0.90");
        assert_eq!(
            scan_component(128)[3].offset_bytes,
            0,
            "0.90 on the smallest component starts at its start"
        );
    }

    #[test]
    fn text() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert_eq!("ddf".parse::<Version>(), Err(ParseVersionError));
    }
}
