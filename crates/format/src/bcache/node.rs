//! Nodes of the tree: sets of keys one behind the other, of which later ones win.

use super::CacheDamage;
use super::crc64::register;
use super::key::{BcacheKey, BcacheKeys, BcachePointer};
use super::layout::CacheLayout;
use crate::bytes::{le32, le64, put_le64};

const MAGIC: u64 = 0x9013_5c78_b99e_07f5;
/// Where the keys of a set begin in it.
const KEYS_AT: usize = 32;
/// The version whose checksum begins with the pointer to the node.
const SEEDED: u32 = 1;

/// A node whose sets are whole.
#[derive(Debug, Clone)]
pub struct BcacheNode<'a> {
    sets: Vec<BcacheKeys<'a>>,
}

impl<'a> BcacheNode<'a> {
    /// Reads a node from its bytes. `pointer` is the one that led to it: a node that was in its
    /// place before has other checksums.
    ///
    /// # Errors
    /// [`CacheDamage`]. A set that was cut off by a crash is one, as it is to Linux. What was
    /// damaged so that it does not look like a set any more is told apart from what is left of
    /// nodes before where one field alone is wrong.
    pub fn parse(layout: &CacheLayout, pointer: BcachePointer, bytes: &'a [u8]) -> Result<Self, CacheDamage> {
        let magic = layout.set_magic ^ MAGIC;
        let (mut sets, mut at, mut seq) = (Vec::new(), 0, None);
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= KEYS_AT) {
            let found = le64(rest, 16);
            if seq.is_some_and(|seq| seq != found) {
                break;
            }
            let end = check(magic, pointer.word, rest)?;
            if at > 0 && end == KEYS_AT {
                return Err(CacheDamage::Empty);
            }
            seq = Some(found);
            sets.push(BcacheKeys::new(&rest[KEYS_AT..end], at + KEYS_AT));
            at = (at + end).next_multiple_of(layout.block_bytes);
        }
        let seq = seq.ok_or(CacheDamage::Empty)?;
        for behind in (at..bytes.len()).step_by(layout.block_bytes) {
            let rest = &bytes[behind..];
            if rest.len() >= KEYS_AT && le64(rest, 16) == seq {
                return Err(CacheDamage::Behind { at_bytes: behind });
            }
        }
        // A set whose number alone is wrong would be passed over.
        if let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= KEYS_AT) {
            let mut mended = rest.to_vec();
            put_le64(&mut mended, 16, seq);
            if check(magic, pointer.word, &mended).is_ok() {
                return Err(CacheDamage::Behind { at_bytes: at });
            }
        }
        Ok(Self { sets })
    }

    /// Its sets, older ones first.
    #[must_use]
    pub fn sets(&self) -> &[BcacheKeys<'a>] {
        &self.sets
    }

    /// The keys of a set, in order and without those that have no sectors.
    ///
    /// # Errors
    /// [`CacheDamage::Key`]: one cannot be, or is not in its place.
    pub fn keys_of(set: &BcacheKeys<'a>) -> Result<Vec<(usize, BcacheKey)>, CacheDamage> {
        let mut keys = Vec::new();
        let (mut set, mut before) = (set.clone(), (0, 0));
        loop {
            let at_bytes = set.at_bytes();
            let Some(key) = set.next().transpose()? else { return Ok(keys) };
            if key.position() < before {
                return Err(CacheDamage::Key { at_bytes, what: "is before the one before it" });
            }
            before = key.position();
            if key.sectors > 0 {
                keys.push((at_bytes, key));
            }
        }
    }
}

/// Checks the set that `bytes` begin with; where its keys end.
fn check(magic: u64, seed: u64, bytes: &[u8]) -> Result<usize, CacheDamage> {
    if le64(bytes, 8) != magic {
        return Err(CacheDamage::Magic { expected: magic });
    }
    let words = le32(bytes, 28);
    let end = (words as usize).checked_mul(8).and_then(|keys| keys.checked_add(KEYS_AT));
    let length = CacheDamage::Length { words: words.into() };
    let covered = end.and_then(|end| bytes.get(8..end)).ok_or(length)?;
    let version = le32(bytes, 24);
    let begin = match version {
        0 => u64::MAX,
        SEEDED => seed,
        _ => return Err(CacheDamage::Version(version)),
    };
    let (found, computed) = (le64(bytes, 0), !register(begin, covered));
    if found == computed { Ok(8 + covered.len()) } else { Err(CacheDamage::Checksum { found, computed }) }
}

/// Makes the magic number and the checksum of the set right that a node begins with.
#[doc(hidden)]
pub fn seal_set(layout: &CacheLayout, pointer: BcachePointer, bytes: &mut [u8]) {
    if bytes.len() < KEYS_AT {
        return;
    }
    put_le64(bytes, 8, layout.set_magic ^ MAGIC);
    if let Err(CacheDamage::Checksum { computed, .. }) = check(layout.set_magic ^ MAGIC, pointer.word, bytes)
    {
        put_le64(bytes, 0, computed);
    }
}
