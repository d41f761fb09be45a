//! The write-intent bitmap: docs/formats.md §2, lockless §10.2, clustered §10.3.
//!
//! [`Header`] is the 256-byte superblock of a bitmap, bytes kept as they are. It has no checksum: a
//! stale bitmap is noticed only through its event count (hazard 7 in docs/formats.md §19), so a
//! caller that updates superblocks updates [`Header::set_events`] in the same round, or removes the
//! bitmap.

use super::defaults;
use crate::bytes::{array, le32, le64, put, put_le32, put_le64};

const MAGIC: u32 = 0x6d74_6962;
/// Bytes before the first bit.
pub const HEADER_BYTES: usize = 256;
/// What a reader fetches and a writer writes at once: the first page holds the header and 30720
/// bits.
pub const PAGE_BYTES: usize = 4096;
/// Largest write_behind.
const MAX_WRITE_BEHIND: u32 = 16383;
/// Bytes before the first state of a lockless bitmap.
pub const LOCKLESS_HEADER_BYTES: u64 = 1024;

/// The state of a chunk of a lockless bitmap whose copies or parity agree. Every other one says
/// that they need not: never written, written to, or not synced since a crash.
pub const LOCKLESS_CLEAN: u8 = 1;

mod field {
    pub(super) const VERSION: usize = 4;
    pub(super) const UUID: usize = 8;
    pub(super) const EVENTS: usize = 24;
    pub(super) const EVENTS_CLEARED: usize = 32;
    pub(super) const SYNC_SIZE: usize = 40;
    pub(super) const STATE: usize = 48;
    pub(super) const CHUNK: usize = 52;
    pub(super) const DAEMON_SLEEP: usize = 56;
    pub(super) const WRITE_BEHIND: usize = 60;
    pub(super) const SECTORS_RESERVED: usize = 64;
    pub(super) const NODES: usize = 68;
}

/// Kinds of bitmap by version number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapKind {
    /// 3: bits in the order of the machine that wrote it; read as little-endian, which those were.
    HostEndian,
    /// 4: the normal one.
    Normal,
    /// 5: one bitmap per cluster node. Never to be written by a reader that is not in the cluster.
    Clustered,
    /// 6: one byte per chunk. Never to be written by a reader that does not keep its states.
    Lockless,
}

/// Why a bitmap is refused. The array must not start as if it had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// The header is not all there.
    #[error("only {got} of the bitmap header's {HEADER_BYTES} bytes could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// No bitmap where the superblock says there is one.
    #[error("bitmap magic is {found:#010x}, not {MAGIC:#010x}")]
    Magic {
        /// What is there.
        found: u32,
    },
    /// Not 3 to 6.
    #[error("bitmap version is {found}, known are 3 to 6")]
    Version {
        /// The stored value.
        found: u32,
    },
    /// No power of two from 512.
    #[error("bitmap chunk of {found} bytes is no power of two from 512")]
    Chunk {
        /// The stored value.
        found: u32,
    },
    /// Zero.
    #[error("bitmap sweeps every 0 seconds")]
    DaemonSleep,
    /// Past 16383.
    #[error("bitmap write-behind is {found}, at most {MAX_WRITE_BEHIND} is possible")]
    WriteBehind {
        /// The stored value.
        found: u32,
    },
    /// It belongs to another array.
    #[error("bitmap belongs to another array")]
    OtherArray,
    /// No image can be made: the bits do not fit the room.
    #[error("a bitmap of {need} bytes does not fit into {room} bytes")]
    DoesNotFit {
        /// Bytes needed.
        need: u64,
        /// Bytes there are.
        room: u64,
    },
}

/// Whether a bitmap's bits can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// As new as the array.
    Current,
    /// Someone ran the array without it, or it says so itself: every chunk counts as dirty, and it
    /// is rewritten with all ones and events_cleared = the array's events.
    Stale,
}

/// The header of a bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; HEADER_BYTES],
}

impl Header {
    /// State value: the bitmap is stale.
    pub const STALE: u32 = 1 << 1;
    /// State value: a bitmap write failed.
    pub const WRITE_ERROR: u32 = 1 << 2;
    /// State value: bits in host order.
    pub const HOST_ENDIAN: u32 = 1 << 15;

