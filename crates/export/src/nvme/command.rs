//! Commands and their completions, as bytes and back, and what a command of a queue for reads and
//! writes asks for. Pure.
//!
//! [`decide_io`] sees every such command before anything of it is done.
//!
//! Source: NVM Express Base Specification 2.0 (sections 3.3.3, 4.2, 6) and NVM Command Set
//! Specification 1.0 (section 3).

use wattle_rt::{Durability, Unmap};

use super::limits::{DATA_BYTES_MAX, DISCARD_RANGES_MAX};
use super::pdu::ENTRY_BYTES;
use super::reservation::DataAccess;

/// The bytes of a logical block.
pub const BLOCK_BYTES: u64 = 512;
/// As a power of two.
pub const BLOCK_SHIFT: u8 = 9;
/// Stands for all namespaces.
pub const NSID_ALL: u32 = u32::MAX;

/// Commands of queues for reads and writes.
pub mod io_opcodes {
    /// Makes durable what was acknowledged.
    pub const FLUSH: u8 = 0x00;
    /// Writes.
    pub const WRITE: u8 = 0x01;
    /// Reads.
    pub const READ: u8 = 0x02;
    /// Writes zeros.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Deallocates ranges.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Commands of the fabric have this opcode, whatever the queue.
pub const FABRICS: u8 = 0x7f;

/// The status of a completion: its type and code, and whether it is of any use to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmeStatus(pub u16);

impl NvmeStatus {
    const DO_NOT_RETRY: u16 = 1 << 14;

    /// It was done.
    pub const SUCCESS: Self = Self(0);
    /// There is no such command.
    pub const INVALID_OPCODE: Self = Self(0x01 | Self::DO_NOT_RETRY);
    /// A field cannot be.
    pub const INVALID_FIELD: Self = Self(0x02 | Self::DO_NOT_RETRY);
    /// The identifier is that of a command under way.
    pub const ID_CONFLICT: Self = Self(0x03 | Self::DO_NOT_RETRY);
    /// What an order would change cannot be kept: it may be given again.
    pub const INTERNAL: Self = Self(0x06);
    /// Identifiers of hosts have 128 bits.
    pub const HOST_ID_FORMAT: Self = Self(0x18 | Self::DO_NOT_RETRY);
    /// The reservation of another host forbids it, or the key is another one.
    pub const RESERVATION_CONFLICT: Self = Self(0x83 | Self::DO_NOT_RETRY);
    /// The volume was stopped: this path leads nowhere, another one, or a later one, may.
    pub const INTERNAL_PATH: Self = Self(0x300);
    /// There is no such namespace.
    pub const INVALID_NAMESPACE: Self = Self(0x0b | Self::DO_NOT_RETRY);
    /// The controller is not enabled, or the queue not connected.
    pub const SEQUENCE: Self = Self(0x0c | Self::DO_NOT_RETRY);
    /// The data's length is not that of the blocks.
    pub const INVALID_LENGTH: Self = Self(0x0f | Self::DO_NOT_RETRY);
    /// The data is described in a way that the transport does not have.
    pub const INVALID_DESCRIPTOR: Self = Self(0x11 | Self::DO_NOT_RETRY);
    /// Data came damaged, and nothing was done: it may be sent again.
    pub const TRANSPORT: Self = Self(0x22);
    /// The namespace is only read.
    pub const WRITE_PROTECTED: Self = Self(0x20 | Self::DO_NOT_RETRY);
    /// The range ends behind the namespace.
    pub const OUT_OF_RANGE: Self = Self(0x80 | Self::DO_NOT_RETRY);
    /// A layer below is full.
    pub const CAPACITY: Self = Self(0x81 | Self::DO_NOT_RETRY);
    /// More requests for events than are kept.
    pub const EVENT_LIMIT: Self = Self(0x105 | Self::DO_NOT_RETRY);
    /// There is no such log page.
    pub const INVALID_LOG_PAGE: Self = Self(0x109 | Self::DO_NOT_RETRY);
    /// The feature cannot be changed.
    pub const NOT_CHANGEABLE: Self = Self(0x10e | Self::DO_NOT_RETRY);
    /// Connect: its data has another format.
    pub const CONNECT_FORMAT: Self = Self(0x180 | Self::DO_NOT_RETRY);
    /// Connect: there are too many controllers, or the queue is in use still.
    pub const CONNECT_BUSY: Self = Self(0x181);
    /// Connect: a parameter cannot be.
    pub const CONNECT_INVALID: Self = Self(0x182 | Self::DO_NOT_RETRY);
    /// The host has not proved its name.
    pub const AUTHENTICATION_REQUIRED: Self = Self(0x191 | Self::DO_NOT_RETRY);
    /// Data could not be written.
    pub const WRITE_FAULT: Self = Self(0x280 | Self::DO_NOT_RETRY);
    /// Data could not be read.
    pub const READ_ERROR: Self = Self(0x281 | Self::DO_NOT_RETRY);
}

/// A submission queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmeCommand(pub [u8; ENTRY_BYTES]);

impl NvmeCommand {
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    /// Four bytes of it, little endian.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Eight bytes of it, little endian.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    /// A word of those that mean something else for each command (CDW10 to CDW15).
    pub fn word(&self, number: usize) -> u32 {
        self.u32(number * 4)
    }

