//! Inodes: attributes, and the fork that says where the data is, or is the data.

use crate::bytes::{be16, be32, be64, u8_at};
use crate::error::Error;
use crate::source::SIZE_MAX;
use crate::xfs::fork::Fork;
use crate::xfs::{Xfs, checksum_is_right};
use crate::{DeviceNumber, FileKind, FileMetadata, FileTime};

const MAGIC: u16 = 0x494e;
const CHECKSUM_AT: usize = 100;

/// Where the forks start.
const V2_BYTES: usize = 100;
const V3_BYTES: usize = 176;

const FLAG_REALTIME: u16 = 0x1;
const FLAG2_BIGTIME: u64 = 0x8;
const FLAG2_NREXT64: u64 = 0x10;

/// How the data fork says where the data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A device's number; a pipe or a socket have none.
    Device,
    /// It is the data.
    Local,
    /// A list of extents.
    Extents,
    /// The root of a tree of them.
    Btree,
}

/// An inode in use.
#[derive(Debug, Clone)]
pub struct Inode {
    pub number: u64,
    pub metadata: FileMetadata,
    pub format: Format,
    /// Extents of the data fork.
    extents: u64,
    /// How the attributes' fork is stored, and its extents; `None` if there is none.
    attributes: Option<(Format, u64)>,
    /// The data is on another device.
    pub realtime: bool,
    bytes: Vec<u8>,
    fork_at: usize,
    fork_end: usize,
}

impl Format {
    fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Device,
            1 => Self::Local,
            2 => Self::Extents,
            3 => Self::Btree,
            _ => return None,
        })
    }
}

impl Inode {
    /// Reads and checks it.
    pub fn read(xfs: &Xfs, number: u64) -> Result<Self, Error> {
        let inode = Self::read_unlinked(xfs, number)?;
        match inode.metadata.links {
            0 => Err(inode.damaged("it is not in use")),
            _ => Ok(inode),
        }
    }

    /// As [`Inode::read`], also of a file that has no name any more.
    pub fn read_unlinked(xfs: &Xfs, number: u64) -> Result<Self, Error> {
        let damaged = |what| Error::Damaged { structure: "xfs inode", at: number, what };
        let bytes = xfs.source.bytes(xfs.superblock.inode_offset(number)?, xfs.superblock.inode_bytes)?;
        if be16(&bytes, 0) != Some(MAGIC) {
            return Err(damaged("there is none in its place"));
        }
        if xfs.superblock.version5
            && (!checksum_is_right(&bytes, CHECKSUM_AT) || be64(&bytes, 152) != Some(number))
        {
            return Err(damaged("its checksum or number is wrong"));
        }
        let block_bytes = xfs.superblock.block_bytes as u64;
        let inode = Self::decode(number, bytes, block_bytes);
        let mut inode = inode.ok_or_else(|| damaged("it says nothing a file could be"))?;
        if let Some(size_bytes) = xfs.finished.size_bytes(number) {
            inode.metadata.size_bytes = size_bytes;
        }
        Ok(inode)
    }

    fn decode(number: u64, bytes: Vec<u8>, block_bytes: u64) -> Option<Self> {
        let b = &bytes[..];
        let mode = u32::from(be16(b, 2)?);
        let kind = FileKind::of_mode(mode)?;
        let version = u8_at(b, 4)?;
        let fork_at = if version >= 3 { V3_BYTES } else { V2_BYTES };
        let flags2 = if version >= 3 { be64(b, 120)? } else { 0 };
        let time = |at| if flags2 & FLAG2_BIGTIME != 0 { big_time(be64(b, at)?) } else { small_time(b, at) };
        // The attributes' fork follows, at a place in units of 8 bytes.
        let fork_end = match usize::from(u8_at(b, 82)?) {
            0 => b.len(),
            offset => fork_at + offset * 8,
        };
        let wide = flags2 & FLAG2_NREXT64 != 0;
        let attribute_extents = if wide { be32(b, 76)? } else { u32::from(be16(b, 80)?) };
        let attributes = Format::decode(u8_at(b, 83)?).filter(|_| fork_end < b.len());
        Some(Self {
            number,
            metadata: FileMetadata {
                kind,
                mode: mode & 0o7777,
                uid: be32(b, 8)?,
                gid: be32(b, 12)?,
                links: if version == 1 { u32::from(be16(b, 6)?) } else { be32(b, 16)? },
                size_bytes: be64(b, 56).filter(|size| *size <= SIZE_MAX)?,
                stored_bytes: be64(b, 64)?.saturating_mul(block_bytes),
                accessed: time(32)?,
                modified: time(40)?,
                changed: time(48)?,
                created: if version >= 3 { time(144) } else { None },
                device: if kind.is_device() { Some(device(be32(b, fork_at)?)) } else { None },
            },
            format: Format::decode(u8_at(b, 5)?)?,
            extents: if wide { be64(b, 24)? } else { u64::from(be32(b, 76)?) },
            attributes: attributes.map(|format| (format, attribute_extents.into())),
            realtime: be16(b, 90)? & FLAG_REALTIME != 0,
            fork_at,
            fork_end: (fork_end <= b.len()).then_some(fork_end)?,
            bytes,
        })
    }

    /// The data fork.
    pub fn fork(&self) -> &[u8] {
        &self.bytes[self.fork_at..self.fork_end]
    }

    /// The data fork, and what it says of itself.
    pub fn data_fork(&self) -> Fork<'_> {
        Fork { bytes: self.fork(), format: self.format, extents: self.extents, is_data: true }
    }

    /// The attributes' fork.
    pub fn attribute_fork(&self) -> Option<Fork<'_>> {
        let (format, extents) = self.attributes?;
        Some(Fork { bytes: &self.bytes[self.fork_end..], format, extents, is_data: false })
    }

    pub fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { structure: "xfs inode", at: self.number, what }
    }
}

/// As in System V: 14 and 18 bits.
fn device(number: u32) -> DeviceNumber {
    DeviceNumber { major: number >> 18, minor: number & 0x3_ffff }
}

/// Seconds and nanoseconds, 32 bits each.
fn small_time(bytes: &[u8], at: usize) -> Option<FileTime> {
    Some(FileTime::new(i64::from(be32(bytes, at)?.cast_signed()), be32(bytes, at + 4)?))
}

/// Nanoseconds since the first second that 32 bits can express, in 1901.
fn big_time(nanoseconds: u64) -> Option<FileTime> {
    const BILLION: u64 = 1_000_000_000;
    let seconds = (nanoseconds / BILLION).cast_signed() - (1 << 31);
    Some(FileTime::new(seconds, (nanoseconds % BILLION) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_times_start_where_small_ones_do() {
        assert_eq!(big_time(0).unwrap(), FileTime { seconds: -(1 << 31), nanoseconds: 0 });
        assert_eq!(
            small_time(&[0x80, 0, 0, 0, 0, 0, 0, 9], 0).unwrap(),
            FileTime { seconds: -(1 << 31), nanoseconds: 9 }
        );
        assert_eq!(big_time((1 << 31) * 1_000_000_000 + 7).unwrap(), FileTime { seconds: 0, nanoseconds: 7 });
        assert_eq!(big_time(u64::MAX).unwrap().seconds, 16_299_260_425);
    }
}
