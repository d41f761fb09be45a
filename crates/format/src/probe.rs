//! Signatures of everything that is not md: what `create` must refuse to overwrite and `scan` must
//! name.
//!
//! Only recognition, by the magic at its place plus what it takes to tell neighbours apart. Ask
//! [`ranges`] what to read, hand what could be read to [`identify`]; a range that is missing just
//! hides its signatures. md superblocks are [`crate::md::scan_component`]'s. Places:
//! docs/formats.md §10.4, §11.1, §12, and the formats' own documents.

use std::ops::Range;

use crate::bytes::{array, be32, be64, le16, le32, le64};
use crate::integrity;
use crate::luks;
use crate::lvm::Id;
use crate::partition::Guid;
use crate::partition::mbr::Mbr;
use crate::text::printable;

/// What was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SignatureKind {
    /// LVM2 physical volume.
    Lvm2,
    /// dm-raid metadata (an LVM rmeta volume).
    DmRaid,
    /// MBR partition table with at least one partition.
    Mbr,
    /// GPT, primary or backup, with or without its protective MBR.
    Gpt,
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// The journal of an ext3 or ext4 that is elsewhere.
    ExtJournal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// ZFS pool member.
    Zfs,
    /// Swap space.
    Swap,
    /// LUKS version 1.
    Luks1,
    /// LUKS version 2.
    Luks2,
    /// The second header of LUKS version 2. It opens the device where the first one is gone.
    Luks2Second,
    /// A device of dm-integrity.
    Integrity,
    /// BitLocker.
    BitLocker,
    /// FAT12, FAT16 or FAT32.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS.
    Ntfs,
    /// HFS+ or HFSX, in a wrapper or not.
    HfsPlus,
    /// HFS, which HFS+ followed.
    Hfs,
    /// ISO 9660 image.
    Iso9660,
    /// SquashFS image.
    SquashFs,
    /// bcache device.
    Bcache,
    /// bcachefs.
    Bcachefs,
    /// DDF firmware RAID.
    Ddf,
    /// Intel firmware RAID (IMSM, VROC).
    Imsm,
}

impl SignatureKind {
    /// Short name, as blkid and mdadm users know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SignatureKind::Lvm2 => "LVM2 physical volume",
            SignatureKind::DmRaid => "dm-raid metadata",
            SignatureKind::Mbr => "MBR partition table",
            SignatureKind::Gpt => "GPT partition table",
            SignatureKind::Ext2 => "ext2",
            SignatureKind::Ext3 => "ext3",
            SignatureKind::Ext4 => "ext4",
            SignatureKind::ExtJournal => "journal device of ext3 or ext4",
            SignatureKind::Xfs => "xfs",
            SignatureKind::Btrfs => "btrfs",
            SignatureKind::F2fs => "f2fs",
            SignatureKind::Zfs => "zfs member",
            SignatureKind::Swap => "swap",
            SignatureKind::Luks1 => "LUKS1",
            SignatureKind::Luks2 => "LUKS2",
            SignatureKind::Luks2Second => "second LUKS2 header",
            SignatureKind::Integrity => "dm-integrity device",
            SignatureKind::BitLocker => "BitLocker",
            SignatureKind::Fat => "vfat",
            SignatureKind::ExFat => "exfat",
            SignatureKind::Ntfs => "ntfs",
            SignatureKind::HfsPlus => "hfsplus",
            SignatureKind::Hfs => "hfs",
            SignatureKind::Iso9660 => "iso9660",
            SignatureKind::SquashFs => "squashfs",
            SignatureKind::Bcache => "bcache",
            SignatureKind::Bcachefs => "bcachefs",
            SignatureKind::Ddf => "DDF RAID member",
            SignatureKind::Imsm => "Intel RAID member",
        }
    }

    /// Whether files are in it.
    #[must_use]
    pub fn is_file_system(self) -> bool {
        use SignatureKind::{
            Bcachefs, Btrfs, ExFat, Ext2, Ext3, Ext4, F2fs, Fat, Hfs, HfsPlus, Iso9660, Ntfs, SquashFs, Xfs,
            Zfs,
        };
        matches!(
            self,
            Ext2 | Ext3
                | Ext4
                | Xfs
                | Btrfs
                | F2fs
                | Zfs
                | Fat
                | ExFat
                | Ntfs
                | HfsPlus
                | Hfs
                | Iso9660
                | SquashFs
                | Bcachefs
        )
    }
}

