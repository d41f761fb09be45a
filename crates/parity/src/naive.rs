//! Parity one byte at a time: for reading, and the oracle every kernel is tested
//! against.
//!
//! Nothing here shares code or tables with the kernels. `sources` are pairs of exponent and block,
//! in any order.

/// `a * b` in GF(2^8) modulo 0x11d: carry-less multiplication, then long division.
#[must_use]
pub fn mul(a: u8, b: u8) -> u8 {
    let mut product =
        (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ (u16::from(a) << bit));
    for bit in (8..15).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

/// `2^exponent` by repeated multiplication.
#[must_use]
pub fn power(exponent: u8) -> u8 {
    (0..exponent).fold(1, |power, _| mul(power, 2))
}

/// P: each byte column's sum.
pub fn p(p: &mut [u8], sources: &[(u8, &[u8])]) {
    for (column, sum) in p.iter_mut().enumerate() {
        *sum = sources.iter().fold(0, |sum, (_, block)| sum ^ block[column]);
    }
}

/// Q: each byte column's sum, every block weighted with 2^exponent.
pub fn q(q: &mut [u8], sources: &[(u8, &[u8])]) {
    q.fill(0);
    for &(exponent, block) in sources {
        let weight = power(exponent);
        for (sum, byte) in q.iter_mut().zip(block) {
            *sum ^= mul(weight, *byte);
        }
    }
}
