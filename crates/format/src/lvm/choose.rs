//! Which of the copies of a VG's text to believe. docs/formats.md §11.2.

use super::area::AreaError;
use super::id::Id;

/// What one area says about its VG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaState {
    /// No VG yet.
    Empty,
    /// Not in use, whatever it holds.
    Ignored,
    /// The text with this sequence number and checksum is whole.
    Text {
        /// The VG's id.
        vg: Id,
        /// Counts commits.
        seqno: u64,
        /// Its checksum, to tell two texts of one number apart.
        crc: u32,
    },
    /// Nothing usable, and why.
    Damaged(AreaError),
    /// The checksum is right, but the text makes no sense.
    Unreadable,
}

/// How a copy compares with the chosen text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This is it, or is the same.
    Current,
    /// An earlier text: its area missed the last commits and has to be rewritten.
    Older {
        /// Its sequence number.
        seqno: u64,
    },
    /// Has no text that could count.
    None,
}

/// The copies of a VG contradict one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No PV has a text.
    #[error("no metadata area holds usable metadata")]
    NoText,
    /// Copies of several VGs were given.
    #[error("metadata areas {first} and {second} belong to different volume groups")]
    OtherVg {
        /// An area.
        first: usize,
        /// One that disagrees.
        second: usize,
    },
    /// Two histories: PVs were changed apart from one another.
    #[error(
        "metadata areas {first} and {second} hold different metadata with the same sequence number {seqno}"
    )]
    Split {
        /// An area.
        first: usize,
        /// One that disagrees.
        second: usize,
        /// Their sequence number.
        seqno: u64,
    },
}

/// Chooses among the areas of one VG: the highest sequence number whose text is whole, and how
/// every area stands to it. The index is that of the first area which has it.
pub fn choose(areas: &[AreaState]) -> Result<(usize, Vec<Standing>), ChooseError> {
    let texts = || {
        areas.iter().enumerate().filter_map(|(area, state)| match *state {
            AreaState::Text { vg, seqno, crc } => Some((area, vg, seqno, crc)),
            _ => None,
        })
    };
    let newest = texts().map(|(_, _, seqno, _)| seqno).max().ok_or(ChooseError::NoText)?;
    let (first, vg, seqno, crc) = texts().find(|text| text.2 == newest).ok_or(ChooseError::NoText)?;
    if let Some((second, ..)) = texts().find(|text| text.1 != vg) {
        return Err(ChooseError::OtherVg { first, second });
    }
    if let Some((second, ..)) = texts().find(|text| text.2 == newest && text.3 != crc) {
        return Err(ChooseError::Split { first, second, seqno });
    }
    let standing = |area: &AreaState| match *area {
        AreaState::Text { seqno, .. } if seqno == newest => Standing::Current,
        AreaState::Text { seqno, .. } => Standing::Older { seqno },
        _ => Standing::None,
    };
    Ok((first, areas.iter().map(standing).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_text_is_chosen() {
        let id = Id::from_random([1; 32]);
        let text = |seqno, crc| AreaState::Text { vg: id, seqno, crc };
        let damaged = AreaState::Damaged(AreaError::Magic);
        let copies = [AreaState::Empty, text(6, 1), damaged, text(7, 2), AreaState::Ignored, text(7, 2)];
        let (chosen, standings) = choose(&copies).unwrap();
        assert_eq!(chosen, 3);
        let older = Standing::Older { seqno: 6 };
        let current = Standing::Current;
        assert_eq!(standings, [Standing::None, older, Standing::None, current, Standing::None, current]);
        assert_eq!(choose(&[AreaState::Empty, damaged, AreaState::Unreadable]), Err(ChooseError::NoText));
        let split = ChooseError::Split { first: 0, second: 1, seqno: 7 };
        assert_eq!(choose(&[text(7, 1), text(7, 2)]), Err(split));
        assert!(choose(&[text(6, 1), text(6, 2), text(7, 3)]).is_ok(), "both are history");
        let other = AreaState::Text { vg: Id::from_random([2; 32]), seqno: 1, crc: 0 };
        assert_eq!(choose(&[text(7, 1), other]), Err(ChooseError::OtherVg { first: 0, second: 1 }));
    }
}
