//! The checksums of `metadata_csum`: CRC-32C, seeded with the file system's UUID and not inverted
//! at its end.

/// Goes on from `seed` over `bytes`.
pub fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// CRC-32 with the highest bit first, not inverted: of whole transactions, in the first checksums
/// that the journal had.
pub fn crc_big_endian(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |sum, byte| sum << 8 ^ TABLE[usize::from((sum >> 24) as u8 ^ byte)])
}

/// CRC-16 with the lowest bit first, not inverted: of descriptors of groups, before
/// `metadata_csum`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0xa001;
    let bit = |sum: u16, _| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ POLYNOMIAL };
    bytes.iter().fold(seed, |sum, byte| (0..8).fold(sum ^ u16::from(*byte), bit))
}

const TABLE: [u32; 256] = {
    const POLYNOMIAL: u32 = 0x04c1_1db7;
    let mut table = [0; 256];
    let mut ix = 0;
    while ix < table.len() {
        let (mut sum, mut bit) = ((ix as u32) << 24, 0);
        while bit < 8 {
            sum = if sum >> 31 == 0 { sum << 1 } else { sum << 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[ix] = sum;
        ix += 1;
    }
    table
};

/// As [`crc`], with zeros in place of the bytes from `hole` on: where the checksum itself is.
pub fn crc_without(seed: u32, bytes: &[u8], hole: usize, hole_len: usize) -> u32 {
    let (before, rest) = bytes.split_at(hole.min(bytes.len()));
    let after = rest.get(hole_len..).unwrap_or_default();
    const ZEROS: [u8; 4] = [0; 4];
    crc(crc(crc(seed, before), &ZEROS[..hole_len.min(4)]), after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_their_names() {
        assert_eq!(!crc(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc_big_endian(!0, b"123456789"), 0x0376_e6e7);
        assert_eq!(crc16(!0, b"123456789"), 0x4b37);
    }
}
