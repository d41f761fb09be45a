//! Keys: which sectors of which backing device are where on the cache device; in nodes of the tree
//! that are no leaves, where the node is that has the keys up to there.

use super::CacheDamage;
use crate::bytes::le64;

/// The end of all keys: inode and sector of the last key of a root.
pub const NODE_KEY_END: (u32, u64) = (INODE_MASK as u32, u64::MAX >> 1);

const INODE_MASK: u64 = (1 << 20) - 1;
const WORD: usize = 8;
/// A key without its pointers.
const HEAD_BYTES: usize = 2 * WORD;

/// Where something is on the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BcachePointer {
    /// Which cache device of the set.
    pub device: u16,
    /// Where it begins on it, sectors.
    pub sector: u64,
    /// The generation of its bucket when it was written there.
    pub generation: u8,
    /// Its bytes as a number: with these the checksum of a node begins.
    pub word: u64,
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BcacheKey {
    /// The number of the backing device in the table of the set.
    pub inode: u32,
    /// The sector behind its last one, from the start of the backing device.
    pub end_sector: u64,
    /// How many sectors it has; of a pointer to a node, how many the node has.
    pub sectors: u16,
    /// Whether the backing device lacks what it has.
    pub is_dirty: bool,
    /// Where it is; `None` if the cache does not have it any more.
    pub pointer: Option<BcachePointer>,
}

impl BcacheKey {
    /// Where it begins and ends, sectors; `None` if it would begin before sector 0.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        Some((self.end_sector.checked_sub(self.sectors.into())?, self.end_sector))
    }

    /// Its place in the order of keys.
    #[must_use]
    pub fn position(&self) -> (u32, u64) {
        (self.inode, self.end_sector)
    }

    /// Reads the key at the start of `bytes`; how long it is, bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, usize), &'static str> {
        if bytes.len() < HEAD_BYTES {
            return Err("is cut off");
        }
        let (high, low) = (le64(bytes, 0), le64(bytes, WORD));
        let pointers = (high >> 60 & 7) as usize;
        if pointers > 1 {
            return Err("has several pointers, as of several cache devices");
        }
        if high >> 56 & 3 != 0 {
            return Err("has checksums of data, which are not known");
        }
        let len = HEAD_BYTES + pointers * WORD;
        if bytes.len() < len {
            return Err("is cut off");
        }
        let pointer = (pointers == 1).then(|| {
            let word = le64(bytes, HEAD_BYTES);
            BcachePointer {
                device: (word >> 51 & 0xfff) as u16,
                sector: word >> 8 & ((1 << 43) - 1),
                generation: word as u8,
                word,
            }
        });
        let key = Self {
            inode: (high & INODE_MASK) as u32,
            end_sector: low,
            sectors: (high >> 20) as u16,
            is_dirty: high >> 36 & 1 == 1,
            pointer,
        };
        Ok((key, len))
    }
}

/// Keys one behind the other.
#[derive(Debug, Clone)]
pub struct BcacheKeys<'a> {
    bytes: &'a [u8],
    /// Where they begin in what has them, for errors.
    from: usize,
    at: usize,
}

impl<'a> BcacheKeys<'a> {
    pub(super) fn new(bytes: &'a [u8], from: usize) -> Self {
        Self { bytes, from, at: 0 }
    }

    /// Where the next one is, from the start of what has them, bytes.
    #[must_use]
    pub fn at_bytes(&self) -> usize {
        self.from + self.at
    }
}

impl Iterator for BcacheKeys<'_> {
    type Item = Result<BcacheKey, CacheDamage>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        Some(match BcacheKey::parse(rest) {
            Ok((key, len)) => {
                self.at += len;
                Ok(key)
            }
            Err(what) => {
                let at_bytes = self.at_bytes();
                // Where the next one begins is not known.
                self.at = self.bytes.len();
                Err(CacheDamage::Key { at_bytes, what })
            }
        })
    }
}
