//! Why each number is what it is.

use serde::Serialize;
use wattle_advise::plan::{
    ArrayPlan, Cache, Candidate, FileSystemOptions, PlanLevel, PlanShape, PlannedStack, PowerCutCover,
    XfsNumbers,
};
use wattle_control::units::Units;

use super::report::Names;
use super::wish::PlanRequest;

/// A setting of a layer, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingReason {
    pub layer: &'static str,
    pub setting: &'static str,
    pub value: String,
    pub why: String,
}

/// Why everything is as it is, from the drives up.
#[derive(Default)]
struct Reasons(Vec<SettingReason>);

impl Reasons {
    fn add(
        &mut self,
        layer: &'static str,
        setting: &'static str,
        value: impl Into<String>,
        why: impl Into<String>,
    ) {
        self.0.push(SettingReason { layer, setting, value: value.into(), why: why.into() });
    }
}

pub fn reasons(
    asked: &PlanRequest,
    best: &Candidate,
    file_system: &FileSystemOptions,
    caches: &[Option<Cache>],
    (names, units): (&Names, Units),
) -> Vec<SettingReason> {
    let mut all = Reasons::default();
    let stack = &best.stack;
    if stack.arrays[0].part.is_some() {
        let why = "drives of different sizes: each band is an array of its own, all are one volume group; partitions start and end on \
                   whole MiB";
        all.add("drives", "bands", stack.arrays.len().to_string(), why);
    }
    if stack.unused_bytes > 0 {
        let why =
            "too few drives reach so far to be redundant there, or what lies there is less than an extent";
        all.add("drives", "unused", units.show(stack.unused_bytes), why);
    }
    if stack.arrays[0].shape != PlanShape::Plain {
        all.array(asked, best, units);
    }
    if let Some(cache) = caches.iter().flatten().next() {
        let memory_bytes = caches.iter().flatten().map(|cache| cache.memory_bytes).sum();
        let of = match caches.iter().flatten().count() {
            1 => String::new(),
            more => format!(" for those of {more} arrays"),
        };
        let why = format!(
            "md's cache of stripes, {} of memory{of}: about a quarter of a second of what members move; 256, the default, starves them. \
             wattle's own sizes itself",
            units.show(memory_bytes)
        );
        all.add("array", "stripe_cache_size", cache.entries.to_string(), why);
    }
    all.spares(asked, best);
    all.volumes(best, units);
    all.file_system(stack, file_system, (names, units));
    let why = format!(
        "{} stripes, the same of every layer: the volume's counts, and starts at {} if not told otherwise",
        if asked.wish.workload.random { 2 } else { 4 },
        units.show(128 << 10)
    );
    all.add("all layers", "read-ahead", units.show(stack.read_ahead_bytes), why);
    all.0
}

impl Reasons {
    fn array(&mut self, asked: &PlanRequest, best: &Candidate, units: Units) {
        let (wish, array) = (&asked.wish, best.measured());
        let survives = u64::from(array.shape.survives(array.drives.len() as u32));
        let why = match wish.level {
            Some(_) => format!("the level as asked for; survives {}", plural(survives, "failed drive")),
            None => format!(
                "the fastest under this load of all that survive {}, whichever they are, or as fast as any and the most usual; this \
                 survives {survives}",
                plural(u64::from(wish.survive), "failed drive")
            ),
        };
        self.add("array", "level", array.shape.to_string(), why);
        if array.chunk_bytes > 0 {
            let why = match wish.chunk_bytes {
                Some(_) => "as asked for".to_owned(),
                None => format!(
                    "fastest, or as fast as any and nearest to {}, which experience prefers for this use",
                    units.show(best.preferred_chunk(wish))
                ),
            };
            self.add("array", "chunk", units.show(array.chunk_bytes), why);
        }
        let why = "the kernel's and wattle's default; leaves room for reshapes";
        self.add("array", "metadata", "1.2", why);
        let why = "data starts on a whole MiB of every member";
        self.add("array", "data offset", units.show(array.place.data_offset_bytes), why);
        let policy = array.cover;
        let why = match (policy, array.shape.level()) {
            (PowerCutCover::Ppl, _) => {
                "closes the write hole: small writes in place, and a power cut while a member is missing would otherwise change what \
                 was not being written"
            }
            (PowerCutCover::Bitmap, PlanLevel::Raid5) => {
                "a crash costs a resync of a few regions; the write hole stays open (a crash while a member is missing): --consistency \
                 ppl closes it and costs writes"
            }
            (PowerCutCover::Bitmap, PlanLevel::Raid6) => {
                "a crash costs a resync of a few regions; the write hole stays open only while two members are missing"
            }
            (PowerCutCover::Bitmap, _) => {
                "a crash costs a resync of a few regions; copies have no write hole"
            }
            (PowerCutCover::Resync, PlanLevel::Raid0) => "there is nothing to resync",
            (PowerCutCover::Resync, _) => "as asked for; after a crash everything is resynced",
        };
        self.add("array", "consistency", policy.name(), why);
    }

