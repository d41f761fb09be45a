//! What the blocks of a stack's volumes may hold.
//!
//! Every block has one client that writes it, one write at a time, so its versions are numbers that
//! grow. A sector that is read must hold a version between two bounds:
//!
//! - at least the *floor*: the last version that was acknowledged when the read began. A lost
//!   write-back takes the floor back to what is durable, because a page cache may show again what
//!   was there before, until a flush says so. That holds for a write in flight too: the cache may
//!   have lost it although the acknowledgement arrives later, so it does not raise the floor;
//! - at most the last version that was issued when the read ended.
//!
//! A version is durable if it was acknowledged when a flush of its volume began that was itself
//! acknowledged, or if its write was forced. A power cut takes the floor back to it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// Every fifth version is zeros: what [`wattle_engine::Volume::write_zeroes`] writes.
const ZEROS_EVERY: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    durable: u32,
    floor: u32,
    acknowledged: u32,
    issued: u32,
    /// The last version that was issued when a write-back was lost.
    lost: u32,
}

/// The blocks of every volume, and what went wrong first.
#[derive(Default)]
pub struct Ledger {
    volumes: Vec<Vec<Block>>,
    /// The first thing that must not happen.
    pub wrong: Option<String>,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests answered with an error that faults excuse.
    pub errors: u64,
    /// What happened, where it is to be told.
    pub log: Option<Vec<String>>,
    /// Requests of clients that began.
    begun: u64,
    /// Those that are not answered, by the numbers in which they began.
    under_way: BTreeSet<u64>,
}

/// Shared between the tasks of a world.
pub type SharedLedger = Arc<Mutex<Ledger>>;

/// Whether a version is zeros.
#[must_use]
pub fn is_zeros(version: u32) -> bool {
    version.is_multiple_of(ZEROS_EVERY)
}

