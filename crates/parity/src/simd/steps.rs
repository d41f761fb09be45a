//! The algorithms, once, over any [`Vector`].
//!
//! A [`Step`] computes `U` adjacent vectors of its outputs; [`drive`] walks the block with it:
//! unrolled, then single vectors, then the tail. P and Q come from Horner's rule over the exponents
//! from highest to lowest, `Q = (..(d[n] * 2 + d[n-1]) * 2 + ..) * 2 + d[0]`, which needs no
//! multiplication but doubling; a hole in the exponents is one more doubling.

use super::{MAX_VECTOR_BYTES, Vector};
use crate::field;
use crate::job::Job;
use crate::source::DataBlock;

/// Outputs at least this long go past the caches: with what they are made of they do not fit into a
/// core's own, so their beginning would not be found there anyway, and the lines about to be
/// overwritten need not be read first. Measured against ISA-L, which does not: as fast at 256 KiB,
/// 5-20 % faster from 512 KiB on.
const STREAM_FROM_BYTES: usize = 512 << 10;

/// Does the job with vectors `V`, `U` at a time.
///
/// # Safety
/// The CPU has `V`'s instructions, and `len` is what [`Job::checked_len`] returned for this job.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const U: usize>(job: &mut Job<'_>, len: usize) {
    // SAFETY: all blocks are `len` long, which is what `drive` relies on; outputs are exclusive
    // borrows, so their pointers alias neither each other nor the inputs. The caller vouches for
    // the instructions.
    unsafe {
        match job {
            Job::XorGen { dst, sources } => {
                // XOR needs half of P+Q's registers: twice the width, +25 % with 16 sources.
                drive_writes::<V, 8>(len, &[dst.as_ptr()], &Xor::<false> { dst: dst.as_mut_ptr(), sources });
            }
            Job::XorAdd { dst, sources } => {
                drive::<V, U, Whole>(len, Whole, &Xor::<true> { dst: dst.as_mut_ptr(), sources });
            }
            Job::MulInto { dst, factor, src } => {
                let (dst, src, factor) = (dst.as_mut_ptr(), src.as_ptr(), V::factor(*factor));
                drive::<V, U, Whole>(len, Whole, &Mul::<V, false> { dst, src, factor });
            }
            Job::MulAdd { dst, factor, src } => {
                let (dst, src, factor) = (dst.as_mut_ptr(), src.as_ptr(), V::factor(*factor));
                drive::<V, U, Whole>(len, Whole, &Mul::<V, true> { dst, src, factor });
            }
            Job::DeltaQ { q, factor, old, new } => {
                let (old, new, factor) = (old.as_ptr(), new.as_ptr(), V::factor(*factor));
                drive::<V, U, Whole>(
                    len,
                    Whole,
                    &Delta::<V> { p: None, q: q.as_mut_ptr(), factor, old, new },
                );
            }
            Job::DeltaPq { p, q, factor, old, new } => {
                let (old, new, factor) = (old.as_ptr(), new.as_ptr(), V::factor(*factor));
                let p = Some(p.as_mut_ptr());
                drive::<V, U, Whole>(len, Whole, &Delta::<V> { p, q: q.as_mut_ptr(), factor, old, new });
            }
            Job::Q { q, sources } => {
                let outputs = [q.as_ptr()];
                drive_writes::<V, U>(len, &outputs, &Horner::new(sources, WriteQ { q: q.as_mut_ptr() }));
            }
            Job::Pq { p, q, sources } => {
                let outputs = [p.as_ptr(), q.as_ptr()];
                let write = WritePq { p: p.as_mut_ptr(), q: q.as_mut_ptr() };
                drive_writes::<V, U>(len, &outputs, &Horner::new(sources, write));
            }
            Job::DataFromQ { data, factor, q, sources } => {
                let finish = SolveFromQ {
                    data: data.as_mut_ptr(),
                    p: None,
                    q: q.as_ptr(),
                    factor: V::factor(*factor),
                };
                drive::<V, U, Whole>(len, Whole, &Horner::new(sources, finish));
            }
            Job::DataAndP { data, p, factor, q, sources } => {
                let p = Some(p.as_mut_ptr());
                let finish =
                    SolveFromQ { data: data.as_mut_ptr(), p, q: q.as_ptr(), factor: V::factor(*factor) };
                drive::<V, U, Whole>(len, Whole, &Horner::new(sources, finish));
            }
            Job::DataAndQ { data, q, factor, p, sources } => {
                let (data, q, factor) = (data.as_mut_ptr(), q.as_mut_ptr(), V::factor(*factor));
                drive::<V, U, Whole>(
                    len,
                    Whole,
                    &Horner::new(sources, SolveFromP { data, q, p: p.as_ptr(), factor }),
                );
            }
            Job::TwoData { x, y, factor_p, factor_q, p, q, sources } => {
                let finish = SolveTwo {
                    x: x.as_mut_ptr(),
                    y: y.as_mut_ptr(),
                    p: p.as_ptr(),
                    q: q.as_ptr(),
                    factor_p: V::factor(*factor_p),
                    factor_q: V::factor(*factor_q),
                };
                drive::<V, U, Whole>(len, Whole, &Horner::new(sources, finish));
            }
        }
    }
}

