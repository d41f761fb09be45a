//! Getting everything off a source that it still gives: first what comes easily, then what fails,
//! in ever smaller pieces.
//!
//! 1. Forwards in large windows, several at a time. A window that fails is left for later: what is
//!    good comes first.
//! 2. What failed, in smaller pieces.
//! 3. Pieces that failed, sector by sector from both edges inwards, up to the first bad sector.
//! 4. What lies between, sector by sector.
//! 5. Bad sectors again, as often as asked for.
//!
//! Every place is read once in each, so it comes to an end whatever the source does.
//!
//! Invariant: the map on disk says "copied" only of what is durable in the copy ([`MapWriter`]).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use indicatif::ProgressBar;
use wattle_control::{Code, Problem};
use wattle_format::rescue_map::{Phase, RescueMap, Status};
use wattle_rt::{BufMut, Core, CoreIx, Device, Durability, Instant, IoError, IoErrorKind, JoinHandle, Unmap};

use super::target::{CopyTarget, MapFile};

/// Read at a time while nothing fails.
const WINDOW_BYTES: u64 = 2 << 20;

/// Windows under way per core.
const WINDOWS_PER_CORE: usize = 4;

/// Pieces of windows that failed. A bad sector costs a drive seconds, so there should not be many
/// of them in each read.
const PIECE_BYTES: u64 = 64 << 10;

/// What is looked at when deciding whether bytes become a hole.
const HOLE_BYTES: usize = 4096;

/// So often the copy is made durable and the map written.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// What the operator asked for.
#[derive(Debug, Clone, Copy)]
pub struct RescueEffort {
    /// Read bad areas sector by sector.
    pub scrape: bool,
    /// How often bad sectors are read again.
    pub retries: u16,
}

/// Why a piece was not copied.
#[derive(Clone, Copy)]
enum Failed {
    Source(IoError),
    Output(IoError),
}

/// Windows under way, in the order in which they were begun.
type Ahead = VecDeque<(Range<u64>, JoinHandle<Result<(), Failed>>)>;

/// A copy under way.
pub struct Rescue<'a> {
    core: &'a Core,
    source: Device,
    output: Device,
    map: RescueMap,
    map_writer: MapWriter,
    phase: Phase,
    progress: &'a ProgressBar,
}

/// Copies what is not copied yet, and returns the map, whatever happened; and why it ended early,
/// if it did.
pub async fn copy(
    core: &Core,
    source: &Device,
    target: CopyTarget,
    effort: RescueEffort,
    progress: &ProgressBar,
) -> (RescueMap, Result<(), Problem>) {
    let CopyTarget { output, map, map_file, resumed } = target;
    let map_writer = MapWriter {
        core: core.clone(),
        output: output.clone(),
        file: map_file,
        due: core.now() + KEEP_EVERY,
        running: None,
        failed: false,
    };
    let source = source.clone();
    let mut rescue = Rescue { core, source, output, map, map_writer, phase: Phase::Copying, progress };
    let done = rescue.run(resumed, effort).await;
    let kept = rescue.map_writer.finish(&rescue.map, rescue.phase).await;
    (rescue.map, done.and(kept))
}

