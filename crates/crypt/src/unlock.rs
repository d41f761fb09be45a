//! From a passphrase or key file to the key of a device.

use std::ops::Range;

use subtle::ConstantTimeEq;
use wattle_format::luks::{LuksDigest, LuksHeader, LuksSegment, LuksSlot};

use crate::cipher::{CipherError, SectorCipher};
use crate::hash::HashKind;
use crate::kdf::{KdfError, derive};
use crate::secret::SecretBytes;
use crate::split;

/// The unit that the area of a key slot is encrypted in, bytes.
const AREA_SECTOR_BYTES: u32 = 512;

/// Reads bytes of the header's device; `None` where that cannot be.
pub type ReadArea<'a> = dyn FnMut(Range<u64>) -> Option<Vec<u8>> + 'a;

/// What unlocking may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnlockLimits {
    /// Memory of a key derivation, bytes.
    pub memory_bytes: u64,
}

/// The key of a device, and the slot that it was in.
#[derive(Debug, Clone)]
pub struct UnlockedKey {
    /// The key.
    pub key: SecretBytes,
    /// The slot; `None` for a key that was given itself.
    pub slot: Option<u32>,
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// No key slot opens with what was given.
    #[error("no key slot opens with it")]
    Wrong,
    /// There is no key slot for what is encrypted.
    #[error("it has no key slot")]
    NoSlots,
    /// What is encrypted is not encrypted in a way that is known here.
    #[error("{0}")]
    Unsupported(String),
    /// A slot takes more memory than may be taken, and no other one opened.
    #[error("key slot {slot}: {error}")]
    Memory {
        /// The slot.
        slot: u32,
        /// What it takes.
        error: KdfError,
        /// What it takes, bytes.
        needed_bytes: u64,
    },
    /// A slot is sound and made in a way that is not known here, and no other one opened.
    #[error("key slot {slot}: {why}")]
    SlotUnsupported {
        /// The slot.
        slot: u32,
        /// What is not known.
        why: String,
    },
    /// A slot cannot be read or computed, and no other one opened.
    #[error("key slot {slot}: {why}")]
    Slot {
        /// The slot.
        slot: u32,
        /// What is wrong.
        why: String,
    },
}

/// The one part of the device that is encrypted.
///
/// # Errors
/// [`UnlockError::Unsupported`], with what it is.
pub fn segment_of(header: &LuksHeader) -> Result<&LuksSegment, UnlockError> {
    let unsupported = |what: String| Err(UnlockError::Unsupported(what));
    let reencrypts = |name: &str| name.contains("reencrypt");
    if header.requirements.iter().any(|name| reencrypts(name)) || header.segments.len() > 1 {
        return unsupported("it is in the middle of a re-encryption".to_owned());
    }
    if let [first, ..] = &header.requirements[..] {
        return unsupported(format!("it requires `{first}` of what opens it"));
    }
    match &header.segments[..] {
        [segment] if segment.kind != "crypt" => unsupported(format!("a segment of kind `{}`", segment.kind)),
        [segment] => match &segment.integrity {
            Some(kind) => unsupported(format!("its sectors have checksums ({kind})")),
            None => Ok(segment),
        },
        _ => unsupported("nothing in it is encrypted".to_owned()),
    }
}

/// Finds the key of a device with a passphrase, or with the contents of a key file, which are
/// taken alike.
///
/// # Errors
/// [`UnlockError`]
pub fn unlock(
    header: &LuksHeader,
    passphrase: &[u8],
    limits: UnlockLimits,
    read: &mut ReadArea<'_>,
) -> Result<UnlockedKey, UnlockError> {
    let segment = segment_of(header)?;
    if !SectorCipher::is_known(&segment.cipher) {
        // Before a slot is tried, which may take a minute.
        return Err(UnlockError::Unsupported(CipherError::Unknown(segment.cipher.clone()).to_string()));
    }
    let mut slots: Vec<_> =
        header.slots.iter().filter_map(|slot| Some((slot, digest(header, slot, segment)?))).collect();
    slots.sort_by_key(|(slot, _)| std::cmp::Reverse(slot.priority));
    if slots.is_empty() {
        return Err(UnlockError::NoSlots);
    }
    let mut first_error = UnlockError::Wrong;
    for (slot, digest) in slots {
        let opened = open_slot(slot, passphrase, limits, read);
        match opened.and_then(|key| Ok((is_right(digest, &key)?, key))) {
            Ok((true, key)) => return Ok(UnlockedKey { key, slot: Some(slot.id) }),
            Ok((false, _)) => {}
            Err(error) if first_error == UnlockError::Wrong => first_error = error,
            Err(_) => {}
        }
    }
    Err(first_error)
}

