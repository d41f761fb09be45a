//! What rotted where, what must be found of it, and what may be said.

use std::collections::BTreeSet;

use wattle_engine::FinishedJob;
use wattle_engine::geometry::LevelKind;
use wattle_engine::job::{JobEnd, SumVerdict};
use wattle_engine::units::{MemberIx, Sector};

use crate::site::SitePlan;

/// Sectors of a region of notes, and of a block.
const REGION: u64 = 128;

/// Sectors of a member that hold something else.
struct Rotted {
    slot: MemberIx,
    at: u64,
    len: u64,
    /// In the space of `Geometry::sync_sectors`.
    sync: u64,
    /// A crash came between: what became of it is not known.
    unsure: bool,
    /// It need not be found: a scrub recorded it that could not know.
    taken: bool,
}

pub(super) struct RotOracle {
    plan: SitePlan,
    /// Which of the slots have a member.
    failed: Option<MemberIx>,
    /// Regions that were written since the scrub began that recorded last; `None` if none did, or
    /// it may be void.
    written: Option<BTreeSet<u64>>,
    /// Regions that were written since the scrub began that runs.
    during: BTreeSet<u64>,
    rotted: Vec<Rotted>,
    /// The members' data before it rotted, and at the last look.
    pristine: Vec<Vec<u8>>,
    before: Vec<Vec<u8>>,
    /// Rot that was found, as it had to be.
    pub proved: u64,
    pub writes: u64,
    pub wrong: Option<String>,
    pub log: Option<Vec<String>>,
}

impl RotOracle {
    pub fn new(plan: SitePlan, verbose: bool) -> RotOracle {
        RotOracle {
            plan,
            failed: None,
            written: None,
            during: BTreeSet::new(),
            rotted: Vec::new(),
            pristine: Vec::new(),
            before: Vec::new(),
            proved: 0,
            writes: 0,
            wrong: None,
            log: verbose.then(Vec::new),
        }
    }

