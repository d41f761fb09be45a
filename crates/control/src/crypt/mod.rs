//! Encrypted members (LUKS): what is known of them, how they are opened, and the device that they
//! are then.
//!
//! Invariants:
//! - Nothing is ever written to a header, and nothing to what is encrypted but encrypted sectors.
//! - A key is used only where the header proves it; what does not open stays what it was, a member
//!   with a signature.

mod device;

use std::time::Duration;

use wattle_crypt::{
    KdfError, SectorCipher, UnlockError, UnlockLimits, UnlockedKey, check_key, segment_of, unlock,
};
use wattle_format::luks::{self, LuksError, LuksHeader, LuksSegment};

pub(crate) use device::Decrypted;

use crate::members::{GivenKey, KeyKind, Keyring, Member, same_place};
use crate::problem::{Code, Problem};

/// How often a passphrase is asked for.
const ATTEMPTS: u32 = 3;

/// What is known of an encrypted member.
#[derive(Debug, Clone)]
pub struct Encryption {
    /// Its header.
    pub header: LuksHeader,
    /// What the header is on, if that is not the member.
    pub detached: Option<String>,
    /// Whether it is open.
    pub state: LockState,
}

/// Whether an encrypted member is open.
#[derive(Debug, Clone)]
pub enum LockState {
    /// No key was given.
    Locked,
    /// It is open.
    Unlocked {
        /// The slot that the key was in; `None` for a key that was given itself.
        slot: Option<u32>,
    },
    /// It could not be opened.
    Refused(Problem),
}

/// What opens a member.
pub(crate) struct Opened {
    pub cipher: SectorCipher,
    pub slot: Option<u32>,
}

/// Why a member does not open.
pub(crate) enum LockedOut {
    /// Whatever the keys are.
    Problem(Problem),
    /// None of the keys does it.
    Keys { header: Box<LuksHeader>, error: UnlockError, tried: u32, asked: bool },
}

impl From<Problem> for LockedOut {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl LockedOut {
    /// What is to be said of the member `name` after trying for so long.
    pub fn problem(self, name: &str, took: Duration) -> Problem {
        match self {
            Self::Problem(problem) => problem,
            Self::Keys { header, error, tried, asked } => {
                // Of what was typed the time includes the typing.
                let each = (!asked).then(|| took.as_secs_f64() / f64::from(tried));
                does_not_open(name, &header, &error, each)
            }
        }
    }
}

impl Encryption {
    /// Reads the header of a member, from the member itself or from what it is on elsewhere. One
    /// from elsewhere is not that of a member which has another device's itself.
    pub(crate) fn read(member: &Member, elsewhere: Option<&Member>) -> Result<Self, Problem> {
        let (name, on) = (&member.name, elsewhere.unwrap_or(member));
        let header = luks::read(&mut |at, len| on.read(at, len).ok());
        let header = header.map_err(|error| unusable_header(name, on, &error))?;
        if elsewhere.is_some()
            && let Ok(own) = luks::read(&mut |at, len| member.read(at, len).ok())
        {
            let is_behind = own.segments.iter().all(|segment| segment.offset_bytes >= own.end_bytes());
            if own.uuid != header.uuid && is_behind {
                return Err(another_header(name, &own.uuid, &on.name, &header.uuid));
            }
            // The header itself by another name, or a copy of it: a write would go over it.
            if own.uuid == header.uuid && !is_behind {
                return Err(only_a_header(name));
            }
        }
        Ok(Self { header, detached: elsewhere.map(|on| on.name.clone()), state: LockState::Locked })
    }

    /// What is encrypted on the member, if that can be opened at all.
    pub(crate) fn segment(&self, name: &str) -> Result<&LuksSegment, Problem> {
        let segment = segment_of(&self.header).map_err(|error| unsupported(name, &self.header, &error))?;
        // Taken for its own data, a header would be written over by the first write.
        let is_own = self.detached.as_deref().is_none_or(|on| on == name || same_place(on, name));
        if is_own && segment.offset_bytes < self.header.end_bytes() {
            return Err(only_a_header(name));
        }
        Ok(segment)
    }

