//! Changes of volume groups under their clients: what becomes of the volumes that these are
//! offered.
//!
//! A volume that goes, gets shorter or is called otherwise is hidden first, everywhere, and so is a
//! drive that becomes a physical volume; only then is it known that no client has it open, and the
//! change is committed. Afterwards what is offered
//! is made what runs, whatever came of it.

use wattle_control::stack::LogicalVolume;
use wattle_control::{Code, MemberId, Problem, Stack};
use wattle_engine::volume::qos::QosLimits;

use super::qos::governed;
use super::{Serving, being_stopped, groups_of};
use crate::exports::Offered;
use crate::groups::{self, Taken};
use crate::protocol::change::What;
use crate::protocol::{ChangeReport, Order};

impl Serving {
    /// Changes a volume group under its clients.
    pub(super) async fn obey(&self, order: &Order) -> Result<ChangeReport, Problem> {
        let _turn = self.changing.acquire(1).await;
        if self.is_ending() {
            return Err(being_stopped("the volume group"));
        }
        let stack = self.stack.take();
        let mut stack = stack.ok_or_else(|| being_stopped("the volume group"))?;
        let mut hidden = Hidden::default();
        let free = async |taken: &Taken| {
            hidden = self.hide(taken).await?;
            Ok(())
        };
        let now = self.core.wall_clock();
        let backups = self.saving.backups();
        let undo =
            |action: &str, given: &[String]| self.saving.recorder(Some(&order.undo), now, action, given);
        let done =
            groups::obey(&self.core, &mut stack, &self.access, (order, backups.as_deref()), undo, free).await;
        let told = self.offer_what_runs(&stack, &hidden, done.is_ok()).await;
        self.groups.replace(groups_of(&stack));
        self.stack.replace(Some(stack));
        let mut report = done?;
        report.notes.extend(told);
        if let (What::Create { volume, .. }, false, false) = (&order.what, order.dry_run, self.offers_all) {
            report.notes.push(format!("{volume} is not offered: this server was told what to serve (-V)"));
        }
        Ok(report)
    }

    /// Takes what is offered of these out of view: no client can open it any more.
    ///
    /// # Errors
    /// Some of it is open: all of it is found then as before.
    async fn hide(&self, taken: &Taken) -> Result<Hidden, Problem> {
        let offered = self.offered();
        let goes = |offered: &Offered| offered.lv.is_some_and(|lv| taken.volumes.contains(&lv));
        let joins = |offered: &Offered| taken.drives.iter().any(|drive| offered.volume.is(drive));
        let meant: Vec<_> = offered.iter().filter(|of| goes(of) || joins(of)).collect();
        let mut problem = None;
        for offered in &meant {
            let mut users = Vec::new();
            for place in self.places() {
                users.extend(place.hide(&self.core, &offered.name).await);
            }
            if !users.is_empty() {
                problem.get_or_insert(in_use(&offered.name, &users.join(", ")));
            }
        }
        if problem.is_some() {
            for offered in &meant {
                self.show(&offered.name).await;
            }
        }
        let names = meant.iter().map(|of| of.name.clone()).collect();
        let drives = meant.iter().filter(|of| joins(of)).map(|of| of.name.clone()).collect();
        problem.map_or(Ok(Hidden { names, drives, joining: taken.joining.clone() }), Err)
    }

    async fn show(&self, name: &str) {
        for place in self.places() {
            place.show(&self.core, name).await;
        }
    }

    /// Makes what is offered what runs: of what was hidden, what it is now if the change was made,
    /// or else what it was; a drive that is a physical volume of a group now is offered no more.
    /// Tells what clients should know.
    async fn offer_what_runs(&self, stack: &Stack, hidden: &Hidden, changed: bool) -> Vec<String> {
        let (mut now, mut notes) = (Vec::new(), Vec::new());
        let mut running = stack.logical_volumes();
        let in_group = |member: &MemberId| stack.groups.iter().any(|of| of.devices.contains(&Some(*member)));
        let joined = hidden.joining.iter().any(in_group);
        for offered in self.offered().iter() {
            let was_hidden = hidden.names.contains(&offered.name);
            let at = running.iter().position(|running| Some(running.id) == offered.lv);
            let found = at.map(|at| running.remove(at));
            let same = |found: &LogicalVolume| found.volume.is(&offered.volume) && !(was_hidden && changed);
            let is_below = joined && hidden.drives.contains(&offered.name);
            if !is_below && (offered.lv.is_none() || found.as_ref().is_some_and(same)) {
                if was_hidden {
                    self.show(&offered.name).await;
                }
                now.push(offered.clone());
                continue;
            }
            if is_below {
                let name = &offered.name;
                notes.push(format!("{name} is not offered any more: a group writes there now"));
            }
            // Exports end when all that came there is answered: nothing may be held back any more.
            self.release(Some(&offered.name)).await;
            for place in self.places() {
                place.remove(&self.core, &offered.name).await;
            }
            let mut limits = None;
            if let Some(governed) = offered.volume.governed() {
                limits = Some(governed.limits());
                let checkpoints = governed.checkpoints();
                let names: Vec<_> = checkpoints.iter().map(|map| map.name()).collect();
                if !names.is_empty() {
                    notes.push(format!("{}: checkpoints have ended: {}", offered.name, names.join(", ")));
                }
                governed.end(&self.core).await;
            }
            if let Some(found) = found.filter(|_| !is_below) {
                now.push(self.offer(found, offered.is_default, limits, &mut notes).await);
            }
        }
        for new in running.into_iter().filter(|new| self.offers_all && new.is_top && !new.is_skipped) {
            let offered = self.offer(new, false, None, &mut notes).await;
            notes.push(format!("{} is offered at {}", offered.name, offered.exports.join(" ")));
            now.push(offered);
        }
        for place in self.places() {
            notes.extend(place.resize(&self.core, &now).await);
        }
        self.offered.replace(now.into());
        notes
    }

    /// Offers a volume everywhere, with the limits that it had under another name or size, if it
    /// had some.
    async fn offer(
        &self,
        new: LogicalVolume,
        is_default: bool,
        limits: Option<QosLimits>,
        notes: &mut Vec<String>,
    ) -> Offered {
        let LogicalVolume { id, name, volume, .. } = new;
        let mut offered = Offered {
            name,
            volume,
            description: String::new(),
            exports: Vec::new(),
            identity: id.to_string(),
            lv: Some(id),
            is_default,
            is_blank: false,
        };
        offered = governed(&self.site, offered);
        match (limits, offered.volume.governed()) {
            (Some(limits), Some(governed)) => governed.set(&self.core, limits).await,
            _ => self.start_qos(&offered).await,
        }
        for place in self.places() {
            match place.add(&self.core, &offered).await {
                Ok(way) => offered.exports.push(way),
                Err(problem) => notes.push(format!("{}: {}", problem.what, problem.why)),
            }
        }
        offered
    }
}

/// What is out of view while a group is changed.
#[derive(Default)]
struct Hidden {
    names: Vec<String>,
    /// Those that are [`Taken::drives`].
    drives: Vec<String>,
    /// [`Taken::joining`].
    joining: Vec<MemberId>,
}

fn in_use(name: &str, users: &str) -> Problem {
    Problem::new(
        Code::InUse,
        format!("{name} is in use: {users}"),
        "what these have of it, or write to it, would be lost; nothing was changed",
        "unmount, close or disconnect it first",
    )
}
