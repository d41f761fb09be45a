//! DH-HMAC-CHAP: a host proves that it has the secret of its name. Pure, but for the random
//! challenge.
//!
//! One exchange for each queue: the host offers hashes and groups, is given a challenge, and
//! replies with an HMAC of it under its secret; the secret itself never travels. The group is
//! always the one without Diffie-Hellman: what protects against guessing is a secret as long as
//! the hash. What follows on the connection is neither encrypted nor signed.
//!
//! Source: NVM Express Base Specification 2.0, section 8.13.5.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};

use super::subsystem::NQN_BYTES_MAX;

/// The longest message that a host sends: a reply with a challenge of its own.
pub const AUTH_MESSAGE_BYTES_MAX: usize = 4096;
const HASH_BYTES_MAX: usize = 64;

mod messages {
    pub const COMMON: u8 = 0;
    pub const CHAP: u8 = 1;
    pub const NEGOTIATE: u8 = 0;
    pub const CHALLENGE: u8 = 1;
    pub const REPLY: u8 = 2;
    pub const SUCCESS: u8 = 3;
    pub const FAILURE: u8 = 0xf0;
    pub const FAILURE_OF_HOST: u8 = 0xf1;
}

/// Why an exchange failed, as the host is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Refusal {
    Failed = 1,
    Unusable = 2,
    SecureChannel = 3,
    Hash = 4,
    Group = 5,
    Payload = 6,
    Message = 7,
}

/// A hash of an HMAC, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretHash {
    Sha256 = 1,
    Sha384 = 2,
    Sha512 = 3,
}

impl SecretHash {
    fn of(number: u8) -> Option<Self> {
        [Self::Sha256, Self::Sha384, Self::Sha512].into_iter().find(|hash| *hash as u8 == number)
    }

    fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
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
}

/// Why a file holds no secrets of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeSecretError {
    /// A line is not a host's name and a secret.
    #[error("line {0}: not a host's NQN and its secret, DHHC-1:…:")]
    NotALine(usize),
    /// A secret is damaged, or of a kind that there is not.
    #[error("line {0}: the secret is damaged: `nvme check-dhchap-key` says how")]
    Damaged(usize),
    /// A host has two secrets.
    #[error("line {0}: this host has a secret already")]
    Twice(usize),
    /// There is none.
    #[error("no host has a secret there")]
    Empty,
}

/// The secrets of the hosts that may connect, by their NQNs.
#[derive(Clone)]
pub struct NvmeSecrets(BTreeMap<String, Vec<u8>>);

impl std::fmt::Debug for NvmeSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NvmeSecrets of {:?}", self.0.keys())
    }
}

impl NvmeSecrets {
    /// From lines `HOSTNQN DHHC-1:HH:BASE64:`, as `nvme gen-dhchap-key` makes secrets; empty lines
    /// and comments (`#`) are passed over.
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
            let [host, secret] = words[..] else { return Err(NvmeSecretError::NotALine(number)) };
            if host.len() > NQN_BYTES_MAX {
                return Err(NvmeSecretError::NotALine(number));
            }
            let secret = transformed(host, secret).ok_or(NvmeSecretError::Damaged(number))?;
            if secrets.insert(host.to_owned(), secret).is_some() {
                return Err(NvmeSecretError::Twice(number));
            }
        }
        if secrets.is_empty() { Err(NvmeSecretError::Empty) } else { Ok(Self(secrets)) }
    }

    /// What a host's replies are made with.
    fn of(&self, host: &str) -> Option<&[u8]> {
        self.0.get(host).map(Vec::as_slice)
    }
}

