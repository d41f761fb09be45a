//! What lies on arrays and drives: partitions, volume groups, volumes; as a report and as a tree.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use wattle_control::bcache::{BcacheDevice, mode_word, state_word};
use wattle_control::crypt::{Encryption, LockState};
use wattle_control::integrity::{IntegrityDevice, IntegrityState};
use wattle_control::lvm::{GroupScan, VolumeState};
use wattle_control::scan::MemberOrigin;
use wattle_control::signature::FoundSignature;
use wattle_control::units::Units;
use wattle_control::{ArrayId, GroupId, MemberId, shell_word};
use wattle_control::{MemberScan, Stack};
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::bcache::BcacheRole;
use wattle_format::luks::HeaderSource;
use wattle_format::lvm::Id;
use wattle_format::probe::SignatureKind;
use wattle_server::protocol::ErrorReport;

use super::devices::ScannedFsReport;
use crate::cli::ScanArgs;
use crate::output::Screen;
use crate::output::text::printable;

/// A volume group.
#[derive(Serialize)]
pub struct ScannedGroupReport {
    name: String,
    uuid: String,
    seqno: u64,
    extent_bytes: u64,
    size_bytes: u64,
    free_bytes: u64,
    physical_volumes: Vec<PhysicalReport>,
    notes: Vec<String>,
    problem: Option<ErrorReport>,
}

/// A physical volume.
#[derive(Serialize)]
struct PhysicalReport {
    uuid: String,
    /// What it is on; absent if it is missing.
    member: Option<String>,
    /// Where its extents start.
    pe_start_bytes: u64,
    size_bytes: u64,
    free_bytes: u64,
}

/// Something that can be named with `-V`.
#[derive(Serialize)]
pub struct ScannedVolumeReport {
    name: String,
    /// `array`, `logical`, `partition`, `decrypted`, `drive`; absent if it cannot be opened.
    kind: Option<&'static str>,
    size_bytes: Option<u64>,
    /// Of a logical volume: the types of its segments.
    segments: Vec<String>,
    /// What is recognised on it.
    signatures: Vec<String>,
    /// How it is encrypted; absent if it is not.
    encryption: Option<EncryptionReport>,
    /// What it is as a device of dm-integrity; absent if it is none.
    integrity: Option<IntegrityReport>,
    /// What it is to bcache; absent if it is nothing.
    bcache: Option<BcacheReport>,
    /// Nothing else lies on it.
    top: bool,
    /// Parts of it are on physical volumes that are missing.
    partial: bool,
    /// Of a logical volume: how much of it is lost with them, in bytes, where that is known.
    lost_bytes: u64,
    /// Of a logical volume: RAID images that are missing; it is read through redundancy.
    images_out: usize,
    problem: Option<ErrorReport>,
}

pub fn groups(stack: &Stack) -> Vec<ScannedGroupReport> {
    stack.groups.iter().map(|group| group_report(stack, group)).collect()
}

fn group_report(stack: &Stack, group: &GroupScan) -> ScannedGroupReport {
    let extent_bytes = group.vg.extent_sectors.saturating_mul(SECTOR_BYTES);
    let bytes = |extents: u64| extents.saturating_mul(extent_bytes);
    let physical = group.vg.pvs.iter().zip(&group.devices).map(|(pv, device)| PhysicalReport {
        uuid: pv.id.to_string(),
        member: device.map(|ix| stack.scan.members[ix].member.name.clone()),
        pe_start_bytes: pv.pe_start.saturating_mul(SECTOR_BYTES),
        size_bytes: bytes(pv.pe_count),
        free_bytes: bytes(free_extents(group, &pv.name)),
    });
    let physical_volumes: Vec<_> = physical.collect();
    ScannedGroupReport {
        name: group.vg.name.clone(),
        uuid: group.vg.id.to_string(),
        seqno: group.vg.seqno,
        extent_bytes,
        size_bytes: physical_volumes.iter().map(|pv| pv.size_bytes).fold(0, u64::saturating_add),
        free_bytes: physical_volumes.iter().map(|pv| pv.free_bytes).fold(0, u64::saturating_add),
        physical_volumes,
        notes: group.notes.clone(),
        problem: group.problem.as_ref().map(ErrorReport::from),
    }
}

