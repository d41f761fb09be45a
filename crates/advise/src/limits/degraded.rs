//! What requests cost while members are missing: averages over every place that a request and the
//! missing members can have in a stripe. Parity rotates, so all places are equally likely.

/// Ways to choose `k` of `n`.
fn choose(n: u32, k: u32) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k).map(|i| f64::from(n - i) / f64::from(i + 1)).product()
}

/// Reads that a read of one block takes on average: one, or as many as a stripe has data blocks if
/// the block is missing.
pub(super) fn reads_of_a_read(members: u32, parities: u32, missing: u32) -> f64 {
    let lost = f64::from(missing) / f64::from(members);
    (1.0 - lost) + lost * f64::from(members - parities)
}

/// Reads and writes that a write of one block takes on average.
pub(super) fn cost_of_a_write(members: u32, parities: u32, missing: u32) -> (f64, f64) {
    let others = members - parities - 1;
    let ways = choose(members, missing);
    let (mut reads, mut writes) = (0.0, 0.0);
    for target in 0..=1.min(missing) {
        for parity in 0..=parities.min(missing - target) {
            let data = missing - target - parity;
            let part = choose(1, target) * choose(parities, parity) * choose(others, data) / ways;
            let (r, w) = cost(members, parities, target == 1, parity, data);
            reads += part * r;
            writes += part * w;
        }
    }
    (reads, writes)
}

/// The same with the block itself missing or not, and so many of the parities and of the other data
/// blocks.
fn cost(members: u32, parities: u32, target: bool, parity: u32, data: u32) -> (f64, f64) {
    let others = members - parities - 1;
    let left = parities - parity;
    let writes = u32::from(!target) + left;
    let reads = match (left, target, data) {
        // There is no parity to keep.
        (0, ..) => 0,
        // What was there before is known, or everything else is.
        (_, false, 0) => (1 + left).min(others),
        (_, false, _) => 1 + left,
        (_, true, 0) => others,
        // The others have to be recovered first, which takes as many blocks as there is data.
        (_, true, _) => others + 1,
    };
    (f64::from(reads), f64::from(writes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_nobody_missing_it_is_the_cheaper_of_both_ways() {
        assert_eq!(cost_of_a_write(6, 1, 0), (2.0, 2.0));
        assert_eq!(cost_of_a_write(3, 1, 0), (1.0, 2.0));
        assert_eq!(cost_of_a_write(8, 2, 0), (3.0, 3.0));
        assert_eq!(cost_of_a_write(4, 2, 0), (1.0, 3.0));
    }

    #[test]
    fn with_one_of_raid_5_missing_it_depends_on_which() {
        // Parity missing: a write. The block itself: the other data is read, parity written.
        // Another: read-modify-write.
        let n = 6.0;
        let (reads, writes) = cost_of_a_write(6, 1, 1);
        assert!((reads - 3.0 * (n - 2.0) / n).abs() < 1e-9);
        assert!((writes - 2.0 * (n - 1.0) / n).abs() < 1e-9);
        assert!((reads_of_a_read(6, 1, 1) - 2.0 * (n - 1.0) / n).abs() < 1e-9);
    }

    #[test]
    fn every_place_is_counted_once() {
        for members in 4..10 {
            for missing in 0..=2 {
                let all: f64 = (0..=1.min(missing))
                    .flat_map(|target| (0..=2.min(missing - target)).map(move |parity| (target, parity)))
                    .map(|(target, parity)| {
                        choose(1, target) * choose(2, parity) * choose(members - 3, missing - target - parity)
                    })
                    .sum();
                assert!((all - choose(members, missing)).abs() < 1e-9);
            }
        }
    }
}
