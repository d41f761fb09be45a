//! What assembly needs to know of a superblock, whatever version it has: one shape for 0.90 and
//! 1.x.
//!
//! Numbers are as the superblock states them and may still be nonsense; `assemble` checks them
//! against each other and the geometry. All sectors have 512 bytes.

use wattle_engine::Regions;
pub use wattle_format::md::{DeviceRole, Features, Reshape, Uuid, Version};
use wattle_format::md::{SuperblockFields, bitmap, ppl};

pub use crate::md::container::{ContainerFormat, ContainerRefusal, ContainerVolume};

/// `resync_offset` of an array whose parity and copies agree everywhere.
pub const CLEAN: u64 = u64::MAX;

/// A superblock, reduced to what decisions are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperblockFacts {
    /// Version and place.
    pub version: Version,
    /// The array.
    pub set_uuid: Uuid,
    /// `host:name`; for 0.90 `md` and the preferred minor number.
    pub set_name: String,
    /// -1 linear, 0, 1, 4, 5, 6, 10; others are not supported.
    pub level: i32,
    /// Meaning by level.
    pub layout: u32,
    /// Sectors.
    pub chunk_sectors: u32,
    /// Sectors used of each member; 0 for linear and RAID 0.
    pub size_sectors: u64,
    /// Slots.
    pub raid_disks: u32,
    /// The device's own index in `roles`.
    pub dev_number: u32,
    /// The device's own id (1.x).
    pub device_uuid: Option<Uuid>,
    /// By device number.
    pub roles: Vec<DeviceRole>,
    /// Generation of the superblock.
    pub events: u64,
    /// When the array was created, seconds since the epoch.
    pub ctime_secs: u64,
    /// When the superblock was last written, seconds since the epoch.
    pub utime_secs: u64,
    /// [`CLEAN`], or how far parity and copies are known to agree.
    pub resync_offset: u64,
    /// The device is rebuilt below this sector of its data only; `None` if it is whole.
    pub recovery_offset: Option<u64>,
    /// Where the data starts on the device.
    pub data_offset_sectors: u64,
    /// How much of the device may hold data.
    pub data_size_sectors: u64,
    /// Feature bits; for 0.90 those that say the same.
    pub features: Features,
    /// The reshape in progress: level, layout and chunk above are then the old ones, `raid_disks`
    /// is new.
    pub reshape: Option<Reshape>,
    /// What it is as a volume of a container, if there is no superblock and firmware's metadata
    /// says all this.
    pub container: Option<ContainerVolume>,
}

impl SuperblockFacts {
    /// The fields that decide.
    #[must_use]
    pub fn of(fields: &SuperblockFields) -> Self {
        Self {
            version: fields.version(),
            set_uuid: fields.set_uuid(),
            set_name: fields.md_minor().map_or_else(|| fields.name(), |minor| format!("md{minor}")),
            level: fields.level(),
            layout: fields.layout(),
            chunk_sectors: fields.chunk_sectors(),
            size_sectors: fields.size_sectors(),
            raid_disks: fields.raid_disks(),
            dev_number: fields.dev_number(),
            device_uuid: fields.device_uuid(),
            roles: fields.roles().collect(),
            events: fields.events(),
            ctime_secs: fields.ctime().secs,
            utime_secs: fields.utime().secs,
            resync_offset: fields.resync_offset(),
            recovery_offset: fields.recovery_offset().or(fields.is_filled_by_reshape().then_some(0)),
            data_offset_sectors: fields.data_offset_sectors(),
            data_size_sectors: fields.data_size_sectors(),
            features: fields.features(),
            reshape: fields.reshape(),
            container: None,
        }
    }

    /// Whose metadata it is, as mdadm calls it: `1.2`, `imsm`.
    #[must_use]
    pub fn metadata_name(&self) -> String {
        self.container.as_ref().map_or_else(|| self.version.to_string(), |volume| volume.format.to_string())
    }

    /// How many slots it had before a reshape; without one as many as it has. May be anything that
    /// two numbers of the superblock work out to.
    #[must_use]
    pub fn old_raid_disks(&self) -> i64 {
        i64::from(self.raid_disks) - self.reshape.map_or(0, |reshape| i64::from(reshape.delta_disks))
    }

