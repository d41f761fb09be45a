//! Serves a RAID 0 of four members in memory over NBD until it is told to stop: the server's own cost, without drives.
//!
//! `cargo run --release -p wattle-export --example serve_mem -- SOCKET [SIZE_MIB [CORES]]`

use std::env;
use std::error::Error;
use std::path::PathBuf;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec};
use wattle_export::nbd::{Export, Limits, Server};
use wattle_rt::{Core, Device, Listener, RuntimeConfig};

const MEMBERS: u32 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let socket = PathBuf::from(arguments.next().ok_or("usage: serve_mem SOCKET [SIZE_MIB [CORES]]")?);
    let size_mib: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let cores = arguments.next().map_or(Ok(1), |text| text.parse())?;
    wattle_rt::run(RuntimeConfig { cores, ..RuntimeConfig::default() }, async |core| {
        serve(&core, &socket, (size_mib << 20) / u64::from(MEMBERS)).await
    })?
}

async fn serve(core: &Core, socket: &std::path::Path, member_bytes: u64) -> Result<(), Box<dyn Error>> {
    let geometry = Geometry::new(&Params {
        level: Level::Raid0,
        layout: 0,
        chunk: Sector(1024),
        raid_disks: MEMBERS,
        component_size: Sector(0),
        member_sizes: vec![Sector(member_bytes / 512); MEMBERS as usize],
    })?;
    let member = |_| MemberSpec::in_sync(Device::mem(member_bytes), Sector(0));
    let spec = ArraySpec::new("mem", geometry, (0..MEMBERS).map(member).collect());
    let volume = ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume();
    let export = Export { volume, description: String::new() };
    let server = Server::start(core, Listener::unix(socket)?, vec![export], Limits::default()).await?;
    core.terminated().await?;
    server.stop(core).await;
    Ok(())
}
