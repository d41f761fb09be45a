//! What tells a drive from others: the bytes at its beginning and its end, where superblocks,
//! labels and partition tables are.
//!
//! Two paths lead to one drive if these bytes are the same through both. What was written and not
//! flushed, or is in doubt, tells nothing; neither do zeros: one blank drive is like another.
//! Invariant: nothing is written by a path that has not shown the drive's own bytes.

use std::ops::Range;

use super::Facts;
use crate::nbd::client::{Client, ClientError};

/// Bytes at the beginning: labels, and superblocks of md 1.1 and 1.2.
const HEAD_BYTES: u64 = 16 << 10;
/// Bytes at the end: superblocks of md 0.90 and 1.0.
const TAIL_BYTES: u64 = 128 << 10;

/// The content of both ends as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Identity(Vec<(u64, Vec<u8>)>);

impl Identity {
    /// Reads it. Bytes that cannot be read are not there.
    pub(super) async fn read(client: &Client, facts: &Facts) -> Result<Self, ClientError> {
        let sector = u64::from(facts.sector_bytes);
        let head = 0..HEAD_BYTES.min(facts.size_bytes);
        let tail = facts.size_bytes.saturating_sub(TAIL_BYTES) / sector * sector..facts.size_bytes;
        let ranges = [head.clone(), tail.start.max(head.end)..tail.end];
        let mut parts = Vec::new();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(u64::from(facts.request_bytes_max));
                match client.read(at, len as u32).await {
                    Ok(bytes) => parts.push((at, bytes.to_vec())),
                    Err(ClientError::Failed(_)) => {}
                    Err(error) => return Err(error),
                }
                at += len;
            }
        }
        Ok(Self(parts))
    }

    /// Takes note of what was written.
    pub(super) fn note(&mut self, offset: u64, data: &[u8]) {
        self.change(offset..offset + data.len() as u64, |own, from| {
            own.copy_from_slice(&data[from..from + own.len()]);
        });
    }

    /// The same of zeros.
    pub(super) fn note_zeroes(&mut self, offset: u64, len: u64) {
        self.change(offset..offset + len, |own, _| own.fill(0));
    }

    fn change(&mut self, range: Range<u64>, change: impl Fn(&mut [u8], usize)) {
        for (start, bytes) in &mut self.0 {
            let (from, to) = (range.start.max(*start), range.end.min(*start + bytes.len() as u64));
            if from < to {
                let own = &mut bytes[(from - *start) as usize..(to - *start) as usize];
                change(own, (from - range.start) as usize);
            }
        }
    }

    /// Whether `seen` is what this drive shows. `uncertain` are bytes that tell nothing.
    pub(super) fn is(&self, seen: &Self, uncertain: &[Range<u64>]) -> bool {
        let mut told = false;
        for (start, bytes) in &self.0 {
            let Some((_, other)) =
                seen.0.iter().find(|(at, other)| at == start && other.len() == bytes.len())
            else {
                continue;
            };
            for (at, (own, other)) in (*start..).zip(bytes.iter().zip(other)) {
                if own == other {
                    told |= *own != 0 && !uncertain.iter().any(|range| range.contains(&at));
                } else if !uncertain.iter().any(|range| range.contains(&at)) {
                    return false;
                }
            }
        }
        told
    }

    /// Whether anything in it tells the drive from a blank one.
    pub(super) fn is_blank(&self) -> bool {
        self.0.iter().all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_told_apart_by_what_is_known_of_their_ends() {
        let drive = |bytes: &[u8]| Identity(vec![(4096, bytes.to_vec())]);
        assert!(drive(&[0, 1, 2, 3]).is(&drive(&[0, 1, 2, 3]), &[]));
        assert!(!drive(&[0, 1, 2, 3]).is(&drive(&[0, 1, 2, 4]), &[]));
        assert!(
            drive(&[0, 1, 2, 3]).is(&drive(&[0, 1, 2, 4]), std::slice::from_ref(&(4099..5000))),
            "that one is in doubt"
        );
        assert!(
            !drive(&[0, 1, 2, 3]).is(&drive(&[0, 1, 2, 3]), std::slice::from_ref(&(4000..5000))),
            "all of it is"
        );
        assert!(!drive(&[0; 4]).is(&drive(&[0; 4]), &[]), "blank drives are alike");
        let mut written = drive(&[0; 4]);
        written.note(4094, &[9, 9, 7, 8]);
        assert!(written.is(&drive(&[7, 8, 0, 0]), &[]));
        written.note_zeroes(0, 1 << 20);
        assert!(written.is_blank());
    }
}
