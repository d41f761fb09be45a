//! Tags of dm-integrity: checksums of blocks, and codes with a key.
//!
//! A tag is of the salt (where the superblock says so), the number of the block's first sector and
//! the block. A tag that is shorter than the checksum is its start, the rest of a longer one is
//! zeros.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;
use twox_hash::XxHash64;
use wattle_format::crc32;

use crate::secret::SecretBytes;

/// How tags are made.
#[derive(Clone)]
pub struct TagMaker {
    kind: TagKind,
    salt: Option<[u8; 16]>,
    tag_bytes: usize,
}

#[derive(Clone)]
enum TagKind {
    Crc32c,
    Crc32,
    XxHash64,
    Sha1,
    Sha256,
    Sha512,
    // Boxed by sharing: their state is large, and every core has a copy of what shares it.
    HmacSha1(Arc<Hmac<Sha1>>),
    HmacSha256(Arc<Hmac<Sha256>>),
    HmacSha512(Arc<Hmac<Sha512>>),
}

/// The longest checksum, bytes.
const SUM_BYTES_MAX: usize = 64;

impl TagMaker {
    /// Everything that tags may be made with, what needs no key first. `tag_bytes` is how long a
    /// tag is.
    #[must_use]
    pub fn all(tag_bytes: usize, salt: Option<[u8; 16]>, keys: &[SecretBytes]) -> Vec<Self> {
        use TagKind::{Crc32, Crc32c, Sha1, Sha256, Sha512, XxHash64};
        let mut kinds = vec![Crc32c, Crc32, XxHash64, Sha1, Sha256, Sha512];
        for key in keys {
            let key = key.as_ref();
            let takes = "HMAC takes keys of any length";
            kinds.push(TagKind::HmacSha256(Arc::new(Hmac::new_from_slice(key).expect(takes))));
            kinds.push(TagKind::HmacSha1(Arc::new(Hmac::new_from_slice(key).expect(takes))));
            kinds.push(TagKind::HmacSha512(Arc::new(Hmac::new_from_slice(key).expect(takes))));
        }
        kinds.into_iter().map(|kind| Self { kind, salt, tag_bytes }).collect()
    }

    /// Its name, as integritysetup(8) has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.kind {
            TagKind::Crc32c => "crc32c",
            TagKind::Crc32 => "crc32",
            TagKind::XxHash64 => "xxhash64",
            TagKind::Sha1 => "sha1",
            TagKind::Sha256 => "sha256",
            TagKind::Sha512 => "sha512",
            TagKind::HmacSha1(_) => "hmac-sha1",
            TagKind::HmacSha256(_) => "hmac-sha256",
            TagKind::HmacSha512(_) => "hmac-sha512",
        }
    }

    /// Whether only the holder of a key can make tags.
    #[must_use]
    pub fn has_key(&self) -> bool {
        matches!(self.kind, TagKind::HmacSha1(_) | TagKind::HmacSha256(_) | TagKind::HmacSha512(_))
    }

    /// Whether `tag` is that of the block at `sector`.
    #[must_use]
    pub fn is_tag_of(&self, tag: &[u8], sector: u64, block: &[u8]) -> bool {
        let mut sum = [0; SUM_BYTES_MAX];
        let len = self.sum(sector, block, &mut sum);
        let kept = len.min(self.tag_bytes);
        tag.len() == self.tag_bytes
            && bool::from(tag[..kept].ct_eq(&sum[..kept]))
            && tag[kept..].iter().all(|&byte| byte == 0)
    }

    /// The tag of the block at `sector`.
    #[must_use]
    pub fn tag_of(&self, sector: u64, block: &[u8]) -> Box<[u8]> {
        let mut sum = [0; SUM_BYTES_MAX];
        let kept = self.sum(sector, block, &mut sum).min(self.tag_bytes);
        let mut tag = vec![0; self.tag_bytes].into_boxed_slice();
        tag[..kept].copy_from_slice(&sum[..kept]);
        tag
    }

    fn sum(&self, sector: u64, block: &[u8], out: &mut [u8; SUM_BYTES_MAX]) -> usize {
        let number = sector.to_le_bytes();
        let salt = self.salt.as_ref().map_or(&[][..], |salt| salt);
        let parts = [salt, &number, block];
        let mut put = |sum: &[u8]| {
            out[..sum.len()].copy_from_slice(sum);
            sum.len()
        };
        match &self.kind {
            TagKind::Crc32c => {
                let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
                put(&crc.to_le_bytes())
            }
            TagKind::Crc32 => {
                put(&parts.iter().fold(0, |crc, part| crc32::register(crc, part)).to_le_bytes())
            }
            TagKind::XxHash64 => {
                let mut hash = XxHash64::with_seed(0);
                parts.iter().for_each(|part| std::hash::Hasher::write(&mut hash, part));
                put(&std::hash::Hasher::finish(&hash).to_le_bytes())
            }
            TagKind::Sha1 => put(&digest::<Sha1>(&parts)),
            TagKind::Sha256 => put(&digest::<Sha256>(&parts)),
            TagKind::Sha512 => put(&digest::<Sha512>(&parts)),
            TagKind::HmacSha1(hmac) => put(&code((**hmac).clone(), &parts)),
            TagKind::HmacSha256(hmac) => put(&code((**hmac).clone(), &parts)),
            TagKind::HmacSha512(hmac) => put(&code((**hmac).clone(), &parts)),
        }
    }
}

impl fmt::Debug for TagMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TagMaker({}, {} bytes)", self.name(), self.tag_bytes)
    }
}

fn digest<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut digest = D::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().to_vec()
}

fn code<M: Mac>(mut mac: M, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(tag_bytes: usize) -> Vec<TagMaker> {
        TagMaker::all(tag_bytes, Some([7; 16]), &[SecretBytes::take(b"key".to_vec())])
    }

    #[test]
    fn a_tag_is_of_one_block_at_one_place() {
        let block = vec![0x5a; 4096];
        for tag_bytes in [4, 8, 20, 32, 72] {
            for maker in kinds(tag_bytes) {
                let mut tag = maker.tag_of(8, &block);
                assert!(maker.is_tag_of(&tag, 8, &block), "{maker:?}");
                assert!(!maker.is_tag_of(&tag, 16, &block), "{maker:?}: elsewhere");
                let mut other = block.clone();
                other[4095] ^= 1;
                assert!(!maker.is_tag_of(&tag, 8, &other), "{maker:?}: a bit");
                assert!(!maker.is_tag_of(&tag[1..], 8, &block), "{maker:?}: too short");
                tag[tag_bytes - 1] ^= 1;
                assert!(!maker.is_tag_of(&tag, 8, &block), "{maker:?}: another tag");
                let without = TagMaker { salt: None, ..maker };
                tag[tag_bytes - 1] ^= 1;
                assert!(!without.is_tag_of(&tag, 8, &block), "without its salt");
            }
        }
    }
}
