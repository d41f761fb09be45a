//! Writes to data with tags, by way of the journal: no cut of power leaves a block without its tag.
//!
//! A batch of writes goes into sections of the journal, all of them are made durable, and then its
//! blocks and tags go to their places. What was acknowledged is durable, and in both.
//!
//! Invariants:
//! - One batch is under way at a time, and a read that met one is done again between batches.
//! - A batch takes at most half of the ring: its sections stay until the flush of the next one has
//!   made durable what it put into its places.
//! - After an error of the volume below nothing is written any more: what is in the journal is
//!   brought to its places when the device is opened again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use wattle_format::integrity::SectionPlace;
use wattle_rt::sync::OneshotSender;
use wattle_rt::{Buf, BufMut, Core, CoreHandle, IoError, oneshot};

use super::blocks::{CheckedBlocks, PIECE_BYTES, SealedBlock, all};

const SECTOR: u64 = 512;
/// The most that goes into the journal at once, bytes of data.
const BATCH_BYTES: u64 = 1 << 20;

/// What writes to a device, from any core.
pub(super) struct Writer {
    home: CoreHandle,
    /// Of the [`WriteQueue`], on its core.
    key: u64,
    block_bytes: u64,
    /// What a batch has room for, bytes; whole blocks.
    batch_bytes: u64,
}

impl Writer {
    /// Writes from `place` on. What the journal held is in its places.
    pub fn start(core: &Core, blocks: CheckedBlocks, place: SectionPlace) -> Self {
        static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 59);
        let (layout, unit) = (&blocks.tags.layout, u64::from(blocks.tags.block_bytes));
        let sections = u64::from((layout.sections / 2).max(1));
        let blocks_max = (sections * u64::from(layout.section_entries)).min(BATCH_BYTES / unit);
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        core.put_local(
            key,
            Rc::new(WriteQueue {
                blocks,
                blocks_max,
                place: Cell::new(place),
                waiting: RefCell::default(),
                is_working: Cell::new(false),
                ended: Cell::new(None),
            }),
        );
        Self { home: core.handle(), key, block_bytes: unit, batch_bytes: blocks_max * unit }
    }

    /// Writes any sectors; durable when it returns.
    ///
    /// # Errors
    /// Any of the volume below, and [`IoError::MEDIUM`] where a block would be kept in part that
    /// cannot be read. What was written is old or new then, block by block.
    pub async fn write(&self, core: &Core, offset: u64, buf: Buf) -> Result<(), IoError> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let len = (self.batch_bytes - at % self.block_bytes).min((buf.len() - done) as u64) as usize;
            let part = buf.slice(done..done + len);
            self.ask(core, move |reply| Request::Write(WriteRequest { offset: at, buf: part, reply }))
                .await?;
            done += len;
        }
        Ok(())
    }

    /// Writes zeros, as [`Self::write`] does.
    pub async fn write_zeroes(&self, core: &Core, offset: u64, len: u64) -> Result<(), IoError> {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(BATCH_BYTES);
            self.write(core, offset + done, Buf::zeros(part as usize)).await?;
            done += part;
        }
        Ok(())
    }

    /// Reads while no batch is under way.
    ///
    /// # Errors
    /// As a read of the device.
    pub async fn read(&self, core: &Core, offset: u64, len: usize) -> Result<BufMut, IoError> {
        self.ask(core, move |reply| Request::Read { offset, len, reply }).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        core: &Core,
        request: impl FnOnce(OneshotSender<Result<T, IoError>>) -> Request + Send + 'static,
    ) -> Result<T, IoError> {
        let key = self.key;
        let asked = self.home.call(core, move |core| async move {
            let queue = core.local::<WriteQueue>(key).ok_or(IoError::GONE)?;
            let (reply, answer) = oneshot();
            queue.waiting.borrow_mut().push_back(request(reply));
            if !queue.is_working.replace(true) {
                let on = core.clone();
                drop(core.spawn(async move { queue.work(&on).await }));
            }
            answer.await.unwrap_or(Err(IoError::GONE))
        });
        asked.await.unwrap_or(Err(IoError::GONE))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer(batches of {} bytes)", self.batch_bytes)
    }
}

enum Request {
    Write(WriteRequest),
    Read { offset: u64, len: usize, reply: OneshotSender<Result<BufMut, IoError>> },
}

struct WriteRequest {
    offset: u64,
    buf: Buf,
    reply: OneshotSender<Result<(), IoError>>,
}

/// What is asked of a device, on the core that writes it.
struct WriteQueue {
    blocks: CheckedBlocks,
    /// What a batch has room for.
    blocks_max: u64,
    /// Where the next section goes.
    place: Cell<SectionPlace>,
    waiting: RefCell<VecDeque<Request>>,
    is_working: Cell<bool>,
    /// Why nothing is written any more.
    ended: Cell<Option<IoError>>,
}

