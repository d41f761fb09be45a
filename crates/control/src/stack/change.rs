//! Changes of a volume group whose volumes run: committed like any other, and what runs is mapped
//! anew.

use wattle_engine::{MappedHandle, VolumeRef};
use wattle_format::lvm::label::Area;
use wattle_format::lvm::segment::Stripe;
use wattle_format::lvm::{AreaState, Id, Vg};
use wattle_rt::{Core, Device};

use super::{Purpose, Stack};
use crate::lvm::group::{self, GroupScan};
use crate::lvm::lock::{GroupLock, LockedGroups};
use crate::lvm::open::Opener;
use crate::lvm::physical::{self, AreaScan, PhysicalVolume};
use crate::lvm::plan::GroupPlan;
use crate::lvm::problems;
use crate::lvm::relocate::{self, RelocateStep};
use crate::members::Member;
use crate::nodes::{GroupId, MemberId};
use crate::problem::{Code, Problem};
use crate::scan::{self, Scan};

/// Zeroed at each end of a new volume, where most of what is ever recognised lies.
const END_BYTES: u64 = 1 << 20;

impl Stack {
    /// The groups that are open, rather than only seen.
    pub fn open_groups(&self) -> impl Iterator<Item = &GroupScan> {
        let wanted = |group: &&GroupScan| self.wants(|wanted| wanted.groups.contains(&group.vg.id));
        self.groups.iter().filter(wanted).filter(|group| group.problem.is_none())
    }

    /// Makes `text` a group's, as `plan` says, and lets its volumes follow: those that grew or
    /// shrank are as long from then on, those that moved are where they are now, new ones run, and
    /// those that are gone or called otherwise do not any more. A crash before the volumes follow
    /// leaves the new group, with everything that was written where the text says.
    ///
    /// Tells what of it could not be written.
    ///
    /// # Errors
    /// A [`Problem`]: the group is as it was, but for what the problem says.
    pub async fn change_group(
        &mut self,
        core: &Core,
        plan: &GroupPlan,
        text: &[u8],
    ) -> Result<Vec<String>, Problem> {
        let group_id = self.changeable(plan)?;
        let members = plan.places.iter().map(|place| place.member);
        let lock = self.lock_group(core, &LockedGroups::of(plan), members).await?;
        self.change(core, group_id, plan, text, &lock).await
    }

    /// LVM2's lock of what a change of these members is about, if one of them lies on a block
    /// device: from before the last look at them until what was written has been read back.
    ///
    /// # Errors
    /// A [`Problem`]: a command of LVM2's has it.
    pub async fn lock_group(
        &self,
        core: &Core,
        locked: &LockedGroups,
        members: impl IntoIterator<Item = MemberId>,
    ) -> Result<GroupLock, Problem> {
        let is_block = |ix: MemberId| self.scan.members[ix].member.device.is_block_device();
        let lies_on_one =
            |ix: MemberId| is_block(ix) || self.all_below(ix).iter().any(|(_, below)| is_block(*below));
        match members.into_iter().any(lies_on_one) {
            true => GroupLock::take(core, locked).await,
            false => Ok(GroupLock::not_needed()),
        }
    }

    /// Copies the extents of a step and then changes the group as above. Meanwhile changes of what
    /// moves wait, reads go on.
    ///
    /// # Errors
    /// A [`Problem`]: the extents are where they were. A volume of which not even that can be told
    /// is read-only until the next change of the group.
    pub async fn move_extents(
        &mut self,
        core: &Core,
        plan: &GroupPlan,
        text: &[u8],
        step: &RelocateStep,
    ) -> Result<Vec<String>, Problem> {
        let group_id = self.changeable(plan)?;
        let devices = self.devices(core, plan).await?;
        // Where the extents move to has to stay free until the text says that they are there.
        let members = plan.places.iter().map(|place| place.member);
        let lock = self.lock_group(core, &LockedGroups::of(plan), members).await?;
        if let Err(problem) = plan.check_unchanged(core, &devices).await {
            return Err(self.refused(core, group_id, problem).await);
        }
        let vg = &self.groups[group_id].vg;
        let extent_bytes = vg.extent_sectors.saturating_mul(512);
        let at = vg.lvs.iter().find(|lv| lv.name == step.volume).map(|lv| lv.id);
        let running = match at.and_then(|at| self.logical.get(&(group_id, at))) {
            Some(VolumeRef::Mapped(handle)) => Some(handle.clone()),
            _ => None,
        };
        if let Some(handle) = &running {
            let held = step.held.start * extent_bytes..step.held.end * extent_bytes;
            handle.hold(core, held).await.map_err(|error| stopped(&step.volume, &error.to_string()))?;
        }
        let copied = self.copy(core, group_id, step).await;
        let moved = match copied.clone() {
            Ok(()) => self.change(core, group_id, plan, text, &lock).await,
            Err(problem) => Err(problem),
        };
        if let (Err(_), Some(at), Some(handle)) = (&moved, at, running) {
            // The requests that wait go on.
            // Invariant: what is written to one place must not be lost to a text that names the
            // other.
            let in_doubt = copied.is_ok() && self.groups[group_id].is_in_doubt;
            let in_doubt = in_doubt || self.in_doubt.contains(&(group_id, at));
            if in_doubt {
                self.in_doubt.insert((group_id, at));
            }
            if self.map_again(core, group_id, (at, &handle), in_doubt).await.is_err() {
                handle.stop(core).await;
            }
        }
        moved
    }

