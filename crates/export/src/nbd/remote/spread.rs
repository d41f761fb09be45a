//! Paths beside the one in use: reads that take turns, and the way back to one that is preferred.
//!
//! - Paths are in order of preference. A path that was passed over and is there again is gone back
//!   to once it has answered for a while, the longer the more often it failed. Going back is a
//!   change of connections like any other, without its failure.
//! - Where paths take turns, reads go by all of them, each over a connection of its own. Writes and
//!   flushes stay on one path: a flush covers what came over its own connection. So a read that
//!   fails on the way leaves nothing in doubt, and is asked for again by the path in use.
//!
//! Invariant: a connection reads for clients only since it has shown the drive's own bytes.

use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{BufMut, Core, PathState};

use super::path::Path;
use super::pending::Pending;
use super::{Link, State, pieces, within};
use crate::nbd::client::{Client, ClientError};

/// A path that is preferred is gone back to after this time, however often it failed.
const BACK_AFTER_MAX: Duration = Duration::from_secs(60);

impl Link {
    /// Whether reads take turns over the paths.
    pub(super) fn set_turns(&self, on: bool) {
        self.turns.set(on);
        if !on {
            self.paths.iter().for_each(Path::end_reader);
        }
    }

    /// Reads by the next path in turn, if that is another one than the one in use; `None` if it is
    /// not, or does not answer as it should.
    pub(super) async fn read_in_turn(&self, at: u64, len: u32) -> Option<BufMut> {
        let in_use = self.connection.get().path;
        let is_up = matches!(&*self.state.borrow(), State::Up(_));
        if !self.turns.get() || !is_up {
            return None;
        }
        let turn = (self.turn.get() + 1) % self.paths.len();
        self.turn.set(turn);
        let path = self.paths.get(turn).filter(|_| turn != in_use)?;
        let reader = path.reader.borrow().clone()?;
        let pending = Pending::begin(&self.pending, self.core.now(), len.into());
        let may_take = self.patience.path + pending.allowance;
        match within(&self.core, may_take, pieces::read(&reader, at, len)).await {
            Some(Ok(bytes)) => return Some(bytes),
            // The path in use may say the same, and then it counts.
            Some(Err(ClientError::Failed(_))) => {}
            None | Some(Err(_)) => {
                // Others may have noticed before.
                let current = path.reader.borrow().as_ref().is_some_and(|now| Rc::ptr_eq(now, &reader));
                if current {
                    path.end_reader();
                    path.fail();
                }
            }
        }
        None
    }

    /// What is to be done about a path that is not in use, whether or not it was found there.
    pub(super) async fn tend(self: &Rc<Self>, path: usize) {
        let (in_use, place) = (self.connection.get().path, &self.paths[path]);
        let ended = |reader: &Rc<Client>| reader.has_ended();
        if place.reader.borrow().as_ref().is_some_and(ended) {
            place.end_reader();
            place.fail();
        }
        if path == in_use || place.state.get() != PathState::Ready {
            return;
        }
        // While the connection is made again it may need the only place that a server has, and a
        // drive that has ended must leave it to the one that takes its place.
        let is_due = || {
            let is_up = matches!(&*self.state.borrow(), State::Up(_));
            is_up && self.turns.get() && self.connection.get().path != path
        };
        if is_due() && place.reader.borrow().is_none() {
            let made = self.connect_by(path, self.patience.path).await.ok().map(Rc::new);
            if is_due() {
                *place.reader.borrow_mut() = made;
            }
        }
        let now = self.core.now();
        let failures = u32::try_from(place.failures.get()).unwrap_or(u32::MAX).max(1);
        let needed = self.patience.back.saturating_mul(failures).min(BACK_AFTER_MAX);
        let is_there = place.ready_since.get().is_some_and(|since| now - since >= needed);
        if path < self.connection.get().path && is_there {
            self.go_to(path);
        }
    }

    /// Goes on by another path, while the one in use is there.
    fn go_to(self: &Rc<Self>, path: usize) {
        let client = match &*self.state.borrow() {
            State::Up(client) => client.clone(),
            _ => return,
        };
        self.leave(&client, Some(path));
    }
}

/// For how long a path has been there.
pub(super) fn note_state(core: &Core, path: &Path, there: bool) {
    let before = path.state.replace(if there { PathState::Ready } else { PathState::Failed });
    if there && before != PathState::Ready {
        path.ready_since.set(Some(core.now()));
    }
}
