//! Whether a thread runs a core just now: it must not wait for other processes.

use std::cell::Cell;

thread_local! {
    static IS_ON_CORE: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread runs a core, or none.
pub(crate) fn set(is_on_core: bool) {
    IS_ON_CORE.set(is_on_core);
}

/// Whether this thread runs a core's turn.
pub(crate) fn is_on_core() -> bool {
    IS_ON_CORE.get()
}
