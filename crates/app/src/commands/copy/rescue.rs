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
//! Invariants:
//! - The map on disk says "copied" only of what is durable in the copy ([`MapWriter`]).
//! - Bytes of an earlier run go only when the source has given what follows them, also where the
//!   map does not have them: a drive that is dying may not give them a second time.
//! - A place is called bad only by a source that still gives others: one that is gone fails
//!   everywhere.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::time::Duration;

use indicatif::ProgressBar;
use wattle_control::{Code, Problem};
use wattle_format::rescue_map::{Phase, RescueMap, Status};
use wattle_rt::{BufMut, Core, CoreIx, Device, Durability, Instant, IoError, IoErrorKind, JoinHandle, Unmap};

use super::target::{CopyTarget, MapFile, samples};

/// Read at a time while nothing fails.
const WINDOW_BYTES: u64 = 2 << 20;

/// Windows under way per core.
const WINDOWS_PER_CORE: usize = 4;

/// Pieces of windows that failed. A bad sector costs a drive seconds, so there should not be many
/// of them in each read.
const PIECE_BYTES: u64 = 64 << 10;

/// So many of the samples of what was copied are read again when the source is in doubt.
const PROBES_STEP: usize = 2;

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
    probes: Probes,
}

/// Places that were read well, which tell a source with bad places from one that is gone.
#[derive(Default)]
struct Probes {
    places: Vec<u64>,
    /// How much was copied when they were chosen.
    of_bytes: u64,
    /// Which one is next.
    next: usize,
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
    let CopyTarget { output, map, map_file, map_room, resumed, .. } = target;
    let map_writer = MapWriter {
        core: core.clone(),
        output: output.clone(),
        file: map_file,
        due: core.now() + KEEP_EVERY,
        room: Some(map_room),
        running: None,
        flush_failed: false,
    };
    let (source, phase, probes) = (source.clone(), Phase::Copying, Probes::default());
    let mut rescue = Rescue { core, source, output, map, map_writer, phase, progress, probes };
    let done = rescue.run(!resumed, effort).await;
    let end = rescue.map_writer.finish(&rescue.map, rescue.phase).await;
    (rescue.map, told(done, end))
}

/// How the copying ended, with what the map says by now.
fn told(done: Result<(), Problem>, map: MapEnd) -> Result<(), Problem> {
    let more = |problem: Problem, more: &str| Problem { why: format!("{}; {more}", problem.why), ..problem };
    match (done, map) {
        (Ok(()), MapEnd::Written) => Ok(()),
        (Ok(()), MapEnd::NotWritten(problem)) => Err(problem),
        (Err(problem), MapEnd::Written) => {
            Err(more(problem, "what was copied is kept, and the map says what it is"))
        }
        (Err(problem), MapEnd::NotWritten(map)) => {
            let problem = Problem { what: format!("{}; and the map: {}", problem.what, map.what), ..problem };
            Err(more(problem, "the map does not have what was copied last, which is read again"))
        }
        (done, MapEnd::Stays(flush)) => done
            .and(flush)
            .map_err(|problem| more(problem, "the copy cannot be trusted beyond what its map says")),
    }
}

