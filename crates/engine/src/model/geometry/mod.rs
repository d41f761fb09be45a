//! Geometry: which sector of which member holds which sector of the array, for every md level
//! (docs/formats.md §6 to §8).
//!
//! [`Geometry::new`] is the gate: what it lets through has been checked, so that the maps neither
//! fail nor overflow. Data sectors of members count from the start of their data area; the caller
//! adds the data offset. Pure: no I/O, no clock.
//!
//! There are three kinds of map ([`LevelKind`]), and a file for each:
//! [`striped`](LevelKind::Striped) (every sector once), [`mirror`](LevelKind::Mirrored) (every
//! sector several times), [`parity`](LevelKind::Parity) (every sector once, and parity). Calling a
//! function of another kind is a mistake of the program and panics.
//!
//! **Invariants**, tested against a slow model written from the format's text:
//! 1. Two array sectors never share a sector of a member, unless [`Geometry::hazard`] says so.
//! 2. No member holds two blocks of a stripe, or two copies of a chunk, unless [`Geometry::hazard`]
//!    says so.
//! 3. Every place is below [`Geometry::member_sectors`] of its member.

mod chunk;
mod error;
mod layout;
mod level;
mod mirror;
mod parity;
mod striped;

use chunk::Chunk;
pub use error::{GeometryError, SizeField};
pub use layout::{ParseLayoutError, default_layout, layout_name, parse_layout};
pub use level::{Level, LevelKind, ParseLevelError};
use mirror::{Mirror, Raid10Layout};
use parity::Parity;
pub use parity::StripeMap;
use striped::{Raid0Layout, Striped};

use crate::model::units::{MEMBERS_MAX, MemberIx, MemberSet, SECTOR_BYTES, SECTORS_MAX, Sector, StripeNo};

/// Most members of an array with parity: the slot numbers that DDF layouts take as exponents of Q
/// stay below 255.
pub const PARITY_MEMBERS_MAX: u32 = 255;

/// Smallest chunk where parity or copies are kept: 4 KiB.
pub const CHUNK_MIN: Sector = Sector(8);

/// Largest chunk: 2 GiB, so that its size in bytes fits the 32 bits it has in every interface.
pub const CHUNK_MAX: Sector = Sector(1 << 22);

/// What an array's superblocks say of its geometry; nothing has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// The level.
    pub level: Level,
    /// md's layout number. Levels without a choice (linear, RAID 1, RAID 4) ignore it.
    pub layout: u32,
    /// The chunk. RAID 1 ignores it; linear rounds members down to it, 0 is no rounding.
    pub chunk: Sector,
    /// Number of slots, missing ones included, spares not.
    pub raid_disks: u32,
    /// Sectors used of each member (md's `size`). Linear and RAID 0 ignore it.
    pub component_size: Sector,
    /// The data size of the member in each slot. For linear and RAID 0 only, others ignore it.
    pub member_sizes: Vec<Sector>,
}

/// A checked geometry. Never changes; cheap to clone.
#[derive(Debug, Clone)]
pub struct Geometry {
    level: Level,
    layout: u32,
    chunk: Sector,
    members: u16,
    array_sectors: Sector,
    redundancy: usize,
    hazard: Option<Hazard>,
    map: Map,
}

#[derive(Debug, Clone)]
enum Map {
    Striped(Striped),
    Mirrored(Mirror),
    Parity(Parity),
}

/// A range of the array that is contiguous on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberRun {
    /// The member.
    pub member: MemberIx,
    /// First data sector on it.
    pub sector: Sector,
    /// How far it goes.
    pub len: Sector,
}

impl MemberRun {
    /// Its data sectors on the member.
    pub(crate) fn sectors(&self) -> std::ops::Range<Sector> {
        self.sector..self.sector + self.len
    }
}

/// The place of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// The member.
    pub member: MemberIx,
    /// The data sector on it.
    pub sector: Sector,
}

/// Copies that are kept without allocation.
const COPIES_INLINE: usize = 8;

/// The places of all copies of an array sector, in md's order: the first is the one that md reads
/// and repairs from.
#[derive(Debug, Clone)]
pub struct Copies {
    /// How far all copies are contiguous: to the end of the chunk; RAID 1: of the array.
    pub run: Sector,
    count: usize,
    inline: [Copy; COPIES_INLINE],
    /// All of them if they are more than fit inline.
    many: Vec<Copy>,
}

