//! The handshake as a state machine over bytes: fixed newstyle, and nothing older. Pure.
//!
//! Invariants: after every call of [`Handshake::advance`] what was consumed is answered in full in
//! `out`; the client makes the server hold no more than [`HANDSHAKE_BYTES_MAX`] bytes; an unknown
//! or refused option leaves the state as it was.

use super::limits::REQUEST_BYTES_MAX;
use super::protocol::{
    self as proto, ContextQuery, Fields, InfoQuery, NbdHeaders, allocation, changes, handshake_flags, infos,
    options, replies, transmission_flags,
};

/// Data of an option beyond this is skipped and refused: a name of 4096 bytes and some hundreds of
/// information requests fit.
pub const OPTION_BYTES_MAX: usize = 8 << 10;
const _: () = assert!(OPTION_BYTES_MAX >= super::protocol::NAME_BYTES_MAX + 4 + 2 + 2 * 256);

/// Options of one handshake. A client that lists and then asks about each export needs two more
/// than there are exports.
pub const OPTIONS_MAX: u32 = 1024;

/// The longest unfinished message of a client: an option with the most data that is read.
pub const HANDSHAKE_BYTES_MAX: usize = proto::OPTION_HEADER_BYTES + OPTION_BYTES_MAX;

/// What the handshake tells clients about an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportFacts {
    /// The name clients ask for.
    pub name: String,
    /// A sentence for people; empty for none.
    pub description: String,
    /// Size of the volume.
    pub size_bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// The smallest request that costs no more than it moves.
    pub io_min_bytes: u32,
    /// The checkpoints since which it is known what has changed; 63 at most.
    pub checkpoints: Vec<String>,
}

/// Metadata contexts: what is allocated, and what has changed since each of the export's
/// checkpoints, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Contexts(u64);

impl Contexts {
    /// What is allocated.
    pub const ALLOCATION: Self = Self(1);

    /// What has changed since the checkpoint of this number.
    fn checkpoint(number: usize) -> Self {
        Self(1 << (number + 1))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether what is allocated is among them.
    #[must_use]
    pub fn has_allocation(self) -> bool {
        self.0 & 1 != 0
    }

    /// The checkpoints among them, by their numbers.
    pub fn checkpoints(self) -> impl Iterator<Item = usize> {
        (0..63).filter(move |number| self.0 >> (number + 1) & 1 != 0)
    }

    fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl ExportFacts {
    /// The transmission flags of this export. `DF` means something only with structured replies.
    fn flags(&self, headers: NbdHeaders) -> u16 {
        use transmission_flags as flags;
        let access = if self.read_only {
            flags::READ_ONLY
        } else {
            flags::SEND_FUA | flags::SEND_TRIM | flags::SEND_WRITE_ZEROES
        };
        let df = if headers >= NbdHeaders::Structured { flags::SEND_DF } else { 0 };
        flags::HAS_FLAGS | flags::SEND_FLUSH | flags::CAN_MULTI_CONN | access | df
    }

    /// Minimum, preferred and maximum size of a request.
    ///
    /// The minimum is 1: the engine merges a partial block under the stripe's own order, which a
    /// client that merged blocks itself could not do against a second client. The preferred size is
    /// the array's, where the protocol can say it.
    fn block_sizes(&self) -> [u32; 3] {
        const PREFERRED_MIN: u32 = 4096;
        let sayable = self.io_min_bytes.is_power_of_two() && self.io_min_bytes <= REQUEST_BYTES_MAX;
        let preferred = if sayable { self.io_min_bytes.max(PREFERRED_MIN) } else { PREFERRED_MIN };
        [1, preferred, REQUEST_BYTES_MAX]
    }
}

/// What a client chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenExport {
    /// Position in the list of exports.
    pub export: usize,
    /// What requests and replies begin with.
    pub headers: NbdHeaders,
    /// What a client may ask the status of.
    pub contexts: Contexts,
}

/// Where the handshake stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// More bytes of the client are needed; `out` first.
    More,
    /// `out` is to be sent, and the handshake goes on.
    Reply,
    /// `out` is to be sent, then TLS begins. What has come behind the option came in clear: it must
    /// not be used.
    StartTls,
    /// `out` is to be sent, and transmission begins.
    Transmit(ChosenExport),
    /// `out` is to be sent, and the connection is closed.
    Close,
}

