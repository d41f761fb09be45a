//! The NBD protocol to the byte: constants, and codecs between bytes and values. Pure; no I/O, no
//! allocation beyond replies.
//!
//! Source: "The NBD protocol", doc/proto.md of the NetworkBlockDevice project (public domain).
//! Every integer is big-endian.
//!
//! ```text
//! request           magic u32 | flags u16 | type u16 | cookie u64 | offset u64 | length u32
//!                   = 28 bytes, + payload of a write
//! simple reply      magic u32 | error u32 | cookie u64
//!                   = 16 bytes, + data of a read
//! structured reply  magic u32 | flags u16 | type u16 | cookie u64 | length u32
//!                   = 20 bytes, + `length` bytes
//! with extended headers
//!   request         magic u32 | flags u16 | type u16 | cookie u64 | offset u64 | length u64
//!                   = 32 bytes, + payload of `length` bytes if the flags say so
//!   reply           magic u32 | flags u16 | type u16 | cookie u64 | offset u64 | length u64
//!                   = 32 bytes, + `length` bytes
//! option            "IHAVEOPT" | option u32 | length u32
//!                   = 16 bytes, + `length` bytes
//! option reply      magic u64 | option u32 | reply u32 | length u32
//!                   = 20 bytes, + `length` bytes
//! ```

/// First eight bytes of every server: "NBDMAGIC".
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Starts the server's second half of the greeting and every option of the client: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts every chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Starts every request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Starts every chunk of a reply with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Length of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Length of the client's answer to the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Length of an option without its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Length of a request with an extended header, without its payload.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Length of a reply to an option without its data.
pub const OPTION_REPLY_BYTES: usize = 20;
/// Length of a simple reply without the data of a read.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// The longest name the protocol allows.
pub const NAME_BYTES_MAX: usize = 4096;

/// Handshake flags, the same bits from the server and from the client.
pub mod handshake_flags {
    /// Options other than `EXPORT_NAME` are understood.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The 124 zeroes after the answer to `EXPORT_NAME` may be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// What a client asks for during the handshake.
pub mod options {
    /// Chooses an export and ends the handshake; cannot be refused but by hanging up.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the handshake and the connection.
    pub const ABORT: u32 = 2;
    /// Names the exports.
    pub const LIST: u32 = 3;
    /// Turns on TLS.
    pub const STARTTLS: u32 = 5;
    /// Describes an export.
    pub const INFO: u32 = 6;
    /// Describes an export, chooses it and ends the handshake.
    pub const GO: u32 = 7;
    /// Reads are answered with structured replies from now on.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Names the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Requests and replies have extended headers from now on; replies are structured.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Answers to options.
pub mod replies {
    /// Done, or the end of a list.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One metadata context, of a list or chosen.
    pub const META_CONTEXT: u32 = 4;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The server is not allowed to.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// The option's data is malformed.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// Not without TLS.
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The server is stopping.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    /// The option's data is longer than the server reads.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
    /// Extended headers say all that the option could.
    pub const ERR_EXT_HEADER_REQD: u32 = (1 << 31) + 10;
}

/// Pieces of information on an export.
pub mod infos {
    /// Size and transmission flags; always sent.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A sentence for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum size of a request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub mod transmission_flags {
    /// The other flags are meant.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag `FUA` is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag `DF` is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of every connection.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Flags of a request.
pub mod command_flags {
    /// The reply waits until the data is durable.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes are written, not punched.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data of a read comes in one chunk.
    pub const DF: u16 = 1 << 2;
    /// Of a block status one extent is wanted.
    pub const REQ_ONE: u16 = 1 << 3;
    /// In an extended header: the length is that of a payload which follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of requests.
pub mod commands {
    /// Reads a range.
    pub const READ: u16 = 0;
    /// Writes a range; the payload follows the request.
    pub const WRITE: u16 = 1;
    /// Ends the connection; no reply.
    pub const DISC: u16 = 2;
    /// Makes every acknowledged write durable.
    pub const FLUSH: u16 = 3;
    /// The range is no longer needed.
    pub const TRIM: u16 = 4;
    /// Makes a range read as zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tells what is known of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Types and flags of structured replies.
mod chunks {
    pub(super) const FLAG_DONE: u16 = 1 << 0;
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const BLOCK_STATUS_EXT: u16 = 6;
    pub(super) const ERROR: u16 = (1 << 15) + 1;
}

/// The errors a reply can carry; the protocol fixes their numbers on every platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdErrno {
    /// `EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `EIO`: the data could not be read or written.
    Io = 5,
    /// `EINVAL`: the request makes no sense here.
    Invalid = 22,
    /// `ENOSPC`: the write reaches beyond the end, or a member is full.
    NoSpace = 28,
    /// `EOVERFLOW`: longer than the server answers in one piece.
    Overflow = 75,
    /// `ESHUTDOWN`: the server is stopping.
    Shutdown = 108,
}

/// What requests and replies of a connection begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NbdHeaders {
    /// Simple replies only.
    Simple,
    /// Reads and block status are answered with structured replies.
    Structured,
    /// Everything is answered with structured replies, and lengths have 64 bits.
    Extended,
}

/// A request as it stands on the wire, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NbdRequest {
    /// [`command_flags`].
    pub flags: u16,
    /// One of [`commands`], or anything else.
    pub kind: u16,
    /// The client's name for the request, returned in the reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset_bytes: u64,
    /// Length of the range; without extended headers it has 32 bits.
    pub length_bytes: u64,
}

impl NbdRequest {
    /// Decodes a request; `None` if the magic is wrong, after which the stream cannot be trusted
    /// any more.
    #[must_use]
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u32()?;
        let request = Self {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: fields.u64()?,
            offset_bytes: fields.u64()?,
            length_bytes: fields.u32()?.into(),
        };
        (magic == REQUEST_MAGIC).then_some(request)
    }

