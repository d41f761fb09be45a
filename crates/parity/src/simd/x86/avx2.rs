//! AVX2: 32 bytes per vector; multiplication by two nibble look-ups (`vpshufb`).

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_sfence, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_stream_si256,
    _mm256_xor_si256,
};

use crate::field::{NIBBLE_PRODUCTS, REDUCTION};
use crate::job::Job;
use crate::kernels::Kernels;
use crate::simd::{Vector, steps};

/// Proof that this CPU (and its operating system) has AVX2.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// Looks at the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Avx2(()))
    }

    /// The kernels this proof admits to.
    #[must_use]
    pub fn kernels(self) -> &'static Kernels {
        static KERNELS: Kernels = Kernels::new("avx2", run);
        &KERNELS
    }
}

/// # Safety
/// The CPU has AVX2, and `len` is the checked [`Job::checked_len`].
#[target_feature(enable = "avx2")]
unsafe fn run(job: &mut Job<'_>, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { steps::run::<V256, 4>(job, len) }
}

#[derive(Clone, Copy)]
struct V256(__m256i);

// SAFETY: uses AVX2 only; `load` and `store` touch 32 bytes, unaligned.
unsafe impl Vector for V256 {
    const BYTES: usize = 32;
    const STREAMS: bool = true;
    /// Products of the low and of the high nibble, in both halves.
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX2.
        V256(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller guarantees 32 readable bytes, and AVX2.
        V256(unsafe { _mm256_loadu_si256(src.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller guarantees 32 writable bytes, and AVX2.
        unsafe { _mm256_storeu_si256(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: the caller guarantees 32 writable, aligned bytes, AVX2, and a fence later.
        unsafe { _mm256_stream_si256(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        V256(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn double_add(self, addend: Self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduction = _mm256_and_si256(carries, _mm256_set1_epi8(REDUCTION as i8));
            let shifted = _mm256_add_epi8(self.0, self.0);
            V256(_mm256_xor_si256(shifted, _mm256_xor_si256(reduction, addend.0)))
        }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let table: *const __m128i = NIBBLE_PRODUCTS[usize::from(factor)].as_ptr().cast();
        // SAFETY: the table has 32 bytes; the caller vouches for AVX2.
        unsafe {
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(table));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(1)));
            (low, high)
        }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let nibble = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, nibble));
            let high_nibbles = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), nibble);
            V256(_mm256_xor_si256(low, _mm256_shuffle_epi8(high, high_nibbles)))
        }
    }
}
