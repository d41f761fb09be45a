//! What a seed means: an array, its hardware, its clients and its misfortunes.

mod away;
mod draw;

use std::time::Duration;

use wattle_engine::geometry::{Geometry, LevelKind, Params};
use wattle_engine::job::Pace;
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArraySpec, Job, ReadaheadTuning, Regions};
use wattle_rt::DriveConfig;

use crate::metadata::MetadataModel;

pub(crate) use draw::range;

/// How a lifetime of the array ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Stopped in good order.
    Stop,
    /// The power goes when this many drive operations were submitted, or, if there are fewer, when
    /// all is quiet.
    CutAfterOps(u64),
    /// The power goes after this time.
    CutAfter(Duration),
    /// The program ends after this time, the machine does not.
    Kill(Duration),
}

/// Bounds and times of an array.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    stripes_active_max: usize,
    clean_delay: Duration,
    read_errors_max: u32,
    read_deadline: Duration,
    slow_jobs: bool,
    part_bytes: u64,
}

impl Bounds {
    /// Sets them.
    pub fn apply(self, spec: &mut ArraySpec) {
        // Lives are short here, and requests small.
        spec.tuning.cache.page_bytes = 512;
        spec.tuning.cache.at_once = true;
        spec.tuning.ahead = ReadaheadTuning {
            bytes_max: 64 << 10,
            part_bytes: self.part_bytes,
            after: 1,
            idle: Duration::from_millis(3),
        };
        spec.tuning.stripe_buffer_bytes = self.stripes_active_max * 4096;
        spec.tuning.sync.stripes_max = self.stripes_active_max / 2;
        spec.tuning.clean_delay = self.clean_delay;
        spec.tuning.read_errors_max = self.read_errors_max;
        spec.tuning.read_deadline = self.read_deadline;
        if self.slow_jobs {
            let sync = &mut spec.tuning.sync;
            sync.pace = Pace { min_bytes_per_second: 0, max_bytes_per_second: 2 << 20 };
            sync.checkpoint_every = Duration::from_millis(5);
            (sync.step_bytes, sync.step_beside_clients_bytes, sync.window_bytes) =
                (8 << 10, 4 << 10, 32 << 10);
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A drive vanishes.
    Gone(MemberIx),
    /// A drive vanishes after serving this many operations from the lifetime's start.
    GoneAfterOps(MemberIx, u64),
    /// Nothing comes from a drive or gets to it for so long, and then it is there again.
    Away(MemberIx, Duration),
    /// The next writes fail.
    FailWrites(MemberIx, u64),
    /// The next flush fails.
    FailFlush(MemberIx),
    /// The next reads fail.
    FailReads(MemberIx, u64),
    /// The operator fails a member.
    Operator(MemberIx),
    /// Sectors (of the drive's own size, within the data area) become unreadable until they are
    /// rewritten.
    Latent(Vec<(MemberIx, u64)>),
    /// Nothing completes for a while.
    Stall(MemberIx, Duration),
    /// Everything takes this many times as long.
    Slow(MemberIx, u32),
    /// The drive that a slot had at first is back and is given its slot again, if that is empty.
    Return(MemberIx),
    /// A drive is added to a slot, if that is empty.
    Spare(MemberIx, MemberIx),
    /// A drive is to replace the member in a slot.
    Replace(MemberIx, MemberIx),
    /// The failed member in a seat is removed.
    Remove(MemberIx),
    /// The operator asks for a check or a repair.
    Ask(Job),
    /// The operator puts on a write-intent bitmap with regions of so many sectors, or takes it off.
    Turn(Option<u64>),
}

impl InjectedFault {
    /// Whether anything is lost by it.
    #[must_use]
    pub fn loses_something(&self) -> bool {
        !matches!(
            self,
            InjectedFault::Stall(..)
                | InjectedFault::Slow(..)
                | InjectedFault::Spare(..)
                | InjectedFault::Replace(..)
                | InjectedFault::Remove(_)
                | InjectedFault::Ask(_)
                | InjectedFault::Turn(_)
        )
    }
}

/// One lifetime of the array: from its assembly to its end.
#[derive(Clone, Debug)]
pub struct Lifetime {
    /// Requests of each client.
    pub requests: usize,
    /// How it ends.
    pub end: End,
    /// What happens, and when.
    pub faults: Vec<(Duration, InjectedFault)>,
    /// Drives that are not there from the start, of those that may be missing.
    pub withheld: MemberSet,
    /// Another program makes parity and copies agree before it, if they may not.
    pub resynced: bool,
}

/// The relative frequency of requests.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Reads.
    pub read: u64,
    /// Aligned writes.
    pub write: u64,
    /// Writes that end anywhere.
    pub unaligned: u64,
    /// Flushes.
    pub flush: u64,
    /// Discards.
    pub discard: u64,
    /// Zeroings.
    pub zero: u64,
    /// Pauses long enough for the array to be recorded clean.
    pub pause: u64,
    /// Of a hundred writes, so many are forced.
    pub forced_percent: u64,
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Which metadata.
    pub metadata: MetadataModel,
    /// What the array is made of.
    pub params: Params,
    /// The drives.
    pub drive: DriveConfig,
    /// Cores.
    pub cores: usize,
    /// Bounds the buffers of stripes, and the stripes that a job has at once.
    pub stripes_active_max: usize,
    /// Idle time before the array is recorded clean.
    pub clean_delay: Duration,
    /// Read errors that fail a member.
    pub read_errors_max: u32,
    /// After how long a read is answered from redundancy.
    pub read_deadline: Duration,
    /// Members are filled a few blocks at a time, so that most requests meet some that are filled
    /// in part.
    pub slow_jobs: bool,
    /// Sectors of a region of the write-intent bitmap, if there is one.
    pub region: Option<u64>,
    /// It has partial parity logs.
    pub log: bool,
    /// How many entries the members' bad-block logs have room for.
    pub bad_entries_max: usize,
    /// Drives that are no members at first.
    pub spares: usize,
    /// Requests in flight.
    pub clients: usize,
    /// Clients that only read, in sequence, besides those.
    pub readers: usize,
    /// What is read ahead of them at once.
    pub part_bytes: u64,
    /// Longest request in sectors.
    pub request_max: u64,
    /// Part of the volume that clients use, in sectors; small for collisions.
    pub reach: u64,
    /// Requests.
    pub mix: Mix,
    /// Chance in a million that a sector in flight at a power cut becomes unreadable.
    pub torn_unreadable_ppm: u32,
    /// Drives cannot zero ranges by themselves.
    pub no_write_zeroes: bool,
    /// Members that faults may hit.
    pub victims: MemberSet,
    /// Members that lie across a network, and come back by themselves.
    pub remote: MemberSet,
    /// How many blocks of one member hold something else in the end, without a word.
    pub silent: usize,
    /// Faults may go beyond redundancy: errors are allowed, wrong data is not.
    pub beyond: bool,
    /// Lifetimes, in order.
    pub lifetimes: Vec<Lifetime>,
}

impl Scenario {
    /// The array's map.
    ///
    /// # Panics
    /// Never: a scenario's parameters were checked when it was made.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry::new(&self.params).expect("scenarios have valid geometries")
    }