/// Walks a block whose outputs are only written: long, aligned outputs are streamed.
#[inline(always)]
unsafe fn drive_writes<V: Vector, const U: usize>(len: usize, outputs: &[*const u8], step: &impl Step<V>) {
    let aligned = outputs.iter().all(|output| output.addr() % V::BYTES == 0);
    // SAFETY: `drive` asks no more than our caller promised; outputs are aligned as `Streaming`
    // wants, and offsets of whole vectors keep them so.
    unsafe {
        if V::STREAMS && aligned && len >= STREAM_FROM_BYTES {
            drive::<V, U, Streaming>(len, Streaming, step);
            V::fence();
        } else {
            drive::<V, U, Whole>(len, Whole, step);
        }
    }
}

/// Walks a block of `len` bytes from front to back.
#[inline(always)]
unsafe fn drive<V: Vector, const U: usize, A: Access>(len: usize, access: A, step: &impl Step<V>) {
    let mut offset = 0;
    // SAFETY: the loop conditions keep `offset + U * V::BYTES <= len`; the tail accesses only what
    // is left.
    unsafe {
        while len - offset >= U * V::BYTES {
            step.run::<U, A>(access, offset);
            offset += U * V::BYTES;
        }
        while len - offset >= V::BYTES {
            step.run::<1, A>(access, offset);
            offset += V::BYTES;
        }
        if offset < len {
            step.run::<1, Tail>(Tail { bytes: len - offset }, offset);
        }
    }
}

/// How a vector meets memory.
trait Access: Copy {
    unsafe fn load<V: Vector>(self, src: *const u8) -> V;
    unsafe fn store<V: Vector>(self, vector: V, dst: *mut u8);
}

/// Full vectors, through the caches.
#[derive(Clone, Copy)]
struct Whole;

/// Full vectors; stores go past the caches.
#[derive(Clone, Copy)]
struct Streaming;

/// The last `bytes < V::BYTES` of a block, by way of the stack.
#[derive(Clone, Copy)]
struct Tail {
    bytes: usize,
}

impl Access for Whole {
    #[inline(always)]
    unsafe fn load<V: Vector>(self, src: *const u8) -> V {
        // SAFETY: passed on from the caller.
        unsafe { V::load(src) }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(self, vector: V, dst: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { vector.store(dst) }
    }
}

impl Access for Streaming {
    #[inline(always)]
    unsafe fn load<V: Vector>(self, src: *const u8) -> V {
        // SAFETY: passed on from the caller.
        unsafe { V::load(src) }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(self, vector: V, dst: *mut u8) {
        // SAFETY: passed on from the caller, alignment included.
        unsafe { vector.stream(dst) }
    }
}

impl Access for Tail {
    #[inline(always)]
    unsafe fn load<V: Vector>(self, src: *const u8) -> V {
        let mut padded = [0; MAX_VECTOR_BYTES];
        // SAFETY: `bytes` are left in the block, and `bytes < V::BYTES <= padded.len()`.
        unsafe {
            std::ptr::copy_nonoverlapping(src, padded.as_mut_ptr(), self.bytes);
            V::load(padded.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(self, vector: V, dst: *mut u8) {
        let mut padded = [0; MAX_VECTOR_BYTES];
        // SAFETY: as for `load`; the stack and the block do not overlap.
        unsafe {
            vector.store(padded.as_mut_ptr());
            std::ptr::copy_nonoverlapping(padded.as_ptr(), dst, self.bytes);
        }
    }
}

/// Computes `U` adjacent vectors of every output.
trait Step<V: Vector> {
    /// # Safety
    /// `U` vectors (or the tail's bytes) lie within every block at `offset`.
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize);
}

/// Sum of sources, onto what `dst` held if `ADD`.
struct Xor<'a, const ADD: bool> {
    dst: *mut u8,
    sources: &'a [&'a [u8]],
}

impl<V: Vector, const ADD: bool> Step<V> for Xor<'_, ADD> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize) {
        // SAFETY: every block has `U` vectors at `offset`.
        unsafe {
            let mut rest = self.sources;
            let mut sum: [V; U] = match rest {
                _ if ADD => load(access, self.dst, offset),
                [first, others @ ..] => {
                    rest = others;
                    load(access, first.as_ptr(), offset)
                }
                [] => [V::zero(); U],
            };
            loop {
                match rest {
                    [first, second, others @ ..] => {
                        for (i, sum) in sum.iter_mut().enumerate() {
                            let first: V = load_at(access, first.as_ptr(), offset, i);
                            let second: V = load_at(access, second.as_ptr(), offset, i);
                            *sum = sum.xor3(first, second);
                        }
                        rest = others;
                    }
                    [last] => {
                        add(&mut sum, load(access, last.as_ptr(), offset));
                        break;
                    }
                    [] => break,
                }
            }
            store(access, sum, self.dst, offset);
        }
    }
}

