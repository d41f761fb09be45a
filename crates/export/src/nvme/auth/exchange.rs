//! The messages of one exchange, of one queue. Pure.

use zeroize::Zeroizing;

use super::group::{EXPONENT_BYTES_MAX, Exponentiation, FfdheGroup};
use super::secrets::{NvmeSecrets, SecretHash};

/// The longest message that a host sends.
pub const AUTH_MESSAGE_BYTES_MAX: usize = 4096;
const HASH_BYTES_MAX: usize = 64;
/// Where the values of a challenge, a reply and a success begin.
const VALUES: usize = 16;

mod messages {
    pub const COMMON: u8 = 0;
    pub const CHAP: u8 = 1;
    pub const NEGOTIATE: u8 = 0;
    pub const CHALLENGE: u8 = 1;
    pub const REPLY: u8 = 2;
    pub const SUCCESS: u8 = 3;
    pub const SUCCESS_OF_HOST: u8 = 4;
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
    /// The value of the group that the challenge has is being computed.
    Keying(Challenge),
    /// The challenge is to be fetched, and then replied to.
    Challenged { challenge: Challenge, fetched: bool },
    /// The session key is being computed.
    Agreeing { challenge: Challenge, reply: HostReply },
    /// The host fetches that it is the one it says, and the controller's own proof if it asked for
    /// one. It then has to say that this is right.
    Proved { hash: SecretHash, proof: Option<Vec<u8>>, fetched: bool },
    /// The host fetches why not; nothing else is done for it.
    Refused(Refusal),
}

/// What the host is challenged with.
struct Challenge {
    hash: SecretHash,
    value: Vec<u8>,
    sequence: u32,
    key: Option<GroupKey>,
}

/// A key pair of one exchange. The public value is empty until it was computed.
struct GroupKey {
    group: FfdheGroup,
    exponent: Zeroizing<Vec<u8>>,
    public: Vec<u8>,
}

/// What a host replies.
struct HostReply {
    response: Vec<u8>,
    /// The host's own challenge and its sequence number.
    challenge: Option<(Vec<u8>, u32)>,
    /// Its value of the group; empty without one.
    public: Vec<u8>,
}

