//! A volume: its header, its blocks, and the trees that its header leads to.

use std::cell::OnceCell;

use crate::bytes::be32;
use crate::error::Error;
use crate::hfs::fork::{HfsExtent, HfsFork, HfsForkMap, extents};
use crate::hfs::header::HfsHeader;
use crate::hfs::tree::{HfsTree, HfsTreeKind};
use crate::source::ByteSource;

/// Numbers of the volume's own files.
mod own {
    pub const EXTENTS: u32 = 3;
    pub const CATALOG: u32 = 4;
    pub const ATTRIBUTES: u32 = 8;
}

/// Which fork of a file, as keys of the overflow file say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HfsForkKind {
    Data,
    Resource,
}

impl HfsForkKind {
    fn code(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Resource => 0xff,
        }
    }
}

/// A volume whose header was found.
pub struct HfsVolume {
    pub source: ByteSource,
    /// The first byte of the volume.
    pub base: u64,
    pub header: HfsHeader,
    overflow: OnceCell<HfsTree>,
    attributes: OnceCell<HfsTree>,
}

impl HfsVolume {
    pub fn new(source: ByteSource, base: u64, header: HfsHeader) -> Self {
        Self { source, base, header, overflow: OnceCell::new(), attributes: OnceCell::new() }
    }

    /// The place of a block of the volume.
    pub fn offset_of(&self, block: u32) -> u64 {
        self.base.saturating_add(u64::from(block) * self.header.block_bytes)
    }

    pub fn has_blocks(&self, extent: HfsExtent) -> bool {
        let end = extent.start.checked_add(extent.count);
        end.is_some_and(|end| end <= self.header.total_blocks)
    }

    /// Opens the catalog.
    ///
    /// # Errors
    /// Its header cannot be read, or is damaged.
    pub fn catalog(&self) -> Result<HfsTree, Error> {
        let map = self.map(own::CATALOG, HfsForkKind::Data, &self.header.catalog);
        HfsTree::open(self, HfsTreeKind::Catalog, map)
    }

    /// The tree of extended attributes, if there is one.
    ///
    /// # Errors
    /// Its header cannot be read, or is damaged.
    pub fn attributes(&self) -> Result<Option<&HfsTree>, Error> {
        if self.header.attributes_file.logical_bytes == 0 {
            return Ok(None);
        }
        opened(&self.attributes, || {
            let map = self.map(own::ATTRIBUTES, HfsForkKind::Data, &self.header.attributes_file);
            HfsTree::open(self, HfsTreeKind::Attributes, map)
        })
        .map(Some)
    }

    fn overflow(&self) -> Result<&HfsTree, Error> {
        opened(&self.overflow, || {
            HfsTree::open(self, HfsTreeKind::Extents, HfsForkMap::new(own::EXTENTS, &self.header.extents))
        })
    }

    /// Where a fork of a file lies. What is not known of it is an error when it is read.
    pub fn map(&self, file: u32, kind: HfsForkKind, fork: &HfsFork) -> HfsForkMap {
        let mut map = HfsForkMap::new(file, fork);
        if map.is_whole(self.header.block_bytes) || file == own::EXTENTS {
            return map;
        }
        let found = self.overflow().and_then(|tree| {
            tree.visit(self, file, &mut |_, record| {
                let key_is_of_fork = record.key.first() == Some(&kind.code());
                if let (true, Some(first)) = (key_is_of_fork, be32(record.key, 6)) {
                    match extents(record.data, 0) {
                        Some(extents) => map.push_all(first.into(), &extents),
                        None => map.note_damage("a record of its extents is cut off"),
                    }
                }
                Ok(())
            })
        });
        if found.is_err() {
            map.note_damage("the records of its further extents cannot be read");
        }
        map
    }
}

/// What was opened before, or else now.
fn opened(
    cell: &OnceCell<HfsTree>,
    open: impl FnOnce() -> Result<HfsTree, Error>,
) -> Result<&HfsTree, Error> {
    match cell.get() {
        Some(tree) => Ok(tree),
        None => {
            let tree = open()?;
            Ok(cell.get_or_init(|| tree))
        }
    }
}
