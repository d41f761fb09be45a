//! Why an array is not served, or not written: typed, and in an operator's words.

use std::fmt;
use std::ops::Range;

use wattle_engine::geometry::{Geometry, GeometryError, layout_name};
use wattle_engine::units::SECTOR_BYTES;

use crate::md::assemble::ReshapeAssembly;
use crate::md::facts::{ContainerFormat, ContainerRefusal};
use crate::problem::{Check, Code, Problem};

/// Something that keeps an array from being written or from being served at all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The slots without a usable member are more than redundancy covers.
    NotEnoughMembers {
        /// Slots without a usable member.
        missing: Vec<u16>,
        /// How many slots the array has.
        raid_disks: u32,
    },
    /// Parity cannot be trusted and a member is missing.
    DirtyDegraded {
        /// Slots that are missing or only partly rebuilt.
        missing: Vec<u16>,
        /// The array has partial parity logs, which do not tell all that was in flight.
        ppl: bool,
        /// What the bitmap knows: how many of its regions may be wrong, and how many it has.
        /// `None`: all of the array may be.
        regions: Option<(u64, u64)>,
    },
    /// A slot is not in sync, and the operator wants whole arrays only.
    DegradedNotAllowed {
        /// Slots that are missing or only partly rebuilt.
        missing: Vec<u16>,
    },
    /// Two equally fresh members are in one slot.
    DuplicateRole {
        /// The slot.
        slot: u16,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// A member was part of a run of the array without the freshest member.
    SplitBrain {
        /// It.
        member: String,
        /// The freshest member.
        freshest: String,
    },
    /// Feature bits that are not known here.
    UnknownFeatures {
        /// The member that holds the superblock.
        member: String,
        /// The bits.
        bits: u32,
    },
    /// A reshape is not finished.
    Reshaping(ReshapeSummary),
    /// A reshape is not finished, and its superblocks do not say how to read the array.
    ReshapeUnknown,
    /// The log holds something that is not understood.
    JournalNotEmpty {
        /// The journal.
        member: String,
    },
    /// A block of the log is not what was logged, and there is more behind it.
    JournalDamaged {
        /// The journal.
        member: String,
        /// Pages of 4 KiB before that block that only the journal has.
        pages: u64,
    },
    /// What only the journal has is read from it; a writer would have to replay it.
    JournalReplayed {
        /// Pages of 4 KiB that only the journal has.
        pages: u64,
        /// The last block of the log was cut short.
        is_cut_short: bool,
    },
    /// Nothing is only in the journal; a writer would have to use it.
    JournalUnused,
    /// The journal is not among the members.
    JournalMissing,
    /// The feature bit or the bitmap of a cluster.
    Clustered,
    /// RAID 0 with several zones and no layout.
    Raid0Layout,
    /// A bad-block log is not empty and cannot be read.
    BadBlocks {
        /// The member it is about.
        member: String,
    },
    /// Multipath, faulty, container, or something new.
    UnsupportedLevel {
        /// As the superblock has it.
        level: i32,
    },
    /// The copies of this RAID 10 collide.
    CollidingLayout {
        /// The layout word.
        layout: u32,
    },
    /// The bitmap's version is not 3 or 4.
    BitmapVersion {
        /// The member it is about.
        member: String,
        /// Its version.
        version: u32,
    },
    /// The superblock names a bitmap and what is there is none.
    BitmapInvalid {
        /// The member it is about.
        member: String,
    },
    /// No member gives the bits of the bitmap.
    BitmapUnreadable {
        /// One whose bitmap was tried.
        member: String,
    },
    /// Equally fresh members disagree.
    Ambiguous {
        /// The field.
        field: &'static str,
        /// What the freshest member says.
        expected: u64,
        /// A member that says something else.
        member: String,
        /// What it says.
        found: u64,
    },
    /// A number of the superblock cannot be.
    BadNumber {
        /// The member that holds the superblock.
        member: String,
        /// The field, as `examine` names it.
        field: &'static str,
        /// What it says.
        found: u64,
        /// What it may say.
        expected: &'static str,
    },
    /// Firmware's metadata, which is not written.
    Container {
        /// Whose.
        format: ContainerFormat,
    },
    /// A volume of a container that is not read.
    ContainerRefused {
        /// Whose metadata says so.
        format: ContainerFormat,
        /// Why.
        refusal: ContainerRefusal,
    },
    /// The numbers do not fit together.
    Geometry {
        /// The member that holds the superblock.
        member: String,
        /// The numbers that do not.
        source: GeometryError,
    },
}

