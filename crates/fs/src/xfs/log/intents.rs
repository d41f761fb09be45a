//! Intents: what a chain of transactions is going to do, logged before it does it. One without its
//! done is finished by a mount, after everything else, in the order of the log.
//!
//! Of what they are going to do, readers see two kinds: extents that are mapped to files or taken
//! from them, and ranges that two files exchange. These are finished in memory: the file's extents
//! are a list then. Space that is freed, counts of owners and records of them are not seen.

use std::collections::BTreeMap;

use crate::FileKind;
use crate::xfs::Xfs;
use crate::xfs::fork::{self, Extent};
use crate::xfs::inode::{Format, Inode};
use crate::xfs::log::LogDamage;
use crate::xfs::log::transactions::LogItem;
use crate::xfs::log::words::LogWords;

/// Kinds of intents. The number of what is done is that of the intent and one more.
const SPACE_FREED: u16 = 0x1236;
const OWNERS_RECORDED: u16 = 0x1240;
const OWNERS_COUNTED: u16 = 0x1242;
const MAPPED: u16 = 0x1244;
const ATTRIBUTE_CHANGED: u16 = 0x1246;
const EXCHANGED: u16 = 0x1248;
/// As the first three, on the realtime device.
const REALTIME: [u16; 3] = [0x124a, 0x124c, 0x124e];

/// Every kind of intent.
const KINDS: [u16; 9] = [
    SPACE_FREED,
    OWNERS_RECORDED,
    OWNERS_COUNTED,
    MAPPED,
    ATTRIBUTE_CHANGED,
    EXCHANGED,
    REALTIME[0],
    REALTIME[1],
    REALTIME[2],
];

/// The number of an intent.
const NUMBER_AT: usize = 8;

/// Extents of an intent to map, and their bytes.
const MAPS_AT: usize = 16;
const MAP_BYTES: usize = 32;
const MAP: u32 = 1;
const UNMAP: u32 = 2;
const OF_ATTRIBUTES: u32 = 1 << 31;
const UNWRITTEN: u32 = 1 << 30;
const ON_REALTIME: u32 = 1 << 29;

/// Flags of an exchange: of the attributes' forks; with the sizes; only of what the first file has
/// written. The others say which files share no blocks any more.
const EXCHANGE_ATTRIBUTES: u64 = 1;
const EXCHANGE_SIZES: u64 = 2;
const EXCHANGE_WRITTEN: u64 = 4;

/// Linux (6.18) may free what a file got behind its old end before its size is set, and then shows
/// zeros there. What was to be is shown here.
const UNEVEN: LogDamage = "two files of different sizes were being exchanged, and are shown as exchanged; Linux may have lost what \
                           is behind the old end of one";

/// The directory that an entry is in, which is no attribute that programs see.
const PARENT_POINTER: u32 = 1 << 3;

/// Extents of files that are listed at most: 64 MiB; and how often in all, since each intent takes
/// those of its files anew.
const EXTENTS_MAX: usize = 2 << 20;
const LISTED_MAX: usize = 64 << 20;

/// Beyond the last block of a file, and of a file system, as extents express them.
const FILE_BLOCKS_MAX: u64 = 1 << 54;
const START_MAX: u64 = 1 << 52;

/// Intents that have no done yet, in their order.
#[derive(Debug, Default)]
pub struct Intents {
    pending: BTreeMap<u64, Intent>,
    /// Where each is among them, by kind and number.
    places: BTreeMap<(u16, u64), u64>,
    taken: u64,
}

#[derive(Debug)]
enum Intent {
    Unseen,
    Map(Vec<MapChange>),
    Exchange(Exchange),
    Attribute,
}

/// An extent that is mapped or no longer mapped.
#[derive(Debug)]
struct MapChange {
    owner: u64,
    extent: Extent,
    flags: u32,
}

/// Ranges of two files, in blocks. It has sizes, too; Linux (6.18) finishes with those that the
/// files have when it begins to.
#[derive(Debug)]
struct Exchange {
    inodes: [u64; 2],
    starts: [u64; 2],
    blocks: u64,
    flags: u64,
}

/// Files whose intents were finished.
#[derive(Debug, Default)]
pub struct Finished {
    files: BTreeMap<u64, FinishedFile>,
    extents: usize,
    listed: usize,
}

#[derive(Debug, Default)]
struct FinishedFile {
    extents: Vec<Extent>,
    size_bytes: Option<u64>,
}

