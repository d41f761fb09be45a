//! LVM2 beside wattle: random sequences of changes, each made by wattle on files and by LVM2 on
//! copies of them. Both refuse or both do it, with the same extents in the same segments; then one
//! side goes on with what the other wrote. In between, wattle is killed half-way.
//!
//! LVM2 sees loop devices over its copies and activates nothing, so it needs root and no
//! device-mapper. `cargo test --test cli lvm_beside -- --ignored` runs many more sequences,
//! or those of `WATTLE_LVM_SEEDS=FROM..TO`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use wattle_format::lvm::area::{HEADER_BYTES, Header};
use wattle_format::lvm::label::SCAN_BYTES;
use wattle_format::lvm::{Label, LvSegment, SegmentKind, Vg};
use wattle_rt::Rng;

use crate::harness::{Room, Said, require, run, wattle};
use crate::lvm::Loop;

/// Where data starts: all that LVM2 and wattle write of a group is before that.
const HEAD_BYTES: usize = 1 << 20;
const STEPS: u64 = 8;
/// Parts of a group, of what is free, of a volume.
const PERCENT: [u64; 7] = [1, 7, 25, 50, 90, 100, 120];

struct Beside {
    room: Room,
    /// wattle's.
    files: Vec<String>,
    /// LVM2's, by the same index.
    copies: Vec<String>,
    loops: Vec<Loop>,
    rng: Rng,
    /// A device that was given another size, and its size before.
    resized: Option<(usize, u64)>,
    /// What a failure is told with.
    log: String,
    names: u32,
}