/// What of a logical volume is not there, in words; `None` if all of it is.
pub fn lacks(state: &VolumeState, units: Units) -> Option<String> {
    match *state {
        VolumeState { partial: true, lost_bytes: 0, .. } => {
            Some("partly on missing physical volumes".to_owned())
        }
        VolumeState { partial: true, lost_bytes, .. } => {
            Some(format!("partly on missing physical volumes ({} of it)", units.show(lost_bytes)))
        }
        VolumeState { images_out: 0, .. } => None,
        VolumeState { images_out: 1, .. } => {
            Some("degraded: an image is missing, and is read through redundancy".to_owned())
        }
        VolumeState { images_out, .. } => {
            Some(format!("degraded: {images_out} images are missing, and are read through redundancy"))
        }
    }
}

pub fn free_extents(group: &GroupScan, pv: &str) -> u64 {
    // What contradicts itself has nothing that could be said to be free.
    if group.problem.is_some() && !group.vg.problems().is_empty() {
        return 0;
    }
    group.vg.free_extents(pv).iter().map(|run| run.end.saturating_sub(run.start)).sum()
}

pub fn volumes(stack: &Stack) -> Vec<ScannedVolumeReport> {
    let report = |volume: wattle_control::stack::NamedVolume| {
        let seen = volume.member.as_ref().ok().map(|&ix| &stack.scan.members[ix]);
        let logical = match seen.map(|seen| seen.origin) {
            Some(MemberOrigin::Logical { group, volume }) => Some((&stack.groups[group], volume)),
            _ => None,
        };
        let state = logical.map(|(group, volume)| &group.volumes[&volume]);
        ScannedVolumeReport {
            kind: seen.map(|seen| kind(seen.origin)),
            size_bytes: seen.map(|seen| seen.member.device.size_bytes()),
            segments: logical.map(|(group, volume)| segment_types(group, volume)).unwrap_or_default(),
            signatures: seen.map(signatures).unwrap_or_default(),
            encryption: seen.and_then(|seen| seen.encryption.as_ref()).map(EncryptionReport::of),
            integrity: seen.and_then(|seen| seen.integrity.as_ref()).map(IntegrityReport::of),
            bcache: seen.and_then(|seen| seen.bcache.as_ref()).map(BcacheReport::of),
            top: volume.is_top,
            partial: state.is_some_and(|state| state.partial),
            lost_bytes: state.map_or(0, |state| state.lost_bytes),
            images_out: state.map_or(0, |state| state.images_out),
            problem: volume.member.as_ref().err().map(ErrorReport::from),
            name: volume.name,
        }
    };
    stack.volumes().into_iter().map(report).collect()
}

fn kind(origin: MemberOrigin) -> &'static str {
    match origin {
        MemberOrigin::Given => "drive",
        MemberOrigin::Partition { .. } => "partition",
        MemberOrigin::Container { .. } => "container",
        MemberOrigin::Array(_) => "array",
        MemberOrigin::Logical { .. } => "logical",
        MemberOrigin::Decrypted { .. } => "decrypted",
        MemberOrigin::Layered { .. } => "layered",
    }
}

pub fn segment_types(group: &GroupScan, volume: Id) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    for segment in &group.lv(volume).segments {
        let name = match &segment.kind {
            wattle_format::lvm::SegmentKind::Striped { stripes, .. } if stripes.len() == 1 => {
                "linear".to_owned()
            }
            kind => kind.name().to_owned(),
        };
        if !types.contains(&name) {
            types.push(name);
        }
    }
    types
}

