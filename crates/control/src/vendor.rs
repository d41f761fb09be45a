//! Whose drives these are: what appliances leave behind in names and partitions, and what each part
//! is for. A guess from the layout, said with what it goes by, and used for nothing else.
//!
//! Sources: what owners of such machines posted of `mdadm --examine`, `lvs` and `gdisk`. Nothing of
//! this is documented by the makers.

use crate::md::facts::Version;
use crate::scan::{MemberOrigin, MemberScan};
use crate::stack::Stack;

/// Whose drives these are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorLayout {
    /// The maker and its system.
    pub vendor: &'static str,
    /// What tells.
    pub because: String,
    /// What the parts of a drive are for.
    pub meaning: &'static str,
}

/// What is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Layout {
    /// The stored names of arrays, `host:name`, and whether their metadata is 1.0.
    arrays: Vec<(String, bool)>,
    /// Names of groups with those of their volumes.
    groups: Vec<(String, Vec<String>)>,
    /// Of each drive with partitions: number, start and length in sectors.
    tables: Vec<Vec<(u32, u64, u64)>>,
    /// Whether nothing but file systems is on the partitions.
    is_plain: bool,
}

const SYNOLOGY: (&str, &str) = (
    "Synology (DSM)",
    "partition 1 of each drive is DSM, 2 its swap; what follows is data, with SHR an array for each band of drive sizes, joined by the \
     volume group; where partitions are skipped (5, 6, …) they are such bands too",
);
const QNAP: (&str, &str) = (
    "QNAP (QTS)",
    "the small arrays 9, 13, 256 and 322 are QTS, its settings and swap; partition 3 of each drive is data",
);
const TERRAMASTER: (&str, &str) = (
    "TerraMaster (TOS)",
    "the arrays UTOSDISK, UTOSCORE, UTOSUSER and UTOSSWAP are TOS and its swap; the last partition is data",
);
const ASUSTOR: (&str, &str) =
    ("Asustor (ADM)", "the small arrays are ADM and its swap; the last partition of each drive is data");
const NETGEAR: (&str, &str) = (
    "Netgear ReadyNAS",
    "partition 1 of each drive (4 GiB) is ReadyNAS OS, 2 its swap; what follows is data, with X-RAID an array for each band of drive sizes",
);
const UNRAID: (&str, &str) = (
    "Unraid",
    "each data drive has a file system of its own, to be read by itself; the parity drive has none, and is not read here",
);

/// Whose drives a stack is made of, where the layout tells.
#[must_use]
pub fn vendor(stack: &Stack) -> Option<VendorLayout> {
    recognise(&layout(stack))
}

fn layout(stack: &Stack) -> Layout {
    let scan = &stack.scan;
    let arrays = scan.arrays.iter().map(|array| &array.assembly.array);
    let tables = scan.members.iter().filter_map(|member| member.table.as_ref());
    let on_partitions =
        || scan.members.iter().filter(|member| matches!(member.origin, MemberOrigin::Partition { .. }));
    Layout {
        arrays: arrays.map(|array| (array.set_name.clone(), array.version == Version::V10)).collect(),
        groups: stack
            .groups
            .iter()
            .map(|group| {
                (group.vg.name.clone(), group.vg.lvs.iter().map(|volume| volume.name.clone()).collect())
            })
            .collect(),
        tables: tables
            .map(|table| {
                let usable = table.partitions.iter().filter(|partition| partition.is_usable());
                usable.map(|it| (it.number, it.start_sectors, it.len_sectors)).collect()
            })
            .collect(),
        is_plain: on_partitions().next().is_some()
            && on_partitions().all(MemberScan::has_file_system)
            && scan.arrays.is_empty()
            && stack.groups.is_empty(),
    }
}

