//! `wattle cat`: a volume's bytes to stdout, in order, as fast as the members deliver them.
//!
//! A few windows are read ahead, taking turns on the cores, while the oldest one is written.
//! Buffers are allocated where they are released, on the core that writes, so that the same few
//! megabytes go round and stay in the processor's caches.

use std::collections::VecDeque;
use std::io::IsTerminal;
use wattle_control::members::MemberAccess;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use wattle_control::{Code, Problem};
use wattle_engine::{VolumeError, VolumeRef};
use wattle_rt::{Buf, BufMut, Core, CoreIx, IoError, Stream, path_of_text};

use crate::cli::CatArgs;
use crate::commands::loss::{FileLoss, LossFile, MemberLoss, RescueLoss, both};
use crate::output::{self, Screen, text::printable};
use crate::volumes::{self, Meant};

/// Read and written at a time. Large enough that costs per request vanish and that every member of
/// a wide array has work, small enough that a window is still in the cache when it is written.
const WINDOW_BYTES: u64 = 2 << 20;

/// Windows read ahead per core.
const WINDOWS_PER_CORE: usize = 2;

/// More cores than one that writes and one that reads bring little: the order of the output is a
/// single queue.
const CORES_MAX: usize = 2;

/// # Errors
/// There is no such volume or range, it cannot be read, or the output cannot be written.
pub fn run(access: &MemberAccess, args: &CatArgs, screen: Screen) -> Result<(), Problem> {
    let engine = (&args.engine, CORES_MAX);
    volumes::read(
        access,
        &args.members,
        Meant::Volume(args.volume.as_deref()),
        &args.force,
        engine,
        async |core, volume, scan| {
            let range = range_of(args, &volume)?;
            let given: Vec<_> = args.members.iter().map(|name| path_of_text(name)).collect();
            let others: Vec<_> = given.iter().map(|path| &**path).collect();
            let report_to = args.report.as_ref().map(|path| LossFile::create(path, false, &others));
            let report_to = report_to.transpose()?;
            let Written { to_bytes, ended } = copy(&core, &volume, range).await;
            let (early, result) = match ended {
                Ended::Whole => (None, Ok(())),
                Ended::NotWanted => {
                    (Some("the output was closed; at least this was written".to_owned()), Ok(()))
                }
                Ended::Failed(problem) => (Some(problem.what.clone()), Err(problem)),
            };
            let whole = u64::from(early.is_none());
            let file = FileLoss::of_stream(&(range.start_bytes..range.end_bytes), to_bytes, early);
            let members = MemberLoss::of_scan(scan);
            let mut loss = RescueLoss::new("cat", members, vec![file], whole, &result);
            if whole == 0 {
                loss = loss.done_because("what reads the output closed it, and had what it wanted");
            }
            let reported = report_to.map_or(Ok(()), |report_to| report_to.write(&loss, screen.units));
            if result.is_err() {
                output::note(&printable(&format!("in all: {}", loss.summary(screen.units))));
            }
            both(result, reported)
        },
    )
}

/// How far the output got.
struct Written {
    /// In the volume: all before it was written.
    to_bytes: u64,
    ended: Ended,
}

/// Why it ended.
enum Ended {
    /// All was written.
    Whole,
    /// The reader of the output wants no more.
    NotWanted,
    Failed(Problem),
}

/// Bytes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start_bytes: u64,
    end_bytes: u64,
}

fn range_of(args: &CatArgs, volume: &VolumeRef) -> Result<Range, Problem> {
    let (offset, length) = (args.offset.0, args.length.map(|length| length.0));
    range_within(volume.size_bytes(), offset, length).ok_or_else(|| {
        let (what, asked) = match length {
            Some(length) => ("--offset and --length lie", format!("{length} bytes from byte {offset} on")),
            None => ("--offset lies", format!("from byte {offset} on")),
        };
        Problem::new(
            Code::Usage,
            format!("{what} beyond the end of {}: asked for {asked}", volume.name()),
            format!("the volume has {} bytes", volume.size_bytes()),
            "ask for less; without --length everything to the end is written",
        )
    })
}

/// `None` if it does not lie inside. An offset at the very end is an empty range.
fn range_within(size_bytes: u64, offset: u64, length: Option<u64>) -> Option<Range> {
    let end_bytes = match length {
        Some(length) => offset.checked_add(length)?,
        None => size_bytes,
    };
    (offset <= end_bytes && end_bytes <= size_bytes).then_some(Range { start_bytes: offset, end_bytes })
}

