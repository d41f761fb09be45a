//! Where requests to an array enter: bounds, alignment, cutting, and the way to the core that owns
//! each part.

use std::rc::Rc;

use wattle_rt::{Buf, BufMut, Durability};

use super::gather;
use crate::hints::HintShard;
use crate::hints::StreamHint;
use crate::hints::readahead::ReadNow;
use crate::lease::queue::{self, ReadPiece, WritePiece};
use crate::level::ArrayShard;
use crate::level::plain::{FailedRun, Runs, read_run, read_runs, sectors};
use crate::level::{mirror, plain};
use crate::model::error::VolumeError;
use crate::model::geometry::{Geometry, LevelKind, MemberRun};
use crate::model::health::Occupant;
use crate::model::units::{SECTOR_BYTES, Sector, StripeNo};
use crate::state::GatePermit;
use crate::state::metadata::FailCause;

/// An array on one core.
#[derive(Clone)]
pub struct ArrayVolume {
    pub(super) shard: Rc<ArrayShard>,
    /// Its user has the array to itself and passes the closed gate.
    pub(super) exclusive: bool,
}

impl ArrayVolume {
    pub(crate) fn new(shard: Rc<ArrayShard>) -> Self {
        Self { shard, exclusive: false }
    }

    /// The volume's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shard.fixed.name
    }

    /// Its size in bytes, a multiple of [`Self::block_bytes`].
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.shard.fixed.volume_bytes()
    }

    /// Whether every write is refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.shard.fixed.read_only
    }

    /// The granularity of requests that cost nothing extra, in bytes. Any range works: unaligned
    /// reads read their edges too, unaligned writes stop everything else for a moment.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.shard.fixed.block_bytes
    }

    /// The smallest request that is efficient, in bytes: the chunk (md's `minimum_io_size`).
    #[must_use]
    pub fn io_min_bytes(&self) -> u32 {
        self.geometry().io_min_bytes()
    }

    /// The request size that keeps every data member busy, in bytes (md's `optimal_io_size`); 0 if
    /// there is none.
    #[must_use]
    pub fn io_opt_bytes(&self) -> u32 {
        self.geometry().io_opt_bytes()
    }

    /// Fills `buf` from `offset_bytes` on. The buffer comes back whatever happens; after an error
    /// its contents mean nothing.
    pub async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        if let Err(error) = self.check(offset_bytes, buf.len() as u64) {
            return (Err(error), buf);
        }
        if buf.is_empty() {
            return (Ok(()), buf);
        }
        self.shard.state.counters.reads.add(1);
        self.shard.state.counters.read_bytes.add(buf.len() as u64);
        let began = self.shard.core.turn_time();
        let (ahead, range) = (&self.shard.hints.ahead, offset_bytes..offset_bytes + buf.len() as u64);
        let _under_way = ahead.begin_read(buf.len() as u64);
        let was_ahead = match ahead.follow(self, range.clone()) {
            Some(parts) => ahead.copy(&self.shard.hints, parts, offset_bytes, &mut buf).await,
            None => false,
        };
        let answer = if was_ahead {
            (Ok(()), buf)
        } else if self.widen(offset_bytes, buf.len() as u64) == (range.start, range.end) {
            self.read_aligned(offset_bytes, buf).await
        } else {
            Box::pin(self.read_widened(offset_bytes, buf)).await
        };
        self.shard.state.requests.read(self.shard.core.turn_time() - began);
        answer
    }

    /// Reads the blocks that a range lies in, and copies the range out of them.
    async fn read_widened(&self, offset_bytes: u64, mut buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        let (start, end) = self.widen(offset_bytes, buf.len() as u64);
        self.shard.state.counters.unaligned.add(1);
        let (result, wide) = self.read_aligned(start, BufMut::alloc((end - start) as usize)).await;
        if result.is_ok() {
            let at = (offset_bytes - start) as usize;
            let len = buf.len();
            buf.copy_from_slice(&wide[at..at + len]);
        }
        (result, buf)
    }

    /// Writes `buf` at `offset_bytes`. With [`Durability::Fua`] it is durable when this returns.
    ///
    /// # Cancellation
    /// Dropping the future does not take the write back: it runs to its end, so that the array
    /// never looks idle while members are being written.
    ///
    /// # Errors
    /// After [`VolumeError::WriteFailed`] the range holds an unknown mix of old and new sectors.
    pub async fn write(
        &self,
        offset_bytes: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        self.check(offset_bytes, buf.len() as u64)?;
        if self.read_only() {
            return Err(VolumeError::ReadOnly);
        }
        if buf.is_empty() {
            return Ok(());
        }
        self.shard.state.counters.writes.add(1);
        self.shard.state.counters.write_bytes.add(buf.len() as u64);
        let began = self.shard.core.turn_time();
        let result = self.write_widened(offset_bytes, buf, durability).await;
        self.shard.state.requests.written(self.shard.core.turn_time() - began);
        result
    }

    async fn write_widened(
        &self,
        offset_bytes: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let (start, end) = self.widen(offset_bytes, buf.len() as u64);
        if end - start == buf.len() as u64 {
            if let Some((stripe, at)) = self.only_stripe(start, end)
                && let Some(under_way) = self.shard.leases.try_begin_write(start..end)
            {
                // The way of most writes: the stripe's task does it, so it needs no task to outlive
                // the client.
                let piece = WritePiece { start: at, buf, durability, hint: StreamHint::default() };
                return queue::write(&self.shard, stripe, piece, Some(under_way)).await;
            }
            let volume = self.clone();
            let write = async move {
                let _under_way = volume.shard.leases.begin_write(start..end).await?;
                volume.write_aligned(start, buf, durability).await
            };
            return self.shard.core.spawn(write).await;
        }
        self.shard.state.counters.unaligned.add(1);
        // The edges are read, and must not change until they are written back: this write has the
        // array to itself.
        self.exclusively(move |volume| async move {
            let (result, mut wide) = volume.read_aligned(start, BufMut::alloc((end - start) as usize)).await;
            result?;
            let at = (offset_bytes - start) as usize;
            wide[at..at + buf.len()].copy_from_slice(&buf);
            volume.write_aligned(start, wide.freeze(), durability).await
        })
        .await
    }

    /// Makes every write that was acknowledged before, on any core, durable.
    ///
    /// # Errors
    /// [`VolumeError::Broken`], now and from then on, if that failed and redundancy could not
    /// absorb it.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        self.shard.state.flush().await
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.shard.fixed.geometry
    }

    pub(super) fn check(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        self.shard.state.check_running()?;
        let end = offset.checked_add(len).ok_or(VolumeError::OutOfRange)?;
        if end <= self.size_bytes() { Ok(()) } else { Err(VolumeError::OutOfRange) }
    }

    /// The smallest range of whole blocks around a range, in bytes.
    pub(super) fn widen(&self, offset: u64, len: u64) -> (u64, u64) {
        let block = u64::from(self.block_bytes());
        (offset / block * block, (offset + len).div_ceil(block) * block)
    }

    /// Reads whole blocks.
    // What is rare is boxed: a small read is copied where it begins, with room for the largest of
    // its states.
    async fn read_aligned(&self, offset: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        let (lba, len) = (Sector(offset / SECTOR_BYTES), sectors(buf.len()));
        let kind = self.geometry().kind();
        let runs = match kind {
            LevelKind::Striped => plain::runs(&self.shard, lba, len),
            LevelKind::Mirrored => match mirror::deal(&self.shard, lba, len) {
                Some(runs) => runs,
                None => return (Err(VolumeError::Unreadable), buf),
            },
            LevelKind::Parity if self.shard.members.optimal() => self.parity_runs(lba, len),
            LevelKind::Parity => return Box::pin(self.read_degraded(lba, buf)).await,
        };
        let (failed, buf) = if let &[run] = &runs[..] {
            let (failed, buf) = read_run(&self.shard, run, buf).await;
            (Vec::from_iter(failed), buf)
        } else {
            Box::pin(read_runs(&self.shard, &runs, buf)).await
        };
        match kind {
            _ if failed.is_empty() => (Ok(()), buf),
            LevelKind::Striped => (Err(VolumeError::Unreadable), buf),
            LevelKind::Mirrored | LevelKind::Parity => Box::pin(self.reread(lba, failed, buf)).await,
        }
    }

    /// The data blocks of a range, as they lie on the members.
    fn parity_runs(&self, mut lba: Sector, len: Sector) -> Runs {
        let end = lba + len;
        let first = self.parity_run(lba, end);
        if first.len == len {
            return Runs::from_buf([first]);
        }
        let mut runs = Runs::new();
        while lba < end {
            let run = self.parity_run(lba, end);
            lba += run.len;
            runs.push(run);
        }
        runs
    }

    fn parity_run(&self, lba: Sector, end: Sector) -> MemberRun {
        let run = self.geometry().data_place(lba);
        MemberRun { len: run.len.min(end - lba), ..run }
    }

    /// Reads stripe by stripe: directly where every block is where it should be, else by
    /// reconstruction.
    async fn read_degraded(&self, lba: Sector, mut buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        let (_, start, len) =
            self.stripes(lba, sectors(buf.len())).next().expect("a request that is not empty has a stripe");
        if len == sectors(buf.len()) {
            return self.read_stripe(start, buf).await;
        }
        let mut parts = Vec::new();
        for (_, start, len) in self.stripes(lba, sectors(buf.len())) {
            let part = buf.split_to(mirror::bytes(len));
            let volume = self.clone();
            parts.push(self.shard.core.spawn(async move { volume.read_stripe(start, part).await }));
        }
        gather(buf, parts).await
    }

    async fn read_stripe(&self, lba: Sector, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        let runs = self.parity_runs(lba, sectors(buf.len()));
        let slow = self.shard.members.slow();
        let direct = |run: &MemberRun| {
            !slow.contains(run.member)
                && self.shard.members.readable(run.member, run.sector..run.sector + run.len)
        };
        if !runs.iter().all(direct) {
            return self.recover(lba, buf).await;
        }
        match read_runs(&self.shard, &runs, buf).await {
            (failed, buf) if failed.is_empty() => (Ok(()), buf),
            (failed, buf) => self.reread(lba, failed, buf).await,
        }
    }

    /// Reads what failed again, part by part.
    async fn reread(
        &self,
        lba: Sector,
        failed: Vec<FailedRun>,
        mut buf: BufMut,
    ) -> (Result<(), VolumeError>, BufMut) {
        let member =
            |failure: &FailedRun| failure.fatal.map(|since| Occupant { seat: failure.run.member, since });
        let fatal = failed.iter().filter_map(member);
        let fatal: Vec<_> = fatal.collect();
        if !fatal.is_empty() {
            // An array that breaks may still have what is asked for on other members.
            let _ = self
                .shard
                .state
                .home(move |home| async move { home.fail(fatal, FailCause::Read).await })
                .await;
        }
        for failure in failed {
            let mut at = lba + Sector(failure.at as u64 / SECTOR_BYTES);
            let end = at + failure.run.len;
            while at < end {
                let len = match self.geometry().kind() {
                    LevelKind::Parity => self.stripes(at, end - at).next().map(|(_, _, len)| len),
                    LevelKind::Mirrored | LevelKind::Striped => {
                        mirror::pieces(&self.shard, at, end - at).next().map(|(_, len)| len)
                    }
                };
                let len = len.expect("a range that is not empty has a piece");
                let (result, part) = self.recover(at, BufMut::alloc(mirror::bytes(len))).await;
                if result.is_err() {
                    return (result, buf);
                }
                let offset = mirror::bytes(at - lba);
                buf[offset..offset + part.len()].copy_from_slice(&part);
                at += len;
            }
        }
        (Ok(()), buf)
    }

    /// Reads a part of one stripe, or of one mirrored range, with redundancy for the blocks that
    /// cannot be read.
    async fn recover(&self, lba: Sector, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        match self.geometry().kind() {
            LevelKind::Parity => {
                let (stripe, ..) = self.geometry().locate(lba);
                self.reconstruct(stripe, lba, buf).await
            }
            LevelKind::Mirrored | LevelKind::Striped => self.repair_mirror(lba, buf).await,
        }
    }

    async fn enter_read(&self) -> Result<Option<GatePermit>, VolumeError> {
        if self.exclusive { Ok(None) } else { self.shard.state.enter_read().await.map(Some) }
    }

    async fn reconstruct(
        &self,
        stripe: StripeNo,
        lba: Sector,
        buf: BufMut,
    ) -> (Result<(), VolumeError>, BufMut) {
        let permit = match self.enter_read().await {
            Ok(permit) => permit,
            Err(error) => return (Err(error), buf),
        };
        let owner = queue::owner(stripe, self.shard.core.cores());
        let avoid = self.shard.members.slow();
        let piece = ReadPiece { start: self.offset_in_stripe(stripe, lba), buf, avoid };
        let volume = self.clone();
        let work = async move {
            let _permit = permit;
            volume.at(owner, move |shard| async move { queue::read(&shard, stripe, piece).await }).await
        };
        self.shard.core.spawn(work).await
    }

    async fn repair_mirror(&self, lba: Sector, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        let permit = match self.enter_read().await {
            Ok(permit) => permit,
            Err(error) => return (Err(error), buf),
        };
        let owner = mirror::owner(&self.shard, lba);
        let avoid = self.shard.members.slow();
        let volume = self.clone();
        let work = async move {
            let _permit = permit;
            volume
                .at(owner, move |shard| async move { mirror::read_and_repair(&shard, lba, buf, avoid).await })
                .await
        };
        self.shard.core.spawn(work).await
    }

    /// Writes whole blocks. The caller holds a permit.
    // As with reads, what most writes do not come to is boxed.
    pub(super) async fn write_aligned(
        &self,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let lba = Sector(offset / SECTOR_BYTES);
        match self.geometry().kind() {
            LevelKind::Striped => plain::write(&self.shard, lba, buf, durability).await,
            LevelKind::Mirrored => {
                let len = sectors(buf.len());
                if mirror::pieces(&self.shard, lba, len).next().is_some_and(|(_, first)| first == len) {
                    return self.write_copies(lba, buf, durability).await;
                }
                let mut rest = buf;
                let cut = mirror::pieces(&self.shard, lba, len).map(|(at, len)| {
                    let part = rest.slice(..mirror::bytes(len));
                    rest = rest.slice(mirror::bytes(len)..);
                    (at, part)
                });
                let pieces = cut.collect();
                let write = self.join(pieces, move |volume, (at, part): (Sector, Buf)| async move {
                    volume.write_copies(at, part, durability).await
                });
                Box::pin(write).await
            }
            LevelKind::Parity => {
                let mut rest = buf;
                let mut pieces = Vec::new();
                for (stripe, at, len) in self.stripes(lba, sectors(rest.len())) {
                    let part = rest.slice(..mirror::bytes(len));
                    rest = rest.slice(mirror::bytes(len)..);
                    let start = self.offset_in_stripe(stripe, at);
                    pieces.push((
                        stripe,
                        WritePiece { start, buf: part, durability, hint: StreamHint::default() },
                    ));
                }
                let write = self.join(pieces, |volume, (stripe, piece)| async move {
                    queue::write(&volume.shard, stripe, piece, None).await
                });
                Box::pin(write).await
            }
        }
    }

    /// Writes one piece to every copy: here where this core owns it or has it leased, else there.
    async fn write_copies(&self, at: Sector, part: Buf, durability: Durability) -> Result<(), VolumeError> {
        let leased = mirror::lease(&self.shard, at, sectors(part.len()));
        let owner = mirror::owner(&self.shard, at);
        if leased.is_some() || owner == self.shard.core.index() {
            return mirror::write(&self.shard, leased, at, part, durability).await;
        }
        let there = self
            .at(owner, move |shard| async move { mirror::write(&shard, None, at, part, durability).await });
        Box::pin(there).await
    }

    /// Cuts a range at stripe boundaries: stripe, first array sector, length.
    fn stripes(&self, lba: Sector, len: Sector) -> impl Iterator<Item = (StripeNo, Sector, Sector)> + use<> {
        let width = self.geometry().stripe_data_sectors();
        let end = lba + len;
        std::iter::successors(Some(lba), move |at| Some(Sector((at.0 / width.0 + 1) * width.0)))
            .take_while(move |&at| at < end)
            .map(move |at| {
                let stripe = StripeNo(at.0 / width.0);
                (stripe, at, Sector((stripe.0 + 1) * width.0).min(end) - at)
            })
    }

    /// The stripe that a range of bytes lies in, and where in its data, if it is a single one.
    fn only_stripe(&self, start: u64, end: u64) -> Option<(StripeNo, u64)> {
        if self.geometry().kind() != LevelKind::Parity {
            return None;
        }
        let width = self.geometry().stripe_data_sectors().0 * SECTOR_BYTES;
        let stripe = StripeNo(start / width);
        (end <= (stripe.0 + 1) * width).then(|| (stripe, start - stripe.0 * width))
    }

    fn offset_in_stripe(&self, stripe: StripeNo, lba: Sector) -> u64 {
        (lba.0 - stripe.0 * self.geometry().stripe_data_sectors().0) * SECTOR_BYTES
    }

    /// Runs `f` for every piece at once; the first error wins, but every piece ends first.
    async fn join<P, F, Fut>(&self, pieces: Vec<P>, f: F) -> Result<(), VolumeError>
    where
        F: Fn(Self, P) -> Fut,
        Fut: Future<Output = Result<(), VolumeError>> + 'static,
    {
        let mut pieces = pieces;
        if pieces.len() == 1 {
            let piece = pieces.pop().expect("there is one");
            return f(self.clone(), piece).await;
        }
        let tasks: Vec<_> =
            pieces.into_iter().map(|piece| self.shard.core.spawn(f(self.clone(), piece))).collect();
        let mut result = Ok(());
        for task in tasks {
            result = result.and(task.await);
        }
        result
    }

    /// Runs `f` on the core `owner`.
    async fn at<T, F, Fut>(&self, owner: wattle_rt::CoreIx, f: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(Rc<ArrayShard>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        if owner == self.shard.core.index() {
            return f(self.shard.clone()).await;
        }
        let key = self.shard.fixed.key;
        self.shard
            .core
            .call(owner, move |core| async move {
                // The caller's permit keeps the array running, and with it every core's shard.
                f(core.local::<ArrayShard>(key).expect("a running array has a shard on every core")).await
            })
            .await
    }

    /// Runs `job` at the array's home with nothing else in flight.
    async fn exclusively<F, Fut>(&self, job: F) -> Result<(), VolumeError>
    where
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), VolumeError>> + 'static,
    {
        let key = self.shard.fixed.key;
        self.shard
            .state
            .home(move |home| async move {
                let Some(shard) = home.shard().core.local::<ArrayShard>(key) else {
                    return Err(VolumeError::Stopped);
                };
                let volume = Self { shard, exclusive: true };
                home.exclusively(async move |permit| {
                    let result = job(volume).await;
                    // Until here, so that the array is not taken for idle and recorded clean
                    // meanwhile.
                    drop(permit);
                    result
                })
                .await?
            })
            .await
    }
}

impl ReadNow for ArrayVolume {
    fn hints(&self) -> &Rc<HintShard> {
        &self.shard.hints
    }

    async fn read_now(&self, offset_bytes: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        self.read_aligned(offset_bytes, buf).await
    }
}