    /// Reads and checks a header (§2.2).
    ///
    /// # Errors
    /// It is refused; there is no bitmap to fall back to.
    pub fn decode(bytes: &[u8]) -> Result<Header, BitmapError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BitmapError::Truncated { got: bytes.len() });
        };
        let header = Header { bytes: *bytes };
        let found = le32(bytes, 0);
        if found != MAGIC {
            return Err(BitmapError::Magic { found });
        }
        let kind = header.checked_kind()?;
        let chunk = header.chunk_field();
        // The lockless version counts something else in this field (§10.2); nothing here depends on
        // it.
        if kind != BitmapKind::Lockless && (chunk < 512 || !chunk.is_power_of_two()) {
            return Err(BitmapError::Chunk { found: chunk });
        }
        if header.daemon_sleep_secs() < 1 {
            return Err(BitmapError::DaemonSleep);
        }
        if header.write_behind() > MAX_WRITE_BEHIND {
            return Err(BitmapError::WriteBehind { found: header.write_behind() });
        }
        Ok(header)
    }

    /// Compares with the array: `array_uuid` is [`super::SuperblockFields::stored_uuid`] (zeros for
    /// dm-raid).
    ///
    /// # Errors
    /// The bitmap is another array's.
    pub fn freshness(&self, array_uuid: &[u8; 16], array_events: u64) -> Result<Freshness, BitmapError> {
        if self.uuid() != *array_uuid {
            return Err(BitmapError::OtherArray);
        }
        Ok(if self.is_fresh(array_events) { Freshness::Current } else { Freshness::Stale })
    }

    /// Whether the bits of a bitmap of this array can be believed: it was kept up to the array's
    /// last event, and does not say itself that it is stale or that a write of it failed.
    #[must_use]
    pub fn is_fresh(&self, array_events: u64) -> bool {
        self.events() >= array_events && !self.says_stale()
    }

    /// Whether it says itself that its bits are not to be believed: it is stale, or a write of it
    /// failed.
    #[must_use]
    pub fn says_stale(&self) -> bool {
        self.state() & (Self::STALE | Self::WRITE_ERROR) != 0
    }

    /// Whether it has one bit per chunk, as a writer outside a cluster can keep up.
    #[must_use]
    pub fn one_bit_per_chunk(&self) -> bool {
        matches!(self.kind(), BitmapKind::Normal | BitmapKind::HostEndian)
    }

    fn checked_kind(&self) -> Result<BitmapKind, BitmapError> {
        match le32(&self.bytes, field::VERSION) {
            3 => Ok(BitmapKind::HostEndian),
            4 => Ok(BitmapKind::Normal),
            5 => Ok(BitmapKind::Clustered),
            6 => Ok(BitmapKind::Lockless),
            found => Err(BitmapError::Version { found }),
        }
    }

    /// Which kind of bitmap follows.
    #[must_use]
    pub fn kind(&self) -> BitmapKind {
        self.checked_kind().expect("a header is only made with a known version")
    }

    /// The bytes, as read or as changed.
    #[must_use]
    pub fn bytes(&self) -> &[u8; HEADER_BYTES] {
        &self.bytes
    }

    /// Id of the array, as the superblock stores it.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        array(&self.bytes, field::UUID)
    }

    /// Superblock generation at the last update.
    #[must_use]
    pub fn events(&self) -> u64 {
        le64(&self.bytes, field::EVENTS)
    }

    /// Generation at which bits were last cleared: a device at least this new can be re-added by
    /// the bitmap (§2.5).
    #[must_use]
    pub fn events_cleared(&self) -> u64 {
        le64(&self.bytes, field::EVENTS_CLEARED)
    }

    /// Sectors covered: the component size, or the array size for RAID 10.
    #[must_use]
    pub fn sync_size_sectors(&self) -> u64 {
        le64(&self.bytes, field::SYNC_SIZE)
    }

    /// State bits, see the constants; unknown ones are kept.
    #[must_use]
    pub fn state(&self) -> u32 {
        le32(&self.bytes, field::STATE)
    }

    /// The chunk field as stored: bytes per bit, a power of two from 512, except in lockless
    /// bitmaps.
    #[must_use]
    pub fn chunk_field(&self) -> u32 {
        le32(&self.bytes, field::CHUNK)
    }

    /// Seconds between sweeps.
    #[must_use]
    pub fn daemon_sleep_secs(&self) -> u32 {
        le32(&self.bytes, field::DAEMON_SLEEP)
    }

    /// RAID 1 write-behind backlog; 0 is off.
    #[must_use]
    pub fn write_behind(&self) -> u32 {
        le32(&self.bytes, field::WRITE_BEHIND)
    }

    /// Room for the bitmap in sectors, or 0 when not said.
    #[must_use]
    pub fn sectors_reserved(&self) -> u32 {
        le32(&self.bytes, field::SECTORS_RESERVED)
    }

    /// Bitmaps of a cluster.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        le32(&self.bytes, field::NODES)
    }

    /// Chunks covered; `None` for lockless bitmaps.
    #[must_use]
    pub fn bits(&self) -> Option<u64> {
        if self.kind() == BitmapKind::Lockless {
            return None;
        }
        let bits =
            (u128::from(self.sync_size_sectors()) * 512).div_ceil(u128::from(self.chunk_field().max(1)));
        u64::try_from(bits).ok()
    }

    /// Bytes of the whole image, header and bits, not rounded; `None` for lockless bitmaps. A
    /// hostile header can claim any size: bound it by the room there is before reading.
    #[must_use]
    pub fn image_bytes(&self) -> Option<u64> {
        Some(HEADER_BYTES as u64 + self.bits()?.div_ceil(8))
    }

    /// Of a lockless bitmap the sectors that one state stands for; `None` for others, and for 0.
    #[must_use]
    pub fn lockless_chunk_sectors(&self) -> Option<u64> {
        (self.kind() == BitmapKind::Lockless && self.chunk_field() > 0).then(|| u64::from(self.chunk_field()))
    }

    /// Of a lockless bitmap the bytes of header and states; `None` for others. As with
    /// [`Self::image_bytes`] to be bounded before it is read.
    #[must_use]
    pub fn lockless_bytes(&self) -> Option<u64> {
        let chunks = self.sync_size_sectors().div_ceil(self.lockless_chunk_sectors()?);
        LOCKLESS_HEADER_BYTES.checked_add(chunks)
    }

    /// Generation.
    pub fn set_events(&mut self, events: u64) {
        put_le64(&mut self.bytes, field::EVENTS, events);
    }

    /// Generation at which bits were last cleared.
    pub fn set_events_cleared(&mut self, events: u64) {
        put_le64(&mut self.bytes, field::EVENTS_CLEARED, events);
    }

    /// State bits.
    pub fn set_state(&mut self, state: u32) {
        put_le32(&mut self.bytes, field::STATE, state);
    }

    /// Sectors covered.
    pub fn set_sync_size_sectors(&mut self, sectors: u64) {
        put_le64(&mut self.bytes, field::SYNC_SIZE, sectors);
    }

    /// Id of the array, as the superblock stores it.
    pub fn set_uuid(&mut self, uuid: &[u8; 16]) {
        put(&mut self.bytes, field::UUID, uuid);
    }
}

