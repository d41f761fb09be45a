//! From a logical volume as the text describes it to a volume that runs: a map of what it is made of.
//!
//! Every volume that another one names is opened first, once. What LVM2 could not write either is opened read-only.

use std::collections::BTreeMap;

use wattle_engine::volume::{Leg, Segment as MapSegment, Target};
use wattle_engine::{MapSpec, MappedHandle, VolumeRef};
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Kind, Lv, Segment};
use wattle_rt::Core;

use super::group::GroupScan;
use super::problems;
use crate::problem::Problem;

/// Texts that nest deeper than LVM2 can make them are refused.
const DEPTH_MAX: usize = 16;

/// Opens the volumes of a group.
pub(crate) struct Opener<'a> {
    core: &'a Core,
    group: &'a GroupScan,
    /// Nothing is written, so that what is missing need not be there.
    read_only: bool,
    /// By physical volume; where one is missing, a volume that refuses every request.
    physical: Vec<VolumeRef>,
    opened: BTreeMap<String, Result<Opened, Problem>>,
    depth: usize,
    /// Everything that was started here.
    handles: Vec<MappedHandle>,
}

/// A volume that runs.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub volume: VolumeRef,
    /// Parts of it are missing.
    pub partial: bool,
    /// It must not be written, whatever is below it.
    pub read_only: bool,
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
        let has = |word: &str| group.vg.status.iter().any(|status| status == word);
        let mut opener = Self {
            core,
            group,
            // Nobody writes what was exported to another system, or what several share by locks that we do not take.
            read_only: read_only || !has("WRITE") || has("EXPORTED") || group.vg.lock_type.is_some(),
            physical: Vec::new(),
            opened: BTreeMap::new(),
            depth: 0,
            handles: Vec::new(),
        };
        for (pv, volume) in group.vg.pvs.iter().zip(physical) {
            let volume = match volume {
                Some(volume) => volume,
                None => {
                    let end = pv.pe_count.saturating_mul(group.vg.extent_sectors).saturating_add(pv.pe_start);
                    let len_bytes = end.saturating_mul(512) / 512 * 512;
                    let missing = MapSegment { len_bytes, target: Target::Missing };
                    opener.start(&pv.name, vec![missing], Vec::new(), true).await?
                }
            };
            opener.physical.push(volume);
        }
        Ok(opener)
    }

    /// Everything that was started, for whoever stops it in the end: last first.
    pub fn into_handles(self) -> Vec<MappedHandle> {
        self.handles
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// A [`Problem`]: it cannot be opened as it is.
    pub async fn open(&mut self, name: &str) -> Result<Opened, Problem> {
        if let Some(opened) = self.opened.get(name) {
            return opened.clone();
        }
        let Some(lv) = self.group.vg.lv(name) else {
            return Err(problems::not_mapped(name, "there is no such volume in its group"));
        };
        self.depth += 1;
        let opened = if self.depth > DEPTH_MAX {
            Err(problems::not_mapped(&self.group.full_name(lv), "it is made of volumes in a loop"))
        } else {
            Box::pin(self.open_lv(lv)).await
        };
        self.depth -= 1;
        self.opened.insert(name.to_owned(), opened.clone());
        opened
    }

    async fn open_lv(&mut self, lv: &Lv) -> Result<Opened, Problem> {
        let full_name = self.group.full_name(lv);
        let mut plan = Plan { read_only: !lv.is_writable(), ..Plan::default() };
        for segment in &lv.segments {
            self.plan(&full_name, segment, &mut plan).await?;
        }
        if plan.partial && !self.read_only {
            return Err(problems::missing_physical(&full_name, &self.group.missing()));
        }
        let read_only = plan.read_only || plan.partial || self.read_only;
        let volume = self.start(&full_name, plan.segments, plan.below, read_only).await?;
        Ok(Opened { volume, partial: plan.partial, read_only })
    }

    async fn plan(&mut self, full_name: &str, segment: &Segment, plan: &mut Plan) -> Result<(), Problem> {
        let len_bytes = self.bytes(segment.extents);
        let target = match &segment.kind {
            Kind::Striped { stripe_sectors, stripes } => {
                let mut legs = Vec::new();
                for stripe in stripes {
                    legs.push(self.leg(stripe, plan).await?);
                }
                match legs[..] {
                    [leg] => Target::Linear(leg),
                    _ => Target::Striped { stripe_bytes: stripe_sectors.saturating_mul(512), legs },
                }
            }
            Kind::Mirror { legs, .. } => {
                // The first leg is where others are copied from: it is right wherever any is. Writing would take the log.
                plan.read_only = true;
                let leg = self.first_present(legs);
                Target::Linear(self.leg(leg, plan).await?)
            }
            Kind::Zero => {
                plan.read_only = true;
                Target::Zero
            }
            Kind::Error => Target::Missing,
            kind => return Err(problems::unsupported(full_name, kind.name())),
        };
        plan.segments.push(MapSegment { len_bytes, target });
        Ok(())
    }

    fn first_present<'s>(&self, legs: &'s [Stripe]) -> &'s Stripe {
        let there = |leg: &&Stripe| {
            let pv = self.group.vg.pvs.iter().position(|pv| pv.name == leg.name);
            pv.is_none_or(|pv| self.group.devices[pv].is_some())
        };
        legs.iter().find(there).unwrap_or(&legs[0])
    }

    /// Where a stripe is: on a physical volume, or on another logical one.
    async fn leg(&mut self, stripe: &Stripe, plan: &mut Plan) -> Result<Leg, Problem> {
        let vg = &self.group.vg;
        if let Some(at) = vg.pvs.iter().position(|pv| pv.name == stripe.name) {
            plan.partial |= self.group.devices[at].is_none();
            let offset_bytes =
                vg.pvs[at].pe_start.saturating_mul(512).saturating_add(self.bytes(stripe.extent));
            return Ok(plan.leg(&format!("pv {at}"), &self.physical[at], offset_bytes));
        }
        let opened = self.open(&stripe.name).await?;
        plan.partial |= opened.partial;
        plan.read_only |= opened.read_only;
        Ok(plan.leg(&stripe.name, &opened.volume, self.bytes(stripe.extent)))
    }

    fn bytes(&self, extents: u64) -> u64 {
        extents.saturating_mul(self.group.vg.extent_sectors).saturating_mul(512)
    }

    async fn start(
        &mut self,
        name: &str,
        segments: Vec<MapSegment>,
        below: Vec<VolumeRef>,
        read_only: bool,
    ) -> Result<VolumeRef, Problem> {
        let spec = MapSpec { below, segments, read_only };
        let started = MappedHandle::start(self.core, name, spec).await;
        let handle = started.map_err(|error| problems::not_mapped(name, &error.to_string()))?;
        self.handles.push(handle.clone());
        Ok(handle.volume())
    }
}

/// A volume's map in the making.
#[derive(Default)]
struct Plan {
    segments: Vec<MapSegment>,
    below: Vec<VolumeRef>,
    /// What each of `below` is called.
    names: Vec<String>,
    read_only: bool,
    partial: bool,
}

impl Plan {
    fn leg(&mut self, name: &str, volume: &VolumeRef, offset_bytes: u64) -> Leg {
        let known = self.names.iter().position(|known| known == name);
        let below = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.below.push(volume.clone());
            self.below.len() - 1
        });
        Leg { below, offset_bytes }
    }
}
