//! The handshake as a state machine over bytes: fixed newstyle, and nothing older. Pure.
//!
//! Invariants: after every call of [`Handshake::advance`] what was consumed is answered in full in
//! `out`; the client makes the server hold no more than [`HANDSHAKE_BYTES_MAX`] bytes; an unknown
//! or refused option leaves the state as it was.

use super::limits::REQUEST_BYTES_MAX;
use super::protocol::{
    self as proto, Fields, InfoQuery, handshake_flags, infos, options, replies, transmission_flags,
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
}

impl ExportFacts {
    /// The transmission flags of this export. `DF` means something only with structured replies.
    fn flags(&self, structured: bool) -> u16 {
        use transmission_flags as flags;
        let access = if self.read_only {
            flags::READ_ONLY
        } else {
            flags::SEND_FUA | flags::SEND_TRIM | flags::SEND_WRITE_ZEROES
        };
        let df = if structured { flags::SEND_DF } else { 0 };
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
    /// Reads are answered with structured replies.
    pub structured: bool,
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
    structured: bool,
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
            structured: false,
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
                (self.tls, self.structured) = (TlsStep::Begun, false);
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
            options::LIST | options::STRUCTURED_REPLY if !data.is_empty() => reply(replies::ERR_INVALID, &[]),
            options::LIST => {
                for export in self.exports {
                    reply(replies::SERVER, &server_entry(&export.name));
                }
                reply(replies::ACK, &[])
            }
            options::STRUCTURED_REPLY => {
                self.structured = true;
                reply(replies::ACK, &[])
            }
            // STARTTLS without TLS. Metadata contexts: the engine knows nothing about allocation,
            // and a server that answers "all data" everywhere only costs the client a round trip
            // per extent.
            _ => reply(replies::ERR_UNSUP, &[]),
        }
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> HandshakeStep {
        let Some(export) = str::from_utf8(data).ok().and_then(|name| self.find(name)) else {
            return HandshakeStep::Close;
        };
        let facts = &self.exports[export];
        out.extend_from_slice(&facts.size_bytes.to_be_bytes());
        out.extend_from_slice(&facts.flags(self.structured).to_be_bytes());
        if self.client_flags & handshake_flags::NO_ZEROES == 0 {
            out.extend_from_slice(&[0; 124]);
        }
        HandshakeStep::Transmit(ChosenExport { export, structured: self.structured })
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
                data.extend_from_slice(&facts.flags(self.structured).to_be_bytes());
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
            options::GO => HandshakeStep::Transmit(ChosenExport { export, structured: self.structured }),
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn export(name: &str) -> ExportFacts {
        ExportFacts {
            name: name.to_owned(),
            description: "a test".to_owned(),
            size_bytes: 1 << 30,
            read_only: false,
            io_min_bytes: 512,
        }
    }

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn query(name: &str, wanted: &[u16]) -> Vec<u8> {
        let mut data = server_entry(name);
        data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
        data
    }

    const FIXED: [u8; 4] = [0, 0, 0, 3];

    /// Feeds `input` in pieces of `piece` bytes; returns what was answered, how it ended, and the
    /// bytes left over.
    fn run(exports: &[ExportFacts], input: &[u8], piece: usize) -> (Vec<u8>, HandshakeStep, usize) {
        let mut handshake = Handshake::new(exports, (exports.len() == 1).then_some(0));
        let (mut out, mut pending, mut fed) = (Vec::new(), Vec::new(), 0);
        loop {
            let (used, step) = handshake.advance(&pending, &mut out);
            pending.drain(..used);
            assert!(pending.len() <= HANDSHAKE_BYTES_MAX + piece);
            match step {
                HandshakeStep::Reply => {}
                HandshakeStep::More if fed < input.len() => {
                    let end = input.len().min(fed + piece);
                    pending.extend_from_slice(&input[fed..end]);
                    fed = end;
                }
                ended => return (out, ended, pending.len() + input.len() - fed),
            }
        }
    }

    /// Option, reply and data.
    type OptionReply = (u32, u32, Vec<u8>);

    /// Splits a stream of option replies.
    fn split(mut out: &[u8]) -> Vec<OptionReply> {
        let mut split = Vec::new();
        while !out.is_empty() {
            let mut fields = Fields(out);
            assert_eq!(fields.u64(), Some(proto::OPTION_REPLY_MAGIC));
            let (option, reply, length) =
                (fields.u32().unwrap(), fields.u32().unwrap(), fields.u32().unwrap());
            split.push((option, reply, fields.take(length as usize).unwrap().to_vec()));
            out = fields.0;
        }
        split
    }

    #[test]
    fn go_chooses_an_export_however_the_bytes_arrive() {
        let mut input = FIXED.to_vec();
        input.extend(option(options::STRUCTURED_REPLY, &[]));
        input.extend(option(options::GO, &query("b", &[infos::NAME, infos::DESCRIPTION, infos::BLOCK_SIZE])));
        input.extend_from_slice(b"the first request");
        let exports = [export("a"), export("b")];
        for piece in [1, 2, 3, 7, 1000] {
            let (out, step, left) = run(&exports, &input, piece);
            assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 1, structured: true }));
            assert_eq!(left, 17, "requests behind the handshake are left alone");
            let replies = split(&out);
            assert_eq!(replies[0], (options::STRUCTURED_REPLY, replies::ACK, vec![]));
            // 0x1ed: has flags, flush, fua, trim, write zeroes, df, multi-conn.
            assert_eq!(replies[1], (options::GO, replies::INFO, b"\0\0\0\0\0\0\x40\0\0\0\x01\xed".to_vec()));
            assert_eq!(replies[2].2, b"\0\x01b");
            assert_eq!(replies[3].2, b"\0\x02a test");
            assert_eq!(replies[4].2, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0");
            assert_eq!(replies[5], (options::GO, replies::ACK, vec![]));
        }
    }

    #[test]
    fn export_name_is_answered_without_zeroes_only_if_the_client_agrees() {
        for (flags, zeroes) in
            [([0, 0, 0, 3], 0), ([0, 0, 0, 2], 0), ([0, 0, 0, 1], 124), ([0, 0, 0, 0], 124)]
        {
            let mut input = flags.to_vec();
            input.extend(option(options::EXPORT_NAME, b"a"));
            let (out, step, _) = run(&[export("a")], &input, 5);
            assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 0, structured: false }));
            assert_eq!(out.len(), 10 + zeroes);
            assert_eq!(&out[..10], b"\0\0\0\0\x40\0\0\0\x01\x6d");
        }
    }

    #[test]
    fn the_empty_name_is_the_only_export_or_none() {
        let go = [FIXED.to_vec(), option(options::GO, &query("", &[]))].concat();
        let (_, step, _) = run(&[export("a")], &go, 64);
        assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 0, structured: false }));
        let (out, step, _) = run(&[export("a"), export("b")], &go, 64);
        assert_eq!((split(&out)[0].1, step), (replies::ERR_UNKNOWN, HandshakeStep::More));
        let name = [FIXED.to_vec(), option(options::EXPORT_NAME, b"")].concat();
        assert_eq!(run(&[export("a"), export("b")], &name, 64).1, HandshakeStep::Close);
    }

    #[test]
    fn info_leaves_the_handshake_open() {
        let mut input = FIXED.to_vec();
        input.extend(option(options::INFO, &query("a", &[])));
        input.extend(option(options::ABORT, &[]));
        let (out, step, _) = run(&[export("a")], &input, 64);
        assert_eq!(step, HandshakeStep::Close);
        let kinds: Vec<u32> = split(&out).iter().map(|reply| reply.1).collect();
        assert_eq!(kinds, [replies::INFO, replies::ACK, replies::ACK]);
    }

    #[test]
    fn list_names_every_export() {
        let input = [FIXED.to_vec(), option(options::LIST, &[]), option(options::LIST, b"x")].concat();
        let (out, _, _) = run(&[export("a"), export("vg/lv")], &input, 64);
        let replies = split(&out);
        assert_eq!(replies[0], (options::LIST, replies::SERVER, b"\0\0\0\x01a".to_vec()));
        assert_eq!(replies[1], (options::LIST, replies::SERVER, b"\0\0\0\x05vg/lv".to_vec()));
        assert_eq!(replies[2].1, replies::ACK);
        assert_eq!(replies[3].1, replies::ERR_INVALID);
    }

    #[test]
    fn what_is_not_offered_is_refused_and_the_handshake_goes_on() {
        let mut input = FIXED.to_vec();
        let refused =
            [options::STARTTLS, options::LIST_META_CONTEXT, options::SET_META_CONTEXT, 11, 0, u32::MAX];
        refused.iter().for_each(|unknown| input.extend(option(*unknown, b"data")));
        input.extend(option(options::GO, &query("none such", &[])));
        input.extend(option(options::GO, b"junk"));
        input.extend(option(options::GO, &query("a", &[])));
        let (out, step, _) = run(&[export("a")], &input, 64);
        assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 0, structured: false }));
        let replies = split(&out);
        assert!(replies[..6].iter().all(|reply| reply.1 == replies::ERR_UNSUP));
        assert_eq!(replies[6].1, replies::ERR_UNKNOWN);
        assert_eq!(replies[7].1, replies::ERR_INVALID);
    }

    #[test]
    fn long_options_are_skipped_and_refused() {
        let mut input = FIXED.to_vec();
        input.extend(option(options::GO, &vec![b'a'; OPTION_BYTES_MAX + 1]));
        input.extend(option(options::GO, &query("a", &[])));
        for piece in [100, 100_000] {
            let (out, step, _) = run(&[export("a")], &input, piece);
            assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 0, structured: false }));
            assert_eq!(split(&out)[0], (options::GO, replies::ERR_TOO_BIG, vec![]));
        }
    }

    #[test]
    fn clients_that_make_no_sense_are_hung_up_on() {
        let endless = std::iter::repeat_n(option(options::LIST, &[]), OPTIONS_MAX as usize + 1).flatten();
        let cases = [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            [FIXED.to_vec(), b"IHAVEOPS\0\0\0\x03\0\0\0\0".to_vec()].concat(),
            [FIXED.to_vec(), option(options::EXPORT_NAME, &[b'a'; 4097])].concat(),
            [FIXED.to_vec(), option(options::EXPORT_NAME, b"none such")].concat(),
            [FIXED.to_vec(), option(options::EXPORT_NAME, b"\xff")].concat(),
            // Without fixed newstyle, only EXPORT_NAME is known to the client.
            [vec![0, 0, 0, 0], option(options::LIST, &[])].concat(),
            FIXED.into_iter().chain(endless).collect(),
        ];
        for input in cases {
            assert_eq!(run(&[export("a")], &input, 64).1, HandshakeStep::Close);
        }
    }

    /// Feeds a handshake that requires TLS; what was answered, how it ended, and what is left.
    fn run_in_clear(input: &[u8]) -> (Vec<OptionReply>, HandshakeStep, usize) {
        let exports = [export("a")];
        let mut handshake = Handshake::new(&exports, Some(0)).requiring_tls();
        let (mut out, mut rest) = (Vec::new(), input);
        loop {
            let (used, step) = handshake.advance(rest, &mut out);
            rest = &rest[used..];
            if step != HandshakeStep::Reply && (step != HandshakeStep::More || used == 0) {
                return (split(&out), step, rest.len());
            }
        }
    }

    #[test]
    fn nothing_is_told_before_tls() {
        let mut input = FIXED.to_vec();
        let asked = [options::LIST, options::STRUCTURED_REPLY, options::SET_META_CONTEXT, 77];
        asked.iter().for_each(|kind| input.extend(option(*kind, &[])));
        for kind in [options::INFO, options::GO] {
            input.extend(option(kind, &query("a", &[infos::NAME])));
        }
        input.extend(option(options::GO, &[0; OPTION_BYTES_MAX + 1]));
        input.extend(option(options::STARTTLS, b"data"));
        input.extend(option(options::STARTTLS, &[]));
        input.extend_from_slice(b"injected");
        let (answers, step, left) = run_in_clear(&input);
        assert_eq!((step, left), (HandshakeStep::StartTls, 8));
        let kinds: Vec<u32> = answers.iter().map(|(_, kind, _)| *kind).collect();
        let required = [replies::ERR_TLS_REQD; 7];
        assert_eq!(kinds, [&required[..], &[replies::ERR_INVALID, replies::ACK]].concat());
        assert!(answers.iter().all(|(.., data)| data.is_empty()));
        // An export name cannot be refused in another way, and a goodbye is one.
        let name = [&FIXED[..], &option(options::EXPORT_NAME, b"a")].concat();
        assert_eq!(run_in_clear(&name).1, HandshakeStep::Close);
        let (answers, step, _) = run_in_clear(&[&FIXED[..], &option(options::ABORT, &[])].concat());
        assert_eq!((answers[0].1, step), (replies::ACK, HandshakeStep::Close));
        // The first bytes of TLS itself.
        assert_eq!(run_in_clear(&[0x16, 3, 1, 0, 5]).1, HandshakeStep::Close);
    }

    #[test]
    fn what_was_said_in_clear_is_forgotten() {
        let exports = [export("a")];
        let (mut handshake, mut out) = (Handshake::new(&exports, Some(0)).requiring_tls(), Vec::new());
        handshake.structured = true;
        for message in [FIXED.to_vec(), option(options::STARTTLS, &[])] {
            assert_eq!(handshake.advance(&message, &mut out).0, message.len());
        }
        out.clear();
        handshake.advance(&option(options::STARTTLS, &[]), &mut out);
        assert_eq!(split(&out), [(options::STARTTLS, replies::ERR_INVALID, vec![])], "once is enough");
        let (_, step) = handshake.advance(&option(options::GO, &query("", &[])), &mut out);
        assert_eq!(step, HandshakeStep::Transmit(ChosenExport { export: 0, structured: false }));
    }

    #[test]
    fn the_preferred_size_is_one_the_protocol_can_say() {
        let preferred = |io_min_bytes| ExportFacts { io_min_bytes, ..export("a") }.block_sizes()[1];
        assert_eq!(preferred(512), 4096);
        assert_eq!(preferred(64 << 10), 64 << 10);
        assert_eq!(preferred(32 << 20), 32 << 20);
        assert_eq!(preferred(64 << 20), 4096);
        assert_eq!(preferred(3 << 16), 4096);
        assert_eq!(preferred(0), 4096);
    }

    #[test]
    fn a_read_only_export_says_so() {
        let facts = ExportFacts { read_only: true, ..export("a") };
        // Has flags, read-only, flush, multi-conn.
        assert_eq!(facts.flags(false), 0x107);
    }

    /// Sometimes an option that makes sense, sometimes any bytes.
    fn message() -> impl Strategy<Value = Vec<u8>> {
        let data = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            Just(query("a", &[0, 1, 2, 3])),
            Just(query("b", &[])),
            Just(vec![0; OPTION_BYTES_MAX + 1]),
        ];
        prop_oneof![
            8 => (0..12_u32, data).prop_map(|(code, data)| option(code, &data)),
            1 => prop::collection::vec(any::<u8>(), 0..40),
        ]
    }

    proptest! {
        #[test]
        fn the_answer_depends_on_the_bytes_and_not_on_their_arrival(
            messages in prop::collection::vec(message(), 0..20),
            flags in 0..4_u8,
            piece in 1..3000_usize,
        ) {
            let input = [vec![0, 0, 0, flags], messages.concat()].concat();
            let exports = [export("a"), export("b")];
            prop_assert_eq!(run(&exports, &input, piece), run(&exports, &input, usize::MAX / 2));
        }
    }
}
