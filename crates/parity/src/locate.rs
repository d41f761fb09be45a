//! Which single block of a P+Q row is silently bad?

use crate::field;

/// What the differences between stored and computed parity say about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// Stored and computed parity agree.
    Nobody,
    /// Only P differs: P itself is bad.
    P,
    /// Only Q differs: Q itself is bad.
    Q,
    /// Both differ, everywhere as if this one data block were bad.
    Data {
        /// The block's exponent in Q.
        exponent: u8,
    },
    /// No single block explains the differences.
    Several,
}

/// Judges a row by `p_difference` = stored P ^ computed P and `q_difference` likewise, byte column
/// by byte column (docs/formats.md §6). `has_exponent` tells which exponents the row's data blocks
/// have.
///
/// A verdict is a deduction from the assumption that at most one block is bad: two bad blocks can
/// look like a third. Call it on the smallest unit that goes bad together, a sector.
///
/// # Panics
/// If the differences are not equally long.
#[must_use]
pub fn locate(p_difference: &[u8], q_difference: &[u8], has_exponent: impl Fn(u8) -> bool) -> Suspect {
    assert_eq!(p_difference.len(), q_difference.len(), "blocks of one row have one length");
    let mut verdict = Suspect::Nobody;
    for (p, q) in p_difference.iter().zip(q_difference) {
        let column = match (field::log(*p), field::log(*q)) {
            (None, None) => continue,
            (Some(_), None) => Suspect::P,
            (None, Some(_)) => Suspect::Q,
            (Some(p), Some(q)) => {
                let exponent = if q >= p { q - p } else { q + (field::ORDER - p) };
                if !has_exponent(exponent) {
                    return Suspect::Several;
                }
                Suspect::Data { exponent }
            }
        };
        if verdict != Suspect::Nobody && verdict != column {
            return Suspect::Several;
        }
        verdict = column;
    }
    verdict
}
