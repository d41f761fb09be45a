//! What a partial parity log is, without its format.

use std::fmt;
use std::sync::Arc;

use wattle_rt::Buf;

use crate::model::units::{MemberIx, Sector};

/// Rows that are logged are whole pages of this many bytes.
pub const PAGE_BYTES: u32 = 4096;

/// Where a member's log is on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogArea {
    /// First byte.
    pub offset_bytes: u64,
    /// Its length.
    pub size_bytes: u64,
}

/// The partial parity log of an array; where each member's is, its [`crate::MemberSpec`] says.
#[derive(Debug, Clone)]
pub struct LogSpec {
    /// Logs follow one another through the area, instead of each overwriting the last at its start.
    pub ring: bool,
    /// How a log is written.
    pub format: Arc<dyn LogFormat>,
}

/// What has to be known to make parity right again after a write that was cut off. The source of
/// the meaning of its fields is docs/formats.md §4.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Array sector of the first modified data.
    pub first: Sector,
    /// Bytes of modified data: rows x modified data blocks.
    pub data_bytes: u32,
    /// The slot that holds the parity of this stripe.
    pub parity_slot: MemberIx,
    /// XOR of the data blocks that are not modified, in order; empty where all are.
    pub partial: Vec<Buf>,
}

impl LogEntry {
    /// Bytes of partial parity.
    #[must_use]
    pub fn partial_bytes(&self) -> u64 {
        self.partial.iter().map(|part| part.len() as u64).sum()
    }
}

/// Encodes logs. Pure.
pub trait LogFormat: fmt::Debug + Send + Sync {
    /// The header that goes before the partial parity of `entries`: one page.
    fn header(&self, generation: u64, entries: &[LogEntry]) -> Buf;

    /// Most entries of one log.
    fn entries_max(&self) -> usize;

    /// Most bytes of partial parity of one log.
    fn payload_max_bytes(&self) -> usize;
}
