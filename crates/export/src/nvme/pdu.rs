//! The packets (PDUs) of the NVMe/TCP transport, as bytes and back. Pure.
//!
//! Every PDU begins with eight bytes that say what it is and how long it is. [`frame`] checks them
//! before anything is received for it: what it accepts is a layout whose parts add up to the
//! length that the PDU claims, and none of which is longer than [`PduLimits`] allows.
//!
//! Source: NVM Express TCP Transport Specification, revision 1.0, section 3.6.

use super::limits::{ADMIN_CAPSULE_BYTES, HOST_DATA_BYTES_MAX, IN_CAPSULE_BYTES_MAX};

/// What every PDU begins with.
pub const COMMON_BYTES: usize = 8;
/// A digest: CRC-32C, little endian.
pub const DIGEST_BYTES: usize = 4;
/// A submission queue entry.
pub const ENTRY_BYTES: usize = 64;
/// The longest header of a PDU: that of the connection's first one.
pub const HEADER_BYTES_MAX: usize = 128;
/// The longest padding between header and data.
const PAD_BYTES_MAX: usize = 128;
/// What the PDU that ends a connection may repeat of the one at fault.
const TERMINATION_DATA_BYTES_MAX: usize = 128;

const FLAG_HEADER_DIGEST: u8 = 1 << 0;
const FLAG_DATA_DIGEST: u8 = 1 << 1;
const FLAG_LAST: u8 = 1 << 2;
const FLAG_SUCCESS: u8 = 1 << 3;

mod kinds {
    pub const INITIALIZE_REQUEST: u8 = 0x00;
    pub const INITIALIZE_RESPONSE: u8 = 0x01;
    pub const HOST_TERMINATION: u8 = 0x02;
    pub const CONTROLLER_TERMINATION: u8 = 0x03;
    pub const COMMAND: u8 = 0x04;
    pub const RESPONSE: u8 = 0x05;
    pub const HOST_DATA: u8 = 0x06;
    pub const CONTROLLER_DATA: u8 = 0x07;
    pub const READY_TO_TRANSFER: u8 = 0x09;
}

/// A PDU that only a host sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPdu {
    /// The first one of a connection: ICReq.
    Initialize,
    /// The host ends the connection: H2CTermReq.
    Terminate,
    /// A command, perhaps with its data: CapsuleCmd.
    Command,
    /// Data that was asked for: H2CData.
    Data,
}

/// Which digests were agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// Behind every header.
    pub header: bool,
    /// Behind all data.
    pub data: bool,
}

/// Why a connection is ended, as both sides' termination requests say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PduFault {
    /// FES.
    pub status: FaultStatus,
    /// FEI: for an invalid field the offset of it in the header; for a digest what was received.
    pub information: u32,
}

/// The fatal error status (FES) of a termination request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum FaultStatus {
    /// A field of the header cannot be.
    InvalidField = 1,
    /// The PDU does not belong here.
    Sequence = 2,
    /// The digest of the header is wrong.
    HeaderDigest = 3,
    /// Data lies outside what was asked for.
    OutOfRange = 4,
    /// More is under way than was agreed on.
    LimitExceeded = 5,
}

impl PduFault {
    /// A field of the header at this offset cannot be.
    pub const fn field(offset: u32) -> Self {
        Self { status: FaultStatus::InvalidField, information: offset }
    }

    /// The PDU does not belong here.
    pub const SEQUENCE: Self = Self { status: FaultStatus::Sequence, information: 0 };
}

/// What a connection takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PduLimits {
    /// Data that comes with a command, in bytes.
    pub capsule_data_bytes: usize,
    /// Data of one PDU of data, in bytes.
    pub host_data_bytes: usize,
}

impl PduLimits {
    /// Of a queue for reads and writes, or of one for administration.
    pub const fn of_queue(is_admin: bool) -> Self {
        let capsule_data_bytes = if is_admin { ADMIN_CAPSULE_BYTES } else { IN_CAPSULE_BYTES_MAX };
        Self { capsule_data_bytes, host_data_bytes: HOST_DATA_BYTES_MAX }
    }
}

/// How a PDU is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PduFrame {
    /// What it is.
    pub kind: HostPdu,
    /// Its header, the eight common bytes included.
    pub header_bytes: usize,
    /// A digest follows the header.
    pub has_header_digest: bool,
    /// Bytes between header and digest, and data.
    pub pad_bytes: usize,
    /// Its data; 0 for none.
    pub data_bytes: usize,
    /// A digest follows the data.
    pub has_data_digest: bool,
    /// No more data follows for this command (of PDUs of data).
    pub is_last: bool,
}

