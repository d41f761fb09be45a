//! Arrays of copies whose members lie across a network: they go away and come back by themselves,
//! while clients write, operators fail members, and the machine crashes.

use std::time::Duration;

use wattle_engine::geometry::LevelKind;
use wattle_engine::units::MemberSet;
use wattle_format::md::Version;
use wattle_rt::Rng;

use super::draw::{logarithmic, one_in, one_of};
use super::{End, InjectedFault, Scenario};
use crate::metadata::MetadataModel;

impl Scenario {
    /// The scenario of a seed in which members go away.
    ///
    /// # Panics
    /// Never: arrays of copies are drawn often.
    #[must_use]
    pub fn away(seed: u64) -> Scenario {
        let rng = &mut Rng::new(seed ^ 0xa3a1_0ff0);
        let drawn = |_| Scenario::new(rng.next_u64());
        let copies = |scenario: &Scenario| {
            scenario.geometry().kind() == LevelKind::Mirrored
                && scenario.geometry().redundancy() > 0
                && !scenario.beyond
                && !scenario.victims.is_empty()
        };
        let mut scenario = (0..).map(drawn).find(copies).expect("arrays of copies are drawn often");
        scenario.seed = seed;
        scenario.metadata = MetadataModel::Md(one_of(rng, &[Version::V11, Version::V12]));
        scenario.region = Some(one_of(rng, &[8, 8, 16, 64]));
        scenario.remote = scenario.victims;
        (scenario.spares, scenario.silent) = (0, 0);
        scenario.clients = scenario.clients.min(4);
        scenario.clean_delay = Duration::from_millis(one_of(rng, &[5, 50, 200]));
        scenario.mix.pause = 1 + rng.below(3);
        for life in &mut scenario.lifetimes {
            (life.withheld, life.resynced) = (MemberSet::EMPTY, false);
            life.faults.clear();
            if life.requests == 0 {
                continue;
            }
            life.requests = 20 + logarithmic(rng, 80) as usize;
            for slot in scenario.victims.iter() {
                for _ in 0..=rng.below(3) {
                    let length = Duration::from_millis(1 + logarithmic(rng, 800));
                    life.faults.push((moment(rng), InjectedFault::Away(slot, length)));
                }
                if one_in(rng, 3) {
                    life.faults.push((moment(rng), InjectedFault::Operator(slot)));
                }
            }
            life.end = match rng.below(5) {
                0 => End::Kill(moment(rng)),
                1 => End::CutAfter(moment(rng)),
                2 => End::CutAfterOps(1 + logarithmic(rng, 4000)),
                _ => End::Stop,
            };
        }
        scenario
    }
}

fn moment(rng: &mut Rng) -> Duration {
    Duration::from_micros(rng.below(3_000_000))
}
