//! Volumes of this process as what a load goes to.

use std::sync::Arc;

use wattle_engine::{Volume, VolumeError, VolumeRef};
use wattle_rt::{Buf, BufMut, Core, Durability};

use crate::board::Board;
use crate::clients::start_jobs;
use crate::load::{Load, LoadError};
use crate::target::{LoadTarget, Requests, RunningJob};

impl LoadTarget for VolumeRef {
    type Opened = Volume;

    fn size_bytes(&self) -> u64 {
        self.size_bytes()
    }

    async fn open(&self, core: &Core) -> Result<Volume, VolumeError> {
        self.open(core)
    }

    fn start(&self, load: &Load, core: &Core, board: &Arc<Board>) -> Result<Vec<RunningJob>, LoadError> {
        start_jobs(load, core, self, board)
    }
}

impl Requests for Volume {
    async fn read(&self, at: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        self.read(at, buf).await
    }

    async fn write(&self, at: u64, data: Buf) -> Result<(), VolumeError> {
        self.write(at, data, Durability::Cached).await
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.flush().await
    }
}
