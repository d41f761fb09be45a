//! A guest whose memory is any bytes, for [`crate::fuzzing`].

use std::cell::RefCell;
use std::sync::Arc;

use wattle_rt::SharedMemory;

use super::device::DiskFacts;
use super::memory::{GuestMemory, GuestRegion};
use super::request::{BlockCommand, BlockRequest};
use super::ring::{Chain, GuestRing, LogPlace, RingAddresses, RingFeatures, RingSetup, log_bytes};

/// Of the guest; a ring of eight is where such small numbers lead.
const MEMORY_BYTES: usize = 64 << 10;
const SIZE: u16 = 8;
/// Where the log begins in the memory that it has.
const LOG_AT: usize = 64;

thread_local! {
    /// A mapping costs more than a run.
    static MEMORIES: RefCell<Option<[Arc<SharedMemory>; 2]>> = const { RefCell::new(None) };
}

/// How the guest and this device agreed.
pub(crate) struct Guest {
    pub(crate) packed: bool,
    pub(crate) event_index: bool,
    pub(crate) logged: bool,
}

impl Guest {
    /// Takes everything out of the ring and gives it back, for a disk of so many bytes.
    ///
    /// # Panics
    /// What was accepted is not what it has to be.
    pub(crate) fn run(&self, data: &[u8], size_bytes: u64) {
        let memories = MEMORIES.with_borrow_mut(|kept| {
            let made = || {
                [MEMORY_BYTES, 4096]
                    .map(|len| SharedMemory::create(len).ok().map(|(memory, _)| Arc::new(memory)))
            };
            if kept.is_none()
                && let [Some(guest), Some(log)] = made()
            {
                *kept = Some([guest, log]);
            }
            kept.clone()
        });
        let Some([shared, log]) = memories else { return };
        let (of_log, of_guest) = data.split_at(data.len().min(log_bytes(SIZE, self.packed)));
        shared.write(0, &[0; MEMORY_BYTES]);
        shared.write(0, &of_guest[..of_guest.len().min(MEMORY_BYTES)]);
        log.write(LOG_AT, &[0; 4096 - LOG_AT]);
        log.write(LOG_AT, of_log);
        let mut memory = GuestMemory::default();
        memory.add(GuestRegion { guest: 0, user: 0, len: MEMORY_BYTES as u64, memory: shared, at: 0 });
        let base = u32::from_le_bytes(of_guest.last_chunk().copied().unwrap_or_default());
        let ring = GuestRing::new(&RingSetup {
            size: SIZE.into(),
            addresses: RingAddresses { descriptors: 0, driver: 128, device: 256 },
            features: RingFeatures { packed: self.packed, event_index: self.event_index },
            base,
            memory: &memory,
            log: self.logged.then(|| LogPlace { memory: log, at: LOG_AT }),
        });
        let Ok(mut ring) = ring else { return };
        let facts =
            DiskFacts { size_bytes, read_only: false, block_bytes: 512, io_min_bytes: 512, io_opt_bytes: 0 };
        let mut chain = Chain::default();
        for _ in 0..64 {
            match ring.next(&memory, &mut chain) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
            assert!(chain.readable <= chain.segments.len());
            if let Ok(request) = BlockRequest::decode(&chain, &memory, &facts) {
                assert!(memory.has(request.status_at, 1));
                let inside =
                    |offset: u64, len: u64| offset.checked_add(len).is_some_and(|end| end <= size_bytes);
                match &request.command {
                    BlockCommand::Read(offset) | BlockCommand::Write(offset) => {
                        assert!(inside(*offset, request.data_bytes), "inside the disk");
                    }
                    BlockCommand::Ranges(ranges) => {
                        assert!(ranges.iter().all(|(offset, len, _)| inside(*offset, *len)));
                    }
                    _ => {}
                }
            }
            ring.complete(chain.token, 1);
            ring.wants_call();
            ring.ask_for_kick();
        }
    }
}
