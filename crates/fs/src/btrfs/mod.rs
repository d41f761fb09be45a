//! btrfs on one or several devices, as its on-disk format is described in the btrfs documentation.
//!
//! Everything is an item with a key in a tree, and every tree lies in one logical space of
//! addresses, which chunks map to the devices ([`chunks`]). Each subvolume is a tree of inodes; a
//! directory entry may name the root of another one. Every block of a tree and of data has a
//! checksum, which is verified; where there are copies or parity, these are tried until it is right
//! ([`logical`]), and so they are where a device is missing or lags behind ([`devices`]).
//!
//! What was flushed since the last transaction is in a log, which is applied in memory ([`log`]).

mod checksum;
mod chunks;
mod compression;
mod data;
mod devices;
mod log;
mod logical;
mod lzo;
mod parity;
mod superblock;
mod tree;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use crate::bytes::{le16, le32, le64};
use crate::devices::{FsDevice, FsDevices};
use crate::error::{Error, Note};
use crate::source::{ByteSource, GivenSource, SIZE_MAX};
use crate::usage::FileSystemUsage;
use crate::{
    About, DeviceNumber, DirEntry, EachData, EachEntry, EachRun, FileKind, FileMetadata, FileSystem,
    FileTime, FsNode, link_target,
};

use chunks::Chunks;
use devices::{Devices, Gathered};
use log::AppliedLog;
use superblock::{DeviceItem, Superblock};
use tree::{EachItem, ItemKey, TreeRoot};

/// Types of items.
const INODE_ITEM: u8 = 1;
const XATTR_ITEM: u8 = 24;
const DIR_ITEM: u8 = 84;
const DIR_INDEX: u8 = 96;
const EXTENT_DATA: u8 = 108;
const EXTENT_CSUM: u8 = 128;
const ROOT_ITEM: u8 = 132;
const ROOT_REF: u8 = 156;
const DEV_ITEM: u8 = 216;
const CHUNK_ITEM: u8 = 228;

/// Attributes that say how btrfs stores a file, and nothing of the file.
const PROPERTIES: &[u8] = b"btrfs.";

/// Trees and objects with fixed numbers.
const CSUM_TREE: u64 = 7;
const TOP_LEVEL: u64 = 5;
const FIRST_CHUNK_TREE: u64 = 256;
const DEV_ITEMS: u64 = 1;
const CSUM_OBJECT: u64 = 10_u64.wrapping_neg();

/// The root directory of every subvolume.
const ROOT_INODE: u64 = 256;

/// The empty directory that a snapshot has where another subvolume was: no tree has an inode of
/// that number, and Linux gives it to all of them.
const STUB_INODE: u64 = 2;

/// Whether the signature of btrfs is there.
///
/// # Errors
/// The place cannot be read.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    superblock::is_here(source)
}

/// Whether the signature is there at its first place, which what is formatted over a btrfs wipes
/// sooner than the others.
///
/// # Errors
/// None: what cannot be read may have copies.
pub fn is_formatted(source: &ByteSource) -> Result<bool, Error> {
    Ok(superblock::has_first(source))
}

/// How full it is, by its superblock.
///
/// # Errors
/// No superblock can be read, it asks for what is not supported, or it is on several devices.
pub fn usage(source: &ByteSource) -> Result<FileSystemUsage, Error> {
    Superblock::read(source)?.usage()
}

