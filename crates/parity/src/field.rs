//! The field GF(2^8) with polynomial x^8+x^4+x^3+x^2+1 (0x11d) and generator 2, one element at a
//! time.
//!
//! Every table is computed by the compiler from [`mul`], so there is one definition of the field in
//! this crate (and an independent one in [`crate::naive`] that checks it).

/// Low byte of the field polynomial: what x^8 reduces to.
pub(crate) const REDUCTION: u8 = 0x1d;

/// Order of the multiplicative group: exponents of the generator count modulo this.
pub(crate) const ORDER: u8 = 255;

/// `a * b`.
#[must_use]
pub const fn mul(a: u8, b: u8) -> u8 {
    let (mut product, mut a, mut b) = (0, a, b);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// `2 * a`, one step of Horner's rule.
const fn double(a: u8) -> u8 {
    let carry = if a & 0x80 != 0 { REDUCTION } else { 0 };
    (a << 1) ^ carry
}

/// `g^exponent` with `g = 2`: the coefficient in Q of the data block with this exponent.
#[must_use]
pub const fn power(exponent: u8) -> u8 {
    POWERS[(exponent % ORDER) as usize]
}

/// The exponent `e < 255` for which `g^e == value`, or `None` for zero, which is no power of g.
#[must_use]
pub const fn log(value: u8) -> Option<u8> {
    if value == 0 { None } else { Some(LOGS[value as usize]) }
}

/// `1 / value`, or `None` for zero.
#[must_use]
pub const fn invert(value: u8) -> Option<u8> {
    match log(value) {
        Some(exponent) => Some(power(ORDER - exponent)),
        None => None,
    }
}

const POWERS: [u8; ORDER as usize] = {
    let mut powers = [1; ORDER as usize];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = double(powers[exponent - 1]);
        exponent += 1;
    }
    powers
};

const LOGS: [u8; 256] = {
    let mut logs = [0; 256];
    let mut exponent = 0;
    while exponent < ORDER {
        logs[POWERS[exponent as usize] as usize] = exponent;
        exponent += 1;
    }
    logs
};

/// Products of each factor with every low nibble (first 16 bytes) and every high nibble (last 16
/// bytes). A product is the XOR of two look-ups, which byte-shuffle instructions do for a whole
/// vector at once.
pub(crate) static NIBBLE_PRODUCTS: [[u8; 32]; 256] = {
    let mut tables = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][nibble] = mul(factor as u8, nibble as u8);
            tables[factor][16 + nibble] = mul(factor as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        factor += 1;
    }
    tables
};

/// Multiplication by each factor as an 8x8 bit matrix, in the layout `gf2p8affineqb` wants: byte
/// `7 - i` selects the input bits whose parity is output bit `i`. (`gf2p8mulb` is of no use here:
/// its polynomial is fixed at 0x11b.)
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only x86 has the affine instruction"))]
pub(crate) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        matrices[factor] = matrix(factor as u8);
        factor += 1;
    }
    matrices
};

/// One entry of [`MATRICES`].
pub(crate) const fn matrix(factor: u8) -> u64 {
    let mut matrix = 0;
    let mut input = 0;
    while input < 8 {
        let column = mul(factor, 1 << input);
        let mut output = 0;
        while output < 8 {
            let bit = ((column >> output) & 1) as u64;
            matrix |= bit << (8 * (7 - output) + input);
            output += 1;
        }
        input += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive;

    /// Miri is slow: it takes every seventeenth factor.
    const STEP: usize = if cfg!(miri) { 17 } else { 1 };

    #[test]
    fn the_field_is_md_s() {
        assert_eq!(power(8), 0x1d);
        assert_eq!(power(9), 0x3a);
        assert_eq!(power(0), 1);
        assert_eq!(power(ORDER), 1);
    }

    #[test]
    fn multiplication_agrees_with_the_oracle_everywhere() {
        for a in (0..=255).step_by(STEP) {
            for b in 0..=255 {
                assert_eq!(mul(a, b), naive::mul(a, b), "{a:#x} * {b:#x}");
            }
        }
    }

    #[test]
    fn logarithms_and_inverses_undo_powers_and_products() {
        for exponent in 0..ORDER {
            assert_eq!(log(power(exponent)), Some(exponent));
        }
        for value in 1..=255 {
            assert_eq!(invert(value).map(|inverse| mul(value, inverse)), Some(1), "{value:#x}");
        }
        assert_eq!((log(0), invert(0)), (None, None));
    }

    #[test]
    fn tables_multiply() {
        for factor in (0..=255u8).step_by(STEP) {
            let table = &NIBBLE_PRODUCTS[usize::from(factor)];
            for byte in 0..=255u8 {
                let product = mul(factor, byte);
                assert_eq!(table[usize::from(byte & 15)] ^ table[usize::from(16 + (byte >> 4))], product);
                let rows = MATRICES[usize::from(factor)].to_be_bytes();
                let affine = (0..8).fold(0, |sum, bit| sum | (((rows[bit] & byte).count_ones() & 1) << bit));
                assert_eq!(affine, u32::from(product));
            }
        }
    }
}
