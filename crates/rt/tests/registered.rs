//! Buffers that the ring has registered: operations that bypass the page cache move what they
//! should, whichever memory they are given, and buffers outlast the ring.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::needless_pass_by_value, reason = "tests")]

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use wattle_rt::{
    BackendChoice, Buf, BufMut, Core, CoreIx, Device, Direct, Durability, Lock, OpenOptions, Rng,
    RuntimeConfig, run,
};

const SIZE: u64 = 16 << 20;

/// What the kernel tells is of all rings of this process: one test at a time has some.
static ONE_TEST: Mutex<()> = Mutex::new(());

/// Runs `test` with a file on a core with a ring of its own, and another one; `false` if that
/// cannot be here.
fn on_rings(direct: Direct, test: impl AsyncFn(&Core, &Device)) -> bool {
    let _one = ONE_TEST.lock();
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let options = OpenOptions { write: true, direct, lock: Lock::Exclusive, ..OpenOptions::default() };
    let drive = Device::open(file.path(), options).unwrap();
    if direct == Direct::Auto && !drive.direct() {
        println!("SKIPPED: {} cannot bypass the page cache", file.path().display());
        return false;
    }
    let config = RuntimeConfig {
        cores: 2,
        backend: BackendChoice::Uring,
        queue_depth: 64,
        ..RuntimeConfig::default()
    };
    let ran = run(config, async |core| test(&core, &drive).await);
    ran.inspect_err(|error| println!("SKIPPED: {error}")).is_ok()
}

/// Where the memory lies that the rings of this process have registered, as the kernel tells.
fn registered() -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for fd in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if !std::fs::read_link(fd.path()).is_ok_and(|link| link == Path::new("anon_inode:[io_uring]")) {
            continue;
        }
        let info = Path::new("/proc/self/fdinfo").join(fd.file_name());
        let info = std::fs::read_to_string(info).unwrap_or_default();
        let buffers = info.lines().skip_while(|line| !line.starts_with("UserBufs:")).skip(1);
        for line in buffers.take_while(|line| line.starts_with(' ') && line.contains(": 0x")) {
            let (_, range) = line.split_once(": 0x").unwrap();
            let (start, len) = range.split_once('/').unwrap();
            let start = usize::from_str_radix(start, 16).unwrap();
            ranges.push(start..start + len.trim().parse::<usize>().unwrap());
        }
    }
    ranges
}

fn is_registered(bytes: &[u8]) -> bool {
    let (first, last) = (bytes.as_ptr().addr(), bytes.as_ptr().addr() + bytes.len() - 1);
    registered().iter().any(|range| range.contains(&first) && range.contains(&last))
}

#[test]
fn buffers_come_from_registered_memory_where_the_page_cache_is_bypassed() {
    on_rings(Direct::Auto, async |core, drive| {
        let before = BufMut::alloc(4096);
        assert!(!is_registered(&before), "nobody has asked for anything yet");
        core.read(drive, 0, before).await.0.unwrap();
        if registered().is_empty() {
            return println!("SKIPPED: memory cannot be registered here, or the kernel does not tell");
        }
        assert!(is_registered(&BufMut::alloc(4096)) && is_registered(&BufMut::zeroed(100_000)));
        assert!(!is_registered(&BufMut::alloc(4 << 20)), "large ones come from the allocator");
        let kept = Buf::copy_of(&[7; 4096]).to_keep();
        assert!(!is_registered(&kept) && kept.iter().all(|&byte| byte == 7));
    });
    on_rings(Direct::Never, async |core, drive| {
        core.read(drive, 0, BufMut::alloc(4096)).await.0.unwrap();
        assert!(!is_registered(&BufMut::alloc(4096)), "through the page cache it gains nothing");
    });
}

