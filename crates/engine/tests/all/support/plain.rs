//! Arrays of the layout that each level usually has.

use wattle_engine::geometry::{Geometry, Level};

use super::case::case;

/// `chunk` counts where the level has chunks.
pub fn plain(level: Level, members: usize, chunk: u64, member_sectors: u64) -> Geometry {
    let (layout, chunk) = match level {
        Level::Linear | Level::Raid1 => (0, 0),
        Level::Raid0 | Level::Raid4 => (0, chunk),
        Level::Raid10 => (0x102, chunk),
        _ => (2, chunk),
    };
    case(level, layout, members, chunk).geometry(member_sectors)
}
