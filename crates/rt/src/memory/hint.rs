//! What the processor may be told beforehand.

/// Says that `place`, which another core may have changed last, is about to be changed here: a
/// change that follows after some other work does not wait for it then. Changes nothing.
#[inline]
pub fn about_to_change<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing that a program could see, and faults nowhere;
    // processors that do not know it pass over it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) std::ptr::from_ref(place), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
