//! Names of file systems that keep them as UTF-16, as bytes.

/// The name in UTF-8. Halves of surrogate pairs that stand alone, which Windows allows, are written
/// as UTF-8 would write their number (WTF-8): two names stay two names.
pub fn of_utf16(units: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let mut name = Vec::new();
    for unit in char::decode_utf16(units) {
        match unit {
            Ok(letter) => name.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
            Err(alone) => {
                let half = alone.unpaired_surrogate();
                name.extend([
                    0xe0 | (half >> 12) as u8,
                    0x80 | (half >> 6 & 0x3f) as u8,
                    0x80 | (half & 0x3f) as u8,
                ]);
            }
        }
    }
    name
}

/// Little-endian UTF-16 of so many bytes, as numbers.
pub fn units(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

/// What the bytes from 0x80 on mean in names of DOS: code page 437, which Linux takes unless told
/// otherwise.
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧\
     ╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// A name of DOS in UTF-8; in small letters where it says so.
pub fn of_dos(bytes: &[u8], in_small_letters: bool) -> String {
    let letter = |&byte: &u8| match byte {
        0..=0x7f if in_small_letters => char::from(byte).to_ascii_lowercase(),
        0..=0x7f => char::from(byte),
        _ => {
            let letter = CODE_PAGE_437.chars().nth(usize::from(byte) - 0x80).unwrap_or('\u{fffd}');
            if in_small_letters { letter.to_lowercase().next().unwrap_or(letter) } else { letter }
        }
    };
    bytes.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_page_is_whole() {
        assert_eq!(CODE_PAGE_437.chars().count(), 128);
        assert_eq!(of_dos(b"GR\x9aN", false), "GRÜN");
        assert_eq!(of_dos(b"GR\x9aN", true), "grün");
    }

    #[test]
    fn halves_of_pairs_stay_apart() {
        assert_eq!(of_utf16("größe 🦀".encode_utf16()), "größe 🦀".as_bytes());
        assert_eq!(of_utf16([0xd83e]), [0xed, 0xa0, 0xbe]);
        assert_ne!(of_utf16([0xd83e]), of_utf16([0xd83f]));
    }
}
