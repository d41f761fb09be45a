//! What assembly needs to know of a superblock, whatever version it has: one shape for 0.90 and 1.x.
//!
//! Numbers are as the superblock states them and may still be nonsense; `assemble` checks them against each other and the
//! geometry. All sectors have 512 bytes.

pub use wattle_format::md::{Features, Role, Uuid, Version};

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
    /// By device number.
    pub roles: Vec<Role>,
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
}

impl SuperblockFacts {
    /// What the superblock says its own device is.
    #[must_use]
    pub fn own_role(&self) -> Role {
        self.role_of(self.dev_number)
    }

    /// What it says of device `dev_number`; devices beyond its table are spares.
    #[must_use]
    pub fn role_of(&self, dev_number: u32) -> Role {
        self.roles.get(dev_number as usize).copied().unwrap_or(Role::Spare)
    }

    /// Whether it knows a working device in `slot`.
    #[must_use]
    pub fn fills(&self, slot: u16) -> bool {
        self.roles.contains(&Role::Active(slot))
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
    /// What is there is not a bitmap of this array, or cannot be read.
    Invalid,
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
    /// Something is logged that the members do not have.
    Ahead {
        /// How many pages of 4 KiB.
        pages: u64,
    },
}

/// An entry of a bad-block log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRange {
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
    /// Its bad blocks, if the superblock says that there are any; `None` if the log cannot be read.
    pub bad_blocks: Option<Vec<BadRange>>,
    /// Its log, if it is a journal.
    pub journal: Option<JournalFacts>,
}
