//! From a logical volume as the text describes it to a volume that runs: a map of what it is made
//! of.
//!
//! Every volume that another one names is opened first, once. Linear and striped volumes can be
//! written; every other type keeps books of its own, and is opened read-only by the file named
//! after it. What has to be read for that is read through the volumes below.

use std::collections::BTreeMap;

use wattle_engine::volume::{Leg, MapSegment, SegmentTarget};
use wattle_engine::{MapSpec, MappedHandle, Volume, VolumeRef};
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Lv, LvSegment, SegmentKind};
use wattle_rt::{BufMut, Core};

use super::group::GroupScan;
use super::overlay::RUNS_MAX;
use super::{older, problems, snapshot};
use crate::layer::Layer;
use crate::problem::{Forced, Problem};

/// Most runs that the volumes of a group may consist of, all together: a volume with a few
/// megabytes of metadata may have [`RUNS_MAX`], and a group has any number of such volumes. They
/// take about 60 bytes each.
const GROUP_RUNS_MAX: usize = 8 * RUNS_MAX;

/// Texts that nest deeper than LVM2 can make them are refused.
const DEPTH_MAX: usize = 16;

/// Opens the volumes of a group.
pub(crate) struct Opener<'a> {
    pub(super) core: &'a Core,
    pub(super) group: &'a GroupScan,
    /// Nothing is written, so that what is missing need not be there.
    read_only: bool,
    /// The checks that are overridden.
    pub(super) forced: Forced,
    /// By physical volume; where one is missing, a volume that refuses every request.
    physical: Vec<VolumeRef>,
    /// By name, and whether it is seen as its segments are, or as what they hold stands for (one
    /// side of a snapshot).
    opened: BTreeMap<(String, View), Result<Opened, Problem>>,
    depth: usize,
    /// Runs of what was opened.
    runs: MapRoom,
    /// Everything that was started here.
    pub(super) running: Vec<Layer>,
}

/// What is seen of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    /// What its own segments say.
    Plain,
    /// What its operator sees, where that is something else.
    Snapshot,
}

/// A volume that runs.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub volume: VolumeRef,
    /// Parts of it are missing.
    pub partial: bool,
    /// As in [`super::VolumeState`].
    pub lost_bytes: u64,
    /// As in [`super::VolumeState`].
    pub images_out: usize,
    /// It must not be written, whatever is below it.
    pub read_only: bool,
    /// Parts of it are on physical volumes that the group went on without: what is there may be out
    /// of date.
    pub outdated: bool,
    /// What its operator should know.
    pub notes: Vec<String>,
}

impl<'a> Opener<'a> {
    /// `physical`: the volumes of the group's physical volumes, in their order.
    ///
    /// # Errors
    /// A [`Problem`]: what is below was stopped.
    pub async fn new(
        core: &'a Core,
        group: &'a GroupScan,
        read_only: bool,
        physical: Vec<Option<VolumeRef>>,
    ) -> Result<Self, Problem> {
        let mut opener = Self {
            core,
            group,
            read_only: read_only || group.is_elsewheres(),
            forced: Forced::default(),
            physical: Vec::new(),
            opened: BTreeMap::new(),
            depth: 0,
            runs: MapRoom { left: GROUP_RUNS_MAX },
            running: Vec::new(),
        };
        for (pv, volume) in (0..group.vg.pvs.len()).zip(physical) {
            let volume = opener.physical_volume(pv, volume).await?;
            opener.physical.push(volume);
        }
        Ok(opener)
    }

