//! Files of real file systems, read as their own tools and Linux show them.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs, reason = "tests")]

mod attributes;
mod btrfs;
mod btrfs_devices;
mod census;
mod common;
mod cuts;
mod exfat;
mod ext;
mod ext_journal;
mod fat;
mod formatted_anew;
mod hfs;
mod ntfs;
mod silent;
mod smoke;
mod usage;
mod windows;
mod xfs;
