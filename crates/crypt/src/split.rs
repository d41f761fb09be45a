//! The anti-forensic split: a key that is there only if every stripe of it is (LUKS1 On-Disk Format
//! Specification 1.2.3, section 2.4).

use zeroize::Zeroize;

use crate::hash::HashKind;
use crate::secret::SecretBytes;

/// Puts the key together from its stripes, which lie one after the other.
///
/// `stripes` holds at least one key of `key_bytes`.
pub(crate) fn merge(stripes: &[u8], key_bytes: usize, hash: HashKind) -> SecretBytes {
    let mut key = SecretBytes::zeros(key_bytes);
    let last = stripes.len() / key_bytes - 1;
    for (number, stripe) in stripes.chunks_exact(key_bytes).enumerate() {
        key.as_mut().iter_mut().zip(stripe).for_each(|(byte, with)| *byte ^= with);
        if number < last {
            diffuse(key.as_mut(), hash);
        }
    }
    key
}

/// Makes every byte depend on its block: each block is replaced by the hash of its number and
/// itself.
fn diffuse(block: &mut [u8], hash: HashKind) {
    let len = hash.digest(&[]).len();
    for (number, part) in block.chunks_mut(len).enumerate() {
        let mut digest = hash.digest(&[&(number as u32).to_be_bytes(), part]);
        part.copy_from_slice(&digest[..part.len()]);
        // With the last stripe it is the key.
        digest.zeroize();
    }
}
