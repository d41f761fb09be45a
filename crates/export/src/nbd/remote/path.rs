//! One way to a drive, and what was seen of the server there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use wattle_rt::{Core, Instant, PathState, PeerProcess, Stream};

use crate::nbd::client::{Client, ClientError, Dialling};
use crate::nbd::uri::Uri;

/// A machine that is there refuses at once.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// Between two looks at an attempt to connect that nothing waits for any more.
const LOOK_AT_DIALLING: Duration = Duration::from_millis(20);

/// One way to the drive.
pub(super) struct Path {
    pub(super) uri: Uri,
    pub(super) state: Cell<PathState>,
    pub(super) failures: Cell<u64>,
    /// What listens there was seen to have connections to others, and may hand on what it is sent.
    pub(super) hands_on: Cell<bool>,
    /// Since when it answers, while it is not needed.
    pub(super) ready_since: Cell<Option<Instant>>,
    /// A connection for reads in turn, beside the one in use.
    pub(super) reader: RefCell<Option<Rc<Client>>>,
    /// The last reader was closed from here, and its server lived then: it may have ceased to
    /// listen before.
    closed_alive: Cell<bool>,
    /// Where servers answered by it, over TCP. A host may have several addresses, and a name may be
    /// that of another host by now.
    addresses: RefCell<BTreeSet<SocketAddr>>,
    /// A thread connects by it.
    dialling: Arc<AtomicBool>,
    /// Processes that answered there and were not over when they were last looked at.
    processes: RefCell<Vec<Arc<PeerProcess>>>,
}

impl Path {
    pub(super) fn new(uri: Uri) -> Self {
        Self {
            uri,
            state: Cell::new(PathState::Ready),
            failures: Cell::new(0),
            hands_on: Cell::new(false),
            ready_since: Cell::new(None),
            reader: RefCell::new(None),
            closed_alive: Cell::new(false),
            addresses: RefCell::default(),
            dialling: Arc::default(),
            processes: RefCell::default(),
        }
    }

    /// The same way, for the drive that takes the place of one that has ended: what was seen of
    /// the server there counts on.
    pub(super) fn again(&self) -> Self {
        let path = Self { dialling: self.dialling.clone(), ..Self::new(self.uri.clone()) };
        path.failures.set(self.failures.get());
        path.hands_on.set(self.hands_on.get());
        path.closed_alive.set(self.closed_alive.get());
        *path.addresses.borrow_mut() = self.addresses.borrow().clone();
        *path.processes.borrow_mut() = self.processes.borrow().clone();
        path
    }

    /// Connects, once the attempt before is over: one that is given up goes on in its thread, in
    /// the system, until that gives up too. Where packets vanish there is one thread so, and not
    /// one for each attempt.
    pub(super) async fn dial(&self, core: &Core, may_take: Duration) -> Result<Client, ClientError> {
        let dialling = loop {
            match Dialling::begin(&self.dialling) {
                Some(dialling) => break dialling,
                None => core.sleep(LOOK_AT_DIALLING).await,
            }
        };
        Client::dial(core, &self.uri, may_take, Some(dialling)).await
    }

    pub(super) fn fail(&self) {
        self.state.set(PathState::Failed);
        self.failures.update(|failures| failures + 1);
    }

    /// Closes the reader: a server that takes one client at a time takes the next one then. Reads
    /// in flight over it go on by the path in use.
    pub(super) fn end_reader(&self) {
        if let Some(reader) = self.reader.take() {
            self.closed_alive.set(!reader.has_ended());
            reader.close();
        }
    }

    /// Takes note of what a connection by it shows of the server.
    pub(super) fn note_server(&self, client: &Client) {
        self.hands_on.update(|before| before || client.peer_hands_on());
        self.closed_alive.set(false);
        self.addresses.borrow_mut().extend(client.address());
        let mut processes = self.processes.borrow_mut();
        processes.retain(|known| !known.is_over());
        let is_known = |peer: &Arc<PeerProcess>| processes.iter().any(|known| known.id() == peer.id());
        if let Some(new) = client.peer().filter(|peer| !is_known(peer) && !peer.is_over()) {
            processes.push(new.clone());
        }
    }

    /// Whether nothing listens wherever servers answered by it: that it is refused where the name
    /// leads now says nothing of them.
    pub(super) async fn is_refused(&self, core: &Core) -> bool {
        let addresses = self.addresses.borrow().clone();
        let refused =
            move || addresses.into_iter().all(|address| Stream::is_refused_at(address, REFUSED_WITHIN));
        core.offload(refused).await.unwrap_or(false)
    }

    /// Whether what answered there may live though nothing listens: it is a process that is known
    /// to live, or it had a connection for reads until now.
    pub(super) fn may_live(&self) -> bool {
        let mut processes = self.processes.borrow_mut();
        processes.retain(|known| !known.is_over());
        let reads = self.reader.borrow().as_ref().is_some_and(|reader| !reader.has_ended());
        reads || self.closed_alive.get() || !processes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use wattle_rt::RuntimeConfig;

    use super::*;

    /// Another address of the host, or the host that has the name now, says nothing of the server
    /// that was sent something.
    #[test]
    fn a_server_is_absent_only_where_it_was() {
        let (there, gone) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let [there_at, gone_at] = [&there, &gone].map(|listener| listener.local_addr().unwrap());
        drop(gone);
        let refused = |addresses: &[SocketAddr]| {
            let path = Path::new("nbd://nas/disk0".parse().unwrap());
            path.addresses.borrow_mut().extend(addresses);
            let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
            wattle_rt::run(config, async move |core: Core| path.again().is_refused(&core).await).unwrap()
        };
        assert!(refused(&[]), "what is no host's address is told by the attempt itself");
        assert!(refused(&[gone_at]));
        assert!(!refused(&[gone_at, there_at]));
    }

    #[test]
    fn one_attempt_at_a_time_connects_by_a_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("nbd://{}/disk0", listener.local_addr().unwrap());
        let path = Path::new(uri.parse().unwrap());
        let config = RuntimeConfig { cores: 1, ..RuntimeConfig::default() };
        let test = async move |core: Core| {
            let moment = Duration::from_millis(100);
            let first = Dialling::begin(&path.dialling).unwrap();
            let again = path.again();
            let waited = wattle_rt::race(again.dial(&core, moment), core.sleep(moment)).await;
            assert!(matches!(waited, wattle_rt::Either::Second(())));
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "it has not connected");
            drop(first);
            // What it connects to says nothing; the thread is over once it is connected.
            let connected = wattle_rt::race(again.dial(&core, moment), core.sleep(moment)).await;
            assert!(matches!(connected, wattle_rt::Either::Second(())));
            assert!(listener.accept().is_ok() && Dialling::begin(&path.dialling).is_some());
        };
        wattle_rt::run(config, test).unwrap();
    }

    #[test]
    fn what_was_seen_of_a_server_counts_for_the_next_drive() {
        let path = Path::new("nbd://nas/disk0".parse().unwrap());
        path.fail();
        path.hands_on.set(true);
        let again = path.again();
        assert_eq!((again.hands_on.get(), again.failures.get()), (true, 1));
        assert_eq!(again.state.get(), PathState::Ready);
    }
}