/// A change, in the words of both.
struct Change {
    wattle: Vec<String>,
    /// Devices are indexes of files after `@`.
    lvm: Vec<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What LVM2 said, and whether it was done.
struct Answer {
    is_done: bool,
    stdout: String,
    said: String,
}

impl Beside {
    /// A group on three devices of sizes that are no multiple of anything, and a device beside it;
    /// `None` where LVM2 cannot run.
    fn new(seed: u64) -> Option<Self> {
        let room = Room::new();
        let mut rng = Rng::new(seed);
        let (mut files, mut copies, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..4 {
            let size_bytes = (6 << 20) + rng.below(40 << 20) / 4096 * 4096;
            files.push(room.device(&format!("file{n}"), size_bytes));
            copies.push(room.device(&format!("copy{n}"), size_bytes));
            loops.push(Loop::new(&copies[n])?);
        }
        let filter: Vec<_> = loops.iter().map(|device| format!("\"a|^{}$|\"", device.0)).collect();
        // LVM2 remembers which devices had labels (hints) and would pass by what wattle adds.
        let config = format!(
            "devices {{ filter=[{},\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0 hints=\"none\" }}\n\
             global {{ locking_dir=\"{}\" use_lvmpolld=0 }}\nactivation {{ udev_sync=0 udev_rules=0 }}\n\
             backup {{ backup=0 archive=0 }}\n",
            filter.join(","),
            room.name("lock")
        );
        fs::create_dir(room.path("conf")).unwrap();
        fs::write(room.path("conf/lvm.conf"), config).unwrap();
        let mut beside =
            Self { room, files, copies, loops, rng, resized: None, log: format!("seed {seed}\n"), names: 0 };
        let extent = ["1m", "512k", "64k"][beside.rng.below(3) as usize];
        let policy = if beside.rng.below(6) == 0 { " --alloc cling" } else { "" };
        let made = beside.lvm(&words(&format!("vgcreate -s {extent}{policy} vg @0 @1 @2")));
        assert!(made.is_done, "{}", made.said);
        beside.copy_heads(Side::Wattle);
        Some(beside)
    }

    fn lvm(&self, command: &[String]) -> Answer {
        let device = |word: &String| match word.strip_prefix('@') {
            Some(index) => self.loops[index.parse::<usize>().unwrap()].0.clone(),
            None => word.clone(),
        };
        let mut lvm = Command::new("lvm");
        lvm.env("LVM_SYSTEM_DIR", self.room.path("conf")).env("LVM_SUPPRESS_FD_WARNINGS", "1");
        lvm.args(command.iter().map(device)).args(["--driverloaded", "n"]).stdin(Stdio::null());
        match command[0].as_str() {
            "lvcreate" => {
                lvm.args(["-an", "-Zn", "-Wn", "-y"]);
            }
            "lvreduce" | "lvremove" => {
                lvm.arg("-y");
            }
            _ => {}
        }
        let output = lvm.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
        Answer { is_done: output.status.success(), stdout, said }
    }

    fn wattle(&self, command: &[String]) -> Said {
        let backups = self.room.name("backups");
        let options = ["--backup-dir", &backups, "--no-undo", "--json"].map(str::to_owned);
        run(command.iter().cloned().chain(options).chain(self.files.clone()))
    }

    /// What one side wrote becomes the other's.
    fn copy_heads(&self, to: Side) {
        let (from, to) = match to {
            Side::Wattle => (&self.copies, &self.files),
            Side::Lvm => (&self.files, &self.copies),
        };
        for (from, to) in from.iter().zip(to) {
            let mut head = vec![0; HEAD_BYTES];
            File::open(from).unwrap().read_exact_at(&mut head, 0).unwrap();
            File::options().write(true).open(to).unwrap().write_all_at(&head, 0).unwrap();
        }
        // Loop devices keep pages of their own, of what their files held before.
        let devices = self.loops.iter().map(|device| &device.0);
        assert!(Command::new("blockdev").arg("--flushbufs").args(devices).status().unwrap().success());
    }

    /// The group on files, and which file each of its physical volumes is on.
    fn group(files: &[String]) -> (Vg, Vec<Option<usize>>) {
        let (mut newest, mut labels): (Option<Vg>, Vec<Option<Label>>) = (None, Vec::new());
        for file in files {
            let mut head = vec![0; HEAD_BYTES];
            File::open(file).unwrap().read_exact_at(&mut head, 0).unwrap();
            let label = Label::find(&head[..SCAN_BYTES]).unwrap();
            for &area in label.iter().flat_map(|label| &label.metadata_areas) {
                let at = |offset: u64, len: u64| &head[offset as usize..(offset + len) as usize];
                let Ok(header) = Header::decode(at(area.offset_bytes, HEADER_BYTES as u64), area) else {
                    continue;
                };
                let Some(location) = header.committed() else { continue };
                let ranges = header.ranges(&location).unwrap();
                let pieces: Vec<_> =
                    ranges.iter().map(|range| at(range.offset_bytes, range.size_bytes)).collect();
                let vg = Vg::parse(&header.text(&location, &pieces).unwrap()).unwrap();
                if newest.as_ref().is_none_or(|known| known.seqno < vg.seqno) {
                    newest = Some(vg);
                }
            }
            labels.push(label);
        }
        let vg = newest.unwrap();
        let is_on = |id| labels.iter().position(|label| label.as_ref().is_some_and(|label| label.id == id));
        let places = vg.pvs.iter().map(|pv| is_on(pv.id)).collect();
        (vg, places)
    }

    /// All of a group that is the operator's, without ids and times.
    fn shape(files: &[String]) -> String {
        let (vg, places) = Self::group(files);
        assert_eq!(vg.problems(), []);
        let sorted = |words: &[String]| {
            let mut words = words.to_vec();
            words.sort();
            words.join(",")
        };
        let mut text = format!(
            "{} {} {:?} {}\n",
            vg.name,
            sorted(&vg.status),
            vg.allocation_policy().unwrap_or("normal"),
            vg.extent_sectors
        );
        let mut rows = Vec::new();
        for (pv, file) in vg.pvs.iter().zip(&places) {
            rows.push(format!("@{file:?} {} {} {}", pv.pe_start, pv.pe_count, sorted(&pv.status)));
        }
        let segment = |segment: &LvSegment| {
            let SegmentKind::Striped { stripes, stripe_sectors } = &segment.kind else {
                return format!("{:?}", segment.kind);
            };
            let file = |name: &str| vg.pvs.iter().position(|pv| pv.name == name).and_then(|at| places[at]);
            let on = stripes.iter().map(|stripe| format!("@{:?}:{}", file(&stripe.name), stripe.extent));
            let on: Vec<_> = on.collect();
            let size = if on.len() > 1 { *stripe_sectors } else { 0 };
            format!("{}+{} {size} {}", segment.start_extent, segment.extents, on.join(" "))
        };
        for lv in &vg.lvs {
            let segments: Vec<_> = lv.segments.iter().map(segment).collect();
            let policy = lv.allocation_policy().unwrap_or("inherit");
            rows.push(format!("{} {} {policy}: {}", lv.name, sorted(&lv.status), segments.join("; ")));
        }
        rows.sort();
        for row in rows {
            writeln!(text, "  {row}").unwrap();
        }
        text
    }

    /// One of these.
    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.rng.below(of.len() as u64) as usize]
    }

