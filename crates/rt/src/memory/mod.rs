//! The memory of operations: buffers, the arena that a ring registers, and sparse pages.

pub(crate) mod arena;
pub(crate) mod buf;
pub(crate) mod hint;
pub(crate) mod pages;
pub(crate) mod slab;
