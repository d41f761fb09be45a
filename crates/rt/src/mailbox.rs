//! Mailboxes between cores: any core sends, one core receives.
//!
//! Sending takes no lock while the receiver is busy: `std`'s channel is lock-free, and the receiver
//! says through a flag when it waits. Only waking a waiting receiver locks, and it sleeps then.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};

/// A mailbox: the sending half may be cloned and sent to other cores, the receiving half belongs to
/// one.
pub fn mailbox<T: Send>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let bell = Arc::new(Bell { waiting: AtomicBool::new(false), waker: Mutex::new(None) });
    (Sender { sender: Some(sender), bell: bell.clone() }, Receiver { receiver, bell })
}

/// Wakes the receiver.
struct Bell {
    waiting: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// Call after the message is in place.
    fn ring(&self) {
        // Either this sees `waiting`, or the receiver, which stores it before it looks again, sees
        // the message.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::AcqRel) {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The sending half of a mailbox.
pub struct Sender<T> {
    /// `None` only while dropping.
    sender: Option<mpsc::Sender<T>>,
    bell: Arc<Bell>,
}

impl<T: Send> Sender<T> {
    /// Sends a message; it comes back if the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), T> {
        let sender = self.sender.as_ref().expect("the sender lives until the drop");
        sender.send(message).map_err(|refused| refused.0)?;
        self.bell.ring();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // The receiver must see that the last sender went away, so it goes first.
        self.sender = None;
        self.bell.ring();
    }
}

/// The receiving half of a mailbox.
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
    bell: Arc<Bell>,
}

impl<T: Send> Receiver<T> {
    /// Waits for the next message; `None` once every sender is gone and the mailbox is empty.
    ///
    /// # Cancellation
    /// Dropping the future loses no message.
    pub fn recv(&mut self) -> impl Future<Output = Option<T>> + '_ {
        std::future::poll_fn(move |context| self.poll_recv(context))
    }

    /// The next message if there is one now.
    pub fn try_recv(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }

    /// Polls for the next message; see [`Receiver::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.receiver.try_recv() {
            Ok(message) => return Poll::Ready(Some(message)),
            Err(mpsc::TryRecvError::Disconnected) => return Poll::Ready(None),
            Err(mpsc::TryRecvError::Empty) => {}
        }
        *self.bell.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        self.bell.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        match self.receiver.try_recv() {
            Ok(message) => Poll::Ready(Some(message)),
            Err(mpsc::TryRecvError::Disconnected) => Poll::Ready(None),
            Err(mpsc::TryRecvError::Empty) => Poll::Pending,
        }
    }
}
