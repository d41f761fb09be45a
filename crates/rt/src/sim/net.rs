//! Connections in a world: receives, sends and accepts that wait until the other end has done its
//! part, and take a while then.
//!
//! A connection has a bounded buffer in each direction. So an end that does not receive makes the
//! other one's sends wait, as a client that does not read does with a socket.

use crate::base::error::IoError;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::op::{Completion, Op, OpKey};
use crate::sim::backend::EventKey;
use crate::stream::wire::{Door, News, WireEnd};
use crate::stream::{Listener, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long it takes from when a receive, a send or an accept can end until it does.
const HOP_NANOS: std::ops::Range<u64> = 5_000..60_000;

/// Where tasks of a world connect to a listener of it. Clones connect to the same.
#[derive(Clone)]
pub struct SimEndpoint {
    door: Arc<Door>,
    bytes_max: usize,
}

impl SimEndpoint {
    /// An endpoint and its listener. A connection holds at most `bytes_max` bytes in each direction
    /// that were sent and not received.
    pub(crate) fn new(bytes_max: usize, news: &News) -> (SimEndpoint, Listener) {
        let door = Arc::new(Door::new(news));
        let listener = Listener::simulated(door.clone());
        (SimEndpoint { door, bytes_max }, listener)
    }

    /// Connects: this is the client's end. Its operations count against no bound, as those of
    /// another process do not.
    ///
    /// # Errors
    /// The listener is closed.
    pub fn connect(&self) -> Result<Stream, IoError> {
        self.door.knock(self.bytes_max).map(|end| Stream::simulated(end, false))
    }
}

/// The operations of all cores that wait for the other end of a connection.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) news: News,
    /// With the time at which an operation is looked at, once it can end.
    waiting: BTreeMap<(usize, OpKey), (Op, Option<EventKey>)>,
    due: BTreeMap<EventKey, (usize, OpKey)>,
}

impl Network {
    /// Whether an operation waits for another task of the world.
    pub(crate) fn is_for(op: &Op) -> bool {
        match op {
            Op::Recv { stream, .. } | Op::Send { stream, .. } => stream.wire().is_some(),
            Op::Accept { listener, .. } => listener.door().is_some(),
            _ => false,
        }
    }

    pub(crate) fn submit(&mut self, core: usize, key: OpKey, op: Op) {
        self.waiting.insert((core, key), (op, None));
        self.news.store(true, Ordering::Relaxed);
    }

    /// Gives each operation that can end by now the time at which it does.
    pub(crate) fn plan(&mut self, now: Instant, serial: &mut u64, rng: &mut Rng) {
        if !self.news.swap(false, Ordering::Relaxed) {
            return;
        }
        for (id, (op, at)) in &mut self.waiting {
            if at.is_none() && may_end(op) {
                let hop = HOP_NANOS.start + rng.below(HOP_NANOS.end - HOP_NANOS.start);
                *serial += 1;
                let key = (now + Duration::from_nanos(hop), rng.next_u64(), *serial);
                *at = Some(key);
                self.due.insert(key, *id);
            }
        }
    }

    /// When an operation ends next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _, _), _)| *at)
    }

    /// Ends the next operation, unless another one has had what it waited for.
    pub(crate) fn end_next(&mut self) -> Option<(usize, Completion)> {
        let (_, id) = self.due.pop_first()?;
        let (op, at) = self.waiting.get_mut(&id)?;
        *at = None;
        if !may_end(op) {
            return None;
        }
        let (mut op, _) = self.waiting.remove(&id)?;
        let result = carry_out(&mut op);
        Some((id.0, Completion { key: id.1, result, op }))
    }

    /// Takes an operation back that has not ended.
    pub(crate) fn cancel(&mut self, core: usize, key: OpKey) -> Option<Op> {
        let (op, at) = self.waiting.remove(&(core, key))?;
        if let Some(at) = at {
            self.due.remove(&at);
        }
        Some(op)
    }

    /// The program has ended.
    pub(crate) fn clear(&mut self) {
        self.due.clear();
        // An end that goes with its operation touches nothing of this.
        self.waiting.clear();
    }

    /// What waits: by core and key.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (usize, OpKey, &Op)> {
        self.waiting.iter().map(|((core, key), (op, _))| (*core, *key, op))
    }
}

fn may_end(op: &Op) -> bool {
    match op {
        Op::Recv { stream, .. } => stream.wire().is_none_or(WireEnd::may_receive),
        Op::Send { stream, .. } => stream.wire().is_none_or(WireEnd::may_send),
        Op::Accept { listener, .. } => listener.door().is_none_or(Door::may_accept),
        _ => true,
    }
}

fn carry_out(op: &mut Op) -> Result<usize, IoError> {
    match op {
        Op::Recv { stream, buf } => {
            let end = stream.wire().ok_or(IoError::UNSUPPORTED)?;
            Ok(end.receive(buf))
        }
        Op::Send { stream, bufs, moved } => {
            let end = stream.wire().ok_or(IoError::UNSUPPORTED)?;
            end.send(bufs, *moved)
        }
        Op::Accept { listener, accepted } => {
            let end = listener.door().ok_or(IoError::UNSUPPORTED)?.accept()?;
            *accepted = Some(Stream::simulated(end, listener.is_of_clients()));
            Ok(0)
        }
        _ => Err(IoError::UNSUPPORTED),
    }
}
