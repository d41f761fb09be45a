//! What a change of a volume group writes, device by device: made from what was seen, shown or
//! carried out as it is.

use std::ops::Range;

use wattle_format::lvm::area::{Commit, Header};
use wattle_format::lvm::label::Area;
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{Id, Label, Pv, SegmentKind, Vg, VgError};
use wattle_rt::{Core, Device};

use super::commit::{self, CommitError, CommitRole, CommitSite};
use super::group::GroupScan;
use super::lock::GroupLock;
use super::physical::{Members, PhysicalVolume};
use super::problems;
use crate::nodes::{GroupId, MemberId, Nodes};
use crate::problem::{Check, Code, Forced, Problem};

/// A change.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    /// The group before it; `None` if there was none.
    pub before: Option<Before>,
    /// The group after it; `None` if there is none, or nothing about it changes.
    pub after: Option<Vg>,
    /// What becomes of each physical volume.
    pub places: Vec<ChangeTarget>,
}

/// The group that a change was made from.
#[derive(Debug, Clone)]
pub struct Before {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Id,
    /// Its sequence number.
    pub seqno: u64,
    /// Its text.
    pub text: Vec<u8>,
}

/// A physical volume of a change.
#[derive(Debug, Clone)]
pub struct ChangeTarget {
    /// Which of [`crate::Scan::members`].
    pub member: MemberId,
    /// What it is called.
    pub name: String,
    /// What it is before.
    pub from: From,
    /// Its label afterwards.
    pub label: Label,
    /// What becomes of it.
    pub role: CommitRole,
    /// Where zeros go before the change.
    pub zeros: Vec<Area>,
}

/// What a device is before a change.
#[derive(Debug, Clone)]
pub enum From {
    /// A physical volume.
    Physical(PhysicalVolume),
    /// Something else, that is to be one; these ranges are zeroed first.
    New(Vec<Area>),
}

/// A range that a change writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupWrite {
    /// On which of [`GroupPlan::places`].
    pub place: usize,
    /// In which step: see [`CoveredWrite::step`](crate::undo::CoveredWrite::step).
    pub step: u16,
    /// What it is.
    pub what: &'static str,
    /// Where.
    pub offset_bytes: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// The steps of a change, each durable everywhere before the next one.
mod step {
    /// Zeros, empty areas of new physical volumes, headers that end a change that was cut short.
    pub const ROOM: u16 = 0;
    /// Labels that make them physical volumes.
    pub const NEW_LABEL: u16 = 1;
    /// The text.
    pub const TEXT: u16 = 2;
    /// Headers that name it.
    pub const HEADER: u16 = 3;
    /// What labels say of the group, which repeats the text.
    pub const LABEL: u16 = 4;
    /// Areas of physical volumes that left.
    pub const EMPTIED: u16 = 5;
}

impl GroupPlan {
    /// The change of a group that was found to `after`.
    ///
    /// # Errors
    /// A [`Problem`]: that group could not be.
    pub fn change(members: &impl Members, group: &GroupScan, after: Vg) -> Result<Self, Problem> {
        if group.is_in_doubt {
            return Err(problems::in_doubt(&group.vg.name));
        }
        let before = Before::of(group);
        let mut places = Vec::new();
        for (pv, member) in group.vg.pvs.iter().zip(&group.devices) {
            let member =
                member.ok_or_else(|| problems::missing_physical(&group.vg.name, &group.missing()))?;
            let physical = members.physical(member);
            let other = physical.into_iter().flat_map(PhysicalVolume::texts);
            let mut other = other.filter(|vg| vg.id != group.vg.id && vg.pv_of(pv.id).is_some());
            // Invariant: no text is written over that of another group which the place is in.
            if let Some(other) = other.next() {
                let of = [group.vg.name.clone(), other.name.clone()];
                return Err(problems::claimed_twice(members.name(member), &of));
            }
            let texts = physical.iter().flat_map(|of| &of.areas).filter_map(|area| area.text.as_ref());
            let mut texts = texts.filter(|(_, vg)| vg.id == group.vg.id);
            // Invariant: on no place does a text follow another than the one it was decided from.
            if texts.any(|(text, vg)| vg.seqno >= group.vg.seqno && *text != group.text) {
                return Err(problems::overtaken(&group.vg.name));
            }
            let stays = after.pvs.iter().any(|known| known.id == pv.id);
            let role = if stays { CommitRole::Belongs } else { CommitRole::Leaves };
            let place = ChangeTarget::of(members, member, role);
            places.push(place.ok_or_else(|| problems::no_label(members.name(member)))?);
        }
        Self { before: Some(before), after: None, places }.to(after)
    }

