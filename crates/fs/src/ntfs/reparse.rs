//! What a file is besides one: by its reparse point a link, or data that is kept in some other way;
//! by its data what Interix and ntfs-3g make.

use crate::bytes::{le16, le32, le64};
use crate::names::{of_utf16, units};
use crate::{DeviceNumber, FileKind};

/// What a reparse point makes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReparsePoint {
    /// A link to there.
    Link(Vec<u8>),
    /// A character or block device.
    Device(FileKind, DeviceNumber),
    /// A socket, pipe or device that Linux made under Windows.
    Special,
    /// Its data is not where data is.
    Elsewhere(&'static str),
    /// Says something that is not known here; its tag. Its data is its data, unless something else
    /// says that it is not.
    Other(u32),
}

/// Reads one; `None` if it is damaged.
pub(super) fn parse(value: &[u8]) -> Option<ReparsePoint> {
    const JUNCTION: u32 = 0xa000_0003;
    const SYMLINK: u32 = 0xa000_000c;
    const LINUX_SYMLINK: u32 = 0xa000_001d;
    // The data of a link begins behind its four numbers, and flags of symbolic ones.
    let link = |names_at: usize| {
        let name = |at: usize| {
            let (from, len) = (usize::from(le16(value, at)?), usize::from(le16(value, at + 2)?));
            value.get(names_at + from..names_at + from + len)
        };
        let (full, shown) = (name(8)?, name(12)?);
        let name = if shown.is_empty() { full } else { shown };
        let name = of_utf16(units(name));
        let name = name.strip_prefix(br"\??\").unwrap_or(&name);
        let slashes = name.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte });
        Some(ReparsePoint::Link(slashes.collect()))
    };
    match le32(value, 0)? {
        JUNCTION => link(16),
        SYMLINK => link(20),
        LINUX_SYMLINK => Some(ReparsePoint::Link(value.get(12..)?.to_vec())),
        0x8000_0023..=0x8000_0026 => Some(ReparsePoint::Special),
        0x8000_0017 => Some(ReparsePoint::Elsewhere("a file that Windows compressed as a whole (WOF)")),
        0x8000_0013 => Some(ReparsePoint::Elsewhere("a file that Windows Server deduplicated")),
        0xc000_0004 | 0x8000_0006 | 0x8000_0021 => {
            Some(ReparsePoint::Elsewhere("a file that is kept on another storage"))
        }
        0x8000_0007 => {
            Some(ReparsePoint::Elsewhere("a file whose data Windows keeps once for several (SIS)"))
        }
        0x8000_001e => {
            Some(ReparsePoint::Elsewhere("a file that is kept by a cloud service (Azure File Sync)"))
        }
        0x8000_0018 | 0x9000_1018 => {
            Some(ReparsePoint::Elsewhere("a file of a container, whose data its image has (WCI)"))
        }
        0x9000_001c => Some(ReparsePoint::Elsewhere("a file whose data a program provides (ProjFS)")),
        tag if tag & 0xffff_0fff == 0x9000_001a => {
            Some(ReparsePoint::Elsewhere("a file that is kept by a cloud service"))
        }
        tag => Some(ReparsePoint::Other(tag)),
    }
}

/// A link of Interix with the longest target that Linux has, 4095 units: no data that is longer
/// makes a file something else.
pub(super) const INTERIX_BYTES_MAX: u64 = 8 + 2 * 4095;

/// What the data of a file of the system makes of it, as Interix and ntfs-3g write that.
pub(super) fn interix(data: &[u8]) -> Option<ReparsePoint> {
    let (magic, value) = data.split_first_chunk::<8>()?;
    let device = |kind| {
        let number = |at| u32::try_from(le64(value, at)?).ok();
        let number = DeviceNumber { major: number(0)?, minor: number(8)? };
        (value.len() == 16).then_some(ReparsePoint::Device(kind, number))
    };
    match magic {
        b"IntxLNK\x01" => Some(ReparsePoint::Link(of_utf16(units(value)))),
        b"IntxCHR\0" => device(FileKind::CharDevice),
        b"IntxBLK\0" => device(FileKind::BlockDevice),
        _ => None,
    }
}
