//! What runs follows the text of its group: volumes come and go, grow, shrink and move, and are called otherwise. And members come and go
//! with the physical volumes that they are.

use wattle_engine::VolumeRef;
use wattle_format::lvm::{Lv, Pv};
use wattle_rt::Core;

use super::{Running, Stack};
use crate::lvm::group::{GroupScan, VolumeState};
use crate::lvm::open::Opener;
use crate::members::Member;
use crate::problem::Problem;
use crate::scan::{self, MemberScan, Origin};

impl Stack {
    /// Looks at further drives, which nobody uses: where they are among [`crate::Scan::members`].
    ///
    /// # Errors
    /// A [`Problem`] of the machine.
    pub async fn add_drives(&mut self, core: &Core, drives: Vec<Member>) -> Result<Vec<usize>, Problem> {
        let policy = self.options.policy;
        self.beside(core, move |scan| {
            let found = scan::scan_each(drives, policy);
            let first = scan.members.len();
            // What is on them is not opened: they are to be something else.
            let mut whole: Vec<_> =
                found.members.into_iter().filter(|seen| seen.origin == Origin::Given).collect();
            whole.iter_mut().for_each(|seen| seen.facts = None);
            scan.members.extend(whole);
            (first..scan.members.len()).collect()
        })
        .await
    }