fn signatures(seen: &MemberScan) -> Vec<String> {
    seen.signatures.iter().map(|signature| signature.what.clone()).collect()
}

/// An encrypted device.
#[derive(Serialize)]
struct EncryptionReport {
    /// `LUKS1`, `LUKS2`.
    kind: String,
    uuid: String,
    label: Option<String>,
    /// `aes-xts-plain64`; several while it is re-encrypted.
    ciphers: Vec<String>,
    key_slots: Vec<KeySlotReport>,
    /// Kinds of tokens, which other programs unlock by.
    tokens: Vec<String>,
    /// What its header is on, if that is not the device.
    detached_header: Option<String>,
    /// Where the second header is, if that is used because the first is damaged.
    second_header_at_bytes: Option<u64>,
    /// `locked`, `unlocked`, `refused`.
    state: &'static str,
    problem: Option<ErrorReport>,
}

#[derive(Serialize)]
struct KeySlotReport {
    slot: u32,
    /// `pbkdf2`, `argon2i`, `argon2id`.
    kdf: String,
    memory_bytes: u64,
}

impl EncryptionReport {
    fn of(encryption: &Encryption) -> Self {
        let header = &encryption.header;
        let (state, problem) = match &encryption.state {
            LockState::Locked => ("locked", None),
            LockState::Unlocked { .. } => ("unlocked", None),
            LockState::Refused(problem) => ("refused", Some(problem.into())),
        };
        let key_slots = header.slots.iter().map(|slot| KeySlotReport {
            slot: slot.id,
            kdf: slot.kdf.name().to_owned(),
            memory_bytes: slot.kdf.memory_bytes(),
        });
        Self {
            kind: format!("LUKS{}", header.version),
            uuid: header.uuid.clone(),
            label: header.label.clone(),
            ciphers: header.segments.iter().map(|segment| segment.cipher.clone()).collect(),
            key_slots: key_slots.collect(),
            tokens: header.tokens.clone(),
            detached_header: encryption.detached.clone(),
            second_header_at_bytes: match header.source {
                HeaderSource::First => None,
                HeaderSource::Second { at_bytes } => Some(at_bytes),
            },
            state,
            problem,
        }
    }
}

/// A device of dm-integrity.
#[derive(Serialize)]
struct IntegrityReport {
    tag_bytes: u16,
    block_bytes: u32,
    provided_bytes: u64,
    /// What the superblock says of its mode.
    mode: &'static str,
    /// `crc32c`, `hmac-sha256`; absent if it is not open.
    checksum: Option<&'static str>,
    /// What is read from its journal.
    logged_blocks: u64,
    /// What has no checksum that counts.
    unchecked_bytes: u64,
    problem: Option<ErrorReport>,
}

impl IntegrityReport {
    fn of(device: &IntegrityDevice) -> Self {
        let superblock = &device.superblock;
        let facts = match &device.state {
            IntegrityState::Open(facts) => Some(facts),
            IntegrityState::Unused | IntegrityState::Refused(_) => None,
        };
        Self {
            tag_bytes: superblock.tag_bytes,
            block_bytes: superblock.block_bytes(),
            provided_bytes: superblock.provided_sectors.saturating_mul(SECTOR_BYTES),
            mode: device.mode(),
            checksum: facts.and_then(|facts| facts.checksum),
            logged_blocks: facts.map_or(0, |facts| facts.logged_blocks),
            unchecked_bytes: facts.map_or(0, |facts| facts.unchecked_sectors.saturating_mul(SECTOR_BYTES)),
            problem: device.problem().map(ErrorReport::from),
        }
    }
}

