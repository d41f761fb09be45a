//! From a passphrase to the key of a key slot.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use wattle_format::luks::LuksKdf;
use zeroize::Zeroize;

use crate::hash::HashKind;
use crate::secret::SecretBytes;

/// Why no key could be derived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KdfError {
    /// A key derivation that is not known.
    #[error("the key derivation `{0}` is not known")]
    Unknown(String),
    /// A hash that is not known.
    #[error("the hash function {0} is not known")]
    UnknownHash(String),
    /// More memory than may be taken.
    #[error("Argon2 with {needed_bytes} bytes of memory, and {allowed_bytes} may be taken")]
    Memory {
        /// What it takes, bytes.
        needed_bytes: u64,
        /// What is allowed, bytes.
        allowed_bytes: u64,
    },
    /// Parameters that Argon2 does not have.
    #[error("Argon2 cannot be had with these parameters: {0}")]
    Parameters(String),
}

/// Derives `key_bytes` from a passphrase, with at most `memory_bytes` of memory.
///
/// # Errors
/// [`KdfError`]
pub(crate) fn derive(
    kdf: &LuksKdf,
    passphrase: &[u8],
    key_bytes: usize,
    memory_bytes: u64,
) -> Result<SecretBytes, KdfError> {
    let mut key = SecretBytes::zeros(key_bytes);
    match kdf {
        LuksKdf::Unknown { name } => return Err(KdfError::Unknown(name.clone())),
        LuksKdf::Pbkdf2 { hash, iterations, salt } => {
            let hash = HashKind::named(hash).ok_or_else(|| KdfError::UnknownHash(hash.clone()))?;
            hash.pbkdf2(passphrase, salt, *iterations, key.as_mut());
        }
        LuksKdf::Argon2 { is_id, time, memory_kib, lanes, salt } => {
            let needed_bytes = kdf.memory_bytes();
            if needed_bytes > memory_bytes {
                return Err(KdfError::Memory { needed_bytes, allowed_bytes: memory_bytes });
            }
            let parameters = |error: argon2::Error| KdfError::Parameters(error.to_string());
            let params = Params::new(*memory_kib, *time, *lanes, Some(key_bytes)).map_err(parameters)?;
            let algorithm = if *is_id { Algorithm::Argon2id } else { Algorithm::Argon2i };
            // Taken here, so that a machine without the memory says so instead of ending.
            let mut blocks: Vec<Block> = Vec::new();
            let no_memory = |_| KdfError::Memory { needed_bytes, allowed_bytes: 0 };
            blocks.try_reserve_exact(params.block_count()).map_err(no_memory)?;
            blocks.resize(params.block_count(), Block::default());
            let argon2 = Argon2::new(algorithm, Version::V0x13, params);
            let filled = argon2.hash_password_into_with_memory(passphrase, salt, key.as_mut(), &mut blocks);
            blocks.iter_mut().for_each(Zeroize::zeroize);
            filled.map_err(parameters)?;
        }
    }
    Ok(key)
}