    /// Tries every key that there is, and then asks. `Ok(None)` if there is none and no terminal to
    /// ask on.
    pub(crate) fn open(&self, member: &Member, keys: &Keyring) -> Result<Option<Opened>, LockedOut> {
        let (name, header) = (&member.name, &self.header);
        let segment = self.segment(name)?;
        let opened = |found: &UnlockedKey| {
            let cipher = SectorCipher::new(&segment.cipher, found.key.as_ref(), segment.sector_bytes);
            let cipher = cipher
                .map_err(|error| unsupported(name, header, &UnlockError::Unsupported(error.to_string())))?;
            Ok(Some(Opened { cipher, slot: found.slot }))
        };
        if let Some(found) = keys.known(header) {
            return opened(&found);
        }
        let on = keys.header_of(name);
        let on = on.as_deref().unwrap_or(member);
        let mut tried = 0;
        let mut failed: Option<UnlockError> = None;
        let mut attempt = |key: &GivenKey| {
            tried += 1;
            let found = try_key(header, on, key, keys.limits());
            match found {
                Ok(found) => {
                    keys.remember(header, &found);
                    Some(found)
                }
                Err(error) => {
                    // That a slot takes more memory than allowed says more than that others are
                    // wrong.
                    if failed.as_ref().is_none_or(|before| *before == UnlockError::Wrong) {
                        failed = Some(error);
                    }
                    None
                }
            }
        };
        let given = keys.given();
        if let Some(found) = given.iter().find_map(&mut attempt) {
            return opened(&found);
        }
        let mut asked = false;
        for number in 1..=ATTEMPTS {
            let Some(key) = keys.ask(name, header, number) else { break };
            asked = true;
            if let Some(found) = attempt(&key) {
                return opened(&found);
            }
        }
        match failed {
            None => Ok(None),
            Some(error) => {
                let (header, tried) = (header.clone(), tried.max(1));
                Err(LockedOut::Keys { header: Box::new(header), error, tried, asked })
            }
        }
    }

    /// Why the member cannot be read, if it cannot.
    #[must_use]
    pub fn problem(&self, name: &str) -> Option<Problem> {
        match &self.state {
            LockState::Unlocked { .. } => None,
            LockState::Refused(problem) => Some(problem.clone()),
            LockState::Locked => Some(
                Problem::new(
                    Code::EncryptionLocked,
                    format!("{name} is encrypted (LUKS{}), and no key was given", self.header.version),
                    format!("{}; what is in it cannot be seen without one of its keys", self.summary()),
                    "--unlock asks for a passphrase; --passphrase-file FILE and --key-file FILE give one",
                )
                .of_member(name),
            ),
        }
    }

