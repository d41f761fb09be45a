//! The next text of a volume group, written to every metadata area of its physical volumes so that
//! a crash leaves the old text or the new one (docs/formats.md §11.2).
//!
//! Three steps, each durable on every device before the next one begins: the text into free space
//! of every area; headers that name it beside the old one; headers that name it alone. Before each
//! header what was written is read back: not every writer of a drive keeps locks. A reader
//! takes the highest sequence number among whole texts, so the group is the new one from the first
//! header of the last step on. Until then a device that does not take what it should ends the
//! commit. From then on the others go on: it has the new text beside the old one, and is known by
//! that not to be older. The next commit ends this one there before it begins. Labels follow: what
//! they say only repeats the text.

use std::fmt;

use thiserror::Error;
use wattle_format::lvm::area::{self, AreaError, Header};
use wattle_format::lvm::label::{Area, LabelError, SCAN_BYTES};
use wattle_format::lvm::{AreaState, Label};
use wattle_rt::{Core, Device, IoError};

use super::physical::{AreaScan, PhysicalVolume};
use crate::byte_range::{read, write};
use crate::problem::{Code, Problem};

/// A physical volume that takes part.
#[derive(Debug, Clone)]
pub struct CommitSite {
    /// As the operator knows it.
    pub name: String,
    /// Where it is written, under an exclusive lock.
    pub device: Device,
    /// What was on it when the change was decided.
    pub before: PhysicalVolume,
    /// Its label afterwards.
    pub label: Label,
    /// What becomes of it.
    pub role: CommitRole,
}

/// What becomes of a physical volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitRole {
    /// It stays what it is: where there is a text for the group, its areas get it.
    Belongs,
    /// It belongs to none any more: its areas are emptied.
    Leaves,
    /// It is to be no physical volume any more.
    Goes,
}

/// A step of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    /// Texts into free space.
    Text,
    /// Headers that name them beside the old ones.
    Precommit,
    /// Headers that name them alone.
    Commit,
}

impl fmt::Display for CommitStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "the text",
            Self::Precommit => "a header that names the new text too",
            Self::Commit => "a header that names the new text",
        })
    }
}

