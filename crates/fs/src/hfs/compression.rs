//! Compressed files (decmpfs), as macOS writes them since 10.6: an attribute says how, and holds
//! what is small; else the resource fork holds pieces of 64 KiB.
//!
//! From descriptions of the format (V. Serbinenko on linux-fsdevel, 2012), and images that macOS
//! made.

use std::ops::Range;

use crate::bytes::{be32, le32, le64};
use crate::error::Error;
use crate::hfs::fork::HfsForkMap;
use crate::hfs::lzvn;
use crate::hfs::volume::HfsVolume;
use crate::{EachData, EachRun, FileRun};

const HEAD_BYTES: usize = 16;
const MAGIC: &[u8] = b"fpmc";
/// What is compressed together.
const PIECE_BYTES: u64 = 64 << 10;
/// A piece that does not get smaller is stored as it is, behind a byte that says so.
const PACKED_BYTES_MAX: u64 = PIECE_BYTES + 4096;
/// What an attribute can hold is of files no larger than that.
const INLINE_BYTES_MAX: u64 = 4 << 20;

/// How bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Zlib,
    Lzvn,
}

impl Method {
    fn unpack(self, packed: &[u8], len: usize) -> Option<Vec<u8>> {
        const RAW_OF_ZLIB: u8 = 0x0f;
        /// The end of a stream, with which none begins.
        const RAW_OF_LZVN: u8 = 0x06;
        let (&first, rest) = packed.split_first()?;
        let unpacked = match self {
            Self::Zlib if first & 0x0f == RAW_OF_ZLIB => rest.get(..len)?.to_vec(),
            Self::Zlib => miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, len).ok()?,
            Self::Lzvn if first == RAW_OF_LZVN => rest.get(..len)?.to_vec(),
            Self::Lzvn => lzvn::unpack(packed, len)?,
        };
        (unpacked.len() == len).then_some(unpacked)
    }
}

/// Where packed bytes are.
#[derive(Debug)]
enum Packed {
    /// In the attribute, as they are.
    Plain(Vec<u8>),
    Inline(Method, Vec<u8>),
    Resource(Method),
    Unsupported(&'static str),
}

/// A compressed file.
#[derive(Debug)]
pub struct HfsCompressed {
    file: u32,
    pub size_bytes: u64,
    packed: Packed,
}

impl HfsCompressed {
    /// From the value of its attribute.
    pub fn decode(file: u32, value: &[u8]) -> Option<Self> {
        let rest = value.strip_prefix(MAGIC)?.get(HEAD_BYTES - MAGIC.len()..)?;
        let packed = match le32(value, 4)? {
            1 => Packed::Plain(rest.to_vec()),
            3 => Packed::Inline(Method::Zlib, rest.to_vec()),
            4 => Packed::Resource(Method::Zlib),
            7 => Packed::Inline(Method::Lzvn, rest.to_vec()),
            8 => Packed::Resource(Method::Lzvn),
            5 => Packed::Unsupported("a file whose data macOS keeps elsewhere (decmpfs 5)"),
            11 | 12 => Packed::Unsupported("a file that macOS compressed with LZFSE"),
            13 | 14 => Packed::Unsupported("a file that macOS compressed with LZBITMAP"),
            _ => Packed::Unsupported("a file that macOS compressed in an unknown way"),
        };
        Some(Self { file, size_bytes: le64(value, 8)?, packed })
    }

    /// Its data is in the resource fork, which is none of its own then.
    pub fn uses_resource(&self) -> bool {
        matches!(self.packed, Packed::Resource(_))
    }

    /// It can be unpacked here. Else what it is packed as is shown as attributes.
    pub fn is_supported(&self) -> bool {
        !matches!(self.packed, Packed::Unsupported(_))
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { structure: "HFS+ file", at: self.file.into(), what }
    }

    /// The data of what an attribute holds.
    fn inline(&self) -> Result<Option<Vec<u8>>, Error> {
        let does_not = || self.damaged("it is compressed and does not unpack");
        let len = usize::try_from(self.size_bytes.min(INLINE_BYTES_MAX + 1)).map_err(|_| does_not())?;
        match &self.packed {
            Packed::Plain(bytes) if bytes.len() == len => Ok(Some(bytes.clone())),
            Packed::Plain(_) => Err(does_not()),
            Packed::Inline(..) if self.size_bytes == 0 => Ok(Some(Vec::new())),
            Packed::Inline(method, packed) => method.unpack(packed, len).map(Some).ok_or_else(does_not),
            Packed::Resource(_) => Ok(None),
            Packed::Unsupported(what) => Err(Error::Unsupported { what }),
        }
    }