impl PduFrame {
    /// Everything before the data, in bytes.
    pub fn head_bytes(&self) -> usize {
        self.header_bytes + if self.has_header_digest { DIGEST_BYTES } else { 0 } + self.pad_bytes
    }
}

/// The layout of a PDU of a host, from its first bytes.
///
/// # Errors
/// It cannot be, or is longer than the connection takes.
pub fn frame(bytes: &[u8; COMMON_BYTES], digests: Digests, limits: PduLimits) -> Result<PduFrame, PduFault> {
    let [kind, flags, header_length, data_offset, ..] = *bytes;
    let total = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
    let (kind, header_bytes, data_bytes_max) = match kind {
        kinds::INITIALIZE_REQUEST => (HostPdu::Initialize, 128, 0),
        kinds::HOST_TERMINATION => (HostPdu::Terminate, 24, TERMINATION_DATA_BYTES_MAX),
        kinds::COMMAND => (HostPdu::Command, 72, limits.capsule_data_bytes),
        kinds::HOST_DATA => (HostPdu::Data, 24, limits.host_data_bytes),
        _ => return Err(PduFault::field(0)),
    };
    if usize::from(header_length) != header_bytes {
        return Err(PduFault::field(2));
    }
    let digests = match kind {
        HostPdu::Initialize | HostPdu::Terminate => Digests::default(),
        HostPdu::Command | HostPdu::Data => digests,
    };
    let start = header_bytes + if digests.header { DIGEST_BYTES } else { 0 };
    let has_data = total > start;
    let has_data_digest = digests.data && has_data;
    let mut flags_allowed = 0;
    flags_allowed |= if digests.header { FLAG_HEADER_DIGEST } else { 0 };
    flags_allowed |= if has_data_digest { FLAG_DATA_DIGEST } else { 0 };
    let last = if kind == HostPdu::Data { FLAG_LAST } else { 0 };
    if flags & !last != flags_allowed {
        return Err(PduFault::field(1));
    }
    let mut frame = PduFrame {
        kind,
        header_bytes,
        has_header_digest: digests.header,
        pad_bytes: 0,
        data_bytes: 0,
        has_data_digest,
        is_last: flags & last != 0,
    };
    if !has_data {
        return if total == start { Ok(frame) } else { Err(PduFault::field(4)) };
    }
    // What a termination request repeats follows its header, wherever it says.
    let data_offset = if kind == HostPdu::Terminate { start } else { usize::from(data_offset) };
    if data_offset < start || data_offset - start > PAD_BYTES_MAX {
        return Err(PduFault::field(3));
    }
    frame.pad_bytes = data_offset - start;
    let after = data_offset + if has_data_digest { DIGEST_BYTES } else { 0 };
    frame.data_bytes = total.checked_sub(after).filter(|data| *data > 0).ok_or(PduFault::field(4))?;
    if frame.data_bytes > data_bytes_max {
        return Err(PduFault { status: FaultStatus::LimitExceeded, information: 4 });
    }
    Ok(frame)
}

/// Checks the digest of a header, which lies behind it in `head`.
///
/// # Errors
/// It is wrong.
pub fn check_header(frame: &PduFrame, head: &[u8]) -> Result<(), PduFault> {
    if !frame.has_header_digest {
        return Ok(());
    }
    let (header, rest) = head.split_at(frame.header_bytes);
    let received = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
    match received == crc32c::crc32c(header) {
        true => Ok(()),
        false => Err(PduFault { status: FaultStatus::HeaderDigest, information: received }),
    }
}

/// What a host wants of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitializeRequest {
    /// The digests that it uses.
    pub digests: Digests,
    /// Data sent to the host begins at a multiple of this, in bytes.
    pub data_align_bytes: usize,
    /// Requests for data of one command that the host takes at once, at least 1.
    pub transfers_max: u32,
}

impl InitializeRequest {
    /// From the header of its PDU.
    ///
    /// # Errors
    /// It is of another version, or asks for what cannot be.
    pub fn decode(header: &[u8]) -> Result<Self, PduFault> {
        const ALIGN_MAX: u8 = 31;
        if header[8..10] != [0, 0] {
            return Err(PduFault::field(8));
        }
        if header[10] > ALIGN_MAX {
            return Err(PduFault::field(10));
        }
        let digests = Digests { header: header[11] & 1 != 0, data: header[11] & 2 != 0 };
        let transfers = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        Ok(Self {
            digests,
            data_align_bytes: (usize::from(header[10]) + 1) * 4,
            transfers_max: transfers.saturating_add(1),
        })
    }
}

