//! What a request is part of: streams, what is read ahead of them, and which rows come again.
//!
//! Nothing here is needed for an answer to be right; all of it only makes answers come sooner.

pub(crate) mod cache;
pub(crate) mod readahead;
mod shard;
mod streams;

pub(crate) use shard::HintShard;
pub(crate) use streams::{StreamHint, Streams};
