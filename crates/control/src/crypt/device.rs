//! What is encrypted, as a device: requests go to the volume below, and sectors through the cipher
//! on the core that asks.

use std::sync::Arc;

use wattle_crypt::SectorCipher;
use wattle_engine::{VolumeError, VolumeRef};
use wattle_format::luks::LuksSegment;
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

/// Sectors are numbered in units of this, bytes.
const SECTOR_BYTES: u64 = 512;
/// What goes through the cipher in one go, bytes, and all else on the core waits for: whole
/// sectors.
const PIECE_BYTES: usize = 64 << 10;
/// Longest run of zeros that is encrypted at once, bytes.
const ZEROS_BYTES: u64 = 1 << 20;

/// A segment of an encrypted volume. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Decrypted {
    below: VolumeRef,
    cipher: Arc<SectorCipher>,
    offset_bytes: u64,
    /// The number of the first sector.
    first: u64,
}

impl Decrypted {
    /// The segment as a device of this name; `None` if it does not lie on the volume.
    pub fn device(
        core: &Core,
        name: &str,
        below: VolumeRef,
        cipher: SectorCipher,
        segment: &LuksSegment,
    ) -> Result<Option<Device>, VolumeError> {
        let opened = below.open(core)?;
        let unit = u64::from(segment.sector_bytes);
        let Some(room) = below.size_bytes().checked_sub(segment.offset_bytes) else { return Ok(None) };
        let len = segment.len_bytes.unwrap_or(room) / unit * unit;
        if len == 0 || len > room {
            return Ok(None);
        }
        // Devices here have blocks of 512 or 4096 bytes. Of one whose sectors have another size and
        // that ends within a block, the last sectors are read all the same, and nothing is written.
        let is_small = opened.block_bytes().max(segment.sector_bytes) <= 512;
        let ends_within = !len.is_multiple_of(4096);
        let block = if is_small || ends_within { 512 } else { 4096 };
        let decrypted = Self {
            below,
            cipher: Arc::new(cipher),
            offset_bytes: segment.offset_bytes,
            first: segment.iv_tweak,
        };
        let writable = !opened.read_only() && (is_small || !ends_within);
        Ok(Some(Device::served(name, len, block, writable, core, Arc::new(decrypted))))
    }

    fn number(&self, offset: u64) -> u64 {
        self.first.wrapping_add(offset / SECTOR_BYTES)
    }

    /// Sends sectors through the cipher, piece by piece: others of the core go on in between.
    async fn through(
        &self,
        core: &Core,
        offset: u64,
        bytes: &mut [u8],
        work: impl Fn(&SectorCipher, u64, &mut [u8]),
    ) {
        let mut at = offset;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            if at > offset {
                core.yield_now().await;
            }
            work(&self.cipher, self.number(at), piece);
            at += piece.len() as u64;
        }
    }

    async fn read_whole(&self, core: &Core, offset: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let below = match self.below.open(core) {
            Ok(below) => below,
            Err(error) => return (Err(error.into()), buf),
        };
        let (result, mut buf) = below.read(self.offset_bytes + offset, buf).await;
        if result.is_ok() {
            self.through(core, offset, &mut buf, SectorCipher::decrypt).await;
        }
        (result.map_err(IoError::from), buf)
    }

    /// Reads any bytes, by whole sectors.
    async fn read_any(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let unit = u64::from(self.cipher.sector_bytes());
        let (start, end) = (offset / unit * unit, (offset + buf.len() as u64).next_multiple_of(unit));
        if start == offset && end == offset + buf.len() as u64 {
            return self.read_whole(core, offset, buf).await;
        }
        let (result, whole) = self.read_whole(core, start, BufMut::alloc((end - start) as usize)).await;
        let (from, len) = ((offset - start) as usize, buf.len());
        buf.copy_from_slice(&whole[from..from + len]);
        (result, buf)
    }

    /// Encrypts a copy: the client's bytes stay as they are.
    async fn write_whole(
        &self,
        core: &Core,
        offset: u64,
        buf: &[u8],
        durability: Durability,
    ) -> Result<(), IoError> {
        let mut encrypted = BufMut::copy_of(buf);
        self.through(core, offset, &mut encrypted, SectorCipher::encrypt).await;
        let below = self.below.open(core)?;
        Ok(below.write(self.offset_bytes + offset, encrypted.freeze(), durability).await?)
    }
}

impl Serve for Decrypted {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (this, core) = (self.clone(), core.clone());
        Box::pin(async move { this.read_any(&core, offset, buf).await })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        let (this, core) = (self.clone(), core.clone());
        let unit = u64::from(self.cipher.sector_bytes());
        Box::pin(async move {
            // Requests are whole blocks of the device, and where it is written a block is whole
            // sectors.
            if !offset.is_multiple_of(unit) || !(buf.len() as u64).is_multiple_of(unit) {
                return Err(IoError::INVALID);
            }
            this.write_whole(&core, offset, &buf, durability).await
        })
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        let below = self.below.open(core);
        Box::pin(async move { Ok(below?.flush().await?) })
    }

    /// Zeros are encrypted like any bytes. Freeing space below would show which sectors are in use
    /// and read back as noise, so a request that may free it is not carried out.
    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        if unmap == Unmap::Yes {
            return Box::pin(std::future::ready(Err(IoError::UNSUPPORTED)));
        }
        let (this, core) = (self.clone(), core.clone());
        Box::pin(async move {
            let zeros = vec![0; len.min(ZEROS_BYTES) as usize];
            let mut done = 0;
            while done < len {
                let part = (len - done).min(ZEROS_BYTES);
                let zeros = &zeros[..part as usize];
                this.write_whole(&core, offset + done, zeros, Durability::Cached).await?;
                done += part;
            }
            Ok(())
        })
    }
}
