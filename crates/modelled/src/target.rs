//! What a load goes to.

use std::sync::Arc;

use wattle_engine::VolumeError;
use wattle_rt::{Buf, BufMut, Core, JoinHandle};

use crate::board::Board;
use crate::load::{Load, LoadError, RequestCounts};

/// A job that runs: what it counted, in the end.
pub type RunningJob = JoinHandle<Result<RequestCounts, LoadError>>;

/// Something that holds bytes and can be opened on each core: a volume of this process, or one that
/// another process serves.
pub trait LoadTarget: Clone + Send + 'static {
    /// Itself on a core.
    type Opened: Requests;

    /// How much it holds.
    fn size_bytes(&self) -> u64;

    /// Opens it on this core.
    fn open(&self, core: &Core) -> impl Future<Output = Result<Self::Opened, VolumeError>>;

    /// Starts the jobs of a load, by [`start_jobs`](crate::start_jobs): named here so that the
    /// clients' loop is compiled with the target, once, and not with each program that runs loads.
    ///
    /// # Errors
    /// It is too small for the load.
    fn start(&self, load: &Load, core: &Core, board: &Arc<Board>) -> Result<Vec<RunningJob>, LoadError>;
}

/// What clients ask for.
pub trait Requests: 'static {
    /// Fills a buffer, which comes back, or one of the same length.
    fn read(&self, at: u64, buf: BufMut) -> impl Future<Output = (Result<(), VolumeError>, BufMut)>;

    /// Writes.
    fn write(&self, at: u64, data: Buf) -> impl Future<Output = Result<(), VolumeError>>;

    /// Makes durable what was written.
    fn flush(&self) -> impl Future<Output = Result<(), VolumeError>>;
}
