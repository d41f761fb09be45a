//! Sizes of volumes: `-L 10G`, `-L +5G`, `-l 100`, `-l 50%VG`, `-l +100%FREE`, `-l +50%LV`.

use wattle_control::size::parse_size;
use wattle_control::{Code, Problem};

use crate::protocol::change::Extents;

/// What of a group an amount may be a part of, in extents.
#[derive(Debug, Clone, Copy)]
pub struct GroupExtents {
    /// Sectors of one.
    pub extent_sectors: u64,
    /// All there are.
    pub all: u64,
    /// Those that are free.
    pub free: u64,
    /// Of the physical volumes that are named the free ones; all there are if none is named.
    pub physical: u64,
    /// The volume's, if there is one already.
    pub volume: Option<u64>,
}

/// Whether an amount is a size or a change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// So large.
    To,
    /// So much more.
    More,
    /// So much less.
    Less,
}

/// Whether less will do where there is not so much: of what is a part of what is free, and of a
/// part of the group that is no change.
pub fn is_at_most(asked: &Extents, sign: Sign) -> bool {
    let of = asked.extents.as_deref().and_then(|extents| extents.split_once('%'));
    match of.map(|(_, of)| of.to_ascii_uppercase()).as_deref() {
        Some("FREE") => true,
        Some("VG" | "PVS") => sign == Sign::To,
        _ => false,
    }
}

/// An amount in extents.
///
/// # Errors
/// It is none.
pub fn parse(asked: &Extents, group: GroupExtents) -> Result<(Sign, u64), Problem> {
    let (text, is_size) = match (&asked.size, &asked.extents) {
        (Some(size), _) => (size, true),
        (None, Some(extents)) => (extents, false),
        (None, None) => return Err(bad("", "a size is needed")),
    };
    let (sign, amount) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (Sign::More, rest),
        (_, Some(rest)) => (Sign::Less, rest),
        _ => (Sign::To, text.as_str()),
    };
    if is_size {
        let (bytes, extent_bytes) = (parse_size(amount)?, group.extent_sectors.saturating_mul(512).max(1));
        // Never less room than asked for.
        let extents = if sign == Sign::Less { bytes / extent_bytes } else { bytes.div_ceil(extent_bytes) };
        return Ok((sign, extents));
    }
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| bad(text, "expected a number of extents"));
    let Some((percent, of)) = amount.split_once('%') else { return Ok((sign, number(amount)?)) };
    let whole = match (of.to_ascii_uppercase().as_str(), group.volume) {
        ("FREE", _) => group.free,
        ("VG", _) => group.all,
        ("PVS", _) => group.physical,
        ("LV", Some(volume)) => volume,
        ("LV", None) => return Err(bad(text, "a new volume has no size yet that it could be a part of")),
        _ => return Err(bad(text, "a percentage is of VG, FREE, PVS or LV")),
    };
    let hundredfold = u128::from(whole) * u128::from(number(percent)?);
    // Rounds as LVM2 does: what a volume that is there is to have, up; what it is to lose, and what
    // a new one is to have, down.
    let part = match (group.volume, sign) {
        (Some(_), Sign::To | Sign::More) => hundredfold.div_ceil(100),
        _ => hundredfold / 100,
    };
    Ok((sign, u64::try_from(part).unwrap_or(u64::MAX)))
}

fn bad(text: &str, why: &str) -> Problem {
    Problem::new(
        Code::BadSize,
        format!("`{text}` is not an amount of extents"),
        why,
        "write it like 100, 50%VG or +100%FREE",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_as_lvm_has_them() {
        let new = GroupExtents { extent_sectors: 8192, all: 300, free: 101, physical: 77, volume: None };
        let there = GroupExtents { volume: Some(8), ..new };
        let size = |text: &str| parse(&Extents { size: Some(text.to_owned()), extents: None }, new).unwrap();
        assert_eq!(size("10M"), (Sign::To, 3), "up to whole extents");
        assert_eq!(size("+4M"), (Sign::More, 1));
        assert_eq!(size("-8192s"), (Sign::Less, 1));
        assert_eq!(size("-7M"), (Sign::Less, 1), "never more than asked for");
        let of = |text: &str, group| parse(&Extents { size: None, extents: Some(text.to_owned()) }, group);
        let extents = |text: &str| of(text, new);
        assert_eq!(extents("7").unwrap(), (Sign::To, 7));
        assert_eq!(extents("50%FREE").unwrap(), (Sign::To, 50), "down, of a new one");
        assert_eq!(extents("50%PVS").unwrap(), (Sign::To, 38));
        assert_eq!(extents("+100%vg").unwrap(), (Sign::More, 300));
        assert_eq!(of("+33%LV", there).unwrap(), (Sign::More, 3), "up, of one that is there");
        assert_eq!(of("50%FREE", there).unwrap(), (Sign::To, 51));
        assert_eq!(of("-33%LV", there).unwrap(), (Sign::Less, 2), "never more than asked for");
        assert_eq!(of("18446744073709551615%VG", there).unwrap(), (Sign::To, u64::MAX));
        let at_most = |text: &str| {
            let asked = Extents { size: None, extents: Some(text.to_owned()) };
            is_at_most(&asked, parse(&asked, there).unwrap().0)
        };
        for text in ["1%free", "+1%FREE", "80%VG", "80%PVS"] {
            assert!(at_most(text), "{text}");
        }
        for text in ["1", "+80%VG", "+80%PVS", "80%LV"] {
            assert!(!at_most(text), "{text}");
        }
        for bad in ["", "x", "5%", "5%LV", "5%ORIGIN", "-", "1.5%VG", "18446744073709551616", "-1%FREE%VG"] {
            assert_eq!(extents(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
