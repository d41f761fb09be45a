//! Drives of which one keeps a write to itself, and carries it out when it likes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::VolumeRef;
use wattle_engine::volume::qos::QosSite;
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

use super::{MIB, volume_on};

/// The first write that the drives get is held until it is released.
#[derive(Default)]
pub struct HeldWrite {
    came: AtomicBool,
    released: AtomicBool,
}

struct Drive {
    bytes: Arc<Mutex<Vec<u8>>>,
    held: Arc<HeldWrite>,
}

impl HeldWrite {
    pub fn has_come(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// Carries the write out.
    pub fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

/// A volume of 64 MiB with limits to be set, whose drives hold the first write.
pub async fn holding_volume(core: &Core, name: &str) -> (VolumeRef, Arc<HeldWrite>) {
    let held = Arc::<HeldWrite>::default();
    let drive = |len: u64| {
        let bytes = Arc::new(Mutex::new(vec![0; len as usize]));
        let drive = Drive { bytes, held: held.clone() };
        Device::served("held".to_owned(), len, 512, true, core, Arc::new(drive))
    };
    let volume = volume_on(core, name, 64 * MIB, false, drive).await;
    (QosSite::new(core.cores()).govern(volume), held)
}

impl Serve for Drive {
    fn read(&self, _: &Core, offset: u64, mut buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (from, len) = (offset as usize, buf.len());
        buf.copy_from_slice(&self.bytes.lock().unwrap()[from..from + len]);
        Box::pin(std::future::ready((Ok(()), buf)))
    }

    fn write(&self, core: &Core, offset: u64, buf: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        let is_held = !self.held.came.swap(true, Ordering::SeqCst);
        let (core, bytes, held) = (core.clone(), self.bytes.clone(), self.held.clone());
        Box::pin(async move {
            while is_held && !held.released.load(Ordering::SeqCst) {
                core.sleep(Duration::from_millis(1)).await;
            }
            bytes.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(&buf);
            Ok(())
        })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Err(IoError::UNSUPPORTED)))
    }
}
