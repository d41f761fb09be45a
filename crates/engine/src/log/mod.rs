//! The partial parity log of RAID 5: what closes the write hole.

mod spec;

pub use spec::{LogArea, LogEntry, LogFormat, LogSpec, PAGE_BYTES};
