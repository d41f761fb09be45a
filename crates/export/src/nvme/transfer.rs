//! Commands of queues for reads and writes: carrying them out, and asking for the data of those
//! that are too long to have it with them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wattle_engine::VolumeError;
use wattle_engine::volume::qos::QosCost;
use wattle_rt::{BUF_ALIGN_BYTES, Buf, BufMut, Durability};

use super::command::{
    FABRICS, IoPlan, IoRange, NSID_ALL, NvmeCommand, NvmeStatus, decide_io, discard_ranges, io_opcodes,
};
use super::connection::{Namespace, Opened, QueueConnection, ReadEnd};
use super::limits::TRANSFER_BYTES_MAX;
use super::pdu::{FaultStatus, HostData, PduFault, PduFrame};
use super::reservation::{CommandAdmission, DataAccess};
use crate::clients::input::Input;
use crate::clients::memory::Hold;

/// Writes whose data does not come with them.
#[derive(Default)]
pub(super) struct Transfers {
    /// What was asked for and has not all come, by the command's identifier.
    asked: BTreeMap<u16, Transfer>,
    /// What is asked for once there is room.
    waiting: VecDeque<(u16, Transfer)>,
    /// Of writes that were asked for and are not carried out yet.
    held_bytes: usize,
}

/// One such write.
struct Transfer {
    write: Write,
    /// Nothing is in it before data came, and all is where one PDU brings all of it.
    data: Option<BufMut>,
    received_bytes: usize,
    damaged: bool,
}

/// A write that can be carried out once its data is there.
struct Write {
    namespace: Rc<Namespace>,
    range: IoRange,
    durability: Durability,
    hold: Hold,
}

