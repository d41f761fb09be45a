//! Whether a volume group makes sense, and which of its extents are free. Everything here is
//! checked arithmetic over numbers that came from a disk, and no worse than n log n in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::error::{GroupPart, GroupProblem};
use super::segment::{LvSegment, SegmentKind};
use super::vg::{Lv, Pv, Vg};

const VG_STATUS: [&str; 7] = ["RESIZEABLE", "READ", "WRITE", "EXPORTED", "CLUSTERED", "SHARED", "PVMOVE"];
const PV_STATUS: [&str; 2] = ["ALLOCATABLE", "EXPORTED"];
const LV_STATUS: [&str; 9] =
    ["READ", "WRITE", "VISIBLE", "FIXED_MINOR", "PVMOVE", "LOCKED", "NOTSYNCED", "REBUILD", "WRITEMOSTLY"];
/// Extents are counted in 32 bits, and so are the sectors of one.
const MAX: u64 = u32::MAX as u64;

/// Extents of a PV or LV that a segment is on.
struct Use {
    extents: Range<u64>,
    place: GroupPart,
}

/// The PVs and LVs by name, and what is wrong so far.
struct Checker<'a> {
    vg: &'a Vg,
    pvs: BTreeMap<&'a str, &'a Pv>,
    lvs: BTreeMap<&'a str, &'a Lv>,
    uses: BTreeMap<&'a str, Vec<Use>>,
    problems: Vec<GroupProblem>,
}

impl Vg {
    /// Everything that is wrong. A VG with a problem must not be changed, and what it concerns must
    /// not be mapped.
    #[must_use]
    pub fn problems(&self) -> Vec<GroupProblem> {
        let mut checker = Checker::new(self);
        checker.names();
        checker.status();
        if self.extent_sectors == 0 || self.extent_sectors > MAX {
            checker.problems.push(GroupProblem::ExtentSize { sectors: self.extent_sectors });
        }
        self.pvs.iter().for_each(|pv| checker.pv(pv));
        self.lvs.iter().for_each(|lv| checker.lv(lv));
        checker.overlaps();
        checker.loops();
        checker.problems
    }

    /// A segment of a type that is not known, if there is one. Which extents it has cannot be told,
    /// so nothing may be allocated, while the other LVs can be used.
    #[must_use]
    pub fn unknown_segment(&self) -> Option<GroupPart> {
        self.lvs.iter().find_map(|lv| {
            let unknown = |segment: &LvSegment| matches!(segment.kind, SegmentKind::Unknown { .. });
            Some(GroupPart::Segment(lv.name.clone(), lv.segments.iter().position(unknown)? + 1))
        })
    }

    /// The free extents of a PV, in order; none of one that does not exist, nor beside an [`unknown
    /// segment`](Vg::unknown_segment). Meant for a VG without problems.
    #[must_use]
    pub fn free_extents(&self, pv: &str) -> Vec<Range<u64>> {
        if self.unknown_segment().is_some() {
            return Vec::new();
        }
        let mut checker = Checker::new(self);
        self.lvs.iter().for_each(|lv| checker.lv(lv));
        let mut uses = checker.uses.remove(pv).unwrap_or_default();
        uses.sort_by_key(|used| used.extents.start);
        let end = self.pv(pv).map_or(0, |pv| pv.pe_count);
        let mut free = Vec::new();
        let mut at = 0;
        for used in uses.into_iter().map(|used| used.extents).chain(std::iter::once(end..end)) {
            if used.start > at {
                free.push(at..used.start.min(end));
            }
            at = at.max(used.end);
        }
        free
    }
}

