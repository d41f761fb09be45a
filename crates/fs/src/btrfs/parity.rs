//! Blocks of RAID 5 and 6 from the others of their row: byte by byte, in the field of 256 elements
//! with the polynomial 0x11d and the generator 2.
//!
//! The room `parity` has kernels for this, and this room uses no other one: it reads one stripe of
//! 64 KiB at a time, and only where a device is missing or wrong, so that the drive and not the
//! arithmetic takes the time. What is here is a page that needs no `unsafe`.

/// Products of two elements, by their logarithms.
struct Tables {
    exponents: [u8; 510],
    logarithms: [u8; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let (mut exponents, mut logarithms) = ([0; 510], [0; 256]);
    let (mut power, mut exponent) = (1_u16, 0);
    while exponent < 255 {
        exponents[exponent] = power as u8;
        exponents[exponent + 255] = power as u8;
        logarithms[power as usize] = exponent as u8;
        power <<= 1;
        if power & 0x100 != 0 {
            power ^= 0x11d;
        }
        exponent += 1;
    }
    Tables { exponents, logarithms }
}

/// 2 to the power of `exponent`.
fn power(exponent: usize) -> u8 {
    TABLES.exponents[exponent % 255]
}

fn product(a: u8, b: u8) -> u8 {
    match (a, b) {
        (0, _) | (_, 0) => 0,
        _ => {
            let log = |element: u8| usize::from(TABLES.logarithms[usize::from(element)]);
            TABLES.exponents[log(a) + log(b)]
        }
    }
}

/// The element whose product with `a` is 1; `a` is not 0.
fn inverse(a: u8) -> u8 {
    TABLES.exponents[255 - usize::from(TABLES.logarithms[usize::from(a)])]
}

/// Adds `factor` times `from` to `into`.
pub fn add(into: &mut [u8], from: &[u8], factor: u8) {
    if factor == 1 {
        into.iter_mut().zip(from).for_each(|(into, from)| *into ^= from);
        return;
    }
    let products: Vec<u8> = (0..=u8::MAX).map(|byte| product(factor, byte)).collect();
    into.iter_mut().zip(from).for_each(|(into, from)| *into ^= products[usize::from(*from)]);
}

/// What the data of column `column` counts for in Q.
pub fn weight(column: usize) -> u8 {
    power(column)
}

/// Makes the data of `column` of what is left of Q once all other data was taken away.
pub fn from_q(rest: &mut [u8], column: usize) {
    let products: Vec<u8> = (0..=u8::MAX).map(|byte| product(inverse(power(column)), byte)).collect();
    rest.iter_mut().for_each(|byte| *byte = products[usize::from(*byte)]);
}

/// The data of `column` where that of `other` is not known either, of what is left of P and Q once
/// all other data was taken away. The columns are two different ones, below 255.
pub fn from_both(p_rest: &[u8], q_rest: &[u8], (column, other): (usize, usize)) -> Vec<u8> {
    // With the data a and b of these columns, P leaves a + b and Q leaves g^x a + g^y b.
    let mut data = q_rest.to_vec();
    add(&mut data, p_rest, power(other));
    let factor = inverse(power(column) ^ power(other));
    data.iter_mut().for_each(|byte| *byte = product(factor, *byte));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as the definition has it.
    fn by_shifts(mut a: u8, b: u8) -> u8 {
        let mut sum = 0;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= a;
            }
            a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { 0x1d };
        }
        sum
    }

    #[test]
    fn products_and_inverses_are_those_of_the_field() {
        for a in 0..=u8::MAX {
            assert!((0..=u8::MAX).all(|b| product(a, b) == by_shifts(a, b)), "{a}");
            assert!(a == 0 || product(a, inverse(a)) == 1, "{a}");
        }
    }

    #[test]
    fn every_column_comes_back_from_p_from_q_and_from_both() {
        let data: Vec<Vec<u8>> = (0_u8..9).map(|ix| vec![ix * 29 + 1, ix ^ 0x5a, 255 - ix]).collect();
        let (mut p, mut q) = (vec![0; 3], vec![0; 3]);
        for (ix, data) in data.iter().enumerate() {
            add(&mut p, data, 1);
            add(&mut q, data, weight(ix));
        }
        let without = |parity: &[u8], gone: &[usize], weight: fn(usize) -> u8| {
            let mut rest = parity.to_vec();
            for (ix, data) in data.iter().enumerate().filter(|(ix, _)| !gone.contains(ix)) {
                add(&mut rest, data, weight(ix));
            }
            rest
        };
        for column in 0..data.len() {
            assert_eq!(without(&p, &[column], |_| 1), data[column]);
            let mut rest = without(&q, &[column], weight);
            from_q(&mut rest, column);
            assert_eq!(rest, data[column]);
            for other in (0..data.len()).filter(|other| *other != column) {
                let gone = [column, other];
                let rests = (without(&p, &gone, |_| 1), without(&q, &gone, weight));
                assert_eq!(from_both(&rests.0, &rests.1, (column, other)), data[column]);
            }
        }
    }
}
