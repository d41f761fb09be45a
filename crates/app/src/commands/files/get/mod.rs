//! `wattle get`: files out of the file system on a volume, as they were.

mod attributes;
mod checksums;
mod extract;
mod survey;
mod tar;

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use wattle_control::members::MemberAccess;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use wattle_control::units::Units;
use wattle_control::{Check, Code, Problem};
use wattle_fs::{Error, FileKind, FsNode};
use wattle_rt::{path_of_text, text_of_path};
use wattle_server::protocol::SCHEMA_VERSION;

use super::place::{OutputDirectory, is_name};
use super::{Failure, FileSystemReport, Opened, shown, with_file_system};
use crate::cli::GetArgs;
use crate::commands::loss::{FileLoss, LossFile, RescueLoss, both, read_as_members, refuse_others};
use crate::members;
use crate::output::text::printable;
use crate::output::{self, Screen, sync_stdout};
use checksums::Checksums;
use extract::{ExtractCounts, Extracted, Extraction, WhatComesOut, WhatIsThere};
use survey::Survey;
use tar::{Archived, TarStream};

/// In place of a directory or file: the standard output, as a file's bytes or an archive.
const STDOUT: &str = "-";
/// The same, always as an archive.
const STDOUT_TAR: &str = "-.tar";

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    volume: String,
    file_system: FileSystemReport,
    path: String,
    to: String,
    #[serde(flatten)]
    counts: ExtractCounts,
    not_extracted: Vec<Failure>,
    loss: RescueLoss,
}

/// # Errors
/// There is no such volume, file system or path, the output cannot be written, or something did not
/// come out.
pub fn run(access: &MemberAccess, args: &GetArgs, screen: Screen) -> Result<(), Problem> {
    if args.to.as_bytes().starts_with(b"-") && args.to != STDOUT && args.to != STDOUT_TAR {
        return Err(Problem::new(
            Code::Usage,
            printable(&format!("--to {}", text_of_path(&args.to))),
            "it looks like an option",
            format!("a directory of that name is ./{}", text_of_path(&args.to)),
        ));
    }
    let to_stdout = args.to == STDOUT || args.to == STDOUT_TAR;
    if to_stdout && (args.json.json || args.checksums.is_some() || args.resume || args.overwrite) {
        return Err(Problem::new(
            Code::Usage,
            "--to - with --json, --checksums, --resume or --overwrite",
            "the standard output carries the bytes that come out, and nothing is there already",
            "--report FILE lists what came out; a directory takes all of these",
        ));
    }
    let asked = args.clone();
    with_file_system(access, &args.on, move |opened| {
        let node = opened.resolve(&asked.path)?;
        if !to_stdout {
            return to_directory(opened, node, &asked, screen.units);
        }
        let metadata =
            opened.fs.metadata(node).map_err(|error| opened.unreadable(asked.path.as_bytes(), &error))?;
        if asked.to == STDOUT_TAR || metadata.kind == FileKind::Directory {
            if io::stdout().is_terminal() {
                return Err(Problem::new(
                    Code::Usage,
                    "the standard output is a terminal",
                    "an archive is not for reading",
                    "send it on: `... --to - > files.tar`, or `... --to - | tar -x -C DIR`",
                ));
            }
            return to_archive(opened, node, metadata.kind, &asked, screen.units);
        }
        if asked.report.is_some() || asked.xattrs {
            return Err(Problem::new(
                Code::Usage,
                "--to - with --report or --xattrs, of one file",
                "the standard output carries the file's bytes, and nothing else of it",
                "--to -.tar makes an archive of it",
            ));
        }
        file_to_stdout(opened, node, &asked.path)?;
        opened.check_as_mounted("what came out")
    })
}

/// A file's bytes, its holes as zeros.
fn file_to_stdout(opened: &Opened, file: FsNode, path: &OsStr) -> Result<(), Problem> {
    let unreadable = |error: &Error| opened.unreadable(path.as_bytes(), error);
    let metadata = opened.fs.metadata(file).map_err(|error| unreadable(&error))?;
    if metadata.kind != FileKind::File {
        return Err(unreadable(&Error::NotAFile));
    }
    let size = metadata.size_bytes;
    let mut stdout = io::stdout().lock();
    let (mut at, mut failed) = (0, None);
    let read = opened.fs.read(file, 0..u64::MAX, &mut |offset, bytes| {
        let written = zeros(&mut stdout, offset - at).and_then(|()| stdout.write_all(bytes));
        at = offset + bytes.len() as u64;
        written.map_err(|error| {
            failed = Some(error);
            Error::Stopped
        })
    });
    let written = match failed {
        Some(error) => Err(error),
        None => {
            read.map_err(|error| {
                opened.unreadable_as(path.as_bytes(), &error, &opened.unreadable_part(file, at, size, &error))
            })?;
            zeros(&mut stdout, size.saturating_sub(at))
                .and_then(|()| stdout.flush())
                .and_then(|()| sync_stdout())
        }
    };
    match written {
        // The reader of the pipe has what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(output::output_failed(&error)),
        _ => Ok(()),
    }
}