/// A device of bcache.
#[derive(Serialize)]
struct BcacheReport {
    /// `backing`, `cache`.
    role: &'static str,
    set_uuid: String,
    /// Of a backing device: `writeback`, `writethrough`, `writearound`, `none`.
    mode: Option<&'static str>,
    /// Of a backing device: `clean`, `dirty`, `no cache`, `inconsistent`.
    state: Option<&'static str>,
    /// The cache device that a backing device is read with.
    cache: Option<String>,
    /// What only that has of it, bytes.
    dirty_bytes: Option<u64>,
    problem: Option<ErrorReport>,
}

impl BcacheReport {
    fn of(device: &BcacheDevice) -> Self {
        let (role, mode, state) = match device.superblock.role {
            BcacheRole::Cache => ("cache", None, None),
            BcacheRole::Backing { mode, state, .. } => {
                ("backing", Some(mode_word(mode)), Some(state_word(state)))
            }
        };
        let problem = device.problem.as_ref().map(ErrorReport::from);
        let cache = device.cache.as_ref();
        Self {
            role,
            set_uuid: device.set_uuid(),
            mode,
            state,
            cache: cache.map(|cache| cache.name.clone()),
            dirty_bytes: cache.map(|cache| cache.dirty_bytes),
            problem,
        }
    }
}

/// How a member is encrypted, and whether it is open.
pub fn encryption_words(encryption: &Encryption) -> String {
    let state = match &encryption.state {
        LockState::Locked => "locked".to_owned(),
        LockState::Unlocked { slot: Some(slot) } => format!("opened with key slot {slot}"),
        LockState::Unlocked { slot: None } => "opened with its volume key".to_owned(),
        LockState::Refused(problem) => format!("not opened ({})", problem.code),
    };
    format!("{}, {state}", encryption.summary())
}

/// What is drawn of a stack; `None` if nothing lies on what was given.
pub fn tree(stack: &Stack, screen: Screen) -> Option<String> {
    let layered = stack.scan.members.iter().any(|seen| {
        seen.table.is_some()
            || (!matches!(seen.origin, MemberOrigin::Given)
                && (!seen.signatures.is_empty() || seen.facts.is_some()))
            || matches!(seen.origin, MemberOrigin::Logical { .. })
    });
    if !layered && stack.groups.is_empty() {
        return None;
    }
    let drawing = Drawing::new(stack, screen);
    let roots: Vec<_> = drawing.roots().iter().map(|node| drawing.node(node)).collect();
    let mut text = String::new();
    for root in &roots {
        root.draw("", "", &mut text);
    }
    Some(text)
}

/// What shows the files that are there: a command for each file system; `None` if there is none.
pub fn way_to_files(stack: &Stack, several: &[ScannedFsReport], args: &ScanArgs) -> Option<String> {
    /// Beyond this, a shell pattern was given, and can be given again.
    const MEMBERS_MAX: usize = 6;
    let found = stack.file_systems();
    let members = match args.members.len() {
        ..=MEMBERS_MAX => args.members.iter().map(|name| shell_word(name)).collect::<Vec<_>>().join(" "),
        _ => "MEMBER...".to_owned(),
    };
    let mut options = String::new();
    let mut option = |name: &str, value: &str| options += &format!(" {name} {}", shell_word(value));
    args.maps.maps.iter().for_each(|map| option("--map", &map.to_string_lossy()));
    args.overlay.dir.iter().for_each(|dir| option("--overlay", &dir.to_string_lossy()));
    args.force.checks.iter().for_each(|check| option("--force", &check.to_string()));
    let alone = stack.find_files(None).is_ok();
    let named = |name: &str| match alone {
        true => String::new(),
        false => format!(" -V {}", shell_word(name)),
    };
    let on_several = |volume: &str| several.iter().any(|found| found.members().contains(&volume));
    let of_several = several.iter().filter_map(|found| {
        let (on, what) = (found.members(), found.name());
        let name = named(on.first().copied()?);
        let (list, get) =
            (format!("ls {members}{name}{options}"), format!("get {members}{name}{options} --to DIR"));
        let line = format!(
            "Files are on {what} ({}): `wattle {list}`, and out of it: `wattle {get}`",
            on.join(", ")
        );
        Some(printable(&line) + "\n")
    });
    let lines = found.iter().filter(|(volume, _)| !on_several(volume.name.as_str())).map(|(volume, kind)| {
        let name = named(&volume.name);
        use SignatureKind::{Btrfs, ExFat, Ext2, Ext3, Ext4, Fat, HfsPlus, Ntfs, Xfs};
        // Others are left to the system's own drivers.
        let (command, place) = match kind {
            Ext2 | Ext3 | Ext4 | Xfs | Btrfs | Ntfs | ExFat | Fat | HfsPlus => ("ls", ""),
            _ => ("mount", " DIR"),
        };
        let (on, kind) = (&volume.name, kind.name());
        let line = format!("Files are on {on}, {kind}: `wattle {command} {members}{place}{name}{options}`");
        printable(&line) + "\n"
    });
    let mut lines: Vec<String> = of_several.chain(lines).collect();
    // What is in them is not known: perhaps files.
    for seen in stack.scan.members.iter() {
        if matches!(&seen.encryption, Some(Encryption { state: LockState::Locked, .. })) {
            let name = &seen.member.name;
            let line =
                format!("{name} is encrypted; what is in it: `wattle scan --unlock {members}{options}`");
            lines.push(printable(&line) + "\n");
        }
    }
    (!lines.is_empty()).then(|| lines.concat())
}

