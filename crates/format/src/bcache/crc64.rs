//! CRC-64 of ECMA-182, the highest bit first.

const POLYNOMIAL: u64 = 0x42f0_e1eb_a9ea_3693;

/// What a byte does to the register, and what it does with one to seven zeros behind it.
static TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u64) << 56, 0);
        while bit < 8 {
            crc = crc << 1 ^ POLYNOMIAL & (crc >> 63).wrapping_neg();
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u64 = tables[table - 1][byte];
            tables[table][byte] = before << 8 ^ tables[0][(before >> 56) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

/// The bare register after `bytes`, without an inversion before or after.
pub(super) fn register(mut crc: u64, bytes: &[u8]) -> u64 {
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let [a, b, c, d, e, f, g, h] = *eight else { unreachable!("pieces of eight") };
        let [a, b, c, d, e, f, g, h] =
            (crc ^ u64::from_be_bytes([a, b, c, d, e, f, g, h])).to_be_bytes().map(usize::from);
        crc = TABLES[7][a]
            ^ TABLES[6][b]
            ^ TABLES[5][c]
            ^ TABLES[4][d]
            ^ TABLES[3][e]
            ^ TABLES[2][f]
            ^ TABLES[1][g]
            ^ TABLES[0][h];
    }
    let step = |crc: u64, &byte: &u8| crc << 8 ^ TABLES[0][usize::from((crc >> 56) as u8 ^ byte)];
    eights.remainder().iter().fold(crc, step)
}

/// The checksum of `bytes`: inverted before and after.
pub(super) fn crc64(bytes: &[u8]) -> u64 {
    !register(u64::MAX, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_ecma_182() {
        // CRC-64/WE, by its check value.
        assert_eq!(crc64(b"123456789"), 0x62ec_59e3_f1a4_f00a);
    }

    #[test]
    fn eight_bytes_at_a_time_give_what_single_ones_give() {
        let bytes: Vec<u8> = (0..100_u32).map(|at| (at * 37 % 251) as u8).collect();
        for len in 0..bytes.len() {
            let single = bytes[..len].iter().fold(7, |crc, byte| register(crc, &[*byte]));
            assert_eq!(register(7, &bytes[..len]), single);
        }
    }
}
