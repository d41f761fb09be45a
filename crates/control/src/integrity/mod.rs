//! Devices of dm-integrity: what is known of them, how they are opened, and the device that they
//! are then.
//!
//! Reading order: `open.rs` finds out what blocks are read by, `device.rs` is what others see,
//! `blocks.rs` reads and writes blocks with their tags, `settle.rs` brings a journal to its places,
//! `write.rs` writes by way of it.
//!
//! Invariants:
//! - A block whose tag is not its own is an error, and never data. Blocks without tags that count
//!   (the bitmap names them, or tags are still being made) are read as they are, as Linux does, and
//!   that is reported.
//! - The checksum is one that the device's own tags prove: the superblock does not name it.
//! - What the journal holds is read from there; a journal that cannot be followed refuses the
//!   device.
//! - What is opened to be read is not written, and what is written goes by way of the journal.

mod blocks;
mod device;
mod open;
mod settle;
mod write;

use wattle_format::integrity::{
    DIRTY_BITMAP, IntegrityError, IntegrityLayout, IntegritySuperblock, JOURNAL_MAC, RECALCULATING,
    SUPERBLOCK_BYTES,
};

pub(crate) use device::CheckedDevice;
pub(crate) use open::OpenedTags;

use crate::members::Member;
use crate::problem::{Check, Code, Problem};

/// What is known of a device of dm-integrity.
#[derive(Debug, Clone)]
pub struct IntegrityDevice {
    /// Its superblock.
    pub superblock: IntegritySuperblock,
    /// Where things lie on it.
    pub layout: IntegrityLayout,
    /// Whether it is open.
    pub state: IntegrityState,
}

/// Whether a device of dm-integrity is open.
#[derive(Debug, Clone)]
pub enum IntegrityState {
    /// Nothing that was asked for lies on it.
    Unused,
    /// It is open.
    Open(IntegrityFacts),
    /// It could not be opened.
    Refused(Problem),
}

/// What was found out when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegrityFacts {
    /// The checksum that its tags are of; `None` where no tag was found that says so.
    pub checksum: Option<&'static str>,
    /// Blocks that are read from its journal.
    pub logged_blocks: u64,
    /// What has no tags that count, sectors.
    pub unchecked_sectors: u64,
    /// Why it is only read, if it was to be written.
    pub only_read: Option<&'static str>,
    /// What was passed over because the operator said so, what cannot be done, and what
    /// was done.
    pub notes: Vec<String>,
}

impl IntegrityDevice {
    /// Reads the superblock of a member that has one.
    pub(crate) fn read(member: &Member) -> Result<Self, Problem> {
        let name = &member.name;
        let bytes = member.read(0, SUPERBLOCK_BYTES)?;
        let unusable = |error: IntegrityError| unsupported(name, &error.to_string());
        let superblock = IntegritySuperblock::parse(&bytes).map_err(unusable)?;
        let layout = IntegrityLayout::of(&superblock).map_err(unusable)?;
        if superblock.is_apart() {
            return Err(apart(name));
        }
        let (needed, there) = (layout.end_bytes(), member.device.size_bytes());
        if needed > there {
            return Err(Problem::new(
                Code::TooSmall,
                format!("{name}: a device of dm-integrity of {needed} bytes, of which {there} are there"),
                "the device is smaller than its superblock says",
                "check the copy or download it came from",
            )
            .of_member(name));
        }
        Ok(Self { superblock, layout, state: IntegrityState::Unused })
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn summary(&self) -> String {
        let superblock = &self.superblock;
        let mut parts = vec![match &self.state {
            IntegrityState::Open(IntegrityFacts { checksum: Some(checksum), .. }) => {
                format!("dm-integrity, {checksum}")
            }
            _ => "dm-integrity".to_owned(),
        }];
        parts.push(format!("tags of {} bytes", superblock.tag_bytes));
        parts.push(format!("blocks of {}", superblock.block_bytes()));
        parts.push(format!("{} sectors provided", superblock.provided_sectors));
        parts.push(self.mode().to_owned());
        match &self.state {
            IntegrityState::Unused => {}
            IntegrityState::Refused(problem) => parts.push(format!("not opened ({})", problem.code)),
            IntegrityState::Open(facts) => {
                if facts.logged_blocks > 0 {
                    parts.push(format!("{} blocks are read from its journal", facts.logged_blocks));
                }
                if facts.unchecked_sectors > 0 {
                    parts.push(format!("{} sectors have no tags that count", facts.unchecked_sectors));
                }
            }
        }
        parts.join(", ")
    }

    /// What the superblock says of the mode it ran in last.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        let superblock = &self.superblock;
        match () {
            () if superblock.has(DIRTY_BITMAP) => "bitmap in use",
            () if superblock.has(RECALCULATING) => "tags are being made",
            () if superblock.has(JOURNAL_MAC) => "journal with a key",
            () => "journal",
        }
    }

