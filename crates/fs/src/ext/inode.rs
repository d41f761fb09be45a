//! Inodes: attributes, and the 60 bytes that say where the data is.

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::checksum::{crc, crc_without};
use crate::ext::superblock::{ExtFeatures, FeatureWord};
use crate::source::SIZE_MAX;
use crate::{DeviceNumber, FileKind, FileMetadata, FileTime};

/// Bytes of an inode that say where its data is, or are a link's target.
pub const MAP_BYTES: usize = 60;
pub const MAP_AT: usize = 0x28;

/// What every inode has; more is extra.
const BASE_BYTES: usize = 128;

const CHECKSUM_LOW_AT: usize = 0x7c;
const CHECKSUM_HIGH_AT: usize = 0x82;

/// Flags of an inode.
pub struct InodeFlags;

impl InodeFlags {
    const HUGE: u32 = 0x4_0000;
    const ENCRYPTED: u32 = 0x800;
    pub const EXTENTS: u32 = 0x8_0000;
    /// It holds a large attribute, and is no file.
    pub const ATTRIBUTE: u32 = 0x20_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

/// An inode in use.
#[derive(Debug, Clone)]
pub struct Inode {
    pub number: u64,
    pub flags: FeatureWord,
    pub metadata: FileMetadata,
    /// Seed of the checksums of what belongs to it.
    pub seed: u32,
    pub map: [u8; MAP_BYTES],
    /// All of it, for what is stored in it.
    pub bytes: Vec<u8>,
    /// Where what lies behind its fields starts.
    pub extra_at: usize,
}

impl Inode {
    /// Reads and checks it.
    pub fn read(ext: &Ext, number: u64) -> Result<Self, Error> {
        let inode = Self::read_unlinked(ext, number)?;
        match inode.metadata.links {
            0 => Err(inode.damaged("it is not in use")),
            _ => Ok(inode),
        }
    }

    /// As [`Inode::read`], also of a file that has no name any more.
    pub fn read_unlinked(ext: &Ext, number: u64) -> Result<Self, Error> {
        let newer = ext.fast.inode(number);
        let bytes = match newer {
            Some(bytes) => bytes.to_vec(),
            None => {
                let (block, at) = ext.superblock.inode_place(ext, number)?;
                ext.block(block)?[at..at + ext.superblock.inode_bytes].to_vec()
            }
        };
        let damaged = |what| Error::Damaged { structure: "ext inode", at: number, what };
        let inode =
            Self::decode(ext, number, bytes).ok_or_else(|| damaged("it says nothing a file could be"))?;
        // The commit that an inode was taken from had a checksum of its own.
        if newer.is_none()
            && ext.superblock.features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS)
            && !inode.checksum_is_right()
        {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(inode)
    }

    /// `None` if its type is none, or it is too short.
    fn decode(ext: &Ext, number: u64, bytes: Vec<u8>) -> Option<Self> {
        let b = &bytes[..];
        let mode = u32::from(le16(b, 0x0)?);
        let kind = FileKind::of_mode(mode)?;
        let extra = if b.len() > BASE_BYTES { usize::from(le16(b, 0x80)?) } else { 0 };
        let extra_at = (BASE_BYTES + extra).min(b.len());
        // Fields behind the first 128 bytes are there as far as the inode says.
        let later = |at: usize| if at + 4 <= extra_at { le32(b, at) } else { None };
        let time =
            |at: usize, extra_at: usize| -> Option<FileTime> { Some(time(le32(b, at)?, later(extra_at))) };
        // Of directories the high half of the size is newer than its place, which older ones use
        // otherwise.
        let high = kind == FileKind::File
            || kind == FileKind::Directory
                && ext.superblock.features.incompat.contains(ExtFeatures::LARGE_DIRECTORIES);
        let size_high = if high { u64::from(le32(b, 0x6c)?) } else { 0 };
        let size_bytes = u64::from(le32(b, 0x4)?) | size_high << 32;
        let huge = ext.superblock.features.ro_compat.contains(ExtFeatures::HUGE_FILES);
        let units = u64::from(le32(b, 0x1c)?) | if huge { u64::from(le16(b, 0x74)?) << 32 } else { 0 };
        let in_blocks = huge && le32(b, 0x20)? & InodeFlags::HUGE != 0;
        let unit_bytes = if in_blocks { ext.superblock.block_bytes as u64 } else { 512 };
        let stored_bytes = units.saturating_mul(unit_bytes);
        let wide = |low: usize, high: usize| Some(u32::from(le16(b, low)?) | u32::from(le16(b, high)?) << 16);
        let seed = crc(ext.superblock.seed, &(u32::try_from(number).ok()?).to_le_bytes());
        Some(Self {
            number,
            flags: FeatureWord(le32(b, 0x20)?),
            metadata: FileMetadata {
                kind,
                mode: mode & 0o7777,
                uid: wide(0x2, 0x78)?,
                gid: wide(0x18, 0x7a)?,
                links: u32::from(le16(b, 0x1a)?),
                size_bytes: (size_bytes <= SIZE_MAX).then_some(size_bytes)?,
                stored_bytes,
                accessed: time(0x8, 0x8c)?,
                modified: time(0x10, 0x88)?,
                changed: time(0xc, 0x84)?,
                created: later(0x94).and_then(|_| time(0x90, 0x94)),
                device: if kind.is_device() {
                    Some(device(le32(b, MAP_AT)?, le32(b, MAP_AT + 4)?))
                } else {
                    None
                },
            },
            seed: crc(seed, &le32(b, 0x64)?.to_le_bytes()),
            map: *b.get(MAP_AT..)?.first_chunk()?,
            extra_at,
            bytes,
        })
    }

