//! Which member goes into which slot, where each pair of them speaks for itself.

/// What is said for a member in a slot; in the last column for no member.
pub(super) type Weights = Vec<Vec<f64>>;

/// The order by slots for which the most is said, with exactly so many slots empty as there are
/// fewer members.
pub(super) fn best(weights: &Weights) -> Vec<Option<usize>> {
    let slots = weights.len();
    let members = weights[0].len() - 1;
    let empty = slots - members;
    // By the set of members that are in the first slots: what is said for the best order of them,
    // and which of them is in the last of these slots.
    let sets = 1_usize << members;
    let mut said = vec![vec![f64::NEG_INFINITY; sets]; slots + 1];
    let mut last = vec![vec![None; sets]; slots + 1];
    said[0][0] = 0.0;
    for slot in 0..slots {
        for set in 0..sets {
            let base = said[slot][set];
            if base == f64::NEG_INFINITY {
                continue;
            }
            let mut take = |next: usize, who: Option<usize>, weight: f64| {
                if base + weight > said[slot + 1][next] {
                    said[slot + 1][next] = base + weight;
                    last[slot + 1][next] = who;
                }
            };
            for member in (0..members).filter(|member| set & 1 << member == 0) {
                take(set | 1 << member, Some(member), weights[slot][member]);
            }
            if slot - (set.count_ones() as usize) < empty {
                take(set, None, weights[slot][members]);
            }
        }
    }
    let mut order = vec![None; slots];
    let mut set = sets - 1;
    for slot in (0..slots).rev() {
        order[slot] = last[slot + 1][set];
        set &= !order[slot].map_or(0, |member| 1 << member);
    }
    order
}

/// What is said for an order.
pub(super) fn total(weights: &Weights, order: &[Option<usize>]) -> f64 {
    let nobody = weights[0].len() - 1;
    order.iter().zip(weights).map(|(who, slot)| slot[who.unwrap_or(nobody)]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_order_is_found_with_and_without_everybody() {
        let weights = vec![vec![1.0, 5.0, 4.0, 0.0], vec![0.0, 6.0, 1.0, 0.0], vec![3.0, 1.0, 5.0, 0.0]];
        assert_eq!(best(&weights), [Some(2), Some(1), Some(0)]);
        let weights = vec![vec![1.0, 5.0, 9.0], vec![0.0, 6.0, 1.0], vec![3.0, 1.0, 0.0]];
        assert_eq!(best(&weights), [None, Some(1), Some(0)]);
        assert!((total(&weights, &best(&weights)) - 18.0).abs() < 1e-9);
    }
}
