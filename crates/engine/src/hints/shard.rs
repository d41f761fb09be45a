//! What one core knows of the streams that come in on it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_rt::{Core, Semaphore};

use super::cache::{CacheTuning, CleanCache, KeptClasses};
use super::readahead::{Changes, ReadAhead, ReadaheadTuning};
use super::streams::Streams;
use crate::member::Members;
use crate::model::fixed::Fixed;
use crate::model::geometry::LevelKind;
use crate::model::units::SECTOR_BYTES;
use crate::state::metadata::LocalBoxFuture;
use crate::state::{Follow, StateShard};

/// One core's knowledge of the requests of an array.
pub(crate) struct HintShard {
    pub core: Core,
    pub fixed: Arc<Fixed>,
    pub members: Rc<Members>,
    pub state: Rc<StateShard>,
    /// Writes of clients that came in on this core and are under way.
    pub writes: Cell<usize>,
    /// Where streams of small writes stand that come in on this core.
    pub streams: Streams,
    /// What the members hold of the stripes that this core owns.
    pub cache: CleanCache,
    /// What is read ahead of the streams that come in on this core.
    pub ahead: ReadAhead,
    /// What clients change while any core reads ahead.
    pub changes: Arc<Changes>,
    /// At home: one at a time makes every core note changes, or stop that.
    pub noting: Semaphore,
    /// At home: every core notes changes.
    pub noted: Cell<bool>,
}

impl HintShard {
    /// The part of an array on a core, which it has from now on.
    pub fn start(
        state: &Rc<StateShard>,
        cache: &CacheTuning,
        ahead: ReadaheadTuning,
        kept: Arc<dyn KeptClasses>,
        changes: Arc<Changes>,
    ) -> Rc<Self> {
        let (core, fixed) = (&state.core, &state.fixed);
        let geometry = &fixed.geometry;
        // Only levels with parity read before they write.
        let bytes_max = if geometry.kind() == LevelKind::Parity { cache.bytes_max } else { 0 };
        let tuning = CacheTuning { bytes_max, ..*cache };
        let chunk_bytes = geometry.chunk().0 * SECTOR_BYTES;
        let shard = Rc::new(Self {
            core: core.clone(),
            members: state.members.clone(),
            state: state.clone(),
            writes: Cell::new(0),
            streams: Streams::default(),
            cache: CleanCache::new(tuning, kept, core.index(), geometry.raid_disks(), chunk_bytes),
            ahead: ReadAhead::new(ahead, geometry),
            changes,
            noting: Semaphore::new(1),
            noted: Cell::new(false),
            fixed: fixed.clone(),
        });
        core.put_local(fixed.hints_key(), shard.clone());
        let follower: Rc<dyn Follow> = shard.clone();
        state.add_follower(Rc::downgrade(&follower));
        shard
    }
}

impl Follow for HintShard {
    fn members_changed(&self) {
        self.cache.clear();
        self.ahead.forget();
    }

    fn begin_exclusive(&self) {
        self.cache.clear();
        self.ahead.suspend();
    }

    fn end_exclusive(&self) {
        self.cache.clear();
        self.ahead.resume();
    }

    fn halt(self: Rc<Self>, given_up: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move { self.ahead.end(&self.core, given_up).await })
    }

    fn leave(&self, core: &Core, fixed: &Fixed) {
        // What still refers to the array must not keep its memory.
        self.cache.clear();
        drop(core.take_local::<Self>(fixed.hints_key()));
    }
}
