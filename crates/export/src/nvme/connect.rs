//! The first command of a queue: which controller it belongs to, and how large it is. Pure.
//!
//! Source: NVM Express over Fabrics 1.1, section 3.3.

use super::command::{NvmeCommand, NvmeStatus};
use super::limits::QUEUE_ENTRIES_MAX;
use super::subsystem::NQN_BYTES_MAX;

/// The data of Connect.
pub const CONNECT_BYTES: usize = 1024;
/// Stands for any controller: the subsystem makes one.
const ANY_CONTROLLER: u16 = u16::MAX;
/// Stands for any controller that does not change, which none of these is.
const STATIC_CONTROLLER: u16 = 0xfffe;

/// What a host asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The queue's number; 0 is the admin queue.
    pub queue: u16,
    /// Its entries.
    pub entries: u16,
    /// The host wants to know how many commands were taken.
    pub flow_control: bool,
    /// How often the host will be heard of; 0 for no promise.
    pub keep_alive_milliseconds: u32,
    /// The controller that the queue belongs to; means nothing for the admin queue.
    pub controller: u16,
    /// What tells the host from others.
    pub host_id: [u8; 16],
    /// What the host wants to be connected with.
    pub subsystem_nqn: String,
    /// How the host calls itself.
    pub host_nqn: String,
}

impl ConnectRequest {
    /// From the command and its data.
    ///
    /// # Errors
    /// What cannot be: the status, and where.
    pub fn decode(command: &NvmeCommand, data: &[u8]) -> Result<Self, (NvmeStatus, u64)> {
        const NO_FLOW_CONTROL: u8 = 1 << 2;
        let field = |at: usize| u16::from_le_bytes([command.0[at], command.0[at + 1]]);
        if field(40) != 0 {
            return Err((NvmeStatus::CONNECT_FORMAT, 0));
        }
        if data.len() != CONNECT_BYTES {
            return Err((NvmeStatus::INVALID_LENGTH, 0));
        }
        let (queue, last_entry) = (field(42), field(44));
        if last_entry == 0 || last_entry >= QUEUE_ENTRIES_MAX {
            return Err(Self::wrong_command(44));
        }
        let controller = u16::from_le_bytes([data[16], data[17]]);
        let fits = match queue {
            0 => controller == ANY_CONTROLLER,
            _ => controller < STATIC_CONTROLLER,
        };
        if !fits {
            return Err(Self::wrong_data(16));
        }
        let mut host_id = [0; 16];
        host_id.copy_from_slice(&data[..16]);
        Ok(Self {
            queue,
            entries: last_entry + 1,
            flow_control: command.0[46] & NO_FLOW_CONTROL == 0,
            keep_alive_milliseconds: command.u32(48),
            controller,
            host_id,
            subsystem_nqn: name(&data[256..512]).ok_or_else(|| Self::wrong_data(256))?,
            host_nqn: name(&data[512..768]).ok_or_else(|| Self::wrong_data(512))?,
        })
    }

    /// A field of the command, at this offset, cannot be.
    pub fn wrong_command(offset: u16) -> (NvmeStatus, u64) {
        (NvmeStatus::CONNECT_INVALID, offset.into())
    }

    /// A field of the data, at this offset, cannot be.
    pub fn wrong_data(offset: u16) -> (NvmeStatus, u64) {
        (NvmeStatus::CONNECT_INVALID, u64::from(offset) | 1 << 16)
    }
}

/// A name that ends with a zero.
fn name(bytes: &[u8]) -> Option<String> {
    let length = bytes.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let is_name = (1..=NQN_BYTES_MAX).contains(&length) && !text.chars().any(char::is_control);
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(queue: u16, last_entry: u16, controller: u16, host: &str) -> Result<ConnectRequest, u64> {
        let mut command = [0; 64];
        command[42..44].copy_from_slice(&queue.to_le_bytes());
        command[44..46].copy_from_slice(&last_entry.to_le_bytes());
        let mut data = [0; CONNECT_BYTES];
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..261].copy_from_slice(b"nqn.s");
        data[512..512 + host.len()].copy_from_slice(host.as_bytes());
        ConnectRequest::decode(&NvmeCommand(command), &data).map_err(|(_, at)| at)
    }

    #[test]
    fn a_queue_names_its_controller_and_its_size() {
        let admin = ask(0, 31, u16::MAX, "nqn.h").unwrap();
        assert_eq!((admin.entries, admin.flow_control, admin.host_nqn.as_str()), (32, true, "nqn.h"));
        assert_eq!(ask(3, 127, 5, "nqn.h").unwrap().controller, 5);
        assert_eq!(ask(0, 31, 5, "nqn.h"), Err(16 | 1 << 16));
        assert_eq!(ask(1, 31, u16::MAX, "nqn.h"), Err(16 | 1 << 16));
        assert_eq!(ask(1, 0, 5, "nqn.h"), Err(44));
        assert_eq!(ask(1, QUEUE_ENTRIES_MAX, 5, "nqn.h"), Err(44));
        assert_eq!(ask(1, 31, 5, ""), Err(512 | 1 << 16));
        assert_eq!(ask(1, 31, 5, &"x".repeat(256)), Err(512 | 1 << 16));
    }
}
