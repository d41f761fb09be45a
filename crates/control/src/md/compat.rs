//! What else opens an array: which kernels, which mdadm, and what wattle itself does with it. A
//! table over its features.

use std::fmt;

use crate::md::facts::{BitmapFacts, Features, SuperblockFacts, Version};
use crate::problem::{Code, Problem};

/// A kernel or mdadm version: major, minor.
pub type Release = (u16, u16);

/// What opens an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compatibility {
    /// The first kernel that does; `None` if every kernel with md does.
    pub kernel_from: Option<Release>,
    /// Kernels from the first to before the second do not, although older and newer ones do.
    pub kernel_gap: Option<(Release, Release)>,
    /// The first mdadm that handles it; `None` if every one does.
    pub mdadm_from: Option<Release>,
    /// Why, one sentence for each row that applies.
    pub notes: Vec<&'static str>,
}

/// One feature and what it asks for.
struct Row {
    applies: fn(&SuperblockFacts, BitmapFacts, u32) -> bool,
    kernel_from: Option<Release>,
    kernel_gap: Option<(Release, Release)>,
    mdadm_from: Option<Release>,
    note: &'static str,
    /// What is to be done where the kernel does not open it.
    next: &'static str,
}

/// What stands in the way of a release of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obstacle {
    /// What it does not open.
    pub what: &'static str,
    /// What to do.
    pub next: &'static str,
    /// It is the logical block size, which is taken back ([`crate::older_linux`]).
    pub is_block_statement: bool,
}

const WATTLE_OPENS_IT: &str = "`wattle serve` opens it on that machine without the kernel's md";

const ROW: Row = Row {
    applies: |_, _, _| false,
    kernel_from: None,
    kernel_gap: None,
    mdadm_from: None,
    note: "",
    next: WATTLE_OPENS_IT,
};

const LOG_OUT: &str =
    "`mdadm --grow --consistency-policy=resync` on a Linux that opens it takes the logs out";

const RESHAPE_OUT: &str = "let a Linux that opens it finish the reshape";

const CONTAINER: &str = "a volume of firmware RAID: mdadm reads its metadata and tells the kernel, and which of its levels a release opens is not \
                         told here";

const BLOCK_STATED: &str = "the superblock states the logical block size, which older kernels refuse";

/// docs/formats.md §1.2, §8, §10; the kernel releases are those in which the feature was merged.
const ROWS: [Row; 15] = [
    Row {
        applies: |array, _, _| array.level == -1,
        kernel_gap: Some(((6, 8), (6, 14))),
        note: "linear was taken out of Linux 6.8 and came back in 6.14",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::RAID0_LAYOUT),
        kernel_from: Some((5, 4)),
        note: "the superblock states the RAID 0 layout, which older kernels refuse as an unknown feature",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.level == 0 && !array.has(Features::RAID0_LAYOUT),
        note: "the RAID 0 layout is not stated: with members of different sizes Linux 5.4 and later ask for raid0.default_layout",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::PPL),
        kernel_from: Some((4, 12)),
        mdadm_from: Some((4, 0)),
        note: "partial parity logs",
        next: LOG_OUT,
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::MULTIPLE_PPLS),
        kernel_from: Some((4, 14)),
        mdadm_from: Some((4, 0)),
        note: "rings of partial parity logs",
        next: LOG_OUT,
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::JOURNAL),
        kernel_from: Some((4, 4)),
        mdadm_from: Some((3, 4)),
        note: "a RAID 5 journal",
        ..ROW
    },
    Row {
        applies: |array, bitmap, _| array.has(Features::CLUSTERED) || bitmap == BitmapFacts::Version(5),
        kernel_from: Some((4, 1)),
        mdadm_from: Some((3, 4)),
        note: "a clustered bitmap, which also needs the cluster's lock manager",
        ..ROW
    },
    Row {
        applies: |_, bitmap, _| bitmap == BitmapFacts::Version(6),
        kernel_from: Some((6, 18)),
        mdadm_from: Some((4, 6)),
        note: "a lockless bitmap",
        next: "`mdadm --grow --bitmap=none` on a Linux that opens it takes the bitmap out",
        ..ROW
    },
    Row {
        applies: |_, _, logical_block_bytes| logical_block_bytes != 0,
        kernel_from: Some((6, 19)),
        note: BLOCK_STATED,
        next: "`wattle compat MEMBER... --for 6.18` takes it back",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::REPLACEMENT),
        kernel_from: Some((3, 3)),
        note: "a member is being replaced",
        next: "let a Linux that opens it, or wattle, finish that",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::BAD_BLOCKS),
        kernel_from: Some((3, 1)),
        note: "bad blocks are recorded, which older kernels refuse as an unknown feature",
        next: "`mdadm --assemble --update=force-no-bbl` on a Linux that opens it forgets them: what they name is lost",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::RESHAPE_BACKWARDS),
        kernel_from: Some((3, 5)),
        note: "a reshape goes backwards",
        next: RESHAPE_OUT,
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::NEW_OFFSET),
        kernel_from: Some((3, 5)),
        note: "a reshape moves the data to another place on the members",
        next: RESHAPE_OUT,
        ..ROW
    },
    Row {
        applies: |array, _, _| array.has(Features::RECOVERY_BITMAP),
        kernel_from: Some((3, 14)),
        note: "a member is brought up to date as the bitmap says",
        next: "let a Linux that opens it, or wattle, finish that",
        ..ROW
    },
    Row {
        applies: |array, _, _| array.version == Version::V090,
        note: "metadata 0.90: at most 27 members, assembled by the kernel itself at boot (type fd partitions)",
        ..ROW
    },
];