impl QueueConnection {
    /// Takes a command of a queue for reads and writes.
    pub(super) async fn take_io(
        self: &Rc<Self>,
        command: NvmeCommand,
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<(), ReadEnd> {
        let id = command.id();
        if command.opcode() == io_opcodes::FLUSH && command.nsid() == NSID_ALL {
            let hold = self.presence.take(&self.account, 0).await;
            self.skip_data(frame, input).await?;
            self.flush_all(id, hold);
            return Ok(());
        }
        if self.take_reservation(&command, frame, input).await? {
            return Ok(());
        }
        let found = self.shard.namespace(command.nsid());
        let planned = match &found {
            _ if command.opcode() == FABRICS => Err(NvmeStatus::INVALID_OPCODE),
            None => Err(NvmeStatus::INVALID_NAMESPACE),
            Some(namespace) => {
                let volume = &namespace.volume;
                decide_io(&command, volume.size_bytes(), volume.read_only(), frame.data_bytes)
            }
        };
        let (Ok(plan), Some(namespace)) = (planned, found) else {
            let hold = self.presence.take(&self.account, 0).await;
            self.skip_data(frame, input).await?;
            self.complete(id, planned.err().unwrap_or(NvmeStatus::INVALID_NAMESPACE), 0, Some(hold));
            return Ok(());
        };
        let bytes = match plan {
            IoPlan::Read(range) => charged_bytes(range.length_bytes),
            IoPlan::Write(_, _, true) | IoPlan::Discard(_) => charged_bytes(frame.data_bytes as u64),
            _ => 0,
        };
        let hold = self.presence.take(&self.account, bytes).await;
        let data = match plan {
            IoPlan::Write(_, _, true) | IoPlan::Discard(_) => match self.receive_data(frame, input).await? {
                (data, true) => Some(data.freeze()),
                (_, false) => {
                    self.complete(id, NvmeStatus::TRANSPORT, 0, Some(hold));
                    return Ok(());
                }
            },
            IoPlan::Write(range, durability, false) => {
                let write = Write { namespace, range, durability, hold };
                let transfer = Transfer { write, data: None, received_bytes: 0, damaged: false };
                self.transfers.borrow_mut().waiting.push_back((id, transfer));
                self.ask_for_more();
                return Ok(());
            }
            _ => {
                self.skip_data(frame, input).await?;
                None
            }
        };
        let connection = self.clone();
        self.core.spawn(async move { connection.carry_out(id, plan, &namespace, data, hold).await });
        Ok(())
    }

    /// A namespace, as this queue uses it.
    fn open(&self, namespace: &Rc<Namespace>) -> Rc<Opened> {
        let mut opened = self.opened.borrow_mut();
        if let Some(found) = opened.get(&namespace.nsid)
            && found.of.as_ptr() == Rc::as_ptr(namespace)
        {
            return found.clone();
        }
        let client = self.queue.get().map(|queue| queue.controller.client);
        let volume =
            client.map_or_else(|| namespace.volume.clone(), |client| namespace.volume.for_client(client));
        let found = Rc::new(Opened {
            of: Rc::downgrade(namespace),
            remains: namespace.remains.clone(),
            volume,
            may_begin: Cell::new(false),
            under_way: Rc::default(),
        });
        opened.insert(namespace.nsid, found.clone());
        found
    }

    /// Does what a command asks for, and completes it.
    async fn carry_out(
        &self,
        id: u16,
        plan: IoPlan,
        namespace: &Rc<Namespace>,
        data: Option<Buf>,
        hold: Hold,
    ) {
        let opened = self.open(namespace);
        let begun = opened.under_way.begin();
        let done = self.execute(plan, namespace, &opened, data).await;
        drop(begun);
        match done {
            Ok(Some(data)) => self.complete_with(id, data, Some(hold)),
            Ok(None) => self.complete(id, NvmeStatus::SUCCESS, 0, Some(hold)),
            Err(status) => self.complete(id, status, 0, Some(hold)),
        }
    }

    /// Does what a command asks for; the data that it gives.
    ///
    /// It is admitted only once its turn has come: an order about reservations waits for what was
    /// admitted, and not for what limits hold back. That is judged by what the order made of them.
    async fn execute(
        &self,
        plan: IoPlan,
        namespace: &Rc<Namespace>,
        opened: &Opened,
        data: Option<Buf>,
    ) -> Result<Option<Buf>, NvmeStatus> {
        let (volume, presence) = (&opened.volume, &self.presence);
        if !opened.may_begin.get() {
            presence.unless_gone(opened.remains.none(&self.core)).await?;
            opened.may_begin.set(true);
        }
        let admit = || self.admit(namespace, plan.access());
        match plan {
            IoPlan::Read(IoRange { offset_bytes, length_bytes }) => {
                let turn = presence.turn(volume, QosCost::read(length_bytes)).await?;
                let _admission = admit()?;
                let (result, buf) = turn.read(offset_bytes, BufMut::alloc(length_bytes as usize)).await;
                result.map_err(|error| status_of(error, NvmeStatus::READ_ERROR))?;
                return Ok(Some(buf.freeze()));
            }
            IoPlan::Write(IoRange { offset_bytes, length_bytes }, durability, _) => {
                let data = data.expect("a write was read with its data");
                let turn = presence.turn(volume, QosCost::write(length_bytes)).await?;
                let _admission = admit()?;
                turn.write(offset_bytes, data, durability).await?;
            }
            IoPlan::Flush => {
                let _admission = admit()?;
                volume.flush().await?;
            }
            IoPlan::WriteZeroes(IoRange { offset_bytes, length_bytes }, unmap, durability) => {
                let range = offset_bytes..offset_bytes + length_bytes;
                presence.write_zeroes(volume, range, (unmap, durability), admit).await?;
            }
            IoPlan::Discard(count) => {
                // Also of one without ranges.
                drop(admit()?);
                let data = data.expect("the ranges came with the command");
                let ranges = discard_ranges(&data, count, volume.size_bytes())?;
                for IoRange { offset_bytes, length_bytes } in ranges {
                    if length_bytes > 0 {
                        presence.discard(volume, offset_bytes..offset_bytes + length_bytes, admit).await?;
                    }
                }
            }
            IoPlan::Nothing => drop(admit()?),
        }
        Ok(None)
    }

    /// Admits a command of this host to a namespace, until the guard is dropped.
    fn admit<'a>(
        &self,
        namespace: &'a Namespace,
        access: DataAccess,
    ) -> Result<CommandAdmission<'a>, NvmeStatus> {
        let queue = self.queue.get().ok_or(NvmeStatus::SEQUENCE)?;
        namespace.gate.admit(&namespace.lane, &queue.controller.host, access)
    }

    /// Makes durable what was acknowledged in every namespace.
    fn flush_all(self: &Rc<Self>, id: u16, hold: Hold) {
        let connection = self.clone();
        self.core.spawn(async move {
            let mut status = NvmeStatus::SUCCESS;
            for namespace in connection.shard.namespaces() {
                let Ok(_admission) = connection.admit(&namespace, DataAccess::Write) else {
                    status = NvmeStatus::RESERVATION_CONFLICT;
                    continue;
                };
                if let Err(error) = namespace.volume.flush().await {
                    status = status_of(error, NvmeStatus::WRITE_FAULT);
                }
            }
            connection.complete(id, status, 0, Some(hold));
        });
    }

    /// Asks for the data of writes that wait, as far as there is room.
    fn ask_for_more(&self) {
        loop {
            let mut transfers = self.transfers.borrow_mut();
            let Some((_, next)) = transfers.waiting.front() else { return };
            let length = next.write.range.length_bytes;
            let held = transfers.held_bytes + charged_bytes(length) as usize;
            if held > TRANSFER_BYTES_MAX {
                return;
            }
            transfers.held_bytes = held;
            let (id, transfer) = transfers.waiting.pop_front().expect("it was there");
            transfers.asked.insert(id, transfer);
            drop(transfers);
            self.ask_for(id, length as u32);
        }
    }

    /// Takes data that was asked for.
    pub(super) async fn take_data(
        self: &Rc<Self>,
        header: &[u8],
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<(), ReadEnd> {
        let fault = |fault| ReadEnd::Fault(fault, Vec::new());
        let out_of_range = || fault(PduFault { status: FaultStatus::OutOfRange, information: 0 });
        let part = HostData::decode(header, frame).map_err(fault)?;
        let length = {
            let transfers = self.transfers.borrow();
            let transfer = transfers.asked.get(&part.tag).filter(|_| part.tag == part.command);
            let transfer = transfer.ok_or_else(|| fault(PduFault::field(10)))?;
            let length = transfer.write.range.length_bytes as usize;
            if part.offset_bytes as usize != transfer.received_bytes {
                return Err(out_of_range());
            }
            let end = transfer.received_bytes.checked_add(frame.data_bytes);
            if end.is_none_or(|end| end > length) || frame.is_last != (end == Some(length)) {
                return Err(out_of_range());
            }
            length
        };
        let (data, intact) = self.receive_data(frame, input).await?;
        let complete = {
            let mut transfers = self.transfers.borrow_mut();
            let Some(transfer) = transfers.asked.get_mut(&part.tag) else { return Err(ReadEnd::Ended) };
            transfer.damaged |= !intact;
            let from = transfer.received_bytes;
            transfer.received_bytes += data.len();
            if data.len() == length {
                transfer.data = Some(data);
            } else {
                let whole = transfer.data.get_or_insert_with(|| BufMut::alloc(length));
                whole[from..from + data.len()].copy_from_slice(&data);
            }
            if transfer.received_bytes < length {
                return Ok(());
            }
            transfers.asked.remove(&part.tag)
        };
        let Some(Transfer { write, data: Some(data), damaged, .. }) = complete else {
            return Err(ReadEnd::Ended);
        };
        let (connection, id) = (self.clone(), part.command);
        self.core.spawn(async move {
            let Write { namespace, range, durability, hold } = write;
            if damaged {
                connection.complete(id, NvmeStatus::TRANSPORT, 0, Some(hold));
            } else {
                let plan = IoPlan::Write(range, durability, false);
                connection.carry_out(id, plan, &namespace, Some(data.freeze()), hold).await;
            }
            // The connection may have ended meanwhile, and counts nothing any more.
            let mut transfers = connection.transfers.borrow_mut();
            transfers.held_bytes = transfers.held_bytes.saturating_sub(charged_bytes(length as u64) as usize);
            drop(transfers);
            connection.ask_for_more();
        });
        Ok(())
    }
}

/// What a buffer of `length` bytes costs: the pool deals in powers of two from a page on.
pub(super) fn charged_bytes(length: u64) -> u64 {
    match length {
        0 => 0,
        _ => length.next_power_of_two().max(BUF_ALIGN_BYTES as u64),
    }
}

impl From<VolumeError> for NvmeStatus {
    /// What a host is told about a write that failed.
    fn from(error: VolumeError) -> Self {
        status_of(error, Self::WRITE_FAULT)
    }
}

/// What a host is told about a failure; `usual` if it is one of the drives.
fn status_of(error: VolumeError, usual: NvmeStatus) -> NvmeStatus {
    match error {
        VolumeError::OutOfRange => NvmeStatus::OUT_OF_RANGE,
        VolumeError::ReadOnly => NvmeStatus::WRITE_PROTECTED,
        VolumeError::NoSpace => NvmeStatus::CAPACITY,
        VolumeError::Stopped => NvmeStatus::INTERNAL_PATH,
        _ => usual,
    }
}