    pub fn accuse(&mut self, what: impl Into<String>) {
        if self.wrong.is_none() {
            self.wrong = Some(what.into());
        }
    }

    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(what());
        }
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        let sectors = self.plan.geometry.member_sectors(MemberIx(0)).0;
        self.plan.slots().map(|slot| self.plan.data(slot, 0, sectors, false)).collect()
    }

    /// A quiet moment. What has not rotted is what it should be: a crash may have left more than
    /// one content possible, and this is the one that it left.
    pub fn look(&mut self) {
        self.before = self.contents();
        let was = std::mem::replace(&mut self.pristine, self.before.clone());
        for rotted in &self.rotted {
            let here = rotted.at as usize * 512..(rotted.at + rotted.len) as usize * 512;
            let slot = rotted.slot.index();
            self.pristine[slot][here.clone()].copy_from_slice(&was[slot][here]);
        }
    }

    pub fn fail(&mut self, member: MemberIx) {
        self.tell(|| format!("member {member} fails"));
        self.failed = Some(member);
    }

    /// A client writes. From now on nothing is known of the regions.
    pub fn write(&mut self, first: u64, len: u64) {
        self.writes += 1;
        let geometry = &self.plan.geometry;
        let (from, to) = match geometry.kind() {
            LevelKind::Parity => {
                let (width, chunk) = (geometry.stripe_data_sectors().0, geometry.chunk().0);
                (first / width * chunk, (first + len).div_ceil(width) * chunk)
            }
            _ => (first, first + len),
        };
        let regions = from / REGION..to.div_ceil(REGION);
        self.during.extend(regions.clone());
        self.written.iter_mut().for_each(|written| written.extend(regions.clone()));
    }

    pub fn scrub_begins(&mut self) {
        self.during.clear();
    }

    pub fn scrub_ends(&mut self, recorded: bool) {
        if recorded {
            let known = self.written.replace(self.during.clone());
            for number in 0..self.rotted.len() {
                let one = &self.rotted[number];
                let region = one.sync / REGION;
                let must = known.as_ref().is_some_and(|written| !written.contains(&region));
                let taken = !must || !self.alone(one);
                self.rotted[number].taken |= taken;
            }
        }
    }

    /// The last record may be void.
    pub fn forget(&mut self) {
        self.written = None;
    }

    /// A kill or a power cut.
    pub fn crashed(&mut self) {
        self.tell(|| "a crash".to_owned());
        self.forget();
        self.rotted.iter_mut().for_each(|rotted| rotted.unsure = true);
    }

    fn sync_of(&self, slot: MemberIx, at: u64) -> Option<u64> {
        match self.plan.geometry.kind() {
            LevelKind::Parity => Some(at),
            _ => self.plan.geometry.array_sector_at(slot, Sector(at)).map(|sector| sector.0),
        }
    }

    pub fn rot(&mut self, slot: MemberIx, at: u64, bytes: &[u8]) {
        let len = bytes.len() as u64 / 512;
        let Some(sync) = self.sync_of(slot, at) else { return };
        let same = |rotted: &Rotted| rotted.slot == slot && rotted.at == at;
        if self.rotted.iter().any(same) || self.plan.data(slot, at, len, false) == bytes {
            return;
        }
        self.plan.control_in(slot).poke((self.plan.data_offset + at) * 512, bytes);
        self.rotted.push(Rotted { slot, at, len, sync, unsure: false, taken: false });
        self.tell(|| format!("member {slot} rots at {at}+{len}, sync {sync}"));
    }

    /// What is left is put right by hand.
    pub fn heal(&mut self) {
        for rotted in std::mem::take(&mut self.rotted) {
            if rotted.unsure {
                self.rotted.push(rotted);
                continue;
            }
            let (from, to) = (rotted.at as usize * 512, (rotted.at + rotted.len) as usize * 512);
            let bytes = &self.pristine[rotted.slot.index()][from..to];
            self.plan.control_in(rotted.slot).poke((self.plan.data_offset + rotted.at) * 512, bytes);
        }
    }

    /// What a scrub says of members.
    pub fn found(&mut self, report: &FinishedJob) {
        if report.end != JobEnd::Finished {
            return;
        }
        let unit = u64::from(self.plan.sector_bytes) / 512;
        for mismatch in &report.mismatches {
            if !matches!(mismatch.sums, SumVerdict::Proven | SumVerdict::Rotted) {
                continue;
            }
            let Some(slot) = mismatch.culprit else {
                self.accuse(format!("rot without a culprit: {mismatch:?}"));
                return;
            };
            // Where nothing can be made anew the whole block is named.
            let whole = mismatch.sums == SumVerdict::Rotted;
            let named: Vec<u64> =
                (mismatch.member.start.0..mismatch.member.end.0).step_by(unit as usize).collect();
            let rotted = |at: &u64| {
                let within = |rotted: &Rotted| (rotted.at..rotted.at + rotted.len).contains(at);
                self.rotted.iter().any(|rotted| rotted.slot == slot && within(rotted))
            };
            let right = if whole { named.iter().any(rotted) } else { named.iter().all(rotted) };
            if !right {
                self.accuse(format!("member {slot} is accused of rot that it does not have: {mismatch:?}"));
            }
        }
        if report.sums.unexplained_sectors > 0
            && self.rotted.iter().all(|rotted| !rotted.unsure)
            && !self.beyond()
        {
            self.accuse(format!("something was written and not noted: {:?}", report.sums));
        }
    }

    /// Whether more rotted in a block than one member.
    fn beyond(&self) -> bool {
        self.rotted.iter().any(|one| !self.alone(one)) || self.failed.is_some()
    }

    fn alone(&self, one: &Rotted) -> bool {
        let block = |rotted: &Rotted| rotted.sync / REGION;
        self.rotted.iter().all(|other| other.slot == one.slot || block(other) != block(one))
    }

    /// A scrub or repair did not start.
    pub fn not_started(&mut self, repairs: bool) {
        if repairs && self.written.is_some() && self.failed.is_none() {
            self.accuse("nothing is recorded, though a scrub did");
        }
    }

    /// After a scrub in a quiet moment: what must have been found, and repaired.
    pub fn complete(&mut self, report: &FinishedJob, repairs: bool) {
        if report.end != JobEnd::Finished {
            self.accuse(format!("a quiet scrub ends as {:?}", report.end));
            return;
        }
        let after = self.contents();
        let unit = self.plan.sector_bytes as usize;
        for (slot, after) in (0..).map(MemberIx).zip(&after) {
            if self.failed == Some(slot) {
                continue;
            }
            let (before, pristine) = (&self.before[slot.index()], &self.pristine[slot.index()]);
            for at in (0..after.len()).step_by(unit) {
                let here = at..(at + unit).min(after.len());
                let unsure = |rotted: &Rotted| rotted.unsure && rotted.slot == slot;
                let became_right = repairs && after[here.clone()] == pristine[here.clone()];
                if after[here.clone()] != before[here.clone()]
                    && !became_right
                    && !self.rotted.iter().any(unsure)
                {
                    self.accuse(format!("member {slot} was written at sector {}: not what it was", at / 512));
                    return;
                }
            }
        }
        let Some(written) = &self.written else { return };
        if self.failed.is_some() || self.rotted.iter().any(|rotted| rotted.unsure) {
            return;
        }
        let mut missed = None;
        let mut proved = 0;
        for rotted in &self.rotted {
            if written.contains(&(rotted.sync / REGION)) || rotted.taken || !self.alone(rotted) {
                continue;
            }
            let (from, to) = (rotted.at as usize * 512, (rotted.at + rotted.len) as usize * 512);
            let here = &after[rotted.slot.index()][from..to];
            let right = here == &self.pristine[rotted.slot.index()][from..to];
            let was_right = self.before[rotted.slot.index()][from..to] == *here && right;
            let named = report.mismatches.iter().any(|mismatch| {
                mismatch.culprit == Some(rotted.slot)
                    && mismatch.sums == SumVerdict::Proven
                    && (mismatch.member.start.0..mismatch.member.end.0).contains(&rotted.at)
            });
            if !(named || was_right) || (repairs && !right) {
                missed = Some(format!(
                    "rot of member {} at {} is {}",
                    rotted.slot,
                    rotted.at,
                    if named { "not repaired" } else { "not found" }
                ));
            }
            proved += 1;
        }
        self.proved += proved;
        if let Some(missed) = missed {
            self.accuse(missed);
        }
    }
}
