//! Why each number is what it is.

use serde::Serialize;
use wattle_advise::plan::{Cache, Candidate, Consistency, FileSystem, Level, Shape};

use super::wish::Asked;
use crate::output::Units;

/// A setting of a layer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub layer: &'static str,
    pub setting: &'static str,
    pub value: String,
    pub why: String,
}

/// From the drives up.
pub fn reasons(
    asked: &Asked,
    best: &Candidate,
    file_system: &FileSystem,
    caches: &[Option<Cache>],
    units: Units,
) -> Vec<Reason> {
    let mut all = Vec::new();
    let mut add = |layer, setting, value: String, why: String| {
        all.push(Reason { layer, setting, value, why });
    };
    let (wish, stack) = (&asked.wish, &best.stack);
    let array = &stack.arrays[0];
    let members = array.drives.len() as u32;
    let plain = array.shape == Shape::Plain;
    if array.part.is_some() {
        let why = "drives of different sizes: each band is an array of its own, all are one volume group; partitions start and end on \
                   whole MiB";
        add("drives", "bands", stack.arrays.len().to_string(), why.to_owned());
    }
    if stack.unused_bytes > 0 {
        let why = "too few drives reach so far to be redundant there";
        add("drives", "unused", units.show(stack.unused_bytes), why.to_owned());
    }
    if !plain {
        let survives = array.shape.survives(members);
        add(
            "array",
            "level",
            array.shape.to_string(),
            match wish.level {
                Some(_) => format!(
                    "the level as asked for; survives {}",
                    plural(u64::from(survives), "failed drive")
                ),
                None => format!(
                    "the fastest under this load of all that survive {}, whichever they are; this survives {survives}",
                    plural(u64::from(wish.survive), "failed drive")
                ),
            },
        );
    }
    if !plain && array.chunk_bytes > 0 {
        let why = match wish.chunk_bytes {
            Some(_) => "as asked for".to_owned(),
            None => format!(
                "fastest, or as fast as any and nearest to {}, which experience prefers for this use",
                units.show(best.preferred_chunk(wish))
            ),
        };
        add("array", "chunk", units.show(array.chunk_bytes), why);
    }
    if !plain {
        add(
            "array",
            "metadata",
            "1.2".to_owned(),
            "the kernel's and wattle's default; leaves room for reshapes".to_owned(),
        );
        let why = "data starts on a whole MiB of every member".to_owned();
        add("array", "data offset", units.show(array.place.data_offset_bytes), why);
        consistency(asked, best, &mut add);
    }
    for cache in caches.first().into_iter().flatten() {
        let why = format!(
            "md's cache of stripes, {} of memory: about a quarter of a second of what members move; 256, the default, starves them. \
             wattle's own sizes itself",
            units.show(cache.memory_bytes)
        );
        add("array", "stripe_cache_size", cache.entries.to_string(), why);
    }
    spares(asked, best, &mut add);
    let pe_start = array.pe_start_bytes();
    let why = match array.stripe_bytes() {
        0 => "behind LVM2's metadata".to_owned(),
        stripe => format!("a multiple of the stripe of {}, behind LVM2's metadata", units.show(stripe)),
    };
    add("physical volume", "data start", units.show(pe_start), why);
    let why = "whole stripes, so that every volume starts on one".to_owned();
    add("volume group", "extent", units.show(stack.extent_bytes), why);
    if stack.lv_stripes > 1 {
        let why = match plain {
            true => "what follows one another goes to one drive after the other; a power of two",
            false => "one whole stripe of each array in turn",
        };
        let value = format!("{} x {}", stack.lv_stripes, units.show(stack.lv_stripe_bytes));
        add("volume", "stripes", value, why.to_owned());
    }
    add(
        "volume",
        "size",
        units.show_capacity(stack.volume_bytes),
        format!("{} extents, all there are", stack.volume_extents),
    );
    self::file_system(best, file_system, units, &mut add);
    let ahead = units.show(stack.read_ahead_bytes);
    let why = format!(
        "{} stripes, the same of every layer: the volume's counts, and starts at {} if nobody says more",
        if wish.workload.random { 2 } else { 4 },
        units.show(128 << 10)
    );
    add("all layers", "read-ahead", ahead, why);
    all
}

type Add<'a> = &'a mut dyn FnMut(&'static str, &'static str, String, String);

