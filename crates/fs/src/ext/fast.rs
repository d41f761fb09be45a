//! Fast commits: what follows the last transaction of the log, as changes of inodes, ranges and
//! names in place of whole blocks. They are applied in memory, as a mount would apply them.
//!
//! Their area is a list of tags. A commit ends with a tag that has its checksum; the first starts
//! with a tag that names the transaction which the commits follow. Tags cross no block.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::checksum::crc;
use crate::ext::directory;
use crate::ext::inode::{Inode, InodeFlags, MAP_AT, MAP_BYTES};
use crate::ext::journal::Refusal;
use crate::source::FileRun;
use crate::{DirEntry, EachEntry, FileKind, FsNode};

/// Types of tags.
const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Type and length.
const TAG_BYTES: usize = 4;

/// Of an extent, lengths above that are allocated and not written.
const WRITTEN_MAX: u16 = 32768;

/// Of an inode: where the number of its names is, and how long one is at least.
const LINKS_AT: usize = 0x1a;
const INODE_BYTES_MIN: usize = 128;

/// The map of a file without an extent: magic, no entries of four, no depth.
const EXTENTS_MAGIC: u16 = 0xf30a;
const NO_EXTENTS: [u8; 8] = [0x0a, 0xf3, 0, 0, 4, 0, 0, 0];

/// A change of a committed fast commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FastChange {
    /// Blocks of a file are in another place: from the first on, so many, from there on, written or
    /// not.
    AddRange { inode: u32, first: u64, blocks: u64, start: u64, written: bool },
    /// Blocks of a file are a hole.
    DelRange { inode: u32, first: u64, blocks: u64 },
    /// An inode that was made, and its name.
    Creat { parent: u32, inode: u32, name: Vec<u8> },
    /// A further name.
    Link { parent: u32, inode: u32, name: Vec<u8> },
    /// A name less.
    Unlink { parent: u32, inode: u32, name: Vec<u8> },
    /// The content of an inode, but for its map.
    Inode { inode: u32, raw: Vec<u8> },
}

/// Reads the commits that follow the transaction before `sequence`, block by block.
///
/// # Errors
/// The first of them is damaged, or has features that are not known; or a block cannot be read. The
/// end of the commits is no error: what lies behind it is older.
pub fn scan(
    blocks: impl Iterator<Item = Result<Vec<u8>, Refusal>>,
    sequence: u32,
) -> Result<Vec<FastChange>, Refusal> {
    let (mut committed, mut pending) = (Vec::new(), Vec::new());
    let (mut sum, mut begun, mut commits) = (0, false, 0_u32);
    for block in blocks {
        let block = block?;
        let mut at = 0;
        while let Some((kind, len)) = le16(&block, at).zip(le16(&block, at + 2)) {
            let end = at + TAG_BYTES + usize::from(len);
            let Some(value) = block.get(at + TAG_BYTES..end) else { return Ok(committed) };
            match kind {
                HEAD if le32(value, 4) != Some(sequence) => return Ok(committed),
                HEAD if le32(value, 0) != Some(0) => return Err("its fast commits have unknown features"),
                // What does not start like one is none.
                _ if !begun && kind != HEAD => return Ok(committed),
                HEAD | PAD => begun = true,
                TAIL => {
                    let (tid, stored) = (le32(value, 0), le32(value, 4));
                    sum = crc(sum, &block[at..at + TAG_BYTES + value.len().min(4)]);
                    match (tid == Some(sequence) && stored == Some(sum), commits) {
                        (true, _) => committed.append(&mut pending),
                        (false, 0) => return Err("the checksum of its first fast commit is wrong"),
                        (false, _) => return Ok(committed),
                    }
                    commits += 1;
                    sum = 0;
                    at = end;
                    continue;
                }
                _ => match change(kind, value) {
                    Some(change) => pending.push(change),
                    None => return Ok(committed),
                },
            }
            sum = crc(sum, &block[at..end]);
            at = end;
        }
    }
    Ok(committed)
}

