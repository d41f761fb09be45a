//! Layout numbers and their names, as mdadm takes and shows them (docs/formats.md §6, §7.1, §8.1).

use super::mirror::{FarSets, Raid10Layout};
use super::{Level, parity};

/// Names of RAID 0 layouts: number, name.
const RAID0: [(u32, &str); 2] = [(1, "original"), (2, "alternate")];

const FAR_SETS: &str = "far-sets";
const FAR_SETS_OLD: &str = "far-sets-old";

/// Why a text names no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseLayoutError {
    /// The level has no layout of that name.
    #[error("{level} has no layout of this name")]
    Unknown {
        /// The level asked for.
        level: Level,
    },
    /// A RAID 10 layout with one copy only, or with more copies than members.
    #[error("the layout has {copies} copies, expected 2 to {raid_disks} (the members)")]
    Copies {
        /// Copies of each chunk.
        copies: u32,
        /// Members.
        raid_disks: u32,
    },
}

/// The layout a new array gets if none is asked for, as md's number.
#[must_use]
pub fn default_layout(level: Level) -> u32 {
    match level {
        Level::Raid5 | Level::Raid6 => 2,
        Level::Raid10 => 0x102,
        Level::Raid0 => 1,
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
    }
}

/// The name mdadm shows for a layout number; `None` if the level has no choice of layouts or none
/// of this number.
///
/// RAID 10 words with far sets get ", far-sets" (or ", far-sets-old") in addition, which mdadm does
/// not show.
#[must_use]
pub fn layout_name(level: Level, word: u32) -> Option<String> {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 => RAID0.iter().find(|layout| layout.0 == word).map(|layout| layout.1.to_owned()),
        Level::Raid5 | Level::Raid6 => parity::layout(level, word).map(|layout| layout.name.to_owned()),
        Level::Raid10 => Raid10Layout::from_word(word).map(raid10_name),
    }
}

fn raid10_name(layout: Raid10Layout) -> String {
    let Raid10Layout { near, far, offset, far_sets } = layout;
    let mut parts = Vec::new();
    if near != 1 || (far == 1 && !offset) {
        parts.push(format!("near={near}"));
    }
    if far != 1 || offset {
        parts.push(format!("{}={far}", if offset { "offset" } else { "far" }));
    }
    match far_sets {
        FarSets::One => {}
        FarSets::Improved => parts.push(FAR_SETS.to_owned()),
        FarSets::Old => parts.push(FAR_SETS_OLD.to_owned()),
    }
    parts.join(", ")
}

/// The layout number for a name: mdadm's long and short names ("left-symmetric", "ls"; "n2", "f2",
/// "o3") and everything [`layout_name`] returns.
///
/// # Errors
/// If the level has no layout of that name, or `raid_disks` members are too few for its copies.
pub fn parse_layout(level: Level, raid_disks: u32, text: &str) -> Result<u32, ParseLayoutError> {
    let word = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 => RAID0.iter().find(|layout| layout.1 == text).map(|layout| layout.0),
        Level::Raid5 | Level::Raid6 => parity::layouts(level)
            .iter()
            .find(|layout| layout.name == text || layout.alias == text)
            .map(|layout| layout.word),
        Level::Raid10 => {
            let layout = parse_raid10(text).ok_or(ParseLayoutError::Unknown { level })?;
            let copies = layout.copies();
            if !(2..=raid_disks).contains(&copies) {
                return Err(ParseLayoutError::Copies { copies, raid_disks });
            }
            Some(layout.to_word())
        }
    };
    word.ok_or(ParseLayoutError::Unknown { level })
}

fn parse_raid10(text: &str) -> Option<Raid10Layout> {
    let mut layout = Raid10Layout { near: 1, far: 1, offset: false, far_sets: FarSets::One };
    for part in text.split(',').map(str::trim) {
        match part {
            FAR_SETS => layout.far_sets = FarSets::Improved,
            FAR_SETS_OLD => layout.far_sets = FarSets::Old,
            _ => {
                let digits = part.find(|c: char| c.is_ascii_digit())?;
                let (kind, copies) = (&part[..digits], u16::from(part[digits..].parse::<u8>().ok()?));
                match kind {
                    "n" | "near=" => layout.near = copies,
                    "f" | "far=" => layout.far = copies,
                    "o" | "offset=" => (layout.far, layout.offset) = (copies, true),
                    _ => return None,
                }
            }
        }
    }
    Raid10Layout::from_word(layout.to_word())
}
