//! The bytes of commands to the driver, and what its requests ask for. Layouts and numbers are
//! those of `linux/ublk_cmd.h`, in the machine's byte order.

use sha2::{Digest, Sha256};
use wattle_rt::ublk::UblkRequest;
use wattle_rt::{Durability, Unmap};

/// Commands to the control device: the number, and whether it changes something.
pub(super) mod command {
    pub const ADD: (u8, bool) = (0x04, true);
    pub const DELETE: (u8, bool) = (0x05, true);
    pub const START: (u8, bool) = (0x06, true);
    pub const STOP: (u8, bool) = (0x07, true);
    pub const SET_PARAMETERS: (u8, bool) = (0x08, true);
    pub const GET_PARAMETERS: (u8, bool) = (0x09, false);
    pub const START_RECOVERY: (u8, bool) = (0x10, true);
    pub const END_RECOVERY: (u8, bool) = (0x11, true);
    /// By the number alone, for a privileged server.
    pub const GET_INFO: (u8, bool) = (0x02, false);
    /// With the path of the node, by whose permissions a server is judged.
    pub const GET_INFO_BY_NODE: (u8, bool) = (0x12, false);
    pub const GET_FEATURES: (u8, bool) = (0x13, false);
    pub const UPDATE_SIZE: (u8, bool) = (0x15, true);
}

/// Features of a device.
pub(super) mod feature {
    /// The device outlives its server, and waits for another.
    pub const RECOVERY: u64 = 1 << 3;
    /// What the old server had not answered is asked of the new one again.
    pub const REISSUE: u64 = 1 << 4;
    /// Its server is not root.
    pub const UNPRIVILEGED: u64 = 1 << 5;
    /// Commands are numbered as ioctls are.
    pub const ENCODED: u64 = 1 << 6;
    /// The device can grow.
    pub const UPDATE_SIZE: u64 = 1 << 10;
}

/// A device's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceState {
    /// It has no block device, or none any more.
    Dead,
    /// It has a server, or the server has just ended.
    Live,
    /// Its server is gone; requests wait for the next one.
    Quiesced,
    /// One that this version does not know.
    Unknown(u16),
}

impl DeviceState {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Dead,
            1 => Self::Live,
            2 => Self::Quiesced,
            other => Self::Unknown(other),
        }
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    /// How many queues.
    pub queues: u16,
    /// Tags of each.
    pub depth: u16,
    /// See [`DeviceState`].
    pub state: DeviceState,
    /// The longest request.
    pub request_bytes_max: u32,
    /// Its number; all bits set to let the kernel choose.
    pub number: u32,
    /// The process that serves it.
    pub pid: u32,
    /// See [`feature`].
    pub features: u64,
    /// What the driver keeps for the server without looking at it: see [`mark_of`].
    pub mark: u64,
}

pub(super) const INFO_BYTES: usize = 64;

impl DeviceInfo {
    pub(super) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.request_bytes_max.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.features.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; INFO_BYTES]) -> Self {
        let short = |at: usize| u16::from_ne_bytes(*bytes[at..].first_chunk().expect("64 bytes"));
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("64 bytes"));
        let long = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("64 bytes"));
        Self {
            queues: short(0),
            depth: short(2),
            state: DeviceState::of(short(4)),
            request_bytes_max: word(8),
            number: word(12),
            pid: word(16),
            features: long(24),
            mark: long(32),
        }
    }
}

/// What a device is marked with, so that a later server knows whose it is: a sign that it is one of
/// ours, and a digest of the volume's identity.
pub(super) fn mark_of(identity: &str) -> u64 {
    let digest = Sha256::new().chain_update("wattle ublk device").chain_update([0]).chain_update(identity);
    let digest: [u8; 32] = digest.finalize().into();
    let hash = u64::from_be_bytes(*digest.first_chunk().expect("32 bytes"));
    u64::from(SIGN) << 48 | hash >> 16
}

/// Whether a device was made by wattle, for whatever volume.
pub(super) fn is_ours(mark: u64) -> bool {
    mark >> 48 == u64::from(SIGN)
}

const SIGN: u16 = u16::from_be_bytes(*b"wt");

/// A disk, as the kernel is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskParameters {
    pub size_bytes: u64,
    pub read_only: bool,
    pub block_bytes: u32,
    /// Requests below it cost more, in bytes.
    pub io_min_bytes: u32,
    /// Requests of it cost least, in bytes; 0 if there is no such size.
    pub io_opt_bytes: u32,
}

