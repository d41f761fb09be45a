//! The same by mdadm, LVM2, mkfs and mount.

use wattle_advise::plan::{
    ArrayPlan, Ext4, FileSystemOptions, PlanLevel, PlanShape, PlannedStack, PowerCutCover, XfsNumbers,
};
use wattle_control::shell_word;

use super::report::Names;

/// Bytes of what Linux counts sectors in.
const SECTOR_BYTES: u64 = 512;

/// Every command, in order, for drives of these sizes.
pub fn commands(
    stack: &PlannedStack,
    sizes_bytes: &[u64],
    file_system: &FileSystemOptions,
    names: &Names,
) -> Vec<String> {
    let mut all = partitions(stack, names);
    for (ix, array) in stack.arrays.iter().enumerate() {
        all.extend(create(array, sizes_bytes, ix, names));
    }
    let volumes = names.physical(stack);
    for (array, on) in stack.arrays.iter().zip(&volumes) {
        all.push(format!("pvcreate --dataalignment {} {}", size(array.pe_start_bytes()), words(on)));
    }
    let all_volumes: Vec<String> = volumes.concat();
    all.push(format!(
        "vgcreate --physicalextentsize {} {} {}",
        size(stack.extent_bytes),
        names.group(),
        words(&all_volumes)
    ));
    all.push(logical_volume(stack, names));
    all.push(format!("{} {}", mkfs(file_system), names.volume_device()));
    let options = match file_system {
        FileSystemOptions::Xfs(XfsNumbers { mount, .. }) | FileSystemOptions::Ext4(Ext4 { mount, .. }) => {
            mount.join(",")
        }
    };
    all.push(format!("mkdir --parents {}", names.mount_point()));
    all.push(format!("mount -o {options} {} {}", names.volume_device(), names.mount_point()));
    all
}

/// What does not outlast a reboot: read-ahead of every layer, the cache of stripes.
pub fn settings(stack: &PlannedStack, caches: &[Option<u64>], names: &Names) -> Vec<String> {
    let mut layers: Vec<String> = match stack.arrays[0].shape {
        PlanShape::Plain => names.physical(stack).concat(),
        _ => names.arrays(stack),
    };
    layers.push(names.volume_device());
    let mut all =
        vec![format!("blockdev --setra {} {}", stack.read_ahead_bytes / SECTOR_BYTES, words(&layers))];
    for (array, entries) in names.arrays(stack).iter().zip(caches) {
        let device = format!("$(basename $(readlink -f {}))", shell_word(array));
        all.extend(
            entries.map(|entries| format!("echo {entries} > /sys/block/{device}/md/stripe_cache_size")),
        );
    }
    all
}

/// What cuts drives into bands, where there are several.
pub fn partitions(stack: &PlannedStack, names: &Names) -> Vec<String> {
    let mut by_drive: Vec<(usize, String)> = Vec::new();
    for array in &stack.arrays {
        let Some((number, range)) = &array.part else { continue };
        // In whole MiB, because sgdisk counts sectors of the drive, which may have 4096 bytes.
        let (start, len) = (range.start >> 20, (range.end - range.start) >> 20);
        for drive in &array.drives {
            let part = format!(" --new={number}:{start}M:+{len}M --typecode={number}:fd00");
            match by_drive.iter_mut().find(|(known, _)| known == drive) {
                Some((_, parts)) => parts.push_str(&part),
                None => by_drive.push((*drive, part)),
            }
        }
    }
    by_drive.sort();
    let command =
        |(drive, parts): (usize, String)| format!("sgdisk{parts} {}", shell_word(&names.drives[drive]));
    by_drive.into_iter().map(command).collect()
}

fn create(array: &ArrayPlan, sizes_bytes: &[u64], ix: usize, names: &Names) -> Vec<String> {
    if array.shape == PlanShape::Plain {
        return Vec::new();
    }
    // Of one that is more than a hundredth larger `--create` asks a question, and takes what was
    // pasted behind it for the answer.
    let is_larger = |spare: &usize| {
        let data_bytes = sizes_bytes[*spare].saturating_sub(array.place.data_offset_bytes);
        data_bytes.saturating_sub(array.place.data_bytes) > data_bytes / 100
    };
    if array.spares.iter().any(is_larger) {
        let spares: Vec<_> = array.spares.iter().map(|spare| names.drives[*spare].clone()).collect();
        let array = ArrayPlan { spares: Vec::new(), ..array.clone() };
        let mut all = create(&array, sizes_bytes, ix, names);
        all.push(format!("mdadm {} --add {}", shell_word(&names.array_device(ix)), words(&spares)));
        return all;
    }
    let mut text = format!(
        "mdadm --create {} --metadata=1.2 --level={} --raid-devices={}",
        shell_word(&names.array_device(ix)),
        array.shape.level().name(),
        array.drives.len()
    );
    if !array.spares.is_empty() {
        text.push_str(&format!(" --spare-devices={}", array.spares.len()));
    }
    if array.chunk_bytes > 0 {
        text.push_str(&format!(" --chunk={}", size(array.chunk_bytes).to_uppercase()));
    }
    if let Some(layout) = array.shape.layout() {
        text.push_str(&format!(" --layout={layout}"));
    }
    if array.shape.level() != PlanLevel::Raid0 {
        text.push_str(match array.cover {
            PowerCutCover::Resync => " --bitmap=none",
            PowerCutCover::Bitmap => " --bitmap=internal",
            PowerCutCover::Ppl => " --consistency-policy=ppl",
        });
    }
    vec![format!("{text} {}", words(&names.members(array)))]
}

