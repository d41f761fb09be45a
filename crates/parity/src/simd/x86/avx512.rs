//! AVX-512 with byte operations (F and BW): 64 bytes per vector, three-way XOR, carries as masks.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_sfence, _mm512_add_epi8, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_loadu_si512, _mm512_maskz_mov_epi8, _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_storeu_si512, _mm512_stream_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use crate::field::{NIBBLE_PRODUCTS, REDUCTION};
use crate::job::Job;
use crate::kernels::Kernels;
use crate::simd::{Vector, steps};

/// Proof that this CPU (and its operating system) has AVX-512 F and BW.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// Looks at the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")).then_some(Avx512(()))
    }

    /// The kernels this proof admits to.
    #[must_use]
    pub fn kernels(self) -> &'static Kernels {
        static KERNELS: Kernels = Kernels::new("avx512", run);
        &KERNELS
    }
}

/// # Safety
/// The CPU has AVX-512 F and BW, and `len` is the checked [`Job::checked_len`].
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn run(job: &mut Job<'_>, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { steps::run::<V512, 4>(job, len) }
}

#[derive(Clone, Copy)]
pub(super) struct V512(pub(super) __m512i);

/// Truth table of `a ^ b ^ c` for `vpternlog`.
pub(super) const XOR3: i32 = 0x96;

// SAFETY: uses AVX-512 F and BW only; `load` and `store` touch 64 bytes, unaligned.
unsafe impl Vector for V512 {
    const BYTES: usize = 64;
    const STREAMS: bool = true;
    /// Products of the low and of the high nibble, in all four quarters.
    type Factor = (__m512i, __m512i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX-512.
        V512(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller guarantees 64 readable bytes, and AVX-512.
        V512(unsafe { _mm512_loadu_si512(src.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller guarantees 64 writable bytes, and AVX-512.
        unsafe { _mm512_storeu_si512(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: the caller guarantees 64 writable, aligned bytes, AVX-512, and a fence later.
        unsafe { _mm512_stream_si512(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        V512(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512.
        V512(unsafe { _mm512_ternarylogic_epi64::<XOR3>(self.0, b.0, c.0) })
    }

    #[inline(always)]
    unsafe fn double_add(self, addend: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512 F and BW.
        unsafe {
            let carries = _mm512_movepi8_mask(self.0);
            let reduction = _mm512_maskz_mov_epi8(carries, _mm512_set1_epi8(REDUCTION as i8));
            V512(_mm512_add_epi8(self.0, self.0)).xor3(V512(reduction), addend)
        }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let table: *const __m128i = NIBBLE_PRODUCTS[usize::from(factor)].as_ptr().cast();
        // SAFETY: the table has 32 bytes; the caller vouches for AVX-512.
        unsafe {
            let low = _mm512_broadcast_i32x4(_mm_loadu_si128(table));
            let high = _mm512_broadcast_i32x4(_mm_loadu_si128(table.add(1)));
            (low, high)
        }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller vouches for AVX-512 F and BW.
        unsafe {
            let nibble = _mm512_set1_epi8(0x0f);
            let low = _mm512_shuffle_epi8(low, _mm512_and_si512(self.0, nibble));
            let high_nibbles = _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), nibble);
            V512(_mm512_xor_si512(low, _mm512_shuffle_epi8(high, high_nibbles)))
        }
    }
}
