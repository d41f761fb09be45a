//! What mdadm chooses for a new array: docs/formats.md §1.8. Pure functions of sizes.

use super::features::{BadBlockArea, PplArea};
use super::location::{SUPERBLOCK_BYTES, Version, super_offset_sectors};

/// Chunk of striped levels, in sectors (512 KiB).
pub const CHUNK_SECTORS: u32 = 1024;
/// Seconds between the bitmap's sweeps.
pub const DAEMON_SLEEP_SECS: u32 = 5;
/// Smallest bitmap chunk chosen when none is asked for, in bytes (64 MiB).
pub const BITMAP_CHUNK_BYTES: u64 = 64 << 20;
/// Sectors of a bad block log.
pub const BAD_BLOCK_LOG_SECTORS: u16 = 8;
/// Sectors of a PPL area.
pub const PPL_SECTORS: u16 = 2048;
/// Components from this size get a bitmap unasked (100 GiB in sectors; mdadm up to 4.3).
pub const AUTO_BITMAP_SECTORS: u64 = 100 << 21;

/// Headroom kept before the data for reshapes, on large devices (128 MiB).
const HEADROOM_SECTORS: u64 = 262_144;
/// What a superblock takes.
const SUPERBLOCK_SECTORS: u64 = SUPERBLOCK_BYTES as u64 / 512;
const GIB_SECTORS: u64 = 1 << 21;

/// Default layout word: left-symmetric for RAID 5 and 6, two near copies for RAID 10, original for
/// RAID 0.
#[must_use]
pub fn layout(level: i32) -> u32 {
    match level {
        0 => 1,
        5 | 6 => 2,
        10 => 0x102,
        _ => 0,
    }
}

/// Default chunk in sectors: 0 for RAID 1 and linear.
#[must_use]
pub fn chunk_sectors(level: i32) -> u32 {
    match level {
        0 | 4 | 5 | 6 | 10 => CHUNK_SECTORS,
        _ => 0,
    }
}

/// Sectors kept for a bitmap on a device of `size_sectors`, whether or not there is one.
#[must_use]
pub fn bitmap_space_sectors(size_sectors: u64) -> u64 {
    match size_sectors {
        0..128 => 0,
        _ if size_sectors <= 8 * GIB_SECTORS + 8 => 8,
        _ if size_sectors < 200 * GIB_SECTORS + 128 => 128,
        _ => 256,
    }
}

/// Sectors kept for the bitmap, or for the PPL instead.
fn guard_space_sectors(size_sectors: u64, ppl: bool) -> u64 {
    if ppl { u64::from(PPL_SECTORS) } else { bitmap_space_sectors(size_sectors) }
}

/// First data sector for an array whose first device has `size_sectors`; all members use it.
#[must_use]
pub fn data_offset_sectors(version: Version, size_sectors: u64, chunk_sectors: u32, ppl: bool) -> u64 {
    if matches!(version, Version::V090 | Version::V10) {
        return 0;
    }
    let chunk_kib = u64::from(chunk_sectors / 2);
    let mut headroom = HEADROOM_SECTORS;
    while headroom * 1024 > size_sectors && (chunk_kib == 0 || headroom / 2 >= chunk_kib * 4) {
        headroom /= 2;
    }
    (24 + guard_space_sectors(size_sectors, ppl) + headroom).next_multiple_of(2048)
}

/// Sectors usable for data on a device (data_size), from `data_offset_sectors`. 0 when nothing is
/// left.
#[must_use]
pub fn usable_sectors(version: Version, size_sectors: u64, data_offset_sectors: u64, ppl: bool) -> u64 {
    match version {
        Version::V090 => super_offset_sectors(version, size_sectors).unwrap_or(0),
        Version::V10 => (size_sectors & !7)
            .saturating_sub(16 + u64::from(BAD_BLOCK_LOG_SECTORS) + guard_space_sectors(size_sectors, ppl))
            .saturating_sub(data_offset_sectors),
        Version::V11 | Version::V12 => size_sectors.saturating_sub(data_offset_sectors),
    }
}

/// The superblock's `size` from the smallest member's usable sectors: whole chunks, or whole 64 KiB
/// for RAID 1. 1.x stores 0 for RAID 0 and linear, where each member uses its own data_size.
#[must_use]
pub fn component_size_sectors(version: Version, level: i32, usable_sectors: u64, chunk_sectors: u32) -> u64 {
    if version.is_1x() && level <= 0 {
        return 0;
    }
    let unit = if chunk_sectors == 0 { 128 } else { u64::from(chunk_sectors) };
    usable_sectors - usable_sectors % unit
}

/// Bytes of a bitmap image (header and bits, not rounded) for `covered_sectors` in chunks of
/// `chunk_bytes`.
#[must_use]
pub fn bitmap_bytes(covered_sectors: u64, chunk_bytes: u64) -> u64 {
    let bits = (u128::from(covered_sectors) * 512).div_ceil(u128::from(chunk_bytes.max(1)));
    u64::try_from(256 + bits.div_ceil(8)).unwrap_or(u64::MAX)
}

