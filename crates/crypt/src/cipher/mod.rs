//! Sectors there and back: ciphers, modes and initialisation vectors, by the names that dm-crypt
//! has for them (`aes-xts-plain64`, `aes-cbc-essiv:sha256`; kernel documentation,
//! admin-guide/device-mapper/dm-crypt).

mod cbc;
mod iv;
mod xts;

use std::fmt;

use aes::{Aes128, Aes192, Aes256};
use cipher::consts::U16;
use cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, KeyInit};
use serpent::Serpent;
use twofish::Twofish;

use cbc::Cbc;
use iv::IvKind;
use xts::Xts;

/// A block of a cipher: 16 bytes, of all that are known here.
pub(crate) type Block = Array<u8, U16>;

const BLOCK_BYTES: usize = 16;

/// What is numbered: `aes-xts-plain64` counts sectors of this size, whatever the unit of
/// encryption.
const IV_SECTOR_BYTES: u64 = 512;

/// A block cipher with its key.
pub(crate) trait BlockCipher:
    BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + Send + Sync + 'static
{
}

impl<C> BlockCipher for C where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + Send + Sync + 'static
{
}

/// Neighbouring sectors and their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The number of the first one.
    pub first: u64,
    /// How far the numbers of neighbours are apart.
    pub step: u64,
    /// Bytes of a sector, a multiple of 16.
    pub sector_bytes: usize,
}

impl Run {
    /// The number of the sector `ix` of the run.
    fn number(&self, ix: usize) -> u64 {
        self.first.wrapping_add(self.step.wrapping_mul(ix as u64))
    }
}

/// A cipher in a mode with its keys. `bytes` are whole sectors.
pub(crate) trait Mode: Send + Sync {
    fn decrypt(&self, run: Run, bytes: &mut [u8]);
    fn encrypt(&self, run: Run, bytes: &mut [u8]);
}

/// Why a cipher cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CipherError {
    /// A cipher, mode or initialisation vector that is not known.
    #[error("the encryption {0} is not known")]
    Unknown(String),
    /// A key that does not fit.
    #[error("{cipher} has no keys of {key_bytes} bytes")]
    KeySize {
        /// The cipher with its mode.
        cipher: String,
        /// Bytes of the key.
        key_bytes: usize,
    },
}

/// What every sector of a device goes through. Any number of threads may use it at once.
pub struct SectorCipher {
    name: String,
    mode: Box<dyn Mode>,
    sector_bytes: u32,
}

impl fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SectorCipher({}, {} bytes)", self.name, self.sector_bytes)
    }
}

impl SectorCipher {
    /// The cipher of this name with its key, over sectors of `sector_bytes` (512 to 4096, a power
    /// of two).
    ///
    /// # Errors
    /// [`CipherError`]
    pub fn new(name: &str, key: &[u8], sector_bytes: u32) -> Result<Self, CipherError> {
        let unknown = || CipherError::Unknown(name.to_owned());
        let mut parts = name.splitn(3, '-');
        let (Some(cipher), Some(mode), Some(iv)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(unknown());
        };
        let no_key = || CipherError::KeySize { cipher: name.to_owned(), key_bytes: key.len() };
        let mode = match mode {
            "xts" => {
                let (data, tweak) = key.split_at(key.len() / 2);
                // ESSIV hashes the whole key, the tweak's half included.
                let iv = IvKind::named(iv, cipher, key).ok_or_else(unknown)?;
                if data.len() != tweak.len() {
                    return Err(no_key());
                }
                with_cipher(cipher, XtsOf { data, tweak, iv })
            }
            "cbc" => {
                let iv = IvKind::named(iv, cipher, key).ok_or_else(unknown)?;
                with_cipher(cipher, CbcOf { key, iv })
            }
            _ => return Err(unknown()),
        };
        match mode {
            Made::Mode(mode) => Ok(Self { name: name.to_owned(), mode, sector_bytes }),
            Made::NoKey => Err(no_key()),
            Made::Unknown => Err(unknown()),
        }
    }

    /// Whether there is such an encryption, with keys of some size.
    #[must_use]
    pub fn is_known(name: &str) -> bool {
        [16, 32, 48, 64].into_iter().any(|len| Self::new(name, &vec![0; len], 512).is_ok())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit of encryption, bytes.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Decrypts whole sectors in place. `sector` is the number of the first one, in units of 512
    /// bytes.
    ///
    /// # Panics
    /// `bytes` ends within a sector.
    pub fn decrypt(&self, sector: u64, bytes: &mut [u8]) {
        self.mode.decrypt(self.run(sector, bytes), bytes);
    }

    /// Encrypts whole sectors in place, numbered as for [`Self::decrypt`].
    ///
    /// # Panics
    /// `bytes` ends within a sector.
    pub fn encrypt(&self, sector: u64, bytes: &mut [u8]) {
        self.mode.encrypt(self.run(sector, bytes), bytes);
    }

    fn run(&self, first: u64, bytes: &[u8]) -> Run {
        let sector_bytes = self.sector_bytes as usize;
        assert!(bytes.len().is_multiple_of(sector_bytes), "whole sectors");
        Run { first, step: u64::from(self.sector_bytes) / IV_SECTOR_BYTES, sector_bytes }
    }
}

/// Makes something of the block cipher that a name and a length of keys mean.
trait OfCipher {
    fn key_bytes(&self) -> usize;
    fn make<C: BlockCipher + KeyInit>(self) -> Option<Box<dyn Mode>>;
}

struct XtsOf<'a> {
    data: &'a [u8],
    tweak: &'a [u8],
    iv: IvKind,
}

impl OfCipher for XtsOf<'_> {
    fn key_bytes(&self) -> usize {
        self.data.len()
    }

    fn make<C: BlockCipher + KeyInit>(self) -> Option<Box<dyn Mode>> {
        let (data, tweak) = (C::new_from_slice(self.data).ok()?, C::new_from_slice(self.tweak).ok()?);
        Some(Box::new(Xts::new(data, tweak, self.iv)))
    }
}

struct CbcOf<'a> {
    key: &'a [u8],
    iv: IvKind,
}

impl OfCipher for CbcOf<'_> {
    fn key_bytes(&self) -> usize {
        self.key.len()
    }

    fn make<C: BlockCipher + KeyInit>(self) -> Option<Box<dyn Mode>> {
        Some(Box::new(Cbc::new(C::new_from_slice(self.key).ok()?, self.iv)))
    }
}

enum Made {
    Mode(Box<dyn Mode>),
    NoKey,
    Unknown,
}

fn with_cipher(name: &str, of: impl OfCipher) -> Made {
    let made = match (name, of.key_bytes()) {
        ("aes", 16) => of.make::<Aes128>(),
        ("aes", 24) => of.make::<Aes192>(),
        ("aes", 32) => of.make::<Aes256>(),
        ("serpent", 16 | 24 | 32) => of.make::<Serpent>(),
        ("twofish", 16 | 24 | 32) => of.make::<Twofish>(),
        ("aes" | "serpent" | "twofish", _) => return Made::NoKey,
        _ => return Made::Unknown,
    };
    made.map_or(Made::NoKey, Made::Mode)
}