/// What a member holds in a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockRole {
    /// The data block of this number, counted in array order.
    Data(usize),
    /// The XOR of the data blocks.
    P,
    /// The Reed-Solomon sum of the data blocks.
    Q,
}

/// RAID 10 layouts that md accepts and that cannot keep what they promise (docs/formats.md §7.4).
/// Such arrays are not created, and opened for reading at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazard {
    /// Copies of two chunks have the same place: writing one destroys the other.
    ChunksCollide,
    /// Copies of one chunk are on the same member: losing it may lose data although all others are
    /// there.
    CopiesShareMember,
}

impl std::fmt::Display for Hazard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ChunksCollide => "copies of different chunks overwrite each other",
            Self::CopiesShareMember => "copies of a chunk share a member",
        })
    }
}

impl Geometry {
    /// Checks `params`.
    ///
    /// # Errors
    /// [`GeometryError`] names the field, what was expected and what was found.
    pub fn new(params: &Params) -> Result<Self, GeometryError> {
        let level = params.level;
        let members = checked_members(level, params.raid_disks)?;
        checked_chunk(level, params.chunk)?;
        let (map, array_sectors) = match level.kind() {
            LevelKind::Striped => new_striped(params)?,
            LevelKind::Mirrored => new_mirrored(params, members)?,
            LevelKind::Parity => new_parity(params, members)?,
        };
        at_most_sectors_max(SizeField::Array, array_sectors)?;
        let (redundancy, hazard) = match &map {
            Map::Striped(_) => (0, None),
            Map::Mirrored(mirror) => (mirror.redundancy(), mirror.hazard()),
            Map::Parity(parity) => (usize::from(parity.parity_blocks()), None),
        };
        let chunk = if level == Level::Raid1 { Sector::ZERO } else { params.chunk };
        Ok(Self { level, layout: params.layout, chunk, members, array_sectors, redundancy, hazard, map })
    }

    /// The level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Which kind of map the level has.
    #[must_use]
    pub fn kind(&self) -> LevelKind {
        self.level.kind()
    }

