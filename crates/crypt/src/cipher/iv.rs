//! Initialisation vectors: what makes equal sectors different (kernel documentation,
//! admin-guide/device-mapper/dm-crypt, "IV generators").

use aes::{Aes128, Aes192, Aes256};
use cipher::KeyInit;
use serpent::Serpent;
use twofish::Twofish;
use zeroize::Zeroize;

use super::{BLOCK_BYTES, Block, BlockCipher};
use crate::hash::HashKind;

/// How a sector's number becomes its initialisation vector.
pub(crate) enum IvKind {
    /// The low 32 bits of the number, little-endian.
    Plain,
    /// The number, little-endian.
    Plain64,
    /// The number, big-endian, at the end.
    Plain64Be,
    /// The number, encrypted with the hash of the key.
    Essiv(Box<dyn EncryptOne>),
}

impl IvKind {
    /// The one of this name, for a cipher and its key.
    pub fn named(name: &str, cipher: &str, key: &[u8]) -> Option<Self> {
        match name {
            "plain" => Some(Self::Plain),
            "plain64" => Some(Self::Plain64),
            "plain64be" => Some(Self::Plain64Be),
            _ => {
                let hash = HashKind::named(name.strip_prefix("essiv:")?)?;
                let mut salt = hash.digest(&[key]);
                let essiv = essiv(cipher, &salt);
                salt.zeroize();
                essiv.map(Self::Essiv)
            }
        }
    }

    /// The vector of a sector.
    pub fn of(&self, number: u64) -> Block {
        let mut iv = Block::default();
        match self {
            Self::Plain => iv[..4].copy_from_slice(&(number as u32).to_le_bytes()),
            Self::Plain64 | Self::Essiv(_) => iv[..8].copy_from_slice(&number.to_le_bytes()),
            Self::Plain64Be => iv[BLOCK_BYTES - 8..].copy_from_slice(&number.to_be_bytes()),
        }
        if let Self::Essiv(cipher) = self {
            cipher.encrypt_one(&mut iv);
        }
        iv
    }
}

/// A block cipher of any kind that encrypts single blocks.
pub(crate) trait EncryptOne: Send + Sync {
    fn encrypt_one(&self, block: &mut Block);
}

impl<C: BlockCipher> EncryptOne for C {
    fn encrypt_one(&self, block: &mut Block) {
        self.encrypt_block(block);
    }
}

fn essiv(cipher: &str, salt: &[u8]) -> Option<Box<dyn EncryptOne>> {
    fn keyed<C: BlockCipher + KeyInit>(salt: &[u8]) -> Option<Box<dyn EncryptOne>> {
        Some(Box::new(C::new_from_slice(salt).ok()?))
    }
    match (cipher, salt.len()) {
        ("aes", 16) => keyed::<Aes128>(salt),
        ("aes", 24) => keyed::<Aes192>(salt),
        ("aes", 32) => keyed::<Aes256>(salt),
        ("serpent", 16 | 24 | 32) => keyed::<Serpent>(salt),
        ("twofish", 16 | 24 | 32) => keyed::<Twofish>(salt),
        _ => None,
    }
}
