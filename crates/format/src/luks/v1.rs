//! LUKS1: one header of 592 bytes, big-endian, with eight key slots.

use super::{HeaderSource, LuksDigest, LuksError, LuksHeader, LuksKdf, LuksSegment, LuksSlot, damaged, text};
use crate::bytes::be32;

/// The header, in bytes.
pub(super) const BYTES: usize = 592;
const SLOTS_AT: usize = 208;
const SLOT_BYTES: usize = 48;
const SLOTS: usize = 8;
const ENABLED: u32 = 0x00AC_71F3;
const DISABLED: u32 = 0x0000_DEAD;
const SECTOR_BYTES: u64 = 512;

/// Reads a header that has the magic and the version.
pub(super) fn parse(bytes: &[u8]) -> Result<LuksHeader, LuksError> {
    let Some(bytes) = bytes.get(..BYTES) else { return Err(damaged("it is cut off")) };
    let (name, mode, hash) = (text(&bytes[8..40])?, text(&bytes[40..72])?, text(&bytes[72..104])?);
    let (payload_sectors, key_bytes) = (be32(bytes, 104), be32(bytes, 108));
    let cipher = format!("{name}-{mode}");
    let mut slots = Vec::new();
    for id in 0..SLOTS {
        let slot = &bytes[SLOTS_AT + id * SLOT_BYTES..][..SLOT_BYTES];
        match be32(slot, 0) {
            DISABLED => continue,
            ENABLED => {}
            other => return Err(damaged(format!("key slot {id} is neither on nor off ({other:#x})"))),
        }
        let (start, stripes) = (u64::from(be32(slot, 40)) * SECTOR_BYTES, be32(slot, 44));
        let len = (u64::from(key_bytes) * u64::from(stripes)).next_multiple_of(SECTOR_BYTES);
        slots.push(LuksSlot {
            id: id as u32,
            key_bytes,
            area: start..start + len,
            cipher: cipher.clone(),
            cipher_key_bytes: key_bytes,
            kdf: LuksKdf::Pbkdf2 {
                hash: hash.clone(),
                iterations: be32(slot, 4),
                salt: slot[8..40].to_vec(),
            },
            stripes,
            split_hash: hash.clone(),
            priority: 1,
            out_of_bounds: None,
        });
    }
    let header = LuksHeader {
        version: 1,
        uuid: text(&bytes[168..208])?,
        label: None,
        source: HeaderSource::First,
        header_bytes: BYTES as u64,
        digests: vec![LuksDigest {
            slots: slots.iter().map(|slot| slot.id).collect(),
            segments: vec![0],
            hash,
            iterations: be32(bytes, 164),
            salt: bytes[132..164].to_vec(),
            value: bytes[112..132].to_vec(),
        }],
        slots,
        segments: vec![LuksSegment {
            id: 0,
            kind: "crypt".to_owned(),
            offset_bytes: u64::from(payload_sectors) * SECTOR_BYTES,
            len_bytes: None,
            iv_tweak: 0,
            cipher,
            sector_bytes: 512,
            integrity: None,
        }],
        tokens: Vec::new(),
        allows_discards: false,
        requirements: Vec::new(),
    };
    header.checked()
}
