//! What a host hears of orders of other hosts: the log page, the event that says so, and what the
//! host sets of both.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::table::{ReservationNotice, ReservationOrder};
use crate::clients::memory::Hold;
use crate::nvme::command::{NSID_ALL, NvmeCommand, NvmeStatus};
use crate::nvme::connection::QueueConnection;
use crate::nvme::identify;
use crate::nvme::limits::RESERVATION_NOTICES_MAX;

/// The number of the log page.
pub const LOG_PAGE: u8 = 0x80;

/// What the host was not told yet of orders of other hosts.
#[derive(Default)]
pub struct ReservationLog {
    /// Namespaces and what happened; what does not fit is left out, and counted.
    entries: VecDeque<(u32, ReservationNotice)>,
    /// Of all that there were, how many came before the first entry.
    read: u64,
    /// By NSID, which kinds the host does not want to hear of.
    masks: BTreeMap<u32, u32>,
    /// The host was told that there is something to read.
    told: bool,
}

impl ReservationLog {
    fn note(&mut self, nsid: u32, notice: ReservationNotice) {
        if self.entries.len() >= RESERVATION_NOTICES_MAX {
            self.entries.pop_front();
            self.read += 1;
        }
        self.entries.push_back((nsid, notice));
    }

    /// The log page: one entry, which is read with it unless it is retained.
    fn page(&mut self, retains: bool) -> Vec<u8> {
        let first = self.entries.front().map(|(nsid, notice)| (*nsid, *notice as u8));
        let page = identify::reservation_log(self.read + 1, first, self.entries.len().saturating_sub(1));
        if !retains && self.entries.pop_front().is_some() {
            self.read += 1;
            self.told = false;
        }
        page
    }
}

impl QueueConnection {
    /// Whether reservations of a namespace outlast the server.
    pub(in crate::nvme) fn persist_reservations(self: &Rc<Self>, command: &NvmeCommand, hold: Hold) {
        let all = if command.nsid() == NSID_ALL { self.shard.namespaces() } else { Vec::new() };
        let found = self.shard.namespace(command.nsid()).map_or(all, |found| vec![found]);
        let (connection, id, order) = (self.clone(), command.id(), command.word(11) & 1 == 1);
        self.core.spawn(async move {
            let mut status = match found.is_empty() {
                true => NvmeStatus::INVALID_NAMESPACE,
                false => NvmeStatus::SUCCESS,
            };
            let Some(queue) = connection.queue.get() else { return };
            for namespace in found {
                let order = ReservationOrder::Persist(order);
                let changed = namespace.gate.change(&connection.core, &queue.controller.host, &order).await;
                status = changed.err().unwrap_or(status);
            }
            connection.complete(id, status, 0, Some(hold));
        });
    }

    /// Which kinds of changes of reservations the host does not want to hear of.
    pub(in crate::nvme) fn mask_reservation_events(&self, nsid: u32, mask: u32) -> Result<(), NvmeStatus> {
        const KINDS: u32 = 0b1110;
        if nsid != NSID_ALL && self.shard.namespace(nsid).is_none() {
            return Err(NvmeStatus::INVALID_NAMESPACE);
        }
        let mut log = self.admin.reservations.borrow_mut();
        for found in self.shard.namespaces().iter().filter(|found| [NSID_ALL, found.nsid].contains(&nsid)) {
            log.masks.insert(found.nsid, mask & KINDS);
        }
        Ok(())
    }

    /// Which kinds those are.
    ///
    /// # Errors
    /// There is no such namespace.
    pub(in crate::nvme) fn reservation_mask(&self, nsid: u32) -> Result<u32, NvmeStatus> {
        self.shard.namespace(nsid).ok_or(NvmeStatus::INVALID_NAMESPACE)?;
        Ok(self.admin.reservations.borrow().masks.get(&nsid).copied().unwrap_or_default())
    }

    /// An order of another host changed what this one has.
    pub(in crate::nvme) fn reservation_changed(&self, nsid: u32, notice: ReservationNotice) {
        let mut log = self.admin.reservations.borrow_mut();
        let mask = log.masks.get(&nsid).copied().unwrap_or_default();
        if mask >> notice as u32 & 1 == 0 {
            log.note(nsid, notice);
        }
        drop(log);
        self.tell();
    }

    /// The log page; what is left then is an event of its own.
    pub(in crate::nvme) fn reservation_page(&self, retains: bool) -> Vec<u8> {
        let page = self.admin.reservations.borrow_mut().page(retains);
        self.tell();
        page
    }

    /// Tells the host that there is something to read of reservations, if it asked, and was not
    /// told yet.
    pub(in crate::nvme) fn tell_reservations(&self) {
        const COMMAND_SET_EVENT: u64 = 0x06;
        const LOG: u64 = (LOG_PAGE as u64) << 16;
        let mut log = self.admin.reservations.borrow_mut();
        if log.entries.is_empty() || log.told {
            return;
        }
        let request = self.admin.event_requests.borrow_mut().pop_front();
        if let Some(id) = request {
            log.told = true;
            self.complete(id, NvmeStatus::SUCCESS, COMMAND_SET_EVENT | LOG, None);
        }
    }
}
