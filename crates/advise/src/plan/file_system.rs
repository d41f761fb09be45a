//! File systems: what they have to be told of the arrays below, and what they should not be told
//! any more.

use super::align::{first_member, groups_spread};
use super::stack::PlannedStack;
use super::{Wish, Workload};

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// XFS.
    Xfs,
    /// ext4.
    Ext4,
}

/// What one is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileSystemOptions {
    /// XFS.
    Xfs(XfsNumbers),
    /// ext4.
    Ext4(Ext4),
}

/// The numbers of an XFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XfsNumbers {
    /// Stripe unit in bytes, and how many of them a stripe has; `None` where there are no stripes.
    pub stripe: Option<(u64, u32)>,
    /// Bytes of an allocation group.
    pub group_bytes: u64,
    /// How many there are.
    pub groups: u64,
    /// The member each of the first groups starts on.
    pub group_members: Vec<u32>,
    /// The unit that the log is written in.
    pub log_unit_bytes: Option<u64>,
    /// Bytes of an inode.
    pub inode_bytes: u32,
    /// Mount options.
    pub mount: Vec<&'static str>,
}

/// The numbers of an ext4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext4 {
    /// Blocks of 4 KiB in a chunk, and in a stripe; `None` where there are no stripes.
    pub stride: Option<(u64, u64)>,
    /// Bytes for each inode, where the use is not the usual one.
    pub bytes_per_inode: Option<u64>,
    /// Bytes of an inode.
    pub inode_bytes: u32,
    /// Mount options.
    pub mount: Vec<&'static str>,
}

const BLOCK_BYTES: u64 = 4096;
/// A group is smaller than this.
const GROUP_BYTES_MAX: u64 = 1 << 40;
/// The log, of 64 MiB at least, lies in one of them.
const GROUP_BYTES_MIN: u64 = 72 << 20;
/// mkfs.xfs makes nothing smaller.
const XFS_BYTES_MIN: u64 = 300 << 20;
/// Fewer groups make writers wait for one another.
const GROUPS_MIN: u64 = 4;
/// The log is written in units of at most this.
const LOG_UNIT_MAX: u64 = 256 << 10;
/// What it is written in otherwise.
const LOG_UNIT_USUAL: u64 = 32 << 10;

impl FileSystemKind {
    /// Bytes of a volume that it can be made on.
    #[must_use]
    pub fn bytes_min(self) -> u64 {
        match self {
            Self::Xfs => XFS_BYTES_MIN,
            Self::Ext4 => 0,
        }
    }
}

impl FileSystemOptions {
    /// For a volume of so many bytes on this stack.
    #[must_use]
    pub fn of(wish: &Wish, stack: &PlannedStack) -> FileSystemOptions {
        match wish.file_system {
            FileSystemKind::Xfs => FileSystemOptions::Xfs(xfs(wish, stack)),
            FileSystemKind::Ext4 => FileSystemOptions::Ext4(ext4(wish, stack)),
        }
    }
}

fn xfs(wish: &Wish, stack: &PlannedStack) -> XfsNumbers {
    let (size, places) = (stack.volume_bytes, stack.places());
    let unit = stack.unit_bytes;
    // One for each core that writes; where very many files are written at a time, one for each
    // member too.
    let wanted = match wish.workload.many_files() {
        true => (2 * u64::from(wish.cores)).max(2 * u64::from(places)),
        false => u64::from(wish.cores),
    };
    let whole = unit.unwrap_or(BLOCK_BYTES);
    let slack = 4 * u64::from(places) * whole;
    let least = size.div_ceil(GROUP_BYTES_MAX - slack.min(GROUP_BYTES_MAX / 2));
    let groups = wanted.max(GROUPS_MIN).min((size / GROUP_BYTES_MIN).max(1)).max(least);
    let least = size.div_ceil(groups * whole);
    let place_of = |chunk: u64| stack.place_of(chunk);
    let every = match unit {
        Some(_) => groups_spread(least, groups, (places, stack.width), place_of),
        None => least,
    };
    let groups = size.div_ceil(every * whole);
    let log_unit_bytes = unit.map(|unit| if unit <= LOG_UNIT_MAX { unit } else { LOG_UNIT_USUAL });
    XfsNumbers {
        stripe: unit.map(|unit| (unit, stack.width)),
        group_bytes: every * whole,
        groups,
        group_members: (0..groups.min(64)).map(|group| place_of(group * every)).collect(),
        log_unit_bytes,
        inode_bytes: 512,
        mount: xfs_mount(&wish.workload, log_unit_bytes),
    }
}

/// Options that current kernels have, and only where they differ from what is so anyway.
fn xfs_mount(workload: &Workload, log_unit_bytes: Option<u64>) -> Vec<&'static str> {
    let mut mount = vec!["noatime"];
    let default_suffices = log_unit_bytes.is_some_and(|unit| unit == LOG_UNIT_MAX);
    if (workload.many_files() || workload.in_place()) && !default_suffices {
        // Many small changes leave in few log writes.
        mount.push("logbsize=256k");
    }
    if !workload.random && workload.read_part < 0.5 {
        // Large files are laid out in whole stripes.
        mount.push("swalloc");
    }
    mount
}

fn ext4(wish: &Wish, stack: &PlannedStack) -> Ext4 {
    let stride = |unit: u64| (unit / BLOCK_BYTES, unit / BLOCK_BYTES * u64::from(stack.width));
    let workload = &wish.workload;
    Ext4 {
        stride: stack.unit_bytes.map(stride),
        bytes_per_inode: match workload {
            workload if workload.many_files() => Some(8 << 10),
            workload if !workload.random => Some(1 << 20),
            _ => None,
        },
        inode_bytes: 256,
        mount: vec!["noatime"],
    }
}

impl PlannedStack {
    /// Members, or disks of copies, on which something can start.
    pub(super) fn places(&self) -> u32 {
        let array = &self.arrays[0];
        array.drives.len() as u32 * self.striped_over()
    }

    /// Where the `chunk`th unit of the volume starts, among all members of the arrays it is striped
    /// over.
    pub(super) fn place_of(&self, chunk: u64) -> u32 {
        let array = &self.arrays[0];
        let members = array.drives.len() as u32;
        let over = u64::from(self.striped_over());
        let per_stripe = u64::from(array.shape.width(members));
        let (stripe, within) = (chunk / per_stripe, chunk % per_stripe);
        let on_array = stripe / over * per_stripe + within;
        (stripe % over) as u32 * members + first_member(array.shape, members, on_array)
    }

    /// Arrays that the volume is striped over; stripes over single drives are chunks like those of
    /// an array.
    fn striped_over(&self) -> u32 {
        match self.arrays[0].shape {
            super::PlanShape::Plain => 1,
            _ => self.lv_stripes.max(1),
        }
    }
}