impl Rescue<'_> {
    async fn run(&mut self, holes: bool, effort: RescueEffort) -> Result<(), Problem> {
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

    /// `holes` says that all of the copy is one, so that zeros need not be written.
    async fn forwards(&mut self, holes: bool) -> Result<(), Problem> {
        let mut readers = (0..self.core.cores()).map(CoreIx).cycle();
        let mut ahead = Ahead::new();
        let (mut from, mut result) = (0, Ok(()));
        loop {
            while result.is_ok() && ahead.len() < WINDOWS_PER_CORE * self.core.cores() {
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
            let Some((window, moving)) = ahead.pop_front() else { return result };
            let moved = moving.await;
            // What was under way when another window ended the copying is read off the source too.
            let mut noted = self.note(window, moved, Status::NonTrimmed).await.map(drop);
            if noted.is_ok() && result.is_ok() {
                noted = self.map_writer.keep(&self.map, self.phase).await;
            }
            result = result.and(noted);
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
        let good = self.note(part, moved, otherwise).await?;
        self.map_writer.keep(&self.map, self.phase).await?;
        Ok(good)
    }

    /// Notes what came of a part. A source that is gone fails everywhere: that would be noted of
    /// sectors that are good.
    async fn note(
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
            Err(Failed::Source(error)) if is_of_the_place(error) && self.is_there(error).await => {
                self.progress.set_message("some of it cannot be read");
                self.map.set(part, otherwise);
                Ok(false)
            }
            Err(Failed::Source(error)) => Err(source_failed(&self.source, error)),
            Err(Failed::Output(error)) => Err(output_failed(&self.output, error)),
        }
    }

    /// Whether the source is still there after a place failed: it has its size, and gives something
    /// of what it gave before. Drives are read past the page cache. Of a source that has not given
    /// anything yet nothing is known.
    async fn is_there(&mut self, error: IoError) -> bool {
        if !self.source.keeps_its_size() {
            return false;
        }
        let copied_bytes = self.map.bytes(Status::Finished);
        let probes = &mut self.probes;
        if copied_bytes >= 2 * probes.of_bytes {
            let sector_bytes = u64::from(self.source.logical_block_bytes());
            let samples = samples(&self.map, sector_bytes).into_iter().filter(|sample| !sample.is_empty());
            probes.places = samples.step_by(PROBES_STEP).map(|sample| sample.start).collect();
            probes.of_bytes = copied_bytes;
        }
        // The map of a copy says by itself what is not in it.
        if probes.places.is_empty() || error == IoError::NOT_COPIED {
            return true;
        }
        for _ in 0..probes.places.len() {
            probes.next = (probes.next + 1) % probes.places.len();
            let sector = BufMut::alloc(self.source.logical_block_bytes() as usize);
            if self.core.read(&self.source, probes.places[probes.next], sector).await.0.is_ok() {
                return true;
            }
        }
        false
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

/// Reads a part and writes it to the same place. Zeros become holes; `holes` says that they are
/// already.
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
    let mut end = 0;
    for run in runs(&buf).into_iter().chain(std::iter::once(len..len)) {
        let zeros = std::mem::replace(&mut end, run.end)..run.start;
        let offset_bytes = |run: &Range<usize>| part.start + run.start as u64;
        if !holes && !zeros.is_empty() {
            let punch = core.write_zeroes(output, offset_bytes(&zeros), zeros.len() as u64, Unmap::Yes);
            let punched = match punch.await {
                Err(error) if error.kind() == IoErrorKind::Unsupported => {
                    core.write(output, offset_bytes(&zeros), buf.slice(zeros), Durability::Cached).await
                }
                punched => punched,
            };
            punched.map_err(Failed::Output)?;
        }
        if !run.is_empty() {
            let write = core.write(output, offset_bytes(&run), buf.slice(run), Durability::Cached);
            write.await.map_err(Failed::Output)?;
        }
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
    /// Room for the map until it is written for the last time.
    room: Option<File>,
    running: Option<JoinHandle<Kept>>,
    /// The system reports lost writes once: after that no flush proves anything, and the map stays
    /// as it is.
    flush_failed: bool,
}

/// What came of a flush of the copy, and of the map that was written then.
type Kept = Result<Result<(), Problem>, FlushFailed>;

struct FlushFailed(Problem);

/// What became of the map in the end.
enum MapEnd {
    Written,
    NotWritten(Problem),
    /// After a flush that failed, now or before.
    Stays(Result<(), Problem>),
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

    /// Writes the map for the last time, also if that failed while the copying went on: then there
    /// was no room.
    async fn finish(&mut self, map: &RescueMap, phase: Phase) -> MapEnd {
        let waited = self.wait().await;
        if self.flush_failed {
            return MapEnd::Stays(waited);
        }
        self.room = None;
        match self.write(map, phase).await {
            Ok(Ok(())) => MapEnd::Written,
            Ok(Err(problem)) => MapEnd::NotWritten(problem),
            Err(FlushFailed(problem)) => MapEnd::Stays(Err(problem)),
        }
    }

    async fn wait(&mut self) -> Result<(), Problem> {
        let Some(running) = self.running.take() else { return Ok(()) };
        running.await.unwrap_or_else(|FlushFailed(problem)| {
            self.flush_failed = true;
            Err(problem)
        })
    }

    fn write(&self, map: &RescueMap, phase: Phase) -> impl Future<Output = Kept> + use<> {
        let (core, output, file) = (self.core.clone(), self.output.clone(), self.file.clone());
        let position = map.first(Status::NonTried, 0).map_or(0, |area| area.start);
        let text = map.render(phase, position);
        async move {
            core.flush(&output).await.map_err(|error| FlushFailed(output_failed(&output, error)))?;
            let write = core.offload(move || file.write(&text)).await;
            Ok(write.unwrap_or_else(|error| Err(output_failed(&output, error))))
        }
    }
}

fn source_failed(source: &Device, error: IoError) -> Problem {
    Problem::new(
        Code::ReadFailed,
        format!("{}: {error}", source.name()),
        "no place of it can be read any more, nor can those that could be before",
        "bring the drive back, or mend what else ended it (a server, metadata that another program changed), and run the same command \
         again: it goes on where it stopped",
    )
}

fn output_failed(output: &Device, error: IoError) -> Problem {
    let (why, next) = match error.kind() {
        IoErrorKind::NoSpace => (
            "the file system is full",
            "free space there and run the same command again: it goes on where it stopped",
        ),
        _ => (
            "its drive or file system failed",
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
