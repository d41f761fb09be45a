//! What a rescue did not bring out, in one form for every command that takes data out of members:
//! per member what its copy lacks, per file system what was not applied or shown, per file what is
//! missing, and why the command ends with the status it ends with.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use wattle_control::units::Units;
use wattle_control::{Code, Member, Problem, Scan};
use wattle_fs::{FsDevice, FsDeviceState};
use wattle_rt::{path_of_text, text_of_path};
use wattle_server::protocol::SCHEMA_VERSION;

use crate::output::{self, text::printable};

/// What of superblocks and their surroundings is not found again.
const NOT_FOUND_AGAIN: [&str; 2] = [
    "the array's name, UUID and event counts of before",
    "a write-intent bitmap, bad-block lists and a partial parity log, if there were any",
];

/// What did not come out.
#[derive(Debug, Clone, Serialize)]
pub struct RescueLoss {
    schema_version: u32,
    /// The command, without its arguments.
    command: &'static str,
    /// Members that are copies, and what their maps call unread.
    pub members: Vec<MemberLoss>,
    pub file_systems: Vec<FileSystemLoss>,
    /// Of an array whose superblocks were made anew, what is not known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayLoss>,
    /// Files: every one in a report of its own, else only those that are not whole, or whose
    /// extended attributes did not come out.
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
    /// Of one that lies on several devices, these: here, missing or left behind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<FsDeviceReport>,
}

/// A device of a file system that lies on several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FsDeviceReport {
    /// Its number in the file system.
    id: u64,
    uuid: String,
    /// By the file system's account.
    size_bytes: u64,
    /// `in use`, `stale`, `missing`, `seed`, `copy`, `replacement`, `not listed`.
    pub state: &'static str,
    /// The transaction that it was last written with; absent if it is not here.
    generation: Option<u64>,
    /// What it is on; absent if it is not here.
    pub member: Option<String>,
}

impl FsDeviceReport {
    /// With the names of the volumes that were given.
    pub fn of(device: &FsDevice, names: &[String]) -> Self {
        Self {
            id: device.id,
            uuid: wattle_fs::uuid_text(device.uuid),
            size_bytes: device.size_bytes,
            state: device.state.word(),
            generation: device.generation,
            member: device.given.and_then(|given| names.get(given).cloned()),
        }
    }

    /// Whether it is used, and all of it is up to date.
    pub fn is_good(&self) -> bool {
        [FsDeviceState::InUse, FsDeviceState::Seed].iter().any(|state| state.word() == self.state)
    }

    /// Its number and its identifier.
    pub fn title(&self) -> String {
        format!("device {} ({})", self.id, self.uuid)
    }

    /// As a row of a table, with [`Self::HEAD`] above it.
    pub fn row(&self, units: Units) -> [String; 5] {
        let generation = self.generation.map_or("-".to_owned(), |generation| generation.to_string());
        let place = self.member.clone().unwrap_or_else(|| format!("uuid {}", self.uuid));
        [self.id.to_string(), self.state.to_owned(), generation, units.show(self.size_bytes), place]
    }

    /// What the columns are.
    pub const HEAD: [&str; 5] = ["device", "state", "generation", "size", "on"];

    fn line(&self, units: Units) -> String {
        let [id, state, generation, size, place] = self.row(units);
        match self.generation {
            Some(_) => format!("device {id}, {size}, {state}, generation {generation}: {place}"),
            None => format!("device {id}, {size}, {state}: {place}"),
        }
    }
}

