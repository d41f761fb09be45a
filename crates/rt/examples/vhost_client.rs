//! A guest's driver without a guest: a client of vhost-user disks, for tests and measurements.
//!
//! `vhost_client SOCKET COMMAND [--packed] [--queues N] [--depth N] [--block BYTES] [--span BYTES]
//! [--seconds S] [--count N] [--scribble] [--spin]`
//!
//! - `facts`: prints the disk's size in bytes
//! - `fill`, `verify`: writes or checks a pattern over the span, block by block
//! - `zero`: makes the span zeros; `discard` gives it back; `flush`
//! - `randread`, `randwrite`: so many requests a second, for so long; with `--scribble` another
//!   thread changes the buffers all the time
//! - `vanish`: begins writes and goes; `truncate` begins writes and takes the memory away
//!
//! The ring and its layout are those of the crate `virtio-driver`, which knows nothing of wattle.

#![allow(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a client of its own, beside any runtime"
)]

use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use virtio_driver::{
    VhostUser, VirtioBlkConfig, VirtioBlkQueue, VirtioBlkReqBuf, VirtioBlkTransport, VirtioFeatureFlags,
};

type Failure = Box<dyn Error>;

struct Options {
    packed: bool,
    queues: usize,
    depth: usize,
    block: usize,
    span: u64,
    seconds: u64,
    count: u64,
    scribble: bool,
    spin: bool,
}

/// Shared memory of the guest: one buffer for each request that may be in flight.
struct Memory {
    map: memmap2::MmapMut,
    file: File,
    block: usize,
}

impl Memory {
    fn new(blocks: usize, block: usize) -> Result<Self, Failure> {
        let file = tempfile::tempfile_in("/dev/shm")?;
        file.set_len((blocks * block).next_multiple_of(4096) as u64)?;
        // SAFETY: the file is ours and the server's; both know that bytes change.
        let map = unsafe { memmap2::MmapMut::map_mut(&file)? };
        Ok(Self { map, file, block })
    }

    fn at(&self, ix: usize) -> *mut u8 {
        assert!((ix + 1) * self.block <= self.map.len(), "a buffer of the memory");
        // SAFETY: it lies in the mapping, as was just checked.
        unsafe { self.map.as_ptr().cast_mut().add(ix * self.block) }
    }

    fn bytes(&self, ix: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.block];
        // SAFETY: the block lies in the mapping; no request is in flight for it.
        unsafe { std::ptr::copy_nonoverlapping(self.at(ix), bytes.as_mut_ptr(), self.block) };
        bytes
    }

    fn set(&self, ix: usize, bytes: &[u8]) {
        assert!(bytes.len() <= self.block, "a block");
        // SAFETY: as in `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(ix), bytes.len()) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Read,
    Write,
    Zero,
    Discard,
    Flush,
}