/// The key of a host from its secret: bound to its name, if the secret says with which hash.
fn transformed(host: &str, secret: &str) -> Option<Vec<u8>> {
    let rest = secret.strip_prefix("DHHC-1:")?.strip_suffix(':')?;
    let (kind, encoded) = rest.split_once(':')?;
    let bytes = STANDARD.decode(encoded).ok()?;
    let (key, checksum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
    let hash = SecretHash::of(kind.parse().ok().filter(|_| kind.len() == 2)?);
    let fits = match (kind, hash) {
        ("00", _) => matches!(key.len(), 32 | 48 | 64),
        (_, Some(hash)) => key.len() == hash.bytes(),
        _ => false,
    };
    if !fits || crc32(key).to_le_bytes() != checksum {
        return None;
    }
    Some(match hash {
        None => key.to_vec(),
        Some(hash) => hash.hmac(key, &[host.as_bytes(), b"NVMe-over-Fabrics"]),
    })
}

/// CRC-32 as Ethernet has it, over a secret: no other use needs it here.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// One exchange of one queue.
pub struct Exchange {
    host: String,
    subsystem: String,
    transaction: u16,
    step: Step,
}

enum Step {
    /// The host's offer is awaited.
    Begin,
    /// The challenge is to be fetched, and then replied to.
    Challenged { hash: SecretHash, challenge: Vec<u8>, sequence: u32, fetched: bool },
    /// The host fetches that it is the one it says.
    Proved { hash: SecretHash },
    /// The host fetches why not; nothing else is done for it.
    Refused(Refusal),
}

/// What a message of a host led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthProgress {
    /// The exchange goes on.
    GoesOn,
    /// The host gave up.
    Over,
}

impl Exchange {
    /// Of a host with a subsystem, by their names.
    pub fn new(host: &str, subsystem: &str) -> Self {
        Self { host: host.to_owned(), subsystem: subsystem.to_owned(), transaction: 0, step: Step::Begin }
    }

    /// Takes a message of the host. `random` is filled with what cannot be guessed.
    pub fn take(
        &mut self,
        message: &[u8],
        secrets: &NvmeSecrets,
        random: impl FnOnce(&mut [u8]) -> bool,
    ) -> AuthProgress {
        let [kind, id, _, _, low, high, ..] = *message else {
            self.step = Step::Refused(Refusal::Payload);
            return AuthProgress::GoesOn;
        };
        let transaction = u16::from_le_bytes([low, high]);
        let taken = match (kind, id, &self.step) {
            (messages::COMMON, messages::FAILURE_OF_HOST | messages::FAILURE, _) => {
                return AuthProgress::Over;
            }
            (messages::CHAP, messages::FAILURE_OF_HOST, _) => return AuthProgress::Over,
            (messages::COMMON, messages::NEGOTIATE, Step::Begin) => {
                self.transaction = transaction;
                challenge(message, random)
            }
            (
                messages::CHAP,
                messages::REPLY,
                Step::Challenged { hash, challenge, sequence, fetched: true },
            ) if transaction == self.transaction => self.judge(message, *hash, challenge, *sequence, secrets),
            _ => Err(Refusal::Message),
        };
        self.step = taken.unwrap_or_else(Step::Refused);
        AuthProgress::GoesOn
    }

    fn judge(
        &self,
        message: &[u8],
        hash: SecretHash,
        challenge: &[u8],
        sequence: u32,
        secrets: &NvmeSecrets,
    ) -> Result<Step, Refusal> {
        let length = hash.bytes();
        let response = message.get(16..16 + length).ok_or(Refusal::Payload)?;
        if usize::from(message[6]) != length || message[10..12] != [0, 0] {
            return Err(Refusal::Payload);
        }
        // The host asks for a proof of the controller, which has no secret of its own.
        if message[8] != 0 {
            return Err(Refusal::Unusable);
        }
        // A host without a secret fails like one with a wrong one.
        let secret = secrets.of(&self.host);
        let expected = hash.hmac(
            secret.unwrap_or(&[]),
            &[
                challenge,
                &sequence.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &[0],
                b"HostHost",
                self.host.as_bytes(),
                &[0],
                self.subsystem.as_bytes(),
            ],
        );
        let same = expected.iter().zip(response).fold(0, |differs, (one, other)| differs | one ^ other) == 0;
        if same && secret.is_some() { Ok(Step::Proved { hash }) } else { Err(Refusal::Failed) }
    }