    /// What is to be done.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Whether it is one of two that are to be carried out as one, which the controller does not
    /// say that it can: a Compare that is left out would make of the Write behind it one that is
    /// always carried out.
    pub fn is_fused(&self) -> bool {
        self.0[1] & 0b11 != 0
    }

    /// What the completion names.
    pub fn id(&self) -> u16 {
        self.u16(2)
    }

    /// Of a command of the fabric: which.
    pub fn fabrics_type(&self) -> u8 {
        self.0[4]
    }

    /// The namespace.
    pub fn nsid(&self) -> u32 {
        self.u32(4)
    }

    /// The length of data that has to be asked for.
    pub fn transport_bytes(&self) -> usize {
        match self.data() {
            Ok(DataSite::Transport(length)) => length as usize,
            _ => 0,
        }
    }

    /// Where the command's data is.
    ///
    /// # Errors
    /// It is described in a way that the transport does not have.
    pub fn data(&self) -> Result<DataSite, NvmeStatus> {
        const IN_CAPSULE: u8 = 0x01;
        const TRANSPORT: u8 = 0x5a;
        let length = self.u32(32);
        match self.0[39] {
            _ if self.0[24..40] == [0; 16] => Ok(DataSite::None),
            IN_CAPSULE if self.u64(24) == 0 => Ok(DataSite::Capsule(length)),
            TRANSPORT if length == 0 => Ok(DataSite::None),
            TRANSPORT => Ok(DataSite::Transport(length)),
            _ => Err(NvmeStatus::INVALID_DESCRIPTOR),
        }
    }
}

impl DataSite {
    /// The length of data that the host has for a command, and whether it came with it.
    fn of_host(self) -> Result<(u32, bool), NvmeStatus> {
        match self {
            Self::Transport(length) => Ok((length, false)),
            Self::Capsule(length) => Ok((length, true)),
            Self::None => Err(NvmeStatus::INVALID_LENGTH),
        }
    }
}

/// Where the data of a command is, and its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSite {
    /// There is none.
    None,
    /// With the command.
    Capsule(u32),
    /// In the host's memory: sent, or asked for, in PDUs of its own.
    Transport(u32),
}

/// A completion queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmeCompletion {
    /// What the command gives back besides data.
    pub result: u64,
    /// Commands of the queue that were taken, modulo its entries.
    pub queue_head: u16,
    /// The command's identifier.
    pub id: u16,
    /// How it went.
    pub status: NvmeStatus,
}

impl NvmeCompletion {
    /// As bytes. The submission queue's identifier means nothing over fabrics.
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.result.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.queue_head.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.id.to_le_bytes());
        bytes[14..].copy_from_slice(&(self.status.0 << 1).to_le_bytes());
        bytes
    }
}

/// What a command of a queue for reads and writes asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoPlan {
    /// The range goes to the host.
    Read(IoRange),
    /// The host's data goes to the range. `true`: it came with the command.
    Write(IoRange, Durability, bool),
    /// What was acknowledged is made durable.
    Flush,
    /// The range reads as zeros.
    WriteZeroes(IoRange, Unmap, Durability),
    /// So many ranges, which are the host's data, hold nothing of value. `true`: it came with the
    /// command.
    Discard(usize, bool),
    /// Nothing is to be done.
    Nothing,
}

