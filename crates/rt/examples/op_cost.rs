//! What one operation costs: slot, executor, wakers and the backend's two virtual calls per batch,
//! on a drive that does nothing. Run with `cargo run --release -p wattle-rt --example op_cost`.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a measurement prints")]

use std::time::Duration;
use wattle_rt::{BackendChoice, Buf, BufMut, Core, CoreIx, Device, Durability, RuntimeConfig, mailbox, run};

fn main() {
    let config = RuntimeConfig { cores: 2, backend: BackendChoice::Auto, ..RuntimeConfig::default() };
    run(config, async |core| {
        for _ in 0..3 {
            println!("one task, batches of 32: {:6.1} ns per write", batches(&core, 32).await);
            println!("one task, depth 1:       {:6.1} ns per write", batches(&core, 1).await);
            println!("256 tasks, depth 1 each: {:6.1} ns per write", tasks(&core, 256).await);
            println!("alloc, read, drop:       {:6.1} ns per read", reads(&core).await);
            println!("spawn and join:          {:6.1} ns", spawns(&core).await);
            println!("call to another core:    {:6.1} ns", calls(&core).await);
            println!("mailbox, 2nd core to us: {:6.1} ns per message", messages(&core).await);
        }
    })
    .expect("a runtime");
}

const OPS: u64 = 2_000_000;

fn per_op(took: Duration, ops: u64) -> f64 {
    took.as_nanos() as f64 / ops as f64
}

async fn batches(core: &Core, depth: usize) -> f64 {
    let (device, data) = (Device::null(1 << 30), Buf::zeros(4096));
    let mut writes = Vec::with_capacity(depth);
    let start = core.now();
    for _ in 0..OPS / depth as u64 {
        writes.extend((0..depth).map(|_| core.write(&device, 0, data.clone(), Durability::Cached)));
        for write in writes.drain(..) {
            write.await.expect("the null drive takes all");
        }
    }
    per_op(core.now() - start, OPS)
}

async fn tasks(core: &Core, count: u64) -> f64 {
    let start = core.now();
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (core2, device, data) = (core.clone(), Device::null(1 << 30), Buf::zeros(4096));
            core.spawn(async move {
                for _ in 0..OPS / count {
                    core2
                        .write(&device, 0, data.clone(), Durability::Cached)
                        .await
                        .expect("the null drive takes all");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    per_op(core.now() - start, OPS)
}

async fn reads(core: &Core) -> f64 {
    // Beyond the end of an empty drive: the outcome is known at once and no byte is filled.
    let device = Device::null(0);
    let start = core.now();
    for _ in 0..OPS {
        drop(core.read(&device, 0, BufMut::alloc(4096)).await);
    }
    per_op(core.now() - start, OPS)
}

async fn spawns(core: &Core) -> f64 {
    let start = core.now();
    for _ in 0..OPS / 8 {
        core.spawn(async {}).await;
    }
    per_op(core.now() - start, OPS / 8)
}

async fn calls(core: &Core) -> f64 {
    let count = 20_000;
    let start = core.now();
    for _ in 0..count {
        core.call(CoreIx(1), |_| async {}).await;
    }
    per_op(core.now() - start, count)
}

async fn messages(core: &Core) -> f64 {
    let (sender, mut receiver) = mailbox();
    let start = core.now();
    drop(core.call(CoreIx(1), move |_| async move {
        for at in 0..OPS {
            let _ = sender.send(at);
        }
    }));
    while receiver.recv().await.is_some() {}
    per_op(core.now() - start, OPS)
}