    /// The message that the host fetches, and whether the host has now proved its name. `None`
    /// before it said anything.
    pub fn give(&mut self) -> Option<(Vec<u8>, bool)> {
        let mut message = vec![messages::CHAP, 0, 0, 0, 0, 0, 0, 0];
        message[4..6].copy_from_slice(&self.transaction.to_le_bytes());
        match &mut self.step {
            Step::Begin => None,
            Step::Challenged { hash, challenge, sequence, fetched } => {
                *fetched = true;
                message[1] = messages::CHALLENGE;
                message[6] = hash.bytes() as u8;
                message.extend([*hash as u8, 0, 0, 0]);
                message.extend(sequence.to_le_bytes());
                message.extend(challenge.iter());
                Some((message, false))
            }
            Step::Proved { hash } => {
                message[1] = messages::SUCCESS;
                message[6] = hash.bytes() as u8;
                message.resize(16, 0);
                Some((message, true))
            }
            Step::Refused(refusal) => {
                message[0] = messages::COMMON;
                message[1] = messages::FAILURE;
                (message[6], message[7]) = (1, *refusal as u8);
                Some((message, false))
            }
        }
    }
}

/// What the host is challenged with, if it offers what there is.
fn challenge(message: &[u8], random: impl FnOnce(&mut [u8]) -> bool) -> Result<Step, Refusal> {
    const LISTS: usize = 12;
    const GROUPS: usize = LISTS + 30;
    const LIST_MAX: usize = 30;
    const NO_GROUP: u8 = 0;
    if message.len() < LISTS + 60 || message[7] == 0 || message[8] != 1 {
        return Err(Refusal::Payload);
    }
    // Hosts that want TLS to follow from this are told that it does not.
    if message[6] != 0 {
        return Err(Refusal::SecureChannel);
    }
    let (hashes, groups) = (usize::from(message[10]), usize::from(message[11]));
    if hashes > LIST_MAX || groups > LIST_MAX {
        return Err(Refusal::Payload);
    }
    let hash = message[LISTS..LISTS + hashes].iter().find_map(|number| SecretHash::of(*number));
    let hash = hash.ok_or(Refusal::Hash)?;
    if !message[GROUPS..GROUPS + groups].contains(&NO_GROUP) {
        return Err(Refusal::Group);
    }
    let mut bytes = [0; 4 + HASH_BYTES_MAX];
    if !random(&mut bytes) {
        return Err(Refusal::Failed);
    }
    let sequence = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) | 1;
    let challenge = bytes[4..4 + hash.bytes()].to_vec();
    Ok(Step::Challenged { hash, challenge, sequence, fetched: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.h";
    // What `nvme gen-dhchap-key` prints has this form; the checksum is of the 32 bytes before it.
    fn secret(kind: &str, key: &[u8]) -> String {
        let bytes = [key, &crc32(key).to_le_bytes()].concat();
        format!("DHHC-1:{kind}:{}:", STANDARD.encode(bytes))
    }

    fn negotiate(hashes: &[u8], groups: &[u8]) -> Vec<u8> {
        let mut message = vec![0; 72];
        (message[4], message[7], message[8]) = (9, 1, 1);
        (message[10], message[11]) = (hashes.len() as u8, groups.len() as u8);
        message[12..12 + hashes.len()].copy_from_slice(hashes);
        message[42..42 + groups.len()].copy_from_slice(groups);
        message
    }

    fn reply(challenge: &[u8], key: &[u8]) -> Vec<u8> {
        let hash = SecretHash::of(challenge[8]).unwrap();
        let response = hash.hmac(
            key,
            &[
                &challenge[16..],
                &challenge[12..16],
                &challenge[4..6],
                &[0],
                b"HostHost",
                HOST.as_bytes(),
                &[0],
                b"nqn.s",
            ],
        );
        let mut message = vec![1, 2, 0, 0, 9, 0, hash.bytes() as u8, 0, 0, 0, 0, 0];
        message.extend(&challenge[12..16]);
        message.extend(response);
        message
    }

    fn fill(bytes: &mut [u8]) -> bool {
        bytes.fill(0x5c);
        true
    }

    #[test]
    fn the_check_value_of_the_checksum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn secrets_are_read_as_they_are_made() {
        let good =
            format!("# hosts\n\n{HOST} {}\nnqn.i {}\n", secret("00", &[7; 48]), secret("02", &[7; 48]));
        let secrets = NvmeSecrets::parse(&good).unwrap();
        assert_eq!(secrets.of(HOST), Some(&[7; 48][..]));
        assert_eq!(secrets.of("nqn.i").map(<[u8]>::len), Some(48));
        assert_ne!(secrets.of("nqn.i"), secrets.of(HOST));
        assert!(!format!("{secrets:?}").contains("7, 7"), "secrets are not shown");
        let damaged = secret("00", &[7; 32]).replace("Bw", "Bx");
        for (text, error) in [
            (String::new(), NvmeSecretError::Empty),
            ("nqn.h".to_owned(), NvmeSecretError::NotALine(1)),
            (format!("{HOST} {damaged}"), NvmeSecretError::Damaged(1)),
            (format!("{HOST} {}", secret("01", &[7; 48])), NvmeSecretError::Damaged(1)),
            (format!("{HOST} {}", secret("00", &[7; 31])), NvmeSecretError::Damaged(1)),
            (format!("{HOST} {}", secret("04", &[7; 32])), NvmeSecretError::Damaged(1)),
            (format!("{HOST} DHHC-1:00::"), NvmeSecretError::Damaged(1)),
            (format!("{good}{HOST} {}", secret("00", &[7; 32])), NvmeSecretError::Twice(5)),
        ] {
            assert_eq!(NvmeSecrets::parse(&text).err(), Some(error), "{text}");
        }
    }

    #[test]
    fn who_has_the_secret_is_let_in_and_no_other() {
        for (kind, length, hashes) in [("00", 32, &[1][..]), ("01", 32, &[3, 1]), ("03", 64, &[9, 2])] {
            let text = format!("{HOST} {}", secret(kind, &vec![7; length]));
            let secrets = NvmeSecrets::parse(&text).unwrap();
            let key = secrets.of(HOST).unwrap();
            let run = |host: &str, key: &[u8]| {
                let mut exchange = Exchange::new(host, "nqn.s");
                assert!(exchange.give().is_none());
                exchange.take(&negotiate(hashes, &[1, 0]), &secrets, fill);
                let (challenge, false) = exchange.give().unwrap() else { panic!("not proved") };
                exchange.take(&reply(&challenge, key), &secrets, fill);
                exchange.give().unwrap()
            };
            assert!(run(HOST, key).1);
            let refused = run(HOST, b"another");
            assert_eq!((&refused.0[..8], refused.1), (&[0, 0xf0, 0, 0, 9, 0, 1, 1][..], false));
            // A name without a secret does not get in with an empty one.
            assert!(!run("nqn.i", &[]).1);
            assert!(!run("nqn.i", key).1);
        }
    }

    #[test]
    fn what_comes_out_of_its_order_is_refused() {
        let secrets = NvmeSecrets::parse(&format!("{HOST} {}", secret("00", &[7; 32]))).unwrap();
        let key = secrets.of(HOST).unwrap();
        let after = |messages: &[Vec<u8>]| {
            let mut exchange = Exchange::new(HOST, "nqn.s");
            for message in messages {
                exchange.take(message, &secrets, fill);
            }
            let (message, proved) = exchange.give().unwrap();
            assert!(!proved);
            (message[1], message[7])
        };
        let offer = negotiate(&[1], &[0]);
        let mut exchange = Exchange::new(HOST, "nqn.s");
        exchange.take(&offer, &secrets, fill);
        let right = reply(&exchange.give().unwrap().0, key);
        // A reply to a challenge that was not fetched, or that there was not; twice; anything.
        assert_eq!(after(&[offer.clone(), right.clone()]), (0xf0, 7));
        assert_eq!(after(&[right]), (0xf0, 7));
        assert_eq!(after(&[offer.clone(), offer.clone()]), (0xf0, 7));
        assert_eq!(after(&[negotiate(&[7], &[0])]), (0xf0, 4));
        assert_eq!(after(&[negotiate(&[1], &[1, 2])]), (0xf0, 5));
        assert_eq!(after(&[vec![0; 8]]), (0xf0, 6));
        assert_eq!(after(&[vec![1]]), (0xf0, 6));
        let mut exchange = Exchange::new(HOST, "nqn.s");
        assert_eq!(exchange.take(&[0, 0xf1, 0, 0, 0, 0, 1, 1], &secrets, fill), AuthProgress::Over);
    }
}