/// What a message of a host led to.
pub enum AuthProgress {
    /// The exchange goes on.
    GoesOn,
    /// It goes on with [`Exchange::computed`].
    Computes(Exponentiation),
    /// The host has proved its name, and the controller its own.
    Proved,
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
            return self.goes_on(Err(Refusal::Payload));
        };
        let transaction = u16::from_le_bytes([low, high]);
        // A message that does not fit the step ends the exchange.
        let step = std::mem::replace(&mut self.step, Step::Refused(Refusal::Message));
        match (kind, id, step) {
            (messages::COMMON, messages::FAILURE_OF_HOST | messages::FAILURE, _)
            | (messages::CHAP, messages::FAILURE_OF_HOST, _) => AuthProgress::Over,
            (messages::COMMON, messages::NEGOTIATE, Step::Begin) => {
                self.transaction = transaction;
                match Challenge::of(message, random) {
                    Ok(challenge) => self.challenge(challenge),
                    Err(refusal) => self.goes_on(Err(refusal)),
                }
            }
            (messages::CHAP, messages::REPLY, Step::Challenged { challenge, fetched: true })
                if transaction == self.transaction =>
            {
                match HostReply::of(message, &challenge) {
                    Ok(reply) => self.replied(challenge, reply, secrets),
                    Err(refusal) => self.goes_on(Err(refusal)),
                }
            }
            (
                messages::CHAP,
                messages::SUCCESS_OF_HOST,
                Step::Proved { proof: Some(_), fetched: true, .. },
            ) if transaction == self.transaction => AuthProgress::Proved,
            _ => AuthProgress::GoesOn,
        }
    }

    /// Goes on with the power that [`AuthProgress::Computes`] asked for; `None` if it could not be
    /// computed.
    pub fn computed(&mut self, power: Option<Zeroizing<Vec<u8>>>, secrets: &NvmeSecrets) {
        let step = std::mem::replace(&mut self.step, Step::Refused(Refusal::Message));
        let next = match (step, power) {
            (Step::Keying(mut challenge), Some(public)) => {
                if let Some(key) = &mut challenge.key {
                    key.public = public.to_vec();
                }
                Ok(Step::Challenged { challenge, fetched: false })
            }
            (Step::Agreeing { challenge, reply }, Some(shared)) => {
                let session = challenge.hash.digest(&shared);
                self.judge(&challenge, &reply, Some(&session), secrets)
            }
            (Step::Keying(_) | Step::Agreeing { .. }, None) => Err(Refusal::Failed),
            (step, _) => Ok(step),
        };
        self.goes_on(next);
    }

    fn goes_on(&mut self, next: Result<Step, Refusal>) -> AuthProgress {
        self.step = next.unwrap_or_else(Step::Refused);
        AuthProgress::GoesOn
    }

    fn challenge(&mut self, challenge: Challenge) -> AuthProgress {
        let Some(key) = &challenge.key else {
            return self.goes_on(Ok(Step::Challenged { challenge, fetched: false }));
        };
        let (group, exponent) = (key.group, key.exponent.clone());
        self.step = Step::Keying(challenge);
        AuthProgress::Computes(Exponentiation { group, base: None, exponent })
    }

    fn replied(&mut self, challenge: Challenge, reply: HostReply, secrets: &NvmeSecrets) -> AuthProgress {
        let Some(key) = &challenge.key else {
            let judged = self.judge(&challenge, &reply, None, secrets);
            return self.goes_on(judged);
        };
        let (group, exponent) = (key.group, key.exponent.clone());
        let base = Some(reply.public.clone());
        self.step = Step::Agreeing { challenge, reply };
        AuthProgress::Computes(Exponentiation { group, base, exponent })
    }

    fn judge(
        &self,
        challenge: &Challenge,
        reply: &HostReply,
        session: Option<&[u8]>,
        secrets: &NvmeSecrets,
    ) -> Result<Step, Refusal> {
        let (host, subsystem) = (self.host.as_str(), self.subsystem.as_str());
        let hash = challenge.hash;
        // A host without a secret fails like one with a wrong one.
        let key = secrets.host_key(host);
        let none: &[u8] = &[];
        let with = key.as_ref().map_or(none, |key| key);
        let asked = (&challenge.value[..], challenge.sequence);
        let expected = self.response(hash, with, asked, session, [HOST_ROLE, host, subsystem]);
        let differs =
            expected.iter().zip(&reply.response).fold(0, |differs, (one, other)| differs | one ^ other);
        if differs != 0 || key.is_none() {
            return Err(Refusal::Failed);
        }
        let Some((value, sequence)) = &reply.challenge else {
            return Ok(Step::Proved { hash, proof: None, fetched: false });
        };
        // The host asks for a proof of the controller, which may have no secret for it.
        let key = secrets.controller_key(host, subsystem).ok_or(Refusal::Unusable)?;
        let asked = (&value[..], *sequence);
        let proof = self.response(hash, &key, asked, session, [CONTROLLER_ROLE, subsystem, host]);
        Ok(Step::Proved { hash, proof: Some(proof), fetched: false })
    }

    /// The response of one side, which has `key`, to a challenge of the other, with its sequence
    /// number. With a session key, the challenge is augmented with it first.
    fn response(
        &self,
        hash: SecretHash,
        key: &[u8],
        (challenge, sequence): (&[u8], u32),
        session: Option<&[u8]>,
        [role, name, other]: [&str; 3],
    ) -> Vec<u8> {
        let augmented = session.map(|session| hash.hmac(session, &[challenge]));
        hash.hmac(
            key,
            &[
                augmented.as_deref().unwrap_or(challenge),
                &sequence.to_le_bytes(),
                &self.transaction.to_le_bytes(),
                &[0],
                role.as_bytes(),
                name.as_bytes(),
                &[0],
                other.as_bytes(),
            ],
        )
    }

    /// The message that the host fetches, and whether the host has now proved its name. `None`
    /// before it said anything, and while something is being computed.
    pub fn give(&mut self) -> Option<(Vec<u8>, bool)> {
        let mut message = vec![messages::CHAP, 0, 0, 0, 0, 0, 0, 0];
        message[4..6].copy_from_slice(&self.transaction.to_le_bytes());
        match &mut self.step {
            Step::Begin | Step::Keying(_) | Step::Agreeing { .. } => None,
            Step::Challenged { challenge, fetched } => {
                *fetched = true;
                let (group, public) = match &challenge.key {
                    Some(key) => (key.group as u8, &key.public[..]),
                    None => (NO_GROUP, &[][..]),
                };
                message[1] = messages::CHALLENGE;
                message[6] = challenge.hash.bytes() as u8;
                message.extend([challenge.hash as u8, group]);
                message.extend((public.len() as u16).to_le_bytes());
                message.extend(challenge.sequence.to_le_bytes());
                message.extend(&challenge.value);
                message.extend(public);
                Some((message, false))
            }
            Step::Proved { hash, proof, fetched } => {
                *fetched = true;
                message[1] = messages::SUCCESS;
                message[6] = hash.bytes() as u8;
                message.resize(VALUES, 0);
                message[8] = proof.is_some().into();
                message.extend(proof.iter().flatten());
                Some((message, proof.is_none()))
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

/// Stands for no Diffie-Hellman.
const NO_GROUP: u8 = 0;
const HOST_ROLE: &str = "HostHost";
const CONTROLLER_ROLE: &str = "Controller";

impl Challenge {
    /// What a host is challenged with that offers this, if there is what it offers: the first hash
    /// of its list, and the group that is preferred here.
    fn of(message: &[u8], random: impl FnOnce(&mut [u8]) -> bool) -> Result<Self, Refusal> {
        const LISTS: usize = 12;
        const GROUPS: usize = LISTS + 30;
        const LIST_MAX: usize = 30;
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
        let groups = &message[GROUPS..GROUPS + groups];
        let mut preferred = FfdheGroup::PREFERENCE.into_iter();
        let group = preferred.find(|group| groups.contains(&(*group as u8)));
        if group.is_none() && !groups.contains(&NO_GROUP) {
            return Err(Refusal::Group);
        }
        let mut bytes = Zeroizing::new([0; 4 + HASH_BYTES_MAX + EXPONENT_BYTES_MAX]);
        if !random(&mut bytes[..]) {
            return Err(Refusal::Failed);
        }
        let (sequence, rest) = bytes.split_at(4);
        let (value, exponent) = rest.split_at(HASH_BYTES_MAX);
        Ok(Self {
            hash,
            value: value[..hash.bytes()].to_vec(),
            sequence: u32::from_le_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]) | 1,
            key: group.map(|group| GroupKey::of(group, exponent)),
        })
    }
}

impl GroupKey {
    fn of(group: FfdheGroup, random: &[u8]) -> Self {
        let mut exponent = Zeroizing::new(random[..group.exponent_bytes()].to_vec());
        // As long as it can be.
        exponent[0] |= 0x80;
        Self { group, exponent, public: Vec::new() }
    }
}

impl HostReply {
    fn of(message: &[u8], challenge: &Challenge) -> Result<Self, Refusal> {
        let length = challenge.hash.bytes();
        let response = message.get(VALUES..VALUES + length).ok_or(Refusal::Payload)?.to_vec();
        let (asks, public_bytes) = (message[8], u16::from_le_bytes([message[10], message[11]]));
        if usize::from(message[6]) != length || asks > 1 {
            return Err(Refusal::Payload);
        }
        let sequence = u32::from_le_bytes([message[12], message[13], message[14], message[15]]);
        let own = message.get(VALUES + length..VALUES + 2 * length);
        let own = match (asks == 1, own) {
            (false, _) => None,
            // That is a challenge for a secure channel, which does not follow.
            (true, _) if sequence == 0 => return Err(Refusal::Payload),
            (true, own) => Some((own.ok_or(Refusal::Payload)?.to_vec(), sequence)),
        };
        let from = VALUES + 2 * length;
        let public = match (&challenge.key, usize::from(public_bytes)) {
            (None, 0) => Vec::new(),
            (None, _) => return Err(Refusal::Payload),
            (Some(key), bytes) => {
                let public = message.get(from..from + bytes).ok_or(Refusal::Payload)?;
                if !key.group.accepts(public) {
                    return Err(Refusal::Failed);
                }
                public.to_vec()
            }
        };
        Ok(Self { response, challenge: own, public })
    }
}
