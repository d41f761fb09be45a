//! Rings of requests in a guest's memory, as virtio 1.2 lays them out (2.7 split, 2.8 packed), and
//! the log of what was taken from them (vhost-user: "Inflight I/O tracking").
//!
//! Whatever lies in a guest's memory may change at any moment and may be anything: it is copied
//! once, then checked, then used. A ring that breaks its rules is a [`RingFault`]: its queue stops.
//!
//! Invariants:
//! 1. A chain that was taken is completed at most once.
//! 2. With a log: from before a chain's request begins until after its completion is visible to the
//!    guest, the log says that it is in flight. After a restart of the server exactly the chains
//!    that the guest does not know to be complete are in flight, in the order they were taken.

mod log;
mod packed;
mod split;
#[cfg(test)]
mod tests;

use std::sync::atomic::{Ordering, fence};

pub use log::{LogPlace, log_bytes};

use self::packed::PackedRing;
use self::split::SplitRing;
use super::memory::{GuestMemory, OutsideMemory, RingPart};

/// Descriptors that a ring may have: what virtio allows.
pub const RING_SIZE_MAX: u32 = 32768;
/// Descriptors that a chain may have, or the ring's size where that is more: what QEMU allows.
const CHAIN_MAX: usize = 1024;

/// Flags of descriptors.
mod descriptor {
    pub const BYTES: usize = 16;
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}

/// Why a ring cannot be gone on with: the driver or the hypervisor breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// No power of two, where it has to be one, or too large.
    #[error("a ring of {0} descriptors")]
    Size(u32),
    /// A part of the ring is not aligned as it has to be.
    #[error("a ring at {0:#x}")]
    Alignment(u64),
    /// Something lies outside of the guest's memory.
    #[error(transparent)]
    Outside(#[from] OutsideMemory),
    /// More became available than there are descriptors.
    #[error("{0} chains became available at once")]
    Available(u16),
    /// A chain begins or goes on at a descriptor that does not exist.
    #[error("descriptor {0} does not exist")]
    Index(u16),
    /// A chain does not end.
    #[error("a chain of more than {0} descriptors")]
    Endless(usize),
    /// Something to read follows something to write.
    #[error("a chain whose readable part follows its writable one")]
    Order,
    /// An indirect table of no or of broken descriptors, or within another.
    #[error("an indirect table of {0} bytes")]
    Indirect(u32),
    /// A log of another ring.
    #[error("the log of requests in flight is that of another ring")]
    Log,
    /// The memory with the ring is gone.
    #[error("the memory with the ring was taken away")]
    Gone,
}

/// Bytes of a guest that a descriptor names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its address for the guest.
    pub at: u64,
    /// Its length in bytes.
    pub len: u32,
}

/// What one chain of descriptors names. One value is used again for chain after chain.
#[derive(Debug, Default)]
pub struct Chain {
    /// What it is completed by.
    pub token: ChainToken,
    /// All segments, the readable ones first.
    pub segments: Vec<Segment>,
    /// How many of them the device reads; it writes the others.
    pub readable: usize,
}

/// Names a chain that was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainToken {
    /// Split: the first descriptor. Packed: the buffer's identifier.
    id: u16,
    /// Packed: descriptors of the ring that it occupies.
    slots: u16,
    /// Packed: its first entry in the log.
    entry: u16,
}

impl Chain {
    fn begin(&mut self) {
        self.segments.clear();
        self.readable = 0;
    }

    fn push(&mut self, segment: Segment, flags: u16, size: u16) -> Result<(), RingFault> {
        let max = CHAIN_MAX.max(size.into());
        if self.segments.len() == max {
            return Err(RingFault::Endless(max));
        }
        if flags & descriptor::WRITE == 0 {
            if self.readable < self.segments.len() {
                return Err(RingFault::Order);
            }
            self.readable += 1;
        }
        self.segments.push(segment);
        Ok(())
    }
}

/// A descriptor as a driver wrote it; the last two fields differ in the two layouts.
#[derive(Debug, Clone, Copy)]
struct RawDescriptor {
    segment: Segment,
    /// Split: flags. Packed: the buffer's identifier.
    third: u16,
    /// Split: the next one. Packed: flags.
    fourth: u16,
}

impl RawDescriptor {
    fn decode(bytes: [u8; descriptor::BYTES]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, ..] = bytes;
        Self {
            segment: Segment {
                at: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
                len: u32::from_le_bytes([l0, l1, l2, l3]),
            },
            third: word(12),
            fourth: word(14),
        }
    }
}

/// Where a ring is and how far it got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingAddresses {
    /// Of the descriptors, as the hypervisor names it.
    pub descriptors: u64,
    /// Of what the driver writes: available chains, or when it wants to be called.
    pub driver: u64,
    /// Of what the device writes: used chains, or when it wants to be kicked.
    pub device: u64,
}

/// What a driver and this device agreed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// The packed layout.
    pub packed: bool,
    /// Each side says at which index it wants to be told.
    pub event_index: bool,
}