    /// What it is, in a few words: `LUKS2, aes-xts-plain64, 2 key slots (argon2id)`.
    #[must_use]
    pub fn summary(&self) -> String {
        let header = &self.header;
        let mut kinds: Vec<_> = header.slots.iter().map(|slot| slot.kdf.name()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let slots = match header.slots.len() {
            0 => "no key slot".to_owned(),
            1 => format!("1 key slot ({})", kinds.join(", ")),
            count => format!("{count} key slots ({})", kinds.join(", ")),
        };
        let ciphers: Vec<_> = header.segments.iter().map(|segment| segment.cipher.as_str()).collect();
        let mut parts = vec![format!("LUKS{}", header.version), ciphers.join(" and "), slots];
        if let luks::HeaderSource::Second { at_bytes } = header.source {
            parts.push(format!(
                "the first header is damaged or older, the second one at byte {at_bytes} is used"
            ));
        }
        parts.extend(self.detached.as_ref().map(|on| format!("its header is on {on}")));
        if !header.tokens.is_empty() {
            parts.push(format!("tokens: {}", header.tokens.join(", ")));
        }
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    }
}

fn try_key(
    header: &LuksHeader,
    on: &Member,
    key: &GivenKey,
    limits: UnlockLimits,
) -> Result<UnlockedKey, UnlockError> {
    match key.kind {
        KeyKind::Volume => check_key(header, &key.secret),
        KeyKind::Passphrase => unlock(header, key.secret.as_ref(), limits, &mut |area| {
            let len = usize::try_from(area.end - area.start).ok()?;
            on.read(area.start, len).ok()
        }),
    }
}

fn unusable_header(name: &str, on: &Member, error: &LuksError) -> Problem {
    let what = match on.name == name {
        true => format!("{name}: {error}"),
        false => format!("{name}: {}: {error}", on.name),
    };
    let next = match error {
        LuksError::Damaged(_) => {
            "keys are in the header alone: look for a backup of it (`cryptsetup luksHeaderBackup`) and name it with --header"
        }
        _ => "name what the header of this member is on: --header MEMBER=FILE",
    };
    Problem::new(
        Code::EncryptionDamaged,
        what,
        "without a header that agrees with its checksums there is no key to what is encrypted",
        next,
    )
    .of_member(name)
}

fn another_header(name: &str, own: &str, on: &str, other: &str) -> Problem {
    Problem::new(
        Code::EncryptionUnsupported,
        format!("{name} is the LUKS device {own}, and {on} has the header of {other}"),
        "with the key of another device all that came out would be wrong",
        "name the header of this device, or none: it has its own",
    )
    .of_member(name)
}

fn only_a_header(name: &str) -> Problem {
    Problem::new(
        Code::EncryptionUnsupported,
        format!("{name} is a detached LUKS header: what it opens is on another device"),
        "it says that what is encrypted begins where it lies itself",
        format!("give the device, with its header named: --header DEVICE={name}"),
    )
    .of_member(name)
}

fn unsupported(name: &str, header: &LuksHeader, error: &UnlockError) -> Problem {
    Problem::new(
        Code::EncryptionUnsupported,
        format!("{name}: LUKS{}: {error}", header.version),
        "it is not opened, because what came out would be wrong",
        "open it with cryptsetup on a system that knows it, and let it finish what it is in the middle of",
    )
    .of_member(name)
}

/// `each` is how long a key took, in seconds, where that is known.
fn does_not_open(name: &str, header: &LuksHeader, error: &UnlockError, each: Option<f64>) -> Problem {
    let (code, why, next) = match error {
        UnlockError::Wrong => (
            Code::WrongKey,
            match (header.slots.len(), each) {
                (1, Some(each)) => format!("the one key slot was tried, which took {each:.1} s"),
                (slots, Some(each)) => format!("{slots} key slots were tried, which took {each:.1} s a key"),
                (1, None) => "the one key slot was tried".to_owned(),
                (slots, None) => format!("{slots} key slots were tried"),
            },
            "mind the keyboard's layout; a key file is taken as it is, a passphrase file without its line's end"
                .to_owned(),
        ),
        UnlockError::Memory { error: KdfError::Memory { allowed_bytes: 0, .. }, .. } => (
            Code::UnlockMemory,
            "the key slot was made to take that much memory, and this process gets no more".to_owned(),
            "open it on a machine, or with limits (`ulimit -v`), that allow it".to_owned(),
        ),
        UnlockError::Memory { needed_bytes, .. } => (
            Code::UnlockMemory,
            "the key slot was made to take that much memory".to_owned(),
            format!("allow it: --unlock-memory {}M", needed_bytes.div_ceil(1 << 20)),
        ),
        UnlockError::Unsupported(_) => return unsupported(name, header, error),
        UnlockError::SlotUnsupported { .. } => (
            Code::EncryptionUnsupported,
            "nothing is wrong with it; no other key slot opens with what was given".to_owned(),
            "give the passphrase of another slot, or open it with cryptsetup on a system that knows it".to_owned(),
        ),
        _ => (
            Code::EncryptionDamaged,
            "no other key slot opens with what was given".to_owned(),
            "try the passphrase of another slot, or a backup of the header: --header MEMBER=FILE".to_owned(),
        ),
    };
    Problem::new(code, format!("{name}: {error}"), why, next).of_member(name)
}
