//! Stripes, and ranges of copies, that their core lends for a small write.
//!
//! Every stripe has an owner core. A small write that comes in on another core could go there as a message, and its answer could come
//! back as one; but that costs more than a fourth of the write, and half of all writes on two cores are such. So the other core
//! borrows the stripe, if nobody works on it, writes by itself and gives it back. What the owner knows of the stripe
//! and others do not is only what its clean cache has, so what that keeps is not lent.
//!
//! Copies (RAID 1 and 10) are lent in blocks of 64 KiB, which are stripes here ([`crate::range_lock`]). What their owner knows and others do
//! not is how far members are being filled; whoever has borrowed some leaves no such member out.
//!
//! **Invariant.** Of an owner and all others only one works on the stripes of a class at a time: either a class is lent, to one
//! core for one batch of writes, or its owner may work on any number of its stripes. Nothing is lent of which the owner's cache
//! holds a page.
//!
//! Each class of each owner has a word that all cores share. A class is borrowed by exchanging zero for [`LENT`]; whoever fails sends
//! a message to the owner, so nobody ever waits here but the owner. He counts himself in before he works on a stripe: if it was
//! lent by then, he is told when it is back, and the count keeps others from borrowing it again before he has had his turn.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wattle_rt::sync::{OneshotReceiver, OneshotSender};
use wattle_rt::{CoreIx, oneshot};

use crate::spread::spread;
use crate::units::StripeNo;

/// Classes of stripes that each core owns: so many that writes on a few hundred stripes hardly ever meet in one.
pub(crate) const CLASSES: usize = 32768;

/// The owner's stripes that have work, those that wait for what is lent included: fewer than requests that memory has room for.
const COUNT: u32 = (1 << 28) - 1;
/// The owner's cache holds a page of a stripe.
const KEPT: u32 = 1 << 28;
/// Another core works on a stripe.
const LENT: u32 = 1 << 29;

/// The words of an array's stripes, all cores together. With one core there is nobody to lend to, and none.
pub(crate) struct Loans {
    cores: usize,
    /// By owner and class.
    words: Box<[AtomicU32]>,
}

/// The class of a stripe among those of its owner.
pub(crate) fn class(stripe: StripeNo) -> usize {
    (spread(stripe) >> (64 - CLASSES.ilog2())) as usize
}

impl Loans {
    /// Of an array on so many cores.
    pub fn new(cores: usize) -> Self {
        let words = if cores > 1 { cores * CLASSES } else { 0 };
        Self { cores, words: (0..words).map(|_| AtomicU32::new(0)).collect() }
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores
    }

    fn word(&self, owner: CoreIx, class: usize) -> Option<&AtomicU32> {
        self.words.get(owner.0 * CLASSES + class)
    }

    /// Borrows a stripe from its owner, if nobody works on any of its class and nothing of them is kept.
    pub fn borrow(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        let lend = |word: &AtomicU32| word.compare_exchange(0, LENT, Ordering::Acquire, Ordering::Relaxed);
        self.word(owner, class(stripe)).is_some_and(|word| lend(word).is_ok())
    }

    /// Gives it back, after every write to a member has ended. Says whether the owner waits and has to be told.
    pub fn give_back(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        self.word(owner, class(stripe))
            .is_some_and(|word| word.fetch_sub(LENT, Ordering::Release) & COUNT > 0)
    }

    /// Somebody of this core is going to [enter](Self::enter) or [borrow](Self::borrow) it, after some other work.
    pub fn is_coming(&self, owner: CoreIx, stripe: StripeNo) {
        if let Some(word) = self.word(owner, class(stripe)) {
            wattle_rt::about_to_change(word);
        }
    }

    /// The owner is about to work on a stripe; `false` if he has to wait until he is told that it is back.
    fn enter(&self, owner: CoreIx, stripe: StripeNo) -> bool {
        let Some(word) = self.word(owner, class(stripe)) else { return true };
        match word.load(Ordering::Acquire) {
            before if is_owners(before) => {
                word.store(before + 1, Ordering::Relaxed);
                true
            }
            _ => word.fetch_add(1, Ordering::Acquire) & LENT == 0,
        }
    }

    /// The owner has ended his work on it, or does not wait for it any more.
    fn leave(&self, owner: CoreIx, stripe: StripeNo) {
        let Some(word) = self.word(owner, class(stripe)) else { return };
        match word.load(Ordering::Relaxed) {
            before if is_owners(before) => word.store(before - 1, Ordering::Release),
            _ => drop(word.fetch_sub(1, Ordering::Release)),
        }
    }

    /// The owner's cache holds something of a class from now on. Only while he works on a stripe of it.
    pub fn keep(&self, owner: CoreIx, class: usize) {
        self.change(owner, class, |word| word | KEPT);
    }

