//! ext2, ext3 and ext4, as the kernel's "ext4 Data Structures and Algorithms" describes them.
//!
//! Our own reader, because the crate there is (`ext4-view`) tells neither holes nor inode numbers,
//! so that sparse files and hard links would come out as something else; refuses `meta_bg`, `mmp`,
//! `inline_data`, `ea_inode`, `large_dir` and the journals of ext3; stops at the wrap of a journal;
//! and allocates by sizes that it reads.
//!
//! A file system that was not unmounted is read through its journal ([`journal`]): blocks that the
//! log holds newer are taken from there, then fast commits are applied ([`fast`]), and nothing is
//! written.

mod attributes;
mod blockmap;
pub mod census;
mod checksum;
mod descriptor;
mod directory;
mod extents;
mod fast;
mod inline;
mod inode;
mod journal;
mod superblock;
mod usage;

use std::ops::Range;

use crate::error::Error;
use crate::layout::FileSystemLayout;
use crate::source::{ByteSource, FileRun};
use crate::{
    About, EachData, EachEntry, EachRun, FileKind, FileMetadata, FileSystem, FsNode, Note, link_target,
};

use descriptor::DescriptorCopies;
use fast::FastCommits;
use inode::{Inode, InodeFlags};
use journal::JournalBlocks;
use superblock::{ExtFeatures, Superblock};
pub use usage::usage;

/// The inode of the root directory.
const ROOT_INODE: u64 = 2;

/// Whether the signature of ext2, ext3 or ext4 is there.
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

/// An ext2, ext3 or ext4 file system.
pub struct Ext {
    source: ByteSource,
    superblock: Superblock,
    overlay: JournalBlocks,
    fast: FastCommits,
    descriptors: DescriptorCopies,
    about: About,
}

impl Ext {
    /// Opens it: superblock, and the journal if it was not unmounted.
    ///
    /// # Errors
    /// The superblock is damaged, or asks for what is not supported.
    pub fn open(source: ByteSource) -> Result<Self, Error> {
        let superblock = Superblock::read(&source)?;
        let about = superblock.about(&source);
        let (overlay, fast, descriptors) = Default::default();
        let mut ext = Self { source, superblock, overlay, fast, descriptors, about };
        if ext.superblock.features.incompat.contains(ExtFeatures::RECOVER) {
            ext.replay();
        }
        Ok(ext)
    }

    /// Takes what the journal has: whole transactions first, then the fast commits that follow.
    /// What cannot be taken becomes a note.
    fn replay(&mut self) {
        let loaded = match journal::load(self) {
            Ok(loaded) => loaded,
            Err(why) => return self.about.notes.push(Note::JournalNotApplied { why }),
        };
        let blocks = loaded.blocks.len();
        self.overlay = loaded.blocks;
        // The journal may have newer ones than those that led to it.
        self.descriptors = DescriptorCopies::default();
        match Superblock::read_newer(self) {
            Ok(None) => {}
            Ok(Some(newer)) => {
                self.about = newer.about(&self.source);
                self.superblock = newer;
            }
            Err(_) => {
                self.about.notes.push(Note::JournalCutShort { why: "the superblock in it is damaged" });
            }
        }
        self.about.notes.extend((blocks > 0).then_some(Note::JournalApplied { blocks }));
        self.about.notes.extend(loaded.damage.map(|why| Note::JournalCutShort { why }));
        let changes = loaded.fast.as_ref().map_or(0, Vec::len) as u64;
        match loaded.fast.and_then(|changes| FastCommits::apply(self, &changes)) {
            Ok(fast) => {
                self.about.notes.extend((changes > 0).then_some(Note::FastCommitsApplied { changes }));
                self.fast = fast;
            }
            Err(why) => self.about.notes.push(Note::JournalCutShort { why }),
        }
    }

    /// Blocks there can be: the bound of everything that occupies blocks.
    fn blocks_max(&self) -> u64 {
        self.superblock.blocks.min(self.source.size() / self.superblock.block_bytes as u64 + 1)
    }

    /// A block, from the journal if that has it newer.
    fn block(&self, block: u64) -> Result<Vec<u8>, Error> {
        let bytes = self.superblock.block_bytes;
        let Some(newer) = self.overlay.get(block) else {
            return self.source.bytes(self.superblock.offset_of(block)?, bytes);
        };
        let mut block = self.source.bytes(self.superblock.offset_of(newer.block)?, bytes)?;
        newer.unescape(&mut block);
        Ok(block)
    }

    /// Hands on the data of a run of blocks.
    fn deliver(&self, run: FileRun, each: &mut EachData<'_>) -> Result<(), Error> {
        let block_bytes = self.superblock.block_bytes as u64;
        let blocks = run.disk_offset / block_bytes..(run.disk_offset + run.len).div_ceil(block_bytes);
        if !self.overlay.holds_any(blocks.clone()) {
            return self.source.deliver(run, each);
        }
        // With `data=journal` the log has data, too: these few runs go block by block.
        for block in blocks {
            let start = (block * block_bytes).max(run.disk_offset);
            let end = ((block + 1) * block_bytes).min(run.disk_offset + run.len);
            let bytes = self.block(block)?;
            let at = (start % block_bytes) as usize;
            each(run.file_offset + (start - run.disk_offset), &bytes[at..at + (end - start) as usize])?;
        }
        Ok(())
    }

