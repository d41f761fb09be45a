//! Every kind of finding: a stable number, how bad it is, and what it means. A number is never
//! reused.
//!
//! By theme: 1xx alignment, 2xx file systems, 3xx redundancy, 4xx drives, 5xx tuning, 6xx mount
//! options, 7xx supervision.

use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It costs speed, space or safety all the time.
    Warning,
    /// Data is at risk.
    Error,
}

impl Severity {
    /// In the order of [`Ord`].
    pub const ALL: [Severity; 3] = [Severity::Note, Severity::Warning, Severity::Error];

    /// One word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// `control` has a macro of this form for its codes, too. The two make different types (a kind
// there, a severity here) and share thirty lines: less than what a room of their own, or an edge
// between rooms that know nothing of each other, would cost.
macro_rules! codes {
    ($($name:ident = $number:literal, $severity:ident, $title:literal, $text:literal;)*) => {
        /// Every kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FindingCode {
            $(
                #[doc = $title]
                $name = $number,
            )*
        }

        impl FindingCode {
            /// In the order of their numbers.
            pub const ALL: &'static [FindingCode] = &[$(FindingCode::$name),*];

            /// How bad it is.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(FindingCode::$name => Severity::$severity),* }
            }

            /// A few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(FindingCode::$name => $title),* }
            }

            /// What it means and what to do, at length: `wattle explain`.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $(FindingCode::$name => $text),* }
            }
        }
    };
}

