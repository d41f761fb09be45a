//! From the logical space to the device: chunks, each in one place or, with DUP, in two.

use std::collections::BTreeMap;

use crate::btrfs::superblock::Superblock;
use crate::btrfs::tree::{ItemKey, KEY_BYTES};
use crate::bytes::{le16, le64};
use crate::error::Error;

const HEADER_BYTES: usize = 48;
const STRIPE_BYTES: usize = 32;

/// Types of chunks that are striped: only with several devices, or one stripe.
const STRIPED: u64 = 0x8 | 0x40 | 0x80 | 0x100;

/// The map.
#[derive(Debug, Default)]
pub struct Chunks {
    /// By their logical start.
    chunks: BTreeMap<u64, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    len: u64,
    /// Where its copies start on the device.
    copies: Vec<u64>,
}

fn damaged(logical: u64, what: &'static str) -> Error {
    Error::Damaged { structure: "btrfs chunk", at: logical, what }
}

impl Chunks {
    /// Those in the superblock.
    pub fn of_superblock(superblock: &Superblock) -> Result<Self, Error> {
        let mut chunks = Self::default();
        let mut rest = &superblock.chunks[..];
        while !rest.is_empty() {
            let key = ItemKey::decode(rest, 0)
                .ok_or_else(|| damaged(0, "the superblock's list ends within one"))?;
            let item = &rest[KEY_BYTES..];
            let len = chunks.add(superblock, key.offset, item)?;
            rest = &item[len..];
        }
        Ok(chunks)
    }

    /// Adds what an item says, and returns the item's length.
    pub fn add(&mut self, superblock: &Superblock, logical: u64, item: &[u8]) -> Result<usize, Error> {
        let (len, kind) =
            le64(item, 0).zip(le64(item, 24)).ok_or_else(|| damaged(logical, "its item is too short"))?;
        let stripes = usize::from(le16(item, 44).unwrap_or(0));
        let end = HEADER_BYTES + stripes * STRIPE_BYTES;
        let places = item.get(HEADER_BYTES..end).filter(|places| !places.is_empty());
        let places = places.ok_or_else(|| damaged(logical, "its item has no place, or is too short"))?;
        if kind & STRIPED != 0 && stripes > 1 {
            return Err(Error::Unsupported { what: "btrfs with striped chunks" });
        }
        if len == 0 || logical.checked_add(len).is_none() {
            return Err(damaged(logical, "it has an impossible length"));
        }
        let here =
            places.chunks_exact(STRIPE_BYTES).filter(|place| le64(place, 0) == Some(superblock.device));
        let copies: Vec<u64> = here.filter_map(|place| le64(place, 8)).collect();
        if copies.is_empty() {
            return Err(damaged(logical, "it is on no device that is here"));
        }
        self.chunks.insert(logical, Chunk { len, copies });
        Ok(end)
    }

    /// Where the copies of a range are on the device, which must lie in one chunk; as much of it as
    /// does.
    pub fn find(&self, logical: u64, len: u64) -> Result<(Vec<u64>, u64), Error> {
        let found = self.chunks.range(..=logical).next_back();
        let within =
            found.map(|(start, chunk)| (chunk, logical - start)).filter(|(chunk, at)| *at < chunk.len);
        let (chunk, at) = within.ok_or_else(|| damaged(logical, "there is none at this address"))?;
        let copies = chunk.copies.iter().filter_map(|start| start.checked_add(at)).collect();
        Ok((copies, len.min(chunk.len - at)))
    }
}
