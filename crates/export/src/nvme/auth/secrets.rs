//! The secrets of hosts, and of the controller for each of them, as a file has them. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use crate::nvme::subsystem::NQN_BYTES_MAX;

/// A hash of an HMAC, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretHash {
    Sha256 = 1,
    Sha384 = 2,
    Sha512 = 3,
}

impl SecretHash {
    pub fn of(number: u8) -> Option<Self> {
        [Self::Sha256, Self::Sha384, Self::Sha512].into_iter().find(|hash| *hash as u8 == number)
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn with<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any length will do");
            parts.iter().for_each(|part| mac.update(part));
            mac
        }
        match self {
            Self::Sha256 => with::<Hmac<Sha256>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Sha384 => with::<Hmac<Sha384>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Sha512 => with::<Hmac<Sha512>>(key, parts).finalize().into_bytes().to_vec(),
        }
    }

    pub fn digest(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }
}

/// Why a file holds no secrets of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeSecretError {
    /// A line is not a host's name and a secret, or two.
    #[error("line {0}: not a host's NQN and its secret, DHHC-1:…:, and the controller's, if there is one")]
    NotALine(usize),
    /// A secret is damaged, or of a kind that there is not.
    #[error("line {0}: the secret is damaged: `nvme check-dhchap-key` says how")]
    Damaged(usize),
    /// The second secret is, in the same way.
    #[error("line {0}: the controller's secret is damaged: `nvme check-dhchap-key` says how")]
    ControllerDamaged(usize),
    /// A host has two secrets.
    #[error("line {0}: this host has a secret already")]
    Twice(usize),
    /// There is none.
    #[error("no host has a secret there")]
    Empty,
}

/// The secrets of the hosts that may connect, by their NQNs.
#[derive(Clone)]
pub struct NvmeSecrets(BTreeMap<String, HostSecrets>);

#[derive(Clone)]
struct HostSecrets {
    host: Secret,
    /// What the controller proves its name with, if this host asks for that.
    controller: Option<Secret>,
}

/// A secret, and the hash that binds it to the name of its owner, if one does.
#[derive(Clone)]
struct Secret {
    hash: Option<SecretHash>,
    key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for NvmeSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NvmeSecrets of {:?}", self.0.keys())
    }
}

impl NvmeSecrets {
    /// From lines `HOSTNQN DHHC-1:HH:BASE64:`, as `nvme gen-dhchap-key` makes secrets. A second
    /// secret in a line is what the controller proves its name to this host with. Empty lines and
    /// comments (`#`) are passed over.
    ///
    /// # Errors
    /// A line is something else, a secret fails its checksum, or there is none.
    pub fn parse(text: &str) -> Result<Self, NvmeSecretError> {
        let mut secrets = BTreeMap::new();
        for (ix, line) in text.lines().enumerate() {
            let (number, line) = (ix + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let (host, secret, second) = match words[..] {
                [host, secret] => (host, secret, None),
                [host, secret, second] => (host, secret, Some(second)),
                _ => return Err(NvmeSecretError::NotALine(number)),
            };
            if host.len() > NQN_BYTES_MAX {
                return Err(NvmeSecretError::NotALine(number));
            }
            let own = Secret::parse(secret).ok_or(NvmeSecretError::Damaged(number))?;
            let parse = |text| Secret::parse(text).ok_or(NvmeSecretError::ControllerDamaged(number));
            let controller = second.map(parse).transpose()?;
            if secrets.insert(host.to_owned(), HostSecrets { host: own, controller }).is_some() {
                return Err(NvmeSecretError::Twice(number));
            }
        }
        if secrets.is_empty() { Err(NvmeSecretError::Empty) } else { Ok(Self(secrets)) }
    }

    /// The key of a host's responses.
    pub fn host_key(&self, host: &str) -> Option<Zeroizing<Vec<u8>>> {
        self.0.get(host).map(|secrets| secrets.host.key_of(host))
    }

    /// The key of the responses of a subsystem's controllers to a host.
    pub fn controller_key(&self, host: &str, subsystem: &str) -> Option<Zeroizing<Vec<u8>>> {
        self.0.get(host)?.controller.as_ref().map(|secret| secret.key_of(subsystem))
    }
}

impl Secret {
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("DHHC-1:")?.strip_suffix(':')?;
        let (kind, encoded) = rest.split_once(':')?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).ok()?);
        let (key, checksum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let hash = SecretHash::of(kind.parse().ok().filter(|_| kind.len() == 2)?);
        let fits = match (kind, hash) {
            ("00", _) => matches!(key.len(), 32 | 48 | 64),
            (_, Some(hash)) => key.len() == hash.bytes(),
            _ => false,
        };
        let intact = fits && crc32(key).to_le_bytes() == checksum;
        intact.then(|| Self { hash, key: Zeroizing::new(key.to_vec()) })
    }

    /// The key that responses are made with: bound to the name of its owner, if the secret says
    /// with which hash.
    fn key_of(&self, name: &str) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.key.clone(),
            Some(hash) => Zeroizing::new(hash.hmac(&self.key, &[name.as_bytes(), b"NVMe-over-Fabrics"])),
        }
    }
}

/// CRC-32 as Ethernet has it, over a secret: no other use needs it here.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
