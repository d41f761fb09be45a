//! What is done for an array without being asked: spares take empty slots, and members that were
//! away come back.
//!
//! The policy: a member that was away comes back by itself where a bitmap says what it missed.
//! Without one, all of it would be written over, which only the operator may decide. Nor does a
//! member come back that the superblocks record as failed: the bitmap says what was not written to
//! it, and nothing of what made it fail. A member across a network is recorded as failed while it
//! is away, which the superblocks do not tell from another failure: it comes back. What lies on a
//! volume while no member in use does may be a copy that is kept there: it waits for the operator
//! too. A spare is there for that, and takes an empty slot at once; the smallest that fits. One
//! that does not take it is tried again when the array changes and now and then, since an error may
//! have passed; it is told once for each reason.

use std::rc::Rc;

use wattle_rt::{Either, race};

use crate::events::ArrayEvent;
use crate::md::admit::WantedSeat;
use crate::md::running::{RunningArray, Terms};

/// Keeps an array whole as long as it runs.
///
/// # Cancellation
/// Safe: what was begun is finished by the engine, or undone.
pub async fn keep(array: Rc<RunningArray>) {
    bring_back(&array).await;
    let mut version = 0;
    loop {
        let back = array.spares_that_came_back();
        fill(&array).await;
        let changed = array.handle().changed(array.core(), version);
        let again = async {
            let later = async {
                match array.refused_until() {
                    Some(until) => array.core().sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            race(later, array.more_spares_back(back)).await;
        };
        match race(changed, again).await {
            Either::First(Some(now)) => version = now,
            Either::First(None) => return,
            Either::Second(()) => {}
        }
    }
}

/// Brings back members that were away and that a bitmap makes up for. The others wait for the
/// operator.
async fn bring_back(array: &RunningArray) {
    for (who, member) in array.take_returning() {
        let _turn = array.turn().acquire(1).await;
        if !array.empty_slots().await.contains(&who.slot) {
            // Its slot is taken: the array does not need it any more.
            continue;
        }
        if !who.comes_by_itself(member.device.link().is_some()) {
            array.keep_returning(who, member, None);
            continue;
        }
        let name = member.name.clone();
        if let Err(problem) = array.re_add(who, member.clone()).await {
            let away = array.event_member(None, &name);
            array.tell(ArrayEvent::StaysAway { member: away, problem: Box::new(problem.clone()) });
            array.keep_returning(who, member, Some(problem));
        }
    }
}

/// Gives every empty slot a spare, as far as there are any.
async fn fill(array: &RunningArray) {
    for slot in array.empty_slots().await {
        let _turn = array.turn().acquire(1).await;
        for spare in array.usable_spares() {
            // The slot may have been filled meanwhile.
            if !array.empty_slots().await.contains(&slot) {
                break;
            }
            match array.use_spare(spare, WantedSeat::Slot(slot), Terms::default()).await {
                Ok(_) => break,
                Err(problem) => {
                    if array.set_refused(spare, &problem) {
                        let member = array.spare_member(spare);
                        array.tell(ArrayEvent::SpareRefused { member, problem: Box::new(problem) });
                    }
                }
            }
        }
    }
}
