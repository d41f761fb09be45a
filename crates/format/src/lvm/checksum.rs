//! LVM2's checksum of labels, area headers and texts: docs/formats.md §11.1. The usual reflected CRC-32 polynomial with a
//! start value of its own and no final inversion, so no common CRC function gives it.

const POLYNOMIAL: u32 = 0xedb8_8320;
const START: u32 = 0xf597_a6cf;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// The checksum of `bytes`.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    crc_of_parts([bytes])
}

/// The checksum of the parts one after the other: a text may lie in two pieces.
pub(crate) fn crc_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    parts.into_iter().flatten().fold(START, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
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
