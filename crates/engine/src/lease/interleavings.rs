//! Every interleaving of an owner and the cores that lease from it: `scripts/checkers loom`.
//!
//! The invariant is that of [`super::words`]: one core at a time works on a class, nothing is
//! leased of which the owner keeps a page, and an owner that waits has its turn. What a core does
//! to the class is a count that is read and written apart: if two cores work at once, or one does
//! not see what the one before it did, a count is lost.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::mpsc;
use loom::thread;
use wattle_rt::CoreIx;

use super::words::{LeaseWords, OwnLeases};
use crate::hints::cache::KeptClasses;
use crate::model::stripe_hash::class;
use crate::model::units::StripeNo;

const OWNER: CoreIx = CoreIx(0);
const STRIPE: StripeNo = StripeNo(6);

/// What is on the members. No order comes from here: the words alone have to bring it.
struct Class {
    words: Arc<LeaseWords>,
    works: AtomicU32,
}

impl Class {
    fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self { words: Arc::new(LeaseWords::new(cores)), works: AtomicU32::new(0) })
    }

    /// Works on the stripe.
    fn work(&self) {
        self.works.store(self.works() + 1, Ordering::Relaxed);
    }

    fn works(&self) -> u32 {
        self.works.load(Ordering::Relaxed)
    }

    /// What a core does that has a write for the owner's stripe: 1 if it could do it itself.
    fn borrow(&self, released: &mpsc::Sender<()>) -> u32 {
        if !self.words.lease(OWNER, STRIPE) {
            return 0;
        }
        self.work();
        if self.words.release(OWNER, STRIPE) {
            released.send(()).expect("the owner hears");
        }
        1
    }
}

/// What the owner does for a write. The message orders nothing beyond the words: the last one is
/// often of an earlier lease.
fn own(shared: &Class, own: &OwnLeases, released: &mpsc::Receiver<()>) {
    if let Some(back) = own.enter(STRIPE) {
        while !back.is_ready() {
            released.recv().expect("a core that has a lease tells");
            own.returned(class(STRIPE));
        }
    }
    shared.work();
    own.leave(STRIPE);
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// Two writes on each of two cores. Fails with `Relaxed` in `lease`, `release`, `leave` (the store)
/// or `enter` (`fetch_add`), if `enter` does not count the owner while it waits, if it does not
/// look at [`LEASED`](super::words), if `lease` does not ask for zero, and if `release` says that
/// the owner does not wait.
#[test]
fn an_owner_and_another_core_work_in_turn() {
    loom::model(|| {
        let shared = Class::new(2);
        let (tells, hears) = mpsc::channel();
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.borrow(&tells) + shared.borrow(&tells)
        });
        let leases = OwnLeases::new(shared.words.clone(), OWNER);
        own(&shared, &leases, &hears);
        own(&shared, &leases, &hears);
        let borrowed = other.join().expect("it ends well");
        assert_eq!(shared.works(), 2 + borrowed, "two cores worked at once");
    });
}

/// Two cores lease from a third one.
#[test]
fn two_other_cores_and_an_owner_work_in_turn() {
    bounded(3).check(|| {
        let shared = Class::new(3);
        let (tells, hears) = mpsc::channel();
        let others = [tells.clone(), tells].map(|tells| {
            let shared = shared.clone();
            thread::spawn(move || shared.borrow(&tells))
        });
        own(&shared, &OwnLeases::new(shared.words.clone(), OWNER), &hears);
        let borrowed: u32 = others.map(|other| other.join().expect("it ends well")).iter().sum();
        assert_eq!(shared.works(), 1 + borrowed, "two cores worked at once");
    });
}

/// A second task of the owner comes while the first one waits for a lease: if it finds the lease
/// released, it works before any message comes. Fails with `Relaxed` in the load of `enter`.
#[test]
fn a_task_that_finds_a_lease_released_sees_what_it_was_for() {
    loom::model(|| {
        let shared = Class::new(2);
        let (tells, hears) = mpsc::channel();
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.borrow(&tells)
        });
        let leases = OwnLeases::new(shared.words.clone(), OWNER);
        let first = leases.enter(STRIPE);
        let second = leases.enter(STRIPE);
        if second.is_none() {
            shared.work();
            leases.leave(STRIPE);
        }
        if let Some(back) = first {
            hears.recv().expect("a core that has a lease tells");
            leases.returned(class(STRIPE));
            assert!(back.is_ready(), "the owner waits for ever");
        }
        if second.is_some() {
            shared.work();
            leases.leave(STRIPE);
        }
        shared.work();
        leases.leave(STRIPE);
        let borrowed = other.join().expect("it ends well");
        assert_eq!(shared.works(), 2 + borrowed, "two cores worked at once");
    });
}

/// A message about an earlier lease wakes the owner only if the word says that the class is back,
/// and then the owner sees what the later lease was for. Fails with `Relaxed` in `is_class_leased`,
/// and if `returned` does not ask it.
#[test]
fn a_message_about_an_earlier_lease_is_no_word() {
    bounded(3).check(|| {
        let shared = Class::new(3);
        assert!(shared.words.lease(OWNER, STRIPE));
        let leases = OwnLeases::new(shared.words.clone(), OWNER);
        let gives_up = leases.enter(STRIPE);
        assert!(shared.words.release(OWNER, STRIPE), "a message is on its way");
        drop(gives_up);
        leases.leave(STRIPE);
        let (tells, hears) = mpsc::channel();
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.borrow(&tells)
        });
        let back = leases.enter(STRIPE);
        // The message about the first lease.
        leases.returned(class(STRIPE));
        if let Some(back) = back {
            if !back.is_ready() {
                hears.recv().expect("a core that has a lease tells");
                leases.returned(class(STRIPE));
            }
            assert!(back.is_ready(), "the owner waits for ever");
        }
        shared.work();
        leases.leave(STRIPE);
        let borrowed = other.join().expect("it ends well");
        assert_eq!(shared.works(), 1 + borrowed, "two cores worked at once");
    });
}

/// What the owner keeps stays as it is. Fails if `keep` sets no bit, or if `leave` clears it.
#[test]
fn what_is_kept_is_not_leased() {
    loom::model(|| {
        let shared = Class::new(2);
        let (tells, hears) = mpsc::channel();
        let other = thread::spawn({
            let shared = shared.clone();
            move || shared.borrow(&tells) + shared.borrow(&tells)
        });
        let leases = OwnLeases::new(shared.words.clone(), OWNER);
        if let Some(back) = leases.enter(STRIPE) {
            hears.recv().expect("a core that has a lease tells");
            leases.returned(class(STRIPE));
            assert!(back.is_ready(), "the owner waits for ever");
        }
        shared.work();
        let page = shared.works();
        shared.words.keep(OWNER, class(STRIPE));
        leases.leave(STRIPE);
        thread::yield_now();
        assert_eq!(shared.works(), page, "what is kept has changed");
        shared.words.keep_none(OWNER, class(STRIPE));
        let borrowed = other.join().expect("it ends well");
        assert_eq!(shared.works(), 1 + borrowed, "two cores worked at once");
    });
}