    /// Some of the group's devices in any order, now and then.
    fn devices(&mut self, places: &[Option<usize>]) -> Vec<usize> {
        let mut left: Vec<_> = places.iter().flatten().copied().collect();
        let mut chosen = Vec::new();
        if self.rng.below(4) == 0 {
            for _ in 0..=self.rng.below(left.len() as u64) {
                chosen.push(left.swap_remove(self.rng.below(left.len() as u64) as usize));
            }
        }
        chosen
    }

    fn percent(&mut self, of: &[&str]) -> String {
        format!("{}%{}", self.one_of(&PERCENT), self.one_of(of))
    }

    /// A change of a volume's size.
    fn amount(&mut self, sign: &str, most: u64) -> String {
        let some = 1 + self.rng.below(most.clamp(1, 12));
        let much = 1 + self.rng.below(most.max(1) + 2);
        match self.rng.below(6) {
            0 | 1 => format!("{sign}{some}"),
            2 => format!("{sign}{much}"),
            3 if sign.is_empty() => self.percent(&["FREE", "VG", "PVS"]),
            _ => format!("{sign}{}", self.percent(&["FREE", "VG", "PVS"])),
        }
    }

    fn on(&self, devices: &[usize]) -> (Vec<String>, Vec<String>) {
        let on = devices.iter().flat_map(|&device| ["--on".to_owned(), self.files[device].clone()]);
        (on.collect(), devices.iter().map(|device| format!("@{device}")).collect())
    }

    fn change(&mut self) -> Change {
        let (vg, places) = Self::group(&self.files);
        let name = &vg.name;
        let free: u64 =
            vg.pvs.iter().flat_map(|pv| vg.free_extents(&pv.name)).map(|run| run.end - run.start).sum();
        let volumes: Vec<_> = vg.lvs.iter().map(|lv| lv.name.clone()).collect();
        let exported = vg.status.iter().any(|word| word == "EXPORTED");
        let (wattle, lvm);
        let (mut on, mut devices) = (Vec::new(), Vec::new());
        let kind = self.rng.below(if volumes.is_empty() { 30 } else { 100 });
        match kind {
            _ if exported && self.rng.below(3) > 0 => {
                (wattle, lvm) = (format!("vg import {name}"), format!("vgimport {name}"));
            }
            0..=17 => {
                self.names += 1;
                let volume = format!("v{}", self.names);
                let amount = self.amount("", free);
                let stripes = *self.one_of(&[1, 1, 1, 1, 2, 2, 3]);
                let striped = if stripes > 1 { format!(" -i {stripes} -I 64k") } else { String::new() };
                wattle = format!("lv create {name}/{volume} -l {amount}{striped}");
                lvm = format!("lvcreate -n {volume} -l {amount}{striped} {name}");
                let chosen = self.devices(&places);
                (on, devices) = self.on(&chosen);
            }
            18..=19 => (wattle, lvm) = (format!("vg export {name}"), format!("vgexport {name}")),
            20..=21 => {
                let to = if name == "vg" { "tank" } else { "vg" };
                (wattle, lvm) = (format!("vg rename {name} {to}"), format!("vgrename {name} {to}"));
            }
            22..=24 => {
                // Larger, smaller, or as it is.
                let at = *self.one_of(&places.iter().flatten().copied().collect::<Vec<_>>());
                let was = fs::metadata(&self.files[at]).unwrap().len();
                let size_bytes = match self.rng.below(3) {
                    0 => was + self.rng.below(16 << 20) / 4096 * 4096,
                    1 => (was - self.rng.below(was / 2) / 4096 * 4096).max(2 << 20),
                    _ => was,
                };
                self.resized = Some((at, was));
                self.resize(at, size_bytes);
                writeln!(self.log, "device {at} of {was} is one of {size_bytes}").unwrap();
                (on, devices) = self.on(&[at]);
                (wattle, lvm) = ("pv resize".to_owned(), "pvresize".to_owned());
            }
            25..=29 => {
                let outside = (0..self.files.len()).find(|at| !places.contains(&Some(*at)));
                let joins = outside.filter(|_| self.rng.below(4) > 0);
                let at = joins
                    .unwrap_or_else(|| *self.one_of(&places.iter().flatten().copied().collect::<Vec<_>>()));
                (on, devices) = self.on(&[at]);
                (wattle, lvm) = match joins {
                    Some(_) => (format!("vg extend {name}"), format!("vgextend {name}")),
                    None => (format!("vg reduce {name}"), format!("vgreduce {name}")),
                };
            }
            30..=64 => {
                let volume = self.one_of(&volumes).clone();
                let sign = *self.one_of(&["", "+", "+", "+"]);
                let amount = match self.rng.below(8) {
                    0 => format!("{sign}{}", self.percent(&["LV"])),
                    _ => self.amount(sign, free),
                };
                wattle = format!("lv extend {name}/{volume} -l {amount}");
                lvm = format!("lvextend -l {amount} {name}/{volume}");
                let chosen = self.devices(&places);
                (on, devices) = self.on(&chosen);
            }
            65..=79 => {
                let volume = self.one_of(&volumes).clone();
                let sign = *self.one_of(&["", "-"]);
                let extents = vg.lv(&volume).unwrap().extents();
                let amount = match self.rng.below(3) {
                    0 => format!("{sign}{}", self.percent(&["LV", "VG", "PVS"])),
                    _ => format!("{sign}{}", self.rng.below(extents + 2)),
                };
                wattle = format!("lv reduce {name}/{volume} -l {amount}");
                lvm = format!("lvreduce -l {amount} {name}/{volume}");
            }
            80..=91 => {
                let volume = self.one_of(&volumes).clone();
                (wattle, lvm) = (format!("lv remove {name}/{volume}"), format!("lvremove {name}/{volume}"));
            }
            _ => {
                let volume = self.one_of(&volumes).clone();
                let to =
                    if self.rng.below(3) == 0 { self.one_of(&volumes).clone() } else { format!("{volume}x") };
                (wattle, lvm) = (
                    format!("lv rename {name}/{volume} {name}/{to}"),
                    format!("lvrename {name} {volume} {to}"),
                );
            }
        }
        Change { wattle: [words(&wattle), on].concat(), lvm: [words(&lvm), devices].concat() }
    }

