//! The connections of a server, as the core that accepts them knows them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use wattle_rt::mailbox::{Receiver, Sender, mailbox};
use wattle_rt::sync::Notify;
use wattle_rt::{Core, CoreIx};

/// Tells a connection to finish what it has begun and close.
pub(crate) struct Stop;

/// All connections of a server now, spread over the cores.
pub(crate) struct Connections {
    stops: RefCell<BTreeMap<u64, Sender<Stop>>>,
    next_id: Cell<u64>,
    per_core: RefCell<Vec<u32>>,
    one_left: Notify,
}

/// A connection that begins.
pub(crate) struct Begun {
    /// Its number, which no other one has.
    pub(crate) id: u64,
    /// The core with the fewest, where it lives, whole.
    pub(crate) core: CoreIx,
    /// How it is told to end.
    pub(crate) stop: Receiver<Stop>,
}

impl Connections {
    /// None yet.
    pub(crate) fn new(core: &Core) -> Self {
        Self {
            stops: RefCell::default(),
            next_id: Cell::new(0),
            per_core: RefCell::new(vec![0; core.cores()]),
            one_left: Notify::new(),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.stops.borrow().len()
    }

    /// Counts one more, until [`Self::end`].
    pub(crate) fn begin(&self) -> Begun {
        let (sender, stop) = mailbox();
        let id = self.next_id.replace(self.next_id.get() + 1);
        self.stops.borrow_mut().insert(id, sender);
        let mut per_core = self.per_core.borrow_mut();
        let ix = (0..per_core.len()).min_by_key(|ix| per_core[*ix]).expect("there is a core");
        per_core[ix] += 1;
        Begun { id, core: CoreIx(ix), stop }
    }

    /// One has ended.
    pub(crate) fn end(&self, id: u64, core: CoreIx) {
        self.stops.borrow_mut().remove(&id);
        self.per_core.borrow_mut()[core.0] -= 1;
        self.one_left.notify_all();
    }

    /// Waits until the next one ends.
    pub(crate) async fn one_ends(&self) {
        self.one_left.wait().await;
    }

    /// Tells one to end.
    pub(crate) fn tell(&self, id: u64) {
        if let Some(stop) = self.stops.borrow().get(&id) {
            // An error says that it has ended by itself.
            let _ = stop.send(Stop);
        }
    }

    /// Tells all to end, and waits until they have.
    pub(crate) async fn stop(&self) {
        for stop in self.stops.borrow().values() {
            // An error says that the connection has ended by itself.
            let _ = stop.send(Stop);
        }
        while self.count() > 0 {
            self.one_ends().await;
        }
    }
}
