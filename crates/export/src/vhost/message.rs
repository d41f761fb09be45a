//! The messages between a hypervisor and this server, as the vhost-user protocol has them: a header
//! of 12 bytes, a payload, and descriptors that come along. Pure.

use std::os::fd::OwnedFd;

use super::ring::RingAddresses;

/// Bytes of a header: request, flags, length of the payload.
pub const HEADER_BYTES: usize = 12;
/// Payloads beyond this are none of the protocol's.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Regions that one message may bring.
pub const REGIONS_AT_ONCE_MAX: usize = 8;

/// Flags of a header.
mod flags {
    pub const VERSION: u32 = 1;
    pub const VERSION_MASK: u32 = 3;
    pub const REPLY: u32 = 4;
    pub const NEED_REPLY: u32 = 8;
}

/// Extensions of the protocol.
pub mod protocol {
    /// More than one queue.
    pub const MQ: u64 = 1 << 0;
    /// Every message may ask for a reply.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// Messages the other way.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// The configuration is asked for.
    pub const CONFIG: u64 = 1 << 9;
    /// The log of what is in flight.
    pub const INFLIGHT: u64 = 1 << 12;
    /// A reset without a new connection.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory comes and goes region by region.
    pub const MEMORY_SLOTS: u64 = 1 << 15;
}

/// Part of a guest's memory, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionFacts {
    /// Its address for the guest.
    pub guest: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its address for the hypervisor.
    pub user: u64,
    /// Where it begins in the file that comes along.
    pub offset: u64,
}

/// The log of what is in flight, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFacts {
    /// Its length in bytes.
    pub len: u64,
    /// Where it begins in the file that comes along.
    pub offset: u64,
    /// So many queues.
    pub queues: u16,
    /// Of so many descriptors each.
    pub size: u16,
}

/// What a hypervisor asks for, by the protocol's own names.
#[derive(Debug)]
pub enum FrontMessage {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<(RegionFacts, OwnedFd)>),
    SetVringNum { queue: u32, num: u32 },
    SetVringAddr { queue: u32, addresses: RingAddresses },
    SetVringBase { queue: u32, base: u32 },
    GetVringBase { queue: u32 },
    SetVringKick { queue: u32, event: Option<OwnedFd> },
    SetVringCall { queue: u32, event: Option<OwnedFd> },
    SetVringErr { queue: u32, event: Option<OwnedFd> },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable { queue: u32, enable: bool },
    SetBackendReqFd(OwnedFd),
    GetConfig { offset: u32, len: u32, flags: u32 },
    SetConfig,
    GetInflightFd(LogFacts),
    SetInflightFd(LogFacts, OwnedFd),
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(RegionFacts, OwnedFd),
    RemMemReg(RegionFacts),
}

/// Why a message is none that this server can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// Of another version of the protocol, or a reply that was not asked for.
    #[error("a message with the flags {0:#x}")]
    Flags(u32),
    /// Longer than any.
    #[error("a message of {0} bytes")]
    Length(u32),
    /// Not known, or not offered.
    #[error("the request {0}, which was not offered")]
    Unknown(u32),
    /// Its payload or its descriptors are not those of the request.
    #[error("the request {0} with {1} bytes and {2} descriptors")]
    Malformed(u32, usize, usize),
}

/// A message's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontHeader {
    /// What is asked for.
    pub request: u32,
    /// Bytes that follow.
    pub payload_bytes: usize,
    /// An answer is wanted, also where there is nothing to say.
    pub needs_reply: bool,
}

impl FrontHeader {
    /// # Errors
    /// It begins no message.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, MessageFault> {
        let word = |at: usize| u32_at(bytes, at).unwrap_or_default();
        let (request, bits, len) = (word(0), word(4), word(8));
        if bits & flags::VERSION_MASK != flags::VERSION || bits & flags::REPLY != 0 {
            return Err(MessageFault::Flags(bits));
        }
        if len as usize > PAYLOAD_BYTES_MAX {
            return Err(MessageFault::Length(len));
        }
        Ok(Self { request, payload_bytes: len as usize, needs_reply: bits & flags::NEED_REPLY != 0 })
    }
}

/// The header of a reply.
pub fn reply(request: u32, payload: &[u8]) -> Vec<u8> {
    message(request, flags::VERSION | flags::REPLY, payload)
}

/// The message that tells a hypervisor that the configuration has changed.
pub fn config_changed() -> Vec<u8> {
    /// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
    const CONFIG_CHANGE: u32 = 2;
    message(CONFIG_CHANGE, flags::VERSION, &[])
}

fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let words = [request, flags, payload.len() as u32];
    words.into_iter().flat_map(u32::to_le_bytes).chain(payload.iter().copied()).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

impl FrontMessage {
    /// Makes a message of a payload and the descriptors that came along.
    ///
    /// # Errors
    /// The request is not known, or these are not its payload and descriptors.
    pub fn decode(request: u32, payload: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, MessageFault> {
        let fault = MessageFault::Malformed(request, payload.len(), descriptors.len());
        let mut descriptors = descriptors.into_iter();
        let message = Self::read(request, payload, &mut descriptors).map_err(|known| match known {
            Known::Yes => fault,
            Known::No => MessageFault::Unknown(request),
        })?;
        if descriptors.next().is_some() { Err(fault) } else { Ok(message) }
    }

    fn read(
        request: u32,
        payload: &[u8],
        descriptors: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<Self, Known> {
        let value = || u64_at(payload, 0).ok_or(Known::Yes);
        let state = || {
            let pair = u32_at(payload, 0).zip(u32_at(payload, 4));
            pair.filter(|_| payload.len() == 8).ok_or(Known::Yes)
        };
        let mut event = || event(payload, &mut *descriptors).ok_or(Known::Yes);
        Ok(match request {
            1 => Self::GetFeatures,
            2 => Self::SetFeatures(value()?),
            3 => Self::SetOwner,
            4 => Self::ResetOwner,
            5 => Self::SetMemTable(table(payload, descriptors).ok_or(Known::Yes)?),
            8 => state().map(|(queue, num)| Self::SetVringNum { queue, num })?,
            9 => addresses(payload).ok_or(Known::Yes)?,
            10 => state().map(|(queue, base)| Self::SetVringBase { queue, base })?,
            11 => state().map(|(queue, _)| Self::GetVringBase { queue })?,
            12 => event().map(|(queue, event)| Self::SetVringKick { queue, event })?,
            13 => event().map(|(queue, event)| Self::SetVringCall { queue, event })?,
            14 => event().map(|(queue, event)| Self::SetVringErr { queue, event })?,
            15 => Self::GetProtocolFeatures,
            16 => Self::SetProtocolFeatures(value()?),
            17 => Self::GetQueueNum,
            18 => match state()? {
                (queue, enable @ (0 | 1)) => Self::SetVringEnable { queue, enable: enable == 1 },
                _ => return Err(Known::Yes),
            },
            21 => Self::SetBackendReqFd(descriptors.next().ok_or(Known::Yes)?),
            24 => config(payload).ok_or(Known::Yes)?,
            25 => Self::SetConfig,
            31 => Self::GetInflightFd(log(payload).ok_or(Known::Yes)?),
            32 => {
                let facts = log(payload).ok_or(Known::Yes)?;
                Self::SetInflightFd(facts, descriptors.next().ok_or(Known::Yes)?)
            }
            34 => Self::ResetDevice,
            36 => Self::GetMaxMemSlots,
            37 => {
                let facts = region(payload, 8).ok_or(Known::Yes)?;
                Self::AddMemReg(facts, descriptors.next().ok_or(Known::Yes)?)
            }
            38 => {
                let facts = region(payload, 8).ok_or(Known::Yes)?;
                // QEMU sends the region's file along once more.
                drop(descriptors.next());
                Self::RemMemReg(facts)
            }
            _ => return Err(Known::No),
        })
    }
}

/// Whether a request that cannot be read is one of those that are offered.
enum Known {
    Yes,
    No,
}

/// Which queue's event it is, and the event itself, unless it is said that there is none.
fn event(payload: &[u8], descriptors: &mut impl Iterator<Item = OwnedFd>) -> Option<(u32, Option<OwnedFd>)> {
    const QUEUE: u64 = 0xff;
    const NONE: u64 = 0x100;
    let value = u64_at(payload, 0)?;
    let event = if value & NONE == 0 { Some(descriptors.next()?) } else { None };
    Some(((value & QUEUE) as u32, event))
}

fn region(payload: &[u8], at: usize) -> Option<RegionFacts> {
    let word = |ix: usize| u64_at(payload, at + 8 * ix);
    Some(RegionFacts { guest: word(0)?, len: word(1)?, user: word(2)?, offset: word(3)? })
}

fn table(
    payload: &[u8],
    descriptors: &mut impl Iterator<Item = OwnedFd>,
) -> Option<Vec<(RegionFacts, OwnedFd)>> {
    let count = u32_at(payload, 0)? as usize;
    if count > REGIONS_AT_ONCE_MAX {
        return None;
    }
    (0..count).map(|ix| Some((region(payload, 8 + 32 * ix)?, descriptors.next()?))).collect()
}

fn addresses(payload: &[u8]) -> Option<FrontMessage> {
    let word = |at: usize| u64_at(payload, at);
    let (queue, flags) = (u32_at(payload, 0)?, u32_at(payload, 4)?);
    let addresses = RingAddresses { descriptors: word(8)?, device: word(16)?, driver: word(24)? };
    // The flag asks for a log of pages that are written, which was not offered.
    (flags == 0).then_some(FrontMessage::SetVringAddr { queue, addresses })
}

fn config(payload: &[u8]) -> Option<FrontMessage> {
    let (offset, len, flags) = (u32_at(payload, 0)?, u32_at(payload, 4)?, u32_at(payload, 8)?);
    (payload.len() == 12 + len as usize).then_some(FrontMessage::GetConfig { offset, len, flags })
}

fn log(payload: &[u8]) -> Option<LogFacts> {
    Some(LogFacts {
        len: u64_at(payload, 0)?,
        offset: u64_at(payload, 8)?,
        queues: u16_at(payload, 16)?,
        size: u16_at(payload, 18)?,
    })
}

impl LogFacts {
    /// As the protocol's C structure, padding included.
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.queues.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_other_versions_and_replies_are_refused() {
        let header = |words: [u32; 3]| -> [u8; HEADER_BYTES] {
            words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>().try_into().unwrap()
        };
        let good = FrontHeader::decode(&header([5, 1 | 8, 40])).unwrap();
        assert_eq!(good, FrontHeader { request: 5, payload_bytes: 40, needs_reply: true });
        assert_eq!(FrontHeader::decode(&header([5, 2, 0])), Err(MessageFault::Flags(2)));
        assert_eq!(FrontHeader::decode(&header([5, 5, 0])), Err(MessageFault::Flags(5)));
        assert_eq!(FrontHeader::decode(&header([5, 1, 4097])), Err(MessageFault::Length(4097)));
    }

    #[test]
    fn payloads_are_taken_only_whole_and_with_their_descriptors() {
        let fd = || OwnedFd::from(tempfile::tempfile().unwrap());
        let decode = |request, payload: &[u8], fds: usize| {
            FrontMessage::decode(request, payload, (0..fds).map(|_| fd()).collect())
        };
        let state: Vec<u8> = [3u32, 256].into_iter().flat_map(u32::to_le_bytes).collect();
        assert!(matches!(decode(8, &state, 0), Ok(FrontMessage::SetVringNum { queue: 3, num: 256 })));
        assert!(matches!(decode(8, &state[..7], 0), Err(MessageFault::Malformed(8, 7, 0))));
        assert!(matches!(decode(8, &state, 1), Err(MessageFault::Malformed(8, 8, 1))), "too many");
        let event = 2u64.to_le_bytes();
        let kick = decode(12, &event, 1);
        assert!(matches!(kick, Ok(FrontMessage::SetVringKick { queue: 2, event: Some(_) })));
        assert!(matches!(decode(12, &event, 0), Err(MessageFault::Malformed(12, 8, 0))));
        let none = 0x103u64.to_le_bytes();
        assert!(matches!(decode(13, &none, 0), Ok(FrontMessage::SetVringCall { queue: 3, event: None })));
        let mut regions = 2u64.to_le_bytes().to_vec();
        regions.extend([1u64, 2, 3, 4, 5, 6, 7, 8].into_iter().flat_map(u64::to_le_bytes));
        let Ok(FrontMessage::SetMemTable(table)) = decode(5, &regions, 2) else { panic!("a table") };
        assert_eq!(table[1].0, RegionFacts { guest: 5, len: 6, user: 7, offset: 8 });
        assert!(matches!(decode(5, &regions, 1), Err(MessageFault::Malformed(5, 72, 1))));
        assert!(matches!(decode(6, &[], 0), Err(MessageFault::Unknown(6))));
        assert!(matches!(decode(18, &[0, 0, 0, 0, 2, 0, 0, 0], 0), Err(MessageFault::Malformed(18, 8, 0))));
    }

    #[test]
    fn logs_are_encoded_as_they_are_decoded() {
        let facts = LogFacts { len: 1 << 40, offset: 4096, queues: 4, size: 1024 };
        assert_eq!(log(&facts.encode()), Some(facts));
    }
}
