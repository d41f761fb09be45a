//! The other side of a simulated drive: its faults, and its contents as a test sees them.

use crate::base::time::Instant;
use crate::op::Durability;
use crate::sim::drive::{DriveHandle, DriveSnapshot};
use crate::sim::service::DriveTotals;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A write that completed, in the order of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// How long, in bytes.
    pub len_bytes: u64,
    /// Whether it was forced.
    pub durability: Durability,
    /// When it completed.
    pub completed: Instant,
}

/// The controls of one simulated drive, usable between runs and from tasks within one. Clones
/// control the same drive.
#[derive(Clone)]
pub struct DriveControl {
    pub(crate) drive: DriveHandle,
    /// The world's clock in nanoseconds.
    pub(crate) clock: Arc<AtomicU64>,
}

impl DriveControl {
    // Faults.

    /// The drive serves `n` more operations; every later one, and those then in flight, fail with
    /// `Gone`.
    pub fn gone_after_ops(&self, n: u64) {
        self.drive.lock().faults.gone_after_ops = Some(n);
    }

    /// The drive vanishes now: every operation, those in flight included, fails with `Gone`.
    pub fn gone_now(&self) {
        self.drive.lock().faults.gone = true;
    }

    /// The drive is back, with its contents and its volatile cache; see
    /// [`DriveControl::lose_cache`].
    pub fn come_back(&self) {
        let mut drive = self.drive.lock();
        drive.faults.gone = false;
        drive.faults.gone_after_ops = None;
    }

    /// This drive alone loses power for a moment: each unflushed sector survives or not.
    pub fn lose_cache(&self) {
        self.drive.lock().lose_cache(&mut |rng, n| rng.below(n as u64) as usize);
    }

    /// The write-back of what is not flushed in a range fails, as a page cache has it: from now on
    /// reads give what was there before. The first flush or forced write that ends after this fails
    /// with `Medium`; no other does.
    pub fn lose_write_back(&self, offset_bytes: u64, len_bytes: u64) {
        self.drive.lock().lose_write_back(offset_bytes, len_bytes);
    }

    /// Reads of this sector fail with `Medium` until it is rewritten.
    pub fn latent(&self, sector: u64) {
        self.drive.lock().contents.mark_unreadable(sector);
    }

    /// Whether reads of this sector fail.
    pub fn is_unreadable(&self, sector: u64) -> bool {
        self.drive.lock().contents.is_unreadable(sector)
    }

    /// The next `n` reads fail with `Medium`.
    pub fn fail_next_reads(&self, n: u64) {
        self.drive.lock().faults.fail_reads = n;
    }

    /// The next `n` writes (or zeroings) fail with `Medium`; each of their sectors is left old or
    /// new.
    pub fn fail_next_writes(&self, n: u64) {
        self.drive.lock().faults.fail_writes = n;
    }

    /// How many of the writes that were to fail have not come yet.
    pub fn writes_to_fail(&self) -> u64 {
        self.drive.lock().faults.fail_writes
    }

    /// The next `n` flushes fail with `Medium` and make nothing durable.
    pub fn fail_next_flushes(&self, n: u64) {
        self.drive.lock().faults.fail_flushes = n;
    }

    /// Flushes, and forced writes, are acknowledged but make nothing durable.
    pub fn lying_flush(&self, lying: bool) {
        self.drive.lock().faults.lying_flush = lying;
    }

    /// The drive does not know how to zero a range: `write_zeroes` answers `Unsupported`.
    pub fn no_write_zeroes(&self, missing: bool) {
        self.drive.lock().faults.no_write_zeroes = missing;
    }

    /// Nothing completes for `duration` from now; [`Duration::MAX`] for ever.
    pub fn stall(&self, duration: Duration) {
        let now = Instant::from_nanos(self.clock.load(Ordering::Relaxed));
        self.drive.lock().faults.stalled_until = now + duration;
    }

    /// Everything submitted from now on takes `factor` times as long; 1 is normal.
    pub fn slow(&self, factor: u32) {
        self.drive.lock().faults.slow = factor.max(1);
    }

    /// The next `n` writes are acknowledged and dropped.
    pub fn lose_next_writes(&self, n: u64) {
        self.drive.lock().faults.lose_writes = n;
    }

    /// The next write is acknowledged and lands `by_sectors` away, within the drive.
    pub fn misdirect_next_write(&self, by_sectors: i64) {
        self.drive.lock().faults.misdirect_sectors = Some(by_sectors);
    }

    // Contents.

    /// What a reader would see, at any offset in bytes; of unreadable sectors, what was there
    /// before.
    pub fn peek(&self, offset_bytes: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.drive.lock().contents.read(offset_bytes, &mut bytes);
        bytes
    }

    /// What a power cut that lost the whole volatile cache would leave.
    pub fn peek_durable(&self, offset_bytes: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.drive.lock().peek_durable(offset_bytes, &mut bytes);
        bytes
    }

    /// Puts bytes at any offset, durably and without any operation; the sectors become readable.
    pub fn poke(&self, offset_bytes: u64, bytes: &[u8]) {
        self.drive.lock().poke(offset_bytes, bytes);
    }

    /// How many sectors have completed writes that no flush covers yet.
    pub fn unflushed_sectors(&self) -> usize {
        self.drive.lock().contents.unflushed_sectors()
    }

    /// How many writes and zeroings are in flight.
    pub fn writes_in_flight(&self) -> u32 {
        self.drive.lock().service.writes_in_flight()
    }

    /// How many operations are in flight that can only fail with `Gone`.
    pub fn in_flight_while_gone(&self) -> u32 {
        let drive = self.drive.lock();
        if drive.faults.gone { drive.service.in_flight() } else { 0 }
    }

    /// How many operations were submitted to it so far.
    pub fn ops(&self) -> u64 {
        self.drive.lock().ops
    }

    /// What it has done so far.
    pub fn totals(&self) -> DriveTotals {
        self.drive.lock().service.totals(Instant::from_nanos(self.clock.load(Ordering::Relaxed)))
    }

    /// Begins to record completed writes, from an empty log.
    pub fn record_writes(&self) {
        self.drive.lock().log = Some(Vec::new());
    }

    /// The completed writes since the last call, or since recording began.
    pub fn take_write_log(&self) -> Vec<WriteRecord> {
        self.drive.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The whole contents, with the volatile cache.
    pub fn snapshot(&self) -> DriveSnapshot {
        DriveSnapshot(self.drive.lock().contents.clone())
    }

    /// Puts contents back. Faults stay as they are.
    pub fn restore(&self, snapshot: &DriveSnapshot) {
        self.drive.lock().contents = snapshot.0.clone();
    }
}

impl fmt::Debug for DriveControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriveControl({})", self.drive.lock().config.name)
    }
}
