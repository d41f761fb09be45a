//! Eight bytes at a time in a `u64`: runs everywhere, and is the reference for the vector modules.

use super::{Vector, steps};
use crate::field;
use crate::job::Job;

/// The portable kernels' entry.
///
/// # Safety
/// [`Job::checked_len`] has checked the job.
pub(crate) unsafe fn run(job: &mut Job<'_>, len: usize) {
    // SAFETY: `u64` needs no CPU feature; the caller checked the job.
    unsafe { steps::run::<u64, 4>(job, len) }
}

/// The given byte in all eight lanes.
const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

// SAFETY: plain integer arithmetic; `load` and `store` touch 8 bytes, unaligned.
unsafe impl Vector for u64 {
    const BYTES: usize = 8;
    type Factor = u8;

    #[inline(always)]
    unsafe fn zero() -> u64 {
        0
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> u64 {
        // SAFETY: the caller guarantees 8 readable bytes.
        unsafe { src.cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller guarantees 8 writable bytes.
        unsafe { dst.cast::<u64>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: u64) -> u64 {
        self ^ other
    }

    #[inline(always)]
    unsafe fn double_add(self, addend: u64) -> u64 {
        double(self) ^ addend
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> u8 {
        factor
    }

    #[inline(always)]
    unsafe fn mul(self, factor: u8) -> u64 {
        let mut product = 0;
        for bit in (0..8).rev() {
            let selected = if factor >> bit & 1 == 1 { self } else { 0 };
            product = double(product) ^ selected;
        }
        product
    }
}

/// Doubles each lane. The multiplication spreads each lane's carry bit into that lane's reduction,
/// without crossing lanes because the reduction is below 256.
#[inline(always)]
fn double(lanes: u64) -> u64 {
    let carries = (lanes >> 7) & splat(1);
    ((lanes & splat(0x7f)) << 1) ^ (carries * u64::from(field::REDUCTION))
}
