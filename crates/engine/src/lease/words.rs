//! Leases: stripes, and ranges of copies, that another core than their owner may work on.
//!
//! Every stripe has an owner core. A small write that arrives on another core could go to the owner
//! as a message, and its answer could come back as one; but that costs more than a fourth of the
//! write, and half of all writes on two cores are such. So the other core leases the stripe, if no
//! task works on it, carries the write out and releases the lease. The owner knows of the stripe
//! only one thing that others do not, the pages in its clean cache: so a stripe with pages there is
//! not leased.
//!
//! Copies (RAID 1 and 10) are leased in blocks of 64 KiB, which are stripes here
//! ([`crate::lease::ranges`]). What their owner knows and others do not is how far members are
//! filled; a write under a lease leaves no such member out.
//!
//! **Invariant.** Of an owner and all others only one works on the stripes of a class at a time:
//! either a class is leased, to one core for one batch of writes, or its owner may work on any
//! number of its stripes. Nothing is leased of which the owner's cache holds a page.
//!
//! Each class of each owner has a word that all cores share. A lease is taken by exchanging zero
//! for [`LEASED`]; a core that does not get it sends the write to the owner as a message, so no
//! core waits here but the owner. The owner counts itself in before it works on a stripe: if the
//! class is leased, a message says when it is back, and the count keeps other cores from taking a
//! lease before the owner has had its turn.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use wattle_rt::atomics::{AtomicU32, Ordering};
use wattle_rt::sync::{OneshotReceiver, OneshotSender};
use wattle_rt::{CoreIx, oneshot};

use crate::hints::cache::KeptClasses;
use crate::model::stripe_hash::{CLASSES, class};
use crate::model::units::StripeNo;
use crate::planted::{self, Bug};

/// The owner's stripes that have work, those that wait for what is leased included: fewer than
/// requests that memory has room for.
const COUNT: u32 = (1 << 28) - 1;
/// The owner's cache holds a page of a stripe.
const KEPT: u32 = 1 << 28;
/// Another core works on a stripe.
const LEASED: u32 = 1 << 29;

/// The words of an array's stripes, all cores together. With one core there are no leases, and no
/// words.
pub(crate) struct LeaseWords {
    cores: usize,
    /// By owner and class.
    words: Box<[AtomicU32]>,
}

impl LeaseWords {
    /// The words of an array on so many cores.
    pub fn new(cores: usize) -> Self {
        let words = if cores > 1 { cores * CLASSES } else { 0 };
        Self { cores, words: (0..words).map(|_| AtomicU32::new(0)).collect() }
    }

    fn word(&self, owner: CoreIx, class: usize) -> Option<&AtomicU32> {
        self.words.get(owner.0 * CLASSES + class)
    }

    /// Leases a stripe from its owner, if no task works on any of its class and nothing of them is
    /// kept.
    pub fn lease(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        let lease = |word: &AtomicU32| word.compare_exchange(0, LEASED, Ordering::Acquire, Ordering::Relaxed);
        self.word(owner, class(stripe)).is_some_and(|word| lease(word).is_ok())
    }

    /// Releases the lease, after every write to a member has ended. Says whether the owner waits
    /// and needs a message.
    pub fn release(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        self.word(owner, class(stripe))
            .is_some_and(|word| word.fetch_sub(LEASED, Ordering::Release) & COUNT > 0)
    }

    /// This core is going to [enter](Self::enter) or [lease](Self::lease) it, after some other
    /// work.
    pub fn is_coming(&self, owner: CoreIx, stripe: StripeNo) {
        if let Some(word) = self.word(owner, class(stripe)) {
            wattle_rt::about_to_change(word);
        }
    }

    /// The owner is about to work on a stripe; `false` if it has to wait for the message that the
    /// lease is released.
    fn enter(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        let Some(word) = self.word(owner, class(stripe)) else { return true };
        match word.load(Ordering::Acquire) {
            before if is_owners(before) => {
                word.store(before + 1, Ordering::Relaxed);
                true
            }
            _ => word.fetch_add(1, Ordering::Acquire) & LEASED == 0,
        }
    }

    /// The owner has ended its work on the stripe, or does not wait for it any more.
    fn leave(&self, owner: CoreIx, stripe: StripeNo) {
        let Some(word) = self.word(owner, class(stripe)) else { return };
        match word.load(Ordering::Relaxed) {
            before if is_owners(before) => word.store(before - 1, Ordering::Release),
            _ => drop(word.fetch_sub(1, Ordering::Release)),
        }
    }

