//! Extents for volumes, where LVM2 would take them: both can be used on one group by turns, and
//! what a volume's policy forbids in one is not done by the other. What LVM2 takes was found by
//! asking it (the test beside LVM2 in `app` asks again), not by reading how it is made.
//!
//! The rules. Free areas of a physical volume are looked at from the largest to the smallest; one
//! that a pass would use in part counts from then on by what would be left of it. A pass has an
//! area of each physical volume that may be used: the largest, or the last one after it that holds
//! all that is wanted. Those that hold most get the stripes, in the order of the physical volumes
//! where they hold the same. Passes come in the order of the policies, the strictest one first, and
//! each takes as much from every stripe as the smallest area has:
//!
//! 1. *contiguous*: behind the volume; anywhere if there is none yet. One pass.
//! 2. *cling*: each stripe on the physical volume of the same stripe of the volume's first segment,
//!    or, of a new volume, of what was taken so far.
//! 3. *normal*: on physical volumes that something was taken of, or else on any; stripes on
//!    physical volumes of their own.
//! 4. *anywhere*: several stripes on one physical volume.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use thiserror::Error;
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Lv, Pv, Vg};

/// Where extents may be, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AllocationPolicy {
    /// Behind the extents that there are, and in one piece.
    Contiguous,
    /// On the physical volumes of the extents that there are.
    Cling,
    /// Stripes on physical volumes of their own.
    #[default]
    Normal,
    /// Wherever there is room.
    Anywhere,
}

impl AllocationPolicy {
    /// The policy of a volume, or of what is new in a group.
    #[must_use]
    pub fn of(vg: &Vg, lv: Option<&Lv>) -> Self {
        let own = lv.and_then(Lv::allocation_policy).and_then(Self::parse);
        own.or_else(|| vg.allocation_policy().and_then(Self::parse)).unwrap_or_default()
    }

    /// What LVM2's text calls it; `None` for what it inherits.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "contiguous" => Some(Self::Contiguous),
            "cling" | "cling_by_tags" => Some(Self::Cling),
            "normal" => Some(Self::Normal),
            "anywhere" => Some(Self::Anywhere),
            _ => None,
        }
    }

    /// Its letter in attributes.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Contiguous => 'c',
            Self::Cling => 'l',
            Self::Normal => 'n',
            Self::Anywhere => 'a',
        }
    }
}

/// Extents that lie one after the other on each stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentRun {
    /// How many each stripe has.
    pub extents_each: u64,
    /// Where they start.
    pub stripes: Vec<Stripe>,
}

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// How many stripes.
    pub stripes: usize,
    /// Extents of each.
    pub extents_each: u64,
    /// Fewer do where there are not so many.
    pub at_most: bool,
    /// Where they may be.
    pub policy: AllocationPolicy,
    /// Only on these physical volumes, by their names in the text, and in this order; empty for
    /// all.
    pub on: &'a [String],
    /// Best behind these: the first extents after the volume that grows.
    pub follow: &'a [Stripe],
    /// Then near these: the stripes of its first segment.
    pub near: &'a [Stripe],
}

/// There are not so many extents, or not on so many physical volumes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{wanted} extents are wanted{}, {free} are free on {physical} physical volumes, the largest run has {largest}",
    .policy.map_or("", |policy| match policy {
        AllocationPolicy::Contiguous => " in one piece (its allocation policy is contiguous)",
        AllocationPolicy::Cling => " where it is already (its allocation policy is cling)",
        AllocationPolicy::Normal | AllocationPolicy::Anywhere => "",
    })
)]
pub struct NoRoom {
    /// In all stripes.
    pub wanted: u64,
    /// Free ones that may be used.
    pub free: u64,
    /// How many physical volumes have any.
    pub physical: usize,
    /// How many each run has to lie on.
    pub stripes: usize,
    /// The longest run of them.
    pub largest: u64,
    /// The policy that kept from using them, if one did.
    pub policy: Option<AllocationPolicy>,
}

