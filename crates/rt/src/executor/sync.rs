//! Waiting within one core: no atomics, no locks, nothing here may cross to another thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::executor::Wake;

/// Wakes all tasks that wait. A notification is not stored: a task that comes later waits for the
/// next one.
#[derive(Default)]
pub struct Notify {
    round: Cell<u64>,
    waiting: RefCell<Vec<Wake>>,
}

impl Notify {
    /// With no task waiting.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Waits for the first [`Notify::notify_all`] after this call (not after the first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let round = self.round.get();
        std::future::poll_fn(move |context| {
            if self.round.get() != round {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            let wake = Wake::of(context);
            if !waiting.iter().any(|other| other.same(&wake)) {
                waiting.push(wake);
            }
            Poll::Pending
        })
    }

    /// Wakes all tasks that wait now.
    pub fn notify_all(&self) {
        self.round.set(self.round.get() + 1);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Wake::wake);
    }
}

/// A flag that, once set, stays set until reset: a [`Notify`] that remembers.
#[derive(Default)]
pub struct Latch {
    set: Cell<bool>,
    notify: Notify,
}

impl Latch {
    /// Not set.
    pub fn new() -> Latch {
        Latch::default()
    }

    /// Sets it and wakes all tasks that wait.
    pub fn set(&self) {
        self.set.set(true);
        self.notify.notify_all();
    }

    /// Unsets it.
    pub fn reset(&self) {
        self.set.set(false);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.set.get()
    }

    /// Waits until it is set.
    pub async fn wait(&self) {
        while !self.is_set() {
            self.notify.wait().await;
        }
    }
}

/// Permits handed out in the order of asking: a large request is not overtaken by small ones.
pub struct Semaphore {
    state: RefCell<SemaphoreState>,
}

struct SemaphoreState {
    free: usize,
    next_ticket: u64,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    ticket: u64,
    amount: usize,
    wake: Option<Wake>,
    granted: bool,
}

impl Semaphore {
    /// With `permits` free.
    pub fn new(permits: usize) -> Semaphore {
        Semaphore {
            state: RefCell::new(SemaphoreState { free: permits, next_ticket: 0, waiting: VecDeque::new() }),
        }
    }

    /// How many permits are free.
    pub fn available(&self) -> usize {
        self.state.borrow().free
    }

    /// Adds permits.
    pub fn add(&self, amount: usize) {
        self.state.borrow_mut().free += amount;
        self.grant();
    }

    /// Takes `amount` permits if they are free and no task waits.
    pub fn try_acquire(&self, amount: usize) -> Option<Permit<'_>> {
        let mut state = self.state.borrow_mut();
        if !state.waiting.is_empty() || state.free < amount {
            return None;
        }
        state.free -= amount;
        Some(Permit { semaphore: self, amount })
    }

    /// Waits for `amount` permits; they come back when the permit is dropped. Asking for more than
    /// there will ever be waits for ever.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue; nothing is lost.
    pub fn acquire(&self, amount: usize) -> Acquire<'_> {
        Acquire { semaphore: self, amount, ticket: None }
    }

    /// Grants from the front of the queue as far as the permits reach.
    fn grant(&self) {
        let mut woken = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            let SemaphoreState { free, waiting, .. } = &mut *state;
            for waiting in waiting.iter_mut().filter(|waiting| !waiting.granted) {
                if waiting.amount > *free {
                    break;
                }
                *free -= waiting.amount;
                waiting.granted = true;
                woken.extend(waiting.wake.take());
            }
        }
        woken.into_iter().for_each(Wake::wake);
    }
}

/// Waits for permits; see [`Semaphore::acquire`].
pub struct Acquire<'a> {
    semaphore: &'a Semaphore,
    amount: usize,
    ticket: Option<u64>,
}

impl<'a> Future for Acquire<'a> {
    type Output = Permit<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<'a>> {
        let semaphore = self.semaphore;
        let Some(ticket) = self.ticket else {
            if let Some(permit) = semaphore.try_acquire(self.amount) {
                return Poll::Ready(permit);
            }
            let mut state = semaphore.state.borrow_mut();
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            let wake = Some(Wake::of(context));
            state.waiting.push_back(Waiting { ticket, amount: self.amount, wake, granted: false });
            self.ticket = Some(ticket);
            return Poll::Pending;
        };
        let mut state = semaphore.state.borrow_mut();
        let at = state
            .waiting
            .iter()
            .position(|waiting| waiting.ticket == ticket)
            .expect("we queue until granted");
        if !state.waiting[at].granted {
            state.waiting[at].wake = Some(Wake::of(context));
            return Poll::Pending;
        }
        state.waiting.remove(at);
        self.ticket = None;
        Poll::Ready(Permit { semaphore, amount: self.amount })
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        {
            let mut state = self.semaphore.state.borrow_mut();
            let at = state
                .waiting
                .iter()
                .position(|waiting| waiting.ticket == ticket)
                .expect("we queue until granted");
            let left = state.waiting.remove(at).expect("the position is inside");
            if left.granted {
                state.free += left.amount;
            }
        }
        self.semaphore.grant();
    }
}

/// Permits taken from a [`Semaphore`]; they go back when this is dropped.
#[must_use = "a permit that is dropped at once protects nothing"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    amount: usize,
}

impl Permit<'_> {
    /// Keeps the permits out for good, or until [`Semaphore::add`] brings them back.
    pub fn forget(mut self) {
        self.amount = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.semaphore.add(self.amount);
        }
    }
}

struct OneshotState<T> {
    value: Option<T>,
    wake: Option<Wake>,
    closed: bool,
}

/// Sends one value within a core.
pub struct OneshotSender<T> {
    state: Rc<RefCell<OneshotState<T>>>,
}

/// Awaits one value within a core: `None` if the sender went away without sending.
pub struct OneshotReceiver<T> {
    state: Rc<RefCell<OneshotState<T>>>,
}

/// A channel for one value within a core.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let state = Rc::new(RefCell::new(OneshotState { value: None, wake: None, closed: false }));
    (OneshotSender { state: state.clone() }, OneshotReceiver { state })
}

impl<T> OneshotSender<T> {
    /// Sends the value; it comes back if no task waits for it any more.
    pub fn send(self, value: T) -> Result<(), T> {
        if Rc::strong_count(&self.state) == 1 {
            return Err(value);
        }
        self.state.borrow_mut().value = Some(value);
        Ok(())
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let wake = {
            let mut state = self.state.borrow_mut();
            state.closed = true;
            state.wake.take()
        };
        if let Some(wake) = wake {
            wake.wake();
        }
    }
}

impl<T> OneshotReceiver<T> {
    /// Whether awaiting it would return at once.
    pub fn is_ready(&self) -> bool {
        self.state.borrow().closed
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(state.value.take());
        }
        state.wake = Some(Wake::of(context));
        Poll::Pending
    }
}
