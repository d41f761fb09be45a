//! What else is on a member: superblocks, file systems, partition tables, volume groups. Named with
//! the place that proves it.

use std::fmt;
use std::ops::Range;

use wattle_format::probe::{self, SignatureKind};

use crate::members::{Member, MemberError};

const SECTOR_BYTES: usize = 512;

/// Something that is recognised by its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSignature {
    /// What it is: `ext4 file system`, `GPT partition table`, `md 1.2 superblock`.
    pub what: String,
    /// Where the bytes that prove it are.
    pub offset_bytes: u64,
    /// Its own id, if it has one.
    pub uuid: Option<String>,
    /// What is recognised; `None` for an md superblock, of which `what` says the version.
    pub kind: Option<SignatureKind>,
}

impl FoundSignature {
    /// Whether files are in it.
    #[must_use]
    pub fn is_file_system(&self) -> bool {
        self.kind.is_some_and(SignatureKind::is_file_system)
    }
}

/// Reads so many bytes at an offset (bytes) of a member.
pub(crate) type ReadAt<'a> = dyn Fn(u64, usize) -> Result<Vec<u8>, MemberError> + 'a;

impl fmt::Display for FoundSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset_bytes)
    }
}

/// Everything but md superblocks that is recognised on a member.
///
/// # Errors
/// The first place that could not be read: something may be there.
pub(crate) fn signatures(member: &Member) -> Result<Vec<FoundSignature>, MemberError> {
    let read = |offset_bytes, len_bytes| member.read(offset_bytes, len_bytes);
    let (found, unread) = readable_signatures(member.device.size_bytes(), &read);
    unread.into_iter().next().map_or(Ok(found), Err)
}

/// The same of what the drive gives, and why some places could not be read.
pub(crate) fn readable_signatures(
    size_bytes: u64,
    read: &ReadAt<'_>,
) -> (Vec<FoundSignature>, Vec<MemberError>) {
    let (parts, unread) = readable_parts(size_bytes, read);
    (recognise(size_bytes, &parts), unread)
}

/// Parts of a device: offset (bytes) and bytes.
type Parts = Vec<(u64, Vec<u8>)>;

/// The parts where something is recognised, as far as the drive gives them, and why some of it
/// could not be read.
pub(crate) fn readable_parts(size_bytes: u64, read: &ReadAt<'_>) -> (Parts, Vec<MemberError>) {
    let (mut parts, mut unread) = (Vec::new(), Vec::new());
    for range in probe::ranges(size_bytes) {
        match read(range.start, (range.end - range.start) as usize) {
            Ok(bytes) => parts.push((range.start, bytes)),
            Err(error) => {
                if matches!(error, MemberError::NotCopied { .. }) {
                    parts.extend(readable_runs(range, read));
                }
                unread.push(error);
            }
        }
    }
    (parts, unread)
}

/// What of a range can be read, sector by sector: where that costs a drive nothing.
fn readable_runs(range: Range<u64>, read: &ReadAt<'_>) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for at in range.clone().step_by(SECTOR_BYTES) {
        let Ok(bytes) = read(at, SECTOR_BYTES.min((range.end - at) as usize)) else { continue };
        match runs.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == at => run.extend(bytes),
            _ => runs.push((at, bytes)),
        }
    }
    runs
}

/// What a device of `size_bytes` shows in these parts of it: offset and bytes.
pub(crate) fn recognise(size_bytes: u64, parts: &[(u64, Vec<u8>)]) -> Vec<FoundSignature> {
    let parts: Vec<_> = parts.iter().map(|(offset_bytes, bytes)| (*offset_bytes, bytes.as_slice())).collect();
    probe::identify(size_bytes, &parts).into_iter().map(FoundSignature::from).collect()
}

impl From<probe::Signature> for FoundSignature {
    fn from(found: probe::Signature) -> Self {
        let label = found
            .label
            .filter(|label| !label.is_empty())
            .map_or(String::new(), |label| format!(" `{label}`"));
        Self {
            what: format!("{}{label}", found.kind.name()),
            offset_bytes: found.offset_bytes,
            uuid: found.uuid,
            kind: Some(found.kind),
        }
    }
}
