//! A volume as a device, so that it can be a member: md in md, a physical volume on md, md on
//! logical volumes.

use std::sync::Arc;

use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

use super::{Volume, VolumeRef};
use crate::model::error::VolumeError;

impl VolumeRef {
    /// This volume as a device, under a name of its own.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] once it is stopped.
    pub fn device(&self, core: &Core, name: impl Into<String>) -> Result<Device, VolumeError> {
        let opened = self.open(core)?;
        let block = if opened.block_bytes() <= 512 { 512 } else { 4096 };
        let server = Arc::new(self.clone());
        Ok(Device::served(name, self.size_bytes(), block, !opened.read_only(), core, server))
    }
}

impl Serve for VolumeRef {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let volume = match self.open(core) {
            Ok(volume) => volume,
            Err(error) => return Box::pin(std::future::ready((Err(error.into()), buf))),
        };
        Box::pin(async move {
            let (result, buf) = volume.read(offset, buf).await;
            (result.map_err(IoError::from), buf)
        })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        self.on(core, async move |volume| volume.write(offset, buf, durability).await)
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        self.on(core, async |volume| volume.flush().await)
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        self.on(core, async move |volume| volume.write_zeroes(offset, len, unmap, Durability::Cached).await)
    }
}

impl VolumeRef {
    fn on(
        &self,
        core: &Core,
        work: impl AsyncFnOnce(Volume) -> Result<(), VolumeError> + 'static,
    ) -> Reply<Result<(), IoError>> {
        let volume = self.open(core);
        Box::pin(async move { Ok(work(volume?).await?) })
    }
}

/// What a drive would say.
impl From<VolumeError> for IoError {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::OutOfRange => Self::END_OF_DEVICE,
            VolumeError::ReadOnly => Self::READ_ONLY,
            VolumeError::NoSpace => Self::NO_SPACE,
            VolumeError::Stopped => Self::GONE,
            VolumeError::Unreadable
            | VolumeError::Missing
            | VolumeError::WriteFailed
            | VolumeError::Broken => Self::MEDIUM,
        }
    }
}
