//! The data of a file: extents, in an item, compressed or plain, with a checksum for every sector.

use std::ops::Range;

use crate::btrfs::tree::{self, ItemKey, TreeRoot};
use crate::btrfs::{Btrfs, CSUM_OBJECT, CSUM_TREE, EXTENT_CSUM, EXTENT_DATA, Inode, compression, logical};
use crate::bytes::{le16, le64, u8_at};
use crate::error::Error;
use crate::source::FileRun;
use crate::{EachData, EachRun, FsNode};

/// Of an item; data follows if it is inline.
const HEADER_BYTES: usize = 21;

/// Kinds of extents. Those that are allocated and not written read as zeros.
const INLINE: u8 = 0;
const REGULAR: u8 = 1;
const PREALLOCATED: u8 = 2;

/// What is compressed is cut into pieces of that.
const COMPRESSED_BYTES_MAX: u64 = 128 << 10;

/// Data is read and verified in pieces of at most that.
const PIECE_BYTES: u64 = 4 << 20;

/// An extent of a file.
struct Extent<'a> {
    file_offset: u64,
    len: u64,
    compression: u8,
    place: Place<'a>,
}

enum Place<'a> {
    Hole,
    /// The data, and its length uncompressed.
    Inline(&'a [u8], u64),
    /// An extent of the logical space, of which the file has a part that starts at an offset,
    /// uncompressed.
    At {
        logical: u64,
        len: u64,
        offset: u64,
        unpacked_len: u64,
    },
}

/// Calls `each` with the data of a range.
pub fn read(
    btrfs: &Btrfs,
    file: FsNode,
    inode: &Inode,
    range: Range<u64>,
    each: &mut EachData<'_>,
) -> Result<(), Error> {
    extents(btrfs, file, range, &mut |extent, part| extent.deliver(btrfs, inode.verified, part, each))
}

/// Calls `each` with where the data of a range is; of what is compressed, with all of the extent
/// for as much of the file as is made of it.
pub fn runs(btrfs: &Btrfs, file: FsNode, range: Range<u64>, each: &mut EachRun<'_>) -> Result<(), Error> {
    extents(btrfs, file, range, &mut |extent, part| {
        let Place::At { logical, len, offset, .. } = extent.place else { return Ok(()) };
        let packed = extent.compression != compression::NONE;
        let skip = offset.saturating_add(part.start - extent.file_offset);
        let (mut at, mut left) = match packed {
            true => (logical, len),
            false => (logical.saturating_add(skip), part.end - part.start),
        };
        let unpacked_len = packed.then(|| part.end - part.start);
        let mut file_offset = part.start;
        while left > 0 {
            let piece = btrfs.chunks.piece(at, left)?;
            let here = piece.len;
            for disk_offset in piece.on_first(&btrfs.devices) {
                each(FileRun { file_offset, disk_offset, len: here, unpacked_len })?;
            }
            (at, left) = (at.saturating_add(here), left - here);
            if !packed {
                file_offset = file_offset.saturating_add(here);
            }
        }
        Ok(())
    })
}

/// Takes an extent, and the part of the file that it has.
type EachExtent<'a> = dyn FnMut(&Extent<'_>, Range<u64>) -> Result<(), Error> + 'a;

/// Calls `each` with the extents of a range, and the part of the file that each has of it.
fn extents(btrfs: &Btrfs, file: FsNode, range: Range<u64>, each: &mut EachExtent<'_>) -> Result<(), Error> {
    if range.is_empty() {
        return Ok(());
    }
    let damaged = |what| Error::Damaged { structure: "btrfs inode", at: file.inode, what };
    // The extent that the range starts in may start before it.
    let start = ItemKey::new(file.inode, EXTENT_DATA, range.start);
    let before = btrfs.key_up_to(file.tree, start)?;
    let start = before.filter(|key| (key.object, key.kind) == (file.inode, EXTENT_DATA)).unwrap_or(start);
    let end = ItemKey::new(file.inode, EXTENT_DATA, range.end - 1);
    let mut next = 0;
    btrfs.items(file.tree, start..=end, &mut |key, item| {
        let extent = Extent::decode(key.offset, item).ok_or_else(|| damaged("an extent is none"))??;
        if extent.file_offset < next {
            return Err(damaged("its extents overlap"));
        }
        next =
            extent.file_offset.checked_add(extent.len).ok_or_else(|| damaged("an extent without an end"))?;
        let part = extent.file_offset.max(range.start)..next.min(range.end);
        match part.is_empty() {
            true => Ok(()),
            false => each(&extent, part),
        }
    })
}