/// `None` if it is of no type that there is, or too short.
fn change(kind: u16, value: &[u8]) -> Option<FastChange> {
    let name = || value.get(8..).filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
    let (first, second) = (le32(value, 0)?, le32(value, 4)?);
    Some(match kind {
        ADD_RANGE => {
            let len = le16(value, 8)?;
            let written = len <= WRITTEN_MAX;
            FastChange::AddRange {
                inode: first,
                first: u64::from(second),
                blocks: u64::from(if written { len } else { len - WRITTEN_MAX }),
                start: u64::from(le32(value, 12)?) | u64::from(le16(value, 10)?) << 32,
                written,
            }
        }
        DEL_RANGE => {
            let blocks = u64::from(le32(value, 8)?);
            FastChange::DelRange { inode: first, first: u64::from(second), blocks }
        }
        CREAT => FastChange::Creat { parent: first, inode: second, name: name()? },
        LINK => FastChange::Link { parent: first, inode: second, name: name()? },
        UNLINK => FastChange::Unlink { parent: first, inode: second, name: name()? },
        INODE => FastChange::Inode {
            inode: first,
            raw: value.get(4..).filter(|raw| raw.len() >= INODE_BYTES_MIN)?.to_vec(),
        },
        _ => return None,
    })
}

/// What fast commits came to.
#[derive(Debug, Default)]
pub struct FastCommits {
    /// Inodes as they are now, whole.
    inodes: BTreeMap<u32, Vec<u8>>,
    /// What lies elsewhere than the inode's map says, by the first block; none overlaps another.
    ranges: BTreeMap<u32, BTreeMap<u64, FastRange>>,
    /// The entries of directories that were changed.
    directories: BTreeMap<u32, BTreeMap<Vec<u8>, u32>>,
}

/// Blocks of a file: how many, and where they start; no place if they are a hole or not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FastRange {
    blocks: u64,
    start: Option<u64>,
}

impl FastRange {
    /// The part of it from a block on, counted from its own first.
    fn from(self, skip: u64) -> Self {
        Self { blocks: self.blocks - skip, start: self.start.map(|start| start.saturating_add(skip)) }
    }
}

impl FastCommits {
    /// Applies them on what is there.
    ///
    /// # Errors
    /// What one of them is about is damaged, or it is of a kind that is not applied here.
    pub fn apply(ext: &Ext, changes: &[FastChange]) -> Result<Self, Refusal> {
        let mut fast = Self::default();
        for change in changes {
            match change {
                FastChange::AddRange { inode, first, blocks, start, written } => {
                    fast.check_range(ext, *inode, *start, *blocks)?;
                    let start = written.then_some(*start);
                    fast.set_range(*inode, *first, FastRange { blocks: *blocks, start });
                }
                FastChange::DelRange { inode, first, blocks } => {
                    fast.set_range(*inode, *first, FastRange { blocks: *blocks, start: None });
                }
                FastChange::Creat { parent, inode, name } => fast.creat(ext, *parent, *inode, name)?,
                FastChange::Link { parent, inode, name } => {
                    if fast.add_name(ext, *parent, *inode, name)? {
                        fast.change_links(ext, *inode, |links| links.saturating_add(1));
                    }
                }
                FastChange::Unlink { parent, inode, name } => fast.unlink(ext, *parent, *inode, name)?,
                FastChange::Inode { inode, raw } => fast.set_inode(ext, *inode, raw)?,
            }
        }
        Ok(fast)
    }

    /// An inode that was changed.
    pub fn inode(&self, number: u64) -> Option<&[u8]> {
        self.inodes.get(&u32::try_from(number).ok()?).map(Vec::as_slice)
    }

    /// Calls `each` for the entries of a directory. `None` if it was not changed.
    pub fn list(&self, number: u64, each: &mut EachEntry<'_>) -> Option<Result<(), Error>> {
        let entries = self.directories.get(&u32::try_from(number).ok()?)?;
        Some(entries.iter().try_for_each(|(name, inode)| {
            each(DirEntry { name: name.clone(), node: FsNode { tree: 0, inode: u64::from(*inode) } })
        }))
    }

    /// Whether a file has blocks elsewhere than its map says.
    pub fn moves(&self, number: u64) -> bool {
        u32::try_from(number).is_ok_and(|number| self.ranges.contains_key(&number))
    }

