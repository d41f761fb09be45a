//! What is told of a plan.

use serde::Serialize;
use wattle_advise::plan::{
    ArrayPlan, Cache, FileSystemKind, FileSystemOptions, PlanShape, PlannedStack, Wish,
};
use wattle_control::units::Units;
use wattle_drives::{Disk, Drive, Media};
use wattle_modelled::plan::{Hurt, Trial};
use wattle_server::protocol::SCHEMA_VERSION;

use super::apply::Applied;
use super::reasons::{SettingReason, reasons};
use super::wish::{Assumed, PlanRequest};
use super::{Known, linux, ours};

#[derive(Debug, Serialize)]
pub struct PlanDocument {
    schema_version: u32,
    pub wanted: WantedReport,
    pub assumed: Vec<Assumed>,
    pub drives: Vec<DriveReport>,
    pub plan: PlanReport,
    /// What `--apply` did.
    pub applied: Option<Applied>,
    /// The best first.
    pub candidates: Vec<CandidateReport>,
}

#[derive(Debug, Serialize)]
pub struct WantedReport {
    capacity_bytes: Option<u64>,
    pub survive: u32,
    pub spares: u32,
    pub workload: Option<&'static str>,
    pub load: String,
    file_system: &'static str,
    cores: u32,
    memory_bytes: u64,
    failures_per_year: f64,
    unreadable_per_bit: f64,
    replace_hours: f64,
    rebuild_share: f64,
}