impl<'a> Extent<'a> {
    fn decode(file_offset: u64, item: &'a [u8]) -> Option<Result<Self, Error>> {
        let (unpacked_len, compression) = (le64(item, 8)?, u8_at(item, 16)?);
        if u8_at(item, 17)? != 0 || le16(item, 18)? != 0 {
            return Some(Err(Error::Unsupported { what: "an encrypted or otherwise encoded file of btrfs" }));
        }
        let kind = u8_at(item, 20)?;
        if kind == INLINE {
            let data = item.get(HEADER_BYTES..)?;
            let len = if compression == compression::NONE { data.len() as u64 } else { unpacked_len };
            return Some(Ok(Self {
                file_offset,
                len,
                compression,
                place: Place::Inline(data, unpacked_len),
            }));
        }
        let place = match (kind, le64(item, 21)?) {
            (PREALLOCATED, _) | (REGULAR, 0) => Place::Hole,
            (REGULAR, logical) => {
                Place::At { logical, len: le64(item, 29)?, offset: le64(item, 37)?, unpacked_len }
            }
            _ => return None,
        };
        Some(Ok(Self { file_offset, len: le64(item, 45)?, compression, place }))
    }

    /// Hands on the part of a file, which lies in this extent.
    fn deliver(
        &self,
        btrfs: &Btrfs,
        verified: bool,
        part: Range<u64>,
        each: &mut EachData<'_>,
    ) -> Result<(), Error> {
        let skip = part.start - self.file_offset;
        match self.place {
            Place::Hole => Ok(()),
            Place::Inline(data, unpacked_len) => {
                let sector = btrfs.superblock.sector_bytes;
                let unpacked = match self.compression {
                    compression::NONE => data.to_vec(),
                    _ => compression::unpack(self.compression, data, bounded(unpacked_len)?, sector)?,
                };
                let bytes = unpacked.get(skip as usize..(part.end - self.file_offset) as usize);
                each(part.start, bytes.ok_or_else(|| damaged(self.file_offset))?)
            }
            Place::At { logical, offset, .. } if self.compression == compression::NONE => {
                let start = logical.checked_add(offset).and_then(|start| start.checked_add(skip));
                let start = start.ok_or_else(|| damaged(logical))?;
                plain(btrfs, verified, start, part, each)
            }
            Place::At { logical, len, offset, unpacked_len } => {
                let mut packed = vec![0; bounded(len)?];
                sectors(btrfs, verified, logical, &mut packed)?;
                let sector = btrfs.superblock.sector_bytes;
                let unpacked =
                    compression::unpack(self.compression, &packed, bounded(unpacked_len)?, sector)?;
                let start = usize::try_from(offset.saturating_add(skip)).unwrap_or(usize::MAX);
                let len = (part.end - part.start) as usize;
                let bytes = unpacked.get(start..).and_then(|bytes| bytes.get(..len));
                each(part.start, bytes.ok_or_else(|| damaged(logical))?)
            }
        }
    }
}

fn damaged(logical: u64) -> Error {
    Error::Damaged { structure: "btrfs extent", at: logical, what: "it is shorter than its part of the file" }
}

fn bounded(len: u64) -> Result<usize, Error> {
    let what = "it is compressed and longer than such extents are";
    match len {
        1..=COMPRESSED_BYTES_MAX => Ok(len as usize),
        _ => Err(Error::Damaged { structure: "btrfs extent", at: len, what }),
    }
}

