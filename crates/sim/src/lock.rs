//! Locks of what the tasks of a world share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; one thread runs a world, so it never waits.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