/// The file systems on several devices of which some are among these, with what is there of each.
pub fn on_several(sources: &[GivenSource]) -> Vec<FsDevices> {
    let superblocks = sources.iter().filter_map(|(_, source)| Superblock::read(source).ok());
    let mut found: Vec<FsDevices> = Vec::new();
    for superblock in superblocks {
        let Superblock { uuid, label, .. } = superblock;
        if found.iter().any(|found| found.uuid == uuid) {
            continue;
        }
        let (devices, (lost_bytes, allocated_bytes), problem) = match devices::gather(sources, uuid) {
            Err(error) => (Vec::new(), (0, 0), Some(error)),
            Ok(gathered) => match Btrfs::open_chunks(gathered) {
                Ok(btrfs) => (btrfs.report, btrfs.chunks.lost_bytes(), None),
                Err((devices, error)) => (devices, (0, 0), Some(error)),
            },
        };
        if superblock.devices > 1 || devices.len() > 1 {
            let kind = "btrfs";
            found.push(FsDevices { kind, uuid, label, devices, lost_bytes, allocated_bytes, problem });
        }
    }
    found
}

/// A btrfs file system.
pub struct Btrfs {
    superblock: Superblock,
    devices: Devices,
    chunks: Chunks,
    about: About,
    /// Its devices, here or not.
    report: Vec<FsDevice>,
    /// Devices that lag behind, and that data was taken from which nothing proves.
    stale_read: RefCell<BTreeSet<u64>>,
    /// The subvolume whose root is the root.
    subvolume: u64,
    /// Trees that were looked up.
    trees: RefCell<BTreeMap<u64, TreeRoot>>,
    /// What the log changes.
    log: AppliedLog,
}

impl Btrfs {
    /// Opens one that is on a single device.
    ///
    /// # Errors
    /// As [`Self::open_devices`], or it is on several devices.
    pub fn open(source: ByteSource, subvolume: Option<u64>) -> Result<Self, Error> {
        if Superblock::read(&source)?.devices != 1 {
            return Err(Error::Unsupported { what: "btrfs on several devices, of which one is given" });
        }
        Self::open_devices(&[(0, Rc::new(source))], subvolume)
    }

    /// Opens the one that the first of these devices belongs to: the superblock, the map of chunks,
    /// and the subvolume that a mount would show, or the one asked for. Others among the devices
    /// are passed over.
    ///
    /// # Errors
    /// The superblock or a tree is damaged or on a device that is missing, devices contradict each
    /// other, or it asks for what is not supported.
    pub fn open_devices(sources: &[GivenSource], subvolume: Option<u64>) -> Result<Self, Error> {
        let (_, first) = sources.first().ok_or(Error::Unrecognised)?;
        let gathered = devices::gather(sources, Superblock::read(first)?.uuid)?;
        let mut btrfs = Self::open_chunks(gathered).map_err(|(_, error)| error)?;
        btrfs.replay();
        btrfs.subvolume = match subvolume {
            Some(subvolume) => subvolume,
            None => btrfs.default_subvolume()?,
        };
        let tree = btrfs.tree(btrfs.subvolume)?;
        for tree in [btrfs.superblock.chunk_tree, btrfs.superblock.root_tree, tree] {
            tree::check_copies(&btrfs, tree)?;
        }
        if subvolume.is_none() && btrfs.subvolume != TOP_LEVEL {
            btrfs.about.notes.push(Note::DefaultSubvolume { id: btrfs.subvolume, top_level: TOP_LEVEL });
        }
        Ok(btrfs)
    }

    /// With the map of chunks and the list of devices; or what is known of the devices, and why
    /// not.
    fn open_chunks(gathered: Gathered) -> Result<Self, (Vec<FsDevice>, Error)> {
        let Gathered { superblock, devices, unused, logs_differ } = gathered;
        let (chunks, trees) = (Chunks::default(), RefCell::new(BTreeMap::new()));
        let about = About {
            kind: "btrfs",
            label: superblock.label.clone(),
            uuid: superblock.uuid,
            size_bytes: superblock.size_bytes,
            notes: Vec::new(),
        };
        let (report, log, stale_read) = Default::default();
        let subvolume = TOP_LEVEL;
        let mut btrfs =
            Self { superblock, devices, chunks, about, report, stale_read, subvolume, trees, log };
        match btrfs.read_chunks() {
            Ok(listed) => {
                btrfs.report = btrfs.devices.report(&listed, unused);
                let copied = btrfs.superblock.copied.map(|why| Note::SuperblockCopy { why });
                let notes = btrfs.devices.notes(&btrfs.report, btrfs.superblock.size_bytes);
                btrfs.about.notes = notes.into_iter().chain(copied).chain(logs_differ).collect();
                Ok(btrfs)
            }
            Err(error) => Err((btrfs.devices.report(&btrfs.devices.items(), unused), error)),
        }
    }

