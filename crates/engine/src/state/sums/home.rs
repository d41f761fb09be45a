//! The home's side of notes and sums ([`crate::state::sums`]).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use wattle_rt::sync::OneshotSender;
use wattle_rt::{Semaphore, oneshot};

use super::{BlockSums, KnownSums, NoteShard, SumSpec, SumStore};
use crate::model::error::VolumeError;
use crate::model::regions::Regions;
use crate::model::units::{MemberSet, Sector};
use crate::planted::{self, Bug};
use crate::state::metadata::RecordCause;
use crate::state::{Home, StateShard, answer};

/// A core that waits for notes: the regions, and where the epoch goes.
type Asking = (Vec<u64>, OneshotSender<Result<u64, VolumeError>>);

/// The home's part.
pub(crate) struct SumHome {
    pub store: Rc<dyn SumStore>,
    spec: SumSpec,
    /// How often regions were opened.
    epoch: Cell<u64>,
    /// Regions that are open in the set that is being taken.
    opened: RefCell<Regions>,
    /// One opening at a time.
    opening: Semaphore,
    waiting: RefCell<Vec<Asking>>,
    serving: Cell<bool>,
}

impl SumHome {
    pub fn new(spec: &SumSpec, store: Rc<dyn SumStore>) -> Self {
        Self {
            store,
            spec: spec.clone(),
            epoch: Cell::new(0),
            opened: RefCell::new(spec.regions.clone()),
            opening: Semaphore::new(1),
            waiting: RefCell::default(),
            serving: Cell::new(false),
        }
    }

    /// The blocks that a range of sectors has whole, the last one of the array being shorter.
    pub fn blocks_of(&self, range: &Range<Sector>) -> Range<u64> {
        let block = self.spec.block.0;
        range.start.0 / block..range.end.0.div_ceil(block)
    }
}

impl Home {
    /// Whether there are sums that say something; `None` if there is no place for any.
    pub fn has_sums(&self) -> Option<bool> {
        self.sums.as_ref().map(|sums| sums.store.has_sums())
    }

    /// Notes regions; returns when that is durable, with the epoch in which it is. Requests that
    /// come while notes are being written share the next write.
    pub async fn note(self: &Rc<Self>, regions: Vec<u64>) -> Result<u64, VolumeError> {
        let Some(sums) = &self.sums else { return Ok(0) };
        let (sender, receiver) = oneshot();
        sums.waiting.borrow_mut().push((regions, sender));
        if !sums.serving.replace(true) {
            self.core.spawn(self.clone().serve_notes());
        }
        receiver.await.unwrap_or(Err(VolumeError::Stopped))
    }

    async fn serve_notes(self: Rc<Self>) {
        let Some(sums) = &self.sums else { return };
        loop {
            let waiting = std::mem::take(&mut *sums.waiting.borrow_mut());
            sums.serving.set(!waiting.is_empty());
            if waiting.is_empty() {
                return;
            }
            // Before the notes are made: what is opened while they are being written is not in
            // them.
            let epoch = sums.epoch.get();
            let mut regions: Vec<u64> = waiting.iter().flat_map(|(regions, _)| regions).copied().collect();
            regions.sort_unstable();
            regions.dedup();
            let noted = match sums.store.note(&regions).await {
                Ok(()) => Ok(epoch),
                Err(_) => self.give_sums_up().await.map(|()| epoch),
            };
            waiting.into_iter().for_each(|(_, sender)| answer(sender, noted));
        }
    }

    /// The store cannot say any more which of its sums say something: from the next record of the
    /// array's state on its signature is not the array's.
    async fn give_sums_up(self: &Rc<Self>) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        if self.fixed.read_only || self.health().broken {
            return Ok(());
        }
        self.commit(RecordCause::Members, self.is_dirty()).await
    }

    /// Members in these slots are about to be filled.
    pub async fn void_sums(self: &Rc<Self>, slots: MemberSet) {
        let Some(sums) = &self.sums else { return };
        if sums.store.void(slots).await.is_err() {
            // Broken or stopped: the job finds out.
            let _ = self.give_sums_up().await;
        }
    }

    /// What is known of the blocks of a range, and the number of the first; `None` if no sum is to
    /// be compared with, nor taken if it is not to be recorded. The step that asks holds its
    /// stripes or ranges.
    pub async fn known_sums(&self, range: &Range<Sector>, record: bool) -> Option<(u64, KnownSums)> {
        let sums = self.sums.as_ref().filter(|sums| record || sums.store.has_sums())?;
        let blocks = sums.blocks_of(range);
        Some((blocks.start, sums.store.known(blocks).await))
    }

    /// Takes sums anew, from the first block on.
    pub async fn begin_sums(&self) {
        let Some(sums) = &self.sums else { return };
        let _turn = sums.opening.acquire(1).await;
        *sums.opened.borrow_mut() = sums.spec.regions.clone();
        sums.store.begin().await;
    }

    /// Whether the sums that are being taken go on with this sector.
    pub fn takes_sums_at(&self, at: Sector) -> bool {
        self.sums.as_ref().is_some_and(|sums| {
            at.0.is_multiple_of(sums.spec.block.0) && sums.store.is_next(at.0 / sums.spec.block.0)
        })
    }

    /// Before a step takes sums in a range: whatever is written there from now on is noted for
    /// them.
    pub async fn open_sums(&self, range: &Range<Sector>) {
        let Some(sums) = &self.sums else { return };
        let _turn = sums.opening.acquire(1).await;
        let regions = sums.spec.regions.indexes_of(range.clone());
        if regions.clone().all(|region| sums.opened.borrow().contains(region)) {
            return;
        }
        regions.clone().for_each(|region| sums.opened.borrow_mut().insert(region));
        sums.store.open(regions.clone());
        let epoch = sums.epoch.get() + 1;
        sums.epoch.set(epoch);
        if planted::is(Bug::SumsOpenUntold) {
            return;
        }
        self.on_every_core(move |shard| {
            let regions = regions.clone();
            async move { shard.open_notes(regions, epoch) }
        })
        .await;
    }

    /// The sums of the next range.
    pub async fn take_sums(&self, first: u64, taken: Vec<BlockSums>) {
        let Some(sums) = &self.sums else { return };
        sums.store.take(first..first + taken.len() as u64, taken).await;
    }

    /// The sums that were taken count from now on. Says whether they do.
    pub async fn finish_sums(self: &Rc<Self>) -> bool {
        let Some(sums) = &self.sums else { return false };
        let finished = sums.store.finish().await;
        if finished.is_err() {
            // Broken or stopped: nothing is written any more.
            let _ = self.give_sums_up().await;
        }
        finished.unwrap_or(false)
    }

    /// The sums that are being taken will not come to their end.
    pub async fn abandon_sums(&self) {
        if let Some(sums) = &self.sums {
            sums.store.abandon().await;
        }
    }
}

impl StateShard {
    fn open_notes(&self, regions: Range<u64>, epoch: u64) {
        if let Some(notes) = &self.notes {
            NoteShard::open(notes, regions, epoch);
        }
    }
}
