//! How much memory each connection may hold: an [`Account`] per connection, a [`Memory`] per core.
//!
//! Invariants: an account holds at most its limit; what it holds beyond its reserve is borrowed
//! from the core's shared memory, first come, first served; one that has borrowed already borrows
//! no more than is left for others; nothing is held for a request before its account has taken it.
//! So a client can make its own connection wait, and no other: the reserve is never lent, there is
//! always something left for one that comes, however long limits hold the requests of others back,
//! and shared memory that a client leaves lying in its socket is taken back by closing that
//! connection as soon as another one has waited long enough for it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::sync::{Notify, Semaphore};
use wattle_rt::{Core, Instant, Stream};

use super::limits::Limits;
use wattle_rt::{Either, race};

/// The memory that the connections of one core share.
pub(crate) struct Memory {
    shared_bytes: Semaphore,
    /// Some of it came back.
    paid_back: Notify,
    stall_time_max: Duration,
    /// By the numbers that the server gives its connections.
    accounts: RefCell<BTreeMap<u64, Rc<Account>>>,
}

/// A connection that could make way for another one: what orders them is how little is lost with
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Idle {
    /// Something is under way, and its client does not do its part.
    pub(crate) has_requests: bool,
    /// It has asked for something before.
    pub(crate) has_asked: bool,
    /// When its last request was answered, or when it came; or when its client last did something.
    pub(crate) since: Instant,
    /// Its number.
    pub(crate) id: u64,
}

impl Memory {
    pub(crate) fn new(limits: &Limits, cores: usize) -> Self {
        Self {
            shared_bytes: Semaphore::new(limits.shared_bytes_per_core(cores) as usize),
            paid_back: Notify::new(),
            stall_time_max: limits.stall_time_max,
            accounts: RefCell::default(),
        }
    }

    /// Opens an account for the connection `id` over `stream`; it is closed when the result is
    /// dropped.
    pub(crate) fn open(
        self: &Rc<Self>,
        core: &Core,
        limits: &Limits,
        stream: Stream,
        id: u64,
    ) -> OpenAccount {
        let account = Rc::new(Account {
            memory: self.clone(),
            core: core.clone(),
            stream,
            has_asked: Cell::new(false),
            idle_since: Cell::new(core.now()),
            bytes_max: limits.connection_bytes(),
            reserve_bytes: limits.reserve_bytes,
            requests_max: limits.requests_max.max(1),
            held_bytes: Cell::new(0),
            borrowed_bytes: Cell::new(0),
            requests: Cell::new(0),
            released: Notify::new(),
            waits: [const { Cell::new(None) }; 2],
        });
        self.accounts.borrow_mut().insert(id, account.clone());
        OpenAccount { id, account }
    }

    /// The connection with nothing under way that is lost with the least harm; or, if there is
    /// none, one whose client has done nothing of its part of a request for too long.
    pub(crate) fn idlest(&self) -> Option<Idle> {
        let accounts = self.accounts.borrow();
        let idle = |(id, account): (&u64, &Rc<Account>)| {
            let (has_asked, since) = (account.has_asked.get(), account.idle_since()?);
            Some(Idle { has_requests: account.requests.get() > 0, has_asked, since, id: *id })
        };
        accounts.iter().filter_map(idle).min()
    }

    /// Closes a connection, if it is still as idle as it was.
    pub(crate) fn close(&self, idle: Idle) {
        if let Some(account) = self.accounts.borrow().get(&idle.id)
            && account.idle_since() == Some(idle.since)
        {
            account.stream.shutdown();
        }
    }

    /// Closes the connection that keeps shared memory waiting on its client for longest, if that is
    /// too long.
    fn evict(&self, now: Instant) {
        let accounts = self.accounts.borrow();
        let stalled = accounts.values().filter(|account| account.borrowed_bytes.get() > 0);
        let oldest = stalled
            .filter_map(|account| Some((account.waiting_since()?, account)))
            .min_by_key(|(since, _)| *since);
        if let Some((since, account)) = oldest
            && now >= since + self.stall_time_max
        {
            account.stream.shutdown();
        }
    }
}

