//! A volume whose blocks are where metadata says, one by one: the other side of a snapshot, a thin
//! volume, what a cache changed.

use wattle_engine::volume::{Leg, MapSegment, SegmentTarget};

/// Most runs that a volume may consist of; one that is scattered more is not opened. They take
/// about 60 bytes each.
pub(super) const RUNS_MAX: usize = 1 << 21;

/// A map in the making: blocks that are put into it by ascending place, and what is where none was
/// put.
#[derive(Debug)]
pub(super) struct Overlay {
    size_bytes: u64,
    base: Base,
    segments: Vec<MapSegment>,
    /// Where the next block may start.
    at_bytes: u64,
}

/// What is under the blocks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Base {
    /// Nothing: zeros.
    Zeros,
    /// Another volume, so long; zeros behind it.
    Volume(Leg, u64),
}

/// Why a block cannot be put there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum OverlayError {
    /// Two blocks for one place.
    #[error("two blocks are said to be at byte {at_bytes}")]
    Twice {
        /// The place.
        at_bytes: u64,
    },
    /// More than [`RUNS_MAX`].
    #[error(
        "it is scattered over more than {RUNS_MAX} places, which is more than this version keeps in memory"
    )]
    Scattered,
}

impl Overlay {
    pub fn new(size_bytes: u64, base: Base) -> Self {
        Self { size_bytes, base, segments: Vec::new(), at_bytes: 0 }
    }

    /// A block that is at `leg`. What lies behind the end of the volume is cut off.
    pub fn put(&mut self, at_bytes: u64, len_bytes: u64, leg: Leg) -> Result<(), OverlayError> {
        if at_bytes < self.at_bytes {
            return Err(OverlayError::Twice { at_bytes });
        }
        let end = at_bytes.saturating_add(len_bytes).min(self.size_bytes);
        if at_bytes >= end {
            return Ok(());
        }
        self.fill(at_bytes);
        self.push(end - at_bytes, SegmentTarget::Linear(leg));
        if self.segments.len() > RUNS_MAX { Err(OverlayError::Scattered) } else { Ok(()) }
    }

    pub fn finish(mut self) -> Vec<MapSegment> {
        self.fill(self.size_bytes);
        self.segments
    }

    /// Up to `end` nothing was put.
    fn fill(&mut self, end: u64) {
        if let Base::Volume(leg, base_bytes) = self.base {
            let below = end.min(base_bytes);
            if below > self.at_bytes {
                let offset_bytes = leg.offset_bytes + self.at_bytes;
                self.push(below - self.at_bytes, SegmentTarget::Linear(Leg { offset_bytes, ..leg }));
            }
        }
        if end > self.at_bytes {
            self.push(end - self.at_bytes, SegmentTarget::Zero);
        }
    }

    /// Neighbours that go on below are one run.
    fn push(&mut self, len_bytes: u64, target: SegmentTarget) {
        self.at_bytes += len_bytes;
        if let Some(last) = self.segments.last_mut() {
            let goes_on = match (&last.target, &target) {
                (SegmentTarget::Linear(one), SegmentTarget::Linear(next)) => {
                    one.below == next.below
                        && one.offset_bytes.checked_add(last.len_bytes) == Some(next.offset_bytes)
                }
                (SegmentTarget::Zero, SegmentTarget::Zero) => true,
                _ => false,
            };
            if goes_on {
                last.len_bytes += len_bytes;
                return;
            }
        }
        self.segments.push(MapSegment { len_bytes, target });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn splitmix64(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn leg(below: usize, offset_bytes: u64) -> Leg {
        Leg { below, offset_bytes }
    }

    /// Where each sector is: which volume below, and which of its sectors; `None` for zeros.
    fn by_sector(segments: &[MapSegment]) -> Vec<Option<(usize, u64)>> {
        let mut sectors = Vec::new();
        for MapSegment { len_bytes, target } in segments {
            assert!(*len_bytes > 0 && len_bytes.is_multiple_of(512));
            sectors.extend((0..len_bytes / 512).map(|sector| match target {
                SegmentTarget::Linear(leg) => Some((leg.below, leg.offset_bytes / 512 + sector)),
                _ => None,
            }));
        }
        sectors
    }

    /// Random blocks over both kinds of base, against a table of every sector.
    #[test]
    fn random_blocks_are_where_they_were_put() {
        let mut random = 1;
        for round in 0..2000 {
            let size_bytes = (1 + splitmix64(&mut random) % 300) * 512;
            let base_bytes = splitmix64(&mut random) % 400 * 512;
            let base = if round % 3 == 0 { Base::Zeros } else { Base::Volume(leg(0, 512 * 7), base_bytes) };
            let mut model: Vec<Option<(usize, u64)>> = (0..size_bytes / 512)
                .map(|sector| match base {
                    Base::Volume(..) if sector < base_bytes / 512 => Some((0, 7 + sector)),
                    _ => None,
                })
                .collect();
            let mut overlay = Overlay::new(size_bytes, base);
            let mut pieces = 0;
            for block in 0..40 {
                if splitmix64(&mut random).is_multiple_of(2) {
                    continue;
                }
                // Often the one behind the last.
                let to = if splitmix64(&mut random).is_multiple_of(2) {
                    block
                } else {
                    splitmix64(&mut random) % 50
                };
                overlay.put(block * BLOCK, BLOCK, leg(1, to * BLOCK)).unwrap();
                pieces += 1;
                for sector in 0..8 {
                    if let Some(model) = model.get_mut((block * 8 + sector) as usize) {
                        *model = Some((1, to * 8 + sector));
                    }
                }
            }
            let segments = overlay.finish();
            assert_eq!(by_sector(&segments), model);
            assert!(segments.len() <= 2 * pieces + 2, "neighbours are one run");
        }
    }

    #[test]
    fn runs_are_joined() {
        let mut overlay = Overlay::new(1 << 30, Base::Zeros);
        (0..1000).for_each(|block| overlay.put(block * BLOCK, BLOCK, leg(0, block * BLOCK)).unwrap());
        assert_eq!(overlay.finish().len(), 2);
    }

    #[test]
    fn what_cannot_be() {
        let mut overlay = Overlay::new(1 << 20, Base::Zeros);
        overlay.put(BLOCK, BLOCK, leg(0, 0)).unwrap();
        assert_eq!(overlay.put(BLOCK, BLOCK, leg(0, 0)), Err(OverlayError::Twice { at_bytes: BLOCK }));
        assert_eq!(overlay.put(u64::MAX, BLOCK, leg(0, 0)), Ok(()), "behind the end");
        let mut overlay = Overlay::new(u64::MAX / 512 * 512, Base::Zeros);
        let scattered = (0..).find_map(|block| overlay.put(2 * block * BLOCK, BLOCK, leg(0, 0)).err());
        assert_eq!(scattered, Some(OverlayError::Scattered));
    }
}
