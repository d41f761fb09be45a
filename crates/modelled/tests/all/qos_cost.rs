//! What quality of service costs a core that does nothing else, in real time, on drives that answer
//! at once. It measures a machine, so it only runs when it is asked for:
//!
//! `cargo test --release -p wattle-modelled --test all qos_cost:: -- --ignored --nocapture`

use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::volume::qos::{QosLimits, QosRates, QosSite};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, VolumeRef};
use wattle_rt::{BufMut, Core, Device, Durability, Rng, RuntimeConfig};

const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 12;
const SPAN: u64 = 1 << 30;

/// Writes of 4 KiB a second, 32 at a time.
async fn rate(core: &Core, volume: &VolumeRef) -> f64 {
    let (began, end) = (core.now(), core.now() + ROUND);
    let client = |seed| {
        let (opened, core) = (volume.open(core).unwrap(), core.clone());
        async move {
            let (mut rng, data, mut done) = (Rng::new(seed), BufMut::zeroed(4096).freeze(), 0u64);
            while core.turn_time() < end {
                opened.write(rng.below(SPAN / 4096) * 4096, data.clone(), Durability::Cached).await.unwrap();
                done += 1;
            }
            done
        }
    };
    let clients: Vec<_> = (0..32).map(|seed| core.spawn(client(seed))).collect();
    let mut sum = 0;
    for client in clients {
        sum += client.await;
    }
    sum as f64 / (core.now() - began).as_secs_f64()
}

#[test]
#[ignore = "measures the machine"]
fn what_is_not_set_costs_nothing() {
    let config = RuntimeConfig::default();
    wattle_rt::run(config, async |core: Core| {
        let size = Sector(1 << 21);
        let geometry = Geometry::new(&Params {
            level: Level::Raid5,
            layout: 2,
            chunk: Sector(128),
            raid_disks: 4,
            component_size: size,
            member_sizes: vec![size; 4],
        });
        let members = (0..4).map(|_| MemberSpec::in_sync(Device::null(1 << 30), Sector(0))).collect();
        let spec = ArraySpec::new("array", geometry.unwrap(), members);
        let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
        let plain = array.volume();
        let alone = QosSite::new(1).govern(plain.clone());
        let site = QosSite::new(1);
        let (beside, idle) = (site.govern(plain.clone()), site.govern(plain.clone()));
        // What is under way is counted only beside a volume that is to have another share.
        let other = QosLimits { weight: 200, ..QosLimits::default() };
        idle.governed().unwrap().set(&core, other).await;
        let limited = QosSite::new(1).govern(plain.clone());
        let mut rates = QosRates::default();
        rates.0[0] = Some(100_000_000);
        let limits = QosLimits { volume: rates, ..QosLimits::default() };
        limited.governed().unwrap().set(&core, limits).await;
        let cases = [
            ("not governed", &plain),
            ("governed, nothing set", &alone),
            ("with an idle neighbour", &beside),
            ("limit of 100 million", &limited),
            ("not governed, once more", &plain),
        ];
        let mut seen = vec![Vec::new(); cases.len()];
        for _ in 0..ROUNDS {
            for (at, (_, volume)) in cases.iter().enumerate() {
                seen[at].push(rate(&core, volume).await);
            }
        }
        let median = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let base = median(&mut seen[0]);
        for ((name, _), rates) in cases.iter().zip(&mut seen) {
            let rate = median(rates);
            eprintln!("{name}: {rate:.0} writes a second, {:.1} % of not governed", 100.0 * rate / base);
        }
        array.stop(&core).await.unwrap();
    })
    .unwrap();
}