    /// The runs of a file within a range, of those that its map says.
    ///
    /// # Errors
    /// One ends beyond the end of the file system.
    pub fn runs(
        &self,
        ext: &Ext,
        number: u64,
        mapped: &[FileRun],
        range: &Range<u64>,
    ) -> Result<Vec<FileRun>, Error> {
        let ranges = u32::try_from(number).ok().and_then(|number| self.ranges.get(&number));
        let block_bytes = ext.superblock.block_bytes as u64;
        let mut runs = Vec::new();
        let bytes = |block: u64| block.saturating_mul(block_bytes);
        for run in mapped {
            let mut at = run.file_offset;
            let end = run.file_offset + run.len;
            for (first, fast) in ranges.into_iter().flatten() {
                let fast = bytes(*first)..bytes(first.saturating_add(fast.blocks));
                if fast.end > at && fast.start < end {
                    runs.extend(run.within(&(at..fast.start)));
                    at = fast.end;
                }
            }
            runs.extend(run.within(&(at..end)));
        }
        for (first, fast) in ranges.into_iter().flatten() {
            let Some(start) = fast.start else { continue };
            let run = FileRun::plain(bytes(*first), 0, bytes(fast.blocks));
            if let Some(run) = run.within(range) {
                let start = ext.superblock.offset_of(start)?;
                runs.push(FileRun { disk_offset: start + run.disk_offset, ..run });
            }
        }
        runs.sort_by_key(|run| run.file_offset);
        Ok(runs)
    }

    fn check_range(&self, ext: &Ext, number: u32, start: u64, blocks: u64) -> Result<(), Refusal> {
        let flags = self.raw(ext, number).ok().and_then(|raw| le32(&raw, 0x20));
        if flags.is_none_or(|flags| flags & InodeFlags::EXTENTS == 0) {
            return Err("a fast commit gives blocks to a file that has no extents");
        }
        let last = start.checked_add(blocks.saturating_sub(1));
        match blocks > 0 && last.is_some_and(|last| ext.superblock.offset_of(last).is_ok()) {
            true => Ok(()),
            false => Err("a fast commit gives a file blocks beyond the end"),
        }
    }

    /// Later ones replace what earlier ones said of the same blocks.
    fn set_range(&mut self, number: u32, first: u64, range: FastRange) {
        if range.blocks == 0 {
            return;
        }
        let ranges = self.ranges.entry(number).or_default();
        let end = first.saturating_add(range.blocks);
        // None overlaps another, so only the last that starts before can reach in.
        let before = ranges.range(..first).next_back().map(|(at, range)| (*at, *range));
        let within: Vec<_> = ranges.range(first..end).map(|(at, range)| (*at, *range)).collect();
        for (at, old) in before.into_iter().chain(within) {
            let old_end = at.saturating_add(old.blocks);
            if old_end <= first {
                continue;
            }
            ranges.remove(&at);
            if at < first {
                ranges.insert(at, FastRange { blocks: first - at, ..old });
            }
            if old_end > end {
                ranges.insert(end, old.from(end - at));
            }
        }
        ranges.insert(first, range);
    }

    /// An inode's bytes as they are by now, not checked: one that was not in use says nothing.
    fn raw(&self, ext: &Ext, number: u32) -> Result<Vec<u8>, Refusal> {
        if let Some(raw) = self.inodes.get(&number) {
            return Ok(raw.clone());
        }
        let nowhere = "a fast commit is of an inode that is nowhere";
        let (block, at) = ext.superblock.inode_place(ext, u64::from(number)).map_err(|_| nowhere)?;
        let block = ext.block(block).map_err(|_| nowhere)?;
        Ok(block.get(at..at + ext.superblock.inode_bytes).ok_or(nowhere)?.to_vec())
    }

    /// All of it is new but the map, which other tags change; what is kept in place of a map is
    /// new, too.
    fn set_inode(&mut self, ext: &Ext, number: u32, raw: &[u8]) -> Result<(), Refusal> {
        let mut bytes = self.raw(ext, number)?;
        if raw.len() > bytes.len() {
            return Err("a fast commit has an inode that is too long");
        }
        let map = MAP_AT..MAP_AT + MAP_BYTES;
        let old: [u8; MAP_BYTES] = bytes[map.clone()].try_into().unwrap_or([0; MAP_BYTES]);
        bytes[..raw.len()].copy_from_slice(raw);
        let flags = le32(raw, 0x20).unwrap_or(0);
        if flags & InodeFlags::EXTENTS != 0 {
            match le16(&old, 0) == Some(EXTENTS_MAGIC) {
                true => bytes[map].copy_from_slice(&old),
                false => clear_map(&mut bytes),
            }
        } else if flags & InodeFlags::INLINE_DATA == 0 && le16(raw, 0).is_some_and(has_block_map) {
            bytes[map].copy_from_slice(&old);
        }
        self.inodes.insert(number, bytes);
        Ok(())
    }

    fn creat(&mut self, ext: &Ext, parent: u32, number: u32, name: &[u8]) -> Result<(), Refusal> {
        let is_directory = le16(&self.raw(ext, number)?, 0).and_then(|mode| FileKind::of_mode(mode.into()))
            == Some(FileKind::Directory);
        if is_directory {
            self.directories.insert(number, BTreeMap::new());
        }
        self.add_name(ext, parent, number, name)?;
        self.change_links(ext, number, |_| if is_directory { 2 } else { 1 });
        Ok(())
    }

