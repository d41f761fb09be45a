//! The partial parity log of RAID 5: what closes the write hole.
//!
//! After a crash the parity of a stripe that was being written may be neither old nor new; if a
//! member is missing then, blocks that were not being written come out wrong. So before data or
//! parity of a row goes out, the log on that stripe's parity member durably says which data blocks
//! are about to change, and the XOR of the others. Parity is then the XOR of that and of what the
//! changing blocks hold, whatever that is (docs/formats.md §4).
//!
//! **Invariant.** After any crash, following the newest log of every member leaves parity right in
//! every row, and every sector that was not being written with its content; what was being written
//! on members that are still there is old or new. A data member that dies in the very crash takes
//! along the blocks (of 4 KiB) that were being written to it, and nothing else. This rests on:
//!
//! 1. *Log first.* The entries of a write are durable before any of its data or parity goes out
//!    ([`append`]).
//! 2. *Only the newest counts.* A member's next log is written when every write of its last one has
//!    ended on the members, and everything was flushed since ([`Ticket`], [`SlotLog`]). A log with
//!    a write that ended badly is never replaced: the array is broken then.
//! 3. *Entries that can be followed.* See [`cut`].
//! 4. *No gaps.* Every write of parity in a stripe has an entry, even where a crash could do no
//!    harm: it takes the place of older entries of that row, whose partial parity is no longer
//!    right. Where the parity member is being replaced, both members have it: either may be all
//!    that a crash leaves of the two. Only where it is recorded that no member holds parity is
//!    there none.
//! 5. *Nothing else is claimed.* A start that finds entries takes parity for right elsewhere. So
//!    there are none while parity is not known to be right; the first may be written when all
//!    parity is, every write that began before has ended and is flushed ([`usable`]), and every
//!    member's log says that it is so ([`mod@prepare`]).
//! 6. *Nothing from before.* The logs of all members are emptied before the array is recorded
//!    dirty, and that of a member before it joins: entries from before describe writes that are
//!    long done ([`mod@prepare`]).
//!
//! The log of a slot belongs to one core. Whatever comes while its last write is under way leaves
//! together as the next one; one that comes alone does not wait.

mod cut;
mod home;
mod prepare;
mod slot;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use wattle_rt::{CoreIx, Device};

use crate::model::error::VolumeError;
use crate::model::geometry::Geometry;
use crate::model::health::Health;
pub use crate::model::log::{LogArea, LogEntry, LogFormat, LogSpec, PAGE_BYTES};
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector, StripeNo};
use crate::state::StateShard;
pub(crate) use cut::{Span, WrittenRow, rounds, spans};
pub(crate) use prepare::{clear, prepare};
use slot::SlotLog;

/// Most partial parity of one log write, whatever the format has room for: bounds the buffers of
/// one vectored operation.
const PAYLOAD_MAX_BYTES: usize = 1 << 20;

/// One core's part of an array's log.
pub(crate) struct LogShard {
    spec: LogSpec,
    /// The logs, by slot; each is used on the core that owns it.
    slots: Vec<SlotLog>,
    /// Writes have entries.
    enabled: Cell<bool>,
    /// This core has asked for that.
    asked: Cell<bool>,
    /// On the home core: the members' logs were emptied.
    prepared: Cell<bool>,
}

/// Why there is no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogError {
    /// The parity member is gone, and that is recorded: there is no parity to write.
    NoParity,
    /// The array is broken or stopped.
    Ended(VolumeError),
}

/// An entry that is in use: the log that holds it is not replaced before this is given back.
#[must_use = "a log is not written again before all its tickets are back"]
pub(crate) struct Ticket {
    slot: MemberIx,
}

impl LogShard {
    /// # Panics
    /// If the array is one that cannot have a log: control checks it.
    pub fn new(spec: &LogSpec, geometry: &Geometry) -> Self {
        let stripe_bytes = geometry.stripe_data_sectors().0 * SECTOR_BYTES;
        assert!(
            geometry.redundancy() == 1 && stripe_bytes <= u64::from(u32::MAX),
            "an entry describes a stripe"
        );
        assert!(
            (geometry.chunk().0 * SECTOR_BYTES).is_multiple_of(u64::from(PAGE_BYTES)),
            "rows are whole pages"
        );
        Self {
            spec: spec.clone(),
            slots: (0..geometry.raid_disks()).map(|_| SlotLog::default()).collect(),
            enabled: Cell::new(false),
            asked: Cell::new(false),
            prepared: Cell::new(false),
        }
    }

    /// What one log write has room for.
    pub fn limits(&self) -> cut::Limits {
        let format = &self.spec.format;
        let payload_bytes = format.payload_max_bytes().min(PAYLOAD_MAX_BYTES) as u64;
        let page = u64::from(PAGE_BYTES);
        cut::Limits { entries: format.entries_max(), payload_bytes: payload_bytes / page * page }
    }

    /// Whether writes have entries.
    pub fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    /// Writes that come from now on have entries. Every write before has ended, and is flushed.
    pub fn enable(&self) {
        self.enabled.set(true);
    }

    /// All logs are about to be emptied again.
    pub fn begin_anew(&self) {
        self.prepared.set(false);
        self.slots.iter().for_each(SlotLog::begin_anew);
    }