    /// Data sectors of each member.
    #[must_use]
    pub fn member_sectors(&self) -> Vec<u64> {
        match self.params.level.kind() {
            LevelKind::Striped => self.params.member_sizes.iter().map(|size| size.0).collect(),
            _ => vec![self.params.component_size.0; self.params.raid_disks as usize],
        }
    }

    /// Bounds and times of the array.
    #[must_use]
    pub fn tuning(&self) -> Bounds {
        Bounds {
            stripes_active_max: self.stripes_active_max,
            clean_delay: self.clean_delay,
            read_errors_max: self.read_errors_max,
            read_deadline: self.read_deadline,
            slow_jobs: self.slow_jobs,
            part_bytes: self.part_bytes,
        }
    }

    /// The shape of the write-intent bitmap.
    #[must_use]
    pub fn regions(&self) -> Option<Regions> {
        Some(Regions::new(Sector(self.region?), self.geometry().sync_sectors()))
    }

    /// Whether there is a write-intent bitmap at any time.
    #[must_use]
    pub fn has_bitmap(&self) -> bool {
        let turn = |fault: &InjectedFault| matches!(fault, InjectedFault::Turn(_));
        self.region.is_some()
            || self.lifetimes.iter().any(|life| life.faults.iter().any(|(_, fault)| turn(fault)))
    }

    /// Whether sectors become unreadable.
    #[must_use]
    pub fn has_latent(&self) -> bool {
        let latent = |fault: &InjectedFault| matches!(fault, InjectedFault::Latent(_));
        self.torn_unreadable_ppm > 0
            || self.lifetimes.iter().any(|life| life.faults.iter().any(|(_, fault)| latent(fault)))
    }

    /// Whether members are filled while the array runs.
    #[must_use]
    pub fn rebuilds(&self) -> bool {
        let fills = |fault: &InjectedFault| {
            matches!(
                fault,
                InjectedFault::Return(_)
                    | InjectedFault::Away(..)
                    | InjectedFault::Spare(..)
                    | InjectedFault::Replace(..)
            )
        };
        self.lifetimes.iter().any(|life| life.faults.iter().any(|(_, fault)| fills(fault)))
    }

    /// Whether resync and rebuilding have to come to their end once nothing fails any more.
    #[must_use]
    pub fn must_finish(&self) -> bool {
        !self.beyond
    }

    /// Whether sectors that cannot be read may be rewritten in passing, so that drives see writes
    /// that no client asked for.
    #[must_use]
    pub fn repairs(&self) -> bool {
        let repairing =
            |fault: &InjectedFault| matches!(fault, InjectedFault::Latent(_) | InjectedFault::FailReads(..));
        self.torn_unreadable_ppm > 0
            || self.lifetimes.iter().any(|life| life.faults.iter().any(|(_, fault)| repairing(fault)))
    }
}
