//! LUKS, versions 1 and 2: what encrypts a device and what opens it. Both versions come to one
//! [`LuksHeader`]; there is no key in it, and nothing here decrypts.
//!
//! Sources: the LUKS1 On-Disk Format Specification 1.2.3 (2018) and the LUKS2 On-Disk Format
//! Specification 1.1.2 (2022), of the cryptsetup project. Layout to the byte: docs/formats.md,
//! "LUKS".
//!
//! Invariant: what is returned can be carried out in bounded memory and time: areas are as large as
//! their keys, and the sizes and counts of a slot are within [`limits`] unless it says that it is
//! out of bounds. One slot that is says nothing against the others.

mod json;
mod v1;
mod v2;

use std::ops::Range;

/// Bounds of what is accepted. The specifications have none for most of these; what cryptsetup
/// makes stays far below.
pub mod limits {
    /// Key slots.
    pub const SLOTS: u32 = 32;
    /// Stripes of a key's area; cryptsetup always makes 4000.
    pub const STRIPES: u32 = 16_384;
    /// Bytes of a key: two keys of 256 bits.
    pub const KEY_BYTES: u32 = 64;
    /// Rounds of PBKDF2: about a minute of one core.
    pub const ITERATIONS: u32 = 200_000_000;
    /// KiB that Argon2 goes over, all passes together: some minutes of one core.
    pub const ARGON_KIB: u64 = 1 << 28;
    /// Bytes of a LUKS2 header with its JSON area.
    pub const HEADER_BYTES: u64 = 4 << 20;
}

/// The magic of a first header.
pub const MAGIC: [u8; 6] = *b"LUKS\xba\xbe";
/// The magic of a second header.
pub const MAGIC_SECOND: [u8; 6] = *b"SKUL\xba\xbe";
/// Where the second header of LUKS2 may be, bytes: it lies behind the first one, whose size is one
/// of these.
pub const SECOND_AT: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];

/// Reads so many bytes at an offset (bytes); `None` where that cannot be.
pub type ReadHeader<'a> = dyn FnMut(u64, usize) -> Option<Vec<u8>> + 'a;

/// What is encrypted, how, and which slots hold the key to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LuksHeader {
    /// 1 or 2.
    pub version: u16,
    /// The id of the encrypted device.
    pub uuid: String,
    /// Its label, of LUKS2.
    pub label: Option<String>,
    /// Which header this is.
    pub source: HeaderSource,
    /// Its length, bytes; of LUKS2 that of both headers.
    pub header_bytes: u64,
    /// By number.
    pub slots: Vec<LuksSlot>,
    /// How a key is known to be right.
    pub digests: Vec<LuksDigest>,
    /// What is encrypted, by place.
    pub segments: Vec<LuksSegment>,
    /// Kinds of tokens, which other programs unlock by: `systemd-tpm2`, `clevis`.
    pub tokens: Vec<String>,
    /// Discards may reach what is below.
    pub allows_discards: bool,
    /// What a reader has to know to open it; nothing for nearly all.
    pub requirements: Vec<String>,
}

/// Which header was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderSource {
    /// The first.
    First,
    /// The second of LUKS2, at this byte: the first is damaged, or older.
    Second {
        /// Where it is, in bytes.
        at_bytes: u64,
    },
}

/// A copy of the key, encrypted with what a passphrase comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LuksSlot {
    /// Its number.
    pub id: u32,
    /// Bytes of the key in it.
    pub key_bytes: u32,
    /// Where it is: bytes from the header's start.
    pub area: Range<u64>,
    /// What it is encrypted with: `aes-xts-plain64`.
    pub cipher: String,
    /// Bytes of the key that it is encrypted with.
    pub cipher_key_bytes: u32,
    /// What a passphrase goes through.
    pub kdf: LuksKdf,
    /// Into how many stripes the key is split.
    pub stripes: u32,
    /// The hash of the split.
    pub split_hash: String,
    /// 0 is tried last, 2 first.
    pub priority: u8,
    /// Why it cannot be tried, where it is beyond what this reader carries out.
    pub out_of_bounds: Option<String>,
}

