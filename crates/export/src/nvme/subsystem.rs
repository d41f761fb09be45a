//! What all addresses of a server share: the name, the NSIDs, the controllers.
//!
//! Invariants:
//! 1. An NSID belongs to one volume for as long as the subsystem lives, and is the same after a
//!    restart, whatever else is served then: it comes from the volume's identity. A host that
//!    connects again never finds another volume under an NSID that it uses.
//! 2. A controller lives as long as the connection of its admin queue; with it end the connections
//!    of its other queues.
//!
//! The lock is taken when connections come and go and when the namespaces change, never for a read
//! or a write.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use wattle_engine::volume::qos::QosClient;
use wattle_rt::{Core, Sender};

use super::auth::{Exponentiations, NvmeSecrets};
use super::command::NvmeStatus;
use super::limits::{CONTROLLERS_MAX, IO_QUEUES_MAX, NSID_MAX};
use super::reservation::{ReservationGate, ReservationNotice, ReservationStore};

/// The name under which every target tells what it has.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The longest name of a subsystem or host, its final zero not counted.
pub const NQN_BYTES_MAX: usize = 223;
/// Controllers have numbers from 1 to this.
const CONTROLLER_ID_MAX: u16 = 0xffef;

/// The subsystem of a server, the same behind all of its addresses.
pub struct NvmeSubsystem {
    nqn: String,
    serial: String,
    /// Hosts prove their names with these, if there are any.
    secrets: Option<NvmeSecrets>,
    /// What proofs have computed, of all hosts at all addresses.
    exponentiations: Arc<Exponentiations>,
    /// Where reservations are kept that outlast the server, if they can be.
    store: Option<Arc<dyn ReservationStore>>,
    shared: Mutex<SubsystemShared>,
}

#[derive(Default)]
struct SubsystemShared {
    /// Which volume an NSID belongs to, by its identity.
    nsids: BTreeMap<u32, String>,
    /// By NSID: those of a volume that is not served any more stay.
    gates: BTreeMap<u32, Arc<ReservationGate>>,
    controllers: BTreeMap<u16, Arc<Controller>>,
    last_id: u16,
    /// Where it is served, by the number of the port.
    ports: BTreeMap<u16, SocketAddr>,
    /// Changes with the ports.
    generation: u64,
    /// Changes with the namespaces.
    changes: u64,
}

fn digest(domain: &str, text: &str) -> [u8; 32] {
    Sha256::new().chain_update(domain).chain_update([0]).chain_update(text).finalize().into()
}

