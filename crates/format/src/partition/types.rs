//! What partitions say they are for. A hint for people: what is in a partition is found by looking
//! into it.

use std::fmt;

use super::Guid;

/// The type of a partition, as its table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartitionType {
    /// The byte of an MBR entry.
    Mbr(u8),
    /// The id of a GPT entry.
    Gpt(Guid),
}

impl PartitionType {
    /// Its name, if it is one of the common ones.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            PartitionType::Mbr(byte) => MBR.iter().find(|(known, _)| *known == byte).map(|(_, name)| *name),
            PartitionType::Gpt(guid) => GPT.iter().find(|(known, _)| *known == guid).map(|(_, name)| *name),
        }
    }

    /// Whether Windows' Logical Disk Manager has it: the drive is a dynamic disk.
    #[must_use]
    pub fn is_ldm(self) -> bool {
        self.name().is_some_and(|name| name.starts_with("Windows LDM"))
    }

    /// Whether it holds logical partitions instead of data.
    #[must_use]
    pub fn is_extended(self) -> bool {
        matches!(self, PartitionType::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// The name, or else the byte or id itself.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, PartitionType::Mbr(byte)) => write!(f, "type {byte:02x}"),
            (None, PartitionType::Gpt(guid)) => write!(f, "type {guid}"),
        }
    }
}

const MBR: [(u8, &str); 27] = [
    (0x01, "FAT12"),
    (0x04, "FAT16"),
    (0x05, "extended"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0x0f, "extended"),
    (0x27, "Windows recovery"),
    (0x42, "Windows LDM data"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x85, "Linux extended"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa8, "Apple UFS"),
    (0xa9, "NetBSD"),
    (0xaf, "Apple HFS"),
    (0xbf, "Solaris"),
    (0xda, "data without a file system"),
    (0xea, "Linux /boot"),
    (0xee, "GPT protective"),
    (0xef, "EFI system"),
    (0xfb, "VMware VMFS"),
    (0xfd, "Linux RAID"),
];

const GPT: [(Guid, &str); 30] = [
    (Guid::of("0fc63daf-8483-4772-8e79-3d69d8477de4"), "Linux"),
    (Guid::of("a19d880f-05fc-4d3b-a006-743f0f84911e"), "Linux RAID"),
    (Guid::of("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
    (Guid::of("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux swap"),
    (Guid::of("ca7d7ccb-63ed-4c53-861c-1742536059cc"), "LUKS"),
    (Guid::of("7ffec5c9-2d00-49b7-8941-3ea10a5586b7"), "dm-crypt"),
    (Guid::of("8da63339-0007-60c0-c436-083ac8230908"), "Linux reserved"),
    (Guid::of("bc13c2ff-59e6-4262-a352-b275fd6f7172"), "Linux extended boot"),
    (Guid::of("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "Linux /home"),
    (Guid::of("3b8f8425-20e0-4f3b-907f-1a25a76f98e8"), "Linux /srv"),
    (Guid::of("4d21b016-b534-45c2-a9fb-5c16e091fd2d"), "Linux /var"),
    (Guid::of("44479540-f297-41b2-9af7-d131d5f0458a"), "Linux root (x86)"),
    (Guid::of("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "Linux root (x86-64)"),
    (Guid::of("69dad710-2ce4-4e3c-b16c-21a1d49abed3"), "Linux root (ARM)"),
    (Guid::of("b921b045-1df0-41c3-af44-4c6f280d3fae"), "Linux root (ARM-64)"),
    (Guid::of("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "EFI system"),
    (Guid::of("21686148-6449-6e6f-744e-656564454649"), "BIOS boot"),
    (Guid::of("024dee41-33e7-11d3-9d69-0008c781f39f"), "MBR partition scheme"),
    (Guid::of("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "Microsoft basic data"),
    (Guid::of("e3c9e316-0b5c-4db8-817d-f92df00215ae"), "Microsoft reserved"),
    (Guid::of("de94bba4-06d1-4d40-a16a-bfd50179d6ac"), "Windows recovery"),
    (Guid::of("5808c8aa-7e8f-42e0-85d2-e1e90434cfb3"), "Windows LDM metadata"),
    (Guid::of("af9b60a0-1431-4f62-bc68-3311714a69ad"), "Windows LDM data"),
    (Guid::of("e75caf8f-f680-4cee-afa3-b001e56efc2d"), "Windows storage spaces"),
    (Guid::of("48465300-0000-11aa-aa11-00306543ecac"), "Apple HFS"),
    (Guid::of("7c3457ef-0000-11aa-aa11-00306543ecac"), "Apple APFS"),
    (Guid::of("6a898cc3-1dd2-11b2-99a6-080020736631"), "ZFS"),
    (Guid::of("6a945a3b-1dd2-11b2-99a6-080020736631"), "Solaris reserved"),
    (Guid::of("516e7cb4-6ecf-11d6-8ff8-00022d09712b"), "FreeBSD"),
    (Guid::of("516e7cba-6ecf-11d6-8ff8-00022d09712b"), "FreeBSD ZFS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_keys_and_unknown_ones_show_themselves() {
        assert!(MBR.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (at, (guid, _)) in GPT.iter().enumerate() {
            assert!(GPT[..at].iter().all(|(other, _)| other != guid), "{guid} twice");
        }
        assert_eq!(PartitionType::Mbr(0xfd).to_string(), "Linux RAID");
        assert_eq!(PartitionType::Mbr(0x43).to_string(), "type 43");
        assert!(PartitionType::Mbr(0x42).is_ldm() && !PartitionType::Mbr(0x07).is_ldm());
        let unknown = Guid([0x42; 16]);
        assert_eq!(PartitionType::Gpt(unknown).to_string(), "type 42424242-4242-4242-4242-424242424242");
    }
}
