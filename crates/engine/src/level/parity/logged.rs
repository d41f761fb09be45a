//! The partial parity log's part of a write: in which rounds it goes, and what the log has to know
//! of each.

use wattle_parity::Kernels;
use wattle_rt::{Buf, BufMut};

use super::Work;
use super::rows::{self, Grid, Row, Segment};
use crate::lease::queue::WritePiece;
use crate::model::health::{Health, MemberState};
use crate::model::plan::BlockSet;
use crate::model::units::{SECTOR_BYTES, Sector};
use crate::state::ppl::{self, LogEntry, Span, WrittenRow};

impl Work<'_> {
    /// The parts in which the pieces have to be written, the last one first; `None` if they may go
    /// at once.
    pub(super) fn parts(
        &self,
        health: &Health,
        rows: &[Row],
        segments: &[Segment],
        pieces: &[WritePiece],
    ) -> Option<Vec<Vec<WritePiece>>> {
        let limits = self.shard.state.log.as_ref()?.limits();
        let whole = |block: usize| health.state(self.member(block)) == MemberState::InSync;
        let absent: BlockSet = (0..self.data()).filter(|&block| !whole(block)).collect();
        let rounds = ppl::rounds(&written(rows), self.data(), &absent, limits)?;
        let part =
            |round: &Vec<Span>| round.iter().flat_map(|span| self.cut(span, segments, pieces)).collect();
        Some(rounds.iter().rev().map(part).collect())
    }

    /// What of the pieces lies in a span.
    fn cut(&self, span: &Span, segments: &[Segment], pieces: &[WritePiece]) -> Vec<WritePiece> {
        let inside = segments.iter().filter(|segment| span.blocks.contains(&segment.block));
        let cut = inside.filter_map(|segment| {
            let bytes = segment.bytes.start.max(span.bytes.start)..segment.bytes.end.min(span.bytes.end);
            if bytes.is_empty() {
                return None;
            }
            let piece = &pieces[segment.piece];
            let at = segment.at + (bytes.start - segment.bytes.start) as usize;
            Some(WritePiece {
                start: segment.block as u64 * self.chunk_bytes + bytes.start,
                buf: piece.buf.slice(at..at + (bytes.end - bytes.start) as usize),
                durability: piece.durability,
                hint: piece.hint,
            })
        });
        cut.collect()
    }

    /// The log's entries for a write of `blocks`, which hold the new parity of every row.
    pub(super) fn entries(
        &self,
        rows: &[Row],
        segments: &[Segment],
        pieces: &[WritePiece],
        blocks: &Grid<Buf>,
    ) -> Vec<LogEntry> {
        let mut changed: Vec<Vec<Buf>> = vec![Vec::new(); rows.len()];
        for segment in segments {
            for row in rows::covered(rows, segment) {
                let at = segment.at + (rows[row].bytes.start - segment.bytes.start) as usize;
                changed[row].push(pieces[segment.piece].buf.slice(at..at + rows[row].len()));
            }
        }
        let mut row = 0;
        let entry = |span: Span| {
            let full = span.blocks == (0..self.data());
            let offset = Sector(span.bytes.start / SECTOR_BYTES);
            let mut partial = Vec::new();
            while row < rows.len() && rows[row].bytes.end <= span.bytes.end {
                if !full {
                    let parity = blocks.get(row, self.data()).expect("a logged row has its parity written");
                    partial.push(partial_parity(parity, &changed[row]));
                }
                row += 1;
            }
            LogEntry {
                first: self.shard.fixed.geometry.array_sector_of(self.map.stripe, span.blocks.start, offset),
                data_bytes: ((span.bytes.end - span.bytes.start) * span.blocks.len() as u64) as u32,
                parity_slot: self.map.p(),
                partial,
            }
        };
        ppl::spans(written(rows)).into_iter().map(entry).collect()
    }
}

/// XOR of the data blocks of a row that do not change: its new parity without its new data,
/// whatever made that.
fn partial_parity(parity: &Buf, changed: &[Buf]) -> Buf {
    let sources: Vec<&[u8]> = std::iter::once(&**parity).chain(changed.iter().map(|buf| &**buf)).collect();
    let mut sum = BufMut::alloc(parity.len());
    Kernels::best().xor_gen(&mut sum, &sources);
    sum.freeze()
}

fn written(rows: &[Row]) -> Vec<WrittenRow> {
    rows.iter().map(|row| (row.bytes.clone(), row.touched)).collect()
}