/// Parameters of a new bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBitmap {
    /// [`super::SuperblockFields::stored_uuid`] of the array.
    pub uuid: [u8; 16],
    /// Sectors covered: the component size, or the array size for RAID 10.
    pub sync_size_sectors: u64,
    /// Bytes per bit.
    pub chunk_bytes: u32,
    /// Seconds between sweeps, [`defaults::DAEMON_SLEEP_SECS`].
    pub daemon_sleep_secs: u32,
    /// RAID 1 write-behind backlog.
    pub write_behind: u32,
}

/// The image mdadm writes for a new array: header, then ones up to a whole number of 4 KiB pages,
/// events 0. The bits past the last chunk are ones too.
///
/// # Errors
/// Parameters no reader accepts, or more than `room_bytes`.
pub fn new_image(new: &NewBitmap, room_bytes: u64) -> Result<Vec<u8>, BitmapError> {
    let mut bytes = [0; HEADER_BYTES];
    put_le32(&mut bytes, 0, MAGIC);
    put_le32(&mut bytes, field::VERSION, 4);
    put(&mut bytes, field::UUID, &new.uuid);
    put_le64(&mut bytes, field::SYNC_SIZE, new.sync_size_sectors);
    put_le32(&mut bytes, field::CHUNK, new.chunk_bytes);
    put_le32(&mut bytes, field::DAEMON_SLEEP, new.daemon_sleep_secs);
    put_le32(&mut bytes, field::WRITE_BEHIND, new.write_behind);
    Header::decode(&bytes)?;
    let need = defaults::bitmap_bytes(new.sync_size_sectors, u64::from(new.chunk_bytes));
    let need = need.checked_next_multiple_of(PAGE_BYTES as u64).unwrap_or(u64::MAX);
    let fits = usize::try_from(need).ok().filter(|_| need <= room_bytes);
    let Some(len) = fits else { return Err(BitmapError::DoesNotFit { need, room: room_bytes }) };
    let mut image = vec![0xff; len];
    image[..HEADER_BYTES].copy_from_slice(&bytes);
    Ok(image)
}