/// A key derivation function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LuksKdf {
    /// PBKDF2 with an HMAC.
    Pbkdf2 {
        /// The hash of the HMAC.
        hash: String,
        /// Rounds.
        iterations: u32,
        /// The salt.
        salt: Vec<u8>,
    },
    /// Argon2, version 1.3.
    Argon2 {
        /// argon2id; else argon2i.
        is_id: bool,
        /// Passes.
        time: u32,
        /// Memory, KiB.
        memory_kib: u32,
        /// Lanes.
        lanes: u32,
        /// The salt.
        salt: Vec<u8>,
    },
    /// One that is not known here.
    Unknown {
        /// What it is called.
        name: String,
    },
}

impl LuksKdf {
    /// As cryptsetup calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown { name } => name,
            Self::Pbkdf2 { .. } => "pbkdf2",
            Self::Argon2 { is_id: true, .. } => "argon2id",
            Self::Argon2 { is_id: false, .. } => "argon2i",
        }
    }

    /// The memory that it takes, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Pbkdf2 { .. } | Self::Unknown { .. } => 0,
            Self::Argon2 { memory_kib, .. } => u64::from(*memory_kib) << 10,
        }
    }
}

/// How the key of some slots and segments is known to be right: PBKDF2 over it gives `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LuksDigest {
    /// The slots that hold this key.
    pub slots: Vec<u32>,
    /// The segments that it is the key of.
    pub segments: Vec<u32>,
    /// The hash.
    pub hash: String,
    /// Rounds.
    pub iterations: u32,
    /// The salt.
    pub salt: Vec<u8>,
    /// What comes out.
    pub value: Vec<u8>,
}

/// A part of the device that is encrypted as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LuksSegment {
    /// Its number.
    pub id: u32,
    /// `crypt`; `linear` is not encrypted, which only a re-encryption in progress has.
    pub kind: String,
    /// Where it begins, bytes.
    pub offset_bytes: u64,
    /// Its length, bytes; `None` up to the device's end.
    pub len_bytes: Option<u64>,
    /// The number of its first sector of 512 bytes, for the initialisation vector.
    pub iv_tweak: u64,
    /// `aes-xts-plain64`.
    pub cipher: String,
    /// The unit of encryption, bytes: 512 to 4096.
    pub sector_bytes: u32,
    /// The checksum of every sector, where there is one.
    pub integrity: Option<String>,
}

/// Why there is no header to go by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LuksError {
    /// Nothing of LUKS is there.
    #[error("there is no LUKS header")]
    NotLuks,
    /// A later version.
    #[error("LUKS version {0} is not known")]
    UnknownVersion(u16),
    /// What is there contradicts itself or its checksum; of LUKS2 both headers do.
    #[error("its LUKS header is damaged: {0}")]
    Damaged(String),
}

/// Reads the header of an encrypted device. Of the two headers of LUKS2 the valid one counts, and
/// of two the newer.
///
/// # Errors
/// [`LuksError`]
pub fn read(read: &mut ReadHeader<'_>) -> Result<LuksHeader, LuksError> {
    let first = read(0, v1::BYTES);
    let version = first.as_deref().filter(|bytes| bytes.starts_with(&MAGIC)).map(version_of);
    match (version, first) {
        (Some(1), Some(bytes)) => v1::parse(&bytes),
        (Some(version), _) if version != 2 => Err(LuksError::UnknownVersion(version)),
        (is_there, _) => v2::read(read, is_there.is_some()),
    }
}

/// The version in a header that has the magic.
fn version_of(bytes: &[u8]) -> u16 {
    match bytes.get(6..8) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

fn damaged(why: impl Into<String>) -> LuksError {
    LuksError::Damaged(why.into())
}

/// Text that ends with its first zero byte.
fn text(bytes: &[u8]) -> Result<String, LuksError> {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..len]).map_err(|_| damaged("a name in it is no text"))?;
    match text.chars().any(char::is_control) {
        true => Err(damaged("a name in it has control characters")),
        false => Ok(text.to_owned()),
    }
}

