//! Commands of queues for reads and writes: carrying them out, and asking for the data of those
//! that do not have it with them, as it is too long, or as the host likes it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wattle_engine::VolumeError;
use wattle_engine::volume::RequestExtent;
use wattle_engine::volume::qos::QosCost;
use wattle_rt::{BUF_ALIGN_BYTES, Buf, BufMut};

use super::command::{
    FABRICS, IoPlan, IoRange, NSID_ALL, NvmeCommand, NvmeStatus, decide_io, discard_ranges, io_opcodes,
};
use super::connection::{Namespace, Opened, QueueConnection, ReadEnd};
use super::limits::TRANSFER_BYTES_MAX;
use super::pdu::{FaultStatus, HostData, PduFault, PduFrame};
use super::reservation::{CommandAdmission, DataAccess};
use crate::clients::input::Input;
use crate::clients::memory::Hold;

/// Commands whose data does not come with them.
#[derive(Default)]
pub(super) struct Transfers {
    /// What was asked for and has not all come, by the command's identifier.
    asked: BTreeMap<u16, Transfer>,
    /// What is asked for once there is room.
    waiting: VecDeque<(u16, Transfer)>,
    /// Of commands that were asked for and are not carried out yet.
    held_bytes: usize,
}

/// The data of one such command.
struct Transfer {
    command: AwaitedCommand,
    /// Nothing is in it before data came, and all is where one PDU brings all of it.
    data: Option<BufMut>,
    received_bytes: usize,
    damaged: bool,
}

/// A command that can be carried out once its data is there.
pub(super) struct AwaitedCommand {
    pub(super) namespace: Rc<Namespace>,
    pub(super) length_bytes: usize,
    pub(super) purpose: DataPurpose,
    pub(super) hold: Hold,
}

