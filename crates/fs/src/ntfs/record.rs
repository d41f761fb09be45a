//! Records of the master file table, and blocks of indexes: their sectors are proved whole, and
//! their attributes taken apart.

use crate::bytes::{le16, le32, le64, u8_at};
use crate::error::Error;
use crate::names::units;
use crate::source::SIZE_MAX;

/// Kinds of attributes.
pub(super) mod kinds {
    pub const STANDARD_INFORMATION: u32 = 0x10;
    pub const ATTRIBUTE_LIST: u32 = 0x20;
    pub const FILE_NAME: u32 = 0x30;
    pub const VOLUME_NAME: u32 = 0x60;
    pub const VOLUME_INFORMATION: u32 = 0x70;
    pub const DATA: u32 = 0x80;
    pub const INDEX_ROOT: u32 = 0x90;
    pub const INDEX_ALLOCATION: u32 = 0xa0;
    pub const BITMAP: u32 = 0xb0;
    pub const REPARSE_POINT: u32 = 0xc0;
    pub const EXTENDED: u32 = 0xe0;
    pub const END: u32 = 0xffff_ffff;
}

/// Sectors are proved in units of this, whatever those of the drive are.
const STRIDE_BYTES: usize = 512;

/// Proves that all sectors of a record were written together, and puts back the bytes that the
/// proof took the place of.
///
/// # Errors
/// What is wrong: the record was torn by a power cut, or is damaged.
pub(super) fn mend(record: &mut [u8], magic: [u8; 4]) -> Result<(), &'static str> {
    match record.first_chunk::<4>() {
        Some(b"BAAD") => return Err("Windows marked it as torn"),
        Some(found) if *found == magic => {}
        _ => return Err("it has no magic"),
    }
    let cut = "it is cut off";
    let (at, count) = (le16(record, 4).ok_or(cut)?.into(), usize::from(le16(record, 6).ok_or(cut)?));
    if count != record.len() / STRIDE_BYTES + 1 {
        return Err("the number of its sectors");
    }
    let proof = record.get(at..at + count * 2).ok_or("the place of its proof")?.to_vec();
    let (mark, kept) = proof.split_at(2);
    for (sector, kept) in record.chunks_exact_mut(STRIDE_BYTES).zip(kept.chunks_exact(2)) {
        let end = &mut sector[STRIDE_BYTES - 2..];
        if end != mark {
            return Err("it is torn: its sectors are of different times");
        }
        end.copy_from_slice(kept);
    }
    Ok(())
}

/// Clusters that lie side by side, or are a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClusterExtent {
    /// The number of the first within the attribute.
    pub vcn: u64,
    /// Its number on the volume; `None` for a hole.
    pub lcn: Option<u64>,
    pub count: u64,
}

/// What an attribute holds.
#[derive(Debug, Clone)]
pub(super) enum AttributeBody {
    /// All of it, in the record.
    Resident(Vec<u8>),
    /// On clusters elsewhere.
    Outside(Outside),
}

/// An attribute on clusters of its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside {
    pub extents: Vec<ClusterExtent>,
    /// The size, and how much of it was ever written, bytes.
    pub size: u64,
    pub written: u64,
    /// Clusters that are compressed together, as a power of two; 0 for none.
    pub unit_log: u8,
    /// Its extents do not end where a record says that they do: which of them are right is not
    /// known.
    pub is_torn: bool,
}

impl Outside {
    /// Which extent is the first that reaches beyond a cluster's number.
    pub fn first_from(&self, vcn: u64) -> usize {
        self.extents.partition_point(|extent| extent.vcn + extent.count <= vcn)
    }
}

/// An attribute of a file.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub kind: u32,
    pub name: Vec<u16>,
    pub flags: u16,
    pub body: AttributeBody,
    /// The number of its first cluster: it may have pieces in several records.
    pub lowest: u64,
}

/// Bits of an attribute's flags.
pub(super) mod flags {
    pub const COMPRESSED: u16 = 0x00ff;
    pub const ENCRYPTED: u16 = 0x4000;
}

/// The head of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead {
    pub sequence: u16,
    pub is_in_use: bool,
    pub is_directory: bool,
    /// The record that this one extends; 0 for none.
    pub base: u64,
}

/// A record number out of a reference: the high bits count how often the record was used.
pub(super) fn record_of(reference: u64) -> u64 {
    reference & 0xffff_ffff_ffff
}

pub(super) fn sequence_of(reference: u64) -> u16 {
    (reference >> 48) as u16
}