    /// md's layout number, as it was given.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.layout
    }

    /// The chunk; 0 for RAID 1, and for a linear array that does not round.
    #[must_use]
    pub fn chunk(&self) -> Sector {
        self.chunk
    }

    /// Number of slots.
    #[must_use]
    pub fn raid_disks(&self) -> usize {
        usize::from(self.members)
    }

    /// Size of the array.
    #[must_use]
    pub fn array_sectors(&self) -> Sector {
        self.array_sectors
    }

    /// Sectors used of the member in a slot: no map points beyond.
    ///
    /// # Panics
    /// If there is no such slot.
    #[must_use]
    pub fn member_sectors(&self, member: MemberIx) -> Sector {
        assert!(member.0 < self.members, "member {member} of {}", self.members);
        match &self.map {
            Map::Striped(striped) => striped.member_sectors(member),
            Map::Mirrored(mirror) => mirror.member_sectors(),
            Map::Parity(parity) => Sector(parity.stripes * self.chunk.0),
        }
    }

    /// How many members' worth of data a full pass over all members writes: the data blocks of a
    /// stripe; all members of a linear or RAID 0 array; 1 for RAID 1; for RAID 10 members / near
    /// copies, or members if that is no whole number.
    #[must_use]
    pub fn data_disks(&self) -> usize {
        let members = self.raid_disks();
        match &self.map {
            Map::Striped(_) => members,
            Map::Parity(parity) => usize::from(parity.data_blocks()),
            Map::Mirrored(mirror) if members.is_multiple_of(mirror.near()) => members / mirror.near(),
            Map::Mirrored(_) => members,
        }
    }

    /// How many losses are survived whichever members they hit.
    #[must_use]
    pub fn redundancy(&self) -> usize {
        self.redundancy
    }

    /// Whether all data is still there without these members. RAID 10 may survive more losses than
    /// [`redundancy`](Self::redundancy) promises.
    #[must_use]
    pub fn survives(&self, lost: &MemberSet) -> bool {
        match &self.map {
            Map::Mirrored(mirror) => mirror.survives(lost),
            Map::Striped(_) | Map::Parity(_) => {
                lost.iter().filter(|lost| lost.0 < self.members).count() <= self.redundancy
            }
        }
    }

    /// Whether anything is there in two copies without these members.
    #[must_use]
    pub fn has_copies_twice(&self, lost: &MemberSet) -> bool {
        matches!(&self.map, Map::Mirrored(mirror) if mirror.has_copies_twice(lost))
    }

    /// What is wrong with the layout, if anything is.
    #[must_use]
    pub fn hazard(&self) -> Option<Hazard> {
        self.hazard
    }

    /// The smallest efficient request in bytes, as md reports it: the chunk; 512 without stripes.
    #[must_use]
    pub fn io_min_bytes(&self) -> u32 {
        match self.level {
            Level::Linear | Level::Raid1 => SECTOR_BYTES as u32,
            _ => (self.chunk.0 * SECTOR_BYTES) as u32,
        }
    }

    /// The request size that uses all members in bytes, as md reports it; 0 without stripes, or if
    /// 32 bits do not hold it.
    #[must_use]
    pub fn io_opt_bytes(&self) -> u32 {
        match self.level {
            Level::Linear | Level::Raid1 => 0,
            _ => u32::try_from(self.chunk.0 * SECTOR_BYTES * self.data_disks() as u64).unwrap_or(0),
        }
    }

    /// The array sector whose content (not parity) is at a data sector of a member; `None` where
    /// there is parity, padding or nothing, and everywhere if chunks collide.
    #[must_use]
    pub fn array_sector_at(&self, member: MemberIx, sector: Sector) -> Option<Sector> {
        if member.0 >= self.members || sector >= self.member_sectors(member) {
            return None;
        }
        match &self.map {
            Map::Striped(striped) => {
                striped.array_sector_at(member, sector).filter(|&lba| lba < self.array_sectors)
            }
            Map::Mirrored(_) if self.hazard == Some(Hazard::ChunksCollide) => None,
            Map::Mirrored(mirror) => mirror.array_sector_at(member, sector),
            Map::Parity(parity) => {
                let (stripe, offset) = parity.chunk.split(sector.0);
                match self.role_in_stripe(StripeNo(stripe), member) {
                    BlockRole::Data(block) => {
                        Some(self.array_sector_of(StripeNo(stripe), block, Sector(offset)))
                    }
                    BlockRole::P | BlockRole::Q => None,
                }
            }
        }
    }

    fn check(&self, lba: Sector) {
        assert!(lba < self.array_sectors, "array sector {lba} of {}", self.array_sectors);
    }
}

/// Arrays without redundancy.
impl Geometry {
    /// Where an array sector is, and how far it goes on like this: to the end of the chunk, or of
    /// the member where one alone holds the range.
    ///
    /// # Panics
    /// If the array has redundancy, or `lba` is beyond its end.
    #[inline]
    #[must_use]
    pub fn map(&self, lba: Sector) -> MemberRun {
        self.check(lba);
        let Map::Striped(striped) = &self.map else { panic!("{} has redundancy", self.level) };
        let run = striped.map(lba);
        MemberRun { len: run.len.min(self.array_sectors - lba), ..run }
    }
}

/// Arrays with copies.
impl Geometry {
    /// The places of all copies of an array sector.
    ///
    /// # Panics
    /// If the array has no copies, or `lba` is beyond its end.
    #[inline]
    #[must_use]
    pub fn copies(&self, lba: Sector) -> Copies {
        self.check(lba);
        let Map::Mirrored(mirror) = &self.map else { panic!("{} has no copies", self.level) };
        mirror.copies(lba)
    }
}

/// Arrays with parity. A stripe is one chunk of every member, at the same place.
impl Geometry {
    #[inline]
    fn parity(&self) -> &Parity {
        let Map::Parity(parity) = &self.map else { panic!("{} has no parity", self.level) };
        parity
    }

    /// Sectors of the space that resync positions and write-intent bitmaps count in: a member's
    /// data, for RAID 10 the array (md's `resync_offset`, docs/formats.md §1.6).
    #[must_use]
    pub fn sync_sectors(&self) -> Sector {
        match self.kind() {
            LevelKind::Parity => Sector(self.stripes() * self.chunk.0),
            LevelKind::Mirrored | LevelKind::Striped => self.array_sectors(),
        }
    }

    /// Number of stripes.
    ///
    /// # Panics
    /// If the array has no parity. So does every function below.
    #[must_use]
    pub fn stripes(&self) -> u64 {
        self.parity().stripes
    }