/// The answer to the first PDU: ICResp.
pub fn initialize_response(digests: Digests) -> [u8; 128] {
    let mut bytes = [0; 128];
    put_common(&mut bytes, kinds::INITIALIZE_RESPONSE, 0, 128, 0, 128);
    bytes[11] = u8::from(digests.header) | u8::from(digests.data) << 1;
    bytes[12..16].copy_from_slice(&(HOST_DATA_BYTES_MAX as u32).to_le_bytes());
    bytes
}

/// The PDU that ends a connection: C2HTermReq, with the header of the PDU at fault.
pub fn termination(fault: PduFault, header: &[u8]) -> Vec<u8> {
    let header = &header[..header.len().min(TERMINATION_DATA_BYTES_MAX)];
    let mut bytes = vec![0; 24];
    let total = 24 + header.len();
    put_common(&mut bytes, kinds::CONTROLLER_TERMINATION, 0, 24, 0, total);
    bytes[8..10].copy_from_slice(&(fault.status as u16).to_le_bytes());
    bytes[10..14].copy_from_slice(&fault.information.to_le_bytes());
    bytes.extend(header);
    bytes
}

/// Where data of a host belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostData {
    /// The command's identifier.
    pub command: u16,
    /// The tag of the request for this data.
    pub tag: u16,
    /// From the start of the command's data, in bytes.
    pub offset_bytes: u32,
}

impl HostData {
    /// From the header of its PDU.
    ///
    /// # Errors
    /// The header and the PDU do not agree on the length.
    pub fn decode(header: &[u8], frame: &PduFrame) -> Result<Self, PduFault> {
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if word(16) as usize != frame.data_bytes || frame.data_bytes == 0 {
            return Err(PduFault::field(16));
        }
        Ok(Self {
            command: u16::from_le_bytes([header[8], header[9]]),
            tag: u16::from_le_bytes([header[10], header[11]]),
            offset_bytes: word(12),
        })
    }
}

/// Asks for all data of a command: R2T.
pub fn put_ready(out: &mut Vec<u8>, digests: Digests, command: u16, tag: u16, length_bytes: u32) {
    let start = out.len();
    out.resize(start + 24, 0);
    let total = 24 + if digests.header { DIGEST_BYTES } else { 0 };
    put_common(&mut out[start..], kinds::READY_TO_TRANSFER, header_flag(digests), 24, 0, total);
    out[start + 8..start + 10].copy_from_slice(&command.to_le_bytes());
    out[start + 10..start + 12].copy_from_slice(&tag.to_le_bytes());
    out[start + 16..start + 20].copy_from_slice(&length_bytes.to_le_bytes());
    put_header_digest(out, start, digests);
}

/// What comes before all data of a command: C2HData. `success` says that no response follows.
pub fn put_data_head(
    out: &mut Vec<u8>,
    digests: Digests,
    align_bytes: usize,
    command: u16,
    length_bytes: u32,
    success: bool,
) {
    let start = out.len();
    let header = 24 + if digests.header { DIGEST_BYTES } else { 0 };
    let data_offset = header.next_multiple_of(align_bytes.max(1));
    let total = data_offset + length_bytes as usize + if digests.data { DIGEST_BYTES } else { 0 };
    let flags = header_flag(digests)
        | if digests.data { FLAG_DATA_DIGEST } else { 0 }
        | FLAG_LAST
        | if success { FLAG_SUCCESS } else { 0 };
    out.resize(start + 24, 0);
    put_common(&mut out[start..], kinds::CONTROLLER_DATA, flags, 24, data_offset as u8, total);
    out[start + 8..start + 10].copy_from_slice(&command.to_le_bytes());
    out[start + 16..start + 20].copy_from_slice(&length_bytes.to_le_bytes());
    put_header_digest(out, start, digests);
    out.resize(start + data_offset, 0);
}

/// The response to a command: CapsuleResp.
pub fn put_response(out: &mut Vec<u8>, digests: Digests, entry: &[u8; 16]) {
    let start = out.len();
    out.resize(start + 8, 0);
    let total = 24 + if digests.header { DIGEST_BYTES } else { 0 };
    put_common(&mut out[start..], kinds::RESPONSE, header_flag(digests), 24, 0, total);
    out.extend(entry);
    put_header_digest(out, start, digests);
}

