//! How many operations of a core are in flight at a time: a bound for those on drives, and one
//! apart for those that wait for clients. Operations beyond a bound wait in user space and leave in
//! order: those of a drive among themselves, and drives in turn.
//!
//! A drive that hangs keeps its room for as long as it likes. So a drive gets half of what the
//! others leave, and one operation where they leave nothing: however many of them hang, the next
//! goes on.

use crate::device::Device;
use crate::op::{Op, OpKey};
use crate::planted::{self, Bug};
use std::collections::{BTreeMap, VecDeque};

/// Receives and sends of clients that one core has in flight at a time; further ones wait for room.
/// An NBD connection has at most one of each, so this is 14 endpoints of 256 connections, all on
/// one core and all stalled. Drives do not compete with them: they have a limit of their own.
pub(crate) const PEERS_MAX: usize = 14 * 256 * 2;

/// Whose room an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The room of the operations on drives, which end by themselves, and which drive it is.
    Drive(usize),
    /// The room of the receives and sends of clients, which last as long as a client likes.
    Client,
    /// Room that is not counted: accepts, polls, and what moves to and from anything but a client.
    Reserved,
}

impl Room {
    pub fn of(op: &Op) -> Room {
        match op {
            Op::Recv { stream, .. } | Op::Send { stream, .. } if stream.is_of_client() => {
                if planted::is(Bug::PeersInDrivesRoom) { Room::Drive(0) } else { Room::Client }
            }
            Op::Recv { .. } | Op::Send { .. } | Op::Accept { .. } | Op::Poll { .. } => Room::Reserved,
            Op::Read(_) | Op::Write(..) | Op::Flush { .. } | Op::WriteZeroes { .. } => {
                Room::Drive(op.device().map_or(0, Device::number))
            }
        }
    }
}

/// The bounds of one core, and what waits for room.
pub(crate) struct Lanes {
    drives: DriveLanes,
    clients: Lane,
}

/// Operations that share a limit.
struct Lane {
    flying: usize,
    flying_max: usize,
    backlog: VecDeque<(OpKey, Op)>,
}

impl Lane {
    fn has_room(&self) -> bool {
        self.flying < self.flying_max
    }

    fn pop(&mut self) -> Option<(OpKey, Op)> {
        let next = if self.has_room() { self.backlog.pop_front() } else { None };
        self.flying += usize::from(next.is_some());
        next
    }
}

/// The least room that a drive has where others leave it any.
const DRIVE_MIN: usize = 8;

/// Operations on drives, by [`Device::number`].
struct DriveLanes {
    flying: usize,
    flying_max: usize,
    /// Of drives that are descriptors: their numbers are small.
    flying_of: Vec<usize>,
    flying_of_others: BTreeMap<usize, usize>,
    backlogs: BTreeMap<usize, VecDeque<(OpKey, Op)>>,
    /// The drives that have a backlog, in turn.
    turns: VecDeque<usize>,
}

/// Numbers from here on are no descriptors'.
const DESCRIPTORS: usize = 1 << 16;

impl DriveLanes {
    fn flying_of(&mut self, drive: usize) -> &mut usize {
        if drive >= DESCRIPTORS {
            return self.flying_of_others.entry(drive).or_default();
        }
        if drive >= self.flying_of.len() {
            self.flying_of.resize(drive + 1, 0);
        }
        &mut self.flying_of[drive]
    }

    fn has_room(&mut self, drive: usize) -> bool {
        let own = *self.flying_of(drive);
        let others = self.flying - own;
        let shared = planted::is(Bug::OneDriveTakesAll) || planted::is(Bug::PeersInDrivesRoom);
        let left = self.flying_max.saturating_sub(others);
        let max = if shared { self.flying_max } else { (left / 2).max(DRIVE_MIN) };
        own < max && (self.flying < self.flying_max || own == 0 && !shared)
    }

    fn enter(&mut self, drive: usize) {
        self.flying += 1;
        *self.flying_of(drive) += 1;
    }

    fn leave(&mut self, drive: usize) {
        self.flying -= 1;
        let own = self.flying_of(drive);
        *own -= 1;
        if *own == 0 {
            self.flying_of_others.remove(&drive);
        }
    }

    fn admit(&mut self, drive: usize, key: OpKey, op: Op) -> Option<(OpKey, Op)> {
        if !self.backlogs.contains_key(&drive) && self.has_room(drive) {
            self.enter(drive);
            return Some((key, op));
        }
        let backlog = self.backlogs.entry(drive).or_default();
        if backlog.is_empty() {
            self.turns.push_back(drive);
        }
        backlog.push_back((key, op));
        None
    }

    fn pop(&mut self) -> Option<(OpKey, Op)> {
        for _ in 0..self.turns.len() {
            let drive = self.turns.pop_front()?;
            if !self.has_room(drive) {
                self.turns.push_back(drive);
                continue;
            }
            let backlog = self.backlogs.get_mut(&drive)?;
            let next = backlog.pop_front();
            if backlog.is_empty() {
                self.backlogs.remove(&drive);
            } else {
                self.turns.push_back(drive);
            }
            self.enter(drive);
            return next;
        }
        None
    }