/// Data as it is, in pieces, from whole sectors: checksums are of these.
fn plain(
    btrfs: &Btrfs,
    verified: bool,
    start: u64,
    part: Range<u64>,
    each: &mut EachData<'_>,
) -> Result<(), Error> {
    let sector = btrfs.superblock.sector_bytes as u64;
    // A piece cannot be longer than what there is, before it is allocated for.
    let mut bytes = vec![
        0;
        (part.end - part.start + 2 * sector).min(PIECE_BYTES).min(btrfs.devices.size_bytes())
            as usize
    ];
    let mut at = part.start;
    while at < part.end {
        let logical = start + (at - part.start);
        let before = logical % sector;
        let wanted = (part.end - at).min(bytes.len() as u64 / sector * sector - before);
        let whole = (before + wanted).next_multiple_of(sector);
        let whole = btrfs.chunks.within(logical - before, whole)?;
        let bytes = &mut bytes[..whole as usize];
        sectors(btrfs, verified, logical - before, bytes)?;
        let here = &bytes[before as usize..(before + wanted).min(whole) as usize];
        if here.is_empty() {
            return Err(damaged(logical));
        }
        each(at, here)?;
        at += here.len() as u64;
    }
    Ok(())
}

/// Whole sectors, each from the first place or parity that gives what its checksum says.
fn sectors(btrfs: &Btrfs, verified: bool, logical: u64, into: &mut [u8]) -> Result<(), Error> {
    let len = into.len() as u64;
    if btrfs.chunks.within(logical, len)? < len {
        return Err(damaged(logical));
    }
    let sums = if verified { Sums::read(btrfs, logical, len)? } else { Sums::default() };
    // Data of a file that has checksums, and has none of its own, is damaged: Linux gives EIO.
    let is_right =
        |number: usize, bytes: &[u8]| sums.is_right(btrfs, number, bytes).or(verified.then_some(false));
    logical::sectors(btrfs, logical, into, &is_right).map_err(|error| match error {
        Error::Damaged { structure, at, .. }
            if verified && at.checked_sub(logical).is_some_and(|offset| sums.is_missing(btrfs, offset)) =>
        {
            Error::Damaged { structure, at, what: "the checksum of the data there is missing" }
        }
        error => error,
    })
}

/// Checksums of a range, for each sector; none where none is stored.
#[derive(Default)]
struct Sums {
    sums: Vec<Option<Vec<u8>>>,
}

impl Sums {
    fn read(btrfs: &Btrfs, logical: u64, len: u64) -> Result<Self, Error> {
        let tree: TreeRoot = btrfs.tree(CSUM_TREE)?;
        let (sector, sum_bytes) = (btrfs.superblock.sector_bytes as u64, btrfs.superblock.checksum.len());
        let mut sums = vec![None; len.div_ceil(sector) as usize];
        let key = |offset| ItemKey::new(CSUM_OBJECT, EXTENT_CSUM, offset);
        let before = tree::floor(btrfs, tree, key(logical))?.map(|(key, _)| key);
        let first = before.filter(|key| (key.object, key.kind) == (CSUM_OBJECT, EXTENT_CSUM));
        let range = first.unwrap_or(key(logical))..=key(logical + len - 1);
        tree::items(btrfs, tree, range, &mut |key, item| {
            for (ix, sum) in item.chunks_exact(sum_bytes).enumerate() {
                let at = key.offset.saturating_add(ix as u64 * sector);
                if let Some(place) =
                    at.checked_sub(logical).and_then(|at| sums.get_mut((at / sector) as usize))
                {
                    *place = Some(sum.to_vec());
                }
            }
            Ok(())
        })?;
        for (at, sum) in btrfs.log.sums.range(logical..logical + len) {
            if let Some(place) = sums.get_mut(((at - logical) / sector) as usize) {
                *place = Some(sum.clone());
            }
        }
        Ok(Self { sums })
    }

    /// Whether there is none for the sector at this offset of the range.
    fn is_missing(&self, btrfs: &Btrfs, offset: u64) -> bool {
        self.sums.get((offset / btrfs.superblock.sector_bytes as u64) as usize).is_some_and(Option::is_none)
    }

    /// Whether a sector is what its checksum says; `None` if it has none.
    fn is_right(&self, btrfs: &Btrfs, number: usize, bytes: &[u8]) -> Option<bool> {
        let sum = self.sums.get(number)?.as_ref()?;
        Some(btrfs.superblock.checksum.is_right(bytes, sum))
    }
}