/// Bitmap chunk in bytes when none is asked for: 4 KiB doubled until the bits fit into
/// `room_sectors`, but at least 64 MiB. `None`: nothing fits, the room is smaller than the header.
#[must_use]
pub fn bitmap_chunk_bytes(covered_sectors: u64, room_sectors: u64) -> Option<u64> {
    smallest_bitmap_chunk_bytes(covered_sectors, room_sectors).map(|chunk| chunk.max(BITMAP_CHUNK_BYTES))
}

/// The smallest bitmap chunk in bytes that a user may ask for.
#[must_use]
pub fn smallest_bitmap_chunk_bytes(covered_sectors: u64, room_sectors: u64) -> Option<u64> {
    let room_bytes = room_sectors.min(256) * 512;
    (12..32).map(|bits| 1_u64 << bits).find(|&chunk| bitmap_bytes(covered_sectors, chunk) <= room_bytes)
}

/// What guards the array against the write hole, as far as it takes room beside the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHoleRoom {
    /// Nothing: resync, or a journal on its own device.
    None,
    /// An internal bitmap of this many bytes ([`bitmap_bytes`]).
    Bitmap {
        /// Header and bits.
        bytes: u64,
    },
    /// A partial parity log.
    Ppl,
}

/// Where everything but the data lies on one member of a 1.x array; offsets count from the
/// superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// The superblock itself, in device sectors.
    pub super_offset_sectors: u64,
    /// The bitmap, if there is one.
    pub bitmap_offset_sectors: Option<i32>,
    /// The partial parity log, if there is one.
    pub ppl: Option<PplArea>,
    /// The bad block log; 0.90 has none.
    pub bad_block_log: Option<BadBlockArea>,
}

impl Areas {
    /// Where the last of them ends, in device sectors, of an array with this guard.
    #[must_use]
    pub fn end_sectors(&self, guard: WriteHoleRoom) -> u64 {
        let bitmap_sectors = match guard {
            WriteHoleRoom::Bitmap { bytes } => bytes.div_ceil(4096).saturating_mul(8),
            WriteHoleRoom::None | WriteHoleRoom::Ppl => 0,
        };
        let own = Some((0, SUPERBLOCK_SECTORS));
        let bitmap = self.bitmap_offset_sectors.map(|offset| (offset, bitmap_sectors));
        let ppl = self.ppl.map(|area| (i32::from(area.offset_sectors), u64::from(area.size_sectors)));
        let log = self.bad_block_log.map(|area| (area.offset_sectors, u64::from(area.size_sectors)));
        let ends = [own, bitmap, ppl, log].into_iter().flatten().map(|(offset, sectors)| {
            self.super_offset_sectors.saturating_add_signed(i64::from(offset)).saturating_add(sectors)
        });
        ends.max().unwrap_or(0)
    }
}

