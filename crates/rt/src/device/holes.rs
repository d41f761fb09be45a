//! Where a device is known to hold nothing but zeros, without reading it.

use super::open::knows_holes;
use super::{Device, Kind};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

impl Device {
    /// Ranges within `range` (bytes) that read as zeros, in order, as far as the device knows
    /// without reading: holes of files on file systems that tell them exactly, memory that was
    /// never written. At most `count_max` of them: behind the last one nothing is known then. At
    /// once and on this thread; a file system may have to look.
    #[must_use]
    pub fn holes_blocking(&self, range: Range<u64>, count_max: usize) -> Vec<Range<u64>> {
        match &self.0.kind {
            Kind::File { fd, is_block_device: false, .. } if knows_holes(fd) => {
                holes_of_file(fd, range, count_max)
            }
            Kind::Mem(drive) => drive.holes(range, count_max),
            Kind::Part { whole, start } => {
                let found = whole.holes_blocking(start + range.start..start + range.end, count_max);
                found.into_iter().map(|hole| hole.start - start..hole.end - start).collect()
            }
            // What reads as zeros whatever is written to it is not known to hold them.
            Kind::File { .. } | Kind::Null | Kind::Hosted(_) => Vec::new(),
        }
    }
}

fn holes_of_file(fd: &OwnedFd, range: Range<u64>, count_max: usize) -> Vec<Range<u64>> {
    let mut holes = Vec::new();
    let mut at = range.start;
    while at < range.end && holes.len() < count_max {
        let Ok(hole) = seek(fd, at, libc::SEEK_HOLE) else { break };
        if hole >= range.end {
            break;
        }
        let data = match seek(fd, hole, libc::SEEK_DATA) {
            // Behind the last data is a hole up to the end of the file, as it is by now: where the
            // file was cut off, nothing can be read, and that is no zero.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => seek(fd, 0, libc::SEEK_END),
            data => data,
        };
        let Ok(data) = data else { break };
        at = data.min(range.end);
        if at <= hole {
            break;
        }
        holes.push(hole..at);
    }
    holes
}

/// Where the next data or hole begins, or the end is.
///
/// # Errors
/// `ENXIO` if there is none; another one if the file system cannot tell. Nothing uses the position
/// of the file, which this moves.
fn seek(fd: &OwnedFd, from: u64, what: i32) -> io::Result<u64> {
    let from = libc::off_t::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: lseek takes only integers; `fd` keeps the descriptor open.
    let at = unsafe { libc::lseek(fd.as_raw_fd(), from, what) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenOptions;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const BLOCK: u64 = 64 << 10;

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        vec![range]
    }

    #[test]
    #[cfg_attr(miri, ignore = "holes of a file system")]
    fn holes_of_files_and_their_parts_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(8 * BLOCK).unwrap();
        file.write_all_at(&[1; 4096], 2 * BLOCK).unwrap();
        file.write_all_at(&[1; BLOCK as usize], 5 * BLOCK).unwrap();
        let device = Device::open(&path, OpenOptions::default()).unwrap();
        let zero = |device: &Device, range: Range<u64>, count| {
            let holes = device.holes_blocking(range.clone(), count);
            let within = |hole: &Range<u64>| {
                range.start <= hole.start && hole.start < hole.end && hole.end <= range.end
            };
            assert!(holes.iter().all(within), "{holes:?}");
            holes
        };
        let holes = zero(&device, 0..8 * BLOCK, 100);
        assert_eq!((holes[0].start, holes[0].end), (0, 2 * BLOCK));
        assert!(holes[1].start > 2 * BLOCK && holes[1].end == 5 * BLOCK);
        assert_eq!(holes[2], 6 * BLOCK..8 * BLOCK);
        assert_eq!(zero(&device, 0..8 * BLOCK, 1).len(), 1);
        assert_eq!(zero(&device, 5 * BLOCK..6 * BLOCK, 9), []);
        assert_eq!(zero(&device, BLOCK..2 * BLOCK, 9), one(BLOCK..2 * BLOCK));
        // What is cut off is no hole.
        file.set_len(7 * BLOCK).unwrap();
        assert_eq!(zero(&device, 6 * BLOCK..8 * BLOCK, 9), one(6 * BLOCK..7 * BLOCK));
        assert_eq!(zero(&device, 7 * BLOCK..8 * BLOCK, 9), []);
        file.set_len(8 * BLOCK).unwrap();
        let part = device.part("part", BLOCK, 6 * BLOCK).unwrap();
        let holes = zero(&part, 0..6 * BLOCK, 9);
        assert_eq!((holes[0].clone(), holes[2].clone()), (0..BLOCK, 5 * BLOCK..6 * BLOCK));
    }

    #[test]
    fn memory_that_was_not_written_is_a_hole() {
        let device = Device::mem(4 * BLOCK);
        assert_eq!(device.holes_blocking(0..4 * BLOCK, 9), one(0..4 * BLOCK));
        device.write_blocking(BLOCK, &[1; 512]).unwrap();
        assert_eq!(device.holes_blocking(0..4 * BLOCK, 9), [0..BLOCK, 2 * BLOCK..4 * BLOCK]);
        assert_eq!(device.holes_blocking(512..BLOCK + 1, 9), one(512..BLOCK));
        assert_eq!(device.holes_blocking(0..4 * BLOCK, 1), one(0..BLOCK));
    }
}