#[test]
fn whatever_memory_is_moved_the_bytes_are_right() {
    on_rings(Direct::Auto, async |core, drive| {
        let mut rng = Rng::new(5);
        let mut oracle = vec![0u8; SIZE as usize];
        // Made before anything was registered.
        let old = BufMut::copy_of(&vec![1; 256 << 10]).freeze();
        for round in 0..300_u64 {
            let len = (512 << rng.below(12)) as usize;
            let offset = rng.below((SIZE - len as u64) / 512 + 1) * 512;
            let source = rng.below(4);
            let data = match source {
                0 if len <= old.len() => old.slice(old.len() - len..),
                1 => {
                    // Of another core's memory, a part of something larger.
                    let other = core.call(CoreIx(1), move |_core| async move {
                        let mut buf = BufMut::alloc(len + 1024);
                        Rng::new(round).fill(&mut buf);
                        buf.freeze()
                    });
                    other.await.slice(512..512 + len)
                }
                _ => {
                    let mut buf = BufMut::alloc(len);
                    Rng::new(round).fill(&mut buf);
                    buf.freeze()
                }
            };
            let range = offset as usize..offset as usize + len;
            oracle[range.clone()].copy_from_slice(&data);
            let durability = if rng.coin() { Durability::Fua } else { Durability::Cached };
            if source == 3 {
                let half = len / 1024 * 512;
                core.writev(drive, offset, vec![data.slice(..half), data.slice(half..)], durability)
                    .await
                    .unwrap();
            } else {
                core.write(drive, offset, data, durability).await.unwrap();
            }
            let drive2 = drive.clone();
            let read = move |core: Core| async move { core.read(&drive2, offset, BufMut::alloc(len)).await };
            let (result, seen) = core.call(CoreIx(rng.below(2) as usize), read).await;
            result.unwrap();
            assert!(seen[..] == oracle[range], "round {round}");
        }
        let (result, all) = core.read(drive, 0, BufMut::alloc(SIZE as usize)).await;
        result.unwrap();
        assert!(all[..] == oracle);
    });
}

#[test]
fn more_buffers_than_are_registered_are_as_good() {
    on_rings(Direct::Auto, async |core, drive| {
        core.read(drive, 0, BufMut::alloc(512)).await.0.unwrap();
        for round in 0..3_u8 {
            let page = |at: u64| BufMut::copy_of(&[(at as u8).wrapping_mul(31) ^ round; 4096]).freeze();
            let writes: Vec<_> = (0..SIZE / 4096)
                .map(|at| core.write(drive, at * 4096, page(at), Durability::Cached))
                .collect();
            for write in writes {
                write.await.unwrap();
            }
            let reads: Vec<_> =
                (0..SIZE / 4096).map(|at| core.read(drive, at * 4096, BufMut::alloc(4096))).collect();
            for (read, at) in reads.into_iter().zip(0..) {
                let (result, seen) = read.await;
                result.unwrap();
                assert!(seen[..] == page(at)[..], "page {at}");
            }
        }
    });
}

#[test]
fn buffers_outlast_the_ring_and_serve_the_next_one() {
    let kept = std::cell::RefCell::new(Vec::new());
    for round in 0..3_u8 {
        let ran = on_rings(Direct::Auto, async |core, drive| {
            core.read(drive, 0, BufMut::alloc(512)).await.0.unwrap();
            let earlier = kept.borrow().clone();
            for (buf, at) in earlier.into_iter().zip(0..) {
                core.write(drive, at * 4096, buf, Durability::Cached).await.unwrap();
                let (result, seen) = core.read(drive, at * 4096, BufMut::alloc(4096)).await;
                result.unwrap();
                assert!(seen.iter().all(|&byte| byte == at as u8), "of round {at}, in round {round}");
            }
            // Abandoned: whatever holds its memory, the write is done.
            drop(core.write(drive, 0, BufMut::copy_of(&[9; 4096]).freeze(), Durability::Cached));
            kept.borrow_mut().push(BufMut::copy_of(&[round; 4096]).freeze());
        });
        if !ran {
            return;
        }
        let seen = kept.borrow().iter().map(|buf: &Buf| buf[4095]).collect::<Vec<_>>();
        assert!(seen.into_iter().eq(0..=round));
    }
}