fn recognise(layout: &Layout) -> Option<VendorLayout> {
    let found = |(vendor, meaning): (&'static str, &'static str), because: String| {
        Some(VendorLayout { vendor, because, meaning })
    };
    for (group, volumes) in &layout.groups {
        let is_volume = |name: &String| {
            name == "syno_vg_reserved_area"
                || (group == "vg1000" && name == "lv")
                || (numbered(group, "vg") && numbered(name, "volume_"))
        };
        if let Some(volume) = volumes.iter().find(|name| is_volume(name)) {
            return found(SYNOLOGY, format!("volume {group}/{volume}"));
        }
    }
    for table in &layout.tables {
        let len = |number| table.iter().find(|partition| partition.0 == number).map(|partition| partition.2);
        let start =
            |number| table.iter().find(|partition| partition.0 == number).map(|partition| partition.1);
        match (start(1), len(1), len(2)) {
            (_, Some(4_980_480 | 16_777_216), Some(4_194_304)) if table.len() > 2 => {
                return found(SYNOLOGY, "the sizes of partitions 1 and 2".to_owned());
            }
            (Some(64), Some(8_388_608), Some(1_048_576)) => {
                return found(NETGEAR, "the places of partitions 1 and 2".to_owned());
            }
            _ => {}
        }
    }
    for (name, _) in &layout.arrays {
        let (host, own) = name.split_once(':').unwrap_or(("", name));
        if own.starts_with("UTOS") {
            return found(TERRAMASTER, format!("array {name}"));
        }
        if host.strip_prefix("AS").is_some_and(|model| model.starts_with(|c: char| c.is_ascii_digit())) {
            return found(ASUSTOR, format!("array {name}"));
        }
        if host.len() == 8 && host.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_readynas(own) {
            return found(NETGEAR, format!("array {name}"));
        }
    }
    let of_qts = layout.arrays.iter().filter(|(name, is_10)| {
        *is_10 && ["9", "13", "256", "322"].contains(&name.rsplit(':').next().unwrap_or(name))
    });
    let of_qts: Vec<_> = of_qts.map(|(name, _)| name.as_str()).collect();
    if of_qts.len() >= 2 {
        return found(QNAP, format!("arrays {}", of_qts.join(" and ")));
    }
    let of_unraid = |table: &Vec<(u32, u64, u64)>| matches!(table[..], [(1, 64, _)]);
    if layout.is_plain && !layout.tables.is_empty() && layout.tables.iter().all(of_unraid) {
        return found(UNRAID, "one partition at sector 64 of each drive, with a file system".to_owned());
    }
    None
}

/// `data-0`, `Archive-1`: what ReadyNAS OS calls the arrays of a volume.
fn is_readynas(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(volume, number)| !volume.is_empty() && is_number(number))
}

fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vendor_of(layout: &Layout) -> Option<&'static str> {
        recognise(layout).map(|found| found.vendor)
    }

    fn arrays(names: &[&str]) -> Layout {
        let arrays = names.iter().map(|name| ((*name).to_owned(), true)).collect();
        Layout { arrays, ..Layout::default() }
    }

    fn group(name: &str, volumes: &[&str]) -> Layout {
        let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
        Layout { groups: vec![(name.to_owned(), volumes)], ..Layout::default() }
    }

    fn table(partitions: &[(u32, u64, u64)], is_plain: bool) -> Layout {
        Layout { tables: vec![partitions.to_vec()], is_plain, ..Layout::default() }
    }

    #[test]
    fn names_and_partitions_tell() {
        let (synology, netgear) = (Some(SYNOLOGY.0), Some(NETGEAR.0));
        assert_eq!(vendor_of(&group("vg1000", &["lv"])), synology);
        assert_eq!(vendor_of(&group("vg1", &["syno_vg_reserved_area", "volume_1"])), synology);
        assert_eq!(vendor_of(&group("vg2", &["volume_3"])), synology);
        let dsm = [(1, 2048, 4_980_480), (2, 4_982_528, 4_194_304), (5, 9_453_280, 1 << 30)];
        assert_eq!(vendor_of(&table(&dsm, false)), synology);
        let readynas = [(1, 64, 8_388_608), (2, 8_388_672, 1_048_576), (3, 9_437_248, 1 << 30)];
        assert_eq!(vendor_of(&table(&readynas, false)), netgear);
        assert_eq!(vendor_of(&arrays(&["2fe5a0c1:data-0"])), netgear);
        assert_eq!(vendor_of(&arrays(&["TNAS-0A1B:UTOSCORE-X86-S64"])), Some(TERRAMASTER.0));
        assert_eq!(vendor_of(&arrays(&["AS5304T-7C2A:1"])), Some(ASUSTOR.0));
        assert_eq!(vendor_of(&arrays(&["9", "1", "322"])), Some(QNAP.0));
        assert_eq!(vendor_of(&table(&[(1, 64, 1 << 30)], true)), Some(UNRAID.0));
    }

    #[test]
    fn what_anybody_may_have_tells_nothing() {
        assert_eq!(vendor_of(&Layout::default()), None);
        assert_eq!(vendor_of(&group("vg0", &["root", "home"])), None);
        assert_eq!(vendor_of(&group("vg1000", &["data"])), None);
        assert_eq!(vendor_of(&arrays(&["server:data", "9", "ASTRO:0", "deadbeef:home"])), None);
        assert_eq!(vendor_of(&table(&[(1, 2048, 1 << 30)], true)), None);
        assert_eq!(vendor_of(&table(&[(1, 64, 1 << 30)], false)), None);
    }
}
