//! Mailboxes between cores: any core sends, one core receives.
//!
//! Sending takes no lock while the receiver is busy: `std`'s channel is lock-free, and the receiver
//! says through a flag when it waits. Only waking a waiting receiver locks, and it sleeps then.
//!
//! **Invariant.** A receiver that waits is woken by the next message, and by the end of the last
//! sender.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::base::atomics::{AtomicBool, Mutex, Ordering, fence, mpsc};

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

/// Every interleaving of a receiver and its senders: `scripts/checkers loom`.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::sync::Notify;
    use loom::thread;

    /// Ends the wait of a thread, as a waker of a core's task does.
    struct Wakes(Notify);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }

    /// Receives until every sender is gone. `loom` fails a model in which a thread waits for ever,
    /// which here is one that was not woken.
    fn receive_all(receiver: &mut Receiver<u32>) -> Vec<u32> {
        let wakes = Arc::new(Wakes(Notify::new()));
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let mut received = Vec::new();
        loop {
            match receiver.poll_recv(&mut context) {
                Poll::Ready(Some(message)) => received.push(message),
                Poll::Ready(None) => return received,
                Poll::Pending => wakes.0.wait(),
            }
        }
    }

    /// One sender, any number of switches. Fails without either fence, without the second look of
    /// `poll_recv`, with `waiting` stored after that look or before the waker is in place, and
    /// without the bell of the last sender's drop or with it before the sender goes.
    #[test]
    fn a_receiver_that_waits_is_woken() {
        loom::model(|| {
            let (sender, mut receiver) = mailbox();
            let sends = thread::spawn(move || {
                assert_eq!(sender.send(1), Ok(()));
            });
            assert_eq!(receive_all(&mut receiver), [1]);
            sends.join().expect("it ends well");
        });
    }

    /// The bell of a message alone: its sender lives on. Fails without the bell of `send`.
    #[test]
    fn a_message_wakes_while_its_sender_lives() {
        loom::model(|| {
            let (sender, mut receiver) = mailbox();
            let keeps = sender.clone();
            let sends = thread::spawn(move || {
                assert_eq!(keeps.send(1), Ok(()));
                keeps
            });
            let wakes = Arc::new(Wakes(Notify::new()));
            let waker = Waker::from(wakes.clone());
            let mut context = Context::from_waker(&waker);
            while receiver.poll_recv(&mut context).is_pending() {
                wakes.0.wait();
            }
            drop((sender, sends.join().expect("it ends well")));
        });
    }

    /// Two senders, of which one may take the waker that the other one saw: at most three switches
    /// that no thread asked for.
    #[test]
    fn of_two_senders_each_wakes() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (sender, mut receiver) = mailbox();
            let senders = [(1, sender.clone()), (2, sender)].map(|(message, sender)| {
                thread::spawn(move || {
                    assert_eq!(sender.send(message), Ok(()));
                })
            });
            let mut received = receive_all(&mut receiver);
            received.sort_unstable();
            assert_eq!(received, [1, 2]);
            senders.into_iter().for_each(|sends| sends.join().expect("it ends well"));
        });
    }
}
