//! The table of codes: number, how a command ends, title, and what to do.

use super::FailureKind;

macro_rules! codes {
    ($($name:ident = $number:literal, $kind:ident, $title:literal, $text:literal;)*) => {
        /// Every code, with what it means.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $(
                #[doc = $title]
                $name = $number,
            )*
        }

        impl Code {
            /// In the order of their numbers.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// How a command that meets it ends.
            #[must_use]
            pub fn kind(self) -> FailureKind {
                match self { $(Code::$name => FailureKind::$kind),* }
            }

            /// A few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title),* }
            }

            /// What it means and what to do, at length: `wattle explain`.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$name => $text),* }
            }
        }
    };
}

codes! {
    Usage = 1, Usage, "the command line is not understood",
        "An argument is missing, unknown, or does not fit another one. `wattle COMMAND --help` lists them.";
    BadSize = 2, Usage, "not a size",
        "A size is a whole number of bytes, or a whole number with one of the suffixes K, M, G, T, P, E. They are binary, as \
         in mdadm and LVM: 64K is 65536 bytes. `s` counts sectors of 512 bytes: 2048s is 1M.";
    BadMember = 3, Usage, "not a member",
        "A member is a file, a block device, or a made-up drive: `mem:SIZE` lives in memory and is gone with the process, \
         `null:SIZE` reads as zeros and forgets what is written, `model:DRIVE` is memory that takes as long as that drive would: \
         `model:x25m`, or `model:sata7200,size=10G,rpm=5400` to change its figures. A file whose name looks like one of these is given as `./NAME`.";
    GivenTwice = 4, Usage, "a member is given twice",
        "Two of the names given lead to the same file or the same block device. An array on them would have less redundancy \
         than it says; writing both would write the same sectors twice. Symbolic and hard links count as the same file.";
    UnknownCheck = 5, Usage, "no such check to override",
        "`--force=CHECK` overrides exactly one named safety check; there is no bare force. The message that refuses names the \
         check that may be overridden.";
    NoSuchVolume = 6, Usage, "no volume of that name",
        "A volume is named by its array (the part of the array's name behind the colon will do) or its UUID. `wattle scan` lists them.";
    SeveralVolumes = 7, Usage, "several volumes to choose from",
        "The members given hold more than one volume and the command works on one. Name it with `-V`, or give only the \
         members of one array.";
    BadRequest = 8, Usage, "an array like that cannot exist",
        "The level, the number of members, the chunk and the layout do not fit together. RAID 1 needs two members, RAID 4 and 5 \
         three (two with care), RAID 6 four, RAID 10 two. Chunks of RAID 4, 5, 6 and 10 are powers of two of at least 4 KiB.";
    NotSupportedYet = 9, Failed, "not supported yet",
        "The format allows it and this version of wattle does not do it. Nothing was changed.";

    NotFound = 20, Failed, "no such file or device",
        "Nothing is at that path. For a file created by `wattle create`, create it first: `truncate -s SIZE FILE`.";
    PermissionDenied = 21, Failed, "permission denied",
        "This user may not open the member. Block devices usually belong to the group `disk`; reading is enough for `scan`, \
         `examine` and `cat`.";
    IsDirectory = 22, Failed, "it is a directory",
        "A member is a file or a block device. To give all images of a directory, write `DIR/*`.";
    NotADrive = 23, Failed, "neither a file nor a block device",
        "Pipes, sockets and character devices have no sectors to go back to.";
    EmptyMember = 24, Failed, "the member is empty",
        "The file has no bytes. A download or a copy may have failed. A new member is made with `truncate -s SIZE FILE`.";
    ReadOnlyMember = 25, Failed, "the member cannot be written",
        "The file, its file system or the device is read-only, and the command must write. `--read-only` serves an array \
         without writing a byte.";
    Locked = 26, Refused, "another process uses the member",
        "Another process has locked it (a `wattle serve`, a virtual machine), or the kernel uses it (mounted, in an md array, in \
         a volume group). Two owners destroy an array within seconds. `wattle status` lists what wattle serves; `lsblk`, \
         `/proc/mdstat` and `fuser` tell the rest. Commands of LVM2's lock a volume group while they change it.";
    OpenFailed = 27, Failed, "the member cannot be opened",
        "The operating system refused for another reason than the usual ones; its error is in the message.";
    ReadFailed = 28, Failed, "the member cannot be read",
        "The drive returned an error where metadata may be. If it is dying, copy it first (ddrescue) and give the copy.";
    WriteFailed = 29, Failed, "the member cannot be written to",
        "The drive returned an error for a write of metadata. The message says what was written before.";
    NoSpace = 30, Failed, "no space left under a member",
        "The member is a sparse file (or a thin volume) and what holds it is full. Free space there, or allocate the file first: \
         `fallocate -l SIZE FILE`.";
    Changed = 31, Refused, "a member changed while it was being opened",
        "Between looking at the member and locking it its superblock was written or its size changed. The process that did it may still \
         be at it. Find it, and try again. Of a volume group that is being served: another process changed its metadata. Its server changes \
         it no more until it is stopped and started again.";

    NoArray = 40, Failed, "no array on these members",
        "None of the members has an md superblock at any place where one may be. If they are partitions of a whole-disk image, or \
         the other way around, the offsets differ.";
    DamagedSuperblock = 41, Failed, "a superblock is damaged",
        "The magic number of a superblock is there and the rest does not hold: a checksum, a size, or a field out of range. The \
         message names the field, what it says and what it should say. Such a member is not used. The others may be enough. What lies on it \
         (partitions, something encrypted) is what the array holds, and only read. If no such array is left, zeros over the sector that the \
         message names take the superblock away.";
    SeveralSuperblocks = 42, Refused, "a member has several superblocks",
        "The member carries valid superblocks of two versions, often because a disk was used in an older array and its end was \
         never erased, or because a partition ends where its disk ends. Which one describes the data cannot be known for sure. \
         `--force=newest-superblock` takes the one whose array was created last, as mdadm does.";
    Truncated = 43, Failed, "the member is shorter than its superblock says",
        "The data area ends beyond the end of the file or device: a copy that stopped early, or an image of a partition with \
         the size of another. Copy it again. The member is not used as it is.";
    ImpossibleGeometry = 44, Failed, "the superblock describes an impossible array",
        "The checksum is right and the numbers are not: a chunk of zero, more slots than a superblock has roles, a size beyond \
         any drive. The superblock was written by something else than md, or changed on purpose.";
    DuplicateRole = 45, Refused, "two members claim one slot",
        "Two members say that they are the same part of the array and are equally fresh. One may be a copy of the other \
         (an image beside its disk), and they may have diverged. Give only the one you trust.";
    SplitBrain = 46, Refused, "the members disagree about which of them failed",
        "Each side says that the other has failed: the array was run twice, with different halves of its members, and both halves \
         were changed. Mixing them yields neither. Give only one side's members, or choose the freshest with `--force=split-brain`.";
    ForeignMember = 47, Failed, "a member describes another array",
        "The member has the array's UUID and another level, layout or chunk than its freshest members. It is not used.";
    NotEnoughMembers = 48, Failed, "not enough members",
        "More members are missing, stale or failed than the array's redundancy covers. The message lists what each slot \
         needs. A stale member is one the array went on without; its data is old.";
    DirtyDegraded = 49, Refused, "the array is dirty and degraded",
        "A member is missing and the array was not stopped cleanly: stripes that were being written may have parity that does not \
         fit their data, and the missing member's blocks, which are computed from both, may be wrong there, even blocks that \
         were not being written. A bitmap says which regions these are, and an array whose bitmap has none starts; a partial parity log \
         repairs them. Give all members if you can. `--force=dirty-degraded` goes on in spite of it (as mdadm --force does); \
         check the file systems and the data afterwards.";
    UnknownFeature = 50, Refused, "the superblock uses unknown features",
        "Feature bits are set that this version does not know. Reading by old rules may return wrong data. Use a newer wattle, or \
         the kernel that made the array.";
    Reshaping = 51, Refused, "a reshape is in progress",
        "The array is partly in an old and partly in a new geometry. It is read, by both, and never written: `cat`, `copy`, \
         `ls`, `get` and `serve --read-only` work; the kernel finishes the reshape. Where data is moved in place, the members do not \
         tell how far the kernel came beyond what it recorded: there everything is an error, unless the file that mdadm kept \
         (`--backup-file`) proves what was there. `--force=reshape-position` takes the recorded position for the place where the kernel was; \
         it may return wrong data beyond it.";
    JournalNotEmpty = 52, Refused, "the journal holds data that is not in the array yet",
        "The RAID 5 journal has entries that were acknowledged and perhaps not written to the members. They are replayed in memory: what is \
         read has them, and nothing is written; the kernel replays the journal when it assembles the array. Where the log cannot be \
         followed, the array is refused: `--force=journal` reads the members without it.";
    JournalMissing = 53, Refused, "the journal is missing",
        "The array has a journal device and it is not among the members. What it held may be newer than the members: writes that were \
         acknowledged, in the write-back mode all that was not yet reclaimed. Give it too. `--force=journal` reads the members without it: old \
         data where the journal had newer, and wrong data where a member is missing besides and its stripe was being written.";
    Clustered = 54, Refused, "the array belongs to a cluster",
        "A clustered bitmap is coordinated between nodes by a lock manager that wattle does not speak. The array can be read, \
         if no node is writing it.";
    Raid0Layout = 55, Refused, "the RAID 0 layout is unknown",
        "The members are of different sizes, so that more than one of them goes on behind the smallest, and kernels before 3.14 and \
         after place the data there differently. The superblock does not say which made this array. Guessing would mix up the data. \
         `--force=raid0-original` and `--force=raid0-alternate` read the array in one of the two layouts; what is stored in files over \
         the place where the smallest member ends tells which is right.";
    BadBlocks = 56, Refused, "a member's list of bad blocks cannot be read",
        "The member's superblock says that sectors of it are lost, and its bad-block log, which says which, is damaged or not \
         readable. Such a member counts as missing; here the others cannot do without it. A list that can be read costs nothing: \
         these sectors are read from the other members.";
    UnsupportedLevel = 57, Failed, "the level is not supported",
        "Only linear, RAID 0, 1, 4, 5, 6 and 10 are.";
    CollidingLayout = 58, Refused, "the RAID 10 layout destroys its own copies",
        "With this layout word and this number of members, two chunks share one place or both copies of a chunk are on one \
         member (the kernel accepts it all the same). Such an array is not created, and at most read.";
    ForeignBitmap = 59, Refused, "the bitmap's version is unknown or reserved",
        "Bitmap versions 5 (clustered) and 6 (lockless, Linux 6.18) carry meaning that a writer must keep up. This version can \
         only read such an array.";
    Ambiguous = 60, Refused, "the freshest member cannot be told",
        "Members that are equally fresh describe the array differently. Something has changed a superblock outside md.";
    Degraded = 61, Refused, "the array is degraded, and that was not to be",
        "A slot is empty or only partly rebuilt. `--degraded=never` refuses such an array, for machines where an operator is to \
         look first; `--degraded=auto`, the default, serves it as far as its redundancy goes. Commands that write what lies on an array (`pv`, \
         `vg`, `lv`, `undo`) refuse it where members are not given that it counts on: the first write would leave them behind. Give \
         them too, or `--force=missing-member`.";
    PartitionUnusable = 62, Failed, "a partition cannot be used",
        "What its entry in the partition table says cannot be so: it shares sectors with another partition or with the table, or ends before it \
         starts. Which of two that overlap is right only their contents tell. All other partitions of the drive are used. Or the drive is a \
         member of an array as a whole, and the table is what the array holds: its partitions are reached through the array.";
    PartitionCutOff = 63, Failed, "a partition ends past the end of its drive",
        "Its end is not there: a copy that stopped early, a drive behind an adapter that hides its end, or the table of a larger array that the \
         drive is a member of. Copy the drive again, whole. The partition is not used, but for an array to say that it is its member; all other \
         partitions of the drive are used.";
    PartitionsUnknown = 64, Failed, "a partition table does not tell all of its partitions",
        "Both copies of a GPT are damaged, or the chain of logical partitions breaks off. What lies in partitions that are not known is not found \
         here, and is still there: copy the drive, and mend the table on the copy (`gdisk`, `testdisk`). Partitions that are known are used.";

    SignatureFound = 80, Refused, "the member is not empty",
        "Something is on the member: a superblock, a file system, a partition table, a volume group. Creating an array there \
         destroys it. `--force=signature` goes on. What `create`, `pv` and `vg` themselves overwrite is saved first (`wattle undo`); what is \
         written later, or on a member that is added, cannot be brought back.";
    TooSmall = 81, Failed, "the member is too small",
        "For a new array: after the superblock and the space kept for metadata not one chunk of data is left. For one that runs: \
         the array uses more of each member than the device has.";
    BlocksTooLarge = 82, Failed, "the member's blocks are too large",
        "The device takes only writes of whole logical blocks (often 4 KiB) and the array promised its clients smaller ones. A \
         running array cannot take that promise back. Use a drive with smaller blocks; many can be reformatted to 512 bytes.";
    NoPlace = 83, Failed, "there is no place for the member",
        "The slot asked for is not empty, its member is not whole or already being replaced, or the level has no redundancy from \
         which a new member could be filled. `wattle status` shows the slots.";
    WouldOverwrite = 84, Refused, "a benchmark would write over what the array holds",
        "`wattle bench` writes all over an array if it is told to write, and what was there is gone. Measure reads, or an array made \
         of mem:, null: or model: drives, which hold nothing. `--force=overwrite` runs it all the same.";

    MetadataNotWritten = 90, Failed, "the superblocks could not be written",
        "A change of the array's state could not be made durable on enough members. The array takes no more writes.";

    ServerNotFound = 100, Failed, "nothing is served under that name",
        "No running `wattle serve` answers in the runtime directory (`--runtime-dir`, WATTLE_RUNTIME_DIR, \
         $XDG_RUNTIME_DIR/wattle, /run/wattle) for that array.";
    ServerFailed = 101, Failed, "the server could not do it",
        "The process that serves the array answered with an error, which is in the message.";
    ListenFailed = 102, Failed, "cannot listen there",
        "The socket is in use, its directory does not exist, or this user may not create it. A socket that a dead process left \
         behind is removed by wattle itself.";
    BackendUnavailable = 103, Failed, "the I/O backend is not available",
        "io_uring is forbidden here (a container's seccomp profile, kernel.io_uring_disabled) and was asked for by name. \
         Without a backend named, wattle falls back to plain system calls.";
    VolumeFailed = 104, Failed, "reading or writing the volume failed",
        "More is lost at that place than redundancy can restore, or the array is broken. `wattle status` and `wattle examine` \
         tell which member is the cause.";
    OutputFailed = 105, Failed, "the output cannot be written",
        "Standard output or the file to write to returned an error.";
    LastCopy = 106, Refused, "nothing else holds the member's data",
        "Failing the member would lose data: as many members as the level's redundancy covers are missing already, or parity \
         is not trusted since the array was not stopped cleanly. Nothing was changed. Bring the missing members back first; to end the \
         array use `wattle stop`.";
    JobRunning = 107, Failed, "a check or repair is under way already",
        "Of checks and repairs of an array one runs at a time, and one that waits for a resync or a rebuild counts. Nothing was \
         started and what is under way goes on. `wattle status` shows how far it is, `wattle check NAME --abort` ends it.";
    MemberWorks = 108, Failed, "the member works",
        "A member that works is part of the array's redundancy and is not removed. Fail it first if that is what you want \
         (`wattle fail`), or have it replaced, which keeps redundancy whole (`wattle replace`). Nothing was changed.";
    BitmapNotChanged = 109, Failed, "the bitmap was not changed",
        "A write-intent bitmap is put on an array that runs, or taken off, with `wattle set NAME bitmap=...`. It needs redundancy, \
         room of 4 KiB or more beside every superblock, and no partial parity log. It is not taken off while a member is brought \
         up to date by it. Nothing was changed.";

    MountFailed = 115, Failed, "nothing can be mounted there",
        "Files of volumes are offered through FUSE in an empty directory. Root mounts by itself; any other user needs the program \
         fusermount3 (the package fuse3) and a directory of their own. What a server that was killed left mounted is removed by the \
         next one that is given the same directory.";
    InUse = 116, Refused, "a program uses the volume",
        "The volume's file is open: a loop device, a mounted file system or a virtual machine is on it, and what these have not \
         written yet would be lost. Unmount, detach or close it first. Nothing was stopped. A signal to the server ends it all the same. \
         A volume that is removed, made smaller, renamed or made read-only must not be open either, nor may an NBD client be connected \
         to it; making it larger and moving it goes on under its clients.";

    DuplicatePhysical = 120, Refused, "two members are one physical volume",
        "Two of the members have the same LVM2 label: one is a copy of the other, made by a clone, a snapshot of a virtual disk, or an \
         image beside its disk. Volumes made of both would mix old and new data. Give only the one you trust.";
    SplitVolumeGroup = 121, Refused, "copies of a volume group's metadata contradict each other",
        "Two metadata areas hold different texts with the same sequence number: the group was changed on two machines, each of \
         which saw a part of its physical volumes. Give only those of one side. Or the texts of several groups name one physical \
         volume, which does not tell itself in which it is: give those of one group.";
    DamagedVolumeGroup = 122, Failed, "a volume group's metadata is damaged",
        "A label, a metadata area or the text in it does not hold: a checksum, a size, or volumes that cannot be as they are described. \
         Every physical volume usually has a copy of the text, and LVM2 keeps backups in /etc/lvm/backup and /etc/lvm/archive.";
    MissingPhysical = 123, Failed, "a volume is partly on a missing physical volume",
        "The volume has extents on a physical volume that is not among the members. Reading works wherever the rest is; a read of a \
         missing part fails and never returns made-up data. Writing needs all of it.";
    UnsupportedVolume = 124, Failed, "a type of volume that cannot be opened",
        "The volume group describes the volume by a type whose metadata this version does not read: VDO, writecache, integrity, or one \
         that is not known. The group's other volumes are not affected.";
    DamagedVolume = 125, Failed, "what a volume keeps about itself is damaged",
        "Snapshots, thin pools, caches and RAID volumes keep on disk where their blocks are. That does not hold here: a checksum, a block \
         that is said to be in two places, a transaction that is not the one of the volume group's text. Nothing is made up from it. \
         LVM2 repairs pools and caches with `lvconvert --repair`; work on copies of the drives.";
    InvalidSnapshot = 126, Failed, "the snapshot was given up",
        "The snapshot's store overflowed, or failed: from then on what was changed in the origin was not kept any more, and the snapshot is \
         neither the old state nor the new one. Its origin is not affected. Remove the snapshot (`lvremove`).";
    CacheMissing = 127, Refused, "a cache is missing that may hold what its origin lacks",
        "A write-back cache has blocks that were not copied to the origin yet, and only the cache's own metadata says which. Without \
         it the origin is old in unknown places. Give the physical volumes that the cache is on. (With a write-through cache the \
         origin has everything, and is read without it.)";
    ForeignVolumeGroup = 130, Refused, "the volume group is not ours to change",
        "It is bound to another system, shared between hosts that lock it, exported, or set read-only by its operator. Two systems that \
         change a group without knowing of each other destroy it.";
    NoExtents = 131, Failed, "not enough free extents",
        "Volumes get whole extents, stripes on physical volumes of their own, and only what no other volume has. The message says how \
         many are free and how long the longest run is. Nothing was changed.";
    VolumeInUse = 132, Refused, "something is made of it",
        "A physical volume with volumes on it, or a volume that another one is made of, is not taken away. Nothing was changed.";
    BadVolume = 133, Usage, "a volume or group like that cannot be",
        "A name, a size, a number of stripes or the size of extents is none that LVM2 could use, or asks for what is there already.";
    NameInUse = 134, Failed, "the name is in use",
        "Groups are found by their names, and so are the volumes of a group. Nothing was changed.";
    BelowFileSystem = 135, Refused, "what the volume holds would be cut off",
        "The volume would be smaller than the file system on it. Make the file system smaller first (resize2fs, btrfs filesystem resize; \
         XFS cannot be made smaller). `--force=file-system` goes on: its end is lost.";
    GroupNotWritten = 136, Failed, "a volume group could not be written",
        "The text is written to every metadata area, and counts from the first header that names it. The message says how far it came. \
         At any moment the group is what it was or what it was to be.";
    BackupNotWritten = 137, Failed, "a backup could not be written",
        "The text that is about to be replaced is saved first, in LVM2's own format, as `wattle vg restore` and vgcfgrestore read it. Without \
         that nothing is changed. `--backup-dir` says where.";
    PoolRestored = 138, Refused, "a pool may not fit an earlier text",
        "A pool keeps books of its own, outside of the text that a restore brings back: which thin volumes there are and where their blocks \
         lie, which blocks of a cache are newer than their origin. Where volumes of the pool were made, removed or uncached since the \
         backup, the two contradict each other, and what is written then destroys data. `--force=pool` restores it all the same, as \
         `vgcfgrestore --force` does; look at the volumes read-only first.";
    GroupInDoubt = 139, Failed, "it is in doubt which text of a volume group counts",
        "Every drive failed while it took the header that makes the new text count. Some may hold it all the same, or lose it in a power \
         cut: the group is what it was, or what it was to be. Or another process changed the group at the same moment. A server that has it open changes it no more, and only reads what would be \
         lost with either text, until it is started again.";
    NoFileSystem = 140, Failed, "no file system that can be read here",
        "Files are read without mounting from ext2, ext3, ext4, XFS, btrfs, NTFS, HFS+, exFAT and FAT. The message says what is missing: \
         the signature, or a feature by its name. The volume's bytes are there all the same: `wattle cat` gives them to other tools, \
         `wattle serve` to a kernel.";
    NoSuchFile = 141, Failed, "no such file in the file system",
        "Paths start at the root of the file system, whatever it was mounted on: /home/anna is /anna if /home was a volume of its own.";
    FileUnreadable = 142, Failed, "a file or directory cannot be read",
        "A structure of the file system is not what it must be, points beyond the end, or the volume returned an error there. Nothing is \
         guessed. Other files can be read.";
    NotAllExtracted = 143, Failed, "not everything came out",
        "Each thing that did not come out is named with the reason: it cannot be read, it is a device or a socket, its name is none that a \
         file can have, or something of that name was there already. Everything else came out.";
    NotAsMounted = 144, Failed, "what is shown is not what a mount would show",
        "The file system was not unmounted, and its log, or a part of it, is not applied: the message says which and why. What is in the log \
         alone is not seen: files may be old or missing, and a name, a size or a content may be another file's. Everything that was \
         read is there, as it is on the volume. To see what a mount would show, mount the volume over a layer that can be written to \
         (`wattle mount --overlay DIR`, or `serve --overlay DIR` and mount there): that replays the log and changes no member.";

    CopyIncomplete = 160, Failed, "not everything could be copied",
        "Parts of the source could not be read; they are zeros in the copy, and its map names them: `-` for bad sectors, `/` and `*` for \
         areas that were not read sector by sector, `?` for what was not tried. Everything else is there. Running the command again \
         goes on with what is missing; --retries tries bad sectors again.";
    OutputExists = 161, Refused, "something is there already",
        "The file to write to exists and is no copy that could be gone on with, or it is a member, or no file at all. Nothing was \
         written.";
    NotThisCopy = 162, Refused, "the copy or its map is of another source",
        "A copy goes on with what is there if its map fits the source and samples of what was copied are as in the source. This one is \
         of another source, or the source was written to since, or file and map do not belong together. Nothing was written.";
    OverlayFailed = 163, Failed, "an overlay cannot be had",
        "With --overlay DIR members are only read, and what is written to them goes to a sparse file for each in DIR. That file cannot be \
         made, opened or read. Nothing was written to a member.";
    OverlayMismatch = 164, Refused, "an overlay does not fit its member",
        "An overlay belongs to one drive as it was when the overlay was made: its size, samples of its bytes, and the time at which its \
         file was last written. Over anything else its sectors are nonsense. Nothing was written.";
    NothingFound = 165, Failed, "no array can be told from what is on the members",
        "Without superblocks an array is told by its parity and by structures that say themselves where they are: copies of superblocks of \
         file systems, partition tables, labels of volume groups. Nothing like that is where any array would have it. Members that are \
         missing, or others among those given, hide it; encrypted or empty arrays have nothing that could be found. Nothing was written.";
    NotToldApart = 166, Failed, "several arrays could have been",
        "What is on the members speaks for several orders or sizes of chunks alike, and taking the wrong one would mix up the data. The \
         list says what speaks for each. They can be tried in overlays, which change no member. Nothing was written.";
    CopyMapUnusable = 167, Refused, "the map of a copy cannot be used",
        "Beside a member that is a copy of a drive (FILE) lies the map that the copying program left (FILE.map, or what --map names). It \
         says which sectors were read from the drive; the others are no data, and are unreadable sectors here. This map cannot be read, is \
         none, does not fit the file, or changes while it is used. Followed in part or passed over it would make zeros into data, so the \
         member is not used. `--map MEMBER=FILE` names the right one, `--map MEMBER=none` does without. Nothing was written.";

    UndoNotWritten = 180, Refused, "what is about to be overwritten could not be saved",
        "Commands that overwrite metadata save what was there first, in an undo log from which `wattle undo` brings it back. Without that \
         nothing is changed. `--undo DIR` says where logs go, `--no-undo` goes on without one.";
    BadUndoLog = 181, Failed, "an undo log cannot be used",
        "The file is no undo log, is not whole, or was changed: a length or a checksum does not hold. Only a log that is whole is used. \
         Nothing was written.";
    NotLogged = 182, Refused, "a member is not the one that the undo log is of",
        "A member is known again by what the command overwrote and by what it wrote there, and by other places that it left alone. None of \
         that is on this one, or it is on several alike. What another drive held would be written over it. If it is the one and was \
         written all over since, `--force=written-since` brings back what was at these places all the same.";
    WrittenSince = 183, Refused, "something else was written since",
        "Sectors hold neither what was there before the command nor anything that the command wrote: an array was run, a group changed, a file \
         system made. Bringing back what was there before would mix the two. It is always so of a device that an array took (`add`, \
         `replace`) and of an array whose start was forced, once these ran: what comes back tells what was there, and what was written in \
         between stays. By superblocks, bitmaps and logs of before, members that missed those writes are taken for current: what is read then \
         can be wrong, and nothing tells where. `--force=written-since` does it all the same; look with it, read-only, and do not go on \
         writing. It can be undone too. `vg restore` says so of a volume that was moved since: by the earlier text it holds what it held then.";
    MissingLogged = 184, Refused, "members that the undo log is of are missing",
        "The command wrote to several members, and bringing back only some leaves what is on them in disagreement with the others. Give all \
         of them. `--force=missing-member` brings back those that are there; the same log does the others later.";
    StillInUse = 185, Refused, "something is made of the member",
        "The member belongs to an array that was not stopped, or only while it was resynced, and which may be running elsewhere; or to a volume group. Stop the array, or \
         take the physical volume out of its group. `--force=in-use` erases it all the same; `wattle undo` brings back what was erased.";
    ShortPhysical = 186, Failed, "a physical volume ends before its extents do",
        "What the physical volume is on is smaller than the group's text counts on: it was made smaller, or is a copy that was cut short. The text \
         may be right, so do not restore another one. What lies past the end is like what is on a physical volume that is missing: volumes \
         with redundancy are read without it, others as far as they are there, and only what has nothing past the end can be written. Copy \
         a copy again, whole: made longer it holds zeros where there was data. Nothing is allocated until `wattle pv resize` has told the \
         group of the new size.";
    OlderPhysical = 187, Refused, "a physical volume has an older text than its group",
        "A change of a volume group is written to every physical volume that is there, and what counts is the text with the highest sequence number. \
         A physical volume with an older one alone was away when the group was changed, or is an older copy of one, so what lies on it may be \
         of that time too. Volumes with redundancy are read without it; what needs it is refused, and so are changes of the group, \
         after which it could not be told any more. `--force=older-physical` uses it as it is: right if only its drive failed to take the text. \
         A power cut in the middle of a change is told apart from this, and costs nothing.";

    RemoteAway = 190, Failed, "a member across a network is away",
        "Its server did not answer within the array's time-out (`wattle set NAME remote_timeout=2s`), so the array goes on \
         without it. The server is tried again every few seconds, and the member is taken back by itself once it answers and \
         every request that it was sent before is answered, or can be carried out no more: what it missed is copied then, as \
         the write-intent bitmap says. `wattle status NAME` shows since when it is away and what became of the last attempt.";
    RemoteChanged = 191, Refused, "what answers is not the member that was away",
        "A member across a network comes back by itself only if it is the same one: a superblock of this array with the same \
         device number and id, on something that can do what it could. Something else is at its address now, or its server can do \
         less. Look at it with `wattle examine`; if it is to be a member all the same, `wattle add` takes it in and writes all of it.";
    RemoteMissesAll = 192, Refused, "a member is not brought back by itself without a bitmap",
        "Without a write-intent bitmap, or when its bits do not reach back to the time when the member went away, all of the \
         member would have to be written. Only an operator decides that: `wattle add NAME MEMBER`. An array that is made with a \
         bitmap (`wattle create --bitmap internal`) takes its members back by itself.";
    PathsDiffer = 193, Refused, "two paths lead to different drives",
        "`A|B` names one member by several paths. Both have to lead to the same drive: the same size, and the same bytes where \
         superblocks, labels and partition tables are. These do not, so writing by one and reading by the other would destroy \
         both. Name each drive by its own path, or mend the path that leads elsewhere.";
    SameDrive = 194, Refused, "two names lead to one drive",
        "Two block devices tell the same WWID or serial number, have the same size, and show the same bytes where superblocks, \
         labels and partition tables are: they are two ways to one drive. As two members they would be redundancy that is not \
         there, and writes by both ways at once would destroy what is on it. Name one of them, or let the system's multipath \
         make one device of both.";

    LeftOut = 200, Failed, "there may be more than what is shown",
        "What is shown is what a mount would show, and came out as it is. But the file system is marked as damaged, so that files may \
         be missing, or it has further subvolumes beside the one that is shown. `--subvolume 5` shows all subvolumes of btrfs. A file \
         system that is marked as damaged is checked best on a copy, or with `wattle serve --overlay DIR`.";
    NoRoom = 201, Refused, "it will not fit",
        "What is to come out needs more than what is free where it goes: sizes without holes are compared before anything is written. \
         Make room, take less with --path, or go on with --resume after a part. `--force=space` begins all the same: it ends when the \
         file system is full, with the list of what is missing.";
    PathsUnknown = 202, Refused, "it is not known that two paths lead to one drive",
        "`A|B` names one member by several paths. That two block devices are one drive is known only by the WWID or serial number \
         that the drive tells the system, and one of these tells none, is no block device, or cannot be used without a cache of \
         its own. Written by two ways as one, two drives would destroy each other. Name one path, or what the system's multipath \
         makes of them.";
    Overtaken = 203, Failed, "another server has the array's members",
        "Members across a network cannot be locked, and the superblock of one is not what this server wrote last: another server \
         has the array, too. Two that write to the same members destroy parity, and each other's data, so this one writes nothing \
         any more. Stop it, and all but one of the others: which one clients are to use only you can tell. Then have the array \
         checked (`wattle check NAME`): the other one was started before this one noticed.";

    ListenUnprotected = 220, Refused, "it would be open to the network",
        "What listens beyond this machine is reached by every machine that a packet comes from. Over HTTP that takes TLS (--tls-cert, \
         --tls-key) and a token (--token-file) or certificates of clients (--tls-client-ca), over NBD TLS with certificates of clients \
         (--tls-certificates DIR). 127.0.0.1, ::1 and unix:PATH need neither. `--insecure` listens all the same: every machine that \
         reaches the port reads what is there, and over NBD writes it.";
    BadListenAddress = 221, Usage, "not an address to listen at",
        "It is `IP:PORT` (127.0.0.1:9110, [::1]:9110, 0.0.0.0:9110) or `unix:PATH`. Names are not looked up: what a name stands for can \
         change, and with it to which networks this is open.";
    TlsUnusable = 222, Failed, "a certificate or key cannot be used",
        "Certificates and keys are PEM files. A certificate has to be valid today and to fit its key; the file of the key is not readable \
         by others (chmod 600). The message says which of these does not hold. Nothing listens until it does.";
    TokenUnusable = 223, Refused, "a token cannot be used",
        "A token is one line of at least 16 visible characters in a regular file that only its owner can read (chmod 600): \
         `head -c 24 /dev/urandom | base64 > FILE`. Requests carry it as `Authorization: Bearer TOKEN`.";
    WebRequestFailed = 224, Failed, "a request to a web server failed",
        "The address could not be reached, its certificate is not one that this machine trusts, or it did not answer in time. The message \
         says which. An answer that says no (404, 500) is reported with its number.";
    DriveNotAsked = 225, Failed, "a drive could not be asked about itself",
        "What a drive says of its own health comes from smartctl (package smartmontools), which needs root, or CAP_SYS_RAWIO and the \
         drive. Arrays do not depend on it: what is missing is the drive's own view.";

    AlertSettings = 235, Usage, "the settings of alerts are not understood",
        "The message names the file and the line. docs/alerts.md has every key; keys that are not known are refused, because a channel \
         that is misspelt would tell nothing. `wattle alerts test` reads the same file and sends through every channel.";
    AlertToken = 236, Failed, "the token of a channel cannot be used",
        "A channel names a file with its token or secret address. The file has to be a regular file that its owner alone can read \
         (chmod 600) and hold one line.";
    AlertNotDelivered = 237, Failed, "an alert did not arrive",
        "The receiver could not be reached, refused it, or did not answer in time; the message says which. What a channel is owed is \
         kept and tried again by `wattle alerts watch`. `wattle alerts list` shows what every channel is owed and why.";
    AlertJournal = 238, Failed, "what is kept of alerts cannot be read or written",
        "Alerts, and what every channel is owed, are kept in the state directory, so that a restart loses none. While that cannot be \
         written alerts are sent all the same, and a restart in the meantime may send some again.";
    NoSuchAlert = 239, Usage, "no alert of that number",
        "Alerts are named by their number, which every message has and `wattle alerts list` shows. What is over needs no acknowledgement.";
    NoAlertChannel = 240, Usage, "no channel is configured",
        "Alerts go nowhere: there is no channel in alerts.toml, and no MAILADDR or PROGRAM in mdadm.conf. docs/alerts.md shows how to add \
         one in three lines.";

    ConfigUnreadable = 250, Failed, "a configuration cannot be read",
        "The file or directory is not there, or this user may not read it. `wattle up` reads one file NAME.toml for each stack in \
         /etc/wattle; --config names another directory or a single file. `wattle up --scan` writes a first one from the drives that \
         are there.";
    ConfigSyntax = 251, Usage, "a configuration is no TOML",
        "The file cannot be parsed at the line named, so nothing of it is used. What runs goes on running. Strings stand in quotes, \
         lists in brackets, and a section begins with [name].";
    ConfigUnknownKey = 252, Usage, "a configuration has an unknown key",
        "A key that is not understood may be a slip of the pen in one that matters, so it is never passed over. The message lists the \
         keys that there are; docs/service.md explains them.";
    ConfigBadValue = 253, Usage, "a value in a configuration makes no sense",
        "The value is of the wrong kind or out of its range: a number where a text is expected, a size or time without a unit, an \
         address that is none. The message says what is expected.";
    ConfigIncomplete = 254, Usage, "a configuration does not say enough",
        "A stack names the arrays that it serves, by UUID or name, or the members that are to be looked at, or both. With neither, \
         everything on the machine would be served.";
    ConfigClash = 255, Usage, "two configurations want the same",
        "Two stacks name one array or one member, or two addresses are the same: the second server could not start, or would serve \
         what the first one has. Each array, member and address belongs to one stack.";
    NoSuchStack = 256, Usage, "no stack of that name",
        "A stack is called like its file: `wattle up data` reads data.toml in the configuration's directory.";
    DrivesMissing = 257, Failed, "drives did not come in time",
        "The configuration says that the stack is not to start without all its drives, and some did not show up within its time-out. \
         Nothing was started and nothing was written. Attach them and start again, or allow a degraded start: in the file, \
         `missing = \"degraded\"` in the section [wait].";
    StackRuns = 258, Refused, "the stack runs already",
        "A server of this name answers on its control socket. Starting never stops or replaces one that runs: stop it first.";
    ScrubOverdue = 259, Failed, "a scrub is overdue",
        "No check or repair of the array came to its end within the time that the configuration allows. Latent errors show only when \
         everything is read; a rebuild is a bad time to find them. See why it did not run: `systemctl list-timers 'wattle-scrub@*'`, \
         or start one: `wattle check NAME`.";
    StackEnded = 260, Failed, "a stack could not be started, or ended with an error",
        "Several stacks were started at once and not all of them ended well. The lines before say what became of each.";

    NoSuperblock = 265, Failed, "there is no md superblock",
        "`examine --format` prints what mdadm does, which is nothing of what has no md superblock, and ends with status 1 like \
         mdadm. `wattle examine` without --format shows what else is on it. With --format scan members without a superblock are \
         passed over.";

    SumsNotKept = 275, Failed, "what scrubs record cannot be kept",
        "A recorded scrub keeps a checksum of every 64 KiB of every member in a file of its own, in the state directory. There is no \
         such directory, it cannot be written, or another server has the file. Checks and repairs are as without it. A level without \
         redundancy, an array that is served read-only or under an overlay, and one without metadata have no record at all: nothing \
         would tell whether something else wrote to them. docs/scrubs.md has the rules.";
    NothingRecorded = 276, Refused, "no scrub has recorded this array",
        "`repair --source record` takes for right what the last recorded scrub found. There was none, its file is lost or damaged, or \
         the array was run by something else since (the kernel, another system), after which the record says nothing. Record it now: \
         `wattle check NAME --record`; the next scrub knows more.";
    RecordsWhole = 277, Usage, "this cannot be recorded",
        "A scrub that records goes over the whole array and takes for right what it finds, or what the last record proves. It cannot be \
         combined with a repair from another source: what such a repair writes is not what was there.";

    ConsoleReadOnly = 285, Refused, "the page takes no orders",
        "`wattle console` shows, and changes nothing, unless it is started with a token: `wattle console --token-file FILE`. Orders of the \
         page are those of the command line, so whatever it offers can be typed too.";
    OrderNotConfirmed = 286, Refused, "an order was not confirmed as it would be carried out",
        "The page shows the command that an order runs, and runs it only if exactly this command is confirmed. In between, something \
         changed: another array has the name, or the order was altered on its way. Ask again and read what is shown.";
    BadConsoleOrder = 287, Usage, "an order of the page is not understood",
        "An order is a JSON object: `order` (check, abort, pause, resume, fail, replace, locate), `array` (the key of the page's document) \
         and, where a member is meant, `slot`. Members are named by their slot and never by a path.";
    NoLocateLight = 288, Failed, "a drive's light cannot be switched",
        "Lights of drive bays are switched through the kernel's enclosure services (module ses): /sys/class/block/DEVICE/device/\
         enclosure_device:SLOT/locate. Drives without a backplane have none. The serial number on the label tells the drive for sure: the \
         page and `wattle status` show it where it is known.";
    ConsoleFailed = 289, Failed, "the page cannot be shown",
        "A thread to look at servers with could not be started. The system's limits say why.";

    EncryptionLocked = 300, Failed, "it is encrypted, and no key was given",
        "What was asked for lies in an encrypted device (LUKS). --unlock asks for a passphrase on the terminal; --passphrase-file FILE \
         takes the first line of a file, or of a descriptor (/dev/fd/3); --key-file FILE takes a file as it is; --volume-key-file FILE \
         takes the key that `cryptsetup luksDump --dump-volume-key` writes. Every key that is given is tried on every encrypted device.";
    WrongKey = 301, Failed, "no key slot opens with what was given",
        "None of the device's key slots opens with any of the passphrases and key files given. Passphrases are bytes: another keyboard \
         layout or encoding makes others of the same letters. A key file is taken as it is, with its last line's end; a passphrase file \
         without it. Of Synology, the key that DSM had you save (NAME.rkey) is a key file: --key-file NAME.rkey.";
    EncryptionUnsupported = 302, Refused, "it is encrypted in a way that is not opened here",
        "The header says that more than a cipher is needed: checksums of sectors (integrity), a re-encryption that did not come to its \
         end, a requirement or a cipher that is not known. What came out would be wrong, so nothing does. cryptsetup on a system that \
         knows it can open it, and finish a re-encryption.";
    UnlockMemory = 303, Refused, "opening it takes more memory than is allowed",
        "Argon2 is made to take memory. Above 2 GiB, or above what the machine has available, it is not taken without a word: \
         --unlock-memory SIZE allows more. Where the machine does not have it, open the device on one that does, or use another key slot or the volume key.";
    KeyUnusable = 304, Failed, "a key cannot be read",
        "A file with a passphrase, a key or a header cannot be opened, is empty, or is larger than keys are (8 MiB). Nothing was tried.";
    EncryptionDamaged = 305, Failed, "the header of an encrypted device is damaged",
        "Keys to an encrypted device are in its header and nowhere else. Of LUKS2 there are two copies of the header, and both were tried; \
         of the areas with the keys there is one. A backup of the header (`cryptsetup luksHeaderBackup`) opens the device: \
         --header MEMBER=FILE. Without one, and with every slot damaged, what is encrypted cannot be read by any program.";

    FsDeviceMissing = 310, Failed, "devices of a file system are missing",
        "A btrfs lies on several devices, and more of them are missing than its copies and parity make up for. `wattle scan` tells which are \
         here, with the number and identifier of each that is not. Give the others too: files, drives, or volumes on other members. What \
         is on those that are here comes out without them as far as it can be found; the rest is named.";
    FsDevicesDisagree = 311, Failed, "devices of a file system were written apart",
        "Two devices of one btrfs, or two copies of one device, have reached the same transaction on different ways: each was mounted and \
         written without the other. Taken together they would give a mixture that never was. Give one side only: what it has of copies \
         and parity is used.";
    ContainerDamaged = 320, Failed, "metadata of firmware RAID is damaged",
        "The drive ends as a drive of Intel RAID (IMSM) or of a DDF container does, and what is written there does not hold: a checksum, a \
         size, a table that does not fit. Where volumes lie on the drive is written there. The other drives of the container have the same \
         metadata, and may be enough without this one.";
    ContainerReadOnly = 321, Refused, "volumes of firmware RAID are only read",
        "wattle reads Intel RAID (IMSM) and DDF containers: `cat`, `copy`, `ls`, `get` and `serve --read-only` work. It does not \
         write their metadata, so it writes nothing at all. mdadm assembles and writes them.";
    ContainerDriveUnknown = 322, Refused, "which drive of a container it is, is not known",
        "All drives of an Intel RAID container carry the same metadata. It lists drives by their serial numbers, which the hardware tells and a \
         copy does not. A file is known by a serial number in its name: link it (`ln -s copy.img SERIAL.img`) and give the link. Volumes of which \
         every drive is a whole copy need no names.";
    ContainerMigrating = 323, Refused, "a volume of firmware RAID is being changed",
        "Its data is being moved to another layout or level. Firmware and mdadm know where old and new meet and keep what is between in a place \
         of their own; wattle does not read that. Let them finish it.";
    ContainerUnsupported = 324, Refused, "a volume of firmware RAID that is not read",
        "The metadata describes a level, a way of nesting or a number of which it is not known for certain how it lies on drives. What is not certain is not read. The message names what it is.";
    ContainerTruncated = 325, Failed, "a drive of firmware RAID is not all there",
        "Firmware RAID keeps its metadata at the end of each drive. A copy that stopped early, a drive behind an adapter that hides its end, or \
         one with a host protected area (HPA) has none. Copy it whole; `hdparm -N` shows a host protected area.";
    JournalDamaged = 340, Refused, "the journal's log is broken off",
        "A block of the log of a RAID 5 journal is not what was logged, and a later block of the same log lies behind it. A power cut leaves \
         that when the drive wrote the later block first: neither had been acknowledged. Damage of a block that was acknowledged looks the same, \
         and then what was logged since is lost. `--force=journal` takes the log up to that block, as the kernel does without a word.";
    InFlightTooLarge = 341, Refused, "what was in flight does not fit into memory",
        "An array that is only read is recovered in memory: what its logs would have written to the members is kept there, up to 256 MiB. \
         No writer has so much in flight; serve the array with `--overlay`, or let the kernel recover copies of the members.";
    JournalNotReplayed = 342, Failed, "the journal could not be replayed",
        "The log of a RAID 5 journal was to be replayed in memory, and a page of it could not be read, a member could not give what its stripe \
         has, or the log changed since the array was looked at. Nothing was written.";
    IntegrityJournal = 343, Refused, "an integrity device has a journal of its own",
        "A device of dm-integrity whose journal is damaged or encrypted is not read without --force=journal: writes that were acknowledged may be only there. \
         A journal that can be followed is replayed in memory. The images of a volume with checksums (`lvcreate --raidintegrity y`) are devices of dm-integrity. In its journal mode, the default of LVM2, \
         writes that were acknowledged may be only in its journal, whose entries are not read here. In its bitmap mode (`--raidintegritymode \
         bitmap`) all data is in its place and is read, without comparing it with its checksums. `--force=journal` reads the data of an image in journal mode, and may \
         return old data where the machine had crashed.";
    DamagedWritecache = 344, Failed, "a writecache cannot be followed",
        "What a volume of type writecache has in its cache is newer than its origin, and the list at the start of the cache says which blocks \
         these are. That list does not hold, or is not what the volume group's text speaks of. Nothing is made up from it.";
    IntegrityUnsupported = 345, Refused, "a device with checksums that is not read",
        "The superblock of dm-integrity speaks of something of which it is not known how it lies on the device: a version or flags that came later, tags \
         in the drive's own metadata of sectors, data on another device. The message names what it is. integritysetup opens it on a \
         system that knows it.";
    IntegrityUnknownTags = 346, Failed, "what checksums are made with is not known",
        "A device of dm-integrity does not say which checksum its tags are of: Linux is told at every start, and here every one that is known is tried on \
         blocks of the device. None of them gives their tags. Tags may be codes with a key (HMAC), which `--key-file` gives; of a device that was never \
         written as a whole (`integritysetup format --no-wipe`) tags may mean nothing.";
    BcacheDirty = 347, Refused, "the newest data is on a cache",
        "The device is a backing device of bcache in the mode write-back, and its cache has writes that were acknowledged and are not here yet. \
         Which these are is in the cache's own tree: the device alone is old in places that nothing on it tells. With the cache device among the \
         members they are read from there. `--force=cache` reads the device as it is; files may be old, torn or missing.";
    BcacheUnusable = 348, Failed, "a superblock of bcache is damaged or not known",
        "The superblock says where the data of a backing device begins and whether its cache has newer data. It is not used where its checksum \
         is wrong or its version is not known.";
    BcacheDamaged = 349, Failed, "what a cache of bcache has cannot be followed",
        "A dirty backing device is read with what its cache device has. Which sectors these are is in the cache's journal and its tree, whose parts have \
         checksums; the message names the part that does not hold, and where it is. None of the cache is used then, because what lies over a part \
         that is missing would be old. `--force=cache` reads the backing device alone. An entry at the end of the journal that is not whole is what a crash \
         leaves, and damage looks the same: `--force=journal` goes on with the entry before it, as Linux does.";
    LinuxTooOld = 360, Refused, "that Linux does not open an array",
        "Superblocks say what a kernel has to know, and a kernel that does not know it refuses the array. The message names what it is. \
         What can be taken back without loss `wattle compat` takes back; all else is taken out by a Linux, or a wattle, that opens the array. \
         Nothing was written.";
    BlockSizeNeeded = 361, Refused, "the array's blocks are not those of its members",
        "Linux 6.19 and later write an array's logical block size into its superblocks. Taken back, the array has the block of its members \
         again. Where that is another one, partition tables and file systems that count in the stated block would not be understood any more: \
         a GPT in blocks of 4096 bytes is none in blocks of 512. Of images of drives with blocks of 4096 bytes nothing tells that; for them \
         --force=block-size goes on.";
}