/// What an unfinished reshape makes of an array, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReshapeSummary {
    /// What it was: `raid5 left-symmetric of 4 members with 64K chunks`.
    pub from: String,
    /// What it becomes.
    pub to: String,
    /// How much of it has the new geometry.
    pub percent: u64,
    /// Where the two meet, in array sectors.
    pub position_sectors: u64,
    /// The new geometry is above the position.
    pub backwards: bool,
    /// What may have been moved already, in array sectors: it is read only where a backup file
    /// proves what it holds, or by force.
    pub doubtful: Option<Range<u64>>,
    /// Linux may have come further than it recorded: what is beyond the position is looked at.
    pub is_looked_at: bool,
}

impl ReshapeSummary {
    /// Of an array that is read by both.
    #[must_use]
    pub fn of(reshape: &ReshapeAssembly) -> Self {
        Self {
            from: shape(&reshape.old.geometry),
            to: shape(&reshape.new.geometry),
            percent: reshape.percent_done(),
            position_sectors: reshape.position_sectors,
            backwards: reshape.backwards,
            doubtful: reshape.doubtful.clone().filter(|_| !reshape.forced),
            is_looked_at: reshape.moved_sectors.is_some(),
        }
    }
}

fn shape(geometry: &Geometry) -> String {
    let layout = layout_name(geometry.level(), geometry.layout());
    let layout = layout.map(|name| format!(" {name}")).unwrap_or_default();
    let (members, chunk_kib) = (geometry.raid_disks(), geometry.chunk().0 / 2);
    format!("{}{layout} of {members} members with chunks of {chunk_kib}K", geometry.level())
}

impl fmt::Display for ReshapeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, percent, .. } = self;
        write!(f, "in the middle of a reshape from {from} to {to}, {percent} % done")?;
        let Some(doubtful) = &self.doubtful else {
            let position = self.position_sectors * SECTOR_BYTES;
            let beyond = match self.backwards {
                _ if !self.is_looked_at => return Ok(()),
                false => format!("from byte {position} on"),
                true => format!("below byte {position}"),
            };
            return write!(
                f,
                "; what is {beyond} may have been moved already or not, and is an error where neither the members nor a backup \
                 file tell"
            );
        };
        let (start, end) = (doubtful.start * SECTOR_BYTES, doubtful.end * SECTOR_BYTES);
        write!(
            f,
            "; bytes {start} to {end} of it may have been moved already or not, and are an error where no backup file tells"
        )
    }
}