/// A line of the tree and those below it.
struct Line {
    text: String,
    children: Vec<Line>,
}

impl Line {
    fn draw(&self, first: &str, others: &str, into: &mut String) {
        into.push_str(&format!("{first}{}\n", self.text));
        for (ix, child) in self.children.iter().enumerate() {
            let last = ix + 1 == self.children.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            child.draw(&format!("{others}{branch}"), &format!("{others}{below}"), into);
        }
    }
}

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    /// A member of the scan: a drive, a partition, the content of an array, a logical volume.
    Member(MemberId),
    Array(ArrayId),
    Group(GroupId),
    /// A volume that could not be opened.
    Unopened {
        group: GroupId,
        volume: Id,
    },
}

struct Drawing<'a> {
    stack: &'a Stack,
    screen: Screen,
    /// What lies on each member and on nothing else: a drive may have thousands of partitions.
    on: BTreeMap<MemberId, Vec<Node>>,
}

impl<'a> Drawing<'a> {
    fn new(stack: &'a Stack, screen: Screen) -> Self {
        let mut on: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (ix, seen) in stack.scan.members.entries() {
            if let MemberOrigin::Partition { of, .. }
            | MemberOrigin::Container { of, .. }
            | MemberOrigin::Decrypted { of }
            | MemberOrigin::Layered { of } = seen.origin
            {
                on.entry(of).or_default().push(Node::Member(ix));
            }
        }
        Self { stack, screen, on }
    }

    /// Everything that nothing else in the tree holds.
    fn roots(&self) -> Vec<Node> {
        let scan = &self.stack.scan;
        let members = scan
            .members
            .ids()
            .filter(|&ix| scan.members[ix].origin == MemberOrigin::Given && scan.members[ix].facts.is_none())
            .map(Node::Member);
        let arrays = scan.arrays.ids().map(Node::Array);
        let groups = self.stack.groups.ids().map(Node::Group);
        let all: Vec<_> = members.chain(arrays).chain(groups).collect();
        let holders = all.iter().copied().chain(scan.members.ids().map(Node::Member));
        let held: BTreeSet<_> = holders.flat_map(|node| self.held_by(&node)).collect();
        all.into_iter().filter(|node| !held.contains(node)).collect()
    }

