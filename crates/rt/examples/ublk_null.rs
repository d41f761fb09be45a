//! A block device that forgets everything, by nothing but this crate's way to ublk: what the driver
//! and the ring cost, as a control for what a server costs on top.
//!
//! `ublk_null NUMBER SIZE_MIB`, as root; it serves until it is killed.

use std::error::Error;

use wattle_rt::ublk::{UblkCommand, UblkControl, UblkDevice, UblkQueue, UblkSlots};
use wattle_rt::{BufMut, Core, Either, RuntimeConfig, race};

const DEPTH: u16 = 128;
const REQUEST_BYTES: u32 = 512 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let number: u32 = arguments.next().ok_or("usage: ublk_null NUMBER SIZE_MIB")?.parse()?;
    let size_mib: u64 = arguments.next().ok_or("usage: ublk_null NUMBER SIZE_MIB")?.parse()?;
    wattle_rt::run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, async |core| {
        serve(&core, number, size_mib << 20).await
    })?
}

async fn serve(core: &Core, number: u32, size_bytes: u64) -> Result<(), Box<dyn Error>> {
    let control = UblkControl::open()?;
    let order = async |command, data, payload: &[u8]| {
        let command = UblkCommand { number: command, changes: true, device: number, data, path_bytes: 0 };
        control.command(core, command, BufMut::copy_of(payload)).await.0
    };
    // One queue; commands numbered as ioctls are.
    let mut info = [0; 64];
    info[0..2].copy_from_slice(&1_u16.to_ne_bytes());
    info[2..4].copy_from_slice(&DEPTH.to_ne_bytes());
    info[8..12].copy_from_slice(&REQUEST_BYTES.to_ne_bytes());
    info[12..16].copy_from_slice(&number.to_ne_bytes());
    info[24..32].copy_from_slice(&(1_u64 << 6).to_ne_bytes());
    order(0x04, 0, &info).await?;
    // The basic parameters: blocks of 512 in pages, the longest request, the size.
    let mut parameters = [0; 40];
    parameters[0..4].copy_from_slice(&40_u32.to_ne_bytes());
    parameters[4..8].copy_from_slice(&1_u32.to_ne_bytes());
    parameters[12..16].copy_from_slice(&[9, 12, 12, 12]);
    parameters[16..20].copy_from_slice(&(REQUEST_BYTES / 512).to_ne_bytes());
    parameters[24..32].copy_from_slice(&(size_bytes / 512).to_ne_bytes());
    order(0x08, 0, &parameters).await?;
    let slots = UblkSlots::new(DEPTH, REQUEST_BYTES as usize)?;
    let mut queue = UblkQueue::new(&UblkDevice::open(number)?, 0, slots)?;
    queue.fetch()?;
    let start = async {
        order(0x06, u64::from(std::process::id()), &[]).await?;
        std::future::pending::<Result<(), Box<dyn Error>>>().await
    };
    match race(answer(core, &mut queue), start).await {
        Either::First(ended) | Either::Second(ended) => ended,
    }
}

/// Answers whatever comes as done.
async fn answer(core: &Core, queue: &mut UblkQueue) -> Result<(), Box<dyn Error>> {
    let mut came = Vec::new();
    loop {
        queue.turn(&mut came)?;
        if came.is_empty() {
            core.readable(&*queue).await?;
            continue;
        }
        for tag in came.drain(..) {
            let done = queue.request(tag).sectors * 512;
            queue.answer(tag, done.cast_signed(), None);
        }
        // As a server that does something meanwhile: more comes by the next turn.
        core.yield_now().await;
    }
}
