//! One member's I/O on one core: reads, writes, flushes, deadlines, and what is seen of a member's
//! troubles. Nothing here decides what becomes of an array.

mod by_block;
mod deadline;
mod members;
mod outcome;
mod released;

pub(crate) use by_block::{Patience, Undelivered, read_by_block};
pub(crate) use deadline::in_time;
pub(crate) use members::{Bufs, Members, Troubles};
pub(crate) use outcome::{NoRoom, Outcome, WriteCost, WriteLoss};
