//! What happens to an array while it runs, besides requests: drives fail and return, and an
//! operator acts.

use std::time::Duration;

use wattle_control::Forced;
use wattle_control::admit::WantedSeat;
use wattle_control::assemble::MemberRecovery;
use wattle_control::running::{BitmapChoice, RunningArray};
use wattle_engine::job::JobEnd;
use wattle_engine::units::MemberIx;
use wattle_engine::{ArrayHandle, MemberSpec, MemberState};
use wattle_rt::Core;

use crate::audit;
use crate::client::SharedHistory;
use crate::desk::Desk;
use crate::lock::lock;
use crate::metadata::{MetadataModel, RunningModel, md};
use crate::scenario::InjectedFault;
use crate::site;

/// How long an array may take to become whole when nothing fails any more. Simulated arrays are
/// small.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);

/// Lets faults happen at their times.
pub async fn misfortunes(
    core: Core,
    running: RunningModel,
    mut faults: Vec<(Duration, InjectedFault)>,
    desk: Desk,
) {
    faults.sort_by_key(|(after, _)| *after);
    let began = core.now();
    for (after, fault) in faults {
        core.sleep_until(began + after).await;
        lock(&desk.truth).tell(|| format!("fault: {fault:?}"));
        if fault.loses_something() {
            lock(&desk.truth).fault();
        }
        desk.happen(&core, &running, fault).await;
    }
}

impl Desk {
    async fn happen(&self, core: &Core, running: &RunningModel, fault: InjectedFault) {
        let array = &running.array;
        let control = |drive: MemberIx| &self.plan.controls[drive.index()];
        match fault {
            InjectedFault::Gone(drive) => control(drive).gone_now(),
            InjectedFault::GoneAfterOps(drive, operations) => control(drive).gone_after_ops(operations),
            InjectedFault::FailWrites(drive, n) => control(drive).fail_next_writes(n),
            InjectedFault::FailFlush(drive) => control(drive).fail_next_flushes(1),
            InjectedFault::FailReads(drive, n) => control(drive).fail_next_reads(n),
            InjectedFault::Operator(slot) if self.wires.contains_key(&slot.0) => {
                self.order_out(core, running, slot).await;
            }
            InjectedFault::Operator(slot) => drop(array.fail(core, slot).await),
            InjectedFault::Away(slot, length) => {
                if let Some(wire) = self.wires.get(&slot.0) {
                    wire.cut(core, length);
                }
            }
            InjectedFault::Latent(sectors) => {
                for (drive, sector) in sectors {
                    let first = lock(&self.truth).data_offset_units;
                    control(drive).latent(first + sector);
                }
            }
            InjectedFault::Stall(drive, duration) => control(drive).stall(duration),
            InjectedFault::Slow(drive, factor) => control(drive).slow(factor),
            InjectedFault::Ask(job) => {
                let (array, truth) = (array.clone(), self.truth.clone());
                let asking = core.clone();
                core.spawn(async move { audit::ask(&asking, &array, &truth, job).await });
            }
            InjectedFault::Turn(sectors) => {
                if let Some(md) = &running.md {
                    let internal = |sectors| BitmapChoice::Internal {
                        chunk_bytes: Some(sectors * 512),
                        sweep_secs: Some(1),
                    };
                    let turned = md.set_bitmap(sectors.map_or(BitmapChoice::Off, internal)).await;
                    self.report("turn the bitmap", &turned);
                }
            }
            InjectedFault::Return(slot) => self.take_back(core, running, slot).await,
            InjectedFault::Spare(slot, drive) => match &running.md {
                Some(md) => self.take(md, drive, WantedSeat::Slot(slot.0)).await,
                None => {
                    let who = site::member(&self.drives, &self.plan, drive.index());
                    self.report("add a spare", &array.add(core, slot, who).await);
                }
            },
            InjectedFault::Replace(slot, drive) => match &running.md {
                Some(md) => self.take(md, drive, WantedSeat::Replace(slot.0)).await,
                None => {
                    let who = site::member(&self.drives, &self.plan, drive.index());
                    self.report("replace", &array.replace(core, slot, who).await);
                }
            },
            InjectedFault::Remove(seat) => match &running.md {
                Some(md) => {
                    let name = md.names().get(seat.index()).cloned().flatten();
                    if let Some(name) = name {
                        self.report("remove", &md.remove(&name).await);
                    }
                }
                None => self.report("remove", &array.remove(core, seat).await),
            },
        }
    }

    /// An operator fails a member that lies across a network: it stays out from then on.
    async fn order_out(&self, core: &Core, running: &RunningModel, slot: MemberIx) {
        let Some(md) = &running.md else { return };
        let Some(name) = md.names().get(slot.index()).cloned().flatten() else { return };
        let out = match self.forgets_orders {
            true => running.array.fail(core, slot).await.is_ok(),
            false => md.fail(&name).await.is_ok(),
        };
        lock(&self.truth).tell(|| format!("{name} is failed by order: {out}"));
        if out {
            lock(&self.ordered).insert(slot.0);
        }
    }

