//! LVM2's checksum of labels, area headers and texts: docs/formats.md §11.1. The usual reflected
//! CRC-32 polynomial with a start value of its own and no final inversion, so no common CRC
//! function gives it.

use crate::crc32;

const START: u32 = 0xf597_a6cf;

/// The checksum of `bytes`.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_of_parts([bytes])
}

/// The checksum of the parts one after the other: a text may lie in two pieces.
pub(crate) fn crc_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    parts.into_iter().fold(START, crc32::register)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc(b"123456789"), 0x4991_cf02);
        assert_eq!(crc(b""), START);
        assert_eq!(crc_of_parts([&b"1234"[..], b"56789"]), crc(b"123456789"));
    }
}
