//! The cases: arrays the kernel makes (guest/matrix.txt), and arrays that wattle makes for the kernel.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::judge::{SLICE_SECTORS, Slices, root};
use crate::pattern::Pattern;
use crate::{check_content, serve, wattle};

/// A line of a case file.
#[derive(Debug, Clone)]
pub struct Case {
    pub id: String,
    keys: BTreeMap<String, String>,
    options: Vec<String>,
}

impl Case {
    /// The cases of one of the guest's files.
    pub fn read(file: &str) -> Vec<Self> {
        let text = std::fs::read_to_string(root().join("guest").join(file))
            .expect("the guest's case files are there");
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("slice "))
            .map(Self::parse)
            .collect()
    }

    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let id = words.next().expect("a case has a name").to_owned();
        let (options, keys): (Vec<_>, Vec<_>) =
            words.map(str::to_owned).partition(|word| word.starts_with("--"));
        let keys =
            keys.iter().filter_map(|word| word.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
        Self { id, keys, options }
    }

    fn number(&self, key: &str) -> usize {
        self.keys.get(key).map_or(0, |value| value.parse().expect("a number"))
    }

    fn list(&self, key: &str) -> Vec<usize> {
        self.keys
            .get(key)
            .map_or(vec![], |value| value.split(',').map(|n| n.parse().expect("a number")).collect())
    }

    pub fn raid_disks(&self) -> usize {
        self.number("members")
    }

    /// Members, spares and journal.
    pub fn slices(&self) -> usize {
        self.raid_disks() + self.number("spares") + self.number("journal")
    }

    pub fn slice_sectors(&self, member: usize) -> u64 {
        self.list("sizes").get(member).map_or(SLICE_SECTORS, |&sectors| sectors as u64)
    }

    /// Slices that hold nothing. A member that was being added when the array stopped is there.
    pub fn missing(&self) -> Vec<usize> {
        if self.keys.contains_key("rebuilt_to") { vec![] } else { self.list("missing") }
    }

    pub fn journal(&self) -> bool {
        self.keys.contains_key("journal")
    }

    pub fn reshaping(&self) -> bool {
        self.keys.contains_key("reshaped_to")
    }

    /// Every slot has a member that is in sync, and nothing else happened to it.
    pub fn whole(&self) -> bool {
        let eventful = ["missing", "fail", "remove", "replace", "rebuilt_to", "grow", "spares", "journal"];
        eventful.iter().all(|key| !self.keys.contains_key(*key))
    }

    pub fn redundant(&self) -> bool {
        !matches!(&*self.keys["level"], "0" | "linear")
    }

    pub fn chunk_sectors(&self) -> u64 {
        let chunk = self.options.iter().find_map(|option| option.strip_prefix("--chunk="));
        chunk.map_or(1024, |kib| kib.parse::<u64>().expect("a number") * 2)
    }

    /// Members the array went on without; their superblocks stay as they were then.
    fn stale(&self) -> Vec<usize> {
        let failed = if self.keys.contains_key("readd") { vec![] } else { self.list("fail") };
        failed.into_iter().chain(self.list("replace")).collect()
    }

    /// Slots the array lacks when the kernel made it.
    fn degraded(&self) -> usize {
        if self.keys.contains_key("rebuilt_to") {
            return 1;
        }
        let refilled = self.number("spares") > 0 || self.keys.contains_key("readd");
        self.list("missing").len() + if refilled { 0 } else { self.list("fail").len() }
    }

    /// The line by which the kernel judges it after wattle has written to it, and perhaps failed a member.
    pub fn judged(&self, pattern: &Pattern, failed: Option<usize>, sectors: u64) -> String {
        let sizes = self.keys.get("sizes").map_or(String::new(), |sizes| format!(" sizes={sizes}"));
        let missing = self.missing();
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let missing =
            if missing.is_empty() { String::new() } else { format!(" missing={}", missing.join(",")) };
        let degraded = self.degraded() + usize::from(failed.is_some());
        let stale: Vec<String> =
            self.stale().into_iter().chain(failed).map(|member| member.to_string()).collect();
        let stale = if stale.is_empty() { String::new() } else { format!(" stale={}", stale.join(",")) };
        let dirty = if self.keys.contains_key("rebuilt_to") { " dirty=yes" } else { "" };
        format!(
            "{} level={} members={}{sizes}{missing}{stale}{dirty} pattern={pattern} array_sectors={sectors} degraded={}",
            self.id,
            self.keys["level"],
            self.slices(),
            if dirty.is_empty() { degraded } else { 0 },
        )
    }
}

/// An array that wattle makes.
#[derive(Debug)]
pub struct Ours {
    id: String,
    level: &'static str,
    members: usize,
    missing: Vec<usize>,
    args: Vec<&'static str>,
}

