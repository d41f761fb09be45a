//! Which kernels this CPU can run, and which of them is used. Decided once.

use std::sync::OnceLock;

use crate::kernels::Kernels;
use crate::simd::scalar;

impl Kernels {
    /// The fastest kernels this CPU can run; decided on the first call.
    #[must_use]
    pub fn best() -> &'static Kernels {
        static BEST: OnceLock<&'static Kernels> = OnceLock::new();
        BEST.get_or_init(|| Self::all_available().next().expect("the portable kernels are always available"))
    }

    /// Every kernel this CPU can run, fastest first: for tests and benchmarks.
    pub fn all_available() -> impl Iterator<Item = &'static Kernels> {
        #[cfg(target_arch = "x86_64")]
        let vectored = {
            use crate::simd::x86::{Avx2, Avx512, Gfni};
            [
                Gfni::detect().map(Gfni::kernels),
                Avx512::detect().map(Avx512::kernels),
                Avx2::detect().map(Avx2::kernels),
            ]
        };
        #[cfg(target_arch = "aarch64")]
        let vectored = {
            use crate::simd::neon::Neon;
            [Neon::detect().map(Neon::kernels)]
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let vectored: [Option<&'static Kernels>; 0] = [];
        vectored.into_iter().flatten().chain([Self::portable()])
    }

    /// The kernels that need no particular CPU.
    #[must_use]
    pub fn portable() -> &'static Kernels {
        static KERNELS: Kernels = Kernels::new("scalar", scalar::run);
        &KERNELS
    }
}