/// `struct ublk_params` with the basic parameters and those of discarding.
pub(super) const PARAMETER_BYTES: usize = 8 + 32 + 20;
const SECTOR_BYTES: u64 = 512;
/// The attribute of a disk that takes no writes.
const READ_ONLY: u32 = 1 << 0;

impl DiskParameters {
    /// The block that the kernel is told: the size that it is told is whole blocks.
    pub(super) fn told_block_bytes(&self) -> u32 {
        self.block_bytes.clamp(512, 4096)
    }

    /// The driver has sizes as powers of two: the chunk is told if it is one, and so is the stripe;
    /// of another stripe the chunk is told.
    pub(super) fn encode(&self, request_bytes_max: u32, range_sectors_max: u32) -> [u8; PARAMETER_BYTES] {
        const BASIC: u32 = 1 << 0;
        const DISCARD: u32 = 1 << 1;
        const VOLATILE_CACHE: u32 = 1 << 2;
        const FUA: u32 = 1 << 3;
        let block = self.told_block_bytes();
        let io_min = if self.io_min_bytes.is_power_of_two() { self.io_min_bytes.max(block) } else { block };
        let io_opt = if self.io_opt_bytes.is_power_of_two() { self.io_opt_bytes.max(io_min) } else { io_min };
        let physical = io_min.clamp(block, 4096);
        let mut bytes = [0; PARAMETER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(PARAMETER_BYTES as u32).to_ne_bytes());
        put(4, &(BASIC | DISCARD).to_ne_bytes());
        put(8, &(VOLATILE_CACHE | FUA | if self.read_only { READ_ONLY } else { 0 }).to_ne_bytes());
        put(12, &[block, physical, io_opt, io_min].map(|bytes| bytes.ilog2() as u8));
        put(16, &(request_bytes_max / SECTOR_BYTES as u32).to_ne_bytes());
        // No request is cut at chunks: the engine does that better.
        put(20, &0u32.to_ne_bytes());
        put(24, &(self.size_bytes / u64::from(block) * u64::from(block) / SECTOR_BYTES).to_ne_bytes());
        let range = if self.read_only { 0 } else { range_sectors_max };
        put(40, &0u32.to_ne_bytes());
        put(44, &block.to_ne_bytes());
        put(48, &range.to_ne_bytes());
        put(52, &range.to_ne_bytes());
        put(56, &1u16.to_ne_bytes());
        bytes
    }
}

/// What the kernel was told of a device, and programs rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToldDisk {
    pub size_bytes: u64,
    pub read_only: bool,
}

impl ToldDisk {
    pub(super) fn decode(parameters: &[u8; PARAMETER_BYTES]) -> Self {
        let attributes = u32::from_ne_bytes(*parameters[8..].first_chunk().expect("60 bytes"));
        let sectors = u64::from_ne_bytes(*parameters[24..].first_chunk().expect("60 bytes"));
        let size_bytes = sectors.saturating_mul(SECTOR_BYTES);
        Self { size_bytes, read_only: attributes & READ_ONLY != 0 }
    }
}

/// What a volume is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskRequest {
    pub command: DiskCommand,
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// See [`DiskRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskCommand {
    Read,
    Write(Durability),
    Flush,
    Discard,
    Zero(Unmap, Durability),
}

