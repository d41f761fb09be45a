//! Arrays for an older Linux: what keeps it from them, and takes back what newer kernels write into
//! superblocks and older ones refuse, where that loses nothing: the logical block size.
//!
//! Linux 6.19 and later state it in superblocks of metadata 1.x with the first change of the
//! array's state, and kernels before it take a superblock that has it for no superblock
//! (docs/formats.md §10.1). A kernel that does not find it gives the array the largest block of its
//! members. So it says nothing where every member has just that block, and only there it may go:
//! elsewhere partitions and file systems may count in blocks that the array would lose.
//!
//! A superblock is changed in its first sector, which a drive writes whole or not at all. Members
//! are changed one after the other; where that was cut short some have the field and some do not,
//! which newer kernels take for the same, and the same command goes on from there.

use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::{SUPERBLOCK_BYTES, Superblock};
use wattle_rt::{Core, Device};

use crate::byte_range::read;
use crate::md::compat::{self, Compatibility, Obstacle, Release};
use crate::md::facts::{BitmapFacts, SuperblockFacts};
use crate::members::MemberError;
use crate::nodes::MemberId;
use crate::problem::{Check, Code, Forced, Problem};
use crate::scan::{ArrayScan, Scan};
use crate::undo::CoveredWrite;

/// What opens an array that was found.
#[must_use]
pub fn compatibility_of(scan: &Scan, array: &ArrayScan) -> Compatibility {
    let (bitmap, block_bytes) = stated(scan, array);
    compat::compatibility(&with_all_features(scan, array), bitmap, block_bytes)
}

/// What keeps a release of Linux from opening an array that was found.
#[must_use]
pub fn obstacles(scan: &Scan, array: &ArrayScan, linux: Release) -> Vec<Obstacle> {
    let (bitmap, block_bytes) = stated(scan, array);
    compat::obstacles(&with_all_features(scan, array), bitmap, block_bytes, linux)
}

/// What the superblocks say, with the features of every member: some are of single members.
fn with_all_features(scan: &Scan, array: &ArrayScan) -> SuperblockFacts {
    let mut facts = array.assembly.array.clone();
    for own in array.members.iter().filter_map(|&id| scan.members[id].facts.as_ref()) {
        facts.features |= own.superblock.features;
    }
    facts
}

/// The bitmap of an array, and the logical block size that some member states, 0 if none does.
fn stated(scan: &Scan, array: &ArrayScan) -> (BitmapFacts, u32) {
    let freshest = &scan.members[array.members[array.assembly.freshest]];
    let bitmap = freshest.facts.as_ref().map_or(BitmapFacts::None, |facts| facts.bitmap);
    let stated = block_statements(scan, array).iter().map(|statement| statement.block_bytes).max();
    (bitmap, stated.unwrap_or(0))
}

/// A member whose superblock states the logical block size of the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockStatement {
    /// Which of [`Scan::members`].
    pub member: MemberId,
    /// What it states.
    pub block_bytes: u32,
    /// The member's own.
    pub member_block_bytes: u32,
    superblock: Superblock,
}

/// The members of an array that state its logical block size.
#[must_use]
pub fn block_statements(scan: &Scan, array: &ArrayScan) -> Vec<BlockStatement> {
    let stated = array.members.iter().filter_map(|&id| {
        let member = &scan.members[id];
        let superblock = member.superblock()?;
        Some(BlockStatement {
            member: id,
            block_bytes: superblock.logical_block_size()?,
            member_block_bytes: member.member.device.logical_block_bytes(),
            superblock: superblock.clone(),
        })
    });
    stated.collect()
}

/// Whether the statements say nothing that the members do not say themselves.
///
/// # Errors
/// [`Code::BlockSizeNeeded`]; [`Check::BlockSize`] overrides it.
pub fn check_block_statements(
    scan: &Scan,
    array: &ArrayScan,
    statements: &[BlockStatement],
    forced: Forced,
) -> Result<(), Problem> {
    let Some(stated) = statements.iter().map(|statement| statement.block_bytes).max() else { return Ok(()) };
    let other = array.members.iter().find_map(|&id| {
        let own = scan.members[id].member.device.logical_block_bytes();
        (own != stated).then_some((&scan.members[id].member.name, own))
    });
    let Some((name, own)) = other.filter(|_| !forced.has(Check::BlockSize)) else { return Ok(()) };
    Err(Problem::new(
        Code::BlockSizeNeeded,
        format!(
            "{} is stated to have blocks of {stated} bytes, and {name} has blocks of {own}",
            array.assembly.name()
        ),
        "an older kernel would give the array the block of its members: partitions and file systems that count in the stated \
         one would not be found, or fail to mount",
        "of images of drives whose own blocks were that large --force=block-size goes on; else copy the files while a newer \
         kernel, or wattle, has it open",
    )
    .of_member(name)
    .forced_by(Check::BlockSize))
}

impl BlockStatement {
    /// The write that takes it back, to the member at `site` of this name and device.
    ///
    /// # Errors
    /// The superblock cannot be read, or is another one by now.
    pub async fn take_back(
        &self,
        core: &Core,
        (name, device): (&str, &Device),
        site: usize,
    ) -> Result<CoveredWrite, Problem> {
        let offset_bytes = self.superblock.found_at_sectors() * SECTOR_BYTES;
        let now = read(core, device, offset_bytes, SUPERBLOCK_BYTES).await.map_err(|error| {
            Problem::new(
                Code::ReadFailed,
                format!("{name}: {error}"),
                "what is there has to be known before it is written over; nothing was written",
                "see what is wrong with the drive",
            )
            .of_member(name)
        })?;
        if now != self.superblock.bytes() {
            return Err(MemberError::Changed { name: name.to_owned() }.into());
        }
        let mut superblock = self.superblock.clone();
        superblock.set_logical_block_size(None).expect("only metadata 1.x has the field");
        let bytes = superblock.bytes()[..SECTOR_BYTES as usize].to_vec();
        Ok(CoveredWrite { site, step: 0, offset_bytes, bytes })
    }
}
