//! Requests that need no lease: reads of data that is where it should be, and writes where
//! there is no redundancy.
//!
//! A request is cut into runs, and runs that follow one another on a member go as one vectored
//! operation.

use std::rc::Rc;

use smallvec::SmallVec;
use wattle_rt::{Buf, BufMut, Durability, IoError, IoErrorKind};

use crate::level::ArrayShard;
use crate::member::{Bufs, in_time};
use crate::model::error::VolumeError;
use crate::model::geometry::MemberRun;
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};

/// Most buffers in one vectored operation, below Linux' IOV_MAX of 1024.
const VECTOR_MAX: usize = 512;

/// A run that could not be read, with its part of the request's buffer.
#[derive(Debug)]
pub(crate) struct FailedRun {
    pub run: MemberRun,
    /// Where in the request it starts, in bytes.
    pub at: usize,
    /// The member is to be failed, rather than just these sectors be unreadable: the one that was
    /// there since then.
    pub fatal: Option<u64>,
}

/// Where the parts of a request are. A small one has a single part.
pub(crate) type Runs = SmallVec<[MemberRun; 1]>;

struct Group<B> {
    member: MemberIx,
    sector: Sector,
    end: Sector,
    /// Number of the run, and its buffer.
    parts: Vec<(usize, B)>,
}

/// Groups runs by member, in the order of their members' sectors within the request.
fn group<B>(runs: &[MemberRun], mut cut: impl FnMut(usize) -> B) -> Vec<Group<B>> {
    let mut groups: Vec<Group<B>> = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let buf = cut((run.len.0 * SECTOR_BYTES) as usize);
        let last = groups.iter_mut().rev().find(|group| group.member == run.member);
        match last.filter(|group| group.end == run.sector && group.parts.len() < VECTOR_MAX) {
            Some(group) => {
                group.end += run.len;
                group.parts.push((number, buf));
            }
            None => groups.push(Group {
                member: run.member,
                sector: run.sector,
                end: run.sector + run.len,
                parts: vec![(number, buf)],
            }),
        }
    }
    groups
}

/// Reads a run that is all of a request; returns the buffer, and the run if it failed.
pub(crate) async fn read_run(
    shard: &Rc<ArrayShard>,
    run: MemberRun,
    buf: BufMut,
) -> (Option<FailedRun>, BufMut) {
    let (len, since) = (buf.len(), shard.members.since(run.member));
    let read = shard.members.read_one(run.member, run.sector, buf);
    let redundant = shard.fixed.geometry.redundancy() > 0;
    let answer = if redundant { in_time(&shard.members, read).await } else { Some(read.await) };
    match answer {
        Some((Ok(()), buf)) => (None, buf),
        Some((Err(error), buf)) => {
            (Some(FailedRun { run, at: 0, fatal: fatal(shard, run.member, since, error) }), buf)
        }
        None => {
            // The member still has the buffer.
            shard.members.note_late(run.member);
            (Some(FailedRun { run, at: 0, fatal: None }), BufMut::alloc(len))
        }
    }
}

/// Whether the member that was asked is to be failed for an error. Another member may be there by
/// now, and the error says nothing of that.
fn fatal(shard: &ArrayShard, member: MemberIx, since: u64, error: IoError) -> Option<u64> {
    (shard.members.since(member) == since && shard.members.judge_read_error(member, error)).then_some(since)
}