/// Finds extents.
///
/// # Errors
/// [`NoRoom`].
pub fn allocate(vg: &Vg, want: Want<'_>) -> Result<Vec<ExtentRun>, NoRoom> {
    let room = Room::of(vg, want.on);
    let no_room = room.refusal(want);
    let mut taking = Taking { room, want, left: want.extents_each, runs: Vec::new() };
    taking.contiguous();
    if want.policy >= AllocationPolicy::Cling {
        taking.cling();
    }
    if want.policy >= AllocationPolicy::Normal {
        taking.normal();
    }
    if want.policy >= AllocationPolicy::Anywhere {
        taking.anywhere();
    }
    match taking.left {
        0 => Ok(taking.runs),
        _ if want.at_most && !taking.runs.is_empty() => Ok(taking.runs),
        _ => Err(no_room),
    }
}

/// How many extents may be used.
#[must_use]
pub fn free_extents(vg: &Vg, on: &[String]) -> u64 {
    Room::of(vg, on).pvs.iter().flat_map(|(_, areas)| areas).map(|area| area.len).sum()
}

/// A run of free extents.
#[derive(Debug, Clone, Copy)]
struct FreeArea {
    start: u64,
    len: u64,
    /// What a pass would leave of it.
    left: u64,
}

/// The free areas by physical volume, the largest first.
struct Room {
    pvs: Vec<(String, Vec<FreeArea>)>,
}

/// How a pass chooses among the areas of a physical volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The last one that holds all that is wanted, or else the largest.
    Fitting,
    /// The same, and it has to hold all.
    Whole,
    /// The last one.
    Last,
}

/// What a pass would use: how much of which area of which physical volume.
type Candidate = (usize, FreeArea, u64);

impl Room {
    fn of(vg: &Vg, on: &[String]) -> Self {
        let mut seen = BTreeSet::new();
        let named = on.iter().filter(|name| seen.insert(*name)).filter_map(|name| vg.pv(name));
        let pvs: Vec<&Pv> = if on.is_empty() { vg.pvs.iter().collect() } else { named.collect() };
        let pvs = pvs.into_iter().filter(|pv| pv.status.iter().any(|word| word == "ALLOCATABLE"));
        let areas = |name: &str| {
            let runs = vg.free_extents(name).into_iter();
            let area = |run: std::ops::Range<u64>| {
                let len = run.end - run.start;
                FreeArea { start: run.start, len, left: len }
            };
            runs.map(area).collect::<Vec<_>>()
        };
        Self { pvs: pvs.map(|pv| (pv.name.clone(), areas(&pv.name))).collect() }
    }

    fn refusal(&self, want: Want<'_>) -> NoRoom {
        let lens = || self.pvs.iter().flat_map(|(_, areas)| areas).map(|area| area.len);
        let free = lens().sum();
        let physical = self.pvs.iter().filter(|(_, areas)| !areas.is_empty()).count();
        let wanted = want.extents_each.saturating_mul(want.stripes as u64);
        let policy = (free >= wanted && physical >= want.stripes).then_some(want.policy);
        let stripes = want.stripes;
        NoRoom { wanted, free, physical, stripes, largest: lens().max().unwrap_or(0), policy }
    }

    /// Every area counts by its length again.
    fn begin_pass(&mut self) {
        for (_, areas) in &mut self.pvs {
            areas.iter_mut().for_each(|area| area.left = area.len);
            areas.sort_by_key(|area| Reverse(area.len));
        }
    }

    /// The area of a physical volume that a pass settles on when `wanted` extents are.
    fn choose(&mut self, pv: usize, wanted: u64, choice: Choice) -> Option<Candidate> {
        let areas = &mut self.pvs[pv].1;
        let mut chosen = None;
        let mut at = 0;
        while at < areas.len() {
            let area = areas[at];
            let whole = area.left >= wanted;
            let first = chosen.is_none() && choice != Choice::Whole;
            if area.left > 0 && (first || whole || choice == Choice::Last) {
                let used = area.left.min(wanted);
                chosen = Some((pv, area, used));
                at = set_left(areas, at, area.left - used);
            }
            at += 1;
        }
        chosen
    }

    /// What is left of each area, until `most` are found.
    fn add_all(&mut self, wanted: u64, most: usize, found: &mut Vec<Candidate>) {
        for (pv, (_, areas)) in self.pvs.iter_mut().enumerate() {
            let mut at = 0;
            while at < areas.len() && found.len() < most {
                let area = areas[at];
                if area.left > 0 {
                    let used = area.left.min(wanted);
                    found.push((pv, area, used));
                    at = set_left(areas, at, area.left - used);
                }
                at += 1;
            }
        }
    }

