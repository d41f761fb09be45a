//! Which bytes of a mapped volume are where. Pure.

use super::VolumeRef;

/// The sources of a mapped volume: a logical volume, a partition, a thin volume or snapshot at
/// rest.
#[derive(Debug, Clone)]
pub struct MapSpec {
    /// What the parts lie on; segments name these by their place here.
    pub below: Vec<VolumeRef>,
    /// In order, without gaps.
    pub segments: Vec<MapSegment>,
    /// Nothing is ever written through this map.
    pub read_only: bool,
}

/// A run of a mapped volume. Lengths and offsets are whole sectors of 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSegment {
    /// How long it is, in bytes.
    pub len_bytes: u64,
    /// Where it is.
    pub target: SegmentTarget,
}

/// Where a segment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentTarget {
    /// In one piece.
    Linear(Leg),
    /// By turns on several volumes. The segment is whole stripes long.
    Striped {
        /// How much before it is the next one's turn, in bytes.
        stripe_bytes: u64,
        /// Where each part starts.
        legs: Vec<Leg>,
    },
    /// Nowhere: it reads as zeros. Only in maps that are not written.
    Zero,
    /// On a device that is missing: every request is refused.
    Missing,
}

/// A place on a volume below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    /// Which of [`MapSpec::below`].
    pub below: usize,
    /// First byte there.
    pub offset_bytes: u64,
}

/// What is wrong with a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeMapError {
    /// A segment is empty, too long, or not whole sectors or stripes.
    #[error("segment {segment} has a length that cannot be")]
    Length {
        /// Which.
        segment: usize,
    },
    /// A part would lie beyond the end of what is below, or there is nothing below.
    #[error("segment {segment} lies beyond the end of what is below it")]
    Beyond {
        /// Which.
        segment: usize,
    },
    /// Zeros have no place to be written to.
    #[error("segment {segment} is nowhere, so that the volume can only be read")]
    Nowhere {
        /// Which.
        segment: usize,
    },
}

/// A piece of a request, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub len_bytes: u64,
    pub to: Place,
}

/// Where a piece goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Below(Leg),
    Zero,
    Missing,
}

/// A map that was checked: every place it names exists.
#[derive(Debug)]
pub(super) struct Map {
    pub below: Vec<VolumeRef>,
    pub read_only: bool,
    /// With the byte each segment starts at.
    segments: Vec<(u64, MapSegment)>,
    pub size_bytes: u64,
}

impl Map {
    pub fn new(spec: MapSpec) -> Result<Self, VolumeMapError> {
        let sizes: Vec<_> = spec.below.iter().map(VolumeRef::size_bytes).collect();
        let mut segments = Vec::with_capacity(spec.segments.len());
        let mut size_bytes = 0_u64;
        for (ix, segment) in spec.segments.into_iter().enumerate() {
            check(ix, &segment, &sizes)?;
            if segment.target == SegmentTarget::Zero && !spec.read_only {
                return Err(VolumeMapError::Nowhere { segment: ix });
            }
            let start = size_bytes;
            size_bytes =
                start.checked_add(segment.len_bytes).ok_or(VolumeMapError::Length { segment: ix })?;
            segments.push((start, segment));
        }
        Ok(Self { below: spec.below, read_only: spec.read_only, segments, size_bytes })
    }

    /// Cuts a range, which lies inside the volume, into pieces that are one piece below too.
    pub fn pieces(&self, offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = Piece> + '_ {
        let end = offset_bytes + len_bytes;
        let mut at = offset_bytes;
        let mut ix = self.segments.partition_point(|(start, segment)| start + segment.len_bytes <= at);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (start, segment) = &self.segments[ix];
            let piece = segment.piece(at - start, end - at);
            at += piece.len_bytes;
            if at == start + segment.len_bytes {
                ix += 1;
            }
            Some(piece)
        })
    }

    /// Up to where everything behind a byte lies on the same volumes below as that byte.
    pub fn alike_until(&self, offset_bytes: u64) -> u64 {
        let ix = self.segments.partition_point(|(start, segment)| start + segment.len_bytes <= offset_bytes);
        let mut rest = self.segments[ix..].iter();
        let Some((start, first)) = rest.next() else { return offset_bytes };
        let alike = rest.take_while(|(_, segment)| segment.below().eq(first.below()));
        let (start, last) = alike.last().map_or((*start, first), |(start, last)| (*start, last));
        start + last.len_bytes
    }

    /// The segments with the byte each starts at.
    pub fn segments(&self) -> &[(u64, MapSegment)] {
        &self.segments
    }
}

impl MapSegment {
    /// The volumes that it lies on.
    fn below(&self) -> impl Iterator<Item = usize> + '_ {
        let legs = match &self.target {
            SegmentTarget::Zero | SegmentTarget::Missing => &[],
            SegmentTarget::Linear(leg) => std::slice::from_ref(leg),
            SegmentTarget::Striped { legs, .. } => &legs[..],
        };
        legs.iter().map(|leg| leg.below)
    }

    /// The first piece of at most `len` bytes from `at` on.
    fn piece(&self, at: u64, len: u64) -> Piece {
        let len = len.min(self.len_bytes - at);
        match &self.target {
            SegmentTarget::Zero => Piece { len_bytes: len, to: Place::Zero },
            SegmentTarget::Missing => Piece { len_bytes: len, to: Place::Missing },
            SegmentTarget::Linear(leg) => Piece { len_bytes: len, to: leg.place(at) },
            SegmentTarget::Striped { stripe_bytes, legs } => {
                let (stripe, within) = (at / stripe_bytes, at % stripe_bytes);
                let width = legs.len() as u64;
                let leg = &legs[(stripe % width) as usize];
                let to = leg.place(stripe / width * stripe_bytes + within);
                Piece { len_bytes: len.min(stripe_bytes - within), to }
            }
        }
    }
}

impl Leg {
    fn place(&self, at: u64) -> Place {
        Place::Below(Leg { offset_bytes: self.offset_bytes + at, ..*self })
    }
}

fn check(ix: usize, segment: &MapSegment, sizes: &[u64]) -> Result<(), VolumeMapError> {
    let whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(512);
    if !whole(segment.len_bytes) {
        return Err(VolumeMapError::Length { segment: ix });
    }
    let fits = |leg: &Leg, len: u64| {
        let end = leg.offset_bytes.checked_add(len);
        let size = sizes.get(leg.below);
        leg.offset_bytes.is_multiple_of(512) && end.zip(size).is_some_and(|(end, &size)| end <= size)
    };
    let (legs, each) = match &segment.target {
        SegmentTarget::Zero | SegmentTarget::Missing => return Ok(()),
        SegmentTarget::Linear(leg) => (std::slice::from_ref(leg), segment.len_bytes),
        SegmentTarget::Striped { stripe_bytes, legs } => {
            let row = stripe_bytes.checked_mul(legs.len() as u64).filter(|&row| whole(row));
            let row = row.filter(|&row| whole(*stripe_bytes) && segment.len_bytes.is_multiple_of(row));
            let row = row.ok_or(VolumeMapError::Length { segment: ix })?;
            (&legs[..], segment.len_bytes / row * stripe_bytes)
        }
    };
    if legs.iter().all(|leg| fits(leg, each)) { Ok(()) } else { Err(VolumeMapError::Beyond { segment: ix }) }
}