fn fill(volume: usize, sector: u64, version: u32, bytes: &mut [u8]) {
    if is_zeros(version) {
        return bytes.fill(0);
    }
    let mut word =
        ((volume as u64) << 56 | sector << 32 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (index, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match index {
            0 => (volume as u64) << 56 | sector,
            1 => u64::from(version),
            _ => {
                word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1) ^ word >> 29;
                word
            }
        };
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// The contents of a block in a version.
#[must_use]
pub fn contents(volume: usize, block: u64, version: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for (sector, bytes) in (block * 8..).zip(bytes.chunks_exact_mut(SECTOR)) {
        fill(volume, sector, version, bytes);
    }
    bytes
}

/// What a sector's bytes say they are.
fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (volume, sector, version) = (word(0) >> 56, word(0) & 0xff_ffff, word(8));
    let mut whole = [0; SECTOR];
    fill(volume as usize, sector, version as u32, &mut whole);
    if whole == bytes {
        format!("v{version} of sector {sector} of volume {volume}")
    } else {
        "no version".to_owned()
    }
}

impl Ledger {
    /// Adds a volume of zeros.
    pub fn add(&mut self, blocks: u64) {
        self.volumes.push(vec![Block::default(); blocks as usize]);
    }

    /// Records a violation.
    pub fn accuse(&mut self, what: impl Into<String>) {
        if self.wrong.is_none() {
            let what = what.into();
            self.tell(|| what.clone());
            self.wrong = Some(what);
        }
    }

    /// Notes an event, where they are to be told.
    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    /// A client begins a request; pass the number to [`Ledger::end_request`].
    pub fn begin_request(&mut self) -> u64 {
        self.under_way.insert(self.begun);
        self.begun += 1;
        self.begun - 1
    }

    /// It was answered.
    pub fn end_request(&mut self, number: u64) {
        self.under_way.remove(&number);
    }

    /// How many requests began until now.
    #[must_use]
    pub fn requests_begun(&self) -> u64 {
        self.begun
    }

    /// Whether the first `begun` requests are answered.
    #[must_use]
    pub fn answered(&self, begun: u64) -> bool {
        self.under_way.first().is_none_or(|first| *first >= begun)
    }

    /// A write of the next version begins.
    pub fn begin_write(&mut self, volume: usize, block: u64) -> u32 {
        let block = &mut self.volumes[volume][block as usize];
        block.issued += 1;
        block.issued
    }

    /// It was acknowledged.
    pub fn written(&mut self, volume: usize, block: u64, version: u32, forced: bool) {
        let block = &mut self.volumes[volume][block as usize];
        block.acknowledged = version;
        if forced {
            block.durable = version;
        }
        // What was in flight at a loss may be gone again: only a flush, which reports the loss,
        // makes it certain.
        block.floor = if version > block.lost { version } else { block.durable };
    }

    /// A flush of a volume begins; pass the answer to [`Ledger::flushed`].
    #[must_use]
    pub fn begin_flush(&self, volume: usize) -> Vec<u32> {
        self.volumes[volume].iter().map(|block| block.acknowledged).collect()
    }

    /// It was acknowledged.
    pub fn flushed(&mut self, volume: usize, covered: &[u32]) {
        for (block, &version) in self.volumes[volume].iter_mut().zip(covered) {
            block.durable = block.durable.max(version);
            block.floor = block.floor.max(block.durable);
        }
    }

    /// A read of a block begins; pass the answer to [`Ledger::read`].
    #[must_use]
    pub fn begin_read(&self, volume: usize, block: u64) -> u32 {
        self.volumes[volume][block as usize].floor
    }

    /// It returned `bytes`.
    pub fn read(&mut self, volume: usize, block: u64, floor: u32, bytes: &[u8]) {
        let known = self.volumes[volume][block as usize];
        let permitted = floor.min(known.floor)..=known.issued;
        let mut expected = [0; SECTOR];
        for (sector, bytes) in (block * 8..).zip(bytes.chunks_exact(SECTOR)) {
            let fits = |version: u32| {
                fill(volume, sector, version, &mut expected);
                expected == bytes
            };
            if !permitted.clone().any(fits) {
                let durable = known.durable;
                self.accuse(format!(
                    "sector {sector} of volume {volume} holds {}, permitted: v{} to v{} (v{durable} is durable)",
                    describe(bytes),
                    permitted.start(),
                    permitted.end()
                ));
                return;
            }
        }
    }

    /// What is not durable may be what it was before: the power went, or a write-back was lost.
    pub fn uncover(&mut self) {
        for block in self.volumes.iter_mut().flatten() {
            block.floor = block.durable;
            block.lost = block.issued;
        }
    }

    /// The program ended: nothing is in flight, and what was not acknowledged may be there or not.
    pub fn restart(&mut self) {
        self.uncover();
        self.under_way.clear();
        // A client goes on from a version that none of its sectors can have.
        for block in self.volumes.iter_mut().flatten() {
            block.acknowledged = block.durable;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume of one block, version 1 of which is durable.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add(1);
        let version = ledger.begin_write(0, 0);
        ledger.written(0, 0, version, true);
        ledger
    }

    /// Whether a read that begins now may return a version.
    fn may_read(ledger: &mut Ledger, version: u32) -> bool {
        let floor = ledger.begin_read(0, 0);
        ledger.read(0, 0, floor, &contents(0, 0, version));
        ledger.wrong.take().is_none()
    }

    #[test]
    fn a_write_in_flight_at_a_loss_is_certain_only_after_a_flush() {
        let mut ledger = ledger();
        let version = ledger.begin_write(0, 0);
        ledger.uncover();
        ledger.written(0, 0, version, false);
        assert!(may_read(&mut ledger, 1) && may_read(&mut ledger, 2));
        let covered = ledger.begin_flush(0);
        ledger.flushed(0, &covered);
        assert!(!may_read(&mut ledger, 1) && may_read(&mut ledger, 2));
    }

    #[test]
    fn a_write_after_a_loss_is_read_again_at_once() {
        let mut ledger = ledger();
        ledger.uncover();
        let version = ledger.begin_write(0, 0);
        ledger.written(0, 0, version, false);
        assert!(!may_read(&mut ledger, 1) && may_read(&mut ledger, 2));
    }

    #[test]
    fn a_forced_write_in_flight_at_a_loss_is_certain() {
        let mut ledger = ledger();
        let version = ledger.begin_write(0, 0);
        ledger.uncover();
        ledger.written(0, 0, version, true);
        assert!(!may_read(&mut ledger, 1) && may_read(&mut ledger, 2));
    }
}
