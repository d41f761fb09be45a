//! Clients that go while requests of theirs are under way.
//!
//! Invariant: what a client that has gone asked for and the volume was not given yet, it is not
//! given any more: what limits hold back, and the rest of a long range of zeroes. What the volume
//! was given runs to its end, and others wait for that ([`Remains`]).
//!
//! [`Remains`]: wattle_engine::volume::Remains

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::volume::qos::QosCost;
use wattle_engine::volume::{Remains, VolumeTurn};
use wattle_engine::{Volume, VolumeError};
use wattle_rt::{Core, Durability, Either, JoinHandle, Latch, Stream, Unmap, race};

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
    pub(crate) async fn take(&self, account: &Rc<Account>, bytes: u64) -> Hold {
        let mut taking = std::pin::pin!(account.take(&self.core, bytes));
        match race(taking.as_mut(), self.hangs_up()).await {
            Either::First(hold) => hold,
            Either::Second(()) => {
                self.end();
                taking.await
            }
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
pub(crate) struct UnderWay(Cell<usize>);

impl UnderWay {
    /// One more, until it is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> Begun {
        self.0.update(|count| count + 1);
        Begun(self.clone())
    }

    /// The connection ends: clients that come wait until all of these are answered. Nothing to wait
    /// for: `None`.
    pub(crate) fn leave(self: &Rc<Self>, core: &Core, remains: &Arc<Remains>) -> Option<JoinHandle<()>> {
        if self.0.get() == 0 {
            return None;
        }
        let (remain, task, under_way) = (remains.hold(), core.clone(), self.clone());
        Some(core.spawn(async move {
            while under_way.0.get() > 0 {
                task.sleep(LOOK).await;
            }
            drop(remain);
        }))
    }
}

/// A request that is under way.
pub(crate) struct Begun(Rc<UnderWay>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.0.update(|count| count - 1);
    }
}