    fn resize(&self, at: usize, size_bytes: u64) {
        for file in [&self.files[at], &self.copies[at]] {
            File::options().write(true).open(file).unwrap().set_len(size_bytes).unwrap();
        }
        assert!(Command::new("losetup").args(["-c", &self.loops[at].0]).status().unwrap().success());
    }

    /// A device that could not be used with its new size has its old one again: on one that is too
    /// small LVM2 allocates, and wattle does not.
    fn size_back(&mut self) {
        if let Some((at, size_bytes)) = self.resized.take() {
            self.resize(at, size_bytes);
        }
    }

    /// The commands that wattle names, on LVM2's devices.
    fn named(&self, report: &Value) -> Vec<Vec<String>> {
        let places: Vec<_> = self.files.iter().map(|file| fs::canonicalize(file).unwrap()).collect();
        let place = |word: &str| {
            let at = places.iter().position(|place| place.to_str() == Some(word));
            at.map_or(word.to_owned(), |at| format!("@{at}"))
        };
        let commands = report["lvm_commands"].as_array().unwrap().iter();
        commands.map(|command| command.as_str().unwrap().split(' ').map(place).collect()).collect()
    }

    /// A change by both, and one side goes on with what the other wrote.
    fn step(&mut self) {
        let change = self.change();
        let before = Self::shape(&self.files);
        writeln!(self.log, "wattle {}\nlvm {}", change.wattle.join(" "), change.lvm.join(" ")).unwrap();
        let ours = self.wattle(&change.wattle);
        let as_named = ours.status == 0 && self.rng.coin();
        let commands = if as_named { self.named(&ours.json()) } else { vec![change.lvm] };
        let mut theirs = Answer { is_done: true, stdout: String::new(), said: String::new() };
        for command in &commands {
            let next = self.lvm(command);
            theirs.is_done &= next.is_done;
            theirs.said += &format!("{}: {}", command.join(" "), next.said);
        }
        // It says that it did nothing, and calls that done.
        let nothing = before == Self::shape(&self.copies);
        let is_refused = !theirs.is_done || nothing && change.wattle[0] == "lv";
        let log = &self.log;
        assert_eq!(
            ours.status != 0,
            is_refused,
            "{log}{before}wattle: {}\nLVM2: {}",
            ours.stderr,
            theirs.said
        );
        assert!(!is_refused || nothing, "{log}{}", theirs.said);
        let (mine, copied) = (Self::shape(&self.files), Self::shape(&self.copies));
        if is_refused {
            self.size_back();
        }
        self.resized = None;
        let log = &self.log;
        assert!(mine == copied, "{log}before:\n{before}wattle:\n{mine}LVM2:\n{copied}{}", theirs.said);
        let to = if self.rng.coin() { Side::Lvm } else { Side::Wattle };
        self.copy_heads(to);
    }