    /// What is drawn below a node.
    fn held_by(&self, node: &Node) -> Vec<Node> {
        let scan = &self.stack.scan;
        match *node {
            Node::Member(ix) => {
                let mut held = self.on.get(&ix).cloned().unwrap_or_default();
                // What lies on several things is drawn below none of them.
                let groups = self.stack.groups.entries();
                held.extend(
                    groups
                        .filter(|(_, group)| group.devices[..] == [Some(ix)])
                        .map(|(at, _)| Node::Group(at)),
                );
                let arrays = scan.arrays.entries();
                held.extend(
                    arrays.filter(|(_, array)| array.members[..] == [ix]).map(|(at, _)| Node::Array(at)),
                );
                held
            }
            Node::Array(array) => {
                let content = scan.members.find(|member| member.origin == MemberOrigin::Array(array));
                // Its content is drawn on its own line.
                content.map(|content| self.held_by(&Node::Member(content))).unwrap_or_default()
            }
            Node::Group(group) => {
                let node = |volume: Id| {
                    let origin = MemberOrigin::Logical { group, volume };
                    let found = scan.members.find(|member| member.origin == origin);
                    found.map_or(Node::Unopened { group, volume }, Node::Member)
                };
                let vg = &self.stack.groups[group].vg;
                vg.lvs.iter().filter(|lv| vg.is_visible(lv)).map(|lv| node(lv.id)).collect()
            }
            Node::Unopened { .. } => Vec::new(),
        }
    }

    fn node(&self, node: &Node) -> Line {
        let children = self.held_by(node).iter().map(|held| self.node(held)).collect();
        Line { text: self.text(node), children }
    }

    fn text(&self, node: &Node) -> String {
        let Screen { units, style, .. } = self.screen;
        let (name, mut what) = match *node {
            Node::Member(ix) => {
                let seen = &self.stack.scan.members[ix];
                (seen.member.name.clone(), self.member(seen))
            }
            Node::Array(ix) => {
                let array = &self.stack.scan.arrays[ix];
                let level = wattle_engine::geometry::Level::from_md(array.assembly.array.level);
                let content =
                    self.stack.scan.members.iter().find(|seen| seen.origin == MemberOrigin::Array(ix));
                let mut what = vec![format!(
                    "{} {}",
                    level.map_or_else(|| "array".to_owned(), |level| level.to_string()),
                    super::slots_view(&array.assembly.slots)
                )];
                what.extend(content.map(|seen| units.show_capacity(seen.member.device.size_bytes())));
                what.extend(content.into_iter().flat_map(|seen| plain_signatures(self.stack, seen)));
                what.push(format!("on {}", self.names(&array.members)));
                (array.assembly.name().to_owned(), what)
            }
            Node::Group(ix) => {
                let group = &self.stack.groups[ix];
                let report = group_report(self.stack, group);
                let mut what = vec!["volume group".to_owned(), units.show_capacity(report.size_bytes)];
                what.push(format!("{} free", units.show(report.free_bytes)));
                let there: Vec<_> = group.devices.iter().flatten().copied().collect();
                if there.len() > 1 {
                    what.push(format!("on {}", self.names(&there)));
                }
                let missing = group.devices.len() - there.len();
                if missing > 0 {
                    let missing = format!("{missing} of {} physical volumes missing", group.devices.len());
                    what.push(style.yellow(&missing));
                }
                if let Some(problem) = &group.problem {
                    what.push(style.red(&printable(&format!("{} ({})", problem.what, problem.code))));
                }
                (group.vg.name.clone(), what)
            }
            Node::Unopened { group, volume } => {
                let group = &self.stack.groups[group];
                let lv = group.lv(volume);
                let mut what = vec![units.show_capacity(group.size_bytes(lv))];
                let problem = group.volumes[&volume].problem.as_ref();
                what.extend(problem.map(|problem| {
                    style.yellow(&printable(&format!("{} ({})", problem.what, problem.code)))
                }));
                (group.full_name(lv), what)
            }
        };
        what.retain(|what| !what.is_empty());
        format!("{}  {}", style.bold(&printable(&name)), what.join(", "))
    }