async fn copy(core: &Core, volume: &VolumeRef, range: Range) -> Written {
    let stdout = match Stream::stdout() {
        Ok(stdout) => stdout,
        Err(error) => {
            return Written {
                to_bytes: range.start_bytes,
                ended: Ended::Failed(output::output_failed(&error)),
            };
        }
    };
    let progress = progress(range.end_bytes - range.start_bytes);
    let mut windows = windows(range).zip(cores_in_turn(core));
    let mut ahead = VecDeque::new();
    let mut to_bytes = range.start_bytes;
    let ended = loop {
        while ahead.len() < WINDOWS_PER_CORE * core.cores() {
            let Some((window, reader)) = windows.next() else { break };
            let read = core.call(reader, reading(volume.clone(), window));
            // A call to the own core only starts when it is polled; a task of its own starts it
            // now.
            ahead.push_back((window, core.spawn(read)));
        }
        let Some((window, read)) = ahead.pop_front() else { break synced(core).await };
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(error) => break Ended::Failed(read_failed(volume, range, window, error)),
        };
        match core.send(&stdout, vec![bytes]).await {
            Ok(()) => progress.inc(window.end_bytes - window.start_bytes),
            Err(error) if error.errno() == libc::EPIPE => break Ended::NotWanted,
            Err(error) => break Ended::Failed(write_failed(range, window, error)),
        }
        to_bytes = window.end_bytes;
    };
    progress.finish_and_clear();
    Written { to_bytes, ended }
}

/// All was handed on. Of a file it is whole only once the disk has it.
async fn synced(core: &Core) -> Ended {
    match core.offload(output::sync_stdout).await {
        Ok(Ok(())) => Ended::Whole,
        Ok(Err(error)) => Ended::Failed(output::output_failed(&error)),
        Err(error) => Ended::Failed(output::output_failed(&error)),
    }
}

/// Cuts a range so that all windows but the first start at multiples of their size.
fn windows(range: Range) -> impl Iterator<Item = Range> {
    let mut start_bytes = range.start_bytes;
    std::iter::from_fn(move || {
        let end_bytes = (start_bytes / WINDOW_BYTES + 1).saturating_mul(WINDOW_BYTES).min(range.end_bytes);
        let window = Range { start_bytes, end_bytes };
        start_bytes = end_bytes;
        (window.start_bytes < window.end_bytes).then_some(window)
    })
}

/// Every core but this one, which writes; this one if it is alone.
fn cores_in_turn(core: &Core) -> impl Iterator<Item = CoreIx> + use<> {
    let (here, cores) = (core.index(), core.cores());
    (0..cores).map(CoreIx).filter(move |ix| cores == 1 || *ix != here).collect::<Vec<_>>().into_iter().cycle()
}

type Reading = std::pin::Pin<Box<dyn Future<Output = Result<Buf, VolumeError>>>>;

fn reading(volume: VolumeRef, window: Range) -> impl FnOnce(Core) -> Reading + Send {
    let buf = BufMut::alloc((window.end_bytes - window.start_bytes) as usize);
    move |core| {
        Box::pin(async move {
            let volume = volume.open(&core)?;
            let (done, buf) = volume.read(window.start_bytes, buf).await;
            done.map(|()| buf.freeze())
        })
    }
}

/// Shown when a person waits: stderr is a terminal and the bytes go elsewhere.
fn progress(len_bytes: u64) -> ProgressBar {
    const TEMPLATE: &str = "{bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta}";
    let target = match std::io::stdout().is_terminal() {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is a constant");
    ProgressBar::with_draw_target(Some(len_bytes), target).with_style(style)
}

fn read_failed(volume: &VolumeRef, range: Range, window: Range, error: VolumeError) -> Problem {
    let fix = match error {
        VolumeError::Unreadable => {
            "`wattle scan` tells which members are missing or stale; where parity alone has the data and was never made, \
             --force=dirty-degraded computes it from that; --offset goes on behind the place"
        }
        _ => "`wattle scan` tells which members are missing or stale; --offset goes on behind the place",
    };
    Problem::new(
        Code::VolumeFailed,
        format!("{}: reading bytes {} to {}: {error}", volume.name(), window.start_bytes, window.end_bytes),
        format!("{} bytes before that were written to the output", window.start_bytes - range.start_bytes),
        fix,
    )
}

fn write_failed(range: Range, window: Range, error: IoError) -> Problem {
    let mut problem = output::output_failed(&error);
    problem.why = format!("at least {} bytes were written", window.start_bytes - range.start_bytes);
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_inside_the_volume() {
        let range = |start_bytes, end_bytes| Some(Range { start_bytes, end_bytes });
        assert_eq!(range_within(100, 0, None), range(0, 100));
        assert_eq!(range_within(100, 100, None), range(100, 100));
        assert_eq!(range_within(100, 7, Some(0)), range(7, 7));
        assert_eq!(range_within(100, 99, Some(1)), range(99, 100));
        assert_eq!(range_within(100, 99, Some(2)), None);
        assert_eq!(range_within(100, 101, None), None);
        assert_eq!(range_within(100, 1, Some(u64::MAX)), None);
    }

    #[test]
    fn windows_cover_the_range_once_and_in_order() {
        for (start_bytes, end_bytes) in [(0, 0), (5, 5), (1, WINDOW_BYTES), (3, 5 * WINDOW_BYTES + 7), (0, 1)]
        {
            let mut at = start_bytes;
            for window in windows(Range { start_bytes, end_bytes }) {
                assert_eq!(window.start_bytes, at);
                assert!(window.end_bytes > at && window.end_bytes - at <= WINDOW_BYTES);
                at = window.end_bytes;
            }
            assert_eq!(at, end_bytes);
        }
    }
}