/// What the data is for.
pub(super) enum DataPurpose {
    Io(IoPlan),
    Reservation(NvmeCommand),
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
        if command.is_fused() {
            let hold = self.presence.take(&self.account, 0).await?;
            self.skip_data(frame, input).await?;
            self.complete(id, NvmeStatus::INVALID_FIELD, 0, Some(hold));
            return Ok(());
        }
        if command.opcode() == io_opcodes::FLUSH && command.nsid() == NSID_ALL {
            let hold = self.presence.take(&self.account, 0).await?;
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
            let hold = self.presence.take(&self.account, 0).await?;
            self.skip_data(frame, input).await?;
            self.complete(id, planned.err().unwrap_or(NvmeStatus::INVALID_NAMESPACE), 0, Some(hold));
            return Ok(());
        };
        let bytes = match plan {
            IoPlan::Read(range) => charged_bytes(range.length_bytes),
            IoPlan::Write(_, _, true) | IoPlan::Discard(_, true) => charged_bytes(frame.data_bytes as u64),
            _ => 0,
        };
        let hold = self.presence.take(&self.account, bytes).await?;
        let data = match plan {
            IoPlan::Write(_, _, true) | IoPlan::Discard(_, true) => {
                match self.receive_data(frame, input).await? {
                    (data, true) => Some(data.freeze()),
                    (_, false) => {
                        self.complete(id, NvmeStatus::TRANSPORT, 0, Some(hold));
                        return Ok(());
                    }
                }
            }
            IoPlan::Write(_, _, false) | IoPlan::Discard(_, false) => {
                let length_bytes = command.transport_bytes();
                let purpose = DataPurpose::Io(plan);
                self.await_data(id, AwaitedCommand { namespace, length_bytes, purpose, hold });
                return Ok(());
            }
            _ => {
                self.skip_data(frame, input).await?;
                None
            }
        };
        self.core.spawn(self.begin(id, plan, namespace, data, hold));
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
            under_way: Rc::default(),
        });
        opened.insert(namespace.nsid, found.clone());
        found
    }

    /// Counts a command as begun. What comes back does what it asks for, and completes it.
    fn begin(
        self: &Rc<Self>,
        id: u16,
        plan: IoPlan,
        namespace: Rc<Namespace>,
        data: Option<Buf>,
        hold: Hold,
    ) -> impl Future<Output = ()> + use<> {
        let (connection, opened) = (self.clone(), self.open(&namespace));
        let extent = extent(plan, data.as_deref(), opened.volume.size_bytes());
        let before = opened.remains.before(&extent);
        let begun = opened.under_way.begin(extent);
        async move {
            let done = match connection.presence.settled(before).await {
                Ok(()) => connection.execute(plan, &namespace, &opened, data).await,
                Err(error) => Err(error.into()),
            };
            drop(begun);
            match done {
                Ok(Some(data)) => connection.complete_with(id, data, Some(hold)),
                Ok(None) => connection.complete(id, NvmeStatus::SUCCESS, 0, Some(hold)),
                Err(status) => connection.complete(id, status, 0, Some(hold)),
            }
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
            IoPlan::Discard(count, _) => {
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

    /// Asks for the data of a command, once there is room.
    pub(super) fn await_data(&self, id: u16, command: AwaitedCommand) {
        let transfer = Transfer { command, data: None, received_bytes: 0, damaged: false };
        self.transfers.borrow_mut().waiting.push_back((id, transfer));
        self.ask_for_more();
    }

    /// Data that was asked for is needed no more.
    fn used_data(&self, length_bytes: usize) {
        // The connection may have ended meanwhile, and counts nothing any more.
        let mut transfers = self.transfers.borrow_mut();
        let charged = charged_bytes(length_bytes as u64) as usize;
        transfers.held_bytes = transfers.held_bytes.saturating_sub(charged);
        drop(transfers);
        self.ask_for_more();
    }

    /// Asks for the data of commands that wait, as far as there is room.
    fn ask_for_more(&self) {
        loop {
            let mut transfers = self.transfers.borrow_mut();
            let Some((_, next)) = transfers.waiting.front() else { return };
            let length = next.command.length_bytes;
            let held = transfers.held_bytes + charged_bytes(length as u64) as usize;
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
            let length = transfer.command.length_bytes;
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
        let Some(Transfer { command, data: Some(data), damaged, .. }) = complete else {
            return Err(ReadEnd::Ended);
        };
        let AwaitedCommand { namespace, purpose, hold, .. } = command;
        match purpose {
            _ if damaged => self.complete(part.command, NvmeStatus::TRANSPORT, 0, Some(hold)),
            DataPurpose::Reservation(command) => self.order(&command, &data, namespace, hold),
            DataPurpose::Io(plan) => {
                let connection = self.clone();
                let done = self.begin(part.command, plan, namespace, Some(data.freeze()), hold);
                self.core.spawn(async move {
                    done.await;
                    connection.used_data(length);
                });
                return Ok(());
            }
        }
        self.used_data(length);
        Ok(())
    }
}

/// What a command touches; of several ranges all that is between them, too.
fn extent(plan: IoPlan, data: Option<&[u8]>, size_bytes: u64) -> RequestExtent {
    match plan {
        IoPlan::Read(range) => RequestExtent::read(range.offset_bytes, range.length_bytes),
        IoPlan::Write(range, ..) | IoPlan::WriteZeroes(range, ..) => {
            RequestExtent::change(range.offset_bytes, range.length_bytes)
        }
        IoPlan::Discard(count, _) => {
            let ranges = discard_ranges(data.unwrap_or_default(), count, size_bytes).unwrap_or_default();
            let ranges = ranges.iter().filter(|range| range.length_bytes > 0);
            let start = ranges.clone().map(|range| range.offset_bytes).min().unwrap_or(0);
            let end = ranges.map(|range| range.offset_bytes + range.length_bytes).max().unwrap_or(0);
            RequestExtent::change(start, end - start)
        }
        IoPlan::Flush | IoPlan::Nothing => RequestExtent::NONE,
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
