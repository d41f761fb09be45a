//! XOR and P+Q against Intel's ISA-L on the same buffers, interleaved in one run.
//!
//! `cargo bench -p wattle-parity --bench isal [-- --check 0.9] [--all]`
//!
//! Prints, per operation, number of sources and block length, the median of the per-round ratios
//! (ours : ISA-L's speed, above 1 is ours faster) and both sides' median speed in GB/s of data.
//! `--check R` exits with 1 if a ratio of the warm sizes is below R. `--all` also measures our
//! slower kernels. ISA-L is loaded at run time; without it there is nothing to compare and the
//! bench says so (and `--check` fails: a gate that cannot measure does not pass).

#![allow(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench reports on the terminal")]
#![allow(clippy::disallowed_methods, reason = "a bench reads the real clock")]

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use wattle_parity::{DataBlock, Kernels};

/// Sources x block length. The first group fits the L2 cache, the last comes from memory.
const WARM: [(usize, usize); 7] =
    [(4, 4 << 10), (8, 4 << 10), (16, 4 << 10), (4, 16 << 10), (8, 16 << 10), (10, 16 << 10), (16, 16 << 10)];
const LARGE: [(usize, usize); 6] =
    [(8, 64 << 10), (16, 64 << 10), (8, 256 << 10), (8, 1 << 20), (16, 1 << 20), (8, 8 << 20)];

const ROUNDS: usize = 31;
/// Bytes of sources per timing: some 100 us warm, so that the clock's own cost vanishes.
const BYTES_PER_TIMING: usize = 8 << 20;

fn main() -> ExitCode {
    let Options { check, all } = Options::from_args();
    let Some(isal) = Isal::load(c"xor_gen", c"pq_gen") else {
        eprintln!("libisal.so.2 is not installed (Debian: libisal2): nothing to compare with");
        return if check.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    };
    println!(
        "{:<12} {:<4} {:>7} {:>8}  {:>6}  {:>9}  {:>10}",
        "kernels", "op", "sources", "KiB", "ratio", "ours GB/s", "ISA-L GB/s"
    );
    let mut worst = f64::INFINITY;
    let kernels = if all { Kernels::all_available().collect() } else { vec![Kernels::best()] };
    for (nth, kernels) in kernels.into_iter().enumerate() {
        // What ISA-L would choose on a machine whose best is AVX2.
        let avx2 = (kernels.name() == "avx2").then(|| Isal::load(c"xor_gen_avx", c"pq_gen_avx2")).flatten();
        let isal = avx2.as_ref().unwrap_or(&isal);
        for (sources, len) in WARM.into_iter().chain(LARGE) {
            for op in [Op::Xor, Op::Pq] {
                let result = compare(kernels, isal, op, sources, len);
                println!(
                    "{:<12} {:<4} {sources:>7} {:>8}  {:>6.2}  {:>9.1}  {:>10.1}",
                    kernels.name(),
                    op.name(),
                    len >> 10,
                    result.ratio,
                    result.ours_gbps,
                    result.isal_gbps
                );
                if nth == 0 && WARM.contains(&(sources, len)) {
                    worst = worst.min(result.ratio);
                }
            }
        }
    }
    println!("worst warm ratio of {}: {worst:.2}", Kernels::best().name());
    match check {
        Some(least) if worst < least => {
            eprintln!("below {least}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

struct Options {
    check: Option<f64>,
    all: bool,
}

impl Options {
    /// Ignores what it does not know: cargo passes `--bench`.
    fn from_args() -> Self {
        let mut options = Options { check: None, all: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--check" => {
                    let least = args.next().and_then(|least| least.parse().ok());
                    options.check = Some(least.expect("--check takes a ratio, such as 0.9"));
                }
                "--all" => options.all = true,
                _ => {}
            }
        }
        options
    }
}

#[derive(Clone, Copy)]
enum Op {
    Xor,
    Pq,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Xor => "xor",
            Op::Pq => "p+q",
        }
    }
}

struct Comparison {
    ratio: f64,
    ours_gbps: f64,
    isal_gbps: f64,
}

