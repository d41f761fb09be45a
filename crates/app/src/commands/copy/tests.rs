//! Sources that fail in a place, and sources that go while they are copied.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use wattle_rt::{BufMut, IoError, OpenOptions, Reply, Serve};

use super::*;
use crate::cli::{Cli, CliCommand};

const SIZE_BYTES: u64 = 64 << 20;

/// A drive with a bad place. After so many reads it is gone, and calls every place bad.
struct Dying {
    bad: Range<u64>,
    reads_left: AtomicU64,
}

impl Serve for Dying {
    fn read(&self, _: &Core, offset: u64, mut buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let left = self.reads_left.load(Ordering::Relaxed);
        self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        let bad = offset < self.bad.end && self.bad.start < offset + buf.len() as u64;
        let result = if left == 0 || bad { Err(IoError::MEDIUM) } else { Ok(()) };
        buf.fill(7);
        Box::pin(std::future::ready((result, buf)))
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// How a copy ends, and the areas of its map as the disk has it.
type Copied = (Result<(), Problem>, Vec<(Range<u64>, Status)>);

/// What a copy of a source comes to.
fn copied(dir: &Path, source: impl FnOnce(&Core) -> Device, opened: impl FnOnce()) -> Copied {
    let to = dir.join("copy");
    let cli = ["wattle", "copy", "--raw", "drive", "--cores", "1", "--to", to.to_str().unwrap()];
    let CliCommand::Copy(args) = Cli::try_parse_from(cli).unwrap().command else { unreachable!() };
    let effort = RescueEffort { scrape: true, retries: 0 };
    let result = members::run(&args.engine, 1, async |core| {
        let source = source(&core);
        let target = CopyTarget::open(&args, &core, &source).await?;
        opened();
        Ok(rescue::copy(&core, &source, target, effort, &ProgressBar::hidden()).await.1)
    });
    let text = std::fs::read_to_string(dir.join("copy.map")).unwrap();
    (result.unwrap(), RescueMap::parse(&text, SIZE_BYTES).unwrap().areas().collect())
}

fn dying(dir: &Path, bad: Range<u64>, reads: u64) -> Copied {
    let drive = Dying { bad, reads_left: AtomicU64::new(reads) };
    copied(dir, |core| Device::served("drive", SIZE_BYTES, 512, false, core, Arc::new(drive)), || {})
}

#[test]
fn a_bad_place_is_narrowed_down_to_its_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let bad = (9 << 20) + 512..(9 << 20) + 2048;
    let (result, areas) = dying(dir.path(), bad.clone(), u64::MAX);
    assert_eq!(result, Ok(()));
    assert_eq!(areas[1], (bad, Status::Bad));
    assert_eq!((areas.len(), areas[0].1, areas[2].1), (3, Status::Finished, Status::Finished));
}

#[test]
fn no_place_of_a_drive_that_is_gone_is_called_bad() {
    for reads in [3, 9, 20] {
        let dir = tempfile::tempdir().unwrap();
        let (result, areas) = dying(dir.path(), 0..0, reads);
        let problem = result.unwrap_err();
        assert_eq!(problem.code, Code::ReadFailed);
        assert!(problem.why.contains("and the map says what it is"), "{problem:?}");
        let copied = 0..reads * (2 << 20);
        assert_eq!(areas, [(copied.clone(), Status::Finished), (copied.end..SIZE_BYTES, Status::NonTried)]);
    }
}

/// A drive that fell off its bus has no size any more, and answers with nothing.
#[test]
fn no_place_of_a_source_that_lost_its_size_is_called_bad() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    std::fs::write(&path, vec![7; SIZE_BYTES as usize]).unwrap();
    let open = |_: &Core| Device::open(&path, OpenOptions::default()).unwrap();
    let cut_off =
        || std::fs::File::options().write(true).open(&path).unwrap().set_len(SIZE_BYTES / 2).unwrap();
    let (result, areas) = copied(dir.path(), open, cut_off);
    assert_eq!(result.unwrap_err().code, Code::ReadFailed);
    let half = SIZE_BYTES / 2;
    assert_eq!(areas, [(0..half, Status::Finished), (half..SIZE_BYTES, Status::NonTried)]);
}

/// The map is written under another name first: what is there then goes.
#[test]
fn a_copy_is_not_where_its_map_is_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let check = |to: &str, map: &str| {
        let cli = ["wattle", "copy", "--raw", "drive", "--to", &at(to), "--map", &at(map)];
        let CliCommand::Copy(args) = Cli::try_parse_from(cli).unwrap().command else { unreachable!() };
        target::check(&args, &[])
    };
    for to in ["x.map", "x.map.new", "sub/../x.map.new"] {
        assert_eq!(check(to, "x.map").unwrap_err().code, Code::Usage, "{to}");
    }
    assert_eq!(check("x.new", "x.map"), Ok(()));
    std::os::unix::fs::symlink(at("x.map.new"), at("link")).unwrap();
    std::fs::write(at("x.map.new"), "").unwrap();
    assert_eq!(check("link", "x.map").unwrap_err().code, Code::Usage);
}
