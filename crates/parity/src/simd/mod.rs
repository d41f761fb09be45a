//! The kernels. One algorithm ([`steps`]) over a small vector abstraction ([`Vector`]),
//! instantiated once per instruction set.
//!
//! How the unsafety is fenced:
//! - An instruction-set module offers a capability (`Avx2`, ...) whose only constructor looks at
//!   the CPU. Holding the value proves that the instructions exist; it is the only way to that
//!   module's [`Kernels`](crate::Kernels).
//! - Each module has exactly one entry, `run(Job)`, compiled with the instruction set enabled;
//!   everything generic is inlined into it. (`#[inline(always)]` below is not a speed hint: a
//!   vector passed through a function compiled without the feature would lose its registers.)
//! - A [`Job`](crate::job::Job) carries slices. [`Job::checked_len`](crate::job::Job::checked_len)
//!   checks that they are equally long before an entry sees them; from there on the only arithmetic
//!   on pointers is `base + offset` with `offset + width <= len`.

mod steps;

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// A register full of field elements.
///
/// # Safety
/// All methods may use instructions of the implementing instruction set: callers guarantee that the
/// CPU has it. An implementation reads and writes exactly `BYTES` bytes, without alignment, in
/// `load` and `store`.
pub(crate) unsafe trait Vector: Copy {
    /// Bytes per vector, at most [`MAX_VECTOR_BYTES`].
    const BYTES: usize;

    /// Whether `stream` differs from `store`.
    const STREAMS: bool = false;

    /// A constant factor, prepared for `mul`.
    type Factor: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(src: *const u8) -> Self;
    unsafe fn store(self, dst: *mut u8);

    /// Stores past the caches. `dst` must be aligned to `BYTES`; `fence` must follow before anyone
    /// reads it.
    #[inline(always)]
    unsafe fn stream(self, dst: *mut u8) {
        // SAFETY: the caller's promises for `stream` include those for `store`.
        unsafe { self.store(dst) }
    }

    /// Orders earlier `stream`s before everything that follows.
    #[inline(always)]
    unsafe fn fence() {}

    unsafe fn xor(self, other: Self) -> Self;

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { self.xor(b).xor(c) }
    }

    /// `2 * self + addend`: one step of Horner's rule.
    unsafe fn double_add(self, addend: Self) -> Self;

    /// `4 * self + 2 * upper + lower`: two steps of Horner's rule.
    #[inline(always)]
    unsafe fn double_add_twice(self, upper: Self, lower: Self) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { self.double_add(upper).double_add(lower) }
    }

    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// The widest vector of any instruction set here.
pub(crate) const MAX_VECTOR_BYTES: usize = 64;
