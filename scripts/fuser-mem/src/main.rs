//! A file in memory, served by the crate `fuser` and nothing else: what `scripts/bench fuse`
//! compares the FUSE export with.
//!
//! `fuser-mem DIR SIZE_MIB [THREADS]`, until DIR is unmounted.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

const FILE: INodeNo = INodeNo(2);
const VALID: Duration = Duration::from_secs(60);

struct Memory(RwLock<Vec<u8>>);

impl Memory {
    fn attributes(&self, node: INodeNo) -> FileAttr {
        let is_file = node == FILE;
        let size = self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        FileAttr {
            ino: node,
            size: if is_file { size } else { 0 },
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // As the export asks for: a kernel that has less gives less.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(512);
        let _ = config.set_congestion_threshold(384);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str() {
            Some("disk") => reply.entry(&VALID, &self.attributes(FILE), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(node));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let start = (offset as usize).min(bytes.len());
        let end = (start + size as usize).min(bytes.len());
        reply.data(&bytes[start..end]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let start = (offset as usize).min(bytes.len());
        let end = (start + data.len()).min(bytes.len());
        bytes[start..end].copy_from_slice(&data[..end - start]);
        reply.written((end - start) as u32);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: fuser-mem DIR SIZE_MIB [THREADS]";
    let (dir, size_mib) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let threads: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    // Of something, as memory that nothing was written to is all one page.
    let memory = Memory(RwLock::new(vec![1; size_mib.parse::<usize>()? << 20]));
    let mut config = Config::default();
    (config.n_threads, config.clone_fd) = (Some(threads), threads > 1);
    Ok(fuser::mount(memory, dir, &config)?)
}
