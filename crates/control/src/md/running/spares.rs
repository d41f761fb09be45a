//! The spares of an array that runs: which wait for a slot, and which did not take one. Members
//! that may come back, and why they did not.

use std::time::Duration;

use wattle_engine::MemberKey;
use wattle_rt::Instant;

use super::{Known, RunningArray};
use crate::events::EventMember;
use crate::md::assemble::ReAddCandidate;
use crate::md::start::ClaimedMember;
use crate::problem::Problem;

/// Why and when a spare did not take a slot.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    why: Problem,
    at: Instant,
    /// It is left alone for so long.
    pause: Duration,
}

/// A member that may come back.
#[derive(Debug, Clone)]
pub(super) struct Returning {
    pub(super) who: ReAddCandidate,
    pub(super) member: ClaimedMember,
    /// It was tried, and this is in its way.
    problem: Option<Problem>,
}

impl From<(ReAddCandidate, ClaimedMember)> for Returning {
    fn from((who, member): (ReAddCandidate, ClaimedMember)) -> Self {
        Self { who, member, problem: None }
    }
}

/// A spare that was refused is tried again after so long, and after a change of the array not
/// sooner: what the attempt itself changed is none.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// The longest pause between two attempts.
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(3600);

impl RunningArray {
    /// Names of the members that may come back, with their slot and what has to be written on them.
    #[must_use]
    pub fn returning(&self) -> Vec<(String, ReAddCandidate)> {
        self.returning.borrow().iter().map(|away| (away.member.name.clone(), away.who)).collect()
    }

    /// The same; of those that were tried and did not come back, why.
    #[must_use]
    pub fn stays_away(&self) -> Vec<(String, ReAddCandidate, Option<Problem>)> {
        let returning = self.returning.borrow();
        returning.iter().map(|away| (away.member.name.clone(), away.who, away.problem.clone())).collect()
    }

    pub(crate) fn take_returning(&self) -> Vec<(ReAddCandidate, ClaimedMember)> {
        let returning = std::mem::take(&mut *self.returning.borrow_mut());
        returning.into_iter().map(|away| (away.who, away.member)).collect()
    }

    pub(crate) fn keep_returning(
        &self,
        who: ReAddCandidate,
        member: ClaimedMember,
        problem: Option<Problem>,
    ) {
        self.returning.borrow_mut().push(Returning { who, member, problem });
    }

    /// Names of the spares; of those that did not take a slot when they should have, why.
    #[must_use]
    pub fn spares(&self) -> Vec<(String, Option<Problem>)> {
        let why = |known: &Known| known.refused.as_ref().map(|refused| refused.why.clone());
        let devices = self.devices.borrow();
        devices.values().filter(|known| known.spare).map(|known| (known.name.clone(), why(known))).collect()
    }

    /// Spares that are to take an empty slot by themselves: not what was refused a moment ago.
    pub(crate) fn usable_spares(&self) -> Vec<MemberKey> {
        let (now, away) = (self.core.now(), self.spares_away.borrow());
        let mut usable = self.spares_by_size(|refused| now >= refused.at + REFUSED_PAUSE);
        usable.retain(|key| !away.contains(key));
        usable
    }

    /// When a spare that was refused is to be tried again though nothing changes. One whose time
    /// came while no slot was empty waits for a change.
    pub(crate) fn refused_until(&self) -> Option<Instant> {
        let (devices, now) = (self.devices.borrow(), self.core.now());
        let refused = devices.values().filter_map(|known| known.refused.as_ref());
        refused.map(|refused| refused.at + refused.pause).filter(|until| *until > now).min()
    }

    /// Smallest first: a large one may be needed for a larger array.
    pub(super) fn spares_by_size(&self, again: impl Fn(&Refused) -> bool) -> Vec<MemberKey> {
        let size = |key: &MemberKey| {
            self.books.as_ref().and_then(|books| books.device(*key)).map_or(0, |device| device.size_bytes())
        };
        let devices = self.devices.borrow();
        let usable =
            devices.iter().filter(|(_, known)| known.spare && known.refused.as_ref().is_none_or(&again));
        let mut spares: Vec<_> = usable.map(|(key, _)| *key).collect();
        spares.sort_by_key(size);
        spares
    }

    /// A spare, as events name it.
    pub(crate) fn spare_member(&self, key: MemberKey) -> EventMember {
        let devices = self.devices.borrow();
        let name = devices.get(&key).map(|known| known.name.clone()).unwrap_or_default();
        EventMember { key: Some(key), name }
    }

    /// A spare that was away is there again: it is tried now, whatever became of it before.
    pub(super) fn take_back(&self, key: MemberKey) {
        if let Some(known) = self.devices.borrow_mut().get_mut(&key) {
            known.refused = None;
        }
        let (count, changed) = &self.spares_back;
        count.set(count.get() + 1);
        changed.notify_all();
    }

    /// How often a spare that was away came back.
    pub(crate) fn spares_that_came_back(&self) -> u64 {
        self.spares_back.0.get()
    }

    /// Until more came back than so many.
    pub(crate) async fn more_spares_back(&self, than: u64) {
        while self.spares_that_came_back() == than {
            self.spares_back.1.wait().await;
        }
    }

    /// A spare did not take a slot; whether that was not so, or for another reason, before.
    pub(crate) fn set_refused(&self, key: MemberKey, why: &Problem) -> bool {
        let mut devices = self.devices.borrow_mut();
        let Some(known) = devices.get_mut(&key) else { return true };
        let before = known.refused.as_ref();
        let pause = before.map_or(REFUSED_PAUSE, |before| (before.pause * 2).min(REFUSED_PAUSE_MAX));
        let is_news = before.is_none_or(|before| before.why != *why);
        known.refused = Some(Refused { why: why.clone(), at: self.core.now(), pause });
        is_news
    }
}