    /// A member's log was emptied: it starts anew.
    pub fn forget(&self, device: &Device) {
        self.slots.iter().for_each(|slot| slot.forget(device));
    }
}

/// Whether a write of the stripe whose parity is in `slot` needs an entry, as `health` has it.
pub(crate) fn usable(shard: &Rc<StateShard>, health: &Health, slot: MemberIx) -> bool {
    let Some(log) = &shard.log else { return false };
    if !log.enabled.get() {
        let trusted = health.parity_trusted(&shard.fixed.geometry) && !health.broken;
        if trusted && !log.asked.replace(true) {
            // A task of its own: it waits for every write that is under way, this one too.
            let asker = shard.clone();
            shard.core.spawn(async move { asker.home(|home| async move { home.enable_log().await }).await });
        }
        return false;
    }
    health.writable_for(slot).next().is_some()
}

/// Lets a write go that is not [`usable`]'s to log, as `health` had it. While others are logged,
/// that is for want of a parity member; and a crash before that is recorded would bring the member
/// back, with parity that the logs vouch for and that was never written.
///
/// # Errors
/// The array is broken or stopped.
pub(crate) async fn unlogged(shard: &StateShard, health: &Health) -> Result<(), VolumeError> {
    match &shard.log {
        Some(log) if log.enabled.get() => shard.recorded(health.epoch).await,
        _ => Ok(()),
    }
}

/// Makes entries durable in the log of `slot`. They fit into one log write.
///
/// # Errors
/// [`LogError`]; nothing may be written on the strength of these entries then.
pub(crate) async fn append(
    shard: &Rc<StateShard>,
    slot: MemberIx,
    entries: Vec<LogEntry>,
) -> Result<Ticket, LogError> {
    let key = shard.fixed.state_key();
    let append = shard.core.call(owner(slot, shard.core.cores()), move |core| async move {
        match core.local::<StateShard>(key) {
            Some(shard) => slot::append(&shard, slot, entries).await,
            None => Err(LogError::Ended(VolumeError::Stopped)),
        }
    });
    append.await.map(|()| Ticket { slot })
}

impl Ticket {
    /// Gives the ticket back: the write has ended, and whether all is well with it: what could not
    /// be written is recorded as missing.
    pub fn release(self, shard: &Rc<StateShard>, well: bool) {
        let (slot, key) = (self.slot, shard.fixed.state_key());
        shard.core.spawn(shard.core.call(owner(slot, shard.core.cores()), move |core| async move {
            let shard = core.local::<StateShard>(key);
            if let Some(log) = shard.as_ref().and_then(|shard| shard.log.as_ref()) {
                log.slots[slot.index()].release(well);
            }
        }));
    }
}

/// The core that writes the log of a slot.
fn owner(slot: MemberIx, cores: usize) -> CoreIx {
    CoreIx(slot.index() % cores)
}

/// How many stripes [`announce`] takes at once; `None` if they need no entries.
pub(crate) fn stripes_max(shard: &Rc<StateShard>) -> Option<u64> {
    let log = shard.log.as_ref().filter(|log| log.enabled.get())?;
    Some(log.limits().entries as u64)
}

/// Entries for writes of whole stripes, at most [`stripes_max`]. `None` if a member is missing or
/// not whole: what it lacks is in parity, so its blocks and the others cannot be written at once
/// (see [`cut`]).
///
/// # Errors
/// The array is broken or stopped.
pub(crate) async fn announce(
    shard: &Rc<StateShard>,
    stripes: Range<u64>,
) -> Result<Option<Vec<Ticket>>, VolumeError> {
    let geometry = &shard.fixed.geometry;
    let stripe_bytes = (geometry.stripe_data_sectors().0 * SECTOR_BYTES) as u32;
    let mut by_slot: Vec<Vec<LogEntry>> = vec![Vec::new(); geometry.raid_disks()];
    for stripe in stripes.map(StripeNo) {
        let parity_slot = geometry.stripe(stripe).p();
        let first = geometry.array_sector_of(stripe, 0, Sector(0));
        by_slot[parity_slot.index()].push(LogEntry {
            first,
            data_bytes: stripe_bytes,
            parity_slot,
            partial: Vec::new(),
        });
    }
    let mut appends = Vec::new();
    if shard.members.health().lost().is_empty() {
        for (slot, entries) in (0..).zip(by_slot).filter(|(_, entries)| !entries.is_empty()) {
            let shard = shard.clone();
            appends
                .push(shard.core.clone().spawn(async move { append(&shard, MemberIx(slot), entries).await }));
        }
    }
    let (mut tickets, mut ended) = (Vec::new(), None);
    for append in appends {
        match append.await {
            Ok(ticket) => tickets.push(ticket),
            Err(LogError::NoParity) => {}
            Err(LogError::Ended(error)) => ended = Some(error),
        }
    }
    if ended.is_none() && shard.members.health().lost().is_empty() && !shard.members.health().broken {
        return Ok(Some(tickets));
    }
    tickets.into_iter().for_each(|ticket| ticket.release(shard, true));
    ended.map_or(Ok(None), Err)
}