#[derive(Debug, Serialize)]
pub struct DriveReport {
    name: String,
    pub model: String,
    pub size_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct PlanReport {
    pub arrays: Vec<PlannedArrayReport>,
    lvm: LvmReport,
    file_system: FileSystemReport,
    /// Arrays whose stripes are not those that the file system knows.
    uneven: Vec<String>,
    read_ahead_bytes: u64,
    pub unused_bytes: u64,
    pub drives_used: usize,
    pub loss: Option<LossReport>,
    pub reasons: Vec<SettingReason>,
    pub commands: CommandsReport,
}

#[derive(Debug, Serialize)]
pub struct PlannedArrayReport {
    name: String,
    pub level: &'static str,
    pub layout: Option<String>,
    chunk_bytes: Option<u64>,
    stripe_bytes: Option<u64>,
    metadata: Option<&'static str>,
    consistency: Option<&'static str>,
    drives: Vec<usize>,
    spares: Vec<usize>,
    partition: Option<PartReport>,
    data_offset_bytes: u64,
    size_bytes: u64,
    stripe_cache: Option<CacheReport>,
}

#[derive(Debug, Serialize)]
struct PartReport {
    number: usize,
    start_bytes: u64,
    size_bytes: u64,
}

#[derive(Debug, Serialize)]
struct CacheReport {
    entries: u64,
    memory_bytes: u64,
}

#[derive(Debug, Serialize)]
struct LvmReport {
    group: String,
    volume: String,
    /// One by array.
    pe_start_bytes: Vec<u64>,
    extent_bytes: u64,
    stripes: u32,
    stripe_bytes: Option<u64>,
    extents: u64,
    size_bytes: u64,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum FileSystemReport {
    Xfs {
        su_bytes: Option<u64>,
        sw: Option<u32>,
        agcount: u64,
        agsize_bytes: u64,
        /// The member that each of the first starts on.
        ag_members: Vec<u32>,
        log_su_bytes: Option<u64>,
        inode_bytes: u32,
        mount_options: Vec<&'static str>,
    },
    Ext4 {
        stride_blocks: Option<u64>,
        stripe_width_blocks: Option<u64>,
        bytes_per_inode: Option<u64>,
        inode_bytes: u32,
        mount_options: Vec<&'static str>,
    },
}

#[derive(Debug, Serialize)]
pub struct LossReport {
    pub per_year: f64,
    pub exposed_hours: f64,
    pub unreadable_in_rebuild: f64,
    pub formula: String,
}

#[derive(Debug, Serialize)]
pub struct CommandsReport {
    pub linux: Vec<String>,
    pub linux_settings: Vec<String>,
    pub wattle: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct CandidateReport {
    pub what: String,
    pub level: &'static str,
    pub layout: Option<String>,
    pub chunk_bytes: Option<u64>,
    /// resync, bitmap or ppl; absent for drives that are no array.
    pub consistency: Option<&'static str>,
    /// none, closed, open or 2 missing: once so many members are missing.
    pub write_hole: &'static str,
    /// It keeps less than the plan does, and is there to be compared with.
    pub keeps_less: bool,
    pub arrays: usize,
    pub size_bytes: u64,
    pub drives_used: usize,
    pub drives_needed: Option<u32>,
    pub limit_iops: f64,
    /// Absent for what its limit ruled out.
    pub measured: Option<TrialReport>,
    /// Measured long enough to be compared; otherwise it was clear that it is slower.
    pub decided: bool,
    /// With as many members missing as were to be survived.
    pub degraded: Option<TrialReport>,
    pub rebuilding: Option<TrialReport>,
    /// From a failure until everything is redundant again.
    pub exposed_hours: Option<f64>,
    pub loss_per_year: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct TrialReport {
    pub iops: f64,
    pub bandwidth: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl From<&Trial> for TrialReport {
    fn from(trial: &Trial) -> Self {
        Self {
            iops: trial.per_second,
            bandwidth: trial.bytes_per_second,
            p50_us: trial.p50.as_secs_f64() * 1e6,
            p99_us: trial.p99.as_secs_f64() * 1e6,
        }
    }
}

/// What everything is called.
pub struct Names {
    pub drives: Vec<String>,
    pub name: String,
}

impl Names {
    pub fn group(&self) -> String {
        format!("vg_{}", self.name)
    }

    pub fn volume(&self) -> &str {
        &self.name
    }

    /// As wattle names it.
    pub fn full_volume(&self) -> String {
        format!("{}/{}", self.group(), self.name)
    }

    pub fn volume_device(&self) -> String {
        format!("/dev/{}/{}", self.group(), self.name)
    }

    pub fn mount_point(&self) -> String {
        format!("/srv/{}", self.name)
    }

    /// The first array has the name; others have a number behind it.
    pub fn array(&self, ix: usize) -> String {
        if ix == 0 { self.name.clone() } else { format!("{}{ix}", self.name) }
    }

    pub fn array_device(&self, ix: usize) -> String {
        format!("/dev/md/{}", self.array(ix))
    }

    /// Members and then spares, as the kernel names partitions, and udev those of its links.
    pub fn members(&self, array: &ArrayPlan) -> Vec<String> {
        self.each_member(array, partition)
    }

    /// The same as wattle names partitions.
    pub fn parts(&self, array: &ArrayPlan) -> Vec<String> {
        self.each_member(array, |name, number| format!("{name}:p{number}"))
    }

    fn each_member(&self, array: &ArrayPlan, part: fn(&str, usize) -> String) -> Vec<String> {
        let of = |drive: &usize| match &array.part {
            None => self.drives[*drive].clone(),
            Some((number, _)) => part(&self.drives[*drive], *number),
        };
        array.drives.iter().chain(&array.spares).map(of).collect()
    }

    /// Every drive that is used.
    pub fn all_members(&self, stack: &PlannedStack) -> Vec<String> {
        let used = |ix: &usize| {
            stack.arrays.iter().any(|array| array.drives.contains(ix) || array.spares.contains(ix))
        };
        (0..self.drives.len()).filter(used).map(|ix| self.drives[ix].clone()).collect()
    }

    /// The devices of arrays.
    pub fn arrays(&self, stack: &PlannedStack) -> Vec<String> {
        let arrays = stack.arrays.iter().enumerate().filter(|(_, array)| array.shape != PlanShape::Plain);
        arrays.map(|(ix, _)| self.array_device(ix)).collect()
    }

    /// What becomes physical volumes, one list by array.
    pub fn physical(&self, stack: &PlannedStack) -> Vec<Vec<String>> {
        let of = |(ix, array): (usize, &ArrayPlan)| match array.shape {
            PlanShape::Plain => self.members(array),
            _ => vec![self.array_device(ix)],
        };
        stack.arrays.iter().enumerate().map(of).collect()
    }
}

/// What the slowest of some drives moves in a second; `disk` says where on a disk.
fn slowest(drives: &[Drive], disk: fn(&Disk) -> u64) -> u64 {
    let of = |drive: &Drive| match &drive.model.media {
        Media::Flash(flash) => flash.write_bytes_per_second,
        Media::Disk(facts) => disk(facts),
    };
    drives.iter().map(of).min().unwrap_or(0)
}

/// What they move over the whole of them: disks are slower towards their end.
pub fn mean_bytes_per_second(drives: &[Drive]) -> f64 {
    slowest(drives, |disk| disk.outer_bytes_per_second.midpoint(disk.inner_bytes_per_second)) as f64
}

impl PlanDocument {
    pub fn new(
        asked: &PlanRequest,
        all: &[Known],
        (names, file_system): (&Names, &FileSystemOptions),
        applied: Option<Applied>,
        units: Units,
    ) -> Self {
        let wish = &asked.wish;
        let drives = asked.names.iter().zip(&asked.models).zip(&asked.drives);
        Self {
            schema_version: SCHEMA_VERSION,
            wanted: WantedReport {
                capacity_bytes: wish.capacity_bytes,
                survive: wish.survive,
                spares: wish.spares,
                workload: wish.workload.name,
                load: asked.workload_line.clone(),
                file_system: match wish.file_system {
                    FileSystemKind::Xfs => "xfs",
                    FileSystemKind::Ext4 => "ext4",
                },
                cores: wish.cores,
                memory_bytes: asked.memory_bytes,
                failures_per_year: asked.reliability.failures_per_year,
                unreadable_per_bit: asked.reliability.unreadable_per_bit,
                replace_hours: asked.reliability.replace_hours,
                rebuild_share: asked.rebuild_share,
            },
            assumed: asked.assumed.clone(),
            drives: drives
                .map(|((name, model), drive)| DriveReport {
                    name: name.clone(),
                    model: model.clone(),
                    size_bytes: drive.size_bytes,
                })
                .collect(),
            plan: plan(asked, &all[0], (names, file_system), units),
            applied,
            candidates: all.iter().map(|known| candidate(wish, known)).collect(),
        }
    }
}

fn plan(
    asked: &PlanRequest,
    best: &Known,
    (names, file_system): (&Names, &FileSystemOptions),
    units: Units,
) -> PlanReport {
    let stack = &best.ranked.candidate.stack;
    let speed = slowest(&asked.drives, |disk| disk.outer_bytes_per_second);
    let caches = stack.caches(speed, asked.memory_bytes);
    let entries: Vec<_> = caches.iter().map(|cache| cache.map(|cache| cache.entries)).collect();
    let arrays = stack.arrays.iter().zip(&caches).enumerate();
    PlanReport {
        arrays: arrays.map(|(ix, (array, cache))| array_report(array, *cache, names.array(ix))).collect(),
        lvm: LvmReport {
            group: names.group(),
            volume: names.volume().to_owned(),
            pe_start_bytes: stack.arrays.iter().map(ArrayPlan::pe_start_bytes).collect(),
            extent_bytes: stack.extent_bytes,
            stripes: stack.lv_stripes,
            stripe_bytes: (stack.lv_stripes > 1).then_some(stack.lv_stripe_bytes),
            extents: stack.volume_extents,
            size_bytes: stack.volume_bytes,
        },
        read_ahead_bytes: stack.read_ahead_bytes,
        unused_bytes: stack.unused_bytes,
        drives_used: stack.drives_used(),
        loss: best.loss.as_ref().map(|loss| LossReport {
            per_year: loss.per_year,
            exposed_hours: loss.exposed_hours,
            unreadable_in_rebuild: loss.unreadable_in_rebuild,
            formula: loss.formula.clone(),
        }),
        reasons: reasons(asked, &best.ranked.candidate, file_system, &caches, (names, units)),
        commands: CommandsReport {
            linux: linux::commands(stack, &asked.wish.sizes_bytes, file_system, names),
            linux_settings: linux::settings(stack, &entries, names),
            wattle: ours::commands(stack, file_system, names),
        },
        uneven: stack.uneven().into_iter().map(|ix| names.array(ix)).collect(),
        file_system: file_system_report(file_system.clone()),
    }
}

fn array_report(array: &ArrayPlan, cache: Option<Cache>, name: String) -> PlannedArrayReport {
    let plain = array.shape == PlanShape::Plain;
    PlannedArrayReport {
        name,
        level: array.shape.level().name(),
        layout: array.shape.layout(),
        chunk_bytes: (!plain && array.chunk_bytes > 0).then_some(array.chunk_bytes),
        stripe_bytes: Some(array.stripe_bytes()).filter(|bytes| *bytes > 0),
        metadata: (!plain).then_some("1.2"),
        consistency: (!plain).then(|| array.cover.name()),
        drives: array.drives.clone(),
        spares: array.spares.clone(),
        partition: array.part.as_ref().map(|(number, range)| PartReport {
            number: *number,
            start_bytes: range.start,
            size_bytes: range.end - range.start,
        }),
        data_offset_bytes: array.place.data_offset_bytes,
        size_bytes: array.array_bytes,
        stripe_cache: cache
            .map(|cache| CacheReport { entries: cache.entries, memory_bytes: cache.memory_bytes }),
    }
}

fn file_system_report(file_system: FileSystemOptions) -> FileSystemReport {
    match file_system {
        FileSystemOptions::Xfs(xfs) => FileSystemReport::Xfs {
            su_bytes: xfs.stripe.map(|(unit, _)| unit),
            sw: xfs.stripe.map(|(_, width)| width),
            agcount: xfs.groups,
            agsize_bytes: xfs.group_bytes,
            ag_members: xfs.group_members,
            log_su_bytes: xfs.log_unit_bytes,
            inode_bytes: xfs.inode_bytes,
            mount_options: xfs.mount,
        },
        FileSystemOptions::Ext4(ext4) => FileSystemReport::Ext4 {
            stride_blocks: ext4.stride.map(|(stride, _)| stride),
            stripe_width_blocks: ext4.stride.map(|(_, width)| width),
            bytes_per_inode: ext4.bytes_per_inode,
            inode_bytes: ext4.inode_bytes,
            mount_options: ext4.mount,
        },
    }
}

fn candidate(wish: &Wish, known: &Known) -> CandidateReport {
    let candidate = &known.ranked.candidate;
    let array = candidate.measured();
    let over = match candidate.groups {
        1 => format!("over {}", array.drives.len()),
        groups => format!("{groups} x {}", array.drives.len()),
    };
    let hurt = |of: fn(&Hurt) -> &Trial| known.hurt.as_ref().map(|hurt| TrialReport::from(of(hurt)));
    CandidateReport {
        what: format!("{} {over}", candidate.shape),
        level: candidate.shape.level().name(),
        layout: candidate.shape.layout(),
        chunk_bytes: (candidate.chunk_bytes > 0).then_some(candidate.chunk_bytes),
        consistency: (array.shape != PlanShape::Plain).then(|| array.cover.name()),
        write_hole: array.write_hole().name(),
        keeps_less: candidate.keeps_less(wish),
        arrays: candidate.stack.arrays.len(),
        size_bytes: candidate.stack.volume_bytes,
        drives_used: candidate.stack.drives_used(),
        drives_needed: candidate.drives_needed(wish),
        limit_iops: known.ranked.limit,
        measured: known.ranked.trial.as_ref().map(TrialReport::from),
        decided: known.ranked.decided,
        degraded: hurt(|hurt| &hurt.degraded),
        rebuilding: hurt(|hurt| &hurt.rebuilding),
        exposed_hours: known.loss.as_ref().map(|loss| loss.exposed_hours).filter(|hours| *hours > 0.0),
        loss_per_year: known.loss.as_ref().map(|loss| loss.per_year),
    }
}

/// What the kernel calls a partition of a drive; udev's links to it have names of their own.
fn partition(drive: &str, number: usize) -> String {
    let between = match drive {
        _ if drive.starts_with("/dev/disk/") => "-part",
        _ if drive.ends_with(|last: char| last.is_ascii_digit()) => "p",
        _ => "",
    };
    format!("{drive}{between}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_have_the_names_that_linux_gives_them() {
        for (drive, named) in [
            ("/dev/sdb", "/dev/sdb1"),
            ("/dev/nvme0n1", "/dev/nvme0n1p1"),
            ("/dev/disk/by-id/ata-X", "/dev/disk/by-id/ata-X-part1"),
            ("/dev/disk/by-id/ata-X9", "/dev/disk/by-id/ata-X9-part1"),
        ] {
            assert_eq!(partition(drive, 1), named);
        }
    }
}
