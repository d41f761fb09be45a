//! What happens to an array while it runs, besides requests: drives fail and return, and an operator acts.

use std::time::Duration;

use wattle_engine::sync::JobEnd;
use wattle_engine::units::MemberIx;
use wattle_engine::{ArrayHandle, MemberSpec, MemberState};
use wattle_rt::{Core, Device};

use crate::books::Bits;
use crate::client::Shared;
use crate::scenario::Fault;
use crate::site::{self, Plan};
use crate::watch::lock;

/// What an operator has at hand.
#[derive(Clone)]
pub struct Desk {
    /// The drives from outside.
    pub plan: Plan,
    /// The drives as members, by number.
    pub drives: Vec<Device>,
    /// The bits of the bitmap, if there is one.
    pub bits: Bits,
    /// Where it is told.
    pub truth: Shared,
}

/// How long an array may take to become whole when nothing fails any more. Simulated arrays are small.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);

/// Lets faults happen at their times.
pub async fn misfortunes(core: Core, array: ArrayHandle, mut faults: Vec<(Duration, Fault)>, desk: Desk) {
    faults.sort_by_key(|(after, _)| *after);
    let began = core.now();
    for (after, fault) in faults {
        core.sleep_until(began + after).await;
        lock(&desk.truth).tell(|| format!("fault: {fault:?}"));
        if fault.loses_something() {
            lock(&desk.truth).fault();
        }
        desk.happen(&core, &array, fault).await;
    }
}

impl Desk {
    async fn happen(&self, core: &Core, array: &ArrayHandle, fault: Fault) {
        let control = |drive: MemberIx| &self.plan.controls[drive.index()];
        match fault {
            Fault::Gone(drive) => control(drive).gone_now(),
            Fault::GoneAfterOps(drive, operations) => control(drive).gone_after_ops(operations),
            Fault::FailWrites(drive, n) => control(drive).fail_next_writes(n),
            Fault::FailFlush(drive) => control(drive).fail_next_flushes(1),
            Fault::FailReads(drive, n) => control(drive).fail_next_reads(n),
            Fault::Operator(slot) => drop(array.fail(core, slot).await),
            Fault::Latent(sectors) => {
                for (drive, sector) in sectors {
                    let first = lock(&self.truth).data_offset_units;
                    control(drive).latent(first + sector);
                }
            }
            Fault::Stall(drive, duration) => control(drive).stall(duration),
            Fault::Slow(drive, factor) => control(drive).slow(factor),
            Fault::Return(slot) => self.take_back(core, array, slot).await,
            Fault::Spare(slot, drive) => {
                let who = site::member(&self.drives, &self.plan, drive.index());
                self.told("add a spare", array.add(core, slot, who).await);
            }
            Fault::Replace(slot, drive) => {
                let who = site::member(&self.drives, &self.plan, drive.index());
                self.told("replace", array.replace(core, slot, who).await);
            }
            Fault::Remove(seat) => self.told("remove", array.remove(core, seat).await),
        }
    }

    /// The first drive of a slot is back and returns to it: only what it missed is written to it, where the bitmap tells.
    async fn take_back(&self, core: &Core, array: &ArrayHandle, slot: MemberIx) {
        let now = array.status(core).await.members.swap_remove(slot.index());
        if now.state.writable() {
            return;
        }
        let control = &self.plan.controls[slot.index()];
        // It had no power meanwhile.
        control.lose_cache();
        control.come_back();
        control.fail_next_writes(0);
        control.fail_next_flushes(0);
        control.fail_next_reads(0);
        let device = &self.drives[slot.index()];
        // Nobody else was in the slot: no bit was cleared since it failed.
        let missed_little = now.state == MemberState::Faulty && now.device.as_deref() == Some(device.name());
        let who = MemberSpec {
            stale: self.bits.now().filter(|_| missed_little),
            ..site::member(&self.drives, &self.plan, slot.index())
        };
        self.told("take back", array.add(core, slot, who).await);
    }

    /// An operator may be refused; the array must be none the worse.
    fn told<E: std::fmt::Debug>(&self, what: &str, result: Result<(), E>) {
        lock(&self.truth).tell(|| format!("{what}: {result:?}"));
    }
}

/// Waits until parity and copies agree and nobody is being filled.
pub async fn wait_until_whole(core: &Core, array: &ArrayHandle, truth: &Shared) {
    let deadline = core.now() + WHOLE_WITHIN;
    loop {
        let status = array.status(core).await;
        let filling = status
            .members
            .iter()
            .chain(&status.replacements)
            .any(|member| matches!(member.state, MemberState::Rebuilding { .. }));
        if !filling && status.synced_below == wattle_engine::units::Sector::MAX {
            return;
        }
        // Sectors that could not be read when parity was not to be trusted are beyond redundancy, and where that cannot be
        // recorded a resync cannot pass them.
        let stuck = status.last.as_ref().is_some_and(|last| matches!(last.end, JobEnd::Failed(_)));
        if stuck && lock(truth).excused() {
            return;
        }
        if core.now() > deadline {
            lock(truth).accuse(format!("nothing fails any more, and still the array is not whole: {status:?}"));
            return;
        }
        core.sleep(Duration::from_millis(10)).await;
    }
}
