//! XFS, versions 4 and 5, as "XFS Algorithms & Data Structures" describes them.
//!
//! Allocation groups of blocks; inodes by number, which says where they are; the map of a file in
//! its inode, as a list of extents or the root of a tree of them. All integers are big-endian, but
//! checksums.
//!
//! What the log of a file system that was not unmounted has newer is applied in memory ([`log`]),
//! and nothing is written.

mod attributes;
pub mod census;
mod directory;
mod fork;
mod groups;
mod inode;
mod log;
mod superblock;
mod synthetic;
mod usage;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::bytes::{be32, be64, le32};
use crate::error::Error;
use crate::layout::FileSystemLayout;
use crate::source::{ByteSource, FileRun};
use crate::{About, EachData, EachEntry, EachRun, FileKind, FileMetadata, FileSystem, FsNode, link_target};

use inode::{Format, Inode};
use log::intents::Finished;
use superblock::Superblock;
pub use usage::usage;

/// A link is at most that long.
const LINK_BYTES_MAX: usize = 1024;

/// The header of each extent of a link's target, in version 5.
const LINK_HEADER_BYTES: usize = 56;
const LINK_MAGIC: u32 = 0x5853_4c4d;
const LINK_OFFSET_AT: usize = 4;
const LINK_LEN_AT: usize = 8;
const LINK_CHECKSUM_AT: usize = 12;
const LINK_OWNER_AT: usize = 32;

pub use log::words::LogWords;
pub use synthetic::{example, seal, with_log_of};

/// Whether the signature of XFS is there.
///
/// # Errors
/// The place cannot be read.
pub fn is_here(source: &ByteSource) -> Result<bool, Error> {
    superblock::is_here(source)
}

/// How it is laid out, from its superblock.
///
/// # Errors
/// The superblock cannot be read, is damaged, or asks for what is not supported.
pub fn layout(source: &ByteSource) -> Result<FileSystemLayout, Error> {
    Superblock::read(source).map(|superblock| superblock.layout())
}

/// An XFS file system.
pub struct Xfs {
    source: ByteSource,
    superblock: Superblock,
    about: About,
    /// Files whose extents the log changes beyond what is in their inodes.
    finished: Finished,
    /// Where the log changed parts of blocks of directories, whose checksums tell nothing.
    directory_parts: BTreeSet<u64>,
}

impl Xfs {
    /// Opens it: the superblock, and what the log has newer.
    ///
    /// # Errors
    /// The superblock is damaged, or asks for what is not supported.
    pub fn open(mut source: ByteSource) -> Result<Self, Error> {
        let superblock = Superblock::read(&source)?;
        let replayed = log::apply(&mut source, &superblock);
        // A file system that grew has another one in its log.
        let superblock = Superblock::read(&source)?;
        let about = superblock.about(&source);
        let (finished, directory_parts) = Default::default();
        let mut xfs = Self { source, superblock, about, finished, directory_parts };
        let left = replayed.intents.finish(&mut xfs);
        xfs.about.notes.extend(replayed.note(left));
        xfs.directory_parts = replayed.directory_parts;
        Ok(xfs)
    }

    /// Blocks there can be: the bound of everything that occupies blocks of its own.
    fn blocks_max(&self) -> u64 {
        self.superblock.blocks.min(self.source.size() / self.superblock.block_bytes as u64 + 1)
    }

    /// Calls `each` for the runs of an inode's data within a range, clipped to it, in order.
    fn runs(
        &self,
        inode: &Inode,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        fork::runs(self, inode, range, each)
    }