codes! {
    OldStart = 101, Warning, "a partition starts at sector 63",
        "Partitions began at sector 63 when disks had tracks. That is no multiple of 4 KiB, of a chunk, or of anything an SSD \
         erases: a block of the file system lies on two blocks of the drive, which reads and rewrites both. Partitioning \
         tools of today start at 1 MiB. Moving a partition means copying it: replace the member by one on a partition that starts at \
         2048 sectors.";
    PartitionBlock = 102, Error, "a partition starts inside a block of its drive",
        "The drive writes blocks of 4 KiB (or what it says) as a whole. What starts between two of them makes it read two blocks and \
         write both back for each block of the file system: most writes take a turn of the platter more, and a power cut can damage a \
         neighbour that was not being written. Partitions should start at multiples of 1 MiB.";
    PartitionStripe = 103, Warning, "a partition starts inside a stripe of the array it is on",
        "What lies in the partition counts stripes from its own start, and the array from the array's. Requests that should touch one \
         member touch two, and what a file system writes as whole stripes arrives as parts of two, for which parity has to be \
         read first. Start partitions on arrays at a multiple of the stripe, or put LVM or the file system on the array as it is.";
    DataStart = 104, Warning, "a physical volume's extents start inside a stripe",
        "pe_start is where LVM2 puts the first extent. If it is no multiple of the array's stripe (the chunk times the drives \
         of data), no volume of the group can be aligned. pvcreate takes it from what the kernel says of the array; older tools and \
         --metadatasize gave 192 KiB and the like. `pvcreate --dataalignment STRIPE` sets it; of a volume group in use it cannot be \
         changed: move the volumes to a new physical volume (pvmove).";
    ExtentStripe = 105, Note, "extents are no multiple of the array's stripe",
        "Volumes start where an extent starts. With extents that are no multiple of the stripe only some of these places are the \
         start of a stripe, and whether a volume is aligned is luck. It cannot be otherwise where the number of data drives is no \
         power of two and extents must be: then choose chunk and drives so that a stripe is a power of two, or give each volume a \
         size that is a multiple of both.";
    VolumeStart = 106, Warning, "a logical volume starts inside a stripe",
        "The array counts stripes from its start and the volume lies at another place in them: pe_start, or the extents before it, are no \
         multiple of the stripe. What the file system on it takes for whole stripes are parts of two, each of which has to be read \
         before it is written. With several segments each may lie otherwise, and no setting of the file system fits all.";
    VolumeStripes = 107, Warning, "stripes of a logical volume do not fit those of the arrays below",
        "A striped volume hands out pieces of its stripe size. If these are not multiples of what the arrays below take as a whole \
         stripe, every one of them is written in parts. Give the volume a stripe size that is a multiple of the arrays' stripe, or no \
         stripes: the arrays have their own.";
    MemberStart = 108, Warning, "an array's data starts inside a block of the drive",
        "The superblock puts the data where no block of the drive starts (or the partition below does). Every block of the array lies on \
         two of the drive's. New arrays start their data at a multiple of 1 MiB.";

    NoStripes = 201, Warning, "a file system does not know the stripes it is on",
        "mkfs.xfs and mke2fs ask the kernel what they are on. Made on an image, through a layer that does not say, or with an old tool, they \
         learned nothing: data and metadata are spread without regard to members, and large files are not written as whole stripes. XFS \
         can be told when it is mounted (sunit, swidth, in sectors of 512 bytes), ext4 by tune2fs.";
    UnitDiffers = 202, Warning, "a file system's stripe unit is not the chunk",
        "The unit (su, sunit, stride) is what lies on one member: the chunk. With another one the file system aligns its \
         structures to places where no member begins.";
    WidthDiffers = 203, Warning, "a file system's stripe width is not the array's",
        "The width (sw, swidth, stripe_width) is the data of a stripe: the chunk times the drives that hold data, which does not \
         count parity. It is wrong most often after an array has grown, or when all drives were counted. What the file system \
         writes as whole stripes is none, and parity is read first.";
    GroupUnit = 205, Warning, "allocation groups are no multiple of the stripe unit",
        "XFS starts each allocation group where the one before ends. If their size is no multiple of the chunk, only the first is aligned. \
         It is decided when the file system is made: `mkfs.xfs -d su=…,sw=…` rounds it.";
    GroupsTogether = 206, Warning, "most allocation groups start on one member",
        "The head of each allocation group (free space, inodes) is written all the time. If the size of the groups is a \
         multiple of the stripes after which the layout repeats, these heads are all on one member, which then is busy while the others \
         wait. mkfs.xfs avoids whole stripes if it is told of them, and knows nothing of how parity goes round; \
         with `agsize` a unit longer each group begins on the next member.";
    ManyGroups = 207, Note, "many more allocation groups than processors",
        "Allocation groups let writers work side by side; more of them than processors help only on storage that is very parallel. \
         Very many come from a small file system that was grown: each is small, large files are cut at their ends, and memory goes to \
         their heads. Making the file system anew is the only way back.";
    OldFormat = 208, Note, "XFS in format 4",
        "Format 5, since 2013, has checksums of all metadata, so that what a drive or a cable changed is noticed. Linux calls format 4 \
         deprecated and is going to drop it in 2030. Only a new file system has the new format.";

    FragmentedFiles = 209, Warning, "files in many pieces",
        "Files that grew side by side, or on a full file system, lie in many places, and a reader in sequence waits for the head at each of \
         them. What that costs is reckoned from the extents and the figures of a drive (`--drive` names another): each file read once, as it \
         lies and as if it were whole. `xfs_fsr` (XFS) and `e4defrag` (ext4) copy files into longer runs while the file system is mounted; \
         they need free runs to copy to. Random reads gain nothing. The fragmentation factor is what `xfs_db -c frag` prints: at 90 % \
         a file has ten extents on average, which is nothing where each is long.";
    FragmentedSpace = 210, Note, "free space in small pieces",
        "Half of the free space or more is in runs below 1 MiB. Files written from now on are in pieces of that size. It is what remains of \
         small files deleted one by one, and of a file system that was nearly full for long. No tool joins free space; what is copied \
         away and back is.";

    Degraded = 301, Error, "an array lacks members",
        "With as many members missing as the level survives, the next failure loses data; before that, reads of what they held take several. \
         Replace them: `wattle add`, `mdadm --add`.";
    UnusedMember = 302, Warning, "a member is given and not used",
        "It failed, was away while the array was written, or claims a place that another one has. It is not redundancy any more, even if \
         it looks like it. `wattle why` says what it lacks and how to bring it back.";
    DirtyDegraded = 303, Error, "an array is dirty and degraded",
        "It was not stopped cleanly and lacks a member. What was being written at that moment may have parity that does not fit, and the \
         missing member's blocks are computed from it: they may be wrong, without any error. The kernel does not start such an array by \
         itself, and wattle refuses it. Bring the missing member back first.";
    WriteHole = 304, Note, "nothing closes the write hole",
        "A power cut while a stripe is written leaves data and parity that do not fit. That is repaired by the resync after it, if \
         no member fails before that is done; if one does, blocks that were not being written may come out wrong. A partial parity log \
         (RAID 5 of up to 64 whole members with metadata 1.x: `mdadm --grow --consistency-policy=ppl`, which takes the place of the \
         bitmap) or a journal device closes it. A battery does as well.";
    NoBitmap = 305, Warning, "an array has no write-intent bitmap",
        "After a crash everything is resynced instead of what was being written, and a member that was away for a minute is filled as if it \
         were new: hours during which the next failure costs data. A bitmap costs a few percent of random writes with its usual \
         regions of 64 MiB. `mdadm --grow --bitmap=internal`.";
    NoSpare = 306, Note, "no spare",
        "When a member fails nothing happens until an operator acts. With a spare the rebuild starts by itself.";
    WastedSpace = 307, Note, "members of different size",
        "Every member gives as much as the smallest. The rest is not used. wattle and LVM can use it: partition the drives, make \
         an array of each band of equal parts, and one volume group of the arrays.";
    Unsynced = 308, Warning, "parity or copies are not known to agree",
        "The array was not stopped cleanly, or its first resync is not finished. Where parity or copies differ from the data, a \
         failure of a member gives wrong data. A resync makes them agree; it starts by itself when the array does.";
    SharedDrive = 310, Error, "members of an array share a drive",
        "Two members are parts of one drive: when it fails they both do, and the array has less redundancy than it says. They also \
         compete for one head.";
    OldMetadata = 311, Note, "metadata 0.90",
        "Metadata 0.90 holds 28 members and 2 TiB of each, cannot record a rebuild that was interrupted nor bad blocks, and, being at the \
         end, can be taken for that of the whole disk. `mdadm --assemble --update=metadata` turns it into 1.0, which is at the \
         same place.";
    BadBlocks = 313, Error, "sectors of a member are recorded as lost",
        "The bad-block log of a member lists sectors that could be neither read nor written. As long as the others are whole \
         nothing is lost, but there is no redundancy there any more. Replace the member.";
    Refused = 314, Error, "an array cannot be used",
        "Something is wrong that keeps it from being started at all, or from being written. The evidence names the error; \
         `wattle explain` has more of it.";
    MissingVolume = 316, Error, "a volume group lacks physical volumes",
        "Volumes with extents there cannot be used, or only in part.";

    ErrorRecovery = 401, Error, "a drive tries longer than the kernel waits",
        "A desktop drive may try for two minutes to read a bad sector. The kernel gives up after 30 s, resets the drive, and md \
         throws it out of the array, for one sector, which redundancy would have repaired; with another bad sector on another \
         drive the array is gone. Tell the drive to give up earlier (`smartctl -l scterc,70,70`), after every start; one that cannot \
         be told needs a kernel that waits longer: `echo 180 > /sys/block/DRIVE/device/timeout`.";
    Shingled = 402, Warning, "a shingled drive in an array with parity",
        "A shingled (SMR) drive writes tracks that overlap: after some gigabytes of scattered writes it stops for seconds to minutes to \
         rewrite zones. A rebuild takes days, and the pauses look like failures. Use drives with conventional recording (CMR) in \
         arrays that are written.";
    DiscardDiffers = 403, Warning, "members differ in whether they take discards",
        "The kernel passes discards on only where all members take them. The SSDs that could use them never learn what is free, \
         and become slower with time.";
    UnequalDrives = 404, Warning, "a member is of a slower kind",
        "An array is as fast as its slowest member: each write of a stripe waits for it. One with a head among SSDs makes the whole array \
         one with heads.";
    SlowMember = 405, Warning, "a member is much slower than the others",
        "The kernel's counters say how long operations took. One that takes several times as long as its neighbours holds the \
         array back; a bad cable, a failing head, or background work of the drive are the usual reasons. md never says so.";
    NoParityDiscard = 408, Note, "discards do not reach the drives of an array with parity",
        "md passes discards on in RAID 4, 5 and 6 only if it is told that the drives return zeros for what was discarded \
         (raid456.devices_handle_discard_safely=Y); where one does not, parity becomes wrong. Without them SSDs should keep some \
         space that is never written.";

    ReadAhead = 501, Warning, "read-ahead of less than a stripe",
        "The kernel reads that much ahead of a reader. Less than a stripe, and a single reader keeps one or two of the members busy \
         while the others wait. md sets two stripes when it starts the array; what sets it for drives (udev rules, tuned) takes \
         it back.";
    ReadAheadDiffers = 502, Warning, "read-ahead differs between layers",
        "Only the read-ahead of the uppermost layer counts: what the file system is on. An array that was tuned to 2 MiB does nothing for \
         readers of a logical volume with 128 KiB. Set them alike: `blockdev --setra`, `lvchange --readahead`.";
    SmallStripeCache = 503, Warning, "the default stripe cache on SSDs",
        "md keeps 256 stripes of 4 KiB of each member, whatever the drives. That many writes are in flight at most, \
         and rows whose other parts are on their way are read anew. Published measurements: six SSDs did 49 % of what they could \
         with 256 and 85 % with 4096. It takes entries x 4 KiB x members of memory, and is set \
         again at every start (udev rule).";
    LargeStripeCache = 504, Warning, "the stripe cache takes much of the memory",
        "Entries x 4 KiB x members are kept whatever is in them. Beyond a point, which measuring finds, more makes no difference.";
    ChunkForLoad = 505, Note, "the chunk does not fit the workload",
        "Small random requests want chunks that are larger than a request, so that each keeps one member busy and not two. Large \
         requests in sequence on parity want stripes that are no larger than what is written at once. `wattle simulate --sweep chunk=…` \
         says what it comes to.";
    OneThread = 506, Note, "one thread computes parity for SSDs",
        "md handles the stripes of RAID 4, 5 and 6 in one thread unless group_thread_cnt says otherwise. Fast drives are then limited by one \
         processor.";
    CacheFull = 507, Warning, "a rebuild waits for the stripe cache",
        "All entries of the stripe cache are in use while the array rebuilds: the cache is the limit, not the drives nor sync_speed_max. \
         Published measurement: seven SATA drives rebuilt at 90 MB/s with 4096 entries, 120 MB/s with 16384.";

    NoBarrier = 601, Error, "mounted without barriers",
        "Without them the file system does not ask drives to make their caches durable: a power cut may leave the journal newer than what it \
         is about, or the other way around, and the file system damaged. The gain, on drives that do have a cache to flush, is bought with \
         that. XFS took the option away in Linux 4.19, ext4 still has it.";
    Writeback = 602, Warning, "data=writeback",
        "Metadata may reach the disk before the data: after a crash files hold old blocks, perhaps of another user's deleted files. Databases \
         that rely on the size of their logs are the first to notice. data=ordered is the default and costs little today.";
    ObsoleteOption = 603, Warning, "a mount option that does not exist any more",
        "The kernel ignores it, with a line in its log, or refuses to mount. It comes from a recipe of another time and does nothing.";
    DefaultOption = 604, Note, "a mount option that says what is the default",
        "It does no harm and looks as if it did something.";

    NeverScrubbed = 701, Warning, "no check ever went through an array",
        "Sectors go bad without being read, and are found when a rebuild needs them. A check each month reads everything and has \
         what is bad rewritten while redundancy is there: `wattle check`, `echo check > sync_action`, the timer mdcheck_start.";
    Mismatches = 702, Warning, "the last check found data that does not agree",
        "Parity or copies differ from the data in so many sectors. After a crash without a resync, or on RAID 1 and 10 below swap, this may be \
         harmless; otherwise a drive, a cable or memory changed data. `wattle check` says where, and on RAID 6 which member is wrong.";
    NoAlerts = 703, Warning, "a member's failure is reported to no operator",
        "mdadm --monitor sends mail to MAILADDR or calls PROGRAM of mdadm.conf; neither is there. A RAID whose first failure is not noticed \
         is one that loses data with the second.";
}