/// Medians over rounds in which both sides work on the same buffers, taking turns to be first.
fn compare(kernels: &Kernels, isal: &Isal, op: Op, sources: usize, len: usize) -> Comparison {
    let mut row = Row::new(sources, len);
    let passes = (BYTES_PER_TIMING / (sources * len)).max(1);

    row.ours(kernels, op, 1);
    let expected = row.parity(op);
    row.isal(isal, op, 1);
    assert!(expected == row.parity(op), "ISA-L computes a different parity");

    let (mut ours_seconds, mut isal_seconds) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                ours_seconds.push(row.ours(kernels, op, passes));
            } else {
                isal_seconds.push(row.isal(isal, op, passes));
            }
        }
    }
    let gigabytes = (passes * sources * len) as f64 / 1e9;
    let ratios = ours_seconds.iter().zip(&isal_seconds).map(|(ours, isal)| isal / ours).collect();
    Comparison {
        ratio: median(ratios),
        ours_gbps: gigabytes / median(ours_seconds),
        isal_gbps: gigabytes / median(isal_seconds),
    }
}

/// Time for some passes, after one that is not counted, so that each side finds the caches as it
/// would leave them.
fn seconds_of(passes: usize, mut pass: impl FnMut()) -> f64 {
    pass();
    let start = Instant::now();
    for _ in 0..passes {
        pass();
    }
    start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The blocks of one row: sources, then P, then Q, in the array of pointers that ISA-L wants.
struct Row {
    blocks: Vec<Aligned>,
    len: usize,
}

/// A block on a page boundary, as direct I/O has it.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let memory = vec![0; len + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Aligned { memory, start, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Row {
    fn new(sources: usize, len: usize) -> Self {
        let mut blocks: Vec<_> = (0..sources + 2).map(|_| Aligned::new(len)).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for block in &mut blocks[..sources] {
            for byte in block.bytes_mut() {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        }
        Row { blocks, len }
    }

    /// Seconds for some passes of our kernel; the list of blocks is made beforehand, as for ISA-L.
    fn ours(&mut self, kernels: &Kernels, op: Op, passes: usize) -> f64 {
        let Some((data, [p, q])) = self.blocks.split_last_chunk_mut() else {
            unreachable!("a row ends with P and Q")
        };
        match op {
            Op::Xor => {
                let sources: Vec<_> = data.iter().map(Aligned::bytes).collect();
                let p = p.bytes_mut();
                seconds_of(passes, || kernels.xor_gen(black_box(p), black_box(&sources)))
            }
            Op::Pq => {
                let sources: Vec<_> =
                    (0..).zip(data).map(|(e, block)| DataBlock::new(e, block.bytes())).collect();
                let (p, q) = (p.bytes_mut(), q.bytes_mut());
                seconds_of(passes, || kernels.pq_gen(black_box(p), black_box(q), black_box(&sources)))
            }
        }
    }

    /// Seconds for some passes of ISA-L's.
    fn isal(&mut self, isal: &Isal, op: Op, passes: usize) -> f64 {
        let mut pointers: Vec<*mut c_void> =
            self.blocks.iter_mut().map(|block| block.bytes_mut().as_mut_ptr().cast()).collect();
        let (function, blocks) = match op {
            Op::Xor => (isal.xor_gen, pointers.len() - 1),
            Op::Pq => (isal.pq_gen, pointers.len()),
        };
        let len = self.len as c_int;
        seconds_of(passes, || {
            // SAFETY: the signatures are those of isa-l/raid.h; every pointer has `len` bytes, a
            // multiple of 32, on a 4096-byte boundary, and the last one or two are exclusively ours
            // to write.
            let status = unsafe { function(blocks as c_int, len, black_box(pointers.as_mut_ptr())) };
            assert_eq!(status, 0, "ISA-L refused");
        })
    }

    fn parity(&self, op: Op) -> Vec<u8> {
        let [.., p, q] = &self.blocks[..] else { unreachable!("a row ends with P and Q") };
        match op {
            Op::Xor => p.bytes().to_vec(),
            Op::Pq => [p.bytes(), q.bytes()].concat(),
        }
    }
}

type Gen = unsafe extern "C" fn(blocks: c_int, len: c_int, array: *mut *mut c_void) -> c_int;

/// ISA-L's two generators, from the shared library, which stays loaded.
struct Isal {
    xor_gen: Gen,
    pq_gen: Gen,
}

impl Isal {
    fn load(xor_gen: &CStr, pq_gen: &CStr) -> Option<Self> {
        // SAFETY: a plain C string; loading ISA-L runs only its CPU detection.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: `library` is a live handle that is never closed.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            // SAFETY: all generators have the type `Gen` in isa-l/raid.h.
            (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Gen>(address) })
        };
        Some(Isal { xor_gen: symbol(xor_gen)?, pq_gen: symbol(pq_gen)? })
    }
}
