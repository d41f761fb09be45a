//! Hard links: files without data that lead to a file in a folder which is not listed, and files
//! that lead to a folder in another one.
//!
//! TN1150, "Hard Links"; links of folders, which came with Mac OS X 10.5, as Apple's `hfs_format.h`
//! has their names and types.

use std::collections::{BTreeMap, BTreeSet};

use crate::hfs::catalog::{CatalogEntry, HfsItem, decode, name_of};
use crate::hfs::tree::HfsTree;
use crate::hfs::volume::HfsVolume;

/// Where what links lead to is kept: in the root.
const FILES: &str = "\0\0\0\0HFS+ Private Data";
const FOLDERS: &str = ".HFS+ Private Directory Data\r";

/// The names of what is kept there, before the number of the link.
const FILE_PREFIX: &str = "iNode";
const FOLDER_PREFIX: &str = "dir_";

/// What the Finder takes a link for.
const FILE_LINK: (&[u8], &[u8]) = (b"hlnk", b"hfs+");
const FOLDER_LINK: (&[u8], &[u8]) = (b"fdrp", b"MACS");

/// The folders in the root that are not listed.
pub fn is_private(name: &[u16]) -> bool {
    [FILES, FOLDERS].iter().any(|private| private.encode_utf16().eq(name.iter().copied()))
}

/// What links lead to, by their numbers.
#[derive(Debug, Default)]
pub struct HfsLinks {
    files: BTreeMap<u32, u32>,
    folders: BTreeMap<u32, u32>,
    /// All of these files.
    numbers: BTreeSet<u32>,
    /// When the folder of files, and the root, were made. A link was made at one of these times;
    /// else it is a file that only looks like one.
    made: Vec<u32>,
}

/// What a file stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTarget {
    /// Itself.
    None,
    /// The file or folder of this number.
    Item(u32),
    /// Nothing that is there.
    Missing,
}

impl HfsLinks {
    /// Looks at the folders. What is damaged there makes links lead nowhere.
    pub fn read(volume: &HfsVolume, catalog: &HfsTree, root: u32) -> Self {
        let mut links = Self::default();
        let (mut files, mut folders) = (None, None);
        let _ = catalog.visit(volume, root, &mut |_, record| {
            let Some(CatalogEntry::Item(item)) = decode(record.data) else { return Ok(()) };
            if let Some(name) = name_of(record).filter(|name| item.is_folder && is_private(name)) {
                match name.first() {
                    Some(0) => {
                        links.made.push(item.created);
                        files = Some(item.number);
                    }
                    _ => folders = Some(item.number),
                }
            }
            Ok(())
        });
        if let Some(files) = files {
            links.files = targets(volume, catalog, files, FILE_PREFIX);
            links.numbers = links.files.values().copied().collect();
        }
        if let Some(folders) = folders {
            links.folders = targets(volume, catalog, folders, FOLDER_PREFIX);
        }
        links
    }

    /// Takes the time at which the root was made.
    pub fn note_root(&mut self, root: &HfsItem) {
        self.made.push(root.created);
    }

    /// What a file stands for.
    pub fn target(&self, item: &HfsItem) -> LinkTarget {
        let targets = match item.finder_type() {
            _ if item.is_folder => return LinkTarget::None,
            FILE_LINK if self.made.contains(&item.created) => &self.files,
            FOLDER_LINK if is_folder_link(item) && self.made.contains(&item.created) => &self.folders,
            _ => return LinkTarget::None,
        };
        targets.get(&item.special).map_or(LinkTarget::Missing, |&number| LinkTarget::Item(number))
    }

    /// How many names a file has.
    pub fn count(&self, item: &HfsItem) -> u32 {
        match !item.is_folder && self.numbers.contains(&item.number) {
            true => item.special.max(1),
            false => 1,
        }
    }
}

/// Aliases of the Finder have the same type. What tells a link is the chain that it belongs to.
fn is_folder_link(item: &HfsItem) -> bool {
    const HAS_LINK_CHAIN: u16 = 0x20;
    item.flags & HAS_LINK_CHAIN != 0
}

/// The items of a folder whose names have a number behind a prefix.
fn targets(volume: &HfsVolume, catalog: &HfsTree, folder: u32, prefix: &str) -> BTreeMap<u32, u32> {
    let mut targets = BTreeMap::new();
    let _ = catalog.visit(volume, folder, &mut |_, record| {
        let Some(CatalogEntry::Item(item)) = decode(record.data) else { return Ok(()) };
        let name = name_of(record).and_then(|name| String::from_utf16(&name).ok());
        let number = name.and_then(|name| name.strip_prefix(prefix)?.parse().ok());
        targets.extend(number.map(|number: u32| (number, item.number)));
        Ok(())
    });
    targets
}
