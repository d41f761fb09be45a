//! What an audit knows: values without behaviour beyond finding one's way among them. All sizes are
//! bytes.

use super::fragments::{FragmentFacts, ReadModels};
use super::{Unchecked, word};
use crate::limits::Scheme;

/// Members of an array with a partial parity log.
const PARTIAL_PARITY_LOG_SLOTS_MAX: u32 = 64;

/// What was found, of members or of a whole system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditFacts {
    /// Everything that has bytes: drives, partitions, and what arrays and volume groups offer.
    /// Below comes before above.
    pub devices: Vec<DeviceFacts>,
    /// Arrays.
    pub arrays: Vec<ArrayFacts>,
    /// Volume groups.
    pub groups: Vec<GroupFacts>,
    /// What a running system says of itself; `None` if only members were looked at.
    pub system: Option<SystemFacts>,
    /// What the stack is to be used for, where that was said.
    pub request: Option<IntendedUse>,
    /// Drives to reckon with where it is asked what reading costs.
    pub read_models: Option<ReadModels>,
    /// What could not be found out.
    pub unread: Vec<Unchecked>,
}

/// Something that has bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// What it is called.
    pub name: String,
    /// Its size.
    pub size: u64,
    /// What it is.
    pub origin: DeviceOrigin,
    /// The file system on it, if it is one that is known.
    pub file_system: Option<FileSystemFacts>,
    /// What the kernel says of it.
    pub queue: Option<Queue>,
    /// What is known of it as a drive.
    pub drive: Option<DriveFacts>,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOrigin {
    /// A drive, or an image of one.
    Drive,
    /// A part of another device.
    Partition {
        /// Which.
        of: usize,
        /// Where it starts there.
        start: u64,
    },
    /// The content of an array.
    Array(usize),
    /// A logical volume.
    Logical {
        /// Its group.
        group: usize,
        /// Which of the group's volumes.
        volume: usize,
    },
}

/// An array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayFacts {
    /// What it is called.
    pub name: String,
    /// `raid5`.
    pub level: String,
    /// How data and redundancy lie.
    pub scheme: Scheme,
    /// The chunk; 0 if it has none.
    pub chunk: u64,
    /// How many chunks of data a stripe has.
    pub data_drives: u32,
    /// How many members it is meant to have.
    pub slots: u32,
    /// How many of them are not there, or not whole.
    pub missing: u32,
    /// What there is of it.
    pub members: Vec<ArrayMember>,
    /// `1.2`.
    pub metadata: String,
    /// Whether it has a write-intent bitmap.
    pub bitmap: Option<bool>,
    /// Whether a log closes the write hole.
    pub log: Option<bool>,
    /// Whether parity or copies are known to agree; `None` if it is not known.
    pub sync: Option<Sync>,
    /// Why it cannot be used, with the code of that.
    pub refused: Option<String>,
    /// Whether a check ever went through it; `None` if it cannot be told.
    pub scrubbed: Option<bool>,
    /// What the kernel that runs it says.
    pub running: Option<KernelArray>,
    /// Whether a server of wattle has it.
    pub served: bool,
}

/// Whether parity or copies agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Everywhere.
    Clean,
    /// It was not stopped, or is being written.
    Dirty,
    /// Only a part was ever made to agree.
    Unsynced,
}

/// A member of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayMember {
    /// Which device.
    pub device: usize,
    /// What it is to the array.
    pub role: MemberRole,
    /// Where its data starts; `None` if it is not known.
    pub start: Option<u64>,
    /// How much of it the array uses; `None` if it is not known.
    pub used: Option<u64>,
    /// Sectors recorded as lost.
    pub bad_sectors: u64,
}

/// What a member is to its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberRole {
    /// In use.
    Active,
    /// Waiting.
    Spare,
    /// The journal.
    Journal,
    /// The array says that it failed, with what led to that.
    Failed(String),
    /// The array went on without it, with what led to that: it has nothing that the array lacks.
    Behind(String),
    /// Not used for another reason, which this is. What it has may be nowhere else.
    Unused(String),
}

