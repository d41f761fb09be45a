//! What other threads may touch of a core: where they leave work for it, and the bell that ends its
//! sleep.
//!
//! **Invariant.** A core that sleeps is woken by every job, message and wake of a task that comes
//! for it, by the end of the runtime, and by what its backend's threads have for it
//! (`runtime/interleavings.rs`).

use std::any::Any;
use std::sync::{Arc, PoisonError};
use std::task::Wake;
use std::vec::Drain;

use crate::base::atomics::{AtomicBool, Mutex, Ordering, fence, mpsc};
use crate::base::event::EventFd;
use crate::executor::core::{Core, CoreIx};

/// Work sent to another core.
pub(crate) type Job = Box<dyn FnOnce(Core) + Send>;

/// A message from one core to another; see [`Core::post`]. For what is too small and too frequent
/// for a [`Core::call`]: it takes no task and no allocation of its own.
pub trait Message: Send + Sized + 'static {
    /// Takes messages, on the core that they were sent to, in the order in which another core sent
    /// them. It must not wait: it is called between tasks.
    fn deliver(messages: Drain<'_, Self>, core: &Core);
}

/// Messages of one kind that travel together.
pub(crate) trait Messages: Any + Send {
    /// Leaves none.
    fn deliver(&mut self, core: &Core);
}

impl<M: Message> Messages for Vec<M> {
    fn deliver(&mut self, core: &Core) {
        M::deliver(self.drain(..), core);
    }
}

/// Emptied messages, whose memory the next ones of their kind get: what one core allocates and
/// another frees costs both of them more than the messages do.
#[derive(Default)]
pub(crate) struct Spare(Vec<Box<dyn Messages>>);

impl Spare {
    pub(crate) fn keep(&mut self, emptied: Box<dyn Messages>) {
        if self.0.len() < SPARE_MAX {
            self.0.push(emptied);
        }
    }

    #[expect(clippy::box_collection, reason = "it goes where messages of any kind do")]
    fn take<M: Message>(&mut self) -> Box<Vec<M>> {
        let spare = self.0.pop().and_then(|spare| (spare as Box<dyn Any>).downcast().ok());
        spare.unwrap_or_else(|| Box::new(Vec::with_capacity(OUTBOX_MAX)))
    }
}

/// What one core sends to another.
pub(crate) enum Mail {
    Job(Job),
    Messages(Box<dyn Messages>),
}

/// A batch this large for another core does not wait for the end of the turn: that core may have
/// nothing else to do.
const OUTBOX_MAX: usize = 32;
/// So many emptied messages are kept.
const SPARE_MAX: usize = 16;

/// What waits to be sent to another core. Sent together, it costs one look at the memory of that
/// core, not one for each.
#[derive(Default)]
pub(crate) struct Outbox {
    mail: Vec<Mail>,
    woken: Vec<u32>,
    /// Jobs, messages and tasks to wake.
    len: usize,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// It is to be sent now.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= OUTBOX_MAX
    }

    pub(crate) fn put_job(&mut self, job: Job) {
        self.mail.push(Mail::Job(job));
        self.len += 1;
    }

    pub(crate) fn put_woken(&mut self, slot: u32) {
        self.woken.push(slot);
        self.len += 1;
    }

    /// Puts a message with those of its kind, unless something else has been put behind them.
    pub(crate) fn put_message<M: Message>(&mut self, message: M, spare: &mut Spare) {
        self.len += 1;
        if let Some(Mail::Messages(last)) = self.mail.last_mut()
            && let Some(last) = (&mut **last as &mut dyn Any).downcast_mut::<Vec<M>>()
        {
            return last.push(message);
        }
        let mut messages = spare.take();
        messages.push(message);
        self.mail.push(Mail::Messages(messages));
    }
}

/// What other threads may touch of a core.
pub(crate) struct CoreShared {
    pub(crate) ix: CoreIx,
    inbox: mpsc::Sender<Mail>,
    /// Tasks woken from elsewhere.
    woken: Mutex<Vec<u32>>,
    has_woken: AtomicBool,
    /// The core is about to block, or blocks, and must be told of news.
    asleep: AtomicBool,
    /// Ends a blocking reap; simulated cores have none, they never block.
    event: Option<Arc<EventFd>>,
    /// The runtime ends.
    pub(crate) stop: AtomicBool,
}

impl CoreShared {
    pub(crate) fn new(ix: CoreIx, event: Option<Arc<EventFd>>) -> (Arc<CoreShared>, mpsc::Receiver<Mail>) {
        let (inbox, receiver) = mpsc::channel();
        let shared = CoreShared {
            ix,
            inbox,
            woken: Mutex::default(),
            has_woken: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            event,
            stop: AtomicBool::new(false),
        };
        (Arc::new(shared), receiver)
    }

    /// Takes work from a thread that is none of the runtime's.
    pub(crate) fn send(&self, job: Job) {
        let mut outbox = Outbox::default();
        outbox.put_job(job);
        self.deliver(&mut outbox);
    }

    /// Takes what another core has for it, and leaves nothing.
    pub(crate) fn deliver(&self, outbox: &mut Outbox) {
        let Outbox { mail, woken, len } = outbox;
        *len = 0;
        for mail in mail.drain(..) {
            // A core that is gone takes no work: the runtime is ending and so is the caller.
            let _ = self.inbox.send(mail);
        }
        if !woken.is_empty() {
            self.woken.lock().unwrap_or_else(PoisonError::into_inner).append(woken);
            self.has_woken.store(true, Ordering::Release);
        }
        self.notify();
    }

    /// Wakes a task, from a thread that is none of the runtime's.
    pub(crate) fn wake_task(&self, slot: u32) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        self.has_woken.store(true, Ordering::Release);
        self.notify();
    }

    /// The tasks that were woken from elsewhere since the last look.
    pub(crate) fn take_woken(&self) -> Vec<u32> {
        if self.has_woken.load(Ordering::Relaxed) && self.has_woken.swap(false, Ordering::Acquire) {
            std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            Vec::new()
        }
    }

    /// The core is about to sleep, and looks for news once more after this.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The core has slept enough.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Ends the sleep of the core, if it sleeps. Call after the news is in place.
    pub(crate) fn notify(&self) {
        // Either this sees `asleep`, or the core, which stores it before it looks for news, sees
        // the news.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.event.iter().for_each(|event| event.ring());
        }
    }
}

/// Wakes the core, not a task: for what a backend or a drive has for it.
impl Wake for CoreShared {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}
