//! Every number of a stack, from the drives up.

use super::{Candidate, DataPlacement, PlanLevel, PlanShape, PowerCutCover, Wish};

/// An array, or drives that are physical volumes by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPlan {
    /// Its members, by their number among the drives.
    pub drives: Vec<usize>,
    /// Those that wait.
    pub spares: Vec<usize>,
    /// Which partition of each drive, and from where to where, if not all of it.
    pub part: Option<(usize, std::ops::Range<u64>)>,
    /// Level and layout.
    pub shape: PlanShape,
    /// The chunk; 0 if there are none.
    pub chunk_bytes: u64,
    /// What covers a power cut.
    pub cover: PowerCutCover,
    /// Bytes of a member, metadata and all.
    pub member_bytes: u64,
    /// Where data lies on a member.
    pub place: DataPlacement,
    /// Bytes of the array.
    pub array_bytes: u64,
}

impl ArrayPlan {
    /// Chunks of data in a stripe, in bytes; 0 if it has no stripes.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        match self.shape {
            // Stripes of a volume, not of what is below.
            PlanShape::Plain => 0,
            shape => self.chunk_bytes * u64::from(shape.width(self.drives.len() as u32)),
        }
    }

    /// What a power cut while members are missing may do to what was not being written.
    #[must_use]
    pub fn write_hole(&self) -> WriteHole {
        match (self.shape.level(), self.cover) {
            (PlanLevel::Raid5, PowerCutCover::Ppl) => WriteHole::Closed,
            (PlanLevel::Raid5, _) => WriteHole::Open,
            (PlanLevel::Raid6, _) => WriteHole::OpenWithTwoMissing,
            _ => WriteHole::None,
        }
    }

    /// Where the data of a physical volume on it starts: behind LVM2's metadata, on a whole stripe.
    #[must_use]
    pub fn pe_start_bytes(&self) -> u64 {
        (1_u64 << 20).next_multiple_of(self.stripe_bytes().max(1))
    }
}

/// Whether a power cut can change what was not being written: parity that no longer fits its data
/// makes something else of a missing member's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHole {
    /// There is no parity.
    None,
    /// A log closes it.
    Closed,
    /// Once two members are missing.
    OpenWithTwoMissing,
    /// Once a member is missing.
    Open,
}

impl WriteHole {
    /// In a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Closed => "closed",
            Self::OpenWithTwoMissing => "2 missing",
            Self::Open => "open",
        }
    }
}

/// Members of an array whose partial parity logs the kernel keeps.
pub(super) const LOG_MEMBERS_MAX: u32 = 64;

/// Of a wish, what a level of so many members has. RAID 5 under small writes in place gets its log
/// unasked: no operator would notice that a power cut made of a stripe what no file system looks at
/// again.
pub(super) fn consistency(shape: PlanShape, members: u32, wish: &Wish) -> PowerCutCover {
    let unasked = || match wish.workload.in_place() && members <= LOG_MEMBERS_MAX {
        true => PowerCutCover::Ppl,
        false => PowerCutCover::Bitmap,
    };
    match (shape.level(), wish.consistency) {
        (PlanLevel::None | PlanLevel::Raid0, _) => PowerCutCover::Resync,
        (PlanLevel::Raid5, wanted) => wanted.unwrap_or_else(unasked),
        (_, None | Some(PowerCutCover::Ppl)) => PowerCutCover::Bitmap,
        (_, Some(wanted)) => wanted,
    }
}

/// md's cache of stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// `stripe_cache_size`.
    pub entries: u64,
    /// What that takes of memory: so many pages of each member.
    pub memory_bytes: u64,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStack {
    /// What the group lies on: one array for all drives, one for each band, or several that a
    /// volume is striped over.
    pub arrays: Vec<ArrayPlan>,
    /// Unit of allocation of the group.
    pub extent_bytes: u64,
    /// Over how many physical volumes the volume is striped; 1 for one after the other.
    pub lv_stripes: u32,
    /// Bytes on one before the next one's turn.
    pub lv_stripe_bytes: u64,
    /// Extents of the volume: all there are.
    pub volume_extents: u64,
    /// The same in bytes.
    pub volume_bytes: u64,
    /// What a file system is to take for its stripe unit; `None` where nothing is striped.
    pub unit_bytes: Option<u64>,
    /// How many of them lie side by side.
    pub width: u32,
    /// Read-ahead, the same of every layer that has one.
    pub read_ahead_bytes: u64,
    /// Bytes of the drives that no array uses.
    pub unused_bytes: u64,
}

