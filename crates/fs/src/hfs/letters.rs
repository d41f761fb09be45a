//! Names as paths have them.
//!
//! HFS+ keeps letters with marks decomposed (TN1150, "Unicode Subtleties"). Keyboards give them
//! composed, and so do Linux and what comes out of archives: names are shown composed, and a path
//! is taken in both forms.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::compose;

use crate::names::of_utf16;

/// A name as paths have it. A slash, which is a letter of a name here, is written as a colon, which
/// is none; a zero as its picture. So do Linux and macOS.
pub fn shown(units: &[u16]) -> Vec<u8> {
    const ZERO: u16 = 0x2400;
    composed(of_utf16(units.iter().map(|&unit| match unit {
        0 => ZERO,
        0x2f => 0x3a,
        unit => unit,
    })))
}

/// A name with its letters composed, each with the mark behind it; as it is if that could not be
/// taken back, so that two names in decomposed form stay two.
pub fn composed(name: Vec<u8>) -> Vec<u8> {
    let Some(text) = str::from_utf8(&name).ok().filter(|text| !text.is_ascii()) else { return name };
    let mut letters: Vec<char> = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match letters.last_mut().and_then(|last| Some((compose(*last, letter)?, last))) {
            Some((both, last)) => *last = both,
            None => letters.push(letter),
        }
    }
    match letters.iter().copied().nfd().eq(text.chars()) {
        true => letters.into_iter().collect::<String>().into_bytes(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_composed_where_that_can_be_taken_back() {
        let composed = |text: &str| String::from_utf8(composed(text.into())).expect("text");
        assert_eq!(composed("gro\u{308}ße"), "größe");
        assert_eq!(composed("a\u{323}\u{302}"), "ậ");
        assert_eq!(composed("\u{1112}\u{1161}\u{11ab}"), "한");
        // Nothing to put a mark on, marks without a letter of their own, and what is composed
        // already.
        for as_it_is in ["\u{308}o", "q\u{308}", "größe", "o\u{308}ö", "漢字 🦀", "plain", "\u{212b}"]
        {
            assert_eq!(composed(as_it_is), as_it_is);
        }
        // Halves of surrogate pairs are no text.
        assert_eq!(shown(&[0x6f, 0x308, 0xd83e]), [0x6f, 0xcc, 0x88, 0xed, 0xa0, 0xbe]);
        assert_eq!(shown(&[0, 0x2f]), "\u{2400}:".as_bytes());
    }
}