/// What a request of the kernel's asks for; `None` of one that was not offered, or is too long.
pub(super) fn decide(request: UblkRequest, request_bytes_max: u32) -> Option<DiskRequest> {
    const FUA: u32 = 1 << 13;
    const NO_UNMAP: u32 = 1 << 15;
    let durability = if request.what & FUA != 0 { Durability::Fua } else { Durability::Cached };
    let unmap = if request.what & NO_UNMAP != 0 { Unmap::No } else { Unmap::Yes };
    let length_bytes = u64::from(request.sectors) * SECTOR_BYTES;
    if request.what & 0xff == 2 {
        // Where it would be means nothing, and is beyond every disk.
        return Some(DiskRequest { command: DiskCommand::Flush, offset_bytes: 0, length_bytes: 0 });
    }
    let offset_bytes = request.first_sector.checked_mul(SECTOR_BYTES)?;
    let command = match request.what & 0xff {
        0 => DiskCommand::Read,
        1 => DiskCommand::Write(durability),
        3 => DiskCommand::Discard,
        5 => DiskCommand::Zero(unmap, durability),
        _ => return None,
    };
    let has_data = matches!(command, DiskCommand::Read | DiskCommand::Write(_));
    let fits = !has_data || length_bytes <= u64::from(request_bytes_max);
    fits.then_some(DiskRequest { command, offset_bytes, length_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_device_comes_back() {
        let info = DeviceInfo {
            queues: 2,
            depth: 128,
            state: DeviceState::Dead,
            request_bytes_max: 512 << 10,
            number: 7,
            pid: 4711,
            features: feature::RECOVERY | feature::REISSUE,
            mark: mark_of("an array"),
        };
        assert_eq!(DeviceInfo::decode(&info.encode()), info);
        let mut bytes = info.encode();
        for (state, known) in [DeviceState::Dead, DeviceState::Live, DeviceState::Quiesced].iter().zip(0..) {
            bytes[4] = known;
            assert_eq!(DeviceInfo::decode(&bytes).state, *state);
        }
        bytes[4] = 9;
        assert_eq!(DeviceInfo::decode(&bytes).state, DeviceState::Unknown(9));
    }

    #[test]
    fn a_mark_tells_ours_and_which() {
        assert!(is_ours(mark_of("a")) && is_ours(mark_of("b")) && mark_of("a") != mark_of("b"));
        assert!(!is_ours(0) && !is_ours(u64::MAX));
    }

    #[test]
    fn parameters_have_their_fields_where_the_header_has_them() {
        let mut disk = DiskParameters {
            size_bytes: 10 << 30,
            read_only: false,
            block_bytes: 512,
            io_min_bytes: 64 << 10,
            io_opt_bytes: 256 << 10,
        };
        let bytes = disk.encode(512 << 10, 4 << 20);
        let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!((word(&bytes, 0), word(&bytes, 4), word(&bytes, 8)), (60, 3, 12));
        assert_eq!(bytes[12..16], [9, 12, 18, 16], "logical, physical, optimal, minimal");
        assert_eq!((word(&bytes, 16), word(&bytes, 20)), (1024, 0));
        assert_eq!(ToldDisk::decode(&bytes), ToldDisk { size_bytes: 10 << 30, read_only: false });
        assert_eq!((word(&bytes, 44), word(&bytes, 48), word(&bytes, 52)), (512, 4 << 20, 4 << 20));
        assert_eq!(bytes[56..60], [1, 0, 0, 0]);
        // A stripe of three chunks is no power of two; a chunk may be none either.
        (disk.io_opt_bytes, disk.read_only) = (192 << 10, true);
        let bytes = disk.encode(512 << 10, 4 << 20);
        assert_eq!((&bytes[12..16], word(&bytes, 8), word(&bytes, 48)), (&[9, 12, 16, 16][..], 13, 0));
        assert!(ToldDisk::decode(&bytes).read_only);
        (disk.io_min_bytes, disk.block_bytes) = (12 << 10, 4096);
        assert_eq!(disk.encode(512 << 10, 4 << 20)[12..16], [12, 12, 12, 12]);
    }

    #[test]
    fn requests_are_what_they_say() {
        let decide = |what, sectors, first_sector| {
            decide(UblkRequest { what, sectors, first_sector }, 512 << 10)
                .map(|request| (request.command, request.offset_bytes, request.length_bytes))
        };
        assert_eq!(decide(0, 8, 16), Some((DiskCommand::Read, 8192, 4096)));
        assert_eq!(decide(1, 8, 16), Some((DiskCommand::Write(Durability::Cached), 8192, 4096)));
        assert_eq!(decide(1 | 1 << 13, 1, 0), Some((DiskCommand::Write(Durability::Fua), 0, 512)));
        for first_sector in [0, u64::MAX] {
            assert_eq!(decide(2, 0, first_sector), Some((DiskCommand::Flush, 0, 0)));
        }
        assert_eq!(decide(3, 4 << 20, 0), Some((DiskCommand::Discard, 0, 2 << 30)));
        let zero = |unmap| DiskCommand::Zero(unmap, Durability::Cached);
        assert_eq!(decide(5, 8, 0), Some((zero(Unmap::Yes), 0, 4096)));
        assert_eq!(decide(5 | 1 << 15, 8, 0), Some((zero(Unmap::No), 0, 4096)));
        // Hints that change nothing: failfast, meta, swap.
        assert_eq!(
            decide(1 | 1 << 8 | 1 << 11 | 1 << 16, 1, 0).map(|(what, ..)| what),
            decide(1, 1, 0).map(|(what, ..)| what)
        );
        for (what, sectors, first) in [(4, 1, 0), (13, 1, 0), (0, 1025, 0), (1, 1025, 0), (0, 1, u64::MAX)] {
            assert_eq!(decide(what, sectors, first), None, "{what} {sectors} {first}");
        }
    }
}
