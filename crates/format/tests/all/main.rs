//! Metadata as real tools made it, to the byte, and bytes that no tool made.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod bcache;
mod common;
mod dm;
mod luks;
mod lvm;
mod lvm_commit;
mod lvm_tools;
mod partition;
mod partition_new;
mod partition_tools;
mod recorded;
mod smoke;
mod superblock;