/// An array that was found by what is on its members.
#[derive(Debug, Clone, Serialize)]
pub struct ArrayLoss {
    /// It is told from all others that it could have been.
    pub certain: bool,
    /// Which of the findings it is; `None` if nothing was written.
    pub written: Option<u16>,
    /// Slots that no member was given for: what was there is only in the redundancy.
    pub missing_slots: Vec<usize>,
    /// Members that were given and have no place in it.
    pub unused_members: Vec<String>,
    /// What the search says of the members.
    pub notes: Vec<String>,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// It came out as it is.
    Whole,
    /// It came out with zeros in place of what could not be read, or up to the place that could
    /// not.
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
    /// What was to follow behind the end of what came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<FilePart>,
    /// Names of the extended attributes it has, which did not come out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
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
    /// Of partial files, bytes that could not be read. They are zeros there, but in a copy that was
    /// gone on with, or onto a drive: that has what was there.
    pub unreadable_bytes: u64,
    /// Of partial files, bytes that were to follow behind their end.
    pub cut_off_bytes: u64,
    /// Files that have extended attributes, which did not come out. ACLs are such.
    pub with_attributes: u64,
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
            cut_off_bytes: files
                .iter()
                .filter_map(|file| file.cut_off.as_ref())
                .map(|part| part.len_bytes)
                .sum(),
            with_attributes: files.iter().filter(|file| !file.attributes.is_empty()).count() as u64,
        };
        let done = match totals.with_attributes {
            0 => "everything came out as it is".to_owned(),
            files => format!("everything came out as it is, but for extended attributes (of files: {files})"),
        };
        let exit = match result {
            Ok(()) => ExitReason { status: 0, code: None, why: done },
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
            array: None,
            files,
            totals,
            not_kept: Vec::new(),
            exit,
        }
    }

    /// The same of files of this file system. Owners come out only if root does it, and extended
    /// attributes only if they are asked for.
    pub fn of_files(
        mut self,
        file_system: FileSystemLoss,
        owners_kept: bool,
        attributes_wanted: bool,
    ) -> Self {
        self.file_systems.push(file_system);
        let files = self.totals.with_attributes;
        let attributes = match attributes_wanted {
            false => Some(format!(
                "extended attributes, with ACLs, labels and capabilities (files that have some: {files})"
            )),
            true => (files > 0).then(|| {
                format!("extended attributes that could not be read or given (files that have some: {files})")
            }),
        };
        self.not_kept =
            attributes.into_iter().chain(["flags such as immutable or append-only".to_owned()]).collect();
        if !owners_kept {
            self.not_kept.push("owners and groups, which only root can give".to_owned());
        }
        self
    }

    /// The same of an array whose superblocks are made anew.
    pub fn of_array(mut self, array: ArrayLoss) -> Self {
        self.not_kept = NOT_FOUND_AGAIN.map(str::to_owned).to_vec();
        self.array = Some(array);
        self
    }

    /// The same with another reason of status 0.
    pub fn done_because(mut self, why: &str) -> Self {
        if self.exit.status == 0 {
            self.exit.why = why.to_owned();
        }
        self
    }

    /// The same without what came out whole.
    pub fn only_losses(&self) -> Self {
        let lost = |file: &&FileLoss| file.state != FileState::Whole || !file.attributes.is_empty();
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
            let devices = fs.devices.iter().map(|device| device.line(units));
            let all = fs.not_as_mounted.iter().chain(&fs.left_out).cloned().chain(devices).collect();
            text += &section(&format!("{}, {} {}", fs.volume, fs.kind, fs.uuid), all);
        }
        if let Some(array) = &self.array {
            text += &section("The array that was found", array.lines());
        }
        let title = if self.array.is_some() { "Is not found again" } else { "Does not come out of any file" };
        text += &section(title, self.not_kept.clone());
        text += &section("Files", self.files.iter().map(FileLoss::line).collect());
        let lines: Vec<_> = text.lines().map(printable).collect();
        lines.join("\n") + "\n"
    }

    /// In one line.
    pub fn summary(&self, units: Units) -> String {
        let LossTotals { whole, partial, missing, unreadable_bytes, cut_off_bytes, with_attributes } =
            self.totals;
        let mut text = match &self.array {
            None => format!("{whole} whole, {partial} in part, {missing} missing"),
            Some(array) => array.lines().join("; "),
        };
        if cut_off_bytes > 0 {
            let _ = write!(text, "; {} behind the end did not come out", units.show(cut_off_bytes));
        }
        if with_attributes > 0 {
            let _ = write!(text, "; {with_attributes} without their extended attributes");
        }
        if unreadable_bytes > 0 {
            let instead = if self.command == "copy" { "" } else { ", and are zeros" };
            let _ = write!(text, "; {} could not be read{instead}", units.show(unreadable_bytes));
        }
        let unread: u64 = self.members.iter().map(|member| member.unread_bytes).sum();
        if unread > 0 {
            let _ = write!(text, "; {} of the members were never read", units.show(unread));
        }
        let lacking = |fs: &FileSystemLoss| fs.devices.iter().filter(|device| !device.is_good()).count();
        let lacking: usize = self.file_systems.iter().map(lacking).sum();
        if lacking > 0 {
            let _ =
                write!(text, "; devices of the file system that are missing or not up to date: {lacking}");
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
        let file = file.map_err(|error| output::file_failed(path, &error))?;
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
        written.map_err(|error| output::file_failed(&self.path, &error))
    }
}

/// How a command ends whose report, or whose output, could not be written either: what became of
/// the data decides, and both are told.
///
/// # Errors
/// One of them, with the other one in its words.
pub fn both(work: Result<(), Problem>, report: Result<(), Problem>) -> Result<(), Problem> {
    match (work, report) {
        (Err(work), Err(report)) => {
            Err(Problem { what: format!("{}; and the report: {}", work.what, report.what), ..work })
        }
        (work, report) => work.and(report),
    }
}

/// Members as they are given, and the maps of those that are copies: beside them, or elsewhere.
pub fn read_as_members(given: &[String], copies: &[MemberLoss]) -> Vec<PathBuf> {
    let beside = |name: &String| path_of_text(&format!("{name}.map")).into_owned();
    let members = given.iter().map(|name| path_of_text(name).into_owned());
    let maps = copies.iter().map(|copy| path_of_text(&copy.map).into_owned());
    members.chain(given.iter().map(beside)).chain(maps).collect()
}

