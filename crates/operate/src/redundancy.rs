//! How many more members an array can lose: the page, alerts and metrics say the same.

use std::collections::BTreeSet;

use wattle_server::protocol::report::{ArrayReport, Health, SeatState};

/// Members that may fail, whichever they are, before data is lost. Members that are not in sync
/// count as lost, and parity that is not trusted as none.
#[must_use]
pub fn left(array: &ArrayReport) -> usize {
    if array.health == Health::Unusable {
        return 0;
    }
    let slots = array.members.len();
    let lost: BTreeSet<usize> = (0..)
        .zip(&array.members)
        .filter(|(_, member)| member.state != SeatState::InSync)
        .map(|(slot, _)| slot)
        .collect();
    let parity = |blocks: usize| if array.synced { blocks.saturating_sub(lost.len()) } else { 0 };
    match array.level.as_str() {
        "raid1" => slots.saturating_sub(lost.len() + 1),
        "raid4" | "raid5" => parity(1),
        "raid6" => parity(2),
        "raid10" => copies_left(array.layout.as_deref().unwrap_or_default(), slots, &lost),
        _ => 0,
    }
}

/// Of RAID 10: the copies of the chunk that has the fewest left, but one.
fn copies_left(layout: &str, slots: usize, lost: &BTreeSet<usize>) -> usize {
    let Some((near, far)) = copies(layout) else { return 0 };
    let left = |chunk: usize| {
        let near = (0..near).map(move |copy| (chunk * near + copy) % slots.max(1));
        let all = near
            .flat_map(|member| (0..far).map(move |round| (member + round * near_of(layout)) % slots.max(1)));
        all.collect::<BTreeSet<_>>().difference(lost).count()
    };
    (0..slots).map(left).min().unwrap_or(0).saturating_sub(1)
}

fn near_of(layout: &str) -> usize {
    copies(layout).map_or(1, |(near, _)| near)
}

/// Near and far copies of `n2`, `f2`, `o3`, `n2f2`.
fn copies(layout: &str) -> Option<(usize, usize)> {
    let (mut near, mut far, mut rest) = (1, 1, layout);
    while let Some(letter) = rest.chars().next() {
        let digits = rest[letter.len_utf8()..].find(|c: char| !c.is_ascii_digit());
        let end = digits.map_or(rest.len(), |at| at + letter.len_utf8());
        let count =
            rest.get(letter.len_utf8()..end)?.parse().ok().filter(|count| (1..=255).contains(count))?;
        match letter {
            'n' => near = count,
            'f' | 'o' => far = count,
            _ => return None,
        }
        rest = &rest[end..];
    }
    (!layout.is_empty()).then_some((near, far))
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;

    use super::*;

    fn left_of(level: &str, layout: &str, members: usize, lost: &[usize]) -> usize {
        let names: Vec<String> = (0..members).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut data = array("data", level, &names);
        data.layout = Some(layout.to_owned());
        lost.iter().for_each(|slot| data.members[*slot].state = SeatState::Faulty);
        left(&data)
    }

    #[test]
    fn each_level_loses_as_many_as_it_can() {
        let rows: [(&str, &str, usize, &[usize], usize); 16] = [
            ("raid0", "", 3, &[], 0),
            ("linear", "", 3, &[], 0),
            ("raid1", "", 3, &[], 2),
            ("raid1", "", 3, &[1], 1),
            ("raid1", "", 2, &[1], 0),
            ("raid5", "left-symmetric", 4, &[], 1),
            ("raid5", "left-symmetric", 4, &[2], 0),
            ("raid6", "left-symmetric", 5, &[], 2),
            ("raid6", "left-symmetric", 5, &[0], 1),
            ("raid6", "left-symmetric", 5, &[0, 4], 0),
            ("raid10", "n2", 4, &[], 1),
            ("raid10", "n2", 4, &[0, 2], 0),
            ("raid10", "f2", 4, &[3], 0),
            ("raid10", "n3", 6, &[1], 1),
            ("raid10", "n2f2", 4, &[], 3),
            ("raid10", "?", 4, &[], 0),
        ];
        for (level, layout, members, lost, expected) in rows {
            assert_eq!(left_of(level, layout, members, lost), expected, "{level} {layout} {lost:?}");
        }
    }

    #[test]
    fn parity_that_is_not_trusted_is_no_redundancy_and_a_rebuilding_member_is_none() {
        let mut data = array("data", "raid6", &["a", "b", "c", "d"]);
        data.members[1].state = SeatState::Rebuilding;
        assert_eq!(left(&data), 1);
        data.synced = false;
        assert_eq!(left(&data), 0);
        let mut copies = array("data", "raid1", &["a", "b"]);
        copies.synced = false;
        assert_eq!(left(&copies), 1);
        copies.health = Health::Unusable;
        assert_eq!(left(&copies), 0);
    }
}