impl Reason {
    /// Its code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NotEnoughMembers { .. } => Code::NotEnoughMembers,
            Self::DirtyDegraded { .. } => Code::DirtyDegraded,
            Self::DegradedNotAllowed { .. } => Code::Degraded,
            Self::DuplicateRole { .. } => Code::DuplicateRole,
            Self::SplitBrain { .. } => Code::SplitBrain,
            Self::UnknownFeatures { .. } => Code::UnknownFeature,
            Self::Reshaping(_) | Self::ReshapeUnknown => Code::Reshaping,
            Self::JournalNotEmpty { .. } | Self::JournalReplayed { .. } => Code::JournalNotEmpty,
            Self::JournalDamaged { .. } => Code::JournalDamaged,
            Self::JournalMissing => Code::JournalMissing,
            Self::JournalUnused => Code::NotSupportedYet,
            Self::Clustered => Code::Clustered,
            Self::Raid0Layout => Code::Raid0Layout,
            Self::BadBlocks { .. } => Code::BadBlocks,
            Self::UnsupportedLevel { .. } => Code::UnsupportedLevel,
            Self::CollidingLayout { .. } => Code::CollidingLayout,
            Self::BitmapVersion { .. } | Self::BitmapInvalid { .. } => Code::ForeignBitmap,
            Self::BitmapUnreadable { .. } => Code::ReadFailed,
            Self::Ambiguous { .. } => Code::Ambiguous,
            Self::BadNumber { .. } | Self::Geometry { .. } => Code::ImpossibleGeometry,
            Self::Container { .. } => Code::ContainerReadOnly,
            Self::ContainerRefused { refusal: ContainerRefusal::Migrating { .. }, .. } => {
                Code::ContainerMigrating
            }
            Self::ContainerRefused { .. } => Code::ContainerUnsupported,
        }
    }

    /// The check that overrides it, if one does.
    #[must_use]
    pub fn check(&self) -> Option<Check> {
        match self {
            Self::DirtyDegraded { .. } => Some(Check::DirtyDegraded),
            Self::SplitBrain { .. } => Some(Check::SplitBrain),
            Self::JournalMissing | Self::JournalNotEmpty { .. } | Self::JournalDamaged { .. } => {
                Some(Check::Journal)
            }
            _ => None,
        }
    }

    /// In an operator's words, about the array called `array`.
    #[must_use]
    pub fn problem(&self, array: &str) -> Problem {
        let (why, next) = self.why_and_next();
        let mut problem = Problem::new(self.code(), format!("array {array}: {self}"), why, next);
        problem.member = self.member().map(str::to_owned);
        problem.force = self.check();
        problem
    }

    fn member(&self) -> Option<&str> {
        match self {
            Self::DuplicateRole { second: member, .. }
            | Self::SplitBrain { member, .. }
            | Self::UnknownFeatures { member, .. }
            | Self::JournalNotEmpty { member }
            | Self::JournalDamaged { member, .. }
            | Self::BadBlocks { member }
            | Self::BitmapVersion { member, .. }
            | Self::BitmapInvalid { member }
            | Self::BitmapUnreadable { member }
            | Self::Ambiguous { member, .. }
            | Self::BadNumber { member, .. }
            | Self::Geometry { member, .. } => Some(member),
            _ => None,
        }
    }

    fn why_and_next(&self) -> (&'static str, &'static str) {
        match self {
            Self::NotEnoughMembers { .. } => (
                "more slots are empty than the level's redundancy covers",
                "give the members of these slots too; `wattle scan` says why a member given was not used",
            ),
            Self::DirtyDegraded { ppl: true, .. } => (
                "a partial parity log cannot be read, or none says what was in flight: stripes may have parity that does not fit \
                 their data, and the missing member's data is computed from it",
                "give all members if you have them; --force=dirty-degraded goes on and may return wrong data in these stripes",
            ),
            Self::DirtyDegraded { regions: Some(_), .. } => (
                "in these regions parity may not fit the data, and the missing member's data is computed from it; the rest is right",
                "give all members if you have them; --force=dirty-degraded goes on and may return wrong data in these regions",
            ),
            Self::DirtyDegraded { .. } => (
                "stripes in flight when it stopped may have parity that does not fit their data, and the missing member's \
                 data is computed from it",
                "give all members if you have them; --force=dirty-degraded goes on and may return wrong data in these stripes",
            ),
            Self::DegradedNotAllowed { .. } => (
                "--degraded=never asks for whole arrays only",
                "give the members of these slots too, or serve it as it is: --degraded=auto",
            ),
            Self::DuplicateRole { .. } => (
                "one may be an old copy of the other, and only one can be right",
                "give only the one you trust",
            ),
            Self::SplitBrain { .. } => (
                "each side went on without the other and has changes of its own",
                "give only the members of one side, or --force=split-brain for the freshest",
            ),
            Self::UnknownFeatures { .. } => (
                "data read by old rules may be wrong",
                "use a newer wattle, or the kernel that made the array",
            ),
            Self::Reshaping(ReshapeSummary { doubtful: Some(_), .. }) => (
                "data is written over in place there, and Linux records how far it came only now and then",
                "give the file that mdadm wrote (--backup-file FILE); --force=reshape-position reads there as if Linux had come no further than it recorded",
            ),
            Self::Reshaping(ReshapeSummary { is_looked_at: true, .. }) => (
                "part of the array is in its old geometry and part in the new one, and Linux records how far it came only now and then",
                "copy what you need out of it, or serve it with --read-only; the kernel finishes the reshape; \
                 --force=reshape-position reads what is an error as if Linux had come no further than it recorded",
            ),
            Self::Reshaping(_) => (
                "part of the array is in its old geometry and part in the new one; both are read, and nothing is written",
                "copy what you need out of it, or serve it with --read-only; the kernel finishes the reshape",
            ),
            Self::ReshapeUnknown => (
                "part of the array is in its old geometry and part in the new one",
                "assemble it with the kernel and let the reshape finish",
            ),
            Self::JournalNotEmpty { .. } => (
                "acknowledged writes may be only there",
                "assemble copies of the members with the kernel, which may understand it; --force=journal reads the members without the \
                 journal, and may return old data, or where a member is missing wrong data",
            ),
            Self::JournalDamaged { .. } => (
                "either the power went while both were written, and nothing of either was acknowledged; or acknowledged writes are lost",
                "copy the journal device again if it is a copy; --force=journal takes the log up to that block, as the kernel does",
            ),
            Self::JournalReplayed { .. } => (
                "a writer would have to bring it to the members first, which this version does not: what is read has it",
                "serve it with --read-only, or let the kernel assemble it, which replays the journal",
            ),
            Self::JournalMissing => (
                "what was acknowledged and is only in the journal is missing then, and where a member is missing too, what is computed of \
                 stripes that were being written is wrong; nothing on the members says whether there is any",
                "give the journal device too; --force=journal reads the members without it",
            ),
            Self::JournalUnused => (
                "writes would have to go through the journal, which this version cannot",
                "serve it with --read-only",
            ),
            Self::Clustered => (
                "its nodes coordinate through a lock manager that wattle does not speak",
                "serve it with --read-only while no node runs it",
            ),
            Self::Raid0Layout => (
                "its members differ in size, more than one of them goes on behind the smallest, and kernels before 3.14 placed the data there \
                 differently",
                "--force=raid0-original or --force=raid0-alternate reads it in one of the two layouts: in the wrong one large files do not \
                 hold what they should. With metadata 1.x a Linux with md records the right one (`mdadm --assemble \
                 --update=layout-original` or `layout-alternate`)",
            ),
            Self::BadBlocks { .. } => (
                "any of its sectors may be among those that are lost, and the other members cannot stand in for it",
                "give the missing members too, or copy the drive (ddrescue) and give the copy",
            ),
            Self::UnsupportedLevel { .. } => {
                ("only linear, RAID 0, 1, 4, 5, 6 and 10 hold data in a known way", "use mdadm")
            }
            Self::CollidingLayout { .. } => (
                "with this number of members copies of different data share a place, so writing destroys data",
                "serve it with --read-only and copy the data away",
            ),
            Self::BitmapVersion { .. } => {
                ("a writer must keep such a bitmap up and this version cannot", "serve it with --read-only")
            }
            Self::BitmapInvalid { .. } => (
                "the kernel would refuse the array, and a writer must not guess",
                "serve it with --read-only, or remove the bitmap with mdadm",
            ),
            Self::BitmapUnreadable { .. } => (
                "a writer must keep the bitmap up, and cannot know what it says",
                "serve it with --read-only, or copy the drive (ddrescue) and give the copy",
            ),
            Self::Ambiguous { .. } => {
                ("members of the same generation agree on everything", "leave out the member that is wrong")
            }
            Self::Container { .. } => (
                "wattle reads what firmware RAID keeps on its drives and does not write it",
                "serve it with --read-only; mdadm writes it: `mdadm --assemble --scan` on a Linux machine that has the drives",
            ),
            Self::ContainerRefused { refusal: ContainerRefusal::Migrating { .. }, .. } => (
                "part of it lies in the old layout and part in the new one, and where they meet is known to the firmware and to mdadm",
                "let the firmware or mdadm finish it on the machine it comes from, then read it",
            ),
            Self::ContainerRefused { refusal: ContainerRefusal::Number { .. }, .. } => (
                "no firmware writes such a number; the metadata is damaged, or of a kind that is not known",
                "leave the drive that says so out if the others are enough; `wattle scan --json` shows all members",
            ),
            Self::ContainerRefused { .. } => (
                "how such a volume lies on its drives is not known for certain, and a guess could give wrong data",
                "assemble it with mdadm or with the firmware; `wattle rescue` looks for layouts by what is on the drives",
            ),
            Self::BadNumber { .. } | Self::Geometry { .. } => (
                "md writes no such superblock; it is damaged or was made to look like one",
                "leave the member out; `wattle examine` shows every field",
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEnoughMembers { missing, raid_disks } => {
                write!(f, "{} of {raid_disks} members are missing ({})", missing.len(), Slots(missing))
            }
            Self::DirtyDegraded { missing, regions: None, .. } => {
                write!(f, "it was not stopped cleanly and is degraded ({})", Slots(missing))
            }
            Self::DirtyDegraded { missing, regions: Some((set, count)), .. } => write!(
                f,
                "it was not stopped cleanly, with {set} of {count} regions in flight, and is degraded ({})",
                Slots(missing)
            ),
            Self::DegradedNotAllowed { missing } => write!(f, "it is degraded ({})", Slots(missing)),
            Self::DuplicateRole { slot, first, second } => {
                write!(f, "{first} and {second} both claim slot {slot}")
            }
            Self::SplitBrain { member, freshest } => {
                write!(f, "{member} was run without {freshest}, and {freshest} without {member}")
            }
            Self::UnknownFeatures { member, bits } => {
                write!(f, "{member}: feature_map has unknown bits {bits:#x}")
            }
            Self::Reshaping(summary) => summary.fmt(f),
            Self::ReshapeUnknown => f.write_str("a reshape is in progress"),
            Self::JournalNotEmpty { member } => {
                write!(
                    f,
                    "the journal on {member} is not empty, and its log cannot be read or is not understood"
                )
            }
            Self::JournalDamaged { member, pages } => {
                write!(
                    f,
                    "a block of the log of the journal on {member} is not what was logged, and the log goes on behind it; before it are \
                     {pages} pages of 4 KiB that are on no member"
                )
            }
            Self::JournalReplayed { pages, is_cut_short } => {
                write!(
                    f,
                    "{pages} pages of 4 KiB that its journal has are on no member, and are read from there"
                )?;
                if *is_cut_short {
                    f.write_str("; the last block of the log was cut short, and counts for nothing")?;
                }
                Ok(())
            }
            Self::JournalMissing => f.write_str("its journal device is not among the members"),
            Self::JournalUnused => f.write_str("it has a journal"),
            Self::Clustered => f.write_str("it belongs to a cluster"),
            Self::Raid0Layout => f.write_str("its RAID 0 layout is not recorded"),
            Self::BadBlocks { member } => {
                write!(f, "{member} has bad blocks recorded, and the list of them cannot be read")
            }
            Self::UnsupportedLevel { level } => write!(f, "level {level} is not supported"),
            Self::CollidingLayout { layout } => write!(f, "RAID 10 layout {layout:#x} makes copies collide"),
            Self::BitmapVersion { member, version } => {
                write!(f, "the bitmap on {member} has version {version}")
            }
            Self::BitmapInvalid { member } => {
                write!(f, "{member}: the superblock names a bitmap and none of this array is there")
            }
            Self::BitmapUnreadable { member } => write!(f, "{member}: its bitmap cannot be read"),
            Self::Ambiguous { field, expected, member, found } => {
                write!(f, "{member}: {field} is {found}, and {expected} on an equally fresh member")
            }
            Self::BadNumber { member, field, found, expected } => {
                write!(f, "{member}: {field} is {found}, expected {expected}")
            }
            Self::Geometry { member, source } => write!(f, "{member}: {source}"),
            Self::Container { format } => write!(f, "it is a volume of a container with {format} metadata"),
            Self::ContainerRefused { format, refusal } => {
                write!(f, "a volume with {format} metadata: {refusal}")
            }
        }
    }
}

/// `slot 2` or `slots 1, 3`.
pub(super) struct Slots<'a>(pub &'a [u16]);

impl fmt::Display for Slots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "slot{} {}", if self.0.len() == 1 { "" } else { "s" }, list.join(", "))
    }
}
