//! The part of an operation that is still to be moved, as the kernel's `iovec`s, and the facts both
//! real backends share.

use crate::base::error::IoError;
use crate::memory::buf::BufMut;
use crate::op::{Durability, Unmap};

/// The kernel takes this many segments at once; the rest is continued.
const SEGMENTS_MAX: usize = libc::UIO_MAXIOV as usize;

/// Appends what is left of `bufs` after `moved` bytes, for the kernel to read.
pub(crate) fn push_out(
    bufs: &[impl std::ops::Deref<Target = [u8]>],
    moved: usize,
    iov: &mut Vec<libc::iovec>,
) {
    push(bufs.iter().map(|buf| (buf.as_ptr().cast_mut(), buf.len())), moved, iov);
}

/// Appends what is left of `bufs` after `moved` bytes, for the kernel to fill.
pub(crate) fn push_in(bufs: &mut [BufMut], moved: usize, iov: &mut Vec<libc::iovec>) {
    push(bufs.iter_mut().map(|buf| (buf.as_mut_ptr(), buf.len())), moved, iov);
}

fn push(segments: impl Iterator<Item = (*mut u8, usize)>, moved: usize, iov: &mut Vec<libc::iovec>) {
    let mut skip = moved;
    for (start, len) in segments {
        if iov.len() == SEGMENTS_MAX {
            return;
        }
        let skipped = skip.min(len);
        skip -= skipped;
        if skipped < len {
            iov.push(libc::iovec { iov_base: start.wrapping_add(skipped).cast(), iov_len: len - skipped });
        }
    }
}

/// The flag of `pwritev2` that forces a write to the medium.
pub(crate) fn write_flags(durability: Durability) -> i32 {
    match durability {
        Durability::Cached => 0,
        Durability::Fua => libc::RWF_DSYNC,
    }
}

/// The mode of `fallocate`. Both guarantee zeros and leave the size alone.
pub(crate) fn zero_mode(unmap: Unmap) -> i32 {
    match unmap {
        Unmap::Yes => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        Unmap::No => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
    }
}

/// What a failed `fallocate` means: drives that cannot zero this range answer `EINVAL`, and the
/// caller has another way.
pub(crate) fn zero_error(error: IoError) -> IoError {
    if error.errno() == libc::EINVAL { IoError::UNSUPPORTED } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::buf::Buf;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_left_is_the_tail(lens in prop::collection::vec(0usize..50, 0..8), moved in 0usize..400) {
            let bufs: Vec<Buf> = lens.iter().enumerate().map(|(at, &len)| Buf::copy_of(&vec![at as u8; len])).collect();
            let whole: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
            let mut iov = Vec::new();
            push_out(&bufs, moved.min(whole.len()), &mut iov);
            let left: Vec<u8> = iov
                .iter()
                // SAFETY: each segment lies inside a live buffer.
                .flat_map(|seg| unsafe { std::slice::from_raw_parts(seg.iov_base.cast::<u8>(), seg.iov_len) }.to_vec())
                .collect();
            prop_assert_eq!(&left[..], &whole[moved.min(whole.len())..]);
            prop_assert!(iov.iter().all(|seg| seg.iov_len > 0));
        }
    }

    #[test]
    fn more_segments_than_the_kernel_takes_are_left_for_later() {
        let bufs: Vec<Buf> = (0..2000).map(|_| Buf::zeros(1)).collect();
        let mut iov = Vec::new();
        push_out(&bufs, 10, &mut iov);
        assert_eq!(iov.len(), SEGMENTS_MAX);
    }
}
