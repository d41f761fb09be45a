//! Undo logs: what a destructive command overwrites, saved before it does, and brought back by
//! `wattle undo`.
//!
//! **Invariants.**
//! 1. Before a command changes a byte of a member, what was there is durable in its log: the log is
//!    written whole under another name and flushed, it gets its name, and the directory is flushed;
//!    only then the first write goes to a member. A crash before leaves members as they were; a
//!    crash after leaves a log from which every byte can be brought back.
//! 2. A log covers every sector that the command writes. There is one list of writes
//!    ([`CoveredWrite`]):
//!    the log is made of it, and it is what is carried out. Where the command makes an array write
//!    what is not known beforehand, the log covers that by place ([`UndoDirectory`]).
//! 3. Of each sector a log knows what it held and everything the command wrote there. So
//!    [`restore`](crate::restore) tells sectors that are as they were, or as any crash of the
//!    command left them, from those that something else has written since; those are refused.
//! 4. Bringing back only ever writes what sectors held before. It can be killed and run again, any
//!    number of times. It is a destructive command too and saves a log of its own, by which it is
//!    undone.
//! 5. It goes through the steps of the command backwards, each durable on all members before the
//!    next begins: a header no longer names a text, anywhere, before that text goes.
//!
//! What is not in a log is what follows from the command without being part of it: the resync of a
//! new array, the filling of a member, what clients wrote. [`draft`] makes a log of writes,
//! [`store`] keeps it in a file, [`restore`](crate::restore) finds the members and what to write to
//! them.

pub mod draft;
mod kept;
mod store;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use wattle_format::undo::{UndoLog, UndoTarget, UndoTargetKind};
use wattle_rt::{Core, Device, WallTime};

pub use kept::{UndoDirectory, ends};
pub use store::{Listed, list, load};

use crate::byte_range::{read, write};
use crate::members::{Member, MemberAddress};
use crate::problem::{Code, Problem};
use draft::Pieces;

/// A write of a destructive command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredWrite {
    /// Which of the sites it goes to.
    pub site: usize,
    /// Which step of the command it belongs to. Steps are durable one after the other: what is
    /// written in one may lead to what earlier ones wrote, never the other way round.
    pub step: u16,
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// What is written to.
#[derive(Debug, Clone)]
pub struct UndoSite {
    /// As it is called.
    pub name: String,
    /// What it is.
    pub place: UndoTargetKind,
    /// What the drive says it is.
    pub drive: String,
    /// Where it is written, under an exclusive lock.
    pub device: Device,
}

impl UndoSite {
    /// A member that was claimed.
    #[must_use]
    pub fn of_member(member: &Member) -> Self {
        Self::named(&member.name, &member.device)
    }

    /// A member that is open for writing.
    #[must_use]
    pub fn named(name: &str, device: &Device) -> Self {
        let drive = name.parse().map_or_else(|_| String::new(), |address| drive_id(&address, device));
        Self { name: absolute(name), place: UndoTargetKind::Member, drive, device: device.clone() }
    }

    fn target(&self) -> UndoTarget {
        UndoTarget {
            name: self.name.clone(),
            place: self.place,
            sectors: self.device.size_bytes() / 512,
            drive: self.drive.clone(),
            samples: Default::default(),
        }
    }
}

/// A member's name wherever it is used from.
#[must_use]
pub fn absolute(name: &str) -> String {
    match name.parse() {
        Ok(MemberAddress::Path(path)) => {
            std::path::absolute(&path).map_or_else(|_| name.to_owned(), wattle_rt::text_of_path)
        }
        _ => name.to_owned(),
    }
}