    /// The same, with this group in the end.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn to(self, after: Vg) -> Result<Self, Problem> {
        let found = after.problems();
        if !found.is_empty() {
            return Err(problems::impossible_group(&after.name, &found));
        }
        // Invariant: no extent lies on an area that texts are written to.
        for place in &self.places {
            let pv = after.pv_of(place.label.id);
            if pv.is_some_and(|pv| !is_clear_of_areas(&place.label, pv, after.extent_sectors)) {
                return Err(problems::extents_on_area(&place.name));
            }
        }
        Ok(Self { after: Some(after), ..self })
    }

    /// Zeros these ranges of a linear or striped volume of the group as it is afterwards.
    pub fn zero(&mut self, volume: &str, ranges: &[Area]) {
        let Some(vg) = &self.after else { return };
        let extent_bytes = vg.extent_sectors.saturating_mul(512);
        for segment in vg.lv(volume).into_iter().flat_map(|lv| &lv.segments) {
            let SegmentKind::Striped { stripes, stripe_sectors } = &segment.kind else { continue };
            let start = segment.start_extent.saturating_mul(extent_bytes);
            let len = segment.extents.saturating_mul(extent_bytes);
            let (count, chunk) = match stripes.len() as u64 {
                0 => continue,
                1 => (1, len.max(1)),
                count => (count, stripe_sectors.saturating_mul(512).max(1)),
            };
            for range in ranges {
                let end = range.offset_bytes.saturating_add(range.size_bytes).saturating_sub(start).min(len);
                let mut at = range.offset_bytes.saturating_sub(start);
                while at < end {
                    let (row, size_bytes) = (at / chunk, (chunk - at % chunk).min(end - at));
                    let Stripe { name, extent } = &stripes[(row % count) as usize];
                    let in_stripe = row / count * chunk + at % chunk;
                    at += size_bytes;
                    let Some(pv) = vg.pv(name) else { continue };
                    let pe_bytes = extent.saturating_mul(extent_bytes).saturating_add(in_stripe);
                    let offset_bytes = pv.pe_start.saturating_mul(512).saturating_add(pe_bytes);
                    let place = self.places.iter_mut().find(|place| place.label.id == pv.id);
                    place.into_iter().for_each(|place| place.zero(Area { offset_bytes, size_bytes }));
                }
            }
        }
    }

    /// Everything that [`Self::execute`] writes, in order on each physical volume, when the group's
    /// text is this one.
    ///
    /// # Errors
    /// A [`Problem`]: an area cannot take the text.
    pub fn writes(&self, text: Option<&[u8]>) -> Result<Vec<GroupWrite>, Problem> {
        let mut writes = Vec::new();
        let belonging = self.places.iter().filter_map(|place| match &place.from {
            From::Physical(physical) if place.role == CommitRole::Belongs => Some(physical),
            _ => None,
        });
        let current = commit::current_crc(belonging);
        for (ix, place) in self.places.iter().enumerate() {
            let mut add = |step, what, offset_bytes, bytes| {
                writes.push(GroupWrite { place: ix, step, what, offset_bytes, bytes });
            };
            let area_error = |source| CommitError::Area { name: place.name.clone(), source };
            let label_error = |source| CommitError::Label { name: place.name.clone(), source };
            let zeros = |range: &Area| vec![0; usize::try_from(range.size_bytes).unwrap_or(0)];
            let before = place.physical()?;
            if let From::New(wipe) = &place.from {
                wipe.iter().for_each(|range| add(step::ROOM, "zeros", range.offset_bytes, zeros(range)));
                for header in before.areas.iter().filter_map(|area| area.header.as_ref()) {
                    add(step::ROOM, "empty metadata area", header.start(), header.bytes().to_vec());
                }
                let bytes = before.label.encode().map_err(label_error)?;
                add(step::NEW_LABEL, "label", before.label.sector * 512, bytes.to_vec());
            }
            place.zeros.iter().for_each(|range| add(step::ROOM, "zeros", range.offset_bytes, zeros(range)));
            match (place.role, text) {
                (CommitRole::Belongs, Some(text)) => {
                    for area in commit::area_commits(&before, current, text).map_err(area_error)? {
                        let Commit { texts, precommit, commit } = area.commit;
                        if let Some(end) = area.end {
                            let what = "header that ends an earlier change";
                            add(step::ROOM, what, end.start(), end.bytes().to_vec());
                        }
                        for (offset_bytes, bytes) in texts {
                            add(step::TEXT, "text", offset_bytes, bytes);
                        }
                        let headers = [
                            ("header that names the new text too", precommit),
                            ("header of the metadata area", commit),
                        ];
                        for (what, header) in headers {
                            add(step::HEADER, what, header.start(), header.bytes().to_vec());
                        }
                    }
                }
                (CommitRole::Belongs, None) => {}
                (CommitRole::Leaves | CommitRole::Goes, _) => {
                    for &area in &before.label.metadata_areas {
                        let empty = Header::new(area).map_err(area_error)?;
                        add(step::EMPTIED, "empty metadata area", empty.start(), empty.bytes().to_vec());
                    }
                }
            }
            if place.role == CommitRole::Goes {
                add(step::LABEL, "zeros over the label", before.label.sector * 512, vec![0; 512]);
            } else if place.label != before.label {
                let bytes = place.label.encode().map_err(label_error)?;
                add(step::LABEL, "label", before.label.sector * 512, bytes.to_vec());
            }
        }
        Ok(writes)
    }

    fn sites(&self, devices: &[Device]) -> Result<Vec<CommitSite>, Problem> {
        let site = |(place, device): (&ChangeTarget, &Device)| {
            let (name, before) = (place.name.clone(), place.physical()?);
            let (label, role) = (place.label.clone(), place.role);
            Ok(CommitSite { name, device: device.clone(), before, label, role })
        };
        self.places.iter().zip(devices).map(site).collect()
    }

    /// Makes sure that these devices, which are [`Self::places`]', still are what this was decided
    /// from.
    ///
    /// # Errors
    /// A [`Problem`]: one is not, or cannot be read.
    pub async fn check_unchanged(&self, core: &Core, devices: &[Device]) -> Result<(), Problem> {
        let sites = self.sites(devices)?;
        let known = sites.iter().zip(&self.places).filter(|(_, of)| matches!(of.from, From::Physical(_)));
        Ok(commit::check_unchanged(core, known.map(|(site, _)| site)).await?)
    }

    /// Carries it out on these devices, which are [`Self::places`]', ours alone, under LVM2's lock
    /// of the group. Tells what of it could not be written.
    ///
    /// Invariant: no byte is written anywhere before every physical volume was found to be what
    /// this was decided from. What looks free may be a volume of another program's by now.
    ///
    /// # Errors
    /// A [`Problem`]: the group is as it was, but for what the problem says.
    pub async fn execute(
        &self,
        core: &Core,
        _lock: &GroupLock,
        devices: &[Device],
        text: Option<&[u8]>,
    ) -> Result<Vec<String>, Problem> {
        self.check_unchanged(core, devices).await?;
        let sites = self.sites(devices)?;
        for (site, place) in sites.iter().zip(&self.places) {
            if let From::New(wipe) = &place.from {
                commit::initialise(core, &site.name, &site.device, &site.before.label, wipe).await?;
            }
        }
        for (site, place) in sites.iter().zip(&self.places).filter(|(_, place)| !place.zeros.is_empty()) {
            commit::zero(core, &site.name, &site.device, &place.zeros).await?;
        }
        Ok(match text {
            Some(text) => commit::commit(core, text, &sites).await?,
            None => commit::release(core, &sites).await.map(|()| Vec::new())?,
        })
    }
}

