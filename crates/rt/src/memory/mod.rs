//! The memory of operations: buffers, the arena that a ring registers, and sparse pages;
//! memory of other processes.

pub(crate) mod arena;
pub(crate) mod buf;
pub(crate) mod hint;
pub(crate) mod pages;
pub(crate) mod shared;
pub(crate) mod slab;