    /// A physical volume as long as the group's text has it. What of it is not there refuses every
    /// request: all of one that is missing, and what lies past the end of one that was cut short.
    async fn physical_volume(&mut self, pv: usize, volume: Option<VolumeRef>) -> Result<VolumeRef, Problem> {
        let (end_bytes, there_bytes) = (self.group.end_bytes(pv), self.group.there_bytes(pv));
        let (below, read_only) = match volume {
            Some(volume) if end_bytes <= there_bytes => return Ok(volume),
            Some(volume) => (vec![volume], self.read_only),
            None => (Vec::new(), true),
        };
        let there = SegmentTarget::Linear(Leg { below: 0, offset_bytes: 0 });
        let segments = [(there_bytes, there), (end_bytes - there_bytes, SegmentTarget::Missing)];
        let segments = segments.into_iter().filter(|(len_bytes, _)| *len_bytes > 0);
        let segments = segments.map(|(len_bytes, target)| MapSegment { len_bytes, target }).collect();
        self.start(&self.group.vg.pvs[pv].name, segments, below, read_only).await
    }

    /// With these checks overridden.
    pub fn with_forced(self, forced: Forced) -> Self {
        Self { forced, ..self }
    }

    /// Everything that was started, for the stack, which stops it in the end: last first.
    pub fn into_running(self) -> Vec<Layer> {
        self.running
    }

    /// The volume of this name, as its operator sees it.
    ///
    /// # Errors
    /// A [`Problem`]: it cannot be opened as it is.
    pub async fn open(&mut self, name: &str) -> Result<Opened, Problem> {
        let view = if snapshot::of(&self.group.vg, name).is_some() { View::Snapshot } else { View::Plain };
        self.open_once(name, view).await
    }

    /// A volume that is a part of another one: as its own segments are, and never written.
    pub(super) async fn open_part(&mut self, name: &str) -> Result<Opened, Problem> {
        let read_only = std::mem::replace(&mut self.read_only, true);
        let opened = self.open_once(name, View::Plain).await;
        self.read_only = read_only;
        opened
    }

    async fn open_once(&mut self, name: &str, view: View) -> Result<Opened, Problem> {
        let key = (name.to_owned(), view);
        if let Some(opened) = self.opened.get(&key) {
            return opened.clone();
        }
        let Some(lv) = self.group.vg.lv(name) else {
            return Err(problems::not_mapped(name, "there is no such volume in its group"));
        };
        self.depth += 1;
        let opened = if self.depth > DEPTH_MAX {
            Err(problems::not_mapped(&self.group.full_name(lv), "it is made of volumes in a loop"))
        } else {
            Box::pin(self.open_lv(lv, view)).await
        };
        self.depth -= 1;
        self.opened.insert(key, opened.clone());
        opened
    }