/// What the kernel says of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelArray {
    /// What the kernel calls it: `md0`.
    pub node: String,
    /// Entries of its stripe cache.
    pub stripe_cache: Option<u64>,
    /// Entries of it that are in use.
    pub stripe_cache_active: Option<u64>,
    /// Threads beside the one that it always has.
    pub threads: Option<u64>,
    /// What it is doing: `idle`, `recover`, ….
    pub action: Option<String>,
    /// Sectors that the last check found to disagree; `None` if what was counted last was something
    /// else, which wrote what it found.
    pub mismatches: Option<u64>,
}

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// What it is called.
    pub name: String,
    /// The size of its extents.
    pub extent: u64,
    /// Physical volumes.
    pub physical: Vec<PhysicalFacts>,
    /// Logical volumes, the hidden ones too.
    pub volumes: Vec<LogicalFacts>,
}

/// A physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalFacts {
    /// Its device, if that is there.
    pub device: Option<usize>,
    /// Where its first extent is.
    pub start: u64,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalFacts {
    /// What it is called, without its group.
    pub name: String,
    /// Its runs on physical volumes; none if it is made of other volumes.
    pub segments: Vec<SegmentFacts>,
}

/// A run of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Where it starts in the volume.
    pub start: u64,
    /// How much goes to one area before the next one's turn; 0 if there is only one.
    pub stripe: u64,
    /// Where it lies: physical volumes, and the offset from the start of their devices.
    pub areas: Vec<(usize, u64)>,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFacts {
    /// `xfs`, `ext4`.
    pub kind: String,
    /// The version of XFS's format; 0 elsewhere.
    pub version: u8,
    /// Its blocks.
    pub block: u64,
    /// What it takes for one drive's part of a stripe.
    pub unit: Option<u64>,
    /// What it takes for the data of a stripe.
    pub width: Option<u64>,
    /// How many groups of blocks it has.
    pub groups: u64,
    /// How large each is.
    pub group_size: u64,
    /// For each group, the slot of the array below that holds its first block; empty if that is not
    /// known.
    pub group_slots: Vec<u16>,
    /// The members in the slots of that array, by name.
    pub slot_members: Vec<(u16, String)>,
    /// How files and free space lie; `None` if that was not looked at.
    pub fragments: Option<FragmentFacts>,
}

/// What the kernel says of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// What it writes at once.
    pub physical_block: Option<u64>,
    /// It has a head that moves.
    pub rotational: Option<bool>,
    /// How far it reads ahead.
    pub read_ahead: Option<u64>,
    /// Whether it takes discards.
    pub discard: Option<bool>,
    /// `none`, `host-aware`, `host-managed`.
    pub zoned: Option<String>,
}

/// What is known of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveFacts {
    /// Its model.
    pub model: Option<String>,
    /// After how many seconds the kernel gives an operation up.
    pub timeout_seconds: Option<u64>,
    /// For how long it tries by itself.
    pub recovery: Option<ErrorRecovery>,
    /// Reads and writes since the start, and the milliseconds that they took together.
    pub work: Option<(u64, u64)>,
}

/// For how long a drive tries to read a sector before it says that it cannot (SCT ERC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorRecovery {
    /// Tenths of a second.
    Limited(u64),
    /// It can be told, and is not.
    Off,
    /// It cannot be told.
    Unsupported,
}

/// What a running system says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemFacts {
    /// Memory.
    pub memory: Option<u64>,
    /// Processors.
    pub processors: Option<u64>,
    /// What is mounted, or is to be.
    pub mounts: Vec<MountFacts>,
    /// Whether an alert is sent when a member fails; `None` if it cannot be told.
    pub alerts: Option<bool>,
    /// Whether md passes discards on in arrays with parity; `None` if it cannot be told.
    pub parity_discard: Option<bool>,
}

/// A file system that is mounted, or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountFacts {
    /// Where that is said: `/proc/mounts`, `/etc/fstab`.
    pub stated_in: String,
    /// What.
    pub source: String,
    /// Where.
    pub at: String,
    /// Its type.
    pub kind: String,
    /// How.
    pub options: Vec<String>,
}

/// What a stack is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntendedUse {
    /// Requests go anywhere, not one after the other.
    pub random: bool,
    /// There are writes among them.
    pub writes: bool,
    /// Bytes of a request.
    pub size: u64,
}