impl<'a> Checker<'a> {
    fn new(vg: &'a Vg) -> Checker<'a> {
        let pvs = vg.pvs.iter().map(|pv| (pv.name.as_str(), pv)).collect();
        let lvs = vg.lvs.iter().map(|lv| (lv.name.as_str(), lv)).collect();
        Checker { vg, pvs, lvs, uses: BTreeMap::new(), problems: Vec::new() }
    }

    fn names(&mut self) {
        let pvs = self.vg.pvs.iter().map(|pv| (GroupPart::Pv(pv.name.clone()), pv.id));
        let lvs = self.vg.lvs.iter().map(|lv| (GroupPart::Lv(lv.name.clone()), lv.id));
        for kind in [pvs.collect::<Vec<_>>(), lvs.collect()] {
            let (mut places, mut ids) = (BTreeSet::new(), BTreeSet::new());
            for (place, id) in kind {
                if !ids.insert(id) {
                    self.problems.push(GroupProblem::DuplicateId { place: place.clone() });
                }
                if let Some(place) = places.replace(place) {
                    self.problems.push(GroupProblem::DuplicateName { place });
                }
            }
        }
    }

    fn status(&mut self) {
        let vg = [(GroupPart::Vg, &self.vg.status, &VG_STATUS[..])];
        let pvs = self.vg.pvs.iter().map(|pv| (GroupPart::Pv(pv.name.clone()), &pv.status, &PV_STATUS[..]));
        let lvs = self.vg.lvs.iter().map(|lv| (GroupPart::Lv(lv.name.clone()), &lv.status, &LV_STATUS[..]));
        for (place, status, known) in vg.into_iter().chain(pvs).chain(lvs) {
            for word in status.iter().filter(|word| !known.contains(&word.as_str())) {
                self.problems.push(GroupProblem::UnknownStatus { place: place.clone(), word: word.clone() });
            }
        }
    }

    fn pv(&mut self, pv: &Pv) {
        let sectors = pv.pe_count.checked_mul(self.vg.extent_sectors);
        let end = sectors.and_then(|sectors| sectors.checked_add(pv.pe_start));
        // A byte's number has to fit into 63 bits. The recorded size of the device is not asked:
        // `pvresize` records what is behind `pe_start`, so that extents may end past it.
        if end.is_none_or(|end| end > i64::MAX as u64 / 512 || pv.pe_count > MAX) {
            self.problems.push(GroupProblem::TooLarge { place: GroupPart::Pv(pv.name.clone()) });
        }
    }

    fn lv(&mut self, lv: &'a Lv) {
        let mut expected = 0;
        for (i, segment) in lv.segments.iter().enumerate() {
            let place = GroupPart::Segment(lv.name.clone(), i + 1);
            let start = segment.start_extent;
            if start != expected {
                self.problems.push(GroupProblem::NotContiguous { place: place.clone(), start, expected });
            }
            if segment.extents == 0 {
                self.problems.push(GroupProblem::Empty { place: place.clone() });
            }
            expected = segment.end_extent();
            self.segment(segment, place);
        }
        if expected > MAX {
            self.problems.push(GroupProblem::TooLarge { place: GroupPart::Lv(lv.name.clone()) });
        }
    }

    fn segment(&mut self, segment: &'a LvSegment, place: GroupPart) {
        let names = segment.kind.references();
        let unknown = names.into_iter().filter(|name| self.extents(name).is_none());
        let unknown: Vec<_> = unknown
            .map(|name| GroupProblem::UnknownReference { place: place.clone(), name: name.to_owned() })
            .collect();
        self.problems.extend(unknown);
        let extents = segment.extents;
        let shape = match &segment.kind {
            SegmentKind::Striped { stripes, stripe_sectors } => {
                let count = stripes.len() as u64;
                if count == 0 || !extents.is_multiple_of(count) {
                    Some("its extents cannot be divided among its stripes")
                } else {
                    for stripe in stripes {
                        self.used(&stripe.name, stripe.extent, extents / count, &place);
                    }
                    (count > 1 && *stripe_sectors == 0).then_some("several stripes and no stripe size")
                }
            }
            SegmentKind::Mirror { legs, .. } => {
                for leg in legs {
                    self.used(&leg.name, leg.extent, extents, &place);
                }
                legs.is_empty().then_some("a mirror without legs")
            }
            SegmentKind::Raid(raid) => match raid.image_extents(extents) {
                None => Some("its extents cannot be divided among its images"),
                Some(each) => {
                    for image in &raid.images {
                        let whole = self.extents(&image.data).unwrap_or(each).max(each);
                        self.used(&image.data, 0, whole, &place);
                        image.meta.iter().for_each(|meta| self.used(meta, 0, 1, &place));
                    }
                    if raid.usable_extents(extents).is_none() {
                        Some("more extents in reserve than it has")
                    } else {
                        (raid.raid_type.level != 1 && raid.stripe_sectors.unwrap_or(0) == 0)
                            .then_some("striped images and no stripe size")
                    }
                }
            },
            SegmentKind::ThinPool { chunk_sectors: 0, .. }
            | SegmentKind::Snapshot { chunk_sectors: 0, .. } => Some("chunks of no size"),
            _ => None,
        };
        self.problems.extend(shape.map(|why| GroupProblem::Shape { place, why }));
    }

    /// Extents of what has this name.
    fn extents(&self, name: &str) -> Option<u64> {
        let pv = self.pvs.get(name).map(|pv| pv.pe_count);
        pv.or_else(|| self.lvs.get(name).map(|lv| lv.extents()))
    }

    fn used(&mut self, name: &'a str, start: u64, extents: u64, place: &GroupPart) {
        let Some(there) = self.extents(name) else { return };
        let end = start.saturating_add(extents);
        if end > there {
            let (name, place) = (name.to_owned(), place.clone());
            self.problems.push(GroupProblem::Beyond { place, name, end, extents: there });
        } else if extents > 0 {
            let used = Use { extents: start..end, place: place.clone() };
            self.uses.entry(name).or_default().push(used);
        }
    }

    fn overlaps(&mut self) {
        for (name, mut uses) in std::mem::take(&mut self.uses) {
            uses.sort_by_key(|used| (used.extents.start, used.extents.end));
            let mut uses = uses.into_iter();
            let Some(mut longest) = uses.next() else { continue };
            for used in uses {
                let extent = used.extents.start;
                let further = used.extents.end > longest.extents.end;
                if extent < longest.extents.end {
                    let (place, other) = (used.place.clone(), longest.place.clone());
                    self.problems.push(GroupProblem::Overlap { place, other, name: name.to_owned(), extent });
                }
                if further {
                    longest = used;
                }
            }
        }
    }

    /// LVs with nothing under them but PVs are done; then those on top of what is done. An LV that
    /// is left is in a loop or on top of one; one of each loop is named.
    fn loops(&mut self) {
        let mut on_top: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        for (&name, lv) in &self.lvs {
            let references = lv.segments.iter().flat_map(|segment| segment.kind.made_of());
            let under: BTreeSet<&str> = references
                .filter(|name| !self.pvs.contains_key(name) && self.lvs.contains_key(name))
                .collect();
            waiting.insert(name, under.len());
            under.into_iter().for_each(|under| on_top.entry(under).or_default().push(name));
        }
        let mut done: Vec<&str> =
            waiting.iter().filter(|(_, count)| **count == 0).map(|(&name, _)| name).collect();
        while let Some(name) = done.pop() {
            waiting.remove(name);
            for above in on_top.get(name).into_iter().flatten() {
                let count = waiting.entry(above).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    done.push(above);
                }
            }
        }
        if let Some(lv) = self.in_a_loop(&waiting) {
            self.problems.push(GroupProblem::Loop { lv });
        }
    }