    /// What a volume is mapped to as its segments say, for one that runs already.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn map(&mut self, lv: &Lv) -> Result<MapSpec, Problem> {
        let plan = self.plan_lv(lv, View::Plain).await?;
        let read_only = plan.must_not_be_written() || self.read_only;
        Ok(MapSpec { below: plan.below, segments: plan.segments, read_only })
    }

    async fn open_lv(&mut self, lv: &Lv, view: View) -> Result<Opened, Problem> {
        let full_name = self.group.full_name(lv);
        let plan = self.plan_lv(lv, view).await?;
        let read_only = plan.must_not_be_written() || self.read_only;
        let volume = self.start(&full_name, plan.segments, plan.below, read_only).await?;
        let Plan { partial, lost_bytes, images_out, outdated, notes, .. } = plan;
        Ok(Opened { volume, partial, lost_bytes, images_out, read_only, outdated, notes })
    }

    async fn plan_lv(&mut self, lv: &Lv, view: View) -> Result<Plan, Problem> {
        let full_name = self.group.full_name(lv);
        // What a snapshot or a thin volume relies on must stay as it is.
        let relied_on = snapshot::is_relied_on(&self.group.vg, &lv.name);
        let mut plan = Plan { read_only: !lv.is_writable() || relied_on, ..Plan::default() };
        match snapshot::of(&self.group.vg, &lv.name) {
            Some(snapshot) if view == View::Snapshot => {
                self.snapshot(&full_name, snapshot, &mut plan).await?;
            }
            _ => {
                for segment in &lv.segments {
                    self.plan(&full_name, lv, segment, &mut plan).await?;
                }
            }
        }
        if plan.partial && !self.read_only && !plan.read_only {
            return Err(problems::missing_physical(&full_name, &self.group.lacking()));
        }
        Ok(plan)
    }

    async fn plan(
        &mut self,
        full_name: &str,
        lv: &Lv,
        segment: &LvSegment,
        plan: &mut Plan,
    ) -> Result<(), Problem> {
        let len_bytes = self.bytes(segment.extents);
        // Only what allocates in extents has several segments.
        let whole = lv.segments.len() == 1;
        let target = match &segment.kind {
            SegmentKind::Striped { stripe_sectors, stripes } => {
                let mut legs = Vec::new();
                let extents = segment.extents / stripes.len().max(1) as u64;
                for stripe in stripes {
                    legs.push(self.leg(stripe, self.bytes(extents), plan).await?);
                }
                match legs[..] {
                    [leg] => SegmentTarget::Linear(leg),
                    _ => SegmentTarget::Striped { stripe_bytes: stripe_sectors.saturating_mul(512), legs },
                }
            }
            SegmentKind::Zero => {
                plan.read_only = true;
                SegmentTarget::Zero
            }
            SegmentKind::Error => SegmentTarget::Missing,
            kind => {
                plan.read_only = true;
                return match kind {
                    SegmentKind::Mirror { legs, log, region_sectors, .. } => {
                        let log = log.as_deref().zip(*region_sectors).filter(|_| whole);
                        self.mirror(full_name, len_bytes, legs, log, plan).await
                    }
                    SegmentKind::Raid(raid) if whole => self.raid(full_name, segment, raid, plan).await,
                    SegmentKind::Thin { pool, device_id, external_origin, .. } if whole => {
                        let device_id = self.merged_device(&lv.name).unwrap_or(*device_id);
                        let origin = external_origin.as_deref();
                        self.thin(full_name, len_bytes, pool, device_id, origin, plan).await
                    }
                    SegmentKind::Writecache { cache, origin, block_bytes } if whole => {
                        let parts = (cache.as_str(), origin.as_str());
                        self.writecache(full_name, len_bytes, parts, *block_bytes, plan).await
                    }
                    SegmentKind::Integrity { origin, data_sectors, metadata, mode } if whole => {
                        let (parts, mode) = ((origin.as_str(), metadata.as_deref()), mode.as_deref());
                        self.integrity(full_name, len_bytes, parts, *data_sectors, mode, plan).await
                    }
                    SegmentKind::Cache { .. } if whole => self.cache(full_name, len_bytes, kind, plan).await,
                    SegmentKind::ThinPool { .. } | SegmentKind::CachePool { .. } => {
                        Err(problems::pool(full_name, kind.name()))
                    }
                    kind => Err(problems::unsupported(full_name, kind.name())),
                };
            }
        };
        plan.segments.push(MapSegment { len_bytes, target });
        Ok(())
    }

    /// Where a stripe of this length is: on a physical volume, or on another logical one.
    pub(super) async fn leg(
        &mut self,
        stripe: &Stripe,
        len_bytes: u64,
        plan: &mut Plan,
    ) -> Result<Leg, Problem> {
        let vg = &self.group.vg;
        if let Some(at) = vg.pvs.iter().position(|pv| pv.name == stripe.name) {
            match self.group.older.get(at).and_then(Option::as_ref) {
                Some(found) if !found.is_forced => return Err(older::problem(vg, found)),
                Some(found) => plan.note(older::forced_note(vg, found)),
                None => {}
            }
            let offset_bytes =
                vg.pvs[at].pe_start.saturating_mul(512).saturating_add(self.bytes(stripe.extent));
            let there_bytes = self.group.there_bytes(at).saturating_sub(offset_bytes);
            let lost_bytes = len_bytes.saturating_sub(there_bytes);
            plan.partial |= lost_bytes > 0;
            plan.lost_bytes = plan.lost_bytes.saturating_add(lost_bytes);
            plan.outdated |= vg.pvs[at].is_missing();
            return Ok(plan.leg(&format!("pv {at}"), &self.physical[at], offset_bytes));
        }
        let opened = self.open_once(&stripe.name, View::Plain).await?;
        plan.take(&opened);
        plan.read_only |= opened.read_only;
        Ok(plan.leg(&stripe.name, &opened.volume, self.bytes(stripe.extent)))
    }

    /// The whole of a volume that is a part of the one in the making.
    pub(super) async fn part(&mut self, name: &str, plan: &mut Plan) -> Result<(Leg, Volume), Problem> {
        let opened = self.open_part(name).await?;
        plan.take(&opened);
        Ok((plan.leg(name, &opened.volume, 0), self.reader(&opened)?))
    }

    /// A volume, to read from it here.
    pub(super) fn reader(&self, opened: &Opened) -> Result<Volume, Problem> {
        let name = opened.volume.name();
        opened.volume.open(self.core).map_err(|error| problems::unreadable(name, 0, error))
    }

    pub(super) fn bytes(&self, extents: u64) -> u64 {
        extents.saturating_mul(self.group.vg.extent_sectors).saturating_mul(512)
    }

    pub(super) async fn start(
        &mut self,
        name: &str,
        segments: Vec<MapSegment>,
        below: Vec<VolumeRef>,
        read_only: bool,
    ) -> Result<VolumeRef, Problem> {
        if !self.runs.take(segments.len()) {
            return Err(problems::group_too_scattered(name, GROUP_RUNS_MAX));
        }
        let spec = MapSpec { below, segments, read_only };
        let started = MappedHandle::start(self.core, name, spec).await;
        let handle = started.map_err(|error| problems::not_mapped(name, &error.to_string()))?;
        self.running.push(Layer::Mapped(handle.clone()));
        Ok(handle.volume())
    }
}