/// What opens an array with this superblock and bitmap; `logical_block_bytes` is the superblock's
/// own field, 0 if not stated.
#[must_use]
pub fn compatibility(
    array: &SuperblockFacts,
    bitmap: BitmapFacts,
    logical_block_bytes: u32,
) -> Compatibility {
    // What is said of md's own superblocks does not hold.
    if array.container.is_some() {
        let mdadm_from = Some((3, 0));
        return Compatibility { kernel_from: None, kernel_gap: None, mdadm_from, notes: vec![CONTAINER] };
    }
    let rows = || ROWS.iter().filter(|row| (row.applies)(array, bitmap, logical_block_bytes));
    Compatibility {
        kernel_from: rows().filter_map(|row| row.kernel_from).max(),
        kernel_gap: rows().find_map(|row| row.kernel_gap),
        mdadm_from: rows().filter_map(|row| row.mdadm_from).max(),
        notes: rows().map(|row| row.note).collect(),
    }
}

/// What keeps a release of Linux from opening an array with this superblock and bitmap.
pub fn obstacles(
    array: &SuperblockFacts,
    bitmap: BitmapFacts,
    logical_block_bytes: u32,
    linux: Release,
) -> Vec<Obstacle> {
    let in_the_way = |row: &&Row| {
        row.kernel_from.is_some_and(|from| linux < from)
            || row.kernel_gap.is_some_and(|(from, to)| (from..to).contains(&linux))
    };
    ROWS.iter()
        .filter(|row| (row.applies)(array, bitmap, logical_block_bytes))
        .filter(in_the_way)
        .map(|row| Obstacle { what: row.note, next: row.next, is_block_statement: row.note == BLOCK_STATED })
        .collect()
}

/// A release of Linux from what a user types or `uname -r` says: `6.12`, `v6.1`,
/// `5.10.0-33-amd64`.
///
/// # Errors
/// It does not begin with two numbers.
pub fn parse_release(text: &str) -> Result<Release, Problem> {
    let digits = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let mut parts = digits.split(['.', '-', '_', '+', '~']);
    let mut number = || parts.next()?.parse::<u16>().ok();
    match (number(), number()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(Problem::new(
            Code::Usage,
            format!("`{text}` is no release of Linux"),
            "a release begins with two numbers: 6.12, 5.10.0-33-amd64",
            "take what `uname -r` says on that machine",
        )),
    }
}

impl Compatibility {
    /// `Linux 5.4 and later`, `every Linux with md`.
    #[must_use]
    pub fn kernels(&self) -> String {
        match (self.kernel_from, self.kernel_gap) {
            (None, None) => "every Linux with md".to_owned(),
            (Some((major, minor)), None) => format!("Linux {major}.{minor} and later"),
            (None, Some((from, to))) => {
                format!("Linux before {}.{} and from {}.{} on", from.0, from.1, to.0, to.1)
            }
            (Some(first), Some((_, to))) => {
                let (major, minor) = first.max(to);
                format!("Linux {major}.{minor} and later")
            }
        }
    }

    /// `mdadm 4.0 and later`, `every mdadm`.
    #[must_use]
    pub fn mdadm(&self) -> String {
        self.mdadm_from
            .map_or("every mdadm".to_owned(), |(major, minor)| format!("mdadm {major}.{minor} and later"))
    }
}

impl fmt::Display for Compatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.kernels(), self.mdadm())?;
        if !self.notes.is_empty() {
            write!(f, " ({})", self.notes.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::md::facts::Uuid;

    fn raid5(features: Features) -> SuperblockFacts {
        SuperblockFacts {
            version: Version::V12,
            set_uuid: Uuid([7; 16]),
            set_name: "host:data".to_owned(),
            level: 5,
            layout: 2,
            chunk_sectors: 128,
            size_sectors: 4096,
            raid_disks: 3,
            dev_number: 0,
            device_uuid: None,
            roles: Vec::new(),
            events: 1,
            ctime_secs: 0,
            utime_secs: 0,
            resync_offset: u64::MAX,
            recovery_offset: None,
            data_offset_sectors: 2048,
            data_size_sectors: 4096,
            features,
            reshape: None,
            container: None,
        }
    }

    /// A feature without a row passes for one that every kernel with metadata 1.x knows.
    #[test]
    fn each_feature_has_a_row_or_is_as_old_as_the_format() {
        let old = Features(0x1 | 0x2 | 0x4);
        for bit in (0..32).map(|bit| 1 << bit).filter(|bit| Features::KNOWN.0 & bit != 0) {
            let from = compatibility(&raid5(Features(bit)), BitmapFacts::None, 0).kernel_from;
            assert_eq!(from.is_none(), old.0 & bit != 0, "{bit:#x}: {from:?}");
        }
    }
}