/// Reads `runs` into `buf`, which they fill from end to end; returns it with the runs that failed.
pub(crate) async fn read_runs(
    shard: &Rc<ArrayShard>,
    runs: &[MemberRun],
    mut buf: BufMut,
) -> (Vec<FailedRun>, BufMut) {
    let groups = group(runs, |len| buf.split_to(len));
    debug_assert!(buf.is_empty(), "the runs of a request fill its buffer");
    let mut reads = Vec::with_capacity(groups.len());
    for group in groups {
        let (numbers, bufs): (Vec<_>, Vec<_>) = group.parts.into_iter().unzip();
        let since = shard.members.since(group.member);
        reads.push((group.member, since, numbers, shard.members.read(group.member, group.sector, bufs)));
    }
    let mut parts: Vec<Option<BufMut>> = runs.iter().map(|_| None).collect();
    let mut failed = Vec::new();
    let redundant = shard.fixed.geometry.redundancy() > 0;
    let mut late_parts = false;
    for (member, since, numbers, read) in reads {
        let answer = if redundant { in_time(&shard.members, read).await } else { Some(read.await) };
        let Some((result, bufs)) = answer else {
            // The member still has the buffers of these runs.
            shard.members.note_late(member);
            late_parts = true;
            let late = |&number: &usize| FailedRun { run: runs[number], at: number, fatal: None };
            failed.extend(numbers.iter().map(late));
            continue;
        };
        if let Err(error) = result {
            let fatal = fatal(shard, member, since, error);
            let of = |&number: &usize| FailedRun { run: runs[number], at: number, fatal };
            failed.extend(numbers.iter().map(of));
        }
        // A member that was given up has kept them.
        late_parts |= bufs.is_empty();
        for (number, part) in numbers.into_iter().zip(bufs) {
            parts[number] = Some(part);
        }
    }
    if late_parts {
        buf = copied(runs, &parts);
    } else {
        for part in parts.into_iter().flatten() {
            if buf.is_empty() { buf = part } else { buf.unsplit(part) }
        }
    }
    for failure in &mut failed {
        let before = runs[..failure.at].iter().map(|run| run.len.0 * SECTOR_BYTES).sum::<u64>();
        failure.at = before as usize;
    }
    failed.sort_by_key(|failure| failure.at);
    (failed, buf)
}

/// One buffer for all runs, with what is there of them.
fn copied(runs: &[MemberRun], parts: &[Option<BufMut>]) -> BufMut {
    let len = runs.iter().map(|run| run.len.0 * SECTOR_BYTES).sum::<u64>() as usize;
    let mut whole = BufMut::alloc(len);
    let mut at = 0;
    for (run, part) in runs.iter().zip(parts) {
        let end = at + (run.len.0 * SECTOR_BYTES) as usize;
        if let Some(part) = part {
            whole[at..end].copy_from_slice(part);
        }
        at = end;
    }
    whole
}

/// Writes to a level without redundancy: a failed write is the client's to know, the member stays.
pub(crate) async fn write(
    shard: &Rc<ArrayShard>,
    lba: Sector,
    mut buf: Buf,
    durability: Durability,
) -> Result<(), VolumeError> {
    let runs = runs(shard, lba, sectors(buf.len()));
    let groups = group(&runs, |len| {
        let part = buf.slice(..len);
        buf = buf.slice(len..);
        part
    });
    let writes: Vec<_> = groups
        .into_iter()
        .map(|group| {
            let bufs: Bufs = group.parts.into_iter().map(|(_, buf)| buf).collect();
            shard.members.write(group.member, group.sector, bufs, durability)
        })
        .collect();
    let mut result = Ok(());
    for write in writes {
        if let Err(error) = write.await {
            let no_space = error.kind() == IoErrorKind::NoSpace;
            result = Err(if no_space { VolumeError::NoSpace } else { VolumeError::WriteFailed });
        }
    }
    result
}

/// The runs of a range of a level without redundancy.
pub(crate) fn runs(shard: &ArrayShard, mut lba: Sector, mut len: Sector) -> Runs {
    let mut runs = Runs::new();
    while len > Sector(0) {
        let run = shard.fixed.geometry.map(lba);
        let run = MemberRun { len: run.len.min(len), ..run };
        lba += run.len;
        len -= run.len;
        runs.push(run);
    }
    runs
}

pub(crate) fn sectors(bytes: usize) -> Sector {
    debug_assert_eq!(bytes as u64 % SECTOR_BYTES, 0);
    Sector(bytes as u64 / SECTOR_BYTES)
}