/// Checks a key that was given itself.
///
/// # Errors
/// [`UnlockError`]: it is not the key of this device.
pub fn check_key(header: &LuksHeader, key: &SecretBytes) -> Result<UnlockedKey, UnlockError> {
    let segment = segment_of(header)?;
    for digest in header.digests.iter().filter(|digest| digest.segments.contains(&segment.id)) {
        if has_its_length(header, digest, key) && is_right(digest, key)? {
            return Ok(UnlockedKey { key: key.clone(), slot: None });
        }
    }
    Err(UnlockError::Wrong)
}

/// Whether a key has the length that it has to have. A digest does not tell: the HMAC in it fills
/// keys up with zeros, so that a shorter one with zeros behind it gives the same.
fn has_its_length(header: &LuksHeader, digest: &LuksDigest, key: &SecretBytes) -> bool {
    let slots = header.slots.iter().filter(|slot| digest.slots.contains(&slot.id));
    let mut lengths = slots.map(|slot| slot.key_bytes as usize).peekable();
    match lengths.peek() {
        Some(_) => lengths.any(|len| len == key.as_ref().len()),
        // No slot says it: no key of these ends with half a block of zeros by chance.
        None => !key.as_ref().ends_with(&[0; 8]),
    }
}

/// What proves the key that a slot has for this segment; `None` for a slot with another key.
fn digest<'a>(header: &'a LuksHeader, slot: &LuksSlot, segment: &LuksSegment) -> Option<&'a LuksDigest> {
    let mut digests = header.digests.iter();
    digests.find(|digest| digest.slots.contains(&slot.id) && digest.segments.contains(&segment.id))
}

fn is_right(digest: &LuksDigest, key: &SecretBytes) -> Result<bool, UnlockError> {
    let hash = HashKind::named(&digest.hash).ok_or_else(|| unknown_hash(&digest.hash))?;
    let mut value = vec![0; digest.value.len()];
    hash.pbkdf2(key.as_ref(), &digest.salt, digest.iterations, &mut value);
    Ok(value.ct_eq(&digest.value).into())
}

fn unknown_hash(name: &str) -> UnlockError {
    UnlockError::Unsupported(format!("the hash function {name} is not known"))
}

/// What is in a slot, if the passphrase is right; else bytes that no digest agrees with.
fn open_slot(
    slot: &LuksSlot,
    passphrase: &[u8],
    limits: UnlockLimits,
    read: &mut ReadArea<'_>,
) -> Result<SecretBytes, UnlockError> {
    let of_slot = |why: String| UnlockError::Slot { slot: slot.id, why };
    let unknown = |why: String| UnlockError::SlotUnsupported { slot: slot.id, why };
    if let Some(why) = &slot.out_of_bounds {
        return Err(unknown(format!("{why}, which is beyond what wattle tries")));
    }
    let hash = HashKind::named(&slot.split_hash);
    let hash = hash.ok_or_else(|| unknown(format!("the hash function {} is not known", slot.split_hash)))?;
    let key_bytes = slot.key_bytes as usize;
    let split_bytes = key_bytes * slot.stripes as usize;
    let end = slot.area.start + (split_bytes as u64).next_multiple_of(u64::from(AREA_SECTOR_BYTES));
    let derived = derive(&slot.kdf, passphrase, slot.cipher_key_bytes as usize, limits.memory_bytes);
    let derived = derived.map_err(|error| match error {
        KdfError::Memory { needed_bytes, .. } => UnlockError::Memory { slot: slot.id, error, needed_bytes },
        KdfError::Unknown(_) | KdfError::UnknownHash(_) => unknown(error.to_string()),
        error @ KdfError::Parameters(_) => of_slot(error.to_string()),
    })?;
    let cipher = SectorCipher::new(&slot.cipher, derived.as_ref(), AREA_SECTOR_BYTES);
    let cipher = cipher.map_err(|error: CipherError| unknown(error.to_string()))?;
    let area = read(slot.area.start..end).ok_or_else(|| of_slot("its area cannot be read".to_owned()))?;
    let mut stripes = SecretBytes::take(area);
    if stripes.as_ref().len() as u64 != end - slot.area.start {
        return Err(of_slot("its area is cut off".to_owned()));
    }
    cipher.decrypt(0, stripes.as_mut());
    Ok(split::merge(&stripes.as_ref()[..split_bytes], key_bytes, hash))
}
