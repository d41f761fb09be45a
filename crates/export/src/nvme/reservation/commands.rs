//! The commands of a queue that are about reservations.

use std::rc::Rc;

use wattle_rt::Buf;

use super::table::{ReservationOrder, opcodes};
use crate::clients::input::Input;
use crate::clients::memory::Hold;
use crate::nvme::admin::room_bytes;
use crate::nvme::command::{DataSite, NvmeCommand, NvmeStatus};
use crate::nvme::connection::{Namespace, QueueConnection, ReadEnd};
use crate::nvme::limits::DATA_BYTES_MAX;
use crate::nvme::pdu::PduFrame;
use crate::nvme::transfer::{AwaitedCommand, DataPurpose, charged_bytes};

impl QueueConnection {
    /// Takes a command that is about reservations; `false` if it is about something else.
    pub(in crate::nvme) async fn take_reservation(
        self: &Rc<Self>,
        command: &NvmeCommand,
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<bool, ReadEnd> {
        let opcode = command.opcode();
        let orders = matches!(opcode, opcodes::REGISTER | opcodes::ACQUIRE | opcodes::RELEASE);
        if !orders && opcode != opcodes::REPORT {
            return Ok(false);
        }
        let (id, found) = (command.id(), self.shard.namespace(command.nsid()));
        let held = if orders { frame.data_bytes } else { room_bytes(command) };
        let hold = self.presence.take(&self.account, charged_bytes(held as u64)).await?;
        let Some(namespace) = found else {
            self.skip_data(frame, input).await?;
            self.complete(id, NvmeStatus::INVALID_NAMESPACE, 0, Some(hold));
            return Ok(true);
        };
        let fits = |length: u32| {
            (ReservationOrder::data_bytes(opcode)..=DATA_BYTES_MAX).contains(&(length as usize))
        };
        match command.data() {
            Ok(DataSite::Capsule(length))
                if orders && length as usize == frame.data_bytes && fits(length) =>
            {
                match self.receive_data(frame, input).await? {
                    (data, true) => self.order(command, &data, namespace, hold),
                    (_, false) => self.complete(id, NvmeStatus::TRANSPORT, 0, Some(hold)),
                }
                return Ok(true);
            }
            Ok(DataSite::Transport(length)) if orders && frame.data_bytes == 0 && fits(length) => {
                let purpose = DataPurpose::Reservation(*command);
                self.await_data(
                    id,
                    AwaitedCommand { namespace, length_bytes: length as usize, purpose, hold },
                );
                return Ok(true);
            }
            _ => self.skip_data(frame, input).await?,
        }
        match orders {
            true => self.complete(id, NvmeStatus::INVALID_LENGTH, 0, Some(hold)),
            false => self.report(command, held, &namespace, hold),
        }
        Ok(true)
    }

    /// Carries out an order, whose data has come, and tells other hosts what it changed for them.
    pub(in crate::nvme) fn order(
        self: &Rc<Self>,
        command: &NvmeCommand,
        data: &[u8],
        namespace: Rc<Namespace>,
        hold: Hold,
    ) {
        let id = command.id();
        let order = match ReservationOrder::decode(command, data) {
            Ok(order) => order,
            Err(status) => return self.complete(id, status, 0, Some(hold)),
        };
        let connection = self.clone();
        self.core.spawn(async move {
            let Some(queue) = connection.queue.get() else { return };
            let changed = namespace.gate.change(&connection.core, &queue.controller.host, &order).await;
            let status = match changed {
                Ok(notices) => {
                    connection.shard.subsystem.notify(namespace.nsid, &notices);
                    NvmeStatus::SUCCESS
                }
                Err(status) => status,
            };
            connection.complete(id, status, 0, Some(hold));
        });
    }

    /// Tells who has what.
    fn report(&self, command: &NvmeCommand, room: usize, namespace: &Namespace, hold: Hold) {
        const EXTENDED: u32 = 1;
        let length = (command.word(10) as usize).saturating_add(1).saturating_mul(4);
        let status = match command.data() {
            // Identifiers of hosts have 128 bits here.
            _ if command.word(11) & EXTENDED == 0 => NvmeStatus::HOST_ID_FORMAT,
            Ok(DataSite::Transport(_)) if length <= room => {
                let mut data = namespace.gate.table().report();
                data.resize(length, 0);
                return self.complete_with(command.id(), Buf::copy_of(&data), Some(hold));
            }
            Ok(_) => NvmeStatus::INVALID_LENGTH,
            Err(status) => status,
        };
        self.complete(command.id(), status, 0, Some(hold));
    }
}