/// What the drive under a member says it is: its world wide name or serial number, and which
/// partition of it. Empty if it says nothing, as a file.
pub(crate) fn drive_id(address: &MemberAddress, device: &Device) -> String {
    let MemberAddress::Path(path) = address else { return String::new() };
    let Some(node) = path.canonicalize().ok().filter(|_| device.is_block_device()) else {
        return String::new();
    };
    let Some(node) = node.file_name() else { return String::new() };
    let Ok(block) = Path::new("/sys/class/block").join(node).canonicalize() else { return String::new() };
    let said = |file: PathBuf| {
        std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let partition = said(block.join("partition")).map_or(String::new(), |number| format!(" p{number}"));
    let drives = [Some(&*block), block.parent().filter(|_| !partition.is_empty())];
    let files = ["wwid", "device/wwid", "device/serial", "serial"];
    let id =
        drives.into_iter().flatten().find_map(|drive| files.iter().find_map(|file| said(drive.join(file))));
    id.map_or(String::new(), |id| id + &partition)
}

/// Saves logs of one command.
#[derive(Debug, Clone)]
pub struct Recorder {
    /// The directory of logs.
    pub dir: PathBuf,
    /// What was typed.
    pub command: String,
    /// What the log's file is called: when and what, `20261122T121503Z-create-data`.
    pub title: String,
    /// When.
    pub now: WallTime,
    /// The members that were given; none if these are what is written to.
    pub given: Vec<String>,
    /// The logs that were saved.
    pub saved: RefCell<Vec<PathBuf>>,
}

impl Recorder {
    /// Saves what `writes` are about to overwrite, and `kept`; the file it is in.
    ///
    /// # Errors
    /// It cannot be read, or the log cannot be written: nothing may be overwritten then.
    pub async fn record(
        &self,
        core: &Core,
        sites: &[UndoSite],
        writes: &[CoveredWrite],
        kept: &[UndoDirectory],
    ) -> Result<PathBuf, Problem> {
        let mut pieces = Pieces::default();
        for piece in draft::pieces(&self.targets(sites), writes, kept) {
            let read = read(core, &sites[piece.site].device, piece.offset_bytes, piece.len_bytes).await;
            pieces.add(piece, read);
        }
        let log = self.log(sites, writes, kept, &pieces)?;
        let (dir, title) = (self.dir.clone(), self.title.clone());
        // The core may have clients, which are not to wait for the disk that logs go to.
        let saved = core.offload(move || store::save(&dir, &title, &log)).await;
        let saved = saved.unwrap_or_else(|error| Err(store::not_written(&self.dir, &error)))?;
        self.saved.borrow_mut().push(saved.clone());
        Ok(saved)
    }

    /// The same at once and on this thread, before anything runs.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub fn record_blocking(&self, sites: &[UndoSite], writes: &[CoveredWrite]) -> Result<PathBuf, Problem> {
        let mut pieces = Pieces::default();
        for piece in draft::pieces(&self.targets(sites), writes, &[]) {
            let mut bytes = vec![0; piece.len_bytes];
            let read = sites[piece.site].device.read_blocking(piece.offset_bytes, &mut bytes);
            pieces.add(piece, read.map(|()| bytes));
        }
        let saved = store::save(&self.dir, &self.title, &self.log(sites, writes, &[], &pieces)?)?;
        self.saved.borrow_mut().push(saved.clone());
        Ok(saved)
    }

    fn targets(&self, sites: &[UndoSite]) -> Vec<UndoTarget> {
        sites.iter().map(UndoSite::target).collect()
    }

    fn log(
        &self,
        sites: &[UndoSite],
        writes: &[CoveredWrite],
        kept: &[UndoDirectory],
        pieces: &Pieces,
    ) -> Result<UndoLog, Problem> {
        let drafted = draft::draft(self.targets(sites), writes, kept, pieces);
        let (targets, ranges) = drafted.map_err(|(site, error)| {
            Problem::new(
                Code::UndoNotWritten,
                format!("{}: reading what is about to be overwritten: {error}", sites[site].name),
                "it is saved first, so that `wattle undo` can bring it back; nothing was changed",
                "use another drive; --no-undo goes on without saving anything",
            )
            .of_member(&sites[site].name)
        })?;
        let given: Vec<_> = self.given.iter().map(|name| absolute(name)).collect();
        let sites = || sites.iter().map(|site| site.name.clone()).collect();
        Ok(UndoLog {
            command: self.command.clone(),
            time: (self.now.secs, self.now.micros),
            given: if given.is_empty() { sites() } else { given },
            targets,
            ranges,
        })
    }
}

/// Carries writes out, step by step: within a step in their order, and durable on every site before
/// the next step begins.
///
/// # Errors
/// The first write or flush that failed.
pub async fn carry_out(core: &Core, sites: &[UndoSite], writes: &[CoveredWrite]) -> Result<(), Problem> {
    let failed = |site: &UndoSite, what: String| {
        Problem::new(
            Code::WriteFailed,
            format!("{}: {what}", site.name),
            "what was written before it is on the members",
            "see what is wrong with the drive; the same command goes on from here, `wattle undo` goes back",
        )
        .of_member(&site.name)
    };
    let steps: BTreeSet<u16> = writes.iter().map(|write| write.step).collect();
    for step in steps {
        let mut written_to = BTreeSet::new();
        for CoveredWrite { site, offset_bytes, bytes, .. } in writes.iter().filter(|of| of.step == step) {
            written_to.insert(*site);
            let site = &sites[*site];
            let written = write(core, &site.device, *offset_bytes, bytes).await;
            written.map_err(|error| failed(site, format!("writing at byte {offset_bytes}: {error}")))?;
        }
        for site in written_to.into_iter().map(|site| &sites[site]) {
            core.flush(&site.device).await.map_err(|error| failed(site, format!("flushing: {error}")))?;
        }
    }
    Ok(())
}