    /// The slots there are: in a reshape those of the geometry that has more.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        u32::try_from(self.old_raid_disks()).unwrap_or(0).max(self.raid_disks)
    }

    /// What the superblock says its own device is.
    #[must_use]
    pub fn own_role(&self) -> DeviceRole {
        self.role_of(self.dev_number)
    }

    /// What it says of device `dev_number`; devices beyond its table are spares.
    #[must_use]
    pub fn role_of(&self, dev_number: u32) -> DeviceRole {
        self.roles.get(dev_number as usize).copied().unwrap_or(DeviceRole::Spare)
    }

    /// Whether it knows a working device in `slot`.
    #[must_use]
    pub fn fills(&self, slot: u16) -> bool {
        self.roles.contains(&DeviceRole::Active(slot))
    }

    /// Whether all of `bits` are set.
    #[must_use]
    pub fn has(&self, bits: Features) -> bool {
        self.features.contains(bits)
    }

    /// The array's name without the host.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.set_name.rsplit_once(':').map_or(self.set_name.as_str(), |(_, name)| name)
    }
}

/// The write-intent bitmap of a member, as far as its header goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapFacts {
    /// The superblock names none.
    None,
    /// Its header says this version.
    Version(u32),
    /// What is there is not a bitmap of this array.
    Invalid,
    /// The drive does not give its header.
    Unreadable,
}

/// What a bitmap of version 3 or 4 says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapContent {
    /// The generation of superblocks that it was last written with.
    pub events: u64,
    /// The generation at which bits were last cleared: a member at least this new lacks nothing but
    /// what is set.
    pub events_cleared: u64,
    /// It says itself that it is stale.
    pub stale: bool,
    /// Sectors for each bit, at least 1.
    pub region_sectors: u64,
    /// Sectors it covers: of each member's data; of the array for RAID 10.
    pub covered_sectors: u64,
    /// Seconds between sweeps.
    pub sweep_secs: u32,
    /// A bit for each region as they are on the member, the lowest of each byte first: a list of
    /// what is set would take sixty-four times as much of a bitmap that is full.
    pub bits: Vec<u8>,
}

impl BitmapContent {
    /// How many bits it has.
    #[must_use]
    pub fn regions(&self) -> u64 {
        self.covered_sectors.div_ceil(self.region_sectors.max(1))
    }

    /// Whether it has a bit for each of these regions, and no other.
    pub(crate) fn is_laid_out_as(&self, regions: &Regions) -> bool {
        (self.region_sectors, self.covered_sectors) == (regions.size().0, regions.total().0)
    }

    /// The regions whose bit is set, ascending.
    pub fn set(&self) -> impl Iterator<Item = u64> + '_ {
        bitmap::ones(&self.bits, self.regions())
    }
}

/// A member's partial parity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PplFacts {
    /// Where its area starts, from the start of the device.
    pub start_sector: u64,
    /// How long that is.
    pub len_sectors: u64,
    /// Its newest header.
    pub newest: PplNewest,
}

/// The newest header of a partial parity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PplNewest {
    /// There is no valid one: what was in flight is not known.
    Missing,
    /// The drive does not give it.
    Unreadable,
    /// It is valid.
    Header {
        /// Larger is newer.
        generation: u64,
        /// Ranges of stripes that were in flight.
        entries: usize,
    },
}

/// The journal device's log behind its tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalFacts {
    /// Nothing is logged.
    Empty,
    /// Something is, or may be, and it was not or cannot be compared with the members.
    NotEmpty,
    /// All that is logged is on the members too.
    Written {
        /// Of 4 KiB each.
        pages: u64,
    },
    /// Something is logged that the members do not have, or the log does not end in good order.
    Ahead {
        /// How many pages of 4 KiB the members do not have.
        pages: u64,
        /// How it ends.
        end: JournalEnd,
    },
}

/// How the log of a journal ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JournalEnd {
    /// Before a block that is none of it.
    #[default]
    Whole,
    /// With a meta block whose pages are not what was logged: the power went while they were
    /// written.
    CutShort,
    /// With a block that is not what was logged, and there is more of the log behind it.
    Damaged,
}

/// An entry of a bad-block log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBlockEntry {
    /// First sector, from the start of the device.
    pub start_sector: u64,
    /// How many.
    pub len_sectors: u64,
}

