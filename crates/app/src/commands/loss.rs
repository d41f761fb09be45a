//! What a rescue did not bring out, in one form for every command that takes data out of members:
//! per member what its copy lacks, per file system what was not applied or shown, per file what is
//! missing, and why the command ends with the status it ends with.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use wattle_control::units::Units;
use wattle_control::{Code, Problem, Scan};
use wattle_server::protocol::SCHEMA_VERSION;

use crate::output::{self, text::printable};

/// Attributes of files that no command here takes out.
const NOT_KEPT: [&str; 2] =
    ["extended attributes, with ACLs, labels and capabilities", "flags such as immutable or append-only"];

/// What did not come out.
#[derive(Debug, Clone, Serialize)]
pub struct RescueLoss {
    schema_version: u32,
    /// The command, without its arguments.
    command: &'static str,
    /// Members that are copies, and what their maps call unread.
    pub members: Vec<MemberLoss>,
    pub file_systems: Vec<FileSystemLoss>,
    /// Files: every one in a report of its own, else only those that are not whole.
    pub files: Vec<FileLoss>,
    pub totals: LossTotals,
    /// What does not come out of any file.
    pub not_kept: Vec<String>,
    pub exit: ExitReason,
}

/// A member that is a copy of a drive, with a map of what was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberLoss {
    pub member: String,
    pub map: String,
    /// Whether the copy was finished, as far as it could be.
    pub finished: bool,
    pub size_bytes: u64,
    pub unread_bytes: u64,
    /// Runs of unread bytes.
    pub unread_places: usize,
}

/// A file system, and what of it is not shown as it may be.
#[derive(Debug, Clone, Serialize)]
pub struct FileSystemLoss {
    pub volume: String,
    pub kind: String,
    pub uuid: String,
    /// Why what came out is not what a mount would show, or may not be.
    pub not_as_mounted: Vec<String>,
    /// What may be there beside it.
    pub left_out: Vec<String>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// It came out as it is.
    Whole,
    /// It came out with zeros in place of what could not be read.
    Partial,
    /// It did not come out.
    Missing,
}

/// A file, directory or anything else that was to come out.
#[derive(Debug, Clone, Serialize)]
pub struct FileLoss {
    pub path: String,
    /// The path's bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    pub state: FileState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a partial one, what is zeros.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<FilePart>,
}

/// A range of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilePart {
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

/// How much there is of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LossTotals {
    pub whole: u64,
    pub partial: u64,
    pub missing: u64,
    /// Of partial files, bytes that are zeros in place of data.
    pub unreadable_bytes: u64,
}

/// Why the command ends as it does.
#[derive(Debug, Clone, Serialize)]
pub struct ExitReason {
    pub status: u8,
    /// The code of the error, if it ends with one.
    pub code: Option<String>,
    pub why: String,
}

impl RescueLoss {
    /// Of a command that ends with `result`, with the files that are to be in it.
    pub fn new(
        command: &'static str,
        members: Vec<MemberLoss>,
        files: Vec<FileLoss>,
        whole: u64,
        result: &Result<(), Problem>,
    ) -> Self {
        let count = |state| files.iter().filter(|file| file.state == state).count() as u64;
        let parts = files.iter().flat_map(|file| &file.unreadable);
        let totals = LossTotals {
            whole,
            partial: count(FileState::Partial),
            missing: count(FileState::Missing),
            unreadable_bytes: parts.map(|part| part.len_bytes).sum(),
        };
        let exit = match result {
            Ok(()) => ExitReason { status: 0, code: None, why: "everything came out as it is".to_owned() },
            Err(problem) => ExitReason {
                status: problem.exit_code(),
                code: Some(problem.code.id()),
                why: format!("{}: {}", problem.what, problem.why),
            },
        };
        let schema_version = SCHEMA_VERSION;
        Self {
            schema_version,
            command,
            members,
            file_systems: Vec::new(),
            files,
            totals,
            not_kept: Vec::new(),
            exit,
        }
    }

    /// The same of files of this file system. Owners come out only if root does it.
    pub fn of_files(mut self, file_system: FileSystemLoss, owners_kept: bool) -> Self {
        self.file_systems.push(file_system);
        self.not_kept = NOT_KEPT.map(str::to_owned).to_vec();
        if !owners_kept {
            self.not_kept.push("owners and groups, which only root can give".to_owned());
        }
        self
    }

    /// The same without what came out whole.
    pub fn only_losses(&self) -> Self {
        let lost = |file: &&FileLoss| file.state != FileState::Whole;
        Self { files: self.files.iter().filter(lost).cloned().collect(), ..self.clone() }
    }

    /// As text, for a file: with everything.
    pub fn render(&self, units: Units) -> String {
        let mut text = format!("wattle {}: {}\n", self.command, self.summary(units));
        let exit = &self.exit;
        let code = exit.code.as_ref().map_or(String::new(), |code| format!(" ({code})"));
        let _ = writeln!(text, "exit status {}{code}: {}", exit.status, exit.why);
        let section = |title: &str, lines: Vec<String>| match lines.is_empty() {
            true => String::new(),
            false => format!("\n{title}\n  {}\n", lines.join("\n  ")),
        };
        text += &section("Members", self.members.iter().map(|member| member.line(units)).collect());
        for fs in &self.file_systems {
            let all = fs.not_as_mounted.iter().chain(&fs.left_out).cloned().collect();
            text += &section(&format!("{}, {} {}", fs.volume, fs.kind, fs.uuid), all);
        }
        text += &section("Does not come out of any file", self.not_kept.clone());
        text += &section("Files", self.files.iter().map(FileLoss::line).collect());
        let lines: Vec<_> = text.lines().map(printable).collect();
        lines.join("\n") + "\n"
    }