    /// Half of the checksum has its place in the extra bytes, if there are as many.
    fn checksum_is_right(&self) -> bool {
        let wide = self.extra_at >= CHECKSUM_HIGH_AT + 2;
        let (before, after) = self.bytes.split_at(if wide { CHECKSUM_HIGH_AT } else { self.bytes.len() });
        let mut sum = crc_without(self.seed, before, CHECKSUM_LOW_AT, 2);
        let high = if wide {
            sum = crc_without(sum, after, 0, 2);
            le16(after, 0)
        } else {
            sum &= 0xffff;
            Some(0)
        };
        let stored = le16(&self.bytes, CHECKSUM_LOW_AT).zip(high);
        stored.is_some_and(|(low, high)| sum == u32::from(low) | u32::from(high) << 16)
    }

    /// What of it cannot be read here, whatever it is. The flag of `chattr +c` says nothing: Linux
    /// keeps it and compresses nothing, and with e2compr the file system has a feature that is
    /// refused.
    pub fn refuse_unreadable(&self) -> Result<(), Error> {
        if self.flags.contains(InodeFlags::ENCRYPTED) {
            return Err(Error::Unsupported { what: "an encrypted file or directory" });
        }
        Ok(())
    }

    /// A short link's target is in place of the map.
    pub fn fast_link(&self, len: usize) -> Option<&[u8]> {
        let elsewhere = self.flags.0 & (InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) != 0;
        (len < MAP_BYTES && !elsewhere).then(|| &self.map[..len])
    }

    pub fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { structure: "ext inode", at: self.number, what }
    }
}

/// The first two words of the map of a device file: a number of 8 and 8 bits in the first, or one
/// of 12 and 20 bits in the second.
fn device(short: u32, wide: u32) -> DeviceNumber {
    match short {
        0 => DeviceNumber { major: wide >> 8 & 0xfff, minor: wide & 0xff | wide >> 12 & 0xfff00 },
        _ => DeviceNumber { major: short >> 8 & 0xff, minor: short & 0xff },
    }
}

/// 32 bits of seconds, signed, since the first ext2; the extra word has two more and the
/// nanoseconds.
fn time(seconds: u32, extra: Option<u32>) -> FileTime {
    let extra = extra.unwrap_or(0);
    FileTime::new(i64::from(seconds.cast_signed()) + (i64::from(extra & 3) << 32), extra >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_1901_to_2446() {
        assert_eq!(time(0x8000_0000, None).seconds, -(1 << 31));
        assert_eq!(time(0x7fff_ffff, None).seconds, (1 << 31) - 1);
        assert_eq!(time(0x8000_0000, Some(1)).seconds, 1 << 31);
        assert_eq!(time(0x7fff_ffff, Some(3)).seconds, 15_032_385_535);
        assert_eq!(time(1, Some(999_999_999 << 2)), FileTime { seconds: 1, nanoseconds: 999_999_999 });
    }
}
