//! Meta blocks of the RAID 4/5/6 journal: docs/formats.md §5.
//!
//! A meta block lists payloads; their 4 KiB pages follow it in order. All of a payload's page
//! checksums are given to the caller and all have to be compared: the kernel compares only the
//! first (hazard 14 in docs/formats.md §19).

use super::checksum::JournalChecksum;
use crate::bytes::{le16, le32, le64, put_le16, put_le32, put_le64};

/// Bytes of a meta block and of a page.
pub const BLOCK_BYTES: usize = 4096;
/// Sectors of a meta block and of a page.
pub const BLOCK_SECTORS: u64 = 8;
/// What a new run of the array adds to seq, so that leftovers of the old run are not taken for its
/// continuation.
pub const SEQ_GAP: u64 = 10_000;

const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 32;
const PAYLOAD_HEADER_BYTES: usize = 16;
const FLUSH_HEADER_BYTES: usize = 8;
const CHECKSUM: usize = 4;

const TYPE_DATA: u16 = 0;
const TYPE_PARITY: u16 = 1;
const TYPE_FLUSH: u16 = 2;

/// Why a block is not the meta block looked for. While walking the ring this is the normal end of
/// the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The block is not all there.
    #[error("only {got} of the journal block's {BLOCK_BYTES} bytes could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// No meta block.
    #[error("journal magic is {found:#010x}, not {MAGIC:#010x}")]
    Magic {
        /// What is there.
        found: u32,
    },
    /// Another version.
    #[error("journal version is {found}, known is {VERSION}")]
    Version {
        /// The stored value.
        found: u8,
    },
    /// Damaged, torn, or another array's.
    #[error("journal block checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    BadChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Written for another place in the ring.
    #[error("journal block was written for position {stored} and found at {found_at}")]
    Position {
        /// Sectors from the ring's start, as stored.
        stored: u64,
        /// Where it was read.
        found_at: u64,
    },
    /// From another lap or run.
    #[error("journal block has sequence number {stored}, expected {expected}")]
    Sequence {
        /// The stored value.
        stored: u64,
        /// The one that continues the log.
        expected: u64,
    },
    /// The used length is impossible.
    #[error("journal block claims to use {found} bytes")]
    MetaSize {
        /// The stored value.
        found: u32,
    },
    /// A payload that is none of the three kinds, or does not end inside the block.
    #[error("journal payload at byte {at} has type {kind} and does not fit or is unknown")]
    Payload {
        /// Offset in the block.
        at: usize,
        /// Its type field.
        kind: u16,
    },
}

/// What one payload logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// New data; its pages follow the meta block.
    Data {
        /// 1: discard.
        flags: u16,
        /// Array sector.
        sector: u64,
        /// J of each 4 KiB page: as many pages as checksums.
        checksums: Vec<u32>,
    },
    /// New parity: P, or P and Q; the pages follow the meta block.
    Parity {
        /// 1: discard.
        flags: u16,
        /// Component sector of the stripe.
        sector: u64,
        /// J of each 4 KiB page.
        checksums: Vec<u32>,
    },
    /// Stripes that are on the members now; no pages.
    Flush {
        /// 1: whole stripes.
        flags: u16,
        /// Component sectors.
        stripes: Vec<u64>,
    },
}

impl Payload {
    /// Checksums of the pages that follow the meta block for this payload, in order.
    #[must_use]
    pub fn page_checksums(&self) -> &[u32] {
        match self {
            Payload::Data { checksums, .. } | Payload::Parity { checksums, .. } => checksums,
            Payload::Flush { .. } => &[],
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Payload::Flush { stripes, .. } => FLUSH_HEADER_BYTES + 8 * stripes.len(),
            _ => PAYLOAD_HEADER_BYTES + 4 * self.page_checksums().len(),
        }
    }
}

/// A meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaBlock {
    /// Consecutive along the log.
    pub seq: u64,
    /// Own position in the ring, in sectors from data_offset.
    pub position_sectors: u64,
    /// What it logs, in the order of the pages.
    pub payloads: Vec<Payload>,
}