/// Why a group is not changed, or not wholly.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// It is not as it was when the change was decided, or as this commit left it a moment ago. No
    /// header was written that names the new text alone, anywhere.
    #[error("{name}: its LVM2 metadata is not what it was a moment ago")]
    Changed {
        /// The physical volume.
        name: String,
    },
    /// A physical volume could not be read again. Nothing was written.
    #[error("{name}: reading its metadata again: {source}")]
    Read {
        /// The physical volume.
        name: String,
        /// Why.
        source: IoError,
    },
    /// An area cannot take the text. Nothing was written.
    #[error("{name}: {source}")]
    Area {
        /// The physical volume.
        name: String,
        /// Why.
        source: AreaError,
    },
    /// A label has no room for what it should say. Nothing was written.
    #[error("{name}: {source}")]
    Label {
        /// The physical volume.
        name: String,
        /// Why.
        source: LabelError,
    },
    /// No physical volume has an area to write to. Nothing was written.
    #[error("none of the physical volumes has a metadata area in use")]
    NoArea,
    /// Physical volumes could not be emptied, or their labels written.
    #[error("{failures}", failures = .failures.join("; "))]
    NotReleased {
        /// Each failure.
        failures: Vec<String>,
    },
    /// A physical volume does not take what comes before the headers that count. The group is as it
    /// was.
    #[error("{name}: writing {step}: {source}")]
    NotWritten {
        /// The physical volume.
        name: String,
        /// What was being written.
        step: CommitStep,
        /// Why.
        source: IoError,
    },
    /// What was written to a physical volume cannot be read back. Where no header was written that
    /// names the new text alone, the group is as it was.
    #[error("{name}: reading back what was written: {source}")]
    NotReadBack {
        /// The physical volume.
        name: String,
        /// Why.
        source: IoError,
    },
    /// A header that names the new text alone may have been written, and it is not known that it
    /// counts.
    #[error("{failures}", failures = .failures.join("; "))]
    InDoubt {
        /// Each failure.
        failures: Vec<String>,
    },
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        let what = error.to_string();
        let nothing = "nothing was written";
        match error {
            CommitError::Changed { name } => Self::new(
                Code::Changed,
                what,
                "another process changed the volume group in between; its metadata is as that process left it",
                "find that process, look again (`wattle vg list`), and repeat the command",
            )
            .of_member(name),
            CommitError::Read { name, .. } => {
                Self::new(Code::ReadFailed, what, nothing, "see what is wrong with the drive").of_member(name)
            }
            CommitError::Area { name, .. } | CommitError::Label { name, .. } => Self::new(
                Code::GroupNotWritten,
                what,
                nothing,
                "make physical volumes with larger metadata areas (`pvcreate --metadatasize`), or use several groups",
            )
            .of_member(name),
            CommitError::NoArea => Self::new(
                Code::GroupNotWritten,
                what,
                "all areas are damaged, or set aside by --metadataignore; nothing was written",
                "put one to use (`pvchange --metadataignore n`), or write them anew (`wattle vg restore`)",
            ),
            CommitError::NotReleased { .. } => Self::new(
                Code::WriteFailed,
                what,
                "these are what they were, at least in part; the others are done",
                "see what is wrong with the drive, and repeat the command",
            ),
            CommitError::NotWritten { name, .. } | CommitError::NotReadBack { name, .. } => Self::new(
                Code::GroupNotWritten,
                what,
                "every physical volume has to take the new text, and nowhere it counts yet: the group is as it was",
                "see what is wrong with the drive (of a file: whether its file system has room), and repeat the command; one that takes \
                 no writes any more is copied to another one first",
            )
            .of_member(name),
            CommitError::InDoubt { .. } => Self::new(
                Code::GroupInDoubt,
                what,
                "some header may hold the new text all the same: the group is as it was, or changed",
                "replace what fails, look with `wattle vg list`, and repeat the command",
            ),
        }
    }
}

/// What is written to a physical volume that gets the text.
struct SiteCommit {
    /// As it is once commits that were cut short are ended.
    site: CommitSite,
    /// Headers that end them.
    ends: Vec<Header>,
    areas: Vec<area::Commit>,
}

/// How an area gets a text.
pub(super) struct AreaCommit {
    /// The header that ends a commit that was cut short, durable before anything else is written.
    pub end: Option<Header>,
    /// The commit of the text.
    pub commit: area::Commit,
}

/// The checksum of the text that counts among those of these physical volumes.
pub(super) fn current_crc<'a>(physical: impl Iterator<Item = &'a PhysicalVolume>) -> Option<u32> {
    let texts = physical.flat_map(|physical| &physical.areas).filter_map(|area| match area.state {
        AreaState::Text { seqno, crc, .. } => Some((seqno, crc)),
        _ => None,
    });
    texts.max_by_key(|(seqno, _)| *seqno).map(|(_, crc)| crc)
}

/// How the areas of a physical volume that are written get a text; `current`: [`current_crc`].
pub(super) fn area_commits(
    physical: &PhysicalVolume,
    current: Option<u32>,
    text: &[u8],
) -> Result<Vec<AreaCommit>, AreaError> {
    let area = |header: &Header| {
        let end = current.and_then(|crc| header.ended(crc));
        let commit = end.as_ref().unwrap_or(header).commit(text)?;
        Ok(AreaCommit { end, commit })
    };
    usable(physical).map(area).collect()
}

