//! A lifetime of the array, inside the world.

use wattle_engine::VolumeError;
use wattle_rt::{Core, CoreIx, DriveControl, Rng};

use super::Ended;
use crate::audit;
use crate::client::{self, Habits, SharedHistory};
use crate::desk::Desk;
use crate::lock::lock;
use crate::metadata::RunningModel;
use crate::operator;
use crate::scenario::{End, Lifetime};
use crate::watch;

/// A lifetime inside the world.
pub(super) struct Session {
    pub life: Lifetime,
    pub habits: Habits,
    pub clients: usize,
    pub readers: usize,
    pub desk: Desk,
    /// Resync and rebuilding have to come to their end in a lifetime without faults.
    pub finish: bool,
    /// Blocks that hold something else when all of that is done.
    pub silent: usize,
    /// The deadline of reads is shorter than what drives may take.
    pub gives_up: bool,
    pub truth: SharedHistory,
    pub watch: watch::SharedWatch,
    pub rng: Rng,
}

impl Session {
    pub async fn run(self, core: Core, running: RunningModel) -> Ended {
        let watch = self.watch.clone();
        let ended = self.run_to_end(core, running).await;
        let watch = &mut *lock(&watch);
        watch.look_at_writes();
        watch.ended = true;
        ended
    }

    async fn run_to_end(mut self, core: Core, running: RunningModel) -> Ended {
        let array = running.array.clone();
        if let End::Kill(after) = self.life.end {
            let killed = core.clone();
            core.spawn(self.live(core.clone(), running));
            killed.sleep(after).await;
            return Ended::Dropped;
        }
        let (end, gives_up, controls) =
            (self.life.end.clone(), self.gives_up, self.desk.plan.controls.clone());
        let (pause, cut) = (self.habits.clean_delay * self.rng.below(300) as u32 / 100, end != End::Stop);
        let truth = self.truth.clone();
        self.live(core.clone(), running.clone()).await;
        if cut {
            core.sleep(pause).await;
            return Ended::PowerCut;
        }
        let stopped = match &running.md {
            Some(md) => md.stop().await,
            None => array.stop(&core).await,
        };
        let mut pending = 0u64;
        for index in (0..core.cores()).map(CoreIx) {
            pending += core.call(index, |core: Core| async move { core.ops_in_flight() as u64 }).await;
        }
        // Another program may have the members from here on.
        let writes: u32 = controls.iter().map(DriveControl::writes_in_flight).sum();
        let unanswered: u32 = controls.iter().map(DriveControl::in_flight_while_gone).sum();
        let truth = &mut *lock(&truth);
        truth.tell(|| format!("stop: {stopped:?}"));
        // Reads that were given up go on until their drives answer: nothing waits for those, and
        // they change nothing. So do those that a drive still has when the first of them tells that
        // it is gone.
        if writes > 0 || (pending > u64::from(unanswered) && !gives_up) {
            truth.accuse(format!(
                "{pending} operations are in flight after the array was stopped, {writes} of them writes"
            ));
        }
        match stopped {
            Ok(()) => Ended::Stopped,
            Err(error) => {
                truth.judge_stop(error);
                if error == VolumeError::Broken { Ended::Broken } else { Ended::Dropped }
            }
        }
    }

    /// What the clients see of it.
    async fn live(mut self, core: Core, running: RunningModel) {
        let array = running.array.clone();
        let Ok(volume) = array.volume().open(&core) else {
            lock(&self.truth).accuse("a running array has no volume");
            return;
        };
        client::verify(&volume, &self.truth).await;
        if self.rng.coin() {
            client::verify(&volume, &self.truth).await;
        }
        if self.habits.requests == 0 {
            if self.finish {
                operator::wait_until_whole(&core, &array, &self.truth).await;
                client::verify(&volume, &self.truth).await;
                audit::zeroed(&core, &array, &self.desk).await;
                if self.silent > 0 {
                    lock(&self.watch).expect_the_worst();
                    audit::silent(&core, &array, &self.desk, &mut self.rng, self.silent).await;
                }
            }
            return;
        }
        if !self.desk.wires.is_empty() {
            self.desk.meet(&core, &running).await;
        }
        let faults = std::mem::take(&mut self.life.faults);
        core.spawn(operator::misfortunes(core.clone(), running.clone(), faults, self.desk.clone()));
        let mut clients = Vec::new();
        for number in 0..self.clients + self.readers {
            let reads = number >= self.clients;
            let (volume, truth, rng, habits) =
                (array.volume(), self.truth.clone(), self.rng.fork(), self.habits);
            clients.push(core.call(CoreIx(number % core.cores()), move |core| async move {
                match volume.open(&core) {
                    Ok(volume) if reads => client::reader(core, volume, truth, rng, habits).await,
                    Ok(volume) => client::client(core, volume, truth, rng, habits).await,
                    Err(_) => lock(&truth).accuse("a running array has no volume on some core"),
                }
            }));
        }
        for client in clients {
            client.await;
        }
        if !self.desk.wires.is_empty() {
            self.desk.reunite(&core, &running).await;
        }
        if self.rng.coin() {
            client::verify(&volume, &self.truth).await;
        }
    }
}