/// Ones among the first `bits` bits of `bytes` (which start after the header). Bits past the end,
/// usually ones, are not counted; bits past `bytes` count as zero.
#[must_use]
pub fn count_ones(bytes: &[u8], bits: u64) -> u64 {
    let whole = usize::try_from(bits / 8).unwrap_or(usize::MAX).min(bytes.len());
    let ones: u64 = bytes[..whole].iter().map(|byte| u64::from(byte.count_ones())).sum();
    let tail = match bytes.get(whole) {
        Some(byte) if whole as u64 == bits / 8 => byte & ((1 << (bits % 8)) - 1),
        _ => 0,
    };
    ones + u64::from(tail.count_ones())
}

/// Bit `bit` of `bytes` (which start after the header); zero past their end.
#[must_use]
pub fn is_set(bytes: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// Sets or clears bit `bit` of `bytes`; past their end nothing happens.
pub fn set(bytes: &mut [u8], bit: u64, on: bool) {
    let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bytes.get_mut(at)) else { return };
    let mask = 1 << (bit % 8);
    if on { *byte |= mask } else { *byte &= !mask }
}

/// The numbers of the ones among the first `bits` bits, ascending.
pub fn ones(bytes: &[u8], bits: u64) -> impl Iterator<Item = u64> + '_ {
    let bits_of = |byte: u8| (0..8_u64).filter(move |bit| byte >> bit & 1 == 1);
    let all = (0_u64..).zip(bytes).flat_map(move |(at, &byte)| bits_of(byte).map(move |bit| 8 * at + bit));
    all.take_while(move |&bit| bit < bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] =
        [0xc1, 0x10, 0x14, 0x93, 0xbd, 0x98, 0x48, 0x88, 0x60, 0x12, 0x59, 0xeb, 0x64, 0xc1, 0xaf, 0xd5];

    fn new(sync_size_sectors: u64, chunk_bytes: u32) -> NewBitmap {
        NewBitmap { uuid: UUID, sync_size_sectors, chunk_bytes, daemon_sleep_secs: 5, write_behind: 0 }
    }

    /// The bitmap mdadm 4.2 wrote for a RAID 1 of 16 MiB devices, docs/formats.md §18.1.
    fn vector() -> Vec<u8> {
        let words = "6269746d 04000000 c1101493 bd984888 601259eb 64c1afd5 00000000 00000000 \
                     00000000 00000000 00380000 00000000 00000000 00000100 05000000 00000000";
        let digits: String = words.split_whitespace().collect();
        let mut image = vec![0; 256];
        for (at, byte) in image[..64].iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
        }
        image.resize(4096, 0xff);
        image
    }

    #[test]
    fn new_image_is_what_mdadm_writes() {
        assert_eq!(new_image(&new(14336, 65536), 4096).unwrap(), vector());
        let large = new_image(&new(1 << 33, 64 << 20), 12288).unwrap();
        assert_eq!(large.len(), 12288, "65536 bits and the header, in pages");
        assert_eq!(
            new_image(&new(1 << 33, 64 << 20), 12287),
            Err(BitmapError::DoesNotFit { need: 12288, room: 12287 })
        );
        assert!(new_image(&new(u64::MAX, 512), 1 << 20).is_err(), "no allocation for a hopeless size");
    }

    #[test]
    fn decodes_the_vector() {
        let header = Header::decode(&vector()).unwrap();
        assert_eq!(header.bytes()[..], vector()[..256]);
        assert_eq!((header.kind(), header.sync_size_sectors()), (BitmapKind::Normal, 14336));
        assert_eq!((header.chunk_field(), header.bits()), (65536, Some(112)));
    }

    /// Hazard 11 of docs/formats.md §19: fresh images hold ones past the last chunk. Counting them
    /// makes a clean array look dirty for ever.
    #[test]
    fn bits_past_the_end_do_not_count() {
        let image = new_image(&new(1000, 4096), 4096).unwrap();
        let bits = Header::decode(&image).unwrap().bits().unwrap();
        assert_eq!(bits, 125);
        let bytes = &image[HEADER_BYTES..];
        assert_eq!(count_ones(bytes, bits), 125);
        assert_eq!(ones(bytes, bits).collect::<Vec<_>>(), (0..125).collect::<Vec<_>>());
    }

    /// Hazard 7: only events tell that the array ran without its bitmap being maintained.
    #[test]
    fn an_older_bitmap_is_stale() {
        let mut header = Header::decode(&vector()).unwrap();
        header.set_events(7);
        assert_eq!(header.freshness(&UUID, 7), Ok(Freshness::Current));
        assert_eq!(header.freshness(&UUID, 8), Ok(Freshness::Stale));
        assert_eq!(header.freshness(&UUID, 6), Ok(Freshness::Current));
        assert_eq!(header.freshness(&[0; 16], 7), Err(BitmapError::OtherArray));
        for state in [Header::STALE, Header::WRITE_ERROR, Header::STALE | Header::HOST_ENDIAN] {
            header.set_state(state);
            assert_eq!(header.freshness(&UUID, 7), Ok(Freshness::Stale), "it may say so itself");
        }
        header.set_state(Header::HOST_ENDIAN);
        assert_eq!(header.freshness(&UUID, 7), Ok(Freshness::Current));
    }

    #[test]
    fn acceptance() {
        let refused = |at: usize, value: u32| {
            let mut bytes = vector();
            put_le32(&mut bytes, at, value);
            Header::decode(&bytes).unwrap_err()
        };
        assert_eq!(refused(0, 0), BitmapError::Magic { found: 0 });
        assert_eq!(refused(4, 2), BitmapError::Version { found: 2 });
        assert_eq!(refused(4, 7), BitmapError::Version { found: 7 });
        assert_eq!(refused(52, 65537), BitmapError::Chunk { found: 65537 });
        assert_eq!(refused(52, 256), BitmapError::Chunk { found: 256 });
        assert_eq!(refused(56, 0), BitmapError::DaemonSleep);
        assert_eq!(refused(60, 16384), BitmapError::WriteBehind { found: 16384 });
        assert_eq!(Header::decode(&[0; 255]), Err(BitmapError::Truncated { got: 255 }));
        for (version, kind) in
            [(3, BitmapKind::HostEndian), (5, BitmapKind::Clustered), (6, BitmapKind::Lockless)]
        {
            let mut bytes = vector();
            put_le32(&mut bytes, 4, version);
            assert_eq!(Header::decode(&bytes).unwrap().kind(), kind);
        }
    }

    proptest! {
        #[test]
        fn counting_matches_one_bit_at_a_time(bytes in prop::collection::vec(any::<u8>(), 0..20), bits in 0_u64..200) {
            let naive: Vec<u64> = (0..bits).filter(|&bit| is_set(&bytes, bit)).collect();
            prop_assert_eq!(count_ones(&bytes, bits), naive.len() as u64);
            prop_assert_eq!(ones(&bytes, bits).collect::<Vec<_>>(), naive);
        }

        /// Whatever else the header holds survives a change of events.
        #[test]
        fn one_setter_changes_one_field(noise in prop::collection::vec(any::<u8>(), 184), events: u64) {
            let mut bytes = vector();
            bytes[72..256].copy_from_slice(&noise);
            let mut header = Header::decode(&bytes).unwrap();
            header.set_events(events);
            bytes[24..32].copy_from_slice(&events.to_le_bytes());
            prop_assert_eq!(&header.bytes()[..], &bytes[..256]);
        }
    }
}