impl IoPlan {
    /// What it does to data, as far as a reservation is concerned.
    pub(super) fn access(&self) -> DataAccess {
        match self {
            Self::Read(_) => DataAccess::Read,
            Self::Write(..) | Self::Flush | Self::WriteZeroes(..) | Self::Discard(..) | Self::Nothing => {
                DataAccess::Write
            }
        }
    }
}

/// A range of a namespace, in bytes; it ends inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoRange {
    /// From the start of the namespace.
    pub offset_bytes: u64,
    /// Its length.
    pub length_bytes: u64,
}

impl IoRange {
    fn of_blocks(first: u64, count: u64, size_bytes: u64) -> Result<Self, NvmeStatus> {
        let end = first.checked_add(count).filter(|end| *end <= size_bytes / BLOCK_BYTES);
        end.ok_or(NvmeStatus::OUT_OF_RANGE)?;
        Ok(Self { offset_bytes: first * BLOCK_BYTES, length_bytes: count * BLOCK_BYTES })
    }
}

/// Decides about a command; `capsule_bytes` of data came with it.
///
/// # Errors
/// What the host is told.
pub fn decide_io(
    command: &NvmeCommand,
    size_bytes: u64,
    read_only: bool,
    capsule_bytes: usize,
) -> Result<IoPlan, NvmeStatus> {
    const FUA: u32 = 1 << 30;
    const DEALLOCATE: u32 = 1 << 25;
    let opcode = command.opcode();
    let changes =
        matches!(opcode, io_opcodes::WRITE | io_opcodes::WRITE_ZEROES | io_opcodes::DATASET_MANAGEMENT);
    if changes && read_only {
        return Err(NvmeStatus::WRITE_PROTECTED);
    }
    let blocks = u64::from(command.word(12) & 0xffff) + 1;
    let range = || IoRange::of_blocks(command.u64(40), blocks, size_bytes);
    let durability = if command.word(12) & FUA != 0 { Durability::Fua } else { Durability::Cached };
    let site = command.data()?;
    if let DataSite::Capsule(length) = site
        && length as usize != capsule_bytes
    {
        return Err(NvmeStatus::INVALID_LENGTH);
    }
    if !matches!(site, DataSite::Capsule(_)) && capsule_bytes > 0 {
        return Err(NvmeStatus::INVALID_DESCRIPTOR);
    }
    match opcode {
        io_opcodes::READ => {
            let range = range()?;
            match site {
                DataSite::Transport(length) if u64::from(length) == range.length_bytes => {}
                DataSite::Capsule(_) => return Err(NvmeStatus::INVALID_DESCRIPTOR),
                _ => return Err(NvmeStatus::INVALID_LENGTH),
            }
            in_bounds(range).map(IoPlan::Read)
        }
        io_opcodes::WRITE => {
            let range = in_bounds(range()?)?;
            let (length, in_capsule) = site.of_host()?;
            match u64::from(length) == range.length_bytes {
                true => Ok(IoPlan::Write(range, durability, in_capsule)),
                false => Err(NvmeStatus::INVALID_LENGTH),
            }
        }
        io_opcodes::FLUSH => Ok(IoPlan::Flush),
        io_opcodes::WRITE_ZEROES => {
            let unmap = if command.word(12) & DEALLOCATE != 0 { Unmap::Yes } else { Unmap::No };
            Ok(IoPlan::WriteZeroes(range()?, unmap, durability))
        }
        io_opcodes::DATASET_MANAGEMENT => {
            const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;
            let count = (command.word(10) & 0xff) as usize + 1;
            debug_assert!(count <= DISCARD_RANGES_MAX);
            if command.word(11) & ATTRIBUTE_DEALLOCATE == 0 {
                return Ok(IoPlan::Nothing);
            }
            let (length, in_capsule) = site.of_host()?;
            match (count * DISCARD_BYTES..=DATA_BYTES_MAX).contains(&(length as usize)) {
                true => Ok(IoPlan::Discard(count, in_capsule)),
                false => Err(NvmeStatus::INVALID_LENGTH),
            }
        }
        _ => Err(NvmeStatus::INVALID_OPCODE),
    }
}

fn in_bounds(range: IoRange) -> Result<IoRange, NvmeStatus> {
    match range.length_bytes <= DATA_BYTES_MAX as u64 {
        true => Ok(range),
        false => Err(NvmeStatus::INVALID_FIELD),
    }
}