impl Rescue<'_> {
    async fn run(&mut self, resumed: bool, effort: RescueEffort) -> Result<(), Problem> {
        let holes = if resumed { self.clear_untried().await? } else { true };
        self.forwards(holes).await?;
        self.pieces().await?;
        self.phase = Phase::Trimming;
        self.edges().await?;
        if effort.scrape {
            self.phase = Phase::Scraping;
            self.sectors(Status::NonScraped).await?;
        }
        self.phase = Phase::Retrying;
        for _ in 0..effort.retries {
            self.sectors(Status::Bad).await?;
        }
        self.phase = Phase::Finished;
        Ok(())
    }

    /// Takes away what a copy that was interrupted wrote and did not note in its map, so that zeros
    /// need not be written. Says whether that could be done.
    async fn clear_untried(&mut self) -> Result<bool, Problem> {
        let mut from = 0;
        while let Some(area) = self.map.first(Status::NonTried, from) {
            from = area.end;
            match self.core.write_zeroes(&self.output, area.start, area.end - area.start, Unmap::Yes).await {
                Ok(()) => {}
                Err(error) if error.kind() == IoErrorKind::Unsupported => return Ok(false),
                Err(error) => return Err(output_failed(&self.output, error)),
            }
        }
        Ok(true)
    }

    async fn forwards(&mut self, holes: bool) -> Result<(), Problem> {
        let mut readers = (0..self.core.cores()).map(CoreIx).cycle();
        let mut ahead = Ahead::new();
        let mut from = 0;
        loop {
            while ahead.len() < WINDOWS_PER_CORE * self.core.cores() {
                let Some(untried) = self.map.first(Status::NonTried, from) else { break };
                let window = self.cut(untried, WINDOW_BYTES);
                from = window.end;
                let (source, output, part) = (self.source.clone(), self.output.clone(), window.clone());
                let moving =
                    self.core.call(readers.next().expect("a cycle has no end"), move |core| async move {
                        move_part(&core, &source, &output, part, holes).await
                    });
                ahead.push_back((window, self.core.spawn(moving)));
            }
            let Some((window, moving)) = ahead.pop_front() else { return Ok(()) };
            let moved = moving.await;
            self.note(window, moved, Status::NonTrimmed)?;
            self.map_writer.keep(&self.map, self.phase).await?;
        }
    }

    async fn pieces(&mut self) -> Result<(), Problem> {
        let mut from = 0;
        while let Some(failed) = self.map.first(Status::NonTrimmed, from) {
            let piece = self.cut(failed, PIECE_BYTES);
            from = piece.end;
            self.try_part(piece, Status::NonTrimmed).await?;
        }
        Ok(())
    }

    async fn edges(&mut self) -> Result<(), Problem> {
        while let Some(area) = self.map.first(Status::NonTrimmed, 0) {
            let sectors = area.start / self.sector_bytes()..area.end.div_ceil(self.sector_bytes());
            let mut rest = area;
            for sector in sectors.clone() {
                let sector = self.sector(sector, &rest);
                rest.start = sector.end;
                if !self.try_part(sector, Status::Bad).await? {
                    break;
                }
            }
            for sector in sectors.rev() {
                if rest.is_empty() {
                    break;
                }
                let sector = self.sector(sector, &rest);
                rest.end = sector.start;
                if !self.try_part(sector, Status::Bad).await? {
                    break;
                }
            }
            self.map.set(rest, Status::NonScraped);
        }
        Ok(())
    }

    async fn sectors(&mut self, status: Status) -> Result<(), Problem> {
        let mut from = 0;
        while let Some(area) = self.map.first(status, from) {
            let sector = self.sector(area.start / self.sector_bytes(), &area);
            from = sector.end;
            self.try_part(sector, Status::Bad).await?;
        }
        Ok(())
    }

    /// Copies a part of what failed before, zeros included: something else may be in the copy. Says
    /// whether it could be read.
    async fn try_part(&mut self, part: Range<u64>, otherwise: Status) -> Result<bool, Problem> {
        let moved = move_part(self.core, &self.source, &self.output, part.clone(), false).await;
        let good = self.note(part, moved, otherwise)?;
        self.map_writer.keep(&self.map, self.phase).await?;
        Ok(good)
    }

    /// Notes what came of a part. A source that is gone fails everywhere: that would be noted of
    /// sectors that are good.
    fn note(
        &mut self,
        part: Range<u64>,
        moved: Result<(), Failed>,
        otherwise: Status,
    ) -> Result<bool, Problem> {
        match moved {
            Ok(()) => {
                self.progress.inc(part.end - part.start);
                self.map.set(part, Status::Finished);
                Ok(true)
            }
            Err(Failed::Source(error)) if is_of_the_place(error) => {
                self.progress.set_message("some of it cannot be read");
                self.map.set(part, otherwise);
                Ok(false)
            }
            Err(Failed::Source(error)) => Err(source_failed(&self.source, error)),
            Err(Failed::Output(error)) => Err(output_failed(&self.output, error)),
        }
    }

    /// The first part of an area, up to the next multiple of `max_bytes`. Bytes behind the last
    /// whole sector are a part of their own.
    fn cut(&self, area: Range<u64>, max_bytes: u64) -> Range<u64> {
        let whole_end = self.source.size_bytes() / self.sector_bytes() * self.sector_bytes();
        let end = ((area.start / max_bytes + 1) * max_bytes).min(area.end);
        if area.start < whole_end { area.start..end.min(whole_end) } else { area.start..end }
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.source.logical_block_bytes().max(512))
    }

    /// What lies of a sector inside of an area.
    fn sector(&self, sector: u64, area: &Range<u64>) -> Range<u64> {
        let start = sector * self.sector_bytes();
        start.max(area.start)..(start + self.sector_bytes()).min(area.end)
    }
}

/// Whether another place may still be read after this.
fn is_of_the_place(error: IoError) -> bool {
    matches!(error.kind(), IoErrorKind::Medium | IoErrorKind::EndOfDevice) || error.errno() == libc::ETIMEDOUT
}

