//! What a server has for clients that connect over a network, whichever protocol they speak: what
//! the bytes of a connection go through (`channel`), how they are received (`input`, and `gather`,
//! which FUSE has too), what a connection may hold (`memory`, `limits`), which connections there
//! are (`connections`), and what becomes of requests whose client goes (`leaving`).

pub(crate) mod channel;
pub(crate) mod connections;
pub(crate) mod gather;
pub(crate) mod input;
pub(crate) mod leaving;
pub mod limits;
pub(crate) mod memory;
