//! One simulated drive: its content, its volatile cache, and its faults.

use crate::base::error::IoError;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::device::{Device, Hosted};
use crate::memory::pages::{PAGE_BYTES, Pages};
use crate::model::DriveModel;
use crate::op::{Durability, Op};
use crate::sim::control::WriteRecord;
use crate::sim::service::Service;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a simulated drive is made.
///
/// Its time, unless it has a [`DriveModel`]: everything it does goes through one server, in the
/// order of arrival. An operation occupies it for the longest of what the limits below ask for, so
/// reads and writes share one budget; a latency is added on top, during which the next is served.
/// Latencies are drawn evenly from their ranges, so completions come out of order; a range that
/// ends where it starts is that latency always.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// Size in bytes, a multiple of the sector.
    pub size_bytes: u64,
    /// The atomic unit: 512 or 4096.
    pub sector_bytes: u32,
    /// How long a read takes.
    pub read_latency: Range<Duration>,
    /// How long a write takes.
    pub write_latency: Range<Duration>,
    /// How long a flush takes.
    pub flush_latency: Range<Duration>,
    /// Bytes per second that reads share, 0 for no limit.
    pub read_bytes_per_second: u64,
    /// Bytes per second that writes share, 0 for no limit.
    pub write_bytes_per_second: u64,
    /// Operations per second that all share, 0 for no limit.
    pub ops_per_second: u64,
    /// Reads per second, 0 for no limit: a read occupies the drive for at least its share of a
    /// second.
    pub reads_per_second: u64,
    /// Writes and zeroings per second, 0 for no limit.
    pub writes_per_second: u64,
    /// Whether completed writes stay volatile until a flush. Without it they are durable at
    /// completion.
    pub volatile_cache: bool,
    /// Bytes whose contents are kept; everything else reads as zeros whatever is written, so that
    /// large drives cost no memory. Parity and copies of zeros agree, so such a drive is consistent
    /// as a member. Whole sectors.
    pub kept_bytes: Range<u64>,
    /// How long everything takes, instead of the latencies and limits above.
    pub model: Option<DriveModel>,
    /// Its name in reports.
    pub name: String,
}

impl Default for DriveConfig {
    /// 1 MiB of 512-byte sectors, 50 to 150 µs for everything, a volatile cache.
    fn default() -> DriveConfig {
        let latency = Duration::from_micros(50)..Duration::from_micros(150);
        DriveConfig {
            size_bytes: 1 << 20,
            sector_bytes: 512,
            read_latency: latency.clone(),
            write_latency: latency.clone(),
            flush_latency: latency,
            read_bytes_per_second: 0,
            write_bytes_per_second: 0,
            ops_per_second: 0,
            reads_per_second: 0,
            writes_per_second: 0,
            volatile_cache: true,
            kept_bytes: 0..u64::MAX,
            model: None,
            name: "sim".to_owned(),
        }
    }
}

/// A drive shared between its handles. One thread steps a world, so the lock is never contended.
#[derive(Clone)]
pub(crate) struct DriveHandle(Arc<Mutex<Drive>>);

impl DriveHandle {
    pub(crate) fn new(drive: Drive) -> DriveHandle {
        DriveHandle(Arc::new(Mutex::new(drive)))
    }

    /// The simulated drive behind a device, if there is one.
    pub(crate) fn of(device: &Device) -> Option<&DriveHandle> {
        device.hosted()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Drive> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// It lives in virtual time: threads without an executor get no answer.
impl Hosted for DriveHandle {
    fn loses_write_backs(&self) -> bool {
        self.lock().faults.loses_write_backs
    }
}

/// What one sector holds.
#[derive(Clone, Debug)]
enum Content {
    Bytes(Box<[u8]>),
    Unreadable,
}

/// One version of a sector; the number orders completions.
type Version = (u64, Content);

/// Everything on a drive, volatile or not.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    /// What a reader sees.
    pages: Pages,
    /// Sectors that answer reads with a medium error.
    unreadable: BTreeSet<u64>,
    /// Sectors with completed but unflushed writes: first what is durable, then each version since,
    /// oldest first.
    unflushed: BTreeMap<u64, Vec<Version>>,
}

/// A drive's contents at one moment, its volatile cache included. Cheap: pages are shared.
#[derive(Clone)]
pub struct DriveSnapshot(pub(crate) Contents);

/// What is wrong with a drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) gone: bool,
    pub(crate) gone_after_ops: Option<u64>,
    pub(crate) fail_reads: u64,
    pub(crate) fail_writes: u64,
    pub(crate) fail_flushes: u64,
    pub(crate) lose_writes: u64,
    pub(crate) misdirect_sectors: Option<i64>,
    pub(crate) lying_flush: bool,
    pub(crate) no_write_zeroes: bool,
    /// Acknowledged writes were lost, and no flush or forced write has said so yet.
    pub(crate) write_back_lost: bool,
    /// It is behind a page cache that lost some before.
    pub(crate) loses_write_backs: bool,
    pub(crate) stalled_until: Instant,
    pub(crate) slow: u32,
}