    /// The same of a request with an extended header.
    #[must_use]
    pub fn decode_extended(bytes: &[u8; EXTENDED_REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u32()?;
        let request = Self {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: fields.u64()?,
            offset_bytes: fields.u64()?,
            length_bytes: fields.u64()?,
        };
        (magic == EXTENDED_REQUEST_MAGIC).then_some(request)
    }

    /// Encodes the request; the inverse of [`NbdRequest::decode`]. Of its length 32 bits are kept.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        bytes[24..28].copy_from_slice(&(self.length_bytes as u32).to_be_bytes());
        bytes
    }

    /// Bytes that follow the request on the wire. They follow whether or not the request makes
    /// sense.
    #[must_use]
    pub fn payload_bytes(&self, headers: NbdHeaders) -> u64 {
        let says_so = headers == NbdHeaders::Extended && self.flags & command_flags::PAYLOAD_LEN != 0;
        if self.kind == commands::WRITE || says_so { self.length_bytes } else { 0 }
    }
}

/// Everything of a reply but the data of a read: at most [`ReplyHeader::BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy)]
pub struct ReplyHeader {
    bytes: [u8; Self::BYTES_MAX],
    length: u8,
}

impl ReplyHeader {
    /// An extended header with the offset of the data.
    pub const BYTES_MAX: usize = 40;