impl MetaBlock {
    /// A block that logs nothing: the start of a new journal (position 0, random seq) or of a new
    /// run.
    #[must_use]
    pub fn empty(seq: u64, position_sectors: u64) -> Self {
        MetaBlock { seq, position_sectors, payloads: Vec::new() }
    }

    /// Reads the block found at `position_sectors`. `expected_seq` is `None` for the first one,
    /// whose own is taken.
    ///
    /// # Errors
    /// It does not continue the log.
    pub fn decode(
        bytes: &[u8],
        checksum: JournalChecksum,
        position_sectors: u64,
        expected_seq: Option<u64>,
    ) -> Result<MetaBlock, JournalError> {
        let Some(block) = bytes.first_chunk::<BLOCK_BYTES>() else {
            return Err(JournalError::Truncated { got: bytes.len() });
        };
        let found = le32(block, 0);
        if found != MAGIC {
            return Err(JournalError::Magic { found });
        }
        if block[8] != VERSION {
            return Err(JournalError::Version { found: block[8] });
        }
        let (stored, computed) = (le32(block, CHECKSUM), checksum_of(block, checksum));
        if stored != computed {
            return Err(JournalError::BadChecksum { stored, computed });
        }
        let stored = le64(block, 24);
        if stored != position_sectors {
            return Err(JournalError::Position { stored, found_at: position_sectors });
        }
        let seq = le64(block, 16);
        if let Some(expected) = expected_seq.filter(|&expected| expected != seq) {
            return Err(JournalError::Sequence { stored: seq, expected });
        }
        let found = le32(block, 12);
        let used = usize::try_from(found).ok().and_then(|used| block.get(..used));
        let Some(used) = used.filter(|used| used.len() >= HEADER_BYTES) else {
            return Err(JournalError::MetaSize { found });
        };
        Ok(MetaBlock { seq, position_sectors, payloads: decode_payloads(used)? })
    }

    /// The block's bytes; `None` when the payloads do not fit.
    #[must_use]
    pub fn encode(&self, checksum: JournalChecksum) -> Option<Box<[u8; BLOCK_BYTES]>> {
        let used = HEADER_BYTES + self.payloads.iter().map(Payload::encoded_len).sum::<usize>();
        if used > BLOCK_BYTES {
            return None;
        }
        let mut block = Box::new([0; BLOCK_BYTES]);
        put_le32(&mut block[..], 0, MAGIC);
        block[8] = VERSION;
        put_le32(&mut block[..], 12, used as u32);
        put_le64(&mut block[..], 16, self.seq);
        put_le64(&mut block[..], 24, self.position_sectors);
        let mut at = HEADER_BYTES;
        for payload in &self.payloads {
            encode_payload(payload, &mut block[at..]);
            at += payload.encoded_len();
        }
        let sum = checksum_of(&block, checksum);
        put_le32(&mut block[..], CHECKSUM, sum);
        Some(block)
    }

    /// Pages that follow the block.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.payloads.iter().map(|payload| payload.page_checksums().len() as u64).sum()
    }

    /// Position of the next meta block in a ring of `ring_sectors` (whole blocks); `None` when this
    /// block cannot lie in such a ring.
    #[must_use]
    pub fn next_position_sectors(&self, ring_sectors: u64) -> Option<u64> {
        if self.position_sectors >= ring_sectors {
            return None;
        }
        let step = (1 + self.pages()) * BLOCK_SECTORS;
        (step <= ring_sectors).then(|| (self.position_sectors + step) % ring_sectors)
    }
}

fn checksum_of(block: &[u8; BLOCK_BYTES], checksum: JournalChecksum) -> u32 {
    let mut zeroed = *block;
    put_le32(&mut zeroed, CHECKSUM, 0);
    checksum.of(&zeroed)
}

/// Each turn takes at least a payload header off `used`, so allocation is bounded by the block.
fn decode_payloads(used: &[u8]) -> Result<Vec<Payload>, JournalError> {
    let mut payloads = Vec::new();
    let mut at = HEADER_BYTES;
    while at < used.len() {
        let rest = &used[at..];
        let kind = if rest.len() >= 2 { le16(rest, 0) } else { u16::MAX };
        let payload = decode_payload(rest, kind).ok_or(JournalError::Payload { at, kind })?;
        at += payload.encoded_len();
        payloads.push(payload);
    }
    Ok(payloads)
}

