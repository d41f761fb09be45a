//! HFS+ and HFSX, as Apple's Technical Note TN1150 describes them.
//!
//! Our own reader, because no crate for it is kept that reads hard links, attributes, compressed
//! files and the journal, and takes nothing on the medium for granted.
//!
//! A file is known by its number in the catalog, which is what its hard links lead to. Entries of
//! a directory are all records of its number, in whatever order of names. Where the record of a
//! number is, is kept once it was listed; else its thread leads there.
//!
//! What the journal of a volume that was not unmounted has newer is applied in memory
//! ([`journal`]), and nothing is written.

mod attributes;
mod catalog;
mod compression;
mod fork;
mod header;
mod journal;
mod letters;
mod links;
mod lzvn;
mod node;
mod tree;
mod uuid;
mod volume;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::Error;
use crate::source::ByteSource;
use crate::{
    About, DeviceNumber, DirEntry, EachData, EachEntry, EachRun, FileKind, FileMetadata, FileSystem, FsNode,
    Note, link_target,
};

use catalog::{CatalogEntry, FINDER_BYTES, HfsItem, name_of};
use compression::HfsCompressed;
use fork::HfsForkMap;
pub use header::{is_formatted, is_here};
pub use journal::seal;
use letters::{composed, shown};
use links::{HfsLinks, LinkTarget, is_private};
use tree::{HfsRecordPlace, HfsTree};
use volume::{HfsForkKind, HfsVolume};

/// The folder that is the root.
const ROOT: u32 = 2;
/// Places of records that are kept: some tens of MiB.
const PLACES_MAX: usize = 1 << 20;
/// A link's target.
const LINK_BYTES_MAX: u64 = 64 << 10;
/// Names of attributes that Linux knows as they are. Others are the user's.
const NAMESPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
const USER: &[u8] = b"user.";

/// An HFS+ or HFSX.
pub struct Hfs {
    volume: HfsVolume,
    catalog: HfsTree,
    about: About,
    links: OnceCell<HfsLinks>,
    /// Where in the catalog items are, by their numbers.
    places: RefCell<BTreeMap<u32, HfsRecordPlace>>,
}

fn damaged(number: u32, what: &'static str) -> Error {
    Error::Damaged { structure: "HFS+ file", at: number.into(), what }
}

fn node_of(number: u32) -> FsNode {
    FsNode { tree: 0, inode: number.into() }
}

impl Hfs {
    /// Finds its header, applies its journal, and opens the catalog.
    ///
    /// # Errors
    /// No header is in order, or the catalog or the root cannot be read.
    pub fn open(mut source: ByteSource) -> Result<Self, Error> {
        let place = header::locate(&source)?;
        let journal = journal::replay(&mut source, &place);
        // The journal may have another one.
        let place = header::locate(&source)?;
        let size_bytes = place.header.size_bytes();
        let mut notes: Vec<Note> =
            source.cut_off(place.base.saturating_add(size_bytes)).into_iter().collect();
        notes.extend(place.alternate.map(|why| Note::HeaderCopy { why }));
        notes.extend(journal);
        notes.extend(place.header.is_marked_damaged().then_some(Note::MarkedDamaged));
        let uuid = uuid::of(place.header.id);
        let volume = HfsVolume::new(source, place.base, place.header);
        let catalog = volume.catalog()?;
        let about = About { kind: "hfsplus", label: Vec::new(), uuid, size_bytes, notes };
        let mut hfs = Self { volume, catalog, about, links: OnceCell::new(), places: RefCell::default() };
        if !hfs.item(ROOT)?.is_folder {
            return Err(damaged(ROOT, "the root is no folder"));
        }
        // It is not worth an error.
        if let Ok((_, label)) = hfs.thread(ROOT) {
            hfs.about.label = shown(&label);
        }
        Ok(hfs)
    }

    /// Where the thread of an item leads: the folder it is in, and its name there.
    fn thread(&self, number: u32) -> Result<(u32, Vec<u16>), Error> {
        let mut found = None;
        let visited = self.catalog.visit(&self.volume, number, &mut |_, record| {
            if let Some(CatalogEntry::Thread { parent, name }) = catalog::decode(record.data) {
                found = Some((parent, name));
                return Err(Error::Stopped);
            }
            Ok(())
        });
        match found {
            Some(found) => Ok(found),
            None => Err(visited.err().unwrap_or_else(|| damaged(number, "the catalog has no thread of it"))),
        }
    }

    /// Keeps where the record of an item is; `false` if another record has its number, so that this
    /// one is no item.
    fn keep_place(&self, number: u32, place: HfsRecordPlace) -> bool {
        let mut places = self.places.borrow_mut();
        if let Some(kept) = places.get(&number) {
            return *kept == place;
        }
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(number, place);
        true
    }

