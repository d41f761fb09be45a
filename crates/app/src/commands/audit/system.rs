//! Facts of a running system: what the kernel says under /sys and /proc, what is configured under
//! /etc. Only files are read, so that what was collected of a system in a directory will do as
//! well.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use wattle_advise::audit::facts::{
    ArrayFacts, DeviceFacts, DeviceOrigin, DriveFacts, ErrorRecovery, KernelArray, MountFacts, Queue, Sync,
    SystemFacts,
};
use wattle_advise::audit::{AuditFacts, Unchecked};
use wattle_control::{Code, Problem};

use super::kernel;

/// Block devices that are no drives, or that the facts have as something else.
const NO_DRIVES: [&str; 8] = ["loop", "ram", "zram", "md", "dm-", "sr", "fd", "ublkb"];

/// File systems whose mount options are looked at.
const FILE_SYSTEMS: [&str; 5] = ["xfs", "ext2", "ext3", "ext4", "btrfs"];

/// Where checks are scheduled, by packagers of mdadm.
const SCHEDULES: [&str; 5] = [
    "etc/cron.d/mdadm",
    "etc/cron.d/raid-check",
    "etc/systemd/system/mdmonitor.service.wants/mdcheck_start.timer",
    "etc/systemd/system/timers.target.wants/mdcheck_start.timer",
    "etc/systemd/system/timers.target.wants/raid-check.timer",
];

/// A system, by its root.
pub struct SystemRoot {
    root: PathBuf,
    /// Its files, if they are not below the root but here.
    collected: Option<BTreeMap<String, String>>,
}

impl SystemRoot {
    /// # Errors
    /// The kernel's view of block devices is not there.
    pub fn at(root: &Path) -> Result<Self, Problem> {
        let blocks = root.join("sys/block");
        fs::read_dir(&blocks).map_err(|error| {
            Problem::new(
                Code::NotFound,
                format!("{}: {error}", blocks.display()),
                "without it nothing is known of the system: neither its drives nor its arrays",
                "name members (wattle audit MEMBER...), or a directory with sys/block below it: --sysroot DIR",
            )
        })?;
        Ok(Self { root: root.to_owned(), collected: None })
    }

    /// One that consists of these files.
    pub fn of(files: BTreeMap<String, String>) -> Self {
        Self { root: PathBuf::new(), collected: Some(files) }
    }

    fn read(&self, path: &str) -> Option<String> {
        match &self.collected {
            Some(files) => files.get(path).cloned(),
            None => fs::read_to_string(self.root.join(path)).ok(),
        }
    }