    /// It holds nothing of the class any more.
    pub fn keep_none(&self, owner: CoreIx, class: usize) {
        self.change(owner, class, |word| word & !KEPT);
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

/// What one core lends.
pub(crate) struct Lender {
    loans: Arc<Loans>,
    core: CoreIx,
    /// Those who wait for a class to come back.
    waiting: RefCell<Vec<(usize, OneshotSender<()>)>>,
}

impl Lender {
    pub fn new(loans: Arc<Loans>, core: CoreIx) -> Self {
        Self { loans, core, waiting: RefCell::default() }
    }

    /// Somebody is about to work on a stripe of this core; if it is lent, he has to wait until this comes.
    pub fn enter(&self, stripe: StripeNo) -> Option<OneshotReceiver<()>> {
        (!self.loans.enter(self.core, stripe)).then(|| {
            let (sender, back) = oneshot();
            self.waiting.borrow_mut().push((class(stripe), sender));
            back
        })
    }

    /// He has ended his work on it, or does not wait for it any more.
    pub fn leave(&self, stripe: StripeNo) {
        self.loans.leave(self.core, stripe);
    }

    /// What another core had borrowed of a class is back: those who waited go on.
    pub fn returned(&self, class: usize) {
        let waiting: Vec<_> =
            self.waiting.borrow_mut().extract_if(.., |(other, _)| *other == class).collect();
        for (_, sender) in waiting {
            let _ = sender.send(());
        }
    }
}

/// Whether only the owner can change a word that he finds like this: what is not zero is not borrowed, and what is not lent is not
/// given back.
fn is_owners(word: u32) -> bool {
    word != 0 && word & LENT == 0
}

impl fmt::Debug for Loans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loans({} words)", self.words.len())
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
    fn a_class_is_lent_once_and_not_while_its_owner_works() {
        let loans = Loans::new(2);
        assert!(loans.borrow(OWNER, STRIPE) && !loans.borrow(OWNER, STRIPE));
        assert!(!loans.borrow(OWNER, neighbour()) && loans.borrow(CoreIx(1), STRIPE));
        assert!(!loans.give_back(OWNER, STRIPE), "nobody waits");
        assert!(loans.enter(OWNER, STRIPE) && loans.enter(OWNER, neighbour()));
        assert!(!loans.borrow(OWNER, STRIPE));
        loans.leave(OWNER, STRIPE);
        assert!(!loans.borrow(OWNER, STRIPE), "he still works on another one of the class");
        loans.leave(OWNER, neighbour());
        assert!(loans.borrow(OWNER, STRIPE));
    }

    #[test]
    fn an_owner_who_waits_is_told_and_nobody_comes_before_him() {
        let loans = Loans::new(2);
        assert!(loans.borrow(OWNER, STRIPE));
        assert!(!loans.enter(OWNER, STRIPE) && !loans.enter(OWNER, neighbour()));
        assert!(loans.give_back(OWNER, STRIPE), "he is to be told");
        assert!(!loans.borrow(OWNER, STRIPE));
        loans.leave(OWNER, STRIPE);
        loans.leave(OWNER, neighbour());
        assert!(loans.borrow(OWNER, STRIPE));
    }

    #[test]
    fn what_is_kept_is_not_lent() {
        let loans = Loans::new(2);
        assert!(loans.enter(OWNER, STRIPE));
        loans.keep(OWNER, class(STRIPE));
        loans.leave(OWNER, STRIPE);
        assert!(!loans.borrow(OWNER, STRIPE));
        loans.keep_none(OWNER, class(STRIPE));
        assert!(loans.borrow(OWNER, STRIPE));
    }

    #[test]
    fn one_core_lends_to_nobody() {
        let loans = Loans::new(1);
        assert!(loans.enter(OWNER, STRIPE) && !loans.borrow(OWNER, STRIPE));
        loans.leave(OWNER, STRIPE);
    }

    /// Threads that do what cores do: of all of them never two work on stripes of one class, and the owner always gets his turn.
    #[test]
    fn threads_that_borrow_and_own_never_meet() {
        const ROUNDS: u32 = 20_000;
        let loans = Loans::new(4);
        let (others, owner_here) = (AtomicU32::new(0), AtomicBool::new(false));
        let (told, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 1..4 {
                let (loans, others, owner_here, told) = (&loans, &others, &owner_here, told.clone());
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if !loans.borrow(OWNER, STRIPE) {
                            std::hint::spin_loop();
                            continue;
                        }
                        assert_eq!(others.fetch_add(1, Ordering::Relaxed), 0, "two have borrowed it");
                        assert!(!owner_here.load(Ordering::Relaxed), "its owner works on it");
                        others.fetch_sub(1, Ordering::Relaxed);
                        if loans.give_back(OWNER, STRIPE) {
                            told.send(()).expect("the owner hears");
                        }
                    }
                });
            }
            for _ in 0..ROUNDS {
                if !loans.enter(OWNER, STRIPE) {
                    hears.recv().expect("whoever has borrowed it tells");
                }
                owner_here.store(true, Ordering::Relaxed);
                assert_eq!(others.load(Ordering::Relaxed), 0, "it is lent");
                owner_here.store(false, Ordering::Relaxed);
                loans.leave(OWNER, STRIPE);
            }
        });
        assert!(hears.try_recv().is_err(), "whoever does not wait is not told");
    }
}
