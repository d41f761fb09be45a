//! Encrypted devices: from a passphrase to the key of a device, and sectors there and back.
//! Tags of blocks (dm-integrity), by which it is known that they are what was written.
//!
//! Nothing here reads a device or asks a person: headers come from `format`, areas of key slots as
//! bytes, and sectors as slices.
//!
//! Invariants:
//! - A key is given out only if the header's digest of it is right.
//! - Secrets are wiped when they are dropped, and never shown: [`SecretBytes`] prints as its
//!   length.
//! - What a header asks for is refused before memory is taken, not after.
//!
//! Reading order: [`unlock`], `kdf.rs`, `split.rs`; then `cipher/`.

mod cipher;
mod hash;
mod integrity;
mod kdf;
mod secret;
mod split;
mod unlock;

pub use cipher::{CipherError, SectorCipher};
pub use integrity::TagMaker;
pub use kdf::KdfError;
pub use secret::SecretBytes;
pub use unlock::{ReadArea, UnlockError, UnlockLimits, UnlockedKey, check_key, segment_of, unlock};
