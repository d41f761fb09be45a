//! Drives of zeros that take everything, and whether anything holds them still.

use std::sync::{Arc, Weak};

use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve};

struct Zeros;

impl Serve for Zeros {
    fn read(&self, _: &Core, _: u64, mut buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        buf.fill(0);
        Box::pin(std::future::ready((Ok(()), buf)))
    }

    fn write(&self, _: &Core, _: u64, _: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Drives of which it is known whether something holds them.
pub struct HeldDrives(Vec<Weak<Zeros>>);

impl HeldDrives {
    /// How many of them something holds.
    pub fn held(&self) -> usize {
        self.0.iter().filter(|drive| drive.strong_count() > 0).count()
    }
}

/// So many drives of this size.
pub fn zeros(core: &Core, count: usize, size_bytes: u64) -> (Vec<Device>, HeldDrives) {
    let served: Vec<Arc<Zeros>> = (0..count).map(|_| Arc::new(Zeros)).collect();
    let drives = HeldDrives(served.iter().map(Arc::downgrade).collect());
    let device = |(slot, drive)| {
        Device::served(format!("zeros-{slot}"), size_bytes, 512, true, core, drive as Arc<dyn Serve>)
    };
    (served.into_iter().enumerate().map(device).collect(), drives)
}
