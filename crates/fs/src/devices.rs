//! The devices of a file system that lies on several.

/// A device of a file system that lies on several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsDevice {
    /// Its number in the file system.
    pub id: u64,
    /// Its own identifier.
    pub uuid: [u8; 16],
    /// Its size in bytes, by the file system's account.
    pub size_bytes: u64,
    /// Whether it is here, and used.
    pub state: FsDeviceState,
    /// The transaction of its superblock; `None` if it is not here.
    pub generation: Option<u64>,
    /// Which of those given it is.
    pub given: Option<usize>,
}

/// Whether a device is here, and used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsDeviceState {
    /// It is here.
    InUse,
    /// It is here, and is a seed: another file system, from which this one was made.
    Seed,
    /// It is here, and others were written since: what it has is used where it proves to be right,
    /// or where nothing else has it.
    Stale {
        /// The transaction of the newest superblock.
        newest: u64,
    },
    /// It is not here.
    Missing,
    /// It is a copy of one that is used, or an older state of it.
    Twice,
    /// It was being filled to replace another one, which is still part of the file system.
    Replacement,
    /// The file system does not list it any more.
    NotListed,
}

impl FsDeviceState {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::InUse => "in use",
            Self::Seed => "seed",
            Self::Stale { .. } => "stale",
            Self::Missing => "missing",
            Self::Twice => "copy",
            Self::Replacement => "replacement",
            Self::NotListed => "not listed",
        }
    }
}

/// A file system that lies on several devices, and these.
#[derive(Debug)]
pub struct FsDevices {
    /// `btrfs`.
    pub kind: &'static str,
    /// Its identifier.
    pub uuid: [u8; 16],
    /// Its label: any bytes, none if it has no label.
    pub label: Vec<u8>,
    /// By number.
    pub devices: Vec<FsDevice>,
    /// Of the space that is given to data and metadata, in bytes, what is on missing devices alone.
    pub lost_bytes: u64,
    /// All of that space.
    pub allocated_bytes: u64,
    /// Why it cannot be opened with those that are here: others may be missing that are not among
    /// the devices.
    pub problem: Option<crate::Error>,
}
