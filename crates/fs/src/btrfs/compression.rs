//! Compressed extents: each is unpacked as a whole, into a buffer whose size is known and bounded
//! before.

use std::io::Read;

use crate::btrfs::lzo;
use crate::error::Error;

pub const NONE: u8 = 0;
const ZLIB: u8 = 1;
const LZO: u8 = 2;
const ZSTD: u8 = 3;

/// btrfs compresses with windows of 128 KiB.
const ZSTD_WINDOW_BYTES_MAX: u64 = 1 << 20;

/// Unpacks into `len` bytes. What was packed may be shorter: zeros follow.
pub fn unpack(method: u8, packed: &[u8], len: usize, sector_bytes: usize) -> Result<Vec<u8>, Error> {
    let unpacked = match method {
        ZLIB => zlib(packed, len),
        LZO => segments(packed, len, sector_bytes),
        ZSTD => zstd(packed, len),
        _ => return Err(Error::Unsupported { what: "a file of btrfs with an unknown compression" }),
    };
    let what = "it is compressed and does not unpack";
    let mut unpacked =
        unpacked.ok_or(Error::Damaged { structure: "btrfs extent", at: packed.len() as u64, what })?;
    unpacked.resize(len, 0);
    Ok(unpacked)
}

fn zlib(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    use miniz_oxide::inflate::TINFLStatus::HasMoreOutput;
    match miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, len) {
        Ok(unpacked) => Some(unpacked),
        // The end of a file is packed with what lies behind it in its last sector.
        Err(error) if error.status == HasMoreOutput => Some(error.output),
        Err(_) => None,
    }
}

/// Zeros up to the end of the sector follow the frame, so no more is read than is wanted.
fn zstd(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let decoder =
        ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, ZSTD_WINDOW_BYTES_MAX).ok()?;
    let mut unpacked = Vec::with_capacity(len);
    decoder.take(len as u64).read_to_end(&mut unpacked).ok()?;
    Some(unpacked)
}

/// The length of all, then segments of a sector each, with their length. A length never lies across
/// two sectors of what is packed.
fn segments(packed: &[u8], len: usize, sector_bytes: usize) -> Option<Vec<u8>> {
    const LEN_BYTES: usize = 4;
    let number = |at: usize| Some(u32::from_le_bytes(*packed.get(at..)?.first_chunk()?) as usize);
    let end = number(0)?.min(packed.len());
    let mut at = LEN_BYTES;
    let mut unpacked = Vec::with_capacity(len);
    while unpacked.len() < len && at + LEN_BYTES <= end {
        if sector_bytes - at % sector_bytes < LEN_BYTES {
            at = at.next_multiple_of(sector_bytes);
        }
        let segment_len = number(at)?;
        at += LEN_BYTES;
        let segment = packed.get(at..)?.get(..segment_len)?;
        let unpacked_end = len.min(unpacked.len() + sector_bytes);
        lzo::unpack(segment, &mut unpacked, unpacked_end)?;
        at += segment_len;
    }
    Some(unpacked)
}