    /// What only LVM2 changes.
    fn set_policy(&mut self) {
        let (vg, _) = Self::group(&self.files);
        let policy = *self.one_of(&["contiguous", "cling", "normal", "anywhere", "inherit"]);
        let volume = vg.lvs.get(self.rng.below(4) as usize).map(|lv| format!("{}/{}", vg.name, lv.name));
        let command = match volume {
            Some(volume) => format!("lvchange --alloc {policy} {volume}"),
            None => format!("vgchange --alloc {} {}", policy.replace("inherit", "normal"), vg.name),
        };
        writeln!(self.log, "lvm {command}").unwrap();
        self.lvm(&words(&command));
        self.copy_heads(Side::Wattle);
    }

    /// What only wattle does without device-mapper.
    fn move_away(&mut self) {
        let (vg, places) = Self::group(&self.files);
        let from = *self.one_of(&places.iter().flatten().copied().collect::<Vec<_>>());
        let command = words(&format!("lv move {} --from {}", vg.name, self.files[from]));
        writeln!(self.log, "wattle {}", command.join(" ")).unwrap();
        if self.wattle(&command).status == 0 {
            let (vg, places) = Self::group(&self.files);
            let empty = vg.pvs.iter().zip(&places).find(|(_, place)| **place == Some(from)).unwrap().0;
            let free: u64 = vg.free_extents(&empty.name).iter().map(|run| run.end - run.start).sum();
            assert_eq!(free, empty.pe_count, "{}", self.log);
        }
        self.copy_heads(Side::Lvm);
    }

    /// A change that is killed somewhere: the group is as it was or as it was to be, for both, and
    /// the same command completes what it left.
    fn kill(&mut self) {
        let change = self.change();
        let (before, old) = (Self::shape(&self.files), Self::group(&self.files).0);
        let after = Duration::from_micros(self.rng.below(60_000));
        writeln!(self.log, "killed after {after:?}: wattle {}", change.wattle.join(" ")).unwrap();
        let mut command = wattle();
        command.args(&change.wattle).args(["--no-undo", "--backup-dir", &self.room.name("backups")]);
        command.args(&self.files).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
        let new = Self::group(&self.files).0;
        if new.seqno == old.seqno {
            assert_eq!(Self::shape(&self.files), before, "{}", self.log);
        } else {
            assert_eq!(new.seqno, old.seqno + 1, "{}", self.log);
        }
        self.copy_heads(Side::Lvm);
        assert_eq!(Self::shape(&self.copies), Self::shape(&self.files));
        let checked = self.lvm(&words(&format!("vgs {}", new.name)));
        assert!(checked.is_done, "{}{}", self.log, checked.said);
        if self.resized.is_some() && self.wattle(&change.wattle).status != 0 {
            self.size_back();
        }
        if self.resized.take().is_some() {
            self.copy_heads(Side::Lvm);
        }
        if new.name != old.name {
            // LVM2 takes what still has the old name for another group, and never writes it again.
            assert_eq!(
                self.wattle(&words(&format!("vg rename {} whole", new.name))).status,
                0,
                "{}",
                self.log
            );
            self.copy_heads(Side::Lvm);
        }
        if change.wattle[..2] == ["vg", "extend"] {
            let again = self.wattle(&change.wattle);
            let joined = Self::group(&self.files).0.pvs.len();
            let all = format!("{}{}", self.log, again.stderr);
            assert!(again.status == 0 || again.stderr.contains("in it already"), "{all}");
            assert_eq!(joined, old.pvs.len() + 1, "{all}");
            let dump = self.wattle_list("pv", "pv_name,vg_name");
            assert!(dump.iter().filter(|line| line.contains(&new.name)).count() == joined, "{all}{dump:?}");
            self.copy_heads(Side::Lvm);
        }
    }

