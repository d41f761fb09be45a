//! Cuts the requests of a batch into rows: ranges at the same place in every chunk in which the
//! same data blocks are touched from end to end. Pure.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::model::plan::BlockSet;

/// The part of one request in one data block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// Data block.
    pub block: usize,
    /// Bytes inside the chunk.
    pub bytes: Range<u64>,
    /// Which request.
    pub piece: usize,
    /// Where in the request's buffer it starts.
    pub at: usize,
}

/// A range of bytes inside every chunk, and the data blocks that requests touch in all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub bytes: Range<u64>,
    pub touched: BlockSet,
}

impl Row {
    pub fn len(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }
}

/// Segments of a batch: most have one.
pub(super) type Segments = SmallVec<[Segment; 2]>;

/// Rows of a batch: most have one.
pub(super) type Rows = SmallVec<[Row; 2]>;

/// Cuts pieces, given as (first byte in the stripe's data, length), at chunk boundaries.
pub(super) fn segments(pieces: impl Iterator<Item = (u64, usize)>, chunk_bytes: u64) -> Segments {
    let mut segments = Segments::new();
    for (piece, (start, len)) in pieces.enumerate() {
        let (mut position, end) = (start, start + len as u64);
        while position < end {
            let block_start = position / chunk_bytes * chunk_bytes;
            let stop = end.min(block_start + chunk_bytes);
            segments.push(Segment {
                block: (position / chunk_bytes) as usize,
                bytes: position - block_start..stop - block_start,
                piece,
                at: (position - start) as usize,
            });
            position = stop;
        }
    }
    segments
}

/// The rows of `segments`, ascending; gaps that nothing touches are left out.
pub(super) fn rows(segments: &[Segment]) -> Rows {
    if let [only] = segments {
        return smallvec![Row { bytes: only.bytes.clone(), touched: [only.block].into_iter().collect() }];
    }
    let mut edges: SmallVec<[u64; 4]> =
        segments.iter().flat_map(|segment| [segment.bytes.start, segment.bytes.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut rows: Rows =
        edges.windows(2).map(|edge| Row { bytes: edge[0]..edge[1], touched: BlockSet::EMPTY }).collect();
    for segment in segments {
        for row in covered(&rows, segment) {
            rows[row].touched.insert(segment.block);
        }
    }
    rows.retain(|row| !row.touched.is_empty());
    rows
}

/// The same rows, cut at `edges` that lie inside them.
pub(super) fn cut(rows: &[Row], mut edges: Vec<u64>) -> Rows {
    edges.sort_unstable();
    edges.dedup();
    let mut cut = Rows::new();
    for row in rows {
        let mut start = row.bytes.start;
        let first = edges.partition_point(|edge| *edge <= start);
        let inside = edges[first..].iter().copied().take_while(|edge| *edge < row.bytes.end);
        for end in inside.chain([row.bytes.end]) {
            cut.push(Row { bytes: start..end, touched: row.touched });
            start = end;
        }
    }
    cut
}

/// Indexes of the rows that lie in `segment`.
pub(super) fn covered(rows: &[Row], segment: &Segment) -> Range<usize> {
    let first = rows.partition_point(|row| row.bytes.start < segment.bytes.start);
    let end = rows.partition_point(|row| row.bytes.start < segment.bytes.end);
    first..end
}

/// One value per row and block, some of them absent. Most are one row of few blocks.
#[derive(Debug)]
pub(super) struct Grid<T> {
    blocks: usize,
    cells: SmallVec<[Option<T>; 8]>,
}

impl<T> Grid<T> {
    pub fn new(rows: usize, blocks: usize) -> Self {
        Self { blocks, cells: (0..rows * blocks).map(|_| None).collect() }
    }

    pub fn get(&self, row: usize, block: usize) -> Option<&T> {
        self.cells[row * self.blocks + block].as_ref()
    }

    pub fn set(&mut self, row: usize, block: usize, value: T) {
        self.cells[row * self.blocks + block] = Some(value);
    }

    pub fn take(&mut self, row: usize, block: usize) -> Option<T> {
        self.cells[row * self.blocks + block].take()
    }

    /// The blocks of a row that are there.
    pub fn present(&self, row: usize) -> BlockSet {
        (0..self.blocks).filter(|&block| self.get(row, block).is_some()).collect()
    }

    pub fn row_mut(&mut self, row: usize) -> &mut [Option<T>] {
        &mut self.cells[row * self.blocks..][..self.blocks]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_over_three_chunks_has_three_segments_and_rows_where_they_overlap() {
        let segments = segments([(3000, 6000)].into_iter(), 4096);
        let of = |segment: &Segment| (segment.block, segment.bytes.clone(), segment.at);
        assert_eq!(
            segments.iter().map(of).collect::<Vec<_>>(),
            [(0, 3000..4096, 0), (1, 0..4096, 1096), (2, 0..808, 5192)]
        );
        let rows = rows(&segments);
        let of = |row: &Row| (row.bytes.clone(), row.touched.iter().collect::<Vec<_>>());
        assert_eq!(
            rows.iter().map(of).collect::<Vec<_>>(),
            [(0..808, vec![1, 2]), (808..3000, vec![1]), (3000..4096, vec![0, 1])]
        );
    }

    #[test]
    fn rows_are_cut_at_the_edges_inside_them() {
        let rows = [(0..8, 1), (8..16, 2), (24..32, 3)]
            .map(|(bytes, block)| Row { bytes, touched: [block].into_iter().collect() });
        let of = |row: &Row| (row.bytes.clone(), row.touched.iter().next());
        assert_eq!(
            cut(&rows, vec![26, 4, 8, 20, 24, 4, 40]).iter().map(of).collect::<Vec<_>>(),
            [(0..4, Some(1)), (4..8, Some(1)), (8..16, Some(2)), (24..26, Some(3)), (26..32, Some(3))]
        );
        assert_eq!(cut(&rows, Vec::new()).as_slice(), rows);
    }

    proptest! {
        /// Every touched byte is in exactly one row, with exactly the blocks that are touched
        /// there.
        #[test]
        fn rows_agree_with_a_map_of_every_byte(
            pieces in proptest::collection::vec((0u64..400, 1usize..120), 1..12), chunk in 16u64..64
        ) {
            let segments = segments(pieces.iter().copied(), chunk);
            let rows = rows(&segments);
            for offset in 0..chunk {
                let touched: BlockSet = (0..40usize)
                    .filter(|&block| pieces.iter().any(|&(start, len)| {
                        (start..start + len as u64).contains(&(block as u64 * chunk + offset))
                    }))
                    .collect();
                let here: Vec<_> = rows.iter().filter(|row| row.bytes.contains(&offset)).collect();
                if touched.is_empty() {
                    prop_assert!(here.is_empty());
                } else {
                    prop_assert_eq!(here.len(), 1);
                    prop_assert_eq!(here[0].touched, touched);
                }
            }
            for segment in &segments {
                let covered = &rows[covered(&rows, segment)];
                prop_assert_eq!(covered.iter().map(|row| row.len() as u64).sum::<u64>(), segment.bytes.end - segment.bytes.start);
            }
        }
    }
}