    async fn copy(&mut self, core: &Core, group_id: GroupId, step: &RelocateStep) -> Result<(), Problem> {
        let (from, from_device, from_bytes) = self.place(core, group_id, &step.from).await?;
        let (to, to_device, to_bytes) = self.place(core, group_id, &step.to).await?;
        let len_bytes =
            step.extents.saturating_mul(self.groups[group_id].vg.extent_sectors).saturating_mul(512);
        let copied =
            relocate::copy(core, (&from_device, from_bytes), (&to_device, to_bytes), len_bytes).await;
        copied.map_err(|(reading, error)| {
            let (code, name, what) = match reading {
                true => (Code::ReadFailed, from, "reading what is to move"),
                false => (Code::WriteFailed, to, "writing what moves"),
            };
            Problem::new(
                code,
                format!("{name}: {what}: {error}"),
                "these extents stay where they were; those that moved before are where they are now",
                "see what is wrong with the drive; the same command goes on from here",
            )
            .of_member(name)
        })
    }

    /// What a stripe lies on, with its name, and at which byte.
    async fn place(
        &mut self,
        core: &Core,
        group_id: GroupId,
        stripe: &Stripe,
    ) -> Result<(String, Device, u64), Problem> {
        let group = &self.groups[group_id];
        let mut known = group.vg.pvs.iter().zip(&group.devices);
        let found = known.find_map(|(pv, member)| Some((pv, (*member)?)).filter(|_| pv.name == stripe.name));
        let (pv, member) = found.ok_or_else(|| stopped(&stripe.name, "it is not there"))?;
        let sectors = stripe.extent.saturating_mul(group.vg.extent_sectors).saturating_add(pv.pe_start);
        let name = self.scan.members[member].member.name.clone();
        let device = self.volume(core, member).await?.device(core, &name);
        let device = device.map_err(|error| stopped(&name, &error.to_string()))?;
        Ok((name, device, sectors.saturating_mul(512)))
    }

    /// `io_min` and `io_opt` that a volume of a group has once the group is `after`, on the
    /// physical volumes that it has now.
    ///
    /// # Errors
    /// A [`Problem`]: what it lies on does not run.
    pub async fn topology(&mut self, core: &Core, after: &Vg, name: &str) -> Result<(u32, u32), Problem> {
        self.as_it_will_be(core, after, name, async |volume| {
            let opened = volume.open(core).ok();
            opened.map_or((512, 0), |volume| (volume.io_min_bytes(), volume.io_opt_bytes()))
        })
        .await
    }

    /// Lets a plan zero what was left in the extents that a volume gets: from this byte of it on
    /// every place where a scan would recognise something, and of a new one both ends. Tells what
    /// that is.
    ///
    /// # Errors
    /// A [`Problem`]: what it lies on does not run.
    pub async fn zero_what_was_left(
        &mut self,
        core: &Core,
        plan: &mut GroupPlan,
        name: &str,
        from_bytes: u64,
    ) -> Result<Vec<String>, Problem> {
        let Some(after) = plan.after.clone() else { return Ok(Vec::new()) };
        let (size_bytes, left) = self
            .as_it_will_be(core, &after, name, async |volume| {
                let device = volume.device(core, name);
                let device = device.map_err(|error| stopped(name, &error.to_string()))?;
                let member = Member::layer(name, device);
                let left = core.offload(move || scan::left_on(&member, from_bytes));
                Ok::<_, Problem>((volume.size_bytes(), left.await.map_err(Problem::no_thread)?))
            })
            .await??;
        let mut ends = Vec::new();
        if from_bytes == 0 {
            let start_bytes = size_bytes.min(END_BYTES);
            let end_at = size_bytes.saturating_sub(END_BYTES).max(start_bytes);
            ends.push(Area { offset_bytes: 0, size_bytes: start_bytes });
            ends.push(Area { offset_bytes: end_at, size_bytes: size_bytes - end_at });
        }
        let is_apart = |(place, _): &(Area, String)| {
            let mut around = ends.iter().map(|end| end.offset_bytes..end.offset_bytes + end.size_bytes);
            let last = place.offset_bytes + place.size_bytes - 1;
            !around.any(|end| end.contains(&place.offset_bytes) && end.contains(&last))
        };
        let places: Vec<_> = left.iter().filter(|place| is_apart(place)).map(|(place, _)| *place).collect();
        plan.zero(name, &[ends, places].concat());
        Ok(left.into_iter().map(|(_, what)| what).collect())
    }