/// What extents are, about.
const EXTENT_BYTES: u64 = 32 << 20;
/// Up to this, extents are whole stripes of every array.
const COMMON_EXTENT_BYTES: u64 = 2 * EXTENT_BYTES;
/// Beyond, only as long as an extent is this part of the smallest array, because what is left
/// behind its last one is lost.
const COMMON_EXTENT_PART: u64 = 100;
/// And never beyond this.
const COMMON_EXTENT_BYTES_MAX: u64 = 1 << 30;
/// An extent that is no power of two is a multiple of this.
const EXTENT_UNIT_BYTES: u64 = 128 << 10;
/// More read-ahead than this only fills memory.
const READ_AHEAD_MAX: u64 = 16 << 20;
/// What Linux reads ahead on single drives.
const READ_AHEAD_MIN: u64 = 128 << 10;
/// A page.
const PAGE_BYTES: u64 = 4096;

impl PlannedStack {
    /// The stack of a candidate's arrays.
    #[must_use]
    pub(super) fn of(wish: &Wish, arrays: Vec<ArrayPlan>, candidate: (u64, u32)) -> PlannedStack {
        let (chunk_bytes, groups) = candidate;
        let first = &arrays[0];
        let members = first.drives.len() as u32;
        let plain = first.shape == PlanShape::Plain;
        let (lv_stripes, lv_stripe_bytes) = match plain {
            true => (members, if members > 1 { chunk_bytes } else { 0 }),
            false if groups > 1 => (groups, first.stripe_bytes()),
            false => (1, 0),
        };
        let extent_bytes = extent(&arrays, lv_stripe_bytes);
        let volume_extents: u64 = arrays.iter().map(|array| extents(array, plain, extent_bytes)).sum();
        let volume_extents = volume_extents - volume_extents % u64::from(lv_stripes);
        let width = if plain { members } else { first.shape.width(members) * groups };
        let striped = first.chunk_bytes > 0 && width > 1;
        let side_by_side = if striped { first.chunk_bytes * u64::from(width) } else { 0 };
        let ahead = if wish.workload.random { 2 } else { 4 };
        PlannedStack {
            extent_bytes,
            lv_stripes,
            lv_stripe_bytes,
            volume_extents,
            volume_bytes: volume_extents * extent_bytes,
            unit_bytes: striped.then_some(first.chunk_bytes),
            width,
            read_ahead_bytes: (ahead * side_by_side).clamp(READ_AHEAD_MIN, READ_AHEAD_MAX),
            unused_bytes: 0,
            arrays,
        }
    }

    /// The smallest array that has no room for an extent, by its number.
    #[must_use]
    pub(super) fn without_extent(&self) -> Option<usize> {
        let plain = self.arrays[0].shape == PlanShape::Plain;
        let is_without = |ix: &usize| extents(&self.arrays[*ix], plain, self.extent_bytes) == 0;
        (0..self.arrays.len()).filter(is_without).min_by_key(|ix| self.arrays[*ix].array_bytes)
    }

    /// The cache of stripes that md should have for each array, for drives of so many bytes per
    /// second: a quarter of a second of what they move, as a power of two. All of them are within
    /// the memory that is given, as far as md's smallest are; `None` for what has no parity.
    #[must_use]
    pub fn caches(&self, bytes_per_second: u64, memory_bytes_max: u64) -> Vec<Option<Cache>> {
        let with_parity = self.arrays.iter().filter(|array| array.shape.parities() > 0).count() as u64;
        let each = memory_bytes_max / with_parity.max(1);
        self.arrays.iter().map(|array| Self::cache(array, bytes_per_second, each)).collect()
    }

