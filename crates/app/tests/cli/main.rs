//! The command from outside, as a user sees it: contracts that every command keeps, bad input,
//! arrays that a kernel wrote, and serving to real NBD clients.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "these are tests: they fail loudly and may wait"
)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(clippy::zombie_processes, reason = "Serve waits for its process when it is dropped")]

mod alert_sinks;
mod alerts;
mod any_bytes;
mod arrays;
mod audit;
mod audit_cases;
mod audit_system;
mod bad_input;
mod bcache;
mod bench;
mod browser;
mod btrfs_devices;
mod compat;
mod console;
mod containers;
mod contract;
mod copied;
mod copy;
mod degraded_lv;
mod docs;
mod files;
mod fuse;
mod geometry;
mod get_again;
mod get_durable;
mod get_twins;
mod gone_clients;
mod group_changes;
mod group_claims;
mod group_orders;
mod growing;
mod hangs;
mod harness;
mod integrity;
mod kept_copies;
mod kills;
mod layers;
mod left_behind;
mod lockless;
mod luks;
mod lvm;
mod lvm_beside;
mod lvm_whole;
mod mdadm;
mod memory;
mod metrics;
mod mount;
mod nbd;
mod nbd_status;
mod nvme;
mod operating;
mod operator;
mod orders;
mod overlay;
mod partial_group;
mod partitions;
mod placement;
mod plan;
mod plan_apply;
mod qos;
mod relative;
mod remote;
mod remote_away;
mod rescue;
mod reshaping;
mod scrubs;
mod serving;
mod simulate;
mod tar_stream;
mod tls;
mod tour;
mod trust;
mod ublk;
mod undo;
mod undo_groups;
mod undo_orders;
mod undo_starts;
mod unread_notes;
mod up;
mod up_read_only;
mod vendors;
mod vhost;
mod volumes_alone;
mod windows;
mod words;
