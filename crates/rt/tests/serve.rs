//! Devices that tasks serve, parts of devices, and blocking work beside the executors.
#![allow(missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::model::{Flash, Media};
use wattle_rt::{
    BackendChoice, Buf, BufMut, Core, Device, DriveModel, Durability, IoError, Reply, RuntimeConfig, Serve,
    Unmap, run,
};

/// Everything inverted on its way to another device.
struct Inverted {
    below: Device,
    flushes: AtomicU64,
}

impl Serve for Inverted {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (core, below) = (core.clone(), self.below.clone());
        Box::pin(async move {
            let (result, mut buf) = core.read(&below, offset, buf).await;
            buf.iter_mut().for_each(|byte| *byte = !*byte);
            (result, buf)
        })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        let (core, below) = (core.clone(), self.below.clone());
        let inverted: Vec<u8> = buf.iter().map(|byte| !byte).collect();
        Box::pin(async move { core.write(&below, offset, Buf::copy_of(&inverted), durability).await })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(async { Err(IoError::UNSUPPORTED) })
    }
}

/// Never answers.
struct Silent;

impl Serve for Silent {
    fn read(&self, _: &Core, _: u64, _: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        Box::pin(std::future::pending())
    }

    fn write(&self, _: &Core, _: u64, _: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::pending())
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::pending())
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::pending())
    }
}

const SIZE: u64 = 1 << 20;

fn inverted(core: &Core) -> (Device, Device, Arc<Inverted>) {
    let below = Device::mem(SIZE);
    let server = Arc::new(Inverted { below: below.clone(), flushes: AtomicU64::new(0) });
    (Device::served("inverted", SIZE, 512, true, core, server.clone()), below, server)
}

fn cores(cores: usize) -> RuntimeConfig {
    RuntimeConfig { cores, backend: BackendChoice::Auto, ..RuntimeConfig::default() }
}

#[test]
fn every_operation_goes_through_the_server() {
    let done = run(cores(1), async |core| {
        let (device, below, server) = inverted(&core);
        let parts = vec![Buf::copy_of(&[1; 512]), Buf::copy_of(&[2; 1024])];
        core.writev(&device, 4096, parts, Durability::Cached).await.unwrap();
        let (result, buf) = core.read(&below, 4096, BufMut::alloc(1536)).await;
        result.unwrap();
        assert!(buf[..512].iter().all(|&byte| byte == !1) && buf[512..].iter().all(|&byte| byte == !2));
        let (result, bufs) = core.readv(&device, 4096, vec![BufMut::alloc(1024), BufMut::alloc(512)]).await;
        result.unwrap();
        assert!(bufs[0][..512].iter().all(|&byte| byte == 1) && bufs[1].iter().all(|&byte| byte == 2));
        core.flush(&device).await.unwrap();
        assert_eq!(server.flushes.load(Ordering::Relaxed), 1);
        assert_eq!(core.write_zeroes(&device, 0, 512, Unmap::No).await, Err(IoError::UNSUPPORTED));
        let beyond = core.write(&device, SIZE, Buf::zeros(512), Durability::Cached).await;
        assert_eq!(beyond, Err(IoError::NO_SPACE), "the size is checked before the server is asked");
        assert_eq!(core.ops_in_flight(), 0);
    });
    done.unwrap();
}

#[test]
fn a_thread_beside_the_executors_reads_what_they_serve() {
    let outlived = run(cores(2), async |core| {
        let (device, ..) = inverted(&core);
        core.write(&device, 512, Buf::copy_of(&[7; 512]), Durability::Cached).await.unwrap();
        let mut on_core = [0; 512];
        assert_eq!(
            device.read_blocking(512, &mut on_core),
            Err(IoError::UNSUPPORTED),
            "it would wait for itself"
        );
        let part = device.part("part", 512, 1024).unwrap();
        let seen = core
            .offload(move || {
                let mut bytes = [0; 100];
                part.read_blocking(3, &mut bytes).unwrap();
                part.write_blocking(512, &[9; 512]).unwrap();
                part.sync_blocking().unwrap();
                bytes
            })
            .await;
        assert_eq!(seen, Ok([7; 100]));
        let (result, buf) = core.read(&device, 1024, BufMut::alloc(512)).await;
        assert!(result.is_ok() && buf.iter().all(|&byte| byte == 9));
        device
    });
    let mut bytes = [0; 512];
    let error = outlived.unwrap().read_blocking(0, &mut bytes).unwrap_err();
    assert_eq!(error.errno(), libc::ESHUTDOWN, "nobody is there any more, and nobody waits for ever");
}

