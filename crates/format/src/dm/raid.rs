//! The superblock that dm-raid keeps in an LV's rmeta volumes: docs/formats.md §12. The data is
//! laid out as md's, and md's bitmap follows in the next 4 KiB ([`crate::md::bitmap`]).

use crate::bytes::{le32, le64, put_le32, put_le64};

/// Bytes of the superblock that have a meaning or may get one.
pub const SUPERBLOCK_BYTES: usize = 512;
/// Where the bitmap is in the rmeta volume.
pub const BITMAP_OFFSET_BYTES: u64 = 4096;

const MAGIC: u32 = 0x6452_6d44;
const EXTENDED: u32 = 1;
const MAX_DEVICES: u32 = 253;
const MAX: u64 = u64::MAX;

/// A superblock. It has no checksum; every byte that is not understood survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    bytes: [u8; SUPERBLOCK_BYTES],
}

/// Why a block is no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaidError {
    /// Less than a superblock.
    #[error("only {got} of the dm-raid superblock's {SUPERBLOCK_BYTES} bytes could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// Something else.
    #[error("dm-raid superblock with the magic {found:08x}")]
    Magic {
        /// The stored value.
        found: u32,
    },
    /// Features that must be understood.
    #[error("dm-raid superblock has features that are not known: {compat:#x}, {incompat:#x}")]
    Features {
        /// compat_features.
        compat: u32,
        /// incompat_features.
        incompat: u32,
    },
    /// A position outside of the array, or more devices than there can be.
    #[error("dm-raid superblock of device {position} of {devices}")]
    Devices {
        /// array_position.
        position: u32,
        /// num_devices.
        devices: u32,
    },
}

/// What a superblock says about the array; the fields of [`Superblock::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmRaidShape {
    /// How many images.
    pub devices: u32,
    /// md's level.
    pub level: i32,
    /// md's layout.
    pub layout: u32,
    /// Sectors of a chunk; 0 in raid1.
    pub stripe_sectors: u32,
    /// Sectors of the array.
    pub array_sectors: u64,
    /// Sectors used of each image.
    pub device_sectors: u64,
}

impl Superblock {
    /// Of a new image, which is in sync, of a new array, which may have to be resynced from
    /// `resync_offset` on (`u64::MAX`: it has not).
    #[must_use]
    pub fn new(shape: &DmRaidShape, position: u32, resync_offset: u64) -> Superblock {
        let mut superblock = Superblock { bytes: [0; SUPERBLOCK_BYTES] };
        let words = [
            (0, MAGIC),
            (4, EXTENDED),
            (8, shape.devices),
            (12, position),
            (48, shape.level as u32),
            (52, shape.layout),
            (56, shape.stripe_sectors),
            (72, shape.level as u32),
            (76, shape.layout),
            (80, shape.stripe_sectors),
        ];
        words.into_iter().for_each(|(at, word)| put_le32(&mut superblock.bytes, at, word));
        let longs = [
            (32, MAX),
            (40, resync_offset),
            (64, MAX),
            (88, shape.array_sectors),
            (112, shape.device_sectors),
        ];
        longs.into_iter().for_each(|(at, long)| put_le64(&mut superblock.bytes, at, long));
        superblock
    }

    /// Reads the start of an rmeta volume. `Ok(None)`: the magic is zero, which means a new image
    /// that has to be rebuilt.
    pub fn decode(bytes: &[u8]) -> Result<Option<Superblock>, RaidError> {
        let Some(&bytes) = bytes.first_chunk() else {
            return Err(RaidError::Truncated { got: bytes.len() });
        };
        let found = le32(&bytes, 0);
        if found == 0 {
            return Ok(None);
        }
        if found != MAGIC {
            return Err(RaidError::Magic { found });
        }
        let (compat, incompat) = (le32(&bytes, 4), le32(&bytes, 144));
        let extended = compat & EXTENDED != 0;
        if compat & !EXTENDED != 0 || extended && incompat != 0 {
            return Err(RaidError::Features { compat, incompat });
        }
        let (devices, position) = (le32(&bytes, 8), le32(&bytes, 12));
        if position >= devices || devices > MAX_DEVICES {
            return Err(RaidError::Devices { position, devices });
        }
        Ok(Some(Superblock { bytes }))
    }

