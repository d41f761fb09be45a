//! Hash functions by the names that LUKS has for them.

use pbkdf2::pbkdf2_hmac;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use whirlpool::Whirlpool;

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashKind {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Ripemd160,
    Whirlpool,
}

impl HashKind {
    /// The one of this name, as the kernel's crypto interface has it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sha1" => Self::Sha1,
            "sha224" => Self::Sha224,
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "ripemd160" | "rmd160" => Self::Ripemd160,
            "whirlpool" => Self::Whirlpool,
            _ => return None,
        })
    }

    /// The hash of these parts, one after the other.
    pub fn digest(self, parts: &[&[u8]]) -> Vec<u8> {
        fn of<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
            let mut digest = D::new();
            parts.iter().for_each(|part| digest.update(part));
            digest.finalize().to_vec()
        }
        match self {
            Self::Sha1 => of::<Sha1>(parts),
            Self::Sha224 => of::<Sha224>(parts),
            Self::Sha256 => of::<Sha256>(parts),
            Self::Sha384 => of::<Sha384>(parts),
            Self::Sha512 => of::<Sha512>(parts),
            Self::Ripemd160 => of::<Ripemd160>(parts),
            Self::Whirlpool => of::<Whirlpool>(parts),
        }
    }

    /// PBKDF2 (RFC 8018) with the HMAC of this hash.
    pub fn pbkdf2(self, password: &[u8], salt: &[u8], rounds: u32, out: &mut [u8]) {
        match self {
            Self::Sha1 => pbkdf2_hmac::<Sha1>(password, salt, rounds, out),
            Self::Sha224 => pbkdf2_hmac::<Sha224>(password, salt, rounds, out),
            Self::Sha256 => pbkdf2_hmac::<Sha256>(password, salt, rounds, out),
            Self::Sha384 => pbkdf2_hmac::<Sha384>(password, salt, rounds, out),
            Self::Sha512 => pbkdf2_hmac::<Sha512>(password, salt, rounds, out),
            Self::Ripemd160 => pbkdf2_hmac::<Ripemd160>(password, salt, rounds, out),
            Self::Whirlpool => pbkdf2_hmac::<Whirlpool>(password, salt, rounds, out),
        }
    }
}