/// What is cut into stripes below some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripes<'a> {
    /// What is: an array, or the physical volumes of a group.
    pub name: &'a str,
    /// What goes to one drive before the next one's turn.
    pub unit: u64,
    /// How many such units of data a stripe has.
    pub drives: u64,
    /// A stripe that is not written as a whole has to be read first.
    pub parity: bool,
}

impl Stripes<'_> {
    /// The data of a stripe.
    pub fn stripe(&self) -> u64 {
        self.unit.saturating_mul(self.drives)
    }

    /// What starts and ends should be a multiple of.
    pub fn grain(&self) -> u64 {
        if self.parity { self.stripe() } else { self.unit }
    }
}

impl DeviceFacts {
    /// Where Linux has it.
    pub(super) fn node(&self) -> String {
        match self.origin {
            DeviceOrigin::Drive | DeviceOrigin::Partition { .. } => self.name.clone(),
            DeviceOrigin::Array(_) => format!("/dev/md/{}", self.name),
            DeviceOrigin::Logical { .. } => format!("/dev/{}", self.name),
        }
    }
}

/// Commands that help: of mdadm where the kernel runs the array, of wattle otherwise.
impl ArrayFacts {
    /// Where Linux has it.
    pub(super) fn node(&self) -> String {
        match &self.running {
            Some(running) => format!("/dev/{}", running.node),
            None => word(&format!("/dev/md/{}", self.name)),
        }
    }

    /// A member, as these commands know it.
    pub(super) fn path(&self, member: &DeviceFacts) -> String {
        match self.running {
            Some(_) => format!("/dev/{}", member.name),
            None => word(&member.name),
        }
    }

    /// Makes a device a member, or a spare.
    pub(super) fn add(&self, device: &str) -> String {
        match self.running {
            Some(_) => format!("mdadm {} --add {device}", self.node()),
            None => self.order(&format!("wattle add {} {device}", word(&self.name))),
        }
    }

    /// Puts NEW in the place of a member that failed.
    pub(super) fn renew(&self, member: &DeviceFacts) -> String {
        match self.running {
            Some(_) => format!("mdadm {} --remove {} && {}", self.node(), self.path(member), self.add("NEW")),
            None => self.add("NEW"),
        }
    }

    /// Replaces a member while it still works, by NEW, which is such a drive. Without redundancy
    /// nothing does.
    pub(super) fn replace(&self, member: &DeviceFacts, new: Option<&str>) -> String {
        let old = self.path(member);
        let new = new.map(|new| format!(", which is {new}")).unwrap_or_default();
        if !self.redundant() {
            let comma = if new.is_empty() { "" } else { "," };
            return format!(
                "copy what is on {}, and make it anew with NEW{new}{comma} in the place of {old}: without redundancy no member is replaced",
                self.name
            );
        }
        match self.running {
            Some(_) => {
                format!("{}; mdadm {} --replace {old} --with NEW{new}", self.add("NEW"), self.node())
            }
            None => self.order(&format!("wattle replace {} {old} NEW{new}", word(&self.name))),
        }
    }

    /// An order to the server of the array, and what comes before it.
    pub(super) fn order(&self, order: &str) -> String {
        if self.served { order.to_owned() } else { format!("serve it, then {order}") }
    }
}

impl ArrayFacts {
    /// Blocks of a stripe that are parity.
    pub(super) fn parities(&self) -> u32 {
        match self.scheme {
            Scheme::Parity { parities } => parities,
            _ => 0,
        }
    }

    /// Whether it survives any failure.
    pub(super) fn redundant(&self) -> bool {
        match self.scheme {
            Scheme::Striped => false,
            Scheme::Mirrored { copies, .. } => copies > 1,
            Scheme::Parity { parities } => parities > 0,
        }
    }

    /// More members are missing than redundancy makes up for.
    pub(super) fn is_out_of_reach(&self) -> bool {
        let made_up_for = match self.scheme {
            Scheme::Striped => 0,
            // Which members have copies of the same is not known here: what lacks all of one is
            // refused.
            Scheme::Mirrored { copies, .. } if self.refused.is_some() => copies.saturating_sub(1),
            Scheme::Mirrored { copies, .. } => self.slots - self.slots.div_ceil(copies.max(1)),
            Scheme::Parity { parities } => parities,
        };
        self.missing > made_up_for
    }