    /// The record of an item.
    fn item(&self, number: u32) -> Result<Box<HfsItem>, Error> {
        let of_number = |data: &[u8]| match catalog::decode(data) {
            Some(CatalogEntry::Item(item)) if item.number == number => Some(item),
            _ => None,
        };
        let place = self.places.borrow().get(&number).copied();
        let known =
            place.and_then(|place| self.catalog.at(&self.volume, place, |record| of_number(record.data)));
        if let Some(item) = known {
            return Ok(item);
        }
        let (parent, _) = self.thread(number)?;
        let mut found = None;
        let visited = self.catalog.visit(&self.volume, parent, &mut |place, record| {
            if let Some(CatalogEntry::Item(item)) = catalog::decode(record.data) {
                self.keep_place(item.number, place);
                if item.number == number {
                    found = Some(item);
                    return Err(Error::Stopped);
                }
            }
            Ok(())
        });
        match found {
            Some(item) => Ok(item),
            None => Err(visited.err().unwrap_or_else(|| damaged(number, "its thread leads nowhere"))),
        }
    }

    fn item_of(&self, node: FsNode) -> Result<Box<HfsItem>, Error> {
        let number = u32::try_from(node.inode).map_err(|_| Error::NoSuchEntry)?;
        let item = self.item(number)?;
        match self.links().target(&item) {
            LinkTarget::None => Ok(item),
            _ => Err(damaged(number, "what it is a hard link of, is not there")),
        }
    }

    fn links(&self) -> &HfsLinks {
        self.links.get_or_init(|| {
            let mut links = HfsLinks::read(&self.volume, &self.catalog, ROOT);
            if let Ok(root) = self.item(ROOT) {
                links.note_root(&root);
            }
            links
        })
    }

    fn file_map(&self, item: &HfsItem) -> HfsForkMap {
        self.volume.map(item.number, HfsForkKind::Data, &item.data)
    }

    fn resource_map(&self, item: &HfsItem) -> HfsForkMap {
        self.volume.map(item.number, HfsForkKind::Resource, &item.resource)
    }

    /// How a file is compressed, if it is.
    fn compressed(&self, item: &HfsItem) -> Result<Option<HfsCompressed>, Error> {
        const IS_COMPRESSED: u8 = 0x20;
        if item.owner_flags & IS_COMPRESSED == 0 || kind_of(item) != FileKind::File {
            return Ok(None);
        }
        let name: Vec<u16> = attributes::COMPRESSION.encode_utf16().collect();
        let Some(value) = attributes::value(&self.volume, item.number, &name)? else { return Ok(None) };
        let compressed = HfsCompressed::decode(item.number, &value);
        compressed.map(Some).ok_or_else(|| damaged(item.number, "what says how it is compressed"))
    }

    fn file(&self, node: FsNode) -> Result<Box<HfsItem>, Error> {
        let item = self.item_of(node)?;
        if kind_of(&item) == FileKind::File { Ok(item) } else { Err(Error::NotAFile) }
    }
}

fn kind_of(item: &HfsItem) -> FileKind {
    match FileKind::of_mode(item.mode.into()) {
        _ if item.is_folder => FileKind::Directory,
        None | Some(FileKind::Directory) => FileKind::File,
        Some(kind) => kind,
    }
}

/// What the Finder keeps of an item, without what macOS adds for itself and does not hand on: the
/// number of a document, when it came into its folder, and how often it was written.
fn finder_of(item: &HfsItem) -> Option<[u8; FINDER_BYTES]> {
    let mut finder = item.finder;
    finder[16..24].fill(0);
    finder[28..].fill(0);
    // Linux writes it to every file: nothing is known of what made it.
    let is_unknown = finder.starts_with(b"????????") && finder[8..].iter().all(|&byte| byte == 0);
    let has_any = finder.iter().any(|&byte| byte != 0) && !is_unknown;
    (has_any && kind_of(item) != FileKind::Symlink).then_some(finder)
}

/// The name of an attribute, as it can be given to other file systems of Linux.
fn attribute_name(units: &[u16]) -> Vec<u8> {
    let name = crate::names::of_utf16(units.iter().copied());
    let is_known = NAMESPACES.iter().any(|namespace| name.starts_with(namespace));
    if is_known { name } else { [USER, &name].concat() }
}

impl FileSystem for Hfs {
    fn about(&self) -> &About {
        &self.about
    }