    fn inode(&self, node: FsNode) -> Result<Inode, Error> {
        Inode::read(self, node.inode)
    }

    /// Calls `each` for the runs of an inode's data within a range, clipped to it, in order.
    fn runs(
        &self,
        inode: &Inode,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.fast.moves(inode.number) {
            let mut mapped = Vec::new();
            self.mapped_runs(inode, range, &mut |run| {
                mapped.push(run);
                Ok(())
            })?;
            return self.fast.runs(self, inode.number, &mapped, range)?.into_iter().try_for_each(each);
        }
        self.mapped_runs(inode, range, each)
    }

    /// As the inode's map has them.
    fn mapped_runs(
        &self,
        inode: &Inode,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match inode.flags.contains(InodeFlags::EXTENTS) {
            true => extents::runs(self, inode, range, each),
            false => blockmap::runs(self, inode, range, each),
        }
    }

    /// Data of an inode of any kind.
    fn read_inode(&self, inode: &Inode, range: &Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        inode.refuse_unreadable()?;
        let range = range.start..range.end.min(inode.metadata.size_bytes);
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            let data = inline::data(inode)?;
            let end = (data.len() as u64).min(range.end);
            return match data.get(range.start as usize..end as usize) {
                Some(part) if !part.is_empty() => each(range.start, part),
                _ => Ok(()),
            };
        }
        self.runs(inode, &range, &mut |run| self.deliver(run, each))
    }
}

impl FileSystem for Ext {
    fn about(&self) -> &About {
        &self.about
    }

    fn not_as_mounted(&self) -> Vec<Note> {
        let told = self.about.notes.iter().copied().filter(|note| note.differs_from_a_mount());
        told.chain(self.descriptors.note()).collect()
    }

    fn root(&self) -> FsNode {
        FsNode { tree: 0, inode: ROOT_INODE }
    }

    fn metadata(&self, node: FsNode) -> Result<FileMetadata, Error> {
        Ok(self.inode(node)?.metadata)
    }

    fn list(&self, directory: FsNode, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let inode = self.inode(directory)?;
        if inode.metadata.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        inode.refuse_unreadable()?;
        match self.fast.list(directory.inode, each) {
            Some(listed) => listed,
            None => directory::list(self, &inode, each),
        }
    }

    fn link(&self, link: FsNode) -> Result<Vec<u8>, Error> {
        let inode = self.inode(link)?;
        if inode.metadata.kind != FileKind::Symlink {
            return Err(Error::NotALink);
        }
        // A link is at most a block, by definition.
        let len = usize::try_from(inode.metadata.size_bytes).ok();
        let len = len.filter(|len| *len <= self.superblock.block_bytes);
        let len = len.ok_or_else(|| inode.damaged("a link that is longer than a block"))?;
        if let Some(target) = inode.fast_link(len) {
            inode.refuse_unreadable()?;
            return link_target(target.to_vec(), "ext inode", link.inode);
        }
        let mut target = vec![0; len];
        self.read_inode(&inode, &(0..len as u64), &mut |offset, bytes| {
            target[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        link_target(target, "ext inode", link.inode)
    }

    fn read(&self, file: FsNode, range: Range<u64>, each: &mut EachData<'_>) -> Result<(), Error> {
        let inode = self.inode(file)?;
        if inode.metadata.kind != FileKind::File {
            return Err(Error::NotAFile);
        }
        self.read_inode(&inode, &range, each)
    }

    fn runs(&self, file: FsNode, each: &mut EachRun<'_>) -> Result<(), Error> {
        let inode = self.inode(file)?;
        if inode.metadata.kind != FileKind::File {
            return Err(Error::NotAFile);
        }
        inode.refuse_unreadable()?;
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        Self::runs(self, &inode, &(0..inode.metadata.size_bytes), each)
    }

    fn attributes(&self, node: FsNode) -> Result<Vec<Vec<u8>>, Error> {
        attributes::names(self, &self.inode(node)?)
    }

    fn attribute(&self, node: FsNode, name: &[u8]) -> Result<Vec<u8>, Error> {
        attributes::value(self, &self.inode(node)?, name)
    }
}

/// Makes the checksums of fast commits right, for fuzzing.
pub fn seal(image: &mut [u8]) {
    const BLOCK_LOG_AT: usize = 1024 + 0x18;
    let block_log = crate::bytes::le32(image, BLOCK_LOG_AT).filter(|log| *log <= 6);
    if let Some(log) = block_log {
        fast::seal(image, 1024 << log);
    }
}
