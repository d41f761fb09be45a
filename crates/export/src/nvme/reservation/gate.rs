//! What every command of a namespace passes, on every core and every path.
//!
//! Invariants:
//! 1. A command that was admitted is counted in the lane of its core, under the epoch by which it
//!    was judged, until it has ended.
//! 2. A change publishes the new table, then the new epoch, and is over only when nothing is
//!    counted under the old one. The next change begins after that: so two epochs are told by their
//!    last bit.
//! 3. What outlasts the server is durable before it is published.
//!
//! An admission counts itself before it looks at the epoch again, and a change sets the epoch
//! before it looks at the counts, all in one order (`SeqCst`): either the change sees the command,
//! or the command sees the change and is judged anew.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use wattle_rt::Core;

use super::record;
use super::table::{DataAccess, Notices, ReservationOrder, ReservationTable};
use crate::nvme::command::NvmeStatus;
use crate::nvme::subsystem::Host;

/// Where reservations are kept that outlast the server.
pub trait ReservationStore: Send + Sync {
    /// What was kept of the volume of this identity. Blocking.
    ///
    /// # Errors
    /// It cannot be read; the operator was told.
    fn load(&self, identity: &str) -> Result<Option<String>, std::io::Error>;

    /// What was kept of the volume is not whole: the operator is to be told.
    fn damaged(&self, identity: &str);

    /// Keeps this of the volume instead, or nothing; it is durable then. Blocking.
    ///
    /// # Errors
    /// It cannot be written; what was kept before is there still.
    fn keep(&self, identity: &str, record: Option<&str>) -> Result<(), std::io::Error>;
}

/// How often a change looks whether commands have ended, or another change has.
const LOOK: Duration = Duration::from_millis(1);

/// Reservations of one namespace.
pub struct ReservationGate {
    identity: String,
    store: Option<Arc<dyn ReservationStore>>,
    /// What was kept cannot be read, so nothing is known of what is forbidden: nothing is admitted.
    is_sealed: bool,
    /// The number of the epoch, and in the last bit whether there is a reservation.
    epoch: AtomicU64,
    table: Mutex<ReservationTable>,
    lanes: Mutex<Vec<Weak<Lane>>>,
    changing: AtomicBool,
}

/// Commands under way in one core's part of a namespace.
#[derive(Default)]
pub struct Lane {
    /// By the last bit of the epoch's number.
    running: [AtomicUsize; 2],
}

/// A command that was admitted. It has ended when this is dropped.
pub struct CommandAdmission<'a>(&'a AtomicUsize);

impl Drop for CommandAdmission<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes way for the next change.
struct Changing<'a>(&'a AtomicBool);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl ReservationGate {
    /// With what was kept. Blocking.
    pub fn open(identity: &str, store: Option<Arc<dyn ReservationStore>>) -> Arc<Self> {
        let table = match &store {
            None => ReservationTable::default(),
            Some(store) => match store.load(identity).map(|kept| kept.as_deref().map(record::decode)) {
                Ok(None) => ReservationTable::default(),
                Ok(Some(Some(table))) => table,
                Ok(Some(None)) => {
                    store.damaged(identity);
                    return Self::sealed();
                }
                Err(_) => return Self::sealed(),
            },
        };
        Arc::new(Self {
            identity: identity.to_owned(),
            store,
            is_sealed: false,
            epoch: AtomicU64::new(u64::from(table.held.is_some())),
            table: Mutex::new(table),
            lanes: Mutex::default(),
            changing: AtomicBool::new(false),
        })
    }

    /// A gate that admits nothing.
    pub fn sealed() -> Arc<Self> {
        Arc::new(Self {
            identity: String::new(),
            store: None,
            is_sealed: true,
            epoch: AtomicU64::default(),
            table: Mutex::default(),
            lanes: Mutex::default(),
            changing: AtomicBool::new(false),
        })
    }

    /// What was kept cannot be read.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Reservations can outlast the server.
    pub fn can_persist(&self) -> bool {
        self.store.is_some()
    }

    /// Who has what.
    pub fn table(&self) -> MutexGuard<'_, ReservationTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane for one core's part of the namespace.
    pub fn lane(&self) -> Arc<Lane> {
        let lane = Arc::new(Lane::default());
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        lane
    }