/// Registers an account with its core's memory for as long as the connection lives.
pub(crate) struct OpenAccount {
    id: u64,
    pub(crate) account: Rc<Account>,
}

impl Drop for OpenAccount {
    fn drop(&mut self) {
        self.account.memory.accounts.borrow_mut().remove(&self.id);
    }
}

/// What a connection may wait for on its client's side.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientWait {
    /// The rest of a payload.
    Payload,
    /// Room for replies in the socket.
    Replies,
}

/// What one connection holds for requests that were read and not yet answered.
pub(crate) struct Account {
    memory: Rc<Memory>,
    core: Core,
    stream: Stream,
    has_asked: Cell<bool>,
    /// When the last request ended, or the connection began.
    idle_since: Cell<Instant>,
    bytes_max: u64,
    reserve_bytes: u64,
    requests_max: u32,
    held_bytes: Cell<u64>,
    borrowed_bytes: Cell<u64>,
    requests: Cell<u32>,
    released: Notify,
    waits: [Cell<Option<Instant>>; 2],
}

impl Account {
    /// Takes the memory for one request of `bytes` (at most the longest request), waiting for
    /// earlier ones to be answered and for other connections. Only the task that reads the
    /// connection takes.
    ///
    /// # Cancellation
    /// Dropping the future takes nothing.
    pub(crate) async fn take(self: &Rc<Self>, core: &Core, bytes: u64) -> Hold {
        self.has_asked.set(true);
        while self.requests.get() >= self.requests_max || self.held_bytes.get() + bytes > self.bytes_max {
            self.released.wait().await;
        }
        let borrow =
            (self.held_bytes.get() + bytes).saturating_sub(self.reserve_bytes + self.borrowed_bytes.get());
        if borrow > 0 {
            self.borrow(core, borrow as usize).await;
            self.borrowed_bytes.set(self.borrowed_bytes.get() + borrow);
        }
        self.held_bytes.set(self.held_bytes.get() + bytes);
        self.requests.set(self.requests.get() + 1);
        // Requests answered while we waited may have made some of it superfluous.
        self.pay_back();
        Hold { account: self.clone(), bytes }
    }

    async fn borrow(&self, core: &Core, bytes: usize) {
        let leaves_less = || {
            let borrowed = self.borrowed_bytes.get() as usize;
            borrowed > 0 && borrowed + 2 * bytes > self.memory.shared_bytes.available()
        };
        while leaves_less() {
            self.memory.paid_back.wait().await;
        }
        let mut acquire = pin!(self.memory.shared_bytes.acquire(bytes));
        loop {
            match race(acquire.as_mut(), core.sleep(self.memory.stall_time_max)).await {
                Either::First(permit) => return permit.forget(),
                Either::Second(()) => self.memory.evict(core.now()),
            }
        }
    }

    fn pay_back(&self) {
        let needed = self.held_bytes.get().saturating_sub(self.reserve_bytes);
        let surplus = self.borrowed_bytes.get().saturating_sub(needed);
        if surplus > 0 {
            self.borrowed_bytes.set(self.borrowed_bytes.get() - surplus);
            self.memory.shared_bytes.add(surplus as usize);
            self.memory.paid_back.notify_all();
        }
    }

    /// Requests that hold something.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// From here until [`Account::wait_ends`] the wait is for the client.
    pub(crate) fn wait_begins(&self, wait: ClientWait, now: Instant) {
        self.waits[wait as usize].set(Some(now));
    }

    /// The client did a part of its part: it is not idle as long as it goes on.
    pub(crate) fn wait_goes_on(&self, wait: ClientWait, now: Instant) {
        let since = &self.waits[wait as usize];
        since.set(since.get().map(|_| now));
    }

    /// The client did its part.
    pub(crate) fn wait_ends(&self, wait: ClientWait) {
        self.waits[wait as usize].set(None);
    }

    /// Since when nothing is under way, or nothing goes on, if that is so.
    fn idle_since(&self) -> Option<Instant> {
        if self.requests.get() == 0 {
            return Some(self.idle_since.get());
        }
        let long_ago = |since: &Instant| *since + self.memory.stall_time_max <= self.core.now();
        self.waiting_since().filter(long_ago)
    }

