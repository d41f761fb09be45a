//! What a core needs to answer requests, and the work that needs a volume, whichever way the
//! request came.

use std::cell::RefCell;
use std::sync::Arc;

use wattle_engine::volume::Remains;
use wattle_engine::volume::qos::QosCost;
use wattle_engine::{Volume, VolumeError, VolumeTurn};
use wattle_rt::sync::Latch;
use wattle_rt::{Buf, BufMut, Core, Durability, Either, race};

use super::protocol::{FuseErrno, Out};
use super::request::{FuseCommand, VolumeRequest};
use super::tree::NodeTree;

/// What a core needs to answer.
pub(super) struct Shard {
    pub(super) tree: RefCell<Arc<NodeTree>>,
    /// By the numbers that the tree gives them: those of volumes that are gone stay. With each what
    /// clients that have gone left behind there.
    pub(super) volumes: RefCell<Vec<(Volume, Arc<Remains>)>>,
    /// To finish what was begun, and take nothing new.
    pub(super) stopping: Latch,
}

/// An answer on its way.
pub(super) enum Reply {
    Structure(Out),
    Data(Buf),
}

/// Does what a volume is asked for.
pub(super) async fn execute(
    core: &Core,
    shard: &Shard,
    job: VolumeRequest,
    data: Buf,
) -> Result<Reply, FuseErrno> {
    let VolumeRequest { volume, command, offset_bytes, length_bytes } = job;
    let (volume, remains) = shard.volumes.borrow()[volume].clone();
    let done = match command {
        FuseCommand::Open(flags) => {
            // A program goes on from what clients that have gone wrote. A server that stops waits
            // for none of it here.
            return match race(remains.none(core), shard.stopping.wait()).await {
                Either::First(()) => Ok(Reply::Structure(Out::default().u64s([0]).u32s([flags, 0]))),
                Either::Second(()) => Err(errno(VolumeError::Stopped)),
            };
        }
        FuseCommand::Read => {
            let (result, data) = volume.read(offset_bytes, BufMut::alloc(length_bytes as usize)).await;
            return result.map(|()| Reply::Data(data.freeze())).map_err(errno);
        }
        FuseCommand::Write(durability) => {
            let result = volume.write(offset_bytes, data.slice(..length_bytes as usize), durability).await;
            return result
                .map(|()| Reply::Structure(Out::default().u32s([length_bytes as u32, 0])))
                .map_err(errno);
        }
        FuseCommand::Flush => volume.flush().await,
        FuseCommand::Zero(unmap) => {
            let range = offset_bytes..offset_bytes + length_bytes;
            // A server that stops does not wait until hours of it are done.
            let may = async |cost| {
                let turn = volume.turn(cost).await;
                if shard.stopping.is_set() { Err(VolumeError::Stopped) } else { Ok((turn, ())) }
            };
            let zero = async |turn: &VolumeTurn<'_>, at, len| {
                turn.write_zeroes(at, len, unmap, Durability::Cached).await
            };
            volume.in_pieces(core, range, QosCost::zeroes(length_bytes), may, zero).await
        }
    };
    done.map(|()| Reply::Structure(Out::default())).map_err(errno)
}

/// What a program is told about a failure.
fn errno(error: VolumeError) -> FuseErrno {
    FuseErrno(match error {
        VolumeError::OutOfRange => libc::EINVAL,
        VolumeError::ReadOnly => libc::EROFS,
        VolumeError::NoSpace => libc::ENOSPC,
        VolumeError::Stopped => libc::ENODEV,
        // Data that cannot be read, a write that failed, a broken array, and whatever else comes to
        // be.
        _ => libc::EIO,
    })
}
