//! What can be wrong with a partition table, and with one partition of it.

/// Something about a table that its owner should know. The partitions of the table are still what
/// they are, where there are any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableProblem {
    /// A GPT, and MBR entries beside the protective one.
    #[error("a hybrid MBR: its {partitions} other entries are for systems that know no GPT; GPT counts")]
    Hybrid {
        /// MBR entries that are neither empty nor protective.
        partitions: u32,
    },
    /// A GPT without the MBR entry that keeps other systems away.
    #[error("there is no protective MBR: systems that know no GPT take the disk for an empty one")]
    NoProtectiveMbr,
    /// An MBR with partitions and a GPT that it does not announce.
    #[error(
        "a GPT of an earlier time is on the disk too; no protective MBR entry announces it, so the MBR counts"
    )]
    StaleGpt,
    /// The table counts in other sectors than the device it is read from.
    #[error("the table counts in sectors of {table_bytes} bytes, the device in sectors of {device_bytes}")]
    SectorSize {
        /// The table's.
        table_bytes: u32,
        /// The device's.
        device_bytes: u32,
    },
    /// An MBR that fits the device in sectors of either size, and nothing tells which is meant.
    #[error(
        "the table counts in sectors of {device_bytes} bytes, as the device does, or of {table_bytes}: it fits either way, and what is at \
         the places does not tell; partitions are taken in sectors of {used_bytes}, and only read"
    )]
    SectorSizeUnknown {
        /// The size with which more is found.
        used_bytes: u32,
        /// The other size.
        table_bytes: u32,
        /// The device's.
        device_bytes: u32,
    },
    /// An MBR that counts in the device's sectors, as it is a block device, and would lead to more
    /// in the other size.
    #[error(
        "the table counts in the device's sectors of {device_bytes} bytes, as Linux has it; all partitions begin with something that is \
         recognised in sectors of {table_bytes} and none in these: a drive that was in a USB enclosure is read as it was there by a loop \
         device over it (`losetup --sector-size {table_bytes}`)"
    )]
    OtherSectorSize {
        /// The other size.
        table_bytes: u32,
        /// The device's.
        device_bytes: u32,
    },
    /// The first copy of a GPT.
    #[error("the primary GPT: {0}")]
    Primary(GptHeaderError),
    /// The second copy.
    #[error("the backup GPT: {0}")]
    Backup(GptHeaderError),
    /// Both copies are intact and say different things: a change was written to one of them only.
    #[error("the primary and the backup GPT differ; the primary counts")]
    CopiesDiffer,
    /// The disk has grown since the table was written.
    #[error("the backup GPT is at byte {at_bytes}, the disk ends at byte {size_bytes}: the disk has grown")]
    BackupNotAtEnd {
        /// Where it is.
        at_bytes: u64,
        /// Size of the device.
        size_bytes: u64,
    },
    /// The disk is smaller than the one the table was written for.
    #[error("the table is of a disk of {table_bytes} bytes, this one has {size_bytes}: it was cut off")]
    DeviceShorter {
        /// Bytes the table needs.
        table_bytes: u64,
        /// Bytes there are.
        size_bytes: u64,
    },
    /// The list of logical partitions cannot be followed to its end: there may be more of them.
    #[error("logical partitions after number {after} are not known: {error}")]
    Chain {
        /// The last number given before.
        after: u32,
        /// Why.
        error: ChainError,
    },
}

/// Why one copy of a GPT cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GptHeaderError {
    /// The sector of the header.
    #[error("its header cannot be read")]
    Unreadable,
    /// No header is where one belongs.
    #[error("there is no header")]
    NoSignature,
    /// Shorter than its fields or longer than a sector.
    #[error("its header claims to be {found} bytes long")]
    HeaderBytes {
        /// The stored value.
        found: u32,
    },
    /// The header is damaged.
    #[error("its header's checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    HeaderChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// It was written for another place.
    #[error("its header was written for sector {stored} and found at sector {found_at}")]
    WrongPlace {
        /// The stored value.
        stored: u64,
        /// Where it was read.
        found_at: u64,
    },
    /// None, or of a size that is no multiple of 8 bytes from 128 on, or more than
    /// [`super::ENTRIES_BYTES_MAX`] together.
    #[error("it claims {count} entries of {bytes} bytes each")]
    Entries {
        /// Number of entries.
        count: u32,
        /// Size of one.
        bytes: u32,
    },
    /// The entries would lie beyond the end of the device, or in the sectors of boot code and
    /// header.
    #[error("it claims that its entries start at sector {sector}")]
    EntriesPlace {
        /// The stored value.
        sector: u64,
    },
    /// The sectors of the entries.
    #[error("its entries cannot be read")]
    EntriesUnreadable,
    /// The entries are damaged.
    #[error("the checksum of its entries is {stored:08x}, the bytes add up to {computed:08x}")]
    EntriesChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
}

/// Why a chain of logical partitions ends early. Places are sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The next record.
    #[error("sector {at_sectors} cannot be read")]
    Unreadable {
        /// Its place.
        at_sectors: u64,
    },
    /// What is there is no record.
    #[error("sector {at_sectors} has no boot record's mark")]
    NoMark {
        /// Its place.
        at_sectors: u64,
    },
    /// The next record would be outside the extended partition.
    #[error("the next record would be at sector {at_sectors}, outside the extended partition")]
    Outside {
        /// Its place.
        at_sectors: u64,
    },
    /// The next record is one that was there before.
    #[error("the chain runs in a circle through sector {at_sectors}")]
    Circle {
        /// Its place.
        at_sectors: u64,
    },
    /// More records than any tool makes.
    #[error("the chain has more than {max} records")]
    TooLong {
        /// The limit.
        max: usize,
    },
}

/// Why a partition cannot be used: what its entry says cannot be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionFault {
    /// Its last sector comes before its first.
    #[error("it ends before it starts")]
    Reversed,
    /// It does not lie on the device.
    #[error("it ends at sector {end_sectors}, the device at sector {device_sectors}")]
    BeyondDevice {
        /// First sector after it.
        end_sectors: u64,
        /// Sectors of the device.
        device_sectors: u64,
    },
    /// It covers the table itself.
    #[error("it covers sectors of the partition table")]
    OverTable,
    /// A logical partition that is not inside its extended partition.
    #[error("it is not inside the extended partition {number}")]
    OutsideExtended {
        /// The extended partition.
        number: u32,
    },
    /// It shares sectors with another one.
    #[error("it overlaps partition {number}")]
    Overlaps {
        /// One that it overlaps.
        number: u32,
    },
}
