//! One core's queue of a device: requests as they come, each a task on this core.
//!
//! The ring is turned at most once per turn of the executor, while requests come or answers leave,
//! and waited for only when there is nothing else.
//!
//! Invariant: a request that was taken is answered exactly once, for only that gives its slot back.
//!
//! Which program opens the device is not seen here. So each request waits for what is under way, of
//! the same bytes, for clients of other fronts that have gone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use wattle_engine::volume::{Remains, RequestExtent};
use wattle_engine::{Volume, VolumeError};
use wattle_rt::sync::{Latch, Notify};
use wattle_rt::ublk::UblkQueue;
use wattle_rt::{BufMut, Core, Either, race};

use super::protocol::{DiskCommand, DiskRequest, decide};
use crate::OUT_OF_DESCRIPTORS_PAUSE;

/// What a core serves of a device.
pub(super) struct DeviceShard {
    core: Core,
    volume: Volume,
    remains: Arc<Remains>,
    queue: RefCell<UblkQueue>,
    request_bytes_max: u32,
    /// Requests whose volume is at work.
    requests: Cell<usize>,
    answered: Notify,
    /// To finish what was begun, and take nothing new.
    pub(super) stopping: Latch,
}

impl DeviceShard {
    pub(super) fn new(
        core: &Core,
        (volume, remains): (Volume, Arc<Remains>),
        queue: UblkQueue,
        request_bytes_max: u32,
    ) -> Self {
        Self {
            core: core.clone(),
            volume,
            remains,
            queue: RefCell::new(queue),
            request_bytes_max,
            requests: Cell::new(0),
            answered: Notify::new(),
            stopping: Latch::new(),
        }
    }

    /// Serves until the device is stopped or the shard is told to stop, and then until everything
    /// is answered.
    pub(super) async fn serve(self: Rc<Self>) {
        race(self.turn(), self.stopping.wait()).await;
        while self.requests.get() > 0 {
            self.answered.wait().await;
        }
        // Answers leave with a turn; what comes with it is asked of the next server again.
        let _ = self.queue.borrow_mut().turn(&mut Vec::new());
    }

    /// Turns the ring until the device is stopped.
    async fn turn(self: &Rc<Self>) {
        let (mut came, mut readable) = (Vec::new(), None);
        loop {
            if self.queue.borrow_mut().turn(&mut came).is_err() {
                return;
            }
            if !came.is_empty() {
                came.drain(..).for_each(|tag| self.start(tag));
                self.core.yield_now().await;
                continue;
            }
            // An answer that comes while we wait must leave; the wait for the ring goes on then.
            let waiting = readable.get_or_insert_with(|| self.core.readable(&*self.queue.borrow()));
            match race(waiting, self.answered.wait()).await {
                Either::First(Ok(())) => readable = None,
                // It takes a descriptor, of which there may be none just now. That the device is
                // stopped, a turn says.
                Either::First(Err(_)) => {
                    readable = None;
                    self.core.sleep(OUT_OF_DESCRIPTORS_PAUSE).await;
                }
                Either::Second(()) => {}
            }
        }
    }

    /// Begins a request, or refuses it.
    fn start(self: &Rc<Self>, tag: usize) {
        let request = self.queue.borrow().request(tag);
        let Some(request) = decide(request, self.request_bytes_max) else {
            return self.queue.borrow_mut().answer(tag, -libc::EOPNOTSUPP, None);
        };
        self.requests.set(self.requests.get() + 1);
        let shard = self.clone();
        self.core.spawn(async move {
            let (result, buffer) = shard.execute(tag, request).await;
            let done = i32::try_from(request.length_bytes).unwrap_or(0);
            let result = result.map_or_else(|error| -errno(error), |()| done);
            shard.queue.borrow_mut().answer(tag, result, buffer);
            shard.requests.set(shard.requests.get() - 1);
            shard.answered.notify_all();
        });
    }

    /// Does what is asked for. The buffer is the slot's, if it was needed.
    async fn execute(&self, tag: usize, request: DiskRequest) -> (Result<(), VolumeError>, Option<BufMut>) {
        let DiskRequest { command, offset_bytes, length_bytes } = request;
        let volume = &self.volume;
        let extent = match command {
            DiskCommand::Read => RequestExtent::read(offset_bytes, length_bytes),
            DiskCommand::Flush => RequestExtent::NONE,
            DiskCommand::Write(_) | DiskCommand::Discard | DiskCommand::Zero(..) => {
                RequestExtent::change(offset_bytes, length_bytes)
            }
        };
        if let Some(before) = self.remains.before(&extent) {
            before.answered(&self.core).await;
        }
        let done = match command {
            DiskCommand::Read => {
                let (mut data, rest) = self.split_buffer(tag, length_bytes);
                let result;
                (result, data) = volume.read(offset_bytes, data).await;
                data.append(rest);
                return (result, Some(data));
            }
            DiskCommand::Write(durability) => {
                let (data, rest) = self.split_buffer(tag, length_bytes);
                let result = volume.write(offset_bytes, data.freeze(), durability).await;
                // The engine may keep what was written: the slot gets another buffer.
                drop(rest);
                return (result, None);
            }
            DiskCommand::Flush => volume.flush().await,
            DiskCommand::Discard => volume.discard(offset_bytes, length_bytes).await,
            DiskCommand::Zero(unmap, durability) => {
                volume.write_zeroes(offset_bytes, length_bytes, unmap, durability).await
            }
        };
        (done, None)
    }

    /// The slot's buffer: what the request fills of it, and the rest.
    fn split_buffer(&self, tag: usize, length_bytes: u64) -> (BufMut, BufMut) {
        let mut data = self.queue.borrow_mut().take_buffer(tag);
        let rest = data.split_off(length_bytes as usize);
        (data, rest)
    }
}

/// What a program is told about a failure.
fn errno(error: VolumeError) -> i32 {
    match error {
        VolumeError::NoSpace => libc::ENOSPC,
        // Data that cannot be read, a write that failed, a broken array, and whatever else comes to
        // be: the block layer knows few more.
        _ => libc::EIO,
    }
}
