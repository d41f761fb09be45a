//! Reads and writes of any range of bytes, also where a device's blocks are larger.

use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError};

/// The blocks of a device that hold a range: where they start, and how many bytes they are.
fn blocks(device: &Device, offset_bytes: u64, len_bytes: usize) -> (u64, usize) {
    let block = u64::from(device.logical_block_bytes());
    let from = offset_bytes / block * block;
    let to = (offset_bytes + len_bytes as u64).next_multiple_of(block);
    (from, (to - from) as usize)
}

/// Reads any range: where blocks are larger than sectors, out of what is around it.
pub(crate) async fn read(
    core: &Core,
    device: &Device,
    offset_bytes: u64,
    len_bytes: usize,
) -> Result<Vec<u8>, IoError> {
    let (from, len) = blocks(device, offset_bytes, len_bytes);
    let (result, buf) = core.read(device, from, BufMut::alloc(len)).await;
    result?;
    let skip = (offset_bytes - from) as usize;
    Ok(buf[skip..skip + len_bytes].to_vec())
}

/// Writes any range: where blocks are larger than sectors, with what is around it.
pub(crate) async fn write(
    core: &Core,
    device: &Device,
    offset_bytes: u64,
    bytes: &[u8],
) -> Result<(), IoError> {
    let (from, len) = blocks(device, offset_bytes, bytes.len());
    if len == bytes.len() {
        return core.write(device, from, Buf::copy_of(bytes), Durability::Cached).await;
    }
    let mut around = read(core, device, from, len).await?;
    let skip = (offset_bytes - from) as usize;
    around[skip..skip + bytes.len()].copy_from_slice(bytes);
    core.write(device, from, Buf::copy_of(&around), Durability::Cached).await
}