fn logical_volume(stack: &PlannedStack, names: &Names) -> String {
    let mut text = "lvcreate --extents 100%FREE".to_owned();
    if stack.lv_stripes > 1 {
        text.push_str(&format!(
            " --stripes {} --stripesize {}",
            stack.lv_stripes,
            size(stack.lv_stripe_bytes)
        ));
    }
    let ahead = stack.read_ahead_bytes / SECTOR_BYTES;
    format!("{text} --readahead {ahead} --name {} {}", names.volume(), names.group())
}

/// Without the device.
pub fn mkfs(file_system: &FileSystemOptions) -> String {
    match file_system {
        FileSystemOptions::Xfs(xfs) => {
            let mut text = "mkfs.xfs -d ".to_owned();
            if let Some((unit, width)) = xfs.stripe {
                text.push_str(&format!("su={},sw={width},", size(unit)));
            }
            text.push_str(&format!("agsize={}", size(xfs.group_bytes)));
            if let Some(unit) = xfs.log_unit_bytes {
                text.push_str(&format!(" -l su={}", size(unit)));
            }
            text
        }
        FileSystemOptions::Ext4(ext4) => {
            let mut text = "mkfs.ext4 -b 4096".to_owned();
            if let Some((stride, width)) = ext4.stride {
                text.push_str(&format!(" -E stride={stride},stripe_width={width}"));
            }
            if let Some(bytes) = ext4.bytes_per_inode {
                text.push_str(&format!(" -i {bytes}"));
            }
            text
        }
    }
}

/// As mdadm, LVM2 and mkfs all take it: whole binary units.
pub fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        bytes => format!("{bytes}b"),
    }
}

pub fn words(all: &[String]) -> String {
    all.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use wattle_advise::plan::{DataPlacement, FileSystemKind, Wish, Workload, candidates};

    use super::*;

    #[test]
    fn a_spare_that_is_larger_is_added_where_create_would_ask() {
        const GIB: u64 = 1 << 30;
        let name = |drive: &str| format!("/dev/{drive}");
        let names = Names { drives: ["a", "b", "c", "my spare"].map(name).to_vec(), name: "data".to_owned() };
        let created = |spare_bytes: u64| {
            let wish = Wish {
                sizes_bytes: vec![10 * GIB, 10 * GIB, 10 * GIB, spare_bytes],
                rotational: false,
                capacity_bytes: None,
                survive: 1,
                spares: 1,
                workload: Workload { name: None, random: false, read_part: 0.5, bytes: 1 << 20, depth: 1 },
                level: Some(PlanLevel::Raid5),
                layout: None,
                chunk_bytes: Some(64 << 10),
                consistency: None,
                file_system: FileSystemKind::Ext4,
                cores: 4,
            };
            let found = candidates(&wish, |_, len_bytes, _, _| DataPlacement {
                data_offset_bytes: 1 << 20,
                data_bytes: len_bytes - (1 << 20),
            });
            create(&found.unwrap()[0].stack.arrays[0], &wish.sizes_bytes, 0, &names)
        };
        for alike in [10 * GIB, 10 * GIB + GIB / 20] {
            let [only] = &created(alike)[..] else { panic!("{:?}", created(alike)) };
            assert!(
                only.contains("--spare-devices=1") && only.ends_with("/dev/a /dev/b /dev/c '/dev/my spare'")
            );
        }
        let [create, add] = &created(20 * GIB)[..] else { panic!("{:?}", created(20 * GIB)) };
        assert!(!create.contains("spare") && create.ends_with(" /dev/a /dev/b /dev/c"), "{create}");
        assert_eq!(add, "mdadm /dev/md/data --add '/dev/my spare'");
    }
}