/// One recognised signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is.
    pub kind: SignatureKind,
    /// Where its magic is.
    pub offset_bytes: u64,
    /// Its id, in its own usual notation.
    pub uuid: Option<String>,
    /// Its label; control characters are replaced.
    pub label: Option<String>,
}

/// Everything at the start up to the second 4 KiB block.
const HEAD_BYTES: u64 = 8192;
const ISO_AT: u64 = 32768;
const BTRFS_AT: u64 = 65536;
/// The uberblock ring of the first ZFS label.
const ZFS_RING: Range<u64> = 128 << 10..256 << 10;
/// Backup GPT, DDF and IMSM, with sectors of 512 or 4096 bytes.
const TAIL_BYTES: u64 = 8192;

/// Byte ranges to read from a device of `size_bytes`: sorted by place, inside the device, 153 KiB
/// together.
#[must_use]
pub fn ranges(size_bytes: u64) -> Vec<Range<u64>> {
    let mut wanted = vec![0..HEAD_BYTES, ISO_AT..ISO_AT + 2048, BTRFS_AT..BTRFS_AT + 4096, ZFS_RING];
    for at in luks::SECOND_AT {
        if !wanted.iter().any(|range| range.contains(&at)) {
            wanted.push(at..at + 512);
        }
    }
    wanted.sort_unstable_by_key(|range| range.start);
    let clip = |range: Range<u64>| range.start..range.end.min(size_bytes);
    let tail = size_bytes.saturating_sub(TAIL_BYTES)..size_bytes;
    wanted.into_iter().map(clip).chain([tail]).filter(|range| !range.is_empty()).collect()
}

/// Names every signature in the `parts` (offset and bytes) read from a device of `size_bytes`.
#[must_use]
pub fn identify(size_bytes: u64, parts: &[(u64, &[u8])]) -> Vec<Signature> {
    let view = View { size_bytes, parts };
    let mut found = Vec::new();
    for probe in PROBES {
        found.extend(probe(&view));
    }
    // It may be left of what was there before something else.
    if found.is_empty() {
        found.extend(copy_of_boot_sector(&view));
    }
    found
}

type Probe = fn(&View<'_>) -> Option<Signature>;

const PROBES: [Probe; 16] = [
    lvm2,
    simple,
    boot_sector,
    gpt,
    ext,
    xfs,
    btrfs,
    hfs,
    swap,
    luks,
    second_luks,
    bcache,
    iso,
    zfs,
    ddf,
    imsm,
];

/// The parts of a device that could be read.
struct View<'a> {
    size_bytes: u64,
    parts: &'a [(u64, &'a [u8])],
}

impl<'a> View<'a> {
    /// `len` bytes at `offset`, when one part has all of them.
    fn at(&self, offset: u64, len: usize) -> Option<&'a [u8]> {
        self.parts.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(len)?)
        })
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }
}

fn bare(kind: SignatureKind, offset_bytes: u64) -> Signature {
    Signature { kind, offset_bytes, uuid: None, label: None }
}

/// The LVM2 label: in one of the first four sectors, with the PV id 32 bytes on.
fn lvm2(view: &View<'_>) -> Option<Signature> {
    let offset_bytes = (0..4)
        .map(|sector| 512 * sector)
        .find(|&at| view.has(at, b"LABELONE") && view.has(at + 24, b"LVM2 001"))?;
    let uuid =
        view.at(offset_bytes + 32, 32).and_then(|id| Id::from_bytes(array(id, 0))).map(|id| id.to_string());
    Some(Signature { uuid, ..bare(SignatureKind::Lvm2, offset_bytes) })
}