    /// The bytes to send.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// A simple reply; data of a read follows a success.
    #[must_use]
    pub fn simple(cookie: u64, error: Option<NbdErrno>) -> Self {
        let mut header = Self { bytes: [0; Self::BYTES_MAX], length: 0 };
        header.push(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        header.push(&error.map_or(0, |errno| errno as u32).to_be_bytes());
        header.push(&cookie.to_be_bytes());
        header
    }

    /// The only chunk of a structured reply with data: as many bytes of it follow as were asked
    /// for, at least one.
    #[must_use]
    pub fn data(headers: NbdHeaders, request: &NbdRequest) -> Self {
        let mut header = Self::chunk(headers, chunks::OFFSET_DATA, request, request.length_bytes + 8);
        header.push(&request.offset_bytes.to_be_bytes());
        header
    }

    /// A chunk of a structured reply with block status, perhaps the last: `data_bytes` follow.
    #[must_use]
    pub fn block_status(headers: NbdHeaders, request: &NbdRequest, data_bytes: u64, is_last: bool) -> Self {
        let kind =
            if headers == NbdHeaders::Extended { chunks::BLOCK_STATUS_EXT } else { chunks::BLOCK_STATUS };
        let mut header = Self::chunk(headers, kind, request, data_bytes);
        if !is_last {
            header.bytes[4..6].copy_from_slice(&0_u16.to_be_bytes());
        }
        header
    }

    /// Of a reply whose chunks are whole in its data.
    #[must_use]
    pub fn within_data() -> Self {
        Self { bytes: [0; Self::BYTES_MAX], length: 0 }
    }

    /// The only chunk of a structured reply that has no data to return.
    #[must_use]
    pub fn none(headers: NbdHeaders, request: &NbdRequest) -> Self {
        Self::chunk(headers, chunks::NONE, request, 0)
    }

    /// The only chunk of a structured reply that failed, without a message.
    #[must_use]
    pub fn error(headers: NbdHeaders, request: &NbdRequest, errno: NbdErrno) -> Self {
        let mut header = Self::chunk(headers, chunks::ERROR, request, 6);
        header.push(&(errno as u32).to_be_bytes());
        header.push(&0_u16.to_be_bytes());
        header
    }

    /// The last chunk, of so many bytes: far less than 4 GiB.
    fn chunk(headers: NbdHeaders, kind: u16, request: &NbdRequest, length_bytes: u64) -> Self {
        let is_extended = headers == NbdHeaders::Extended;
        let mut header = Self { bytes: [0; Self::BYTES_MAX], length: 0 };
        let magic = if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        header.push(&magic.to_be_bytes());
        header.push(&chunks::FLAG_DONE.to_be_bytes());
        header.push(&kind.to_be_bytes());
        header.push(&request.cookie.to_be_bytes());
        if is_extended {
            header.push(&request.offset_bytes.to_be_bytes());
            header.push(&length_bytes.to_be_bytes());
        } else {
            header.push(&(length_bytes as u32).to_be_bytes());
        }
        header
    }

    fn push(&mut self, field: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + field.len()].copy_from_slice(field);
        self.length += field.len() as u8;
    }
}

/// The server's greeting.
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[0..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    let flags = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
    bytes[16..18].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// A client's answer to the greeting.
#[must_use]
pub fn client_flags() -> [u8; CLIENT_FLAGS_BYTES] {
    u32::from(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES).to_be_bytes()
}

/// A client's choice of an export. Names are shorter than 4 GiB.
#[must_use]
pub fn go(export: &str) -> Vec<u8> {
    let name_bytes = export.len() as u32;
    // The name with its length, and one piece of information beside what comes anyway.
    let mut bytes = option(options::GO, name_bytes + 8);
    bytes.extend(name_bytes.to_be_bytes());
    bytes.extend(export.as_bytes());
    bytes.extend(1_u16.to_be_bytes());
    bytes.extend(infos::BLOCK_SIZE.to_be_bytes());
    bytes
}

/// A client's wish to go on with TLS.
#[must_use]
pub fn start_tls() -> Vec<u8> {
    option(options::STARTTLS, 0)
}

/// An option with so many bytes of data, which follow.
fn option(option: u32, data_bytes: u32) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(data_bytes.to_be_bytes());
    bytes
}

/// Cookie and error of a simple reply; `None` if the magic is wrong.
#[must_use]
pub fn decode_simple_reply(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Option<(u64, u32)> {
    let mut fields = Fields(bytes);
    let (magic, error, cookie) = (fields.u32()?, fields.u32()?, fields.u64()?);
    (magic == SIMPLE_REPLY_MAGIC).then_some((cookie, error))
}

/// Appends a reply to `option`. `data` is a handful of bytes or a name, so its length fits.
pub fn push_option_reply(out: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&reply.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}

/// What `INFO` and `GO` carry: a name and the pieces of information asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoQuery<'a> {
    /// Name of the export; empty is the default export.
    pub name: &'a str,
    wanted: &'a [u8],
}

impl<'a> InfoQuery<'a> {
    /// Decodes the data of `INFO` or `GO`; `None` if it is malformed.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name_bytes = fields.u32()? as usize;
        if name_bytes > NAME_BYTES_MAX {
            return None;
        }
        let name = str::from_utf8(fields.take(name_bytes)?).ok()?;
        let count = usize::from(fields.u16()?);
        let wanted = fields.take(2 * count)?;
        fields.0.is_empty().then_some(Self { name, wanted })
    }