    /// Remembers that data which nothing proves came from a device that lags behind.
    fn note_stale(&self, device: usize) {
        self.stale_read.borrow_mut().insert(self.devices.id(device));
    }

    /// Takes what the log has, or says why not.
    fn replay(&mut self) {
        let Some(tree) = self.superblock.log_tree else { return };
        let note = match log::apply(self, tree) {
            Ok(log) => {
                self.log = log;
                Note::LogTreesApplied { items: self.log.items }
            }
            Err(Error::Unsupported { what }) => Note::LogCutShort { transactions: 0, why: what },
            Err(Error::Damaged { what, .. }) => Note::LogCutShort { transactions: 0, why: what },
            Err(_) => Note::LogCutShort { transactions: 0, why: "it cannot be read" },
        };
        self.about.notes.push(note);
    }

    /// Calls `each` for every item of a tree, by its number, with a key in the range, in order; as
    /// the log has them.
    fn items(
        &self,
        number: u64,
        range: RangeInclusive<ItemKey>,
        each: &mut EachItem<'_>,
    ) -> Result<(), Error> {
        let tree = self.tree(number)?;
        match self.log.trees.get(&number) {
            Some(changes) => changes.items(self, tree, range, each),
            None => tree::items(self, tree, range, each),
        }
    }

    /// The key of the last item of a tree, by its number, up to `key`; as the log has them.
    fn key_up_to(&self, number: u64, key: ItemKey) -> Result<Option<ItemKey>, Error> {
        let tree = self.tree(number)?;
        let found = match self.log.trees.get(&number) {
            Some(changes) => changes.floor(self, tree, key),
            None => tree::floor(self, tree, key),
        };
        Ok(found?.map(|(key, _)| key))
    }

    /// Reads the map of chunks, and returns the devices that are listed beside it.
    fn read_chunks(&mut self) -> Result<Vec<DeviceItem>, Error> {
        self.chunks = Chunks::of_superblock(&self.superblock, &self.devices)?;
        let mut found = Vec::new();
        let range = ItemKey::new(FIRST_CHUNK_TREE, CHUNK_ITEM, 0)
            ..=ItemKey::new(FIRST_CHUNK_TREE, CHUNK_ITEM, u64::MAX);
        tree::items(self, self.superblock.chunk_tree, range, &mut |key, item| {
            found.push((key.offset, item.to_vec()));
            Ok(())
        })?;
        for (logical, item) in found {
            self.chunks.add(&self.superblock, &self.devices, logical, &item)?;
        }
        let mut listed = Vec::new();
        let range = ItemKey::new(DEV_ITEMS, DEV_ITEM, 0)..=ItemKey::new(DEV_ITEMS, DEV_ITEM, u64::MAX);
        tree::items(self, self.superblock.chunk_tree, range, &mut |key, item| {
            let what = "the item of a device is too short";
            let short = Error::Damaged { structure: "btrfs device", at: key.offset, what };
            listed.push(DeviceItem::decode(item).ok_or(short)?);
            Ok(())
        })?;
        Ok(listed)
    }

    /// The subvolume that a mount without options shows: an entry called `default` in the tree of
    /// trees.
    fn default_subvolume(&self) -> Result<u64, Error> {
        let mut default = None;
        let directory = self.superblock.root_directory;
        let range = ItemKey::new(directory, DIR_ITEM, 0)..=ItemKey::new(directory, DIR_ITEM, u64::MAX);
        tree::items(self, self.superblock.root_tree, range, &mut |_, item| {
            each_entry(item, &mut |location, name, _| {
                if name == b"default" {
                    default = Some(location.object);
                }
                Ok(())
            })
        })?;
        Ok(default.unwrap_or(TOP_LEVEL))
    }