fn consistency(asked: &Asked, best: &Candidate, add: Add<'_>) {
    let array = &best.stack.arrays[0];
    let policy = array.consistency(&asked.wish);
    let why = match (policy, array.shape.level()) {
        (Consistency::Ppl, _) => {
            "closes the write hole: small writes in place, and a power cut while a member is missing would otherwise change what nobody \
             wrote"
        }
        (Consistency::Bitmap, Level::Raid5) => {
            "a crash costs a resync of a few regions; the write hole stays open (a crash while a member is missing): --consistency ppl \
             closes it and costs writes"
        }
        (Consistency::Bitmap, Level::Raid6) => {
            "a crash costs a resync of a few regions; the write hole stays open only while two members are missing"
        }
        (Consistency::Bitmap, _) => "a crash costs a resync of a few regions; copies have no write hole",
        (Consistency::Resync, Level::Raid0) => "there is nothing to resync",
        (Consistency::Resync, _) => "as asked for; after a crash everything is resynced",
    };
    add("array", "consistency", policy.name().to_owned(), why.to_owned());
}

fn spares(asked: &Asked, best: &Candidate, add: Add<'_>) {
    let survives = best.shape.survives(best.measured().drives.len() as u32);
    if survives == 0 {
        return;
    }
    let (value, why) = match asked.wish.spares {
        0 => (
            "none".to_owned(),
            format!(
                "a failed drive waits {} h for a person: have one on the shelf, and mail that tells of it (`wattle serve` and \
                 `mdadm --monitor` do)",
                asked.reliability.replace_hours
            ),
        ),
        spares => (
            spares.to_string(),
            "a rebuild begins at once; a spare in use is one failure survived, not two".to_owned(),
        ),
    };
    add("array", "spares", value, why);
}

fn file_system(best: &Candidate, file_system: &FileSystem, units: Units, add: Add<'_>) {
    match file_system {
        FileSystem::Xfs(xfs) => {
            if let Some((unit, width)) = xfs.stripe {
                let why = format!("the chunk, and the {width} of them that hold data side by side");
                add("xfs", "su, sw", format!("{}, {width}", units.show(unit)), why);
            }
            let starts: Vec<_> = xfs.group_members.iter().take(8).map(ToString::to_string).collect();
            let more = if xfs.group_members.len() > 8 { ", …" } else { "" };
            let why = match xfs.stripe {
                Some(_) => format!(
                    "{} each, whole stripe units; they start on members {}{more}, not all on one",
                    units.show(xfs.group_bytes),
                    starts.join(", ")
                ),
                None => format!("{} each", units.show(xfs.group_bytes)),
            };
            add("xfs", "allocation groups", xfs.groups.to_string(), why);
            if let Some(unit) = xfs.log_unit_bytes {
                let why = match best.stack.unit_bytes {
                    Some(chunk) if chunk > unit => {
                        "the chunk is more than the log can be written in".to_owned()
                    }
                    _ => "the log is written in whole stripe units".to_owned(),
                };
                add("xfs", "log su", units.show(unit), why);
            }
            add(
                "xfs",
                "inode",
                units.show(u64::from(xfs.inode_bytes)),
                "the default since checksums; more only for large ACLs".to_owned(),
            );
            add("mount", "options", xfs.mount.join(","), OBSOLETE_XFS.to_owned());
        }
        FileSystem::Ext4(ext4) => {
            if let Some((stride, width)) = ext4.stride {
                let why = "blocks of 4 KiB in a chunk, and in a stripe without its redundancy".to_owned();
                add("ext4", "stride, stripe_width", format!("{stride}, {width}"), why);
            }
            let value = ext4.bytes_per_inode.map_or("default".to_owned(), |bytes| units.show(bytes));
            add("ext4", "bytes for an inode", value, "by the size of files that this use has".to_owned());
            add(
                "ext4",
                "inode",
                units.show(u64::from(ext4.inode_bytes)),
                "the default; room for times after 2038".to_owned(),
            );
            add("mount", "options", ext4.mount.join(","), OBSOLETE_EXT4.to_owned());
        }
    }
}

const OBSOLETE_XFS: &str = "not among them: nobarrier and osyncisdsync (gone from Linux; they lost data), nodiratime (in noatime), \
                            inode64, delaylog, lazy-count (what is so anyway); on flash fstrim.timer instead of discard";
const OBSOLETE_EXT4: &str = "not among them: barrier=0 and data=writeback (old contents after a crash), nodiratime (in noatime), \
                             stripe= (the superblock has it); on flash fstrim.timer instead of discard";

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("{count} {what}") } else { format!("{count} {what}s") }
}