impl WriteQueue {
    /// Does what is asked, until nothing is.
    async fn work(&self, core: &Core) {
        while let Some(first) = self.next() {
            match first {
                Request::Read { offset, len, reply } => {
                    let (result, buf) = self.blocks.read_any(core, offset, BufMut::alloc(len)).await;
                    _ = reply.send(result.map(|()| buf));
                }
                Request::Write(first) => {
                    let mut batch = Batch::default();
                    self.take(core, &mut batch, first).await;
                    while let Some(next) = self.next_write(batch.blocks.len() as u64) {
                        self.take(core, &mut batch, next).await;
                    }
                    let result = match self.ended.get() {
                        Some(error) => Err(error),
                        None => self.commit(core, batch.blocks).await,
                    };
                    self.ended.set(result.err());
                    for reply in batch.replies {
                        _ = reply.send(result);
                    }
                }
            }
        }
        self.is_working.set(false);
    }

    fn next(&self) -> Option<Request> {
        self.waiting.borrow_mut().pop_front()
    }

    /// The next request, if that is a write for which a batch of so many blocks has room.
    fn next_write(&self, taken: u64) -> Option<WriteRequest> {
        let mut waiting = self.waiting.borrow_mut();
        let Request::Write(next) = waiting.front()? else { return None };
        let (offset, unit) = (next.offset, u64::from(self.blocks.tags.block_bytes));
        let count = (offset + next.buf.len() as u64).div_ceil(unit) - offset / unit;
        if taken + count > self.blocks_max {
            return None;
        }
        let Some(Request::Write(next)) = waiting.pop_front() else { return None };
        Some(next)
    }

    /// Takes a write into a batch, or says why not.
    async fn take(&self, core: &Core, batch: &mut Batch, write: WriteRequest) {
        match self.complete(core, &batch.blocks, write.offset, &write.buf).await {
            Ok(blocks) => {
                batch.blocks.extend(blocks);
                batch.replies.push(write.reply);
            }
            Err(error) => _ = write.reply.send(Err(error)),
        }
    }

    /// The whole blocks that a write makes, a copy: their tags are made of what is written,
    /// whatever becomes of the client's bytes.
    async fn complete(
        &self,
        core: &Core,
        earlier: &BTreeMap<u64, Vec<u8>>,
        offset: u64,
        buf: &[u8],
    ) -> Result<Vec<(u64, Vec<u8>)>, IoError> {
        let unit = u64::from(self.blocks.tags.block_bytes);
        let (mut blocks, mut done) = (Vec::new(), 0);
        while done < buf.len() {
            let at = offset + done as u64;
            let (start, from) = (at / unit * unit, (at % unit) as usize);
            let len = (unit as usize - from).min(buf.len() - done);
            let mut data = match earlier.get(&(start / SECTOR)) {
                _ if len == unit as usize => vec![0; len],
                Some(data) => data.clone(),
                None => {
                    let (result, data) =
                        self.blocks.read_any(core, start, BufMut::alloc(unit as usize)).await;
                    result?;
                    data.to_vec()
                }
            };
            data[from..from + len].copy_from_slice(&buf[done..done + len]);
            blocks.push((start / SECTOR, data));
            done += len;
        }
        Ok(blocks)
    }

    /// Makes a batch durable in the journal, and brings it to its places.
    async fn commit(&self, core: &Core, blocks: BTreeMap<u64, Vec<u8>>) -> Result<(), IoError> {
        let maker = self.blocks.tags.maker().ok_or(IoError::READ_ONLY)?;
        let (mut sealed, mut summed) = (BTreeMap::new(), 0);
        for (sector, data) in blocks {
            if summed >= PIECE_BYTES {
                core.yield_now().await;
                summed = 0;
            }
            summed += data.len();
            let tag = maker.tag_of(sector, &data);
            sealed.insert(sector, SealedBlock { data, tag });
        }
        self.log(core, &sealed).await?;
        self.blocks.flush(core).await?;
        self.blocks.put(core, &sealed).await?;
        if self.blocks.tags.layout.sections == 1 {
            // The next batch takes the place of this one in the journal.
            self.blocks.flush(core).await?;
        }
        Ok(())
    }

    /// Writes blocks into the next sections of the journal.
    async fn log(&self, core: &Core, blocks: &BTreeMap<u64, SealedBlock>) -> Result<(), IoError> {
        let layout = &self.blocks.tags.layout;
        let entries: Vec<_> =
            blocks.iter().map(|(&sector, block)| (sector, &block.tag[..], &block.data[..])).collect();
        let mut under_way = Vec::new();
        for entries in entries.chunks(layout.section_entries as usize) {
            let place = self.place.get();
            let mut bytes = BufMut::alloc(layout.section_bytes() as usize);
            place.fill(layout, entries, &mut bytes);
            self.place.set(place.next(layout.sections));
            let at = layout.section_at_bytes(place.section);
            under_way.push(self.blocks.write_below(core, at, bytes.freeze()));
        }
        all(under_way).await
    }
}

/// Writes that are made durable together.
#[derive(Default)]
struct Batch {
    /// By their first sectors; the last write of each counts.
    blocks: BTreeMap<u64, Vec<u8>>,
    replies: Vec<OneshotSender<Result<(), IoError>>>,
}