    /// Lets go of a drive, and forgets it, unless something lies on it.
    ///
    /// # Errors
    /// A [`Problem`]: it could not be let go of in order.
    pub async fn release_drive(&mut self, core: &Core, member: usize) -> Result<(), Problem> {
        if self.is_relied_on(member) || self.scan.members[member].origin != Origin::Given {
            return Ok(());
        }
        let volume = self.volumes.get_mut(member).and_then(Option::take);
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
    pub async fn look_again(&mut self, core: &Core, member: usize) -> Result<(), Problem> {
        let forced = self.options.policy.forced;
        self.beside(core, move |scan| scan.look_again(member, forced)).await
    }

    /// Lets what runs be as the new text has it.
    pub(super) async fn follow(
        &mut self,
        core: &Core,
        number: usize,
        group: GroupScan,
    ) -> Result<(), Problem> {
        let before = std::mem::replace(&mut self.groups[number], group);
        let same_name = before.vg.name == self.groups[number].vg.name;
        let new = self.groups[number].vg.lvs.clone();
        let known = |old: &Lv| new.iter().position(|lv| lv.id == old.id);
        let mut logical: Vec<Option<VolumeRef>> = vec![None; new.len()];
        let mut states = vec![VolumeState::default(); new.len()];
        let (mut ended, mut kept, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        let ran = std::mem::take(&mut self.logical[number]);
        for (old_at, (old, volume)) in before.vg.lvs.iter().zip(ran).enumerate() {
            let member = self.member_of(Origin::Logical { group: number, volume: old_at });
            match known(old) {
                Some(at) if same_name && new[at].name == old.name => {
                    if new[at].segments != old.segments || new[at].is_writable() != old.is_writable() {
                        changed.push(at);
                    }
                    (logical[at], states[at]) = (volume, before.volumes[old_at].clone());
                    kept.extend(member.map(|member| (member, at)));
                }
                _ => ended.push((member, volume)),
            }
        }
        for (member, volume) in kept {
            self.scan.members[member].origin = Origin::Logical { group: number, volume };
        }
        (self.logical[number], self.groups[number].volumes) = (logical, states);
        ended.sort_by_key(|(member, _)| std::cmp::Reverse(*member));
        for (member, volume) in ended {
            member.into_iter().for_each(|member| self.forget(member));
            if let Some(volume) = volume {
                self.stop(core, &volume).await?;
            }
        }
        for at in changed {
            if let Some(VolumeRef::Mapped(handle)) = self.logical[number][at].clone() {
                self.map_again(core, number, (at, &handle), false).await?;
                self.see(core, number, at);
            }
        }
        self.start_new(core, number).await?;
        let left = |pv: &&Pv| self.groups[number].vg.pvs.iter().all(|known| known.id != pv.id);
        for pv in before.vg.pvs.iter().filter(left).map(|pv| pv.id).collect::<Vec<_>>() {
            let is = |seen: &MemberScan| seen.physical.as_ref().is_some_and(|found| found.label.id == pv);
            if let Some(member) = self.scan.members.iter().position(is) {
                self.release_drive(core, member).await?;
            }
        }
        Ok(())
    }

    /// Starts the visible volumes of a group that do not run.
    async fn start_new(&mut self, core: &Core, number: usize) -> Result<(), Problem> {
        let physical = self.physical(core, number).await?;
        let group = self.groups[number].clone();
        let mut opener = Opener::new(core, &group, false, physical).await?;
        let visible = |(_, lv): &(usize, &Lv)| group.vg.is_visible(lv);
        for (at, lv) in group.vg.lvs.iter().enumerate().filter(visible) {
            let state = &mut self.groups[number].volumes[at];
            if self.logical[number][at].is_some() || state.problem.is_some() {
                continue;
            }
            match opener.open(&lv.name).await {
                Ok(opened) => {
                    (state.partial, state.notes) = (opened.partial, opened.notes);
                    self.logical[number][at] = Some(opened.volume);
                    self.see(core, number, at);
                }
                Err(problem) => state.problem = Some(problem),
            }
        }
        self.running.extend(opener.into_running());
        Ok(())
    }

    /// Makes a volume that was started or changed a member, in place of what it was before.
    fn see(&mut self, core: &Core, group: usize, volume: usize) {
        let scanned = &self.groups[group];
        let name = scanned.full_name(&scanned.vg.lvs[volume]);
        let running = self.logical[group][volume].as_ref();
        let Some(device) = running.and_then(|running| running.device(core, &name).ok()) else { return };
        let (member, origin) = (Member::layer(name, device), Origin::Logical { group, volume });
        match self.member_of(origin) {
            None => self.scan.add_made(member, origin),
            Some(known) => {
                self.scan.members[known].member = member;
                if let Some(volume) = self.volumes.get_mut(known) {
                    *volume = None;
                }
            }
        }
    }

    /// Stops a volume that was started here.
    async fn stop(&mut self, core: &Core, volume: &VolumeRef) -> Result<(), Problem> {
        let at = self.running.iter().position(|running| match running {
            Running::Array(array) => array.volume().is(volume),
            Running::Mapped(mapped) => mapped.volume().is(volume),
        });
        match at {
            Some(at) => self.running.remove(at).stop(core).await,
            None => Ok(()),
        }
    }

    /// Whether something that runs lies on a member.
    #[must_use]
    pub fn is_relied_on(&self, member: usize) -> bool {
        let is_used = |(ix, seen): (usize, &MemberScan)| {
            matches!(seen.origin, Origin::Partition { of, .. } if of == member)
                && (self.volumes.get(ix).is_some_and(Option::is_some) || self.is_relied_on(ix))
        };
        self.groups.iter().any(|group| group.devices.contains(&Some(member)))
            || self.scan.arrays.iter().any(|array| array.members.contains(&member))
            || self.scan.members.iter().enumerate().any(is_used)
    }

    /// Takes a member away that nothing relies on, with its partitions; those behind it move up.
    fn forget(&mut self, gone: usize) {
        let part = |seen: &MemberScan| matches!(seen.origin, Origin::Partition { of, .. } if of == gone);
        while let Some(part) = self.scan.members.iter().rposition(part) {
            self.forget(part);
        }
        self.scan.members.remove(gone);
        if gone < self.volumes.len() {
            self.volumes.remove(gone);
        }
        let move_up = |ix: &mut usize| *ix -= usize::from(*ix > gone);
        for array in &mut self.scan.arrays {
            array.members.iter_mut().chain(&mut array.unused).for_each(move_up);
        }
        for member in &mut self.scan.members {
            if let Origin::Partition { of, .. } = &mut member.origin {
                move_up(of);
            }
        }
        for group in &mut self.groups {
            group.devices.iter_mut().flatten().for_each(move_up);
            group.behind.iter_mut().for_each(|(member, ..)| move_up(member));
        }
    }
}
