//! What stands in the seats of an array that is stopped, in the place of drives: every operation
//! fails, and nothing is kept open.

use std::sync::Arc;

use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

struct Released;

fn gone<T: 'static>(answer: T) -> Reply<T> {
    Box::pin(std::future::ready(answer))
}

impl Serve for Released {
    fn read(&self, _: &Core, _: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        gone((Err(IoError::GONE), buf))
    }

    fn write(&self, _: &Core, _: u64, _: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        gone(Err(IoError::GONE))
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        gone(Err(IoError::GONE))
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        gone(Err(IoError::GONE))
    }
}

/// As large as a drive was, and nothing else of it.
pub(super) fn released(core: &Core, drive: &Device) -> Device {
    let (name, size_bytes, block_bytes) = (drive.name(), drive.size_bytes(), drive.logical_block_bytes());
    Device::served(name, size_bytes, block_bytes, drive.writable(), core, Arc::new(Released))
}
