//! Whether another server writes the superblocks, too. A member of this machine is locked; one
//! across a network cannot be, and two servers on the same members destroy parity in silence.
//!
//! Before a round is written, the superblocks of members across a network are read. Every change of
//! superblocks has an event count and a time, its stamp. A stamp that is none of those that were
//! found at the start or that this process has begun to write is another server's: the array writes
//! nothing any more.
//!
//! It must not be found where there is no other server:
//!
//! - What was begun and failed, half of a round, or a server that lost what it had not flushed
//!   leaves a stamp of this process, whichever.
//! - Of a device that came in since the start nothing is known until a superblock was written on it
//!   whole.
//! - What cannot be read, or is no superblock of this array, says nothing of another server.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};

use wattle_engine::MemberKey;
use wattle_engine::metadata::ArrayRecord;
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::{self, SUPERBLOCK_BYTES, Superblock, Timestamp};
use wattle_rt::BufMut;

use super::MdMetadata;
use crate::events::{ArrayEvent, EventMember};
use crate::md::waits::Reading;
use crate::problem::{Code, Problem};

/// So many stamps of before are known: a server may show what it had some rounds ago.
const STAMPS_MAX: usize = 256;

/// The event count and the time of a superblock.
type Stamp = (u64, Timestamp);

/// What this process has written of superblocks, on any member.
#[derive(Debug, Default)]
pub(super) struct OwnStamps {
    found: Vec<Stamp>,
    begun: RefCell<VecDeque<Stamp>>,
    /// Devices that show one of the stamps.
    known: RefCell<BTreeSet<MemberKey>>,
    overtaken: Cell<bool>,
}

fn stamp(superblock: &Superblock) -> Stamp {
    (superblock.events(), superblock.utime())
}

impl OwnStamps {
    /// These were found.
    pub(super) fn of<'a>(superblocks: impl Iterator<Item = (MemberKey, &'a Superblock)>) -> Self {
        let (known, found) = superblocks.map(|(key, superblock)| (key, stamp(superblock))).unzip();
        Self { found, known: RefCell::new(known), ..Self::default() }
    }

    fn has(&self, stamp: &Stamp) -> bool {
        self.found.contains(stamp) || self.begun.borrow().contains(stamp)
    }

    /// A superblock is going to be written.
    pub(super) fn begin(&self, superblock: &Superblock) {
        let stamp = stamp(superblock);
        let mut begun = self.begun.borrow_mut();
        if begun.back() != Some(&stamp) {
            begun.push_back(stamp);
        }
        if begun.len() > STAMPS_MAX {
            begun.pop_front();
        }
    }

    /// A superblock was written on a member, whole.
    pub(super) fn done(&self, key: MemberKey) {
        self.known.borrow_mut().insert(key);
    }

    /// A device left, or is another one.
    pub(super) fn forget(&self, key: MemberKey) {
        self.known.borrow_mut().remove(&key);
    }
}

/// A look at the superblock of a member, and what it is to be.
type Look = (MemberKey, Superblock, Reading);

impl MdMetadata {
    /// Begins to read the superblocks of the members of a record that lie across a network.
    pub(super) fn look_elsewhere(&self, record: &ArrayRecord) -> Vec<Look> {
        let state = self.state.borrow();
        let members = record.seats.iter().filter(|who| who.state.writable()).filter_map(|who| who.key);
        let known = members.filter(|key| self.stamps.known.borrow().contains(key));
        let looks = known.filter_map(|key| {
            let device = self.device(key).filter(|device| device.link().is_some())?;
            let superblock = state.superblock(key)?.clone();
            let at = superblock.found_at_sectors() * SECTOR_BYTES;
            let read = self.core.read(&device, at, BufMut::alloc(SUPERBLOCK_BYTES));
            Some((key, superblock, self.waits.watch_read(key, read)))
        });
        looks.collect()
    }

    /// Whether another server has the array, by what was read. From then on nothing is written.
    pub(super) async fn is_overtaken(&self, looks: Vec<Look>) -> bool {
        for (key, was, look) in looks {
            if let (Ok(()), bytes) = look.await {
                self.judge_elsewhere(key, &was, &bytes);
            }
        }
        self.stamps.overtaken.get()
    }

    fn judge_elsewhere(&self, key: MemberKey, was: &Superblock, bytes: &[u8]) {
        let Some(device) = self.device(key) else { return };
        let seen = md::identify(was.version(), bytes, device.size_bytes() / SECTOR_BYTES);
        let Ok(Some(seen)) = seen else { return };
        if seen.set_uuid() != was.set_uuid() || self.stamps.has(&stamp(&seen)) {
            return;
        }
        if self.stamps.overtaken.replace(true) {
            return;
        }
        let name = device.name().to_owned();
        let problem = Problem::new(
            Code::Overtaken,
            format!("another server writes to {name}"),
            "its superblock is not the one that this server wrote last; nothing is written any more",
            "stop this server, and all but one of those that have the array; check the array then",
        );
        let member = EventMember { key: Some(key), name };
        let at = self.core.wall_clock();
        self.events.add(at, ArrayEvent::Overtaken { member, problem: Box::new(problem) });
    }
}