impl Before {
    /// A group as it was found.
    #[must_use]
    pub fn of(group: &GroupScan) -> Self {
        let GroupScan { vg, text, .. } = group;
        Self { name: vg.name.clone(), id: vg.id, seqno: vg.seqno, text: text.clone() }
    }
}

impl ChangeTarget {
    /// A member that is a physical volume; `None` if it is none.
    #[must_use]
    pub fn of(members: &impl Members, member: MemberId, role: CommitRole) -> Option<Self> {
        let physical = members.physical(member)?.clone();
        let mut label = physical.label.clone();
        say_in_a_group(&mut label, role == CommitRole::Belongs);
        let name = members.name(member).to_owned();
        Some(Self { member, name, from: From::Physical(physical), label, role, zeros: Vec::new() })
    }

    /// Stripes that follow one another are one range of what they lie on.
    fn zero(&mut self, range: Area) {
        match self.zeros.last_mut() {
            Some(last) if last.offset_bytes + last.size_bytes == range.offset_bytes => {
                last.size_bytes += range.size_bytes;
            }
            _ => self.zeros.push(range),
        }
    }

    /// What is on it when the change begins, or once it was made a physical volume.
    fn physical(&self) -> Result<PhysicalVolume, Problem> {
        match &self.from {
            From::Physical(physical) => Ok(physical.clone()),
            From::New(_) => {
                let empty = commit::empty(&not_in_a_group(&self.label));
                Ok(empty.map_err(|source| CommitError::Area { name: self.name.clone(), source })?)
            }
        }
    }
}

