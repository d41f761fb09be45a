//! The levels of md.

use std::fmt;
use std::str::FromStr;

/// An md level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after the other.
    Linear,
    /// Striping.
    Raid0,
    /// Mirroring.
    Raid1,
    /// Striping with parity on one member.
    Raid4,
    /// Striping with parity that rotates.
    Raid5,
    /// Striping with two parities.
    Raid6,
    /// Striping of copies.
    Raid10,
}

/// What levels have in common as far as I/O goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelKind {
    /// Every sector is on one member: linear, RAID 0.
    Striped,
    /// Every sector is on several members: RAID 1, RAID 10.
    Mirrored,
    /// Stripes with parity: RAID 4, 5, 6.
    Parity,
}

/// Level, md's number, mdadm's name, other names mdadm takes.
const LEVELS: [(Level, i32, &str, &[&str]); 7] = [
    (Level::Linear, -1, "linear", &["-1"]),
    (Level::Raid0, 0, "raid0", &["0", "stripe"]),
    (Level::Raid1, 1, "raid1", &["1", "mirror"]),
    (Level::Raid4, 4, "raid4", &["4"]),
    (Level::Raid5, 5, "raid5", &["5"]),
    (Level::Raid6, 6, "raid6", &["6"]),
    (Level::Raid10, 10, "raid10", &["10"]),
];

impl Level {
    /// The level of this md number; `None` for multipath, faulty and numbers md does not know.
    #[must_use]
    pub fn from_md(number: i32) -> Option<Self> {
        LEVELS.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    /// md's number.
    #[must_use]
    pub fn to_md(self) -> i32 {
        LEVELS[self as usize].1
    }

    /// mdadm's name: "raid5".
    #[must_use]
    pub fn name(self) -> &'static str {
        LEVELS[self as usize].2
    }

    /// Which kind of map the level has.
    #[must_use]
    pub fn kind(self) -> LevelKind {
        match self {
            Self::Linear | Self::Raid0 => LevelKind::Striped,
            Self::Raid1 | Self::Raid10 => LevelKind::Mirrored,
            Self::Raid4 | Self::Raid5 | Self::Raid6 => LevelKind::Parity,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected linear, raid0, raid1, raid4, raid5, raid6 or raid10")]
pub struct ParseLevelError;

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(text: &str) -> Result<Self, ParseLevelError> {
        let named = |row: &&(Self, i32, &str, &[&str])| row.2 == text || row.3.contains(&text);
        LEVELS.iter().find(named).map(|row| row.0).ok_or(ParseLevelError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, row) in LEVELS.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
            assert_eq!(Level::from_md(row.0.to_md()), Some(row.0));
            assert_eq!(row.0.to_string().parse(), Ok(row.0));
            assert!(row.3.iter().all(|name| name.parse() == Ok(row.0)));
        }
        assert_eq!(Level::from_md(-4), None);
        assert_eq!("raid7".parse::<Level>(), Err(ParseLevelError));
    }
}