/// Makes `text` the group's. What of it could not be written to some device once it counts is told;
/// the group is changed all the same.
///
/// # Errors
/// [`CommitError`].
pub async fn commit(core: &Core, text: &[u8], sites: &[CommitSite]) -> Result<Vec<String>, CommitError> {
    let belonging = || sites.iter().filter(|site| site.role == CommitRole::Belongs);
    let current = current_crc(belonging().map(|site| &site.before));
    let mut commits = Vec::new();
    for site in belonging() {
        let areas = area_commits(&site.before, current, text);
        let areas = areas.map_err(|source| CommitError::Area { name: site.name.clone(), source })?;
        commits.push(SiteCommit::new(site.clone(), areas));
    }
    commits.retain(|commit| !commit.areas.is_empty());
    if commits.is_empty() {
        return Err(CommitError::NoArea);
    }
    let labels = labels(sites)?;
    check_unchanged(core, sites.iter()).await?;
    for commit in &commits {
        commit.end_earlier(core).await?;
    }
    for step in [CommitStep::Text, CommitStep::Precommit] {
        for commit in &commits {
            commit.check_written(core, step).await?;
            commit.write_step(core, step).await?;
        }
    }
    let (mut failures, mut committed, mut may_count) = (Vec::new(), false, false);
    for commit in &commits {
        match commit.check_written(core, CommitStep::Commit).await {
            Err(error) if !may_count => return Err(error),
            // Another process writes to the group too: whose text counts is not known any more.
            Err(error @ CommitError::Changed { .. }) => {
                failures.push(error.to_string());
                return Err(CommitError::InDoubt { failures });
            }
            Err(error) => failures.push(error.to_string()),
            Ok(()) => {
                may_count = true;
                match commit.write_step(core, CommitStep::Commit).await {
                    Err(error) => failures.push(error.to_string()),
                    Ok(()) => committed = true,
                }
            }
        }
    }
    if !committed {
        return Err(CommitError::InDoubt { failures });
    }
    failures.extend(finish(core, sites, &labels).await);
    Ok(failures)
}

/// Does what becomes of physical volumes where no text is committed: empties areas, writes labels.
/// Nothing else says what they are, so a failure is an error.
///
/// # Errors
/// [`CommitError`].
pub async fn release(core: &Core, sites: &[CommitSite]) -> Result<(), CommitError> {
    let labels = labels(sites)?;
    check_unchanged(core, sites.iter()).await?;
    let failures = finish(core, sites, &labels).await;
    if failures.is_empty() { Ok(()) } else { Err(CommitError::NotReleased { failures }) }
}

/// Makes a physical volume: zeros over `wipe`, empty areas, and the label last.
///
/// # Errors
/// The device's, or that the label or the areas cannot be.
pub async fn initialise(
    core: &Core,
    name: &str,
    device: &Device,
    label: &Label,
    wipe: &[Area],
) -> Result<PhysicalVolume, Problem> {
    let bytes = label.encode().map_err(|source| CommitError::Label { name: name.to_owned(), source })?;
    let physical = empty(label).map_err(|source| CommitError::Area { name: name.to_owned(), source })?;
    let written = async {
        for range in wipe {
            let zeros = vec![0; usize::try_from(range.size_bytes).unwrap_or(0)];
            write(core, device, range.offset_bytes, &zeros).await?;
        }
        for header in physical.areas.iter().filter_map(|area| area.header.as_ref()) {
            write(core, device, header.start(), header.bytes()).await?;
        }
        core.flush(device).await?;
        write(core, device, label.sector * 512, &bytes).await?;
        core.flush(device).await
    };
    written.await.map_err(|error| write_failed(name, "making it a physical volume", error))?;
    Ok(physical)
}

/// What an empty physical volume with this label holds.
///
/// # Errors
/// An area of it cannot be.
pub fn empty(label: &Label) -> Result<PhysicalVolume, AreaError> {
    let area = |&place: &Area| {
        let header = Some(Header::new(place)?);
        Ok(AreaScan { place, header, state: AreaState::Empty, text: None, error: None })
    };
    let areas = label.metadata_areas.iter().map(area).collect::<Result<_, _>>()?;
    Ok(PhysicalVolume { label: label.clone(), areas, size_bytes: label.device_bytes })
}

