//! Reads and writes of a descriptor at an offset, on the calling thread, to their end.

use crate::base::error::IoError;
use std::os::fd::{AsRawFd, OwnedFd};

pub(super) fn pread_all(fd: &OwnedFd, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
    pread_at_least(fd, offset, bytes, bytes.len())
}

/// Reads until the first `needed` bytes are there.
pub(super) fn pread_at_least(
    fd: &OwnedFd,
    offset: u64,
    bytes: &mut [u8],
    needed: usize,
) -> Result<(), IoError> {
    let mut count = 0;
    while count < needed {
        let (bytes, offset) = (&mut bytes[count..], offset + count as u64);
        // SAFETY: the pointer and length are those of a live slice.
        let n = unsafe {
            libc::pread(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), offset.cast_signed())
        };
        match usize::try_from(n) {
            Ok(0) => return Err(IoError::END_OF_DEVICE),
            Ok(n) => count += n,
            Err(_) if IoError::last_os().errno() == libc::EINTR => {}
            Err(_) => return Err(IoError::last_os()),
        }
    }
    Ok(())
}

pub(super) fn pwrite_all(fd: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> Result<(), IoError> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a live slice.
        let n =
            unsafe { libc::pwrite(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset.cast_signed()) };
        match usize::try_from(n) {
            Ok(0) => return Err(IoError::END_OF_DEVICE),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(_) if IoError::last_os().errno() == libc::EINTR => {}
            Err(_) => return Err(IoError::last_os()),
        }
    }
    Ok(())
}
