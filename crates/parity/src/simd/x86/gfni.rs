//! AVX-512 with GFNI: any multiplication is one bit-matrix instruction (`vgf2p8affineqb`), in any
//! polynomial.

use std::arch::x86_64::{__m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64};

use super::avx512::V512;
use crate::field::{MATRICES, matrix};
use crate::job::Job;
use crate::kernels::Kernels;
use crate::simd::{Vector, steps};

/// Proof that this CPU (and its operating system) has AVX-512 F and BW, and GFNI.
#[derive(Clone, Copy, Debug)]
pub struct Gfni(());

impl Gfni {
    /// Looks at the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        super::Avx512::detect().filter(|_| is_x86_feature_detected!("gfni")).map(|_| Gfni(()))
    }

    /// The kernels this proof admits to.
    #[must_use]
    pub fn kernels(self) -> &'static Kernels {
        static KERNELS: Kernels = Kernels::new("avx512-gfni", run);
        &KERNELS
    }
}

/// # Safety
/// The CPU has AVX-512 F and BW and GFNI, and `len` is the checked [`Job::checked_len`].
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn run(job: &mut Job<'_>, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { steps::run::<Affine, 4>(job, len) }
}

/// [`V512`] that multiplies with GFNI.
#[derive(Clone, Copy)]
struct Affine(V512);

/// Multiplication by a constant known to the compiler.
#[inline(always)]
unsafe fn times<const FACTOR: u8>(vector: Affine) -> Affine {
    // SAFETY: the caller vouches for AVX-512 and GFNI.
    unsafe { vector.mul(_mm512_set1_epi64(const { matrix(FACTOR) } as i64)) }
}

// SAFETY: uses AVX-512 F and BW and GFNI only; loads and stores are those of `V512`.
unsafe impl Vector for Affine {
    const BYTES: usize = V512::BYTES;
    const STREAMS: bool = V512::STREAMS;
    /// The bit matrix in every 64-bit lane.
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from the caller.
        Affine(unsafe { V512::zero() })
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: passed on from the caller.
        Affine(unsafe { V512::load(src) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.store(dst) }
    }

    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { self.0.stream(dst) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: passed on from the caller.
        unsafe { V512::fence() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: passed on from the caller.
        Affine(unsafe { self.0.xor(other.0) })
    }

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: passed on from the caller.
        Affine(unsafe { self.0.xor3(b.0, c.0) })
    }

    #[inline(always)]
    unsafe fn double_add(self, addend: Self) -> Self {
        // SAFETY: passed on from the caller.
        unsafe { times::<2>(self).xor(addend) }
    }

    /// `2 * upper` does not wait for `self`: one multiplication and one XOR per two blocks on the
    /// critical path.
    #[inline(always)]
    unsafe fn double_add_twice(self, upper: Self, lower: Self) -> Self {
        // SAFETY: passed on from the caller.
        unsafe { times::<4>(self).xor3(times::<2>(upper), lower) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller vouches for AVX-512.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller vouches for AVX-512 and GFNI.
        Affine(V512(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0.0, factor) }))
    }
}