fn pattern(offset: u64, block: usize) -> Vec<u8> {
    let mut state = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..block / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let (Some(socket), Some(command)) = (args.next(), args.next()) else {
        return Err("usage: vhost_client SOCKET COMMAND [OPTION...]".into());
    };
    let mut options = Options {
        packed: false,
        queues: 1,
        depth: 64,
        block: 4096,
        span: 0,
        seconds: 3,
        count: u64::MAX,
        scribble: false,
        spin: false,
    };
    while let Some(arg) = args.next() {
        let mut number =
            || args.next().and_then(|text| text.parse::<u64>().ok()).ok_or("a number is missing");
        match arg.as_str() {
            "--packed" => options.packed = true,
            "--scribble" => options.scribble = true,
            "--spin" => options.spin = true,
            "--queues" => options.queues = number()? as usize,
            "--depth" => options.depth = number()? as usize,
            "--block" => options.block = number()? as usize,
            "--span" => options.span = number()?,
            "--seconds" => options.seconds = number()?,
            "--count" => options.count = number()?,
            other => return Err(format!("{other}: no such option").into()),
        }
    }
    let mut features = VirtioFeatureFlags::VERSION_1 | VirtioFeatureFlags::RING_EVENT_IDX;
    features |= VirtioFeatureFlags::RING_INDIRECT_DESC;
    if options.packed {
        features |= VirtioFeatureFlags::RING_PACKED;
    }
    /// `VIRTIO_BLK_F_FLUSH`, `_DISCARD`, `_WRITE_ZEROES`, `_MQ`.
    const DISK: u64 = 1 << 9 | 1 << 13 | 1 << 14 | 1 << 12;
    let vhost = VhostUser::<VirtioBlkConfig, VirtioBlkReqBuf>::new(&socket, features.bits() | DISK)?;
    let mut vhost: Box<VirtioBlkTransport> = Box::new(vhost);
    let size = vhost.get_config()?.capacity.to_native() * 512;
    if options.span == 0 {
        options.span = size;
    }
    let memory = Arc::new(Memory::new(options.depth * options.queues, options.block)?);
    vhost.map_mem_region(memory.map.as_ptr() as usize, memory.map.len(), memory.file.as_raw_fd(), 0)?;
    let ring = (options.depth * 4).next_power_of_two() as u16;
    let mut queues = VirtioBlkQueue::<usize>::setup_queues(&mut *vhost, options.queues, ring)?;
    match command.as_str() {
        "facts" => println!("{size}"),
        "fill" => over_span(&*vhost, &mut queues[0], &memory, &options, Command::Write)?,
        "verify" => over_span(&*vhost, &mut queues[0], &memory, &options, Command::Read)?,
        "zero" => over_span(&*vhost, &mut queues[0], &memory, &options, Command::Zero)?,
        "discard" => over_span(&*vhost, &mut queues[0], &memory, &options, Command::Discard)?,
        "flush" => {
            options.span = options.block as u64;
            over_span(&*vhost, &mut queues[0], &memory, &options, Command::Flush)?;
        }
        "vanish" => begin(&*vhost, &mut queues[0], &memory, &options)?,
        "truncate" => {
            memory.file.set_len(0)?;
            begin(&*vhost, &mut queues[0], &memory, &options)?;
            std::thread::sleep(Duration::from_millis(300));
        }
        "randread" => at_random(&*vhost, &mut queues, &memory, &options, Command::Read)?,
        "randwrite" => at_random(&*vhost, &mut queues, &memory, &options, Command::Write)?,
        other => return Err(format!("{other}: no such command").into()),
    }
    Ok(())
}

/// Begins half as many writes as there may be, and waits for none.
fn begin(
    vhost: &VirtioBlkTransport,
    queue: &mut VirtioBlkQueue<'_, usize>,
    memory: &Memory,
    options: &Options,
) -> Result<(), Failure> {
    for ix in 0..options.depth / 2 {
        submit(queue, memory, Command::Write, (ix * options.block) as u64, ix)?;
    }
    vhost.get_submission_notifier(0).notify()?;
    Ok(())
}

/// Puts one request into a ring.
fn submit(
    queue: &mut VirtioBlkQueue<'_, usize>,
    memory: &Memory,
    command: Command,
    offset: u64,
    ix: usize,
) -> Result<(), Failure> {
    let (at, len) = (memory.at(ix), memory.block);
    // SAFETY: the buffer lies in the memory, which outlives the queue, and belongs to this request.
    unsafe {
        match command {
            Command::Read => queue.read_raw(offset, at, len, ix)?,
            Command::Write => queue.write_raw(offset, at, len, ix)?,
            Command::Zero => queue.write_zeroes(offset, len as u64, true, ix)?,
            Command::Discard => queue.discard(offset, len as u64, ix)?,
            Command::Flush => queue.flush(ix)?,
        }
    }
    Ok(())
}