/// Lets areas whose headers are damaged be written as if they were empty: nothing that is in them
/// can be told any more.
pub(super) fn renew_damaged(physical: &mut PhysicalVolume) {
    for area in physical.areas.iter_mut().filter(|area| area.header.is_none()) {
        area.header = Header::new(area.place).ok();
    }
}

/// The headers of areas that texts are written to.
pub(super) fn usable(physical: &PhysicalVolume) -> impl Iterator<Item = &Header> {
    physical.areas.iter().filter_map(|area| area.header.as_ref()).filter(|header| !header.is_ignored())
}

/// The sectors of labels that change, by site.
fn labels(sites: &[CommitSite]) -> Result<Vec<Option<[u8; 512]>>, CommitError> {
    let label = |site: &CommitSite| match site.role {
        CommitRole::Goes => Ok(Some([0; 512])),
        CommitRole::Belongs | CommitRole::Leaves if site.label == site.before.label => Ok(None),
        CommitRole::Belongs | CommitRole::Leaves => {
            let bytes = site.label.encode();
            bytes.map(Some).map_err(|source| CommitError::Label { name: site.name.clone(), source })
        }
    };
    sites.iter().map(label).collect()
}

/// Whether every site still is what the change was decided from: labels and headers, which hold the
/// checksums of the texts.
///
/// # Errors
/// [`CommitError`].
pub(super) async fn check_unchanged(
    core: &Core,
    sites: impl Iterator<Item = &CommitSite>,
) -> Result<(), CommitError> {
    for site in sites {
        let failed = |source| CommitError::Read { name: site.name.clone(), source };
        let changed = || CommitError::Changed { name: site.name.clone() };
        let head = read(core, &site.device, 0, SCAN_BYTES).await.map_err(failed)?;
        if Label::find(&head) != Ok(Some(site.before.label.clone())) {
            return Err(changed());
        }
        for area in &site.before.areas {
            let bytes = match read(core, &site.device, area.place.offset_bytes, area::HEADER_BYTES).await {
                Err(_) if area.error.is_some() => continue,
                read => read.map_err(failed)?,
            };
            // One that is damaged is not written, or written anew.
            let unchanged = match Header::decode(&bytes, area.place) {
                Ok(header) => area.header.as_ref() == Some(&header),
                Err(_) => area.error.is_some(),
            };
            if !unchanged {
                return Err(changed());
            }
        }
    }
    Ok(())
}

impl SiteCommit {
    fn new(mut site: CommitSite, areas: Vec<AreaCommit>) -> Self {
        let (ends, areas): (Vec<_>, Vec<_>) = areas.into_iter().map(|area| (area.end, area.commit)).unzip();
        let ends: Vec<Header> = ends.into_iter().flatten().collect();
        for area in &mut site.before.areas {
            let end = ends.iter().find(|end| end.start() == area.place.offset_bytes);
            area.header = end.cloned().or(area.header.take());
        }
        Self { site, ends, areas }
    }

    /// Ends commits that were cut short: the text of each counts, and is there.
    async fn end_earlier(&self, core: &Core) -> Result<(), CommitError> {
        let CommitSite { name, device, .. } = &self.site;
        let written = async {
            for header in &self.ends {
                write(core, device, header.start(), header.bytes()).await?;
            }
            if self.ends.is_empty() { Ok(()) } else { core.flush(device).await }
        };
        let step = CommitStep::Commit;
        written.await.map_err(|source| CommitError::NotWritten { name: name.clone(), step, source })
    }