/// Sets what a label says about belonging to a group. Old ones say nothing.
pub fn say_in_a_group(label: &mut Label, belongs: bool) {
    if let Some(extension) = &mut label.extension {
        extension.flags = extension.flags & !1 | u32::from(belongs);
    }
}

fn not_in_a_group(label: &Label) -> Label {
    let mut label = label.clone();
    say_in_a_group(&mut label, false);
    label
}

/// Whether the extents of a text lie where the label has room for them: on the device, and on no
/// metadata area.
fn has_room(label: &Label, pv: &Pv, extent_sectors: u64) -> bool {
    extents_bytes(pv, extent_sectors).end <= label.device_bytes
        && is_clear_of_areas(label, pv, extent_sectors)
}

fn is_clear_of_areas(label: &Label, pv: &Pv, extent_sectors: u64) -> bool {
    let Range { start, end } = extents_bytes(pv, extent_sectors);
    let clear =
        |area: &Area| area.offset_bytes.saturating_add(area.size_bytes) <= start || area.offset_bytes >= end;
    label.metadata_areas.iter().all(clear)
}

fn extents_bytes(pv: &Pv, extent_sectors: u64) -> Range<u64> {
    let start = pv.pe_start.saturating_mul(512);
    start..pv.pe_count.saturating_mul(extent_sectors).saturating_mul(512).saturating_add(start)
}