fn header_flag(digests: Digests) -> u8 {
    if digests.header { FLAG_HEADER_DIGEST } else { 0 }
}

fn put_header_digest(out: &mut Vec<u8>, start: usize, digests: Digests) {
    if digests.header {
        let digest = crc32c::crc32c(&out[start..]);
        out.extend(digest.to_le_bytes());
    }
}

fn put_common(bytes: &mut [u8], kind: u8, flags: u8, header: u8, data_offset: u8, total: usize) {
    bytes[..4].copy_from_slice(&[kind, flags, header, data_offset]);
    bytes[4..8].copy_from_slice(&(total as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PduLimits = PduLimits::of_queue(false);
    const BOTH: Digests = Digests { header: true, data: true };

    fn common(kind: u8, flags: u8, header: u8, offset: u8, total: u32) -> [u8; 8] {
        let mut bytes = [kind, flags, header, offset, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&total.to_le_bytes());
        bytes
    }

    #[test]
    fn a_command_is_framed_with_and_without_digests() {
        let plain = frame(&common(4, 0, 72, 0, 72), Digests::default(), LIMITS).unwrap();
        assert_eq!((plain.head_bytes(), plain.data_bytes), (72, 0));
        let data = frame(&common(4, 0, 72, 72, 72 + 4096), Digests::default(), LIMITS).unwrap();
        assert_eq!((data.head_bytes(), data.data_bytes, data.has_data_digest), (72, 4096, false));
        let both = frame(&common(4, 3, 72, 80, 80 + 512 + 4), BOTH, LIMITS).unwrap();
        assert_eq!((both.head_bytes(), both.pad_bytes, both.data_bytes), (80, 4, 512));
        assert!(both.has_data_digest);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_field() {
        let none = Digests::default();
        let huge = 72 + IN_CAPSULE_BYTES_MAX as u32 + 1;
        let limit = PduFault { status: FaultStatus::LimitExceeded, information: 4 };
        for (bytes, digests, fault) in [
            (common(1, 0, 128, 0, 128), none, PduFault::field(0)),
            (common(0xff, 0, 128, 0, 128), none, PduFault::field(0)),
            (common(4, 0, 71, 0, 72), none, PduFault::field(2)),
            (common(0, 0, 128, 0, 127), none, PduFault::field(4)),
            (common(4, 1, 72, 0, 72), none, PduFault::field(1)),
            (common(4, 0, 72, 0, 76), BOTH, PduFault::field(1)),
            (common(4, 0, 72, 0, 71), none, PduFault::field(4)),
            (common(4, 0, 72, 71, 100), none, PduFault::field(3)),
            (common(4, 0, 72, 255, 1000), none, PduFault::field(3)),
            (common(4, 0, 72, 100, 100), none, PduFault::field(4)),
            (common(4, 3, 72, 76, 80), BOTH, PduFault::field(4)),
            (common(4, 0, 72, 72, huge), none, limit),
            (common(4, 0, 72, 72, u32::MAX), none, limit),
            (common(2, 0, 24, 0, 24 + 129), none, limit),
        ] {
            assert_eq!(frame(&bytes, digests, LIMITS), Err(fault), "{bytes:?}");
        }
    }

    #[test]
    fn a_header_with_a_wrong_digest_is_found() {
        let mut out = Vec::new();
        put_response(&mut out, BOTH, &[7; 16]);
        assert_eq!(out.len(), 28);
        assert_eq!(out[24..], crc32c::crc32c(&out[..24]).to_le_bytes());
        let command = frame(&common(4, 1, 72, 0, 76), Digests { header: true, data: false }, LIMITS).unwrap();
        let mut head = vec![5; 72];
        head.extend(crc32c::crc32c(&head).to_le_bytes());
        assert_eq!(check_header(&command, &head), Ok(()));
        head[9] ^= 1;
        assert_eq!(check_header(&command, &head).unwrap_err().status, FaultStatus::HeaderDigest);
    }

    #[test]
    fn data_for_the_host_begins_where_it_wants() {
        for (digests, align, offset) in [(Digests::default(), 4, 24), (BOTH, 4, 28), (BOTH, 64, 64)] {
            let mut out = vec![9; 3];
            put_data_head(&mut out, digests, align, 7, 512, true);
            assert_eq!(out.len(), 3 + offset);
            assert_eq!(usize::from(out[3 + 3]), offset);
            let total = u32::from_le_bytes(out[7..11].try_into().unwrap()) as usize;
            assert_eq!(total, offset + 512 + if digests.data { 4 } else { 0 });
        }
    }
}