/// Places bitmap, PPL and bad block log on a device of `size_sectors` for an array of the given
/// component size (the superblock's `size`, hence 0 for RAID 0). `None`: the device is too small
/// for this version's superblock, or the bitmap is larger than any offset can span.
#[must_use]
pub fn areas(
    version: Version,
    size_sectors: u64,
    component_size_sectors: u64,
    guard: WriteHoleRoom,
) -> Option<Areas> {
    let super_offset_sectors = super_offset_sectors(version, size_sectors)?;
    let bitmap_sectors = match guard {
        WriteHoleRoom::Bitmap { bytes } => Some(i32::try_from(bytes.div_ceil(4096) * 8).ok()?),
        WriteHoleRoom::None | WriteHoleRoom::Ppl => None,
    };
    let ppl = guard == WriteHoleRoom::Ppl;
    let bad_block_log =
        |offset_sectors| Some(BadBlockArea { offset_sectors, size_sectors: BAD_BLOCK_LOG_SECTORS, shift: 0 });
    let ppl_at = |offset_sectors| ppl.then_some(PplArea { offset_sectors, size_sectors: PPL_SECTORS });
    Some(match version {
        Version::V090 => Areas {
            super_offset_sectors,
            bitmap_offset_sectors: bitmap_sectors.map(|_| 8),
            ppl: None,
            bad_block_log: None,
        },
        // Backwards from the superblock: bad block log, then bitmap or PPL.
        Version::V10 => Areas {
            super_offset_sectors,
            bitmap_offset_sectors: bitmap_sectors.map(|sectors| -sectors - 8),
            ppl: ppl_at(-2056),
            bad_block_log: bad_block_log(-8),
        },
        // Forwards: bitmap or PPL, then bad block log behind the room that a bitmap has, or would
        // have.
        Version::V11 | Version::V12 => {
            let reserved = guard_space_sectors(component_size_sectors, ppl) as i32;
            Areas {
                super_offset_sectors,
                bitmap_offset_sectors: bitmap_sectors.map(|_| 8),
                ppl: ppl_at(8),
                bad_block_log: bad_block_log(8 + bitmap_sectors.unwrap_or(reserved)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 2048;
    const GIB: u64 = 1024 * MIB;
    const TIB: u64 = 1024 * GIB;

    #[test]
    fn bitmap_space_table() {
        let edge = 200 * GIB + 128;
        assert_eq!(edge, 419_430_528);
        let rows = [
            (0, 0),
            (127, 0),
            (128, 8),
            (16_777_224, 8),
            (16_777_225, 128),
            (edge - 1, 128),
            (edge, 256),
            (4 * TIB, 256),
        ];
        for (size, space) in rows {
            assert_eq!(bitmap_space_sectors(size), space, "{size} sectors");
        }
    }

    #[test]
    fn data_offset_table() {
        let rows = [
            (16 * MIB, 2048),
            (128 * MIB, 2048),
            (9 * GIB, 18432),
            (10 * GIB, 18432),
            (110 * GIB, 133_120),
            (300 * GIB, 264_192),
            (4 * TIB, 264_192),
        ];
        for (size, offset) in rows {
            assert_eq!(data_offset_sectors(Version::V12, size, 0, false), offset, "{size} sectors");
            assert_eq!(
                data_offset_sectors(Version::V11, size, 128, false),
                offset,
                "{size} sectors, 64K chunk"
            );
            assert_eq!(data_offset_sectors(Version::V10, size, 0, false), 0);
        }
        assert_eq!(data_offset_sectors(Version::V12, 0, 0, false), 2048, "headroom may shrink to nothing");
        assert_eq!(data_offset_sectors(Version::V12, 128 * MIB, 1024, false), 4096, "four chunks stay free");
    }

    #[test]
    fn sizes_of_the_recorded_arrays() {
        // 8 MiB members: RAID 1 with 1.0, RAID 5 with 1.2 and 64 KiB chunks.
        let usable = usable_sectors(Version::V10, 8 * MIB, 0, false);
        assert_eq!(usable, 16352);
        assert_eq!(component_size_sectors(Version::V10, 1, usable, 0), 16256);
        let usable = usable_sectors(Version::V12, 8 * MIB, 2048, false);
        assert_eq!(component_size_sectors(Version::V12, 5, usable, 128), 14336);
        assert_eq!(component_size_sectors(Version::V12, 0, usable, 128), 0);
        assert_eq!(usable_sectors(Version::V090, 8 * MIB, 0, false), 16384 - 128);
        assert_eq!(usable_sectors(Version::V10, 7, 0, false), 0, "too small is nothing, not an overflow");
    }

    #[test]
    fn bad_block_log_and_bitmap_places() {
        let bitmap = |covered, room| {
            let chunk = bitmap_chunk_bytes(covered, room).unwrap();
            WriteHoleRoom::Bitmap { bytes: bitmap_bytes(covered, chunk) }
        };
        let bbl = |areas: Areas| areas.bad_block_log.unwrap().offset_sectors;
        let v12 = |size, component, guard| areas(Version::V12, size, component, guard).unwrap();
        assert_eq!(bbl(v12(8 * MIB, 14336, WriteHoleRoom::None)), 16);
        assert_eq!(
            bbl(v12(10 * GIB, 10 * GIB - 18432, WriteHoleRoom::None)),
            136,
            "room is kept without a bitmap"
        );
        assert_eq!(bbl(v12(4 * TIB, 4 * TIB, bitmap(4 * TIB, 256))), 32);
        assert_eq!(bbl(v12(8 * MIB, 0, WriteHoleRoom::None)), 8, "RAID 0 keeps no room");
        let v10 = |size, guard| areas(Version::V10, size, size, guard).unwrap();
        assert_eq!(v10(GIB, bitmap(GIB, 8)).bitmap_offset_sectors, Some(-16));
        assert_eq!(v10(4 * TIB, bitmap(4 * TIB, 256)).bitmap_offset_sectors, Some(-32));
        assert_eq!(bbl(v10(GIB, WriteHoleRoom::None)), -8);
        let ppl = v10(GIB, WriteHoleRoom::Ppl).ppl.unwrap();
        assert_eq!((ppl.offset_sectors, ppl.size_sectors), (-2056, 2048));
        assert_eq!(v12(GIB, GIB, WriteHoleRoom::Ppl).ppl.unwrap().offset_sectors, 8);
        assert_eq!(bbl(v12(GIB, GIB, WriteHoleRoom::Ppl)), 2056);
        assert_eq!(areas(Version::V12, 20, 0, WriteHoleRoom::None), None);
    }

    #[test]
    fn bitmap_chunks() {
        assert_eq!(bitmap_chunk_bytes(16 * MIB, 8), Some(64 << 20));
        assert_eq!(smallest_bitmap_chunk_bytes(16 * MIB, 8), Some(4096));
        assert_eq!(smallest_bitmap_chunk_bytes(30720 * 8, 8), Some(4096), "30720 bits fill the page exactly");
        assert_eq!(smallest_bitmap_chunk_bytes(30720 * 8 + 1, 8), Some(8192));
        assert_eq!(bitmap_chunk_bytes(16 * MIB, 0), None);
        assert_eq!(bitmap_chunk_bytes(u64::MAX, 256), None, "chunks fit 32 bits or there is none");
    }
}
