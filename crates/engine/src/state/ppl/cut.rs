//! Cuts the writes of a stripe into rounds that a log can make up for. Pure.
//!
//! An entry says: parity is the XOR of these data blocks, as they are now, and of the partial
//! parity that is logged with it. So it can be followed whatever the members hold of the blocks it
//! names, but not without one of them. **Invariant**: of the entries of one log write
//!
//! - each names only blocks that are being written: what is not being written never depends on
//!   them, and a member that dies in the same crash costs no sector that was not being written;
//! - each names only blocks of members that are whole, or just the one block whose member is not:
//!   there parity alone is written, and any mix of old and new parity sectors is a mix of old and
//!   new sectors of that block;
//! - no two are about the same row;
//! - together they fit into one log write: only the newest is ever followed.

use std::ops::Range;

use crate::model::plan::BlockSet;

/// What fits into one log write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Entries.
    pub entries: usize,
    /// Bytes of partial parity, whole pages.
    pub payload_bytes: u64,
}

/// A range of rows in which the same consecutive data blocks are written: one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// Data blocks.
    pub blocks: Range<usize>,
    /// Bytes inside every chunk.
    pub bytes: Range<u64>,
}

impl Span {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// A range of bytes inside every chunk, and the data blocks that are written in it.
pub(crate) type WrittenRow = (Range<u64>, BlockSet);

/// The entries of a round. Rows that follow one another and write the same blocks share one.
///
/// # Panics
/// If a row's blocks do not follow one another: rounds see to it.
pub(crate) fn spans(rows: impl IntoIterator<Item = WrittenRow>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (bytes, written) in rows {
        let mut runs = runs(&written, &BlockSet::EMPTY);
        let blocks = runs.pop().expect("a row has a block that is written");
        assert!(runs.is_empty(), "a round writes consecutive blocks");
        match spans.last_mut() {
            Some(last) if last.blocks == blocks && last.bytes.end == bytes.start => {
                last.bytes.end = bytes.end;
            }
            _ => spans.push(Span { blocks, bytes }),
        }
    }
    spans
}

/// How to write the rows, which ascend: `None` at once, otherwise in these rounds one after the
/// other, each of which may begin when the one before has ended on the members. A stripe has `data`
/// data blocks; those of `absent` are on members that are missing or not whole.
pub(crate) fn rounds(
    rows: &[WrittenRow],
    data: usize,
    absent: &BlockSet,
    limits: Limits,
) -> Option<Vec<Vec<Span>>> {
    let mut layers: Vec<Vec<WrittenRow>> = Vec::new();
    for (bytes, written) in rows {
        for (layer, run) in runs(written, absent).into_iter().enumerate() {
            if layer == layers.len() {
                layers.push(Vec::new());
            }
            layers[layer].push((bytes.clone(), BlockSet::range(run.start, run.end)));
        }
    }
    let rounds: Vec<_> = layers.into_iter().flat_map(|layer| fill(spans(layer), data, limits)).collect();
    (rounds.len() > 1).then_some(rounds)
}

/// Deals spans out to rounds, cutting those that are too long.
fn fill(spans: Vec<Span>, data: usize, limits: Limits) -> Vec<Vec<Span>> {
    let mut rounds: Vec<Vec<Span>> = Vec::new();
    let mut payload_left = 0;
    for span in spans {
        let full = span.blocks == (0..data);
        let mut rest = span;
        while rest.len() > 0 {
            let room = rounds.last().is_some_and(|round| round.len() < limits.entries);
            if !room || (payload_left == 0 && !full) {
                rounds.push(Vec::new());
                payload_left = limits.payload_bytes;
            }
            let len = if full { rest.len() } else { rest.len().min(payload_left) };
            payload_left -= if full { 0 } else { len };
            let cut = rest.bytes.start + len;
            let round = rounds.last_mut().expect("there is one now");
            round.push(Span { blocks: rest.blocks.clone(), bytes: rest.bytes.start..cut });
            rest.bytes.start = cut;
        }
    }
    rounds
}

/// The longest runs of consecutive blocks; each block of `absent` is one by itself.
fn runs(blocks: &BlockSet, absent: &BlockSet) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for block in blocks.iter() {
        let joins =
            |last: &Range<usize>| last.end == block && !absent.contains(block) && !absent.contains(block - 1);
        match runs.last_mut() {
            Some(last) if joins(last) => last.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;
    const LIMITS: Limits = Limits { entries: 4, payload_bytes: 3 * PAGE };

    fn set(blocks: &[usize]) -> BlockSet {
        blocks.iter().copied().collect()
    }

    fn row(pages: Range<u64>, blocks: &[usize]) -> WrittenRow {
        (pages.start * PAGE..pages.end * PAGE, set(blocks))
    }

    fn span(pages: Range<u64>, blocks: Range<usize>) -> Span {
        Span { blocks, bytes: pages.start * PAGE..pages.end * PAGE }
    }

    #[test]
    fn what_fits_goes_at_once() {
        let rows = [row(0..1, &[0]), row(1..3, &[0, 1]), row(3..50, &[0, 1, 2])];
        assert_eq!(rounds(&rows, 3, &BlockSet::EMPTY, LIMITS), None);
        assert_eq!(spans(rows), [span(0..1, 0..1), span(1..3, 0..2), span(3..50, 0..3)]);
        assert_eq!(
            spans([row(0..1, &[1]), row(1..2, &[1]), row(3..4, &[1])]),
            [span(0..2, 1..2), span(3..4, 1..2)]
        );
    }

    #[test]
    fn a_gap_or_an_absent_member_costs_a_pass() {
        let gap = [row(0..1, &[0, 2]), row(1..2, &[2])];
        let expected = vec![vec![span(0..1, 0..1), span(1..2, 2..3)], vec![span(0..1, 2..3)]];
        assert_eq!(rounds(&gap, 3, &BlockSet::EMPTY, LIMITS), Some(expected));
        let full = [row(0..1, &[0, 1, 2])];
        let expected = [0..1, 1..2, 2..3].map(|blocks| vec![span(0..1, blocks)]).to_vec();
        assert_eq!(rounds(&full, 3, &set(&[1]), LIMITS), Some(expected));
        assert_eq!(rounds(&full, 3, &BlockSet::EMPTY, LIMITS), None);
        assert_eq!(rounds(&[row(0..1, &[1])], 3, &set(&[1]), LIMITS), None);
    }

    #[test]
    fn what_is_too_long_or_too_much_is_cut() {
        let expected = vec![vec![span(0..3, 0..1)], vec![span(3..6, 0..1)], vec![span(6..7, 0..1)]];
        assert_eq!(rounds(&[row(0..7, &[0])], 3, &BlockSet::EMPTY, LIMITS), Some(expected));
        let many: Vec<_> = (0..6).map(|at| row(2 * at..2 * at + 1, &[0, 1, 2])).collect();
        let cut = rounds(&many, 3, &BlockSet::EMPTY, LIMITS).expect("six entries");
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
    }

    proptest! {
        /// Each round keeps the invariant, together they write every block once, and none is cut
        /// again.
        #[test]
        fn passes_keep_the_invariant(
            written in prop::collection::vec(prop::collection::btree_set(0usize..5, 0..5), 1..12),
            absent in prop::option::of(0usize..5)
        ) {
            let absent: BlockSet = absent.into_iter().collect();
            let rows: Vec<WrittenRow> = (0..)
                .zip(&written)
                .filter(|(_, blocks)| !blocks.is_empty())
                .map(|(at, blocks)| (at * PAGE..(at + 1) * PAGE, blocks.iter().copied().collect()))
                .collect();
            let cut = rounds(&rows, 5, &absent, LIMITS)
                .unwrap_or_else(|| vec![spans(rows.iter().cloned())].into_iter().filter(|round| !round.is_empty()).collect());
            let mut left = written.clone();
            for round in &cut {
                prop_assert!(round.len() <= LIMITS.entries);
                let partial = round.iter().filter(|span| span.blocks != (0..5));
                prop_assert!(partial.map(Span::len).sum::<u64>() <= LIMITS.payload_bytes);
                let mut rows_of_pass = std::collections::BTreeMap::new();
                for span in round {
                    prop_assert!(span.blocks.len() == 1 || !span.blocks.clone().any(|block| absent.contains(block)));
                    for page in span.bytes.start / PAGE..span.bytes.end / PAGE {
                        let blocks = BlockSet::range(span.blocks.start, span.blocks.end);
                        prop_assert!(rows_of_pass.insert(page, blocks).is_none(), "one entry for a row");
                        for block in span.blocks.clone() {
                            prop_assert!(left[page as usize].remove(&block), "only what is written, and once");
                        }
                    }
                }
                let again: Vec<WrittenRow> =
                    rows_of_pass.into_iter().map(|(page, blocks)| (page * PAGE..(page + 1) * PAGE, blocks)).collect();
                prop_assert_eq!(rounds(&again, 5, &absent, LIMITS), None);
            }
            prop_assert!(left.iter().all(std::collections::BTreeSet::is_empty), "everything is written");
        }
    }
}
