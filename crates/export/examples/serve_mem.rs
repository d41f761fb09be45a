//! Serves a RAID 0 of four members in memory until it is told to stop: the server's own cost,
//! without drives.
//!
//! `cargo run --release -p wattle-export --example serve_mem -- nbd=unix:PATH|fuse=DIR|device=DIR
//! [SIZE_MIB [CORES]]`; with `device=` as with `fuse=`, but never over io_uring.

use std::env;
use std::error::Error;
use std::path::Path;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, VolumeRef};
use wattle_export::fuse::{self, Transport};
use wattle_export::nbd::{self, Export, Limits};
use wattle_rt::fuse::FuseMount;
use wattle_rt::{Core, Device, Listener, RuntimeConfig};

const MEMBERS: u32 = 4;

const USAGE: &str = "usage: serve_mem nbd=unix:PATH|fuse=DIR|device=DIR [SIZE_MIB [CORES]]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or(USAGE)?;
    let size_mib: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let cores = arguments.next().map_or(Ok(1), |text| text.parse())?;
    wattle_rt::run(RuntimeConfig { cores, ..RuntimeConfig::default() }, async |core| {
        let volume = volume(&core, (size_mib << 20) / u64::from(MEMBERS)).await?;
        match address.split_once('=') {
            Some(("nbd", socket)) => over_nbd(&core, volume, socket.trim_start_matches("unix:")).await,
            Some(("fuse", dir)) => as_file(&core, volume, dir, Transport::Best).await,
            Some(("device", dir)) => as_file(&core, volume, dir, Transport::Device).await,
            _ => Err(USAGE.into()),
        }
    })?
}

async fn over_nbd(core: &Core, volume: VolumeRef, socket: &str) -> Result<(), Box<dyn Error>> {
    let export = Export { volume, description: String::new() };
    let listener = Listener::unix(Path::new(socket))?;
    let server = nbd::NbdServer::start(core, listener, vec![export], Limits::default()).await?;
    core.terminated().await?;
    server.stop(core).await;
    Ok(())
}

async fn as_file(
    core: &Core,
    volume: VolumeRef,
    dir: &str,
    transport: Transport,
) -> Result<(), Box<dyn Error>> {
    let mount = FuseMount::new(Path::new(dir), false)?;
    let server = fuse::FuseServer::start(core, mount, vec![volume], transport).await?;
    core.terminated().await?;
    server.stop(core).await;
    Ok(())
}

async fn volume(core: &Core, member_bytes: u64) -> Result<VolumeRef, Box<dyn Error>> {
    let geometry = Geometry::new(&Params {
        level: Level::Raid0,
        layout: 0,
        chunk: Sector(1024),
        raid_disks: MEMBERS,
        component_size: Sector(0),
        member_sizes: vec![Sector(member_bytes / 512); MEMBERS as usize],
    })?;
    let member = |_| MemberSpec::in_sync(Device::mem(member_bytes), Sector(0));
    let spec = ArraySpec::new("disk", geometry, (0..MEMBERS).map(member).collect());
    Ok(ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume())
}
