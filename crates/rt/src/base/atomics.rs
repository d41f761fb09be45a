//! The atomics, locks and channels of what cores share: `std`'s, or with `--cfg loom` those with
//! which `loom` runs a model through every interleaving (`scripts/checkers loom`).
//!
//! Files with a model import from here: the mailbox of this crate, the words of leases and of
//! changes in the engine.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, atomic::AtomicBool, mpsc};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use {loom::sync::Mutex, modelled_bool::AtomicBool, modelled_mpsc as mpsc};

/// A flag for models. Between the value that an exchange reads and the one that it writes no store
/// may come, but `loom` orders a store among exchanges only by what happened before both, and then
/// finds flags that are back to what they were before the store. Here a store is an exchange too.
#[cfg(loom)]
mod modelled_bool {
    use loom::sync::atomic::Ordering;

    pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(loom::sync::atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.0.swap(value, order);
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            self.0.swap(value, order)
        }
    }
}

/// A channel for models. `std`'s is invisible to `loom`, and `loom`'s own does not say that the
/// senders are gone. This one promises what `std` documents and nothing more: a message is seen
/// with what came before it was sent, but a receiver that looks may miss one that is only just in
/// place.
#[cfg(loom)]
pub(crate) mod modelled_mpsc {
    use std::collections::VecDeque;
    use std::sync::{Arc, PoisonError};

    use loom::sync::atomic::{AtomicUsize, Ordering};

    pub(crate) use std::sync::mpsc::{SendError, TryRecvError};

    struct Queue<T> {
        /// `loom` runs one thread at a time and does not know of this lock, which therefore orders
        /// nothing in a model and is never waited for.
        messages: std::sync::Mutex<VecDeque<T>>,
        sent: AtomicUsize,
        senders: AtomicUsize,
    }

    pub(crate) struct Sender<T>(Arc<Queue<T>>);

    pub(crate) struct Receiver<T> {
        queue: Arc<Queue<T>>,
        received: std::cell::Cell<usize>,
    }

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let queue = Arc::new(Queue {
            messages: std::sync::Mutex::default(),
            sent: AtomicUsize::new(0),
            senders: AtomicUsize::new(1),
        });
        (Sender(queue.clone()), Receiver { queue, received: std::cell::Cell::new(0) })
    }

    impl<T> Sender<T> {
        /// Models keep their receivers: there is always one.
        pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
            self.0.messages.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
            self.0.sent.fetch_add(1, Ordering::Release);
            Ok(())
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            self.0.senders.fetch_add(1, Ordering::Relaxed);
            Self(self.0.clone())
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.senders.fetch_sub(1, Ordering::Release);
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
            // Before the messages: what the last sender sent is seen by whatever sees it gone.
            let connected = self.queue.senders.load(Ordering::Acquire) > 0;
            if self.queue.sent.load(Ordering::Acquire) > self.received.get() {
                self.received.set(self.received.get() + 1);
                let mut messages = self.queue.messages.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok(messages.pop_front().expect("what was counted is in place"));
            }
            Err(if connected { TryRecvError::Empty } else { TryRecvError::Disconnected })
        }
    }
}