/// `factor * src`, onto what `dst` held if `ADD`.
struct Mul<V: Vector, const ADD: bool> {
    dst: *mut u8,
    src: *const u8,
    factor: V::Factor,
}

impl<V: Vector, const ADD: bool> Step<V> for Mul<V, ADD> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize) {
        // SAFETY: every block has `U` vectors at `offset`.
        unsafe {
            let mut product: [V; U] = load(access, self.src, offset);
            for vector in &mut product {
                *vector = vector.mul(self.factor);
            }
            if ADD {
                add(&mut product, load(access, self.dst, offset));
            }
            store(access, product, self.dst, offset);
        }
    }
}

/// Parity follows one data block from old to new.
struct Delta<V: Vector> {
    p: Option<*mut u8>,
    q: *mut u8,
    factor: V::Factor,
    old: *const u8,
    new: *const u8,
}

impl<V: Vector> Step<V> for Delta<V> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize) {
        // SAFETY: every block has `U` vectors at `offset`.
        unsafe {
            let mut delta: [V; U] = load(access, self.old, offset);
            add(&mut delta, load(access, self.new, offset));
            if let Some(p) = self.p {
                let mut sum = delta;
                add(&mut sum, load(access, p, offset));
                store(access, sum, p, offset);
            }
            for vector in &mut delta {
                *vector = vector.mul(self.factor);
            }
            add(&mut delta, load(access, self.q, offset));
            store(access, delta, self.q, offset);
        }
    }
}

/// P' and Q' of the sources, handed to `finish` while still in registers.
struct Horner<'a, F> {
    sources: &'a [DataBlock<'a>],
    finish: F,
}

impl<'a, F> Horner<'a, F> {
    fn new(sources: &'a [DataBlock<'a>], finish: F) -> Self {
        Horner { sources, finish }
    }
}

impl<V: Vector, F: Finish<V>> Step<V> for Horner<'_, F> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize) {
        // SAFETY: every block has `U` vectors at `offset`.
        unsafe {
            let Some((top, mut rest)) = self.sources.split_last() else {
                return self.finish.run::<U, A>(access, offset, [V::zero(); U], [V::zero(); U]);
            };
            let mut p: [V; U] = load(access, top.block.as_ptr(), offset);
            let mut q = p;
            // Invariant: `q` is the part of Q' from the blocks seen so far, divided by g^exponent.
            let mut exponent = top.exponent;
            loop {
                match rest {
                    // Exponents ascend strictly, so nothing fits between these two and `exponent`
                    // but `upper`.
                    [lower_ones @ .., lower, upper] if lower.exponent + 2 == exponent => {
                        for i in 0..U {
                            let upper: V = load_at(access, upper.block.as_ptr(), offset, i);
                            let lower: V = load_at(access, lower.block.as_ptr(), offset, i);
                            p[i] = p[i].xor3(upper, lower);
                            q[i] = q[i].double_add_twice(upper, lower);
                        }
                        exponent = lower.exponent;
                        rest = lower_ones;
                    }
                    [lower_ones @ .., next] => {
                        for _hole in next.exponent + 1..exponent {
                            for vector in &mut q {
                                *vector = vector.double_add(V::zero());
                            }
                        }
                        for i in 0..U {
                            let block: V = load_at(access, next.block.as_ptr(), offset, i);
                            p[i] = p[i].xor(block);
                            q[i] = q[i].double_add(block);
                        }
                        exponent = next.exponent;
                        rest = lower_ones;
                    }
                    [] => break,
                }
            }
            if exponent > 0 {
                let factor = V::factor(field::power(exponent));
                for vector in &mut q {
                    *vector = vector.mul(factor);
                }
            }
            self.finish.run::<U, A>(access, offset, p, q);
        }
    }
}