    /// A tree by its number.
    fn tree(&self, number: u64) -> Result<TreeRoot, Error> {
        if let Some(tree) = self.trees.borrow().get(&number) {
            return Ok(*tree);
        }
        let mut found = None;
        let range = ItemKey::new(number, ROOT_ITEM, 0)..=ItemKey::new(number, ROOT_ITEM, u64::MAX);
        tree::items(self, self.superblock.root_tree, range, &mut |_, item| {
            found = TreeRoot::of_root_item(item);
            Ok(())
        })?;
        let missing =
            Error::Damaged { structure: "btrfs subvolume", at: number, what: "there is no tree of it" };
        let tree = found.ok_or(missing)?;
        self.trees.borrow_mut().insert(number, tree);
        Ok(tree)
    }

    /// What an entry of a directory names. A snapshot has the entries of subvolumes and not the
    /// subvolumes, which stayed where they were: an entry leads to one only if the subvolume is
    /// recorded in this tree, in this directory, by this name.
    fn named(&self, directory: FsNode, location: ItemKey, name: &[u8]) -> Result<Option<FsNode>, Error> {
        match location.kind {
            INODE_ITEM => Ok(Some(FsNode { tree: directory.tree, inode: location.object })),
            ROOT_ITEM => {
                let reference = ItemKey::new(directory.tree, ROOT_REF, location.object);
                let mut here = false;
                tree::items(self, self.superblock.root_tree, reference..=reference, &mut |_, item| {
                    here = is_reference(item, directory.inode, name);
                    Ok(())
                })?;
                Ok(Some(match here {
                    true => FsNode { tree: location.object, inode: ROOT_INODE },
                    false => FsNode { tree: directory.tree, inode: STUB_INODE },
                }))
            }
            _ => Ok(None),
        }
    }

