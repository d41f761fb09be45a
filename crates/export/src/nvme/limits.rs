//! Every bound of the target, in one place, with its arithmetic.
//!
//! Memory: a connection holds one stream buffer, a reserve of its own, what it borrows from its
//! core's share (as of every client: [`crate::clients::limits`]), and the data of the transfers
//! that it was asked for ([`TRANSFER_BYTES_MAX`]). At the defaults: 256 connections x (256 KiB
//! + 1 MiB + 4 MiB) + 1 GiB = 2.3 GiB at most, whatever hosts do.

use std::time::Duration;

/// The longest read or write: 2 to the power of [`MDTS`], in pages of 4 KiB.
pub const DATA_BYTES_MAX: usize = PAGE_BYTES << MDTS;
/// What Identify says of it.
pub const MDTS: u8 = 8;
/// The smallest page of a host's memory, by which the controller reckons (CAP.MPSMIN of 0).
pub const PAGE_BYTES: usize = 4096;
/// Writes up to this length come with their command; longer ones are asked for.
pub const IN_CAPSULE_BYTES_MAX: usize = 256 << 10;
/// Data that comes with a command of the admin queue: the transport fixes it.
pub const ADMIN_CAPSULE_BYTES: usize = 8 << 10;
/// Data of one PDU that answers a request for it: all of the longest write.
pub const HOST_DATA_BYTES_MAX: usize = DATA_BYTES_MAX;
/// Data that one connection has asked for and not yet carried out, in bytes. It is no other
/// connection's and is lent to none: what waits for a host holds up no other host.
pub const TRANSFER_BYTES_MAX: usize = 4 * DATA_BYTES_MAX;
/// Entries of a queue.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
/// Queues for reads and writes of one controller.
pub const IO_QUEUES_MAX: u16 = 128;
/// Controllers of a subsystem; a host has one for each path.
pub const CONTROLLERS_MAX: usize = 256;
/// Requests for events that a controller keeps.
pub const EVENT_REQUESTS_MAX: usize = 4;
/// Changed namespaces that a controller lists one by one.
pub const CHANGED_NAMESPACES_MAX: usize = 1024;
/// Changes of reservations that a controller keeps for its host to read.
pub const RESERVATION_NOTICES_MAX: usize = 255;
/// Namespaces of a subsystem at a time.
pub const NAMESPACES_MAX: u32 = 1024;
/// The largest NSID: they are spread, so that each volume keeps its own.
pub const NSID_MAX: u32 = 0x00ff_ffff;
/// A host that named no time is given up after so long without a command, if it only discovers.
pub const DISCOVERY_IDLE_MAX: Duration = Duration::from_secs(120);
/// The unit in which a host's keep-alive time is rounded up (KAS), in 100 ms.
pub const KEEP_ALIVE_UNIT: u16 = 10;

/// A command that has more of them than this is answered with an error.
pub const DISCARD_RANGES_MAX: usize = 256;

const _: () = assert!(IN_CAPSULE_BYTES_MAX <= DATA_BYTES_MAX && DATA_BYTES_MAX <= 32 << 20);

/// Connections of hosts that have not proved their names, if they have to, or only ask what there
/// is. When another one comes, the oldest ends: they keep no host out that has proved its name.
pub const UNPROVED_MAX: usize = 32;
/// Exponentiations of a subsystem at a time: hosts that have proved nothing yet take no more than
/// one processor from those that have. A connection has two computed, each of which takes one to
/// three milliseconds in the group that is preferred, and up to thirty in the largest: behind
/// [`UNPROVED_MAX`] others that all chose that one, a host waits for a second each time, of the ten
/// that a connection has to become a queue.
pub const EXPONENTIATIONS_MAX: usize = 1;
