//! Data with tags, as a device: what fails its checksum is a sector that cannot be read.

use std::sync::Arc;

use wattle_engine::{Volume, VolumeRef};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

use super::blocks::CheckedBlocks;
use super::open::Opened;
use super::write::Writer;
use super::{IntegrityFacts, unsettled};
use crate::problem::Problem;

const SECTOR: u64 = 512;

/// A device of dm-integrity that is open. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CheckedDevice {
    blocks: CheckedBlocks,
    /// `None` of what is only read.
    writer: Option<Arc<Writer>>,
}

impl CheckedDevice {
    /// What is on the device `name`, as a device called `inside`. With `to_write` its journal is
    /// brought to its places first, unless it cannot be written: then it is only read, and a note
    /// says why.
    ///
    /// # Errors
    /// A [`Problem`]: the volume below does not take what the journal holds.
    pub async fn device(
        core: &Core,
        (name, inside): (&str, &str),
        (below, opened): (VolumeRef, Volume),
        Opened { tags, mut facts, ring }: Opened,
        to_write: bool,
    ) -> Result<(Device, IntegrityFacts), Problem> {
        let len = tags.sectors * SECTOR;
        // Sizes that Linux has and a device here has not are read by their sectors.
        let is_small = opened.block_bytes().max(tags.block_bytes) <= 512 || !len.is_multiple_of(4096);
        let block = if is_small { 512 } else { 4096 };
        let mut blocks = CheckedBlocks { below, tags: Arc::new(tags) };
        let mut place = None;
        let unsettled = |error: IoError| unsettled(name, error);
        if to_write && !opened.read_only() {
            let ring = match ring {
                Ok(_) if !blocks.journal_agrees(core).await.map_err(unsettled)? => {
                    Err("a block in its journal is not what was written")
                }
                ring => ring,
            };
            match ring {
                Ok(ring) => {
                    blocks = blocks.settle(core, &ring.unfinished).await.map_err(unsettled)?;
                    let count = std::mem::take(&mut facts.logged_blocks);
                    if count > 0 {
                        let note =
                            format!("{name}: {count} blocks were brought from its journal to their places");
                        facts.notes.push(note);
                    }
                    place = ring.next;
                }
                Err(why) => {
                    facts.only_read = Some(why);
                    facts.notes.push(format!("{name} is only read: {why}"));
                }
            }
        }
        let writer = place.map(|place| Arc::new(Writer::start(core, blocks.clone(), place)));
        let writable = writer.is_some();
        let device = Device::served(inside, len, block, writable, core, Arc::new(Self { blocks, writer }));
        Ok((device, facts))
    }

    async fn read_any(&self, core: &Core, offset: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let (result, mut buf) = self.blocks.read_any(core, offset, buf).await;
        let (Err(_), Some(writer)) = (result, &self.writer) else { return (result, buf) };
        // The block and its tag may have been read while they were written.
        match writer.read(core, offset, buf.len()).await {
            Ok(settled) => {
                buf.copy_from_slice(&settled);
                (Ok(()), buf)
            }
            Err(error) => (Err(error), buf),
        }
    }
}

impl Serve for CheckedDevice {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (this, core) = (self.clone(), core.clone());
        Box::pin(async move { this.read_any(&core, offset, buf).await })
    }

    /// Whatever is written is durable when that returns: its tag and it become valid together.
    fn write(&self, core: &Core, offset: u64, buf: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        let Some(writer) = self.writer.clone() else {
            return Box::pin(std::future::ready(Err(IoError::READ_ONLY)));
        };
        let core = core.clone();
        Box::pin(async move { writer.write(&core, offset, buf).await })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Zeros are data with tags like any other: a request that may free their place is not carried
    /// out.
    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        let Some(writer) = self.writer.clone().filter(|_| unmap == Unmap::No) else {
            return Box::pin(std::future::ready(Err(IoError::UNSUPPORTED)));
        };
        let core = core.clone();
        Box::pin(async move { writer.write_zeroes(&core, offset, len).await })
    }
}