    /// A target that does not fit into the inode: extents, which in version 5 start with a header
    /// each, however many blocks they have.
    fn remote_link(&self, inode: &Inode, len: usize) -> Result<Vec<u8>, Error> {
        let block_bytes = self.superblock.block_bytes;
        let header = if self.superblock.version5 { LINK_HEADER_BYTES } else { 0 };
        // At most, if no two of them lie side by side.
        let blocks = len.div_ceil(block_bytes - header) as u64;
        let mut target = Vec::with_capacity(len);
        self.runs(inode, &(0..blocks * block_bytes as u64), &mut |run| {
            // As many bytes as blocks were asked for, and a link is short.
            let extent = self.source.bytes(run.disk_offset, run.len as usize)?;
            let part = (len - target.len()).min(extent.len() - header);
            if header > 0 && part > 0 {
                let place = be32(&extent, LINK_OFFSET_AT).zip(be32(&extent, LINK_LEN_AT));
                if be32(&extent, 0) != Some(LINK_MAGIC)
                    || !checksum_is_right(&extent, LINK_CHECKSUM_AT)
                    || be64(&extent, LINK_OWNER_AT) != Some(inode.number)
                    || place != Some((target.len() as u32, part as u32))
                {
                    return Err(inode.damaged("an extent of the link's target is none"));
                }
            }
            target.extend_from_slice(&extent[header..header + part]);
            Ok(())
        })?;
        match target.len() == len {
            true => Ok(target),
            false => Err(inode.damaged("a part of the link's target is missing")),
        }
    }
}

/// CRC-32C of a structure with zeros in place of the checksum, which alone is little-endian.
fn checksum_is_right(bytes: &[u8], at: usize) -> bool {
    let Some(((before, after), stored)) = bytes.split_at_checked(at).zip(le32(bytes, at)) else {
        return false;
    };
    let sum = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
    crc32c::crc32c_append(sum, &after[4..]) == stored
}

impl FileSystem for Xfs {
    fn about(&self) -> &About {
        &self.about
    }

    fn root(&self) -> FsNode {
        FsNode { tree: 0, inode: self.superblock.root_inode }
    }

    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error> {
        Ok(Inode::read(self, node.inode)?.metadata)
    }

    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let inode = Inode::read(self, directory.inode)?;
        if inode.metadata.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        directory::list(self, &inode, each)
    }

    fn link(&self, link: FsNode) -> Result<Vec<u8>, Error> {
        let inode = Inode::read(self, link.inode)?;
        if inode.metadata.kind != FileKind::Symlink {
            return Err(Error::NotALink);
        }
        let len = usize::try_from(inode.metadata.size_bytes).ok().filter(|len| *len <= LINK_BYTES_MAX);
        let len = len.ok_or_else(|| inode.damaged("a link that is longer than links are"))?;
        match inode.format {
            Format::Local => match inode.fork().get(..len) {
                Some(target) => link_target(target.to_vec(), "xfs inode", link.inode),
                None => Err(inode.damaged("a link's target that ends beyond the inode")),
            },
            _ => link_target(self.remote_link(&inode, len)?, "xfs inode", link.inode),
        }
    }

    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        let inode = Inode::read(self, file.inode)?;
        if inode.metadata.kind != FileKind::File {
            return Err(Error::NotAFile);
        }
        if inode.realtime {
            return Err(Error::Unsupported { what: "a file on the realtime device of XFS" });
        }
        let range = range.start..range.end.min(inode.metadata.size_bytes);
        Self::runs(self, &inode, &range, &mut |run| self.source.deliver(run, each))
    }

    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error> {
        let inode = Inode::read(self, file.inode)?;
        if inode.metadata.kind != FileKind::File {
            return Err(Error::NotAFile);
        }
        if inode.realtime {
            return Err(Error::Unsupported { what: "a file on the realtime device of XFS" });
        }
        Self::runs(self, &inode, &(0..inode.metadata.size_bytes), each)
    }

    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error> {
        attributes::names(self, &Inode::read(self, node.inode)?)
    }

    fn attribute(&self, node: FsNode, name: &[u8]) -> Result<Vec<u8>, Error> {
        attributes::value(self, &Inode::read(self, node.inode)?, name)
    }
}
