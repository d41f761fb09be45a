//! An array on one core: what its level needs to carry requests out.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use wattle_rt::{Core, Semaphore};

use crate::hints::HintShard;
use crate::lease::LeaseShard;
use crate::lease::words::LeaseWords;
use crate::member::Members;
use crate::model::fixed::Fixed;
use crate::state::{Follow, StateShard};

/// One core's part of an array: a part of each layer below, and what the levels add.
pub(crate) struct ArrayShard {
    pub core: Core,
    pub fixed: Arc<Fixed>,
    /// The members as this core sees them.
    pub members: Rc<Members>,
    /// The array's state as this core sees it.
    pub state: Rc<StateShard>,
    /// What is known of the streams that come in on this core.
    pub hints: Rc<HintShard>,
    /// Which task may change which stripe or range.
    pub leases: Rc<LeaseShard>,
    /// Bytes that stripes may still take for old blocks and new parity.
    pub stripe_buffers: Semaphore,
    /// Threads that look for holes of members. One that hangs keeps its own.
    pub hole_looks: Cell<usize>,
}

impl ArrayShard {
    /// The part of an array on a core, which it has from now on.
    pub fn start(state: &Rc<StateShard>, hints: Rc<HintShard>, words: Arc<LeaseWords>) {
        let (core, fixed) = (&state.core, &state.fixed);
        let shard = Rc::new(Self {
            core: core.clone(),
            members: state.members.clone(),
            state: state.clone(),
            leases: LeaseShard::new(state, hints.clone(), words),
            hints,
            stripe_buffers: Semaphore::new(fixed.limits.stripe_buffer_bytes),
            hole_looks: Cell::new(0),
            fixed: fixed.clone(),
        });
        let follower: Rc<dyn Follow> = shard.clone();
        state.add_follower(Rc::downgrade(&follower));
        core.put_local(fixed.key, shard);
    }
}

impl Follow for ArrayShard {
    fn leave(&self, core: &Core, fixed: &Fixed) {
        self.leases.stripes.end();
        drop(core.take_local::<Self>(fixed.key));
    }
}
