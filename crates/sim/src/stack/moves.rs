//! `lv move` on a served volume, in the steps in which control does it, while drives stall.

use std::time::Duration;

use wattle_engine::VolumeError;
use wattle_rt::{BufMut, Core, Durability, Rng};

use super::ledger::BLOCK;
use super::play::{Running, map};
use super::{EXTENT_BYTES, Extent, Run};
use crate::lock::lock;

/// Moves extents, one after the other.
pub(super) async fn run(running: &Running, core: &Core, mut rng: Rng) {
    for _ in 0..1 + rng.below(6) {
        core.sleep(Duration::from_micros(rng.below(2_000))).await;
        let volume = rng.below(running.volumes.len() as u64) as usize;
        let runs = lock(&running.maps)[volume].clone();
        let run = rng.below(runs.len() as u64) as usize;
        let leg = rng.below(runs[run].len() as u64) as usize;
        let free = free(running);
        if free.is_empty() {
            return;
        }
        let to = free[rng.below(free.len() as u64) as usize];
        let step = Step { volume, runs, run, leg, to };
        if let Err(error) = step.carry_out(running, core, &mut rng).await {
            lock(&running.ledger).accuse(format!("{step:?}: {error}"));
        }
    }
}

/// Extents of no volume.
fn free(running: &Running) -> Vec<Extent> {
    let used: Vec<Extent> = lock(&running.maps).iter().flatten().flatten().copied().collect();
    let bases = (0..).zip(&running.stack.bases);
    let all = bases.flat_map(|(base, of)| (0..of.extents()).map(move |number| Extent { base, number }));
    all.filter(|extent| !used.contains(extent)).collect()
}

#[derive(Debug)]
struct Step {
    volume: usize,
    runs: Vec<Run>,
    run: usize,
    leg: usize,
    to: Extent,
}

impl Step {
    async fn carry_out(&self, running: &Running, core: &Core, rng: &mut Rng) -> Result<(), VolumeError> {
        let tell = |what: &str| lock(&running.ledger).tell(|| format!("lv{}: {what} {self:?}", self.volume));
        let handle = &running.volumes[self.volume];
        let start: u64 = self.runs[..self.run].iter().map(|run| run.len() as u64 * EXTENT_BYTES).sum();
        let held = start..start + self.runs[self.run].len() as u64 * EXTENT_BYTES;
        let blocks = held.start / BLOCK as u64..held.end / BLOCK as u64;
        lock(&running.stage).hot = Some((self.volume, blocks));
        tell("hold for");
        handle.hold(core, held).await?;
        tell("copy for");
        self.copy(running, core).await?;
        // A record of the new map: it is there or not.
        core.sleep(running.stack.record).await;
        let mut after = self.runs.clone();
        after[self.run][self.leg] = self.to;
        lock(&running.maps)[self.volume].clone_from(&after);
        if rng.coin() {
            // Requests that are under way keep cores apart while the map changes.
            let drive = rng.below(running.stack.drives as u64) as usize;
            running.controls[drive].stall(Duration::from_micros(rng.below(20_000)));
        }
        tell("map anew for");
        let mapped = handle.remap(core, map(&running.bases, &after)).await;
        tell("mapped anew for");
        mapped.map_err(|_| VolumeError::Stopped)
    }

    async fn copy(&self, running: &Running, core: &Core) -> Result<(), VolumeError> {
        let from = self.runs[self.run][self.leg];
        let source = running.bases[from.base].volume().open(core)?;
        let target = running.bases[self.to.base].volume().open(core)?;
        let at = |extent: Extent| extent.number as u64 * EXTENT_BYTES;
        let (result, bytes) = source.read(at(from), BufMut::alloc(EXTENT_BYTES as usize)).await;
        result?;
        target.write(at(self.to), bytes.freeze(), Durability::Cached).await?;
        target.flush().await
    }
}