    fn member(&self, seen: &MemberScan) -> Vec<String> {
        let Screen { units, style, .. } = self.screen;
        let mut what = vec![units.show_capacity(seen.member.device.size_bytes())];
        match seen.origin {
            MemberOrigin::Logical { group, volume } => {
                let group = &self.stack.groups[group];
                what.push(segment_types(group, volume).join(" and "));
                let state = &group.volumes[&volume];
                what.extend(lacks(state, units).map(|lacks| style.yellow(&lacks)));
            }
            MemberOrigin::Partition { of, number } => {
                let table = self.stack.scan.members[of].table.as_ref();
                let partition =
                    table.and_then(|table| table.partitions.iter().find(|found| found.number == number));
                what.extend(partition.and_then(|partition| partition.kind.name()).map(str::to_owned));
                what.extend(
                    partition.and_then(|partition| partition.name.clone()).map(|name| printable(&name)),
                );
            }
            MemberOrigin::Decrypted { .. } => what.push("decrypted".to_owned()),
            MemberOrigin::Layered { of } => {
                let below = &self.stack.scan.members[of];
                let has_cache = below.bcache.as_ref().is_some_and(|device| device.cache.is_some());
                what.push(
                    match (below.integrity.is_some(), has_cache) {
                        (true, _) => "checked",
                        (false, true) => "with its cache",
                        (false, false) => "without its cache",
                    }
                    .to_owned(),
                );
            }
            MemberOrigin::Given | MemberOrigin::Container { .. } | MemberOrigin::Array(_) => {}
        }
        if let Some(facts) = &seen.facts {
            what.push(format!("member of {}", printable(facts.superblock.short_name())));
        }
        what.extend(plain_signatures(self.stack, seen));
        what
    }

    /// The names of members; of what is drawn elsewhere.
    fn names(&self, members: &[MemberId]) -> String {
        let names: Vec<_> =
            members.iter().map(|&ix| printable(&self.stack.scan.members[ix].member.name)).collect();
        names.join(", ")
    }
}

/// Whether a volume group has the member among its physical volumes, or as a copy of one.
pub fn is_in_group(stack: &Stack, seen: &MemberScan) -> bool {
    let has = |group: &GroupScan| {
        group
            .devices
            .iter()
            .flatten()
            .chain(&group.copies)
            .any(|&ix| std::ptr::eq(&stack.scan.members[ix], seen))
    };
    stack.groups.iter().any(has)
}

/// What is recognised on a member, without what the tree shows as lines of their own.
pub fn plain_signatures(stack: &Stack, seen: &MemberScan) -> Vec<String> {
    let shown_below = |signature: &&FoundSignature| match signature.kind {
        Some(SignatureKind::Mbr | SignatureKind::Gpt) => seen.table.is_some(),
        Some(SignatureKind::Lvm2) => seen.physical.is_some(),
        Some(SignatureKind::Luks1 | SignatureKind::Luks2 | SignatureKind::Luks2Second) => {
            seen.encryption.is_some()
        }
        Some(SignatureKind::Integrity) => seen.integrity.is_some(),
        Some(SignatureKind::Bcache) => seen.bcache.is_some(),
        _ => false,
    };
    let others = seen.signatures.iter().filter(|signature| !shown_below(signature));
    let mut found: Vec<_> = others.map(|signature| signature.what.clone()).collect();
    let is_unused = seen.physical.is_some() && !is_in_group(stack, seen);
    found.extend(is_unused.then(|| "LVM2 physical volume in no group".to_owned()));
    found.extend(seen.encryption.as_ref().map(encryption_words));
    found.extend(seen.layer_summary());
    found.extend(seen.table.as_ref().map(|table| format!("{} partition table", table.kind.name())));
    found.iter().map(|what| printable(what)).collect()
}