    /// Array sectors in a stripe.
    #[inline]
    #[must_use]
    pub fn stripe_data_sectors(&self) -> Sector {
        Sector(self.chunk.0 * u64::from(self.parity().data_blocks()))
    }

    /// The stripe of an array sector, the number of its data block in the stripe, and the offset in
    /// the chunk.
    ///
    /// # Panics
    /// If `lba` is beyond the end.
    #[inline]
    #[must_use]
    pub fn locate(&self, lba: Sector) -> (StripeNo, usize, Sector) {
        self.check(lba);
        self.parity().locate(lba)
    }

    /// Where the blocks of a stripe are.
    ///
    /// # Panics
    /// If there is no such stripe.
    #[inline]
    #[must_use]
    pub fn stripe(&self, stripe: StripeNo) -> StripeMap {
        let parity = self.parity();
        assert!(stripe.0 < parity.stripes, "stripe {stripe} of {}", parity.stripes);
        parity.stripe(stripe)
    }

    /// Where an array sector is, up to the end of its chunk.
    ///
    /// # Panics
    /// If `lba` is beyond the end.
    #[inline]
    #[must_use]
    pub fn data_place(&self, lba: Sector) -> MemberRun {
        let (stripe, block, offset) = self.locate(lba);
        let map = self.stripe(stripe);
        MemberRun {
            member: map.data_member(block),
            sector: map.member_sector + offset,
            len: self.chunk - offset,
        }
    }

    /// What a member holds in a stripe.
    ///
    /// # Panics
    /// If there is no such stripe or member.
    #[must_use]
    pub fn role_in_stripe(&self, stripe: StripeNo, member: MemberIx) -> BlockRole {
        self.stripe(stripe).role(member)
    }

    /// The array sector at an offset in a data block: undoes [`locate`](Self::locate).
    ///
    /// # Panics
    /// If there is no such stripe, block or offset.
    #[must_use]
    pub fn array_sector_of(&self, stripe: StripeNo, block: usize, offset: Sector) -> Sector {
        let parity = self.parity();
        let blocks = u64::from(parity.data_blocks());
        assert!(stripe.0 < parity.stripes, "stripe {stripe} of {}", parity.stripes);
        assert!((block as u64) < blocks && offset < self.chunk, "offset {offset} in data block {block}");
        Sector((stripe.0 * blocks + block as u64) * self.chunk.0 + offset.0)
    }
}

impl Copies {
    fn new(run: Sector) -> Self {
        let nowhere = Copy { member: MemberIx(0), sector: Sector::ZERO };
        Self { run, count: 0, inline: [nowhere; COPIES_INLINE], many: Vec::new() }
    }

    fn push(&mut self, copy: Copy) {
        if self.count < COPIES_INLINE {
            self.inline[self.count] = copy;
        } else {
            if self.count == COPIES_INLINE {
                self.many.extend(self.inline);
            }
            self.many.push(copy);
        }
        self.count += 1;
    }

    /// The copies.
    #[must_use]
    pub fn as_slice(&self) -> &[Copy] {
        if self.count <= COPIES_INLINE { &self.inline[..self.count] } else { &self.many }
    }

    /// The copies, one after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, Copy> {
        self.as_slice().iter()
    }
}

impl<'a> IntoIterator for &'a Copies {
    type Item = &'a Copy;
    type IntoIter = std::slice::Iter<'a, Copy>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn checked_members(level: Level, found: u32) -> Result<u16, GeometryError> {
    let (min, max) = match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => (1, MEMBERS_MAX as u32),
        Level::Raid10 => (2, MEMBERS_MAX as u32),
        Level::Raid4 | Level::Raid5 => (2, PARITY_MEMBERS_MAX),
        Level::Raid6 => (4, PARITY_MEMBERS_MAX),
    };
    if !(min..=max).contains(&found) {
        return Err(GeometryError::RaidDisks { level, min, max, found });
    }
    Ok(found as u16)
}

fn checked_chunk(level: Level, found: Sector) -> Result<(), GeometryError> {
    let min = match level {
        Level::Linear | Level::Raid1 => return Ok(()),
        Level::Raid0 => Sector(1),
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => CHUNK_MIN,
    };
    if found == Sector::ZERO {
        return Err(GeometryError::ChunkZero { level });
    }
    if level != Level::Raid0 && !found.0.is_power_of_two() {
        return Err(GeometryError::ChunkNotPowerOfTwo { level, found });
    }
    if !(min..=CHUNK_MAX).contains(&found) {
        return Err(GeometryError::ChunkRange { level, min, max: CHUNK_MAX, found });
    }
    Ok(())
}