#[test]
fn a_part_ends_where_it_ends() {
    let done = run(cores(1), async |core| {
        let whole = Device::mem(SIZE);
        let part = whole.part("part", 4096, 8192).unwrap();
        assert_eq!(part.size_bytes(), 8192);
        core.write(&part, 0, Buf::copy_of(&[5; 512]), Durability::Fua).await.unwrap();
        core.write_zeroes(&part, 512, 512, Unmap::No).await.unwrap();
        core.flush(&part).await.unwrap();
        let (result, buf) = core.read(&whole, 4096, BufMut::alloc(512)).await;
        assert!(result.is_ok() && buf.iter().all(|&byte| byte == 5));
        let beyond = core.write(&part, 8192 - 512, Buf::zeros(1024), Durability::Cached).await;
        assert_eq!(beyond, Err(IoError::NO_SPACE));
        assert_eq!(core.read(&part, 8192, BufMut::alloc(512)).await.0, Err(IoError::END_OF_DEVICE));
        let inner = part.part("inner", 4096, 4096).unwrap();
        core.write(&inner, 0, Buf::copy_of(&[6; 512]), Durability::Cached).await.unwrap();
        let (_, buf) = core.read(&whole, 8192, BufMut::alloc(512)).await;
        assert!(buf.iter().all(|&byte| byte == 6), "a part of a part is a part of the whole");
        assert_eq!(part.part("too long", 4096, 8192).err(), Some(IoError::END_OF_DEVICE));
    });
    done.unwrap();
}

#[test]
fn the_end_does_not_wait_for_a_server_that_never_answers() {
    let done = run(cores(1), async |core| {
        let device = Device::served("silent", SIZE, 512, true, &core, Arc::new(Silent));
        drop(core.read(&device, 0, BufMut::alloc(512)));
        let kept = core.write(&device, 0, Buf::zeros(512), Durability::Cached);
        core.yield_now().await;
        core.spawn(async move { kept.await.unwrap() });
        core.yield_now().await;
    });
    done.unwrap();
}

/// A read that hangs is not waited for either, whatever else is left.
#[test]
#[cfg_attr(miri, ignore = "real time")]
fn the_end_does_not_wait_for_a_server_that_is_gone_beside_a_read_that_hangs() {
    let flash = Flash {
        reads_per_second: 1,
        writes_per_second: 1,
        read_bytes_per_second: 1 << 20,
        write_bytes_per_second: 1 << 20,
        read_latency: Duration::from_secs(3600),
        write_latency: Duration::ZERO,
        channels: 0,
        turnaround: Duration::ZERO,
        burst_bytes: 0,
        burst_writes_per_second: 0,
        burst_bytes_per_second: 0,
        refill_bytes_per_second: 0,
        collection_pause: Duration::ZERO,
        collection_share_ppm: 0,
    };
    let media = Media::Flash(flash);
    let model = DriveModel { queue_depth: 8, group: 0, cache_bytes: 0, flush: Duration::ZERO, media };
    let drive = Device::modelled("modelled", SIZE, 512, &model);
    let done = run(cores(1), async move |core| {
        let device = Device::served("silent", SIZE, 512, true, &core, Arc::new(Silent));
        drop(core.write(&device, 0, Buf::zeros(512), Durability::Cached));
        core.yield_now().await;
        let read = core.read(&drive, 0, BufMut::alloc(512));
        core.sleep(Duration::from_millis(10)).await;
        drop(read);
    });
    done.unwrap();
}

#[test]
#[should_panic(expected = "of its own")]
fn a_panic_of_offloaded_work_comes_out() {
    let _ = run(cores(1), async |core| core.offload(|| panic!("of its own")).await);
}