    /// Whether what the steps before `step` wrote is there, and no other header: what another
    /// process wrote in between is not made the text of a header that has another checksum.
    async fn check_written(&self, core: &Core, step: CommitStep) -> Result<(), CommitError> {
        let CommitSite { name, device, .. } = &self.site;
        let not_read_back = |source| CommitError::NotReadBack { name: name.clone(), source };
        let is_there = async |offset_bytes, bytes: &[u8]| {
            let found = read(core, device, offset_bytes, bytes.len()).await.map_err(not_read_back)?;
            if found[..] == *bytes { Ok(()) } else { Err(CommitError::Changed { name: name.clone() }) }
        };
        match step {
            CommitStep::Text => return Ok(()),
            CommitStep::Precommit => {
                let unchanged = check_unchanged(core, std::iter::once(&self.site)).await;
                unchanged.map_err(|error| match error {
                    CommitError::Read { source, .. } => not_read_back(source),
                    error => error,
                })?;
            }
            CommitStep::Commit => {
                for area in &self.areas {
                    is_there(area.precommit.start(), area.precommit.bytes()).await?;
                }
            }
        }
        for (offset_bytes, bytes) in self.areas.iter().flat_map(|area| &area.texts) {
            is_there(*offset_bytes, bytes).await?;
        }
        Ok(())
    }

    /// Writes what a step has for it, and flushes it.
    async fn write_step(&self, core: &Core, step: CommitStep) -> Result<(), CommitError> {
        let CommitSite { name, device, .. } = &self.site;
        let written = async {
            for area in &self.areas {
                let header = match step {
                    CommitStep::Text => {
                        for (offset_bytes, bytes) in &area.texts {
                            write(core, device, *offset_bytes, bytes).await?;
                        }
                        continue;
                    }
                    CommitStep::Precommit => &area.precommit,
                    CommitStep::Commit => &area.commit,
                };
                write(core, device, header.start(), header.bytes()).await?;
            }
            core.flush(device).await
        };
        written.await.map_err(|source| CommitError::NotWritten { name: name.clone(), step, source })
    }
}

/// What follows a commit: physical volumes that left are emptied, and labels say so. Failures are
/// told: nothing depends on it, since the group's text says what belongs to it.
async fn finish(core: &Core, sites: &[CommitSite], labels: &[Option<[u8; 512]>]) -> Vec<String> {
    let mut failures = Vec::new();
    for (site, label) in sites.iter().zip(labels) {
        if let Err((what, error)) = finish_one(core, site, label.as_ref()).await {
            failures.push(format!("{}: {what}: {error}", site.name));
        }
    }
    failures
}

async fn finish_one(
    core: &Core,
    site: &CommitSite,
    label: Option<&[u8; 512]>,
) -> Result<(), (&'static str, IoError)> {
    let device = &site.device;
    let leaves = site.role != CommitRole::Belongs;
    let what = if leaves { "writing its label, emptying its metadata areas" } else { "writing its label" };
    let written = async {
        // The label first: while it says that it is in a group, a text has to say in which.
        if let Some(label) = label {
            write(core, device, site.before.label.sector * 512, label).await?;
            core.flush(device).await?;
        }
        if leaves {
            for place in &site.before.label.metadata_areas {
                // An area that was set aside stays so when it is emptied.
                if let Ok(header) = Header::new(*place) {
                    write(core, device, place.offset_bytes, header.bytes()).await?;
                }
            }
            core.flush(device).await?;
        }
        Ok(())
    };
    written.await.map_err(|error| (what, error))
}

/// Writes zeros, durably: over what was left in extents that a new volume gets.
///
/// # Errors
/// The device's.
pub async fn zero(core: &Core, name: &str, device: &Device, ranges: &[Area]) -> Result<(), Problem> {
    let zeroed = async {
        for range in ranges {
            let zeros = vec![0; usize::try_from(range.size_bytes).unwrap_or(0)];
            write(core, device, range.offset_bytes, &zeros).await?;
        }
        core.flush(device).await
    };
    zeroed.await.map_err(|error| write_failed(name, "zeros over what its extents held", error))
}

fn write_failed(name: &str, what: &str, error: IoError) -> Problem {
    Problem::new(
        Code::WriteFailed,
        format!("{name}: {what}: {error}"),
        "the volume group is as it was",
        "see what is wrong with the drive, and repeat the command",
    )
    .of_member(name)
}