    /// Takes the first extents of areas, of one that is there twice the next ones too.
    fn take(&mut self, candidates: &[Candidate], extents_each: u64) -> ExtentRun {
        let stripe = |&(pv, area, _): &Candidate| {
            let (name, areas) = &mut self.pvs[pv];
            let end = |area: &FreeArea| area.start + area.len;
            let mut extent = area.start;
            if let Some(at) = areas.iter().position(|known| end(known) == end(&area)) {
                let mut rest = areas.remove(at);
                extent = rest.start;
                rest.start += extents_each;
                rest.len -= extents_each;
                rest.left = rest.len;
                if rest.len > 0 {
                    // Behind those as large as what is left of it.
                    let behind = areas.iter().position(|known| known.left < rest.left);
                    areas.insert(behind.unwrap_or(areas.len()), rest);
                }
            }
            Stripe { name: name.clone(), extent }
        };
        ExtentRun { extents_each, stripes: candidates.iter().map(stripe).collect() }
    }
}

/// Lets an area count by what is left of it: it is behind all that have as much then, unless
/// nothing is left. Where it is.
fn set_left(areas: &mut [FreeArea], at: usize, left: u64) -> usize {
    areas[at].left = left;
    if left == 0 {
        return at;
    }
    let smaller = areas[at + 1..].iter().position(|other| other.left < left);
    let to = smaller.map_or(areas.len(), |ahead| at + 1 + ahead) - 1;
    areas[at..=to].rotate_left(1);
    to
}

/// Extents in the taking.
struct Taking<'a> {
    room: Room,
    want: Want<'a>,
    /// Of each stripe.
    left: u64,
    runs: Vec<ExtentRun>,
}