    /// Since when the client has done nothing that it is waited for.
    fn waiting_since(&self) -> Option<Instant> {
        let [payload, replies] =
            [ClientWait::Payload, ClientWait::Replies].map(|wait| self.waits[wait as usize].get());
        let replies = replies.map(|since| since.max(self.stream.sent_a_part_at()));
        payload.into_iter().chain(replies).min()
    }
}

/// What one request holds; given back on drop, at whatever point the request ends.
pub(crate) struct Hold {
    account: Rc<Account>,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let account = &self.account;
        account.requests.set(account.requests.get() - 1);
        if account.requests.get() == 0 {
            account.idle_since.set(account.core.turn_time());
        }
        account.held_bytes.set(account.held_bytes.get() - self.bytes);
        account.pay_back();
        account.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use wattle_rt::{Buf, BufMut, SimWorld, WorldConfig};

    use super::*;
    use crate::clients::channel::Channel;
    use crate::clients::input::Input;

    /// The accepting core looks for an idle connection, and the core that has it closes it later.
    #[test]
    fn a_connection_that_was_used_since_it_was_found_idle_is_not_closed() {
        const MOMENT: Duration = Duration::from_millis(1);
        let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
        let (endpoint, listener) = world.endpoint(4096);
        let test = async move |core: Core| {
            let limits = Limits::default();
            let memory = Rc::new(Memory::new(&limits, 1));
            let client = endpoint.connect().unwrap();
            let server = core.accept(&listener).await.unwrap();
            let opened = memory.open(&core, &limits, server, 7);
            let is_closed = async || {
                let received = core.recv(&client, BufMut::alloc(1));
                matches!(race(received, core.sleep(MOMENT)).await, Either::First((Ok(0), _)))
            };
            let found = memory.idlest().unwrap();
            core.sleep(MOMENT).await;
            let request = opened.account.take(&core, 512).await;
            memory.close(found);
            assert!(!is_closed().await, "a request is under way");
            drop(request);
            memory.close(found);
            assert!(!is_closed().await, "a request has just been answered");
            memory.close(memory.idlest().unwrap());
            assert!(is_closed().await);
        };
        world.run(test).expect_done();
    }

    /// A client on a slow line does its part all the time, however long that takes.
    #[test]
    fn a_client_is_idle_only_once_it_does_nothing() {
        const SECOND: Duration = Duration::from_secs(1);
        for wait in [ClientWait::Replies, ClientWait::Payload] {
            let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
            let (endpoint, listener) = world.endpoint(4096);
            let test = async move |core: Core| {
                let limits = Limits::default();
                let memory = Rc::new(Memory::new(&limits, 1));
                let client = endpoint.connect().unwrap();
                let server = core.accept(&listener).await.unwrap();
                let opened = memory.open(&core, &limits, server.clone(), 7);
                let account = opened.account.clone();
                // Some of it is borrowed.
                let _hold = account.take(&core, 4 << 20).await;
                account.wait_begins(wait, core.now());
                let task = core.clone();
                let waiting = core.spawn(async move {
                    match wait {
                        ClientWait::Replies => {
                            task.send(&server, vec![Buf::copy_of(&vec![0; 1 << 20])]).await.is_ok()
                        }
                        ClientWait::Payload => {
                            let channel = Channel::Plain(server);
                            Input::of_client(task, channel, account).payload(1 << 20).await.is_ok()
                        }
                    }
                });
                for _ in 0..30 {
                    core.sleep(SECOND).await;
                    match wait {
                        ClientWait::Replies => drop(core.recv(&client, BufMut::alloc(1000)).await.0.unwrap()),
                        ClientWait::Payload => {
                            core.send(&client, vec![Buf::copy_of(&[0; 1000])]).await.unwrap();
                        }
                    }
                    assert_eq!(memory.idlest(), None, "{wait:?}");
                    memory.evict(core.now());
                }
                core.sleep(limits.stall_time_max + SECOND).await;
                assert!(memory.idlest().is_some_and(|idle| idle.has_requests), "{wait:?}");
                memory.evict(core.now());
                assert!(!waiting.await, "it is closed");
            };
            world.run(test).expect_done();
        }
    }
}