/// Zeros in place of a hole.
fn zeros(to: &mut impl Write, mut len: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        to.write_all(&ZEROS[..part as usize])?;
        len -= part;
    }
    Ok(())
}

/// The name of what is at a path, under which it comes out. The root directory, and what is reached
/// by `..`, have none of their own: their content comes out.
fn own_name(path: &OsStr) -> Option<&[u8]> {
    let parts = path.as_bytes().split(|byte| *byte == b'/');
    parts.rev().find(|part| !part.is_empty() && *part != b".").filter(|name| is_name(name))
}

/// The file, or the directory with all below, as a tar archive on the standard output.
fn to_archive(
    opened: &Opened,
    node: FsNode,
    kind: FileKind,
    args: &GetArgs,
    units: Units,
) -> Result<(), Problem> {
    let given: Vec<_> = args.on.members.iter().map(|name| path_of_text(name)).collect();
    let others: Vec<_> = given.iter().map(|path| &**path).collect();
    let report_to = args.report.as_ref().map(|path| LossFile::create(Path::new(path), false, &others));
    let report_to = report_to.transpose()?;
    let progress = progress();
    let out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let wanted = (args.partial, args.xattrs, report_to.is_some());
    let archived = TarStream::new(opened, out, wanted, progress).finish(own_name(&args.path), node);
    let Archived { counts, whole, failures, stopped } = archived;
    let to = Path::new("the archive");
    let synced = sync_stdout().map_err(|error| output::output_failed(&error));
    let result = match stopped {
        Some(problem) => Err(problem),
        None => synced
            .and_then(|()| conclude(counts, to))
            .and_then(|()| opened.check_as_mounted("what came out"))
            .and_then(|()| if kind == FileKind::Directory { opened.check_left_out() } else { Ok(()) }),
    };
    let files = losses(whole, &failures);
    let loss = RescueLoss::new("get", opened.members.clone(), files, counts.whole(), &result).of_files(
        opened.loss(),
        // Owners are in the archive, whichever user makes it.
        true,
        args.xattrs,
    );
    let reported = report_to.map_or(Ok(()), |report_to| report_to.write(&loss, units));
    output::note(&printable(&format!("{counts} came out into the archive")));
    note_loss(&loss, units);
    both(result, reported)
}

/// What became of everything, one by one: what is lost of a file that came out whole is told of it
/// there.
fn losses(whole: Vec<FileLoss>, failures: &[Failure]) -> Vec<FileLoss> {
    let lost = failures.iter().filter(|failure| !failure.is_whole).map(FileLoss::from);
    whole.into_iter().chain(lost).collect()
}

/// What is to be known of what did not come out.
fn note_loss(loss: &RescueLoss, units: Units) {
    if loss.exit.status == 0 && loss.totals.with_attributes > 0 {
        let files = loss.totals.with_attributes;
        output::note(&format!(
            "without the extended attributes or ACLs of {files} of these, which --report lists"
        ));
    }
    if loss.exit.status != 0 {
        output::note(&printable(&format!("in all: {}", loss.summary(units))));
    }
}

