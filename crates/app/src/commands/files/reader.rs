//! From plain code that waits for its bytes to the volume: every read is a message to a task on the
//! core, and its answer one back.

use std::io;
use std::sync::mpsc;

use wattle_control::members::Member;
use wattle_engine::{VolumeError, VolumeRef};
use wattle_fs::ReadAt;
use wattle_rt::{Buf, BufMut, Core, mailbox};

/// A volume, for a thread beside the cores.
pub struct VolumeReader {
    requests: mailbox::Sender<Request>,
    size_bytes: u64,
}

struct Request {
    offset: u64,
    len: usize,
    answer: mpsc::Sender<Result<Buf, VolumeError>>,
}

/// The reader, and what serves it as long as it is there.
pub fn bridge(core: &Core, volume: VolumeRef) -> (VolumeReader, impl Future<Output = ()> + use<>) {
    let (requests, mut inbox) = mailbox::mailbox::<Request>();
    let reader = VolumeReader { requests, size_bytes: volume.size_bytes() };
    let core = core.clone();
    let serving = async move {
        while let Some(request) = inbox.recv().await {
            let answer = read(&core, &volume, request.offset, request.len).await;
            // The task that asked waits for it.
            let _ = request.answer.send(answer);
        }
    };
    (reader, serving)
}

async fn read(core: &Core, volume: &VolumeRef, offset: u64, len: usize) -> Result<Buf, VolumeError> {
    let (done, buf) = volume.open(core)?.read(offset, BufMut::alloc(len)).await;
    done.map(|()| buf.freeze())
}

impl ReadAt for VolumeReader {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (answer, answered) = mpsc::channel();
        let gone = || io::Error::other("the volume is gone");
        self.requests.send(Request { offset, len: into.len(), answer }).map_err(|_| gone())?;
        let bytes = answered.recv().map_err(|_| gone())?.map_err(io::Error::other)?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

/// A member, for plain code: a read waits for the drive.
pub struct MemberReader(pub Member);

impl ReadAt for MemberReader {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read(offset, into.len()).map_err(io::Error::other)?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    fn size_bytes(&self) -> u64 {
        self.0.device.size_bytes()
    }
}
