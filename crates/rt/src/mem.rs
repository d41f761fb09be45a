//! A drive in memory: sparse pages behind reader-writer locks, safe to share between cores.

use std::sync::{PoisonError, RwLock};

/// Page size. Small enough that a sparse array stays sparse, large enough that the table stays small.
const PAGE_BYTES: u64 = 64 << 10;

/// A page: `None` reads as zeros.
type Page = RwLock<Option<Box<[u8]>>>;

pub(crate) struct MemDrive {
    pages: Vec<Page>,
}

impl MemDrive {
    pub(crate) fn new(size_bytes: u64) -> MemDrive {
        let count = size_bytes.div_ceil(PAGE_BYTES);
        MemDrive { pages: (0..count).map(|_| RwLock::new(None)).collect() }
    }

    /// Fills `bytes` from `offset`; the range must lie inside.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for_pages(offset, bytes.len() as u64, |page, within, part| {
            let page = self.pages[page].read().unwrap_or_else(PoisonError::into_inner);
            match page.as_deref() {
                Some(page) => bytes[part].copy_from_slice(&page[within]),
                None => bytes[part].fill(0),
            }
        });
    }

    /// Writes `bytes` at `offset`; the range must lie inside.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        for_pages(offset, bytes.len() as u64, |page, within, part| {
            let mut page = self.pages[page].write().unwrap_or_else(PoisonError::into_inner);
            let page = page.get_or_insert_with(|| vec![0; PAGE_BYTES as usize].into_boxed_slice());
            page[within].copy_from_slice(&bytes[part]);
        });
    }

    /// Makes a range read as zeros; whole pages are released.
    pub(crate) fn write_zeroes(&self, offset: u64, len: u64) {
        for_pages(offset, len, |page, within, _| {
            let mut page = self.pages[page].write().unwrap_or_else(PoisonError::into_inner);
            if within.len() as u64 == PAGE_BYTES {
                *page = None;
            } else if let Some(page) = page.as_deref_mut() {
                page[within].fill(0);
            }
        });
    }
}

/// Cuts a byte range at page boundaries: page index, range within the page, range within the caller's bytes.
fn for_pages(
    offset: u64,
    len: u64,
    mut each: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut at = 0;
    while at < len {
        let within = (offset + at) % PAGE_BYTES;
        let step = (PAGE_BYTES - within).min(len - at);
        let page = ((offset + at) / PAGE_BYTES) as usize;
        each(page, within as usize..(within + step) as usize, at as usize..(at + step) as usize);
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the naive oracle: one flat vector.
        #[test]
        fn a_sparse_drive_is_a_flat_vector(
            writes in prop::collection::vec((0u64..300_000, 0u64..150_000, any::<u8>()), 1..12),
        ) {
            const SIZE: u64 = 450_000;
            let drive = MemDrive::new(SIZE);
            let mut flat = vec![0u8; SIZE as usize];
            for (offset, len, byte) in writes {
                let range = offset as usize..(offset + len) as usize;
                if byte % 3 == 0 {
                    drive.write_zeroes(offset, len);
                    flat[range].fill(0);
                } else {
                    drive.write(offset, &vec![byte; len as usize]);
                    flat[range].fill(byte);
                }
            }
            let mut seen = vec![1u8; SIZE as usize];
            drive.read(0, &mut seen);
            prop_assert!(seen == flat);
        }
    }
}
