//! Sizes as operators write and read them. Suffixes are binary, as in mdadm and LVM.

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
            "expected a whole number, with K, M, G, T, P or E for powers of 1024, or `s` for sectors of 512 bytes",
            "write it like 64K, 4M, 1G, 2048s or 1048576",
        )
    }
}

/// Bytes of `64K`, `4M`, `1G`, `1GiB`, `2048s`, `512`. A number alone counts bytes; case does not
/// matter.
///
/// # Errors
/// [`SizeError`] for anything else, also for what does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let unit_bytes = unit_bytes(suffix);
    let bytes = number.parse::<u64>().ok().zip(unit_bytes).and_then(|(n, unit)| n.checked_mul(unit));
    bytes.ok_or_else(|| SizeError { text: text.to_owned() })
}

/// How many bytes a unit has.
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
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("7s", 3584),
            ("64K", 65536),
            ("64k", 65536),
            ("4M", 4 << 20),
            ("1GiB", 1 << 30),
            ("15E", 15 << 60),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "1KB", "1 K", "16E", "99999999999999999999", "0x10", "1Kx"] {
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