/// How many runs may still be taken.
struct MapRoom {
    left: usize,
}

impl MapRoom {
    /// Takes these, unless they are more than are left.
    fn take(&mut self, runs: usize) -> bool {
        let left = self.left.checked_sub(runs);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// Reads what a volume keeps about itself.
pub(super) async fn read(volume: &Volume, offset_bytes: u64, len_bytes: usize) -> Result<BufMut, Problem> {
    let (result, bytes) = volume.read(offset_bytes, BufMut::alloc(len_bytes)).await;
    result.map_err(|error| problems::unreadable(volume.name(), offset_bytes, error))?;
    Ok(bytes)
}

/// A volume's map in the making.
#[derive(Default)]
pub(super) struct Plan {
    pub segments: Vec<MapSegment>,
    pub below: Vec<VolumeRef>,
    /// What each of `below` is called.
    names: Vec<String>,
    pub read_only: bool,
    pub partial: bool,
    pub lost_bytes: u64,
    pub images_out: usize,
    pub outdated: bool,
    pub notes: Vec<String>,
}

impl Plan {
    fn must_not_be_written(&self) -> bool {
        self.read_only || self.partial || self.outdated
    }

    pub fn leg(&mut self, name: &str, volume: &VolumeRef, offset_bytes: u64) -> Leg {
        let known = self.names.iter().position(|known| known == name);
        let below = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.below.push(volume.clone());
            self.below.len() - 1
        });
        Leg { below, offset_bytes }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What is to be known of a volume below is to be known of this one.
    pub fn take(&mut self, below: &Opened) {
        self.partial |= below.partial;
        self.outdated |= below.outdated;
        self.images_out += below.images_out;
        below.notes.iter().for_each(|note| self.note(note.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing_from_the_others() {
        let mut room = MapRoom { left: 10 };
        assert_eq!([4, 7, 6, 1, 0].map(|runs| room.take(runs)), [true, false, true, false, true]);
    }
}
