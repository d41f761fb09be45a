//! The cases: arrays the kernel makes (guest/matrix.txt), and arrays that wattle makes for the
//! kernel.

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

    /// Members, spares, journal, and what is added later.
    pub fn slices(&self) -> usize {
        self.raid_disks() + self.number("spares") + self.number("journal") + self.number("more")
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

    /// Reshaped in place: no member tells how far it came.
    pub fn in_place(&self) -> bool {
        self.id.contains("inplace")
    }

    /// Lacks members in the middle of a reshape: one that failed, or parity that RAID 0 never had.
    pub fn is_short(&self) -> bool {
        self.keys.contains_key("fail") || self.keys["level"] == "0"
    }

    /// Every slot has a member that is in sync, and nothing else happened to it.
    pub fn whole(&self) -> bool {
        let eventful = ["missing", "fail", "remove", "replace", "rebuilt_to", "grow", "spares", "journal"];
        eventful.iter().all(|key| !self.keys.contains_key(*key))
    }

    /// Stopped in the middle of writes.
    pub fn crashed(&self) -> bool {
        self.keys.contains_key("crash") && !self.keys.contains_key("resynced_to")
    }

    pub fn degraded_at_crash(&self) -> bool {
        self.crashed() && self.keys.contains_key("fail")
    }

    /// With copies: what a torn write leaves on any of them is as good as on another.
    pub fn mirrored(&self) -> bool {
        matches!(&*self.keys["level"], "1" | "10")
    }

    /// With a partial parity log.
    pub fn logged(&self) -> bool {
        self.has_option("--consistency-policy=ppl")
    }

    /// Whether this slot holds nothing but parity: without it no data has to be computed.
    pub fn only_parity(&self, slot: usize) -> bool {
        self.keys["level"] == "4" && slot + 1 == self.raid_disks()
    }

    /// The one slot with the parity of all that was in flight, and so the only one whose log speaks
    /// of it. Without that log nothing tells such an array from one that was never synced.
    pub fn only_log(&self) -> Option<usize> {
        let (disks, chunk) = (self.raid_disks() as u64, self.chunk_sectors());
        let row = |sector: u64| sector / (chunk * (disks - 1));
        let mut parity = self.keys["crash"]
            .split(',')
            .flat_map(|range| {
                let (start, count) = range.split_once(':').expect("a range");
                let (start, count): (u64, u64) =
                    (start.parse().expect("a number"), count.parse().expect("a number"));
                row(start)..=row(start + count - 1)
            })
            .map(|row| (disks - 1 - row % disks) as usize);
        let first = parity.next()?;
        (self.logged() && parity.all(|slot| slot == first)).then_some(first)
    }

    pub fn has_bitmap(&self) -> bool {
        self.has_option("--bitmap=internal")
    }

    fn has_option(&self, wanted: &str) -> bool {
        self.options.iter().any(|option| option == wanted)
    }

    /// Whether wattle takes the failed member back by itself: a bitmap says what it missed, and it
    /// was removed, after which Linux records no more of it than of one that is just not there.
    pub fn comes_back(&self) -> bool {
        let is_removed = self.keys.contains_key("fail") && self.keys.contains_key("remove");
        self.has_bitmap() && is_removed && !self.keys.contains_key("crash")
    }

    /// Whether members list bad blocks.
    pub fn lists_bad(&self) -> bool {
        self.keys.contains_key("bad")
    }

    /// Slots that stay empty without an order: a bitmap brings back members that were removed,
    /// spares take over.
    pub fn empty_slots_left(&self) -> usize {
        if self.keys.contains_key("readd") || self.number("spares") > 0 || self.comes_back() {
            return 0;
        }
        self.list("fail").len()
    }

    /// Members that come back only when they are told to.
    pub fn must_be_added(&self) -> Vec<usize> {
        let away =
            self.empty_slots_left() > 0 && !self.keys.contains_key("crash") && !self.keys.contains_key("bad");
        if away { self.list("fail") } else { vec![] }
    }

    pub fn empty_slots_in_the_end(&self) -> usize {
        self.empty_slots_left() - self.must_be_added().len()
    }

    /// The line by which the kernel judges it after wattle has made it whole, as far as there are
    /// members for that; and perhaps one dies.
    pub fn judged_whole(&self, pattern: &Pattern, sectors: u64, dies: Option<usize>) -> String {
        let failed = if self.must_be_added().is_empty() { self.stale() } else { self.list("replace") };
        let stale: Vec<String> = failed.into_iter().map(|member| member.to_string()).collect();
        let dirty = if self.logged() { " dirty=yes" } else { "" };
        let missing = dies.map_or(String::new(), |member| format!(" missing={member}"));
        format!(
            "{} level={} members={}{dirty}{missing} stale={} pattern={pattern} array_sectors={sectors} degraded={}",
            self.id,
            self.keys["level"],
            self.slices(),
            stale.join(","),
            self.empty_slots_in_the_end() + usize::from(dies.is_some()),
        )
    }

    pub fn redundant(&self) -> bool {
        !matches!(&*self.keys["level"], "0" | "linear")
    }

    pub fn chunk_sectors(&self) -> u64 {
        let chunk = self.options.iter().find_map(|option| option.strip_prefix("--chunk="));
        chunk.map_or(1024, |kib| kib.parse::<u64>().expect("a number") * 2)
    }

    /// Members the array goes on without; their superblocks stay as they were then.
    fn stale(&self) -> Vec<usize> {
        let back = self.keys.contains_key("readd") || self.comes_back();
        let failed = if back { vec![] } else { self.list("fail") };
        failed.into_iter().chain(self.list("replace")).collect()
    }

    /// Slots the array lacks, when the kernel made it or when its member has come back.
    fn degraded(&self) -> usize {
        if self.keys.contains_key("rebuilt_to") {
            return 1;
        }
        let refilled = self.number("spares") > 0 || self.keys.contains_key("readd") || self.comes_back();
        self.list("missing").len() + if refilled { 0 } else { self.list("fail").len() }
    }

    /// The line by which the kernel judges it after wattle has written to it, and perhaps failed a
    /// member.
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

    /// Creates and fills it through wattle, puts it on the guest's disks, and returns the line by
    /// which the kernel judges it.
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
        // Linux can only write again what it could assemble: one more proof that nothing was left
        // half done.
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
