//! Places that a command does not write itself and that change because of it: an array writes its
//! superblocks as long as it runs, a member that is added is filled. What they are going to hold
//! is not known beforehand, so a log has only what they held: any change of them counts as written
//! since, and they come back only if the operator insists.

use wattle_rt::Device;

/// Superblocks, partition tables, labels and most signatures are this near to an end of a device.
const END_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;

/// Such a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoDirectory {
    /// Which of the sites it is on.
    pub site: usize,
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: u64,
}

impl UndoDirectory {
    /// As far as it is on the device, in whole sectors.
    pub(crate) fn on(self, device: &Device) -> Self {
        let end = device.size_bytes() / SECTOR_BYTES * SECTOR_BYTES;
        let from = (self.offset_bytes / SECTOR_BYTES * SECTOR_BYTES).min(end);
        let to = self.offset_bytes.saturating_add(self.len_bytes).min(end).next_multiple_of(SECTOR_BYTES);
        Self { offset_bytes: from, len_bytes: to.saturating_sub(from), ..self }
    }
}

/// Both ends of a device: what tells what was on it.
pub fn ends(site: usize, device: &Device) -> impl Iterator<Item = UndoDirectory> {
    let last = device.size_bytes().saturating_sub(END_BYTES);
    [0, last]
        .map(|offset_bytes| UndoDirectory { site, offset_bytes, len_bytes: END_BYTES }.on(device))
        .into_iter()
}