    fn root(&self) -> FsNode {
        node_of(ROOT)
    }

    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error> {
        let item = self.item_of(node)?;
        let kind = kind_of(&item);
        let block_bytes = self.volume.header.block_bytes;
        let stored = |blocks: u32| u64::from(blocks) * block_bytes;
        let (size_bytes, stored_bytes) = match self.compressed(&item)? {
            Some(file) if file.uses_resource() => (file.size_bytes, stored(item.resource.total_blocks)),
            Some(file) => (file.size_bytes, 0),
            None => (item.data.logical_bytes, stored(item.data.total_blocks)),
        };
        let mode = match (item.mode, kind) {
            (0, FileKind::Directory) => 0o755,
            (0, _) => 0o644,
            (mode, _) => u32::from(mode) & 0o7777,
        };
        // As Linux stores it, and takes it whatever stored it.
        let device = DeviceNumber { major: item.special >> 20, minor: item.special & 0xf_ffff };
        Ok(FileMetadata {
            kind,
            mode,
            uid: item.uid,
            gid: item.gid,
            links: self.links().count(&item),
            size_bytes,
            stored_bytes,
            accessed: catalog::time(item.accessed),
            modified: catalog::time(item.modified),
            changed: catalog::time(item.changed),
            created: Some(catalog::time(item.created)),
            device: kind.is_device().then_some(device),
        })
    }

    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let folder = self.item_of(directory)?;
        if !folder.is_folder {
            return Err(Error::NotADirectory);
        }
        let (mut damage, mut found, mut hidden) = (None, 0_u32, 0_u32);
        self.catalog.visit(&self.volume, folder.number, &mut |place, record| {
            let entry = catalog::decode(record.data).zip(name_of(record));
            let Some((CatalogEntry::Item(item), name)) = entry else {
                if entry.is_none() {
                    damage = Some(damaged(folder.number, "a record of what is in it"));
                }
                return Ok(());
            };
            if name.is_empty() {
                damage = Some(damaged(folder.number, "an item in it has no name"));
                return Ok(());
            }
            found += 1;
            if folder.number == ROOT && item.is_folder && is_private(&name) {
                hidden += 1;
                return Ok(());
            }
            if !self.keep_place(item.number, place) {
                damage = Some(damaged(item.number, "another record has its number"));
                return Ok(());
            }
            let number = match self.links().target(&item) {
                LinkTarget::Item(number) => number,
                LinkTarget::None | LinkTarget::Missing => item.number,
            };
            each(DirEntry { name: shown(&name), node: node_of(number) })
        })?;
        // Those that are hidden count or not, by what made them.
        if !(found - hidden..=found).contains(&folder.valence) {
            damage.get_or_insert(damaged(folder.number, "it counts other items than are found in it"));
        }
        damage.map_or(Ok(()), Err)
    }

    fn name_of_part(&self, part: Vec<u8>) -> Vec<u8> {
        composed(part)
    }

    fn link(&self, link: FsNode) -> Result<Vec<u8>, Error> {
        let item = self.item_of(link)?;
        if kind_of(&item) != FileKind::Symlink {
            return Err(Error::NotALink);
        }
        if item.data.logical_bytes > LINK_BYTES_MAX {
            return Err(damaged(item.number, "a link that is longer than links are"));
        }
        let mut target = vec![0; item.data.logical_bytes as usize];
        self.file_map(&item).read(&self.volume, 0, &mut target)?;
        link_target(target, "HFS+ file", link.inode)
    }

    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        let item = self.file(file)?;
        match self.compressed(&item)? {
            Some(compressed) => compressed.read(&self.volume, &self.resource_map(&item), &range, each),
            None => self.file_map(&item).deliver(&self.volume, &range, each),
        }
    }

    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error> {
        let item = self.file(file)?;
        match self.compressed(&item)? {
            Some(compressed) => compressed.runs(&self.volume, &self.resource_map(&item), each),
            None => self.file_map(&item).runs(&self.volume, &(0..u64::MAX), each),
        }
    }

    /// Those that are stored, without what makes a compressed file; what the Finder keeps; and the
    /// resource fork.
    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error> {
        let item = self.item_of(node)?;
        let compressed = self.compressed(&item)?.filter(HfsCompressed::is_supported);
        let stored = attributes::names(&self.volume, item.number)?;
        let mut names: Vec<_> = stored.iter().map(|name| attribute_name(name)).collect();
        let of_apple = |name: &str| [USER, name.as_bytes()].concat();
        if compressed.is_some() {
            names.retain(|name| *name != of_apple(attributes::COMPRESSION));
        }
        names.extend(finder_of(&item).map(|_| of_apple(attributes::FINDER)));
        let has_resource = item.resource.logical_bytes > 0
            && !compressed.is_some_and(|compressed| compressed.uses_resource());
        names.extend(has_resource.then(|| of_apple(attributes::RESOURCE)));
        Ok(names)
    }

    fn attribute(&self, node: FsNode, name: &[u8]) -> Result<Vec<u8>, Error> {
        let item = self.item_of(node)?;
        let stored = attributes::names(&self.volume, item.number)?;
        if let Some(units) = stored.iter().find(|units| attribute_name(units) == name) {
            return attributes::value(&self.volume, item.number, units)?.ok_or(Error::NoSuchEntry);
        }
        match name.strip_prefix(USER).map(str::from_utf8) {
            Some(Ok(attributes::FINDER)) => {
                finder_of(&item).map(|finder| finder.to_vec()).ok_or(Error::NoSuchEntry)
            }
            Some(Ok(attributes::RESOURCE)) if item.resource.logical_bytes > 0 => {
                attributes::whole(&self.volume, &self.resource_map(&item))
            }
            _ => Err(Error::NoSuchEntry),
        }
    }
}