    /// Going down from anywhere among those that are left never leaves them, so after as many steps
    /// as there are LVs one is in a loop.
    fn in_a_loop(&self, left: &BTreeMap<&'a str, usize>) -> Option<String> {
        let mut name = *left.keys().next()?;
        for _ in 0..left.len() {
            let mut segments = self.lvs.get(name)?.segments.iter();
            name = segments.find_map(|segment| {
                segment.kind.made_of().into_iter().find(|name| left.contains_key(name))
            })?;
        }
        Some(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PV_ID: &str = "vpgTv6-Hkit-mGXD-iyeK-sXNZ-JYJq-mGK5wG";

    /// Two PVs of 20 extents, LV a on them striped, b linear, r a raid1 of i and j with m and n.
    fn text() -> String {
        let id = |n: usize| format!("vpgTv6-Hkit-mGXD-iyeK-sXNZ-JYJq-mGK5w{n}");
        let pv = |n: usize| {
            format!(
                "pv{n} {{\nid = \"{}\"\nstatus = [\"ALLOCATABLE\"]\ndev_size = 200000\npe_start = 2048\npe_count = 20\n}}\n",
                id(n)
            )
        };
        let lv = |name: &str, n: usize, segment: &str| {
            format!(
                "{name} {{\nid = \"{}\"\nstatus = [\"READ\"]\nsegment_count = 1\nsegment1 {{\nstart_extent = 0\n{segment}\n}}\n}}\n",
                id(n)
            )
        };
        let linear = |place: &str| format!("extent_count = 2\ntype = \"striped\"\nstripes = [{place}]");
        [
            "contents = \"Text Format Volume Group\"\nversion = 1\nvg {\nid = \"",
            PV_ID,
            "\"\nseqno = 7\nextent_size = 8192\nstatus = []\nphysical_volumes {\n",
            &pv(0),
            &pv(1),
            "}\nlogical_volumes {\n",
            &lv(
                "a",
                0,
                "extent_count = 4\ntype = \"striped\"\nstripe_size = 128\nstripes = [\"pv0\", 0, \"pv1\", 0]",
            ),
            &lv("b", 1, &linear("\"pv0\", 2")),
            &lv("i", 2, &linear("\"pv0\", 4")),
            &lv("j", 3, &linear("\"pv1\", 4")),
            &lv("m", 4, &linear("\"pv0\", 6")),
            &lv("n", 5, &linear("\"pv1\", 6")),
            &lv("r", 6, "extent_count = 2\ntype = \"raid1\"\nraids = [\"m\", \"i\", \"n\", \"j\"]"),
            "}\n}\n",
        ]
        .concat()
    }

    fn problems(from: &str, to: &str) -> Vec<GroupProblem> {
        let text = text();
        assert!(text.contains(from), "{from}");
        Vg::parse(text.replacen(from, to, 1).as_bytes()).unwrap().problems()
    }

    #[test]
    fn each_problem_alone() {
        assert_eq!(problems("seqno", "seqno"), []);
        assert_eq!(problems("size = 200000", "size = 163840"), [], "as pvresize records it");
        let segment = |lv: &str| GroupPart::Segment(lv.to_owned(), 1);
        let word = "NEW".to_owned();
        let rows = [
            (
                "status = []",
                "status = [\"NEW\"]",
                GroupProblem::UnknownStatus { place: GroupPart::Vg, word: word.clone() },
            ),
            (
                "\"ALLOC",
                "\"NEW\", \"ALLOC",
                GroupProblem::UnknownStatus { place: GroupPart::Pv("pv0".to_owned()), word },
            ),
            ("j {", "b {", GroupProblem::DuplicateName { place: GroupPart::Lv("b".to_owned()) }),
            ("mGK5w1", "mGK5w0", GroupProblem::DuplicateId { place: GroupPart::Pv("pv1".to_owned()) }),
            ("extent_size = 8192", "extent_size = 0", GroupProblem::ExtentSize { sectors: 0 }),
            (
                "pe_count = 20",
                "pe_count = 9223372036854775807",
                GroupProblem::TooLarge { place: GroupPart::Pv("pv0".to_owned()) },
            ),
            (
                "start_extent = 0",
                "start_extent = 1",
                GroupProblem::NotContiguous { place: segment("a"), start: 1, expected: 0 },
            ),
            ("extent_count = 2", "extent_count = 0", GroupProblem::Empty { place: segment("b") }),
            (
                "type = \"raid1\"",
                "reshape_count = 2\ntype = \"raid1\"",
                GroupProblem::Shape { place: segment("r"), why: "more extents in reserve than it has" },
            ),
            (
                "extent_count = 4",
                "extent_count = 3",
                GroupProblem::Shape {
                    place: segment("a"),
                    why: "its extents cannot be divided among its stripes",
                },
            ),
            (
                "stripe_size = 128",
                "",
                GroupProblem::Shape { place: segment("a"), why: "several stripes and no stripe size" },
            ),
            (
                "\"pv0\", 2",
                "\"pv2\", 2",
                GroupProblem::UnknownReference { place: segment("b"), name: "pv2".to_owned() },
            ),
            (
                "\"pv0\", 2",
                "\"pv0\", 19",
                GroupProblem::Beyond { place: segment("b"), name: "pv0".to_owned(), end: 21, extents: 20 },
            ),
            (
                "\"pv0\", 2",
                "\"pv0\", 1",
                GroupProblem::Overlap {
                    place: segment("b"),
                    other: segment("a"),
                    name: "pv0".to_owned(),
                    extent: 1,
                },
            ),
            (
                "\"pv0\", 2",
                "\"i\", 1",
                GroupProblem::Beyond { place: segment("b"), name: "i".to_owned(), end: 3, extents: 2 },
            ),
            (
                "\"pv0\", 2",
                "\"j\", 0",
                GroupProblem::Overlap {
                    place: segment("r"),
                    other: segment("b"),
                    name: "j".to_owned(),
                    extent: 0,
                },
            ),
            ("\"pv0\", 2", "\"b\", 0", GroupProblem::Loop { lv: "b".to_owned() }),
        ];
        for (from, to, problem) in rows {
            let found = problems(from, to);
            assert!(found.contains(&problem), "{from} -> {to}: {found:?}");
        }
    }

    /// Thin snapshots that are merged name their origin and are named by it: no loop.
    #[test]
    fn descent_is_no_loop() {
        let thin = |name: &str, key: &str| {
            format!("type = \"thin\"\nthin_pool = \"i\"\ndevice_id = 1\n{key} = \"{name}\"")
        };
        let text = text()
            .replacen("type = \"striped\"\nstripes = [\"pv0\", 2]", &thin("n", "merge"), 1)
            .replacen("type = \"striped\"\nstripes = [\"pv1\", 6]", &thin("b", "origin"), 1);
        assert!(!format!("{:?}", Vg::parse(text.as_bytes()).unwrap().problems()).contains("Loop"));
    }

    #[test]
    fn numbers_at_the_edge() {
        for key in [
            "extent_size = ",
            "pe_start = ",
            "pe_count = ",
            "start_extent = ",
            "extent_count = ",
            "\"pv0\", ",
        ] {
            for value in ["9223372036854775807", "4294967296", "4294967295"] {
                let text = text().replace(key, &format!("{key}{value} #"));
                let text = text.replace("#0]", "]").replace("#0, ", ", ").replace("#2]", "]");
                if let Ok(vg) = Vg::parse(text.as_bytes()) {
                    let _ = (vg.problems(), vg.free_extents("pv0"), vg.free_extents("pv1"));
                }
            }
        }
        let negative = text().replacen("pe_start = 2048", "pe_start = -1", 1);
        assert!(Vg::parse(negative.as_bytes()).is_err());
    }

    #[test]
    fn what_is_free() {
        let vg = Vg::parse(text().as_bytes()).unwrap();
        assert_eq!(vg.free_extents("pv0").first(), Some(&(8..20)));
        assert_eq!(vg.free_extents("pv1"), [2..4, 8..20]);
        // It may have any of them.
        let vg = Vg::parse(text().replacen("\"striped\"", "\"new\"", 1).as_bytes()).unwrap();
        assert_eq!((vg.problems(), vg.free_extents("pv1")), (vec![], vec![]));
        assert_eq!(vg.unknown_segment(), Some(GroupPart::Segment("a".to_owned(), 1)));
    }

    /// A chain of ten thousand LVs, each on the one before it, and a hundred thousand segments: not
    /// quadratic.
    #[test]
    fn large_groups() {
        let vg = Vg::parse(text().as_bytes()).unwrap();
        let mut large = vg.clone();
        let (id, template) = (vg.id, &vg.lvs[1]);
        large.lvs.clear();
        for n in 0..10_000 {
            let below = if n == 0 { "pv0".to_owned() } else { format!("lv{}", n - 1) };
            let segments = (0..10).map(|i| LvSegment::linear(i, 1, &below, i)).collect();
            let mut lv = template.clone();
            (lv.name, lv.id, lv.segments) = (format!("lv{n}"), id, segments);
            large.lvs.push(lv);
        }
        let problems = large.problems();
        assert_eq!(problems.len(), 9_999, "all ids but one are duplicates");
        large.lvs[0].segments = vec![LvSegment::linear(0, 1, "lv9999", 0)];
        assert!(large.problems().iter().any(|problem| matches!(problem, GroupProblem::Loop { .. })));
    }
}