/// The server's side of one handshake.
#[derive(Debug)]
pub struct Handshake<'a> {
    exports: &'a [ExportFacts],
    default: Option<usize>,
    state: State,
    client_flags: u16,
    headers: NbdHeaders,
    /// What the client wants to know, and of which export.
    contexts: Option<(usize, Contexts)>,
    options_left: u32,
    tls: TlsStep,
}

/// Where the handshake stands with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TlsStep {
    /// There is none.
    None,
    /// Nothing is said to the client before it has begun.
    Required,
    /// It has begun.
    Begun,
}

#[derive(Debug, Clone, Copy)]
enum State {
    ClientFlags,
    Option,
    /// The data of an option that is too long to be read.
    Skip {
        option: u32,
        left_bytes: u32,
    },
}

impl<'a> Handshake<'a> {
    /// A handshake that offers these exports, of which one may answer to the empty name too.
    /// [`proto::greeting`] is to be sent first.
    #[must_use]
    pub fn new(exports: &'a [ExportFacts], default: Option<usize>) -> Self {
        Self {
            exports,
            default,
            state: State::ClientFlags,
            client_flags: 0,
            headers: NbdHeaders::Simple,
            contexts: None,
            options_left: OPTIONS_MAX,
            tls: TlsStep::None,
        }
    }

    /// The same for clients that have to begin TLS first.
    #[must_use]
    pub fn requiring_tls(self) -> Self {
        Self { tls: TlsStep::Required, ..self }
    }