    fn withdraw(&mut self, key: OpKey) -> Option<Op> {
        let found = self.backlogs.iter_mut().find_map(|(drive, backlog)| {
            let index = backlog.iter().position(|(queued, _)| *queued == key)?;
            backlog.remove(index).map(|(_, op)| (*drive, op))
        });
        let (drive, op) = found?;
        if self.backlogs.get(&drive).is_some_and(VecDeque::is_empty) {
            self.backlogs.remove(&drive);
            self.turns.retain(|turn| *turn != drive);
        }
        Some(op)
    }
}

impl Lanes {
    /// Lanes for at most `drives_max` operations on drives at a time.
    pub fn new(drives_max: usize) -> Lanes {
        let drives = DriveLanes {
            flying: 0,
            flying_max: drives_max,
            flying_of: Vec::new(),
            flying_of_others: BTreeMap::new(),
            backlogs: BTreeMap::new(),
            turns: VecDeque::new(),
        };
        Lanes { drives, clients: Lane { flying: 0, flying_max: PEERS_MAX, backlog: VecDeque::new() } }
    }

    /// The operation again if it is to be launched now, and then counts as in flight; otherwise it
    /// waits here.
    pub fn admit(&mut self, key: OpKey, op: Op) -> Option<(OpKey, Op)> {
        match Room::of(&op) {
            Room::Drive(drive) => return self.drives.admit(drive, key, op),
            Room::Client if !self.clients.has_room() || !self.clients.backlog.is_empty() => {
                self.clients.backlog.push_back((key, op));
                return None;
            }
            Room::Client => self.clients.flying += 1,
            Room::Reserved => {}
        }
        Some((key, op))
    }

    /// The next operation that waited and has room now; it counts as in flight.
    pub fn next(&mut self) -> Option<(OpKey, Op)> {
        self.drives.pop().or_else(|| self.clients.pop())
    }

    /// An operation is not in flight any more.
    pub fn leave(&mut self, room: Room) {
        match room {
            Room::Drive(drive) => self.drives.leave(drive),
            Room::Client => self.clients.flying -= 1,
            Room::Reserved => {}
        }
    }

    /// Takes out an operation that still waits for room.
    pub fn withdraw(&mut self, key: OpKey) -> Option<Op> {
        let clients = &mut self.clients.backlog;
        let of_client = clients.iter().position(|(queued, _)| *queued == key);
        let of_client = of_client.and_then(|index| clients.remove(index)).map(|(_, op)| op);
        of_client.or_else(|| self.drives.withdraw(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::buf::BufMut;
    use crate::op::{Bufs, Transfer};

    fn read(drive: &Device) -> Op {
        let bufs = Bufs::One(BufMut::alloc(512));
        Op::Read(Transfer { device: Some(drive.clone()), offset: 0, bufs, moved: 0 })
    }

    fn begun(lanes: &mut Lanes, drive: &Device, keys: std::ops::Range<u32>) -> usize {
        keys.filter(|key| lanes.admit(OpKey(*key), read(drive)).is_some()).count()
    }

    #[test]
    fn drives_that_hang_leave_room_for_the_next() {
        let mut lanes = Lanes::new(1024);
        let drives = [(); 4].map(|()| Device::null(1 << 20));
        let begun = drives.each_ref().map(|drive| begun(&mut lanes, drive, 0..2000));
        assert_eq!(begun, [512, 256, 128, 64]);
        // One of them answers: what waits for it goes on, and not for the others.
        let room = Room::of(&read(&drives[3]));
        for _ in 0..1936 {
            lanes.leave(room);
            assert!(lanes.next().is_some_and(|(_, op)| op.device().unwrap().same(&drives[3])));
        }
        assert!(lanes.next().is_none());
    }

    #[test]
    fn a_drive_has_room_for_one_operation_however_many_others_hang() {
        let mut lanes = Lanes::new(1024);
        let drives = [(); 12].map(|()| Device::null(1 << 20));
        let begun = drives.each_ref().map(|drive| begun(&mut lanes, drive, 0..2000));
        assert_eq!(begun, [512, 256, 128, 64, 32, 16, 8, 8, 1, 1, 1, 1]);
        let room = Room::of(&read(&drives[11]));
        for _ in 0..1999 {
            lanes.leave(room);
            assert!(lanes.next().is_some_and(|(_, op)| op.device().unwrap().same(&drives[11])));
        }
    }

    #[test]
    fn what_waits_for_room_is_withdrawn() {
        let mut lanes = Lanes::new(8);
        let drive = Device::null(1 << 20);
        assert_eq!(begun(&mut lanes, &drive, 0..10), 8);
        assert!(lanes.withdraw(OpKey(9)).is_some() && lanes.withdraw(OpKey(9)).is_none());
        assert!(lanes.withdraw(OpKey(8)).is_some());
        lanes.leave(Room::of(&read(&drive)));
        assert!(lanes.next().is_none());
        assert_eq!(begun(&mut lanes, &drive, 10..12), 1);
    }
}