    /// Whether mdadm gives it a partial parity log, if there is room for that: RAID 5, metadata
    /// that has a place for it, no more members than it has entries for, and none of them missing.
    pub(super) fn takes_partial_parity_log(&self) -> bool {
        self.level == "raid5"
            && self.metadata.starts_with("1.")
            && self.slots <= PARTIAL_PARITY_LOG_SLOTS_MAX
            && self.missing == 0
    }

    /// Its stripes, if it has any.
    pub(super) fn stripes(&self) -> Option<Stripes<'_>> {
        let striped = self.chunk > 0 && self.data_drives > 1;
        striped.then_some(Stripes {
            name: &self.name,
            unit: self.chunk,
            drives: self.data_drives.into(),
            parity: self.parities() > 0,
        })
    }

    /// The devices of members in use.
    pub(super) fn active(&self) -> impl Iterator<Item = &ArrayMember> {
        self.members.iter().filter(|member| member.role == MemberRole::Active)
    }
}

impl AuditFacts {
    /// What a place of a device lies on that is cut into stripes, and where in that; `None` if
    /// nothing below is, or that is not known.
    pub(super) fn place(&self, device: usize, at: u64) -> Option<(Stripes<'_>, u64)> {
        match self.devices[device].origin {
            DeviceOrigin::Drive => None,
            DeviceOrigin::Partition { of, start } => self.place(of, start.checked_add(at)?),
            DeviceOrigin::Array(array) => Some((self.arrays[array].stripes()?, at)),
            DeviceOrigin::Logical { group, volume } => {
                let group = &self.groups[group];
                let segments = &group.volumes[volume].segments;
                let segment = segments.iter().rev().find(|segment| segment.start <= at)?;
                let within = at - segment.start;
                if segment.areas.len() > 1 && segment.stripe > 0 {
                    let stripes = Stripes {
                        name: &group.volumes[volume].name,
                        unit: segment.stripe,
                        drives: segment.areas.len() as u64,
                        parity: false,
                    };
                    return Some((stripes, within));
                }
                let (physical, start) = *segment.areas.first()?;
                self.place(group.physical.get(physical)?.device?, start.checked_add(within)?)
            }
        }
    }

    /// The drive that a device is, or is a partition of.
    pub(super) fn drive(&self, device: usize) -> Option<usize> {
        match self.devices[device].origin {
            DeviceOrigin::Drive => Some(device),
            DeviceOrigin::Partition { of, .. } => self.drive(of),
            DeviceOrigin::Array(_) | DeviceOrigin::Logical { .. } => None,
        }
    }

    /// Where a place of a device is on its drive.
    pub(super) fn on_drive(&self, device: usize, at: u64) -> Option<u64> {
        match self.devices[device].origin {
            DeviceOrigin::Drive => Some(at),
            DeviceOrigin::Partition { of, start } => self.on_drive(of, start.checked_add(at)?),
            DeviceOrigin::Array(_) | DeviceOrigin::Logical { .. } => None,
        }
    }

    /// The content of an array.
    pub(super) fn content(&self, array: usize) -> Option<&DeviceFacts> {
        self.devices.iter().find(|device| device.origin == DeviceOrigin::Array(array))
    }

    /// The drives of an array's members that are in use.
    pub(super) fn drives_of(&self, array: &ArrayFacts) -> Vec<&DeviceFacts> {
        let drives = array.active().filter_map(|member| self.drive(member.device));
        drives.map(|drive| &self.devices[drive]).collect()
    }

    /// Whether all drives of an array have no heads; `None` if that is not known of one of them.
    pub(super) fn is_flash(&self, array: &ArrayFacts) -> Option<bool> {
        let drives = self.drives_of(array);
        let rotational = |drive: &&DeviceFacts| drive.queue.as_ref()?.rotational;
        let known: Option<Vec<bool>> = drives.iter().map(rotational).collect();
        known.filter(|known| !known.is_empty()).map(|known| known.iter().all(|rotational| !rotational))
    }
}