impl Intents {
    /// Takes an intent, or what says that one is done.
    ///
    /// # Errors
    /// The item is of no kind that is known, or says what none can be.
    pub fn take(&mut self, kind: u16, item: &LogItem, words: LogWords) -> Result<(), LogDamage> {
        let none = "an intent in it is none";
        let bytes = item.region(0).unwrap_or_default();
        let number = words.u64(bytes, NUMBER_AT).ok_or(none)?;
        if let Some(done) = kind.checked_sub(1).filter(|kind| KINDS.contains(kind)) {
            let place = self.places.remove(&(done, number));
            place.and_then(|place| self.pending.remove(&place));
            return Ok(());
        }
        let intent = match kind {
            MAPPED => maps(bytes, words).map(Intent::Map),
            EXCHANGED => exchange(bytes, words).map(Intent::Exchange),
            ATTRIBUTE_CHANGED => attribute(bytes, words),
            kind if KINDS.contains(&kind) => Some(Intent::Unseen),
            _ => return Err("an item in it is of a kind that is not known here"),
        };
        self.taken += 1;
        self.pending.insert(self.taken, intent.ok_or(none)?);
        self.places.insert((kind, number), self.taken);
        Ok(())
    }

    /// Finishes what readers see of them, in the file system to which everything else was applied;
    /// and says what cannot be finished, if anything.
    pub fn finish(&self, xfs: &mut Xfs) -> Option<LogDamage> {
        let mut left = None;
        for intent in self.pending.values() {
            let finished = match intent {
                Intent::Unseen => Ok(()),
                Intent::Map(changes) => changes.iter().try_for_each(|change| map(xfs, change)),
                Intent::Exchange(exchange) => exchange_ranges(xfs, exchange).map(|same_size| {
                    left = left.or((!same_size).then_some(UNEVEN));
                }),
                Intent::Attribute => {
                    left = left.or(Some("an extended attribute was being changed, and is shown as it was"));
                    Ok(())
                }
            };
            // What follows may build on it.
            if let Err(why) = finished {
                return Some(why);
            }
        }
        left
    }
}

fn maps(bytes: &[u8], words: LogWords) -> Option<Vec<MapChange>> {
    let count = words.u32(bytes, 4)? as usize;
    let maps = bytes.get(MAPS_AT..MAPS_AT.checked_add(count.checked_mul(MAP_BYTES)?)?)?;
    maps.chunks_exact(MAP_BYTES).map(|map| map_change(map, words)).collect()
}

fn map_change(b: &[u8], words: LogWords) -> Option<MapChange> {
    let flags = words.u32(b, 28)?;
    let extent = Extent {
        unwritten: flags & UNWRITTEN != 0,
        start: words.u64(b, 8)?,
        first: words.u64(b, 16)?,
        blocks: words.u32(b, 24)?.into(),
    };
    let is_extent = extent.blocks > 0 && extent.first < FILE_BLOCKS_MAX && extent.start < START_MAX;
    is_extent.then_some(MapChange { owner: words.u64(b, 0)?, extent, flags })
}

fn exchange(b: &[u8], words: LogWords) -> Option<Exchange> {
    let exchange = Exchange {
        inodes: [words.u64(b, 16)?, words.u64(b, 24)?],
        starts: [words.u64(b, 40)?, words.u64(b, 48)?],
        blocks: words.u64(b, 56)?,
        flags: words.u64(b, 64)?,
    };
    let ends = exchange.starts.map(|start| start.saturating_add(exchange.blocks));
    ends.iter().all(|end| *end < FILE_BLOCKS_MAX).then_some(exchange)
}

fn attribute(b: &[u8], words: LogWords) -> Option<Intent> {
    // Flags of the name are behind the lengths of names and values.
    Some(match words.u32(b, 36)? & PARENT_POINTER {
        0 => Intent::Attribute,
        _ => Intent::Unseen,
    })
}

/// Maps an extent to a file, or takes a range from it.
fn map(xfs: &mut Xfs, change: &MapChange) -> Result<(), LogDamage> {
    if change.flags & ON_REALTIME != 0 {
        // A file on the realtime device is not read.
        return Ok(());
    }
    if change.flags & OF_ATTRIBUTES != 0 {
        return Err("the blocks of extended attributes were being exchanged, and are shown as they were");
    }
    let none = "a file whose extents were being changed cannot be read";
    let extents = extents_of(xfs, change.owner).ok_or(none)?;
    let range = change.extent.first..change.extent.first + change.extent.blocks;
    let (mut others, within) = cut_out(extents, &range);
    match change.flags & 0xff {
        UNMAP => {}
        MAP if within.is_empty() => others.push(change.extent),
        _ => return Err("an extent was being mapped where a file has another"),
    }
    xfs.finished.keep(change.owner, others)
}