/// Reads a part and writes it to the same place; what is zero only where it has to be.
async fn move_part(
    core: &Core,
    source: &Device,
    output: &Device,
    part: Range<u64>,
    holes: bool,
) -> Result<(), Failed> {
    let len = (part.end - part.start) as usize;
    let sector_bytes = u64::from(source.logical_block_bytes());
    let (result, buf) = if part.start.is_multiple_of(sector_bytes) && part.end.is_multiple_of(sector_bytes) {
        core.read(source, part.start, BufMut::alloc(len)).await
    } else {
        read_odd(core, source, part.start, len).await
    };
    result.map_err(Failed::Source)?;
    let buf = buf.freeze();
    let written = if holes { runs(&buf) } else { std::iter::once(0..len).collect() };
    for run in written {
        let offset_bytes = part.start + run.start as u64;
        let write = core.write(output, offset_bytes, buf.slice(run), Durability::Cached);
        write.await.map_err(Failed::Output)?;
    }
    Ok(())
}

/// Reads what no drive gives at once: the bytes at the end of a file that are no whole sector, or
/// parts of sectors that another program's map names.
async fn read_odd(
    core: &Core,
    source: &Device,
    offset_bytes: u64,
    len: usize,
) -> (Result<(), IoError>, BufMut) {
    let source = source.clone();
    let read = core.offload(move || {
        let mut buf = BufMut::alloc(len);
        (source.read_blocking(offset_bytes, &mut buf), buf)
    });
    read.await.unwrap_or_else(|error| (Err(error), BufMut::alloc(0)))
}

/// The runs of blocks that are not zero.
fn runs(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (ix, block) in bytes.chunks(HOLE_BYTES).enumerate() {
        // Most blocks of data differ from zero early; those that do not are compared as a whole,
        // which is faster than byte by byte.
        let zero = block[0] == 0 && block.iter().fold(0, |seen, byte| seen | byte) == 0;
        let start = ix * HOLE_BYTES;
        match runs.last_mut() {
            _ if zero => {}
            Some(run) if run.end == start => run.end = start + block.len(),
            _ => runs.push(start..start + block.len()),
        }
    }
    runs
}

/// Keeps the map: every few seconds beside the copying, and at the end. A map is written after the
/// copy was flushed and says what had been written before the flush.
struct MapWriter {
    core: Core,
    output: Device,
    file: MapFile,
    due: Instant,
    running: Option<JoinHandle<Result<(), Problem>>>,
    /// The system reports lost writes once: after that no flush proves anything, and the map stays
    /// as it is.
    failed: bool,
}

impl MapWriter {
    /// Starts writing the map if it is time, and notes how the last time went.
    async fn keep(&mut self, map: &RescueMap, phase: Phase) -> Result<(), Problem> {
        if self.core.now() < self.due || self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return Ok(());
        }
        self.wait().await?;
        self.due = self.core.now() + KEEP_EVERY;
        self.running = Some(self.core.spawn(self.write(map, phase)));
        Ok(())
    }

    /// Writes the map for the last time.
    async fn finish(&mut self, map: &RescueMap, phase: Phase) -> Result<(), Problem> {
        self.wait().await?;
        if self.failed { Ok(()) } else { self.write(map, phase).await }
    }

    async fn wait(&mut self) -> Result<(), Problem> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let kept = running.await;
        self.failed |= kept.is_err();
        kept
    }

    fn write(&self, map: &RescueMap, phase: Phase) -> impl Future<Output = Result<(), Problem>> + use<> {
        let (core, output, file) = (self.core.clone(), self.output.clone(), self.file.clone());
        let position = map.first(Status::NonTried, 0).map_or(0, |area| area.start);
        let text = map.render(phase, position);
        async move {
            core.flush(&output).await.map_err(|error| output_failed(&output, error))?;
            let write = core.offload(move || file.write(&text));
            write.await.map_err(|error| output_failed(&output, error))?
        }
    }
}

fn source_failed(source: &Device, error: IoError) -> Problem {
    Problem::new(
        Code::ReadFailed,
        format!("{}: {error}", source.name()),
        "it does not answer any more, at any place; what was copied is kept, and the map says what it is",
        "bring the drive back and run the same command again: it goes on where it stopped",
    )
}

fn output_failed(output: &Device, error: IoError) -> Problem {
    let (why, next) = match error.kind() {
        IoErrorKind::NoSpace => (
            "the file system is full; what was copied is kept, and the map says what it is",
            "free space there and run the same command again: it goes on where it stopped",
        ),
        _ => (
            "the copy cannot be trusted beyond what its map says",
            "look after the drive it is on; run the same command again, or copy to another one",
        ),
    };
    Problem::new(Code::OutputFailed, format!("{}: {error}", output.name()), why, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_of_zeros_are_holes() {
        let mut bytes = vec![0; 5 * HOLE_BYTES + 100];
        assert_eq!(runs(&bytes), []);
        bytes[2 * HOLE_BYTES - 1] = 1;
        bytes[2 * HOLE_BYTES] = 1;
        bytes[5 * HOLE_BYTES + 99] = 1;
        assert_eq!(runs(&bytes), [HOLE_BYTES..3 * HOLE_BYTES, 5 * HOLE_BYTES..5 * HOLE_BYTES + 100]);
        assert_eq!(runs(&[]), []);
    }
}
