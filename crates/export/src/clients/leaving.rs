//! Clients that go while requests of theirs are under way.
//!
//! Invariant: what a client that has gone asked for and the volume was not given yet, it is not
//! given any more: what limits hold back, and the rest of a long range of zeroes. What the volume
//! was given runs to its end, and others wait for that ([`Remains`]).
//!
//! [`Remains`]: wattle_engine::volume::Remains

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::volume::qos::QosCost;
use wattle_engine::volume::{LeftBefore, RemainingRequest, Remains, RequestExtent, VolumeTurn};
use wattle_engine::{Volume, VolumeError};
use wattle_rt::{Core, Durability, Either, JoinHandle, Latch, Stream, Unmap, race};

use super::input::Ended;
use super::memory::{Account, Hold};

/// How often what was left behind is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Whether the client of a connection is there.
pub(crate) struct Presence {
    core: Core,
    stream: Stream,
    gone: Latch,
    /// It sends nothing more; what it sent may be unread.
    hung_up: Rc<Latch>,
    is_watched: Cell<bool>,
}

impl Presence {
    /// Of the client behind `stream`, which is there.
    pub(crate) fn new(core: &Core, stream: Stream) -> Self {
        Self {
            core: core.clone(),
            stream,
            gone: Latch::new(),
            hung_up: Rc::default(),
            is_watched: Cell::new(false),
        }
    }

    /// The client has gone, or nothing more is done for it.
    pub(crate) fn end(&self) {
        self.gone.set();
    }

    /// Waits for something; an error if the client goes before, or has gone.
    pub(crate) async fn unless_gone<T>(&self, what: impl Future<Output = T>) -> Result<T, VolumeError> {
        self.here()?;
        match race(what, self.gone.wait()).await {
            Either::First(done) => Ok(done),
            Either::Second(()) => Err(VolumeError::Stopped),
        }
    }

    fn here(&self) -> Result<(), VolumeError> {
        if self.gone.is_set() { Err(VolumeError::Stopped) } else { Ok(()) }
    }

    /// Takes the memory for a request, as [`Account::take`] does. While its reader waits, nothing
    /// else would notice that the client goes.
    ///
    /// # Errors
    /// The client goes before: what was left behind is to be known as such at once, and what it
    /// sent besides is not looked at any more.
    pub(crate) async fn take(&self, account: &Rc<Account>, bytes: u64) -> Result<Hold, Ended> {
        match race(account.take(&self.core, bytes), self.hangs_up()).await {
            Either::First(hold) => Ok(hold),
            Either::Second(()) => {
                self.end();
                Err(Ended::Closed)
            }
        }
    }

    /// Waits for what clients that had gone left behind before a request; an error if its own
    /// client goes first.
    pub(crate) async fn settled(&self, before: Option<LeftBefore>) -> Result<(), VolumeError> {
        match before {
            None => Ok(()),
            Some(before) => self.unless_gone(before.answered(&self.core)).await,
        }
    }

    async fn hangs_up(&self) {
        if !self.is_watched.replace(true) {
            let (core, stream, hung_up) = (self.core.clone(), self.stream.clone(), self.hung_up.clone());
            // Ends with the stream at the latest.
            self.core.spawn(async move {
                if core.hung_up(&stream).await.is_ok() {
                    hung_up.set();
                }
            });
        }
        self.hung_up.wait().await;
    }

    /// Waits until a request may go; an error if its client goes before.
    pub(crate) async fn turn<'a>(
        &self,
        volume: &'a Volume,
        cost: QosCost,
    ) -> Result<VolumeTurn<'a>, VolumeError> {
        self.unless_gone(volume.turn(cost)).await
    }

    /// Writes zeros as long as the client is there. `admit` is asked before each piece of the
    /// range, and its answer kept until that is written.
    pub(crate) async fn write_zeroes<T, E: From<VolumeError>>(
        &self,
        volume: &Volume,
        range: Range<u64>,
        (unmap, durability): (Unmap, Durability),
        admit: impl Fn() -> Result<T, E>,
    ) -> Result<(), E> {
        let cost = QosCost::zeroes(range.end - range.start);
        let may = async |cost| self.admit(volume, cost, &admit).await;
        let write =
            async |turn: &VolumeTurn<'_>, at, len| turn.write_zeroes(at, len, unmap, durability).await;
        volume.in_pieces(&self.core, range, cost, may, write).await
    }

    /// Discards as long as the client is there; `admit` as for [`Self::write_zeroes`].
    pub(crate) async fn discard<T, E: From<VolumeError>>(
        &self,
        volume: &Volume,
        range: Range<u64>,
        admit: impl Fn() -> Result<T, E>,
    ) -> Result<(), E> {
        let may = async |cost| self.admit(volume, cost, &admit).await;
        let discard = async |turn: &VolumeTurn<'_>, at, len| turn.discard(at, len).await;
        volume.in_pieces(&self.core, range, QosCost::discard(), may, discard).await
    }

    /// Waits until a piece may go, and asks then whether it is still admitted.
    async fn admit<'a, T, E: From<VolumeError>>(
        &self,
        volume: &'a Volume,
        cost: QosCost,
        admit: impl Fn() -> Result<T, E>,
    ) -> Result<(VolumeTurn<'a>, T), E> {
        let turn = self.turn(volume, cost).await?;
        self.here()?;
        Ok((turn, admit()?))
    }
}

/// The requests of one connection that one volume was given, or is about to be.
#[derive(Default)]
pub(crate) struct UnderWay(RefCell<UnderWayRequests>);

#[derive(Default)]
struct UnderWayRequests {
    slots: Vec<Option<BegunRequest>>,
    free: Vec<usize>,
}

struct BegunRequest {
    extent: RequestExtent,
    /// Once the connection has ended.
    left: Option<RemainingRequest>,
}

impl UnderWay {
    /// One more, until it is dropped.
    pub(crate) fn begin(self: &Rc<Self>, extent: RequestExtent) -> Begun {
        let mut requests = self.0.borrow_mut();
        let request = Some(BegunRequest { extent, left: None });
        let slot = match requests.free.pop() {
            Some(slot) => {
                requests.slots[slot] = request;
                slot
            }
            None => {
                requests.slots.push(request);
                requests.slots.len() - 1
            }
        };
        Begun { of: self.clone(), slot }
    }

    fn is_empty(&self) -> bool {
        let requests = self.0.borrow();
        requests.free.len() == requests.slots.len()
    }

    /// The connection ends: what comes waits for those of these requests that it must not overtake.
    /// Nothing to wait for: `None`. The task ends when all are answered.
    pub(crate) fn leave(self: &Rc<Self>, core: &Core, remains: &Arc<Remains>) -> Option<JoinHandle<()>> {
        if self.is_empty() {
            return None;
        }
        let client = remains.hold_known();
        for request in self.0.borrow_mut().slots.iter_mut().flatten() {
            request.left = Some(remains.leave(request.extent.clone()));
        }
        let (task, under_way) = (core.clone(), self.clone());
        Some(core.spawn(async move {
            while !under_way.is_empty() {
                task.sleep(LOOK).await;
            }
            drop(client);
        }))
    }
}

/// A request that is under way.
pub(crate) struct Begun {
    of: Rc<UnderWay>,
    slot: usize,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut requests = self.of.0.borrow_mut();
        requests.slots[self.slot] = None;
        requests.free.push(self.slot);
    }
}