impl Taking<'_> {
    fn contiguous(&mut self) {
        if self.want.follow.len() == self.want.stripes {
            let follow = self.want.follow;
            self.by_place(|stripe, pv, area| {
                follow[stripe].name == pv && follow[stripe].extent == area.start
            });
        } else {
            let whole = self.want.policy == AllocationPolicy::Contiguous;
            self.by_size(|_| true, if whole { Choice::Whole } else { Choice::Fitting });
        }
    }

    fn cling(&mut self) {
        let near = self.want.near;
        if near.is_empty() {
            while !self.runs.is_empty() {
                let runs = self.runs.clone();
                let was =
                    move |stripe: usize, pv: &str| runs.iter().any(|run| run.stripes[stripe].name == pv);
                if !self.by_place(|stripe, pv, _| was(stripe, pv)) {
                    return;
                }
            }
            return;
        }
        let is_near = |pv: &str| near.iter().any(|stripe| stripe.name == pv);
        while self.by_place(|stripe, pv, _| near.get(stripe).is_some_and(|near| near.name == pv))
            || self.by_size(is_near, Choice::Last)
        {}
    }

    fn normal(&mut self) {
        loop {
            let taken: BTreeSet<_> =
                self.runs.iter().flat_map(|run| &run.stripes).map(|stripe| stripe.name.clone()).collect();
            if !self.by_size(|pv| taken.contains(pv), Choice::Last)
                && !self.by_size(|_| true, Choice::Fitting)
            {
                return;
            }
        }
    }

    /// Every area of every physical volume has its turn, again and again, until there are enough.
    fn anywhere(&mut self) {
        while self.left > 0 {
            self.room.begin_pass();
            let mut found = Vec::new();
            loop {
                let before = found.len();
                self.room.add_all(self.left, self.want.stripes, &mut found);
                if found.len() == self.want.stripes {
                    break;
                }
                if found.len() == before {
                    return;
                }
            }
            found.sort_by_key(|(_, _, used)| Reverse(*used));
            self.take(&found);
        }
    }

    /// A pass in which each stripe has its place: an area of the physical volume where
    /// `fits(stripe, pv, area)`.
    fn by_place(&mut self, fits: impl Fn(usize, &str, &FreeArea) -> bool) -> bool {
        if self.left == 0 {
            return false;
        }
        self.room.begin_pass();
        let mut places: Vec<Option<Candidate>> = vec![None; self.want.stripes];
        for (at, (pv, areas)) in self.room.pvs.iter().enumerate() {
            let found = areas.iter().find_map(|area| {
                let free = |stripe: &usize| places[*stripe].is_none() && fits(*stripe, pv, area);
                Some(((0..places.len()).find(free)?, *area))
            });
            if let Some((stripe, area)) = found {
                places[stripe] = Some((at, area, area.len));
            }
        }
        let Some(places) = places.into_iter().collect::<Option<Vec<_>>>() else { return false };
        self.take(&places)
    }

    /// A pass in which the physical volumes with the most room get the stripes.
    fn by_size(&mut self, may: impl Fn(&str) -> bool, choice: Choice) -> bool {
        if self.left == 0 {
            return false;
        }
        self.room.begin_pass();
        let mut found = Vec::new();
        for pv in 0..self.room.pvs.len() {
            if may(&self.room.pvs[pv].0) {
                found.extend(self.room.choose(pv, self.left, choice));
            }
        }
        if found.len() < self.want.stripes {
            return false;
        }
        found.sort_by_key(|(_, _, used)| Reverse(*used));
        found.truncate(self.want.stripes);
        self.take(&found)
    }

    fn take(&mut self, found: &[Candidate]) -> bool {
        let Some(smallest) = found.iter().map(|(_, _, used)| *used).min() else { return false };
        self.commit(found, smallest.min(self.left));
        true
    }

    fn commit(&mut self, found: &[Candidate], extents_each: u64) {
        let run = self.room.take(found, extents_each);
        self.left -= extents_each;
        self.runs.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_format::lvm::{Id, LvSegment, Stamp};

    /// Two physical volumes of 100 extents and one of 20; of the first 10..30 and 40..50 are in
    /// use.
    fn vg() -> Vg {
        let id = |n| Id::from_random([n; 32]);
        let mut vg = Vg::new("vg", id(0), 8192);
        for (n, extents) in [(0, 100), (1, 100), (2, 20)] {
            vg.pvs.push(Pv::new(&format!("pv{n}"), id(n), 1 << 30, 2048, extents));
        }
        let stamp = Stamp { description: String::new(), host: String::new(), time: 0 };
        let used = vec![LvSegment::linear(0, 20, "pv0", 10), LvSegment::linear(20, 10, "pv0", 40)];
        vg.lvs.push(Lv::new("used", id(9), &stamp, used));
        vg
    }

    /// Of the volume at its end, if `follow` names where that is.
    fn find_with(
        policy: AllocationPolicy,
        (stripes, extents_each, at_most): (usize, u64, bool),
        on: &[&str],
        follow: &[(&str, u64)],
    ) -> Result<Vec<String>, NoRoom> {
        let on: Vec<_> = on.iter().map(|&name| name.to_owned()).collect();
        let stripe = |&(name, extent): &(&str, u64)| Stripe { name: name.to_owned(), extent };
        let follow: Vec<_> = follow.iter().map(stripe).collect();
        let near = &follow;
        let want = Want { stripes, extents_each, at_most, policy, on: &on, follow: &follow, near };
        let show = |piece: &ExtentRun| {
            let stripes = piece.stripes.iter().map(|stripe| format!("{}:{}", stripe.name, stripe.extent));
            format!("{} {}", piece.extents_each, stripes.collect::<Vec<_>>().join(" "))
        };
        Ok(allocate(&vg(), want)?.iter().map(show).collect())
    }

    fn find(
        stripes: usize,
        extents_each: u64,
        on: &[&str],
        follow: &[(&str, u64)],
    ) -> Result<Vec<String>, NoRoom> {
        find_with(AllocationPolicy::Normal, (stripes, extents_each, false), on, follow)
    }

    #[test]
    fn one_piece_where_there_is_one_on_the_first_that_has_it() {
        assert_eq!(find(1, 5, &[], &[]).unwrap(), ["5 pv0:0"]);
        assert_eq!(find(1, 10, &[], &[]).unwrap(), ["10 pv0:30"], "the last of equals");
        assert_eq!(find(1, 60, &[], &[]).unwrap(), ["60 pv1:0"]);
        assert_eq!(find(1, 55, &["pv0"], &[]).unwrap(), ["50 pv0:50", "5 pv0:0"]);
        assert_eq!(find(1, 130, &[], &[]).unwrap(), ["100 pv1:0", "30 pv0:50"]);
        assert_eq!(
            find(1, 5, &["pv2", "pv1"], &[]).unwrap(),
            ["5 pv2:0"],
            "in the order in which they are named"
        );
        assert_eq!(
            find(1, 190, &[], &[]).unwrap(),
            ["100 pv1:0", "50 pv0:50", "10 pv0:30", "10 pv0:0", "20 pv2:0"]
        );
    }

    #[test]
    fn stripes_are_on_physical_volumes_of_their_own() {
        assert_eq!(find(2, 50, &[], &[]).unwrap(), ["50 pv0:50 pv1:0"]);
        assert_eq!(find(3, 20, &[], &[]).unwrap(), ["20 pv0:50 pv1:0 pv2:0"]);
        let apart = ["50 pv1:0 pv0:50", "10 pv1:50 pv0:0", "10 pv1:60 pv0:30"];
        assert_eq!(find(2, 70, &[], &[]).unwrap(), apart);
        let all = |each| find_with(AllocationPolicy::Normal, (2, each, true), &[], &[]).unwrap();
        assert_eq!(all(95), [&apart[..], &["20 pv1:70 pv2:0"]].concat(), "as many as there are");
        assert_eq!(free_extents(&vg(), &[]), 190);
    }

    #[test]
    fn a_volume_grows_where_it_ends() {
        assert_eq!(find(1, 8, &[], &[("pv0", 30)]).unwrap(), ["8 pv0:30"]);
        assert_eq!(find(1, 15, &[], &[("pv0", 30)]).unwrap(), ["10 pv0:30", "5 pv0:50"]);
        assert_eq!(find(1, 15, &["pv1"], &[("pv0", 30)]).unwrap(), ["15 pv1:0"], "not where it may not");
        assert_eq!(find(1, 5, &[], &[("pv0", 20)]).unwrap(), ["5 pv0:50"], "that is in use");
    }

    #[test]
    fn a_policy_forbids_what_is_elsewhere() {
        use AllocationPolicy::{Anywhere, Cling, Contiguous};
        let find = |policy, each, follow| find_with(policy, (1, each, false), &[], follow);
        assert_eq!(find(Contiguous, 100, &[]).unwrap(), ["100 pv1:0"]);
        let refused = find(Contiguous, 101, &[]).unwrap_err();
        assert!(refused.to_string().contains("policy is contiguous"), "{refused}");
        assert_eq!(find(Contiguous, 10, &[("pv0", 30)]).unwrap(), ["10 pv0:30"]);
        assert!(find(Contiguous, 11, &[("pv0", 30)]).is_err());
        assert_eq!(find(Cling, 60, &[("pv0", 30)]).unwrap(), ["10 pv0:30", "50 pv0:50"]);
        assert!(find(Cling, 71, &[("pv0", 30)]).is_err());
        let shared = find_with(Anywhere, (4, 20, false), &[], &[]).unwrap();
        assert_eq!(shared, ["10 pv0:50 pv1:0 pv0:0 pv0:30", "10 pv0:60 pv1:10 pv2:0 pv0:70"]);
        assert_eq!(find(Anywhere, 60, &[]).unwrap(), ["60 pv1:0"], "where there is room all the same");
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        let none = find(1, 191, &[], &[]).unwrap_err();
        assert_eq!(
            none,
            NoRoom { wanted: 191, free: 190, physical: 3, stripes: 1, largest: 100, policy: None }
        );
        assert_eq!(find(4, 1, &[], &[]).unwrap_err().physical, 3);
        assert_eq!(
            find(2, 1, &["pv1"], &[]).unwrap_err(),
            NoRoom { wanted: 2, free: 100, physical: 1, stripes: 2, largest: 100, policy: None }
        );
        let mut set_aside = vg();
        set_aside.pvs[1].status.clear();
        assert_eq!(free_extents(&set_aside, &[]), 90, "not allocatable");
    }
}