    /// Why it cannot be read, if it cannot.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match &self.state {
            IntegrityState::Refused(problem) => Some(problem),
            IntegrityState::Unused | IntegrityState::Open(_) => None,
        }
    }

    /// What to know of what is read of it.
    #[must_use]
    pub fn notes(&self, name: &str) -> Vec<String> {
        let IntegrityState::Open(facts) = &self.state else { return Vec::new() };
        let mut notes = facts.notes.clone();
        if facts.unchecked_sectors > 0 {
            notes.push(format!(
                "{name}: {} of {} sectors have no checksum that counts ({}): they are read as they are, as \
                 Linux does before it makes their checksums again",
                facts.unchecked_sectors,
                self.superblock.provided_sectors,
                if self.superblock.has(DIRTY_BITMAP) { "the bitmap names them" } else { self.mode() },
            ));
        }
        notes
    }
}

fn unsupported(name: &str, what: &str) -> Problem {
    Problem::new(
        Code::IntegrityUnsupported,
        format!("{name}: dm-integrity: {what}"),
        "it is not read, because what came out could be wrong",
        "open it with integritysetup on a system that knows it",
    )
    .of_member(name)
}

fn apart(name: &str) -> Problem {
    Problem::new(
        Code::IntegrityUnsupported,
        format!("{name} has the checksums of dm-integrity for data on another device"),
        "which device that is it does not say, and checksums apart from their data are not compared",
        "give the device with the data: data lies on it as it is (what is only in a journal is missed)",
    )
    .of_member(name)
}

/// The journal does not say what it holds.
fn journal_damaged(name: &str, what: &str) -> Problem {
    Problem::new(
        Code::IntegrityJournal,
        format!("{name}: the journal of dm-integrity: {what}"),
        "writes that were acknowledged may be only there; it is damaged, or encrypted (--journal-crypt)",
        format!(
            "--force={} reads the data without the journal: what was written last may be old",
            Check::Journal
        ),
    )
    .of_member(name)
    .forced_by(Check::Journal)
}

/// What the journal holds does not get to its places.
fn unsettled(name: &str, error: wattle_rt::IoError) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: the journal of dm-integrity cannot be brought to its places: {error}"),
        "before a device with checksums is written, what its journal holds has to be in its places; nothing of it is lost",
        "make room, or see what is wrong with what it lies on (`wattle scan`); --read-only reads it with its journal",
    )
    .of_member(name)
}

fn no_checksum(name: &str, tag_bytes: u16, has_keys: bool) -> Problem {
    let (why, next) = match has_keys {
        false => (
            "no checksum that needs no key gives the tags on it: they may be codes with a key (HMAC)",
            "give the key of its checksums: --key-file FILE",
        ),
        true => (
            "neither a checksum nor a code with one of the keys that were given yields the tags on it",
            "mind the key and its size (--key-file-size, integritysetup's --integrity-key-size)",
        ),
    };
    Problem::new(
        Code::IntegrityUnknownTags,
        format!("{name}: what its tags of {tag_bytes} bytes are made with is not known"),
        why,
        next,
    )
    .of_member(name)
}