/// Every level and layout, metadata version and some missing members.
pub fn made_by_wattle() -> Vec<Ours> {
    let mut all = Vec::new();
    let mut add = |id: String, level, members, missing: &[usize], args: &[&'static str]| {
        all.push(Ours { id, level, members, missing: missing.to_vec(), args: args.to_vec() });
    };
    for layout in [
        "left-asymmetric",
        "right-asymmetric",
        "left-symmetric",
        "right-symmetric",
        "parity-first",
        "parity-last",
    ] {
        add(format!("w5-{layout}"), "5", 4, &[], &["--chunk", "16K", "--layout", layout]);
    }
    for layout in [
        "left-asymmetric",
        "right-asymmetric",
        "left-symmetric",
        "right-symmetric",
        "parity-first",
        "parity-last",
        "ddf-zero-restart",
        "ddf-N-restart",
        "ddf-N-continue",
        "left-asymmetric-6",
        "right-asymmetric-6",
        "left-symmetric-6",
        "right-symmetric-6",
        "parity-first-6",
    ] {
        add(format!("w6-{layout}"), "6", 5, &[], &["--chunk", "16K", "--layout", layout]);
    }
    for (layout, members) in [("n2", 2), ("n2", 3), ("n3", 5), ("f2", 3), ("f3", 4), ("o2", 4), ("o3", 5)] {
        add(format!("w10-{layout}-{members}"), "10", members, &[], &["--chunk", "64K", "--layout", layout]);
    }
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        add(format!("w5-v{version}"), "5", 3, &[], &["--metadata", version]);
        add(format!("w1-v{version}"), "1", 2, &[], &["--metadata", version]);
        add(format!("w0-v{version}"), "0", 3, &[], &["--metadata", version]);
        add(format!("w6-missing-v{version}"), "6", 4, &[1, 2], &["--metadata", version, "--chunk", "64K"]);
    }
    add("w4".into(), "4", 4, &[], &["--chunk", "4K"]);
    add("w5-default".into(), "5", 3, &[], &[]);
    add("w5-missing".into(), "5", 4, &[2], &["--chunk", "32K"]);
    add("w10-missing".into(), "10", 4, &[3], &["--chunk", "32K"]);
    add("w1-missing".into(), "1", 2, &[0], &[]);
    add("w5-wide".into(), "5", 10, &[], &["--chunk", "4K"]);
    add("w5-offset".into(), "5", 3, &[], &["--chunk", "64K", "--data-offset", "2M"]);
    all
}

impl Ours {
    fn case(&self) -> Case {
        let missing: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
        let missing =
            if missing.is_empty() { String::new() } else { format!(" missing={}", missing.join(",")) };
        Case::parse(&format!("{} level={} members={}{missing}", self.id, self.level, self.members))
    }

    fn present(&self, slices: &Slices, k: usize) -> Vec<PathBuf> {
        let all = slices.members(k, self.members).into_iter().enumerate();
        all.filter(|(member, _)| !self.missing.contains(member)).map(|(_, path)| path).collect()
    }

    fn written(&self, k: usize, sectors: u64) -> Pattern {
        let mut pattern = Pattern::whole(4000 + k as u64);
        pattern.extend(&Pattern::scattered(6000 + k as u64, sectors, 40));
        pattern
    }

    /// Creates and fills it through wattle, puts it on the guest's disks, and returns the line by which the kernel judges it.
    pub fn make(&self, slices: &Slices, k: usize) -> String {
        let dir = slices.dir(k);
        let paths = slices.members(k, self.members);
        for path in &paths {
            std::fs::File::create(path)
                .and_then(|file| file.set_len(SLICE_SECTORS * 512))
                .expect("scratch space");
        }
        let offered: Vec<PathBuf> = (paths.iter().enumerate())
            .map(
                |(member, path)| if self.missing.contains(&member) { "missing".into() } else { path.clone() },
            )
            .collect();
        let mut args = vec!["create", "--level", self.level];
        args.extend(&self.args);
        args.push("data");
        wattle(&args, &offered);
        let members = self.present(slices, k);
        let sectors = wattle(&["cat"], &members).len() as u64 / 512;
        let pattern = self.written(k, sectors);
        let whole = dir.join("whole");
        std::fs::write(&whole, Pattern::whole(4000 + k as u64).bytes(sectors)).expect("scratch space");
        let scattered = Pattern::scattered(6000 + k as u64, sectors, 40);
        let copy = format!("nbdcopy --flush {} \"$uri\"; ", whole.display());
        serve(&members, &dir, &(copy + &crate::write_script(&scattered, sectors, &dir)));
        check_content(&self.id, &members, &pattern.bytes(sectors));
        let case = self.case();
        slices.put_back(k, &case, &members);
        // Linux can only write again what it could assemble: one more proof that nothing was left half done.
        case.judged(&pattern, None, sectors) + &format!(" write={}", KernelWrite::of(k).text())
    }

    /// Reads back what was written by both.
    pub fn reread(&self, slices: &Slices, k: usize) {
        let members = slices.extract(k, &self.case());
        let sectors = wattle(&["cat"], &members).len() as u64 / 512;
        let mut pattern = self.written(k, sectors);
        pattern.extend(&Pattern::parse(&KernelWrite::of(k).text()));
        check_content(
            &format!("{} after the kernel wrote to it", self.id),
            &members,
            &pattern.bytes(sectors),
        );
    }
}

/// What the kernel writes to array `k`.
struct KernelWrite(u64);

impl KernelWrite {
    fn of(k: usize) -> Self {
        Self(k as u64)
    }

    fn text(&self) -> String {
        format!("{}:{}:{}", 7000 + self.0, 100 + self.0, 1000 + self.0 * 3)
    }
}