fn to_directory(opened: &Opened, node: FsNode, args: &GetArgs, units: Units) -> Result<(), Problem> {
    let to = Path::new(&args.to);
    let place = OutputDirectory::open(to).map_err(|error| output::file_failed(to, &error))?;
    let metadata =
        opened.fs.metadata(node).map_err(|error| opened.unreadable(args.path.as_bytes(), &error))?;
    let is_directory = metadata.kind == FileKind::Directory;
    // Without a name of its own its content goes into the directory itself.
    let name = own_name(&args.path);

    let progress = progress();
    let survey = match name {
        Some(name) => Survey::one(opened, &place, name, node, &progress),
        None => Survey::content(opened, &place, node, &progress),
    };
    if !members::forced(&args.on.force).has(Check::Space) {
        let replaces = args.overwrite && !args.resume;
        survey.check_room(&place, to, units, replaces).inspect_err(|_| progress.finish_and_clear())?;
    }
    show_total(&progress, survey.data_bytes);

    let (overwrite, resume) = (args.overwrite, args.resume);
    let replace = overwrite || resume;
    // What the command reads is not replaced, neither by its own lists nor by files.
    let mut read = args.on.read_beside();
    read.extend(read_as_members(&args.on.members, &opened.members));
    let mut others: Vec<_> = read.iter().map(|path| &**path).collect();
    let sums = args.checksums.as_ref().map(Path::new);
    sums.map_or(Ok(()), |path| refuse_others(path, &others))?;
    let checksums = sums.map(|path| Checksums::create(path, replace)).transpose()?;
    others.extend(sums);
    let report_to = args.report.as_ref().map(|path| LossFile::create(Path::new(path), replace, &others));
    let report_to = report_to.transpose()?;
    let there = WhatIsThere { overwrite, resume };
    let wanted = WhatComesOut { partial: args.partial, attributes: args.xattrs };
    let lists_whole = report_to.is_some();
    let mut extraction = Extraction::new(opened, place, checksums, there, wanted, lists_whole, progress);
    let own = others.iter().copied().chain(args.report.as_ref().map(Path::new));
    let own = own.filter_map(|path| std::fs::metadata(path).ok());
    extraction.spare(own.map(|found| (found.dev(), found.ino())).collect());
    match name {
        Some(name) => extraction.one(name, node),
        None if is_directory => extraction.content(node),
        None => {}
    }
    let Extracted { counts, whole, failures, full, summed } = extraction.finish();
    let result = match full {
        Some(problem) => Err(out_of_room(counts, to, &problem)),
        None => conclude(counts, to)
            .and_then(|()| opened.check_as_mounted("what came out"))
            .and_then(|()| if is_directory { opened.check_left_out() } else { Ok(()) })
            .and(summed),
    };
    let files = losses(whole, &failures);
    let loss = RescueLoss::new("get", opened.members.clone(), files, counts.whole(), &result).of_files(
        opened.loss(),
        rustix::process::geteuid().is_root(),
        args.xattrs,
    );
    let reported = report_to.map_or(Ok(()), |report_to| report_to.write(&loss, units));
    let result = both(result, reported);
    if args.json.json {
        let printed = output::print_json(&Report {
            schema_version: SCHEMA_VERSION,
            volume: opened.volume.clone(),
            file_system: FileSystemReport::of(opened),
            path: shown(args.path.as_bytes()),
            to: text_of_path(to),
            counts,
            not_extracted: failures,
            loss: loss.only_losses(),
        });
        return both(result, printed);
    } else {
        let differs =
            if opened.fs.not_as_mounted().is_empty() { "" } else { ", but not as a mount would show it" };
        output::note(&printable(&format!("{counts} came out into {}{differs}", text_of_path(to))));
        note_loss(&loss, units);
    }
    result
}

/// Shown when a person waits: first that it is looked at what there is.
fn progress() -> ProgressBar {
    let progress = ProgressBar::new_spinner().with_message("looking at what there is");
    progress.enable_steady_tick(Duration::from_millis(200));
    progress
}

/// From now on with how much it is.
fn show_total(progress: &ProgressBar, total_bytes: u64) {
    const TEMPLATE: &str = "{spinner} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}";
    progress.set_style(ProgressStyle::with_template(TEMPLATE).expect("the template is a constant"));
    progress.set_length(total_bytes);
    // What it took to look at all is no part of the rate.
    progress.reset();
}

fn conclude(counts: ExtractCounts, to: &Path) -> Result<(), Problem> {
    let failures = counts.not_extracted;
    if failures == 0 {
        return Ok(());
    }
    Err(Problem::new(
        Code::NotAllExtracted,
        format!("{failures} did not come out into {}", text_of_path(to)),
        format!("the lines above say which and why; {counts} did"),
        "what can be read of a damaged file comes out with --partial; --resume takes what is there already and is the same",
    ))
}

fn out_of_room(counts: ExtractCounts, to: &Path, problem: &Problem) -> Problem {
    Problem::new(
        problem.code,
        format!("{}: {}", text_of_path(to), problem.what),
        format!("{} did not come out, which the lines above name; {counts} did", counts.not_extracted),
        "make room there, or let it be written to; then the same command with --resume goes on",
    )
}