/// How a ring is made.
pub struct RingSetup<'a> {
    /// How many descriptors it has.
    pub size: u32,
    /// Where it is.
    pub addresses: RingAddresses,
    /// What was agreed on.
    pub features: RingFeatures,
    /// Where it goes on, as vhost-user encodes that: from [`GuestRing::base`], or 0.
    pub base: u32,
    /// The guest's memory.
    pub memory: &'a GuestMemory,
    /// The log of what is in flight.
    pub log: Option<LogPlace>,
}

/// One ring.
pub enum GuestRing {
    /// Descriptors, available and used chains lie apart.
    Split(SplitRing),
    /// One ring of descriptors.
    Packed(PackedRing),
}

impl GuestRing {
    /// Takes a ring up. The chains that the log says are in flight come back from [`Self::next`]
    /// first.
    ///
    /// # Errors
    /// It cannot be there, or the log is not its own.
    pub fn new(setup: &RingSetup<'_>) -> Result<Self, RingFault> {
        let packed = setup.features.packed;
        let power = setup.size.is_power_of_two() || packed;
        if setup.size == 0 || setup.size > RING_SIZE_MAX || !power {
            return Err(RingFault::Size(setup.size));
        }
        Ok(match packed {
            true => Self::Packed(PackedRing::new(setup)?),
            false => Self::Split(SplitRing::new(setup)?),
        })
    }

    /// Takes the next chain; false if there is none.
    ///
    /// # Errors
    /// The driver broke the rules; the ring is good for nothing then.
    pub fn next(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, RingFault> {
        chain.begin();
        match self {
            Self::Split(ring) => ring.next(memory, chain),
            Self::Packed(ring) => ring.next(memory, chain),
        }
    }

    /// Gives a chain back, of which so many bytes were written.
    pub fn complete(&mut self, token: ChainToken, written: u32) {
        match self {
            Self::Split(ring) => ring.complete(token, written),
            Self::Packed(ring) => ring.complete(token, written),
        }
    }

    /// Whether the driver wants to be told of what was completed since this was last asked.
    pub fn wants_call(&mut self) -> bool {
        // What was completed is visible before the driver's wish is read: else both could miss each
        // other.
        fence(Ordering::SeqCst);
        match self {
            Self::Split(ring) => ring.wants_call(),
            Self::Packed(ring) => ring.wants_call(),
        }
    }

    /// Asks the driver for a kick when something is available next. True if something is already:
    /// then no kick may come for it.
    pub fn ask_for_kick(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.ask_for_kick(),
            Self::Packed(ring) => ring.ask_for_kick(),
        }
    }

    /// Tells the driver that kicks are not needed: the ring is looked at anyway.
    pub fn want_no_kick(&mut self) {
        match self {
            Self::Split(ring) => ring.want_no_kick(),
            Self::Packed(ring) => ring.want_no_kick(),
        }
    }

    /// Where another server goes on, as vhost-user encodes it.
    pub fn base(&self) -> u32 {
        match self {
            Self::Split(ring) => ring.base(),
            Self::Packed(ring) => ring.base(),
        }
    }
}

/// Reads the descriptors of an indirect table and hands them on, in order.
fn each_of_table(
    memory: &GuestMemory,
    table: Segment,
    mut visit: impl FnMut(usize, RawDescriptor) -> Result<(), RingFault>,
) -> Result<(), RingFault> {
    let count = check_table(table)?;
    for ix in 0..count {
        visit(ix, table_entry(memory, table, ix)?)?;
    }
    Ok(())
}

/// How many descriptors an indirect table has.
fn check_table(table: Segment) -> Result<usize, RingFault> {
    let bytes = table.len as usize;
    let whole = bytes > 0 && bytes.is_multiple_of(descriptor::BYTES);
    if whole && bytes / descriptor::BYTES <= RING_SIZE_MAX as usize {
        Ok(bytes / descriptor::BYTES)
    } else {
        Err(RingFault::Indirect(table.len))
    }
}

fn table_entry(memory: &GuestMemory, table: Segment, ix: usize) -> Result<RawDescriptor, RingFault> {
    let mut bytes = [0; descriptor::BYTES];
    let at = table.at.checked_add((ix * descriptor::BYTES) as u64);
    let outside = OutsideMemory { at: table.at, len: table.len.into() };
    memory.read(at.ok_or(outside)?, &mut bytes)?;
    Ok(RawDescriptor::decode(bytes))
}

/// Finds a part of a ring and checks how it is aligned.
fn part(memory: &GuestMemory, address: u64, len: usize, align: u64) -> Result<RingPart, RingFault> {
    let area = memory.area(address, len as u64)?;
    if !address.is_multiple_of(align) || !area.at.is_multiple_of(align as usize) {
        return Err(RingFault::Alignment(address));
    }
    Ok(area)
}

/// Whether one of the indices from `old` up to before `new` is the one a side wants to be told at.
fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
