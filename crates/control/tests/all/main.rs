//! Opening, making and changing arrays and volume groups, on real backends and on simulated ones.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod admit;
mod assembly;
mod bad_input;
mod bitmap;
mod blocks;
mod commit;
mod fixtures;
mod group_claims;
mod group_orders;
mod integrity;
mod journal;
mod lifecycle;
mod loops;
mod lvm_commit;
mod lvm_edit;
mod lvm_restore;
mod operator;
mod overlay;
mod partitions;
mod paths;
mod ppl;
mod ppl_read_only;
mod recovery;
mod rescue;
mod reshape;
mod running;
mod stack;
mod support;
mod undo;
mod volumes;
mod why;
