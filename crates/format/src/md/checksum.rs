//! The checksums of md metadata: two word sums for the superblocks, CRC-32C for PPL and the RAID 5
//! journal. Source: docs/formats.md §1.3, §4, §5.

use crate::bytes::{le16, le32};

/// Checksum of a 1.x superblock: all little-endian u32 words of `covered` (256 + 2·max_dev bytes)
/// summed in 64 bits, a left-over u16 added, the word at `checksum_at` taken as zero, folded once
/// into 32 bits.
pub(crate) fn superblock1(covered: &[u8], checksum_at: usize) -> u32 {
    let whole = covered.len() & !3;
    let mut sum: u64 =
        (0..whole).step_by(4).filter(|&at| at != checksum_at).map(|at| u64::from(le32(covered, at))).sum();
    if covered.len() - whole == 2 {
        sum += u64::from(le16(covered, whole));
    }
    fold_once(sum)
}

/// Checksum of a 0.90 superblock over its 1024 words (already in the writer's byte order), word 38
/// taken as zero.
pub(crate) fn superblock0(words: impl Iterator<Item = u32>, checksum_word: usize) -> u32 {
    fold_once(words.enumerate().filter(|&(i, _)| i != checksum_word).map(|(_, word)| u64::from(word)).sum())
}

/// Folds a 0.90 checksum to 16 bits: readers compare only these, because an old architecture folded
/// further on write.
pub(crate) fn fold16(sum: u32) -> u32 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

fn fold_once(sum: u64) -> u32 {
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// Signature of every PPL header of an array with native metadata: CRC-32C of its set_uuid.
#[must_use]
pub fn ppl_signature(set_uuid: &[u8; 16]) -> u32 {
    crc32c::crc32c(set_uuid)
}

/// Standard CRC-32C, as PPL headers and entries use it.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The journal's checksum J: a CRC-32C register seeded with the array uuid, without the final
/// inversion (§5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalChecksum {
    /// Standard (finally inverted) CRC-32C of the uuid.
    uuid_crc: u32,
}

impl JournalChecksum {
    /// The checksum function of the array with this set_uuid.
    #[must_use]
    pub fn new(set_uuid: &[u8; 16]) -> Self {
        JournalChecksum { uuid_crc: crc32c::crc32c(set_uuid) }
    }

    /// The register after the uuid, which other descriptions call the seed.
    #[must_use]
    pub fn seed(self) -> u32 {
        !self.uuid_crc
    }

    /// J of one block.
    #[must_use]
    pub fn of(self, block: &[u8]) -> u32 {
        !crc32c::crc32c_append(self.uuid_crc, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting_uuid() -> [u8; 16] {
        std::array::from_fn(|i| i as u8)
    }

    #[test]
    fn crc_vectors() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(b""), 0, "a PPL entry without partial parity stores 0");
        assert_eq!(ppl_signature(&counting_uuid()), 0xd9c9_08eb);
        let journal = JournalChecksum::new(&counting_uuid());
        assert_eq!(journal.seed(), 0x2636_f714);
        assert_eq!(journal.of(&[0; 4096]), 0xb330_4a14);
    }

    /// The oracle: one bit at a time, register exposed, as the format describes J.
    #[test]
    fn journal_checksum_is_the_bare_register() {
        fn register(mut crc: u32, bytes: &[u8]) -> u32 {
            for &byte in bytes {
                crc ^= u32::from(byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
                }
            }
            crc
        }
        let block: Vec<u8> = (0..4096_u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let expected = register(register(u32::MAX, &counting_uuid()), &block);
        assert_eq!(JournalChecksum::new(&counting_uuid()).of(&block), expected);
    }

    #[test]
    fn folding_carries() {
        // 2^32 words of all ones is out of reach; two words already overflow 32 bits and must fold,
        // not wrap.
        let mut block = [0xff_u8; 12];
        block[4..8].fill(0x55);
        assert_eq!(superblock1(&block, 4), 0xffff_ffff, "fffffffe + carry 1");
        assert_eq!(superblock1(&[1, 0, 0, 0, 2, 0], 100), 3, "an odd max_dev leaves one u16");
        assert_eq!(fold16(0xffff_ffff), 0xffff);
        assert_eq!(fold16(0x0001_ffff), 1);
    }
}
