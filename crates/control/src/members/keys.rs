//! The keys that a process was given, and those that it found with them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wattle_crypt::{SecretBytes, UnlockLimits, UnlockedKey, check_key};
use wattle_format::luks::LuksHeader;

use super::{Member, same_place};

/// Memory that a key derivation may take if nothing is said, bytes: twice what cryptsetup makes.
const MEMORY_BYTES: u64 = 2 << 30;

/// Something that may open an encrypted member.
#[derive(Debug, Clone)]
pub struct GivenKey {
    /// The passphrase, or the key.
    pub secret: SecretBytes,
    /// Which of the two it is.
    pub kind: KeyKind,
}

/// What a secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// What a key slot opens with: a passphrase, or the contents of a key file.
    Passphrase,
    /// The key that sectors are encrypted with.
    Volume,
}

/// Asks an operator for a passphrase.
pub trait AskPassphrase: Send + Sync {
    /// For this member, the `attempt`th time; `None` if there is none.
    fn ask(&self, member: &str, header: &LuksHeader, attempt: u32) -> Option<SecretBytes>;
}

/// The keys of a process. It is made once, when a command begins, and handed down with the access
/// to members; copies of it are the same keyring.
#[derive(Clone, Default)]
pub struct Keyring {
    inner: Arc<Inner>,
}

struct Inner {
    given: Vec<GivenKey>,
    ask: Option<Arc<dyn AskPassphrase>>,
    headers: Vec<NamedHeader>,
    limits: UnlockLimits,
    found: Mutex<Found>,
}

/// What the header of a member is on, by the member's name.
struct NamedHeader {
    member: String,
    on: Arc<Member>,
    /// Whether a member of that name was met.
    is_used: AtomicBool,
}

#[derive(Default)]
struct Found {
    /// What was asked for, so that one passphrase for many drives is asked for once.
    asked: Vec<GivenKey>,
    /// Keys that opened something, by the UUID in its header. Headers of one UUID may differ: a key
    /// is checked again before it is used.
    keys: BTreeMap<String, UnlockedKey>,
}

impl Default for Inner {
    fn default() -> Self {
        let limits = UnlockLimits { memory_bytes: MEMORY_BYTES };
        Self { given: Vec::new(), ask: None, headers: Vec::new(), limits, found: Mutex::default() }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} given)", self.inner.given.len())
    }
}

impl Keyring {
    /// Of what was given. `memory_bytes` is what a key derivation may take; `None` for 2 GiB, or
    /// what the machine has left if that is less.
    #[must_use]
    pub fn new(
        given: Vec<GivenKey>,
        headers: Vec<(String, Arc<Member>)>,
        ask: Option<Arc<dyn AskPassphrase>>,
        memory_bytes: Option<u64>,
    ) -> Self {
        let limits = UnlockLimits { memory_bytes: memory_bytes.unwrap_or_else(memory_left) };
        let headers = headers.into_iter();
        let headers =
            headers.map(|(member, on)| NamedHeader { member, on, is_used: AtomicBool::new(false) }).collect();
        Self { inner: Arc::new(Inner { given, ask, headers, limits, found: Mutex::default() }) }
    }

    pub(crate) fn limits(&self) -> UnlockLimits {
        self.inner.limits
    }

    /// What the header of a member is on, where one was named.
    pub(crate) fn header_of(&self, member: &str) -> Option<Arc<Member>> {
        let mut headers = self.inner.headers.iter();
        let found = headers.find(|named| named.member == member || same_place(&named.member, member))?;
        found.is_used.store(true, Ordering::Relaxed);
        Some(found.on.clone())
    }

    /// Names that headers were given for and that no member has by now.
    #[must_use]
    pub fn unused_headers(&self) -> Vec<&str> {
        let headers = self.inner.headers.iter();
        let unused = headers.filter(|named| !named.is_used.load(Ordering::Relaxed));
        unused.map(|named| named.member.as_str()).collect()
    }

    /// What was given, and what was asked for by now.
    pub(crate) fn given(&self) -> Vec<GivenKey> {
        let asked = self.found().asked.clone();
        self.inner.given.iter().cloned().chain(asked).collect()
    }

    /// Asks; `None` if no operator is asked, or none answers.
    pub(crate) fn ask(&self, member: &str, header: &LuksHeader, attempt: u32) -> Option<GivenKey> {
        let secret = self.inner.ask.as_ref()?.ask(member, header, attempt)?;
        let key = GivenKey { secret, kind: KeyKind::Passphrase };
        self.found().asked.push(key.clone());
        Some(key)
    }

    /// A key that opened a device of this UUID before, and is that of this header.
    pub(crate) fn known(&self, header: &LuksHeader) -> Option<UnlockedKey> {
        let known = self.found().keys.get(&header.uuid).cloned()?;
        check_key(header, &known.key).ok()?;
        Some(known)
    }

    pub(crate) fn remember(&self, header: &LuksHeader, key: &UnlockedKey) {
        self.found().keys.insert(header.uuid.clone(), key.clone());
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.inner.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to 2 GiB, bytes: what is taken without a word must not drive other programs out of memory.
fn memory_left() -> u64 {
    let facts = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(MEMORY_BYTES, |kib| MEMORY_BYTES.min(kib << 10))
}