    /// In one line.
    pub fn summary(&self, units: Units) -> String {
        let LossTotals { whole, partial, missing, unreadable_bytes } = self.totals;
        let mut text = format!("{whole} whole, {partial} in part, {missing} missing");
        if unreadable_bytes > 0 {
            let _ = write!(text, "; {} are zeros in place of data", units.show(unreadable_bytes));
        }
        let unread: u64 = self.members.iter().map(|member| member.unread_bytes).sum();
        if unread > 0 {
            let _ = write!(text, "; {} of the members were never read", units.show(unread));
        }
        text
    }
}

/// Where a report goes: made before the work, so that nothing is found to be in the way after it.
pub struct LossFile {
    path: PathBuf,
    file: File,
}

impl LossFile {
    /// Replaces what is there only if `replace` says so, and never one of `others`: what is read,
    /// and what else is written.
    ///
    /// # Errors
    /// The file cannot be made, or is there already and is not to be replaced.
    pub fn create(path: &Path, replace: bool, others: &[&Path]) -> Result<Self, Problem> {
        refuse_others(path, others)?;
        let mut options = File::options();
        let file = options.write(true).create_new(!replace).create(replace).truncate(replace).open(path);
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the report: JSON if the name ends so, else text.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, report: &RescueLoss, units: Units) -> Result<(), Problem> {
        let json = self.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let text = if json { output::json_text(report) } else { report.render(units) };
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| cannot_write(&self.path, &error))
    }
}

/// Refuses to write over a file that is read, or written otherwise.
///
/// # Errors
/// It is one of them.
pub fn refuse_others(path: &Path, others: &[&Path]) -> Result<(), Problem> {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let is_same = |other: &&&Path| path == **other || file(path).is_some_and(|is| file(other) == Some(is));
    match others.iter().find(is_same) {
        None => Ok(()),
        Some(other) => Err(Problem::new(
            Code::OutputExists,
            format!("{} is {}", path.display(), other.display()),
            "the command reads it, or writes something else there",
            "name another file",
        )),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Problem {
    let problem = output::output_failed(error);
    Problem { what: format!("{}: {error}", path.display()), ..problem }
}

impl MemberLoss {
    /// Of all members of a scan that are copies.
    pub fn of_scan(scan: &Scan) -> Vec<Self> {
        let loss = |member: &wattle_control::members::Member| {
            let (map, unread) = (member.copy_map()?, member.unread());
            Some(Self {
                member: member.name.clone(),
                map: map.path().display().to_string(),
                finished: map.is_finished(),
                size_bytes: member.device.size_bytes(),
                unread_bytes: unread.iter().map(|run| run.end - run.start).sum(),
                unread_places: unread.len(),
            })
        };
        scan.members.iter().filter_map(|member| loss(&member.member)).collect()
    }

    fn line(&self, units: Units) -> String {
        let Self { member, map, finished, size_bytes, unread_bytes, unread_places } = self;
        let (unread, size) = (units.show(*unread_bytes), units.show(*size_bytes));
        let finished = if *finished { "" } else { "; the copy was not finished" };
        format!(
            "{member}: {unread} of {size} were not read from the drive (places: {unread_places}), by {map}{finished}"
        )
    }
}

impl FileLoss {
    /// Of something that came out as it is.
    pub fn whole(path: String, path_hex: Option<String>) -> Self {
        Self { path, path_hex, state: FileState::Whole, reason: None, unreadable: Vec::new() }
    }

    /// Of a copy that lacks these ranges.
    pub fn of_copy(path: &Path, missing: &[Range<u64>]) -> Self {
        let part =
            |range: &Range<u64>| FilePart { offset_bytes: range.start, len_bytes: range.end - range.start };
        let unreadable: Vec<_> = missing.iter().map(part).collect();
        let (state, reason) = match unreadable.len() {
            0 => (FileState::Whole, None),
            _ => (FileState::Partial, Some("it could not be read".to_owned())),
        };
        Self { path: path.display().to_string(), path_hex: None, state, reason, unreadable }
    }

    fn line(&self) -> String {
        let state = match self.state {
            FileState::Whole => return format!("whole    {}", self.path),
            FileState::Partial => "partial ",
            FileState::Missing => "missing ",
        };
        let part =
            |part: &FilePart| format!("{}-{}", part.offset_bytes, part.offset_bytes + part.len_bytes - 1);
        let parts: Vec<_> = self.unreadable.iter().map(part).collect();
        let parts = if parts.is_empty() { String::new() } else { format!("; bytes {}", parts.join(", ")) };
        format!("{state} {}: {}{parts}", self.path, self.reason.as_deref().unwrap_or_default())
    }
}
