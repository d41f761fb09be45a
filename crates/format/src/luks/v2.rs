//! LUKS2: a binary header of 4 KiB and JSON behind it, twice.

use sha2::{Digest, Sha256, Sha512};

use super::{
    HeaderSource, LuksError, LuksHeader, MAGIC, MAGIC_SECOND, ReadHeader, SECOND_AT, damaged, json, limits,
    text, version_of,
};
use crate::bytes::be64;
use crate::text::printable;

/// The binary header, in bytes.
const BINARY_BYTES: usize = 4096;
const CHECKSUM_AT: usize = 448;
const CHECKSUM_BYTES: usize = 64;

/// A header whose checksum is right.
struct ValidHeader {
    sequence: u64,
    header: LuksHeader,
}

/// The header that counts. The first one's magic `is_there`, or is not.
pub(super) fn read(read: &mut ReadHeader<'_>, is_there: bool) -> Result<LuksHeader, LuksError> {
    let first = match is_there {
        true => read_at(read, 0, &MAGIC, HeaderSource::First),
        false => Err(LuksError::NotLuks),
    };
    // The first one says where the second one is; a damaged one does not.
    let second = SECOND_AT.iter().find_map(|&at_bytes| {
        let source = HeaderSource::Second { at_bytes };
        read_at(read, at_bytes, &MAGIC_SECOND, source).ok()
    });
    match (first, second) {
        (Ok(first), Some(second)) if second.sequence > first.sequence => Ok(second.header),
        (Ok(first), _) => Ok(first.header),
        (Err(_), Some(second)) => Ok(second.header),
        (Err(error), None) => Err(error),
    }
}

fn read_at(
    read: &mut ReadHeader<'_>,
    at_bytes: u64,
    magic: &[u8; 6],
    source: HeaderSource,
) -> Result<ValidHeader, LuksError> {
    let unreadable = || damaged("it cannot be read");
    let binary = read(at_bytes, BINARY_BYTES).filter(|bytes| bytes.len() == BINARY_BYTES);
    let binary = binary.ok_or_else(unreadable)?;
    if !binary.starts_with(magic) || version_of(&binary) != 2 {
        return Err(LuksError::NotLuks);
    }
    let (len, place) = (be64(&binary, 8), be64(&binary, 256));
    if !SECOND_AT.contains(&len) || len > limits::HEADER_BYTES {
        return Err(damaged(format!("a header of {len} bytes")));
    }
    // Both headers say where they are: a copy of one elsewhere is none.
    if place != at_bytes || (at_bytes > 0 && at_bytes != len) {
        return Err(damaged("it says that it lies elsewhere"));
    }
    let whole = read(at_bytes, len as usize).filter(|bytes| bytes.len() as u64 == len);
    let whole = whole.ok_or_else(unreadable)?;
    check_sum(&whole)?;
    let area = &whole[BINARY_BYTES..];
    let end = area.iter().position(|&byte| byte == 0).unwrap_or(area.len());
    let parts = json::parse(&area[..end])?;
    let header = LuksHeader {
        version: 2,
        uuid: text(&whole[168..208])?,
        label: printable(&text(&whole[24..72])?),
        source,
        header_bytes: 2 * len,
        slots: parts.slots,
        digests: parts.digests,
        segments: parts.segments,
        tokens: parts.tokens,
        allows_discards: parts.allows_discards,
        requirements: parts.requirements,
    };
    Ok(ValidHeader { sequence: be64(&whole, 16), header: header.checked()? })
}

/// The checksum is over header and JSON area, with its own bytes as zeros.
fn check_sum(whole: &[u8]) -> Result<(), LuksError> {
    let (before, rest) = whole.split_at(CHECKSUM_AT);
    let (stored, behind) = rest.split_at(CHECKSUM_BYTES);
    let zeros = [0; CHECKSUM_BYTES];
    let parts = [before, &zeros[..], behind];
    let right = match text(&whole[72..104])?.as_str() {
        "sha256" => stored.starts_with(&sum::<Sha256>(parts)),
        "sha512" => stored.starts_with(&sum::<Sha512>(parts)),
        other => return Err(damaged(format!("a checksum of the kind `{other}`"))),
    };
    if right { Ok(()) } else { Err(damaged("its checksum is wrong")) }
}

fn sum<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
    let mut digest = D::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().to_vec()
}