impl FindingCode {
    /// `AUD-101`.
    #[must_use]
    pub fn id(self) -> String {
        format!("AUD-{}", self as u16)
    }

    /// The code of `AUD-101` or `aud-101`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits =
            text.get(..4).filter(|prefix| prefix.eq_ignore_ascii_case("aud-")).map(|_| &text[4..])?;
        let number: u16 = digits.parse().ok()?;
        Self::ALL.iter().copied().find(|code| *code as u16 == number)
    }
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AUD-{}", *self as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_by_what_they_are_called() {
        for &code in FindingCode::ALL {
            assert_eq!(FindingCode::parse(&code.id()), Some(code));
        }
        assert!(FindingCode::ALL.is_sorted_by(|a, b| (*a as u16) < (*b as u16)));
        for text in ["", "AUD-", "AUD-9999", "101", "WTL-0101", "AUD-é"] {
            assert_eq!(FindingCode::parse(text), None, "{text}");
        }
    }
    #[test]
    fn the_documentation_lists_every_code() {
        let document = include_str!("../../../../docs/audit.md");
        let list =
            document.split("<!-- codes").nth(1).and_then(|rest| rest.split("<!-- /codes").next()).unwrap();
        let rows: Vec<_> = list.lines().filter(|line| line.starts_with("| AUD-")).collect();
        let expected = |code: &FindingCode| format!("| {code} | {} | {} |", code.severity(), code.title());
        assert_eq!(rows, FindingCode::ALL.iter().map(expected).collect::<Vec<_>>());
    }
}