pub(crate) struct Drive {
    pub(crate) id: u64,
    pub(crate) config: DriveConfig,
    pub(crate) contents: Contents,
    pub(crate) faults: Faults,
    /// Operations submitted so far.
    pub(crate) ops: u64,
    /// The number of the next completed write.
    next_version: u64,
    power_losses: u64,
    pub(crate) service: Service,
    /// When the world looks at it again.
    pub(crate) wake: Option<Instant>,
    pub(crate) log: Option<Vec<WriteRecord>>,
    rng: Rng,
}

/// The facts that an operation on its way through a drive must remember from its submission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    /// When it completes, unless the drive stalls. A model decides that later.
    pub(crate) at: Option<Instant>,
    /// A flush covers the versions below this.
    covers_below: u64,
    /// How often the drive had lost its power by then.
    power_losses: u64,
    /// Its fate, if that is decided already.
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Serve,
    Refuse(IoError),
    Lose,
    Misdirect(i64),
}

impl Drive {
    pub(crate) fn new(id: u64, config: DriveConfig, mut rng: Rng) -> Drive {
        assert!(matches!(config.sector_bytes, 512 | 4096), "sectors are 512 or 4096 bytes");
        assert!(config.size_bytes.is_multiple_of(u64::from(config.sector_bytes)), "a drive is whole sectors");
        let service = Service::new(&config, &mut rng);
        Drive {
            id,
            config,
            contents: Contents::default(),
            faults: Faults { slow: 1, ..Faults::default() },
            ops: 0,
            next_version: 1,
            power_losses: 0,
            service,
            wake: None,
            log: None,
            rng,
        }
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.config.sector_bytes)
    }

    // The life of an operation.

    /// Takes an operation in: decides when it completes and, where a fault waits for it, how.
    pub(crate) fn accept(&mut self, op: &Op, now: Instant) -> Accepted {
        self.ops += 1;
        match &mut self.faults.gone_after_ops {
            Some(0) => self.faults.gone = true,
            Some(left) => *left -= 1,
            None => {}
        }
        let verdict = if self.faults.gone { Verdict::Refuse(IoError::GONE) } else { self.verdict(op) };
        let at = self.service.accept(&self.config, op, self.faults.slow, &mut self.rng, now);
        Accepted { at, covers_below: self.next_version, power_losses: self.power_losses, verdict }
    }

    fn verdict(&mut self, op: &Op) -> Verdict {
        let faults = &mut self.faults;
        let take = |count: &mut u64| {
            let any = *count > 0;
            *count -= u64::from(any);
            any
        };
        let (offset, len) = op.extent();
        let sector = u64::from(self.config.sector_bytes);
        if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            return Verdict::Refuse(IoError::INVALID);
        }
        let failed = match op {
            Op::Read(_) => take(&mut faults.fail_reads),
            Op::Write(..) | Op::WriteZeroes { .. } => take(&mut faults.fail_writes),
            _ => take(&mut faults.fail_flushes),
        };
        match op {
            _ if failed => Verdict::Refuse(IoError::MEDIUM),
            Op::WriteZeroes { .. } if faults.no_write_zeroes => Verdict::Refuse(IoError::UNSUPPORTED),
            Op::Write(..) if take(&mut faults.lose_writes) => Verdict::Lose,
            Op::Write(..) => faults.misdirect_sectors.take().map_or(Verdict::Serve, Verdict::Misdirect),
            _ => Verdict::Serve,
        }
    }

    /// Completes an operation: its effect becomes visible now, all at once.
    pub(crate) fn complete(
        &mut self,
        op: &mut Op,
        accepted: Accepted,
        now: Instant,
    ) -> Result<usize, IoError> {
        self.service.complete(op, now);
        let verdict = match accepted.verdict {
            // Nothing that was under way when the power went is answered afterwards.
            Verdict::Serve if self.faults.gone || accepted.power_losses < self.power_losses => {
                Verdict::Refuse(IoError::GONE)
            }
            verdict => verdict,
        };
        if let Verdict::Refuse(error) = verdict {
            // A write that failed may have landed in parts, unless the drive never looked at it.
            if matches!(error, IoError::MEDIUM) || accepted.verdict == Verdict::Serve {
                self.write_in_parts(op, &mut |rng| if rng.coin() { Landing::New } else { Landing::Old });
            }
            return Err(error);
        }
        // The whole range is written out, and then one of the requests is told of what was lost.
        let reports = matches!(op, Op::Flush { .. } | Op::Write(_, Durability::Fua))
            && std::mem::take(&mut self.faults.write_back_lost);
        let moved = self.serve(op, accepted, verdict, now)?;
        if reports { Err(IoError::MEDIUM) } else { Ok(moved) }
    }

    fn serve(
        &mut self,
        op: &mut Op,
        accepted: Accepted,
        verdict: Verdict,
        now: Instant,
    ) -> Result<usize, IoError> {
        match op {
            Op::Read(transfer) => {
                let len = transfer.len() as u64;
                self.check_readable(transfer.offset, len)?;
                let mut at = transfer.offset;
                for buf in transfer.bufs.as_mut_slice() {
                    self.read(at, buf);
                    at += buf.len() as u64;
                }
                Ok(len as usize)
            }
            Op::Write(transfer, durability) => {
                let len = transfer.len();
                let mut offset = transfer.offset;
                match verdict {
                    Verdict::Lose => return Ok(len),
                    Verdict::Misdirect(sectors) => offset = self.misdirected(offset, len as u64, sectors),
                    _ => {}
                }
                if self.keeps_any(offset, len as u64) || !self.contents.unreadable.is_empty() {
                    let bytes = flat(transfer.bufs.as_slice());
                    self.write(offset, &bytes, *durability == Durability::Fua);
                }
                self.record(offset, len as u64, *durability, now);
                Ok(len)
            }
            Op::WriteZeroes { offset, len, .. } => {
                self.write_zeroes(*offset, *len);
                self.record(*offset, *len, Durability::Cached, now);
                Ok(0)
            }
            _ => {
                if !self.faults.lying_flush {
                    self.contents.flush(accepted.covers_below);
                }
                Ok(0)
            }
        }
    }

    /// The power goes while `op` is in flight.
    pub(crate) fn tear(
        &mut self,
        op: &Op,
        accepted: Accepted,
        unreadable_ppm: u32,
        choose: &mut Chooser<'_>,
    ) {
        if matches!(accepted.verdict, Verdict::Serve) && !self.faults.gone {
            self.write_in_parts(op, &mut |rng| {
                if unreadable_ppm > 0 && rng.chance_ppm(unreadable_ppm) {
                    return Landing::Unreadable;
                }
                if choose(rng, 2) == 1 { Landing::New } else { Landing::Old }
            });
        }
    }

    /// The power goes: of each unflushed sector, any version lands. What was durable before may be
    /// it too.
    pub(crate) fn lose_cache(&mut self, choose: &mut Chooser<'_>) {
        self.power_losses += 1;
        for (sector, mut versions) in std::mem::take(&mut self.contents.unflushed) {
            let chosen = choose(&mut self.rng, versions.len());
            let (_, content) = versions.swap_remove(chosen);
            self.contents.set(sector, self.sector_bytes(), content);
        }
        self.service.reset();
    }

    /// The write-back of what is not durable in a range fails: what was durable is read again.
    pub(crate) fn lose_write_back(&mut self, offset: u64, len: u64) {
        let sectors = offset / self.sector_bytes()..(offset + len).div_ceil(self.sector_bytes());
        let lost: Vec<u64> = self.contents.unflushed.range(sectors).map(|(sector, _)| *sector).collect();
        self.faults.write_back_lost |= !lost.is_empty();
        self.faults.loses_write_backs = true;
        for sector in lost {
            let Some(mut versions) = self.contents.unflushed.remove(&sector) else { continue };
            let (_, durable) = versions.swap_remove(0);
            self.contents.set(sector, self.sector_bytes(), durable);
        }
    }

    /// Everything in the cache is durable: after a power cut there is no cache that could lose it.
    pub(crate) fn settle_cache(&mut self) {
        self.contents.unflushed.clear();
    }

    /// Writes some sectors of a write: the rest stays as it is. What lands is durable or not like
    /// any write.
    fn write_in_parts(&mut self, op: &Op, fate: &mut dyn FnMut(&mut Rng) -> Landing) {
        let (offset, bytes) = match op {
            Op::Write(transfer, _) => (transfer.offset, flat(transfer.bufs.as_slice())),
            Op::WriteZeroes { offset, len, .. } => (*offset, Cow::Owned(vec![0; *len as usize])),
            _ => return,
        };
        let sector_bytes = self.sector_bytes();
        for (index, bytes) in bytes.chunks_exact(sector_bytes as usize).enumerate() {
            let at = offset + index as u64 * sector_bytes;
            match fate(&mut self.rng) {
                Landing::Old => {}
                Landing::New => self.write(at, bytes, false),
                Landing::Unreadable => {
                    self.contents.unflushed.remove(&(at / sector_bytes));
                    self.contents.set(at / sector_bytes, sector_bytes, Content::Unreadable);
                }
            }
        }
    }

    fn misdirected(&self, offset: u64, len: u64, sectors: i64) -> u64 {
        let wanted = offset.saturating_add_signed(sectors.saturating_mul(self.sector_bytes().cast_signed()));
        wanted.min(self.config.size_bytes - len)
    }

    fn check_readable(&self, offset: u64, len: u64) -> Result<(), IoError> {
        let sectors = offset / self.sector_bytes()..(offset + len) / self.sector_bytes();
        match self.contents.unreadable.range(sectors).next() {
            Some(_) => Err(IoError::MEDIUM),
            None => Ok(()),
        }
    }

    fn record(&mut self, offset_bytes: u64, len_bytes: u64, durability: Durability, completed: Instant) {
        if let Some(log) = &mut self.log {
            log.push(WriteRecord { offset_bytes, len_bytes, durability, completed });
        }
    }

    // Contents.

    fn keeps_any(&self, offset: u64, len: u64) -> bool {
        offset < self.config.kept_bytes.end && self.config.kept_bytes.start < offset + len
    }

    fn keeps(&self, sector: u64) -> bool {
        self.config.kept_bytes.contains(&(sector * self.sector_bytes()))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        if self.keeps_any(offset, bytes.len() as u64) {
            self.contents.read(offset, bytes);
        } else {
            bytes.fill(0);
        }
    }

    /// Writes whole sectors; durable at once if the drive has no volatile cache or is told to (and
    /// does not lie).
    fn write(&mut self, offset: u64, bytes: &[u8], forced: bool) {
        let durable = !self.config.volatile_cache || (forced && !self.faults.lying_flush);
        let sector_bytes = self.sector_bytes();
        let version = self.next_version;
        self.next_version += 1;
        for (index, bytes) in bytes.chunks_exact(sector_bytes as usize).enumerate() {
            let sector = offset / sector_bytes + index as u64;
            if self.keeps(sector) {
                self.contents.write_sector(sector, sector_bytes, bytes, (!durable).then_some(version));
            } else {
                self.contents.unreadable.remove(&sector);
            }
        }
    }

    /// Zeroes whole sectors. Only sectors that are not durably zero already need work, so zeroing a
    /// large, empty drive costs nothing.
    fn write_zeroes(&mut self, offset: u64, len: u64) {
        let sector_bytes = self.sector_bytes();
        let sectors = offset / sector_bytes..(offset + len) / sector_bytes;
        let contents = &self.contents;
        let mut touched: BTreeSet<u64> = contents.unreadable.range(sectors.clone()).copied().collect();
        touched.extend(contents.unflushed.range(sectors.clone()).map(|(sector, _)| *sector));
        let per_page = PAGE_BYTES / sector_bytes;
        for page in contents.pages.present(offset..offset + len) {
            touched
                .extend((page * per_page..(page + 1) * per_page).filter(|sector| sectors.contains(sector)));
        }
        let version = self.next_version;
        self.next_version += 1;
        let zeros = [0; 4096];
        let cached = self.config.volatile_cache.then_some(version);
        for sector in touched {
            self.contents.write_sector(sector, sector_bytes, &zeros[..sector_bytes as usize], cached);
        }
    }

    /// Sets bytes at any offset, durably.
    pub(crate) fn poke(&mut self, offset: u64, bytes: &[u8]) {
        let sector_bytes = self.sector_bytes();
        let first = offset / sector_bytes;
        let end = (offset + bytes.len() as u64).div_ceil(sector_bytes);
        let mut whole = vec![0; ((end - first) * sector_bytes) as usize];
        self.contents.read(first * sector_bytes, &mut whole);
        let within = (offset - first * sector_bytes) as usize;
        whole[within..within + bytes.len()].copy_from_slice(bytes);
        for (index, bytes) in whole.chunks_exact(sector_bytes as usize).enumerate() {
            if self.keeps(first + index as u64) {
                self.contents.write_sector(first + index as u64, sector_bytes, bytes, None);
            }
        }
    }

    /// What a power cut that lost the whole cache would leave.
    pub(crate) fn peek_durable(&self, offset: u64, bytes: &mut [u8]) {
        let sector_bytes = self.sector_bytes();
        self.contents.read(offset, bytes);
        let end = offset + bytes.len() as u64;
        let sectors = offset / sector_bytes..end.div_ceil(sector_bytes);
        for (sector, versions) in self.contents.unflushed.range(sectors) {
            let Some((_, Content::Bytes(durable))) = versions.first() else { continue };
            let at = sector * sector_bytes;
            let (from, to) = (at.max(offset), (at + sector_bytes).min(end));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&durable[(from - at) as usize..(to - at) as usize]);
        }
    }
}