    /// Takes at most one message off the front of `input` and appends the answer to `out`. Returns
    /// the bytes consumed and what to do next.
    pub fn advance(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, HandshakeStep) {
        match self.state {
            State::ClientFlags => self.client_flags(input),
            State::Option => self.option(input, out),
            State::Skip { option, left_bytes } => {
                let skipped = input.len().min(left_bytes as usize);
                let left_bytes = left_bytes - skipped as u32;
                if left_bytes > 0 {
                    self.state = State::Skip { option, left_bytes };
                    return (skipped, HandshakeStep::More);
                }
                self.state = State::Option;
                let refusal = match self.tls {
                    TlsStep::Required if option != options::STARTTLS => replies::ERR_TLS_REQD,
                    _ => replies::ERR_TOO_BIG,
                };
                proto::push_option_reply(out, option, refusal, &[]);
                (skipped, HandshakeStep::Reply)
            }
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, HandshakeStep) {
        let Some(bytes) = input.first_chunk::<{ proto::CLIENT_FLAGS_BYTES }>() else {
            return (0, HandshakeStep::More);
        };
        let known = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
        let flags = u32::from_be_bytes(*bytes);
        if flags & !u32::from(known) != 0 {
            return (bytes.len(), HandshakeStep::Close);
        }
        self.client_flags = flags as u16;
        self.state = State::Option;
        (bytes.len(), HandshakeStep::Reply)
    }

    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, HandshakeStep) {
        let mut fields = Fields(input);
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return (0, HandshakeStep::More);
        };
        let fixed = self.client_flags & handshake_flags::FIXED_NEWSTYLE != 0;
        if magic != proto::OPTION_MAGIC || (!fixed && option != options::EXPORT_NAME) {
            return (0, HandshakeStep::Close);
        }
        // An export name that is too long, or in clear, cannot be refused in another way.
        let refused = length as usize > proto::NAME_BYTES_MAX || self.tls == TlsStep::Required;
        if option == options::EXPORT_NAME && refused {
            return (0, HandshakeStep::Close);
        }
        if length as usize > OPTION_BYTES_MAX {
            let Some(left) = self.options_left.checked_sub(1) else { return (0, HandshakeStep::Close) };
            self.options_left = left;
            self.state = State::Skip { option, left_bytes: length };
            return (proto::OPTION_HEADER_BYTES, HandshakeStep::Reply);
        }
        let Some(data) = fields.take(length as usize) else {
            return (0, HandshakeStep::More);
        };
        let Some(left) = self.options_left.checked_sub(1) else { return (0, HandshakeStep::Close) };
        self.options_left = left;
        (proto::OPTION_HEADER_BYTES + data.len(), self.answer(option, data, out))
    }

    fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> HandshakeStep {
        let mut reply = |kind: u32, data: &[u8]| {
            proto::push_option_reply(out, option, kind, data);
            HandshakeStep::Reply
        };
        match (option, self.tls) {
            (options::STARTTLS, TlsStep::Required) if data.is_empty() => {
                reply(replies::ACK, &[]);
                (self.tls, self.headers, self.contexts) = (TlsStep::Begun, NbdHeaders::Simple, None);
                return HandshakeStep::StartTls;
            }
            (options::STARTTLS, TlsStep::Required | TlsStep::Begun) => {
                return reply(replies::ERR_INVALID, &[]);
            }
            (options::ABORT, _) | (_, TlsStep::None | TlsStep::Begun) => {}
            (_, TlsStep::Required) => return reply(replies::ERR_TLS_REQD, &[]),
        }
        match option {
            options::EXPORT_NAME => self.export_name(data, out),
            options::INFO | options::GO => self.info(option, data, out),
            options::ABORT => {
                reply(replies::ACK, &[]);
                HandshakeStep::Close
            }
            options::LIST | options::STRUCTURED_REPLY | options::EXTENDED_HEADERS if !data.is_empty() => {
                reply(replies::ERR_INVALID, &[])
            }
            options::LIST => {
                for export in self.exports {
                    reply(replies::SERVER, &server_entry(&export.name));
                }
                reply(replies::ACK, &[])
            }
            options::STRUCTURED_REPLY if self.headers == NbdHeaders::Extended => {
                reply(replies::ERR_EXT_HEADER_REQD, &[])
            }
            options::STRUCTURED_REPLY => {
                self.headers = NbdHeaders::Structured;
                reply(replies::ACK, &[])
            }
            options::EXTENDED_HEADERS => {
                self.headers = NbdHeaders::Extended;
                reply(replies::ACK, &[])
            }
            options::LIST_META_CONTEXT | options::SET_META_CONTEXT => self.contexts(option, data, out),
            // STARTTLS without TLS.
            _ => reply(replies::ERR_UNSUP, &[]),
        }
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> HandshakeStep {
        let Some(export) = str::from_utf8(data).ok().and_then(|name| self.find(name)) else {
            return HandshakeStep::Close;
        };
        let facts = &self.exports[export];
        out.extend_from_slice(&facts.size_bytes.to_be_bytes());
        out.extend_from_slice(&facts.flags(self.headers).to_be_bytes());
        if self.client_flags & handshake_flags::NO_ZEROES == 0 {
            out.extend_from_slice(&[0; 124]);
        }
        HandshakeStep::Transmit(self.chosen(export))
    }

    fn chosen(&self, export: usize) -> ChosenExport {
        let chosen = self.contexts.filter(|(of, _)| *of == export);
        let contexts = chosen.map_or_else(Contexts::default, |(_, contexts)| contexts);
        ChosenExport { export, headers: self.headers, contexts }
    }

    /// Lists or sets metadata contexts. A namespace is a question, not a choice.
    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> HandshakeStep {
        let mut reply = |kind: u32, data: &[u8]| proto::push_option_reply(out, option, kind, data);
        let sets = option == options::SET_META_CONTEXT;
        if sets {
            self.contexts = None;
        }
        let found = match ContextQuery::decode(data) {
            Some(query) if self.headers >= NbdHeaders::Structured => {
                self.find(query.name).map(|export| (export, query.queries))
            }
            _ => {
                reply(replies::ERR_INVALID, &[]);
                return HandshakeStep::Reply;
            }
        };
        let Some((export, queries)) = found else {
            reply(replies::ERR_UNKNOWN, &[]);
            return HandshakeStep::Reply;
        };
        let mut chosen = Contexts::default();
        for (name, namespaces, id, context) in self.offered_contexts(export) {
            let asks = |query: &&[u8]| {
                let is_namespace = namespaces.iter().any(|namespace| *query == namespace.as_bytes());
                *query == name.as_bytes() || !sets && is_namespace
            };
            if queries.iter().any(asks) || !sets && queries.is_empty() {
                let id = if sets { id } else { 0 };
                reply(replies::META_CONTEXT, &[&id.to_be_bytes()[..], name.as_bytes()].concat());
                chosen.insert(context);
            }
        }
        if sets {
            self.contexts = Some((export, chosen));
        }
        reply(replies::ACK, &[]);
        HandshakeStep::Reply
    }

    /// The contexts of an export: name, the namespaces it is in, and number.
    fn offered_contexts(
        &self,
        export: usize,
    ) -> impl Iterator<Item = (String, &'static [&'static str], u32, Contexts)> {
        let allocated =
            (allocation::NAME.to_owned(), &[allocation::NAMESPACE][..], allocation::ID, Contexts::ALLOCATION);
        let changed = self.exports[export].checkpoints.iter().zip(0..).map(|(name, number)| {
            let name = format!("{}{name}", changes::PREFIX);
            let namespaces = &[changes::NAMESPACE, changes::PREFIX][..];
            (name, namespaces, changes::FIRST_ID + number as u32, Contexts::checkpoint(number))
        });
        std::iter::once(allocated).chain(changed)
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> HandshakeStep {
        let mut reply = |kind: u32, data: &[u8]| proto::push_option_reply(out, option, kind, data);
        let Some(query) = InfoQuery::decode(data) else {
            reply(replies::ERR_INVALID, &[]);
            return HandshakeStep::Reply;
        };
        let Some(export) = self.find(query.name) else {
            reply(replies::ERR_UNKNOWN, &[]);
            return HandshakeStep::Reply;
        };
        let facts = &self.exports[export];

        reply(
            replies::INFO,
            &info(infos::EXPORT, |data| {
                data.extend_from_slice(&facts.size_bytes.to_be_bytes());
                data.extend_from_slice(&facts.flags(self.headers).to_be_bytes());
            }),
        );
        if query.wants(infos::NAME) {
            reply(replies::INFO, &info(infos::NAME, |data| data.extend_from_slice(facts.name.as_bytes())));
        }
        if query.wants(infos::DESCRIPTION) && !facts.description.is_empty() {
            let text = facts.description.as_bytes();
            reply(replies::INFO, &info(infos::DESCRIPTION, |data| data.extend_from_slice(text)));
        }
        if query.wants(infos::BLOCK_SIZE) {
            reply(
                replies::INFO,
                &info(infos::BLOCK_SIZE, |data| {
                    facts.block_sizes().iter().for_each(|size| data.extend_from_slice(&size.to_be_bytes()));
                }),
            );
        }
        reply(replies::ACK, &[]);
        match option {
            options::GO => HandshakeStep::Transmit(self.chosen(export)),
            _ => HandshakeStep::Reply,
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        let default = self.default.filter(|_| name.is_empty());
        default.or_else(|| self.exports.iter().position(|export| export.name == name))
    }
}

fn server_entry(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data
}

fn info(kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut data = kind.to_be_bytes().to_vec();
    fill(&mut data);
    data
}

#[cfg(test)]
mod tests;