/// Whether two names are of one file, or will be once it is there.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let place = |path: &Path| {
        let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
        Some((file(dir)?, path.file_name()?.to_owned()))
    };
    let same_file = file(one).is_some_and(|is| file(other) == Some(is));
    same_file || one == other || place(one).is_some_and(|is| place(other) == Some(is))
}

/// Refuses to write over a file that is read, or written otherwise.
///
/// # Errors
/// It is one of them.
pub fn refuse_others(path: &Path, others: &[&Path]) -> Result<(), Problem> {
    match others.iter().find(|other| is_same_place(path, other)) {
        None => Ok(()),
        Some(other) => Err(Problem::new(
            Code::OutputExists,
            format!("{} is {}", text_of_path(path), text_of_path(other)),
            "the command reads it, or writes something else there",
            "name another file",
        )),
    }
}

impl MemberLoss {
    /// Of all members of a scan that are copies.
    pub fn of_scan(scan: &Scan) -> Vec<Self> {
        Self::of_members(scan.members.iter().map(|member| &member.member))
    }

    /// Of those of these members that are copies.
    pub fn of_members<'a>(members: impl IntoIterator<Item = &'a Member>) -> Vec<Self> {
        let loss = |member: &Member| {
            let (map, unread) = (member.copy_map()?, member.unread());
            Some(Self {
                member: member.name.clone(),
                map: text_of_path(map.path()),
                finished: map.is_finished(),
                size_bytes: member.device.size_bytes(),
                unread_bytes: unread.iter().map(|run| run.end - run.start).sum(),
                unread_places: unread.len(),
            })
        };
        members.into_iter().filter_map(loss).collect()
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

impl ArrayLoss {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![match (self.written, self.certain) {
            (None, _) => "no superblocks were written".to_owned(),
            (Some(number), true) => format!("finding {number} is written; the first is told from all others"),
            (Some(number), false) => {
                format!(
                    "finding {number} is written, because that was asked for: it is not told from the others"
                )
            }
        }];
        if !self.missing_slots.is_empty() {
            let slots: Vec<_> = self.missing_slots.iter().map(ToString::to_string).collect();
            lines.push(format!("no member for: slot {}", slots.join(", ")));
        }
        if !self.unused_members.is_empty() {
            lines.push(format!("has no place in it: {}", self.unused_members.join(", ")));
        }
        lines.extend(self.notes.iter().cloned());
        lines
    }
}

impl FileLoss {
    /// Of something that came out as it is, but for these extended attributes.
    pub fn whole(path: String, path_hex: Option<String>, attributes: Vec<String>) -> Self {
        Self {
            path,
            path_hex,
            state: FileState::Whole,
            reason: None,
            unreadable: Vec::new(),
            cut_off: None,
            attributes,
        }
    }

    /// Of what was to go to the standard output: a part of a volume, up to the byte `to` of it.
    pub fn of_stream(asked: &Range<u64>, to: u64, reason: Option<String>) -> Self {
        let cut_off = FilePart { offset_bytes: to - asked.start, len_bytes: asked.end - to };
        let is_whole = reason.is_none();
        Self {
            state: if is_whole { FileState::Whole } else { FileState::Partial },
            reason,
            cut_off: Some(cut_off).filter(|_| !is_whole),
            ..Self::whole("-".to_owned(), None, Vec::new())
        }
    }

    /// Of a copy that lacks these ranges, and why it ended before it had tried all, if it did.
    pub fn of_copy(path: &Path, missing: &[Range<u64>], early: Option<String>) -> Self {
        let part =
            |range: &Range<u64>| FilePart { offset_bytes: range.start, len_bytes: range.end - range.start };
        let unreadable: Vec<_> = missing.iter().map(part).collect();
        let whole = Self::whole(text_of_path(path), None, Vec::new());
        if unreadable.is_empty() && early.is_none() {
            return whole;
        }
        let reason = early.unwrap_or_else(|| "it could not be read".to_owned());
        Self { state: FileState::Partial, reason: Some(reason), unreadable, ..whole }
    }

    fn line(&self) -> String {
        let attributes = match self.attributes.len() {
            0 => String::new(),
            _ => format!(" (without its extended attributes: {})", self.attributes.join(", ")),
        };
        let state = match self.state {
            FileState::Whole => return format!("whole    {}{attributes}", self.path),
            FileState::Partial => "partial ",
            FileState::Missing => "missing ",
        };
        let part =
            |part: &FilePart| format!("{}-{}", part.offset_bytes, part.offset_bytes + part.len_bytes - 1);
        let parts: Vec<_> = self.unreadable.iter().map(part).collect();
        let mut parts =
            if parts.is_empty() { String::new() } else { format!("; bytes {}", parts.join(", ")) };
        if let Some(FilePart { offset_bytes, len_bytes }) = self.cut_off {
            let _ = write!(parts, "; it ends at byte {offset_bytes}, and {len_bytes} bytes were to follow");
        }
        format!("{state} {}: {}{parts}{attributes}", self.path, self.reason.as_deref().unwrap_or_default())
    }
}