    fn cache(array: &ArrayPlan, bytes_per_second: u64, memory_bytes_max: u64) -> Option<Cache> {
        const ENTRIES_MIN: u64 = 256;
        const ENTRIES_MAX: u64 = 16384;
        if array.shape.parities() == 0 {
            return None;
        }
        let members = array.drives.len() as u64;
        let wanted = bytes_per_second as f64 / 4.0 / PAGE_BYTES as f64;
        let wanted = 2_f64.powf(wanted.max(1.0).log2().round()) as u64;
        let fits = memory_bytes_max / (PAGE_BYTES * members);
        let fits = 1 << fits.max(1).ilog2();
        let entries = wanted.clamp(4096, ENTRIES_MAX).min(fits).max(ENTRIES_MIN);
        Some(Cache { entries, memory_bytes: entries * PAGE_BYTES * members })
    }

    /// Arrays, by number, on which the file system's stripes come out uneven: it knows those of the
    /// first alone.
    #[must_use]
    pub fn uneven(&self) -> Vec<usize> {
        let Some(unit_bytes) = self.unit_bytes else { return Vec::new() };
        let side_by_side = unit_bytes * u64::from(self.width);
        let is_uneven = |ix: &usize| !side_by_side.is_multiple_of(self.arrays[*ix].stripe_bytes().max(1));
        (0..self.arrays.len()).filter(is_uneven).collect()
    }

    /// Drives that hold something, spares among them.
    #[must_use]
    pub fn drives_used(&self) -> usize {
        let mut used: Vec<usize> =
            self.arrays.iter().flat_map(|array| array.drives.iter().chain(&array.spares).copied()).collect();
        used.sort_unstable();
        used.dedup();
        used.len()
    }
}

impl Candidate {
    /// What is measured in place of the whole: the array of the first band, one of several that a
    /// volume is striped over.
    #[must_use]
    pub fn measured(&self) -> &ArrayPlan {
        &self.stack.arrays[0]
    }
}

/// The unit of allocation: whole stripes of every array, so that volumes that follow one another
/// start on one wherever they are. Where many sizes of drives make that too much, whole stripes of
/// the first array and of the volume alone: the others are named as uneven.
fn extent(arrays: &[ArrayPlan], lv_stripe_bytes: u64) -> u64 {
    let of = |arrays: &[ArrayPlan]| {
        let stripes = arrays.iter().map(ArrayPlan::stripe_bytes).chain([lv_stripe_bytes]);
        let stripe = stripes.into_iter().try_fold(1, common)?;
        let unit = if stripe.is_power_of_two() { stripe } else { common(stripe, EXTENT_UNIT_BYTES)? };
        EXTENT_BYTES.checked_next_multiple_of(unit)
    };
    let smallest = arrays.iter().map(|array| array.array_bytes).min().unwrap_or(0);
    let most = (smallest / COMMON_EXTENT_PART).clamp(COMMON_EXTENT_BYTES, COMMON_EXTENT_BYTES_MAX);
    let all = of(arrays).filter(|extent_bytes| *extent_bytes <= most);
    all.or_else(|| of(&arrays[..1])).expect("a stripe of one array is less than 2^40 bytes")
}

/// How many extents are on an array, or on its drives where these are physical volumes themselves.
fn extents(array: &ArrayPlan, plain: bool, extent_bytes: u64) -> u64 {
    match plain {
        // Each drive is a physical volume of its own.
        true => {
            let each = array.member_bytes.saturating_sub(array.pe_start_bytes()) / extent_bytes;
            array.drives.len() as u64 * each
        }
        false => array.array_bytes.saturating_sub(array.pe_start_bytes()) / extent_bytes,
    }
}

/// The least common multiple; what is 0 does not count. `None` if it is too much.
fn common(one: u64, other: u64) -> Option<u64> {
    match (one, other) {
        (0, other) => Some(other),
        (one, 0) => Some(one),
        (one, other) => (one / gcd(one, other)).checked_mul(other),
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
