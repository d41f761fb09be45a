//! Sizes as operators write and read them. `G` and `GiB` are binary, as in mdadm and LVM; `GB` is
//! decimal. What a drive is sold as is read in the crate `wattle-drives`.

use std::fmt;

use thiserror::Error;

use crate::problem::{Code, Problem};

/// Not a size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a size")]
pub struct SizeError {
    /// As it was given.
    pub text: String,
}

impl From<SizeError> for Problem {
    fn from(error: SizeError) -> Self {
        Self::new(
            Code::BadSize,
            error.to_string(),
            "expected a number with K, M, G, T, P or E for powers of 1024, with KB, MB, GB, TB, PB or EB for powers of 1000, or with `s` for sectors of 512 bytes",
            "write it like 64K, 1.5G, 3.84TB, 2048s or 1048576",
        )
    }
}

/// Bytes of `64K`, `1.5G`, `1GiB`, `3.84TB`, `2048s`, `512`. A number alone counts bytes; case does
/// not matter. What has a point is rounded down to whole sectors of 512 bytes.
///
/// # Errors
/// [`SizeError`] for anything else, also for what does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = text.split_at(digits);
    let unit = unit_bytes(suffix).or_else(|| decimal_unit_bytes(suffix));
    unit.and_then(|unit| times(number, unit)).ok_or_else(|| SizeError { text: text.to_owned() })
}

/// A number, perhaps with digits behind a point, of units of so many bytes.
fn times(number: &str, unit_bytes: u64) -> Option<u64> {
    const SECTOR_BYTES: u64 = 512;
    /// More of them would change nothing that has whole sectors.
    const DIGITS_MAX: usize = 12;
    let Some((whole, part)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(unit_bytes);
    };
    let is_part = (1..=DIGITS_MAX).contains(&part.len()) && unit_bytes > SECTOR_BYTES;
    let (whole, digits) = (whole.parse::<u64>().ok()?, part.parse::<u64>().ok().filter(|_| is_part)?);
    let part = u128::from(digits) * u128::from(unit_bytes) / 10u128.pow(part.len() as u32);
    let bytes = u128::from(whole) * u128::from(unit_bytes) + part;
    Some(u64::try_from(bytes).ok()? / SECTOR_BYTES * SECTOR_BYTES)
}

/// How many bytes a unit of drives' makers has.
fn decimal_unit_bytes(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "kb" => Some(1_000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "tb" => Some(1_000_000_000_000),
        "pb" => Some(1_000_000_000_000_000),
        "eb" => Some(1_000_000_000_000_000_000),
        _ => None,
    }
}

/// How many bytes a unit has, of those that LVM2 knows.
#[must_use]
pub fn unit_bytes(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "s" => Some(512),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        "t" | "tib" => Some(1 << 40),
        "p" | "pib" => Some(1 << 50),
        "e" | "eib" => Some(1 << 60),
        _ => None,
    }
}

/// Shows bytes in the largest IEC unit: `64 KiB`, `1.5 GiB`, `513 B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iec(pub u64);

impl fmt::Display for Iec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let power = (self.0.ilog2() / 10) as usize;
        let unit = 1u64 << (10 * power);
        // Two digits behind the point; integers, so that what is exact looks exact.
        let hundredths = u128::from(self.0) * 100 / u128::from(unit);
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match part {
            0 => write!(f, "{whole} {}", UNITS[power - 1]),
            p if p % 10 == 0 => write!(f, "{whole}.{} {}", p / 10, UNITS[power - 1]),
            p => write!(f, "{whole}.{p:02} {}", UNITS[power - 1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_unless_they_say_otherwise() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("7s", 3584),
            ("64K", 65536),
            ("64k", 65536),
            ("4M", 4 << 20),
            ("1GiB", 1 << 30),
            ("15E", 15 << 60),
            ("1.5G", 3 << 29),
            ("0.1G", 107_374_080),
            ("1.999999999999M", (2 << 20) - 512),
            ("1KB", 1000),
            ("3.84TB", 3_840_000_000_000),
            ("20tb", 20_000_000_000_000),
            ("18EB", 18_000_000_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "1.5",
            "1.5s",
            ".5G",
            "1.G",
            "1..5G",
            "1.2.3G",
            "1,5G",
            "1.0000000000001G",
            "1 K",
            "16E",
            "19EB",
            "17.0E",
            "99999999999999999999",
            "0x10",
            "1Kx",
            "1KBB",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown_sizes_are_short_and_exact_where_they_can_be() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (65536, "64 KiB"),
            (u64::MAX, "15.99 EiB"),
            (1077936128, "1 GiB"),
            (8 << 20, "8 MiB"),
        ] {
            assert_eq!(Iec(bytes).to_string(), text);
        }
    }
}