    /// The client asked for this one of [`infos`].
    #[must_use]
    pub fn wants(&self, info: u16) -> bool {
        self.wanted.chunks_exact(2).any(|code| code == info.to_be_bytes())
    }
}

/// The metadata context of what is allocated, and its states.
pub mod allocation {
    /// Its name.
    pub const NAME: &str = "base:allocation";
    /// What a client asks for that wants to know of all of `base:`.
    pub const NAMESPACE: &str = "base:";
    /// What the server calls it.
    pub const ID: u32 = 1;
    /// Nothing is allocated.
    pub const HOLE: u32 = 1 << 0;
    /// It reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// The metadata contexts of what has changed, as QEMU names them, and their state.
pub mod changes {
    /// Before the name of a checkpoint.
    pub const PREFIX: &str = "qemu:dirty-bitmap:";
    /// What a client asks for that wants to know of all of `qemu:`.
    pub const NAMESPACE: &str = "qemu:";
    /// What the server calls the first one.
    pub const FIRST_ID: u32 = 2;
    /// The range has changed.
    pub const DIRTY: u32 = 1 << 0;
}

/// What `LIST_META_CONTEXT` and `SET_META_CONTEXT` carry: a name, and what is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextQuery<'a> {
    /// Name of the export; empty is the default export.
    pub name: &'a str,
    /// Names of contexts, or of namespaces.
    pub queries: Vec<&'a [u8]>,
}

impl<'a> ContextQuery<'a> {
    /// Decodes the data of these options; `None` if it is malformed.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let text = |fields: &mut Fields<'a>| {
            let bytes = fields.u32()? as usize;
            fields.take(bytes)
        };
        let name = text(&mut fields).filter(|name| name.len() <= NAME_BYTES_MAX)?;
        let name = str::from_utf8(name).ok()?;
        let count = fields.u32()?;
        // Each takes four bytes at least: no number of them takes more memory than the option.
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(text(&mut fields)?);
        }
        fields.0.is_empty().then_some(Self { name, queries })
    }
}