/// What becomes of P' and Q'.
trait Finish<V: Vector> {
    /// # Safety
    /// As for [`Step::run`].
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize, p: [V; U], q: [V; U]);
}

struct WriteQ {
    q: *mut u8,
}

impl<V: Vector> Finish<V> for WriteQ {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize, _p: [V; U], q: [V; U]) {
        // SAFETY: passed on from the caller.
        unsafe { store(access, q, self.q, offset) }
    }
}

struct WritePq {
    p: *mut u8,
    q: *mut u8,
}

impl<V: Vector> Finish<V> for WritePq {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize, p: [V; U], q: [V; U]) {
        // SAFETY: passed on from the caller.
        unsafe {
            store(access, p, self.p, offset);
            store(access, q, self.q, offset);
        }
    }
}

/// One data block from Q, and P with it if wanted.
struct SolveFromQ<V: Vector> {
    data: *mut u8,
    p: Option<*mut u8>,
    q: *const u8,
    factor: V::Factor,
}

impl<V: Vector> Finish<V> for SolveFromQ<V> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize, mut p: [V; U], mut q: [V; U]) {
        // SAFETY: passed on from the caller.
        unsafe {
            add(&mut q, load(access, self.q, offset));
            for vector in &mut q {
                *vector = vector.mul(self.factor);
            }
            store(access, q, self.data, offset);
            if let Some(p_out) = self.p {
                add(&mut p, q);
                store(access, p, p_out, offset);
            }
        }
    }
}

/// One data block from P, and Q with it.
struct SolveFromP<V: Vector> {
    data: *mut u8,
    q: *mut u8,
    p: *const u8,
    factor: V::Factor,
}

impl<V: Vector> Finish<V> for SolveFromP<V> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize, mut p: [V; U], mut q: [V; U]) {
        // SAFETY: passed on from the caller.
        unsafe {
            add(&mut p, load(access, self.p, offset));
            store(access, p, self.data, offset);
            for i in 0..U {
                q[i] = q[i].xor(p[i].mul(self.factor));
            }
            store(access, q, self.q, offset);
        }
    }
}

/// Two data blocks from P and Q.
struct SolveTwo<V: Vector> {
    x: *mut u8,
    y: *mut u8,
    p: *const u8,
    q: *const u8,
    factor_p: V::Factor,
    factor_q: V::Factor,
}

impl<V: Vector> Finish<V> for SolveTwo<V> {
    #[inline(always)]
    unsafe fn run<const U: usize, A: Access>(&self, access: A, offset: usize, mut p: [V; U], mut q: [V; U]) {
        // SAFETY: passed on from the caller.
        unsafe {
            add(&mut p, load(access, self.p, offset));
            add(&mut q, load(access, self.q, offset));
            let mut x = q;
            for i in 0..U {
                x[i] = p[i].mul(self.factor_p).xor(q[i].mul(self.factor_q));
            }
            store(access, x, self.x, offset);
            add(&mut p, x);
            store(access, p, self.y, offset);
        }
    }
}

/// `U` vectors at `block + offset`.
#[inline(always)]
unsafe fn load<V: Vector, const U: usize>(access: impl Access, block: *const u8, offset: usize) -> [V; U] {
    // SAFETY: the caller guarantees `U` vectors (or the tail) at `offset`.
    std::array::from_fn(|nth| unsafe { load_at(access, block, offset, nth) })
}

/// The `nth` vector at `block + offset`.
#[inline(always)]
unsafe fn load_at<V: Vector>(access: impl Access, block: *const u8, offset: usize, nth: usize) -> V {
    // SAFETY: the caller guarantees that vector (or the tail) at `offset`.
    unsafe { access.load(block.add(offset + nth * V::BYTES)) }
}

/// Writes `U` vectors at `block + offset`.
#[inline(always)]
unsafe fn store<V: Vector, const U: usize>(
    access: impl Access,
    vectors: [V; U],
    block: *mut u8,
    offset: usize,
) {
    // SAFETY: the caller guarantees `U` vectors (or the tail) at `offset`.
    unsafe {
        for (i, vector) in vectors.into_iter().enumerate() {
            access.store(vector, block.add(offset + i * V::BYTES));
        }
    }
}

/// `sum += addend`.
#[inline(always)]
unsafe fn add<V: Vector, const U: usize>(sum: &mut [V; U], addend: [V; U]) {
    for i in 0..U {
        // SAFETY: the caller vouches for the instruction set.
        sum[i] = unsafe { sum[i].xor(addend[i]) };
    }
}