    /// What a file says, without the line's end.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory, in their order.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        if let Some(files) = &self.collected {
            let below = files.keys().filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
            let names: BTreeSet<_> = below.filter_map(|rest| rest.split('/').next()).collect();
            return names.into_iter().map(str::to_owned).collect();
        }
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    pub(super) fn has(&self, path: &str) -> bool {
        match &self.collected {
            Some(files) => files.contains_key(path) || !self.names(path).is_empty(),
            None => self.root.join(path).exists(),
        }
    }

    /// The drives, as members.
    pub fn members(&self) -> Vec<String> {
        let path = |name: String| self.root.join("dev").join(name).to_string_lossy().into_owned();
        self.drives().into_iter().map(path).collect()
    }

    /// The drives: several paths to one are that one.
    fn drives(&self) -> Vec<String> {
        let is_multipath = |name: &String| {
            self.text(&format!("sys/block/{name}/dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"))
        };
        let is_path =
            |name: &String| self.names(&format!("sys/block/{name}/holders")).iter().any(is_multipath);
        let names = self.names("sys/block").into_iter().filter(|name| {
            let other = NO_DRIVES.iter().any(|prefix| name.starts_with(prefix)) && !is_multipath(name);
            !other && !is_path(name) && self.number(&format!("sys/block/{name}/size")) != Some(0)
        });
        names.collect()
    }

    /// Adds what the system says of itself, and of what was found on its drives.
    pub fn describe(&self, facts: &mut AuditFacts) {
        self.name_devices(facts);
        self.drives().iter().for_each(|name| kernel::drive(self, facts, name));
        for (node, members) in self.arrays() {
            let ix = kernel::find(facts, &members).or_else(|| kernel::make(self, facts, &node, &members));
            match ix {
                Some(ix) => self.run(facts, ix, &node),
                None => facts.unread.push(Unchecked {
                    what: format!("the array {node}"),
                    why: "its level or its members are not among what /sys says".to_owned(),
                }),
            }
        }
        self.logical_volumes(facts);
        for ix in 0..facts.devices.len() {
            if facts.devices[ix].origin == DeviceOrigin::Drive {
                let name = facts.devices[ix].name.clone();
                facts.devices[ix].queue = self.queue(&name);
                facts.devices[ix].drive = self.has(&format!("sys/block/{name}")).then(|| self.drive(&name));
            }
        }
        facts.system = Some(SystemFacts {
            memory: self.memory(),
            processors: self.processors(),
            mounts: [self.mounts("proc/mounts"), self.mounts("etc/fstab")].concat(),
            alerts: self.alerts(),
            parity_discard: self
                .text("sys/module/raid456/parameters/devices_handle_discard_safely")
                .map(|text| text == "Y"),
        });
    }

    /// By the kernel's names instead of paths.
    fn name_devices(&self, facts: &mut AuditFacts) {
        for ix in 0..facts.devices.len() {
            let device = &facts.devices[ix];
            let name = match device.origin {
                DeviceOrigin::Drive => device.name.rsplit('/').next().map(str::to_owned),
                DeviceOrigin::Partition { of, .. } => device.name.rsplit_once(":p").map(|(_, number)| {
                    let drive = &facts.devices[of].name;
                    let last = drive.chars().last().is_some_and(|last| last.is_ascii_digit());
                    format!("{drive}{}{number}", if last { "p" } else { "" })
                }),
                DeviceOrigin::Array(_) | DeviceOrigin::Logical { .. } => None,
            };
            if let Some(name) = name {
                facts.devices[ix].name = name;
            }
        }
    }

    /// The arrays that run, and the kernel's names of their members.
    fn arrays(&self) -> Vec<(String, BTreeSet<String>)> {
        let nodes = self
            .names("sys/block")
            .into_iter()
            .filter(|name| self.has(&format!("sys/block/{name}/md/level")));
        let members = |node: &String| {
            let names = self.names(&format!("sys/block/{node}/md"));
            names.iter().filter_map(|name| name.strip_prefix("dev-")).map(str::to_owned).collect()
        };
        nodes.map(|node| (node.clone(), members(&node))).collect()
    }

    /// What the kernel that runs an array says of it now counts for more than superblocks that it
    /// has yet to write.
    fn run(&self, facts: &mut AuditFacts, ix: usize, node: &str) {
        let md = |file: &str| self.text(&format!("sys/block/{node}/md/{file}"));
        let number = |file: &str| self.number(&format!("sys/block/{node}/md/{file}"));
        let array: &mut ArrayFacts = &mut facts.arrays[ix];
        let (action, last_action) = (md("sync_action"), md("last_sync_action"));
        if let Some(missing) = number("degraded") {
            array.missing = u32::try_from(missing).unwrap_or(u32::MAX);
        }
        let resyncing = action.as_deref() == Some("resync") || number("resync_start").is_some();
        array.sync = Some(if resyncing { Sync::Unsynced } else { Sync::Clean });
        array.bitmap = md("bitmap/location").map(|place| place != "none").or(array.bitmap);
        array.log = match md("consistency_policy").as_deref() {
            Some("ppl" | "journal") => Some(true),
            Some("resync" | "bitmap") => Some(false),
            _ => array.log,
        };
        if array.scrubbed.is_none() {
            let scheduled = SCHEDULES.iter().any(|path| self.has(path));
            array.scrubbed = match last_action.as_deref() {
                Some("check" | "repair") => Some(true),
                // It may have been before the last start.
                Some(_) if !scheduled => Some(false),
                _ => None,
            };
        }
        // A repair and a resync are counted too, and write what they find.
        let of_check =
            last_action.as_deref() == Some("check") && matches!(action.as_deref(), Some("idle" | "frozen"));
        array.running = Some(KernelArray {
            node: node.to_owned(),
            stripe_cache: number("stripe_cache_size"),
            stripe_cache_active: number("stripe_cache_active"),
            threads: number("group_thread_cnt"),
            action,
            mismatches: number("mismatch_cnt").filter(|_| of_check),
        });
        let content = facts.devices.iter_mut().find(|device| device.origin == DeviceOrigin::Array(ix));
        match content {
            Some(content) => content.queue = self.queue(node),
            None => {
                let size = self.number(&format!("sys/block/{node}/size")).unwrap_or(0).saturating_mul(512);
                let name = facts.arrays[ix].name.clone();
                let queue = self.queue(node);
                let origin = DeviceOrigin::Array(ix);
                facts.devices.push(DeviceFacts { name, size, origin, file_system: None, queue, drive: None });
            }
        }
    }

    fn logical_volumes(&self, facts: &mut AuditFacts) {
        let nodes = self.names("sys/block").into_iter();
        let nodes: Vec<_> =
            nodes.filter_map(|node| Some((self.text(&format!("sys/block/{node}/dm/name"))?, node))).collect();
        let mut found = Vec::new();
        for ix in 0..facts.devices.len() {
            let DeviceOrigin::Logical { group, volume } = facts.devices[ix].origin else { continue };
            let group = &facts.groups[group];
            // device-mapper's names have a hyphen between the two, and two for one.
            let name =
                [&group.name, &group.volumes[volume].name].map(|name| name.replace('-', "--")).join("-");
            found.push(name.clone());
            let node = nodes.iter().find(|(known, _)| *known == name);
            facts.devices[ix].queue = node.and_then(|(_, node)| self.queue(node));
        }
        let is_lvms = |node: &String| {
            self.text(&format!("sys/block/{node}/dm/uuid")).is_some_and(|uuid| uuid.starts_with("LVM-"))
        };
        let unknown = nodes.iter().filter(|(name, node)| is_lvms(node) && !found.contains(name));
        let unknown: Vec<_> = unknown.map(|(name, _)| name.as_str()).collect();
        if !unknown.is_empty() {
            let what = format!("logical volumes: {}", unknown.join(", "));
            let why =
                "the metadata of their group was not read, or they are parts of other volumes".to_owned();
            facts.unread.push(Unchecked { what, why });
        }
    }

    fn queue(&self, name: &str) -> Option<Queue> {
        let dir = format!("sys/block/{name}/queue");
        let number = |file: &str| self.number(&format!("{dir}/{file}"));
        self.has(&dir).then(|| Queue {
            physical_block: number("physical_block_size"),
            rotational: number("rotational").map(|rotational| rotational != 0),
            read_ahead: number("read_ahead_kb").map(|kib| kib.saturating_mul(1024)),
            discard: number("discard_max_bytes").map(|most| most > 0),
            zoned: self.text(&format!("{dir}/zoned")),
        })
    }

    fn drive(&self, name: &str) -> DriveFacts {
        let dir = format!("sys/block/{name}");
        let work = self.text(&format!("{dir}/stat")).and_then(|stat| {
            let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
            // Reads, and the milliseconds that they took; writes, the same.
            let [reads, read_ms, writes, write_ms] = [0, 3, 4, 7].map(|at| fields.get(at).copied());
            Some((reads?.saturating_add(writes?), read_ms?.saturating_add(write_ms?)))
        });
        DriveFacts {
            model: self.text(&format!("{dir}/device/model")),
            timeout_seconds: self.number(&format!("{dir}/device/timeout")),
            recovery: self.recovery(name),
            work,
        }
    }

    /// From what `smartctl -j -l scterc` said.
    fn recovery(&self, name: &str) -> Option<ErrorRecovery> {
        let report: Value = serde_json::from_str(&self.text(&format!("smart/{name}.json"))?).ok()?;
        let supported = &report["ata_sct_capabilities"]["error_recovery_control_supported"];
        let read = &report["ata_sct_erc"]["read"];
        match (read["enabled"].as_bool(), read["deciseconds"].as_u64()) {
            (Some(true), Some(tenths)) => Some(ErrorRecovery::Limited(tenths)),
            (Some(false), _) => Some(ErrorRecovery::Off),
            _ if supported.as_bool() == Some(false) => Some(ErrorRecovery::Unsupported),
            _ => None,
        }
    }

    fn memory(&self) -> Option<u64> {
        let text = self.text("proc/meminfo")?;
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    }

    fn processors(&self) -> Option<u64> {
        let text = self.text("proc/cpuinfo")?;
        let count = text.lines().filter(|line| line.starts_with("processor")).count() as u64;
        (count > 0).then_some(count)
    }

    fn mounts(&self, path: &str) -> Vec<MountFacts> {
        let text = self.text(path).unwrap_or_default();
        let mount = |line: &str| {
            let mut words = line.split_whitespace();
            let (source, at, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
            let known = FILE_SYSTEMS.contains(&kind) && !source.starts_with('#');
            known.then(|| MountFacts {
                stated_in: format!("/{path}"),
                source: unescaped(source),
                at: unescaped(at),
                kind: kind.to_owned(),
                options: options.split(',').map(str::to_owned).collect(),
            })
        };
        text.lines().filter_map(mount).collect()
    }

    fn alerts(&self) -> Option<bool> {
        let files = ["etc/mdadm/mdadm.conf", "etc/mdadm.conf"].into_iter().filter(|path| self.has(path));
        let mut texts = Vec::new();
        for file in files {
            // One that is there and cannot be read may name any address.
            texts.push(self.read(file)?);
        }
        let names_somebody = |line: &str| {
            let mut words = line.split_whitespace();
            let keyword = words.next().unwrap_or_default().to_ascii_uppercase();
            matches!(keyword.as_str(), "MAILADDR" | "PROGRAM") && words.next().is_some()
        };
        self.has("etc").then(|| texts.iter().flat_map(|text| text.lines()).any(names_somebody))
    }
}

/// `\040` is a space, and so on.
fn unescaped(word: &str) -> String {
    let mut text = word.to_owned();
    for (escape, plain) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(escape, plain);
    }
    text
}