fn at_most_sectors_max(field: SizeField, found: Sector) -> Result<(), GeometryError> {
    if found > SECTORS_MAX {
        return Err(GeometryError::TooLarge { field, max: SECTORS_MAX, found });
    }
    Ok(())
}

/// The component size, if it holds at least `min` sectors.
///
/// With it below 2^54 sectors and fewer than 2^9 members, no sum over members overflows.
fn checked_component(params: &Params, min: u64) -> Result<u64, GeometryError> {
    let (min, found) = (Sector(min), params.component_size);
    if found < min {
        return Err(GeometryError::ComponentTooSmall { min, found });
    }
    at_most_sectors_max(SizeField::Component, found)?;
    Ok(found.0)
}

fn new_striped(params: &Params) -> Result<(Map, Sector), GeometryError> {
    let sizes = rounded_member_sizes(params)?;
    if params.level == Level::Linear {
        let striped = Striped::linear(&sizes);
        let end = striped.end();
        return Ok((Map::Striped(striped), end));
    }
    let layout = match params.layout {
        1 => Some(Raid0Layout::Original),
        2 => Some(Raid0Layout::Alternate),
        _ => None,
    };
    let striped = Striped::raid0(Chunk::new(params.chunk), &sizes, layout.unwrap_or(Raid0Layout::Original));
    // Without a layout this is the original one.
    if layout.is_none() && striped.rotates() {
        return Err(GeometryError::Raid0LayoutUnknown { found: params.layout });
    }
    // md masks each member's size with chunk - 1, also where the chunk is no power of two and this
    // means little: such arrays are shorter than their zones.
    let array_sectors = sizes.iter().map(|size| size & !(params.chunk.0 - 1)).sum();
    Ok((Map::Striped(striped), Sector(array_sectors)))
}

/// What each member of a linear or RAID 0 array contributes: its size rounded down to the chunk.
fn rounded_member_sizes(params: &Params) -> Result<Vec<u64>, GeometryError> {
    let found = params.member_sizes.len();
    if found != params.raid_disks as usize {
        return Err(GeometryError::MemberSizes { expected: params.raid_disks, found });
    }
    let min = params.chunk.max(Sector(1));
    (0..)
        .map(MemberIx)
        .zip(&params.member_sizes)
        .map(|(slot, &found)| {
            at_most_sectors_max(SizeField::Member(slot), found)?;
            if found < min {
                return Err(GeometryError::MemberTooSmall { slot, min, found });
            }
            Ok(found.0 / min.0 * min.0)
        })
        .collect()
}

fn new_mirrored(params: &Params, members: u16) -> Result<(Map, Sector), GeometryError> {
    let mirror = if params.level == Level::Raid1 {
        Mirror::raid1(Sector(checked_component(params, 1)?), members)
    } else {
        let layout = Raid10Layout::from_word(params.layout)
            .ok_or(GeometryError::Layout { level: params.level, found: params.layout })?;
        if !(2..=params.raid_disks).contains(&layout.copies()) {
            let (near, far) = (u32::from(layout.near), u32::from(layout.far));
            return Err(GeometryError::Raid10Copies { near, far, raid_disks: params.raid_disks });
        }
        let far = u64::from(layout.far);
        let component = checked_component(params, params.chunk.0 * far)?;
        Mirror::raid10(Chunk::new(params.chunk), members, layout, component / params.chunk.0 / far)
    };
    let array_sectors = mirror.array_sectors();
    Ok((Map::Mirrored(mirror), array_sectors))
}

fn new_parity(params: &Params, members: u16) -> Result<(Map, Sector), GeometryError> {
    let layout = parity::layout(params.level, params.layout)
        .ok_or(GeometryError::Layout { level: params.level, found: params.layout })?;
    let stripes = checked_component(params, params.chunk.0)? / params.chunk.0;
    let parity = Parity { chunk: Chunk::new(params.chunk), members, layout, stripes };
    let array_sectors = Sector(stripes * u64::from(parity.data_blocks()) * params.chunk.0);
    Ok((Map::Parity(parity), array_sectors))
}