    /// What is so of a volume once its group is `after`; it is only read.
    async fn as_it_will_be<T>(
        &mut self,
        core: &Core,
        after: &Vg,
        name: &str,
        look: impl AsyncFnOnce(VolumeRef) -> T,
    ) -> Result<T, Problem> {
        let group_id = self.groups.find(|group| group.vg.id == after.id);
        let group_id = group_id.ok_or_else(|| stopped(&after.name, "it is not there"))?;
        let physical = self.physical(core, group_id).await?;
        let group = GroupScan { vg: after.clone(), ..self.groups[group_id].clone() };
        let mut opener = Opener::new(core, &group, true, physical).await?;
        let seen = match opener.open(name).await {
            Ok(opened) => Ok(look(opened.volume).await),
            Err(problem) => Err(problem),
        };
        for running in opener.into_running() {
            running.stop(core).await?;
        }
        seen
    }

    /// What a group's physical volumes are on.
    pub(super) async fn physical(
        &mut self,
        core: &Core,
        group_id: GroupId,
    ) -> Result<Vec<Option<VolumeRef>>, Problem> {
        let mut physical = Vec::new();
        for ix in self.groups[group_id].devices.clone() {
            physical.push(match ix {
                Some(ix) => Some(self.volume(core, ix).await?),
                None => None,
            });
        }
        Ok(physical)
    }

    /// Which group a plan is about, if it can be changed here.
    fn changeable(&self, plan: &GroupPlan) -> Result<GroupId, Problem> {
        let id = plan.before.as_ref().map(|before| before.id);
        let is_open = self.open_groups().any(|group| Some(group.vg.id) == id);
        let group_id = self.groups.find(|group| Some(group.vg.id) == id);
        group_id.filter(|_| is_open && self.options.purpose == Purpose::Write).ok_or_else(|| {
            Problem::new(
                Code::ReadOnlyMember,
                "the group is not open for writing",
                "it is served read-only, or nothing that is served lies on it",
                "serve it without --read-only",
            )
        })
    }

    /// The devices of a change.
    async fn devices(&mut self, core: &Core, plan: &GroupPlan) -> Result<Vec<Device>, Problem> {
        let mut devices = Vec::new();
        for place in &plan.places {
            let device = self.volume(core, place.member).await?.device(core, &place.name);
            devices.push(device.map_err(|error| stopped(&place.name, &error.to_string()))?);
        }
        Ok(devices)
    }

    /// What is said of a change that was not made. Where it is the group that another process
    /// changed, rather than what was to join it, that is the last change that is tried.
    async fn refused(&mut self, core: &Core, group_id: GroupId, problem: Problem) -> Problem {
        let id = self.groups[group_id].vg.id.to_string();
        if problem.code != Code::Changed || self.look_at_group(core, &id).await.is_err() {
            return problem;
        }
        let group = &self.groups[group_id];
        if group.is_overtaken { problems::overtaken(&group.vg.name) } else { problem }
    }

