//! NEON (AArch64): 16 bytes per vector; multiplication by two nibble look-ups (`tbl`).

use std::arch::aarch64::{
    uint8x16_t, vaddq_u8, vandq_u8, vcltzq_s8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8,
    vreinterpretq_s8_u8, vshrq_n_u8, vst1q_u8,
};

use super::{Vector, steps};
use crate::field::{NIBBLE_PRODUCTS, REDUCTION};
use crate::job::Job;
use crate::kernels::Kernels;

/// Proof that this CPU (and its operating system) has NEON.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Neon {
    /// Looks at the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }

    /// The kernels this proof admits to.
    #[must_use]
    pub fn kernels(self) -> &'static Kernels {
        static KERNELS: Kernels = Kernels::new("neon", run);
        &KERNELS
    }
}

/// # Safety
/// The CPU has NEON, and `len` is the checked [`Job::checked_len`].
#[target_feature(enable = "neon")]
unsafe fn run(job: &mut Job<'_>, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { steps::run::<V128, 4>(job, len) }
}

#[derive(Clone, Copy)]
struct V128(uint8x16_t);

// SAFETY: uses NEON only; `load` and `store` touch 16 bytes, unaligned.
unsafe impl Vector for V128 {
    const BYTES: usize = 16;
    /// Products of the low and of the high nibble.
    type Factor = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for NEON.
        V128(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller guarantees 16 readable bytes, and NEON.
        V128(unsafe { vld1q_u8(src) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller guarantees 16 writable bytes, and NEON.
        unsafe { vst1q_u8(dst, self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        V128(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn double_add(self, addend: Self) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let carries = vcltzq_s8(vreinterpretq_s8_u8(self.0));
            let reduction = vandq_u8(carries, vdupq_n_u8(REDUCTION));
            V128(veorq_u8(vaddq_u8(self.0, self.0), veorq_u8(reduction, addend.0)))
        }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let table = NIBBLE_PRODUCTS[usize::from(factor)].as_ptr();
        // SAFETY: the table has 32 bytes; the caller vouches for NEON.
        unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            let low = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
            V128(veorq_u8(low, vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0))))
        }
    }
}
