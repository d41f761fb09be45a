//! Sparse contents: pages that snapshots share until one side writes. What is absent is zeros.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// Small, so that random writes of a block each do not cost many times their size.
pub(crate) const PAGE_BYTES: u64 = 4096;

#[derive(Clone)]
struct Page([u8; PAGE_BYTES as usize]);

#[derive(Clone, Default)]
pub(crate) struct Pages(BTreeMap<u64, Arc<Page>>);

impl Pages {
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for_pages(offset, bytes.len(), |page, within, part| match self.0.get(&page) {
            Some(page) => bytes[part].copy_from_slice(&page.0[within]),
            None => bytes[part].fill(0),
        });
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for_pages(offset, bytes.len(), |page, within, part| {
            let bytes = &bytes[part];
            let page = match self.0.entry(page) {
                // Zeros are there already: a load of zeros costs no memory.
                Entry::Vacant(_) if bytes.iter().all(|byte| *byte == 0) => return,
                Entry::Vacant(absent) => absent.insert(Arc::new(Page([0; PAGE_BYTES as usize]))),
                Entry::Occupied(there) => there.into_mut(),
            };
            Arc::make_mut(page).0[within].copy_from_slice(bytes);
        });
    }

    /// Makes a range read as zeros; whole pages are released.
    pub(crate) fn write_zeroes(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let whole = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        let pages: Vec<u64> = self.present(offset..end).collect();
        for page in pages {
            if whole.contains(&page) {
                self.0.remove(&page);
            } else if let Some(bytes) = self.0.get_mut(&page) {
                let within = |at: u64| {
                    (at.clamp(page * PAGE_BYTES, (page + 1) * PAGE_BYTES) - page * PAGE_BYTES) as usize
                };
                Arc::make_mut(bytes).0[within(offset)..within(end)].fill(0);
            }
        }
    }

    /// The pages of a range of bytes that may not be zeros, by number.
    pub(crate) fn present(&self, bytes: Range<u64>) -> impl Iterator<Item = u64> {
        self.0.range(bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES)).map(|(page, _)| *page)
    }
}

/// Cuts a byte range at page boundaries: page number, range within the page, range within the
/// caller's bytes.
fn for_pages(offset: u64, len: usize, mut each: impl FnMut(u64, Range<usize>, Range<usize>)) {
    let mut at = 0;
    while at < len {
        let here = offset + at as u64;
        let within = (here % PAGE_BYTES) as usize;
        let step = (PAGE_BYTES as usize - within).min(len - at);
        each(here / PAGE_BYTES, within..within + step, at..at + step);
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zeros_on_zeros_take_no_page() {
        let mut pages = Pages::default();
        pages.write(4096, &[0; 8192]);
        assert_eq!(pages.present(0..u64::MAX / 2).count(), 0);
        pages.write(4096, &[1; 4096]);
        pages.write(4096, &[0; 8192]);
        let mut seen = [9; 8192];
        pages.read(4096, &mut seen);
        assert!(seen == [0; 8192] && pages.present(0..u64::MAX / 2).eq([1]));
    }

    proptest! {
        /// Against the naive oracle: one flat vector.
        #[test]
        fn sparse_contents_are_a_flat_vector(
            writes in prop::collection::vec((0u64..30_000, 0u64..15_000, any::<u8>()), 1..12),
        ) {
            const SIZE: u64 = 45_000;
            let mut pages = Pages::default();
            let mut flat = vec![0u8; SIZE as usize];
            for (offset, len, byte) in writes {
                let range = offset as usize..(offset + len) as usize;
                if byte % 3 == 0 {
                    pages.write_zeroes(offset, len);
                    flat[range].fill(0);
                } else {
                    pages.write(offset, &vec![byte; len as usize]);
                    flat[range].fill(byte);
                }
            }
            let mut seen = vec![1u8; SIZE as usize];
            pages.read(0, &mut seen);
            prop_assert!(seen == flat);
        }
    }
}