    /// Takes note of which members across a network the array has at its start, or takes back by
    /// itself. A member that left before the start, and does not know all that are in sync now,
    /// waits for an order: its superblock cannot say what came back after it left.
    pub async fn meet(&self, core: &Core, running: &RunningModel) {
        let status = running.array.status(core).await;
        let returning = running.md.iter().flat_map(|md| md.returning());
        let returning = returning.filter(|(_, who)| who.recovery == MemberRecovery::Regions);
        let returning: Vec<u16> = returning.map(|(_, who)| who.slot).collect();
        let is_known =
            |slot: &u16| returning.contains(slot) || status.members[usize::from(*slot)].state.writable();
        lock(&self.unknown).extend(self.wires.keys().filter(|slot| !is_known(slot)));
    }

    /// Waits until what lies across a network is there again, and is what it should be.
    pub async fn reunite(&self, core: &Core, running: &RunningModel) {
        let array = &running.array;
        let deadline = core.now() + WHOLE_WITHIN;
        let may_be_out =
            |slot: &u16| lock(&self.ordered).contains(slot) || lock(&self.unknown).contains(slot);
        loop {
            let quiet = self.wires.values().all(|wire| wire.is_quiet(core));
            let status = array.status(core).await;
            let back = |slot: &u16| status.members[usize::from(*slot)].state == MemberState::InSync;
            if quiet && status.sync.is_none() && self.wires.keys().all(|slot| may_be_out(slot) || back(slot))
            {
                break;
            }
            if core.now() > deadline {
                let remotes = match &running.md {
                    Some(md) => md.remotes().await,
                    None => Vec::new(),
                };
                let states: Vec<_> = status.members.iter().map(|member| &member.state).collect();
                let what = format!("a member that was away is not back by itself: {states:?}; {remotes:#?}");
                return lock(&self.truth).accuse(what);
            }
            core.sleep(Duration::from_millis(10)).await;
        }
        if lock(&self.ordered).is_empty() {
            return;
        }
        // Longer than a member is left alone.
        core.sleep(Duration::from_secs(40)).await;
        let status = array.status(core).await;
        for slot in lock(&self.ordered).iter() {
            if status.members[usize::from(*slot)].state.writable() {
                lock(&self.truth).accuse(format!("slot {slot}: a member that an operator failed came back"));
            }
        }
    }

    /// An operator gives a drive to an array of md's, once it is out of it.
    async fn take(&self, md: &RunningArray, drive: MemberIx, place: WantedSeat) {
        let MetadataModel::Md(version) = self.metadata else { return };
        let name = format!("drive{}", drive.index());
        if md.names().contains(&Some(name.clone())) {
            self.report("remove", &md.remove(&name).await);
        }
        let newcomer = md::newcomer(&self.plan, version, &self.drives, drive.index());
        self.report("take", &md.take(newcomer, place, Forced::default()).await);
    }

    /// The first drive of a slot is back and returns to it: only what it missed is written to it,
    /// where the bitmap tells.
    async fn take_back(&self, core: &Core, running: &RunningModel, slot: MemberIx) {
        let array = &running.array;
        let mut status = array.status(core).await;
        let now = status.members.swap_remove(slot.index());
        if now.state.writable() {
            return;
        }
        let control = &self.plan.controls[slot.index()];
        // It had no power meanwhile; but where nothing made up for it, or no record counts it out
        // yet, what it held in its cache would be gone for good.
        if !status.broken && lock(&self.watch).out.contains(slot) {
            control.lose_cache();
        }
        control.come_back();
        control.fail_next_writes(0);
        control.fail_next_flushes(0);
        control.fail_next_reads(0);
        if let Some(md) = &running.md {
            return self.take(md, slot, WantedSeat::Any).await;
        }
        let device = &self.drives[slot.index()];
        // No other member was in the slot: no bit was cleared since it failed.
        let missed_little = now.state == MemberState::Faulty && now.device.as_deref() == Some(device.name());
        let who = MemberSpec {
            stale: running.bits.now().filter(|_| missed_little),
            ..site::member(&self.drives, &self.plan, slot.index())
        };
        self.report("take back", &array.add(core, slot, who).await);
    }

    /// An operator may be refused; the array must be none the worse.
    fn report<T: std::fmt::Debug, E: std::fmt::Debug>(&self, what: &str, result: &Result<T, E>) {
        lock(&self.truth).tell(|| format!("{what}: {result:?}"));
    }
}

/// Waits until parity and copies agree and no member is being filled.
pub async fn wait_until_whole(core: &Core, array: &ArrayHandle, truth: &SharedHistory) {
    let deadline = core.now() + WHOLE_WITHIN;
    loop {
        let status = array.status(core).await;
        let filling = status
            .members
            .iter()
            .chain(&status.replacements)
            .any(|member| matches!(member.state, MemberState::Rebuilding { .. }));
        // The job is there until what it did is recorded.
        if !filling && status.sync.is_none() && status.synced_below == wattle_engine::units::Sector::MAX {
            return;
        }
        // Sectors that could not be read when parity was not to be trusted are beyond redundancy,
        // and where that cannot be recorded a resync cannot pass them.
        let stuck = status.last.as_ref().is_some_and(|last| matches!(last.end, JobEnd::Failed(_)));
        if stuck && lock(truth).excused() {
            return;
        }
        if core.now() > deadline {
            lock(truth)
                .accuse(format!("nothing fails any more, and still the array is not whole: {status:?}"));
            return;
        }
        core.sleep(Duration::from_millis(10)).await;
    }
}