    /// The data of a range.
    ///
    /// # Errors
    /// It cannot be read, does not unpack, or how it is compressed is not known here.
    pub fn read(
        &self,
        volume: &HfsVolume,
        resource: &HfsForkMap,
        range: &Range<u64>,
        each: &mut EachData<'_>,
    ) -> Result<(), Error> {
        let range = range.start..range.end.min(self.size_bytes);
        let mut hand_on = |start: u64, plain: &[u8]| {
            let (from, to) = (range.start.max(start), range.end.min(start + plain.len() as u64));
            match from < to {
                true => each(from, &plain[(from - start) as usize..(to - start) as usize]),
                false => Ok(()),
            }
        };
        if let Some(plain) = self.inline()? {
            return hand_on(0, &plain);
        }
        let Packed::Resource(method) = self.packed else { return Ok(()) };
        self.pieces(volume, resource, &range, &mut |bytes, place| {
            let mut packed = vec![0; (place.end - place.start) as usize];
            resource.read(volume, place.start, &mut packed)?;
            let plain = method.unpack(&packed, (bytes.end - bytes.start) as usize);
            hand_on(bytes.start, &plain.ok_or_else(|| self.damaged("it is compressed and does not unpack"))?)
        })
    }

    /// Where the data is stored.
    ///
    /// # Errors
    /// That cannot be read.
    pub fn runs(
        &self,
        volume: &HfsVolume,
        resource: &HfsForkMap,
        each: &mut EachRun<'_>,
    ) -> Result<(), Error> {
        if !matches!(self.packed, Packed::Resource(_)) {
            return self.inline().map(|_| ());
        }
        self.pieces(volume, resource, &(0..self.size_bytes), &mut |bytes, place| {
            let unpacked_len = Some(bytes.end - bytes.start);
            resource.runs(volume, &place, &mut |run| {
                each(FileRun { file_offset: bytes.start, unpacked_len, ..run })
            })
        })
    }

    /// Calls `each` for the pieces that a range needs: their bytes of the file, and where in the
    /// resource fork they are.
    fn pieces(
        &self,
        volume: &HfsVolume,
        resource: &HfsForkMap,
        range: &Range<u64>,
        each: &mut dyn FnMut(Range<u64>, Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if range.start >= range.end {
            return Ok(());
        }
        let table = PieceTable::find(self, volume, resource)?;
        for number in range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES) {
            let start = number * PIECE_BYTES;
            let bytes = start..(start + PIECE_BYTES).min(self.size_bytes);
            let place = table.place(self, volume, resource, number)?;
            if place.start >= place.end || place.end - place.start > PACKED_BYTES_MAX {
                return Err(self.damaged("a piece of it has an impossible size"));
            }
            each(bytes, place)?;
        }
        Ok(())
    }
}

/// The table of pieces, at the start of the resource fork.
struct PieceTable {
    /// What offsets count from.
    base: u64,
    /// Entries begin here.
    entries: u64,
    /// Entries have a length. Without it a piece ends where the next one begins.
    has_lengths: bool,
}

impl PieceTable {
    fn find(file: &HfsCompressed, volume: &HfsVolume, resource: &HfsForkMap) -> Result<Self, Error> {
        let pieces = file.size_bytes.div_ceil(PIECE_BYTES);
        let damaged = || file.damaged("the table of its compressed pieces");
        let mut word = [0; 4];
        if file.packed_with(Method::Lzvn) {
            resource.read(volume, 0, &mut word)?;
            let table_bytes = u64::from(u32::from_le_bytes(word));
            return match table_bytes == (pieces + 1).saturating_mul(4) {
                true => Ok(Self { base: 0, entries: 0, has_lengths: false }),
                false => Err(damaged()),
            };
        }
        // It looks like a resource fork with one resource.
        resource.read(volume, 0, &mut word)?;
        let base = be32(&word, 0).map(u64::from).ok_or_else(damaged)? + 4;
        resource.read(volume, base, &mut word)?;
        match u64::from(u32::from_le_bytes(word)) == pieces {
            true => Ok(Self { base, entries: base + 4, has_lengths: true }),
            false => Err(damaged()),
        }
    }

    fn place(
        &self,
        file: &HfsCompressed,
        volume: &HfsVolume,
        resource: &HfsForkMap,
        number: u64,
    ) -> Result<Range<u64>, Error> {
        let entry_bytes = if self.has_lengths { 8 } else { 4 };
        let mut entry = [0; 8];
        resource.read(volume, self.entries + number * entry_bytes, &mut entry)?;
        let pair = le32(&entry, 0).zip(le32(&entry, 4));
        let (first, second) = pair.ok_or_else(|| file.damaged("the table of its compressed pieces"))?;
        let start = self.base + u64::from(first);
        let end = if self.has_lengths { start + u64::from(second) } else { self.base + u64::from(second) };
        Ok(start..end)
    }
}

impl HfsCompressed {
    fn packed_with(&self, wanted: Method) -> bool {
        matches!(self.packed, Packed::Resource(method) if method == wanted)
    }
}
