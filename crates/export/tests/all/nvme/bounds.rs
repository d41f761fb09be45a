//! What a host can make the target hold that takes no answers, in virtual time and with sockets
//! that hold 4 KiB.

use std::time::Duration;

use wattle_export::nbd::Limits;
use wattle_export::nvme::{DISCOVERY_NQN, NvmeServer, NvmeServerHandle, NvmeSubsystem};
use wattle_rt::{BufMut, Core, SimEndpoint, SimWorld, WorldConfig};

use super::host::Host;
use crate::support::{MIB, within};

const ERRORS: u8 = 1;
const SECOND: Duration = Duration::from_secs(1);

struct Bounded {
    core: Core,
    endpoint: SimEndpoint,
    server: NvmeServerHandle,
    nqn: String,
}

/// A target without volumes.
fn bounded_by(limits: Limits, test: impl AsyncFnOnce(Bounded)) {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let (endpoint, listener) = world.endpoint(4096);
    let run = async move |core: Core| {
        let subsystem = NvmeSubsystem::new("a test");
        let nqn = subsystem.nqn().to_owned();
        let server = NvmeServer::start(&core, listener, subsystem, Vec::new(), limits).await.unwrap();
        test(Bounded { core, endpoint, server, nqn }).await;
    };
    world.run(run).expect_done();
}

impl Bounded {
    async fn admin(&self, nqn: &str) -> Host {
        let mut host = Host::over(&self.core, self.endpoint.connect().unwrap(), 0).await;
        host.connect(0, u16::MAX, nqn, 31, 0).await.unwrap();
        host.enable().await;
        host
    }
}

#[test]
fn answers_that_a_host_does_not_take_are_paid_for() {
    let limits = Limits {
        reserve_bytes: 0,
        connection_bytes_max: 32 * MIB,
        shared_bytes_max: 32 * MIB,
        stall_time_max: SECOND,
        ..Limits::default()
    };
    bounded_by(limits, async |rig| {
        // A stranger: to find out where the subsystem is takes no proof.
        let mut greedy = rig.admin(DISCOVERY_NQN).await;
        for _ in 0..100 {
            let entry = greedy.get_log(ERRORS, MIB as u32);
            greedy.submit(&entry, &[]).await;
        }
        let mut good = rig.admin(&rig.nqn).await;
        let answered = within(&rig.core, 5 * SECOND, good.log(ERRORS, MIB as u32)).await;
        assert_eq!(answered.map(|answer| answer.map(|log| log.len())), Some(Ok(MIB as usize)));
        // What it had borrowed was needed: it made way.
        let mut taken = 0;
        loop {
            let (received, _) = rig.core.recv(&greedy.stream, BufMut::alloc(1 << 20)).await;
            match received {
                Ok(0) | Err(_) => break,
                Ok(count) => taken += count as u64,
            }
            assert!(taken <= 33 * MIB, "more was queued than the connection may hold");
        }
    });
}

#[test]
fn commands_that_are_refused_are_read_only_as_their_answers_are_taken() {
    const EVENT_REQUEST: u8 = 0x0c;
    let limits = Limits { requests_max: 8, ..Limits::default() };
    bounded_by(limits, async |rig| {
        // Requests for events beyond what is kept, and a command whose identifier is in use.
        for same_id in [false, true] {
            let mut host = rig.admin(&rig.nqn).await;
            let mut entry = host.command(EVENT_REQUEST);
            host.submit(&entry, &[]).await;
            let sent = async {
                for _ in 0..10_000 {
                    if !same_id {
                        entry = host.command(EVENT_REQUEST);
                    }
                    host.submit(&entry, &[]).await;
                }
            };
            assert!(within(&rig.core, SECOND, sent).await.is_none(), "all were read: {same_id}");
        }
    });
}

#[test]
fn a_host_that_takes_its_answers_a_byte_at_a_time_loses_its_place() {
    let limits = Limits { drain_time_max: 2 * SECOND, ..Limits::default() };
    bounded_by(limits, async |rig| {
        let mut host = rig.admin(&rig.nqn).await;
        host.set_feature(0x0f, 1000).await.unwrap();
        let entry = host.get_log(ERRORS, MIB as u32);
        host.submit(&entry, &[]).await;
        let trickle = async {
            while let (Ok(1..), _) = rig.core.recv(&host.stream, BufMut::alloc(1)).await {
                rig.core.sleep(SECOND / 100).await;
            }
        };
        // Two seconds of silence, and two to take what there is.
        assert!(within(&rig.core, 3 * SECOND, trickle).await.is_none());
        assert_eq!(rig.server.connections(), 1);
        rig.core.sleep(2 * SECOND).await;
        assert_eq!(rig.server.connections(), 0);
    });
}
