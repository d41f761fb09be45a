//! The commands of a queue that are about reservations.

use std::rc::Rc;

use wattle_rt::Buf;

use super::table::{ReservationOrder, opcodes};
use crate::clients::input::Input;
use crate::clients::memory::Hold;
use crate::nvme::admin::room_bytes;
use crate::nvme::command::{DataSite, NvmeCommand, NvmeStatus};
use crate::nvme::connection::{Namespace, QueueConnection, ReadEnd};
use crate::nvme::pdu::PduFrame;
use crate::nvme::transfer::charged_bytes;

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
        let room = if orders { 0 } else { room_bytes(command) };
        let hold = self.account.take(&self.core, charged_bytes(room as u64)).await;
        let Some(namespace) = found else {
            self.skip_data(frame, input).await?;
            self.complete(id, NvmeStatus::INVALID_NAMESPACE, 0, Some(hold));
            return Ok(true);
        };
        let in_capsule =
            matches!(command.data(), Ok(DataSite::Capsule(length)) if length as usize == frame.data_bytes);
        if !orders || !in_capsule || frame.data_bytes != ReservationOrder::data_bytes(opcode) {
            self.skip_data(frame, input).await?;
            match orders {
                true => self.complete(id, NvmeStatus::INVALID_LENGTH, 0, Some(hold)),
                false => self.report(command, room, &namespace, hold),
            }
            return Ok(true);
        }
        let (data, intact) = self.receive_data(frame, input).await?;
        let order = match intact {
            true => ReservationOrder::decode(command, &data),
            false => Err(NvmeStatus::TRANSPORT),
        };
        match order {
            Err(status) => self.complete(id, status, 0, Some(hold)),
            Ok(order) => self.order(id, namespace, order, hold),
        }
        Ok(true)
    }

    /// Carries an order out, and tells other hosts what it changed for them.
    pub(in crate::nvme) fn order(
        self: &Rc<Self>,
        id: u16,
        namespace: Rc<Namespace>,
        order: ReservationOrder,
        hold: Hold,
    ) {
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
