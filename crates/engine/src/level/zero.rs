//! Zeros over whole stripes: zero data has zero parity, so each member's part is zeroed by one
//! operation and redundancy stays right. The caller has the array to itself.

use std::ops::Range;
use std::rc::Rc;

use wattle_rt::{Buf, Durability, IoError, IoErrorKind, Unmap};

use crate::level::ArrayShard;
use crate::level::mirror;
use crate::level::plain;
use crate::member::Outcome;
use crate::model::error::VolumeError;
use crate::model::geometry::{LevelKind, MemberRun};
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};
use crate::state::intent;

/// Longest write of zeros where a member cannot zero by itself.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// What to do with members that cannot zero a range by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// Nothing, if no member can; the request was only a hint. Where some can and some cannot,
    /// zeros are written: copies and parity have to agree.
    Skip,
    /// Write zeros.
    Write,
}

/// Zeroes the array sectors of `range`, whole stripes on levels with parity.
pub(crate) async fn whole(
    shard: &Rc<ArrayShard>,
    range: Range<Sector>,
    unmap: Unmap,
    unsupported: Unsupported,
) -> Result<(), VolumeError> {
    let _intent =
        intent::enter(&shard.state, intent::sync_range(&shard.fixed.geometry, range.clone())).await?;
    let health = shard.members.health();
    if health.broken {
        return Err(VolumeError::Broken);
    }
    let runs: Vec<MemberRun> = runs(shard, range)
        .into_iter()
        .flat_map(|run| {
            health.writable_for(run.member).map(move |member| MemberRun { member, ..run }).collect::<Vec<_>>()
        })
        .collect();
    let zeroes: Vec<_> =
        runs.iter().map(|run| shard.members.write_zeroes(run.member, run.sector, run.len, unmap)).collect();
    let mut outcome = Outcome::default();
    let mut left: Vec<MemberRun> = Vec::new();
    let mut untouched = true;
    for (run, zeroed) in runs.iter().zip(zeroes) {
        match zeroed.await {
            Ok(()) => {
                untouched = false;
                outcome.note(&health, run.member, run.sectors(), Ok(()));
            }
            // What was given up may yet land: nothing else is sent after it.
            Err(IoError::GONE) => {
                untouched = false;
                outcome.note(&health, run.member, run.sectors(), Err(IoError::GONE));
            }
            // Drives refuse to zero with all kinds of errors, and may have begun; a member goes
            // only if it takes no writes.
            Err(error) => {
                untouched &= error.kind() == IoErrorKind::Unsupported;
                left.push(*run);
            }
        }
    }
    if !(untouched && unsupported == Unsupported::Skip) {
        for run in left {
            let written = write_zeros(shard, run).await;
            outcome.note(&health, run.member, run.sectors(), written);
        }
    }
    if planted::is(Bug::ZeroKeepsBadBlocks) {
        outcome.forget_mended();
    }
    shard.state.settle_change(&health, outcome).await
}

async fn write_zeros(shard: &Rc<ArrayShard>, run: MemberRun) -> Result<(), IoError> {
    let piece = Sector(PIECE_BYTES / SECTOR_BYTES);
    let mut at = Sector(0);
    while at < run.len {
        let len = piece.min(run.len - at);
        let zeros = vec![Buf::zeros(mirror::bytes(len))];
        shard.members.write(run.member, run.sector + at, zeros, Durability::Cached).await?;
        at += len;
    }
    Ok(())
}

/// The place of the range on each member, neighbouring runs joined.
fn runs(shard: &ArrayShard, range: Range<Sector>) -> Vec<MemberRun> {
    let geometry = &shard.fixed.geometry;
    match geometry.kind() {
        LevelKind::Parity => {
            let width = geometry.stripe_data_sectors();
            let chunk = geometry.chunk();
            let (first, end) = (range.start.0 / width.0, range.end.0 / width.0);
            (0..geometry.raid_disks() as u16)
                .map(|slot| MemberRun {
                    member: MemberIx(slot),
                    sector: Sector(first * chunk.0),
                    len: Sector((end - first) * chunk.0),
                })
                .collect()
        }
        LevelKind::Striped => joined(plain::runs(shard, range.start, range.end - range.start).into_iter()),
        LevelKind::Mirrored => {
            joined(mirror::pieces(shard, range.start, range.end - range.start).flat_map(|(at, len)| {
                let copies = geometry.copies(at);
                let runs: Vec<_> = copies
                    .iter()
                    .map(|copy| MemberRun { member: copy.member, sector: copy.sector, len })
                    .collect();
                runs
            }))
        }
    }
}

/// Joins runs that follow one another on a member.
fn joined(runs: impl Iterator<Item = MemberRun>) -> Vec<MemberRun> {
    let mut runs: Vec<MemberRun> = runs.collect();
    runs.sort_by_key(|run| (run.member, run.sector));
    runs.dedup_by(|next, last| {
        let follows = last.member == next.member && last.sector + last.len == next.sector;
        if follows {
            last.len += next.len;
        }
        follows
    });
    runs
}