/// Kinds told by one magic alone.
fn simple(view: &View<'_>) -> Option<Signature> {
    const MAGICS: [(SignatureKind, u64, &[u8]); 7] = [
        (SignatureKind::DmRaid, 0, b"DmRd"),
        (SignatureKind::SquashFs, 0, b"hsqs"),
        (SignatureKind::Integrity, 0, &integrity::MAGIC),
        (SignatureKind::BitLocker, 3, b"-FVE-FS-"),
        (SignatureKind::Ntfs, 3, b"NTFS    "),
        (SignatureKind::ExFat, 3, b"EXFAT   "),
        (SignatureKind::F2fs, 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ];
    MAGICS.into_iter().find(|(_, at, magic)| view.has(*at, magic)).map(|(kind, at, _)| bare(kind, at))
}

/// FAT and MBR share the 55 AA mark; FAT says so itself, and an MBR must have a believable
/// partition.
fn boot_sector(view: &View<'_>) -> Option<Signature> {
    let sector = view.at(0, 512).filter(|sector| sector[510..] == [0x55, 0xaa])?;
    for (magic_at, label_at) in [(54, 43), (82, 71)] {
        if sector[magic_at..].starts_with(b"FAT") {
            let label = text(&sector[label_at..label_at + 11]).filter(|label| label != "NO NAME");
            return Some(Signature { label, ..bare(SignatureKind::Fat, magic_at as u64) });
        }
    }
    let mbr = Mbr::parse(sector)?;
    match () {
        () if mbr.is_protective() && primary_gpt(view).is_some() => None,
        // Reported as GPT even when its header is damaged: the disk is one of GPT's.
        () if mbr.is_protective() => Some(bare(SignatureKind::Gpt, 510)),
        () => Some(Signature { uuid: mbr.id(), ..bare(SignatureKind::Mbr, 510) }),
    }
}

/// The copy of a boot sector that is gone: of FAT32 and exFAT behind it, of NTFS in the sector
/// behind the volume, which is the last.
fn copy_of_boot_sector(view: &View<'_>) -> Option<Signature> {
    const FAT32_AT: u64 = 6 * 512;
    const EXFAT_AT: u64 = 12 * 512;
    const SECTOR_BYTES: u64 = 512;
    let is_fat = view.has(FAT32_AT + 82, b"FAT32   ") && view.has(FAT32_AT + 510, &[0x55, 0xaa]);
    let ntfs_at = view.size_bytes.checked_sub(SECTOR_BYTES);
    let is_ntfs = |at: &u64| {
        view.at(*at, 512).is_some_and(|sector| {
            let bytes = le64(sector, 40).checked_mul(u64::from(le16(sector, 11)));
            sector[3..].starts_with(b"NTFS    ") && bytes == Some(*at)
        })
    };
    match () {
        () if is_fat => Some(bare(SignatureKind::Fat, FAT32_AT + 82)),
        () if view.has(EXFAT_AT + 3, b"EXFAT   ") => Some(bare(SignatureKind::ExFat, EXFAT_AT + 3)),
        () => ntfs_at.filter(is_ntfs).map(|at| bare(SignatureKind::Ntfs, at + 3)),
    }
}

fn primary_gpt(view: &View<'_>) -> Option<u64> {
    [512, 4096].into_iter().find(|&at| view.has(at, b"EFI PART"))
}

/// The primary header after the first sector, or the backup in the last, with sectors of either
/// size.
fn gpt(view: &View<'_>) -> Option<Signature> {
    let backup = [512, 4096]
        .into_iter()
        .filter_map(|sector| view.size_bytes.checked_sub(sector))
        .find(|&at| view.has(at, b"EFI PART"));
    let offset_bytes = primary_gpt(view).or(backup)?;
    let uuid = view.at(offset_bytes + 56, 16).map(|id| Guid::from_disk(&array(id, 0)).to_string());
    Some(Signature { uuid, ..bare(SignatureKind::Gpt, offset_bytes) })
}

fn ext(view: &View<'_>) -> Option<Signature> {
    const JOURNAL: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    const EXTENTS_64BIT_FLEX: u32 = 0x40 | 0x80 | 0x200;
    let block = view.at(1024, 136).filter(|block| le16(block, 56) == 0xef53)?;
    let kind = match (le32(block, 96) & EXTENTS_64BIT_FLEX != 0, le32(block, 92) & JOURNAL != 0) {
        _ if le32(block, 96) & JOURNAL_DEVICE != 0 => SignatureKind::ExtJournal,
        (true, _) => SignatureKind::Ext4,
        (false, true) => SignatureKind::Ext3,
        (false, false) => SignatureKind::Ext2,
    };
    Some(Signature { kind, offset_bytes: 1080, uuid: uuid(&block[104..120]), label: text(&block[120..136]) })
}

fn xfs(view: &View<'_>) -> Option<Signature> {
    let block = view.at(0, 120).filter(|block| block.starts_with(b"XFSB"))?;
    Some(Signature {
        kind: SignatureKind::Xfs,
        offset_bytes: 0,
        uuid: uuid(&block[32..48]),
        label: text(&block[108..120]),
    })
}

fn btrfs(view: &View<'_>) -> Option<Signature> {
    let block = view.at(BTRFS_AT, 555).filter(|block| &block[64..72] == b"_BHRfS_M")?;
    let (uuid, label) = (uuid(&block[32..48]), text(&block[299..555]));
    Some(Signature { kind: SignatureKind::Btrfs, offset_bytes: BTRFS_AT + 64, uuid, label })
}

/// The volume header, or the block of HFS in its place, which may wrap one around. Two letters are
/// little, so that versions and sizes of blocks have to fit.
fn hfs(view: &View<'_>) -> Option<Signature> {
    const SECTOR_BYTES: u32 = 512;
    let block = view.at(1024, 162)?;
    let is_size = |bytes: u32| bytes >= SECTOR_BYTES && bytes.is_multiple_of(SECTOR_BYTES);
    let kind = match &block[..4] {
        [b'H', b'+' | b'X', 0, 4 | 5] if is_size(be32(block, 40)) => SignatureKind::HfsPlus,
        [b'B', b'D', ..] if !is_size(be32(block, 20)) => return None,
        [b'B', b'D', ..] if &block[124..126] == b"H+" => SignatureKind::HfsPlus,
        [b'B', b'D', ..] => SignatureKind::Hfs,
        _ => return None,
    };
    Some(bare(kind, 1024))
}

/// The mark ends the first page of the machine that made it.
fn swap(view: &View<'_>) -> Option<Signature> {
    let marked = |at: &u64| view.has(*at, b"SWAPSPACE2") || view.has(*at, b"SWAP-SPACE");
    let offset_bytes = [4096 - 10, 8192 - 10].into_iter().find(marked)?;
    let uuid = view.at(1024 + 12, 16).and_then(uuid);
    let label = view.at(1024 + 28, 16).and_then(text);
    Some(Signature { kind: SignatureKind::Swap, offset_bytes, uuid, label })
}

fn luks(view: &View<'_>) -> Option<Signature> {
    let block = view.at(0, 208).filter(|block| block.starts_with(b"LUKS\xba\xbe"))?;
    let (kind, label) = match block[6..8] {
        [0, 1] => (SignatureKind::Luks1, None),
        // A version to come is more like the newest than like the first.
        _ => (SignatureKind::Luks2, text(&block[24..72])),
    };
    Some(Signature { kind, offset_bytes: 0, uuid: text(&block[168..208]), label })
}

/// It says where it lies: a copy of one elsewhere is none.
fn second_luks(view: &View<'_>) -> Option<Signature> {
    let is_one = |block: &&[u8], at| {
        block.starts_with(&luks::MAGIC_SECOND) && block[6..8] == [0, 2] && be64(block, 256) == at
    };
    luks::SECOND_AT.into_iter().find_map(|offset_bytes| {
        let block = view.at(offset_bytes, 512).filter(|block| is_one(block, offset_bytes))?;
        let (uuid, label) = (text(&block[168..208]), text(&block[24..72]));
        Some(Signature { kind: SignatureKind::Luks2Second, offset_bytes, uuid, label })
    })
}

fn bcache(view: &View<'_>) -> Option<Signature> {
    const BCACHE: [u8; 16] =
        [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
    const BCACHEFS: [u8; 16] =
        [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
    let offset_bytes = 4096 + 24;
    let magic = view.at(offset_bytes, 16)?;
    let kind = [(SignatureKind::Bcache, BCACHE), (SignatureKind::Bcachefs, BCACHEFS)]
        .into_iter()
        .find(|(_, m)| m == magic)?
        .0;
    let uuid = view.at(offset_bytes + 16, 16).and_then(uuid);
    Some(Signature { uuid, ..bare(kind, offset_bytes) })
}

fn iso(view: &View<'_>) -> Option<Signature> {
    let block = view.at(ISO_AT, 72).filter(|block| &block[1..6] == b"CD001")?;
    Some(Signature { label: text(&block[40..72]), ..bare(SignatureKind::Iso9660, ISO_AT + 1) })
}

/// Any uberblock in the ring of the first label, in either byte order.
fn zfs(view: &View<'_>) -> Option<Signature> {
    const UBERBLOCK: u64 = 0x00ba_b10c;
    let is_uberblock = |&at: &u64| {
        let magic = view.at(at, 8).map_or(0, |magic| le64(magic, 0));
        magic == UBERBLOCK || magic.swap_bytes() == UBERBLOCK
    };
    ZFS_RING.step_by(1024).find(is_uberblock).map(|at| bare(SignatureKind::Zfs, at))
}

fn ddf(view: &View<'_>) -> Option<Signature> {
    let offset_bytes = view.size_bytes.checked_sub(512)?;
    let sector = view.at(offset_bytes, 4)?;
    (be32(sector, 0) == 0xde11_de11).then(|| bare(SignatureKind::Ddf, offset_bytes))
}

fn imsm(view: &View<'_>) -> Option<Signature> {
    let places = [1024, 8192].into_iter().filter_map(|back| view.size_bytes.checked_sub(back));
    let mut marked = places.filter(|&at| view.has(at, b"Intel Raid ISM Cfg Sig. "));
    marked.next().map(|at| bare(SignatureKind::Imsm, at))
}

/// Text up to its padding, if there is any; what could move a terminal's cursor is replaced.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    printable(&String::from_utf8_lossy(&bytes[..end]))
}

/// 16 bytes in order, in the usual notation; none when they are all zero.
fn uuid(bytes: &[u8]) -> Option<String> {
    bytes.iter().any(|&byte| byte != 0).then(|| dashed(bytes, &[4, 2, 2, 2, 6]))
}

fn dashed(bytes: &[u8], groups: &[usize]) -> String {
    let mut rest = bytes.iter();
    let groups: Vec<String> = groups
        .iter()
        .map(|&len| rest.by_ref().take(len).map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{put, put_le16, put_le32};

    const SIZE: usize = 1 << 20;

    /// Bytes at a place.
    type Patch<'a> = (usize, &'a [u8]);

    fn probed(device: &[u8]) -> Vec<Signature> {
        let size = device.len() as u64;
        let ranges = ranges(size);
        let parts: Vec<(u64, &[u8])> =
            ranges.iter().map(|r| (r.start, &device[r.start as usize..r.end as usize])).collect();
        identify(size, &parts)
    }

    fn with(patches: &[Patch<'_>]) -> Vec<Signature> {
        let mut device = vec![0; SIZE];
        patches.iter().for_each(|&(at, bytes)| put(&mut device, at, bytes));
        probed(&device)
    }

    fn kinds(patches: &[Patch<'_>]) -> Vec<SignatureKind> {
        with(patches).into_iter().map(|signature| signature.kind).collect()
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(probed(&[0; SIZE]), []);
        assert_eq!(probed(&[0xff; SIZE]), []);
        for size in [0, 1, 511, 512, 1023, 4096, 8191, 40000] {
            assert_eq!(probed(&vec![0; size]), [], "{size} bytes");
        }
    }

    #[test]
    fn every_magic_at_its_place() {
        let rows: [(SignatureKind, &[Patch<'_>]); 21] = [
            (SignatureKind::DmRaid, &[(0, b"DmRd")]),
            (SignatureKind::SquashFs, &[(0, b"hsqs")]),
            (SignatureKind::Integrity, &[(0, b"integrt\0")]),
            (SignatureKind::BitLocker, &[(3, b"-FVE-FS-"), (510, &[0x55, 0xaa])]),
            (SignatureKind::Ntfs, &[(3, b"NTFS    "), (510, &[0x55, 0xaa])]),
            (SignatureKind::ExFat, &[(3, b"EXFAT   "), (510, &[0x55, 0xaa])]),
            (SignatureKind::F2fs, &[(1024, &[0x10, 0x20, 0xf5, 0xf2])]),
            (SignatureKind::HfsPlus, &[(1024, b"H+\0\x04"), (1064, &[0, 0, 0x10, 0])]),
            (SignatureKind::HfsPlus, &[(1024, b"BD"), (1044, &[0, 0, 0x20, 0]), (1148, b"H+")]),
            (SignatureKind::Hfs, &[(1024, b"BD"), (1044, &[0, 0, 0x20, 0])]),
            (SignatureKind::Xfs, &[(0, b"XFSB")]),
            (SignatureKind::Btrfs, &[(65600, b"_BHRfS_M")]),
            (SignatureKind::Swap, &[(4086, b"SWAPSPACE2")]),
            (SignatureKind::Luks1, &[(0, b"LUKS\xba\xbe\0\x01")]),
            (SignatureKind::Luks2, &[(0, b"LUKS\xba\xbe\0\x02")]),
            (SignatureKind::Iso9660, &[(32769, b"CD001")]),
            (SignatureKind::Zfs, &[(131_072 + 5 * 1024, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0])]),
            (SignatureKind::Ddf, &[(SIZE - 512, &[0xde, 0x11, 0xde, 0x11])]),
            (SignatureKind::Imsm, &[(SIZE - 1024, b"Intel Raid ISM Cfg Sig. 1.3.00")]),
            (SignatureKind::Gpt, &[(SIZE - 512, b"EFI PART")]),
            (SignatureKind::Fat, &[(82, b"FAT32   "), (510, &[0x55, 0xaa])]),
        ];
        for (kind, patches) in rows {
            assert_eq!(kinds(patches), [kind]);
        }
    }

    /// A copy counts where nothing else is known, and of NTFS where it ends the volume.
    #[test]
    fn copies_of_boot_sectors() {
        let copy = |at: u64| {
            let mut sector = [0; 512];
            put(&mut sector, 3, b"NTFS    ");
            put_le16(&mut sector, 11, 512);
            put(&mut sector, 40, &(at / 512).to_le_bytes());
            sector
        };
        let (last, right) = (SIZE - 512, copy(SIZE as u64 - 512));
        assert_eq!(kinds(&[(last, &right)]), [SignatureKind::Ntfs]);
        assert_eq!(kinds(&[(last, &copy(4096))]), [], "of a smaller volume");
        assert_eq!(kinds(&[(last, &right), (0, b"XFSB")]), [SignatureKind::Xfs]);
        assert_eq!(kinds(&[(last, &right), (6147, b"EXFAT   ")]), [SignatureKind::ExFat]);
        let fat: Patch<'_> = (3154, b"FAT32   ");
        assert_eq!(kinds(&[fat, (3582, &[0x55, 0xaa]), (6147, b"EXFAT   ")]), [SignatureKind::Fat]);
    }

    /// Behind a first header of any size, unless it says that it lies elsewhere.
    #[test]
    fn second_luks_headers() {
        for at in luks::SECOND_AT {
            let size = at + 4096;
            let mut header = [0; 264];
            put(&mut header, 0, b"SKUL\xba\xbe\0\x02");
            put(&mut header, 256, &at.to_be_bytes());
            let mut device = vec![0; size as usize];
            put(&mut device, at as usize, &header);
            let [found] = &probed(&device)[..] else { panic!("one signature at byte {at}") };
            assert_eq!((found.kind, found.offset_bytes), (SignatureKind::Luks2Second, at));
            put(&mut device, at as usize + 256, &0_u64.to_be_bytes());
            assert_eq!(probed(&device), [], "a copy");
        }
    }

    #[test]
    fn partition_tables() {
        let entry = |kind: u8| [0, 0, 0, 0, kind, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0];
        let mark: Patch<'_> = (510, &[0x55, 0xaa]);
        assert_eq!(kinds(&[mark]), [], "boot code without partitions");
        assert_eq!(kinds(&[mark, (446, &entry(0x83))]), [SignatureKind::Mbr]);
        assert_eq!(kinds(&[mark, (446, &entry(0xee))]), [SignatureKind::Gpt], "GPT with a damaged header");
        assert_eq!(
            kinds(&[mark, (446, &entry(0xee)), (512, b"EFI PART")]),
            [SignatureKind::Gpt],
            "named once"
        );
        let mut random = entry(0x83);
        random[0] = 0x12;
        assert_eq!(kinds(&[mark, (446, &random)]), [], "no boot flag has this value");
    }

    /// The label of docs/formats.md §18.1, at any of its four sectors.
    #[test]
    fn lvm_label() {
        for sector in 0..4 {
            let at = 512 * sector;
            let id = b"GGDpSfLFybwZiGiIXoZxEIta7hBry5le";
            let found = with(&[(at, b"LABELONE"), (at + 24, b"LVM2 001"), (at + 32, id)]);
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].kind, found[0].offset_bytes), (SignatureKind::Lvm2, at as u64));
            assert_eq!(found[0].uuid.as_deref(), Some("GGDpSf-LFyb-wZiG-iIXo-ZxEI-ta7h-Bry5le"));
        }
        assert_eq!(
            kinds(&[(2048, b"LABELONE"), (2072, b"LVM2 001")]),
            [],
            "the fifth sector is not searched"
        );
    }

    #[test]
    fn ext_generations_labels_and_ids() {
        for (compat, incompat, kind) in [
            (0, 2, SignatureKind::Ext2),
            (4, 2, SignatureKind::Ext3),
            (4, 0x42, SignatureKind::Ext4),
            (0, 8, SignatureKind::ExtJournal),
        ] {
            let mut device = vec![0; SIZE];
            put_le16(&mut device, 1080, 0xef53);
            put_le32(&mut device, 1116, compat);
            put_le32(&mut device, 1120, incompat);
            put(&mut device, 1128, &[0xab; 16]);
            put(&mut device, 1144, b"da\x1bta");
            let [found] = &probed(&device)[..] else { panic!("one signature") };
            assert_eq!((found.kind, kind.is_file_system()), (kind, kind != SignatureKind::ExtJournal));
            assert_eq!(found.uuid.as_deref(), Some("abababab-abab-abab-abab-abababababab"));
            assert_eq!(found.label.as_deref(), Some("da\u{fffd}ta"), "no escape sequences");
        }
    }

    #[test]
    fn several_signatures_are_all_named() {
        let found = kinds(&[(0, b"XFSB"), (4120, &[0; 16]), (4086, b"SWAPSPACE2"), (65600, b"_BHRfS_M")]);
        assert_eq!(found, [SignatureKind::Xfs, SignatureKind::Btrfs, SignatureKind::Swap]);
    }
}