    /// Admits a command, which has ended when the guard is dropped. Without a reservation that
    /// takes no lock.
    ///
    /// # Errors
    /// The reservation forbids it, or nothing is known of what it forbids.
    pub fn admit<'a>(
        &self,
        lane: &'a Lane,
        host: &Host,
        access: DataAccess,
    ) -> Result<CommandAdmission<'a>, NvmeStatus> {
        if self.is_sealed {
            return Err(NvmeStatus::INTERNAL);
        }
        loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            let running = &lane.running[(epoch >> 1 & 1) as usize];
            running.fetch_add(1, Ordering::SeqCst);
            let admission = CommandAdmission(running);
            if self.epoch.load(Ordering::SeqCst) != epoch {
                continue;
            }
            let is_reserved = epoch & 1 == 1;
            return match !is_reserved || self.table().may(host, access) {
                true => Ok(admission),
                false => Err(NvmeStatus::RESERVATION_CONFLICT),
            };
        }
    }

    /// Does what a host orders, and returns when no command is under way that was admitted before.
    ///
    /// # Errors
    /// It may not, or what is to outlast the server cannot be kept. Nothing has changed then.
    pub async fn change(
        &self,
        core: &Core,
        host: &Host,
        order: &ReservationOrder,
    ) -> Result<Notices, NvmeStatus> {
        self.alter(core, |table| table.apply(host, order)).await
    }

    /// Forgets everyone, by order of the operator. What was forbidden is allowed then.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub async fn forget(&self, core: &Core) -> Result<Notices, NvmeStatus> {
        self.alter(core, |table| Ok(table.forget(None))).await
    }

    async fn alter(
        &self,
        core: &Core,
        change: impl FnOnce(&mut ReservationTable) -> Result<Notices, NvmeStatus>,
    ) -> Result<Notices, NvmeStatus> {
        if self.is_sealed {
            return Err(NvmeStatus::INTERNAL);
        }
        while self.changing.swap(true, Ordering::Acquire) {
            core.sleep(LOOK).await;
        }
        let _changing = Changing(&self.changing);
        let before = self.table().clone();
        let mut next = before.clone();
        let notices = change(&mut next)?;
        if next == before {
            return Ok(notices);
        }
        self.keep(core, &before, &next).await?;
        let is_reserved = u64::from(next.held.is_some());
        *self.table() = next;
        let old = self.epoch.load(Ordering::SeqCst) >> 1;
        self.epoch.store((old + 1) << 1 | is_reserved, Ordering::SeqCst);
        while self.is_running(old) {
            core.sleep(LOOK).await;
        }
        Ok(notices)
    }

    /// Makes durable what is to outlast the server.
    async fn keep(
        &self,
        core: &Core,
        before: &ReservationTable,
        next: &ReservationTable,
    ) -> Result<(), NvmeStatus> {
        if !next.persists && !before.persists {
            return Ok(());
        }
        let Some(store) = self.store.clone() else { return Err(NvmeStatus::INVALID_FIELD) };
        let identity = self.identity.clone();
        // Without registrants there is nothing to keep.
        let text = (next.persists && !next.registrants.is_empty()).then(|| record::encode(next));
        let kept = core.offload(move || store.keep(&identity, text.as_deref())).await;
        match kept {
            Ok(Ok(())) => Ok(()),
            _ => Err(NvmeStatus::INTERNAL),
        }
    }

    fn is_running(&self, epoch: u64) -> bool {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |lane: &Arc<Lane>| lane.running[(epoch & 1) as usize].load(Ordering::SeqCst);
        lanes.iter().filter_map(Weak::upgrade).any(|lane| count(&lane) > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use wattle_rt::RuntimeConfig;

    use super::*;
    use crate::nvme::reservation::table::{Register, RegisterKeys, ReservationType};

    fn host(id: u8) -> Host {
        Host { nqn: format!("nqn.{id}"), id: [id; 16] }
    }

    fn add(id: u8, persists: Option<bool>) -> ReservationOrder {
        let keys = RegisterKeys { ignores_current: false, current: 0, new: id.into(), persists };
        ReservationOrder::Register(Register::Add, keys)
    }

    const KIND: ReservationType = ReservationType::WriteExclusiveRegistrants;

    /// Host 1 has reserved, host 2 is registered.
    async fn reserve(core: &Core, gate: &ReservationGate) {
        for id in [1, 2] {
            gate.change(core, &host(id), &add(id, None)).await.unwrap();
        }
        gate.change(core, &host(1), &ReservationOrder::Acquire(KIND, 1)).await.unwrap();
    }

    fn on_a_core(test: impl AsyncFnOnce(Core)) {
        wattle_rt::run(RuntimeConfig { cores: 1, ..RuntimeConfig::default() }, test).unwrap();
    }

    #[test]
    fn a_change_is_over_when_what_was_admitted_before_has_ended() {
        on_a_core(async |core| {
            let gate = ReservationGate::open("a", None);
            let (lane, other) = (gate.lane(), gate.lane());
            reserve(&core, &gate).await;
            let admitted = gate.admit(&lane, &host(2), DataAccess::Write).unwrap();
            let preempting = {
                let (gate, own) = (gate.clone(), core.clone());
                core.spawn(async move {
                    gate.change(&own, &host(1), &ReservationOrder::Preempt(KIND, 1, 2)).await.unwrap();
                })
            };
            core.sleep(50 * LOOK).await;
            assert!(!preempting.is_finished(), "a write of the victim is under way");
            for lane in [&lane, &other] {
                assert!(gate.admit(lane, &host(2), DataAccess::Write).is_err(), "no more come");
            }
            drop(gate.admit(&other, &host(1), DataAccess::Write).unwrap());
            drop(admitted);
            preempting.await;
        });
    }

    /// Threads as cores, and changes one after the other: whoever was fenced has nothing under way.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "commands come from other cores")]
    fn nothing_of_a_host_that_was_preempted_is_under_way() {
        let gate = ReservationGate::open("a", None);
        let (fenced, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let admitted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let lane = gate.lane();
                    while !over.load(Ordering::SeqCst) {
                        let Ok(_admission) = gate.admit(&lane, &host(2), DataAccess::Write) else { continue };
                        admitted.fetch_add(1, Ordering::SeqCst);
                        for _ in 0..20 {
                            assert!(!fenced.load(Ordering::SeqCst), "its host was preempted");
                            std::hint::spin_loop();
                        }
                    }
                });
            }
            on_a_core(async |core| {
                for _ in 0..200 {
                    reserve(&core, &gate).await;
                    let before = admitted.load(Ordering::SeqCst);
                    while admitted.load(Ordering::SeqCst) == before {
                        core.sleep(LOOK).await;
                    }
                    let preempt = ReservationOrder::Preempt(KIND, 1, 2);
                    gate.change(&core, &host(1), &preempt).await.unwrap();
                    fenced.store(true, Ordering::SeqCst);
                    core.sleep(LOOK).await;
                    fenced.store(false, Ordering::SeqCst);
                    gate.change(&core, &host(1), &ReservationOrder::Clear(1)).await.unwrap();
                }
                over.store(true, Ordering::SeqCst);
            });
        });
    }

    /// A store in memory, which can be full.
    #[derive(Default)]
    struct Memory {
        kept: Mutex<Option<String>>,
        is_full: AtomicBool,
        told: AtomicBool,
    }

    impl ReservationStore for Memory {
        fn load(&self, _: &str) -> io::Result<Option<String>> {
            Ok(self.kept.lock().unwrap().clone())
        }

        fn damaged(&self, _: &str) {
            self.told.store(true, Ordering::SeqCst);
        }

        fn keep(&self, _: &str, record: Option<&str>) -> io::Result<()> {
            if self.is_full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *self.kept.lock().unwrap() = record.map(str::to_owned);
            Ok(())
        }
    }

    #[test]
    fn what_is_to_outlast_the_server_does_and_nothing_else() {
        on_a_core(async |core| {
            let store = Arc::new(Memory::default());
            let open = || ReservationGate::open("a", Some(store.clone()));
            let gate = open();
            reserve(&core, &gate).await;
            assert_eq!(open().table().registrants.len(), 0, "it was not asked for");
            gate.change(&core, &host(2), &ReservationOrder::Persist(true)).await.unwrap();
            let again = open();
            assert!(*again.table() == *gate.table());
            assert!(
                again.admit(&again.lane(), &host(3), DataAccess::Write).is_err(),
                "from its first command on"
            );
            // What cannot be kept does not happen.
            store.is_full.store(true, Ordering::SeqCst);
            let before = gate.table().clone();
            let cleared = gate.change(&core, &host(1), &ReservationOrder::Clear(1)).await;
            assert_eq!((cleared, gate.table().clone()), (Err(NvmeStatus::INTERNAL), before));
            store.is_full.store(false, Ordering::SeqCst);
            gate.change(&core, &host(1), &ReservationOrder::Clear(1)).await.unwrap();
            assert_eq!(*store.kept.lock().unwrap(), None);
            // Without a store nothing is promised.
            let gate = ReservationGate::open("a", None);
            let refused = gate.change(&core, &host(1), &add(1, Some(true))).await;
            assert_eq!(refused, Err(NvmeStatus::INVALID_FIELD));
        });
    }

    #[test]
    fn where_nothing_is_known_nothing_is_admitted() {
        let store = Arc::new(Memory::default());
        *store.kept.lock().unwrap() = Some("wattle reservations 1\ngener".to_owned());
        let gate = ReservationGate::open("a", Some(store.clone()));
        assert!(store.told.load(Ordering::SeqCst));
        for access in [DataAccess::Read, DataAccess::Write] {
            assert!(gate.admit(&gate.lane(), &host(1), access).is_err());
        }
    }
}
