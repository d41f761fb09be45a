//! Drives of different sizes: cut into bands, so that each array has members of one size and all
//! room that can be redundant is.

/// Partitions start and end on this.
const MIB: u64 = 1 << 20;
/// Drives sold as the same size differ by less.
const ALIKE: f64 = 0.01;

/// A part that a number of drives have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// Where it starts on each of them; `None` for whole drives.
    pub start_bytes: Option<u64>,
    /// How long it is.
    pub len_bytes: u64,
    /// Which drives reach so far.
    pub drives: Vec<usize>,
}

/// The bands of drives of these sizes, the first being that of all drives. Drives of one size have
/// one, and no partitions.
#[must_use]
pub fn bands(sizes_bytes: &[u64]) -> Vec<Band> {
    let mut ends: Vec<u64> = sizes_bytes.to_vec();
    ends.sort_unstable();
    // Of those that are alike the smallest counts.
    ends.dedup_by(|next, kept| (*next as f64) < *kept as f64 * (1.0 + ALIKE));
    let reach =
        |end: u64| (0..sizes_bytes.len()).filter(move |ix| sizes_bytes[*ix] >= end).collect::<Vec<_>>();
    if let [only] = ends[..] {
        return vec![Band { start_bytes: None, len_bytes: only, drives: reach(only) }];
    }
    let mut start = MIB;
    let mut bands = Vec::new();
    for end in ends {
        // The backup of the partition table lies behind the last one. Very small drives have no
        // room between the two.
        let stop = (end / MIB * MIB).saturating_sub(MIB).max(start);
        bands.push(Band { start_bytes: Some(start), len_bytes: stop - start, drives: reach(end) });
        start = stop;
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    const TB: u64 = 1_000_000_000_000;

    #[test]
    fn drives_of_one_size_stay_whole_even_if_they_differ_a_little() {
        let found = bands(&[4 * TB, 4 * TB - 4096, 4 * TB + (1 << 30)]);
        assert_eq!(found, [Band { start_bytes: None, len_bytes: 4 * TB - 4096, drives: vec![0, 1, 2] }]);
    }

    #[test]
    fn larger_drives_have_a_band_more_behind_the_one_that_all_have() {
        let found = bands(&[8 * TB, 4 * TB, 4 * TB, 8 * TB]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].drives, [0, 1, 2, 3]);
        assert_eq!(found[1].drives, [0, 3]);
        assert_eq!(found[0].start_bytes, Some(MIB));
        // They lie behind one another, on whole MiB, and inside their drives.
        assert_eq!(found[1].start_bytes, Some(MIB + found[0].len_bytes));
        assert!(found.iter().all(|band| band.len_bytes.is_multiple_of(MIB)));
        assert!(found[1].start_bytes.unwrap() + found[1].len_bytes < 8 * TB);
    }

    #[test]
    fn drives_without_room_for_a_partition_move_no_band() {
        for small in [0, 1, 512 << 10, MIB, 3 << 19, 2 * MIB] {
            let found = bands(&[small, 2 << 30]);
            let at: Vec<_> = found.iter().map(|band| (band.start_bytes, band.len_bytes)).collect();
            assert_eq!(at, [(Some(MIB), 0), (Some(MIB), (2 << 30) - 2 * MIB)], "{small}");
        }
    }
}
