//! One core's leases of an array, and the writes that came in on it.

use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use wattle_rt::Core;

use super::queue::{Away, StripeTable};
use super::ranges::RangeLocks;
use super::words::{LeaseWords, OwnLeases};
use crate::hints::HintShard;
use crate::hints::readahead::Change;
use crate::model::error::VolumeError;
use crate::model::fixed::Fixed;
use crate::model::invariant::invariant;
use crate::state::{GatePermit, StateShard};

/// One core's part of the leases of an array.
pub(crate) struct LeaseShard {
    pub core: Core,
    pub fixed: Arc<Fixed>,
    pub state: Rc<StateShard>,
    pub hints: Rc<HintShard>,
    /// Which core may work on which stripes; one copy for all cores.
    pub words: Arc<LeaseWords>,
    /// What this core owns and has leased to others.
    pub own: Rc<OwnLeases>,
    /// Mirrored ranges being written on this core.
    pub ranges: RangeLocks,
    /// Stripes with work on this core.
    pub stripes: StripeTable,
    /// Parts of clients' writes that other cores carry out.
    pub away: Away,
}

/// A client's write that came in on this core; being answered is its drop.
pub(crate) struct UnderWay {
    /// Writes wait in the shard: they must not keep it.
    shard: Weak<LeaseShard>,
    _permit: GatePermit,
    change: Option<Box<Change>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(shard) = self.shard.upgrade() else { return };
        let hints = &shard.hints;
        hints.writes.update(|writes| writes - 1);
        shard.stripes.answered(hints.writes.get());
        hints.ahead.notes.ended(self.change.is_some());
    }
}

impl LeaseShard {
    pub fn new(state: &Rc<StateShard>, hints: Rc<HintShard>, words: Arc<LeaseWords>) -> Rc<Self> {
        let own = Rc::new(OwnLeases::new(words.clone(), state.core.index()));
        Rc::new(Self {
            core: state.core.clone(),
            fixed: state.fixed.clone(),
            state: state.clone(),
            hints,
            words,
            ranges: RangeLocks::new(own.clone()),
            own,
            stripes: StripeTable::default(),
            away: Away::default(),
        })
    }

    /// Lets a client's write of a range of bytes in.
    pub async fn begin_write(self: &Rc<Self>, bytes: Range<u64>) -> Result<UnderWay, VolumeError> {
        let permit = self.state.enter_write().await?;
        Ok(self.under_way(permit, bytes))
    }

    /// Like [`Self::begin_write`], if nothing has to be waited for. It is not async: nothing can
    /// happen meanwhile.
    pub fn try_begin_write(self: &Rc<Self>, bytes: Range<u64>) -> Option<UnderWay> {
        self.state.try_enter_write().map(|permit| self.under_way(permit, bytes))
    }

    fn under_way(self: &Rc<Self>, permit: GatePermit, bytes: Range<u64>) -> UnderWay {
        invariant!(1, !self.state.gate.holds_writes_back());
        let hints = &self.hints;
        hints.writes.update(|writes| writes + 1);
        let change = hints.ahead.notes.note(&hints.changes, bytes);
        UnderWay { shard: Rc::downgrade(self), _permit: permit, change }
    }
}