/// Takes a record apart that was mended.
pub(super) fn parse(record: &[u8]) -> Result<(RecordHead, Vec<Attribute>), &'static str> {
    let cut = "it is cut off";
    let bits = le16(record, 22).ok_or(cut)?;
    let head = RecordHead {
        sequence: le16(record, 16).ok_or(cut)?,
        is_in_use: bits & 1 != 0,
        is_directory: bits & 2 != 0,
        base: record_of(le64(record, 32).ok_or(cut)?),
    };
    let used = (le32(record, 24).ok_or(cut)? as usize).min(record.len());
    let mut at = usize::from(le16(record, 20).ok_or(cut)?);
    let mut attributes = Vec::new();
    while let Some(kind) = le32(&record[..used], at).filter(|kind| *kind != kinds::END) {
        let len = le32(record, at + 4).ok_or(cut)? as usize;
        let bytes = record[..used].get(at..at.saturating_add(len)).filter(|bytes| bytes.len() >= 24);
        let bytes = bytes.ok_or("the length of an attribute")?;
        attributes.push(attribute(kind, bytes).ok_or("one of its attributes")?);
        at += len;
    }
    Ok((head, attributes))
}

fn attribute(kind: u32, bytes: &[u8]) -> Option<Attribute> {
    let (name_len, name_at) = (usize::from(u8_at(bytes, 9)?) * 2, usize::from(le16(bytes, 10)?));
    let name = units(bytes.get(name_at..name_at + name_len)?).collect();
    let (body, lowest) = if u8_at(bytes, 8)? == 0 {
        let (len, at) = (le32(bytes, 16)? as usize, usize::from(le16(bytes, 20)?));
        (AttributeBody::Resident(bytes.get(at..at.checked_add(len)?)?.to_vec()), 0)
    } else {
        let (lowest, pairs_at) = (le64(bytes, 16)?, usize::from(le16(bytes, 32)?));
        // Sizes are told by the first piece alone.
        let first = lowest == 0;
        let size = |at| le64(bytes, at).filter(|size| *size <= SIZE_MAX);
        let extents = extents(bytes.get(pairs_at..)?, lowest)?;
        let end = extents.last().map_or(lowest, |last| last.vcn + last.count);
        // The number of the last cluster; what tells of none has 0 there, too.
        let highest = le64(bytes, 24)?;
        let outside = Outside {
            extents,
            is_torn: highest != 0 && highest.wrapping_add(1) != end,
            size: if first { size(48)? } else { 0 },
            written: if first { size(56)? } else { 0 },
            unit_log: u8_at(bytes, 34)?,
        };
        (AttributeBody::Outside(outside), lowest)
    };
    Some(Attribute { kind, name, flags: le16(bytes, 12)?, body, lowest })
}

/// Mapping pairs: how many clusters, and how far from the last place; no distance is a hole.
fn extents(mut pairs: &[u8], lowest: u64) -> Option<Vec<ClusterExtent>> {
    let (mut vcn, mut place, mut found) = (lowest, 0_i64, Vec::new());
    loop {
        let (&head, rest) = pairs.split_first()?;
        if head == 0 {
            return Some(found);
        }
        let (count_len, place_len) = (usize::from(head & 0xf), usize::from(head >> 4));
        let (count, distance) = (rest.get(..count_len)?, rest.get(count_len..count_len + place_len)?);
        let count = u64::try_from(signed(count)?).ok().filter(|count| *count > 0)?;
        let lcn = match distance {
            [] => None,
            distance => {
                place = place.checked_add(signed(distance)?)?;
                Some(u64::try_from(place).ok()?)
            }
        };
        found.push(ClusterExtent { vcn, lcn, count });
        vcn = vcn.checked_add(count)?;
        pairs = &rest[count_len + place_len..];
    }
}

/// A number of up to eight bytes with its sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let last = *bytes.last().filter(|_| bytes.len() <= 8)?;
    let mut whole = [if last & 0x80 != 0 { 0xff } else { 0 }; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    Some(i64::from_le_bytes(whole))
}

/// An error that names a record.
pub(super) fn damaged(record: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "NTFS record", at: record, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_pairs_have_signs_and_holes() {
        // Linux's own example: 0x30 clusters at 0x20, a hole of 0x10, then 0x20 clusters before.
        let pairs = [0x21, 0x30, 0x20, 0x02, 0x01, 0x10, 0x11, 0x20, 0xe0, 0];
        let found = extents(&pairs, 0).unwrap();
        let expected = [(0, Some(0x220), 0x30), (0x30, None, 0x10), (0x40, Some(0x200), 0x20)];
        let expected = expected.map(|(vcn, lcn, count)| ClusterExtent { vcn, lcn, count });
        assert_eq!(found, expected);
        assert_eq!(extents(&[0x11, 0x01, 0xff, 0], 0), None, "before the volume");
        assert_eq!(extents(&[0x11, 0x01], 0), None, "cut off");
    }

    #[test]
    fn a_torn_record_is_no_record() {
        let mut record = vec![0; 1024];
        record[..4].copy_from_slice(b"FILE");
        record[4..8].copy_from_slice(&[48, 0, 3, 0]);
        record[48..54].copy_from_slice(&[7, 0, 1, 2, 3, 4]);
        record[510] = 7;
        record[1022] = 7;
        let mut whole = record.clone();
        assert_eq!(mend(&mut whole, *b"FILE"), Ok(()));
        assert_eq!((&whole[510..512], &whole[1022..]), (&[1, 2][..], &[3, 4][..]));
        record[1022] = 6;
        assert!(mend(&mut record, *b"FILE").is_err());
    }
}
