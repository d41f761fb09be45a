//! The invariants of the crate as code.

/// Asserts an invariant of the crate, by its number in the crate's documentation, where it is kept:
/// with debug assertions, and in the simulator, which builds the crate with `planted`. The product
/// does not evaluate the condition.
macro_rules! invariant {
    ($number:literal, $holds:expr) => {
        if cfg!(any(debug_assertions, feature = "planted")) {
            assert!($holds, concat!("invariant ", $number, " does not hold: ", stringify!($holds)));
        }
    };
}
pub(crate) use invariant;