/// A UUID of version 8 that stands for a text.
fn uuid_of(domain: &str, text: &str) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest(domain, text)[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// What tells a volume from every other one, from its identity.
pub(super) fn guid(identity: &str) -> [u8; 16] {
    uuid_of("wattle namespace", identity)
}

impl NvmeSubsystem {
    /// The subsystem of the server that is told from all others by `identity`: it has the same name
    /// after a restart.
    #[must_use]
    pub fn new(identity: &str) -> Arc<Self> {
        Self::guarded(identity, None)
    }

    /// The same, for hosts alone that have one of these secrets, if there are any.
    #[must_use]
    pub fn guarded(identity: &str, secrets: Option<NvmeSecrets>) -> Arc<Self> {
        Self::keeping(identity, secrets, None)
    }

    /// The same, with reservations that can outlast the server.
    #[must_use]
    pub fn keeping(
        identity: &str,
        secrets: Option<NvmeSecrets>,
        store: Option<Arc<dyn ReservationStore>>,
    ) -> Arc<Self> {
        let uuid = uuid_of("wattle subsystem", identity);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
        // Hosts refuse two controllers of one number: those that a server before this one gave
        // are not given again at once.
        let last_id = (std::process::id() % u32::from(CONTROLLER_ID_MAX)) as u16;
        Arc::new(Self {
            nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{}", parts.join("-")),
            serial: hex(&uuid[..10]),
            secrets,
            exponentiations: Arc::default(),
            store,
            shared: Mutex::new(SubsystemShared { last_id, ..SubsystemShared::default() }),
        })
    }

    /// Its name.
    #[must_use]
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// What hosts prove their names with, if they have to.
    #[must_use]
    pub fn secrets(&self) -> Option<&NvmeSecrets> {
        self.secrets.as_ref()
    }

    /// What proofs have computed.
    pub(super) fn exponentiations(&self) -> &Arc<Exponentiations> {
        &self.exponentiations
    }

    /// Its serial number.
    pub(super) fn serial(&self) -> &str {
        &self.serial
    }

    fn lock(&self) -> MutexGuard<'_, SubsystemShared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The NSID of the volume of an identity, from now on.
    pub(super) fn nsid(&self, identity: &str) -> u32 {
        let hash = digest("wattle nsid", identity);
        let mut nsid = u32::from_le_bytes([hash[0], hash[1], hash[2], 0]).max(1);
        let mut shared = self.lock();
        loop {
            match shared.nsids.get(&nsid) {
                Some(other) if other != identity => nsid = nsid % NSID_MAX + 1,
                Some(_) => return nsid,
                None => {
                    shared.nsids.insert(nsid, identity.to_owned());
                    return nsid;
                }
            }
        }
    }

    /// The reservations of a namespace, with what was kept of them.
    pub(super) async fn gate(&self, core: &Core, nsid: u32, identity: &str) -> Arc<ReservationGate> {
        if let Some(gate) = self.lock().gates.get(&nsid) {
            return gate.clone();
        }
        let (store, identity) = (self.store.clone(), identity.to_owned());
        let opened = core.offload(move || ReservationGate::open(&identity, store)).await;
        let gate = opened.unwrap_or_else(|_| ReservationGate::sealed());
        // Another path may have been faster.
        self.lock().gates.entry(nsid).or_insert(gate).clone()
    }

    /// The namespace of the volume of an identity, and its reservations.
    pub(super) fn gate_of(&self, identity: &str) -> Option<(u32, Arc<ReservationGate>)> {
        let shared = self.lock();
        let nsid = shared.nsids.iter().find(|(_, of)| *of == identity).map(|(nsid, _)| *nsid)?;
        Some((nsid, shared.gates.get(&nsid)?.clone()))
    }

    /// Tells hosts what an order of another one changed for them.
    pub(super) fn notify(&self, nsid: u32, notices: &[(Host, ReservationNotice)]) {
        let shared = self.lock();
        for (host, notice) in notices {
            let controllers =
                shared.controllers.values().filter(|one| !one.is_discovery && one.host == *host);
            for controller in controllers {
                // An error says that the controller has ended.
                let _ = controller.changed.send(NamespaceNews::Reservation(nsid, *notice));
            }
        }
    }

    /// It is served at this address too, until the port is closed.
    pub(super) fn open_port(&self, address: SocketAddr) -> u16 {
        let mut shared = self.lock();
        let port = shared.ports.last_key_value().map_or(1, |(port, _)| port.saturating_add(1));
        shared.ports.insert(port, address);
        shared.generation += 1;
        port
    }

    pub(super) fn close_port(&self, port: u16) {
        let mut shared = self.lock();
        shared.ports.remove(&port);
        shared.generation += 1;
    }

    /// Where it is served, and how often that changed. Where it listens everywhere, that is `here`
    /// to a host that came there.
    pub(super) fn ports(&self, here: SocketAddr) -> (u64, Vec<(u16, SocketAddr)>) {
        let shared = self.lock();
        let seen = |(port, address): (&u16, &SocketAddr)| {
            let ip = if address.ip().is_unspecified() { here.ip() } else { address.ip() };
            (*port, SocketAddr::new(ip.to_canonical(), address.port()))
        };
        (shared.generation, shared.ports.iter().map(seen).collect())
    }

    /// How often the namespaces changed.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Namespaces came, went, or have another size: controllers hear of it.
    pub(super) fn changed(&self, nsids: &[u32]) {
        let mut shared = self.lock();
        shared.changes += 1;
        for controller in shared.controllers.values().filter(|controller| !controller.is_discovery) {
            for nsid in nsids {
                // An error says that the controller has ended.
                let _ = controller.changed.send(NamespaceNews::Changed(*nsid));
            }
        }
    }

    /// Hosts that are connected to read and write, and have proved their names if they have to.
    pub(super) fn hosts(&self) -> usize {
        let shared = self.lock();
        let mut hosts: Vec<&Host> = shared
            .controllers
            .values()
            .filter(|one| !one.is_discovery && one.lock().trusted)
            .map(|one| &one.host)
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.len()
    }

    /// Makes a controller for a host; `changed` is sent what it is to hear.
    pub(super) fn admit(
        &self,
        host: Host,
        is_discovery: bool,
        changed: Sender<NamespaceNews>,
    ) -> Result<Arc<Controller>, NvmeStatus> {
        let mut shared = self.lock();
        if shared.controllers.len() >= CONTROLLERS_MAX {
            return Err(NvmeStatus::CONNECT_BUSY);
        }
        let mut id = shared.last_id;
        loop {
            id = id % CONTROLLER_ID_MAX + 1;
            if !shared.controllers.contains_key(&id) {
                break;
            }
        }
        shared.last_id = id;
        let state = Mutex::default();
        let controller =
            Arc::new(Controller { id, host, is_discovery, client: QosClient::new(), changed, state });
        shared.controllers.insert(id, controller.clone());
        Ok(controller)
    }

    /// The controller of this number.
    pub(super) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().controllers.get(&id).cloned()
    }

    /// The connection of a controller's admin queue ended: its other connections end too.
    pub(super) fn end(&self, controller: &Controller) {
        self.lock().controllers.remove(&controller.id);
        controller.lock().ended = true;
        controller.disconnect_queues();
    }
}

