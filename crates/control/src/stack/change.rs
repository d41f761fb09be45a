//! Changes of a volume group whose volumes run: committed like any other, and what runs is mapped anew.

use wattle_engine::VolumeRef;
use wattle_rt::{Core, Device};

use super::{Purpose, Stack};
use crate::lvm::group::{self, GroupScan};
use crate::lvm::open::Opener;
use crate::lvm::physical;
use crate::lvm::plan::{Place, Plan};
use crate::members::Member;
use crate::problem::{Code, Problem};

impl Stack {
    /// The groups that are open, rather than only seen.
    pub fn open_groups(&self) -> impl Iterator<Item = &GroupScan> {
        let wanted = |group: &&GroupScan| self.wants(|wanted| wanted.groups.contains(&group.vg.id));
        self.groups.iter().filter(wanted).filter(|group| group.problem.is_none())
    }

    /// Makes `text` a group's, as `plan` says, and lets its volumes follow: those that grew are longer from then on, those that moved
    /// are where they are now. New ones do not run before the stack is opened again. A crash before the volumes follow leaves the new
    /// group, with everything that was written where the text says.
    ///
    /// Tells what of it could not be written.
    ///
    /// # Errors
    /// A [`Problem`]: the group is as it was, but for what the problem says.
    pub async fn change_group(
        &mut self,
        core: &Core,
        plan: &Plan,
        text: &[u8],
    ) -> Result<Vec<String>, Problem> {
        let id = plan.before.as_ref().map(|before| before.id);
        let is_open = self.open_groups().any(|group| Some(group.vg.id) == id);
        let number = self.groups.iter().position(|group| Some(group.vg.id) == id);
        let Some(number) = number.filter(|_| is_open && self.options.purpose == Purpose::Write) else {
            return Err(Problem::new(
                Code::ReadOnlyMember,
                "the group is not open for writing",
                "it is served read-only, or nothing that is served lies on it",
                "serve it without --read-only",
            ));
        };
        let mut devices = Vec::new();
        for place in &plan.places {
            let volume = self.volume(core, place.member).await?;
            let device = volume.device(core, &place.name);
            devices.push(device.map_err(|error| stopped(&place.name, &error.to_string()))?);
        }
        let layer =
            |(place, device): (&Place, &Device)| (place.member, Member::layer(&place.name, device.clone()));
        let members: Vec<_> = plan.places.iter().zip(&devices).map(layer).collect();
        let written = plan.execute(core, devices, Some(text)).await;
        // Also after a failure some headers may be new: the next change starts from what is there.
        self.beside(core, move |scan| {
            for (ix, member) in members {
                scan.members[ix].physical = physical::read(&member).and_then(Result::ok);
            }
        })
        .await?;
        let physical = self.groups[number].devices.iter().flatten().filter_map(|&ix| {
            let seen = &self.scan.members[ix];
            Some((ix, seen.member.name.as_str(), seen.physical.as_ref()?))
        });
        let found = group::assemble(&physical.collect::<Vec<_>>()).groups;
        match found.into_iter().find(|group| group.text == text) {
            Some(group) => self.follow(core, number, group).await?,
            None if written.is_ok() => {
                return Err(stopped(&self.groups[number].vg.name, "its text was not found"));
            }
            None => {}
        }
        written
    }

    /// Maps volumes that run as the new text has them. (Volumes do not go, and keep their order.)
    async fn follow(&mut self, core: &Core, number: usize, mut group: GroupScan) -> Result<(), Problem> {
        let before = &self.groups[number];
        for (state, old) in group.volumes.iter_mut().zip(&before.volumes) {
            *state = old.clone();
        }
        let mut physical = Vec::new();
        for ix in group.devices.clone() {
            physical.push(match ix {
                Some(ix) => Some(self.volume(core, ix).await?),
                None => None,
            });
        }
        let before = std::mem::replace(&mut self.groups[number], group);
        let group = &self.groups[number];
        let running = &mut self.logical[number];
        running.resize(group.vg.lvs.len(), None);
        let mut opener = Opener::new(core, group, false, physical).await?;
        let changed = group.vg.lvs.iter().zip(&before.vg.lvs).zip(running);
        for ((lv, old), volume) in changed.filter(|((lv, old), _)| lv.segments != old.segments) {
            debug_assert_eq!(lv.id, old.id, "volumes keep their order");
            let Some(VolumeRef::Mapped(handle)) = volume else { continue };
            let spec = opener.map(lv).await?;
            handle
                .remap(core, spec)
                .await
                .map_err(|error| stopped(&group.full_name(lv), &error.to_string()))?;
        }
        Ok(())
    }
}

fn stopped(name: &str, why: &str) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {why}"),
        "it does not run as it should; what was committed is on the members",
        "see what is wrong with its members (`wattle scan`)",
    )
}
