//! How many operations of a core are in flight at a time: a bound for those on drives, and one
//! apart for those that wait for clients. Operations beyond a bound wait in user space and leave in
//! order.

use crate::op::{Op, OpKey};
use crate::planted::{self, Bug};
use std::collections::VecDeque;

/// Receives and sends of clients that one core has in flight at a time; further ones wait for room.
/// An NBD connection has at most one of each, so this is 14 endpoints of 256 connections, all on
/// one core and all stalled. Drives do not compete with them: they have a limit of their own.
pub(crate) const PEERS_MAX: usize = 14 * 256 * 2;

/// Whose room an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The room of the operations on drives, which end by themselves.
    Drive,
    /// The room of the receives and sends of clients, which last as long as a client likes.
    Client,
    /// Room that is not counted: accepts, polls, and what moves to and from anything but a client.
    Reserved,
}

impl Room {
    pub fn of(op: &Op) -> Room {
        match op {
            Op::Recv { stream, .. } | Op::Send { stream, .. } if stream.is_of_client() => {
                if planted::is(Bug::PeersInDrivesRoom) { Room::Drive } else { Room::Client }
            }
            Op::Recv { .. } | Op::Send { .. } | Op::Accept { .. } | Op::Poll { .. } => Room::Reserved,
            Op::Read(_) | Op::Write(..) | Op::Flush { .. } | Op::WriteZeroes { .. } => Room::Drive,
        }
    }
}

/// The bounds of one core, and what waits for room.
pub(crate) struct Lanes {
    drives: Lane,
    clients: Lane,
}

/// Operations that share a limit.
struct Lane {
    flying: usize,
    flying_max: usize,
    backlog: VecDeque<(OpKey, Op)>,
}

impl Lane {
    fn new(flying_max: usize) -> Lane {
        Lane { flying: 0, flying_max, backlog: VecDeque::new() }
    }

    fn has_room(&self) -> bool {
        self.flying < self.flying_max
    }

    fn pop(&mut self) -> Option<(OpKey, Op)> {
        let next = if self.has_room() { self.backlog.pop_front() } else { None };
        self.flying += usize::from(next.is_some());
        next
    }
}

impl Lanes {
    /// Lanes for at most `drives_max` operations on drives at a time.
    pub fn new(drives_max: usize) -> Lanes {
        Lanes { drives: Lane::new(drives_max), clients: Lane::new(PEERS_MAX) }
    }

    fn lane(&mut self, room: Room) -> Option<&mut Lane> {
        match room {
            Room::Drive => Some(&mut self.drives),
            Room::Client => Some(&mut self.clients),
            Room::Reserved => None,
        }
    }

    /// The operation again if it is to be launched now, and then counts as in flight; otherwise it
    /// waits here.
    pub fn admit(&mut self, key: OpKey, op: Op) -> Option<(OpKey, Op)> {
        match self.lane(Room::of(&op)) {
            Some(lane) if !lane.has_room() || !lane.backlog.is_empty() => {
                lane.backlog.push_back((key, op));
                return None;
            }
            Some(lane) => lane.flying += 1,
            None => {}
        }
        Some((key, op))
    }

    /// The next operation that waited and has room now; it counts as in flight.
    pub fn next(&mut self) -> Option<(OpKey, Op)> {
        self.drives.pop().or_else(|| self.clients.pop())
    }

    /// An operation is not in flight any more.
    pub fn leave(&mut self, room: Room) {
        if let Some(lane) = self.lane(room) {
            lane.flying -= 1;
        }
    }

    /// Takes out an operation that still waits for room.
    pub fn withdraw(&mut self, key: OpKey) -> Option<Op> {
        [&mut self.clients, &mut self.drives].into_iter().find_map(|lane| {
            let index = lane.backlog.iter().position(|(queued, _)| *queued == key)?;
            lane.backlog.remove(index).map(|(_, op)| op)
        })
    }
}