/// A host, as it calls itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
}

/// What a controller's host is to hear of a namespace.
pub(super) enum NamespaceNews {
    /// It came, went, or has another size.
    Changed(u32),
    /// An order of another host changed what this one has.
    Reservation(u32, ReservationNotice),
}

/// Ends the connection that it is sent to.
pub(super) struct Disconnect;

/// A controller: one host's, on one path.
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) host: Host,
    pub(super) is_discovery: bool,
    /// All its queues are one client of each volume.
    pub(super) client: QosClient,
    changed: Sender<NamespaceNews>,
    state: Mutex<ControllerState>,
}

#[derive(Default)]
struct ControllerState {
    /// The host has proved its name, or need not.
    trusted: bool,
    /// Its admin queue is gone: it gets no queue any more.
    ended: bool,
    /// Its register CC.
    configuration: u32,
    /// The connections of its queues but the admin queue, until every command of theirs has ended.
    queues: BTreeMap<u16, JoinedQueue>,
}

/// A connection that is a queue of a controller.
pub(super) struct JoinedQueue {
    pub(super) disconnect: Sender<Disconnect>,
    /// The host has proved its name there, or need not.
    pub(super) proved: Arc<AtomicBool>,
}

impl ControllerState {
    /// See [`Controller::status`].
    fn status(&self) -> u32 {
        const SHUTDOWN_COMPLETE: u32 = 0b10 << 2;
        let shutdown = if self.configuration & SHUTDOWN != 0 { SHUTDOWN_COMPLETE } else { 0 };
        let ready = self.configuration & ENABLE != 0 || !self.queues.is_empty();
        if ready { ENABLE | shutdown } else { shutdown }
    }

    fn is_enabled(&self) -> bool {
        self.configuration & (ENABLE | SHUTDOWN) == ENABLE
    }
}

/// Offsets of registers.
pub(super) mod registers {
    pub(crate) const CAP: u32 = 0x00;
    pub(crate) const VS: u32 = 0x08;
    pub(crate) const CC: u32 = 0x14;
    pub(crate) const CSTS: u32 = 0x1c;
}

const ENABLE: u32 = 1 << 0;
const SHUTDOWN: u32 = 0b11 << 14;