    /// Whether the name was free.
    fn add_name(&mut self, ext: &Ext, parent: u32, inode: u32, name: &[u8]) -> Result<bool, Refusal> {
        let entries = self.entries(ext, parent)?;
        let free = !entries.contains_key(name);
        if free {
            entries.insert(name.to_vec(), inode);
        }
        Ok(free)
    }

    /// A name that names another inode by now stays.
    fn unlink(&mut self, ext: &Ext, parent: u32, number: u32, name: &[u8]) -> Result<(), Refusal> {
        let entries = self.entries(ext, parent)?;
        let Some(named) = entries.get(name).copied() else { return Ok(()) };
        if named == number {
            entries.remove(name);
        }
        let links = self.change_links(ext, number, |links| links.saturating_sub(1));
        // What has no name is gone, and its blocks with it: the next inode of that number starts
        // without any.
        if links == Some(0) {
            self.ranges.remove(&number);
            if let Some(bytes) = self.inodes.get_mut(&number) {
                clear_map(bytes);
            }
        }
        Ok(())
    }

    /// The number of names afterwards; `None` if the inode is none.
    fn change_links(&mut self, ext: &Ext, number: u32, change: impl Fn(u16) -> u16) -> Option<u16> {
        let bytes = match self.inodes.entry(number) {
            Entry::Occupied(changed) => changed.into_mut(),
            // What is damaged must stay so.
            Entry::Vacant(place) => place.insert(Inode::read(ext, u64::from(number)).ok()?.bytes),
        };
        let links = change(le16(bytes, LINKS_AT)?);
        bytes.get_mut(LINKS_AT..LINKS_AT + 2)?.copy_from_slice(&links.to_le_bytes());
        Some(links)
    }

    /// The entries of a directory, to be changed.
    fn entries(&mut self, ext: &Ext, number: u32) -> Result<&mut BTreeMap<Vec<u8>, u32>, Refusal> {
        let damaged = "a directory that its fast commits change is damaged";
        let place = match self.directories.entry(number) {
            Entry::Occupied(changed) => return Ok(changed.into_mut()),
            Entry::Vacant(place) => place,
        };
        let inode = Inode::read(ext, u64::from(number)).map_err(|_| damaged)?;
        let mut entries = BTreeMap::new();
        let listed = directory::list(ext, &inode, &mut |entry| {
            entries.insert(entry.name, u32::try_from(entry.node.inode).unwrap_or(0));
            Ok(())
        });
        listed.map_err(|_| damaged)?;
        Ok(place.insert(entries))
    }
}

fn clear_map(inode: &mut [u8]) {
    if let Some(map) = inode.get_mut(MAP_AT..MAP_AT + MAP_BYTES) {
        map.fill(0);
        map[..NO_EXTENTS.len()].copy_from_slice(&NO_EXTENTS);
    }
}

/// Others have a target or a device's number in its place.
fn has_block_map(mode: u16) -> bool {
    matches!(FileKind::of_mode(mode.into()), Some(FileKind::File | FileKind::Directory))
}

/// Makes the checksums of what may be fast commits right, for fuzzing.
pub fn seal(image: &mut [u8], block_bytes: usize) {
    let mut sum = None;
    for block in image.chunks_exact_mut(block_bytes) {
        if le16(block, 0) == Some(HEAD) {
            sum = Some(0);
        }
        // A commit goes on at the start of the next block, or ends the area.
        sum = sum.and_then(|sum| seal_block(block, sum));
    }
}

/// The sum so far; `None` if what comes is no tag.
fn seal_block(block: &mut [u8], mut sum: u32) -> Option<u32> {
    let mut at = 0;
    while let Some((kind, len)) = le16(block, at).zip(le16(block, at + 2)) {
        let end = at + TAG_BYTES + usize::from(len);
        let (tag, is_tail) = (block.get(at..end)?, kind == TAIL && len >= 8);
        if !(ADD_RANGE..=HEAD).contains(&kind) {
            return None;
        }
        sum = crc(sum, if is_tail { &tag[..TAG_BYTES + 4] } else { tag });
        if is_tail {
            block[at + TAG_BYTES + 4..at + TAG_BYTES + 8].copy_from_slice(&sum.to_le_bytes());
            sum = 0;
        }
        at = end;
    }
    Some(sum)
}