/// A member and everything assembly asks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFacts {
    /// As the operator named it.
    pub name: String,
    /// Size of the file or device.
    pub size_sectors: u64,
    /// Its superblock.
    pub superblock: SuperblockFacts,
    /// Its bitmap.
    pub bitmap: BitmapFacts,
    /// What its bitmap says; `None` if it has none of version 3, 4 or 6, or its bits cannot be
    /// read.
    pub bitmap_content: Option<BitmapContent>,
    /// Its partial parity log; `None` if its superblock names none.
    pub ppl: Option<PplFacts>,
    /// Its bad blocks, if the superblock says that there are any; `None` if the log cannot be read.
    pub bad_blocks: Option<Vec<BadBlockEntry>>,
    /// Its log, if it is a journal.
    pub journal: Option<JournalFacts>,
}

impl MemberFacts {
    /// A member of which only the superblock is known: as if it named no areas.
    #[must_use]
    pub fn new(name: impl Into<String>, size_sectors: u64, superblock: SuperblockFacts) -> Self {
        Self {
            name: name.into(),
            size_sectors,
            superblock,
            bitmap: BitmapFacts::None,
            bitmap_content: None,
            ppl: None,
            bad_blocks: Some(Vec::new()),
            journal: None,
        }
    }

    /// Takes in a member's bitmap from its bytes: the header, and the bits behind it as far as they
    /// could be read. `stored_uuid` is the array's as its superblocks store it.
    pub fn set_bitmap(&mut self, bytes: &[u8], stored_uuid: &[u8; 16]) {
        let header = bitmap::Header::decode(bytes).ok().filter(|header| header.uuid() == *stored_uuid);
        self.bitmap = match header.as_ref().map(bitmap::Header::kind) {
            None => BitmapFacts::Invalid,
            Some(bitmap::BitmapKind::HostEndian) => BitmapFacts::Version(3),
            Some(bitmap::BitmapKind::Normal) => BitmapFacts::Version(4),
            Some(bitmap::BitmapKind::Clustered) => BitmapFacts::Version(5),
            Some(bitmap::BitmapKind::Lockless) => BitmapFacts::Version(6),
        };
        self.bitmap_content = header.and_then(|header| BitmapContent::of(&header, bytes));
    }

    /// Takes in a member's partial parity log from the bytes of its area, which starts at
    /// `start_sector`.
    pub fn set_ppl(&mut self, area: &[u8], start_sector: u64, stored_uuid: &[u8; 16]) {
        let newest = match ppl::newest(area, stored_uuid) {
            None => PplNewest::Missing,
            Some(ppl::Newest { header, .. }) => {
                PplNewest::Header { generation: header.generation, entries: header.entries.len() }
            }
        };
        self.ppl = Some(PplFacts { start_sector, len_sectors: area.len() as u64 / 512, newest });
    }
}

impl BitmapContent {
    /// What the bits behind a header say; `None` if not all of them are there, or each does not
    /// stand for one region.
    pub(crate) fn of(header: &bitmap::Header, bytes: &[u8]) -> Option<Self> {
        if let Some(chunk) = header.lockless_chunk_sectors() {
            return Self::of_lockless(header, chunk, bytes);
        }
        if !matches!(header.kind(), bitmap::BitmapKind::Normal | bitmap::BitmapKind::HostEndian) {
            return None;
        }
        let image_bytes = usize::try_from(header.image_bytes()?).ok()?;
        Some(Self {
            events: header.events(),
            events_cleared: header.events_cleared(),
            stale: header.says_stale(),
            region_sectors: u64::from(header.chunk_field() / 512),
            covered_sectors: header.sync_size_sectors(),
            sweep_secs: header.daemon_sleep_secs(),
            bits: bytes.get(bitmap::HEADER_BYTES..image_bytes)?.to_vec(),
        })
    }

    /// The same of a lockless one (docs/formats.md §10.2): a bit for every chunk in which copies or
    /// parity need not agree.
    fn of_lockless(header: &bitmap::Header, chunk_sectors: u64, bytes: &[u8]) -> Option<Self> {
        let len = usize::try_from(header.lockless_bytes()?).ok()?;
        let states = bytes.get(bitmap::LOCKLESS_HEADER_BYTES as usize..len)?;
        let bit = |(at, &state): (usize, &u8)| u8::from(state != bitmap::LOCKLESS_CLEAN) << at;
        Some(Self {
            events: header.events(),
            events_cleared: header.events_cleared(),
            stale: header.says_stale(),
            region_sectors: chunk_sectors,
            covered_sectors: header.sync_size_sectors(),
            sweep_secs: header.daemon_sleep_secs(),
            bits: states.chunks(8).map(|eight| eight.iter().enumerate().map(bit).sum()).collect(),
        })
    }
}
