//! A node of a tree: a descriptor, records, and from the end on where these are.
//!
//! TN1150, "B-Trees".

use std::ops::Range;

use crate::bytes::{be16, be32, u8_at};

const DESCRIPTOR_BYTES: usize = 14;

/// What a node is for.
pub mod kinds {
    pub const LEAF: u8 = 0xff;
    pub const INDEX: u8 = 0;
    pub const HEADER: u8 = 1;
    pub const MAP: u8 = 2;
}

/// A node whose descriptor is in order. Its records are checked one by one, so that one that is
/// damaged hides no other.
pub struct HfsNode {
    bytes: Vec<u8>,
    pub next: u32,
    pub kind: u8,
    pub height: u8,
    pub records: usize,
}

/// A record of a leaf or an index.
#[derive(Clone, Copy)]
pub struct HfsRecord<'a> {
    /// The key, without its length.
    pub key: &'a [u8],
    /// What follows it.
    pub data: &'a [u8],
}

impl HfsNode {
    pub fn new(bytes: Vec<u8>) -> Result<Self, &'static str> {
        let cut = "it is too short";
        let records = usize::from(be16(&bytes, 10).ok_or(cut)?);
        if DESCRIPTOR_BYTES + 2 * (records + 1) > bytes.len() {
            return Err("it has more records than there is space for");
        }
        Ok(Self {
            next: be32(&bytes, 0).ok_or(cut)?,
            kind: u8_at(&bytes, 8).ok_or(cut)?,
            height: u8_at(&bytes, 9).ok_or(cut)?,
            records,
            bytes,
        })
    }

    /// Where a record is.
    fn place(&self, number: usize) -> Option<Range<usize>> {
        let offset = |number: usize| {
            let at = self.bytes.len().checked_sub(2 * (number + 1))?;
            be16(&self.bytes, at).map(usize::from)
        };
        let place = offset(number)?..offset(number + 1)?;
        let end = self.bytes.len().checked_sub(2 * (self.records + 1))?;
        (DESCRIPTOR_BYTES <= place.start && place.start < place.end && place.end <= end).then_some(place)
    }

    /// The bytes of a record.
    pub fn bytes_of(&self, number: usize) -> Option<&[u8]> {
        self.bytes.get(self.place(number)?)
    }

    /// A record with its key; `key_bytes` is what keys take if they all take the same.
    pub fn record(&self, number: usize, key_bytes: Option<usize>) -> Option<HfsRecord<'_>> {
        let bytes = self.bytes_of(number)?;
        let len = usize::from(be16(bytes, 0)?);
        let key = bytes.get(2..2 + len)?;
        // What follows begins at an even offset.
        let data = bytes.get((2 + key_bytes.unwrap_or(len)).next_multiple_of(2)..)?;
        Some(HfsRecord { key, data })
    }
}