impl LuksHeader {
    /// Where the header and its key areas end, bytes from the header's start. What is encrypted
    /// begins behind that, or is on another device.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.area.end).fold(self.header_bytes, u64::max)
    }

    /// Checks what both versions have in common.
    fn checked(mut self) -> Result<Self, LuksError> {
        for slot in &mut self.slots {
            slot.check().map_err(|why| damaged(format!("key slot {}: {why}", slot.id)))?;
            slot.out_of_bounds = slot.bound_passed();
        }
        if self.digests.len() > limits::SLOTS as usize {
            return Err(damaged("the number of its digests"));
        }
        for digest in &self.digests {
            if !(1..=limits::ITERATIONS).contains(&digest.iterations) {
                return Err(damaged(format!("{} rounds for a digest", digest.iterations)));
            }
            if !(16..=64).contains(&digest.value.len()) {
                return Err(damaged("the length of a digest"));
            }
        }
        for segment in &self.segments {
            if !segment.sector_bytes.is_power_of_two() || !(512..=4096).contains(&segment.sector_bytes) {
                return Err(damaged(format!("sectors of {} bytes", segment.sector_bytes)));
            }
            if !segment.offset_bytes.is_multiple_of(512) {
                return Err(damaged("the place of what is encrypted"));
            }
            let unit = u64::from(segment.sector_bytes);
            if segment.len_bytes.is_some_and(|len| !len.is_multiple_of(unit)) {
                return Err(damaged("the length of what is encrypted"));
            }
        }
        Ok(self)
    }
}

impl LuksSlot {
    /// Refuses what no slot can be.
    fn check(&self) -> Result<(), String> {
        if self.key_bytes == 0 || self.cipher_key_bytes == 0 {
            return Err("the size of its key".to_owned());
        }
        if self.stripes == 0 {
            return Err("its number of stripes".to_owned());
        }
        let needed = (u64::from(self.key_bytes) * u64::from(self.stripes)).next_multiple_of(512);
        if self.area.end.checked_sub(self.area.start).is_none_or(|len| len < needed) {
            return Err("its area is too small for its key".to_owned());
        }
        match &self.kdf {
            LuksKdf::Pbkdf2 { iterations: 0, .. } => Err("no round of PBKDF2".to_owned()),
            LuksKdf::Argon2 { time, memory_kib, lanes, .. }
                if *time == 0 || *lanes == 0 || u64::from(*memory_kib) < 8 * u64::from(*lanes) =>
            {
                Err(format!("Argon2 {time} times over {memory_kib} KiB in {lanes} lanes"))
            }
            _ => Ok(()),
        }
    }

    /// What of a sound slot is beyond [`limits`].
    fn bound_passed(&self) -> Option<String> {
        let key_bytes = self.key_bytes.max(self.cipher_key_bytes);
        if key_bytes > limits::KEY_BYTES {
            return Some(format!("its key has {key_bytes} bytes"));
        }
        if self.stripes > limits::STRIPES {
            return Some(format!("its key is split into {} stripes", self.stripes));
        }
        match &self.kdf {
            LuksKdf::Pbkdf2 { iterations, .. } if *iterations > limits::ITERATIONS => {
                Some(format!("{iterations} rounds of PBKDF2"))
            }
            LuksKdf::Argon2 { time, memory_kib, lanes, .. }
                if *lanes > 64 || u64::from(*time) * u64::from(*memory_kib) > limits::ARGON_KIB =>
            {
                Some(format!("Argon2 {time} times over {memory_kib} KiB in {lanes} lanes"))
            }
            LuksKdf::Unknown { name } => Some(format!("the key derivation `{name}` is not known")),
            _ => None,
        }
    }
}
