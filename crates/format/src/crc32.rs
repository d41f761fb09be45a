//! CRC-32 as zlib, Ethernet and GPT have it: reflected polynomial 0xedb88320.

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ 0xedb8_8320 & (crc & 1).wrapping_neg();
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The bare register after `bytes`: no inversion, neither before nor after.
pub(crate) fn register(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// The usual checksum, inverted on both sides.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    !register(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_vector() {
        assert_eq!(super::checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::checksum(b""), 0);
    }
}