impl Controller {
    fn lock(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host has proved its name, or need not.
    pub(super) fn trust(&self) {
        self.lock().trusted = true;
    }

    /// Its register CC.
    pub(super) fn configuration(&self) -> u32 {
        self.lock().configuration
    }

    /// Its register CSTS: ready while it is enabled, and after that until its queues have ended
    /// with every command, since a host gives them again once it is not. Shut down once that was
    /// asked for: nothing is kept that would have to be written first, and what was not flushed
    /// need not survive.
    pub(super) fn status(&self) -> u32 {
        self.lock().status()
    }

    /// Whether it is enabled and not shut down.
    pub(super) fn is_ready(&self) -> bool {
        self.lock().is_enabled()
    }

    /// The host writes CC. A controller that is disabled loses its queues.
    ///
    /// # Errors
    /// It asks for what the controller has not.
    pub(super) fn configure(&self, configuration: u32) -> Result<(), NvmeStatus> {
        const COMMAND_SET: u32 = 0b111 << 4;
        const PAGE: u32 = 0xf << 7;
        const ENTRY_SIZES: u32 = 0xff << 16;
        let enabling = configuration & ENABLE != 0;
        let sizes_fit = self.is_discovery || configuration & ENTRY_SIZES == 0x46 << 16;
        if enabling && (configuration & (COMMAND_SET | PAGE) != 0 || !sizes_fit) {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        let was = std::mem::replace(&mut self.lock().configuration, configuration);
        if was & ENABLE != 0 && !enabling {
            self.disconnect_queues();
        }
        Ok(())
    }

    /// A connection becomes one of its queues, and is sent [`Disconnect`] when that is to end. One
    /// whose host has not proved its name makes way for it: any host can say that it is this one.
    ///
    /// # Errors
    /// It has no such queue, or has it already.
    pub(super) fn join(&self, queue: u16, joined: JoinedQueue) -> Result<(), NvmeStatus> {
        // Under one lock with what ends queues: either the queue is refused, or it is ended too.
        let mut state = self.lock();
        if state.ended || !state.is_enabled() || self.is_discovery {
            return Err(NvmeStatus::SEQUENCE);
        }
        if queue == 0 || queue > IO_QUEUES_MAX {
            return Err(NvmeStatus::CONNECT_INVALID);
        }
        if let Some(before) = state.queues.get(&queue) {
            if before.proved.load(Ordering::Relaxed) {
                return Err(NvmeStatus::CONNECT_BUSY);
            }
            // An error says that the connection has ended by itself.
            let _ = before.disconnect.send(Disconnect);
        }
        state.queues.insert(queue, joined);
        Ok(())
    }

    /// The connection of a queue ended, and every command that it brought.
    pub(super) fn leave(&self, queue: u16, proved: &Arc<AtomicBool>) {
        let mut state = self.lock();
        if state.queues.get(&queue).is_some_and(|joined| Arc::ptr_eq(&joined.proved, proved)) {
            state.queues.remove(&queue);
        }
    }

    fn disconnect_queues(&self) {
        for joined in self.lock().queues.values() {
            // An error says that the connection has ended by itself.
            let _ = joined.disconnect.send(Disconnect);
        }
    }
}

#[cfg(test)]
mod tests {
    use wattle_rt::mailbox;

    use super::*;

    #[test]
    fn a_volume_keeps_its_nsid_and_shares_it_with_none() {
        let (one, other) = (NvmeSubsystem::new("a"), NvmeSubsystem::new("a"));
        assert_eq!(one.nqn(), other.nqn());
        assert_ne!(one.nqn(), NvmeSubsystem::new("b").nqn());
        assert!(one.nqn().len() <= NQN_BYTES_MAX);
        let first = one.nsid("volume 1");
        let second = one.nsid("volume 2");
        assert_ne!(first, second);
        // In another order, and without the first.
        assert_eq!((other.nsid("volume 2"), one.nsid("volume 1")), (second, first));
        // Where two would have one, the later one has another.
        let crowded = NvmeSubsystem::new("c");
        crowded.lock().nsids.insert(first, "a third".to_owned());
        assert_eq!(crowded.nsid("volume 1"), first + 1);
    }

    #[test]
    fn a_controller_is_enabled_before_its_queues_connect_and_ends_with_them() {
        let subsystem = NvmeSubsystem::new("a");
        let host = Host { nqn: "nqn.h".to_owned(), id: [1; 16] };
        let (changed, _changes) = mailbox();
        let controller = subsystem.admit(host, false, changed).unwrap();
        let proved = Arc::new(AtomicBool::new(true));
        let join = |queue| {
            let (disconnect, asked) = mailbox();
            let joined = JoinedQueue { disconnect, proved: proved.clone() };
            controller.join(queue, joined).map(|()| asked)
        };
        assert_eq!(join(1).err(), Some(NvmeStatus::SEQUENCE));
        assert_eq!(controller.configure(0x0046_0011), Err(NvmeStatus::INVALID_FIELD));
        controller.configure(0x0046_0001).unwrap();
        let mut first = join(1).unwrap();
        assert_eq!(join(1).err(), Some(NvmeStatus::CONNECT_BUSY));
        // Of a stranger it would have been this one.
        proved.store(false, Ordering::Relaxed);
        let mut again = join(1).unwrap();
        assert!(first.try_recv().is_some() && again.try_recv().is_none());
        controller.leave(1, &Arc::default());
        assert_eq!(controller.status(), ENABLE);
        assert_eq!(join(0).err(), Some(NvmeStatus::CONNECT_INVALID));
        assert_eq!(join(IO_QUEUES_MAX + 1).err(), Some(NvmeStatus::CONNECT_INVALID));
        assert!(again.try_recv().is_none());
        subsystem.end(&controller);
        assert!(again.try_recv().is_some());
        assert!(subsystem.controller(controller.id).is_none());
        // One that found the controller before it ended.
        assert_eq!(join(2).err(), Some(NvmeStatus::SEQUENCE));
    }
}
