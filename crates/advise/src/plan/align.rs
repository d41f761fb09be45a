//! On which member things start.

use super::PlanShape;

/// The member of the first copy of the `chunk`th chunk of data.
#[must_use]
pub fn first_member(shape: PlanShape, members: u32, chunk: u64) -> u32 {
    let n = u64::from(members);
    let member = match shape {
        PlanShape::Raid1 => 0,
        // Left-symmetric: data begins behind parity and goes on around, so that it simply goes
        // round all members.
        PlanShape::Raid5 => chunk % n,
        PlanShape::Raid6 => {
            let data = n - 2;
            (chunk % data + 1 + (n - chunk / data % n)) % n
        }
        PlanShape::Near(copies) => chunk * u64::from(copies) % n,
        PlanShape::Plain | PlanShape::Raid0 | PlanShape::Far(_) | PlanShape::Offset(_) => chunk % n,
    };
    member as u32
}

/// Chunks from one group to the next, `least` or a few more, so that the starts of `groups` of them
/// are spread over `places` members as evenly as can be: what every group has at its start would
/// otherwise lie on the same few. Never whole stripes of `width`, of which mkfs.xfs warns whatever
/// the layout.
#[must_use]
pub fn groups_spread(
    least: u64,
    groups: u64,
    (places, width): (u32, u32),
    place_of: impl Fn(u64) -> u32,
) -> u64 {
    let looked_at = groups.min(4 * u64::from(places));
    let ideal = looked_at.div_ceil(u64::from(places));
    let most_on_one = |every: u64| {
        let mut starts = vec![0_u64; places as usize];
        (0..looked_at).for_each(|group| starts[place_of(group * every) as usize] += 1);
        starts.into_iter().max().unwrap_or(0)
    };
    let tried = least..least + 4 * u64::from(places);
    let mut best = (u64::MAX, least);
    for every in tried.filter(|every| width < 2 || !every.is_multiple_of(u64::from(width))) {
        let most = most_on_one(every);
        if most < best.0 {
            best = (most, every);
        }
        if most <= ideal {
            break;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_do_not_all_start_on_one_member() {
        // 100 GiB in four groups of whole stripes: all would start on one of five members.
        let every = groups_spread(102_400, 4, (5, 4), |chunk| first_member(PlanShape::Raid5, 5, chunk));
        let starts: Vec<_> = (0..4).map(|group| first_member(PlanShape::Raid5, 5, group * every)).collect();
        assert_eq!(every, 102_401);
        assert_eq!(starts, [0, 1, 2, 3]);
        // An odd distance on an even number of members is found as well.
        let every = groups_spread(1000, 64, (8, 8), |chunk| first_member(PlanShape::Plain, 8, chunk));
        assert_eq!(every, 1001);
        // Two pairs of mirrors have two places.
        let every = groups_spread(1000, 4, (4, 2), |chunk| first_member(PlanShape::Near(2), 4, chunk));
        assert_eq!(every, 1001);
    }
}