/// Does the same with each block of the span; what is read has to be the pattern.
fn over_span(
    vhost: &VirtioBlkTransport,
    queue: &mut VirtioBlkQueue<'_, usize>,
    memory: &Memory,
    options: &Options,
    command: Command,
) -> Result<(), Failure> {
    let mut free: Vec<usize> = (0..options.depth).collect();
    let mut offsets = vec![0; options.depth];
    let (mut next, mut done) = (0, 0);
    let blocks = options.span / options.block as u64;
    let notifier = vhost.get_submission_notifier(0);
    let completions = vhost.get_completion_fd(0);
    while done < blocks {
        while next < blocks
            && let Some(ix) = free.pop()
        {
            offsets[ix] = next * options.block as u64;
            if command == Command::Write {
                memory.set(ix, &pattern(offsets[ix], options.block));
            }
            submit(queue, memory, command, offsets[ix], ix)?;
            next += 1;
        }
        if queue.avail_notif_needed() {
            notifier.notify()?;
        }
        queue.set_used_notif_enabled(true);
        let finished: Vec<_> =
            queue.completions().map(|completion| (completion.context, completion.ret)).collect();
        if finished.is_empty() {
            completions.read()?;
        }
        for (ix, ret) in finished {
            if ret != 0 {
                return Err(format!("byte {}: error {ret}", offsets[ix]).into());
            }
            if command == Command::Read && memory.bytes(ix) != pattern(offsets[ix], options.block) {
                return Err(format!("byte {}: not what was written", offsets[ix]).into());
            }
            free.push(ix);
            done += 1;
        }
    }
    println!("{done} blocks");
    Ok(())
}

/// Requests at random places, as many at a time as the depth says, in every queue.
fn at_random(
    vhost: &VirtioBlkTransport,
    queues: &mut [VirtioBlkQueue<'_, usize>],
    memory: &Arc<Memory>,
    options: &Options,
    command: Command,
) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let scribbling = options.scribble.then(|| {
        let (memory, stop) = (memory.clone(), stop.clone());
        std::thread::spawn(move || scribble(&memory, &stop))
    });
    let blocks = options.span / options.block as u64;
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut place = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % blocks
    };
    let began = Instant::now();
    let (mut done, mut flying) = (0u64, 0u64);
    let mut latencies: Vec<u32> = Vec::new();
    let mut begun: Vec<Instant> = vec![began; options.depth * queues.len()];
    for (ix, queue) in queues.iter_mut().enumerate() {
        for slot in 0..options.depth {
            submit(queue, memory, command, place() * options.block as u64, ix * options.depth + slot)?;
            flying += 1;
        }
        if queue.avail_notif_needed() {
            vhost.get_submission_notifier(ix).notify()?;
        }
    }
    let end = began + Duration::from_secs(options.seconds);
    while flying > 0 {
        for (ix, queue) in queues.iter_mut().enumerate() {
            queue.set_used_notif_enabled(!options.spin);
            let finished: Vec<_> =
                queue.completions().map(|completion| (completion.context, completion.ret)).collect();
            if finished.is_empty() {
                if !options.spin && options.queues == 1 {
                    vhost.get_completion_fd(ix).read()?;
                }
                continue;
            }
            let now = Instant::now();
            let goes_on = now < end && done < options.count;
            for (slot, ret) in finished {
                if ret != 0 {
                    return Err(format!("a request failed: {ret}").into());
                }
                if latencies.len() < 1 << 22 {
                    latencies.push((now - begun[slot]).as_nanos() as u32);
                }
                (done, flying) = (done + 1, flying - 1);
                if goes_on {
                    begun[slot] = now;
                    submit(queue, memory, command, place() * options.block as u64, slot)?;
                    flying += 1;
                }
            }
            if queue.avail_notif_needed() {
                vhost.get_submission_notifier(ix).notify()?;
            }
        }
    }
    let elapsed = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    if let Some(thread) = scribbling {
        thread.join().map_err(|_| "the thread that scribbles panicked")?;
    }
    latencies.sort_unstable();
    let at = |part: f64| f64::from(latencies[((latencies.len() - 1) as f64 * part) as usize]) / 1000.0;
    println!(
        "{done} requests in {elapsed:.3} s: {:.0} per second; p50 {:.1} us, p99 {:.1} us",
        done as f64 / elapsed,
        at(0.5),
        at(0.99)
    );
    Ok(())
}

/// Changes all buffers, over and over.
fn scribble(memory: &Memory, stop: &AtomicBool) {
    let mut value = 0u8;
    while !stop.load(Ordering::Relaxed) {
        value = value.wrapping_add(1);
        for at in (0..memory.map.len()).step_by(64) {
            // SAFETY: the byte lies in the mapping; that requests are in flight is what this is
            // for.
            unsafe { memory.map.as_ptr().cast_mut().add(at).write_volatile(value) };
        }
    }
}