/// One range of Dataset Management.
const DISCARD_BYTES: usize = 16;

/// The ranges of Dataset Management, in its data.
///
/// # Errors
/// One of them ends behind the namespace.
pub fn discard_ranges(data: &[u8], count: usize, size_bytes: u64) -> Result<Vec<IoRange>, NvmeStatus> {
    let ranges = data.chunks_exact(DISCARD_BYTES).take(count).map(|bytes| {
        let blocks = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[8..16]);
        IoRange::of_blocks(u64::from_le_bytes(first), blocks.into(), size_bytes)
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;
    const BLOCKS: u64 = SIZE / 512;

    fn command(opcode: u8, first: u64, blocks: u32, flags: u32, kind: u8, length: u32) -> NvmeCommand {
        let mut bytes = [0; 64];
        bytes[0] = opcode;
        bytes[4] = 1;
        bytes[32..36].copy_from_slice(&length.to_le_bytes());
        bytes[39] = kind;
        bytes[40..48].copy_from_slice(&first.to_le_bytes());
        bytes[48..52].copy_from_slice(&((blocks - 1) | flags).to_le_bytes());
        NvmeCommand(bytes)
    }

    #[test]
    fn good_commands_become_plans() {
        let range = IoRange { offset_bytes: 4096, length_bytes: 8192 };
        let read = command(2, 8, 16, 0, 0x5a, 8192);
        assert_eq!(decide_io(&read, SIZE, true, 0), Ok(IoPlan::Read(range)));
        let write = command(1, 8, 16, 1 << 30, 0x01, 8192);
        assert_eq!(decide_io(&write, SIZE, false, 8192), Ok(IoPlan::Write(range, Durability::Fua, true)));
        let write = command(1, 8, 16, 0, 0x5a, 8192);
        assert_eq!(decide_io(&write, SIZE, false, 0), Ok(IoPlan::Write(range, Durability::Cached, false)));
        assert_eq!(decide_io(&command(0, 0, 1, 0, 0, 0), SIZE, true, 0), Ok(IoPlan::Flush));
    }

    #[test]
    fn ranges_end_inside_the_namespace_and_fit_their_data() {
        let ask =
            |first, blocks, length| decide_io(&command(2, first, blocks, 0, 0x5a, length), SIZE, false, 0);
        assert!(ask(BLOCKS - 8, 8, 4096).is_ok());
        for first in [BLOCKS - 7, BLOCKS, u64::MAX, u64::MAX - 3] {
            assert_eq!(ask(first, 8, 4096), Err(NvmeStatus::OUT_OF_RANGE), "{first}");
        }
        assert_eq!(ask(0, 8, 4095), Err(NvmeStatus::INVALID_LENGTH));
        assert_eq!(ask(0, 4096, 2 << 20), Err(NvmeStatus::INVALID_FIELD));
        // What came with the command is what it says, and a write's alone.
        let write = command(1, 0, 8, 0, 0x01, 4096);
        assert_eq!(decide_io(&write, SIZE, false, 512), Err(NvmeStatus::INVALID_LENGTH));
        let read = command(2, 0, 8, 0, 0x01, 4096);
        assert_eq!(decide_io(&read, SIZE, false, 4096), Err(NvmeStatus::INVALID_DESCRIPTOR));
        let keyed = command(1, 0, 8, 0, 0x40, 4096);
        assert_eq!(decide_io(&keyed, SIZE, false, 0), Err(NvmeStatus::INVALID_DESCRIPTOR));
    }

    #[test]
    fn a_read_only_namespace_is_only_read() {
        for opcode in [1, 8, 9] {
            let changing = command(opcode, 0, 8, 0, 0x5a, 4096);
            assert_eq!(decide_io(&changing, SIZE, true, 0), Err(NvmeStatus::WRITE_PROTECTED));
        }
    }

    #[test]
    fn each_discarded_range_is_checked() {
        let mut data = [0; 32];
        data[4] = 8;
        data[20] = 1;
        data[24..32].copy_from_slice(&BLOCKS.to_le_bytes());
        assert_eq!(discard_ranges(&data, 1, SIZE), Ok(vec![IoRange { offset_bytes: 0, length_bytes: 4096 }]));
        assert_eq!(discard_ranges(&data, 2, SIZE), Err(NvmeStatus::OUT_OF_RANGE));
    }
}
