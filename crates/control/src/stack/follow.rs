//! What runs follows the text of its group: volumes come and go, grow, shrink and move, and are
//! called otherwise. And members come and go with the physical volumes that they are.

use wattle_engine::VolumeRef;
use wattle_format::lvm::{Id, Pv};
use wattle_rt::{Core, Either, race};

use super::Stack;
use crate::layer::Layer;
use crate::lvm::group::GroupScan;
use crate::lvm::open::Opener;
use crate::md::running::{ANSWER_TIME_MAX, silent};
use crate::members::{Member, MemberAccess, MemberError};
use crate::nodes::{GroupId, MemberId};
use crate::problem::Problem;
use crate::scan::{self, MemberOrigin, MemberScan};

impl Stack {
    /// Opens further drives, which are not in use, and looks at them: where they are among
    /// [`crate::Scan::members`]. What hangs there keeps neither the core nor the stack.
    ///
    /// # Errors
    /// A [`Problem`]: one cannot be opened or does not answer, or one of the machine.
    pub async fn add_drives(
        &mut self,
        core: &Core,
        access: &MemberAccess,
        names: Vec<String>,
    ) -> Result<Vec<MemberId>, Problem> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let (access, policy, all) = (access.clone(), self.options.policy, names.join(", "));
        let looking = core.offload(move || Ok(scan::scan_each(access.look_all(&names)?, policy)));
        // A thread that hangs in the system goes on alone.
        let Either::First(looked) = race(looking, core.sleep(ANSWER_TIME_MAX)).await else {
            return Err(silent(&all));
        };
        let found = looked.map_err(Problem::no_thread)?.map_err(|error: MemberError| Problem::from(error))?;
        // What is on them is not opened: they are to be something else.
        let whole = found.members.into_iter().filter(|seen| seen.origin == MemberOrigin::Given);
        let add = |mut seen: MemberScan| {
            seen.facts = None;
            self.scan.members.push(seen)
        };
        Ok(whole.map(add).collect())
    }

    /// Lets go of a drive, and forgets it, unless something lies on it.
    ///
    /// # Errors
    /// A [`Problem`]: it could not be let go of in order.
    pub async fn release_drive(&mut self, core: &Core, member: MemberId) -> Result<(), Problem> {
        if self.is_relied_on(member) || self.scan.members[member].origin != MemberOrigin::Given {
            return Ok(());
        }
        let volume = self.volumes.remove(&member);
        self.forget(member);
        match volume {
            Some(volume) => self.stop(core, &volume).await,
            None => Ok(()),
        }
    }

    /// Looks again at what is on a member: its clients may have written since it was opened.
    ///
    /// # Errors
    /// A [`Problem`] of the machine.
    pub async fn look_again(&mut self, core: &Core, member: MemberId) -> Result<(), Problem> {
        let forced = self.options.policy.forced;
        self.beside(core, move |scan| scan.look_again(member, forced)).await
    }

    /// Lets what runs be as the new text has it.
    ///
    /// Invariant: while it is in doubt that this text is durable, nothing is written that would be
    /// lost with it: what changed is only read, nothing new runs, no physical volume is let go of,
    /// and the group is not changed any more. Names change nothing: what runs goes on under its
    /// own.
    pub(super) async fn follow(
        &mut self,
        core: &Core,
        group_id: GroupId,
        group: GroupScan,
        in_doubt: bool,
    ) -> Result<(), Problem> {
        let before = std::mem::replace(&mut self.groups[group_id], group);
        let same_name = before.vg.name == self.groups[group_id].vg.name;
        let (mut ended, mut changed) = (Vec::new(), Vec::new());
        for old in &before.vg.lvs {
            let now = &mut self.groups[group_id];
            match now.vg.lvs.iter().find(|lv| lv.id == old.id) {
                Some(lv) if in_doubt || same_name && lv.name == old.name => {
                    let was_in_doubt = self.in_doubt.remove(&(group_id, lv.id));
                    if was_in_doubt || lv.segments != old.segments || lv.is_writable() != old.is_writable() {
                        changed.push(lv.id);
                    }
                    now.volumes.insert(lv.id, before.volumes[&lv.id].clone());
                }
                _ => {
                    let member = self.member_of(MemberOrigin::Logical { group: group_id, volume: old.id });
                    ended.push((member, self.logical.remove(&(group_id, old.id))));
                }
            }
        }
        // What was started last is stopped first.
        ended.sort_by_key(|(member, _)| std::cmp::Reverse(*member));
        for (member, volume) in ended {
            member.into_iter().for_each(|member| self.forget(member));
            if let Some(volume) = volume {
                self.stop(core, &volume).await?;
            }
        }
        for at in changed {
            if in_doubt {
                self.in_doubt.insert((group_id, at));
            }
            if let Some(VolumeRef::Mapped(handle)) = self.logical.get(&(group_id, at)).cloned() {
                self.map_again(core, group_id, (at, &handle), in_doubt).await?;
                self.see(core, group_id, at);
            }
        }
        if in_doubt {
            return Ok(());
        }
        self.start_new(core, group_id).await?;
        let left = |pv: &&Pv| self.groups[group_id].vg.pvs.iter().all(|known| known.id != pv.id);
        for pv in before.vg.pvs.iter().filter(left).map(|pv| pv.id).collect::<Vec<_>>() {
            let is = |seen: &MemberScan| seen.physical.as_ref().is_some_and(|found| found.label.id == pv);
            if let Some(member) = self.scan.members.find(is) {
                self.release_drive(core, member).await?;
            }
        }
        Ok(())
    }

    /// Starts the visible volumes of a group that do not run.
    async fn start_new(&mut self, core: &Core, group_id: GroupId) -> Result<(), Problem> {
        let physical = self.physical(core, group_id).await?;
        let group = self.groups[group_id].clone();
        let opener = Opener::new(core, &group, false, physical).await?;
        let mut opener = opener.with_forced(self.options.policy.forced);
        for lv in group.vg.lvs.iter().filter(|lv| group.vg.is_visible(lv)) {
            let state = self.groups[group_id].volumes.entry(lv.id).or_default();
            if self.logical.contains_key(&(group_id, lv.id)) || state.problem.is_some() {
                continue;
            }
            match opener.open(&lv.name).await {
                Ok(opened) => {
                    (state.partial, state.notes) = (opened.partial, opened.notes);
                    self.logical.insert((group_id, lv.id), opened.volume);
                    self.see(core, group_id, lv.id);
                }
                Err(problem) => state.problem = Some(problem),
            }
        }
        self.running.extend(opener.into_running());
        Ok(())
    }

    /// Makes a volume that was started or changed a member, in place of what it was before.
    fn see(&mut self, core: &Core, group: GroupId, volume: Id) {
        let scanned = &self.groups[group];
        let name = scanned.full_name(scanned.lv(volume));
        let running = self.logical.get(&(group, volume));
        let Some(device) = running.and_then(|running| running.device(core, &name).ok()) else { return };
        let (member, origin) = (Member::layer(name, device), MemberOrigin::Logical { group, volume });
        match self.member_of(origin) {
            None => self.scan.add_made(member, origin),
            Some(known) => {
                self.scan.members[known].member = member;
                self.volumes.remove(&known);
            }
        }
    }

    /// Stops a volume that was started here.
    async fn stop(&mut self, core: &Core, volume: &VolumeRef) -> Result<(), Problem> {
        let at = self.running.iter().position(|running| match running {
            Layer::Array(array) => array.volume().is(volume),
            Layer::Mapped(mapped) => mapped.volume().is(volume),
        });
        match at {
            Some(at) => self.running.remove(at).stop(core).await,
            None => Ok(()),
        }
    }

    /// Whether something that runs lies on a member.
    #[must_use]
    pub fn is_relied_on(&self, member: MemberId) -> bool {
        let is_used = |(ix, seen): (MemberId, &MemberScan)| {
            matches!(seen.origin, MemberOrigin::Partition { of, .. } | MemberOrigin::Decrypted { of } | MemberOrigin::Layered { of } if of == member)
                && (self.volumes.contains_key(&ix) || self.is_relied_on(ix))
        };
        self.groups.iter().any(|group| group.devices.contains(&Some(member)))
            || self.scan.arrays.iter().any(|array| array.members.contains(&member))
            || self.scan.members.entries().any(is_used)
    }

    /// What runs of a member, of what it lies on and of what lies on it: what is written to one of
    /// these is written to another.
    #[must_use]
    pub fn running_at(&self, member: MemberId) -> Vec<VolumeRef> {
        let is_near = |ix: MemberId| ix == member || self.lies_on(ix, member) || self.lies_on(member, ix);
        self.volumes.iter().filter(|(ix, _)| is_near(**ix)).map(|(_, volume)| volume.clone()).collect()
    }

    /// Takes a member away that nothing relies on, with its partitions.
    fn forget(&mut self, gone: MemberId) {
        let is_part = |seen: &MemberScan| matches!(seen.origin, MemberOrigin::Partition { of, .. } | MemberOrigin::Decrypted { of } | MemberOrigin::Layered { of } if of == gone);
        while let Some(part) = self.scan.members.find(is_part) {
            self.forget(part);
        }
        self.scan.members.remove(gone);
        self.volumes.remove(&gone);
        for array in self.scan.arrays.iter_mut() {
            array.unused.retain(|unused| *unused != gone);
        }
        for group in self.groups.iter_mut() {
            group.behind.retain(|(member, ..)| *member != gone);
            group.copies.retain(|copy| *copy != gone);
        }
    }
}