    fn wattle_list(&self, kind: &str, fields: &str) -> Vec<String> {
        let options = ["list", "--noheadings", "--units", "b", "--nosuffix", "-o", fields];
        let said = run([kind].into_iter().chain(options).map(str::to_owned).chain(self.files.clone())).ok();
        self.lines(said.text(), &self.files)
    }

    fn lvm_list(&self, kind: &str, fields: &str) -> Vec<String> {
        let command = words(&format!("{kind}s --noheadings --units b --nosuffix -o {fields}"));
        let said = self.lvm(&command);
        assert!(said.is_done, "{}{}", self.log, said.said);
        let names: Vec<_> = self.loops.iter().map(|device| device.0.clone()).collect();
        self.lines(&said.stdout, &names)
    }

    fn lines(&self, text: &str, names: &[String]) -> Vec<String> {
        let word = |word: &str| {
            let at = names.iter().position(|name| name == word);
            at.map_or(word.to_owned(), |at| format!("@{at}"))
        };
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" "))
            .filter(|line| !line.is_empty())
            .collect();
        lines.sort();
        lines
    }

    /// Both read the same group, and tell the same of it.
    fn compare_lists(&self) {
        let (vg, _) = Self::group(&self.files);
        let exported = vg.status.iter().any(|word| word == "EXPORTED");
        let kinds = [
            ("vg", "vg_name,vg_attr,vg_extent_size,vg_extent_count,vg_free_count,pv_count,lv_count,vg_seqno"),
            ("pv", "pv_name,vg_name,pv_attr,pv_size,pv_free,dev_size,pe_start,pv_pe_count,pv_pe_alloc_count"),
            ("lv", "lv_name,lv_attr,lv_size,seg_count"),
        ];
        for (kind, fields) in kinds.into_iter().filter(|(kind, _)| *kind != "lv" || !exported) {
            // Whether a volume is active LVM2 cannot tell without device-mapper.
            let inactive = |line: String| line.replace("-XX--", "-----");
            let theirs: Vec<_> = self.lvm_list(kind, fields).into_iter().map(inactive).collect();
            assert_eq!(self.wattle_list(kind, fields), theirs, "{}{kind}", self.log);
        }
        let checked = self.lvm(&words(&format!("vgck {}", vg.name)));
        assert!(checked.is_done || exported, "{}{}", self.log, checked.said);
    }
}

/// The tools that the files belong to.
#[derive(Clone, Copy)]
enum Side {
    Wattle,
    Lvm,
}

/// A sequence; false where LVM2 cannot run.
fn sequence(seed: u64) -> bool {
    let Some(mut beside) = Beside::new(seed) else { return false };
    for _ in 0..STEPS {
        match beside.rng.below(12) {
            0 => beside.set_policy(),
            1 => beside.kill(),
            2 if beside.rng.coin() => beside.move_away(),
            _ => beside.step(),
        }
    }
    beside.copy_heads(Side::Lvm);
    beside.compare_lists();
    true
}

fn sequences(seeds: impl Iterator<Item = u64>) {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let mut failed = Vec::new();
    for seed in seeds {
        match std::panic::catch_unwind(|| sequence(seed)) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => failed.push(seed),
        }
    }
    assert!(failed.is_empty(), "sequences that differ, by their seeds: {failed:?}");
}

#[test]
fn fifty_sequences_of_changes_are_the_same() {
    sequences(0..50);
}

#[test]
fn fifty_more_sequences_of_changes_are_the_same() {
    sequences(50..100);
}

#[test]
#[ignore = "an hour"]
fn thousands_of_sequences_of_changes_are_the_same() {
    let seeds = std::env::var("WATTLE_LVM_SEEDS").unwrap_or_else(|_| "100..4000".to_owned());
    let (from, to) = seeds.split_once("..").unwrap();
    sequences(from.parse().unwrap()..to.parse().unwrap());
}