fn decode_payload(rest: &[u8], kind: u16) -> Option<Payload> {
    if rest.len() < FLUSH_HEADER_BYTES {
        return None;
    }
    let (flags, size) = (le16(rest, 2), usize::try_from(le32(rest, 4)).ok()?);
    if kind == TYPE_FLUSH {
        let list = rest[FLUSH_HEADER_BYTES..].get(..size).filter(|list| list.len() % 8 == 0)?;
        let stripes = list.chunks_exact(8).map(|stripe| le64(stripe, 0)).collect();
        return Some(Payload::Flush { flags, stripes });
    }
    // Sizes are in sectors, whole pages, at least one.
    let pages = (size > 0 && size % BLOCK_SECTORS as usize == 0).then_some(size / BLOCK_SECTORS as usize)?;
    let list = rest.get(PAYLOAD_HEADER_BYTES..)?.get(..pages.checked_mul(4)?)?;
    let checksums = list.chunks_exact(4).map(|sum| le32(sum, 0)).collect();
    let sector = le64(rest, 8);
    match kind {
        TYPE_DATA => Some(Payload::Data { flags, sector, checksums }),
        TYPE_PARITY => Some(Payload::Parity { flags, sector, checksums }),
        _ => None,
    }
}

fn encode_payload(payload: &Payload, target: &mut [u8]) {
    let (kind, flags) = match payload {
        Payload::Data { flags, .. } => (TYPE_DATA, *flags),
        Payload::Parity { flags, .. } => (TYPE_PARITY, *flags),
        Payload::Flush { flags, .. } => (TYPE_FLUSH, *flags),
    };
    put_le16(target, 0, kind);
    put_le16(target, 2, flags);
    match payload {
        Payload::Data { sector, checksums, .. } | Payload::Parity { sector, checksums, .. } => {
            put_le32(target, 4, checksums.len() as u32 * BLOCK_SECTORS as u32);
            put_le64(target, 8, *sector);
            for (i, &sum) in checksums.iter().enumerate() {
                put_le32(target, PAYLOAD_HEADER_BYTES + 4 * i, sum);
            }
        }
        Payload::Flush { stripes, .. } => {
            put_le32(target, 4, 8 * stripes.len() as u32);
            for (i, &stripe) in stripes.iter().enumerate() {
                put_le64(target, FLUSH_HEADER_BYTES + 8 * i, stripe);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum() -> JournalChecksum {
        JournalChecksum::new(&[3; 16])
    }

    fn decode(bytes: &[u8]) -> Result<MetaBlock, JournalError> {
        MetaBlock::decode(bytes, sum(), 24, Some(9))
    }

    fn resealed(mut block: Box<[u8; BLOCK_BYTES]>, at: usize, value: u32) -> Box<[u8; BLOCK_BYTES]> {
        put_le32(&mut block[..], at, value);
        let sum = checksum_of(&block, sum());
        put_le32(&mut block[..], CHECKSUM, sum);
        block
    }

    #[test]
    fn bytes_of_a_data_payload() {
        let payload = Payload::Data { flags: 0, sector: 0x1122, checksums: vec![0xdead_beef] };
        let block =
            MetaBlock { seq: 9, position_sectors: 24, payloads: vec![payload] }.encode(sum()).unwrap();
        assert_eq!(block[..4], [0x09, 0xc5, 0x33, 0x64]);
        assert_eq!(le32(&block[..], 12), 32 + 20);
        assert_eq!(
            block[32..52],
            [0, 0, 0, 0, 8, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde]
        );
    }

    #[test]
    fn the_end_of_the_log_says_why() {
        let good = MetaBlock::empty(9, 24).encode(sum()).unwrap();
        assert_eq!(decode(&good[..]), Ok(MetaBlock::empty(9, 24)));
        assert_eq!(decode(&[0; BLOCK_BYTES]), Err(JournalError::Magic { found: 0 }));
        assert_eq!(decode(&good[..4000]), Err(JournalError::Truncated { got: 4000 }));
        let at = |position| MetaBlock::decode(&good[..], sum(), position, Some(9));
        assert_eq!(at(32), Err(JournalError::Position { stored: 24, found_at: 32 }));
        let next = MetaBlock::decode(&good[..], sum(), 24, Some(10));
        assert_eq!(next, Err(JournalError::Sequence { stored: 9, expected: 10 }));
        let other = MetaBlock::decode(&good[..], JournalChecksum::new(&[4; 16]), 24, None);
        assert!(matches!(other, Err(JournalError::BadChecksum { .. })));
        for size in [0, 31, 4097, u32::MAX] {
            assert_eq!(
                decode(&resealed(good.clone(), 12, size)[..]),
                Err(JournalError::MetaSize { found: size })
            );
        }
        assert_eq!(decode(&resealed(good.clone(), 8, 2)[..]), Err(JournalError::Version { found: 2 }));
    }

    /// Hazard 14 of docs/formats.md §19: the kernel compares the first page's checksum of a payload
    /// and trusts the others. The decoder hands out every one, and pages are counted by them, so
    /// none can be left out unnoticed.
    #[test]
    fn every_page_has_its_checksum() {
        let data = Payload::Data { flags: 0, sector: 0, checksums: vec![1, 2, 3] };
        let parity = Payload::Parity { flags: 0, sector: 0, checksums: vec![4, 5] };
        let block = MetaBlock { seq: 9, position_sectors: 24, payloads: vec![data, parity] };
        let read = decode(&block.encode(sum()).unwrap()[..]).unwrap();
        let sums: Vec<u32> = read.payloads.iter().flat_map(Payload::page_checksums).copied().collect();
        assert_eq!((sums, read.pages()), (vec![1, 2, 3, 4, 5], 5));
        assert_eq!(read.next_position_sectors(800), Some(24 + 48));
        assert_eq!(read.next_position_sectors(64), Some(8), "the ring wraps");
        assert_eq!(read.next_position_sectors(24), None);
        assert_eq!(read.next_position_sectors(40), None, "more pages than ring");
    }

    #[test]
    fn payloads_that_do_not_fit() {
        let flush = Payload::Flush { flags: 1, stripes: vec![8; 3] };
        let block = MetaBlock { seq: 9, position_sectors: 24, payloads: vec![flush] };
        let good = block.encode(sum()).unwrap();
        assert_eq!(decode(&good[..]).unwrap(), block);
        for size in [7, 32, u32::MAX] {
            let error = decode(&resealed(good.clone(), 36, size)[..]);
            assert_eq!(error, Err(JournalError::Payload { at: 32, kind: 2 }), "flush list of {size} bytes");
        }
        assert_eq!(decode(&resealed(good, 32, 3)[..]), Err(JournalError::Payload { at: 32, kind: 3 }));
        let huge = Payload::Data { flags: 0, sector: 0, checksums: vec![0; 1100] };
        assert_eq!(MetaBlock { payloads: vec![huge], ..MetaBlock::empty(0, 0) }.encode(sum()), None);
    }

    fn payload() -> impl Strategy<Value = Payload> {
        let sums = || prop::collection::vec(any::<u32>(), 1..5);
        prop_oneof![
            (any::<u16>(), any::<u64>(), sums()).prop_map(|(flags, sector, checksums)| Payload::Data {
                flags,
                sector,
                checksums
            }),
            (any::<u16>(), any::<u64>(), sums()).prop_map(|(flags, sector, checksums)| Payload::Parity {
                flags,
                sector,
                checksums
            }),
            (any::<u16>(), prop::collection::vec(any::<u64>(), 0..5))
                .prop_map(|(flags, stripes)| Payload::Flush { flags, stripes }),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(seq: u64, position_sectors: u64, payloads in prop::collection::vec(payload(), 0..20)) {
            let block = MetaBlock { seq, position_sectors, payloads };
            let bytes = block.encode(sum()).unwrap();
            prop_assert_eq!(MetaBlock::decode(&bytes[..], sum(), position_sectors, None), Ok(block));
        }
    }
}
