//! Makes logs empty.

use std::rc::Rc;

use wattle_rt::{Buf, Core, Device, Durability, IoError};

use super::{LogArea, LogShard, LogSpec, PAGE_BYTES};
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES};
use crate::state::StateShard;

/// Longest write of zeros.
const PIECE_BYTES: u64 = 1 << 20;

/// Empties the logs of every member in use, durably, once in the life of an array: before the first
/// record of it as dirty. And once more, if parity was not known to be right (`trusted`) then:
/// before the first entry. Returns the seats on which that failed; then it is to be tried again
/// without them.
///
/// Two steps: no log is made valid again before none of them has entries. Otherwise, after a crash
/// in between, those that still have some could pass for all there are, although others were found
/// damaged. An empty log of generation 1 says that every write since has an entry (`trusted`: all
/// parity is right, and flushed), one of generation 0 that this is not so. Every member says so,
/// not only those whose logs are used: it may be these that are lost in the crash.
pub(crate) async fn prepare(shard: &Rc<StateShard>, log: &LogShard, trusted: bool) -> MemberSet {
    // Between the first time and the last there was no entry: only the headers have to be written
    // anew.
    let rounds = match (log.prepared.get(), trusted) {
        (false, _) => &[false, true][..],
        (true, true) => &[true],
        (true, false) => return MemberSet::EMPTY,
    };
    let health = shard.members.health();
    let members: Vec<(MemberIx, Device, LogArea)> = (0..)
        .map(MemberIx)
        .zip(&health.seats)
        .filter(|(seat, _)| health.state(*seat).writable())
        .filter_map(|(seat, who)| Some((seat, who.device.clone()?, who.log?)))
        .collect();
    let generation = u64::from(trusted);
    let mut failed = MemberSet::EMPTY;
    for &empty in rounds {
        let steps: Vec<_> = members
            .iter()
            .map(|(seat, device, area)| {
                let (members, seat, device, area, spec) =
                    (shard.members.clone(), *seat, device.clone(), *area, log.spec.clone());
                let step = async move {
                    let write = |at, buf| members.write_beside(seat, &device, at, vec![buf]);
                    if empty {
                        write(area.offset_bytes, spec.format.header(generation, &[])).await
                    } else {
                        zero(&device, area, write).await
                    }
                };
                (seat, shard.core.spawn(step))
            })
            .collect();
        for (seat, step) in steps {
            if step.await.is_err() {
                failed.insert(seat);
            }
        }
        if !failed.is_empty() {
            return failed;
        }
    }
    log.prepared.set(true);
    failed
}

/// Empties the log of a member that is about to join, durably.
///
/// # Errors
/// As the device says; the log is then as it was, invalid, or empty.
pub(crate) async fn clear(
    core: &Core,
    device: &Device,
    area: LogArea,
    spec: &LogSpec,
) -> Result<(), IoError> {
    let write = |at, buf| core.write(device, at, buf, Durability::Fua);
    zero(device, area, write).await?;
    write(area.offset_bytes, spec.format.header(0, &[])).await
}

/// All of it, not only the first header: a log is walked to the first place where none follows, and
/// old ones must not follow new.
async fn zero<W: Future<Output = Result<(), IoError>>>(
    device: &Device,
    area: LogArea,
    write: impl Fn(u64, Buf) -> W,
) -> Result<(), IoError> {
    // First the signature, as one block: what is left of a header must not look like one that was
    // being written.
    let block = u64::from(device.logical_block_bytes()).max(SECTOR_BYTES);
    let at = area.offset_bytes + SECTOR_BYTES / block * block;
    write(at, Buf::zeros(block as usize)).await?;
    let len_bytes = area.size_bytes - area.size_bytes % u64::from(PAGE_BYTES);
    let mut at = 0;
    while at < len_bytes {
        let zeros = Buf::zeros(PIECE_BYTES.min(len_bytes - at) as usize);
        let len = zeros.len() as u64;
        write(area.offset_bytes + at, zeros).await?;
        at += len;
    }
    Ok(())
}