    async fn change(
        &mut self,
        core: &Core,
        group_id: GroupId,
        plan: &GroupPlan,
        text: &[u8],
        lock: &GroupLock,
    ) -> Result<Vec<String>, Problem> {
        let devices = self.devices(core, plan).await?;
        let written = match plan.execute(core, lock, &devices, Some(text)).await {
            Err(problem) => Err(self.refused(core, group_id, problem).await),
            written => written,
        };
        // Until it is read back, either text may be the one that counts.
        let may_be_new = written.as_ref().err().is_none_or(|problem| problem.code == Code::GroupInDoubt);
        self.groups[group_id].is_in_doubt |= may_be_new;
        // Also after a failure some headers may be new: the next change starts from what is there.
        let members = plan.places.iter().map(|place| place.member).zip(devices).collect();
        for (member, physical) in self.read_physical(core, members).await? {
            self.scan.members[member].physical = Some(physical);
        }
        let physical = plan.places.iter().filter_map(|place| {
            let seen = &self.scan.members[place.member];
            Some((place.member, seen.member.name.as_str(), seen.physical.as_ref()?))
        });
        let id = self.groups[group_id].vg.id;
        let found = group::assemble(&physical.collect::<Vec<_>>()).groups;
        match found.into_iter().find(|group| group.vg.id == id) {
            Some(mut group) if group.text == text && group.problem.is_none() => {
                // All of them were held meanwhile: one that did not take the text has its data.
                group.older.fill(None);
                group.is_in_doubt = written.is_err();
                self.follow(core, group_id, group, written.is_err()).await?;
            }
            // Neither the text before the change nor the one after it.
            Some(group) if group.text != self.groups[group_id].text => {
                let known = &mut self.groups[group_id];
                known.is_overtaken = true;
                return written.and_then(|_| Err(problems::overtaken_afterwards(&known.vg.name)));
            }
            _ if written.is_ok() => {
                return Err(stopped(&self.groups[group_id].vg.name, "its text was not found"));
            }
            _ => {}
        }
        written
    }

    /// What is on physical volumes now, of those that can be read wherever they could be before.
    async fn read_physical(
        &mut self,
        core: &Core,
        members: Vec<(MemberId, Device)>,
    ) -> Result<Vec<(MemberId, PhysicalVolume)>, Problem> {
        let read = |scan: &Scan, (ix, device)| {
            let physical = physical::read(&Member::layer("", device)).and_then(Result::ok)?;
            let known = scan.members[ix].physical.as_ref().map_or(&[][..], |known| &known.areas);
            let is_lost = |area: &AreaScan| {
                let mut before = known.iter().filter(|before| before.place == area.place);
                area.state == AreaState::Unreadable && before.any(|of| of.state != AreaState::Unreadable)
            };
            (!physical.areas.iter().any(is_lost)).then_some((ix, physical))
        };
        self.beside(core, move |scan| members.into_iter().filter_map(|of| read(scan, of)).collect()).await
    }

    /// Looks at a group's metadata before an order to it, by its name or UUID, is decided: what
    /// another process changed is not what runs here, and is not changed. A physical volume that
    /// cannot be read is left to the check before the change.
    ///
    /// # Errors
    /// A [`Problem`]: what it lies on does not run.
    pub async fn look_at_group(&mut self, core: &Core, name: &str) -> Result<(), Problem> {
        let called = |group: &&GroupScan| group.vg.name == name || group.vg.id.to_string() == name;
        if self.options.purpose != Purpose::Write {
            return Ok(());
        }
        let open: Vec<_> = self.open_groups().filter(called).map(|group| group.vg.id).collect();
        let open: Vec<_> = self.groups.ids().filter(|id| open.contains(&self.groups[*id].vg.id)).collect();
        for group_id in open {
            let mut members = Vec::new();
            for member in self.groups[group_id].devices.clone().into_iter().flatten() {
                let name = self.scan.members[member].member.name.clone();
                let device = self.volume(core, member).await?.device(core, &name);
                members.push((member, device.map_err(|error| stopped(&name, &error.to_string()))?));
            }
            for (member, physical) in self.read_physical(core, members).await? {
                let (group, seen) = (&mut self.groups[group_id], &mut self.scan.members[member].physical);
                match seen {
                    Some(known) if !physical.is_as_known(known, &group.text) => group.is_overtaken = true,
                    _ => *seen = Some(physical),
                }
            }
        }
        Ok(())
    }

    /// Maps a volume that runs as the group's text has it, and if so told only to be read.
    pub(super) async fn map_again(
        &mut self,
        core: &Core,
        group_id: GroupId,
        (volume, handle): (Id, &MappedHandle),
        read_only: bool,
    ) -> Result<(), Problem> {
        let physical = self.physical(core, group_id).await?;
        let group = &self.groups[group_id];
        let lv = group.lv(volume);
        let opener = Opener::new(core, group, read_only, physical).await?;
        let mut opener = opener.with_forced(self.options.policy.forced);
        let spec = opener.map(lv).await;
        let name = group.full_name(lv);
        self.running.extend(opener.into_running());
        let mapped = handle.remap(core, spec?).await;
        mapped.map_err(|error| stopped(&name, &error.to_string()))
    }
}

pub(super) fn stopped(name: &str, why: &str) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {why}"),
        "it does not run as it should; what was committed is on the members",
        "see what is wrong with its members (`wattle scan`)",
    )
}