    /// The bytes to write; the block that they are in is zero behind them.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SUPERBLOCK_BYTES] {
        &self.bytes
    }

    /// How many images the array has.
    #[must_use]
    pub fn devices(&self) -> u32 {
        le32(&self.bytes, 8)
    }

    /// Which of them this is.
    #[must_use]
    pub fn position(&self) -> u32 {
        le32(&self.bytes, 12)
    }

    /// Counts changes; the images of one array that have the most are current.
    #[must_use]
    pub fn events(&self) -> u64 {
        le64(&self.bytes, 16)
    }

    /// Sets the event count.
    pub fn set_events(&mut self, events: u64) {
        put_le64(&mut self.bytes, 16, events);
    }

    /// Whether an image is recorded as failed. It stays so when it comes back.
    #[must_use]
    pub fn is_failed(&self, position: u32) -> bool {
        let Some((at, bit)) = self.failed_bit(position) else { return false };
        le64(&self.bytes, at) & bit != 0
    }

    /// Records whether an image failed.
    pub fn set_failed(&mut self, position: u32, failed: bool) {
        if let Some((at, bit)) = self.failed_bit(position) {
            let word = le64(&self.bytes, at);
            put_le64(&mut self.bytes, at, if failed { word | bit } else { word & !bit });
        }
    }

    /// The word of an image's bit: the first is in the old part, four more in the extension.
    fn failed_bit(&self, position: u32) -> Option<(usize, u64)> {
        let at = match position / 64 {
            0 => 24,
            word @ 1..=3 if self.is_extended() => 120 + 8 * (word as usize - 1),
            _ => return None,
        };
        Some((at, 1 << (position % 64)))
    }

    /// How far this image was rebuilt, in sectors; `u64::MAX`: it is in sync.
    #[must_use]
    pub fn recovery_offset(&self) -> u64 {
        le64(&self.bytes, 32)
    }

    /// Sets how far this image was rebuilt.
    pub fn set_recovery_offset(&mut self, sectors: u64) {
        put_le64(&mut self.bytes, 32, sectors);
    }

    /// How far the array was resynced, in sectors; `u64::MAX`: it is clean.
    #[must_use]
    pub fn resync_offset(&self) -> u64 {
        le64(&self.bytes, 40)
    }

    /// Sets how far the array was resynced.
    pub fn set_resync_offset(&mut self, sectors: u64) {
        put_le64(&mut self.bytes, 40, sectors);
    }

    /// Level, layout, chunk and sizes, before a reshape if there is one. Sizes are 0 in old
    /// superblocks.
    #[must_use]
    pub fn shape(&self) -> DmRaidShape {
        let long = |at| if self.is_extended() { le64(&self.bytes, at) } else { 0 };
        DmRaidShape {
            devices: self.devices(),
            level: le32(&self.bytes, 48) as i32,
            layout: le32(&self.bytes, 52),
            stripe_sectors: le32(&self.bytes, 56),
            array_sectors: long(88),
            device_sectors: long(112),
        }
    }

    /// Whether a reshape is under way.
    #[must_use]
    pub fn is_reshaping(&self) -> bool {
        self.is_extended() && le32(&self.bytes, 60) & 1 != 0
    }

    /// Where data starts in this image, in sectors: now, and after a reshape.
    #[must_use]
    pub fn data_offsets(&self) -> (u64, u64) {
        if self.is_extended() { (le64(&self.bytes, 96), le64(&self.bytes, 104)) } else { (0, 0) }
    }

    fn is_extended(&self) -> bool {
        le32(&self.bytes, 4) & EXTENDED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DmRaidShape = DmRaidShape {
        devices: 100,
        level: 5,
        layout: 2,
        stripe_sectors: 128,
        array_sectors: 99 << 20,
        device_sectors: 1 << 20,
    };

    #[test]
    fn fields() {
        let mut superblock = Superblock::new(&SHAPE, 99, 0);
        assert_eq!(Superblock::decode(superblock.bytes()), Ok(Some(superblock.clone())));
        assert_eq!((superblock.shape(), superblock.position(), superblock.events()), (SHAPE, 99, 0));
        superblock.set_events(7);
        superblock.set_resync_offset(u64::MAX);
        superblock.set_recovery_offset(512);
        for position in [0, 63, 64, 252] {
            assert!(!superblock.is_failed(position));
            superblock.set_failed(position, true);
            assert!(superblock.is_failed(position), "{position}");
        }
        superblock.set_failed(63, false);
        assert_eq!(
            (superblock.is_failed(62), superblock.is_failed(63), superblock.is_failed(64)),
            (false, false, true)
        );
        assert_eq!(superblock.bytes()[24..32], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(superblock.bytes()[120], 1);
        let state = (superblock.events(), superblock.resync_offset(), superblock.recovery_offset());
        assert_eq!(state, (7, u64::MAX, 512));
        assert_eq!((superblock.is_reshaping(), superblock.data_offsets()), (false, (0, 0)));
    }

    #[test]
    fn what_is_none() {
        assert_eq!(Superblock::decode(&[0; 512]), Ok(None), "a new image");
        assert_eq!(Superblock::decode(&[0; 511]), Err(RaidError::Truncated { got: 511 }));
        let with = |at: usize, value: u32| {
            let mut bytes = *Superblock::new(&SHAPE, 99, 0).bytes();
            put_le32(&mut bytes, at, value);
            Superblock::decode(&bytes)
        };
        assert_eq!(with(0, 1), Err(RaidError::Magic { found: 1 }));
        assert_eq!(with(4, 3), Err(RaidError::Features { compat: 3, incompat: 0 }));
        assert_eq!(with(144, 1), Err(RaidError::Features { compat: 1, incompat: 1 }));
        assert_eq!(with(8, 99), Err(RaidError::Devices { position: 99, devices: 99 }));
        assert_eq!(with(8, 254), Err(RaidError::Devices { position: 99, devices: 254 }));
        assert!(with(4, 0).unwrap().unwrap().shape().array_sectors == 0, "an old one ends before the sizes");
    }
}