/// Exchanges what two files have in a range. Whether their sizes stay as they were.
fn exchange_ranges(xfs: &mut Xfs, exchange: &Exchange) -> Result<bool, LogDamage> {
    let cannot = "two files were being exchanged that cannot be read, or are no files";
    if exchange.flags & EXCHANGE_ATTRIBUTES != 0 {
        return Err("the blocks of extended attributes were being exchanged, and are shown as they were");
    }
    let [one, other] = exchange.inodes;
    let size = |number| match Inode::read_unlinked(xfs, number) {
        Ok(inode) if inode.metadata.kind == FileKind::File => Ok(inode.metadata.size_bytes),
        _ => Err(cannot),
    };
    let sizes = [(one, size(other)?), (other, size(one)?)];
    if one == other {
        return Err(cannot);
    }
    let range = |ix: usize| exchange.starts[ix]..exchange.starts[ix] + exchange.blocks;
    let (mut kept, from_one) = cut_out(extents_of(xfs, one).ok_or(cannot)?, &range(0));
    let (mut kept_other, mut from_other) = cut_out(extents_of(xfs, other).ok_or(cannot)?, &range(1));
    let forth = |first: u64| first - exchange.starts[0] + exchange.starts[1];
    let back = |first: u64| first - exchange.starts[1] + exchange.starts[0];
    let only_written = exchange.flags & EXCHANGE_WRITTEN != 0;
    let (moving, staying): (Vec<_>, Vec<_>) =
        from_one.into_iter().partition(|extent| !only_written || !extent.unwritten);
    if only_written {
        // What the first has not written stays, and so does what the other has in its place.
        let mut moving_back = Vec::new();
        for extent in &moving {
            let first = forth(extent.first);
            let (rest, within) = cut_out(from_other, &(first..first + extent.blocks));
            from_other = rest;
            moving_back.extend(within);
        }
        kept_other.append(&mut from_other);
        from_other = moving_back;
    }
    kept.extend(staying);
    kept.extend(from_other.into_iter().map(|extent| Extent { first: back(extent.first), ..extent }));
    kept_other.extend(moving.into_iter().map(|extent| Extent { first: forth(extent.first), ..extent }));
    xfs.finished.keep(one, kept)?;
    xfs.finished.keep(other, kept_other)?;
    if exchange.flags & EXCHANGE_SIZES == 0 {
        return Ok(true);
    }
    for (inode, size_bytes) in sizes {
        xfs.finished.files.entry(inode).or_default().size_bytes = Some(size_bytes);
    }
    Ok(sizes[0].1 == sizes[1].1)
}

/// All extents of a file, with what was finished before. `None` if they cannot be read, or are too
/// many.
fn extents_of(xfs: &Xfs, number: u64) -> Option<Vec<Extent>> {
    let inode = Inode::read_unlinked(xfs, number).ok()?;
    if inode.format == Format::Local {
        return None;
    }
    let mut extents = Vec::new();
    fork::extents(xfs, &inode, inode.data_fork(), &(0..u64::MAX), &mut |extent| {
        extents.push(*extent);
        if extents.len() > EXTENTS_MAX { Err(crate::Error::Stopped) } else { Ok(()) }
    })
    .ok()?;
    Some(extents)
}

/// Extents outside a range of blocks, and those within, cut where it starts and ends.
fn cut_out(extents: Vec<Extent>, range: &std::ops::Range<u64>) -> (Vec<Extent>, Vec<Extent>) {
    let (mut outside, mut within) = (Vec::with_capacity(extents.len() + 1), Vec::new());
    for extent in extents {
        let end = extent.first + extent.blocks;
        let part = |from: u64, to: u64, into: &mut Vec<Extent>| {
            if from < to {
                let start = extent.start + (from - extent.first);
                into.push(Extent { first: from, start, blocks: to - from, ..extent });
            }
        };
        part(extent.first, end.min(range.start), &mut outside);
        part(extent.first.max(range.start), end.min(range.end), &mut within);
        part(extent.first.max(range.end), end, &mut outside);
    }
    (outside, within)
}

impl Finished {
    /// The extents of a file, where they are not those of its inode.
    pub fn extents(&self, inode: u64) -> Option<&[Extent]> {
        self.files.get(&inode).map(|file| &file.extents[..])
    }

    /// The size of a file, where it is not that of its inode.
    pub fn size_bytes(&self, inode: u64) -> Option<u64> {
        self.files.get(&inode)?.size_bytes
    }

    fn keep(&mut self, inode: u64, mut extents: Vec<Extent>) -> Result<(), LogDamage> {
        extents.sort_by_key(|extent| extent.first);
        let file = self.files.entry(inode).or_default();
        self.extents = self.extents - file.extents.len() + extents.len();
        self.listed += extents.len();
        file.extents = extents;
        match self.extents <= EXTENTS_MAX && self.listed <= LISTED_MAX {
            true => Ok(()),
            false => Err("more extents of files were being changed than are held in memory"),
        }
    }
}
