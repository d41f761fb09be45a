//! Levels and layouts, as far as they can be wished for.

use std::fmt;

use crate::limits::Scheme;

/// A level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanLevel {
    /// No arrays: every drive is a physical volume, and volumes lie in stripes over them.
    None,
    /// RAID 0.
    Raid0,
    /// RAID 1.
    Raid1,
    /// RAID 5.
    Raid5,
    /// RAID 6.
    Raid6,
    /// RAID 10.
    Raid10,
}

impl PlanLevel {
    /// All of them.
    pub const ALL: [PlanLevel; 6] = [
        PlanLevel::None,
        PlanLevel::Raid0,
        PlanLevel::Raid1,
        PlanLevel::Raid5,
        PlanLevel::Raid6,
        PlanLevel::Raid10,
    ];

    /// As `--level` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Raid0 => "0",
            Self::Raid1 => "1",
            Self::Raid5 => "5",
            Self::Raid6 => "6",
            Self::Raid10 => "10",
        }
    }
}

impl fmt::Display for PlanLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no array"),
            level => write!(f, "raid{}", level.name()),
        }
    }
}

/// A level with its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanShape {
    /// No array: stripes of a logical volume.
    Plain,
    /// RAID 0.
    Raid0,
    /// RAID 1: as many copies as members.
    Raid1,
    /// RAID 5, left-symmetric.
    Raid5,
    /// RAID 6, left-symmetric.
    Raid6,
    /// RAID 10, so many copies near one another.
    Near(u32),
    /// RAID 10, so many copies far from one another.
    Far(u32),
    /// RAID 10, so many copies in rows below one another.
    Offset(u32),
}

impl PlanShape {
    /// Its level.
    #[must_use]
    pub fn level(self) -> PlanLevel {
        match self {
            Self::Plain => PlanLevel::None,
            Self::Raid0 => PlanLevel::Raid0,
            Self::Raid1 => PlanLevel::Raid1,
            Self::Raid5 => PlanLevel::Raid5,
            Self::Raid6 => PlanLevel::Raid6,
            Self::Near(_) | Self::Far(_) | Self::Offset(_) => PlanLevel::Raid10,
        }
    }

    /// Its layout, as mdadm and `--layout` name it, where the level has a choice.
    #[must_use]
    pub fn layout(self) -> Option<String> {
        match self {
            Self::Plain | Self::Raid0 | Self::Raid1 => None,
            Self::Raid5 | Self::Raid6 => Some("left-symmetric".to_owned()),
            Self::Near(copies) => Some(format!("n{copies}")),
            Self::Far(copies) => Some(format!("f{copies}")),
            Self::Offset(copies) => Some(format!("o{copies}")),
        }
    }

    /// The layout of RAID 10 that has this name.
    #[must_use]
    pub fn of_layout(name: &str) -> Option<PlanShape> {
        let (kind, copies) = name.split_at_checked(1)?;
        let copies = copies.parse().ok().filter(|copies| (2..=16).contains(copies))?;
        match kind {
            "n" => Some(Self::Near(copies)),
            "f" => Some(Self::Far(copies)),
            "o" => Some(Self::Offset(copies)),
            _ => None,
        }
    }

    /// Failed drives that it survives whichever they are.
    #[must_use]
    pub fn survives(self, members: u32) -> u32 {
        match self {
            Self::Plain | Self::Raid0 => 0,
            Self::Raid1 => members - 1,
            Self::Raid5 => 1,
            Self::Raid6 => 2,
            Self::Near(copies) | Self::Far(copies) | Self::Offset(copies) => copies - 1,
        }
    }

    /// Blocks of a stripe that are parity.
    #[must_use]
    pub fn parities(self) -> u32 {
        match self {
            Self::Raid5 => 1,
            Self::Raid6 => 2,
            _ => 0,
        }
    }

    /// How many times everything is there.
    #[must_use]
    pub fn copies(self, members: u32) -> u32 {
        match self {
            Self::Raid1 => members,
            Self::Near(copies) | Self::Far(copies) | Self::Offset(copies) => copies,
            _ => 1,
        }
    }

    /// Chunks that follow one another on different members before any member has its second: the
    /// width of a stripe, as a file system wants to know it.
    #[must_use]
    pub fn width(self, members: u32) -> u32 {
        match self {
            Self::Plain | Self::Raid0 | Self::Far(_) | Self::Offset(_) => members,
            Self::Raid1 => 1,
            Self::Raid5 | Self::Raid6 => members - self.parities(),
            // As md announces it: where copies do not come out even, a stripe is a row of all
            // members.
            Self::Near(copies) if members.is_multiple_of(copies) => members / copies,
            Self::Near(_) => members,
        }
    }

    /// Bytes of an array of which each member holds so many.
    #[must_use]
    pub fn array_bytes(self, members: u32, data_bytes: u64, chunk_bytes: u64) -> u64 {
        let chunks = data_bytes / chunk_bytes.max(1);
        match self {
            Self::Raid1 => data_bytes,
            Self::Plain | Self::Raid0 | Self::Raid5 | Self::Raid6 => {
                u64::from(members - self.parities()) * chunks * chunk_bytes
            }
            // Each copy of the far layout has a part of the members of its own; rows of the offset
            // layout come in sets.
            Self::Far(copies) => chunks / u64::from(copies) * u64::from(members) * chunk_bytes,
            Self::Offset(copies) => chunks / u64::from(copies) * u64::from(members) * chunk_bytes,
            Self::Near(copies) => chunks * u64::from(members) / u64::from(copies) * chunk_bytes,
        }
    }

    /// The same for reckoning limits.
    #[must_use]
    pub fn scheme(self, members: u32) -> Scheme {
        match self {
            Self::Plain | Self::Raid0 => Scheme::Striped,
            Self::Raid5 | Self::Raid6 => Scheme::Parity { parities: self.parities() },
            Self::Raid1 | Self::Near(_) => Scheme::Mirrored { copies: self.copies(members), far: false },
            Self::Far(copies) | Self::Offset(copies) => Scheme::Mirrored { copies, far: true },
        }
    }
}

impl fmt::Display for PlanShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.level(), self.layout()) {
            (PlanLevel::Raid10, Some(layout)) => write!(f, "raid10 {layout}"),
            (level, _) => write!(f, "{level}"),
        }
    }
}