/// The change that gives a group an earlier text back, from a backup: on the physical volumes that
/// it names, which all have to be there.
///
/// # Errors
/// A [`Problem`]: the backup cannot be read, is another group's, or does not fit what is there.
pub fn restore(
    members: &impl Members,
    groups: &Nodes<GroupId, GroupScan>,
    (name, backup): (&str, &[u8]),
    forced: Forced,
) -> Result<GroupPlan, Problem> {
    let refuse = |what: String, why: &str, next: &str| Problem::new(Code::BadVolume, what, why, next);
    let mut saved = Vg::parse(backup).map_err(|error: VgError| {
        refuse(format!("the backup: {error}"), "it is not a text that LVM2 could read", "choose another file")
    })?;
    if saved.name != name {
        let what = format!("the backup is of {}, not of {name}", saved.name);
        return Err(refuse(what, "the wrong file may have been given", "name the group as the file does"));
    }
    let is_pool = |kind: &SegmentKind| {
        matches!(
            kind,
            SegmentKind::ThinPool { .. } | SegmentKind::CachePool { .. } | SegmentKind::VdoPool { .. }
        )
    };
    let pools = saved.lvs.iter().filter(|lv| lv.segments.iter().any(|segment| is_pool(&segment.kind)));
    let pools: Vec<_> = pools.map(|lv| lv.name.as_str()).collect();
    if !pools.is_empty() && !forced.has(Check::Pool) {
        return Err(Problem::new(
            Code::PoolRestored,
            format!("the backup has the pools {}", pools.join(", ")),
            "what their own metadata says now may not fit an earlier text, and then what is written destroys data",
            "if no volume of theirs was made or removed since: --force=pool restores it, as `vgcfgrestore --force` does",
        )
        .forced_by(Check::Pool));
    }
    let now = groups.iter().find(|group| group.vg.id == saved.id);
    let here = |id: Id| move |member: &MemberId| members.physical(*member).is_some_and(|p| p.label.id == id);
    if let Some(now) = now {
        let name = |id| members.ids().find(here(id)).map_or(id.to_string(), |ix| members.name(ix).to_owned());
        super::saved::check(now, &saved, name, forced)?;
    }
    let mut places = Vec::new();
    for pv in &saved.pvs {
        let found: Vec<_> = members.ids().filter(here(pv.id)).collect();
        let [member] = found[..] else {
            let what = format!("{} members are the physical volume {}", found.len(), pv.id);
            return Err(refuse(
                what,
                "the text goes to every physical volume that it names",
                "give each of them once; a label that is gone is made again with pvcreate --uuid --restorefile",
            ));
        };
        let other =
            groups.iter().find(|group| group.vg.id != saved.id && group.devices.contains(&Some(member)));
        if let Some(other) = other {
            return Err(Problem::new(
                Code::VolumeInUse,
                format!("{} belongs to {} now", members.name(member), other.vg.name),
                "the group it was in when the backup was made is not its group any more",
                "take it out there first (`wattle vg reduce`)",
            ));
        }
        let place = ChangeTarget::of(members, member, CommitRole::Belongs);
        let room = place.as_ref().zip(members.physical(member)).map(|(place, physical)| {
            // What it is on may be smaller by now than its label says.
            let mut label = place.label.clone();
            label.device_bytes = label.device_bytes.min(physical.size_bytes);
            label
        });
        if room.is_some_and(|room| !has_room(&room, pv, saved.extent_sectors)) {
            return Err(refuse(
                format!("{} has no room for its {} extents", members.name(member), pv.pe_count),
                "it was made smaller, or laid out anew, since the backup was made",
                "give it back the size it had, or choose a later backup",
            ));
        }
        places.extend(place);
    }
    // What joined since has to leave.
    for (pv, member) in now.into_iter().flat_map(|group| group.vg.pvs.iter().zip(&group.devices)) {
        if saved.pvs.iter().all(|known| known.id != pv.id) {
            places.extend(member.and_then(|member| ChangeTarget::of(members, member, CommitRole::Leaves)));
        }
    }
    for place in &mut places {
        if let From::Physical(physical) = &mut place.from {
            commit::renew_damaged(physical);
        }
    }
    saved.seqno = now.map_or(0, |group| group.vg.seqno).max(saved.seqno);
    let next = saved.next();
    let next = next.ok_or_else(|| {
        refuse(
            format!("{name}: its sequence number is at its end"),
            "there is none after it",
            "make the group anew",
        )
    })?;
    GroupPlan { before: now.map(Before::of), after: None, places }.to(next)
}