/// Decides one of `n` outcomes of a power cut.
pub(crate) type Chooser<'a> = dyn FnMut(&mut Rng, usize) -> usize + 'a;

enum Landing {
    Old,
    New,
    Unreadable,
}

impl Contents {
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.pages.read(offset, bytes);
    }

    /// Writes one sector: as an unflushed version, or durably (`None`), which ends all earlier
    /// versions.
    fn write_sector(&mut self, sector: u64, sector_bytes: u64, bytes: &[u8], cached: Option<u64>) {
        match cached {
            None => drop(self.unflushed.remove(&sector)),
            Some(version) => {
                if !self.unflushed.contains_key(&sector) {
                    let durable = self.get(sector, sector_bytes);
                    self.unflushed.insert(sector, vec![(0, durable)]);
                }
                let versions = self.unflushed.get_mut(&sector).expect("it was just put there");
                versions.push((version, Content::Bytes(bytes.into())));
            }
        }
        self.pages.write(sector * sector_bytes, bytes);
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&sector);
        }
    }

    /// Makes the versions below `below` durable: the newest of them replaces what was.
    fn flush(&mut self, below: u64) {
        self.unflushed.retain(|_, versions| {
            let newest = versions.iter().rposition(|(version, _)| *version < below).unwrap_or(0);
            versions.drain(..newest);
            versions.len() > 1
        });
    }

    fn get(&self, sector: u64, sector_bytes: u64) -> Content {
        if self.unreadable.contains(&sector) {
            return Content::Unreadable;
        }
        let mut bytes = vec![0; sector_bytes as usize].into_boxed_slice();
        self.read(sector * sector_bytes, &mut bytes);
        Content::Bytes(bytes)
    }

    fn set(&mut self, sector: u64, sector_bytes: u64, content: Content) {
        match content {
            Content::Unreadable => drop(self.unreadable.insert(sector)),
            Content::Bytes(bytes) => {
                self.unreadable.remove(&sector);
                self.pages.write(sector * sector_bytes, &bytes);
            }
        }
    }

    pub(crate) fn mark_unreadable(&mut self, sector: u64) {
        self.unflushed.remove(&sector);
        self.unreadable.insert(sector);
    }

    pub(crate) fn is_unreadable(&self, sector: u64) -> bool {
        self.unreadable.contains(&sector)
    }

    pub(crate) fn unflushed_sectors(&self) -> usize {
        self.unflushed.len()
    }
}

/// The buffers as one run of bytes; a single buffer is not copied.
fn flat<B: std::ops::Deref<Target = [u8]>>(bufs: &[B]) -> Cow<'_, [u8]> {
    match bufs {
        [buf] => Cow::Borrowed(buf),
        bufs => Cow::Owned(bufs.iter().flat_map(|buf| buf.iter().copied()).collect()),
    }
}
