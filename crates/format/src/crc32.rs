//! CRC-32 as zlib, Ethernet and GPT have it: reflected polynomial 0xedb88320.

/// What a byte does to the register, and what it does with one to seven zeros behind it.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ 0xedb8_8320 & (crc & 1).wrapping_neg();
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// The bare register after `bytes`, eight of them at a time, without an inversion before or after.
#[must_use]
pub fn register(mut crc: u32, bytes: &[u8]) -> u32 {
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let [a, b, c, d, e, f, g, h] = *eight else { unreachable!("pieces of eight") };
        let low = crc ^ u32::from_le_bytes([a, b, c, d]);
        crc = TABLES[7][(low & 0xff) as usize]
            ^ TABLES[6][(low >> 8 & 0xff) as usize]
            ^ TABLES[5][(low >> 16 & 0xff) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][usize::from(e)]
            ^ TABLES[2][usize::from(f)]
            ^ TABLES[1][usize::from(g)]
            ^ TABLES[0][usize::from(h)];
    }
    let step = |crc: u32, &byte: &u8| crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    eights.remainder().iter().fold(crc, step)
}

/// The usual checksum, inverted on both sides.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    !register(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_vectors() {
        assert_eq!(super::checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::checksum(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
        assert_eq!(super::checksum(b""), 0);
    }
}
