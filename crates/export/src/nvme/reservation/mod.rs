//! Reservations: hosts register keys with a namespace, one of them reserves it, and what the others
//! may do then depends on the type. Clusters fence a member by this.
//!
//! Reading order: `table` (who has what, and what an order makes of it, pure), `record` (the same
//! as text, for a restart), `gate` (what every command passes), `commands` (the commands of a
//! queue), `events` (what a host hears of orders of others).
//!
//! Invariant: once an order is acknowledged, no command that it forbids is under way: one that was
//! admitted before has ended. So a host that was preempted writes nothing more, whatever was on its
//! way.
//!
//! Reservations are between hosts of the target: clients of other exports do not know of them.
//!
//! Source: NVM Express Base Specification 2.0, section 8.19, and the commands 0Dh, 0Eh, 11h and 15h
//! of section 7.

mod commands;
mod events;
mod gate;
pub(crate) mod record;
pub(crate) mod table;

pub(super) use events::{LOG_PAGE, ReservationLog};
pub use gate::ReservationStore;
pub(super) use gate::{CommandAdmission, Lane, ReservationGate};
pub(super) use table::{DataAccess, ReservationNotice, opcodes};
