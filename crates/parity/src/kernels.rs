//! The safe face of the kernels: the operations on a table entry, one of which each instruction set
//! has.

use std::fmt;

use crate::field;
use crate::job::Job;
use crate::source::DataBlock;

/// Parity arithmetic for one instruction set.
///
/// Blocks may have any length and alignment; speed is best from 64-byte alignment up. Blocks of 2
/// MiB and more are generated past the caches where the instruction set can.
///
/// # Panics
/// Every operation panics if its blocks differ in length, or if the exponents of its sources do not
/// ascend strictly below 255: such a call has mixed up a row, and any parity it produced would
/// destroy data.
pub struct Kernels {
    name: &'static str,
    run: Run,
}

/// A kernel's entry: does the job, whose blocks have the given length. The job goes by reference
/// because copying it costs 10 % of a call on 4 KiB blocks.
///
/// # Safety
/// The CPU has the instruction set the entry was compiled for, and the length is
/// [`Job::checked_len`]'s.
type Run = unsafe fn(&mut Job<'_>, usize);

impl Kernels {
    /// The only constructor is private to the crate, and only called behind a detected capability.
    pub(crate) const fn new(name: &'static str, run: Run) -> Self {
        Kernels { name, run }
    }

    /// The instruction set: `avx512-gfni`, `avx512`, `avx2`, `neon` or `scalar`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `dst = sum of sources`: P of a row, or any one block of a row with P from all the others.
    pub fn xor_gen(&self, dst: &mut [u8], sources: &[&[u8]]) {
        self.run(Job::XorGen { dst, sources });
    }

    /// `dst ^= src`.
    pub fn xor_into(&self, dst: &mut [u8], src: &[u8]) {
        self.run(Job::XorAdd { dst, sources: &[src] });
    }

    /// `dst ^= sum of sources`: P takes in several blocks, or several pairs of old and new.
    pub fn xor_add(&self, dst: &mut [u8], sources: &[&[u8]]) {
        self.run(Job::XorAdd { dst, sources });
    }

    /// P and Q of a row.
    pub fn pq_gen(&self, p: &mut [u8], q: &mut [u8], sources: &[DataBlock<'_>]) {
        self.run(Job::Pq { p, q, sources });
    }

    /// Q of a row, for when its P is not kept.
    pub fn q_gen(&self, q: &mut [u8], sources: &[DataBlock<'_>]) {
        self.run(Job::Q { q, sources });
    }

    /// P follows one data block from `old` to `new`.
    pub fn delta_p(&self, p: &mut [u8], old: &[u8], new: &[u8]) {
        self.run(Job::XorAdd { dst: p, sources: &[old, new] });
    }

    /// Q follows the data block with this exponent from `old` to `new`.
    pub fn delta_q(&self, q: &mut [u8], exponent: u8, old: &[u8], new: &[u8]) {
        self.run(Job::DeltaQ { q, factor: weight(exponent), old, new });
    }

    /// P and Q follow the data block with this exponent from `old` to `new`.
    pub fn delta_pq(&self, p: &mut [u8], q: &mut [u8], exponent: u8, old: &[u8], new: &[u8]) {
        self.run(Job::DeltaPq { p, q, factor: weight(exponent), old, new });
    }

    /// `dst = factor * src`.
    pub fn mul_into(&self, dst: &mut [u8], factor: u8, src: &[u8]) {
        self.run(Job::MulInto { dst, factor, src });
    }

    /// `dst ^= factor * src`.
    pub fn mul_add(&self, dst: &mut [u8], factor: u8, src: &[u8]) {
        self.run(Job::MulAdd { dst, factor, src });
    }

    /// The lost data block with this exponent from Q, with P lost too and not wanted back.
    /// `sources` are the other data blocks.
    pub fn recover_data_from_q(&self, data: &mut [u8], exponent: u8, q: &[u8], sources: &[DataBlock<'_>]) {
        assert_lost([exponent], sources);
        self.run(Job::DataFromQ { data, factor: inverse(weight(exponent)), q, sources });
    }

    /// The lost data block with this exponent, and P. `sources` are the other data blocks.
    pub fn recover_data_and_p(
        &self,
        data: &mut [u8],
        p: &mut [u8],
        exponent: u8,
        q: &[u8],
        sources: &[DataBlock<'_>],
    ) {
        assert_lost([exponent], sources);
        self.run(Job::DataAndP { data, p, factor: inverse(weight(exponent)), q, sources });
    }

    /// The lost data block with this exponent, and Q. `sources` are the other data blocks.
    pub fn recover_data_and_q(
        &self,
        data: &mut [u8],
        q: &mut [u8],
        exponent: u8,
        p: &[u8],
        sources: &[DataBlock<'_>],
    ) {
        assert_lost([exponent], sources);
        self.run(Job::DataAndQ { data, q, factor: weight(exponent), p, sources });
    }

    /// The two lost data blocks `x` and `y`, each with its exponent, in either order. `sources` are
    /// the other data blocks.
    ///
    /// With A = P + P' and B = Q + Q' (docs/formats.md §6): `D_x = (B + g^y A) / (g^x + g^y)`,
    /// `D_y = A + D_x`.
    pub fn recover_two_data(
        &self,
        (x_exponent, x): (u8, &mut [u8]),
        (y_exponent, y): (u8, &mut [u8]),
        p: &[u8],
        q: &[u8],
        sources: &[DataBlock<'_>],
    ) {
        assert_lost([x_exponent, y_exponent], sources);
        assert_ne!(x_exponent, y_exponent, "two blocks of one row have two exponents");
        let (x_weight, y_weight) = (weight(x_exponent), weight(y_exponent));
        let factor_q = inverse(x_weight ^ y_weight);
        let factor_p = field::mul(factor_q, y_weight);
        self.run(Job::TwoData { x, y, factor_p, factor_q, p, q, sources });
    }

    fn run(&self, mut job: Job<'_>) {
        let len = job.checked_len();
        // SAFETY: a `Kernels` is only handed out by a capability that detected the entry's
        // instruction set (or needs none), and the job has just been checked.
        unsafe { (self.run)(&mut job, len) }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernels").field(&self.name).finish()
    }
}

fn weight(exponent: u8) -> u8 {
    assert!(exponent < field::ORDER, "exponents stay below 255");
    field::power(exponent)
}

fn inverse(value: u8) -> u8 {
    field::invert(value).expect("powers of g differ from zero, and from each other below 255")
}

/// A block cannot be lost and a source at once.
fn assert_lost<const N: usize>(lost: [u8; N], sources: &[DataBlock<'_>]) {
    for source in sources {
        assert!(!lost.contains(&source.exponent), "exponent {} is both lost and a source", source.exponent);
    }
}