    /// Whether another core works on a stripe of this class. If not, what it wrote is seen.
    fn is_class_leased(&self, owner: CoreIx, class: usize) -> bool {
        self.word(owner, class).is_some_and(|word| word.load(Ordering::Acquire) & LEASED != 0)
    }

    /// Whether only the owner may work on a stripe of the class now.
    pub fn is_with_owner(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        self.word(owner, class(stripe)).is_none_or(|word| is_owners(word.load(Ordering::Relaxed)))
    }

    /// Whether another core has a lease of the class now.
    pub fn is_leased(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        self.word(owner, class(stripe)).is_some_and(|word| word.load(Ordering::Relaxed) & LEASED != 0)
    }

    /// Changes a word that only its owner can change now.
    fn change(&self, owner: CoreIx, class: usize, change: impl Fn(u32) -> u32) {
        if let Some(word) = self.word(owner, class) {
            let before = word.load(Ordering::Relaxed);
            debug_assert!(is_owners(before), "{before:x}");
            word.store(change(before), Ordering::Release);
        }
    }
}

impl KeptClasses for LeaseWords {
    fn cores(&self) -> usize {
        self.cores
    }

    fn keep(&self, owner: CoreIx, class: usize) {
        self.change(owner, class, |word| word | KEPT);
    }

    fn keep_none(&self, owner: CoreIx, class: usize) {
        self.change(owner, class, |word| word & !KEPT);
    }
}

/// What one core owns, and which of it is leased to others.
pub(crate) struct OwnLeases {
    words: Arc<LeaseWords>,
    core: CoreIx,
    /// Tasks that wait for the lease of a class to be released.
    waiting: RefCell<Vec<(usize, OneshotSender<()>)>>,
}

impl OwnLeases {
    pub fn new(words: Arc<LeaseWords>, core: CoreIx) -> Self {
        Self { words, core, waiting: RefCell::default() }
    }

    /// A task of this core is about to work on a stripe; if that is leased, the task has to wait
    /// for what this returns.
    pub fn enter(&self, stripe: StripeNo) -> Option<OneshotReceiver<()>> {
        (!self.words.enter(self.core, stripe)).then(|| {
            let (sender, back) = oneshot();
            self.waiting.borrow_mut().push((class(stripe), sender));
            back
        })
    }

    /// Whether no other core has a lease of the stripe.
    pub fn has(&self, stripe: StripeNo) -> bool {
        self.words.is_with_owner(self.core, stripe)
    }

    /// The task has ended its work on the stripe, or does not wait for it any more.
    pub fn leave(&self, stripe: StripeNo) {
        self.words.leave(self.core, stripe);
    }

    /// The lease of a class is released: the tasks that waited go on.
    ///
    /// The word decides, not the message: it may be about an earlier lease, if the task that waited
    /// for that one gave up and the class was leased again before the message came. Then the core
    /// with the lease sends another one. A class that is not leased stays so as long as a task
    /// waits.
    pub fn returned(&self, class: usize) {
        if self.words.is_class_leased(self.core, class) && !planted::is(Bug::LateReleaseBelieved) {
            return;
        }
        let waiting: Vec<_> =
            self.waiting.borrow_mut().extract_if(.., |(other, _)| *other == class).collect();
        for (_, sender) in waiting {
            let _ = sender.send(());
        }
    }
}

/// Whether only the owner can change a word with this value: what is not zero cannot be leased, and
/// what is not leased cannot be released.
fn is_owners(word: u32) -> bool {
    word != 0 && word & LEASED == 0
}