    fn spares(&mut self, asked: &PlanRequest, best: &Candidate) {
        match (best.shape.survives(best.measured().drives.len() as u32), asked.wish.spares) {
            (0, _) => {}
            (_, 0) => {
                let why = format!(
                    "a failed drive waits {} h for a person: have one on the shelf, and something that tells of it \
                     (`mdadm --monitor` sends mail; `wattle status --check` has an exit status for a timer that does)",
                    asked.reliability.replace_hours
                );
                self.add("array", "spares", "none", why);
            }
            (_, spares) => {
                let why = "a rebuild begins at once; a spare in use is one failure survived, not two";
                self.add("array", "spares", spares.to_string(), why);
            }
        }
    }

    fn volumes(&mut self, best: &Candidate, units: Units) {
        let (stack, array) = (&best.stack, best.measured());
        let why = match array.stripe_bytes() {
            0 => "behind LVM2's metadata".to_owned(),
            stripe => format!("a multiple of the stripe of {}, behind LVM2's metadata", units.show(stripe)),
        };
        self.add("physical volume", "data start", units.show(array.pe_start_bytes()), why);
        let is_whole = |array: &ArrayPlan| stack.extent_bytes.is_multiple_of(array.stripe_bytes().max(1));
        let why = match stack.arrays.iter().all(is_whole) {
            true => "whole stripes, so that every volume starts on one",
            false => "whole stripes of the first array: those of all of them together are too much",
        };
        self.add("volume group", "extent", units.show(stack.extent_bytes), why);
        if stack.lv_stripes > 1 {
            let why = match array.shape {
                PlanShape::Plain => {
                    "what follows one another goes to one drive after the other; a power of two"
                }
                _ => "one whole stripe of each array in turn",
            };
            let value = format!("{} x {}", stack.lv_stripes, units.show(stack.lv_stripe_bytes));
            self.add("volume", "stripes", value, why);
        }
        let why = format!("{} extents, all there are", stack.volume_extents);
        self.add("volume", "size", units.show_capacity(stack.volume_bytes), why);
    }

    fn file_system(
        &mut self,
        stack: &PlannedStack,
        file_system: &FileSystemOptions,
        (names, units): (&Names, Units),
    ) {
        let (layer, inode_bytes, why_inode, mount, why_mount) = match file_system {
            FileSystemOptions::Xfs(xfs) => {
                self.xfs(stack, xfs, units);
                let why = "the default since checksums; more only for large ACLs";
                ("xfs", xfs.inode_bytes, why, &xfs.mount, OBSOLETE_XFS)
            }
            FileSystemOptions::Ext4(ext4) => {
                if let Some((stride, width)) = ext4.stride {
                    let why = "blocks of 4 KiB in a chunk, and in a stripe without its redundancy";
                    self.add("ext4", "stride, stripe_width", format!("{stride}, {width}"), why);
                }
                let value = ext4.bytes_per_inode.map_or("default".to_owned(), |bytes| units.show(bytes));
                let why = "by the size of files that this use has";
                self.add("ext4", "bytes for an inode", value, why);
                (
                    "ext4",
                    ext4.inode_bytes,
                    "the default; room for times after 2038",
                    &ext4.mount,
                    OBSOLETE_EXT4,
                )
            }
        };
        for (array, why) in uneven(stack, names) {
            self.add(layer, "not aligned on", array, why);
        }
        self.add(layer, "inode", units.show(u64::from(inode_bytes)), why_inode);
        self.add("mount", "options", mount.join(","), why_mount);
    }

    fn xfs(&mut self, stack: &PlannedStack, xfs: &XfsNumbers, units: Units) {
        if let Some((unit, width)) = xfs.stripe {
            let why = format!("the chunk, and the {width} of them that hold data side by side");
            self.add("xfs", "su, sw", format!("{}, {width}", units.show(unit)), why);
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
        self.add("xfs", "allocation groups", xfs.groups.to_string(), why);
        if let Some(unit) = xfs.log_unit_bytes {
            let why = match stack.unit_bytes {
                Some(chunk) if chunk > unit => "the chunk is more than the log can be written in",
                _ => "the log is written in whole stripe units",
            };
            self.add("xfs", "log su", units.show(unit), why);
        }
    }
}

/// Arrays on which the file system's stripes come out uneven, and why they do.
pub fn uneven(stack: &PlannedStack, names: &Names) -> Vec<(String, String)> {
    let of = |ix: usize| {
        let array = &stack.arrays[ix];
        let why = format!(
            "a file system knows stripes of one width, those of {}; {} over {} has others, and writes of whole stripes are none there",
            names.array(0),
            array.shape,
            array.drives.len()
        );
        (names.array(ix), why)
    };
    stack.uneven().into_iter().map(of).collect()
}

const OBSOLETE_XFS: &str = "not among them: nobarrier and osyncisdsync (gone from Linux; they lost data), nodiratime (in noatime), \
                            inode64, delaylog, lazy-count (what is so anyway); on flash fstrim.timer instead of discard";
const OBSOLETE_EXT4: &str = "not among them: barrier=0 and data=writeback (old contents after a crash), nodiratime (in noatime), \
                             stripe= (the superblock has it); on flash fstrim.timer instead of discard";

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("{count} {what}") } else { format!("{count} {what}s") }
}