    /// The inode of that number.
    fn inode_item(&self, node: FsNode) -> Result<Option<Vec<u8>>, Error> {
        let (mut found, key) = (None, ItemKey::new(node.inode, INODE_ITEM, 0));
        self.items(node.tree, key..=key, &mut |_, item| {
            found = Some(item.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    fn inode(&self, node: FsNode) -> Result<Inode, Error> {
        if node.inode == STUB_INODE {
            return Ok(Inode { metadata: EMPTY_DIRECTORY, verified: true });
        }
        let item = self.inode_item(node)?;
        let damaged = |what| Error::Damaged { structure: "btrfs inode", at: node.inode, what };
        let item = item.ok_or_else(|| damaged("there is none of that number"))?;
        Inode::decode(&item).ok_or_else(|| damaged("it says nothing a file could be"))
    }

    fn entries(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let range =
            ItemKey::new(directory.inode, DIR_INDEX, 0)..=ItemKey::new(directory.inode, DIR_INDEX, u64::MAX);
        self.items(directory.tree, range, &mut |_, item| {
            each_entry(item, &mut |location, name, _| {
                let node = self.named(directory, location, name)?.filter(|_| !name.is_empty());
                let what = "an entry of it is none";
                let damaged = Error::Damaged { structure: "btrfs directory", at: directory.inode, what };
                each(DirEntry { name: name.to_vec(), node: node.ok_or(damaged)? })
            })
        })
    }
}

/// An inode in use.
struct Inode {
    metadata: FileMetadata,
    /// Its data has checksums.
    verified: bool,
}

/// What Linux shows in place of a subvolume that is elsewhere.
const EMPTY_DIRECTORY: FileMetadata = FileMetadata {
    kind: FileKind::Directory,
    mode: 0o755,
    uid: 0,
    gid: 0,
    links: 1,
    size_bytes: 0,
    stored_bytes: 0,
    accessed: FileTime { seconds: 0, nanoseconds: 0 },
    modified: FileTime { seconds: 0, nanoseconds: 0 },
    changed: FileTime { seconds: 0, nanoseconds: 0 },
    created: None,
    device: None,
};

impl Inode {
    fn decode(b: &[u8]) -> Option<Self> {
        const NO_CHECKSUMS: u64 = 1;
        let mode = le32(b, 52)?;
        let kind = FileKind::of_mode(mode)?;
        let time = |at| Some(FileTime::new(le64(b, at)?.cast_signed(), le32(b, at + 8)?));
        Some(Self {
            metadata: FileMetadata {
                kind,
                mode: mode & 0o7777,
                uid: le32(b, 44)?,
                gid: le32(b, 48)?,
                links: le32(b, 40)?,
                size_bytes: le64(b, 16).filter(|size| *size <= SIZE_MAX)?,
                stored_bytes: le64(b, 24)?,
                accessed: time(112)?,
                changed: time(124)?,
                modified: time(136)?,
                created: Some(time(148)?),
                device: if kind.is_device() { Some(device(le64(b, 56)?)) } else { None },
            },
            verified: le64(b, 64)? & NO_CHECKSUMS == 0,
        })
    }
}

/// As the kernel holds it: 12 and 20 bits.
fn device(number: u64) -> DeviceNumber {
    DeviceNumber { major: (number >> 20 & 0xfff) as u32, minor: (number & 0xf_ffff) as u32 }
}

/// Whether the record of where a subvolume is says this directory and this name.
fn is_reference(item: &[u8], directory: u64, name: &[u8]) -> bool {
    const NAME_AT: usize = 18;
    le64(item, 0) == Some(directory)
        && le16(item, 16).is_some_and(|len| usize::from(len) == name.len())
        && item.get(NAME_AT..NAME_AT + name.len()) == Some(name)
}

/// Takes where an entry leads, its name, and its value if it is an attribute.
type EachLocation<'a> = dyn FnMut(ItemKey, &[u8], &[u8]) -> Result<(), Error> + 'a;

/// Entries in one item: mostly one; several if their names have the same hash.
fn each_entry(item: &[u8], each: &mut EachLocation<'_>) -> Result<(), Error> {
    const HEADER_BYTES: usize = 30;
    let mut rest = item;
    while !rest.is_empty() {
        let lens = le16(rest, 25).zip(le16(rest, 27));
        let entry = ItemKey::decode(rest, 0).zip(lens).and_then(|(location, (data_len, name_len))| {
            let name_end = HEADER_BYTES + usize::from(name_len);
            let (name, behind) = (rest.get(HEADER_BYTES..name_end)?, rest.get(name_end..)?);
            let (value, behind) = behind.split_at_checked(usize::from(data_len))?;
            Some((location, name, value, behind))
        });
        let what = "an entry that ends beyond its item";
        let (location, name, value, behind) =
            entry.ok_or(Error::Damaged { structure: "btrfs directory item", at: 0, what })?;
        each(location, name, value)?;
        rest = behind;
    }
    Ok(())
}

impl Btrfs {
    /// Calls `each` with name and value of the extended attributes that programs see.
    fn each_attribute(&self, node: FsNode, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Error> {
        if self.is_stub(node) {
            return Ok(());
        }
        let range = ItemKey::new(node.inode, XATTR_ITEM, 0)..=ItemKey::new(node.inode, XATTR_ITEM, u64::MAX);
        self.items(node.tree, range, &mut |_, item| {
            // An attribute is stored as an entry of a directory is, with a value and no target.
            each_entry(item, &mut |_, name, value| {
                if !name.starts_with(PROPERTIES) {
                    each(name, value);
                }
                Ok(())
            })
        })
    }
}

impl FileSystem for Btrfs {
    fn about(&self) -> &About {
        &self.about
    }

    fn devices(&self) -> &[FsDevice] {
        &self.report
    }

    fn not_as_mounted(&self) -> Vec<Note> {
        let stale_read = self.stale_read.borrow();
        let stale = stale_read.iter().map(|&id| Note::StaleDataRead { id });
        self.about.notes.iter().copied().filter(|note| note.differs_from_a_mount()).chain(stale).collect()
    }

    fn root(&self) -> FsNode {
        FsNode { tree: self.subvolume, inode: ROOT_INODE }
    }

    fn is_stub(&self, directory: FsNode) -> bool {
        directory.inode == STUB_INODE
    }

    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error> {
        Ok(self.inode(node)?.metadata)
    }

    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        match self.inode(directory)?.metadata.kind {
            FileKind::Directory if directory.inode == STUB_INODE => Ok(()),
            FileKind::Directory => self.entries(directory, each),
            _ => Err(Error::NotADirectory),
        }
    }

    fn link(&self, link: FsNode) -> Result<Vec<u8>, Error> {
        let inode = self.inode(link)?;
        if inode.metadata.kind != FileKind::Symlink {
            return Err(Error::NotALink);
        }
        // A target is stored in an item, and that in a node.
        let len = usize::try_from(inode.metadata.size_bytes).ok();
        let len = len.filter(|len| *len <= self.superblock.node_bytes);
        let what = "a link that is longer than links are";
        let len = len.ok_or(Error::Damaged { structure: "btrfs inode", at: link.inode, what })?;
        let mut target = vec![0; len];
        data::read(self, link, &inode, 0..len as u64, &mut |offset, bytes| {
            target[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        link_target(target, "btrfs inode", link.inode)
    }

    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        let inode = self.inode(file)?;
        if inode.metadata.kind != FileKind::File {
            return Err(Error::NotAFile);
        }
        let range = range.start..range.end.min(inode.metadata.size_bytes);
        data::read(self, file, &inode, range, each)
    }

    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error> {
        let inode = self.inode(file)?;
        if inode.metadata.kind != FileKind::File {
            return Err(Error::NotAFile);
        }
        data::runs(self, file, 0..inode.metadata.size_bytes, each)
    }

    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = Vec::new();
        self.each_attribute(node, &mut |name, _| names.push(name.to_vec()))?;
        Ok(names)
    }

    fn attribute(&self, node: FsNode, name: &[u8]) -> Result<Vec<u8>, Error> {
        let mut found = None;
        self.each_attribute(node, &mut |other, value| {
            if other == name {
                found = Some(value.to_vec());
            }
        })?;
        found.ok_or(Error::NoSuchEntry)
    }
}

/// Makes the CRC-32C of the superblock and of every block right that may be one of a tree, for
/// fuzzing.
pub fn seal(image: &mut [u8]) {
    const BLOCK_BYTES: usize = 4096;
    let superblock = superblock::place();
    let Some(node_bytes) =
        image.get(superblock.clone()).and_then(|b| le32(b, 148)).map(|bytes| bytes as usize)
    else {
        return;
    };
    let uuid = image[superblock.start + 32..superblock.start + 48].to_vec();
    let nodes = (0..image.len()).step_by(BLOCK_BYTES).map(|at| at..at.saturating_add(node_bytes));
    for block in nodes.chain([superblock]) {
        let Some(block) = image.get_mut(block) else { continue };
        if block.len() > checksum::BYTES_MAX + 16 && block[32..48] == uuid {
            let sum = crc32c::crc32c(&block[checksum::BYTES_MAX..]);
            block[..4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.12 wrote them: `mknod b 259 300` and `mknod c 4095 1048575`.
    #[test]
    fn devices_are_numbered_as_the_kernel_holds_them() {
        assert_eq!(device(0x1030_012c), DeviceNumber { major: 259, minor: 300 });
        assert_eq!(device(0xffff_ffff), DeviceNumber { major: 4095, minor: 1_048_575 });
    }
}