/// Reads big-endian fields off the front of a slice; `None` when it ends early.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_a_round_trip() {
        let request = NbdRequest {
            flags: 0x0102,
            kind: 0x0304,
            cookie: 0x1112_1314_1516_1718,
            offset_bytes: 0x2122_2324_2526_2728,
            length_bytes: 0x3132_3334,
        };
        let bytes = request.encode();
        assert_eq!(NbdRequest::decode(&bytes), Some(request));
        // Every field stands where the protocol has it.
        let expected = [
            0x25, 0x60, 0x95, 0x13, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
            0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_wrong_magic_is_no_request() {
        let request = NbdRequest { flags: 0, kind: 0, cookie: 0, offset_bytes: 0, length_bytes: 0 };
        for bit in 0..32 {
            let mut bytes = request.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(NbdRequest::decode(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn writes_have_a_payload_and_what_says_so_in_an_extended_header() {
        for kind in 0..16 {
            for flags in [0, command_flags::PAYLOAD_LEN] {
                let request = NbdRequest { flags, kind, cookie: 0, offset_bytes: 0, length_bytes: 7 };
                let structured = request.payload_bytes(NbdHeaders::Structured);
                assert_eq!(structured, if kind == 1 { 7 } else { 0 });
                let extended = request.payload_bytes(NbdHeaders::Extended);
                assert_eq!(extended, if kind == 1 || flags != 0 { 7 } else { 0 });
            }
        }
    }

    #[test]
    fn an_extended_request_stands_where_the_protocol_has_it() {
        let bytes = [
            0x21, 0xe4, 0x1c, 0x71, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
            0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
        ];
        let request = NbdRequest {
            flags: 0x0102,
            kind: 0x0304,
            cookie: 0x1112_1314_1516_1718,
            offset_bytes: 0x2122_2324_2526_2728,
            length_bytes: 0x3132_3334_3536_3738,
        };
        assert_eq!(NbdRequest::decode_extended(&bytes), Some(request));
        for bit in 0..32 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(NbdRequest::decode_extended(&wrong), None, "bit {bit}");
        }
    }

    #[test]
    fn reply_headers_are_what_the_protocol_says() {
        let hex =
            |header: ReplyHeader| header.as_bytes().iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(ReplyHeader::simple(0xab, None)), "674466980000000000000000000000ab");
        assert_eq!(hex(ReplyHeader::simple(0xab, Some(NbdErrno::Io))), "674466980000000500000000000000ab");
        let request =
            NbdRequest { flags: 0, kind: 0, cookie: 0xab, offset_bytes: 0x1000, length_bytes: 0x200 };
        let (plain, extended) = (NbdHeaders::Structured, NbdHeaders::Extended);
        for (headers, start, length, status) in
            [(plain, "668e33ef", "", "5"), (extended, "6e8a278c", "000000000000100000000000", "6")]
        {
            let front = |flags_and_kind: &str| format!("{start}{flags_and_kind}00000000000000ab{length}");
            assert_eq!(hex(ReplyHeader::none(headers, &request)), front("00010000") + "00000000");
            let data = front("00010001") + "000002080000000000001000";
            assert_eq!(hex(ReplyHeader::data(headers, &request)), data);
            let error = front("00018001") + "000000060000006c0000";
            assert_eq!(hex(ReplyHeader::error(headers, &request, NbdErrno::Shutdown)), error);
            for (is_last, done) in [(true, "1"), (false, "0")] {
                let header = ReplyHeader::block_status(headers, &request, 12, is_last);
                assert_eq!(hex(header), front(&format!("000{done}000{status}")) + "0000000c");
            }
        }
    }

    #[test]
    fn a_simple_reply_is_decoded_as_it_was_encoded() {
        let decoded = |header: ReplyHeader| decode_simple_reply(header.as_bytes().first_chunk().unwrap());
        assert_eq!(decoded(ReplyHeader::simple(0xab, None)), Some((0xab, 0)));
        assert_eq!(decoded(ReplyHeader::simple(7, Some(NbdErrno::NoSpace))), Some((7, 28)));
        let request = NbdRequest { flags: 0, kind: 0, cookie: 7, offset_bytes: 0, length_bytes: 0 };
        assert_eq!(decoded(ReplyHeader::none(NbdHeaders::Structured, &request)), None);
    }

    #[test]
    fn the_greeting_reads_as_it_should() {
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
    }

    #[test]
    fn info_queries_are_exactly_as_long_as_they_say() {
        let data = b"\x00\x00\x00\x02md\x00\x02\x00\x03\x00\x01";
        let query = InfoQuery::decode(data).unwrap();
        assert_eq!(query.name, "md");
        assert!(
            query.wants(infos::BLOCK_SIZE) && query.wants(infos::NAME) && !query.wants(infos::DESCRIPTION)
        );
        for end in 0..data.len() {
            assert_eq!(InfoQuery::decode(&data[..end]), None, "cut at {end}");
        }
        assert_eq!(InfoQuery::decode(b"\x00\x00\x00\x02md\x00\x00\x00"), None, "a byte too many");
        assert_eq!(InfoQuery::decode(b"\xff\xff\xff\xffmd\x00\x00"), None, "a name longer than the data");
        assert_eq!(InfoQuery::decode(b"\x00\x00\x00\x01\xff\x00\x00"), None, "a name that is not UTF-8");
    }
}