impl fmt::Debug for LeaseWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseWords({} words)", self.words.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    const OWNER: CoreIx = CoreIx(0);
    const STRIPE: StripeNo = StripeNo(6);

    /// Another stripe of the same class.
    fn neighbour() -> StripeNo {
        (STRIPE.0 + 1..).map(StripeNo).find(|other| class(*other) == class(STRIPE)).expect("there are many")
    }

    #[test]
    fn a_class_is_class_leased_once_and_not_while_its_owner_works() {
        let words = LeaseWords::new(2);
        assert!(words.lease(OWNER, STRIPE) && !words.lease(OWNER, STRIPE));
        assert!(!words.lease(OWNER, neighbour()) && words.lease(CoreIx(1), STRIPE));
        assert!(!words.release(OWNER, STRIPE), "no core waits");
        assert!(words.enter(OWNER, STRIPE) && words.enter(OWNER, neighbour()));
        assert!(!words.lease(OWNER, STRIPE));
        words.leave(OWNER, STRIPE);
        assert!(!words.lease(OWNER, STRIPE), "the core still works on another one of the class");
        words.leave(OWNER, neighbour());
        assert!(words.lease(OWNER, STRIPE));
    }

    #[test]
    fn an_owner_who_waits_is_told_and_nobody_comes_before_him() {
        let words = LeaseWords::new(2);
        assert!(words.lease(OWNER, STRIPE));
        assert!(!words.enter(OWNER, STRIPE) && !words.enter(OWNER, neighbour()));
        assert!(words.release(OWNER, STRIPE), "the core is to be told");
        assert!(!words.lease(OWNER, STRIPE));
        words.leave(OWNER, STRIPE);
        words.leave(OWNER, neighbour());
        assert!(words.lease(OWNER, STRIPE));
    }

    #[test]
    fn a_message_about_an_earlier_loan_wakes_no_task_that_waits_for_a_later_one() {
        let words = Arc::new(LeaseWords::new(3));
        let own = OwnLeases::new(words.clone(), OWNER);
        assert!(words.lease(OWNER, STRIPE));
        let first = own.enter(STRIPE).expect("it is leased");
        assert!(words.release(OWNER, STRIPE), "a message is on its way");
        // The task that waited is cancelled, and a third core borrows before the message comes.
        drop(first);
        own.leave(STRIPE);
        assert!(words.lease(OWNER, STRIPE));
        let second = own.enter(STRIPE).expect("it is leased again");
        own.returned(class(STRIPE));
        assert!(!second.is_ready(), "two cores work on one stripe");
        {
            let _planted = planted::plant(&[Bug::LateReleaseBelieved]);
            let third = own.enter(neighbour()).expect("its class is leased");
            own.returned(class(STRIPE));
            assert!(third.is_ready() && second.is_ready(), "the bug is not found");
            own.leave(neighbour());
            own.leave(STRIPE);
        }
        let second = own.enter(STRIPE).expect("it is still leased");
        assert!(words.release(OWNER, STRIPE));
        own.returned(class(STRIPE));
        assert!(second.is_ready());
        own.leave(STRIPE);
    }

    #[test]
    fn what_is_kept_is_not_lent() {
        let words = LeaseWords::new(2);
        assert!(words.enter(OWNER, STRIPE));
        words.keep(OWNER, class(STRIPE));
        words.leave(OWNER, STRIPE);
        assert!(!words.lease(OWNER, STRIPE));
        words.keep_none(OWNER, class(STRIPE));
        assert!(words.lease(OWNER, STRIPE));
    }

    #[test]
    fn one_core_lends_to_nobody() {
        let words = LeaseWords::new(1);
        assert!(words.enter(OWNER, STRIPE) && !words.lease(OWNER, STRIPE));
        words.leave(OWNER, STRIPE);
    }

    /// Threads that do what cores do: of all of them never two work on stripes of one class, and
    /// the owner always gets its turn.
    #[test]
    fn threads_that_borrow_and_own_never_meet() {
        const ROUNDS: u32 = if cfg!(miri) { 200 } else { 20_000 };
        let words = LeaseWords::new(4);
        let (others, owner_here) = (AtomicU32::new(0), AtomicBool::new(false));
        let (sent, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 1..4 {
                let (words, others, owner_here, sent) = (&words, &others, &owner_here, sent.clone());
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if !words.lease(OWNER, STRIPE) {
                            std::hint::spin_loop();
                            continue;
                        }
                        assert_eq!(others.fetch_add(1, Ordering::Relaxed), 0, "two have leased it");
                        assert!(!owner_here.load(Ordering::Relaxed), "its owner works on it");
                        others.fetch_sub(1, Ordering::Relaxed);
                        if words.release(OWNER, STRIPE) {
                            sent.send(()).expect("the owner hears");
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                if !words.enter(OWNER, STRIPE) {
                    hears.recv().expect("the core that leased it tells");
                }
                owner_here.store(true, Ordering::Relaxed);
                assert_eq!(others.load(Ordering::Relaxed), 0, "it is leased");
                owner_here.store(false, Ordering::Relaxed);
                words.leave(OWNER, STRIPE);
            }
        });
        assert!(hears.try_recv().is_err(), "a core that does not wait is not told");
    }
}
